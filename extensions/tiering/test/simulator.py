"""Readers with a shifting hot set, and what tier_decide() makes of their heat: `python extensions/tiering/test/simulator.py`.

One worker, whose leaves are read by queries: which leaf a query reads follows Zipf's law, over an order that
changes at every shift.  Now and then somebody reads everything.  The heat is that of the real store:
the bytes that a query reads of a leaf, divided by the square root of the number of leaves it reads,
decaying by half in each half-life.  Every few minutes tier_decide() sees heat, sizes and places, nothing else.

The oracle knows how often each leaf will be read until the next shift, and has moved what is worth it
the moment a shift happens: a bound, not a competitor.
"""

from __future__ import annotations

import ctypes
import random
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src"
HOT, COLD = 0, 1
PINNED, AGE, HEAT = 0, 1, 2
REPLACED, FULL = 4, 5


class Leaf(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_uint32),
        ("mode", ctypes.c_int),
        ("tier", ctypes.c_int),
        ("pinned", ctypes.c_int),
        ("bytes", ctypes.c_int64),
        ("heat", ctypes.c_double),
        ("young_until", ctypes.c_double),
        ("movable_from", ctypes.c_double),
    )


class State(ctypes.Structure):
    _fields_ = (
        ("enabled", ctypes.c_bool),
        ("replicas_lag", ctypes.c_bool),
        ("now", ctypes.c_double),
        ("hot_bytes", ctypes.c_int64),
        ("hot_used", ctypes.c_int64),
        ("high_water", ctypes.c_double),
        ("low_water", ctypes.c_double),
        ("worth", ctypes.c_double),
        ("hysteresis", ctypes.c_double),
        ("budget", ctypes.c_int64),
        ("write_factor", ctypes.c_double),
    )


class Move(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_uint32),
        ("source", ctypes.c_int),
        ("target", ctypes.c_int),
        ("reason", ctypes.c_int),
    )


class Decider:
    """tier_decide(), compiled into a library of its own."""

    def __init__(self, directory: Path):
        library = directory / "tier_decision.so"
        command = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC"]
        subprocess.run(
            [*command, "-o", library, SOURCES / "tier_decision.c", "-lm"], check=True, text=True
        )
        self.library = ctypes.CDLL(str(library))

    def __call__(self, state: State, leaves: list[Leaf]) -> list[Move]:
        array = (Leaf * len(leaves))(*leaves)
        moves = (Move * len(leaves))()
        count = self.library.tier_decide(ctypes.byref(state), array, len(leaves), moves)
        return moves[:count]


def make_state(**changes) -> State:
    """As the settings are by default."""
    values = {
        "enabled": True,
        "replicas_lag": False,
        "now": 0,
        "hot_bytes": 0,
        "hot_used": 0,
        "high_water": 0.85,
        "low_water": 0.75,
        "worth": 0.1,
        "hysteresis": 2,
        "budget": 1 << 62,
        "write_factor": 2,
    }
    return State(**(values | changes))


HOUR = 3600.0
MB = 1 << 20


@dataclass
class Scenario:
    leaves: int = 400
    exponent: float = 1.1  # of Zipf's law
    hot_part: float = 0.2  # capacity of the fast tablespace, of all bytes
    queries: int = 400  # in each step
    step: float = 600  # seconds between decisions
    shift: float = 24 * HOUR
    shifted: float = 0.2  # part of the most read leaves that others replace at a shift
    days: int = 8
    half_life: float = 5 * HOUR
    residence: float = 6 * HOUR
    scans: float = 6 * HOUR  # how often everything is read
    bytes_per_second: float = 50 * MB
    settings: dict = field(default_factory=dict)  # of the state
    seed: int = 1


@dataclass
class Outcome:
    read: float = 0
    hit: float = 0
    oracle_hit: float = 0
    moved: float = 0
    oracle_moved: float = 0
    moves: int = 0
    hasty: int = 0  # moves of a leaf within its residence
    most_used: float = 0  # of the capacity
    timeline: list[tuple[float, float, float]] = field(default_factory=list)

    @property
    def hit_ratio(self) -> float:
        """Of the oracle's."""
        return self.hit / self.oracle_hit

    @property
    def moved_ratio(self) -> float:
        return self.moved / self.oracle_moved


def best_set(rates: list[float], sizes: list[int], capacity: float) -> set[int]:
    """Greedy by reads per byte; what each leaf is read is its rate times its size."""
    chosen: set[int] = set()
    for leaf in sorted(range(len(rates)), key=lambda leaf: -rates[leaf]):
        if rates[leaf] > 0 and sizes[leaf] <= capacity:
            chosen.add(leaf)
            capacity -= sizes[leaf]
    return chosen


