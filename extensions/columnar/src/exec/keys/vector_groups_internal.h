/*
 * vector_groups_internal.h
 *		The parts of grouping: values to words, words to codes, codes to groups.
 *
 *		vectors of the keys
 *		   |  vector_group_key.c: each value becomes an int64, its word.  Equal values have
 *		   |  equal words, so nothing behind this step knows types.  Values that are
 *		   |  no integers are numbered by vector_value_set.c.
 *		words and tags of each key
 *		   |  vector_group_layout.c: the words of a row become one code of 64 bits: put
 *		   |  side by side where their ranges fit, else hashed.
 *		codes
 *		   |  vector_group_table.c: an array or a hash table.
 *		group numbers
 *
 * The words of all groups are kept, so that codes and tables can be made anew when
 * ranges have grown.
 */
#ifndef COLUMNAR_VECTOR_GROUPS_INTERNAL_H
#define COLUMNAR_VECTOR_GROUPS_INTERNAL_H

#include "exec/keys/vector_groups.h"

/* Arrays of positions and the like; a batch is never longer. */
#define GROUP_ROWS BLOCK_ROWS

/* Above this a table is expected to miss the second-level cache: what is looked up is prefetched. */
#define GROUP_CACHE_BYTES (512 * 1024)

/*
 * Before a function that is a loop over n values; GROUP_IN_PIECES() calls it with a
 * constant n as often as it can.  It is inlined, and gcc -O2 uses vector instructions in
 * loops of constant length only.
 */
#define GROUP_PIECE static pg_attribute_always_inline
#define GROUP_PIECE_ROWS 64

/* `call` is a call for `piece` values from number `at` on. */
#define GROUP_IN_PIECES(n, call)                                    \
	do                                                              \
	{                                                               \
		uint32 at = 0;                                              \
		for (; (n) -at >= GROUP_PIECE_ROWS; at += GROUP_PIECE_ROWS) \
		{                                                           \
			const uint32 piece = GROUP_PIECE_ROWS;                  \
			call;                                                   \
		}                                                           \
		if (at < (n))                                               \
		{                                                           \
			const uint32 piece = (n) -at;                           \
			call;                                                   \
		}                                                           \
	} while (0)

static inline uint64
group_mix(uint64 value)
{
	value *= UINT64CONST(0x9E3779B97F4A7C15);
	value ^= value >> 32;
	return value * UINT64CONST(0xD6E8FEB86659FD93);
}

/*
 * Memory that is read in no order.  If there is much of it the kernel is asked for large pages: else
 * finding the address of a page takes longer than what is looked up there.
 */
extern void *group_allocate(MemoryContext context, Size size);

/* ---- distinct values ----------------------------------------------------------------------- */

typedef struct ValueSlot
{
	uint32 hash;
	uint32 entry; /* number of the value + 1; 0: free */
	Datum value;
} ValueSlot;

/* The number of a value that a closed set does not have; no value has it. */
#define VALUE_ABSENT PG_INT64_MAX

/*
 * Values numbered 0, 1, 2 ... in order of appearance.  Compared by their bytes, or
 * by the functions of the type.  group_key_init() tells how; what it was told outlives
 * value_set_forget(), the values do not.
 */
typedef struct ValueSet
{
	const ColumnType *type;
	Oid collation;
	bool by_functions;
	bool trim_blanks;  /* bytes: blanks at the end do not count */
	bool ends_at_zero; /* bytes: what follows a zero byte does not count */
	bool can_differ;   /* equal values may have different bytes */
	bool hash_is_extended;
	FmgrInfo hash;
	FmgrInfo equal;

	bool closed; /* nothing is added; until value_set_forget() */

	MemoryContext context; /* of what follows; none while the set is empty */
	ValueSlot *slots;
	uint32 nslots; /* a power of 2 */
	uint32 count;
	uint32 capacity;
	Datum *datums; /* by number */
	char *free;	   /* rest of the arena's last block */
	Size free_bytes;
	Size block_bytes; /* size of the arena's next block */
} ValueSet;

/* Forgets all values: their context was reset. */
extern void value_set_forget(ValueSet *set, MemoryContext context);

/*
 * The numbers of n values, given by what follows their varlena header (of types of
 * fixed length: by all their bytes).  Those that are not there are added; a closed set has
 * VALUE_ABSENT for them.  Sets that compare bytes only.
 */
extern void value_set_number_bytes(ValueSet *set, const char *const *starts, const uint32 *lengths,
								   uint32 n, int64 *numbers);

/*
 * The same of datums, varlenas detoasted and with a 4-byte header.  Sets that compare by
 * functions only, which are called in, and may leave garbage in, the current context.
 */
