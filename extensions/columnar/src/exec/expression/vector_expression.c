/*
 * vector_expression.c
 *		Compiling expressions to trees of nodes, and asking them for values and truths.
 *
 * Nodes that cannot fail, and some others, are shared by all expressions of a scope that contain
 * them: what they computed for a batch is kept until the next.  Of the rest nothing is kept
 * but what depends on no row.  A shared node that is asked again for more rows of the batch
 * computes the rows of all requests, so that what was handed out stays right.
 */
#include "exec/expression/vector_expression_internal.h"

#include "access/sysattr.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

/* So many nodes are looked through for each one that is made. */
#define SHARED_MAX 256

bool
vector_power_of_ten(int32 digits, int128 *power)
{
	if (digits < 0 || digits > 38)
		return false;
	*power = 1;
	for (; digits > 0; digits -= Min(digits, VECTOR_POWERS_OF_TEN - 1))
		*power *= numeric_powers_of_ten[Min(digits, VECTOR_POWERS_OF_TEN - 1)];
	return true;
}

/* ---- arrays ------------------------------------------------------------------------------------- */

static void *
make_array(VectorExpression *node, Size size)
{
	return MemoryContextAllocZero(node->scope->context, size);
}

int64 *
vector_node_ints(VectorExpression *node)
{
	if (node->ints == NULL)
		node->ints = make_array(node, sizeof(int64) * BLOCK_ROWS);
	return node->ints;
}

static int128 *
get_wides(VectorExpression *node)
{
	if (node->wides == NULL)
		node->wides = make_array(node, sizeof(int128) * BLOCK_ROWS);
	return node->wides;
}

static double *
get_floats(VectorExpression *node)
{
	if (node->floats == NULL)
		node->floats = make_array(node, sizeof(double) * BLOCK_ROWS);
	return node->floats;
}

void
vector_node_use_exceptions(VectorExpression *node)
{
	if (node->starts != NULL)
		return;
	node->starts = make_array(node, sizeof(char *) * BLOCK_ROWS);
	node->lengths = make_array(node, sizeof(uint32) * BLOCK_ROWS);
}

/* No row keeps a pointer to bytes of an older batch. */
void
vector_node_use_bytes(VectorExpression *node)
{
	vector_node_use_exceptions(node);
	for (int i = 0; i < BLOCK_ROWS; i++)
		node->starts[i] = "";
	memset(node->lengths, 0, sizeof(uint32) * BLOCK_ROWS);
}

uint64 *
vector_node_clear_nulls(VectorExpression *node)
{
	if (node->nulls == NULL)
		node->nulls = make_array(node, sizeof(uint64) * BLOCK_WORDS);
	memset(node->nulls, 0, sizeof(uint64) * BLOCK_WORDS);
	return node->nulls;
}

uint64 *
vector_node_clear_exceptions(VectorExpression *node)
{
	if (node->exceptions == NULL)
		node->exceptions = make_array(node, sizeof(uint64) * BLOCK_WORDS);
	memset(node->exceptions, 0, sizeof(uint64) * BLOCK_WORDS);
	return node->exceptions;
}

uint64 *
vector_node_clear_padded(VectorExpression *node)
{
	if (node->padded == NULL)
		node->padded = make_array(node, sizeof(uint64) * BLOCK_WORDS);
	memset(node->padded, 0, sizeof(uint64) * BLOCK_WORDS);
	return node->padded;
}

