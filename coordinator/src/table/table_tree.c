/*
 * table_tree.c
 *		Partitioned reference tables, and those that inherit: all members of a tree are reference tables.
 *
 * A tree is made of reference tables alone, and is the same on all nodes.  So the coordinator's tree is
 * changed and read as PostgreSQL does it, each leaf's rows go to the copies of that leaf (reference_write.c), and workers
 * may read the whole tree, or ONLY a table, as the coordinator would.
 *
 * The copies are made in this order: tables, with columns in the coordinator's order; rows; indexes; links to the
 * parents; foreign keys.  Attached, a partition's indexes become parts of the parent's, by what they are, and
 * have had their names before.  Foreign keys come last, because those to a partitioned table would miss rows that are
 * not attached; partitions get theirs with the parent's, and PostgreSQL chooses names, which are corrected.
 *
 * Columns and constraints of a copy that are not the table's own (attislocal, conislocal) are marked as such
 * (strata_worker.mark_inherited): else they would stay when the parent's are dropped.
 */
#include "postgres.h"

#include "table/table_tree.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/indexing.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type_d.h"
#include "nodes/value.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"

#include "cluster/constraint.h"
#include "cluster/metadata.h"
#include "cluster/relation_name.h"
#include "compat.h"
#include "stream/remote_command.h"
#include "stream/remote_ddl.h"
#include "table/owner_guard.h"
#include "table/table_lifecycle.h"
#include "table/foreign_key_rules.h"
#include "table/worker_table_sql.h"
#include "values/row_format.h"

/* ---------------------------------------------------------------- the tree */

/* The tables of which a table is a partition or inherits (Oid), in the order in which it does. */
static List *
find_parents(Oid relation)
{
	Relation catalog = table_open(InheritsRelationId, AccessShareLock);
	List *parents = NIL;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;

	ScanKeyInit(&key, Anum_pg_inherits_inhrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relation));
	scan = systable_beginscan(catalog, InheritsRelidSeqnoIndexId, true, NULL, 1, &key);
	while ((tuple = systable_getnext(scan)) != NULL)
		parents = lappend_oid(parents, ((Form_pg_inherits) GETSTRUCT(tuple))->inhparent);
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return parents;
}

const char *
table_tree_storage(Oid relation)
{
	const char *storage = NULL;
	ListCell *cell;

	foreach(cell, find_parents(relation))
	{
		const DistributedTable *table = metadata_table(lfirst_oid(cell));

		if (table != NULL && table->is_columnar)
			return "columnar";
		if (table != NULL)
			storage = "heap";
	}
	return storage;
}

/* Put a table and what is below it in front of the members that have been found. */
static void
visit(Oid relation, LOCKMODE lock, List **members)
{
	ListCell *cell;

	if (list_member_oid(*members, relation))
		return;
	foreach(cell, find_inheritance_children(relation, lock))
		visit(lfirst_oid(cell), lock, members);
	*members = lcons_oid(relation, *members);
}

List *
table_tree_members(Oid relation, LOCKMODE lock)
{
	List *members = NIL;

	visit(relation, lock, &members);
	return members;
}

Oid
table_tree_parent_outside(Oid relation, const List *members, bool become_local)
{
	ListCell *cell;

	foreach(cell, find_parents(relation))
	{
		Oid parent = lfirst_oid(cell);
		const DistributedTable *table = metadata_table(parent);

		if (!list_member_oid(members, parent) &&
			(become_local || table == NULL || table->kind != TABLE_REFERENCE))
			return parent;
	}
	return InvalidOid;
}

/* ---------------------------------------------------------------- SQL of the links */

char *
table_tree_partition_key(Relation relation)
{
	if (relation->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		return "";
	return psprintf(" PARTITION BY %s",
					TextDatumGetCString(DirectFunctionCall1(
						pg_get_partkeydef, ObjectIdGetDatum(RelationGetRelid(relation)))));
}

/* FOR VALUES ..., or DEFAULT */
static char *
get_bound(Oid partition)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(partition));
	int level = row_format_enter_sql_mode();
	bool isnull;
	Datum bound;
	char *sql;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", partition);
	bound = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_relpartbound, &isnull);
	if (isnull)
		elog(ERROR, "relation %u is not a partition", partition);
	sql = TextDatumGetCString(DirectFunctionCall2(pg_get_expr, bound, ObjectIdGetDatum(partition)));
	ReleaseSysCache(tuple);
	row_format_leave_sql_mode(level);
	return sql;
}

