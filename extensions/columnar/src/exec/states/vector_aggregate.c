/*
 * vector_aggregate.c
 *		Finds the kernel of an aggregate and keeps the number of its groups.
 *
 * An aggregate is what its transition function, serialization function and initial value
 * make of it; its name and its final function do not matter here.  So sum(bigint) and
 * avg(bigint) are the same, and so is a user's aggregate made of the same functions.
 *
 * Memory: an object has a context of its own below the caller's, with a child for the states
 * that a reset empties.
 */
#include "compat.h"

#include "access/htup_details.h"
#include "catalog/pg_aggregate.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"

#include "exec/states/vector_aggregate_internal.h"

typedef struct KernelChoice
{
	Oid transition;
	Oid serialize;
	const char *initial; /* text of the initial state; NULL for NULL */
	const AggregateKernel *kernel;
	int variant;
} KernelChoice;

#define ZEROES_2 "{0,0}"
#define ZEROES_3 "{0,0,0}"
#define ZEROES_6 "{0,0,0,0,0,0}"

static const KernelChoice choices[] = {
	{F_INT8INC, InvalidOid, "0", &count_kernel},
	{F_INT8INC_ANY, InvalidOid, "0", &count_kernel},
	{F_INT8INC_FLOAT8_FLOAT8, InvalidOid, "0", &count_kernel},

	{F_INT2_SUM, InvalidOid, NULL, &sum_kernel, SUM_INT64},
	{F_INT4_SUM, InvalidOid, NULL, &sum_kernel, SUM_INT64},
	{F_CASH_PL, InvalidOid, NULL, &sum_kernel, SUM_MONEY},
	{F_INT2_AVG_ACCUM, InvalidOid, ZEROES_2, &sum_kernel, SUM_AVERAGE},
	{F_INT4_AVG_ACCUM, InvalidOid, ZEROES_2, &sum_kernel, SUM_AVERAGE},
	{F_INT8_AVG_ACCUM, F_INT8_AVG_SERIALIZE, NULL, &sum_kernel, SUM_INT128},
	{F_NUMERIC_AVG_ACCUM, F_NUMERIC_AVG_SERIALIZE, NULL, &sum_kernel, SUM_NUMERIC},
	{F_INT2_ACCUM, F_NUMERIC_POLY_SERIALIZE, NULL, &sum_kernel, SUM_INT128_SQUARES},
	{F_INT4_ACCUM, F_NUMERIC_POLY_SERIALIZE, NULL, &sum_kernel, SUM_INT128_SQUARES},
	{F_INT8_ACCUM, F_NUMERIC_SERIALIZE, NULL, &sum_kernel, SUM_NUMERIC_SQUARES},
	{F_NUMERIC_ACCUM, F_NUMERIC_SERIALIZE, NULL, &sum_kernel, SUM_NUMERIC_SQUARES},

	{F_FLOAT4PL, InvalidOid, NULL, &float_sum_kernel, FLOAT_SINGLE},
	{F_FLOAT8PL, InvalidOid, NULL, &float_sum_kernel, FLOAT_DOUBLE},
	{F_FLOAT4_ACCUM, InvalidOid, ZEROES_3, &float_moments_kernel},
	{F_FLOAT8_ACCUM, InvalidOid, ZEROES_3, &float_moments_kernel},
	{F_FLOAT8_REGR_ACCUM, InvalidOid, ZEROES_6, &float_regression_kernel},

	{F_INT2SMALLER, InvalidOid, NULL, &int_fold_kernel, FOLD_MIN},
	{F_INT2LARGER, InvalidOid, NULL, &int_fold_kernel, FOLD_MAX},
	{F_INT4SMALLER, InvalidOid, NULL, &int_fold_kernel, FOLD_MIN},
	{F_INT4LARGER, InvalidOid, NULL, &int_fold_kernel, FOLD_MAX},
	{F_INT8SMALLER, InvalidOid, NULL, &int_fold_kernel, FOLD_MIN},
	{F_INT8LARGER, InvalidOid, NULL, &int_fold_kernel, FOLD_MAX},
	{F_DATE_SMALLER, InvalidOid, NULL, &int_fold_kernel, FOLD_MIN},
	{F_DATE_LARGER, InvalidOid, NULL, &int_fold_kernel, FOLD_MAX},
	{F_TIME_SMALLER, InvalidOid, NULL, &int_fold_kernel, FOLD_MIN},
	{F_TIME_LARGER, InvalidOid, NULL, &int_fold_kernel, FOLD_MAX},
	{F_TIMESTAMP_SMALLER, InvalidOid, NULL, &int_fold_kernel, FOLD_MIN},
	{F_TIMESTAMP_LARGER, InvalidOid, NULL, &int_fold_kernel, FOLD_MAX},
	{F_TIMESTAMPTZ_SMALLER, InvalidOid, NULL, &int_fold_kernel, FOLD_MIN},
	{F_TIMESTAMPTZ_LARGER, InvalidOid, NULL, &int_fold_kernel, FOLD_MAX},
	{F_CASHSMALLER, InvalidOid, NULL, &int_fold_kernel, FOLD_MIN},
	{F_CASHLARGER, InvalidOid, NULL, &int_fold_kernel, FOLD_MAX},
	{F_BOOLAND_STATEFUNC, InvalidOid, NULL, &int_fold_kernel, FOLD_MIN},
	{F_BOOLOR_STATEFUNC, InvalidOid, NULL, &int_fold_kernel, FOLD_MAX},
	{F_INT2AND, InvalidOid, NULL, &int_fold_kernel, FOLD_AND},
	{F_INT4AND, InvalidOid, NULL, &int_fold_kernel, FOLD_AND},
	{F_INT8AND, InvalidOid, NULL, &int_fold_kernel, FOLD_AND},
	{F_INT2OR, InvalidOid, NULL, &int_fold_kernel, FOLD_OR},
	{F_INT4OR, InvalidOid, NULL, &int_fold_kernel, FOLD_OR},
	{F_INT8OR, InvalidOid, NULL, &int_fold_kernel, FOLD_OR},
	{F_INT2XOR, InvalidOid, NULL, &int_fold_kernel, FOLD_XOR},
	{F_INT4XOR, InvalidOid, NULL, &int_fold_kernel, FOLD_XOR},
	{F_INT8XOR, InvalidOid, NULL, &int_fold_kernel, FOLD_XOR},

	{F_FLOAT4SMALLER, InvalidOid, NULL, &float_extreme_kernel, FLOAT_SINGLE},
	{F_FLOAT4LARGER, InvalidOid, NULL, &float_extreme_kernel, FLOAT_SINGLE | FLOAT_MAX},
	{F_FLOAT8SMALLER, InvalidOid, NULL, &float_extreme_kernel, FLOAT_DOUBLE},
	{F_FLOAT8LARGER, InvalidOid, NULL, &float_extreme_kernel, FLOAT_DOUBLE | FLOAT_MAX},

	{F_NUMERIC_SMALLER, InvalidOid, NULL, &numeric_extreme_kernel, 0},
	{F_NUMERIC_LARGER, InvalidOid, NULL, &numeric_extreme_kernel, EXTREME_MAX},
	{F_TEXT_SMALLER, InvalidOid, NULL, &text_extreme_kernel, 0},
	{F_TEXT_LARGER, InvalidOid, NULL, &text_extreme_kernel, EXTREME_MAX},
	{F_BPCHAR_SMALLER, InvalidOid, NULL, &text_extreme_kernel, EXTREME_BLANKS},
	{F_BPCHAR_LARGER, InvalidOid, NULL, &text_extreme_kernel, EXTREME_BLANKS | EXTREME_MAX},
};

