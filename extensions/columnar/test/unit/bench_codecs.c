/*
 * bench_codecs.c
 *		How fast encoders and decoders are, without a server: `make bench`.
 *
 * Prints a line per measurement: name, number, unit and a note, separated by tabs.  A time
 * is the best of many short runs: nothing that a benchmark shares the machine with makes
 * code faster.  Built with the server's own compiler flags, without sanitizers.
 */
#include "chunk_harness.h"

#include <time.h>

#include "store/codec/bitpack.h"

/* Rows of a column chunk: a full row group. */
#define ROWS 131072

/* Runs of which the best counts. */
#define RUNS 15

static double
now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

/* What the work computes ends up here, so that it is done. */
static volatile uint64 sink;

static void
print_measure(const char *name, double value, const char *unit, const char *note)
{
	printf("%s\t%.6f\t%s\t%s\n", name, value, unit, note);
}

/* ---- bit-packing ------------------------------------------------------------------------------- */

/* Nanoseconds per value to unpack blocks of one width. */
static double
measure_unpack(int width)
{
	static uint64 values[BLOCK_ROWS];
	static char packed[BLOCK_ROWS * 8];
	double best = 1e9;

	for (int i = 0; i < BLOCK_ROWS; i++)
		values[i] = width == 0 ? 0 : harness_random() >> (64 - width);
	bitpack_pack(values, BLOCK_ROWS, width, packed);
	for (int run = 0; run < RUNS; run++)
	{
		double begin = now();

		for (int i = 0; i < 1000; i++)
		{
			bitpack_unpack(packed, BLOCK_ROWS, width, (uint64) i, values);
			sink += values[i];
		}
		best = Min(best, now() - begin);
	}
	return best * 1e9 / 1000 / BLOCK_ROWS;
}

/* Widths up to 32 are what keys, dates, quantities and codes need. */
static void
measure_bitpack(void)
{
	double sum = 0;
	double worst = 0;
	int worst_width = 0;
	char note[64];

	for (int width = 1; width <= 32; width++)
	{
		double time = measure_unpack(width);

		sum += time;
		if (time > worst)
		{
			worst = time;
			worst_width = width;
		}
	}
	snprintf(note, sizeof(note), "mean of widths 1 to 32; worst %.2f at %d", worst, worst_width);
	print_measure("bit-unpack + FOR", sum / 32, "ns/value", note);
	print_measure("... of 48 bits", measure_unpack(48), "ns/value", "");
}

/* ---- chunks ------------------------------------------------------------------------------------ */

/* Besides the patterns of the tests: prices as lineitem has them, all different. */
#define PATTERN_PRICES ((ColumnPattern) NPATTERNS)

/* A column, encoded. */
typedef struct Sample
{
	ColumnType type;
	ColumnValues values;
	ChunkOptions options;
	ChunkSummary summary;
	ByteBuffer bytes;
} Sample;

static void
fill_prices(ColumnValues *values, const ColumnType *type)
{
	column_values_init(values, type);
	for (uint32 row = 0; row < ROWS; row++)
	{
		Datum value = numeric_from_scaled(90000 + harness_random_below(10000000), 2);

		column_values_append(values, value, false);
		pfree(DatumGetPointer(value));
	}
}

static void
make_sample(Sample *sample, ColumnKind kind, ColumnPattern pattern, Codec codec, int null_percent)
{
	sample->type = make_type(kind);
	sample->options = choose_options(codec);
	sample->options.bloom = false;
	if (pattern == PATTERN_PRICES)
		fill_prices(&sample->values, &sample->type);
	else
		fill_values(&sample->values, &sample->type, kind, pattern, ROWS, null_percent);
}

static void
encode_sample(Sample *sample)
{
	byte_buffer_init(&sample->bytes, 0);
	chunk_write(&sample->values, &sample->options, &sample->bytes, &sample->summary);
}

static void
free_sample(Sample *sample)
{
	byte_buffer_free(&sample->bytes);
	column_values_free(&sample->values);
}

/* Values as rows have them, with a byte for the header of each varlena. */
static double
raw_megabytes(const Sample *sample)
{
	uint64 bytes = 0;

	if (sample->type.byval)
		return (double) sample->type.length * ROWS / 1e6;
	for (uint32 i = 0; i < ROWS; i++)
	{
		uint32 length;

		column_values_bytes(&sample->values, i, &length);
		bytes += length + (sample->type.length == -1 ? 1 : 0);
	}
	return bytes / 1e6;
}

static void
measure_encode(const char *name, ColumnKind kind, ColumnPattern pattern, Codec codec)
{
	double best = 1e9;
	char note[64];
	Sample sample;

	make_sample(&sample, kind, pattern, codec, 0);
	for (int run = 0; run < RUNS; run++)
	{
		double begin = now();

		encode_sample(&sample);
		best = Min(best, now() - begin);
		if (run < RUNS - 1)
			byte_buffer_free(&sample.bytes);
	}
	snprintf(note, sizeof(note), "%.1f MB to %.1f MB, %.1f ns/value", raw_megabytes(&sample),
			 sample.bytes.length / 1e6, best * 1e9 / ROWS);
	print_measure(name, raw_megabytes(&sample) / best, "MB/s", note);
	free_sample(&sample);
}

