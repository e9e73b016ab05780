/*
 * vector_datetime.c
 *		extract() and date_trunc() of dates and timestamps, their casts, and intervals added
 *		to timestamps.
 *
 * Kernels compute in local time: of a timestamptz only if the session's time zone is at
 * UTC always.  Infinite values, and what leaves the range of the type, are left to the
 * ExprState, as are units without a kernel.  Only intervals without months are added, and
 * with days only in local time: these are so many microseconds then.
 */
#include "exec/expression/vector_expression_internal.h"

#include "catalog/pg_type.h"
#include "datatype/timestamp.h"
#include "nodes/nodeFuncs.h"
#include "parser/scansup.h"
#include "pgtime.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datetime.h"
#include "utils/fmgroids.h"
#include "utils/timestamp.h"

#define DATE_OFFSET POSTGRES_EPOCH_JDATE

typedef struct DatetimeNode
{
	int unit;		/* DTK_..., of extract and date_trunc */
	bool is_date;	/* the argument is a date */
	bool needs_utc; /* it is a timestamptz, and the zone matters */
	bool is_subtracted;
} DatetimeNode;

/* ---- local time --------------------------------------------------------------------------------- */

static bool
is_session_at_utc(void)
{
	long offset;

	return pg_get_timezone_offset(session_timezone, &offset) && offset == 0;
}

static inline int64
divide_down(int64 value, int64 divisor)
{
	int64 quotient = value / divisor;

	return quotient - (value % divisor < 0);
}

/* The day of a date or a timestamp, since 2000. */
static inline int64
get_day(const DatetimeNode *details, int64 value)
{
	return details->is_date ? value : divide_down(value, USECS_PER_DAY);
}

/* Are all selected values in the range of their type, and finite? */
static bool
are_in_range(const Vector *values, const VectorInput *input, bool is_date)
{
	if (is_date)
		return vector_are_between(values->ints, values->nulls, input,
								  DATETIME_MIN_JULIAN - DATE_OFFSET,
								  DATE_END_JULIAN - DATE_OFFSET - 1);
	return vector_are_between(values->ints, values->nulls, input, MIN_TIMESTAMP, END_TIMESTAMP - 1);
}

/* The argument, if the kernel can do all of it; else the ExprState has filled the result. */
static const Vector *
get_argument(VectorExpression *node, VectorInput *input, int argument)
{
	const DatetimeNode *details = node->details;
	const Vector *values = vector_node_values(node->args[argument], input);

	if ((!details->needs_utc || is_session_at_utc()) &&
		are_in_range(values, input, details->is_date))
		return values;
	vector_leaf_evaluate_scalar(node, input);
	return NULL;
}

/* ---- extract ------------------------------------------------------------------------------------ */

/* A unit of the date, as extract_date() and timestamp_part() compute it. */
static inline int64
extract_from_date(int unit, int64 day)
{
	int year;
	int month;
	int mday;

	if (unit == DTK_DOW || unit == DTK_ISODOW)
	{
		int weekday = j2day((int) day + DATE_OFFSET);

		return unit == DTK_ISODOW && weekday == 0 ? 7 : weekday;
	}
	j2date((int) day + DATE_OFFSET, &year, &month, &mday);
	switch (unit)
	{
		case DTK_YEAR:
			return year > 0 ? year : year - 1;
		case DTK_QUARTER:
			return (month - 1) / 3 + 1;
		case DTK_MONTH:
			return month;
		case DTK_DAY:
			return mday;
		case DTK_WEEK:
			return date2isoweek(year, month, mday);
		case DTK_DOY:
			return date2j(year, month, mday) - date2j(year, 1, 1) + 1;
		case DTK_DECADE:
			return year >= 0 ? year / 10 : -((8 - (year - 1)) / 10);
		case DTK_CENTURY:
			return year > 0 ? (year + 99) / 100 : -((99 - (year - 1)) / 100);
		default:
			return year > 0 ? (year + 999) / 1000 : -((999 - (year - 1)) / 1000);
	}
}

/* A unit of the time of day, given in microseconds; seconds and less as microseconds. */
static inline int64
extract_from_time(int unit, int64 time)
{
	switch (unit)
	{
		case DTK_HOUR:
			return time / USECS_PER_HOUR;
		case DTK_MINUTE:
			return time / USECS_PER_MINUTE % MINS_PER_HOUR;
		default:
			return time % USECS_PER_MINUTE;
	}
}

