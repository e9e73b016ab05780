/*
 * approximate.h
 *		Distinct counts by HyperLogLog.
 */
#ifndef STRATA_APPROXIMATE_H
#define STRATA_APPROXIMATE_H

#include "nodes/parsenodes.h"

/*
 * Replaces, in queries that read distributed tables, approx_count_distinct(x), and
 * count(DISTINCT x) when strata.count_distinct_error_rate allows an error, by
 * aggregates of postgresql-hll, which the workers compute partially.
 * Returns the query itself where there is nothing to replace.
 */
extern Query *approximate_rewrite(Query *query);

#endif
