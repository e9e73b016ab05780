/*
 * local_keys.c
 *		UPDATE, DELETE and MERGE that join a distributed table to local ones: the rows that they ask for.
 *
 * Workers do not have the local table, so its rows and theirs meet here (plan_row_change.c).  That all rows of the distributed
 * table would be locked and sent for the few that have a partner, workers can avoid: a condition t.a = f(s.b) gets
 *
 *		t.a = ANY (ARRAY(SELECT DISTINCT f(b) FROM s WHERE ...))
 *
 * beside it, which is true whenever the other one is, wherever in the statement they stand.  The sub-select is evaluated
 * once, before the workers are asked, and goes to them as a parameter; the WHERE is what the statement asks of s alone.
 *
 * Nothing is evaluated twice that may differ.  Large tables, whose values would take longer than the rows, get nothing.
 */
#include "postgres.h"

#include "plan/local_keys.h"

#include "access/table.h"
#include "catalog/pg_inherits.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/plancat.h"
#include "parser/parse_oper.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/typcache.h"

#include "compat.h"
#include "decorrelate.h"
#include "cluster/metadata.h"
#include "plan/dist_path.h"
#include "plan/planner.h"
#include "plan/unnest_any.h"

#define MAX_LOCAL_ROWS 100000.0

/* ---------------------------------------------------------------- the local side */

typedef struct Source
{
	bool is_local; /* reads a table that only this server has */
	bool differs; /* might give other rows the second time, or belongs to the statement around it */
	double rows;  /* of all its tables, about */
} Source;

static double
estimate_rows(Oid relid)
{
	Relation relation = table_open(relid, NoLock);
	double rows = relation->rd_rel->reltuples;

	if (has_subclass(relid))
		rows = -1;
	else if (metadata_table(relid) == NULL && RELKIND_HAS_TABLE_AM(relation->rd_rel->relkind))
	{
		BlockNumber pages;
		double visible;

		estimate_rel_size(relation, NULL, &pages, &rows, &visible);
	}
	table_close(relation, NoLock);
	return rows < 0 ? MAX_LOCAL_ROWS : rows; /* nobody knows: many */
}

static bool
walk_source(Node *node, Source *source)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		const RangeTblEntry *rte = (RangeTblEntry *) node;

		source->differs |= rte->rtekind == RTE_CTE;
		if (rte->rtekind == RTE_RELATION && rte->relkind != RELKIND_VIEW)
		{
			source->is_local |= metadata_table(rte->relid) == NULL;
			source->differs |= decorrelate_rows_may_differ(rte);
			source->rows += estimate_rows(rte->relid);
		}
		return false;
	}
	if (IsA(node, Query))
	{
		const Query *query = (Query *) node;

		source->differs |= query->rowMarks != NIL || query->hasModifyingCTE;
		return query_tree_walker((Query *) node, walk_source, source, QTW_EXAMINE_RTES_BEFORE);
	}
	return expression_tree_walker(node, walk_source, source);
}

/* May the relation be read a second time, for its keys? */
static bool
is_small_and_local(RangeTblEntry *rte)
{
	Source source = {0};

	if (rte->lateral || (rte->rtekind != RTE_RELATION && rte->rtekind != RTE_SUBQUERY))
		return false;
	(void) walk_source((Node *) rte, &source);
	if (rte->rtekind == RTE_SUBQUERY)
	{
		(void) walk_source((Node *) rte->subquery, &source);
		source.differs |= contain_volatile_functions((Node *) rte->subquery) ||
						  contain_vars_of_level((Node *) rte->subquery, 1);
	}
	return source.is_local && !source.differs && source.rows < MAX_LOCAL_ROWS;
}

/* ---------------------------------------------------------------- conditions */

/* The only relation of the expression, which is the same whenever it is evaluated; 0 if it is not so. */
static Index
find_relation(Node *expr)
{
	Relids relids = pull_varnos(NULL, expr);
	int rti;

	if (!bms_get_singleton_member(relids, &rti) || contain_vars_of_level(expr, 1) ||
		checkExprHasSubLink(expr) || contain_volatile_functions(expr))
		return 0;
	return rti;
}

static Node *
make_source_quals(const List *conditions, Index rti)
{
	Node *quals = NULL;
	ListCell *lc;

	foreach(lc, conditions)
	{
		if (find_relation(lfirst(lc)) == rti)
			quals = make_and_qual(quals, copyObject(lfirst(lc)));
	}
	return quals;
}

