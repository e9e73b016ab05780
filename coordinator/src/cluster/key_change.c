/*
 * key_change.c
 *		What forbids that rows of a distributed table move to another shard.
 *
 * A row that foreign keys refer to must be neither deleted nor kept while the new one is on its way.
 */
#include "postgres.h"

#include "cluster/fired_trigger.h"
#include "cluster/key_change.h"

#include "access/table.h"
#include "commands/trigger.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

void
key_change_refuse(Oid relation, AttrNumber column, const char *detail, const char *hint)
{
	const DistributedTable *table = metadata_table(relation);

	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot update the %s \"%s\" of table \"%s\"",
					column == table->key_attribute ? "distribution key" : "column of the periods",
					get_attname(relation, column, false), get_rel_name(relation)),
			 errdetail_internal("%s", detail), errhint("%s", hint)));
}

void
key_change_check_references(Oid relid, AttrNumber column)
{
	Relation relation = table_open(relid, NoLock);
	const TriggerDesc *triggers = relation->trigdesc;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (RI_FKey_trigger_type(trigger->tgfoid) == RI_TRIGGER_PK &&
			!fired_trigger_is_here(trigger, true))
			key_change_refuse(
				relid, column,
				psprintf("Foreign key constraint \"%s\" of table \"%s\" refers to the "
						 "rows, which would have to move to other workers.",
						 get_constraint_name(trigger->tgconstraint),
						 get_rel_name(trigger->tgconstrrelid)),
				"Insert the row with its new key, have the others refer to that, and "
				"delete the old row.");
	}
	table_close(relation, NoLock);
}
