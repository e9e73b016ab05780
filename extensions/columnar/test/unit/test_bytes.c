/*
 * test_bytes.c
 *		Byte strings come back from every encoding, each encoding is chosen where it is
 *		meant to be, and damaged blocks and models end in an ERROR or in values whose bytes
 *		all lie where they may.
 */
#include "harness.h"

#include "store/codec/bytes_codec.h"
#include "store/codec/integer_codec.h"
#include "store/value/varint.h"

#define ROWS_MAX 140000

static ColumnType varying = {.length = -1, .form = FORM_BYTES};
static ColumnType fixed16 = {.length = 16, .byval = false, .form = FORM_FIXED};
static ColumnType fixed64 = {.length = 64, .byval = false, .form = FORM_FIXED};

/* What a column is made of. */
typedef enum Kind
{
	KIND_NOISE, /* any bytes */
	KIND_FEW,	/* one of a few values */
	KIND_MANY,	/* one of thousands of long values: its dictionary is text again */
	KIND_TEXT,	/* words */
	KIND_EQUAL, /* all the same */
	KIND_EMPTY, /* no bytes (varying) or zeros */
	KIND_MIXED, /* text, then noise, then equal values, in long runs */
	KIND_SHORT, /* one byte or none */
	NKINDS
} Kind;

static const char *const words[] = {"carefully ", "final ",	   "deposits ", "sleep ",
									"according ", "to ",	   "the ",		"furiously ",
									"regular ",	  "requests ", "http://",	"www.example.com/"};

/* The same seed gives the same text. */
static void
put_text(uint64 text_seed, char *into, uint32 length)
{
	uint32 at = 0;

	while (at < length)
	{
		const char *word = words[(text_seed >> 33) % lengthof(words)];

		text_seed = text_seed * UINT64CONST(6364136223846793005) + 1442695040888963407;
		for (; *word && at < length; word++)
			into[at++] = *word;
	}
}

/* Fills a value of the kind; returns its length, which is `width` if that is not 0. */
static uint32
make_value(Kind kind, uint32 row, uint32 width, char *into)
{
	uint32 length = width > 0 ? width : 10 + (uint32) harness_random_below(50);
	uint64 number;

	switch (kind)
	{
		case KIND_NOISE:
			for (uint32 i = 0; i < length; i++)
				into[i] = (char) harness_random();
			return length;
		case KIND_FEW:
		case KIND_MANY:
			number = harness_random_below(kind == KIND_FEW ? 7 : 5000);
			length = width > 0 ? width : 30 + (uint32) number % 13;
			put_text(number * UINT64CONST(0x9E3779B97F4A7C15), into, length);
			return length;
		case KIND_TEXT:
			put_text(harness_random(), into, length);
			return length;
		case KIND_EQUAL:
			length = width > 0 ? width : 12;
			memset(into, 'e', length);
			return length;
		case KIND_EMPTY:
			memset(into, 0, width);
			return width;
		case KIND_MIXED:
			number = row / 1500 % 3;
			return make_value(number == 0	? KIND_TEXT
							  : number == 1 ? KIND_NOISE
											: KIND_EQUAL,
							  row, width, into);
		default:
			length = width > 0 ? width : (uint32) harness_random_below(2);
			memset(into, 'a' + (int) harness_random_below(26), length);
			return length;
	}
}

/* Appends as column_values_append() does, without a datum. */
static void
append_value(ColumnValues *values, const char *bytes, uint32 length, bool isnull)
{
	static char zeros[64];

	if (values->type->form == FORM_FIXED)
		byte_buffer_append(&values->bytes, isnull ? zeros : bytes, values->type->length);
	else
	{
		byte_buffer_append(&values->bytes, bytes, isnull ? 0 : length);
		values->ends[values->nrows] = values->bytes.length;
	}
	if (isnull)
		values->nnulls++;
	if (values->nulls != NULL)
		values->nulls[values->nrows] = isnull;
	values->nrows++;
}

