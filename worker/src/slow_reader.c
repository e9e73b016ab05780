/*
 * slow_reader.c
 *		A coordinator that takes its time with the rows of a read is not taken for dead.
 *
 * tcp_user_timeout ends a session whose peer takes nothing for so long: the kernel does not tell one that is gone from one
 * that answers, but has no room, for its client has fetched some rows of a cursor and thinks about them, or because other
 * parts of the plan take longer.  The timeout is for locks that others wait for.  Rows of a read go without it, until
 * the next statement says that they have been taken, or there were so few that they fill no buffer; what a read holds
 * makes nobody wait, and a peer that is gone is found by the kernel's retransmissions in a quarter of an hour.
 */
#include "postgres.h"

#include "libpq/libpq-be.h"
#include "miscadmin.h"
#include "utils/guc.h"

#include "slow_reader.h"

/* Rows that the peer's kernel takes. */
#define FEW_ROWS 10

void
slow_reader_expect(bool reads)
{
	static bool is_patient = false;

	if (MyProcPort == NULL || reads == is_patient)
		return;
	(void) pq_settcpusertimeout(reads ? 0 : tcp_user_timeout, MyProcPort);
	is_patient = reads;
}

void
slow_reader_sent(uint64 rows)
{
	if (rows <= FEW_ROWS)
		slow_reader_expect(false);
}
