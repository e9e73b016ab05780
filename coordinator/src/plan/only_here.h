/*
 * only_here.h
 *		Objects that expressions name and the workers do not have.
 */
#ifndef STRATA_ONLY_HERE_H
#define STRATA_ONLY_HERE_H

#include "nodes/nodes.h"

/* A temporary object, a local table's row type, what depends on one; never a built-in object. */
extern bool only_here_object(Oid classid, Oid objectid);

/* A type, or what it is made of. */
extern bool only_here_type(Oid type);

/* Would the node itself, printed for a worker, name a type, collation, function or 'name'::regclass of that kind? */
extern bool only_here_node(Node *node);

#endif
