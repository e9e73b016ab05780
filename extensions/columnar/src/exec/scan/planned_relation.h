/*
 * planned_relation.h
 *		For the planner: what is remembered of a relation while a query is planned.
 */
#ifndef COLUMNAR_PLANNED_RELATION_H
#define COLUMNAR_PLANNED_RELATION_H

#include "compat.h"

#include "nodes/pathnodes.h"

struct BatchPath;
struct PlannedTree;

/* Of a table or a join; [0] serial, [1] partial. */
typedef struct PlannedRelation
{
	CustomPath *joins[2]; /* batch_path.c: the cheapest ColumnarJoin */
	bool is_read[2];	  /* batch_path.c: is tables[] known? */
	Bitmapset *columns[2];
	struct BatchPath *tables[2]; /* with these columns */
	double rows_max;			 /* join_risk.c: 0 if not known */
	double rows_likely;			 /* join_risk.c: where core's estimate says nothing; else 0 */
	double *shares;				 /* custom_scan_cost.c: see ScanFacts; NULL: not known */
	double groups;
	struct PlannedTree *tree; /* tree_plan.c: it is a partition tree, scanned as one relation */
} PlannedRelation;

/* NULL if nothing is remembered. */
extern PlannedRelation *planned_relation_find(RelOptInfo *rel);

/* Made if there is none; all zero at first. */
extern PlannedRelation *planned_relation_get(RelOptInfo *rel);

#endif
