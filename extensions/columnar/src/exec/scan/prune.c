/*
 * prune.c
 *		Asking zone maps and Bloom filters whether a row group or block can qualify.
 *
 * The values of a test are taken once per (re)scan.  A block is asked after its
 * group was, so Bloom filters, which are the group's, are asked once.
 *
 * Memory: tests and functions live in the pruner's context, values in one that
 * is reset with each rescan, what comparison functions leak in one that is reset
 * with each question.
 */
#include "exec/scan/prune.h"

#include "access/stratnum.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "utils/array.h"
#include "utils/datum.h"
#include "utils/float.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "exec/scan/prune_zone.h"

/* More values than this are not looked up in a Bloom filter: one of them would be found by error. */
#define BLOOM_VALUES_MAX 64

/* Rows whose value is not within are of no use to the node above. */
typedef struct PruneLimit
{
	AttrNumber attribute;
	BatchLimit range;
} PruneLimit;

struct Pruner
{
	RowPruner callbacks; /* first member */
	MemoryContext context;
	List *limits; /* PruneLimit */
	PlanState *parent;
	PruneTest *test;   /* NULL: keep everything */
	bool is_complete;  /* the test says all that the scan's conditions say */
	bool passes_group; /* all rows of the group that was asked about last pass */
	GroupTaker taker;  /* or NULL */
	void *owner;
	List *clauses;
	bool has_values;
	MemoryContext values;
	MemoryContext scratch;
	PruneCounters counters;
};

/* ---- values ------------------------------------------------------------------------------------ */

/* The fixed text at the beginning of a LIKE pattern, in place of the pattern; its length. */
static uint32
cut_pattern(char *pattern, uint32 length)
{
	uint32 kept = 0;

	/* no multibyte character of a server encoding contains an ASCII byte */
	for (uint32 i = 0; i < length; i++)
	{
		if (pattern[i] == '%' || pattern[i] == '_')
			break;
		if (pattern[i] == '\\' && ++i == length)
			break;
		pattern[kept++] = pattern[i];
	}
	return kept;
}

static int64
get_integer(const PruneTest *test, Datum value)
{
	switch (test->value_type)
	{
		case INT2OID:
			return DatumGetInt16(value);
		case INT4OID:
			return DatumGetInt32(value);
		case INT8OID:
			return DatumGetInt64(value);
		default:
			return column_type_to_int(&test->type, value);
	}
}

/* Adds a value that is not NULL; copies it to the current context. */
static void
add_value(PruneTest *test, Datum datum, int16 length, bool byval)
{
	PruneValue *value = &test->values[test->nvalues++];

	if (!byval && length == -1)
		datum = PointerGetDatum(PG_DETOAST_DATUM_COPY(datum));
	else
		datum = datumCopy(datum, byval, length);
	value->datum = datum;

	switch (test->form)
	{
		case PRUNE_INT:
			value->number = get_integer(test, datum);
			break;
		case PRUNE_FLOAT:
			value->real = test->value_type == FLOAT4OID ? (double) DatumGetFloat4(datum)
														: DatumGetFloat8(datum);
			break;
		case PRUNE_BYTES:
			value->bytes = DatumGetPointer(datum);
			value->length = (uint32) length;
			if (length == -1)
			{
				value->length = VARSIZE(value->bytes) - VARHDRSZ;
				value->bytes = VARDATA(value->bytes);
			}
			if (test->is_pattern)
				value->length = cut_pattern((char *) value->bytes, value->length);
			if (test->value_type == NAMEOID)
				value->length = strnlen(value->bytes, value->length);
			value->length = zone_map_trim(&test->type, value->bytes, value->length);
			break;
		case PRUNE_DATUM:
			break;
	}
	if (OidIsValid(test->hash.fn_oid))
		value->hash = DatumGetUInt64(
			FunctionCall2Coll(&test->hash, test->type.collation, datum, Int64GetDatum(0)));
}

static int
compare_bytes(const PruneValue *a, const PruneValue *b)
{
	int order = memcmp(a->bytes, b->bytes, Min(a->length, b->length));

	if (order != 0)
		return order;
	return a->length < b->length ? -1 : a->length > b->length;
}

