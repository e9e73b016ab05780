/*
 * expression_estimate.c
 *		How many values an expression of one column has.
 *
 * Core takes an expression for as varied as the column in it: a year of seconds by the hour would have as
 * many groups as seconds.  So partial aggregates seem not to pay, and rows travel in place of groups.
 *
 * What ANALYZE has kept of the column, common values and a histogram, is a sample of its rows; between
 * the bounds of a histogram there are more, as core assumes, too.  The expression is computed of
 * each, and how often its values repeat says how many there are: Haas and Stokes' estimator, which
 * ANALYZE uses (compute_scalar_stats()).  Core looks for statistics of expressions at indexes.  So it gets an index of the
 * expressions that nobody can use, and their statistics from get_index_stats_hook.
 *
 * Planning must not run a user's code with values of somebody's table, and only who may read the column
 * may learn of its values from estimates.  The expression may fail with values that the query leaves out, and a
 * subtransaction is not to be had everywhere, nor without effects on others' callbacks.  So only functions are called that compute
 * a plain value of plain values: they hold nothing that an error would leave behind.
 */
#include "compat.h"

#include "expression_estimate.h"

#include <math.h>

#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "rewrite/rewriteManip.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/selfuncs.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "value_number.h"

/* Rows of which the expression is computed.  Groups are told from rows up to some half of its square. */
#define SAMPLE_ROWS 400

/* Of fewer rows core cannot expect too many groups. */
#define FEW_ROWS 1000

/* Memory for its values. */
#define VALUES_MEMORY (1024 * 1024)

/* What it says is worth saying if it is such a part of what core would expect. */
#define WORTH_SAYING 0.5

/* As find_statistics() knows our indexes: they have it for their array of operator families. */
static Oid mark[1] = {InvalidOid};

typedef struct ExpressionIndex
{
	IndexOptInfo index;		/* its columns are the expressions */
	HeapTuple statistics[]; /* of each, as in pg_statistic */
} ExpressionIndex;

static get_index_stats_hook_type previous_hook = NULL;

/* ---- expressions ------------------------------------------------------------------------------- */

static bool
is_plain_type(Oid type)
{
	switch (type)
	{
		case BOOLOID:
		case CHAROID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case BYTEAOID:
		case UUIDOID:
		case DATEOID:
		case TIMEOID:
		case TIMETZOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
		case INTERVALOID:
			return true;
		default:
			return false;
	}
}

/* Those that depend on the time zone and the like, and on nothing else. */
static bool
is_computation_in_session(Oid function)
{
	switch (function)
	{
		case F_DATE_TRUNC_TEXT_TIMESTAMPTZ:
		case F_DATE_TRUNC_TEXT_TIMESTAMPTZ_TEXT:
		case F_DATE_PART_TEXT_TIMESTAMPTZ:
		case F_EXTRACT_TEXT_TIMESTAMPTZ:
		case F_DATE_TIMESTAMPTZ:
		case F_TIMESTAMP_TIMESTAMPTZ:
		case F_TIMESTAMPTZ_TIMESTAMP:
		case F_TIMESTAMPTZ_DATE:
		case F_TIME_TIMESTAMPTZ:
		case F_TIMETZ_TIMESTAMPTZ:
		case F_TIMESTAMPTZ_PL_INTERVAL:
		case F_TIMESTAMPTZ_MI_INTERVAL:
		case F_TO_CHAR_TIMESTAMPTZ_TEXT:
		case F_TO_CHAR_TIMESTAMP_TEXT:
			return true;
		default:
			return false;
	}
}

/* Does the function compute a plain value of plain values?  Checker for check_functions_in_node(). */
static bool
is_no_computation(Oid function, void *context)
{
	HeapTuple tuple;
	Form_pg_proc form;
	bool result;

	if (function >= FirstNormalObjectId)
		return true;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	form = (Form_pg_proc) GETSTRUCT(tuple);
	result = form->prolang == INTERNALlanguageId && !form->proretset &&
			 is_plain_type(form->prorettype) &&
			 (form->provolatile == PROVOLATILE_IMMUTABLE || is_computation_in_session(function));
	for (int i = 0; result && i < form->pronargs; i++)
		result = is_plain_type(form->proargtypes.values[i]);
	ReleaseSysCache(tuple);
	return !result;
}

