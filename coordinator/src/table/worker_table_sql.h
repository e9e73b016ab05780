/*
 * worker_table_sql.h
 *		SQL that creates a table's copy on a worker.
 *
 * Every function returns commands that each end with ";\n", palloc'd, "" when
 * there is nothing to do; all names are schema-qualified, so that they mean the
 * same under any search_path.
 */
#ifndef STRATA_WORKER_TABLE_SQL_H
#define STRATA_WORKER_TABLE_SQL_H

#include "postgres.h"

#include "access/attnum.h"
#include "catalog/pg_constraint.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

#include "cluster/metadata.h"

/* The name of the relation's partition `remainder`, quoted and qualified. */
extern char *worker_table_sql_shard_name(Relation relation, int remainder);

/*
 * Schema (if missing), table with columns and CHECK constraints, and the partitions
 * `shards` (a list of ShardBounds).  key_attribute InvalidAttrNumber makes
 * a reference table's copy, without partitions.  Where the table is divided into
 * periods, there will be those of `periods` (begins, as String) and those to come.
 */
extern char *
worker_table_sql_create(Relation relation, AttrNumber key_attribute, List *shards, List *periods);

/*
 * The partitions `shards`, with their owner, of a table of ours that exists already and goes on to be read and written,
 * unless foreign keys are to be taken over; periods as above.
 */
extern char *worker_table_sql_partitions(Relation relation, List *shards, List *periods);

/* One that is no partition yet, of a table without periods; and SQL that makes it one when it has its rows, with its foreign keys. */
extern char *worker_table_sql_apart(Relation relation, ShardBounds *shard);
extern char *worker_table_sql_attach(Relation relation, const ShardBounds *shard);

/* A column as in CREATE TABLE and ADD COLUMN: name, type and what else a worker needs. */
extern char *worker_table_sql_column(Relation relation, AttrNumber attribute);

/* How a generated column is computed. */
extern char *worker_table_sql_generation_expression(Relation relation, AttrNumber attribute);

/*
 * A constraint's definition, which is changed in place, of a distributed table without the NO INHERIT of a CHECK: partitions,
 * as shards are, cannot be left out.
 */
extern char *worker_table_sql_inherited_check(Form_pg_constraint constraint, char *definition);

/* One index, or the constraint whose index it is, with statistics targets; in SQL mode.  Of a partitioned table ONLY, without the partitions' parts. */
extern char *worker_table_sql_index(Relation relation, Oid index);

/*
 * Storage parameters and statistics targets, as they are here, for the index of a distributed table that the workers have; one
 * SELECT, without end.
 */
extern char *worker_table_sql_index_options(Oid index);

/* Primary key, unique and exclusion constraints, the other indexes, and statistics objects. */
extern char *worker_table_sql_indexes(Relation relation);

/* Names of all constraints of the table, as a list of String. */
extern List *worker_table_sql_constraint_names(Relation relation);

/*
 * The defaults that workers need because a foreign key of the distributed table sets them, in SQL mode: a list of
 * lists (String column, String "ALTER COLUMN ... SET DEFAULT ...").  With `check` ERROR if one is not immutable.
 */
extern List *worker_table_sql_defaults(Relation relation, bool check);

/* Foreign keys of the table, with worker_table_sql_defaults(); those to other tables of the same command must come last. */
extern char *worker_table_sql_foreign_keys(Relation relation);

/* Owner and privileges, as far as the roles exist on the worker. */
extern char *worker_table_sql_owner(Relation relation, List *shards);

#endif
