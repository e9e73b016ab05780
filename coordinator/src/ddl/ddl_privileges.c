/*
 * ddl_privileges.c
 *		Whose an object is on the workers, and who may use it: as here.
 *
 * A command that creates an object travels as it was typed, and runs as the user who gave it: the object is his
 * on all nodes.  Whatever else brings an object to the workers (a table that is distributed, a command of somebody
 * who does not own it), they get it from its definition, with its owner and its access list, by
 * strata_worker.place_objects() (worker/sql/objects.sql).
 *
 * Access lists travel whole, after each change of them.  GRANT chooses the grantor, among several roles by the order in
 * which a node has learned of them; and ALTER DEFAULT PRIVILEGES stays on the coordinator: on the workers it would also
 * act on tables that were created here before it and distributed after it, and on those of add_worker().
 */
#include "postgres.h"

#include "ddl/ddl.h"
#include "stream/remote_ddl.h"

#include "access/xact.h"
#include "catalog/pg_language.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* So many objects go in one message. */
#define OBJECTS_PER_MESSAGE 100

char *
ddl_place_command(const char *how, const List *objects)
{
	Oid arguments[] = {TEXTOID, OIDARRAYOID, OIDARRAYOID};
	List *name = list_make2(makeString("strata"), makeString("place_command"));
	Oid function = LookupFuncName(name, lengthof(arguments), arguments, false);
	int count = list_length(objects);
	Datum *classes = palloc(count * sizeof(Datum));
	Datum *ids = palloc(count * sizeof(Datum));
	char *command;

	for (int i = 0; i < count; i++)
	{
		const ObjectAddress *object = list_nth(objects, i);

		classes[i] = ObjectIdGetDatum(object->classId);
		ids[i] = ObjectIdGetDatum(object->objectId);
	}
	/* it may just have been changed */
	CommandCounterIncrement();
	PushActiveSnapshot(GetLatestSnapshot());
	command = TextDatumGetCString(OidFunctionCall3(
		function, CStringGetTextDatum(how),
		PointerGetDatum(construct_array(classes, count, OIDOID, sizeof(Oid), true, TYPALIGN_INT)),
		PointerGetDatum(construct_array(ids, count, OIDOID, sizeof(Oid), true, TYPALIGN_INT))));
	PopActiveSnapshot();
	return command;
}

void
ddl_place(const char *how, const List *objects)
{
	List *part = NIL;

	if (metadata_all_workers() == NULL)
		return;
	for (int i = 0; i < list_length(objects); i++)
	{
		part = lappend(part, list_nth(objects, i));
		if (list_length(part) < OBJECTS_PER_MESSAGE && i < list_length(objects) - 1)
			continue;
		remote_ddl_send(ddl_place_command(how, part));
		part = NIL;
	}
}

static bool
has_privileges(const ObjectAddress *object)
{
	int cache;
	HeapTuple tuple;
	bool isnull;

	if (object->classId != ProcedureRelationId && object->classId != TypeRelationId &&
		object->classId != NamespaceRelationId && object->classId != LanguageRelationId)
		return false;
	cache = get_object_catcache_oid(object->classId);
	tuple = SearchSysCache1(cache, ObjectIdGetDatum(object->objectId));
	if (!HeapTupleIsValid(tuple))
		return false;
	(void) SysCacheGetAttr(cache, tuple, get_object_attnum_acl(object->classId), &isnull);
	ReleaseSysCache(tuple);
	return !isnull;
}

void
ddl_send_privileges(const List *objects)
{
	List *changed = NIL;
	ListCell *cell;

	CommandCounterIncrement();
	foreach(cell, objects)
	{
		if (has_privileges(lfirst(cell)))
			changed = lappend(changed, lfirst(cell));
	}
	if (changed != NIL)
		ddl_place("set", changed);
}

/* Does somebody else own an object of these kinds than the current user, whose commands make his own? */
bool
ddl_is_anothers(const ObjectAddress *object)
{
	int cache;
	HeapTuple tuple;
	bool isnull;
	Oid owner;

	if (object->classId != ProcedureRelationId && object->classId != TypeRelationId)
		return false;
	cache = get_object_catcache_oid(object->classId);
	tuple = SearchSysCache1(cache, ObjectIdGetDatum(object->objectId));
	if (!HeapTupleIsValid(tuple))
		return false;
	owner = DatumGetObjectId(
		SysCacheGetAttr(cache, tuple, get_object_attnum_owner(object->classId), &isnull));
	ReleaseSysCache(tuple);
	return owner != GetUserId();
}
