/*
 * ddl_object.c
 *		Types, functions and their like: the same on all nodes.
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
#include "catalog/pg_constraint.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parse_type.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "local_extension.h"
#include "statement_class.h"

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

/* Is this a relation, or the index of a table, that the workers lack?  Composite types are relations, too. */
static bool
relation_is_local(Oid relation)
{
	return get_rel_relkind(relation) != RELKIND_COMPOSITE_TYPE && ddl_find_table(relation) == NULL;
}

/* Does an object depend on a relation, or its row type, or an extension's object that the workers lack? */
static bool
depends_on_local_object(const ObjectAddress *object)
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
		found = (OidIsValid(relation) && relation_is_local(relation)) ||
				local_extension_has(entry->refclassid, entry->refobjid);
	}
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

bool
ddl_object_is_everywhere(const ObjectAddress *object)
{
	if (!namespace_is_everywhere(object->classId == NamespaceRelationId
									 ? object->objectId
									 : get_object_namespace(object)) ||
		local_extension_has(object->classId, object->objectId))
		return false;
	switch (object->classId)
	{
		case RelationRelationId:
			return get_rel_relkind(object->objectId) == RELKIND_COMPOSITE_TYPE ||
				   ddl_find_table(object->objectId) != NULL;
		case ConstraintRelationId:
			if (!constraint_is_everywhere(object->objectId))
				return false;
			break;
		case ExtensionRelationId:
			return !ddl_extension_stays(get_extension_name(object->objectId));
		case ProcedureRelationId:
			if (!function_is_everywhere(object->objectId))
				return false;
			break;
		default:
			break;
	}
	return !depends_on_local_object(object);
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
		if (ddl_object_is_everywhere(&address))
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

	ddl_lock_for_change();
	ddl_run_locally(call);
	if (metadata_all_workers() == NULL)
		return;

	foreach(cell, ddl_created_objects(call))
	{
		const ObjectAddress *address = lfirst(cell);

		if (address->classId == RelationRelationId || !is_objectclass_supported(address->classId))
			continue;
		if (!ddl_object_is_everywhere(address))
			return;
		created = true;
	}
	if (!created)
		return;

	text = ddl_statement_text(call);
	if (IsA(statement, CreateFunctionStmt))
		text = psprintf("SET LOCAL check_function_bodies = off; %s", text);
	ddl_send_everywhere(text);
	foreach(cell, ddl_created_objects(call))
		ddl_send_privileges(lfirst(cell));
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
			!ddl_object_is_everywhere(&address))
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

static List *
relation_names(const RangeVar *name)
{
	List *names = list_make1(makeString(name->relname));

	return name->schemaname == NULL ? names : lcons(makeString(name->schemaname), names);
}

