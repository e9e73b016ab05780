/*
 * gather_plan.h
 *		The custom scan that brings rows from the workers: path and plan.  Its execution is in execute/gather.h.
 */
#ifndef STRATA_GATHER_PLAN_H
#define STRATA_GATHER_PLAN_H

#include "nodes/extensible.h"
#include "nodes/pathnodes.h"

#include "plan/dist_path.h"
#include "plan/partner_keys.h"

/* Of path, plan and methods of execution, by which the plan finds them. */
#define GATHER_NAME "Strata Gather"

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
	Oid held_relation; /* a table whose rows core changes one by one (held_rows.h), or InvalidOid */
	bool held_repeat;  /* ... of which some may come several times */
	bool held_keep;	   /* ... and which core asks for at any time */
	List *
		held_columns; /* ints, 1-based: where its columns are (0: nowhere), the leaf, the tid there */
	bool reference;	  /* of reference tables alone: any worker is asked, or else the child runs */
	int keys_param;	  /* $n that the child's rows are, as an array (partner_keys.h); 0: none */
	char *unfiltered_sql;	/* ... and the SQL without it, for too many of them */
	List *schemas;			/* names (String) of those that the SQL names */
	List *sort_columns;		/* ints, 1-based; NIL: any order */
	List *sort_operators;	/* Oids */
	List *sort_collations;	/* Oids */
	List *sort_nulls_first; /* ints */
	List *once_columns; /* ints, 1-based: bigints made 1 in one of the rows that sort_columns call
							 * equal, if it is above 0 in any, and 0 in the others */
} GatherPlan;

extern void gather_plan_from_list(List *list, GatherPlan *plan);

/*
 * A path that yields the rows of `dist` on the coordinator.  target is what it
 * promises upwards; fetch lists the expressions the workers send when dist has no
 * target of its own; local_quals (bare clauses) are evaluated here.  pathkeys: the order
 * of the rows when dist sorts.
 */
extern Path *gather_path_create(PlannerInfo *root, RelOptInfo *rel, DistPath *dist,
								PathTarget *target, List *fetch, List *local_quals, List *pathkeys);

/* The same of a relation's rows that have a partner; `dist` says how many these are. */
extern Path *gather_path_create_filtered(PlannerInfo *root, RelOptInfo *rel, DistPath *dist,
										 List *fetch, PartnerKeys *keys);

/*
 * The same of a `dist` whose rows every worker has; `local` yields them here if no worker can.  startup_cost 0: always better than
 * that.
 */
extern Path *
gather_path_create_reference(PlannerInfo *root, RelOptInfo *rel, DistPath *dist, PathTarget *target,
							 List *pathkeys, Path *local, Cost startup_cost);

extern bool gather_path_is(const Path *path);

/* Can these expressions cross the network as columns? (A row of a derived table has no type that can.) */
extern bool gather_can_fetch(List *exprs);

/* Path of a statement shipped whole; the DistPath only says where. target: RETURNING or empty. */
typedef CustomScan *(*GatherModifyPlanner)(PlannerInfo *root, CustomPath *path, void *arg);
extern Path *gather_path_create_modify(PlannerInfo *root, RelOptInfo *rel, List *subpaths,
									   double rows, GatherModifyPlanner planner, void *arg);

/* The plan reads derived tables inside a remote statement: planner_add_hidden_root() for each. */
extern void gather_add_hidden_roots(DistPath *dist);

/* Expressions as a target list; the same expression once. */
extern List *gather_scan_tlist(List *exprs);

/* Assemble the CustomScan. scan_tlist: what arrives; tlist: what is returned (NIL: scan_tlist). */
extern CustomScan *gather_make_scan(const GatherPlan *plan, List *tlist, List *scan_tlist,
									List *quals, List *params, const Locus *locus);

#endif
