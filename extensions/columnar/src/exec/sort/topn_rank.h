/*
 * topn_rank.h
 *		The best rows so far, by their sort keys.
 *
 * The order is that of core's Sort with the same operators; of rows with equal keys the one
 * that came first is the better one.
 */
#ifndef COLUMNAR_TOPN_RANK_H
#define COLUMNAR_TOPN_RANK_H

#include "exec/collection/sort_key.h"

typedef struct TopnRank TopnRank;

/* nkeys >= 1; `bound` rows are wanted.  Memory: a child of the current context. */
extern TopnRank *topn_rank_create(int nkeys, const SortKeySource *keys, uint32 bound);

/*
 * Which of the selected rows can be among the best, as far as their first key tells: writes
 * their positions to `into`, which may be the selection, and returns how many.
 */
extern uint32 topn_rank_filter(TopnRank *rank, const Vector *first, const uint16 *selection,
							   uint32 nselected, uint16 *into);

/*
 * Adds the selected rows that are among the best: writes their positions to `into`, and returns
 * how many; they get the numbers next_row, next_row + 1 ...  Others, and older rows, may be
 * forgotten.  The current memory context must be one that is soon reset.
 */
extern uint32 topn_rank_add(TopnRank *rank, Vector *const *keys, const uint16 *selection,
							uint32 nselected, uint32 next_row, uint16 *into);

/*
 * Have the bounds of what can be among the best changed since the last call?  Then rows whose
 * first key, as column_type_to_int() has it, is not between low and high are of no use; NULLs are
 * if *nulls.
 */
extern bool topn_rank_bounds(TopnRank *rank, int64 *low, int64 *high, bool *nulls);

/* The numbers of the rows, ascending. */
extern const uint32 *topn_rank_rows(const TopnRank *rank, uint32 *nrows);

/* These rows have the numbers 0, 1, 2 ... from now on. */
extern void topn_rank_renumber(TopnRank *rank);

/* The numbers of the best rows, the best first; allocated in the current context. */
extern uint32 *topn_rank_sort(TopnRank *rank, uint32 *nrows);

/* Forgets all rows. */
extern void topn_rank_reset(TopnRank *rank);

#endif
