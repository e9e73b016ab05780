/*
 * test_zone_map.c
 *		Bounds are those of the values, survive merging and storing, and are forgotten
 *		where the order is another.
 */
#include "column_harness.h"

#include "store/chunk/zone_map.h"

static ZoneMap
store_map(const ColumnType *written_as, const ColumnType *read_as, const ZoneMap *map)
{
	ByteBuffer buffer;
	ByteCursor cursor;
	ZoneMap result;

	byte_buffer_init(&buffer, 0);
	zone_map_write(written_as, map, &buffer);
	cursor = (ByteCursor){buffer.data, buffer.data + buffer.length};
	zone_map_read(read_as, &cursor, &result);
	CHECK(cursor.at == cursor.end);
	byte_buffer_free(&buffer);
	return result;
}

static bool
are_bounds_same(const ColumnType *type, const ZoneBound *a, const ZoneBound *b)
{
	if (type->byval)
		return a->number == b->number;
	return a->length == b->length && memcmp(a->bytes, b->bytes, a->length) == 0;
}

static bool
are_maps_same(const ColumnType *type, const ZoneMap *a, const ZoneMap *b)
{
	return a->nrows == b->nrows && a->nnulls == b->nnulls && a->has_bounds == b->has_bounds &&
		   a->max_is_prefix == b->max_is_prefix &&
		   (!a->has_bounds ||
			(are_bounds_same(type, &a->min, &b->min) && are_bounds_same(type, &a->max, &b->max)));
}

/* ---- all kinds --------------------------------------------------------------------------------- */

/* A map of all rows is the merged maps of their parts, and comes back as it was stored. */
static void
check_merge(void *argument)
{
	ColumnKind kind = *(ColumnKind *) argument;
	ColumnType type = make_type(kind);
	uint32 nrows = 1 + harness_random_below(2000);
	ColumnValues values;
	ZoneMap whole;
	ZoneMap merged = {0};
	ZoneMap stored;

	fill_values(&values, &type, kind, harness_random_below(NPATTERNS), nrows,
				harness_random_below(2) == 0 ? 0 : harness_random_below(101));
	zone_map_compute(&whole, &values, 0, nrows);
	CHECK(whole.nrows == nrows && whole.nnulls == values.nnulls);
	for (uint32 first = 0; first < nrows;)
	{
		uint32 n = 1 + harness_random_below(nrows - first);
		ZoneMap part;

		zone_map_compute(&part, &values, first, n);
		zone_map_merge(&type, &merged, &part);
		first += n;
	}
	/* which of equal ones (1.0, 1.00) is the bound depends on the order of looking */
	if (kind != KIND_NUMERIC_MIXED)
		CHECK_THAT(are_maps_same(&type, &whole, &merged), "kind %d: parts have other bounds", kind);
	CHECK(whole.has_bounds == merged.has_bounds);
	if (whole.has_bounds)
		CHECK(whole.nnulls < whole.nrows && type.zone != ZONE_NONE);

	stored = store_map(&type, &type, &whole);
	CHECK_THAT(are_maps_same(&type, &whole, &stored), "kind %d: other bounds were stored", kind);
}

/* ---- single orders ----------------------------------------------------------------------------- */

static ZoneMap
compute_floats(const double *numbers, int n)
{
	ColumnType type = make_type(KIND_FLOAT8);
	ColumnValues values;
	ZoneMap map;

	column_values_init(&values, &type);
	for (int i = 0; i < n; i++)
		column_values_append(&values, Float8GetDatum(numbers[i]), false);
	zone_map_compute(&map, &values, 0, n);
	CHECK(map.has_bounds);
	return store_map(&type, &type, &map);
}

static double
to_float(const ZoneBound *bound)
{
	return DatumGetFloat8(Int64GetDatum(bound->number));
}

/* NaN is the largest; -0 is 0, and stored as that. */
static void
check_floats(void *argument)
{
	double mixed[] = {3, NAN, -INFINITY, 7};
	double nans[] = {NAN, -NAN};
	double zeros[] = {-0.0, -0.0};
	double infinite[] = {INFINITY, INFINITY};
	ZoneMap map = compute_floats(mixed, 4);

	CHECK(to_float(&map.min) == -INFINITY && isnan(to_float(&map.max)));
	map = compute_floats(nans, 2);
	CHECK(isnan(to_float(&map.min)) && isnan(to_float(&map.max)));
	CHECK(map.min.number == map.max.number);
	map = compute_floats(zeros, 2);
	CHECK(map.min.number == 0 && map.max.number == 0);
	map = compute_floats(infinite, 2);
	CHECK(to_float(&map.min) == INFINITY && to_float(&map.max) == INFINITY);
}

