/*
 * ddl_role.c
 *		Roles and memberships, the same on all nodes.
 *
 * Code runs on the workers as the current user.  So each role exists there, with the attributes, memberships and
 * settings that it has here, but for memberships that only open tables (is_about_tables).  The commands
 * travel in the user's transaction, as the user who gave them.
 *
 * What concerns how clients log in stays here, because they never log in to a worker: PASSWORD
 * (nothing derived from one leaves this server), VALID UNTIL, CONNECTION LIMIT and LOGIN.
 * There every role may log in: maintenance acts as a table's owner, who often is a role without login here.  The
 * workers' pg_hba.conf lets only the coordinator in.
 *
 * Settings of roles that name what a node has of its own stay here, too (setting_travels).
 *
 * Roles belong to the whole server, but commands given in another database of it do not pass
 * here.  strata.sync_roles() finds and mends what they changed; add_worker() does the
 * same for a new worker (SQL function strata.role_commands).
 */
#include "postgres.h"

#include "ddl/ddl.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

#include "server/argument.h"
#include "stream/remote_ddl.h"

PG_FUNCTION_INFO_V1(strata_role_setting);

/* ---------------------------------------------------------------- roles */

/* All attributes that workers know of, as strata.role_attributes() writes them. */
static char *
get_role_attributes(const char *role)
{
	HeapTuple tuple = SearchSysCache1(AUTHNAME, CStringGetDatum(role));
	Form_pg_authid form;
	char *attributes;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for role \"%s\"", role);
	form = (Form_pg_authid) GETSTRUCT(tuple);
	attributes = psprintf("%sSUPERUSER %sINHERIT %sCREATEROLE %sCREATEDB %sREPLICATION %sBYPASSRLS",
						  form->rolsuper ? "" : "NO", form->rolinherit ? "" : "NO",
						  form->rolcreaterole ? "" : "NO", form->rolcreatedb ? "" : "NO",
						  form->rolreplication ? "" : "NO", form->rolbypassrls ? "" : "NO");
	ReleaseSysCache(tuple);
	return attributes;
}

/* The attributes among the options of ALTER ROLE. */
static char *
format_role_attributes(List *options)
{
	static const struct
	{
		const char *option;
		const char *keyword;
	} flags[] = {
		{"superuser", "SUPERUSER"}, {"inherit", "INHERIT"},			  {"createrole", "CREATEROLE"},
		{"createdb", "CREATEDB"},	{"isreplication", "REPLICATION"}, {"bypassrls", "BYPASSRLS"},
	};
	StringInfoData sql;
	ListCell *cell;

	initStringInfo(&sql);
	foreach(cell, options)
	{
		DefElem *option = lfirst_node(DefElem, cell);

		for (int i = 0; i < lengthof(flags); i++)
		{
			if (strcmp(option->defname, flags[i].option) == 0)
				appendStringInfo(&sql, " %s%s", boolVal(option->arg) ? "" : "NO", flags[i].keyword);
		}
	}
	return sql.data;
}

/* Its members may use all tables, which is decided here alone: no worker knows of the membership. */
static bool
is_about_tables(const char *role)
{
	return strcmp(role, "pg_read_all_data") == 0 || strcmp(role, "pg_write_all_data") == 0;
}

/* The roles (RoleSpec) whose members workers know. */
static List *
without_roles_about_tables(List *roles)
{
	List *result = NIL;
	ListCell *cell;

	foreach(cell, roles)
	{
		RoleSpec *role = lfirst_node(RoleSpec, cell);

		if (role->roletype != ROLESPEC_CSTRING || !is_about_tables(role->rolename))
			result = lappend(result, role);
	}
	return result;
}

static void
append_roles(StringInfo sql, List *roles)
{
	ListCell *cell;

	foreach(cell, roles)
		appendStringInfo(sql, "%s%s", foreach_current_index(cell) == 0 ? "" : ", ",
						 ddl_role_name(lfirst_node(RoleSpec, cell)));
}

/* GRANTs for the membership options of CREATE ROLE. */
static void
append_memberships(StringInfo sql, const char *role, List *options)
{
	ListCell *cell;

	foreach(cell, options)
	{
		DefElem *option = lfirst_node(DefElem, cell);
		bool admin = strcmp(option->defname, "adminmembers") == 0;

		if (strcmp(option->defname, "addroleto") == 0)
		{
			List *granted = without_roles_about_tables((List *) option->arg);

			if (granted == NIL)
				continue;
			appendStringInfoString(sql, "; GRANT ");
			append_roles(sql, granted);
			appendStringInfo(sql, " TO %s", role);
		}
		else if (admin || strcmp(option->defname, "rolemembers") == 0)
		{
			appendStringInfo(sql, "; GRANT %s TO ", role);
			append_roles(sql, (List *) option->arg);
			appendStringInfoString(sql, admin ? " WITH ADMIN OPTION" : "");
		}
	}
}

