/*
 * argument.h
 *		Arguments of the SQL functions of schema strata.
 *
 * These functions are not STRICT: those would do nothing, silently.
 */
#ifndef STRATA_ARGUMENT_H
#define STRATA_ARGUMENT_H

#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"

/* ERROR 22004, naming the argument, when it is NULL. */
static inline void
argument_refuse_null(FunctionCallInfo fcinfo, int argument, const char *name)
{
	if (PG_ARGISNULL(argument))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s must not be null", name)));
}

/* A text argument as a C string; ERROR when it is NULL. */
static inline char *
argument_get_text(FunctionCallInfo fcinfo, int argument, const char *name)
{
	argument_refuse_null(fcinfo, argument, name);
	return text_to_cstring(PG_GETARG_TEXT_PP(argument));
}

#endif
