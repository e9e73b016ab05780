/*
 * vector_list.c
 *		x IN (list), x NOT IN (list), x = ANY (array), x <> ALL (array).
 *
 * The list does not depend on rows: it is taken apart once.  Integers are compared with a
 * few values in turn, looked up in a bitmap if the list spans few numbers, else searched in
 * the sorted list; so are numerics, by mantissas of the column's scale.  Bytes are searched
 * in a list sorted by length and bytes.
 */
#include "exec/expression/vector_expression_internal.h"

#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "store/codec/numeric_codec.h"

/* So many integers are compared one after the other. */
#define FEW_VALUES 8

/* A list whose numbers lie so close together becomes a bitmap. */
#define BITMAP_SPAN (1 << 18)

typedef struct ListBytes
{
	const char *start;
	uint32 length;
} ListBytes;

/* Integers to look for. */
typedef struct IntList
{
	int count;
	int64 *values;	/* ascending */
	uint64 *bitmap; /* by value - values[0]; may be NULL */
} IntList;

typedef struct ValueList
{
	VectorFamily family;
	bool negated; /* NOT IN */
	ColumnType element;

	bool known;
	MemoryContext memory; /* of all below */
	bool is_null;		  /* the array itself */
	bool is_empty;
	bool has_null;
	int count; /* of values that are not NULL */
	Datum *values;
	IntList ints; /* of numerics: those of `scale` */
	int32 scale;
	ListBytes *bytes; /* sorted */
} ValueList;

/* ---- taking the list apart ---------------------------------------------------------------------- */

static int
compare_ints(const void *left, const void *right)
{
	int64 a = *(const int64 *) left;
	int64 b = *(const int64 *) right;

	return a < b ? -1 : a > b;
}

static int
compare_bytes(const void *left, const void *right)
{
	const ListBytes *a = left;
	const ListBytes *b = right;

	if (a->length != b->length)
		return a->length < b->length ? -1 : 1;
	return memcmp(a->start, b->start, a->length);
}

/* Makes the list of these numbers, which it keeps. */
static void
make_ints(IntList *list, int64 *values, int count)
{
	uint64 span;

	list->values = values;
	list->count = count;
	list->bitmap = NULL;
	qsort(values, count, sizeof(int64), compare_ints);
	if (count <= FEW_VALUES)
		return;
	span = (uint64) values[count - 1] - (uint64) values[0];
	if (span >= BITMAP_SPAN)
		return;
	list->bitmap = palloc0(sizeof(uint64) * (span / 64 + 1));
	for (int i = 0; i < count; i++)
	{
		uint64 offset = (uint64) values[i] - (uint64) values[0];

		list->bitmap[offset / 64] |= UINT64CONST(1) << (offset % 64);
	}
}

static void
collect_ints(ValueList *list)
{
	int64 *values = palloc(sizeof(int64) * Max(list->count, 1));

	for (int i = 0; i < list->count; i++)
		values[i] = column_type_to_int(&list->element, list->values[i]);
	make_ints(&list->ints, values, list->count);
}

/* The mantissa of a number at another scale; false if there is none of 64 bits. */
static bool
rescale(int128 mantissa, int32 digits, int64 *rescaled)
{
	int128 power;
	int128 result;

	if (mantissa == 0)
		result = 0;
	else if (!vector_power_of_ten(abs(digits), &power))
		return false;
	else if (digits >= 0)
	{
		if (__builtin_mul_overflow(mantissa, power, &result))
			return false;
	}
	else
	{
		result = mantissa / power;
		if (result * power != mantissa)
			return false;
	}
	*rescaled = (int64) result;
	return *rescaled == result;
}

static void
collect_mantissas(ValueList *list, int32 scale)
{
	MemoryContext caller = MemoryContextSwitchTo(list->memory);
	int64 *values = palloc(sizeof(int64) * Max(list->count, 1));
	int count = 0;

	for (int i = 0; i < list->count; i++)
	{
		struct varlena *datum = PG_DETOAST_DATUM_PACKED(list->values[i]);
		int128 mantissa;
		int32 own;

		if (numeric_to_scaled(VARDATA_ANY(datum), VARSIZE_ANY_EXHDR(datum), &mantissa, &own) &&
			rescale(mantissa, scale - own, &values[count]))
			count++;
	}
	make_ints(&list->ints, values, count);
	list->scale = scale;
	MemoryContextSwitchTo(caller);
}

