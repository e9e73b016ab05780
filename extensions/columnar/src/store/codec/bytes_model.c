/*
 * bytes_model.c
 *		Training, writing and reading of what a chunk's blocks of byte strings share.
 *
 * The decision: values that repeat make a dictionary, on whose codes filters and
 * groups can be computed; else symbols, where a trial on a sample shows that they
 * save enough; else nothing.  Both are judged by their sizes.  Chunks whose values
 * do not repeat are the common case and are told by a few runs of rows; what is
 * left costs one pass over the rows, which ends when the distinct values get too
 * many.  Looking at the values never needs more memory than 16 bytes per row.
 *
 * A stored model:
 *
 *		u8	1: dictionary, 2: symbol table, 3: dictionary, its bytes as symbols
 *			dictionary: number of entries, number n of bytes (varints),
 *				lengths of all entries (blocks of integer_codec),
 *				[3: the symbol table, number m of codes (varint),] n (m) bytes
 *			symbol table: as fsst_write() leaves it
 *
 * A dictionary's own bytes may be symbols because it often is the larger part of its
 * chunk, and not every chunk has a general codec behind it.
 */
#include "store/codec/bytes_model.h"
#include "store/codec/integer_codec.h"
#include "store/value/varint.h"

#define DICTIONARY_MAX 65536

/* Values looked at before all are: where fewer repeat, a dictionary has no chance. */
#define PROBE_RUNS 128
#define PROBE_RUN_ROWS 16
#define PROBE_REPEATS_MIN (PROBE_RUNS * PROBE_RUN_ROWS / 128)

/* A search in the set that takes longer meets values made to collide. */
#define SEARCH_STEPS_MAX 1000

/* FSST: strings looked at, bytes compressed to learn the ratio, and what it must be good for. */
#define FSST_STRINGS_MAX 4096
#define FSST_TRIAL_BYTES 32768
#define FSST_TRIAL_SLICE 2048
#define FSST_BYTES_MIN 4096
#define FSST_LENGTH_MIN 8

/* Symbols have at most 8 bytes: so much longer can the decompressed form be. */
#define FSST_EXPANSION 8

/* Limits of a dictionary's size: of the raw size, and of the size with FSST. */
#define DICTIONARY_RATIO_SURE 0.5
#define DICTIONARY_RATIO_MAX 0.8
#define DICTIONARY_FSST_RATIO_MAX 1.25

/* ---- training: distinct values ------------------------------------------------------------- */

/* Distinct values in the order they came; a hash table with open addressing finds them. */
typedef struct ValueSet
{
	uint64 *slots; /* hash in the high half, entry + 1 in the low; 0: free */
	uint32 nslots; /* a power of 2, at least twice the entries */
	uint32 nentries;
	uint32 capacity;
	uint64 bytes;
	const char **starts;
	uint32 *lengths;
} ValueSet;

#define SET_FULL PG_UINT32_MAX

static void
init_set(ValueSet *set)
{
	memset(set, 0, sizeof(*set));
	set->capacity = 256;
	set->nslots = 2 * set->capacity;
	set->slots = palloc0(set->nslots * sizeof(uint64));
	set->starts = palloc(set->capacity * sizeof(char *));
	set->lengths = palloc(set->capacity * sizeof(uint32));
}

static void
free_set(ValueSet *set)
{
	pfree(set->slots);
	pfree(set->starts);
	pfree(set->lengths);
}

static uint32
hash_value(const char *bytes, uint32 length)
{
	const uint64 multiplier = UINT64CONST(0x9FB21C651E98DF25);
	uint64 hash = length * multiplier;
	uint64 word;

	for (; length >= sizeof(word); bytes += sizeof(word), length -= sizeof(word))
	{
		memcpy(&word, bytes, sizeof(word));
		hash = (hash ^ word) * multiplier;
		hash ^= hash >> 29;
	}
	hash = (hash ^ bytes_first_word(bytes, length)) * multiplier;
	hash ^= hash >> 32;
	return (uint32) (hash * multiplier >> 32);
}

static void
grow_set(ValueSet *set)
{
	uint32 nslots = set->nslots * 2;
	uint64 *slots = palloc0(nslots * sizeof(uint64));

	for (uint32 i = 0; i < set->nslots; i++)
	{
		uint32 at = (uint32) (set->slots[i] >> 32) & (nslots - 1);

		if (set->slots[i] == 0)
			continue;
		while (slots[at] != 0)
			at = (at + 1) & (nslots - 1);
		slots[at] = set->slots[i];
	}
	pfree(set->slots);
	set->slots = slots;
	set->nslots = nslots;
	set->capacity = nslots / 2;
	set->starts = repalloc(set->starts, set->capacity * sizeof(char *));
	set->lengths = repalloc(set->lengths, set->capacity * sizeof(uint32));
}

