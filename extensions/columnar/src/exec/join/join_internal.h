/*
 * join_internal.h
 *		What the files of the node ColumnarJoin share.
 *
 *		join_exec.c		the node: children, the build side, rows
 *		join_probe.c	probe batches, the result
 *		join_spill.c	sides in parts, if the build side does not fit into memory
 *		join_explain.c	what EXPLAIN says about it
 */
#ifndef COLUMNAR_JOIN_INTERNAL_H
#define COLUMNAR_JOIN_INTERNAL_H

#include "exec/join/join.h"

#include "commands/explain.h"

#include "exec/batch/batch_source.h"
#include "exec/batch/output_rows.h"
#include "exec/expression/vector_expression.h"
#include "exec/collection/vector_file.h"
#include "exec/join/vector_join_table.h"

/* A column that the node returns or needs for its conditions. */
typedef struct JoinColumn
{
	VectorKey key;
	ColumnType type;
	bool of_probe;
	int index;	   /* among its side's columns */
	uint64 number; /* of the batch for which `vector` was made */
	Vector vector;
	VectorBuffer *buffer;
} JoinColumn;

typedef struct JoinSide
{
	BatchReader reader;
	VectorScope scope; /* of the keys */
	VectorExpression **keys;
	VectorKey *key_types;
	Vector **key_values; /* of the batch at hand */
	List *key_sources;
	/*
	 * What is kept of a row, in memory and in files: the values of the keys, and then the
	 * node's columns that are asked of this side after them (integers).
	 */
	List *columns;
	int nstored;
	VectorKey *stored_types;
	/* of rows in a file: its column by column - 1 of the node, keys, number of batches */
	AttrNumber *file_attributes;
	Vector *file_keys;
	uint64 file_number;
	FmgrInfo *hash; /* of the keys; NULL until the sides are split */
} JoinSide;

/* Rows that can have partners among each other only. */
typedef struct JoinPart
{
	int nbits;		   /* of the hash, which they share */
	bool is_final;	   /* splitting it would not help */
	VectorFile *build; /* NULL: all rows, from the children */
	VectorFile *probe;
} JoinPart;

typedef enum JoinPhase
{
	JOIN_PHASE_BUILD, /* nothing was read */
	JOIN_PHASE_PROBE, /* the next batch of the probe side is due */
	JOIN_PHASE_PAIRS, /* pairs of the batch at hand are due */
	JOIN_PHASE_REST,  /* build rows with or without a partner are due */
	JOIN_PHASE_END
} JoinPhase;

typedef enum JoinLayout
{
	JOIN_LAYOUT_PROBE, /* at the positions of the probe batch */
	JOIN_LAYOUT_PAIRS  /* side by side */
} JoinLayout;

typedef struct ColumnarJoinState
{
	BatchSource source; /* first member; its batch is the result's */
	MemoryContext context;
	JoinKind kind;
	int nkeys;
	JoinSide probe;
	JoinSide build;
	VectorScope scope;			  /* of conditions */
	VectorExpression *conditions; /* that partners fulfil; NULL: none */
	VectorExpression *filters;	  /* of the result; NULL: none */
	int ncolumns;
	JoinColumn *columns;
	int noutputs;
	OutputColumn *outputs; /* the columns that rows have */

	VectorStore *store; /* the build rows' columns */
	VectorJoinTable *table;
	uint64 *marks;	  /* by build row: it has a partner */
	KeyZones **zones; /* by key, of the build side; NULL until made */
	KeyFilter filter; /* the table, for the nodes below */
	KeyRate rate;	  /* of probe rows */
	Size limit;
	List *parts; /* JoinPart; the first is at work */

	JoinPhase phase;
	VectorInput input;		  /* the probe batch */
	uint32 found[BLOCK_ROWS]; /* its rows' first partners, by index into its selection */
	bool matched[BLOCK_ROWS]; /* by position: a partner is known that fulfils the conditions */
	uint32 next;			  /* whose pairs are due; of JOIN_PHASE_REST: build row */
	uint32 next_row;		  /* the partner that is due */

	uint64 number; /* of batches that were begun */
	JoinLayout layout;
	uint32 nrows;
	uint16 positions[BLOCK_ROWS]; /* in the probe batch, of each row of the result */
	uint32 rows[BLOCK_ROWS];	  /* its build row */
	uint16 selection[BLOCK_ROWS];

	/* for EXPLAIN ANALYZE */
	uint64 build_rows;
	uint64 nsplits;
	Size build_memory; /* at most */
	uint64 removed_candidates;
	uint64 removed_rows;

	OutputCursor cursor;
} ColumnarJoinState;

/*
 * Each returns whether the node's batch has rows to hand up, and leaves the phase that is next.
 * Of the probe batch in state->input: looks it up.
 */
extern bool join_probe_batch(ColumnarJoinState *state);
/* Its next pairs, or what remains when they are through. */
extern bool join_emit_pairs(ColumnarJoinState *state);
/* The next build rows that come out when all of the probe side was read. */
extern bool join_emit_rest(ColumnarJoinState *state);

extern void join_get_column(VectorBatch *batch, AttrNumber number, Vector *into);
/*
 * The next batch of a side of the part at work, with the values of its keys in key_values[]; false at the end.
 * Resets the node's per-tuple memory.
 */
extern bool join_next_input(ColumnarJoinState *state, JoinSide *side, VectorInput *input);
/* What is stored of the rows of that batch, in the current context. */
extern Vector **
join_collect_columns(ColumnarJoinState *state, JoinSide *side, const VectorInput *input);

/* Do rows of this side come out for their own, with or without partner? */
extern bool join_emits_build_rows(const ColumnarJoinState *state);
extern bool join_emits_unmatched_probe_rows(const ColumnarJoinState *state);

/* One part, of all rows; files of others are closed. */
extern void join_begin_parts(ColumnarJoinState *state);
/* Reads the part at work to its end, and puts smaller ones into its place; memory is empty then. */
extern void join_split_part(ColumnarJoinState *state);
/* The part at work is done; false if it was the last. */
extern bool join_next_part(ColumnarJoinState *state);

extern void join_explain(CustomScanState *node, List *ancestors, ExplainState *es);

#endif
