/*
 * key_change.h
 *		What forbids that rows of a distributed table move to another shard.
 */
#ifndef STRATA_KEY_CHANGE_H
#define STRATA_KEY_CHANGE_H

#include "cluster/metadata.h"

/* ERROR: the column, which says where rows are, cannot be updated. */
extern void
key_change_refuse(Oid relation, AttrNumber column, const char *detail, const char *hint);

/* ERROR if foreign keys refer to the rows. */
extern void key_change_check_references(Oid relation, AttrNumber column);

#endif
