/*
 * remote_insert.c
 *		Routing and buffering of new rows, and their way to the workers.
 *
 * A Target is a relation that receives rows (from one caller), with a RowBuffer per
 * worker; a reference table has one RowBuffer that goes to all workers.  What happens to
 * a RowBuffer's rows:
 *
 *		kept		the first rows are kept as tuples; if there are never more, they leave as
 *					one INSERT ... VALUES, which costs one round trip
 *		encoded		more rows are encoded for COPY as they come
 *		copying		whenever CHUNK_BYTES have gathered they are pushed into a COPY stream
 *
 * A row of ROW_LARGE_BYTES is never kept or gathered: it is encoded into the stream, after what
 * came before it.
 *
 * Pushing does not wait for the network as long as the wire's previous chunk has
 * left libpq's buffer; if it has not, all wires that are being written are flushed while we
 * wait for this one.  So memory is bounded (per worker one chunk here and one in libpq) and the
 * workers load in parallel.
 *
 * While its stream or statement is open a RowBuffer occupies its wires.  Yielding means to
 * end the stream: rows not yet pushed stay and begin another one later.
 *
 * A COPY's error is noticed before the next chunk is sent: a worker that says anything
 * during COPY has either failed or sent a notice; we end the stream to find out.
 *
 * Everything lives in one memory context below TopTransactionContext, with a child for each target,
 * which a flush deletes; between statements of a client nothing is kept, so no DDL can make it stale.
 * Garbage of encoding goes to a context that is reset per row.
 *
 * A statement inside a function ends like any other when its rows are accepted, so that an error is
 * its own.  Where a worker cannot refuse them (no index, no foreign key ...) nobody can tell, and the rows of
 * a function's many INSERTs still leave together.
 */
#include "compat.h"

#include <poll.h>

#include "access/htup_details.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "cluster/shard_map.h"
#include "server/statement_depth.h"
#include "stream/remote_insert.h"
#include "transaction/remote_transaction.h"
#include "values/row_copy.h"
#include "values/row_format.h"
#include "wire/connection.h"
#include "wire/remote_role.h"

/* A buffer of this size is pushed to its worker. */
#define CHUNK_BYTES (64 * 1024)

/* What is longer is put into a stream piece by piece, so that libpq's buffer does not grow with it. */
#define PIECE_BYTES (4 * CHUNK_BYTES)

/* Up to so many rows leave as an INSERT. */
#define KEPT_ROWS 64

typedef enum BufferState
{
	BUFFER_IDLE, /* nothing on the wires */
	BUFFER_INSERT_SENT,
	BUFFER_COPY_SENT, /* the workers have not yet said that they take data */
	BUFFER_COPYING,
	BUFFER_ENDING /* end of COPY sent, result awaited */
} BufferState;

typedef struct Target Target;

typedef struct RowBuffer
{
	WireOccupant occupant;
	Target *target;
	BufferState state;
	WorkerConnection **conns; /* one, or all workers of a reference table */
	int conn_count;
	bool encoding; /* rows are in `data`, else in `kept` */
	int kept_count;
	Size kept_bytes;
	MinimalTuple kept[KEPT_ROWS];
	int64 data_rows;
	StringInfoData data;
} RowBuffer;

struct Target
{
	MemoryContext context;
	Oid relation;
	int depth;			 /* of the innermost statement with rows here */
	bool can_refuse;	 /* can the workers refuse a row that was right here? */
	bool has_references; /* ... because of rows that other targets may have */
	RemoteRole caller;
	RemoteRole sender; /* the caller, to whom the table's schema is open on the workers */
	const DistributedTable *table;
	TupleDesc desc;
	RowEncoder *encoder;
	char *qualified_name;
	char *column_list;	  /* "(a, b)", empty if there is no column to send */
	TupleTableSlot *slot; /* for kept tuples */
	RowBuffer **buffers;  /* by worker id; reference tables: one, at 0 */
	int buffer_count;
};

