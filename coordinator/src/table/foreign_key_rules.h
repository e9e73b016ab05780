/*
 * foreign_key_rules.h
 *		Who can enforce a foreign key.  Errors with reasons and hints.
 */
#ifndef STRATA_FOREIGN_KEY_RULES_H
#define STRATA_FOREIGN_KEY_RULES_H

#include "postgres.h"

#include "access/htup.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

/*
 * ERROR if nobody can enforce the constraint, if it is a foreign key: by what the metadata say about both tables.  The same for
 * all from and to a table, which must have been validated.
 */
extern void foreign_key_rules_check(Oid constraint);
extern void foreign_key_rules_check_all(Relation relation);

/* OIDs of the foreign keys from and to a table. */
extern List *foreign_key_rules_list(Oid relation);

/* Attribute numbers of the columns that a foreign key's actions of this kind (FKCONSTR_ACTION_SETNULL, ..._SETDEFAULT) set. */
extern List *foreign_key_rules_list_set_columns(HeapTuple constraint, char action);

/* Are there such ones that the workers have, too?  And some that point to the table? */
extern bool foreign_key_rules_on_workers(Oid relation);
extern bool foreign_key_rules_point_on_workers(Oid relation);

/* ERROR if the table has a trigger that a foreign key's action on the workers would leave out. */
extern void foreign_key_rules_check_triggers(Oid relation);

/* The table may become local, with these members of its tree: all its foreign keys can be enforced then, too. */
extern void foreign_key_rules_check_undistribute(Relation relation, const List *members);

#endif
