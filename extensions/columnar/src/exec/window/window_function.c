/*
 * window_function.c
 *		What each window function of a ColumnarWindow returns.
 *
 * Numbers and ranks follow from a row's place.  What is another row's value (lag(), first_value()
 * ...) is fetched from the store by that row's number.  Aggregates of whole partitions take
 * partitions as groups; those whose frame grows are window_running.c's.
 */
#include "exec/window/window_internal.h"

#include "access/htup_details.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/planner.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"

#include "exec/collection/vector_store_internal.h"
#include "window_names.h"

/* ---- which functions ---------------------------------------------------------------------------- */

/* An argument that is the same for all rows: an integer that is not NULL. */
static bool
find_constant(const WindowFunc *function, int number, int64 *value)
{
	const Const *constant;

	if (number >= list_length(function->args))
		return false;
	constant = list_nth(function->args, number);
	if (!IsA(constant, Const) || constant->consttype != INT4OID || constant->constisnull)
		return false;
	*value = DatumGetInt32(constant->constvalue);
	return true;
}

/* The offset of lag() and lead(), of which the value without a row has to be a constant. */
static bool
find_offset(const WindowFunc *function, int64 *offset)
{
	*offset = 1;
	if (list_length(function->args) > 1 && !find_constant(function, 1, offset))
		return false;
	return list_length(function->args) < 3 || IsA(lthird(function->args), Const);
}

/* Can results be computed from time to time, and rows be added afterwards? */
static bool
is_possible_aggregate(Oid oid)
{
	HeapTuple tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(oid));
	Form_pg_aggregate form;
	bool result;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for aggregate %u", oid);
	form = (Form_pg_aggregate) GETSTRUCT(tuple);
	result = form->aggkind == AGGKIND_NORMAL && form->aggfinalmodify == AGGMODIFY_READ_ONLY &&
			 OidIsValid(form->aggcombinefn) &&
			 (form->aggtranstype != INTERNALOID ||
			  (OidIsValid(form->aggserialfn) && OidIsValid(form->aggdeserialfn)));
	ReleaseSysCache(tuple);
	return result && !OidIsValid(get_func_variadictype(oid));
}

bool
window_find_kind(const WindowFunc *function, WindowKind *kind, int64 *offset)
{
	*offset = 0;
	if (function->aggfilter != NULL || compat_ignores_nulls(function))
		return false;
	switch (function->winfnoid)
	{
		case F_ROW_NUMBER:
			*kind = WINDOW_ROW_NUMBER;
			return true;
		case F_RANK_:
			*kind = WINDOW_RANK;
			return true;
		case F_DENSE_RANK_:
			*kind = WINDOW_DENSE_RANK;
			return true;
		case F_PERCENT_RANK_:
			*kind = WINDOW_PERCENT_RANK;
			return true;
		case F_CUME_DIST_:
			*kind = WINDOW_CUME_DIST;
			return true;
		case F_NTILE:
			*kind = WINDOW_NTILE;
			return find_constant(function, 0, offset) && *offset > 0;
		case F_LAG_ANYELEMENT:
		case F_LAG_ANYELEMENT_INT4:
		case F_LAG_ANYCOMPATIBLE_INT4_ANYCOMPATIBLE:
			*kind = WINDOW_LAG;
			return find_offset(function, offset);
		case F_LEAD_ANYELEMENT:
		case F_LEAD_ANYELEMENT_INT4:
		case F_LEAD_ANYCOMPATIBLE_INT4_ANYCOMPATIBLE:
			*kind = WINDOW_LAG;
			if (!find_offset(function, offset))
				return false;
			*offset = -*offset;
			return true;
		case F_FIRST_VALUE:
			*kind = WINDOW_FIRST_VALUE;
			return true;
		case F_LAST_VALUE:
			*kind = WINDOW_LAST_VALUE;
			return true;
		case F_NTH_VALUE:
			*kind = WINDOW_NTH_VALUE;
			return find_constant(function, 1, offset) && *offset > 0;
		default:
			*kind = WINDOW_AGGREGATE;
			return function->winagg && is_possible_aggregate(function->winfnoid);
	}
}