/* Is the aggregate's initial state the one that the kernel begins with? */
static bool
is_initial(HeapTuple tuple, const char *initial)
{
	bool isnull;
	Datum value = SysCacheGetAttr(AGGFNOID, tuple, Anum_pg_aggregate_agginitval, &isnull);
	char *string;
	bool equal;

	if (isnull || initial == NULL)
		return isnull && initial == NULL;
	string = TextDatumGetCString(value);
	equal = strcmp(string, initial) == 0;
	pfree(string);
	return equal;
}

/* The kernel and its variant; NULL if there is none. */
static const AggregateKernel *
find_kernel(const Aggref *aggref, int *variant)
{
	HeapTuple tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggref->aggfnoid));
	Form_pg_aggregate form;
	const AggregateKernel *found = NULL;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for aggregate %u", aggref->aggfnoid);
	form = (Form_pg_aggregate) GETSTRUCT(tuple);
	for (int i = 0; i < lengthof(choices) && found == NULL; i++)
	{
		const KernelChoice *choice = &choices[i];

		if (choice->transition == form->aggtransfn && choice->serialize == form->aggserialfn &&
			is_initial(tuple, choice->initial))
		{
			found = choice->kernel;
			*variant = choice->variant;
		}
	}
	if (found == NULL && is_initial(tuple, NULL))
		found = vector_hll_find_kernel(aggref, form->aggtransfn, form->aggserialfn, variant);
	ReleaseSysCache(tuple);
	return found;
}

bool
vector_aggregate_has_kernel(const Aggref *aggref)
{
	int variant;

	return find_kernel(aggref, &variant) != NULL;
}

