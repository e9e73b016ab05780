/*
 * vector_value.c
 *		Results of a node that come row by row: datums of an ExprState, rows of other vectors.
 *
 * A numeric becomes a mantissa if it has the result's scale, or can be brought to it and is
 * shown with the one other number of digits that a result has room for ("padded"); else an
 * exception.  Which scale the result has says the caller, or the first value.
 */
#include "exec/expression/vector_expression_internal.h"

#include "utils/datum.h"
#include "utils/memutils.h"

#include "store/codec/float_codec.h"
#include "store/codec/numeric_codec.h"

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

/* The lowest bits of eight bytes, the first byte's first (little-endian, as format.c demands). */
static inline uint64
gather_bits(uint64 bytes)
{
	return (bytes * UINT64CONST(0x0102040810204080)) >> 56;
}

/* Sets the bits of the selected rows; with `from`, of those that have one there. */
static void
set_bits(uint64 *into, const uint64 *from, const uint16 *selection, uint32 nselected)
{
	uint64 marks[BLOCK_ROWS / 8] = {0};
	uint8 *marked = (uint8 *) marks;

	for (uint32 i = 0; i < nselected; i++)
		marked[selection[i]] = 1;
	for (uint32 word = 0; word < BLOCK_WORDS; word++)
	{
		uint64 bits = 0;

		for (uint32 i = 0; i < 8; i++)
			bits |= gather_bits(marks[8 * word + i]) << (8 * i);
		into[word] |= from != NULL ? bits & from[word] : bits;
	}
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

/* ---- scales ------------------------------------------------------------------------------------- */

/* Makes room for rows that are shown with so many digits; false if others are with another number. */
static bool
begin_padded(VectorExpression *node, int32 scale)
{
	Vector *result = &node->result;

	if (result->padded != NULL)
		return result->padded_scale == scale;
	if (scale < 0 || scale >= result->scale || result->scale - scale >= VECTOR_POWERS_OF_TEN)
		return false;
	result->padded = vector_node_clear_padded(node);
	result->padded_scale = scale;
	return true;
}

/* The selected rows times a factor, from one array to another or the same; false if one does not fit. */
static bool
multiply_rows(const int64 *from, int64 factor, int64 *into, const uint16 *selection,
			  uint32 nselected)
{
	bool overflows = false;

	for (uint32 i = 0; i < nselected; i++)
	{
		int64 product;

		overflows |= __builtin_mul_overflow(from[selection[i]], factor, &product);
	}
	if (overflows)
		return false;
	for (uint32 i = 0; i < nselected; i++)
		into[selection[i]] = from[selection[i]] * factor;
	return true;
}

void
vector_value_raise_scale(VectorExpression *node, const uint16 *selection, uint32 nselected,
						 int32 scale)
{
	Vector *result = &node->result;
	int32 old_scale = result->scale;

	/* what is NULL or an exception may have any mantissa */
	if (old_scale < 0 || scale - old_scale <= 0 || scale - old_scale >= VECTOR_POWERS_OF_TEN ||
		result->padded != NULL ||
		!multiply_rows(node->ints, numeric_powers_of_ten[scale - old_scale], node->ints, selection,
					   nselected))
		return;
	result->scale = scale;
	if (begin_padded(node, old_scale))
		set_bits(node->padded, NULL, selection, nselected);
}

/* Holds a mantissa of some scale; false if it is no matter of the result's. */
static bool
store_mantissa(VectorExpression *node, uint32 row, int128 mantissa, int32 scale)
{
	Vector *result = &node->result;
	int64 value = (int64) mantissa;

	if (mantissa != value)
		return false;
	if (result->scale < 0)
		result->scale = scale;
	if (result->scale != scale)
	{
		if (!begin_padded(node, scale) ||
			__builtin_mul_overflow(value, numeric_powers_of_ten[result->scale - scale], &value))
			return false;
		vector_set_bit(node->padded, row);
	}
	node->ints[row] = value;
	return true;
}

static void
store_numeric(VectorExpression *node, VectorInput *input, uint32 row, const char *bytes,
			  uint32 length, bool copy)
{
	int128 mantissa;
	int32 scale;

	if (!numeric_to_scaled(bytes, length, &mantissa, &scale) ||
		!store_mantissa(node, row, mantissa, scale))
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

/* A mantissa that the result has no room for. */
static void
set_misfit(VectorExpression *node, VectorInput *input, uint32 row, int128 mantissa, int32 scale)
{
	MemoryContext caller = MemoryContextSwitchTo(vector_node_memory(node, input));
	struct varlena *made = (struct varlena *) DatumGetPointer(numeric_from_scaled(mantissa, scale));

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
		int32 scale;
		int128 mantissa = vector_shown(from, row, &scale);

		if (!store_mantissa(node, row, mantissa, scale))
			set_misfit(node, input, row, mantissa, scale);
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
		if (vector_bit(node->result.padded, first))
			set_bits(node->padded, NULL, selection, nselected);
	}
}

/* Mantissas that the result has room for as they are, or times a power of ten; false if not. */
static bool
copy_mantissas(VectorExpression *node, const uint16 *selection, uint32 nselected,
			   const Vector *from)
{
	int32 scale = node->result.scale;

	if (from->form != VECTOR_INT || from->exceptions != NULL)
		return false;
	if (from->scale == scale)
	{
		if (from->padded != NULL && !begin_padded(node, from->padded_scale))
			return false;
		for (uint32 i = 0; i < nselected; i++)
			node->ints[selection[i]] = from->ints[selection[i]];
		if (from->padded != NULL)
			set_bits(node->padded, from->padded, selection, nselected);
		return true;
	}
	if (from->padded != NULL || from->scale < 0 || !begin_padded(node, from->scale) ||
		!multiply_rows(from->ints, numeric_powers_of_ten[scale - from->scale], node->ints,
					   selection, nselected))
		return false;
	set_bits(node->padded, NULL, selection, nselected);
	return true;
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
			else if (!copy_mantissas(node, selection, nselected, from))
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

static bool
are_all_null(const Vector *vector)
{
	for (uint32 word = 0; word < BLOCK_WORDS; word++)
		if (vector->nulls[word] != ~UINT64CONST(0))
			return false;
	return true;
}

void
vector_value_copy(VectorExpression *node, VectorInput *input, const uint16 *selection,
				  uint32 nselected, const Vector *from)
{
	if (nselected == 0)
		return;
	if (from->nulls == NULL || !are_all_null(from))
		copy_values(node, input, selection, nselected, from);
	if (from->nulls == NULL)
		return;
	node->result.nulls = node->nulls;
	set_bits(node->nulls, from->nulls, selection, nselected);
	/* whoever looks finds nothing */
	for (uint32 i = 0; node->result.form == VECTOR_BYTES && i < nselected; i++)
		if (vector_is_null(from, selection[i]))
			node->lengths[selection[i]] = 0;
}
