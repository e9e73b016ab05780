/*
 * dropped_names.c
 *		Names of distributed tables that this session has dropped.
 *
 * Tools replace a table by DROP TABLE and CREATE TABLE (pandas with if_exists='replace', dbt, many a script),
 * and do not know that it was distributed: the new one is local, which nobody notices until it has grown.
 * A NOTICE says so when the name comes back.  It is no more than that: after a rollback, or when another
 * session creates the table, it may be missing or one too many.
 *
 * The names live as long as the session.  Each is forgotten with its NOTICE.
 */
#include "postgres.h"

#include "table/dropped_names.h"

#include "catalog/pg_class.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "cluster/metadata.h"

/* Beyond so many no further ones are noted. */
#define MOST_NAMES 10000

typedef struct DroppedName
{
	struct
	{
		NameData schema;
		NameData table;
	} key;
	TableKind kind;
} DroppedName;

static HTAB *dropped = NULL;

static void
make_key(Oid relation, DroppedName *name)
{
	char *schema = get_namespace_name(get_rel_namespace(relation));

	memset(name, 0, sizeof(DroppedName));
	namestrcpy(&name->key.schema, schema != NULL ? schema : "");
	namestrcpy(&name->key.table, get_rel_name(relation));
}

void
dropped_names_note(Oid relation)
{
	DroppedName name;
	DroppedName *entry;

	if (dropped == NULL)
	{
		HASHCTL control = {.keysize = sizeof(name.key),
						   .entrysize = sizeof(DroppedName),
						   .hcxt = TopMemoryContext};

		dropped = hash_create("strata dropped names", 64, &control,
							  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	if (hash_get_num_entries(dropped) >= MOST_NAMES)
		return;
	make_key(relation, &name);
	entry = hash_search(dropped, &name.key, HASH_ENTER, NULL);
	entry->kind = metadata_table(relation)->kind;
}

void
dropped_names_check(Oid relation)
{
	char relkind = get_rel_relkind(relation);
	DroppedName name;
	DroppedName *entry;

	if (dropped == NULL || hash_get_num_entries(dropped) == 0 ||
		(relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE))
		return;
	make_key(relation, &name);
	entry = hash_search(dropped, &name.key, HASH_REMOVE, NULL);
	if (entry == NULL || metadata_table(relation) != NULL)
		return;
	ereport(NOTICE,
			(errmsg("table \"%s\" is local, and was a %s table before it was dropped",
					NameStr(name.key.table),
					entry->kind == TABLE_REFERENCE ? "reference" : "distributed"),
			 errhint("Run %s() for the new one.  To replace the rows of a table only, use TRUNCATE "
					 "in place of DROP TABLE.",
					 entry->kind == TABLE_REFERENCE ? "create_reference_table"
													: "create_distributed_table")));
}
