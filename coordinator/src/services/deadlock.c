/*
 * deadlock.c
 *		Deadlocks over several nodes are found and ended.
 *
 * Each PostgreSQL server finds the deadlocks among its own backends.  Two sessions that lock rows on
 * two workers in opposite order wait for each other without any server seeing it.  So the
 * waits of all nodes are brought together here, as edges between sessions of the coordinator
 * (strata.lock_edges(), in SQL):
 *
 *		worker 1:	backend 71 waits for backend 72		71, 81 serve session 500
 *		worker 2:	backend 82 waits for backend 81		72, 82 serve session 501
 *
 *		500 -> 501 -> 500
 *
 * What is a node of the graph: a session of the coordinator; on a worker a process that serves no
 * session (somebody who logged in there); a prepared transaction whose session is gone.  One
 * that is being prepared or committed counts as its session.  A session's backend on a worker that
 * waits while the session itself does not wait for it (a cursor's) is left out.
 *
 * Nodes are asked one after the other, so an edge that was gone before the last one came could make
 * a cycle that never was.  Hence a second look: each wait of the cycle is told by both looks, with
 * the same start, so all of them existed when the first look ended and the second began.
 *
 * The victim is the youngest transaction of the cycle that waits for a worker and may be
 * interrupted.  It raises the error itself (session_map.c): its own abort cancels what it has
 * running.  Who commits in one phase is never chosen, since nobody could tell then whether it did;
 * such a session has locks on one worker only, and its cycles contain somebody else.
 *
 * Cycles within one node are left to that node, which knows more.
 */
#include "postgres.h"

#include "services/deadlock.h"

#include "executor/spi.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "cluster/metadata.h"
#include "services/wait_cycle.h"
#include "wire/session_map.h"

/* Statements are shown up to this length. */
#define STATEMENT_EXCERPT 500

/* How long the workers together may take to tell their waits. */
#define LOOK_TIMEOUT_MS 5000

/* While nobody waits; who begins to wait pokes. */
#define IDLE_INTERVAL_MS 60000

/* A wait, as told by strata.lock_edges(). */
typedef struct Wait
{
	int worker_id;
	int waiting_pid;
	int blocking_pid; /* 0: a prepared transaction */
	char *blocking_gid;
	char *object;
	TimestampTz since;
	int waiting_session; /* 0: none */
	Oid waiting_role;
	char *waiting_statement;
	int blocking_session;
	bool waited;
	int64 wait_number;
	TimestampTz transaction_start;
	bool interruptible;
} Wait;

/* The waits of all nodes at one moment, and the same as a graph. */
typedef struct Look
{
	Wait *waits;
	WaitPair *pairs;
	bool *ignored;
	int *cycle;
	int count;
	int nodes;
} Look;

static const char look_query[] =
	"SELECT worker_id, waiting_pid, blocking_pid, blocking_gid, object, since, waiting_session,"
	" waiting_role, waiting_statement, blocking_session, waited, wait_number,"
	" transaction_start, interruptible FROM strata.lock_edges(false)";

PG_FUNCTION_INFO_V1(strata_detect_deadlocks);

/* ----------------------------------------------------------------
 * Looking
 * ----------------------------------------------------------------
 */

static Datum
read_column(HeapTuple tuple, int column)
{
	bool null;
	Datum value = SPI_getbinval(tuple, SPI_tuptable->tupdesc, column, &null);

	return null ? (Datum) 0 : value;
}

static char *
read_text(HeapTuple tuple, int column)
{
	char *value = SPI_getvalue(tuple, SPI_tuptable->tupdesc, column);

	return value != NULL ? value : pstrdup("");
}

static Wait
read_wait(HeapTuple tuple)
{
	Wait wait = {
		.worker_id = DatumGetInt32(read_column(tuple, 1)),
		.waiting_pid = DatumGetInt32(read_column(tuple, 2)),
		.blocking_pid = DatumGetInt32(read_column(tuple, 3)),
		.blocking_gid = read_text(tuple, 4),
		.object = read_text(tuple, 5),
		.since = DatumGetTimestampTz(read_column(tuple, 6)),
		.waiting_session = DatumGetInt32(read_column(tuple, 7)),
		.waiting_role = DatumGetObjectId(read_column(tuple, 8)),
		.waiting_statement = read_text(tuple, 9),
		.blocking_session = DatumGetInt32(read_column(tuple, 10)),
		.waited = DatumGetBool(read_column(tuple, 11)),
		.wait_number = DatumGetInt64(read_column(tuple, 12)),
		.transaction_start = DatumGetTimestampTz(read_column(tuple, 13)),
		.interruptible = DatumGetBool(read_column(tuple, 14)),
	};

	return wait;
}

