/*
 * hll_set.c
 *		Sets of hashes: see hll_set.h.
 *
 * Explicit hashes are in a small hash table, as a value may come millions of times; they are
 * sorted when they leave.
 */
#include "exec/states/hll_set.h"

#include "port/pg_bitutils.h"
#include "port/pg_bswap.h"

#include "store/value/format.h"

#define VERSION 1

/* Of byte 0. */
typedef enum PackedType
{
	PACKED_UNDEFINED,
	PACKED_EMPTY,
	PACKED_EXPLICIT,
	PACKED_SPARSE,
	PACKED_FULL
} PackedType;

#define PARAMETERS_THRESHOLD 0x3F
#define PARAMETERS_SPARSE 0x40
#define THRESHOLD_AUTOMATIC 63

/* Hashes that the extension has room for. */
#define EXPLICIT_MAX 16383

#define SLOT_BITS_MIN 2

/* Registers are unpacked, and hashes added, in such pieces. */
#define PIECE BLOCK_ROWS

/* ---- parameters ------------------------------------------------------------------------------- */

bool
hll_shape_init(HllShape *shape, const uint8 *parameters)
{
	uint32 threshold = parameters[1] & PARAMETERS_THRESHOLD;
	uint64 explicit_max;

	memcpy(shape->parameters, parameters, sizeof(shape->parameters));
	shape->width = (parameters[0] >> 5) + 1;
	shape->log2m = parameters[0] & 0x1F;
	if (shape->width > HLL_WIDTH_MAX || shape->log2m > HLL_LOG2M_MAX ||
		(parameters[1] & ~(PARAMETERS_THRESHOLD | PARAMETERS_SPARSE)) != 0)
		return false;
	shape->nregisters = UINT32_C(1) << shape->log2m;
	if (threshold == THRESHOLD_AUTOMATIC)
		/* as many as take no more room than registers */
		explicit_max = (shape->width * shape->nregisters + 7) / 8 / sizeof(uint64);
	else
		explicit_max = threshold == 0 ? 0 : UINT64CONST(1) << (threshold - 1);
	if (explicit_max > EXPLICIT_MAX)
		return false;
	shape->explicit_max = (uint32) explicit_max;
	return true;
}

/* ---- explicit hashes -------------------------------------------------------------------------- */

/* The place of a hash that is not 0, or of the free slot for it. */
static inline uint64 *
find_hash(const HllSet *set, uint64 hash)
{
	uint32 mask = (UINT32_C(1) << set->slot_bits) - 1;
	uint32 slot = hll_slot(hash, set->slot_bits);

	while (set->slots[slot] != 0 && set->slots[slot] != hash)
		slot = (slot + 1) & mask;
	return &set->slots[slot];
}

static void
make_slots(HllSet *set, MemoryContext context, int bits)
{
	uint64 *old = set->slots;
	uint32 nold = old != NULL ? UINT32_C(1) << set->slot_bits : 0;

	set->slots = MemoryContextAllocZero(context, sizeof(uint64) << bits);
	set->slot_bits = bits;
	for (uint32 i = 0; i < nold; i++)
		if (old[i] != 0)
			*find_hash(set, old[i]) = old[i];
	if (old != NULL)
		pfree(old);
}

static void
make_registers(HllSet *set, const HllShape *shape, MemoryContext context)
{
	uint64 *slots = set->kind == HLL_EXPLICIT ? set->slots : NULL;
	uint8 *registers = MemoryContextAllocZero(context, shape->nregisters);

	if (slots != NULL)
	{
		for (uint32 i = 0; i < UINT32_C(1) << set->slot_bits; i++)
			if (slots[i] != 0)
				hll_registers_add(registers, shape, slots[i]);
		pfree(slots);
	}
	/* 0 changes no register */
	set->registers = registers;
	set->kind = HLL_REGISTERS;
	set->floor = 0;
	set->nhashes = 0;
	set->has_zero = false;
}

/* The explicit hash is not in the set yet. */
static void
add_new(HllSet *set, const HllShape *shape, MemoryContext context, uint64 hash)
{
	if (set->nhashes >= shape->explicit_max)
	{
		make_registers(set, shape, context);
		hll_registers_add(set->registers, shape, hash);
		return;
	}
	set->nhashes++;
	if (hash == 0)
	{
		set->has_zero = true;
		return;
	}
	if (set->nhashes * 4 > 3 << set->slot_bits)
		make_slots(set, context, set->slot_bits + 1);
	*find_hash(set, hash) = hash;
}

