/*
 * column_harness.h
 *		Columns for the tests: types made by hand, values made at random.
 *
 * Include once per program: it brings the one function of PostgreSQL's function
 * manager that the format calls.
 */
#ifndef COLUMNAR_COLUMN_HARNESS_H
#define COLUMNAR_COLUMN_HARNESS_H

#include "harness.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "utils/memutils.h"

#include "store/value/column_values.h"
#include "store/codec/numeric_codec.h"

/* What kind of column: one per form, zone order and length that is treated in its own way. */
typedef enum ColumnKind
{
	KIND_BOOL,
	KIND_CHAR,
	KIND_INT2,
	KIND_INT4,
	KIND_INT8,
	KIND_OID,
	KIND_LSN, /* passed by value, but compared by a function */
	KIND_FLOAT4,
	KIND_FLOAT8,
	KIND_NUMERIC,	   /* of one scale */
	KIND_NUMERIC_WIDE, /* beyond int64 */
	KIND_NUMERIC_MIXED,
	KIND_TEXT,
	KIND_TEXT_LONG,
	KIND_BPCHAR,
	KIND_BYTEA,
	KIND_UUID,
	KIND_NAME,
	KIND_FIXED_COMPARE,
	KIND_VARLENA_COMPARE,
	KIND_VARLENA_UNORDERED,
	KIND_CSTRING
} ColumnKind;

#define NKINDS (KIND_CSTRING + 1)

/* How values are distributed. */
typedef enum ColumnPattern
{
	PATTERN_CONSTANT,
	PATTERN_FEW,
	PATTERN_ASCENDING,
	PATTERN_RANDOM,
	PATTERN_RUNS,
	PATTERN_OUTLIERS
} ColumnPattern;

#define NPATTERNS (PATTERN_OUTLIERS + 1)

/* ---- functions of the types -------------------------------------------------------------------- */

Datum
FunctionCall2Coll(FmgrInfo *function, Oid collation, Datum a, Datum b)
{
	LOCAL_FCINFO(info, 2);

	InitFunctionCallInfoData(*info, function, 2, collation, NULL, NULL);
	info->args[0].value = a;
	info->args[0].isnull = false;
	info->args[1].value = b;
	info->args[1].isnull = false;
	return FunctionCallInvoke(info);
}

static Datum
compare_lsn(PG_FUNCTION_ARGS)
{
	uint64 a = DatumGetUInt64(PG_GETARG_DATUM(0));
	uint64 b = DatumGetUInt64(PG_GETARG_DATUM(1));

	return Int32GetDatum(a < b ? -1 : a > b);
}

/* An order that is not that of memcmp: backwards. */
static Datum
compare_fixed(PG_FUNCTION_ARGS)
{
	return Int32GetDatum(
		memcmp(DatumGetPointer(PG_GETARG_DATUM(1)), DatumGetPointer(PG_GETARG_DATUM(0)), 12));
}

/* By length first. */
static Datum
compare_varlena(PG_FUNCTION_ARGS)
{
	struct varlena *a = (struct varlena *) DatumGetPointer(PG_GETARG_DATUM(0));
	struct varlena *b = (struct varlena *) DatumGetPointer(PG_GETARG_DATUM(1));

	if (VARSIZE(a) != VARSIZE(b))
		return Int32GetDatum(VARSIZE(a) < VARSIZE(b) ? -1 : 1);
	return Int32GetDatum(memcmp(VARDATA(a), VARDATA(b), VARSIZE(a) - VARHDRSZ));
}

/* Numerics of at most 18 digits (by their values), Infinity, then NaN. */
static Datum
compare_numeric(PG_FUNCTION_ARGS)
{
	int128 mantissas[2];
	int32 scales[2];
	bool special[2];

	for (int i = 0; i < 2; i++)
	{
		char *value = DatumGetPointer(PG_GETARG_DATUM(i));

		special[i] = !numeric_to_scaled(VARDATA(value), VARSIZE(value) - VARHDRSZ, &mantissas[i],
										&scales[i]);
		if (special[i])
			mantissas[i] = *(uint16 *) VARDATA(value) == 0xC000;
		else
		{
			for (int j = scales[i]; j < 18; j++)
				mantissas[i] *= 10;
		}
	}
	if (special[0] != special[1])
		return Int32GetDatum(special[0] ? 1 : -1);
	return Int32GetDatum(mantissas[0] < mantissas[1] ? -1 : mantissas[0] > mantissas[1]);
}

