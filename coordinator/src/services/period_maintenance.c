/*
 * period_maintenance.c
 *		Service "periods": makes periods ahead of time, empties default partitions, drops what is too old.
 *
 * Per table and run: the cut-off that its retention gives is published, then each worker says what there is
 * to do (strata_worker.period_work()), and each item is done in a transaction of its own.  What
 * an item has to do is looked at again by itself, so that nothing depends on an earlier one: a process
 * that was killed anywhere is followed by one that goes on.
 *
 * Locks.  Making or dropping a leaf needs AccessExclusiveLock on the default partition or the shard, for
 * a moment.  Whoever waits for it has everybody wait behind, so we wait LOCK_TIMEOUT_MS only; an item
 * whose lock is not to be had is left to the next run.  Periods are made ahead of time, so that there
 * is no hurry.
 *
 * Rows that move.  A statement whose snapshot on the worker is older than the move, but which sees the
 * new leaf in the worker's catalog, would look for the rows where its snapshot does not show them yet.
 * Therefore the move has AccessExclusiveLock on the coordinator's shell: no statement of ours is between
 * taking its snapshots and its end.  Snapshots that live longer (REPEATABLE READ; STABLE functions)
 * are found by execute/moved_rows.c: the metadata says which transaction moved, and who does not see
 * that one gets 40001.  Standbys that have not replayed the move are not read any more: it is a change of the schema
 * (transaction/standby_read.c).
 * So the worker truncates a default partition that a move has emptied, though older snapshots would
 * miss its rows: only a session of an administrator on the worker itself can have one and use it.
 *
 * The cut-off is part of the metadata, too, and of every plan (period_cutoff.c): it holds for all
 * workers from one moment on, and dropping leaves that lie before it changes nothing for anybody.
 */
#include "postgres.h"

#include "services/period_maintenance.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "fault_point.h"
#include "cluster/metadata.h"
#include "cluster/relation_name.h"
#include "cluster/metadata_write.h"
#include "server/service_transaction.h"
#include "server/settings.h"
#include "stream/remote_command.h"
#include "stream/remote_ddl.h"
#include "stream/remote_scan.h"

#define LOCK_TIMEOUT_MS 200

/* One thing to do, or (worker 0) to look for things to do. */
typedef struct PeriodItem
{
	Oid relation;
	int worker;
	char *shard; /* as the worker writes it, quoted and qualified where needed */
	char *task;
	char *value;
} PeriodItem;

int
period_maintenance_interval(void)
{
	return strata_period_interval;
}

/* ---------------------------------------------------------------- lists that outlive transactions */

static MemoryContext work_context = NULL;

static void
add_item(List **items, Oid relation, int worker, const char *shard, const char *task,
		 const char *value)
{
	MemoryContext caller = MemoryContextSwitchTo(work_context);
	PeriodItem *item = palloc0(sizeof(PeriodItem));

	item->relation = relation;
	item->worker = worker;
	item->shard = pstrdup(shard);
	item->task = pstrdup(task);
	item->value = pstrdup(value);
	*items = lappend(*items, item);
	MemoryContextSwitchTo(caller);
}

/* The tables with periods. */
static List *
list_tables(void)
{
	List *tables = NIL;
	ListCell *cell;

	foreach(cell, metadata_write_tables(CATALOG_KIND_DISTRIBUTED))
	{
		MemoryContext caller = MemoryContextSwitchTo(work_context);

		if (metadata_has_periods(metadata_table(lfirst_oid(cell))))
			tables = lappend_oid(tables, lfirst_oid(cell));
		MemoryContextSwitchTo(caller);
	}
	return tables;
}

/* ---------------------------------------------------------------- steps, each a transaction */

/* Lock the table; NULL if it is gone, or has no periods any more. */
static const DistributedTable *
lock_table(Oid relation, LOCKMODE mode)
{
	const DistributedTable *table;

	service_transaction_limit_waits(LOCK_TIMEOUT_MS);
	LockRelationOid(relation, mode);
	table = metadata_table(relation);
	return metadata_has_periods(table) ? table : NULL;
}

