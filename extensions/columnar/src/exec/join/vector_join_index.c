/*
 * vector_join_index.c
 *		From codes of 64 bits to the rows of a join that have them.
 *
 * All rows are known before the index is made, so it is made once, in the form that fits:
 *
 *		direct	An array with an entry for each possible code: what is fastest while the codes'
 *				range is small, or most of it is in use.
 *		ranked	Two bits for each possible code, and an array with an entry for each code that is
 *				there, whose place is the number of bits before.  For ranges of which a filter left
 *				a part; most look-ups of what is not there end at the bit.
 *		narrow	A hash table of codes below 2^32: buckets of 8 slots, about half of them free.  All
 *				slots of a bucket are compared at once; only if it is full does the search
 *				go on to the next.
 *		wide	The same of any codes, in buckets of 5 slots.
 *
 * Rows are added from the last to the first, and put before those that have the
 * same keys: so each list begins with the smallest row, and ascends.
 *
 * A look-up of many codes goes through them in loops without branches that depend on what is
 * there, so that cache misses overlap; large hash tables are prefetched.
 */
#include "exec/keys/vector_groups_internal.h"
#include "exec/join/vector_join_index.h"

#include "port/pg_bitutils.h"
#include "utils/memutils.h"

/* Rows that go through the steps of a look-up in a hash table together. */
#define LOOK_UP_ROWS 128

/* Direct whatever the other forms take; ranked if that is no more than a hash table. */
#define DIRECT_BYTES ((Size) 256 * 1024)
#define RANKED_BYTES ((Size) 256 * 1024)

/* Rows of 32 buckets, on average. */
#define NARROW_ROWS 144
#define WIDE_ROWS 80

#define BUCKET_BYTES 64

/* ---- plan ---------------------------------------------------------------------------------- */

JoinIndexPlan
join_index_plan(uint64 ncodes, uint32 nrows)
{
	bool narrow = ncodes > 0 && ncodes <= UINT64CONST(1) << 32;
	uint64 nbuckets = (uint64) nrows * 32 / (narrow ? NARROW_ROWS : WIDE_ROWS) + 1;
	JoinIndexPlan plan = {.ncodes = ncodes};

	Assert(nbuckets <= PG_UINT32_MAX);
	plan.nbuckets = (uint32) nbuckets;
	plan.form = narrow ? JOIN_INDEX_NARROW : JOIN_INDEX_WIDE;
	plan.bytes = BUCKET_BYTES * (plan.nbuckets + (Size) 1);
	if (narrow)
	{
		Size direct = sizeof(uint32) * ncodes;
		Size ranked = sizeof(JoinRank) * (ncodes / RANK_CODES + 1) + sizeof(uint32) * (Size) nrows;

		if (direct <= DIRECT_BYTES || (direct <= 2 * ranked && direct <= plan.bytes))
		{
			plan.form = JOIN_INDEX_DIRECT;
			plan.bytes = direct;
		}
		else if (ranked <= Max(plan.bytes, RANKED_BYTES))
		{
			plan.form = JOIN_INDEX_RANKED;
			plan.bytes = ranked;
		}
	}
	return plan;
}

void
join_index_forget(JoinIndex *index, MemoryContext context)
{
	memset(index, 0, sizeof(*index));
	index->context = context;
}

