/*
 * vector_code.c
 *		Expressions of one dictionary-coded column: evaluated once per code and row group.
 *
 * A batch names the codes that it needs and that are not known yet; the expression is
 * evaluated for these entries of the dictionary as if they were a batch, and then looked
 * up for the rows.  It is compiled a second time for this, into nodes of their own, as the
 * first ones may hold values of the same batch.  NULL counts as one more code.
 *
 * What is known is forgotten with the dictionary.
 */
#include "exec/expression/vector_expression_internal.h"

#include "utils/datum.h"
#include "utils/memutils.h"

#include "store/codec/numeric_codec.h"

/* Which dictionary it was. */
typedef struct CodeKey
{
	uint64 serial; /* 0: none */
	uint32 nentries;
} CodeKey;

struct VectorCodes
{
	VectorScope scope;
	VectorExpression *twin; /* the expression over entries */
	Vector entries;
	uint64 number;	   /* of batches of entries */
	VectorBatch batch; /* of entries: their number alone */
	uint16 selection[BLOCK_ROWS];
	uint64 entry_nulls[BLOCK_WORDS];
	const char *entry_starts[BLOCK_ROWS];
	uint32 entry_lengths[BLOCK_ROWS];
	uint32 todo[BLOCK_ROWS]; /* their codes */

	MemoryContext memory; /* of a dictionary: all below */
	CodeKey key;
	const Dictionary *dictionary; /* of the batch */
	uint8 *decided;				  /* by code: is truth[] known? */
	uint32 ndecided;			  /* of the entries, NULL not counted */
	uint8 *truth;
	uint8 *evaluated;  /* by code: is the value known? */
	uint32 nevaluated; /* the same */
	uint8 *is_null;
	uint8 *is_exception;
	uint8 *is_padded;
	bool has_nulls;
	bool has_exceptions;
	int32 scale;
	int32 padded_scale; /* -1: no value is padded */
	int64 *ints;
	double *floats;
	const char **starts;
	uint32 *lengths;
	Datum *datums;
};

/* The node's column; false if it is not coded in this batch. */
static bool
find_column(VectorExpression *node, VectorInput *input, Vector *column)
{
	vector_leaf_column(input, node->coded, column);
	return column->form == VECTOR_CODES && column->exceptions == NULL;
}

static void
create_codes(VectorExpression *node)
{
	MemoryContext caller = MemoryContextSwitchTo(node->scope->context);
	VectorCodes *codes = palloc0(sizeof(VectorCodes));

	node->codes = codes;
	codes->memory = AllocSetContextCreate(CurrentMemoryContext, "columnar values by code",
										  ALLOCSET_DEFAULT_SIZES);
	codes->scope = *node->scope;
	codes->scope.shared = palloc0(sizeof(VectorShared));
	codes->scope.shared->entries = &codes->entries;
	codes->entries.form = VECTOR_BYTES;
	codes->entries.scale = -1;
	codes->entries.starts = codes->entry_starts;
	codes->entries.lengths = codes->entry_lengths;
	codes->twin = vector_node_compile(node->expression, &codes->scope);
	for (int i = 0; i < BLOCK_ROWS; i++)
		codes->selection[i] = i;
	MemoryContextSwitchTo(caller);
}

void
vector_code_forget(VectorExpression *node)
{
	if (node->codes == NULL)
		return;
	node->codes->key.serial = 0;
	vector_expression_reset(node->codes->twin);
}

/* Forgets what is known if the dictionary is another one. */
static VectorCodes *
prepare_codes(VectorExpression *node, const Vector *column)
{
	CodeKey key = {.serial = column->dictionary->serial, .nentries = column->dictionary->nentries};
	VectorCodes *codes;

	if (node->codes == NULL)
		create_codes(node);
	codes = node->codes;
	codes->dictionary = column->dictionary;
	if (codes->key.serial == key.serial && codes->key.nentries == key.nentries)
		return codes;

	codes->key = key;
	MemoryContextReset(codes->memory);
	codes->decided = codes->evaluated = NULL;
	codes->ndecided = codes->nevaluated = 0;
	return codes;
}

