/*
 * constraint.h
 *		Constraints out of the catalog, and the tables and columns of foreign keys.
 */
#ifndef STRATA_CONSTRAINT_H
#define STRATA_CONSTRAINT_H

#include "postgres.h"

#include "access/attnum.h"
#include "access/htup.h"
#include "nodes/pg_list.h"

typedef struct ForeignKeyTables
{
	Oid referencing;
	Oid referenced;
} ForeignKeyTables;

/* In pairs: referencing[i] is compared with referenced[i]. */
typedef struct ForeignKeyColumns
{
	int count;
	AttrNumber referencing[INDEX_MAX_KEYS];
	AttrNumber referenced[INDEX_MAX_KEYS];
	int set_count; /* of those that ON DELETE SET NULL or SET DEFAULT names */
	AttrNumber set[INDEX_MAX_KEYS];
} ForeignKeyColumns;

/* The constraint's tuple, to be released by ReleaseSysCache(). */
extern HeapTuple constraint_get(Oid constraint);

/*
 * The relation's constraints as copies of their tuples, in the order in which they were made: made
 * so on the workers, a row that violates several is reported for the same one as here.
 */
extern List *constraint_list(Oid relation);

extern ForeignKeyTables constraint_key_tables(Oid constraint);

/* Of a pg_constraint tuple. */
extern ForeignKeyColumns constraint_key_columns(HeapTuple constraint);

#endif