static void
start_values(ColumnValues *values, const ColumnType *type, bool has_nulls)
{
	memset(values, 0, sizeof(*values));
	values->type = type;
	values->context = CurrentMemoryContext;
	byte_buffer_init(&values->bytes, 1024);
	values->ends = palloc(ROWS_MAX * sizeof(uint64));
	values->nulls = has_nulls ? palloc(ROWS_MAX) : NULL;
}

/* `nulls`: none, 1 of so many rows, or all (1). */
static void
make_values(ColumnValues *values, const ColumnType *type, Kind kind, uint32 nrows, uint32 nulls)
{
	char value[64];

	start_values(values, type, nulls > 0);
	for (uint32 row = 0; row < nrows; row++)
	{
		uint32 length = make_value(kind, row, type->form == FORM_FIXED ? type->length : 0, value);

		append_value(values, value, length, nulls > 0 && harness_random_below(nulls) == 0);
	}
}

/* A stored chunk: model and blocks, each malloc()ed with exactly its length. */
typedef struct Stored
{
	const ColumnType *type;
	uint32 nrows;
	uint32 nblocks;
	char *model; /* or NULL */
	uint64 model_length;
	char **blocks;
	uint64 *lengths;
	uint64 total;
	uint32 counts[4]; /* blocks of each encoding */
} Stored;

static void
store_values(Stored *stored, const ColumnValues *values, bool fsst)
{
	BytesModel *model = bytes_model_train(values, fsst);

	memset(stored, 0, sizeof(*stored));
	stored->type = values->type;
	stored->nrows = values->nrows;
	stored->nblocks = (values->nrows + BLOCK_ROWS - 1) / BLOCK_ROWS;
	stored->blocks = palloc0(stored->nblocks * sizeof(char *));
	stored->lengths = palloc0(stored->nblocks * sizeof(uint64));
	if (model != NULL)
	{
		ByteBuffer buffer;

		byte_buffer_init(&buffer, 0);
		bytes_model_write(model, &buffer);
		stored->model = harness_copy(buffer.data, buffer.length);
		stored->model_length = buffer.length;
		stored->total = buffer.length;
	}
	for (uint32 block = 0; block < stored->nblocks; block++)
	{
		ByteBuffer buffer;
		uint32 first = block * BLOCK_ROWS;

		byte_buffer_init(&buffer, 0);
		stored->counts[bytes_encode(model, values, first, Min(values->nrows - first, BLOCK_ROWS),
									&buffer)]++;
		stored->blocks[block] = harness_copy(buffer.data, buffer.length);
		stored->lengths[block] = buffer.length;
		stored->total += buffer.length;
		byte_buffer_free(&buffer);
	}
}

static void
free_stored(Stored *stored)
{
	free(stored->model);
	for (uint32 block = 0; block < stored->nblocks; block++)
		free(stored->blocks[block]);
}

static BytesModel *
read_model(const Stored *stored)
{
	ByteCursor cursor = {stored->model, stored->model + stored->model_length};
	BytesModel *model;

	if (stored->model == NULL)
		return NULL;
	model = bytes_model_read(&cursor);
	CHECK(cursor.at == cursor.end);
	CHECK((bytes_model_nentries(model) > 0) == (bytes_model_dictionary(model) != NULL));
	return model;
}

static const char *
get_row(const ColumnBlock *block, uint32 row, uint32 *length)
{
	if (block->form == BLOCK_CODES)
	{
		CHECK(block->codes[row] < block->dictionary->nentries);
		*length = block->dictionary->lengths[block->codes[row]];
		return block->dictionary->starts[block->codes[row]];
	}
	CHECK(block->form == BLOCK_BYTES);
	*length = block->lengths[row];
	return block->starts[row];
}