static int
compare_values(const void *a, const void *b, void *form)
{
	const PruneValue *left = a;
	const PruneValue *right = b;

	switch (*(PruneForm *) form)
	{
		case PRUNE_INT:
			return left->number < right->number ? -1 : left->number > right->number;
		case PRUNE_FLOAT:
			return float8_cmp_internal(left->real, right->real);
		case PRUNE_BYTES:
			return compare_bytes(left, right);
		case PRUNE_DATUM:
			break;
	}
	return 0;
}

/* The elements of an array that are not NULL, ascending. */
static void
add_elements(PruneTest *test, Datum datum)
{
	ArrayType *array = DatumGetArrayTypeP(datum);
	Datum *elements;
	bool *nulls;
	int count;
	int16 length;
	bool byval;
	char align;

	get_typlenbyvalalign(ARR_ELEMTYPE(array), &length, &byval, &align);
	deconstruct_array(array, ARR_ELEMTYPE(array), length, byval, align, &elements, &nulls, &count);
	test->values = palloc0(sizeof(PruneValue) * Max(count, 1));
	for (int i = 0; i < count; i++)
		if (!nulls[i])
			add_value(test, elements[i], length, byval);
	qsort_arg(test->values, test->nvalues, sizeof(PruneValue), compare_values, &test->form);
}

/* Takes the values of a test for this scan, allocated in the current context. */
static void
take_values(PruneTest *test, ExprContext *econtext)
{
	ListCell *cell;
	Datum datum;
	bool isnull;

	foreach(cell, test->parts)
		take_values(lfirst(cell), econtext);
	if (test->state == NULL)
		return;

	test->nvalues = 0;
	test->values = NULL;
	datum = ExecEvalExprSwitchContext(test->state, econtext, &isnull);
	if (isnull)
		return; /* strict: true for no row */
	if (test->is_array)
		add_elements(test, datum);
	else
	{
		int16 length;
		bool byval;

		get_typlenbyval(exprType((Node *) test->value), &length, &byval);
		test->values = palloc0(sizeof(PruneValue));
		add_value(test, datum, length, byval);
	}
}

static void
make_states(PruneTest *test, PlanState *parent, MemoryContext scratch)
{
	ListCell *cell;

	foreach(cell, test->parts)
		make_states(lfirst(cell), parent, scratch);
	test->scratch = scratch;
	if (test->value != NULL)
		test->state = ExecInitExpr(test->value, parent);
}

/* ---- row groups and blocks --------------------------------------------------------------------- */

/* May the chunk have one of the values that its bounds allow? */
static bool
may_hold_in_filter(PruneTest *test, RowGroupReader *reader, const ChunkSummary *summary)
{
	ChunkReader *chunk;

	if (!OidIsValid(test->hash.fn_oid) || !summary->has_bloom || test->nvalues > BLOOM_VALUES_MAX)
		return true;
	chunk = row_group_reader_chunk(reader, test->attribute);
	for (uint32 i = 0; i < test->nvalues; i++)
	{
		const PruneValue *value = &test->values[i];

		if ((!summary->zone.has_bounds || prune_zone_may_hold_value(test, &summary->zone, value)) &&
			chunk_reader_may_contain(chunk, value->hash))
			return true;
	}
	return false;
}

static bool
may_hold_in_group(PruneTest *test, RowGroupReader *reader)
{
	const ChunkSummary *summary = row_group_reader_summary(reader, test->attribute);

	/* a column that was added later: all rows have the default */
	if (summary == NULL)
		return true;
	return prune_zone_may_hold(test, &summary->zone) && may_hold_in_filter(test, reader, summary);
}

static bool
may_hold_in_block(PruneTest *test, RowGroupReader *reader, uint32 block)
{
	ChunkReader *chunk;

	if (row_group_reader_summary(reader, test->attribute) == NULL)
		return true;
	chunk = row_group_reader_chunk(reader, test->attribute);
	return prune_zone_may_hold(test, chunk_reader_zone(chunk, block));
}