static bool
is_same_waiter(const Wait *a, const Wait *b)
{
	if (a->waiting_session != 0 || b->waiting_session != 0)
		return a->waiting_session == b->waiting_session;
	return a->worker_id == b->worker_id && a->waiting_pid == b->waiting_pid;
}

/* Is what `wait` waits for the waiter of `other`? */
static bool
is_blocked_by(const Wait *wait, const Wait *other)
{
	if (wait->blocking_session != 0 || other->waiting_session != 0)
		return wait->blocking_session == other->waiting_session;
	return wait->blocking_pid != 0 && wait->worker_id == other->worker_id &&
		   wait->blocking_pid == other->waiting_pid;
}

/*
 * Number the waiters: each has a node, named by its first wait.  Whoever waits for nobody cannot be
 * in a cycle, so waits for such are left out.
 */
static void
make_graph(Look *look)
{
	look->pairs = palloc0((look->count + 1) * sizeof(WaitPair));
	look->ignored = palloc0((look->count + 1) * sizeof(bool));
	look->cycle = palloc0((look->count + 1) * sizeof(int));
	look->nodes = look->count;
	for (int i = 0; i < look->count; i++)
	{
		WaitPair *pair = &look->pairs[i];

		pair->from = i;
		for (int j = 0; j < i && pair->from == i; j++)
			if (is_same_waiter(&look->waits[i], &look->waits[j]))
				pair->from = j;
	}
	for (int i = 0; i < look->count; i++)
	{
		look->ignored[i] = true;
		for (int j = 0; j < look->count && look->ignored[i]; j++)
		{
			if (!is_blocked_by(&look->waits[i], &look->waits[j]))
				continue;
			look->pairs[i].to = look->pairs[j].from;
			look->ignored[i] = false;
		}
	}
}

static Look
look_around(void)
{
	Look look = {0};
	MemoryContext caller = CurrentMemoryContext;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute(look_query, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "lock waits could not be read");

	look.waits = MemoryContextAllocZero(caller, (SPI_processed + 1) * sizeof(Wait));
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		MemoryContext previous = MemoryContextSwitchTo(caller);
		Wait wait = read_wait(SPI_tuptable->vals[i]);

		MemoryContextSwitchTo(previous);
		if (wait.worker_id == 0 || wait.waiting_session == 0 || wait.waited)
			look.waits[look.count++] = wait;
	}
	SPI_finish();
	make_graph(&look);
	return look;
}

/* Keep the waits that an earlier look has seen, too. */
static void
keep_what_lasts(Look *look, const Look *earlier)
{
	for (int i = 0; i < look->count; i++)
	{
		const Wait *wait = &look->waits[i];
		bool seen = false;

		for (int j = 0; j < earlier->count && !seen; j++)
		{
			const Wait *other = &earlier->waits[j];

			seen = wait->worker_id == other->worker_id && wait->waiting_pid == other->waiting_pid &&
				   wait->blocking_pid == other->blocking_pid &&
				   strcmp(wait->blocking_gid, other->blocking_gid) == 0 &&
				   wait->since == other->since && wait->wait_number == other->wait_number;
		}
		if (!seen)
			look->ignored[i] = true;
	}
}

/* ----------------------------------------------------------------
 * Ending a cycle
 * ----------------------------------------------------------------
 */

static const Wait *
cycle_wait(const Look *look, int length, int position)
{
	return &look->waits[look->cycle[position % length]];
}

/* Does a node see this cycle by itself? */
static bool
is_within_one_node(const Look *look, int length)
{
	for (int i = 0; i < length; i++)
	{
		const Wait *wait = cycle_wait(look, length, i);
		const Wait *next = cycle_wait(look, length, i + 1);

		if (wait->worker_id != next->worker_id || wait->blocking_pid != next->waiting_pid)
			return false;
	}
	return true;
}

/* The youngest transaction of the cycle that can be given an error; NULL when there is none. */
static const Wait *
choose_victim(const Look *look, int length)
{
	const Wait *victim = NULL;

	for (int i = 0; i < length; i++)
	{
		const Wait *wait = cycle_wait(look, length, i);

		if (!wait->waited || !wait->interruptible || wait->waiting_session == 0)
			continue;
		if (victim == NULL || wait->transaction_start > victim->transaction_start)
			victim = wait;
	}
	return victim;
}

static const char *
node_name(int worker_id)
{
	const Worker *worker = worker_id > 0 ? metadata_worker(worker_id) : NULL;

	return worker != NULL ? psprintf("worker \"%s\"", worker->name) : "the coordinator";
}

