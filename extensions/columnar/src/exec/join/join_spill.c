/*
 * join_spill.c
 *		A ColumnarJoin whose build side does not fit into memory.
 *
 * Both sides are split by a hash of their keys and written to files, part by part: rows
 * of one part have partners in the same part only, so that the parts are joined one after the
 * other.  A part that still does not fit is split again by the hash's next bits, until
 * these are used up or all of a part has the same keys; then it takes the memory that it needs.
 *
 * A file's columns are the keys and then the columns of its side (see JoinSide).
 */
#include "exec/join/join_internal.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

#define SPLIT_BITS 4
#define SPLIT_PARTS (1 << SPLIT_BITS)
/* a hash has 32 */
#define SPLIT_BITS_MAX 28

/* ---- hash --------------------------------------------------------------------------------------- */

static void
init_hash(JoinSide *side, int nkeys)
{
	side->hash = palloc(sizeof(FmgrInfo) * nkeys);
	for (int i = 0; i < nkeys; i++)
	{
		TypeCacheEntry *type = lookup_type_cache(side->key_types[i].type,
												 TYPECACHE_HASH_PROC_FINFO);

		if (!OidIsValid(type->hash_proc))
			elog(ERROR, "type %u of a join key has no hash function", side->key_types[i].type);
		fmgr_info_copy(&side->hash[i], &type->hash_proc_finfo, CurrentMemoryContext);
	}
}

/* Equal keys of both sides have the same: core's hash functions see to that within an operator family. */
static uint32
hash_row(const ColumnarJoinState *state, const JoinSide *side, uint32 row)
{
	uint32 hash = 0;

	for (int i = 0; i < state->nkeys; i++)
	{
		uint32 of_key = 0;
		bool isnull;
		Datum value = vector_datum(side->key_values[i], row, &isnull);

		if (!isnull)
			of_key = DatumGetUInt32(
				FunctionCall1Coll(&side->hash[i], side->key_types[i].collation, value));
		hash = hash_combine(hash, of_key);
	}
	/* types' functions leave some bits alone */
	return murmurhash32(hash);
}

/* ---- files -------------------------------------------------------------------------------------- */

typedef struct JoinFiles
{
	int shift; /* of the bits of the hash that choose the part */
	VectorFile *files[SPLIT_PARTS];
} JoinFiles;

static void
create_files(JoinFiles *files, const JoinSide *side, int nbits)
{
	files->shift = nbits;
	for (int i = 0; i < SPLIT_PARTS; i++)
		files->files[i] = vector_file_create(side->nstored, side->stored_types);
}

/* Writes rows, whose keys are in key_values[], each to the file of its part. */
static void
write_rows(const ColumnarJoinState *state, const JoinSide *side, Vector *const *columns,
		   const uint16 *selection, uint32 nselected, JoinFiles *files)
{
	uint16 rows[SPLIT_PARTS][BLOCK_ROWS];
	uint32 counts[SPLIT_PARTS] = {0};

	for (uint32 i = 0; i < nselected; i++)
	{
		uint32 part = (hash_row(state, side, selection[i]) >> files->shift) & (SPLIT_PARTS - 1);

		rows[part][counts[part]++] = selection[i];
	}
	for (int part = 0; part < SPLIT_PARTS; part++)
		if (counts[part] > 0)
			vector_file_write(files->files[part], columns, rows[part], counts[part]);
}

/* What is left of the side's input. */
static void
write_input(ColumnarJoinState *state, JoinSide *side, JoinFiles *files)
{
	ExprContext *econtext = state->source.custom.ss.ps.ps_ExprContext;
	VectorInput input;

	while (join_next_input(state, side, &input))
	{
		MemoryContext caller = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);

		CHECK_FOR_INTERRUPTS();
		write_rows(state, side, join_collect_columns(state, side, &input), input.selection,
				   input.nselected, files);
		MemoryContextSwitchTo(caller);
	}
}

