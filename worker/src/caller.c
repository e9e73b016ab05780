/*
 * caller.c
 *		As whom the statements of a coordinator run here, and what they may touch.
 *
 * PostgreSQL checks privileges on tables as the user, or as the owner of the view that names the table, and runs
 * all code as the user.  The coordinator has made the first of these checks, columns and policies included, before it
 * sends anything.  Here nobody is granted anything on tables, and code runs as the coordinator's user.
 *
 * Own statements.  What a session that is marked as a coordinator's (session_mark.c) has been sent by its client, as it was
 * parsed: the text is that of the message, by its address.  Nothing that runs inside of it has that text, at whatever
 * depth: SQL of functions, of CHECK constraints during a COPY, of what the planner evaluates.
 *
 *	- Tables that an own statement names are checked as their owners, as those of a view are: the planner's hook says so in
 *	  the query before it is planned.  What the planner inlines from a SQL function later has no such mark.
 *	- COPY FROM and TRUNCATE, which check privileges by themselves, are executed here.
 *
 * Users' statements.  An own statement over users' tables computes what users have written.  Code inside of it
 * finds no table here: each holds a part of its rows, no policies, and a copy of a reference table
 * must not be changed alone.  It runs no utility command, and what only reads runs read only.
 * Triggers of foreign keys are excepted, which core runs as the tables' owners.
 *
 * Names.  The coordinator writes what is PostgreSQL's own without its schema, and so its statements are parsed with a
 * search_path of pg_catalog alone; else an operator of the caller's would take the place of one of a view.  The
 * path of the session counts for the code that runs, and for commands as users have typed them:
 *
 *		SET strata_worker.search_path = 'schema', ...
 *
 * Settings.  What code inside of a statement sets ends with the statement: the coordinator would not know of it, and
 * whoever acts in the session next would find a search_path that is not his.
 *
 * The caller.  A session logs in as the coordinator's session user, once; whoever else acts there (SET ROLE, SECURITY
 * DEFINER) is named in front of the statement:
 *
 *		SET LOCAL strata_worker.role = 'role', 'restricted', 'any_schema'
 *
 * This is no setting, so nothing but an own command reaches it.  User and security context are switched as core does for a
 * SECURITY DEFINER function, so that code which runs then cannot SET or RESET the role.
 *
 * Schemas.  Whoever may read a view need not have USAGE on the schemas of what the view names: they were looked up when it
 * was made.  SQL for workers names them again.  With 'any_schema' it is parsed as pg_read_all_data, which has that privilege on
 * all schemas, and planned and executed as the caller.  No SQL but the own statement is let through in
 * between, so whatever a constant of it could run while it is parsed (the CHECK of a domain in an array) does not get far.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "commands/copy.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/planner.h"
#include "parser/parse_node.h"
#include "parser/parse_relation.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "caller.h"
#include "compat.h"
#include "function_guard.h"
#include "session_mark.h"

#define ROLE_COMMAND "strata_worker.role"
#define PATH_COMMAND "strata_worker.search_path"

/* Who was named for the statements to come; user is InvalidOid when nobody was, and the login's user acts. */
typedef struct Caller
{
	Oid user;
	int security_context;
	bool any_schema;
} Caller;

/* What is different while an own statement runs, and how it was before. */
typedef struct Scope
{
	Oid user;
	int security_context;
	bool read_only;
	bool for_users;
	int settings; /* nesting level; 0: they are kept */
} Scope;

/* What a statement asks of the tables that it names. */
typedef struct Access
{
	bool users_tables; /* it names some */
	bool writes;
} Access;

static Caller caller = {InvalidOid};
static char *users_path = NULL;		/* search_path of the coordinator's session; NULL: not known */
static bool runs_for_users = false; /* a user's statement is planned or executed */
static int running = 0; /* own statements that are: more than one only while a portal is open */

static planner_hook_type previous_planner = NULL;
static ExecutorStart_hook_type previous_executor_start = NULL;
static ExecutorRun_hook_type previous_executor_run = NULL;
static ExecutorFinish_hook_type previous_executor_finish = NULL;
static ExecutorEnd_hook_type previous_executor_end = NULL;
static ExecutorCheckPerms_hook_type previous_check_permissions = NULL;
static object_access_hook_type previous_object_access = NULL;
static ProcessUtility_hook_type previous_utility = NULL;
static needs_fmgr_hook_type previous_needs_hook = NULL;
static fmgr_hook_type previous_fmgr_hook = NULL;

