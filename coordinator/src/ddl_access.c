/*
 * ddl_access.c
 *		Roles and privileges, the same on all nodes.
 *
 * Sessions log in to the workers as the role whose privileges apply, and so a role and what
 * it was granted must exist there.  GRANT on tables names only tables that the workers
 * have.  Passwords stay on the coordinator: clients never log in to a worker.
 */
#include "postgres.h"

#include "ddl.h"

#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "metadata_catalog.h"

/* ---------------------------------------------------------------- GRANT and REVOKE */

/* SELECT, UPDATE (a, b), ... */
static void
append_privileges(StringInfo sql, List *privileges)
{
	ListCell *cell;

	if (privileges == NIL)
		appendStringInfoString(sql, "ALL PRIVILEGES");
	foreach(cell, privileges)
	{
		const AccessPriv *privilege = lfirst_node(AccessPriv, cell);
		const char *separator = " (";
		ListCell *column;

		appendStringInfo(sql, "%s%s", foreach_current_index(cell) == 0 ? "" : ", ",
						 privilege->priv_name == NULL ? "ALL PRIVILEGES" : privilege->priv_name);
		foreach(column, privilege->cols)
		{
			appendStringInfo(sql, "%s%s", separator, quote_identifier(strVal(lfirst(column))));
			separator = ", ";
		}
		if (privilege->cols != NIL)
			appendStringInfoChar(sql, ')');
	}
}

static void
append_roles(StringInfo sql, List *roles)
{
	ListCell *cell;

	foreach(cell, roles)
		appendStringInfo(sql, "%s%s", foreach_current_index(cell) == 0 ? "" : ", ",
						 ddl_role_name(lfirst_node(RoleSpec, cell)));
}

/* The GRANT or REVOKE for one table. */
static char *
build_grant(const GrantStmt *grant, const char *table_name)
{
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfoString(&sql, grant->is_grant	   ? "GRANT "
								 : grant->grant_option ? "REVOKE GRANT OPTION FOR "
													   : "REVOKE ");
	append_privileges(&sql, grant->privileges);
	appendStringInfo(&sql, " ON TABLE %s %s ", table_name, grant->is_grant ? "TO" : "FROM");
	append_roles(&sql, grant->grantees);
	if (grant->is_grant && grant->grant_option)
		appendStringInfoString(&sql, " WITH GRANT OPTION");
	if (!grant->is_grant && grant->behavior == DROP_CASCADE)
		appendStringInfoString(&sql, " CASCADE");
	return sql.data;
}

/* OIDs of our tables that a GRANT on tables names. */
static List *
granted_tables(const GrantStmt *grant)
{
	List *tables = NIL;
	ListCell *cell;

	if (grant->targtype == ACL_TARGET_ALL_IN_SCHEMA)
	{
		List *all = list_concat(metadata_catalog_tables(CATALOG_KIND_DISTRIBUTED),
								metadata_catalog_tables(CATALOG_KIND_REFERENCE));
		ListCell *schema;

		foreach(schema, grant->objects)
		{
			Oid namespace = get_namespace_oid(strVal(lfirst(schema)), true);

			foreach(cell, all)
			{
				if (get_rel_namespace(lfirst_oid(cell)) == namespace)
					tables = lappend_oid(tables, lfirst_oid(cell));
			}
		}
		return tables;
	}
	foreach(cell, grant->objects)
	{
		Oid relid = RangeVarGetRelid(lfirst_node(RangeVar, cell), NoLock, true);

		if (OidIsValid(relid) && metadata_table(relid) != NULL)
			tables = lappend_oid(tables, relid);
	}
	return tables;
}

/* Do the workers have what a GRANT on other things than tables names? */
static bool
grant_is_everywhere(const GrantStmt *grant)
{
	List *objects = grant->objects;
	ListCell *cell;

	if (grant->targtype == ACL_TARGET_ALL_IN_SCHEMA)
		return ddl_objects_are_everywhere(OBJECT_SCHEMA, objects);
	switch (grant->objtype)
	{
		case OBJECT_SCHEMA:
		case OBJECT_FUNCTION:
		case OBJECT_PROCEDURE:
		case OBJECT_ROUTINE:
			return ddl_objects_are_everywhere(grant->objtype, objects);
		case OBJECT_TYPE:
		case OBJECT_DOMAIN:
			objects = NIL;
			foreach(cell, grant->objects)
				objects = lappend(objects, makeTypeNameFromNameList(lfirst_node(List, cell)));
			return ddl_objects_are_everywhere(grant->objtype, objects);
		default:
			return false;
	}
}

