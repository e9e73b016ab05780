/*
 * harness.c
 *		The few functions of PostgreSQL that encoders and decoders call: memory and errors.
 *
 * A memory context keeps its chunks in a ring.  A chunk's header ends with the
 * pointer to its context, where PostgreSQL 15 looks for it.  Requests above 4 GB
 * are errors, as is everything above 1 GB that is not asked for as huge: what is
 * decoded here never needs that much, so a damaged length was believed.
 */
#include "harness.h"

#include <setjmp.h>
#include <time.h>

#include "utils/memutils.h"

#define HUGE_MAX ((Size) 1 << 32)

typedef struct Chunk
{
	struct Chunk *previous;
	struct Chunk *next;
	Size size;
	Size padding;		   /* makes the user's pointer 8 bytes past a multiple of 16 */
	MemoryContext context; /* last */
} Chunk;

typedef struct HarnessContext
{
	MemoryContextData data; /* first */
	Chunk ring;
} HarnessContext;

StaticAssertDecl(sizeof(Chunk) % 16 == 8, "chunks are to be aligned to 8 bytes only");

MemoryContext CurrentMemoryContext;
MemoryContext TopMemoryContext;
MemoryContext ErrorContext;
MemoryContext CacheMemoryContext;
MemoryContext TopTransactionContext;
MemoryContext CurTransactionContext;
sigjmp_buf *PG_exception_stack;
ErrorContextCallback *error_context_stack;
volatile sig_atomic_t InterruptPending;

HarnessError harness_error;

static HarnessError raised;
static int raised_level;
static const char *program;
static double seconds = 2;
static uint64 seed = 1;
static uint64 random_state;
static uint64 rounds;
static struct timespec started;

/* ---- the test ---------------------------------------------------------------------------------- */

static double
elapsed_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec - started.tv_sec + (now.tv_nsec - started.tv_nsec) / 1e9;
}

void
harness_start(int argc, char **argv)
{
	program = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
	if (argc > 1)
		seconds = strtod(argv[1], NULL);
	if (argc > 2)
		seed = strtoull(argv[2], NULL, 10);
	random_state = seed;
	clock_gettime(CLOCK_MONOTONIC, &started);
	TopMemoryContext = AllocSetContextCreate(NULL, "harness", ALLOCSET_DEFAULT_SIZES);
	ErrorContext = CacheMemoryContext = TopMemoryContext;
	TopTransactionContext = CurTransactionContext = TopMemoryContext;
	CurrentMemoryContext = TopMemoryContext;
}

int
harness_finish(void)
{
	MemoryContextDelete(TopMemoryContext);
	printf("%-24s ok, %llu rounds of damage in %.1f s, seed %llu\n", program,
		   (unsigned long long) rounds, elapsed_seconds(), (unsigned long long) seed);
	return 0;
}

bool
harness_time_is_left(uint64 least)
{
	return rounds++ < least || elapsed_seconds() < seconds;
}

void
harness_fail(const char *file, int line, const char *format, ...)
{
	va_list arguments;

	fflush(stdout);
	fprintf(stderr, "%s: seed %llu: %s:%d: failed: ", program, (unsigned long long) seed, file,
			line);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "\nlast error: %s (%s)\n", harness_error.message, harness_error.detail);
	abort();
}

bool
harness_try(void (*function)(void *argument), void *argument)
{
	MemoryContext before = CurrentMemoryContext;
	MemoryContext context = AllocSetContextCreate(before, "try", ALLOCSET_DEFAULT_SIZES);
	volatile bool returned = true;

	PG_TRY();
	{
		CurrentMemoryContext = context;
		function(argument);
	}
	PG_CATCH();
	{
		harness_error = raised;
		returned = false;
	}
	PG_END_TRY();
	CurrentMemoryContext = before;
	MemoryContextDelete(context);
	return returned;
}

bool
harness_try_damaged(void (*function)(void *argument), void *argument)
{
	if (harness_try(function, argument))
		return true;
	CHECK_THAT(harness_error.code == ERRCODE_DATA_CORRUPTED, "the ERROR for damage is \"%s\"",
			   harness_error.message);
	return false;
}

/* ---- damage ------------------------------------------------------------------------------------ */

char *
harness_copy(const char *bytes, uint64 length)
{
	char *copy = malloc(length);

	if (length > 0)
		memcpy(copy, bytes, length);
	return copy;
}

