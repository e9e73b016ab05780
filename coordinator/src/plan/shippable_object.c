/*
 * shippable_object.c
 *		Which functions and other objects mean the same on a worker.
 *
 *	- Stable functions of columns are shipped if they are built in and depend
 *	  only on the settings that remote_transaction.c propagates (TimeZone,
 *	  DateStyle, ...), not on catalogs, privileges or session state.
 *	- Functions, operators and aggregates that are neither built in nor part
 *	  of an extension are shipped only if they are immutable functions: others
 *	  may read tables, of which a worker sees a slice.
 */
#include "postgres.h"

#include "plan/shippable_object.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/dependency.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "cluster/local_extension.h"
#include "plan/only_here.h"
#include "values/row_format.h"

typedef struct ObjectKey
{
	Oid classid;
	Oid objectid;
} ObjectKey;

typedef struct ObjectEntry
{
	ObjectKey key;
	bool shippable;
} ObjectEntry;

static HTAB *object_cache = NULL;

/* Names of stable built-in functions that look at more than their arguments and propagated settings. */
static const char *const local_function_prefixes[] = {
	"has_",
	"pg_",
	"txid_",
	"row_security_active",
	"inet_client",
	"inet_server",
	"col_description",
	"obj_description",
	"shobj_description",
	"currval",
	"lastval",
	"to_reg",
	"current_",
	"query_to_",
	"table_to_",
	"schema_to_",
	"cursor_to_",
	"database_to_",
	"reg",
	"textreg",
	"binary_upgrade",
	"ts_",
	"get_current_ts_config",
	"session_user",
	"getdatabaseencoding",
	"version",
	"format_type",
	"oidvectortypes",
};

static void
reset_object_cache(Datum arg, int cacheid, uint32 hashvalue)
{
	if (object_cache != NULL)
	{
		hash_destroy(object_cache);
		object_cache = NULL;
	}
}

/* Whoever owns an extension can make a function of his own its member. */
static bool
is_a_superusers(Oid classid, Oid objectid)
{
	int cache = get_object_catcache_oid(classid);
	AttrNumber column = get_object_attnum_owner(classid);
	HeapTuple tuple;
	bool null;
	Oid owner;

	if (cache < 0 || column == InvalidAttrNumber)
		return true;
	tuple = SearchSysCache1(cache, ObjectIdGetDatum(objectid));
	if (!HeapTupleIsValid(tuple))
		return false;
	owner = DatumGetObjectId(SysCacheGetAttr(cache, tuple, column, &null));
	ReleaseSysCache(tuple);
	return superuser_arg(owner);
}

bool
shippable_object(Oid classid, Oid objectid)
{
	ObjectKey key = {classid, objectid};
	ObjectEntry *entry;
	bool found;
	bool shippable;

	if (objectid < FirstNormalObjectId)
		return true;
	if (local_extension_has(classid, objectid))
		return false;

	if (object_cache != NULL)
	{
		entry = hash_search(object_cache, &key, HASH_FIND, NULL);
		if (entry != NULL)
			return entry->shippable;
	}

	shippable = OidIsValid(getExtensionOfObject(classid, objectid)) &&
				is_a_superusers(classid, objectid);
	if (object_cache == NULL)
	{
		static bool registered = false;
		HASHCTL control = {.keysize = sizeof(ObjectKey), .entrysize = sizeof(ObjectEntry)};

		if (!registered)
		{
			CacheRegisterSyscacheCallback(PROCOID, reset_object_cache, (Datum) 0);
			CacheRegisterSyscacheCallback(OPEROID, reset_object_cache, (Datum) 0);
			registered = true;
		}
		object_cache = hash_create("strata shippable objects", 64, &control,
								   HASH_ELEM | HASH_BLOBS);
	}
	entry = hash_search(object_cache, &key, HASH_ENTER, &found);
	entry->shippable = shippable;
	return shippable;
}

/* Is a stable built-in function the same wherever our settings are? */
static bool
depends_only_on_settings(Oid funcid)
{
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(funcid));
	Form_pg_proc proc;
	bool result = true;

	if (!HeapTupleIsValid(tuple))
		return false;
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	for (int i = 0; result && i < lengthof(local_function_prefixes); i++)
	{
		const char *prefix = local_function_prefixes[i];

		if (strncmp(NameStr(proc->proname), prefix, strlen(prefix)) == 0)
			result = false;
	}
	for (int i = 0; result && i < proc->pronargs; i++)
		result = !OidIsValid(row_format_object_class(proc->proargtypes.values[i]));
	ReleaseSysCache(tuple);
	return result;
}

/* Immutable, but of OIDs: a table's, an enum value's. */
static bool
hashes_identifiers(Oid funcid)
{
	return funcid == F_SATISFIES_HASH_PARTITION || funcid == F_HASHENUM ||
		   funcid == F_HASHENUMEXTENDED;
}

bool
shippable_function(Oid function)
{
	char volatility = func_volatile(function);

	if (volatility == PROVOLATILE_VOLATILE)
		return false;
	if (volatility == PROVOLATILE_STABLE)
		return shippable_object(ProcedureRelationId, function) &&
			   (function >= FirstNormalObjectId || depends_only_on_settings(function));
	/* immutable: our own DDL propagation has brought it to the workers, or it was not for them */
	return !hashes_identifiers(function) && !only_here_object(ProcedureRelationId, function);
}

/* Volatile built-in functions whose values are as good from one node as from another. */
static const char *const stateless_functions[] = {"clock_timestamp", "gen_random_uuid", "random",
												  "random_normal",	 "timeofday",		"uuidv4",
												  "uuidv7"};

bool
shippable_stateless_function(Oid function)
{
	char *name;

	if (function >= FirstNormalObjectId || func_volatile(function) != PROVOLATILE_VOLATILE)
		return false;
	name = get_func_name(function);
	for (int i = 0; i < lengthof(stateless_functions); i++)
	{
		if (strcmp(name, stateless_functions[i]) == 0)
			return true;
	}
	return false;
}
