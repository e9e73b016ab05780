/*
 * test_format.c
 *		Growing bytes, checked reading, the CRC, and what a report of damage says.
 */
#include "harness.h"

typedef struct MemorySource
{
	ByteSource base; /* first */
	const char *bytes;
} MemorySource;

static void
read_memory(ByteSource *source, uint64 offset, uint64 length, char *into)
{
	memcpy(into, ((MemorySource *) source)->bytes + offset, length);
}

static void
check_buffer(void)
{
	ByteBuffer buffer;
	ByteCursor cursor;

	byte_buffer_init(&buffer, 0);
	byte_buffer_put_u8(&buffer, 0x12);
	byte_buffer_put_u16(&buffer, 0x3456);
	byte_buffer_put_u32(&buffer, 0x789abcde);
	byte_buffer_put_u64(&buffer, UINT64CONST(0x0123456789abcdef));
	CHECK(buffer.length == 15);
	CHECK(memcmp(buffer.data, "\x12\x56\x34\xde\xbc\x9a\x78\xef\xcd\xab\x89\x67\x45\x23\x01", 15) ==
		  0);
	byte_buffer_align(&buffer);
	CHECK(buffer.length == 16 && buffer.data[15] == 0);
	byte_buffer_align(&buffer);
	CHECK(buffer.length == 16);

	for (int i = 0; i < 10000; i++)
		byte_buffer_put_u32(&buffer, i);
	byte_buffer_append(&buffer, NULL, 0);
	cursor = (ByteCursor){buffer.data, buffer.data + buffer.length};
	CHECK(byte_cursor_u8(&cursor) == 0x12);
	CHECK(byte_cursor_u16(&cursor) == 0x3456);
	CHECK(byte_cursor_u32(&cursor) == 0x789abcde);
	CHECK(byte_cursor_u64(&cursor) == UINT64CONST(0x0123456789abcdef));
	CHECK(byte_cursor_bytes(&cursor, 1) == buffer.data + 15);
	for (int i = 0; i < 10000; i++)
		CHECK(byte_cursor_u32(&cursor) == i);
	CHECK(cursor.at == cursor.end);
	byte_buffer_free(&buffer);
	CHECK(buffer.data == NULL && buffer.length == 0);
}

/* A buffer grows in the memory context that it was made in. */
static void
append_in_other_context(void *argument)
{
	ByteBuffer *buffer = argument;

	for (int i = 0; i < 1000; i++)
		byte_buffer_put_u64(buffer, i);
}

static void
check_buffer_context(void)
{
	ByteBuffer buffer;
	uint64 last;

	byte_buffer_init(&buffer, 8);
	CHECK(harness_try(append_in_other_context, &buffer));
	memcpy(&last, buffer.data + 999 * 8, sizeof(last));
	CHECK(last == 999);
	byte_buffer_free(&buffer);
}

static void
read_past_end(void *argument)
{
	const uint64 *length = argument;
	char bytes[7] = {0};
	ByteCursor cursor = {bytes, bytes + sizeof(bytes)};

	byte_cursor_bytes(&cursor, *length);
	byte_cursor_u8(&cursor);
}

static void
check_cursor(void)
{
	static uint64 lengths[] = {7, 8, 9, PG_UINT32_MAX, PG_INT64_MAX, PG_UINT64_MAX};
	uint64 inside = 6;

	CHECK(harness_try(read_past_end, &inside));
	for (int i = 0; i < lengthof(lengths); i++)
		CHECK(!harness_try_damaged(read_past_end, &lengths[i]));
}

typedef struct SourceRange
{
	uint64 offset;
	uint64 length;
} SourceRange;

static void
read_source(void *argument)
{
	const SourceRange *range = argument;
	MemorySource source = {{.length = 10, .read = read_memory}, "0123456789"};
	char into[10];

	byte_source_read(&source.base, range->offset, range->length, into);
	CHECK(memcmp(into, source.bytes + range->offset, range->length) == 0);
}

static void
check_source(void)
{
	static SourceRange inside[] = {{0, 10}, {3, 4}, {10, 0}, {9, 1}};
	static SourceRange outside[] = {
		{0, 11}, {10, 1}, {11, 0}, {3, PG_UINT64_MAX}, {PG_UINT64_MAX, 1}, {PG_UINT64_MAX, 11}};

	for (int i = 0; i < lengthof(inside); i++)
		CHECK(harness_try(read_source, &inside[i]));
	for (int i = 0; i < lengthof(outside); i++)
		CHECK(!harness_try_damaged(read_source, &outside[i]));
}

static void
report_damage(void *argument)
{
	format_place = *(FormatPlace *) argument;
	format_damaged("%d bits where %s", 70, "64 are the most");
}

static void
check_report(FormatPlace place, const char *message, const char *detail)
{
	CHECK(!harness_try_damaged(report_damage, &place));
	CHECK_THAT(strcmp(harness_error.message, message) == 0, "expected: %s", message);
	CHECK_THAT(strcmp(harness_error.detail, detail) == 0, "expected: %s", detail);
	CHECK(harness_error.hint[0] != '\0');
}

/* CRC-32C, bit by bit. */
static uint32
reckon_crc(const char *bytes, uint32 length)
{
	uint32 crc = 0xffffffff;

	for (uint32 i = 0; i < length; i++)
	{
		crc ^= (uint8) bytes[i];
		for (int bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return ~crc;
}

/* Around the lengths at which several stretches are computed at once. */
static void
check_long_crcs(void)
{
	static const uint32 lengths[] = {1,	   7,	 1024, 3071, 3072, 3073,
									 3080, 6143, 6144, 6151, 9216, 20000};
	char bytes[20008];

	for (int i = 0; i < lengthof(bytes); i++)
		bytes[i] = (char) (i * 2654435761U >> 13);
	for (int i = 0; i < lengthof(lengths); i++)
		for (int start = 0; start < 8; start++)
			CHECK(format_crc(bytes + start, lengths[i]) == reckon_crc(bytes + start, lengths[i]));
}

static void
check_reports(void)
{
	FormatPlace unknown = format_place;

	check_report(unknown, "columnar data is damaged", "Found: 70 bits where 64 are the most.");
	check_report((FormatPlace){"t", 12, 3, 0}, "columnar table \"t\" is damaged in row group 12",
				 "Column 3, block 0: 70 bits where 64 are the most.");
	check_report((FormatPlace){"t", PG_UINT64_MAX, 3, -1},
				 "columnar table \"t\" is damaged in row group 18446744073709551615",
				 "Column 3: 70 bits where 64 are the most.");
	check_report((FormatPlace){"t", 1, 0, 7}, "columnar table \"t\" is damaged in row group 1",
				 "Block 7: 70 bits where 64 are the most.");
	format_place = unknown;
}

int
main(int argc, char **argv)
{
	harness_start(argc, argv);
	check_buffer();
	check_buffer_context();
	check_cursor();
	check_source();
	check_reports();
	/* the check value of CRC-32C */
	CHECK(format_crc("123456789", 9) == 0xe3069283);
	CHECK(format_crc("", 0) == 0);
	check_long_crcs();
	return harness_finish();
}
