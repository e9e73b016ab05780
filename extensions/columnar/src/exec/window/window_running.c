/*
 * window_running.c
 *		Aggregates whose frame grows: it begins with the partition and ends with the current row, or
 *		with its last peer.
 *
 * Counts, sums, averages and extremes of integers and numerics are kept here; a sum of numerics is
 * a mantissa with the largest scale so far, as core shows it, and becomes core's own numeric when
 * a value does not fit.  For all others the frame is the one group of a VectorAggregate, whose
 * state is made a result each time one is asked for.
 *
 * Results go to a store, through a vector that collects them.
 */
#include "exec/window/window_internal.h"

#include "access/htup_details.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_type.h"
#include "optimizer/planner.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/float.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/numeric.h"

#include "store/codec/numeric_codec.h"
#include "window_names.h"

typedef enum RunningForm
{
	RUNNING_COUNT,
	RUNNING_SUM_INT64,
	RUNNING_SUM, /* as numeric; and average */
	RUNNING_AVERAGE,
	RUNNING_SUM_FLOAT8,
	RUNNING_MIN, /* of what is held as integers in their order */
	RUNNING_MAX,
	RUNNING_STATES
} RunningForm;

struct WindowRunning
{
	RunningForm form;
	bool has_argument;
	/* the frame */
	int64 count;  /* of rows whose argument is not NULL */
	int64 number; /* sum, or extreme */
	double real;
	int128 mantissa;
	int32 scale;
	bool is_numeric; /* the sum is this one, and no mantissa */
	Datum numeric;
	MemoryContext frame;
	VectorAggregate *states;
	VectorFinal *final;
	/* results */
	VectorStore *results;
	MemoryContext values; /* of results that are collected */
	Vector collected;
	uint32 ncollected;
	int64 ints[BLOCK_ROWS];
	int128 wides[BLOCK_ROWS];
	double floats[BLOCK_ROWS];
	Datum datums[BLOCK_ROWS];
	uint64 nulls[BLOCK_WORDS];
};

/* ---- which aggregates --------------------------------------------------------------------------- */

static RunningForm
find_form_of(Oid transition, Oid final)
{
	switch (transition)
	{
		case F_INT8INC:
		case F_INT8INC_ANY:
			return final == InvalidOid ? RUNNING_COUNT : RUNNING_STATES;
		case F_INT2_SUM:
		case F_INT4_SUM:
			return final == InvalidOid ? RUNNING_SUM_INT64 : RUNNING_STATES;
		case F_FLOAT8PL:
			return final == InvalidOid ? RUNNING_SUM_FLOAT8 : RUNNING_STATES;
		case F_INT2_AVG_ACCUM:
		case F_INT4_AVG_ACCUM:
			return final == F_INT8_AVG ? RUNNING_AVERAGE : RUNNING_STATES;
		case F_INT8_AVG_ACCUM:
			if (final == F_NUMERIC_POLY_SUM)
				return RUNNING_SUM;
			return final == F_NUMERIC_POLY_AVG ? RUNNING_AVERAGE : RUNNING_STATES;
		case F_NUMERIC_AVG_ACCUM:
			if (final == F_NUMERIC_SUM)
				return RUNNING_SUM;
			return final == F_NUMERIC_AVG ? RUNNING_AVERAGE : RUNNING_STATES;
		case F_INT2SMALLER:
		case F_INT4SMALLER:
		case F_INT8SMALLER:
		case F_DATE_SMALLER:
		case F_TIMESTAMP_SMALLER:
		case F_TIMESTAMPTZ_SMALLER:
			return final == InvalidOid ? RUNNING_MIN : RUNNING_STATES;
		case F_INT2LARGER:
		case F_INT4LARGER:
		case F_INT8LARGER:
		case F_DATE_LARGER:
		case F_TIMESTAMP_LARGER:
		case F_TIMESTAMPTZ_LARGER:
			return final == InvalidOid ? RUNNING_MAX : RUNNING_STATES;
		default:
			return RUNNING_STATES;
	}
}

static RunningForm
find_form(const Aggref *aggref)
{
	HeapTuple tuple;
	Form_pg_aggregate form;
	RunningForm result;

	/* which says that the initial state is the usual one, too */
	if (!vector_aggregate_has_kernel(aggref))
		return RUNNING_STATES;
	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggref->aggfnoid));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for aggregate %u", aggref->aggfnoid);
	form = (Form_pg_aggregate) GETSTRUCT(tuple);
	result = find_form_of(form->aggtransfn, form->aggfinalfn);
	ReleaseSysCache(tuple);
	return result;
}

