/*
 * prune_test.c
 *		Which clauses can be decided by bounds: see prune_test.h.
 *
 * A comparison qualifies if its operator belongs to the default btree operator
 * family of the column's type, which is the order that zone maps are made in, and
 * if all functions it takes are immutable (date < timestamptz depends on the
 * TimeZone).  Where column and value differ in type, only families count of
 * which we know that the order runs through all their types.
 *
 * Collations: bytes decide equality under every deterministic collation, and
 * ranges under C only.  Bounds are in the order of bytes whatever the column's
 * collation is, so what counts is the clause's.
 */
#include "exec/scan/prune_test.h"

#include "access/htup_details.h"
#include "access/hash.h"
#include "access/nbtree.h"
#include "access/stratnum.h"
#include "access/sysattr.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"
#include "utils/pg_locale.h"
#include "utils/typcache.h"

/* catalog/pg_opfamily_d.h names most families, but not these. */
#define FLOAT_BTREE_FAMILY 1970
#define DATETIME_BTREE_FAMILY 434

/* The relation that the clauses are about. */
typedef struct Target
{
	Index varno;
	TupleDesc descriptor;
} Target;

static PruneTest *make_test(Node *clause, const Target *target);

/* The column that an expression is, but for relabelling; 0 if it is none. */
static AttrNumber
match_column(Node *node, const Target *target)
{
	Var *var;

	while (node != NULL && IsA(node, RelabelType))
		node = (Node *) ((RelabelType *) node)->arg;
	if (node == NULL || !IsA(node, Var))
		return 0;
	var = (Var *) node;
	if (var->varno != target->varno || var->varlevelsup != 0 || var->varattno <= 0 ||
		var->varattno > target->descriptor->natts ||
		TupleDescAttr(target->descriptor, var->varattno - 1)->attisdropped)
		return 0;
	return var->varattno;
}

/* Has the expression one value for all rows of a scan? */
static bool
is_value(Node *node, const Target *target)
{
	Bitmapset *columns = NULL;

	pull_varattnos(node, target->varno, &columns);
	return bms_is_empty(columns) && !contain_volatile_functions(node) && !contain_subplans(node);
}

static PruneTest *
make_leaf(PruneKind kind, AttrNumber attribute, const Target *target)
{
	PruneTest *test = palloc0(sizeof(PruneTest));

	test->kind = kind;
	test->whole = true;
	test->attribute = attribute;
	column_type_init(&test->type, TupleDescAttr(target->descriptor, attribute - 1));
	return test;
}

/* ---- comparisons ------------------------------------------------------------------------------- */

/* Does the family order the values of all its types as one? */
static bool
is_family_of_one_order(Oid family)
{
	return family == INTEGER_BTREE_FAM_OID || family == FLOAT_BTREE_FAMILY ||
		   family == DATETIME_BTREE_FAMILY || family == TEXT_BTREE_FAM_OID;
}

/* How values of this type are compared with the column's bounds; false if they cannot be. */
static bool
choose_form(PruneTest *test, Oid family, Oid left, Oid right)
{
	const ColumnType *type = &test->type;

	switch (type->zone)
	{
		case ZONE_INT:
			test->form = left == right || family == INTEGER_BTREE_FAM_OID ? PRUNE_INT : PRUNE_DATUM;
			return true;
		case ZONE_FLOAT:
			test->form = PRUNE_FLOAT;
			return right == FLOAT4OID || right == FLOAT8OID;
		case ZONE_BYTES:
			test->form = PRUNE_BYTES;
			if (left != right && family != TEXT_BTREE_FAM_OID)
				return false;
			if (test->strategy == BTEqualStrategyNumber)
				return !OidIsValid(test->collation) ||
					   get_collation_isdeterministic(test->collation);
			return OidIsValid(type->collation) ? compat_collation_is_c(test->collation)
											   : type->bytes_are_ordered;
		case ZONE_COMPARE:
			test->form = PRUNE_DATUM;
			return test->collation == type->collation;
		case ZONE_NONE:
			break;
	}
	return false;
}

