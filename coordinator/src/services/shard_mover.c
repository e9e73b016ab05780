/*
 * shard_mover.c
 *		Task "moves": shards move as strata.rebalance_start() has planned.
 *
 * Each run drops what workers need not keep any more of shards that have left them (stream/kept_shard.c).  Then it moves one shard
 * (sql/moves.sql, workers/shard_move.c), in a transaction of its own in which it also notes that it has, so that a server which
 * dies moves it once.  Locks are waited for a moment only, because everybody who comes would wait behind us; then the next
 * attempt comes after a pause, which other tasks use.
 */
#include "postgres.h"

#include "services/shard_mover.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "server/service_transaction.h"
#include "stream/kept_shard.h"

/* Time between looks for planned moves, and between attempts to get a table's locks. */
#define IDLE_MS 2000
#define PAUSE_MS 500

static int interval = IDLE_MS;

int
shard_mover_interval(void)
{
	return interval;
}

/* Run a query; false if its one value, of a type that is passed by value, is NULL. */
static bool
run_query(const char *sql, Datum *value)
{
	bool isnull;

	SPI_connect();
	if (SPI_execute(sql, false, 1) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "could not execute \"%s\"", sql);
	*value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	SPI_finish();
	return !isnull;
}

/* The move has failed: undo it, and note why.  Whoever uses its tables now will not for ever. */
static void
note_error(int64 move, MemoryContext context)
{
	ErrorData *error;
	bool again;
	Datum nothing;

	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	FlushErrorState();
	AbortCurrentTransaction();
	RESUME_INTERRUPTS();
	service_transaction_begin();
	again = error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE ||
			error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED;
	(void) run_query(psprintf("SELECT strata.note_move_error(" INT64_FORMAT ", %s, %s)", move,
							  quote_literal_cstr(error->message), again ? "true" : "false"),
					 &nothing);
	interval = again ? PAUSE_MS : 0;
}

void
shard_mover_run(void)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "strata moves",
												  ALLOCSET_DEFAULT_SIZES);
	Datum move;
	Datum nothing;

	interval = IDLE_MS;
	if (kept_shard_is_known() &&
		run_query("SELECT CASE WHEN EXISTS (SELECT FROM strata.kept_shard) "
				  "THEN strata.release_kept_shards() END",
				  &nothing))
		service_transaction_next();
	if (run_query("SELECT strata.begin_move()", &move))
	{
		service_transaction_next();
		PG_TRY();
		{
			(void) run_query(
				psprintf("SELECT strata.finish_move(" INT64_FORMAT ")", DatumGetInt64(move)),
				&nothing);
			service_transaction_next();
			interval = 0;
		}
		PG_CATCH();
		{
			note_error(DatumGetInt64(move), context);
		}
		PG_END_TRY();
	}
	MemoryContextDelete(context);
}
