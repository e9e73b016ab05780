/*
 * strata.c
 *		Entry point of the coordinator extension: settings and hooks.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/guc.h"

#include "decorrelate.h"
#include "cluster/cluster_identity.h"
#include "cluster/local_extension.h"
#include "cluster/metadata.h"
#include "cluster/worker_state.h"
#include "commit/gate.h"
#include "commit/in_doubt.h"
#include "compat.h"
#include "ddl/utility.h"
#include "execute/executor_hooks.h"
#include "execute/gather.h"
#include "execute/rename_exec.h"
#include "partial_upgrade.h"
#include "plan/planner.h"
#include "server/incarnation.h"
#include "server/launcher.h"
#include "server/settings.h"
#include "services/heartbeat.h"
#include "services/service_tasks.h"
#include "stream/remote_insert.h"
#include "stream/row_change.h"
#include "table/auto_analyze.h"
#include "table/table_definition.h"
#include "transaction/pending_rows.h"
#include "transaction/remote_transaction.h"
#include "wire/session_map.h"
#include "wire/worker_use.h"
#include "workers/move_progress.h"

#include "transaction_end.h"

COMPAT_MODULE_MAGIC("strata");

int strata_connect_timeout = 5;
int strata_worker_timeout = 30000;
int strata_resolver_interval = 30000;
int strata_heartbeat_interval = 1000;
int strata_read_from = READ_FROM_PRIMARY;
int strata_max_staleness = 10000;
int strata_shard_count = 32;
int strata_period_interval = 60000;
int strata_period_premake = 4;
bool strata_tiering = true;
int strata_tier_interval = 300000;
int strata_tier_rate = 65536;
int strata_move_limit = 64 * 1024 * 1024;
double strata_count_distinct_error_rate = 0.0;
bool strata_explain_all_workers;
bool strata_enable_join_pushdown = true;
bool strata_enable_aggregate_pushdown = true;
int strata_enable_decorrelation = DECORRELATE_ON;
int strata_enable_distinct_branches = DECORRELATE_ON;
int strata_enable_eager_aggregation = DECORRELATE_ON;
int strata_enable_late_columns = DECORRELATE_ON;
int strata_enable_partner_keys = DECORRELATE_ON;
int strata_enable_reference_pushdown = DECORRELATE_ON;

static const struct config_enum_entry read_sources[] = {
	{"primary", READ_FROM_PRIMARY, false},
	{"standby", READ_FROM_STANDBY, false},
	{"any", READ_FROM_ANY, false},
	{NULL, 0, false},
};

void _PG_init(void);

static void
define_settings(void)
{
	static char *version;

	DefineCustomStringVariable("strata.version", "Version of the library that runs.",
							   "Of the SQL that is installed pg_extension tells.", &version,
							   STRATA_VERSION, PGC_INTERNAL,
							   GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"strata.connect_timeout", "Time to wait for a worker to answer a new connection.", NULL,
		&strata_connect_timeout, 5, 1, 600, PGC_USERSET, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"strata.worker_timeout", "Time after which a worker that does not answer is given up.",
		"Statements that need it fail; 0 waits for ever.  A long query is no silence.",
		&strata_worker_timeout, 30000, 0, INT_MAX, PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"strata.resolver_interval",
		"Time between looks for forgotten prepared transactions on all workers.", NULL,
		&strata_resolver_interval, 30000, 100, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("strata.heartbeat_interval",
							"Time between two questions to a worker whether it lives.", NULL,
							&strata_heartbeat_interval, 1000, 100, 60000, PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomEnumVariable(
		"strata.read_from", "Which servers of the workers read-only transactions read.",
		"any: standbys, and primaries where those cannot be asked.", &strata_read_from,
		READ_FROM_PRIMARY, read_sources, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"strata.max_staleness", "Time that a standby may be behind its primary to be read.",
		"-1 is without a limit; the heartbeat finds it out, in steps of its interval.",
		&strata_max_staleness, 10000, -1, INT_MAX, PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("strata.shard_count", "Number of shards of a newly distributed table.",
							NULL, &strata_shard_count, 32, 1, STRATA_MAX_SHARD_COUNT, PGC_USERSET,
							0, NULL, NULL, NULL);
	DefineCustomIntVariable("strata.period_premake",
							"Number of periods that a new table has ahead of time.", NULL,
							&strata_period_premake, 4, 1, 100, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"strata.period_interval", "Time between looks at the periods of all tables.",
		"Makes new ones, empties default partitions, drops what is older than the retention.",
		&strata_period_interval, 60000, 100, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomBoolVariable("strata.tiering", "Lets leaves move between the tiers of the workers.",
							 "Off, moves in progress end and no other begins.", &strata_tiering,
							 true, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"strata.tier_interval", "Time between looks at what belongs on which tier.", NULL,
		&strata_tier_interval, 300000, 100, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("strata.tier_bytes_per_second",
							"What the moves of a worker may write in a second, their WAL included.",
							NULL, &strata_tier_rate, 65536, 64, INT_MAX, PGC_SIGHUP, GUC_UNIT_KB,
							NULL, NULL, NULL);
	DefineCustomIntVariable(
		"strata.move_limit", "Size of a shard, of all its colocated tables, that may move.",
		"A long copy holds back VACUUM on both workers; 0 is without a limit.  A shard may be "
		"split however large it is.",
		&strata_move_limit, 64 * 1024 * 1024, 0, INT_MAX, PGC_SUSET, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomRealVariable(
		"strata.count_distinct_error_rate",
		"Relative error that count(DISTINCT) may have; 0 counts exactly.",
		"Above 0, count(DISTINCT x) of distributed tables is estimated by HyperLogLog.",
		&strata_count_distinct_error_rate, 0.0, 0.0, 1.0, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("strata.explain_all_workers",
							 "Has EXPLAIN show the plans of all workers.",
							 "Off, VERBOSE shows that of one.", &strata_explain_all_workers, false,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("strata.enable_join_pushdown",
							 "Lets the planner run joins on the workers.", NULL,
							 &strata_enable_join_pushdown, true, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("strata.enable_aggregate_pushdown",
							 "Lets the planner run grouping, sorting and limits on the workers.",
							 NULL, &strata_enable_aggregate_pushdown, true, PGC_USERSET, 0, NULL,
							 NULL, NULL);
	DefineCustomEnumVariable("strata.enable_decorrelation",
							 "Lets the planner turn correlated sub-selects into joins.",
							 "Only those that read a distributed table. on: where it is cheaper. "
							 "always: where it is possible.",
							 &strata_enable_decorrelation, DECORRELATE_ON, decorrelate_modes,
							 PGC_USERSET, GUC_EXPLAIN, NULL, NULL, NULL);
	DefineCustomEnumVariable("strata.enable_distinct_branches",
							 "Lets the planner compute aggregates over each distinct value apart.",
							 "Only those of a distributed table. on: where it is cheaper. "
							 "always: where it is possible.",
							 &strata_enable_distinct_branches, DECORRELATE_ON, decorrelate_modes,
							 PGC_USERSET, GUC_EXPLAIN, NULL, NULL, NULL);
	DefineCustomEnumVariable("strata.enable_eager_aggregation",
							 "Lets the planner make aggregates before an outer join.",
							 "Only those of a distributed table. on: where it is cheaper. "
							 "always: where it is possible.",
							 &strata_enable_eager_aggregation, DECORRELATE_ON, decorrelate_modes,
							 PGC_USERSET, GUC_EXPLAIN, NULL, NULL, NULL);
	DefineCustomEnumVariable("strata.enable_late_columns",
							 "Lets the planner fetch columns for groups that have their key.",
							 "Only where a distributed table is grouped. on: where it is cheaper. "
							 "always: where it is possible.",
							 &strata_enable_late_columns, DECORRELATE_ON, decorrelate_modes,
							 PGC_USERSET, GUC_EXPLAIN, NULL, NULL, NULL);
	DefineCustomEnumVariable("strata.enable_partner_keys",
							 "Lets joins ask the workers only for rows with a partner.",
							 "Only where one side is small. on: where it is cheaper. "
							 "always: where it is possible.",
							 &strata_enable_partner_keys, DECORRELATE_ON, decorrelate_modes,
							 PGC_USERSET, GUC_EXPLAIN, NULL, NULL, NULL);
	DefineCustomEnumVariable("strata.enable_reference_pushdown",
							 "Lets a worker answer queries of reference tables alone.",
							 "Only where its copies are columnar. on: where it is cheaper. "
							 "always: where it is possible.",
							 &strata_enable_reference_pushdown, DECORRELATE_ON, decorrelate_modes,
							 PGC_USERSET, GUC_EXPLAIN, NULL, NULL, NULL);
	local_extension_initialize();
	MarkGUCPrefixReserved("strata");
}

static const LauncherService services[] = {
	{"maintenance", service_tasks_maintenance_main},
	{"heartbeat", heartbeat_main},
	{"periods", service_tasks_periods_main},
};

void
_PG_init(void)
{
	define_settings();
	metadata_initialize();
	worker_state_initialize();
	incarnation_initialize();
	worker_use_initialize();
	pending_rows_register(row_change_flush, row_change_reset);
	pending_rows_register(remote_insert_flush, remote_insert_reset);
	cluster_identity_initialize();
	session_map_initialize();
	gate_initialize();
	remote_transaction_initialize();
	in_doubt_initialize();
	move_progress_initialize();
	launcher_initialize(services, lengthof(services), metadata_available);
	auto_analyze_initialize();
	executor_hooks_initialize();
	gather_initialize();
	compat_explain_add_option("strata");
	rename_initialize();
	planner_initialize();
	table_definition_initialize();
	utility_initialize();
	transaction_end_initialize();
	partial_upgrade_initialize();
}
