/*
 * gather.h
 *		Execution of the custom scan that brings rows from the workers (plan/gather_plan.h).
 *
 *		gather_exec.c		execution
 *		gather_request.c	the statement, with values for its parameters, and the workers that get it
 *		gather_explain.c	EXPLAIN
 */
#ifndef STRATA_GATHER_H
#define STRATA_GATHER_H

#include "commands/explain.h"
#include "executor/executor.h"

#include "plan/gather_plan.h"
#include "stream/remote_scan.h"
#include "wire/remote_role.h"

typedef struct GatherScanState
{
	CustomScanState css;
	GatherPlan plan;
	List *params; /* ExprState */
	List *routes;
	List *array_routes;
	Bitmapset *param_ids;  /* PARAM_EXEC ids that the shipped statement depends on */
	MemoryContext context; /* of one remote scan */
	RemoteScan *scan;
	SubTransactionId subtransaction; /* in which the statement, or cursor, began */
	bool started;
	bool finished;		 /* all rows were received */
	uint64 changed_rows; /* returned by RETURNING and not counted yet */
	int worker_count;	 /* that took part, for EXPLAIN */
	int copy_worker; /* of a plan of reference tables: whose copies are read, 0 not chosen yet */
	bool reads_here; /* ... or the child runs in its place: reference_read.h */

	/* merge of ordered streams */
	struct binaryheap *heap;
	TupleTableSlot **stream_slots;
	struct SortSupportData *sort_keys;
	int last_stream; /* whose row was returned last, -1 at first */
	struct CountOnce *once;
	struct RowHolder *holder; /* of rows that core changes one by one */

	/* rows kept for rescans */
	Tuplestorestate *store;
	bool store_rows;
	bool reading_store;
	TupleTableSlot *store_slot;

	List *traffic;			 /* RemoteTraffic * of each worker, in the scans that have ended */
	struct PlanState *child; /* GATHER_INSERT_ROWS, whose rows are the keys, or plan.reference */
	struct PartnerKeyList *keys; /* NULL until they have been read */
} GatherScanState;

extern void gather_initialize(void); /* registers the custom scan methods */

extern void gather_explain(CustomScanState *node, List *ancestors, ExplainState *es);

/* The statement has changed so many rows. */
extern void gather_count_changes(GatherScanState *state, uint64 rows);

/* What has been received so far, over all rescans: RemoteTraffic * of each worker. */
extern List *gather_list_traffic(const GatherScanState *state);

/*
 * Text with each $n outside of quotes replaced by the literal of a parameter's
 * current value; $1 .. $offset are not parameters and must not occur.
 */
extern char *gather_substitute(GatherScanState *state, const char *sql, int offset);

/* Workers that take part in the plan, as long as nothing is known of values. */
extern const Bitmapset *gather_all_workers(const GatherScanState *state);

/* The SQL with parameters replaced by literals of their current values; workers by the routes. */
extern char *gather_current_sql(GatherScanState *state);
extern Bitmapset *gather_current_workers(GatherScanState *state);

/* Workers that it may ask, before its parameters of the executor have values. */
extern Bitmapset *gather_possible_workers(GatherScanState *state);

/* The plan state, if it is one of ours; else NULL. */
extern GatherScanState *gather_from_plan_state(PlanState *state);

/* Have the workers find what the statement names, until remote_role_enter() of what is returned. */
extern RemoteRole gather_enter_role(const GatherScanState *state);

#endif
