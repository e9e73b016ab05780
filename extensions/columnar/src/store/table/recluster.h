/*
 * recluster.h
 *		All rows of a table in another order: for relation_rewrite.c.
 */
#ifndef COLUMNAR_RECLUSTER_H
#define COLUMNAR_RECLUSTER_H

#include "postgres.h"

#include "executor/tuptable.h"
#include "utils/rel.h"
#include "utils/tuplesort.h"

typedef void (*ReclusterPut)(Tuplesortstate *sort, TupleTableSlot *row);

/* Give every row that is visible now to the sort. */
extern void recluster_read_rows(Relation relation, Tuplesortstate *sort, ReclusterPut put);

/* Delete all row groups and vectors, for this transaction: nobody else can write now. */
extern void recluster_delete_groups(Relation relation);

#endif
