/*
 * aggregate_internal.h
 *		What the files of the node ColumnarAggregate share.
 *
 *		aggregate_exec.c		the node
 *		aggregate_explain.c		what EXPLAIN says about it
 */
#ifndef COLUMNAR_AGGREGATE_INTERNAL_H
#define COLUMNAR_AGGREGATE_INTERNAL_H

#include "aggregate.h"

#include "commands/explain.h"

#include "batch_source.h"
#include "vector_aggregate.h"
#include "vector_aggregate_final.h"
#include "vector_expression.h"
#include "vector_groups.h"

/* An expression over rows, and its values for the batch at hand. */
typedef struct AggregateInput
{
	Expr *source;
	bool
		shared; /* evaluated once for all rows; else by its aggregate, for those that pass FILTER */
	VectorExpression *expression;
	Vector *values;
} AggregateInput;

/* Aggregates with the same transition. */
typedef struct AggregateTransition
{
	const Aggref *aggref; /* one of them */
	VectorAggregate *states;
	int nargs;
	int *args; /* into inputs */
	VectorExpression *filter;
	VectorGroups *distinct; /* the pairs of group and argument that were met; NULL: not DISTINCT */
} AggregateTransition;

/* A column of what the node returns. */
typedef struct AggregateOutput
{
	bool is_key;
	int index;			/* into keys or transitions */
	VectorFinal *final; /* of a result; NULL: a key or a state */
} AggregateOutput;

/* A part of the groups: those whose hash has these lowest bits. */
typedef struct AggregatePart
{
	int nbits;
	uint32 bits;
} AggregatePart;

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

	bool whole;		/* results are returned, not states: each group once */
	List *parts;	/* AggregatePart that are to be done; the first is at work */
	FmgrInfo *hash; /* of each key, to part them */
	Oid *collations;

	bool emitting;
	uint32 next; /* group to return */
	uint64 spills;
} ColumnarAggregateState;

extern void aggregate_explain(CustomScanState *node, List *ancestors, ExplainState *es);

#endif
