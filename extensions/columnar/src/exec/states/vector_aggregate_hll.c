/*
 * vector_aggregate_hll.c
 *		hll_add_agg() and hll_union_agg() of the extension postgresql-hll.
 *
 * A group's state is an HllSet; core's Finalize Aggregate, the extension's final functions and
 * other processes get it in the form of the extension's serialized state.  That is a copy of the
 * extension's memory, which another version may change: so the first state of each kind is also
 * made by the extension, of the same hashes, and if the two differ all states are.  (The way in is
 * hll_union_trans() of the set as a value, the way out hll_serialize().)
 *
 * Parameters come from the extension too: of hll_add_agg() from a first state that its transition
 * function makes, as they may be defaults of the session; of hll_union_agg() from the values.
 * What is unusual (a value that cannot be, values of different parameters in a group, parameters
 * without a proper header) is left to the extension's transition function, with its results and
 * errors.
 */
#include "compat.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "exec/expression/hll_extension.h"
#include "exec/states/hll_set.h"
#include "exec/states/vector_aggregate_internal.h"

/* Sets are fetched into the cache so many rows ahead. */
#define FETCH_AHEAD 16
#define FETCH_GROUPS_MIN 256

typedef struct HllAggregate
{
	VectorAggregate base;
	ScalarStates *calls; /* calls of the extension; has states if it is base.scalar too */
	HllSet *sets;
	bool is_prepared; /* add: are the parameters known? */
	bool is_left;	  /* add: all rows are left to the extension */
	HllShape shape;	  /* add: of all sets; union: of the last value, if known */
	uint64 nrows;	  /* since the registers' floors were computed */
	bool is_checked[HLL_NKINDS];
	bool is_different; /* the extension's state is not the one that we know */
} HllAggregate;

static void
create_sets(VectorAggregate *aggregate)
{
	/* checks permissions */
	((HllAggregate *) aggregate)->calls = scalar_states_create(aggregate);
}

static void
grow_sets(VectorAggregate *aggregate, uint32 old_capacity)
{
	HllAggregate *hll = (HllAggregate *) aggregate;

	hll->sets = aggregate_grow_array(aggregate, hll->sets, old_capacity, sizeof(HllSet));
}

static void
reset_sets(VectorAggregate *aggregate)
{
	HllAggregate *hll = (HllAggregate *) aggregate;

	hll->sets = NULL;
	/* defaults of the session may have changed */
	hll->is_prepared = hll->is_left = false;
	hll->nrows = 0;
	aggregate->scalar = NULL;
}

/* ---- the extension's functions ---------------------------------------------------------------- */

/* Calls one of them as of an aggregate whose states live as long as a row. */
static Datum
call_function(HllAggregate *hll, HllFunction function, const NullableDatum *arguments,
			  int narguments)
{
	AggState *node = (AggState *) scalar_states_node(hll->calls);
	ExprContext *states_context = node->curaggcontext;
	LOCAL_FCINFO(call, FUNC_MAX_ARGS);
	FmgrInfo info;
	Datum result;

	fmgr_info(hll_function_oid(function), &info);
	InitFunctionCallInfoData(*call, &info, narguments, InvalidOid, (Node *) node, NULL);
	memcpy(call->args, arguments, sizeof(NullableDatum) * narguments);
	node->curaggcontext = node->tmpcontext;
	result = FunctionCallInvoke(call);
	node->curaggcontext = states_context;
	if (call->isnull)
		elog(ERROR, "function %u returned NULL", info.fn_oid);
	return result;
}

/* A set that is at least unknown, as the extension serializes it; in the current context. */
static Datum
serialize_by_extension(HllAggregate *hll, const HllSet *set, const HllShape *shape)
{
	MemoryContext row = scalar_states_row_context(hll->calls);
	MemoryContext caller = MemoryContextSwitchTo(row);
	NullableDatum arguments[2] = {{.isnull = true}, {.isnull = set->kind == HLL_UNKNOWN}};
	NullableDatum state = {.isnull = false};
	Datum result;

	if (set->kind != HLL_UNKNOWN)
		arguments[1].value = PointerGetDatum(hll_set_pack(set, shape));
	state.value = call_function(hll, HLL_UNION_TRANS, arguments, 2);
	MemoryContextSwitchTo(caller);
	result = call_function(hll, HLL_SERIALIZE, &state, 1);
	MemoryContextReset(row);
	return result;
}

