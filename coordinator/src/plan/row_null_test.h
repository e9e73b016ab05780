/*
 * row_null_test.h
 *		IS NULL of composite columns, so that a worker's partitions keep their rows.
 */
#ifndef STRATA_ROW_NULL_TEST_H
#define STRATA_ROW_NULL_TEST_H

#include "nodes/parsenodes.h"

/* The query with such tests guarded; the query itself if it has none. */
extern Query *row_null_test_guard(Query *query);

#endif