Vector *
vector_node_begin(VectorExpression *node, VectorForm form)
{
	Vector *result = &node->result;

	memset(result, 0, sizeof(*result));
	result->type = &node->type;
	result->form = form;
	result->scale = -1;
	result->bits = VECTOR_BITS_UNKNOWN;
	switch (form)
	{
		case VECTOR_INT:
			result->ints = vector_node_ints(node);
			break;
		case VECTOR_WIDE:
			result->wides = get_wides(node);
			break;
		case VECTOR_FLOAT:
			result->floats = get_floats(node);
			break;
		case VECTOR_BYTES:
			vector_node_use_bytes(node);
			result->starts = node->starts;
			result->lengths = node->lengths;
			break;
		case VECTOR_CODES:
			elog(ERROR, "an expression has no dictionary of its own");
			break;
		case VECTOR_DATUM:
			if (node->datums == NULL)
				node->datums = make_array(node, sizeof(Datum) * BLOCK_ROWS);
			result->datums = node->datums;
			break;
	}
	return result;
}

void
vector_node_merge_nulls(VectorExpression *node, const Vector *first, const Vector *second)
{
	if (second == NULL || second->nulls == NULL || second->nulls == first->nulls)
		node->result.nulls = first->nulls;
	else if (first->nulls == NULL)
		node->result.nulls = second->nulls;
	else
	{
		uint64 *merged = vector_node_clear_nulls(node);

		for (int i = 0; i < BLOCK_WORDS; i++)
			merged[i] = first->nulls[i] | second->nulls[i];
		node->result.nulls = merged;
	}
}

uint16 *
vector_node_rows(VectorExpression *node, int list)
{
	if (node->rows[list] == NULL)
		node->rows[list] = make_array(node, sizeof(uint16) * BLOCK_ROWS);
	return node->rows[list];
}

MemoryContext
vector_node_memory(VectorExpression *node, const VectorInput *input)
{
	if (node->memory == NULL)
		node->memory = AllocSetContextCreate(node->scope->context, "columnar vector",
											 ALLOCSET_DEFAULT_SIZES);
	else if (node->memory_number != input->number)
		MemoryContextReset(node->memory);
	node->memory_number = input->number;
	return node->memory;
}

/* ---- truths ------------------------------------------------------------------------------------- */

void
vector_truth_mark_nulls(uint8 *truth, const uint64 *nulls)
{
	if (nulls == NULL)
		return;
	for (int word = 0; word < BLOCK_WORDS; word++)
	{
		uint64 bits = nulls[word];

		if (bits == PG_UINT64_MAX)
		{
			memset(truth + word * 64, TRUTH_NULL, 64);
			continue;
		}
		while (bits != 0)
		{
			truth[word * 64 + pg_rightmost_one_pos64(bits)] = TRUTH_NULL;
			bits &= bits - 1;
		}
	}
}

VECTOR_KERNEL static void
convert_to_truth(const int64 *restrict ints, uint8 *restrict truth)
{
	for (int i = 0; i < BLOCK_ROWS; i++)
		truth[i] = (uint8) (ints[i] != 0) << 1;
}

VECTOR_KERNEL static void
convert_from_truth(const uint8 *restrict truth, int64 *restrict ints)
{
	for (int i = 0; i < BLOCK_ROWS; i++)
		ints[i] = truth[i] >> 1;
}

/* A condition as a vector of booleans. */
static void
make_booleans(VectorExpression *node, const uint8 *truth)
{
	Vector *result = vector_node_begin(node, VECTOR_INT);
	uint64 *nulls = vector_node_clear_nulls(node);
	uint64 any = 0;

	convert_from_truth(truth, node->ints);
	for (int word = 0; word < BLOCK_WORDS; word++)
	{
		uint64 bits = 0;

		for (int i = 0; i < 64; i++)
			bits |= (uint64) (truth[word * 64 + i] & TRUTH_NULL) << i;
		nulls[word] = bits;
		any |= bits;
	}
	result->nulls = any ? nulls : NULL;
	result->bits = 1;
}

/* ---- what is known ------------------------------------------------------------------------------ */

static bool
is_known(const VectorMemo *memo, const VectorInput *input)
{
	if (!memo->known || memo->number != input->number)
		return false;
	if (memo->complete)
		return true;
	for (uint32 i = 0; i < input->nselected; i++)
		if (!vector_bit(memo->covered, input->selection[i]))
			return false;
	return true;
}

