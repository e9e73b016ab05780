/*
 * statement_depth.h
 *		How deep statements are nested.
 */
#ifndef STRATA_STATEMENT_DEPTH_H
#define STRATA_STATEMENT_DEPTH_H

/*
 * How many executor runs and utility commands we are inside of: functions and triggers run statements inside of
 * others.  Buffered rows are sent when it falls back to 0, the end of the client's statement.
 * Whoever raises it (executor_hooks.c, utility.c) lowers it again in PG_FINALLY().
 */
extern int statement_depth;

#endif