/* ----------------------------------------------------------------
 * Own statements
 * ----------------------------------------------------------------
 */

static inline bool
is_own(const char *text)
{
	return text != NULL && text == debug_query_string && session_is_marked();
}

/* A table that the coordinator may have put here: not PostgreSQL's, and not what this extension knows by. */
static bool
is_users_table(Oid relation)
{
	Oid namespace;
	char kind;

	if (relation < FirstNormalObjectId)
		return false;
	kind = get_rel_relkind(relation);
	namespace = get_rel_namespace(relation);
	return (kind == RELKIND_RELATION || kind == RELKIND_PARTITIONED_TABLE) &&
		   namespace != get_namespace_oid("strata_worker", true) &&
		   namespace != get_namespace_oid("strata", true);
}

static Oid
get_owner(Oid relation)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Oid owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", relation);
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

static void
note_access(Access *access, Oid relation, AclMode required)
{
	if (required == 0 || !is_users_table(relation))
		return;
	access->users_tables = true;
	access->writes |= (required & ~ACL_SELECT) != 0;
}

/* Have the tables of a query, at all its levels, checked as their owners. */
static bool
borrow_owners_rights(Node *node, Access *access)
{
	ListCell *lc;

	if (node == NULL)
		return false;
	if (!IsA(node, Query))
		return expression_tree_walker(node, borrow_owners_rights, access);
	foreach(lc, ((Query *) node)->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);
		CompatPermissions *permissions;

		if (rte->rtekind != RTE_RELATION)
			continue;
		permissions = compat_get_permissions(castNode(Query, node), rte);
		if (permissions == NULL)
			continue;
		note_access(access, rte->relid, permissions->requiredPerms);
		if (!OidIsValid(permissions->checkAsUser) && is_users_table(rte->relid))
			permissions->checkAsUser = get_owner(rte->relid);
	}
	return query_tree_walker((Query *) node, borrow_owners_rights, access, 0);
}

static Access
read_access(PlannedStmt *plan)
{
	Access access = {0};
	ListCell *lc;

	foreach(lc, compat_plan_permissions(plan))
	{
		CompatPermissions *permissions = lfirst(lc);

		note_access(&access, permissions->relid, permissions->requiredPerms);
	}
	access.writes |= plan->commandType != CMD_SELECT || plan->hasModifyingCTE;
	return access;
}

/* Until the settings' nesting level ends. */
static void
use_users_path(void)
{
	if (users_path != NULL)
		(void) set_config_option("search_path", users_path, PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
}

/* The caller acts. */
static Scope
enter(bool for_users, bool read_only)
{
	Scope before = {.read_only = XactReadOnly, .for_users = runs_for_users};

	GetUserIdAndSecContext(&before.user, &before.security_context);
	if (OidIsValid(caller.user) && caller.any_schema)
		SetUserIdAndSecContext(caller.user, caller.security_context);
	before.settings = for_users ? NewGUCNestLevel() : 0;
	if (for_users)
		use_users_path();
	runs_for_users |= for_users;
	XactReadOnly |= read_only;
	running++;
	return before;
}

/* It was done.  After an error the transaction's abort takes settings back. */
static void
forget_settings(const Scope *scope)
{
	if (scope->settings > 0)
		AtEOXact_GUC(false, scope->settings);
}

static void
leave(Scope before)
{
	SetUserIdAndSecContext(before.user, before.security_context);
	runs_for_users = before.for_users;
	XactReadOnly = before.read_only;
	running--;
}

/* While an own statement is parsed with rights that the caller has not, nothing else runs. */
static void
check_nothing_is_parsed(void)
{
	if (OidIsValid(caller.user) && caller.any_schema && running == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot run SQL while a statement of the coordinator is parsed"),
				 errdetail("A constant of the statement is checked by a function, and the user has "
						   "no USAGE on a schema that the statement names."),
				 errhint("Grant USAGE on the schemas of the view's tables.")));
}

/* ----------------------------------------------------------------
 * Planner and executor
 * ----------------------------------------------------------------
 */

static PlannedStmt *
call_planner(Query *query, const char *text, int options, ParamListInfo parameters)
{
	return previous_planner ? previous_planner(query, text, options, parameters)
							: standard_planner(query, text, options, parameters);
}

