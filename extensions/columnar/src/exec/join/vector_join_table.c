/*
 * vector_join_table.c
 *		From the values of a join's keys to the numbers of the rows that have them.
 *
 * Values become words as those of GROUP BY do (vector_groups_internal.h).  While rows
 * are added their words are kept, nothing else; at the end the ranges of the words are known,
 * and the words of each row become one code, in one of two ways:
 *
 *		packed	A key's part is word - low + 1, or 0 if no row can have the value; the code is the
 *				parts' number in the mixed radix of their ranges.  A code stands for one
 *				combination of words, so the words are not needed any more.
 *		hashed	The ranges' product passes 2^64, or there are odd numerics: a hash of all words
 *				and tags.  What is found is compared with the words of the row, which are kept.
 *
 * vector_join_index.c leads from codes to rows.  A row with a NULL has the code 0, which
 * finds nothing.
 *
 * In front of this stands, for a single key that comes as dictionary codes, an array from those
 * codes to rows: filled as they are met, and good as long as the dictionary is.
 *
 * Memory: what belongs to the rows lies in the context `data`, which a reset empties; garbage of
 * a batch in `scratch`.
 */
#include "exec/join/vector_join_index.h"
#include "exec/join/vector_join_rows.h"
#include "exec/join/vector_join_table.h"

#include "utils/memutils.h"

/* The number of rows must be an array's index + 1, and leave room for slots that are free. */
#define ROWS_MAX ((uint32) 1 << 31)

/* CodeRows.rows[] of a code that has not been looked up, or is being so; no rows' numbers. */
#define ROW_UNKNOWN ((uint32) 0xFEFEFEFE)
#define ROW_PENDING ((uint32) 0xFDFDFDFD)

/* Dictionary entries which a reset keeps room for. */
#define CODES_KEPT 4096

typedef struct JoinKey
{
	GroupKey values; /* makes the words */
	bool any_odd;

	/* the words' range, in rows that can be found; low > high: none */
	int64 low;
	int64 high;
	uint64 factor; /* packed: of the key's part in the code */
} JoinKey;

/* The rows of the entries of one dictionary. */
typedef struct CodeRows
{
	uint64 serial; /* of the dictionary; 0: none yet */
	uint32 nentries;
	uint32 capacity;
	uint32 *rows;
} CodeRows;

struct VectorJoinTable
{
	MemoryContext context;
	MemoryContext data;
	MemoryContext scratch;
	bool finished;
	bool hashed; /* once finished: what codes are */
	uint32 count;
	uint32 nusable; /* without a NULL */
	JoinRows rows;	/* freed by the end of adding if codes tell all of them */
	JoinIndex index;
	CodeRows code_rows;
	WordColumn *columns; /* by key: what make_codes() is to read */
	uint64 codes[GROUP_ROWS];
	int nkeys;
	JoinKey keys[FLEXIBLE_ARRAY_MEMBER];
};

/* ---- life ---------------------------------------------------------------------------------- */

/* The rows' memory is empty. */
static void
begin_table(VectorJoinTable *table)
{
	table->finished = false;
	table->hashed = false;
	table->count = 0;
	table->nusable = 0;
	join_rows_forget(&table->rows, table->data, table->nkeys);
	join_index_forget(&table->index, table->data);
	table->code_rows.serial = 0;
	if (table->code_rows.capacity > CODES_KEPT)
	{
		pfree(table->code_rows.rows);
		memset(&table->code_rows, 0, sizeof(table->code_rows));
	}
	for (int i = 0; i < table->nkeys; i++)
	{
		JoinKey *key = &table->keys[i];

		group_key_forget(&key->values, table->data);
		key->any_odd = false;
		key->low = PG_INT64_MAX;
		key->high = PG_INT64_MIN;
	}
}