/* Number of the value's entry, a new one if need be; SET_FULL if the set cannot take it. */
static uint32
find_or_add(ValueSet *set, const char *bytes, uint32 length)
{
	uint32 hash = hash_value(bytes, length);
	uint32 at = hash & (set->nslots - 1);

	for (int steps = 0; set->slots[at] != 0; steps++)
	{
		uint32 entry = (uint32) set->slots[at] - 1;

		if (set->slots[at] >> 32 == hash && set->lengths[entry] == length &&
			memcmp(set->starts[entry], bytes, length) == 0)
			return entry;
		if (steps == SEARCH_STEPS_MAX)
			return SET_FULL;
		at = (at + 1) & (set->nslots - 1);
	}
	if (set->nentries == DICTIONARY_MAX)
		return SET_FULL;

	set->slots[at] = (uint64) hash << 32 | (set->nentries + 1);
	set->starts[set->nentries] = bytes;
	set->lengths[set->nentries] = length;
	set->bytes += length;
	set->nentries++;
	if (set->nentries == set->capacity)
		grow_set(set);
	return set->nentries - 1;
}

/* ---- training: dictionary ------------------------------------------------------------------ */

/* What the decisions are made of. */
typedef struct ValuesSummary
{
	uint32 npresent; /* rows that are not NULL */
	uint64 bytes;
	uint32 shortest;
	uint32 longest;
	uint64 lengths_size; /* estimate of what their lengths take */
} ValuesSummary;

static void
summarize_values(ValuesSummary *summary, const ColumnValues *values)
{
	memset(summary, 0, sizeof(*summary));
	summary->shortest = PG_UINT32_MAX;
	for (uint32 row = 0; row < values->nrows; row++)
	{
		uint32 length;

		if (bytes_model_is_null(values, row))
			continue;
		column_values_bytes(values, row, &length);
		summary->npresent++;
		summary->bytes += length;
		summary->shortest = Min(summary->shortest, length);
		summary->longest = Max(summary->longest, length);
	}
	if (summary->npresent > 0 && summary->longest > summary->shortest)
	{
		int width = 64 - __builtin_clzll(summary->longest - summary->shortest);

		/* the longest is often an outlier, which is patched */
		width = Min(width, 64 - __builtin_clzll(2 * summary->bytes / summary->npresent + 1));
		summary->lengths_size = (uint64) values->nrows * width / 8;
	}
}

/* Do values repeat?  Looks at short runs of rows all over the chunk. */
static bool
probe_repeats(const ColumnValues *values)
{
	uint32 step = values->nrows / PROBE_RUNS;
	uint32 nrepeats = 0;
	ValueSet set;

	if (step < 2 * PROBE_RUN_ROWS)
		return true; /* soon found out */
	init_set(&set);
	for (uint32 run = 0; run < PROBE_RUNS; run++)
	{
		for (uint32 i = 0; i < PROBE_RUN_ROWS; i++)
		{
			uint32 row = run * step + i;
			uint32 before = set.nentries;
			uint32 length;
			const char *bytes;

			if (bytes_model_is_null(values, row))
			{
				nrepeats++;
				continue;
			}
			bytes = column_values_bytes(values, row, &length);
			find_or_add(&set, bytes, length);
			nrepeats += set.nentries == before;
		}
	}
	free_set(&set);
	return nrepeats >= PROBE_REPEATS_MIN;
}

/*
 * Gives each row the number of its value; false, early, if there are too many
 * distinct ones or they have more than bytes_max bytes.
 */
static bool
assign_codes(const ColumnValues *values, uint64 bytes_max, ValueSet *set, uint32 *codes)
{
	uint32 code = 0;

	for (uint32 row = 0; row < values->nrows; row++)
	{
		if (!bytes_model_is_null(values, row))
		{
			uint32 length;
			const char *bytes = column_values_bytes(values, row, &length);

			code = find_or_add(set, bytes, length);
			if (code == SET_FULL || set->bytes > bytes_max)
				return false;
		}
		codes[row] = code;
	}
	return true;
}

