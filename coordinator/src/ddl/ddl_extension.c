/*
 * ddl_extension.c
 *		Schemas and extensions: what other objects live in, or come with.
 *
 * Both bring and take much along.  What a schema or an extension contains is created and dropped
 * by each node itself, but for our tables: the object access hook has dropped them on the
 * workers one by one before the command for the whole arrives there.  Our own extensions
 * differ between the coordinator and the workers: an update of ours updates the workers' parts.  Those of
 * strata.local_extensions are left out.
 */
#include "postgres.h"

#include "ddl/ddl.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "cluster/local_extension.h"
#include "cluster/metadata_write.h"
#include "cluster/object_place.h"
#include "stream/remote_ddl.h"

static bool
schema_is_everywhere(const char *name)
{
	ObjectAddress address;

	ObjectAddressSet(address, NamespaceRelationId, get_namespace_oid(name, true));
	return OidIsValid(address.objectId) && object_place_is_everywhere(&address);
}

/* DROP SCHEMA: its tables were dropped on the workers one by one, what is left goes now. */
void
ddl_drop_schemas(UtilityCall *call)
{
	DropStmt *drop = castNode(DropStmt, call->statement->utilityStmt);
	StringInfoData sql;
	ListCell *cell;

	initStringInfo(&sql);
	foreach(cell, drop->objects)
	{
		const char *name = strVal(lfirst(cell));

		if (schema_is_everywhere(name))
			appendStringInfo(&sql, "%s%s", sql.len == 0 ? "DROP SCHEMA IF EXISTS " : ", ",
							 quote_identifier(name));
	}
	ddl_run_locally(call);
	if (sql.len > 0)
	{
		if (drop->behavior == DROP_CASCADE)
			appendStringInfoString(&sql, " CASCADE");
		remote_ddl_send(sql.data);
	}
}

static Oid
find_schema_owner(const char *name)
{
	HeapTuple tuple = SearchSysCache1(NAMESPACENAME, CStringGetDatum(name));
	Oid owner = InvalidOid;

	if (HeapTupleIsValid(tuple))
	{
		owner = ((Form_pg_namespace) GETSTRUCT(tuple))->nspowner;
		ReleaseSysCache(tuple);
	}
	return owner;
}

char *
ddl_schema_command(const char *function, const char *schema, const char *argument)
{
	Oid owner = find_schema_owner(schema);

	return psprintf("SELECT strata_worker.%s(%s, %s, %s)", function, quote_literal_cstr(schema),
					quote_literal_cstr(GetUserNameFromId(owner, false)),
					quote_literal_cstr(argument));
}

/*
 * Ours cannot go while tables depend on its metadata: their rows would be left behind on the workers,
 * unknown to anybody.  Nor while there are workers: they would go on belonging to a cluster that is
 * no more.  They cannot be told in the same transaction, whose decision row goes with the extension.
 */
static void
check_drop_ours(void)
{
	int worker_id = bms_next_member(metadata_all_workers(), -1);

	if (metadata_write_tables(CATALOG_KIND_DISTRIBUTED) != NIL ||
		metadata_write_tables(CATALOG_KIND_REFERENCE) != NIL)
		ereport(ERROR, (errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
						errmsg("cannot drop extension \"strata\" while there are distributed "
							   "or reference tables"),
						errhint("Run undistribute_table() on them, or drop them.")));
	if (worker_id >= 0)
		ereport(
			ERROR,
			(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
			 errmsg("cannot drop extension \"strata\" while the cluster has workers"),
			 errdetail_plural("It has %d worker: \"%s\".", "It has %d workers, \"%s\" among them.",
							  bms_num_members(metadata_all_workers()),
							  bms_num_members(metadata_all_workers()),
							  metadata_worker(worker_id)->name),
			 errhint("Run SELECT strata.remove_worker(name) FROM strata.workers first: the workers "
					 "can then be added to another cluster.  One that is lost for good goes with "
					 "strata.remove_worker(name, lost => true).")));
}

