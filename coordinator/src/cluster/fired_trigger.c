/*
 * fired_trigger.c
 *		Which triggers of our tables the coordinator fires.
 *
 * Those of users, all of them.  Of those of constraints: a foreign key is checked where the referencing rows are.  Those of a
 * distributed table are on the workers, which have the same constraint; those of a local table are here, and so the
 * coordinator fires the triggers of the referenced table, too, be that distributed.
 */
#include "postgres.h"

#include "cluster/fired_trigger.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "commands/trigger.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "cluster/constraint.h"
#include "cluster/metadata.h"

bool
fired_trigger_is_here(const Trigger *trigger, bool shell)
{
	const DistributedTable *referencing;

	if (!trigger->tgisinternal)
		return true;
	if (RI_FKey_trigger_type(trigger->tgfoid) != RI_TRIGGER_PK)
		return !shell;
	referencing = metadata_table(trigger->tgconstrrelid);
	return referencing == NULL || referencing->kind != TABLE_DISTRIBUTED;
}

/* Does the foreign key refer to one of these columns, or to one that is computed of others? */
static bool
refers_to(Oid constraint, Relation referenced, const Bitmapset *columns)
{
	HeapTuple tuple = constraint_get(constraint);
	ForeignKeyColumns key = constraint_key_columns(tuple);
	bool found = false;

	ReleaseSysCache(tuple);
	for (int i = 0; i < key.count && !found; i++)
	{
		AttrNumber number = key.referenced[i];
		Form_pg_attribute column = TupleDescAttr(RelationGetDescr(referenced), number - 1);

		found = column->attgenerated != '\0' ||
				bms_is_member(number - FirstLowInvalidHeapAttributeNumber, columns);
	}
	return found;
}

static bool
is_concerned(const Trigger *trigger, Relation relation, int16 events, const Bitmapset *updated)
{
	int16 matching = trigger->tgtype & events;

	if (matching == 0 || !fired_trigger_is_here(trigger, true))
		return false;
	return !trigger->tgisinternal || updated == NULL || matching != TRIGGER_TYPE_UPDATE ||
		   refers_to(trigger->tgconstraint, relation, updated);
}

const char *
fired_trigger_find(Oid relid, int16 events, const Bitmapset *updated, bool disabled)
{
	Relation relation = table_open(relid, NoLock);
	const TriggerDesc *triggers = relation->trigdesc;
	const char *name = NULL;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers && name == NULL; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if ((disabled || trigger->tgenabled != TRIGGER_DISABLED) &&
			is_concerned(trigger, relation, events, updated))
			name = pstrdup(trigger->tgname);
	}
	table_close(relation, NoLock);
	return name;
}

bool
fired_trigger_keeps_column(Oid relid, AttrNumber column)
{
	Bitmapset *columns = bms_make_singleton(column - FirstLowInvalidHeapAttributeNumber);
	Relation relation = table_open(relid, NoLock);
	const TriggerDesc *triggers = relation->trigdesc;
	bool found = false;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers && !found; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		found = trigger->tgisinternal && fired_trigger_is_here(trigger, true) &&
				refers_to(trigger->tgconstraint, relation, columns);
	}
	table_close(relation, NoLock);
	return found;
}
