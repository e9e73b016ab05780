/*
 * tier_decision.h
 *		Which leaves of a worker move between its fast and its slow tablespace: a pure function.
 *
 * It knows neither PostgreSQL nor clocks, so that the simulator of test/ runs the same code.
 */
#ifndef STRATA_TIER_DECISION_H
#define STRATA_TIER_DECISION_H

#include <stdbool.h>
#include <stdint.h>

typedef enum Tier
{
	TIER_HOT,
	TIER_COLD
} Tier;

/* Who decides where a leaf belongs: the administrator, its age, or its readers. */
typedef enum TierMode
{
	TIER_MODE_PINNED,
	TIER_MODE_AGE,
	TIER_MODE_HEAT
} TierMode;

typedef enum TierReason
{
	TIER_REASON_PINNED,	  /* the administrator wants it there */
	TIER_REASON_AGE,	  /* it became too old, or is young */
	TIER_REASON_ROOM,	  /* it is read, and there is room */
	TIER_REASON_HOTTER,	  /* it is read more than what makes room for it */
	TIER_REASON_REPLACED, /* it makes room for another one */
	TIER_REASON_FULL	  /* the fast tablespace is nearly full */
} TierReason;

/* Times are in seconds since any one point in time, heat is in decayed bytes read. */
typedef struct TierLeaf
{
	uint32_t id;
	TierMode mode;
	Tier tier;	   /* where it is */
	Tier pinned;   /* where it shall be, if pinned */
	int64_t bytes; /* that a move brings to the other tablespace */
	double heat;
	double young_until;	 /* by age: from then on it is cold */
	double movable_from; /* last move + minimal residence; does not hold for pinned ones */
} TierLeaf;

typedef struct TierState
{
	bool enabled;	   /* the kill switch */
	bool replicas_lag; /* no moves until they have caught up */
	double now;
	int64_t hot_bytes; /* capacity of the fast tablespace */
	int64_t hot_used;  /* of it, by whatever it is */
	double high_water; /* parts of the capacity: above it leaves are demoted ... */
	double low_water;  /* ... until this; promotions fill up to it */
	double worth;	   /* heat per byte from which on a promotion pays */
	double hysteresis; /* how many times as hot a leaf must be as what makes room for it */
	int64_t
		budget; /* bytes that may be written now; the last promotion, with what makes room, may exceed it */
	double write_factor; /* bytes written for each byte moved: its WAL counts */
} TierState;

typedef struct TierMove
{
	uint32_t id;
	Tier from;
	Tier to;
	TierReason reason;
} TierMove;

/*
 * Decide, in O(n log n).  Sorts `leaves`; writes at most `count` moves to `moves`, in the order in which they
 * are to be made (what makes room comes first), and returns their number.  A leaf moves at most once.
 */
extern int tier_decide(const TierState *state, TierLeaf *leaves, int count, TierMove *moves);

extern const char *tier_reason_text(TierReason reason);

#endif