/* Sets the hash function for values of an equality that Bloom filters can answer. */
static void
choose_hash(PruneTest *test, Oid operator)
{
	const ColumnType *type = &test->type;
	Oid family = lookup_type_cache(type->typid, TYPECACHE_HASH_OPFAMILY)->hash_opf;
	int strategy;
	Oid left;
	Oid right;
	Oid hash;

	if (test->strategy != BTEqualStrategyNumber || !OidIsValid(type->hash.fn_oid) ||
		!OidIsValid(family) || !op_in_opfamily(operator, family))
		return;
	/* under deterministic collations all hash functions take the bytes alone, but for containers */
	if (test->collation != type->collation && type->zone != ZONE_BYTES)
		return;
	get_op_opfamily_properties(operator, family, false, &strategy, &left, &right);
	if (get_opfamily_proc(family, left, left, HASHEXTENDED_PROC) != type->hash.fn_oid)
		return;
	hash = get_opfamily_proc(family, right, right, HASHEXTENDED_PROC);
	if (OidIsValid(hash) && func_volatile(hash) == PROVOLATILE_IMMUTABLE)
		fmgr_info(hash, &test->hash);
}

/* column op value, with the operator's column on the left. */
static PruneTest *
make_comparison(AttrNumber attribute, Oid operator, Node * value, Oid collation, bool is_array,
				const Target *target)
{
	PruneTest *test = make_leaf(PRUNE_COMPARE, attribute, target);
	TypeCacheEntry *entry = lookup_type_cache(test->type.typid, TYPECACHE_BTREE_OPFAMILY);
	Oid family = entry->btree_opf;
	Oid left;
	Oid right;
	Oid compare;

	if (!OidIsValid(family) || !op_in_opfamily(operator, family))
		return NULL;
	get_op_opfamily_properties(operator, family, false, &test->strategy, &left, &right);
	if (left != entry->btree_opintype || left == RECORDOID)
		return NULL;
	if (left != right && !is_family_of_one_order(family))
		return NULL;
	compare = get_opfamily_proc(family, left, right, BTORDER_PROC);
	if (!OidIsValid(compare) || func_volatile(compare) != PROVOLATILE_IMMUTABLE ||
		op_volatile(operator) != PROVOLATILE_IMMUTABLE || !op_strict(operator))
		return NULL;

	test->value = (Expr *) value;
	test->is_array = is_array;
	test->collation = collation;
	test->value_type = right;
	if (!choose_form(test, family, left, right))
		return NULL;
	if (test->form == PRUNE_DATUM)
		fmgr_info(compare, &test->compare);
	choose_hash(test, operator);
	return test;
}

/* column LIKE pattern and column ^@ prefix, of text, character(n) and bytea. */
static PruneTest *
make_prefix(AttrNumber attribute, Oid operator, Node * value, Oid collation, const Target *target)
{
	PruneTest *test = make_leaf(PRUNE_PREFIX, attribute, target);
	Oid type = lookup_type_cache(test->type.typid, TYPECACHE_BTREE_OPFAMILY)->btree_opintype;
	Oid expected = operator== OID_BPCHAR_LIKE_OP
					   ? BPCHAROID
					   : (operator== OID_BYTEA_LIKE_OP ? BYTEAOID : TEXTOID);

	if (test->type.zone != ZONE_BYTES || type != expected)
		return NULL;
	if (OidIsValid(collation) && !get_collation_isdeterministic(collation))
		return NULL;
	test->whole = false;
	test->form = PRUNE_BYTES;
	test->collation = collation;
	test->value = (Expr *) value;
	test->is_pattern = operator!= TextPrefixOperator;
	return test;
}

static PruneTest *
make_from_operator(OpExpr *clause, const Target *target)
{
	Oid operator= clause->opno;
	Node *left;
	Node *right;
	AttrNumber attribute;

	if (list_length(clause->args) != 2)
		return NULL;
	left = linitial(clause->args);
	right = lsecond(clause->args);
	attribute = match_column(left, target);
	if (attribute == 0)
	{
		attribute = match_column(right, target);
		operator= get_commutator(operator);
		right = left;
	}
	if (attribute == 0 || !OidIsValid(operator) || !is_value(right, target))
		return NULL;

	if (operator== OID_TEXT_LIKE_OP || operator== OID_BPCHAR_LIKE_OP || operator==
		OID_BYTEA_LIKE_OP ||
		operator== TextPrefixOperator)
		return make_prefix(attribute, operator, right, clause->inputcollid, target);
	return make_comparison(attribute, operator, right, clause->inputcollid, false, target);
}

static PruneTest *
make_from_array(ScalarArrayOpExpr *clause, const Target *target)
{
	AttrNumber attribute = match_column(linitial(clause->args), target);
	Node *array = lsecond(clause->args);

	if (!clause->useOr || attribute == 0 || !is_value(array, target))
		return NULL;
	return make_comparison(attribute, clause->opno, array, clause->inputcollid, true, target);
}