/*
 * Years and months of days since 2000, as j2date() computes them: in unsigned integers
 * without branches, hence for whole blocks.
 */
VECTOR_KERNEL static void
split_days(const int64 *restrict days, int32 *restrict years, int32 *restrict months,
		   int32 *restrict mdays)
{
	for (int i = 0; i < BLOCK_ROWS; i++)
	{
		uint32 julian = (uint32) days[i] + DATE_OFFSET + 32044;
		uint32 quad = julian / 146097;
		uint32 extra = (julian - quad * 146097) * 4 + 3;
		uint32 year;

		julian += 60 + quad * 3 + extra / 146097;
		quad = julian / 1461;
		julian -= quad * 1461;
		year = julian * 4 / 1461;
		julian = (year != 0 ? (julian + 305) % 365 : (julian + 306) % 366) + 123;
		years[i] = (int32) (year + quad * 4) - 4800;
		quad = julian * 2141 / 65536;
		mdays[i] = (int32) (julian - 7834 * quad / 256);
		months[i] = (int32) ((quad + 10) % MONTHS_PER_YEAR) + 1;
	}
}

/* A unit of the calendar for a whole block; false for the others. */
static bool
fill_calendar(int unit, const int64 *days, int64 *into)
{
	int32 years[BLOCK_ROWS];
	int32 months[BLOCK_ROWS];
	int32 mdays[BLOCK_ROWS];

	if (unit != DTK_YEAR && unit != DTK_QUARTER && unit != DTK_MONTH && unit != DTK_DAY)
		return false;
	split_days(days, years, months, mdays);
	for (int i = 0; i < BLOCK_ROWS; i++)
	{
		if (unit == DTK_YEAR)
			into[i] = years[i] - (years[i] <= 0);
		else if (unit == DTK_QUARTER)
			into[i] = (months[i] - 1) / 3 + 1;
		else
			into[i] = unit == DTK_MONTH ? months[i] : mdays[i];
	}
	return true;
}

static bool
is_unit_of_time(int unit)
{
	return unit == DTK_HOUR || unit == DTK_MINUTE || unit == DTK_SECOND || unit == DTK_MILLISEC ||
		   unit == DTK_MICROSEC;
}

/* Digits after the point that extract() gives the unit. */
static int32
get_unit_scale(const DatetimeNode *details)
{
	switch (details->unit)
	{
		case DTK_SECOND:
			return 6;
		case DTK_MILLISEC:
			return 3;
		case DTK_EPOCH:
			return details->is_date ? 0 : 6;
		default:
			return 0;
	}
}

/* Microseconds, or of a date seconds, since 1970. */
static inline int64
get_epoch(bool is_date, int64 value)
{
	static const int64 days = POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE;

	return is_date ? (value + days) * SECS_PER_DAY : value + days * USECS_PER_DAY;
}

/* Units of the calendar of dates or timestamps. */
static bool
fill_block(const DatetimeNode *details, const int64 *from, int64 *into)
{
	int64 days[BLOCK_ROWS];

	if (details->is_date)
		return fill_calendar(details->unit, from, into);
	for (int i = 0; i < BLOCK_ROWS; i++)
		days[i] = divide_down(from[i], USECS_PER_DAY);
	return fill_calendar(details->unit, days, into);
}

static void
fill_units(const DatetimeNode *details, const int64 *from, const VectorInput *input, int64 *into)
{
	int unit = details->unit;

	if (unit == DTK_EPOCH)
	{
		for (uint32 i = 0; i < input->nselected; i++)
			into[input->selection[i]] = get_epoch(details->is_date, from[input->selection[i]]);
		return;
	}
	if (is_unit_of_time(unit))
	{
		for (uint32 i = 0; i < input->nselected; i++)
		{
			int64 value = from[input->selection[i]];
			int64 time = value - divide_down(value, USECS_PER_DAY) * USECS_PER_DAY;

			into[input->selection[i]] = extract_from_time(unit, time);
		}
		return;
	}
	if (!vector_input_is_sparse(input) && fill_block(details, from, into))
		return;
	for (uint32 i = 0; i < input->nselected; i++)
		into[input->selection[i]] = extract_from_date(unit,
													  get_day(details, from[input->selection[i]]));
}

