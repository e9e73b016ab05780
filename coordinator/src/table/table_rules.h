/*
 * table_rules.h
 *		May this table be distributed, and have this constraint?  Errors with reasons and hints.
 *
 * The functions only look at the coordinator's catalogs and raise an error or
 * return.  The caller holds a lock on the relation that keeps the answer true.
 */
#ifndef STRATA_TABLE_RULES_H
#define STRATA_TABLE_RULES_H

#include "postgres.h"

#include "access/attnum.h"
#include "nodes/parsenodes.h"
#include "utils/relcache.h"

/*
 * The relation is an ordinary permanent table, without what we cannot honour.  A reference table may also be partitioned, and
 * all its relatives are reference tables or among the `members` (Oid) that become such together.
 */
extern void table_rules_check_table(Relation relation, bool is_reference, const List *members);

/*
 * ERROR unless the workers have the types of the columns, and generated columns, CHECK constraints and indexes mean
 * the same in their tables.
 */
extern void table_rules_check_columns(Relation relation, bool is_reference);

/* Does an expression over one relation name its whole row, which the tables of the workers, being partitioned, cannot? */
extern bool table_rules_check_names_row(Node *expr);

/* The same for an index that is to be made: a command as transformIndexStmt() leaves it, with a name. */
extern void table_rules_check_index(Relation relation, bool is_reference, const IndexStmt *create);

/*
 * The key column by name; a NULL name chooses the first column of the primary key,
 * else the first column that can be a key.  Returns its number, and the type and
 * collation under which its values are hashed.
 */
extern AttrNumber
table_rules_check_key(Relation relation, const char *name, Oid *hash_type, Oid *collation);

/*
 * A unique index has the key among its columns (0: an expression), and so rows that could violate it are on one
 * worker; also the column of the periods, if that is valid.  An exclusion constraint compares them
 * for equality.
 */
extern void table_rules_check_unique(Oid table, const char *index, const AttrNumber *columns,
									 int count, AttrNumber key, AttrNumber period);
extern void table_rules_check_unique_index(Oid index, AttrNumber key, AttrNumber period);

/* The table may become local, with the other members of its tree: no foreign key then joins a local and a distributed table. */
extern void table_rules_check_undistribute(Relation relation, const List *members);

#endif
