/*
 * only_here.c
 *		Objects that expressions name and the workers do not have.
 *
 * The workers have what DDL propagation has brought there: not temporary objects, nor the row
 * types of local tables, nor functions over these.  SQL that names one of them is either refused by a
 * worker or, worse, read with a permanent namesake.  What has one value for the whole execution may be of
 * such objects: it is computed here.
 *
 * What is found is kept until any table, type or function changes: making a table distributed
 * gives the workers its row type.
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "cluster/local_extension.h"
#include "cluster/object_place.h"
#include "plan/only_here.h"
#include "values/row_format.h"

typedef struct KnownObject
{
	ObjectAddress address; /* the key */
	bool only_here;
} KnownObject;

static HTAB *known_objects = NULL;

static void
forget_objects(void)
{
	if (known_objects != NULL)
		hash_destroy(known_objects);
	known_objects = NULL;
}

static void
on_catalog_change(Datum arg, int cacheid, uint32 hashvalue)
{
	forget_objects();
}

static void
on_relation_change(Datum arg, Oid relation)
{
	forget_objects();
}

static HTAB *
get_known_objects(void)
{
	static bool registered = false;
	HASHCTL control = {.keysize = sizeof(ObjectAddress), .entrysize = sizeof(KnownObject)};

	if (!registered)
	{
		CacheRegisterSyscacheCallback(PROCOID, on_catalog_change, (Datum) 0);
		CacheRegisterSyscacheCallback(TYPEOID, on_catalog_change, (Datum) 0);
		CacheRegisterRelcacheCallback(on_relation_change, (Datum) 0);
		registered = true;
	}
	if (known_objects == NULL)
		known_objects = hash_create("strata objects of this server", 64, &control,
									HASH_ELEM | HASH_BLOBS);
	return known_objects;
}

static Oid
find_such_type(Oid type)
{
	return only_here_type(type) ? type : InvalidOid;
}

bool
only_here_object(Oid classid, Oid objectid)
{
	ObjectAddress address = {classid, objectid, 0};
	KnownObject *known;
	bool result;

	if (objectid < FirstNormalObjectId)
		return false;
	known = hash_search(get_known_objects(), &address, HASH_FIND, NULL);
	if (known != NULL)
		return known->only_here;

	/* these may have what is known forgotten */
	if (OidIsValid(getExtensionOfObject(classid, objectid)))
		result = local_extension_has(classid, objectid);
	else
		result = !object_place_is_everywhere(&address) ||
				 (classid == TypeRelationId &&
				  OidIsValid(row_format_find_part(objectid, find_such_type)));
	known = hash_search(get_known_objects(), &address, HASH_ENTER, NULL);
	known->only_here = result;
	return result;
}

bool
only_here_type(Oid type)
{
	return only_here_object(TypeRelationId, type);
}

/* Callback of check_functions_in_node() */
static bool
is_such_function(Oid function, void *context)
{
	return only_here_object(ProcedureRelationId, function);
}

/* Does the constant name an object, as 'name'::regclass does?  Who has a table has its indexes. */
static bool
names_such_object(const Const *constant)
{
	Oid class = constant->constisnull ? InvalidOid : row_format_object_class(constant->consttype);
	Oid object = OidIsValid(class) ? DatumGetObjectId(constant->constvalue) : InvalidOid;

	if (class == RelationRelationId && get_rel_relkind(object) == RELKIND_INDEX)
		object = IndexGetRelation(object, false);
	return OidIsValid(object) && only_here_object(class, object);
}

bool
only_here_node(Node *node)
{
	if (IsA(node, Const) && names_such_object((Const *) node))
		return true;
	switch (nodeTag(node))
	{
		case T_Const:
		case T_Param:
		case T_Aggref:
		case T_FuncExpr:
		case T_RelabelType:
		case T_CoerceViaIO:
		case T_ArrayCoerceExpr:
		case T_CoerceToDomain:
		case T_RowExpr:
		case T_ArrayExpr:
		case T_CollateExpr:
			if (only_here_type(exprType(node)) ||
				only_here_object(CollationRelationId, exprCollation(node)))
				return true;
			break;
		default:
			break;
	}
	return check_functions_in_node(node, is_such_function, NULL);
}
