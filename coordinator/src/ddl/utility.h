/*
 * utility.h
 *		Utility commands (everything but SELECT, INSERT, UPDATE, DELETE, MERGE).
 */
#ifndef STRATA_UTILITY_H
#define STRATA_UTILITY_H

#include "postgres.h"

/*
 * While this is above zero, utility commands are run as if the extension did not
 * exist: for commands by which we change the coordinator's own catalog only.
 * Whoever raises it lowers it again in PG_FINALLY().
 */
extern int utility_local_depth;

extern void utility_initialize(void); /* from _PG_init: ProcessUtility and object access hooks */

#endif
