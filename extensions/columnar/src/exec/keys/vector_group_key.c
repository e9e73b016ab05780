/*
 * vector_group_key.c
 *		A group key: what kind it is of, the words of a batch, the words of all groups.
 *
 * What a type's equality means decides, not its name: the kind of a key follows from
 * the function of its default equality operator, so types that borrow another's
 * operators (varchar those of text) are of its kind, and a type with an equality that is
 * not known here goes through its functions.
 *
 * A batch's words are found by loops over plain arrays where the vector holds words already, or
 * codes of a dictionary whose words are known; else value by value (vector_group_word.c).
 */
#include "exec/keys/vector_groups_internal.h"

#include "nodes/nodeFuncs.h"
#include "catalog/pg_type.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

/* CodeWords.states of an entry that is being looked up */
#define STATE_PENDING 255

/* Dictionary entries whose words a reset keeps room for. */
#define CODES_KEPT 4096

/* ---- kinds --------------------------------------------------------------------------------- */

/* The kind that the function of a type's equality operator makes. */
static GroupKeyKind
choose_kind(Oid equal, Oid typid, int16 length, bool byval)
{
	switch (equal)
	{
		case F_BOOLEQ:
		case F_CHAREQ:
		case F_INT2EQ:
		case F_INT4EQ:
		case F_INT8EQ:
		case F_OIDEQ:
		case F_XIDEQ:
		case F_CIDEQ:
		case F_XID8EQ:
		case F_CASH_EQ:
		case F_DATE_EQ:
		case F_TIME_EQ:
		case F_TIMESTAMP_EQ:
		case F_TIMESTAMPTZ_EQ:
		case F_PG_LSN_EQ:
		case F_ENUM_EQ:
			return byval ? GROUP_KEY_INT : GROUP_KEY_DATUM;
		case F_FLOAT4EQ:
		case F_FLOAT8EQ:
			return typid == FLOAT4OID || typid == FLOAT8OID ? GROUP_KEY_FLOAT : GROUP_KEY_DATUM;
		case F_NUMERIC_EQ:
			return typid == NUMERICOID ? GROUP_KEY_NUMERIC : GROUP_KEY_DATUM;
		case F_TEXTEQ:
		case F_BPCHAREQ:
		case F_BYTEAEQ:
			return length == -1 ? GROUP_KEY_BYTES : GROUP_KEY_DATUM;
		case F_NAMEEQ:
		case F_UUID_EQ:
		case F_MACADDR_EQ:
		case F_MACADDR8_EQ:
			return length > 0 && !byval ? GROUP_KEY_BYTES : GROUP_KEY_DATUM;
		default:
			return GROUP_KEY_DATUM;
	}
}

/* The equality and hash functions of a type. */
static TypeCacheEntry *
look_up_functions(Oid type)
{
	return lookup_type_cache(getBaseType(type), TYPECACHE_EQ_OPR_FINFO | TYPECACHE_HASH_PROC_FINFO |
													TYPECACHE_HASH_EXTENDED_PROC_FINFO);
}

GroupKeyKind
group_key_kind(Oid type, Oid collation)
{
	TypeCacheEntry *entry = look_up_functions(type);
	GroupKeyKind kind;

	if (!OidIsValid(entry->eq_opr_finfo.fn_oid))
		return GROUP_KEY_NONE;
	if (OidIsValid(collation))
	{
		if (!get_collation_isdeterministic(collation))
			return GROUP_KEY_NONE;
	}
	else if (OidIsValid(entry->typcollation))
		return GROUP_KEY_NONE; /* conflicting collations: an error, which core raises */

	kind = choose_kind(entry->eq_opr_finfo.fn_oid, entry->type_id, entry->typlen, entry->typbyval);
	if ((kind == GROUP_KEY_DATUM || kind == GROUP_KEY_NUMERIC) &&
		!OidIsValid(entry->hash_extended_proc) && !OidIsValid(entry->hash_proc))
		return GROUP_KEY_NONE;
	return kind;
}