VectorJoinTable *
vector_join_table_create(int nkeys, const VectorKey *keys)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "vector join table",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	VectorJoinTable *table = palloc0(offsetof(VectorJoinTable, keys) +
									 sizeof(JoinKey) * (Size) Max(nkeys, 1));

	Assert(nkeys >= 1);
	table->context = context;
	table->data = AllocSetContextCreate(context, "vector join table's data",
										ALLOCSET_DEFAULT_SIZES);
	table->scratch = AllocSetContextCreate(context, "vector join table's scratch",
										   ALLOCSET_DEFAULT_SIZES);
	table->columns = palloc0(sizeof(WordColumn) * (Size) nkeys);
	table->nkeys = nkeys;
	for (int i = 0; i < nkeys; i++)
		group_key_init(&table->keys[i].values, &keys[i]);
	begin_table(table);
	MemoryContextSwitchTo(old);
	return table;
}

void
vector_join_table_reset(VectorJoinTable *table)
{
	MemoryContextReset(table->data);
	MemoryContextReset(table->scratch);
	begin_table(table);
}

bool
vector_join_table_is_empty(const VectorJoinTable *table)
{
	return table->nusable == 0;
}

/* ---- codes --------------------------------------------------------------------------------- */

/* Adds a key's part to codes, or begins them.  Differences are modulo 2^64. */
GROUP_PIECE void
pack_piece(const int64 *restrict words, uint32 n, uint64 low, uint64 range, uint64 factor,
		   bool first, uint64 *restrict codes)
{
	for (uint32 i = 0; i < n; i++)
	{
		uint64 difference = (uint64) words[i] - low;
		uint64 part = difference > range ? 0 : difference + 1;

		codes[i] = first ? part : codes[i] + part * factor;
	}
}

VECTOR_KERNEL static void
pack_words(const int64 *words, uint32 n, uint64 low, uint64 range, uint64 factor, bool first,
		   uint64 *codes)
{
	if (first)
		GROUP_IN_PIECES(n, pack_piece(words + at, piece, low, range, factor, true, codes + at));
	else
		GROUP_IN_PIECES(n, pack_piece(words + at, piece, low, range, factor, false, codes + at));
}

GROUP_PIECE void
hash_piece(const int64 *restrict words, uint32 n, bool first, uint64 *restrict codes)
{
	for (uint32 i = 0; i < n; i++)
		codes[i] = group_mix((first ? 0 : codes[i]) ^ (uint64) words[i]) | 1;
}

VECTOR_KERNEL static void
hash_words(const int64 *words, uint32 n, bool first, uint64 *codes)
{
	if (first)
		GROUP_IN_PIECES(n, hash_piece(words + at, piece, true, codes + at));
	else
		GROUP_IN_PIECES(n, hash_piece(words + at, piece, false, codes + at));
}

/* Makes the codes of odd values others than those of words; they stay odd numbers. */
static void
hash_tags(const uint8 *tags, uint32 n, uint64 *codes)
{
	for (uint32 i = 0; i < n; i++)
	{
		if (tags[i] == TAG_ODD)
			codes[i] ^= UINT64CONST(0xA24BAED4963EE406);
	}
}

/* Clears the codes of rows with one of the tags, which are bits: they are not found. */
VECTOR_KERNEL static void
clear_codes(const uint8 *restrict tags, uint8 which, uint32 n, uint64 *restrict codes)
{
	for (uint32 i = 0; i < n; i++)
		codes[i] = (tags[i] & which) != 0 ? 0 : codes[i];
}

/* The codes of n rows, whose words and tags are in table->columns. */
static void
make_codes(VectorJoinTable *table, uint32 n)
{
	for (int i = 0; i < table->nkeys; i++)
	{
		const JoinKey *key = &table->keys[i];
		const WordColumn *column = &table->columns[i];

		if (!table->hashed)
			pack_words(column->words, n, (uint64) key->low, (uint64) key->high - (uint64) key->low,
					   key->factor, i == 0, table->codes);
		else
		{
			hash_words(column->words, n, i == 0, table->codes);
			if (column->tags != NULL)
				hash_tags(column->tags, n, table->codes);
		}
	}
	/* a packed table has no odd values */
	for (int i = 0; i < table->nkeys; i++)
	{
		if (table->columns[i].tags != NULL)
			clear_codes(table->columns[i].tags, table->hashed ? TAG_NULL : TAG_NULL | TAG_ODD, n,
						table->codes);
	}
}

