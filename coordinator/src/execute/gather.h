/*
 * gather.h
 *		The custom scan that brings rows from the workers: path, plan, execution, EXPLAIN.
 *
 *		gather_plan.c		path and plan
 *		gather_exec.c		execution
 *		gather_explain.c	EXPLAIN
 */
#ifndef STRATA_GATHER_H
#define STRATA_GATHER_H

#include "executor/executor.h"
#include "commands/explain.h"
#include "nodes/extensible.h"
#include "nodes/pathnodes.h"

#include "plan/dist_path.h"
#include "stream/remote_scan.h"
#include "wire/remote_role.h"

/* What a shipped statement does; decides how its answer is read. */
typedef enum GatherKind
{
	GATHER_SELECT,
	GATHER_MODIFY,	   /* INSERT, UPDATE, DELETE, MERGE shipped whole, perhaps with RETURNING */
	GATHER_INSERT_ROWS /* INSERT whose rows come from a child plan and are routed here */
} GatherKind;

/*
 * The content of CustomScan.custom_private, in the order of the list: everything
 * execution needs, as nodes that copyObject() understands.
 * custom_exprs holds params, then routes, then array routes.
 */
typedef struct GatherPlan
{
	GatherKind kind;
	char *sql;		   /* with $1 .. $n for the params */
	int colocation_id; /* whose workers take part */
	bool writes;	   /* REMOTE_WRITE: changes or locks rows */
	bool can_set_tag;  /* counts in the statement's row count */
	bool returning;
	int param_count;
	int route_count;
	int array_route_count;
	int key_attribute; /* GATHER_INSERT_ROWS: the key's attribute number */
	List *
		row_columns; /* GATHER_INSERT_ROWS: attribute numbers that $1 .. $n stand for, before the params */
	List *schemas;			/* names (String) of those that the SQL names */
	List *sort_columns;		/* ints, 1-based; NIL: any order */
	List *sort_operators;	/* Oids */
	List *sort_collations;	/* Oids */
	List *sort_nulls_first; /* ints */
} GatherPlan;

extern List *gather_plan_to_list(const GatherPlan *plan);
extern void gather_plan_from_list(List *list, GatherPlan *plan);

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

	/* merge of ordered streams */
	struct binaryheap *heap;
	TupleTableSlot **stream_slots;
	struct SortSupportData *sort_keys;
	int last_stream; /* whose row was returned last, -1 at first */

	/* rows kept for rescans */
	Tuplestorestate *store;
	bool store_rows;
	bool reading_store;
	TupleTableSlot *store_slot;

	/* totals of the scans that have ended, for EXPLAIN */
	uint64 rows_received;
	uint64 bytes_received;
	struct PlanState *child; /* GATHER_INSERT_ROWS */
} GatherScanState;

/*
 * A path that yields the rows of `dist` on the coordinator.  target is what it
 * promises upwards; fetch lists the expressions the workers send when dist has no
 * target of its own; local_quals (bare clauses) are evaluated here.  pathkeys: the order
 * of the rows when dist sorts.
 */
extern Path *gather_path_create(PlannerInfo *root, RelOptInfo *rel, DistPath *dist,
								PathTarget *target, List *fetch, List *local_quals, List *pathkeys);

/* Can these expressions cross the network as columns? (A row of a derived table has no type that can.) */
extern bool gather_can_fetch(List *exprs);

/* Path of a statement shipped whole; the DistPath only says where. target: RETURNING or empty. */
typedef CustomScan *(*GatherModifyPlanner)(PlannerInfo *root, CustomPath *path, void *arg);
extern Path *gather_path_create_modify(PlannerInfo *root, RelOptInfo *rel, List *subpaths,
									   double rows, GatherModifyPlanner planner, void *arg);

/* The plan reads derived tables inside a remote statement: planner_add_hidden_root() for each. */
extern void gather_add_hidden_roots(DistPath *dist);

/* Assemble the CustomScan. scan_tlist: what arrives; tlist: what is returned (NIL: scan_tlist). */
extern CustomScan *gather_make_scan(const GatherPlan *plan, List *tlist, List *scan_tlist,
									List *quals, List *params, const Locus *locus);

extern void gather_initialize(void); /* registers the custom scan methods */

extern Node *gather_create_state(CustomScan *scan);
extern void gather_explain(CustomScanState *node, List *ancestors, ExplainState *es);

/* The statement has changed so many rows. */
extern void gather_count_changes(GatherScanState *state, uint64 rows);

/* What has been received so far, over all rescans. */
extern void gather_count_received(GatherScanState *state, uint64 *rows, uint64 *bytes);

/*
 * Text with each $n outside of quotes replaced by the literal of a parameter's
 * current value; $1 .. $offset are not parameters and must not occur.
 */
extern char *gather_substitute(GatherScanState *state, const char *sql, int offset);

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
