/*
 * number_order.c
 *		A permutation of a row group's numbers, sorted or by number: see number_order.h.
 *
 * As with footers, the key has the footer's CRC, on which those of the numbers depend, so an order
 * that is found is the one of the group asked for.
 *
 * Memory: a child of CacheMemoryContext.
 */
#include "store/catalog/number_order.h"

#include "lib/ilist.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "store/catalog/row_group.h"

/* Bytes of all orders: as much as 32 of the largest row groups need. */
#define ORDER_BYTES_MAX (32 * 1024 * 1024)

/* A pair, sorted by number; ROW_NUMBER_MAX is below 2^41. */
#define POSITION_BITS 17
#define MAKE_PAIR(number, position) (((uint64) (number) << POSITION_BITS) | (position))
#define PAIR_NUMBER(pair) ((pair) >> POSITION_BITS)
#define PAIR_POSITION(pair) ((uint32) ((pair) & ((1 << POSITION_BITS) - 1)))

StaticAssertDecl(ROW_GROUP_ROWS_MAX <= 1 << POSITION_BITS, "a position has its bits in a pair");

/* "Not in the group" in a map. */
#define NO_POSITION PG_UINT32_MAX

struct NumberOrder
{
	RowGroupKey key;
	dlist_node use; /* most recently used first */
	uint32 lookups;
	uint32 nrows;
	uint64 bytes;
	uint32 *map;   /* position by number; or */
	uint64 *pairs; /* sorted; or neither yet */
};

static HTAB *orders = NULL;
static MemoryContext order_context = NULL;
static dlist_head orders_by_use = DLIST_STATIC_INIT(orders_by_use);
static uint64 order_bytes = 0;

#define ST_SORT sort_pairs
#define ST_ELEMENT_TYPE uint64
#define ST_COMPARE(a, b) (*(a) < *(b) ? -1 : *(a) > *(b))
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

static void
initialize_orders(void)
{
	HASHCTL control = {.keysize = sizeof(RowGroupKey), .entrysize = sizeof(NumberOrder)};

	if (order_context == NULL)
		order_context = AllocSetContextCreate(CacheMemoryContext, "columnar row numbers",
											  ALLOCSET_DEFAULT_SIZES);
	control.hcxt = order_context;
	orders = hash_create("columnar row numbers", 64, &control,
						 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* Frees what was kept of a group, but not that it was looked up. */
static void
empty_order(NumberOrder *order)
{
	order_bytes -= order->bytes;
	order->bytes = 0;
	if (order->map != NULL)
		pfree(order->map);
	if (order->pairs != NULL)
		pfree(order->pairs);
	order->map = NULL;
	order->pairs = NULL;
}

static void
remove_order(NumberOrder *order)
{
	empty_order(order);
	order_bytes -= sizeof(NumberOrder);
	dlist_delete(&order->use);
	hash_search(orders, &order->key, HASH_REMOVE, NULL);
}

static void
make_room(uint64 bytes)
{
	while (order_bytes + bytes > ORDER_BYTES_MAX && !dlist_is_empty(&orders_by_use))
		remove_order(dlist_tail_element(NumberOrder, use, &orders_by_use));
}

const NumberOrder *
number_order_find(const RowGroupKey *key, uint32 *lookups)
{
	NumberOrder *order;
	bool found;

	if (orders == NULL)
		initialize_orders();
	order = hash_search(orders, key, HASH_FIND, NULL);
	if (order == NULL)
	{
		make_room(sizeof(NumberOrder));
		order = hash_search(orders, key, HASH_ENTER, &found);
		memset((char *) order + sizeof(RowGroupKey), 0, sizeof(NumberOrder) - sizeof(RowGroupKey));
		order_bytes += sizeof(NumberOrder);
		dlist_push_head(&orders_by_use, &order->use);
	}
	dlist_move_head(&orders_by_use, &order->use);
	*lookups = ++order->lookups;
	return order->map != NULL || order->pairs != NULL ? order : NULL;
}

bool
number_order_is_map(uint32 nrows, uint64 span)
{
	return span * sizeof(uint32) <= nrows * sizeof(uint64);
}

const NumberOrder *
number_order_keep(const RowGroupKey *key, const int64 *numbers, uint32 nrows, uint64 span)
{
	bool as_map = number_order_is_map(nrows, span);
	uint64 bytes = as_map ? span * sizeof(uint32) : nrows * sizeof(uint64);
	NumberOrder *order = hash_search(orders, key, HASH_FIND, NULL);

	/* it was found a moment ago, and is not the one that makes room */
	Assert(order != NULL && order == dlist_head_element(NumberOrder, use, &orders_by_use));
	empty_order(order);
	make_room(bytes);
	order->nrows = nrows;
	if (as_map)
	{
		order->map = MemoryContextAlloc(order_context, bytes);
		memset(order->map, 0xFF, bytes);
		for (uint32 i = 0; i < nrows; i++)
			order->map[numbers[i]] = i;
	}
	else
	{
		order->pairs = MemoryContextAlloc(order_context, bytes);
		for (uint32 i = 0; i < nrows; i++)
			order->pairs[i] = MAKE_PAIR(numbers[i], i);
		sort_pairs(order->pairs, nrows);
	}
	order->bytes = bytes;
	order_bytes += bytes;
	return order;
}

bool
number_order_search(const NumberOrder *order, uint64 number, uint32 *position)
{
	uint32 low = 0;
	uint32 high = order->nrows;

	if (order->map != NULL)
	{
		*position = order->map[number];
		return *position != NO_POSITION;
	}
	while (low < high)
	{
		uint32 middle = low + (high - low) / 2;

		if (PAIR_NUMBER(order->pairs[middle]) < number)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == order->nrows || PAIR_NUMBER(order->pairs[low]) != number)
		return false;
	*position = PAIR_POSITION(order->pairs[low]);
	return true;
}

void
number_order_forget(CompatFileLocator file)
{
	HASH_SEQ_STATUS status;
	NumberOrder *order;

	if (orders == NULL)
		return;
	hash_seq_init(&status, orders);
	while ((order = hash_seq_search(&status)) != NULL)
	{
		if (memcmp(&order->key.file, &file, sizeof(file)) == 0)
			remove_order(order);
	}
}
