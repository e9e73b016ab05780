/*
 * heartbeat.c
 *		Ask each worker every second whether it lives, and say so.
 *
 * One process per database, one wire per worker, one event loop: a worker that does not answer
 * delays nobody.  The life of a beat:
 *
 *		RESTING		until the next question is due
 *		CONNECTING	no wire: log in, to the first host that is a primary
 *		ASKED		the question is on its way
 *
 * CONNECTING and ASKED have a deadline, ANSWER_MS.  After it, and when a wire breaks, the wire is
 * closed and the next beat connects.  A wire that breaks is opened again at once: a worker that
 * was restarted is not down, one whose server has gone refuses.
 *
 * Down is what does not let us ask; "silent" is less: it means that nobody answered, and
 * counts from the first open question (WorkerState.unanswered_since).  A server that refuses us
 * (no password, too many clients, starting up) is down as far as we can see, but not silent, and
 * sessions go on waiting for it.
 *
 * If no host is a primary, the next one that answers at all is asked: it is read-only.
 *
 * A change of status is logged once, notified on channel strata_workers as JSON, and shown in
 * strata.workers.  While nothing changes nothing is written: no WAL, no transaction id.
 *
 * The state in shared memory goes when this process ends, see worker_state.c.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_authid_d.h"
#include "commands/async.h"
#include "common/pg_prng.h"
#include "libpq-fe.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "fault_point.h"
#include "cluster/metadata.h"
#include "cluster/worker_state.h"
#include "server/clock.h"
#include "server/launcher.h"
#include "server/settings.h"
#include "services/heartbeat.h"
#include "wire/connection_internal.h"
#include "wire/host_connect.h"

/* So long an answer, or a log-in, may take.  With the interval it stays below 5 s. */
#define ANSWER_MS 3000

#define CHANNEL "strata_workers"

#define QUESTION                                                                               \
	"SELECT pg_catalog.pg_is_in_recovery(), "                                                  \
	"pg_catalog.current_setting('default_transaction_read_only'), "                            \
	"pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time())::pg_catalog.text, "  \
	"CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_current_wal_flush_lsn() " \
	"END, "                                                                                    \
	"CASE WHEN NOT pg_catalog.pg_is_in_recovery() "                                            \
	"THEN pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_flush_lsn()) END"

typedef enum BeatPhase
{
	BEAT_RESTING,
	BEAT_CONNECTING,
	BEAT_ASKED
} BeatPhase;

typedef struct Beat
{
	int worker_id;
	MemoryContext context; /* of this struct and what it points to */
	char *name;
	char *conninfo;
	BeatPhase phase;
	int64 next;			  /* when to act: the next question, or the deadline */
	int64 asked_at;		  /* the last question */
	int64 due;			  /* of the next host, 0 none */
	HostConnect *connect; /* of the wire, too, when we are logged in */
	PGconn *pg;			  /* the wire; belongs to connect */
	bool any_role;		  /* no host is a primary: take what answers */
	int host;
	char started[64]; /* the server process that answered last: when it started */
	WorkerState state;
	WorkerStatus announced; /* what the log and the listeners know */
	TimestampTz was_since;	/* since when it was what it was before the last change */
	bool listed;
	bool returned; /* the maintenance worker is to look what was left there */
} Beat;

static List *beats = NIL; /* of Beat */
static MemoryContext beats_context = NULL;
static WaitEventSet *wait_set = NULL;
static bool wait_set_valid = false;
static char *user_name = NULL;

/* ----------------------------------------------------------------
 * What is found out
 * ----------------------------------------------------------------
 */

static void
set_status(Beat *beat, WorkerStatus status, const char *reason)
{
	if (beat->state.status != status)
	{
		beat->was_since = beat->state.since;
		beat->state.since = GetCurrentTimestamp();
		beat->state.status = status;
	}
	strlcpy(beat->state.reason, reason, sizeof(beat->state.reason));
}

/* The server said something: the question is not open any more. */
static void
note_answer(Beat *beat)
{
	beat->state.unanswered_since = 0;
}