bool
group_key_is_alike(Oid type, Oid collation)
{
	Oid equal = look_up_functions(type)->eq_opr_finfo.fn_oid;

	switch (group_key_kind(type, collation))
	{
		case GROUP_KEY_INT:
			return true;
		case GROUP_KEY_BYTES:
			return equal != F_BPCHAREQ && equal != F_NAMEEQ;
		default:
			return false;
	}
}

VectorKey
vector_key_of(const Node *expression)
{
	return (VectorKey){.type = exprType(expression),
					   .typmod = exprTypmod(expression),
					   .collation = exprCollation(expression)};
}

void
vector_key_type(const VectorKey *key, ColumnType *type)
{
	vector_type_init(type, key->type, key->typmod, key->collation);
}

static void
init_values(GroupKey *key, const TypeCacheEntry *entry)
{
	ValueSet *set = &key->values;
	Oid equal = entry->eq_opr_finfo.fn_oid;

	set->type = &key->type;
	set->collation = key->type.collation;
	set->by_functions = key->kind != GROUP_KEY_BYTES;
	set->trim_blanks = equal == F_BPCHAREQ;
	set->ends_at_zero = equal == F_NAMEEQ;
	set->can_differ = !key->type.byval &&
					  (set->by_functions || set->trim_blanks || set->ends_at_zero);
	if (!set->by_functions)
		return;
	fmgr_info_copy(&set->equal, (FmgrInfo *) &entry->eq_opr_finfo, CurrentMemoryContext);
	set->hash_is_extended = OidIsValid(entry->hash_extended_proc);
	if (set->hash_is_extended)
		fmgr_info_copy(&set->hash, (FmgrInfo *) &entry->hash_extended_proc_finfo,
					   CurrentMemoryContext);
	else
		fmgr_info_copy(&set->hash, (FmgrInfo *) &entry->hash_proc_finfo, CurrentMemoryContext);
}

void
group_key_init(GroupKey *key, const VectorKey *description)
{
	memset(key, 0, sizeof(*key));
	key->kind = group_key_kind(description->type, description->collation);
	if (key->kind == GROUP_KEY_NONE)
		elog(ERROR, "values of type %u cannot be grouped", description->type);
	vector_key_type(description, &key->type);
	if (key->kind >= GROUP_KEY_NUMERIC)
		init_values(key, look_up_functions(description->type));
	key->row_words = palloc0(sizeof(int64) * GROUP_ROWS);
	key->row_tags = palloc0(sizeof(uint8) * GROUP_ROWS);
}

static void
free_codes(CodeWords *codes)
{
	if (codes->words != NULL)
	{
		pfree(codes->words);
		pfree(codes->states);
	}
	memset(codes, 0, sizeof(*codes));
}

void
group_key_forget(GroupKey *key, MemoryContext context)
{
	key->scale = -1;
	key->context = context;
	key->capacity = 0;
	key->group_words = NULL;
	key->group_tags = NULL;
	key->group_shown = NULL;
	key->images = NULL;
	key->nimages = 0;
	key->images_capacity = 0;
	key->any_odd = false;
	value_set_forget(&key->values, context);
	key->codes.serial = 0;
	if (key->codes.capacity > CODES_KEPT)
		free_codes(&key->codes);
}

/* ---- loading a batch ----------------------------------------------------------------------- */

/* Writes TAG_NULL or TAG_VALUE for each row; are there NULLs? */
VECTOR_KERNEL static bool
load_nulls(const uint64 *restrict nulls, const uint16 *restrict rows, uint32 n,
		   uint8 *restrict tags)
{
	uint8 any = 0;

	for (uint32 i = 0; i < n; i++)
	{
		tags[i] = (nulls[rows[i] >> 6] >> (rows[i] & 63)) & 1;
		any |= tags[i];
	}
	return any != 0;
}

GROUP_PIECE void
gather_ints_piece(const int64 *restrict ints, const uint16 *restrict rows, uint32 n,
				  int64 *restrict words)
{
	for (uint32 i = 0; i < n; i++)
		words[i] = ints[rows[i]];
}

VECTOR_KERNEL void
group_gather_ints(const int64 *ints, const uint16 *rows, uint32 n, int64 *words)
{
	GROUP_IN_PIECES(n, gather_ints_piece(ints, rows + at, piece, words + at));
}

