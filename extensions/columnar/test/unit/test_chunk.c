/*
 * test_chunk.c
 *		Every kind of column comes back from its chunk as it was, and no changed byte
 *		goes unnoticed.
 */
#include "chunk_harness.h"

#include <math.h>

/* What is being tested, for messages. */
typedef struct ChunkCase
{
	ColumnKind kind;
	ColumnPattern pattern;
	uint32 nrows;
	int null_percent;
	Codec codec;
} ChunkCase;

static void
fail_case(const ChunkCase *test, uint32 row, const char *what)
{
	harness_fail(__FILE__, __LINE__,
				 "%s: kind %d, pattern %d, %u rows, %d %% NULL, codec %d, row %u", what, test->kind,
				 test->pattern, test->nrows, test->null_percent, test->codec, row);
}

/* ---- comparing --------------------------------------------------------------------------------- */

static void
check_block(const ChunkCase *test, const ColumnValues *values, ColumnBlock *block, uint32 first)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "rows",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	for (uint32 i = 0; i < block->nrows; i++)
	{
		bool isnull;
		bool expected_null;
		Datum value = column_block_datum(block, i, &isnull);
		Datum expected = column_values_datum(values, first + i, &expected_null);

		if (isnull != expected_null)
			fail_case(test, first + i, "another NULL");
		if (!isnull && !are_datums_same(values->type, value, expected))
			fail_case(test, first + i, "another value");
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

static int
compare_to_bound(const ColumnType *type, const ZoneMap *zone, const ZoneBound *bound, bool is_max,
				 const ColumnValues *values, uint32 row)
{
	uint32 length;
	const char *bytes;
	bool isnull;
	double value;
	double limit;
	int order;

	switch (type->zone)
	{
		case ZONE_INT:
			return values->ints[row] < bound->number ? -1 : values->ints[row] > bound->number;
		case ZONE_FLOAT:
			value = type->length == 8 ? DatumGetFloat8(Int64GetDatum(values->ints[row]))
									  : DatumGetFloat4(Int64GetDatum(values->ints[row]));
			limit = DatumGetFloat8(Int64GetDatum(bound->number));
			if (isnan(value) || isnan(limit))
				return (int) isnan(value) - (int) isnan(limit);
			return value < limit ? -1 : value > limit;
		case ZONE_BYTES:
			bytes = column_values_bytes(values, row, &length);
			length = zone_map_trim(type, bytes, length);
			order = memcmp(bytes, bound->bytes, Min(length, bound->length));
			if (order != 0)
				return order;
			if (length <= bound->length)
				return (int) length - bound->length;
			return is_max && zone->max_is_prefix ? 0 : 1;
		case ZONE_COMPARE:
			return DatumGetInt32(FunctionCall2Coll(
				(FmgrInfo *) &type->compare, InvalidOid, column_values_datum(values, row, &isnull),
				type->byval ? column_type_from_int(type, bound->number)
							: column_type_from_bytes(type, bound->bytes, bound->length)));
		case ZONE_NONE:
			break;
	}
	return 0;
}

/* Every value lies within the bounds. */
static void
check_zone(const ChunkCase *test, const ColumnValues *values, const ZoneMap *zone, uint32 first,
		   uint32 nrows)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "rows",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	uint32 nnulls = 0;

	for (uint32 row = first; row < first + nrows; row++)
	{
		if (values->nulls != NULL && values->nulls[row])
		{
			nnulls++;
			continue;
		}
		if (!zone->has_bounds)
			continue;
		if (compare_to_bound(values->type, zone, &zone->min, false, values, row) < 0)
			fail_case(test, row, "below the minimum");
		if (compare_to_bound(values->type, zone, &zone->max, true, values, row) > 0)
			fail_case(test, row, "above the maximum");
	}
	if (zone->nrows != nrows || zone->nnulls != nnulls)
		fail_case(test, first, "wrong counts in a zone map");
	if (!zone->has_bounds && nnulls < nrows && values->type->zone != ZONE_NONE &&
		test->kind != KIND_VARLENA_COMPARE)
		fail_case(test, first, "no bounds");
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

static int
compare_uint64(const void *a, const void *b)
{
	uint64 x = *(const uint64 *) a;
	uint64 y = *(const uint64 *) b;

	return x < y ? -1 : x > y;
}

/* Sum, distinct values and Bloom filter against what the values say. */
static void
check_summary(const ChunkCase *test, const ColumnValues *values, const ChunkSummary *summary,
			  ChunkReader *reader)
{
	const ColumnType *type = values->type;
	uint64 *hashes = palloc(values->nrows * sizeof(uint64));
	uint32 nhashes = 0;
	uint32 ndistinct = 0;
	int128 sum = 0;

	for (uint32 row = 0; row < values->nrows; row++)
	{
		bool isnull;
		Datum value = column_values_datum(values, row, &isnull);

		if (isnull)
			continue;
		if (type->form == FORM_INT)
			sum += values->ints[row];
		if (test->kind == KIND_NUMERIC || test->kind == KIND_NUMERIC_WIDE)
		{
			const void *numeric = DatumGetPointer(value);
			int128 mantissa;
			int32 scale;

			CHECK(numeric_to_scaled(VARDATA(numeric), VARSIZE(numeric) - VARHDRSZ, &mantissa,
									&scale));
			CHECK(scale == summary->sum_scale);
			sum += mantissa;
		}
		if (OidIsValid(type->hash.fn_oid))
		{
			uint64 hash = DatumGetUInt64(
				FunctionCall2Coll((FmgrInfo *) &type->hash, InvalidOid, value, 0));

			hashes[nhashes++] = hash;
			if (!chunk_reader_may_contain(reader, hash))
				fail_case(test, row, "not in the Bloom filter");
		}
		if (!type->byval)
			pfree(DatumGetPointer(value));
	}
	if (summary->has_sum != (chunk_has_sum(type) && test->kind != KIND_NUMERIC_MIXED) &&
		test->kind != KIND_NUMERIC_MIXED)
		fail_case(test, 0, "a sum is missing, or there is one too many");
	if (summary->has_sum && test->kind != KIND_NUMERIC_MIXED && summary->sum != sum)
		fail_case(test, 0, "another sum");

	qsort(hashes, nhashes, sizeof(uint64), compare_uint64);
	for (uint32 i = 0; i < nhashes; i++)
		ndistinct += i == 0 || hashes[i] != hashes[i - 1];
	/* an estimate: how far it is off depends on the seed's values */
	if (nhashes > 0 &&
		(summary->distinct < ndistinct * 0.7 - 3 || summary->distinct > ndistinct * 1.3 + 3))
		harness_fail(__FILE__, __LINE__, "kind %d: %u distinct values are estimated as %u",
					 test->kind, ndistinct, summary->distinct);
	pfree(hashes);
}

/* ---- round trips ------------------------------------------------------------------------------- */

static void
check_chunk(const ChunkCase *test, const ColumnValues *values, const ByteBuffer *bytes,
			const ChunkSummary *summary)
{
	const ColumnType *type = values->type;
	MemorySource source;
	ChunkReader *reader;
	ColumnBlock block;
	uint64 bloom_bytes;

	init_source(&source, bytes->data, bytes->length);
	source.ascending = true;
	source.next = summary->offset;
	reader = chunk_reader_open(&source.source, summary, type, test->nrows);
	CHECK(source.nread == summary->header_length);
	column_block_init(&block, type);
	CHECK(chunk_reader_nblocks(reader) == (test->nrows + BLOCK_ROWS - 1) / BLOCK_ROWS);

	/* all blocks: each byte once, in order */
	for (uint32 i = 0; i < chunk_reader_nblocks(reader); i++)
	{
		const ZoneMap *zone = chunk_reader_zone(reader, i);

		chunk_reader_decode(reader, i, &block);
		CHECK(format_place.block == -1);
		CHECK(block.nrows == zone->nrows);
		check_block(test, values, &block, i * BLOCK_ROWS);
		check_zone(test, values, zone, i * BLOCK_ROWS, block.nrows);
	}
	CHECK(chunk_reader_bytes_read(reader) == source.nread);
	bloom_bytes = summary->length - source.nread;
	if (test->null_percent < 100)
		CHECK(summary->has_bloom == (bloom_bytes > 0));

	/* one block, any one */
	source.ascending = false;
	for (int i = 0; i < 3; i++)
	{
		uint32 number = harness_random_below(chunk_reader_nblocks(reader));

		chunk_reader_decode(reader, number, &block);
		check_block(test, values, &block, number * BLOCK_ROWS);
	}
	check_zone(test, values, &summary->zone, 0, test->nrows);
	check_summary(test, values, summary, reader);
	CHECK(chunk_reader_bytes_read(reader) == source.nread);
	column_block_free(&block);
	chunk_reader_close(reader);
}

/* The encodings that were chosen. */
static uint32
check_round_trip(const ChunkCase *test)
{
	ColumnType type = make_type(test->kind);
	ChunkOptions options = choose_options(test->codec);
	ColumnValues values;
	ByteBuffer bytes;
	ChunkSummary summary;
	ChunkSummary stored;

	fill_values(&values, &type, test->kind, test->pattern, test->nrows, test->null_percent);
	CHECK(values.nrows == test->nrows);
	byte_buffer_init(&bytes, 0);
	byte_buffer_append(&bytes, "other bytes", harness_random_below(11));
	chunk_write(&values, &options, &bytes, &summary);
	CHECK(summary.offset % 8 == 0);
	CHECK(summary.offset + summary.length == bytes.length);
	CHECK(summary.length <= summary.raw_length);
	CHECK(summary.codec == CODEC_NONE ? summary.length == summary.raw_length
									  : summary.codec == test->codec);
	byte_buffer_append(&bytes, "more", 4);

	stored = store_summary(&type, &summary);
	CHECK(stored.offset == summary.offset && stored.length == summary.length);
	CHECK(stored.raw_length == summary.raw_length && stored.encodings == summary.encodings);
	CHECK(stored.codec == summary.codec && stored.distinct == summary.distinct);
	CHECK(stored.has_sum == summary.has_sum && stored.sum == summary.sum);
	check_chunk(test, &values, &bytes, &stored);
	byte_buffer_free(&bytes);
	column_values_free(&values);
	return summary.encodings;
}

static uint32 encodings_seen;

static void
run_round_trip(void *argument)
{
	encodings_seen |= check_round_trip(argument);
}

static void
check_round_trips(void)
{
	static const uint32 sizes[] = {1, 2, 1023, 1024, 1025, 2048, ROW_GROUP_ROWS_MAX};
	static const int null_rates[] = {0, 1, 50, 100};
	uint32 round = 0;

	for (int kind = 0; kind < NKINDS; kind++)
	{
		for (int rate = 0; rate < lengthof(null_rates); rate++)
		{
			for (int size = 0; size < lengthof(sizes); size++)
			{
				bool is_large = sizes[size] == ROW_GROUP_ROWS_MAX;

				for (int codec = 0; codec <= CODEC_ZSTD; codec++)
				{
					ChunkCase test = {kind, round % NPATTERNS, sizes[size], null_rates[rate],
									  codec};

					/* the largest with one codec each, lest the test take minutes */
					if (is_large && codec != (kind + rate) % 3)
						continue;
					round++;
					if (!harness_try(run_round_trip, &test))
						harness_fail(__FILE__, __LINE__, "kind %d, pattern %d: %s: %s", test.kind,
									 test.pattern, harness_error.message, harness_error.detail);
				}
			}
		}
	}
}

/* Data made for it brings out each encoding of the format. */
static void
check_encodings(void)
{
	static const struct
	{
		ColumnKind kind;
		ColumnPattern pattern;
		int null_percent;
		ChunkEncoding encoding;
	} expected[] = {
		{KIND_INT4, PATTERN_CONSTANT, 0, ENCODING_CONSTANT},
		{KIND_INT8, PATTERN_RUNS, 0, ENCODING_RLE},
		{KIND_INT2, PATTERN_RANDOM, 0, ENCODING_FOR},
		{KIND_INT8, PATTERN_ASCENDING, 0, ENCODING_DELTA},
		{KIND_INT4, PATTERN_FEW, 0, ENCODING_SCALE},
		{KIND_INT8, PATTERN_OUTLIERS, 0, ENCODING_PFOR},
		{KIND_BOOL, PATTERN_RANDOM, 1, ENCODING_BITMAP},
		{KIND_TEXT, PATTERN_FEW, 1, ENCODING_DICTIONARY},
		{KIND_UUID, PATTERN_RANDOM, 1, ENCODING_RAW},
		{KIND_FLOAT8, PATTERN_ASCENDING, 1, ENCODING_ALP},
		{KIND_TEXT_LONG, PATTERN_RANDOM, 1, ENCODING_FSST},
		{KIND_NUMERIC, PATTERN_RANDOM, 1, ENCODING_NUMERIC64},
		{KIND_NUMERIC_WIDE, PATTERN_RANDOM, 1, ENCODING_NUMERIC128},
		{KIND_TEXT, PATTERN_RANDOM, 100, ENCODING_NULL},
	};

	for (int i = 0; i < lengthof(expected); i++)
	{
		ChunkCase test = {expected[i].kind, expected[i].pattern, 4000, expected[i].null_percent,
						  CODEC_NONE};

		encodings_seen = 0;
		CHECK(harness_try(run_round_trip, &test));
		CHECK_THAT((encodings_seen & (1u << expected[i].encoding)) != 0,
				   "kind %d, pattern %d: %s is not among the encodings %x", test.kind, test.pattern,
				   chunk_encoding_name(expected[i].encoding), encodings_seen);
	}
	for (int i = 0; i < CHUNK_NENCODINGS; i++)
		CHECK(strcmp(chunk_encoding_name(i), "unknown") != 0);
}

/* Floats that are no decimals, but few, are integers of their bits, and are called by those' encoding. */
static void
check_float_bits(void *argument)
{
	ColumnType type = make_type(KIND_FLOAT8);
	ChunkOptions options = choose_options(CODEC_NONE);
	ChunkCase test = {KIND_FLOAT8, PATTERN_FEW, 2000, 0, CODEC_NONE};
	double few[5];
	ColumnValues values;
	ByteBuffer bytes;
	ChunkSummary summary;

	for (int i = 0; i < lengthof(few); i++)
		few[i] = (double) harness_random() / 3e12 + 1.0 / 3.0;
	column_values_init(&values, &type);
	for (uint32 row = 0; row < test.nrows; row++)
		column_values_append(&values, Float8GetDatum(few[harness_random_below(lengthof(few))]),
							 false);
	byte_buffer_init(&bytes, 0);
	chunk_write(&values, &options, &bytes, &summary);
	CHECK_THAT(summary.encodings == 1u << ENCODING_DICTIONARY, "the encodings are %x",
			   summary.encodings);
	check_chunk(&test, &values, &bytes, &summary);
}

/* ---- damage ------------------------------------------------------------------------------------ */

typedef struct DamageCase
{
	const ColumnType *type;
	const ChunkSummary *summary;
	const char *bytes;
	uint64 length;
	uint32 nrows;
} DamageCase;

/* Reads all there is to read. */
static void
read_everything(void *argument)
{
	DamageCase *damage = argument;
	MemorySource source;
	ChunkReader *reader;
	ColumnBlock block;

	init_source(&source, damage->bytes, damage->length);
	reader = chunk_reader_open(&source.source, damage->summary, damage->type, damage->nrows);
	column_block_init(&block, damage->type);
	for (uint32 i = 0; i < chunk_reader_nblocks(reader); i++)
	{
		chunk_reader_zone(reader, i);
		chunk_reader_decode(reader, i, &block);
	}
	chunk_reader_may_contain(reader, 1);
}

/* Of a chunk of the kind, each byte changed is an error, and so is each end cut off. */
static void
check_damage(void *argument)
{
	ColumnKind kind = *(ColumnKind *) argument;
	ColumnType type = make_type(kind);
	ChunkOptions options = choose_options(kind % 3);
	uint32 nrows = kind % 2 == 0 ? 700 : 1100;
	ColumnValues values;
	ByteBuffer bytes;
	ChunkSummary summary;
	DamageCase damage = {&type, &summary, NULL, 0, nrows};

	fill_values(&values, &type, kind, kind % NPATTERNS, nrows, 5);
	byte_buffer_init(&bytes, 0);
	chunk_write(&values, &options, &bytes, &summary);
	damage.bytes = bytes.data;
	damage.length = bytes.length;
	CHECK(harness_try_damaged(read_everything, &damage));

	/* the header whole; of the rest about a thousand bytes */
	for (uint64 i = 0; i < bytes.length;)
	{
		char change = (char) (1 << harness_random_below(8));

		bytes.data[i] ^= change;
		CHECK_THAT(!harness_try_damaged(read_everything, &damage),
				   "kind %d: byte %llu of %llu can change", kind, (unsigned long long) i,
				   (unsigned long long) bytes.length);
		bytes.data[i] ^= change;
		i += i < summary.header_length ? 1 : 1 + harness_random_below(1 + bytes.length / 500);
	}
	for (int i = 0; i < 50; i++)
	{
		char *cut;

		damage.length = harness_random_below(bytes.length);
		cut = harness_copy(bytes.data, damage.length);
		damage.bytes = cut;
		CHECK(!harness_try_damaged(read_everything, &damage));
		free(cut);
	}
}

/* The chunk says what it is of: another number of rows or another form is an error. */
static void
check_mismatch(void *argument)
{
	ColumnType type = make_type(KIND_INT4);
	ColumnType other = make_type(KIND_FLOAT4);
	ChunkOptions options = choose_options(CODEC_NONE);
	ColumnValues values;
	ByteBuffer bytes;
	ChunkSummary summary;
	DamageCase damage = {&type, &summary, NULL, 0, 1000};

	fill_values(&values, &type, KIND_INT4, PATTERN_RANDOM, 1000, 0);
	byte_buffer_init(&bytes, 0);
	chunk_write(&values, &options, &bytes, &summary);
	damage.bytes = bytes.data;
	damage.length = bytes.length;
	CHECK(harness_try_damaged(read_everything, &damage));
	damage.nrows = 999;
	CHECK(!harness_try_damaged(read_everything, &damage));
	summary.zone.nrows = 999;
	CHECK(!harness_try_damaged(read_everything, &damage));
	summary.zone.nrows = damage.nrows = 1000;
	damage.type = &other;
	CHECK(!harness_try_damaged(read_everything, &damage));
	damage.type = &type;
	summary.raw_length++;
	CHECK(!harness_try_damaged(read_everything, &damage));
	summary.raw_length--;
	summary.length++;
	CHECK(!harness_try_damaged(read_everything, &damage));
	summary.length--;
	summary.header_length--;
	CHECK(!harness_try_damaged(read_everything, &damage));
}

/* ---- types that changed without a rewrite ------------------------------------------------------ */

/* int4 became oid: the same datums, but other integers, no bounds, and no Bloom filter of int4's. */
static void
check_changed_sign(void *argument)
{
	ColumnType type = make_type(KIND_INT4);
	ColumnType other = make_type(KIND_OID);
	ChunkOptions options = choose_options(CODEC_NONE);
	ColumnValues values;
	ByteBuffer bytes;
	ChunkSummary summary;
	ChunkSummary stored;
	MemorySource source;
	ChunkReader *reader;
	ColumnBlock block;

	column_values_init(&values, &type);
	for (int row = 0; row < 3000; row++)
		column_values_append(&values, Int32GetDatum(row - 1500), false);
	byte_buffer_init(&bytes, 0);
	chunk_write(&values, &options, &bytes, &summary);
	CHECK(summary.has_sum && summary.zone.has_bounds);

	byte_buffer_init(&bytes, 0);
	summary.offset = 0;
	chunk_write(&values, &options, &bytes, &summary);
	{
		ByteBuffer buffer;
		ByteCursor cursor;

		byte_buffer_init(&buffer, 0);
		chunk_summary_write(&type, &summary, &buffer);
		cursor = (ByteCursor){buffer.data, buffer.data + buffer.length};
		chunk_summary_read(&other, &cursor, &stored);
		CHECK(cursor.at == cursor.end);
	}
	CHECK(!stored.has_sum && !stored.zone.has_bounds && stored.zone.nrows == 3000);

	init_source(&source, bytes.data, bytes.length);
	other.hash.fn_oid = type.hash.fn_oid + 1;
	reader = chunk_reader_open(&source.source, &stored, &other, 3000);
	column_block_init(&block, &other);
	for (uint32 number = 0; number < 3; number++)
	{
		CHECK(!chunk_reader_zone(reader, number)->has_bounds);
		chunk_reader_decode(reader, number, &block);
		for (uint32 i = 0; i < block.nrows; i++)
			CHECK(block.ints[i] == (uint32) (int32) (number * BLOCK_ROWS + i - 1500));
	}
	for (uint64 hash = 0; hash < 100; hash++)
		CHECK(chunk_reader_may_contain(reader, mix(hash)));
	chunk_reader_close(reader);
}

static void
check_empty_and_wide(void *argument)
{
	ChunkCase empty = {KIND_TEXT, PATTERN_RANDOM, 0, 0, CODEC_LZ4};
	ColumnType type = make_type(KIND_TEXT);
	ChunkOptions options = choose_options(CODEC_LZ4);
	ColumnValues values;
	ByteBuffer bytes;
	ChunkSummary summary;
	char *large = palloc(3000000);

	/* no rows at all */
	fill_values(&values, &type, empty.kind, empty.pattern, 0, 0);
	byte_buffer_init(&bytes, 0);
	chunk_write(&values, &options, &bytes, &summary);
	{
		MemorySource source;
		ChunkReader *reader;

		init_source(&source, bytes.data, bytes.length);
		reader = chunk_reader_open(&source.source, &summary, &type, 0);
		CHECK(chunk_reader_nblocks(reader) == 0);
		CHECK(!chunk_reader_may_contain(reader, 1));
		chunk_reader_close(reader);
	}

	/* values far larger than a frame */
	for (int i = 0; i < 3000000; i++)
		large[i] = (char) harness_random();
	column_values_init(&values, &type);
	for (int row = 0; row < 1030; row++)
	{
		bool is_large = row % 200 == 0;
		Datum value = make_varlena(large, is_large ? 3000000 - row : row % 5);

		column_values_append(&values, value, false);
		pfree(DatumGetPointer(value));
	}
	byte_buffer_init(&bytes, 0);
	chunk_write(&values, &options, &bytes, &summary);
	empty.nrows = 1030;
	check_chunk(&empty, &values, &bytes, &summary);
}

/* Rows in another order, as clustering writes them. */
static void
check_select(void *argument)
{
	ColumnKind kind = *(ColumnKind *) argument;
	ColumnType type = make_type(kind);
	ColumnValues values;
	ColumnValues selected;
	uint32 order[500];

	fill_values(&values, &type, kind, PATTERN_RANDOM, 1000, kind % 2 == 0 ? 0 : 20);
	for (int i = 0; i < lengthof(order); i++)
		order[i] = harness_random_below(1000);
	column_values_select(&selected, &values, order, lengthof(order));
	CHECK(selected.nrows == lengthof(order));
	for (int i = 0; i < lengthof(order); i++)
	{
		bool isnull;
		bool expected_null;
		Datum value = column_values_datum(&selected, i, &isnull);
		Datum expected = column_values_datum(&values, order[i], &expected_null);

		CHECK(isnull == expected_null);
		CHECK(isnull || are_datums_same(&type, value, expected));
	}
	CHECK(column_values_size(&selected) > 0);
}

/* A row of its own must stay small: tables are also filled by single inserts. */
static void
check_small_overhead(void *argument)
{
	ColumnType type = make_type(KIND_INT4);
	ChunkOptions options = choose_options(CODEC_LZ4);
	ColumnValues values;
	ByteBuffer bytes;
	ByteBuffer footer;
	ChunkSummary summary;

	options.bloom = false;
	column_values_init(&values, &type);
	column_values_append(&values, Int32GetDatum(123456), false);
	byte_buffer_init(&bytes, 0);
	byte_buffer_init(&footer, 0);
	chunk_write(&values, &options, &bytes, &summary);
	chunk_summary_write(&type, &summary, &footer);
	CHECK_THAT(bytes.length <= 32, "a chunk of one integer has %llu bytes",
			   (unsigned long long) bytes.length);
	CHECK_THAT(footer.length <= 24, "its summary has %llu bytes",
			   (unsigned long long) footer.length);
}

int
main(int argc, char **argv)
{
	harness_start(argc, argv);
	format_place.column = 3;
	CHECK(harness_try(check_small_overhead, NULL));
	CHECK(harness_try(check_empty_and_wide, NULL));
	CHECK(harness_try(check_changed_sign, NULL));
	CHECK(harness_try(check_mismatch, NULL));
	for (int kind = 0; kind < NKINDS; kind++)
	{
		CHECK(harness_try(check_select, &kind));
		CHECK(harness_try(check_damage, &kind));
	}
	CHECK(harness_try(check_float_bits, NULL));
	check_encodings();
	check_round_trips();

	while (harness_time_is_left(1))
	{
		ChunkCase test = {harness_random_below(NKINDS), harness_random_below(NPATTERNS),
						  1 + harness_random_below(5000), harness_random_below(101),
						  harness_random_below(3)};

		CHECK_THAT(harness_try(run_round_trip, &test), "%s: %s", harness_error.message,
				   harness_error.detail);
	}
	return harness_finish();
}
