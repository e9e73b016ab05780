/*
 * compat/permissions.h
 *		Differences between major versions: who may do what, and where a query tells what it asks for.
 */
#ifndef STRATA_COMPAT_PERMISSIONS_H
#define STRATA_COMPAT_PERMISSIONS_H

#include "access/sysattr.h"
#include "catalog/pg_database_d.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"

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

/* The relations that permissions are asked for are no longer among the query's. */
static inline void
compat_forget_permissions(Query *query)
{
#if PG_VERSION_NUM >= 160000
	query->rteperminfos = NIL;
#else
	(void) query;
#endif
}

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

#endif
