/*
 * object_place.h
 *		Which objects are on all nodes, and which are the coordinator's.
 */
#ifndef STRATA_OBJECT_PLACE_H
#define STRATA_OBJECT_PLACE_H

#include "postgres.h"

#include "catalog/objectaddress.h"
#include "nodes/parsenodes.h"

/* Do the workers have it, or may they? */
extern bool object_place_is_everywhere(const ObjectAddress *object);

/*
 * Those of existing objects that are everywhere (ObjectAddress *); *all, if that is not NULL: are there no others?
 * Missing ones do not count.
 */
extern List *object_place_everywhere_of(ObjectType type, List *objects, bool *all);

#endif
