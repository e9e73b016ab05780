/*
 * test_numeric.c
 *		Numerics come back byte by byte: through mantissa and scale, and through every
 *		encoding of a block, exceptions included.
 *
 * What PostgreSQL would store is computed here from the decimal digits in the way
 * of numeric_in(), independently of the codec: grouped by four around the decimal
 * point, zero digits stripped, header chosen.
 */
#include "harness.h"

#include "store/codec/integer_codec.h"
#include "store/codec/numeric_codec.h"
#include "store/value/varint.h"

#define ROWS_MAX 140000
#define TEXT_MAX 400

static ColumnType type = {.length = -1, .form = FORM_NUMERIC};

/* The bytes of a numeric without its varlena header. */
typedef struct Payload
{
	uint32 length;
	uint16 words[10000];
} Payload;

/* ---- what PostgreSQL stores -------------------------------------------------------------------- */

static void
set_header(Payload *payload, bool negative, int scale, int weight, bool long_form)
{
	if (!long_form && scale <= 63 && weight >= -64 && weight <= 63)
	{
		payload->words[0] = 0x8000 | (negative ? 0x2000 : 0) | scale << 7 | (weight & 0x7F);
		payload->length = 2;
	}
	else
	{
		payload->words[0] = (negative ? 0x4000 : 0) | scale;
		payload->words[1] = (uint16) weight;
		payload->length = 4;
	}
}

/*
 * Decimal digits, of which the last `scale` stand behind the point, as a numeric;
 * long_form: as releases before 9.1 would have written it.
 */
static void
make_numeric(Payload *payload, bool negative, const char *decimals, int scale, bool long_form)
{
	static char padded[40000];
	int n = (int) strlen(decimals);
	int before = Max(n - scale, 0);	  /* decimal digits before the point */
	int zeros = Max(scale - n, 0);	  /* zeros between the point and the first of them */
	int front = (4 - before % 4) % 4; /* zeros that fill up the first group */
	int ngroups;
	int weight = (before + front) / 4 - 1;
	uint16 *groups;

	memset(padded, '0', sizeof(padded));
	memcpy(padded + front, decimals, before);
	memcpy(padded + front + before + zeros, decimals + before, n - before);
	ngroups = (front + before + scale + 3) / 4;

	for (int pass = 0; pass < 2; pass++)
	{
		int first = 0;

		set_header(payload, negative, scale, weight, long_form);
		groups = payload->words + payload->length / 2;
		for (int i = 0; i < ngroups; i++)
		{
			char four[5] = {0};

			memcpy(four, padded + 4 * i, 4);
			groups[i] = (uint16) atoi(four);
		}
		while (first < ngroups && groups[first] == 0)
			first++;
		while (ngroups > first && groups[ngroups - 1] == 0)
			ngroups--;
		if (first == ngroups)
		{
			set_header(payload, false, scale, 0, long_form);
			return;
		}
		/* the form depends on the weight: once more, with that of the first digit */
		if (pass == 0)
			weight -= first;
		else
		{
			memmove(groups, groups + first, (ngroups - first) * sizeof(uint16));
			payload->length += (ngroups - first) * sizeof(uint16);
		}
	}
}

static void
make_special(Payload *payload, uint16 header)
{
	payload->words[0] = header;
	payload->length = 2;
}

/* Decimal digits of a mantissa. */
static const char *
write_decimals(uint128 value)
{
	static char text[64];
	char *at = text + sizeof(text) - 1;

	do
	{
		*--at = '0' + (int) (value % 10);
		value /= 10;
	} while (value > 0);
	return at;
}

/* ---- single values ----------------------------------------------------------------------------- */

static int128
random_mantissa(int bits)
{
	uint128 value = bits > 64 ? (uint128) harness_random() << 64 | harness_random() : 0;
	int width = 1 + (int) harness_random_below(bits);

	if (bits <= 64)
		value = harness_random_bits(bits);
	else if (width < 128)
		value &= ((uint128) 1 << width) - 1;
	/* round numbers are frequent */
	for (int i = (int) harness_random_below(8) * (harness_random_below(3) == 0); i > 0; i--)
		value = value / 10 * 10 >= ~(uint128) 0 / 10 ? value : value * 10;
	value &= ~(uint128) 0 >> 1;
	return harness_random_below(2) ? (int128) value : -(int128) value;
}