static void
collect_bytes(ValueList *list)
{
	list->bytes = palloc(sizeof(ListBytes) * Max(list->count, 1));
	for (int i = 0; i < list->count; i++)
	{
		ListBytes *bytes = &list->bytes[i];

		if (list->element.length > 0)
		{
			bytes->start = DatumGetPointer(list->values[i]);
			bytes->length = list->element.length;
		}
		else
		{
			struct varlena *datum = PG_DETOAST_DATUM_PACKED(list->values[i]);

			bytes->start = VARDATA_ANY(datum);
			bytes->length = VARSIZE_ANY_EXHDR(datum);
		}
		if (list->family == COMPARE_TRIMMED)
			bytes->length = vector_trim(bytes->start, bytes->length);
	}
	qsort(list->bytes, list->count, sizeof(ListBytes), compare_bytes);
}

static void
take_apart(ValueList *list, const Vector *array)
{
	ArrayType *array_value;
	Datum *values;
	bool *nulls;
	int count;
	bool isnull;
	Datum datum = vector_datum(array, 0, &isnull);

	list->is_null = isnull;
	list->is_empty = false;
	list->has_null = false;
	list->count = 0;
	list->scale = -1;
	if (isnull)
		return;
	array_value = DatumGetArrayTypeP(datum);
	/* the type that is written there may be another one of the same form */
	deconstruct_array(array_value, ARR_ELEMTYPE(array_value), list->element.length,
					  list->element.byval, list->element.align, &values, &nulls, &count);
	list->is_empty = count == 0;
	list->values = values;
	for (int i = 0; i < count; i++)
	{
		if (nulls[i])
			list->has_null = true;
		else
			values[list->count++] = values[i];
	}
	if (list->family == COMPARE_INT)
		collect_ints(list);
	else if (list->family != COMPARE_NUMERIC)
		collect_bytes(list);
}

static void
prepare_list(VectorExpression *node, VectorInput *input)
{
	ValueList *list = node->details;
	const Vector *array;
	MemoryContext caller;

	if (list->known)
		return;
	array = vector_node_values(node->args[1], input);
	MemoryContextReset(list->memory);
	caller = MemoryContextSwitchTo(list->memory);
	take_apart(list, array);
	MemoryContextSwitchTo(caller);
	list->known = true;
}

static void
reset_list(VectorExpression *node)
{
	((ValueList *) node->details)->known = false;
}

/* ---- looking up --------------------------------------------------------------------------------- */

VECTOR_KERNEL static void
match_value(const int64 *restrict values, int64 sought, uint8 *restrict truth)
{
	for (int i = 0; i < BLOCK_ROWS; i++)
		truth[i] |= (uint8) (values[i] == sought) << 1;
}

static inline bool
is_in_bitmap(const IntList *list, int64 value)
{
	uint64 offset = (uint64) value - (uint64) list->values[0];
	uint64 span = (uint64) list->values[list->count - 1] - (uint64) list->values[0];

	return offset <= span && (list->bitmap[offset / 64] >> (offset % 64) & 1);
}

static inline bool
is_in_sorted(const IntList *list, int64 value)
{
	const int64 *base = list->values;
	int count = list->count;

	while (count > 1)
	{
		int half = count / 2;

		base += base[half] <= value ? half : 0;
		count -= half;
	}
	return count > 0 && *base == value;
}

/* truth = TRUE for rows in the list, else FALSE; false if for the selected rows only. */
static bool
find_ints(const IntList *list, const int64 *values, const VectorInput *input, uint8 *truth)
{
	if (list->count <= FEW_VALUES && !vector_input_is_sparse(input))
	{
		memset(truth, TRUTH_FALSE, BLOCK_ROWS);
		for (int i = 0; i < list->count; i++)
			match_value(values, list->values[i], truth);
		return true;
	}
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		bool found = list->bitmap ? is_in_bitmap(list, values[row])
								  : is_in_sorted(list, values[row]);

		truth[row] = (uint8) found << 1;
	}
	return false;
}

static void
find_bytes(const ValueList *list, const Vector *values, const VectorInput *input, uint8 *truth)
{
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		ListBytes sought;

		sought.start = vector_bytes(values, row, &sought.length);
		if (list->family == COMPARE_TRIMMED)
			sought.length = vector_trim(sought.start, sought.length);
		truth[row] = bsearch(&sought, list->bytes, list->count, sizeof(ListBytes), compare_bytes) !=
							 NULL
						 ? TRUTH_TRUE
						 : TRUTH_FALSE;
	}
}

