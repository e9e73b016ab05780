/*
 * user_trigger.c
 *		Triggers that users have made, as against those of constraints.
 */
#include "postgres.h"

#include "cluster/user_trigger.h"

#include "access/table.h"
#include "commands/trigger.h"
#include "utils/rel.h"

const char *
user_trigger_find(Oid relid, int16 events, bool disabled)
{
	Relation relation = table_open(relid, NoLock);
	const TriggerDesc *triggers = relation->trigdesc;
	const char *name = NULL;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers && name == NULL; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (!trigger->tgisinternal && (trigger->tgtype & events) != 0 &&
			(disabled || trigger->tgenabled != TRIGGER_DISABLED))
			name = pstrdup(trigger->tgname);
	}
	table_close(relation, NoLock);
	return name;
}