static PlannedStmt *
plan_query(Query *query, const char *text, int options, ParamListInfo parameters)
{
	Access access = {.writes = query->commandType != CMD_SELECT || query->hasModifyingCTE};
	PlannedStmt *plan;
	Scope before;

	if (!is_own(text))
	{
		check_nothing_is_parsed();
		/* a parallel worker takes its query, which it cannot tell from an own one, out of what runs for users */
		return call_planner(
			query, text, runs_for_users ? options & ~CURSOR_OPT_PARALLEL_OK : options, parameters);
	}
	(void) borrow_owners_rights((Node *) query, &access);
	before = enter(access.users_tables, access.users_tables && !access.writes);
	PG_TRY();
	{
		plan = call_planner(query, text, options, parameters);
		forget_settings(&before);
	}
	PG_FINALLY();
	{
		leave(before);
	}
	PG_END_TRY();
	return plan;
}

/* Run the rest of a hook as the caller when the query is an own statement. */
#define WITHIN_SCOPE(query, call)                                                                 \
	do                                                                                            \
	{                                                                                             \
		if (is_own((query)->sourceText))                                                          \
		{                                                                                         \
			Access access_ = read_access((query)->plannedstmt);                                   \
			Scope before_ = enter(access_.users_tables, access_.users_tables && !access_.writes); \
			PG_TRY();                                                                             \
			{                                                                                     \
				call;                                                                             \
				forget_settings(&before_);                                                        \
			}                                                                                     \
			PG_FINALLY();                                                                         \
			{                                                                                     \
				leave(before_);                                                                   \
			}                                                                                     \
			PG_END_TRY();                                                                         \
		}                                                                                         \
		else                                                                                      \
		{                                                                                         \
			check_nothing_is_parsed();                                                            \
			call;                                                                                 \
		}                                                                                         \
	} while (0)

static void
call_start(QueryDesc *query, int eflags)
{
	if (previous_executor_start)
		previous_executor_start(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
}

static void
start_query(QueryDesc *query, int eflags)
{
	WITHIN_SCOPE(query, call_start(query, eflags));
}

static void
call_run(QueryDesc *query, ScanDirection direction, uint64 count, bool execute_once)
{
	if (previous_executor_run)
		previous_executor_run(query, direction, count, execute_once);
	else
		standard_ExecutorRun(query, direction, count, execute_once);
}

static void
run_query(QueryDesc *query, ScanDirection direction, uint64 count, bool execute_once)
{
	WITHIN_SCOPE(query, call_run(query, direction, count, execute_once));
}

static void
call_finish(QueryDesc *query)
{
	if (previous_executor_finish)
		previous_executor_finish(query);
	else
		standard_ExecutorFinish(query);
}

static void
finish_query(QueryDesc *query)
{
	WITHIN_SCOPE(query, call_finish(query));
}

static void
call_end(QueryDesc *query)
{
	if (previous_executor_end)
		previous_executor_end(query);
	else
		standard_ExecutorEnd(query);
}

static void
end_query(QueryDesc *query)
{
	WITHIN_SCOPE(query, call_end(query));
}

/* May code inside of a user's statement read the relation? */
static bool
is_open_to_functions(Oid relation)
{
	return relation < FirstNormalObjectId ||
		   OidIsValid(getExtensionOfObject(RelationRelationId, relation)) ||
		   isAnyTempNamespace(get_rel_namespace(relation));
}

static bool
check_permissions(COMPAT_CHECK_PERMISSIONS_ARGUMENTS)
{
	ListCell *lc;

	if (previous_check_permissions != NULL && !previous_check_permissions(COMPAT_PASS_PERMISSIONS))
		return false;
	if (!runs_for_users || InNoForceRLSOperation())
		return true;
	foreach(lc, COMPAT_PERMISSIONS_LIST)
	{
		CompatPermissions *permissions = lfirst(lc);

		if (permissions->requiredPerms == 0 || OidIsValid(permissions->checkAsUser) ||
			!OidIsValid(permissions->relid) ||
			((permissions->requiredPerms & ~ACL_SELECT) == 0 &&
			 is_open_to_functions(permissions->relid)))
			continue;
		if (!ereport_on_violation)
			return false;
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot use table \"%s\" in a function that runs on a worker",
						get_rel_name(permissions->relid)),
				 errdetail("A worker has a part of the rows, and the coordinator checks privileges "
						   "and policies."),
				 errhint("A function that reads tables must be declared STABLE or VOLATILE, not "
						 "IMMUTABLE: then the coordinator evaluates it.")));
	}
	return true;
}

