/*
 * vector_hash.c
 *		A hash of the keys of rows, by which rows are dealt out to parts.
 *
 * Each value becomes 64 bits, its word, which equal values have in common; the words of a row's
 * keys are mixed, key by key.  Words are not those of vector_group_key.c, whose numbers of values
 * and scales of numerics depend on what a process has met before.
 *
 * A numeric's word is the double that is nearest to it: division rounds right if mantissa and
 * power of ten are exact as doubles, so 11 / 10 and 110 / 100 are the same.  Larger mantissas lose
 * their trailing zeroes first, and if they still are too large are hashed without them.
 *
 * Words of dictionary entries are kept as long as the dictionary stays the same.
 */
#include "exec/keys/vector_hash.h"

#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/numeric.h"

#include "store/codec/float_codec.h"
#include "store/codec/numeric_codec.h"
#include "exec/keys/vector_groups_internal.h"

/* The word of NULL; of another value it may be, too. */
#define NULL_WORD UINT64CONST(0x9AE16A3B2F90404F)

/* Mantissas below are exact as doubles, and so are powers of ten up to this exponent. */
#define EXACT_MANTISSA (INT64CONST(1) << 53)
#define EXACT_SCALE_MAX 22

static const double exact_powers[EXACT_SCALE_MAX + 1] = {
	1e0,  1e1,	1e2,  1e3,	1e4,  1e5,	1e6,  1e7,	1e8,  1e9,	1e10, 1e11,
	1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

typedef struct HashKey
{
	GroupKey description; /* kind, type and functions alone are used */
	bool determined;	  /* by the others: need not be hashed */
	uint64 serial;		  /* of the dictionary; 0: none yet */
	uint32 nentries;
	uint32 capacity;
	uint64 *words; /* of its entries */
	bool *known;
} HashKey;

struct VectorHash
{
	MemoryContext context;
	int nkeys;
	HashKey keys[FLEXIBLE_ARRAY_MEMBER];
};

VectorHash *
vector_hash_create(int nkeys, const VectorKey *keys)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "vector hash",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	VectorHash *hash = palloc0(offsetof(VectorHash, keys) + sizeof(HashKey) * (Size) nkeys);

	hash->context = context;
	hash->nkeys = nkeys;
	for (int i = 0; i < nkeys; i++)
	{
		hash->keys[i].determined = keys[i].determined;
		group_key_init(&hash->keys[i].description, &keys[i]);
	}
	MemoryContextSwitchTo(caller);
	return hash;
}

/* ---- one value ----------------------------------------------------------------------------- */

static inline uint64
get_bits(double value)
{
	uint64 bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline bool
is_exact(int128 mantissa, int32 scale)
{
	return mantissa > -EXACT_MANTISSA && mantissa < EXACT_MANTISSA && scale <= EXACT_SCALE_MAX;
}

static uint64
hash_scaled(int128 mantissa, int32 scale)
{
	if (!is_exact(mantissa, scale))
	{
		while (scale > 0 && mantissa % 10 == 0)
		{
			mantissa /= 10;
			scale--;
		}
	}
	if (is_exact(mantissa, scale))
		return get_bits((double) (int64) mantissa / exact_powers[scale]);
	return group_mix(group_mix((uint64) mantissa) ^ (uint64) (mantissa >> 64)) + (uint64) scale;
}

static uint64
hash_datum(const HashKey *key, Datum value)
{
	FmgrInfo *function = (FmgrInfo *) &key->description.values.hash;
	Oid collation = key->description.values.collation;

	if (key->description.values.hash_is_extended)
		return DatumGetUInt64(FunctionCall2Coll(function, collation, value, Int64GetDatum(0)));
	return DatumGetUInt32(FunctionCall1Coll(function, collation, value));
}

static uint64
hash_numeric_datum(const HashKey *key, Datum value)
{
	struct varlena *bytes = PG_DETOAST_DATUM(value);
	int128 mantissa;
	int32 scale;

	if (numeric_to_scaled(VARDATA(bytes), VARSIZE(bytes) - VARHDRSZ, &mantissa, &scale))
		return hash_scaled(mantissa, scale);
	/* too long, perhaps because of zeroes at the end */
	bytes = (struct varlena *) DatumGetPointer(
		DirectFunctionCall1(numeric_trim_scale, PointerGetDatum(bytes)));
	if (numeric_to_scaled(VARDATA(bytes), VARSIZE(bytes) - VARHDRSZ, &mantissa, &scale))
		return hash_scaled(mantissa, scale);
	return hash_datum(key, PointerGetDatum(bytes));
}

static inline uint64
hash_bytes(const HashKey *key, const char *bytes, uint32 length)
{
	return group_hash_bytes(bytes, value_set_significant(&key->description.values, bytes, length));
}

/* A datum of an expression, of a key whose values are bytes. */
static uint64
hash_bytes_datum(const HashKey *key, Datum value)
{
	struct varlena *bytes;

	if (key->description.type.length != -1)
		return hash_bytes(key, DatumGetPointer(value), (uint32) key->description.type.length);
	bytes = PG_DETOAST_DATUM_PACKED(value);
	return hash_bytes(key, VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes));
}

