/*
 * user_trigger.h
 *		Triggers that users have made, as against those of constraints.
 */
#ifndef STRATA_USER_TRIGGER_H
#define STRATA_USER_TRIGGER_H

#include "catalog/pg_trigger.h"

/*
 * The name of a trigger of the table, which the caller has locked, for one of these events (TRIGGER_TYPE_...); NULL: it has
 * none.  Disabled ones count if `disabled`.
 */
extern const char *user_trigger_find(Oid relation, int16 events, bool disabled);

#endif