WindowRunning *
window_running_create(const WindowFunc *function, PlanState *parent)
{
	WindowRunning *running = palloc0(sizeof(WindowRunning));
	Aggref *aggref = window_names_make_aggref(function);
	ColumnType *type = palloc(sizeof(ColumnType));
	VectorKey key = vector_key_of((const Node *) function);

	running->form = find_form(aggref);
	running->has_argument = function->args != NIL;
	running->frame = AllocSetContextCreate(CurrentMemoryContext, "columnar window frame",
										   ALLOCSET_SMALL_SIZES);
	running->values = AllocSetContextCreate(CurrentMemoryContext, "columnar window results",
											ALLOCSET_DEFAULT_SIZES);
	running->results = vector_store_create(1, &key);
	vector_key_type(&key, type);
	running->collected = (Vector){.type = type, .bits = VECTOR_BITS_UNKNOWN};
	if (running->form == RUNNING_STATES)
	{
		Aggref *partial = copyObject(aggref);

		mark_partial_aggref(partial, AGGSPLIT_INITIAL_SERIAL);
		running->states = vector_aggregate_create(partial, parent);
		running->final = vector_final_create(aggref, running->states, parent);
	}
	window_running_begin(running);
	return running;
}

/* ---- the frame ---------------------------------------------------------------------------------- */

void
window_running_begin(WindowRunning *running)
{
	running->count = 0;
	running->number = 0;
	running->real = 0;
	running->mantissa = 0;
	running->scale = 0;
	if (running->is_numeric)
		MemoryContextReset(running->frame);
	running->is_numeric = false;
	if (running->states != NULL)
	{
		vector_aggregate_reset(running->states);
		vector_aggregate_resize(running->states, 1);
	}
}

static int64
read_int(const Vector *vector, uint32 row)
{
	return vector->form == VECTOR_INT ? vector->ints[row]
									  : column_type_to_int(vector->type, vector->datums[row]);
}

/* Mantissa and display scale of an integer or numeric; false if it has none. */
static bool
read_mantissa(const Vector *vector, uint32 row, int128 *mantissa, int32 *scale)
{
	const char *bytes;
	uint32 length;

	if (vector->type->form == FORM_INT)
	{
		*mantissa = read_int(vector, row);
		*scale = 0;
		return true;
	}
	if ((vector->form == VECTOR_INT || vector->form == VECTOR_WIDE) &&
		!vector_bit(vector->exceptions, row))
	{
		*mantissa = vector_shown(vector, row, scale);
		return true;
	}
	if (vector->form == VECTOR_DATUM)
	{
		struct varlena *value = PG_DETOAST_DATUM_PACKED(vector->datums[row]);

		return numeric_to_scaled(VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value), mantissa, scale);
	}
	bytes = vector_bytes(vector, row, &length);
	return numeric_to_scaled(bytes, length, mantissa, scale);
}

/* Multiplies by a power of ten; false if there is no room. */
static bool
raise_mantissa(int128 *mantissa, int32 digits)
{
	for (; digits > 0; digits--)
		if (__builtin_mul_overflow(*mantissa, (int128) 10, mantissa))
			return false;
	return true;
}

/* Adds to the mantissa; false, and nothing is changed, if there is no room. */
static bool
add_mantissa(WindowRunning *running, int128 mantissa, int32 scale)
{
	int128 sum = running->mantissa;
	int32 largest = Max(running->scale, scale);

	if (running->count == 0)
		largest = scale;
	if (!raise_mantissa(&sum, largest - running->scale) ||
		!raise_mantissa(&mantissa, largest - scale) || __builtin_add_overflow(sum, mantissa, &sum))
		return false;
	running->mantissa = sum;
	running->scale = largest;
	return true;
}

static void
add_numeric(WindowRunning *running, const Vector *vector, uint32 row)
{
	MemoryContext caller = MemoryContextSwitchTo(running->frame);
	bool isnull;
	Datum old;
	Datum value;

	if (!running->is_numeric)
		running->numeric = numeric_from_scaled(running->mantissa, running->scale);
	running->is_numeric = true;
	MemoryContextSwitchTo(caller);
	value = vector_datum(vector, row, &isnull);
	if (vector->type->form == FORM_INT)
		value = NumericGetDatum(int64_to_numeric(read_int(vector, row)));
	MemoryContextSwitchTo(running->frame);
	old = running->numeric;
	/* the sum of no values has no scale of its own */
	running->numeric = running->count == 0 ? datumCopy(value, false, -1)
										   : DirectFunctionCall2(numeric_add, old, value);
	pfree(DatumGetPointer(old));
	MemoryContextSwitchTo(caller);
}

static void
add_row(WindowRunning *running, const Vector *vector, uint32 row)
{
	int128 mantissa;
	int32 scale;
	int64 number;

	if (vector != NULL && vector_is_null(vector, row))
		return;
	switch (running->form)
	{
		case RUNNING_COUNT:
			break;
		case RUNNING_SUM_INT64:
			running->number += read_int(vector, row);
			break;
		case RUNNING_MIN:
			number = read_int(vector, row);
			running->number = running->count == 0 ? number : Min(running->number, number);
			break;
		case RUNNING_MAX:
			number = read_int(vector, row);
			running->number = running->count == 0 ? number : Max(running->number, number);
			break;
		case RUNNING_SUM_FLOAT8:
		{
			double value = vector->form == VECTOR_FLOAT ? vector->floats[row]
														: DatumGetFloat8(vector->datums[row]);

			running->real = running->count == 0 ? value : float8_pl(running->real, value);
			break;
		}
		default:
			if (running->is_numeric || !read_mantissa(vector, row, &mantissa, &scale) ||
				!add_mantissa(running, mantissa, scale))
				add_numeric(running, vector, row);
			break;
	}
	running->count++;
}

