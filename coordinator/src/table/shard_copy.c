/*
 * shard_copy.c
 *		Copies a shard's rows from one worker to another, and keeps the copy up with the rows that change.
 *
 * Rows pass through the coordinator: read from the source under a snapshot that each round has of its own, written to the
 * target as the table's owner.
 *
 * What has changed is found by row numbers, which are the identity of a row.  A round asks the source for the numbers of the rows
 * that there are, as ranges.  Those that we have and that are not there any more are deleted on the target, then those that we do not
 * have are read and added, under the same snapshot: in this order, because the new version of a row may have the keys of the
 * old one.
 *
 *	- A columnar table (extensions/columnar/src/store/table/row_numbers.c) keeps numbers through a compaction; an update gives a new one,
 *	  none is used again.  Whatever else runs on the source, be it VACUUM, a compaction or a recluster (which changes all numbers, and
 *	  so has all rows copied again), the copy is right.
 *	- In a heap (worker/src/heap_rows.c) the number is the row's place, which is used again.  So the source tells which rows came
 *	  after the snapshot of the last round, and what we have in their places is gone.  VACUUM is kept away meanwhile, which
 *	  spares reading pages that were visible to all before.
 *
 * What begins numbers anew, a rewrite or TRUNCATE, conflicts with the lock that reading the source has left there.
 *
 * Which row of the target a row became: it is a new table, and nobody else writes it, so its numbers ascend as rows are
 * sent; a heap's, too, because COPY does not look for free space in tables of its own transaction.  After each round the target tells
 * the ranges of the new ones, and the k-th of them belongs to the k-th row that was sent.
 *
 * A list of runs says for each row that we have both of its numbers.  Rows that were loaded together are one run, in heaps those
 * of a page, so it is short; but for tables with order_by, whose row groups are in another order, and for halves of a shard, for which
 * the other half's rows are noted, too: there it takes 24 bytes for each row.
 */
#include "postgres.h"

#include "table/shard_copy.h"

#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "compat.h"
#include "execute/statement_snapshot.h"
#include "stream/copy_stream.h"
#include "stream/remote_command.h"
#include "stream/remote_scan.h"
#include "table/shell_reader.h"

/* New rows that are at most so far apart are read in one go, with what we have already between them. */
#define READ_GAP 4096

/* Rows deleted by one command. */
#define DELETE_ROWS 8192

/* Rows copied between two calls of the caller's function. */
#define ROWS_BETWEEN 256

/* In place of a number of the target: rows that are not ours. */
#define NOT_OURS (-1)

/* So many rows, with numbers from `source` on there and from `target` on here. */
typedef struct Run
{
	int64 source;
	int64 target;
	int64 count;
} Run;

typedef struct RunList
{
	Run *runs;
	int64 length;
	int64 size;
} RunList;

/* The source's snapshot in which the rows were looked for. */
typedef struct Look
{
	MemoryContext context;
	KeptSnapshot *snapshot;
} Look;

struct ShardCopy
{
	Oid relation;
	int source; /* workers */
	int target;
	char *source_name;
	char *target_name;
	bool is_columnar;
	const char *condition;
	MemoryContext context;
	MemoryContext round;

	bool begun;
	Look *looked;	   /* the last one */
	Look *filled;	   /* the one that the target is up to; NULL: none */
	int64 there;	   /* rows that the source had when we last looked */
	int64 next_target; /* the target's rows of the next round have numbers from here on */
	RunList have;	   /* ascending in `source` */
	RunList kept;	   /* what a look has found: of these, what is still there ... */
	RunList gone;	   /* ... and what is not, */
	RunList come;	   /* and what is new */
	int64 come_at;	   /* where the last row was found in it */
};

/* ---------------------------------------------------------------- runs */

static void
clear_runs(RunList *list)
{
	if (list->runs != NULL)
		pfree(list->runs);
	memset(list, 0, sizeof(RunList));
}

/* Does a row continue the run? */
static bool
continues(const Run *run, int64 source, int64 target)
{
	return run->source + run->count == source &&
		   (target == NOT_OURS ? run->target == NOT_OURS
							   : run->target != NOT_OURS && run->target + run->count == target);
}

