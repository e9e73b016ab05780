/*
 * statement_parts.c
 *		Tables that several parts of a statement with modifying WITH queries use.
 *
 * All parts see the rows as they were before the statement.  What the coordinator reads for them it sees so, by the statement's
 * snapshot (execute/statement_snapshot.c).  A change that runs on the workers would see what other parts have changed there:
 * where parts share tables, the coordinator makes all changes itself (planner_changes_here()).
 *
 * Refused is what that does not suffice for: two parts that may change one row, where PostgreSQL lets the first one win; and
 * new rows that need a key which another part frees, because new rows and changes leave for the workers in an order of
 * their own.  Of a reference table core changes the coordinator's copy, so that it does what PostgreSQL does.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "nodes/nodeFuncs.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "cluster/metadata.h"
#include "plan/statement_parts.h"

void
statement_parts_report(Oid relation, const char *detail)
{
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("cannot use table \"%s\" in these parts of a statement with "
						   "modifying WITH queries",
						   get_rel_name(relation)),
					errdetail_internal("%s", detail),
					errhint("Use several statements in one transaction.")));
}

/* A part of a statement: what one of its commands reads and changes. */
typedef struct PartContext
{
	Oid relation;
	RangeTblEntry *ignored;
} PartContext;

static bool
walk_part(Node *node, PartContext *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = (RangeTblEntry *) node;

		return rte->rtekind == RTE_RELATION && rte->relid == context->relation &&
			   rte != context->ignored;
	}
	if (IsA(node, CommonTableExpr) &&
		castNode(Query, ((CommonTableExpr *) node)->ctequery)->commandType != CMD_SELECT)
		return false; /* another part */
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, walk_part, context, QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, walk_part, context);
}

static bool
walk_locks(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return ((Query *) node)->rowMarks != NIL ||
			   query_tree_walker((Query *) node, walk_locks, context, 0);
	return expression_tree_walker(node, walk_locks, context);
}

static bool
only_inserts(const Query *part)
{
	return part->commandType == CMD_INSERT && part->onConflict == NULL;
}

/* Does it look for the rows that it changes, so that it can be told which ones there were? */
static bool
changes_found_rows(const Query *part)
{
	return part->commandType != CMD_SELECT && part->commandType != CMD_INSERT;
}

/* The relation that a part changes, or NULL. */
static RangeTblEntry *
target_of(const Query *part)
{
	return part->resultRelation != 0 ? rt_fetch(part->resultRelation, part->rtable) : NULL;
}

static bool
has_any_unique_index(Oid relation)
{
	Relation opened = table_open(relation, NoLock);
	bool found = false;
	ListCell *lc;

	foreach(lc, RelationGetIndexList(opened))
	{
		Relation index = index_open(lfirst_oid(lc), AccessShareLock);

		found |= index->rd_index->indisunique;
		index_close(index, NoLock);
	}
	table_close(opened, NoLock);
	return found;
}

/* Why two parts that change a table would not do what PostgreSQL does; NULL: they will. */
static const char *
why_not_both(Query *part, Query *other, Oid relation)
{
	if (only_inserts(part) && only_inserts(other))
		return NULL;
	if (!(only_inserts(part) && changes_found_rows(other)) &&
		!(only_inserts(other) && changes_found_rows(part)))
		return "Both change its rows, or may do so.";
	if (has_any_unique_index(relation))
		return "One may need a key that the other frees, and rows reach the workers in another "
			   "order.";
	return NULL;
}

/* Does `other` read or change what `part` changes?  ERROR if that cannot be done here. */
static bool
share_table(Query *part, Query *other)
{
	RangeTblEntry *others = target_of(other);
	PartContext context = {.relation = target_of(part)->relid};
	const DistributedTable *table = metadata_table(context.relation);
	bool distributed = table != NULL && table->kind == TABLE_DISTRIBUTED;
	const char *why = NULL;

	if (table == NULL)
		return false;
	if (others != NULL && others->relid == context.relation)
	{
		if (distributed)
			why = why_not_both(part, other, context.relation);
		if (!distributed || (only_inserts(part) && only_inserts(other)))
			context.ignored = others;
	}
	if (!walk_part((Node *) other, &context))
		return false;
	if (distributed && walk_locks((Node *) other, NULL))
		why = "One changes rows that the other locks.";
	if (why != NULL)
		statement_parts_report(context.relation, why);
	return true;
}

bool
statement_parts_share(Query *original)
{
	List *parts = list_make1(original);
	bool share = false;
	ListCell *lc;
	ListCell *lc2;

	foreach(lc, original->cteList)
	{
		Query *query = castNode(Query, ((CommonTableExpr *) lfirst(lc))->ctequery);

		if (query->commandType != CMD_SELECT)
			parts = lappend(parts, query);
	}
	foreach(lc, parts)
	{
		Query *part = lfirst(lc);

		foreach(lc2, parts)
		{
			if (part != lfirst(lc2) && target_of(part) != NULL)
				share |= share_table(part, lfirst(lc2));
		}
	}
	return share;
}
