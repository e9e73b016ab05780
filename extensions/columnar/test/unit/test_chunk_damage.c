/*
 * test_chunk_damage.c
 *		Chunks whose damage no checksum tells: an ERROR or some values, never an access
 *		outside of memory.
 *
 * A second reader is compiled here that believes checksums (FORMAT_FUZZ), under
 * other names than that of the library.
 */
#define FORMAT_FUZZ
#define chunk_reader_open believing_reader_open
#define chunk_reader_close believing_reader_close
#define chunk_reader_nblocks believing_reader_nblocks
#define chunk_reader_zone believing_reader_zone
#define chunk_reader_bytes_read believing_reader_bytes_read
#define chunk_reader_may_contain believing_reader_may_contain
#define chunk_reader_decode believing_reader_decode

#include "store/chunk/chunk_read.c"

#include "chunk_harness.h"

typedef struct DamageCase
{
	ColumnType type;
	ChunkSummary summary;
	uint32 nrows;
	ByteBuffer bytes; /* undamaged */
	const char *damaged;
	uint64 length;
	uint64 nreached; /* blocks of damaged chunks that were decoded or given up by a codec */
} DamageCase;

/* Decodes all blocks in some order, and makes datums of all rows. */
static void
read_believing(void *argument)
{
	DamageCase *damage = argument;
	MemorySource source;
	ChunkReader *reader;
	ColumnBlock block;
	uint32 nblocks;
	uint32 start;

	init_source(&source, damage->damaged, damage->length);
	reader = chunk_reader_open(&source.source, &damage->summary, &damage->type, damage->nrows);
	nblocks = chunk_reader_nblocks(reader);
	start = harness_random_below(nblocks);
	column_block_init(&block, &damage->type);
	for (uint32 i = 0; i < nblocks; i++)
	{
		damage->nreached++;
		chunk_reader_decode(reader, (start + i) % nblocks, &block);
		CHECK(block.nrows <= BLOCK_ROWS);
		for (uint32 row = 0; row < block.nrows; row++)
		{
			bool isnull;

			column_block_datum(&block, row, &isnull);
		}
	}
	for (uint32 i = 0; i < nblocks; i++)
		chunk_reader_zone(reader, i);
	chunk_reader_may_contain(reader, harness_random());
	chunk_reader_close(reader);
}

static void
make_chunk(void *argument)
{
	DamageCase *damage = argument;
	ColumnKind kind = harness_random_below(NKINDS);
	ChunkOptions options = choose_options(harness_random_below(4) == 0 ? CODEC_ZSTD : CODEC_NONE);
	ColumnValues values;

	damage->type = make_type(kind);
	damage->nrows = 1 + harness_random_below(harness_random_below(2) == 0 ? 100 : 2500);
	fill_values(&values, &damage->type, kind, harness_random_below(NPATTERNS), damage->nrows,
				harness_random_below(3) == 0 ? harness_random_below(100) : 0);
	damage->bytes.length = 0;
	chunk_write(&values, &options, &damage->bytes, &damage->summary);
}

/* Changes a few bytes, mostly of what is not compressed, most often to other small numbers. */
static char *
damage_some_bytes(const DamageCase *damage)
{
	char *copy = harness_copy(damage->bytes.data, damage->bytes.length);
	int nchanges = 1 + harness_random_below(4);

	for (int i = 0; i < nchanges; i++)
	{
		bool in_header = harness_random_below(4) == 0;
		uint64 limit = in_header ? damage->summary.header_length : damage->bytes.length;
		uint64 at = harness_random_below(limit);

		/* the first bytes of models and blocks decide most */
		if (!in_header && harness_random_below(2) == 0)
			at = (damage->summary.header_length + harness_random_below(64)) % damage->bytes.length;
		copy[at] = harness_random_below(2) == 0 ? (char) harness_random()
												: (char) (copy[at] ^ 1 << harness_random_below(8));
	}
	return copy;
}

static void
check_damaged_chunk(DamageCase *damage)
{
	char *damaged;

	for (int i = 0; i < 30; i++)
	{
		bool changed_only = harness_random_below(8) != 0;

		if (changed_only)
		{
			damaged = damage_some_bytes(damage);
			damage->length = damage->bytes.length;
		}
		else
			damaged = harness_damage(damage->bytes.data, damage->bytes.length, &damage->length);
		damage->damaged = damaged;
		(void) harness_try_damaged(read_believing, damage);
		free(damaged);
	}
}

/* A damaged footer is caught by its CRC; if it were not, reading it is an error or a summary. */
static void
read_summary(void *argument)
{
	DamageCase *damage = argument;
	ByteCursor cursor = {damage->damaged, damage->damaged + damage->length};
	ChunkSummary summary;

	chunk_summary_read(&damage->type, &cursor, &summary);
	if (summary.zone.has_bounds)
		CHECK(summary.zone.min.length <= ZONE_BOUND_MAX &&
			  summary.zone.max.length <= ZONE_BOUND_MAX);
}

static void
check_damaged_summary(DamageCase *damage)
{
	ByteBuffer footer;

	byte_buffer_init(&footer, 0);
	chunk_summary_write(&damage->type, &damage->summary, &footer);
	for (int i = 0; i < 20; i++)
	{
		char *damaged = harness_damage(footer.data, footer.length, &damage->length);

		damage->damaged = damaged;
		(void) harness_try_damaged(read_summary, damage);
		free(damaged);
	}
	byte_buffer_free(&footer);
}

int
main(int argc, char **argv)
{
	DamageCase damage = {0};
	uint64 nreached = 0;

	harness_start(argc, argv);
	byte_buffer_init(&damage.bytes, 0);
	while (harness_time_is_left(200))
	{
		CHECK(harness_try(make_chunk, &damage));
		damage.damaged = damage.bytes.data;
		damage.length = damage.bytes.length;
		CHECK(harness_try_damaged(read_believing, &damage));
		damage.nreached = 0;
		check_damaged_chunk(&damage);
		nreached += damage.nreached;
		check_damaged_summary(&damage);
	}
	CHECK_THAT(nreached > 100, "damage came as far as decoding " UINT64_FORMAT " times", nreached);
	return harness_finish();
}
