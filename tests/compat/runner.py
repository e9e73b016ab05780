"""Runs a script on both servers, and keeps their states alike.

The cluster goes first.  Where it fails, plain runs the statement in a transaction that is undone, so that
what follows meets the same state; what is left of a transaction that only one of both would have aborted
is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from psycopg import pq

from tests.compat.compare import DIFFERENT, SAME, compare
from tests.compat.script import Meta, Script, Statement, interpolate, split_arguments
from tests.compat.session import Result, Session
from tests.compat.variants import Distributor

IDLE = pq.TransactionStatus.IDLE
INERROR = pq.TransactionStatus.INERROR
LEFT_OUT = "left out"
CRASH = "crash"

NOT_IN_TRANSACTION = "25001"
CONTROL = re.compile(
    r"(\s|--[^\n]*\n|/\*.*?\*/)*(begin|start|commit|end|rollback|abort|savepoint|release|prepare\s+transaction)\b",
    re.IGNORECASE | re.DOTALL,
)
TRUE = re.compile(r"(t|tr|tru|true|y|ye|yes|on|1)$", re.IGNORECASE)


@dataclass
class Finding:
    """A statement that is not the same."""

    file: str
    line: int
    kind: str
    text: str
    detail: str
    sqlstate: str | None
    cause: str = ""

    def __str__(self) -> str:
        known = f" ({self.cause})" if self.cause else ""
        return f"{self.file}:{self.line}: {self.kind}{known}\n{self.text}\n{self.detail}"


@dataclass
class Report:
    """What became of the statements of a script."""

    file: str
    counts: Counter = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)


class Runner:
    """A script in two sessions."""

    def __init__(
        self, file: str, text: str, ours: Session, plain: Session, distributor: Distributor
    ):
        self.script = Script(text)
        self.ours = ours
        self.plain = plain
        self.distributor = distributor
        self.exact = distributor.variant.exact
        self.report = Report(file)
        self.branches: list[str] = []  # of \if: "taken", "waiting", "done"
        self.apart = False  # the rest of this transaction is a consequence

    def run(self) -> Report:
        while (item := self.script.next()) is not None:
            if isinstance(item, Meta):
                if item.name in ("q", "quit"):
                    if self.active():
                        break
                    continue
                self.run_meta(item)
            elif self.active():
                self.run_statement(item)
        return self.report

    def active(self) -> bool:
        return all(branch == "taken" for branch in self.branches)

    # ---- meta commands ----------------------------------------------------------------------------

    def run_meta(self, meta: Meta) -> None:
        if meta.name in ("if", "elif", "else", "endif"):
            self.run_branch(meta)
            return
        if not self.active():
            return
        handler = getattr(self, f"meta_{meta.name}", None)
        if handler is None:
            self.report.counts["meta"] += 1
            return
        handler(meta)

    def run_branch(self, meta: Meta) -> None:
        condition = "".join(split_arguments(meta.arguments, self.plain.variables)[:1])
        holds = bool(TRUE.match(condition))
        if meta.name == "if":
            self.branches.append("taken" if holds else "waiting")
        elif meta.name == "endif":
            self.branches.pop()
        elif self.branches[-1] == "taken":
            self.branches[-1] = "done"
        elif self.branches[-1] == "waiting" and (meta.name == "else" or holds):
            self.branches[-1] = "taken"

    def meta_set(self, meta: Meta) -> None:
        for session in (self.ours, self.plain):
            name, *values = split_arguments(meta.arguments, session.variables) or [""]
            session.variables[name] = "".join(values)

    def meta_unset(self, meta: Meta) -> None:
        for session in (self.ours, self.plain):
            session.variables.pop(meta.arguments, None)

    def meta_getenv(self, meta: Meta) -> None:
        for session in (self.ours, self.plain):
            name, variable = meta.arguments.split()
            if variable in session.variables:
                session.variables[name] = session.variables[variable]

    def meta_c(self, meta: Meta) -> None:
        for session in (self.ours, self.plain):
            words = split_arguments(meta.arguments, session.variables)
            database, user = ([None if word == "-" else word for word in words] + [None, None])[:2]
            if database in ("regression", "postgres") and session.database == "strata":
                database = None if database == "regression" else database
            session.connect("strata" if database == "regression" else database, user)

    meta_connect = meta_c

    def meta_copy(self, meta: Meta) -> None:
        """\\copy reads and writes files here; those of regression tests are from and to the script."""
        match = re.match(
            r"(.*?)\s+(from|to)\s+(\S+)(.*)$", meta.arguments, re.IGNORECASE | re.DOTALL
        )
        if match is None or match[3].lower() not in ("stdin", "stdout"):
            if match and match[2].lower() == "from":
                path = split_arguments(match[3], self.plain.variables)[0]
                text = f"copy {match[1]} from stdin {match[4]}"
                if Path(path).exists():
                    self.both(meta.line, text, text, Path(path).read_bytes())
                    return
            self.report.counts["meta"] += 1
            return
        text = interpolate(f"copy {meta.arguments}", self.plain.variables)
        self.both(meta.line, text, text)

    # ---- statements -------------------------------------------------------------------------------

    def run_statement(self, statement: Statement) -> None:
        texts = [statement.text(session.variables) for session in (self.ours, self.plain)]
        if statement.sender == "gdesc":
            self.report.counts["meta"] += 1
            return
        ours, plain = self.both(statement.line, *texts, several=statement.several)
        if statement.sender == "gset":
            for session, results in ((self.ours, ours), (self.plain, plain)):
                keep_values(session, statement.arguments, results)
        if statement.sender == "gexec" and not (ours[-1].failed or plain[-1].failed):
            for mine, theirs in zip(values(ours[-1]), values(plain[-1]), strict=False):
                self.both(statement.line, mine, theirs)

    def both(
        self,
        line: int,
        ours_text: str,
        plain_text: str,
        data: bytes | None = None,
        several: bool = False,
    ) -> tuple[list[Result], list[Result]]:
        """Run a statement on both, compare, count, and bring both into one state."""
        before = self.plain.state
        if before == IDLE:
            self.apart = False
        ours, data = self.run_with_data(self.ours, ours_text, data)
        failed = any(result.failed for result in ours)
        notices = self.ours.notices
        if failed and before == IDLE and not (several or CONTROL.match(plain_text)):
            plain, undone = self.try_on_plain(plain_text, data)
        else:
            plain, undone = self.run_with_data(self.plain, plain_text, data)[0], True
        kind, detail = compare(plain_text, ours, plain, self.exact)
        if kind == SAME and self.exact and notices != self.plain.notices and not failed:
            kind, detail = DIFFERENT, f"notices: cluster {notices}\nplain {self.plain.notices}"
        if self.apart and before != IDLE:
            self.report.counts[LEFT_OUT] += 1
        else:
            self.count(line, kind, plain_text, detail, ours)
        if kind == SAME and not failed:
            self.distributor.follow([result.tag for result in ours])
        self.resynchronise(kind, undone)
        return ours, plain

    def count(self, line: int, kind: str, text: str, detail: str, ours: Sequence[Result]) -> None:
        self.report.counts[kind] += 1
        if kind != SAME:
            sqlstate = next((result.sqlstate for result in ours if result.failed), None)
            finding = Finding(self.report.file, line, kind, text, detail, sqlstate)
            self.report.findings.append(finding)

    def run_with_data(
        self, session: Session, text: str, data: bytes | None
    ) -> tuple[list[Result], bytes | None]:
        results = session.run(text)
        while session.copying:
            if data is None:
                data = self.script.copy_data()
            results += session.give(data)
        return results, data

    def try_on_plain(self, text: str, data: bytes | None) -> tuple[list[Result], bool]:
        """What plain says to a statement that the cluster did not accept, and whether it is undone."""
        self.plain.run("BEGIN")
        position = self.script.position
        plain, given = self.run_with_data(self.plain, text, data)
        if plain[-1].sqlstate == NOT_IN_TRANSACTION:
            self.plain.run("ROLLBACK")
            self.script.position = position
            return self.run_with_data(self.plain, text, given)[0], False
        if not any(result.failed for result in plain):
            deferred = self.plain.one("SET CONSTRAINTS ALL IMMEDIATE")
            if deferred.failed:
                plain = [deferred]
        if self.plain.state != IDLE:
            self.plain.run("ROLLBACK")
        return plain, True

    def resynchronise(self, kind: str, undone: bool) -> None:
        ours, plain = self.ours.state, self.plain.state
        if ours == plain:
            return
        self.apart = True
        if IDLE in (ours, plain):
            for session in (self.ours, self.plain):
                if session.state != IDLE:
                    session.run("ROLLBACK")
            return
        for session in (self.ours, self.plain):
            if session.state != INERROR:
                session.run("ROLLBACK TO SAVEPOINT compat_that_nobody_made")


def keep_values(session: Session, prefix: str, results: Sequence[Result]) -> None:
    result = results[-1]
    if result.failed or len(result.rows) != 1:
        return
    for name, value in zip(result.names, result.rows[0], strict=True):
        if value is None:
            session.variables.pop(prefix + name, None)
        else:
            session.variables[prefix + name] = value


def values(result: Result) -> list[str]:
    return [value for row in result.rows for value in row if value is not None]
