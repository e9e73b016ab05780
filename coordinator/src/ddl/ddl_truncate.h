/*
 * ddl_truncate.h
 *		TRUNCATE on the workers, at the right moment.
 *
 * The SQL function is strata.truncate_reference_table(): an AFTER TRUNCATE trigger of each reference
 * table on the coordinator, the first to fire.
 */
#ifndef STRATA_DDL_TRUNCATE_H
#define STRATA_DDL_TRUNCATE_H

#include "postgres.h"

/* PostgreSQL empties this shell: if a TRUNCATE does that, the workers empty their tables now. */
extern void truncate_note_emptied(Oid relation);

#endif
