"""Which leaves move: rules one by one, properties over random states, and readers with a shifting hot set."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from extensions.tiering.test.simulator import (
    AGE,
    COLD,
    FULL,
    HEAT,
    HOT,
    PINNED,
    REPLACED,
    Decider,
    Leaf,
    Scenario,
    make_state,
    simulate,
)

NEVER = float("-inf")


@pytest.fixture(scope="module")
def decide(tmp_path_factory: pytest.TempPathFactory) -> Decider:
    return Decider(Path(tmp_path_factory.mktemp("decision")))


def leaf(number: int, tier: int, size: int = 100, heat: float = 0, **more) -> Leaf:
    values = {"mode": HEAT, "pinned": COLD, "young_until": 0, "movable_from": NEVER} | more
    return Leaf(id=number, tier=tier, bytes=size, heat=heat, **values)


def used(leaves: list[Leaf]) -> int:
    return sum(each.bytes for each in leaves if each.tier == HOT)


def moved(decide: Decider, leaves: list[Leaf], **state) -> list[tuple[int, int]]:
    values = {"hot_bytes": 1000, "hot_used": used(leaves)} | state
    return [(move.id, move.target) for move in decide(make_state(**values), leaves)]


# ---- rules ---------------------------------------------------------------------------------------------


def test_what_is_read_goes_where_there_is_room_the_densest_first(decide: Decider) -> None:
    leaves = [leaf(1, COLD, heat=100), leaf(2, COLD, 50, heat=200), leaf(3, COLD, heat=1)]
    assert moved(decide, leaves) == [(2, HOT), (1, HOT)]  # 3 is hardly read


def test_promotions_stop_at_the_low_water_mark(decide: Decider) -> None:
    leaves = [leaf(n, COLD, heat=1000 - n) for n in range(20)]
    assert moved(decide, leaves) == [(n, HOT) for n in range(7)]


def test_a_leaf_replaces_those_that_are_less_than_half_as_hot(decide: Decider) -> None:
    full = [leaf(n, HOT, heat=100 + n) for n in range(7)]
    assert moved(decide, [*full, leaf(10, COLD, heat=199)]) == []
    assert moved(decide, [*full, leaf(10, COLD, heat=200)]) == [(0, COLD), (10, HOT)]


def test_a_large_leaf_replaces_several_or_none(decide: Decider) -> None:
    full = [leaf(0, HOT, heat=10), leaf(1, HOT, heat=500), *(leaf(n, HOT, heat=999) for n in range(2, 7))]  # fmt: skip
    assert moved(decide, [*full, leaf(10, COLD, 200, heat=900)]) == []
    assert moved(decide, [*full, leaf(10, COLD, 200, heat=2000)]) == [
        (0, COLD),
        (1, COLD),
        (10, HOT),
    ]


def test_above_the_high_water_mark_the_coldest_go_down_to_the_low_one(decide: Decider) -> None:
    leaves = [leaf(n, HOT, heat=n) for n in range(9)]
    assert moved(decide, leaves) == [(0, COLD), (1, COLD)]
    assert moved(decide, leaves[:8]) == []  # between the marks


def test_a_leaf_stays_for_its_residence_unless_the_disk_overflows(decide: Decider) -> None:
    nine = [leaf(n, HOT, heat=n, movable_from=10 if n == 0 else NEVER) for n in range(9)]
    assert moved(decide, nine) == [(1, COLD), (2, COLD)]
    ten = [leaf(n, HOT, heat=n, movable_from=10) for n in range(10)]
    assert moved(decide, ten) == [(0, COLD), (1, COLD), (2, COLD)]


def test_age_and_the_administrator_come_before_readers(decide: Decider) -> None:
    full = [leaf(n, HOT, heat=1000 + n) for n in range(7)]
    young = leaf(20, COLD, mode=AGE, young_until=1)
    assert moved(decide, [*full, young]) == [(0, COLD), (20, HOT)]
    assert moved(decide, [young], now=1) == []
    assert moved(decide, [leaf(21, HOT, mode=AGE, young_until=1)], now=2) == [(21, COLD)]
    assert moved(decide, [leaf(22, COLD, mode=PINNED, pinned=HOT)]) == [(22, HOT)]
    assert moved(decide, [leaf(23, HOT, 900, mode=PINNED, pinned=HOT)]) == []
    assert moved(decide, [leaf(24, HOT, heat=1e9, mode=PINNED, movable_from=9)]) == [(24, COLD)]


def test_the_kill_switch_and_lagging_replicas_stop_all_moves(decide: Decider) -> None:
    leaves = [leaf(n, HOT, heat=n) for n in range(9)]
    assert moved(decide, leaves, enabled=False) == []
    assert moved(decide, leaves, replicas_lag=True) == []


def test_moves_end_with_the_budget(decide: Decider) -> None:
    leaves = [leaf(n, COLD, heat=1000) for n in range(5)]
    assert len(moved(decide, leaves, budget=0)) == 0
    assert len(moved(decide, leaves, budget=1)) == 1  # a large leaf must not wait for ever
    assert len(moved(decide, leaves, budget=400)) == 2  # each is written, and its WAL
    assert len(moved(decide, leaves, budget=401)) == 3


# ---- properties ------------------------------------------------------------------------------------------


def make_random(dice: random.Random) -> tuple[dict, list[Leaf]]:
    leaves = []
    for number in range(dice.randrange(60)):
        leaves.append(
            leaf(
                number,
                dice.choice((HOT, COLD)),
                dice.choice((0, 1, 30, 100, 250)),
                dice.choice((0, 1, 50, dice.random() * 1000)),
                mode=dice.choice((PINNED, AGE, HEAT, HEAT, HEAT)),
                pinned=dice.choice((HOT, COLD)),
                young_until=dice.randrange(-5, 10),
                movable_from=dice.randrange(-5, 3),
            )
        )
    state = {
        "hot_bytes": dice.randrange(1, 4000),
        "hot_used": used(leaves) + dice.choice((0, 0, 200)),
        "budget": dice.choice((1 << 60, dice.randrange(3000))),
    }
    return state, leaves


def copy_of(leaves: list[Leaf]) -> list[Leaf]:
    return [Leaf.from_buffer_copy(each) for each in leaves]


@pytest.mark.parametrize("seed", range(300))
def test_decisions_keep_their_promises(decide: Decider, seed: int) -> None:
    dice = random.Random(seed)
    state, leaves = make_random(dice)
    moves = decide(make_state(**state), copy_of(leaves))

    shuffled = copy_of(leaves)
    dice.shuffle(shuffled)
    again = decide(make_state(**state), shuffled)
    assert [bytes(move) for move in again] == [bytes(move) for move in moves]

    by_id = {each.id: each for each in leaves}
    assert len({move.id for move in moves}) == len(moves)
    now_used, capacity, written, previous = state["hot_used"], state["hot_bytes"], 0, None
    for move in moves:
        each = by_id[move.id]
        assert (move.source, move.target) == (each.tier, 1 - each.tier)
        assert each.mode == PINNED or each.movable_from <= 0 or move.reason == FULL
        assert each.mode != PINNED or each.pinned == move.target
        assert written < state["budget"] or previous == REPLACED
        previous = move.reason
        written += 2 * each.bytes
        now_used += each.bytes if move.target == HOT else -each.bytes
        if move.target == HOT:
            assert now_used <= capacity * (0.85 if each.mode == PINNED else 0.75)
            assert each.mode != HEAT or each.heat >= each.bytes * 0.1


@pytest.mark.parametrize("seed", range(300))
def test_without_new_reads_moves_come_to_an_end(decide: Decider, seed: int) -> None:
    """Even without residence no two leaves take turns."""
    state, leaves = make_random(random.Random(seed))
    state["budget"] = 1 << 60
    by_id = {each.id: each for each in leaves}
    for each in leaves:
        each.movable_from = NEVER
    for _ in range(5):
        moves = decide(make_state(**state), copy_of(leaves))
        if not moves:
            return
        for move in moves:
            each = by_id[move.id]
            each.tier = move.target
            state["hot_used"] += each.bytes if move.target == HOT else -each.bytes
    raise AssertionError([(move.id, move.target, move.reason) for move in moves])


# ---- readers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shifted", [0.1, 0.2, 0.3])
def test_a_shifting_hot_set_is_followed_nearly_as_by_an_oracle(
    decide: Decider, shifted: float
) -> None:
    found = simulate(decide, Scenario(shifted=shifted, seed=7))
    assert found.hit_ratio >= 0.95
    assert found.moved_ratio <= 1.5
    assert found.hasty == 0
    assert found.most_used <= 0.85
