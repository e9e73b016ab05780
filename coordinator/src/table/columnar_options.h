/*
 * columnar_options.h
 *		Options of the columnar shards of a distributed table, and of columnar copies of a reference table.
 *
 * They live on the workers, as options of the table there, which its shards
 * inherit.  The coordinator's copy, in the table's definition, is for dumps only.
 */
#ifndef STRATA_COLUMNAR_OPTIONS_H
#define STRATA_COLUMNAR_OPTIONS_H

#include "postgres.h"

#include "utils/relcache.h"

/*
 * Gives a new worker's empty copy of a table the options that it has on another worker.
 * Nothing happens for other storage.
 */
extern void columnar_options_copy(Relation relation, int new_worker);

/* Columns of a table of ours, which definition and options name, may have other names now, or be gone. */
extern void columnar_options_follow(Oid relation);

#endif
