/*
 * shard_statistics.c
 *		Statistics of a distributed table for its shards.
 *
 * ANALYZE makes a distributed table's statistics here, from a sample of all workers' rows.  They hold for each
 * shard, because a hash divides the rows: so they are sent to the workers, which analyse nothing but what a sample of all nodes
 * cannot tell (worker/src/shard_statistics.c).  It is done when ANALYZE has ended (ddl/maintenance.c): no hook is called when
 * pg_statistic is written.
 *
 * The other way come the numbers of rows that VACUUM has counted there.
 *
 * Values travel as text, and operators, types and collations by their names, as whatever else differs in its OID.  The
 * types' output functions run as the table's owner, restricted, as all code does in ANALYZE.
 */
#include "postgres.h"

#include "table/shard_statistics.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "compat.h"
#include "cluster/relation_name.h"
#include "stream/remote_command.h"
#include "stream/remote_scan.h"
#include "values/row_format.h"
#include "wire/remote_role.h"

bool
shard_statistics_are_alike(Relation relation, const DistributedTable *table)
{
	ListCell *cell;
	bool alike = !metadata_has_periods(table);

	foreach(cell, RelationGetIndexList(relation))
	{
		Relation index = index_open(lfirst_oid(cell), AccessShareLock);

		alike &= RelationGetIndexExpressions(index) == NIL;
		index_close(index, AccessShareLock);
	}
	return alike;
}

/* "name":[...], of the slots' texts; NULL is null. */
static void
append_texts(StringInfo json, const char *name, char *const *texts)
{
	appendStringInfo(json, ",\"%s\":[", name);
	for (int i = 0; i < STATISTIC_NUM_SLOTS; i++)
	{
		if (i > 0)
			appendStringInfoChar(json, ',');
		if (texts[i] == NULL)
			appendStringInfoString(json, "null");
		else
			escape_json(json, texts[i]);
	}
	appendStringInfoChar(json, ']');
}

static char *
get_name(PGFunction output, Datum object)
{
	return OidIsValid(DatumGetObjectId(object))
			   ? DatumGetCString(DirectFunctionCall1(output, object))
			   : NULL;
}

/* One column's row of pg_statistic. */
static void
append_column(StringInfo json, HeapTuple tuple, const char *column)
{
	Form_pg_statistic row = (Form_pg_statistic) GETSTRUCT(tuple);
	const int16 *kinds = &row->stakind1;
	const Oid *operators = &row->staop1;
	const Oid *collations = &row->stacoll1;
	char *texts[5][STATISTIC_NUM_SLOTS] = {0};

	appendStringInfo(json, "%s{\"name\":", json->len == 1 ? "" : ",");
	escape_json(json, column);
	appendStringInfo(json, ",\"nulls\":%.9g,\"width\":%d,\"distincts\":%.9g,\"kinds\":[",
					 row->stanullfrac, row->stawidth, row->stadistinct);
	for (int i = 0; i < STATISTIC_NUM_SLOTS; i++)
	{
		bool isnull;
		Datum numbers = SysCacheGetAttr(STATRELATTINH, tuple, Anum_pg_statistic_stanumbers1 + i,
										&isnull);

		appendStringInfo(json, "%s%d", i > 0 ? "," : "", kinds[i]);
		texts[0][i] = get_name(regoperatorout, ObjectIdGetDatum(operators[i]));
		texts[1][i] = get_name(regcollationout, ObjectIdGetDatum(collations[i]));
		if (!isnull)
			texts[2][i] = OidOutputFunctionCall(F_ARRAY_OUT, numbers);
		numbers = SysCacheGetAttr(STATRELATTINH, tuple, Anum_pg_statistic_stavalues1 + i, &isnull);
		if (isnull)
			continue;
		texts[3][i] = get_name(regtypeout,
							   ObjectIdGetDatum(ARR_ELEMTYPE(DatumGetArrayTypeP(numbers))));
		texts[4][i] = OidOutputFunctionCall(F_ARRAY_OUT, numbers);
	}
	appendStringInfoChar(json, ']');
	append_texts(json, "operators", texts[0]);
	append_texts(json, "collations", texts[1]);
	append_texts(json, "numbers", texts[2]);
	append_texts(json, "types", texts[3]);
	append_texts(json, "most", texts[4]);
	appendStringInfoChar(json, '}');
}

/* All columns that have statistics, as an array. */
static char *
format_statistics(Relation relation)
{
	StringInfoData json;
	int settings = row_format_enter_sql_mode();

	initStringInfo(&json);
	appendStringInfoChar(&json, '[');
	for (int i = 0; i < RelationGetNumberOfAttributes(relation); i++)
	{
		Form_pg_attribute column = TupleDescAttr(RelationGetDescr(relation), i);
		HeapTuple tuple;

		if (column->attisdropped)
			continue;
		tuple = SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(RelationGetRelid(relation)),
								Int16GetDatum(i + 1), BoolGetDatum(false));
		if (!HeapTupleIsValid(tuple))
			continue;
		append_column(&json, tuple, NameStr(column->attname));
		ReleaseSysCache(tuple);
	}
	appendStringInfoChar(&json, ']');
	row_format_leave_sql_mode(settings);
	return json.data;
}

double
shard_statistics_sum(const Bitmapset *workers, RemoteAccess access, const char *sql)
{
	TupleDesc desc = CreateTemplateTupleDesc(1);
	TupleTableSlot *slot;
	RemoteScan *scan;
	double sum = 0;

	TupleDescInitEntry(desc, 1, "sum", FLOAT8OID, -1, 0);
	compat_finish_descriptor(desc);
	slot = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	scan = remote_scan_begin(remote_transaction_ready_all(workers), access, sql, desc);
	while (remote_scan_next(scan, slot))
	{
		bool null;
		Datum value = slot_getattr(slot, 1, &null);

		if (!null)
			sum += DatumGetFloat8(value);
	}
	remote_scan_end(scan);
	ExecDropSingleTupleTableSlot(slot);
	return sum;
}

double
shard_statistics_rows(Relation relation, const DistributedTable *table)
{
	const char *name = relation_name_qualified(RelationGetRelid(relation));

	return shard_statistics_sum(
		metadata_table_workers(table), REMOTE_READ,
		psprintf("SELECT sum(c.reltuples)::pg_catalog.float8"
				 " FROM pg_catalog.pg_partition_tree(%s::pg_catalog.regclass) p"
				 " JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) p.relid"
				 " WHERE p.isleaf AND c.reltuples OPERATOR(pg_catalog.>) 0",
				 quote_literal_cstr(name)));
}

void
shard_statistics_send(Oid relation_oid)
{
	const DistributedTable *table = metadata_table(relation_oid);
	Relation relation = relation_open(relation_oid, NoLock);
	int settings = NewGUCNestLevel();
	RemoteRole owner = {relation->rd_rel->relowner, SECURITY_RESTRICTED_OPERATION};
	RemoteRole caller = remote_role_enter(owner);

	if (shard_statistics_are_alike(relation, table) && !bms_is_empty(metadata_table_workers(table)))
	{
		char *columns = format_statistics(relation);

		(void) remote_role_enter(remote_role_for_relation(relation));
		remote_command_run(metadata_table_workers(table), REMOTE_WRITE,
						   psprintf("SELECT strata_worker.set_statistics(%s, %.0f, %s)",
									quote_literal_cstr(relation_name_qualified(relation_oid)),
									Max(relation->rd_rel->reltuples, 0),
									quote_literal_cstr(columns)));
	}
	(void) remote_role_enter(caller);
	AtEOXact_GUC(false, settings);
	relation_close(relation, NoLock);
}