/* `block` -1: the row group as a whole. */
static bool
may_hold(PruneTest *test, RowGroupReader *reader, int64 block)
{
	ListCell *cell;

	if (test->parts == NIL)
		return block < 0 ? may_hold_in_group(test, reader)
						 : may_hold_in_block(test, reader, (uint32) block);
	foreach(cell, test->parts)
	{
		bool part = may_hold(lfirst(cell), reader, block);

		if (part == (test->kind == PRUNE_OR))
			return part;
	}
	return test->kind == PRUNE_AND;
}

/* Is the test, and with it its clause, true for all rows?  `block` -1: of the row group. */
static bool
all_hold(PruneTest *test, RowGroupReader *reader, int64 block)
{
	const ChunkSummary *summary;
	ListCell *cell;

	if (!test->whole)
		return false;
	foreach(cell, test->parts)
		if (all_hold(lfirst(cell), reader, block) == (test->kind == PRUNE_OR))
			return test->kind == PRUNE_OR;
	if (test->parts != NIL)
		return test->kind == PRUNE_AND;
	summary = row_group_reader_summary(reader, test->attribute);
	if (summary == NULL)
		return false;
	if (block < 0)
		return prune_zone_all_hold(test, &summary->zone);
	return prune_zone_all_hold(
		test, chunk_reader_zone(row_group_reader_chunk(reader, test->attribute), (uint32) block));
}

static bool
is_within_limit(const PruneLimit *limit, RowGroupReader *reader, int64 block)
{
	const BatchLimit *range = &limit->range;
	const ChunkSummary *summary = row_group_reader_summary(reader, limit->attribute);
	const ZoneMap *zone;

	if (summary == NULL || row_group_reader_type(reader, limit->attribute)->zone != ZONE_INT)
		return true;
	zone = block < 0 ? &summary->zone
					 : chunk_reader_zone(row_group_reader_chunk(reader, limit->attribute),
										 (uint32) block);
	if (zone->nnulls == zone->nrows)
		return range->nulls;
	if (!zone->has_bounds || (range->nulls && zone->nnulls > 0))
		return true;
	return zone->min.number <= range->high && zone->max.number >= range->low &&
		   key_zones_may_hold(range->zones, zone->min.number, zone->max.number);
}

static bool
are_within_limits(const Pruner *pruner, RowGroupReader *reader, int64 block)
{
	ListCell *cell;

	foreach(cell, pruner->limits)
		if (!is_within_limit(lfirst(cell), reader, block))
			return false;
	return true;
}

static bool
ask(Pruner *pruner, RowGroupReader *reader, int64 block)
{
	bool keep;

	if (!are_within_limits(pruner, reader, block))
		return false;
	if (pruner->test == NULL)
		return true;
	if (!pruner->has_values)
	{
		MemoryContext caller;

		MemoryContextReset(pruner->values);
		caller = MemoryContextSwitchTo(pruner->values);
		take_values(pruner->test, pruner->parent->ps_ExprContext);
		MemoryContextSwitchTo(caller);
		pruner->has_values = true;
	}
	keep = may_hold(pruner->test, reader, block);
	MemoryContextReset(pruner->scratch);
	return keep;
}

static bool
passes(Pruner *pruner, RowGroupReader *reader, int64 block)
{
	bool result;

	if (!pruner->is_complete || pruner->test == NULL)
		return pruner->is_complete;
	result = all_hold(pruner->test, reader, block);
	MemoryContextReset(pruner->scratch);
	return result;
}

static bool
keep_group(RowPruner *callbacks, RowGroupReader *reader)
{
	Pruner *pruner = (Pruner *) callbacks;
	bool keep = ask(pruner, reader, -1);

	pruner->counters.groups++;
	pruner->counters.groups_pruned += !keep;
	pruner->passes_group = keep && passes(pruner, reader, -1);
	return keep;
}

static bool
keep_block(RowPruner *callbacks, RowGroupReader *reader, uint32 block)
{
	Pruner *pruner = (Pruner *) callbacks;
	bool keep = (pruner->passes_group && pruner->limits == NIL) || ask(pruner, reader, block);

	pruner->counters.blocks++;
	pruner->counters.blocks_pruned += !keep;
	return keep;
}

