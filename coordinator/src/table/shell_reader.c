/*
 * shell_reader.c
 *		The rows of a shell, as the access method hands them out.
 *
 * The workers' tables lack the columns that were dropped before the table was
 * distributed, and column numbers differ from node to node.  So the remote SELECT
 * names the live columns, and the values are spread over the shell's row type
 * here, with NULL in dropped columns.  Columns whose binary form is not the same
 * on every node are cast to text (row_format.h); the scan gives Datums either way.
 */
#include "postgres.h"

#include "table/shell_reader.h"

#include "access/parallel.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "cluster/metadata.h"
#include "cluster/relation_name.h"
#include "execute/moved_rows.h"
#include "execute/statement_snapshot.h"
#include "plan/period_cutoff.h"
#include "stream/remote_scan.h"
#include "values/row_format.h"
#include "wire/remote_role.h"

struct ShellReader
{
	Relation relation;
	RemoteScan *scan;			 /* NULL when the shell has no metadata yet */
	TupleTableSlot *live_slot;	 /* the row as sent; NULL when no column is dropped */
	AttrNumber *live_attributes; /* [live_slot's natts]: zero-based column of the shell */
};

/*
 * The row type of the live columns and, in *attributes, their zero-based numbers in
 * the relation.
 */
static TupleDesc
describe_live_columns(TupleDesc full, AttrNumber **attributes)
{
	TupleDesc live;
	int count = 0;

	*attributes = palloc(sizeof(AttrNumber) * Max(full->natts, 1));
	for (int i = 0; i < full->natts; i++)
	{
		if (!TupleDescAttr(full, i)->attisdropped)
			(*attributes)[count++] = i;
	}
	live = CreateTemplateTupleDesc(count);
	for (int i = 0; i < count; i++)
		TupleDescCopyEntry(live, i + 1, full, (*attributes)[i] + 1);
	return live;
}

/* SELECT of the columns of `live` from the relation, or from the part of it that has this name on workers. */
static char *
build_select(Relation relation, TupleDesc live, const char *name, const char *clause)
{
	StringInfoData sql;
	char *condition;

	initStringInfo(&sql);
	appendStringInfoString(&sql, "SELECT");
	for (int i = 0; i < live->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(live, i);

		appendStringInfo(
			&sql, row_format_is_binary(attribute->atttypid) ? "%s %s" : "%s strata.as_text(%s)",
			i == 0 ? "" : ",", quote_identifier(NameStr(attribute->attname)));
	}
	appendStringInfo(&sql, " FROM %s%s%s", name, clause[0] == '\0' ? "" : " ", clause);
	condition = period_cutoff_condition(metadata_table(RelationGetRelid(relation)));
	if (condition[0] != '\0')
		appendStringInfo(&sql, " WHERE %s", condition);
	return sql.data;
}

static ShellReader *
begin_on(const Bitmapset *workers, Relation relation, const char *name, const char *clause)
{
	ShellReader *reader = palloc0(sizeof(ShellReader));
	TupleDesc live;
	RemoteRole caller;

	reader->relation = relation;
	live = describe_live_columns(RelationGetDescr(relation), &reader->live_attributes);
	if (live->natts != RelationGetDescr(relation)->natts)
		reader->live_slot = MakeSingleTupleTableSlot(live, &TTSOpsVirtual);
	caller = remote_role_enter(remote_role_for_relation(relation));
	reader->scan = remote_scan_begin(statement_snapshot_prepare_scan(workers), REMOTE_READ,
									 build_select(relation, live, name, clause), live);
	(void) remote_role_enter(caller);
	return reader;
}

ShellReader *
shell_reader_begin(Relation relation, const char *clause)
{
	const DistributedTable *table = metadata_table(RelationGetRelid(relation));
	ShellReader *reader;

	if (IsParallelWorker())
		elog(ERROR, "a parallel worker cannot read from the workers of table \"%s\"",
			 RelationGetRelationName(relation));
	moved_rows_check_table(RelationGetRelid(relation));
	if (table != NULL)
		return begin_on(metadata_table_workers(table), relation,
						relation_name_qualified(RelationGetRelid(relation)), clause);
	reader = palloc0(sizeof(ShellReader));
	reader->relation = relation;
	return reader;
}

ShellReader *
shell_reader_begin_shard(Relation relation, int worker_id, const char *shard)
{
	return begin_on(bms_make_singleton(worker_id), relation, shard, "");
}

bool
shell_reader_next(ShellReader *reader, TupleTableSlot *slot)
{
	TupleTableSlot *live = reader->live_slot;

	ExecClearTuple(slot);
	if (reader->scan == NULL)
		return false;

	if (live == NULL)
	{
		if (!remote_scan_next(reader->scan, slot))
			return false;
	}
	else
	{
		if (!remote_scan_next(reader->scan, live))
			return false;
		slot_getallattrs(live);
		memset(slot->tts_isnull, true, sizeof(bool) * slot->tts_tupleDescriptor->natts);
		for (int i = 0; i < live->tts_tupleDescriptor->natts; i++)
		{
			slot->tts_values[reader->live_attributes[i]] = live->tts_values[i];
			slot->tts_isnull[reader->live_attributes[i]] = live->tts_isnull[i];
		}
		ExecStoreVirtualTuple(slot);
	}
	slot->tts_tableOid = RelationGetRelid(reader->relation);
	return true;
}

void
shell_reader_end(ShellReader *reader)
{
	if (reader->scan != NULL)
		remote_scan_end(reader->scan);
	if (reader->live_slot != NULL)
		ExecDropSingleTupleTableSlot(reader->live_slot);
}
