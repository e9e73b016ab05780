/*
 * copy_stream.c
 *		Rows of one table into its copy, or a part of it, on one worker: COPY as the table's owner.
 *
 * Administrators send rows of others' tables so (strata.add_worker(), strata.move_shard()): functions in CHECK, domains and
 * indexes are the owner's, and run with the owner's rights (worker/src/copy_rows.c).
 */
#include "postgres.h"

#include "stream/copy_stream.h"

#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "transaction/remote_transaction.h"
#include "values/row_format.h"

/* Rows are collected up to this many bytes before they are sent. */
#define CHUNK_BYTES (64 * 1024)

struct CopyStream
{
	WorkerConnection *conn;
	RowEncoder *encoder;
	char *sql; /* for messages */
	StringInfoData buffer;
	MemoryContext row_context;
};

static char *
build_command(Relation relation, const char *target, const RowEncoder *encoder)
{
	TupleDesc desc = RelationGetDescr(relation);
	StringInfoData sql;
	const char *separator = "";

	initStringInfo(&sql);
	appendStringInfo(&sql, "CALL strata_worker.copy_rows(%s::pg_catalog.regclass, ARRAY[",
					 quote_literal_cstr(target));
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		if (column->attisdropped || column->attgenerated != '\0')
			continue;
		appendStringInfo(&sql, "%s%s", separator, quote_literal_cstr(NameStr(column->attname)));
		separator = ", ";
	}
	appendStringInfo(&sql, "]::pg_catalog.text[], '%s')",
					 row_encoder_is_binary(encoder) ? "binary" : "text");
	return sql.data;
}

CopyStream *
copy_stream_begin(int worker_id, Relation relation, const char *target)
{
	RowEncoder *encoder = row_encoder_create(RelationGetDescr(relation), CurrentMemoryContext);
	CopyStream *stream;
	PGresult *result;

	if (row_encoder_column_count(encoder) == 0)
		return NULL;
	stream = palloc0(sizeof(CopyStream));
	stream->encoder = encoder;
	stream->conn = connection_open(worker_id);
	stream->sql = build_command(relation, target, encoder);
	stream->row_context = AllocSetContextCreate(CurrentMemoryContext, "strata copied row",
												ALLOCSET_DEFAULT_SIZES);
	initStringInfo(&stream->buffer);
	remote_transaction_send(stream->conn, REMOTE_WRITE, stream->sql);
	result = connection_get_result(stream->conn);
	if (result == NULL || PQresultStatus(result) != PGRES_COPY_IN)
		connection_report(ERROR, stream->conn, result, stream->sql);
	PQclear(result);
	row_encoder_begin(encoder, &stream->buffer);
	return stream;
}

/* Hand what is collected to libpq and wait until the kernel has taken it. */
static void
send_chunk(CopyStream *stream)
{
	WorkerConnection *conn = stream->conn;
	int pending;

	if (PQputCopyData(conn->pg, stream->buffer.data, stream->buffer.len) != 1)
		connection_report(ERROR, conn, NULL, stream->sql);
	while ((pending = PQflush(conn->pg)) > 0)
		connection_wait_any(&conn, 1);
	if (pending < 0)
		connection_report(ERROR, conn, NULL, stream->sql);
	resetStringInfo(&stream->buffer);
}

void
copy_stream_row(CopyStream *stream, TupleTableSlot *slot)
{
	MemoryContext caller = MemoryContextSwitchTo(stream->row_context);

	CHECK_FOR_INTERRUPTS();
	slot_getallattrs(slot);
	row_encoder_append(stream->encoder, &stream->buffer, slot->tts_values, slot->tts_isnull);
	MemoryContextSwitchTo(caller);
	MemoryContextReset(stream->row_context);
	if (stream->buffer.len >= CHUNK_BYTES)
		send_chunk(stream);
}

void
copy_stream_end(CopyStream *stream)
{
	PGresult *result;

	row_encoder_end(stream->encoder, &stream->buffer);
	if (stream->buffer.len > 0)
		send_chunk(stream);
	if (PQputCopyEnd(stream->conn->pg, NULL) != 1)
		connection_report(ERROR, stream->conn, NULL, stream->sql);
	while ((result = connection_get_result(stream->conn)) != NULL)
	{
		if (PQresultStatus(result) != PGRES_COMMAND_OK)
			connection_report(ERROR, stream->conn, result, stream->sql);
		PQclear(result);
	}
	MemoryContextDelete(stream->row_context);
	pfree(stream->buffer.data);
}