GROUP_PIECE void
gather_floats_piece(const double *restrict floats, const uint16 *restrict rows, uint32 n,
					int64 *restrict words)
{
	for (uint32 i = 0; i < n; i++)
		words[i] = group_word_of_float(floats[rows[i]]);
}

VECTOR_KERNEL void
group_gather_floats(const double *floats, const uint16 *rows, uint32 n, int64 *words)
{
	GROUP_IN_PIECES(n, gather_floats_piece(floats, rows + at, piece, words + at));
}

VECTOR_KERNEL static void
clear_nulls(const uint8 *restrict tags, uint32 n, int64 *restrict words)
{
	for (uint32 i = 0; i < n; i++)
		words[i] = tags[i] == TAG_NULL ? 0 : words[i];
}

/* The same value in all rows. */
static void
load_constant(GroupKey *key, const Vector *vector, const uint16 *rows, uint32 n)
{
	int64 word;
	uint8 tag;

	key->has_odd = group_word_convert(key, vector, rows, 1, &word, &tag);
	for (uint32 i = 0; i < n; i++)
		key->row_words[i] = word;
	if (key->has_odd)
	{
		memset(key->row_tags, tag, n);
		key->rows.tags = key->row_tags;
	}
}

/* Rows of any form, some perhaps NULL. */
static void
load_rows(GroupKey *key, const Vector *vector, const uint16 *rows, uint32 n)
{
	uint16 present[GROUP_ROWS] = {0};
	uint16 positions[GROUP_ROWS];
	int64 words[GROUP_ROWS];
	uint8 tags[GROUP_ROWS];
	uint32 npresent = 0;

	if (key->rows.tags == NULL)
	{
		key->has_odd = group_word_convert(key, vector, rows, n, key->row_words, key->row_tags);
		if (key->has_odd)
			key->rows.tags = key->row_tags;
		return;
	}
	for (uint32 i = 0; i < n; i++)
	{
		key->row_words[i] = 0;
		present[npresent] = rows[i];
		positions[npresent] = (uint16) i;
		npresent += key->row_tags[i] == TAG_VALUE;
	}
	key->has_odd = group_word_convert(key, vector, present, npresent, words, tags);
	for (uint32 i = 0; i < npresent; i++)
	{
		key->row_words[positions[i]] = words[i];
		key->row_tags[positions[i]] = tags[i];
	}
}

/* Scaled integers that are words already, but for exceptions. */
static void
load_ints(GroupKey *key, const Vector *vector, const uint16 *rows, uint32 n)
{
	if (vector->exceptions == NULL && key->rows.tags == NULL && rows[n - 1] == n - 1)
	{
		key->rows.words = vector->ints;
		return;
	}
	group_gather_ints(vector->ints, rows, n, key->row_words);
	if (key->rows.tags != NULL)
		clear_nulls(key->row_tags, n, key->row_words);
	if (vector->exceptions == NULL)
		return;

	if (key->rows.tags == NULL)
		memset(key->row_tags, TAG_VALUE, n);
	for (uint32 i = 0; i < n; i++)
	{
		if (key->row_tags[i] != TAG_NULL && vector_bit(vector->exceptions, rows[i]))
			key->has_odd |= group_word_convert(key, vector, &rows[i], 1, &key->row_words[i],
											   &key->row_tags[i]);
	}
	if (key->has_odd)
		key->rows.tags = key->row_tags;
}

/* Makes room for the words of the dictionary's entries, none of them known. */
static void
begin_dictionary(GroupKey *key, const Dictionary *dictionary)
{
	CodeWords *codes = &key->codes;
	uint32 nentries = Max(dictionary->nentries, 1);

	if (codes->serial == dictionary->serial && codes->nentries == dictionary->nentries)
		return;
	if (codes->capacity < nentries)
	{
		MemoryContext context = GetMemoryChunkContext(key->row_words);

		free_codes(codes);
		codes->words = MemoryContextAllocHuge(context, sizeof(int64) * (Size) nentries);
		codes->states = MemoryContextAllocHuge(context, nentries);
		codes->capacity = nentries;
	}
	memset(codes->words, 0xFF, sizeof(int64) * (Size) nentries);
	memset(codes->states, 0, nentries);
	codes->serial = dictionary->serial;
	codes->nentries = dictionary->nentries;
}