static void *
make_array(VectorCodes *codes, Size element)
{
	return MemoryContextAllocExtended(codes->memory, element * ((Size) codes->key.nentries + 1),
									  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
}

/* May codes of the block be unknown? */
static bool
has_unknown_codes(const VectorCodes *codes, const Vector *column, const uint8 *known, uint32 nknown)
{
	return nknown < codes->key.nentries || (column->nulls != NULL && !known[codes->key.nentries]);
}

/*
 * Lists the codes of selected rows that are not known, and counts the entries of the
 * dictionary among them.  At first, all entries of a small dictionary, if none can fail.
 */
static uint32
collect_codes(VectorExpression *node, VectorInput *input, const Vector *column, uint8 *known,
			  uint32 *nknown)
{
	VectorCodes *codes = node->codes;
	uint32 nentries = codes->key.nentries;
	uint32 ntodo = 0;

	if (*nknown == 0 && !node->can_fail && nentries < BLOCK_ROWS)
	{
		for (uint32 code = 0; code < nentries; code++)
		{
			known[code] = 1;
			codes->todo[ntodo++] = code;
		}
		*nknown = nentries;
		if (column->nulls != NULL && !known[nentries])
		{
			known[nentries] = 1;
			codes->todo[ntodo++] = nentries;
		}
		return ntodo;
	}

	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		uint32 code = vector_is_null(column, row) ? nentries : column->codes[row];

		if (known[code])
			continue;
		known[code] = 1;
		codes->todo[ntodo++] = code;
		*nknown += code < nentries;
	}
	return ntodo;
}

/* The input of the codes to do. */
static VectorInput
make_input(VectorCodes *codes, uint32 ntodo)
{
	const Dictionary *dictionary = codes->dictionary;
	VectorInput input = {.batch = &codes->batch,
						 .selection = codes->selection,
						 .nselected = ntodo,
						 .number = ++codes->number};

	codes->batch.nrows = ntodo;
	codes->entries.nulls = NULL;
	for (uint32 i = 0; i < ntodo; i++)
	{
		if (codes->todo[i] < codes->key.nentries)
		{
			codes->entry_starts[i] = dictionary->starts[codes->todo[i]];
			codes->entry_lengths[i] = dictionary->lengths[codes->todo[i]];
			continue;
		}
		codes->entry_starts[i] = "";
		codes->entry_lengths[i] = 0;
		memset(codes->entry_nulls, 0, sizeof(codes->entry_nulls));
		vector_set_bit(codes->entry_nulls, i);
		codes->entries.nulls = codes->entry_nulls;
	}
	return input;
}

/* Takes back that the codes are known: their evaluation failed, and the error may have been caught. */
static void
forget_codes(VectorCodes *codes)
{
	codes->key.serial = 0;
}

/* ---- conditions --------------------------------------------------------------------------------- */

static void
decide_codes(VectorCodes *codes, uint32 ntodo)
{
	VectorInput input = make_input(codes, ntodo);
	CodeKey key = codes->key;
	const uint8 *truth;

	forget_codes(codes);
	truth = vector_node_truth(codes->twin, &input);
	codes->key = key;
	for (uint32 i = 0; i < ntodo; i++)
		codes->truth[codes->todo[i]] = truth[i];
}

bool
vector_code_decide(VectorExpression *node, VectorInput *input, uint8 *truth)
{
	Vector column;
	VectorCodes *codes;

	if (!find_column(node, input, &column))
		return false;
	codes = prepare_codes(node, &column);
	if (codes->decided == NULL)
	{
		codes->decided = make_array(codes, sizeof(uint8));
		codes->truth = make_array(codes, sizeof(uint8));
	}
	if (has_unknown_codes(codes, &column, codes->decided, codes->ndecided))
	{
		uint32 ntodo = collect_codes(node, input, &column, codes->decided, &codes->ndecided);

		if (ntodo > 0)
			decide_codes(codes, ntodo);
	}

	if (vector_input_is_sparse(input))
	{
		for (uint32 i = 0; i < input->nselected; i++)
			truth[input->selection[i]] = codes->truth[column.codes[input->selection[i]]];
		node->partial = true;
	}
	else
	{
		uint32 nrows = input->batch->nrows;

		for (uint32 i = 0; i < nrows; i++)
			truth[i] = codes->truth[column.codes[i]];
		node->partial = codes->ndecided < codes->key.nentries;
	}
	if (column.nulls == NULL)
		return true;
	for (uint32 i = 0; i < input->nselected; i++)
		if (vector_is_null(&column, input->selection[i]))
			truth[input->selection[i]] = codes->truth[codes->key.nentries];
	node->partial = true;
	return true;
}

