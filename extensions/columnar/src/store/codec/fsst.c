/*
 * fsst.c
 *		FSST: strings as codes of up to 255 symbols of 1 to 8 bytes.
 *
 * The method of Boncz, Neumann and Leis (VLDB 2020): text is replaced, from left
 * to right, by the longest symbol that matches; what no symbol begins is escaped
 * byte by byte.  Decoding is a table look-up and an 8-byte store per code.
 *
 * Training: the sample is compressed with the table found so far (at first an
 * empty one: all escapes), and each symbol seen, and each two that followed one
 * another joined to one, is a candidate whose gain is the number of bytes it would
 * cover.  The candidates of the highest gain are the next table.  A round can
 * double the length of symbols; the rounds after the third let them find the places
 * where they do not get in each other's way.
 *
 * Matching: a symbol of 3 or more bytes lies in a hash table under its first
 * three bytes, one symbol per slot, so that one comparison of 8 bytes decides;
 * of symbols that meet in a slot the one of higher gain is in the table.  The
 * shorter ones are in an array over all pairs of bytes.
 *
 * A stored table:
 *
 *		u8	number of symbols (0 .. 255); the symbol's number is its code
 *		u8	length (1 .. 8) of each symbol
 *			the bytes of the symbols, one after the other
 *
 * Symbols are held as the 8 bytes they are loaded and stored as, which counts on
 * little-endian machines as all of the format does.
 */
#include "store/codec/fsst.h"

#define MAX_SYMBOLS 255
#define MAX_SYMBOL_LENGTH 8

#define SAMPLE_BYTES 16384
#define SAMPLE_SLICE 512 /* longest piece of one string */
#define TRAINING_ROUNDS 10
#define FULL_ROUNDS 3 /* the last ones; half of the sample is enough for the others */

/* Distinct candidates counted in a round; a sample has seldom more worth counting. */
#define CANDIDATE_SLOTS 32768
#define CANDIDATES_MAX (CANDIDATE_SLOTS / 4 * 3)
/* A candidate seen less often has its place in the table by chance. */
#define CANDIDATE_COUNT_MIN 2
/* A byte that is not a symbol costs two: what a symbol of one byte is worth more per byte. */
#define SINGLE_BYTE_WEIGHT 8
/* Gains at and above this are not told apart when the best candidates are selected. */
#define GAIN_BUCKETS 4096
/* Candidates tried for the table: more than fit, as some meet in a slot. */
#define CANDIDATES_TRIED 512

#define MATCH_SLOTS_LOG2 11
#define MATCH_SLOTS (1 << MATCH_SLOTS_LOG2)

typedef struct Symbol
{
	uint64 bytes; /* the unused ones are 0 */
	uint32 length;
} Symbol;

/* A symbol of 3 to 8 bytes, with what its test needs. */
typedef struct MatchSlot
{
	uint64 bytes;
	uint8 length; /* 0: the slot is empty */
	uint8 code;
} MatchSlot;

/* What the next bytes are coded as, when no symbol of 3 or more matches. */
typedef struct PairMatch
{
	uint8 code; /* FSST_ESCAPE: no symbol, one literal byte */
	uint8 length;
} PairMatch;

typedef struct Matcher
{
	MatchSlot slots[MATCH_SLOTS];
	PairMatch pairs[65536]; /* by the next two bytes, first byte low */
	PairMatch singles[256]; /* by the last byte of a string */
} Matcher;

struct FsstTable
{
	uint32 nsymbols;
	uint64 symbols[256];
	uint8 lengths[256]; /* 0: a code without a symbol */
	Matcher *matcher;	/* NULL in a table that was read: it only decompresses */
};

/* ---- matching ------------------------------------------------------------------------------ */

static inline uint64
load_word(const uint8 *at)
{
	uint64 word;

	memcpy(&word, at, sizeof(word));
	return word;
}