static bool
find_obstacle(Node *node, void *context)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_List:
		case T_CaseWhen:
			return expression_tree_walker(node, find_obstacle, context);

		case T_Var:
		case T_Const:
		case T_Param:
		case T_SQLValueFunction:
		case T_RelabelType:
		case T_CollateExpr:
		case T_CoerceViaIO: /* its functions are those of the two types */
		case T_CaseExpr:
		case T_CaseTestExpr:
		case T_CoalesceExpr:
		case T_MinMaxExpr:
			return !is_plain_type(exprType(node)) ||
				   expression_tree_walker(node, find_obstacle, context);

		case T_FuncExpr:
		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
		case T_BoolExpr:
		case T_NullTest:
		case T_BooleanTest:
			return check_functions_in_node(node, is_no_computation, NULL) ||
				   expression_tree_walker(node, find_obstacle, context);

		default:
			return true;
	}
}

static bool
find_parameter(Node *node, void *context)
{
	if (node == NULL)
		return false;
	return IsA(node, Param) || expression_tree_walker(node, find_parameter, context);
}

/* The only column in the expression; NULL if there is none or several, or it is the expression. */
static Var *
find_column(const Node *expression, Index relid)
{
	Var *column = NULL;
	List *vars;
	ListCell *cell;

	while (IsA(expression, RelabelType))
		expression = (const Node *) ((const RelabelType *) expression)->arg;
	if (IsA(expression, Var))
		return NULL;
	vars = pull_var_clause((Node *) expression, PVC_RECURSE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS |
													PVC_RECURSE_PLACEHOLDERS);
	foreach(cell, vars)
	{
		Var *var = lfirst_node(Var, cell);

		if (var->varno != relid || var->varattno <= 0 || (column != NULL && !equal(var, column)))
			return NULL;
		column = var;
	}
	list_free(vars);
	return column;
}

/* ---- the sample ---------------------------------------------------------------------------------- */

typedef struct Sample
{
	int count;
	Datum *values;
	int *rows;		  /* that have this value, of all in the sample */
	bool is_complete; /* there are no other values */
} Sample;

static void
put(Sample *sample, Datum value, double rows)
{
	sample->values[sample->count] = value;
	sample->rows[sample->count++] = Max((int) rint(rows), 1);
}

/* A value of the histogram: one between two bounds, at random. */
static Datum
draw_value(const AttStatsSlot *histogram, pg_prng_state *state)
{
	double place = pg_prng_double(state) * (histogram->nvalues - 1);
	int bin = (int) place;
	double low;
	double high;

	if (!value_number_get(histogram->valuetype, histogram->values[bin], &low) ||
		!value_number_get(histogram->valuetype, histogram->values[bin + 1], &high))
		return histogram->values[bin];
	return value_number_make(histogram->valuetype, low + (high - low) * (place - bin));
}

/*
 * The rows of a table of SAMPLE_ROWS that the statistics describe: each common value as often as it is there, and
 * others.  Where there is nothing between two bounds, the bounds alone are the others, each once.
 */
static bool
draw_sample(Sample *sample, const AttStatsSlot *common, const AttStatsSlot *histogram, double nulls,
			double ndistinct)
{
	int bounds = histogram->nvalues;
	double rest = 1 - nulls;
	double rows = SAMPLE_ROWS;
	int others;
	bool has_between;
	double number;
	pg_prng_state state;

	for (int i = 0; i < common->nnumbers; i++)
		rest -= common->numbers[i];
	sample->is_complete = bounds == 0 && common->nvalues >= ndistinct;
	if (bounds < 2 && !sample->is_complete)
		return false;
	has_between = bounds > 0 &&
				  value_number_get(histogram->valuetype, histogram->values[bounds / 2], &number);
	if (bounds > 0 && !has_between)
		rows = bounds / Max(rest, 1.0 / bounds);
	others = has_between ? (int) ceil(Max(rest, 0) * rows) : bounds;

	sample->values = palloc((common->nvalues + others) * sizeof(Datum));
	sample->rows = palloc((common->nvalues + others) * sizeof(int));
	for (int i = 0; i < common->nvalues && i < common->nnumbers; i++)
		put(sample, common->values[i], common->numbers[i] * rows);
	pg_prng_seed(&state, 0); /* the same plan each time */
	for (int i = 0; i < others; i++)
		put(sample, has_between ? draw_value(histogram, &state) : histogram->values[i], 1);
	return true;
}

