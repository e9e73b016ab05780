/*
 * ddl_alter_part.h
 *		The parts of an ALTER TABLE as SQL for the workers.
 */
#ifndef STRATA_DDL_ALTER_PART_H
#define STRATA_DDL_ALTER_PART_H

#include "postgres.h"

#include "ddl/ddl.h"

/* What is known of the parts before the command runs here. */
typedef struct AlterParts AlterParts;

/*
 * Before the command runs here: look at what it will change.  The caller holds the lock that the
 * command takes.  ERROR for a part that the copies of a reference table could not do alike.
 */
extern AlterParts *
alter_parts_prepare(const UtilityCall *call, const DistributedTable *table, List *commands);

/* After it ran here: send the parts, and the constraints that it created. */
extern void alter_parts_send(const UtilityCall *call, AlterParts *parts);

#endif