/* The rows asked for, and those that were asked for before. */
static VectorInput
add_covered(VectorExpression *node, const VectorMemo *memo, const VectorInput *input)
{
	uint64 wanted[BLOCK_WORDS];
	uint16 *rows;
	uint32 nrows = 0;

	if (!memo->known || memo->number != input->number)
		return *input;
	if (node->asked == NULL)
		node->asked = make_array(node, sizeof(uint16) * BLOCK_ROWS);
	rows = node->asked;
	memcpy(wanted, memo->covered, sizeof(wanted));
	for (uint32 i = 0; i < input->nselected; i++)
		vector_set_bit(wanted, input->selection[i]);
	for (uint32 row = 0; row < BLOCK_ROWS; row++)
		if (vector_bit(wanted, row))
			rows[nrows++] = row;
	return vector_input_narrow(input, rows, nrows);
}

static bool
is_complete_in(const VectorMemo *memo, const VectorInput *input)
{
	return memo->known && memo->complete && memo->number == input->number;
}

/* Did the node compute all rows of the batch? */
static bool
is_complete(const VectorExpression *node, const VectorInput *input)
{
	if (node->row_free || input->nselected == input->batch->nrows)
		return true;
	if (node->partial)
		return false;
	for (int i = 0; i < node->nargs; i++)
	{
		const VectorExpression *arg = node->args[i];

		if (!arg->row_free && !is_complete_in(&arg->values_memo, input) &&
			!is_complete_in(&arg->truth_memo, input))
			return false;
	}
	return true;
}

static void
remember(const VectorExpression *node, VectorMemo *memo, const VectorInput *input)
{
	memo->known = true;
	memo->number = input->number;
	memo->complete = is_complete(node, input);
	if (memo->complete || !node->is_reused)
		return;
	memset(memo->covered, 0, sizeof(memo->covered));
	for (uint32 i = 0; i < input->nselected; i++)
		vector_set_bit(memo->covered, input->selection[i]);
}

static void
compute_values(VectorExpression *node, VectorInput *input)
{
	node->partial = false;
	if (node->coded != 0 && vector_code_evaluate(node, input))
		return;
	if (node->evaluate != NULL)
		node->evaluate(node, input);
	else
	{
		make_booleans(node, vector_node_truth(node, input));
		node->partial = !node->truth_memo.complete;
	}
}

Vector *
vector_node_values(VectorExpression *node, VectorInput *input)
{
	VectorInput more;

	Assert(input->nselected > 0);
	check_stack_depth();
	if (node->row_free ? node->values_memo.known
					   : node->is_reused && is_known(&node->values_memo, input))
		return &node->result;
	more = node->is_reused ? add_covered(node, &node->values_memo, input) : *input;
	node->values_memo.known = false;
	compute_values(node, &more);
	remember(node, &node->values_memo, &more);
	return &node->result;
}

static void
compute_truth(VectorExpression *node, VectorInput *input)
{
	node->partial = false;
	if (node->coded != 0 && vector_code_decide(node, input, node->truth))
		return;
	if (node->decide != NULL)
		node->decide(node, input, node->truth);
	else
	{
		const Vector *values = vector_node_values(node, input);

		/* of a node with values the completeness is known */
		node->partial = !node->values_memo.complete;
		convert_to_truth(values->ints, node->truth);
		vector_truth_mark_nulls(node->truth, values->nulls);
	}
}

const uint8 *
vector_node_truth(VectorExpression *node, VectorInput *input)
{
	VectorInput more;

	Assert(input->nselected > 0);
	check_stack_depth();
	if (node->row_free ? node->truth_memo.known
					   : node->is_reused && is_known(&node->truth_memo, input))
		return node->truth;
	if (node->truth == NULL)
		node->truth = make_array(node, BLOCK_ROWS);
	more = node->is_reused ? add_covered(node, &node->truth_memo, input) : *input;
	node->truth_memo.known = false;
	compute_truth(node, &more);
	remember(node, &node->truth_memo, &more);
	return node->truth;
}