static ZoneMap
compute_strings(const ColumnType *type, const char *const *strings, int n)
{
	ColumnValues values;
	ZoneMap map;

	column_values_init(&values, type);
	for (int i = 0; i < n; i++)
	{
		if (strings[i] == NULL)
			column_values_append(&values, (Datum) 0, true);
		else
			column_values_append(&values, make_varlena(strings[i], strlen(strings[i])), false);
	}
	zone_map_compute(&map, &values, 0, n);
	return store_map(type, type, &map);
}

static bool
is_bound(const ZoneBound *bound, const char *string)
{
	return bound->length == strlen(string) && memcmp(bound->bytes, string, bound->length) == 0;
}

/* Long strings are cut, the minimum downwards, the maximum with a flag. */
static void
check_strings(void *argument)
{
	ColumnType type = make_type(KIND_TEXT);
	ZoneMap map;
	ZoneMap merged = {0};

	map = compute_strings(&type, (const char *[]){"b", "", NULL, "abc"}, 4);
	CHECK(map.has_bounds && !map.max_is_prefix && map.nnulls == 1);
	CHECK(is_bound(&map.min, "") && is_bound(&map.max, "b"));

	/* the first eight bytes are equal, or bytes are above 127 */
	map = compute_strings(&type, (const char *[]){"12345678b", "12345678", "12345678a"}, 3);
	CHECK(is_bound(&map.min, "12345678") && is_bound(&map.max, "12345678b"));
	map = compute_strings(&type, (const char *[]){"\xff", "z", "\xe4"}, 3);
	CHECK(is_bound(&map.min, "z") && is_bound(&map.max, "\xff"));

	map = compute_strings(
		&type, (const char *[]){"aaaaaaaaaaaaaaaaaaaaaaaaXXX", "bbbbbbbbbbbbbbbbbbbbbbbb"}, 2);
	CHECK(is_bound(&map.min, "aaaaaaaaaaaaaaaaaaaaaaaa") && !map.max_is_prefix);
	zone_map_merge(&type, &merged, &map);
	map = compute_strings(&type, (const char *[]){"bbbbbbbbbbbbbbbbbbbbbbbbY", "c"}, 1);
	CHECK(is_bound(&map.max, "bbbbbbbbbbbbbbbbbbbbbbbb") && map.max_is_prefix);

	/* merged in both directions, the cut maximum wins */
	zone_map_merge(&type, &merged, &map);
	CHECK(merged.max_is_prefix && is_bound(&merged.max, "bbbbbbbbbbbbbbbbbbbbbbbb"));
	zone_map_merge(&type, &map, &merged);
	CHECK(map.max_is_prefix && is_bound(&map.min, "aaaaaaaaaaaaaaaaaaaaaaaa"));

	type = make_type(KIND_BPCHAR);
	map = compute_strings(&type, (const char *[]){"ab   ", "ab\x01  ", "   "}, 3);
	CHECK(is_bound(&map.min, "") && is_bound(&map.max, "ab\x01"));
}

