/*
 * ddl_row_type.c
 *		What is built on a type, when workers get or lose what that needs.
 *
 * Functions that take or return rows of a local table, or whose SQL body names it, composite types with such attributes,
 * and what is built on them in turn, are the coordinator's (object_place.c).  When the table is distributed, or the attribute dropped, the
 * workers get these objects, each after what it needs; when the table comes back, or such an attribute
 * is added, they lose them in the opposite order.  Whoever does that, each object stays its owner's (ddl_privileges.c).
 */
#include "postgres.h"

#include "cluster/object_place.h"
#include "ddl/ddl.h"
#include "stream/remote_ddl.h"
#include "table/table_tree.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

/* The domain whose CHECK a constraint is, or nothing. */
static Oid
get_constrained_domain(Oid constraint)
{
	HeapTuple tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));
	Oid domain = InvalidOid;

	if (HeapTupleIsValid(tuple))
	{
		domain = ((Form_pg_constraint) GETSTRUCT(tuple))->contypid;
		ReleaseSysCache(tuple);
	}
	return domain;
}

/* A dependent: a type (in the place of its attributes or constraints) or a function, or nothing. */
static ObjectAddress
get_dependent(const Form_pg_depend entry)
{
	ObjectAddress object;

	ObjectAddressSet(object, entry->classid, entry->objid);
	if (entry->classid == RelationRelationId &&
		get_rel_relkind(entry->objid) == RELKIND_COMPOSITE_TYPE)
		ObjectAddressSet(object, TypeRelationId, get_rel_type_id(entry->objid));
	else if (entry->classid == ConstraintRelationId)
		ObjectAddressSet(object, TypeRelationId, get_constrained_domain(entry->objid));
	else if (entry->classid != TypeRelationId && entry->classid != ProcedureRelationId)
		object.objectId = InvalidOid;
	return object;
}

static bool
is_visited(const List *visited, const ObjectAddress *object)
{
	const ListCell *cell;

	foreach(cell, visited)
	{
		const ObjectAddress *other = lfirst(cell);

		if (other->classId == object->classId && other->objectId == object->objectId)
			return true;
	}
	return false;
}

typedef struct Dependent
{
	ObjectAddress object;
	bool own;		 /* and not made with another, as the array of a type is */
	bool everywhere; /* when it was noted */
	char *drop;		 /* the command for workers */
} Dependent;

static List *
list_dependents(const ObjectAddress *object)
{
	Relation depend = table_open(DependRelationId, AccessShareLock);
	List *dependents = NIL;
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple tuple;

	ScanKeyInit(&keys[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(object->classId));
	ScanKeyInit(&keys[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(object->objectId));
	scan = systable_beginscan(depend, DependReferenceIndexId, true, NULL, 2, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend entry = (Form_pg_depend) GETSTRUCT(tuple);
		Dependent *dependent = palloc(sizeof(Dependent));

		dependent->object = get_dependent(entry);
		dependent->own = entry->deptype != DEPENDENCY_INTERNAL;
		if (OidIsValid(dependent->object.objectId))
			dependents = lappend(dependents, dependent);
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	return dependents;
}

/* Put what is built on an object in front of *found, each in front of what is built on it in turn. */
static void
find_dependents(const ObjectAddress *object, List **visited, List **found)
{
	ListCell *cell;

	foreach(cell, list_dependents(object))
	{
		Dependent *dependent = lfirst(cell);

		if (is_visited(*visited, &dependent->object))
			continue;
		*visited = lappend(*visited, &dependent->object);
		find_dependents(&dependent->object, visited, found);
		if (dependent->own)
			*found = lcons(dependent, *found);
	}
}

/* A function, or a type that is no table's. */
static bool
is_own(const ObjectAddress *object)
{
	Oid relation = object->classId == TypeRelationId ? get_typ_typrelid(object->objectId)
													 : InvalidOid;

	return object->classId != RelationRelationId &&
		   (!OidIsValid(relation) || get_rel_relkind(relation) == RELKIND_COMPOSITE_TYPE);
}

/* What is built on some objects (ObjectAddress *), and those that are no tables; each once, behind what it needs. */
static List *
note_dependents(const List *objects)
{
	List *found = NIL;
	List *visited = NIL;
	ListCell *cell;

	foreach(cell, objects)
	{
		ObjectAddress *object = lfirst(cell);
		Dependent *self = palloc0(sizeof(Dependent));

		visited = lappend(visited, object);
		find_dependents(object, &visited, &found);
		self->object = *object;
		self->own = is_own(object);
		if (self->own)
			found = lcons(self, found);
	}
	foreach(cell, found)
	{
		Dependent *dependent = lfirst(cell);

		dependent->everywhere = object_place_is_everywhere(&dependent->object);
		dependent->drop = dependent->everywhere && metadata_all_workers() != NULL
							  ? ddl_place_command("drop", list_make1(&dependent->object))
							  : NULL;
	}
	return found;
}

List *
ddl_note_dependents(Oid class, Oid object)
{
	ObjectAddress address;

	if (!OidIsValid(object)) /* a sequence or index has no type */
		return NIL;
	ObjectAddressSet(address, class, object);
	return note_dependents(list_make1(&address));
}

/* Addresses in this class for the members of a tree, parents first. */
static List *
list_members(Oid relation, Oid class)
{
	List *objects = NIL;
	ListCell *cell;

	foreach(cell, table_tree_members(relation, AccessShareLock))
	{
		Oid member = lfirst_oid(cell);
		ObjectAddress *object = palloc(sizeof(ObjectAddress));

		ObjectAddressSet(*object, class,
						 class == TypeRelationId ? get_rel_type_id(member) : member);
		objects = lappend(objects, object);
	}
	return objects;
}

List *
ddl_note_tree_dependents(Oid relation)
{
	return note_dependents(list_members(relation, RelationRelationId));
}

void
ddl_move_dependents(const List *noted)
{
	ListCell *cell;

	CommandCounterIncrement();
	for (int i = list_length(noted) - 1; i >= 0; i--)
	{
		const Dependent *dependent = list_nth(noted, i);

		if (dependent->drop != NULL && !object_place_is_everywhere(&dependent->object))
			remote_ddl_send(dependent->drop);
	}
	foreach(cell, noted)
	{
		Dependent *dependent = lfirst(cell);

		if (!dependent->everywhere && object_place_is_everywhere(&dependent->object))
			ddl_place("create", list_make1(&dependent->object));
	}
}

void
ddl_bring_dependents(Oid relation, const List *noted)
{
	ddl_move_dependents(noted);
	ddl_send_privileges(list_members(relation, TypeRelationId));
}