static MemoryContext insert_context = NULL; /* NULL: nothing is buffered */
static MemoryContext row_context = NULL;
static List *targets = NIL;
static Target *last_target = NULL;

static void yield_buffer(void *occupant);

/* ----------------------------------------------------------------
 * Targets and buffers
 * ----------------------------------------------------------------
 */

static char *
make_column_list(TupleDesc desc)
{
	StringInfoData list;
	const char *separator = "(";

	initStringInfo(&list);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);

		if (attribute->attisdropped || attribute->attgenerated)
			continue;
		appendStringInfo(&list, "%s%s", separator, quote_identifier(NameStr(attribute->attname)));
		separator = ", ";
	}
	if (list.len > 0)
		appendStringInfoChar(&list, ')');
	return list.data;
}

/*
 * Rows that leave have passed the constraints that this server checks.  The workers alone know
 * whether a key is taken or a foreign key leads anywhere, and compute what is indexed and generated.
 */
static void
set_refusals(Target *target, Relation relation, const DistributedTable *table)
{
	const TupleConstr *constraints = target->desc->constr;

	/* the coordinator's copy of a reference table has taken them */
	if (table->kind != TABLE_DISTRIBUTED)
		return;
	target->has_references = RelationGetFKeyList(relation) != NIL;
	target->can_refuse = target->has_references || relation->rd_rel->relhasindex ||
						 metadata_has_periods(table) ||
						 (constraints != NULL && constraints->has_generated_stored);
}

static Target *
create_target(Relation relation)
{
	const DistributedTable *table = metadata_table(RelationGetRelid(relation));
	MemoryContext previous;
	Target *target;
	MemoryContext context;
	int largest = 0;

	if (table == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" is not distributed", RelationGetRelationName(relation)),
				 errhint("Distribute it with strata.create_distributed_table().")));
	if (insert_context == NULL)
	{
		insert_context = AllocSetContextCreate(TopTransactionContext, "remote insert",
											   ALLOCSET_DEFAULT_SIZES);
		row_context = AllocSetContextCreate(insert_context, "remote insert row",
											ALLOCSET_DEFAULT_SIZES);
	}

	context = AllocSetContextCreate(insert_context, "remote insert target", ALLOCSET_DEFAULT_SIZES);
	previous = MemoryContextSwitchTo(context);
	target = palloc0(sizeof(Target));
	target->context = context;
	target->relation = RelationGetRelid(relation);
	target->caller = remote_role_current();
	target->sender = remote_role_for_relation(relation);
	target->table = table;
	target->desc = CreateTupleDescCopyConstr(RelationGetDescr(relation));
	set_refusals(target, relation, table);
	target->encoder = row_encoder_create(target->desc, context);
	target->qualified_name = quote_qualified_identifier(
		get_namespace_name(RelationGetNamespace(relation)), RelationGetRelationName(relation));
	target->column_list = make_column_list(target->desc);
	target->slot = compat_make_slot(target->desc, &TTSOpsMinimalTuple);
	if (table->kind == TABLE_DISTRIBUTED)
	{
		int worker_id = -1;

		while ((worker_id = bms_next_member(table->colocation->workers, worker_id)) >= 0)
			largest = worker_id;
	}
	target->buffer_count = largest + 1;
	target->buffers = palloc0(target->buffer_count * sizeof(RowBuffer *));
	MemoryContextSwitchTo(insert_context);
	targets = lappend(targets, target);
	MemoryContextSwitchTo(previous);
	return target;
}

static inline bool
is_target(const Target *target, Relation relation, RemoteRole caller)
{
	return target->relation == RelationGetRelid(relation) &&
		   remote_role_equal(target->caller, caller);
}

static Target *
find_target(Relation relation)
{
	RemoteRole caller = remote_role_current();
	ListCell *lc;

	if (last_target != NULL && is_target(last_target, relation, caller))
		return last_target;

	foreach(lc, targets)
	{
		Target *target = lfirst(lc);

		if (is_target(target, relation, caller))
			return last_target = target;
	}
	return last_target = create_target(relation);
}

