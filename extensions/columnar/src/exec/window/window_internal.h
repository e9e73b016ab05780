/*
 * window_internal.h
 *		What the files of the node ColumnarWindow share.
 *
 * Rows are kept in a store until all is known that their results depend on: their peers, their
 * partition, or nothing but themselves.  Then they are returned, and the store begins anew, but for
 * the last rows, if lag() may look at them.
 */
#ifndef COLUMNAR_WINDOW_INTERNAL_H
#define COLUMNAR_WINDOW_INTERNAL_H

#include "exec/window/window.h"

#include "commands/explain.h"

#include "exec/batch/batch_source.h"
#include "exec/batch/output_rows.h"
#include "exec/collection/sort_key.h"
#include "exec/states/vector_aggregate_final.h"
#include "exec/collection/vector_store.h"

/* ---- results of a growing frame (window_running.c) ---------------------------------------------- */

typedef struct WindowRunning WindowRunning;

/* Memory: a child of the current context. */
extern WindowRunning *window_running_create(const WindowFunc *function, PlanState *parent);

/* The frame has no rows. */
extern void window_running_begin(WindowRunning *running);

/* Adds the selected rows to the frame; rows are a part of a batch of nrows. */
extern void window_running_add(WindowRunning *running, Vector *const *arguments, uint32 nrows,
							   const uint16 *selection, uint32 nselected);

/* Adds each of the rows and keeps the result of the frame up to it. */
extern void window_running_add_each(WindowRunning *running, Vector *const *arguments, uint32 nrows,
									const uint16 *selection, uint32 nselected);

/* Keeps the result of the frame as it is now; results are numbered 0, 1, 2 ... */
extern void window_running_keep(WindowRunning *running);

/* The results with these numbers. */
extern void window_running_gather(WindowRunning *running, const uint32 *numbers, uint32 n,
								  VectorBuffer *buffer, Vector *into);

/* Forgets all results, but not the frame. */
extern void window_running_forget(WindowRunning *running);

/* ---- the node ----------------------------------------------------------------------------------- */

typedef struct WindowFunction
{
	const WindowFunc *source;
	WindowKind kind;
	WindowFrame frame;
	int64 offset; /* of lag() and nth_value(); buckets of ntile() */
	int narguments;
	VectorExpression **arguments;
	Vector **values;		 /* of the arguments, for the batch at hand */
	int column;				 /* of the store: the argument that is shown; -1: none */
	const Const *fallback;	 /* what lag() shows without a row; NULL: NULL */
	bool is_open;			 /* ... has peers in its frame that have no result yet */
	WindowRunning *running;	 /* aggregates whose frame grows */
	VectorAggregate *states; /* aggregates of whole partitions, which are the groups */
	VectorFinal *final;
	/* results of the rows at hand */
	Vector vector;
	VectorBuffer *buffer;
	int64 *ints;
	double *floats;
	uint32 rows[BLOCK_ROWS]; /* of the store, or results; VECTOR_NO_ROW: none */
	bool has_value;			 /* of this partition */
	int32 partition;
	Datum value;
	bool isnull;
} WindowFunction;

/* Where the rows at hand are in their partition; counted from the partition's first row. */
typedef struct WindowPlace
{
	int64 number; /* of the row: 1, 2 ... */
	int64 rank;
	int64 dense_rank;
	int32 partition; /* its number in the store; -1: it began before */
	int32 peers;
} WindowPlace;

typedef struct WindowStarts
{
	uint32 count;
	uint32 capacity;
	uint32 *rows; /* the first row of each */
} WindowStarts;

typedef struct ColumnarWindowState
{
	CustomScanState custom; /* first member */
	MemoryContext context;
	BatchReader reader;
	VectorScope scope;
	int ncolumns; /* of the child; functions follow */
	int noutputs; /* columns that are asked for: the store's first */
	OutputColumn *outputs;
	int nkeys;
	int npartition; /* keys of the partition, which come first */
	List *key_sources;
	VectorExpression **key_expressions;
	SortKeySource *key_types;
	SortKey *keys;
	int nfunctions;
	WindowFunction *functions;
	WindowFrame frame;
	WindowDelay delay;
	uint32 history; /* so many rows that were returned are kept, for lag() */
	bool stops;

	/* input */
	bool has_input;
	bool ended;
	VectorInput input;
	uint32 groups[BLOCK_ROWS]; /* partitions, by their number in the store */
	uint32 position;		   /* in its selection: what is before is in the store */
	bool begins_partition[BLOCK_ROWS];
	bool begins_peers[BLOCK_ROWS];
	bool has_last;			   /* entry 2 of the keys: the row before the batch */
	MemoryContext last_values; /* what it refers to */
	MemoryContext spare_values;

	/* rows whose results are not all known, or not returned */
	int nstored; /* columns of the store */
	VectorStore *store;
	VectorStore *spare;
	Vector **vectors; /* of rows that move */
	VectorBuffer **buffers;
	uint32 first; /* rows before were returned */
	WindowStarts partitions;
	WindowStarts peers;
	WindowPlace place; /* of the last row that was returned */

	/* output */
	bool emitting;
	uint32 next; /* row of the store */
	uint32 nplaced;
	WindowPlace places[BLOCK_ROWS];
	uint32 numbers[BLOCK_ROWS];
	uint32 shown;		   /* so many of these were returned */
	MemoryContext results; /* of whole partitions */
	ExprContext *output;   /* apart from the input, which is still in use */

	Size memory; /* of the store at most */
	uint64 removed;
} ColumnarWindowState;

extern void window_function_init(ColumnarWindowState *state, WindowFunction *function,
								 const WindowFunc *source, List *arguments);

/* Takes rows from..to of the input's selection, which are stored from row `first` on. */
extern void
window_function_take(ColumnarWindowState *state, WindowFunction *function, uint32 from, uint32 to);

/* No more rows for the groups at hand. */
extern void window_function_close(WindowFunction *function);

/* Makes the results of the rows in state->places. */
extern void window_function_place(ColumnarWindowState *state, WindowFunction *function);

/* The result of one of them, in the current context. */
extern Datum window_function_value(ColumnarWindowState *state, WindowFunction *function, uint32 row,
								   bool *isnull);

/* The store's rows were returned. */
extern void window_function_forget(WindowFunction *function);

extern void window_explain(CustomScanState *node, List *ancestors, ExplainState *es);

/* What EXPLAIN calls the result of the function with this number. */
extern char *window_name(const ColumnarWindowState *state, int number, List *context, bool prefix);

#endif