static uint64
mix(uint64 value)
{
	value = (value ^ value >> 31) * UINT64CONST(0x7fb5d329728ea185);
	value = (value ^ value >> 27) * UINT64CONST(0x81dadef4bc2dd44d);
	return value ^ value >> 33;
}

static Datum
hash_by_value(PG_FUNCTION_ARGS)
{
	return UInt64GetDatum(mix(DatumGetUInt64(PG_GETARG_DATUM(0))));
}

static Datum
hash_varlena(PG_FUNCTION_ARGS)
{
	struct varlena *value = (struct varlena *) DatumGetPointer(PG_GETARG_DATUM(0));
	uint64 hash = VARSIZE(value);

	for (uint32 i = 0; i < VARSIZE(value) - VARHDRSZ; i++)
		hash = mix(hash ^ (uint8) VARDATA(value)[i]);
	return UInt64GetDatum(hash);
}

/* ---- types ------------------------------------------------------------------------------------- */

static void
set_function(FmgrInfo *info, Oid oid, PGFunction function)
{
	info->fn_oid = oid;
	info->fn_addr = function;
	info->fn_nargs = 2;
	info->fn_strict = true;
}

static void
set_storage(ColumnType *type, Oid typid, int16 length, ColumnForm form, ZoneOrder zone)
{
	type->typid = typid;
	type->typmod = -1;
	type->length = length;
	type->byval = form == FORM_INT || form == FORM_FLOAT;
	type->align = TYPALIGN_INT;
	type->form = form;
	type->zone = zone;
	type->bytes_are_ordered = zone == ZONE_BYTES;
	if (type->byval)
		set_function(&type->hash, 949, hash_by_value);
	else if (length == -1)
		set_function(&type->hash, 448, hash_varlena);
}

static ColumnType
make_type(ColumnKind kind)
{
	ColumnType type = {0};

	switch (kind)
	{
		case KIND_BOOL:
			set_storage(&type, BOOLOID, 1, FORM_INT, ZONE_INT);
			type.is_unsigned = true;
			break;
		case KIND_CHAR:
			set_storage(&type, CHAROID, 1, FORM_INT, ZONE_INT);
			type.is_unsigned = true;
			break;
		case KIND_INT2:
			set_storage(&type, INT2OID, 2, FORM_INT, ZONE_INT);
			break;
		case KIND_INT4:
			set_storage(&type, INT4OID, 4, FORM_INT, ZONE_INT);
			break;
		case KIND_INT8:
			set_storage(&type, INT8OID, 8, FORM_INT, ZONE_INT);
			break;
		case KIND_OID:
			set_storage(&type, OIDOID, 4, FORM_INT, ZONE_INT);
			type.is_unsigned = true;
			break;
		case KIND_LSN:
			set_storage(&type, LSNOID, 8, FORM_INT, ZONE_COMPARE);
			set_function(&type.compare, 3251, compare_lsn);
			break;
		case KIND_FLOAT4:
			set_storage(&type, FLOAT4OID, 4, FORM_FLOAT, ZONE_FLOAT);
			break;
		case KIND_FLOAT8:
			set_storage(&type, FLOAT8OID, 8, FORM_FLOAT, ZONE_FLOAT);
			break;
		case KIND_NUMERIC:
		case KIND_NUMERIC_WIDE:
		case KIND_NUMERIC_MIXED:
			set_storage(&type, NUMERICOID, -1, FORM_NUMERIC, ZONE_COMPARE);
			set_function(&type.compare, 1769, compare_numeric);
			break;
		case KIND_TEXT:
		case KIND_TEXT_LONG:
			set_storage(&type, TEXTOID, -1, FORM_BYTES, ZONE_BYTES);
			break;
		case KIND_BPCHAR:
			set_storage(&type, BPCHAROID, -1, FORM_BYTES, ZONE_BYTES);
			type.trim_blanks = true;
			break;
		case KIND_BYTEA:
			set_storage(&type, BYTEAOID, -1, FORM_BYTES, ZONE_BYTES);
			break;
		case KIND_UUID:
			set_storage(&type, UUIDOID, 16, FORM_FIXED, ZONE_BYTES);
			break;
		case KIND_NAME:
			set_storage(&type, NAMEOID, NAMEDATALEN, FORM_FIXED, ZONE_BYTES);
			break;
		case KIND_FIXED_COMPARE:
			set_storage(&type, TIMETZOID, 12, FORM_FIXED, ZONE_COMPARE);
			set_function(&type.compare, 1358, compare_fixed);
			break;
		case KIND_VARLENA_COMPARE:
			set_storage(&type, JSONBOID, -1, FORM_BYTES, ZONE_COMPARE);
			set_function(&type.compare, 4044, compare_varlena);
			break;
		case KIND_VARLENA_UNORDERED:
			set_storage(&type, XMLOID, -1, FORM_BYTES, ZONE_NONE);
			break;
		case KIND_CSTRING:
			set_storage(&type, CSTRINGOID, -2, FORM_BYTES, ZONE_NONE);
			break;
	}
	return type;
}

