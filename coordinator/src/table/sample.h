/*
 * sample.h
 *		A random sample of a shell's rows, for ANALYZE.
 */
#ifndef STRATA_SAMPLE_H
#define STRATA_SAMPLE_H

#include "executor/tuptable.h"
#include "utils/relcache.h"

typedef struct Sample Sample;

/*
 * Start sampling.  Unless an autovacuum worker asks, the workers analyse their
 * own copies first, in this transaction.  Allocated in CurrentMemoryContext.
 */
extern Sample *sample_begin(Relation relation);

/* Next sampled row; false at the end. */
extern bool sample_next(Sample *sample, TupleTableSlot *slot);

/* Rows of the whole table that sample_next() did not return; valid once that returned false. */
extern double sample_unseen_rows(const Sample *sample);

extern void sample_end(Sample *sample);

#endif
