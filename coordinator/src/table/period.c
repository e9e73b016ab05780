/*
 * period.c
 *		Periods of a distributed table: what was asked for, may it be, and what is known.
 *
 * On the workers each shard of such a table is itself partitioned, by ranges of one column
 * (worker/sql/periods.sql).  Boundaries are the same on all nodes and whatever the sessions' time
 * zones are: they are computed in UTC (strata.period_start()).
 *
 * Intervals are those for which pg_partman's idea of where a period begins, which truncates the
 * time to the next greater unit, is ours.
 */
#include "postgres.h"

#include "table/period.h"

#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "server/settings.h"
#include "table/worker_table_sql.h"

/* So many leaves on a worker make every statement that cannot leave most of them out slow. */
#define MANY_LEAVES 4000

/* Is the column a time, or a number that is one? */
static bool
is_time(Oid type, const char *unit)
{
	return type == TIMESTAMPTZOID || type == TIMESTAMPOID || type == DATEOID ||
		   strcmp(unit, "none") != 0;
}

/* ---------------------------------------------------------------- the column */

static void
refuse_column(Relation relation, const char *column, int code, const char *detail, const char *hint)
{
	ereport(ERROR, (errcode(code),
					errmsg("table \"%s\" cannot be divided into periods of column \"%s\"",
						   RelationGetRelationName(relation), column),
					errdetail("%s", detail), hint != NULL ? errhint("%s", hint) : 0));
}

static AttrNumber
find_column(Relation relation, const char *name)
{
	AttrNumber attribute = get_attnum(RelationGetRelid(relation), name);
	Form_pg_attribute column;

	if (attribute == InvalidAttrNumber)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
						errmsg("column \"%s\" of table \"%s\" does not exist", name,
							   RelationGetRelationName(relation)),
						errhint("partition_by names a column of the table.")));
	if (attribute < 0)
		refuse_column(relation, name, ERRCODE_INVALID_OBJECT_DEFINITION, "It is a system column.",
					  NULL);
	column = TupleDescAttr(RelationGetDescr(relation), attribute - 1);
	if (column->attgenerated != '\0')
		refuse_column(relation, name, ERRCODE_INVALID_OBJECT_DEFINITION,
					  "It is a generated column.", NULL);
	switch (column->atttypid)
	{
		case TIMESTAMPTZOID:
		case TIMESTAMPOID:
		case DATEOID:
		case INT4OID:
		case INT8OID:
			break;
		default:
			refuse_column(relation, name, ERRCODE_DATATYPE_MISMATCH,
						  psprintf("It is of type %s.", format_type_be(column->atttypid)),
						  "Use a column of type timestamptz, timestamp, date, integer or bigint.");
	}
	if (!compat_column_is_never_null(RelationGetDescr(relation), attribute - 1))
		refuse_column(relation, name, ERRCODE_NOT_NULL_VIOLATION, "It may be null.",
					  psprintf("Run ALTER TABLE %s ALTER COLUMN %s SET NOT NULL before.",
							   RelationGetRelationName(relation), quote_identifier(name)));
	return attribute;
}

/* ---------------------------------------------------------------- interval and retention */

static void
refuse_interval(const char *argument, const char *value, const char *hint)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("invalid %s \"%s\"", argument, value), errhint("%s", hint)));
}

static Interval *
parse_interval(const char *argument, const char *text)
{
	Interval *interval = DatumGetIntervalP(DirectFunctionCall3(
		interval_in, CStringGetDatum(text), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));

	if (interval->month < 0 || interval->day < 0 || interval->time < 0 ||
		(interval->month == 0 && interval->day == 0 && interval->time == 0))
		refuse_interval(argument, text, "It must be greater than 0.");
	return interval;
}

/* Does pg_partman begin periods of this length where we do? */
static bool
is_regular(const Interval *interval)
{
	int64 seconds = interval->time / USECS_PER_SEC;

	if (interval->time % USECS_PER_SEC != 0)
		return false;
	if (interval->month > 0)
		return interval->day == 0 && interval->time == 0 &&
			   (interval->month < 12 ? 12 % interval->month == 0
									 : interval->month % 12 == 0 && interval->month < 120);
	if (interval->day > 0)
		return interval->time == 0;
	if (seconds < SECS_PER_MINUTE)
		return SECS_PER_MINUTE % seconds == 0;
	if (seconds < SECS_PER_HOUR)
		return SECS_PER_HOUR % seconds == 0;
	return seconds % SECS_PER_HOUR == 0 && SECS_PER_DAY % seconds == 0;
}

