/*
 * numbered_column.c
 *		ADD COLUMN of a column that numbers the rows, from a sequence of its own.
 *
 * The coordinator reserves as many values as there are rows, and each worker numbers its rows from a share.
 */
#include "postgres.h"

#include "ddl/numbered_column.h"

#include "access/htup_details.h"
#include "catalog/dependency.h"
#include "catalog/pg_sequence.h"
#include "commands/defrem.h"
#include "commands/sequence.h"
#include "common/int.h"
#include "nodes/primnodes.h"
#include "rewrite/rewriteHandler.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "cluster/metadata.h"
#include "cluster/relation_name.h"
#include "stream/remote_command.h"
#include "stream/remote_ddl.h"
#include "table/worker_table_sql.h"
#include "values/row_format.h"

/* The sequence from which a default draws and that belongs to the column, InvalidOid if it is something else. */
static Oid
find_own_sequence(Relation relation, AttrNumber attribute, Node *expression)
{
	Oid sequence = InvalidOid;
	Oid owner;
	int32 column;

	while (IsA(expression, FuncExpr) && ((FuncExpr *) expression)->funcid != F_NEXTVAL &&
		   list_length(((FuncExpr *) expression)->args) == 1)
		expression = linitial(((FuncExpr *) expression)->args); /* a cast */
	if (IsA(expression, NextValueExpr))
		return ((NextValueExpr *) expression)->seqid;
	if (IsA(expression, FuncExpr) && ((FuncExpr *) expression)->funcid == F_NEXTVAL &&
		IsA(linitial(((FuncExpr *) expression)->args), Const))
		sequence = DatumGetObjectId(
			linitial_node(Const, ((FuncExpr *) expression)->args)->constvalue);
	if (OidIsValid(sequence) && sequenceIsOwned(sequence, DEPENDENCY_AUTO, &owner, &column) &&
		owner == RelationGetRelid(relation) && column == attribute)
		return sequence;
	return InvalidOid;
}

bool
numbered_column_is(Relation relation, AttrNumber attribute)
{
	Node *expression;

	if (TupleDescAttr(RelationGetDescr(relation), attribute - 1)->attgenerated != '\0')
		return false;
	expression = build_column_default(relation, attribute);
	return expression != NULL && OidIsValid(find_own_sequence(relation, attribute, expression));
}

/* Take `count` values at once; returns the first, and *increment.  ERROR when there are too few, as for nextval(). */
static int64
reserve_values(Oid sequence, int64 count, int64 *increment)
{
	HeapTuple tuple = SearchSysCache1(SEQRELID, ObjectIdGetDatum(sequence));
	FormData_pg_sequence form;
	int64 first;
	int64 span;
	int64 last;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for sequence %u", sequence);
	form = *(Form_pg_sequence) GETSTRUCT(tuple);
	ReleaseSysCache(tuple);
	*increment = form.seqincrement;

	first = nextval_internal(sequence, false);
	if (pg_mul_s64_overflow(form.seqincrement, count - 1, &span) ||
		pg_add_s64_overflow(first, span, &last) || last > form.seqmax || last < form.seqmin)
		ereport(ERROR, (errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
						errmsg("sequence \"%s\" has too few values for the rows of the table",
							   get_rel_name(sequence)),
						errdetail("The table has " INT64_FORMAT
								  " rows, and the values are between " INT64_FORMAT
								  " and " INT64_FORMAT ".",
								  count, form.seqmin, form.seqmax)));
	if (count > 1)
		DirectFunctionCall2(setval_oid, ObjectIdGetDatum(sequence), Int64GetDatum(last));
	return first;
}

void
numbered_column_add(Relation relation, AttrNumber attribute)
{
	const Bitmapset *workers = metadata_all_workers();
	int count = bms_num_members(workers);
	int *worker_ids = palloc(count * sizeof(int));
	int64 *rows = palloc(count * sizeof(int64));
	char **sqls = palloc(count * sizeof(char *));
	char *table = relation_name_qualified(RelationGetRelid(relation));
	char *column = NameStr(TupleDescAttr(RelationGetDescr(relation), attribute - 1)->attname);
	char *helper = quote_qualified_identifier(
		get_namespace_name(RelationGetNamespace(relation)),
		makeObjectName(RelationGetRelationName(relation), column, "strata"));
	Oid sequence = find_own_sequence(relation, attribute,
									 build_column_default(relation, attribute));
	int64 increment = 1;
	int64 total = 0;
	int64 first;
	int level = row_format_enter_sql_mode();
	char *definition = worker_table_sql_column(relation, attribute);
	int worker = -1;

	row_format_leave_sql_mode(level);
	for (int i = 0; (worker = bms_next_member(workers, worker)) >= 0; i++)
	{
		worker_ids[i] = worker;
		rows[i] = strtoi64(
			remote_command_fetch(worker, psprintf("SELECT pg_catalog.count(*) FROM %s", table)),
			NULL, 10);
		total += rows[i];
	}
	first = total > 0 ? reserve_values(sequence, total, &increment) : 1;
	for (int i = 0; i < count; i++)
	{
		sqls[i] = psprintf("CREATE SEQUENCE %s INCREMENT " INT64_FORMAT " MINVALUE " INT64_FORMAT
						   " MAXVALUE " INT64_FORMAT " START " INT64_FORMAT
						   "; ALTER TABLE %s ADD COLUMN %s DEFAULT pg_catalog.nextval(%s)"
						   "; ALTER TABLE %s ALTER COLUMN %s DROP DEFAULT; DROP SEQUENCE %s",
						   helper, increment, PG_INT64_MIN, PG_INT64_MAX, first, table, definition,
						   quote_literal_cstr(helper), table, quote_identifier(column), helper);
		first += rows[i] * increment;
	}
	remote_ddl_note_change();
	(void) remote_command_run_each(worker_ids, sqls, count, REMOTE_WRITE);
}
