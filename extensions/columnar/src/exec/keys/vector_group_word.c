/*
 * vector_group_word.c
 *		The word of a value: an int64 that equal values of a group key have in common.
 *
 * A numeric's word is its mantissa at one scale, that of the first values seen; what is no
 * int64 at this scale (NaN, infinities, 0.001 at scale 2) is "odd" and numbered by
 * numeric's own functions.  Whether a value is odd depends on the value alone, not on how it
 * is written (1.1, 1.10) nor on the form of the vector it comes in, so both ways never
 * hold the same value.
 *
 * What words do not tell, and groups show, is kept beside them where it differs from the
 * usual: a numeric's display scale, the sign of a float's zero or NaN.
 */
#include "exec/keys/vector_groups_internal.h"

#include "store/codec/float_codec.h"
#include "store/codec/numeric_codec.h"

#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/numeric.h"

/* ---- words of numerics --------------------------------------------------------------------- */

/* The largest of numeric_powers_of_ten that is an int64. */
#define POWER_MAX 18

/* The mantissa at another scale; false if that is no int64. */
static inline bool
rescale(int128 mantissa, int32 from, int32 to, int64 *word)
{
	if (mantissa == 0)
		from = to;
	while (from > to)
	{
		int32 step = Min(from - to, POWER_MAX);
		int64 power = (int64) numeric_powers_of_ten[step];

		if (mantissa == (int64) mantissa)
		{
			/* many times faster */
			if ((int64) mantissa % power != 0)
				return false;
			mantissa = (int64) mantissa / power;
		}
		else
		{
			if (mantissa % power != 0)
				return false;
			mantissa /= power;
		}
		from -= step;
	}
	if (to - from > POWER_MAX || mantissa > PG_INT64_MAX || mantissa < PG_INT64_MIN)
		return false;
	return !__builtin_mul_overflow((int64) mantissa, numeric_powers_of_ten[to - from], word);
}

/* The word of a numeric's bytes; false if it is odd. */
static bool
find_numeric_word(GroupKey *key, const char *bytes, uint32 length, int64 *word)
{
	int128 mantissa;
	int32 scale;

	if (!numeric_to_scaled(bytes, length, &mantissa, &scale))
	{
		/* too long; perhaps because of zeroes at the end, which mean nothing */
		Datum value = column_type_from_bytes(&key->type, bytes, length);
		const void *trimmed = DatumGetPointer(DirectFunctionCall1(numeric_trim_scale, value));

		if (!numeric_to_scaled(VARDATA(trimmed), VARSIZE(trimmed) - VARHDRSZ, &mantissa, &scale))
			return false;
	}
	if (key->scale < 0)
		key->scale = scale;
	return rescale(mantissa, scale, key->scale, word);
}

/* Is the row a scaled integer of the vector? */
static inline bool
is_scaled(const Vector *vector, uint32 row)
{
	return (vector->form == VECTOR_INT || vector->form == VECTOR_WIDE) &&
		   !vector_bit(vector->exceptions, row);
}

static inline int128
get_mantissa(const Vector *vector, uint32 row)
{
	return vector->form == VECTOR_INT ? (int128) vector->ints[row] : vector->wides[row];
}

/* The numeric of a scaled integer. */
static Datum
make_shown(const Vector *vector, uint32 row)
{
	int32 scale;
	int128 mantissa = vector_shown(vector, row, &scale);

	return numeric_from_scaled(mantissa, scale);
}

/* A varlena's bytes, detoasted. */
static const char *
get_datum_bytes(Datum value, uint32 *length)
{
	struct varlena *bytes = PG_DETOAST_DATUM_PACKED(value);

	*length = VARSIZE_ANY_EXHDR(bytes);
	return VARDATA_ANY(bytes);
}

/* The bytes of a numeric that is no scaled integer. */
static const char *
get_numeric_bytes(const Vector *vector, uint32 row, uint32 *length)
{
	if (vector->form == VECTOR_DATUM)
		return get_datum_bytes(vector->datums[row], length);
	return vector_bytes(vector, row, length);
}

/* The number of an odd numeric. */
static int64
number_odd(GroupKey *key, const Vector *vector, uint32 row)
{
	Datum value;
	int64 number;

	if (key->values.closed && key->values.count == 0)
		return VALUE_ABSENT;
	if (is_scaled(vector, row))
		value = make_shown(vector, row);
	else
	{
		uint32 length;
		const char *bytes = get_numeric_bytes(vector, row, &length);

		value = column_type_from_bytes(&key->type, bytes, length);
	}
	value_set_number_datums(&key->values, &value, 1, &number);
	return number;
}

