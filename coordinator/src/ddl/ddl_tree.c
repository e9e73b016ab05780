/*
 * ddl_tree.c
 *		ALTER TABLE that makes tables parents and children: ATTACH and DETACH PARTITION, INHERIT.
 *
 * All tables of a tree are reference tables, or none is.  A local table that comes below a reference table becomes one
 * with all that is below it; what leaves a tree stays one.  Other mixtures are refused.
 *
 * DETACH PARTITION ... CONCURRENTLY is PostgreSQL's here, in two transactions.  The workers detach in the second one, as
 * without CONCURRENTLY: they show no half detached partition, and until then queries of the tree do not read their copies
 * (plan_scan.c).  Should one be down, the partition stays half detached here, and FINALIZE does the rest on all nodes.
 */
#include "postgres.h"

#include "ddl/ddl.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "commands/tablecmds.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "cluster/constraint.h"
#include "cluster/relation_name.h"
#include "stream/remote_ddl.h"
#include "table/table_lifecycle.h"
#include "table/table_tree.h"
#include "table/worker_table_sql.h"
#include "values/row_format.h"

/* ---------------------------------------------------------------- mixtures */

static TableKind
get_kind(Oid relid)
{
	const DistributedTable *table = OidIsValid(relid) ? metadata_table(relid) : NULL;

	return table == NULL ? TABLE_LOCAL : table->kind;
}

static const char *
describe_kind(Oid relid)
{
	TableKind kind = get_kind(relid);

	return kind == TABLE_LOCAL		 ? "local"
		   : kind == TABLE_REFERENCE ? "a reference table"
									 : "distributed";
}

static void
refuse_mixture(Oid child, Oid parent, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("table \"%s\" cannot be below table \"%s\"", get_rel_name(child),
					get_rel_name(parent)),
			 errdetail("Table \"%s\" is %s, and \"%s\" is %s: their rows are on different nodes.",
					   get_rel_name(child), describe_kind(child), get_rel_name(parent),
					   describe_kind(parent)),
			 errhint("%s", hint)));
}

/* ERROR if the two cannot be in one tree, nor come into one by making the child a reference table. */
static void
check_mixture(Oid child, Oid parent)
{
	TableKind above = get_kind(parent);
	TableKind below = get_kind(child);

	if (above == below && above != TABLE_DISTRIBUTED)
		return;
	if (above == TABLE_REFERENCE && get_rel_relkind(child) == RELKIND_FOREIGN_TABLE)
		refuse_mixture(child, parent, "Foreign tables are on the coordinator only.");
	if (above == TABLE_LOCAL && below == TABLE_REFERENCE)
		refuse_mixture(child, parent, "Make the other one a reference table first.");
	if (above == TABLE_DISTRIBUTED || below == TABLE_DISTRIBUTED)
		refuse_mixture(child, parent,
					   "Distributed tables have neither parents nor children; undistribute_table() "
					   "makes one local.");
}

/* ---------------------------------------------------------------- into a tree */

/* A local table has come below a reference table. */
static void
replicate_child(Oid child)
{
	List *dependents = ddl_note_tree_dependents(child);

	table_lifecycle_replicate(child, table_tree_storage(child));
	ddl_bring_dependents(child, dependents);
}

/* What the reference tables that have come below another one get by it. */
static void
follow_attachment(Oid child, List *members, TreeIndexes *indexes)
{
	ListCell *cell;

	table_tree_send_new_indexes(members, indexes, true);
	remote_ddl_note_change();
	table_tree_link(metadata_all_workers(), child, true);
	foreach(cell, members)
	{
		char *sql = table_tree_foreign_key_names(lfirst_oid(cell));

		if (sql[0] != '\0')
			remote_ddl_send(sql);
		table_tree_leave_foreign_keys_to_workers(lfirst_oid(cell));
	}
	table_tree_trust_constraints(metadata_all_workers(), members);
}

static void
attach(UtilityCall *call, const AlterTableStmt *alter, const PartitionCmd *command)
{
	Oid parent = AlterTableLookupRelation(unconstify(AlterTableStmt *, alter),
										  AlterTableGetLockLevel(alter->cmds));
	Oid child = RangeVarGetRelidExtended(command->name, AccessExclusiveLock, 0,
										 RangeVarCallbackOwnsRelation, NULL);
	TableKind kind = get_kind(child);
	List *members;
	TreeIndexes *indexes;

	ddl_ensure_unchanged(parent, TABLE_REFERENCE);
	check_mixture(child, parent);
	if (kind == TABLE_LOCAL)
	{
		ddl_run_locally(call);
		replicate_child(child);
		return;
	}
	members = table_tree_members(child, AccessExclusiveLock);
	indexes = table_tree_indexes(members);
	ddl_run_locally(call);
	follow_attachment(child, members, indexes);
}

/* ---------------------------------------------------------------- out of a tree */

