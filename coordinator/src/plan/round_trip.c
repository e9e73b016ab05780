/*
 * round_trip.c
 *		In builds with assertions: does SQL made for workers say what it was made from?
 *
 * ruleutils prints Queries as the parser makes them, and relies on what parsing brings back:
 * implicit casts, collations, the names of a row's columns.  The Queries printed here come from the
 * planner, which has simplified domains, inlined functions and pulled up views; of these parsing brings
 * back something else, and the worker answers another question without a word.  Nobody can list
 * all such shapes.  So every text is parsed and analysed once more, here, where the tables
 * have the same names as on the workers, and the two Queries are compared, in a normal form (query_form.h).
 *
 * The analysis runs as the bootstrap superuser: the names' rights are the business of the
 * statement's check, and a view's owner may know schemas that its reader must not use.
 */
#include "postgres.h"

#ifdef USE_ASSERT_CHECKING

#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "parser/analyze.h"
#include "parser/parse_param.h"
#include "parser/parser.h"
#include "utils/guc.h"
#include "utils/ruleutils.h"

#include "compat.h"
#include "plan/query_form.h"
#include "plan/round_trip.h"

typedef struct ParamTypes
{
	Oid *types;
	int count;
} ParamTypes;

/* Types of the query's parameters, by number. */
static bool
walk_params(Node *node, ParamTypes *params)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, walk_params, params, 0);
	if (IsA(node, Param) && ((Param *) node)->paramkind == PARAM_EXTERN)
	{
		int id = ((Param *) node)->paramid;

		if (id > params->count)
		{
			Oid *types = palloc0(sizeof(Oid) * id);

			memcpy(types, params->types, sizeof(Oid) * params->count);
			params->types = types;
			params->count = id;
		}
		params->types[id - 1] = ((Param *) node)->paramtype;
	}
	return expression_tree_walker(node, walk_params, params);
}

static Query *
analyse(const Query *original, const char *sql)
{
	ParamTypes params = {.types = palloc0(sizeof(Oid))};
	ParseState *pstate = make_parsestate(NULL);
	List *statements;
	Query *query;

	(void) query_tree_walker(unconstify(Query *, original), walk_params, &params, 0);
	statements = raw_parser(sql, RAW_PARSE_DEFAULT);
	if (list_length(statements) != 1)
		elog(ERROR, "the text is %d statements", list_length(statements));
	pstate->p_sourcetext = sql;
	if (params.count > 0)
		setup_parse_fixed_parameters(pstate, params.types, params.count);
	query = transformTopLevelStmt(pstate, linitial_node(RawStmt, statements));
	free_parsestate(pstate);
	return query;
}

/* As a worker would read it; its errors become errors that show the text. */
static Query *
analyse_as_worker(const Query *original, const char *sql)
{
	static const char *const settings[][2] = {
		{"search_path", "pg_catalog, pg_temp"},
		{"array_nulls", "on"},
		{"xmloption", "content"},
	};
	MemoryContext context = CurrentMemoryContext;
	int nest_level = NewGUCNestLevel();
	Query *query = NULL;
	Oid user;
	int security;

	/* what a worker's session has while it parses our statements */
	for (int i = 0; i < lengthof(settings); i++)
		(void) set_config_option(settings[i][0], settings[i][1], PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
	GetUserIdAndSecContext(&user, &security);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID, security | SECURITY_LOCAL_USERID_CHANGE);
	PG_TRY();
	{
		query = analyse(original, sql);
	}
	PG_CATCH();
	{
		ErrorData *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		SetUserIdAndSecContext(user, security);
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR), errmsg("SQL made for workers cannot be read"),
				 errdetail_internal("%s: %s", error->message, sql)));
	}
	PG_END_TRY();
	SetUserIdAndSecContext(user, security);
	AtEOXact_GUC(true, nest_level);
	return query;
}

/* The innermost parts in which two normal forms differ; names: of the parts around them. */
static void
find_difference(Node **made, Node **read, StringInfo names)
{
	bool found = true;

	while (found && *made != NULL && *read != NULL && IsA(*made, List) && IsA(*read, List) &&
		   list_length((List *) *made) == list_length((List *) *read))
	{
		ListCell *lc;
		ListCell *lc2;

		found = false;
		forboth(lc, (List *) *made, lc2, (List *) *read)
		{
			Node *first = linitial((List *) *made);

			if (equal(lfirst(lc), lfirst(lc2)))
				continue;
			if (lc != list_head((List *) *made) && first != NULL && IsA(first, String))
				appendStringInfo(names, "%s, ", strVal(first));
			*made = lfirst(lc);
			*read = lfirst(lc2);
			found = true;
			break;
		}
	}
}

static void
report_difference(Node *made, Node *read, Query *query, const char *sql)
{
	StringInfoData names;

	initStringInfo(&names);
	find_difference(&made, &read, &names);
	ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR),
					errmsg("SQL made for workers does not say what it was made from"),
					errdetail_internal("Different: %s\nThe text: %s\nRead again: %s\nMade from: "
									   "%s\nRead as: %s",
									   names.data, sql, pg_get_querydef(query, false),
									   nodeToString(made), nodeToString(read))));
}

void
round_trip_check(const Query *query, const char *sql)
{
	Query *read = analyse_as_worker(query, sql);
	Node *made_form = query_form(query);
	Node *read_form = query_form(read);

	if (!equal(made_form, read_form))
		report_difference(made_form, read_form, read, sql);
}

#endif
