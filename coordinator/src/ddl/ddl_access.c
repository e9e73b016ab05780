/*
 * ddl_access.c
 *		Privileges on what code names, the same on all nodes.
 *
 * Code runs on the workers as the current user, and so what he was granted on functions, types, schemas and languages
 * must be granted there, too.  Privileges on tables, their columns and sequences are checked here, before anything
 * is sent, and granted to nobody there: worker/src/own_statement.c.
 */
#include "postgres.h"

#include "ddl/ddl.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_proc.h"
#include "nodes/makefuncs.h"
#include "utils/fmgroids.h"

#include "cluster/object_place.h"
#include "stream/remote_ddl.h"

/* ---------------------------------------------------------------- GRANT and REVOKE */

static bool
is_of_kind(ObjectType type, char kind)
{
	return type == OBJECT_ROUTINE || (type == OBJECT_PROCEDURE) == (kind == PROKIND_PROCEDURE);
}

/* The functions, procedures or both of a schema that workers have. */
static List *
list_routines(Oid schema, ObjectType type)
{
	Relation catalog = table_open(ProcedureRelationId, AccessShareLock);
	List *routines = NIL;
	ScanKeyData key;
	TableScanDesc scan;
	HeapTuple tuple;

	ScanKeyInit(&key, Anum_pg_proc_pronamespace, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(schema));
	scan = table_beginscan_catalog(catalog, 1, &key);
	while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection)))
	{
		Form_pg_proc form = (Form_pg_proc) GETSTRUCT(tuple);
		ObjectAddress *address = palloc(sizeof(ObjectAddress));

		ObjectAddressSet(*address, ProcedureRelationId, form->oid);
		if (is_of_kind(type, form->prokind) && object_place_is_everywhere(address))
			routines = lappend(routines, address);
	}
	table_endscan(scan);
	table_close(catalog, AccessShareLock);
	return routines;
}

static List *
list_routines_of_schemas(const GrantStmt *grant)
{
	List *routines = NIL;
	ListCell *cell;

	foreach(cell, object_place_everywhere_of(OBJECT_SCHEMA, grant->objects, NULL))
		routines = list_concat(
			routines, list_routines(((ObjectAddress *) lfirst(cell))->objectId, grant->objtype));
	return routines;
}

/* Which of the objects that a GRANT names, other than tables, the workers have. */
static List *
find_granted_objects(const GrantStmt *grant)
{
	List *objects = NIL;
	ListCell *cell;

	switch (grant->objtype)
	{
		case OBJECT_FUNCTION:
		case OBJECT_PROCEDURE:
		case OBJECT_ROUTINE:
			if (grant->targtype == ACL_TARGET_ALL_IN_SCHEMA)
				return list_routines_of_schemas(grant);
			return object_place_everywhere_of(grant->objtype, grant->objects, NULL);
		case OBJECT_LANGUAGE:
		case OBJECT_SCHEMA:
			return object_place_everywhere_of(grant->objtype, grant->objects, NULL);
		case OBJECT_TYPE:
		case OBJECT_DOMAIN:
			foreach(cell, grant->objects)
				objects = lappend(objects, makeTypeNameFromNameList(lfirst_node(List, cell)));
			return object_place_everywhere_of(grant->objtype, objects, NULL);
		default:
			return NIL;
	}
}

/* Those that are not being made by the same command, CREATE SCHEMA: it sends them when it has made them. */
static List *
without_created(const UtilityCall *call, List *objects)
{
	List *others = NIL;
	ListCell *cell;
	ListCell *created_cell;

	foreach(cell, objects)
	{
		const ObjectAddress *object = lfirst(cell);
		bool created = false;

		foreach(created_cell, ddl_created_objects(call))
		{
			const ObjectAddress *other = lfirst(created_cell);

			created |= other->classId == object->classId && other->objectId == object->objectId;
		}
		if (!created)
			others = lappend(others, lfirst(cell));
	}
	return others;
}

/* The workers get the access list that it led to, which has the grantors that PostgreSQL has chosen here. */
void
ddl_grant(UtilityCall *call)
{
	GrantStmt *grant = castNode(GrantStmt, call->statement->utilityStmt);
	List *everywhere;

	remote_ddl_lock_for_change();
	ddl_run_locally(call);
	if (metadata_all_workers() == NULL || grant->targtype == ACL_TARGET_DEFAULTS)
		return;
	if (grant->objtype == OBJECT_PARAMETER_ACL)
	{
		remote_ddl_send(ddl_text_with_role_names(call, grant->grantees));
		return;
	}
	everywhere = find_granted_objects(grant);
	ddl_place("set", call->context == PROCESS_UTILITY_SUBCOMMAND ? without_created(call, everywhere)
																 : everywhere);
}