/* Limits may have been added since. */
static bool
keep_still(RowPruner *callbacks, RowGroupReader *reader, uint32 block)
{
	Pruner *pruner = (Pruner *) callbacks;
	bool keep = are_within_limits(pruner, reader, block);

	pruner->counters.blocks_pruned += !keep;
	return keep;
}

/* Limits are of no use: rows beyond them may be returned, but not counted. */
static bool
take_group(RowPruner *callbacks, RowGroupReader *reader)
{
	Pruner *pruner = (Pruner *) callbacks;
	bool taken = pruner->taker != NULL && pruner->passes_group && pruner->limits == NIL &&
				 pruner->taker(pruner->owner, reader);

	pruner->counters.groups_taken += taken;
	return taken;
}

/* ---- interface --------------------------------------------------------------------------------- */

Pruner *
pruner_create(Relation relation, Index varno, List *clauses, bool complete, PlanState *parent)
{
	Pruner *pruner = palloc0(sizeof(Pruner));
	List *tests = NIL;
	ListCell *cell;

	pruner->context = CurrentMemoryContext;
	pruner->callbacks.keep_group = keep_group;
	pruner->callbacks.keep_block = keep_block;
	pruner->callbacks.keep_still = keep_still;
	pruner->callbacks.take_group = take_group;
	pruner->parent = parent;
	pruner->is_complete = complete;
	foreach(cell, clauses)
	{
		PruneTest *test = prune_test_make(lfirst(cell), varno, RelationGetDescr(relation));

		if (test == NULL)
		{
			pruner->is_complete = false;
			continue;
		}
		tests = lappend(tests, test);
		pruner->clauses = lappend(pruner->clauses, lfirst(cell));
	}
	if (tests == NIL)
		return pruner;

	pruner->test = palloc0(sizeof(PruneTest));
	pruner->test->kind = PRUNE_AND;
	pruner->test->whole = true;
	pruner->test->parts = tests;
	pruner->values = AllocSetContextCreate(CurrentMemoryContext, "columnar prune values",
										   ALLOCSET_SMALL_SIZES);
	pruner->scratch = AllocSetContextCreate(CurrentMemoryContext, "columnar prune scratch",
											ALLOCSET_SMALL_SIZES);
	make_states(pruner->test, parent, pruner->scratch);
	return pruner;
}

bool
pruner_passes(Pruner *pruner, RowGroupReader *reader, uint32 block)
{
	return pruner->passes_group || passes(pruner, reader, block);
}

void
pruner_set_taker(Pruner *pruner, GroupTaker taker, void *owner)
{
	pruner->taker = taker;
	pruner->owner = owner;
}

RowPruner *
pruner_callbacks(Pruner *pruner)
{
	return &pruner->callbacks;
}

List *
pruner_clauses(const Pruner *pruner)
{
	return pruner->clauses;
}

void
pruner_reset(Pruner *pruner)
{
	pruner->has_values = false;
}

void
pruner_add_limit(Pruner *pruner, AttrNumber attribute, const BatchLimit *range)
{
	MemoryContext caller;
	PruneLimit *limit;
	ListCell *cell;

	foreach(cell, pruner->limits)
	{
		limit = lfirst(cell);
		if (limit->attribute != attribute || limit->range.nulls != range->nulls ||
			limit->range.zones != range->zones)
			continue;
		limit->range.low = Max(limit->range.low, range->low);
		limit->range.high = Min(limit->range.high, range->high);
		return;
	}
	caller = MemoryContextSwitchTo(pruner->context);
	limit = palloc(sizeof(PruneLimit));
	*limit = (PruneLimit){.attribute = attribute, .range = *range};
	pruner->limits = lappend(pruner->limits, limit);
	MemoryContextSwitchTo(caller);
}

void
pruner_forget_limits(Pruner *pruner)
{
	list_free_deep(pruner->limits);
	pruner->limits = NIL;
}

const PruneCounters *
pruner_counters(const Pruner *pruner)
{
	return &pruner->counters;
}

AttrNumber
prune_clause_attribute(Node *clause, Index varno, TupleDesc descriptor)
{
	PruneTest *test = prune_test_make(clause, varno, descriptor);

	return test == NULL ? 0 : prune_test_attribute(test);
}