static RowBuffer *
create_buffer(Target *target, int worker_id)
{
	const Bitmapset *workers = target->table->kind == TABLE_DISTRIBUTED
								   ? bms_make_singleton(worker_id)
								   : metadata_table_workers(target->table);
	List *wires = connection_open_all(workers);
	MemoryContext previous;
	RowBuffer *buffer;
	ListCell *lc;

	previous = MemoryContextSwitchTo(target->context);
	buffer = palloc0(sizeof(RowBuffer));
	buffer->occupant.yield = yield_buffer;
	buffer->target = target;
	buffer->conns = palloc((list_length(wires) + 1) * sizeof(WorkerConnection *));
	MemoryContextSwitchTo(previous);
	foreach(lc, wires)
		buffer->conns[buffer->conn_count++] = lfirst(lc);
	list_free(wires);
	return buffer;
}

/* The buffer for a row. */
static RowBuffer *
route_row(Target *target, TupleTableSlot *slot)
{
	int worker_id = 0;

	if (target->table->kind == TABLE_DISTRIBUTED)
	{
		int key = target->table->key_attribute - 1;

		worker_id = shard_map_worker(target->table->colocation, slot->tts_values[key],
									 slot->tts_isnull[key]);
	}
	if (target->buffers[worker_id] == NULL)
		target->buffers[worker_id] = create_buffer(target, worker_id);
	return target->buffers[worker_id];
}

/* ----------------------------------------------------------------
 * Sending
 * ----------------------------------------------------------------
 */

static void
occupy_wires(RowBuffer *buffer, BufferState state)
{
	for (int i = 0; i < buffer->conn_count; i++)
		buffer->conns[i]->occupant = &buffer->occupant;
	buffer->state = state;
}

static void
release_wires(RowBuffer *buffer)
{
	for (int i = 0; i < buffer->conn_count; i++)
		buffer->conns[i]->occupant = NULL;
	buffer->state = BUFFER_IDLE;
}

/*
 * Start the same statement on all of the buffer's workers.  The wires become occupied
 * when all are in use; until then none can be asked to yield, since they are different ones.
 */
static void
send_statement(RowBuffer *buffer, const char *sql, BufferState state)
{
	/* a flush may run as somebody else */
	RemoteRole before = remote_role_enter(buffer->target->sender);

	for (int i = 0; i < buffer->conn_count; i++)
		remote_transaction_send(buffer->conns[i], REMOTE_APPEND, sql);
	(void) remote_role_enter(before);
	occupy_wires(buffer, state);
}

static void
start_copy(RowBuffer *buffer)
{
	Target *target = buffer->target;
	char *sql = psprintf("COPY %s %s FROM STDIN (FORMAT %s)", target->qualified_name,
						 target->column_list,
						 row_encoder_is_binary(target->encoder) ? "binary" : "text");

	send_statement(buffer, sql, BUFFER_COPY_SENT);
	pfree(sql);
}

/* Wait until the workers take data. */
static void
await_copy(RowBuffer *buffer)
{
	for (int i = 0; i < buffer->conn_count; i++)
	{
		PGresult *result = connection_get_result(buffer->conns[i]);

		if (PQresultStatus(result) != PGRES_COPY_IN)
			connection_report(ERROR, buffer->conns[i], result, NULL);
		PQclear(result);
	}
	buffer->state = BUFFER_COPYING;
}

/*
 * A wire, and all others that are being written, so that they go on while we wait for
 * this one.  Returns their number.
 */
static int
collect_writing_wires(WorkerConnection *first, WorkerConnection ***wires)
{
	WorkerConnection **found = palloc((list_length(connection_list()) + 1) *
									  sizeof(WorkerConnection *));
	int count = 0;
	ListCell *lc;

	found[count++] = first;
	foreach(lc, connection_list())
	{
		WorkerConnection *conn = lfirst(lc);

		if (conn != first && conn->pg != NULL && conn->occupant != NULL &&
			conn->occupant->yield == yield_buffer && PQflush(conn->pg) > 0)
			found[count++] = conn;
	}
	*wires = found;
	return count;
}

