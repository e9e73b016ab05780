/*
 * table_tree.h
 *		Partitioned reference tables, and those that inherit: all members of a tree are reference tables.
 */
#ifndef STRATA_TABLE_TREE_H
#define STRATA_TABLE_TREE_H

#include "postgres.h"

#include "nodes/bitmapset.h"
#include "nodes/pg_list.h"
#include "storage/lockdefs.h"
#include "utils/relcache.h"

/* How the workers store the reference tables that it is below, "heap" or "columnar"; NULL if it is below none. */
extern const char *table_tree_storage(Oid relation);

/* The table and all below it (Oid), each behind its parents; those below get locked. */
extern List *table_tree_members(Oid relation, LOCKMODE lock);

/* A parent that is neither among the members nor, unless they become local, a reference table; InvalidOid if none. */
extern Oid table_tree_parent_outside(Oid relation, const List *members, bool become_local);

/* ` PARTITION BY ...` of a partitioned table in SQL mode, else "". */
extern char *table_tree_partition_key(Relation relation);

/* ALTER TABLE ... ATTACH PARTITION of a partition, or with `detach` the opposite. */
extern char *table_tree_attachment(Oid partition, Oid parent, bool detach);

/*
 * Make a table's copies children of its parents' copies, with indexes of their own, but before the parents' foreign
 * keys are made; these then come with the parents', and get the names that they have here by the second one.  guard: what
 * that computes needs owner_guard.h.
 */
extern void table_tree_link(const Bitmapset *workers, Oid relation, bool guard);
extern char *table_tree_foreign_key_names(Oid relation);

/* The indexes of some tables, by OID and by name (String). */
typedef struct TreeIndexes
{
	List *oids;
	List *names;
} TreeIndexes;

/*
 * The indexes of these tables; and the workers make those that were not there before, as the tables' owners.  A change of a
 * column's type makes indexes anew, which the workers do, too; unless names may be those of indexes that the same command
 * drops (replaced).
 */
extern TreeIndexes *table_tree_indexes(const List *members);
extern void
table_tree_send_new_indexes(const List *members, const TreeIndexes *before, bool replaced);

/* ERROR if an index cannot become a part of a partitioned one on workers: CONCURRENTLY has left it unfinished here. */
extern void table_tree_check_part(Oid index);

/* Gives parts of partitioned indexes, which workers have made anew and named, their names. */
extern char *table_tree_index_names(const List *members);

/*
 * Distributed tables' foreign keys to a table that has come into a tree: the workers enforce them, as those to the tree.
 */
extern void table_tree_leave_foreign_keys_to_workers(Oid relation);

/*
 * Workers shall not check foreign keys among reference tables, nor unique and exclusion constraints of theirs that can be
 * deferred (reference_write.c).  After each command that makes such constraints, or their triggers, for these tables on workers.
 */
extern void table_tree_trust_constraints(const Bitmapset *workers, const List *members);

#endif