/* Looks up what is not known yet of the rows' codes. */
static void
complete_codes(GroupKey *key, const Vector *vector, const uint16 *rows, uint32 n)
{
	CodeWords *codes = &key->codes;
	uint16 missing[GROUP_ROWS] = {0};
	int64 words[GROUP_ROWS];
	uint8 tags[GROUP_ROWS];
	uint32 nmissing = 0;

	for (uint32 i = 0; i < n; i++)
	{
		if (vector_is_null(vector, rows[i]))
			continue;
		if (codes->states[vector->codes[rows[i]]] == 0)
		{
			codes->states[vector->codes[rows[i]]] = STATE_PENDING;
			missing[nmissing++] = rows[i];
		}
	}
	group_word_convert(key, vector, missing, nmissing, words, tags);
	for (uint32 i = 0; i < nmissing; i++)
	{
		uint32 code = vector->codes[missing[i]];

		codes->words[code] = words[i];
		codes->states[code] = tags[i] + 1;
	}
}

GROUP_PIECE int64
gather_code_words_piece(const int64 *restrict words, const uint32 *restrict codes,
						const uint16 *restrict rows, uint32 n, int64 *restrict into)
{
	int64 all = 0;

	for (uint32 i = 0; i < n; i++)
	{
		into[i] = words[codes[rows[i]]];
		all |= into[i];
	}
	return all;
}

/*
 * The words of codes, for keys whose words are not negative; a negative result tells that
 * some are not known yet.
 */
VECTOR_KERNEL static int64
gather_code_words(const int64 *words, const uint32 *codes, const uint16 *rows, uint32 n,
				  int64 *into)
{
	int64 all = 0;

	GROUP_IN_PIECES(n, all |= gather_code_words_piece(words, codes, rows + at, piece, into + at));
	return all;
}

/*
 * The same for any words and with NULLs (whose tags are set already), and with the other
 * tags; false if some are not known yet.
 */
static bool
gather_code_states(GroupKey *key, const Vector *vector, const uint16 *rows, uint32 n)
{
	uint8 lowest = PG_UINT8_MAX;
	uint8 highest = 0;

	for (uint32 i = 0; i < n; i++)
	{
		uint32 code = vector->codes[rows[i]];
		uint8 state;

		if (vector_is_null(vector, rows[i]))
		{
			key->row_words[i] = 0;
			key->row_tags[i] = TAG_NULL;
			continue;
		}
		state = key->codes.states[code];
		key->row_words[i] = key->codes.words[code];
		key->row_tags[i] = state - 1;
		lowest = Min(lowest, state);
		highest = Max(highest, state);
	}
	key->has_odd = highest == TAG_ODD + 1;
	if (key->has_odd)
		key->rows.tags = key->row_tags;
	return lowest > 0;
}

static bool
gather_codes(GroupKey *key, const Vector *vector, const uint16 *rows, uint32 n)
{
	if (key->kind == GROUP_KEY_NUMERIC || key->rows.tags != NULL)
		return gather_code_states(key, vector, rows, n);
	return gather_code_words(key->codes.words, vector->codes, rows, n, key->row_words) >= 0;
}

static void
load_codes(GroupKey *key, const Vector *vector, const uint16 *rows, uint32 n)
{
	begin_dictionary(key, vector->dictionary);
	if (gather_codes(key, vector, rows, n))
		return;
	complete_codes(key, vector, rows, n);
	if (!gather_codes(key, vector, rows, n))
		elog(ERROR, "words of dictionary entries are missing");
}