/* ---- booleans and NULL ------------------------------------------------------------------------- */

/* The column is true, or false; it is not NULL in both cases. */
static PruneTest *
make_boolean(Node *node, bool truth, const Target *target)
{
	AttrNumber attribute = match_column(node, target);
	PruneTest *test;

	if (attribute == 0)
		return NULL;
	test = make_leaf(PRUNE_BOOLEAN, attribute, target);
	if (test->type.typid != BOOLOID || test->type.zone != ZONE_INT)
		return NULL;
	test->truth = truth;
	return test;
}

static PruneTest *
make_from_null_test(Node *argument, bool is_row, bool is_null, const Target *target)
{
	AttrNumber attribute = match_column(argument, target);

	/* a composite value IS NULL when all its fields are: the store counts whole values only */
	if (attribute == 0 || is_row)
		return NULL;
	return make_leaf(is_null ? PRUNE_NULL : PRUNE_NOT_NULL, attribute, target);
}

static PruneTest *
make_from_boolean_test(BooleanTest *clause, const Target *target)
{
	switch (clause->booltesttype)
	{
		case IS_TRUE:
			return make_test((Node *) clause->arg, target);
		case IS_FALSE:
			return make_boolean((Node *) clause->arg, false, target);
		case IS_UNKNOWN:
			return make_from_null_test((Node *) clause->arg, false, true, target);
		case IS_NOT_UNKNOWN:
			return make_from_null_test((Node *) clause->arg, false, false, target);
		case IS_NOT_TRUE:
		case IS_NOT_FALSE:
			break;
	}
	return NULL;
}

/* ---- trees ------------------------------------------------------------------------------------- */

/* AND: of the parts that have a test.  OR: all parts need one. */
static PruneTest *
make_from_parts(BoolExpr *clause, const Target *target)
{
	PruneTest *test;
	List *parts = NIL;
	ListCell *cell;

	foreach(cell, clause->args)
	{
		PruneTest *part = make_test(lfirst(cell), target);

		if (part != NULL)
			parts = lappend(parts, part);
		else if (clause->boolop == OR_EXPR)
			return NULL;
	}
	if (parts == NIL)
		return NULL;
	if (list_length(parts) == 1)
	{
		test = linitial(parts);
		test->whole &= list_length(clause->args) == 1;
		return test;
	}
	test = palloc0(sizeof(PruneTest));
	test->whole = list_length(parts) == list_length(clause->args);
	test->kind = clause->boolop == OR_EXPR ? PRUNE_OR : PRUNE_AND;
	test->parts = parts;
	return test;
}

static PruneTest *
make_test(Node *clause, const Target *target)
{
	check_stack_depth();
	switch (nodeTag(clause))
	{
		case T_BoolExpr:
			if (((BoolExpr *) clause)->boolop == NOT_EXPR)
				return make_boolean(linitial(((BoolExpr *) clause)->args), false, target);
			return make_from_parts((BoolExpr *) clause, target);
		case T_OpExpr:
			return make_from_operator((OpExpr *) clause, target);
		case T_ScalarArrayOpExpr:
			return make_from_array((ScalarArrayOpExpr *) clause, target);
		case T_NullTest:
			return make_from_null_test((Node *) ((NullTest *) clause)->arg,
									   ((NullTest *) clause)->argisrow,
									   ((NullTest *) clause)->nulltesttype == IS_NULL, target);
		case T_BooleanTest:
			return make_from_boolean_test((BooleanTest *) clause, target);
		case T_Var:
		case T_RelabelType:
			return make_boolean(clause, true, target);
		default:
			return NULL;
	}
}

PruneTest *
prune_test_make(Node *clause, Index varno, TupleDesc descriptor)
{
	Target target = {.varno = varno, .descriptor = descriptor};

	return make_test(clause, &target);
}

AttrNumber
prune_test_attribute(const PruneTest *test)
{
	AttrNumber attribute = 0;
	ListCell *cell;

	if (test->parts == NIL)
		return test->attribute;
	foreach(cell, test->parts)
	{
		AttrNumber part = prune_test_attribute(lfirst(cell));

		if (part == 0 || (attribute != 0 && part != attribute))
			return 0;
		attribute = part;
	}
	return attribute;
}