/* ---- what is left to the extension ------------------------------------------------------------ */

static void
use_scalar_states(HllAggregate *hll)
{
	if (hll->base.scalar != NULL)
		return;
	hll->base.scalar = hll->calls;
	scalar_states_resize(hll->calls, hll->base.ngroups);
}

/* From now on the extension keeps the group of hll_union_agg(). */
static void
leave_group(HllAggregate *hll, uint32 group)
{
	MemoryContext row = scalar_states_row_context(hll->calls);
	MemoryContext caller = MemoryContextSwitchTo(row);
	HllSet *set = &hll->sets[group];
	NullableDatum value = {.isnull = true};

	use_scalar_states(hll);
	if (set->kind >= HLL_EMPTY)
	{
		HllShape shape;

		hll_shape_init(&shape, set->parameters);
		value.value = PointerGetDatum(hll_set_pack(set, &shape));
		value.isnull = false;
	}
	if (set->kind != HLL_ABSENT)
		scalar_states_advance(hll->calls, group, &value);
	if (set->kind == HLL_EXPLICIT || set->kind == HLL_REGISTERS)
		pfree(set->slots);
	set->slots = NULL;
	set->kind = HLL_FOREIGN;
	MemoryContextSwitchTo(caller);
	MemoryContextReset(row);
}

/* ---- hll_add_agg() ---------------------------------------------------------------------------- */

/*
 * Asks the extension for the parameters, which raises an error for those that are impossible. They
 * are constants: see vector_hll_find_kernel().
 */
static void
prepare_add(HllAggregate *hll)
{
	MemoryContext row = scalar_states_row_context(hll->calls);
	MemoryContext caller = MemoryContextSwitchTo(row);
	NullableDatum arguments[FUNC_MAX_ARGS];
	NullableDatum state = {.isnull = false};
	const struct varlena *packed;
	int narguments = 0;
	ListCell *cell;

	arguments[narguments++].isnull = true; /* no state */
	foreach(cell, hll->base.aggref->args)
	{
		const Const *constant = (const Const *) lfirst_node(TargetEntry, cell)->expr;
		NullableDatum *argument = &arguments[narguments++];

		argument->isnull = foreach_current_index(cell) == 0;
		if (!argument->isnull)
			argument->value = constant->constvalue;
	}
	state.value = call_function(hll, (HllFunction) hll->base.variant, arguments, narguments);
	packed = (const struct varlena *) DatumGetPointer(call_function(hll, HLL_PACK, &state, 1));
	hll->is_left = VARSIZE(packed) != VARHDRSZ + HLL_HEADER ||
				   !hll_shape_init(&hll->shape, (const uint8 *) VARDATA(packed) + 1);
	if (hll->is_left)
		use_scalar_states(hll);
	hll->is_prepared = true;
	MemoryContextSwitchTo(caller);
	MemoryContextReset(row);
}

/* Rows whose hash may be NULL: their groups have a set. */
static void
begin_sets(HllAggregate *hll, const VectorRows *rows)
{
	for (uint32 i = 0; i < (rows->groups != NULL ? rows->nselected : 1); i++)
	{
		HllSet *set = &hll->sets[rows_group(rows, i)];

		if (set->kind == HLL_ABSENT)
			set->kind = HLL_EMPTY;
	}
}

/*
 * The less the floors lag behind, the fewer hashes are looked up.  Finding them costs a few
 * registers per row.
 */
