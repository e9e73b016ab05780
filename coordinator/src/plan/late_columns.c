/*
 * late_columns.c
 *		Columns that depend on a key among the groups, fetched for the groups in place of grouped by.
 *
 *		SELECT c.id, c.name, c.address, n.name, sum(o.price) AS s FROM c, n, o
 *		WHERE n.id = c.nation AND o.c = c.id GROUP BY c.id, c.name, c.address, n.name ORDER BY s DESC LIMIT 20
 *
 * makes the workers take the wide columns of c along for all rows of o, or for each of their groups.  The same is
 *
 *		SELECT g.c1, c.name, c.address, n.name, g.c2 AS s FROM
 *			(SELECT c.id AS c1, sum(o.price) AS c2 FROM c, n, o WHERE ... GROUP BY c.id ORDER BY c2 DESC LIMIT 20) AS g, c, n
 *		WHERE c.id = g.c1 AND n.id = c.nation ORDER BY s DESC
 *
 * A relation is fetched if each column of a unique key of it is grouped by, or equal to what is, or to a column of another
 * relation that is fetched: then all rows of a group have the same row of it.  This row is there again, under the same
 * snapshot.  LIMIT goes along with the groups if the order depends on them alone.  Where the rows are on the workers the
 * groups are a materialised WITH, by which the rows are asked for (partner_keys.c).
 *
 * The conditions: the key was there when the snapshot was taken, none of its columns is NULL, and its equality is that of the
 * groups; the relation is a table without policies, not on the side of an outer join that may lack rows; nothing volatile
 * beside the groups.  Whether it is cheaper the caller finds out.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/syscache.h"

#include "compat.h"
#include "cluster/metadata.h"
#include "decorrelate.h"
#include "not_null.h"
#include "plan/late_columns.h"
#include "plan/planner.h"

/* The groups in the range table of the rewritten level. */
#define GROUPS_VARNO 1

/* A column of a unique key, and what it is equal to. */
typedef struct KeyColumn
{
	Var *column;
	Var *source;  /* itself, if it is grouped by */
	Oid equality; /* column = source */
} KeyColumn;

/* A relation that is fetched for each group. */
typedef struct Fetched
{
	Index varno;	 /* in the level */
	Index new_varno; /* in the rewritten level; 0: nothing was named of it yet */
	List *key;		 /* KeyColumn */
} Fetched;

typedef struct Level
{
	Query *query;
	Bitmapset *inner; /* relations that have a row for each row of the level */
	List *conditions; /* that hold for all of these */
	List *grouped;	  /* expressions */
	List *fetched;
	/* what is made of it */
	Query *groups;
	Query *result;
	Index last_ref; /* in the groups' target list */
	bool failed;
} Level;

/* ---- what the level is ---------------------------------------------------------------------------------- */

bool
late_columns_may_apply(Query *query)
{
	return query->commandType == CMD_SELECT && query->groupClause != NIL &&
		   query->groupingSets == NIL && query->setOperations == NULL &&
		   query->distinctClause == NIL && !query->hasWindowFuncs && !query->hasTargetSRFs &&
		   query->rowMarks == NIL && !query->hasForUpdate && !query->hasModifyingCTE &&
		   list_length(query->rtable) > 1 && planner_reads_distributed((Node *) query);
}

/* Which relations have a row for each row of the level, and what holds for them. */
static void
find_inner(Level *level, Node *node)
{
	JoinExpr *join = (JoinExpr *) node;
	Node *quals = NULL;
	ListCell *cell;

	if (IsA(node, RangeTblRef))
		level->inner = bms_add_member(level->inner, ((RangeTblRef *) node)->rtindex);
	else if (IsA(node, FromExpr))
	{
		foreach(cell, ((FromExpr *) node)->fromlist)
			find_inner(level, lfirst(cell));
		quals = ((FromExpr *) node)->quals;
	}
	else if (join->jointype == JOIN_INNER)
	{
		find_inner(level, join->larg);
		find_inner(level, join->rarg);
		quals = join->quals;
	}
	else if (join->jointype == JOIN_LEFT)
		find_inner(level, join->larg);
	else if (join->jointype == JOIN_RIGHT)
		find_inner(level, join->rarg);
	if (quals != NULL)
		level->conditions = list_concat(
			level->conditions,
			make_ands_implicit((Expr *) canonicalize_qual((Expr *) copyObject(quals), false)));
}

static bool
groups_by_column(const Level *level, int varno, AttrNumber attribute)
{
	ListCell *cell;

	foreach(cell, level->grouped)
	{
		const Var *grouped = lfirst(cell);

		if (IsA(grouped, Var) && grouped->varno == varno && grouped->varattno == attribute)
			return true;
	}
	return false;
}

