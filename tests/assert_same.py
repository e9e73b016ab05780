"""assert_same: a statement does on the cluster exactly what it does on one plain PostgreSQL.

What "exactly" means: the same rows (as a multiset, unless the statement has an ORDER BY at its
top level), the same column names, the same types with the same modifiers, every value with the
same text - so the scale of numerics counts, and -0 is not 0 -, the same command tag, and when it
fails the same SQLSTATE.  Only float4 and float8 may differ, by a small relative error: the last
digits of their sums depend on the order of the rows in plain PostgreSQL, too.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg
from psycopg.adapt import AdaptersMap, Transformer

from tests.cluster import Cluster

# type OID -> relative difference that is allowed
TOLERANCE = {700: 1e-6, 701: 1e-12}  # float4 adds up in 24 bits, float8 in 53

FIRST_USER_OID = 16384

Row = tuple[str | None, ...]


@dataclass
class Outcome:
    """What a statement did: rows as text and their shape, or the SQLSTATE of its error."""

    columns: list[tuple[str, str, int]] = field(default_factory=list)  # name, type, modifier
    types: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    tag: str = ""
    sqlstate: str | None = None
    message: str = ""

    def __str__(self) -> str:
        if self.sqlstate:
            return f"error {self.sqlstate}: {self.message}"
        return f"{self.tag}, columns {self.columns}"


def run(connection: psycopg.Connection, query, params=None) -> Outcome:
    """Run a statement and keep everything of its last result that can be compared."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(query, params)
            while cursor.nextset():
                pass
            result = cursor.pgresult
            numbers = range(result.nfields)
            types = [result.ftype(n) for n in numbers]
            outcome = Outcome(
                types=types,
                rows=rows_as_text(result),
                tag=text(result.command_status) or "",
            )
            names = [text(result.fname(n)) for n in numbers]
            modifiers = [result.fmod(n) for n in numbers]
        type_names = [type_name(connection, oid) for oid in types]
        outcome.columns = list(zip(names, type_names, modifiers, strict=True))
        return outcome
    except psycopg.Error as error:
        if error.sqlstate is None:  # the connection broke: nothing to compare
            raise
        return Outcome(sqlstate=error.sqlstate, message=str(error))


class TextOnly:
    """Where psycopg looks for the loaders of a result: every type is text, in UTF-8."""

    adapters = AdaptersMap()
    connection = None


TextOnly.adapters.register_loader(0, psycopg.types.string.TextLoader)  # 0: types without their own


def rows_as_text(result: psycopg.pq.PGresult) -> list[Row]:
    """By psycopg's C code: tests compare millions of values."""
    transformer = Transformer(TextOnly)
    transformer.set_pgresult(result)
    return transformer.load_rows(0, result.ntuples, tuple)


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def type_name(connection: psycopg.Connection, oid: int) -> str:
    """A type by its name: the OIDs of users' types differ between servers."""
    if oid < FIRST_USER_OID:
        return str(oid)
    cursor = connection.execute("SELECT format_type(%s, NULL)", (oid,))
    return cursor.fetchone()[0]


def assert_same(
    cluster: Cluster,
    query: str,
    params=None,
    *,
    ordered: bool | None = None,
    connections: tuple[psycopg.Connection, psycopg.Connection] | None = None,
) -> list[Row]:
    """Run a statement on the coordinator and on `cluster.plain`, compare, return the rows.

    `ordered` says whether the order of the rows counts; None: if there is a top-level ORDER BY.
    `connections` (coordinator's, plain's) replaces the nodes' own, for transactions.
    """
    ours, theirs = connections or (cluster.coordinator.connection, cluster.plain.connection)
    expected = run(theirs, query, params)
    actual = run(ours, query, params)
    where = f"\n{query}" + (f"\nparameters {params!r}" if params else "")
    if (expected.sqlstate, expected.tag) != (actual.sqlstate, actual.tag) or (
        expected.columns != actual.columns
    ):
        raise AssertionError(f"cluster: {actual}\nplain:   {expected}{where}")
    if ordered is None:
        ordered = has_top_level_order(query)
    compare = sequence_difference if ordered else multiset_difference
    difference = compare(actual.rows, expected.rows, expected.types)
    if difference:
        raise AssertionError(f"{difference}{where}")
    return actual.rows


def same_value(a: str | None, b: str | None, type_oid: int) -> bool:
    if a == b:
        return True
    if a is None or b is None or type_oid not in TOLERANCE:
        return False
    x, y = float(a), float(b)
    return math.isclose(x, y, rel_tol=TOLERANCE[type_oid]) and bool(x) == bool(y)


def same_row(a: Row, b: Row, types: list[int]) -> bool:
    return all(map(same_value, a, b, types))


def sequence_difference(actual: list[Row], expected: list[Row], types: list[int]) -> str:
    """Empty when equal in this order, else what is different first."""
    for number, (a, b) in enumerate(zip(actual, expected, strict=False), 1):
        if not same_row(a, b, types):
            return f"row {number}\ncluster: {a}\nplain:   {b}"
    if len(actual) != len(expected):
        return f"cluster returns {len(actual)} rows, plain {len(expected)}"
    return ""


def multiset_difference(actual: list[Row], expected: list[Row], types: list[int]) -> str:
    """Empty when equal in any order, else the first rows that have no counterpart."""
    if actual == expected:
        return ""
    a, b = Counter(actual), Counter(expected)
    surplus = list((a - b).elements())
    missing = list((b - a).elements())
    if any(oid in TOLERANCE for oid in types):
        exact = [n for n, oid in enumerate(types) if oid not in TOLERANCE]
        surplus, missing = remove_close_pairs(
            surplus, missing, exact, lambda one, other: same_row(one, other, types)
        )
    if not surplus and not missing:
        return ""
    return (
        f"cluster returns {len(actual)} rows, plain {len(expected)}\n"
        f"only on the cluster ({len(surplus)}): {surplus[:5]}\n"
        f"only on plain ({len(missing)}): {missing[:5]}"
    )


def remove_close_pairs(
    surplus: list[Row], missing: list[Row], exact: list[int], same: Callable[[Row, Row], bool]
) -> tuple[list[Row], list[Row]]:
    """Strike out rows that are the same; `exact`: columns that have to be equal for that."""
    candidates: dict[Row, list[Row]] = {}
    for row in missing:
        candidates.setdefault(tuple(row[n] for n in exact), []).append(row)
    rest = []
    for row in surplus:
        group = candidates.get(tuple(row[n] for n in exact), [])
        match = next((other for other in group if same(row, other)), None)
        if match is None:
            rest.append(row)
        else:
            group.remove(match)
    return rest, [row for group in candidates.values() for row in group]


TOKEN = re.compile(
    r"""
      (?P<skip> --[^\n]* | /\*.*?\*/ | \s+
              | [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*"
              | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ )
    | (?P<open> [(\[] ) | (?P<close> [)\]] )
    | (?P<word> \w+ ) | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)


def has_top_level_order(query: str) -> bool:
    """Has the statement an ORDER BY outside of all parentheses (or inside one around it all)?"""
    depth = 0
    last = ""
    shallowest = math.inf  # where words stand other than ORDER BY's own clause
    orders = set()
    for match in TOKEN.finditer(query):
        if match["open"]:
            depth += 1
        elif match["close"]:
            depth -= 1
        elif match["word"]:
            word = match["word"].upper()
            shallowest = min(shallowest, depth)
            if word == "BY" and last == "ORDER":
                orders.add(depth)
            last = word
    return shallowest in orders