static void
note_question(Beat *beat)
{
	if (beat->state.unanswered_since == 0)
		beat->state.unanswered_since = clock_now();
}

/* Another server process than before makes sessions' idle wires useless. */
static void
note_server(Beat *beat, const char *started)
{
	if (beat->state.generation > 0 && beat->state.host == beat->host &&
		strcmp(beat->started, started) == 0)
		return;
	if (beat->state.generation == 0) /* not one that a former heartbeat has given */
	{
		FAULT_POINT("heartbeat_first_answer");
		beat->state.generation = pg_prng_uint32(&pg_global_prng_state) | 1;
	}
	else
		beat->state.generation++;
	beat->state.host = beat->host;
	strlcpy(beat->started, started, sizeof(beat->started));
}

/* ----------------------------------------------------------------
 * The life of a beat
 * ----------------------------------------------------------------
 */

static void
close_wire(Beat *beat)
{
	wait_set_valid = false;
	beat->pg = NULL;
	if (beat->connect != NULL)
		host_connect_free(beat->connect);
	beat->connect = NULL;
	beat->due = 0;
}

static void
rest(Beat *beat)
{
	beat->phase = BEAT_RESTING;
	beat->next = clock_now() + strata_heartbeat_interval;
}

/* No answer, no log-in, or none that can be used. */
static void
give_up(Beat *beat, const char *reason)
{
	set_status(beat, WORKER_DOWN, reason);
	close_wire(beat);
	beat->any_role = false;
	rest(beat);
}

static void
begin_connect(Beat *beat)
{
	MemoryContext previous = MemoryContextSwitchTo(beat->context);
	HostConnectRequest request = {.conninfo = beat->conninfo,
								  .user = user_name,
								  .application_name = "strata heartbeat",
								  .preferred_host = beat->state.host,
								  .role = beat->any_role ? "any" : NULL};

	note_question(beat);
	beat->connect = host_connect_create(&request);
	beat->connect->owner = beat;
	beat->phase = BEAT_CONNECTING;
	beat->next = clock_now() + ANSWER_MS;
	wait_set_valid = false;
	MemoryContextSwitchTo(previous);
}

static void
ask(Beat *beat)
{
	note_question(beat);
	beat->phase = BEAT_ASKED;
	beat->asked_at = clock_now();
	beat->next = beat->asked_at + ANSWER_MS;
	if (PQsendQuery(beat->pg, QUESTION))
		return;
	close_wire(beat);
	begin_connect(beat);
}

/* All hosts have refused, each in its own way. */
static void
handle_failed_connect(Beat *beat)
{
	char *reason = host_connect_describe_failure(beat->connect, "");

	if (host_connect_was_answered(beat->connect))
	{
		note_answer(beat);
		if (!beat->any_role)
		{
			/* is there at least a standby? */
			close_wire(beat);
			beat->any_role = true;
			set_status(beat, beat->state.status, reason);
			begin_connect(beat);
			pfree(reason);
			return;
		}
	}
	give_up(beat, reason);
	pfree(reason);
}

/* Go on connecting: begin with the hosts whose turn it is, look at the result. */
static void
advance_connect(Beat *beat)
{
	int attempts = beat->connect->attempts;

	beat->due = host_connect_begin_due(beat->connect);
	if (beat->connect->attempts != attempts)
		wait_set_valid = false;
	if (host_connect_has_failed(beat->connect))
	{
		handle_failed_connect(beat);
		return;
	}
	if (beat->connect->winner == NULL)
		return;

	wait_set_valid = false;
	beat->pg = beat->connect->winner->pg;
	beat->host = beat->connect->winner - beat->connect->hosts;
	beat->due = 0;
	PQsetnonblocking(beat->pg, 1);
	ask(beat);
}

