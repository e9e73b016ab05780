/*
 * serializable.c
 *		A SERIALIZABLE transaction uses one node only.
 *
 * PostgreSQL finds the dangerous structures of serializable transactions from read and write
 * conflicts that it sees, on one server.  Of two transactions that both read on one worker what the
 * other writes on a second worker, each worker sees half, and both commit: write skew.  Rather
 * than promise what does not hold, the second node is an error.
 *
 * On one node everything is as in PostgreSQL: the worker runs the transaction as SERIALIZABLE, and sees
 * all conflicts with others that used that worker.  A cycle of conflicts through several nodes
 * needs a transaction that connects two of them, which there is none.
 *
 * A node is a worker, or the rows of the coordinator's own tables.  Not counted are what PostgreSQL does not watch either (catalogs, temporary tables), our metadata, and the reading of
 * reference tables: writing one concerns all nodes, so no serializable transaction does, and
 * conflicts count between serializable transactions only.
 */
#include "postgres.h"

#include "transaction/serializable.h"

#include "access/transam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "nodes/parsenodes.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "cluster/metadata.h"
#include "transaction/remote_transaction.h"

/* Has the transaction used rows of the coordinator? */
static bool local_used = false;

static void
report_second_node(const char *detail)
{
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("cannot use a second node in a SERIALIZABLE transaction"),
					errdetail_internal("%s", detail),
					errhint("Use REPEATABLE READ, with SELECT ... FOR UPDATE or LOCK TABLE where "
							"what was read must not change.")));
}

void
serializable_check_join(const WorkerConnection *conn)
{
	ListCell *cell;

	if (!IsolationIsSerializable() || conn->transaction.depth > 0)
		return;
	if (local_used)
		report_second_node(
			psprintf("It has used rows of the coordinator, and would use worker \"%s\".",
					 conn->worker_name));
	foreach(cell, connection_list())
	{
		const WorkerConnection *other = lfirst(cell);

		if (other != conn && remote_transaction_participates(other))
			report_second_node(psprintf("It has used worker \"%s\", and would use worker \"%s\".",
										other->worker_name, conn->worker_name));
	}
}

/* Does PostgreSQL watch this relation here for serializable transactions? */
static bool
is_watched(Oid relation, bool changes)
{
	const DistributedTable *table;
	char kind = get_rel_relkind(relation);

	if (relation < FirstNormalObjectId ||
		(kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE) ||
		get_rel_persistence(relation) == RELPERSISTENCE_TEMP ||
		get_rel_namespace(relation) == get_namespace_oid("strata", true))
		return false;
	table = metadata_table(relation);
	return table == NULL || (table->kind == TABLE_REFERENCE && changes);
}

void
serializable_check_relation(Oid relation, bool changes)
{
	ListCell *cell;

	if (!IsolationIsSerializable() || !is_watched(relation, changes))
		return;
	foreach(cell, connection_list())
	{
		const WorkerConnection *conn = lfirst(cell);

		if (remote_transaction_participates(conn))
			report_second_node(psprintf("It has used worker \"%s\", and would use rows of \"%s\" "
										"on the coordinator.",
										conn->worker_name, get_rel_name(relation)));
	}
	local_used = true;
}

/* Does the plan change the range table's entry, or lock its rows? */
static bool
is_changed(const PlannedStmt *plan, int index)
{
	ListCell *cell;

	if (compat_is_result_relation(plan, index))
		return true;
	foreach(cell, plan->rowMarks)
	{
		const PlanRowMark *mark = lfirst(cell);

		if (mark->rti == index && RowMarkRequiresRowShareLock(mark->markType))
			return true;
	}
	return false;
}

void
serializable_check_plan(const PlannedStmt *plan)
{
	int index = 0;
	ListCell *cell;

	if (!IsolationIsSerializable())
		return;
	foreach(cell, plan->rtable)
	{
		const RangeTblEntry *entry = lfirst(cell);

		index++;
		if (entry->rtekind == RTE_RELATION)
			serializable_check_relation(entry->relid, is_changed(plan, index));
	}
}

void
serializable_transaction_event(XactEvent event)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		local_used = false;
}
