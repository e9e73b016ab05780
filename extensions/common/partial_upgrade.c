/*
 * partial_upgrade.c
 *		pg_upgrade: partial aggregates are made of the functions that the new major has.
 *
 * A partial (sql/partials.sql) names PostgreSQL's own transition functions, which no major promises to keep: 17 has
 * another one for avg(interval).  The dump that pg_upgrade restores has those of the old major.  So while it restores, CREATE
 * AGGREGATE of such a partial becomes what strata_partial.definition() says here of the aggregate with that name
 * and these arguments; pg_dump writes functions before aggregates.  What was made of a user's aggregate stays as it is,
 * and so does what this major has no aggregate for: its error is pg_upgrade's.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "parser/parser.h"
#include "tcop/utility.h"
#include "utils/builtins.h"

#include "partial_upgrade.h"

static ProcessUtility_hook_type previous_utility = NULL;

/* The name of the partial that the command makes, NULL if it makes none of an aggregate of PostgreSQL's. */
static const char *
partial_name(const DefineStmt *define)
{
	const char *name;

	if (define->kind != OBJECT_AGGREGATE || list_length(define->defnames) != 2 ||
		strcmp(strVal(linitial(define->defnames)), "strata_partial") != 0)
		return NULL;
	name = strVal(lsecond(define->defnames));
	return strchr(name, '.') == NULL ? name : NULL;
}

/* The aggregate of pg_catalog with that name and the command's arguments, or InvalidOid. */
static Oid
find_original(const DefineStmt *define, const char *name)
{
	ObjectWithArgs *original = makeNode(ObjectWithArgs);
	ListCell *cell;

	original->objname = list_make2(makeString("pg_catalog"), makeString(pstrdup(name)));
	foreach(cell, (List *) linitial(define->args))
		original->objargs = lappend(original->objargs,
									lfirst_node(FunctionParameter, cell)->argType);
	return LookupFuncWithArgs(OBJECT_AGGREGATE, original, true);
}

/* The command that makes the partial here; NULL if the one of the dump is as good as any. */
static char *
find_definition(const DefineStmt *define)
{
	MemoryContext context = CurrentMemoryContext;
	Oid types[] = {OIDOID, TEXTOID};
	const char *name = partial_name(define);
	Oid original = name != NULL ? find_original(define, name) : InvalidOid;
	Datum values[2];
	char *definition;

	if (!OidIsValid(original) ||
		!OidIsValid(LookupFuncName(
			list_make2(makeString("strata_partial"), makeString("definition")), 2, types, true)))
		return NULL;
	values[0] = ObjectIdGetDatum(original);
	values[1] = CStringGetTextDatum(name);
	SPI_connect();
	if (SPI_execute_with_args("SELECT strata_partial.definition($1, $2)", 2, types, values, NULL,
							  false, 1) != SPI_OK_SELECT ||
		SPI_processed != 1)
		elog(ERROR, "could not call strata_partial.definition()");
	definition = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	if (definition != NULL)
		definition = MemoryContextStrdup(context, definition);
	SPI_finish();
	return definition;
}

static void
run_utility(PlannedStmt *statement, const char *text, bool read_only_tree,
			ProcessUtilityContext context, ParamListInfo parameters, QueryEnvironment *environment,
			DestReceiver *receiver, QueryCompletion *completion)
{
	char *definition = NULL;

	if (IsA(statement->utilityStmt, DefineStmt))
		definition = find_definition((DefineStmt *) statement->utilityStmt);
	if (definition != NULL)
	{
		statement = copyObject(statement);
		statement->utilityStmt =
			linitial_node(RawStmt, raw_parser(definition, RAW_PARSE_DEFAULT))->stmt;
		text = definition;
	}
	if (previous_utility != NULL)
		previous_utility(statement, text, read_only_tree, context, parameters, environment,
						 receiver, completion);
	else
		standard_ProcessUtility(statement, text, read_only_tree, context, parameters, environment,
								receiver, completion);
}

void
partial_upgrade_initialize(void)
{
	if (!IsBinaryUpgrade)
		return;
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = run_utility;
}
