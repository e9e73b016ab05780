/*
 * object_owner.c
 *		The owner and the access list of an object, exactly as the coordinator has them.
 *
 * GRANT chooses a grantor by itself: the owner for a superuser, one of several roles for who belongs to them.  So what
 * the coordinator has recorded is written as it is, as pg_upgrade does; who depends on whom is recorded with it.
 * sql/objects.sql decides what may be changed.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/objectaccess.h"
#include "catalog/objectaddress.h"
#include "commands/alter.h"
#include "fmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "compat.h"

PG_FUNCTION_INFO_V1(strata_worker_replace_privileges);
PG_FUNCTION_INFO_V1(strata_worker_replace_owner);

/* What comes with the server belongs to its own superuser here, whatever his name is. */
static Acl *
copy_for_owner(const Acl *given, Oid named_owner, Oid owner)
{
	Acl *acl;

	if (ARR_NDIM(given) == 0) /* nobody may anything: the text of an array forgets its dimension */
		return make_empty_acl();
	acl = DatumGetAclPCopy(PointerGetDatum(given));
	for (int i = 0; i < ACL_NUM(acl); i++)
	{
		AclItem *item = &ACL_DAT(acl)[i];

		if (item->ai_grantee == named_owner)
			item->ai_grantee = owner;
		if (item->ai_grantor == named_owner)
			item->ai_grantor = owner;
	}
	return acl;
}

static void
write_acl(Relation catalog, HeapTuple tuple, AttrNumber attribute, const Acl *acl)
{
	int columns = RelationGetNumberOfAttributes(catalog);
	Datum *values = palloc0(columns * sizeof(Datum));
	bool *nulls = palloc0(columns * sizeof(bool));
	bool *replaced = palloc0(columns * sizeof(bool));

	values[attribute - 1] = PointerGetDatum(acl);
	nulls[attribute - 1] = acl == NULL;
	replaced[attribute - 1] = true;
	CatalogTupleUpdate(
		catalog, &tuple->t_self,
		heap_modify_tuple(tuple, RelationGetDescr(catalog), values, nulls, replaced));
}

/* replace_privileges(class, object, owner, privileges); NULL privileges are PostgreSQL's default */
Datum
strata_worker_replace_privileges(PG_FUNCTION_ARGS)
{
	Oid class = PG_GETARG_OID(0);
	Oid object = PG_GETARG_OID(1);
	AttrNumber attribute = get_object_attnum_acl(class);
	int cache = get_object_catcache_oid(class);
	Relation catalog = table_open(class, RowExclusiveLock);
	HeapTuple tuple = cache < 0 ? NULL : SearchSysCacheCopy1(cache, ObjectIdGetDatum(object));
	Acl *acl = NULL;
	Oid *before = NULL;
	Oid *after = NULL;
	int count_before = 0;
	int count_after = 0;
	Datum old;
	bool isnull;
	Oid owner;

	if (attribute == InvalidAttrNumber || !HeapTupleIsValid(tuple))
		elog(ERROR, "object %u of class %u has no privileges", object, class);
	owner = DatumGetObjectId(
		heap_getattr(tuple, get_object_attnum_owner(class), RelationGetDescr(catalog), &isnull));
	old = heap_getattr(tuple, attribute, RelationGetDescr(catalog), &isnull);
	if (!isnull)
		count_before = aclmembers(DatumGetAclP(old), &before);
	if (!PG_ARGISNULL(3))
	{
		acl = copy_for_owner(PG_GETARG_ACL_P(3), PG_GETARG_OID(2), owner);
		count_after = aclmembers(acl, &after);
	}
	if (acl != NULL || !isnull)
	{
		write_acl(catalog, tuple, attribute, acl);
		updateAclDependencies(class, object, 0, owner, count_before, before, count_after, after);
		InvokeObjectPostAlterHook(class, object, 0);
		CommandCounterIncrement();
	}
	table_close(catalog, RowExclusiveLock);
	PG_RETURN_VOID();
}

/* replace_owner(class, object, owner): without the checks of ALTER, which does not know extensions at all */
Datum
strata_worker_replace_owner(PG_FUNCTION_ARGS)
{
	Relation catalog = table_open(PG_GETARG_OID(0), RowExclusiveLock);

	compat_alter_owner(catalog, PG_GETARG_OID(1), PG_GETARG_OID(2));
	table_close(catalog, RowExclusiveLock);
	CommandCounterIncrement();
	PG_RETURN_VOID();
}
