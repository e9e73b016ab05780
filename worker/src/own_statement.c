/*
 * own_statement.c
 *		The coordinator's own statements: their tables are checked as their owners.
 *
 * Own statements.  What a session that is marked as a coordinator's (session_mark.c) has been sent by its client, as it was
 * parsed: the text is that of the message, by its address.  Nothing that runs inside of it has that text, at whatever
 * depth: SQL of functions, of CHECK constraints during a COPY, of what the planner evaluates.
 *
 *	- Tables that an own statement names are checked as their owners, as those of a view are: the planner's hook says so in
 *	  the query before it is planned.  What the planner inlines from a SQL function later has no such mark.
 *	- COPY FROM and TRUNCATE, which check privileges by themselves, are executed here.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "commands/copy.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/planner.h"
#include "parser/parse_node.h"
#include "parser/parse_relation.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "caller.h"
#include "compat.h"
#include "function_guard.h"
#include "relation_owner.h"
#include "session_mark.h"
#include "slow_reader.h"
#include "take_row.h"

/* What a statement asks of the tables that it names. */
typedef struct Access
{
	bool users_tables; /* it names some */
	bool writes;
} Access;

static planner_hook_type previous_planner = NULL;
static ExecutorStart_hook_type previous_executor_start = NULL;
static ExecutorRun_hook_type previous_executor_run = NULL;
static ExecutorFinish_hook_type previous_executor_finish = NULL;
static ExecutorEnd_hook_type previous_executor_end = NULL;
static ProcessUtility_hook_type previous_utility = NULL;

/* ----------------------------------------------------------------
 * Tables
 * ----------------------------------------------------------------
 */

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

static void
note_access(Access *access, Oid relation, AclMode required)
{
	if (required == 0 || !is_users_table(relation))
		return;
	access->users_tables = true;
	access->writes |= (required & ~ACL_SELECT) != 0;
}

