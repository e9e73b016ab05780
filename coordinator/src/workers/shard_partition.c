/*
 * shard_partition.c
 *		The partitions that a shard consists of, on the worker that it leaves and on the one that it goes to.
 *
 * Of each table of its group one, and below that the leaves of periods.  All commands belong to the move's transaction, and
 * run in it as the superuser who moves; what the table's owner has written there runs with his rights (table/owner_guard.c).
 */
#include "postgres.h"

#include "workers/shard_partition.h"

#include "access/table.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "cluster/metadata.h"
#include "cluster/relation_name.h"
#include "stream/kept_shard.h"
#include "stream/remote_command.h"
#include "table/owner_guard.h"
#include "table/shard_copy.h"
#include "table/foreign_key_rules.h"
#include "table/worker_table_sql.h"

static char *
name_source(const ShardMove *move, Relation relation)
{
	return worker_table_sql_shard_name(relation, move->bounds.remainder);
}

void
shard_partition_run(int worker_id, const char *sql)
{
	(void) remote_command_run(bms_make_singleton(worker_id), REMOTE_WRITE, sql);
}

bool
shard_partition_worker_has(int worker_id, const char *function)
{
	return remote_command_fetch(
			   worker_id,
			   psprintf("SELECT 1 WHERE pg_catalog.to_regproc('strata_worker.%s') IS NOT NULL",
						function)) != NULL;
}

List *
shard_partition_periods(const ShardMove *move, Relation relation)
{
	List *periods = NIL;
	char *text;
	char *period;

	if (!metadata_has_periods(metadata_table(RelationGetRelid(relation))))
		return NIL;
	text = remote_command_fetch(
		move->source,
		psprintf("SELECT pg_catalog.string_agg(lower, E'\\n' ORDER BY pg_catalog.length(lower), "
				 "lower) FROM strata_worker.period_leaves(%s::pg_catalog.regclass) "
				 "WHERE NOT is_default",
				 quote_literal_cstr(name_source(move, relation))));
	while (text != NULL && (period = strsep(&text, "\n")) != NULL)
		periods = lappend(periods, makeString(period));
	return periods;
}

static void
append_partition_locks(StringInfo sql, const ShardMove *move, const char *mode)
{
	ListCell *cell;

	foreach(cell, move->tables)
	{
		Relation relation = table_open(lfirst_oid(cell), NoLock);

		appendStringInfo(sql, "LOCK TABLE %s IN %s MODE; ", name_source(move, relation), mode);
		table_close(relation, NoLock);
	}
}

static void
append_table_locks(StringInfo sql, const List *tables, const char *only, const char *mode)
{
	ListCell *cell;

	foreach(cell, tables)
		appendStringInfo(sql, "LOCK TABLE %s%s IN %s MODE; ", only,
						 relation_name_qualified(lfirst_oid(cell)), mode);
}

/* A short wait looks for a deadlock, too: that is how autovacuum learns that it shall go away. */
static void
run_with_timeout(int worker_id, const char *locks, int timeout)
{
	char *look = timeout == 0 ? ""
							  : psprintf("SET LOCAL deadlock_timeout = %d; ", Max(timeout / 2, 1));

	shard_partition_run(worker_id, psprintf("SET LOCAL lock_timeout = %d; %s%s"
											"SET LOCAL lock_timeout = 0; "
											"SET LOCAL deadlock_timeout TO DEFAULT",
											timeout, look, locks));
}

void
shard_partition_lock(const ShardMove *move)
{
	StringInfoData sql;

	initStringInfo(&sql);
	append_partition_locks(&sql, move, "EXCLUSIVE");
	run_with_timeout(move->source, sql.data, LockTimeout);
}

/*
 * The tables of which the shard is a part, too: detaching it takes that lock, and transactions in doubt may have the table for the
 * sake of other shards.  Where foreign keys come and go with a partition, so do triggers of all that they point to, on both
 * workers: readers of a reference table, which need none of the group's tables, would be waited for with everybody behind us.
 */
