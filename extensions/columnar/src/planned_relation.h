/*
 * planned_relation.h
 *		For the planner: what is remembered of a relation while a query is planned.
 */
#ifndef COLUMNAR_PLANNED_RELATION_H
#define COLUMNAR_PLANNED_RELATION_H

#include "compat.h"

#include "nodes/pathnodes.h"

struct BatchPath;

/* Of a table or a join; [0] serial, [1] partial. */
typedef struct PlannedRelation
{
	CustomPath *joins[2]; /* batch_path.c: the cheapest ColumnarJoin */
	bool is_read[2];	  /* batch_path.c: is tables[] known? */
	Bitmapset *columns[2];
	struct BatchPath *tables[2]; /* with these columns */
	double rows_max;			 /* join_risk.c: 0 if not known */
} PlannedRelation;

/* NULL if nothing is remembered. */
extern PlannedRelation *planned_relation_find(RelOptInfo *rel);

/* Made if there is none; all zero at first. */
extern PlannedRelation *planned_relation_get(RelOptInfo *rel);

#endif
