/*
 * hll_set.h
 *		A set of hashes as the extension postgresql-hll keeps it: all of them while they are few,
 *		then registers.
 *
 * A set has the extension's parameters: 2^log2m registers of so many bits, and how many hashes
 * are explicit.  Of the same hashes and parameters always the same set comes, in
 * whatever order they are added.
 *
 * What the extension stores (`packed`, a value of type hll):
 *
 *		byte 0		version 1 << 4 | type: 0 undefined, 1 empty, 2 explicit, 3 sparse, 4 full
 *		byte 1		(bits of a register - 1) << 5 | log2m
 *		byte 2		sparse allowed << 6 | explicit: 63 automatic, 0 none, else log2 + 1
 *		explicit	int64 hashes, ascending, high byte first
 *		sparse		register number << bits | value, of those that are not zero, ascending
 *		full		all registers; both highest bit first, the last byte filled up with zeros
 */
#ifndef COLUMNAR_HLL_SET_H
#define COLUMNAR_HLL_SET_H

#include "compat.h"

#define HLL_HEADER 3

/* Registers of 0 .. 2^17 - 1 are what the extension's state has room for. */
#define HLL_LOG2M_MAX 17
#define HLL_WIDTH_MAX 7

typedef enum HllKind
{
	HLL_ABSENT,	   /* no row; all zeros are such a set */
	HLL_UNKNOWN,   /* rows, but no parameters yet */
	HLL_EMPTY,	   /* no hash */
	HLL_EXPLICIT,  /* hashes */
	HLL_REGISTERS, /* the state for many hashes */
	HLL_FOREIGN,   /* kept elsewhere: the owner of the set knows */
	HLL_NKINDS
} HllKind;

/* Two bytes of the header, and what they mean. */
typedef struct HllShape
{
	uint8 parameters[2];
	uint8 log2m;
	uint8 width; /* bits of a register */
	uint32 nregisters;
	uint32 explicit_max;
} HllShape;

/* What belongs to a group: 16 bytes.  Memory is in a context that the caller names. */
typedef struct HllSet
{
	union
	{
		uint64 *slots; /* explicit: an open hash table, 0 = free */
		uint8 *registers;
	};
	uint16 nhashes; /* explicit */
	uint8 kind;
	uint8 slot_bits; /* explicit: there are 2^slot_bits slots */
	bool has_zero;	 /* explicit: 0 is among the hashes */
	uint8 floor;	 /* registers: none is less */
	uint8 parameters[2];
} HllSet;

/* False if they are not parameters that the extension gives to its sets. */
extern bool hll_shape_init(HllShape *shape, const uint8 *parameters);

static inline bool
hll_shape_has(const HllShape *shape, const uint8 *parameters)
{
	return shape->parameters[0] == parameters[0] && shape->parameters[1] == parameters[1];
}

/* Adds a hash to a set that is at least empty. */
extern void hll_set_add(HllSet *set, const HllShape *shape, MemoryContext context, uint64 hash);

/* Adds hashes[rows[0]] and so on, BLOCK_ROWS at most. */
extern void hll_set_add_rows(HllSet *set, const HllShape *shape, MemoryContext context,
							 const int64 *hashes, const uint16 *rows, uint32 nrows);

/*
 * Adds the hashes of a packed set with the same parameters.  False, and nothing is changed, if it
 * is not one that the extension makes.
 */
extern bool hll_set_add_packed(HllSet *set, const HllShape *shape, MemoryContext context,
							   const uint8 *packed, uint32 length);

/* Finds out how much all registers have reached, which spares values below that the look-up. */
extern void hll_set_raise_floor(HllSet *set, const HllShape *shape);

/*
 * As a value of type hll that is never sparse, in the current memory context; not of HLL_FOREIGN.
 */
extern struct varlena *hll_set_pack(const HllSet *set, const HllShape *shape);

/*
 * As hll_serialize() writes the extension's state, version 2.15 to 2.20, on this machine; bytes
 * without a meaning are zeros.
 */
extern struct varlena *hll_set_serialize(const HllSet *set, const HllShape *shape);

/* Are the bytes with a meaning the same in two serialized sets of that kind? */
extern bool
hll_serialized_equal(HllKind kind, const struct varlena *left, const struct varlena *right);

/* Where the look for a hash begins. */
static inline uint32
hll_slot(uint64 hash, int bits)
{
	return (uint32) ((hash * UINT64CONST(0x9E3779B97F4A7C15)) >> (64 - bits));
}

/* ---- registers -------------------------------------------------------------------------------- */

/* What a hash puts into its register if that is less; 0 changes none. */
static inline uint32
hll_register_value(uint64 rest, uint32 width)
{
	uint32 value = rest == 0 ? 0 : (uint32) __builtin_ctzll(rest) + 1;

	return Min(value, (UINT32_C(1) << width) - 1);
}

/* Can the hash change no register, as all have reached the floor? */
static inline bool
hll_is_below(uint64 hash, uint32 log2m, uint32 floor)
{
	return (hash & (((UINT64CONST(1) << floor) - 1) << log2m)) != 0;
}

static inline void
hll_registers_add(uint8 *registers, const HllShape *shape, uint64 hash)
{
	uint8 *entry = &registers[hash & (shape->nregisters - 1)];
	uint64 rest = hash >> shape->log2m;
	uint32 value;

	/* mostly: a bit among the lowest so many makes the value no greater (64 is not looked at) */
	if ((rest & ((UINT64CONST(1) << (*entry & 63)) - 1)) != 0)
		return;
	value = hll_register_value(rest, shape->width);
	if (*entry < value)
		*entry = (uint8) value;
}

#endif
