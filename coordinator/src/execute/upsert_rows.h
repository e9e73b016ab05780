/*
 * upsert_rows.h
 *		INSERT ... ON CONFLICT: rows of a child plan, routed and sent as statements.
 */
#ifndef STRATA_UPSERT_ROWS_H
#define STRATA_UPSERT_ROWS_H

#include "execute/gather.h"

/*
 * Runs the child plan to its end, sends each worker its rows in one statement.
 * Returns the scan of the RETURNING rows, or NULL when there is no RETURNING.
 */
extern RemoteScan *upsert_rows_run(GatherScanState *state);

#endif
