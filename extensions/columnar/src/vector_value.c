/*
 * vector_value.c
 *		Results of a node that come row by row: datums of an ExprState, rows of other vectors.
 *
 * A numeric becomes a mantissa if it has the result's scale, else an exception.  Which
 * scale that is says the caller, or the first value.
 */
#include "vector_expression_internal.h"

#include "utils/datum.h"
#include "utils/memutils.h"

#include "float_codec.h"
#include "numeric_codec.h"

void
vector_value_begin(VectorExpression *node, int32 scale)
{
	if (node->holds_datums)
		vector_node_begin(node, VECTOR_DATUM);
	else
		switch (node->type.form)
		{
			case FORM_INT:
				vector_node_begin(node, VECTOR_INT);
				break;
			case FORM_FLOAT:
				vector_node_begin(node, VECTOR_FLOAT);
				break;
			case FORM_NUMERIC:
				vector_node_begin(node, VECTOR_INT)->scale = scale;
				break;
			case FORM_FIXED:
			case FORM_BYTES:
				vector_node_begin(node, VECTOR_BYTES);
				break;
		}
	vector_node_clear_nulls(node);
}

void
vector_value_set_null(VectorExpression *node, uint32 row)
{
	node->result.nulls = node->nulls;
	vector_set_bit(node->nulls, row);
	/* whoever looks finds nothing */
	if (node->result.form == VECTOR_BYTES)
		node->lengths[row] = 0;
}

/* The row is an exception: a numeric with these bytes, which live as long as the result. */
static void
set_exception(VectorExpression *node, uint32 row, const char *bytes, uint32 length)
{
	Vector *result = &node->result;

	if (result->exceptions == NULL)
	{
		vector_node_use_exceptions(node);
		result->starts = node->starts;
		result->lengths = node->lengths;
		result->exceptions = vector_node_clear_exceptions(node);
	}
	node->starts[row] = bytes;
	node->lengths[row] = length;
	vector_set_bit(node->exceptions, row);
}

static const char *
copy_bytes(VectorExpression *node, VectorInput *input, const char *bytes, uint32 length)
{
	char *copy = MemoryContextAlloc(vector_node_memory(node, input), Max(length, 1));

	memcpy(copy, bytes, length);
	return copy;
}

static void
store_numeric(VectorExpression *node, VectorInput *input, uint32 row, const char *bytes,
			  uint32 length, bool copy)
{
	Vector *result = &node->result;
	int128 mantissa;
	int32 scale;

	if (numeric_to_scaled(bytes, length, &mantissa, &scale) &&
		(result->scale < 0 || result->scale == scale) && mantissa == (int64) mantissa)
	{
		result->scale = scale;
		node->ints[row] = (int64) mantissa;
	}
	else
		set_exception(node, row, copy ? copy_bytes(node, input, bytes, length) : bytes, length);
}

/* The bytes of a datum by reference, of a FORM_FIXED, FORM_BYTES or FORM_NUMERIC. */
static const char *
get_bytes(const ColumnType *type, Datum value, uint32 *length)
{
	struct varlena *flat;

	if (type->length > 0)
	{
		*length = type->length;
		return DatumGetPointer(value);
	}
	if (type->length == -2)
	{
		*length = strlen(DatumGetCString(value));
		return DatumGetCString(value);
	}
	flat = PG_DETOAST_DATUM_PACKED(value);
	*length = VARSIZE_ANY_EXHDR(flat);
	return VARDATA_ANY(flat);
}

void
vector_value_store(VectorExpression *node, VectorInput *input, uint32 row, Datum value, bool isnull)
{
	const ColumnType *type = &node->type;
	MemoryContext caller;
	const char *bytes;
	uint32 length;

	if (isnull)
	{
		vector_value_set_null(node, row);
		return;
	}
	switch (node->result.form)
	{
		case VECTOR_INT:
			if (type->form == FORM_NUMERIC)
			{
				bytes = get_bytes(type, value, &length);
				store_numeric(node, input, row, bytes, length, true);
			}
			else
				node->ints[row] = column_type_to_int(type, value);
			break;
		case VECTOR_FLOAT:
			node->floats[row] = type->length == sizeof(float4)
									? float_widen_single((uint32) column_type_to_int(type, value))
									: DatumGetFloat8(value);
			break;
		case VECTOR_BYTES:
			bytes = get_bytes(type, value, &length);
			node->starts[row] = copy_bytes(node, input, bytes, length);
			node->lengths[row] = length;
			break;
		default:
			caller = MemoryContextSwitchTo(vector_node_memory(node, input));
			node->datums[row] = datumCopy(value, type->byval, type->length);
			MemoryContextSwitchTo(caller);
			break;
	}
}

