/*
 * numeric_scaled.h
 *		A numeric as mantissa and display scale: 1.10 is 110 and 2.
 *
 * Bytes are those after the varlena header.
 */
#ifndef COLUMNAR_NUMERIC_SCALED_H
#define COLUMNAR_NUMERIC_SCALED_H

#include "compat.h"

#define NUMERIC_POWERS_OF_TEN 20

/* The largest display scale. */
#define NUMERIC_SCALE_MAX 0x3FFF

/* 10 ^ 0 .. 10 ^ 19; the last is no int64. */
extern const uint64 numeric_powers_of_ten[NUMERIC_POWERS_OF_TEN];

/*
 * Mantissa and scale of a numeric; false for NaN, infinities and mantissas beyond int128.
 * Exact: trailing zeros of the scale count.
 */
extern bool numeric_to_scaled(const char *bytes, uint32 length, int128 *mantissa, int32 *scale);

/* The same, true only if numeric_from_scaled() would make these very bytes of them. */
extern bool
numeric_to_scaled_exactly(const char *bytes, uint32 length, int128 *mantissa, int32 *scale);

/* The numeric datum of mantissa / 10^scale with display scale `scale`, in the current context. */
extern Datum numeric_from_scaled(int128 mantissa, int32 scale);

/* Are these bytes that numeric's functions can be called with? */
extern bool numeric_is_valid(const char *bytes, uint32 length);

#endif
