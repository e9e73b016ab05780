/*
 * foreign_key.h
 *		The columns of a foreign key, out of the catalog.
 */
#ifndef STRATA_FOREIGN_KEY_H
#define STRATA_FOREIGN_KEY_H

#include "postgres.h"

#include "access/attnum.h"
#include "access/htup.h"

/* In pairs: referencing[i] is compared with referenced[i]. */
typedef struct ForeignKeyColumns
{
	int count;
	AttrNumber referencing[INDEX_MAX_KEYS];
	AttrNumber referenced[INDEX_MAX_KEYS];
	int set_count; /* of those that ON DELETE SET NULL or SET DEFAULT names */
	AttrNumber set[INDEX_MAX_KEYS];
} ForeignKeyColumns;

/* Of a pg_constraint tuple. */
extern ForeignKeyColumns foreign_key_columns(HeapTuple constraint);

/* The constraint's tuple, to be released by ReleaseSysCache(). */
extern HeapTuple foreign_key_get(Oid constraint);

#endif
