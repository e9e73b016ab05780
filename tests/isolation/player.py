"""Isolation specs: sessions whose steps are interleaved, on the cluster and on a plain PostgreSQL.

The files have the form of PostgreSQL's own isolation tests, with one block more:

    setup { ... }       both servers
    cluster { ... }     the coordinator only, after that: distributes the tables
    plain { ... }       the plain server only, after that: where its tables have to differ
    reset { ... }       both, before each permutation
    session s1
    setup { BEGIN; }    of the session
    step a { ... }
    permutation a b c   without any: all that keep each session's own order

A step runs until it is done or waits for a lock of another session; only then the next one
begins.  A step of a session that still waits is kept back until the session is free.  What came back, who waited, and when a waiting step ended, is the transcript.  Plain
PostgreSQL's transcript is the expected one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from tests.assert_same import has_top_level_order, run
from tests.cluster import Node

TIMEOUT = 20.0

TOKEN = re.compile(
    r"\s*(?:#[^\n]*\n|(?P<word>setup|cluster|plain|reset)\s*\{(?P<body>[^}]*)\}"
    r"|session\s+(?P<session>\w+)|step\s+(?P<step>\w+)\s*\{(?P<sql>[^}]*)\}"
    r"|permutation(?P<permutation>(?:[ \t]+\w+)+)|(?P<end>\Z))"
)


@dataclass
class Session:
    name: str
    setup: str = ""
    steps: dict[str, str] = field(default_factory=dict)


@dataclass
class Spec:
    name: str
    setup: str = ""
    cluster: str = ""
    plain: str = ""
    reset: str = ""
    sessions: list[Session] = field(default_factory=list)
    permutations: list[list[str]] = field(default_factory=list)

    def owner(self, step: str) -> Session:
        (session,) = [s for s in self.sessions if step in s.steps]
        return session

    def plays(self) -> list[list[str]]:
        return self.permutations or list(interleavings([list(s.steps) for s in self.sessions]))


def interleavings(sequences: list[list[str]]) -> Iterator[list[str]]:
    """All orders that keep the order within each sequence."""
    if not any(sequences):
        yield []
    for index, sequence in enumerate(sequences):
        if sequence:
            rest = [*sequences[:index], sequence[1:], *sequences[index + 1 :]]
            yield from ([sequence[0], *tail] for tail in interleavings(rest))


def parse(path: Path) -> Spec:
    spec = Spec(path.stem)
    text = path.read_text()
    position = 0
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"{path}: cannot read {text[position : position + 40]!r}")
        position = match.end()
        if match["session"]:
            spec.sessions.append(Session(match["session"]))
        elif match["step"]:
            spec.sessions[-1].steps[match["step"]] = match["sql"].strip()
        elif match["permutation"]:
            spec.permutations.append(match["permutation"].split())
        elif match["word"]:
            target = spec.sessions[-1] if spec.sessions and match["word"] == "setup" else spec
            setattr(target, match["word"], match["body"].strip())
        elif match["end"] is not None:
            break
    return spec


class Actor:
    """A session on one server, and the step that it runs."""

    def __init__(self, connection: psycopg.Connection, pool: ThreadPoolExecutor):
        self.connection = connection
        self.pid = connection.info.backend_pid
        self.pool = pool
        self.step = ""
        self.sql = ""
        self.future: Future | None = None
        self.waiting = False

    def begin(self, step: str, sql: str) -> None:
        self.step, self.sql, self.waiting = step, sql, False
        self.future = self.pool.submit(run, self.connection, sql)

    def result(self) -> str:
        outcome = self.future.result()
        self.future = None
        if outcome.sqlstate:
            return f"error {outcome.sqlstate}"
        rows = outcome.rows if has_top_level_order(self.sql) else sorted(outcome.rows, key=str)
        return f"{outcome.tag} {rows if rows else ''}".strip()


class Stage:
    """The sessions of a spec on one server."""

    def __init__(self, spec: Spec, node: Node, blocked: str, search_path: str):
        self.spec = spec
        self.blocked = blocked
        self._stack = ExitStack()
        self.watcher = self._stack.enter_context(node.connect())
        self.control = self._stack.enter_context(node.connect())
        self.actors: dict[str, Actor] = {}
        self.transcript: list[str] = []
        self.control.execute(f"SET search_path = {search_path}")
        for session in spec.sessions:
            connection = self._stack.enter_context(node.connect())
            connection.execute(f"SET search_path = {search_path}; SET lock_timeout = '15s'")
            pool = self._stack.enter_context(ThreadPoolExecutor(1))
            self.actors[session.name] = Actor(connection, pool)

    def close(self) -> None:
        self._stack.close()

    def play(self, steps: list[str]) -> list[str]:
        self.transcript = []
        for session in self.spec.sessions:
            if session.setup:
                self.actors[session.name].connection.execute(session.setup)
        kept: list[str] = []
        for step in steps:
            kept = self._perform([*kept, step])
        end = time.monotonic() + TIMEOUT
        while kept or any(actor.future for actor in self.actors.values()):
            self._settle()
            kept = self._perform(kept)
            if time.monotonic() > end:
                raise AssertionError("\n".join(["these never end:", *kept, *self.transcript]))
        for actor in self.actors.values():
            actor.connection.execute("ROLLBACK")
        return self.transcript

    def _perform(self, steps: list[str]) -> list[str]:
        """Run the steps whose sessions are free, in order; those that are kept back."""
        kept: list[str] = []
        for step in steps:
            session = self.spec.owner(step)
            actor = self.actors[session.name]
            if actor.future is None and all(self.spec.owner(k) is not session for k in kept):
                actor.begin(step, session.steps[step])
                self._settle(step)
            else:
                kept.append(step)
        return kept

    def _settle(self, begun: str = "") -> None:
        """Until every session is done or waits; the step that has begun is written down first."""
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            running = [a for a in self.actors.values() if a.future is not None]
            finished = [a for a in running if a.future.done()]
            if all(self._is_blocked(a) for a in running if a not in finished):
                break
            time.sleep(0.002)
        else:
            raise AssertionError("\n".join(["neither done nor waiting:", *self.transcript]))
        for actor in sorted(running, key=lambda a: (a.step != begun, a.step)):
            if actor in finished:
                late = " (after its wait)" if actor.waiting else ""
                self.transcript.append(f"{actor.step}{late}: {actor.sql} -> {actor.result()}")
            elif not actor.waiting:
                actor.waiting = True
                self.transcript.append(f"{actor.step}: {actor.sql} -> waits")

    def _is_blocked(self, actor: Actor) -> bool:
        return self.watcher.execute(self.blocked, (actor.pid,)).fetchone()[0]


def play_spec(path: Path, coordinator: Node, plain: Node) -> int:
    """Every permutation does the same on both; their number."""
    spec = parse(path)
    schema = f"isolation_{spec.name}"
    stages = []
    try:
        for node, blocked in (
            (plain, "SELECT cardinality(pg_blocking_pids(%s)) > 0"),
            (
                coordinator,
                "SELECT EXISTS (SELECT FROM strata.lock_waits WHERE waiting_session = %s)",
            ),
        ):
            node.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")
            stages.append(Stage(spec, node, blocked, f"{schema}, public, strata"))
        theirs, ours = stages
        plays = spec.plays()
        for stage in stages:
            stage.control.execute(spec.setup)
        ours.control.execute(spec.cluster)
        theirs.control.execute(spec.plain)
        for steps in plays:
            if spec.reset:
                for stage in stages:
                    stage.control.execute(spec.reset)
            expected, actual = theirs.play(steps), ours.play(steps)
            assert actual == expected, "\n".join(
                [" ".join(steps), "cluster:", *actual, "", "plain:", *expected]
            )
    finally:
        for stage in stages:
            stage.close()
        for node in (plain, coordinator):
            node.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    return len(plays)
