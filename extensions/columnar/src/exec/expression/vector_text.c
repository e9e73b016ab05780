/*
 * vector_text.c
 *		substring(), left(), length() and the like, starts_with(), of text and character(n).
 *
 * Results point into the bytes of their argument.  Characters are counted in UTF8 and in
 * encodings of one byte; in others all but lengths in bytes is left to the ExprState.
 */
#include "exec/expression/vector_expression_internal.h"

#include "mb/pg_wchar.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

typedef struct TextNode
{
	bool is_multibyte; /* UTF8; else a character is a byte */
	bool is_trimmed;   /* of a character(n), without trailing blanks */
} TextNode;

#define ONES UINT64CONST(0x0101010101010101)

/* ---- characters --------------------------------------------------------------------------------- */

/* Where the character after this one begins. */
static inline const char *
skip_character(const char *at, const char *end)
{
	at++;
	while (at < end && (*at & 0xC0) == 0x80)
		at++;
	return at;
}

/* The place after so many characters, or the end. */
static inline const char *
skip_characters(const char *at, const char *end, int64 count, bool is_multibyte)
{
	if (!is_multibyte)
		return at + Min(count, end - at);
	for (; count > 0 && at < end; count--)
		at = skip_character(at, end);
	return at;
}

/* How many of eight bytes continue a character (10xxxxxx). */
static inline int64
count_continuations(uint64 eight)
{
	return (int64) ((eight >> 7 & ~(eight >> 6) & ONES) * ONES >> 56);
}

static inline int64
count_characters(const char *bytes, uint32 length, bool is_multibyte)
{
	int64 count = length;
	uint64 eight;

	if (!is_multibyte)
		return length;
	for (; length >= sizeof(eight); length -= sizeof(eight), bytes += sizeof(eight))
	{
		memcpy(&eight, bytes, sizeof(eight));
		count -= count_continuations(eight);
	}
	eight = 0;
	memcpy(&eight, bytes, length);
	return count - count_continuations(eight);
}

/* ---- substring ---------------------------------------------------------------------------------- */

/* Characters [first, behind) of the row's text, counted from 1. */
static inline void
take_characters(VectorExpression *node, uint32 row, const char *bytes, uint32 length, int64 first,
				int64 behind)
{
	const TextNode *text = node->details;
	const char *end = bytes + length;
	const char *start;

	first = Max(first, 1);
	if (behind <= first)
	{
		node->starts[row] = "";
		node->lengths[row] = 0;
		return;
	}
	start = skip_characters(bytes, end, first - 1, text->is_multibyte);
	node->starts[row] = start;
	node->lengths[row] = skip_characters(start, end, behind - first, text->is_multibyte) - start;
}

/* substring(text, start [, length]) */
static void
evaluate_substring(VectorExpression *node, VectorInput *input)
{
	const Vector *texts = vector_node_values(node->args[0], input);
	const Vector *starts = vector_node_values(node->args[1], input);
	const Vector *lengths = node->nargs > 2 ? vector_node_values(node->args[2], input) : NULL;

	vector_node_begin(node, VECTOR_BYTES);
	vector_node_merge_nulls(node, texts, starts);
	if (lengths != NULL)
		vector_node_merge_nulls(node, &(const Vector){.nulls = node->result.nulls}, lengths);
	node->partial = true;
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		uint32 length;
		const char *bytes;
		int64 behind = PG_INT64_MAX;

		if (vector_bit(node->result.nulls, row))
			continue;
		if (lengths != NULL && lengths->ints[row] < 0)
		{
			vector_leaf_evaluate_scalar(node, input);
			return;
		}
		/* a sum that passes 32 bits means the rest */
		if (lengths != NULL && starts->ints[row] + lengths->ints[row] <= PG_INT32_MAX)
			behind = starts->ints[row] + lengths->ints[row];
		bytes = vector_bytes(texts, row, &length);
		take_characters(node, row, bytes, length, starts->ints[row], behind);
	}
}

/* left(text, n): of a negative n, all but so many of the last. */
static void
evaluate_left(VectorExpression *node, VectorInput *input)
{
	const TextNode *text = node->details;
	const Vector *texts = vector_node_values(node->args[0], input);
	const Vector *counts = vector_node_values(node->args[1], input);

	vector_node_begin(node, VECTOR_BYTES);
	vector_node_merge_nulls(node, texts, counts);
	node->partial = true;
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		int64 count = counts->ints[row];
		uint32 length;
		const char *bytes;

		if (vector_bit(node->result.nulls, row))
			continue;
		bytes = vector_bytes(texts, row, &length);
		if (count < 0)
			count += count_characters(bytes, length, text->is_multibyte);
		take_characters(node, row, bytes, length, 1, count + 1);
	}
}

/* character(n) as text. */
static void
evaluate_trimmed(VectorExpression *node, VectorInput *input)
{
	const Vector *texts = vector_node_values(node->args[0], input);

	vector_node_begin(node, VECTOR_BYTES);
	node->result.nulls = texts->nulls;
	node->partial = true;
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		uint32 length;

		if (vector_is_null(texts, row))
			continue;
		node->starts[row] = vector_bytes(texts, row, &length);
		node->lengths[row] = vector_trim(node->starts[row], length);
	}
}

