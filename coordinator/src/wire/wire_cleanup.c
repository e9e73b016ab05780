/*
 * wire_cleanup.c
 *		Cancel, drain and end statements without ERROR and within a deadline.
 *
 * Transaction callbacks run here: after the local commit an ERROR is a PANIC,
 * and in an abort it is a recursion.  Therefore these functions use poll() instead of the
 * latch, serve no interrupt, and allocate nothing (libpq uses malloc() and reports its
 * failure, which counts as a lost wire).  The price is that they cannot be
 * interrupted, hence the deadlines, which come nearer when somebody wants the session to end,
 * and are over when the postmaster is gone.
 *
 * Cancelling.  PQcancel() connects to the worker's postmaster and waits for it without any
 * limit; a postmaster that hangs would hang us for good.  So each worker is asked
 * first whether it answers at all: an SSLRequest, on a socket of our own with a
 * deadline, to which every postmaster replies with one byte.  That socket is closed before
 * PQcancel(): a postmaster that shuts down accepts nobody until those are gone whom it has
 * accepted to refuse them.
 */
#include "postgres.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "access/xact.h"
#include "libpq/pqcomm.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "portability/instr_time.h"
#include "storage/pmsignal.h"
#include "utils/memutils.h"

#include "fault_point.h"
#include "server/clock.h"
#include "wire/wire_cleanup.h"

/* A worker whose postmaster needs longer than this to say one byte is given up. */
#define PROBE_TIMEOUT_MS 500

/* Writes that end in this time are not cancelled. */
#define SHORT_WRITE_MS 100

/* Whoever has cancelled or terminated us waits no longer than this. */
#define IMPATIENT_MS 500

/* What a clean-up has at least: enough for workers that answer. */
#define LAST_MS 50

/* So often a wait looks whether the postmaster lives; signals end a poll() at once. */
#define LOOK_MS 100

/* A wire that has carried a longer message is closed at the end of the transaction. */
#define SWOLLEN_BYTES (4 * 1024 * 1024)

static struct pollfd *poll_slots = NULL;
static WorkerConnection **poll_owners = NULL;
static int poll_capacity = 0;

/* What was spent of WIRE_END_TIMEOUT_MS, in which statement of the client. */
static int64 spent_ms = 0;
static TimestampTz spent_in = 0;

void
wire_cleanup_reserve(int count)
{
	if (count <= poll_capacity)
		return;
	count = Max(count, 2 * poll_capacity);
	poll_slots = MemoryContextAlloc(TopMemoryContext, count * sizeof(struct pollfd));
	poll_owners = MemoryContextAlloc(TopMemoryContext, count * sizeof(WorkerConnection *));
	poll_capacity = count;
}

void
wire_end_renew(void)
{
	spent_ms = 0;
}

int64
wire_end_deadline(void)
{
	if (spent_in != GetCurrentStatementStartTimestamp())
		spent_ms = 0;
	spent_in = GetCurrentStatementStartTimestamp();
	return clock_now() + Max(WIRE_END_TIMEOUT_MS - spent_ms, LAST_MS);
}

/* poll() on the first `count` slots; false when the deadline, which may come nearer, has passed. */
static bool
wait_for_slots(int count, int64 *deadline)
{
	int64 now = clock_now();

	if (ProcDiePending || QueryCancelPending)
		*deadline = Min(*deadline, now + IMPATIENT_MS);
	if (*deadline <= now || !PostmasterIsAlive())
		return false;
	(void) poll(poll_slots, count, (int) Min(*deadline - now, LOOK_MS));
	spent_ms += clock_now() - now;
	return true;
}

/* ----------------------------------------------------------------
 * Draining
 * ----------------------------------------------------------------
 */

void
wire_cleanup_begin(WorkerConnection *conn)
{
	conn->cleanup = (WireCleanup){.socket = -1};
}

static void
note_result(WorkerConnection *conn, PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);

	if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
		conn->cleanup.outcome = conn->cleanup.outcome == WIRE_ERROR ? WIRE_ERROR : WIRE_OK;
	else if (status != PGRES_COPY_OUT && status != PGRES_COPY_IN)
		conn->cleanup.outcome = WIRE_ERROR;
	strlcpy(conn->cleanup.tag, PQcmdStatus(result), sizeof(conn->cleanup.tag));
}

/* Throw away one bufferful of COPY rows; true when the COPY has ended. */
static bool
discard_rows(WorkerConnection *conn)
{
	char *row;
	int length;

	while ((length = PQgetCopyData(conn->pg, &row, 1)) > 0)
	{
		connection_note_message(conn, length);
		PQfreemem(row);
	}
	return length < 0;
}

