"""Plays: statements of several sessions in a fixed order, on heap and on columnar tables.

A play is lines of `session: statement`.  Each statement runs in its session's thread until it is
done or waits for a lock of another session; only then the next line begins.  What comes back, who
waits, and when a waiting statement ends, is the transcript, and heap's transcript is the oracle.
A line of a session that still waits is kept back until the session is free.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import psycopg

from extensions.columnar.test.twins import Side, Twins
from tests.assert_same import has_top_level_order

TIMEOUT = 20.0

# Longer than the lines of a play need to reach their locks, so that who waited first finds a deadlock.
SETTINGS = "SET deadlock_timeout = '500ms'; SET lock_timeout = '15s'"

Step = tuple[str, str]


class Actor:
    """A session of a play and the statement that it runs."""

    def __init__(self, name: str, side: Side, pool: ThreadPoolExecutor):
        self.name = name
        self.side = side
        self.pid = side.connection.info.backend_pid
        self.pool = pool
        self.statement = ""
        self.future: Future | None = None

    def begin(self, statement: str) -> None:
        self.statement = statement
        self.future = self.pool.submit(self.side.run, statement)

    @property
    def free(self) -> bool:
        return self.future is None

    @property
    def done(self) -> bool:
        """Has its statement ended without that being written down yet?"""
        return self.future is not None and self.future.done()

    def result(self) -> str:
        """What the statement did, in a line."""
        outcome = self.future.result()
        self.future = None
        if outcome.sqlstate:
            return f"{outcome.sqlstate} {outcome.message.splitlines()[0]}"
        rows = (
            outcome.rows if has_top_level_order(self.statement) else sorted(outcome.rows, key=str)
        )
        shown = " ".join("(" + ",".join("" if v is None else v for v in row) + ")" for row in rows)
        return f"{outcome.tag} {shown}".strip()


class Stage:
    """The sessions on one side; they are used by one play after the other."""

    def __init__(self, twins: Twins, method: str):
        self.twins = twins
        self.method = method
        self.transcript: list[str] = []
        self.actors: dict[str, Actor] = {}
        self._stack = ExitStack()
        self._watcher = self._stack.enter_context(twins.node.connect())

    def enter(self, names: Iterable[str]) -> None:
        """Have these sessions, each without transaction and with the same settings."""
        for name in names:
            if name not in self.actors:
                side = self.twins.open_side(self.method)
                self._stack.callback(side.connection.close)
                side.execute(SETTINGS)
                pool = self._stack.enter_context(ThreadPoolExecutor(1))
                self.actors[name] = Actor(name, side, pool)

    def leave(self) -> None:
        """End what the play left open."""
        self.transcript = []
        for actor in self.actors.values():
            if in_transaction(actor.side):
                actor.side.execute("ROLLBACK")
            actor.side.execute(
                "RESET enable_seqscan; RESET enable_indexscan; RESET enable_bitmapscan"
            )

    def close(self) -> None:
        for actor in self.actors.values():
            if not (actor.free or actor.done):
                self._watcher.execute("SELECT pg_terminate_backend(%s)", (actor.pid,))
        self._stack.close()

    def run(self, steps: Iterable[Step]) -> list[str]:
        lines: deque[Step] = deque()
        for step in steps:
            lines.append(step)
            self._perform_what_can_be(lines)
        end = time.monotonic() + TIMEOUT
        while lines or not all(actor.free for actor in self.actors.values()):
            self._settle()
            self._perform_what_can_be(lines)
            if time.monotonic() > end:
                stuck = [f"{a.name}: {a.statement}" for a in self.actors.values() if not a.free]
                raise AssertionError(
                    "\n".join(["these never end:", *stuck, "after:", *self.transcript])
                )
        return self.transcript

    def _perform_what_can_be(self, lines: deque[Step]) -> None:
        """Begin, in order, the lines whose session is free and has no earlier line kept back."""
        kept: deque[Step] = deque()
        while lines:
            name, statement = lines.popleft()
            actor = self.actors[name]
            if actor.free and all(other != name for other, _ in kept):
                actor.begin(statement)
                self.transcript.append(f"{name}: {statement}")
                self._settle()
            else:
                kept.append((name, statement))
        lines.extend(kept)

    def _settle(self) -> None:
        """Wait until every session is done or waits for another one; write down who is done."""
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            done = [actor for actor in self.actors.values() if actor.done]
            others = [actor for actor in self.actors.values() if not (actor.free or actor in done)]
            if all(self._is_blocked(actor) for actor in others):
                for actor in done:
                    self.transcript.append(f"{actor.name} -> {actor.result()}")
                return
            time.sleep(0.001)
        raise AssertionError("\n".join(["no end and no lock wait after:", *self.transcript]))

    def _is_blocked(self, actor: Actor) -> bool:
        """By another session of the play or a prepared transaction (0), not by a background worker."""
        blockers = [0, *(other.pid for other in self.actors.values())]
        cursor = self._watcher.execute(
            "SELECT pg_blocking_pids(%s) && %s::integer[]", (actor.pid, blockers)
        )
        return cursor.fetchone()[0]


def in_transaction(side: Side) -> bool:
    return side.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE


def stage_of(twins: Twins, method: str) -> Stage:
    """The side's stage, made at its first play."""
    if method not in twins.stages:
        twins.stages[method] = Stage(twins, method)
        twins.stack.callback(twins.stages[method].close)
    return twins.stages[method]


def parse(script: str) -> list[Step]:
    steps = []
    for line in script.strip().splitlines():
        name, _, statement = line.strip().partition(": ")
        steps.append((name, statement))
    return steps


def play(twins: Twins, setup: str, script: str | list[Step], final: str = "") -> list[str]:
    """Set up and play on both sides; equal transcripts and final rows; the transcript."""
    steps = parse(script) if isinstance(script, str) else script
    names = sorted({name for name, _ in steps})
    transcripts = []
    for side in twins.sides:
        side.execute(setup)
        stage = stage_of(twins, side.method)
        stage.enter(names)
        transcripts.append(stage.run(steps))
        stage.leave()
    expected, actual = transcripts
    if actual != expected and all(any("40P01" in line for line in t) for t in transcripts):
        return actual  # who of two is the victim depends on the machine's load, and all after it on the victim
    if actual != expected:
        raise AssertionError(
            "\n".join(["columnar:", *actual, "", "heap:", *expected, "", "setup:", setup])
        )
    if final:
        twins.same(final)
    return actual


def interleavings(*sessions: list[Step]) -> Iterator[list[Step]]:
    """All orders of the sessions' lines that keep each session's own order."""
    for order in merge_orders([len(steps) for steps in sessions]):
        queues = [iter(steps) for steps in sessions]
        yield [next(queues[n]) for n in order]


def merge_orders(counts: list[int]) -> Iterator[tuple[int, ...]]:
    if not any(counts):
        yield ()
        return
    for n, count in enumerate(counts):
        if count:
            rest = counts.copy()
            rest[n] -= 1
            for tail in merge_orders(rest):
                yield (n, *tail)


def waited(transcript: list[str], session: str) -> bool:
    """Did a statement of the session end only after another session's line?"""
    for number, line in enumerate(transcript):
        if line.startswith(f"{session}: ") and not transcript[number + 1].startswith(
            f"{session} -> "
        ):
            return True
    return False


def error_of(transcript: list[str], session: str) -> str | None:
    """SQLSTATE of the session's first error."""
    for line in transcript:
        name, arrow, rest = line.partition(" -> ")
        word = rest.split(" ")[0]
        if arrow and name == session and len(word) == 5 and any(c.isdigit() for c in word):
            return word
    return None