static void
raise_floors(HllAggregate *hll, uint32 ngroups)
{
	if (hll->nrows < (uint64) ngroups * hll->shape.nregisters)
		return;
	hll->nrows = 0;
	for (uint32 group = 0; group < ngroups; group++)
		if (hll->sets[group].kind == HLL_REGISTERS)
			hll_set_raise_floor(&hll->sets[group], &hll->shape);
}

/* Fetches the set of a row that comes soon, and what the set of one before it points to. */
static inline void
fetch_ahead(const HllSet *sets, const VectorRows *rows, const int64 *hashes, uint32 mask, uint32 i)
{
	const HllSet *near;
	uint64 hash;

	if (i + 2 * FETCH_AHEAD >= rows->nselected)
		return;
	__builtin_prefetch(&sets[rows->groups[i + 2 * FETCH_AHEAD]], 1);
	near = &sets[rows->groups[i + FETCH_AHEAD]];
	hash = (uint64) hashes[rows->selection[i + FETCH_AHEAD]];
	if (near->kind == HLL_REGISTERS)
		__builtin_prefetch(&near->registers[hash & mask], 1);
	else if (near->kind == HLL_EXPLICIT)
		__builtin_prefetch(&near->slots[hll_slot(hash, near->slot_bits)], 1);
}

static void
add_grouped(HllAggregate *hll, const int64 *hashes, const VectorRows *rows)
{
	const HllShape shape = hll->shape;
	HllSet *sets = hll->sets;
	bool is_far = rows->ngroups >= FETCH_GROUPS_MIN;

	for (uint32 i = 0; i < rows->nselected; i++)
	{
		uint64 hash = (uint64) hashes[rows->selection[i]];
		HllSet *set = &sets[rows->groups[i]];

		if (is_far)
			fetch_ahead(sets, rows, hashes, shape.nregisters - 1, i);
		if (set->kind != HLL_REGISTERS)
			hll_set_add(set, &shape, hll->base.states, hash);
		else if (!hll_is_below(hash, shape.log2m, set->floor))
			hll_registers_add(set->registers, &shape, hash);
	}
}

static void
advance_add(VectorAggregate *aggregate, Vector *const *arguments, VectorRows *rows)
{
	HllAggregate *hll = (HllAggregate *) aggregate;
	const Vector *hashes = arguments[0];
	RowsBuffer present;

	if (!hll->is_prepared)
		prepare_add(hll);
	if (hll->is_left)
	{
		scalar_kernel.advance(aggregate, arguments, rows);
		return;
	}
	begin_sets(hll, rows);
	rows = rows_without(rows, hashes->nulls, &present);
	if (rows->nselected == 0)
		return;
	hll->nrows += rows->nselected;
	raise_floors(hll, rows->ngroups);
	if (rows->groups != NULL)
		add_grouped(hll, hashes->ints, rows);
	else
		hll_set_add_rows(&hll->sets[0], &hll->shape, aggregate->states, hashes->ints,
						 rows->selection, rows->nselected);
}

/* ---- hll_union_agg() -------------------------------------------------------------------------- */

/* Adds a value to the set; false if it, or the two together, are not for us. */
static bool
add_value(HllAggregate *hll, HllSet *set, const uint8 *packed, uint32 length)
{
	if (set->kind == HLL_FOREIGN || length < HLL_HEADER)
		return false;
	if (!hll->is_prepared || !hll_shape_has(&hll->shape, packed + 1))
	{
		hll->is_prepared = hll_shape_init(&hll->shape, packed + 1);
		if (!hll->is_prepared)
			return false;
	}
	if (set->kind >= HLL_EMPTY)
		return hll_shape_has(&hll->shape, set->parameters) &&
			   hll_set_add_packed(set, &hll->shape, hll->base.states, packed, length);

	/* an empty set until the value is found to be good */
	set->kind = HLL_EMPTY;
	memcpy(set->parameters, packed + 1, sizeof(set->parameters));
	if (hll_set_add_packed(set, &hll->shape, hll->base.states, packed, length))
		return true;
	set->kind = HLL_UNKNOWN;
	return false;
}

