/*
 * remote_scan.c
 *		Streams of rows from several workers, merged as they come.
 *
 * One stream per worker.  Its life:
 *
 *		SENT		COPY (...) TO STDOUT is on its way
 *		COPYING		rows arrive
 *		ENDING		the last row came; the command's result is awaited
 *		DONE		the wire is free
 *
 * Rows are taken from the stream that last gave one until libpq's buffer for it is
 * empty, then from the next: a fair order that costs no search per row.  Nobody waits for
 * one worker while another has rows.  A worker whose rows nobody takes
 * stops when the socket is full: memory stays bounded.
 *
 * Yielding.  Another statement of the same session may need the wire.  Then the rest of
 * the stream moves into a tuplestore (work_mem, then a temporary file), and the scan
 * reads on from there.  The tuplestore belongs to the resource owner that was current
 * when the scan began, not to whoever asked for the wire.
 *
 * A stream whose wire was taken by an aborting subtransaction (conn->occupant is not
 * it any more) is broken: to read on is an error.
 *
 * Ending early must not cost what the worker's transaction wrote: a cancel aborts that
 * transaction.  Little is simply thrown away; for the rest
 * wire_reclaim() knows who may be cancelled.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/tuplestore.h"

#include "stream/remote_scan.h"
#include "transaction/snapshot_pin.h"
#include "values/row_format.h"
#include "wire/wire_reclaim.h"

/* Bytes of unread rows that are cheaper to throw away than a cancel is. */
#define CHEAP_DRAIN_BYTES (256 * 1024)

typedef enum StreamState
{
	STREAM_SENT,
	STREAM_COPYING,
	STREAM_ENDING,
	STREAM_DONE
} StreamState;

typedef struct Stream
{
	WireOccupant occupant;
	RemoteScan *scan;
	WorkerConnection *conn;
	StreamState state;
	bool header_read;
	int held; /* length of a message that was received but not handed out, in conn->row */
	Tuplestorestate *spool; /* rows to come, after the stream yielded */
	TupleTableSlot *spool_slot;
	MemoryContext row_context; /* values of the row handed out last */
	uint64 rows;
	uint64 bytes;
	double first; /* ms from the question to the first row, and to the last */
	double end;
} Stream;

struct RemoteScan
{
	MemoryContext context; /* of everything here, deleted at the end */
	MemoryContextCallback forget;
	ResourceOwner owner;
	TupleDesc desc;
	instr_time begun;
	RowDecoder *decoder;
	WorkerConnection **waiting; /* scratch for connection_wait_any() */
	int current;				/* the stream that gave the last row */
	int count;
	Stream streams[FLEXIBLE_ARRAY_MEMBER];
};

/* What a look at a stream gave. */
typedef enum Progress
{
	PROGRESS_ROW,
	PROGRESS_WAIT,
	PROGRESS_END
} Progress;

static void spool_stream(void *occupant);

/* ----------------------------------------------------------------
 * Begin
 * ----------------------------------------------------------------
 */

static void
begin_stream(RemoteScan *scan, int index, WorkerConnection *conn, RemoteAccess access,
			 const char *sql)
{
	Stream *stream = &scan->streams[index];
	StringInfoData copy;

	stream->occupant.yield = spool_stream;
	stream->scan = scan;
	stream->conn = conn;
	stream->row_context = AllocSetContextCreate(scan->context, "remote row",
												ALLOCSET_DEFAULT_SIZES);

	initStringInfo(&copy);
	appendStringInfo(&copy, "COPY (%s) TO STDOUT (FORMAT binary)", sql);
	remote_transaction_send_ready(conn, access, copy.data);
	conn->occupant = &stream->occupant;
	scan->count++;
	pfree(copy.data);
}

/*
 * The scan's memory goes.  If that is not by remote_scan_end() - core drops failed portals without
 * ending their executors - the wires must not point here any more; the next user of a wire
 * finds it orphaned.
 */
static void
forget_scan(void *arg)
{
	RemoteScan *scan = arg;

	for (int i = 0; i < scan->count; i++)
	{
		if (scan->streams[i].conn->occupant == &scan->streams[i].occupant)
			scan->streams[i].conn->occupant = NULL;
	}
}

