/*
 * session_mark.c
 *		Which sessions here are a coordinator's, and of which epoch.
 *
 * When another coordinator takes over, end_older_sessions() ends the sessions of older epochs.  It
 * knows them by a lock of the session.  Only advisory locks outlive an aborted transaction, but users,
 * whose functions run here, can release all of their session's, and could block a lock whose key
 * they can name.  Hence the fourth field of the key is none that SQL functions use, and a
 * transaction is not committed when the mark is gone: nobody would have ended its session.
 *
 * A second lock of the same kind holds the incarnation of the coordinator, which is another one after
 * each of its starts: the coordinator ends what sessions of former ones have left here.
 *
 * What the coordinator has checked is done for it alone: code of users runs in its sessions, too, as part
 * of statements that it sends.  check_own_statement() knows its own calls by the message's text, which
 * is the plain call with constants: no code of users has a place in such a message.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "parser/parser.h"
#include "storage/lock.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "compat.h"
#include "session_mark.h"

/* The key's second and fourth field, as strata_worker.marked_sessions() knows them; the third is the epoch. */
#define MARK_CLASS 1398034497
#define MARK_KIND 3

/* As strata_worker.registered_sessions() knows it; the second and third field are the incarnation. */
#define INCARNATION_KIND 4

static bool marked = false;
static LOCKTAG mark;
static bool told_parallel_workers = false; /* a setting, as these travel */

PG_FUNCTION_INFO_V1(strata_worker_mark_session);
PG_FUNCTION_INFO_V1(strata_worker_register_session);
PG_FUNCTION_INFO_V1(strata_worker_session_has_mark);
PG_FUNCTION_INFO_V1(strata_worker_check_own_statement);

static void
hold_for_session(const LOCKTAG *tag)
{
	if (!compat_lock_held_by_me(tag, ShareLock))
		(void) LockAcquire(tag, ShareLock, true, false);
}

/* mark_session(epoch): again after another take-over of the same server */
Datum
strata_worker_mark_session(PG_FUNCTION_ARGS)
{
	LOCKTAG wanted;

	SET_LOCKTAG_ADVISORY(wanted, MyDatabaseId, MARK_CLASS, (uint32) PG_GETARG_INT64(0), MARK_KIND);
	hold_for_session(&wanted);
	mark = wanted;
	marked = true;
	SetConfigOption("strata_worker.marked", "on", PGC_SUSET, PGC_S_SESSION);
	PG_RETURN_VOID();
}

/* session_has_mark(epoch) */
Datum
strata_worker_session_has_mark(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(marked && mark.locktag_field3 == (uint32) PG_GETARG_INT64(0));
}

bool
session_is_marked(void)
{
	return marked || (IsParallelWorker() && told_parallel_workers);
}

/* register_session(incarnation) */
Datum
strata_worker_register_session(PG_FUNCTION_ARGS)
{
	uint64 incarnation = (uint64) PG_GETARG_INT64(0);
	LOCKTAG tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (incarnation >> 32), (uint32) incarnation,
						 INCARNATION_KIND);
	hold_for_session(&tag);
	PG_RETURN_VOID();
}

/* The call in SELECT strata_worker.<function>(...), if that is all of the statement; else NULL. */
static const FuncCall *
find_call(const Node *statement)
{
	const SelectStmt *select = (const SelectStmt *) statement;
	const FuncCall *call;

	if (!IsA(statement, SelectStmt) || list_length(select->targetList) != 1 ||
		select->fromClause != NIL || select->whereClause != NULL || select->withClause != NULL)
		return NULL;
	call = (const FuncCall *) linitial_node(ResTarget, select->targetList)->val;
	if (!IsA(call, FuncCall) || list_length(call->funcname) != 2 ||
		strcmp(strVal(linitial(call->funcname)), "strata_worker") != 0)
		return NULL;
	return call;
}

static bool
has_constants_only(const FuncCall *call)
{
	ListCell *cell;

	foreach(cell, call->args)
	{
		if (!IsA(lfirst(cell), A_Const))
			return false;
	}
	return true;
}

/* What the coordinator sends in front of a statement, all of which runs no code of users. */
static bool
is_preamble(const Node *statement, const FuncCall *call)
{
	static const char *const functions[] = {"pin_snapshot", "use_snapshot"};

	for (int i = 0; call != NULL && i < lengthof(functions); i++)
	{
		if (strcmp(strVal(lsecond(call->funcname)), functions[i]) == 0)
			return true;
	}
	return IsA(statement, TransactionStmt) || IsA(statement, VariableSetStmt) ||
		   IsA(statement, ConstraintsSetStmt);
}

/* Does the message that is being run consist of a call of this function, behind such a preamble? */
static bool
message_is_plain_call(const char *function)
{
	bool found = false;
	ListCell *cell;

	if (debug_query_string == NULL)
		return false;
	foreach(cell, raw_parser(debug_query_string, RAW_PARSE_DEFAULT))
	{
		const Node *statement = lfirst_node(RawStmt, cell)->stmt;
		const FuncCall *call = find_call(statement);

		if (call != NULL && strcmp(strVal(lsecond(call->funcname)), function) == 0 &&
			has_constants_only(call))
			found = true;
		else if (!is_preamble(statement, call))
			return false;
	}
	return found;
}

/*
 * check_own_statement(function): ERROR unless the coordinator has called this function of strata_worker by
 * itself, or a superuser has by hand.
 */
Datum
strata_worker_check_own_statement(PG_FUNCTION_ARGS)
{
	const char *function = text_to_cstring(PG_GETARG_TEXT_PP(0));

	if ((!marked && !superuser_arg(GetSessionUserId())) || !message_is_plain_call(function))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("permission denied for function strata_worker.%s", function),
						errdetail("It is for statements of the coordinator's own.")));
	PG_RETURN_VOID();
}

static void
check_mark(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_PRE_COMMIT && event != XACT_EVENT_PRE_PREPARE)
		return;
	if (marked && !compat_lock_held_by_me(&mark, ShareLock))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the mark of the coordinator's session was released"),
				 errdetail("A function has released all advisory locks of the session."),
				 errhint("Functions that run on workers must not call pg_advisory_unlock_all().")));
}

void
session_mark_initialize(void)
{
	DefineCustomBoolVariable("strata_worker.marked",
							 "Whether the session is a coordinator's; tells its parallel workers.",
							 NULL, &told_parallel_workers, false, PGC_SUSET,
							 GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE |
								 GUC_NO_RESET_ALL,
							 NULL, NULL, NULL);
	RegisterXactCallback(check_mark, NULL);
}
