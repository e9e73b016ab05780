/*
 * error_names.h
 *		Names of tables and constraints in workers' errors, as the user knows them.
 */
#ifndef STRATA_ERROR_NAMES_H
#define STRATA_ERROR_NAMES_H

#include "postgres.h"

/*
 * An integrity constraint violation (class 23) that a worker reported about a shard.  The strings
 * are palloc'd or NULL; those that name a shard, or a constraint that only shards have, are
 * replaced.  Only in a transaction that may read catalogs.
 */
typedef struct ErrorNames
{
	int sqlstate;
	char *message;
	char *detail;
	char *schema;
	char *table;
	char *constraint;
} ErrorNames;

extern void error_names_localize(ErrorNames *names);

/*
 * A worker's name for messages to the client where nothing may be thrown: its number, if the
 * client's encoding may lack a character of the name.
 */
extern const char *error_names_sendable(const char *worker_name, int worker_id);

#endif
