/*
 * format.c
 *		Byte buffers, checked cursors and the report of damage.
 *
 * A ByteBuffer stays in the memory context it was made in, however it grows.  A
 * ByteCursor owns nothing.  Values are copied byte-wise out of unaligned places,
 * and the machine must be little-endian as the format is: every PostgreSQL
 * package that we build for is.
 */
#include "format.h"

#include "port/pg_crc32c.h"
#include "utils/memutils.h"

#ifdef WORDS_BIGENDIAN
#error "the columnar format is little-endian and is used as it lies in memory"
#endif

/* Room of the smallest buffer. */
#define BUFFER_MIN 64

FormatPlace format_place = {.relation = NULL, .group = 0, .column = 0, .block = -1};

/* ---- growing bytes ----------------------------------------------------------------------------- */

void
byte_buffer_init(ByteBuffer *buffer, uint64 capacity)
{
	buffer->length = 0;
	buffer->capacity = Max(capacity, BUFFER_MIN);
	buffer->data = MemoryContextAllocHuge(CurrentMemoryContext, buffer->capacity);
}

void
byte_buffer_grow(ByteBuffer *buffer, uint64 more)
{
	uint64 capacity;

	if (more > MaxAllocHugeSize - buffer->length)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("row group is too large")));
	/* lengths are below SIZE_MAX / 2: doubling one cannot overflow */
	capacity = Max(buffer->length + more, Min(buffer->capacity * 2, MaxAllocHugeSize));
	buffer->data = repalloc_huge(buffer->data, capacity);
	buffer->capacity = capacity;
}

void
byte_buffer_align(ByteBuffer *buffer)
{
	static const char zeros[8];

	byte_buffer_append(buffer, zeros, -buffer->length & 7);
}

void
byte_buffer_free(ByteBuffer *buffer)
{
	if (buffer->data != NULL)
		pfree(buffer->data);
	buffer->data = NULL;
	buffer->length = buffer->capacity = 0;
}

/* ---- checked reading --------------------------------------------------------------------------- */

const char *
byte_cursor_bytes(ByteCursor *cursor, uint64 length)
{
	const char *bytes = cursor->at;

	if (length > (uint64) (cursor->end - cursor->at))
		format_damaged("the bytes end early: %llu are left of %llu",
					   (unsigned long long) (cursor->end - cursor->at),
					   (unsigned long long) length);
	cursor->at += length;
	return bytes;
}

uint8
byte_cursor_u8(ByteCursor *cursor)
{
	uint8 value;

	memcpy(&value, byte_cursor_bytes(cursor, sizeof(value)), sizeof(value));
	return value;
}

uint16
byte_cursor_u16(ByteCursor *cursor)
{
	uint16 value;

	memcpy(&value, byte_cursor_bytes(cursor, sizeof(value)), sizeof(value));
	return value;
}

uint32
byte_cursor_u32(ByteCursor *cursor)
{
	uint32 value;

	memcpy(&value, byte_cursor_bytes(cursor, sizeof(value)), sizeof(value));
	return value;
}

uint64
byte_cursor_u64(ByteCursor *cursor)
{
	uint64 value;

	memcpy(&value, byte_cursor_bytes(cursor, sizeof(value)), sizeof(value));
	return value;
}

void
byte_source_read(ByteSource *source, uint64 offset, uint64 length, char *into)
{
	if (offset > source->length || length > source->length - offset)
		format_damaged("bytes %llu to %llu of %llu are asked for", (unsigned long long) offset,
					   (unsigned long long) (offset + length), (unsigned long long) source->length);
	if (length > 0)
		source->read(source, offset, length, into);
}

/* ---- damage ------------------------------------------------------------------------------------ */

/* errdetail() with the place as far as it is known: one call, since ereport() takes one detail. */
static int
report_detail(const char *detail)
{
	if (format_place.column > 0 && format_place.block >= 0)
		return errdetail("Column %d, block %d: %s.", format_place.column, format_place.block,
						 detail);
	if (format_place.column > 0)
		return errdetail("Column %d: %s.", format_place.column, detail);
	if (format_place.block >= 0)
		return errdetail("Block %d: %s.", format_place.block, detail);
	return errdetail("Found: %s.", detail);
}

void
format_damaged(const char *detail, ...)
{
	char text[256];
	va_list arguments;

	va_start(arguments, detail);
	vsnprintf(text, sizeof(text), detail, arguments);
	va_end(arguments);

	ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
					format_place.relation == NULL
						? errmsg("columnar data is damaged")
						: errmsg("columnar table \"%s\" is damaged in row group %llu",
								 format_place.relation, (unsigned long long) format_place.group),
					report_detail(text),
					errhint("Check the disk, and restore the table from a standby or a backup.")));
}

uint32
format_crc(const char *bytes, uint64 length)
{
	pg_crc32c crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, bytes, length);
	FIN_CRC32C(crc);
	return crc;
}
