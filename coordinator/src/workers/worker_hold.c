/*
 * worker_hold.c
 *		strata.hold_worker() and release_worker(): a planned switchover without an error.
 *
 * What a hold does to transactions is in wire/worker_use.c.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "cluster/worker_state.h"
#include "server/argument.h"
#include "stream/try_command.h"
#include "transaction/remote_transaction.h"
#include "wire/worker_use.h"
#include "workers/worker_api.h"

/* How often a worker that is released is asked whether it takes writes. */
#define LOOK_MS 50

PG_FUNCTION_INFO_V1(strata_hold_worker);
PG_FUNCTION_INFO_V1(strata_release_worker);

static TimestampTz
add_interval(FunctionCallInfo fcinfo, int argument, const char *name)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz end;

	argument_refuse_null(fcinfo, argument, name);
	end = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval, TimestampTzGetDatum(now),
												  PG_GETARG_DATUM(argument)));
	if (end < now)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s must not be negative", name)));
	return end;
}

static void
report_ended_hold(const char *name)
{
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("worker \"%s\" was still in use when its hold ended", name),
					errhint("Let the time to drain be shorter than the timeout.")));
}

/* strata.hold_worker(name, timeout, drain) */
Datum
strata_hold_worker(PG_FUNCTION_ARGS)
{
	char *name = argument_get_text(fcinfo, 0, "name");
	TimestampTz end = add_interval(fcinfo, 1, "timeout");
	TimestampTz drained = add_interval(fcinfo, 2, "drain");
	WorkerUse *use = worker_use_find(worker_api_find(name));
	volatile int left = 0;
	int holder;

	if (remote_transaction_has_begun())
		ereport(ERROR, (errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
						errmsg("cannot hold a worker in a transaction that has used workers"),
						errhint("Call strata.hold_worker() outside of a transaction block.")));
	if (use == NULL)
		ereport(ERROR, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
						errmsg("worker \"%s\" cannot be held", name),
						errdetail("The server has seen more than %d workers.", WORKER_STATE_MAX)));
	holder = worker_use_begin_hold(use, end);
	if (holder != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE), errmsg("cannot hold worker \"%s\" now", name),
				 errdetail("Process %d holds a worker.", holder),
				 errhint("Hold one worker at a time.")));
	PG_TRY();
	{
		left = worker_use_drain(use, Min(drained, end));
		if (left < 0)
			report_ended_hold(name);
	}
	PG_CATCH();
	{
		(void) worker_use_end_hold();
		PG_RE_THROW();
	}
	PG_END_TRY();
	PG_RETURN_INT32(left);
}

/* strata.release_worker(name) */
Datum
strata_release_worker(PG_FUNCTION_ARGS)
{
	char *name = argument_get_text(fcinfo, 0, "name");
	int worker_id = worker_api_find(name);
	WorkerUse *use = worker_use_find(worker_id);
	const char *reason = NULL;

	if (use == NULL || !worker_use_is_held(use))
	{
		(void) worker_use_end_hold();
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("worker \"%s\" is not held by this session", name),
						errdetail("A hold ends at its timeout, and with its session.")));
	}
	worker_use_renew(use); /* our own wire may be an old one, too */
	for (;;)
	{
		WorkerAnswer answer = try_command(worker_id, REMOTE_READ, "SELECT 1");

		if (answer.success)
			break;
		reason = answer.error->detail != NULL ? answer.error->detail : answer.error->message;
		if (!worker_use_is_held(use))
			ereport(ERROR, (errcode(ERRCODE_CONNECTION_FAILURE),
							errmsg("worker \"%s\" took no writes until the hold ended", name),
							errdetail_internal("%s", reason)));
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, LOOK_MS,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	(void) worker_use_end_hold();
	PG_RETURN_VOID();
}
