/*
 * prune_test.h
 *		What a qual says about the bounds of one column: clauses as tests of zone maps
 *		and Bloom filters.
 *
 * A test answers one question: may the clause be true for some row of these
 * bounds?  Every doubt is a yes.  prune_test.c decides which clauses have a
 * test (a pure decision on the expression); prune.c gets the values and asks.
 */
#ifndef COLUMNAR_PRUNE_TEST_H
#define COLUMNAR_PRUNE_TEST_H

#include "store/value/column_type.h"

#include "nodes/execnodes.h"
#include "nodes/pg_list.h"

typedef enum PruneKind
{
	PRUNE_AND,
	PRUNE_OR,
	PRUNE_COMPARE, /* column op value, or column op ANY (array) */
	PRUNE_PREFIX,  /* column LIKE 'prefix%', column ^@ 'prefix' */
	PRUNE_BOOLEAN, /* column is true (or false) */
	PRUNE_NULL,	   /* column IS NULL */
	PRUNE_NOT_NULL /* column IS NOT NULL */
} PruneKind;

/* As what bounds and values are compared. */
typedef enum PruneForm
{
	PRUNE_INT,	 /* int64 */
	PRUNE_FLOAT, /* float8, NaN largest */
	PRUNE_BYTES, /* memcmp, bounds may be cut */
	PRUNE_DATUM	 /* the operator family's comparison function */
} PruneForm;

/* A comparison value; which members count depends on the form. */
typedef struct PruneValue
{
	int64 number;
	double real;
	const char *bytes;
	uint32 length;
	Datum datum;
	uint64 hash; /* if the test has a hash function */
} PruneValue;

typedef struct PruneTest
{
	PruneKind kind;
	List *parts; /* PRUNE_AND, PRUNE_OR: PruneTest */
	bool whole;	 /* says all that the clause says: where it is true, so is the clause */

	AttrNumber attribute;
	ColumnType type;
	bool truth; /* PRUNE_BOOLEAN: the value looked for */

	/* comparisons and prefixes */
	Expr *value;	 /* has no Var of the relation, is not volatile */
	bool is_array;	 /* value is an array: ANY of it */
	bool is_pattern; /* PRUNE_PREFIX: a LIKE pattern, not the prefix itself */
	int strategy;	 /* btree strategy, column on the left */
	PruneForm form;
	Oid collation;	  /* the clause's */
	Oid value_type;	  /* the operator's right input type (may be polymorphic) */
	FmgrInfo compare; /* PRUNE_DATUM: column with value */
	FmgrInfo hash;	  /* extended hash function of value_type; fn_oid invalid: no Bloom filter */

	/* the values of this execution: see prune.c */
	ExprState *state;
	MemoryContext scratch; /* for what comparison functions leak */
	PruneValue *values;	   /* ascending, but for PRUNE_DATUM */
	uint32 nvalues;
} PruneTest;

/*
 * The test of a clause on relation `varno` with this descriptor; NULL if nothing can
 * be concluded from bounds.  Without execution state.  Also works for clauses of
 * the planner, where values can be Vars of other relations.
 */
extern PruneTest *prune_test_make(Node *clause, Index varno, TupleDesc descriptor);

/* The one attribute that the test is about; 0 if there are several. */
extern AttrNumber prune_test_attribute(const PruneTest *test);

#endif
