/*
 * shippable_object.h
 *		Which functions and other objects mean the same on a worker.
 */
#ifndef STRATA_SHIPPABLE_OBJECT_H
#define STRATA_SHIPPABLE_OBJECT_H

/* Is the object built in, or of an extension, which every node has? */
extern bool shippable_object(Oid classid, Oid objectid);

/* May workers evaluate the function, of columns? */
extern bool shippable_function(Oid function);

/* Is it a volatile built-in function whose values are as good from one node as from another? */
extern bool shippable_stateless_function(Oid function);

#endif
