/*
 * vector_like.c
 *		LIKE and NOT LIKE with a pattern that does not depend on rows.
 *
 * A pattern is a list of pieces, which must occur one behind the other; the first one at
 * the start unless the pattern begins with %, the last one at the end unless it ends
 * with %.  Taking each piece where it first occurs is enough, as for the rest only more text
 * is left then.
 *
 * Pieces are bytes.  In UTF8 and in encodings of one byte any piece can be searched so, and _
 * stands for a character of known length.  In the other encodings of a server an ASCII byte is
 * always a character: patterns of ASCII without _ have a kernel.  All else, ILIKE and
 * nondeterministic collations are left to the ExprState.
 */
#include "exec/expression/vector_expression_internal.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "mb/pg_wchar.h"
#include "optimizer/optimizer.h"
#include "port/pg_bitutils.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

typedef struct LikePiece
{
	char *bytes;
	bool *any; /* this byte stands for _; NULL without any */
	uint32 length;
} LikePiece;

typedef struct LikePattern
{
	bool negated;
	bool is_bytea;
	bool known;
	MemoryContext memory; /* of all below */
	bool is_null;
	bool has_kernel;
	bool is_multibyte;
	bool from_start; /* the first piece stands at the start */
	bool to_end;	 /* the last one at the end */
	int npieces;
	LikePiece *pieces;
} LikePattern;

/* ---- patterns ----------------------------------------------------------------------------------- */

static void
add_byte(LikePattern *pattern, char byte, bool any, bool *in_piece, uint32 room)
{
	LikePiece *piece;

	if (!*in_piece)
	{
		piece = &pattern->pieces[pattern->npieces++];
		piece->bytes = palloc(room);
		piece->any = NULL;
		piece->length = 0;
		*in_piece = true;
	}
	piece = &pattern->pieces[pattern->npieces - 1];
	if (any && piece->any == NULL)
		piece->any = palloc0(sizeof(bool) * room);
	if (any)
		piece->any[piece->length] = true;
	piece->bytes[piece->length++] = byte;
}

/* Takes a pattern apart; false if it ends with an escape or has what the encoding makes hard. */
static bool
parse_pattern(LikePattern *pattern, const char *bytes, uint32 length)
{
	bool is_hard = !pattern->is_bytea && pg_database_encoding_max_length() > 1 &&
				   GetDatabaseEncoding() != PG_UTF8;
	bool in_piece = false;

	pattern->is_multibyte = !pattern->is_bytea && GetDatabaseEncoding() == PG_UTF8;
	pattern->from_start = length == 0 || bytes[0] != '%';
	pattern->to_end = true;
	pattern->npieces = 0;
	pattern->pieces = palloc(sizeof(LikePiece) * (length / 2 + 1));
	for (uint32 i = 0; i < length; i++)
	{
		char byte = bytes[i];
		bool any = byte == '_';

		if (byte == '%')
		{
			in_piece = false;
			pattern->to_end = false;
			continue;
		}
		if (byte == '\\')
		{
			if (++i == length)
				return false;
			byte = bytes[i];
			any = false;
		}
		if (is_hard && (any || IS_HIGHBIT_SET(byte)))
			return false;
		add_byte(pattern, byte, any, &in_piece, length);
		pattern->to_end = true;
	}
	return true;
}

static void
prepare_pattern(VectorExpression *node, VectorInput *input)
{
	LikePattern *pattern = node->details;
	const Vector *values;
	MemoryContext caller;

	if (pattern->known)
		return;
	values = vector_node_values(node->args[1], input);
	MemoryContextReset(pattern->memory);
	caller = MemoryContextSwitchTo(pattern->memory);
	pattern->is_null = vector_is_null(values, 0);
	pattern->has_kernel = pattern->is_null ||
						  parse_pattern(pattern, values->starts[0], values->lengths[0]);
	MemoryContextSwitchTo(caller);
	pattern->known = true;
}

