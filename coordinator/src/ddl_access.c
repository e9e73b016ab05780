/*
 * ddl_access.c
 *		Privileges, the same on all nodes.
 *
 * Sessions log in to the workers as the role whose privileges apply, and so what
 * it was granted must be granted there, too.  GRANT on tables names only tables that the
 * workers have.
 */
#include "postgres.h"

#include "ddl.h"

#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "lib/stringinfo.h"
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
		case OBJECT_PARAMETER_ACL:
			return true;
		case OBJECT_LANGUAGE:
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

	ddl_lock_for_change();
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
		ddl_send_everywhere(ddl_text_with_role_names(call, grant->grantees));
}
