/*
 * row_state.h
 *		What the catalog says about one row at this moment: inserted, changed, locked,
 *		by whom - and what follows from that for somebody who wants the row.
 *
 * Reading (row_state_read_*) collects facts; judging (row_state_judge,
 * row_state_conflict) decides by them and touches nothing.  The facts stay true
 * as long as the unit lock is held, except that other transactions end.
 *
 * A vector's deletion is not looked at: rows do not come back to life, and a LOCK
 * vector is deleted by its own holder the moment it is made.
 */
#ifndef COLUMNAR_ROW_STATE_H
#define COLUMNAR_ROW_STATE_H

#include "store/rows/row_version.h"

/* How it stands with the transaction that wrote a tuple. */
typedef enum RowWriter
{
	ROW_WRITER_OWN, /* this transaction, any of its subtransactions that is not aborted */
	ROW_WRITER_RUNNING,
	ROW_WRITER_COMMITTED,
	ROW_WRITER_ABORTED
} RowWriter;

typedef enum RowPresence
{
	ROW_PRESENT, /* inserted by a committed transaction or an earlier command of this one */
	ROW_TOO_NEW, /* inserted by the asking command, or a later one, of this transaction */
	ROW_UNSEEN,	 /* nobody committed it */
	ROW_GONE	 /* its group was removed after the snapshot was taken */
} RowPresence;

/* A lock that a running transaction other than this one holds. */
typedef struct RowLock
{
	TransactionId holder;
	LockTupleMode mode;
} RowLock;

/* The vector into which the reader would like to set a bit; see row_state_read_vectors(). */
typedef struct VectorKey
{
	TransactionId xid;	  /* inserter: the current subtransaction */
	TransactionId holder; /* of LOCK vectors; xid otherwise */
	CommandId cid;		  /* not of LOCK vectors */
	VectorAction action;
	LockTupleMode mode;
} VectorKey;

typedef struct RowState
{
	uint64 row;

	/* its insertion: row_state_read_presence() */
	RowPresence presence;
	TransactionId xmin;
	CommandId cmin; /* of ROW_TOO_NEW */

	/* its end: changed = false, or the vector that did it, not aborted */
	bool killed;
	bool changed;
	RowWriter changer;
	VectorAction action; /* DELETE, UPDATE or MOVE */
	LockTupleMode mode;
	TransactionId xmax;
	CommandId cmax; /* of ROW_WRITER_OWN */
	uint64 successor;

	/* its locks */
	bool own_lock;
	LockTupleMode own_mode; /* the strongest own one */
	RowLock *locks;			/* of others; valid until the next read */
	int nlocks;

	/* the vector that matches the key, if there is one, and a number for a new one */
	bool found;
	ItemPointerData tid;
	RowVector vector;
	int32 free_number;
} RowState;

/* May be called while the tuple's buffer is share-locked. */
extern RowWriter row_state_writer(HeapTuple tuple);

/*
 * The holder that a LOCK vector names.  The name can be very old, as nobody freezes
 * it, so what cannot be a running transaction is not looked up; any ended holder
 * counts as committed or aborted, whichever.
 */
extern RowWriter row_state_holder(TransactionId holder);

/* Copies and checks the bytes of a vector; false if they are none of that unit. */
extern bool row_vector_parse(RowVector *vector, uint32 unit, const char *bytes, uint32 length);
/* The same, or ERROR data_corrupted. */
extern void row_state_read_vector(RowVector *vector, Relation relation, uint32 unit,
								  const char *bytes, uint32 length);

static inline bool
row_vector_contains(const RowVector *vector, uint64 row)
{
	uint32 bit = row % UNIT_ROWS;

	return (vector->bits[bit / 64] & (UINT64CONST(1) << (bit % 64))) != 0;
}

/* The row number that replaced an updated row: successors follow the order of the bits. */
extern uint64 row_vector_successor(const RowVector *vector, uint64 row);

/*
 * group_catalog_find() for the snapshots that look at the present, and for writers.
 * These look at one record after the other, and could miss a row whose old record a
 * compaction deletes before it is looked at, while the new one's index entry came after the
 * page of the index was read.  An MVCC snapshot taken afterwards cannot: it decides
 * before a row counts as lost, that is, before an update of it is.
 */
extern bool
row_state_find_group(GroupCatalog *catalog, uint64 row, Snapshot snapshot, GroupEntry *entry);

/* Who inserted the row?  cid: of the asking command; snapshot: what it sees (MVCC, else not used). */
extern void row_state_read_presence(RowState *state, GroupCatalog *catalog, uint64 row,
									CommandId cid, Snapshot snapshot);
/*
 * What the vectors of the unit say about the row.  key may be NULL; of several
 * UPDATE vectors that match it the one with the latest successors is taken.
 */
extern void
row_state_read_vectors(RowState *state, GroupCatalog *catalog, uint64 row, const VectorKey *key);

/* The answer that HeapTupleSatisfiesUpdate() gives about a heap tuple in this state. */
extern TM_Result row_state_judge(const RowState *state, CommandId cid);

extern LOCKMODE row_lock_mode(LockTupleMode mode);
extern bool row_lock_conflicts(LockTupleMode one, LockTupleMode other);

/* A running transaction that has to end before the row can be had in this mode, or Invalid. */
extern TransactionId row_state_conflict(const RowState *state, LockTupleMode mode);

/* Fills *failure (not `traversed`) as table_tuple_delete() documents. */
extern void row_state_explain(const RowState *state, TM_Result result, TM_FailureData *failure);

#endif