void
shard_partition_lock_for_switch(const ShardMove *move, int timeout)
{
	StringInfoData source;
	StringInfoData target;
	ListCell *cell;

	initStringInfo(&source);
	initStringInfo(&target);
	append_table_locks(&source, move->tables, "ONLY ", "ACCESS EXCLUSIVE");
	append_partition_locks(&source, move, "ACCESS EXCLUSIVE");
	append_table_locks(&source, move->late, "", "ACCESS EXCLUSIVE");
	append_table_locks(&source, move->referenced, "", "ACCESS EXCLUSIVE");
	append_table_locks(&target, move->late, "", "ACCESS EXCLUSIVE");
	append_table_locks(&target, move->referenced, "", "ACCESS EXCLUSIVE");
	run_with_timeout(move->source, source.data, timeout);
	foreach(cell, move->late != NIL ? move->parts : NIL)
		run_with_timeout(((ShardPart *) lfirst(cell))->worker_id, target.data, timeout);
}

void
shard_partition_enforce_keys(int worker_id, bool enforce)
{
	shard_partition_run(worker_id, psprintf("SET LOCAL session_replication_role = %s",
											enforce ? "origin" : "replica"));
}

/* The tables with rows of a worker's shard, as lines "lower bound, tab, name". */
static List *
list_leaves(int worker_id, const char *shard)
{
	char *text = remote_command_fetch(
		worker_id,
		psprintf("SELECT pg_catalog.string_agg(coalesce(l.lower, '') || E'\\t' || "
				 "pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname), "
				 "E'\\n' ORDER BY l.is_default, l.lower) "
				 "FROM strata_worker.period_leaves(%s::pg_catalog.regclass) AS l "
				 "JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) l.leaf "
				 "JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace",
				 quote_literal_cstr(shard)));
	List *leaves = NIL;
	char *line;

	while (text != NULL && (line = strsep(&text, "\n")) != NULL)
		leaves = lappend(leaves, line);
	return leaves;
}

/* The target's leaf with the same bounds. */
static const char *
find_leaf(const List *leaves, const char *line)
{
	size_t length = strchr(line, '\t') - line + 1;
	ListCell *cell;

	foreach(cell, leaves)
	{
		if (strncmp(lfirst(cell), line, length) == 0)
			return (char *) lfirst(cell) + length;
	}
	elog(ERROR, "the target of the move lacks the partition \"%s\"", line);
	return NULL;
}

/*
 * A leaf stays and is not vacuumed while it is copied.  It is autovacuum that goes away; retention does so, too, but the default
 * partition is needed when leaves are made, and has no rows for long.
 */
static void
lock_leaf(int worker_id, const char *leaf, bool is_columnar, bool is_default)
{
	if (!is_columnar)
		shard_partition_run(worker_id,
							psprintf("LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE", leaf));
	else if (!is_default)
		shard_partition_run(worker_id, psprintf("LOCK TABLE ONLY %s IN ACCESS SHARE MODE", leaf));
}

/* The condition for rows of a part, if it is not the whole shard. */
static char *
print_condition(const ShardMove *move, const ShardPart *part, Relation relation)
{
	Oid oid = RelationGetRelid(relation);

	if (!shard_move_is_split(move))
		return "";
	return psprintf("pg_catalog.satisfies_hash_partition(%s::pg_catalog.regclass, %d, %d, %s)",
					quote_literal_cstr(relation_name_qualified(oid)), part->bounds.modulus,
					part->bounds.remainder,
					quote_identifier(get_attname(oid, metadata_table(oid)->key_attribute, false)));
}

static List *
begin_copies(const ShardMove *move, const ShardPart *part, Relation relation)
{
	Oid oid = RelationGetRelid(relation);
	const DistributedTable *table = metadata_table(oid);
	char *source = name_source(move, relation);
	char *target = worker_table_sql_shard_name(relation, part->bounds.remainder);
	char *condition = print_condition(move, part, relation);
	List *copies = NIL;
	List *there;
	ListCell *cell;

	if (!metadata_has_periods(table))
	{
		lock_leaf(move->source, source, table->is_columnar, false);
		return list_make1(shard_copy_begin(oid, move->source, source, part->worker_id, target,
										   table->is_columnar, condition));
	}
	there = list_leaves(part->worker_id, target);
	foreach(cell, list_leaves(move->source, source))
	{
		char *line = lfirst(cell);
		const char *leaf = strchr(line, '\t') + 1;

		lock_leaf(move->source, leaf, table->is_columnar, line[0] == '\t');
		copies = lappend(copies,
						 shard_copy_begin(oid, move->source, leaf, part->worker_id,
										  find_leaf(there, line), table->is_columnar, condition));
	}
	return copies;
}

