/*
 * move_progress.c
 *		How far the moves of shards are that run now.
 *
 * Moves are transactions, of which others see nothing before they commit.  So each notes in shared memory what it does.  That is
 * for people to look at: a move that finds no free place runs without one.
 *
 * A place belongs to its session until move_progress_end(); the spinlock guards all of them.
 */
#include "postgres.h"

#include "workers/move_progress.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "server/shared_memory.h"

PG_FUNCTION_INFO_V1(strata_move_progress);

#define PLACES_MAX 16
#define COLUMN_COUNT 9

typedef struct MoveProgress
{
	int pid; /* 0: the place is free */
	Oid database;
	Oid relation;
	int shard;
	char source[NAMEDATALEN];
	char target[NAMEDATALEN];
	MovePhase phase;
	int64 rows;
	int64 estimate;
	TimestampTz begun;
} MoveProgress;

typedef struct MoveProgressShared
{
	slock_t mutex;
	MoveProgress places[PLACES_MAX];
} MoveProgressShared;

static const char *const phases[] = {
	[MOVE_COPIES] = "copying rows",
	[MOVE_CATCHES_UP] = "catching up",
	[MOVE_WAITS_FOR_REPLICAS] = "waiting for replicas",
	[MOVE_WAITS_FOR_LOCKS] = "waiting for locks",
	[MOVE_SWITCHES] = "switching",
};

static MoveProgressShared *shared = NULL;
static MoveProgress *mine = NULL;
static bool registered = false;

/* ---------------------------------------------------------------- the move */

static void
request_shared_memory(void)
{
	RequestAddinShmemSpace(MAXALIGN(sizeof(MoveProgressShared)));
}

static void
create_shared_memory(void)
{
	bool found;

	shared = ShmemInitStruct("strata move progress", sizeof(MoveProgressShared), &found);
	if (!found)
	{
		memset(shared, 0, sizeof(MoveProgressShared));
		SpinLockInit(&shared->mutex);
	}
}

void
move_progress_initialize(void)
{
	shared_memory_register(request_shared_memory, create_shared_memory);
}

void
move_progress_end(void)
{
	if (mine == NULL)
		return;
	SpinLockAcquire(&shared->mutex);
	mine->pid = 0;
	SpinLockRelease(&shared->mutex);
	mine = NULL;
}

/* The session ends in the middle of a move. */
static void
leave_place(int code, Datum argument)
{
	move_progress_end();
}

void
move_progress_begin(Oid relation, int shard, const char *source, const char *target, int64 estimate)
{
	MoveProgress progress = {.pid = MyProcPid,
							 .database = MyDatabaseId,
							 .relation = relation,
							 .shard = shard,
							 .estimate = estimate,
							 .begun = GetCurrentTimestamp()};

	if (!registered)
		before_shmem_exit(leave_place, (Datum) 0);
	registered = true;
	strlcpy(progress.source, source, NAMEDATALEN);
	strlcpy(progress.target, target, NAMEDATALEN);
	SpinLockAcquire(&shared->mutex);
	for (int i = 0; i < PLACES_MAX && mine == NULL; i++)
	{
		if (shared->places[i].pid == 0)
			mine = &shared->places[i];
	}
	if (mine != NULL)
		*mine = progress;
	SpinLockRelease(&shared->mutex);
}

void
move_progress_set_phase(MovePhase phase)
{
	if (mine == NULL)
		return;
	SpinLockAcquire(&shared->mutex);
	mine->phase = phase;
	SpinLockRelease(&shared->mutex);
}

void
move_progress_add_rows(int64 rows)
{
	if (mine == NULL)
		return;
	SpinLockAcquire(&shared->mutex);
	mine->rows += rows;
	SpinLockRelease(&shared->mutex);
}

/* ---------------------------------------------------------------- who asks */

/* move_progress(): a row for each move of this database */
Datum
strata_move_progress(PG_FUNCTION_ARGS)
{
	MoveProgress places[PLACES_MAX];
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	SpinLockAcquire(&shared->mutex);
	memcpy(places, shared->places, sizeof(places));
	SpinLockRelease(&shared->mutex);

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < PLACES_MAX; i++)
	{
		const MoveProgress *place = &places[i];
		Datum values[COLUMN_COUNT];
		bool nulls[COLUMN_COUNT] = {false};

		if (place->pid == 0 || place->database != MyDatabaseId)
			continue;
		values[0] = Int32GetDatum(place->pid);
		values[1] = ObjectIdGetDatum(place->relation);
		values[2] = Int32GetDatum(place->shard);
		values[3] = CStringGetTextDatum(place->source);
		values[4] = CStringGetTextDatum(place->target);
		values[5] = CStringGetTextDatum(phases[place->phase]);
		values[6] = Int64GetDatum(place->rows);
		values[7] = Int64GetDatum(place->estimate);
		nulls[7] = place->estimate <= 0;
		values[8] = TimestampTzGetDatum(place->begun);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
