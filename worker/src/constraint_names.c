/*
 * constraint_names.c
 *		Names that PostgreSQL has made up for shards' parts of constraints are nobody's concern.
 *
 * Duplicate keys and missing ones are reported with the name of the table's constraint, not of the shard's.
 *
 * A unique index of a sharded table has a part for each shard, and a foreign key one for each shard on either side, with
 * names that PostgreSQL has made up.  The coordinator can often tell the constraint by the columns that the error's detail
 * shows, but there may be two of the same columns, and there is no detail for a user who is granted nothing here.
 *
 * The hook is called when the error is written to the log, before it is sent, and before the transaction is aborted:
 * whoever reports such a key has let go of pages and locks before (it looks up a detail just there), so that
 * catalogs can be read.  What is not found stays as it was.
 *
 * Parts of a foreign key, one for each shard that it points to, are constraints of the table itself.  The coordinator's table has
 * none, so that its next constraint may have such a name: the part gets another one, before the command runs.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "commands/tablecmds.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "caller.h"
#include "session_mark.h"

static emit_log_hook_type previous_emit_log = NULL;

/* The name of the partitioned table's index that an index is a part of, or NULL. */
static char *
find_whole_index(Oid namespace, const char *index)
{
	Oid part = get_relname_relid(index, namespace);

	if (!OidIsValid(part) || get_rel_relkind(part) != RELKIND_INDEX ||
		!get_rel_relispartition(part))
		return NULL;
	return get_rel_name(llast_oid(get_partition_ancestors(part)));
}

/* InvalidOid if the constraint is no part of another one. */
static Oid
get_parent_constraint(Oid constraint)
{
	HeapTuple tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));
	Oid parent;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	parent = ((Form_pg_constraint) GETSTRUCT(tuple))->conparentid;
	ReleaseSysCache(tuple);
	return parent;
}

/* The name of the foreign key that a table's constraint is a part of, or NULL. */
static char *
find_whole_foreign_key(Oid namespace, const char *table, const char *constraint)
{
	Oid relation = get_relname_relid(table, namespace);
	Oid part = OidIsValid(relation) ? get_relation_constraint_oid(relation, constraint, true)
									: InvalidOid;
	Oid whole = InvalidOid;

	for (Oid parent = get_parent_constraint(part); OidIsValid(parent);
		 parent = get_parent_constraint(parent))
		whole = parent;
	return OidIsValid(whole) ? get_constraint_name(whole) : NULL;
}

/* The text with one quoted name in place of another. */
static char *
replace_name(const char *text, const char *old, const char *new)
{
	char *quoted = psprintf("\"%s\"", old);
	const char *found = strstr(text, quoted);

	if (found == NULL)
		return pstrdup(text);
	return psprintf("%.*s\"%s\"%s", (int) (found - text), text, new, found + strlen(quoted));
}

static void
name_whole_constraint(ErrorData *error)
{
	MemoryContext old = MemoryContextSwitchTo(error->assoc_context);
	Oid namespace = get_namespace_oid(error->schema_name, true);
	char *name = NULL;

	if (OidIsValid(namespace))
		name = error->sqlerrcode == ERRCODE_UNIQUE_VIOLATION
				   ? find_whole_index(namespace, error->constraint_name)
				   : find_whole_foreign_key(namespace, error->table_name, error->constraint_name);
	if (name != NULL)
	{
		error->message = replace_name(error->message, error->constraint_name, name);
		error->constraint_name = name;
	}
	MemoryContextSwitchTo(old);
}

/* A restrict violation is one of a foreign key, since PostgreSQL 18. */
static bool
is_of_key(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_UNIQUE_VIOLATION ||
		   error->sqlerrcode == ERRCODE_FOREIGN_KEY_VIOLATION ||
		   error->sqlerrcode == ERRCODE_RESTRICT_VIOLATION;
}

static void
emit_log(ErrorData *error)
{
	if (error->elevel == ERROR && is_of_key(error) && error->message != NULL &&
		error->schema_name != NULL && error->table_name != NULL && error->constraint_name != NULL &&
		IsTransactionState() && session_is_marked())
		name_whole_constraint(error);
	if (previous_emit_log)
		previous_emit_log(error);
}

/* The table may get a constraint of this name: no part of a foreign key of its own has it afterwards. */
static void
free_name(Oid relation, const char *name)
{
	Oid part = get_relation_constraint_oid(relation, name, true);
	Oid parent = get_parent_constraint(part);

	if (!OidIsValid(parent) ||
		get_relation_constraint_oid(relation, get_constraint_name(parent), true) != parent)
		return;
	RenameConstraintById(
		part, ChooseConstraintName(name, NULL, "part", get_rel_namespace(relation), NIL));
	CommandCounterIncrement();
}

static void
free_added_names(AlterTableStmt *alter)
{
	Oid relation = InvalidOid;
	ListCell *cell;

	foreach(cell, alter->cmds)
	{
		const AlterTableCmd *command = lfirst_node(AlterTableCmd, cell);
		const char *name = command->subtype == AT_AddConstraint
							   ? castNode(Constraint, command->def)->conname
							   : NULL;

		if (name == NULL)
			continue;
		if (!OidIsValid(relation))
			relation = AlterTableLookupRelation(alter, AlterTableGetLockLevel(alter->cmds));
		if (OidIsValid(relation))
			free_name(relation, name);
	}
}

static void
free_new_name(const RenameStmt *rename)
{
	Oid relation = RangeVarGetRelidExtended(rename->relation, AccessExclusiveLock,
											rename->missing_ok ? RVR_MISSING_OK : 0,
											RangeVarCallbackOwnsRelation, NULL);

	if (OidIsValid(relation))
		free_name(relation, rename->newname);
}

void
constraint_names_free(Node *command)
{
	if (IsA(command, AlterTableStmt))
		free_added_names((AlterTableStmt *) command);
	else if (IsA(command, RenameStmt) &&
			 ((RenameStmt *) command)->renameType == OBJECT_TABCONSTRAINT)
		free_new_name((RenameStmt *) command);
}

void
constraint_names_initialize(void)
{
	previous_emit_log = emit_log_hook;
	emit_log_hook = emit_log;
}
