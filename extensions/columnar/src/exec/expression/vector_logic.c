/*
 * vector_logic.c
 *		AND, OR, NOT, IS [NOT] NULL, IS [NOT] TRUE, FALSE, UNKNOWN.
 *
 * AND and OR look at the rest of their conditions only for rows that are not decided, as
 * core does: but what is cheap and cannot fail is computed for whole blocks.
 */
#include "exec/expression/vector_expression_internal.h"

/* ---- AND, OR ------------------------------------------------------------------------------------ */

VECTOR_KERNEL static void
merge_smaller(uint8 *restrict truth, const uint8 *restrict other)
{
	for (int i = 0; i < BLOCK_ROWS; i++)
		truth[i] = truth[i] < other[i] ? truth[i] : other[i];
}

VECTOR_KERNEL static void
merge_larger(uint8 *restrict truth, const uint8 *restrict other)
{
	for (int i = 0; i < BLOCK_ROWS; i++)
		truth[i] = truth[i] > other[i] ? truth[i] : other[i];
}

/* Which outcomes of the conditions so far need the next one. */
typedef enum LogicKind
{
	LOGIC_AND,	/* TRUE and NULL */
	LOGIC_OR,	/* FALSE and NULL */
	LOGIC_QUALS /* TRUE alone */
} LogicKind;

static inline bool
is_undecided(LogicKind kind, uint8 truth)
{
	switch (kind)
	{
		case LOGIC_AND:
			return truth != TRUTH_FALSE;
		case LOGIC_OR:
			return truth != TRUTH_TRUE;
		case LOGIC_QUALS:
			return truth == TRUTH_TRUE;
	}
	pg_unreachable();
}

/* The selected rows that are not decided yet. */
static inline uint32
list_undecided(const VectorInput *input, const uint8 *truth, LogicKind kind, uint16 *rows)
{
	uint32 nrows = 0;

	for (uint32 i = 0; i < input->nselected; i++)
	{
		rows[nrows] = input->selection[i];
		nrows += is_undecided(kind, truth[input->selection[i]]);
	}
	return nrows;
}

VECTOR_KERNEL static uint8
find_largest(const uint8 *truth)
{
	uint8 largest = TRUTH_FALSE;

	for (int i = 0; i < BLOCK_ROWS; i++)
		largest = truth[i] > largest ? truth[i] : largest;
	return largest;
}

/* Need no rows of the block the next condition, which may need another column? */
static bool
is_block_decided(LogicKind kind, const uint8 *truth)
{
	return kind != LOGIC_OR && find_largest(truth) < (kind == LOGIC_AND ? TRUTH_NULL : TRUTH_TRUE);
}

/* Does the condition pay for rows that do not need it? */
static bool
is_for_whole_blocks(const VectorExpression *node, const VectorInput *input)
{
	return node->is_cheap && !node->can_fail && !vector_input_is_sparse(input);
}

static void
decide_all(VectorExpression *node, VectorInput *input, uint8 *truth, LogicKind kind)
{
	uint16 *rows = vector_node_rows(node, 0);
	bool narrowed = false;

	memcpy(truth, vector_node_truth(node->args[0], input), BLOCK_ROWS);
	for (int i = 1; i < node->nargs; i++)
	{
		VectorInput rest;
		const uint8 *other;

		if (is_for_whole_blocks(node->args[i], input))
		{
			if (is_block_decided(kind, truth))
			{
				narrowed = true;
				break;
			}
			other = vector_node_truth(node->args[i], input);
			if (kind == LOGIC_OR)
				merge_larger(truth, other);
			else
				merge_smaller(truth, other);
			continue;
		}
		narrowed = true;
		rest = vector_input_narrow(input, rows, list_undecided(input, truth, kind, rows));
		if (rest.nselected == 0)
			break;
		other = vector_node_truth(node->args[i], &rest);
		for (uint32 j = 0; j < rest.nselected; j++)
			truth[rows[j]] = kind == LOGIC_OR ? Max(truth[rows[j]], other[rows[j]])
											  : Min(truth[rows[j]], other[rows[j]]);
	}
	node->partial = node->partial || narrowed;
}

static void
decide_and(VectorExpression *node, VectorInput *input, uint8 *truth)
{
	decide_all(node, input, truth, LOGIC_AND);
}