static void
reset_pattern(VectorExpression *node)
{
	((LikePattern *) node->details)->known = false;
}

/* ---- matching ----------------------------------------------------------------------------------- */

static inline const char *
skip_character(const LikePattern *pattern, const char *at, const char *end)
{
	at++;
	while (pattern->is_multibyte && at < end && (*at & 0xC0) == 0x80)
		at++;
	return at;
}

/* The end of the piece, if the text has it at this place; else NULL. */
static inline const char *
match_piece(const LikePattern *pattern, const LikePiece *piece, const char *at, const char *end)
{
	if (piece->any == NULL)
	{
		if (end - at < piece->length || memcmp(at, piece->bytes, piece->length) != 0)
			return NULL;
		return at + piece->length;
	}
	for (uint32 i = 0; i < piece->length; i++)
	{
		if (at >= end)
			return NULL;
		if (piece->any[i])
			at = skip_character(pattern, at, end);
		else if (*at++ != piece->bytes[i])
			return NULL;
	}
	return at;
}

#ifdef __SSE2__
/*
 * Of `room` (1 .. 16) places from `at` on: those at which bytes stand that are `first` and,
 * `last` bytes further, `final`.  Nothing outside of the text [start, at + last + room) is read.
 */
static inline uint32
find_places(const char *start, const char *at, uint32 last, ptrdiff_t room, __m128i first,
			__m128i final)
{
	char heads[16] = {0};
	char tails[16] = {0};
	const char *from = at;
	__m128i head;
	__m128i tail;

	/* the last places of a text together with some that were looked at before */
	if (room < 16 && at - start >= 16 - room)
		from = at - (16 - room);
	if (room < 16 && from == at)
	{
		memcpy(heads, at, room);
		memcpy(tails, at + last, room);
		head = _mm_loadu_si128((const __m128i *) heads);
		tail = _mm_loadu_si128((const __m128i *) tails);
	}
	else
	{
		head = _mm_loadu_si128((const __m128i *) from);
		tail = _mm_loadu_si128((const __m128i *) (from + last));
	}
	head = _mm_and_si128(_mm_cmpeq_epi8(head, first), _mm_cmpeq_epi8(tail, final));
	return ((uint32) _mm_movemask_epi8(head) >> (at - from)) & ((1U << room) - 1);
}

/* The end of the first place of literal bytes, or NULL: 16 places at a time, by two bytes. */
static const char *
find_bytes(const LikePiece *piece, const char *start, const char *at, const char *end)
{
	uint32 last = piece->length - 1;
	__m128i first = _mm_set1_epi8(piece->bytes[0]);
	__m128i final = _mm_set1_epi8(piece->bytes[last]);

	for (; end - at > last; at += 16)
	{
		uint32 places = find_places(start, at, last, Min(end - at - last, 16), first, final);

		for (; places != 0; places &= places - 1)
		{
			const char *place = at + pg_rightmost_one_pos32(places);

			if (memcmp(place, piece->bytes, piece->length) == 0)
				return place + piece->length;
		}
	}
	return NULL;
}
#else
static const char *
find_bytes(const LikePiece *piece, const char *start, const char *at, const char *end)
{
	uint32 last = piece->length - 1;

	while (end - at > last)
	{
		at = memchr(at, piece->bytes[0], end - at - last);
		if (at == NULL)
			return NULL;
		if (memcmp(at, piece->bytes, piece->length) == 0)
			return at + piece->length;
		at++;
	}
	return NULL;
}
#endif

/* The end of the piece where it first occurs from `at` on in a text, or NULL. */
static inline const char *
find_piece(const LikePattern *pattern, const LikePiece *piece, const char *start, const char *at,
		   const char *end)
{
	if (piece->any == NULL)
		return find_bytes(piece, start, at, end);
	while (at < end)
	{
		const char *behind = match_piece(pattern, piece, at, end);

		if (behind != NULL)
			return behind;
		at = skip_character(pattern, at, end);
	}
	return NULL;
}

