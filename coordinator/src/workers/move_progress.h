/*
 * move_progress.h
 *		How far the moves of shards are that run now, for whoever asks.
 */
#ifndef STRATA_MOVE_PROGRESS_H
#define STRATA_MOVE_PROGRESS_H

#include "postgres.h"

typedef enum MovePhase
{
	MOVE_COPIES,
	MOVE_CATCHES_UP, /* with what has changed since */
	MOVE_WAITS_FOR_REPLICAS,
	MOVE_WAITS_FOR_LOCKS,
	MOVE_SWITCHES
} MovePhase;

extern void move_progress_initialize(void);

/* This session begins one; `estimate` is its number of rows, 0 if nobody knows. */
extern void move_progress_begin(Oid relation, int shard, const char *source, const char *target,
								int64 estimate);
extern void move_progress_set_phase(MovePhase phase);
extern void move_progress_add_rows(int64 rows);

/* It has ended, or failed. */
extern void move_progress_end(void);

#endif