static void
check_block(const ColumnValues *values, uint32 first, uint32 nrows, const ColumnBlock *block)
{
	const char *one = NULL;
	uint32 one_length = 0;

	CHECK(block->nrows == nrows && block->scale == -1 && !block->has_exceptions);
	for (uint32 i = 0; i < nrows; i++)
	{
		uint32 expected_length;
		uint32 length;
		const char *expected = column_values_bytes(values, first + i, &expected_length);
		const char *bytes = get_row(block, i, &length);

		/* what is shown at a NULL must only be of the type's length */
		if (values->type->form == FORM_FIXED)
			CHECK(length == values->type->length);
		if (values->nulls != NULL && values->nulls[first + i])
			continue;
		CHECK(length == expected_length && memcmp(bytes, expected, length) == 0);
		if (block->constant && one != NULL)
			CHECK(length == one_length && memcmp(bytes, one, length) == 0);
		one = bytes;
		one_length = length;
	}
}

static void
check_stored(const Stored *stored, const ColumnValues *values)
{
	BytesModel *model = read_model(stored);
	ColumnBlock block;
	ByteBuffer arena;

	column_block_init(&block, values->type);
	byte_buffer_init(&arena, 0);
	for (uint32 i = 0; i < stored->nblocks; i++)
	{
		ByteCursor cursor = {stored->blocks[i], stored->blocks[i] + stored->lengths[i]};
		uint32 first = i * BLOCK_ROWS;
		uint32 nrows = Min(values->nrows - first, BLOCK_ROWS);

		bytes_decode(model, &cursor, nrows, &arena, &block);
		CHECK(cursor.at == cursor.end);
		check_block(values, first, nrows, &block);
	}
	column_block_free(&block);
}

/* ---- round trips ------------------------------------------------------------------------------- */

typedef struct Case
{
	const ColumnType *type;
	Kind kind;
	uint32 nrows;
	uint32 nulls;
	bool fsst;
	/* the result */
	uint32 counts[4];
	bool has_model;
	uint64 raw;
	uint64 total;
} Case;

static void
run_case(void *argument)
{
	Case *its = argument;
	ColumnValues values;
	Stored stored;

	make_values(&values, its->type, its->kind, its->nrows, its->nulls);
	store_values(&stored, &values, its->fsst);
	check_stored(&stored, &values);
	memcpy(its->counts, stored.counts, sizeof(its->counts));
	its->has_model = stored.model != NULL;
	its->raw = values.bytes.length;
	its->total = stored.total;
	free_stored(&stored);
}

static Case
try_case(const ColumnType *type, Kind kind, uint32 nrows, uint32 nulls, bool fsst)
{
	Case its = {type, kind, nrows, nulls, fsst};

	CHECK_THAT(harness_try(run_case, &its), "kind %d, %u rows", kind, nrows);
	return its;
}

static void
check_all_kinds(void)
{
	static const ColumnType *const types[] = {&varying, &fixed16, &fixed64};
	static const uint32 sizes[] = {1, 2, 63, 1023, 1024, 1025, 5000};
	static const uint32 nulls[] = {0, 1, 2, 40};

	for (int type = 0; type < lengthof(types); type++)
		for (int kind = 0; kind < NKINDS; kind++)
			for (int size = 0; size < lengthof(sizes); size++)
				for (int n = 0; n < lengthof(nulls); n++)
					try_case(types[type], kind, sizes[size], nulls[n], (size + n) % 2 == 0);
	for (int kind = 0; kind < NKINDS; kind++)
		try_case(&varying, kind, 131073, 0, true);
}

