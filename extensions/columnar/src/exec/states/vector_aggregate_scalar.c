/*
 * vector_aggregate_scalar.c
 *		Transition functions called row by row, as core's Agg node calls them.
 *
 * This serves all aggregates without a kernel, and for a few values those with one: what a
 * kernel's numbers cannot hold goes to core's own state.
 *
 * A transition function may look at its AggState: for the context that the states live in, for
 * one that is reset after each row, for its Aggref.  The AggState here has what the functions
 * of the Agg node's interface (AggCheckCallContext() and the like) read, and no more.
 *
 * States that are not passed by value, and all that transition functions allocate, live in
 * the AggState's aggregate context, which is the EState's and so outlives errors no longer
 * than the query.  The array of the states is in the aggregate's own context.
 */
#include "compat.h"

#include "access/htup_details.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/nodeAgg.h"
#include "parser/parse_agg.h"
#include "parser/parse_coerce.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/expandeddatum.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "exec/states/vector_aggregate_internal.h"

/* As AggStatePerGroupData. */
typedef struct ScalarState
{
	Datum value;
	bool isnull;
	bool none;	 /* the first value that is not NULL becomes the state */
	bool called; /* did the group have a row? */
} ScalarState;

struct ScalarStates
{
	const VectorAggregate *aggregate;
	AggState *node;
	AggStatePerTrans transition; /* functions and initial value */
	uint32 ngroups;
	uint32 capacity;
	ScalarState *states; /* in a context that is never reset before all states are */
	MemoryContext context;
};

/* ---- set up -------------------------------------------------------------------------------- */

void
scalar_states_check_owner(Oid aggregate, Oid function)
{
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(aggregate));
	Oid owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", aggregate);
	owner = ((Form_pg_proc) GETSTRUCT(tuple))->proowner;
	ReleaseSysCache(tuple);
	if (!DatumGetBool(DirectFunctionCall3(has_function_privilege_id_id, ObjectIdGetDatum(owner),
										  ObjectIdGetDatum(function),
										  CStringGetTextDatum("EXECUTE"))))
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FUNCTION, get_func_name(function));
	InvokeFunctionExecuteHook(function);
}

static AggState *
make_node(PlanState *parent)
{
	AggState *node = makeNode(AggState);

	node->ss.ps.state = parent->state;
	node->tmpcontext = CreateExprContext(parent->state);
	node->curaggcontext = CreateExprContext(parent->state);
	node->numtrans = 1;
	return node;
}

static void
set_initial_value(AggStatePerTrans transition, HeapTuple tuple)
{
	Datum initial = SysCacheGetAttr(AGGFNOID, tuple, Anum_pg_aggregate_agginitval,
									&transition->initValueIsNull);
	Oid input;
	Oid parameter;
	char *string;

	get_typlenbyval(transition->aggtranstype, &transition->transtypeLen,
					&transition->transtypeByVal);
	if (transition->initValueIsNull)
		return;
	getTypeInputInfo(transition->aggtranstype, &input, &parameter);
	string = TextDatumGetCString(initial);
	transition->initValue = OidInputFunctionCall(input, string, parameter, -1);
	pfree(string);
}

FunctionCallInfo
scalar_states_prepare_call(Oid oid, Expr *expression, int narguments, Oid collation, Node *node,
						   FmgrInfo *function)
{
	FunctionCallInfo call = palloc0(SizeForFunctionCallInfo(narguments));

	fmgr_info(oid, function);
	fmgr_info_set_expr((Node *) expression, function);
	InitFunctionCallInfoData(*call, function, narguments, collation, node, NULL);
	return call;
}

