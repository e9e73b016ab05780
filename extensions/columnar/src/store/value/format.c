/*
 * format.c
 *		Byte buffers, checked cursors and the report of damage.
 *
 * A ByteBuffer stays in the memory context it was made in, however it grows.  A
 * ByteCursor owns nothing.  Values are copied byte-wise out of unaligned places,
 * and the machine must be little-endian as the format is: every PostgreSQL
 * package that we build for is.
 *
 * CRCs of many bytes are computed here, faster than the server does; the rest is left to it.
 */
#include "store/value/format.h"

#include "port/pg_crc32c.h"
#include "utils/memutils.h"

#ifdef WORDS_BIGENDIAN
#error "the columnar format is little-endian and is used as it lies in memory"
#endif

/* Room of the smallest buffer. */
#define BUFFER_MIN 64

FormatPlace format_place = {.relation = "", .group = 0, .column = 0, .block = -1};

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

void
format_place_set(const char *relation, uint64 group, int column)
{
	/* the same as before, most often: to compare is less than to copy */
	if (strcmp(format_place.relation, relation) != 0)
		strlcpy(format_place.relation, relation, sizeof(format_place.relation));
	format_place.group = group;
	format_place.column = column;
	format_place.block = -1;
}

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
					format_place.relation[0] == '\0'
						? errmsg("columnar data is damaged")
						: errmsg("columnar table \"%s\" is damaged in row group %llu",
								 format_place.relation, (unsigned long long) format_place.group),
					report_detail(text),
					errhint("Check the disk, and restore the table from a standby or a backup.")));
}

/* ---- CRCs -------------------------------------------------------------------------------------- */

/*
 * The processor's CRC instruction takes three cycles but starts every cycle, so three
 * stretches of the bytes are computed at once.  What the state of the first becomes behind
 * the bytes of the next is linear in its bits: a table for each of its bytes tells.
 */
#if defined(__x86_64__) && defined(__GNUC__)
#define CRC_LANE 1024

static uint32 crc_behind_lane[4][256];

static inline uint32
move_behind_lane(uint32 crc)
{
	return crc_behind_lane[0][crc & 0xff] ^ crc_behind_lane[1][crc >> 8 & 0xff] ^
		   crc_behind_lane[2][crc >> 16 & 0xff] ^ crc_behind_lane[3][crc >> 24];
}

__attribute__((target("sse4.2"))) static void
fill_crc_tables(void)
{
	for (int byte = 0; byte < 4; byte++)
	{
		for (uint32 value = 1; value < 256; value++)
		{
			uint64 crc = value << (8 * byte);

			for (int i = 0; i < CRC_LANE; i += 8)
				crc = __builtin_ia32_crc32di(crc, 0);
			crc_behind_lane[byte][value] = (uint32) crc;
		}
	}
}

/* Takes as many bytes as make three lanes, again and again; the state behind them. */
__attribute__((target("sse4.2"))) static pg_crc32c
take_crc_lanes(pg_crc32c crc, const char **bytes, uint64 *length)
{
	for (; *length >= 3 * CRC_LANE; *bytes += 3 * CRC_LANE, *length -= 3 * CRC_LANE)
	{
		uint64 first = crc;
		uint64 second = 0;
		uint64 third = 0;

		for (int i = 0; i < CRC_LANE; i += 8)
		{
			uint64 words[3];

			for (int lane = 0; lane < 3; lane++)
				memcpy(&words[lane], *bytes + lane * CRC_LANE + i, sizeof(uint64));
			first = __builtin_ia32_crc32di(first, words[0]);
			second = __builtin_ia32_crc32di(second, words[1]);
			third = __builtin_ia32_crc32di(third, words[2]);
		}
		crc = move_behind_lane(move_behind_lane((uint32) first) ^ (uint32) second) ^ (uint32) third;
	}
	return crc;
}

static pg_crc32c
take_many_bytes(pg_crc32c crc, const char **bytes, uint64 *length)
{
	if (*length < 3 * CRC_LANE || !__builtin_cpu_supports("sse4.2"))
		return crc;
	if (crc_behind_lane[0][1] == 0)
		fill_crc_tables();
	return take_crc_lanes(crc, bytes, length);
}
#else
#define take_many_bytes(crc, bytes, length) (crc)
#endif

uint32
format_crc(const char *bytes, uint64 length)
{
	pg_crc32c crc;

	INIT_CRC32C(crc);
	crc = take_many_bytes(crc, &bytes, &length);
	COMP_CRC32C(crc, bytes, length);
	FIN_CRC32C(crc);
	return crc;
}