char *
table_tree_attachment(Oid partition, Oid parent, bool detach)
{
	return psprintf("ALTER TABLE %s %s PARTITION %s %s", relation_name_qualified(parent),
					detach ? "DETACH" : "ATTACH", relation_name_qualified(partition),
					detach ? "" : get_bound(partition));
}

static char *
build_links(Oid relation)
{
	List *parents = find_parents(relation);
	StringInfoData sql;
	ListCell *cell;

	if (get_rel_relispartition(relation))
		return table_tree_attachment(relation, linitial_oid(parents), false);
	initStringInfo(&sql);
	foreach(cell, parents)
		appendStringInfo(&sql, "ALTER TABLE %s INHERIT %s;\n", relation_name_qualified(relation),
						 relation_name_qualified(lfirst_oid(cell)));
	return sql.data;
}

/* The columns that are not the table's own. */
static List *
list_inherited_columns(Relation relation)
{
	TupleDesc desc = RelationGetDescr(relation);
	List *names = NIL;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		if (!column->attisdropped && !column->attislocal)
			names = lappend(names, NameStr(column->attname));
	}
	return names;
}

static List *
list_inherited_constraints(Oid relation)
{
	List *names = NIL;
	ListCell *cell;

	foreach(cell, constraint_list(relation))
	{
		Form_pg_constraint constraint = (Form_pg_constraint) GETSTRUCT((HeapTuple) lfirst(cell));

		if ((constraint->contype == CONSTRAINT_CHECK ||
			 AttributeNumberIsValid(compat_not_null_column((HeapTuple) lfirst(cell)))) &&
			!constraint->conislocal)
			names = lappend(names, NameStr(constraint->conname));
	}
	return names;
}

/* Names (char *) as a constant of SQL, an array. */
static char *
quote_names(List *names)
{
	ArrayBuildState *array = initArrayResult(TEXTOID, CurrentMemoryContext, false);
	ListCell *cell;

	foreach(cell, names)
		(void) accumArrayResult(array, CStringGetTextDatum(lfirst(cell)), false, TEXTOID,
								CurrentMemoryContext);
	return quote_literal_cstr(
		OidOutputFunctionCall(F_ARRAY_OUT, makeArrayResult(array, CurrentMemoryContext)));
}

/* A command of its own, with constants: nothing else may call it (worker/src/own_statement.c). */
static void
mark_inherited(const Bitmapset *workers, Relation relation)
{
	List *columns = list_inherited_columns(relation);
	List *constraints = list_inherited_constraints(RelationGetRelid(relation));

	if (columns == NIL && constraints == NIL)
		return;
	remote_command_run(
		workers, REMOTE_WRITE,
		psprintf("SELECT strata_worker.mark_inherited(%s, %s, %s)",
				 quote_literal_cstr(relation_name_qualified(RelationGetRelid(relation))),
				 quote_names(columns), quote_names(constraints)));
}

/* Validating a partition computes what its parent's owner has written, and the indexes that it gets what its own has. */
static bool
begin_guard(const Bitmapset *workers, Relation relation)
{
	ListCell *cell;
	bool guarded = owner_guard_begin(workers, relation);

	foreach(cell, find_parents(RelationGetRelid(relation)))
	{
		Relation parent;

		if (guarded)
			break;
		parent = relation_open(lfirst_oid(cell), AccessShareLock);
		guarded = owner_guard_begin(workers, parent);
		relation_close(parent, NoLock);
	}
	return guarded;
}

void
table_tree_link(const Bitmapset *workers, Oid relation_oid, bool guard)
{
	Relation relation;
	bool guarded;

	if (find_parents(relation_oid) == NIL || bms_is_empty(workers))
		return;
	relation = relation_open(relation_oid, NoLock);
	guarded = guard && begin_guard(workers, relation);
	remote_command_run(workers, REMOTE_WRITE, build_links(relation_oid));
	if (guarded)
		owner_guard_end(workers);
	if (!relation->rd_rel->relispartition)
		mark_inherited(workers, relation);
	relation_close(relation, NoLock);
}

/* ---------------------------------------------------------------- foreign keys */