/* Are the groups whole on the workers, who have all of their columns there? */
static bool
groups_by_distribution_key(const Level *level)
{
	const Colocation *colocation = NULL;
	bool found = false;
	ListCell *cell;

	foreach(cell, level->query->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, cell);
		const DistributedTable *table;

		if (!planner_is_distributed(rte))
			continue;
		table = metadata_table(rte->relid);
		if (colocation != NULL && table->colocation != colocation)
			return false;
		colocation = table->colocation;
		found |= groups_by_column(level, foreach_current_index(cell) + 1, table->key_attribute);
	}
	return found;
}

/* ---- which relations depend on the groups ----------------------------------------------------------------- */

static Fetched *
find_fetched(const Level *level, Index varno)
{
	ListCell *cell;

	foreach(cell, level->fetched)
	{
		Fetched *fetched = lfirst(cell);

		if (fetched->varno == varno)
			return fetched;
	}
	return NULL;
}

/* Is it grouped by, with that equality? */
static bool
is_grouped(const Level *level, const Var *var, Oid opfamily)
{
	ListCell *cell;

	foreach(cell, level->query->groupClause)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, cell);

		if (equal(get_sortgroupclause_expr(clause, level->query->targetList), var))
			return get_op_opfamily_strategy(clause->eqop, opfamily) == BTEqualStrategyNumber;
	}
	return false;
}

/* What the condition says the column to be equal to, by the key's equality. */
static Var *
find_equal(const OpExpr *condition, const Var *column, Oid opfamily, Oid *equality)
{
	Node *left;
	Node *right;

	if (!IsA(condition, OpExpr) || list_length(condition->args) != 2 ||
		condition->inputcollid != column->varcollid)
		return NULL;
	left = linitial(condition->args);
	right = lsecond(condition->args);
	*equality = condition->opno;
	if (!equal(left, column))
	{
		right = left;
		left = lsecond(condition->args);
		*equality = get_commutator(condition->opno);
	}
	if (!equal(left, column) || !IsA(right, Var) || ((Var *) right)->varlevelsup > 0 ||
		((Var *) right)->varcollid != column->varcollid || !OidIsValid(*equality) ||
		get_op_opfamily_strategy(*equality, opfamily) != BTEqualStrategyNumber)
		return NULL;
	return (Var *) right;
}

/* What the column of a key depends on: a relation that is fetched already, or a grouped column. */
static KeyColumn *
find_source(const Level *level, Var *column, Oid opfamily)
{
	KeyColumn *result = palloc0(sizeof(KeyColumn));
	ListCell *cell;

	result->column = column;
	if (is_grouped(level, column, opfamily))
	{
		result->source = column;
		result->equality = get_opfamily_member(opfamily, column->vartype, column->vartype,
											   BTEqualStrategyNumber);
		return OidIsValid(result->equality) ? result : NULL;
	}
	foreach(cell, level->conditions)
	{
		Oid equality;
		Var *source = find_equal(lfirst(cell), column, opfamily, &equality);

		if (source == NULL || source->varno == column->varno ||
			(find_fetched(level, source->varno) == NULL && !is_grouped(level, source, opfamily)))
			continue;
		result->source = source;
		result->equality = equality;
		if (find_fetched(level, source->varno) != NULL)
			break;
	}
	return result->source != NULL ? result : NULL;
}

/* Is the index a key of rows without NULL, under this snapshot, too? */
static bool
is_key(Relation index, const RangeTblEntry *rte)
{
	Form_pg_index form = index->rd_index;
	HeapTuple tuple;
	bool result;

	if (!form->indisunique || !form->indimmediate || !form->indisvalid ||
		RelationGetIndexPredicate(index) != NIL || RelationGetIndexExpressions(index) != NIL)
		return false;
	for (int i = 0; i < form->indnkeyatts; i++)
	{
		if (!not_null_is_declared(rte->relid, form->indkey.values[i], rte->inh))
			return false;
	}
	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(RelationGetRelid(index)));
	result = HeapTupleIsValid(tuple) && not_null_is_older_than_snapshot(tuple);
	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return result;
}

