/*
 * compat.h
 *		Differences between PostgreSQL's major versions, in one place.
 *
 * Every PG_VERSION_NUM test of the project stands here; the rest of the code
 * is written against the names below.  They are macros and inline functions, so
 * that an extension pays only for those it uses.  It is long so that there is one file to go through
 * for a new major.
 */
#ifndef STRATA_COMPAT_H
#define STRATA_COMPAT_H

#include "postgres.h"

#include "access/tableam.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_database_d.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "storage/block.h"
#include "utils/syscache.h"

#if PG_VERSION_NUM < 150000
#error "PostgreSQL 15 or later is needed"
#endif

/* VARDATA() and its like left postgres.h in 16. */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* Physical files of a relation: RelFileNode became RelFileLocator in 16. */
#if PG_VERSION_NUM >= 160000
typedef RelFileLocator CompatFileLocator;
#define compat_am_set_new_filelocator relation_set_new_filelocator
#else
typedef RelFileNode CompatFileLocator;
#define compat_am_set_new_filelocator relation_set_new_filenode
#endif

/* Files by tablespace and number: needs catalog/catalog.h, utils/relcache.h, utils/relfilenumbermap.h. */
#if PG_VERSION_NUM >= 160000
#define COMPAT_FILE_MAP_HEADER "utils/relfilenumbermap.h"
#define compat_make_file_locator(tablespace, database, number) \
	((CompatFileLocator){.spcOid = (tablespace), .dbOid = (database), .relNumber = (number)})
#define compat_file_tablespace(locator) ((locator).spcOid)
#define compat_file_number(locator) ((locator).relNumber)
#define compat_new_file_number(tablespace) \
	GetNewRelFileNumber(tablespace, NULL, RELPERSISTENCE_PERMANENT)
#define compat_relation_of_file(tablespace, number) RelidByRelfilenumber(tablespace, number)
#define compat_assume_new_file(relation) RelationAssumeNewRelfilelocator(relation)
#define compat_new_file_subtransaction(relation) ((relation)->rd_newRelfilelocatorSubid)
#else
#define COMPAT_FILE_MAP_HEADER "utils/relfilenodemap.h"
#define compat_make_file_locator(tablespace, database, number) \
	((CompatFileLocator){.spcNode = (tablespace), .dbNode = (database), .relNode = (number)})
#define compat_file_tablespace(locator) ((locator).spcNode)
#define compat_file_number(locator) ((locator).relNode)
#define compat_new_file_number(tablespace) \
	GetNewRelFileNode(tablespace, NULL, RELPERSISTENCE_PERMANENT)
#define compat_relation_of_file(tablespace, number) RelidByRelfilenode(tablespace, number)
#define compat_assume_new_file(relation) RelationAssumeNewRelfilenode(relation)
#define compat_new_file_subtransaction(relation) ((relation)->rd_newRelfilenodeSubid)
#endif

/* The name of a block in the table of shared buffers. */
#if PG_VERSION_NUM >= 160000
#define compat_init_buffer_tag(tag, file, block) InitBufferTag(tag, &(file), MAIN_FORKNUM, block)
#else
#define compat_init_buffer_tag(tag, file, block) INIT_BUFFERTAG(*(tag), file, MAIN_FORKNUM, block)
#endif

/* What MERGE compares, in a query that is not planned yet: it left the FROM items' quals in 17. */
#if PG_VERSION_NUM >= 170000
#define compat_merge_condition(query) (&(query)->mergeJoinCondition)
#define compat_merges_unmatched_source(action) \
	((action)->matchKind == MERGE_WHEN_NOT_MATCHED_BY_TARGET)
#define compat_merges_unmatched_target(action) \
	((action)->matchKind == MERGE_WHEN_NOT_MATCHED_BY_SOURCE)
#else
#define compat_merge_condition(query) (&(query)->jointree->quals)
#define compat_merges_unmatched_source(action) (!(action)->matched)
#define compat_merges_unmatched_target(action) ((void) (action), false)
#endif

/* Direct I/O of data files, since 16: the kernel keeps nothing that was read ahead. */
#if PG_VERSION_NUM >= 160000
#define compat_reads_bypass_kernel() ((io_direct_flags & IO_DIRECT_DATA) != 0)
#else
#define compat_reads_bypass_kernel() false
#endif

/* The index of our PGPROC, below MaxBackends for sessions; needs storage/proc.h. */
#if PG_VERSION_NUM >= 170000
#define compat_my_proc_index() MyProcNumber
#else
#define compat_my_proc_index() (MyProc->pgprocno)
#endif

/* TableAmRoutine.tuple_update tells which indexes need the new version: an enum since 16. */
#if PG_VERSION_NUM >= 160000
typedef TU_UpdateIndexes CompatUpdateIndexes;
#else
typedef bool CompatUpdateIndexes;
#endif

/*
 * ANALYZE names the sampled blocks to the access method one by one up to 16,
 * and through a read stream since 17.  compat_analyze_take_block() takes the
 * next block without reading it, compat_analyze_next_block_number() its number;
 * false when there is none.
 */
#if PG_VERSION_NUM >= 170000
#include "storage/read_stream.h"

#define COMPAT_ANALYZE_BLOCK_ARGUMENTS ReadStream *stream
#define compat_analyze_take_block() analyze_take_stream_block(stream, NULL)
#define compat_analyze_next_block_number(block) analyze_take_stream_block(stream, block)