/* All blocks of the sample once; with datums: each value as one, too. */
static void
decode_sample(Sample *sample, bool datums)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "decode",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	MemorySource source;
	ChunkReader *reader;
	ColumnBlock block;

	init_source(&source, sample->bytes.data, sample->bytes.length);
	reader = chunk_reader_open(&source.source, &sample->summary, &sample->type, ROWS);
	column_block_init(&block, &sample->type);
	for (uint32 i = 0; i < chunk_reader_nblocks(reader); i++)
	{
		chunk_reader_decode(reader, i, &block);
		sink += block.nrows;
		for (uint32 row = 0; datums && row < block.nrows; row++)
		{
			bool isnull;

			sink += column_block_datum(&block, row, &isnull) + isnull;
		}
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
}

static void
list_encodings(const Sample *sample, char *into, size_t room)
{
	size_t length = 0;

	into[0] = '\0';
	for (int i = 0; i < CHUNK_NENCODINGS; i++)
	{
		if (sample->summary.encodings & (1 << i))
			length += snprintf(into + length, room - length, "%s%s", length > 0 ? ", " : "",
							   chunk_encoding_name(i));
	}
	if (sample->summary.codec != CODEC_NONE)
		snprintf(into + length, room - length, ", %s",
				 sample->summary.codec == CODEC_LZ4 ? "lz4" : "zstd");
}

static void
measure_decode(const char *name, ColumnKind kind, ColumnPattern pattern, Codec codec,
			   int null_percent, bool datums)
{
	double best = 1e9;
	char note[128];
	Sample sample;

	make_sample(&sample, kind, pattern, codec, null_percent);
	encode_sample(&sample);
	for (int run = 0; run < RUNS; run++)
	{
		double begin = now();

		decode_sample(&sample, datums);
		best = Min(best, now() - begin);
	}
	list_encodings(&sample, note, sizeof(note));
	print_measure(name, best * 1e9 / ROWS, "ns/value", note);
	free_sample(&sample);
}

int
main(int argc, char **argv)
{
	harness_start(argc, argv);
	measure_bitpack();

	measure_decode("decode int, ascending", KIND_INT8, PATTERN_ASCENDING, CODEC_LZ4, 0, false);
	measure_decode("decode int, few values", KIND_INT4, PATTERN_FEW, CODEC_LZ4, 0, false);
	measure_decode("decode int, runs", KIND_INT4, PATTERN_RUNS, CODEC_LZ4, 0, false);
	measure_decode("decode int, outliers", KIND_INT4, PATTERN_OUTLIERS, CODEC_LZ4, 0, false);
	measure_decode("decode int, random", KIND_INT4, PATTERN_RANDOM, CODEC_LZ4, 0, false);
	measure_decode("... with NULLs", KIND_INT4, PATTERN_RANDOM, CODEC_LZ4, 10, false);
	measure_decode("... random, zstd", KIND_INT4, PATTERN_RANDOM, CODEC_ZSTD, 0, false);
	measure_decode("decode float", KIND_FLOAT8, PATTERN_OUTLIERS, CODEC_LZ4, 0, false);
	measure_decode("decode numeric, few values", KIND_NUMERIC, PATTERN_FEW, CODEC_LZ4, 0, false);
	measure_decode("decode numeric, prices", KIND_NUMERIC, PATTERN_PRICES, CODEC_LZ4, 0, false);
	measure_decode("... as datums", KIND_NUMERIC, PATTERN_PRICES, CODEC_LZ4, 0, true);
	measure_decode("decode text, dictionary", KIND_TEXT, PATTERN_FEW, CODEC_LZ4, 0, false);
	measure_decode("... as datums", KIND_TEXT, PATTERN_FEW, CODEC_LZ4, 0, true);
	measure_decode("decode text, long", KIND_TEXT_LONG, PATTERN_ASCENDING, CODEC_LZ4, 0, false);
	measure_decode("... zstd", KIND_TEXT_LONG, PATTERN_ASCENDING, CODEC_ZSTD, 0, false);
	measure_decode("... random uuid", KIND_UUID, PATTERN_RANDOM, CODEC_LZ4, 0, false);

	measure_encode("encode int", KIND_INT8, PATTERN_OUTLIERS, CODEC_LZ4);
	measure_encode("encode numeric", KIND_NUMERIC, PATTERN_PRICES, CODEC_LZ4);
	measure_encode("encode float", KIND_FLOAT8, PATTERN_OUTLIERS, CODEC_LZ4);
	measure_encode("encode text", KIND_TEXT_LONG, PATTERN_ASCENDING, CODEC_LZ4);
	measure_encode("... zstd", KIND_TEXT_LONG, PATTERN_ASCENDING, CODEC_ZSTD);
	measure_encode("... few values", KIND_TEXT, PATTERN_FEW, CODEC_LZ4);
	return 0;
}