bool
wire_drain_arrived(WorkerConnection *conn)
{
	bool intact = PQconsumeInput(conn->pg) != 0;

	conn->skip_results = 0;
	while (!intact || !PQisBusy(conn->pg))
	{
		PGresult *result = PQgetResult(conn->pg);
		ExecStatusType status;

		if (result == NULL)
		{
			if (PQstatus(conn->pg) != CONNECTION_OK)
				conn->cleanup.outcome = WIRE_LOST;
			return true;
		}
		status = PQresultStatus(result);
		note_result(conn, result);
		PQclear(result);

		if (!intact || PQstatus(conn->pg) != CONNECTION_OK)
		{
			conn->cleanup.outcome = WIRE_LOST;
			return true;
		}
		if (status == PGRES_COPY_OUT && !discard_rows(conn))
			return false;
		if (status == PGRES_COPY_IN)
		{
			if (!conn->cleanup.copy_ended)
				conn->cleanup.copy_ended = PQputCopyEnd(conn->pg, "transaction was aborted") == 1;
			if (!conn->cleanup.copy_ended || PQflush(conn->pg) < 0)
			{
				conn->cleanup.outcome = WIRE_LOST;
				return true;
			}
		}
	}
	return false;
}

/* Wait until all wires are idle, and say so of each at once; some are not if the deadline has passed. */
static void
finish_wires(WorkerConnection **conns, int count, int64 deadline, WireEnded ended)
{
	bool in_time = true;

	for (;;)
	{
		int waiting = 0;

		for (int i = 0; i < count; i++)
		{
			if (conns[i]->cleanup.idle)
				continue;
			conns[i]->cleanup.idle = wire_drain_arrived(conns[i]);
			if (conns[i]->cleanup.idle && ended != NULL)
				ended(conns[i]);
			if (conns[i]->cleanup.idle || !in_time)
				continue;
			poll_slots[waiting].fd = PQsocket(conns[i]->pg);
			poll_slots[waiting].events = POLLIN | (PQflush(conns[i]->pg) > 0 ? POLLOUT : 0);
			waiting++;
		}
		if (waiting == 0)
			return;
		in_time = wait_for_slots(waiting, &deadline);
	}
}

static void
lose_unfinished(WorkerConnection **conns, int count)
{
	for (int i = 0; i < count; i++)
	{
		if (!conns[i]->cleanup.idle)
			conns[i]->cleanup.outcome = WIRE_LOST;
	}
}

void
wire_drain(WorkerConnection **conns, int count, int64 deadline)
{
	for (int i = 0; i < count; i++)
	{
		/* one that wire_cancel() has given up stays lost */
		bool lost = conns[i]->cleanup.outcome == WIRE_LOST;

		wire_cleanup_begin(conns[i]);
		if (!lost)
			continue;
		conns[i]->cleanup.outcome = WIRE_LOST;
		conns[i]->cleanup.idle = true;
	}
	finish_wires(conns, count, deadline, NULL);
	lose_unfinished(conns, count);
}

void
wire_run(WorkerConnection **conns, const char **sqls, int count, int64 deadline, WireEnded ended)
{
	for (int i = 0; i < count; i++)
	{
		bool quiet = conns[i]->quiet;

		wire_cleanup_begin(conns[i]);
		conns[i]->quiet = true;
		if (!PQsendQuery(conns[i]->pg, sqls[i]))
		{
			conns[i]->cleanup.outcome = WIRE_LOST;
			conns[i]->cleanup.idle = true;
		}
		conns[i]->quiet = quiet;
		FAULT_POINT_OF("wire_sent", i);
	}
	finish_wires(conns, count, deadline, ended);
	lose_unfinished(conns, count);
	for (int i = 0; i < count; i++)
	{
		if (conns[i]->cleanup.outcome == WIRE_PENDING)
			conns[i]->cleanup.outcome = WIRE_LOST;
	}
}

/* ----------------------------------------------------------------
 * Cancelling
 * ----------------------------------------------------------------
 */

/* Begin to connect to where the wire goes; -1 when that fails at once. */
static int
start_probe(WorkerConnection *conn)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);
	int probe;

	if (getpeername(PQsocket(conn->pg), (struct sockaddr *) &address, &length) != 0)
		return -1;
	probe = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (probe < 0)
		return -1;
	if (connect(probe, (struct sockaddr *) &address, length) != 0 && errno != EINPROGRESS)
	{
		close(probe);
		return -1;
	}
	return probe;
}