WindowDelay
window_find_delay(WindowKind kind, int64 offset, WindowFrame frame)
{
	static const WindowDelay of_frame[] = {[WINDOW_FRAME_ROW] = WINDOW_DELAY_NONE,
										   [WINDOW_FRAME_PEERS] = WINDOW_DELAY_PEERS,
										   [WINDOW_FRAME_WHOLE] = WINDOW_DELAY_PARTITION};

	switch (kind)
	{
		case WINDOW_ROW_NUMBER:
		case WINDOW_RANK:
		case WINDOW_DENSE_RANK:
			return WINDOW_DELAY_NONE;
		case WINDOW_LAG:
			return offset >= 0 && offset <= BLOCK_ROWS ? WINDOW_DELAY_NONE : WINDOW_DELAY_PARTITION;
		case WINDOW_LAST_VALUE:
		case WINDOW_AGGREGATE:
			return of_frame[frame];
		default:
			return WINDOW_DELAY_PARTITION;
	}
}

/* ---- begin -------------------------------------------------------------------------------------- */

/* As ExecInitWindowAgg(): who runs the query must be allowed to call the function. */
static void
check_user(Oid function)
{
	if (!DatumGetBool(DirectFunctionCall3(has_function_privilege_id_id,
										  ObjectIdGetDatum(GetUserId()), ObjectIdGetDatum(function),
										  CStringGetTextDatum("EXECUTE"))))
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FUNCTION, get_func_name(function));
}

/* The store's column of an argument that is shown: one that is there for its own sake, or another. */
static int
find_column(ColumnarWindowState *state, const Node *argument)
{
	const Var *var = (const Var *) argument;

	for (int i = 0; IsA(var, Var) && i < state->noutputs; i++)
		if (state->outputs[i].number == var->varattno)
			return i;
	return state->nstored++;
}

static void
init_aggregate(ColumnarWindowState *state, WindowFunction *function, const WindowFunc *numbered)
{
	PlanState *parent = &state->custom.ss.ps;
	Aggref *whole;
	Aggref *partial;

	if (function->frame != WINDOW_FRAME_WHOLE)
	{
		function->running = window_running_create(numbered, parent);
		return;
	}
	whole = window_names_make_aggref(numbered);
	partial = copyObject(whole);
	mark_partial_aggref(partial, AGGSPLIT_INITIAL_SERIAL);
	function->states = vector_aggregate_create(partial, parent);
	function->final = vector_final_create(whole, function->states, parent);
}

void
window_function_init(ColumnarWindowState *state, WindowFunction *function, const WindowFunc *source,
					 List *arguments)
{
	WindowFunc *numbered = (WindowFunc *) copyObject(source);

	function->source = source;
	check_user(source->winfnoid);
	if (!window_find_kind(source, &function->kind, &function->offset))
		elog(ERROR, "window function %u has no batches", source->winfnoid);
	function->frame = state->frame;
	function->column = -1;
	function->buffer = vector_buffer_create();
	function->ints = palloc(sizeof(int64) * BLOCK_ROWS);
	function->floats = palloc(sizeof(double) * BLOCK_ROWS);
	numbered->args = arguments;
	if (function->kind == WINDOW_LAG || function->kind == WINDOW_FIRST_VALUE ||
		function->kind == WINDOW_LAST_VALUE || function->kind == WINDOW_NTH_VALUE)
	{
		function->column = find_column(state, linitial(arguments));
		if (list_length(source->args) == 3)
			function->fallback = lthird_node(Const, source->args);
		arguments = list_copy_head(arguments, 1);
	}
	else if (function->kind == WINDOW_AGGREGATE)
		init_aggregate(state, function, numbered);
	else
		arguments = NIL;
	function->narguments = list_length(arguments);
	function->arguments = vector_expression_compile_list(arguments, &state->scope);
	function->values = palloc(sizeof(Vector *) * Max(function->narguments, 1));
}