/* Rows that are not NULL, one by one; true if one of them is odd. */
static bool
convert_numerics(GroupKey *key, const Vector *vector, const uint16 *rows, uint32 n, int64 *words,
				 uint8 *tags)
{
	bool has_odd = false;

	for (uint32 i = 0; i < n; i++)
	{
		uint32 row = rows[i];
		bool has_word;

		if (is_scaled(vector, row))
		{
			if (key->scale < 0)
				key->scale = vector->scale;
			has_word = rescale(get_mantissa(vector, row), vector->scale, key->scale, &words[i]);
		}
		else
		{
			uint32 length;
			const char *bytes = get_numeric_bytes(vector, row, &length);

			has_word = find_numeric_word(key, bytes, length, &words[i]);
		}
		tags[i] = has_word ? TAG_VALUE : TAG_ODD;
		if (!has_word)
		{
			words[i] = number_odd(key, vector, row);
			has_odd = true;
		}
	}
	return has_odd;
}

/* ---- words of other values ----------------------------------------------------------------- */

static double
get_datum_float(const Vector *vector, uint32 row)
{
	Datum value = vector->datums[row];

	return vector->type->length == sizeof(float4) ? float_widen_single((uint32) value)
												  : DatumGetFloat8(value);
}

static void
convert_bytes(GroupKey *key, const Vector *vector, const uint16 *rows, uint32 n, int64 *words)
{
	const char *starts[GROUP_ROWS];
	uint32 lengths[GROUP_ROWS];

	for (uint32 i = 0; i < n; i++)
	{
		if (vector->form != VECTOR_DATUM)
			starts[i] = vector_bytes(vector, rows[i], &lengths[i]);
		else if (key->type.length == -1)
			starts[i] = get_datum_bytes(vector->datums[rows[i]], &lengths[i]);
		else
		{
			starts[i] = DatumGetPointer(vector->datums[rows[i]]);
			lengths[i] = (uint32) key->type.length;
		}
	}
	value_set_number_bytes(&key->values, starts, lengths, n, words);
}

static void
convert_datums(GroupKey *key, const Vector *vector, const uint16 *rows, uint32 n, int64 *words)
{
	Datum values[GROUP_ROWS];

	for (uint32 i = 0; i < n; i++)
	{
		bool isnull;

		if (vector->form != VECTOR_DATUM)
			values[i] = vector_datum(vector, rows[i], &isnull);
		else if (key->type.length == -1)
			values[i] = PointerGetDatum(PG_DETOAST_DATUM(vector->datums[rows[i]]));
		else
			values[i] = vector->datums[rows[i]];
	}
	value_set_number_datums(&key->values, values, n, words);
}

bool
group_word_convert(GroupKey *key, const Vector *vector, const uint16 *rows, uint32 n, int64 *words,
				   uint8 *tags)
{
	bool is_datum = vector->form == VECTOR_DATUM;

	if (key->kind == GROUP_KEY_NUMERIC)
		return convert_numerics(key, vector, rows, n, words, tags);

	memset(tags, TAG_VALUE, n);
	switch (key->kind)
	{
		case GROUP_KEY_INT:
			for (uint32 i = 0; i < n; i++)
				words[i] = is_datum ? column_type_to_int(vector->type, vector->datums[rows[i]])
									: vector->ints[rows[i]];
			break;
		case GROUP_KEY_FLOAT:
			for (uint32 i = 0; i < n; i++)
				words[i] = group_word_of_float(is_datum ? get_datum_float(vector, rows[i])
														: vector->floats[rows[i]]);
			break;
		case GROUP_KEY_BYTES:
			convert_bytes(key, vector, rows, n, words);
			break;
		default:
			convert_datums(key, vector, rows, n, words);
			break;
	}
	return false;
}

/* ---- what words do not tell ---------------------------------------------------------------- */

/* The display scale of a numeric. */
static int32
find_display_scale(const GroupKey *key, const Vector *vector, uint32 row)
{
	int128 mantissa;
	int32 scale;
	uint32 length;
	const char *bytes;

	if (is_scaled(vector, row))
		return vector_bit(vector->padded, row) ? vector->padded_scale : vector->scale;
	bytes = get_numeric_bytes(vector, row, &length);
	if (numeric_to_scaled(bytes, length, &mantissa, &scale))
		return scale;
	return DatumGetInt32(
		DirectFunctionCall1(numeric_scale, column_type_from_bytes(&key->type, bytes, length)));
}

/* Has the double the sign bit? */
static bool
is_negative_float(const Vector *vector, uint32 row)
{
	double value = vector->form == VECTOR_DATUM ? get_datum_float(vector, row)
												: vector->floats[row];
	int64 bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits < 0;
}

int16
group_word_shown(const GroupKey *key, const Vector *vector, uint32 row, uint32 i)
{
	int64 word = key->rows.words[i];

	if (key->rows.tags != NULL && key->rows.tags[i] != TAG_VALUE)
		return 0;
	if (key->kind == GROUP_KEY_NUMERIC)
		return (int16) find_display_scale(key, vector, row);
	return (word == 0 || word == GROUP_NAN_WORD) && is_negative_float(vector, row);
}