/* ---- compiling ---------------------------------------------------------------------------------- */

/* The only column that the expression needs, if its values may be dictionary-coded. */
static AttrNumber
find_coded_column(Expr *expression, const VectorScope *scope)
{
	Bitmapset *offsets = NULL;
	AttrNumber attribute = 0;

	if (scope->shared->entries != NULL || IsA(expression, Var))
		return 0;
	pull_varattnos((Node *) expression, scope->varno, &offsets);
	if (bms_membership(offsets) == BMS_SINGLETON)
		attribute = bms_singleton_member(offsets) + FirstLowInvalidHeapAttributeNumber;
	bms_free(offsets);
	if (attribute <= 0 || TupleDescAttr(scope->slot->tts_tupleDescriptor, attribute - 1)->attbyval)
		return 0;
	return attribute;
}

static bool
is_without_form(Oid type)
{
	char kind = get_typtype(type);

	return kind == TYPTYPE_COMPOSITE || kind == TYPTYPE_PSEUDO;
}

VectorExpression *
vector_node_create(Expr *expression, VectorScope *scope, const List *arguments)
{
	VectorExpression *node = palloc0(sizeof(VectorExpression));
	ListCell *cell;

	node->expression = expression;
	node->scope = scope;
	vector_type_init(&node->type, exprType((Node *) expression), exprTypmod((Node *) expression),
					 exprCollation((Node *) expression));
	node->holds_datums = is_without_form(node->type.typid);
	node->coded = find_coded_column(expression, scope);

	node->args = palloc(sizeof(VectorExpression *) * Max(list_length(arguments), 1));
	foreach(cell, arguments)
	{
		VectorExpression *arg = vector_node_compile(lfirst(cell), scope);

		node->args[node->nargs++] = arg;
		node->can_fail = node->can_fail || arg->can_fail;
	}
	return node;
}

bool
vector_call_match(Expr *expression, VectorCall *call)
{
	if (IsA(expression, OpExpr))
	{
		OpExpr *operation = (OpExpr *) expression;

		set_opfuncid(operation);
		call->function = operation->opfuncid;
		call->collation = operation->inputcollid;
		call->arguments = operation->args;
		return true;
	}
	if (IsA(expression, FuncExpr))
	{
		FuncExpr *function = (FuncExpr *) expression;

		call->function = function->funcid;
		call->collation = function->inputcollid;
		call->arguments = function->args;
		return !function->funcretset && !function->funcvariadic;
	}
	return false;
}

static bool
is_column(Expr *expression, const VectorScope *scope)
{
	Var *var = (Var *) expression;

	return IsA(expression, Var) && var->varno == scope->varno && var->varlevelsup == 0 &&
		   var->varattno > 0 && var->vartype != RECORDOID &&
		   var->varattno <= scope->slot->tts_tupleDescriptor->natts;
}

/* Functions that are kernels for certain of them; each returns NULL for what is not its. */
static VectorExpression *
compile_call(Expr *expression, VectorScope *scope)
{
	static VectorExpression *(*const compilers[])(Expr *, VectorScope *) = {
		vector_compare_compile, vector_numeric_compile,	 vector_arithmetic_compile,
		vector_float_compile,	vector_datetime_compile, vector_text_compile,
		vector_like_compile,	vector_hll_compile};
	VectorExpression *node = NULL;

	for (int i = 0; i < lengthof(compilers) && node == NULL; i++)
		node = compilers[i](expression, scope);
	return node;
}

