/*
 * vector_aggregate_internal.h
 *		What the kernels of the vectorised aggregation share.
 *
 * A kernel is a table of functions over an object that begins with a VectorAggregate and
 * goes on with arrays indexed by group.  The arrays are in the context `states`, are
 * allocated for `capacity` groups, and hold initial states beyond ngroups.
 */
#ifndef COLUMNAR_VECTOR_AGGREGATE_INTERNAL_H
#define COLUMNAR_VECTOR_AGGREGATE_INTERNAL_H

#include "exec/states/vector_aggregate.h"

#include "lib/stringinfo.h"

typedef struct AggregateKernel
{
	Size size; /* of the object, which is zeroed at first */
	/* After the members of VectorAggregate are set; may be NULL. */
	void (*create)(VectorAggregate *aggregate);
	/* aggregate->capacity was raised from old_capacity: enlarge the arrays. */
	void (*grow)(VectorAggregate *aggregate, uint32 old_capacity);
	void (*advance)(VectorAggregate *aggregate, Vector *const *arguments, VectorRows *rows);
	Datum (*state)(VectorAggregate *aggregate, uint32 group, bool *isnull);
	/* The memory of `states` was freed: forget the arrays. */
	void (*reset)(VectorAggregate *aggregate);
	/* Is the group's state no more than a total (of at least one value)?  NULL: never. */
	bool (*total)(VectorAggregate *aggregate, uint32 group, AggregateTotal *total);
	/* See vector_aggregate_fits() and vector_aggregate_add(); NULL: always, and never. */
	bool (*fits)(const VectorAggregate *aggregate, const AggregateTotal *total);
	void (*add)(VectorAggregate *aggregate, const AggregateTotal *total, uint64 nnulls);
} AggregateKernel;

typedef struct ScalarStates ScalarStates;

struct VectorAggregate
{
	const AggregateKernel *kernel;
	int variant; /* for the kernel, from the table in vector_aggregate.c */
	const Aggref *aggref;
	PlanState *parent;
	MemoryContext context; /* of the object */
	MemoryContext states;  /* of the arrays, a child */
	uint32 ngroups;
	uint32 capacity;
	ScalarStates *scalar; /* states that core's functions keep, or NULL */
};

/* ---- arrays and rows (vector_aggregate_rows.c) --------------------------------------------- */

/* The array of old_capacity elements enlarged to aggregate->capacity; what is new is zero. */
extern void *aggregate_grow_array(const VectorAggregate *aggregate, void *array,
								  uint32 old_capacity, Size element);

/* Room for a part of some rows. */
typedef struct RowsBuffer
{
	VectorRows rows;
	uint16 selection[BLOCK_ROWS];
	uint32 groups[BLOCK_ROWS];
} RowsBuffer;

/* The rows whose bit is not set (`keep`: is set) in bits: `rows` itself where that is all. */
extern VectorRows *rows_choose(VectorRows *rows, const uint64 *bits, bool keep, RowsBuffer *into);

static inline VectorRows *
rows_without(VectorRows *rows, const uint64 *bits, RowsBuffer *into)
{
	return bits == NULL ? rows : rows_choose(rows, bits, false, into);
}

/* How many rows each group has; only if there are at most VECTOR_FEW_GROUPS. */
extern const uint32 *rows_counts(VectorRows *rows);

static inline bool
rows_have_few_groups(const VectorRows *rows)
{
	return rows->ngroups <= VECTOR_FEW_GROUPS;
}

static inline bool
rows_are_all(const VectorRows *rows)
{
	return rows->nselected == rows->nrows;
}

static inline uint32
rows_group(const VectorRows *rows, uint32 i)
{
	return rows->groups != NULL ? rows->groups[i] : 0;
}

/* Which groups had a value yet. */
typedef struct GroupMarks
{
	bool *marked;
	uint32 nmarked; /* groups that are */
} GroupMarks;

extern void group_marks_add(GroupMarks *marks, VectorRows *rows);

/* A vector of integers or floats as one with ints[] or floats[], for the rows; may be itself. */
extern Vector *vector_as_ints(Vector *vector, const VectorRows *rows, Vector *made, int64 *values);
extern Vector *
vector_as_floats(Vector *vector, const VectorRows *rows, Vector *made, double *values);

/* Mantissa and scale of a numeric that is not NULL; false if it has none. */
extern bool vector_scaled(const Vector *vector, uint32 row, int128 *mantissa, int32 *scale);

/* ---- states of transition functions (vector_aggregate_scalar.c) ------------------------------ */