/* Wait until libpq has handed everything for this wire to the kernel. */
static void
flush_wire(WorkerConnection *conn)
{
	int pending;

	while ((pending = PQflush(conn->pg)) > 0)
	{
		WorkerConnection **wires;
		int count = collect_writing_wires(conn, &wires);

		connection_wait_any(wires, count);
		pfree(wires);
	}
	if (pending < 0)
		connection_report(ERROR, conn, NULL, NULL);
}

static void
put_data(WorkerConnection *conn, const char *data, int length)
{
	int taken;

	while ((taken = PQputCopyData(conn->pg, data, length)) == 0)
		flush_wire(conn);
	if (taken < 0)
		connection_report(ERROR, conn, NULL, NULL);
}

/* A RowSink: put bytes into the buffer's open stream. */
static void
put_pieces(void *buffer, const char *data, int length)
{
	RowBuffer *target = buffer;

	for (int done = 0; done < length; done += PIECE_BYTES)
	{
		for (int i = 0; i < target->conn_count; i++)
		{
			flush_wire(target->conns[i]);
			put_data(target->conns[i], data + done, Min(length - done, PIECE_BYTES));
		}
	}
}

/* Has a worker said something?  In the middle of COPY that is an error or a notice. */
static bool
has_message(RowBuffer *buffer)
{
	for (int i = 0; i < buffer->conn_count; i++)
	{
		struct pollfd probe = {.fd = PQsocket(buffer->conns[i]->pg), .events = POLLIN};

		if (probe.fd < 0 || poll(&probe, 1, 0) > 0)
			return true;
	}
	return false;
}

/* Tell the workers that the stream is over. */
static void
end_copy(RowBuffer *buffer)
{
	StringInfoData trailer;

	initStringInfo(&trailer);
	row_encoder_end(buffer->target->encoder, &trailer);
	for (int i = 0; i < buffer->conn_count; i++)
	{
		WorkerConnection *conn = buffer->conns[i];
		int taken;

		if (trailer.len > 0)
			put_data(conn, trailer.data, trailer.len);
		while ((taken = PQputCopyEnd(conn->pg, NULL)) == 0)
			flush_wire(conn);
		if (taken < 0)
			connection_report(ERROR, conn, NULL, NULL);
	}
	pfree(trailer.data);
	buffer->state = BUFFER_ENDING;
}

/* Wait for the workers' confirmation; raises their errors. */
static void
await_results(RowBuffer *buffer)
{
	for (int i = 0; i < buffer->conn_count; i++)
	{
		PGresult *result;

		while ((result = connection_get_result(buffer->conns[i])) != NULL)
		{
			if (PQresultStatus(result) != PGRES_COMMAND_OK)
				connection_report(ERROR, buffer->conns[i], result, NULL);
			PQclear(result);
		}
	}
	release_wires(buffer);
}

static void
init_data(RowBuffer *buffer)
{
	MemoryContext previous = MemoryContextSwitchTo(buffer->target->context);

	initStringInfo(&buffer->data);
	enlargeStringInfo(&buffer->data, CHUNK_BYTES + 4096);
	MemoryContextSwitchTo(previous);
}

/* Put what has been encoded into the open stream. */
static void
push_data(RowBuffer *buffer)
{
	put_pieces(buffer, buffer->data.data, buffer->data.len);
	if (buffer->data.maxlen > ROW_LARGE_BYTES)
	{
		pfree(buffer->data.data);
		init_data(buffer);
	}
	resetStringInfo(&buffer->data);
	buffer->data_rows = 0;
}

/* Whatever is on the wires comes to its end; rows not yet pushed stay here. */
static void
complete_statement(RowBuffer *buffer)
{
	if (buffer->state == BUFFER_COPY_SENT)
		await_copy(buffer);
	if (buffer->state == BUFFER_COPYING)
		end_copy(buffer);
	if (buffer->state != BUFFER_IDLE)
		await_results(buffer);
}

static void
yield_buffer(void *occupant)
{
	complete_statement(occupant);
}

