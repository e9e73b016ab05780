/*
 * statement_depth.c
 *		How deep statements are nested.
 */
#include "postgres.h"

#include "server/statement_depth.h"

int statement_depth = 0;
