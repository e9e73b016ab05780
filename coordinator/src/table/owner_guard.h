/*
 * owner_guard.h
 *		What a superuser has workers compute of somebody's table runs with that role's rights at most.
 */
#ifndef STRATA_OWNER_GUARD_H
#define STRATA_OWNER_GUARD_H

#include "nodes/bitmapset.h"
#include "utils/relcache.h"

/*
 * From now on, in the current user's transaction on these workers.  False when there is nothing to guard;
 * else owner_guard_end() follows with the same workers, or the transaction's abort.
 */
extern bool owner_guard_begin(const Bitmapset *workers, Relation relation);
extern void owner_guard_end(const Bitmapset *workers);

#endif