static inline bool
analyze_take_stream_block(ReadStream *stream, BlockNumber *block)
{
	BufferAccessStrategy strategy;
	BlockNumber next = read_stream_next_block(stream, &strategy);

	if (block != NULL)
		*block = next;
	return next != InvalidBlockNumber;
}
#else
#define COMPAT_ANALYZE_BLOCK_ARGUMENTS BlockNumber blockno, BufferAccessStrategy bstrategy
#define compat_analyze_take_block() true
#define compat_analyze_next_block_number(block) (*(block) = blockno, true)
#endif

/* A column's statistics target, -1 for the default; nullable in pg_attribute since 17. */
static inline int
compat_statistics_target(Oid relation, AttrNumber attribute)
{
	HeapTuple tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(relation), Int16GetDatum(attribute));
	bool null;
	Datum value;
	int target;

	if (!HeapTupleIsValid(tuple))
		return -1;
	value = SysCacheGetAttr(ATTNUM, tuple, Anum_pg_attribute_attstattarget, &null);
#if PG_VERSION_NUM >= 170000
	target = null ? -1 : DatumGetInt16(value);
#else
	target = null ? -1 : DatumGetInt32(value);
#endif
	ReleaseSysCache(tuple);
	return target;
}

/* Is this process an autovacuum worker? */
#if PG_VERSION_NUM >= 170000
#define compat_is_autovacuum_worker() AmAutoVacuumWorkerProcess()
#else
#define compat_is_autovacuum_worker() IsAutoVacuumWorkerProcess()
#endif

/* The permissions asked of a relation moved from its RangeTblEntry to RTEPermissionInfo in 16. */
#if PG_VERSION_NUM >= 160000
#define compat_nsitem_permissions(nsitem) ((nsitem)->p_perminfo)
#define compat_check_permissions(pstate, permissions) \
	((void) ExecCheckPermissions((pstate)->p_rtable, list_make1(permissions), true))
#if PG_VERSION_NUM >= 180000
/* which relations initial pruning leaves: all, and there is one */
#define compat_copy_init_range_table(estate, cstate) \
	ExecInitRangeTable(estate, (cstate)->range_table, (cstate)->rteperminfos, bms_make_singleton(1))
#else
#define compat_copy_init_range_table(estate, cstate) \
	ExecInitRangeTable(estate, (cstate)->range_table, (cstate)->rteperminfos)
#endif
typedef RTEPermissionInfo CompatPermissions;
#else
#define compat_nsitem_permissions(nsitem) ((nsitem)->p_rte)
#define compat_check_permissions(pstate, permissions) \
	((void) ExecCheckRTPerms((pstate)->p_rtable, true))
#define compat_copy_init_range_table(estate, cstate) \
	ExecInitRangeTable(estate, (cstate)->range_table)
typedef RangeTblEntry CompatPermissions;
#endif

/* GROUP BY and DISTINCT without clauses that others make redundant, which the planner removes since 16. */
#if PG_VERSION_NUM >= 160000
#define compat_group_clauses(root) ((root)->processed_groupClause)
#define compat_distinct_clauses(root) ((root)->processed_distinctClause)
#else
#define compat_group_clauses(root) ((root)->parse->groupClause)
#define compat_distinct_clauses(root) ((root)->parse->distinctClause)
#endif

/* EXPLAIN (GENERIC_PLAN), since 16: parameters have no values. */
#if PG_VERSION_NUM >= 160000
#define compat_explain_is_generic(es) ((es)->generic)
#else
#define compat_explain_is_generic(es) false
#endif

/* A column tells which outer joins above it may make it NULL; since 16. */
#if PG_VERSION_NUM >= 160000
#define compat_forget_nulling(var) ((var)->varnullingrels = NULL)
#else
#define compat_forget_nulling(var) ((void) 0)
#endif

/* RETURNING jsonb of a JSON function, as ruleutils prints it and the parser reads it; since 17. */
#if PG_VERSION_NUM >= 170000
#define compat_forget_json_format(node)                                                       \
	do                                                                                        \
	{                                                                                         \
		if (IsA(node, JsonExpr))                                                              \
		{                                                                                     \
			JsonExpr *json_ = (JsonExpr *) (node);                                            \
                                                                                              \
			json_->returning = copyObject(json_->returning);                                  \
			json_->returning->format = makeJsonFormat(JS_FORMAT_DEFAULT, JS_ENC_DEFAULT, -1); \
		}                                                                                     \
	} while (0)
#else
#define compat_forget_json_format(node) ((void) 0)
#endif

/* Columns of joins in an expression of the query as what they stand for; needs optimizer/optimizer.h. */
#if PG_VERSION_NUM >= 160000
#define compat_flatten_joins(query, node) flatten_join_alias_vars(NULL, query, (Node *) (node))
#else
#define compat_flatten_joins(query, node) flatten_join_alias_vars(query, (Node *) (node))
#endif

/* A call of a JSON function that is a node of its own, since 16: of JSON_OBJECT() and its like; since 17: JSON_QUERY(). */
#if PG_VERSION_NUM >= 170000
#define compat_is_json_function(node) (IsA(node, JsonConstructorExpr) || IsA(node, JsonExpr))
#elif PG_VERSION_NUM >= 160000
#define compat_is_json_function(node) IsA(node, JsonConstructorExpr)
#else
#define compat_is_json_function(node) false
#endif

