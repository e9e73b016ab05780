/*
 * test_fsst.c
 *		Strings come back from FSST, text gets much shorter, and neither damaged tables nor
 *		damaged codes make it read or write where it must not.
 */
#include "harness.h"

#include "store/codec/fsst.h"

#define STRINGS_MAX 2000

static const char *const words[] = {
	"furiously", "carefully", "regular", "deposits", "special", "requests", "accounts", "packages",
	"the ",		 "final",	  "pending", "ironic",	 "express", "blithely", "quickly",	"sleep",
	"among",	 "haggle",	  "across",	 "slyly",	 "even",	"bold"};

/* Strings of one kind; each is malloc()ed with exactly its length. */
typedef struct Strings
{
	const char *starts[STRINGS_MAX];
	uint32 lengths[STRINGS_MAX];
	uint32 n;
	uint64 bytes;
} Strings;

typedef enum StringKind
{
	STRINGS_TEXT,	 /* words */
	STRINGS_NOISE,	 /* any bytes */
	STRINGS_ONE,	 /* one byte, again and again */
	STRINGS_ZEROS,	 /* zero bytes and a few others: what ends in padding */
	STRINGS_ESCAPES, /* the byte that the escape code is, mostly */
	STRINGS_NKINDS
} StringKind;

static void
fill_string(StringKind kind, char *into, uint32 length)
{
	uint32 at = 0;

	while (at < length)
	{
		const char *word = words[harness_random_below(lengthof(words))];

		switch (kind)
		{
			case STRINGS_TEXT:
				for (; *word && at < length; word++)
					into[at++] = *word;
				if (at < length)
					into[at++] = ' ';
				break;
			case STRINGS_NOISE:
				into[at++] = (char) harness_random();
				break;
			case STRINGS_ONE:
				into[at++] = 'x';
				break;
			case STRINGS_ZEROS:
				into[at++] = harness_random_below(6) ? 0 : (char) harness_random_below(3);
				break;
			default:
				into[at++] = harness_random_below(4) ? (char) FSST_ESCAPE : (char) harness_random();
				break;
		}
	}
}

static void
make_strings(Strings *strings, StringKind kind, uint32 n, uint32 longest)
{
	strings->n = n;
	strings->bytes = 0;
	for (uint32 i = 0; i < n; i++)
	{
		uint32 length = (uint32) harness_random_below(longest + 1);
		char *string = malloc(length);

		fill_string(kind, string, length);
		strings->starts[i] = string;
		strings->lengths[i] = length;
		strings->bytes += length;
	}
}

static void
free_strings(Strings *strings)
{
	for (uint32 i = 0; i < strings->n; i++)
		free(unconstify(char *, strings->starts[i]));
}

/* The table as a reader has it. */
static FsstTable *
reread_table(const FsstTable *table)
{
	ByteBuffer buffer;
	ByteCursor cursor;
	FsstTable *copy;

	byte_buffer_init(&buffer, 0);
	fsst_write(table, &buffer);
	cursor.at = buffer.data;
	cursor.end = buffer.data + buffer.length;
	copy = fsst_read(&cursor);
	CHECK(cursor.at == cursor.end);
	byte_buffer_free(&buffer);
	return copy;
}

/* Each string alone, into room for exactly itself; returns the codes' length. */
static uint64
check_strings(const FsstTable *table, const Strings *strings)
{
	FsstTable *reader = reread_table(table);
	uint64 total = 0;

	for (uint32 i = 0; i < strings->n; i++)
	{
		uint32 length = strings->lengths[i];
		char *into = malloc(length);
		char *codes;
		ByteBuffer buffer;

		byte_buffer_init(&buffer, 0);
		fsst_compress(table, strings->starts[i], length, &buffer);
		CHECK(buffer.length <= 2 * (uint64) length);
		total += buffer.length;
		codes = harness_copy(buffer.data, buffer.length);
		CHECK(fsst_decompress(reader, codes, (uint32) buffer.length, into, length) == length);
		CHECK(length == 0 || memcmp(into, strings->starts[i], length) == 0);
		free(into);
		free(codes);
		byte_buffer_free(&buffer);
	}
	return total;
}

static void
check_kinds(void)
{
	for (int kind = 0; kind < STRINGS_NKINDS; kind++)
	{
		static const uint32 counts[] = {1, 7, STRINGS_MAX};
		static const uint32 longest[] = {0, 1, 2, 9, 60, 3000};

		for (int i = 0; i < lengthof(counts) * lengthof(longest); i++)
		{
			Strings strings;
			uint32 n = counts[i % lengthof(counts)];
			uint32 length = longest[i / lengthof(counts)];

			make_strings(&strings, kind, length > 60 ? Min(n, 50) : n, length);
			check_strings(fsst_train(strings.starts, strings.lengths, strings.n), &strings);
			free_strings(&strings);
		}
	}
}

static void
check_no_strings(void)
{
	const char *start = "";
	uint32 length = 0;
	Strings others;

	make_strings(&others, STRINGS_NOISE, 20, 50);
	check_strings(fsst_train(NULL, NULL, 0), &others);
	check_strings(fsst_train(&start, &length, 1), &others);
	free_strings(&others);
}

