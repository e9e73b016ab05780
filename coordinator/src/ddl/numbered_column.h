/*
 * numbered_column.h
 *		ADD COLUMN of a column that numbers the rows, from a sequence of its own.
 */
#ifndef STRATA_NUMBERED_COLUMN_H
#define STRATA_NUMBERED_COLUMN_H

#include "access/attnum.h"
#include "utils/relcache.h"

/* Does a new column, which is here already, draw its values from a sequence of its own? */
extern bool numbered_column_is(Relation relation, AttrNumber attribute);

/* Add it on the workers, each of which numbers its rows from its own share of the values. */
extern void numbered_column_add(Relation relation, AttrNumber attribute);

#endif