/* The bytes of a value that is in the set of values. */
static const char *
get_image(const GroupKey *key, const Vector *vector, uint32 row, uint32 *length)
{
	if (key->kind == GROUP_KEY_NUMERIC && is_scaled(vector, row))
		return get_datum_bytes(make_shown(vector, row), length);
	if (vector->form != VECTOR_DATUM)
		return vector_bytes(vector, row, length);
	if (key->type.length == -1)
		return get_datum_bytes(vector->datums[row], length);
	*length = (uint32) datumGetSize(vector->datums[row], false, key->type.length);
	return DatumGetPointer(vector->datums[row]);
}

static void
add_image(GroupKey *key, uint32 group, Datum value)
{
	Size size = datumGetSize(value, false, key->type.length);
	char *copy = value_set_allocate(&key->values, size, MAXIMUM_ALIGNOF);

	if (key->nimages == key->images_capacity)
	{
		key->images_capacity = Max(16, 2 * key->images_capacity);
		if (key->images == NULL)
			key->images = MemoryContextAllocHuge(key->context,
												 sizeof(GroupImage) * (Size) key->images_capacity);
		else
			key->images = repalloc_huge(key->images,
										sizeof(GroupImage) * (Size) key->images_capacity);
	}
	memcpy(copy, DatumGetPointer(value), size);
	key->images[key->nimages].group = group;
	key->images[key->nimages].value = PointerGetDatum(copy);
	key->nimages++;
}

void
group_word_keep_image(GroupKey *key, const Vector *vector, uint32 row, uint32 i, uint32 group)
{
	uint8 tag = key->rows.tags == NULL ? TAG_VALUE : key->rows.tags[i];
	uint32 length;
	uint32 known_length;
	const char *bytes;
	const char *known;
	Datum value;

	if (tag == TAG_NULL || (key->kind == GROUP_KEY_NUMERIC && tag != TAG_ODD))
		return;
	value = value_set_datum(&key->values, key->rows.words[i]);
	known = DatumGetPointer(value);
	known_length = (uint32) datumGetSize(value, false, key->type.length);
	if (key->type.length == -1)
	{
		known += VARHDRSZ;
		known_length -= VARHDRSZ;
	}
	bytes = get_image(key, vector, row, &length);
	if (length != known_length || memcmp(bytes, known, length) != 0)
		add_image(key, group, column_type_from_bytes(&key->type, bytes, length));
}

/* A value that is in the set of values. */
static Datum
show_value(const GroupKey *key, uint32 group, int64 number)
{
	uint32 low = 0;
	uint32 high = key->nimages;

	while (low < high)
	{
		uint32 middle = low + (high - low) / 2;

		if (key->images[middle].group == group)
			return key->images[middle].value;
		if (key->images[middle].group < group)
			low = middle + 1;
		else
			high = middle;
	}
	return value_set_datum(&key->values, number);
}

/* ---- showing groups ------------------------------------------------------------------------ */

/* A numeric of the word with a display scale. */
static Datum
show_numeric(const GroupKey *key, int64 word, int32 scale)
{
	if (scale > key->scale)
		return DirectFunctionCall2(numeric_add, numeric_from_scaled(word, key->scale),
								   numeric_from_scaled(0, scale));
	/* zeroes only, as the value was written without them */
	for (int32 i = key->scale; i > scale && word != 0; i--)
		word /= 10;
	return numeric_from_scaled(word, scale);
}

static Datum
show_float(const GroupKey *key, int64 word, bool negative)
{
	double value;

	if (negative)
		word |= PG_INT64_MIN;
	memcpy(&value, &word, sizeof(value));
	if (key->type.length == sizeof(float4))
		return column_type_from_int(&key->type, (int64) float_narrow_single(value));
	return Float8GetDatum(value);
}

Datum
group_key_value(const GroupKey *key, uint32 group, bool *isnull)
{
	int64 word = key->group_words[group];
	uint8 tag = key->group_tags == NULL ? TAG_VALUE : key->group_tags[group];

	*isnull = tag == TAG_NULL;
	if (*isnull)
		return (Datum) 0;
	if (tag == TAG_ODD)
		return show_value(key, group, word);

	switch (key->kind)
	{
		case GROUP_KEY_INT:
			return column_type_from_int(&key->type, word);
		case GROUP_KEY_FLOAT:
			return show_float(key, word, key->group_shown != NULL && key->group_shown[group]);
		case GROUP_KEY_NUMERIC:
			return show_numeric(key, word,
								key->group_shown == NULL ? key->scale : key->group_shown[group]);
		default:
			return show_value(key, group, word);
	}
}
