/*
 * service_tasks.c
 *		Services "maintenance" and "periods": run their tasks in turn, each when it is due.
 *
 * What may wait for locks of users' tables is a service of its own: nobody shall wait for it.
 *
 * An error ends the task's run, not the process.  The same error again and again is logged once,
 * until a run succeeds.  Between runs the process sleeps until the first task is due or
 * somebody pokes it.
 */
#include "postgres.h"

#include "services/service_tasks.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "cluster/metadata.h"
#include "commit/resolver.h"
#include "services/deadlock.h"
#include "services/period_maintenance.h"
#include "services/shard_mover.h"
#include "services/tier_service.h"
#include "table/auto_analyze.h"
#include "wire/connection.h"
#include "workers/take_over.h"

/*
 * A piece of work of service "maintenance".  run() is called in a transaction of its own with an
 * active snapshot, as the bootstrap superuser; its errors are logged, repeated ones once.
 * interval_ms() is asked after each run and whenever the process is poked: so long after the
 * end of the last run the next one begins.
 */
typedef struct ServiceTask
{
	const char *name;
	int (*interval_ms)(void);
	void (*run)(void);
} ServiceTask;

static const ServiceTask maintenance_tasks[] = {
	{"take-over", take_over_interval_ms, take_over_run}, /* the first: others use the workers */
	{"resolver", resolver_interval_ms, resolver_run},
	{"deadlocks", deadlock_interval, deadlock_detect},
};

static const ServiceTask period_tasks[] = {
	{"periods", period_maintenance_interval, period_maintenance_run},
	{"tiers", tier_service_interval, tier_service_run},
	{"statistics", auto_analyze_interval, auto_analyze_run},
	{"moves", shard_mover_interval, shard_mover_run},
};

/* What is remembered of a task's runs. */
typedef struct TaskState
{
	bool has_run;
	TimestampTz end; /* of the last run */
	char *complaint; /* the error logged last, in TopMemoryContext; NULL after success */
} TaskState;

/* Of the one service that this process is. */
static TaskState states[Max(lengthof(maintenance_tasks), lengthof(period_tasks))];

/* Log an error unless it is the same as the last time. */
static void
log_error(const ServiceTask *task, TaskState *state)
{
	MemoryContext previous = MemoryContextSwitchTo(TopMemoryContext);
	ErrorData *error = CopyErrorData();
	bool repeated = state->complaint != NULL && strcmp(state->complaint, error->message) == 0;

	if (!repeated)
	{
		if (state->complaint != NULL)
			pfree(state->complaint);
		state->complaint = pstrdup(error->message);
		errcontext("strata maintenance, task \"%s\"", task->name);
		EmitErrorReport();
	}
	FreeErrorData(error);
	FlushErrorState();
	MemoryContextSwitchTo(previous);
}

static void
run_task(const ServiceTask *task, TaskState *state)
{
	pgstat_report_activity(STATE_RUNNING, task->name);
	PG_TRY();
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		PushActiveSnapshot(GetTransactionSnapshot());
		if (metadata_available())
			task->run();
		PopActiveSnapshot();
		CommitTransactionCommand();
		if (state->complaint != NULL)
			pfree(state->complaint);
		state->complaint = NULL;
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		log_error(task, state);
		AbortCurrentTransaction();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	state->has_run = true;
	state->end = GetCurrentTimestamp();
	pgstat_report_stat(true);
	pgstat_report_activity(STATE_IDLE, NULL);
}

/* Milliseconds until the task is due, 0 when it is. */
static long
time_to_wait(const ServiceTask *task, const TaskState *state)
{
	TimestampTz due;

	if (!state->has_run)
		return 0;
	due = TimestampTzPlusMilliseconds(state->end, task->interval_ms());
	return TimestampDifferenceMilliseconds(GetCurrentTimestamp(), due);
}

static void
run_tasks(const ServiceTask *tasks, int count)
{
	while (!ShutdownRequestPending)
	{
		long wait = 3600 * 1000L;

		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		for (int i = 0; i < count && !ShutdownRequestPending; i++)
		{
			if (time_to_wait(&tasks[i], &states[i]) == 0)
				run_task(&tasks[i], &states[i]);
		}
		for (int i = 0; i < count; i++)
			wait = Min(wait, time_to_wait(&tasks[i], &states[i]));

		/* the latch of a signal that came during a task may have been reset there */
		if (wait > 0 && !ShutdownRequestPending && !ConfigReloadPending)
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, wait,
							 PG_WAIT_EXTENSION);
	}
}

void
service_tasks_maintenance_main(void)
{
	/* what is prepared there is to be ended; nothing else is done with them */
	connection_accept_unknown_changes(true);
	run_tasks(maintenance_tasks, lengthof(maintenance_tasks));
}

void
service_tasks_periods_main(void)
{
	run_tasks(period_tasks, lengthof(period_tasks));
}
