/*
 * caller.c
 *		As whom the statements of a coordinator run here.
 *
 * PostgreSQL checks privileges on tables as the user, or as the owner of the view that names the table, and runs
 * all code as the user.  The coordinator has made the first of these checks, columns and policies included, before it
 * sends anything.  Here nobody is granted anything on tables, and code runs as the coordinator's user.
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
 *
 * Names.  The coordinator writes what is PostgreSQL's own without its schema, and so its statements are parsed with a
 * search_path of pg_catalog alone; else an operator of the caller's would take the place of one of a view.  The
 * path of the session counts for the code that runs, and for commands as users have typed them:
 *
 *		SET strata_worker.search_path = 'schema, ...'
 *
 * So it is with the settings that input functions obey (strata_worker.array_nulls, strata_worker.xmloption):
 * values that the coordinator writes, constants and rows of COPY, are read under fixed ones.
 *
 * Settings.  What code inside of a statement sets ends with the statement: the coordinator would not know of it, and
 * whoever acts in the session next would find a search_path that is not his.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "parser/parser.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/xml.h"

#include "compat.h"
#include "caller.h"
#include "function_guard.h"
#include "session_mark.h"

#define ROLE_COMMAND "strata_worker.role"
#define SETTING_PREFIX "strata_worker."

/* As the coordinator sets it when it connects. */
#define PARSER_PATH "pg_catalog, pg_temp"

/* A setting of the coordinator's session. */
typedef struct UsersSetting
{
	const char *name;
	const char
		*fixed;	 /* while statements are parsed, as the coordinator sets it when it connects */
	char *value; /* NULL: not known */
} UsersSetting;

/* Who was named for the statements to come; user is InvalidOid when nobody was, and the login's user acts. */
typedef struct Caller
{
	Oid user;
	int security_context;
	bool any_schema;
} Caller;

bool caller_runs_for_users = false;

static Caller caller = {InvalidOid};
static UsersSetting users_settings[] = {
	{"search_path", PARSER_PATH},
	{"array_nulls", "on"},
	{"xmloption", "content"},
};
static int running = 0; /* scopes */
static CommandState command_state = COMMAND_NONE;
static int key_queries = 0; /* of foreign keys, and those inside of them */
static int upkeep = 0;		/* functions that keep partial aggregates */
static bool known_conforming_strings = true;

bool
caller_is_own(const char *text)
{
	return text != NULL && text == debug_query_string && session_is_marked();
}

/* ----------------------------------------------------------------
 * Scopes
 * ----------------------------------------------------------------
 */

static void
use_setting(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
							 false);
}

void
caller_use_settings(void)
{
	for (int i = 0; i < lengthof(users_settings); i++)
	{
		const UsersSetting *setting = &users_settings[i];

		if (setting->value != NULL && strcmp(setting->value, setting->fixed) != 0)
			use_setting(setting->name, setting->value);
	}
}

void
caller_use_fixed_input(void)
{
	if (!Array_nulls)
		use_setting("array_nulls", "on");
	if (xmloption != XMLOPTION_CONTENT)
		use_setting("xmloption", "content");
}

static Scope
enter(void)
{
	Scope before = {
		.read_only = XactReadOnly, .for_users = caller_runs_for_users, .key_queries = key_queries};

	GetUserIdAndSecContext(&before.user, &before.security_context);
	running++;
	return before;
}

/* The caller acts. */
Scope
caller_enter(bool for_users, bool read_only)
{
	Scope before = enter();

	if (OidIsValid(caller.user) && caller.any_schema)
		SetUserIdAndSecContext(caller.user, caller.security_context);
	before.settings = for_users ? NewGUCNestLevel() : 0;
	if (for_users)
		caller_use_settings();
	caller_runs_for_users |= for_users;
	XactReadOnly |= read_only;
	return before;
}

bool
caller_runs_keys(void)
{
	return InNoForceRLSOperation() && (session_is_marked() || function_guard_is_up());
}

Scope
caller_enter_key_query(void)
{
	Scope before = enter();

	key_queries++;
	return before;
}

/* It was done.  After an error the transaction's abort takes settings back. */
void
caller_forget_settings(const Scope *scope)
{
	if (scope->settings > 0)
		AtEOXact_GUC(false, scope->settings);
}

void
caller_leave(Scope before)
{
	SetUserIdAndSecContext(before.user, before.security_context);
	caller_runs_for_users = before.for_users;
	key_queries = before.key_queries;
	XactReadOnly = before.read_only;
	running--;
}

CommandState
caller_classify_command(bool privileged)
{
	if (command_state == COMMAND_ORDINARY || (!privileged && !superuser()))
		return COMMAND_ORDINARY;
	return COMMAND_PRIVILEGED;
}