/* A row that is not NULL, of any form. */
static uint64
hash_value(const HashKey *key, const Vector *vector, uint32 row)
{
	bool is_datum = vector->form == VECTOR_DATUM;
	bool isnull;
	uint32 length;
	const char *bytes;

	switch (key->description.kind)
	{
		case GROUP_KEY_INT:
			return is_datum ? (uint64) column_type_to_int(vector->type, vector->datums[row])
							: (uint64) vector->ints[row];
		case GROUP_KEY_FLOAT:
			if (!is_datum)
				return (uint64) group_word_of_float(vector->floats[row]);
			return (uint64) group_word_of_float(
				vector->type->length == sizeof(float4)
					? float_widen_single((uint32) vector->datums[row])
					: DatumGetFloat8(vector->datums[row]));
		case GROUP_KEY_NUMERIC:
			if (!vector_bit(vector->exceptions, row) && vector->form == VECTOR_INT)
				return hash_scaled(vector->ints[row], vector->scale);
			if (!vector_bit(vector->exceptions, row) && vector->form == VECTOR_WIDE)
				return hash_scaled(vector->wides[row], vector->scale);
			return hash_numeric_datum(key, vector_datum(vector, row, &isnull));
		case GROUP_KEY_BYTES:
			if (is_datum)
				return hash_bytes_datum(key, vector->datums[row]);
			bytes = vector_bytes(vector, row, &length);
			return hash_bytes(key, bytes, length);
		default:
			return hash_datum(key, vector_datum(vector, row, &isnull));
	}
}

/* ---- many values --------------------------------------------------------------------------- */

GROUP_PIECE uint64
divide_piece(const int64 *restrict ints, const uint16 *restrict rows, uint32 n, double power,
			 uint64 *restrict words)
{
	uint64 inexact = 0;

	for (uint32 i = 0; i < n; i++)
	{
		int64 mantissa = ints[rows[i]];
		double value = (double) mantissa / power;

		inexact |= (uint64) mantissa + EXACT_MANTISSA - 1 > 2 * (uint64) EXACT_MANTISSA - 2;
		words[i] = get_bits(value);
	}
	return inexact;
}

/* Mantissas as doubles; false if one of them is too large. */
VECTOR_KERNEL static bool
divide_ints(const int64 *ints, const uint16 *rows, uint32 n, double power, uint64 *words)
{
	uint64 inexact = 0;

	GROUP_IN_PIECES(n, inexact |= divide_piece(ints, rows + at, piece, power, words + at));
	return inexact == 0;
}

/* Room for the words of the dictionary's entries, none of them known. */
static void
begin_dictionary(const VectorHash *hash, HashKey *key, const Dictionary *dictionary)
{
	uint32 nentries = Max(dictionary->nentries, 1);

	if (key->serial == dictionary->serial && key->nentries == dictionary->nentries)
		return;
	if (key->capacity < nentries)
	{
		if (key->words != NULL)
		{
			pfree(key->words);
			pfree(key->known);
		}
		key->capacity = 0;
		key->words = MemoryContextAllocHuge(hash->context, sizeof(uint64) * (Size) nentries);
		key->known = MemoryContextAllocHuge(hash->context, sizeof(bool) * (Size) nentries);
		key->capacity = nentries;
	}
	memset(key->known, 0, sizeof(bool) * (Size) nentries);
	key->serial = dictionary->serial;
	key->nentries = dictionary->nentries;
}