/* From "found" to the outcome. */
VECTOR_KERNEL static void
finish_truth(uint8 *truth, uint8 not_found, uint8 negated)
{
	for (int i = 0; i < BLOCK_ROWS; i++)
	{
		uint8 outcome = truth[i] > not_found ? truth[i] : not_found;

		truth[i] = negated ? TRUTH_TRUE - outcome : outcome;
	}
}

/* Rows whose numerics have no mantissa. */
static void
decide_exceptions(VectorExpression *node, VectorInput *input, const Vector *values, uint8 *truth)
{
	uint16 rows[BLOCK_ROWS];
	VectorInput narrow = vector_input_narrow(input, rows, 0);

	for (uint32 i = 0; i < input->nselected; i++)
		if (vector_bit(values->exceptions, input->selection[i]))
			rows[narrow.nselected++] = input->selection[i];
	if (narrow.nselected > 0)
		vector_leaf_decide_scalar(node, &narrow, truth);
}

static void
decide_list(VectorExpression *node, VectorInput *input, uint8 *truth)
{
	ValueList *list = node->details;
	Vector *values = vector_node_values(node->args[0], input);
	bool complete = false;

	prepare_list(node, input);
	if (list->is_null || list->is_empty)
	{
		memset(truth, list->is_null ? TRUTH_NULL : (list->negated ? TRUTH_TRUE : TRUTH_FALSE),
			   BLOCK_ROWS);
		return;
	}
	if (list->family == COMPARE_NUMERIC)
	{
		complete = values->form == VECTOR_INT;
		values = vector_numeric_scale(node, 0, values, input);
		if (values->form == VECTOR_WIDE)
		{
			vector_leaf_decide_scalar(node, input, truth);
			return;
		}
		if (list->scale != values->scale)
			collect_mantissas(list, values->scale);
		complete = find_ints(&list->ints, values->ints, input, truth) && complete;
	}
	else if (list->family == COMPARE_INT)
		complete = find_ints(&list->ints, values->ints, input, truth);
	else
		find_bytes(list, values, input, truth);
	node->partial = node->partial || !complete;

	finish_truth(truth, list->has_null ? TRUTH_NULL : TRUTH_FALSE, list->negated);
	vector_truth_mark_nulls(truth, values->nulls);
	if (values->exceptions != NULL)
	{
		decide_exceptions(node, input, values, truth);
		node->partial = true;
	}
}

/* ---- compiling ---------------------------------------------------------------------------------- */

static bool
has_list_kernel(VectorFamily family)
{
	return family == COMPARE_INT || family == COMPARE_NUMERIC || family == COMPARE_TEXT ||
		   family == COMPARE_TRIMMED || family == COMPARE_BYTES;
}

VectorExpression *
vector_list_compile(ScalarArrayOpExpr *expression, VectorScope *scope)
{
	Expr *array = lsecond(expression->args);
	Oid element = get_base_element_type(exprType((Node *) array));
	FormData_pg_attribute attribute = {0};
	VectorExpression *node;
	VectorFamily family;
	VectorOrder order;
	ValueList *list;

	set_sa_opfuncid(expression);
	if (!OidIsValid(element) || contain_var_clause((Node *) array) ||
		!vector_compare_find(expression->opfuncid, &family, &order) || !has_list_kernel(family) ||
		!vector_compare_has_kernel(family, order, expression->inputcollid) ||
		order != (expression->useOr ? ORDER_EQ : ORDER_NE))
		return NULL;

	node = vector_node_create((Expr *) expression, scope, expression->args);
	list = palloc0(sizeof(ValueList));
	list->family = family;
	list->negated = order == ORDER_NE;
	attribute.atttypid = element;
	attribute.atttypmod = -1;
	attribute.attcollation = expression->inputcollid;
	get_typlenbyvalalign(element, &attribute.attlen, &attribute.attbyval, &attribute.attalign);
	column_type_init(&list->element, &attribute);
	list->memory = AllocSetContextCreate(scope->context, "columnar list", ALLOCSET_SMALL_SIZES);
	node->details = list;
	node->decide = decide_list;
	node->reset = reset_list;
	node->is_cheap = node->args[0]->is_cheap &&
					 (family == COMPARE_INT || family == COMPARE_NUMERIC);
	return node;
}