/* ---- what the expression makes of it -------------------------------------------------------------- */

typedef struct Counting
{
	PlannerInfo *root;
	Node *expression;
	const Var *column;
	const Sample *sample;
	TypeCacheEntry *type; /* of the expression */
	double tuples;
	/* results */
	double nulls;	  /* the share of NULLs among those of no NULL */
	double ndistinct; /* HUGE_VAL: nobody knows */
} Counting;

typedef struct ComputedValue
{
	Datum value;
	int rows;
} ComputedValue;

typedef struct Comparison
{
	FmgrInfo *function;
	Oid collation;
} Comparison;

static int
compare_results(const void *a, const void *b, void *argument)
{
	const Comparison *comparison = argument;

	return DatumGetInt32(FunctionCall2Coll(comparison->function, comparison->collation,
										   ((const ComputedValue *) a)->value,
										   ((const ComputedValue *) b)->value));
}

static Node *
replace_column(Node *node, void *context)
{
	Var *column;

	if (node == NULL)
		return NULL;
	if (!IsA(node, Var))
		return expression_tree_mutator(node, replace_column, context);
	column = copyObject((Var *) node);
	column->varno = 1;
	column->varattno = 1;
	return (Node *) column;
}

/* Compute the expression of all values; returns how many results are not NULL, or -1 if they are too large. */
static int
compute(const Counting *counting, Node *expression, ComputedValue *results)
{
	const TypeCacheEntry *type = counting->type;
	TupleDesc desc = CreateTemplateTupleDesc(1);
	ExprContext *context = CreateStandaloneExprContext();
	TupleTableSlot *slot;
	ExprState *state;
	Size memory = 0;
	int count = 0;

	TupleDescInitEntry(desc, 1, NULL, counting->column->vartype, counting->column->vartypmod, 0);
	slot = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	expression = replace_column(expression, NULL);
	fix_opfuncids(expression);
	state = ExecInitExpr((Expr *) expression, NULL);
	context->ecxt_scantuple = slot;
	for (int i = 0; i < counting->sample->count && memory < VALUES_MEMORY; i++)
	{
		bool isnull;
		Datum value;

		CHECK_FOR_INTERRUPTS();
		ResetExprContext(context);
		ExecClearTuple(slot);
		slot->tts_values[0] = counting->sample->values[i];
		slot->tts_isnull[0] = false;
		ExecStoreVirtualTuple(slot);
		value = ExecEvalExprSwitchContext(state, context, &isnull);
		if (isnull)
			continue;
		if (!type->typbyval)
			memory += datumGetSize(value, false, type->typlen);
		results[count].value = datumCopy(value, type->typbyval, type->typlen);
		results[count++].rows = counting->sample->rows[i];
	}
	return memory < VALUES_MEMORY ? count : -1;
}

static void
count_values(Counting *counting)
{
	Oid collation = exprCollation(counting->expression);
	Comparison comparison = {&counting->type->cmp_proc_finfo, collation};
	ComputedValue *results = palloc(counting->sample->count * sizeof(ComputedValue));
	Node *expression = estimate_expression_value(counting->root, counting->expression);
	int count;
	double all = 0;	 /* rows of the sample */
	double rows = 0; /* those that are not NULL */
	double distinct = 0;
	double once = 0;

	counting->ndistinct = HUGE_VAL;
	if (find_parameter(expression, NULL) || (count = compute(counting, expression, results)) < 0)
		return;
	for (int i = 0; i < counting->sample->count; i++)
		all += counting->sample->rows[i];
	/* only whether they are equal matters */
	if (OidIsValid(collation) && get_collation_isdeterministic(collation))
		comparison.collation = C_COLLATION_OID;
	qsort_arg(results, count, sizeof(ComputedValue), compare_results, &comparison);
	for (int i = 0; i < count;)
	{
		int same = 0;
		int first = i;

		do
			same += results[i++].rows;
		while (i < count && compare_results(&results[first], &results[i], &comparison) == 0);
		rows += same;
		distinct++;
		once += same == 1;
	}
	counting->nulls = 1 - rows / all;
	if (counting->sample->is_complete || rows == 0)
		counting->ndistinct = Max(distinct, 1);
	else
		counting->ndistinct = rows * distinct /
							  (rows - once + once * rows / Max(counting->tuples, rows));
}

