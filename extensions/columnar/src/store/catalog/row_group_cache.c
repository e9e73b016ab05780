/*
 * row_group_cache.c
 *		Column types by relation, footers by row group: see row_group_cache.h.
 *
 * Footers are kept as the bytes that they are: small, independent of the types
 * that the columns have by now, and copied out, so that dropping one from the
 * cache concerns nobody.  The key contains the CRC, so a footer found is the one
 * asked for: file numbers and group ids are not used again while both are known,
 * and even then the CRC differs.  The one least recently used makes room.
 *
 * Types hang on the relation's descriptor.  A relcache invalidation marks them to
 * be compared with it at the next use; types that differ are set aside and freed
 * with the last reader that uses them, as are those least recently used when there are too many.
 *
 * Memory: children of CacheMemoryContext.
 */
#include "store/catalog/row_group_cache.h"

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "lib/ilist.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"

#include "store/catalog/number_order.h"
#include "store/catalog/row_group.h"

/* Relations whose types are kept, and bytes of footers. */
#define TYPES_RELATIONS_MAX 4096
#define FOOTER_BYTES_MAX (32 * 1024 * 1024)

/* ---- column types ----------------------------------------------------------------------------- */

struct RelationTypes
{
	Oid relid;
	bool checked;	/* descriptor is the relation's, as far as invalidations tell */
	bool current;	/* in the hash table */
	dlist_node use; /* while it is there: most recently used first */
	int references;
	MemoryContext context;
	TupleDesc descriptor;
	ColumnType **types; /* by attribute - 1 */
};

typedef struct TypesEntry
{
	Oid relid;
	RelationTypes *types;
} TypesEntry;

static HTAB *types_by_relation = NULL;
static dlist_head types_by_use = DLIST_STATIC_INIT(types_by_use);

static void
mark_types_unchecked(Datum argument, Oid relid)
{
	HASH_SEQ_STATUS status;
	TypesEntry *entry;

	if (types_by_relation == NULL)
		return;
	if (OidIsValid(relid))
	{
		entry = hash_search(types_by_relation, &relid, HASH_FIND, NULL);
		if (entry != NULL)
			entry->types->checked = false;
		return;
	}
	hash_seq_init(&status, types_by_relation);
	while ((entry = hash_seq_search(&status)) != NULL)
		entry->types->checked = false;
}