/* ---- values ------------------------------------------------------------------------------------- */

static void
make_arrays(VectorExpression *node, VectorCodes *codes)
{
	codes->evaluated = make_array(codes, sizeof(uint8));
	codes->is_null = make_array(codes, sizeof(uint8));
	codes->is_exception = NULL;
	codes->ints = NULL;
	codes->floats = NULL;
	codes->starts = NULL;
	codes->datums = NULL;
	codes->has_nulls = codes->has_exceptions = false;
	codes->scale = -1;
	codes->padded_scale = -1;
	if (node->holds_datums)
		codes->datums = make_array(codes, sizeof(Datum));
	else if (node->type.form == FORM_INT || node->type.form == FORM_NUMERIC)
		codes->ints = make_array(codes, sizeof(int64));
	else if (node->type.form == FORM_FLOAT)
		codes->floats = make_array(codes, sizeof(double));
	if (!node->holds_datums && node->type.form != FORM_INT && node->type.form != FORM_FLOAT)
	{
		codes->starts = make_array(codes, sizeof(char *));
		codes->lengths = make_array(codes, sizeof(uint32));
		codes->is_exception = make_array(codes, sizeof(uint8));
		codes->is_padded = make_array(codes, sizeof(uint8));
	}
}

static void
keep_bytes(VectorCodes *codes, uint32 code, const char *bytes, uint32 length)
{
	char *copy = MemoryContextAllocExtended(codes->memory, Max((Size) length, 1), MCXT_ALLOC_HUGE);

	memcpy(copy, bytes, length);
	codes->starts[code] = copy;
	codes->lengths[code] = length;
}

static void
keep_numeric(VectorCodes *codes, uint32 code, const Vector *from, uint32 row)
{
	bool isnull;
	struct varlena *datum;

	if (from->form == VECTOR_INT && !vector_bit(from->exceptions, row))
	{
		bool is_padded = vector_bit(from->padded, row);

		if (codes->scale < 0)
			codes->scale = from->scale;
		if (is_padded && codes->padded_scale < 0 && codes->scale == from->scale)
			codes->padded_scale = from->padded_scale;
		if (codes->scale == from->scale &&
			(!is_padded || codes->padded_scale == from->padded_scale))
		{
			codes->ints[code] = from->ints[row];
			codes->is_padded[code] = is_padded;
			return;
		}
	}
	datum = (struct varlena *) DatumGetPointer(vector_datum(from, row, &isnull));
	keep_bytes(codes, code, VARDATA_ANY(datum), VARSIZE_ANY_EXHDR(datum));
	pfree(datum);
	codes->is_exception[code] = 1;
	codes->has_exceptions = true;
}

static void
keep_value(VectorExpression *node, VectorCodes *codes, uint32 code, const Vector *from, uint32 row)
{
	MemoryContext caller;
	const char *bytes;
	uint32 length;
	bool isnull;

	if (vector_is_null(from, row))
	{
		codes->is_null[code] = 1;
		codes->has_nulls = true;
	}
	else if (codes->datums != NULL)
	{
		caller = MemoryContextSwitchTo(codes->memory);
		codes->datums[code] = datumCopy(vector_datum(from, row, &isnull), node->type.byval,
										node->type.length);
		MemoryContextSwitchTo(caller);
	}
	else if (node->type.form == FORM_NUMERIC)
		keep_numeric(codes, code, from, row);
	else if (codes->ints != NULL)
		codes->ints[code] = from->ints[row];
	else if (codes->floats != NULL)
		codes->floats[code] = from->floats[row];
	else
	{
		bytes = vector_bytes(from, row, &length);
		keep_bytes(codes, code, bytes, length);
	}
}