void
shard_partition_create(const ShardMove *move, ShardPart *part, Oid relation_oid)
{
	const Bitmapset *target = bms_make_singleton(part->worker_id);
	Relation relation = table_open(relation_oid, NoLock);
	bool guarded = owner_guard_begin(target, relation);

	shard_partition_run(part->worker_id,
						list_member_oid(move->late, relation_oid)
							? worker_table_sql_apart(relation, &part->bounds)
							: worker_table_sql_partitions(relation, list_make1(&part->bounds),
														  shard_partition_periods(move, relation)));
	if (guarded)
		owner_guard_end(target);
	part->copies = lappend(part->copies, begin_copies(move, part, relation));
	table_close(relation, NoLock);
}

void
shard_partition_attach(const ShardMove *move, const ShardPart *part, Oid relation_oid)
{
	const Bitmapset *target = bms_make_singleton(part->worker_id);
	Relation relation;
	bool guarded;

	if (!list_member_oid(move->late, relation_oid))
		return;
	relation = table_open(relation_oid, NoLock);
	guarded = owner_guard_begin(target, relation);
	shard_partition_run(part->worker_id, worker_table_sql_attach(relation, &part->bounds));
	if (guarded)
		owner_guard_end(target);
	table_close(relation, NoLock);
}

/*
 * Until the target's archive has the shard, it would be lost with the target (stream/kept_shard.c).  What foreign keys point to can only be
 * detached without its rows, and halves are not what the source had.
 */
bool
shard_partition_must_keep(const ShardMove *move)
{
	const ShardPart *part = linitial(move->parts);
	ListCell *cell;

	foreach(cell, move->tables)
	{
		if (foreign_key_rules_point_on_workers(lfirst_oid(cell)))
			return false;
	}
	return !shard_move_is_split(move) && kept_shard_is_known() &&
		   remote_command_fetch(part->worker_id,
								"SELECT 1 WHERE pg_catalog.current_setting('archive_mode') "
								"OPERATOR(pg_catalog.<>) 'off'") != NULL;
}

/*
 * A partition to which foreign keys point can only be detached, and only without rows that these use, be
 * they rows of the partition itself.
 */
static void
drop_partition(const ShardMove *move, Oid relation_oid, const char *name)
{
	if (foreign_key_rules_point_on_workers(relation_oid))
		shard_partition_run(move->source,
							psprintf("SELECT strata_worker.empty_leaf(p.relid) FROM "
									 "pg_catalog.pg_partition_tree(%s) AS p WHERE p.isleaf",
									 quote_literal_cstr(name)));
	shard_partition_run(move->source, psprintf("ALTER TABLE %s DETACH PARTITION %s; DROP TABLE %s",
											   relation_name_qualified(relation_oid), name, name));
	if (metadata_has_periods(metadata_table(relation_oid)))
		shard_partition_run(move->source, "SELECT strata_worker.forget_periods()");
}

void
shard_partition_leave(const ShardMove *move, Oid relation_oid)
{
	const Bitmapset *source = bms_make_singleton(move->source);
	Relation relation = table_open(relation_oid, NoLock);
	char *name = name_source(move, relation);
	bool guarded = owner_guard_begin(source, relation);

	if (move->kept == NULL)
		drop_partition(move, relation_oid, name);
	else
		shard_partition_run(
			move->source,
			psprintf("SELECT strata_worker.keep_shard(%s::pg_catalog.regclass, %s)",
					 quote_literal_cstr(name),
					 quote_literal_cstr(kept_shard_schema(move->kept, relation_oid))));
	if (guarded)
		owner_guard_end(source);
	table_close(relation, NoLock);
}
