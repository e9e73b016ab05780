/*
 * not_null.c
 *		Columns in which no row that a statement can see is NULL.
 *
 * NOT NULL speaks of the rows that there are.  A snapshot that is older than the declaration shows older rows, which may be
 * NULL; so it proves nothing for that.  A plan outlives its snapshot for newer ones only: the declaration's commit
 * invalidates those that were made before.
 */
#include "compat.h"

#include "not_null.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_inherits.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

bool
not_null_is_older_than_snapshot(HeapTuple tuple)
{
	TransactionId writer = HeapTupleHeaderGetXmin(tuple->t_data);

	if (!ActiveSnapshotSet())
		return false;
	if (TransactionIdIsCurrentTransactionId(writer))
		return !IsolationUsesXactSnapshot();
	return !XidInMVCCSnapshot(writer, GetActiveSnapshot());
}

/* The column's row changes with NOT NULL; since 18 the constraint's does, when it is validated. */
static bool
was_declared_before(Oid relation_oid, AttrNumber attribute)
{
	HeapTuple column = SearchSysCache2(ATTNUM, ObjectIdGetDatum(relation_oid),
									   Int16GetDatum(attribute));
	HeapTuple constraint = compat_find_not_null(relation_oid, attribute);
	bool result = HeapTupleIsValid(column) && not_null_is_older_than_snapshot(column) &&
				  (!HeapTupleIsValid(constraint) || not_null_is_older_than_snapshot(constraint));

	if (HeapTupleIsValid(column))
		ReleaseSysCache(column);
	if (HeapTupleIsValid(constraint))
		heap_freetuple(constraint);
	return result;
}

bool
not_null_is_declared(Oid relation_oid, AttrNumber attribute, bool with_children)
{
	Relation relation;
	bool result;

	/* a child may drop the constraint of its parent, but not a partition */
	if (attribute <= 0 ||
		(with_children && get_rel_relkind(relation_oid) != RELKIND_PARTITIONED_TABLE &&
		 has_subclass(relation_oid)))
		return false;
	relation = table_open(relation_oid, AccessShareLock);
	result = compat_column_is_never_null(RelationGetDescr(relation), attribute - 1) &&
			 was_declared_before(relation_oid, attribute);
	table_close(relation, NoLock);
	return result;
}

bool
not_null_is_new(Oid relation_oid)
{
	Relation relation = table_open(relation_oid, AccessShareLock);
	TupleDesc descriptor = RelationGetDescr(relation);
	bool result = false;

	for (int i = 0; i < descriptor->natts && !result; i++)
		result = !TupleDescAttr(descriptor, i)->attisdropped &&
				 compat_column_is_never_null(descriptor, i) &&
				 !was_declared_before(relation_oid, i + 1);
	table_close(relation, NoLock);
	return result;
}