VectorAggregate *
vector_aggregate_create(const Aggref *aggref, PlanState *parent)
{
	int variant = 0;
	const AggregateKernel *found = find_kernel(aggref, &variant);

	return vector_aggregate_create_of(aggref, found != NULL ? found : &scalar_kernel, variant,
									  parent);
}

VectorAggregate *
vector_aggregate_create_of(const Aggref *aggref, const AggregateKernel *kernel, int variant,
						   PlanState *parent)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "vector aggregate",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	VectorAggregate *aggregate = palloc0(kernel->size);

	aggregate->kernel = kernel;
	aggregate->variant = variant;
	aggregate->aggref = aggref;
	aggregate->parent = parent;
	aggregate->context = context;
	aggregate->states = AllocSetContextCreate(context, "vector aggregate states",
											  ALLOCSET_SMALL_SIZES);
	if (kernel->create != NULL)
		kernel->create(aggregate);
	MemoryContextSwitchTo(old);
	return aggregate;
}

void
vector_aggregate_resize(VectorAggregate *aggregate, uint32 ngroups)
{
	if (ngroups > aggregate->capacity)
	{
		uint32 old_capacity = aggregate->capacity;
		uint64 capacity = Max(old_capacity, 16);

		while (capacity < ngroups)
			capacity *= 2;
		aggregate->capacity = (uint32) Min(capacity, PG_UINT32_MAX);
		aggregate->kernel->grow(aggregate, old_capacity);
	}
	aggregate->ngroups = Max(aggregate->ngroups, ngroups);
	if (aggregate->scalar != NULL)
		scalar_states_resize(aggregate->scalar, aggregate->ngroups);
}

void
vector_aggregate_advance(VectorAggregate *aggregate, Vector *const *arguments, VectorRows *rows)
{
	if (rows->nselected == 0)
		return;
	if (aggregate->ngroups < rows->ngroups)
		vector_aggregate_resize(aggregate, rows->ngroups);
	aggregate->kernel->advance(aggregate, arguments, rows);
}

AggregateUse
vector_aggregate_use(const Aggref *aggref)
{
	int variant = 0;
	const AggregateKernel *kernel = find_kernel(aggref, &variant);

	if (kernel == &count_kernel)
		return list_length(aggref->args) <= 1 ? AGGREGATE_USES_COUNT : AGGREGATE_USES_ROWS;
	/* money may overflow on the way to its sum */
	if (kernel == &sum_kernel)
		return variant == SUM_INT64 || variant == SUM_AVERAGE || variant == SUM_INT128 ||
					   variant == SUM_NUMERIC
				   ? AGGREGATE_USES_TOTAL
				   : AGGREGATE_USES_ROWS;
	if (kernel == &int_fold_kernel && (variant == FOLD_MIN || variant == FOLD_MAX))
		return variant == FOLD_MIN ? AGGREGATE_USES_MIN : AGGREGATE_USES_MAX;
	if (kernel == &float_extreme_kernel)
		return variant & FLOAT_MAX ? AGGREGATE_USES_MAX : AGGREGATE_USES_MIN;
	if (kernel == &numeric_extreme_kernel ||
		(kernel == &text_extreme_kernel && (variant & EXTREME_BLANKS) == 0))
		return variant & EXTREME_MAX ? AGGREGATE_USES_MAX : AGGREGATE_USES_MIN;
	return AGGREGATE_USES_ROWS;
}

bool
vector_aggregate_fits(const VectorAggregate *aggregate, const AggregateTotal *total)
{
	return aggregate->kernel->fits == NULL || aggregate->kernel->fits(aggregate, total);
}

void
vector_aggregate_add(VectorAggregate *aggregate, const AggregateTotal *total, uint64 nnulls)
{
	aggregate->kernel->add(aggregate, total, nnulls);
}

Datum
vector_aggregate_state(VectorAggregate *aggregate, uint32 group, bool *isnull)
{
	if (group >= aggregate->ngroups)
		vector_aggregate_resize(aggregate, group + 1);
	return aggregate->kernel->state(aggregate, group, isnull);
}

Size
vector_aggregate_memory(const VectorAggregate *aggregate)
{
	Size size = MemoryContextMemAllocated(aggregate->context, true);

	if (aggregate->scalar != NULL)
		size += scalar_states_memory(aggregate->scalar);
	return size;
}

void
vector_aggregate_reset(VectorAggregate *aggregate)
{
	if (aggregate->scalar != NULL)
		scalar_states_reset(aggregate->scalar);
	MemoryContextReset(aggregate->states);
	aggregate->ngroups = 0;
	aggregate->capacity = 0;
	aggregate->kernel->reset(aggregate);
}