/* Does the text end with the piece, which begins here or later? */
static bool
ends_with_piece(const LikePattern *pattern, const LikePiece *piece, const char *at, const char *end)
{
	if (piece->any == NULL)
		return end - at >= piece->length &&
			   memcmp(end - piece->length, piece->bytes, piece->length) == 0;
	while (at < end)
	{
		if (match_piece(pattern, piece, at, end) == end)
			return true;
		at = skip_character(pattern, at, end);
	}
	return false;
}

static bool
match_text(const LikePattern *pattern, const char *at, const char *end)
{
	const char *start = at;
	int npieces = pattern->npieces;
	int i = 0;

	if (npieces == 0)
		return !pattern->from_start || at == end;
	if (pattern->from_start)
	{
		at = match_piece(pattern, &pattern->pieces[i++], at, end);
		if (at == NULL)
			return false;
		if (i == npieces)
			return !pattern->to_end || at == end;
	}
	for (; i < npieces - (pattern->to_end ? 1 : 0); i++)
	{
		at = find_piece(pattern, &pattern->pieces[i], start, at, end);
		if (at == NULL)
			return false;
	}
	return !pattern->to_end || ends_with_piece(pattern, &pattern->pieces[npieces - 1], at, end);
}

static void
decide_like(VectorExpression *node, VectorInput *input, uint8 *truth)
{
	LikePattern *pattern = node->details;
	const Vector *texts = vector_node_values(node->args[0], input);

	prepare_pattern(node, input);
	if (!pattern->has_kernel)
	{
		vector_leaf_decide_scalar(node, input, truth);
		return;
	}
	node->partial = true;
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		uint32 length;
		const char *bytes;

		truth[row] = TRUTH_NULL;
		if (pattern->is_null || vector_is_null(texts, row))
			continue;
		bytes = vector_bytes(texts, row, &length);
		truth[row] = match_text(pattern, bytes, bytes + length) != pattern->negated ? TRUTH_TRUE
																					: TRUTH_FALSE;
	}
}

/* ---- compiling ---------------------------------------------------------------------------------- */

typedef struct LikeFunction
{
	Oid function;
	bool negated;
	bool is_bytea;
} LikeFunction;

static const LikeFunction functions[] = {
	{F_TEXTLIKE, false, false},	  {F_LIKE_TEXT_TEXT, false, false},
	{F_TEXTNLIKE, true, false},	  {F_NOTLIKE_TEXT_TEXT, true, false},
	{F_BPCHARLIKE, false, false}, {F_BPCHARNLIKE, true, false},
	{F_BYTEALIKE, false, true},	  {F_BYTEANLIKE, true, true}};

VectorExpression *
vector_like_compile(Expr *expression, VectorScope *scope)
{
	const LikeFunction *function = NULL;
	VectorExpression *node;
	LikePattern *pattern;
	VectorCall call;

	if (!vector_call_match(expression, &call))
		return NULL;
	for (int i = 0; i < lengthof(functions) && function == NULL; i++)
		if (functions[i].function == call.function)
			function = &functions[i];
	if (function == NULL || contain_var_clause(lsecond(call.arguments)))
		return NULL;
	if (!function->is_bytea &&
		(!OidIsValid(call.collation) || !get_collation_isdeterministic(call.collation)))
		return NULL;

	node = vector_node_create(expression, scope, call.arguments);
	pattern = palloc0(sizeof(LikePattern));
	pattern->negated = function->negated;
	pattern->is_bytea = function->is_bytea;
	pattern->memory = AllocSetContextCreate(scope->context, "columnar pattern",
											ALLOCSET_SMALL_SIZES);
	node->details = pattern;
	node->decide = decide_like;
	node->reset = reset_pattern;
	/* a pattern that ends with an escape */
	node->can_fail = true;
	node->is_shareable = true;
	return node;
}