/* The next bytes where fewer than 8 are left, zeroes behind them. */
static inline uint64
load_rest(const uint8 *at, uint32 length)
{
	uint64 word = 0;

	memcpy(&word, at, length);
	return word;
}

static inline uint32
hash_prefix(uint64 word)
{
	return ((uint32) (word & 0xFFFFFF) * 2654435761U) >> (32 - MATCH_SLOTS_LOG2);
}

static inline bool
slot_matches(const MatchSlot *slot, uint64 word)
{
	return slot->length != 0 &&
		   ((slot->bytes ^ word) << (8 * (MAX_SYMBOL_LENGTH - slot->length))) == 0;
}

/* The code of the next bytes, and how many of them it covers; `left` is at least 1. */
static inline PairMatch
match_next(const Matcher *matcher, uint64 word, uint32 left)
{
	const MatchSlot *slot = &matcher->slots[hash_prefix(word)];

	if (slot->length <= left && slot_matches(slot, word))
		return (PairMatch){slot->code, slot->length};
	if (left >= 2)
		return matcher->pairs[word & 0xFFFF];
	return matcher->singles[word & 0xFF];
}

/* Empties a matcher: everything is escaped. */
static void
clear_matcher(Matcher *matcher)
{
	const PairMatch escape = {FSST_ESCAPE, 1};

	memset(matcher->slots, 0, sizeof(matcher->slots));
	for (uint32 i = 0; i < lengthof(matcher->pairs); i++)
		matcher->pairs[i] = escape;
	for (uint32 i = 0; i < lengthof(matcher->singles); i++)
		matcher->singles[i] = escape;
}

/*
 * Makes a symbol known to the matcher; false if its slot is taken.  All symbols of
 * two bytes must come before those of one, as these fill the gaps.
 */
static bool
add_to_matcher(Matcher *matcher, const Symbol *symbol, uint8 code)
{
	PairMatch match = {code, (uint8) symbol->length};

	if (symbol->length >= 3)
	{
		MatchSlot *slot = &matcher->slots[hash_prefix(symbol->bytes)];

		if (slot->length != 0)
			return false;
		*slot = (MatchSlot){symbol->bytes, (uint8) symbol->length, code};
	}
	else if (symbol->length == 2)
		matcher->pairs[symbol->bytes] = match;
	else
	{
		matcher->singles[symbol->bytes] = match;
		for (uint32 second = 0; second < 256; second++)
		{
			PairMatch *pair = &matcher->pairs[second << 8 | symbol->bytes];

			if (pair->code == FSST_ESCAPE)
				*pair = match;
		}
	}
	return true;
}

/* ---- training ------------------------------------------------------------------------------ */

typedef struct Sample
{
	uint8 *bytes;
	uint32 length;
	uint32 *ends; /* of the pieces */
	uint32 npieces;
} Sample;

typedef struct Candidate
{
	Symbol symbol;
	uint32 count;
} Candidate;

/* Candidates of a round: a hash table with open addressing. */
typedef struct CandidateSet
{
	Candidate *slots;
	uint32 ncandidates;
} CandidateSet;

/*
 * About SAMPLE_BYTES of the strings, evenly spread; pieces of long ones.  When one
 * piece of each chosen string is not enough, their next pieces follow.
 */
static void
collect_sample(Sample *sample, const char **strings, const uint32 *lengths, uint32 nstrings)
{
	uint64 available = 0;
	uint64 offset = 0;
	uint32 step;
	bool found = true;

	for (uint32 i = 0; i < nstrings; i++)
		available += Min(lengths[i], SAMPLE_SLICE);
	step = (uint32) Max(available / SAMPLE_BYTES, 1);

	sample->bytes = palloc(SAMPLE_BYTES);
	sample->ends = palloc(SAMPLE_BYTES * sizeof(uint32));
	sample->length = 0;
	sample->npieces = 0;

	for (; found && sample->length < SAMPLE_BYTES; offset += SAMPLE_SLICE)
	{
		found = false;
		for (uint64 i = 0; i < nstrings && sample->length < SAMPLE_BYTES; i += step)
		{
			uint32 length;

			if (lengths[i] <= offset)
				continue;
			length = (uint32) Min(lengths[i] - offset, SAMPLE_SLICE);
			length = Min(length, SAMPLE_BYTES - sample->length);
			memcpy(sample->bytes + sample->length, strings[i] + offset, length);
			sample->length += length;
			sample->ends[sample->npieces++] = sample->length;
			found = true;
		}
	}
}

