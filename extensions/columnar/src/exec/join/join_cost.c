/*
 * join_cost.c
 *		For the planner: what a ColumnarJoin costs.
 *
 * Costs are in units of cpu_operator_cost, which stands for some 12 ns where core's nodes are
 * measured.  Of a build row: its keys' place in the table, a copy of each column that is kept.
 * Of a probe row: a look-up, which takes longer when the table is larger than the caches, and if
 * it is a hash table and no array.  Of a row of the result: a fetch from the build side for
 * each column.  Columns of the probe side are passed through.
 */
#include "exec/join/join_path.h"

#include <math.h>

#include "exec/scan/custom_scan.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"

/* A kernel's work on a value. */
#define KERNEL_COST (0.05 * cpu_operator_cost)

/* An expression evaluated by kernels, in parts of what core expects of it. */
#define EXPRESSION_SHARE 0.2

/* Entering a build row into the table, besides the access to it. */
#define INSERT_COST (1.5 * cpu_operator_cost)

/* An access to memory that is in the cache; and to memory that is not. */
#define NEAR_COST (0.05 * cpu_operator_cost)
#define FAR_COST (0.4 * cpu_operator_cost)

/* A look-up in a hash table, in accesses; one integer as key is mostly an index into an array. */
#define HASH_ACCESSES 5

/* A build row that shares its keys with others; and a pair of rows, if such are possible. */
#define DUPLICATE_COST (0.4 * cpu_operator_cost)
#define PAIR_COST (0.6 * cpu_operator_cost)
#define DUPLICATE_RATIO 1.1

/* Copies and fetches of text and the like, in those of numbers. */
#define TEXT_FACTOR 5

/* Memory up to which it is in the cache, and from which on it is not, as powers of 2. */
#define NEAR_BITS 20
#define FAR_BITS 26

/* Memory of a build row besides its columns. */
#define ROW_MEMORY 24.0

/* A path's cost, put together. */
typedef struct JoinCost
{
	double build_rows;
	double probe_rows;
	double output_rows;
	double memory; /* of the build side */
	Cost build;	   /* all of it */
	Cost probe;	   /* without what reading the side costs */
	Cost startup;  /* of conditions */
} JoinCost;

/* An access to a random place in so much memory. */
static Cost
access_cost(double memory)
{
	double bits = log2(Max(memory, 1));
	double share = (bits - NEAR_BITS) / (FAR_BITS - NEAR_BITS);

	return NEAR_COST + (FAR_COST - NEAR_COST) * Min(Max(share, 0), 1);
}

static RelOptInfo *
build_side(const JoinCandidate *path)
{
	return path->builds_outer ? path->query->outer : path->query->inner;
}

static RelOptInfo *
probe_side(const JoinCandidate *path)
{
	return path->builds_outer ? path->query->inner : path->query->outer;
}

/* Columns that are kept of a build row, in such that are numbers. */
static double
weigh_kept(const JoinCandidate *path)
{
	double weight = 0;
	ListCell *cell;

	foreach(cell, path->query->columns)
	{
		const PlannedColumn *column = lfirst(cell);

		if (column->kept && (path->builds_outer ? column->outer : column->inner) != NULL)
			weight += get_typlen(column->var->vartype) > 0 ? 1 : TEXT_FACTOR;
	}
	return weight;
}

/* Evaluating the keys of a row. */
static Cost
key_cost(PlannerInfo *root, List *keys)
{
	Cost cost = KERNEL_COST * list_length(keys);
	ListCell *cell;

	foreach(cell, keys)
	{
		QualCost qual;

		cost_qual_eval_node(&qual, lfirst(cell), root);
		cost += qual.per_tuple * EXPRESSION_SHARE;
	}
	return cost;
}

/* Finding the place of a row's keys. */
static Cost
place_cost(List *keys, double memory)
{
	bool is_hashed = list_length(keys) > 1 || !get_typbyval(exprType(linitial(keys)));

	return access_cost(memory) * (is_hashed ? HASH_ACCESSES : 1);
}

/* Pairs of rows with equal keys, for which conditions are evaluated. */
static double
count_pairs(const JoinCandidate *path, const JoinCost *cost)
{
	const JoinQuery *query = path->query;
	SpecialJoinInfo *info = makeNode(SpecialJoinInfo);
	double pairs = cost->build_rows * cost->probe_rows;
	ListCell *cell;

	info->min_lefthand = info->syn_lefthand = query->outer->relids;
	info->min_righthand = info->syn_righthand = query->inner->relids;
	info->jointype = JOIN_INNER;
	foreach(cell, query->key_clauses)
		pairs *= clause_selectivity(query->root, lfirst(cell), 0, JOIN_INNER, info);
	return clamp_row_est(pairs);
}

