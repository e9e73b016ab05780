/*
 * deleted_rows.c
 *		The deleted rows of a whole table, for scans: the union of the vectors that
 *		count, as bitmaps by unit.
 *
 * A hash table has the units with deleted rows; a unit's bitmap is 16 words, so a
 * scan asks once per block of rows and gets its answer with shifts, whatever the
 * position of the block in its unit.  Everything lives in the memory context that
 * is current when it is loaded, and is not changed afterwards.  Loading reads no
 * shared state but the vectors themselves, so it works in parallel workers.
 */
#include "postgres.h"

#include "store/rows/row_version.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/transam.h"
#include "common/hashfn.h"
#include "port/pg_bitutils.h"

#include "store/rows/row_state.h"

#define UNIT_WORDS (UNIT_ROWS / 64)

typedef struct DeletedUnit
{
	uint32 unit;
	char status; /* simplehash.h's */
	uint64 words[UNIT_WORDS];
} DeletedUnit;

#define SH_PREFIX units
#define SH_ELEMENT_TYPE DeletedUnit
#define SH_KEY_TYPE uint32
#define SH_KEY unit
#define SH_HASH_KEY(table, key) murmurhash32(key)
#define SH_EQUAL(table, a, b) ((a) == (b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

struct DeletedRows
{
	units_hash *units; /* NULL: nothing is deleted */
};

/* ---- loading ----------------------------------------------------------------------------------- */

/* Which vectors count. */
typedef struct Loader
{
	DeletedRows *deleted;
	GroupCatalog *catalog;
	Snapshot snapshot;		   /* MVCC: those that it sees */
	TransactionId oldest_xmin; /* valid: what was committed before; else own and committed ones */
	uint64 end;				   /* units from this row on are left out */
	Size memory;			   /* and those behind the one with which so much is taken */
} Loader;

static void
add_vector(DeletedRows *deleted, const RowVector *vector)
{
	DeletedUnit *unit;
	bool found;

	if (deleted->units == NULL)
		deleted->units = units_create(CurrentMemoryContext, 64, NULL);
	unit = units_insert(deleted->units, vector->unit, &found);
	if (!found)
		memset(unit->words, 0, sizeof(unit->words));
	for (int i = 0; i < UNIT_WORDS; i++)
		unit->words[i] |= vector->bits[i];
}

static bool
counts(const Loader *loader, HeapTuple tuple, Buffer buffer)
{
	RowWriter writer;

	if (loader->snapshot != NULL)
	{
		bool seen = HeapTupleSatisfiesVisibility(tuple, loader->snapshot, buffer);

		HeapCheckForSerializableConflictOut(seen, loader->catalog->toast, tuple, buffer,
											loader->snapshot);
		return seen;
	}
	writer = row_state_writer(tuple);
	if (writer == ROW_WRITER_OWN)
		return !TransactionIdIsValid(loader->oldest_xmin);
	if (writer != ROW_WRITER_COMMITTED)
		return false;
	return !TransactionIdIsValid(loader->oldest_xmin) || HeapTupleHeaderXminFrozen(tuple->t_data) ||
		   TransactionIdPrecedes(HeapTupleHeaderGetRawXmin(tuple->t_data), loader->oldest_xmin);
}

/* Reads a vector; does it count? */
static bool
read_vector(const Loader *loader, HeapTuple tuple, Buffer buffer, int32 unit, const char *bytes,
			uint32 length, RowVector *vector)
{
	row_state_read_vector(vector, loader->catalog->relation, (uint32) unit, bytes, length);
	return vector->action == VECTOR_KILL ||
		   (vector->action != VECTOR_LOCK && counts(loader, tuple, buffer));
}

/* What the hash table takes. */
static Size
units_memory(const DeletedRows *deleted)
{
	return deleted->units == NULL ? 0 : deleted->units->size * sizeof(DeletedUnit);
}

/* VectorCallback; the unit comes as the number. */
static bool
load_vector(void *argument, HeapTuple tuple, Buffer buffer, int32 unit, const char *bytes,
			uint32 length)
{
	Loader *loader = argument;
	RowVector vector;
	uint64 first = (uint64) (uint32) unit * UNIT_ROWS;

	if (first >= loader->end)
		return false;
	if (!read_vector(loader, tuple, buffer, unit, bytes, length, &vector))
		return true;
	if (units_memory(loader->deleted) >= loader->memory &&
		units_lookup(loader->deleted->units, vector.unit) == NULL)
	{
		loader->end = first;
		return false;
	}
	add_vector(loader->deleted, &vector);
	return true;
}

static DeletedRows *
load_rows(GroupCatalog *catalog, Loader *loader, uint64 first)
{
	loader->deleted = palloc0(sizeof(DeletedRows));
	loader->catalog = catalog;
	group_catalog_vectors_from(catalog, (uint32) (first / UNIT_ROWS), load_vector, loader);
	return loader->deleted;
}

