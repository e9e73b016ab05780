/*
 * vector_expression_internal.h
 *		What the kernels of expressions share: the tree of nodes that an expression compiles to.
 *
 *		vector_expression.c			compiling, evaluating, what is kept between calls, filters
 *		vector_leaf.c				columns, values that do not depend on rows, ExprState
 *		vector_value.c				results that come row by row
 *		vector_code.c				once per code of a dictionary in place of once per row
 *		vector_recall.c				once per value that comes again, of functions without kernel
 *		vector_compare.c			comparisons
 *		vector_compare_numeric.c	of numerics
 *		vector_compare_bytes.c		of text, bytea, uuid
 *		vector_logic.c				AND, OR, NOT, IS
 *		vector_list.c				IN, = ANY
 *		vector_choice.c				CASE, COALESCE, NULLIF, GREATEST, LEAST
 *		vector_arithmetic.c			integers, dates plus days
 *		vector_float.c				float4, float8
 *		vector_numeric.c			numeric
 *		vector_datetime.c			extract, date_trunc, casts of dates, intervals
 *		vector_text.c				substring, length ...
 *		vector_like.c				LIKE
 *		vector_hll.c				hashes of the extension postgresql-hll
 *
 * A node's evaluate() fills node->result, decide() a truth array.  Either may compute whole
 * blocks, or the selected rows alone and then sets node->partial.  Children are asked
 * through vector_node_values() and vector_node_truth(), always for at least one row, and if
 * they can fail only for rows that core would evaluate them for.
 *
 * Arrays of a node have BLOCK_ROWS entries, start as zeros and are reused by every batch:
 * what is in rows that were not computed is an older value.  Bytes of values live in the
 * node's memory until the next batch.
 */
#ifndef COLUMNAR_VECTOR_EXPRESSION_INTERNAL_H
#define COLUMNAR_VECTOR_EXPRESSION_INTERNAL_H

#include "exec/expression/vector_expression.h"

#include "nodes/makefuncs.h"
#include "nodes/primnodes.h"

#include "store/codec/numeric_codec.h"

/* For which rows of which batch something is known. */
typedef struct VectorMemo
{
	bool known;
	bool complete; /* for all rows */
	uint64 number; /* of the batch */
	uint64 covered[BLOCK_WORDS];
} VectorMemo;

typedef struct VectorScalar VectorScalar;
typedef struct VectorCodes VectorCodes;
typedef struct VectorRecall VectorRecall;
typedef struct VectorScaled VectorScaled;

struct VectorExpression
{
	Expr *expression;
	VectorScope *scope;
	ColumnType type;
	void (*evaluate)(VectorExpression *node, VectorInput *input);
	/* conditions only; fills truth[] */
	void (*decide)(VectorExpression *node, VectorInput *input, uint8 *truth);
	/* forgets what depends on parameters; may be NULL */
	void (*reset)(VectorExpression *node);

	bool row_free;	   /* the same value for all rows */
	bool can_fail;	   /* evaluating it may raise an error */
	bool is_cheap;	   /* a ns per row or so, over whole blocks */
	bool is_scalar;	   /* has no kernel */
	bool holds_datums; /* a type that has no other form: composites and the like */
	bool is_shareable; /* the kernel's results have one representation, however often it is asked */
	bool is_shared;	   /* found again by expressions that contain it */
	bool is_reused;	   /* and was: may be asked more than once per batch, its values are kept */
	bool partial;	   /* set by evaluate() and decide(): only the selected rows were computed */
	AttrNumber coded;  /* the only column it needs, if that may be dictionary-coded; else 0 */

	int nargs;
	VectorExpression **args;
	void *details; /* of the kernel */
	VectorScalar *scalar;
	VectorCodes *codes;
	VectorRecall *recall;
	VectorScaled *scaled[2]; /* arguments that are numerics in bytes, as mantissas */

	Vector result;
	uint8 *truth;
	uint16 *asked; /* rows of all requests for this batch */
	VectorMemo values_memo;
	VectorMemo truth_memo;

