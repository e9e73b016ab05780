/*
 * aggregate_internal.h
 *		What the files of the node ColumnarAggregate share.
 *
 *		aggregate_exec.c		the node
 *		aggregate_spill.c		rows whose groups do not fit into memory
 *		aggregate_distinct.c	aggregates of distinct values, and those that do not fit
 *		aggregate_linear.c		sums that are computed from other ones
 *		aggregate_summary.c		row groups taken from metadata
 *		aggregate_share.c		the groups shared out among the processes of a parallel query
 *		aggregate_explain.c		what EXPLAIN says about it
 */
#ifndef COLUMNAR_AGGREGATE_INTERNAL_H
#define COLUMNAR_AGGREGATE_INTERNAL_H

#include "exec/aggregate/aggregate.h"

#include "access/parallel.h"
#include "commands/explain.h"
#include "port/atomics.h"

#include "exec/batch/batch_source.h"
#include "exec/states/vector_aggregate.h"
#include "exec/states/vector_aggregate_final.h"
#include "exec/expression/vector_expression.h"
#include "exec/collection/vector_file.h"
#include "exec/keys/vector_groups.h"
#include "exec/keys/vector_hash.h"

/* An expression over rows, and its values for the batch at hand. */
typedef struct AggregateInput
{
	Expr *source;
	bool
		shared; /* evaluated once for all rows; else by its aggregate, for those that pass FILTER */
	bool is_key; /* evaluated for rows of other groups, too */
	VectorExpression *expression;
	Vector *values;
} AggregateInput;

/* The values that a DISTINCT aggregate has met, by group; see aggregate_distinct.c. */
typedef struct AggregateDistinct AggregateDistinct;

/* Aggregates with the same transition. */
typedef struct AggregateTransition AggregateTransition;
struct AggregateTransition
{
	const Aggref *aggref; /* one of them; NULL: a sum of integers from which others are derived */
	VectorAggregate *states;
	int nargs;
	int *args; /* into inputs */
	VectorExpression *filter;
	AggregateDistinct *distinct; /* NULL: not DISTINCT */
	AggregateSummary summary;	 /* if row groups are taken from metadata */
	/* see aggregate_linear.c */
	AggregateTransition *of; /* it is derived from this one, and takes no rows; or NULL */
	Expr *condition;		 /* without aggref: the FILTER; or NULL */
	int safe_bits; /* of values for which what is derived cannot be out of range; -1: of none */
};

typedef struct SummaryVector SummaryVector;

/* A column of what the node returns. */
typedef struct AggregateOutput
{
	bool is_key;
	int index;			/* into keys or transitions */
	VectorFinal *final; /* of a result; NULL: a key or a state */
} AggregateOutput;

/* What is put aside is split so, by bits of a hash; the other half of the hash is for shares. */
#define SPLIT_BITS 4
#define SPLIT_PARTS (1 << SPLIT_BITS)
#define SPLIT_BITS_MAX 32

/* Rows that are aggregated together; all rows of a group (or pair) are in one part. */
typedef struct AggregatePart
{
	int nbits;		  /* so many bits of the hash made it */
	VectorFile *file; /* NULL: all rows of the children */
} AggregatePart;

/* What the processes of a parallel query have in common; see aggregate_share.c. */
typedef struct AggregateShared
{
	uint32 nshares;
	pg_atomic_uint32 next; /* the share that nobody has yet */
} AggregateShared;

typedef struct ColumnarAggregateState
{
	CustomScanState custom; /* first member */
	VectorScope scope;
	BatchReader reader;
	List *columns; /* Vars: what the expressions name, by column - 1 */

	int ninputs;
	AggregateInput *inputs;
	int nkeys;
	int *keys; /* into inputs */
	VectorKey *key_types;
	int ntransitions;
	AggregateTransition *transitions;
	int noutputs;
	AggregateOutput *outputs;

	MemoryContext context;
	VectorGroups *groups; /* NULL without keys */
	uint32 ngroups;
	Size limit;
	uint32 numbers[BLOCK_ROWS];
	uint32 filtered_numbers[BLOCK_ROWS];
	uint16 filtered[BLOCK_ROWS];
	uint16 chosen[BLOCK_ROWS];
	int64 group_words[BLOCK_ROWS]; /* groups by position, and as a key of DISTINCT */
	Vector group_vector;

	bool has_distinct;	/* some transition is of distinct values */
	bool whole;			/* results are returned, not states: each group once */
	List *parts;		/* AggregatePart that are to be done; the first is at work */
	VectorFile **files; /* its rows whose groups are not in memory, by hash; NULL: all groups are */
	VectorHash *hash;	/* of the keys; NULL until it is needed */
	uint64 hashes[BLOCK_ROWS];

	AggregateShared *shared; /* NULL: all groups are this process's */
	bool has_asked;			 /* for a share, since the scan began */
	bool has_share;			 /* has one at work */
	uint32 share;
	uint32 nshares;

	SummaryVector *summary_vector;

	bool emitting;
	uint32 next; /* group to return */
	uint64 spills;
} ColumnarAggregateState;

