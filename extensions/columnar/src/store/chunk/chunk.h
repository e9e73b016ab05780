/*
 * chunk.h
 *		A column chunk: one column of one row group, encoded.
 *
 *		+----------------------------------------------------------------+
 *		| header: magic, form, codec, rows, where model and Bloom filter  |
 *		|   lie, per frame: its blocks, lengths, CRC                      |
 *		|   per block: encoding, kind of NULLs, length; zone map          |
 *		+----------------------------------------------------------------+
 *		| model (dictionary or FSST table), if any                        |
 *		+----------------------------------------------------------------+
 *		| frame 0: blocks 0 .. k, compressed as one                       |
 *		| frame 1 ...                                                     |
 *		+----------------------------------------------------------------+
 *		| Bloom filter, if any                                            |
 *		+----------------------------------------------------------------+
 *
 * chunk_internal.h has the fields.  Zone maps are asked with the header alone;
 * point look-ups read the model and one frame more; scans read frame after frame,
 * which is one sequential run.  All offsets are relative to the chunk.
 * The header is parsed once per ChunkReader; every length is checked, every
 * frame's CRC is verified before a byte of it is believed.  The header's own CRC is
 * in the summary, and the footer's, where the summaries are, in the record: so intact
 * bytes of another row group, on pages that were exchanged, are damage as well.
 */
#ifndef COLUMNAR_CHUNK_H
#define COLUMNAR_CHUNK_H

#include "store/codec/column_block.h"
#include "store/value/column_values.h"
#include "store/codec/compression.h"
#include "store/chunk/zone_map.h"

typedef struct ChunkOptions
{
	Codec codec; /* tried on each frame, kept where it saves `saving` */
	int level;
	double saving;
	bool keep_numbers; /* hot rule: no general codec on frames of numbers (decode speed decides) */
	bool bloom;		   /* write a Bloom filter, if the type hashes */
} ChunkOptions;

/* What the footer of the row group keeps of a chunk. */
typedef struct ChunkSummary
{
	uint64 offset; /* in the row group's bytes */
	uint64 length;
	uint64 raw_length; /* as the length would be without a general codec */
	uint32 header_length;
	uint32 header_crc;
	uint32 encodings; /* bit set of ChunkEncoding used by any block */
	uint8 codec;	  /* Codec that any frame kept, CODEC_NONE if none did */
	bool has_bloom;
	bool has_sum;	 /* sum is that of all values (integers; numerics of one scale); 0 of none */
	int32 sum_scale; /* numerics: scale of the sum */
	int128 sum;
	uint32 distinct; /* estimate; exact for dictionaries and constants */
	ZoneMap zone;
} ChunkSummary;

/* All encodings of the format under one numbering, for ChunkSummary.encodings and people. */
typedef enum ChunkEncoding
{
	ENCODING_CONSTANT,
	ENCODING_RLE,
	ENCODING_FOR,
	ENCODING_PFOR,
	ENCODING_DELTA,
	ENCODING_SCALE,
	ENCODING_DICTIONARY,
	ENCODING_BITMAP,
	ENCODING_RAW,
	ENCODING_ALP,
	ENCODING_FSST,
	ENCODING_NUMERIC64,
	ENCODING_NUMERIC128,
	ENCODING_NULL /* only NULLs */
} ChunkEncoding;

#define CHUNK_NENCODINGS 14

extern const char *chunk_encoding_name(ChunkEncoding encoding);

/* Encodes the column, appends it to `into` (8-byte aligned), fills *summary. */
extern void chunk_write(const ColumnValues *values, const ChunkOptions *options, ByteBuffer *into,
						ChunkSummary *summary);

extern void
chunk_summary_write(const ColumnType *type, const ChunkSummary *summary, ByteBuffer *into);
extern void chunk_summary_read(const ColumnType *type, ByteCursor *cursor, ChunkSummary *summary);

typedef struct ChunkReader ChunkReader;

/*
 * Opens a chunk: reads and checks its header.  Memory: a child of the current
 * context, freed by chunk_reader_close().  Source and type must live as long.
 * format_place of now is set again whenever the reader is used.
 */
extern ChunkReader *chunk_reader_open(ByteSource *source, const ChunkSummary *summary,
									  const ColumnType *type, uint32 nrows);
extern void chunk_reader_close(ChunkReader *reader);

extern uint32 chunk_reader_nblocks(const ChunkReader *reader);
/* Zone map of a block; points into the reader. */
extern const ZoneMap *chunk_reader_zone(ChunkReader *reader, uint32 block);
/* Bytes of the source that were read so far (for EXPLAIN). */
extern uint64 chunk_reader_bytes_read(const ChunkReader *reader);
/* May the chunk contain a value of this hash?  True when there is no Bloom filter. */
extern bool chunk_reader_may_contain(ChunkReader *reader, uint64 hash);
/* Decodes block `block` (0 .. nblocks - 1) into *out. */
extern void chunk_reader_decode(ChunkReader *reader, uint32 block, ColumnBlock *out);

#endif
