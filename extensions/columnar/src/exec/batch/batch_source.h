/*
 * batch_source.h
 *		Between the nodes that work on batches: who has them, and who reads them.
 *
 *		batch_source.c		reading the batches of one child, or of several in turn
 *		batch_rows.c		batches of the rows of any plan
 *		batch_projection.c	batches of what a node's target list computes
 */
#ifndef COLUMNAR_BATCH_SOURCE_H
#define COLUMNAR_BATCH_SOURCE_H

#include "exec/batch/key_filter.h"
#include "exec/expression/vector_expression.h"

#include "nodes/execnodes.h"
#include "nodes/extensible.h"
#include "nodes/pathnodes.h"

/*
 * Asked of a row group all of whose rows are to be read: true if the owner has taken from its
 * summaries what it wants to know, so that its rows do not come.
 */
typedef bool (*GroupTaker)(void *owner, RowGroupReader *group);

/*
 * Which rows the reader of a column needs: integers (as column_type_to_int() has them) between low
 * and high; those with NULL only if `nulls`.
 */
typedef struct BatchLimit
{
	int64 low;
	int64 high;
	bool nulls;
	const KeyZones *zones; /* NULL: all values between */
} BatchLimit;

/* The state of a node that has batches; first member of its own. */
typedef struct BatchSource BatchSource;
typedef struct BatchOffer BatchOffer;
struct BatchSource
{
	CustomScanState custom; /* first member */
	VectorBatch batch;
	/* in the place of ExecProcNode(): the next batch with selected rows, valid until the next call; or NULL */
	VectorBatch *(*next_batch)(BatchSource *source);
	/* what the node above asks for, see batch_reader_limit(), _filter(), _set_taker() and _turn(); each may be NULL */
	void (*limit)(BatchSource *source, AttrNumber column, const BatchLimit *limit);
	void (*filter)(BatchSource *source, AttrNumber column, KeyFilter *filter, const KeyRate *next);
	void (*offer_groups)(BatchSource *source, GroupTaker taker, void *owner);
	void (*turn)(BatchSource *source);
	BatchOffer *offer; /* rows are offered by batches: batch_offer.h; NULL: they are not */
};

/* What a node of ours is to those above it. */
typedef enum BatchRole
{
	BATCH_ROLE_NONE,		/* of other nodes */
	BATCH_ROLE_SOURCE,		/* it has batches: its state is a BatchSource */
	BATCH_ROLE_AGGREGATION, /* it has few rows, of which batches are worth making */
	BATCH_ROLE_ROWS			/* it has rows */
} BatchRole;

/* Makes a node known to core and to the other nodes; from _PG_init(). */
extern void batch_source_register(const CustomScanMethods *methods, BatchRole role);

extern BatchRole batch_source_path_role(const Path *path);
extern BatchRole batch_source_plan_role(const Plan *plan);

/* Is the node's state a BatchSource? */
static inline bool
batch_source_is_one(const PlanState *plan)
{
	return batch_source_plan_role(plan->plan) == BATCH_ROLE_SOURCE;
}

/* The node's next batch, in the place of ExecProcNode(). */
extern VectorBatch *batch_source_read(BatchSource *source);

/*
 * The columns that expressions name: distinct Vars, in the order of their first appearance.
 * Planner and executor have the same list of the same expressions.
 */
extern List *batch_source_columns(List *expressions);

/* The expression with Var(INDEX_VAR, number) in the place of these columns; and back. */
extern Node *batch_source_number_columns(Node *expression, List *columns);
extern Node *batch_source_name_columns(Node *expression, List *columns);

/*
 * For expressions of a node over columns of these types, by number.  `context` lives as long as the
 * expressions; called in memory that lives as long as the query.
 */
extern void batch_source_init_scope(VectorScope *scope, CustomScanState *node, TupleDesc columns,
									MemoryContext context);

/* Batches of the rows of any plan: column i is the i-th of its target list. */
typedef struct BatchRows BatchRows;

/* Memory: a child of the current context. */
extern BatchRows *batch_rows_create(PlanState *plan);
extern VectorBatch *batch_rows_next(BatchRows *rows);

/* The plan was told to begin anew. */
extern void batch_rows_rescan(BatchRows *rows);

/*
 * Asked of a row group all of whose rows are to be read: true if the owner has taken from the
 * summaries of its columns what it wants to know, so that the rows do not come.  attributes: the
 * group's, by column - 1 of the reader.
 */
typedef bool (*BatchTaker)(void *owner, const AttrNumber *attributes, RowGroupReader *group);

struct BatchProjection;

/* A child that is read. */
typedef struct BatchChild
{
	PlanState *plan;
	AttrNumber *attributes;				/* its column, by column - 1 of the reader */
	BatchRows *rows;					/* it has no batches of its own; else NULL */
	struct BatchProjection *projection; /* columns are those of its target list; else NULL */
	AttrNumber *projected;				/* which of its own columns they are, 0: none */
	BatchTaker taker;					/* or NULL */
	void *owner;
} BatchChild;

/* The children that a node reads, one after the other, as one. */
typedef struct BatchReader
{
	int nchildren;
	BatchChild *children;
	int current;   /* nchildren: all are read */
	bool backward; /* the last child is read first, and tables from their end */
	uint64 number; /* of batches, never used twice */
} BatchReader;

/*
 * Initialises plans first .. first + list_length(columns) - 1 of the node's custom_plans, and adds
 * them to its custom_ps.  columns: for each of them a list of integers, its column by
 * column - 1 of the node; negative: the entry of that number of its target list.
 */
extern void batch_reader_init(BatchReader *reader, CustomScanState *node, int first,
							  const List *columns, int eflags);

/* The next batch as an input for expressions over the reader's columns; false at the end. */
extern bool batch_reader_next(BatchReader *reader, VectorInput *input);

/*
 * The reader needs no other rows any more than those within the limit.  Holds until the children
 * are scanned again.
 */
extern void
batch_reader_limit(const BatchReader *reader, AttrNumber column, const BatchLimit *limit);

/*
 * Nor rows whose value in this column the filter leaves out, NULL among them.  `next`: what the reader
 * does with the rows, see key_filter_is_worth().
 */
extern void batch_reader_filter(const BatchReader *reader, AttrNumber column, KeyFilter *filter,
								const KeyRate *next);

/* Offers row groups of tables; see BatchTaker.  Before the first batch. */
extern void batch_reader_set_taker(BatchReader *reader, BatchTaker taker, void *owner);

/* Rows are wanted from the end first, as far as that is possible.  Before the first batch. */
extern void batch_reader_turn(BatchReader *reader);

/* Was the end not reached yet? */
static inline bool
batch_reader_has_more(const BatchReader *reader)
{
	return reader->current < reader->nchildren;
}

/* From the first row again; the node's parameters may have changed. */
extern void batch_reader_rescan(BatchReader *reader, CustomScanState *node);

extern void batch_reader_end(BatchReader *reader);

#endif