void
window_running_add(WindowRunning *running, Vector *const *arguments, uint32 nrows,
				   const uint16 *selection, uint32 nselected)
{
	if (running->form == RUNNING_STATES)
	{
		VectorRows rows;

		vector_rows_init(&rows, nrows, selection, nselected, NULL, 1);
		vector_aggregate_advance(running->states, arguments, &rows);
		return;
	}
	if (!running->has_argument)
	{
		running->count += nselected;
		return;
	}
	for (uint32 i = 0; i < nselected; i++)
		add_row(running, arguments[0], selection[i]);
}

void
window_running_add_each(WindowRunning *running, Vector *const *arguments, uint32 nrows,
						const uint16 *selection, uint32 nselected)
{
	for (uint32 i = 0; i < nselected; i++)
	{
		window_running_add(running, arguments, nrows, selection + i, 1);
		window_running_keep(running);
	}
}

/* ---- results ------------------------------------------------------------------------------------ */

/* Moves collected results to the store. */
static void
store_collected(WindowRunning *running)
{
	Vector *vector = &running->collected;
	uint16 selection[BLOCK_ROWS];

	if (running->ncollected == 0)
		return;
	for (uint32 i = 0; i < running->ncollected; i++)
		selection[i] = (uint16) i;
	vector_store_append(running->results, &vector, selection, running->ncollected);
	MemoryContextReset(running->values);
	running->ncollected = 0;
	running->collected.nulls = NULL;
	memset(running->nulls, 0, sizeof(running->nulls));
}

/* The place of another result of this form. */
static uint32
collect(WindowRunning *running, VectorForm form, int32 scale)
{
	Vector *vector = &running->collected;

	if (running->ncollected == BLOCK_ROWS || vector->form != form || vector->scale != scale)
		store_collected(running);
	vector->form = form;
	vector->scale = scale;
	vector->ints = running->ints;
	vector->wides = running->wides;
	vector->floats = running->floats;
	vector->datums = running->datums;
	return running->ncollected++;
}

static void
collect_null(WindowRunning *running)
{
	uint32 place = collect(running, running->collected.form, running->collected.scale);

	running->ints[place] = 0;
	running->nulls[place >> 6] |= UINT64CONST(1) << (place & 63);
	running->collected.nulls = running->nulls;
}

/* The result as a datum, in the current context. */
static Datum
make_datum(const WindowRunning *running, bool *isnull)
{
	const ColumnType *type = running->collected.type;
	Datum value;

	*isnull = false;
	if (running->form == RUNNING_STATES)
	{
		value = vector_final_value(running->final, 0, isnull);
		return *isnull ? value : datumCopy(value, type->byval, type->length);
	}
	value = running->is_numeric ? datumCopy(running->numeric, false, -1)
								: numeric_from_scaled(running->mantissa, running->scale);
	if (running->form == RUNNING_AVERAGE)
		value = DirectFunctionCall2(numeric_div, value,
									NumericGetDatum(int64_to_numeric(running->count)));
	return value;
}

static void
collect_datum(WindowRunning *running)
{
	uint32 place = collect(running, VECTOR_DATUM, -1);
	MemoryContext caller = MemoryContextSwitchTo(running->values);
	bool isnull;

	running->datums[place] = make_datum(running, &isnull);
	MemoryContextSwitchTo(caller);
	if (!isnull)
		return;
	running->nulls[place >> 6] |= UINT64CONST(1) << (place & 63);
	running->collected.nulls = running->nulls;
}

void
window_running_keep(WindowRunning *running)
{
	uint32 place;

	if (running->count == 0 && running->form != RUNNING_COUNT && running->form != RUNNING_STATES)
	{
		collect_null(running);
		return;
	}
	switch (running->form)
	{
		case RUNNING_COUNT:
			place = collect(running, VECTOR_INT, -1);
			running->ints[place] = running->count;
			break;
		case RUNNING_SUM_INT64:
		case RUNNING_MIN:
		case RUNNING_MAX:
			place = collect(running, VECTOR_INT, -1);
			running->ints[place] = running->number;
			break;
		case RUNNING_SUM_FLOAT8:
			place = collect(running, VECTOR_FLOAT, -1);
			running->floats[place] = running->real;
			break;
		case RUNNING_SUM:
			if (!running->is_numeric)
			{
				place = collect(running, VECTOR_WIDE, running->scale);
				running->wides[place] = running->mantissa;
				break;
			}
			/* FALLTHROUGH */
		default:
			collect_datum(running);
			break;
	}
}

void
window_running_gather(WindowRunning *running, const uint32 *numbers, uint32 n, VectorBuffer *buffer,
					  Vector *into)
{
	store_collected(running);
	vector_store_gather(running->results, 0, numbers, NULL, n, buffer, into);
}

void
window_running_forget(WindowRunning *running)
{
	store_collected(running);
	vector_store_reset(running->results);
}
