/*
 * read_hook.h
 *		How strata_columnar tells strata_tiering what queries read.
 *
 * The libraries do not link each other.  A rendezvous variable (find_rendezvous_variable()) holds the
 * function to call, NULL when nobody wants to know.
 */
#ifndef STRATA_READ_HOOK_H
#define STRATA_READ_HOOK_H

#define READ_HOOK_VARIABLE "strata_columnar.read_hook"

/*
 * A query has read so many stored bytes of a row group.  Called when a scan leaves the group, or an index scan
 * ends: seldom, and outside of critical sections.  May allocate; must not raise an error.
 */
typedef void (*ReadHook)(Oid relation, uint64 group_id, uint64 bytes);

#endif
