/*
 * custom_scan.h
 *		The planner's and executor's side of a columnar table: the scan nodes
 *		ColumnarScan and ColumnarCount.
 *
 *		custom_scan_order.c	   in which order conditions are evaluated
 *		custom_scan_plan.c	   which paths a columnar table has, and the plan node
 *		custom_scan_cost.c	   what they cost
 *		index_cost.c		   what index and bitmap scans cost, which core cannot know
 *		custom_scan_exec.c	   the node: filter, late decoding, parallel scan, rechecks
 *		custom_scan_explain.c  what EXPLAIN says about it
 *		metadata_count.c	   count(*) from row group records
 *		bitmap_prefetch.c	   keeps core from prefetching blocks that do not exist
 *
 * Names of custom scans are one per server: another library that calls one of its
 * own ColumnarScan cannot be loaded together with this one.
 */
#ifndef COLUMNAR_CUSTOM_SCAN_H
#define COLUMNAR_CUSTOM_SCAN_H

#include "exec/batch/batch_source.h"
#include "exec/scan/prune.h"
#include "exec/scan/scan_keys.h"

#include "commands/explain.h"
#include "nodes/extensible.h"
#include "nodes/pathnodes.h"

/* Registers the nodes and installs all hooks above; called by _PG_init(). */
extern void custom_scan_initialize(void);

/* ---- plan --------------------------------------------------------------------------------------- */

/* CustomScan.custom_private of a ColumnarScan: a list of integers. */
typedef enum ScanPrivate
{
	SCAN_BATCH_QUALS, /* so many of custom_exprs, from the first, are evaluated batch by batch */
	SCAN_EAGER,		  /* read all columns ahead, not only those of the filter */
	SCAN_LEAVES,	  /* of a partition tree: how many leaves; -1: it is a table */
	SCAN_FIRST_LEAF	  /* from here: the oids of the leaves, in the order of their bounds; then: */
					  /* indexes of the custom_exprs that may look at hidden rows' bounds */
} ScanPrivate;

/* The conditions of a scan (RestrictInfo) in the order in which it evaluates them. */
extern List *custom_scan_order_clauses(PlannerInfo *root, RelOptInfo *rel, List *clauses);

/* ---- cost --------------------------------------------------------------------------------------- */

/*
 * Decoding a value, in units of cpu_operator_cost: some 3 ns, against 25 ns of an operator,
 * with its part of a tuple; into a batch, 2 ns.
 */
#define DECODE_COST 0.1
#define BATCH_DECODE_COST 0.07

/* Opening a chunk (header, zone maps, first frame) costs as much as decoding so many values. */
#define CHUNK_OPEN_VALUES 10000

/* What the costs of all paths of one relation are computed from. */
typedef struct ScanFacts
{
	Relation relation;
	Bitmapset *columns; /* attribute numbers that the query needs */
	double *shares;		/* of the encoded bytes, by attribute - 1; adds up to at most 1 */
	double groups;		/* row groups */
	int leaves;			/* of a partition tree; 0: it is a table */
	double share; /* of a partition tree: rows of the leaves, of those that selectivities are of */
	bool batches; /* for a node that works on batches: no tuples are formed */
} ScanFacts;

/* Adds the attribute numbers of relation `varno` in an expression; all of them for a whole row. */
extern Bitmapset *
custom_scan_add_columns(Bitmapset *columns, Node *expression, Index varno, TupleDesc descriptor);

/* Fills *facts, but for the columns. */
extern void custom_scan_collect_facts(ScanFacts *facts, RelOptInfo *rel, Relation relation);

/* How costsize.c shares work between the leader and its workers; 1 without workers. */
extern double custom_scan_parallel_divisor(int workers);

/* Sets rows and costs of a path that has its param_info and parallel_workers; is it eager? */
extern bool
custom_scan_set_cost(PlannerInfo *root, RelOptInfo *rel, const ScanFacts *facts, Path *path);

