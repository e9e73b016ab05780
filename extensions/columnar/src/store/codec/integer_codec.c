/*
 * integer_codec.c
 *		Encodings of a block of int64: the base of all others.
 *
 * Layout of a block; "bits" are bitpack_size(n, width) bytes of bitpack.h, a
 * "number" is a signed integer of 0 to 8 bytes with its length before it:
 *
 *		+------+----------+  head: encoding in the low 4 bits, length of base in the high 4
 *		| head | base ... |  base: signed, as many bytes as it needs (0 for 0)
 *		+------+----------+
 *		constant	nothing more: base is the value
 *		bitmap		bits of width 1 (no base)
 *		for			width u8 | bits of value - base
 *		scale		divisor number | width u8 | bits of (value - base) / divisor
 *		delta		step number | width u8 | bits of value - previous - step;
 *					base is the first value, whose own bits are 0
 *		pfor		width u8 | npatches u16 | bits of value - base without what lies above them
 *					| block of positions | block of (value - base) >> width, both of npatches
 *		dictionary	nentries - 1 u8 | width u8 | bits of entry - base, nentries of them
 *					| bits of codes, of the width that nentries needs
 *		rle			nruns u16 | block of values | block of lengths - 1, both of nruns
 *
 * Blocks inside of blocks are neither rle nor pfor, so there is one level of them.
 *
 * All arithmetic is modulo 2^64 in uint64: differences of int64 do not fit int64.
 * The decoder thus gives back every value exactly, INT64_MIN to INT64_MAX in one
 * block included, without special cases.
 *
 * Encoding first asks integer_plan.c for the smallest encoding, then writes it.
 */
#include "store/codec/integer_codec.h"

#include "store/codec/bitpack.h"
#include "store/codec/integer_plan.h"

static void
write_block(const int64 *values, uint32 nvalues, const IntegerPlan *plan, ByteBuffer *into);
static void decode_block(ByteCursor *cursor, uint32 nvalues, bool nested, int64 *values,
						 IntegerEncoding *encoding);

const char *
integer_encoding_name(IntegerEncoding encoding)
{
	static const char *const names[INTEGER_NENCODINGS] = {
		[INTEGER_CONSTANT] = "constant",
		[INTEGER_RLE] = "rle",
		[INTEGER_FOR] = "for",
		[INTEGER_PFOR] = "pfor",
		[INTEGER_DELTA] = "delta",
		[INTEGER_SCALE] = "scale",
		[INTEGER_DICTIONARY] = "dictionary",
		[INTEGER_BITMAP] = "bitmap",
	};

	Assert((int) encoding >= 0 && encoding < INTEGER_NENCODINGS);
	return names[encoding];
}

IntegerEncoding
integer_encode(const int64 *values, uint32 nvalues, ByteBuffer *into)
{
	IntegerPlan plan;

	Assert(nvalues >= 1 && nvalues <= BLOCK_ROWS);

	integer_plan_choose(values, nvalues, false, &plan);
	write_block(values, nvalues, &plan, into);
	return plan.encoding;
}

uint64
integer_encoded_size(const int64 *values, uint32 nvalues)
{
	IntegerPlan plan;

	Assert(nvalues >= 1 && nvalues <= BLOCK_ROWS);

	integer_plan_choose(values, nvalues, false, &plan);
	return plan.size;
}

void
integer_decode(ByteCursor *cursor, uint32 nvalues, int64 *values, bool *constant)
{
	IntegerEncoding encoding;

	if (nvalues < 1 || nvalues > BLOCK_ROWS)
		format_damaged("a block of %u integers", nvalues);
	decode_block(cursor, nvalues, false, values, &encoding);
	if (constant != NULL)
		*constant = encoding == INTEGER_CONSTANT;
}

/* ---- pieces of a block ------------------------------------------------------------------------- */

/* Little-endian, the rest of the 8 bytes being its sign. */
static int64
read_number(ByteCursor *cursor, int length)
{
	uint64 number = 0;

	if (length > sizeof(number))
		format_damaged("an integer of %d bytes", length);
	if (length == 0)
		return 0;
	memcpy(&number, byte_cursor_bytes(cursor, length), length);
	return (int64) (number << (64 - 8 * length)) >> (64 - 8 * length);
}

static int64
read_long_number(ByteCursor *cursor)
{
	return read_number(cursor, byte_cursor_u8(cursor));
}