extern void value_set_number_datums(ValueSet *set, const Datum *datums, uint32 n, int64 *numbers);

/* Memory that lives as long as the values. */
extern char *value_set_allocate(ValueSet *set, Size size, Size align);

/* Bytes that count in comparisons. */
static inline uint32
value_set_significant(const ValueSet *set, const char *bytes, uint32 length)
{
	if (set->trim_blanks)
	{
		while (length > 0 && bytes[length - 1] == ' ')
			length--;
	}
	else if (set->ends_at_zero)
		length = (uint32) strnlen(bytes, length);
	return length;
}

/* A hash of bytes, for which no set is needed. */
extern uint64 group_hash_bytes(const char *bytes, uint32 length);

static inline Datum
value_set_datum(const ValueSet *set, int64 number)
{
	Assert(number >= 0 && number < set->count);
	return set->datums[number];
}

/* ---- keys ---------------------------------------------------------------------------------- */

typedef enum GroupKeyKind
{
	GROUP_KEY_NONE,	   /* cannot be grouped here */
	GROUP_KEY_INT,	   /* equal if their integers are: the word is the integer */
	GROUP_KEY_FLOAT,   /* the bits of the double, of one zero and one NaN */
	GROUP_KEY_NUMERIC, /* the mantissa at the key's scale; odd: number in the set of values */
	GROUP_KEY_BYTES,   /* equal if their bytes are: number in the set of values */
	GROUP_KEY_DATUM	   /* the same, compared by the type's functions */
} GroupKeyKind;

/* What a word means: bits.  A NULL has the word 0. */
typedef enum WordTag
{
	TAG_VALUE = 0,
	TAG_NULL = 1,
	TAG_ODD = 2 /* a numeric that is no int64 at the key's scale */
} WordTag;

/* Words of rows or groups. */
typedef struct WordColumn
{
	const int64 *words;
	const uint8 *tags; /* no pointer: all are TAG_VALUE */
} WordColumn;

/* The words of a dictionary's entries, looked up when first met. */
typedef struct CodeWords
{
	uint64 serial; /* of the dictionary; 0: none yet */
	uint32 nentries;
	uint32 capacity;
	int64 *words;
	uint8 *states; /* 0: not looked up yet; else tag + 1 */
} CodeWords;

/* A group whose first value was written otherwise than the equal one in the set of values. */
typedef struct GroupImage
{
	uint32 group;
	Datum value;
} GroupImage;

typedef struct GroupKey
{
	ColumnType type;
	GroupKeyKind kind;
	int32 scale; /* numeric: of the words; -1: no value yet */
	ValueSet values;
	CodeWords codes;

	/* of the batch */
	WordColumn rows;
	bool has_odd;
	int64 *row_words; /* GROUP_ROWS of each */
	uint8 *row_tags;

	/* of the groups, in `context` */
	MemoryContext context;
	uint32 capacity;
	int64 *group_words;
	uint8 *group_tags;	/* made with the first that is not TAG_VALUE */
	int16 *group_shown; /* made with the first that differs; see group_key_append() */
	GroupImage *images; /* ascending by group */
	uint32 nimages;
	uint32 images_capacity;
	bool any_odd;

	/* how words become part of a code; see vector_groups.c */
	uint64 base;
	uint64 limit;
	int bits;
	int shift;
} GroupKey;

/* See vector_groups_are_alike(). */
extern bool group_key_is_alike(Oid type, Oid collation);

extern GroupKeyKind group_key_kind(Oid type, Oid collation);

/* Needs CurrentMemoryContext to live as long as the key. */
extern void group_key_init(GroupKey *key, const VectorKey *description);

/* Forgets all groups: `context`, in which their memory was, has been reset. */
extern void group_key_forget(GroupKey *key, MemoryContext context);

/*
 * Sets key->rows and key->has_odd from n rows of a vector.  Garbage goes to the current context.
 */
extern void group_key_load(GroupKey *key, const Vector *vector, const uint16 *rows, uint32 n);

/*
 * Keeps what was loaded for rows which[0 .. n - 1] (indexes into `rows`) as the words of
 * groups first, first + 1 ...
 */
extern void group_key_append(GroupKey *key, const Vector *vector, const uint16 *rows,
							 const uint16 *which, uint32 n, uint32 first);

extern Datum group_key_value(const GroupKey *key, uint32 group, bool *isnull);

/* words[i] = the word of row rows[i], none of them NULL. */
extern void group_gather_ints(const int64 *ints, const uint16 *rows, uint32 n, int64 *words);
extern void group_gather_floats(const double *floats, const uint16 *rows, uint32 n, int64 *words);

