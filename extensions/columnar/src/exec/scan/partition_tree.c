/*
 * partition_tree.c
 *		What a partition tree consists of: its leaves, their sizes, its indexes.
 *
 * The planner needs to know of each leaf that it is columnar, and how large it was last known to
 * be, without opening it: that is what the time of planning many partitions goes into.  The
 * answers are in pg_class and are kept for the session, until a relation of the tree changes.
 *
 * Memory: an entry lives in a context of its own below CacheMemoryContext.  An entry that is
 * invalidated while it is made, or used, is only marked, and made anew when it is next asked for.
 */
#include "exec/scan/partition_tree.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "commands/defrem.h"
#include "partitioning/partdesc.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/partcache.h"
#include "utils/syscache.h"

typedef struct TreeEntry
{
	PartitionTree tree; /* first member, whose first is the key */
	MemoryContext context;
	bool is_valid;
} TreeEntry;

/* While a tree is read. */
typedef struct TreeReader
{
	PartitionTree *tree;
	Oid method;
	int room; /* for leaves */
	bool leaf_has_index;
} TreeReader;

static HTAB *known_trees = NULL;

/* Of messages about relations; tells whether there was one while a tree was read. */
static uint64 ninvalidations = 0;

/* ---- reading the catalogs ----------------------------------------------------------------------- */

/* False if the leaf is not columnar. */
static bool
add_leaf(TreeReader *reader, Oid relation)
{
	PartitionTree *tree = reader->tree;
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Form_pg_class form;
	TreeLeaf *leaf;
	bool result;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_class) GETSTRUCT(tuple);
	result = form->relkind == RELKIND_RELATION && form->relam == reader->method;
	if (tree->nleaves == reader->room)
	{
		reader->room *= 2;
		tree->leaves = repalloc(tree->leaves, sizeof(TreeLeaf) * reader->room);
	}
	leaf = &tree->leaves[tree->nleaves++];
	leaf->relation = relation;
	leaf->pages = form->relpages;
	leaf->tuples = form->reltuples;
	reader->leaf_has_index |= form->relhasindex;
	ReleaseSysCache(tuple);
	return result;
}

/* The attribute of the top that the partitioned table below has under this number; 0 if it has none. */
static AttrNumber
find_attribute_of_top(Relation relation, AttrNumber attribute, Oid top)
{
	if (RelationGetRelid(relation) == top || attribute <= 0)
		return Max(attribute, 0);
	return get_attnum(top,
					  NameStr(TupleDescAttr(RelationGetDescr(relation), attribute - 1)->attname));
}

static bool
add_partitions(TreeReader *reader, Relation relation)
{
	PartitionTree *tree = reader->tree;
	PartitionDesc partitions = RelationGetPartitionDesc(relation, true);
	PartitionKey key = RelationGetPartitionKey(relation);
	int count = partitions->nparts;
	Oid *oids = palloc(sizeof(Oid) * Max(count, 1));
	bool *are_leaves = palloc(sizeof(bool) * Max(count, 1));
	bool result = true;

	/* looking into the catalogs may replace the descriptor */
	memcpy(oids, partitions->oids, sizeof(Oid) * count);
	memcpy(are_leaves, partitions->is_leaf, sizeof(bool) * count);
	if (key->strategy == PARTITION_STRATEGY_RANGE && key->partattrs[0] > 0)
	{
		AttrNumber attribute = find_attribute_of_top(relation, key->partattrs[0], tree->relation);

		if (attribute > 0)
			tree->by_range = bms_add_member(tree->by_range, attribute);
	}
	for (int i = 0; i < count && result; i++)
	{
		Relation below;

		if (are_leaves[i])
		{
			result = add_leaf(reader, oids[i]);
			continue;
		}
		below = try_table_open(oids[i], AccessShareLock);
		if (below == NULL)
			continue;
		tree->parents = repalloc(tree->parents, sizeof(Oid) * (tree->nparents + 1));
		tree->parents[tree->nparents++] = oids[i];
		reader->leaf_has_index |= below->rd_rel->relhasindex;
		result = add_partitions(reader, below);
		table_close(below, NoLock);
	}
	pfree(oids);
	pfree(are_leaves);
	return result;
}