/* ---- adding -------------------------------------------------------------------------------- */

/* Marks those of the n rows loaded that have a NULL; returns how many.  Without any, marks are undefined. */
static uint32
mark_unusable(const VectorJoinTable *table, uint32 n, uint8 *marks)
{
	bool any_tags = false;
	uint32 nmarked = 0;

	for (int i = 0; i < table->nkeys; i++)
	{
		const uint8 *tags = table->columns[i].tags;

		if (tags == NULL)
			continue;
		if (!any_tags)
			memset(marks, 0, n);
		any_tags = true;
		for (uint32 row = 0; row < n; row++)
			marks[row] |= tags[row] == TAG_NULL;
	}
	for (uint32 row = 0; row < n && any_tags; row++)
		nmarked += marks[row];
	return nmarked;
}

/* Makes words of the keys of n rows, in table->columns. */
static void
load_keys(VectorJoinTable *table, Vector *const *vectors, const uint16 *selection, uint32 n)
{
	MemoryContext old = MemoryContextSwitchTo(table->scratch);

	for (int i = 0; i < table->nkeys; i++)
	{
		group_key_load(&table->keys[i].values, vectors[i], selection, n);
		table->columns[i] = table->keys[i].values.rows;
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(table->scratch);
}

void
vector_join_table_add(VectorJoinTable *table, Vector *const *keys, const uint16 *selection,
					  uint32 nselected)
{
	uint8 unusable[GROUP_ROWS];
	uint32 nunusable;

	Assert(!table->finished && nselected <= GROUP_ROWS);
	if (nselected == 0)
		return;
	if (table->count >= ROWS_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("too many rows in a hash join")));
	load_keys(table, keys, selection, nselected);
	nunusable = mark_unusable(table, nselected, unusable);
	for (int i = 0; i < table->nkeys; i++)
	{
		JoinKey *key = &table->keys[i];

		key->any_odd |= key->values.has_odd;
		group_widen_range(table->columns[i].words, nunusable == 0 ? NULL : unusable, nselected,
						  &key->low, &key->high);
	}
	join_rows_append(&table->rows, table->columns, nselected);
	table->count += nselected;
	table->nusable += nselected - nunusable;
}

/* ---- the end of adding --------------------------------------------------------------------- */

/*
 * So many codes packed words have: the product of the keys' ranges, with one more part for values
 * that no row has.  0: too many, or words are not all.  Sets the factors if asked to.
 */
static uint64
count_codes(const VectorJoinTable *table, uint64 *factors)
{
	uint64 ncodes = 1;

	for (int i = 0; i < table->nkeys; i++)
	{
		const JoinKey *key = &table->keys[i];
		uint64 nparts;

		if (factors != NULL)
			factors[i] = ncodes;
		if (key->any_odd ||
			__builtin_add_overflow((uint64) key->high - (uint64) key->low, UINT64CONST(2), &nparts))
			return 0;
		if (__builtin_mul_overflow(ncodes, nparts, &ncodes))
			return 0;
	}
	return ncodes;
}

/* Without rows that could be found: two codes, as if there were one. */
static JoinIndexPlan
plan_index(const VectorJoinTable *table)
{
	return join_index_plan(table->nusable == 0 ? 2 : count_codes(table, NULL), table->nusable);
}

/* The codes of the rows from `first` on that fit a batch; returns how many. */
static uint32
make_stored_codes(VectorJoinTable *table, uint32 first)
{
	uint32 n = join_rows_read(&table->rows, first, table->columns);

	make_codes(table, n);
	return n;
}

/* Have two rows the same keys?  A JoinRowsEqual. */
static bool
are_equal_rows(const void *owner, uint32 row, uint32 other)
{
	const VectorJoinTable *table = owner;

	for (int i = 0; i < table->nkeys; i++)
	{
		if (join_rows_word(&table->rows, i, row) != join_rows_word(&table->rows, i, other) ||
			join_rows_tag(&table->rows, i, row) != join_rows_tag(&table->rows, i, other))
			return false;
	}
	return true;
}

