/*
 * tree_plan.h
 *		For the planner: partition trees that are scanned as one relation.
 */
#ifndef COLUMNAR_TREE_PLAN_H
#define COLUMNAR_TREE_PLAN_H

#include "compat.h"

#include "nodes/pathnodes.h"
#include "utils/rel.h"

/* A tree that is taken for one relation, as its RelOptInfo stands for it. */
typedef struct PlannedTree
{
	List *leaves; /* oids of those that the conditions leave; known from tree_plan_prepare() on */
	double share; /* the leaves' rows, of those of the whole tree */
	Oid largest;  /* of the leaves */
	Oid *parents; /* partitioned tables below the top */
	int nparents;
	Oid sample;			 /* the largest leaf of all when last analysed; InvalidOid: none was */
	Bitmapset *by_range; /* attributes whose values differ from leaf to leaf */
} PlannedTree;

/* Installs hooks; called by _PG_init(). */
extern void tree_plan_initialize(void);

/* The tree that the relation stands for; NULL if it is none. */
extern PlannedTree *tree_plan_find(RelOptInfo *rel);

/*
 * From set_rel_pathlist_hook, before anything else is made of the relation: its
 * sizes, with what the conditions exclude; removes core's paths.  False if nothing is to be read.
 */
extern bool tree_plan_prepare(PlannerInfo *root, RelOptInfo *rel, Relation relation);

/* The finished plan depends on all of the tree. */
extern void tree_plan_add_dependencies(PlannerInfo *root, const PlannedTree *tree);

#endif
