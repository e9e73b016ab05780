/*
 * vector_recall.c
 *		What a function without a kernel made of the values of a column, kept for when they come
 *		again.
 *
 * For a column that is not dictionary-coded (see vector_code.c for those), and functions that take
 * their time, like those with regular expressions: the first batch is timed.  Results are kept
 * until parameters change, at most work_mem of them; then they are collected anew.  If few values
 * come again, nothing is kept any more.
 */
#include "exec/expression/vector_expression_internal.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "utils/datum.h"
#include "utils/memutils.h"

/* Faster functions are called: looking a value up takes a part of this. */
#define SLOW_NS 1000.0

/* Rows that tell how fast it is; and after how many it is seen whether values come again. */
#define TIMED_ROWS 64
#define JUDGED_ROWS 32768

/* Of these one in so many has to have come again. */
#define JUDGED_SHARE 8

typedef struct RecallKey
{
	const char *bytes;
	uint32 length;
} RecallKey;

typedef struct RecallEntry
{
	RecallKey key; /* the argument */
	uint32 hash;
	bool isnull;
	char status; /* of the table */
	Datum value;
} RecallEntry;

#define SH_PREFIX results
#define SH_ELEMENT_TYPE RecallEntry
#define SH_KEY_TYPE RecallKey
#define SH_KEY key
#define SH_HASH_KEY(table, key) hash_bytes((const unsigned char *) (key).bytes, (int) (key).length)
#define SH_EQUAL(table, a, b) \
	((a).length == (b).length && memcmp((a).bytes, (b).bytes, (a).length) == 0)
#define SH_STORE_HASH
#define SH_GET_HASH(table, entry) (entry)->hash
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

#define RESULTS_MIN 1024

typedef enum RecallState
{
	RECALL_TIMING, /* is not known to be slow yet */
	RECALL_ACTIVE,
	RECALL_USELESS
} RecallState;

struct VectorRecall
{
	RecallState state;
	MemoryContext memory;
	results_hash *results;
	uint64 asked; /* since it was judged */
	uint64 found;
	instr_time start;
};

bool
vector_recall_begin(VectorExpression *node, const Vector *column)
{
	VectorRecall *recall = node->recall;

	if (node->coded == 0 || column->form != VECTOR_BYTES || column->exceptions != NULL)
		return false;
	if (recall == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(node->scope->context);

		recall = node->recall = palloc0(sizeof(VectorRecall));
		recall->memory = AllocSetContextCreate(CurrentMemoryContext, "columnar values by argument",
											   ALLOCSET_DEFAULT_SIZES);
		MemoryContextSwitchTo(caller);
	}
	if (recall->state == RECALL_TIMING)
		INSTR_TIME_SET_CURRENT(recall->start);
	if (recall->state == RECALL_ACTIVE && recall->results == NULL)
		recall->results = results_create(recall->memory, RESULTS_MIN, NULL);
	return recall->state == RECALL_ACTIVE;
}

static void
forget_results(VectorRecall *recall)
{
	MemoryContextReset(recall->memory);
	recall->results = NULL;
}

void
vector_recall_end(VectorExpression *node, uint32 nrows)
{
	VectorRecall *recall = node->recall;
	instr_time now;

	if (recall == NULL)
		return;
	if (recall->state == RECALL_TIMING && nrows >= TIMED_ROWS)
	{
		INSTR_TIME_SET_CURRENT(now);
		INSTR_TIME_SUBTRACT(now, recall->start);
		recall->state = INSTR_TIME_GET_DOUBLE(now) * 1e9 > SLOW_NS * nrows ? RECALL_ACTIVE
																		   : RECALL_USELESS;
	}
	if (recall->results == NULL)
		return;
	if (recall->asked >= JUDGED_ROWS)
	{
		if (recall->found * JUDGED_SHARE < recall->asked)
			recall->state = RECALL_USELESS;
		recall->asked = recall->found = 0;
	}
	if (recall->state == RECALL_USELESS ||
		MemoryContextMemAllocated(recall->memory, true) > (Size) work_mem * 1024)
		forget_results(recall);
}

bool
vector_recall_find(VectorExpression *node, const Vector *column, uint32 row, Datum *value,
				   bool *isnull)
{
	VectorRecall *recall = node->recall;
	const RecallEntry *entry;

	if (vector_is_null(column, row))
		return false;
	entry = results_lookup(
		recall->results, (RecallKey){.bytes = column->starts[row], .length = column->lengths[row]});
	recall->asked++;
	if (entry == NULL)
		return false;
	recall->found++;
	*value = entry->value;
	*isnull = entry->isnull;
	return true;
}

void
vector_recall_keep(VectorExpression *node, const Vector *column, uint32 row, Datum value,
				   bool isnull)
{
	VectorRecall *recall = node->recall;
	MemoryContext caller;
	RecallKey key = {.length = column->lengths[row]};
	RecallEntry *entry;
	bool found;

	if (vector_is_null(column, row))
		return;
	caller = MemoryContextSwitchTo(recall->memory);
	if (!isnull)
		value = datumCopy(value, node->type.byval, node->type.length);
	key.bytes = memcpy(palloc(Max(key.length, 1)), column->starts[row], key.length);
	entry = results_insert(recall->results, key, &found);
	entry->value = value;
	entry->isnull = isnull;
	MemoryContextSwitchTo(caller);
}

void
vector_recall_forget(VectorExpression *node)
{
	if (node->recall != NULL)
		forget_results(node->recall);
}
