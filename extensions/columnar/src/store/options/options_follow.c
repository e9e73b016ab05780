/*
 * options_follow.c
 *		Labels that follow ALTER TABLE: see options_follow.h.
 *
 * A label with the name of a column that is gone could be read, but a dump of it
 * not restored: the check of labels refuses it.  So a renamed column gets its new
 * name in the label, a dropped one leaves it, and a table that is no columnar
 * table any more loses its label.
 *
 * The object access hook runs after the catalog was changed and before the change
 * is visible to this command: the syscache has the old row, SnapshotSelf the new.
 *
 * What it cannot see: partitioned tables changed in a session that has not loaded
 * the library.  Reading labels is tolerant for their sake (options.c).
 */
#include "store/options/options_follow.h"

#include "compat.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "commands/seclabel.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "store/options/options_label.h"

static object_access_hook_type previous_hook = NULL;

/* The name that a column has now, this command's change included; NULL if it is gone. */
static char *
read_new_column_name(Oid relid, AttrNumber attribute)
{
	Relation catalog = table_open(AttributeRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple tuple;
	char *name = NULL;

	ScanKeyInit(&keys[0], Anum_pg_attribute_attrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	ScanKeyInit(&keys[1], Anum_pg_attribute_attnum, BTEqualStrategyNumber, F_INT2EQ,
				Int16GetDatum(attribute));
	scan = systable_beginscan(catalog, AttributeRelidNumIndexId, true, SnapshotSelf, 2, keys);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple) && !((Form_pg_attribute) GETSTRUCT(tuple))->attisdropped)
		name = pstrdup(NameStr(((Form_pg_attribute) GETSTRUCT(tuple))->attname));
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return name;
}

/* Can the relation as it is now, this command's change included, have options? */
static bool
can_have_options(Oid relid)
{
	Relation catalog = table_open(RelationRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;
	bool result = false;

	ScanKeyInit(&key, Anum_pg_class_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(catalog, ClassOidIndexId, true, SnapshotSelf, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_class form = (Form_pg_class) GETSTRUCT(tuple);
		char *am = OidIsValid(form->relam) ? get_am_name(form->relam) : NULL;

		result = form->relkind == RELKIND_PARTITIONED_TABLE ||
				 (am != NULL && strcmp(am, "columnar") == 0);
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return result;
}

/* Renames a column in the label, or removes it if `new` is NULL; did the label change? */
static bool
replace_column(OptionsLabel *label, const char *old, char *new)
{
	bool changed = false;
	ListCell *cell;

	foreach(cell, label->order)
	{
		LabelOrder *order = lfirst(cell);

		if (strcmp(order->column, old) != 0)
			continue;
		changed = true;
		if (new != NULL)
			order->column = new;
		else
			label->order = foreach_delete_current(label->order, cell);
	}
	foreach(cell, label->bloom)
	{
		if (strcmp(lfirst(cell), old) != 0)
			continue;
		changed = true;
		if (new != NULL)
			lfirst(cell) = new;
		else
			label->bloom = foreach_delete_current(label->bloom, cell);
	}
	return changed;
}

/* A column is about to be dropped, or was changed. */
static void
follow_column(const ObjectAddress *table, AttrNumber attribute, bool is_dropped)
{
	char *text = GetSecurityLabel(table, OPTIONS_PROVIDER);
	OptionsLabel label;
	char *old;
	char *new;

	if (text == NULL)
		return;
	old = get_attname(table->objectId, attribute, true);
	new = is_dropped ? NULL : read_new_column_name(table->objectId, attribute);
	if (old == NULL || (new != NULL &&strcmp(old, new) == 0))
		return;
	options_label_parse(text, &label);
	if (replace_column(&label, old, new))
		SetSecurityLabel(table, OPTIONS_PROVIDER, options_label_format(&label));
}

/* The table was changed, maybe converted. */
static void
follow_table(const ObjectAddress *table)
{
	if (GetSecurityLabel(table, OPTIONS_PROVIDER) != NULL && !can_have_options(table->objectId))
		SetSecurityLabel(table, OPTIONS_PROVIDER, NULL);
}

/* All of these changes send a relcache invalidation of the table, so options.c need not be told. */
static void
follow_change(ObjectAccessType access, Oid class, Oid object, int part, void *argument)
{
	ObjectAddress table;

	if (previous_hook != NULL)
		previous_hook(access, class, object, part, argument);
	if (class != RelationRelationId)
		return;
	ObjectAddressSet(table, RelationRelationId, object);
	if (part > 0 && (access == OAT_POST_ALTER || access == OAT_DROP))
		follow_column(&table, (AttrNumber) part, access == OAT_DROP);
	else if (part == 0 && access == OAT_POST_ALTER)
		follow_table(&table);
}

void
options_follow_initialize(void)
{
	previous_hook = object_access_hook;
	object_access_hook = follow_change;
}
