/*
 * compression.c
 *		General codecs of a frame: none, lz4, zstd.
 *
 * A frame is compressed as one piece of which the chunk's header knows both
 * lengths, so nothing of the codecs' own framing is relied on: a result that
 * differs from the promised length by a byte is damage.
 *
 * zstd's contexts are kept for the life of the process, because making one costs
 * more than compressing a frame.  They lie outside of PostgreSQL's memory
 * contexts, and no error can happen while one is in use.  Compressing a frame of
 * a single huge value makes a context grow; such a one is given back at once.
 */
#include "store/codec/compression.h"

#include <lz4.h>
#include <zstd.h>

/* A compression context that has seen longer input is not kept. */
#define KEPT_CONTEXT_BYTES (UINT64CONST(4) * 1024 * 1024)

static ZSTD_CCtx *compressor = NULL;
static ZSTD_DCtx *decompressor = NULL;

const char *
codec_name(Codec codec)
{
	switch (codec)
	{
		case CODEC_NONE:
			return "none";
		case CODEC_LZ4:
			return "lz4";
		case CODEC_ZSTD:
			return "zstd";
	}
	return "unknown";
}

static void
report_no_memory(void)
{
	ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory"),
					errdetail("A zstd context could not be made.")));
}

/* Length of the compressed bytes; 0 if they do not fit into `room` (or cannot be made). */
static uint64
compress_lz4(const char *bytes, uint64 length, char *into, uint64 room)
{
	if (length > LZ4_MAX_INPUT_SIZE)
		return 0;
	return LZ4_compress_default(bytes, into, (int) length, (int) Min(room, PG_INT32_MAX));
}

/* As above. */
static uint64
compress_zstd(int level, const char *bytes, uint64 length, char *into, uint64 room)
{
	size_t result;

	if (compressor == NULL)
		compressor = ZSTD_createCCtx();
	if (compressor == NULL)
		report_no_memory();

	result = ZSTD_compressCCtx(compressor, into, room, bytes, length, level);
	if (length > KEPT_CONTEXT_BYTES)
	{
		ZSTD_freeCCtx(compressor);
		compressor = NULL;
	}
	return ZSTD_isError(result) ? 0 : result;
}

bool
codec_compress(Codec codec, int level, double saving, const char *bytes, uint64 length,
			   ByteBuffer *into)
{
	uint64 room = (uint64) (length * (1.0 - saving));
	uint64 stored = 0;

	/* the codecs give up by themselves when the result does not fit into what it may take */
	if (codec == CODEC_NONE || length == 0 || room == 0)
		return false;
	room = Min(room, length - 1);
	byte_buffer_reserve(into, room);

	if (codec == CODEC_LZ4)
		stored = compress_lz4(bytes, length, into->data + into->length, room);
	else if (codec == CODEC_ZSTD)
		stored = compress_zstd(level, bytes, length, into->data + into->length, room);

	into->length += stored;
	return stored > 0;
}

static void
decompress_lz4(const char *bytes, uint64 length, char *into, uint64 raw_length)
{
	int result = -1;

	if (length <= PG_INT32_MAX && raw_length <= PG_INT32_MAX)
		result = LZ4_decompress_safe(bytes, into, (int) length, (int) raw_length);
	if (result < 0 || (uint64) result != raw_length)
		format_damaged("a frame of " UINT64_FORMAT " bytes is no lz4 form of " UINT64_FORMAT
					   " bytes",
					   length, raw_length);
}

static void
decompress_zstd(const char *bytes, uint64 length, char *into, uint64 raw_length)
{
	size_t result;

	if (decompressor == NULL)
		decompressor = ZSTD_createDCtx();
	if (decompressor == NULL)
		report_no_memory();

	result = ZSTD_decompressDCtx(decompressor, into, raw_length, bytes, length);
	if (ZSTD_isError(result) || result != raw_length)
		format_damaged("a frame of " UINT64_FORMAT " bytes is no zstd form of " UINT64_FORMAT
					   " bytes",
					   length, raw_length);
}

void
codec_decompress(Codec codec, const char *bytes, uint64 length, char *into, uint64 raw_length)
{
	switch (codec)
	{
		case CODEC_NONE:
			if (length != raw_length)
				format_damaged("an uncompressed frame has " UINT64_FORMAT
							   " bytes instead of " UINT64_FORMAT,
							   length, raw_length);
			if (length > 0)
				memcpy(into, bytes, length);
			return;
		case CODEC_LZ4:
			decompress_lz4(bytes, length, into, raw_length);
			return;
		case CODEC_ZSTD:
			decompress_zstd(bytes, length, into, raw_length);
			return;
	}
	format_damaged("a frame has the unknown codec %d", (int) codec);
}