static void
add_run(MemoryContext context, RunList *list, int64 source, int64 target, int64 count)
{
	Run *last = list->length > 0 ? &list->runs[list->length - 1] : NULL;

	if (last != NULL && continues(last, source, target))
	{
		last->count += count;
		return;
	}
	if (list->length == list->size)
	{
		list->size = Max(list->size * 2, 64);
		list->runs = list->runs == NULL ? MemoryContextAllocHuge(context, list->size * sizeof(Run))
										: repalloc_huge(list->runs, list->size * sizeof(Run));
	}
	list->runs[list->length++] = (Run){source, target, count};
}

static int
compare_runs(const void *left, const void *right)
{
	int64 a = ((const Run *) left)->source;
	int64 b = ((const Run *) right)->source;

	return a < b ? -1 : a > b;
}

/* Sort by the source's numbers, and join what then follows each other. */
static void
sort_runs(RunList *list)
{
	int64 length = 0;

	if (list->length == 0)
		return;
	qsort(list->runs, list->length, sizeof(Run), compare_runs);
	for (int64 i = 1; i < list->length; i++)
	{
		Run *last = &list->runs[length];
		const Run *run = &list->runs[i];

		if (continues(last, run->source, run->target))
			last->count += run->count;
		else
			list->runs[++length] = *run;
	}
	list->length = length + 1;
}

/* The parts of runs whose source's numbers `by` has, and those that it has not; NULL: nobody asks. */
static void
split_runs(MemoryContext context, const RunList *list, const RunList *by, RunList *in, RunList *out)
{
	int64 other = 0;

	for (int64 i = 0; i < list->length; i++)
	{
		const Run *run = &list->runs[i];
		int64 end = run->source + run->count;
		int64 at = run->source;

		while (at < end)
		{
			int64 until = end;
			RunList *into = out;

			while (other < by->length && by->runs[other].source + by->runs[other].count <= at)
				other++;
			if (other < by->length && by->runs[other].source <= at)
			{
				until = Min(end, by->runs[other].source + by->runs[other].count);
				into = in;
			}
			else if (other < by->length)
				until = Min(end, by->runs[other].source);
			if (into != NULL)
				add_run(context, into, at,
						run->target == NOT_OURS ? NOT_OURS : run->target + (at - run->source),
						until - at);
			at = until;
		}
	}
}

static int64
count_rows(const RunList *list)
{
	int64 count = 0;

	for (int64 i = 0; i < list->length; i++)
		count += list->runs[i].count;
	return count;
}

/* Those of them that are ours. */
static int64
count_ours(const RunList *list)
{
	int64 count = 0;

	for (int64 i = 0; i < list->length; i++)
		count += list->runs[i].target == NOT_OURS ? 0 : list->runs[i].count;
	return count;
}

/* ---------------------------------------------------------------- what there is */

/* SQL that gives ranges of row numbers from `since` on, and whether the snapshot `before` (0: none) does not see them. */
static const char *
list_sql(const ShardCopy *copy, const char *name, int64 since, uint64 before)
{
	if (copy->is_columnar)
		return psprintf("SELECT first_row, count, false "
						"FROM strata_columnar.visible_rows(%s, " INT64_FORMAT ")",
						quote_literal_cstr(name), since);
	return psprintf("SELECT first_row, count, is_new "
					"FROM strata_worker.heap_rows(%s, " INT64_FORMAT ", " UINT64_FORMAT ")",
					quote_literal_cstr(name), since, before);
}

/* Read these ranges; both ascending. */
static void
read_ranges(ShardCopy *copy, List *wires, const char *sql, RunList *old, RunList *new)
{
	TupleDesc desc = CreateTemplateTupleDesc(3);
	TupleTableSlot *slot;
	RemoteScan *scan;

	TupleDescInitEntry(desc, 1, "first_row", INT8OID, -1, 0);
	TupleDescInitEntry(desc, 2, "count", INT8OID, -1, 0);
	TupleDescInitEntry(desc, 3, "is_new", BOOLOID, -1, 0);
	compat_finish_descriptor(desc);
	slot = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	scan = remote_scan_begin(wires, REMOTE_READ, sql, desc);
	while (remote_scan_next(scan, slot))
	{
		int64 first = DatumGetInt64(slot->tts_values[0]);

		add_run(copy->context, DatumGetBool(slot->tts_values[2]) ? new : old, first, first,
				DatumGetInt64(slot->tts_values[1]));
	}
	remote_scan_end(scan);
	ExecDropSingleTupleTableSlot(slot);
	sort_runs(old);
	sort_runs(new);
}