static void
evaluate_codes(VectorExpression *node, VectorCodes *codes, uint32 ntodo)
{
	VectorInput input = make_input(codes, ntodo);
	CodeKey key = codes->key;
	const Vector *values;

	forget_codes(codes);
	values = vector_node_values(codes->twin, &input);
	for (uint32 i = 0; i < ntodo; i++)
		keep_value(node, codes, codes->todo[i], values, i);
	codes->key = key;
}

static inline uint32
get_code(const VectorCodes *codes, const Vector *column, uint32 row)
{
	return vector_is_null(column, row) ? codes->key.nentries : column->codes[row];
}

/* Sets the bits of the selected rows whose code has a flag (1). */
static const uint64 *
look_up_bits(const VectorCodes *codes, const uint8 *flags, VectorInput *input, const Vector *column,
			 uint64 *bits)
{
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];

		bits[row >> 6] |= (uint64) flags[get_code(codes, column, row)] << (row & 63);
	}
	return bits;
}

static void
look_up_bytes(VectorExpression *node, const VectorCodes *codes, VectorInput *input,
			  const Vector *column)
{
	vector_node_use_bytes(node);
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		uint32 code = get_code(codes, column, row);

		if (codes->starts[code] == NULL)
			continue;
		node->starts[row] = codes->starts[code];
		node->lengths[row] = codes->lengths[code];
	}
	node->result.starts = node->starts;
	node->result.lengths = node->lengths;
}

static void
look_up_values(VectorExpression *node, const VectorCodes *codes, VectorInput *input,
			   const Vector *column)
{
	const uint16 *selection = input->selection;
	uint32 nselected = input->nselected;

	if (codes->datums != NULL)
	{
		vector_node_begin(node, VECTOR_DATUM);
		for (uint32 i = 0; i < nselected; i++)
			node->datums[selection[i]] = codes->datums[get_code(codes, column, selection[i])];
	}
	else if (codes->ints != NULL)
	{
		vector_node_begin(node, VECTOR_INT);
		for (uint32 i = 0; i < nselected; i++)
			node->ints[selection[i]] = codes->ints[column->codes[selection[i]]];
		/* NULL may have a value */
		for (uint32 i = 0; column->nulls != NULL && i < nselected; i++)
			node->ints[selection[i]] = codes->ints[get_code(codes, column, selection[i])];
		if (node->type.form == FORM_NUMERIC)
			node->result.scale = Max(codes->scale, 0);
	}
	else if (codes->floats != NULL)
	{
		vector_node_begin(node, VECTOR_FLOAT);
		for (uint32 i = 0; i < nselected; i++)
			node->floats[selection[i]] = codes->floats[get_code(codes, column, selection[i])];
	}
	else
		vector_node_begin(node, VECTOR_BYTES);
	if (codes->starts != NULL && (codes->ints == NULL || codes->has_exceptions))
		look_up_bytes(node, codes, input, column);
}

bool
vector_code_evaluate(VectorExpression *node, VectorInput *input)
{
	Vector column;
	VectorCodes *codes;

	if (!find_column(node, input, &column))
		return false;
	codes = prepare_codes(node, &column);
	if (codes->evaluated == NULL)
		make_arrays(node, codes);
	if (has_unknown_codes(codes, &column, codes->evaluated, codes->nevaluated))
	{
		uint32 ntodo = collect_codes(node, input, &column, codes->evaluated, &codes->nevaluated);

		if (ntodo > 0)
			evaluate_codes(node, codes, ntodo);
	}
	look_up_values(node, codes, input, &column);
	if (codes->has_nulls)
		node->result.nulls = look_up_bits(codes, codes->is_null, input, &column,
										  vector_node_clear_nulls(node));
	if (codes->has_exceptions)
		node->result.exceptions = look_up_bits(codes, codes->is_exception, input, &column,
											   vector_node_clear_exceptions(node));
	if (codes->padded_scale >= 0)
	{
		node->result.padded = look_up_bits(codes, codes->is_padded, input, &column,
										   vector_node_clear_padded(node));
		node->result.padded_scale = codes->padded_scale;
	}
	node->partial = true;
	return true;
}
