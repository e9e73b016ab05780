/*
 * remote_role.h
 *		As whom a statement runs on a worker.
 */
#ifndef STRATA_REMOTE_ROLE_H
#define STRATA_REMOTE_ROLE_H

#include "wire/connection.h"
#include "lib/stringinfo.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

static inline bool
remote_role_equal(RemoteRole a, RemoteRole b)
{
	return a.user == b.user && a.security_context == b.security_context;
}

/* Who acts now. */
extern RemoteRole remote_role_current(void);

/* From now on this one does; who did before.  An error needs no cleanup: the abort restores the user. */
extern RemoteRole remote_role_enter(RemoteRole role);

/*
 * The current user, and the worker looks up names in schemas that he may not use if some of these (of which he knows
 * by a view) are such.
 */
extern RemoteRole remote_role_for_schemas(List *schemas);
extern RemoteRole remote_role_for_relation(Relation relation);

/* Append what tells the worker who acts, unless it knows; the number of commands. */
extern int remote_role_append(StringInfo message, WorkerConnection *conn);

/* Append what has the session's own user act, unless he does; the number of commands. */
extern int remote_role_append_reset(StringInfo message, WorkerConnection *conn);

/* A transaction begins there: the session's user acts. */
extern void remote_role_begin(WorkerConnection *conn);

/* A savepoint was rolled back: nobody knows who acts. */
extern void remote_role_forget(WorkerConnection *conn);

#endif
