/*
 * period.h
 *		Periods of a distributed table: what was asked for, may it be, and what is known.
 */
#ifndef STRATA_PERIOD_H
#define STRATA_PERIOD_H

#include "postgres.h"

#include "access/attnum.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

#include "cluster/metadata.h"

/* Arguments of create_distributed_table(); all NULL when there are to be no periods. */
typedef struct PeriodRequest
{
	const char *column;
	const char *interval;
	const char *retention; /* NULL: for ever */
	const char *unit;	   /* of numbers that are times; NULL if they are not */
} PeriodRequest;

/* The rule that is asked for, NULL if none; ERROR if the table cannot be divided like that. */
extern PeriodRule *period_rule_create(Relation relation, const PeriodRequest *request);

/*
 * Begins of the periods that the relation's rows belong to, as a list of texts.  Reads the
 * whole relation, as the current user.
 */
extern List *period_list_used(Relation relation, const PeriodRule *rule);

/* WARNING if a worker will have very many leaves. */
extern void period_warn_of_many(Relation relation, const PeriodRule *rule, int used_periods,
								int shards_per_worker);

/* SQL that makes a shard on a worker, PARTITION BY RANGE already, a set of leaves; parameters: DefElem. */
extern char *period_ddl_create(const char *shard, Relation relation, const PeriodRule *rule,
							   const char *access_method, List *parameters, List *periods);

#endif
