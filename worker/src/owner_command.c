/*
 * owner_command.c
 *		Commands with the rights of a table's owner, or without a trace in the settings.
 *
 * Rows that move from a default partition into a period are written again: CHECK constraints, generated
 * columns and indexes on expressions run functions of the table's owner, which must not get the
 * rights of whoever maintains the cluster.  Constant parts of an index are computed again when it is attached
 * to its parent.  As in copy_rows.c, user and security context are switched in
 * C, as core does for CREATE INDEX: SET ROLE, which such a function may RESET, is no cure.
 *
 * No triggers fire when rows move, those of foreign keys included: the same row goes and comes back within one
 * transaction, and ATTACH PARTITION checks what it brings.  What these commands compute touches no table: they
 * run as core runs the queries of foreign keys, which users_code.c tells from what is inside of them.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "caller.h"
#include "compat.h"

PG_FUNCTION_INFO_V1(strata_worker_execute_as_owner);
PG_FUNCTION_INFO_V1(strata_worker_attach_index);
PG_FUNCTION_INFO_V1(strata_worker_execute_keeping_settings);
PG_FUNCTION_INFO_V1(strata_worker_execute_with_users_settings);

/*
 * Run a command; an error restores user and settings, as (sub)transactions do.  Either it moves rows, or it is
 * a utility command.
 */
static int64
execute_as(Oid owner, bool moves_rows, const char *command)
{
	Oid user;
	int security_context;
	int settings = NewGUCNestLevel();
	int64 rows;

	GetUserIdAndSecContext(&user, &security_context);
	if (moves_rows)
		(void) set_config_option("session_replication_role", "replica", PGC_SUSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
	SetUserIdAndSecContext(owner, security_context | SECURITY_RESTRICTED_OPERATION |
									  (moves_rows ? SECURITY_NOFORCE_RLS : 0));
	SPI_connect();
	if (SPI_execute(command, false, 0) < 0)
		elog(ERROR, "could not execute \"%s\"", command);
	rows = SPI_processed;
	SPI_finish();
	SetUserIdAndSecContext(user, security_context);
	AtEOXact_GUC(false, settings);
	return rows;
}

/* execute_as_owner(relation regclass, command text) */
Datum
strata_worker_execute_as_owner(PG_FUNCTION_ARGS)
{
	Relation relation = table_open(PG_GETARG_OID(0), AccessShareLock);
	int64 rows = execute_as(relation->rd_rel->relowner, true,
							text_to_cstring(PG_GETARG_TEXT_PP(1)));

	table_close(relation, NoLock);
	PG_RETURN_INT64(rows);
}

/* The name of an index of the caller's, with its schema; *owner is set. */
static char *
name_own_index(Oid index, Oid *owner)
{
	Relation relation = relation_open(index, AccessShareLock);
	const char *name = RelationGetRelationName(relation);
	char kind = relation->rd_rel->relkind;
	char *result;

	if (kind != RELKIND_INDEX && kind != RELKIND_PARTITIONED_INDEX)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("\"%s\" is not an index", name)));
	if (!compat_owns_table(index, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_INDEX, name);
	*owner = relation->rd_rel->relowner;
	result = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(relation)), name);
	relation_close(relation, AccessShareLock);
	return result;
}

/* attach_index(parent regclass, part regclass) */
Datum
strata_worker_attach_index(PG_FUNCTION_ARGS)
{
	Oid owner;
	char *part = name_own_index(PG_GETARG_OID(1), &owner);
	char *parent = name_own_index(PG_GETARG_OID(0), &owner);

	(void) execute_as(owner, false, psprintf("ALTER INDEX %s ATTACH PARTITION %s", parent, part));
	PG_RETURN_VOID();
}

static void
execute_keeping_settings(const char *command, bool of_user)
{
	int settings = NewGUCNestLevel();

	if (of_user)
		caller_use_settings();
	SPI_connect();
	if (SPI_execute(command, false, 0) < 0)
		elog(ERROR, "could not execute \"%s\"", command);
	SPI_finish();
	AtEOXact_GUC(false, settings);
}

/*
 * execute_keeping_settings(command text).  A function's SET clause is no cure for set_config(..., false) in
 * what it calls: that becomes the session's when the function ends well.
 */
Datum
strata_worker_execute_keeping_settings(PG_FUNCTION_ARGS)
{
	execute_keeping_settings(text_to_cstring(PG_GETARG_TEXT_PP(0)), false);
	PG_RETURN_VOID();
}

/* execute_with_users_settings(command text): what indexes compute obeys the search_path of the coordinator's session. */
Datum
strata_worker_execute_with_users_settings(PG_FUNCTION_ARGS)
{
	execute_keeping_settings(text_to_cstring(PG_GETARG_TEXT_PP(0)), true);
	PG_RETURN_VOID();
}
