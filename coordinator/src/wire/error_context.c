/*
 * error_context.c
 *		What of a worker's error is for the client, and what for this server's log.
 *
 * SQL that a worker is sent has the statement's parameters as literals, and DO blocks of ours whose text
 * tells nobody anything.  Clients write errors into logs of their own, where values of rows that
 * their statements never showed have no place.  So they get as CONTEXT which worker it was, and what the
 * worker says of functions of theirs; the remote SQL is in the DETAIL of this server's log, as
 * parameters are with log_parameter_max_length_on_error.
 */
#include "postgres.h"

#include "wire/error_context.h"

/* Is the context one of commands of our own: blocks of DO, functions of strata_worker? */
static bool
is_internal(const char *context)
{
	return strstr(context, "inline_code_block") != NULL ||
		   strstr(context, "function strata_worker.") != NULL;
}

int
error_context_set(const char *worker_name, const char *detail, const char *context, const char *sql)
{
	if (detail != NULL)
		errdetail_internal("%s", detail);
	if (sql[0] != '\0')
		errdetail_log("%s%s%s%sworker \"%s\", remote SQL: %s", detail != NULL ? detail : "",
					  detail != NULL ? "\n" : "", context != NULL ? context : "",
					  context != NULL ? "\n" : "", worker_name, sql);
	if (context != NULL && !is_internal(context))
		errcontext("%s", context);
	return errcontext("worker \"%s\"", worker_name);
}