/* Each encoding, where it is the right one, and what it saves there. */
static void
check_choices(void)
{
	Case its;

	its = try_case(&varying, KIND_NOISE, 20000, 0, true);
	CHECK(its.counts[BYTES_RAW] == 20 && !its.has_model && its.total < its.raw * 1.05);
	its = try_case(&fixed16, KIND_NOISE, 20480, 0, true);
	CHECK(its.counts[BYTES_RAW] == 20 && !its.has_model && its.total < its.raw * 1.001);
	its = try_case(&fixed16, KIND_NOISE, 20480, 2, true);
	CHECK(its.counts[BYTES_RAW] == 20 && its.total < its.raw * 0.55);
	its = try_case(&varying, KIND_EQUAL, 20000, 0, true);
	CHECK(its.total < its.raw * 0.01);
	its = try_case(&varying, KIND_EMPTY, 20000, 3, true);
	CHECK(its.counts[BYTES_CONSTANT] == 20 && !its.has_model);
	its = try_case(&fixed16, KIND_NOISE, 5000, 1, true);
	CHECK(its.counts[BYTES_CONSTANT] == 5 && its.total < 5 * 20);
	its = try_case(&varying, KIND_FEW, 20000, 5, true);
	CHECK(its.counts[BYTES_DICTIONARY] == 20 && its.total < its.raw * 0.02);
	its = try_case(&fixed64, KIND_FEW, 20000, 5, true);
	CHECK(its.counts[BYTES_DICTIONARY] == 20 && its.total < its.raw * 0.02);
	its = try_case(&varying, KIND_TEXT, 20000, 0, true);
	CHECK(its.counts[BYTES_FSST] == 20 && its.total < its.raw * 0.45);
	its = try_case(&fixed64, KIND_TEXT, 20000, 3, true);
	CHECK(its.counts[BYTES_FSST] == 20 && its.total < its.raw * 0.35);
	its = try_case(&varying, KIND_TEXT, 20000, 0, false);
	CHECK(its.counts[BYTES_RAW] == 20 && !its.has_model);
	/* blocks that do badly with the symbols stay raw, and those without change are constant */
	its = try_case(&varying, KIND_MIXED, 30000, 0, true);
	CHECK(its.counts[BYTES_FSST] > 5 && its.counts[BYTES_RAW] > 2 &&
		  its.counts[BYTES_CONSTANT] > 1);
}

/* A dictionary whose own bytes are symbols: as many rows, and less than with plain bytes. */
static void
check_packed_dictionary(void)
{
	Case packed = try_case(&varying, KIND_MANY, 60000, 0, true);
	Case plain = try_case(&varying, KIND_MANY, 60000, 0, false);

	CHECK(packed.counts[BYTES_DICTIONARY] == 59 && plain.counts[BYTES_DICTIONARY] == 59);
	CHECK(plain.total < plain.raw * 0.20);
	CHECK_THAT(packed.total < plain.total * 0.75, "%llu bytes packed, %llu plain",
			   (unsigned long long) packed.total, (unsigned long long) plain.total);
}

/* Too many values for a dictionary though all of them come twice. */
static void
check_too_many_values(void *argument)
{
	ColumnValues values;
	Stored stored;

	start_values(&values, &varying, false);
	for (uint32 row = 0; row < 2 * 65537; row++)
	{
		uint64 bytes[5] = {row / 2 * UINT64CONST(0x9E3779B97F4A7C15), 1, 2, 3, 4};

		append_value(&values, (char *) bytes, sizeof(bytes), false);
	}
	store_values(&stored, &values, false);
	CHECK(stored.model == NULL);
	check_stored(&stored, &values);
	free_stored(&stored);

	/* one pair less, and there is one */
	values.nrows -= 2;
	store_values(&stored, &values, false);
	CHECK(stored.counts[BYTES_DICTIONARY] == stored.nblocks);
	CHECK(bytes_model_nentries(read_model(&stored)) == 65536);
	check_stored(&stored, &values);
	free_stored(&stored);
}

