/*
 * shard_move.h
 *		A shard moves from one worker to another, with its rows and with its whole colocation group.
 *
 * The SQL function is strata.move_shard(), symbol strata_move_shard.
 */
#ifndef STRATA_SHARD_MOVE_H
#define STRATA_SHARD_MOVE_H

#include "postgres.h"

/*
 * In the current transaction, whose end decides: ERROR if it cannot be moved, 0 if it is there already.  Returns the number of
 * rows.  Locks the group's tables against everybody until the transaction ends.
 */
extern uint64 shard_move(Oid relation, int remainder, int target);

#endif
