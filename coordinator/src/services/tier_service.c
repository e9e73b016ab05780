/*
 * tier_service.c
 *		Tells the workers the policies of the tiers, and starts their rounds of moves.
 *
 * The truth is strata.tier_policy here; a worker's copy is replaced before each round, in a transaction of
 * its own, so that a worker that was down or is new needs nothing.  The round itself runs on the worker
 * (extensions/tiering/src/tier_round.c), and keeps the heat also where no table has a policy.
 */
#include "postgres.h"

#include "services/tier_service.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "cluster/metadata.h"
#include "cluster/worker_state.h"
#include "server/service_transaction.h"
#include "server/settings.h"
#include "stream/remote_command.h"

static MemoryContext work_context = NULL;

int
tier_service_interval(void)
{
	return strata_tier_interval;
}

/* The statement that brings a worker the policies. */
static char *
make_statement(void)
{
	char *policies;

	SPI_connect();
	/* those of tables that were dropped */
	SPI_execute("DELETE FROM strata.tier_policy AS p WHERE NOT EXISTS"
				" (SELECT FROM strata.distributed_table AS t WHERE t.relation = p.relation)",
				false, 0);
	if (SPI_execute("SELECT coalesce(json_agg(p), '[]')::text FROM strata.tier_policies() AS p",
					false, 1) != SPI_OK_SELECT ||
		SPI_processed != 1)
		elog(ERROR, "could not read the policies of the tiers");
	policies = MemoryContextStrdup(work_context,
								   SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1));
	SPI_finish();
	return psprintf("SELECT strata_tiering.set_policies(%s, "
					"'{\"enabled\": %s, \"bytes_per_second\": " INT64_FORMAT ", \"seconds\": %d}')",
					quote_literal_cstr(policies), strata_tiering ? "true" : "false",
					(int64) strata_tier_rate * 1024, Max(strata_tier_interval / 1000, 1));
}

/* Logs the error, and goes on with a new transaction: the next worker may answer. */
static void
recover(void)
{
	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(work_context);
	errcontext("tiers of the workers");
	EmitErrorReport();
	FlushErrorState();
	AbortCurrentTransaction();
	RESUME_INTERRUPTS();
	service_transaction_begin();
}

static void
run_worker(int worker, const char *statement)
{
	CHECK_FOR_INTERRUPTS();
	if (worker_state_is_down(worker))
		return; /* it hears of the policies when it is back */
	PG_TRY();
	{
		service_transaction_next();
		(void) remote_command_run(bms_make_singleton(worker), REMOTE_WRITE, statement);
		/* the round reads what was committed */
		service_transaction_next();
		(void) remote_command_fetch(worker, "SELECT strata_tiering.start()");
		service_transaction_next();
	}
	PG_CATCH();
	{
		recover();
	}
	PG_END_TRY();
}

void
tier_service_run(void)
{
	MemoryContext caller;
	Bitmapset *workers;
	char *statement;
	int worker = -1;

	work_context = AllocSetContextCreate(TopMemoryContext, "strata tiers", ALLOCSET_DEFAULT_SIZES);
	caller = MemoryContextSwitchTo(work_context);
	workers = bms_copy(metadata_all_workers());
	statement = make_statement();
	MemoryContextSwitchTo(caller);
	while ((worker = bms_next_member(workers, worker)) >= 0)
		run_worker(worker, statement);
	MemoryContextDelete(work_context);
	work_context = NULL;
}
