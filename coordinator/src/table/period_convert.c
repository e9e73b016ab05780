/*
 * period_convert.c
 *		A table that is partitioned on the coordinator, on its way to becoming distributed.
 *
 * Its shards will be divided on the workers, so here it is replaced by a table without partitions first
 * (strata.flatten_partitioned_table()), in the same transaction: should anything fail, it is what it was.
 * If pg_partman maintained it here, column, interval and retention are taken from there unless they are
 * given, and pg_partman forgets it.
 */
#include "postgres.h"

#include "table/period_convert.h"

#include "catalog/pg_class.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "relation_owner.h"

static void
refuse(Oid relation, const char *detail, const char *hint)
{
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("table \"%s\" cannot be a distributed table", get_rel_name(relation)),
					errdetail("%s", detail), hint != NULL ? errhint("%s", hint) : 0));
}

/* The only row of a query about the relation, as `count` texts or NULLs in the caller's memory; false if none. */
static bool
fetch_row(const char *function, Oid relation, char **values, int count)
{
	MemoryContext caller = CurrentMemoryContext;
	bool found;

	SPI_connect();
	if (SPI_execute(psprintf("SELECT * FROM %s(%u)", function, relation), false, 1) !=
		SPI_OK_SELECT)
		elog(ERROR, "could not call %s()", function);
	found = SPI_processed == 1;
	for (int i = 0; i < count; i++)
	{
		char *value = found ? SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1)
							: NULL;

		values[i] = value != NULL ? MemoryContextStrdup(caller, value) : NULL;
	}
	SPI_finish();
	return found;
}

/* What pg_partman knows of the table stands for arguments that are not given. */
static void
complete_request(Oid relation, PeriodRequest *request)
{
	char *values[4];

	if (!fetch_row("strata.partman_rule", relation, values, lengthof(values)))
		return;
	if (request->column == NULL && request->interval == NULL)
	{
		request->column = values[0];
		request->interval = values[1];
		if (request->unit == NULL)
			request->unit = values[3];
	}
	if (request->retention == NULL)
		request->retention = values[2];
}

Oid
period_convert_partitioned(Oid relation, PeriodRequest *request)
{
	char *value;

	if (get_rel_relkind(relation) != RELKIND_PARTITIONED_TABLE)
		return relation;
	lock_own_relation(relation, AccessExclusiveLock);
	complete_request(relation, request);
	if (request->column == NULL || request->interval == NULL)
		refuse(relation, "It is partitioned on the coordinator.",
			   "Say with partition_by and partition_interval how its shards shall be divided.");
	(void) fetch_row("strata.flatten_obstacle", relation, &value, 1);
	if (value != NULL)
		refuse(relation, value, "Drop that first, and create it again afterwards.");
	(void) fetch_row("strata.partman_forget", relation, &value, 1);
	(void) fetch_row("strata.flatten_partitioned_table", relation, &value, 1);
	return DatumGetObjectId(DirectFunctionCall1(regclassin, CStringGetDatum(value)));
}
