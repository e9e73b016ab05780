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
 * a full join, where neither is right, in a FROM list of its own, which SQL cannot say: DML with
 * full joins of such tables is refused by ruleutils' error.
 *
 * Inserted rows are not looked at: one that is too old is gone at once.
 */
#include "postgres.h"

#include "period_cutoff.h"

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
make_condition(const DistributedTable *table, Index rti)
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

static Expr *collect_conditions(Query *query, Node **item);

/* A side of a full join. */
static void
wrap_side(Query *query, Node **side)
{
	Expr *condition = collect_conditions(query, side);

	if (condition != NULL)
		*side = (Node *) makeFromExpr(list_make1(*side), (Node *) condition);
}

/* Place the conditions of a FROM item where they belong; returns those that belong into the WHERE above. */
static Expr *
collect_conditions(Query *query, Node **item)
{
	Expr *condition = NULL;

	if (IsA(*item, RangeTblRef))
	{
		Index rti = ((RangeTblRef *) *item)->rtindex;
		const DistributedTable *table = find_cut_table(rt_fetch(rti, query->rtable));

		return table != NULL ? make_condition(table, rti) : NULL;
	}
	if (IsA(*item, FromExpr))
	{
		FromExpr *from = (FromExpr *) *item;
		ListCell *cell;

		foreach(cell, from->fromlist)
		{
			Node *child = lfirst(cell);

			add_condition(&from->quals, collect_conditions(query, &child));
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
				condition = collect_conditions(query, &join->larg);
				return join_conditions(condition, collect_conditions(query, &join->rarg));
			case JOIN_LEFT:
				add_condition(&join->quals, collect_conditions(query, &join->rarg));
				return collect_conditions(query, &join->larg);
			case JOIN_RIGHT:
				add_condition(&join->quals, collect_conditions(query, &join->larg));
				return collect_conditions(query, &join->rarg);
			default:
				wrap_side(query, &join->larg);
				wrap_side(query, &join->rarg);
				return NULL;
		}
	}
	return NULL;
}

/* MERGE's target is not among the FROM items: an expired row is one that does not match. */
static void
cut_merge_target(Query *query)
{
	const DistributedTable *table;

	if (query->commandType != CMD_MERGE)
		return;
	table = find_cut_table(rt_fetch(query->resultRelation, query->rtable));
	if (table != NULL)
		add_condition(compat_merge_condition(query), make_condition(table, query->resultRelation));
}

static bool
walk_queries(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		Query *query = (Query *) node;

		if (query->jointree != NULL)
		{
			Node *top = (Node *) query->jointree;

			(void) collect_conditions(query, &top);
			cut_merge_target(query);
		}
		return query_tree_walker(query, walk_queries, context, 0);
	}
	return expression_tree_walker(node, walk_queries, context);
}

void
period_cutoff_apply(Query *query)
{
	(void) walk_queries((Node *) query, NULL);
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

void
period_check_snapshot(const QueryDesc *query, bool nested)
{
	uint64 oldest = U64FromFullTransactionId(ReadNextFullTransactionId()) - MaxTransactionId / 2;
	ListCell *cell;

	/* else the snapshot is, or will be, taken under the locks of the statement's tables */
	if (!nested && !IsolationUsesXactSnapshot())
		return;
	if (query->snapshot == NULL || !IsMVCCSnapshot(query->snapshot))
		return;
	foreach(cell, query->plannedstmt->rtable)
	{
		const RangeTblEntry *rte = lfirst(cell);
		const DistributedTable *table = rte->rtekind == RTE_RELATION ? metadata_table(rte->relid)
																	 : NULL;
		FullTransactionId moved_by;
		TransactionId xid;

		if (!metadata_has_periods(table))
			continue;
		moved_by = table->periods.moved_by;
		xid = XidFromFullTransactionId(moved_by);
		if (FullTransactionIdIsValid(moved_by) &&
			(int64) (U64FromFullTransactionId(moved_by) - oldest) > 0 &&
			!TransactionIdIsCurrentTransactionId(xid) && XidInMVCCSnapshot(xid, query->snapshot))
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("could not serialize access because rows of table \"%s\" moved",
							get_rel_name(rte->relid)),
					 errdetail("They moved to another partition after the snapshot was taken."),
					 errhint("The transaction might succeed if retried.")));
	}
}
