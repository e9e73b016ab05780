/*
 * period_cutoff.c
 *		Rows before a table's cut-off do not exist: for any statement, from one moment on.
 *
 * Retention publishes a cut-off in the metadata (period_maintenance.c); leaves that lie before it are dropped
 * later, worker by worker.  In between no statement may see their rows, so each query gets
 * the condition "column >= cut-off" for each such table before it is planned: a constant, which is the same
 * for all workers and by which they leave out leaves.  A change of the metadata invalidates cached plans.
 *
 * The condition stands where it means "as if the table had only these rows", and where SQL can
 * say it, because DML is shipped as text: in WHERE; for the nullable side of an outer join in ON; below
 * a full join, where neither is right, in a FROM list of its own, which SQL cannot say: UPDATE, DELETE and
 * MERGE with full joins of such tables are refused.
 *
 * Inserted rows are not looked at: one that is too old is gone at once, and ON CONFLICT DO UPDATE changes none
 * that is.
 *
 * Who reads such a table reads its period column: privileges are asked for it here, because the workers ask for it.
 */
#include "postgres.h"

#include "plan/period_cutoff.h"

#include "access/stratnum.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "compat.h"

/* The relation's table if it has a cut-off, else NULL. */
static const DistributedTable *
find_cut_table(const RangeTblEntry *rte)
{
	const DistributedTable *table;

	if (rte->rtekind != RTE_RELATION || rte->relkind != RELKIND_RELATION)
		return NULL;
	table = metadata_table(rte->relid);
	return metadata_has_periods(table) && table->periods.cutoff[0] != '\0' ? table : NULL;
}

static Expr *
make_condition(Query *query, const DistributedTable *table, Index rti)
{
	Oid type;
	int32 typmod;
	Oid collation;
	Oid input;
	Oid parameter;
	Oid operator;
	int16 length;
	bool by_value;
	Expr *condition;
	Const *value;

	compat_read_column(query, rt_fetch(rti, query->rtable), table->periods.attribute);
	get_atttypetypmodcoll(table->relation, table->periods.attribute, &type, &typmod, &collation);
	operator= get_opfamily_member(get_opclass_family(GetDefaultOpClass(type, BTREE_AM_OID)), type,
								  type, BTGreaterEqualStrategyNumber);
	getTypeInputInfo(type, &input, &parameter);
	get_typlenbyval(type, &length, &by_value);
	value = makeConst(type, -1, InvalidOid, length,
					  OidInputFunctionCall(input, pstrdup(table->periods.cutoff), parameter, -1),
					  false, by_value);
	condition = make_opclause(operator, BOOLOID, false,
							  (Expr *) makeVar(rti, table->periods.attribute, type, typmod,
											   collation, 0),
							  (Expr *) value, InvalidOid, InvalidOid);
	set_opfuncid((OpExpr *) condition);
	return condition;
}

static void
add_condition(Node **quals, Expr *condition)
{
	if (condition != NULL)
		*quals = make_and_qual(*quals, (Node *) condition);
}

static Expr *
join_conditions(Expr *one, Expr *other)
{
	if (one == NULL || other == NULL)
		return one == NULL ? other : one;
	return (Expr *) make_and_qual((Node *) one, (Node *) other);
}

typedef struct Cutting
{
	Query *query;
	bool shipped; /* as text, whatever of it is not SQL */
} Cutting;

static Expr *collect_conditions(const Cutting *cutting, Node **item);

/* A side of a full join. */
static void
wrap_side(const Cutting *cutting, Node **side)
{
	Expr *condition = collect_conditions(cutting, side);

	if (condition == NULL)
		return;
	if (cutting->shipped)
		ereport(
			ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg(
				 "UPDATE, DELETE and MERGE cannot contain a full join of a table with retention"),
			 errhint("Keep what the join returns in a temporary table first.")));
	*side = (Node *) makeFromExpr(list_make1(*side), (Node *) condition);
}

