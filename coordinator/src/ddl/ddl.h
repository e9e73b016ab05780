/*
 * ddl.h
 *		How each class of utility command reaches the workers.
 *
 * A handler does all of one command: it checks, runs the command on the
 * coordinator with ddl_run_locally(), and then sends to the workers what they must
 * do.  The coordinator goes first: its locks order concurrent commands, and its
 * errors (privileges, names, syntax) come before anything is sent.  Everything
 * happens in one transaction.
 */
#ifndef STRATA_DDL_H
#define STRATA_DDL_H

#include "postgres.h"

#include "catalog/objectaddress.h"
#include "nodes/bitmapset.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "tcop/utility.h"

#include "cluster/metadata.h"

/* One call of ProcessUtility. */
typedef struct UtilityCall
{
	PlannedStmt *statement;
	const char *source; /* the whole query string, of which the statement is a slice */
	bool read_only_tree;
	ProcessUtilityContext context;
	ParamListInfo parameters;
	QueryEnvironment *environment;
	DestReceiver *destination;
	QueryCompletion *completion;
	int first_created; /* where this call's objects begin in the list of created ones */
} UtilityCall;

typedef void (*UtilityHandler)(UtilityCall *call);

/* In utility.c: the command as PostgreSQL runs it. */
extern void ddl_run_locally(UtilityCall *call);

/* The same with scans of shells suspended (table_am.h): the workers have the rows, and check them. */
extern void ddl_run_without_scans(UtilityCall *call);

/* Before changing the parse tree: makes it ours. */
extern Node *ddl_modifiable_statement(UtilityCall *call);

/* In ddl_text.c: the statement's own text as workers read it, palloc'd. */
extern char *ddl_statement_text(const UtilityCall *call);

/* The same, with names in the place of CURRENT_USER and the like among these roles (RoleSpec *, may be NULL) of its tree. */
extern char *ddl_text_with_role_names(const UtilityCall *call, List *roles);

/* The type of the column that a name written table.column%TYPE stands for; InvalidOid if there is none. */
extern Oid ddl_column_type(const TypeName *name);

/* Objects created by the call so far (list of ObjectAddress *, catalogs' internal ones included). */
extern List *ddl_created_objects(const UtilityCall *call);

/* Name of a role as SQL. */
extern char *ddl_role_name(const RoleSpec *role);

/* In utility.c: statements that move rows. */
extern void ddl_copy(UtilityCall *call);
extern void ddl_set(UtilityCall *call);
extern void ddl_set_constraints(UtilityCall *call);

/* In ddl_truncate.c */
extern void ddl_truncate(UtilityCall *call);

/*
 * In ddl_relation.c: constraints and indexes that a call created are such as workers can enforce.  To be called before it
 * is sent.
 */
extern void ddl_check_created(const UtilityCall *call);

/* ERROR unless what columns, constraints and indexes of the table compute is the same on the workers. */
extern void ddl_check_columns(Oid relid, TableKind kind);

/* In ddl_object.c */
extern void ddl_create_object(UtilityCall *call);
extern void ddl_alter_object(UtilityCall *call);
extern void ddl_security_label(UtilityCall *call);
extern void ddl_drop_objects(UtilityCall *call);

/* In ddl_extension.c */
extern void ddl_create_schema(UtilityCall *call);
extern void ddl_drop_schemas(UtilityCall *call);
extern void ddl_create_extension(UtilityCall *call);
extern void ddl_alter_extension(UtilityCall *call);
extern void ddl_drop_extensions(UtilityCall *call);

/* The call of a worker's function for a schema, as it is before the command: its name, its owner, an argument. */
extern char *ddl_schema_command(const char *function, const char *schema, const char *argument);

/* In ddl_table.c */
extern void ddl_alter_table(UtilityCall *call);

/*
 * In ddl_typed_table.c.  Before attributes of a type change: lock the type and its tables, and return the OIDs of those that
 * are ours; none if PostgreSQL will refuse the command.  Afterwards: ERROR if more of them are.
 */
extern List *ddl_lock_typed_tables(const RangeVar *type_name);
extern void ddl_ensure_typed_tables(const RangeVar *type_name, List *before);
extern void ddl_rename_attribute(UtilityCall *call);

/*
 * In ddl_tree.c: ALTER TABLE that changes who is below whom; false if that is not, or not only, what the command does with
 * reference tables.  ERROR if tables would meet in one tree that cannot.
 */