static char *
format_interval(Interval *interval)
{
	return DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(interval)));
}

static char *
read_time_interval(Oid type, const char *text)
{
	Interval *interval = parse_interval("partition_interval", text);

	/* "24 hours" are a day here: all is computed in UTC */
	if (interval->month == 0 && interval->time % USECS_PER_DAY == 0)
	{
		interval->day += interval->time / USECS_PER_DAY;
		interval->time = 0;
	}
	if (!is_regular(interval))
		refuse_interval("partition_interval", text,
						"Use a number of seconds that divides a minute, of minutes that divides an "
						"hour, of hours that divides a day, days, months that divide a year, or up "
						"to 9 years.");
	if (type == DATEOID && interval->time != 0)
		refuse_interval("partition_interval", text,
						"Periods of a column of type date are whole days or months.");
	return format_interval(interval);
}

/* A length of periods of numbers. */
static char *
read_number(const char *argument, const char *text)
{
	char *end;
	int64 number;

	errno = 0;
	number = strtoi64(text, &end, 10);
	if (end == text || *end != '\0' || errno != 0 || number <= 0)
		refuse_interval(argument, text,
						"For a column of numbers it is a positive number, unless partition_epoch "
						"says that the numbers are times.");
	return psprintf(INT64_FORMAT, number);
}

static const char *
read_unit(Relation relation, const char *column, Oid type, const char *unit)
{
	static const char *const units[] = {"none", "seconds", "milliseconds", "nanoseconds"};

	if (unit == NULL)
		return units[0];
	if (type != INT4OID && type != INT8OID)
		refuse_column(relation, column, ERRCODE_INVALID_PARAMETER_VALUE,
					  psprintf("It is of type %s, and partition_epoch is the unit of numbers.",
							   format_type_be(type)),
					  "Leave partition_epoch out.");
	for (int i = 1; i < lengthof(units); i++)
	{
		if (strcmp(units[i], unit) == 0)
			return units[i];
	}
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("unknown partition_epoch \"%s\"", unit),
					errhint("Use 'seconds', 'milliseconds' or 'nanoseconds'.")));
}

PeriodRule *
period_rule_create(Relation relation, const PeriodRequest *request)
{
	PeriodRule *rule;
	char *interval;
	char *retention = "";
	Oid type;

	if (request == NULL || (request->column == NULL && request->interval == NULL &&
							request->retention == NULL && request->unit == NULL))
		return NULL;
	if (request->column == NULL || request->interval == NULL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s is missing",
							   request->column == NULL ? "partition_by" : "partition_interval"),
						errdetail("Periods need a column and their length."),
						errhint("Use partition_by => 'column', partition_interval => '1 day'.")));
	if (strpbrk(get_namespace_name(RelationGetNamespace(relation)), ".'\"\\") != NULL ||
		strpbrk(RelationGetRelationName(relation), ".'\"\\") != NULL ||
		strpbrk(request->column, "'\"\\") != NULL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("table \"%s\" cannot be divided into periods",
							   RelationGetRelationName(relation)),
						errdetail("pg_partman does not take names that contain dots or quotes."),
						errhint("Rename the table, its schema or the column.")));

	rule = palloc0(sizeof(PeriodRule));
	rule->attribute = find_column(relation, request->column);
	type = TupleDescAttr(RelationGetDescr(relation), rule->attribute - 1)->atttypid;
	strlcpy(rule->unit, read_unit(relation, request->column, type, request->unit),
			PERIOD_TEXT_BYTES);
	if (is_time(type, rule->unit))
	{
		interval = read_time_interval(type, request->interval);
		if (request->retention != NULL)
			retention = format_interval(parse_interval("retention", request->retention));
	}
	else
	{
		interval = read_number("partition_interval", request->interval);
		if (request->retention != NULL)
			retention = read_number("retention", request->retention);
	}
	strlcpy(rule->interval, interval, PERIOD_TEXT_BYTES);
	strlcpy(rule->retention, retention, PERIOD_TEXT_BYTES);
	return rule;
}