static void
write_number(int64 number, ByteBuffer *into)
{
	byte_buffer_put_u8(into, integer_plan_count_bytes(number));
	byte_buffer_append(into, &number, integer_plan_count_bytes(number));
}

static void
write_head(IntegerEncoding encoding, int64 base, ByteBuffer *into)
{
	byte_buffer_put_u8(into, encoding | integer_plan_count_bytes(base) << 4);
	byte_buffer_append(into, &base, integer_plan_count_bytes(base));
}

static void
write_bits(const uint64 *bits, uint32 nvalues, int width, ByteBuffer *into)
{
	uint64 size = bitpack_size(nvalues, width);

	byte_buffer_reserve(into, size);
	bitpack_pack(bits, nvalues, width, into->data + into->length);
	into->length += size;
}

static int
read_width(ByteCursor *cursor, int largest)
{
	int width = byte_cursor_u8(cursor);

	if (width > largest)
		format_damaged("integers of %d bits where %d are the most", width, largest);
	return width;
}

/* nvalues times base + bits, to `values`. */
static void
read_bits(ByteCursor *cursor, uint32 nvalues, int width, int64 base, int64 *values)
{
	const char *bits = byte_cursor_bytes(cursor, bitpack_size(nvalues, width));

	bitpack_unpack(bits, nvalues, width, base, (uint64 *) values);
}

/* ---- writing ----------------------------------------------------------------------------------- */

static void
write_nested(const int64 *values, uint32 nvalues, ByteBuffer *into)
{
	IntegerPlan plan;

	integer_plan_choose(values, nvalues, true, &plan);
	write_block(values, nvalues, &plan, into);
}

static void
write_for(const int64 *values, uint32 nvalues, const IntegerPlan *plan, ByteBuffer *into)
{
	uint64 bits[BLOCK_ROWS];

	for (uint32 i = 0; i < nvalues; i++)
		bits[i] = integer_subtract(values[i], plan->base);
	byte_buffer_put_u8(into, plan->width);
	write_bits(bits, nvalues, plan->width, into);
}

static void
write_scale(const int64 *values, uint32 nvalues, const IntegerPlan *plan, ByteBuffer *into)
{
	uint64 bits[BLOCK_ROWS];
	IntegerDivisor divisor = integer_divisor_make(plan->step);

	for (uint32 i = 0; i < nvalues; i++)
		bits[i] = integer_divisor_divide(integer_subtract(values[i], plan->base), &divisor);
	write_number(plan->step, into);
	byte_buffer_put_u8(into, plan->width);
	write_bits(bits, nvalues, plan->width, into);
}

static void
write_delta(const int64 *values, uint32 nvalues, const IntegerPlan *plan, ByteBuffer *into)
{
	uint64 bits[BLOCK_ROWS];

	bits[0] = 0;
	for (uint32 i = 1; i < nvalues; i++)
		bits[i] = integer_subtract(values[i], values[i - 1]) - (uint64) plan->step;
	write_number(plan->step, into);
	byte_buffer_put_u8(into, plan->width);
	write_bits(bits, nvalues, plan->width, into);
}

static void
write_pfor(const int64 *values, uint32 nvalues, const IntegerPlan *plan, ByteBuffer *into)
{
	uint64 bits[BLOCK_ROWS];
	int64 positions[BLOCK_ROWS];
	int64 tops[BLOCK_ROWS];
	uint64 mask = (UINT64CONST(1) << plan->width) - 1;
	uint32 npatches = integer_plan_collect_patches(values, nvalues, plan->base, plan->width,
												   positions, tops);

	for (uint32 i = 0; i < nvalues; i++)
		bits[i] = integer_subtract(values[i], plan->base) & mask;
	byte_buffer_put_u8(into, plan->width);
	byte_buffer_put_u16(into, npatches);
	write_bits(bits, nvalues, plan->width, into);
	write_nested(positions, npatches, into);
	write_nested(tops, npatches, into);
}

