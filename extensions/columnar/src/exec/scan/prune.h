/*
 * prune.h
 *		Row groups and blocks that a scan's quals exclude, by zone maps and Bloom filters.
 *
 * Never wrong is the first rule: what cannot be decided is kept, and the quals
 * are evaluated on every row that is read.
 */
#ifndef COLUMNAR_PRUNE_H
#define COLUMNAR_PRUNE_H

#include "exec/batch/batch_source.h"
#include "store/rows/row_scan.h"

#include "nodes/execnodes.h"

typedef struct Pruner Pruner;

/* What was looked at and what of it was excluded. */
typedef struct PruneCounters
{
	uint64 groups;
	uint64 groups_pruned;
	uint64 groups_taken; /* of which the summaries were enough */
	uint64 blocks;
	uint64 blocks_pruned;
} PruneCounters;

/*
 * A pruner for a scan with these clauses (implicitly ANDed, of the executor, on
 * relation `varno`); without a usable clause it keeps and counts everything.
 * `complete`: these are all conditions of the scan.  `parent` evaluates the values.
 * Memory: the current context.
 */
extern Pruner *
pruner_create(Relation relation, Index varno, List *clauses, bool complete, PlanState *parent);

/* What row_scan_begin() takes. */
extern RowPruner *pruner_callbacks(Pruner *pruner);

/* The clauses that have a test. */
extern List *pruner_clauses(const Pruner *pruner);

/*
 * The parameters may have changed: the values are taken again when the next row
 * group is looked at (not before: a value that raises an error must not do so for an
 * empty table).
 */
extern void pruner_reset(Pruner *pruner);

/*
 * Rows that are not within the limit need not be returned from now on.  May be called while the
 * scan runs, and again for the same column.
 */
extern void pruner_add_limit(Pruner *pruner, AttrNumber attribute, const BatchLimit *limit);
extern void pruner_forget_limits(Pruner *pruner);

/*
 * Of a block of the group that was asked about last, and kept: do all of its rows pass the scan's
 * conditions, so that these need not be evaluated?
 */
extern bool pruner_passes(Pruner *pruner, RowGroupReader *reader, uint32 block);

/* Row groups all of whose rows are to be returned are offered first. */
extern void pruner_set_taker(Pruner *pruner, GroupTaker taker, void *owner);

extern const PruneCounters *pruner_counters(const Pruner *pruner);

/*
 * Does the clause exclude by the bounds of one column?  That attribute, else 0.
 * For the planner: other relations' Vars count as values.
 */
extern AttrNumber prune_clause_attribute(Node *clause, Index varno, TupleDesc descriptor);

#endif
