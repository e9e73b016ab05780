/*
 * modify_obstacle.c
 *		Why workers cannot run a statement that changes rows.
 *
 * plan_modify.c looks for a proof that they can; that there is none has no place in a tree.  So this looks
 * for the causes in the statement as it was before planning, the certain ones first, and names
 * the object: a function or operator that workers do not evaluate; an OID of this server; a table that only the
 * coordinator has, or that is not colocated; at last a table whose rows are brought together
 * with the changed ones by something else than their keys.
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
#include "parser/parsetree.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"

#include "compat.h"
#include "plan/modify_obstacle.h"
#include "plan/only_here.h"
#include "plan/shippable.h"

/* The first of each kind that was found; InvalidOid: none. */
typedef struct Obstacles
{
	PlannerInfo *root;
	const DistributedTable *table;
	const RangeTblEntry *target;
	Oid function;
	Oid type;
	Oid operator;
	Oid local_table;
	Oid apart_table;
	Oid other_table; /* of the same colocation group */
	bool names;		 /* values whose OIDs are each node's own */
} Obstacles;

const char *
modify_command_name(CmdType command)
{
	switch (command)
	{
		case CMD_INSERT:
			return "INSERT";
		case CMD_UPDATE:
			return "UPDATE";
		case CMD_DELETE:
			return "DELETE";
		default:
			return "MERGE";
	}
}

/* ---------------------------------------------------------------- the search */

static void
note_first(Oid *place, Oid found)
{
	if (!OidIsValid(*place))
		*place = found;
}

static void
note_relation(RangeTblEntry *rte, Obstacles *found)
{
	const DistributedTable *table;

	if (rte->rtekind != RTE_RELATION || rte == found->target || rte->relkind == RELKIND_VIEW)
		return;
	table = metadata_table(rte->relid);
	if (table == NULL)
		note_first(&found->local_table, rte->relid);
	else if (table->kind != TABLE_DISTRIBUTED)
		return;
	else if (table->colocation->id != found->table->colocation->id)
		note_first(&found->apart_table, rte->relid);
	else
		note_first(&found->other_table, rte->relid);
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
			note_relation((RangeTblEntry *) node, found);
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
describe_join(Oid other, const DistributedTable *table)
{
	const DistributedTable *known = metadata_table(other);

	return psprintf("Rows of table \"%s\" (key \"%s\") are brought together with its rows (key "
					"\"%s\") by something else than their keys.",
					get_rel_name(other), get_attname(other, known->key_attribute, false),
					get_attname(table->relation, table->key_attribute, false));
}

/* Sets the hint, too. */
static const char *
describe_obstacle(const Obstacles *found, const char **hint)
{
	const DistributedTable *table = found->table;
	const char *name = get_rel_name(table->relation);
	const char *key = get_attname(table->relation, table->key_attribute, false);

	*hint = "Compute the new rows in a SELECT first.";
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
	if (OidIsValid(found->local_table))
	{
		*hint = "Make it a reference table, or compute the new rows in a SELECT first.";
		return psprintf("Only the coordinator has table \"%s\".", get_rel_name(found->local_table));
	}
	if (OidIsValid(found->apart_table))
	{
		*hint = psprintf("Distribute it with colocate_with => %s, or make it a reference table.",
						 quote_literal_cstr(name));
		return psprintf(
			"Table \"%s\" is not colocated with it: rows of equal keys are on different "
			"workers.",
			get_rel_name(found->apart_table));
	}
	if (OidIsValid(found->other_table))
	{
		*hint = psprintf("Join on the distribution key \"%s\", or use a reference table.", key);
		return describe_join(found->other_table, table);
	}
	*hint = psprintf("Name rows by the distribution key \"%s\", or compute the new rows in a "
					 "SELECT first.",
					 key);
	return "Row-level security, a sub-select, a column tableoid or rows with another key are in "
		   "the "
		   "way of running it on the workers.";
}

void
modify_obstacle_report(PlannerInfo *root, const Query *original, const DistributedTable *table)
{
	Query *query = original != NULL ? unconstify(Query *, original) : root->parse;
	Obstacles found = {.root = root, .table = table};
	const char *detail;
	const char *hint;

	found.target = rt_fetch(query->resultRelation, query->rtable);
	(void) walk_obstacles((Node *) query, &found);
	detail = describe_obstacle(&found, &hint);
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("cannot run this %s on distributed table \"%s\"",
						   modify_command_name(query->commandType), get_rel_name(table->relation)),
					errdetail_internal("%s", detail), errhint("%s", hint)));
}