/* merge_action() in RETURNING, since 17: a value of the row, though it names no column. */
#if PG_VERSION_NUM >= 170000
#define compat_is_merge_action(node) IsA(node, MergeSupportFunc)
#else
#define compat_is_merge_action(node) false
#endif

/* ALTER TABLE ... ALTER COLUMN ... SET EXPRESSION, since 17. */
#if PG_VERSION_NUM >= 170000
#define compat_is_set_expression(part) ((part) == AT_SetExpression)
#else
#define compat_is_set_expression(part) false
#endif

/* COPY ... (ON_ERROR ignore), since 17: was the line just read bad, and to be left out? */
#if PG_VERSION_NUM >= 170000
#define compat_copy_line_is_bad(cstate) \
	((cstate)->opts.on_error == COPY_ON_ERROR_IGNORE && (cstate)->escontext->error_occurred)
#define compat_copy_forget_bad_line(cstate) ((cstate)->escontext->error_occurred = false)
#else
#define compat_copy_line_is_bad(cstate) false
#define compat_copy_forget_bad_line(cstate) ((void) 0)
#endif

/* COPY ... (REJECT_LIMIT n, LOG_VERBOSITY silent), since 18: when bad lines are too many, and whether to tell their number. */
#if PG_VERSION_NUM >= 180000
#define compat_copy_has_too_many_bad_lines(cstate) \
	((cstate)->opts.reject_limit > 0 && (cstate)->num_errors > (cstate)->opts.reject_limit)
#define compat_copy_reject_limit(cstate) ((cstate)->opts.reject_limit)
#define compat_copy_is_silent(cstate) ((cstate)->opts.log_verbosity < COPY_LOG_VERBOSITY_DEFAULT)
#else
#define compat_copy_has_too_many_bad_lines(cstate) false
#define compat_copy_reject_limit(cstate) INT64CONST(0)
#define compat_copy_is_silent(cstate) false
#endif

/* Report how many lines COPY left out as bad: to the progress view, and at the end to the user. */
#if PG_VERSION_NUM >= 170000
#define compat_copy_report_bad_line(cstate) \
	pgstat_progress_update_param(PROGRESS_COPY_TUPLES_SKIPPED, (cstate)->num_errors)
#define compat_copy_bad_lines(cstate) ((cstate)->num_errors)
#else
#define compat_copy_report_bad_line(cstate) ((void) 0)
#define compat_copy_bad_lines(cstate) ((uint64) 0)
#endif

/* A set that lives as long as the session: its owner was a memory context, and is a ResourceOwner since 17. */
#if PG_VERSION_NUM >= 170000
#define compat_create_session_wait_event_set(events) CreateWaitEventSet(NULL, (events))
#else
#define compat_create_session_wait_event_set(events) CreateWaitEventSet(TopMemoryContext, (events))
#endif

/* SQL that a session on another node of the same version runs first: settings that not every version has. */
#if PG_VERSION_NUM >= 170000
#define COMPAT_PINNED_SETTINGS "SET transaction_timeout = 0; "
#else
#define COMPAT_PINNED_SETTINGS ""
#endif

/*
 * A range-table entry of a query for a finished plan, which has one flat range
 * table (and list of permissions since 16).
 */
static inline RangeTblEntry *
compat_copy_rte(PlannedStmt *plan, Query *query, RangeTblEntry *rte)
{
	RangeTblEntry *copy = copyObject(rte);

	copy->tablesample = NULL;
	copy->securityQuals = NIL;
#if PG_VERSION_NUM >= 160000
	if (rte->perminfoindex > 0)
	{
		plan->permInfos = lappend(
			plan->permInfos, copyObject(list_nth(query->rteperminfos, rte->perminfoindex - 1)));
		copy->perminfoindex = list_length(plan->permInfos);
	}
#endif
	return copy;
}

/* The permissions that a copied entry asks for, from one query's list to another's; since 16. */
#if PG_VERSION_NUM >= 160000
static inline void
compat_copy_permissions(Query *to, RangeTblEntry *copy, const Query *from)
{
	if (copy->perminfoindex == 0)
		return;
	to->rteperminfos = lappend(to->rteperminfos,
							   copyObject(list_nth(from->rteperminfos, copy->perminfoindex - 1)));
	copy->perminfoindex = list_length(to->rteperminfos);
}
#else
#define compat_copy_permissions(to, copy, from) ((void) 0)
#endif

/* Does the role own the table?  The functions for each kind of object became one in 16. */
#if PG_VERSION_NUM >= 160000
#define compat_owns_table(relation, role) object_ownercheck(RelationRelationId, relation, role)
#else
#define compat_owns_table(relation, role) pg_class_ownercheck(relation, role)
#endif

/* May the role maintain the table?  There is a privilege for it since 17. */
#if PG_VERSION_NUM >= 170000
#define compat_may_maintain(relation, role) \
	(compat_owns_table(relation, role) ||   \
	 pg_class_aclcheck(relation, role, ACL_MAINTAIN) == ACLCHECK_OK)
#else
#define compat_may_maintain(relation, role) compat_owns_table(relation, role)
#endif

/* May the role run VACUUM and ANALYZE of the table?  Beside those who may maintain it, the database's owner may. */
#if PG_VERSION_NUM >= 160000
#define compat_owns_database(role) object_ownercheck(DatabaseRelationId, MyDatabaseId, role)
#else
#define compat_owns_database(role) pg_database_ownercheck(MyDatabaseId, role)
#endif
#define compat_may_vacuum(relation, role) \
	(compat_may_maintain(relation, role) || compat_owns_database(role))

