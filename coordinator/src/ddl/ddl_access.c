/*
 * ddl_access.c
 *		Privileges on what code names, the same on all nodes.
 *
 * Code runs on the workers as the current user, and so what he was granted on functions, types, schemas and languages
 * must be granted there, too.  Privileges on tables, their columns and sequences are checked here, before anything
 * is sent, and granted to nobody there: worker/src/own_statement.c.
 */
#include "postgres.h"

#include "ddl/ddl.h"

#include "catalog/objectaddress.h"
#include "nodes/makefuncs.h"

#include "cluster/object_place.h"
#include "stream/remote_ddl.h"

/* ---------------------------------------------------------------- GRANT and REVOKE */

/* Which of the objects that a GRANT names, other than tables, the workers have; *all: those are all there are. */
static List *
find_granted_objects(const GrantStmt *grant, bool *all)
{
	List *objects = grant->objects;
	ListCell *cell;

	if (grant->targtype == ACL_TARGET_ALL_IN_SCHEMA)
		return object_place_everywhere_of(OBJECT_SCHEMA, objects, all);
	switch (grant->objtype)
	{
		case OBJECT_LANGUAGE:
		case OBJECT_SCHEMA:
		case OBJECT_FUNCTION:
		case OBJECT_PROCEDURE:
		case OBJECT_ROUTINE:
			return object_place_everywhere_of(grant->objtype, objects, all);
		case OBJECT_TYPE:
		case OBJECT_DOMAIN:
			objects = NIL;
			foreach(cell, grant->objects)
				objects = lappend(objects, makeTypeNameFromNameList(lfirst_node(List, cell)));
			return object_place_everywhere_of(grant->objtype, objects, all);
		default:
			return NIL;
	}
}

static const char *
get_target_keyword(const GrantStmt *grant)
{
	bool all = grant->targtype == ACL_TARGET_ALL_IN_SCHEMA;

	switch (grant->objtype)
	{
		case OBJECT_LANGUAGE:
			return "LANGUAGE";
		case OBJECT_SCHEMA:
			return "SCHEMA";
		case OBJECT_FUNCTION:
			return all ? "ALL FUNCTIONS IN SCHEMA" : "FUNCTION";
		case OBJECT_PROCEDURE:
			return all ? "ALL PROCEDURES IN SCHEMA" : "PROCEDURE";
		case OBJECT_ROUTINE:
			return all ? "ALL ROUTINES IN SCHEMA" : "ROUTINE";
		case OBJECT_DOMAIN:
			return "DOMAIN";
		default:
			return "TYPE";
	}
}

/* GRANT or REVOKE on these objects alone. */
static char *
build_grant(const GrantStmt *grant, List *objects)
{
	StringInfoData sql;
	const char *separator = "";
	ListCell *cell;

	initStringInfo(&sql);
	appendStringInfo(&sql, "%s ", grant->is_grant ? "GRANT" : "REVOKE");
	if (!grant->is_grant && grant->grant_option)
		appendStringInfoString(&sql, "GRANT OPTION FOR ");
	if (grant->privileges == NIL)
		appendStringInfoString(&sql, "ALL");
	foreach(cell, grant->privileges)
	{
		appendStringInfo(&sql, "%s%s", separator, lfirst_node(AccessPriv, cell)->priv_name);
		separator = ", ";
	}
	appendStringInfo(&sql, " ON %s", get_target_keyword(grant));
	separator = " ";
	foreach(cell, objects)
	{
		appendStringInfo(&sql, "%s%s", separator, getObjectIdentity(lfirst(cell), false));
		separator = ", ";
	}
	separator = grant->is_grant ? " TO " : " FROM ";
	foreach(cell, grant->grantees)
	{
		appendStringInfo(&sql, "%s%s", separator, ddl_role_name(lfirst_node(RoleSpec, cell)));
		separator = ", ";
	}
	if (grant->is_grant && grant->grant_option)
		appendStringInfoString(&sql, " WITH GRANT OPTION");
	if (grant->grantor != NULL)
		appendStringInfo(&sql, " GRANTED BY %s", ddl_role_name(grant->grantor));
	if (grant->behavior == DROP_CASCADE)
		appendStringInfoString(&sql, " CASCADE");
	return sql.data;
}

void
ddl_grant(UtilityCall *call)
{
	GrantStmt *grant = castNode(GrantStmt, call->statement->utilityStmt);
	List *everywhere;
	bool all = true;

	remote_ddl_lock_for_change();
	if (metadata_all_workers() == NULL || grant->targtype == ACL_TARGET_DEFAULTS ||
		grant->objtype == OBJECT_TABLE || grant->objtype == OBJECT_SEQUENCE)
	{
		ddl_run_locally(call);
		return;
	}
	everywhere = find_granted_objects(grant, &all);
	ddl_run_locally(call);
	if (everywhere != NIL && !all)
		remote_ddl_send(build_grant(grant, everywhere));
	else if (everywhere != NIL || grant->objtype == OBJECT_PARAMETER_ACL)
		remote_ddl_send(ddl_text_with_role_names(call, grant->grantees));
}