static void
check_value(int128 mantissa, int scale)
{
	static Payload expected;
	uint128 magnitude = mantissa < 0 ? -(uint128) mantissa : (uint128) mantissa;
	char *datum = DatumGetPointer(numeric_from_scaled(mantissa, scale));
	int128 parsed;
	int32 parsed_scale;
	char *copy;

	make_numeric(&expected, mantissa < 0, write_decimals(magnitude), scale, false);
	CHECK_THAT(VARSIZE(datum) == VARHDRSZ + expected.length &&
				   memcmp(VARDATA(datum), expected.words, expected.length) == 0,
			   "%s%s / 10^%d makes other bytes", mantissa < 0 ? "-" : "", write_decimals(magnitude),
			   scale);
	pfree(datum);

	/* one byte off, as in the store */
	copy = malloc(expected.length + 1);
	memcpy(copy + 1, expected.words, expected.length);
	if (magnitude >> 127 == 0)
	{
		CHECK(numeric_to_scaled(copy + 1, expected.length, &parsed, &parsed_scale));
		CHECK(parsed == mantissa && parsed_scale == scale);
	}
	else
		CHECK(!numeric_to_scaled(copy + 1, expected.length, &parsed, &parsed_scale));
	free(copy);
}

static void
check_values(void)
{
	static const int scales[] = {0,	 1,	 2,	 3,	 4,	 5,	  7,   8,	 15,	18,	   38,	 39,
								 60, 63, 64, 65, 77, 127, 128, 1000, 16380, 16381, 16383};
	static const int128 mantissas[] = {0,	 1,		5,		10,		 99,	   100,
									   9999, 10000, 100000, 1234567, 99999999, 100000000};

	for (int s = 0; s < lengthof(scales); s++)
	{
		int128 power = 1;

		for (int m = 0; m < lengthof(mantissas); m++)
		{
			check_value(mantissas[m], scales[s]);
			check_value(-mantissas[m], scales[s]);
		}
		for (int i = 0; i < 38; i++, power *= 10)
		{
			check_value(power, scales[s]);
			check_value(power - 1, scales[s]);
			check_value(-power - 1, scales[s]);
		}
		for (int bit = 0; bit < 127; bit++)
		{
			check_value((int128) 1 << bit, scales[s]);
			check_value(((int128) 1 << bit) - 1, scales[s]);
			check_value(-((int128) 1 << bit), scales[s]);
		}
		check_value((int128) (~(uint128) 0 >> 1), scales[s]);
		check_value(-(int128) (~(uint128) 0 >> 1), scales[s]);
		check_value((int128) ((uint128) 1 << 127), scales[s]);
	}
	for (int i = 0; i < 100000; i++)
		check_value(
			random_mantissa(harness_random_below(2) ? 64 : 128),
			(int) (harness_random_below(3) ? harness_random_below(20) : harness_random_below(100)));
}

static bool
is_scaled(const Payload *payload, int128 *mantissa, int32 *scale)
{
	return numeric_to_scaled((const char *) payload->words, payload->length, mantissa, scale);
}

/* What is no scaled integer, or not in the form that numeric's functions leave. */
static void
check_misfits(void)
{
	static const uint16 specials[] = {0xC000, 0xD000, 0xF000, 0xC001, 0xE000};
	static Payload payload;
	int128 mantissa;
	int32 scale;

	for (int i = 0; i < lengthof(specials); i++)
	{
		make_special(&payload, specials[i]);
		CHECK(!is_scaled(&payload, &mantissa, &scale));
	}
	/* 2^127, and far beyond */
	make_numeric(&payload, false, "170141183460469231731687303715884105728", 3, false);
	CHECK(!is_scaled(&payload, &mantissa, &scale));
	make_numeric(&payload, false, "170141183460469231731687303715884105727", 3, false);
	CHECK(is_scaled(&payload, &mantissa, &scale));
	make_numeric(&payload, true, "1000000000000000000000000000000000000000000000000", 0, false);
	CHECK(!is_scaled(&payload, &mantissa, &scale));
	/* of the long form the value is known all the same */
	make_numeric(&payload, true, "12345", 2, true);
	CHECK(is_scaled(&payload, &mantissa, &scale) && mantissa == -12345 && scale == 2);
	/* digits behind the scale, digits that are none, half a digit, no header */
	payload = (Payload){6, {0x8000 | 2 << 7, 1, 1}};
	CHECK(!is_scaled(&payload, &mantissa, &scale));
	payload = (Payload){6, {0x8000 | 3 << 7, 1, 1234}};
	CHECK(!is_scaled(&payload, &mantissa, &scale));
	payload = (Payload){4, {0x8000, 10000}};
	CHECK(!is_scaled(&payload, &mantissa, &scale));
	payload = (Payload){3, {0x8000, 1}};
	CHECK(!is_scaled(&payload, &mantissa, &scale));
	payload = (Payload){2, {0x0000}};
	CHECK(!is_scaled(&payload, &mantissa, &scale));
	payload = (Payload){0, {0}};
	CHECK(!is_scaled(&payload, &mantissa, &scale));
}

