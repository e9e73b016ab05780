/*
 * zone_map.c
 *		Computing, merging and storing the bounds of blocks and chunks.
 *
 * Bounds must hold, whatever becomes of the column's type or collation without a
 * rewrite (column_type.c): stored bounds name the order they were made in, and are
 * read back as "no bounds" by a column that has another.  Integers and byte
 * strings need only the order's kind for that; the order of a comparison function
 * is named by a fingerprint of function and collation.
 *
 * Stored form (varint.h), as short as can be, since every block has one:
 *
 *		u8		flags: order (ZoneOrder) in bits 0..2, then the ZONE_FLAG_* below
 *		varint	rows, then NULLs
 *		u32		fingerprint of the comparison function (ZONE_COMPARE with bounds)
 *		bounds	ZONE_FLOAT: 8 bytes each; other numbers: varint minimum (folded), varint
 *				maximum - minimum; bytes: u8 length and the bytes, each.
 *				Without ZONE_FLAG_HAS_BOUNDS: nothing; with ZONE_FLAG_EQUAL: one bound.
 */
#include "compat.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "utils/memutils.h"

#include "store/codec/numeric_codec.h"
#include "store/value/varint.h"
#include "store/chunk/zone_map.h"

#define ZONE_ORDER_MASK 0x07
#define ZONE_FLAG_HAS_BOUNDS 0x08
#define ZONE_FLAG_MAX_IS_PREFIX 0x10
#define ZONE_FLAG_VARIANT 0x20 /* integers: of an unsigned type; bytes: trailing blanks trimmed */
#define ZONE_FLAG_EQUAL 0x40   /* the maximum is the minimum */
#define ZONE_FLAG_NUMBERS 0x80 /* bounds are numbers, not bytes */

static bool
has_values(const ZoneMap *map)
{
	return map->nrows > map->nnulls;
}

static bool
has_number_bounds(const ColumnType *type)
{
	return type->form == FORM_INT || type->form == FORM_FLOAT;
}

static bool
is_null_row(const ColumnValues *values, uint32 row)
{
	return values->nulls != NULL && values->nulls[row];
}

static uint32
count_nulls(const ColumnValues *values, uint32 first, uint32 nrows)
{
	uint32 count = 0;

	if (values->nulls == NULL)
		return 0;
	for (uint32 i = 0; i < nrows; i++)
		count += values->nulls[first + i];
	return count;
}

/* ---- orders ------------------------------------------------------------------------------------ */