/* Does an error say that there is no such value? */
static bool
is_of_computation(int code)
{
	int category = ERRCODE_TO_CATEGORY(code);

	return category == ERRCODE_DATA_EXCEPTION || category == ERRCODE_FEATURE_NOT_SUPPORTED ||
		   category == ERRCODE_SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION ||
		   category == ERRCODE_PROGRAM_LIMIT_EXCEEDED;
}

/* False if the expression fails. */
static bool
try_to_count(Counting *counting)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext memory = AllocSetContextCreate(caller, "values of an expression",
												 ALLOCSET_DEFAULT_SIZES);
	volatile bool has_counted = false;

	PG_TRY();
	{
		MemoryContextSwitchTo(memory);
		count_values(counting);
		has_counted = true;
	}
	PG_CATCH();
	{
		if (!is_of_computation(geterrcode()))
			PG_RE_THROW();
		FlushErrorState();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(memory);
	return has_counted;
}

/* ---- statistics ------------------------------------------------------------------------------------ */

/* A row of pg_statistic. */
static HeapTuple
make_statistics(double nulls, int width, double ndistinct)
{
	Relation catalog = table_open(StatisticRelationId, AccessShareLock);
	Datum values[Natts_pg_statistic] = {0};
	bool isnull[Natts_pg_statistic] = {0};
	HeapTuple tuple;

	values[Anum_pg_statistic_stanullfrac - 1] = Float4GetDatum((float4) nulls);
	values[Anum_pg_statistic_stawidth - 1] = Int32GetDatum(width);
	values[Anum_pg_statistic_stadistinct - 1] = Float4GetDatum((float4) ndistinct);
	for (int i = 0; i < STATISTIC_NUM_SLOTS; i++)
	{
		isnull[Anum_pg_statistic_stanumbers1 - 1 + i] = true;
		isnull[Anum_pg_statistic_stavalues1 - 1 + i] = true;
	}
	tuple = heap_form_tuple(RelationGetDescr(catalog), values, isnull);
	table_close(catalog, AccessShareLock);
	return tuple;
}

/* From the column's statistics; NULL if they say no more than core knows. */
static HeapTuple
estimate(PlannerInfo *root, const RelOptInfo *rel, Node *expression, const Var *column,
		 VariableStatData *data)
{
	double nulls = ((Form_pg_statistic) GETSTRUCT(data->statsTuple))->stanullfrac;
	AttStatsSlot common;
	AttStatsSlot histogram;
	Sample sample = {0};
	Counting counting = {.root = root,
						 .expression = expression,
						 .column = column,
						 .sample = &sample,
						 .tuples = rel->tuples * (1 - nulls)};
	bool isdefault;
	double known = get_variable_numdistinct(data, &isdefault);
	HeapTuple result = NULL;

	counting.type = lookup_type_cache(exprType(expression), TYPECACHE_CMP_PROC_FINFO);
	if (isdefault || !OidIsValid(counting.type->cmp_proc_finfo.fn_oid))
		return NULL;
	(void) get_attstatsslot(&common, data->statsTuple, STATISTIC_KIND_MCV, InvalidOid,
							ATTSTATSSLOT_VALUES | ATTSTATSSLOT_NUMBERS);
	(void) get_attstatsslot(&histogram, data->statsTuple, STATISTIC_KIND_HISTOGRAM, InvalidOid,
							ATTSTATSSLOT_VALUES);
	if ((common.nvalues == 0 || common.valuetype == column->vartype) &&
		(histogram.nvalues == 0 || histogram.valuetype == column->vartype) &&
		draw_sample(&sample, &common, &histogram, nulls, known) && sample.count > 0 &&
		try_to_count(&counting) && counting.ndistinct < WORTH_SAYING * known)
		result = make_statistics(nulls + (1 - nulls) * counting.nulls,
								 get_typavgwidth(exprType(expression), exprTypmod(expression)),
								 counting.ndistinct);
	free_attstatsslot(&common);
	free_attstatsslot(&histogram);
	return result;
}