/* Not only does it come back, it also gets shorter: what the sample did not hold, too. */
static void
check_ratio(void)
{
	Strings sample;
	Strings others;
	FsstTable *table;
	uint64 total;

	make_strings(&sample, STRINGS_TEXT, STRINGS_MAX, 60);
	make_strings(&others, STRINGS_TEXT, STRINGS_MAX, 60);
	table = fsst_train(sample.starts, sample.lengths, sample.n);
	total = check_strings(table, &others);
	CHECK_THAT(total < others.bytes * 0.40, "%llu bytes of text take %llu",
			   (unsigned long long) others.bytes, (unsigned long long) total);
	free_strings(&sample);
	free_strings(&others);

	make_strings(&sample, STRINGS_ONE, 100, 600);
	table = fsst_train(sample.starts, sample.lengths, sample.n);
	total = check_strings(table, &sample);
	CHECK_THAT(total < sample.bytes / 7, "%llu equal bytes take %llu",
			   (unsigned long long) sample.bytes, (unsigned long long) total);
	free_strings(&sample);
}

/* ---- damage ------------------------------------------------------------------------------------ */

typedef struct Damaged
{
	const char *table;
	uint64 table_length;
	const char *codes;
	uint32 ncodes;
	uint64 capacity;
	uint64 length; /* the result */
} Damaged;

static void
decompress_damaged(void *argument)
{
	Damaged *damaged = argument;
	ByteCursor cursor = {damaged->table, damaged->table + damaged->table_length};
	FsstTable *table = fsst_read(&cursor);
	char *into = palloc(damaged->capacity);

	damaged->length = fsst_decompress(table, damaged->codes, damaged->ncodes, into,
									  damaged->capacity);
	CHECK(damaged->length <= damaged->capacity);
}

static bool
decompresses(const char *table, uint64 table_length, const char *codes, uint32 ncodes,
			 uint64 capacity)
{
	Damaged damaged = {harness_copy(table, table_length), table_length, harness_copy(codes, ncodes),
					   ncodes, capacity};
	bool done = harness_try_damaged(decompress_damaged, &damaged);

	free(unconstify(char *, damaged.table));
	free(unconstify(char *, damaged.codes));
	return done;
}

static void
check_damage(void)
{
	/* two symbols: "abcdefgh" and "z" */
	static const char table[] = "\2\10\1abcdefghz";
	const uint64 length = sizeof(table) - 1;

	CHECK(decompresses(table, length, "\0\1\0\377q", 5, 18));
	CHECK(decompresses(table, length, "", 0, 0));
	/* no room, at the end and in the fast part */
	CHECK(!decompresses(table, length, "\0\1\0\377q", 5, 17));
	CHECK(!decompresses(table, length, "\0\0\0\0\0\0\0\0\0\0\0\0", 12, 95));
	CHECK(decompresses(table, length, "\0\0\0\0\0\0\0\0\0\0\0\0", 12, 96));
	/* an escape of nothing */
	CHECK(!decompresses(table, length, "\0\1\377", 3, 100));
	/* codes without symbol, at the end and in the fast part */
	CHECK(!decompresses(table, length, "\0\2", 2, 100));
	CHECK(!decompresses(table, length, "\1\1\2\1\1\1\1\1\1\1", 10, 100));
	CHECK(!decompresses(table, length, "\2\377x\1\1\1\1\1\1\1", 10, 100));
	/* tables: lengths of 0 and 9, cut off */
	CHECK(!decompresses("\1\0a", 3, "", 0, 10));
	CHECK(!decompresses("\1\11abcdefghi", 11, "", 0, 10));
	CHECK(!decompresses(table, length - 1, "", 0, 10));
	CHECK(!decompresses("", 0, "", 0, 10));
}

static void
damage_everything(void)
{
	Strings strings;
	FsstTable *table;
	ByteBuffer stored;
	uint64 nerrors = 0;

	make_strings(&strings, STRINGS_TEXT, 500, 60);
	table = fsst_train(strings.starts, strings.lengths, strings.n);
	byte_buffer_init(&stored, 0);
	fsst_write(table, &stored);

	while (harness_time_is_left(1000))
	{
		uint32 i = (uint32) harness_random_below(strings.n);
		ByteBuffer codes;
		Damaged damaged = {0};
		uint64 ncodes;

		byte_buffer_init(&codes, 0);
		fsst_compress(table, strings.starts[i], strings.lengths[i], &codes);
		damaged.table = harness_random_below(2)
							? harness_damage(stored.data, stored.length, &damaged.table_length)
							: harness_copy(stored.data, damaged.table_length = stored.length);
		damaged.codes = harness_damage(codes.data, codes.length, &ncodes);
		damaged.ncodes = (uint32) ncodes;
		damaged.capacity = harness_random_below(3) ? strings.lengths[i] : harness_random_below(600);
		nerrors += !harness_try_damaged(decompress_damaged, &damaged);
		free(unconstify(char *, damaged.table));
		free(unconstify(char *, damaged.codes));
		byte_buffer_free(&codes);
	}
	CHECK(nerrors > 100);
	free_strings(&strings);
}

int
main(int argc, char **argv)
{
	harness_start(argc, argv);
	check_kinds();
	check_no_strings();
	check_ratio();
	check_damage();
	damage_everything();
	return harness_finish();
}