/* Values of different lengths only, and one that is too long for a block of symbols. */
static void
check_long_values(void *argument)
{
	const uint32 length = 270 * 1024 * 1024;
	char *large = MemoryContextAllocHuge(CurrentMemoryContext, length);
	ColumnValues values;
	Stored stored;

	put_text(1, large, length);
	start_values(&values, &varying, false);
	for (uint32 row = 0; row < 1500; row++)
		append_value(&values, large + row * 100, row * 10, false);
	append_value(&values, large, length, false);
	append_value(&values, large, 0, false);
	store_values(&stored, &values, true);
	CHECK(stored.counts[BYTES_FSST] == 1 && stored.counts[BYTES_RAW] == 1);
	check_stored(&stored, &values);
	free_stored(&stored);
	pfree(large);
}

/* ---- damage ------------------------------------------------------------------------------------ */

typedef struct Damaged
{
	const Stored *stored;
	const char *model;
	uint64 model_length;
	const char *block;
	uint64 block_length;
	uint32 nrows;
} Damaged;

/* Whatever was decoded, all of its bytes can be read, and datums be made. */
static void
read_everything(ColumnBlock *block, uint32 nrows)
{
	volatile char seen = 0;

	CHECK(block->nrows == nrows);
	for (uint32 row = 0; row < nrows; row++)
	{
		uint32 length;
		const char *bytes = get_row(block, row, &length);

		for (uint32 i = 0; i < length; i++)
			seen ^= bytes[i];
		if (block->type->form == FORM_FIXED)
			CHECK(length == block->type->length);
	}
	(void) seen;
}

static void
decode_damaged(void *argument)
{
	Damaged *damaged = argument;
	ByteCursor model_cursor = {damaged->model, damaged->model + damaged->model_length};
	ByteCursor cursor = {damaged->block, damaged->block + damaged->block_length};
	BytesModel *model = damaged->model != NULL ? bytes_model_read(&model_cursor) : NULL;
	ColumnBlock block;
	ByteBuffer arena;

	column_block_init(&block, damaged->stored->type);
	byte_buffer_init(&arena, 0);
	bytes_decode(model, &cursor, damaged->nrows, &arena, &block);
	CHECK(cursor.at <= cursor.end);
	read_everything(&block, damaged->nrows);
}

static void
make_chunks(Stored *chunks, uint32 nchunks)
{
	static const ColumnType *const types[] = {&varying, &fixed16, &fixed64};

	for (uint32 i = 0; i < nchunks; i++)
	{
		ColumnValues values;
		uint32 nrows = i % 3 == 0 ? 50 : 2000;

		make_values(&values, types[i % lengthof(types)], i / 3 % NKINDS, nrows, i % 2 == 0 ? 0 : 4);
		store_values(&chunks[i], &values, true);
	}
}

static void
damage_chunks(void)
{
	Stored chunks[6 * NKINDS];
	uint64 nerrors = 0;

	make_chunks(chunks, lengthof(chunks));
	while (harness_time_is_left(2000))
	{
		const Stored *stored = &chunks[harness_random_below(lengthof(chunks))];
		/* sometimes the model of another chunk */
		const Stored *other = harness_random_below(8)
								  ? stored
								  : &chunks[harness_random_below(lengthof(chunks))];
		uint32 block = (uint32) harness_random_below(stored->nblocks);
		Damaged damaged = {stored};

		damaged.nrows = Min(stored->nrows - block * BLOCK_ROWS, BLOCK_ROWS);
		if (harness_random_below(16) == 0)
			damaged.nrows = 1 + (uint32) harness_random_below(BLOCK_ROWS);
		if (other->model != NULL)
			damaged.model = harness_random_below(2)
								? harness_damage(other->model, other->model_length,
												 &damaged.model_length)
								: harness_copy(other->model,
											   damaged.model_length = other->model_length);
		damaged.block = harness_random_below(3)
							? harness_damage(stored->blocks[block], stored->lengths[block],
											 &damaged.block_length)
							: harness_copy(stored->blocks[block],
										   damaged.block_length = stored->lengths[block]);
		nerrors += !harness_try_damaged(decode_damaged, &damaged);
		free(unconstify(char *, damaged.model));
		free(unconstify(char *, damaged.block));
	}
	CHECK(nerrors > 500);
	for (uint32 i = 0; i < lengthof(chunks); i++)
		free_stored(&chunks[i]);
}