/* ---- blocks ------------------------------------------------------------------------------------ */

typedef enum Kind
{
	KIND_PRICES,	  /* one scale, small */
	KIND_WIDE,		  /* past int64, close to one another */
	KIND_VERY_WIDE,	  /* past int64, anywhere in 127 bits */
	KIND_SOME,		  /* prices, with a few exceptions of every sort */
	KIND_WIDE_SOME,	  /* the same, wide */
	KIND_MANY_SCALES, /* bytes */
	KIND_FEW_VALUES,  /* many scales, but few values: a dictionary */
	KIND_SPECIALS,	  /* NaN and infinities only */
	KIND_CONSTANT,
	KIND_CONSTANT_SOME, /* the same, with exceptions */
	NKINDS
} Kind;

static void
make_exception(Payload *payload)
{
	switch (harness_random_below(8))
	{
		case 0:
			make_special(payload, 0xC000);
			return;
		case 1:
			make_special(payload, 0xD000);
			return;
		case 2:
			make_special(payload, 0xF000);
			return;
		case 3:
			/* NaN of an old release */
			payload->length = 4;
			payload->words[0] = 0xC000;
			payload->words[1] = 0;
			return;
		case 4:
			make_numeric(payload, true, "987654321", 2, true);
			return;
		case 5:
			/* zeros of another form: with a weight, with a sign */
			payload->length = 2;
			payload->words[0] = harness_random_below(2) ? 0x8000 | 2 << 7 | 5 : 0xA000 | 2 << 7;
			return;
		case 6:
			make_numeric(payload, false, "99999999999999999999999999999999999999999999999999999", 2,
						 false);
			return;
		default:
			make_numeric(payload, false, write_decimals(harness_random_bits(60)),
						 3 + (int) harness_random_below(200), false);
			return;
	}
}

static void
make_row(Payload *payload, Kind kind)
{
	uint64 number;
	uint128 wide = (uint128) 1 << 100;

	switch (kind)
	{
		case KIND_SOME:
		case KIND_WIDE_SOME:
		case KIND_CONSTANT_SOME:
			if (harness_random_below(10) == 0)
				make_exception(payload);
			else
				make_row(payload, kind == KIND_SOME		   ? KIND_PRICES
								  : kind == KIND_WIDE_SOME ? KIND_WIDE
														   : KIND_CONSTANT);
			return;
		case KIND_PRICES:
			make_numeric(payload, harness_random_below(9) == 0,
						 write_decimals(harness_random_below(10000000)), 2, false);
			return;
		case KIND_WIDE:
			make_numeric(payload, false, write_decimals(wide + harness_random_below(100000)), 2,
						 false);
			return;
		case KIND_VERY_WIDE:
			make_numeric(payload, harness_random_below(2),
						 write_decimals(((uint128) harness_random() << 64 | harness_random()) >> 1),
						 30, false);
			return;
		case KIND_MANY_SCALES:
			make_numeric(payload, harness_random_below(2), write_decimals(harness_random_bits(60)),
						 (int) harness_random_below(9), false);
			return;
		case KIND_FEW_VALUES:
			number = harness_random_below(9);
			make_numeric(payload, number % 2, write_decimals(number * 123456789012345), number,
						 false);
			return;
		case KIND_SPECIALS:
			make_special(payload, harness_random_below(2) ? 0xC000 : 0xF000);
			return;
		default:
			make_numeric(payload, true, "4200", 3, false);
			return;
	}
}

