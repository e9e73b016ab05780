/*
 * constraint.c
 *		Constraints out of the catalog, and the tables and columns of foreign keys.
 */
#include "postgres.h"

#include "cluster/constraint.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_constraint.h"
#include "utils/fmgroids.h"
#include "utils/syscache.h"

HeapTuple
constraint_get(Oid constraint)
{
	HeapTuple tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for constraint %u", constraint);
	return tuple;
}

static int
compare_constraints(const ListCell *a, const ListCell *b)
{
	Oid one = ((Form_pg_constraint) GETSTRUCT((HeapTuple) lfirst(a)))->oid;
	Oid other = ((Form_pg_constraint) GETSTRUCT((HeapTuple) lfirst(b)))->oid;

	return one < other ? -1 : one > other;
}

List *
constraint_list(Oid relation)
{
	Relation catalog = table_open(ConstraintRelationId, AccessShareLock);
	List *tuples = NIL;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;

	ScanKeyInit(&key, Anum_pg_constraint_conrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relation));
	scan = systable_beginscan(catalog, ConstraintRelidTypidNameIndexId, true, NULL, 1, &key);
	while ((tuple = systable_getnext(scan)) != NULL)
		tuples = lappend(tuples, heap_copytuple(tuple));
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	list_sort(tuples, compare_constraints);
	return tuples;
}

ForeignKeyTables
constraint_key_tables(Oid constraint)
{
	HeapTuple tuple = constraint_get(constraint);
	Form_pg_constraint form = (Form_pg_constraint) GETSTRUCT(tuple);
	ForeignKeyTables tables = {form->conrelid, form->confrelid};

	ReleaseSysCache(tuple);
	return tables;
}

ForeignKeyColumns
constraint_key_columns(HeapTuple constraint)
{
	ForeignKeyColumns columns;
	Oid operators[3][INDEX_MAX_KEYS];

	DeconstructFkConstraintRow(constraint, &columns.count, columns.referencing, columns.referenced,
							   operators[0], operators[1], operators[2], &columns.set_count,
							   columns.set);
	return columns;
}
