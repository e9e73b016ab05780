/*
 * tier_decision.c
 *		Which leaves move: see tier_decision.h.
 *
 * Pinned leaves come first, then those with an age, and the rest of the fast tablespace belongs to the
 * leaves with most heat per byte.  That is a knapsack, filled greedily: leaves are small against
 * the tablespace.
 *
 * What keeps leaves from going to and fro:
 *
 *	- a leaf replaces others only if it is `hysteresis` times as hot, per byte, as each of them;
 *	- promotions fill the tablespace up to the low-water mark only, demotions for want of room begin above
 *	  the high-water mark: what is written in between moves nothing;
 *	- a leaf that has moved stays for its residence, unless the tablespace is about to overflow.
 *
 * A demotion without need is no gain, so cold leaves stay on the fast tablespace until somebody wants their place.
 */
#include "tier_decision.h"

#include <math.h>
#include <stdlib.h>

/* Above this part of the capacity no residence is respected: a full disk stops all writes. */
#define OVERFLOW 0.95

typedef struct Decision
{
	const TierState *state;
	TierLeaf *leaves; /* most wanted on the fast tablespace first */
	int count;
	TierMove *moves;
	int nmoves;
	double used;   /* of the fast tablespace, after the moves so far */
	double budget; /* left after them */
	int victim;	   /* leaves from here on have been looked at as victims */
} Decision;

static double
density(const TierLeaf *leaf)
{
	return leaf->bytes > 0 ? leaf->heat / (double) leaf->bytes : 0;
}

/* Pinned ones, then by age the youngest, then by heat the densest; ties by id, so that the result is one. */
static int
compare_leaves(const void *first, const void *second)
{
	const TierLeaf *a = first;
	const TierLeaf *b = second;
	double left = a->mode == TIER_MODE_HEAT ? density(a) : a->young_until;
	double right = b->mode == TIER_MODE_HEAT ? density(b) : b->young_until;

	if (a->mode != b->mode)
		return a->mode < b->mode ? -1 : 1;
	if (a->mode != TIER_MODE_PINNED && left != right)
		return left > right ? -1 : 1;
	return a->id < b->id ? -1 : a->id > b->id;
}

static bool
is_movable(const Decision *decision, const TierLeaf *leaf)
{
	return leaf->mode == TIER_MODE_PINNED || leaf->movable_from <= decision->state->now;
}

static bool
has_budget(const Decision *decision)
{
	return decision->budget > 0;
}

static void
move(Decision *decision, TierLeaf *leaf, TierReason reason)
{
	Tier to = leaf->tier == TIER_HOT ? TIER_COLD : TIER_HOT;

	decision->moves[decision->nmoves++] = (TierMove){leaf->id, leaf->tier, to, reason};
	decision->used += (double) (to == TIER_HOT ? leaf->bytes : -leaf->bytes);
	decision->budget -= (double) leaf->bytes * decision->state->write_factor;
	leaf->tier = to;
	leaf->movable_from = decision->state->now + 1; /* not once more now */
}

/* Where a leaf belongs that no reader decides about. */
static Tier
ruled_tier(const Decision *decision, const TierLeaf *leaf)
{
	if (leaf->mode == TIER_MODE_PINNED)
		return leaf->pinned;
	return leaf->young_until > decision->state->now ? TIER_HOT : TIER_COLD;
}

static TierReason
rule_reason(const TierLeaf *leaf)
{
	return leaf->mode == TIER_MODE_PINNED ? TIER_REASON_PINNED : TIER_REASON_AGE;
}

static bool
is_above(const Decision *decision, double part)
{
	return decision->used > part * (double) decision->state->hot_bytes;
}

static bool
has_room(const Decision *decision, double bytes, double part)
{
	return decision->used + bytes <= part * (double) decision->state->hot_bytes;
}

/* Leaves that rules want cold, the oldest first. */
static void
demote_ruled(Decision *decision)
{
	for (int i = decision->count - 1; i >= 0 && has_budget(decision); i--)
	{
		TierLeaf *leaf = &decision->leaves[i];

		if (leaf->mode != TIER_MODE_HEAT && leaf->tier == TIER_HOT &&
			ruled_tier(decision, leaf) == TIER_COLD && is_movable(decision, leaf))
			move(decision, leaf, rule_reason(leaf));
	}
}