/*
 * A path of a columnar table for a node above that asks for batches: `columns` are the
 * attribute numbers that it needs besides the conditions'.  NULL if a ColumnarScan cannot
 * evaluate the conditions.
 */
extern CustomPath *custom_scan_make_batch_path(PlannerInfo *root, RelOptInfo *rel,
											   Bitmapset *columns, int parallel_workers);

/* How well the column's values follow the order of the rows: -1 .. 1, 0 if that is not known. */
extern double custom_scan_correlation(Oid relation, AttrNumber attribute);
/* Well enough for zone maps to exclude what a qual's selectivity says? */
extern bool custom_scan_is_clustered(Oid relation, AttrNumber attribute);

/* Raises the costs of the relation's index and bitmap paths to what fetching single rows costs. */
extern void index_cost_charge(PlannerInfo *root, RelOptInfo *rel, const ScanFacts *facts);

/* ---- execution ---------------------------------------------------------------------------------- */

/* What a scan did, for EXPLAIN ANALYZE. */
typedef struct ScanCounters
{
	PruneCounters prune;
	uint64 bytes_read;
	uint64 pages_read;
	uint64 removed_by_keys; /* rows */
} ScanCounters;

typedef struct ScanShared ScanShared;
typedef struct ScanFilter ScanFilter;
typedef struct TreeScan TreeScan;

/* Columns that are put into the slot together, with their decoded blocks of the batch. */
typedef struct ScanColumns
{
	int count;
	AttrNumber *attributes;
	ColumnBlock **blocks;
	bool tid; /* the row's ctid is asked for */
} ScanColumns;

typedef struct ColumnarScanState
{
	BatchSource source;		 /* first member */
	MemoryContext context;	 /* of the scan: readers, blocks */
	Pruner *pruner;			 /* NULL: strata_columnar.enable_pruning is off */
	RowScan *scan;			 /* NULL until the first row is asked for */
	TreeScan *tree;			 /* NULL: it is a table */
	Relation relation;		 /* that is read: the table, or the leaf; NULL between leaves */
	ScanDirection direction; /* of batches for a node above */
	Bitmapset *ahead;		 /* attributes to read ahead */
	bool
		offers_groups; /* the node above takes row groups by their summaries, where that is enough */
	uint64 nbatches;
	int nfilters;
	ScanFilter *filters; /* quals evaluated over a batch, one after the other */
	ExprState *row_qual; /* the others, evaluated row by row; NULL if none */
	AskedKeys keys;		 /* asked before these */
	uint64 removed_by_keys;
	ScanColumns output;
	RowBatch *batch;
	int32 position;	 /* in the batch's selection: the row returned last */
	bool has_output; /* are the batch's output columns decoded? */
	ScanShared *shared;
	ScanCounters reported; /* what this worker added to the shared counters */
	ScanCounters workers;  /* what the workers did, when they have finished */
} ColumnarScanState;

extern const CustomScanMethods custom_scan_methods;

/* What this process did so far; a worker tells the leader. */
extern ScanCounters custom_scan_counters(ColumnarScanState *state);
extern void custom_scan_report(ColumnarScanState *state);

/* What the processes share of a table; NULL: there is one. */
extern RowScanShared *custom_scan_shared(ColumnarScanState *state);

/* CustomExecMethods of a parallel scan: custom_scan_parallel.c. */
extern Size custom_scan_estimate_dsm(CustomScanState *node, ParallelContext *pcxt);
extern void
custom_scan_initialize_dsm(CustomScanState *node, ParallelContext *pcxt, void *coordinate);
extern void
custom_scan_reinitialize_dsm(CustomScanState *node, ParallelContext *pcxt, void *coordinate);
extern void custom_scan_initialize_worker(CustomScanState *node, shm_toc *toc, void *coordinate);
extern void custom_scan_shut_down(CustomScanState *node);

extern void custom_scan_explain(CustomScanState *node, List *ancestors, ExplainState *es);

/* ---- the other hooks ---------------------------------------------------------------------------- */

extern void metadata_count_initialize(void);
extern void bitmap_prefetch_initialize(void);

#endif
