/*
 * take_row.c
 *		strata_worker.take_row(): deletes a row that moves to the worker of its new key.
 *
 * The coordinator locks rows by SELECT ... FOR UPDATE in a sub-select, has their new values computed, and calls this for
 * each; it inserts the new rows afterwards, in the same transaction.  DELETE would not do: who waits for the row in READ
 * COMMITTED would find that it is gone, and do nothing without a word.  This marks it as core marks rows that
 * move to another partition, of which others are told by error 40001.
 *
 * It looks at no privileges, which the coordinator has checked, and so it works in the coordinator's own statements alone
 * (own_statement.c), not in code of users inside of them: what is called there was marked before the planner could inline
 * anything, by a location that no parser gives.  Stored expressions lose theirs.
 *
 * Deleting the row fires no triggers, so there may be none: neither a user's, nor those of foreign keys that refer to the
 * table, for which a moved row is not a deleted one.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "take_row.h"

PG_FUNCTION_INFO_V1(strata_worker_take_row);

/* The location of a call that stands in a statement of the coordinator's. */
#define OWN_CALL PG_INT32_MIN

void
take_row_allow(FuncExpr *call)
{
	char *name = NULL;

	if (call->funcid >= FirstNormalObjectId &&
		get_func_namespace(call->funcid) == get_namespace_oid("strata_worker", true))
		name = get_func_name(call->funcid);
	if (name != NULL && strcmp(name, "take_row") == 0)
		call->location = OWN_CALL;
}

static void
check_call(const FmgrInfo *function)
{
	const FuncExpr *call = (const FuncExpr *) function->fn_expr;

	if (call == NULL || !IsA(call, FuncExpr) || call->location != OWN_CALL)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("strata_worker.take_row() is called by the coordinator's own "
							   "statements only")));
}

static void
check_leaf(Relation leaf)
{
	TriggerDesc *triggers = leaf->trigdesc;

	if (leaf->rd_rel->relkind != RELKIND_RELATION || !leaf->rd_rel->relispartition)
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("\"%s\" is not a shard of a distributed table",
							   RelationGetRelationName(leaf))));
	if (triggers != NULL && (triggers->trig_delete_before_row || triggers->trig_delete_after_row))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot move a row of table \"%s\", which has triggers that fire "
							   "when rows are deleted",
							   RelationGetRelationName(leaf))));
}

/* take_row(leaf oid, row tid): false if this statement has taken it before, as UPDATE changes a row once */
Datum
strata_worker_take_row(PG_FUNCTION_ARGS)
{
	Relation leaf;
	TM_FailureData failure;
	TM_Result result;

	check_call(fcinfo->flinfo);
	PreventCommandIfReadOnly("strata_worker.take_row()");
	leaf = table_open(PG_GETARG_OID(0), RowExclusiveLock);
	check_leaf(leaf);
	result = compat_table_tuple_move(leaf, (ItemPointer) PG_GETARG_POINTER(1),
									 GetCurrentCommandId(true), GetActiveSnapshot(), &failure);
	table_close(leaf, NoLock);
	if (result != TM_Ok && result != TM_SelfModified)
		ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
						errmsg("could not serialize access due to concurrent update")));
	PG_RETURN_BOOL(result == TM_Ok);
}
