/*
 * checked_value.c
 *		strata.checked_value(): a new value of a row that policies and views let in, or core's error.
 *
 * Policies and WITH CHECK OPTION stand on the coordinator, and the new rows of an UPDATE are made on the workers.  There a
 * column is assigned the value that this returns, whose second argument is the condition over the new row: so it is checked
 * where core checks it, before constraints and unique keys tell anything about rows that the user must not
 * see.  The coordinator has the function to read what it writes for others.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(strata_checked_value);

/* The errors of ExecWithCheckOptions(); policy: NULL if it is none that alone forbids the row. */
static void
report_violation(bool is_view, const char *relation, const char *policy)
{
	if (is_view)
		ereport(ERROR, (errcode(ERRCODE_WITH_CHECK_OPTION_VIOLATION),
						errmsg("new row violates check option for view \"%s\"", relation)));
	if (policy != NULL)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("new row violates row-level security policy \"%s\" for table \"%s\"",
							   policy, relation)));
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("new row violates row-level security policy for table \"%s\"", relation)));
}

/* checked_value(value anyelement, holds boolean, is_view boolean, relation text, policy text) */
Datum
strata_checked_value(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(2) || PG_ARGISNULL(3))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("relation must not be null")));
	if (PG_ARGISNULL(1) || !PG_GETARG_BOOL(1))
		report_violation(PG_GETARG_BOOL(2), text_to_cstring(PG_GETARG_TEXT_PP(3)),
						 PG_ARGISNULL(4) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(4)));
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	PG_RETURN_DATUM(PG_GETARG_DATUM(0));
}