/* No object comes, changes or goes in a user's statement; large objects do by functions of core. */
static void
watch_objects(ObjectAccessType access, Oid class, Oid object, int part, void *argument)
{
	if (previous_object_access != NULL)
		previous_object_access(access, class, object, part, argument);
	if (runs_for_users && (access == OAT_POST_CREATE || access == OAT_POST_ALTER ||
						   access == OAT_DROP || access == OAT_TRUNCATE))
		ereport(
			ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("cannot create, change or drop objects in a function that runs on a worker"),
			 errhint("A function that does so must be declared VOLATILE, not IMMUTABLE: then the "
					 "coordinator evaluates it.")));
}

/* ----------------------------------------------------------------
 * Functions
 *
 * Users' code runs outside of their statements, too: a command computes indexes, constraints and rows of a table
 * that changes, and a constant is checked while a statement is parsed.  Each call is a scope of its own then.
 * (fmgr does not inline SQL functions there.)
 * ----------------------------------------------------------------
 */

/* Extensions' functions, which the coordinator calls, are trusted, and so is what is written in C. */
static bool
is_users_function(Oid function)
{
	HeapTuple tuple;
	bool result;

	if (function < FirstNormalObjectId)
		return false;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_proc) GETSTRUCT(tuple))->prolang != ClanguageId &&
			 ((Form_pg_proc) GETSTRUCT(tuple))->prolang != INTERNALlanguageId;
	ReleaseSysCache(tuple);
	return result && !OidIsValid(getExtensionOfObject(ProcedureRelationId, function));
}

static bool
needs_hook(Oid function)
{
	if (previous_needs_hook != NULL && previous_needs_hook(function))
		return true;
	return !runs_for_users && session_is_marked() && is_users_function(function);
}

static void
watch_call(FmgrHookEventType event, FmgrInfo *function, Datum *private)
{
	if (event == FHET_START)
	{
		bool is_outside = !runs_for_users && session_is_marked() &&
						  is_users_function(function->fn_oid);
		Scope *before = NULL;

		if (is_outside)
			check_nothing_is_parsed();
		if (previous_fmgr_hook != NULL) /* what it changes ends after what we do */
			previous_fmgr_hook(event, function, private);
		if (is_outside)
		{
			before = MemoryContextAlloc(function->fn_mcxt, sizeof(Scope));
			*before = enter(true, true);
		}
		*private = PointerGetDatum(before);
	}
	else
	{
		Scope *before = (Scope *) DatumGetPointer(*private);

		if (before != NULL && event == FHET_END)
			forget_settings(before);
		if (before != NULL)
			leave(*before);
		*private = PointerGetDatum(NULL);
		if (previous_fmgr_hook != NULL)
			previous_fmgr_hook(event, function, private);
	}
}

/* ----------------------------------------------------------------
 * Utility commands
 * ----------------------------------------------------------------
 */

static const char *
read_word(List *words, int i)
{
	const A_Const *word = castNode(A_Const, list_nth(words, i));

	if (word->isnull || !IsA(&word->val, String))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("\"" ROLE_COMMAND "\" takes names")));
	return strVal(&word->val);
}

static void
forget_caller(void)
{
	caller.user = InvalidOid;
	caller.any_schema = false;
}

/* SET LOCAL strata_worker.role TO DEFAULT, or = 'role' [, 'restricted'] [, 'any_schema'] */
static void
set_caller(const VariableSetStmt *command)
{
	Caller wanted = {InvalidOid, SECURITY_LOCAL_USERID_CHANGE, false};

	if (!command->is_local || !IsTransactionBlock())
		ereport(ERROR,
				(errcode(ERRCODE_NO_ACTIVE_SQL_TRANSACTION),
				 errmsg("\"" ROLE_COMMAND "\" can only be set for the running transaction")));
	if (command->kind == VAR_SET_DEFAULT)
	{
		forget_caller();
		SetUserIdAndSecContext(GetOuterUserId(), 0);
		return;
	}
	wanted.user = get_role_oid(read_word(command->args, 0), false);
	for (int i = 1; i < list_length(command->args); i++)
	{
		const char *word = read_word(command->args, i);

		if (strcmp(word, "restricted") == 0)
			wanted.security_context |= SECURITY_RESTRICTED_OPERATION;
		else if (strcmp(word, "any_schema") == 0)
			wanted.any_schema = true;
		else
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("\"" ROLE_COMMAND "\" does not know \"%s\"", word)));
	}
	caller = wanted;
	if (caller.any_schema)
		SetUserIdAndSecContext(ROLE_PG_READ_ALL_DATA,
							   SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	else
		SetUserIdAndSecContext(caller.user, caller.security_context);
}