/* ---- rows come ---------------------------------------------------------------------------------- */

static void
take_whole(ColumnarWindowState *state, WindowFunction *function, uint32 from, uint32 to)
{
	VectorRows rows;

	vector_aggregate_resize(function->states, state->partitions.count);
	vector_rows_init(&rows, state->input.batch->nrows, state->input.selection + from, to - from,
					 state->groups + from, state->partitions.count);
	vector_aggregate_advance(function->states, function->values, &rows);
}

static void
take_running(ColumnarWindowState *state, WindowFunction *function, uint32 from, uint32 to)
{
	const bool *begins = function->frame == WINDOW_FRAME_PEERS ? state->begins_peers
															   : state->begins_partition;
	uint32 nrows = state->input.batch->nrows;
	uint32 end;

	for (uint32 i = from; i < to; i = end)
	{
		const uint16 *selection = state->input.selection + i;

		end = i + 1;
		while (end < to && !begins[end])
			end++;
		if (begins[i] && function->is_open)
			window_running_keep(function->running);
		if (state->begins_partition[i])
			window_running_begin(function->running);
		if (function->frame == WINDOW_FRAME_PEERS)
		{
			window_running_add(function->running, function->values, nrows, selection, end - i);
			function->is_open = true;
		}
		else
			window_running_add_each(function->running, function->values, nrows, selection, end - i);
	}
}

void
window_function_take(ColumnarWindowState *state, WindowFunction *function, uint32 from, uint32 to)
{
	if (function->running != NULL)
		take_running(state, function, from, to);
	else if (function->states != NULL)
		take_whole(state, function, from, to);
}

void
window_function_close(WindowFunction *function)
{
	if (function->is_open)
		window_running_keep(function->running);
	function->is_open = false;
}

void
window_function_forget(WindowFunction *function)
{
	if (function->running != NULL)
		window_running_forget(function->running);
	if (function->states != NULL)
		vector_aggregate_reset(function->states);
	function->has_value = false;
}

/* ---- results ------------------------------------------------------------------------------------ */

static uint32
find_end(const ColumnarWindowState *state, const WindowStarts *starts, int32 number)
{
	return number + 1 < (int32) starts->count ? starts->rows[number + 1]
											  : vector_store_count(state->store);
}

static int64
find_bucket(int64 number, int64 total, int64 buckets)
{
	int64 size = total / buckets;
	int64 larger = total % buckets;
	int64 behind = number - 1 - larger * (size + 1);

	if (behind < 0)
		return (number - 1) / (size + 1) + 1;
	return larger + behind / size + 1;
}

/* The end of the row's frame in the store. */
static uint32
find_frame_end(const ColumnarWindowState *state, const WindowFunction *function, uint32 row,
			   const WindowPlace *place)
{
	switch (function->frame)
	{
		case WINDOW_FRAME_ROW:
			return row + 1;
		case WINDOW_FRAME_PEERS:
			return find_end(state, &state->peers, place->peers);
		default:
			return find_end(state, &state->partitions, place->partition);
	}
}

/* The row of the store whose value is shown; or the number of the result. */
static uint32
find_row(const ColumnarWindowState *state, const WindowFunction *function, uint32 row,
		 const WindowPlace *place)
{
	int64 found;

	switch (function->kind)
	{
		case WINDOW_LAG:
			if (function->offset >= 0)
				return place->number > function->offset ? row - (uint32) function->offset
														: VECTOR_NO_ROW;
			found = (int64) row - function->offset;
			return found < find_end(state, &state->partitions, place->partition) ? (uint32) found
																				 : VECTOR_NO_ROW;
		case WINDOW_FIRST_VALUE:
			return state->partitions.rows[place->partition];
		case WINDOW_LAST_VALUE:
			return find_frame_end(state, function, row, place) - 1;
		case WINDOW_NTH_VALUE:
			found = (int64) state->partitions.rows[place->partition] + function->offset - 1;
			return found < find_frame_end(state, function, row, place) ? (uint32) found
																	   : VECTOR_NO_ROW;
		default:
			return function->frame == WINDOW_FRAME_PEERS ? (uint32) place->peers
														 : row - state->first;
	}
}

