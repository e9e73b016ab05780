/*
 * ddl_object.c
 *		Types, functions, schemas, extensions: the same on all nodes.
 *
 * Fragments of queries run on the workers, and so everything they can name must exist there.
 * Commands are sent as the user typed them, with the session's search_path.
 *
 * An object is "everywhere" unless the workers cannot have it or need not have it: objects
 * of temporary schemas and of our own, trigger functions, and what is built on a local
 * table (a function that takes its rows, for example).  The same test decides for a
 * command that creates an object, after it ran here, and for one that changes or drops
 * it, before it runs.  Objects made before the first worker was added were copied by
 * add_worker().
 */
#include "postgres.h"

#include "ddl.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parse_type.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "metadata_catalog.h"

/* ---------------------------------------------------------------- what is everywhere */

static bool
namespace_is_everywhere(Oid namespace)
{
	const char *name = OidIsValid(namespace) ? get_namespace_name(namespace) : NULL;

	if (name == NULL)
		return true;
	return !isAnyTempNamespace(namespace) && strcmp(name, "strata") != 0 &&
		   strcmp(name, "strata_partial") != 0 && strcmp(name, "strata_worker") != 0;
}

/* Is this a relation that the workers lack?  Composite types are relations, too. */
static bool
relation_is_local(Oid relation)
{
	return get_rel_relkind(relation) != RELKIND_COMPOSITE_TYPE && metadata_table(relation) == NULL;
}

/* Does an object depend on a relation, or its row type, that the workers lack? */
static bool
depends_on_local_relation(const ObjectAddress *object)
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
	{
		Form_pg_depend entry = (Form_pg_depend) GETSTRUCT(tuple);
		Oid relation = InvalidOid;

		if (entry->refclassid == RelationRelationId)
			relation = entry->refobjid;
		else if (entry->refclassid == TypeRelationId)
		{
			Oid element = get_element_type(entry->refobjid);

			relation = get_typ_typrelid(OidIsValid(element) ? element : entry->refobjid);
		}
		found = OidIsValid(relation) && relation_is_local(relation);
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	return found;
}

static bool
object_is_everywhere(const ObjectAddress *object)
{
	if (!namespace_is_everywhere(object->classId == NamespaceRelationId
									 ? object->objectId
									 : get_object_namespace(object)))
		return false;
	if (object->classId == ProcedureRelationId)
	{
		Oid result = get_func_rettype(object->objectId);

		if (result == TRIGGEROID || result == EVENT_TRIGGEROID)
			return false;
	}
	return !depends_on_local_relation(object);
}

/*
 * Are all of these existing objects everywhere?  ERROR if some are and some are not;
 * missing ones do not count.
 */
bool
ddl_objects_are_everywhere(ObjectType type, List *objects)
{
	int everywhere = 0;
	int local = 0;
	ListCell *cell;

	foreach(cell, objects)
	{
		Relation relation = NULL;
		ObjectAddress address = get_object_address(type, lfirst(cell), &relation, AccessShareLock,
												   true);

		if (relation != NULL)
			table_close(relation, AccessShareLock);
		if (!OidIsValid(address.objectId))
			continue;
		if (object_is_everywhere(&address))
			everywhere++;
		else
			local++;
	}
	if (everywhere > 0 && local > 0)
		ereport(
			ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("some of the objects exist on the workers and some on the coordinator only"),
			 errhint("Use a separate statement for each object.")));
	return everywhere > 0;
}

/* ---------------------------------------------------------------- commands */

/*
 * CREATE of a type, function, operator or the like.  Function bodies are not checked on
 * the workers: they may name tables that only the coordinator has.  Partial aggregates are
 * made by an event trigger on each node (schema strata_partial).
 */