/* NULLs alone give no bounds, and spoil none; a value too long to be one does. */
static void
check_missing_bounds(void *argument)
{
	ColumnType type = make_type(KIND_VARLENA_COMPARE);
	char longer[ZONE_BOUND_MAX + 2];
	ZoneMap nulls = compute_strings(&type, (const char *[]){NULL, NULL}, 2);
	ZoneMap some = compute_strings(&type, (const char *[]){"zz", "a", NULL}, 3);
	ZoneMap none;
	ZoneMap merged = {0};

	memset(longer, 'x', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	none = compute_strings(&type, (const char *[]){longer, "a"}, 2);
	CHECK(!nulls.has_bounds && some.has_bounds && !none.has_bounds);
	CHECK(is_bound(&some.min, "a") && is_bound(&some.max, "zz"));

	zone_map_merge(&type, &merged, &nulls);
	CHECK(!merged.has_bounds && merged.nrows == 2 && merged.nnulls == 2);
	zone_map_merge(&type, &merged, &some);
	CHECK(merged.has_bounds && is_bound(&merged.max, "zz"));
	zone_map_merge(&type, &merged, &nulls);
	CHECK(merged.has_bounds && merged.nrows == 7 && merged.nnulls == 5);
	zone_map_merge(&type, &merged, &none);
	CHECK(!merged.has_bounds);
	zone_map_merge(&type, &merged, &some);
	CHECK(!merged.has_bounds && merged.nrows == 12);
}

/* numeric: across scales, by the comparison function where integers are no help. */
static void
check_numerics(void *argument)
{
	ColumnType type = make_type(KIND_NUMERIC);
	const uint16 nan = 0xC000;
	NumericSum sum = {.known = true};
	ColumnValues values;
	ZoneMap map;
	int128 mantissa;
	int32 scale;

	column_values_init(&values, &type);
	column_values_append(&values, numeric_from_scaled(150, 2), false);
	column_values_append(&values, numeric_from_scaled(-2000, 2), false);
	zone_map_compute_numeric(&map, &values, 0, 2, &sum);
	CHECK(map.has_bounds && sum.known && sum.any && sum.scale == 2 && sum.total == -1850);

	column_values_append(&values, numeric_from_scaled(16, 1), false);
	zone_map_compute_numeric(&map, &values, 0, 3, &sum);
	CHECK(!sum.known);
	CHECK(numeric_to_scaled(map.max.bytes, map.max.length, &mantissa, &scale));
	CHECK(mantissa == 16 && scale == 1);
	CHECK(numeric_to_scaled(map.min.bytes, map.min.length, &mantissa, &scale));
	CHECK(mantissa == -2000 && scale == 2);

	column_values_append(&values, make_varlena((const char *) &nan, sizeof(nan)), false);
	zone_map_compute(&map, &values, 0, 4);
	CHECK(!numeric_to_scaled(map.max.bytes, map.max.length, &mantissa, &scale));
	sum = (NumericSum){.known = true};
	zone_map_compute_numeric(&map, &values, 3, 1, &sum);
	CHECK(!sum.known && map.has_bounds);
}

/* ---- another order ----------------------------------------------------------------------------- */

static void
check_forgotten(ColumnKind kind, const ColumnType *other)
{
	ColumnType type = make_type(kind);
	ColumnValues values;
	ZoneMap map;
	ZoneMap stored;

	fill_values(&values, &type, kind, PATTERN_ASCENDING, 20, 0);
	zone_map_compute(&map, &values, 0, 20);
	CHECK(map.has_bounds);
	stored = store_map(&type, &type, &map);
	CHECK(stored.has_bounds);
	stored = store_map(&type, other, &map);
	CHECK_THAT(!stored.has_bounds && stored.nrows == 20, "kind %d keeps bounds", kind);
}

static void
check_other_orders(void *argument)
{
	ColumnType other = make_type(KIND_OID);

	check_forgotten(KIND_INT4, &other);
	other = make_type(KIND_BPCHAR);
	check_forgotten(KIND_TEXT, &other);
	other = make_type(KIND_VARLENA_UNORDERED);
	check_forgotten(KIND_TEXT, &other);
	other = make_type(KIND_LSN);
	check_forgotten(KIND_INT8, &other);
	other = make_type(KIND_FIXED_COMPARE);
	other.collation = 950;
	check_forgotten(KIND_FIXED_COMPARE, &other);
	other = make_type(KIND_LSN);
	other.compare.fn_oid++;
	check_forgotten(KIND_LSN, &other);
}

/* ---- damage ------------------------------------------------------------------------------------ */

typedef struct DamageCase
{
	ColumnType type;
	const char *bytes;
	uint64 length;
} DamageCase;

/* What is read can be merged, that is compared. */
static void
read_damaged(void *argument)
{
	DamageCase *damage = argument;
	ByteCursor cursor = {damage->bytes, damage->bytes + damage->length};
	ZoneMap map;
	ZoneMap copy;

	zone_map_read(&damage->type, &cursor, &map);
	copy = map;
	/* the numeric functions of PostgreSQL are not here to be tested */
	if (damage->type.form != FORM_NUMERIC)
		zone_map_merge(&damage->type, &copy, &map);
}

static void
check_damaged_kind(void *argument)
{
	ColumnKind kind = *(ColumnKind *) argument;
	DamageCase damage = {make_type(kind)};
	ColumnValues values;
	ByteBuffer buffer;
	ZoneMap map;

	fill_values(&values, &damage.type, kind, PATTERN_RANDOM, 5, 10);
	zone_map_compute(&map, &values, 0, 5);
	byte_buffer_init(&buffer, 0);
	zone_map_write(&damage.type, &map, &buffer);
	for (int i = 0; i < 20; i++)
	{
		char *damaged = harness_damage(buffer.data, buffer.length, &damage.length);

		damage.bytes = damaged;
		(void) harness_try_damaged(read_damaged, &damage);
		free(damaged);
	}
}

int
main(int argc, char **argv)
{
	harness_start(argc, argv);
	CHECK(harness_try(check_floats, NULL));
	CHECK(harness_try(check_strings, NULL));
	CHECK(harness_try(check_missing_bounds, NULL));
	CHECK(harness_try(check_numerics, NULL));
	CHECK(harness_try(check_other_orders, NULL));
	while (harness_time_is_left(300))
	{
		int kind = harness_random_below(NKINDS);

		CHECK_THAT(harness_try(check_merge, &kind), "%s", harness_error.message);
		CHECK(harness_try(check_damaged_kind, &kind));
	}
	return harness_finish();
}