/* CREATE ROLE, USER, GROUP. */
void
ddl_create_role(UtilityCall *call)
{
	CreateRoleStmt *create = castNode(CreateRoleStmt, call->statement->utilityStmt);
	StringInfoData sql;

	ddl_run_locally(call);
	CommandCounterIncrement();
	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT strata_worker.create_role(%s, %s)",
					 quote_literal_cstr(create->role),
					 quote_literal_cstr(get_role_attributes(create->role)));
	append_memberships(&sql, quote_identifier(create->role), create->options);
	remote_ddl_send(sql.data);
}

/* ALTER ROLE; ALTER GROUP changes members. */
void
ddl_alter_role(UtilityCall *call)
{
	AlterRoleStmt *alter = castNode(AlterRoleStmt, call->statement->utilityStmt);
	char *attributes = format_role_attributes(alter->options);
	char *text = NULL;
	ListCell *cell;

	foreach(cell, alter->options)
	{
		DefElem *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, "rolemembers") == 0)
			text = ddl_text_with_role_names(call,
											lappend(list_copy((List *) option->arg), alter->role));
	}
	if (text == NULL && attributes[0] != '\0')
		text = psprintf("ALTER ROLE %s%s", ddl_role_name(alter->role), attributes);
	ddl_run_locally(call);
	if (text != NULL)
		remote_ddl_send(text);
}

void
ddl_drop_role(UtilityCall *call)
{
	DropRoleStmt *drop = castNode(DropRoleStmt, call->statement->utilityStmt);
	StringInfoData sql;
	ListCell *cell;

	/* Names are taken before the roles are gone. */
	initStringInfo(&sql);
	foreach(cell, drop->roles)
	{
		const RoleSpec *role = lfirst_node(RoleSpec, cell);

		if (role->roletype == ROLESPEC_CSTRING)
			appendStringInfo(&sql, "%s%s", sql.len == 0 ? "DROP ROLE IF EXISTS " : ", ",
							 quote_identifier(role->rolename));
	}
	ddl_run_locally(call);
	if (sql.len > 0)
		remote_ddl_send(sql.data);
}

/*
 * What makes of a GRANT of roles the one that workers get: "" if nothing is to be added, NULL if nothing
 * at all is to be sent.
 */
static char *
take_back_roles_about_tables(const GrantRoleStmt *grant)
{
	StringInfoData sql;
	int count = 0;
	ListCell *cell;

	initStringInfo(&sql);
	foreach(cell, grant->granted_roles)
	{
		const char *role = lfirst_node(AccessPriv, cell)->priv_name;

		if (!is_about_tables(role))
			continue;
		count++;
		if (!grant->is_grant)
			continue;
		appendStringInfo(&sql, "; REVOKE %s FROM ", role);
		append_roles(&sql, grant->grantee_roles);
	}
	return count < list_length(grant->granted_roles) ? sql.data : NULL;
}

/* GRANT and REVOKE of roles, DROP OWNED, REASSIGN OWNED: the same text everywhere. */
void
ddl_send_role_command(UtilityCall *call)
{
	const char *rest = "";
	Node *statement = call->statement->utilityStmt;
	List *roles = NIL;
	char *text;

	if (IsA(statement, GrantRoleStmt))
		roles = lappend(list_copy(castNode(GrantRoleStmt, statement)->grantee_roles),
						castNode(GrantRoleStmt, statement)->grantor);
	else if (IsA(statement, DropOwnedStmt))
		roles = castNode(DropOwnedStmt, statement)->roles;
	else if (IsA(statement, ReassignOwnedStmt))
		roles = lappend(list_copy(castNode(ReassignOwnedStmt, statement)->roles),
						castNode(ReassignOwnedStmt, statement)->newrole);
	if (IsA(statement, GrantRoleStmt))
		rest = take_back_roles_about_tables((GrantRoleStmt *) statement);
	text = ddl_text_with_role_names(call, roles);
	ddl_run_locally(call);
	if (rest != NULL)
		remote_ddl_send(psprintf("%s%s", text, rest));
}

/* ---------------------------------------------------------------- settings of roles */