/* Each value once, if those that are one to DISTINCT are so to the condition. */
static void
make_distinct(Query *select, const OpExpr *equals)
{
	TargetEntry *target = linitial_node(TargetEntry, select->targetList);
	Node *key = (Node *) target->expr;
	SortGroupClause *distinct = makeNode(SortGroupClause);

	get_sort_group_operators(exprType(key), false, false, false, &distinct->sortop, &distinct->eqop,
							 NULL, &distinct->hashable);
	if (!OidIsValid(distinct->sortop) || !OidIsValid(distinct->eqop) ||
		!equality_ops_are_compatible(distinct->eqop, equals->opno))
		return;
	distinct->tleSortGroupRef = target->ressortgroupref = 1;
	select->distinctClause = list_make1(distinct);
}

/* SELECT DISTINCT key FROM relation WHERE ... */
static Query *
make_select(const Query *query, const List *conditions, Index rti, Node *key)
{
	Query *select = makeNode(Query);
	RangeTblEntry *rte = copyObject(rt_fetch(rti, query->rtable));
	RangeTblRef *ref = makeNode(RangeTblRef);

	select->commandType = CMD_SELECT;
	select->querySource = QSRC_ORIGINAL;
	if (rte->rtekind == RTE_SUBQUERY)
		IncrementVarSublevelsUp((Node *) rte->subquery, 1, 1);
	compat_copy_permissions(select, rte, query);
	select->rtable = list_make1(rte);
	ref->rtindex = 1;
	select->jointree = makeFromExpr(list_make1(ref), make_source_quals(conditions, rti));
	select->targetList = list_make1(makeTargetEntry(copyObject((Expr *) key), 1, "key", false));
	select->hasRowSecurity = query->hasRowSecurity;
	select->hasSubLinks = checkExprHasSubLink((Node *) rte->securityQuals);
	ChangeVarNodes((Node *) rte->securityQuals, rti, 1, 0);
	ChangeVarNodes((Node *) select->jointree->quals, rti, 1, 0);
	ChangeVarNodes((Node *) select->targetList, rti, 1, 0);
	return select;
}

static Node *
make_filter(const Query *query, const List *conditions, const OpExpr *equals, Oid equality,
			Node *changed, Index rti, Node *key)
{
	SubLink *keys = makeNode(SubLink);
	Query *select = make_select(query, conditions, rti, key);

	make_distinct(select, equals);
	keys->subLinkType = ARRAY_SUBLINK;
	keys->subselect = (Node *) select;
	keys->location = -1;
	return unnest_any_make(equality, equals->inputcollid, copyObject(changed), (Node *) keys);
}

/* What the condition says of the changed table by itself; NULL: nothing. */
static Node *
find_filter(const Query *query, const List *conditions, Node *condition)
{
	const OpExpr *equals = (OpExpr *) condition;
	Index target = query->resultRelation;
	Oid equality;
	Node *left;
	Node *right;
	Index rti;

	if (!IsA(condition, OpExpr) || list_length(equals->args) != 2)
		return NULL;
	equality = equals->opno;
	left = linitial(equals->args);
	right = lsecond(equals->args);
	if (!op_mergejoinable(equality, exprType(left)) && !op_hashjoinable(equality, exprType(left)))
		return NULL;
	if (find_relation(left) != target)
	{
		equality = get_commutator(equality);
		left = lsecond(equals->args);
		right = linitial(equals->args);
	}
	rti = find_relation(right);
	if (!OidIsValid(equality) || find_relation(left) != target || rti == 0 || rti == target ||
		!OidIsValid(get_array_type(exprType(right))) ||
		exprCollation(right) != equals->inputcollid ||
		!is_small_and_local(rt_fetch(rti, query->rtable)) ||
		(query->commandType != CMD_MERGE && !from_list_has(query->jointree->fromlist, rti)))
		return NULL;
	return make_filter(query, conditions, equals, equality, left, rti, right);
}

/* Does the statement join a distributed table, of which it asks only for the rows that its conditions name? */
static bool
asks_for_matches(const Query *query)
{
	ListCell *lc;

	if (query->commandType == CMD_SELECT || query->commandType == CMD_INSERT ||
		list_length(query->rtable) == 1 || plan_scan_changed_table(query) == NULL)
		return false;
	foreach(lc, query->mergeActionList)
	{
		if (compat_merges_unmatched_target(lfirst_node(MergeAction, lc)))
			return false;
	}
	return true;
}

void
local_keys_add(Query *query)
{
	Node **place;
	List *conditions;
	ListCell *lc;

	if (!asks_for_matches(query))
		return;
	place = query->commandType == CMD_MERGE ? compat_merge_condition(query)
											: &query->jointree->quals;
	conditions = make_ands_implicit((Expr *) *place);
	foreach(lc, conditions)
	{
		Node *filter = find_filter(query, conditions, lfirst(lc));

		if (filter == NULL)
			continue;
		*place = make_and_qual(*place, filter);
		query->hasSubLinks = true;
	}
}
