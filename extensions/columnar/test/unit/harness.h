/*
 * harness.h
 *		Runs the format's encoders and decoders without a server, under sanitizers.
 *
 * A test is a program: test_x [seconds [seed]].  It calls harness_start(), its
 * checks, a fuzzer that goes on while harness_time_is_left(), harness_finish().
 *
 * Memory contexts are real (a reset or deleted context frees what was allocated
 * in it) but every chunk is a malloc() of its own, so that AddressSanitizer sees
 * each access outside of it; chunks are aligned to 8 bytes and no more, as
 * PostgreSQL's are.  ereport(ERROR) jumps to PG_TRY or harness_try() as in a
 * server; below ERROR nothing is reported.  Other functions of PostgreSQL are
 * linked as address 0: calling one ends the test with its stack.
 */
#ifndef COLUMNAR_HARNESS_H
#define COLUMNAR_HARNESS_H

#include "store/value/format.h"

#define CHECK(condition) \
	((condition) ? (void) 0 : harness_fail(__FILE__, __LINE__, "%s", #condition))
/* With what the values were: CHECK_THAT(a == b, "a is %d, b is %d", a, b). */
#define CHECK_THAT(condition, ...) \
	((condition) ? (void) 0 : harness_fail(__FILE__, __LINE__, __VA_ARGS__))

/* The last ERROR that harness_try() caught. */
typedef struct HarnessError
{
	int code;
	char message[1024];
	char detail[1024];
	char hint[1024];
} HarnessError;

extern HarnessError harness_error;

/* Reads the arguments, prints the seed, makes the memory contexts. */
extern void harness_start(int argc, char **argv);
/* Prints that the test passed; the exit code. */
extern int harness_finish(void);
/* Are the seconds of the command line not over yet?  At least `least` calls return true. */
extern bool harness_time_is_left(uint64 least);
/* Prints the failure and the seed, and ends the program. */
_Noreturn extern void
harness_fail(const char *file, int line, const char *format, ...) pg_attribute_printf(3, 4);

/*
 * Calls the function in a memory context of its own, which is deleted afterwards.
 * False if it raised an ERROR, which then is harness_error.
 */
extern bool harness_try(void (*function)(void *argument), void *argument);
/* The same for decoding damaged bytes: an ERROR must be ERRCODE_DATA_CORRUPTED. */
extern bool harness_try_damaged(void (*function)(void *argument), void *argument);

/*
 * A copy of the bytes with some of them changed, cut off or doubled; sometimes
 * only noise.  malloc()ed with exactly *damaged_length bytes, for free().
 */
extern char *harness_damage(const char *bytes, uint64 length, uint64 *damaged_length);
/* The bytes as a malloc()ed copy of exactly their length, for free(). */
extern char *harness_copy(const char *bytes, uint64 length);

/* Pseudo-random numbers from the seed. */
extern uint64 harness_random(void);
/* Less than `limit`, which is not 0. */
extern uint64 harness_random_below(uint64 limit);
/* 0 .. 2^bits - 1, with bits itself random up to `bits`: small numbers are frequent. */
extern uint64 harness_random_bits(int bits);

#endif
