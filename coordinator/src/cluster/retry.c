/*
 * retry.c
 *		When a background process tries again what failed on a worker, and what it has complained of.
 *
 * A worker that fails is visited less and less often, and a log has each of its errors once as long as
 * it stays the same.  Nothing here is shared: each process remembers its own.
 */
#include "postgres.h"

#include "cluster/retry.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

void *
retry_find(List **list, int worker_id, Size size)
{
	Retry *retry;
	ListCell *cell;
	MemoryContext previous;

	foreach(cell, *list)
	{
		retry = lfirst(cell);
		if (retry->worker_id == worker_id)
			return retry;
	}
	previous = MemoryContextSwitchTo(TopMemoryContext);
	retry = palloc0(size);
	retry->worker_id = worker_id;
	*list = lappend(*list, retry);
	MemoryContextSwitchTo(previous);
	return retry;
}

void
retry_forget_others(List **list, const Bitmapset *workers)
{
	ListCell *cell;

	foreach(cell, *list)
	{
		Retry *retry = lfirst(cell);

		if (bms_is_member(retry->worker_id, workers))
			continue;
		*list = foreach_delete_current(*list, cell);
		pfree(retry);
	}
}

void
retry_postpone(Retry *retry, int longest_ms)
{
	retry->distance_ms = retry->distance_ms == 0 ? RETRY_FIRST_MS
												 : Min(2 * retry->distance_ms, longest_ms);
	retry->next = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), retry->distance_ms);
}

bool
retry_is_new_complaint(Retry *retry, const ErrorData *error)
{
	if (strncmp(retry->complaint, error->message, sizeof(retry->complaint) - 1) == 0)
		return false;
	strlcpy(retry->complaint, error->message, sizeof(retry->complaint));
	return true;
}
