/*
 * partner_keys.h
 *		A join here of a small side with rows of the workers asks them only for those with a partner.
 */
#ifndef STRATA_PARTNER_KEYS_H
#define STRATA_PARTNER_KEYS_H

#include "nodes/pathnodes.h"

/* What workers are told of the other side of a join: the values of an expression of it. */
typedef struct PartnerKeys
{
	Node *filter; /* expression = ANY (keys) */
	Param *keys;  /* the array, which stands for nothing but its place in the text */
	Path *source; /* the rows of the other side, as this one column */
} PartnerKeys;

/* Adds paths of the join by hash, with these clauses, if one side is small enough to tell the workers about. */
extern void
partner_keys_join(PlannerInfo *root, RelOptInfo *joinrel, RelOptInfo *outerrel,
				  RelOptInfo *innerrel, JoinType jointype, JoinPathExtraData *extra, List *clauses);

#endif
