/*
 * foreign_key.c
 *		The columns of a foreign key, out of the catalog.
 */
#include "postgres.h"

#include "cluster/foreign_key.h"

#include "catalog/pg_constraint.h"
#include "utils/syscache.h"

HeapTuple
foreign_key_get(Oid constraint)
{
	HeapTuple tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for constraint %u", constraint);
	return tuple;
}

ForeignKeyColumns
foreign_key_columns(HeapTuple constraint)
{
	ForeignKeyColumns columns;
	Oid operators[3][INDEX_MAX_KEYS];

	DeconstructFkConstraintRow(constraint, &columns.count, columns.referencing, columns.referenced,
							   operators[0], operators[1], operators[2], &columns.set_count,
							   columns.set);
	return columns;
}