/* All settings, as utils/guc_tables.h has them; they left their array for a hash table in 16. */
#if PG_VERSION_NUM >= 160000
#define compat_guc_variables(count) get_guc_variables(count)
#else
#define compat_guc_variables(count) (*(count) = GetNumConfigOptions(), get_guc_variables())
#endif

/* May the role use the schema? */
#if PG_VERSION_NUM >= 160000
#define compat_namespace_aclcheck(schema, role) \
	object_aclcheck(NamespaceRelationId, schema, role, ACL_USAGE)
#else
#define compat_namespace_aclcheck(schema, role) pg_namespace_aclcheck(schema, role, ACL_USAGE)
#endif

/* May the role create relations in the tablespace? */
#if PG_VERSION_NUM >= 160000
#define compat_tablespace_aclcheck(tablespace, role) \
	object_aclcheck(TableSpaceRelationId, tablespace, role, ACL_CREATE)
#else
#define compat_tablespace_aclcheck(tablespace, role) \
	pg_tablespace_aclcheck(tablespace, role, ACL_CREATE)
#endif

/* What is asked of a relation of a query that is not planned yet; NULL if nothing is. */
static inline CompatPermissions *
compat_get_permissions(Query *query, RangeTblEntry *rte)
{
#if PG_VERSION_NUM >= 160000
	if (rte->perminfoindex == 0)
		return NULL;
	return list_nth_node(RTEPermissionInfo, query->rteperminfos, rte->perminfoindex - 1);
#else
	return rte;
#endif
}

/* The list of CompatPermissions of a plan, and what ExecutorCheckPerms_hook is called with. */
#if PG_VERSION_NUM >= 160000
#define compat_plan_permissions(plan) ((plan)->permInfos)
#define COMPAT_CHECK_PERMISSIONS_ARGUMENTS \
	List *range_table, List *permissions_list, bool ereport_on_violation
#define COMPAT_PASS_PERMISSIONS range_table, permissions_list, ereport_on_violation
#define COMPAT_PERMISSIONS_LIST permissions_list
#else
#define compat_plan_permissions(plan) ((plan)->rtable)
#define COMPAT_CHECK_PERMISSIONS_ARGUMENTS List *range_table, bool ereport_on_violation
#define COMPAT_PASS_PERMISSIONS range_table, ereport_on_violation
#define COMPAT_PERMISSIONS_LIST range_table
#endif

/* As whom a relation of a query is read: a view's owner, or InvalidOid for the current user. */
static inline Oid
compat_check_as_user(Query *query, RangeTblEntry *rte)
{
	CompatPermissions *permissions = compat_get_permissions(query, rte);

	return permissions != NULL ? permissions->checkAsUser : InvalidOid;
}

/* A query that is not planned yet reads one more column of a relation: whoever is asked for its privileges, for this one, too. */
static inline void
compat_read_column(Query *query, RangeTblEntry *rte, AttrNumber column)
{
	int member = column - FirstLowInvalidHeapAttributeNumber;
#if PG_VERSION_NUM >= 160000
	RTEPermissionInfo *permissions;

	if (rte->perminfoindex == 0)
		return;
	permissions = list_nth_node(RTEPermissionInfo, query->rteperminfos, rte->perminfoindex - 1);
#else
	RangeTblEntry *permissions = rte;
#endif
	if (permissions->requiredPerms == 0)
		return;
	permissions->requiredPerms |= ACL_SELECT;
	permissions->selectedCols = bms_add_member(permissions->selectedCols, member);
}

/*
 * The conditions on results of window functions (row_number() <= 1) that the planner has moved from
 * the WHERE clause around a query into its windows, where they end the computation early: as
 * operators over the WindowFuncs of `target`.  A list of the window clause, and since 17 of each function.
 */
#if PG_VERSION_NUM >= 170000
#include "catalog/pg_type_d.h"
#include "optimizer/optimizer.h"
#endif

static inline List *
compat_run_conditions(Query *query, List *target)
{
	List *conditions = NIL;
	ListCell *cell;
#if PG_VERSION_NUM >= 170000
	ListCell *cell2;

	foreach(cell,
			pull_var_clause((Node *) target, PVC_RECURSE_AGGREGATES | PVC_INCLUDE_WINDOWFUNCS |
												 PVC_RECURSE_PLACEHOLDERS))
	{
		WindowFunc *function = lfirst(cell);

		if (!IsA(function, WindowFunc))
			continue;
		foreach(cell2, function->runCondition)
		{
			WindowFuncRunCondition *run = lfirst(cell2);
			OpExpr *condition = makeNode(OpExpr);

			condition->opno = run->opno;
			condition->opresulttype = BOOLOID;
			condition->inputcollid = run->inputcollid;
			condition->args = run->wfunc_left ? list_make2(function, run->arg)
											  : list_make2(run->arg, function);
			condition->location = -1;
			if (!list_member(conditions, condition))
				conditions = lappend(conditions, condition);
		}
	}
#else
	foreach(cell, query->windowClause)
		conditions = list_concat_copy(conditions, ((WindowClause *) lfirst(cell))->runCondition);
#endif
	return conditions;
}

/* Is the node such a condition, below its function? It is no expression. */
#if PG_VERSION_NUM >= 170000
#define compat_is_run_condition(node) IsA(node, WindowFuncRunCondition)
#else
#define compat_is_run_condition(node) false
#endif