/* COPY table FROM STDIN, without the checks that the coordinator has made; false if it is for core. */
static bool
copy_from(ParseState *pstate, const CopyStmt *command, uint64 *rows)
{
	CopyFromState copy;
	Relation relation;
	Scope before;

	if (!command->is_from || command->relation == NULL || command->filename != NULL ||
		command->whereClause != NULL)
		return false;
	relation = table_openrv(command->relation, RowExclusiveLock);
	if (!is_users_table(RelationGetRelid(relation)))
	{
		table_close(relation, NoLock);
		return false;
	}
	PreventCommandIfReadOnly("COPY FROM");
	(void) addRangeTableEntryForRelation(pstate, relation, RowExclusiveLock, NULL, false, false);
	before = enter(true, false);
	PG_TRY();
	{
		copy = BeginCopyFrom(pstate, relation, NULL, NULL, false, NULL, command->attlist,
							 command->options);
		*rows = CopyFrom(copy);
		EndCopyFrom(copy);
		forget_settings(&before);
	}
	PG_FINALLY();
	{
		leave(before);
	}
	PG_END_TRY();
	table_close(relation, NoLock);
	return true;
}

static bool
is_for_users_tables(const TruncateStmt *command)
{
	ListCell *lc;

	foreach(lc, command->relations)
	{
		Oid relation = RangeVarGetRelid(lfirst_node(RangeVar, lc), NoLock, true);

		if (!OidIsValid(relation) || !is_users_table(relation))
			return false;
	}
	return true;
}

static bool
adds_foreign_key(const AlterTableStmt *command)
{
	ListCell *lc;

	foreach(lc, command->cmds)
	{
		const AlterTableCmd *part = lfirst_node(AlterTableCmd, lc);

		if (part->subtype == AT_AddConstraint &&
			castNode(Constraint, part->def)->contype == CONSTR_FOREIGN)
			return true;
	}
	return false;
}

/*
 * Is the command one whose privileges on other tables than the user's own core would look at?  The
 * coordinator has.  What it computes runs as its functions' owners.
 */
static bool
needs_privileges(Node *command)
{
	if (IsA(command, TruncateStmt))
		return is_for_users_tables((TruncateStmt *) command);
	if (IsA(command, VacuumStmt)) /* ANALYZE: core computes it as the table's owner */
		return !((VacuumStmt *) command)->is_vacuumcmd;
	return IsA(command, AlterTableStmt) && adds_foreign_key((AlterTableStmt *) command);
}

static void
call_utility(PlannedStmt *statement, const char *text, bool read_only_tree,
			 ProcessUtilityContext context, ParamListInfo parameters, QueryEnvironment *environment,
			 DestReceiver *receiver, QueryCompletion *completion)
{
	if (previous_utility)
		previous_utility(statement, text, read_only_tree, context, parameters, environment,
						 receiver, completion);
	else
		standard_ProcessUtility(statement, text, read_only_tree, context, parameters, environment,
								receiver, completion);
}

/* SET [LOCAL] of what is no setting of PostgreSQL's, but said to us. */
static bool
is_command(Node *command, const char *name)
{
	return IsA(command, VariableSetStmt) && ((VariableSetStmt *) command)->name != NULL &&
		   strcmp(((VariableSetStmt *) command)->name, name) == 0;
}

/* SET strata_worker.search_path = 'schema' [, ...]; the coordinator repeats it after a rollback. */
static void
set_users_path(const VariableSetStmt *command)
{
	StringInfoData path;

	initStringInfo(&path);
	for (int i = 0; i < list_length(command->args); i++)
		appendStringInfo(&path, "%s%s", i == 0 ? "" : ", ",
						 quote_identifier(read_word(command->args, i)));
	if (users_path != NULL)
		pfree(users_path);
	users_path = MemoryContextStrdup(TopMemoryContext, path.data);
}

