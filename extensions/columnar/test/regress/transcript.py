"""What a test of PostgreSQL's own suite printed, cut into the results of its statements, compared.

psql echoes the script (-a) between the results, so a transcript is the lines of the script in
their order with output between them.  Cutting two transcripts by their one script puts the results
of each statement side by side, whatever was printed before.

Isolation tests do not print their script; they are cut into permutations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

COPY_DATA = re.compile(r"\bfrom\s+(stdin|pstdin)\b", re.IGNORECASE)
# EXPLAIN, or a function of the suite that returns a plan without its changing numbers
PLAN = re.compile(r"^explain\b|\bexplain_\w+\s*\(", re.IGNORECASE)
PLAN_HEADER = re.compile(r"^\s*(QUERY PLAN|explain_\w+)\s*$", re.MULTILINE)
ORDERED = re.compile(r"\border\s+by\b", re.IGNORECASE)
COMMENT = re.compile(r"--.*$", re.MULTILINE)
FAILURE = re.compile(r"^(ERROR|FATAL|PANIC): |^server closed the connection", re.MULTILINE)

# The results by the place of their statement: its last line in the script, or the permutation.
Results = dict[int, str]


class Kind(Enum):
    """How two results of one statement differ."""

    PLAN = "plan"  # it shows a plan
    ORDER = "order"  # the same lines in another order, and the statement asks for none
    OTHER = "other"


@dataclass(frozen=True)
class Difference:
    kind: Kind
    statement: str
    expected: str
    got: str


# ---- cutting -------------------------------------------------------------------------------------


def mark_silent(script: str) -> list[tuple[str, bool]]:
    """The lines of a script, each with whether psql may keep silent about it: data, empty lines."""
    lines = []
    in_data = False
    for line in script.splitlines():
        lines.append((line, in_data or line == ""))
        if in_data:
            in_data = line != r"\."
        elif COPY_DATA.search(COMMENT.sub("", line)):
            in_data = True
    return lines


def cut(script: str, transcript: str) -> Results:
    """The results in a transcript of this script.

    A line of output that equals the script's next line is taken for its echo, and its echo for
    output then; as two transcripts are cut alike, and later lines are found again, no harm is done.
    """
    lines = mark_silent(script)
    results: dict[int, list[str]] = {}
    at = 0  # the script's next line
    for line in transcript.splitlines():
        echoed = at
        while echoed < len(lines) and lines[echoed][1] and lines[echoed][0] != line:
            echoed += 1
        if echoed < len(lines) and lines[echoed][0] == line:
            at = echoed + 1
        else:
            results.setdefault(at - 1, []).append(line)
    return {place: "\n".join(output) for place, output in results.items()}


def statement_at(script: str, place: int) -> str:
    """The statement that ends at this line of the script, without comments."""
    lines = script.splitlines()[: place + 1]
    first = place
    while first > 0 and not ends_statement(lines[first - 1]):
        first -= 1
    text = COMMENT.sub("", "\n".join(lines[first:])).strip()
    return text or "\n".join(lines[first:]).strip()


def ends_statement(line: str) -> bool:
    bare = COMMENT.sub("", line).rstrip()
    return bare.endswith(";") or bare.startswith("\\")


def cut_permutations(transcript: str) -> tuple[list[str], Results]:
    """The permutations of an isolation test, as their steps, and what each of them printed."""
    _, *permutations = re.split(r"^starting permutation: ", transcript, flags=re.MULTILINE)
    names, results = [], {}
    for place, text in enumerate(permutations):
        steps, _, output = text.partition("\n")
        names.append(steps.strip())
        results[place] = output.strip()
    return names, results


# ---- comparing -----------------------------------------------------------------------------------


def kind_of(statement: str, expected: str, got: str) -> Kind:
    failed = FAILURE.search(expected) or FAILURE.search(got)
    shows_plan = PLAN_HEADER.search(expected) and PLAN_HEADER.search(got)
    if not failed and (shows_plan or PLAN.search(statement)):
        return Kind.PLAN
    if sorted(expected.splitlines()) == sorted(got.splitlines()) and not ORDERED.search(statement):
        return Kind.ORDER
    return Kind.OTHER


def compare(script: str, expected: str, got: str) -> Iterator[Difference]:
    """The differences of two transcripts of one script, in the script's order."""
    left, right = cut(script, expected), cut(script, got)
    for place in sorted(left.keys() | right.keys()):
        one, other = left.get(place, ""), right.get(place, "")
        if one != other:
            statement = statement_at(script, place)
            yield Difference(kind_of(statement, one, other), statement, one, other)


def compare_permutations(expected: str, got: str) -> Iterator[Difference]:
    """The differences of two transcripts of an isolation test: none of them is of a known kind."""
    names, left = cut_permutations(expected)
    other_names, right = cut_permutations(got)
    if names != other_names:
        yield Difference(Kind.OTHER, "the permutations", "\n".join(names), "\n".join(other_names))
        return
    for place, name in enumerate(names):
        if left[place] != right[place]:
            yield Difference(Kind.OTHER, name, left[place], right[place])
