/*
 * compression.h
 *		General codecs of a frame: none, lz4, zstd.
 */
#ifndef COLUMNAR_COMPRESSION_H
#define COLUMNAR_COMPRESSION_H

#include "store/value/format.h"

typedef enum Codec
{
	CODEC_NONE = 0,
	CODEC_LZ4 = 1,
	CODEC_ZSTD = 2
} Codec;

extern const char *codec_name(Codec codec);

/*
 * Appends the compressed bytes and returns true; or appends nothing and returns
 * false when that would not save `saving` (0.10 = ten per cent) of the length.
 */
extern bool codec_compress(Codec codec, int level, double saving, const char *bytes, uint64 length,
						   ByteBuffer *into);

/* Decompresses to exactly raw_length bytes at `into`; ERROR on damage. */
extern void
codec_decompress(Codec codec, const char *bytes, uint64 length, char *into, uint64 raw_length);

#endif
