/*
 * vector_aggregate_final.c
 *		From transition states to results, by core's own functions: see
 *		vector_aggregate_final.h.
 *
 * An internal state goes through its serialized form, which is the one form that all
 * kernels make.  Aggregates without a final function return their state.
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
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"

#include "vector_aggregate_final.h"
#include "vector_aggregate_internal.h"

struct VectorFinal
{
	VectorAggregate *states;
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

static FunctionCallInfo
make_call(Oid oid, Expr *expression, int narguments, Oid collation, Node *node, FmgrInfo *function)
{
	FunctionCallInfo call = palloc0(SizeForFunctionCallInfo(narguments));

	fmgr_info(oid, function);
	fmgr_info_set_expr((Node *) expression, function);
	InitFunctionCallInfoData(*call, function, narguments, collation, node, NULL);
	return call;
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
	final->state_length = get_typlen(aggref->aggtranstype);
	if (OidIsValid(form->aggfinalfn) || aggref->aggtranstype == INTERNALOID)
		node = scalar_states_node(scalar_states_create(states));
	if (aggref->aggtranstype == INTERNALOID)
	{
		scalar_states_check_owner(aggref->aggfnoid, form->aggdeserialfn);
		build_aggregate_deserialfn_expr(form->aggdeserialfn, &expression);
		final->deserialize_call = make_call(form->aggdeserialfn, expression, 2, InvalidOid, node,
											&final->deserialize);
		final->deserialize_call->args[1].value = PointerGetDatum(NULL);
		final->deserialize_call->args[1].isnull = false;
	}
	if (OidIsValid(form->aggfinalfn))
	{
		int narguments = form->aggfinalextra ? ntypes + 1 : 1;

		scalar_states_check_owner(aggref->aggfnoid, form->aggfinalfn);
		build_aggregate_finalfn_expr(types, narguments, aggref->aggtranstype, aggref->aggtype,
									 aggref->inputcollid, form->aggfinalfn, &expression);
		final->call = make_call(form->aggfinalfn, expression, narguments, aggref->inputcollid, node,
								&final->function);
		for (int i = 1; i < narguments; i++)
			final->call->args[i].isnull = true;
	}
	ReleaseSysCache(tuple);
	return final;
}

Datum
vector_final_value(VectorFinal *final, uint32 group, bool *isnull)
{
	Datum state = vector_aggregate_state(final->states, group, isnull);
	FunctionCallInfo call = final->deserialize_call;
	Datum result;

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
