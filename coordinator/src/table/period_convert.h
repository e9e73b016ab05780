/*
 * period_convert.h
 *		A table that is partitioned on the coordinator, on its way to becoming distributed.
 */
#ifndef STRATA_PERIOD_CONVERT_H
#define STRATA_PERIOD_CONVERT_H

#include "postgres.h"

#include "table/period.h"

/*
 * Replace a partitioned table by one without partitions, and complete the request by what pg_partman
 * knows of it.  Returns the new table; any other relation is returned as it is.
 */
extern Oid period_convert_partitioned(Oid relation, PeriodRequest *request);

#endif
