/*
 * analyze_sample.c
 *		A random sample of a shell's rows, for ANALYZE.
 *
 * ANALYZE on a shell fills pg_statistic on the coordinator, from which PostgreSQL's
 * planner estimates everything, from rows that the workers pick at random.
 *
 *		1. Each worker estimates how many rows it has: a small sample of one shard tells the rows per page.
 *		2. The fraction to read is such that all workers together send nearly as
 *		   many rows as ANALYZE wants.  A large table is sampled in two stages,
 *		   blocks and then rows of these blocks, so that it is not read whole.
 *		3. What ANALYZE finds becomes the workers' statistics, too (shard_statistics.c).
 *
 * Autovacuum gets no rows, and as their number the one that is known: the statistics stay as they
 * are, until the ANALYZE that it asks for (auto_analyze.c).
 *
 * ANALYZE sorts its rows by physical position once it has as many as it wanted;
 * our rows have none.  So it always gets fewer: the surplus is only counted.
 */
#include "postgres.h"

#include "table/analyze_sample.h"

#include <math.h>

#include "commands/vacuum.h"
#include "miscadmin.h"
#include "postmaster/autovacuum.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "table/auto_analyze.h"
#include "compat.h"
#include "cluster/metadata.h"
#include "cluster/relation_name.h"
#include "stream/remote_command.h"
#include "table/shard_statistics.h"
#include "table/shell_reader.h"
#include "wire/remote_role.h"

/* The share of the rows wanted that we ask for: the rest is room for chance. */
#define SAMPLE_FILL 0.95

struct AnalyzeSample
{
	ShellReader *reader; /* NULL for autovacuum */
	double fraction;	 /* of the table's rows that come */
	double known_rows;	 /* of the table, as just counted by the workers; -1 if not */
	double capacity;	 /* rows returned at most */
	double received;
	double returned;
	double unchanged_rows; /* without a reader: what is known already */
};

/* How many rows ANALYZE wants, as std_typanalyze() computes it. */
static double
wanted_rows(Relation relation)
{
	TupleDesc desc = RelationGetDescr(relation);
	int target = 0;

	for (int i = 0; i < desc->natts; i++)
	{
		int own;

		if (TupleDescAttr(desc, i)->attisdropped)
			continue;
		own = compat_statistics_target(RelationGetRelid(relation), i + 1);
		target = Max(target, own < 0 ? default_statistics_target : own);
	}
	return Max(300.0 * target, 100.0);
}

/* The workers measure their shards, or analyse them; rows of the table as they know them then without counting. */
static double
measure_shards(Relation relation, const DistributedTable *table)
{
	const Bitmapset *workers = metadata_table_workers(table);
	const char *name = relation_name_qualified(RelationGetRelid(relation));

	if (shard_statistics_are_alike(relation, table))
		return shard_statistics_sum(
			workers, REMOTE_WRITE,
			psprintf("SELECT strata_worker.measure_table(%s)", quote_literal_cstr(name)));
	remote_command_run(workers, REMOTE_WRITE, psprintf("ANALYZE %s", name));
	return shard_statistics_rows(relation, table);
}

/* Set up a sample of a distributed table, as the current user. */
static void
begin_remote_sample(AnalyzeSample *sample, Relation relation, const DistributedTable *table)
{
	double rows;
	double asked;

	sample->capacity = wanted_rows(relation) - 1;
	asked = sample->capacity * SAMPLE_FILL;
	rows = measure_shards(relation, table);
	sample->known_rows = rows;
	if (rows > asked)
		sample->fraction = asked / rows;
	sample->reader = shell_reader_begin(
		relation, sample->fraction < 1
					  ? psprintf("TABLESAMPLE strata_worker.rows (%.10f)", sample->fraction)
					  : "");
}

AnalyzeSample *
analyze_sample_begin(Relation relation)
{
	RemoteRole caller;
	AnalyzeSample *sample = palloc0(sizeof(AnalyzeSample));
	const DistributedTable *table = metadata_table(RelationGetRelid(relation));

	sample->fraction = 1;
	sample->known_rows = -1;
	if (compat_is_autovacuum_worker() ||
		(table != NULL && bms_is_empty(metadata_table_workers(table)))) /* all shards are lost */
	{
		sample->unchanged_rows = relation->rd_rel->reltuples; /* -1: not known */
		if (table != NULL)
			auto_analyze_request(RelationGetRelid(relation));
		return sample;
	}
	if (table == NULL)
	{
		sample->reader = shell_reader_begin(relation, "");
		return sample;
	}
	caller = remote_role_enter(remote_role_for_relation(relation));
	begin_remote_sample(sample, relation, table);
	(void) remote_role_enter(caller);
	return sample;
}

bool
analyze_sample_next(AnalyzeSample *sample, TupleTableSlot *slot)
{
	while (sample->reader != NULL && shell_reader_next(sample->reader, slot))
	{
		sample->received++;
		if (sample->returned < sample->capacity)
		{
			sample->returned++;
			return true;
		}
		compat_vacuum_delay_point(true);
	}
	ExecClearTuple(slot);
	return false;
}

double
analyze_sample_unseen_rows(const AnalyzeSample *sample)
{
	double rows = sample->received;

	if (sample->reader == NULL)
		return sample->unchanged_rows;
	if (sample->fraction < 1)
		rows = sample->known_rows >= 0 ? sample->known_rows : sample->received / sample->fraction;
	return Max(0, rint(rows) - sample->returned);
}

void
analyze_sample_end(AnalyzeSample *sample)
{
	if (sample->reader != NULL)
		shell_reader_end(sample->reader);
}