static void
write_dictionary(const int64 *values, uint32 nvalues, const IntegerPlan *plan, ByteBuffer *into)
{
	IntegerTable table;
	uint64 bits[BLOCK_ROWS];
	uint64 entries[INTEGER_DICTIONARY_MAX];

	integer_table_init(&table);
	for (uint32 i = 0; i < nvalues; i++)
		bits[i] = integer_table_find(&table, values[i], INTEGER_DICTIONARY_MAX);
	for (uint32 i = 0; i < table.nentries; i++)
		entries[i] = integer_subtract(table.entries[i], plan->base);
	byte_buffer_put_u8(into, table.nentries - 1);
	byte_buffer_put_u8(into, plan->width);
	write_bits(entries, table.nentries, plan->width, into);
	write_bits(bits, nvalues, bitpack_width(table.nentries - 1), into);
}

static void
write_rle(const int64 *values, uint32 nvalues, ByteBuffer *into)
{
	int64 run_values[BLOCK_ROWS];
	int64 run_lengths[BLOCK_ROWS];
	uint32 nruns = integer_plan_collect_runs(values, nvalues, run_values, run_lengths);

	byte_buffer_put_u16(into, nruns);
	write_nested(run_values, nruns, into);
	write_nested(run_lengths, nruns, into);
}

static void
write_block(const int64 *values, uint32 nvalues, const IntegerPlan *plan, ByteBuffer *into)
{
	uint64 start PG_USED_FOR_ASSERTS_ONLY = into->length;

	write_head(plan->encoding, plan->base, into);
	switch (plan->encoding)
	{
		case INTEGER_CONSTANT:
			break;
		case INTEGER_RLE:
			write_rle(values, nvalues, into);
			break;
		case INTEGER_FOR:
			write_for(values, nvalues, plan, into);
			break;
		case INTEGER_PFOR:
			write_pfor(values, nvalues, plan, into);
			break;
		case INTEGER_DELTA:
			write_delta(values, nvalues, plan, into);
			break;
		case INTEGER_SCALE:
			write_scale(values, nvalues, plan, into);
			break;
		case INTEGER_DICTIONARY:
			write_dictionary(values, nvalues, plan, into);
			break;
		case INTEGER_BITMAP:
			write_bits((const uint64 *) values, nvalues, 1, into);
			break;
	}
	Assert(into->length - start == plan->size);
}

/* ---- reading ----------------------------------------------------------------------------------- */

static void
decode_nested(ByteCursor *cursor, uint32 nvalues, int64 *values)
{
	IntegerEncoding encoding;

	decode_block(cursor, nvalues, true, values, &encoding);
}

FORMAT_VECTORISED static void
multiply_values(int64 *values, uint32 nvalues, uint64 factor, uint64 base)
{
	/* as in measure_block() */
	if (nvalues == BLOCK_ROWS)
		for (uint32 i = 0; i < BLOCK_ROWS; i++)
			values[i] = (uint64) values[i] * factor + base;
	else
		for (uint32 i = 0; i < nvalues; i++)
			values[i] = (uint64) values[i] * factor + base;
}

static void
decode_scale(ByteCursor *cursor, uint32 nvalues, int64 base, int64 *values)
{
	uint64 divisor = read_long_number(cursor);
	int width = read_width(cursor, 64);

	read_bits(cursor, nvalues, width, 0, values);
	multiply_values(values, nvalues, divisor, base);
}

static void
decode_delta(ByteCursor *cursor, uint32 nvalues, int64 base, int64 *values)
{
	int64 step = read_long_number(cursor);
	int width = read_width(cursor, 64);
	uint64 value = base;

	read_bits(cursor, nvalues, width, step, values);
	values[0] = base;
	for (uint32 i = 1; i < nvalues; i++)
	{
		value += (uint64) values[i];
		values[i] = value;
	}
}

/* A number of things that a block of nvalues can have. */
static uint32
read_count(ByteCursor *cursor, uint32 nvalues, const char *things)
{
	uint32 count = byte_cursor_u16(cursor);

	if (count < 1 || count > nvalues)
		format_damaged("%u %s in a block of %u integers", count, things, nvalues);
	return count;
}

static void
decode_pfor(ByteCursor *cursor, uint32 nvalues, int64 base, int64 *values)
{
	int64 positions[BLOCK_ROWS];
	int64 tops[BLOCK_ROWS];
	int width = read_width(cursor, 63);
	uint32 npatches = read_count(cursor, nvalues, "patches");

	read_bits(cursor, nvalues, width, base, values);
	decode_nested(cursor, npatches, positions);
	decode_nested(cursor, npatches, tops);
	for (uint32 i = 0; i < npatches; i++)
	{
		uint64 position = positions[i];

		if (position >= nvalues)
			format_damaged("a patch of value %llu of %u", (unsigned long long) position, nvalues);
		values[position] = (uint64) values[position] + ((uint64) tops[i] << width);
	}
}