/* `nulls`: none (0), or 1 of so many rows. */
static void
make_values(ColumnValues *values, Kind kind, uint32 nrows, uint32 nulls)
{
	static Payload payload;

	memset(values, 0, sizeof(*values));
	values->type = &type;
	values->context = CurrentMemoryContext;
	byte_buffer_init(&values->bytes, 1024);
	values->ends = palloc(nrows * sizeof(uint64));
	values->nulls = nulls > 0 ? palloc0(nrows) : NULL;
	for (uint32 row = 0; row < nrows; row++)
	{
		if (nulls > 0 && harness_random_below(nulls) == 0)
			values->nulls[row] = 1;
		else
		{
			make_row(&payload, kind);
			byte_buffer_append(&values->bytes, payload.words, payload.length);
		}
		values->ends[row] = values->bytes.length;
	}
	values->nrows = nrows;
}

/* The model and a block, each malloc()ed with exactly its length. */
typedef struct Stored
{
	char *model; /* or NULL */
	uint64 model_length;
	char *block;
	uint64 block_length;
	uint32 nrows;
} Stored;

static void
free_stored(Stored *stored)
{
	free(stored->model);
	free(stored->block);
}

static NumericEncoding
store_block(Stored *stored, const BytesModel *model, const ColumnValues *values, uint32 first)
{
	NumericEncoding encoding;
	ByteBuffer buffer;

	memset(stored, 0, sizeof(*stored));
	byte_buffer_init(&buffer, 0);
	if (model != NULL)
	{
		bytes_model_write(model, &buffer);
		stored->model = harness_copy(buffer.data, buffer.length);
		stored->model_length = buffer.length;
		buffer.length = 0;
	}
	stored->nrows = Min(values->nrows - first, BLOCK_ROWS);
	encoding = numeric_encode(model, values, first, stored->nrows, &buffer);
	stored->block = harness_copy(buffer.data, buffer.length);
	stored->block_length = buffer.length;
	byte_buffer_free(&buffer);
	return encoding;
}

static bool
is_exception(const ColumnBlock *block, uint32 row)
{
	return block->has_exceptions && (block->exceptions[row / 64] >> row % 64 & 1);
}

static void
check_block(const Stored *stored, const ColumnValues *values, uint32 first)
{
	ByteCursor model_cursor = {stored->model, stored->model + stored->model_length};
	ByteCursor cursor = {stored->block, stored->block + stored->block_length};
	BytesModel *model = stored->model != NULL ? bytes_model_read(&model_cursor) : NULL;
	const char *one = NULL;
	ColumnBlock block;
	ByteBuffer arena;

	column_block_init(&block, &type);
	byte_buffer_init(&arena, 0);
	numeric_decode(model, &cursor, stored->nrows, &arena, &block);
	CHECK(cursor.at == cursor.end);
	CHECK(block.nrows == stored->nrows);
	for (uint32 i = 0; i < stored->nrows; i++)
	{
		uint32 length;
		const char *expected = column_values_bytes(values, first + i, &length);
		bool isnull;
		char *datum;

		if (values->nulls != NULL && values->nulls[first + i])
		{
			CHECK(!is_exception(&block, i));
			continue;
		}
		datum = DatumGetPointer(column_block_datum(&block, i, &isnull));
		CHECK(!isnull && VARSIZE(datum) == VARHDRSZ + length &&
			  memcmp(VARDATA(datum), expected, length) == 0);
		if (block.constant)
		{
			CHECK(one == NULL ||
				  (VARSIZE(one) == VARSIZE(datum) && memcmp(one, datum, VARSIZE(datum)) == 0));
			one = datum;
		}
	}
	column_block_free(&block);
}

typedef struct Case
{
	Kind kind;
	uint32 nrows;
	uint32 nulls;
	/* the result */
	uint32 counts[3];
	bool has_model;
	uint64 raw;
	uint64 total;
} Case;

static void
run_case(void *argument)
{
	Case *its = argument;
	ColumnValues values;
	BytesModel *model;

	make_values(&values, its->kind, its->nrows, its->nulls);
	model = numeric_model_train(&values);
	its->has_model = model != NULL;
	its->raw = values.bytes.length;
	for (uint32 first = 0; first < its->nrows; first += BLOCK_ROWS)
	{
		Stored stored;

		its->counts[store_block(&stored, model, &values, first)]++;
		its->total += stored.block_length;
		check_block(&stored, &values, first);
		free_stored(&stored);
	}
}