/* Above the high-water mark: the least wanted, down to the low-water mark. */
static void
demote_for_room(Decision *decision)
{
	bool overflows = is_above(decision, OVERFLOW);

	if (!is_above(decision, decision->state->high_water))
		return;
	for (int i = decision->count - 1; i >= 0 && has_budget(decision); i--)
	{
		TierLeaf *leaf = &decision->leaves[i];

		if (!is_above(decision, decision->state->low_water))
			return;
		if (leaf->mode != TIER_MODE_PINNED && leaf->tier == TIER_HOT &&
			(overflows || is_movable(decision, leaf)))
			move(decision, leaf, TIER_REASON_FULL);
	}
}

/*
 * Have the coldest leaves make room, of those that are ruled by heat and at most so dense.  Either there is room
 * afterwards, or nothing has changed.
 */
static bool
make_room(Decision *decision, double bytes, double part, double most_density)
{
	double freed = 0;
	int last = decision->victim;

	while (!has_room(decision, bytes - freed, part))
	{
		const TierLeaf *leaf;

		if (--last < 0)
			return false;
		leaf = &decision->leaves[last];
		if (leaf->mode != TIER_MODE_HEAT || density(leaf) > most_density)
			return false;
		if (leaf->tier == TIER_HOT && is_movable(decision, leaf))
			freed += (double) leaf->bytes;
	}
	while (decision->victim > last)
	{
		TierLeaf *leaf = &decision->leaves[--decision->victim];

		if (leaf->tier == TIER_HOT && is_movable(decision, leaf))
			move(decision, leaf, TIER_REASON_REPLACED);
	}
	return true;
}

/* Leaves that rules want hot, the pinned and the youngest first; readers' leaves make room for them. */
static void
promote_ruled(Decision *decision)
{
	for (int i = 0; i < decision->count && has_budget(decision); i++)
	{
		TierLeaf *leaf = &decision->leaves[i];
		double part = leaf->mode == TIER_MODE_PINNED ? decision->state->high_water
													 : decision->state->low_water;

		if (leaf->mode == TIER_MODE_HEAT)
			return;
		if (leaf->tier == TIER_COLD && ruled_tier(decision, leaf) == TIER_HOT &&
			is_movable(decision, leaf) && make_room(decision, (double) leaf->bytes, part, INFINITY))
			move(decision, leaf, rule_reason(leaf));
	}
}

/* The densest cold leaves, into free room, or in place of others. */
static void
promote_hot(Decision *decision)
{
	const TierState *state = decision->state;
	bool may_replace = true;

	for (int i = 0; i < decision->count && has_budget(decision); i++)
	{
		TierLeaf *leaf = &decision->leaves[i];
		double heat = density(leaf);

		if (leaf->mode != TIER_MODE_HEAT || leaf->tier == TIER_HOT || !is_movable(decision, leaf))
			continue;
		if (heat < state->worth || i >= decision->victim)
			return;
		if (has_room(decision, (double) leaf->bytes, state->low_water))
			move(decision, leaf, TIER_REASON_ROOM);
		else if (may_replace)
		{
			may_replace = make_room(decision, (double) leaf->bytes, state->low_water,
									heat / state->hysteresis);
			if (may_replace)
				move(decision, leaf, TIER_REASON_HOTTER);
		}
	}
}

int
tier_decide(const TierState *state, TierLeaf *leaves, int count, TierMove *moves)
{
	Decision decision = {
		.state = state,
		.leaves = leaves,
		.count = count,
		.moves = moves,
		.used = (double) state->hot_used,
		.budget = (double) state->budget,
		.victim = count,
	};

	if (!state->enabled || state->replicas_lag)
		return 0;
	qsort(leaves, (size_t) count, sizeof(TierLeaf), compare_leaves);
	demote_ruled(&decision);
	demote_for_room(&decision);
	promote_ruled(&decision);
	promote_hot(&decision);
	return decision.nmoves;
}

const char *
tier_reason_text(TierReason reason)
{
	switch (reason)
	{
		case TIER_REASON_PINNED:
			return "pinned";
		case TIER_REASON_AGE:
			return "age";
		case TIER_REASON_ROOM:
			return "read, and there is room";
		case TIER_REASON_HOTTER:
			return "read more than what makes room";
		case TIER_REASON_REPLACED:
			return "makes room for what is read more";
		case TIER_REASON_FULL:
			return "tablespace nearly full";
	}
	return "unknown";
}