/* CHECK constraints of a table as commands for workers that lack them: CONCURRENTLY has made one. */
static char *
build_missing_checks(Oid relid)
{
	char *table = relation_name_qualified(relid);
	int level = row_format_enter_sql_mode();
	StringInfoData body;
	ListCell *cell;

	initStringInfo(&body);
	appendStringInfoString(&body, "BEGIN");
	foreach(cell, constraint_list(relid))
	{
		Form_pg_constraint form = (Form_pg_constraint) GETSTRUCT((HeapTuple) lfirst(cell));

		if (form->contype != CONSTRAINT_CHECK)
			continue;
		appendStringInfo(&body,
						 " IF NOT EXISTS (SELECT FROM pg_catalog.pg_constraint WHERE conrelid = "
						 "%s::pg_catalog.regclass AND conname = %s) THEN ALTER TABLE %s ADD "
						 "CONSTRAINT %s %s; END IF;",
						 quote_literal_cstr(table), quote_literal_cstr(NameStr(form->conname)),
						 table, quote_identifier(NameStr(form->conname)),
						 TextDatumGetCString(DirectFunctionCall1(pg_get_constraintdef,
																 ObjectIdGetDatum(form->oid))));
	}
	row_format_leave_sql_mode(level);
	appendStringInfoString(&body, " END");
	return psprintf("DO %s", quote_literal_cstr(body.data));
}

static void
detach(UtilityCall *call, Oid parent, const PartitionCmd *command, bool finalize)
{
	Oid child = RangeVarGetRelid(command->name, NoLock, true);
	bool replicated = get_kind(child) == TABLE_REFERENCE;
	bool in_steps = command->concurrent || finalize;

	if (!in_steps)
		remote_ddl_lock_for_change();
	ddl_run_locally(call);
	if (!replicated)
		return;
	remote_ddl_send(table_tree_attachment(child, parent, true));
	if (in_steps)
		remote_ddl_send(build_missing_checks(child));
	table_tree_trust_constraints(metadata_all_workers(), table_tree_members(child, NoLock));
}

/* ---------------------------------------------------------------- ALTER TABLE */

/* The parents that the command gives a table, all of them allowed; *reference: is one of them a reference table? */
static bool
check_new_parents(const AlterTableStmt *alter, Oid relid, bool *reference)
{
	bool found = false;
	ListCell *cell;

	*reference = false;
	foreach(cell, alter->cmds)
	{
		const AlterTableCmd *part = lfirst_node(AlterTableCmd, cell);
		Oid parent;

		if (part->subtype != AT_AddInherit)
			continue;
		parent = RangeVarGetRelid(castNode(RangeVar, part->def), NoLock, true);
		if (!OidIsValid(parent))
			continue;
		check_mixture(relid, parent);
		found = true;
		*reference |= get_kind(parent) == TABLE_REFERENCE;
	}
	return found;
}

static bool
alter_partitions(UtilityCall *call, const AlterTableStmt *alter, Oid relid)
{
	const AlterTableCmd *part = linitial_node(AlterTableCmd, alter->cmds);
	const PartitionCmd *command;
	Oid child;

	if (part->subtype != AT_AttachPartition && part->subtype != AT_DetachPartition &&
		part->subtype != AT_DetachPartitionFinalize)
		return false;
	if (get_rel_relkind(relid) == RELKIND_RELATION)
	{
		ddl_run_locally(call); /* core says what is wrong */
		return true;
	}
	if (get_rel_relkind(relid) != RELKIND_PARTITIONED_TABLE)
		return false;
	command = castNode(PartitionCmd, part->def);
	child = RangeVarGetRelid(command->name, NoLock, true);
	if (part->subtype == AT_AttachPartition && OidIsValid(child))
		check_mixture(child, relid);
	if (get_kind(relid) != TABLE_REFERENCE)
		return false;
	if (part->subtype != AT_AttachPartition)
		detach(call, relid, command, part->subtype == AT_DetachPartitionFinalize);
	else
	{
		remote_ddl_lock_for_change();
		attach(call, alter, command);
	}
	return true;
}

bool
ddl_alter_tree(UtilityCall *call, Oid relid)
{
	const AlterTableStmt *alter = castNode(AlterTableStmt, call->statement->utilityStmt);
	bool reference;

	if (!OidIsValid(relid) ||
		(alter->objtype != OBJECT_TABLE && alter->objtype != OBJECT_FOREIGN_TABLE))
		return false;
	if (alter_partitions(call, alter, relid))
		return true;
	if (!check_new_parents(alter, relid, &reference) || !reference ||
		get_kind(relid) != TABLE_LOCAL)
		return false;
	remote_ddl_lock_for_change();
	ddl_run_locally(call);
	ddl_ensure_unchanged(relid, TABLE_LOCAL);
	replicate_child(relid);
	return true;
}
