/*
 * round_trip.h
 *		In builds with assertions: does SQL made for workers say what it was made from?
 */
#ifndef STRATA_ROUND_TRIP_H
#define STRATA_ROUND_TRIP_H

#include "nodes/parsenodes.h"

#ifdef USE_ASSERT_CHECKING
/* ERROR XX000 with the texts unless `sql`, read by this server, is the query again. */
extern void round_trip_check(const Query *query, const char *sql);
#else
#define round_trip_check(query, sql) ((void) 0)
#endif

#endif
