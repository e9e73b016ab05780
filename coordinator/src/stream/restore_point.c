/*
 * restore_point.c
 *		One name in the WAL of all nodes to which the cluster can be recovered.
 *
 * When every node is recovered to the point of this name, no transaction is on one side of it on
 * some nodes and on the other side on others.  Let d be the moment of a transaction's local commit
 * (its decision), and on each worker a the PREPARE and c the COMMIT PREPARED: a < d < c.  What
 * recovery needs is
 *
 *		d before the point here		=> a before the point there		(else a worker has lost its part)
 *		c before the point there	=> d before the point here		(else others roll theirs back)
 *
 * The coordinator's point is made first.  The former follows: a < d < point here < point there.
 * The latter could fail only for a d between the coordinator's point and the last worker's; the
 * gate lets no two-phase commit decide in that time.  What is prepared and decided at the point
 * is committed by the resolver after the recovery; what is prepared and undecided has no
 * decision row, and is rolled back.  A decision row that is deleted before the point
 * belongs to a transaction that all workers had committed before the coordinator's point.
 *
 * Commits on one worker wait, too, so that of two commits of a client on workers never only the second one
 * is before the point.
 *
 * Transactions that write on the coordinator alone do not wait, and have no order with those on workers: a
 * client's local commit that falls behind the coordinator's point is missing after the recovery; a commit on a
 * worker that follows it waits, for EVICT_MS (gate.c) at most, and so is behind the point, too - unless the
 * point has failed meanwhile.  A point for which create_restore_point() raised an error has some nodes' records
 * and promises nothing: recover to one that it returned.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/pg_lsn.h"
#include "utils/tuplestore.h"

#include "cluster/metadata.h"
#include "commit/gate.h"
#include "transaction/remote_transaction.h"

#define COLUMNS 2

PG_FUNCTION_INFO_V1(strata_create_restore_point);

static void
put_row(ReturnSetInfo *result, const char *node, Datum lsn)
{
	NameData name;
	Datum values[COLUMNS] = {NameGetDatum(&name), lsn};
	bool nulls[COLUMNS] = {false};

	namestrcpy(&name, node);

	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* The position of a worker's point. */
static Datum
fetch_lsn(WorkerConnection *conn)
{
	Datum lsn = LSNGetDatum(InvalidXLogRecPtr);
	PGresult *result;

	while ((result = connection_get_result(conn)) != NULL)
	{
		if (PQresultStatus(result) != PGRES_TUPLES_OK)
			connection_report(ERROR, conn, result, NULL);
		lsn = DirectFunctionCall1(pg_lsn_in, CStringGetDatum(PQgetvalue(result, 0, 0)));
		PQclear(result);
	}
	return lsn;
}

/* strata.create_restore_point(name): each node's name and position. */
Datum
strata_create_restore_point(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	const Bitmapset *workers = metadata_all_workers();
	char *command = psprintf("SELECT pg_catalog.pg_create_restore_point(%s)",
							 quote_literal_cstr(text_to_cstring(PG_GETARG_TEXT_PP(0))));
	List *wires;
	Datum lsn;
	ListCell *lc;

	InitMaterializedSRF(fcinfo, 0);
	wires = remote_transaction_ready_all(workers);
	gate_restore_point_begin(workers);
	PG_TRY();
	{
		lsn = DirectFunctionCall1(pg_create_restore_point, PG_GETARG_DATUM(0));
		put_row(result, "coordinator", lsn);
		foreach(lc, wires)
			remote_transaction_send_ready(lfirst(lc), REMOTE_READ, command);
		foreach(lc, wires)
		{
			WorkerConnection *conn = lfirst(lc);

			put_row(result, conn->worker_name, fetch_lsn(conn));
		}
		gate_snapshot_check();
	}
	PG_FINALLY();
	{
		gate_end();
	}
	PG_END_TRY();
	return (Datum) 0;
}
