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

COPY = re.compile(r"\bfrom\s+p?std(in|out)\b", re.IGNORECASE)
SILENCE = re.compile(r"\\set\s+ECHO\s+none")
SILENCE_ENDS = re.compile(r"\\set\s+ECHO\s+all")

# What ends a statement or may hide what does.
TOKEN = re.compile(
    r"""--[^\n]* | /\*.*?\*/ | \be'(?:\\.|''|[^'\\])*' | '[^']*' | "[^"]*"
    | (?P<quote>\$\w*\$).*?(?P=quote) | \\; | (?P<end>;) | (?P<command>\\[a-z][^\n]*)""",
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)
COMMENT = re.compile(r"--.*$", re.MULTILINE)
NOTHING = re.compile(r"(?:\s+|--[^\n]*|/\*.*?\*/)*", re.DOTALL)

# EXPLAIN, or a function of the suite that returns a plan without its changing numbers
PLAN = re.compile(r"^explain\b|\bexplain_\w+\s*\(", re.IGNORECASE)
PLAN_HEADER = re.compile(r"^\s*(QUERY PLAN|explain_\w+)\s*$", re.MULTILINE)
PLAN_TABLE = re.compile(r"^QUERY PLAN *\n-+\n.*?^\(\d+ rows?\)$", re.MULTILINE | re.DOTALL)
ORDERED = re.compile(r"\border\s+by\b", re.IGNORECASE)
NOTICE = re.compile(r"^.*NOTICE:  .*\n?", re.MULTILINE)
CONFLICT = "could not serialize access due to read/write dependencies"
FAILURE = re.compile(r"^(ERROR|FATAL|PANIC): |^server closed the connection", re.MULTILINE)

# Results by the place of their statement: the script's last line before them, or the permutation.
Results = dict[int, str]


class Kind(Enum):
    """How two results of one statement differ."""

    PLAN = "plan"  # it shows a plan
    ORDER = "order"  # the same lines in another order, and the statement asks for none
    TIES = "ties"  # the same with an ORDER BY, which may leave the order of some lines open
    NOTICE = "notice"  # the same but for notices
    CONFLICT = "conflict"  # more serialization failures, never fewer
    OTHER = "other"


@dataclass(frozen=True)
class Difference:
    kind: Kind
    statement: str
    expected: str
    got: str


# ---- cutting -------------------------------------------------------------------------------------


def skip_silent(lines: list[str], at: int) -> int:
    """Where the echo goes on after line `at`, if psql takes what follows for data, or is silent."""
    bare = COMMENT.sub("", lines[at])
    end = at + 1
    if SILENCE.match(bare):
        while end < len(lines) and not SILENCE_ENDS.match(lines[end]):
            end += 1
        return end + 1
    for _ in COPY.findall(bare):
        try:
            end = lines.index("\\.", end) + 1
        except ValueError:
            break
    return end


def cut(script: str, transcript: str) -> Results:
    """The results in a transcript of this script.

    A line of output that equals the script's next line is taken for its echo, and its echo for
    output then; as two transcripts are cut alike, and later lines are found again, no harm is done.
    """
    numbered = [(number, line) for number, line in enumerate(script.splitlines()) if line]
    lines = [line for _, line in numbered]  # psql is silent about empty ones
    results: dict[int, list[str]] = {}
    place = -1
    following = [0]  # the lines that may be echoed next
    for line in transcript.splitlines():
        at = next((at for at in following if at < len(lines) and lines[at] == line), None)
        if at is None:
            results.setdefault(place, []).append(line)
        else:
            place = numbered[at][0]
            # the last one: an echo may stand behind output that does not end its line
            following = [at + 1, skip_silent(lines, at), at + 2]
    return {place: "\n".join(output) for place, output in results.items()}


def end_copies(script: str) -> str:
    """The script with an end of data after each COPY FROM STDIN that is to fail and has no data.

    psql of recent minor versions throws away the script up to the next end of data otherwise.
    """
    lines = script.splitlines()
    result = []
    for at, line in enumerate(lines):
        result.append(line)
        if COPY.search(COMMENT.sub("", line)) and ends_statement(line):
            end = lines.index("\\.", at) if "\\." in lines[at:] else len(lines)
            if end == len(lines) or any(map(ends_statement, lines[at + 1 : end])):
                result.append("\\.")
    return "\n".join(result) + "\n"


def ends_statement(line: str) -> bool:
    return COMMENT.sub("", line).rstrip().endswith(";")


def split_script(script: str) -> list[tuple[int, int, str]]:
    """The statements of a script: first line, last line, text without comments."""
    lines = script.splitlines()
    for at, line in enumerate(lines):
        if COPY.search(COMMENT.sub("", line)) and "\\." in lines[at:]:
            end = lines.index("\\.", at)
            if not any(map(ends_statement, lines[at + 1 : end])):
                lines[at + 1 : end + 1] = [""] * (end - at)
    text = "\n".join(lines) + "\n"
    statements = []
    begin = 0
    for token in TOKEN.finditer(text):
        if token["end"] or token["command"]:
            begin = NOTHING.match(text, begin).end()
            statement = COMMENT.sub("", text[begin : token.end()]).strip()
            first, last = (text.count("\n", 0, place) for place in (begin, token.end()))
            statements.append((first, last, statement))
            begin = token.end()
    return statements


def statement_at(statements: list[tuple[int, int, str]], place: int) -> str:
    """The statement that ends on this line of the script, or else the one before that is read there."""
    found = ""
    for first, last, text in statements:
        if first > place:
            break
        found = text
        if last > place:
            break
    return found


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
    if sorted(expected.splitlines()) == sorted(got.splitlines()):
        return Kind.TIES if ORDERED.search(statement) else Kind.ORDER
    return Kind.OTHER


def compare(script: str, expected: str, got: str) -> Iterator[Difference]:
    """The differences of two transcripts of one script, in the script's order."""
    left, right = cut(script, expected), cut(script, got)
    statements = split_script(script)
    for place in sorted(left.keys() | right.keys()):
        one, other = left.get(place, ""), right.get(place, "")
        if one != other:
            statement = statement_at(statements, place)
            yield Difference(kind_of(statement, one, other), statement, one, other)


def kind_of_permutation(expected: str, got: str) -> Kind:
    if PLAN_TABLE.sub("", expected) == PLAN_TABLE.sub("", got):
        return Kind.PLAN
    if NOTICE.sub("", expected) == NOTICE.sub("", got):
        return Kind.NOTICE
    return Kind.CONFLICT if expected.count(CONFLICT) < got.count(CONFLICT) else Kind.OTHER


def compare_permutations(expected: str, got: str) -> Iterator[Difference]:
    """The differences of two transcripts of an isolation test."""
    names, left = cut_permutations(expected)
    other_names, right = cut_permutations(got)
    if names != other_names:
        yield Difference(Kind.OTHER, "", "\n".join(names), "\n".join(other_names))
        return
    for place, name in enumerate(names):
        one, other = left[place], right[place]
        if one != other:
            yield Difference(kind_of_permutation(one, other), name, one, other)
