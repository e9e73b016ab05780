/*
 * remote_role.c
 *		As whom a statement runs on a worker.
 *
 * As in PostgreSQL, code runs as the current user, and tables are checked as whoever names them: the user, or the
 * owner of a view.  The latter is done here, before anything is sent; on workers nobody is granted anything on
 * tables (worker/src/own_statement.c).
 *
 * A session has one wire to a worker, which logs in as the session's user.  When another one is the current user (SET
 * ROLE, a SECURITY DEFINER function, a command that PostgreSQL runs as a table's owner), a command in front of the statement
 * says so.  The worker switches as PostgreSQL does for such a function: code cannot switch back.
 *
 * The user's security context travels, too; one bit of it is our own: names are looked up in schemas that the
 * user may not use.  Like the others it goes back with the transaction, or subtransaction.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "wire/remote_role.h"

/* Beside SECURITY_LOCAL_USERID_CHANGE and its like. */
#define SECURITY_ANY_SCHEMA 0x4000

#define PASSED_ON \
	(SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION | SECURITY_ANY_SCHEMA)

RemoteRole
remote_role_current(void)
{
	RemoteRole role;

	GetUserIdAndSecContext(&role.user, &role.security_context);
	return role;
}

RemoteRole
remote_role_enter(RemoteRole role)
{
	RemoteRole before = remote_role_current();

	SetUserIdAndSecContext(role.user, role.security_context);
	return before;
}

/* May the user use the schema on workers?  They do not know who reads or writes all data: ddl_role.c. */
static bool
may_use_schema(Oid schema)
{
	if (!OidIsValid(schema) || superuser())
		return true;
	return !has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_DATA) &&
		   !has_privs_of_role(GetUserId(), ROLE_PG_WRITE_ALL_DATA) &&
		   compat_namespace_aclcheck(schema, GetUserId()) == ACLCHECK_OK;
}

RemoteRole
remote_role_for_schemas(List *schemas)
{
	RemoteRole role = remote_role_current();
	ListCell *lc;

	foreach(lc, schemas)
	{
		if (!may_use_schema(get_namespace_oid(strVal(lfirst(lc)), true)))
			role.security_context |= SECURITY_ANY_SCHEMA;
	}
	return role;
}

RemoteRole
remote_role_for_relation(Relation relation)
{
	RemoteRole role = remote_role_current();

	if (!may_use_schema(RelationGetNamespace(relation)))
		role.security_context |= SECURITY_ANY_SCHEMA;
	return role;
}

/* ----------------------------------------------------------------
 * Wires
 * ----------------------------------------------------------------
 */

void
remote_role_begin(WorkerConnection *conn)
{
	conn->acting = (RemoteRole){conn->role, 0};
}

void
remote_role_forget(WorkerConnection *conn)
{
	conn->acting.user = InvalidOid;
}

int
remote_role_append_reset(StringInfo message, WorkerConnection *conn)
{
	if (remote_role_equal(conn->acting, (RemoteRole){conn->role, 0}))
		return 0;
	appendStringInfoString(message, "SET LOCAL strata_worker.role TO DEFAULT; ");
	remote_role_begin(conn);
	return 1;
}

int
remote_role_append(StringInfo message, WorkerConnection *conn)
{
	RemoteRole role = remote_role_current();

	role.security_context &= PASSED_ON;
	if (remote_role_equal(role, conn->acting))
		return 0;
	if (role.user == conn->role && role.security_context == 0)
		return remote_role_append_reset(message, conn);
	appendStringInfo(message, "SET LOCAL strata_worker.role = %s%s%s; ",
					 quote_literal_cstr(GetUserNameFromId(role.user, false)),
					 (role.security_context & SECURITY_RESTRICTED_OPERATION) != 0 ? ", 'restricted'"
																				  : "",
					 (role.security_context & SECURITY_ANY_SCHEMA) != 0 ? ", 'any_schema'" : "");
	conn->acting = role;
	return 1;
}