/* Size of all rows' codes, exactly. */
static uint64
measure_codes(const uint32 *codes, uint32 nrows)
{
	int64 block[BLOCK_ROWS];
	uint64 size = 0;

	for (uint32 first = 0; first < nrows; first += BLOCK_ROWS)
	{
		uint32 n = Min(nrows - first, BLOCK_ROWS);

		for (uint32 i = 0; i < n; i++)
			block[i] = codes[first + i];
		size += 1 + integer_encoded_size(block, n);
	}
	return size;
}

/* A dictionary of the values, or NULL where they have too many for one. */
static BytesModel *
train_dictionary(const ColumnValues *values, const ValuesSummary *summary)
{
	BytesModel *model;
	ValueSet set;
	uint32 *codes;

	if (!probe_repeats(values))
		return NULL;
	init_set(&set);
	codes = palloc(values->nrows * sizeof(uint32));
	if (!assign_codes(values, (uint64) (summary->bytes * DICTIONARY_RATIO_MAX), &set, codes))
	{
		free_set(&set);
		pfree(codes);
		return NULL;
	}
	pfree(set.slots);

	model = palloc0(sizeof(BytesModel));
	model->kind = MODEL_DICTIONARY;
	model->dictionary.nentries = set.nentries;
	model->dictionary.starts = set.starts;
	model->dictionary.lengths = set.lengths;
	model->dictionary_bytes = set.bytes;
	model->codes = codes;
	return model;
}

/* ---- training: FSST ------------------------------------------------------------------------ */

/* Some of many strings. */
typedef struct StringSample
{
	const char **starts;
	uint32 *lengths;
	uint32 nstrings;
} StringSample;

/*
 * Size of all `bytes` bytes of the strings with these symbols, the table included;
 * judged by parts of some of them, other ones than the table was trained on where
 * there are enough.
 */
static uint64
try_symbols(const FsstTable *table, const StringSample *sample, uint64 bytes)
{
	uint64 available = 0;
	uint64 tried = 0;
	uint64 table_size;
	uint64 step;
	double ratio;
	ByteBuffer buffer;

	byte_buffer_init(&buffer, FSST_TRIAL_BYTES);
	fsst_write(table, &buffer);
	table_size = buffer.length;

	for (uint32 i = 0; i < sample->nstrings; i++)
		available += Min(sample->lengths[i], FSST_TRIAL_SLICE);
	step = Max(available / FSST_TRIAL_BYTES, 1);
	for (uint64 i = step / 2; i < sample->nstrings; i += step)
	{
		uint32 length = Min(sample->lengths[i], FSST_TRIAL_SLICE);

		fsst_compress(table, sample->starts[i] + (sample->lengths[i] - length) / 2, length,
					  &buffer);
		tried += length;
	}
	ratio = tried > 0 ? (double) (buffer.length - table_size) / tried : 1.0;
	byte_buffer_free(&buffer);
	return table_size + (uint64) (bytes * ratio);
}

/* Symbols for the strings, if they save enough of `bytes`; the size with them is in *size. */
static FsstTable *
train_symbols(const StringSample *sample, uint64 bytes, uint64 *size)
{
	FsstTable *table = fsst_train(sample->starts, sample->lengths, sample->nstrings);

	*size = try_symbols(table, sample, bytes);
	return *size <= bytes * BYTES_FSST_RATIO ? table : NULL;
}

/* A model of symbols for the values, or NULL. */
static BytesModel *
train_fsst(const ColumnValues *values, const ValuesSummary *summary, uint64 *size)
{
	uint32 step = values->nrows / FSST_STRINGS_MAX + 1;
	StringSample sample = {palloc(FSST_STRINGS_MAX * sizeof(char *)),
						   palloc(FSST_STRINGS_MAX * sizeof(uint32)), 0};
	FsstTable *table = NULL;
	BytesModel *model = NULL;

	for (uint64 row = 0; row < values->nrows; row += step)
	{
		if (!bytes_model_is_null(values, row))
		{
			sample.starts[sample.nstrings] = column_values_bytes(values, row,
																 &sample.lengths[sample.nstrings]);
			sample.nstrings++;
		}
	}
	if (sample.nstrings > 0)
		table = train_symbols(&sample, summary->bytes, size);
	if (table != NULL)
	{
		model = palloc0(sizeof(BytesModel));
		model->kind = MODEL_FSST;
		model->symbols = table;
	}
	pfree(sample.starts);
	pfree(sample.lengths);
	return model;
}