/*
 * The cycle in words, like core's.  Statements of others than `reader` (InvalidOid: anybody) are not
 * shown, as in pg_stat_activity.
 */
static char *
describe_cycle(const Look *look, int length, Oid reader)
{
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < length; i++)
	{
		const Wait *wait = cycle_wait(look, length, i);
		const Wait *next = cycle_wait(look, length, i + 1);

		appendStringInfo(&text, "%sProcess %d waits on %s for %s; blocked by process %d.",
						 i > 0 ? "\n" : "",
						 wait->waiting_session ? wait->waiting_session : wait->waiting_pid,
						 node_name(wait->worker_id), wait->object,
						 next->waiting_session ? next->waiting_session : next->waiting_pid);
	}
	for (int i = 0; i < length; i++)
	{
		const Wait *wait = cycle_wait(look, length, i);
		const char *statement = wait->waiting_statement;
		int size = strlen(statement);

		if (OidIsValid(reader) && reader != wait->waiting_role)
		{
			statement = "<insufficient privilege>";
			size = strlen(statement);
		}
		appendStringInfo(&text, "\nProcess %d: %.*s%s",
						 wait->waiting_session ? wait->waiting_session : wait->waiting_pid,
						 pg_mbcliplen(statement, size, STATEMENT_EXCERPT), statement,
						 size > STATEMENT_EXCERPT ? "..." : "");
	}
	return text.data;
}

/* Take a session's waits out of the graph, as its end will. */
static void
forget_waiter(Look *look, const Wait *gone)
{
	for (int i = 0; i < look->count; i++)
	{
		if (is_same_waiter(&look->waits[i], gone))
			look->ignored[i] = true;
	}
}

/*
 * The wait without which a cycle is none.  A session of it may wait elsewhere, too: then the same deadlock goes through
 * several nodes, and is ours, whichever way was found first.
 */
static int
choose_left_out(const Look *look, int length)
{
	for (int i = 0; i < length; i++)
	{
		const Wait *wait = cycle_wait(look, length, i);

		for (int j = 0; j < look->count; j++)
		{
			if (!look->ignored[j] && is_same_waiter(&look->waits[j], wait) &&
				look->waits[j].worker_id != wait->worker_id)
				return look->cycle[i];
		}
	}
	return look->cycle[0];
}

/* End all cycles of a graph; returns the number of victims. */
static int
end_cycles(Look *look)
{
	int victims = 0;
	int length;

	while ((length = wait_cycle_find(look->pairs, look->count, look->ignored, look->nodes,
									 look->cycle)) > 0)
	{
		const Wait *victim = is_within_one_node(look, length) ? NULL : choose_victim(look, length);

		if (victim == NULL)
		{
			/* not ours, or only a time-out can end it */
			look->ignored[choose_left_out(look, length)] = true;
			continue;
		}
		if (session_map_choose_victim(victim->waiting_session, victim->wait_number,
									  describe_cycle(look, length, victim->waiting_role),
									  describe_cycle(look, length, InvalidOid)))
			victims++;
		forget_waiter(look, victim);
	}
	return victims;
}

static bool
has_cycle(const Look *look)
{
	return wait_cycle_find(look->pairs, look->count, look->ignored, look->nodes, look->cycle) > 0;
}

/* Find deadlocks and end them; the number of sessions that get an error. */
static int
detect(void)
{
	TimestampTz since = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), -DeadlockTimeout);
	Look first;
	Look second;

	if (!metadata_available() || session_map_first_wait() > since)
		return 0;
	first = look_around();
	if (!has_cycle(&first))
		return 0;
	second = look_around();
	keep_what_lasts(&second, &first);
	return end_cycles(&second);
}

/* A worker that does not answer must not hold up the other tasks for long. */
void
deadlock_detect(void)
{
	enable_timeout_after(STATEMENT_TIMEOUT, LOOK_TIMEOUT_MS);
	PG_TRY();
	{
		(void) detect();
	}
	PG_FINALLY();
	{
		disable_timeout(STATEMENT_TIMEOUT, false);
	}
	PG_END_TRY();
}

/*
 * Often while somebody has just begun to wait, so that a deadlock lasts for little more than
 * deadlock_timeout; seldom for statements that merely run long, but may still meet a lock.
 */
int
deadlock_interval(void)
{
	TimestampTz recently = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), -2 * DeadlockTimeout);

	if (session_map_first_wait() == PG_INT64_MAX)
		return IDLE_INTERVAL_MS;
	if (session_map_last_wait() > recently)
		return Max(DeadlockTimeout / 4, 10);
	return DeadlockTimeout;
}

/*
 * strata.detect_deadlocks(): the same at once.
 */
Datum
strata_detect_deadlocks(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(detect());
}