/* ---- rows of another vector --------------------------------------------------------------------- */

/* A mantissa of another scale than the result's. */
static void
copy_misfit(VectorExpression *node, VectorInput *input, uint32 row, const Vector *from)
{
	MemoryContext caller = MemoryContextSwitchTo(vector_node_memory(node, input));
	int128 mantissa = from->form == VECTOR_WIDE ? from->wides[row] : (int128) from->ints[row];
	struct varlena *made = (struct varlena *) DatumGetPointer(
		numeric_from_scaled(mantissa, from->scale));

	MemoryContextSwitchTo(caller);
	set_exception(node, row, VARDATA_ANY(made), VARSIZE_ANY_EXHDR(made));
}

static void
copy_numeric(VectorExpression *node, VectorInput *input, uint32 row, const Vector *from)
{
	const char *bytes;
	uint32 length;

	if (vector_bit(from->exceptions, row))
		set_exception(node, row, from->starts[row], from->lengths[row]);
	else if (from->form == VECTOR_INT || from->form == VECTOR_WIDE)
	{
		int128 mantissa = from->form == VECTOR_WIDE ? from->wides[row] : (int128) from->ints[row];

		if (node->result.scale < 0)
			node->result.scale = from->scale;
		if (node->result.scale == from->scale && mantissa == (int64) mantissa)
			node->ints[row] = (int64) mantissa;
		else
			copy_misfit(node, input, row, from);
	}
	else
	{
		bytes = vector_bytes(from, row, &length);
		store_numeric(node, input, row, bytes, length, false);
	}
}

/* The rows of one constant: if it does not fit, it is made once. */
static void
copy_constant_numeric(VectorExpression *node, VectorInput *input, const uint16 *selection,
					  uint32 nselected, const Vector *from)
{
	uint32 first = selection[0];

	copy_numeric(node, input, first, from);
	if (vector_bit(node->result.exceptions, first))
	{
		for (uint32 i = 1; i < nselected; i++)
			set_exception(node, selection[i], node->starts[first], node->lengths[first]);
	}
	else
	{
		for (uint32 i = 1; i < nselected; i++)
			node->ints[selection[i]] = node->ints[first];
	}
}

static void
copy_values(VectorExpression *node, VectorInput *input, const uint16 *selection, uint32 nselected,
			const Vector *from)
{
	switch (node->result.form)
	{
		case VECTOR_INT:
			if (node->type.form != FORM_NUMERIC)
			{
				for (uint32 i = 0; i < nselected; i++)
					node->ints[selection[i]] = from->ints[selection[i]];
			}
			else if (from->constant)
				copy_constant_numeric(node, input, selection, nselected, from);
			else if (from->form == VECTOR_INT && from->scale == node->result.scale &&
					 from->exceptions == NULL)
			{
				for (uint32 i = 0; i < nselected; i++)
					node->ints[selection[i]] = from->ints[selection[i]];
			}
			else
			{
				for (uint32 i = 0; i < nselected; i++)
					if (!vector_is_null(from, selection[i]))
						copy_numeric(node, input, selection[i], from);
			}
			break;
		case VECTOR_FLOAT:
			for (uint32 i = 0; i < nselected; i++)
				node->floats[selection[i]] = from->floats[selection[i]];
			break;
		case VECTOR_BYTES:
			for (uint32 i = 0; i < nselected; i++)
				if (!vector_is_null(from, selection[i]))
					node->starts[selection[i]] = vector_bytes(from, selection[i],
															  &node->lengths[selection[i]]);
			break;
		default:
			for (uint32 i = 0; i < nselected; i++)
			{
				MemoryContext caller = MemoryContextSwitchTo(vector_node_memory(node, input));
				bool isnull;

				node->datums[selection[i]] = vector_datum(from, selection[i], &isnull);
				MemoryContextSwitchTo(caller);
			}
			break;
	}
}

void
vector_value_copy(VectorExpression *node, VectorInput *input, const uint16 *selection,
				  uint32 nselected, const Vector *from)
{
	if (nselected == 0)
		return;
	copy_values(node, input, selection, nselected, from);
	if (from->nulls == NULL)
		return;
	for (uint32 i = 0; i < nselected; i++)
		if (vector_is_null(from, selection[i]))
			vector_value_set_null(node, selection[i]);
}