extern bool ddl_alter_tree(UtilityCall *call, Oid relid);

/*
 * In ddl_default.c: the defaults that a table's workers have (worker_table_sql_defaults()), and what the workers do when they
 * change: drop what they had before, and set what they shall have.
 */
extern List *ddl_list_defaults(Oid relid);
extern void ddl_drop_defaults(Oid relid, List *before);
extern void ddl_set_defaults(Oid relid, List *before);

/* A constraint is being dropped; at the end of the command; at the end of the transaction. */
extern void ddl_note_dropped_constraint(Oid constraint);
extern void ddl_follow_dropped_constraints(void);
extern void ddl_forget_dropped_constraints(void);

/* In ddl_relation.c: the table of that name, or whose index it is, when it is ours; else NULL. */
extern const DistributedTable *ddl_find_table_by_name(const RangeVar *name);

/* ERROR if a table's kind changed while the command waited for its lock. */
extern void ddl_ensure_unchanged(Oid relid, TableKind before);

/*
 * On the workers: ALTER TABLE <relation> <action> of the table and all its partitions, or of the
 * partitions that hold rows alone.  The table that is not partitioned is its own leaf.
 */
extern void ddl_alter_partitions(const char *table, bool leaves_only, const char *action);

extern void ddl_create_table(UtilityCall *call);
extern void ddl_create_trigger(UtilityCall *call);
extern void ddl_create_rule(UtilityCall *call);
extern void ddl_rename(UtilityCall *call);
extern void ddl_set_schema(UtilityCall *call);

extern void ddl_create_statistics(UtilityCall *call);
extern void ddl_change_publication(UtilityCall *call);
extern void ddl_move_tables(UtilityCall *call);

/* In ddl_index.c */
extern void ddl_create_index(UtilityCall *call);
extern void ddl_drop_indexes(UtilityCall *call);

/*
 * Before REINDEX: build and attach what an index, or all indexes of a table, lack on workers, outside of any
 * transaction.  What was unfinished is valid on all nodes then.  Of a whole table, REINDEX CONCURRENTLY
 * leaves the invalid ones alone.
 */
extern void ddl_complete_index(Oid table, Oid index, bool concurrently);
extern void ddl_complete_indexes(Oid table, bool concurrently);

/*
 * In ddl_privileges.c, of objects (ObjectAddress *): the workers "create" them with their owners and access lists, "set"
 * the lists of what they have, or "drop" them; the command for it, to be made before it is sent when they go here.
 */
extern void ddl_place(const char *how, const List *objects);
extern char *ddl_place_command(const char *how, const List *objects);

/* The workers have these objects, but for access lists that are not PostgreSQL's default. */
extern void ddl_send_privileges(const List *objects);

/* Is it a function or type of another role than the current user? */
extern bool ddl_is_anothers(const ObjectAddress *object);

/* In ddl_access.c */
extern void ddl_grant(UtilityCall *call);

/* In ddl_role.c */
extern void ddl_create_role(UtilityCall *call);
extern void ddl_alter_role(UtilityCall *call);
extern void ddl_alter_role_set(UtilityCall *call);
extern void ddl_drop_role(UtilityCall *call);
extern void ddl_send_role_command(UtilityCall *call);

/* In maintenance.c */
extern void maintenance_vacuum(UtilityCall *call);
extern void maintenance_reindex(UtilityCall *call);
extern void maintenance_cluster(UtilityCall *call);

/*
 * Run one command on each of these workers, all at once, outside of any transaction.  The first
 * failure is raised when all have ended.  Returns what each answered (first column of the first
 * row), NULL where that was nothing.
 */
extern char **maintenance_run_each(const int *worker_ids, Oid role, char **sqls, int count);

/* The same command on all workers; of who may maintain a table of another, as its owner, who has all rights there. */
extern void maintenance_run(Oid role, char *sql);

/*
 * In ddl_row_type.c.  What is built on a type stays on the coordinator while the workers lack what the type needs, a table
 * for one.  Before that changes, it is noted, with the type itself if it is no table's; afterwards the workers
 * get what they can have now, and lose what they cannot have any more.  So it is with what is built on a function.
 */
extern List *ddl_note_dependents(Oid class, Oid object);
extern void ddl_move_dependents(const List *noted);

/* The same for a table and all that is below it; the workers have them: also who may use their row types. */
extern List *ddl_note_tree_dependents(Oid relation);
extern void ddl_bring_dependents(Oid relation, const List *noted);

#endif
