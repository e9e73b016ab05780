/*
 * vector_choice.c
 *		CASE, COALESCE, NULLIF, GREATEST and LEAST.
 *
 * Each branch is evaluated for the rows that take it and for no others, and its values
 * are copied into the result.  Numerics of branches with different scales keep them: the
 * result has the largest, one other is padded (see vector.h), more of them are exceptions.
 */
#include "exec/expression/vector_expression_internal.h"

#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"
#include "utils/fmgroids.h"

/* Rows that no branch took yet, and those that one did. */
typedef struct ChoiceRows
{
	uint32 nrows;
	uint16 *rows;
	uint16 *taken;
} ChoiceRows;

static ChoiceRows
begin_choice(VectorExpression *node, const VectorInput *input)
{
	ChoiceRows remaining = {.nrows = input->nselected,
							.rows = vector_node_rows(node, 0),
							.taken = vector_node_rows(node, 1)};

	memcpy(remaining.rows, input->selection, sizeof(uint16) * input->nselected);
	vector_value_begin(node, -1);
	return remaining;
}

/* ---- results ------------------------------------------------------------------------------------ */

/* Which rows a branch took. */
typedef struct Branch
{
	VectorExpression *expression;
	const uint16 *rows;
	uint32 nrows;
} Branch;

/* Constants of numeric come last, so that what is computed needs no change of scale for them. */
static bool
is_deferred(const VectorExpression *node, const VectorExpression *branch)
{
	return node->type.form == FORM_NUMERIC && !node->holds_datums && branch->row_free;
}

/* The result gets the scale of the values, if that is larger; and so do the rows it holds already. */
static void
raise_scale(VectorExpression *node, const Vector *values, const Branch *branches, int nbranches)
{
	Vector *result = &node->result;
	uint16 rows[BLOCK_ROWS];
	uint32 nrows = 0;

	if ((values->form != VECTOR_INT && values->form != VECTOR_WIDE) ||
		values->scale <= result->scale)
		return;
	for (int i = 0; i < nbranches; i++)
	{
		if (is_deferred(node, branches[i].expression))
			continue;
		memcpy(rows + nrows, branches[i].rows, sizeof(uint16) * branches[i].nrows);
		nrows += branches[i].nrows;
	}
	if (nrows == 0)
		result->scale = values->scale;
	else
		vector_value_raise_scale(node, rows, nrows, values->scale);
}

/* The values of a branch for its rows; those of the branches before are in the result. */
static void
copy_branch(VectorExpression *node, VectorInput *input, const Branch *branches, int number)
{
	const Branch *branch = &branches[number];
	VectorInput narrow = vector_input_narrow(input, branch->rows, branch->nrows);
	const Vector *values = vector_node_values(branch->expression, &narrow);

	if (node->type.form == FORM_NUMERIC && !node->holds_datums)
		raise_scale(node, values, branches, number);
	vector_value_copy(node, input, branch->rows, branch->nrows, values);
}

/* The same for the constants among the branches, when all others are there: first the scale. */
static void
copy_constants(VectorExpression *node, VectorInput *input, const Branch *branches, int nbranches)
{
	for (int copying = 0; copying <= 1; copying++)
	{
		for (int i = 0; i < nbranches; i++)
		{
			VectorInput narrow = vector_input_narrow(input, branches[i].rows, branches[i].nrows);
			const Vector *values;

			if (!is_deferred(node, branches[i].expression))
				continue;
			values = vector_node_values(branches[i].expression, &narrow);
			if (copying)
				vector_value_copy(node, input, narrow.selection, narrow.nselected, values);
			else
				raise_scale(node, values, branches, nbranches);
		}
	}
}

static void
finish_choice(VectorExpression *node)
{
	if (node->type.form == FORM_NUMERIC && !node->holds_datums && node->result.scale < 0)
		node->result.scale = 0;
	node->partial = true;
}

/* ---- CASE --------------------------------------------------------------------------------------- */