static Case
try_case(Kind kind, uint32 nrows, uint32 nulls)
{
	Case its = {kind, nrows, nulls};

	CHECK_THAT(harness_try(run_case, &its), "kind %d, %u rows", kind, nrows);
	return its;
}

static void
check_all_kinds(void)
{
	static const uint32 sizes[] = {1, 2, 3, 64, 65, 1023, 1024, 1025, 3000};
	static const uint32 nulls[] = {0, 1, 2, 30};

	for (int kind = 0; kind < NKINDS; kind++)
		for (int size = 0; size < lengthof(sizes); size++)
			for (int n = 0; n < lengthof(nulls); n++)
				try_case(kind, sizes[size], nulls[n]);
}

static void
check_choices(void)
{
	Case its;

	/* 24 bits a value, and little else */
	its = try_case(KIND_PRICES, 10240, 0);
	CHECK(its.counts[NUMERIC_INT64] == 10 && !its.has_model && its.total < 10240 * 3.3);
	/* 17 bits a value */
	its = try_case(KIND_WIDE, 10240, 0);
	CHECK(its.counts[NUMERIC_INT128] == 10 && its.total < 10240 * 2.3);
	its = try_case(KIND_VERY_WIDE, 10240, 0);
	CHECK(its.counts[NUMERIC_INT128] == 10 && its.total < 10240 * 16.2);
	/* exceptions, and nothing else, cost */
	its = try_case(KIND_SOME, 10240, 20);
	CHECK(its.counts[NUMERIC_INT64] == 10 && its.total < 10240 * 6);
	its = try_case(KIND_WIDE_SOME, 10240, 20);
	CHECK(its.counts[NUMERIC_INT128] == 10 && its.total < 10240 * 5);
	its = try_case(KIND_MANY_SCALES, 10240, 0);
	CHECK(its.counts[NUMERIC_BYTES] == 10 && its.total < its.raw * 1.15);
	its = try_case(KIND_FEW_VALUES, 10240, 3);
	CHECK(its.counts[NUMERIC_BYTES] == 10 && its.has_model && its.total < its.raw * 0.1);
	its = try_case(KIND_SPECIALS, 10240, 3);
	CHECK(its.counts[NUMERIC_BYTES] == 10);
	its = try_case(KIND_CONSTANT, 10240, 3);
	CHECK(its.counts[NUMERIC_INT64] == 10 && its.total < 10 * 20);
	/* only NULLs */
	its = try_case(KIND_MANY_SCALES, 2048, 1);
	CHECK(its.counts[NUMERIC_INT64] == 2 && its.total < 2 * 20);
}

/* ---- damage ------------------------------------------------------------------------------------ */

/* A numeric that its functions can be called with: what else they were given would be a crash. */
static void
check_sound(const char *datum)
{
	const char *bytes = VARDATA(datum);
	uint32 length = VARSIZE(datum) - VARHDRSZ;
	uint16 header;

	CHECK(length >= 2 && length % 2 == 0);
	memcpy(&header, bytes, 2);
	if (header >> 14 == 3)
	{
		CHECK(header == 0xC000 || header == 0xD000 || header == 0xF000);
		CHECK(length <= 4);
		return;
	}
	CHECK(header >> 15 == 1 || length >= 4);
	for (uint32 at = header >> 15 == 1 ? 2 : 4; at < length; at += 2)
	{
		uint16 digit;

		memcpy(&digit, bytes + at, 2);
		CHECK(digit < 10000);
	}
}

static void
decode_damaged(void *argument)
{
	const Stored *damaged = argument;
	ByteCursor model_cursor = {damaged->model, damaged->model + damaged->model_length};
	ByteCursor cursor = {damaged->block, damaged->block + damaged->block_length};
	BytesModel *model = damaged->model != NULL ? bytes_model_read(&model_cursor) : NULL;
	ColumnBlock block;
	ByteBuffer arena;

	column_block_init(&block, &type);
	byte_buffer_init(&arena, 0);
	numeric_decode(model, &cursor, damaged->nrows, &arena, &block);
	CHECK(cursor.at <= cursor.end && block.nrows == damaged->nrows);
	for (uint32 row = 0; row < damaged->nrows; row++)
	{
		bool isnull;

		check_sound(DatumGetPointer(column_block_datum(&block, row, &isnull)));
	}
}