static RemoteScan *
create_scan(int count, TupleDesc desc)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "remote scan",
												  ALLOCSET_DEFAULT_SIZES);
	RemoteScan *scan = MemoryContextAllocZero(context, offsetof(RemoteScan, streams) +
														   count * sizeof(Stream));

	scan->context = context;
	scan->forget.func = forget_scan;
	scan->forget.arg = scan;
	MemoryContextRegisterResetCallback(context, &scan->forget);
	scan->owner = CurrentResourceOwner;
	scan->desc = desc;
	INSTR_TIME_SET_CURRENT(scan->begun);
	scan->decoder = row_decoder_create(desc, context);
	scan->waiting = MemoryContextAlloc(context, (count + 1) * sizeof(WorkerConnection *));
	return scan;
}

RemoteScan *
remote_scan_begin_each(const List *wires, char **sqls, RemoteAccess access, TupleDesc desc)
{
	RemoteScan *scan = create_scan(list_length(wires), desc);
	MemoryContext previous = MemoryContextSwitchTo(scan->context);

	for (int i = 0; i < list_length(wires); i++)
		begin_stream(scan, i, list_nth(wires, i), access, sqls[i]);
	snapshot_pin_sent();
	MemoryContextSwitchTo(previous);
	return scan;
}

RemoteScan *
remote_scan_begin(const List *wires, RemoteAccess access, const char *sql, TupleDesc desc)
{
	char **sqls = palloc((list_length(wires) + 1) * sizeof(char *));
	RemoteScan *scan;

	for (int i = 0; i < list_length(wires); i++)
		sqls[i] = unconstify(char *, sql);
	scan = remote_scan_begin_each(wires, sqls, access, desc);
	pfree(sqls);
	return scan;
}

/* ----------------------------------------------------------------
 * One stream
 * ----------------------------------------------------------------
 */

/* Is there still something of the stream on its wire? */
static inline bool
is_live(const Stream *stream)
{
	return stream->state != STREAM_DONE && stream->conn->occupant == &stream->occupant;
}

static double
measure_time(const RemoteScan *scan)
{
	instr_time now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, scan->begun);
	return INSTR_TIME_GET_MILLISEC(now);
}

static void
finish_stream(Stream *stream)
{
	stream->state = STREAM_DONE;
	stream->end = measure_time(stream->scan);
	stream->conn->occupant = NULL;
}

/* Results around the rows, the beginning and the end of COPY; false when none is there yet. */
static bool
take_result(Stream *stream)
{
	PGresult *result;
	ExecStatusType status;

	if (!connection_poll_result(stream->conn, &result))
		return false;
	if (result == NULL)
	{
		finish_stream(stream);
		return true;
	}
	status = PQresultStatus(result);
	if (status != PGRES_COPY_OUT && status != PGRES_COMMAND_OK)
		connection_report(ERROR, stream->conn, result, NULL);
	PQclear(result);
	stream->state = status == PGRES_COPY_OUT ? STREAM_COPYING : STREAM_ENDING;
	return true;
}

/* Nobody needs the row that libpq handed out last. */
static inline void
free_row(WorkerConnection *conn)
{
	if (conn->row != NULL)
		PQfreemem(conn->row);
	conn->row = NULL;
}

/*
 * Next message of rows, in conn->row until the next call.  Reads from the socket, but
 * does not wait.
 */
static Progress
take_row(Stream *stream, int *length)
{
	WorkerConnection *conn = stream->conn;
	bool consumed = false;

	if (stream->held > 0)
	{
		*length = stream->held;
		stream->held = 0;
		return PROGRESS_ROW;
	}
	free_row(conn);
	for (;;)
	{
		if (stream->state == STREAM_DONE)
			return PROGRESS_END;
		if (stream->state != STREAM_COPYING)
		{
			if (!take_result(stream))
				return PROGRESS_WAIT;
			continue;
		}

		*length = PQgetCopyData(conn->pg, &conn->row, 1);
		if (*length > 0)
		{
			stream->bytes += *length;
			connection_note_message(conn, *length);
			return PROGRESS_ROW;
		}
		conn->row = NULL;
		if (*length < 0)
		{
			stream->state = STREAM_ENDING;
			continue;
		}
		if (consumed)
			return PROGRESS_WAIT;
		CHECK_FOR_INTERRUPTS();
		if (!connection_consume(conn) && PQstatus(conn->pg) != CONNECTION_OK)
			connection_report(ERROR, conn, NULL, NULL);
		consumed = true;
	}
}

