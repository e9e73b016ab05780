/*
 * relation_owner.h
 *		The owner of a relation that is not open.
 */
#ifndef STRATA_RELATION_OWNER_H
#define STRATA_RELATION_OWNER_H

#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_class.h"
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

#endif