static void
damage_blocks(void)
{
	Stored blocks[4 * NKINDS];
	uint64 nerrors = 0;

	for (uint32 i = 0; i < lengthof(blocks); i++)
	{
		ColumnValues values;

		make_values(&values, i % NKINDS, i % 2 ? 30 : 1024, i / NKINDS % 2 ? 5 : 0);
		store_block(&blocks[i], numeric_model_train(&values), &values, 0);
	}
	while (harness_time_is_left(2000))
	{
		const Stored *stored = &blocks[harness_random_below(lengthof(blocks))];
		Stored damaged = {.nrows = stored->nrows};

		if (harness_random_below(16) == 0)
			damaged.nrows = 1 + (uint32) harness_random_below(BLOCK_ROWS);
		if (stored->model != NULL)
			damaged.model = harness_random_below(2)
								? harness_damage(stored->model, stored->model_length,
												 &damaged.model_length)
								: harness_copy(stored->model,
											   damaged.model_length = stored->model_length);
		damaged.block = harness_random_below(4)
							? harness_damage(stored->block, stored->block_length,
											 &damaged.block_length)
							: harness_copy(stored->block,
										   damaged.block_length = stored->block_length);
		nerrors += !harness_try_damaged(decode_damaged, &damaged);
		free_stored(&damaged);
	}
	CHECK(nerrors > 300);
	for (uint32 i = 0; i < lengthof(blocks); i++)
		free_stored(&blocks[i]);
}

/* A block of 10 equal int64 mantissas with two exceptions, NaN as a rule. */
static bool
decodes_exceptions(uint8 encoding, uint32 scale, int64 first, int64 second, int64 length,
				   uint32 nbytes, const char *bytes)
{
	const int64 rows[2] = {first, second};
	const int64 lengths[2] = {length, 2};
	const int64 mantissas[10] = {0};
	Stored stored = {.nrows = 10};
	ByteBuffer block;
	bool decoded;

	byte_buffer_init(&block, 0);
	byte_buffer_put_u8(&block, encoding);
	varint_put(&block, scale);
	varint_put(&block, 2);
	integer_encode(rows, 2, &block);
	integer_encode(lengths, 2, &block);
	varint_put(&block, nbytes);
	byte_buffer_append(&block, bytes, nbytes);
	integer_encode(mantissas, 10, &block);
	stored.block = harness_copy(block.data, block.length);
	stored.block_length = block.length;
	decoded = harness_try_damaged(decode_damaged, &stored);
	free_stored(&stored);
	byte_buffer_free(&block);
	return decoded;
}

/* Numbers that do not agree with each other, next to such that do. */
static void
check_disagreements(void)
{
	static const char nan[] = "\0\300\0\300\0\300";

	CHECK(decodes_exceptions(NUMERIC_INT64, 16383, 0, 9, 2, 4, nan));
	CHECK(!decodes_exceptions(3, 16383, 0, 9, 2, 4, nan));
	CHECK(!decodes_exceptions(NUMERIC_INT64, 16384, 0, 9, 2, 4, nan));
	CHECK(!decodes_exceptions(NUMERIC_INT64, 2, 0, 10, 2, 4, nan));
	CHECK(!decodes_exceptions(NUMERIC_INT64, 2, 3, 3, 2, 4, nan));
	CHECK(!decodes_exceptions(NUMERIC_INT64, 2, -1, 3, 2, 4, nan));
	CHECK(!decodes_exceptions(NUMERIC_INT64, 2, 0, 9, 2, 6, nan));
	CHECK(!decodes_exceptions(NUMERIC_INT64, 2, 0, 9, 4, 4, nan));
	CHECK(!decodes_exceptions(NUMERIC_INT64, 2, 0, 9, -2, 4, nan));
	CHECK(!decodes_exceptions(NUMERIC_INT64, 2, 0, 9, 0, 2, nan));
	CHECK(!decodes_exceptions(NUMERIC_INT64, 2, 0, 9, 2, 4, "\1\300\0\300"));
	CHECK(!decodes_exceptions(NUMERIC_INT64, 2, 0, 9, 4, 6, "\0\200\377\377\0\300"));
}

int
main(int argc, char **argv)
{
	harness_start(argc, argv);
	check_values();
	check_misfits();
	check_all_kinds();
	check_choices();
	check_disagreements();
	damage_blocks();
	return harness_finish();
}
