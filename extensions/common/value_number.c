/*
 * value_number.c
 *		Values as numbers, between which there are others: for estimates.
 */
#include "postgres.h"

#include "value_number.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "utils/date.h"
#include "utils/timestamp.h"

bool
value_number_get(Oid type, Datum value, double *number)
{
	switch (type)
	{
		case INT2OID:
			*number = DatumGetInt16(value);
			return true;
		case INT4OID:
			*number = DatumGetInt32(value);
			return true;
		case INT8OID:
			*number = (double) DatumGetInt64(value);
			return true;
		case FLOAT4OID:
			*number = DatumGetFloat4(value);
			return isfinite(*number);
		case FLOAT8OID:
			*number = DatumGetFloat8(value);
			return isfinite(*number);
		case DATEOID:
			*number = DatumGetDateADT(value);
			return !DATE_NOT_FINITE(DatumGetDateADT(value));
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			*number = (double) DatumGetTimestamp(value);
			return !TIMESTAMP_NOT_FINITE(DatumGetTimestamp(value));
		default:
			return false;
	}
}

Datum
value_number_make(Oid type, double number)
{
	switch (type)
	{
		case INT2OID:
			return Int16GetDatum((int16) floor(number));
		case INT4OID:
		case DATEOID:
			return Int32GetDatum((int32) floor(number));
		case FLOAT4OID:
			return Float4GetDatum((float4) number);
		case FLOAT8OID:
			return Float8GetDatum(number);
		default:
			/* the largest bigint is less than the double that is nearest to it */
			return Int64GetDatum(number >= 0x1p63 ? PG_INT64_MAX : (int64) floor(number));
	}
}
