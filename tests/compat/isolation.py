"""Runs the orders of an isolation file on plain PostgreSQL, and then in the same way on the cluster.

Plain says which steps wait, and after which others they go on; the cluster has to do the same.  A step that one
of both refuses ends the comparison of that order: what follows is a consequence.
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from psycopg import pq

from tests.cluster import Cluster, Node
from tests.compat.compare import DIFFERENT, NOT_SUPPORTED, REFUSED, SAME, compare
from tests.compat.runner import Finding, Report
from tests.compat.script import Script, Statement
from tests.compat.session import LostError, Result, Session
from tests.compat.spec import Spec, parse
from tests.compat.variants import VARIANTS, Distributor, Variant

PATIENCE = 15.0  # seconds for a step that must end
GLANCE = 0.25  # for one that must wait

SESSION_ENDED = "57P01"
BLOCKED = "SELECT pg_catalog.pg_isolation_test_session_is_blocked({pid}, '{{{others}}}')"


LAST_TABLE = "SELECT max(oid) FROM pg_catalog.pg_class"
TABLES_SINCE = """
SELECT oid::regclass FROM pg_catalog.pg_class WHERE oid > {first} AND relkind IN ('r', 'p')
   AND relnamespace = 'public'::regnamespace
"""


@dataclass
class Step:
    """One step of an order, and what became of it."""

    name: str
    session: int
    sql: str
    results: list[Result] = field(default_factory=list)
    begun: int = 0
    ended: int = -1  # after which step of the order; -1: never


class Order:
    """An order of steps on one server."""

    def __init__(
        self, node: Node, spec: Spec, names: Sequence[str], variant: Variant, last: int = 0
    ):
        self.spec = spec
        self.steps = [Step(name, *spec.steps[name]) for name in names]
        self.control = Session(node, {})
        self.distributor = Distributor(variant, self.control)
        self.distributor.last = last
        self.sessions: list[Session] = []
        self.waiting: list[Step] = []
        self.failure: Result | None = None  # of the setup
        self.may_fail = False  # as that of plain does
        self.first = self.control.one(LAST_TABLE).rows[0][0]

    def run(self, expected: Sequence[Step] | None = None) -> list[Step]:
        """All steps; `expected`: what plain did with them, without which the server is asked who waits."""
        try:
            self.prepare()
            if self.failure is not None and expected and not self.may_fail:
                return self.steps
            for number, step in enumerate(self.steps):
                self.give(number, step, expected[number] if expected else None)
                self.look(number, expected)
                if expected and expected[number].ended == number != step.ended:
                    return self.steps  # it waits where plain does not
            self.look(len(self.steps), expected, all_end=True)
        finally:
            self.end()
        return self.steps

    def prepare(self) -> None:
        for sql in self.spec.setups:
            self.setup(sql)
        self.sessions = [Session(self.control.node, {}) for _ in self.spec.sessions]
        for session, spec in zip(self.sessions, self.spec.sessions, strict=True):
            if spec.setup:
                self.note_failure(session.run(spec.setup))

    def setup(self, sql: str) -> None:
        for item in Script(sql):
            if isinstance(item, Statement):
                results = self.control.run(item.text({}))
                self.note_failure(results)
                self.distributor.follow([result.tag for result in results])

    def note_failure(self, results: Sequence[Result]) -> None:
        self.failure = self.failure or next((r for r in results if r.failed), None)

    def give(self, number: int, step: Step, plain: Step | None) -> None:
        session = self.sessions[step.session]
        for earlier in [other for other in self.waiting if other.session == step.session]:
            self.finish(earlier, number - 1)
        step.begun = number
        session.connection.send_query(step.sql.encode())
        self.waiting.append(step)
        must_wait = plain is not None and plain.ended != number
        end = time.monotonic() + (GLANCE if must_wait else PATIENCE)
        while not self.is_done(session) and time.monotonic() < end:
            if plain is None and self.is_blocked(session):
                return

    def is_done(self, session: Session) -> bool:
        """Waits for a moment."""
        if session.ended:
            return True
        if select.select([session.connection.socket], [], [], 0.02)[0]:
            session.take_in()
        return not session.connection.is_busy()

    def is_blocked(self, session: Session) -> bool:
        pids = [other.connection.backend_pid for other in self.sessions if other is not session]
        others = ",".join(map(str, pids))
        asked = BLOCKED.format(pid=session.connection.backend_pid, others=others)
        return self.control.one(asked).rows == [("t",)]

    def look(self, number: int, expected: Sequence[Step] | None, all_end: bool = False) -> None:
        """Take in what has ended; those that have ended on plain by now have to."""
        for step in list(self.waiting):
            session = self.sessions[step.session]
            due = all_end or (expected is not None and 0 <= expected[step.begun].ended <= number)
            end = time.monotonic() + (PATIENCE if due else 0)
            done = self.is_done(session)
            while not done and expected is None and not all_end and not self.is_blocked(session):
                done = self.is_done(session)
            while not done and time.monotonic() < end:
                done = self.is_done(session)
            if done:
                self.finish(step, number)

    def finish(self, step: Step, number: int) -> None:
        try:
            step.results = self.sessions[step.session].results()
        except LostError as lost:
            if not self.sessions[step.session].ended:
                raise
            step.results = [Result(sqlstate=SESSION_ENDED, message=str(lost))]
        step.ended = number
        self.waiting.remove(step)

    def end(self) -> None:
        for session, spec in zip(self.sessions, self.spec.sessions, strict=False):
            if session.state == pq.TransactionStatus.ACTIVE:
                session.connection.get_cancel().cancel()
                session.results()
            if spec.teardown and not session.ended:
                session.run(spec.teardown)
            session.close()
        if self.spec.teardown:
            self.control.run(self.spec.teardown)
        if self.control.state != pq.TransactionStatus.IDLE:
            self.control.run("ROLLBACK")
        for (table,) in self.control.one(TABLES_SINCE.format(first=self.first)).rows:
            self.control.run(f"DROP TABLE IF EXISTS {table} CASCADE")  # a teardown that failed
        self.control.close()


def run_spec(report: Report, text: str, cluster: Cluster, variant: Variant, last: int) -> int:
    """All orders of a file; the OID of the last table that was distributed."""
    spec = parse(text)
    for number, names in enumerate(spec.orders(), 1):
        plain = Order(cluster.plain, spec, names, VARIANTS["local"])
        expected = plain.run()
        order = Order(cluster.coordinator, spec, names, variant, last)
        order.may_fail = plain.failure is not None
        got = order.run(expected)
        last = order.distributor.last
        if order.failure is not None and plain.failure is None:
            count_setup(report, number, names, order.failure)
        else:
            compare_order(report, number, got, expected)
    return last


def count_setup(report: Report, number: int, names: Sequence[str], failure: Result) -> None:
    """The order cannot be run on the cluster, because of a statement of its setup."""
    kind = REFUSED if failure.sqlstate == NOT_SUPPORTED else DIFFERENT
    report.counts[kind] += 1
    detail = f"cluster: {failure}\nplain:   the setup succeeds"
    report.findings.append(
        Finding(report.file, number, kind, " ".join(names), detail, failure.sqlstate)
    )


def compare_order(report: Report, number: int, ours: Sequence[Step], plain: Sequence[Step]) -> None:
    names = " ".join(step.name for step in plain)
    for mine, theirs in zip(ours, plain, strict=True):
        kind, detail = compare(theirs.sql, mine.results, theirs.results, exact=False)
        if kind == SAME and mine.ended != theirs.ended:
            kind = DIFFERENT
            detail = f"ended after step: cluster {mine.ended}, plain {theirs.ended}"
        report.counts[kind] += 1
        if kind != SAME:
            sqlstate = next((result.sqlstate for result in mine.results if result.failed), None)
            text = f"{names}\n{mine.name}: {mine.sql.strip()}"
            report.findings.append(Finding(report.file, number, kind, text, detail, sqlstate))
            return