void
group_key_load(GroupKey *key, const Vector *vector, const uint16 *rows, uint32 n)
{
	key->rows.words = key->row_words;
	key->rows.tags = NULL;
	key->has_odd = false;

	if (vector->constant && vector->form != VECTOR_CODES)
	{
		load_constant(key, vector, rows, n);
		return;
	}
	if (vector->nulls != NULL && load_nulls(vector->nulls, rows, n, key->row_tags))
		key->rows.tags = key->row_tags;
	if (key->kind == GROUP_KEY_NUMERIC && key->scale < 0 && vector->scale >= 0)
		key->scale = vector->scale;

	if (vector->form == VECTOR_CODES)
		load_codes(key, vector, rows, n);
	else if (vector->form == VECTOR_INT &&
			 (key->kind == GROUP_KEY_INT ||
			  (key->kind == GROUP_KEY_NUMERIC && key->scale == vector->scale)))
		load_ints(key, vector, rows, n);
	else if (vector->form == VECTOR_FLOAT && key->kind == GROUP_KEY_FLOAT)
	{
		group_gather_floats(vector->floats, rows, n, key->row_words);
		if (key->rows.tags != NULL)
			clear_nulls(key->row_tags, n, key->row_words);
	}
	else
		load_rows(key, vector, rows, n);
}

/* ---- keeping groups ------------------------------------------------------------------------ */

static void *
grow_array(GroupKey *key, void *array, Size element, uint32 capacity)
{
	if (array == NULL)
		return MemoryContextAllocHuge(key->context, element * capacity);
	return repalloc_huge(array, element * capacity);
}

static void
reserve_groups(GroupKey *key, uint64 count)
{
	uint64 capacity = Max(key->capacity, 256);

	if (count <= key->capacity)
		return;
	while (capacity < count)
		capacity *= 2;
	if (capacity > PG_UINT32_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("too many groups of rows")));
	key->group_words = grow_array(key, key->group_words, sizeof(*key->group_words),
								  (uint32) capacity);
	if (key->group_tags != NULL)
		key->group_tags = grow_array(key, key->group_tags, sizeof(*key->group_tags),
									 (uint32) capacity);
	if (key->group_shown != NULL)
		key->group_shown = grow_array(key, key->group_shown, sizeof(*key->group_shown),
									  (uint32) capacity);
	key->capacity = (uint32) capacity;
}

static void
append_tags(GroupKey *key, const uint16 *which, uint32 n, uint32 first)
{
	if (key->group_tags == NULL)
	{
		uint8 any = 0;

		if (key->rows.tags == NULL)
			return;
		for (uint32 i = 0; i < n; i++)
			any |= key->rows.tags[which[i]];
		if (any == 0)
			return;
		key->group_tags = grow_array(key, NULL, sizeof(*key->group_tags), key->capacity);
		memset(key->group_tags, TAG_VALUE, first);
	}
	for (uint32 i = 0; i < n; i++)
		key->group_tags[first + i] = key->rows.tags == NULL ? TAG_VALUE : key->rows.tags[which[i]];
}

static void
append_shown(GroupKey *key, const Vector *vector, const uint16 *rows, const uint16 *which, uint32 n,
			 uint32 first)
{
	int16 usual = key->kind == GROUP_KEY_NUMERIC ? (int16) key->scale : 0;

	for (uint32 i = 0; i < n; i++)
	{
		int16 shown = group_word_shown(key, vector, rows[which[i]], which[i]);

		if (key->group_shown == NULL)
		{
			if (shown == usual)
				continue;
			key->group_shown = grow_array(key, NULL, sizeof(*key->group_shown), key->capacity);
			for (uint32 group = 0; group < first + i; group++)
				key->group_shown[group] = usual;
		}
		key->group_shown[first + i] = shown;
	}
}

void
group_key_append(GroupKey *key, const Vector *vector, const uint16 *rows, const uint16 *which,
				 uint32 n, uint32 first)
{
	reserve_groups(key, (uint64) first + n);
	for (uint32 i = 0; i < n; i++)
		key->group_words[first + i] = key->rows.words[which[i]];
	append_tags(key, which, n, first);
	key->any_odd |= key->has_odd;
	if (key->kind == GROUP_KEY_FLOAT || key->kind == GROUP_KEY_NUMERIC)
		append_shown(key, vector, rows, which, n, first);
	if (key->values.can_differ && (key->kind != GROUP_KEY_NUMERIC || key->has_odd))
	{
		for (uint32 i = 0; i < n; i++)
			group_word_keep_image(key, vector, rows[which[i]], which[i], first + i);
	}
}
