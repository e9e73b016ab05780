/*
 * hll_extension.c
 *		Which functions belong to the extension postgresql-hll: see hll_extension.h.
 *
 * A function is the extension's if pg_depend says so, and if its name, arguments and symbol in
 * C are the ones that kernels stand for; the schema does not matter, and a function of
 * another owner with such a name is none of them.
 *
 * What is found, be it that there is no such extension, is kept until any function changes.
 * (That covers CREATE, DROP and ALTER EXTENSION UPDATE, which make or drop functions.)
 */
#include "exec/expression/hll_extension.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/syscache.h"

#define EXTENSION_NAME "hll"
#define ARGUMENTS_MAX 6

/* A type of the extension, whose oid is not known. */
#define OWN_TYPE InvalidOid

typedef struct KnownFunction
{
	const char *name;
	const char *symbol;
	int nargs;
	Oid types[ARGUMENTS_MAX];
} KnownFunction;

static const KnownFunction known_functions[HLL_NFUNCTIONS] = {
	[HLL_HASH_BOOLEAN] = {"hll_hash_boolean", "hll_hash_1byte", 2, {BOOLOID, INT4OID}},
	[HLL_HASH_SMALLINT] = {"hll_hash_smallint", "hll_hash_2byte", 2, {INT2OID, INT4OID}},
	[HLL_HASH_INTEGER] = {"hll_hash_integer", "hll_hash_4byte", 2, {INT4OID, INT4OID}},
	[HLL_HASH_BIGINT] = {"hll_hash_bigint", "hll_hash_8byte", 2, {INT8OID, INT4OID}},
	[HLL_HASH_BYTEA] = {"hll_hash_bytea", "hll_hash_varlena", 2, {BYTEAOID, INT4OID}},
	[HLL_HASH_TEXT] = {"hll_hash_text", "hll_hash_varlena", 2, {TEXTOID, INT4OID}},
	[HLL_HASH_ANY] = {"hll_hash_any", "hll_hash_any", 2, {ANYELEMENTOID, INT4OID}},
	[HLL_HASHVAL_OF_BIGINT] = {"hll_hashval", "hll_hashval", 1, {INT8OID}},
	[HLL_HASHVAL_OF_INTEGER] = {"hll_hashval_int4", "hll_hashval_int4", 1, {INT4OID}},
	[HLL_ADD_TRANS0] = {"hll_add_trans0", "hll_add_trans0", 2, {INTERNALOID, OWN_TYPE}},
	[HLL_ADD_TRANS1] = {"hll_add_trans1", "hll_add_trans1", 3, {INTERNALOID, OWN_TYPE, INT4OID}},
	[HLL_ADD_TRANS2] = {"hll_add_trans2",
						"hll_add_trans2",
						4,
						{INTERNALOID, OWN_TYPE, INT4OID, INT4OID}},
	[HLL_ADD_TRANS3] = {"hll_add_trans3",
						"hll_add_trans3",
						5,
						{INTERNALOID, OWN_TYPE, INT4OID, INT4OID, INT8OID}},
	[HLL_ADD_TRANS4] = {"hll_add_trans4",
						"hll_add_trans4",
						6,
						{INTERNALOID, OWN_TYPE, INT4OID, INT4OID, INT8OID, INT4OID}},
	[HLL_UNION_TRANS] = {"hll_union_trans", "hll_union_trans", 2, {INTERNALOID, OWN_TYPE}},
	[HLL_SERIALIZE] = {"hll_serialize", "hll_serialize", 1, {INTERNALOID}},
	[HLL_PACK] = {"hll_pack", "hll_pack", 1, {INTERNALOID}},
};

static bool is_current = false;
static Oid oids[HLL_NFUNCTIONS];

static void
forget_functions(Datum argument, int cache, uint32 hash)
{
	is_current = false;
}

static bool
has_arguments(const KnownFunction *known, Form_pg_proc form)
{
	if (form->pronargs != known->nargs)
		return false;
	for (int i = 0; i < known->nargs; i++)
	{
		Oid type = form->proargtypes.values[i];

		if (known->types[i] == OWN_TYPE ? type < FirstNormalObjectId : type != known->types[i])
			return false;
	}
	return true;
}

static bool
has_symbol(const KnownFunction *known, HeapTuple tuple)
{
	bool isnull;
	Datum source = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosrc, &isnull);

	return !isnull && strcmp(TextDatumGetCString(source), known->symbol) == 0;
}

/* Notes a function of the extension if it is one that we know. */
static void
note_function(Oid oid)
{
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(oid));
	Form_pg_proc form;

	if (!HeapTupleIsValid(tuple))
		return;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	for (int i = HLL_NO_FUNCTION + 1; i < HLL_NFUNCTIONS; i++)
	{
		const KnownFunction *known = &known_functions[i];

		if (form->prolang == ClanguageId && strcmp(NameStr(form->proname), known->name) == 0 &&
			has_arguments(known, form) && has_symbol(known, tuple))
			oids[i] = oid;
	}
	ReleaseSysCache(tuple);
}

static void
note_members(Oid extension)
{
	Relation depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple tuple;

	ScanKeyInit(&keys[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(ExtensionRelationId));
	ScanKeyInit(&keys[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(extension));
	scan = systable_beginscan(depend, DependReferenceIndexId, true, NULL, 2, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend form = (Form_pg_depend) GETSTRUCT(tuple);

		if (form->classid == ProcedureRelationId && form->deptype == DEPENDENCY_EXTENSION)
			note_function(form->objid);
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
}

static void
find_functions(void)
{
	static bool is_registered = false;
	Oid extension;

	if (!is_registered)
	{
		CacheRegisterSyscacheCallback(PROCOID, forget_functions, (Datum) 0);
		is_registered = true;
	}
	while (!is_current)
	{
		/* set first: reading catalogs may tell of a change */
		is_current = true;
		memset(oids, 0, sizeof(oids));
		PG_TRY();
		{
			extension = get_extension_oid(EXTENSION_NAME, true);
			if (OidIsValid(extension))
				note_members(extension);
		}
		PG_CATCH();
		{
			is_current = false;
			PG_RE_THROW();
		}
		PG_END_TRY();
	}
}

HllFunction
hll_function_find(Oid oid)
{
	/* those of core are most */
	if (oid < FirstNormalObjectId)
		return HLL_NO_FUNCTION;
	find_functions();
	for (int i = HLL_NO_FUNCTION + 1; i < HLL_NFUNCTIONS; i++)
		if (oids[i] == oid)
			return (HllFunction) i;
	return HLL_NO_FUNCTION;
}

Oid
hll_function_oid(HllFunction function)
{
	find_functions();
	return oids[function];
}
