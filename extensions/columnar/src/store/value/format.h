/*
 * format.h
 *		What all parts of the on-disk format share: sizes, byte buffers, byte
 *		sources, and the one way to report damage.
 *
 * Everything stored is little-endian and unaligned; it is read with the get_*
 * functions of a ByteCursor, which check every length.  The encoders and
 * decoders above this header know neither relations nor transactions: they
 * need palloc() and ereport() only, so that a fuzzer can run them alone.
 */
#ifndef COLUMNAR_FORMAT_H
#define COLUMNAR_FORMAT_H

#include "compat.h"

#define FORMAT_VERSION 1

/* Rows of a block: the unit of decoding, of zone maps and of delete vectors. */
#define BLOCK_ROWS 1024

/* 64-bit words of a bitmap with one bit per row of a block. */
#define BLOCK_WORDS (BLOCK_ROWS / 64)

/* Largest (and default) number of rows of a row group; the option may lower it. */
#define ROW_GROUP_ROWS_MAX 131072

/* A frame, the unit of compression and of CRC, closes at the first block that ends past this. */
#define FRAME_BYTES 32768

/*
 * Before a function whose loops are worth vector instructions: it is compiled for
 * several generations of processors, and the library takes the best at load.  gcc
 * on amd64 only; elsewhere the architecture's base line must do.
 */
#if defined(FORMAT_VECTORISED)
/* chosen by the Makefile */
#elif defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FORMAT_VECTORISED __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define FORMAT_VECTORISED
#endif

/* ---- growing bytes ----------------------------------------------------------------------------- */

/* Bytes in the current memory context; may pass 1 GB. */
typedef struct ByteBuffer
{
	char *data;
	uint64 length;
	uint64 capacity;
} ByteBuffer;

extern void byte_buffer_init(ByteBuffer *buffer, uint64 capacity);
/* Makes room for more bytes than there is room for. */
extern void byte_buffer_grow(ByteBuffer *buffer, uint64 more);
/* Appends zero bytes until the length is a multiple of 8. */
extern void byte_buffer_align(ByteBuffer *buffer);
extern void byte_buffer_free(ByteBuffer *buffer);

static inline void
byte_buffer_reserve(ByteBuffer *buffer, uint64 more)
{
	if (more > buffer->capacity - buffer->length)
		byte_buffer_grow(buffer, more);
}

static inline void
byte_buffer_append(ByteBuffer *buffer, const void *bytes, uint64 length)
{
	if (length == 0)
		return;
	byte_buffer_reserve(buffer, length);
	memcpy(buffer->data + buffer->length, bytes, length);
	buffer->length += length;
}

static inline void
byte_buffer_put_u8(ByteBuffer *buffer, uint8 value)
{
	byte_buffer_append(buffer, &value, sizeof(value));
}

static inline void
byte_buffer_put_u16(ByteBuffer *buffer, uint16 value)
{
	byte_buffer_append(buffer, &value, sizeof(value));
}

static inline void
byte_buffer_put_u32(ByteBuffer *buffer, uint32 value)
{
	byte_buffer_append(buffer, &value, sizeof(value));
}

static inline void
byte_buffer_put_u64(ByteBuffer *buffer, uint64 value)
{
	byte_buffer_append(buffer, &value, sizeof(value));
}

/*
 * The first 8 bytes, or as many as there are and zeroes behind them, as a number; for short strings
 * several times faster than memcpy() of so many bytes.
 */
static inline uint64
bytes_first_word(const char *bytes, uint32 length)
{
	uint64 word = 0;

	if (length >= sizeof(word))
		memcpy(&word, bytes, sizeof(word));
	else if (length >= sizeof(uint32))
	{
		uint32 first;
		uint32 last;

		/* they overlap */
		memcpy(&first, bytes, sizeof(first));
		memcpy(&last, bytes + length - sizeof(last), sizeof(last));
		word = first | (uint64) last << 8 * (length - sizeof(last));
	}
	else if (length > 0)
		word = (uint8) bytes[0] | (uint64) (uint8) bytes[length / 2] << 8 * (length / 2) |
			   (uint64) (uint8) bytes[length - 1] << 8 * (length - 1);
	return word;
}

/* ---- checked reading --------------------------------------------------------------------------- */

/* A position in bytes that somebody else owns; reading past the end is damage (an ERROR). */
typedef struct ByteCursor
{
	const char *at;
	const char *end;
} ByteCursor;

extern uint8 byte_cursor_u8(ByteCursor *cursor);
extern uint16 byte_cursor_u16(ByteCursor *cursor);
extern uint32 byte_cursor_u32(ByteCursor *cursor);
extern uint64 byte_cursor_u64(ByteCursor *cursor);
/* The next `length` bytes, in place. */
extern const char *byte_cursor_bytes(ByteCursor *cursor, uint64 length);

/* ---- where bytes come from --------------------------------------------------------------------- */

/*
 * The bytes of one row group, wherever they lie (pages of the main fork, tuples
 * of the catalog, memory).  read() copies, or raises an ERROR; asking for bytes
 * past `length` is damage.  prefetch() may be NULL.
 */
typedef struct ByteSource ByteSource;
struct ByteSource
{
	uint64 length;
	void (*read)(ByteSource *source, uint64 offset, uint64 length, char *into);
	void (*prefetch)(ByteSource *source, uint64 offset, uint64 length);
};

/* read(), checked against the source's length. */
extern void byte_source_read(ByteSource *source, uint64 offset, uint64 length, char *into);

/* ---- damage ------------------------------------------------------------------------------------ */

/*
 * What is being read, for the error message.  Set by readers before they decode;
 * static storage, one per process.  Unknown fields: relation "", column 0, block -1.  The
 * name is a copy: what was kept may be read after the relation was closed and opened again.
 */
typedef struct FormatPlace
{
	char relation[NAMEDATALEN];
	uint64 group;
	int column;
	int block;
} FormatPlace;

extern FormatPlace format_place;

extern void format_place_set(const char *relation, uint64 group, int column);

/*
 * Raises ERROR data_corrupted: the message names relation and row group, the
 * detail says what is wrong, with column and block if known.
 */
_Noreturn extern void format_damaged(const char *detail, ...) pg_attribute_printf(1, 2);

/* CRC-32C of bytes, as stored. */
extern uint32 format_crc(const char *bytes, uint64 length);

#endif