/* What a statement for others says as a condition, its windows need not have. */
static inline void
compat_forget_run_conditions(Node *node)
{
#if PG_VERSION_NUM >= 170000
	if (IsA(node, WindowFunc))
		((WindowFunc *) node)->runCondition = NIL;
#else
	if (IsA(node, WindowClause))
		((WindowClause *) node)->runCondition = NIL;
#endif
}

/* Since 16 core sorts the input of a DISTINCT aggregate beforehand, and has pathkeys for that after those of GROUP BY. */
#if PG_VERSION_NUM >= 160000
#define compat_forget_presorted(aggref) ((aggref)->aggpresorted = false)
#define compat_group_pathkeys(root) \
	list_copy_head((root)->group_pathkeys, (root)->num_groupby_pathkeys)
#else
#define compat_forget_presorted(aggref) ((void) (aggref))
#define compat_group_pathkeys(root) ((root)->group_pathkeys)
#endif

/* The conditions of a WindowAggPath that end it early: in its clause, and since 17 in the path. */
#if PG_VERSION_NUM >= 170000
#define compat_window_run_condition(path) ((path)->runCondition)
#else
#define compat_window_run_condition(path) ((path)->winclause->runCondition)
#endif

/*
 * Since 16 a Var tells which outer joins below may have made it NULL; `join` is the range-table
 * index of one, or 0.
 */
#if PG_VERSION_NUM >= 160000
#define compat_var_is_nulled_by(var, join) \
	((var)->varnullingrels = (join) > 0 ? bms_make_singleton(join) : NULL)
#else
#define compat_var_is_nulled_by(var, join) ((void) (join))
#endif

/* Is the Var in the result of find_nonnullable_vars(), which is a list of sets since 16? */
#if PG_VERSION_NUM >= 160000
#include "access/sysattr.h"
#include "nodes/multibitmapset.h"

#define compat_contains_var(vars, var) \
	mbms_is_member((var)->varno, (var)->varattno - FirstLowInvalidHeapAttributeNumber, vars)
#else
#define compat_contains_var(vars, var) list_member(vars, var)
#endif

/* Slots tell whether their row is of this transaction, since 17. */
#if PG_VERSION_NUM >= 170000
#define compat_slot_set_is_current(ops, function) ((ops).is_current_xact_tuple = (function))
#else
#define compat_slot_set_is_current(ops, function) ((void) 0)
#endif

/* TableAmRoutine.tuple_update: all indexes need an entry for the new version, or none does. */
#if PG_VERSION_NUM >= 160000
#define COMPAT_UPDATE_ALL_INDEXES TU_All
#define COMPAT_UPDATE_NO_INDEXES TU_None
#define compat_count_update(relation) pgstat_count_heap_update(relation, false, false)
#else
#define COMPAT_UPDATE_ALL_INDEXES true
#define COMPAT_UPDATE_NO_INDEXES false
#define compat_count_update(relation) pgstat_count_heap_update(relation, false)
#endif

/* The leftmost leaf page of a btree, locked to read, or InvalidBuffer: needs access/nbtree.h. */
#if PG_VERSION_NUM >= 170000
#define compat_bt_leftmost_leaf(index) _bt_get_endpoint(index, 0, false)
#else
#define compat_bt_leftmost_leaf(index) _bt_get_endpoint(index, 0, false, NULL)
#endif

/* The file of a relation, and opening another one of the same backend. */
#if PG_VERSION_NUM >= 160000
#define compat_file_locator(relation) ((relation)->rd_locator)
#else
#define compat_file_locator(relation) ((relation)->rd_node)
#endif
#define compat_smgr_open(locator, relation) smgropen(locator, (relation)->rd_backend)

/*
 * Appends nblocks zeroed blocks to the main fork through buffers of the ring, in one
 * piece, and returns the first.  The caller holds the relation extension lock.
 */
#include "storage/bufmgr.h"

static inline BlockNumber
compat_extend_relation(Relation relation, BufferAccessStrategy strategy, uint32 nblocks)
{
	BlockNumber first = InvalidBlockNumber;
	uint32 done = 0;

	while (done < nblocks)
	{
#if PG_VERSION_NUM >= 160000
		Buffer buffers[64];
		uint32 count = Min(nblocks - done, lengthof(buffers));
		BlockNumber block = ExtendBufferedRelBy(BMR_REL(relation), MAIN_FORKNUM, strategy,
												EB_SKIP_EXTENSION_LOCK, count, buffers, &count);

		for (uint32 i = 0; i < count; i++)
			ReleaseBuffer(buffers[i]);
#else
		Buffer buffer = ReadBufferExtended(relation, MAIN_FORKNUM, P_NEW, RBM_NORMAL, strategy);
		BlockNumber block = BufferGetBlockNumber(buffer);
		uint32 count = 1;

		ReleaseBuffer(buffer);
#endif
		if (done == 0)
			first = block;
		else if (block != first + done)
			elog(ERROR, "relation was extended at block %u in place of %u", block, first + done);
		done += count;
	}
	return first;
}

/* The next datum of a sort, forward; one more argument since 16. */
#if PG_VERSION_NUM >= 160000
#define compat_tuplesort_getdatum(sort, value, isnull) \
	tuplesort_getdatum(sort, true, false, value, isnull, NULL)
#else
#define compat_tuplesort_getdatum(sort, value, isnull) \
	tuplesort_getdatum(sort, true, value, isnull, NULL)
