/*
 * settings.h
 *		The settings strata.*; defined and documented in one table in strata.c.
 */
#ifndef STRATA_SETTINGS_H
#define STRATA_SETTINGS_H

#include "postgres.h"

/* More partitions than this on one worker make its planner slow and help nothing. */
#define STRATA_MAX_SHARD_COUNT 4096

/* strata.read_from: the workers' servers that READ ONLY transactions ask (transaction/standby_read.c). */
typedef enum ReadFrom
{
	READ_FROM_PRIMARY,
	READ_FROM_STANDBY,
	READ_FROM_ANY /* standbys, and primaries where those cannot be asked */
} ReadFrom;

extern int strata_connect_timeout;	  /* seconds to wait for a worker to answer */
extern int strata_worker_timeout;	  /* ms that a worker may be silent; 0 = for ever */
extern int strata_resolver_interval;  /* ms between looks at all workers' prepared transactions */
extern int strata_heartbeat_interval; /* milliseconds between two questions */
extern int strata_read_from;		  /* ReadFrom */
extern int strata_max_staleness;	  /* ms that a standby may be behind; -1 = without a limit */
extern int strata_shard_count;		  /* default of create_distributed_table(shard_count) */
extern int strata_period_interval;	  /* ms between looks at the periods of all tables */
extern int strata_period_premake;	  /* periods that are there before rows come */
extern bool strata_tiering;			  /* do leaves move between tiers? */
extern int strata_tier_interval;	  /* ms between rounds of moves */
extern int strata_tier_rate;  /* kB per second that a worker's moves may write, WAL included */
extern int strata_move_limit; /* kB that a shard which moves may have; 0 = without a limit */
extern double strata_count_distinct_error_rate; /* 0 = exact */
extern bool strata_explain_all_workers;			/* does EXPLAIN show the plans of all of them? */
extern bool strata_enable_join_pushdown;
extern bool strata_enable_aggregate_pushdown;
extern int strata_enable_decorrelation;		 /* DecorrelateMode */
extern int strata_enable_distinct_branches;	 /* DecorrelateMode */
extern int strata_enable_eager_aggregation;	 /* DecorrelateMode */
extern int strata_enable_late_columns;		 /* DecorrelateMode */
extern int strata_enable_partner_keys;		 /* DecorrelateMode */
extern int strata_enable_reference_pushdown; /* DecorrelateMode */

#endif
