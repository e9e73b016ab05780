/*
 * sort.h
 *		ORDER BY by batches: the node ColumnarSort.
 *
 *		sort_plan.c		which queries get it, and its paths
 *		sort_exec.c		the node
 *		sort_order.c	rows of a store in the order of their keys
 *		sort_first.c	which rows can be among the first of their partition, if no others are wanted
 *		sort_merge.c	sorted rows in files, if they do not fit into memory
 *		sort_key.c		values of keys and their order; shared with other nodes
 *		sort_explain.c	what EXPLAIN says about the node
 */
#ifndef COLUMNAR_SORT_H
#define COLUMNAR_SORT_H

#include "compat.h"

#include "nodes/extensible.h"
#include "nodes/pathnodes.h"

/*
 * The plan.  custom_scan_tlist: the columns (Vars) that the node reads; a column's number is its
 * resno.  custom_exprs: the sort keys, in terms of these.  custom_private is a list of:
 */
typedef enum SortPrivate
{
	SORT_PRIVATE_COLUMNS,	/* for each child: integers, its column by column - 1 of the node */
	SORT_PRIVATE_OPERATORS, /* OIDs, for each key */
	SORT_PRIVATE_NULLS,		/* integers: do NULLs come first? */
	SORT_PRIVATE_NUMBERS	/* integers, see below */
} SortPrivate;

typedef enum SortNumber
{
	SORT_NUMBER_PARTITION, /* SortBound */
	SORT_NUMBER_ROWS,
	SORT_NUMBER_PEERS,
	SORT_NUMBER_BACKWARD /* read the last rows first */
} SortNumber;

/*
 * Of each partition, which is the rows with the same values of the first keys, only the first are wanted.  Who says so has
 * to expect others, too: the node leaves out what it can.
 */
typedef struct SortBound
{
	int partition; /* so many keys; 0: all rows are one partition */
	int rows;	   /* of each; 0: all */
	bool peers;	   /* ... and those that are equal to the last of them */
} SortBound;

/* Rows are kept for that in memory, so many of a partition at most. */
#define SORT_BOUND_MAX 100

/* Keys as a plan has them. */
typedef struct SortKeys
{
	List *expressions; /* Expr */
	List *operators;   /* OIDs */
	List *nulls;	   /* integers */
} SortKeys;

/*
 * For the planner: the keys of SortGroupClauses; false if one of them is not for batches.  Adds the
 * columns (Vars of the relation) that they need.
 */
extern bool sort_collect_keys(const PlannerInfo *root, const RelOptInfo *input, List *clauses,
							  SortKeys *keys, List **columns);

/* Adds the columns of an expression; false if it has others than plain ones of the relation. */
extern bool sort_collect_columns(const RelOptInfo *input, Node *expression, List **columns);

/* Can the rows that are equal by the clauses be told from others, as a partition? */
extern bool sort_can_partition(const PlannerInfo *root, List *clauses);

/*
 * A path for the rows of the relation that can be read by batches, sorted; `columns` are those that
 * are read, for keys and target.  Of each process, if `partial`.  bound: NULL for all rows.  NULL without batches.
 */
extern Path *
sort_make_path(PlannerInfo *root, RelOptInfo *input, const SortKeys *keys, const SortBound *bound,
			   List *columns, List *pathkeys, PathTarget *target, bool partial);

/* Do the rows that come first by the key lie at the end of the tables, or nearer to it? */
extern bool sort_is_read_backward(PlannerInfo *root, const RelOptInfo *input, const List *paths,
								  const List *attributes, const Node *key, bool descending);

/* Registers the node and the planner's hook; called by _PG_init(). */
extern void sort_initialize(void);

extern const CustomScanMethods sort_scan_methods;

#endif
