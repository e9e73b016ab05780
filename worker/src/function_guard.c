/*
 * function_guard.c
 *		While the administrator works on users' tables, functions of ordinary roles have their owners' rights only.
 *
 * strata.add_worker() creates everybody's objects as the administrator, and periods.sql makes leaves and looks
 * into them.  Some of that computes: the planner folds an IMMUTABLE function of constants in a generated column,
 * a CHECK constraint or an index, ATTACH PARTITION does, too, and a foreign key reads rows.
 * Such a function belongs to somebody who must not become the administrator by it.  So
 * strata_worker.guard_functions() has every such function run as its owner, until the transaction ends or it is told otherwise, in a
 * security-restricted operation, as core runs the functions of indexes.
 *
 * It is done in fmgr's hook, which sees each call of a function that is not built in.  (fmgr does not inline
 * SQL functions then.)  Who runs restricted already is left alone, unless as a superuser: copy_rows.c and CREATE
 * INDEX have switched to the table's owner, who is the administrator while he makes it (CREATE TABLE ...
 * PARTITION OF copies indexes).  Functions of superusers are trusted, and core's own
 * with harmful effects are not IMMUTABLE, hence not folded; rows are computed in copy_rows.c only.
 *
 * Such a function touches no table here, not even its owner's: it would change one copy of a reference table
 * (caller_is_watched).
 *
 * Calls nest strictly, so who ran before each is a stack, in TopTransactionContext.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_authid_d.h"
#include "catalog/pg_proc.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "function_guard.h"

/* What was before a call; `switched` says whether the call has changed it. */
typedef struct Caller
{
	bool switched;
	Oid user;
	int security_context;
	int settings;
} Caller;

static bool guarded = false;
static int guarded_at = 0;	/* the nesting level of the transaction in which that began */
static List *callers = NIL; /* of Caller, the innermost one last */
static needs_fmgr_hook_type previous_needs_hook = NULL;
static fmgr_hook_type previous_hook = NULL;

PG_FUNCTION_INFO_V1(strata_worker_guard_functions);

typedef struct FunctionTraits
{
	Oid owner;
	bool is_definer;   /* SECURITY DEFINER */
	bool has_settings; /* SET clauses */
} FunctionTraits;

static FunctionTraits
get_traits(Oid function)
{
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	FunctionTraits traits = {.owner = BOOTSTRAP_SUPERUSERID};

	if (HeapTupleIsValid(tuple))
	{
		traits.owner = ((Form_pg_proc) GETSTRUCT(tuple))->proowner;
		traits.is_definer = ((Form_pg_proc) GETSTRUCT(tuple))->prosecdef;
		traits.has_settings = !heap_attisnull(tuple, Anum_pg_proc_proconfig, NULL);
		ReleaseSysCache(tuple);
	}
	return traits;
}

static bool
needs_hook(Oid function)
{
	if (previous_needs_hook != NULL && previous_needs_hook(function))
		return true;
	return guarded && !superuser_arg(get_traits(function).owner);
}

/*
 * fmgr has applied SECURITY DEFINER and SET clauses before it tells us of a call, and takes them back before it tells us of
 * the end.  So what it has changed is not saved here, and no nesting level is opened above its own.
 */
static void
begin_call(Oid function)
{
	MemoryContext previous = MemoryContextSwitchTo(TopTransactionContext);
	Caller *caller = palloc0(sizeof(Caller));
	FunctionTraits traits = get_traits(function);

	callers = lappend(callers, caller);
	MemoryContextSwitchTo(previous);
	if ((InSecurityRestrictedOperation() && !superuser()) || superuser_arg(traits.owner))
		return;
	GetUserIdAndSecContext(&caller->user, &caller->security_context);
	SetUserIdAndSecContext(traits.owner, caller->security_context | SECURITY_RESTRICTED_OPERATION);
	caller->switched = !traits.is_definer;
	caller->settings = caller->switched && !traits.has_settings ? NewGUCNestLevel() : 0;
}

/* After an error settings go back with the (sub)transaction. */
static void
end_call(bool failed)
{
	Caller *caller;

	if (callers == NIL) /* the call began before we were asked to guard */
		return;
	caller = llast(callers);
	callers = list_delete_last(callers);
	if (caller->switched)
	{
		if (!failed && caller->settings > 0)
			AtEOXact_GUC(false, caller->settings);
		SetUserIdAndSecContext(caller->user, caller->security_context);
	}
	pfree(caller);
}

static void
watch_call(FmgrHookEventType event, FmgrInfo *function, Datum *private)
{
	if (previous_hook != NULL)
		previous_hook(event, function, private);
	if (!guarded)
		return;
	if (event == FHET_START)
		begin_call(function->fn_oid);
	else
		end_call(event == FHET_ABORT);
}

static void
end_transaction(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_PREPARE && event != XACT_EVENT_ABORT)
		return;
	guarded = false;
	callers = NIL;
}

/* Whoever has switched it on inside of a savepoint does not get to switch it off any more. */
static void
end_subtransaction(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB && guarded &&
		guarded_at >= GetCurrentTransactionNestLevel())
		guarded = false;
}

bool
function_guard_switch(bool enable)
{
	bool before = guarded;

	guarded = enable;
	if (enable && !before)
		guarded_at = GetCurrentTransactionNestLevel();
	return before;
}

bool
function_guard_is_up(void)
{
	return guarded;
}

/* guard_functions(enable): from now on, until the transaction ends; what was before */
Datum
strata_worker_guard_functions(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(function_guard_switch(PG_GETARG_BOOL(0)));
}

void
function_guard_initialize(void)
{
	previous_needs_hook = needs_fmgr_hook;
	needs_fmgr_hook = needs_hook;
	previous_hook = fmgr_hook;
	fmgr_hook = watch_call;
	RegisterXactCallback(end_transaction, NULL);
	RegisterSubXactCallback(end_subtransaction, NULL);
}