/* The target's rows from a number on. */
static RunList
list_target(ShardCopy *copy, int64 since)
{
	RunList old = {0};
	RunList new = {0};

	read_ranges(copy, statement_snapshot_prepare_scan(bms_make_singleton(copy->target)),
				list_sql(copy, copy->target_name, since, 0), &old, &new);
	return copy->is_columnar ? old : new;
}

static void
forget_look(Look **look)
{
	if (*look != NULL)
		MemoryContextDelete((*look)->context);
	*look = NULL;
}

static void
begin_look(ShardCopy *copy)
{
	MemoryContext context;

	forget_look(&copy->looked);
	context = AllocSetContextCreate(copy->context, "strata look of a move", ALLOCSET_SMALL_SIZES);
	copy->looked = MemoryContextAllocZero(context, sizeof(Look));
	copy->looked->context = context;
	copy->looked->snapshot = statement_snapshot_keep(copy->source, context);
}

/* The target has what the last look has seen. */
static void
accept_look(ShardCopy *copy)
{
	forget_look(&copy->filled);
	copy->filled = copy->looked;
	copy->looked = NULL;
	clear_runs(&copy->gone);
	clear_runs(&copy->come);
}

bool
shard_copy_is_behind(const ShardCopy *copy)
{
	return !copy->begun || copy->gone.length > 0 || copy->come.length > 0;
}

uint64
shard_copy_look(ShardCopy *copy)
{
	RunList there = {0};
	uint64 before = copy->filled == NULL ? 0 : statement_snapshot_token(copy->filled->snapshot);
	MemoryContext caller;
	uint64 rows;

	clear_runs(&copy->kept);
	clear_runs(&copy->gone);
	clear_runs(&copy->come);
	begin_look(copy);
	caller = MemoryContextSwitchTo(copy->round);
	read_ranges(copy, statement_snapshot_prepare_kept(copy->looked->snapshot),
				list_sql(copy, copy->source_name, 0, before), &there, &copy->come);
	MemoryContextSwitchTo(caller);
	MemoryContextReset(copy->round);
	split_runs(copy->context, &copy->have, &there, &copy->kept, &copy->gone);
	if (copy->is_columnar)
		split_runs(copy->context, &there, &copy->have, NULL, &copy->come);
	clear_runs(&there);
	copy->there = count_rows(&copy->kept) + count_rows(&copy->come);
	rows = (uint64) (count_rows(&copy->gone) + count_rows(&copy->come));
	if (!shard_copy_is_behind(copy))
	{
		clear_runs(&copy->kept);
		accept_look(copy);
	}
	return rows;
}

/* ---------------------------------------------------------------- rows that are gone */

static void
delete_rows(ShardCopy *copy, StringInfo firsts, StringInfo counts, int64 count)
{
	char *sql = psprintf("DELETE FROM ONLY %s WHERE ctid OPERATOR(pg_catalog.=) ANY "
						 "(strata_columnar.row_tids('{%s}', '{%s}'))",
						 copy->target_name, firsts->data, counts->data);

	if (remote_command_run(bms_make_singleton(copy->target), REMOTE_WRITE, sql) != (uint64) count)
		elog(ERROR, "rows of \"%s\" are not on the target of the move", copy->target_name);
	resetStringInfo(firsts);
	resetStringInfo(counts);
}