/* Makes the index of all rows. */
static void
fill_index(VectorJoinTable *table, const JoinIndexPlan *plan)
{
	join_index_make(&table->index, plan, table->count);
	if (plan->form == JOIN_INDEX_RANKED)
	{
		for (uint32 first = 0; first < table->count; first += GROUP_ROWS)
		{
			uint32 n = make_stored_codes(table, first);

			join_index_mark(&table->index, table->codes, n);
		}
		join_index_rank(&table->index);
	}
	for (uint32 end = table->count; end > 0;)
	{
		uint32 first = (end - 1) / GROUP_ROWS * GROUP_ROWS;
		uint32 n = make_stored_codes(table, first);

		join_index_add(&table->index, table->codes, n, first, table->hashed ? are_equal_rows : NULL,
					   table);
		end = first;
	}
}

void
vector_join_table_finish(VectorJoinTable *table)
{
	JoinIndexPlan plan = plan_index(table);

	Assert(!table->finished);
	table->finished = true;
	for (int i = 0; i < table->nkeys; i++)
		table->keys[i].values.values.closed = true;
	if (table->nusable == 0)
	{
		join_rows_free(&table->rows);
		return;
	}

	table->hashed = plan.ncodes == 0;
	if (!table->hashed)
	{
		uint64 *factors = palloc(sizeof(uint64) * (Size) table->nkeys);

		count_codes(table, factors);
		for (int i = 0; i < table->nkeys; i++)
			table->keys[i].factor = factors[i];
		pfree(factors);
	}
	fill_index(table, &plan);
	if (!table->hashed)
		join_rows_free(&table->rows);
}

/* ---- look-up ------------------------------------------------------------------------------- */

static inline uint8
get_tag(const WordColumn *column, uint32 i)
{
	return column->tags == NULL ? TAG_VALUE : column->tags[i];
}

/* Do those rows that were found have the keys that were looked up? */
static bool
are_right_rows(const VectorJoinTable *table, const uint32 *rows, uint32 n)
{
	uint64 different = 0;

	for (int k = 0; k < table->nkeys; k++)
	{
		const WordColumn *column = &table->columns[k];

		join_rows_approach(&table->rows, k, rows, n);
		for (uint32 i = 0; i < n; i++)
		{
			uint32 row = rows[i] == VECTOR_NO_ROW ? 0 : rows[i];
			uint64 difference = column->words[i] ^ join_rows_word(&table->rows, k, row);

			difference |= get_tag(column, i) ^ join_rows_tag(&table->rows, k, row);
			different |= rows[i] == VECTOR_NO_ROW ? 0 : difference;
		}
	}
	return different == 0;
}

/* Has the row the keys of the i-th of those looked up? */
static bool
is_right_row(const VectorJoinTable *table, uint32 i, uint32 row)
{
	for (int k = 0; k < table->nkeys; k++)
	{
		const WordColumn *column = &table->columns[k];

		if (column->words[i] != join_rows_word(&table->rows, k, row) ||
			get_tag(column, i) != join_rows_tag(&table->rows, k, row))
			return false;
	}
	return true;
}

/* Keys whose hash others have, too: look at all of the hash.  Returns how many have a row. */
static uint32
correct_rows(const VectorJoinTable *table, uint32 n, uint32 *rows)
{
	uint32 nfound = 0;

	for (uint32 i = 0; i < n; i++)
	{
		uint32 bucket = PG_UINT32_MAX;
		uint32 slot = 0;
		bool found = rows[i] != VECTOR_NO_ROW;

		if (found && !is_right_row(table, i, rows[i]))
		{
			do
				found = join_index_find_next(&table->index, table->codes[i], &bucket, &slot,
											 &rows[i]);
			while (found && !is_right_row(table, i, rows[i]));
			if (!found)
				rows[i] = VECTOR_NO_ROW;
		}
		nfound += found;
	}
	return nfound;
}