static double
to_double(int64 bits)
{
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* The bits of a bound; there is one zero and one NaN. */
static int64
to_bound_bits(double value)
{
	int64 bits;

	if (isnan(value))
		value = NAN;
	memcpy(&bits, &value, sizeof(bits));
	return value == 0.0 ? 0 : bits;
}

static int
compare_floats(double a, double b)
{
	if (isnan(a) || isnan(b))
		return (int) isnan(a) - (int) isnan(b);
	return a < b ? -1 : a > b;
}

static int
compare_bytes(const char *a, uint32 alength, const char *b, uint32 blength)
{
	int order = memcmp(a, b, Min(alength, blength));

	if (order != 0)
		return order;
	return alength < blength ? -1 : alength > blength;
}

/* The type's comparison; what it leaks stays in the current context. */
static int
compare_datums(const ColumnType *type, Datum a, Datum b)
{
	return DatumGetInt32(FunctionCall2Coll((FmgrInfo *) &type->compare, type->collation, a, b));
}

static Datum
make_bound_datum(const ColumnType *type, const ZoneBound *bound)
{
	if (has_number_bounds(type))
		return column_type_from_int(type, bound->number);
	return column_type_from_bytes(type, bound->bytes, bound->length);
}

static int
compare_bounds(const ColumnType *type, const ZoneBound *a, const ZoneBound *b)
{
	switch (type->zone)
	{
		case ZONE_INT:
			return a->number < b->number ? -1 : a->number > b->number;
		case ZONE_FLOAT:
			return compare_floats(to_double(a->number), to_double(b->number));
		case ZONE_BYTES:
			return compare_bytes(a->bytes, a->length, b->bytes, b->length);
		case ZONE_COMPARE:
			return compare_datums(type, make_bound_datum(type, a), make_bound_datum(type, b));
		case ZONE_NONE:
			break;
	}
	return 0;
}

uint32
zone_map_trim(const ColumnType *type, const char *bytes, uint32 length)
{
	if (type->trim_blanks)
	{
		while (length > 0 && bytes[length - 1] == ' ')
			length--;
	}
	else if (type->typid == NAMEOID)
		length = strnlen(bytes, length);
	return length;
}

bool
zone_map_has_value(const ColumnType *type, const ZoneMap *map, bool max)
{
	const ZoneBound *bound = max ? &map->max : &map->min;

	if (!map->has_bounds)
		return false;
	switch (type->zone)
	{
		case ZONE_INT:
			return true;
		case ZONE_FLOAT:
			/* there are two zeroes, and more NaNs */
			return bound->number != 0 && !isnan(to_double(bound->number));
		case ZONE_BYTES:
			/* that a minimum was cut is not written down */
			return type->bytes_are_ordered && !type->trim_blanks && type->typid != NAMEOID &&
				   (max ? !map->max_is_prefix : bound->length < ZONE_PREFIX);
		case ZONE_COMPARE:
			return type->form == FORM_NUMERIC;
		case ZONE_NONE:
			break;
	}
	return false;
}

/* ---- computing --------------------------------------------------------------------------------- */

/* Smallest and largest of a whole block. */
FORMAT_VECTORISED static void
find_block_range(const int64 *ints, int64 *min, int64 *max)
{
	int64 smallest = ints[0];
	int64 largest = ints[0];

	for (int i = 0; i < BLOCK_ROWS; i++)
	{
		smallest = Min(smallest, ints[i]);
		largest = Max(largest, ints[i]);
	}
	*min = smallest;
	*max = largest;
}

/* Smallest and largest of the rows that are not NULL, of which there is one. */
static void
find_range(const ColumnValues *values, uint32 first, uint32 nrows, uint32 nnulls, int64 *min,
		   int64 *max)
{
	const int64 *ints = values->ints + first;

	if (nnulls == 0 && nrows == BLOCK_ROWS)
	{
		find_block_range(ints, min, max);
		return;
	}
	*min = PG_INT64_MAX;
	*max = PG_INT64_MIN;
	for (uint32 i = 0; i < nrows; i++)
	{
		if (nnulls > 0 && values->nulls[first + i])
			continue;
		*min = Min(*min, ints[i]);
		*max = Max(*max, ints[i]);
	}
}

static void
compute_int(ZoneMap *map, const ColumnValues *values, uint32 first, uint32 nrows)
{
	find_range(values, first, nrows, map->nnulls, &map->min.number, &map->max.number);
	map->has_bounds = true;
}

static double
get_double(const ColumnValues *values, uint32 row)
{
	int64 bits = values->ints[row];
	uint32 single_bits = (uint32) bits;
	float4 single;

	if (values->type->length != sizeof(float4))
		return to_double(bits);
	memcpy(&single, &single_bits, sizeof(single));
	return single;
}

static void
compute_float(ZoneMap *map, const ColumnValues *values, uint32 first, uint32 nrows)
{
	double min = INFINITY;
	double max = -INFINITY;
	uint32 nnans = 0;

	for (uint32 i = 0; i < nrows; i++)
	{
		double value;

		if (is_null_row(values, first + i))
			continue;
		value = get_double(values, first + i);
		nnans += isnan(value) != 0;
		min = value < min ? value : min;
		max = value > max ? value : max;
	}
	if (nnans == map->nrows - map->nnulls)
		min = NAN;
	if (nnans > 0)
		max = NAN;
	map->min.number = to_bound_bits(min);
	map->max.number = to_bound_bits(max);
	map->has_bounds = true;
}

/* A byte string with its first 8 bytes as a number, which decides most comparisons. */
typedef struct PrefixedBytes
{
	uint64 prefix;
	const char *bytes;
	uint32 length;
} PrefixedBytes;

static inline PrefixedBytes
get_prefixed_bytes(const ColumnValues *values, uint32 row)
{
	PrefixedBytes value;

	value.bytes = column_values_bytes(values, row, &value.length);
	value.length = zone_map_trim(values->type, value.bytes, value.length);
	value.prefix = pg_bswap64(bytes_first_word(value.bytes, value.length));
	return value;
}

static inline int
compare_prefixed(const PrefixedBytes *a, const PrefixedBytes *b)
{
	if (a->prefix != b->prefix)
		return a->prefix < b->prefix ? -1 : 1;
	return compare_bytes(a->bytes, a->length, b->bytes, b->length);
}

static void
set_bytes(ZoneBound *bound, const char *bytes, uint32 length)
{
	bound->length = (uint16) length;
	memcpy(bound->bytes, bytes, length);
}

static void
compute_bytes(ZoneMap *map, const ColumnValues *values, uint32 first, uint32 nrows)
{
	PrefixedBytes min = {0};
	PrefixedBytes max = {0};
	bool any = false;

	for (uint32 i = 0; i < nrows; i++)
	{
		PrefixedBytes value;

		if (is_null_row(values, first + i))
			continue;
		value = get_prefixed_bytes(values, first + i);
		if (!any || compare_prefixed(&value, &min) < 0)
			min = value;
		if (!any || compare_prefixed(&value, &max) > 0)
			max = value;
		any = true;
	}
	if (!any)
		return;
	set_bytes(&map->min, min.bytes, Min(min.length, ZONE_PREFIX));
	set_bytes(&map->max, max.bytes, Min(max.length, ZONE_PREFIX));
	map->max_is_prefix = max.length > ZONE_PREFIX;
	map->has_bounds = true;
}

/* Is every value short enough to be a bound? */
static bool
are_values_short(const ColumnValues *values, uint32 first, uint32 nrows)
{
	for (uint32 i = 0; i < nrows; i++)
	{
		uint32 length;

		column_values_bytes(values, first + i, &length);
		if (length > ZONE_BOUND_MAX)
			return false;
	}
	return true;
}

static void
set_from_row(ZoneBound *bound, const ColumnValues *values, uint32 row)
{
	if (has_number_bounds(values->type))
		bound->number = values->ints[row];
	else
	{
		uint32 length;
		const char *bytes = column_values_bytes(values, row, &length);

		set_bytes(bound, bytes, length);
	}
}

static void
compute_compare(ZoneMap *map, const ColumnValues *values, uint32 first, uint32 nrows)
{
	const ColumnType *type = values->type;
	MemoryContext context;
	MemoryContext old;
	Datum min = 0;
	Datum max = 0;
	uint32 min_row = 0;
	uint32 max_row = 0;
	bool any = false;

	if (!has_number_bounds(type) && !are_values_short(values, first, nrows))
		return;

	context = AllocSetContextCreate(CurrentMemoryContext, "columnar zone map",
									ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	for (uint32 row = first; row < first + nrows; row++)
	{
		bool isnull;
		Datum value = column_values_datum(values, row, &isnull);

		if (isnull)
			continue;
		if (!any || compare_datums(type, value, min) < 0)
		{
			min = value;
			min_row = row;
		}
		if (!any || compare_datums(type, value, max) > 0)
		{
			max = value;
			max_row = row;
		}
		any = true;
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);

	set_from_row(&map->min, values, min_row);
	set_from_row(&map->max, values, max_row);
	map->has_bounds = true;
}

/* ---- numeric ----------------------------------------------------------------------------------- */

typedef struct ScaledValue
{
	uint32 row;
	bool is_scaled; /* mantissa and scale are known */
	int32 scale;
	int128 mantissa;
} ScaledValue;

static ScaledValue
get_scaled(const ColumnValues *values, uint32 row)
{
	ScaledValue value = {.row = row};
	uint32 length;
	const char *bytes = column_values_bytes(values, row, &length);

	value.is_scaled = numeric_to_scaled(bytes, length, &value.mantissa, &value.scale);
	return value;
}

/* mantissa * 10^digits; false if that may not fit. */
static bool
rescale(int128 *mantissa, int32 digits)
{
	if (digits > 18 || *mantissa > PG_INT64_MAX || *mantissa < PG_INT64_MIN)
		return false;
	for (int32 i = 0; i < digits; i++)
		*mantissa *= 10;
	return true;
}

static int
compare_numerics(const ColumnValues *values, ScaledValue a, ScaledValue b)
{
	bool isnull;

	if (a.is_scaled && b.is_scaled)
	{
		bool same = a.scale == b.scale;

		if (!same)
			same = a.scale < b.scale ? rescale(&a.mantissa, b.scale - a.scale)
									 : rescale(&b.mantissa, a.scale - b.scale);
		if (same)
			return a.mantissa < b.mantissa ? -1 : a.mantissa > b.mantissa;
	}
	return compare_datums(values->type, column_values_datum(values, a.row, &isnull),
						  column_values_datum(values, b.row, &isnull));
}

static void
add_to_sum(NumericSum *sum, const ScaledValue *value)
{
	if (!sum->any)
		sum->scale = value->scale;
	sum->any = true;
	sum->known = sum->known && value->is_scaled && value->scale == sum->scale &&
				 !__builtin_add_overflow(sum->total, value->mantissa, &sum->total);
}

static void
set_scaled(ZoneBound *bound, int64 mantissa, int32 scale)
{
	void *value = DatumGetPointer(numeric_from_scaled(mantissa, scale));

	set_bytes(bound, VARDATA(value), VARSIZE(value) - VARHDRSZ);
	pfree(value);
}

/* Mantissas, which have one scale. */
static void
compute_scaled(ZoneMap *map, const ColumnValues *values, uint32 first, uint32 nrows,
			   NumericSum *sum)
{
	int64 min;
	int64 max;

	find_range(values, first, nrows, map->nnulls, &min, &max);
	if (values->type->zone == ZONE_COMPARE)
	{
		set_scaled(&map->min, min, values->scale);
		set_scaled(&map->max, max, values->scale);
		map->has_bounds = true;
	}
	sum->any = true;
	sum->scale = values->scale;
	/* rows that are NULL hold 0, and no row group's mantissas pass 128 bits */
	for (uint32 i = 0; i < nrows; i++)
		sum->total += values->ints[first + i];
}

void
zone_map_compute_numeric(ZoneMap *map, const ColumnValues *values, uint32 first, uint32 nrows,
						 NumericSum *sum)
{
	MemoryContext context;
	MemoryContext old;
	ScaledValue min;
	ScaledValue max;
	uint32 length;
	bool any = false;

	memset(map, 0, sizeof(*map));
	map->nrows = nrows;
	map->nnulls = count_nulls(values, first, nrows);
	if (!has_values(map))
		return;
	if (column_values_are_scaled(values))
	{
		compute_scaled(map, values, first, nrows, sum);
		return;
	}

	context = AllocSetContextCreate(CurrentMemoryContext, "columnar zone map",
									ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	for (uint32 row = first; row < first + nrows; row++)
	{
		ScaledValue value;

		if (is_null_row(values, row))
			continue;
		value = get_scaled(values, row);
		add_to_sum(sum, &value);
		if (!any || compare_numerics(values, value, min) < 0)
			min = value;
		if (!any || compare_numerics(values, value, max) > 0)
			max = value;
		any = true;
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);

	column_values_bytes(values, min.row, &length);
	map->has_bounds = values->type->zone == ZONE_COMPARE && length <= ZONE_BOUND_MAX;
	column_values_bytes(values, max.row, &length);
	map->has_bounds = map->has_bounds && length <= ZONE_BOUND_MAX;
	if (!map->has_bounds)
		return;
	set_from_row(&map->min, values, min.row);
	set_from_row(&map->max, values, max.row);
}

void
zone_map_compute(ZoneMap *map, const ColumnValues *values, uint32 first, uint32 nrows)
{
	if (values->type->form == FORM_NUMERIC)
	{
		NumericSum sum = {.known = true};

		zone_map_compute_numeric(map, values, first, nrows, &sum);
		return;
	}
	memset(map, 0, sizeof(*map));
	map->nrows = nrows;
	map->nnulls = count_nulls(values, first, nrows);
	if (!has_values(map))
		return;
	switch (values->type->zone)
	{
		case ZONE_INT:
			compute_int(map, values, first, nrows);
			break;
		case ZONE_FLOAT:
			compute_float(map, values, first, nrows);
			break;
		case ZONE_BYTES:
			compute_bytes(map, values, first, nrows);
			break;
		case ZONE_COMPARE:
			compute_compare(map, values, first, nrows);
			break;
		case ZONE_NONE:
			break;
	}
}

/* ---- merging ----------------------------------------------------------------------------------- */

static void
merge_bounds(const ColumnType *type, ZoneMap *map, const ZoneMap *other)
{
	int order = compare_bounds(type, &other->max, &map->max);

	/* of two equal maxima the cut one is larger: anything may follow */
	if (order > 0 || (order == 0 && other->max_is_prefix))
	{
		map->max = other->max;
		map->max_is_prefix = other->max_is_prefix;
	}
	if (compare_bounds(type, &other->min, &map->min) < 0)
		map->min = other->min;
}

void
zone_map_merge(const ColumnType *type, ZoneMap *map, const ZoneMap *other)
{
	bool had_values = has_values(map);

	map->nrows += other->nrows;
	map->nnulls += other->nnulls;
	if (!has_values(other))
		return;
	if (!had_values)
	{
		map->has_bounds = other->has_bounds;
		map->max_is_prefix = other->max_is_prefix;
		map->min = other->min;
		map->max = other->max;
	}
	else if (map->has_bounds && other->has_bounds)
		merge_bounds(type, map, other);
	else
		map->has_bounds = false;
}

/* ---- storing ----------------------------------------------------------------------------------- */

/* Names the order of a comparison function: of another function or collation it differs. */
static uint32
make_fingerprint(const ColumnType *type)
{
	uint64 mixed = ((uint64) type->compare.fn_oid << 32 | type->collation) *
				   UINT64CONST(0x9E3779B97F4A7C15);

	return (uint32) (mixed >> 32);
}

static bool
has_variant(const ColumnType *type)
{
	return type->zone == ZONE_INT ? type->is_unsigned : type->trim_blanks;
}

static bool
are_bounds_equal(const ColumnType *type, const ZoneMap *map)
{
	if (has_number_bounds(type))
		return map->min.number == map->max.number;
	return map->min.length == map->max.length &&
		   memcmp(map->min.bytes, map->max.bytes, map->min.length) == 0;
}

static void
write_bytes(const ZoneBound *bound, ByteBuffer *into)
{
	byte_buffer_put_u8(into, (uint8) bound->length);
	byte_buffer_append(into, bound->bytes, bound->length);
}

void
zone_map_write(const ColumnType *type, const ZoneMap *map, ByteBuffer *into)
{
	uint8 flags = type->zone;
	bool equal = false;

	if (map->has_bounds)
	{
		equal = are_bounds_equal(type, map);
		flags |= ZONE_FLAG_HAS_BOUNDS;
		flags |= map->max_is_prefix ? ZONE_FLAG_MAX_IS_PREFIX : 0;
		flags |= has_variant(type) ? ZONE_FLAG_VARIANT : 0;
		flags |= equal ? ZONE_FLAG_EQUAL : 0;
		flags |= has_number_bounds(type) ? ZONE_FLAG_NUMBERS : 0;
	}
	byte_buffer_put_u8(into, flags);
	varint_put(into, map->nrows);
	varint_put(into, map->nnulls);
	if (!map->has_bounds)
		return;

	if (type->zone == ZONE_COMPARE)
		byte_buffer_put_u32(into, make_fingerprint(type));
	if (type->zone == ZONE_FLOAT)
	{
		byte_buffer_put_u64(into, (uint64) map->min.number);
		if (!equal)
			byte_buffer_put_u64(into, (uint64) map->max.number);
	}
	else if (has_number_bounds(type))
	{
		varint_put_signed(into, map->min.number);
		if (!equal)
			varint_put(into, (uint64) map->max.number - (uint64) map->min.number);
	}
	else
	{
		write_bytes(&map->min, into);
		if (!equal)
			write_bytes(&map->max, into);
	}
}

static void
read_bytes(ByteCursor *cursor, ZoneBound *bound)
{
	uint8 length = byte_cursor_u8(cursor);

	if (length > ZONE_BOUND_MAX)
		format_damaged("a bound of a zone map has %u bytes", length);
	set_bytes(bound, byte_cursor_bytes(cursor, length), length);
}

/* Reads the bounds as the flags describe them, whatever the column's type is now. */
static void
read_bounds(uint8 flags, ByteCursor *cursor, ZoneMap *map)
{
	bool equal = (flags & ZONE_FLAG_EQUAL) != 0;

	if ((flags & ZONE_FLAG_NUMBERS) == 0)
	{
		read_bytes(cursor, &map->min);
		if (!equal)
			read_bytes(cursor, &map->max);
	}
	else if ((flags & ZONE_ORDER_MASK) == ZONE_FLOAT)
	{
		map->min.number = (int64) byte_cursor_u64(cursor);
		if (!equal)
			map->max.number = (int64) byte_cursor_u64(cursor);
	}
	else
	{
		map->min.number = varint_get_signed(cursor);
		if (!equal)
			map->max.number = (int64) ((uint64) map->min.number + varint_get(cursor));
	}
	if (equal)
		map->max = map->min;
}

/* Bounds that the column's own comparison can be given: of the right size and not crossed. */
static bool
are_bounds_sound(const ColumnType *type, const ZoneMap *map)
{
	if (has_number_bounds(type))
		return type->zone != ZONE_INT || map->min.number <= map->max.number;
	if (type->zone == ZONE_BYTES)
		return map->min.length <= ZONE_PREFIX && map->max.length <= ZONE_PREFIX;
	if (type->form == FORM_FIXED)
		return map->min.length == type->length && map->max.length == type->length;
	return true;
}

void
zone_map_read(const ColumnType *type, ByteCursor *cursor, ZoneMap *map)
{
	uint8 flags = byte_cursor_u8(cursor);
	uint32 fingerprint = 0;

	memset(map, 0, sizeof(*map));
	map->nrows = varint_get_limited(cursor, PG_UINT32_MAX, "the number of rows of a zone map");
	map->nnulls = varint_get_limited(cursor, map->nrows, "the number of NULLs of a zone map");
	if ((flags & ZONE_FLAG_HAS_BOUNDS) == 0)
		return;
	if (!has_values(map))
		format_damaged("a zone map without values has bounds");
	if ((flags & ZONE_ORDER_MASK) == ZONE_COMPARE)
		fingerprint = byte_cursor_u32(cursor);
	read_bounds(flags, cursor, map);

	/* made in an order that is no longer the column's: they say nothing now */
	if ((flags & ZONE_ORDER_MASK) != type->zone ||
		((flags & ZONE_FLAG_VARIANT) != 0) != has_variant(type) ||
		((flags & ZONE_FLAG_NUMBERS) != 0) != has_number_bounds(type) ||
		(type->zone == ZONE_COMPARE && fingerprint != make_fingerprint(type)))
		return;

	if (!are_bounds_sound(type, map))
		format_damaged("the bounds of a zone map do not fit its type");
	map->has_bounds = true;
	map->max_is_prefix = (flags & ZONE_FLAG_MAX_IS_PREFIX) != 0;
}