static void
add_first(HllSet *set, const HllShape *shape, MemoryContext context, uint64 hash)
{
	if (shape->explicit_max > 0)
	{
		set->slots = NULL;
		make_slots(set, context, SLOT_BITS_MIN);
		set->kind = HLL_EXPLICIT;
	}
	add_new(set, shape, context, hash);
}

void
hll_set_add(HllSet *set, const HllShape *shape, MemoryContext context, uint64 hash)
{
	Assert(set->kind >= HLL_EMPTY && set->kind <= HLL_REGISTERS);
	if (set->kind == HLL_REGISTERS)
		hll_registers_add(set->registers, shape, hash);
	else if (set->kind == HLL_EMPTY)
		add_first(set, shape, context, hash);
	else if (hash == 0 ? !set->has_zero : *find_hash(set, hash) == 0)
		add_new(set, shape, context, hash);
}

/* ---- many hashes ------------------------------------------------------------------------------ */

/*
 * In two steps: the hashes that may be above the floor, without a branch, as at first they may or
 * may not; and then their registers, few of which change once many hashes were added.
 */
static void
add_to_registers(HllSet *set, const HllShape *shape, const int64 *hashes, const uint16 *rows,
				 uint32 nrows)
{
	uint8 *registers = set->registers;
	const HllShape mine = *shape;
	uint32 floor = set->floor;
	uint16 above[PIECE];

	Assert(nrows <= PIECE);
	if (floor > 0)
	{
		uint32 nabove = 0;

		for (uint32 i = 0; i < nrows; i++)
		{
			above[nabove] = rows[i];
			nabove += !hll_is_below((uint64) hashes[rows[i]], mine.log2m, floor);
		}
		rows = above;
		nrows = nabove;
	}
	for (uint32 i = 0; i < nrows; i++)
		hll_registers_add(registers, &mine, (uint64) hashes[rows[i]]);
}

void
hll_set_add_rows(HllSet *set, const HllShape *shape, MemoryContext context, const int64 *hashes,
				 const uint16 *rows, uint32 nrows)
{
	uint32 i = 0;

	for (; i < nrows && set->kind != HLL_REGISTERS; i++)
		hll_set_add(set, shape, context, (uint64) hashes[rows[i]]);
	if (i < nrows)
		add_to_registers(set, shape, hashes, rows + i, nrows - i);
}

FORMAT_VECTORISED static uint8
find_least(const uint8 *registers, uint32 count)
{
	uint8 least = PG_UINT8_MAX;

	for (; count >= 64; count -= 64, registers += 64)
		for (int i = 0; i < 64; i++)
			least = Min(least, registers[i]);
	for (uint32 i = 0; i < count; i++)
		least = Min(least, registers[i]);
	return least;
}

void
hll_set_raise_floor(HllSet *set, const HllShape *shape)
{
	uint32 least = find_least(set->registers, shape->nregisters);

	/* a test of so many bits has to be possible */
	set->floor = (uint8) Min(least, 63 - (uint32) shape->log2m);
}

/* ---- packed sets ------------------------------------------------------------------------------ */

/* 8 bytes, the first the highest; zeros behind the end. */
static inline uint64
load_bits(const uint8 *bytes, uint32 available)
{
	uint64 word = 0;

	/* a constant length is one instruction */
	if (available >= sizeof(word))
		memcpy(&word, bytes, sizeof(word));
	else
		memcpy(&word, bytes, available);
	return pg_hton64(word);
}

static bool
add_packed_hashes(HllSet *set, const HllShape *shape, MemoryContext context, const uint8 *bytes,
				  uint32 length)
{
	uint32 count = length / sizeof(uint64);

	if (length % sizeof(uint64) != 0 || count == 0 || count > shape->explicit_max)
		return false;
	for (uint32 i = 1; i < count; i++)
		if ((int64) load_bits(bytes + (i - 1) * 8, 8) >= (int64) load_bits(bytes + i * 8, 8))
			return false;
	for (uint32 i = 0; i < count; i++)
		hll_set_add(set, shape, context, load_bits(bytes + i * 8, 8));
	return true;
}