/* The epoch of a timestamp so late that its microseconds since 1970 pass 64 bits is not ours. */
static bool
has_epoch(const DatetimeNode *details, const Vector *values, const VectorInput *input)
{
	return details->unit != DTK_EPOCH || details->is_date ||
		   vector_are_between(values->ints, values->nulls, input, MIN_TIMESTAMP,
							  PG_INT64_MAX + SetEpochTimestamp() - 1);
}

static void
evaluate_extract(VectorExpression *node, VectorInput *input)
{
	const DatetimeNode *details = node->details;
	const Vector *values = get_argument(node, input, 1);
	int64 units[BLOCK_ROWS];

	if (values == NULL)
		return;
	if (!has_epoch(details, values, input))
	{
		vector_leaf_evaluate_scalar(node, input);
		return;
	}
	if (node->type.typid == NUMERICOID)
	{
		vector_node_begin(node, VECTOR_INT)->scale = get_unit_scale(details);
		fill_units(details, values->ints, input, node->ints);
	}
	else
	{
		vector_node_begin(node, VECTOR_FLOAT);
		fill_units(details, values->ints, input, units);
		for (uint32 i = 0; i < input->nselected; i++)
			node->floats[input->selection[i]] = (double) units[input->selection[i]];
	}
	node->result.nulls = values->nulls;
	node->partial = true;
}

/* ---- date_trunc --------------------------------------------------------------------------------- */

/* The first day of the year, decade ... that timestamp_trunc() goes back to. */
static int
truncate_year(int unit, int year)
{
	switch (unit)
	{
		case DTK_MILLENNIUM:
			return year > 0 ? (year + 999) / 1000 * 1000 - 999
							: -((999 - (year - 1)) / 1000) * 1000 + 1;
		case DTK_CENTURY:
			return year > 0 ? (year + 99) / 100 * 100 - 99 : -((99 - (year - 1)) / 100) * 100 + 1;
		case DTK_DECADE:
			return year > 0 ? year / 10 * 10 : -((8 - (year - 1)) / 10) * 10;
		default:
			return year;
	}
}

static int64
truncate_day(int unit, int64 day)
{
	int year;
	int month;
	int mday;

	if (unit == DTK_WEEK)
		return day - (j2day((int) day + DATE_OFFSET) + 6) % 7;
	j2date((int) day + DATE_OFFSET, &year, &month, &mday);
	if (unit == DTK_QUARTER)
		month = (month - 1) / 3 * 3 + 1;
	else if (unit != DTK_MONTH)
	{
		year = truncate_year(unit, year);
		month = 1;
	}
	return (int64) date2j(year, month, 1) - DATE_OFFSET;
}

/* Microseconds of the units that all are equally long; 0 for the others. */
static int64
get_unit_length(int unit)
{
	switch (unit)
	{
		case DTK_DAY:
			return USECS_PER_DAY;
		case DTK_HOUR:
			return USECS_PER_HOUR;
		case DTK_MINUTE:
			return USECS_PER_MINUTE;
		case DTK_SECOND:
			return USECS_PER_SEC;
		case DTK_MILLISEC:
			return 1000;
		case DTK_MICROSEC:
			return 1;
		default:
			return 0;
	}
}

static void
evaluate_trunc(VectorExpression *node, VectorInput *input)
{
	const DatetimeNode *details = node->details;
	const Vector *values = get_argument(node, input, 1);
	int64 length = get_unit_length(details->unit);

	if (values == NULL)
		return;
	vector_node_begin(node, VECTOR_INT);
	node->result.nulls = values->nulls;
	node->partial = true;
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		int64 value = values->ints[row];

		if (vector_is_null(values, row))
			node->ints[row] = 0;
		else if (length > 0)
			node->ints[row] = divide_down(value, length) * length;
		else
			node->ints[row] = truncate_day(details->unit, divide_down(value, USECS_PER_DAY)) *
							  USECS_PER_DAY;
	}
	if (!are_in_range(&node->result, input, false))
		vector_leaf_evaluate_scalar(node, input);
}

/* ---- casts -------------------------------------------------------------------------------------- */