CommandState
caller_set_command(CommandState state)
{
	CommandState before = command_state;

	command_state = state;
	return before;
}

bool
caller_is_in_key_query(void)
{
	return key_queries > 0;
}

bool
caller_is_key_query(void)
{
	return key_queries == 1 && InNoForceRLSOperation();
}

void
caller_begin_upkeep(void)
{
	upkeep++;
}

void
caller_end_upkeep(void)
{
	upkeep--;
}

/*
 * Does a process of this server's own work on tables, as autovacuum does?  It computes indexes and statistics of
 * shards, and knows no coordinator.  (Parallel workers are counted, too, which do not know of the leader's command.)
 */
static bool
is_background_maintenance(void)
{
	return (MyBackendType == B_AUTOVAC_WORKER || MyBackendType == B_BG_WORKER) &&
		   OidIsValid(get_namespace_oid("strata_worker", true));
}

/* A restricted operation is a table owner's code, whoever's function that has called by now. */
bool
caller_is_watched(void)
{
	if (caller_runs_for_users || key_queries > 0)
		return true;
	if (command_state == COMMAND_ORDINARY)
		return upkeep == 0;
	if (InSecurityRestrictedOperation() && (command_state == COMMAND_PRIVILEGED ||
											function_guard_is_up() || is_background_maintenance()))
		return true;
	return command_state == COMMAND_PRIVILEGED && !superuser();
}

bool
caller_is_parsing(void)
{
	return session_is_marked() && !IsParallelWorker() && running == 0 &&
		   command_state == COMMAND_NONE && IsTransactionBlock() && !InNoForceRLSOperation();
}

void
caller_check_nothing_is_parsed(void)
{
	if (caller_is_parsing() && !superuser())
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("cannot run a function on a worker while a statement is parsed"),
						errdetail("A constant of the statement is checked by a function.")));
}

void
caller_check_settings(void)
{
	if (running == 0 && users_settings[0].value != NULL &&
		(!Array_nulls || xmloption != XMLOPTION_CONTENT ||
		 pg_get_client_encoding() != GetDatabaseEncoding() ||
		 strcmp(namespace_search_path, PARSER_PATH) != 0 ||
		 compat_conforming_strings != known_conforming_strings))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("a function has changed settings of the coordinator's session")));
}

void
caller_end_statements(void)
{
	if (OidIsValid(caller.user) && caller.any_schema)
	{
		caller.any_schema = false;
		SetUserIdAndSecContext(caller.user, caller.security_context);
	}
}

/* ----------------------------------------------------------------
 * Commands
 * ----------------------------------------------------------------
 */

static const char *
read_word(List *words, int i)
{
	const A_Const *word = castNode(A_Const, list_nth(words, i));

	if (word->isnull || !IsA(&word->val, String))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("\"" ROLE_COMMAND "\" takes strings")));
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

/* SET strata_worker.search_path = '...'; the coordinator repeats it after a rollback. */
static void
set_users_setting(UsersSetting *setting, const VariableSetStmt *command)
{
	char *value = MemoryContextStrdup(TopMemoryContext, read_word(command->args, 0));

	if (setting->value != NULL)
		pfree(setting->value);
	setting->value = value;
}

/* The setting that a command is about; NULL if it is another one's. */
static UsersSetting *
find_users_setting(const VariableSetStmt *command)
{
	Size length = strlen(SETTING_PREFIX);

	if (command->name == NULL || strncmp(command->name, SETTING_PREFIX, length) != 0)
		return NULL;
	for (int i = 0; i < lengthof(users_settings); i++)
	{
		if (strcmp(command->name + length, users_settings[i].name) == 0)
			return &users_settings[i];
	}
	return NULL;
}

static bool
names_caller(const VariableSetStmt *command)
{
	return command->name != NULL && strcmp(command->name, ROLE_COMMAND) == 0;
}

bool
caller_is_command(Node *command)
{
	return IsA(command, VariableSetStmt) && (names_caller((VariableSetStmt *) command) ||
											 find_users_setting((VariableSetStmt *) command));
}

void
caller_note_setting(void)
{
	known_conforming_strings = compat_conforming_strings;
}

void
caller_execute(VariableSetStmt *command)
{
	if (names_caller(command))
		set_caller(command);
	else
		set_users_setting(find_users_setting(command), command);
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
			if (session_is_marked() && !IsParallelWorker())
				SetUserIdAndSecContext(GetOuterUserId(), 0);
			forget_caller();
			upkeep = 0;
			break;
		case XACT_EVENT_ABORT: /* core has restored the user */
			forget_caller();
			upkeep = 0;
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
	RegisterXactCallback(end_transaction, NULL);
	RegisterSubXactCallback(end_subtransaction, NULL);
}
