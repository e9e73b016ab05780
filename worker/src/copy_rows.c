/*
 * copy_rows.c
 *		COPY FROM STDIN as the table's owner, whoever calls.
 *
 * strata.add_worker() copies reference tables as the administrator.  Plain COPY would run what belongs to
 * a table's owner (CHECK constraints, domains, generated columns, indexes on expressions) with
 * the administrator's rights, and make the owner a superuser here.  SET ROLE around the COPY is no
 * cure, as such a function may RESET it.  So this is what core does for CREATE INDEX and ANALYZE:
 * user and security context are switched in C, for the time of the copy, in which SET ROLE, temporary
 * tables and deferred triggers are refused, and settings go back afterwards.
 *
 * A procedure, because its caller then sees the protocol of COPY: CALL sends nothing before the
 * CopyInResponse.  Privileges on the table and its schema are not looked at: the administrator may.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/copy.h"
#include "commands/defrem.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parse_node.h"
#include "parser/parse_relation.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(strata_worker_copy_rows);

static List *
read_column_names(ArrayType *array)
{
	List *names = NIL;
	Datum *elements;
	int count;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elements, NULL, &count);
	for (int i = 0; i < count; i++)
		names = lappend(names, makeString(TextDatumGetCString(elements[i])));
	return names;
}

static void
copy_rows(Relation relation, List *columns, char *format)
{
	ParseState *pstate = make_parsestate(NULL);
	DefElem *option = makeDefElem("format", (Node *) makeString(format), -1);
	CopyFromState copy;

	(void) addRangeTableEntryForRelation(pstate, relation, RowExclusiveLock, NULL, false, false);
	copy = BeginCopyFrom(pstate, relation, NULL, NULL, false, NULL, columns, list_make1(option));
	(void) CopyFrom(copy);
	EndCopyFrom(copy);
	free_parsestate(pstate);
}

/* copy_rows(relation regclass, columns text[], format text) */
Datum
strata_worker_copy_rows(PG_FUNCTION_ARGS)
{
	Relation relation;
	List *columns;
	char *format;
	Oid user;
	int security_context;
	int settings;

	PreventCommandIfReadOnly("strata_worker.copy_rows()");
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2)) /* a procedure cannot be STRICT */
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("arguments of strata_worker.copy_rows() must not be null")));
	relation = table_open(PG_GETARG_OID(0), RowExclusiveLock);
	columns = read_column_names(PG_GETARG_ARRAYTYPE_P(1));
	format = text_to_cstring(PG_GETARG_TEXT_PP(2));

	/* an error restores all of it, as (sub)transactions do */
	GetUserIdAndSecContext(&user, &security_context);
	SetUserIdAndSecContext(relation->rd_rel->relowner,
						   security_context | SECURITY_RESTRICTED_OPERATION);
	settings = NewGUCNestLevel();
	copy_rows(relation, columns, format);
	AtEOXact_GUC(false, settings);
	SetUserIdAndSecContext(user, security_context);

	table_close(relation, NoLock);
	PG_RETURN_VOID();
}
