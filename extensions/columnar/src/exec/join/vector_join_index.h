/*
 * vector_join_index.h
 *		From codes of 64 bits to the rows of a join that have them.
 *
 * A code stands for the keys of a row: see vector_join_table.c.  The code 0 means that a row is
 * not to be found; nothing has it.
 */
#ifndef COLUMNAR_VECTOR_JOIN_INDEX_H
#define COLUMNAR_VECTOR_JOIN_INDEX_H

#include "exec/collection/vector_store.h"

typedef enum JoinIndexForm
{
	JOIN_INDEX_DIRECT, /* an array with an entry for each code */
	JOIN_INDEX_RANKED, /* a bit for each code, and an array with an entry for each that is there */
	JOIN_INDEX_NARROW, /* a hash table of codes of 32 bits */
	JOIN_INDEX_WIDE	   /* the same of 64 bits */
} JoinIndexForm;

/* What an index is going to be. */
typedef struct JoinIndexPlan
{
	JoinIndexForm form;
	uint64 ncodes;	 /* codes are below; 0: any */
	uint32 nbuckets; /* of a hash table */
	Size bytes;		 /* about; not including next[] */
} JoinIndexPlan;

#define RANK_CODES 32

/* RANK_CODES codes of a ranked index. */
typedef struct JoinRank
{
	uint32 bits;   /* those that are there */
	uint32 before; /* the entry of the first of them */
} JoinRank;

/*
 * Hash tables are arrays of buckets of 64 bytes, what a cache has in one piece.  A bucket is filled
 * from its first slot; a free one has the code 0 and the entry 0.
 */
#define JOIN_NARROW_SLOTS 8
#define JOIN_WIDE_SLOTS 5

typedef struct JoinNarrowBucket
{
	uint32 codes[JOIN_NARROW_SLOTS];
	uint32 entries[JOIN_NARROW_SLOTS];
} JoinNarrowBucket;

typedef struct JoinWideBucket
{
	uint64 codes[JOIN_WIDE_SLOTS];
	uint32 entries[JOIN_WIDE_SLOTS];
	uint32 unused;
} JoinWideBucket;

/* Entries are row + 1, 0: none. */
typedef struct JoinIndex
{
	MemoryContext context;
	JoinIndexPlan plan;
	uint32 nrows;
	uint32 *entries; /* direct: by code; ranked: by rank, the first is no row's */
	uint64 nentries;
	JoinRank *ranks;
	JoinNarrowBucket *narrow;
	JoinWideBucket *wide;
	uint32 *next; /* by row: the next with the same keys; made with the first that has one */
} JoinIndex;

/* The entry of a code that is there. */
static pg_attribute_always_inline uint32
join_rank_entry(const JoinRank *ranks, uint64 code)
{
	const JoinRank *rank = &ranks[code / RANK_CODES];
	uint32 before = rank->bits & (((uint32) 1 << code % RANK_CODES) - 1);

	return rank->before + (uint32) __builtin_popcount(before);
}

/* Do two rows with the same code have the same keys? */
typedef bool (*JoinRowsEqual)(const void *owner, uint32 row, uint32 other);

/* The best form for so many rows with codes below ncodes; 0: any codes. */
extern JoinIndexPlan join_index_plan(uint64 ncodes, uint32 nrows);

/* Forgets all rows: the memory, in `context`, was reset. */
extern void join_index_forget(JoinIndex *index, MemoryContext context);

/* An empty index for rows 0 .. nrows - 1. */
extern void join_index_make(JoinIndex *index, const JoinIndexPlan *plan, uint32 nrows);

/*
 * A ranked index must know all codes before the first row is added: they are marked, in
 * any order, then ranked.
 */
extern void join_index_mark(JoinIndex *index, const uint64 *codes, uint32 n);
extern void join_index_rank(JoinIndex *index);

/*
 * Adds rows first .. first + n - 1, but for those whose code is 0; from the last row to the
 * first, call by call.  Without are_equal(), different keys have different codes.
 */
extern void join_index_add(JoinIndex *index, const uint64 *codes, uint32 n, uint32 first,
						   JoinRowsEqual are_equal, const void *owner);

/* The first rows with n codes, or VECTOR_NO_ROW. Returns how many were found. */
extern uint32 join_index_find(const JoinIndex *index, const uint64 *codes, uint32 n, uint32 *rows);

/*
 * Lists those of the n codes that are found: what stands in selection[] beside them, and their rows.  Returns how
 * many.  positions may be selection.
 */
extern uint32 join_index_list(const JoinIndex *index, const uint64 *codes, const uint16 *selection,
							  uint32 n, uint16 *positions, uint32 *rows);

/* The same of rows that were found already, VECTOR_NO_ROW among them. */
extern uint32 join_list_found(const uint32 *found, const uint16 *selection, uint32 n,
							  uint16 *positions, uint32 *rows);

/*
 * Where different keys may have the same code: the first row of the next of them.  bucket and slot
 * tell where the last was; bucket is PG_UINT32_MAX for the first.  False if there is none (any
 * more).
 */
extern bool join_index_find_next(const JoinIndex *index, uint64 code, uint32 *bucket, uint32 *slot,
								 uint32 *row);

#endif
