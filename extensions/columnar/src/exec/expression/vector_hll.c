/*
 * vector_hll.c
 *		hll_hash_integer() and the other hash functions of the extension postgresql-hll.
 *
 * All of them are the first half of MurmurHash3_x64_128 of the value's bytes: of an integer as
 * many as its type has, of text and bytea what follows the header.  A seed has to be a
 * constant and not negative, which would raise a warning for each row.
 */
#include "exec/expression/vector_expression_internal.h"

#include "catalog/pg_type.h"
#include "port/pg_bswap.h"

#include "exec/expression/hll_extension.h"

#define MURMUR_C1 UINT64CONST(0x87c37b91114253d5)
#define MURMUR_C2 UINT64CONST(0x4cf5ad432745937f)

/* Bytes of a value's hash that are not those of an integer. */
#define HASH_BYTES 0

typedef struct HashNode
{
	uint64 seed;
	int length; /* of an integer; or HASH_BYTES */
} HashNode;

/* ---- MurmurHash3_x64_128 ---------------------------------------------------------------------- */

static inline uint64
rotate(uint64 word, int bits)
{
	return (word << bits) | (word >> (64 - bits));
}

static inline uint64
mix_first(uint64 word)
{
	return rotate(word * MURMUR_C1, 31) * MURMUR_C2;
}

static inline uint64
mix_second(uint64 word)
{
	return rotate(word * MURMUR_C2, 33) * MURMUR_C1;
}

static inline uint64
finish_half(uint64 hash)
{
	hash ^= hash >> 33;
	hash *= UINT64CONST(0xff51afd7ed558ccd);
	hash ^= hash >> 33;
	hash *= UINT64CONST(0xc4ceb9fe1a85ec53);
	return hash ^ (hash >> 33);
}

/* The first 64 bits of the hash, from both halves before the length goes in. */
static inline uint64
finish(uint64 first, uint64 second, uint64 length)
{
	first ^= length;
	second ^= length;
	first += second;
	second += first;
	return finish_half(first) + finish_half(second);
}

/* Up to 8 bytes that stand for an integer, the lowest first. */
static inline uint64
load_word(const char *bytes, uint32 length)
{
	uint64 word = 0;

	memcpy(&word, bytes, length);
#ifdef WORDS_BIGENDIAN
	word = pg_bswap64(word);
#endif
	return word;
}

static uint64
hash_bytes_with(const char *bytes, uint32 length, uint64 seed)
{
	uint64 first = seed;
	uint64 second = seed;
	uint32 rest = length;

	for (; rest >= 16; bytes += 16, rest -= 16)
	{
		first ^= mix_first(load_word(bytes, 8));
		first = (rotate(first, 27) + second) * 5 + 0x52dce729;
		second ^= mix_second(load_word(bytes + 8, 8));
		second = (rotate(second, 31) + first) * 5 + 0x38495ab5;
	}
	if (rest > 8)
		second ^= mix_second(load_word(bytes + 8, rest - 8));
	first ^= mix_first(load_word(bytes, Min(rest, 8)));
	return finish(first, second, length);
}

/* Of an integer of that many bytes: what load_word() makes of them is the integer. */
static inline uint64
hash_integer(int64 value, uint64 mask, uint64 length, uint64 seed)
{
	return finish(seed ^ mix_first((uint64) value & mask), seed, length);
}

VECTOR_KERNEL static void
hash_block(const int64 *restrict values, uint64 mask, uint64 length, uint64 seed,
		   int64 *restrict hashes)
{
	for (int i = 0; i < BLOCK_ROWS; i++)
		hashes[i] = (int64) hash_integer(values[i], mask, length, seed);
}

/* ---- nodes ------------------------------------------------------------------------------------ */

static void
evaluate_integer_hash(VectorExpression *node, VectorInput *input)
{
	const HashNode *hash = node->details;
	const Vector *values = vector_node_values(node->args[0], input);
	uint64 mask = PG_UINT64_MAX >> (64 - 8 * hash->length);

#ifdef WORDS_BIGENDIAN
	vector_leaf_evaluate_scalar(node, input);
	return;
#endif
	vector_node_begin(node, VECTOR_INT);
	node->result.nulls = values->nulls;
	if (!vector_input_is_sparse(input))
	{
		hash_block(values->ints, mask, hash->length, hash->seed, node->ints);
		return;
	}
	node->partial = true;
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];

		node->ints[row] = (int64) hash_integer(values->ints[row], mask, hash->length, hash->seed);
	}
}