extern ScalarStates *scalar_states_create(const VectorAggregate *aggregate);
/* ERROR unless the owner of the aggregate may call one of the functions that it is made of. */
extern void scalar_states_check_owner(Oid aggregate, Oid function);
/* The AggState that aggregates' functions find in their call. */
extern Node *scalar_states_node(ScalarStates *states);
extern void scalar_states_resize(ScalarStates *states, uint32 ngroups);
/* Fills *function and returns room for the arguments of its calls; `node`: scalar_states_node(). */
extern FunctionCallInfo scalar_states_prepare_call(Oid oid, Expr *expression, int narguments,
												   Oid collation, Node *node, FmgrInfo *function);
/* Calls the transition function; the arguments in the context of scalar_states_row_context(). */
extern void
scalar_states_advance(ScalarStates *states, uint32 group, const NullableDatum *arguments);
/* Reset after each row. */
extern MemoryContext scalar_states_row_context(const ScalarStates *states);
/* Did the transition function run for the group? */
extern bool scalar_states_has(const ScalarStates *states, uint32 group);
/* Serialized if the aggregate has a function for that; in the current context. */
extern Datum scalar_states_state(ScalarStates *states, uint32 group, bool *isnull);
/* The same combined with a serialized state by the functions given. */
extern Datum scalar_states_combine(ScalarStates *states, uint32 group, Datum serialized,
								   Oid deserialize, Oid combine);
extern Size scalar_states_memory(const ScalarStates *states);
extern void scalar_states_reset(ScalarStates *states);

/* ---- serialized numbers (vector_aggregate_wire.c) --------------------------------------------- */

/* A part of a total: magnitude / 10^scale, or its negative. */
typedef struct WireTerm
{
	uint128 magnitude;
	bool negative;
	int32 scale;
} WireTerm;

static inline WireTerm
wire_term(int128 mantissa, int32 scale)
{
	WireTerm term = {mantissa < 0 ? -(uint128) mantissa : (uint128) mantissa, mantissa < 0, scale};

	return term;
}

/* The sum of the terms as numericvar_serialize() writes what accum_sum_final() makes. */
extern void wire_put_total(StringInfo into, const WireTerm *terms, int nterms, int32 dscale);
/* An integer as numericvar_serialize() writes what int128_to_numericvar() makes. */
extern void wire_put_int128(StringInfo into, int128 value);
/* The state of avg(int2) and avg(int4): {count, sum}. */
extern Datum wire_average_array(int64 count, int64 total);

/* An object for a kernel that is known. */
extern VectorAggregate *
vector_aggregate_create_of(const Aggref *aggref, const AggregateKernel *kernel, int variant,
						   PlanState *parent);

/* ---- kernels --------------------------------------------------------------------------------- */

extern const AggregateKernel count_kernel;

typedef enum SumVariant
{
	SUM_INT64,			 /* int2_sum, int4_sum */
	SUM_MONEY,			 /* cash_pl */
	SUM_AVERAGE,		 /* int2_avg_accum, int4_avg_accum */
	SUM_INT128,			 /* int8_avg_accum */
	SUM_INT128_SQUARES,	 /* int2_accum, int4_accum */
	SUM_NUMERIC,		 /* numeric_avg_accum */
	SUM_NUMERIC_SQUARES, /* numeric_accum, int8_accum */
} SumVariant;

extern const AggregateKernel sum_kernel;

/* Of float_sum_kernel and float_extreme_kernel: float4 or float8. */
typedef enum FloatVariant
{
	FLOAT_DOUBLE = 0,
	FLOAT_SINGLE = 1,
	FLOAT_MAX = 2 /* or this */
} FloatVariant;

extern const AggregateKernel float_sum_kernel;
extern const AggregateKernel float_moments_kernel;
extern const AggregateKernel float_regression_kernel;

typedef enum IntFold
{
	FOLD_MIN,
	FOLD_MAX,
	FOLD_AND,
	FOLD_OR,
	FOLD_XOR
} IntFold;

extern const AggregateKernel int_fold_kernel;
extern const AggregateKernel float_extreme_kernel;

/* Bits of text_extreme_kernel's variant, and of numeric_extreme_kernel's. */
#define EXTREME_MAX 1
#define EXTREME_BLANKS \
	2 /* character(n): trailing blanks do not count, and the first of equals stays */

extern const AggregateKernel text_extreme_kernel;
extern const AggregateKernel numeric_extreme_kernel;
extern const AggregateKernel scalar_kernel;

/*
 * The kernel of an aggregate made of these functions of the extension postgresql-hll, whose
 * initial state is NULL; or NULL.
 */
extern const AggregateKernel *
vector_hll_find_kernel(const Aggref *aggref, Oid transition, Oid serialize, int *variant);

/* The best of some mantissas, nselected > 0. */
extern int64 int_fold_rows(IntFold fold, const int64 *values, const VectorRows *rows);

#endif