DeletedRows *
deleted_rows_load(GroupCatalog *catalog, Snapshot snapshot)
{
	Loader loader = {.end = PG_UINT64_MAX, .memory = SIZE_MAX};

	if (snapshot != InvalidSnapshot && IsMVCCSnapshot(snapshot))
		loader.snapshot = snapshot;
	return load_rows(catalog, &loader, 0);
}

DeletedRows *
deleted_rows_dead(GroupCatalog *catalog, TransactionId oldest_xmin)
{
	uint64 end = PG_UINT64_MAX;

	return deleted_rows_dead_between(catalog, oldest_xmin, 0, &end, SIZE_MAX);
}

DeletedRows *
deleted_rows_dead_between(GroupCatalog *catalog, TransactionId oldest_xmin, uint64 first,
						  uint64 *end, Size memory)
{
	Loader loader = {.oldest_xmin = oldest_xmin, .end = *end, .memory = memory};
	DeletedRows *deleted;

	Assert(TransactionIdIsNormal(oldest_xmin));
	deleted = load_rows(catalog, &loader, first);
	*end = loader.end;
	return deleted;
}

/* ---- counting without loading ------------------------------------------------------------------- */

/* Number of bits [from, to) of a unit, to <= UNIT_ROWS. */
static uint32
count_bits(const uint64 *words, uint32 from, uint32 to)
{
	uint32 count = 0;

	for (uint32 i = from / 64; i * 64 < to; i++)
	{
		uint64 word = words[i];

		if (from > i * 64)
			word &= ~UINT64CONST(0) << (from - i * 64);
		if (to - i * 64 < 64)
			word &= (UINT64CONST(1) << (to - i * 64)) - 1;
		count += pg_popcount64(word);
	}
	return count;
}

/* Number of rows of the unit in [first, end), which it overlaps. */
static uint32
count_unit(const uint64 *words, uint64 unit, uint64 first, uint64 end)
{
	uint64 start = unit * UNIT_ROWS;

	return count_bits(words, first > start ? first - start : 0, Min(end - start, UNIT_ROWS));
}

typedef struct Probe
{
	Loader loader;
	uint64 count;
	uint64 enough;
} Probe;

/* VectorCallback. */
static bool
probe_vector(void *argument, HeapTuple tuple, Buffer buffer, int32 unit, const char *bytes,
			 uint32 length)
{
	Probe *probe = argument;
	RowVector vector;

	if (read_vector(&probe->loader, tuple, buffer, unit, bytes, length, &vector))
		probe->count += pg_popcount((const char *) vector.bits, sizeof(vector.bits));
	return probe->count < probe->enough;
}

uint64
deleted_rows_probe(GroupCatalog *catalog, Snapshot snapshot, uint64 enough)
{
	Probe probe = {.loader = {.catalog = catalog}, .enough = enough};

	if (IsMVCCSnapshot(snapshot))
		probe.loader.snapshot = snapshot;
	group_catalog_all_vectors(catalog, probe_vector, &probe);
	return probe.count;
}

typedef struct DeadCounter
{
	Loader loader;
	DeadCount *counts; /* the first whose end was not passed */
	uint32 ncounts;
} DeadCounter;

/* VectorCallback: adds what a vector has of each range. */
static bool
count_vector(void *argument, HeapTuple tuple, Buffer buffer, int32 unit, const char *bytes,
			 uint32 length)
{
	DeadCounter *counter = argument;
	uint64 first = (uint64) (uint32) unit * UNIT_ROWS;
	RowVector vector;

	while (counter->ncounts > 0 && counter->counts[0].first + counter->counts[0].nrows <= first)
	{
		counter->counts++;
		counter->ncounts--;
	}
	if (counter->ncounts == 0)
		return false;
	if (counter->counts[0].first >= first + UNIT_ROWS ||
		!read_vector(&counter->loader, tuple, buffer, unit, bytes, length, &vector))
		return true;
	for (uint32 i = 0; i < counter->ncounts && counter->counts[i].first < first + UNIT_ROWS; i++)
	{
		DeadCount *range = &counter->counts[i];

		range->ndead += count_unit(vector.bits, vector.unit, range->first,
								   range->first + range->nrows);
	}
	return true;
}

void
deleted_rows_count_dead(GroupCatalog *catalog, TransactionId oldest_xmin, DeadCount *counts,
						uint32 ncounts)
{
	DeadCounter counter = {.loader = {.catalog = catalog, .oldest_xmin = oldest_xmin},
						   .counts = counts,
						   .ncounts = ncounts};

	Assert(TransactionIdIsNormal(oldest_xmin));
	for (uint32 i = 0; i < ncounts; i++)
		counts[i].ndead = 0;
	if (ncounts > 0)
		group_catalog_vectors_from(catalog, (uint32) (counts[0].first / UNIT_ROWS), count_vector,
								   &counter);
}

/* ---- asking ------------------------------------------------------------------------------------ */

static const uint64 *
find_words(const DeletedRows *deleted, uint64 unit)
{
	DeletedUnit *found;

	if (deleted->units == NULL || unit > PG_UINT32_MAX)
		return NULL;
	found = units_lookup(deleted->units, (uint32) unit);
	return found == NULL ? NULL : found->words;
}