/* A command of code, not of the coordinator: does it run inside of what must not run any? */
static void
check_nested_command(Node *command)
{
	if (is_command(command, ROLE_COMMAND) || is_command(command, PATH_COMMAND))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("only the coordinator can say who acts on a worker")));
	check_nothing_is_parsed();
	if (runs_for_users)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("cannot execute %s in a function that runs on a worker",
							   CreateCommandName(command)),
						errhint("A function that runs commands must be declared VOLATILE, not "
								"IMMUTABLE: then the coordinator evaluates it.")));
}

/* COPY FROM; false if the command is another one, or for core. */
static bool
run_copy(Node *command, const char *text, QueryCompletion *completion)
{
	ParseState *pstate;
	uint64 rows = 0;
	bool done;

	if (!IsA(command, CopyStmt))
		return false;
	pstate = make_parsestate(NULL);
	pstate->p_sourcetext = text;
	done = copy_from(pstate, (CopyStmt *) command, &rows);
	free_parsestate(pstate);
	if (done && completion != NULL)
		SetQueryCompletion(completion, CMDTAG_COPY, rows);
	return done;
}

/* Is what the command sets, or its own transactions, all that it is about? */
static bool
keeps_settings(Node *command)
{
	return IsA(command, VariableSetStmt) || IsA(command, TransactionStmt) ||
		   IsA(command, CallStmt) || IsA(command, DoStmt) || !IsTransactionBlock();
}

static void
run_utility(PlannedStmt *statement, const char *text, bool read_only_tree,
			ProcessUtilityContext context, ParamListInfo parameters, QueryEnvironment *environment,
			DestReceiver *receiver, QueryCompletion *completion)
{
	Node *command = statement->utilityStmt;
	bool own = is_own(text) && context == PROCESS_UTILITY_TOPLEVEL;
	bool privileged = own && needs_privileges(command);
	bool guarded = false;
	int settings = 0;
	Scope before;

	if (!is_own(text))
		check_nested_command(command);
	if (own && is_command(command, ROLE_COMMAND))
	{
		set_caller((VariableSetStmt *) command);
		return;
	}
	if (own && is_command(command, PATH_COMMAND))
	{
		set_users_path((VariableSetStmt *) command);
		return;
	}
	if (own && run_copy(command, text, completion))
		return;

	if (own && !keeps_settings(command))
	{
		settings = NewGUCNestLevel();
		if (!IsA(command, CopyStmt) && !IsA(command, ExplainStmt))
			use_users_path();
	}
	if (privileged)
	{
		guarded = function_guard_switch(true);
		before = enter(false, false);
	}
	PG_TRY();
	{
		if (privileged)
			SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID, SECURITY_LOCAL_USERID_CHANGE);
		call_utility(statement, text, read_only_tree, context, parameters, environment, receiver,
					 completion);
		if (settings > 0)
			AtEOXact_GUC(false, settings);
	}
	PG_FINALLY();
	{
		if (privileged)
		{
			leave(before);
			(void) function_guard_switch(guarded);
		}
	}
	PG_END_TRY();
}

/* ----------------------------------------------------------------
 * Transactions
 * ----------------------------------------------------------------
 */

/* Whoever acted does so until the transaction's triggers have run; the session's user prepares it. */
static void
end_transaction(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			if (OidIsValid(caller.user))
				SetUserIdAndSecContext(GetOuterUserId(), 0);
			forget_caller();
			break;
		case XACT_EVENT_ABORT: /* core has restored the user */
			forget_caller();
			break;
		default:
			break;
	}
}

/* Core restores the user of the savepoint; the coordinator names the caller again. */
static void
end_subtransaction(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB && running == 0)
		forget_caller();
}

void
caller_initialize(void)
{
	previous_planner = planner_hook;
	planner_hook = plan_query;
	previous_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = start_query;
	previous_executor_run = ExecutorRun_hook;
	ExecutorRun_hook = run_query;
	previous_executor_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = finish_query;
	previous_executor_end = ExecutorEnd_hook;
	ExecutorEnd_hook = end_query;
	previous_check_permissions = ExecutorCheckPerms_hook;
	ExecutorCheckPerms_hook = check_permissions;
	previous_object_access = object_access_hook;
	object_access_hook = watch_objects;
	previous_needs_hook = needs_fmgr_hook;
	needs_fmgr_hook = needs_hook;
	previous_fmgr_hook = fmgr_hook;
	fmgr_hook = watch_call;
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = run_utility;
	RegisterXactCallback(end_transaction, NULL);
	RegisterSubXactCallback(end_subtransaction, NULL);
}
