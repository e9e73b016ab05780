/*
 * remote_scan.h
 *		Rows of one SQL text from several workers at once.
 *
 * The SQL runs as COPY (sql) TO STDOUT (FORMAT binary) on each worker, all of them
 * concurrently; rows are handed out as they come.  Memory is bounded by the
 * sockets' buffers, and by work_mem for streams that had to yield their wire
 * (they spool to a tuplestore).
 */
#ifndef STRATA_REMOTE_SCAN_H
#define STRATA_REMOTE_SCAN_H

#include "executor/tuptable.h"
#include "transaction/remote_transaction.h"

typedef struct RemoteScan RemoteScan;

/*
 * Start on wires that are ready (remote_transaction_ready_all()).  `sql` is a SELECT, or a DML
 * statement with RETURNING (REMOTE_WRITE), whose columns correspond to `desc`, those that are not
 * row_format_is_binary() cast to text.
 * Everything is allocated in CurrentMemoryContext, which must live until remote_scan_end();
 * a scan left open by an error is cleaned up by the transaction's abort.
 * Streams are numbered 0 .. count - 1 in the order of the wires.
 */
extern RemoteScan *
remote_scan_begin(const List *wires, RemoteAccess access, const char *sql, TupleDesc desc);

/* The same with an SQL text per wire. */
extern RemoteScan *
remote_scan_begin_each(const List *wires, char **sqls, RemoteAccess access, TupleDesc desc);

extern int remote_scan_stream_count(const RemoteScan *scan);

/*
 * Next row, from whichever stream has one, stored as a virtual tuple into slot
 * (whose values live until the next call); returns false and clears the slot at the end.
 */
extern bool remote_scan_next(RemoteScan *scan, TupleTableSlot *slot);

/*
 * Next row of one stream, for an ordered merge.  The values live until the next
 * call for the same stream.
 */
extern bool remote_scan_next_from(RemoteScan *scan, int stream, TupleTableSlot *slot);

/* Wait, before the first row is asked for, until each stream has one or has ended. */
extern void remote_scan_await_all(RemoteScan *scan);

/* Receive all rows now: they then survive the subtransaction in which they were asked for. */
extern void remote_scan_keep(RemoteScan *scan);

/* What has come from one worker; times in milliseconds since the question was sent. */
typedef struct RemoteTraffic
{
	int worker_id;
	bool standby;
	uint64 rows;
	uint64 bytes;
	double first; /* of its rows; 0: there is none */
	double end;	  /* or now */
} RemoteTraffic;

extern RemoteTraffic remote_scan_traffic(const RemoteScan *scan, int stream);

/*
 * Stop early or after the last row.  Rows not read yet are thrown away: by
 * cancelling where the worker's transaction wrote and locked nothing, else by draining.
 */
extern void remote_scan_end(RemoteScan *scan);

#endif
