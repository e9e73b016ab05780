/*
 * test_compression.c
 *		Frames come back from lz4 and zstd, are kept only where they save enough, and
 *		damaged ones end in an ERROR.
 */
#include "harness.h"

#include "store/codec/compression.h"

#define FRAME 40000

static char prose[FRAME];
static char noise[FRAME];

/* A frame to decompress. */
typedef struct Frame
{
	Codec codec;
	const char *bytes;
	uint64 length;
	uint64 raw_length;
	char *raw; /* the result */
} Frame;

static void
make_frames(void)
{
	for (int i = 0; i < FRAME; i++)
	{
		prose[i] = "abcdefgh"[harness_random_below(i % 1000 < 500 ? 2 : 8)];
		noise[i] = (char) harness_random();
	}
}

static void
decompress_frame(void *argument)
{
	Frame *frame = argument;

	codec_decompress(frame->codec, frame->bytes, frame->length, frame->raw, frame->raw_length);
}

/* Decompresses into exactly the room there is. */
static bool
decompresses(Frame *frame)
{
	bool done;

	free(frame->raw);
	frame->raw = malloc(frame->raw_length);
	done = harness_try_damaged(decompress_frame, frame);
	return done;
}

static void
check_round_trip(Codec codec, int level, uint64 length)
{
	ByteBuffer buffer;
	Frame frame = {codec};

	byte_buffer_init(&buffer, 0);
	byte_buffer_append(&buffer, "before", 6);
	CHECK_THAT(codec_compress(codec, level, 0.10, prose, length, &buffer),
			   "%s level %d leaves %llu bytes", codec_name(codec), level,
			   (unsigned long long) length);
	CHECK(memcmp(buffer.data, "before", 6) == 0);
	frame.length = buffer.length - 6;
	CHECK(frame.length <= length * 0.9);
	frame.bytes = harness_copy(buffer.data + 6, frame.length);

	frame.raw_length = length;
	CHECK(decompresses(&frame));
	CHECK(memcmp(frame.raw, prose, length) == 0);

	/* another length than it has */
	frame.raw_length = length - 1;
	CHECK(!decompresses(&frame));
	frame.raw_length = length + 1;
	CHECK(!decompresses(&frame));
	frame.raw_length = 0;
	CHECK(!decompresses(&frame));

	/* the end is missing */
	frame.raw_length = length;
	frame.length--;
	CHECK(!decompresses(&frame));
	frame.length = 0;
	CHECK(!decompresses(&frame));

	free(frame.raw);
	free(unconstify(char *, frame.bytes));
	byte_buffer_free(&buffer);
}

static void
check_savings(void)
{
	ByteBuffer buffer;
	uint64 stored;

	byte_buffer_init(&buffer, 0);
	CHECK(!codec_compress(CODEC_LZ4, 0, 0.03, noise, FRAME, &buffer));
	CHECK(!codec_compress(CODEC_ZSTD, 3, 0.03, noise, FRAME, &buffer));
	CHECK(!codec_compress(CODEC_ZSTD, 3, 0.0, noise, FRAME, &buffer));
	CHECK(!codec_compress(CODEC_NONE, 0, 0.03, prose, FRAME, &buffer));
	CHECK(!codec_compress(CODEC_LZ4, 0, 0.03, prose, 0, &buffer));
	CHECK(!codec_compress(CODEC_ZSTD, 1, 0.03, prose, 1, &buffer));
	CHECK(buffer.length == 0);

	/* the limit lies where it is said to lie */
	CHECK(codec_compress(CODEC_ZSTD, 3, 0.10, prose, FRAME, &buffer));
	stored = buffer.length;
	CHECK(!codec_compress(CODEC_ZSTD, 3, 1.0 - (stored - 2.0) / FRAME, prose, FRAME, &buffer));
	CHECK(buffer.length == stored);
	CHECK(codec_compress(CODEC_ZSTD, 3, 1.0 - (stored + 200.0) / FRAME, prose, FRAME, &buffer));
	byte_buffer_free(&buffer);
}

static void
check_no_codec(void)
{
	Frame frame = {CODEC_NONE, prose, 100, 100};

	CHECK(decompresses(&frame));
	CHECK(memcmp(frame.raw, prose, 100) == 0);
	frame.length = 99;
	CHECK(!decompresses(&frame));
	frame.length = 100;
	frame.codec = 77;
	CHECK(!decompresses(&frame));
	free(frame.raw);
}

static void
damage_frames(void)
{
	uint64 nerrors = 0;

	while (harness_time_is_left(200))
	{
		Codec codec = harness_random_below(2) ? CODEC_LZ4 : CODEC_ZSTD;
		uint64 length = 100 + harness_random_below(FRAME - 100);
		ByteBuffer buffer;
		Frame frame = {codec};

		byte_buffer_init(&buffer, 0);
		if (codec_compress(codec, 1, 0.05, prose, length, &buffer))
		{
			frame.raw_length = harness_random_below(8) ? length : harness_random_below(2 * FRAME);
			frame.bytes = harness_damage(buffer.data, buffer.length, &frame.length);
			nerrors += !decompresses(&frame);
			free(unconstify(char *, frame.bytes));
			free(frame.raw);
		}
		byte_buffer_free(&buffer);
	}
	CHECK(nerrors > 50);
}

int
main(int argc, char **argv)
{
	static const uint64 lengths[] = {200, 1000, 32768, FRAME};

	harness_start(argc, argv);
	make_frames();
	CHECK(strcmp(codec_name(CODEC_NONE), "none") == 0);
	CHECK(strcmp(codec_name(CODEC_LZ4), "lz4") == 0);
	CHECK(strcmp(codec_name(CODEC_ZSTD), "zstd") == 0);
	for (int i = 0; i < lengthof(lengths); i++)
	{
		check_round_trip(CODEC_LZ4, 0, lengths[i]);
		check_round_trip(CODEC_ZSTD, 1, lengths[i]);
		check_round_trip(CODEC_ZSTD, 9, lengths[i]);
		check_round_trip(CODEC_ZSTD, 19, lengths[i]);
	}
	check_savings();
	check_no_codec();
	damage_frames();
	return harness_finish();
}