/* Changes one place of the bytes; early ones more often, since headers stand there. */
static void
change_byte(unsigned char *bytes, uint64 length)
{
	static const unsigned char extremes[] = {0x00, 0x01, 0x7f, 0x80, 0xfe, 0xff, 0x40, 0x08};
	uint64 at = harness_random_below(harness_random_below(2) ? length : Min(length, 32));

	switch (harness_random_below(4))
	{
		case 0:
			bytes[at] ^= 1 << harness_random_below(8);
			break;
		case 1:
			bytes[at] = extremes[harness_random_below(lengthof(extremes))];
			break;
		case 2:
			bytes[at] = harness_random();
			break;
		default:
			bytes[at] += harness_random_below(2) ? 1 : -1;
			break;
	}
}

char *
harness_damage(const char *bytes, uint64 length, uint64 *damaged_length)
{
	unsigned char *damaged;
	uint64 kept = length;
	int kind = harness_random_below(8);

	if (kind == 0)
		kept = harness_random_below(length + 1);
	else if (kind == 1)
		kept = length - harness_random_below(Min(length, 9) + 1);
	else if (kind == 2)
		kept = length + harness_random_below(64);
	damaged = malloc(kept);
	if (Min(kept, length) > 0)
		memcpy(damaged, bytes, Min(kept, length));
	for (uint64 i = length; i < kept; i++)
		damaged[i] = harness_random();
	if (kept > 0)
	{
		int changes = kind == 0 ? harness_random_below(2) : 1 + harness_random_below(4);

		for (int i = 0; i < changes; i++)
			change_byte(damaged, kept);
		if (kind == 3)
			for (uint64 i = harness_random_below(kept); i < kept; i++)
				damaged[i] = harness_random();
	}
	*damaged_length = kept;
	return (char *) damaged;
}

/* ---- random numbers ---------------------------------------------------------------------------- */

