/*
 * batch_path.h
 *		For the planner: what a node that works on batches can read.
 *
 * A columnar table, a partition tree of columnar tables or a UNION ALL (a child for each), or a join
 * that is a ColumnarJoin.
 */
#ifndef COLUMNAR_BATCH_PATH_H
#define COLUMNAR_BATCH_PATH_H

#include "compat.h"

#include "nodes/pathnodes.h"

#include "exec/batch/batch_source.h"

/* Copying a row into a batch. */
#define BATCH_COLLECT_COST (0.25 * cpu_tuple_cost)

typedef struct BatchPath
{
	List *paths; /* children: CustomPath; or, where rows are taken too, one Path of any kind */
	/*
	 * For each child NIL; or, of a member of a tree or UNION ALL, integers: the range table index of its
	 * top, then the member's attribute by attribute - 1 of the top, 0 if it has none; negative: the entry
	 * of that number of the member's target list.
	 */
	List *attributes;
	int workers;		/* each process of a parallel query reads its share; 0: reads all */
	double rows;		/* of each process */
	int disabled_nodes; /* always 0 where core adds their cost */
	Cost startup_cost;
	Cost total_cost; /* without making tuples */
} BatchPath;

/*
 * How the columns in `expressions` can be read of the relation by batches; NULL if they
 * cannot.  partial: by the processes of a parallel query, each a share.
 */
extern BatchPath *
batch_path_find(PlannerInfo *root, RelOptInfo *rel, List *expressions, bool partial);

/*
 * Keeps a ColumnarJoin as the way to read a join relation, if it is the cheapest so far: serial,
 * or partial.  The path is no longer the caller's, and must not be given to add_path().
 */
extern void batch_path_offer(RelOptInfo *rel, CustomPath *path);

/* Is each of the children one that a worker of a parallel query can run? */
extern bool batch_path_is_parallel_safe(const BatchPath *batch);

/* What was offered: the cheapest, whose cost is without making tuples; or NULL. */
extern CustomPath *batch_path_offered(RelOptInfo *rel, bool partial);

/* The same of one whose rows are collected, with what that costs. */
extern BatchPath *batch_path_of_collected(Path *path);

/*
 * For a plan: a list of lists as in JOIN_PRIVATE_PROBE.  columns: the Vars that the reader's columns
 * are, NULL for those that are not of this side; attributes: of the BatchPath; plans: the
 * children's, made of its paths.  A plan in the list is replaced if it needs a Result above.
 */
extern List *batch_path_map_columns(const List *columns, const List *attributes, List *plans);

/* Of the path's node, below what core does to name and order its columns. */
extern BatchRole batch_path_role(const Path *path);

#endif
