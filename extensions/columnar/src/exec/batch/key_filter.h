/*
 * key_filter.h
 *		What the keys of a join's build side say about rows that may be its probe side's.
 *
 * There are two forms, both from the build side as it was read, so that none depends on estimates:
 *
 *		KeyZones	Where in the range of an integer key there are keys at all: a bit for each of up to
 *					KEY_ZONES parts of the range.  Row groups and blocks are asked before anything of
 *					them is decoded.
 *		KeyFilter	The join's hash table, to be asked by a scan on the other side of other joins, which
 *					then get fewer rows, to look up or to keep.  It is exact and takes no memory.
 *
 * A row that is left out has no partner in that join, whatever other joins make of it on its
 * way: see limit_column() in join_exec.c.  Both belong to the join, and are good until it or the scan is
 * scanned again.
 *
 * A filter that leaves out less than the join that is next anyway would only cost time.  So a scan
 * asks it for some rows, then goes on only while it is worth it: key_filter_is_worth().
 */
#ifndef COLUMNAR_KEY_FILTER_H
#define COLUMNAR_KEY_FILTER_H

#include "exec/vector/vector.h"

#define KEY_ZONES 65536

typedef struct KeyZones
{
	int64 low; /* of the keys */
	int64 high;
	int shift; /* 2^shift values have a bit together */
	uint64 bits[KEY_ZONES / 64];
} KeyZones;

/* No keys yet; those to come are between low and high. */
extern void key_zones_begin(KeyZones *zones, int64 low, int64 high);

static inline void
key_zones_add(KeyZones *zones, int64 key)
{
	uint64 zone = ((uint64) key - (uint64) zones->low) >> zones->shift;

	zones->bits[zone / 64] |= UINT64CONST(1) << (zone % 64);
}

/* May there be a key between low and high?  NULL: any. */
extern bool key_zones_may_hold(const KeyZones *zones, int64 low, int64 high);

/* How many rows were looked up, and how many of them had a partner. */
typedef struct KeyRate
{
	uint64 asked;
	uint64 passed;
} KeyRate;

typedef struct KeyFilter
{
	/* narrows the selection of n positions to those whose value is a key; returns how many */
	uint32 (*narrow)(void *owner, Vector *values, uint16 *selection, uint32 n);
	void *owner;
	const KeyRate *join; /* the join's own look-ups, with or without partner */
	KeyRate rate;		 /* of scans */
} KeyFilter;

/* `next`: the look-ups that the rows come to next; NULL: they are kept. */
extern bool key_filter_is_worth(const KeyFilter *filter, const KeyRate *next);

#endif