/* Damage that is known to be found. */
static void
check_damage(void)
{
	static const struct
	{
		const ColumnType *type;
		const char *model;
		int model_length;
		const char *block;
		int block_length;
		uint32 nrows;
	} cases[] = {
		/* unknown encodings, nothing at all */
		{&varying, NULL, 0, "\4", 1, 1},
		{&varying, NULL, 0, "\201\1a", 3, 1},
		{&varying, NULL, 0, "", 0, 1},
		/* a constant that is cut off; one of a wrong length */
		{&varying, NULL, 0, "\3\4abc", 5, 9},
		{&fixed16, NULL, 0, "\3\3abc", 5, 9},
		/* codes and symbols without a model */
		{&varying, NULL, 0, "\1\0\0\0\0\0\0\0\0\0", 10, 1},
		{&fixed16, NULL, 0, "\2\0", 2, 1},
		/* raw values of a fixed length that are too few, too many */
		{&fixed16, NULL, 0, "\0\17aaaaaaaaaaaaaaa", 17, 1},
		{&fixed16, NULL, 0, "\0\20aaaaaaaaaaaaaaaa", 18, 2},
		/* sparse, though of varying length */
		{&varying, NULL, 0, "\200\1\1a", 4, 1},
		/* models: unknown kind, empty dictionary, one of 65537, nothing */
		{&varying, "\7", 1, "\3\1a", 3, 1},
		{&varying, "\1\0\0", 3, "\3\1a", 3, 1},
		{&varying, "\1\201\200\4\0", 5, "\3\1a", 3, 1},
		{&varying, "", 0, "\3\1a", 3, 1},
	};

	for (int i = 0; i < lengthof(cases); i++)
	{
		Stored stored = {cases[i].type};
		Damaged damaged = {&stored};

		damaged.model = cases[i].model ? harness_copy(cases[i].model, cases[i].model_length) : NULL;
		damaged.model_length = cases[i].model_length;
		damaged.block = harness_copy(cases[i].block, cases[i].block_length);
		damaged.block_length = cases[i].block_length;
		damaged.nrows = cases[i].nrows;
		CHECK_THAT(!harness_try_damaged(decode_damaged, &damaged), "case %d", i);
		free(unconstify(char *, damaged.model));
		free(unconstify(char *, damaged.block));
	}
}

/* A block: kind, two lengths (if the first is not -1), n bytes. */
static bool
decodes_two(const ColumnType *of, const ByteBuffer *model, uint8 kind, int64 first, int64 second,
			uint32 nbytes)
{
	static const char bytes[64];
	const int64 lengths[2] = {first, second};
	Stored stored = {of};
	Damaged damaged = {&stored};
	ByteBuffer block;
	bool decoded;

	byte_buffer_init(&block, 0);
	byte_buffer_put_u8(&block, kind);
	if (first != -1)
		integer_encode(lengths, 2, &block);
	if (kind != BYTES_DICTIONARY)
	{
		varint_put(&block, nbytes);
		byte_buffer_append(&block, bytes, nbytes);
	}
	damaged.block_length = block.length;
	damaged.block = harness_copy(block.data, block.length);
	damaged.model_length = model != NULL ? model->length : 0;
	damaged.model = model != NULL ? harness_copy(model->data, model->length) : NULL;
	damaged.nrows = 2;
	decoded = harness_try_damaged(decode_damaged, &damaged);
	free(unconstify(char *, damaged.model));
	free(unconstify(char *, damaged.block));
	byte_buffer_free(&block);
	return decoded;
}