/* ---- values ------------------------------------------------------------------------------------ */

/* The number that a row's value is made from. */
static uint64
choose_number(ColumnPattern pattern, uint32 row, uint64 *state)
{
	switch (pattern)
	{
		case PATTERN_CONSTANT:
			return 7;
		case PATTERN_FEW:
			return harness_random_below(20) * 1000;
		case PATTERN_ASCENDING:
			return *state += harness_random_below(3);
		case PATTERN_RANDOM:
			return harness_random_below(4) == 0 ? harness_random_bits(64) : harness_random();
		case PATTERN_RUNS:
			if (row == 0 || harness_random_below(50) == 0)
				*state = harness_random_bits(30);
			return *state;
		case PATTERN_OUTLIERS:
			return harness_random_below(50) == 0 ? harness_random() : harness_random_below(1000);
	}
	pg_unreachable();
}

/* A varlena of the bytes, now with a short header, now with a long one. */
static Datum
make_varlena(const char *bytes, uint32 length)
{
	char *value = palloc(length + VARHDRSZ);

	if (length + VARHDRSZ_SHORT <= VARATT_SHORT_MAX && harness_random_below(2) == 0)
	{
		SET_VARSIZE_SHORT(value, length + VARHDRSZ_SHORT);
		memcpy(VARDATA_SHORT(value), bytes, length);
	}
	else
	{
		SET_VARSIZE(value, length + VARHDRSZ);
		memcpy(VARDATA(value), bytes, length);
	}
	return PointerGetDatum(value);
}

/* Words that compress, a number that tells values apart; `length` bytes and what that number takes. */
static uint32
write_words(char *into, uint64 number, uint32 length)
{
	static const char *const words[] = {"regular ", "deposits ", "sleep ", "furiously ",
										"final ",	"packages ", "above ", "the "};
	uint32 end = (uint32) snprintf(into, 64, UINT64_FORMAT " ", number);
	uint64 state = number;

	while (end < length)
	{
		const char *word = words[state % lengthof(words)];

		memcpy(into + end, word, strlen(word));
		end += strlen(word);
		state = state * 6364136223846793005 + 1442695040888963407;
		state ^= state >> 29;
	}
	return end;
}

static Datum
make_numeric(ColumnKind kind, uint64 number)
{
	static const uint16 nan = 0xC000;
	static const uint16 infinity = 0xD000;

	if (kind == KIND_NUMERIC)
		return numeric_from_scaled((int64) number / 1000, 2);
	if (kind == KIND_NUMERIC_WIDE)
		return numeric_from_scaled((int128) (int64) number * 1000003, 10);
	switch (harness_random_below(40))
	{
		case 0:
			return make_varlena((const char *) &nan, sizeof(nan));
		case 1:
			return make_varlena((const char *) &infinity, sizeof(infinity));
		default:
			return numeric_from_scaled((int64) (number % 1000000), (int32) (number % 4));
	}
}