/* ---------------------------------------------------------------- how many */

List *
period_list_used(Relation relation, const PeriodRule *rule)
{
	MemoryContext caller = CurrentMemoryContext;
	char *column = get_attname(RelationGetRelid(relation), rule->attribute, false);
	List *periods = NIL;
	char *sql = psprintf("SELECT strata.used_periods(%u::pg_catalog.regclass, %s, %s, %s)",
						 RelationGetRelid(relation), quote_literal_cstr(column),
						 quote_literal_cstr(rule->interval), quote_literal_cstr(rule->unit));

	SPI_connect();
	if (SPI_execute(sql, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not list periods");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		char *value = SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1);
		MemoryContext spi = MemoryContextSwitchTo(caller);

		periods = lappend(periods, makeString(pstrdup(value)));
		MemoryContextSwitchTo(spi);
	}
	SPI_finish();
	return periods;
}

/* How many periods are kept, 0 if that is not limited. */
static double
count_kept_periods(Relation relation, const PeriodRule *rule)
{
	Oid type = TupleDescAttr(RelationGetDescr(relation), rule->attribute - 1)->atttypid;
	double spans[2];

	if (rule->retention[0] == '\0')
		return 0;
	for (int i = 0; i < 2; i++)
	{
		const char *text = i == 0 ? rule->interval : rule->retention;

		if (is_time(type, rule->unit))
		{
			const Interval *interval = parse_interval("interval", text);

			spans[i] = (interval->month * (double) DAYS_PER_YEAR / MONTHS_PER_YEAR +
						interval->day) *
						   SECS_PER_DAY +
					   interval->time / (double) USECS_PER_SEC;
		}
		else
			spans[i] = strtod(text, NULL);
	}
	return spans[1] / spans[0];
}

void
period_warn_of_many(Relation relation, const PeriodRule *rule, int used_periods,
					int shards_per_worker)
{
	double periods = Max(count_kept_periods(relation, rule), used_periods) + strata_period_premake;
	double leaves = periods * shards_per_worker;

	if (leaves > MANY_LEAVES)
		ereport(WARNING,
				(errmsg("table \"%s\" will have about %.0f leaves on a worker",
						RelationGetRelationName(relation), leaves),
				 errdetail("%d shards with %.0f periods each.  Statements that cannot leave most "
						   "of them out take long to plan there.",
						   shards_per_worker, periods),
				 errhint("Use a longer partition_interval, or fewer shards.")));
}

/* ---------------------------------------------------------------- SQL */

char *
period_ddl_create(const char *shard, Relation relation, const PeriodRule *rule,
				  const char *access_method, List *parameters, List *periods)
{
	char *column = get_attname(RelationGetRelid(relation), rule->attribute, false);
	StringInfoData sql;
	ListCell *cell;

	initStringInfo(&sql);
	appendStringInfo(&sql,
					 "SELECT strata_worker.create_periods(%s::pg_catalog.regclass, %s, %s, %s, %d, "
					 "%s, ARRAY[",
					 quote_literal_cstr(shard), quote_literal_cstr(column),
					 quote_literal_cstr(rule->interval), quote_literal_cstr(rule->unit),
					 strata_period_premake, quote_literal_cstr(access_method));
	foreach(cell, parameters)
	{
		DefElem *option = lfirst(cell);

		appendStringInfo(
			&sql, "%s%s", cell == list_head(parameters) ? "" : ", ",
			quote_literal_cstr(psprintf("%s=%s", option->defname, defGetString(option))));
	}
	appendStringInfoString(&sql, "]::pg_catalog.text[], ARRAY[");
	foreach(cell, periods)
		appendStringInfo(&sql, "%s%s", cell == list_head(periods) ? "" : ", ",
						 quote_literal_cstr(strVal(lfirst(cell))));
	appendStringInfoString(&sql, "]::pg_catalog.text[]);\n");
	return sql.data;
}
