/*
 * table_definition.h
 *		What pg_dump carries of a distributed table: a security label with its definition.
 */
#ifndef STRATA_TABLE_DEFINITION_H
#define STRATA_TABLE_DEFINITION_H

#include "postgres.h"

/*
 * Write the table's label anew after a change of what it says, and remove it from one that is not ours
 * any more.  columnar_options: the label that the workers' tables have now, "" for none, NULL: as before.
 */
extern void table_definition_store(Oid relation, const char *columnar_options);

extern void table_definition_initialize(void); /* from _PG_init: registers the provider */

#endif