/* Infinite dates stay infinite. */
static void
evaluate_date_to_timestamp(VectorExpression *node, VectorInput *input)
{
	const DatetimeNode *details = node->details;
	const Vector *values = vector_node_values(node->args[0], input);

	if ((details->needs_utc && !is_session_at_utc()) ||
		!vector_are_between(values->ints, values->nulls, input, DATETIME_MIN_JULIAN - DATE_OFFSET,
							TIMESTAMP_END_JULIAN - DATE_OFFSET - 1))
	{
		vector_leaf_evaluate_scalar(node, input);
		return;
	}
	vector_node_begin(node, VECTOR_INT);
	node->result.nulls = values->nulls;
	for (int i = 0; i < BLOCK_ROWS; i++)
		node->ints[i] = (int64) ((uint64) values->ints[i] * USECS_PER_DAY);
}

static void
evaluate_timestamp_to_date(VectorExpression *node, VectorInput *input)
{
	const Vector *values = get_argument(node, input, 0);

	if (values == NULL)
		return;
	vector_node_begin(node, VECTOR_INT);
	node->result.nulls = values->nulls;
	node->partial = true;
	for (uint32 i = 0; i < input->nselected; i++)
		node->ints[input->selection[i]] = divide_down(values->ints[input->selection[i]],
													  USECS_PER_DAY);
}

/* Local time and UTC are the same numbers where UTC is the local time. */
static void
evaluate_same(VectorExpression *node, VectorInput *input)
{
	const Vector *values = get_argument(node, input, 0);

	if (values == NULL)
		return;
	node->result = *values;
	node->result.type = &node->type;
}

/* ---- intervals ---------------------------------------------------------------------------------- */

/* The constant interval as days and microseconds; false if it has months or is not constant. */
static bool
read_interval(const Vector *interval, bool is_subtracted, int64 *days, int64 *time)
{
	Interval value;
	uint32 length;

	if (!interval->constant)
		return false;
	memcpy(&value, vector_bytes(interval, 0, &length), sizeof(value));
	if (value.month != 0 || value.time == PG_INT64_MIN || value.day == PG_INT32_MIN)
		return false;
	*days = is_subtracted ? -(int64) value.day : value.day;
	*time = is_subtracted ? -value.time : value.time;
	return true;
}

/* timestamp + interval: the days first, then the time, each within the range. */
static void
evaluate_interval(VectorExpression *node, VectorInput *input)
{
	const DatetimeNode *details = node->details;
	const Vector *values = vector_node_values(node->args[0], input);
	const Vector *interval = vector_node_values(node->args[1], input);
	int64 factor = details->is_date ? USECS_PER_DAY : 1;
	int64 days;
	int64 time;
	bool fits;

	fits = read_interval(interval, details->is_subtracted, &days, &time) &&
		   (!details->needs_utc || days == 0 || is_session_at_utc()) &&
		   are_in_range(values, input, details->is_date);
	if (fits && details->is_date)
		fits = vector_are_between(values->ints, values->nulls, input,
								  DATETIME_MIN_JULIAN - DATE_OFFSET,
								  TIMESTAMP_END_JULIAN - DATE_OFFSET - 1);
	vector_node_begin(node, VECTOR_INT);
	node->result.nulls = values->nulls;
	node->partial = true;
	for (uint32 i = 0; fits && i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		int64 result = (int64) ((uint64) values->ints[row] * factor);
		int64 shift;

		if (vector_is_null(values, row))
			continue;
		if (__builtin_mul_overflow(days, USECS_PER_DAY, &shift) ||
			__builtin_add_overflow(result, shift, &result) || !IS_VALID_TIMESTAMP(result) ||
			__builtin_add_overflow(result, time, &result) || !IS_VALID_TIMESTAMP(result))
			fits = false;
		node->ints[row] = result;
	}
	if (!fits)
		vector_leaf_evaluate_scalar(node, input);
}

/* ---- compiling ---------------------------------------------------------------------------------- */

typedef struct DatetimeFunction
{
	Oid function;
	void (*evaluate)(VectorExpression *node, VectorInput *input);
	bool is_date;
	bool needs_utc;
	bool is_subtracted;
} DatetimeFunction;

