/*
 * users_code.c
 *		What code of users may do inside of the coordinator's statements.
 *
 * Users' statements.  An own statement over users' tables computes what users have written.  Code inside of it
 * finds no table here: each holds a part of its rows, no policies, and a copy of a reference table
 * must not be changed alone.  It runs no utility command, makes no object, sees no statement's text, and what
 * only reads runs read only.
 * Queries of foreign keys are excepted, which core runs as the tables' owners, but not what these compute.
 *
 * Commands compute what users have written, too (indexes, constraints, defaults).  SQL inside of them is held
 * alike, that of SECURITY DEFINER functions included: a superuser's, which everybody may call, would change one
 * copy of a table.  Only those of strata_partial, which an event trigger calls, are let through.  So it is when
 * this server itself maintains tables (autovacuum), if the library is preloaded.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "caller.h"
#include "compat.h"
#include "relation_owner.h"

static ExecutorCheckPerms_hook_type previous_check_permissions = NULL;
static object_access_hook_type previous_object_access = NULL;
static needs_fmgr_hook_type previous_needs_hook = NULL;
static fmgr_hook_type previous_fmgr_hook = NULL;

/*
 * May code inside of a user's statement read the relation?  Whoever owns an extension can make a table of his own
 * its member.
 */
static bool
is_open_to_functions(Oid relation)
{
	return relation < FirstNormalObjectId ||
		   (OidIsValid(getExtensionOfObject(RelationRelationId, relation)) &&
			superuser_arg(get_relation_owner(relation))) ||
		   isAnyTempNamespace(get_rel_namespace(relation));
}

static bool
check_permissions(COMPAT_CHECK_PERMISSIONS_ARGUMENTS)
{
	ListCell *lc;

	if (previous_check_permissions != NULL && !previous_check_permissions(COMPAT_PASS_PERMISSIONS))
		return false;
	if (!caller_is_watched() || caller_is_key_query())
		return true;
	foreach(lc, COMPAT_PERMISSIONS_LIST)
	{
		CompatPermissions *permissions = lfirst(lc);

		if (permissions->requiredPerms == 0 || OidIsValid(permissions->checkAsUser) ||
			!OidIsValid(permissions->relid) ||
			((permissions->requiredPerms & ~ACL_SELECT) == 0 &&
			 is_open_to_functions(permissions->relid)))
			continue;
		if (!ereport_on_violation)
			return false;
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot use table \"%s\" in a function that runs on a worker",
						get_rel_name(permissions->relid)),
				 errdetail("A worker has a part of the rows, and the coordinator checks privileges "
						   "and policies."),
				 errhint("A function that reads tables must be declared STABLE or VOLATILE, not "
						 "IMMUTABLE: then the coordinator evaluates it.")));
	}
	return true;
}

/*
 * Does it show statements?  Those here are the coordinator's: they name what a view, or a function of somebody
 * else's, hides from the user, with values that these have read.  By name: of an extension, in whatever schema.
 */
static bool
shows_statements(Oid function)
{
	const char *name;

	if (function < FirstNormalObjectId)
		return function == F_CURRENT_QUERY || function == F_PG_STAT_GET_ACTIVITY ||
			   function == F_PG_STAT_GET_BACKEND_ACTIVITY;
	name = get_func_name(function);
	return name != NULL && strcmp(name, "pg_stat_statements") == 0;
}

static void
check_execution(Oid function)
{
	if ((caller_is_watched() || caller_is_parsing()) && shows_statements(function))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("cannot call function \"%s\" in a function that runs on a worker",
							   get_func_name(function)),
						errdetail("It shows statements of the coordinator."),
						errhint("A function that calls it must be declared STABLE or VOLATILE, not "
								"IMMUTABLE: then the coordinator evaluates it.")));
}

/* No object comes, changes or goes in a user's statement; large objects do by functions of core. */
static void
watch_objects(ObjectAccessType access, Oid class, Oid object, int part, void *argument)
{
	if (previous_object_access != NULL)
		previous_object_access(access, class, object, part, argument);
	if (access == OAT_FUNCTION_EXECUTE)
		check_execution(object);
	if ((caller_runs_for_users || caller_is_in_key_query()) &&
		(access == OAT_POST_CREATE || access == OAT_POST_ALTER || access == OAT_DROP ||
		 access == OAT_TRUNCATE))
		ereport(
			ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("cannot create, change or drop objects in a function that runs on a worker"),
			 errhint("A function that does so must be declared VOLATILE, not IMMUTABLE: then the "
					 "coordinator evaluates it.")));
}

/* A command of code, not of the coordinator: does it run inside of what must not run any? */
void
users_code_check_command(Node *command)
{
	if (caller_is_command(command))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("only the coordinator can say who acts on a worker")));
	caller_check_nothing_is_parsed();
	if (caller_is_watched())
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("cannot execute %s in a function that runs on a worker",
							   CreateCommandName(command)),
						errhint("A function that runs commands must be declared VOLATILE, not "
								"IMMUTABLE: then the coordinator evaluates it.")));
}

/* The catalog's row of a function that is not PostgreSQL's own; false if there is none. */
static bool
read_function(Oid function, FormData_pg_proc *form)
{
	HeapTuple tuple;

	if (function < FirstNormalObjectId)
		return false;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (!HeapTupleIsValid(tuple))
		return false;
	memcpy(form, GETSTRUCT(tuple), offsetof(FormData_pg_proc, proargtypes));
	ReleaseSysCache(tuple);
	return true;
}

/*
 * While a statement is parsed nothing holds what a function does (a constant can be checked by one), so none of users' runs.
 * fmgr tells of a call when it has applied the function's own settings, and of its end when these are gone: so
 * this only looks, and changes nothing of the user's and his settings.
 */
static bool
is_users_function(Oid function)
{
	FormData_pg_proc form;

	return read_function(function, &form) && !superuser_arg(form.proowner);
}

/* A function of strata_partial that works with its owner's rights: nobody else can make one there. */
static bool
keeps_partials(Oid function)
{
	FormData_pg_proc form;

	return read_function(function, &form) && form.prosecdef && superuser_arg(form.proowner) &&
		   form.pronamespace == get_namespace_oid("strata_partial", true);
}

static bool
needs_hook(Oid function)
{
	if (previous_needs_hook != NULL && previous_needs_hook(function))
		return true;
	return caller_is_parsing() && is_users_function(function);
}

static void
watch_call(FmgrHookEventType event, FmgrInfo *function, Datum *private)
{
	if (event == FHET_START && is_users_function(function->fn_oid))
		caller_check_nothing_is_parsed();
	if (previous_fmgr_hook != NULL)
		previous_fmgr_hook(event, function, private);
	if (!keeps_partials(function->fn_oid))
		return;
	if (event == FHET_START) /* the last that is done: fmgr tells of the end of what has begun */
		caller_begin_upkeep();
	else
		caller_end_upkeep();
}

void
users_code_initialize(void)
{
	previous_check_permissions = ExecutorCheckPerms_hook;
	ExecutorCheckPerms_hook = check_permissions;
	previous_object_access = object_access_hook;
	object_access_hook = watch_objects;
	previous_needs_hook = needs_fmgr_hook;
	needs_fmgr_hook = needs_hook;
	previous_fmgr_hook = fmgr_hook;
	fmgr_hook = watch_call;
}