/* The command that gives a partition's foreign key, which came with its parent's, its own name. */
static char *
build_renaming(Form_pg_constraint constraint, Form_pg_constraint parent)
{
	char *table = relation_name_qualified(constraint->conrelid);
	char *body = psprintf(
		"DECLARE present pg_catalog.name;"
		" BEGIN"
		" SELECT c.conname INTO present FROM pg_catalog.pg_constraint c"
		" JOIN pg_catalog.pg_constraint p ON p.oid = c.conparentid"
		" WHERE c.conrelid = %s::pg_catalog.regclass AND p.conrelid = %s::pg_catalog.regclass"
		" AND p.conname = %s;"
		" IF present <> %s THEN"
		" EXECUTE pg_catalog.format('ALTER TABLE %%s RENAME CONSTRAINT %%I TO %%I', %s, present, "
		"%s);"
		" END IF;"
		" END",
		quote_literal_cstr(table), quote_literal_cstr(relation_name_qualified(parent->conrelid)),
		quote_literal_cstr(NameStr(parent->conname)),
		quote_literal_cstr(NameStr(constraint->conname)), quote_literal_cstr(table),
		quote_literal_cstr(NameStr(constraint->conname)));

	return psprintf("DO %s;\n", quote_literal_cstr(body));
}

char *
table_tree_foreign_key_names(Oid relation)
{
	StringInfoData sql;
	ListCell *cell;

	initStringInfo(&sql);
	foreach(cell, constraint_list(relation))
	{
		Form_pg_constraint constraint = (Form_pg_constraint) GETSTRUCT((HeapTuple) lfirst(cell));
		HeapTuple tuple;
		Form_pg_constraint parent;

		if (constraint->contype != CONSTRAINT_FOREIGN || !OidIsValid(constraint->conparentid))
			continue;
		tuple = constraint_get(constraint->conparentid);
		parent = (Form_pg_constraint) GETSTRUCT(tuple);
		if (parent->conrelid != relation &&
			strcmp(NameStr(parent->conname), NameStr(constraint->conname)) != 0)
			appendStringInfoString(&sql, build_renaming(constraint, parent));
		ReleaseSysCache(tuple);
	}
	return sql.data;
}

void
table_tree_leave_foreign_keys_to_workers(Oid relation)
{
	List *done = NIL;
	ListCell *cell;

	foreach(cell, foreign_key_rules_list(relation))
	{
		Oid referencing = constraint_key_tables(lfirst_oid(cell)).referencing;
		const DistributedTable *table = metadata_table(referencing);

		if (table == NULL || table->kind != TABLE_DISTRIBUTED || list_member_oid(done, referencing))
			continue;
		done = lappend_oid(done, referencing);
		table_lifecycle_enforce_foreign_keys(referencing, false);
	}
}

static bool
is_reference_table(Oid relation)
{
	const DistributedTable *table = metadata_table(relation);

	return table != NULL && table->kind == TABLE_REFERENCE;
}

/* Add the names of a foreign key's tables (char *) if both are reference tables. */
static List *
add_key_tables(List *names, Oid foreign_key)
{
	ForeignKeyTables tables = constraint_key_tables(foreign_key);

	if (!is_reference_table(tables.referencing) || !is_reference_table(tables.referenced))
		return names;
	names = lappend(names, relation_name_qualified(tables.referencing));
	return lappend(names, relation_name_qualified(tables.referenced));
}

/* A command of its own, with a constant, as that of mark_inherited(). */
void
table_tree_trust_constraints(const Bitmapset *workers, const List *members)
{
	List *names = NIL;
	ListCell *cell;
	ListCell *key;

	foreach(cell, members)
	{
		names = lappend(names, relation_name_qualified(lfirst_oid(cell)));
		foreach(key, foreign_key_rules_list(lfirst_oid(cell)))
			names = add_key_tables(names, lfirst_oid(key));
	}
	if (names != NIL && !bms_is_empty(workers))
		remote_command_run(
			workers, REMOTE_WRITE,
			psprintf("SELECT strata_worker.trust_constraints(%s)", quote_names(names)));
}

/* ---------------------------------------------------------------- indexes */

TreeIndexes *
table_tree_indexes(const List *members)
{
	TreeIndexes *indexes = palloc0(sizeof(TreeIndexes));
	ListCell *cell;

	foreach(cell, members)
	{
		Relation relation = relation_open(lfirst_oid(cell), NoLock);

		indexes->oids = list_concat(indexes->oids, RelationGetIndexList(relation));
		relation_close(relation, NoLock);
	}
	foreach(cell, indexes->oids)
		indexes->names = lappend(indexes->names,
								 makeString(relation_name_qualified(lfirst_oid(cell))));
	return indexes;
}

/* The index of a member's that an index is a part of in the end, or itself. */
static Oid
find_whole_index(Oid index, const List *members)
{
	while (get_rel_relispartition(index))
	{
		Oid parent = get_partition_parent(index, false);

		if (!list_member_oid(members, IndexGetRelation(parent, false)))
			break;
		index = parent;
	}
	return index;
}