/* Results that follow from the place. */
static void
compute_places(ColumnarWindowState *state, WindowFunction *function)
{
	for (uint32 i = 0; i < state->nplaced; i++)
	{
		const WindowPlace *place = &state->places[i];
		uint32 start = 0;
		uint32 end = 0;

		if (function->kind > WINDOW_DENSE_RANK)
		{
			start = state->partitions.rows[place->partition];
			end = find_end(state, &state->partitions, place->partition);
		}
		switch (function->kind)
		{
			case WINDOW_ROW_NUMBER:
				function->ints[i] = place->number;
				break;
			case WINDOW_RANK:
				function->ints[i] = place->rank;
				break;
			case WINDOW_DENSE_RANK:
				function->ints[i] = place->dense_rank;
				break;
			case WINDOW_PERCENT_RANK:
				function->floats[i] = end - start <= 1
										  ? 0.0
										  : (double) (place->rank - 1) / (double) (end - start - 1);
				break;
			case WINDOW_CUME_DIST:
				function->floats[i] = (double) (find_end(state, &state->peers, place->peers) -
												start) /
									  (double) (end - start);
				break;
			default:
				function->ints[i] = find_bucket(place->number, end - start, function->offset);
				break;
		}
	}
}

void
window_function_place(ColumnarWindowState *state, WindowFunction *function)
{
	if (function->kind <= WINDOW_NTILE)
	{
		compute_places(state, function);
		return;
	}
	if (function->states != NULL)
		return;
	for (uint32 i = 0; i < state->nplaced; i++)
		function->rows[i] = find_row(state, function, state->numbers[i], &state->places[i]);
	if (function->running != NULL)
		window_running_gather(function->running, function->rows, state->nplaced, function->buffer,
							  &function->vector);
	else
		vector_store_gather(state->store, function->column, function->rows, NULL, state->nplaced,
							function->buffer, &function->vector);
}

/* The aggregate of the row's partition, computed for its first row. */
static Datum
find_whole_value(ColumnarWindowState *state, WindowFunction *function, int32 partition,
				 bool *isnull)
{
	if (!function->has_value || function->partition != partition)
	{
		MemoryContext caller = MemoryContextSwitchTo(state->results);

		function->value = vector_final_value(function->final, (uint32) partition,
											 &function->isnull);
		function->partition = partition;
		function->has_value = true;
		MemoryContextSwitchTo(caller);
	}
	*isnull = function->isnull;
	return function->value;
}

Datum
window_function_value(ColumnarWindowState *state, WindowFunction *function, uint32 row,
					  bool *isnull)
{
	*isnull = false;
	switch (function->kind)
	{
		case WINDOW_ROW_NUMBER:
		case WINDOW_RANK:
		case WINDOW_DENSE_RANK:
			return Int64GetDatum(function->ints[row]);
		case WINDOW_NTILE:
			return Int32GetDatum((int32) function->ints[row]);
		case WINDOW_PERCENT_RANK:
		case WINDOW_CUME_DIST:
			return Float8GetDatum(function->floats[row]);
		default:
			break;
	}
	if (function->states != NULL)
		return find_whole_value(state, function, state->places[row].partition, isnull);
	if (function->fallback != NULL && function->rows[row] == VECTOR_NO_ROW)
	{
		*isnull = function->fallback->constisnull;
		return function->fallback->constvalue;
	}
	return vector_datum(&function->vector, row, isnull);
}