/* The same for a composite type, which the grammar takes for a relation. */
static List *
composite_type_list(const RangeVar *name)
{
	return object_list(OBJECT_TYPE, (Node *) relation_names(name));
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

static List *
dependent_objects(const AlterObjectDependsStmt *depends, ObjectType *type)
{
	*type = depends->objectType;
	if (depends->objectType == OBJECT_INDEX)
		return list_make1(relation_names(depends->relation));
	return depends->object == NULL ? NIL : list_make1(depends->object);
}

/* Members of our own extensions are nobody's business, and those of others that stay here, this server's. */
static List *
member_objects(const AlterExtensionContentsStmt *alter, ObjectType *type)
{
	*type = (ObjectType) alter->objtype;
	return ddl_extension_stays(alter->extname) ? NIL : object_list(*type, alter->object);
}

static List *
operator_family(const AlterOpFamilyStmt *alter)
{
	return lcons(makeString(alter->amname), list_copy(alter->opfamilyname));
}

/* The same for ALTER, COMMENT and the like. */
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
		case T_AlterObjectDependsStmt:
			return dependent_objects(castNode(AlterObjectDependsStmt, statement), type);
		case T_AlterExtensionContentsStmt:
			return member_objects(castNode(AlterExtensionContentsStmt, statement), type);
		case T_AlterOperatorStmt:
			*type = OBJECT_OPERATOR;
			object = (Node *) castNode(AlterOperatorStmt, statement)->opername;
			break;
		case T_AlterOpFamilyStmt:
			*type = OBJECT_OPFAMILY;
			object = (Node *) operator_family(castNode(AlterOpFamilyStmt, statement));
			break;
		case T_AlterCollationStmt:
			*type = OBJECT_COLLATION;
			object = (Node *) castNode(AlterCollationStmt, statement)->collname;
			break;
		case T_AlterTSDictionaryStmt:
			*type = OBJECT_TSDICTIONARY;
			object = (Node *) castNode(AlterTSDictionaryStmt, statement)->dictname;
			break;
		case T_AlterTSConfigurationStmt:
			*type = OBJECT_TSCONFIGURATION;
			object = (Node *) castNode(AlterTSConfigurationStmt, statement)->cfgname;
			break;
		case T_AlterStatsStmt:
			*type = OBJECT_STATISTIC_EXT;
			object = (Node *) castNode(AlterStatsStmt, statement)->defnames;
			break;
		case T_CommentStmt:
			*type = castNode(CommentStmt, statement)->objtype;
			object = castNode(CommentStmt, statement)->object;
			break;
		case T_SecLabelStmt:
			*type = castNode(SecLabelStmt, statement)->objtype;
			object = castNode(SecLabelStmt, statement)->object;
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

/* Do the workers have all of these objects?  Kinds that are the coordinator's are not looked up. */
static bool
workers_have(ObjectType type, List *objects)
{
	return metadata_all_workers() != NULL && statement_class_object_place(type) != OBJECT_HERE &&
		   ddl_objects_are_everywhere(type, objects);
}

/* What the workers are sent for ALTER of an object that they have; asked for before it runs here. */
static char *
build_alter(const UtilityCall *call, ObjectType type)
{
	Node *statement = call->statement->utilityStmt;

	if (IsA(statement, RenameStmt) && type == OBJECT_SCHEMA)
		return ddl_schema_command("rename_schema", castNode(RenameStmt, statement)->subname,
								  castNode(RenameStmt, statement)->newname);
	if (IsA(statement, AlterOwnerStmt))
	{
		const AlterOwnerStmt *alter = castNode(AlterOwnerStmt, statement);

		if (type == OBJECT_SCHEMA)
			return ddl_schema_command(
				"own_schema", strVal(alter->object),
				GetUserNameFromId(get_rolespec_oid(alter->newowner, false), false));
		/* session_user is another there */
		return ddl_text_with_role_names(call, list_make1(alter->newowner));
	}
	return ddl_statement_text(call);
}

/* ALTER DATABASE ... OWNER TO of this one: pg_database_owner stands for the same role on all nodes. */
static void
follow_database_owner(const AlterOwnerStmt *alter)
{
	const char *owner = GetUserNameFromId(get_rolespec_oid(alter->newowner, false), false);

	if (strcmp(strVal(alter->object), get_database_name(MyDatabaseId)) == 0)
		ddl_send_everywhere(
			psprintf("SELECT strata_worker.own_database(%s)", quote_literal_cstr(owner)));
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
	char *text;

	ddl_lock_for_change();
	if (objects == NIL || !workers_have(type, objects))
	{
		ddl_run_locally(call);
		if (IsA(call->statement->utilityStmt, AlterOwnerStmt) && type == OBJECT_DATABASE)
			follow_database_owner(castNode(AlterOwnerStmt, call->statement->utilityStmt));
		return;
	}
	text = build_alter(call, type);
	ddl_run_without_scans(call);
	ddl_send_everywhere(text);
}

/* DROP of anything.  Tables are dropped on the workers by the object access hook. */
void
ddl_drop_objects(UtilityCall *call)
{
	DropStmt *drop = castNode(DropStmt, call->statement->utilityStmt);
	bool everywhere;

	switch (drop->removeType)
	{
		case OBJECT_TABLE:
			ddl_run_locally(call);
			break;
		case OBJECT_INDEX:
			ddl_drop_indexes(call);
			break;
		case OBJECT_SCHEMA:
			ddl_drop_schemas(call);
			break;
		case OBJECT_EXTENSION:
			ddl_drop_extensions(call);
			break;
		default:
			ddl_lock_for_change();
			everywhere = workers_have(drop->removeType, drop->objects);
			ddl_run_locally(call);
			if (everywhere)
				ddl_send_everywhere(ddl_statement_text(call));
			break;
	}
}
