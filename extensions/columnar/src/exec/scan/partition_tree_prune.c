/*
 * partition_tree_prune.c
 *		Which leaves of a partition tree conditions leave.
 *
 * PostgreSQL prunes partitions of a relation of the planner by conditions on constants.  The
 * executor uses the same function with the values of parameters and stable functions in their
 * places, so that one piece of code decides at both times.  Conditions are translated to
 * the columns of each partitioned table below the top, as core does.
 *
 * A comparison of different types that depends on the time zone (timestamp with timestamptz) prunes
 * nothing: such an operator is not immutable.
 */
#include "exec/scan/partition_tree.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/partition.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "partitioning/partdesc.h"
#include "partitioning/partprune.h"
#include "rewrite/rewriteManip.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/partcache.h"

typedef struct TreePruning
{
	Relation top;
	PartitionDirectory directory;
	Index varno;
	List *clauses;
	PlanState *parent;
	bool with_params;
	List *leaves;
} TreePruning;

/* ---- values ------------------------------------------------------------------------------------- */

static bool
find_exec_param(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Param))
		return ((Param *) node)->paramkind == PARAM_EXEC;
	return expression_tree_walker(node, find_exec_param, context);
}

bool
partition_tree_has_params(List *clauses)
{
	return find_exec_param((Node *) clauses, NULL);
}

static Node *
evaluate(Node *expression, PlanState *parent)
{
	ExprState *state = ExecInitExpr((Expr *) expression, parent);
	int16 length;
	bool byval;
	bool isnull;
	Datum value = ExecEvalExprSwitchContext(state, parent->ps_ExprContext, &isnull);

	get_typlenbyval(exprType(expression), &length, &byval);
	if (!isnull)
		value = datumCopy(value, byval, length);
	return (Node *) makeConst(exprType(expression), exprTypmod(expression),
							  exprCollation(expression), length, isnull ? (Datum) 0 : value, isnull,
							  byval);
}

/* Can the operand of a condition be taken as a constant now? */
static bool
is_value(const TreePruning *pruning, Node *operand)
{
	if (IsA(operand, Const) || contain_var_clause(operand) || contain_volatile_functions(operand) ||
		contain_subplans(operand))
		return false;
	return pruning->with_params || !find_exec_param(operand, NULL);
}

/* Are the columns of the condition all of the partition key? */
static bool
is_of_key(Node *clause, Index varno, const Bitmapset *key)
{
	Bitmapset *columns = NULL;
	bool result;

	pull_varattnos(clause, varno, &columns);
	result = !bms_is_empty(columns) && bms_is_subset(columns, key);
	bms_free(columns);
	return result;
}

/* A condition on the key with constants in the place of values. */
static Node *
fold_values(Node *clause, const TreePruning *pruning, const Bitmapset *key)
{
	List **operands;
	Node *folded;
	ListCell *cell;

	if (IsA(clause, BoolExpr))
	{
		BoolExpr *copy = copyObject((BoolExpr *) clause);

		foreach(cell, copy->args)
			lfirst(cell) = fold_values(lfirst(cell), pruning, key);
		return (Node *) copy;
	}
	if ((!IsA(clause, OpExpr) && !IsA(clause, ScalarArrayOpExpr)) ||
		!is_of_key(clause, pruning->varno, key))
		return clause;
	folded = copyObject(clause);
	operands = IsA(folded, OpExpr) ? &((OpExpr *) folded)->args
								   : &((ScalarArrayOpExpr *) folded)->args;
	foreach(cell, *operands)
		if (is_value(pruning, lfirst(cell)))
			lfirst(cell) = evaluate(lfirst(cell), pruning->parent);
	return folded;
}

/* ---- one partitioned table ---------------------------------------------------------------------- */