static const DatetimeFunction functions[] = {
	{F_EXTRACT_TEXT_DATE, evaluate_extract, true, false, false},
	{F_EXTRACT_TEXT_TIMESTAMP, evaluate_extract, false, false, false},
	{F_EXTRACT_TEXT_TIMESTAMPTZ, evaluate_extract, false, true, false},
	{F_DATE_PART_TEXT_TIMESTAMP, evaluate_extract, false, false, false},
	{F_DATE_PART_TEXT_TIMESTAMPTZ, evaluate_extract, false, true, false},
	{F_DATE_TRUNC_TEXT_TIMESTAMP, evaluate_trunc, false, false, false},
	{F_DATE_TRUNC_TEXT_TIMESTAMPTZ, evaluate_trunc, false, true, false},
	{F_TIMESTAMP_DATE, evaluate_date_to_timestamp, true, false, false},
	{F_TIMESTAMPTZ_DATE, evaluate_date_to_timestamp, true, true, false},
	{F_DATE_TIMESTAMP, evaluate_timestamp_to_date, false, false, false},
	{F_DATE_TIMESTAMPTZ, evaluate_timestamp_to_date, false, true, false},
	{F_TIMESTAMP_TIMESTAMPTZ, evaluate_same, false, true, false},
	{F_TIMESTAMPTZ_TIMESTAMP, evaluate_same, false, true, false},
	{F_TIMESTAMP_PL_INTERVAL, evaluate_interval, false, false, false},
	{F_TIMESTAMP_MI_INTERVAL, evaluate_interval, false, false, true},
	{F_TIMESTAMPTZ_PL_INTERVAL, evaluate_interval, false, true, false},
	{F_TIMESTAMPTZ_MI_INTERVAL, evaluate_interval, false, true, true},
	{F_DATE_PL_INTERVAL, evaluate_interval, true, false, false},
	{F_DATE_MI_INTERVAL, evaluate_interval, true, false, true}};

/* The unit that the constant names; false if there is no kernel for it. */
static bool
read_unit(const Const *constant, const DatetimeFunction *function, bool is_numeric, int *unit)
{
	text *name;
	char *lower;
	int type;

	if (!IsA(constant, Const) || constant->constisnull)
		return false;
	name = DatumGetTextPP(constant->constvalue);
	lower = downcase_truncate_identifier(VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name), false);
	type = DecodeUnits(0, lower, unit);
	if (type == UNKNOWN_FIELD && function->evaluate == evaluate_extract)
		type = DecodeSpecial(0, lower, unit);
	if (type == RESERV)
		return *unit == DTK_EPOCH && is_numeric;
	if (type != UNITS)
		return false;
	switch (*unit)
	{
		case DTK_YEAR:
		case DTK_DECADE:
		case DTK_CENTURY:
		case DTK_MILLENNIUM:
		case DTK_QUARTER:
		case DTK_MONTH:
		case DTK_WEEK:
		case DTK_DAY:
			return true;
		case DTK_DOW:
		case DTK_ISODOW:
		case DTK_DOY:
			return function->evaluate == evaluate_extract;
		case DTK_HOUR:
		case DTK_MINUTE:
			return !function->is_date;
		case DTK_SECOND:
		case DTK_MILLISEC:
			/* date_part() makes of these what is not an integer */
			return !function->is_date && (is_numeric || function->evaluate == evaluate_trunc);
		case DTK_MICROSEC:
			return !function->is_date;
		default:
			return false;
	}
}

VectorExpression *
vector_datetime_compile(Expr *expression, VectorScope *scope)
{
	const DatetimeFunction *function = NULL;
	VectorExpression *node;
	DatetimeNode *details;
	VectorCall call;
	int unit = 0;

	if (!vector_call_match(expression, &call))
		return NULL;
	for (int i = 0; i < lengthof(functions) && function == NULL; i++)
		if (functions[i].function == call.function)
			function = &functions[i];
	if (function == NULL)
		return NULL;
	if ((function->evaluate == evaluate_extract || function->evaluate == evaluate_trunc) &&
		!read_unit(linitial(call.arguments), function, exprType((Node *) expression) == NUMERICOID,
				   &unit))
		return NULL;

	node = vector_node_create(expression, scope, call.arguments);
	details = palloc(sizeof(DatetimeNode));
	details->unit = unit;
	details->is_date = function->is_date;
	details->needs_utc = function->needs_utc;
	details->is_subtracted = function->is_subtracted;
	node->details = details;
	node->evaluate = function->evaluate;
	/* only what is out of range fails, and that is found before */
	node->can_fail = true;
	node->is_shareable = true;
	return node;
}
