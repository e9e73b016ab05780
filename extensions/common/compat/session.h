/*
 * compat/session.h
 *		Differences between major versions: the server process: its locks, waits and settings, and how a module is loaded.
 */
#ifndef STRATA_COMPAT_SESSION_H
#define STRATA_COMPAT_SESSION_H

/* VARDATA() and its like left postgres.h in 16. */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* The index of our PGPROC, below MaxBackends for sessions; needs storage/proc.h. */
#if PG_VERSION_NUM >= 170000
#define compat_my_proc_index() MyProcNumber
#else
#define compat_my_proc_index() (MyProc->pgprocno)
#endif

/* A set that lives as long as the session: its owner was a memory context, and is a ResourceOwner since 17. */
#if PG_VERSION_NUM >= 170000
#define compat_create_session_wait_event_set(events) CreateWaitEventSet(NULL, (events))
#else
#define compat_create_session_wait_event_set(events) CreateWaitEventSet(TopMemoryContext, (events))
#endif

/* Does this session hold the lock in this mode? */
#if PG_VERSION_NUM >= 170000
#define compat_lock_held_by_me(tag, mode) LockHeldByMe(tag, mode, false)
#else
#define compat_lock_held_by_me(tag, mode) LockHeldByMe(tag, mode)
#endif

/* All settings, as utils/guc_tables.h has them; they left their array for a hash table in 16. */
#if PG_VERSION_NUM >= 160000
#define compat_guc_variables(count) get_guc_variables(count)
#else
#define compat_guc_variables(count) (*(count) = GetNumConfigOptions(), get_guc_variables())
#endif

/* The part of a setting that only its type (bool, int, real, enum) has: it was around the rest up to 18, and is in it. */
#if PG_VERSION_NUM >= 190000
#define compat_guc_part(setting, type) (&(setting)->_##type)
#else
#define compat_guc_part(setting, type) ((const struct config_##type *) (setting))
#endif

/* standard_conforming_strings cannot be switched off since 19, and is no variable. */
#if PG_VERSION_NUM >= 190000
static const bool compat_conforming_strings = true;
#else
#define compat_conforming_strings standard_conforming_strings
#endif

/* SQL that a session on another node of the same version runs first: settings that not every version has. */
#if PG_VERSION_NUM >= 170000
#define COMPAT_PINNED_SETTINGS "SET transaction_timeout = 0; "
#else
#define COMPAT_PINNED_SETTINGS ""
#endif

/* Is this process an autovacuum worker? */
#if PG_VERSION_NUM >= 170000
#define compat_is_autovacuum_worker() AmAutoVacuumWorkerProcess()
#else
#define compat_is_autovacuum_worker() IsAutoVacuumWorkerProcess()
#endif

/* ExecutorRun: a portal that is read in pieces no longer tells whether this is the only one, since 18. */
#if PG_VERSION_NUM >= 180000
#define COMPAT_RUN_ARGUMENTS(query) QueryDesc *query, ScanDirection direction, uint64 count
#define COMPAT_PASS_RUN(query) query, direction, count
#else
#define COMPAT_RUN_ARGUMENTS(query) \
	QueryDesc *query, ScanDirection direction, uint64 count, bool execute_once
#define COMPAT_PASS_RUN(query) query, direction, count, execute_once
#endif

/* What makes a library loadable; since 18 with its name and version, as pg_get_loaded_modules() tells them. */
#if PG_VERSION_NUM >= 180000
#define COMPAT_MODULE_MAGIC(extension) \
	PG_MODULE_MAGIC_EXT(.name = extension, .version = STRATA_VERSION)
#else
#define COMPAT_MODULE_MAGIC(extension) PG_MODULE_MAGIC
#endif

/* What a handler is told of its signal: since 19, who sent it, too. */
#if PG_VERSION_NUM >= 190000
#define COMPAT_PASS_SIGNAL postgres_signal_arg, pg_siginfo
#else
#define COMPAT_PASS_SIGNAL postgres_signal_arg
#endif

/* A hash table in shared memory has all of its entries from the start since 19. */
#if PG_VERSION_NUM >= 190000
#define compat_shmem_init_hash(name, entries, control, flags) \
	ShmemInitHash(name, entries, control, flags)
#else
#define compat_shmem_init_hash(name, entries, control, flags) \
	ShmemInitHash(name, entries, entries, control, flags)
#endif

#endif