/* ---- words --------------------------------------------------------------------------------- */

#define GROUP_NAN_WORD INT64CONST(0x7FF8000000000000)

static inline int64
group_word_of_float(double value)
{
	int64 bits;

	value += 0.0; /* makes -0 to 0 */
	memcpy(&bits, &value, sizeof(bits));
	return value != value ? GROUP_NAN_WORD : bits;
}

/*
 * The words and tags of n rows that are not NULL, of a vector of any form; true if one of them
 * is odd.
 */
extern bool group_word_convert(GroupKey *key, const Vector *vector, const uint16 *rows, uint32 n,
							   int64 *words, uint8 *tags);

/*
 * What the word of row `row`, the i-th of those loaded, does not tell of its value: of a
 * numeric its display scale (key->scale, if it is the usual), of a float whether a zero or
 * NaN has the sign bit (0).
 */
extern int16 group_word_shown(const GroupKey *key, const Vector *vector, uint32 row, uint32 i);

/* Keeps how the value of a group's first row is written, if the set of values does not tell. */
extern void
group_word_keep_image(GroupKey *key, const Vector *vector, uint32 row, uint32 i, uint32 group);

/* ---- the table ----------------------------------------------------------------------------- */

typedef struct GroupSlot
{
	uint64 code;
	uint32 entry; /* group + 1; 0: free */
} GroupSlot;

/* From codes to groups: an array with an entry per code, or a hash table. */
typedef struct GroupTable
{
	MemoryContext context;
	uint32 *direct; /* group + 1, by code; or no pointer */
	GroupSlot *slots;
	int bits; /* 2^bits slots */
	uint32 nused;
} GroupTable;

/* Forgets all groups: the table's memory, in `context`, was reset. */
extern void group_table_forget(GroupTable *table, MemoryContext context);

/* Empties the table; codes are below 2^bits from now on. */
extern void group_table_make_direct(GroupTable *table, int bits);

/* Empties the table; any codes, about `count` of them. */
extern void group_table_make_hashed(GroupTable *table, uint32 count);

/*
 * The groups of n codes.  Those that are not there become groups first, first + 1 ...:
 * fresh[] gets the index of the code of each; returns how many.
 */
extern uint32 group_table_assign(GroupTable *table, const uint64 *codes, uint32 n, uint32 first,
								 uint32 *numbers, uint16 *fresh);

/* The groups of n codes; VECTOR_NO_GROUP for those that are not there. */
extern void
group_table_find(const GroupTable *table, const uint64 *codes, uint32 n, uint32 *numbers);

/* Adds n codes as groups first, first + 1 ...; codes may be there already (of a hash table). */
extern void group_table_add(GroupTable *table, const uint64 *codes, uint32 n, uint32 first);

/*
 * The next group of a code, of a hash table; `position` is PG_UINT32_MAX for the first.
 * False if there is none (any more).
 */
extern bool group_table_next(const GroupTable *table, uint64 code, uint32 *position, uint32 *group);

/* ---- all of it ------------------------------------------------------------------------------ */

typedef enum GroupLayout
{
	LAYOUT_NONE, /* no rows yet */
	LAYOUT_DIRECT,
	LAYOUT_PACKED,
	LAYOUT_HASHED
} GroupLayout;

/* From combinations of dictionary codes to groups. */
typedef struct CodeTable
{
	uint64 *serials; /* of each key's dictionary; 0: the table is empty */
	uint32 *nentries;
	uint32 *groups; /* group + 1; 0: not met yet */
	uint32 capacity;
} CodeTable;

struct VectorGroups
{
	MemoryContext context;
	MemoryContext data;
	MemoryContext scratch;
	uint32 count;
	bool closed;
	GroupLayout layout;
	uint32 review; /* number of groups at which a packed layout is thought over */
	GroupTable table;
	CodeTable code_table;
	uint64 codes[GROUP_ROWS];
	uint16 fresh[GROUP_ROWS];
	int nkeys;
	int nall;	/* nkeys, and behind them the keys that these determine */
	int *order; /* the caller's number of each */
	Vector **vectors;
	GroupKey keys[FLEXIBLE_ARRAY_MEMBER];
};

/* Widens the range low to high by n words, but those whose `skipped` is not 0; no pointer: all count. */
extern void
group_widen_range(const int64 *words, const uint8 *skipped, uint32 n, int64 *low, int64 *high);

/* Makes the codes of the n rows loaded, in groups->codes, under a layout that fits them. */
extern void group_layout_make_codes(VectorGroups *groups, uint32 n);

#endif