/* The one value of a query as text, NULL if it is none. */
static char *
fetch_value(const char *sql)
{
	MemoryContext caller = CurrentMemoryContext;
	char *value = NULL;

	SPI_connect();
	if (SPI_execute(sql, false, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not execute \"%s\"", sql);
	if (SPI_processed == 1)
		value = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	if (value != NULL)
		value = MemoryContextStrdup(caller, value);
	SPI_finish();
	return value;
}

/*
 * The largest number in the column, NULL without rows.  Read as the table's owner: whoever plans this
 * query runs functions of his that constraints and indexes call with constants.  An
 * error takes the role back with the transaction.
 */
static char *
fetch_newest(Oid relation, const PeriodRule *rule)
{
	Relation table = table_open(relation, AccessShareLock);
	int settings = NewGUCNestLevel();
	Oid user;
	int context;
	char *newest;

	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(table->rd_rel->relowner, context | SECURITY_RESTRICTED_OPERATION);
	newest = fetch_value(
		psprintf("SELECT pg_catalog.max(%s) FROM %s",
				 quote_identifier(get_attname(relation, rule->attribute, false)),
				 quote_qualified_identifier(get_namespace_name(RelationGetNamespace(table)),
											RelationGetRelationName(table))));
	SetUserIdAndSecContext(user, context);
	AtEOXact_GUC(false, settings);
	table_close(table, NoLock);
	return newest;
}

static char *
fetch_next_cutoff(Oid relation, const PeriodRule *rule)
{
	Oid type = get_atttype(relation, rule->attribute);
	char *newest = NULL;

	if ((type == INT4OID || type == INT8OID) && strcmp(rule->unit, "none") == 0)
		newest = fetch_newest(relation, rule);
	return fetch_value(
		psprintf("SELECT strata.next_cutoff(%u, %s)", relation, newest != NULL ? newest : "NULL"));
}

/* From when this transaction commits, rows before the table's new cut-off do not exist any more. */
static void
publish_cutoff(Oid relation)
{
	const DistributedTable *table = lock_table(relation, AccessShareLock);
	PeriodRule rule;
	char *cutoff;

	if (table == NULL || table->periods.retention[0] == '\0')
		return;
	rule = table->periods;
	cutoff = fetch_next_cutoff(relation, &rule);
	if (cutoff == NULL || strcmp(cutoff, rule.cutoff) == 0)
		return;
	metadata_write_lock_placement();
	table = metadata_table(relation);
	if (!metadata_has_periods(table))
		return;
	rule = table->periods;
	strlcpy(rule.cutoff, cutoff, PERIOD_TEXT_BYTES);
	metadata_write_set_periods(relation, &rule);
}

/* Ask a worker what there is to do for a table. */
static void
list_work(Oid relation, int worker, List **items)
{
	const DistributedTable *table = lock_table(relation, AccessShareLock);
	TupleDesc desc = CreateTemplateTupleDesc(3);
	TupleTableSlot *slot;
	RemoteScan *scan;
	char *name;
	char *sql;

	if (table == NULL || !bms_is_member(worker, table->colocation->workers))
		return;
	for (int i = 1; i <= 3; i++)
		TupleDescInitEntry(desc, i, "text", TEXTOID, -1, 0);
	compat_finish_descriptor(desc);
	slot = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	name = relation_name_qualified(relation);
	sql = psprintf("SELECT w.shard::pg_catalog.text, w.task, w.value"
				   " FROM strata_worker.period_work(%s::pg_catalog.regclass, %s) AS w",
				   quote_literal_cstr(name),
				   table->periods.cutoff[0] == '\0' ? "NULL"
													: quote_literal_cstr(table->periods.cutoff));
	scan = remote_scan_begin(remote_transaction_ready_all(bms_make_singleton(worker)), REMOTE_READ,
							 sql, desc);
	while (remote_scan_next(scan, slot))
	{
		slot_getallattrs(slot);
		add_item(items, relation, worker, TextDatumGetCString(slot->tts_values[0]),
				 TextDatumGetCString(slot->tts_values[1]),
				 TextDatumGetCString(slot->tts_values[2]));
	}
	remote_scan_end(scan);
	ExecDropSingleTupleTableSlot(slot);
}

static void
do_item(const PeriodItem *item)
{
	bool moves = strcmp(item->task, "move") == 0;
	const DistributedTable *table;
	char *sql;

	if (moves)
		remote_ddl_lock_for_change();
	table = lock_table(item->relation, moves ? AccessExclusiveLock : AccessShareLock);
	if (table == NULL)
		return;
	if (moves)
	{
		PeriodRule rule;

		remote_ddl_note_placement();
		metadata_write_lock_placement();
		rule = metadata_table(item->relation)->periods;
		rule.moved_by = GetCurrentFullTransactionId();
		metadata_write_set_periods(item->relation, &rule);
	}
	if (strcmp(item->task, "drop") == 0)
		sql = psprintf("DROP TABLE IF EXISTS %s", item->value);
	else
		sql = psprintf("SELECT strata_worker.create_period(%s::pg_catalog.regclass, %s, %s)",
					   quote_literal_cstr(item->shard), quote_literal_cstr(item->value),
					   moves ? "true" : "false");
	(void) remote_command_run(bms_make_singleton(item->worker), REMOTE_WRITE,
							  psprintf("SET LOCAL lock_timeout = %d; %s", LOCK_TIMEOUT_MS, sql));
	FAULT_POINT("period_item_done");
}

/* ---------------------------------------------------------------- the run */

/* Nobody else's business: a lock that was not to be had, a table that went away meanwhile. */
static bool
is_expected(int sqlerrcode)
{
	return sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE || sqlerrcode == ERRCODE_UNDEFINED_TABLE;
}

/* Log why a step failed, and go on with a new transaction. */
static void
recover(Oid relation)
{
	ErrorData *error;

	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(work_context);
	error = CopyErrorData();
	if (!is_expected(error->sqlerrcode))
	{
		errcontext("maintenance of the periods of table with OID %u", relation);
		EmitErrorReport();
	}
	FlushErrorState();
	AbortCurrentTransaction();
	RESUME_INTERRUPTS();
	service_transaction_begin();
}

/* One step: with an item, that; else, with a worker, what it says is to do; else the cut-off.  False if it failed. */
static bool
run_step(Oid relation, int worker, const PeriodItem *item, List **items)
{
	volatile bool success = true;

	CHECK_FOR_INTERRUPTS();
	service_transaction_next();
	PG_TRY();
	{
		if (item != NULL)
			do_item(item);
		else if (worker != 0)
			list_work(relation, worker, items);
		else
			publish_cutoff(relation);
		service_transaction_next();
	}
	PG_CATCH();
	{
		recover(relation);
		success = false;
	}
	PG_END_TRY();
	return success;
}

static void
maintain_table(Oid relation)
{
	const DistributedTable *table = metadata_table(relation);
	Bitmapset *workers;
	List *items = NIL;
	const PeriodItem *failed = NULL;
	MemoryContext caller;
	ListCell *cell;
	int worker = -1;

	if (!metadata_has_periods(table))
		return;
	caller = MemoryContextSwitchTo(work_context);
	workers = bms_copy(table->colocation->workers);
	MemoryContextSwitchTo(caller);

	(void) run_step(relation, 0, NULL, NULL);
	while ((worker = bms_next_member(workers, worker)) >= 0)
		(void) run_step(relation, worker, NULL, &items);
	foreach(cell, items)
	{
		const PeriodItem *item = lfirst(cell);

		/* while somebody holds the lock, each attempt would have everybody wait: once per run is enough */
		if (failed != NULL && failed->worker == item->worker &&
			strcmp(failed->task, item->task) == 0)
			continue;
		if (!run_step(relation, 0, item, NULL))
			failed = item;
	}
}

void
period_maintenance_run(void)
{
	List *tables;
	ListCell *cell;

	work_context = AllocSetContextCreate(TopMemoryContext, "strata periods",
										 ALLOCSET_DEFAULT_SIZES);
	tables = list_tables();
	foreach(cell, tables)
		maintain_table(lfirst_oid(cell));
	MemoryContextDelete(work_context);
	work_context = NULL;
}