static void
delete_gone(ShardCopy *copy, void (*between)(void *argument, int64 rows), void *argument)
{
	StringInfoData firsts;
	StringInfoData counts;
	int64 collected = 0;

	initStringInfo(&firsts);
	initStringInfo(&counts);
	for (int64 i = 0; i < copy->gone.length; i++)
	{
		const Run *run = &copy->gone.runs[i];
		int64 done = run->target == NOT_OURS ? run->count : 0;

		while (done < run->count)
		{
			int64 count = Min(run->count - done, DELETE_ROWS - collected);
			const char *separator = firsts.len > 0 ? "," : "";

			appendStringInfo(&firsts, "%s" INT64_FORMAT, separator, run->target + done);
			appendStringInfo(&counts, "%s" INT64_FORMAT, separator, count);
			done += count;
			collected += count;
			if (collected == DELETE_ROWS)
			{
				delete_rows(copy, &firsts, &counts, collected);
				collected = 0;
				between(argument, DELETE_ROWS);
			}
		}
	}
	if (collected > 0)
		delete_rows(copy, &firsts, &counts, collected);
}

/* ---------------------------------------------------------------- rows that are new */

/* Is it one of the rows that are new?  The reader sees those between them, too. */
static bool
is_wanted(ShardCopy *copy, int64 row)
{
	const Run *runs = copy->come.runs;
	int64 low = 0;
	int64 high = copy->come.length;

	if (row >= runs[copy->come_at].source &&
		row < runs[copy->come_at].source + runs[copy->come_at].count)
		return true;
	while (low < high)
	{
		int64 middle = low + (high - low) / 2;

		if (runs[middle].source + runs[middle].count <= row)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == copy->come.length || runs[low].source > row)
		return false;
	copy->come_at = low;
	return true;
}

/* Send what one SELECT finds; `sent` gets the rows' numbers in that order. */
static void
send_rows(ShardCopy *copy, Relation relation, CopyStream *stream, const char *range, RunList *sent,
		  void (*between)(void *argument, int64 rows), void *argument)
{
	TupleTableSlot *slot = table_slot_create(relation, NULL);
	const char *and = range[0] != '\0' && copy->condition[0] != '\0' ? " AND " : "";
	ShellReader *reader = shell_reader_begin_part(relation, copy->looked->snapshot,
												  copy->source_name,
												  psprintf("%s%s%s", range, and, copy->condition));
	int64 position = count_rows(sent);

	while (shell_reader_next(reader, slot))
	{
		int64 row = shell_reader_row_number(reader);

		if (copy->begun && !is_wanted(copy, row))
			continue;
		copy_stream_row(stream, slot);
		add_run(copy->round, sent, row, position++, 1);
		if (position % ROWS_BETWEEN == 0)
			between(argument, ROWS_BETWEEN);
	}
	shell_reader_end(reader);
	ExecDropSingleTupleTableSlot(slot);
}

/* The ranges in which new rows are, each with all that it takes to read it. */
static void
send_new(ShardCopy *copy, Relation relation, CopyStream *stream, RunList *sent,
		 void (*between)(void *argument, int64 rows), void *argument)
{
	const RunList *come = &copy->come;

	copy->come_at = 0;
	for (int64 i = 0; i < come->length;)
	{
		int64 first = come->runs[i].source;
		int64 end = first + come->runs[i].count;

		while (++i < come->length && come->runs[i].source - end <= READ_GAP)
			end = come->runs[i].source + come->runs[i].count;
		send_rows(
			copy, relation, stream,
			psprintf("ctid OPERATOR(pg_catalog.>=) strata_columnar.row_tid(" INT64_FORMAT
					 ") AND ctid OPERATOR(pg_catalog.<=) strata_columnar.row_tid(" INT64_FORMAT ")",
					 first, end - 1),
			sent, between, argument);
	}
}

/* The new ones that were not sent: others than ours. */
static void
note_others(ShardCopy *copy, const RunList *sent)
{
	RunList ours = {0};
	RunList others = {0};

	for (int64 i = 0; i < sent->length; i++)
		add_run(copy->round, &ours, sent->runs[i].source, NOT_OURS, sent->runs[i].count);
	sort_runs(&ours);
	split_runs(copy->round, &copy->come, &ours, NULL, &others);
	for (int64 i = 0; i < others.length; i++)
		add_run(copy->context, &copy->have, others.runs[i].source, NOT_OURS, others.runs[i].count);
}

static void
report_missing(const ShardCopy *copy)
{
	elog(ERROR, "rows of \"%s\" did not arrive at the target of the move", copy->target_name);
}

