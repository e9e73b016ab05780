/*
 * vector_compare_bytes.c
 *		Comparisons of text, character(n), bytea and uuid by their bytes.
 *
 * Equality is that of the bytes under every deterministic collation; order is theirs under C.
 * Only selected rows are looked at: the bytes of others may be gone.
 */
#include "exec/expression/vector_expression_internal.h"

/* A value, as far as it takes part in the comparison. */
typedef struct Bytes
{
	const char *start;
	uint32 length;
} Bytes;

static inline Bytes
get_value(const Vector *vector, uint32 row, bool trimmed)
{
	Bytes value;

	value.start = vector_bytes(vector, row, &value.length);
	if (trimmed)
		value.length = vector_trim(value.start, value.length);
	return value;
}

static inline bool
are_equal(Bytes left, Bytes right)
{
	return left.length == right.length && memcmp(left.start, right.start, left.length) == 0;
}

static inline int
find_order(Bytes left, Bytes right)
{
	int order = memcmp(left.start, right.start, Min(left.length, right.length));

	if (order != 0)
		return order;
	return left.length < right.length ? -1 : left.length > right.length;
}

static inline void
compare_rows(const Vector *left, const Vector *right, bool trimmed, VectorOrder order,
			 const VectorInput *input, uint8 *truth)
{
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		int outcome = find_order(get_value(left, row, trimmed), get_value(right, row, trimmed));

		truth[row] = vector_order_holds(order, outcome) ? TRUTH_TRUE : TRUTH_FALSE;
	}
}

static inline void
equal_rows(const Vector *left, const Vector *right, bool trimmed, uint8 flip,
		   const VectorInput *input, uint8 *truth)
{
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		bool equal = are_equal(get_value(left, row, trimmed), get_value(right, row, trimmed));

		truth[row] = (uint8) (equal ^ flip) << 1;
	}
}

/* The same with one value: most rows differ in length or in the first byte. */
static inline void
equal_constant_rows(const Vector *vector, Bytes constant, bool trimmed, uint8 flip,
					const VectorInput *input, uint8 *truth)
{
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		Bytes value = get_value(vector, row, trimmed);
		bool equal = value.length == constant.length;

		if (equal && constant.length > 0)
			equal = value.start[0] == constant.start[0] &&
					memcmp(value.start, constant.start, constant.length) == 0;
		truth[row] = (uint8) (equal ^ flip) << 1;
	}
}

bool
vector_compare_bytes(const Vector *left, const Vector *right, VectorFamily family,
					 VectorOrder order, const VectorInput *input, uint8 *truth)
{
	bool trimmed = family == COMPARE_TRIMMED;
	uint8 flip = order == ORDER_NE;

	if (order != ORDER_EQ && order != ORDER_NE)
		compare_rows(left, right, trimmed, order, input, truth);
	else if (right->constant && right->form == VECTOR_BYTES)
		equal_constant_rows(left, get_value(right, 0, trimmed), trimmed, flip, input, truth);
	else if (left->constant && left->form == VECTOR_BYTES)
		equal_constant_rows(right, get_value(left, 0, trimmed), trimmed, flip, input, truth);
	else
		equal_rows(left, right, trimmed, flip, input, truth);
	return false;
}
