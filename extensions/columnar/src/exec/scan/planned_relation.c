/*
 * planned_relation.c
 *		For the planner: what is remembered of a relation while a query is planned.
 *
 * RelOptInfo has no place for it: fdw_private is not ours to use, other libraries keep things
 * there.  So there is a table by the address of the RelOptInfo.  What is remembered lies in
 * the memory context of the RelOptInfo, and a callback of that context takes it out of the
 * table.  So there is nothing of a planning that is over, was ended by an error, or of
 * a join order that GEQO has tried and forgotten.
 */
#include "exec/scan/planned_relation.h"

#include "utils/hsearch.h"
#include "utils/memutils.h"

typedef struct PlannedEntry
{
	RelOptInfo *rel; /* key */
	PlannedRelation *planned;
} PlannedEntry;

static HTAB *planned_relations = NULL;

static void
forget_relation(void *rel)
{
	hash_search(planned_relations, &rel, HASH_REMOVE, NULL);
}

PlannedRelation *
planned_relation_find(RelOptInfo *rel)
{
	PlannedEntry *entry = NULL;

	if (planned_relations != NULL)
		entry = hash_search(planned_relations, &rel, HASH_FIND, NULL);
	return entry ? entry->planned : NULL;
}

PlannedRelation *
planned_relation_get(RelOptInfo *rel)
{
	MemoryContext context = GetMemoryChunkContext(rel);
	PlannedRelation *planned = planned_relation_find(rel);
	MemoryContextCallback *callback;
	PlannedEntry *entry;

	if (planned != NULL)
		return planned;
	if (planned_relations == NULL)
	{
		HASHCTL control = {.keysize = sizeof(RelOptInfo *), .entrysize = sizeof(PlannedEntry)};

		planned_relations = hash_create("columnar planned relations", 64, &control,
										HASH_ELEM | HASH_BLOBS);
	}
	planned = MemoryContextAllocZero(context, sizeof(PlannedRelation));
	callback = MemoryContextAlloc(context, sizeof(MemoryContextCallback));
	callback->func = forget_relation;
	callback->arg = rel;
	entry = hash_search(planned_relations, &rel, HASH_ENTER, NULL);
	entry->planned = planned;
	MemoryContextRegisterResetCallback(context, callback);
	return planned;
}