/* How far its WAL was when it was asked, or a little later, and the file, whose name begins with the timeline; "" of a standby. */
static void
note_position(Beat *beat, const char *position, const char *file)
{
	WalPosition *wal = &beat->state.wal;
	uint32 high;
	uint32 low;

	if (sscanf(position, "%X/%X", &high, &low) != 2 || sscanf(file, "%8X", &wal->timeline) != 1)
		return;
	wal->asked_at = beat->asked_at;
	wal->position = (XLogRecPtr) high << 32 | low;
}

static void
judge_answer(Beat *beat, const PGresult *answer)
{
	bool recovering = PQgetvalue(answer, 0, 0)[0] == 't';
	bool was_down = beat->state.status == WORKER_DOWN;

	if (recovering)
		set_status(beat, WORKER_READ_ONLY, "The server is a standby.");
	else if (strcmp(PQgetvalue(answer, 0, 1), "on") == 0)
		set_status(beat, WORKER_READ_ONLY, "The server's default_transaction_read_only is on.");
	else
		set_status(beat, WORKER_UP, "");
	note_server(beat, PQgetvalue(answer, 0, 2));
	note_position(beat, PQgetvalue(answer, 0, 3), PQgetvalue(answer, 0, 4));
	if (worker_state_take_left_behind(beat->worker_id) || was_down)
	{
		beat->state.returns++;
		beat->returned = true;
	}
	rest(beat);

	/* look for a primary with the next beat: another host may be one by now */
	if (beat->any_role || (beat->state.status == WORKER_READ_ONLY && beat->connect->count > 1))
		close_wire(beat);
	beat->any_role = false;
}

/* Something has come in on the wire, be it its end. */
static void
read_answer(Beat *beat)
{
	bool intact = PQconsumeInput(beat->pg) != 0;

	while (!intact || !PQisBusy(beat->pg))
	{
		PGresult *result = PQgetResult(beat->pg);

		if (result == NULL)
			break;
		if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1)
		{
			note_answer(beat);
			judge_answer(beat, result);
		}
		else if (PQstatus(beat->pg) == CONNECTION_OK)
		{
			note_answer(beat);
			give_up(beat, PQresultErrorMessage(result));
		}
		PQclear(result);
		if (beat->pg == NULL)
			return;
	}
	if (!intact || PQstatus(beat->pg) != CONNECTION_OK)
	{
		/* its last words may tell why; what we find now says whether it is down */
		close_wire(beat);
		begin_connect(beat);
	}
}

/* The clock has reached beat->next. */
static void
handle_time(Beat *beat)
{
	switch (beat->phase)
	{
		case BEAT_RESTING:
			if (beat->pg != NULL)
				ask(beat);
			else
				begin_connect(beat);
			break;
		case BEAT_CONNECTING:
		{
			char *reason = host_connect_describe_failure(beat->connect,
														 psprintf("%d s", ANSWER_MS / 1000));

			if (host_connect_was_answered(beat->connect))
				note_answer(beat);
			give_up(beat, reason);
			pfree(reason);
			break;
		}
		case BEAT_ASKED:
			give_up(beat, psprintf("It has not answered for %d s.", ANSWER_MS / 1000));
			break;
	}
}

/* ----------------------------------------------------------------
 * The list of workers
 * ----------------------------------------------------------------
 */

static void
remove_beat(Beat *beat)
{
	close_wire(beat);
	worker_state_forget(beat->worker_id);
	beats = list_delete_ptr(beats, beat);
	MemoryContextDelete(beat->context);
}