/* Room for this many values more than a run has lets it be written without asking. */
#define RLE_STEP 8

/*
 * Writes runs, of which lengths - 1 are given, until one does not fit or all are written; returns how many values
 * there are then, nvalues + 1 in the first case.
 */
FORMAT_VECTORISED static uint32
expand_runs(const int64 *restrict run_values, const int64 *restrict run_lengths, uint32 nruns,
			uint32 nvalues, int64 *restrict values)
{
	uint32 filled = 0;

	for (uint32 run = 0; run < nruns; run++)
	{
		int64 value = run_values[run];
		uint64 more = run_lengths[run];

		if (more >= nvalues - filled)
			return nvalues + 1;
		if (more < RLE_STEP && filled + RLE_STEP <= nvalues)
		{
			/* most runs are short, and their lengths hard to foretell; of an index gcc makes a loop */
			int64 *first = &values[filled];

			for (int i = 0; i < RLE_STEP; i++)
				first[i] = value;
			filled += more + 1;
		}
		else
			for (uint32 end = filled + more; filled <= end; filled++)
				values[filled] = value;
	}
	return filled;
}

static void
decode_rle(ByteCursor *cursor, uint32 nvalues, int64 *values)
{
	int64 run_values[BLOCK_ROWS];
	int64 run_lengths[BLOCK_ROWS];
	uint32 nruns = read_count(cursor, nvalues, "runs");
	uint32 filled;

	decode_nested(cursor, nruns, run_values);
	decode_nested(cursor, nruns, run_lengths);
	filled = expand_runs(run_values, run_lengths, nruns, nvalues, values);
	if (filled > nvalues)
		format_damaged("runs of more than %u integers", nvalues);
	if (filled != nvalues)
		format_damaged("runs of %u integers where there are %u", filled, nvalues);
}

static void
decode_dictionary(ByteCursor *cursor, uint32 nvalues, int64 base, int64 *values)
{
	/* every code of 8 bits has an entry, if only to be found out of range below */
	int64 entries[INTEGER_DICTIONARY_MAX] = {0};
	uint32 nentries = byte_cursor_u8(cursor) + 1;
	int width = read_width(cursor, 64);
	bool unknown = false;

	read_bits(cursor, nentries, width, base, entries);
	read_bits(cursor, nvalues, bitpack_width(nentries - 1), 0, values);
	for (uint32 i = 0; i < nvalues; i++)
	{
		uint64 code = values[i];

		unknown |= code >= nentries;
		values[i] = entries[code];
	}
	if (unknown)
		format_damaged("a code beyond the %u entries of a dictionary", nentries);
}

static void
decode_block(ByteCursor *cursor, uint32 nvalues, bool nested, int64 *values,
			 IntegerEncoding *encoding)
{
	uint8 head = byte_cursor_u8(cursor);
	int64 base = read_number(cursor, head >> 4);

	*encoding = head & 0x0f;
	if (nested && (*encoding == INTEGER_RLE || *encoding == INTEGER_PFOR))
		format_damaged("an integer block of encoding %d inside of another", *encoding);
	switch (*encoding)
	{
		case INTEGER_CONSTANT:
			bitpack_unpack(NULL, nvalues, 0, base, (uint64 *) values);
			return;
		case INTEGER_RLE:
			decode_rle(cursor, nvalues, values);
			return;
		case INTEGER_FOR:
			read_bits(cursor, nvalues, read_width(cursor, 64), base, values);
			return;
		case INTEGER_PFOR:
			decode_pfor(cursor, nvalues, base, values);
			return;
		case INTEGER_DELTA:
			decode_delta(cursor, nvalues, base, values);
			return;
		case INTEGER_SCALE:
			decode_scale(cursor, nvalues, base, values);
			return;
		case INTEGER_DICTIONARY:
			decode_dictionary(cursor, nvalues, base, values);
			return;
		case INTEGER_BITMAP:
			read_bits(cursor, nvalues, 1, 0, values);
			return;
	}
	format_damaged("an integer block of the unknown encoding %d", *encoding);
}