/* The key with its sources; NIL if one of its columns has none. */
static List *
find_sources(const Level *level, Index varno, Relation relation, Relation index)
{
	TupleDesc descriptor = RelationGetDescr(relation);
	List *key = NIL;

	for (int i = 0; i < index->rd_index->indnkeyatts; i++)
	{
		AttrNumber number = index->rd_index->indkey.values[i];
		Form_pg_attribute attribute = TupleDescAttr(descriptor, number - 1);
		Var *column = makeVar(varno, number, attribute->atttypid, attribute->atttypmod,
							  attribute->attcollation, 0);
		KeyColumn *found = index->rd_indcollation[i] == attribute->attcollation
							   ? find_source(level, column, index->rd_opfamily[i])
							   : NULL;

		if (found == NULL)
			return NIL;
		key = lappend(key, found);
	}
	return key;
}

static List *
find_key(const Level *level, Index varno, const RangeTblEntry *rte)
{
	Relation relation = table_open(rte->relid, AccessShareLock);
	List *key = NIL;
	ListCell *cell;

	foreach(cell, RelationGetIndexList(relation))
	{
		Relation index = index_open(lfirst_oid(cell), AccessShareLock);

		if (is_key(index, rte))
			key = find_sources(level, varno, relation, index);
		index_close(index, NoLock);
		if (key != NIL)
			break;
	}
	table_close(relation, NoLock);
	return key;
}

static bool
may_be_fetched(const Level *level, Index varno)
{
	const RangeTblEntry *rte = rt_fetch(varno, level->query->rtable);

	return rte->rtekind == RTE_RELATION && rte->relkind != RELKIND_FOREIGN_TABLE &&
		   metadata_table(rte->relid) != NULL && rte->securityQuals == NIL &&
		   !decorrelate_rows_may_differ(rte) && find_fetched(level, varno) == NULL;
}

/* All relations that depend on the groups, each after those that it depends on. */
static void
find_dependent(Level *level)
{
	bool again = true;
	int varno;

	while (again)
	{
		again = false;
		varno = -1;
		while ((varno = bms_next_member(level->inner, varno)) >= 0)
		{
			List *key = may_be_fetched(level, varno)
							? find_key(level, varno, rt_fetch(varno, level->query->rtable))
							: NIL;
			Fetched *fetched;

			if (key == NIL)
				continue;
			fetched = palloc0(sizeof(Fetched));
			fetched->varno = varno;
			fetched->key = key;
			level->fetched = lappend(level->fetched, fetched);
			again = true;
		}
	}
}

/* ---- the groups ------------------------------------------------------------------------------------------- */

/* Does a relation that is fetched depend on the grouped column? */
static bool
is_source(const Level *level, Node *grouped)
{
	ListCell *cell;
	ListCell *cell2;

	foreach(cell, level->fetched)
	{
		foreach(cell2, ((Fetched *) lfirst(cell))->key)
		{
			KeyColumn *column = lfirst(cell2);

			if (equal(column->source, grouped) &&
				(column->source->varno == column->column->varno ||
				 find_fetched(level, column->source->varno) == NULL))
				return true;
		}
	}
	return false;
}

/* Are all its columns of relations that are fetched? */
static bool
is_dependent(const Level *level, Node *grouped)
{
	Relids varnos = pull_varnos(NULL, grouped);
	int varno = -1;

	if (is_source(level, grouped) || contain_vars_of_level(grouped, 1))
		return false;
	while ((varno = bms_next_member(varnos, varno)) >= 0)
	{
		if (find_fetched(level, varno) == NULL)
			return false;
	}
	return !bms_is_empty(varnos);
}

/* A column of the groups; with a number by which clauses know it, if there is one. */
static TargetEntry *
add_column(Level *level, Node *expr, Index ref)
{
	int number = list_length(level->groups->targetList) + 1;
	TargetEntry *target = makeTargetEntry(copyObject((Expr *) expr), number,
										  psprintf("c%d", number), false);

	target->ressortgroupref = ref;
	level->last_ref = Max(level->last_ref, ref);
	level->groups->targetList = lappend(level->groups->targetList, target);
	return target;
}

static void
make_groups(Level *level)
{
	Query *groups = copyObject(level->query);
	ListCell *cell;

	level->groups = groups;
	groups->targetList = groups->groupClause = NIL;
	groups->havingQual = NULL;
	groups->sortClause = NIL;
	groups->limitCount = groups->limitOffset = NULL;
	groups->limitOption = LIMIT_OPTION_COUNT;
	foreach(cell, level->query->groupClause)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, cell);
		Node *expr = get_sortgroupclause_expr(clause, level->query->targetList);

		if (is_dependent(level, expr))
			continue;
		add_column(level, expr, clause->tleSortGroupRef);
		groups->groupClause = lappend(groups->groupClause, copyObject(clause));
	}
}