static void
prepare_transition(AggStatePerTrans transition, const Aggref *aggref, AggState *node)
{
	Oid types[FUNC_MAX_ARGS];
	int ntypes = get_aggregate_argtypes((Aggref *) aggref, types);
	Expr *expression;

	build_aggregate_transfn_expr(types, ntypes, 0, aggref->aggvariadic, transition->aggtranstype,
								 aggref->inputcollid, transition->transfn_oid, InvalidOid,
								 &expression, NULL);
	transition->transfn_fcinfo = scalar_states_prepare_call(
		transition->transfn_oid, expression, transition->numTransInputs + 1, aggref->inputcollid,
		(Node *) node, &transition->transfn);

	/* a state that begins as the first value must be of its type */
	if (transition->transfn.fn_strict && transition->initValueIsNull &&
		(ntypes == 0 || !IsBinaryCoercible(types[0], transition->aggtranstype)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
				 errmsg("aggregate %u needs to have compatible input type and transition type",
						aggref->aggfnoid)));
}

ScalarStates *
scalar_states_create(const VectorAggregate *aggregate)
{
	const Aggref *aggref = aggregate->aggref;
	MemoryContext old = MemoryContextSwitchTo(aggregate->context);
	ScalarStates *states = palloc0(sizeof(ScalarStates));
	AggStatePerTrans transition = palloc0(sizeof(AggStatePerTransData));
	HeapTuple tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggref->aggfnoid));
	Form_pg_aggregate form;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for aggregate %u", aggref->aggfnoid);
	form = (Form_pg_aggregate) GETSTRUCT(tuple);
	transition->aggref = (Aggref *) aggref;
	transition->aggtranstype = OidIsValid(aggref->aggtranstype) ? aggref->aggtranstype
																: form->aggtranstype;
	transition->aggCollation = aggref->inputcollid;
	transition->numInputs = transition->numTransInputs = list_length(aggref->args);
	transition->transfn_oid = form->aggtransfn;
	if (transition->aggtranstype == INTERNALOID)
		transition->serialfn_oid = form->aggserialfn;
	set_initial_value(transition, tuple);
	ReleaseSysCache(tuple);

	states->aggregate = aggregate;
	states->context = AllocSetContextCreate(aggregate->context, "vector aggregate scalars",
											ALLOCSET_SMALL_SIZES);
	states->transition = transition;
	states->node = make_node(aggregate->parent);
	scalar_states_check_owner(aggref->aggfnoid, transition->transfn_oid);
	prepare_transition(transition, aggref, states->node);
	if (OidIsValid(transition->serialfn_oid))
	{
		Expr *expression;

		scalar_states_check_owner(aggref->aggfnoid, transition->serialfn_oid);
		build_aggregate_serialfn_expr(transition->serialfn_oid, &expression);
		transition->serialfn_fcinfo = scalar_states_prepare_call(
			transition->serialfn_oid, expression, 1, InvalidOid, scalar_states_node(states),
			&transition->serialfn);
	}
	MemoryContextSwitchTo(old);
	return states;
}

static MemoryContext
get_states_context(const ScalarStates *states)
{
	return states->node->curaggcontext->ecxt_per_tuple_memory;
}

Node *
scalar_states_node(ScalarStates *states)
{
	return (Node *) states->node;
}

MemoryContext
scalar_states_row_context(const ScalarStates *states)
{
	return states->node->tmpcontext->ecxt_per_tuple_memory;
}

void
scalar_states_resize(ScalarStates *states, uint32 ngroups)
{
	AggStatePerTrans transition = states->transition;
	MemoryContext old;

	if (ngroups > states->capacity)
	{
		uint32 capacity = Max(ngroups, states->aggregate->capacity);
		ScalarState *larger = MemoryContextAllocHuge(states->context,
													 sizeof(ScalarState) * (Size) capacity);

		if (states->states != NULL)
		{
			memcpy(larger, states->states, sizeof(ScalarState) * (Size) states->ngroups);
			pfree(states->states);
		}
		states->states = larger;
		states->capacity = capacity;
	}

	old = MemoryContextSwitchTo(get_states_context(states));
	for (; states->ngroups < ngroups; states->ngroups++)
	{
		ScalarState *state = &states->states[states->ngroups];

		state->isnull = state->none = transition->initValueIsNull;
		state->value = state->isnull ? (Datum) 0
									 : datumCopy(transition->initValue, transition->transtypeByVal,
												 transition->transtypeLen);
		state->called = false;
	}
	MemoryContextSwitchTo(old);
}