/* The first columns of the indexes of the top, which all leaves have too. */
static void
add_indexes(PartitionTree *tree, Relation relation)
{
	List *indexes = RelationGetIndexList(relation);
	ListCell *cell;

	foreach(cell, indexes)
	{
		HeapTuple tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(cell)));
		AttrNumber attribute;

		if (!HeapTupleIsValid(tuple))
			continue;
		attribute = ((Form_pg_index) GETSTRUCT(tuple))->indkey.values[0];
		tree->indexed = bms_add_member(tree->indexed, Max(attribute, 0));
		ReleaseSysCache(tuple);
	}
	list_free(indexes);
}

static int
compare_leaves(const void *left, const void *right)
{
	Oid a = ((const TreeLeaf *) left)->relation;
	Oid b = ((const TreeLeaf *) right)->relation;

	return a < b ? -1 : a > b;
}

/* In the current memory context. */
static void
read_tree(PartitionTree *tree, Relation relation)
{
	TreeReader reader = {.tree = tree, .method = get_table_am_oid("columnar", true), .room = 64};

	tree->leaves = palloc(sizeof(TreeLeaf) * reader.room);
	tree->parents = palloc(sizeof(Oid));
	tree->is_columnar = OidIsValid(reader.method) && add_partitions(&reader, relation);
	qsort(tree->leaves, tree->nleaves, sizeof(TreeLeaf), compare_leaves);
	add_indexes(tree, relation);
	tree->has_indexes = tree->indexed != NULL || reader.leaf_has_index;
	tree->knows_indexes = tree->indexed != NULL || !reader.leaf_has_index;
}

/* ---- what is kept ------------------------------------------------------------------------------- */

static bool
is_member(const PartitionTree *tree, Oid relation)
{
	if (tree->relation == relation || partition_tree_leaf(tree, relation) != NULL)
		return true;
	for (int i = 0; i < tree->nparents; i++)
		if (tree->parents[i] == relation)
			return true;
	return false;
}

/* RelcacheCallbackFunction. */
static void
forget_trees(Datum argument, Oid relation)
{
	HASH_SEQ_STATUS status;
	TreeEntry *entry;

	ninvalidations++;
	if (known_trees == NULL)
		return;
	hash_seq_init(&status, known_trees);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (entry->is_valid && (!OidIsValid(relation) || is_member(&entry->tree, relation)))
			entry->is_valid = false;
	}
}

/* An entry without a tree. */
static TreeEntry *
make_entry(Oid relation)
{
	TreeEntry *entry;
	bool found;

	if (known_trees == NULL)
	{
		HASHCTL control = {.keysize = sizeof(Oid), .entrysize = sizeof(TreeEntry)};

		known_trees = hash_create("columnar partition trees", 16, &control, HASH_ELEM | HASH_BLOBS);
	}
	entry = hash_search(known_trees, &relation, HASH_ENTER, &found);
	if (!found)
		entry->context = NULL;
	else if (entry->context != NULL)
		MemoryContextDelete(entry->context);
	entry->context = NULL;
	entry->is_valid = false;
	memset(&entry->tree, 0, sizeof(PartitionTree));
	entry->tree.relation = relation;
	return entry;
}

const PartitionTree *
partition_tree_get(Relation relation)
{
	Oid relid = RelationGetRelid(relation);
	TreeEntry *entry = known_trees ? hash_search(known_trees, &relid, HASH_FIND, NULL) : NULL;
	MemoryContext context;
	MemoryContext caller;
	PartitionTree tree = {.relation = relid};
	uint64 before = ninvalidations;

	if (entry != NULL && entry->is_valid)
		return &entry->tree;
	/* an error leaves no entry behind, only memory of the caller's */
	context = AllocSetContextCreate(CurrentMemoryContext, "columnar partition tree",
									ALLOCSET_SMALL_SIZES);
	caller = MemoryContextSwitchTo(context);
	read_tree(&tree, relation);
	MemoryContextSwitchTo(caller);

	entry = make_entry(relid);
	MemoryContextSetParent(context, CacheMemoryContext);
	entry->context = context;
	entry->tree = tree;
	entry->is_valid = ninvalidations == before;
	return &entry->tree;
}

const TreeLeaf *
partition_tree_leaf(const PartitionTree *tree, Oid relation)
{
	TreeLeaf key = {.relation = relation};

	return bsearch(&key, tree->leaves, tree->nleaves, sizeof(TreeLeaf), compare_leaves);
}

void
partition_tree_initialize(void)
{
	CacheRegisterRelcacheCallback(forget_trees, (Datum) 0);
}