#endif

/* What an index AM is told for a bulk deletion: the table, too, since 16. */
#if PG_VERSION_NUM >= 160000
#define compat_index_vacuum_set_table(info, relation) ((info)->heaprel = (relation))
#else
#define compat_index_vacuum_set_table(info, relation) ((void) 0)
#endif

/* Index entries of a new row; one more argument since 16. */
#if PG_VERSION_NUM >= 160000
#define compat_insert_index_entries(target, slot, estate) \
	ExecInsertIndexTuples(target, slot, estate, false, false, NULL, NIL, false)
#else
#define compat_insert_index_entries(target, slot, estate) \
	ExecInsertIndexTuples(target, slot, estate, false, false, NULL, NIL)
#endif

/* Does this session hold the lock in this mode? */
#if PG_VERSION_NUM >= 170000
#define compat_lock_held_by_me(tag, mode) LockHeldByMe(tag, mode, false)
#else
#define compat_lock_held_by_me(tag, mode) LockHeldByMe(tag, mode)
#endif

/* ALTER ... OWNER TO of an object in one of the simple catalogs; opened by itself since 17. */
#if PG_VERSION_NUM >= 170000
#define compat_alter_owner(catalog, object, owner) \
	AlterObjectOwner_internal(RelationGetRelid(catalog), object, owner)
#else
#define compat_alter_owner(catalog, object, owner) AlterObjectOwner_internal(catalog, object, owner)
#endif

/* ---- what 18 changed -------------------------------------------------------------------------------- */

/* The functions that print EXPLAIN's lines left commands/explain.h in 18. */
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#endif

/* Extensions may have options of EXPLAIN since 18; ours is a boolean one. */
#if PG_VERSION_NUM >= 180000
#include "commands/defrem.h"
#include "commands/explain_state.h"

static inline void
compat_take_explain_option(ExplainState *es, DefElem *option, ParseState *pstate)
{
	static bool on = true;

	SetExplainExtensionState(es, GetExplainExtensionId("strata"),
							 defGetBoolean(option) ? &on : NULL);
}

#define compat_explain_add_option(name) \
	RegisterExtensionExplainOption(name, compat_take_explain_option)
#define compat_explain_has_option(es) \
	(GetExplainExtensionState(es, GetExplainExtensionId("strata")) != NULL)
#else
#define compat_explain_add_option(name) ((void) 0)
#define compat_explain_has_option(es) false
#endif

/*
 * What enable_seqscan = off and its like do to a path: 18 counts its disabled nodes, and compares these before
 * costs; before, a huge cost was added, which made all other costs of such a plan look the same.
 */
#if PG_VERSION_NUM >= 180000
#define compat_disabled_nodes(path) ((path)->disabled_nodes)
#define compat_set_disabled_nodes(path, count) ((path)->disabled_nodes = (count))
#define compat_disable(path) ((path)->disabled_nodes += 1)
#else
#define compat_disabled_nodes(path) 0
#define compat_set_disabled_nodes(path, count) ((void) (count))
#define compat_disable(path) ((path)->startup_cost += disable_cost)
#endif
#define compat_is_cheaper(path, other)                                \
	(compat_disabled_nodes(path) != compat_disabled_nodes(other)      \
		 ? compat_disabled_nodes(path) < compat_disabled_nodes(other) \
		 : (path)->total_cost < (other)->total_cost)

/* The cost of sorting an input in which nothing is disabled; needs optimizer/cost.h. */
#if PG_VERSION_NUM >= 180000
#define compat_cost_sort(path, root, pathkeys, cost, rows, width, comparison, memory, limit) \
	cost_sort(path, root, pathkeys, 0, cost, rows, width, comparison, memory, limit)
#else
#define compat_cost_sort cost_sort
#endif

/*
 * How operators order: 18 says it by CompareType, which has btree's numbers for what btree has, so that
 * access methods other than btree may order.
 */
#if PG_VERSION_NUM >= 180000
#define CompatStrategy CompareType
#define CompatOpInterpretation OpIndexInterpretation
#define compat_op_interpretations(opno) get_op_index_interpretation(opno)
#define compat_pathkey_is_descending(pathkey) ((pathkey)->pk_cmptype == COMPARE_GT)
#else
#define CompatStrategy int16
#define CompatOpInterpretation OpBtreeInterpretation
#define compat_op_interpretations(opno) get_op_btree_interpretation(opno)
#define compat_pathkey_is_descending(pathkey) ((pathkey)->pk_strategy == BTGreaterStrategyNumber)
#endif

/* Does the collation order texts as memcmp() does?  A field of the locale since 18. */
#if PG_VERSION_NUM >= 180000
#include "utils/pg_locale.h"

static inline bool
compat_collation_is_c(Oid collation)
{
	return OidIsValid(collation) && pg_newlocale_from_collation(collation)->collate_is_c;
}
#else
#define compat_collation_is_c(collation) lc_collate_is_c(collation)
#endif

/* ExecutorRun: a portal that is read in pieces no longer tells whether this is the only one, since 18. */
#if PG_VERSION_NUM >= 180000
#define COMPAT_RUN_ARGUMENTS(query) QueryDesc *query, ScanDirection direction, uint64 count
#define COMPAT_PASS_RUN(query) query, direction, count
#else
#define COMPAT_RUN_ARGUMENTS(query) \
	QueryDesc *query, ScanDirection direction, uint64 count, bool execute_once
