/*
 * page_patch.c
 *		Changing a few bytes of a page, logged; see page_patch.h.
 *
 * Logged as generic WAL, which a server replays without this library.  The functions of
 * generic_xlog.h would do the same, but copy the page twice and compare all of it:
 * several times the rest of the work, where a record or a vector of 200 bytes is
 * overwritten.  So the record is made here, of what is known to change:
 *
 *		per run of changed bytes
 *		0	offset in the page	2
 *		2	number of bytes		2
 *		4	the bytes
 *
 * Runs with less than a run's header between them are one.  As in replay, the page's
 * hole is zeroed.
 */
#include "store/pages/page_patch.h"

#include "access/generic_xlog.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "miscadmin.h"
#include "storage/bufpage.h"

#define RUN_HEADER (2 * sizeof(OffsetNumber))

/* Runs are at least a header apart, so a record has at most twice the bytes of the page. */
#define DELTA_MAX (2 * BLCKSZ)

static uint32
append_run(char *delta, uint32 at, OffsetNumber offset, OffsetNumber length, const char *bytes)
{
	memcpy(delta + at, &offset, sizeof(offset));
	memcpy(delta + at + sizeof(offset), &length, sizeof(length));
	memcpy(delta + at + RUN_HEADER, bytes, length);
	return at + RUN_HEADER + length;
}

/* Writes how `length` bytes at `offset` of the page change; returns the record's length. */
static uint32
make_delta(const char *old, const char *new, uint32 offset, uint32 length, char *delta)
{
	uint32 delta_length = 0;
	uint32 begin = 0; /* of the run, if end is behind it */
	uint32 end = 0;

	for (uint32 i = 0; i < length; i++)
	{
		if (old[i] == new[i])
			continue;
		if (end > begin && i - end >= RUN_HEADER)
		{
			delta_length = append_run(delta, delta_length, (OffsetNumber) (offset + begin),
									  (OffsetNumber) (end - begin), new + begin);
			begin = i;
		}
		else if (end == begin)
			begin = i;
		end = i + 1;
	}
	if (end > begin)
		delta_length = append_run(delta, delta_length, (OffsetNumber) (offset + begin),
								  (OffsetNumber) (end - begin), new + begin);
	return delta_length;
}

void
page_patch(Relation relation, Buffer buffer, char *target, const void *bytes, uint32 length)
{
	Page page = BufferGetPage(buffer);
	PageHeader header = (PageHeader) page;
	uint32 offset = (uint32) (target - (char *) page);
	char delta[DELTA_MAX];
	uint32 delta_length;

	Assert(offset >= SizeOfPageHeaderData && offset + length <= BLCKSZ);
	Assert(offset + length <= header->pd_lower || offset >= header->pd_upper);
	delta_length = make_delta(target, bytes, offset, length, delta);
	if (delta_length == 0)
		return;

	START_CRIT_SECTION();
	memcpy(target, bytes, length);
	memset((char *) page + header->pd_lower, 0, header->pd_upper - header->pd_lower);
	MarkBufferDirty(buffer);
	if (RelationNeedsWAL(relation))
	{
		XLogRecPtr lsn;

		XLogBeginInsert();
		XLogRegisterBuffer(0, buffer, REGBUF_STANDARD);
		XLogRegisterBufData(0, delta, delta_length);
		lsn = XLogInsert(RM_GENERIC_ID, 0);
		PageSetLSN(page, lsn);
	}
	END_CRIT_SECTION();
}
