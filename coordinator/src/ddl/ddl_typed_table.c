/*
 * ddl_typed_table.c
 *		The tables of a composite type (CREATE TABLE ... OF), when its attributes change.
 *
 * Only the coordinator's tables have the type.  It keeps their columns those of the type: ALTER TYPE ... CASCADE changes
 * the type, which the workers get as any object, and its tables, which they get as by ALTER TABLE (ddl_table.c).
 *
 * Locks are taken in PostgreSQL's order: the type, then its tables.  A table that becomes one of the type, or ours, beside
 * the command is not changed by it, or not on the workers: then the command fails and can be repeated.
 */
#include "postgres.h"

#include "ddl/ddl.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "cluster/relation_name.h"
#include "stream/remote_ddl.h"
#include "table/columnar_options.h"

/* The composite type of that name, InvalidOid if there is none; its relation is locked. */
static Oid
lock_type(const RangeVar *name)
{
	Oid relation = RangeVarGetRelid(name, NoLock, true);

	/* PostgreSQL says what is wrong with the command, and nobody locks what is not his */
	if (!OidIsValid(relation) || get_rel_relkind(relation) != RELKIND_COMPOSITE_TYPE ||
		!compat_owns_table(relation, GetUserId()))
		return InvalidOid;
	LockRelationOid(relation, AccessExclusiveLock);
	return get_rel_type_id(relation);
}

/* All tables of a type, in the order in which tables are locked. */
static List *
list_typed_tables(Oid type)
{
	Relation catalog = table_open(RelationRelationId, AccessShareLock);
	List *tables = NIL;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;

	ScanKeyInit(&key, Anum_pg_class_reloftype, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(type));
	scan = systable_beginscan(catalog, InvalidOid, false, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		tables = lappend_oid(tables, ((Form_pg_class) GETSTRUCT(tuple))->oid);
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	list_sort(tables, list_oid_cmp);
	return tables;
}

static List *
list_our_typed_tables(Oid type)
{
	List *ours = NIL;
	ListCell *cell;

	foreach(cell, list_typed_tables(type))
	{
		if (metadata_table(lfirst_oid(cell)) != NULL)
			ours = lappend_oid(ours, lfirst_oid(cell));
	}
	return ours;
}

List *
ddl_lock_typed_tables(const RangeVar *type_name)
{
	Oid type;
	ListCell *cell;

	remote_ddl_lock_for_change();
	type = lock_type(type_name);
	if (!OidIsValid(type))
		return NIL;
	foreach(cell, list_typed_tables(type))
		LockRelationOid(lfirst_oid(cell), AccessExclusiveLock);
	return list_our_typed_tables(type);
}

void
ddl_ensure_typed_tables(const RangeVar *type_name, List *before)
{
	Oid relation = RangeVarGetRelid(type_name, NoLock, true);
	ListCell *cell;

	if (!OidIsValid(relation))
		return;
	CommandCounterIncrement();
	foreach(cell, list_our_typed_tables(get_rel_type_id(relation)))
	{
		if (!list_member_oid(before, lfirst_oid(cell)))
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("table \"%s\" has got type \"%s\" or was distributed concurrently",
							get_rel_name(lfirst_oid(cell)), type_name->relname),
					 errhint("Run the command again.")));
	}
}

/* ALTER TYPE ... RENAME ATTRIBUTE */
void
ddl_rename_attribute(UtilityCall *call)
{
	const RenameStmt *rename = castNode(RenameStmt, call->statement->utilityStmt);
	List *tables = ddl_lock_typed_tables(rename->relation);
	ListCell *cell;

	ddl_alter_object(call);
	foreach(cell, tables)
	{
		remote_ddl_send(psprintf(
			"ALTER TABLE %s RENAME COLUMN %s TO %s", relation_name_qualified(lfirst_oid(cell)),
			quote_identifier(rename->subname), quote_identifier(rename->newname)));
		columnar_options_follow(lfirst_oid(cell));
	}
	ddl_ensure_typed_tables(rename->relation, tables);
}
