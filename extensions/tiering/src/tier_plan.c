/*
 * tier_plan.c
 *		What tier_decide() says to the state of this database: strata_tiering.plan().
 *
 * SQL gathers the state (leaf_states(), hot_room(), replica_lag(), the settings that the coordinator sent);
 * here it becomes the decision's structures, and the moves become rows.
 */
#include "compat.h"

#include <float.h>
#include <sys/statvfs.h>

#include "commands/tablespace.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "tier_decision.h"
#include "tier_plan.h"

PG_FUNCTION_INFO_V1(strata_tiering_plan);
PG_FUNCTION_INFO_V1(strata_tiering_disk);

static char *hot_capacity = NULL;
static double high_water = 0.85;
static double low_water = 0.75;
static double hysteresis = 2;
static double worth = 0.1;
static int replica_lag_limit = 256;

#define STATE_QUERY                                                          \
	"SELECT r.bytes, r.used, strata_tiering.replica_lag()::float8,"          \
	" coalesce((SELECT s.value::boolean FROM strata_tiering.setting AS s"    \
	" WHERE s.name OPERATOR(pg_catalog.=) 'enabled'), false),"               \
	" coalesce((SELECT s.value::float8 FROM strata_tiering.setting AS s"     \
	" WHERE s.name OPERATOR(pg_catalog.=) 'bytes_per_second'), 0),"          \
	" pg_catalog.extract('epoch', pg_catalog.statement_timestamp())::float8" \
	" FROM strata_tiering.hot_room() AS r"

#define LEAF_QUERY                                                                              \
	"SELECT l.leaf, l.mode, l.pinned, l.tier, l.bytes, l.heat, l.is_young, l.age_rank::float8," \
	" pg_catalog.extract('epoch', l.movable_from)::float8, l.parent, l.index_tier"              \
	" FROM strata_tiering.leaf_states() AS l"

/* What the decision does not need of a leaf. */
typedef struct LeafFacts
{
	Oid leaf;
	Oid parent;
	int64 bytes;
	double heat;
	bool indexes_follow;
} LeafFacts;

/* ---- reading ----------------------------------------------------------------------------------- */

static Datum
field(int row, int column, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, isnull);
}

static double
float_field(int row, int column, double if_null)
{
	bool isnull;
	Datum value = field(row, column, &isnull);

	return isnull ? if_null : DatumGetFloat8(value);
}

static int64
int_field(int row, int column)
{
	bool isnull;
	Datum value = field(row, column, &isnull);

	return isnull ? 0 : DatumGetInt64(value);
}

static bool
bool_field(int row, int column)
{
	bool isnull;
	Datum value = field(row, column, &isnull);

	return !isnull && DatumGetBool(value);
}

static bool
field_is(int row, int column, const char *text)
{
	char *value = SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column);

	return value != NULL && strcmp(value, text) == 0;
}

static void
read_state(TierState *state, bool dry, double seconds)
{
	double rate;

	if (SPI_execute(STATE_QUERY, false, 0) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "the state of the tiers has %llu rows", (unsigned long long) SPI_processed);
	state->hot_bytes = int_field(0, 1);
	state->hot_used = int_field(0, 2);
	state->replicas_lag = float_field(0, 3, 0) > (double) replica_lag_limit * 1024 * 1024;
	state->enabled = bool_field(0, 4);
	rate = float_field(0, 5, 0);
	state->now = float_field(0, 6, 0);
	state->high_water = high_water;
	state->low_water = low_water;
	state->worth = worth;
	state->hysteresis = hysteresis;
	state->write_factor = 2; /* the file, and its WAL */
	state->budget = rate > 0 && !dry ? (int64) Min(rate * seconds, 1e18) : PG_INT64_MAX / 4;
	if (dry)
	{
		state->enabled = true;
		state->replicas_lag = false;
	}
}

static TierMode
read_mode(int row)
{
	if (field_is(row, 2, "pinned"))
		return TIER_MODE_PINNED;
	return field_is(row, 2, "age") ? TIER_MODE_AGE : TIER_MODE_HEAT;
}