/* args: condition, result, condition, result ... result */
static void
evaluate_case(VectorExpression *node, VectorInput *input)
{
	int narms = node->nargs / 2;
	Branch *branches = palloc(sizeof(Branch) * (narms + 1));
	int nbranches = 0;
	ChoiceRows remaining = begin_choice(node, input);
	uint16 *taken = remaining.taken;
	uint32 ntaken = 0;

	for (int arm = 0; arm <= narms && remaining.nrows > 0; arm++)
	{
		Branch *branch = &branches[nbranches];
		uint32 first = ntaken;

		if (arm == narms)
		{
			memcpy(taken + ntaken, remaining.rows, sizeof(uint16) * remaining.nrows);
			ntaken += remaining.nrows;
		}
		else
		{
			VectorInput narrow = vector_input_narrow(input, remaining.rows, remaining.nrows);
			const uint8 *truth = vector_node_truth(node->args[2 * arm], &narrow);
			uint32 left = 0;

			for (uint32 i = 0; i < narrow.nselected; i++)
			{
				uint16 row = remaining.rows[i];
				bool is_true = truth[row] == TRUTH_TRUE;

				taken[ntaken] = row;
				remaining.rows[left] = row;
				ntaken += is_true;
				left += !is_true;
			}
			remaining.nrows = left;
		}
		if (ntaken == first)
			continue;
		branch->expression = node->args[Min(2 * arm + 1, node->nargs - 1)];
		branch->rows = taken + first;
		branch->nrows = ntaken - first;
		if (!is_deferred(node, branch->expression))
			copy_branch(node, input, branches, nbranches);
		nbranches++;
	}
	copy_constants(node, input, branches, nbranches);
	pfree(branches);
	finish_choice(node);
}

/* Puts the argument of CASE x WHEN ... in the place of its placeholders. */
static Node *
replace_placeholders(Node *tree, void *argument)
{
	if (tree == NULL)
		return NULL;
	if (IsA(tree, CaseTestExpr))
		return (Node *) copyObject((Expr *) argument);
	return expression_tree_mutator(tree, replace_placeholders, argument);
}

/* Are there placeholders of something within? */
static bool
has_own_placeholders(Node *tree, void *unused)
{
	if (tree == NULL)
		return false;
	if (IsA(tree, ArrayCoerceExpr) || (IsA(tree, CaseExpr) && ((CaseExpr *) tree)->arg != NULL))
		return true;
	return expression_tree_walker(tree, has_own_placeholders, unused);
}

static bool
is_case_test(Node *tree, void *unused)
{
	if (tree == NULL)
		return false;
	return IsA(tree, CaseTestExpr) || expression_tree_walker(tree, is_case_test, unused);
}

static VectorExpression *
compile_case(CaseExpr *expression, VectorScope *scope)
{
	List *arguments = NIL;
	VectorExpression *node;
	ListCell *cell;

	foreach(cell, expression->args)
	{
		CaseWhen *arm = lfirst_node(CaseWhen, cell);
		Node *condition = (Node *) arm->expr;

		if (expression->arg != NULL)
		{
			if (has_own_placeholders(condition, NULL))
				return NULL;
			condition = replace_placeholders(condition, expression->arg);
		}
		/* a placeholder of an outer CASE or of a domain's check means something we do not know */
		if (is_case_test(condition, NULL) && expression->arg == NULL)
			return NULL;
		arguments = lappend(arguments, condition);
		arguments = lappend(arguments, arm->result);
	}
	arguments = lappend(arguments, expression->defresult);
	node = vector_node_create((Expr *) expression, scope, arguments);
	node->evaluate = evaluate_case;
	return node;
}

/* ---- COALESCE ----------------------------------------------------------------------------------- */

static void
evaluate_coalesce(VectorExpression *node, VectorInput *input)
{
	ChoiceRows remaining = begin_choice(node, input);

	for (int i = 0; i < node->nargs && remaining.nrows > 0; i++)
	{
		VectorInput narrow = vector_input_narrow(input, remaining.rows, remaining.nrows);
		const Vector *values = vector_node_values(node->args[i], &narrow);
		uint16 *taken = remaining.taken;
		uint32 ntaken = 0;
		uint32 left = 0;

		for (uint32 j = 0; j < narrow.nselected; j++)
		{
			uint16 row = remaining.rows[j];
			bool is_null = vector_is_null(values, row);

			taken[ntaken] = row;
			remaining.rows[left] = row;
			ntaken += !is_null;
			left += is_null;
		}
		if (node->type.form == FORM_NUMERIC && node->result.scale < 0 && ntaken > 0 &&
			(values->form == VECTOR_INT || values->form == VECTOR_WIDE))
			node->result.scale = values->scale;
		vector_value_copy(node, input, taken, ntaken, values);
		remaining.nrows = left;
	}
	for (uint32 i = 0; i < remaining.nrows; i++)
		vector_value_set_null(node, remaining.rows[i]);
	finish_choice(node);
}

