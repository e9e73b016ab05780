/*
 * vector_expression.h
 *		Expressions and conditions evaluated a batch at a time.
 *
 * Every expression compiles: what has no kernel is evaluated by the executor's ExprState
 * for the selected rows, inside of the batch.  The result is PostgreSQL's in value, type,
 * scale and error: a kernel that would raise an error (overflow, division by zero) leaves
 * the batch to the ExprState, which raises it with the right message for the right row.
 *
 * Rows are evaluated as core would: the right side of AND, OR, CASE and COALESCE only for
 * rows that need it, if it can fail.
 */
#ifndef COLUMNAR_VECTOR_EXPRESSION_H
#define COLUMNAR_VECTOR_EXPRESSION_H

#include "exec/vector/vector.h"

typedef struct VectorExpression VectorExpression;

/* What the expressions of one node share; lives as long as they do. */
typedef struct VectorScope
{
	PlanState *parent;			 /* its ps_ExprContext evaluates what has no kernel */
	Index varno;				 /* the relation whose columns the batch has */
	TupleTableSlot *slot;		 /* virtual, of that relation's columns: for the ExprState */
	MemoryContext context;		 /* lives as long as the expressions */
	struct VectorShared *shared; /* private: NULL at first */
} VectorScope;

/* Compiles in scope->context; never fails. The expression has no subplans, aggregates or volatile functions. */
extern VectorExpression *vector_expression_compile(Expr *expression, VectorScope *scope);

/* Each expression of a list, in its order. */
extern VectorExpression **vector_expression_compile_list(List *expressions, VectorScope *scope);

/*
 * The conditions of a scan, all of which must be true: one that is false or NULL for a row
 * keeps the next from being evaluated for it.  Faster than a filter for each of them.
 */
extern VectorExpression *vector_expression_compile_quals(List *quals, VectorScope *scope);

/* Parameters may have changed: what does not depend on rows is computed again when needed. */
extern void vector_expression_reset(VectorExpression *expression);

/*
 * The values for the input's selected rows.  Valid until the expression is evaluated
 * for another batch.  Booleans are VECTOR_INT of 0 and 1.
 */
extern Vector *vector_expression_evaluate(VectorExpression *expression, VectorInput *input);

/* Three-valued logic in a byte: AND is the smaller, OR the larger, NOT the difference to 2. */
#define TRUTH_FALSE 0
#define TRUTH_NULL 1
#define TRUTH_TRUE 2

/* The same of a condition; returns an array by position. */
extern const uint8 *vector_expression_truth(VectorExpression *expression, VectorInput *input);

/*
 * Writes the positions for which the condition is true to `into` (may be the input's own
 * selection); returns how many.  `into` has room for BLOCK_ROWS positions.
 */
extern uint32
vector_expression_filter(VectorExpression *expression, VectorInput *input, uint16 *into);

/* NULL if all of it runs in kernels; else the first part that does not, as text for EXPLAIN. */
extern Expr *vector_expression_scalar_part(const VectorExpression *expression);

#endif
