/*
 * object_place.c
 *		Which objects are on all nodes, and which are the coordinator's.
 *
 * An object is "everywhere" unless the workers cannot have it or need not have it: objects of temporary schemas and
 * of our own, trigger functions, and what is built on something that they lack: a local table (a function that
 * takes its rows, a composite type with an attribute of its row type) or another object of that kind.
 *
 * The answer is computed from pg_depend, and so it is the same whenever it is asked for, until a table
 * is distributed or undistributed.
 */
#include "postgres.h"

#include "cluster/object_place.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "fmgr.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "cluster/local_extension.h"
#include "cluster/metadata.h"

PG_FUNCTION_INFO_V1(strata_object_is_everywhere);

static bool is_everywhere(const ObjectAddress *object, ObjectAddresses *visited);

static bool
namespace_is_everywhere(Oid namespace)
{
	const char *name = OidIsValid(namespace) ? get_namespace_name(namespace) : NULL;

	if (name == NULL)
		return true;
	return !isAnyTempNamespace(namespace) && strcmp(name, "strata") != 0 &&
		   strcmp(name, "strata_partial") != 0 && strcmp(name, "strata_worker") != 0;
}

/* Do the workers lack something that an object depends on? */
static bool
needs_local_object(const Form_pg_depend entry, ObjectAddresses *visited)
{
	ObjectAddress needed;

	if (entry->refobjid < FirstNormalObjectId)
		return false;
	if (local_extension_has(entry->refclassid, entry->refobjid))
		return true;
	/* what belongs to an extension came with it, but for rows */
	if (entry->refclassid == ExtensionRelationId || entry->refclassid == NamespaceRelationId ||
		(entry->refclassid != RelationRelationId &&
		 OidIsValid(getExtensionOfObject(entry->refclassid, entry->refobjid))))
		return false;
	ObjectAddressSet(needed, entry->refclassid, entry->refobjid);
	return !is_everywhere(&needed, visited);
}

static bool
depends_on_local_object(const ObjectAddress *object, ObjectAddresses *visited)
{
	Relation depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple tuple;
	bool found = false;

	ScanKeyInit(&keys[0], Anum_pg_depend_classid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(object->classId));
	ScanKeyInit(&keys[1], Anum_pg_depend_objid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(object->objectId));
	scan = systable_beginscan(depend, DependDependerIndexId, true, NULL, 2, keys);
	while (!found && HeapTupleIsValid(tuple = systable_getnext(scan)))
		found = needs_local_object((Form_pg_depend) GETSTRUCT(tuple), visited);
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	return found;
}

/* Is the table that a constraint belongs to one of ours?  Constraints of domains are not asked. */
static bool
constraint_is_everywhere(Oid constraint)
{
	HeapTuple tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));
	Oid table;

	if (!HeapTupleIsValid(tuple))
		return false;
	table = ((Form_pg_constraint) GETSTRUCT(tuple))->conrelid;
	ReleaseSysCache(tuple);
	return !OidIsValid(table) || metadata_table(table) != NULL;
}

static bool
function_is_everywhere(Oid function)
{
	Oid result = get_func_rettype(function);

	return result != TRIGGEROID && result != EVENT_TRIGGEROID;
}

/* Do the workers have all that the CHECK clauses of a domain need? */
static bool
domain_is_everywhere(Oid domain, ObjectAddresses *visited)
{
	Relation constraints = table_open(ConstraintRelationId, AccessShareLock);
	bool everywhere = true;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;

	ScanKeyInit(&key, Anum_pg_constraint_contypid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(domain));
	scan = systable_beginscan(constraints, ConstraintTypidIndexId, true, NULL, 1, &key);
	while (everywhere && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		ObjectAddress constraint;

		ObjectAddressSet(constraint, ConstraintRelationId,
						 ((Form_pg_constraint) GETSTRUCT(tuple))->oid);
		everywhere = !depends_on_local_object(&constraint, visited);
	}
	systable_endscan(scan);
	table_close(constraints, AccessShareLock);
	return everywhere;
}

/* The parts of a type that do not depend on it, or on which it does not. */
static bool
type_is_everywhere(Oid type, ObjectAddresses *visited)
{
	Oid relation = get_typ_typrelid(type);

	if (OidIsValid(relation))
	{
		ObjectAddress attributes;

		ObjectAddressSet(attributes, RelationRelationId, relation);
		return is_everywhere(&attributes, visited);
	}
	return get_typtype(type) != TYPTYPE_DOMAIN || domain_is_everywhere(type, visited);
}

/* The rules; of an object that is being visited already nothing new can be said. */
static bool
is_everywhere(const ObjectAddress *object, ObjectAddresses *visited)
{
	if (object_address_present(object, visited))
		return true;
	add_exact_object_address(object, visited);
	if (!namespace_is_everywhere(object->classId == NamespaceRelationId
									 ? object->objectId
									 : get_object_namespace(object)) ||
		local_extension_has(object->classId, object->objectId))
		return false;
	switch (object->classId)
	{
		case RelationRelationId:
			if (get_rel_relkind(object->objectId) != RELKIND_COMPOSITE_TYPE)
				return metadata_find_table(object->objectId) != NULL;
			break;
		case ConstraintRelationId:
			if (!constraint_is_everywhere(object->objectId))
				return false;
			break;
		case ExtensionRelationId:
			return !local_extension_stays(get_extension_name(object->objectId));
		case ProcedureRelationId:
			if (!function_is_everywhere(object->objectId))
				return false;
			break;
		case TypeRelationId:
			if (!type_is_everywhere(object->objectId, visited))
				return false;
			break;
		default:
			break;
	}
	return !depends_on_local_object(object, visited);
}

bool
object_place_is_everywhere(const ObjectAddress *object)
{
	ObjectAddresses *visited = new_object_addresses();
	bool everywhere = is_everywhere(object, visited);

	free_object_addresses(visited);
	return everywhere;
}

/* object_is_everywhere(classid, objid) */
Datum
strata_object_is_everywhere(PG_FUNCTION_ARGS)
{
	ObjectAddress object;

	ObjectAddressSet(object, PG_GETARG_OID(0), PG_GETARG_OID(1));
	PG_RETURN_BOOL(object_place_is_everywhere(&object));
}

List *
object_place_everywhere_of(ObjectType type, List *objects, bool *all)
{
	List *everywhere = NIL;
	ListCell *cell;

	if (all != NULL)
		*all = true;
	foreach(cell, objects)
	{
		Relation relation = NULL;
		ObjectAddress address = get_object_address(type, lfirst(cell), &relation, AccessShareLock,
												   true);

		if (relation != NULL)
			table_close(relation, AccessShareLock);
		if (!OidIsValid(address.objectId))
			continue;
		if (object_place_is_everywhere(&address))
		{
			ObjectAddress *copy = palloc(sizeof(ObjectAddress));

			*copy = address;
			everywhere = lappend(everywhere, copy);
		}
		else if (all != NULL)
			*all = false;
	}
	return everywhere;
}
