/*
 * prune_zone.h
 *		What the bounds of a zone (a row group or a block) say about a test whose values are
 *		known: whether it may be true for some row, and whether it is true for all of them.
 *
 * Bounds may be wider than the values are, so both answers are one-sided: every doubt is a
 * "may", and not an "all".
 */
#ifndef COLUMNAR_PRUNE_ZONE_H
#define COLUMNAR_PRUNE_ZONE_H

#include "exec/scan/prune_test.h"
#include "store/chunk/zone_map.h"

/* May the test of one column be true for some row of the zone? */
extern bool prune_zone_may_hold(PruneTest *test, const ZoneMap *zone);
/* The same of a comparison with one of its values; the zone has bounds. */
extern bool
prune_zone_may_hold_value(PruneTest *test, const ZoneMap *zone, const PruneValue *value);
/* Is the test of one column true for all rows of the zone? */
extern bool prune_zone_all_hold(PruneTest *test, const ZoneMap *zone);

#endif