#define COMPAT_PASS_RUN(query) query, direction, count, execute_once
#endif

/* A scan of an index that nobody counts for EXPLAIN; 18 has such counts. */
#if PG_VERSION_NUM >= 180000
#define compat_index_beginscan(table, index, snapshot, keys, orders) \
	index_beginscan(table, index, snapshot, NULL, keys, orders)
#else
#define compat_index_beginscan index_beginscan
#endif

/* Locks that are not waited for: log_lock_failures, since 18, logs those that NOWAIT did not get. */
#if PG_VERSION_NUM >= 180000
#define compat_conditional_lock_tuple(relation, tid, mode, nowait) \
	ConditionalLockTuple(relation, tid, mode, (nowait) && log_lock_failures)
#define compat_conditional_xact_wait(xid, nowait) \
	ConditionalXactLockTableWait(xid, (nowait) && log_lock_failures)
#else
#define compat_conditional_lock_tuple(relation, tid, mode, nowait) \
	ConditionalLockTuple(relation, tid, mode)
#define compat_conditional_xact_wait(xid, nowait) ConditionalXactLockTableWait(xid)
#endif

/* VACUUM's report to pg_class, which counts all-frozen pages since 18: none of ours has a visibility map. */
#if PG_VERSION_NUM >= 180000
#define compat_update_relstats(relation, pages, rows, visible, indexed, xid, multi, xid_set, \
							   multi_set, outer)                                             \
	vac_update_relstats(relation, pages, rows, visible, 0, indexed, xid, multi, xid_set,     \
						multi_set, outer)
#define compat_vacuum_delay_point(is_analyze) vacuum_delay_point(is_analyze)
#define compat_report_vacuum(relation, shared, live, dead, start) \
	pgstat_report_vacuum(relation, shared, live, dead, start)
#else
#define compat_update_relstats vac_update_relstats
#define compat_vacuum_delay_point(is_analyze) vacuum_delay_point()
#define compat_report_vacuum(relation, shared, live, dead, start) \
	((void) (start), pgstat_report_vacuum(relation, shared, live, dead))
#endif

/* The primary key's index; one that is deferrable is asked for by name since 18. */
#if PG_VERSION_NUM >= 180000
#define compat_primary_key_index(relation) RelationGetPrimaryKeyIndex(relation, false)
#else
#define compat_primary_key_index(relation) RelationGetPrimaryKeyIndex(relation)
#endif

/* How old a snapshot is, for old_snapshot_threshold, which 17 removed and whose fields 18 did. */
#if PG_VERSION_NUM >= 180000
#define compat_snapshot_copy_age(to, from) ((void) 0)
#else
#define compat_snapshot_copy_age(to, from) \
	((to)->lsn = (from)->lsn, (to)->whenTaken = (from)->whenTaken)
#endif

/* Which table a parallel scan reads: its file since 18. */
#if PG_VERSION_NUM >= 180000
#define compat_parallel_scan_set_relation(scan, relation) \
	((scan)->phs_locator = (relation)->rd_locator)
#else
#define compat_parallel_scan_set_relation(scan, relation) \
	((scan)->phs_relid = RelationGetRelid(relation))
#endif

/* The path of a relation's file, as a string to free; 18 returns an array. */
#if PG_VERSION_NUM >= 180000
#define compat_relation_path(relation) \
	pstrdup(relpathbackend((relation)->rd_locator, (relation)->rd_backend, MAIN_FORKNUM).str)
#else
#define compat_relation_path(relation) \
	relpathbackend(compat_file_locator(relation), (relation)->rd_backend, MAIN_FORKNUM)
#endif

/* Bitmap scans: the executor walked over blocks and prefetched; since 18 the access method does both. */
#if PG_VERSION_NUM >= 180000
#define COMPAT_BITMAP_BY_TABLE_AM 1
#define compat_stop_bitmap_prefetch(scan) ((void) (scan))
#else
#define COMPAT_BITMAP_BY_TABLE_AM 0
#define compat_stop_bitmap_prefetch(scan) ((scan)->prefetch_maximum = 0)
#endif

/*
 * What GROUP BY groups by is a relation of the range table since 18: the target list and HAVING name its columns,
 * so that the planner knows what a grouping set makes NULL, and what HAVING may not ask of single rows.
 * compat_flatten_groups() puts the expressions in their place, as before 18; not with grouping sets.
 */
#if PG_VERSION_NUM >= 180000
#include "optimizer/optimizer.h"
#include "rewrite/rewriteManip.h"

#define compat_has_group_relation(query) ((query)->hasGroupRTE)

static inline void
compat_flatten_groups(Query *query)
{
	ListCell *cell;

	if (!query->hasGroupRTE)
		return;
	query->targetList = (List *) flatten_group_exprs(NULL, query, (Node *) query->targetList);
	query->havingQual = flatten_group_exprs(NULL, query, query->havingQual);
	foreach(cell, query->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, cell);

		if (rte->rtekind != RTE_GROUP)
			continue;
		rte->rtekind = RTE_RESULT;
		rte->groupexprs = NIL;
	}
	query->hasGroupRTE = false;
}

/* An expression over groups as its input computes it: nothing that a grouping set has made NULL. */
#define compat_forget_grouping(root, node) \
	((root)->group_rtindex == 0            \
		 ? (node)                          \
		 : remove_nulling_relids((node), bms_make_singleton((int) (root)->group_rtindex), NULL))