/* Does it name anything but columns of the groups, and aggregates? */
static bool
walk_beside_groups(Node *node, void *context)
{
	Level *level = context;

	if (node == NULL || tlist_member((Expr *) node, level->groups->targetList) != NULL ||
		(IsA(node, Aggref) && ((Aggref *) node)->agglevelsup == 0))
		return false;
	if (IsA(node, SubLink) || (IsA(node, Var) && ((Var *) node)->varlevelsup == 0))
		return true;
	return expression_tree_walker(node, walk_beside_groups, context);
}

/* Conditions on groups that know nothing else stay there. */
static List *
take_having(Level *level)
{
	List *rest = NIL;
	List *taken = NIL;
	ListCell *cell;

	foreach(cell, make_ands_implicit((Expr *) level->query->havingQual))
	{
		if (walk_beside_groups(lfirst(cell), level))
			rest = lappend(rest, lfirst(cell));
		else
			taken = lappend(taken, lfirst(cell));
	}
	if (taken != NIL)
		level->groups->havingQual = (Node *) make_ands_explicit(taken);
	return rest;
}

/* ORDER BY and LIMIT, if the order depends on the groups alone. */
static void
take_limit(Level *level)
{
	Query *query = level->query;
	ListCell *cell;

	foreach(cell, query->sortClause)
	{
		if (walk_beside_groups(get_sortgroupclause_expr(lfirst(cell), query->targetList), level))
			return;
	}
	foreach(cell, query->sortClause)
	{
		SortGroupClause *clause = copyObject(lfirst_node(SortGroupClause, cell));
		Node *expr = get_sortgroupclause_expr(clause, query->targetList);
		TargetEntry *target = tlist_member((Expr *) expr, level->groups->targetList);

		if (target == NULL)
			target = add_column(level, expr, 0);
		if (target->ressortgroupref == 0)
			target->ressortgroupref = ++level->last_ref;
		clause->tleSortGroupRef = target->ressortgroupref;
		level->groups->sortClause = lappend(level->groups->sortClause, clause);
	}
	level->groups->limitCount = query->limitCount;
	level->groups->limitOffset = query->limitOffset;
	level->groups->limitOption = query->limitOption;
	level->result->limitCount = level->result->limitOffset = NULL;
	level->result->limitOption = LIMIT_OPTION_COUNT;
}

/* ---- the level over them ------------------------------------------------------------------------------------ */

/* The column of a relation that is fetched, which is in the range table from now on. */
static Var *
fetch_column(Level *level, Fetched *fetched, const Var *column)
{
	Var *result = copyObject((Var *) column);

	if (fetched->new_varno == 0)
	{
		RangeTblEntry *rte = copyObject(rt_fetch(fetched->varno, level->query->rtable));
		RangeTblRef *reference = makeNode(RangeTblRef);

		compat_copy_permissions(level->result, rte, level->query);
		level->result->rtable = lappend(level->result->rtable, rte);
		reference->rtindex = fetched->new_varno = list_length(level->result->rtable);
		level->result->jointree->fromlist = lappend(level->result->jointree->fromlist, reference);
	}
	result->varno = result->varnosyn = fetched->new_varno;
	compat_forget_nulling(result);
	return result;
}

/* Expressions over the groups as the rewritten level has them. */
static Node *
replace_columns(Node *node, void *context)
{
	Level *level = context;
	TargetEntry *target;
	Fetched *fetched;

	if (node == NULL || level->failed)
		return NULL;
	target = tlist_member((Expr *) node, level->groups->targetList);
	if (target == NULL && IsA(node, Aggref) && ((Aggref *) node)->agglevelsup == 0)
		target = add_column(level, node, 0);
	if (target != NULL)
		return (Node *) makeVar(GROUPS_VARNO, target->resno, exprType(node), exprTypmod(node),
								exprCollation(node), 0);
	if (IsA(node, Var) && ((Var *) node)->varlevelsup == 0)
	{
		fetched = ((Var *) node)->varattno > 0 ? find_fetched(level, ((Var *) node)->varno) : NULL;
		if (fetched != NULL)
			return (Node *) fetch_column(level, fetched, (Var *) node);
	}
	if (IsA(node, Var) ? ((Var *) node)->varlevelsup == 0 : IsA(node, SubLink) || IsA(node, Aggref))
	{
		level->failed = true;
		return NULL;
	}
	return expression_tree_mutator(node, replace_columns, context);
}