/* Without a unique index it is a guess: more rows come out than went in. */
static void
add_duplicates(const JoinCandidate *path, JoinCost *cost)
{
	bool unique = !path->builds_outer && path->query->inner_unique;

	if (unique || cost->output_rows <= DUPLICATE_RATIO * cost->probe_rows)
		return;
	cost->build += cost->build_rows * DUPLICATE_COST;
	cost->probe += cost->output_rows * PAIR_COST;
}

static void
add_conditions(const JoinCandidate *path, JoinCost *cost)
{
	const JoinQuery *query = path->query;
	QualCost conditions;
	QualCost filters;

	if (query->conditions == NIL && query->filters == NIL)
		return;
	cost_qual_eval(&conditions, query->conditions, query->root);
	cost_qual_eval(&filters, query->filters, query->root);
	cost->startup += conditions.startup + filters.startup;
	cost->probe += count_pairs(path, cost) *
				   (2 * KERNEL_COST +
					(conditions.per_tuple + filters.per_tuple) * EXPRESSION_SHARE);
}

/* Is there a key so frequent that its rows alone do not fit into memory? */
static bool
is_too_skewed(const JoinCandidate *path, double memory, double limit)
{
	List *keys = path->builds_outer ? path->query->outer_keys : path->query->inner_keys;
	double most = 1;
	ListCell *cell;

	foreach(cell, keys)
	{
		Selectivity frequency;
		Selectivity bucket;

		estimate_hash_bucket_stats(path->query->root, lfirst(cell), 1024, &frequency, &bucket);
		most = Min(most, frequency);
	}
	return memory * most > limit;
}

/* Rows of both sides are written to files, and read again. */
static void
add_spilling(const JoinCandidate *path, JoinCost *cost)
{
	double limit = get_hash_memory_limit();
	double probe_bytes = cost->probe_rows * probe_side(path)->reltarget->width;
	double share;

	if (cost->memory <= limit)
		return;
	share = 1 - limit / cost->memory;
	if (is_too_skewed(path, cost->memory, limit))
		cost->startup += disable_cost;
	cost->build += 2 * seq_page_cost * share * cost->memory / BLCKSZ;
	cost->probe += 2 * seq_page_cost * share * probe_bytes / BLCKSZ +
				   2 * KERNEL_COST * share * cost->probe_rows;
}

static void
estimate(const JoinCandidate *path, JoinCost *cost)
{
	const JoinQuery *query = path->query;
	double kept = weigh_kept(path);
	List *build_keys = path->builds_outer ? query->outer_keys : query->inner_keys;
	List *probe_keys = path->builds_outer ? query->inner_keys : query->outer_keys;

	cost->build_rows = path->build->rows;
	cost->probe_rows = path->probe->rows;
	cost->output_rows = clamp_row_est(query->joined->rows /
									  custom_scan_parallel_divisor(path->probe->workers));
	cost->memory = cost->build_rows * (ROW_MEMORY + build_side(path)->reltarget->width);

	cost->build = path->build->total_cost;
	cost->build += cost->build_rows * (key_cost(query->root, build_keys) + INSERT_COST +
									   kept * KERNEL_COST + place_cost(build_keys, cost->memory));
	cost->probe = cost->probe_rows *
				  (key_cost(query->root, probe_keys) + place_cost(build_keys, cost->memory));
	cost->probe += cost->output_rows * (2 * KERNEL_COST + kept * access_cost(cost->memory));
	add_duplicates(path, cost);
	add_conditions(path, cost);
	add_spilling(path, cost);
}

/* Does the node return nothing before it has read all of the probe side? */
static bool
is_late(JoinKind kind)
{
	return kind == JOIN_KIND_BUILD_SEMI || kind == JOIN_KIND_BUILD_ANTI;
}

void
join_cost_set(JoinCandidate *candidate)
{
	Path *path = &candidate->custom.path;
	const BatchPath *probe = candidate->probe;
	JoinCost cost = {0};

	estimate(candidate, &cost);
	path->rows = cost.output_rows;
	compat_set_disabled_nodes(path, candidate->build->disabled_nodes + probe->disabled_nodes);
	path->total_cost = cost.startup + cost.build + cost.probe + probe->total_cost;
	path->startup_cost = is_late(candidate->kind) ? path->total_cost
												  : cost.startup + cost.build + probe->startup_cost;
}