static void
end_probe(WorkerConnection *conn)
{
	if (conn->cleanup.socket >= 0)
		close(conn->cleanup.socket);
	conn->cleanup.socket = -1;
}

static void
send_cancel(WorkerConnection *conn)
{
	PGcancel *cancel = PQgetCancel(conn->pg);
	char message[256];

	if (cancel == NULL || !PQcancel(cancel, message, sizeof(message)))
		conn->cleanup.outcome = WIRE_LOST;
	PQfreeCancel(cancel);
}

/* A probe's socket is ready: send the question or take the answer.  True when the probe is over. */
static bool
advance_probe(WorkerConnection *conn, short events)
{
	uint32 question[2] = {pg_hton32(sizeof(question)), pg_hton32(NEGOTIATE_SSL_CODE)};
	char answer;
	ssize_t length;

	if ((events & POLLOUT) && !conn->cleanup.probe_asked)
	{
		conn->cleanup.probe_asked = send(conn->cleanup.socket, question, sizeof(question),
										 MSG_NOSIGNAL) == sizeof(question);
		if (!conn->cleanup.probe_asked)
			conn->cleanup.outcome = WIRE_LOST;
		return !conn->cleanup.probe_asked;
	}
	length = recv(conn->cleanup.socket, &answer, 1, 0);
	if (length == 1)
	{
		end_probe(conn);
		send_cancel(conn);
	}
	else if (length < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	else
		conn->cleanup.outcome = WIRE_LOST;
	return true;
}

void
wire_cancel(WorkerConnection **conns, int count, int64 deadline)
{
	deadline = Min(deadline, clock_now() + PROBE_TIMEOUT_MS);
	for (int i = 0; i < count; i++)
	{
		wire_cleanup_begin(conns[i]);
		conns[i]->cleanup.socket = start_probe(conns[i]);
		if (conns[i]->cleanup.socket < 0)
			conns[i]->cleanup.outcome = WIRE_LOST;
	}

	for (;;)
	{
		int waiting = 0;

		for (int i = 0; i < count; i++)
		{
			if (conns[i]->cleanup.socket < 0)
				continue;
			poll_slots[waiting].fd = conns[i]->cleanup.socket;
			poll_slots[waiting].events = conns[i]->cleanup.probe_asked ? POLLIN : POLLOUT;
			poll_slots[waiting].revents = 0;
			poll_owners[waiting++] = conns[i];
		}
		if (waiting == 0)
			return;
		if (!wait_for_slots(waiting, &deadline))
			break;
		for (int i = 0; i < waiting; i++)
		{
			if (poll_slots[i].revents != 0 && advance_probe(poll_owners[i], poll_slots[i].revents))
				end_probe(poll_owners[i]);
		}
	}

	for (int i = 0; i < count; i++)
	{
		if (conns[i]->cleanup.socket < 0)
			continue;
		conns[i]->cleanup.outcome = WIRE_LOST;
		end_probe(conns[i]);
	}
}

/*
 * What a transaction has written before is lost with the wire, if the worker's postmaster is too busy to take a request to cancel, and with the
 * savepoint, if the request comes before that is set.  Most statements that write are short.
 */
static void
wait_for_short_writes(WorkerConnection **conns, int count, int64 deadline)
{
	for (int i = 0; i < count; i++)
	{
		wire_cleanup_begin(conns[i]);
		conns[i]->cleanup.idle = !conns[i]->transaction.written; /* not waited for */
	}
	finish_wires(conns, count, Min(deadline, clock_now() + SHORT_WRITE_MS), NULL);
}

void
wire_stop(WorkerConnection **conns, int count, int64 deadline)
{
	int running = 0;

	if (GetCurrentTransactionNestLevel() > 1)
		wait_for_short_writes(conns, count, deadline);
	for (int i = 0; i < count; i++)
	{
		if (PQtransactionStatus(conns[i]->pg) == PQTRANS_ACTIVE)
			conns[running++] = conns[i];
	}
	wire_cancel(conns, running, deadline);
	wire_drain(conns, running, deadline);
}

void
wire_drop_swollen(void)
{
	ListCell *lc;

	foreach(lc, connection_list())
	{
		WorkerConnection *conn = lfirst(lc);

		if (conn->pg != NULL && conn->transaction.depth == 0 &&
			conn->longest_message > SWOLLEN_BYTES)
			connection_drop(conn);
	}
}
