/*
 * vector_aggregate_text.c
 *		min and max of text, varchar and character(n).
 *
 * A group holds a copy of its extreme.  Of equal values that are not the same (under a
 * nondeterministic collation, or character(n) with more or fewer blanks at the end) core's
 * functions keep the later one of texts and the earlier one of character(n), and so does this.
 */
#include "compat.h"

#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/pg_locale.h"
#include "utils/varlena.h"

#include "exec/states/vector_aggregate_internal.h"

/* Flags for the pairs of a group and a dictionary entry: more are compared row by row. */
#define SEEN_MAX 65536

typedef struct TextState
{
	char *bytes; /* NULL: no value yet */
	uint32 length;
	uint32 capacity;
} TextState;

typedef struct TextExtreme
{
	VectorAggregate base;
	bool bytewise; /* the collation is C */
	bool can_skip; /* a value that came before changes nothing */
	bool *seen;	   /* SEEN_MAX flags, all false between batches; or NULL */
	TextState *texts;
} TextExtreme;

static void
create_texts(VectorAggregate *aggregate)
{
	TextExtreme *extreme = (TextExtreme *) aggregate;
	Oid collation = aggregate->aggref->inputcollid;

	extreme->bytewise = OidIsValid(collation) && compat_collation_is_c(collation);
	/* of character(n) the first of equals stays; of texts the last, which may be another */
	extreme->can_skip = (aggregate->variant & EXTREME_BLANKS) != 0 || !OidIsValid(collation) ||
						get_collation_isdeterministic(collation);
}

static void
grow_texts(VectorAggregate *aggregate, uint32 old_capacity)
{
	TextExtreme *extreme = (TextExtreme *) aggregate;

	extreme->texts = aggregate_grow_array(aggregate, extreme->texts, old_capacity,
										  sizeof(TextState));
}

/* Does the state stay when this value comes?  As text_larger(), bpchar_larger() and so on. */
static bool
keeps_text(const TextExtreme *extreme, const TextState *state, const char *bytes, uint32 length)
{
	bool max = (extreme->base.variant & EXTREME_MAX) != 0;
	uint32 state_length = state->length;
	int order;

	if (extreme->base.variant & EXTREME_BLANKS)
	{
		state_length = bpchartruelen(state->bytes, (int) state_length);
		length = bpchartruelen((char *) bytes, (int) length);
	}
	if (extreme->bytewise)
	{
		order = memcmp(state->bytes, bytes, Min(state_length, length));
		if (order == 0)
			order = (state_length > length) - (state_length < length);
	}
	else
		order = varstr_cmp(state->bytes, (int) state_length, bytes, (int) length,
						   extreme->base.aggref->inputcollid);
	if (order == 0)
		return (extreme->base.variant & EXTREME_BLANKS) != 0;
	return max == (order > 0);
}

static void
keep_text(TextExtreme *extreme, TextState *state, const char *bytes, uint32 length)
{
	if (length > state->capacity || state->bytes == NULL)
	{
		/* at least doubled, so that growing values do not cost their square */
		Size capacity = Max((Size) length, Min((Size) state->capacity * 2, MaxAllocSize));

		if (state->bytes != NULL)
			pfree(state->bytes);
		state->bytes = NULL;
		state->bytes = MemoryContextAlloc(extreme->base.states, Max(capacity, 16));
		state->capacity = (uint32) Max(capacity, 16);
	}
	memcpy(state->bytes, bytes, length);
	state->length = length;
}

static inline void
add_text(TextExtreme *extreme, TextState *state, const char *bytes, uint32 length)
{
	if (state->bytes == NULL || !keeps_text(extreme, state, bytes, length))
		keep_text(extreme, state, bytes, length);
}

/* Every dictionary entry needs to be compared once only for a group of the batch. */
static void
add_codes(TextExtreme *extreme, const Vector *vector, const VectorRows *rows)
{
	const Dictionary *dictionary = vector->dictionary;
	uint32 nentries = dictionary->nentries;
	bool *seen;

	if (extreme->seen == NULL)
		extreme->seen = MemoryContextAllocZero(extreme->base.states, SEEN_MAX);
	seen = extreme->seen;
	for (uint32 i = 0; i < rows->nselected; i++)
	{
		uint32 code = vector->codes[rows->selection[i]];
		uint32 group = rows_group(rows, i);

		if (seen[group * nentries + code])
			continue;
		seen[group * nentries + code] = true;
		add_text(extreme, &extreme->texts[group], dictionary->starts[code],
				 dictionary->lengths[code]);
	}
	for (uint32 i = 0; i < rows->nselected; i++)
		seen[rows_group(rows, i) * nentries + vector->codes[rows->selection[i]]] = false;
}

/* Texts that expressions made: they may be compressed or out of line. */
static void
add_text_datums(TextExtreme *extreme, const Vector *vector, const VectorRows *rows)
{
	for (uint32 i = 0; i < rows->nselected; i++)
	{
		struct varlena *datum = (struct varlena *) DatumGetPointer(
			vector->datums[rows->selection[i]]);
		struct varlena *value = pg_detoast_datum_packed(datum);

		add_text(extreme, &extreme->texts[rows_group(rows, i)], VARDATA_ANY(value),
				 VARSIZE_ANY_EXHDR(value));
		if (value != datum)
			pfree(value);
	}
}

static bool
can_mark_codes(const TextExtreme *extreme, const Vector *vector, const VectorRows *rows)
{
	uint64 npairs = (uint64) vector->dictionary->nentries;

	if (rows->groups != NULL)
		npairs *= rows->ngroups;
	return extreme->can_skip && npairs <= SEEN_MAX;
}

static void
advance_texts(VectorAggregate *aggregate, Vector *const *arguments, VectorRows *rows)
{
	TextExtreme *extreme = (TextExtreme *) aggregate;
	const Vector *vector = arguments[0];
	RowsBuffer present;

	rows = rows_without(rows, vector->nulls, &present);
	if (vector->form == VECTOR_DATUM)
		add_text_datums(extreme, vector, rows);
	else if (vector->form == VECTOR_CODES && can_mark_codes(extreme, vector, rows))
		add_codes(extreme, vector, rows);
	else
	{
		for (uint32 i = 0; i < rows->nselected; i++)
		{
			uint32 length;
			const char *bytes = vector_bytes(vector, rows->selection[i], &length);

			add_text(extreme, &extreme->texts[rows_group(rows, i)], bytes, length);
		}
	}
}

static Datum
get_text(VectorAggregate *aggregate, uint32 group, bool *isnull)
{
	const TextState *state = &((TextExtreme *) aggregate)->texts[group];

	*isnull = state->bytes == NULL;
	if (*isnull)
		return (Datum) 0;
	return PointerGetDatum(cstring_to_text_with_len(state->bytes, (int) state->length));
}

static void
reset_texts(VectorAggregate *aggregate)
{
	TextExtreme *extreme = (TextExtreme *) aggregate;

	extreme->texts = NULL;
	extreme->seen = NULL;
}

const AggregateKernel text_extreme_kernel = {sizeof(TextExtreme), create_texts, grow_texts,
											 advance_texts,		  get_text,		reset_texts};