static void
count_candidate(CandidateSet *set, uint64 bytes, uint32 length)
{
	uint64 hash = (bytes ^ length) * UINT64CONST(0x9E3779B97F4A7C15);
	uint32 at = (uint32) (hash >> 40) % CANDIDATE_SLOTS;

	for (;; at = (at + 1) % CANDIDATE_SLOTS)
	{
		Candidate *slot = &set->slots[at];

		if (slot->count > 0 && (slot->symbol.bytes != bytes || slot->symbol.length != length))
			continue;
		if (slot->count == 0)
		{
			if (set->ncandidates >= CANDIDATES_MAX)
				return;
			set->ncandidates++;
			slot->symbol = (Symbol){bytes, length};
		}
		slot->count++;
		return;
	}
}

/* Counts two neighbours as one symbol, cut to its greatest length. */
static void
count_joined(CandidateSet *set, const Symbol *first, const Symbol *second)
{
	uint32 length = Min(first->length + second->length, MAX_SYMBOL_LENGTH);
	uint64 bytes = first->bytes | second->bytes << (8 * first->length);

	count_candidate(set, bytes, length);
}

/* Compresses the sample's first pieces in thought, counts what their codes suggest as symbols. */
static void
count_sample(CandidateSet *set, const Sample *sample, uint32 npieces, const Matcher *matcher)
{
	uint32 at = 0;

	memset(set->slots, 0, CANDIDATE_SLOTS * sizeof(Candidate));
	set->ncandidates = 0;

	for (uint32 piece = 0; piece < npieces; piece++)
	{
		Symbol previous = {0, 0};

		while (at < sample->ends[piece])
		{
			uint32 left = Min(sample->ends[piece] - at, MAX_SYMBOL_LENGTH);
			uint64 word = load_rest(sample->bytes + at, left);
			PairMatch match = match_next(matcher, word, left);
			Symbol symbol = {word & (PG_UINT64_MAX >> (64 - 8 * match.length)), match.length};
			Symbol byte = {word & 0xFF, 1};

			count_candidate(set, symbol.bytes, symbol.length);
			if (symbol.length > 1)
				count_candidate(set, byte.bytes, 1);
			if (previous.length > 0 && previous.length < MAX_SYMBOL_LENGTH)
			{
				count_joined(set, &previous, &symbol);
				if (symbol.length > 1)
					count_joined(set, &previous, &byte);
			}
			previous = symbol;
			at += symbol.length;
		}
	}
}

/* Bytes of the sample that the candidate would cover, weighted; 0 for one of no use. */
static inline uint32
candidate_gain(const Candidate *candidate)
{
	if (candidate->count < CANDIDATE_COUNT_MIN)
		return 0;
	if (candidate->symbol.length == 1)
		return candidate->count * SINGLE_BYTE_WEIGHT;
	return candidate->count * candidate->symbol.length;
}

/* Highest gain first; then in an order of no meaning, but always the same. */
static int
compare_candidates(const void *left, const void *right)
{
	const Candidate *a = left;
	const Candidate *b = right;
	uint32 gain_a = candidate_gain(a);
	uint32 gain_b = candidate_gain(b);

	if (gain_a != gain_b)
		return gain_a > gain_b ? -1 : 1;
	if (a->symbol.length != b->symbol.length)
		return a->symbol.length > b->symbol.length ? -1 : 1;
	if (a->symbol.bytes != b->symbol.bytes)
		return a->symbol.bytes < b->symbol.bytes ? -1 : 1;
	return 0;
}