static TierLeaf *
read_leaves(const TierState *state, LeafFacts **facts, int *count)
{
	TierLeaf *leaves;

	if (SPI_execute(LEAF_QUERY, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read the leaves");
	*count = (int) SPI_processed;
	leaves = palloc0(sizeof(TierLeaf) * Max(*count, 1));
	*facts = palloc0(sizeof(LeafFacts) * Max(*count, 1));
	for (int i = 0; i < *count; i++)
	{
		bool isnull;

		leaves[i].id = (uint32_t) i;
		leaves[i].mode = read_mode(i);
		leaves[i].pinned = field_is(i, 3, "cold") ? TIER_COLD : TIER_HOT;
		leaves[i].tier = field_is(i, 4, "cold") ? TIER_COLD : TIER_HOT;
		leaves[i].bytes = int_field(i, 5);
		leaves[i].heat = float_field(i, 6, 0);
		/* the youngest longest */
		leaves[i].young_until = bool_field(i, 7) ? state->now + 1 + float_field(i, 8, 0)
												 : state->now - 1 - *count + float_field(i, 8, 0);
		leaves[i].movable_from = float_field(i, 9, -DBL_MAX);
		(*facts)[i] = (LeafFacts){.leaf = DatumGetObjectId(field(i, 1, &isnull)),
								  .parent = DatumGetObjectId(field(i, 10, &isnull)),
								  .bytes = leaves[i].bytes,
								  .heat = leaves[i].heat,
								  .indexes_follow = field_is(i, 11, "follow")};
	}
	return leaves;
}

/* ---- functions ---------------------------------------------------------------------------------- */

static const char *
tier_name(Tier tier)
{
	return tier == TIER_HOT ? "hot" : "cold";
}

static void
put_move(ReturnSetInfo *result, const TierMove *move, const LeafFacts *facts)
{
	bool nulls[8] = {false};
	Datum values[8] = {
		ObjectIdGetDatum(facts->leaf),
		ObjectIdGetDatum(facts->parent),
		CStringGetTextDatum(tier_name(move->from)),
		CStringGetTextDatum(tier_name(move->to)),
		CStringGetTextDatum(tier_reason_text(move->reason)),
		Int64GetDatum(facts->bytes),
		Float8GetDatum(facts->heat),
		CStringGetTextDatum(facts->indexes_follow ? "follow" : "hot"),
	};

	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* plan(seconds): see tiers.sql. */
Datum
strata_tiering_plan(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	bool dry = PG_ARGISNULL(0);
	TierState state = {0};
	TierLeaf *leaves;
	LeafFacts *facts;
	TierMove *moves;
	int count;

	InitMaterializedSRF(fcinfo, 0);
	SPI_connect();
	/* without policies nothing need be known, nor need there be any tiers */
	if (SPI_execute("SELECT FROM strata_tiering.policy LIMIT 1", false, 1) != SPI_OK_SELECT ||
		SPI_processed == 0)
	{
		SPI_finish();
		return (Datum) 0;
	}
	read_state(&state, dry, dry ? 0 : PG_GETARG_FLOAT8(0));
	leaves = read_leaves(&state, &facts, &count);
	moves = palloc(sizeof(TierMove) * Max(count, 1));
	count = tier_decide(&state, leaves, count, moves);
	for (int i = 0; i < count; i++)
		put_move(result, &moves[i], &facts[moves[i].id]);
	SPI_finish();
	return (Datum) 0;
}

/* disk(tablespace): see tiers.sql. */
Datum
strata_tiering_disk(PG_FUNCTION_ARGS)
{
	Name name = PG_GETARG_NAME(0);
	Oid tablespace = get_tablespace_oid(NameStr(*name), false);
	char path[MAXPGPATH];
	struct statvfs disk;
	TupleDesc descriptor;
	Datum values[2];
	bool nulls[2] = {false};

	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "strata_tiering.disk() must return a row");
	snprintf(path, sizeof(path), "%s/pg_tblspc/%u", DataDir, tablespace);
	if (statvfs(path, &disk) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not ask the file system of tablespace \"%s\": %m", NameStr(*name))));
	values[0] = Int64GetDatum((int64) disk.f_blocks * (int64) disk.f_frsize);
	values[1] = Int64GetDatum((int64) (disk.f_blocks - disk.f_bavail) * (int64) disk.f_frsize);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls)));
}

/* It is read by pg_size_bytes() when it is used. */
static bool
check_capacity(char **newval, void **extra, GucSource source)
{
	size_t digits = strspn(*newval, "0123456789");
	const char *unit = *newval + digits;

	while (*unit == ' ')
		unit++;
	for (const char *const *known = (const char *const[]){"", "B", "kB", "MB", "GB", "TB", NULL};
		 *known != NULL; known++)
		if (digits > 0 && digits < 18 && pg_strcasecmp(unit, *known) == 0)
			return true;
	GUC_check_errhint("It is a number with B, kB, MB, GB or TB.");
	return false;
}

void
tier_plan_initialize(void)
{
	DefineCustomStringVariable("strata_tiering.hot_capacity",
							   "Bytes that the hot tier may have, as in '500 GB'.",
							   "0: the size of the file system of tablespace hot.", &hot_capacity,
							   "0", PGC_SIGHUP, 0, check_capacity, NULL, NULL);
	DefineCustomRealVariable("strata_tiering.high_water",
							 "Part of the hot tier above which leaves are demoted.", NULL,
							 &high_water, 0.85, 0.01, 1, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomRealVariable(
		"strata_tiering.low_water",
		"Part of the hot tier down to which leaves are demoted, and up to which "
		"they are promoted.",
		NULL, &low_water, 0.75, 0.01, 1, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomRealVariable("strata_tiering.hysteresis",
							 "How many times as hot a leaf must be as those that make room for it.",
							 NULL, &hysteresis, 2, 1, 1000, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomRealVariable("strata_tiering.worth",
							 "Heat per byte from which on a leaf is promoted into free room.", NULL,
							 &worth, 0.1, 0, 1e6, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"strata_tiering.replica_lag_limit", "No leaf moves while a replica is so far behind.", NULL,
		&replica_lag_limit, 256, 1, INT_MAX / 1024, PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
}