/* The rows of any keys, the long way. */
static uint32
find_rows(VectorJoinTable *table, Vector *const *vectors, const uint16 *selection, uint32 n,
		  uint32 *rows)
{
	uint32 nfound;

	load_keys(table, vectors, selection, n);
	make_codes(table, n);
	nfound = join_index_find(&table->index, table->codes, n, rows);
	if (table->hashed && nfound > 0 && !are_right_rows(table, rows, n))
		nfound = correct_rows(table, n, rows);
	return nfound;
}

/* ---- dictionary codes ---------------------------------------------------------------------- */

static inline bool
has_codes(const VectorJoinTable *table, Vector *const *keys)
{
	return table->nkeys == 1 && keys[0]->form == VECTOR_CODES;
}

/* Makes room for the rows of the dictionary's entries, none of them known. */
static void
begin_dictionary(VectorJoinTable *table, const Dictionary *dictionary)
{
	CodeRows *known = &table->code_rows;
	uint32 nentries = Max(dictionary->nentries, 1);

	if (known->serial == dictionary->serial && known->nentries == dictionary->nentries)
		return;
	known->serial = 0;
	if (known->capacity < nentries)
	{
		if (known->rows != NULL)
			pfree(known->rows);
		known->capacity = 0;
		known->rows = NULL;
		known->rows = MemoryContextAllocHuge(table->context, sizeof(uint32) * (Size) nentries);
		known->capacity = nentries;
	}
	memset(known->rows, 0xFE, sizeof(uint32) * (Size) nentries); /* ROW_UNKNOWN */
	known->serial = dictionary->serial;
	known->nentries = dictionary->nentries;
}

GROUP_PIECE uint32
look_up_piece(const uint32 *restrict known, const uint32 *restrict codes,
			  const uint16 *restrict selection, uint32 n, uint32 *restrict rows)
{
	uint32 nunknown = 0;

	for (uint32 i = 0; i < n; i++)
	{
		rows[i] = known[codes[selection[i]]];
		nunknown += rows[i] == ROW_UNKNOWN;
	}
	return nunknown;
}

/* Returns how many rows are not known yet. */
VECTOR_KERNEL static uint32
look_up_codes(const uint32 *known, const uint32 *codes, const uint16 *selection, uint32 n,
			  uint32 *rows)
{
	uint32 nunknown = 0;

	GROUP_IN_PIECES(n, nunknown += look_up_piece(known, codes, selection + at, piece, rows + at));
	return nunknown;
}

/* The same with NULLs. */
static uint32
look_up_nullable_codes(const uint32 *known, const Vector *vector, const uint16 *selection, uint32 n,
					   uint32 *rows)
{
	uint32 nunknown = 0;

	for (uint32 i = 0; i < n; i++)
	{
		rows[i] = vector_is_null(vector, selection[i]) ? VECTOR_NO_ROW
													   : known[vector->codes[selection[i]]];
		nunknown += rows[i] == ROW_UNKNOWN;
	}
	return nunknown;
}

/* Finds the rows of codes that are not known yet. */
static void
complete_code_rows(VectorJoinTable *table, Vector *const *vectors, const uint16 *selection,
				   uint32 n, const uint32 *rows)
{
	uint32 *known = table->code_rows.rows;
	const uint32 *codes = vectors[0]->codes;
	uint16 missing[GROUP_ROWS] = {0};
	uint32 found[GROUP_ROWS];
	uint32 nmissing = 0;

	for (uint32 i = 0; i < n; i++)
	{
		if (rows[i] == ROW_UNKNOWN && known[codes[selection[i]]] == ROW_UNKNOWN)
		{
			known[codes[selection[i]]] = ROW_PENDING;
			missing[nmissing++] = selection[i];
		}
	}
	find_rows(table, vectors, missing, nmissing, found);
	for (uint32 i = 0; i < nmissing; i++)
		known[codes[missing[i]]] = found[i];
}

static uint32
look_up(const VectorJoinTable *table, const Vector *vector, const uint16 *selection, uint32 n,
		uint32 *rows)
{
	if (vector->nulls != NULL)
		return look_up_nullable_codes(table->code_rows.rows, vector, selection, n, rows);
	return look_up_codes(table->code_rows.rows, vector->codes, selection, n, rows);
}

