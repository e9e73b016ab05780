/*
 * partner_keys.h
 *		The values that a Gather's other side of a join has, for the workers (plan/partner_keys.h).
 */
#ifndef STRATA_EXECUTE_PARTNER_KEYS_H
#define STRATA_EXECUTE_PARTNER_KEYS_H

#include "execute/gather.h"

/* What the child's rows are, once they have been read. */
typedef struct PartnerKeyList
{
	int count;	   /* of different values that are not NULL; -1: too many to send */
	char *literal; /* SQL of an array of them; NULL if there are too many */
} PartnerKeyList;

/* Runs the child; memory of the current context. */
extern PartnerKeyList *partner_keys_read(GatherScanState *state);

#endif