/* See that a stream is open, and put what has been encoded into it. */
static void
push_chunk(RowBuffer *buffer)
{
	if (buffer->state == BUFFER_COPYING && has_message(buffer))
		complete_statement(buffer);
	if (buffer->state == BUFFER_IDLE)
	{
		StringInfoData header;

		start_copy(buffer);
		await_copy(buffer);
		initStringInfo(&header);
		row_encoder_begin(buffer->target->encoder, &header);
		for (int i = 0; i < buffer->conn_count && header.len > 0; i++)
			put_data(buffer->conns[i], header.data, header.len);
		pfree(header.data);
	}
	push_data(buffer);
}

/* ----------------------------------------------------------------
 * Rows
 * ----------------------------------------------------------------
 */

static void
encode_row(RowBuffer *buffer, const Datum *values, const bool *nulls)
{
	MemoryContext previous;

	MemoryContextReset(row_context);
	previous = MemoryContextSwitchTo(row_context);
	row_encoder_append(buffer->target->encoder, &buffer->data, values, nulls);
	MemoryContextSwitchTo(previous);
	buffer->data_rows++;
}

/* There are too many rows for an INSERT: from now on they are encoded for COPY. */
static void
begin_encoding(RowBuffer *buffer)
{
	TupleTableSlot *slot = buffer->target->slot;

	init_data(buffer);
	buffer->encoding = true;
	for (int i = 0; i < buffer->kept_count; i++)
	{
		ExecStoreMinimalTuple(buffer->kept[i], slot, false);
		slot_getallattrs(slot);
		encode_row(buffer, slot->tts_values, slot->tts_isnull);
		ExecClearTuple(slot);
		pfree(buffer->kept[i]);
	}
	buffer->kept_count = 0;
	buffer->kept_bytes = 0;
}

/* Put a row into the stream at once. */
static void
write_large_row(RowBuffer *buffer, TupleTableSlot *slot)
{
	MemoryContext previous;

	if (!buffer->encoding)
		begin_encoding(buffer);
	push_chunk(buffer);
	previous = MemoryContextSwitchTo(row_context);
	row_encoder_write_large(buffer->target->encoder, slot->tts_values, slot->tts_isnull, put_pieces,
							buffer);
	MemoryContextSwitchTo(previous);
	MemoryContextReset(row_context);
}

static void
keep_row(RowBuffer *buffer, TupleTableSlot *slot)
{
	MemoryContext previous = MemoryContextSwitchTo(buffer->target->context);
	MinimalTuple tuple = row_copy(slot);

	MemoryContextSwitchTo(previous);
	buffer->kept[buffer->kept_count++] = tuple;
	buffer->kept_bytes += tuple->t_len;
	if (buffer->kept_count == KEPT_ROWS || buffer->kept_bytes > CHUNK_BYTES)
		begin_encoding(buffer);
}

void
remote_insert_row(Relation relation, TupleTableSlot *slot)
{
	Target *target = find_target(relation);
	RowBuffer *buffer;

	slot_getallattrs(slot);
	target->depth = Max(target->depth, statement_depth);
	buffer = route_row(target, slot);
	if (row_encoder_column_count(target->encoder) == 0)
		buffer->data_rows++; /* only their number matters */
	else if (row_encoder_is_large(target->encoder, slot->tts_values, slot->tts_isnull))
		write_large_row(buffer, slot);
	else if (buffer->encoding)
		encode_row(buffer, slot->tts_values, slot->tts_isnull);
	else
		keep_row(buffer, slot);

	if (buffer->encoding && buffer->data.len >= CHUNK_BYTES)
		push_chunk(buffer);
}

/* ----------------------------------------------------------------
 * Flush
 * ----------------------------------------------------------------
 */

static void
append_values(StringInfo sql, TupleDesc desc, TupleTableSlot *slot)
{
	const char *separator = "(";

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);

		if (attribute->attisdropped || attribute->attgenerated)
			continue;
		appendStringInfoString(sql, separator);
		row_format_append_literal(sql, attribute->atttypid, slot->tts_values[i],
								  slot->tts_isnull[i]);
		separator = ", ";
	}
	appendStringInfoChar(sql, ')');
}