void
ddl_grant(UtilityCall *call)
{
	GrantStmt *grant = castNode(GrantStmt, call->statement->utilityStmt);
	bool everywhere = false;
	List *tables = NIL;
	ListCell *cell;

	if (metadata_all_workers() == NULL || grant->targtype == ACL_TARGET_DEFAULTS)
	{
		ddl_run_locally(call);
		return;
	}
	if (grant->objtype == OBJECT_TABLE)
		tables = granted_tables(grant);
	else if (grant->objtype != OBJECT_SEQUENCE)
		everywhere = grant_is_everywhere(grant);

	ddl_run_locally(call);
	foreach(cell, tables)
		ddl_send_everywhere(build_grant(grant, ddl_relation_name(lfirst_oid(cell))));
	if (everywhere)
		ddl_send_everywhere(ddl_statement_text(call));
}

/* ---------------------------------------------------------------- roles */

/* The attributes among the options of CREATE or ALTER ROLE, without the password. */
static char *
format_role_attributes(List *options)
{
	static const struct
	{
		const char *option;
		const char *keyword;
	} flags[] = {
		{"superuser", "SUPERUSER"}, {"inherit", "INHERIT"}, {"createrole", "CREATEROLE"},
		{"createdb", "CREATEDB"},	{"canlogin", "LOGIN"},	{"isreplication", "REPLICATION"},
		{"bypassrls", "BYPASSRLS"},
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
		if (strcmp(option->defname, "connectionlimit") == 0)
			appendStringInfo(&sql, " CONNECTION LIMIT %d", intVal(option->arg));
		else if (strcmp(option->defname, "validUntil") == 0)
			appendStringInfo(&sql, " VALID UNTIL %s", quote_literal_cstr(strVal(option->arg)));
	}
	return sql.data;
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
			appendStringInfoString(sql, "; GRANT ");
			append_roles(sql, (List *) option->arg);
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

/* CREATE ROLE, USER, GROUP; a role that a worker has already gets the same attributes. */
void
ddl_create_role(UtilityCall *call)
{
	CreateRoleStmt *create = castNode(CreateRoleStmt, call->statement->utilityStmt);
	const char *role = pstrdup(quote_identifier(create->role));
	StringInfoData sql;
	char *attributes;
	char *body;

	ddl_run_locally(call);
	attributes = psprintf("%s%s", create->stmt_type == ROLESTMT_USER ? " LOGIN" : "",
						  format_role_attributes(create->options));
	body = psprintf("BEGIN IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = %s)"
					" THEN ALTER ROLE %s%s; ELSE CREATE ROLE %s%s; END IF; END",
					quote_literal_cstr(create->role), role,
					attributes[0] == '\0' ? " NOLOGIN" : attributes, role, attributes);
	initStringInfo(&sql);
	appendStringInfo(&sql, "DO %s", quote_literal_cstr(body));
	append_memberships(&sql, role, create->options);
	ddl_send_everywhere(sql.data);
}

/* ALTER ROLE; ALTER GROUP changes members and is sent as it is. */
void
ddl_alter_role(UtilityCall *call)
{
	AlterRoleStmt *alter = castNode(AlterRoleStmt, call->statement->utilityStmt);
	bool members = false;
	char *attributes = format_role_attributes(alter->options);
	ListCell *cell;

	foreach(cell, alter->options)
		members |= strcmp(lfirst_node(DefElem, cell)->defname, "rolemembers") == 0;
	ddl_run_locally(call);
	if (members)
		ddl_send_everywhere(ddl_statement_text(call));
	else if (attributes[0] != '\0')
		ddl_send_everywhere(psprintf("ALTER ROLE %s%s", ddl_role_name(alter->role), attributes));
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
		ddl_send_everywhere(sql.data);
}

/* GRANT of roles, DROP OWNED, REASSIGN OWNED: the same text everywhere. */
void
ddl_send_role_command(UtilityCall *call)
{
	ddl_run_locally(call);
	ddl_send_everywhere(ddl_statement_text(call));
}