/* The rows that were sent are the target's new ones, in the same order. */
static void
note_sent(ShardCopy *copy, const RunList *sent)
{
	RunList stored = list_target(copy, copy->next_target);
	int64 at = 0;
	int64 used = 0; /* of that run */

	if (count_rows(&stored) != count_rows(sent))
		report_missing(copy);
	for (int64 i = 0; i < sent->length; i++)
	{
		const Run *run = &sent->runs[i];
		int64 done = 0;

		while (done < run->count)
		{
			int64 count = Min(run->count - done, stored.runs[at].count - used);

			add_run(copy->context, &copy->have, run->source + done, stored.runs[at].source + used,
					count);
			done += count;
			used += count;
			if (used == stored.runs[at].count)
			{
				at++;
				used = 0;
			}
		}
	}
	if (copy->condition[0] != '\0')
		note_others(copy, sent);
	sort_runs(&copy->have);
	if (stored.length > 0)
		copy->next_target = stored.runs[stored.length - 1].source +
							stored.runs[stored.length - 1].count;
}

static void
bring_new(ShardCopy *copy, void (*between)(void *argument, int64 rows), void *argument)
{
	Relation relation = table_open(copy->relation, NoLock);
	CopyStream *stream = copy_stream_begin(copy->target, relation, copy->target_name);
	RunList sent = {0};

	if (copy->begun)
		send_new(copy, relation, stream, &sent, between, argument);
	else
		send_rows(copy, relation, stream, "", &sent, between, argument);
	copy_stream_end(stream);
	note_sent(copy, &sent);
	table_close(relation, NoLock);
}

/* ---------------------------------------------------------------- the copy */

ShardCopy *
shard_copy_begin(Oid relation, int source, const char *source_name, int target,
				 const char *target_name, bool is_columnar, const char *condition)
{
	ShardCopy *copy = palloc0(sizeof(ShardCopy));

	copy->relation = relation;
	copy->source = source;
	copy->source_name = pstrdup(source_name);
	copy->target = target;
	copy->target_name = pstrdup(target_name);
	copy->is_columnar = is_columnar;
	copy->condition = pstrdup(condition);
	copy->context = CurrentMemoryContext;
	copy->round = AllocSetContextCreate(CurrentMemoryContext, "strata round of a move",
										ALLOCSET_DEFAULT_SIZES);
	return copy;
}

void
shard_copy_catch_up(ShardCopy *copy, void (*between)(void *argument, int64 rows), void *argument)
{
	MemoryContext caller;

	if (!shard_copy_is_behind(copy))
		return;
	caller = MemoryContextSwitchTo(copy->round);
	if (copy->begun)
	{
		delete_gone(copy, between, argument);
		clear_runs(&copy->have);
		copy->have = copy->kept;
		memset(&copy->kept, 0, sizeof(RunList));
	}
	if (!copy->begun || copy->come.length > 0)
		bring_new(copy, between, argument);
	copy->begun = true;
	accept_look(copy);
	MemoryContextSwitchTo(caller);
	MemoryContextReset(copy->round);
}

uint64
shard_copy_count(ShardCopy *copy)
{
	int64 ours = count_ours(&copy->have);
	int64 stored = ours;

	/* each round has counted what a heap got and lost; all of it would have to be read */
	if (copy->is_columnar)
	{
		RunList list = list_target(copy, 0);

		stored = count_rows(&list);
		clear_runs(&list);
	}
	if (stored != ours || count_rows(&copy->have) != copy->there)
		elog(ERROR,
			 "the target of the move has " INT64_FORMAT " rows of \"%s\" instead of " INT64_FORMAT
			 ", and knows " INT64_FORMAT " of the source's " INT64_FORMAT,
			 stored, copy->target_name, ours, count_rows(&copy->have), copy->there);
	return (uint64) ours;
}

uint64
shard_copy_count_source(const ShardCopy *copy)
{
	return (uint64) copy->there;
}

const char *
shard_copy_planning(bool copying)
{
	/* single rows and ranges of rows by their numbers, in their order */
	return copying ? "SET LOCAL strata_columnar.enable_custom_scan = off; "
					 "SET LOCAL enable_seqscan = off"
				   : "SET LOCAL strata_columnar.enable_custom_scan TO DEFAULT; "
					 "SET LOCAL enable_seqscan TO DEFAULT";
}