Size
scalar_states_memory(const ScalarStates *states)
{
	/* the array is in a child of the aggregate's context, which counts it */
	return MemoryContextMemAllocated(get_states_context(states), true);
}

void
scalar_states_reset(ScalarStates *states)
{
	ReScanExprContext(states->node->curaggcontext);
	MemoryContextReset(states->context);
	states->states = NULL;
	states->ngroups = states->capacity = 0;
}

/* ---- transitions --------------------------------------------------------------------------- */

/*
 * The new state, not passed by value, moved to the states' context unless it is there, and the
 * old one freed; what ExecAggTransReparent() of core does.
 */
static Datum
keep_state(ScalarStates *states, const ScalarState *old, Datum value, bool isnull)
{
	AggStatePerTrans transition = states->transition;
	MemoryContext context = get_states_context(states);

	if (isnull)
		value = (Datum) 0;
	else if (!DatumIsReadWriteExpandedObject(value, false, transition->transtypeLen) ||
			 MemoryContextGetParent(DatumGetEOHP(value)->eoh_context) != context)
	{
		MemoryContext row = MemoryContextSwitchTo(context);

		value = datumCopy(value, transition->transtypeByVal, transition->transtypeLen);
		MemoryContextSwitchTo(row);
	}
	if (!old->isnull)
	{
		if (DatumIsReadWriteExpandedObject(old->value, false, transition->transtypeLen))
			DeleteExpandedObject(old->value);
		else
			pfree(DatumGetPointer(old->value));
	}
	return value;
}

/* A strict transition function is not called for the row; true if that is all. */
static bool
skip_call(ScalarStates *states, ScalarState *state, const NullableDatum *arguments)
{
	AggStatePerTrans transition = states->transition;

	for (int i = 0; i < transition->numTransInputs; i++)
	{
		if (arguments[i].isnull)
			return true;
	}
	if (state->none)
	{
		MemoryContext old = MemoryContextSwitchTo(get_states_context(states));

		state->value = datumCopy(arguments[0].value, transition->transtypeByVal,
								 transition->transtypeLen);
		state->isnull = state->none = false;
		MemoryContextSwitchTo(old);
		return true;
	}
	return state->isnull;
}

void
scalar_states_advance(ScalarStates *states, uint32 group, const NullableDatum *arguments)
{
	AggStatePerTrans transition = states->transition;
	FunctionCallInfo call = transition->transfn_fcinfo;
	ScalarState *state = &states->states[group];
	MemoryContext old;
	Datum value;

	state->called = true;
	if (transition->transfn.fn_strict && skip_call(states, state, arguments))
		return;

	old = MemoryContextSwitchTo(scalar_states_row_context(states));
	for (int i = 0; i < transition->numTransInputs; i++)
		call->args[i + 1] = arguments[i];
	call->args[0].value = state->value;
	call->args[0].isnull = state->isnull;
	call->isnull = false;
	states->node->curpertrans = transition;
	value = FunctionCallInvoke(call);
	states->node->curpertrans = NULL;

	if (!transition->transtypeByVal && DatumGetPointer(value) != DatumGetPointer(state->value))
		value = keep_state(states, state, value, call->isnull);
	state->value = value;
	state->isnull = call->isnull;
	MemoryContextSwitchTo(old);
}

bool
scalar_states_has(const ScalarStates *states, uint32 group)
{
	return group < states->ngroups && states->states[group].called;
}

/* ---- results ------------------------------------------------------------------------------- */

