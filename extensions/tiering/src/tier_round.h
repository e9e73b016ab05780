/*
 * tier_round.h
 *		The background process that makes the moves of a round.
 */
#ifndef STRATA_TIER_ROUND_H
#define STRATA_TIER_ROUND_H

#include "compat.h"

/* Entry point of the process; the argument is the database. */
extern PGDLLEXPORT void strata_tiering_round(Datum argument);

#endif