void
ddl_create_object(UtilityCall *call)
{
	Node *statement = call->statement->utilityStmt;
	bool created = false;
	ListCell *cell;
	char *text;

	ddl_run_locally(call);
	if (metadata_all_workers() == NULL)
		return;

	foreach(cell, ddl_created_objects(call))
	{
		const ObjectAddress *address = lfirst(cell);

		if (address->classId == RelationRelationId || !is_objectclass_supported(address->classId))
			continue;
		if (!object_is_everywhere(address))
			return;
		created = true;
	}
	if (!created)
		return;

	text = ddl_statement_text(call);
	if (IsA(statement, CreateFunctionStmt))
		text = psprintf("SET LOCAL check_function_bodies = off; %s", text);
	ddl_send_everywhere(text);
}

/* Functions whose arguments or result are of this type, in the order of their OIDs. */
static List *
functions_of_type(Oid type)
{
	Relation depend = table_open(DependRelationId, AccessShareLock);
	List *functions = NIL;
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple tuple;

	ScanKeyInit(&keys[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(TypeRelationId));
	ScanKeyInit(&keys[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(type));
	scan = systable_beginscan(depend, DependReferenceIndexId, true, NULL, 2, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend entry = (Form_pg_depend) GETSTRUCT(tuple);

		if (entry->classid == ProcedureRelationId)
			functions = list_append_unique_oid(functions, entry->objid);
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	list_sort(functions, list_oid_cmp);
	return functions;
}

void
ddl_send_row_type_functions(Oid relation)
{
	Oid type = get_rel_type_id(relation);
	List *functions = list_concat_unique_oid(functions_of_type(type),
											 functions_of_type(get_array_type(type)));
	ListCell *cell;

	foreach(cell, functions)
	{
		ObjectAddress address;
		char *definition;

		ObjectAddressSet(address, ProcedureRelationId, lfirst_oid(cell));
		if (get_func_prokind(lfirst_oid(cell)) == PROKIND_AGGREGATE ||
			!object_is_everywhere(&address))
			continue;
		definition = TextDatumGetCString(
			DirectFunctionCall1(pg_get_functiondef, ObjectIdGetDatum(lfirst_oid(cell))));
		ddl_send_everywhere(psprintf("SET LOCAL check_function_bodies = off; %s", definition));
	}
}

/* An object's name as get_object_address() wants it: types come as lists of names from the grammar. */
static List *
object_list(ObjectType type, Node *object)
{
	if ((type == OBJECT_TYPE || type == OBJECT_DOMAIN) && IsA(object, List))
		object = (Node *) makeTypeNameFromNameList((List *) object);
	return list_make1(object);
}

/* The same for a composite type, which the grammar takes for a relation. */
static List *
composite_type_list(const RangeVar *name)
{
	List *names = list_make1(makeString(name->relname));

	if (name->schemaname != NULL)
		names = lcons(makeString(name->schemaname), names);
	return object_list(OBJECT_TYPE, (Node *) names);
}

/* Which objects a RENAME concerns: their kind, and a list for get_object_address(). */
static List *
renamed_objects(const RenameStmt *rename, ObjectType *type)
{
	*type = rename->renameType;
	switch (rename->renameType)
	{
		case OBJECT_SCHEMA:
			return list_make1(makeString(rename->subname));
		case OBJECT_ATTRIBUTE:
			*type = OBJECT_TYPE;
			return composite_type_list(rename->relation);
		case OBJECT_DOMCONSTRAINT:
			*type = OBJECT_DOMAIN;
			return object_list(OBJECT_DOMAIN, rename->object);
		default:
			return rename->object == NULL ? NIL : object_list(*type, rename->object);
	}
}

/* The same for ALTER. */
static List *
altered_objects(Node *statement, ObjectType *type)
{
	Node *object = NULL;

	switch (nodeTag(statement))
	{
		case T_AlterEnumStmt:
			*type = OBJECT_TYPE;
			object = (Node *) castNode(AlterEnumStmt, statement)->typeName;
			break;
		case T_AlterDomainStmt:
			*type = OBJECT_DOMAIN;
			object = (Node *) castNode(AlterDomainStmt, statement)->typeName;
			break;
		case T_AlterTypeStmt:
			*type = OBJECT_TYPE;
			object = (Node *) castNode(AlterTypeStmt, statement)->typeName;
			break;
		case T_AlterFunctionStmt:
			*type = castNode(AlterFunctionStmt, statement)->objtype;
			object = (Node *) castNode(AlterFunctionStmt, statement)->func;
			break;
		case T_AlterOwnerStmt:
			*type = castNode(AlterOwnerStmt, statement)->objectType;
			object = castNode(AlterOwnerStmt, statement)->object;
			break;
		case T_AlterObjectSchemaStmt:
			*type = castNode(AlterObjectSchemaStmt, statement)->objectType;
			object = castNode(AlterObjectSchemaStmt, statement)->object;
			break;
		case T_AlterTableStmt:
			*type = OBJECT_TYPE;
			return composite_type_list(castNode(AlterTableStmt, statement)->relation);
		case T_RenameStmt:
			return renamed_objects(castNode(RenameStmt, statement), type);
		default:
			elog(ERROR, "unexpected statement %d", (int) nodeTag(statement));
	}
	return object == NULL ? NIL : object_list(*type, object);
}

/* Kinds of objects that workers have, besides tables. */
static bool
type_is_everywhere(ObjectType type)
{
	switch (type)
	{
		case OBJECT_AGGREGATE:
		case OBJECT_CAST:
		case OBJECT_COLLATION:
		case OBJECT_DOMAIN:
		case OBJECT_FUNCTION:
		case OBJECT_OPCLASS:
		case OBJECT_OPERATOR:
		case OBJECT_OPFAMILY:
		case OBJECT_PROCEDURE:
		case OBJECT_ROUTINE:
		case OBJECT_SCHEMA:
		case OBJECT_TSCONFIGURATION:
		case OBJECT_TSDICTIONARY:
		case OBJECT_TSPARSER:
		case OBJECT_TSTEMPLATE:
		case OBJECT_TYPE:
			return true;
		default:
			return false;
	}
}

/*
 * ALTER of an object that is not a table.  Scans are suspended because a changed
 * domain is checked against all tables that use it: the workers do that.
 */
void
ddl_alter_object(UtilityCall *call)
{
	ObjectType type;
	List *objects = altered_objects(call->statement->utilityStmt, &type);
	bool everywhere = metadata_all_workers() != NULL && type_is_everywhere(type) &&
					  ddl_objects_are_everywhere(type, objects);

	if (everywhere)
		ddl_run_without_scans(call);
	else
		ddl_run_locally(call);
	if (everywhere)
		ddl_send_everywhere(ddl_statement_text(call));
}

/* DROP SCHEMA: its tables were dropped on the workers one by one, what is left goes now. */
static void
drop_schemas(UtilityCall *call, DropStmt *drop)
{
	StringInfoData sql;
	ListCell *cell;

	initStringInfo(&sql);
	foreach(cell, drop->objects)
	{
		const char *name = strVal(lfirst(cell));

		if (namespace_is_everywhere(get_namespace_oid(name, true)))
			appendStringInfo(&sql, "%s%s", sql.len == 0 ? "DROP SCHEMA IF EXISTS " : ", ",
							 quote_identifier(name));
	}
	ddl_run_locally(call);
	if (sql.len > 0)
	{
		if (drop->behavior == DROP_CASCADE)
			appendStringInfoString(&sql, " CASCADE");
		ddl_send_everywhere(sql.data);
	}
}

static bool
extension_is_ours(const char *name)
{
	return strcmp(name, "strata") == 0 || strcmp(name, "strata_worker") == 0;
}

/*
 * DROP EXTENSION.  Ours cannot go while tables depend on its metadata: their rows would be
 * left behind on the workers, unknown to anybody.
 */
static void
drop_extensions(UtilityCall *call, DropStmt *drop)
{
	StringInfoData sql;
	ListCell *cell;

	initStringInfo(&sql);
	foreach(cell, drop->objects)
	{
		const char *name = strVal(lfirst(cell));

		if (strcmp(name, "strata") == 0 &&
			(metadata_catalog_tables(CATALOG_KIND_DISTRIBUTED) != NIL ||
			 metadata_catalog_tables(CATALOG_KIND_REFERENCE) != NIL))
			ereport(ERROR, (errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
							errmsg("cannot drop extension \"strata\" while there are distributed "
								   "or reference tables"),
							errhint("Run undistribute_table() on them, or drop them.")));
		if (!extension_is_ours(name))
			appendStringInfo(&sql, "%s%s", sql.len == 0 ? "DROP EXTENSION IF EXISTS " : ", ",
							 quote_identifier(name));
	}
	ddl_run_locally(call);
	if (sql.len > 0 && metadata_available())
	{
		if (drop->behavior == DROP_CASCADE)
			appendStringInfoString(&sql, " CASCADE");
		ddl_send_everywhere(sql.data);
	}
}

/* DROP of anything.  Tables are dropped on the workers by the object access hook. */
void
ddl_drop_objects(UtilityCall *call)
{
	DropStmt *drop = castNode(DropStmt, call->statement->utilityStmt);
	bool everywhere;

	if (drop->removeType == OBJECT_INDEX)
		ddl_drop_indexes(call);
	else if (drop->removeType == OBJECT_SCHEMA)
		drop_schemas(call, drop);
	else if (drop->removeType == OBJECT_EXTENSION)
		drop_extensions(call, drop);
	else
	{
		everywhere = metadata_all_workers() != NULL && type_is_everywhere(drop->removeType) &&
					 ddl_objects_are_everywhere(drop->removeType, drop->objects);
		ddl_run_locally(call);
		if (everywhere)
			ddl_send_everywhere(ddl_statement_text(call));
	}
}

/* CREATE SCHEMA: only the schema; the elements in it were handled one by one. */
void
ddl_create_schema(UtilityCall *call)
{
	ListCell *cell;

	ddl_run_locally(call);
	foreach(cell, ddl_created_objects(call))
	{
		const ObjectAddress *address = lfirst(cell);

		if (address->classId == NamespaceRelationId && object_is_everywhere(address))
		{
			HeapTuple tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(address->objectId));
			Form_pg_namespace form;

			if (!HeapTupleIsValid(tuple))
				continue;
			form = (Form_pg_namespace) GETSTRUCT(tuple);
			ddl_send_everywhere(
				psprintf("CREATE SCHEMA IF NOT EXISTS %s AUTHORIZATION %s",
						 quote_identifier(NameStr(form->nspname)),
						 quote_identifier(GetUserNameFromId(form->nspowner, false))));
			ReleaseSysCache(tuple);
		}
	}
}

/* CREATE EXTENSION of anybody's but ours: the workers need the same types and functions. */
void
ddl_create_extension(UtilityCall *call)
{
	CreateExtensionStmt *create = castNode(CreateExtensionStmt, call->statement->utilityStmt);
	StringInfoData sql;
	ListCell *cell;

	ddl_run_locally(call);
	if (extension_is_ours(create->extname) || metadata_all_workers() == NULL)
		return;

	initStringInfo(&sql);
	appendStringInfo(&sql, "CREATE EXTENSION IF NOT EXISTS %s", quote_identifier(create->extname));
	foreach(cell, create->options)
	{
		DefElem *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, "schema") == 0)
			appendStringInfo(&sql, " SCHEMA %s", quote_identifier(defGetString(option)));
		else if (strcmp(option->defname, "new_version") == 0)
			appendStringInfo(&sql, " VERSION %s", quote_literal_cstr(defGetString(option)));
		else if (strcmp(option->defname, "cascade") == 0 && defGetBoolean(option))
			appendStringInfoString(&sql, " CASCADE");
	}
	ddl_send_everywhere(sql.data);
}

/* ALTER EXTENSION ... UPDATE */
void
ddl_alter_extension(UtilityCall *call)
{
	AlterExtensionStmt *alter = castNode(AlterExtensionStmt, call->statement->utilityStmt);

	ddl_run_locally(call);
	if (extension_is_ours(alter->extname) || metadata_all_workers() == NULL)
		return;
	ddl_send_everywhere(ddl_statement_text(call));
}