static void
initialize_types(void)
{
	HASHCTL control = {.keysize = sizeof(Oid), .entrysize = sizeof(TypesEntry)};

	control.hcxt = CacheMemoryContext;
	types_by_relation = hash_create("columnar types", 64, &control,
									HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	CacheRegisterRelcacheCallback(mark_types_unchecked, (Datum) 0);
}

static void
free_types_if_unused(RelationTypes *types)
{
	if (types->references == 0 && !types->current)
		MemoryContextDelete(types->context);
}

/* Takes types out of the table. */
static void
remove_types(RelationTypes *types)
{
	hash_search(types_by_relation, &types->relid, HASH_REMOVE, NULL);
	dlist_delete(&types->use);
	types->current = false;
	free_types_if_unused(types);
}

static RelationTypes *
make_types(Relation relation, TupleDesc descriptor)
{
	MemoryContext context = AllocSetContextCreate(CacheMemoryContext, "columnar types",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	RelationTypes *types = palloc0(sizeof(RelationTypes));

	types->relid = RelationGetRelid(relation);
	types->checked = true;
	types->context = context;
	types->descriptor = CreateTupleDescCopy(descriptor);
	types->types = palloc0(sizeof(ColumnType *) * Max(types->descriptor->natts, 1));
	MemoryContextSwitchTo(caller);
	return types;
}

/* Do both have the same columns, as far as their values go? */
static bool
have_same_types(TupleDesc a, TupleDesc b)
{
	if (a->natts != b->natts)
		return false;
	for (int i = 0; i < a->natts; i++)
	{
		Form_pg_attribute left = TupleDescAttr(a, i);
		Form_pg_attribute right = TupleDescAttr(b, i);

		if (left->atttypid != right->atttypid || left->atttypmod != right->atttypmod ||
			left->attcollation != right->attcollation || left->attisdropped != right->attisdropped)
			return false;
	}
	return true;
}

static void
release_types(void *argument)
{
	RelationTypes *types = argument;

	types->references--;
	free_types_if_unused(types);
}

RelationTypes *
row_group_cache_types(Relation relation, TupleDesc descriptor)
{
	Oid relid = RelationGetRelid(relation);
	RelationTypes *types = NULL;
	TypesEntry *entry;
	MemoryContextCallback *callback;

	if (types_by_relation == NULL)
		initialize_types();
	callback = palloc(sizeof(MemoryContextCallback));

	entry = hash_search(types_by_relation, &relid, HASH_FIND, NULL);
	if (entry != NULL)
	{
		types = entry->types;
		if (descriptor != RelationGetDescr(relation) &&
			!have_same_types(types->descriptor, descriptor))
		{
			/* not the relation's: for this reader alone */
			types = make_types(relation, descriptor);
		}
		else if (!types->checked)
		{
			if (have_same_types(types->descriptor, RelationGetDescr(relation)))
				types->checked = true;
			else
			{
				remove_types(types);
				types = NULL;
				entry = NULL;
			}
		}
	}
	if (types == NULL)
		types = make_types(relation, descriptor);
	if (entry == NULL && (descriptor == RelationGetDescr(relation) ||
						  have_same_types(descriptor, RelationGetDescr(relation))))
	{
		if (hash_get_num_entries(types_by_relation) >= TYPES_RELATIONS_MAX)
			remove_types(dlist_tail_element(RelationTypes, use, &types_by_use));
		entry = hash_search(types_by_relation, &relid, HASH_ENTER, NULL);
		entry->types = types;
		types->current = true;
		dlist_push_head(&types_by_use, &types->use);
	}
	if (types->current)
		dlist_move_head(&types_by_use, &types->use);

	types->references++;
	callback->func = release_types;
	callback->arg = types;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, callback);
	return types;
}

const ColumnType *
row_group_cache_type(RelationTypes *types, AttrNumber attribute)
{
	Form_pg_attribute form;
	ColumnType *type;
	MemoryContext caller;

	if (attribute < 1 || attribute > types->descriptor->natts)
		elog(ERROR, "attribute %d of relation %u does not exist", attribute, types->relid);
	if (types->types[attribute - 1] != NULL)
		return types->types[attribute - 1];

	form = TupleDescAttr(types->descriptor, attribute - 1);
	if (form->attisdropped)
		return NULL;
	caller = MemoryContextSwitchTo(types->context);
	type = palloc(sizeof(ColumnType));
	column_type_init(type, form);
	types->types[attribute - 1] = type;
	MemoryContextSwitchTo(caller);
	return type;
}

bool
row_group_cache_is_current(const RelationTypes *types, Relation relation)
{
	return have_same_types(types->descriptor, RelationGetDescr(relation));
}

const ColumnType *
row_group_number_type(void)
{
	static ColumnType *number_type = NULL;

	if (number_type == NULL)
	{
		FormData_pg_attribute attribute;
		MemoryContext caller;
		ColumnType *type;

		memset(&attribute, 0, sizeof(attribute));
		attribute.atttypid = INT8OID;
		attribute.atttypmod = -1;
		attribute.attlen = sizeof(int64);
		attribute.attbyval = true;
		attribute.attalign = TYPALIGN_DOUBLE;
		caller = MemoryContextSwitchTo(CacheMemoryContext);
		type = palloc(sizeof(ColumnType));
		column_type_init(type, &attribute);
		number_type = type;
		MemoryContextSwitchTo(caller);
	}
	return number_type;
}

/* ---- footers ---------------------------------------------------------------------------------- */

typedef struct FooterEntry
{
	RowGroupKey key;
	dlist_node use; /* most recently used first */
	uint32 length;
	char *bytes;
} FooterEntry;

static HTAB *footers = NULL;
static MemoryContext footer_context = NULL;
static dlist_head footers_by_use = DLIST_STATIC_INIT(footers_by_use);
static uint64 footer_bytes = 0;

static void
initialize_footers(void)
{
	HASHCTL control = {.keysize = sizeof(RowGroupKey), .entrysize = sizeof(FooterEntry)};

	if (footer_context == NULL)
		footer_context = AllocSetContextCreate(CacheMemoryContext, "columnar footers",
											   ALLOCSET_DEFAULT_SIZES);
	control.hcxt = footer_context;
	footers = hash_create("columnar footers", 256, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

static void
remove_footer(FooterEntry *entry)
{
	dlist_delete(&entry->use);
	footer_bytes -= entry->length + sizeof(FooterEntry);
	pfree(entry->bytes);
	hash_search(footers, &entry->key, HASH_REMOVE, NULL);
}

bool
row_group_cache_get_footer(const RowGroupKey *key, uint32 length, char *into)
{
	FooterEntry *entry;

	if (footers == NULL)
		return false;
	entry = hash_search(footers, key, HASH_FIND, NULL);
	if (entry == NULL || entry->length != length)
		return false;
	dlist_move_head(&footers_by_use, &entry->use);
	memcpy(into, entry->bytes, length);
	return true;
}

void
row_group_cache_put_footer(const RowGroupKey *key, uint32 length, const char *bytes)
{
	FooterEntry *entry;
	char *copy;
	bool found;

	if (length + sizeof(FooterEntry) > FOOTER_BYTES_MAX / 8)
		return;
	if (footers == NULL)
		initialize_footers();
	while (footer_bytes + length + sizeof(FooterEntry) > FOOTER_BYTES_MAX)
		remove_footer(dlist_tail_element(FooterEntry, use, &footers_by_use));

	/* same key, other length: damage somewhere; keep what is there */
	copy = MemoryContextAlloc(footer_context, length);
	memcpy(copy, bytes, length);
	entry = hash_search(footers, key, HASH_ENTER, &found);
	if (found)
	{
		pfree(copy);
		return;
	}
	entry->length = length;
	entry->bytes = copy;
	dlist_push_head(&footers_by_use, &entry->use);
	footer_bytes += length + sizeof(FooterEntry);
}

void
row_group_cache_forget(CompatFileLocator file)
{
	HASH_SEQ_STATUS status;
	FooterEntry *entry;

	number_order_forget(file);
	if (footers == NULL)
		return;
	hash_seq_init(&status, footers);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (memcmp(&entry->key.file, &file, sizeof(file)) == 0)
			remove_footer(entry);
	}
}
