/*
 * aggregate_path.h
 *		For the planner: rows that are to be grouped, and paths for that.
 *
 *		aggregate_plan.c	which queries, the paths of one grouping, the plan
 *		aggregate_sets.c	GROUPING SETS, ROLLUP, CUBE
 *		aggregate_key_cost.c	computing keys
 *		aggregate_summary_plan.c	what metadata answer, of a grouping without keys
 */
#ifndef COLUMNAR_AGGREGATE_PATH_H
#define COLUMNAR_AGGREGATE_PATH_H

#include "exec/aggregate/aggregate.h"

#include "nodes/pathnodes.h"

typedef struct AggregateQuery
{
	PlannerInfo *root;
	RelOptInfo *input;
	RelOptInfo *grouped;
	GroupPathExtraData *extra;
	List *clauses;		/* GROUP BY or DISTINCT, without redundant ones */
	List *pathkeys;		/* for sorting by these */
	PathTarget *target; /* what core wants of the groups */
	/* what follows is found out */
	PathTarget *partial; /* what the node returns: keys, states */
	List *results;		 /* the same with results in the place of states */
	bool only_whole;	 /* an aggregate cannot be split */
} AggregateQuery;

/*
 * Adds the paths of a grouping by query->clauses to query->grouped, if there are any.  What is set
 * in *query: all up to `target`.
 */
extern void aggregate_add_paths(AggregateQuery *query);

/* Of computing the keys of a row. */
extern Cost aggregate_key_cost(const AggregateQuery *query);

/* The part of the input that has to be read because metadata do not say enough: 0 .. 1. */
extern double aggregate_summary_share(const AggregateQuery *query);

/* The same of the query's grouping sets. */
extern void aggregate_sets_add_paths(AggregateQuery *query);

#endif
