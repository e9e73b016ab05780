/*
 * relation_owner.h
 *		The owner of a relation that is not open.
 */
#ifndef STRATA_RELATION_OWNER_H
#define STRATA_RELATION_OWNER_H

#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "compat.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

static inline Oid
get_relation_owner(Oid relation)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Oid owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", relation);
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

/* ERROR unless there is such a relation, and it is the user's. */
static inline void
check_relation_owner(Oid relation)
{
	char relkind = get_rel_relkind(relation);

	if (relkind == '\0')
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
						errmsg("relation with OID %u does not exist", relation)));
	if (!compat_owns_table(relation, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(relkind), get_rel_name(relation));
}

/*
 * Lock a relation of the user's, ERROR if it is not.  Who may not have it neither waits for its locks, nor do others
 * wait behind him.
 */
static inline void
lock_own_relation(Oid relation, LOCKMODE mode)
{
	check_relation_owner(relation);
	LockRelationOid(relation, mode);
	check_relation_owner(relation); /* it may have changed */
}

#endif
