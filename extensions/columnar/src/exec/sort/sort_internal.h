/*
 * sort_internal.h
 *		What the files of the node ColumnarSort share.
 */
#ifndef COLUMNAR_SORT_INTERNAL_H
#define COLUMNAR_SORT_INTERNAL_H

#include "exec/sort/sort.h"

#include "commands/explain.h"

#include "exec/batch/batch_source.h"
#include "exec/batch/output_rows.h"
#include "exec/collection/sort_key.h"
#include "exec/collection/vector_file.h"
#include "exec/collection/vector_store.h"

/* ---- the order of rows in memory (sort_order.c) ------------------------------------------------- */

/* Memory that sorting needs for a row, besides the store's; more if the key is kept as a datum. */
#define SORT_ORDER_MEMORY 36
#define SORT_DATUM_MEMORY 80

/*
 * The numbers of the store's rows in the order of the keys, which are its columns columns[i]; in the
 * current context.  Of equal rows any may come first.
 */
extern uint32 *sort_order_rows(VectorStore *store, int nkeys, SortKey *keys, const int *columns);

/* ---- rows that can be among the first of their partition (sort_first.c) ----------------------------- */

typedef struct SortFirst SortFirst;

/* keys: of the partition, then of the order.  limit: bytes.  Memory: a child of the current context. */
extern SortFirst *
sort_first_create(const SortBound *bound, int nkeys, const SortKeySource *keys, Size limit);

/* Of the selected rows of a batch those that can; how many. */
extern uint32 sort_first_filter(SortFirst *first, Vector *const *keys, const uint16 *selection,
								uint32 nselected, uint16 *into);

/* Of rows 0 .. nrows - 1, all of which passed the filter before, those that still can; how many. */
extern uint32 sort_first_select(SortFirst *first, Vector *const *keys, uint32 nrows, uint16 *into);

/* Rows that are wanted of the partitions that are known, at most. */
extern uint64 sort_first_count(const SortFirst *first);

extern const SortBound *sort_first_bound(const SortFirst *first);

extern Size sort_first_memory(const SortFirst *first);

/* Forgets all rows. */
extern void sort_first_reset(SortFirst *first);

/* ---- sorted rows in files (sort_merge.c) -------------------------------------------------------- */

typedef struct SortMerge SortMerge;

/* For rows with these columns, of which columns[i] is key i.  Memory: a child of the current context. */
extern SortMerge *sort_merge_create(int ncolumns, const VectorKey *types, int nkeys, SortKey *keys,
									const int *columns);

/* Adds the store's rows, sorted as `order` says. */
extern void sort_merge_add(SortMerge *merge, VectorStore *store, const uint32 *order);

/* So many times rows were added. */
extern int sort_merge_count(const SortMerge *merge);

/*
 * The next rows of all that were added: they are rows (*order)[i] of the store that is returned, for
 * i below *n; valid until the next call.  *n = 0 at the end.
 */
extern VectorStore *sort_merge_next(SortMerge *merge, uint32 **order, uint32 *n);

/* Forgets all rows, and closes files. */
extern void sort_merge_reset(SortMerge *merge);

/* ---- the node ----------------------------------------------------------------------------------- */

typedef enum SortPhase
{
	SORT_PHASE_READ,
	SORT_PHASE_MEMORY, /* rows come from the store */
	SORT_PHASE_FILES,  /* ... from files */
	SORT_PHASE_END
} SortPhase;

typedef struct ColumnarSortState
{
	BatchSource source; /* first member; its batch is the result's */
	MemoryContext context;
	BatchReader reader;
	VectorScope scope;
	int nkeys;
	List *key_sources;
	VectorExpression **expressions; /* of the keys */
	SortKeySource *key_types;
	SortKey *keys;
	int *key_columns; /* by key: its column of the store */

	int ncolumns;		   /* of the store: columns that are asked for, then other keys */
	int noutputs;		   /* the first of them */
	OutputColumn *columns; /* number 0: a key that is no column */
	int *by_number;		   /* the store's column by column - 1 of the node; -1: none */
	VectorStore *store;
	VectorStore *spare; /* empty, the next store */
	SortFirst *first;	/* NULL: all rows are wanted */
	uint32 tidy_rows; /* when the store has so many rows, those that are not wanted are taken out */
	SortMerge *merge; /* NULL: all is in memory */
	Size row_memory;  /* for sorting, of each row */
	Size limit;

	SortPhase phase;
	uint32 *order; /* of the store's rows */
	uint32 next;

	/* the batch at hand: these rows of that store */
	VectorStore *from;
	const uint32 *rows;
	uint16 selection[BLOCK_ROWS];

	OutputCursor cursor;

	/* for EXPLAIN ANALYZE */
	Size memory; /* at most */
	int nruns;	 /* that went to files */
} ColumnarSortState;

extern void sort_explain(CustomScanState *node, List *ancestors, ExplainState *es);

#endif