static Datum
make_datum(ColumnKind kind, uint64 number)
{
	char bytes[512] = {0};
	float4 single;
	float8 wide;

	switch (kind)
	{
		case KIND_BOOL:
			return BoolGetDatum(number % 2);
		case KIND_CHAR:
			return CharGetDatum((char) number);
		case KIND_INT2:
			return Int16GetDatum((int16) number);
		case KIND_INT4:
			return Int32GetDatum((int32) number);
		case KIND_OID:
			return ObjectIdGetDatum((Oid) number);
		case KIND_INT8:
		case KIND_LSN:
			return UInt64GetDatum(number);
		case KIND_FLOAT4:
			single = number % 100 == 99 ? NAN : (float4) ((int32) number % 100000) / 100;
			return Float4GetDatum(single);
		case KIND_FLOAT8:
			wide = (double) ((int64) number % 10000000) / 100;
			if (number % 100 == 99)
				wide = NAN;
			else if (number % 100 == 98)
				wide = -0.0;
			else if (number % 10 == 7)
				wide = (double) number * 1.1e-7;
			return Float8GetDatum(wide);
		case KIND_NUMERIC:
		case KIND_NUMERIC_WIDE:
		case KIND_NUMERIC_MIXED:
			return make_numeric(kind, number);
		case KIND_TEXT:
		case KIND_VARLENA_COMPARE:
			return make_varlena(bytes, write_words(bytes, number, number % 23));
		case KIND_TEXT_LONG:
		case KIND_VARLENA_UNORDERED:
			return make_varlena(bytes, write_words(bytes, number, 40 + number % 200));
		case KIND_BPCHAR:
			memset(bytes, ' ', 30);
			bytes[snprintf(bytes, 30, UINT64_FORMAT, number)] = ' ';
			return make_varlena(bytes, 30);
		case KIND_BYTEA:
			for (int i = 0; i < number % 37; i++)
				bytes[i] = (char) (number >> i % 60);
			return make_varlena(bytes, number % 37);
		case KIND_UUID:
			for (int i = 0; i < 2; i++)
			{
				uint64 half = mix(number + i);

				memcpy(bytes + i * sizeof(half), &half, sizeof(half));
			}
			break;
		case KIND_FIXED_COMPARE:
		case KIND_CSTRING:
			snprintf(bytes, 64, "%012llx", (unsigned long long) number);
			break;
		case KIND_NAME:
			/* garbage behind the end, as it may be in a name that was no column yet */
			memset(bytes, 'x', NAMEDATALEN);
			snprintf(bytes, NAMEDATALEN, "column_%llu", (unsigned long long) number);
			break;
	}
	{
		char *copy = palloc(sizeof(bytes));

		memcpy(copy, bytes, sizeof(bytes));
		return PointerGetDatum(copy);
	}
}

/* nrows values, `null_percent` of 100 of them NULL. */
static void
fill_values(ColumnValues *values, const ColumnType *type, ColumnKind kind, ColumnPattern pattern,
			uint32 nrows, int null_percent)
{
	uint64 state = 0;

	column_values_init(values, type);
	for (uint32 row = 0; row < nrows; row++)
	{
		bool isnull = harness_random_below(100) < null_percent;
		uint64 number = choose_number(pattern, row, &state);
		Datum value = isnull ? (Datum) 0 : make_datum(kind, number);

		column_values_append(values, value, isnull);
		if (!isnull && !type->byval)
			pfree(DatumGetPointer(value));
	}
}

/* Are two datums the same, byte for byte? */
static inline bool
are_datums_same(const ColumnType *type, Datum a, Datum b)
{
	const char *x = DatumGetPointer(a);
	const char *y = DatumGetPointer(b);

	if (type->byval)
		return column_type_to_int(type, a) == column_type_to_int(type, b);
	if (type->length == -2)
		return strcmp(x, y) == 0;
	if (type->length > 0)
		return memcmp(x, y, type->length) == 0;
	return VARSIZE(x) == VARSIZE(y) && memcmp(x, y, VARSIZE(x)) == 0;
}

#endif