/* Each relation that is fetched meets its row: first those that others depend on. */
static List *
make_conditions(Level *level)
{
	List *conditions = NIL;

	for (int i = list_length(level->fetched) - 1; i >= 0; i--)
	{
		Fetched *fetched = list_nth(level->fetched, i);
		ListCell *cell;

		foreach(cell, fetched->new_varno > 0 ? fetched->key : NIL)
		{
			KeyColumn *column = lfirst(cell);
			Node *source = replace_columns((Node *) column->source, level);

			if (source == NULL)
				continue;
			conditions = lappend(
				conditions, make_opclause(column->equality, BOOLOID, false,
										  (Expr *) fetch_column(level, fetched, column->column),
										  (Expr *) source, InvalidOid, column->column->varcollid));
		}
	}
	return conditions;
}

/* Has a relation that is fetched its rows on the workers?  They are asked for those of the groups: see partner_keys.c. */
static bool
fetches_from_workers(const Level *level)
{
	ListCell *cell;

	foreach(cell, level->result->rtable)
	{
		if (planner_is_distributed(lfirst_node(RangeTblEntry, cell)))
			return true;
	}
	return false;
}

/* The groups as WITH grouped AS MATERIALIZED, which can be read twice. */
static RangeTblEntry *
make_with(Level *level, RangeTblEntry *groups)
{
	CommonTableExpr *with = makeNode(CommonTableExpr);
	RangeTblEntry *entry = makeNode(RangeTblEntry);
	ListCell *cell;

	with->ctename = entry->ctename = "grouped";
	with->ctematerialized = CTEMaterializeAlways;
	with->ctequery = (Node *) groups->subquery;
	with->cterefcount = 1;
	with->location = -1;
	entry->rtekind = RTE_CTE;
	entry->eref = groups->eref;
	entry->inFromCl = true;
	foreach(cell, groups->subquery->targetList)
	{
		Node *expr = (Node *) lfirst_node(TargetEntry, cell)->expr;

		entry->coltypes = lappend_oid(entry->coltypes, exprType(expr));
		entry->coltypmods = lappend_int(entry->coltypmods, exprTypmod(expr));
		entry->colcollations = lappend_oid(entry->colcollations, exprCollation(expr));
	}
	with->ctecolnames = groups->eref->colnames;
	with->ctecoltypes = entry->coltypes;
	with->ctecoltypmods = entry->coltypmods;
	with->ctecolcollations = entry->colcollations;
	level->result->cteList = list_make1(with);
	return entry;
}

static void
make_level(Level *level)
{
	Query *result = makeNode(Query);
	RangeTblRef *reference = makeNode(RangeTblRef);
	RangeTblEntry *groups;
	List *having;
	List *conditions;

	*result = *level->query;
	level->result = result;
	make_groups(level);
	result->groupClause = result->cteList = NIL;
	result->havingQual = NULL;
	result->hasAggs = result->hasRecursive = false;
	compat_forget_permissions(result);
	result->rtable = list_make1(
		makeNode(RangeTblEntry)); /* the groups, when their columns are known */
	reference->rtindex = GROUPS_VARNO;
	result->jointree = makeFromExpr(list_make1(reference), NULL);
	having = take_having(level);
	if (having == NIL && (result->limitCount != NULL || result->limitOffset != NULL))
		take_limit(level);
	result->targetList = (List *) replace_columns((Node *) level->query->targetList, level);
	conditions = (List *) replace_columns((Node *) having, level);
	conditions = list_concat(conditions, make_conditions(level));
	result->jointree->quals = (Node *) make_ands_explicit(conditions);
	result->hasSubLinks = checkExprHasSubLink(result->limitCount) ||
						  checkExprHasSubLink(result->limitOffset);
	IncrementVarSublevelsUp((Node *) level->groups, 1, 1);
	groups = decorrelate_subquery_entry(level->groups, "grouped");
	linitial(result->rtable) = fetches_from_workers(level) ? make_with(level, groups) : groups;
}

bool
late_columns_rewrite(Query *query)
{
	Level level = {0};

	if (!late_columns_may_apply(query))
		return false;
	level.query = copyObject(query);
	compat_flatten_groups(level.query);
	level.query->targetList = (List *) compat_flatten_joins(level.query, level.query->targetList);
	level.query->havingQual = compat_flatten_joins(level.query, level.query->havingQual);
	level.query->jointree = (FromExpr *) compat_flatten_joins(level.query, level.query->jointree);
	level.grouped = get_sortgrouplist_exprs(level.query->groupClause, level.query->targetList);
	if (contain_volatile_functions((Node *) level.query->targetList) ||
		contain_volatile_functions(level.query->havingQual) || groups_by_distribution_key(&level))
		return false;
	find_inner(&level, (Node *) level.query->jointree);
	find_dependent(&level);
	if (level.fetched == NIL)
		return false;
	make_level(&level);
	if (level.failed || list_length(level.result->rtable) == 1)
		return false;
	*query = *level.result;
	return true;
}