/* Next decoded row of a live stream; the values are in its row_context. */
static Progress
decode_next(Stream *stream, Datum *values, bool *nulls)
{
	Progress progress;
	int length;

	while ((progress = take_row(stream, &length)) == PROGRESS_ROW)
	{
		char *data = stream->conn->row;
		int header = 0;
		MemoryContext previous;
		bool is_row;

		if (!stream->header_read)
		{
			stream->first = measure_time(stream->scan);
			header = row_decoder_skip_header(data, length);
			stream->header_read = true;
			if (header == length)
				continue;
		}
		MemoryContextReset(stream->row_context);
		previous = MemoryContextSwitchTo(stream->row_context);
		is_row = row_decoder_decode(stream->scan->decoder, data + header, length - header, values,
									nulls);
		MemoryContextSwitchTo(previous);
		free_row(stream->conn);
		if (is_row)
		{
			stream->rows++;
			return PROGRESS_ROW;
		}
	}
	return progress;
}

/* WireOccupant: move the rows still to come into a tuplestore. */
static void
spool_stream(void *occupant)
{
	Stream *stream = occupant;
	RemoteScan *scan = stream->scan;
	Datum *values = MemoryContextAlloc(scan->context, (scan->desc->natts + 1) * sizeof(Datum));
	bool *nulls = MemoryContextAlloc(scan->context, scan->desc->natts + 1);
	MemoryContext row_context = stream->row_context;
	ResourceOwner previous_owner = CurrentResourceOwner;
	MemoryContext previous_context = MemoryContextSwitchTo(scan->context);
	uint64 rows = stream->rows;

	if (stream->spool == NULL)
	{
		CurrentResourceOwner = scan->owner;
		stream->spool = tuplestore_begin_heap(false, false, work_mem);
		stream->spool_slot = MakeSingleTupleTableSlot(scan->desc, &TTSOpsMinimalTuple);
		CurrentResourceOwner = previous_owner;
	}

	/* the values handed out last stay valid until the scan is asked for the next row */
	stream->row_context = AllocSetContextCreate(scan->context, "remote row",
												ALLOCSET_DEFAULT_SIZES);
	for (;;)
	{
		Progress progress = decode_next(stream, values, nulls);

		if (progress == PROGRESS_END)
			break;
		if (progress == PROGRESS_ROW)
			tuplestore_putvalues(stream->spool, scan->desc, values, nulls);
		else
			connection_wait_any(&stream->conn, 1);
	}
	MemoryContextDelete(stream->row_context);
	stream->row_context = row_context;
	stream->rows = rows; /* counted again when they are handed out */
	MemoryContextSwitchTo(previous_context);
	pfree(values);
	pfree(nulls);
}

/* Next row from the tuplestore of a stream that has yielded. */
static bool
read_spool(Stream *stream, TupleTableSlot *slot)
{
	int natts = stream->scan->desc->natts;
	MemoryContext previous;
	bool found;

	/* a tuple from a file is allocated in the current context, and freed by the slot's next one */
	previous = MemoryContextSwitchTo(stream->scan->context);
	found = tuplestore_gettupleslot(stream->spool, true, false, stream->spool_slot);
	MemoryContextSwitchTo(previous);
	if (!found)
	{
		tuplestore_end(stream->spool);
		stream->spool = NULL;
		return false;
	}
	slot_getallattrs(stream->spool_slot);
	memcpy(slot->tts_values, stream->spool_slot->tts_values, natts * sizeof(Datum));
	memcpy(slot->tts_isnull, stream->spool_slot->tts_isnull, natts * sizeof(bool));
	stream->rows++;
	return true;
}

/* One look at a stream, wherever its rows are.  A row is in the slot's arrays, not yet stored. */
static Progress
poll_stream(Stream *stream, TupleTableSlot *slot)
{
	if (stream->state != STREAM_DONE)
	{
		if (!is_live(stream))
			ereport(
				ERROR,
				(errcode(ERRCODE_INVALID_CURSOR_STATE),
				 errmsg("rows of worker \"%s\" were lost", stream->conn->worker_name),
				 errdetail("The subtransaction in which they were requested was rolled back.")));
		if (stream->spool == NULL)
			return decode_next(stream, slot->tts_values, slot->tts_isnull);
		spool_stream(stream); /* an error interrupted it before */
	}
	return stream->spool != NULL && read_spool(stream, slot) ? PROGRESS_ROW : PROGRESS_END;
}