/* Was an index made anew, or as a part of one that was? */
static bool
is_rebuilt(Oid index, const List *members, const TreeIndexes *before)
{
	return list_member(before->names,
					   makeString(relation_name_qualified(find_whole_index(index, members))));
}

/* An index that another session has made meanwhile is sent by that one. */
static bool
is_made_here(Oid index)
{
	HeapTuple tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
	bool made = TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data));

	ReleaseSysCache(tuple);
	return made;
}

/*
 * The relation's indexes that were not there and that this transaction has made; without `replaced` one made
 * anew under its name counts as the old one.
 */
static List *
list_new_indexes(Relation relation, const List *members, const TreeIndexes *before, bool replaced)
{
	List *added = NIL;
	ListCell *cell;

	foreach(cell, RelationGetIndexList(relation))
	{
		Oid index = lfirst_oid(cell);

		if (!list_member_oid(before->oids, index) && is_made_here(index) &&
			(replaced || !is_rebuilt(index, members, before)))
			added = lappend_oid(added, index);
	}
	return added;
}

char *
table_tree_index_names(const List *members)
{
	StringInfoData parts;
	ListCell *cell;

	initStringInfo(&parts);
	foreach(cell, table_tree_indexes(members)->oids)
	{
		Oid index = lfirst_oid(cell);

		if (get_rel_relispartition(index))
			appendStringInfo(
				&parts, "%s(%s, %s, %s)", parts.len > 0 ? ", " : "",
				quote_literal_cstr(relation_name_qualified(get_partition_parent(index, false))),
				quote_literal_cstr(relation_name_qualified(IndexGetRelation(index, false))),
				quote_literal_cstr(relation_name(index)));
	}
	if (parts.len == 0)
		return "";
	return psprintf(
		"DO %s;\n",
		quote_literal_cstr(psprintf(
			"DECLARE part record;"
			" BEGIN"
			" FOR part IN SELECT i.indexrelid::pg_catalog.regclass AS index, v.name"
			" FROM (VALUES %s) AS v (parent, relation, name)"
			" JOIN pg_catalog.pg_inherits h ON h.inhparent = v.parent::pg_catalog.regclass"
			" JOIN pg_catalog.pg_index i ON i.indexrelid = h.inhrelid"
			" AND i.indrelid = v.relation::pg_catalog.regclass"
			" JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid AND c.relname <> v.name LOOP"
			" EXECUTE pg_catalog.format('ALTER INDEX %%s RENAME TO %%I', part.index, part.name);"
			" END LOOP;"
			" END",
			parts.data)));
}

void
table_tree_check_part(Oid index)
{
	if (get_rel_relkind(index) == RELKIND_INDEX && !get_index_isvalid(index))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot attach invalid index \"%s\"", get_rel_name(index)),
						errdetail("The workers may lack it."),
						errhint("Build it by REINDEX INDEX, or drop it.")));
}

/* Parts of an index of a partitioned table get attached, as its owner, whether they are new or were there. */
static void
append_attachments(StringInfo sql, Oid index)
{
	ListCell *cell;

	if (get_rel_relkind(index) != RELKIND_PARTITIONED_INDEX)
		return;
	foreach(cell, find_inheritance_children(index, NoLock))
	{
		table_tree_check_part(lfirst_oid(cell));
		appendStringInfo(sql, "SELECT strata_worker.attach_index(%s, %s);\n",
						 quote_literal_cstr(relation_name_qualified(index)),
						 quote_literal_cstr(relation_name_qualified(lfirst_oid(cell))));
	}
}

void
table_tree_send_new_indexes(const List *members, const TreeIndexes *before, bool replaced)
{
	List *added = NIL;
	StringInfoData sql;
	int level = row_format_enter_sql_mode();
	ListCell *cell;

	initStringInfo(&sql);

	/* children first: a primary key wants theirs to be NOT NULL */
	for (int i = list_length(members) - 1; i >= 0; i--)
	{
		Relation relation = relation_open(list_nth_oid(members, i), NoLock);
		List *indexes = list_new_indexes(relation, members, before, replaced);

		foreach(cell, indexes)
			appendStringInfoString(&sql, worker_table_sql_index(relation, lfirst_oid(cell)));
		added = list_concat(added, indexes);
		relation_close(relation, NoLock);
	}
	foreach(cell, added)
		append_attachments(&sql, lfirst_oid(cell));
	row_format_leave_sql_mode(level);
	if (sql.len > 0)
		remote_ddl_send(sql.data);
}