/* A node with a kernel, or NULL. */
static VectorExpression *
compile_kernel(Expr *expression, VectorScope *scope)
{
	switch (nodeTag(expression))
	{
		case T_OpExpr:
		case T_FuncExpr:
			return compile_call(expression, scope);
		case T_RelabelType:
			return vector_leaf_compile_relabel(expression, ((RelabelType *) expression)->arg,
											   scope);
		case T_CoerceToDomain:
			if (compat_domain_has_constraints(((CoerceToDomain *) expression)->resulttype))
				return NULL;
			return vector_leaf_compile_relabel(expression, ((CoerceToDomain *) expression)->arg,
											   scope);
		case T_BoolExpr:
		case T_NullTest:
		case T_BooleanTest:
			return vector_logic_compile(expression, scope);
		case T_DistinctExpr:
			return vector_compare_compile(expression, scope);
		case T_ScalarArrayOpExpr:
			return vector_list_compile((ScalarArrayOpExpr *) expression, scope);
		case T_CaseExpr:
		case T_CoalesceExpr:
		case T_NullIfExpr:
		case T_MinMaxExpr:
			return vector_choice_compile(expression, scope);
		default:
			return NULL;
	}
}

/* A node for the expression that there is already, or NULL. */
static VectorExpression *
find_node(Expr *expression, const List *nodes)
{
	ListCell *cell;

	foreach(cell, nodes)
	{
		VectorExpression *node = lfirst(cell);

		if (equal(node->expression, expression))
		{
			node->is_reused = true;
			return node;
		}
	}
	return NULL;
}

VectorExpression *
vector_node_compile(Expr *expression, VectorScope *scope)
{
	VectorShared *shared = scope->shared;
	bool column = is_column(expression, scope);
	VectorExpression *node = find_node(expression, column ? shared->columns : shared->nodes);

	check_stack_depth();
	if (node != NULL)
		return node;
	if (column)
	{
		node = vector_leaf_compile_column((Var *) expression, scope);
		shared->columns = lappend(shared->columns, node);
		return node;
	}
	if (!contain_var_clause((Node *) expression))
		node = vector_leaf_compile_value(expression, scope);
	else
	{
		node = compile_kernel(expression, scope);
		if (node == NULL)
			node = vector_leaf_compile_scalar(expression, scope);
		else if (!node->can_fail || node->is_shareable)
			node->is_shared = true;
	}
	if (node->is_shared && list_length(shared->nodes) < SHARED_MAX)
		shared->nodes = lappend(shared->nodes, node);
	return node;
}

/* The scope as nodes know it; in the scope's context. */
static VectorScope *
prepare_scope(VectorScope *scope)
{
	if (scope->shared == NULL)
	{
		scope->shared = palloc0(sizeof(VectorShared));
		scope->shared->scope = *scope;
	}
	return &scope->shared->scope;
}

VectorExpression *
vector_expression_compile(Expr *expression, VectorScope *scope)
{
	MemoryContext caller = MemoryContextSwitchTo(scope->context);
	VectorExpression *node = vector_node_compile(expression, prepare_scope(scope));

	/* checks that its functions may be called */
	vector_leaf_prepare_scalar(node);
	MemoryContextSwitchTo(caller);
	return node;
}

VectorExpression **
vector_expression_compile_list(List *expressions, VectorScope *scope)
{
	VectorExpression **compiled = palloc(sizeof(VectorExpression *) *
										 Max(list_length(expressions), 1));
	ListCell *cell;

	foreach(cell, expressions)
		compiled[foreach_current_index(cell)] = vector_expression_compile(lfirst(cell), scope);
	return compiled;
}

VectorExpression *
vector_expression_compile_quals(List *quals, VectorScope *scope)
{
	MemoryContext caller;
	VectorExpression *node;

	if (list_length(quals) == 1)
		return vector_expression_compile(linitial(quals), scope);
	caller = MemoryContextSwitchTo(scope->context);
	node = vector_logic_compile_quals(quals, prepare_scope(scope));
	vector_leaf_prepare_scalar(node);
	MemoryContextSwitchTo(caller);
	return node;
}

