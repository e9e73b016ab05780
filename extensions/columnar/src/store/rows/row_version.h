/*
 * row_version.h
 *		Which version of which row is alive, and for whom: deletes, updates and row
 *		locks as bitmaps over 1024 row numbers.
 *
 * A RowVector is a tuple of the catalog: its inserting transaction deletes,
 * updates or locks the rows whose bits are set.  It says so the moment the bit is
 * set, so it is the lock as well: whoever wants the row waits for the transaction
 * id.  Rows of one (sub)transaction, command, unit and action share a vector,
 * whose bits are set in place before that transaction ends (a reader of another
 * transaction ignores the vector; a finished one does not change any more).
 * Vectors belong to row numbers, not to row groups, so compaction, which keeps
 * row numbers, does not disturb them.
 *
 * An UPDATE vector maps its rows, in ascending order, to consecutive new row
 * numbers from `successor` on; an update that does not continue this order
 * starts another vector.
 *
 * A LOCK vector is inserted and deleted by the same transaction: it counts while
 * its holder runs (prepared ones too), and is garbage for VACUUM afterwards.
 * It names its holder, because an update that keeps the key copies the KEY SHARE
 * locks of others to the new version.
 *
 * Lock order: unit lock (a heavyweight page lock, numbered unit + 1) before the
 * space lock; both held for moments, never while waiting for a transaction.
 */
#ifndef COLUMNAR_ROW_VERSION_H
#define COLUMNAR_ROW_VERSION_H

#include "store/catalog/group_catalog.h"

#include "access/tableam.h"
#include "nodes/lockoptions.h"

typedef enum VectorAction
{
	VECTOR_DELETE = 1,
	VECTOR_UPDATE = 2,
	VECTOR_MOVE = 3, /* deleted because the row moved to another partition */
	VECTOR_KILL = 4, /* a speculative insertion that lost: dead for everybody at once */
	VECTOR_LOCK = 5
} VectorAction;

typedef struct RowVector
{
	uint64 successor;
	uint64 bits[UNIT_ROWS / 64];
	uint32 unit;
	TransactionId holder;
	uint16 version;
	uint8 action;
	uint8
		mode; /* LockTupleMode: of the lock; of an update or delete: Exclusive or NoKeyExclusive */
	uint32 unused;
} RowVector;

/* ---- many rows --------------------------------------------------------------------------------- */

/* The rows of a table that a snapshot sees deleted. */
typedef struct DeletedRows DeletedRows;

/* MVCC snapshots; others: dead for everybody, or deleted by committed transactions or this one. */
extern DeletedRows *deleted_rows_load(GroupCatalog *catalog, Snapshot snapshot);
extern bool deleted_rows_is_empty(const DeletedRows *deleted);
extern bool deleted_rows_contains(const DeletedRows *deleted, uint64 row);
/* Sets bit i for each deleted row first + i, i < nrows <= 1024, of zeroed bits; how many. */
extern uint32
deleted_rows_bits(const DeletedRows *deleted, uint64 first, uint32 nrows, uint64 *bits);
/* The same for rows[i]: quickest where they ascend. */
extern uint32
deleted_rows_mark(const DeletedRows *deleted, const uint64 *rows, uint32 nrows, uint64 *bits);
/* Number of deleted rows in [first, first + nrows), and whether there are any. */
extern uint64 deleted_rows_count(const DeletedRows *deleted, uint64 first, uint64 nrows);
extern bool deleted_rows_any(const DeletedRows *deleted, uint64 first, uint64 nrows);

/*
 * How many rows a snapshot (as above) sees deleted, or at least `enough` if there are more: no
 * further vectors are looked at.  Keeps nothing.
 */
extern uint64 deleted_rows_probe(GroupCatalog *catalog, Snapshot snapshot, uint64 enough);

/* Rows whose deletion committed before the horizon, i.e. dead for everybody. */
extern DeletedRows *deleted_rows_dead(GroupCatalog *catalog, TransactionId oldest_xmin);
/*
 * The same for the units of the rows from `first` to before *end.  Stops after the unit with which
 * what is loaded takes so many bytes; *end is then where it stopped.
 */
extern DeletedRows *deleted_rows_dead_between(GroupCatalog *catalog, TransactionId oldest_xmin,
											  uint64 first, uint64 *end, Size memory);

/* How many rows of a range are dead; for several ranges, in order and apart, at once. */
typedef struct DeadCount
{
	uint64 first;
	uint64 nrows;
	uint64 ndead;
} DeadCount;

extern void deleted_rows_count_dead(GroupCatalog *catalog, TransactionId oldest_xmin,
									DeadCount *counts, uint32 ncounts);

/* ---- one row ------------------------------------------------------------------------------------ */

/*
 * Does the snapshot (of any type) see the row?  For Dirty snapshots xmin, xmax and
 * speculativeToken are set as heapam does.  *entry (may be NULL) is its group;
 * rows in this backend's own write buffers are the caller's business.
 */
extern bool
row_version_visible(GroupCatalog *catalog, uint64 row, Snapshot snapshot, GroupEntry *entry);

/* A change that is about to happen: between begin and finish the unit is locked. */
typedef struct RowChange
{
	GroupCatalog *catalog;
	uint64 row;
	VectorAction action;
	LockTupleMode mode;
	CommandId cid;
	/* KEY SHARE locks of others that the new version inherits */
	TransactionId *holders;
	int nholders;
	/* this command's vector that can be continued, if there is one; else the number of a new one */
	bool has_vector;
	ItemPointerData vector_tid;
	RowVector vector;
	int32 number;
} RowChange;

/*
 * May this transaction delete or update the row, as seen by the executor's
 * snapshot, now?  Waits for conflicting transactions if `wait`.  TM_Ok: the unit is
 * locked; call finish.  Else nothing is held and *failure is filled as
 * table_tuple_delete() documents (ctid = the successor for TM_Updated; itself for
 * TM_Deleted; a moved row has its ctid set by ItemPointerSetMovedPartitions).
 * ERROR, as heapam raises it, if the command cannot have seen the row.
 */
extern TM_Result
row_version_begin_change(RowChange *change, GroupCatalog *catalog, uint64 row, VectorAction action,
						 LockTupleMode mode, CommandId cid, Snapshot snapshot, Snapshot crosscheck,
						 bool wait, TM_FailureData *failure);
/* Records the change; `successor`: the new row number of an update. */
extern void row_version_finish_change(RowChange *change, uint64 successor);

/* Makes a row of this transaction's failed speculative insertion dead for everybody. */
extern void row_version_kill(GroupCatalog *catalog, uint64 row, CommandId cid);

/*
 * Locks a row as table_tuple_lock() documents, without the slot: follows updates
 * when flags say so, leaving the locked row's number in *row.
 */
extern TM_Result
row_version_lock(GroupCatalog *catalog, uint64 *row, Snapshot snapshot, CommandId cid,
				 LockTupleMode mode, LockWaitPolicy policy, uint8 flags, TM_FailureData *failure);

/*
 * Is the row dead for every snapshot, because of a deletion or update that committed
 * before the horizon?  (Rows whose group is gone are not asked for: false.)
 */
extern bool row_version_is_dead(GroupCatalog *catalog, uint64 row);

/* The newest version of the row that the snapshot sees (tuple_get_latest_tid). */
extern uint64 row_version_latest(GroupCatalog *catalog, uint64 row, Snapshot snapshot);

#endif
