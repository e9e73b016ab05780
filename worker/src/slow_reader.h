/*
 * slow_reader.h
 *		A coordinator that takes its time with the rows of a read is not taken for dead.
 */
#ifndef STRATA_SLOW_READER_H
#define STRATA_SLOW_READER_H

/* Before each statement of the coordinator's: does it only read? */
extern void slow_reader_expect(bool reads);

/* At its end: so many rows were sent. */
extern void slow_reader_sent(uint64 rows);

#endif