	/* arrays for results, made at first use */
	int64 *ints;
	int128 *wides;
	double *floats;
	const char **starts;
	uint32 *lengths;
	Datum *datums;
	uint64 *nulls;
	uint64 *exceptions;
	uint64 *padded;
	uint16 *rows[2];	  /* lists of rows: on the stack they would add up in deep expressions */
	MemoryContext memory; /* of one batch */
	uint64 memory_number;
};

/* What all expressions of a scope share. */
typedef struct VectorShared
{
	VectorScope scope; /* the caller's may go away */
	List *columns;
	List *nodes; /* others that may be used by several expressions */
	ExprContext *econtext;
	/* nodes that are evaluated for entries of a dictionary: their only column's values */
	const Vector *entries;
} VectorShared;

/* ---- nodes (vector_expression.c) ---------------------------------------------------------------- */

extern VectorExpression *vector_node_compile(Expr *expression, VectorScope *scope);

/* A node with compiled arguments; the caller sets evaluate() or decide() and what differs. */
extern VectorExpression *
vector_node_create(Expr *expression, VectorScope *scope, const List *arguments);

extern Vector *vector_node_values(VectorExpression *node, VectorInput *input);
extern const uint8 *vector_node_truth(VectorExpression *node, VectorInput *input);

/* Starts node->result anew in this form, with arrays. */
extern Vector *vector_node_begin(VectorExpression *node, VectorForm form);
extern int64 *vector_node_ints(VectorExpression *node);
/* starts[] and lengths[]; every row points to something. */
extern void vector_node_use_bytes(VectorExpression *node);
/* The same arrays for exceptions, which are looked at only where there is one: not cleared. */
extern void vector_node_use_exceptions(VectorExpression *node);
/* A bitmap of the node with all bits cleared. */
extern uint64 *vector_node_clear_nulls(VectorExpression *node);
extern uint64 *vector_node_clear_exceptions(VectorExpression *node);
extern uint64 *vector_node_clear_padded(VectorExpression *node);
/* result.nulls = NULLs of one or both; `second` may be NULL. */
extern void
vector_node_merge_nulls(VectorExpression *node, const Vector *first, const Vector *second);
/* One of two lists of rows that the kernel may use while it evaluates. */
extern uint16 *vector_node_rows(VectorExpression *node, int list);
/* Memory of the values of this batch. */
extern MemoryContext vector_node_memory(VectorExpression *node, const VectorInput *input);

/* Is it worth computing the selected rows only? */
static inline bool
vector_input_is_sparse(const VectorInput *input)
{
	return input->nselected < BLOCK_ROWS / 4;
}

/* The same batch with other rows. */
static inline VectorInput
vector_input_narrow(const VectorInput *input, const uint16 *selection, uint32 nselected)
{
	VectorInput narrow = *input;

	narrow.selection = selection;
	narrow.nselected = nselected;
	return narrow;
}

static inline void
vector_set_bit(uint64 *bits, uint32 row)
{
	bits[row >> 6] |= UINT64CONST(1) << (row & 63);
}

/* truth = NULL where there is a bit. */
extern void vector_truth_mark_nulls(uint8 *truth, const uint64 *nulls);

/* A call of a function or an operator. */
typedef struct VectorCall
{
	Oid function;
	Oid collation;
	List *arguments;
} VectorCall;

extern bool vector_call_match(Expr *expression, VectorCall *call);

/* ---- leaves (vector_leaf.c) --------------------------------------------------------------------- */

/* The values of a column that expressions know by this attribute number. */
extern void vector_leaf_column(const VectorInput *input, AttrNumber attribute, Vector *into);

extern VectorExpression *vector_leaf_compile_column(Var *var, VectorScope *scope);
extern VectorExpression *vector_leaf_compile_value(Expr *expression, VectorScope *scope);
extern VectorExpression *
vector_leaf_compile_relabel(Expr *expression, Expr *argument, VectorScope *scope);
extern VectorExpression *vector_leaf_compile_scalar(Expr *expression, VectorScope *scope);

