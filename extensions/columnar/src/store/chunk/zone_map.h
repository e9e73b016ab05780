/*
 * zone_map.h
 *		Smallest and largest value of a block or a chunk, and how many NULLs.
 *
 * Bounds hold for every value that is not NULL; has_bounds is false when there
 * is no such value, no order, or a value too long to be stored.  ZONE_BYTES
 * bounds are cut to ZONE_PREFIX bytes: a cut minimum is a prefix (still a lower
 * bound under memcmp), a cut maximum is flagged and means "prefix followed by
 * anything".
 */
#ifndef COLUMNAR_ZONE_MAP_H
#define COLUMNAR_ZONE_MAP_H

#include "store/value/column_values.h"

#define ZONE_PREFIX 24	  /* ZONE_BYTES: bytes kept of a bound */
#define ZONE_BOUND_MAX 64 /* ZONE_COMPARE, numeric: longer values give no bounds */

typedef struct ZoneBound
{
	int64 number; /* ZONE_INT; ZONE_FLOAT: bits of the float8; ZONE_COMPARE of FORM_INT */
	uint16 length;
	char bytes[ZONE_BOUND_MAX];
} ZoneBound;

typedef struct ZoneMap
{
	uint32 nrows;
	uint32 nnulls;
	bool has_bounds;
	bool max_is_prefix; /* the maximum was cut */
	ZoneBound min;
	ZoneBound max;
} ZoneMap;

/* Zone map of rows [first, first + nrows). */
extern void zone_map_compute(ZoneMap *map, const ColumnValues *values, uint32 first, uint32 nrows);

/* The total of a numeric column, known as long as all values have one scale and it fits. */
typedef struct NumericSum
{
	bool known;
	bool any; /* was there a value yet? */
	int32 scale;
	int128 total;
} NumericSum;

/* zone_map_compute() of FORM_NUMERIC, adding the values up on the way (*sum starts as {true}). */
extern void zone_map_compute_numeric(ZoneMap *map, const ColumnValues *values, uint32 first,
									 uint32 nrows, NumericSum *sum);
/* ZONE_BYTES: how many of the bytes take part in comparisons (less for character(n) and name). */
extern uint32 zone_map_trim(const ColumnType *type, const char *bytes, uint32 length);
/*
 * Is the minimum (maximum) a value that the column has, and are all values that equal it the same
 * to the last bit?  numerics: all of them must have one scale.
 */
extern bool zone_map_has_value(const ColumnType *type, const ZoneMap *map, bool max);
/* Widens `map` (zeroed at first) by another of the same column. */
extern void zone_map_merge(const ColumnType *type, ZoneMap *map, const ZoneMap *other);
extern void zone_map_write(const ColumnType *type, const ZoneMap *map, ByteBuffer *into);
extern void zone_map_read(const ColumnType *type, ByteCursor *cursor, ZoneMap *map);

#endif