static PartitionScheme
make_scheme(PartitionKey key)
{
	PartitionScheme scheme = palloc0(sizeof(PartitionSchemeData));

	scheme->strategy = key->strategy;
	scheme->partnatts = key->partnatts;
	scheme->partopfamily = key->partopfamily;
	scheme->partopcintype = key->partopcintype;
	scheme->partcollation = key->partcollation;
	scheme->parttyplen = key->parttyplen;
	scheme->parttypbyval = key->parttypbyval;
	scheme->partsupfunc = key->partsupfunc;
	return scheme;
}

/* The key's expressions, of relation varno, each in a list of its own. */
static List **
make_key_expressions(PartitionKey key, Index varno)
{
	List **expressions = palloc0(sizeof(List *) * key->partnatts);
	ListCell *next = list_head(key->partexprs);

	for (int i = 0; i < key->partnatts; i++)
	{
		Node *expression;

		if (key->partattrs[i] != InvalidAttrNumber)
			expression = (Node *) makeVar(varno, key->partattrs[i], key->parttypid[i],
										  key->parttypmod[i], key->parttypcoll[i], 0);
		else
		{
			expression = copyObject(lfirst(next));
			ChangeVarNodes(expression, 1, (int) varno, 0);
			next = lnext(key->partexprs, next);
		}
		expressions[i] = list_make1(expression);
	}
	return expressions;
}

/* The indexes of the partitions that are left. */
static Bitmapset *
prune_partitions(const TreePruning *pruning, Relation relation, PartitionDesc partitions)
{
	PartitionKey key = RelationGetPartitionKey(relation);
	RelOptInfo *rel = makeNode(RelOptInfo);
	List *clauses = pruning->clauses;

	rel->reloptkind = RELOPT_BASEREL;
	rel->rtekind = RTE_RELATION;
	rel->relid = pruning->varno;
	rel->relids = bms_make_singleton((int) pruning->varno);
	rel->part_scheme = make_scheme(key);
	rel->boundinfo = partitions->boundinfo;
	rel->nparts = partitions->nparts;
	rel->partexprs = make_key_expressions(key, pruning->varno);
	rel->nullable_partexprs = palloc0(sizeof(List *) * key->partnatts);

	if (clauses != NIL && relation != pruning->top)
		clauses = map_partition_varattnos(clauses, (int) pruning->varno, relation, pruning->top);
	if (pruning->parent != NULL)
	{
		Bitmapset *columns = NULL;
		List *folded = NIL;
		ListCell *cell;

		for (int i = 0; i < key->partnatts; i++)
			pull_varattnos((Node *) rel->partexprs[i], pruning->varno, &columns);
		foreach(cell, clauses)
			folded = lappend(folded, fold_values(lfirst(cell), pruning, columns));
		clauses = folded;
	}
	rel->baserestrictinfo = clauses;
	return prune_append_rel_partitions(rel);
}

static void
add_leaves(TreePruning *pruning, Relation relation)
{
	PartitionDesc partitions = PartitionDirectoryLookup(pruning->directory, relation);
	Bitmapset *kept;
	int i = -1;

	if (partitions->nparts == 0)
		return;
	kept = prune_partitions(pruning, relation, partitions);
	while ((i = bms_next_member(kept, i)) >= 0)
	{
		Relation below;

		if (partitions->is_leaf[i])
		{
			pruning->leaves = lappend_oid(pruning->leaves, partitions->oids[i]);
			continue;
		}
		below = try_table_open(partitions->oids[i], AccessShareLock);
		if (below == NULL)
			continue; /* detached and dropped since, as an older snapshot may find it */
		add_leaves(pruning, below);
		table_close(below, NoLock);
	}
}

List *
partition_tree_prune(Relation relation, PartitionDirectory directory, Index varno, List *clauses,
					 PlanState *parent, bool with_params)
{
	TreePruning pruning = {.top = relation,
						   .directory = directory,
						   .varno = varno,
						   .clauses = clauses,
						   .parent = parent,
						   .with_params = with_params};

	add_leaves(&pruning, relation);
	return pruning.leaves;
}