/* A constant number of rounds lets gcc -O2 use vector instructions. */
FORMAT_VECTORISED static void
raise_registers(uint8 *restrict registers, const uint8 *restrict values, uint32 count)
{
	for (; count >= 64; count -= 64, registers += 64, values += 64)
		for (int i = 0; i < 64; i++)
			registers[i] = Max(registers[i], values[i]);
	for (uint32 i = 0; i < count; i++)
		registers[i] = Max(registers[i], values[i]);
}

/* 8 registers in the lowest bits of a word, the first the highest, to a byte each. */
static inline uint64
spread_registers(uint64 word, uint32 width)
{
	uint64 four = (UINT64CONST(1) << (4 * width)) - 1;
	uint64 two = ((UINT64CONST(1) << (2 * width)) - 1) * UINT64CONST(0x0000000100000001);
	uint64 one = ((UINT64CONST(1) << width) - 1) * UINT64CONST(0x0001000100010001);

	word = (word & four) | ((word >> (4 * width)) & four) << 32;
	word = (word & two) | ((word >> (2 * width)) & two) << 16;
	return (word & one) | ((word >> width) & one) << 8;
}

/* A multiple of 8 registers. */
FORMAT_VECTORISED static void
unpack_registers(const uint8 *bytes, uint32 available, uint32 width, uint32 count, uint8 *registers)
{
	for (uint32 i = 0; i < count; i += 8)
	{
		uint64 word = pg_hton64(
			spread_registers(load_bits(bytes, available) >> (64 - 8 * width), width));

		memcpy(registers + i, &word, sizeof(word));
		bytes += width;
		available -= width;
	}
}

/* Registers of an unfinished byte, where there are fewer than 8. */
static void
unpack_few(const uint8 *bytes, uint32 available, uint32 width, uint32 count, uint8 *registers)
{
	uint8 eight[8];
	uint8 padded[8] = {0};

	memcpy(padded, bytes, available);
	unpack_registers(padded, sizeof(padded), width, 8, eight);
	memcpy(registers, eight, count);
}

static bool
add_packed_registers(HllSet *set, const HllShape *shape, MemoryContext context, const uint8 *bytes,
					 uint32 length)
{
	uint8 piece[PIECE];

	if (length != (shape->nregisters * shape->width + 7) / 8)
		return false;
	if (set->kind != HLL_REGISTERS)
		make_registers(set, shape, context);
	if (shape->nregisters < 8)
	{
		unpack_few(bytes, length, shape->width, shape->nregisters, piece);
		raise_registers(set->registers, piece, shape->nregisters);
		return true;
	}
	for (uint32 i = 0; i < shape->nregisters; i += PIECE)
	{
		uint32 count = Min(shape->nregisters - i, PIECE);
		uint32 offset = i / 8 * shape->width;

		unpack_registers(bytes + offset, length - offset, shape->width, count, piece);
		raise_registers(set->registers + i, piece, count);
	}
	return true;
}

/* The n-th pair of a sparse set: the register's number above its value. */
static inline uint32
load_pair(const uint8 *bytes, uint32 length, uint32 bits, uint32 n)
{
	uint64 at = (uint64) bits * n;
	uint64 word = load_bits(bytes + at / 8, length - (uint32) (at / 8));

	return (uint32) ((word << (at % 8)) >> (64 - bits));
}

static bool
add_packed_pairs(HllSet *set, const HllShape *shape, MemoryContext context, const uint8 *bytes,
				 uint32 length)
{
	uint32 bits = shape->log2m + shape->width;
	uint32 count = (uint32) ((uint64) length * 8 / bits);
	uint32 mask = (UINT32_C(1) << shape->width) - 1;

	if ((uint64) length * 8 - (uint64) count * bits >= 8)
		return false;
	for (uint32 i = 1; i < count; i++)
		if (load_pair(bytes, length, bits, i - 1) >> shape->width >=
			load_pair(bytes, length, bits, i) >> shape->width)
			return false;
	if (set->kind != HLL_REGISTERS)
		make_registers(set, shape, context);
	for (uint32 i = 0; i < count; i++)
	{
		uint32 pair = load_pair(bytes, length, bits, i);
		uint8 *entry = &set->registers[pair >> shape->width];

		*entry = Max(*entry, pair & mask);
	}
	return true;
}