/* Have the tables of a query, at all its levels, checked as their owners; let it take rows away. */
static bool
borrow_owners_rights(Node *node, Access *access)
{
	ListCell *lc;

	if (node == NULL)
		return false;
	if (IsA(node, FuncExpr))
		take_row_allow((FuncExpr *) node);
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
			permissions->checkAsUser = get_relation_owner(rte->relid);
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

/* ----------------------------------------------------------------
 * Planner and executor
 * ----------------------------------------------------------------
 */

static PlannedStmt *
call_planner(COMPAT_PLAN_ARGUMENTS(query))
{
	/* a parallel worker takes its query, which it cannot tell from an own one, out of what is watched */
	if (caller_is_watched() && !caller_is_own(query_string))
		cursor_options &= ~CURSOR_OPT_PARALLEL_OK;
	return previous_planner ? previous_planner(COMPAT_PASS_PLAN(query))
							: standard_planner(COMPAT_PASS_PLAN(query));
}

static PlannedStmt *
plan_query(COMPAT_PLAN_ARGUMENTS(query))
{
	Access access = {.writes = query->commandType != CMD_SELECT || query->hasModifyingCTE};
	bool own = caller_is_own(query_string);
	PlannedStmt *volatile plan;
	Scope before;

	if (!own && !caller_runs_keys())
	{
		caller_check_nothing_is_parsed();
		return call_planner(COMPAT_PASS_PLAN(query));
	}
	if (own)
	{
		(void) borrow_owners_rights((Node *) query, &access);
		slow_reader_expect(!access.writes && query->rowMarks == NIL);
	}
	if (access.users_tables)
		caller_check_settings();
	/* constants are folded by functions, those of what a foreign key compares, too */
	before = own ? caller_enter(access.users_tables, access.users_tables && !access.writes)
				 : caller_enter_key_query();
	PG_TRY();
	{
		plan = call_planner(COMPAT_PASS_PLAN(query));
		caller_forget_settings(&before);
	}
	PG_FINALLY();
	{
		caller_leave(before);
	}
	PG_END_TRY();
	return plan;
}

/* In the extended protocol a portal has a copy of the message's text while it is bound. */
static bool
is_portals_copy(const char *text)
{
	return text != NULL && debug_query_string != NULL && strcmp(text, debug_query_string) == 0;
}

/*
 * Run the rest of a hook in the scope of the query: as the caller when it is an own statement, and as what it is when a
 * foreign key has it run.
 */
#define WITHIN_SCOPE(query, call)                                                  \
	do                                                                             \
	{                                                                              \
		bool own_ = caller_is_own((query)->sourceText);                            \
		if (own_ || caller_runs_keys())                                            \
		{                                                                          \
			Access access_ = {0};                                                  \
			Scope before_;                                                         \
			if (own_)                                                              \
				access_ = read_access((query)->plannedstmt);                       \
			before_ = own_ ? caller_enter(access_.users_tables,                    \
										  access_.users_tables && !access_.writes) \
						   : caller_enter_key_query();                             \
			PG_TRY();                                                              \
			{                                                                      \
				call;                                                              \
				caller_forget_settings(&before_);                                  \
			}                                                                      \
			PG_FINALLY();                                                          \
			{                                                                      \
				caller_leave(before_);                                             \
			}                                                                      \
			PG_END_TRY();                                                          \
		}                                                                          \
		else                                                                       \
		{                                                                          \
			if (!is_portals_copy((query)->sourceText))                             \
				caller_check_nothing_is_parsed();                                  \
			call;                                                                  \
		}                                                                          \
	} while (0)

/* Of a query that was started inside of a user's statement: a cursor, which could be run when that has ended. */
#define STARTED_FOR_USERS 0x40000000

static void
call_start(QueryDesc *query, int eflags)
{
	if (caller_runs_for_users)
		eflags |= STARTED_FOR_USERS;
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
call_run(COMPAT_RUN_ARGUMENTS(query))
{
	if ((query->estate->es_top_eflags & STARTED_FOR_USERS) != 0 && !caller_runs_for_users)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot run a cursor on a worker after the statement that opened it")));
	if (previous_executor_run)
		previous_executor_run(COMPAT_PASS_RUN(query));
	else
		standard_ExecutorRun(COMPAT_PASS_RUN(query));
}

static void
run_query(COMPAT_RUN_ARGUMENTS(query))
{
	WITHIN_SCOPE(query, call_run(COMPAT_PASS_RUN(query)));
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
	if (caller_is_own(query->sourceText))
		slow_reader_sent(query->estate->es_processed);
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

/* ----------------------------------------------------------------
 * Utility commands
 * ----------------------------------------------------------------
 */

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
	before = caller_enter(true, false);
	PG_TRY();
	{
		caller_use_fixed_input();
		copy = BeginCopyFrom(pstate, relation, NULL, NULL, false, NULL, command->attlist,
							 command->options);
		*rows = CopyFrom(copy);
		EndCopyFrom(copy);
		caller_forget_settings(&before);
	}
	PG_FINALLY();
	{
		caller_leave(before);
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

/* Is the command about the session and its transactions, or a call of the coordinator's own? */
static bool
is_about_session(Node *command)
{
	return IsA(command, VariableSetStmt) || IsA(command, TransactionStmt) ||
		   IsA(command, CallStmt) || IsA(command, DoStmt);
}

static bool
ends_transaction(Node *command)
{
	return IsA(command, TransactionStmt) &&
		   (((TransactionStmt *) command)->kind == TRANS_STMT_COMMIT ||
			((TransactionStmt *) command)->kind == TRANS_STMT_PREPARE);
}

/* A command that computes nothing that users have written for their tables. */
static bool
is_service(Node *command)
{
	return is_about_session(command) || IsA(command, CreateExtensionStmt) ||
		   IsA(command, AlterExtensionStmt);
}

/* A command of an administrator's by hand that computes owners' indexes and statistics, on a worker. */
static bool
is_maintenance(Node *command)
{
	return (IsA(command, VacuumStmt) || IsA(command, ReindexStmt) ||
			IsA(command, CompatClusterStmt) || IsA(command, IndexStmt)) &&
		   IsTransactionState() && OidIsValid(get_namespace_oid("strata_worker", true));
}

static void
run_utility(PlannedStmt *statement, const char *text, bool read_only_tree,
			ProcessUtilityContext context, ParamListInfo parameters, QueryEnvironment *environment,
			DestReceiver *receiver, QueryCompletion *completion)
{
	Node *command = statement->utilityStmt;
	bool own = caller_is_own(text) && context == PROCESS_UTILITY_TOPLEVEL;
	bool privileged = own && needs_privileges(command);
	bool guarded = false;
	bool is_parsed_inside = IsA(command, CopyStmt) || IsA(command, ExplainStmt);
	CommandState command_before = COMMAND_NONE;
	bool sets_state;
	int settings = 0;
	Scope before;

	if (!caller_is_own(text))
		users_code_check_command(command);
	if (own && !is_parsed_inside)
		slow_reader_expect(false);
	if (own && caller_is_command(command))
	{
		caller_execute((VariableSetStmt *) command);
		return;
	}
	if (own && run_copy(command, text, completion))
		return;

	if (own && ends_transaction(command))
		caller_end_statements();
	if (own && IsTransactionBlock() && !is_about_session(command))
	{
		settings = NewGUCNestLevel();
		if (!is_parsed_inside)
			caller_use_settings();
	}
	if (session_is_marked())
		sets_state = own ? !is_parsed_inside : !is_service(command);
	else
		sets_state = is_maintenance(command);
	if (sets_state)
		command_before = caller_set_command(
			is_service(command) ? COMMAND_SERVICE : caller_classify_command(privileged));
	if (privileged)
	{
		guarded = function_guard_switch(true);
		before = caller_enter(false, false);
	}
	PG_TRY();
	{
		if (privileged)
			SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID, SECURITY_LOCAL_USERID_CHANGE);
		if (session_is_marked())
			constraint_names_free(command);
		call_utility(statement, text, read_only_tree, context, parameters, environment, receiver,
					 completion);
		if (settings > 0)
			AtEOXact_GUC(false, settings);
		else if (own && IsA(command, VariableSetStmt))
			caller_note_setting();
	}
	PG_FINALLY();
	{
		if (sets_state)
			(void) caller_set_command(command_before);
		if (privileged)
		{
			caller_leave(before);
			(void) function_guard_switch(guarded);
		}
	}
	PG_END_TRY();
}

void
own_statement_initialize(void)
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
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = run_utility;
}