static void
decide_or(VectorExpression *node, VectorInput *input, uint8 *truth)
{
	decide_all(node, input, truth, LOGIC_OR);
}

static void
decide_quals(VectorExpression *node, VectorInput *input, uint8 *truth)
{
	decide_all(node, input, truth, LOGIC_QUALS);
}

VECTOR_KERNEL static void
negate_truth(const uint8 *restrict from, uint8 *restrict truth)
{
	for (int i = 0; i < BLOCK_ROWS; i++)
		truth[i] = TRUTH_TRUE - from[i];
}

static void
decide_not(VectorExpression *node, VectorInput *input, uint8 *truth)
{
	negate_truth(vector_node_truth(node->args[0], input), truth);
}

static VectorExpression *
compile_bool(BoolExpr *expression, VectorScope *scope)
{
	VectorExpression *node = vector_node_create((Expr *) expression, scope, expression->args);

	node->is_cheap = true;
	for (int i = 0; i < node->nargs; i++)
		node->is_cheap = node->is_cheap && node->args[i]->is_cheap;
	switch (expression->boolop)
	{
		case AND_EXPR:
			node->decide = decide_and;
			break;
		case OR_EXPR:
			node->decide = decide_or;
			break;
		case NOT_EXPR:
			node->decide = decide_not;
			break;
	}
	return node;
}

VectorExpression *
vector_logic_compile_quals(List *quals, VectorScope *scope)
{
	VectorExpression *node = compile_bool((BoolExpr *) make_andclause(quals), scope);

	node->decide = decide_quals;
	/* by code they would be a plain AND */
	node->coded = 0;
	return node;
}

/* ---- IS NULL ------------------------------------------------------------------------------------ */

static void
decide_null(VectorExpression *node, VectorInput *input, uint8 *truth)
{
	const NullTest *test = (const NullTest *) node->expression;
	const Vector *values = vector_node_values(node->args[0], input);
	bool is_null = test->nulltesttype == IS_NULL;

	memset(truth, is_null ? TRUTH_FALSE : TRUTH_TRUE, BLOCK_ROWS);
	if (values->nulls == NULL)
		return;
	for (int word = 0; word < BLOCK_WORDS; word++)
	{
		uint64 bits = values->nulls[word];

		for (int i = 0; bits != 0 && i < 64; i++)
			truth[word * 64 + i] = ((bits >> i & 1) == (is_null ? 1 : 0)) << 1;
	}
}

/* ---- IS TRUE ------------------------------------------------------------------------------------ */

/* The outcomes that the test holds for. */
static uint8
get_tested(BoolTestType type, bool *negated)
{
	*negated = type == IS_NOT_TRUE || type == IS_NOT_FALSE || type == IS_NOT_UNKNOWN;
	switch (type)
	{
		case IS_TRUE:
		case IS_NOT_TRUE:
			return TRUTH_TRUE;
		case IS_FALSE:
		case IS_NOT_FALSE:
			return TRUTH_FALSE;
		case IS_UNKNOWN:
		case IS_NOT_UNKNOWN:
			return TRUTH_NULL;
	}
	pg_unreachable();
}

static void
decide_boolean(VectorExpression *node, VectorInput *input, uint8 *truth)
{
	const BooleanTest *test = (const BooleanTest *) node->expression;
	const uint8 *from = vector_node_truth(node->args[0], input);
	bool negated;
	uint8 tested = get_tested(test->booltesttype, &negated);

	for (int i = 0; i < BLOCK_ROWS; i++)
		truth[i] = (uint8) ((from[i] == tested) != negated) << 1;
}

VectorExpression *
vector_logic_compile(Expr *expression, VectorScope *scope)
{
	VectorExpression *node;

	if (IsA(expression, BoolExpr))
		return compile_bool((BoolExpr *) expression, scope);
	if (IsA(expression, BooleanTest))
	{
		node = vector_node_create(expression, scope, list_make1(((BooleanTest *) expression)->arg));
		node->decide = decide_boolean;
	}
	else
	{
		/* of a row it means all of its fields */
		if (((NullTest *) expression)->argisrow)
			return NULL;
		node = vector_node_create(expression, scope, list_make1(((NullTest *) expression)->arg));
		node->decide = decide_null;
		if (IsA(((NullTest *) expression)->arg, Var))
			node->coded = 0;
	}
	node->is_cheap = node->args[0]->is_cheap;
	return node;
}