/* A dictionary of two entries of these lengths, and n bytes. */
static void
make_dictionary(ByteBuffer *model, int64 first, int64 second, uint32 nbytes)
{
	static const char bytes[64];
	const int64 lengths[2] = {first, second};

	byte_buffer_init(model, 0);
	byte_buffer_put_u8(model, 1);
	varint_put(model, 2);
	varint_put(model, nbytes);
	integer_encode(lengths, 2, model);
	byte_buffer_append(model, bytes, nbytes);
}

/* Numbers that do not agree with each other, next to such that do. */
static void
check_disagreements(void)
{
	const uint8 sparse = 0x80;
	ByteBuffer model;

	/* raw bytes: more, and fewer, than the lengths say; lengths below 0 and past 1 GB */
	CHECK(decodes_two(&varying, NULL, BYTES_RAW, 3, 4, 7));
	CHECK(!decodes_two(&varying, NULL, BYTES_RAW, 3, 4, 8));
	CHECK(!decodes_two(&varying, NULL, BYTES_RAW, 3, 4, 6));
	CHECK(!decodes_two(&varying, NULL, BYTES_RAW, 8, -1, 7));
	CHECK(!decodes_two(&varying, NULL, BYTES_RAW, PG_INT64_MAX, 9, 8));
	CHECK(decodes_two(&fixed16, NULL, BYTES_RAW, -1, 0, 32));
	CHECK(!decodes_two(&fixed16, NULL, BYTES_RAW, -1, 0, 33));
	CHECK(!decodes_two(&fixed16, NULL, BYTES_RAW, -1, 0, 31));
	/* presence: neither 0 nor 1, of no row at all */
	CHECK(decodes_two(&fixed16, NULL, BYTES_RAW | sparse, 0, 1, 16));
	CHECK(!decodes_two(&fixed16, NULL, BYTES_RAW | sparse, 0, 2, 32));
	CHECK(!decodes_two(&fixed16, NULL, BYTES_RAW | sparse, 0, 0, 0));
	/* codes past the dictionary, entries that are not as long as the type or as their bytes */
	make_dictionary(&model, 16, 16, 32);
	CHECK(decodes_two(&fixed16, &model, BYTES_DICTIONARY, 0, 1, 0));
	CHECK(!decodes_two(&fixed16, &model, BYTES_DICTIONARY, 0, 2, 0));
	CHECK(!decodes_two(&fixed16, &model, BYTES_DICTIONARY, 0, -1, 0));
	CHECK(!decodes_two(&fixed64, &model, BYTES_DICTIONARY, 0, 1, 0));
	make_dictionary(&model, 16, 15, 31);
	CHECK(decodes_two(&varying, &model, BYTES_DICTIONARY, 0, 1, 0));
	CHECK(!decodes_two(&fixed16, &model, BYTES_DICTIONARY, 0, 0, 0));
	make_dictionary(&model, 16, 15, 30);
	CHECK(!decodes_two(&varying, &model, BYTES_DICTIONARY, 0, 1, 0));
	/* symbols: code 0 is two bytes; too short, too long, and far too long for so few codes */
	byte_buffer_init(&model, 0);
	byte_buffer_append(&model, "\2\1\2ab", 5);
	CHECK(decodes_two(&varying, &model, BYTES_FSST, 3, 3, 3));
	CHECK(!decodes_two(&varying, &model, BYTES_FSST, 3, 2, 3));
	CHECK(!decodes_two(&varying, &model, BYTES_FSST, 3, 4, 3));
	CHECK(!decodes_two(&varying, &model, BYTES_FSST, 3, 22, 3));
	CHECK(!decodes_two(&varying, &model, BYTES_FSST, 1, 0, 3));
}

int
main(int argc, char **argv)
{
	harness_start(argc, argv);
	check_all_kinds();
	check_choices();
	check_packed_dictionary();
	CHECK(harness_try(check_too_many_values, NULL));
	CHECK(harness_try(check_long_values, NULL));
	check_damage();
	check_disagreements();
	damage_chunks();
	return harness_finish();
}