/* evaluate() by ExprState, of any node: for rows that its kernel cannot do. */
extern void vector_leaf_evaluate_scalar(VectorExpression *node, VectorInput *input);
/* The same for a condition. */
extern void vector_leaf_decide_scalar(VectorExpression *node, VectorInput *input, uint8 *truth);
/* Makes the ExprState, which checks permissions. */
extern void vector_leaf_prepare_scalar(VectorExpression *node);

/* ---- values of rows (vector_value.c) ------------------------------------------------------------ */

/* Starts a result whose rows are stored one by one.  Of numerics `scale` becomes mantissas; -1: the first one's. */
extern void vector_value_begin(VectorExpression *node, int32 scale);
/* Stores a datum for a row; what it points to is copied. */
extern void vector_value_store(VectorExpression *node, VectorInput *input, uint32 row, Datum value,
							   bool isnull);
/* Copies rows of another vector of the same type; bytes are borrowed. */
extern void vector_value_copy(VectorExpression *node, VectorInput *input, const uint16 *selection,
							  uint32 nselected, const Vector *from);
extern void vector_value_set_null(VectorExpression *node, uint32 row);
/*
 * Prepares a result of numerics for values of a larger scale than it has: brings the mantissas
 * of these rows to it.  Does nothing where that is impossible.
 */
extern void vector_value_raise_scale(VectorExpression *node, const uint16 *selection,
									 uint32 nselected, int32 scale);

/* ---- by code (vector_code.c) -------------------------------------------------------------------- */

/* Fills result or truth[], if the node's only column is dictionary-coded in this batch. */
extern bool vector_code_evaluate(VectorExpression *node, VectorInput *input);
extern bool vector_code_decide(VectorExpression *node, VectorInput *input, uint8 *truth);
extern void vector_code_forget(VectorExpression *node);

/* ---- by value (vector_recall.c) ----------------------------------------------------------------- */

/* Before and after a batch, whose column it is; are results kept? */
extern bool vector_recall_begin(VectorExpression *node, const Vector *column);
extern void vector_recall_end(VectorExpression *node, uint32 nrows);
/* The result of the value in a row, if it is known. */
extern bool vector_recall_find(VectorExpression *node, const Vector *column, uint32 row,
							   Datum *value, bool *isnull);
extern void vector_recall_keep(VectorExpression *node, const Vector *column, uint32 row,
							   Datum value, bool isnull);
extern void vector_recall_forget(VectorExpression *node);

/* ---- kernels: NULL if there is none for the expression ------------------------------------------ */

extern VectorExpression *vector_compare_compile(Expr *expression, VectorScope *scope);
extern VectorExpression *vector_logic_compile(Expr *expression, VectorScope *scope);
/* Several conditions that all must be true: see vector_expression_compile_quals(). */
extern VectorExpression *vector_logic_compile_quals(List *quals, VectorScope *scope);
extern VectorExpression *vector_list_compile(ScalarArrayOpExpr *expression, VectorScope *scope);
extern VectorExpression *vector_choice_compile(Expr *expression, VectorScope *scope);
extern VectorExpression *vector_arithmetic_compile(Expr *expression, VectorScope *scope);
extern VectorExpression *vector_float_compile(Expr *expression, VectorScope *scope);
extern VectorExpression *vector_numeric_compile(Expr *expression, VectorScope *scope);
extern VectorExpression *vector_datetime_compile(Expr *expression, VectorScope *scope);
extern VectorExpression *vector_text_compile(Expr *expression, VectorScope *scope);
extern VectorExpression *vector_like_compile(Expr *expression, VectorScope *scope);
extern VectorExpression *vector_hll_compile(Expr *expression, VectorScope *scope);

/* ---- comparisons (vector_compare*.c) ------------------------------------------------------------ */

typedef enum VectorOrder
{
	ORDER_EQ,
	ORDER_NE,
	ORDER_LT,
	ORDER_LE,
	ORDER_GT,
	ORDER_GE
} VectorOrder;

