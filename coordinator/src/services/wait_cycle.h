/*
 * wait_cycle.h
 *		Cycles in a graph of waits: pure functions.
 */
#ifndef STRATA_WAIT_CYCLE_H
#define STRATA_WAIT_CYCLE_H

#include "postgres.h"

/* `from` waits for `to`; nodes are numbered from 0. */
typedef struct WaitPair
{
	int from;
	int to;
} WaitPair;

/*
 * Find a cycle among the pairs that are not `ignored`: writes the indexes of its pairs, in order, and
 * returns their number; 0 when there is none.  `cycle` has room for as many as there are nodes.
 */
extern int
wait_cycle_find(const WaitPair *pairs, int count, const bool *ignored, int nodes, int *cycle);

#endif