/*
 * Has a setting of a role its meaning on the workers, too?  Not if it names what a node has
 * of its own, or says who the session is; and custom settings are read here, before SQL travels.
 */
static bool
setting_travels(const char *name)
{
	static const char *const local[] = {
		"role",
		"session_authorization",
		"default_tablespace",
		"temp_tablespaces",
		"default_table_access_method",
		"local_preload_libraries",
		"session_preload_libraries",
		"dynamic_library_path",
		"log_directory",
	};

	for (int i = 0; i < lengthof(local); i++)
	{
		if (pg_strcasecmp(name, local[i]) == 0)
			return false;
	}
	return strchr(name, '.') == NULL || pg_strncasecmp(name, "strata_columnar.", 16) == 0;
}

/* Custom settings have names of several parts. */
static char *
quote_setting_name(const char *name)
{
	StringInfoData quoted;
	char *rest = pstrdup(name);
	char *part;

	initStringInfo(&quoted);
	while ((part = strsep(&rest, ".")) != NULL)
		appendStringInfo(&quoted, "%s%s", quoted.len > 0 ? "." : "", quote_identifier(part));
	return quoted.data;
}

/* SET name = value as it stands in a command; value as the catalog stores it. */
static char *
format_assignment(const char *name, const char *value)
{
	int flags = GetConfigOptionFlags(name, true);
	StringInfoData sql;
	List *elements = NIL;
	ListCell *cell;

	initStringInfo(&sql);
	appendStringInfo(&sql, "SET %s = ", quote_setting_name(name));
	if ((flags & GUC_LIST_QUOTE) == 0 || !SplitGUCList(pstrdup(value), ',', &elements))
	{
		appendStringInfoString(&sql, quote_literal_cstr(value));
		return sql.data;
	}
	foreach(cell, elements)
		appendStringInfo(&sql, "%s%s", foreach_current_index(cell) == 0 ? "" : ", ",
						 quote_literal_cstr(lfirst(cell)));
	if (elements == NIL)
		appendStringInfoString(&sql, "''");
	return sql.data;
}

/* ALTER ROLE ... [IN DATABASE ...] <action> for the workers. */
static char *
format_setting_command(const char *role, bool in_database, const char *action)
{
	if (in_database)
		return psprintf("SELECT strata_worker.alter_role_in_database(%s, %s)",
						quote_literal_cstr(role), quote_literal_cstr(action));
	return psprintf("ALTER ROLE %s %s", quote_identifier(role), action);
}

/*
 * ALTER ROLE ... SET and RESET.  Settings of all roles (ALTER ROLE ALL, ALTER DATABASE) are
 * configuration of this server, as postgresql.conf is.
 */
void
ddl_alter_role_set(UtilityCall *call)
{
	AlterRoleSetStmt *alter = castNode(AlterRoleSetStmt, call->statement->utilityStmt);
	const VariableSetStmt *set = alter->setstmt;
	const char *action = NULL;

	ddl_run_locally(call);
	if (alter->role == NULL || metadata_all_workers() == NULL ||
		(alter->database != NULL && strcmp(alter->database, get_database_name(MyDatabaseId)) != 0))
		return;

	if (set->kind == VAR_RESET_ALL)
		action = "RESET ALL";
	else if (setting_travels(set->name))
	{
		char *value = set->kind == VAR_SET_VALUE || set->kind == VAR_SET_CURRENT
						  ? ExtractSetVariableArgs(alter->setstmt)
						  : NULL;

		action = value != NULL ? format_assignment(set->name, value)
							   : psprintf("RESET %s", quote_setting_name(set->name));
	}
	if (action != NULL)
		remote_ddl_send(
			format_setting_command(GetUserNameFromId(get_rolespec_oid(alter->role, false), false),
								   alter->database != NULL, action));
}

/*
 * role_setting(role, name, in_database, value): the command for workers that sets it, or resets it
 * when the value is NULL; NULL when the setting stays here.
 */
Datum
strata_role_setting(PG_FUNCTION_ARGS)
{
	char *role = argument_get_text(fcinfo, 0, "role");
	char *name = argument_get_text(fcinfo, 1, "name");
	bool in_database = !PG_ARGISNULL(2) && PG_GETARG_BOOL(2);
	char *action;

	if (!setting_travels(name))
		PG_RETURN_NULL();
	if (PG_ARGISNULL(3))
		action = psprintf("RESET %s", quote_setting_name(name));
	else
		action = format_assignment(name, argument_get_text(fcinfo, 3, "value"));
	PG_RETURN_TEXT_P(cstring_to_text(format_setting_command(role, in_database, action)));
}
