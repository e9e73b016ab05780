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
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "compat.h"
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
	RemoteScan *scan;		   /* NULL when the shell has no metadata yet */
	TupleTableSlot *live_slot; /* the row as sent; NULL when that is the shell's */
	AttrNumber
		*live_attributes; /* [columns that are not dropped]: zero-based column of the shell */
	bool numbered;		  /* behind these, live_slot has the row's number */
};

/*
 * The row type of the live columns, maybe with a row number behind them, and, in *attributes, their zero-based numbers in
 * the relation.
 */
static TupleDesc
describe_live_columns(TupleDesc full, AttrNumber **attributes, bool numbered)
{
	TupleDesc live;
	int count = 0;

	*attributes = palloc(sizeof(AttrNumber) * Max(full->natts, 1));
	for (int i = 0; i < full->natts; i++)
	{
		if (!TupleDescAttr(full, i)->attisdropped)
			(*attributes)[count++] = i;
	}
	live = CreateTemplateTupleDesc(numbered ? count + 1 : count);
	for (int i = 0; i < count; i++)
		TupleDescCopyEntry(live, i + 1, full, (*attributes)[i] + 1);
	if (numbered)
		TupleDescInitEntry(live, count + 1, "row_number", INT8OID, -1, 0);
	compat_finish_descriptor(live);
	return live;
}

/* SELECT of the columns of `live`, and what follows it. */
static char *
build_select(TupleDesc live, bool numbered, const char *rest)
{
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfoString(&sql, "SELECT");
	for (int i = 0; i < live->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(live, i);

		if (i > 0)
			appendStringInfoChar(&sql, ',');
		if (numbered && i == live->natts - 1)
			appendStringInfoString(&sql, " strata_columnar.row_number(ctid)");
		else
			appendStringInfo(
				&sql, row_format_is_binary(attribute->atttypid) ? " %s" : " strata.as_text(%s)",
				quote_identifier(NameStr(attribute->attname)));
	}
	appendStringInfo(&sql, " FROM %s", rest);
	return sql.data;
}

/* `snapshot`: that of one worker, with the rows' numbers; NULL: new ones of these workers */
static ShellReader *
begin_on(const Bitmapset *workers, KeptSnapshot *snapshot, Relation relation, const char *rest)
{
	ShellReader *reader = palloc0(sizeof(ShellReader));
	TupleDesc live;
	RemoteRole caller;

	reader->relation = relation;
	reader->numbered = snapshot != NULL;
	live = describe_live_columns(RelationGetDescr(relation), &reader->live_attributes,
								 reader->numbered);
	if (live->natts != RelationGetDescr(relation)->natts || reader->numbered)
		reader->live_slot = MakeSingleTupleTableSlot(live, &TTSOpsVirtual);
	caller = remote_role_enter(remote_role_for_relation(relation));
	reader->scan = remote_scan_begin(snapshot != NULL ? statement_snapshot_prepare_kept(snapshot)
													  : statement_snapshot_prepare_scan(workers),
									 REMOTE_READ, build_select(live, reader->numbered, rest), live);
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
	{
		char *condition = period_cutoff_condition(table);

		return begin_on(metadata_table_workers(table), NULL, relation,
						psprintf("%s %s%s%s", relation_name_qualified(RelationGetRelid(relation)),
								 clause, condition[0] == '\0' ? "" : " WHERE ", condition));
	}
	reader = palloc0(sizeof(ShellReader));
	reader->relation = relation;
	return reader;
}

ShellReader *
shell_reader_begin_part(Relation relation, KeptSnapshot *snapshot, const char *part,
						const char *condition)
{
	return begin_on(
		NULL, snapshot, relation,
		psprintf("ONLY %s%s%s", part, condition[0] == '\0' ? "" : " WHERE ", condition));
}

int64
shell_reader_row_number(const ShellReader *reader)
{
	TupleTableSlot *live = reader->live_slot;

	Assert(reader->numbered);
	return DatumGetInt64(live->tts_values[live->tts_tupleDescriptor->natts - 1]);
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
		for (int i = 0; i < live->tts_tupleDescriptor->natts - (reader->numbered ? 1 : 0); i++)
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