/* How values of a comparison are held and compared. */
typedef enum VectorFamily
{
	COMPARE_INT,
	COMPARE_FLOAT,
	COMPARE_NUMERIC,
	COMPARE_TEXT,	 /* bytes, in a collation */
	COMPARE_TRIMMED, /* character(n): the same without trailing blanks */
	COMPARE_BYTES,	 /* bytes, in their own order */
	COMPARE_DATE_TIMESTAMP,
	COMPARE_TIMESTAMP_DATE,
	COMPARE_DATE_TIMESTAMPTZ,
	COMPARE_TIMESTAMPTZ_DATE,
	COMPARE_TIMESTAMP_TIMESTAMPTZ,
	COMPARE_TIMESTAMPTZ_TIMESTAMP
} VectorFamily;

/* Finds the comparison that a function is. */
extern bool vector_compare_find(Oid function, VectorFamily *family, VectorOrder *order);
/* Can it be computed under this collation? */
extern bool vector_compare_has_kernel(VectorFamily family, VectorOrder order, Oid collation);

/* left op right <=> right vector_order_swap(op) left */
static inline VectorOrder
vector_order_swap(VectorOrder order)
{
	static const VectorOrder swapped[] = {ORDER_EQ, ORDER_NE, ORDER_GT,
										  ORDER_GE, ORDER_LT, ORDER_LE};

	return swapped[order];
}

/* Does a comparison with this outcome (< 0, 0, > 0) satisfy the operator? */
static inline bool
vector_order_holds(VectorOrder order, int outcome)
{
	switch (order)
	{
		case ORDER_EQ:
			return outcome == 0;
		case ORDER_NE:
			return outcome != 0;
		case ORDER_LT:
			return outcome < 0;
		case ORDER_LE:
			return outcome <= 0;
		case ORDER_GT:
			return outcome > 0;
		case ORDER_GE:
			return outcome >= 0;
	}
	pg_unreachable();
}

/*
 * values op bound, where the bound is `floor`, or if not exact something between it and
 * the next integer.  All of these write truth[] without regard to NULLs, and return false if
 * they wrote for the selected rows only.
 */
extern bool vector_compare_bound(const int64 *values, VectorOrder order, int128 floor, bool exact,
								 const VectorInput *input, uint8 *truth);
extern bool vector_compare_ints(const int64 *left, const int64 *right, VectorOrder order,
								const VectorInput *input, uint8 *truth);
extern bool vector_compare_numerics(VectorExpression *node, Vector *left, Vector *right,
									VectorOrder order, VectorInput *input, uint8 *truth);
extern bool vector_compare_bytes(const Vector *left, const Vector *right, VectorFamily family,
								 VectorOrder order, const VectorInput *input, uint8 *truth);

/* Length without the trailing blanks of a character(n). */
static inline uint32
vector_trim(const char *bytes, uint32 length)
{
	while (length > 0 && bytes[length - 1] == ' ')
		length--;
	return length;
}

/* ---- numbers ------------------------------------------------------------------------------------ */

/* So many numeric_powers_of_ten are int64. */
#define VECTOR_POWERS_OF_TEN 19

/* Whole blocks (vector_arithmetic.c); the caller knows that nothing overflows. */
extern void
vector_add_blocks(const int64 *restrict a, const int64 *restrict b, int64 *restrict into);
extern void
vector_subtract_blocks(const int64 *restrict a, const int64 *restrict b, int64 *restrict into);
extern void
vector_multiply_blocks(const int64 *restrict a, const int64 *restrict b, int64 *restrict into);

/* 10 ^ digits; false if it passes int128. */
extern bool vector_power_of_ten(int32 digits, int128 *power);

/*
 * A numeric's values as VECTOR_INT or VECTOR_WIDE, with exceptions.  Those in bytes are
 * converted for the selected rows into memory of the node, whose argument they are.
 */
extern Vector *
vector_numeric_scale(VectorExpression *node, int argument, Vector *vector, VectorInput *input);

/*
 * Are the values of all selected rows that are not NULL between low and high?  Looks at
 * whole blocks first.
 */
extern bool vector_are_between(const int64 *values, const uint64 *nulls, const VectorInput *input,
							   int64 low, int64 high);

/* A mantissa that is no exception. */
static inline int128
vector_mantissa(const Vector *vector, uint32 row)
{
	return vector->form == VECTOR_WIDE ? vector->wides[row] : (int128) vector->ints[row];
}

#endif