/* The kept rows as one INSERT. */
static void
send_insert(RowBuffer *buffer)
{
	Target *target = buffer->target;
	MemoryContext previous;
	StringInfoData sql;

	MemoryContextReset(row_context);
	previous = MemoryContextSwitchTo(row_context);
	initStringInfo(&sql);
	appendStringInfo(&sql, "INSERT INTO %s %s VALUES ", target->qualified_name,
					 target->column_list);
	for (int i = 0; i < buffer->kept_count; i++)
	{
		ExecStoreMinimalTuple(buffer->kept[i], target->slot, false);
		slot_getallattrs(target->slot);
		if (i > 0)
			appendStringInfoString(&sql, ", ");
		append_values(&sql, target->desc, target->slot);
		ExecClearTuple(target->slot);
	}
	send_statement(buffer, sql.data, BUFFER_INSERT_SENT);
	buffer->kept_count = 0;
	buffer->kept_bytes = 0;
	MemoryContextSwitchTo(previous);
}

/* Rows of a table that has no column to send: nothing, or generated ones only. */
static void
send_empty_rows(RowBuffer *buffer)
{
	char *sql = psprintf("INSERT INTO %s SELECT FROM pg_catalog.generate_series(1, " INT64_FORMAT
						 ")",
						 buffer->target->qualified_name, buffer->data_rows);

	send_statement(buffer, sql, BUFFER_INSERT_SENT);
	buffer->data_rows = 0;
	pfree(sql);
}

/* First step: start what is needed to send the rest. */
static void
begin_flush(RowBuffer *buffer)
{
	if (buffer->kept_count > 0)
		send_insert(buffer);
	else if (buffer->encoding && buffer->data.len > 0)
	{
		push_chunk(buffer);
		end_copy(buffer);
	}
	else if (buffer->data_rows > 0)
		send_empty_rows(buffer);
	else if (buffer->state == BUFFER_COPYING)
		end_copy(buffer);
}

/* Apply a step to all buffers of these targets. */
static void
for_all_buffers(List *list, void (*step)(RowBuffer *buffer))
{
	ListCell *lc;

	foreach(lc, list)
	{
		Target *target = lfirst(lc);

		for (int i = 0; i < target->buffer_count; i++)
		{
			if (target->buffers[i] != NULL)
				step(target->buffers[i]);
		}
	}
}

/* False if it is being done already: what it waits for may flush, too. */
static bool
flush_targets(List *list)
{
	static bool flushing = false;

	if (flushing)
		return false;
	flushing = true;
	PG_TRY();
	{
		for_all_buffers(list, begin_flush);
		for_all_buffers(list, complete_statement);
	}
	PG_FINALLY();
	{
		flushing = false;
	}
	PG_END_TRY();
	return true;
}

void
remote_insert_flush(void)
{
	if (insert_context != NULL && flush_targets(targets))
		remote_insert_reset();
}

void
remote_insert_end_nested_statement(void)
{
	List *finished = NIL;
	bool all = true;
	ListCell *lc;

	foreach(lc, targets)
	{
		Target *target = lfirst(lc);

		if (target->depth <= statement_depth || !target->can_refuse)
		{
			all = false;
			continue;
		}
		if (target->has_references)
		{
			remote_insert_flush();
			return;
		}
		finished = lappend(finished, target);
	}
	if (finished == NIL || !flush_targets(finished))
		return;
	if (all)
	{
		remote_insert_reset();
		return;
	}
	foreach(lc, finished)
	{
		Target *target = lfirst(lc);

		targets = list_delete_ptr(targets, target);
		MemoryContextDelete(target->context);
	}
	last_target = NULL;
}

void
remote_insert_reset(void)
{
	if (insert_context != NULL)
		MemoryContextDelete(insert_context);
	insert_context = NULL;
	row_context = NULL;
	targets = NIL;
	last_target = NULL;
}