#else
#define compat_has_group_relation(query) ((void) (query), false)
#define compat_flatten_groups(query) ((void) (query))
#define compat_forget_grouping(root, node) (node)
#endif

/* ALTER TABLE ... ALTER CONSTRAINT changes more than when a constraint is checked since 18, which has a node for it. */
#if PG_VERSION_NUM >= 180000
#define CompatAlterConstraint ATAlterConstraint
#define compat_alters_deferrability(change) ((change)->alterDeferrability)
#define compat_new_enforcement(change) \
	(!(change)->alterEnforceability ? "" : (change)->is_enforced ? " ENFORCED" : " NOT ENFORCED")
#define compat_new_inheritance(change) \
	(!(change)->alterInheritability ? "" : (change)->noinherit ? " NO INHERIT" : " INHERIT")
#else
#define CompatAlterConstraint Constraint
#define compat_alters_deferrability(change) true
#define compat_new_enforcement(change) ""
#define compat_new_inheritance(change) ""
#endif

/* Foreign keys that are not checked: NOT ENFORCED, and NOT VALID ones of partitioned tables, are of 18. */
#if PG_VERSION_NUM >= 180000
#define COMPAT_TREES_HAVE_INVALID_KEYS true
#define compat_is_enforced(constraint) ((constraint)->is_enforced)
#define compat_constraint_is_enforced(form) ((form)->conenforced)
#else
#define COMPAT_TREES_HAVE_INVALID_KEYS false
#define compat_is_enforced(constraint) true
#define compat_constraint_is_enforced(form) true
#endif

/*
 * NOT NULL of a table's column is a constraint with a name since 18, which may be NOT VALID or NO INHERIT.
 * compat_find_not_null(): a column's, NULL if it has none; compat_not_null_column(): the constraint's column, 0 if it is another
 * kind of constraint.
 */
#if PG_VERSION_NUM >= 180000
#define COMPAT_NOT_NULL_IS_CONSTRAINT true
#define compat_find_not_null(relation, column) findNotNullConstraintAttnum(relation, column)
#define compat_not_null_column(tuple)                                       \
	(((Form_pg_constraint) GETSTRUCT(tuple))->contype == CONSTRAINT_NOTNULL \
		 ? extractNotNullColumn(tuple)                                      \
		 : InvalidAttrNumber)
#else
#define COMPAT_NOT_NULL_IS_CONSTRAINT false
#define compat_find_not_null(relation, column) ((HeapTuple) NULL)
#define compat_not_null_column(tuple) InvalidAttrNumber
#endif

/*
 * Has the column that stands at this position of a relation's descriptor a value in all rows?  attnotnull says so of new rows alone
 * since 18, as NOT NULL may be NOT VALID.
 */
#if PG_VERSION_NUM >= 180000
#define compat_column_is_never_null(descriptor, position) \
	(TupleDescCompactAttr(descriptor, position)->attnullability == ATTNULLABLE_VALID)
#else
#define compat_column_is_never_null(descriptor, position) \
	(TupleDescAttr(descriptor, position)->attnotnull)
#endif

/* RETURNING tells rows before and after since 18, under names that the query has; which row is it? */
#if PG_VERSION_NUM >= 180000
#define compat_copy_returning_names(to, from)             \
	((to)->returningOldAlias = (from)->returningOldAlias, \
	 (to)->returningNewAlias = (from)->returningNewAlias)
#define compat_names_old_or_new(var) ((var)->varreturningtype != VAR_RETURNING_DEFAULT)
/* a view's expression over one of these rows: NULL if the node is none */
#define compat_returned_value(node) \
	(IsA(node, ReturningExpr) ? (Node *) ((ReturningExpr *) (node))->retexpr : NULL)
#define compat_returned_level(node) (((ReturningExpr *) (node))->retlevelsup)
#define compat_name_row_of(var, node)                                                 \
	((var)->varreturningtype = ((ReturningExpr *) (node))->retold ? VAR_RETURNING_OLD \
																  : VAR_RETURNING_NEW)
#else
#define compat_copy_returning_names(to, from) ((void) 0)
#define compat_names_old_or_new(var) false
#define compat_returned_value(node) NULL
#define compat_returned_level(node) 0
#define compat_name_row_of(var, node) ((void) 0)
#endif

/* What makes a library loadable; since 18 with its name and version, as pg_get_loaded_modules() tells them. */
#if PG_VERSION_NUM >= 180000
#define COMPAT_MODULE_MAGIC(extension) \
	PG_MODULE_MAGIC_EXT(.name = extension, .version = STRATA_VERSION)
#else
#define COMPAT_MODULE_MAGIC(extension) PG_MODULE_MAGIC
#endif

/* Partitioned tables have exclusion constraints that compare the partition key for equality; since 17. */
#if PG_VERSION_NUM >= 170000
#define COMPAT_TREES_HAVE_EXCLUSIONS true
#else
#define COMPAT_TREES_HAVE_EXCLUSIONS false
#endif

/* EXPLAIN says of a window function which window it has, by name, since 18; and not that groups are a relation. */
#if PG_VERSION_NUM >= 180000
#define COMPAT_WINDOWS_HAVE_NAMES true
#define compat_explain_names_tables(es) ((es)->verbose || (es)->rtable_size > 1)
#else
#define COMPAT_WINDOWS_HAVE_NAMES false
#define compat_explain_names_tables(es) ((es)->verbose || list_length((es)->rtable) > 1)
#endif

#endif
