/*
 * reference_statistics.c
 *		ANALYZE of reference tables on the workers.
 *
 * Each copy of a reference table is planned with by its own server, whose statistics nobody but that server
 * can make.  A user's ANALYZE is passed on (ddl/maintenance.c).  What is left is for the background: a copy
 * that a new worker got, one that was made of an analysed table, one whose worker was away or has no
 * autovacuum, and one that was analysed in a SERIALIZABLE transaction.  Autovacuum there would never look at those with few rows.
 *
 * Nothing is remembered for that: all copies count the same changes, so one that has had more of them since
 * its last analysis than the coordinator's is behind, and so is one without any statistics.  The difference that
 * matters is autovacuum's, for sessions report what they have changed a little later on one node than on the other.
 */
#include "postgres.h"

#include "table/reference_statistics.h"

#include "access/relation.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/rel.h"

#include "cluster/relation_name.h"
#include "stream/remote_command.h"
#include "stream/remote_ddl.h"
#include "stream/try_command.h"
#include "wire/connection.h"
#include "wire/remote_role.h"

static void
run_as_owner(Relation relation, const Bitmapset *workers, const char *sql)
{
	RemoteRole owner = {relation->rd_rel->relowner, SECURITY_RESTRICTED_OPERATION};
	RemoteRole caller = remote_role_enter(owner);

	(void) remote_role_enter(remote_role_for_relation(relation));
	connection_open_all(workers);
	remote_ddl_silence(true);
	PG_TRY();
	{
		remote_command_run(workers, REMOTE_WRITE, sql);
	}
	PG_FINALLY();
	{
		remote_ddl_silence(false);
	}
	PG_END_TRY();
	(void) remote_role_enter(caller);
}

void
reference_statistics_analyze(Oid relation_oid, const Bitmapset *workers, const char *options,
							 const char *columns)
{
	Relation relation = relation_open(relation_oid, NoLock);

	run_as_owner(
		relation, workers,
		psprintf("ANALYZE%s %s%s", options, relation_name_qualified(relation_oid), columns));
	relation_close(relation, NoLock);
}

/* ---------------------------------------------------------------- in the background */

/* Analysed reference tables and their changes since then, as rows of VALUES; NULL when there are none. */
static char *
list_analyzed_tables(void)
{
	MemoryContext caller = CurrentMemoryContext;
	char *rows;

	SPI_connect();
	if (SPI_execute("SELECT pg_catalog.string_agg(pg_catalog.format('(%s, %L, %s)',"
					"  c.oid, pg_catalog.format('%I.%I', n.nspname, c.relname),"
					"  pg_catalog.pg_stat_get_mod_since_analyze(c.oid)), ', ')"
					" FROM strata.distributed_table t"
					" JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) t.relation"
					" JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace"
					" WHERE t.kind OPERATOR(pg_catalog.=) 'r' AND EXISTS (SELECT FROM "
					"pg_catalog.pg_statistic s"
					"  WHERE s.starelid OPERATOR(pg_catalog.=) c.oid)",
					true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not list reference tables");
	rows = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	if (rows != NULL)
		rows = MemoryContextStrdup(caller, rows);
	SPI_finish();
	return rows;
}

/* A worker's query: which of these tables have copies there that are behind; their numbers here. */
static char *
make_query(const char *tables)
{
	return psprintf(
		"SELECT pg_catalog.string_agg(t.id::pg_catalog.text, ' ')"
		" FROM (VALUES %s) AS t (id, name, changes)"
		" JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=)"
		"  pg_catalog.to_regclass(t.name)"
		" WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_statistic s"
		"  WHERE s.starelid OPERATOR(pg_catalog.=) c.oid)"
		" OR pg_catalog.pg_stat_get_mod_since_analyze(c.oid) OPERATOR(pg_catalog.-) t.changes"
		"  OPERATOR(pg_catalog.>)"
		"  (pg_catalog.current_setting('autovacuum_analyze_threshold')::pg_catalog.float8"
		"   OPERATOR(pg_catalog.+) (c.reltuples OPERATOR(pg_catalog.*)"
		"    pg_catalog.current_setting('autovacuum_analyze_scale_factor')::pg_catalog.float8))",
		tables);
}

List *
reference_statistics_find_behind(int worker_id)
{
	char *tables = list_analyzed_tables();
	List *behind = NIL;
	WorkerAnswer answer;
	char *next;

	if (tables == NULL)
		return NIL;
	answer = try_command(worker_id, REMOTE_READ, make_query(tables));
	next = answer.value;
	while (next != NULL && *next != '\0')
		behind = lappend_oid(behind, strtoul(next, &next, 10));
	return behind;
}