bool
deleted_rows_is_empty(const DeletedRows *deleted)
{
	return deleted->units == NULL;
}

bool
deleted_rows_contains(const DeletedRows *deleted, uint64 row)
{
	const uint64 *words = find_words(deleted, row / UNIT_ROWS);
	uint32 bit = row % UNIT_ROWS;

	return words != NULL && (words[bit / 64] & (UINT64CONST(1) << (bit % 64))) != 0;
}

/* Bits [skip, UNIT_ROWS) of a unit become bits [0, UNIT_ROWS - skip). */
static void
shift_down(const uint64 *words, uint32 skip, uint64 *bits)
{
	uint32 word = skip / 64;
	uint32 shift = skip % 64;

	for (uint32 i = 0; word + i < UNIT_WORDS; i++)
	{
		bits[i] |= words[word + i] >> shift;
		if (shift > 0 && word + i + 1 < UNIT_WORDS)
			bits[i] |= words[word + i + 1] << (64 - shift);
	}
}

/* Bits [0, UNIT_ROWS - skip) of a unit become bits [skip, UNIT_ROWS). */
static void
shift_up(const uint64 *words, uint32 skip, uint64 *bits)
{
	uint32 word = skip / 64;
	uint32 shift = skip % 64;

	for (uint32 i = 0; word + i < UNIT_WORDS; i++)
	{
		bits[word + i] |= words[i] << shift;
		if (shift > 0 && word + i + 1 < UNIT_WORDS)
			bits[word + i + 1] |= words[i] >> (64 - shift);
	}
}

uint32
deleted_rows_bits(const DeletedRows *deleted, uint64 first, uint32 nrows, uint64 *bits)
{
	uint64 unit = first / UNIT_ROWS;
	uint32 skip = first % UNIT_ROWS;
	uint64 merged[UNIT_WORDS] = {0};
	const uint64 *words;
	uint32 count = 0;

	Assert(nrows <= UNIT_ROWS);
	words = find_words(deleted, unit);
	if (words != NULL)
		shift_down(words, skip, merged);
	if (skip + nrows > UNIT_ROWS)
	{
		words = find_words(deleted, unit + 1);
		if (words != NULL)
			shift_up(words, UNIT_ROWS - skip, merged);
	}

	for (uint32 i = 0; i * 64 < nrows; i++)
	{
		if (nrows - i * 64 < 64)
			merged[i] &= (UINT64CONST(1) << (nrows - i * 64)) - 1;
		bits[i] = merged[i];
		count += pg_popcount64(merged[i]);
	}
	return count;
}

uint32
deleted_rows_mark(const DeletedRows *deleted, const uint64 *rows, uint32 nrows, uint64 *bits)
{
	uint64 unit = PG_UINT64_MAX; /* of the row before, whose bitmap `words` is */
	const uint64 *words = NULL;
	uint32 count = 0;

	for (uint32 i = 0; i < nrows; i++)
	{
		uint32 bit = rows[i] % UNIT_ROWS;

		if (rows[i] / UNIT_ROWS != unit)
		{
			unit = rows[i] / UNIT_ROWS;
			words = find_words(deleted, unit);
		}
		if (words != NULL && (words[bit / 64] >> (bit % 64)) & 1)
		{
			bits[i / 64] |= UINT64CONST(1) << (i % 64);
			count++;
		}
	}
	return count;
}

/* Number of deleted rows in [first, first + nrows); from `enough` on it does not matter how many more. */
static uint64
count_up_to(const DeletedRows *deleted, uint64 first, uint64 nrows, uint64 enough)
{
	uint64 end = first + nrows;
	uint64 count = 0;

	if (deleted->units == NULL || nrows == 0)
		return 0;
	if ((nrows - 1) / UNIT_ROWS < deleted->units->members)
	{
		for (uint64 unit = first / UNIT_ROWS; unit <= (end - 1) / UNIT_ROWS && count < enough;
			 unit++)
		{
			const uint64 *words = find_words(deleted, unit);

			if (words != NULL)
				count += count_unit(words, unit, first, end);
		}
	}
	else
	{
		units_iterator iterator;
		DeletedUnit *unit;

		units_start_iterate(deleted->units, &iterator);
		while (count < enough && (unit = units_iterate(deleted->units, &iterator)) != NULL)
		{
			if (unit->unit >= first / UNIT_ROWS && unit->unit <= (end - 1) / UNIT_ROWS)
				count += count_unit(unit->words, unit->unit, first, end);
		}
	}
	return count;
}

uint64
deleted_rows_count(const DeletedRows *deleted, uint64 first, uint64 nrows)
{
	return count_up_to(deleted, first, nrows, PG_UINT64_MAX);
}

bool
deleted_rows_any(const DeletedRows *deleted, uint64 first, uint64 nrows)
{
	return count_up_to(deleted, first, nrows, 1) > 0;
}
