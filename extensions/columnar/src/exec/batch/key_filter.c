/*
 * key_filter.c
 *		Which parts of a range have keys; whether it is worth asking for single ones.
 */
#include "exec/batch/key_filter.h"

/* So many rows are asked for before it is known how many are left out. */
#define SAMPLE_ROWS 8192

/* To keep a row costs a few times as much as to look one up. */
#define KEPT_SHARE 0.75

void
key_zones_begin(KeyZones *zones, int64 low, int64 high)
{
	uint64 range = (uint64) high - (uint64) low;

	Assert(low <= high);
	zones->low = low;
	zones->high = high;
	zones->shift = 0;
	while (range >> zones->shift >= KEY_ZONES)
		zones->shift++;
	memset(zones->bits, 0, sizeof(zones->bits));
}

/* Is one of the bits first .. last set? */
static bool
any_bit(const uint64 *bits, uint64 first, uint64 last)
{
	uint64 begin = PG_UINT64_MAX << (first % 64);
	uint64 end = PG_UINT64_MAX >> (63 - last % 64);

	if (first / 64 == last / 64)
		return (bits[first / 64] & begin & end) != 0;
	if ((bits[first / 64] & begin) != 0 || (bits[last / 64] & end) != 0)
		return true;
	for (uint64 i = first / 64 + 1; i < last / 64; i++)
		if (bits[i] != 0)
			return true;
	return false;
}

bool
key_zones_may_hold(const KeyZones *zones, int64 low, int64 high)
{
	if (zones == NULL)
		return true;
	low = Max(low, zones->low);
	high = Min(high, zones->high);
	if (low > high)
		return false;
	return any_bit(zones->bits, ((uint64) low - (uint64) zones->low) >> zones->shift,
				   ((uint64) high - (uint64) zones->low) >> zones->shift);
}

/*
 * Let s be the share of rows that the filter leaves, f that of the look-ups that are next, all
 * look-ups being equally dear.  A row costs 1 + s + s * f with the filter in front, 1 + f without.
 */
bool
key_filter_is_worth(const KeyFilter *filter, const KeyRate *next)
{
	double left;
	double passed;

	if (filter->rate.asked < SAMPLE_ROWS)
		return true;
	left = (double) filter->rate.passed / (double) filter->rate.asked;
	if (next == NULL)
		return left < KEPT_SHARE;
	passed = next->asked == 0 ? 1 : (double) next->passed / (double) next->asked;
	return left * (1 + passed) < passed;
}
