/*
 * table_definition.h
 *		What pg_dump carries of a distributed table: a security label with its definition.
 */
#ifndef STRATA_TABLE_DEFINITION_H
#define STRATA_TABLE_DEFINITION_H

#include "postgres.h"

/* Of the security labels that hold definitions. */
#define TABLE_DEFINITION_PROVIDER "strata"

/*
 * Write the table's label anew after a change of what it says, and remove it from one that is not ours
 * any more.  columnar_options: the label that the workers' tables have now, "" for none, NULL: as before.
 */
extern void table_definition_store(Oid relation, const char *columnar_options);

/* The label that the table has by the metadata; NULL: it is local. */
extern char *table_definition_get(Oid relation);

/*
 * Distribute a table as a label says, by the functions that the user might call.  former_group: the colocation group that the
 * table was in before, 0 for none: a NOTICE tells of tables that are left there.
 */
extern void table_definition_apply(Oid relation, const char *label, int former_group);

extern void table_definition_initialize(void); /* from _PG_init: registers the provider */

#endif