/* Place the conditions of a FROM item where they belong; returns those that belong into the WHERE above. */
static Expr *
collect_conditions(const Cutting *cutting, Node **item)
{
	Query *query = cutting->query;
	Expr *condition = NULL;

	if (IsA(*item, RangeTblRef))
	{
		Index rti = ((RangeTblRef *) *item)->rtindex;
		const DistributedTable *table = find_cut_table(rt_fetch(rti, query->rtable));

		return table != NULL ? make_condition(query, table, rti) : NULL;
	}
	if (IsA(*item, FromExpr))
	{
		FromExpr *from = (FromExpr *) *item;
		ListCell *cell;

		foreach(cell, from->fromlist)
		{
			Node *child = lfirst(cell);

			add_condition(&from->quals, collect_conditions(cutting, &child));
			lfirst(cell) = child;
		}
		return NULL;
	}
	if (IsA(*item, JoinExpr))
	{
		JoinExpr *join = (JoinExpr *) *item;

		switch (join->jointype)
		{
			case JOIN_INNER:
				condition = collect_conditions(cutting, &join->larg);
				return join_conditions(condition, collect_conditions(cutting, &join->rarg));
			case JOIN_LEFT:
				add_condition(&join->quals, collect_conditions(cutting, &join->rarg));
				return collect_conditions(cutting, &join->larg);
			case JOIN_RIGHT:
				add_condition(&join->quals, collect_conditions(cutting, &join->larg));
				return collect_conditions(cutting, &join->rarg);
			default:
				wrap_side(cutting, &join->larg);
				wrap_side(cutting, &join->rarg);
				return NULL;
		}
	}
	return NULL;
}

/*
 * MERGE compares its source and its target in a condition of its own: expired rows of either match nothing,
 * and nothing is done about such rows of the source.
 */
static void
cut_merge(const Cutting *cutting)
{
	Query *query = cutting->query;
	ListCell *cell;

	foreach(cell, query->jointree->fromlist)
	{
		Node *source = lfirst(cell);
		Expr *condition = collect_conditions(cutting, &source);
		ListCell *action_cell;

		lfirst(cell) = source;
		add_condition(compat_merge_condition(query), condition);
		foreach(action_cell, query->mergeActionList)
		{
			MergeAction *action = lfirst(action_cell);

			if (compat_merges_unmatched_source(action))
				add_condition(&action->qual, copyObject(condition));
		}
	}
}

/*
 * The target of MERGE and of ON CONFLICT is not among the FROM items: an expired row is one that does not
 * match, or is not updated.
 */
static void
cut_target(Query *query)
{
	bool updates = query->onConflict != NULL && query->onConflict->action == ONCONFLICT_UPDATE;
	const DistributedTable *table;

	if (query->commandType != CMD_MERGE && !updates)
		return;
	table = find_cut_table(rt_fetch(query->resultRelation, query->rtable));
	if (table != NULL)
		add_condition(updates ? &query->onConflict->onConflictWhere : compat_merge_condition(query),
					  make_condition(query, table, query->resultRelation));
}

/* Do the workers get this statement as text?  SELECT and INSERT ... SELECT are planned. */
static bool
is_shipped(const Query *query)
{
	switch (query->commandType)
	{
		case CMD_UPDATE:
		case CMD_DELETE:
		case CMD_MERGE:
			return metadata_table(rt_fetch(query->resultRelation, query->rtable)->relid) != NULL;
		default:
			return false;
	}
}

/* `context` is the Cutting of the query above. */
static bool
walk_queries(Node *node, void *context)
{
	const Cutting *above = context;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		Query *query = (Query *) node;
		Cutting cutting = {.query = query, .shipped = above->shipped || is_shipped(query)};

		if (query->jointree != NULL)
		{
			Node *top = (Node *) query->jointree;

			if (query->commandType == CMD_MERGE)
				cut_merge(&cutting);
			else
				(void) collect_conditions(&cutting, &top);
			cut_target(query);
		}
		return query_tree_walker(query, walk_queries, &cutting, 0);
	}
	return expression_tree_walker(node, walk_queries, context);
}

void
period_cutoff_apply(Query *query)
{
	Cutting none = {NULL, false};

	(void) walk_queries((Node *) query, &none);
}

char *
period_cutoff_condition(const DistributedTable *table)
{
	if (!metadata_has_periods(table) || table->periods.cutoff[0] == '\0')
		return "";
	return psprintf("%s >= %s",
					quote_identifier(get_attname(table->relation, table->periods.attribute, false)),
					quote_literal_cstr(table->periods.cutoff));
}