/* Moves the best candidates to the front of the slots, sorted; returns how many. */
static uint32
select_candidates(CandidateSet *set)
{
	uint32 histogram[GAIN_BUCKETS] = {0};
	uint32 lowest = GAIN_BUCKETS;
	uint32 nabove = 0;
	uint32 nselected = 0;

	for (uint32 i = 0; i < CANDIDATE_SLOTS; i++)
		histogram[Min(candidate_gain(&set->slots[i]), GAIN_BUCKETS - 1)]++;
	while (lowest > 1 && nabove < CANDIDATES_TRIED)
		nabove += histogram[--lowest];

	for (uint32 i = 0; i < CANDIDATE_SLOTS; i++)
	{
		if (candidate_gain(&set->slots[i]) >= lowest)
			set->slots[nselected++] = set->slots[i];
	}
	qsort(set->slots, nselected, sizeof(Candidate), compare_candidates);
	return nselected;
}

/* Makes the table of the best candidates that find a place, and the matcher for it. */
static void
fill_table(FsstTable *table, const Candidate *candidates, uint32 ncandidates)
{
	Matcher *matcher = table->matcher;

	clear_matcher(matcher);
	table->nsymbols = 0;
	memset(table->symbols, 0, sizeof(table->symbols));
	memset(table->lengths, 0, sizeof(table->lengths));

	for (uint32 i = 0; i < ncandidates && table->nsymbols < MAX_SYMBOLS; i++)
	{
		const Symbol *symbol = &candidates[i].symbol;

		if (symbol->length > 1 && !add_to_matcher(matcher, symbol, (uint8) table->nsymbols))
			continue;
		table->symbols[table->nsymbols] = symbol->bytes;
		table->lengths[table->nsymbols] = (uint8) symbol->length;
		table->nsymbols++;
	}
	for (uint32 code = 0; code < table->nsymbols; code++)
	{
		Symbol symbol = {table->symbols[code], table->lengths[code]};

		if (symbol.length == 1)
			add_to_matcher(matcher, &symbol, (uint8) code);
	}
}

FsstTable *
fsst_train(const char **strings, const uint32 *lengths, uint32 nstrings)
{
	FsstTable *table = palloc0(sizeof(FsstTable));
	CandidateSet set;
	Sample sample;

	table->matcher = palloc(sizeof(Matcher));
	clear_matcher(table->matcher);
	set.slots = palloc(CANDIDATE_SLOTS * sizeof(Candidate));
	collect_sample(&sample, strings, lengths, nstrings);

	for (int round = 0; round < TRAINING_ROUNDS; round++)
	{
		bool full = round >= TRAINING_ROUNDS - FULL_ROUNDS;

		count_sample(&set, &sample, full ? sample.npieces : (sample.npieces + 1) / 2,
					 table->matcher);
		fill_table(table, set.slots, select_candidates(&set));
	}

	pfree(set.slots);
	pfree(sample.bytes);
	pfree(sample.ends);
	return table;
}

/* ---- tables, stored ------------------------------------------------------------------------ */

void
fsst_write(const FsstTable *table, ByteBuffer *into)
{
	byte_buffer_put_u8(into, (uint8) table->nsymbols);
	byte_buffer_append(into, table->lengths, table->nsymbols);
	for (uint32 code = 0; code < table->nsymbols; code++)
		byte_buffer_append(into, &table->symbols[code], table->lengths[code]);
}

FsstTable *
fsst_read(ByteCursor *cursor)
{
	FsstTable *table = palloc0(sizeof(FsstTable));
	const char *lengths;

	table->nsymbols = byte_cursor_u8(cursor);
	lengths = byte_cursor_bytes(cursor, table->nsymbols);
	for (uint32 code = 0; code < table->nsymbols; code++)
	{
		uint8 length = (uint8) lengths[code];

		if (length < 1 || length > MAX_SYMBOL_LENGTH)
			format_damaged("symbol %u of a symbol table has %u bytes", code, length);
		memcpy(&table->symbols[code], byte_cursor_bytes(cursor, length), length);
		table->lengths[code] = length;
	}
	return table;
}