static void
load_codes(const VectorHash *hash, HashKey *key, const Vector *vector, const uint16 *rows, uint32 n,
		   uint64 *words)
{
	begin_dictionary(hash, key, vector->dictionary);
	for (uint32 i = 0; i < n; i++)
	{
		uint32 code = vector->codes[rows[i]];

		if (!key->known[code] && !vector_is_null(vector, rows[i]))
		{
			key->words[code] = hash_value(key, vector, rows[i]);
			key->known[code] = true;
		}
		words[i] = key->words[code];
	}
}

static void
load_values(const HashKey *key, const Vector *vector, const uint16 *rows, uint32 n, uint64 *words)
{
	if (key->description.kind == GROUP_KEY_BYTES && vector->form == VECTOR_BYTES &&
		vector->nulls == NULL)
	{
		for (uint32 i = 0; i < n; i++)
			words[i] = hash_bytes(key, vector->starts[rows[i]], vector->lengths[rows[i]]);
		return;
	}
	for (uint32 i = 0; i < n; i++)
		words[i] = vector_is_null(vector, rows[i]) ? NULL_WORD : hash_value(key, vector, rows[i]);
}

/* The words of a key of n rows. */
static void
load_words(const VectorHash *hash, HashKey *key, const Vector *vector, const uint16 *rows, uint32 n,
		   uint64 *words)
{
	GroupKeyKind kind = key->description.kind;

	if (vector->form == VECTOR_CODES)
		load_codes(hash, key, vector, rows, n, words);
	else if (vector->constant)
	{
		words[0] = hash_value(key, vector, rows[0]);
		for (uint32 i = 1; i < n; i++)
			words[i] = words[0];
		return;
	}
	else if (vector->form == VECTOR_INT && kind == GROUP_KEY_INT)
		group_gather_ints(vector->ints, rows, n, (int64 *) words);
	else if (vector->form == VECTOR_FLOAT && kind == GROUP_KEY_FLOAT)
		group_gather_floats(vector->floats, rows, n, (int64 *) words);
	else if (vector->form != VECTOR_INT || kind != GROUP_KEY_NUMERIC ||
			 vector->exceptions != NULL || vector->scale > EXACT_SCALE_MAX ||
			 !divide_ints(vector->ints, rows, n, exact_powers[vector->scale], words))
	{
		load_values(key, vector, rows, n, words);
		return;
	}
	if (vector->nulls == NULL)
		return;
	for (uint32 i = 0; i < n; i++)
		words[i] = vector_is_null(vector, rows[i]) ? NULL_WORD : words[i];
}

/* ---- rows ---------------------------------------------------------------------------------- */

GROUP_PIECE void
mix_piece(const uint64 *restrict words, uint32 n, bool first, uint64 *restrict hashes)
{
	for (uint32 i = 0; i < n; i++)
	{
		uint64 hash = ((first ? 0 : hashes[i]) ^ words[i]) * UINT64CONST(0xBF58476D1CE4E5B9);

		hashes[i] = hash ^ hash >> 31;
	}
}

VECTOR_KERNEL static void
mix_words(const uint64 *words, uint32 n, bool first, uint64 *hashes)
{
	if (first)
		GROUP_IN_PIECES(n, mix_piece(words + at, piece, true, hashes + at));
	else
		GROUP_IN_PIECES(n, mix_piece(words + at, piece, false, hashes + at));
}

GROUP_PIECE void
finish_piece(uint64 *hashes, uint32 n)
{
	for (uint32 i = 0; i < n; i++)
	{
		uint64 hash = hashes[i] * UINT64CONST(0x94D049BB133111EB);

		hashes[i] = hash ^ hash >> 32;
	}
}

/* Makes all bits depend on all others. */
VECTOR_KERNEL static void
finish_hashes(uint64 *hashes, uint32 n)
{
	GROUP_IN_PIECES(n, finish_piece(hashes + at, piece));
}

void
vector_hash_rows(VectorHash *hash, Vector *const *keys, const uint16 *selection, uint32 nselected,
				 uint64 *hashes)
{
	uint64 words[BLOCK_ROWS];
	bool first = true;

	if (nselected == 0)
		return;
	for (int i = 0; i < hash->nkeys; i++)
	{
		if (hash->keys[i].determined)
			continue;
		load_words(hash, &hash->keys[i], keys[i], selection, nselected, words);
		mix_words(words, nselected, first, hashes);
		first = false;
	}
	finish_hashes(hashes, nselected);
}
