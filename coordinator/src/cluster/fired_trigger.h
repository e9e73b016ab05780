/*
 * fired_trigger.h
 *		Which triggers of our tables the coordinator fires.
 */
#ifndef STRATA_FIRED_TRIGGER_H
#define STRATA_FIRED_TRIGGER_H

#include "access/attnum.h"
#include "catalog/pg_trigger.h"
#include "nodes/bitmapset.h"
#include "utils/reltrigger.h"

/* Does the coordinator fire this one of a distributed table's (a shell), or of another table's? */
extern bool fired_trigger_is_here(const Trigger *trigger, bool shell);

/*
 * The name of a trigger that the coordinator fires for rows of the distributed table, which the caller has locked, at one
 * of these events (TRIGGER_TYPE_...); NULL: it has none.  Those of users that are disabled count if `disabled`.
 * UPDATE is that of the columns `updated` (offset as usual); NULL: of any.
 */
extern const char *
fired_trigger_find(Oid relation, int16 events, const Bitmapset *updated, bool disabled);

/* Does a foreign key that the coordinator enforces refer to this column of the distributed table? */
extern bool fired_trigger_keeps_column(Oid relation, AttrNumber column);

#endif