/* ---- length ------------------------------------------------------------------------------------- */

static void
evaluate_length(VectorExpression *node, VectorInput *input)
{
	const TextNode *text = node->details;
	const Vector *texts = vector_node_values(node->args[0], input);

	vector_node_begin(node, VECTOR_INT);
	node->result.nulls = texts->nulls;
	node->partial = true;
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		uint32 length;
		const char *bytes;

		if (vector_is_null(texts, row))
			continue;
		bytes = vector_bytes(texts, row, &length);
		if (text->is_trimmed)
			length = vector_trim(bytes, length);
		node->ints[row] = count_characters(bytes, length, text->is_multibyte);
	}
}

static void
evaluate_octets(VectorExpression *node, VectorInput *input)
{
	const Vector *texts = vector_node_values(node->args[0], input);

	vector_node_begin(node, VECTOR_INT);
	node->result.nulls = texts->nulls;
	node->partial = true;
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		uint32 length = 0;

		if (!vector_is_null(texts, row))
			vector_bytes(texts, row, &length);
		node->ints[row] = length;
	}
}

/* ---- starts_with -------------------------------------------------------------------------------- */

static void
decide_prefix(VectorExpression *node, VectorInput *input, uint8 *truth)
{
	const Vector *texts = vector_node_values(node->args[0], input);
	const Vector *prefixes = vector_node_values(node->args[1], input);

	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		uint32 text_length;
		uint32 prefix_length;
		const char *text;
		const char *prefix;

		truth[row] = TRUTH_NULL;
		if (vector_is_null(texts, row) || vector_is_null(prefixes, row))
			continue;
		text = vector_bytes(texts, row, &text_length);
		prefix = vector_bytes(prefixes, row, &prefix_length);
		truth[row] = prefix_length <= text_length && memcmp(text, prefix, prefix_length) == 0
						 ? TRUTH_TRUE
						 : TRUTH_FALSE;
	}
	node->partial = true;
}

/* ---- compiling ---------------------------------------------------------------------------------- */

typedef struct TextFunction
{
	Oid function;
	void (*evaluate)(VectorExpression *node, VectorInput *input); /* NULL: a condition */
	bool counts_characters;
	bool is_trimmed;
	bool can_fail;
} TextFunction;

static const TextFunction functions[] = {
	{F_SUBSTRING_TEXT_INT4_INT4, evaluate_substring, true, false, true},
	{F_SUBSTRING_TEXT_INT4, evaluate_substring, true, false, false},
	{F_SUBSTR_TEXT_INT4_INT4, evaluate_substring, true, false, true},
	{F_SUBSTR_TEXT_INT4, evaluate_substring, true, false, false},
	{F_LEFT, evaluate_left, true, false, false},
	{F_TEXT_BPCHAR, evaluate_trimmed, false, true, false},
	{F_TEXTLEN, evaluate_length, true, false, false},
	{F_LENGTH_TEXT, evaluate_length, true, false, false},
	{F_CHAR_LENGTH_TEXT, evaluate_length, true, false, false},
	{F_CHARACTER_LENGTH_TEXT, evaluate_length, true, false, false},
	{F_LENGTH_BPCHAR, evaluate_length, true, true, false},
	{F_CHAR_LENGTH_BPCHAR, evaluate_length, true, true, false},
	{F_CHARACTER_LENGTH_BPCHAR, evaluate_length, true, true, false},
	{F_OCTET_LENGTH_TEXT, evaluate_octets, false, false, false},
	{F_OCTET_LENGTH_BPCHAR, evaluate_octets, false, false, false},
	{F_OCTET_LENGTH_BYTEA, evaluate_octets, false, false, false},
	{F_LENGTH_BYTEA, evaluate_octets, false, false, false},
	{F_STARTS_WITH, NULL, false, false, false}};

VectorExpression *
vector_text_compile(Expr *expression, VectorScope *scope)
{
	const TextFunction *function = NULL;
	VectorExpression *node;
	TextNode *text;
	VectorCall call;

	if (!vector_call_match(expression, &call))
		return NULL;
	for (int i = 0; i < lengthof(functions) && function == NULL; i++)
		if (functions[i].function == call.function)
			function = &functions[i];
	if (function == NULL)
		return NULL;
	if (function->counts_characters && pg_database_encoding_max_length() > 1 &&
		GetDatabaseEncoding() != PG_UTF8)
		return NULL;
	if (function->evaluate == NULL &&
		(!OidIsValid(call.collation) || !get_collation_isdeterministic(call.collation)))
		return NULL;

	node = vector_node_create(expression, scope, call.arguments);
	text = palloc(sizeof(TextNode));
	text->is_multibyte = pg_database_encoding_max_length() > 1;
	text->is_trimmed = function->is_trimmed;
	node->details = text;
	node->evaluate = function->evaluate;
	if (function->evaluate == NULL)
		node->decide = decide_prefix;
	node->can_fail = node->can_fail || function->can_fail;
	node->is_shareable = true;
	return node;
}
