/*
 * relation_name.h
 *		Names of tables as other nodes read them.
 */
#ifndef STRATA_RELATION_NAME_H
#define STRATA_RELATION_NAME_H

#include "postgres.h"

/* Bytes of a shard's name whose table has periods: pg_partman cuts its leaves' names off otherwise. */
#define RELATION_NAME_SHARD_BYTES 41

/*
 * The name, palloc'd.  Whoever holds no lock on the relation needs this in place of get_rel_name(): an ERROR
 * when another session has dropped it.
 */
extern char *relation_name(Oid relation);

/* The same, quoted and schema-qualified. */
extern char *relation_name_qualified(Oid relation);

/*
 * Name of a shard's partition: <table>_s<remainder>, shortened like PostgreSQL's own
 * generated names, with a hash of the table's name where that loses something.  A table with periods has
 * shorter ones, for its leaves' suffixes.
 */
extern char *relation_name_of_shard(const char *table, int remainder, bool has_periods);

#endif
