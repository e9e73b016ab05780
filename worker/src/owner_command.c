/*
 * owner_command.c
 *		Commands for periods: with the rights of a table's owner, or without a trace in the settings.
 *
 * Rows that move from a default partition into a period are written again: CHECK constraints, generated
 * columns and indexes on expressions run functions of the table's owner, which must not get the
 * rights of whoever maintains the cluster.  As in copy_rows.c, user and security context are switched in
 * C, as core does for CREATE INDEX: SET ROLE, which such a function may RESET, is no cure.
 *
 * No triggers fire, those of foreign keys included: the same row goes and comes back within one
 * transaction, and ATTACH PARTITION checks what it brings.
 */
#include "postgres.h"

#include "access/table.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(strata_worker_execute_as_owner);
PG_FUNCTION_INFO_V1(strata_worker_execute_keeping_settings);

/* execute_as_owner(relation regclass, command text) */
Datum
strata_worker_execute_as_owner(PG_FUNCTION_ARGS)
{
	Relation relation = table_open(PG_GETARG_OID(0), AccessShareLock);
	char *command = text_to_cstring(PG_GETARG_TEXT_PP(1));
	Oid user;
	int security_context;
	int settings;
	int64 rows;

	/* an error restores all of it, as (sub)transactions do */
	GetUserIdAndSecContext(&user, &security_context);
	settings = NewGUCNestLevel();
	(void) set_config_option("session_replication_role", "replica", PGC_SUSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	SetUserIdAndSecContext(relation->rd_rel->relowner,
						   security_context | SECURITY_RESTRICTED_OPERATION);
	SPI_connect();
	if (SPI_execute(command, false, 0) < 0)
		elog(ERROR, "could not execute \"%s\"", command);
	rows = SPI_processed;
	SPI_finish();
	SetUserIdAndSecContext(user, security_context);
	AtEOXact_GUC(false, settings);

	table_close(relation, NoLock);
	PG_RETURN_INT64(rows);
}

/*
 * execute_keeping_settings(command text).  A function's SET clause is no cure for set_config(..., false) in
 * what it calls: that becomes the session's when the function ends well.
 */
Datum
strata_worker_execute_keeping_settings(PG_FUNCTION_ARGS)
{
	char *command = text_to_cstring(PG_GETARG_TEXT_PP(0));
	int settings = NewGUCNestLevel();

	SPI_connect();
	if (SPI_execute(command, false, 0) < 0)
		elog(ERROR, "could not execute \"%s\"", command);
	SPI_finish();
	AtEOXact_GUC(false, settings);
	PG_RETURN_VOID();
}