/* ---- NULLIF ------------------------------------------------------------------------------------- */

/* args: the value, and whether it is equal to the other */
static void
evaluate_nullif(VectorExpression *node, VectorInput *input)
{
	const uint8 *equal = vector_node_truth(node->args[1], input);
	const Vector *values = vector_node_values(node->args[0], input);
	uint64 *nulls = vector_node_clear_nulls(node);

	node->result = *values;
	node->result.type = &node->type;
	if (values->nulls != NULL)
		memcpy(nulls, values->nulls, sizeof(uint64) * BLOCK_WORDS);
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];

		if (equal[row] == TRUTH_TRUE)
			vector_set_bit(nulls, row);
	}
	node->result.nulls = nulls;
	node->result.constant = false;
	node->partial = true;
}

static VectorExpression *
compile_nullif(NullIfExpr *expression, VectorScope *scope)
{
	OpExpr *equality = makeNode(OpExpr);
	VectorExpression *node;

	set_opfuncid((OpExpr *) expression);
	*equality = *(OpExpr *) expression;
	NodeSetTag(equality, T_OpExpr);
	equality->opresulttype = BOOLOID;
	node = vector_node_create((Expr *) expression, scope,
							  list_make2(linitial(expression->args), equality));
	if (node->type.form != node->args[0]->type.form ||
		node->holds_datums != node->args[0]->holds_datums)
		return NULL;
	node->evaluate = evaluate_nullif;
	return node;
}

/* ---- GREATEST, LEAST ---------------------------------------------------------------------------- */

/* Is the value of another argument to be taken for the row? */
static inline bool
is_better(const VectorExpression *node, const Vector *values, uint32 row, bool greatest)
{
	if (node->type.form == FORM_FLOAT)
	{
		double a = node->floats[row];
		double b = values->floats[row];

		if (a != a || b != b)
			return greatest ? a == a : b == b;
		return greatest ? b > a : b < a;
	}
	return greatest ? values->ints[row] > node->ints[row] : values->ints[row] < node->ints[row];
}

static void
evaluate_extreme(VectorExpression *node, VectorInput *input)
{
	bool greatest = ((const MinMaxExpr *) node->expression)->op == IS_GREATEST;
	uint64 *absent;

	vector_value_begin(node, -1);
	absent = node->nulls;
	memset(absent, 0xff, sizeof(uint64) * BLOCK_WORDS);
	for (int i = 0; i < node->nargs; i++)
	{
		const Vector *values = vector_node_values(node->args[i], input);

		for (uint32 j = 0; j < input->nselected; j++)
		{
			uint32 row = input->selection[j];

			if (vector_is_null(values, row))
				continue;
			if (!vector_bit(absent, row) && !is_better(node, values, row, greatest))
				continue;
			absent[row >> 6] &= ~(UINT64CONST(1) << (row & 63));
			if (node->type.form == FORM_FLOAT)
				node->floats[row] = values->floats[row];
			else
				node->ints[row] = values->ints[row];
		}
	}
	node->result.nulls = absent;
	node->partial = true;
}

/* Types whose order is that of the integers or floats that hold them. */
static VectorExpression *
compile_extreme(MinMaxExpr *expression, VectorScope *scope)
{
	VectorExpression *node = vector_node_create((Expr *) expression, scope, expression->args);

	if (node->type.zone != ZONE_INT && node->type.zone != ZONE_FLOAT)
		return NULL;
	for (int i = 0; i < node->nargs; i++)
		if (node->args[i]->type.typid != node->type.typid)
			return NULL;
	node->evaluate = evaluate_extreme;
	return node;
}

VectorExpression *
vector_choice_compile(Expr *expression, VectorScope *scope)
{
	VectorExpression *node;

	switch (nodeTag(expression))
	{
		case T_CaseExpr:
			return compile_case((CaseExpr *) expression, scope);
		case T_CoalesceExpr:
			node = vector_node_create(expression, scope, ((CoalesceExpr *) expression)->args);
			node->evaluate = evaluate_coalesce;
			return node;
		case T_NullIfExpr:
			return compile_nullif((NullIfExpr *) expression, scope);
		case T_MinMaxExpr:
			return compile_extreme((MinMaxExpr *) expression, scope);
		default:
			return NULL;
	}
}
