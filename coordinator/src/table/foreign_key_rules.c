/*
 * foreign_key_rules.c
 *		Who can enforce a foreign key: the workers, the coordinator (cluster/fired_trigger.c), or nobody.
 *
 * All of it looks at the coordinator's catalogs and metadata alone; the caller's locks on the tables keep the answer true.
 */
#include "postgres.h"

#include "table/foreign_key_rules.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "compat.h"
#include "cluster/fired_trigger.h"
#include "cluster/constraint.h"
#include "cluster/metadata.h"

List *
foreign_key_rules_list(Oid relation)
{
	/* pg_constraint has no index on confrelid */
	Relation catalog = table_open(ConstraintRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(catalog, InvalidOid, false, NULL, 0, NULL);
	List *constraints = NIL;
	HeapTuple tuple;

	while ((tuple = systable_getnext(scan)) != NULL)
	{
		Form_pg_constraint constraint = (Form_pg_constraint) GETSTRUCT(tuple);

		if (constraint->contype == CONSTRAINT_FOREIGN &&
			(constraint->conrelid == relation || constraint->confrelid == relation))
			constraints = lappend_oid(constraints, constraint->oid);
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return constraints;
}

List *
foreign_key_rules_list_set_columns(HeapTuple constraint, char action)
{
	Form_pg_constraint form = (Form_pg_constraint) GETSTRUCT(constraint);
	ForeignKeyColumns columns = constraint_key_columns(constraint);
	List *attributes = NIL;
	bool on_delete = form->confdeltype == action;
	bool all = form->confupdtype == action || (on_delete && columns.set_count == 0);

	for (int i = 0; on_delete && i < columns.set_count; i++)
		attributes = lappend_int(attributes, columns.set[i]);
	for (int i = 0; all && i < columns.count; i++)
		attributes = list_append_unique_int(attributes, columns.referencing[i]);
	return attributes;
}

/* Do the foreign key's actions give the distribution key of its table another value? */
static bool
sets_key(HeapTuple constraint, const DistributedTable *child)
{
	return list_member_int(foreign_key_rules_list_set_columns(constraint, FKCONSTR_ACTION_SETNULL),
						   child->key_attribute) ||
		   list_member_int(
			   foreign_key_rules_list_set_columns(constraint, FKCONSTR_ACTION_SETDEFAULT),
			   child->key_attribute);
}

bool
foreign_key_rules_on_workers(Oid relation)
{
	ListCell *cell;

	foreach(cell, foreign_key_rules_list(relation))
	{
		if (metadata_table(constraint_key_tables(lfirst_oid(cell)).referencing) != NULL)
			return true;
	}
	return false;
}

bool
foreign_key_rules_point_on_workers(Oid relation)
{
	ListCell *cell;

	foreach(cell, foreign_key_rules_list(relation))
	{
		ForeignKeyTables tables = constraint_key_tables(lfirst_oid(cell));

		if (tables.referenced == relation && metadata_table(tables.referencing) != NULL)
			return true;
	}
	return false;
}

/* Does the foreign key compare one table's key column with the other's? */
static bool
is_key_paired(HeapTuple constraint, AttrNumber referencing_key, AttrNumber referenced_key)
{
	ForeignKeyColumns columns = constraint_key_columns(constraint);

	for (int i = 0; i < columns.count; i++)
	{
		if (columns.referencing[i] == referencing_key && columns.referenced[i] == referenced_key)
			return true;
	}
	return false;
}

/* Does it refer to a distribution key and nothing else?  An UPDATE of that is refused, for its sake (key_change.c). */
static bool
refers_to_key_alone(Form_pg_constraint form)
{
	const DistributedTable *parent = metadata_table(form->confrelid);
	ForeignKeyColumns columns;
	HeapTuple tuple;

	if (parent == NULL || parent->kind != TABLE_DISTRIBUTED)
		return false;
	tuple = constraint_get(form->oid);
	columns = constraint_key_columns(tuple);
	ReleaseSysCache(tuple);
	return columns.count == 1 && columns.referenced[0] == parent->key_attribute;
}

/* Events of triggers (TRIGGER_TYPE_...) that a foreign key's actions are for the referencing table. */
static int16
get_action_events(Form_pg_constraint form)
{
	int16 events = 0;

	if (form->confdeltype == FKCONSTR_ACTION_CASCADE)
		events |= TRIGGER_TYPE_DELETE;
	else if (form->confdeltype == FKCONSTR_ACTION_SETNULL ||
			 form->confdeltype == FKCONSTR_ACTION_SETDEFAULT)
		events |= TRIGGER_TYPE_UPDATE;
	if (form->confupdtype != FKCONSTR_ACTION_NOACTION &&
		form->confupdtype != FKCONSTR_ACTION_RESTRICT && !refers_to_key_alone(form))
		events |= TRIGGER_TYPE_UPDATE;
	return events;
}

/*
 * The coordinator enforces a local table's foreign key, with locks of rows on the workers.  It must see whatever happens to the
 * referenced rows; the same result.
 */
static const char *
find_local_key_fault(Form_pg_constraint form, const DistributedTable *parent, const char **hint)
{
	ListCell *cell;

	if (parent->periods.retention[0] != '\0')
	{
		*hint = "Drop the constraint, or create the table without retention.";
		return psprintf("Rows of table \"%s\" expire.", get_rel_name(form->confrelid));
	}
	foreach(cell, foreign_key_rules_list(form->confrelid))
	{
		HeapTuple tuple = constraint_get(lfirst_oid(cell));
		Form_pg_constraint other = (Form_pg_constraint) GETSTRUCT(tuple);
		bool acts = other->conrelid == form->confrelid && get_action_events(other) != 0;
		char *name = pstrdup(NameStr(other->conname));

		ReleaseSysCache(tuple);
		if (acts)
		{
			*hint = "Use NO ACTION or RESTRICT there.";
			return psprintf("The workers run the ON DELETE and ON UPDATE actions of foreign key "
							"\"%s\" of table \"%s\", and the coordinator does not see what "
							"they change.",
							name, get_rel_name(form->confrelid));
		}
	}
	return NULL;
}

/*
 * Why a foreign key from `child` to `parent` (NULL: a local table) cannot be enforced, and what to do; NULL when it
 * can: the referenced row is on every node that has a referencing row, or the coordinator enforces it (fired_trigger.c).
 */
static const char *
find_foreign_key_fault(HeapTuple constraint, const DistributedTable *child,
					   const DistributedTable *parent, const char **hint)
{
	Form_pg_constraint form = (Form_pg_constraint) GETSTRUCT(constraint);
	const char *target = get_rel_name(form->confrelid);
	const char *colocate_with = quote_literal_cstr(quote_identifier(target));

	if (child != NULL && child->kind == TABLE_DISTRIBUTED && sets_key(constraint, child))
	{
		*hint = "Use another action, or ON DELETE SET NULL (columns) without the distribution key.";
		return psprintf("Its actions would set the distribution key \"%s\", and the row would "
						"have to move to another worker.",
						get_attname(form->conrelid, child->key_attribute, false));
	}
	if (parent != NULL ? parent->kind == TABLE_REFERENCE : child == NULL)
		return NULL;
	if (child == NULL)
		return find_local_key_fault(form, parent, hint);
	if (child->kind == TABLE_REFERENCE)
	{
		*hint = psprintf("Make \"%s\" a reference table first, or drop the constraint.", target);
		return psprintf("A reference table can only refer to reference tables, and \"%s\" is %s.",
						target, parent == NULL ? "local" : "distributed");
	}
	if (parent == NULL)
	{
		*hint = psprintf("Make \"%s\" a reference table with strata.create_reference_table(), or "
						 "distribute it by the referenced column first.",
						 target);
		return psprintf("Table \"%s\" is local, and the workers do not have it.", target);
	}
	if (child->colocation->id == parent->colocation->id &&
		is_key_paired(constraint, child->key_attribute, parent->key_attribute))
		return NULL;
	*hint = psprintf(
		"Distribute both tables by columns of the constraint, with colocate_with => %s, "
		"or make \"%s\" a reference table.",
		colocate_with, target);
	return "It leads to other workers: it must contain the distribution keys of both tables, at "
		   "the same position, and the tables must be colocated.";
}

/*
 * Rows that a foreign key's action changes are changed by the workers, where neither triggers of users exist nor foreign keys
 * of local tables.  Why that would leave one out, and what to do; NULL if it would not.
 */
static const char *
find_unfired_trigger(HeapTuple constraint, const DistributedTable *child, const char **hint)
{
	Form_pg_constraint form = (Form_pg_constraint) GETSTRUCT(constraint);
	int16 events = get_action_events(form);
	const char *trigger;
	ListCell *cell;

	if (child == NULL || child->kind != TABLE_DISTRIBUTED || events == 0)
		return NULL;
	foreach(cell, foreign_key_rules_list(form->conrelid))
	{
		HeapTuple tuple = constraint_get(lfirst_oid(cell));
		Form_pg_constraint other = (Form_pg_constraint) GETSTRUCT(tuple);
		bool is_local = metadata_table(other->conrelid) == NULL;
		char *name = pstrdup(NameStr(other->conname));
		Oid referencing = other->conrelid;

		ReleaseSysCache(tuple);
		if (is_local)
		{
			*hint = "Use NO ACTION or RESTRICT, or drop that foreign key.";
			return psprintf("Its ON DELETE and ON UPDATE actions run on the workers, unseen by "
							"foreign key \"%s\" of local table \"%s\".",
							name, get_rel_name(referencing));
		}
	}
	*hint = "Use NO ACTION or RESTRICT, or drop the trigger.";
	trigger = fired_trigger_find(form->conrelid, events, NULL, true);
	return trigger == NULL
			   ? NULL
			   : psprintf("Its ON DELETE and ON UPDATE actions run on the workers, where trigger "
						  "\"%s\" of table \"%s\" is not fired.",
						  trigger, get_rel_name(form->conrelid));
}

void
foreign_key_rules_check(Oid constraint)
{
	HeapTuple tuple = constraint_get(constraint);
	Form_pg_constraint form = (Form_pg_constraint) GETSTRUCT(tuple);
	const char *hint;
	const char *fault = form->contype != CONSTRAINT_FOREIGN
							? NULL
							: find_foreign_key_fault(tuple, metadata_table(form->conrelid),
													 metadata_table(form->confrelid), &hint);

	if (fault == NULL && form->contype == CONSTRAINT_FOREIGN)
		fault = find_unfired_trigger(tuple, metadata_table(form->conrelid), &hint);
	if (fault != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("foreign key \"%s\" from table \"%s\" to table \"%s\" cannot be enforced",
						NameStr(form->conname), get_rel_name(form->conrelid),
						get_rel_name(form->confrelid)),
				 errdetail("%s", fault), errhint("%s", hint)));
	ReleaseSysCache(tuple);
}

void
foreign_key_rules_check_triggers(Oid relation)
{
	ListCell *cell;

	foreach(cell, foreign_key_rules_list(relation))
		foreign_key_rules_check(lfirst_oid(cell));
}

void
foreign_key_rules_check_all(Relation relation)
{
	ListCell *cell;

	foreach(cell, foreign_key_rules_list(RelationGetRelid(relation)))
	{
		HeapTuple tuple = constraint_get(lfirst_oid(cell));
		Form_pg_constraint form = (Form_pg_constraint) GETSTRUCT(tuple);

		/* one that is not enforced never is validated, and no rows are checked against it */
		if (form->conrelid == RelationGetRelid(relation) && !form->convalidated &&
			compat_constraint_is_enforced(form))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("foreign key \"%s\" is not validated", NameStr(form->conname)),
					 errhint("Run ALTER TABLE ... VALIDATE CONSTRAINT, or drop the constraint.")));
		ReleaseSysCache(tuple);
		foreign_key_rules_check(lfirst_oid(cell));
	}
}

/* NULL for a local table, and for those that become local. */
static const DistributedTable *
table_without(Oid relation, const List *local)
{
	return list_member_oid(local, relation) ? NULL : metadata_table(relation);
}

void
foreign_key_rules_check_undistribute(Relation relation, const List *members)
{
	Oid relid = RelationGetRelid(relation);
	ListCell *cell;

	foreach(cell, foreign_key_rules_list(relid))
	{
		HeapTuple tuple = constraint_get(lfirst_oid(cell));
		Form_pg_constraint form = (Form_pg_constraint) GETSTRUCT(tuple);
		const char *hint;

		if (find_foreign_key_fault(tuple, table_without(form->conrelid, members),
								   table_without(form->confrelid, members), &hint) != NULL)
			ereport(
				ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" cannot become local", RelationGetRelationName(relation)),
				 errdetail("Foreign key \"%s\" of table \"%s\" points to table \"%s\", and both "
						   "are on the workers.",
						   NameStr(form->conname), get_rel_name(form->conrelid),
						   get_rel_name(form->confrelid)),
				 errhint("Drop the constraint first.")));
		ReleaseSysCache(tuple);
	}
}
