/*
 * own_deletes.c
 *		A bitmap per unit of rows that this transaction deleted: see own_deletes.h.
 *
 * Forgotten at the end of the transaction, when a subtransaction aborts (its rows are
 * back) and when it grows too large.  Rows are told apart by the table's file,
 * because row numbers begin again in a new one.
 */
#include "store/rows/own_deletes.h"

#include "access/xact.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "store/catalog/group_catalog.h"

/* Units remembered: some 30 MB. */
#define OWN_DELETES_MAX (128 * 1024)

typedef struct OwnDeletesKey
{
	CompatFileLocator file;
	uint32 unit;
} OwnDeletesKey;

typedef struct OwnDeletesEntry
{
	OwnDeletesKey key;
	uint64 bits[UNIT_ROWS / 64];
} OwnDeletesEntry;

/* In TopTransactionContext; NULL when there is nothing. */
static HTAB *units = NULL;

static OwnDeletesEntry *
find_unit(Relation relation, uint64 row, HASHACTION action)
{
	OwnDeletesKey key;
	OwnDeletesEntry *entry;
	bool found;

	memset(&key, 0, sizeof(key));
	key.file = compat_file_locator(relation);
	key.unit = (uint32) (row / UNIT_ROWS);
	entry = hash_search(units, &key, action, &found);
	if (action == HASH_ENTER && !found)
		memset(entry->bits, 0, sizeof(entry->bits));
	return entry;
}

void
own_deletes_add(Relation relation, uint64 row)
{
	OwnDeletesEntry *entry;

	if (units != NULL && hash_get_num_entries(units) >= OWN_DELETES_MAX)
		own_deletes_forget();
	if (units == NULL)
	{
		HASHCTL control = {.keysize = sizeof(OwnDeletesKey),
						   .entrysize = sizeof(OwnDeletesEntry),
						   .hcxt = TopTransactionContext};

		units = hash_create("columnar own deletes", 64, &control,
							HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	entry = find_unit(relation, row, HASH_ENTER);
	entry->bits[row % UNIT_ROWS / 64] |= UINT64CONST(1) << (row % 64);
}

bool
own_deletes_contains(Relation relation, uint64 row)
{
	OwnDeletesEntry *entry;

	if (units == NULL)
		return false;
	entry = find_unit(relation, row, HASH_FIND);
	return entry != NULL && (entry->bits[row % UNIT_ROWS / 64] >> (row % 64)) & 1;
}

void
own_deletes_forget(void)
{
	if (units != NULL)
		hash_destroy(units);
	units = NULL;
}

static void
transaction_ended(XactEvent event, void *argument)
{
	/* the memory is freed with its context */
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE ||
		event == XACT_EVENT_PARALLEL_COMMIT || event == XACT_EVENT_PARALLEL_ABORT)
		units = NULL;
}

static void
subtransaction_ended(SubXactEvent event, SubTransactionId id, SubTransactionId parent,
					 void *argument)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		own_deletes_forget();
}

void
own_deletes_initialize(void)
{
	RegisterXactCallback(transaction_ended, NULL);
	RegisterSubXactCallback(subtransaction_ended, NULL);
}
