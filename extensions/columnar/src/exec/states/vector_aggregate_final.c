/*
 * vector_aggregate_final.c
 *		From transition states to results, by core's own functions: see
 *		vector_aggregate_final.h.
 *
 * An internal state goes through its serialized form, which is the one form that all
 * kernels make; but sums and averages are made of the total, as numeric_sum() and
 * numeric_avg() do, where the kernel has one.  Aggregates without a final function return
 * their state.
 */
#include "compat.h"

#include "access/htup_details.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "parser/parse_agg.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/expandeddatum.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"

#include "store/codec/numeric_codec.h"
#include "exec/states/vector_aggregate_final.h"
#include "exec/states/vector_aggregate_internal.h"

typedef enum FinalShortcut
{
	FINAL_FUNCTION, /* none */
	FINAL_SUM,
	FINAL_AVERAGE
} FinalShortcut;

struct VectorFinal
{
	VectorAggregate *states;
	FinalShortcut shortcut;
	FmgrInfo deserialize;
	FunctionCallInfo deserialize_call; /* NULL: the state is not internal */
	FmgrInfo function;
	FunctionCallInfo call; /* NULL: the state is the result */
	int16 state_length;
};

/* As ExecInitAgg(): who runs the query must be allowed to call the aggregate. */
static void
check_user(Oid aggregate)
{
	if (!DatumGetBool(
			DirectFunctionCall3(has_function_privilege_id_id, ObjectIdGetDatum(GetUserId()),
								ObjectIdGetDatum(aggregate), CStringGetTextDatum("EXECUTE"))))
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_AGGREGATE, get_func_name(aggregate));
	InvokeFunctionExecuteHook(aggregate);
}

static FinalShortcut
find_shortcut(const VectorAggregate *states, Oid function)
{
	if (states->kernel->total == NULL)
		return FINAL_FUNCTION;
	switch (function)
	{
		case F_NUMERIC_SUM:
		case F_NUMERIC_POLY_SUM:
			return FINAL_SUM;
		case F_NUMERIC_AVG:
		case F_NUMERIC_POLY_AVG:
		case F_INT8_AVG:
			return FINAL_AVERAGE;
		default:
			return FINAL_FUNCTION;
	}
}

VectorFinal *
vector_final_create(const Aggref *aggref, VectorAggregate *states, PlanState *parent)
{
	VectorFinal *final = palloc0(sizeof(VectorFinal));
	HeapTuple tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggref->aggfnoid));
	Form_pg_aggregate form;
	Node *node = NULL;
	Oid types[FUNC_MAX_ARGS];
	int ntypes = get_aggregate_argtypes((Aggref *) aggref, types);
	Expr *expression;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for aggregate %u", aggref->aggfnoid);
	form = (Form_pg_aggregate) GETSTRUCT(tuple);
	check_user(aggref->aggfnoid);
	final->states = states;
	final->shortcut = find_shortcut(states, form->aggfinalfn);
	final->state_length = get_typlen(aggref->aggtranstype);
	if (OidIsValid(form->aggfinalfn) || aggref->aggtranstype == INTERNALOID)
		node = scalar_states_node(scalar_states_create(states));
	if (aggref->aggtranstype == INTERNALOID)
	{
		scalar_states_check_owner(aggref->aggfnoid, form->aggdeserialfn);
		build_aggregate_deserialfn_expr(form->aggdeserialfn, &expression);
		final->deserialize_call = scalar_states_prepare_call(form->aggdeserialfn, expression, 2,
															 InvalidOid, node, &final->deserialize);
		final->deserialize_call->args[1].value = PointerGetDatum(NULL);
		final->deserialize_call->args[1].isnull = false;
	}
	if (OidIsValid(form->aggfinalfn))
	{
		int narguments = form->aggfinalextra ? ntypes + 1 : 1;

		scalar_states_check_owner(aggref->aggfnoid, form->aggfinalfn);
		build_aggregate_finalfn_expr(types, narguments, aggref->aggtranstype, aggref->aggtype,
									 aggref->inputcollid, form->aggfinalfn, &expression);
		final->call = scalar_states_prepare_call(form->aggfinalfn, expression, narguments,
												 aggref->inputcollid, node, &final->function);
		for (int i = 1; i < narguments; i++)
			final->call->args[i].isnull = true;
	}
	ReleaseSysCache(tuple);
	return final;
}

static Datum
make_result_of_total(const VectorFinal *final, const AggregateTotal *total)
{
	Datum sum = numeric_from_scaled(total->mantissa, total->scale);

	if (final->shortcut == FINAL_SUM)
		return sum;
	return DirectFunctionCall2(numeric_div, sum, NumericGetDatum(int64_to_numeric(total->count)));
}

Datum
vector_final_value(VectorFinal *final, uint32 group, bool *isnull)
{
	FunctionCallInfo call = final->deserialize_call;
	AggregateTotal total;
	Datum state;
	Datum result;

	*isnull = false;
	if (final->shortcut != FINAL_FUNCTION &&
		final->states->kernel->total(final->states, group, &total))
		return make_result_of_total(final, &total);
	state = vector_aggregate_state(final->states, group, isnull);
	if (call != NULL && !*isnull)
	{
		call->args[0].value = state;
		call->args[0].isnull = false;
		call->isnull = false;
		state = FunctionCallInvoke(call);
		*isnull = call->isnull;
	}
	call = final->call;
	if (call == NULL)
		return state;
	if (final->function.fn_strict && (*isnull || call->nargs > 1))
	{
		*isnull = true;
		return (Datum) 0;
	}
	call->args[0].value = MakeExpandedObjectReadOnly(state, *isnull, final->state_length);
	call->args[0].isnull = *isnull;
	call->isnull = false;
	result = FunctionCallInvoke(call);
	*isnull = call->isnull;
	return result;
}
