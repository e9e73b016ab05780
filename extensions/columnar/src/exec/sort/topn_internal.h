/*
 * topn_internal.h
 *		What the files of the node ColumnarTopN share.
 */
#ifndef COLUMNAR_TOPN_INTERNAL_H
#define COLUMNAR_TOPN_INTERNAL_H

#include "exec/sort/topn.h"

#include "commands/explain.h"

#include "exec/batch/batch_source.h"
#include "exec/batch/output_rows.h"
#include "exec/sort/topn_rank.h"
#include "exec/expression/vector_expression.h"
#include "exec/collection/vector_store.h"

/* ---- rows by rank ------------------------------------------------------------------------------- */

struct TopnRank
{
	MemoryContext context;
	MemoryContext values; /* what entries refer to */
	Size value_bytes;	  /* in it */
	Size live_bytes;	  /* of these when it was last tidied up */
	uint32 bound;
	int nkeys;
	SortKey *keys;
	/*
	 * Rows in the order in which they came.  Behind them is room for those of a batch, whose
	 * values are not copied yet, and for one more.
	 */
	uint32 count;
	uint32 capacity;
	uint32 *rows;
	uint16 *positions; /* of new entries, in their batch */
	uint32 *order;
	/* the entry that new ones have to be better than, if all that are wanted are there */
	bool has_worst;
	uint32 worst;
	bool is_tightened; /* ... since somebody asked for the bounds */
	/* of the worst entry's first key, if it is a numeric and no NaN or the like */
	bool has_mantissa;
	int128 mantissa;
	int32 scale;
	/* may rows with the first key of a dictionary's entry be among the best?  -1: not known yet */
	uint64 serial; /* of the dictionary; 0: none */
	int8 *outcomes;
	uint32 noutcomes;
};

/* ---- the node ----------------------------------------------------------------------------------- */

typedef struct ColumnarTopNState
{
	CustomScanState custom; /* first member */
	MemoryContext context;
	BatchReader reader;
	VectorScope scope;
	uint32 bound;
	int nkeys;
	List *key_sources;
	VectorExpression **keys;
	SortKeySource *key_types;
	AttrNumber limited; /* the column that the first key is; 0: it is none */
	int ncolumns;
	OutputColumn *columns;
	TopnRank *rank;
	VectorStore *store; /* the columns of the rows in `rank` and of some that were forgotten */
	VectorStore *spare; /* empty, the next store */
	Size limit;
	uint16 survivors[BLOCK_ROWS];
	uint16 chosen[BLOCK_ROWS];
	uint64 stored; /* rows whose columns were decoded */

	bool emitting;
	uint32 *order; /* numbers of the rows to return */
	uint32 nrows;
	uint32 next;
	uint32 first_gathered; /* the rows whose columns are in vectors */
	uint32 ngathered;
} ColumnarTopNState;

extern void topn_explain(CustomScanState *node, List *ancestors, ExplainState *es);

#endif
