/*
 * conflict_obstacle.c
 *		Why workers cannot run an INSERT ... ON CONFLICT, which ends there.
 *
 * plan_modify.c looks for a proof that they can; that there is none has no place in a tree.  So this looks
 * for the causes in what is evaluated of rows that exist (DO UPDATE and RETURNING), as it was before planning, the certain
 * ones first, and names the object: a function, type or operator that workers do not evaluate; an OID of this server; the
 * table of a sub-select.
 *
 * What is computed before the workers are asked is no cause: sub-selects without outer columns.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"

#include "compat.h"
#include "plan/conflict_obstacle.h"
#include "plan/only_here.h"
#include "plan/shippable.h"
#include "plan/shippable_object.h"

/* The first of each kind that was found; InvalidOid: none. */
typedef struct Obstacles
{
	PlannerInfo *root;
	Oid function;
	Oid type;
	Oid operator;
	Oid relation; /* of a sub-select */
	bool names;	  /* values whose OIDs are each node's own */
} Obstacles;

/* ---------------------------------------------------------------- the search */

static void
note_first(Oid *place, Oid found)
{
	if (!OidIsValid(*place))
		*place = found;
}

/* Callback of check_functions_in_node() */
static bool
note_function(Oid function, void *context)
{
	Obstacles *found = context;

	if (!shippable_function(function))
		note_first(&found->function, function);
	return false;
}

static void
note_operator(Oid operator, Obstacles * found)
{
	if (!shippable_object(OperatorRelationId, operator))
		note_first(&found->operator, operator);
}

/* Is the sub-select's value computed once, before the workers are asked? */
static bool
is_computed_before(const SubLink *link)
{
	return link->subLinkType != ANY_SUBLINK && link->subLinkType != ALL_SUBLINK &&
		   !contain_vars_of_level(link->subselect, 1);
}

static bool
walk_obstacles(Node *node, Obstacles *found)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_Query:
			return query_tree_walker((Query *) node, walk_obstacles, found,
									 QTW_EXAMINE_RTES_BEFORE);
		case T_RangeTblEntry:
			if (((RangeTblEntry *) node)->rtekind == RTE_RELATION)
				note_first(&found->relation, ((RangeTblEntry *) node)->relid);
			return false;
		case T_SubLink:
			if (is_computed_before((SubLink *) node))
				return false;
			break;
		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
			note_operator(((OpExpr *) node)->opno, found);
			break;
		case T_ScalarArrayOpExpr:
			note_operator(((ScalarArrayOpExpr *) node)->opno, found);
			break;
		default:
			break;
	}
	if (shippable_is_shipped_value(found->root, node))
		return false;
	if (only_here_node(node) && only_here_type(exprType(node)))
		note_first(&found->type, exprType(node));
	found->names |= shippable_looks_at_names(node) || (IsA(node, Const) && only_here_node(node));
	(void) check_functions_in_node(node, note_function, found);
	return expression_tree_walker(node, walk_obstacles, found);
}

/* ---------------------------------------------------------------- the message */

static const char *
describe_function(Oid function)
{
	const char *name = format_procedure(function);

	if (only_here_object(ProcedureRelationId, function))
		return psprintf("Only the coordinator has function %s.", name);
	if (func_volatile(function) == PROVOLATILE_VOLATILE)
		return psprintf("Function %s is VOLATILE, which workers do not evaluate.", name);
	return psprintf("Function %s is not IMMUTABLE: workers, which have other rows and settings, do "
					"not evaluate it.",
					name);
}

static const char *
describe_obstacle(const Obstacles *found)
{
	if (OidIsValid(found->function))
		return describe_function(found->function);
	if (OidIsValid(found->type))
		return psprintf("Only the coordinator has type %s.", format_type_be(found->type));
	if (OidIsValid(found->operator))
		return psprintf("Operator %s is neither built in nor part of an extension: workers do not "
						"evaluate it.",
						format_operator(found->operator));
	if (found->names)
		return "Object identifiers (regclass and its like) are compared or computed in it, or name "
			   "what only the coordinator has: each node has OIDs of its own.";
	if (OidIsValid(found->relation))
		return psprintf("A sub-select of it reads table \"%s\" for each row.",
						get_rel_name(found->relation));
	return "Workers cannot evaluate what it says of rows that exist.";
}

void
conflict_obstacle_report(PlannerInfo *root, const Query *original, const DistributedTable *table)
{
	Query *query = original != NULL ? unconstify(Query *, original) : root->parse;
	Obstacles found = {.root = root};

	(void) walk_obstacles((Node *) query->onConflict, &found);
	(void) walk_obstacles((Node *) query->returningList, &found);
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("cannot run this INSERT ... ON CONFLICT on distributed table \"%s\"",
						   get_rel_name(table->relation)),
					errdetail_internal("%s", describe_obstacle(&found)), errhint("Use MERGE.")));
}