bool
hll_set_add_packed(HllSet *set, const HllShape *shape, MemoryContext context, const uint8 *packed,
				   uint32 length)
{
	const uint8 *bytes = packed + HLL_HEADER;

	Assert(length >= HLL_HEADER && hll_shape_has(shape, packed + 1));
	length -= HLL_HEADER;
	switch (packed[0])
	{
		case VERSION << 4 | PACKED_EMPTY:
			return length == 0;
		case VERSION << 4 | PACKED_EXPLICIT:
			return add_packed_hashes(set, shape, context, bytes, length);
		case VERSION << 4 | PACKED_SPARSE:
			return add_packed_pairs(set, shape, context, bytes, length);
		case VERSION << 4 | PACKED_FULL:
			return add_packed_registers(set, shape, context, bytes, length);
		default:
			return false;
	}
}

/* ---- leaving ---------------------------------------------------------------------------------- */

/* Not more hashes than this are sorted by buckets, of which there are 2^BUCKET_BITS. */
#define BUCKETS_HASHES_MAX 256
#define BUCKET_BITS 6

#define ST_SORT sort_many
#define ST_ELEMENT_TYPE int64
#define ST_COMPARE(a, b) (*(a) < *(b) ? -1 : *(a) > *(b))
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

/* In order but for neighbours, if the hashes are spread as hashes are; at worst not at all. */
static void
sort_by_bucket(const int64 *hashes, uint32 count, int64 *into)
{
	uint32 starts[(1 << BUCKET_BITS) + 1] = {0};

	for (uint32 i = 0; i < count; i++)
		starts[(((uint64) hashes[i] ^ PG_INT64_MIN) >> (64 - BUCKET_BITS)) + 1]++;
	for (uint32 i = 1; i < 1 << BUCKET_BITS; i++)
		starts[i] += starts[i - 1];
	for (uint32 i = 0; i < count; i++)
		into[starts[((uint64) hashes[i] ^ PG_INT64_MIN) >> (64 - BUCKET_BITS)]++] = hashes[i];
}

static void
sort_hashes(int64 *hashes, uint32 count)
{
	int64 sorted[BUCKETS_HASHES_MAX];

	if (count > BUCKETS_HASHES_MAX)
	{
		sort_many(hashes, count);
		return;
	}
	sort_by_bucket(hashes, count, sorted);
	for (uint32 i = 0; i < count; i++)
	{
		uint32 place = i;

		for (; place > 0 && hashes[place - 1] > sorted[i]; place--)
			hashes[place] = hashes[place - 1];
		hashes[place] = sorted[i];
	}
}

/* The explicit hashes in their order. */
static void
list_hashes(const HllSet *set, int64 *into)
{
	uint32 count = 0;

	if (set->has_zero)
		into[count++] = 0;
	for (uint32 i = 0; i < UINT32_C(1) << set->slot_bits; i++)
		if (set->slots[i] != 0)
			into[count++] = (int64) set->slots[i];
	Assert(count == set->nhashes);
	sort_hashes(into, count);
}

static struct varlena *
make_bytes(Size length)
{
	struct varlena *bytes = palloc0(VARHDRSZ + length);

	SET_VARSIZE(bytes, VARHDRSZ + length);
	return bytes;
}

static struct varlena *
start_packed(const HllShape *shape, PackedType type, Size length)
{
	struct varlena *packed = make_bytes(HLL_HEADER + length);
	uint8 *bytes = (uint8 *) VARDATA(packed);

	bytes[0] = VERSION << 4 | type;
	memcpy(bytes + 1, shape->parameters, sizeof(shape->parameters));
	return packed;
}

static struct varlena *
pack_hashes(const HllSet *set, const HllShape *shape)
{
	struct varlena *packed = start_packed(shape, PACKED_EXPLICIT, sizeof(int64) * set->nhashes);
	int64 *hashes = palloc(sizeof(int64) * set->nhashes);

	list_hashes(set, hashes);
	for (uint32 i = 0; i < set->nhashes; i++)
	{
		uint64 word = pg_hton64((uint64) hashes[i]);

		memcpy(VARDATA(packed) + HLL_HEADER + i * sizeof(word), &word, sizeof(word));
	}
	pfree(hashes);
	return packed;
}