def simulate(decide: Decider, scenario: Scenario) -> Outcome:
    dice = random.Random(scenario.seed)
    outcome = Outcome()
    count = scenario.leaves
    sizes = [int(dice.lognormvariate(0, 0.5) * 100 * MB) for _ in range(count)]
    capacity = int(sum(sizes) * scenario.hot_part)
    zipf = [1 / rank**scenario.exponent for rank in range(1, count + 1)]
    order = list(range(count))  # leaves, the most read first
    dice.shuffle(order)
    tiers = [COLD] * count
    moved_at = [float("-inf")] * count
    heat = [0.0] * count
    oracle: set[int] = set()
    budget = 0.0
    steps = int(scenario.days * 24 * HOUR / scenario.step)
    decay = 0.5 ** (scenario.step / scenario.half_life)

    for step in range(steps):
        now = step * scenario.step
        if now % scenario.shift == 0:
            if step > 0:
                top = int(count * scenario.hot_part)
                for place in dice.sample(range(top), int(top * scenario.shifted)):
                    other = dice.randrange(top, count)
                    order[place], order[other] = order[other], order[place]
            rates = [0.0] * count
            for rank, leaf in enumerate(order):
                rates[leaf] = zipf[rank]
            wanted = best_set(rates, sizes, make_state().low_water * capacity)
            outcome.oracle_moved += sum(sizes[leaf] for leaf in wanted ^ oracle)
            oracle = wanted

        reads = [0] * count
        for leaf in dice.choices(order, weights=zipf, k=scenario.queries):
            reads[leaf] += 1
        heat = [h * decay + times * size for h, times, size in zip(heat, reads, sizes, strict=True)]
        if now % scenario.scans == 0:
            heat = [h + size / count**0.5 for h, size in zip(heat, sizes, strict=True)]
        read = sum(times * size for times, size in zip(reads, sizes, strict=True))
        hit = sum(reads[leaf] * sizes[leaf] for leaf in range(count) if tiers[leaf] == HOT)
        oracle_hit = sum(reads[leaf] * sizes[leaf] for leaf in oracle)
        outcome.read += read
        outcome.hit += hit
        outcome.oracle_hit += oracle_hit
        outcome.timeline.append((now, hit / read, oracle_hit / read))

        budget = min(budget + scenario.bytes_per_second * scenario.step, 4 * capacity)
        used = sum(sizes[leaf] for leaf in range(count) if tiers[leaf] == HOT)
        leaves = [
            Leaf(leaf, HEAT, tiers[leaf], COLD, sizes[leaf], heat[leaf], 0,
                 moved_at[leaf] + scenario.residence)
            for leaf in range(count)
        ]  # fmt: skip
        state = make_state(
            now=now, hot_bytes=capacity, hot_used=used, budget=int(budget), **scenario.settings
        )
        for move in decide(state, leaves):
            outcome.hasty += now - moved_at[move.id] < scenario.residence
            tiers[move.id] = move.target
            moved_at[move.id] = now
            budget -= sizes[move.id] * state.write_factor
            outcome.moved += sizes[move.id]
            outcome.moves += 1
        used = sum(sizes[leaf] for leaf in range(count) if tiers[leaf] == HOT)
        outcome.most_used = max(outcome.most_used, used / capacity)
    return outcome


@dataclass
class WarmUp:
    """The scene of benchmarks/tiering.py: single rows of some leaves are read, all of which are cold at first."""

    leaves: int
    leaf_bytes: int
    read: int  # the leaves with rows that are read
    read_bytes: float  # by reading one row
    slow_reads: float  # per second, of a cold leaf
    fast_reads: float
    hot_bytes: int
    hot_used: int  # by other things
    interval: float  # seconds between rounds
    bytes_per_second: float

    def simulate(self, decide: Decider, seconds: float = 600) -> tuple[float, int]:
        """When all that is read is hot, in seconds, and how many moves have been made by then."""
        dice = random.Random(1)
        tiers, heat = [COLD] * self.leaves, [0.0] * self.leaves
        under_way: list[tuple[float, Move]] = []  # with their ends
        now, next_round, moves = 0.0, self.interval, 0
        while now < seconds:
            leaf = dice.randrange(self.read)
            heat[leaf] += self.read_bytes
            now += 1 / (self.fast_reads if tiers[leaf] == HOT else self.slow_reads)
            while under_way and under_way[0][0] <= now:
                _, move = under_way.pop(0)
                tiers[move.id] = move.target
                moves += 1
            if tiers.count(HOT) == self.read == sum(tier == HOT for tier in tiers[: self.read]):
                return now, moves
            if now >= next_round and not under_way:
                next_round = now + self.interval
                under_way = self.begin_round(decide, tiers, heat, now)
        return now, moves

    def begin_round(
        self, decide: Decider, tiers: list[int], heat: list[float], now: float
    ) -> list[tuple[float, Move]]:
        leaves = [
            Leaf(leaf, HEAT, tiers[leaf], COLD, self.leaf_bytes, heat[leaf], 0, float("-inf"))
            for leaf in range(self.leaves)
        ]
        state = make_state(
            now=now,
            hot_bytes=self.hot_bytes,
            hot_used=self.hot_used + tiers.count(HOT) * self.leaf_bytes,
            budget=int(self.bytes_per_second * self.interval),
        )
        each = self.leaf_bytes * state.write_factor / self.bytes_per_second
        return [(now + each * (n + 1), move) for n, move in enumerate(decide(state, leaves))]


def main() -> None:
    import tempfile

    decide = Decider(Path(tempfile.mkdtemp()))
    print(
        "exponent  shifted  seed  hits of the oracle's  bytes moved of the oracle's  moves  hasty"
    )
    for exponent in (0.8, 1.1, 1.4):
        for shifted in (0.1, 0.3):
            for seed in (1, 2, 3):
                scenario = Scenario(exponent=exponent, shifted=shifted, seed=seed)
                found = simulate(decide, scenario)
                print(
                    f"{exponent:8.1f} {shifted:8.1f} {seed:5d} {found.hit_ratio:21.3f}"
                    f" {found.moved_ratio:28.2f} {found.moves:6d} {found.hasty:6d}"
                )


if __name__ == "__main__":
    sys.exit(main())