/* Are there enough bytes for symbols to be worth their table? */
static bool
suits_fsst(uint64 bytes, uint32 nstrings)
{
	return bytes >= FSST_BYTES_MIN && bytes >= (uint64) nstrings * FSST_LENGTH_MIN;
}

/* Stores the entries of a dictionary as symbols where that saves enough. */
static void
pack_dictionary(BytesModel *model)
{
	Dictionary *dictionary = &model->dictionary;
	StringSample sample = {dictionary->starts, dictionary->lengths, dictionary->nentries};
	uint64 size;
	FsstTable *table;

	if (!suits_fsst(model->dictionary_bytes, dictionary->nentries) ||
		model->dictionary_bytes > BYTES_FSST_MAX)
		return;
	table = train_symbols(&sample, model->dictionary_bytes, &size);
	if (table == NULL)
		return;
	byte_buffer_init(&model->packed, model->dictionary_bytes);
	for (uint32 entry = 0; entry < dictionary->nentries; entry++)
		fsst_compress(table, dictionary->starts[entry], dictionary->lengths[entry], &model->packed);
	if (model->packed.length > model->dictionary_bytes * BYTES_FSST_RATIO)
		byte_buffer_free(&model->packed);
	else
	{
		model->kind = MODEL_PACKED_DICTIONARY;
		model->symbols = table;
	}
}

/* ---- training: the decision ---------------------------------------------------------------- */

/* Is a dictionary of this size better than no model, or than one of FSST (PG_UINT64_MAX: none)? */
static bool
prefers_dictionary(uint64 size, uint64 raw_size, uint64 fsst_size)
{
	return size <= raw_size * DICTIONARY_RATIO_MAX &&
		   (double) size <= fsst_size * DICTIONARY_FSST_RATIO_MAX;
}

BytesModel *
bytes_model_train(const ColumnValues *values, bool fsst)
{
	ValuesSummary summary;
	BytesModel *dictionary;
	BytesModel *symbols = NULL;
	uint64 raw_size;
	uint64 size = 0;
	uint64 fsst_size = PG_UINT64_MAX;

	summarize_values(&summary, values);
	if (summary.npresent == 0)
		return NULL;
	raw_size = summary.bytes + summary.lengths_size;

	dictionary = train_dictionary(values, &summary);
	if (dictionary != NULL)
	{
		if (fsst)
			pack_dictionary(dictionary);
		size = measure_codes(dictionary->codes, values->nrows) + dictionary->dictionary.nentries;
		if (dictionary->kind == MODEL_PACKED_DICTIONARY)
			size += dictionary->packed.length;
		else
			size += dictionary->dictionary_bytes;
		if (size <= raw_size * DICTIONARY_RATIO_SURE)
			return dictionary;
	}
	if (fsst && suits_fsst(summary.bytes, summary.npresent))
		symbols = train_fsst(values, &summary, &fsst_size);
	fsst_size = symbols != NULL ? fsst_size + summary.lengths_size : PG_UINT64_MAX;

	if (dictionary != NULL && prefers_dictionary(size, raw_size, fsst_size))
		return dictionary;
	return symbols;
}

uint32
bytes_model_nentries(const BytesModel *model)
{
	return bytes_model_is_dictionary(model) ? model->dictionary.nentries : 0;
}

Dictionary *
bytes_model_dictionary(BytesModel *model)
{
	return bytes_model_is_dictionary(model) ? &model->dictionary : NULL;
}

/* ---- models, stored ------------------------------------------------------------------------ */

static void
write_dictionary(const BytesModel *model, ByteBuffer *into)
{
	const Dictionary *dictionary = &model->dictionary;
	int64 lengths[BLOCK_ROWS];

	varint_put(into, dictionary->nentries);
	varint_put(into, model->dictionary_bytes);
	for (uint32 first = 0; first < dictionary->nentries; first += BLOCK_ROWS)
	{
		uint32 n = Min(dictionary->nentries - first, BLOCK_ROWS);

		for (uint32 i = 0; i < n; i++)
			lengths[i] = dictionary->lengths[first + i];
		integer_encode(lengths, n, into);
	}
	if (model->kind == MODEL_PACKED_DICTIONARY)
	{
		fsst_write(model->symbols, into);
		varint_put(into, model->packed.length);
		byte_buffer_append(into, model->packed.data, model->packed.length);
		return;
	}
	for (uint32 entry = 0; entry < dictionary->nentries; entry++)
		byte_buffer_append(into, dictionary->starts[entry], dictionary->lengths[entry]);
}

