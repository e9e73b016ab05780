"""The files of PostgreSQL's isolation tester: sessions with steps, and orders in which these are given."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""(?P<skip>\s+|\#[^\n]*) | \{(?P<sql>(?:[^{}]|\{[^{}]*\})*)\} | "(?P<quoted>[^"]*)" | (?P<word>[\w.-]+)
      | (?P<other>[(),*])""",
    re.VERBOSE,
)
KEYWORDS = frozenset({"setup", "teardown", "session", "step", "permutation"})


@dataclass
class SpecSession:
    name: str
    setup: str = ""
    teardown: str = ""
    steps: list[str] = field(default_factory=list)


@dataclass
class Spec:
    setups: list[str] = field(default_factory=list)
    teardown: str = ""
    sessions: list[SpecSession] = field(default_factory=list)
    steps: dict[str, tuple[int, str]] = field(default_factory=dict)  # session's number, SQL
    permutations: list[list[str]] = field(default_factory=list)

    def orders(self) -> list[list[str]]:
        """The orders that the file names, or all that keep the order within each session."""
        return self.permutations or list(interleave([session.steps for session in self.sessions]))


def interleave(lists: list[list[str]]) -> Iterator[list[str]]:
    if not any(lists):
        yield []
    for number, steps in enumerate(lists):
        if steps:
            rest = [*lists[:number], steps[1:], *lists[number + 1 :]]
            for tail in interleave(rest):
                yield [steps[0], *tail]


def tokens(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"cannot read {text[position : position + 40]!r}")
        position = match.end()
        if match.lastgroup != "skip":
            yield match.lastgroup, match[match.lastgroup]
    yield "end", ""


def parse(text: str) -> Spec:
    spec = Spec()
    items = list(tokens(text))
    at = 0
    while items[at][0] != "end":
        keyword = items[at][1]
        at += 1
        if keyword in ("setup", "teardown"):
            store(spec, keyword, items[at][1])
            at += 1
        elif keyword == "session":
            spec.sessions.append(SpecSession(items[at][1]))
            at += 1
        elif keyword == "step":
            name, sql = items[at][1], items[at + 1][1]
            spec.steps[name] = (len(spec.sessions) - 1, sql)
            spec.sessions[-1].steps.append(name)
            at += 2
        elif keyword == "permutation":
            at = read_permutation(spec, items, at)
        else:
            raise ValueError(f"unexpected {keyword!r}")
    return spec


def store(spec: Spec, keyword: str, sql: str) -> None:
    if spec.sessions:
        setattr(spec.sessions[-1], keyword, sql)
    elif keyword == "setup":
        spec.setups.append(sql)
    else:
        spec.teardown = sql


def read_permutation(spec: Spec, items: list[tuple[str, str]], at: int) -> int:
    """Names of steps; what is in parentheses says when the tester reports, which is left out."""
    order = []
    depth = 0
    while True:
        kind, value = items[at]
        if kind == "end" or (kind == "word" and value in KEYWORDS and depth == 0):
            spec.permutations.append(order)
            return at
        if kind == "other":
            depth += {"(": 1, ")": -1}.get(value, 0)
        elif depth == 0:
            order.append(value)
        at += 1