/* DROP EXTENSION */
void
ddl_drop_extensions(UtilityCall *call)
{
	DropStmt *drop = castNode(DropStmt, call->statement->utilityStmt);
	StringInfoData sql;
	ListCell *cell;

	initStringInfo(&sql);
	foreach(cell, drop->objects)
	{
		const char *name = strVal(lfirst(cell));

		if (strcmp(name, "strata") == 0)
			check_drop_ours();
		if (!local_extension_stays(name))
			appendStringInfo(&sql, "%s%s", sql.len == 0 ? "DROP EXTENSION IF EXISTS " : ", ",
							 quote_identifier(name));
	}
	ddl_run_locally(call);
	if (sql.len > 0 && metadata_available())
	{
		if (drop->behavior == DROP_CASCADE)
			appendStringInfoString(&sql, " CASCADE");
		remote_ddl_send(sql.data);
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
		ObjectAddress *address = lfirst(cell);

		if (address->classId == NamespaceRelationId && object_place_is_everywhere(address))
		{
			HeapTuple tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(address->objectId));
			Form_pg_namespace form;

			if (!HeapTupleIsValid(tuple))
				continue;
			form = (Form_pg_namespace) GETSTRUCT(tuple);
			remote_ddl_send(psprintf("SELECT strata_worker.create_schema(%s, %s)",
									 quote_literal_cstr(NameStr(form->nspname)),
									 quote_literal_cstr(GetUserNameFromId(form->nspowner, false))));
			ReleaseSysCache(tuple);
			ddl_send_privileges(list_make1(address));
		}
	}
}

/*
 * A trusted extension takes CREATE on the database, which counts here; the workers lend it to the role, who
 * becomes the extension's owner there, too.  An error ends the transaction, and so the loan.
 */
static void
send_with_right(const char *sql)
{
	bool lend = !superuser();

	const char *role = quote_literal_cstr(GetUserNameFromId(GetUserId(), false));

	if (lend)
		remote_ddl_send(psprintf("SELECT strata_worker.lend_create(true, %s)", role));
	remote_ddl_send(sql);
	if (lend)
		remote_ddl_send(psprintf("SELECT strata_worker.lend_create(false, %s)", role));
}

/* What the extension brought was given privileges by ALTER DEFAULT PRIVILEGES, which workers do not know. */
static void
send_members_privileges(const char *extension)
{
	Oid argument = NAMEOID;
	List *name = list_make2(makeString("strata"), makeString("extension_privileges"));
	LOCAL_FCINFO(call, 1);
	FmgrInfo function;
	Datum command;

	CommandCounterIncrement();
	fmgr_info(LookupFuncName(name, 1, &argument, false), &function);
	InitFunctionCallInfoData(*call, &function, 1, InvalidOid, NULL, NULL);
	call->args[0].value = DirectFunctionCall1(namein, CStringGetDatum(extension));
	call->args[0].isnull = false;
	PushActiveSnapshot(GetLatestSnapshot());
	command = FunctionCallInvoke(call);
	PopActiveSnapshot();
	if (!call->isnull)
		remote_ddl_send(TextDatumGetCString(command));
}

/* The error of a worker that cannot have the extension says what can be done. */
static void
create_on_workers(const char *name, const char *sql)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		send_with_right(sql);
	}
	PG_CATCH();
	{
		ErrorData *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		error->hint = psprintf("%s%sIf the coordinator alone is to have the extension, add %s to "
							   "strata.local_extensions in its postgresql.conf and reload it.",
							   error->hint != NULL ? error->hint : "",
							   error->hint != NULL ? " " : "", quote_identifier(name));
		ReThrowError(error);
	}
	PG_END_TRY();
}

/*
 * CREATE EXTENSION of anybody's but ours: the workers need the same types and functions, unless
 * strata.local_extensions says otherwise.
 */
void
ddl_create_extension(UtilityCall *call)
{
	CreateExtensionStmt *create = castNode(CreateExtensionStmt, call->statement->utilityStmt);
	StringInfoData sql;
	ListCell *cell;

	ddl_run_locally(call);
	if (local_extension_stays(create->extname) || metadata_all_workers() == NULL)
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
	create_on_workers(create->extname, sql.data);
	send_members_privileges(create->extname);
}

/* The workers' parts of ours have the version that the coordinator's has, always. */
static void
update_ours_on_workers(void)
{
	const char *version = quote_literal_cstr(local_extension_own_version());

	for (int i = 0; local_extension_parts[i] != NULL; i++)
		remote_ddl_send(
			psprintf("ALTER EXTENSION %s UPDATE TO %s", local_extension_parts[i], version));
}

/* ALTER EXTENSION ... UPDATE */
void
ddl_alter_extension(UtilityCall *call)
{
	AlterExtensionStmt *alter = castNode(AlterExtensionStmt, call->statement->utilityStmt);
	bool is_ours = strcmp(alter->extname, "strata") == 0 && metadata_all_workers() != NULL;

	ddl_run_locally(call);
	if (is_ours)
		update_ours_on_workers();
	if (local_extension_stays(alter->extname) || metadata_all_workers() == NULL)
		return;
	send_with_right(ddl_statement_text(call));
	send_members_privileges(alter->extname);
}