void
bytes_model_write(const BytesModel *model, ByteBuffer *into)
{
	byte_buffer_put_u8(into, (uint8) model->kind);
	if (bytes_model_is_dictionary(model))
		write_dictionary(model, into);
	else
		fsst_write(model->symbols, into);
}

void
bytes_model_unpack(const FsstTable *table, const char *codes, uint64 ncodes, uint64 raw_length,
				   ByteBuffer *into)
{
	if (ncodes > raw_length * 2 || raw_length > ncodes * FSST_EXPANSION ||
		raw_length > BYTES_FSST_MAX)
		format_damaged(UINT64_FORMAT " codes of symbols stand for " UINT64_FORMAT " bytes", ncodes,
					   raw_length);
	into->length = 0;
	/* with room to spare, whole words can be written to the very end */
	byte_buffer_reserve(into, raw_length + 4 * FSST_EXPANSION);
	into->length = fsst_decompress(table, codes, (uint32) ncodes, into->data,
								   raw_length + 4 * FSST_EXPANSION);
	if (into->length != raw_length)
		format_damaged(UINT64_FORMAT " bytes were decompressed instead of " UINT64_FORMAT,
					   into->length, raw_length);
}

/* Reads the lengths of a dictionary's entries; their sum must be the number of its bytes. */
static void
read_entry_lengths(BytesModel *model, ByteCursor *cursor)
{
	Dictionary *dictionary = &model->dictionary;
	int64 lengths[BLOCK_ROWS];
	uint64 sum = 0;

	for (uint32 first = 0; first < dictionary->nentries; first += BLOCK_ROWS)
	{
		uint32 n = Min(dictionary->nentries - first, BLOCK_ROWS);

		integer_decode(cursor, n, lengths, NULL);
		for (uint32 i = 0; i < n; i++)
		{
			dictionary->lengths[first + i] = bytes_model_check_length(lengths[i]);
			sum += lengths[i];
			if (lengths[i] != dictionary->lengths[0])
				model->has_one_length = false;
		}
	}
	if (sum != model->dictionary_bytes)
		format_damaged("a dictionary has " UINT64_FORMAT " bytes instead of " UINT64_FORMAT,
					   model->dictionary_bytes, sum);
}

static void
read_dictionary(BytesModel *model, ByteCursor *cursor)
{
	Dictionary *dictionary = &model->dictionary;
	uint64 nentries = varint_get_limited(cursor, DICTIONARY_MAX, "the size of a dictionary");
	const char *bytes;

	if (nentries == 0)
		format_damaged("a dictionary is empty");
	dictionary->serial = dictionary_next_serial();
	dictionary->nentries = (uint32) nentries;
	dictionary->starts = palloc(nentries * sizeof(char *));
	dictionary->lengths = palloc(nentries * sizeof(uint32));
	dictionary->datums = palloc0(nentries * sizeof(Datum));
	model->dictionary_bytes = varint_get(cursor);
	model->has_one_length = true;
	read_entry_lengths(model, cursor);

	if (model->kind == MODEL_PACKED_DICTIONARY)
	{
		uint64 ncodes;

		model->symbols = fsst_read(cursor);
		ncodes = varint_get(cursor);
		bytes = byte_cursor_bytes(cursor, ncodes);
		byte_buffer_init(&model->packed, 0);
		bytes_model_unpack(model->symbols, bytes, ncodes, model->dictionary_bytes, &model->packed);
		bytes = model->packed.data;
	}
	else
		bytes = byte_cursor_bytes(cursor, model->dictionary_bytes);

	for (uint32 entry = 0; entry < dictionary->nentries; entry++)
	{
		dictionary->starts[entry] = bytes;
		bytes += dictionary->lengths[entry];
	}
}

BytesModel *
bytes_model_read(ByteCursor *cursor)
{
	BytesModel *model = palloc0(sizeof(BytesModel));

	model->kind = byte_cursor_u8(cursor);
	switch (model->kind)
	{
		case MODEL_DICTIONARY:
		case MODEL_PACKED_DICTIONARY:
			read_dictionary(model, cursor);
			return model;
		case MODEL_FSST:
			model->symbols = fsst_read(cursor);
			return model;
	}
	format_damaged("a model of byte strings has the unknown kind %d", (int) model->kind);
}
