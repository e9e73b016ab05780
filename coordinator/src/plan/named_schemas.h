/*
 * named_schemas.h
 *		Which schemas a text for workers names.
 */
#ifndef STRATA_NAMED_SCHEMAS_H
#define STRATA_NAMED_SCHEMAS_H

#include "nodes/pg_list.h"

/* Names (String) of the schemas that an SQL text with these parameters names, without PostgreSQL's own. */
extern List *named_schemas_find(const char *sql, List *params);

#endif