Datum
scalar_states_state(ScalarStates *states, uint32 group, bool *isnull)
{
	AggStatePerTrans transition = states->transition;
	ScalarState *state = &states->states[group];
	FunctionCallInfo call = transition->serialfn_fcinfo;
	Datum result;

	if (call == NULL)
	{
		*isnull = state->isnull;
		if (state->isnull)
			return (Datum) 0;
		return datumCopy(state->value, transition->transtypeByVal, transition->transtypeLen);
	}
	if (transition->serialfn.fn_strict && state->isnull)
	{
		*isnull = true;
		return (Datum) 0;
	}
	call->args[0].value = MakeExpandedObjectReadOnly(state->value, state->isnull,
													 transition->transtypeLen);
	call->args[0].isnull = state->isnull;
	call->isnull = false;
	/* a bytea, made in the current context */
	result = FunctionCallInvoke(call);
	*isnull = call->isnull;
	return result;
}

/* Calls a function of two arguments, of which the first is not NULL, in the AggState. */
static Datum
call_support(ScalarStates *states, Oid oid, Datum first, Datum second)
{
	LOCAL_FCINFO(call, 2);
	FmgrInfo function;
	Datum result;

	fmgr_info(oid, &function);
	InitFunctionCallInfoData(*call, &function, 2, InvalidOid, (Node *) states->node, NULL);
	call->args[0].value = first;
	call->args[0].isnull = false;
	call->args[1].value = second;
	call->args[1].isnull = false;
	result = FunctionCallInvoke(call);
	if (call->isnull)
		elog(ERROR, "function %u returned NULL", oid);
	return result;
}

/*
 * The state from outside takes the group's in, not the other way round: so the group's is left
 * alone, and what is allocated goes with the row context.
 */
Datum
scalar_states_combine(ScalarStates *states, uint32 group, Datum serialized, Oid deserialize,
					  Oid combine)
{
	AggState *node = states->node;
	ExprContext *states_context = node->curaggcontext;
	MemoryContext row = scalar_states_row_context(states);
	MemoryContext old = MemoryContextSwitchTo(row);
	FunctionCallInfo call = states->transition->serialfn_fcinfo;
	Datum total;
	Datum result;

	node->curaggcontext = node->tmpcontext;
	total = call_support(states, deserialize, serialized, PointerGetDatum(NULL));
	total = call_support(states, combine, total, states->states[group].value);
	MemoryContextSwitchTo(old);

	call->args[0].value = total;
	call->args[0].isnull = false;
	call->isnull = false;
	result = FunctionCallInvoke(call);
	node->curaggcontext = states_context;
	MemoryContextReset(row);
	return result;
}

/* ---- the kernel of the other aggregates ------------------------------------------------------ */

static void
create_scalar(VectorAggregate *aggregate)
{
	aggregate->scalar = scalar_states_create(aggregate);
}

static void
advance_scalar(VectorAggregate *aggregate, Vector *const *arguments, VectorRows *rows)
{
	ScalarStates *states = aggregate->scalar;
	MemoryContext row_context = scalar_states_row_context(states);
	MemoryContext old = MemoryContextSwitchTo(row_context);
	NullableDatum values[FUNC_MAX_ARGS];
	int narguments = states->transition->numTransInputs;

	for (uint32 i = 0; i < rows->nselected; i++)
	{
		for (int j = 0; j < narguments; j++)
			values[j].value = vector_datum(arguments[j], rows->selection[i], &values[j].isnull);
		scalar_states_advance(states, rows_group(rows, i), values);
		MemoryContextReset(row_context);
	}
	MemoryContextSwitchTo(old);
}

static Datum
get_scalar(VectorAggregate *aggregate, uint32 group, bool *isnull)
{
	return scalar_states_state(aggregate->scalar, group, isnull);
}

/* scalar_states_resize() and scalar_states_reset() do it. */
static void
grow_scalar(VectorAggregate *aggregate, uint32 old_capacity)
{
}

static void
reset_scalar(VectorAggregate *aggregate)
{
}

const AggregateKernel scalar_kernel = {sizeof(VectorAggregate), create_scalar, grow_scalar,
									   advance_scalar,			get_scalar,	   reset_scalar};