/* The build rows that are in memory. */
static void
write_store(ColumnarJoinState *state, JoinFiles *files)
{
	JoinSide *side = &state->build;
	uint32 count = vector_store_count(state->store);
	Vector *vectors = palloc(sizeof(Vector) * side->nstored);
	Vector **columns = palloc(sizeof(Vector *) * side->nstored);
	VectorBuffer **buffers = palloc(sizeof(VectorBuffer *) * side->nstored);
	MemoryContext batch = AllocSetContextCreate(CurrentMemoryContext, "columnar join's split rows",
												ALLOCSET_DEFAULT_SIZES);
	uint32 rows[BLOCK_ROWS];
	uint16 selection[BLOCK_ROWS];

	for (int i = 0; i < side->nstored; i++)
	{
		columns[i] = &vectors[i];
		buffers[i] = vector_buffer_create();
	}
	for (uint32 first = 0; first < count; first += BLOCK_ROWS)
	{
		uint32 n = Min(count - first, BLOCK_ROWS);
		MemoryContext caller = MemoryContextSwitchTo(batch);

		CHECK_FOR_INTERRUPTS();
		for (uint32 i = 0; i < n; i++)
		{
			rows[i] = first + i;
			selection[i] = (uint16) i;
		}
		for (int i = 0; i < side->nstored; i++)
			vector_store_gather(state->store, i, rows, NULL, n, buffers[i], columns[i]);
		for (int i = 0; i < state->nkeys; i++)
			side->key_values[i] = columns[i];
		write_rows(state, side, columns, selection, n, files);
		/* keys were copied for the hash */
		MemoryContextSwitchTo(caller);
		MemoryContextReset(batch);
	}
}

/* ---- parts -------------------------------------------------------------------------------------- */

static void
close_part(JoinPart *part)
{
	if (part->build != NULL)
		vector_file_close(part->build);
	if (part->probe != NULL)
		vector_file_close(part->probe);
	pfree(part);
}

/* Can anything come out of the part? */
static bool
is_needed(const ColumnarJoinState *state, const JoinPart *part)
{
	if (vector_file_count(part->build) == 0 && !join_emits_unmatched_probe_rows(state))
		return false;
	return vector_file_count(part->probe) > 0 || join_emits_build_rows(state);
}

/* Puts the parts made of the first one into its place. */
static void
replace_part(ColumnarJoinState *state, JoinFiles *build, JoinFiles *probe)
{
	JoinPart *whole = linitial(state->parts);
	uint64 nrows = 0;

	for (int i = 0; i < SPLIT_PARTS; i++)
		nrows += vector_file_count(build->files[i]);
	state->parts = list_delete_first(state->parts);
	for (int i = 0; i < SPLIT_PARTS; i++)
	{
		JoinPart *part = palloc0(sizeof(JoinPart));

		part->nbits = whole->nbits + SPLIT_BITS;
		part->build = build->files[i];
		part->probe = probe->files[i];
		part->is_final = part->nbits + SPLIT_BITS > SPLIT_BITS_MAX ||
						 vector_file_count(part->build) == nrows;
		if (is_needed(state, part))
			state->parts = lcons(part, state->parts);
		else
			close_part(part);
	}
	close_part(whole);
}

void
join_split_part(ColumnarJoinState *state)
{
	const JoinPart *part = linitial(state->parts);
	MemoryContext caller = MemoryContextSwitchTo(state->context);
	JoinFiles *build = palloc(sizeof(JoinFiles));
	JoinFiles *probe = palloc(sizeof(JoinFiles));
	MemoryContext scratch;

	if (state->build.hash == NULL)
	{
		init_hash(&state->build, state->nkeys);
		init_hash(&state->probe, state->nkeys);
	}
	create_files(build, &state->build, part->nbits);
	create_files(probe, &state->probe, part->nbits);
	scratch = AllocSetContextCreate(state->context, "columnar join's split",
									ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(scratch);
	write_store(state, build);
	MemoryContextSwitchTo(state->context);
	MemoryContextDelete(scratch);
	vector_store_reset(state->store);
	vector_join_table_reset(state->table);
	write_input(state, &state->build, build);
	write_input(state, &state->probe, probe);
	replace_part(state, build, probe);
	state->nsplits++;
	pfree(build);
	pfree(probe);
	MemoryContextSwitchTo(caller);
}

bool
join_next_part(ColumnarJoinState *state)
{
	if (state->parts != NIL)
	{
		close_part(linitial(state->parts));
		state->parts = list_delete_first(state->parts);
	}
	vector_store_reset(state->store);
	vector_join_table_reset(state->table);
	return state->parts != NIL;
}

void
join_begin_parts(ColumnarJoinState *state)
{
	MemoryContext caller = MemoryContextSwitchTo(state->context);

	while (join_next_part(state))
		;
	state->parts = list_make1(palloc0(sizeof(JoinPart)));
	MemoryContextSwitchTo(caller);
}