/* The extension adds the value. */
static void
add_foreign(HllAggregate *hll, uint32 group, const Vector *values, uint32 row)
{
	MemoryContext context = scalar_states_row_context(hll->calls);
	MemoryContext caller;
	NullableDatum value;

	if (hll->sets[group].kind != HLL_FOREIGN)
		leave_group(hll, group);
	caller = MemoryContextSwitchTo(context);
	value.value = vector_datum(values, row, &value.isnull);
	scalar_states_advance(hll->calls, group, &value);
	MemoryContextSwitchTo(caller);
	MemoryContextReset(context);
}

static void
advance_union(VectorAggregate *aggregate, Vector *const *arguments, VectorRows *rows)
{
	HllAggregate *hll = (HllAggregate *) aggregate;
	const Vector *values = arguments[0];
	bool has_bytes = values->form == VECTOR_BYTES || values->form == VECTOR_CODES;

	for (uint32 i = 0; i < rows->nselected; i++)
	{
		uint32 row = rows->selection[i];
		uint32 group = rows_group(rows, i);
		HllSet *set = &hll->sets[group];
		const char *bytes;
		uint32 length;

		CHECK_FOR_INTERRUPTS();
		if (set->kind == HLL_ABSENT)
			set->kind = HLL_UNKNOWN;
		if (vector_is_null(values, row))
			continue;
		bytes = has_bytes ? vector_bytes(values, row, &length) : NULL;
		if (bytes == NULL || !add_value(hll, set, (const uint8 *) bytes, length))
			add_foreign(hll, group, values, row);
	}
}

/* ---- states ----------------------------------------------------------------------------------- */

static Datum
get_state(VectorAggregate *aggregate, uint32 group, bool *isnull)
{
	HllAggregate *hll = (HllAggregate *) aggregate;
	const HllSet *set = &hll->sets[group];
	HllShape shape = hll->shape;
	struct varlena *ours;
	Datum theirs;

	if (hll->is_left || set->kind == HLL_FOREIGN)
		return scalar_states_state(hll->calls, group, isnull);
	*isnull = set->kind == HLL_ABSENT;
	if (*isnull)
		return (Datum) 0;
	if (aggregate->variant == HLL_UNION_TRANS && set->kind >= HLL_EMPTY)
		hll_shape_init(&shape, set->parameters);
	if (hll->is_different)
		return serialize_by_extension(hll, set, &shape);
	ours = hll_set_serialize(set, &shape);
	if (hll->is_checked[set->kind])
		return PointerGetDatum(ours);

	theirs = serialize_by_extension(hll, set, &shape);
	hll->is_checked[set->kind] = true;
	hll->is_different = !hll_serialized_equal(set->kind, ours,
											  (struct varlena *) DatumGetPointer(theirs));
	pfree(ours);
	return theirs;
}

/* ---- which aggregates ------------------------------------------------------------------------- */

static const AggregateKernel add_kernel = {sizeof(HllAggregate), create_sets, grow_sets,
										   advance_add,			 get_state,	  reset_sets};

static const AggregateKernel union_kernel = {sizeof(HllAggregate), create_sets, grow_sets,
											 advance_union,		   get_state,	reset_sets};

const AggregateKernel *
vector_hll_find_kernel(const Aggref *aggref, Oid transition, Oid serialize, int *variant)
{
	HllFunction function = hll_function_find(transition);
	ListCell *cell;

	if (function < HLL_ADD_TRANS0 || function > HLL_UNION_TRANS ||
		hll_function_find(serialize) != HLL_SERIALIZE ||
		!OidIsValid(hll_function_oid(HLL_UNION_TRANS)) || !OidIsValid(hll_function_oid(HLL_PACK)))
		return NULL;
	/* the parameters of each group's first row count */
	for_each_from(cell, aggref->args, 1)
	{
		const Const *constant = (const Const *) lfirst_node(TargetEntry, cell)->expr;

		if (!IsA(constant, Const) || constant->constisnull)
			return NULL;
	}
	*variant = function;
	return function == HLL_UNION_TRANS ? &union_kernel : &add_kernel;
}