/* splitmix64 */
uint64
harness_random(void)
{
	uint64 z = (random_state += UINT64CONST(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64CONST(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64CONST(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

uint64
harness_random_below(uint64 limit)
{
	return harness_random() % limit;
}

uint64
harness_random_bits(int bits)
{
	int width = harness_random_below(bits + 1);

	return width == 0 ? 0 : harness_random() >> (64 - width);
}

/* ---- memory ------------------------------------------------------------------------------------ */

MemoryContext
AllocSetContextCreateInternal(MemoryContext parent, const char *name, Size minContextSize,
							  Size initBlockSize, Size maxBlockSize)
{
	HarnessContext *context = calloc(1, sizeof(HarnessContext));

	context->data.type = T_AllocSetContext;
	context->data.name = name;
	context->data.parent = parent;
	context->ring.next = context->ring.previous = &context->ring;
	if (parent != NULL)
	{
		context->data.nextchild = parent->firstchild;
		if (parent->firstchild != NULL)
			parent->firstchild->prevchild = &context->data;
		parent->firstchild = &context->data;
	}
	return &context->data;
}

static void
free_chunk(Chunk *chunk)
{
	chunk->previous->next = chunk->next;
	chunk->next->previous = chunk->previous;
	free(chunk);
}

void
MemoryContextDeleteChildren(MemoryContext context)
{
	while (context->firstchild != NULL)
		MemoryContextDelete(context->firstchild);
}

void
MemoryContextReset(MemoryContext context)
{
	Chunk *ring = &((HarnessContext *) context)->ring;

	MemoryContextDeleteChildren(context);
	while (ring->next != ring)
		free_chunk(ring->next);
}

void
MemoryContextDelete(MemoryContext context)
{
	MemoryContextReset(context);
	if (context->parent != NULL)
	{
		if (context->prevchild != NULL)
			context->prevchild->nextchild = context->nextchild;
		else
			context->parent->firstchild = context->nextchild;
		if (context->nextchild != NULL)
			context->nextchild->prevchild = context->prevchild;
	}
	free(context);
}

static void *
allocate_chunk(MemoryContext context, Size size, Size limit)
{
	Chunk *ring = &((HarnessContext *) context)->ring;
	Chunk *chunk;

	if (size > limit)
		elog(ERROR, "invalid memory alloc request size %zu", size);
	chunk = malloc(sizeof(Chunk) + size);
	chunk->size = size;
	chunk->context = context;
	chunk->previous = ring;
	chunk->next = ring->next;
	ring->next->previous = chunk;
	ring->next = chunk;
	/* nobody may count on zeros */
	memset(chunk + 1, 0x7f, size);
	return chunk + 1;
}

static Chunk *
get_chunk(const void *pointer)
{
	return (Chunk *) unconstify(void *, pointer) - 1;
}

static void *
reallocate_chunk(void *pointer, Size size, Size limit)
{
	Chunk *chunk = get_chunk(pointer);
	void *moved = allocate_chunk(chunk->context, size, limit);

	memcpy(moved, pointer, Min(size, chunk->size));
	free_chunk(chunk);
	return moved;
}

void *
MemoryContextAlloc(MemoryContext context, Size size)
{
	return allocate_chunk(context, size, MaxAllocSize);
}

void *
MemoryContextAllocHuge(MemoryContext context, Size size)
{
	return allocate_chunk(context, size, HUGE_MAX);
}

void *
MemoryContextAllocZero(MemoryContext context, Size size)
{
	return memset(MemoryContextAlloc(context, size), 0, size);
}

/* Not declared by every version of PostgreSQL; palloc0fast() calls it in 15. */
extern void *MemoryContextAllocZeroAligned(MemoryContext context, Size size);

void *
MemoryContextAllocZeroAligned(MemoryContext context, Size size)
{
	return MemoryContextAllocZero(context, size);
}

void *
MemoryContextAllocExtended(MemoryContext context, Size size, int flags)
{
	void *pointer = allocate_chunk(context, size,
								   (flags & MCXT_ALLOC_HUGE) ? HUGE_MAX : MaxAllocSize);

	return (flags & MCXT_ALLOC_ZERO) ? memset(pointer, 0, size) : pointer;
}

void *
palloc(Size size)
{
	return MemoryContextAlloc(CurrentMemoryContext, size);
}

void *
palloc0(Size size)
{
	return MemoryContextAllocZero(CurrentMemoryContext, size);
}

void *
palloc_extended(Size size, int flags)
{
	return MemoryContextAllocExtended(CurrentMemoryContext, size, flags);
}

void *
repalloc(void *pointer, Size size)
{
	return reallocate_chunk(pointer, size, MaxAllocSize);
}

void *
repalloc_huge(void *pointer, Size size)
{
	return reallocate_chunk(pointer, size, HUGE_MAX);
}

void
pfree(void *pointer)
{
	free_chunk(get_chunk(pointer));
}

char *
pnstrdup(const char *string, Size length)
{
	Size kept = strnlen(string, length);
	char *copy = palloc(kept + 1);

	memcpy(copy, string, kept);
	copy[kept] = '\0';
	return copy;
}

char *
pstrdup(const char *string)
{
	return pnstrdup(string, strlen(string));
}

Size
GetMemoryChunkSpace(void *pointer)
{
	return sizeof(Chunk) + get_chunk(pointer)->size;
}

/* A function since 16; before, an inline one of its header read what stands before the bytes. */
extern MemoryContext find_chunk_context(const void *pointer) __asm__("GetMemoryChunkContext");

MemoryContext
find_chunk_context(const void *pointer)
{
	return get_chunk(pointer)->context;
}

/* ---- errors ------------------------------------------------------------------------------------ */

/* Assert() calls ExceptionalCondition(), whose other arguments differ between versions. */
extern void fail_assertion(const char *condition) __asm__("ExceptionalCondition");

void
fail_assertion(const char *condition)
{
	harness_fail("an assertion", 0, "%s", condition);
}

bool
errstart(int elevel, const char *domain)
{
	if (elevel < ERROR)
		return false;
	memset(&raised, 0, sizeof(raised));
	raised.code = ERRCODE_INTERNAL_ERROR;
	raised_level = elevel;
	return true;
}

bool
errstart_cold(int elevel, const char *domain)
{
	return errstart(elevel, domain);
}

void
errfinish(const char *filename, int lineno, const char *funcname)
{
	if (PG_exception_stack == NULL || raised_level > ERROR)
		harness_fail(filename, lineno, "ERROR outside of harness_try(): %s (%s)", raised.message,
					 raised.detail);
	pg_re_throw();
}

void
pg_re_throw(void)
{
	siglongjmp(*PG_exception_stack, 1);
}

void
FlushErrorState(void)
{
}

int
errcode(int sqlerrcode)
{
	raised.code = sqlerrcode;
	return 0;
}

#define FORMAT_INTO(field, format)                          \
	do                                                      \
	{                                                       \
		va_list arguments;                                  \
		va_start(arguments, format);                        \
		vsnprintf(field, sizeof(field), format, arguments); \
		va_end(arguments);                                  \
	} while (0)

int
errmsg(const char *format, ...)
{
	FORMAT_INTO(raised.message, format);
	return 0;
}

int
errmsg_internal(const char *format, ...)
{
	FORMAT_INTO(raised.message, format);
	return 0;
}

int
errdetail(const char *format, ...)
{
	FORMAT_INTO(raised.detail, format);
	return 0;
}

int
errdetail_internal(const char *format, ...)
{
	FORMAT_INTO(raised.detail, format);
	return 0;
}

int
errhint(const char *format, ...)
{
	FORMAT_INTO(raised.hint, format);
	return 0;
}

void
ProcessInterrupts(void)
{
}
