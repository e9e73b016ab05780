/*
 * ddl_object.c
 *		Types, functions and their like: the same on all nodes.
 *
 * Fragments of queries run on the workers, and so everything they can name must exist there.
 * Commands are sent as the user typed them, with the session's search_path.
 *
 * Which objects the workers have, object_place.c says: for a command that creates an object, after it ran here, and
 * for one that changes or drops it, before it runs.  What a command names and they have not, they are not told.
 * Objects made before the first worker was added were copied by add_worker().
 */
#include "postgres.h"

#include "ddl/ddl.h"

#include "access/relation.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parse_type.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "cluster/local_extension.h"
#include "cluster/metadata_write.h"
#include "cluster/object_place.h"
#include "cluster/shard_map.h"
#include "ddl/utility_class.h"
#include "stream/remote_ddl.h"
#include "table/table_definition.h"

/* ---------------------------------------------------------------- commands */

/* The parameters of CREATE OR REPLACE of a function or aggregate, and its name; false if it is another command. */
static bool
get_replaced_parameters(Node *statement, List **name, List **parameters)
{
	if (IsA(statement, CreateFunctionStmt))
	{
		*name = castNode(CreateFunctionStmt, statement)->funcname;
		*parameters = castNode(CreateFunctionStmt, statement)->parameters;
		return castNode(CreateFunctionStmt, statement)->replace;
	}
	if (IsA(statement, DefineStmt))
	{
		const DefineStmt *define = castNode(DefineStmt, statement);

		*name = define->defnames;
		*parameters = define->args == NIL ? NIL : (List *) linitial(define->args);
		return define->replace && define->kind == OBJECT_AGGREGATE && !define->oldstyle;
	}
	return false;
}

/*
 * The type of a parameter; InvalidOid when there is none of that name.  LookupTypeName() would give a NOTICE of
 * what table.column%TYPE stands for, which the command itself is to give.
 */
static Oid
find_parameter_type(const TypeName *type)
{
	Oid column;

	if (!type->pct_type)
		return LookupTypeNameOid(NULL, type, true);
	column = ddl_column_type(type);
	return type->arrayBounds != NIL ? get_array_type(column) : column;
}

/* The function that the command is about to replace; InvalidOid: none. */
static Oid
find_replaced(Node *statement)
{
	List *name;
	List *parameters;
	char *schema_name;
	char *function;
	Oid schema;
	Oid types[FUNC_MAX_ARGS];
	int count = 0;
	ListCell *cell;

	if (!get_replaced_parameters(statement, &name, &parameters) || list_length(name) > 3)
		return InvalidOid;
	foreach(cell, parameters)
	{
		const FunctionParameter *parameter = lfirst_node(FunctionParameter, cell);

		if (parameter->mode == FUNC_PARAM_OUT || parameter->mode == FUNC_PARAM_TABLE)
			continue;
		if (count == FUNC_MAX_ARGS)
			return InvalidOid;
		types[count] = find_parameter_type(parameter->argType);
		if (!OidIsValid(types[count++]))
			return InvalidOid;
	}
	DeconstructQualifiedName(name, &schema_name, &function);
	if (schema_name != NULL)
		schema = get_namespace_oid(schema_name, true);
	else if (fetch_search_path_array(&schema, 1) == 0)
		return InvalidOid;
	return GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, PointerGetDatum(function),
						   PointerGetDatum(buildoidvector(types, count)), ObjectIdGetDatum(schema));
}

/* Those of the created objects that are not PostgreSQL's internal ones; *everywhere: the workers get them. */
static List *
list_created(const UtilityCall *call, bool *everywhere)
{
	List *created = NIL;
	ListCell *cell;

	*everywhere = true;
	foreach(cell, ddl_created_objects(call))
	{
		const ObjectAddress *address = lfirst(cell);

		if (address->classId == RelationRelationId || !is_objectclass_supported(address->classId))
			continue;
		*everywhere &= object_place_is_everywhere(address);
		created = lappend(created, lfirst(cell));
	}
	return created;
}

/*
 * CREATE of a type, function, operator or the like.  Function bodies are not checked on
 * the workers: they may name tables that only the coordinator has.  Partial aggregates are
 * made by an event trigger on each node (schema strata_partial).
 *
 * CREATE OR REPLACE leaves a function its owner, and may make one that stays here of one that does not, or the opposite.
 */
void
ddl_create_object(UtilityCall *call)
{
	Node *statement = call->statement->utilityStmt;
	List *dependents = NIL;
	List *created;
	ObjectAddress replaced;
	bool was_everywhere;
	bool everywhere;
	char *text;

	remote_ddl_lock_for_change();
	if (metadata_all_workers() == NULL)
	{
		ddl_run_locally(call);
		return;
	}
	ObjectAddressSet(replaced, ProcedureRelationId, find_replaced(statement));
	was_everywhere = OidIsValid(replaced.objectId) && object_place_is_everywhere(&replaced);
	dependents = ddl_note_dependents(ProcedureRelationId, replaced.objectId);
	ddl_run_locally(call);

	created = list_created(call, &everywhere);
	ddl_move_dependents(dependents);
	if (!everywhere || created == NIL || (dependents != NIL && !was_everywhere))
		return;
	if (ddl_is_anothers(linitial(created)))
	{
		ddl_place("create", created);
		return;
	}
	text = ddl_statement_text(call);
	if (IsA(statement, CreateFunctionStmt))
		text = psprintf("SET LOCAL check_function_bodies = off; %s", text);
	remote_ddl_send(text);
	ddl_send_privileges(created);
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
	return local_extension_stays(alter->extname) ? NIL : object_list(*type, alter->object);
}