/* The statistics of an expression that core has none of. */
static HeapTuple
find_estimate(PlannerInfo *root, const RelOptInfo *rel, Node *expression)
{
	Var *column = find_column(expression, rel->relid);
	VariableStatData data;
	HeapTuple result = NULL;
	bool is_known;

	if (column == NULL || exprType(expression) == BOOLOID || find_obstacle(expression, NULL))
		return NULL;
	examine_variable(root, expression, 0, &data);
	is_known = HeapTupleIsValid(data.statsTuple) || data.isunique;
	ReleaseVariableStats(data);
	if (is_known)
		return NULL;
	examine_variable(root, (Node *) column, 0, &data);
	if (HeapTupleIsValid(data.statsTuple) && data.acl_ok)
		result = estimate(root, rel, expression, column, &data);
	ReleaseVariableStats(data);
	return result;
}

static void
add_index(RelOptInfo *rel, List *expressions, List *statistics)
{
	int count = list_length(expressions);
	ExpressionIndex *made = palloc0(sizeof(ExpressionIndex) + count * sizeof(HeapTuple));
	IndexOptInfo *index = &made->index;
	ListCell *cell;

	NodeSetTag(index, T_IndexOptInfo);
	index->rel = rel;
	index->ncolumns = count; /* none of them is a key */
	index->indexkeys = palloc0(count * sizeof(int));
	index->indexprs = expressions;
	index->opfamily = mark;
	index->hypothetical = true;
	foreach(cell, statistics)
		made->statistics[foreach_current_index(cell)] = lfirst(cell);
	rel->indexlist = lappend(rel->indexlist, index);
}

void
expression_estimate_relation(PlannerInfo *root, RelOptInfo *rel)
{
	const Query *query = root->parse;
	List *candidates;
	List *expressions = NIL;
	List *statistics = NIL;
	ListCell *cell;

	if (rel->rows < FEW_ROWS)
		return;
	candidates = list_concat(get_sortgrouplist_exprs(query->groupClause, query->targetList),
							 get_sortgrouplist_exprs(query->distinctClause, query->targetList));
	foreach(cell, query->windowClause)
		candidates = list_concat(
			candidates, get_sortgrouplist_exprs(lfirst_node(WindowClause, cell)->partitionClause,
												query->targetList));
	foreach(cell, candidates)
	{
		Node *expression = lfirst(cell);
		HeapTuple tuple = list_member(expressions, expression)
							  ? NULL
							  : find_estimate(root, rel, expression);

		if (tuple == NULL)
			continue;
		/* minors differ in which of the two they look for */
		expressions = lappend(lappend(expressions, expression),
							  compat_remove_all_nulling(root, expression));
		statistics = lappend(lappend(statistics, tuple), tuple);
	}
	if (expressions != NIL)
		add_index(rel, expressions, statistics);
}

static void
keep_statistics(HeapTuple tuple)
{
}

/* get_index_stats_hook */
static bool
find_statistics(PlannerInfo *root, Oid index, AttrNumber attribute, VariableStatData *data)
{
	ListCell *cell;

	if (previous_hook && previous_hook(root, index, attribute, data))
		return true;
	if (OidIsValid(index) || data->rel == NULL)
		return false;
	foreach(cell, data->rel->indexlist)
	{
		const ExpressionIndex *made = lfirst(cell);

		if (made->index.opfamily != mark)
			continue;
		data->statsTuple = made->statistics[attribute - 1];
		data->freefunc = keep_statistics;
		data->acl_ok = true;
		return true;
	}
	return false;
}

void
expression_estimate_initialize(void)
{
	previous_hook = get_index_stats_hook;
	get_index_stats_hook = find_statistics;
}
