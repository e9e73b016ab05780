/*
 * empty_leaf.c
 *		A leaf loses all its rows at once, as by TRUNCATE, but foreign keys do not forbid it.
 *
 * For the partitions of a shard that has moved to another worker: those to which foreign keys point can only be detached without
 * rows that these use.  Whatever uses them has moved along.  DELETE would take as long as it takes to write each row, with
 * everybody waiting.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/index.h"
#include "commands/tablecmds.h"
#include "fmgr.h"
#include "utils/rel.h"

#include "compat.h"

PG_FUNCTION_INFO_V1(strata_worker_empty_leaf);

/* Returns the table's TOAST table, or InvalidOid. */
static Oid
replace_file(Oid oid)
{
	Relation relation = table_open(oid, AccessExclusiveLock);
	Oid toast = relation->rd_rel->reltoastrelid;

	CheckTableNotInUse(relation, "empty");
	compat_set_new_file(relation, relation->rd_rel->relpersistence);
	table_close(relation, NoLock);
	return toast;
}

/* empty_leaf(leaf) */
Datum
strata_worker_empty_leaf(PG_FUNCTION_ARGS)
{
	Oid oid = PG_GETARG_OID(0);
	ReindexParams options = {0};
	Relation leaf = table_open(oid, AccessExclusiveLock);
	Oid toast;

	if (leaf->rd_rel->relkind != RELKIND_RELATION || !leaf->rd_rel->relispartition)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a partition with rows", RelationGetRelationName(leaf))));
	table_close(leaf, NoLock);
	toast = replace_file(oid);
	if (OidIsValid(toast))
		(void) replace_file(toast);
	(void) compat_reindex_relation(oid, REINDEX_REL_PROCESS_TOAST, &options);
	PG_RETURN_VOID();
}