static List *
operator_family(const AlterOpFamilyStmt *alter)
{
	return lcons(makeString(alter->amname), list_copy(alter->opfamilyname));
}

/* REFRESH VERSION says that all is well again, and rows that lie by the old version are not. */
static void
check_refresh(const AlterCollationStmt *alter)
{
	Oid collation = get_collation_oid(alter->collname, true);
	ListCell *cell;

	if (!OidIsValid(collation))
		return;
	foreach(cell, metadata_write_tables(CATALOG_KIND_DISTRIBUTED))
	{
		const DistributedTable *table = metadata_table(lfirst_oid(cell));

		if (table != NULL && table->colocation->key_collation == collation)
			shard_map_require_collation(table->colocation);
	}
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
			check_refresh(castNode(AlterCollationStmt, statement));
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

/* Those of the objects that the workers have (ObjectAddress *).  Kinds that are the coordinator's are not looked up. */
static List *
find_on_workers(ObjectType type, List *objects, bool *all)
{
	if (metadata_all_workers() == NULL || utility_class_object_place(type) == OBJECT_HERE)
		return NIL;
	return object_place_everywhere_of(type, objects, all);
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
		remote_ddl_send(
			psprintf("SELECT strata_worker.own_database(%s)", quote_literal_cstr(owner)));
}

/* The type that an ALTER may give, or take from, what workers lack; InvalidOid: none. */
static Oid
get_altered_type(const Node *statement, List *objects)
{
	if (objects == NIL || metadata_all_workers() == NULL ||
		!(IsA(statement, AlterTableStmt) || IsA(statement, AlterDomainStmt)))
		return InvalidOid;
	return LookupTypeNameOid(NULL, linitial_node(TypeName, objects), true);
}

/*
 * ALTER of an object that is not a table.  Scans are suspended because a changed
 * domain is checked against all tables that use it, and a type's tables change with it: the workers do that.
 */
void
ddl_alter_object(UtilityCall *call)
{
	Node *statement = call->statement->utilityStmt;
	ObjectType type;
	List *objects = altered_objects(statement, &type);
	List *everywhere = NIL;
	List *dependents = NIL;
	Oid altered;
	char *text = NULL;

	remote_ddl_lock_for_change();
	if (objects != NIL)
		everywhere = find_on_workers(type, objects, NULL);
	altered = get_altered_type(statement, objects);
	if (OidIsValid(altered))
		dependents = ddl_note_dependents(TypeRelationId, altered);
	if (everywhere != NIL)
		text = build_alter(call, type);
	if (everywhere != NIL || IsA(statement, AlterTableStmt))
		ddl_run_without_scans(call);
	else
		ddl_run_locally(call);
	if (IsA(statement, AlterOwnerStmt) && type == OBJECT_DATABASE)
		follow_database_owner(castNode(AlterOwnerStmt, statement));
	ddl_move_dependents(dependents);
	if (everywhere != NIL && object_place_is_everywhere(linitial(everywhere)))
		remote_ddl_send(text);
}

/* DROP of these objects alone, which the workers have of those that the command names. */
static char *
build_drop(const DropStmt *drop, List *objects)
{
	StringInfoData sql;
	const char *separator = " ";
	ListCell *cell;

	initStringInfo(&sql);
	/* aggregates go by what they take, as functions do: identities do not have the syntax of DROP AGGREGATE */
	appendStringInfoString(&sql, drop->removeType == OBJECT_AGGREGATE
									 ? "DROP ROUTINE"
									 : CreateCommandName((Node *) drop));
	foreach(cell, objects)
	{
		appendStringInfo(&sql, "%s%s", separator, getObjectIdentity(lfirst(cell), false));
		separator = ", ";
	}
	if (drop->behavior == DROP_CASCADE)
		appendStringInfoString(&sql, " CASCADE");
	return sql.data;
}

static void
drop_objects(UtilityCall *call, const DropStmt *drop)
{
	List *everywhere;
	char *text = NULL;
	bool all;

	remote_ddl_lock_for_change();
	everywhere = find_on_workers(drop->removeType, drop->objects, &all);
	if (everywhere != NIL && !all)
		text = build_drop(drop, everywhere);
	ddl_run_locally(call);
	if (everywhere != NIL)
		remote_ddl_send(text != NULL ? text : ddl_statement_text(call));
}

/* DROP of anything.  Tables are dropped on the workers by the object access hook. */
void
ddl_drop_objects(UtilityCall *call)
{
	const DropStmt *drop = castNode(DropStmt, call->statement->utilityStmt);

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
			drop_objects(call, drop);
			break;
	}
}

/* The definition of a table of ours is a label of it (table_definition.c); other labels are as on one server. */
void
ddl_security_label(UtilityCall *call)
{
	SecLabelStmt *statement = castNode(SecLabelStmt, call->statement->utilityStmt);
	ObjectAddress address;
	Relation relation;

	if (statement->provider == NULL ||
		strcmp(statement->provider, TABLE_DEFINITION_PROVIDER) != 0 ||
		statement->objtype != OBJECT_TABLE)
	{
		ddl_alter_object(call);
		return;
	}
	address = get_object_address(statement->objtype, statement->object, &relation,
								 AccessExclusiveLock, false);
	check_object_ownership(GetUserId(), statement->objtype, address, statement->object, relation);
	relation_close(relation, NoLock);
	if (statement->label == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("the definition of a distributed table cannot be removed"),
						errhint("Run undistribute_table() to make it a local table.")));
	table_definition_apply(address.objectId, statement->label, 0);
}