/* ---- use ---------------------------------------------------------------------------------------- */

void
vector_expression_reset(VectorExpression *expression)
{
	expression->values_memo.known = false;
	expression->truth_memo.known = false;
	vector_code_forget(expression);
	vector_recall_forget(expression);
	if (expression->reset != NULL)
		expression->reset(expression);
	for (int i = 0; i < expression->nargs; i++)
		vector_expression_reset(expression->args[i]);
}

/* For no rows: arrays that may be read. */
static Vector *
make_empty(VectorExpression *node)
{
	vector_value_begin(node, 0);
	node->result.nulls = node->nulls;
	node->values_memo.known = false;
	return &node->result;
}

Vector *
vector_expression_evaluate(VectorExpression *expression, VectorInput *input)
{
	if (input->nselected == 0)
		return expression->is_shared && expression->values_memo.known ? &expression->result
																	  : make_empty(expression);
	return vector_node_values(expression, input);
}

const uint8 *
vector_expression_truth(VectorExpression *expression, VectorInput *input)
{
	if (expression->truth == NULL)
		expression->truth = make_array(expression, BLOCK_ROWS);
	return input->nselected == 0 ? expression->truth : vector_node_truth(expression, input);
}

/* ---- filter ------------------------------------------------------------------------------------- */

/* By 8 bits: the positions of those that are set. */
static uint16 bit_positions[256][8];

static void
init_bit_positions(void)
{
	for (int bits = 0; bits < 256; bits++)
	{
		int count = 0;

		for (int i = 0; i < 8; i++)
			if (bits & (1 << i))
				bit_positions[bits][count++] = i;
	}
}

/* 8 truths, the first in the lowest byte, to 8 bits: is it TRUE? */
static inline uint32
pack_truth(uint64 truth)
{
	return (uint32) ((((truth >> 1) & UINT64CONST(0x0101010101010101)) *
					  UINT64CONST(0x0102040810204080)) >>
					 56);
}

/* The positions below nrows, a block's whole selection, at which truth is TRUE. */
static uint32
select_dense(const uint8 *truth, uint32 nrows, uint16 *into)
{
	uint32 kept = 0;
	uint32 row = 0;

	if (bit_positions[1 << 1][0] == 0)
		init_bit_positions();
#ifndef WORDS_BIGENDIAN
	for (; row + 8 <= nrows; row += 8)
	{
		uint64 eight;
		uint64 positions[2];
		uint32 bits;

		memcpy(&eight, truth + row, sizeof(eight));
		bits = pack_truth(eight);
		/* four positions in a word; a sum of one does not reach the next */
		memcpy(positions, bit_positions[bits], sizeof(positions));
		positions[0] += row * UINT64CONST(0x0001000100010001);
		positions[1] += row * UINT64CONST(0x0001000100010001);
		memcpy(into + kept, positions, sizeof(positions));
		kept += pg_number_of_ones[bits];
	}
#endif
	for (; row < nrows; row++)
	{
		into[kept] = row;
		kept += truth[row] >> 1;
	}
	return kept;
}

uint32
vector_expression_filter(VectorExpression *expression, VectorInput *input, uint16 *into)
{
	const uint8 *truth;
	uint32 kept = 0;

	if (input->nselected == 0)
		return 0;
	truth = vector_node_truth(expression, input);
	if (input->nselected == input->batch->nrows)
		return select_dense(truth, input->nselected, into);
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint16 row = input->selection[i];

		into[kept] = row;
		kept += truth[row] >> 1;
	}
	return kept;
}

Expr *
vector_expression_scalar_part(const VectorExpression *expression)
{
	Expr *part = NULL;

	if (expression->row_free)
		return NULL;
	if (expression->is_scalar)
		return expression->expression;
	for (int i = 0; i < expression->nargs && part == NULL; i++)
		part = vector_expression_scalar_part(expression->args[i]);
	return part;
}
