/*
 * analyze_sample.h
 *		A random sample of a shell's rows, for ANALYZE.
 */
#ifndef STRATA_ANALYZE_SAMPLE_H
#define STRATA_ANALYZE_SAMPLE_H

#include "executor/tuptable.h"
#include "utils/relcache.h"

typedef struct AnalyzeSample AnalyzeSample;

/*
 * Start sampling.  Unless an autovacuum worker asks, the workers measure their shards first, or
 * analyse those that are not alike, in this transaction.  Allocated in CurrentMemoryContext.
 */
extern AnalyzeSample *analyze_sample_begin(Relation relation);

/* Next sampled row; false at the end. */
extern bool analyze_sample_next(AnalyzeSample *sample, TupleTableSlot *slot);

/* Rows of the whole table that analyze_sample_next() did not return; valid once that returned false. */
extern double analyze_sample_unseen_rows(const AnalyzeSample *sample);

extern void analyze_sample_end(AnalyzeSample *sample);

#endif
