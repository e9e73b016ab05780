/*
 * users_code.c
 *		What code of users may do inside of the coordinator's statements.
 *
 * Users' statements.  An own statement over users' tables computes what users have written.  Code inside of it
 * finds no table here: each holds a part of its rows, no policies, and a copy of a reference table
 * must not be changed alone.  It runs no utility command, and what only reads runs read only.
 * Triggers of foreign keys are excepted, which core runs as the tables' owners.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "caller.h"
#include "compat.h"
#include "session_mark.h"

static ExecutorCheckPerms_hook_type previous_check_permissions = NULL;
static object_access_hook_type previous_object_access = NULL;
static needs_fmgr_hook_type previous_needs_hook = NULL;
static fmgr_hook_type previous_fmgr_hook = NULL;

/* May code inside of a user's statement read the relation? */
static bool
is_open_to_functions(Oid relation)
{
	return relation < FirstNormalObjectId ||
		   OidIsValid(getExtensionOfObject(RelationRelationId, relation)) ||
		   isAnyTempNamespace(get_rel_namespace(relation));
}

static bool
check_permissions(COMPAT_CHECK_PERMISSIONS_ARGUMENTS)
{
	ListCell *lc;

	if (previous_check_permissions != NULL && !previous_check_permissions(COMPAT_PASS_PERMISSIONS))
		return false;
	if (!caller_runs_for_users || InNoForceRLSOperation())
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

/* No object comes, changes or goes in a user's statement; large objects do by functions of core. */
static void
watch_objects(ObjectAccessType access, Oid class, Oid object, int part, void *argument)
{
	if (previous_object_access != NULL)
		previous_object_access(access, class, object, part, argument);
	if (caller_runs_for_users && (access == OAT_POST_CREATE || access == OAT_POST_ALTER ||
								  access == OAT_DROP || access == OAT_TRUNCATE))
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
	if (caller_runs_for_users)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("cannot execute %s in a function that runs on a worker",
							   CreateCommandName(command)),
						errhint("A function that runs commands must be declared VOLATILE, not "
								"IMMUTABLE: then the coordinator evaluates it.")));
}

/* ----------------------------------------------------------------
 * Functions
 *
 * Users' code runs outside of their statements, too: a command computes indexes, constraints and rows of a table
 * that changes, and a constant is checked while a statement is parsed.  Each call is a scope of its own then.
 * (fmgr does not inline SQL functions there.)
 * ----------------------------------------------------------------
 */

/* Extensions' functions, which the coordinator calls, are trusted, and so is what is written in C. */
static bool
is_users_function(Oid function)
{
	HeapTuple tuple;
	bool result;

	if (function < FirstNormalObjectId)
		return false;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_proc) GETSTRUCT(tuple))->prolang != ClanguageId &&
			 ((Form_pg_proc) GETSTRUCT(tuple))->prolang != INTERNALlanguageId;
	ReleaseSysCache(tuple);
	return result && !OidIsValid(getExtensionOfObject(ProcedureRelationId, function));
}

static bool
needs_hook(Oid function)
{
	if (previous_needs_hook != NULL && previous_needs_hook(function))
		return true;
	return !caller_runs_for_users && session_is_marked() && is_users_function(function);
}

static void
watch_call(FmgrHookEventType event, FmgrInfo *function, Datum *private)
{
	if (event == FHET_START)
	{
		bool is_outside = !caller_runs_for_users && session_is_marked() &&
						  is_users_function(function->fn_oid);
		Scope *before = NULL;

		if (is_outside)
			caller_check_nothing_is_parsed();
		if (previous_fmgr_hook != NULL) /* what it changes ends after what we do */
			previous_fmgr_hook(event, function, private);
		if (is_outside)
		{
			before = MemoryContextAlloc(function->fn_mcxt, sizeof(Scope));
			*before = caller_enter(true, true);
		}
		*private = PointerGetDatum(before);
	}
	else
	{
		Scope *before = (Scope *) DatumGetPointer(*private);

		if (before != NULL && event == FHET_END)
			caller_forget_settings(before);
		if (before != NULL)
			caller_leave(*before);
		*private = PointerGetDatum(NULL);
		if (previous_fmgr_hook != NULL)
			previous_fmgr_hook(event, function, private);
	}
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
