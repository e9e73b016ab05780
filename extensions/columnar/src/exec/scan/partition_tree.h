/*
 * partition_tree.h
 *		A partitioned table and all below it, as far as scanning it as one relation needs it.
 *
 *		partition_tree.c	   what a tree consists of, kept for the session
 *		partition_tree_prune.c which leaves conditions leave
 *		tree_plan.c			   when the planner takes a tree for one relation
 *		tree_scan.c			   leaf after leaf, by one process or several
 */
#ifndef COLUMNAR_PARTITION_TREE_H
#define COLUMNAR_PARTITION_TREE_H

#include "compat.h"

#include "nodes/execnodes.h"
#include "partitioning/partdefs.h"
#include "utils/rel.h"

/* A leaf as the catalogs have it. */
typedef struct TreeLeaf
{
	Oid relation;
	double pages;
	double tuples; /* at the last VACUUM or ANALYZE; -1: there was none */
} TreeLeaf;

typedef struct PartitionTree
{
	Oid relation;	  /* key: the table at the top */
	bool is_columnar; /* all leaves are columnar tables; if not, nothing below is valid */
	int nleaves;
	TreeLeaf *leaves; /* by oid */
	int nparents;
	Oid *parents;		 /* the partitioned tables below the top */
	bool has_indexes;	 /* somewhere in the tree */
	bool knows_indexes;	 /* indexed is all: every index belongs to one of the top */
	Bitmapset *indexed;	 /* attributes that are the first of an index; 0: an expression is */
	Bitmapset *by_range; /* attributes that are the first of a range partitioning */
} PartitionTree;

/*
 * The tree below a partitioned table, which is open and locked.  Locks the partitioned tables
 * below it, no leaf: a leaf may change its access method any time, so who opens it looks again.
 * Valid until the catalogs are looked at next.
 */
extern const PartitionTree *partition_tree_get(Relation relation);

/* NULL if the leaf is not of the tree. */
extern const TreeLeaf *partition_tree_leaf(const PartitionTree *tree, Oid relation);

/*
 * The oids of the leaves, in the order of their bounds, that may have rows for which all of
 * `clauses`, whose columns are those of relation `varno`, are true.  `parent`: the values of
 * parameters and stable functions count too, as the executor has them now; or NULL.
 * with_params: those of PARAM_EXEC, too.
 */
extern List *partition_tree_prune(Relation relation, PartitionDirectory directory, Index varno,
								  List *clauses, PlanState *parent, bool with_params);

/* Does partition_tree_prune() depend on PARAM_EXEC parameters? */
extern bool partition_tree_has_params(List *clauses);

/* Registers callbacks; called by _PG_init(). */
extern void partition_tree_initialize(void);

#endif