/* ----------------------------------------------------------------
 * The scan
 * ----------------------------------------------------------------
 */

int
remote_scan_stream_count(const RemoteScan *scan)
{
	return scan->count;
}

bool
remote_scan_next(RemoteScan *scan, TupleTableSlot *slot)
{
	ExecClearTuple(slot);
	for (;;)
	{
		int waiting = 0;

		for (int i = 0; i < scan->count; i++)
		{
			Stream *stream = &scan->streams[scan->current];
			Progress progress = poll_stream(stream, slot);

			if (progress == PROGRESS_ROW)
			{
				ExecStoreVirtualTuple(slot);
				return true;
			}
			if (progress == PROGRESS_WAIT)
				scan->waiting[waiting++] = stream->conn;
			scan->current = (scan->current + 1) % scan->count;
		}
		if (waiting == 0)
			return false;
		connection_wait_any(scan->waiting, waiting);
	}
}

bool
remote_scan_next_from(RemoteScan *scan, int index, TupleTableSlot *slot)
{
	Stream *stream = &scan->streams[index];

	ExecClearTuple(slot);
	for (;;)
	{
		switch (poll_stream(stream, slot))
		{
			case PROGRESS_ROW:
				ExecStoreVirtualTuple(slot);
				return true;
			case PROGRESS_END:
				return false;
			case PROGRESS_WAIT:
				connection_wait_any(&stream->conn, 1);
		}
	}
}

void
remote_scan_await_all(RemoteScan *scan)
{
	for (;;)
	{
		int waiting = 0;

		for (int i = 0; i < scan->count; i++)
		{
			Stream *stream = &scan->streams[i];
			int length;

			if (stream->held > 0 || stream->spool != NULL || !is_live(stream))
				continue;
			switch (take_row(stream, &length))
			{
				case PROGRESS_ROW:
					stream->held = length;
					break;
				case PROGRESS_WAIT:
					scan->waiting[waiting++] = stream->conn;
					break;
				case PROGRESS_END:
					break;
			}
		}
		if (waiting == 0)
			return;
		connection_wait_any(scan->waiting, waiting);
	}
}

void
remote_scan_keep(RemoteScan *scan)
{
	for (int i = 0; i < scan->count; i++)
	{
		if (is_live(&scan->streams[i]))
			spool_stream(&scan->streams[i]);
	}
}

RemoteTraffic
remote_scan_traffic(const RemoteScan *scan, int index)
{
	const Stream *stream = &scan->streams[index];

	return (RemoteTraffic){.worker_id = stream->conn->worker_id,
						   .standby = stream->conn->standby,
						   .rows = stream->rows,
						   .bytes = stream->bytes,
						   .first = stream->first,
						   .end = stream->state == STREAM_DONE ? stream->end : measure_time(scan)};
}

/* ----------------------------------------------------------------
 * End
 * ----------------------------------------------------------------
 */

/* Throw away up to `limit` bytes of rows that have arrived; is the wire free then? */
static bool
drain_stream(Stream *stream, uint64 limit)
{
	uint64 start = stream->bytes;

	while (stream->bytes - start < limit)
	{
		int length;
		Progress progress = take_row(stream, &length);

		if (progress != PROGRESS_ROW)
			return progress == PROGRESS_END;
	}
	return false;
}

/* Free the wires of streams that have not come to their end. */
static void
stop_streams(RemoteScan *scan)
{
	int count = 0;

	for (int i = 0; i < scan->count; i++)
	{
		Stream *stream = &scan->streams[i];

		if (!is_live(stream) || drain_stream(stream, CHEAP_DRAIN_BYTES))
			continue;
		scan->waiting[count++] = stream->conn;
		finish_stream(stream);
	}
	if (count > 0)
		wire_reclaim(scan->waiting, count);
}

void
remote_scan_end(RemoteScan *scan)
{
	stop_streams(scan);
	for (int i = 0; i < scan->count; i++)
	{
		Stream *stream = &scan->streams[i];

		if (stream->spool != NULL)
			tuplestore_end(stream->spool);
		if (stream->spool_slot != NULL)
			ExecDropSingleTupleTableSlot(stream->spool_slot);
	}
	MemoryContextDelete(scan->context);
}