static void
add_beat(const Worker *worker)
{
	MemoryContext context = AllocSetContextCreate(beats_context, "strata beat",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext previous = MemoryContextSwitchTo(context);
	Beat *beat = palloc0(sizeof(Beat));

	beat->context = context;
	beat->worker_id = worker->id;
	beat->name = pstrdup(worker->name);
	beat->conninfo = pstrdup(worker->conninfo);
	beat->state.host = -1;
	beat->state.returns = pg_prng_uint32(&pg_global_prng_state); /* none of a former beat's */
	beat->listed = true;
	MemoryContextSwitchTo(beats_context);
	beats = lappend(beats, beat);
	MemoryContextSwitchTo(previous);
}

static Beat *
find_beat(const Worker *worker)
{
	ListCell *cell;

	foreach(cell, beats)
	{
		Beat *beat = lfirst(cell);

		if (beat->worker_id == worker->id && strcmp(beat->conninfo, worker->conninfo) == 0 &&
			strcmp(beat->name, worker->name) == 0)
			return beat;
	}
	return NULL;
}

/* Workers come, go, and get other addresses or names.  In a transaction. */
static void
refresh_beats(void)
{
	const Bitmapset *workers = metadata_available() ? metadata_all_workers() : NULL;
	int worker_id = -1;
	ListCell *cell;

	if (user_name == NULL)
		user_name = MemoryContextStrdup(TopMemoryContext,
										GetUserNameFromId(BOOTSTRAP_SUPERUSERID, false));

	foreach(cell, beats)
		((Beat *) lfirst(cell))->listed = false;
	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
	{
		Beat *beat = find_beat(metadata_worker(worker_id));

		if (beat != NULL)
			beat->listed = true;
	}
	foreach(cell, beats)
	{
		Beat *beat = lfirst(cell);

		if (!beat->listed)
		{
			beats = foreach_delete_current(beats, cell);
			remove_beat(beat);
		}
	}
	worker_id = -1;
	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
	{
		if (find_beat(metadata_worker(worker_id)) == NULL)
			add_beat(metadata_worker(worker_id));
	}
}

/* ----------------------------------------------------------------
 * Saying so
 * ----------------------------------------------------------------
 */

/* Is there something to tell?  That a worker is up is no news when nothing was known of it. */
static bool
is_news(const Beat *beat)
{
	return beat->state.status != beat->announced &&
		   !(beat->announced == WORKER_UNKNOWN && beat->state.status == WORKER_UP);
}

static void
log_change(const Beat *beat)
{
	switch (beat->state.status)
	{
		case WORKER_UP:
			ereport(LOG,
					(errmsg("worker \"%s\" is up again", beat->name),
					 errdetail("It was %s since %s.", worker_state_status_name(beat->announced),
							   timestamptz_to_str(beat->was_since))));
			break;
		case WORKER_READ_ONLY:
		case WORKER_DOWN:
			ereport(LOG, (errmsg("worker \"%s\" is %s", beat->name,
								 worker_state_status_name(beat->state.status)),
						  errdetail_internal("%s", beat->state.reason)));
			break;
		case WORKER_UNKNOWN:
			break;
	}
}

static void
notify_change(const Beat *beat)
{
	StringInfoData payload;

	initStringInfo(&payload);
	appendStringInfo(&payload, "{\"worker_id\": %d, \"worker\": ", beat->worker_id);
	escape_json(&payload, beat->name);
	appendStringInfo(&payload, ", \"status\": \"%s\", \"since\": ",
					 worker_state_status_name(beat->state.status));
	escape_json(&payload, timestamptz_to_str(beat->state.since));
	appendStringInfoString(&payload, ", \"reason\": ");
	if (beat->state.reason[0] != '\0')
		escape_json(&payload, beat->state.reason);
	else
		appendStringInfoString(&payload, "null");
	appendStringInfoChar(&payload, '}');
	Async_Notify(CHANNEL, payload.data);
}

/* All states into shared memory; true when there is something to announce. */
static bool
publish(void)
{
	bool news = false;
	bool returned = false;
	ListCell *cell;

	foreach(cell, beats)
	{
		Beat *beat = lfirst(cell);

		beat->state.published_at = clock_now();
		worker_state_publish(beat->worker_id, &beat->state);
		returned |= beat->returned;
		beat->returned = false;
		news = news || is_news(beat);
		if (!is_news(beat))
			beat->announced = beat->state.status;
	}
	if (returned)
		launcher_poke();
	return news;
}

/* Log and notify what has changed.  In a transaction. */
static void
announce(void)
{
	ListCell *cell;

	foreach(cell, beats)
	{
		Beat *beat = lfirst(cell);

		if (!is_news(beat))
			continue;
		log_change(beat);
		notify_change(beat);
		beat->announced = beat->state.status;
	}
}

/* What needs a transaction.  A failure, as a full queue of notifications, is logged only. */
static void
run_transaction(void (*run)(void))
{
	MemoryContext previous = CurrentMemoryContext;

	PG_TRY();
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		run();
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(previous);
		HOLD_INTERRUPTS();
		EmitErrorReport();
		FlushErrorState();
		AbortCurrentTransaction();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(previous);
}

/* ----------------------------------------------------------------
 * The loop
 * ----------------------------------------------------------------
 */

static void
build_wait_set(void)
{
	int sockets = 0;
	ListCell *cell;

	if (wait_set != NULL)
		FreeWaitEventSet(wait_set);
	wait_set = NULL;
	foreach(cell, beats)
	{
		const Beat *beat = lfirst(cell);

		sockets += beat->connect != NULL ? beat->connect->count : 0;
	}
	wait_set = connection_make_wait_set(sockets);
	foreach(cell, beats)
	{
		Beat *beat = lfirst(cell);

		if (beat->pg != NULL)
			AddWaitEventToSet(wait_set, WL_SOCKET_READABLE, PQsocket(beat->pg), NULL,
							  beat->connect->winner);
		else if (beat->connect != NULL)
			host_connect_add_sockets(beat->connect, wait_set);
	}
	wait_set_valid = true;
}

/* Wait for sockets, a signal, or the time. */
static void
wait_for_events(int64 wake_at)
{
	WaitEvent events[64]; /* more come with the next call */
	int occurred;

	if (!wait_set_valid)
		build_wait_set();
	occurred = WaitEventSetWait(wait_set, Max(wake_at - clock_now(), 0), events, lengthof(events),
								PG_WAIT_EXTENSION);
	for (int i = 0; i < occurred; i++)
	{
		HostAttempt *host = events[i].user_data;
		Beat *beat;

		if (events[i].events & WL_LATCH_SET)
		{
			ResetLatch(MyLatch);
			continue;
		}
		beat = host->connect->owner;
		if (beat->pg != NULL)
			read_answer(beat);
		else
		{
			/* no HostConnect is freed here: another of its hosts may be in the list of events */
			host_connect_advance(host);
			wait_set_valid = false;
		}
	}
}

/* Do what is due; returns when something is due again. */
static int64
advance_beats(void)
{
	int64 wake_at = clock_now() + strata_heartbeat_interval;
	ListCell *cell;

	foreach(cell, beats)
	{
		Beat *beat = lfirst(cell);

		if (beat->connect != NULL && beat->pg == NULL)
			advance_connect(beat);
		if (clock_now() >= beat->next)
			handle_time(beat);
		if (beat->connect != NULL && beat->pg == NULL)
			advance_connect(beat);
		wake_at = Min(wake_at, beat->next);
		if (beat->due > 0)
			wake_at = Min(wake_at, beat->due);
	}
	return wake_at;
}

static void
forget_states(int code, Datum arg)
{
	worker_state_forget_all();
}

void
heartbeat_main(void)
{
	MemoryContext loop_context = AllocSetContextCreate(TopMemoryContext, "strata heartbeat loop",
													   ALLOCSET_DEFAULT_SIZES);
	int64 refresh_at = 0;

	beats_context = AllocSetContextCreate(TopMemoryContext, "strata heartbeat",
										  ALLOCSET_DEFAULT_SIZES);
	before_shmem_exit(forget_states, (Datum) 0);
	MemoryContextSwitchTo(loop_context);
	while (!ShutdownRequestPending)
	{
		int64 wake_at;

		MemoryContextReset(loop_context);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		if (clock_now() >= refresh_at)
		{
			run_transaction(refresh_beats);
			refresh_at = clock_now() + strata_heartbeat_interval;
		}
		wake_at = advance_beats();
		if (publish())
			run_transaction(announce);
		wait_for_events(Min(wake_at, refresh_at));
	}
}