static struct varlena *
pack_registers(const HllSet *set, const HllShape *shape)
{
	Size length = (shape->nregisters * shape->width + 7) / 8;
	struct varlena *packed = start_packed(shape, PACKED_FULL, length);
	uint8 *into = (uint8 *) VARDATA(packed) + HLL_HEADER;
	uint64 word = 0;
	uint32 used = 0;

	for (uint32 i = 0; i < shape->nregisters; i++)
	{
		word = word << shape->width | set->registers[i];
		for (used += shape->width; used >= 8; used -= 8)
			*into++ = (uint8) (word >> (used - 8));
	}
	if (used > 0)
		*into = (uint8) (word << (8 - used));
	return packed;
}

struct varlena *
hll_set_pack(const HllSet *set, const HllShape *shape)
{
	switch ((HllKind) set->kind)
	{
		case HLL_EXPLICIT:
			return pack_hashes(set, shape);
		case HLL_REGISTERS:
			return pack_registers(set, shape);
		default:
			Assert(set->kind == HLL_EMPTY);
			return start_packed(shape, PACKED_EMPTY, 0);
	}
}

/* ---- the extension's state -------------------------------------------------------------------- */

/* Begins what it keeps in memory; hashes (after their number) or registers follow. */
typedef struct StateHeader
{
	uint64 width;
	uint64 nregisters;
	uint64 log2m;
	int64 explicit_max; /* -1: automatic */
	bool is_sparse_allowed;
	uint64 type; /* PackedType without PACKED_SPARSE, or: */
} StateHeader;

#define STATE_UNKNOWN 0xFFFF

StaticAssertDecl(sizeof(StateHeader) == 48, "the extension's state has no other padding");

static StateHeader
make_header(HllKind kind, const HllShape *shape)
{
	static const uint64 types[HLL_NKINDS] = {[HLL_UNKNOWN] = STATE_UNKNOWN,
											 [HLL_EMPTY] = PACKED_EMPTY,
											 [HLL_EXPLICIT] = PACKED_EXPLICIT,
											 [HLL_REGISTERS] = PACKED_FULL};
	StateHeader header;

	memset(&header, 0, sizeof(header));
	header.type = types[kind];
	if (kind == HLL_UNKNOWN)
		return header;
	header.width = shape->width;
	header.nregisters = shape->nregisters;
	header.log2m = shape->log2m;
	header.explicit_max = (shape->parameters[1] & PARAMETERS_THRESHOLD) == THRESHOLD_AUTOMATIC
							  ? -1
							  : shape->explicit_max;
	header.is_sparse_allowed = (shape->parameters[1] & PARAMETERS_SPARSE) != 0;
	return header;
}

struct varlena *
hll_set_serialize(const HllSet *set, const HllShape *shape)
{
	StateHeader header = make_header(set->kind, shape);
	Size length = sizeof(header);
	struct varlena *result;
	char *data;

	if (set->kind == HLL_EXPLICIT)
		length += sizeof(uint64) * (1 + (Size) set->nhashes);
	else if (set->kind == HLL_REGISTERS)
		length += shape->nregisters;
	result = palloc(VARHDRSZ + length);
	SET_VARSIZE(result, VARHDRSZ + length);
	memcpy(VARDATA(result), &header, sizeof(header));
	data = VARDATA(result) + sizeof(header);
	if (set->kind == HLL_EXPLICIT)
	{
		int64 *hashes = palloc(sizeof(int64) * set->nhashes);
		uint64 count = set->nhashes;

		list_hashes(set, hashes);
		memcpy(data, &count, sizeof(count));
		/* what follows the header of a datum is aligned to 4 bytes only */
		memcpy(data + sizeof(count), hashes, sizeof(int64) * count);
		pfree(hashes);
	}
	else if (set->kind == HLL_REGISTERS)
		memcpy(data, set->registers, shape->nregisters);
	return result;
}

bool
hll_serialized_equal(HllKind kind, const struct varlena *left, const struct varlena *right)
{
	const char *a = VARDATA(left);
	const char *b = VARDATA(right);
	Size padding = offsetof(StateHeader, is_sparse_allowed) + sizeof(bool);
	Size type = offsetof(StateHeader, type);

	if (VARSIZE(left) != VARSIZE(right) || VARSIZE(left) - VARHDRSZ < sizeof(StateHeader))
		return false;
	/* the parameters of an unknown set are not initialised */
	if (kind != HLL_UNKNOWN && memcmp(a, b, padding) != 0)
		return false;
	return memcmp(a + type, b + type, VARSIZE(left) - VARHDRSZ - type) == 0;
}