static uint32
find_codes(VectorJoinTable *table, Vector *const *vectors, const uint16 *selection, uint32 n,
		   uint32 *rows)
{
	uint32 nfound = 0;

	begin_dictionary(table, vectors[0]->dictionary);
	if (look_up(table, vectors[0], selection, n, rows) > 0)
	{
		complete_code_rows(table, vectors, selection, n, rows);
		look_up(table, vectors[0], selection, n, rows);
	}
	for (uint32 i = 0; i < n; i++)
		nfound += rows[i] != VECTOR_NO_ROW;
	return nfound;
}

uint32
vector_join_table_find(VectorJoinTable *table, Vector *const *keys, const uint16 *selection,
					   uint32 nselected, uint32 *rows)
{
	Assert(table->finished && nselected <= GROUP_ROWS);
	if (nselected == 0)
		return 0;
	if (table->nusable == 0)
	{
		memset(rows, 0xFF, sizeof(uint32) * nselected); /* VECTOR_NO_ROW */
		return 0;
	}
	if (has_codes(table, keys))
		return find_codes(table, keys, selection, nselected, rows);
	return find_rows(table, keys, selection, nselected, rows);
}

uint32
vector_join_table_list(VectorJoinTable *table, Vector *const *keys, const uint16 *selection,
					   uint32 nselected, uint16 *positions, uint32 *rows)
{
	uint32 found[GROUP_ROWS];

	Assert(table->finished && nselected <= GROUP_ROWS);
	if (nselected == 0 || table->nusable == 0)
		return 0;
	if (!table->hashed && !has_codes(table, keys))
	{
		load_keys(table, keys, selection, nselected);
		make_codes(table, nselected);
		return join_index_list(&table->index, table->codes, selection, nselected, positions, rows);
	}
	if (vector_join_table_find(table, keys, selection, nselected, found) == 0)
		return 0;
	return join_list_found(found, selection, nselected, positions, rows);
}

/* ---- what the table tells of itself -------------------------------------------------------- */

bool
vector_join_table_is_unique(const VectorJoinTable *table)
{
	Assert(table->finished);
	return table->index.next == NULL;
}

uint32
vector_join_table_next(const VectorJoinTable *table, uint32 row)
{
	Assert(table->finished && row < table->count);
	return table->index.next == NULL ? VECTOR_NO_ROW : table->index.next[row];
}

/* Are the key's words integers in the order of zone maps? */
static bool
has_range(const VectorJoinTable *table, int key)
{
	const GroupKey *values = &table->keys[key].values;

	return table->nusable > 0 && values->kind == GROUP_KEY_INT && values->type.zone == ZONE_INT;
}

/* Rows of which another key is NULL may count. */
void
vector_join_table_zones(VectorJoinTable *table, int key, KeyZones *zones)
{
	int64 low = table->keys[key].low;
	int64 high = table->keys[key].high;

	Assert(!table->finished && key < table->nkeys);
	if (!has_range(table, key))
		return;
	key_zones_begin(zones, low, high);
	for (uint32 first = 0; first < table->count; first += GROUP_ROWS)
	{
		uint32 n = join_rows_read(&table->rows, first, table->columns);
		const WordColumn *column = &table->columns[key];

		for (uint32 i = 0; i < n; i++)
			if (column->words[i] >= low && column->words[i] <= high)
				key_zones_add(zones, column->words[i]);
	}
}

bool
vector_join_table_range(const VectorJoinTable *table, int key, int64 *low, int64 *high)
{
	Assert(table->finished && key < table->nkeys);
	if (!has_range(table, key))
		return false;
	*low = table->keys[key].low;
	*high = table->keys[key].high;
	return true;
}

Size
vector_join_table_memory(const VectorJoinTable *table)
{
	Size bytes = MemoryContextMemAllocated(table->context, true);

	if (!table->finished)
		bytes += plan_index(table).bytes;
	return bytes;
}