/* The number of an input, made if there is none like it that is shared. */
extern int aggregate_find_input(ColumnarAggregateState *state, Expr *source, bool shared);

/* x of the argument factor * x + offset; NULL if it has not this form. */
extern const Expr *aggregate_linear_leaf(const Expr *argument);
/* The transition, if it is a sum of integers, is derived from another one. */
extern bool aggregate_make_linear(ColumnarAggregateState *state, AggregateTransition *transition);
/* Of a transition that others are derived from, after its values were evaluated for the input. */
extern void aggregate_check_linear(ColumnarAggregateState *state, const AggregateTransition *base,
								   VectorInput *input);

/* Asks the scans for row groups, if their metadata are of use. */
extern void aggregate_begin_summaries(ColumnarAggregateState *state);

/* Of the keys of rows of the batch at hand, into state->hashes. */
extern void
aggregate_hash_rows(ColumnarAggregateState *state, const uint16 *selection, uint32 nselected);

/* One part, of all rows; files of others are closed. */
extern void aggregate_begin_parts(ColumnarAggregateState *state);
/* Closes all files. */
extern void aggregate_end_parts(ColumnarAggregateState *state);
/* The next batch of the part at work; false at its end. */
extern bool aggregate_next_input(ColumnarAggregateState *state, VectorInput *input);
/* Memory is full: no groups are added any more, unless that would not help. */
extern void aggregate_close_groups(ColumnarAggregateState *state);
/* Of rows with numbers[]: those without a group go to files, the others remain selected. */
extern void aggregate_put_aside(ColumnarAggregateState *state, VectorInput *input);
/* Goes on to the next part; false if there is none. The caller forgets the groups. */
extern bool aggregate_next_part(ColumnarAggregateState *state);

/* Memory: the current context. */
extern AggregateDistinct *aggregate_distinct_create(const Aggref *aggref);
/*
 * Of the rows those whose argument is not NULL and which their group has not met yet: how many,
 * into state->filtered, their groups into state->filtered_numbers.  Others may be put aside.
 */
extern uint32 aggregate_distinct_choose(ColumnarAggregateState *state, AggregateDistinct *distinct,
										Vector *argument, const VectorRows *rows);
/* Bytes that all sets take. */
extern Size aggregate_distinct_memory(const ColumnarAggregateState *state);
/* Memory is full: nothing is added to the sets any more; false if that would not help. */
extern bool aggregate_distinct_close(ColumnarAggregateState *state);
/* All input was read: takes what was put aside.  `others`: bytes that groups and states take. */
extern void aggregate_distinct_finish(ColumnarAggregateState *state, Size others);
/* Forgets all values, and closes files. */
extern void aggregate_distinct_forget(AggregateDistinct *distinct);

/* Takes a share of the groups; false if others have all of them. */
extern bool aggregate_take_share(ColumnarAggregateState *state);
/* Leaves the rows selected whose groups belong to the share. */
extern void aggregate_choose_share(ColumnarAggregateState *state, VectorInput *input);
extern Size aggregate_estimate_dsm(CustomScanState *node, ParallelContext *pcxt);
extern void
aggregate_initialize_dsm(CustomScanState *node, ParallelContext *pcxt, void *coordinate);
extern void
aggregate_reinitialize_dsm(CustomScanState *node, ParallelContext *pcxt, void *coordinate);
extern void aggregate_initialize_worker(CustomScanState *node, shm_toc *toc, void *coordinate);

extern void aggregate_explain(CustomScanState *node, List *ancestors, ExplainState *es);

#endif