/* ---- compression --------------------------------------------------------------------------- */

/* The table must be one that was trained here; one that was read cannot compress. */
void
fsst_compress(const FsstTable *table, const char *bytes, uint32 length, ByteBuffer *into)
{
	const Matcher *matcher = table->matcher;
	const uint8 *at = (const uint8 *) bytes;
	const uint8 *end = at + length;
	uint8 *out;

	Assert(matcher != NULL);
	byte_buffer_reserve(into, (uint64) length * 2);
	out = (uint8 *) into->data + into->length;

	while (end - at >= MAX_SYMBOL_LENGTH)
	{
		uint64 word = load_word(at);
		const MatchSlot *slot = &matcher->slots[hash_prefix(word)];

		if (slot_matches(slot, word))
		{
			*out++ = slot->code;
			at += slot->length;
		}
		else
		{
			PairMatch match = matcher->pairs[word & 0xFFFF];

			/* the byte written after the code counts only if the code is the escape */
			out[0] = match.code;
			out[1] = (uint8) word;
			out += 1 + (match.code == FSST_ESCAPE);
			at += match.length;
		}
	}
	while (at < end)
	{
		uint32 left = (uint32) (end - at);
		uint64 word = load_rest(at, left);
		PairMatch match = match_next(matcher, word, left);

		*out++ = match.code;
		if (match.code == FSST_ESCAPE)
			*out++ = (uint8) word;
		at += match.length;
	}
	into->length = (char *) out - into->data;
}

/* ---- decompression ------------------------------------------------------------------------- */

/* Is one of the four bytes the escape? */
static inline bool
has_escape(uint32 four)
{
	return (((four & 0x7F7F7F7F) + 0x01010101) & four & 0x80808080) != 0;
}

/*
 * A code without a symbol has length 0: it is noticed once at the end, by the
 * sign that length - 1 leaves in `unknown`.
 */
uint64
fsst_decompress(const FsstTable *table, const char *codes, uint32 length, char *into,
				uint64 capacity)
{
	const uint64 *symbols = table->symbols;
	const uint8 *lengths = table->lengths;
	const uint8 *at = (const uint8 *) codes;
	const uint8 *end = at + length;
	char *out = into;
	char *out_end = into + capacity;
	int unknown = 0;

	while (end - at >= 4 && out_end - out >= 4 * MAX_SYMBOL_LENGTH)
	{
		uint32 four;

		memcpy(&four, at, sizeof(four));
		if (!has_escape(four))
		{
			for (int i = 0; i < 4; i++)
			{
				uint8 code = at[i];

				memcpy(out, &symbols[code], MAX_SYMBOL_LENGTH);
				out += lengths[code];
				unknown |= (int) lengths[code] - 1;
			}
			at += 4;
		}
		else if (*at == FSST_ESCAPE)
		{
			*out++ = (char) at[1];
			at += 2;
		}
		else
		{
			memcpy(out, &symbols[*at], MAX_SYMBOL_LENGTH);
			out += lengths[*at];
			unknown |= (int) lengths[*at] - 1;
			at++;
		}
	}
	while (at < end)
	{
		uint8 code = *at++;
		const void *from = &symbols[code];
		uint32 nbytes = lengths[code];

		if (code == FSST_ESCAPE)
		{
			if (at == end)
				format_damaged("a compressed string ends with an escape");
			from = at++;
			nbytes = 1;
		}
		if (nbytes > out_end - out)
			format_damaged("a compressed string is longer than the " UINT64_FORMAT
						   " bytes it should have",
						   capacity);
		memcpy(out, from, nbytes);
		out += nbytes;
		unknown |= (int) nbytes - 1;
	}
	if (unknown < 0)
		format_damaged("a compressed string has a code that its symbol table does not have");
	return out - into;
}
