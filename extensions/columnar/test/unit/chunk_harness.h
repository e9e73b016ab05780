/*
 * chunk_harness.h
 *		A column chunk in memory, for the tests that read one.
 */
#ifndef COLUMNAR_CHUNK_HARNESS_H
#define COLUMNAR_CHUNK_HARNESS_H

#include "column_harness.h"

#include "store/chunk/chunk_internal.h"

/* A source that counts, and that can insist on ascending reads. */
typedef struct MemorySource
{
	ByteSource source; /* first */
	const char *bytes;
	bool ascending;
	uint64 next;
	uint64 nread;
} MemorySource;

static void
read_memory(ByteSource *source, uint64 offset, uint64 length, char *into)
{
	MemorySource *memory = (MemorySource *) source;

	if (memory->ascending)
		CHECK_THAT(offset == memory->next, "read at %llu after %llu", (unsigned long long) offset,
				   (unsigned long long) memory->next);
	memory->next = offset + length;
	memory->nread += length;
	memcpy(into, memory->bytes + offset, length);
}

static void
init_source(MemorySource *memory, const char *bytes, uint64 length)
{
	memset(memory, 0, sizeof(*memory));
	memory->source.length = length;
	memory->source.read = read_memory;
	memory->bytes = bytes;
}

static ChunkOptions
choose_options(Codec codec)
{
	ChunkOptions options = {.codec = codec,
							.level = 3,
							.saving = codec == CODEC_ZSTD ? 0.03 : 0.10,
							.keep_numbers = codec == CODEC_LZ4,
							.bloom = true};

	return options;
}

/* A summary's way through the footer. */
static inline ChunkSummary
store_summary(const ColumnType *type, const ChunkSummary *summary)
{
	ByteBuffer buffer;
	ByteCursor cursor;
	ChunkSummary result;

	byte_buffer_init(&buffer, 0);
	chunk_summary_write(type, summary, &buffer);
	cursor = (ByteCursor){buffer.data, buffer.data + buffer.length};
	chunk_summary_read(type, &cursor, &result);
	CHECK(cursor.at == cursor.end);
	byte_buffer_free(&buffer);
	return result;
}

#endif