static void *
make_zeroes(const JoinIndex *index, Size size)
{
	return MemoryContextAllocExtended(index->context, size, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
}

/* As many as planned, none of which is in two pieces of the cache. */
static void *
make_buckets(const JoinIndex *index)
{
	StaticAssertStmt(sizeof(JoinNarrowBucket) == BUCKET_BYTES &&
						 sizeof(JoinWideBucket) == BUCKET_BYTES,
					 "buckets must have BUCKET_BYTES");
	return (void *) TYPEALIGN(BUCKET_BYTES, make_zeroes(index, index->plan.bytes));
}

void
join_index_make(JoinIndex *index, const JoinIndexPlan *plan, uint32 nrows)
{
	join_index_forget(index, index->context);
	index->plan = *plan;
	index->nrows = nrows;
	switch (plan->form)
	{
		case JOIN_INDEX_DIRECT:
			index->nentries = plan->ncodes;
			index->entries = make_zeroes(index, sizeof(uint32) * plan->ncodes);
			break;
		case JOIN_INDEX_RANKED:
			index->ranks = make_zeroes(index, sizeof(JoinRank) * (plan->ncodes / RANK_CODES + 1));
			break;
		case JOIN_INDEX_NARROW:
			index->narrow = make_buckets(index);
			break;
		case JOIN_INDEX_WIDE:
			index->wide = make_buckets(index);
			break;
	}
}

static void
make_next(JoinIndex *index)
{
	Size size = sizeof(uint32) * (Size) index->nrows;

	index->next = MemoryContextAllocHuge(index->context, size);
	memset(index->next, 0xFF, size); /* VECTOR_NO_ROW */
}

/* The entry of a row whose keys those of another entry (0: none) have, too. */
static pg_attribute_always_inline uint32
put_before(JoinIndex *index, uint32 row, uint32 entry)
{
	if (entry != 0)
	{
		if (index->next == NULL)
			make_next(index);
		index->next[row] = entry - 1;
	}
	return row + 1;
}

/* ---- arrays -------------------------------------------------------------------------------- */

/* Is so much memory not expected to be in the second-level cache? */
static inline bool
is_large(Size bytes)
{
	return bytes > GROUP_CACHE_BYTES;
}

/* What tells of up to LOOK_UP_ROWS codes whether they are there, on its way into the cache. */
static void
approach_ranks(const JoinIndex *index, const uint64 *codes, uint32 n)
{
	const JoinRank *ranks = index->ranks;

	if (!is_large(sizeof(JoinRank) / RANK_CODES * index->plan.ncodes))
		return;
	for (uint32 i = 0; i < n; i++)
		__builtin_prefetch(&ranks[codes[i] / RANK_CODES]);
}

void
join_index_mark(JoinIndex *index, const uint64 *codes, uint32 n)
{
	JoinRank *ranks = index->ranks;

	for (uint32 done = 0; done < n; done += LOOK_UP_ROWS)
	{
		uint32 end = Min(n, done + LOOK_UP_ROWS);

		approach_ranks(index, codes + done, end - done);
		for (uint32 i = done; i < end; i++)
			ranks[codes[i] / RANK_CODES].bits |= (uint32) 1 << (codes[i] % RANK_CODES);
	}
}

void
join_index_rank(JoinIndex *index)
{
	Size nranks = index->plan.ncodes / RANK_CODES + 1;
	uint32 nentries = 1;

	index->ranks[0].bits &= ~(uint32) 1; /* the code 0 */
	for (Size i = 0; i < nranks; i++)
	{
		index->ranks[i].before = nentries;
		nentries += (uint32) pg_popcount32(index->ranks[i].bits);
	}
	index->nentries = nentries;
	index->entries = make_zeroes(index, sizeof(uint32) * (Size) nentries);
}

/* The numbers of the codes' entries; 0: there is none. */
VECTOR_KERNEL static void
find_ranks(const JoinRank *restrict ranks, const uint64 *restrict codes, uint32 n,
		   uint32 *restrict numbers)
{
	for (uint32 i = 0; i < n; i++)
	{
		uint32 bits = ranks[codes[i] / RANK_CODES].bits;

		/* no branch: whether the code is there cannot be predicted */
		numbers[i] = join_rank_entry(ranks, codes[i]) & -(bits >> codes[i] % RANK_CODES & 1);
	}
}

/* The numbers of the entries of up to LOOK_UP_ROWS codes; the entries are on their way. */
static void
approach_entries(const JoinIndex *index, const uint64 *codes, uint32 n, uint32 *numbers)
{
	const uint32 *entries = index->entries;

	if (index->plan.form == JOIN_INDEX_RANKED)
	{
		approach_ranks(index, codes, n);
		find_ranks(index->ranks, codes, n, numbers);
	}
	else
	{
		for (uint32 i = 0; i < n; i++)
			numbers[i] = (uint32) codes[i];
	}
	if (!is_large(sizeof(uint32) * index->nentries))
		return;
	for (uint32 i = 0; i < n; i++)
		__builtin_prefetch(&entries[numbers[i]]);
}

GROUP_PIECE uint32
find_direct_piece(const uint32 *restrict entries, const uint64 *restrict codes, uint32 n,
				  uint32 *restrict rows)
{
	uint32 nfound = 0;

	for (uint32 i = 0; i < n; i++)
	{
		uint32 entry = entries[codes[i]];

		rows[i] = entry - 1;
		nfound += entry != 0;
	}
	return nfound;
}

VECTOR_KERNEL static uint32
find_direct(const uint32 *entries, const uint64 *codes, uint32 n, uint32 *rows)
{
	uint32 nfound = 0;

	GROUP_IN_PIECES(n, nfound += find_direct_piece(entries, codes + at, piece, rows + at));
	return nfound;
}

static uint32
find_ranked(const JoinIndex *index, const uint64 *codes, uint32 n, uint32 *rows)
{
	const uint32 *entries = index->entries;
	uint32 nfound = 0;

	for (uint32 done = 0; done < n; done += LOOK_UP_ROWS)
	{
		uint32 nrows = Min(n - done, LOOK_UP_ROWS);
		uint32 numbers[LOOK_UP_ROWS];

		approach_entries(index, codes + done, nrows, numbers);
		for (uint32 i = 0; i < nrows; i++)
		{
			uint32 entry = entries[numbers[i]];

			rows[done + i] = entry - 1;
			nfound += entry != 0;
		}
	}
	return nfound;
}

static void
add_to_array(JoinIndex *index, const uint64 *codes, uint32 n, uint32 first)
{
	uint32 *entries = index->entries;

	for (uint32 left = n; left > 0;)
	{
		uint32 nrows = (left - 1) % LOOK_UP_ROWS + 1;
		uint32 numbers[LOOK_UP_ROWS];

		left -= nrows;
		approach_entries(index, codes + left, nrows, numbers);
		for (uint32 i = nrows; i-- > 0;)
		{
			if (numbers[i] != 0)
				entries[numbers[i]] = put_before(index, first + left + i, entries[numbers[i]]);
		}
	}
}

/* ---- hash tables --------------------------------------------------------------------------- */

/* Where the search for a code begins. */
static pg_attribute_always_inline uint32
find_bucket(uint64 code, uint32 nbuckets)
{
	return (uint32) (((group_mix(code) >> 32) * nbuckets) >> 32);
}

GROUP_PIECE void
find_piece(const uint64 *restrict codes, uint32 n, uint32 nbuckets, uint32 *restrict buckets)
{
	for (uint32 i = 0; i < n; i++)
		buckets[i] = find_bucket(codes[i], nbuckets);
}

VECTOR_KERNEL static void
find_buckets(const uint64 *codes, uint32 n, uint32 nbuckets, uint32 *buckets)
{
	GROUP_IN_PIECES(n, find_piece(codes + at, piece, nbuckets, buckets + at));
}

/* The buckets of up to LOOK_UP_ROWS codes, on their way into the cache. */
static void
approach_buckets(const JoinIndex *index, const uint64 *codes, uint32 n, uint32 *buckets)
{
	find_buckets(codes, n, index->plan.nbuckets, buckets);
	if (!is_large(index->plan.bytes))
		return;
	for (uint32 i = 0; i < n; i++)
	{
		if (index->narrow != NULL)
			__builtin_prefetch(&index->narrow[buckets[i]]);
		else
			__builtin_prefetch(&index->wide[buckets[i]]);
	}
}

static inline uint32
step(uint32 bucket, uint32 nbuckets)
{
	return bucket + 1 == nbuckets ? 0 : bucket + 1;
}

/* The entry of a code in a bucket; 0 if it is not there. */
static pg_attribute_always_inline uint32
match_narrow(const JoinNarrowBucket *bucket, uint64 code)
{
	uint32 entry = 0;

	for (int i = 0; i < JOIN_NARROW_SLOTS; i++)
		entry |= bucket->entries[i] & -(uint32) (bucket->codes[i] == (uint32) code);
	return entry;
}

/* The same; the first, if several keys have the code. */
static pg_attribute_always_inline uint32
match_wide(const JoinWideBucket *bucket, uint64 code)
{
	uint32 entry = 0;

	for (int i = JOIN_WIDE_SLOTS - 1; i >= 0; i--)
	{
		uint32 mask = -(uint32) (bucket->codes[i] == code);

		entry = (entry & ~mask) | (bucket->entries[i] & mask);
	}
	return entry;
}

/*
 * Looks into the first bucket of each code.  What is not in it, though it is full, may be
 * in the next: it goes to misses[].
 */
VECTOR_KERNEL static uint32
look_into_narrow(const JoinNarrowBucket *restrict all, const uint64 *restrict codes,
				 const uint32 *restrict buckets, uint32 n, uint32 *restrict rows,
				 uint32 *restrict misses)
{
	uint32 nmisses = 0;

	for (uint32 i = 0; i < n; i++)
	{
		const JoinNarrowBucket *bucket = &all[buckets[i]];
		uint32 entry = match_narrow(bucket, codes[i]);

		rows[i] = entry - 1;
		misses[nmisses] = i;
		nmisses += (entry == 0) & (bucket->entries[JOIN_NARROW_SLOTS - 1] != 0);
	}
	return nmisses;
}

VECTOR_KERNEL static uint32
look_into_wide(const JoinWideBucket *restrict all, const uint64 *restrict codes,
			   const uint32 *restrict buckets, uint32 n, uint32 *restrict rows,
			   uint32 *restrict misses)
{
	uint32 nmisses = 0;

	for (uint32 i = 0; i < n; i++)
	{
		const JoinWideBucket *bucket = &all[buckets[i]];
		uint32 entry = match_wide(bucket, codes[i]);

		rows[i] = entry - 1;
		misses[nmisses] = i;
		nmisses += (entry == 0) & (bucket->entries[JOIN_WIDE_SLOTS - 1] != 0);
	}
	return nmisses;
}

/* The row of a code that is not in this bucket, which is full. */
static uint32
look_further(const JoinIndex *index, uint64 code, uint32 bucket)
{
	uint32 entry;
	bool full;

	do
	{
		bucket = step(bucket, index->plan.nbuckets);
		if (index->narrow != NULL)
		{
			entry = match_narrow(&index->narrow[bucket], code);
			full = index->narrow[bucket].entries[JOIN_NARROW_SLOTS - 1] != 0;
		}
		else
		{
			entry = match_wide(&index->wide[bucket], code);
			full = index->wide[bucket].entries[JOIN_WIDE_SLOTS - 1] != 0;
		}
	} while (entry == 0 && full);
	return entry - 1;
}

static void
find_hashed(const JoinIndex *index, const uint64 *codes, uint32 n, uint32 *rows)
{
	for (uint32 done = 0; done < n; done += LOOK_UP_ROWS)
	{
		uint32 nrows = Min(n - done, LOOK_UP_ROWS);
		uint32 buckets[LOOK_UP_ROWS];
		uint32 misses[LOOK_UP_ROWS];
		uint32 nmisses;

		approach_buckets(index, codes + done, nrows, buckets);
		if (index->narrow != NULL)
			nmisses = look_into_narrow(index->narrow, codes + done, buckets, nrows, rows + done,
									   misses);
		else
			nmisses = look_into_wide(index->wide, codes + done, buckets, nrows, rows + done,
									 misses);
		for (uint32 m = 0; m < nmisses; m++)
			rows[done + misses[m]] = look_further(index, codes[done + misses[m]],
												  buckets[misses[m]]);
	}
}

/* The slot where a code is, or the free one where it would be; JOIN_NARROW_SLOTS: neither. */
static pg_attribute_always_inline uint32
find_narrow_slot(const JoinNarrowBucket *bucket, uint64 code)
{
	uint32 nused = 0;
	uint32 match = 0; /* slot + 1 */

	for (uint32 i = 0; i < JOIN_NARROW_SLOTS; i++)
	{
		nused += bucket->codes[i] != 0;
		match |= (i + 1) & -(uint32) (bucket->codes[i] == (uint32) code);
	}
	return match != 0 ? match - 1 : nused;
}

/* The same; if several keys have the code, a slot of one of them. */
static pg_attribute_always_inline uint32
find_wide_slot(const JoinWideBucket *bucket, uint64 code)
{
	uint32 slot = 0; /* the first that is free */

	for (uint32 i = 0; i < JOIN_WIDE_SLOTS; i++)
		slot += bucket->entries[i] != 0;
	for (uint32 i = 0; i < JOIN_WIDE_SLOTS; i++)
	{
		uint32 mask = -(uint32) (bucket->codes[i] == code);

		slot = (slot & ~mask) | (i & mask);
	}
	return slot;
}

VECTOR_KERNEL static void
put_narrow(JoinIndex *index, const uint64 *codes, const uint32 *buckets, uint32 n, uint32 first)
{
	JoinNarrowBucket *all = index->narrow;

	for (uint32 i = n; i-- > 0;)
	{
		uint32 at = buckets[i];
		uint32 slot;

		if (codes[i] == 0)
			continue;
		for (slot = find_narrow_slot(&all[at], codes[i]); unlikely(slot == JOIN_NARROW_SLOTS);
			 slot = find_narrow_slot(&all[at], codes[i]))
			at = step(at, index->plan.nbuckets);
		all[at].codes[slot] = (uint32) codes[i];
		all[at].entries[slot] = put_before(index, first + i, all[at].entries[slot]);
	}
}

/*
 * Where different keys may have the same code: puts the row into the slot of equal keys, or
 * a free one.
 */
static void
put_equal(JoinIndex *index, uint64 code, uint32 row, JoinRowsEqual are_equal, const void *owner)
{
	uint32 at = find_bucket(code, index->plan.nbuckets);
	uint32 slot = 0;

	for (;;)
	{
		JoinWideBucket *bucket = &index->wide[at];
		uint32 entry = bucket->entries[slot];

		if (entry == 0 || (bucket->codes[slot] == code && are_equal(owner, row, entry - 1)))
		{
			bucket->codes[slot] = code;
			bucket->entries[slot] = put_before(index, row, entry);
			return;
		}
		if (++slot == JOIN_WIDE_SLOTS)
		{
			at = step(at, index->plan.nbuckets);
			slot = 0;
		}
	}
}

static void
put_wide(JoinIndex *index, const uint64 *codes, const uint32 *buckets, uint32 n, uint32 first,
		 JoinRowsEqual are_equal, const void *owner)
{
	JoinWideBucket *all = index->wide;

	for (uint32 i = n; i-- > 0;)
	{
		uint32 at = buckets[i];
		uint32 slot;

		if (codes[i] == 0)
			continue;
		for (slot = find_wide_slot(&all[at], codes[i]); unlikely(slot == JOIN_WIDE_SLOTS);
			 slot = find_wide_slot(&all[at], codes[i]))
			at = step(at, index->plan.nbuckets);
		if (are_equal != NULL && all[at].entries[slot] != 0)
		{
			put_equal(index, codes[i], first + i, are_equal, owner);
			continue;
		}
		all[at].codes[slot] = codes[i];
		all[at].entries[slot] = put_before(index, first + i, all[at].entries[slot]);
	}
}

static void
add_hashed(JoinIndex *index, const uint64 *codes, uint32 n, uint32 first, JoinRowsEqual are_equal,
		   const void *owner)
{
	for (uint32 left = n; left > 0;)
	{
		uint32 nrows = (left - 1) % LOOK_UP_ROWS + 1;
		uint32 buckets[LOOK_UP_ROWS];

		left -= nrows;
		approach_buckets(index, codes + left, nrows, buckets);
		if (index->narrow != NULL)
			put_narrow(index, codes + left, buckets, nrows, first + left);
		else
			put_wide(index, codes + left, buckets, nrows, first + left, are_equal, owner);
	}
}

bool
join_index_find_next(const JoinIndex *index, uint64 code, uint32 *bucket, uint32 *slot, uint32 *row)
{
	Assert(index->wide != NULL);
	if (*bucket == PG_UINT32_MAX)
	{
		*bucket = find_bucket(code, index->plan.nbuckets);
		*slot = 0;
	}
	else
		(*slot)++;
	for (;; (*slot)++)
	{
		if (*slot == JOIN_WIDE_SLOTS)
		{
			*bucket = step(*bucket, index->plan.nbuckets);
			*slot = 0;
		}
		if (index->wide[*bucket].entries[*slot] == 0)
			return false;
		if (index->wide[*bucket].codes[*slot] == code)
		{
			*row = index->wide[*bucket].entries[*slot] - 1;
			return true;
		}
	}
}

/* ---- all ----------------------------------------------------------------------------------- */

void
join_index_add(JoinIndex *index, const uint64 *codes, uint32 n, uint32 first,
			   JoinRowsEqual are_equal, const void *owner)
{
	switch (index->plan.form)
	{
		case JOIN_INDEX_DIRECT:
		case JOIN_INDEX_RANKED:
			add_to_array(index, codes, n, first);
			break;
		case JOIN_INDEX_NARROW:
		case JOIN_INDEX_WIDE:
			add_hashed(index, codes, n, first, are_equal, owner);
			break;
	}
}

VECTOR_KERNEL static uint32
count_found(const uint32 *rows, uint32 n)
{
	uint32 nfound = 0;

	for (uint32 i = 0; i < n; i++)
		nfound += rows[i] != VECTOR_NO_ROW;
	return nfound;
}

uint32
join_index_find(const JoinIndex *index, const uint64 *codes, uint32 n, uint32 *rows)
{
	switch (index->plan.form)
	{
		case JOIN_INDEX_DIRECT:
			return find_direct(index->entries, codes, n, rows);
		case JOIN_INDEX_RANKED:
			return find_ranked(index, codes, n, rows);
		case JOIN_INDEX_NARROW:
		case JOIN_INDEX_WIDE:
			find_hashed(index, codes, n, rows);
			break;
	}
	return count_found(rows, n);
}
