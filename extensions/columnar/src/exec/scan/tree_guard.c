/*
 * tree_guard.c
 *		TRUNCATE and DROP of a leaf that a scan of this session may still come to.
 *
 * Core refuses them while the session has the table open.  A scan of a partition tree opens a
 * leaf when its turn comes, so which leaves are waiting is known here: without it, an open cursor
 * would miss their rows.  Other sessions are held off by the lock on the parent, or noticed by
 * tree_scan_check_empty().
 *
 * A scan is on the list until its executor state is freed, in an error's clean-up, too.
 */
#include "exec/scan/tree_guard.h"

#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "lib/ilist.h"
#include "utils/lsyscache.h"

typedef struct GuardedScan
{
	dlist_node node;
	const TreeScan *tree;
	MemoryContextCallback callback;
} GuardedScan;

static dlist_head guarded_scans = DLIST_STATIC_INIT(guarded_scans);
static object_access_hook_type previous_hook = NULL;

static void
forget_scan(void *argument)
{
	dlist_delete(&((GuardedScan *) argument)->node);
}

void
tree_guard_add(const TreeScan *tree, MemoryContext query)
{
	GuardedScan *scan = MemoryContextAllocZero(query, sizeof(GuardedScan));

	scan->tree = tree;
	dlist_push_head(&guarded_scans, &scan->node);
	scan->callback.func = forget_scan;
	scan->callback.arg = scan;
	MemoryContextRegisterResetCallback(query, &scan->callback);
}

static void
check_leaf(Oid leaf, const char *command)
{
	dlist_iter iter;

	dlist_foreach(iter, &guarded_scans)
	{
		const GuardedScan *scan = dlist_container(GuardedScan, node, iter.cur);

		if (tree_scan_has_leaf(scan->tree, leaf))
			ereport(
				ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg(
					 "cannot %s \"%s\" because it is being used by active queries in this session",
					 command, get_rel_name(leaf))));
	}
}

static void
check_access(ObjectAccessType access, Oid class, Oid object, int part, void *argument)
{
	if (previous_hook != NULL)
		previous_hook(access, class, object, part, argument);
	if (class != RelationRelationId || part != 0)
		return;
	if (access == OAT_DROP)
		check_leaf(object, "DROP TABLE");
	else if (access == OAT_TRUNCATE)
		check_leaf(object, "TRUNCATE");
}

void
tree_guard_initialize(void)
{
	previous_hook = object_access_hook;
	object_access_hook = check_access;
}
