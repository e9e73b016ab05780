/*
 * chunk_internal.h
 *		The bytes of a column chunk: for chunk_write.c, which makes them, and
 *		chunk_read.c, which believes none of them unchecked.
 *
 * Numbers are varints (varint.h) unless a width is given.
 *
 *	header, header_length bytes (the summary knows how many, and their CRC):
 *		u8		CHUNK_MAGIC
 *		u8		ColumnForm in bits 0..2, then the CHUNK_FLAG_* below
 *		u8		codec of the compressed pieces
 *		rows, frames
 *		CHUNK_FLAG_HAS_MODEL: piece
 *		CHUNK_FLAG_HAS_BLOOM: OID of the hash function, length, u32 CRC
 *		per frame: number of its blocks, piece
 *		per block: u8 ChunkEncoding in bits 0..3, ChunkNulls in bits 4..5;
 *				   length in the frame (not for CHUNK_NULLS_ALL, which has no bytes)
 *		per block, if there are several: zone map (zone_map.c)
 *
 *	piece: raw length * 2 + is it compressed; stored length if it is; u32 CRC of
 *		the stored bytes
 *
 *	then the model, the frames and the Bloom filter, one right behind the other.
 *
 *	block: NULLs, then the values as the codec of the form writes them.
 *		CHUNK_NULLS_BITMAP: a bit per row, (rows + 7) / 8 bytes, 1 = NULL
 *		CHUNK_NULLS_LIST: u8 number of NULLs, u16 row of each, ascending
 *
 * The model is no part of the header, so that asking zone maps does not read it.
 */
#ifndef COLUMNAR_CHUNK_INTERNAL_H
#define COLUMNAR_CHUNK_INTERNAL_H

#include "store/chunk/chunk.h"

#define CHUNK_MAGIC 0xC5

#define CHUNK_FORM_MASK 0x07
#define CHUNK_FLAG_UNSIGNED 0x08 /* ColumnType.is_unsigned at the time of writing */
#define CHUNK_FLAG_HAS_MODEL 0x10
#define CHUNK_FLAG_HAS_BLOOM 0x20
#define CHUNK_FLAGS_UNKNOWN 0xC0

#define CHUNK_ENCODING_MASK 0x0F
#define CHUNK_NULLS_SHIFT 4

/* How a block says which of its rows are NULL. */
typedef enum ChunkNulls
{
	CHUNK_NULLS_NONE = 0,
	CHUNK_NULLS_ALL = 1,
	CHUNK_NULLS_BITMAP = 2,
	CHUNK_NULLS_LIST = 3
} ChunkNulls;

/* A run of stored bytes, compressed or not, under one CRC: a frame or the model. */
typedef struct ChunkPiece
{
	uint64 offset; /* in the chunk; not stored, it follows from the lengths before it */
	uint64 raw_length;
	uint64 stored_length;
	uint32 crc;
	bool compressed;
} ChunkPiece;

static inline uint32
chunk_count_blocks(uint32 nrows)
{
	return (nrows + BLOCK_ROWS - 1) / BLOCK_ROWS;
}

/* Rows of a block: BLOCK_ROWS but for the last one. */
static inline uint32
chunk_count_rows(uint32 nrows, uint32 block)
{
	return Min(nrows - block * BLOCK_ROWS, BLOCK_ROWS);
}

/* Is the sum of all values of such a column kept? */
extern bool chunk_has_sum(const ColumnType *type);

/* Estimated number of distinct values that are not NULL, at most their number. */
extern uint32 chunk_distinct_estimate(const ColumnValues *values);

#endif