static void
evaluate_bytes_hash(VectorExpression *node, VectorInput *input)
{
	const HashNode *hash = node->details;
	const Vector *values = vector_node_values(node->args[0], input);

	if (values->form != VECTOR_BYTES && values->form != VECTOR_CODES)
	{
		vector_leaf_evaluate_scalar(node, input);
		return;
	}
	vector_node_begin(node, VECTOR_INT);
	node->result.nulls = values->nulls;
	node->partial = true;
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		uint32 length;
		const char *bytes;

		if (vector_is_null(values, row))
			continue;
		bytes = vector_bytes(values, row, &length);
		node->ints[row] = (int64) hash_bytes_with(bytes, length, hash->seed);
	}
}

/* An integer taken for a hash. */
static void
evaluate_same(VectorExpression *node, VectorInput *input)
{
	node->result = *vector_node_values(node->args[0], input);
	node->result.type = &node->type;
}

/* ---- compiling -------------------------------------------------------------------------------- */

/* hll_hash_any() looks at the length of the type. */
static bool
find_any_length(const VectorExpression *argument, int *length)
{
	const ColumnType *type = &argument->type;

	if (argument->holds_datums)
		return false;
	*length = type->form == FORM_INT ? type->length : HASH_BYTES;
	/* of other types with a length the binary output is hashed */
	return type->form == FORM_INT || (type->form == FORM_BYTES && type->length == -1) ||
		   type->typid == UUIDOID;
}

static bool
find_length(HllFunction function, const VectorExpression *argument, int *length)
{
	switch (function)
	{
		case HLL_HASH_BOOLEAN:
			*length = sizeof(bool);
			return true;
		case HLL_HASH_SMALLINT:
			*length = sizeof(int16);
			return true;
		case HLL_HASH_INTEGER:
			*length = sizeof(int32);
			return true;
		case HLL_HASH_BIGINT:
			*length = sizeof(int64);
			return true;
		case HLL_HASH_BYTEA:
		case HLL_HASH_TEXT:
			*length = HASH_BYTES;
			return true;
		case HLL_HASH_ANY:
			return find_any_length(argument, length);
		default:
			return false;
	}
}

static bool
is_possible_seed(const Expr *expression)
{
	const Const *seed = (const Const *) expression;

	return IsA(seed, Const) && !seed->constisnull && DatumGetInt32(seed->constvalue) >= 0;
}

static VectorExpression *
compile_hash(Expr *expression, const VectorCall *call, HllFunction function, VectorScope *scope)
{
	VectorExpression *node;
	HashNode *hash;
	int length;

	if (!is_possible_seed(lsecond(call->arguments)))
		return NULL;
	node = vector_node_create(expression, scope, list_make1(linitial(call->arguments)));
	if (!find_length(function, node->args[0], &length))
		return NULL;
	hash = palloc(sizeof(HashNode));
	hash->seed = (uint64) DatumGetInt32(castNode(Const, lsecond(call->arguments))->constvalue);
	hash->length = length;
	node->details = hash;
	node->evaluate = length == HASH_BYTES ? evaluate_bytes_hash : evaluate_integer_hash;
	node->is_shareable = true;
	return node;
}

VectorExpression *
vector_hll_compile(Expr *expression, VectorScope *scope)
{
	VectorExpression *node;
	HllFunction function;
	VectorCall call;

	if (!vector_call_match(expression, &call))
		return NULL;
	function = hll_function_find(call.function);
	switch (function)
	{
		case HLL_NO_FUNCTION:
			return NULL;
		case HLL_HASHVAL_OF_BIGINT:
		case HLL_HASHVAL_OF_INTEGER:
			node = vector_node_create(expression, scope, call.arguments);
			node->evaluate = evaluate_same;
			node->is_cheap = node->args[0]->is_cheap;
			node->is_shareable = true;
			return node;
		default:
			return list_length(call.arguments) == 2
					   ? compile_hash(expression, &call, function, scope)
					   : NULL;
	}
}
