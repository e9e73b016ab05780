/*
 * ddl_access.c
 *		Privileges on what code names, the same on all nodes.
 *
 * Code runs on the workers as the current user, and so what he was granted on functions, types, schemas and languages
 * must be granted there, too.  Privileges on tables, their columns and sequences are checked here, before anything
 * is sent, and granted to nobody there: worker/src/own_statement.c.
 */
#include "postgres.h"

#include "ddl.h"

#include "nodes/makefuncs.h"

#include "metadata_catalog.h"

/* ---------------------------------------------------------------- GRANT and REVOKE */

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

	ddl_lock_for_change();
	if (metadata_all_workers() == NULL || grant->targtype == ACL_TARGET_DEFAULTS)
	{
		ddl_run_locally(call);
		return;
	}
	if (grant->objtype != OBJECT_TABLE && grant->objtype != OBJECT_SEQUENCE)
		everywhere = grant_is_everywhere(grant);

	ddl_run_locally(call);
	if (everywhere)
		ddl_send_everywhere(ddl_text_with_role_names(call, grant->grantees));
}
