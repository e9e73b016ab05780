"""Queries on columnar tables of one PostgreSQL server, against DuckDB on the same cores.

DuckDB runs in this process with two threads, PostgreSQL with the leader and one worker.  Both have
the data in memory.  Runs are taken in turns, the first of each is not counted.  A query that takes
longer than the limit is reported without a figure.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Container, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from benchmarks.measure import Result, execute_seconds, seconds_of

if TYPE_CHECKING:
    import duckdb  # installed by `make bench` alone

ROUNDS = 3
LIMIT_SECONDS = 60
THREADS = 2

SETTINGS = {
    "shared_buffers": "4GB",
    "work_mem": "256MB",
    "max_parallel_workers_per_gather": str(THREADS - 1),
    "max_parallel_workers": str(THREADS - 1),
    "jit": "off",
}

# Averages are numeric here and double precision there.
TOLERANCE = 1e-9

# How PostgreSQL reads what export() wrote: an empty field is an empty text.
CSV = r"(FORMAT csv, HEADER, NULL '\N')"

# Nodes of PostgreSQL that hand rows on without computing anything from them; where there is
# something to compute, a node above or, of a CTE, elsewhere in the plan does it.
PASSING = {
    *("Gather", "Gather Merge", "Append", "Limit", "Result", "Subquery Scan"),
    *("Hash", "Materialize", "CTE Scan"),
}

# Nodes that return groups.
GROUPING = {"ColumnarAggregate", "ColumnarCount", "Aggregate", "CTE Scan"}


@dataclass
class Comparison:
    """A query's ratio to DuckDB; what of its plan handles single rows; is the answer the same?"""

    result: Result
    by_row: list[str]
    same: bool = True


# ---- all queries ---------------------------------------------------------------------------------


def compare_queries(
    title: str,
    connection: psycopg.Connection,
    duck: duckdb.DuckDBPyConnection,
    queries: dict[str, str],
    budgets: dict[str, float],
    mean_budget: float | None,
    with_answers: Container[str] = (),
) -> list[Result]:
    """A line for each query, and for all of them the geometric mean and what went wrong.

    Answers are compared for the queries in `with_answers`: their orders have to be total.
    """
    connection.execute(f"SET statement_timeout = '{LIMIT_SECONDS}s'")
    comparisons = {}
    for name, query in queries.items():
        line = f"{title} {name.upper()}, against DuckDB"
        check = name in with_answers
        comparisons[name] = compare_query(
            line, connection, duck, query, budgets.get(name), check=check
        )
    results = [comparison.result for comparison in comparisons.values()]
    ratios = [result.value for result in results if result.value is not None]
    mean = statistics.geometric_mean(ratios) if ratios else None
    detail = f"of {len(ratios)} of {len(results)} queries"
    summary = [Result(f"{title}, geometric mean", mean, "x", mean_budget, "less", detail)]

    by_row = [name.upper() for name, comparison in comparisons.items() if comparison.by_row]
    line = f"{title}, queries with nodes or expressions by row"
    summary.append(Result(line, len(by_row), "queries", detail=", ".join(by_row)))
    if with_answers:
        wrong = [name.upper() for name, comparison in comparisons.items() if not comparison.same]
        line = f"{title}, answers that are not DuckDB's"
        summary.append(Result(line, len(wrong), "queries", 0, "less", ", ".join(wrong)))
    return [*results, *summary]


def compare_query(
    title: str,
    connection: psycopg.Connection,
    duck: duckdb.DuckDBPyConnection,
    query: str,
    budget: float | None = None,
    other: str | None = None,
    check: bool = False,
) -> Comparison:
    """DuckDB gets the query `other` if there is one."""
    other = other or query
    by_row, share = describe(connection, query)
    try:
        mine = connection.execute(query).fetchall()
        yours = duck.execute(other).fetchall()
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(ROUNDS):
            ours.append(execute_seconds(connection, query))
            theirs.append(seconds_of(lambda: duck.execute(other).fetchall()))
    except (RuntimeError, psycopg.Error) as error:
        reason = str(error).strip().splitlines()[0]
        return Comparison(Result(title, None, "x", detail=reason), by_row)
    here = statistics.median(ours)
    there = statistics.median(theirs)
    detail = f"{show_milliseconds(here)}, DuckDB {show_milliseconds(there)}; {share}"
    same = not check or same_rows(mine, yours)
    if not same:
        detail += "; ANOTHER ANSWER"
    return Comparison(Result(title, here / there, "x", budget, "less", detail), by_row, same)


def show_milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"


def export(duck: duckdb.DuckDBPyConnection, table: str, file: Path) -> None:
    """The rows of a table as a file, for CSV."""
    duck.execute(rf"COPY {table} TO '{file}' (FORMAT csv, HEADER, NULLSTR '\N')")


# ---- answers -------------------------------------------------------------------------------------


def same_rows(mine: list[tuple], yours: list[tuple]) -> bool:
    return len(mine) == len(yours) and all(
        len(left) == len(right) and all(map(same_value, left, right))
        for left, right in zip(mine, yours, strict=True)
    )


def same_value(left: object, right: object) -> bool:
    if isinstance(left, float | Decimal) or isinstance(right, float | Decimal):
        if left is None or right is None:
            return left is right
        return math.isclose(float(left), float(right), rel_tol=TOLERANCE)
    if isinstance(left, datetime) and isinstance(right, datetime):
        return in_utc(left) == in_utc(right)
    if isinstance(left, str) and isinstance(right, str):
        return left.rstrip(" ") == right.rstrip(" ")  # char(n) is padded here, not there
    return left == right


def in_utc(moment: datetime) -> datetime:
    """A moment without a zone is one of UTC."""
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


# ---- plans ---------------------------------------------------------------------------------------


def describe(connection: psycopg.Connection, query: str) -> tuple[list[str], str]:
    """What of the plan handles single rows of a table, and a sentence on it."""
    ((plan,),) = connection.execute(f"EXPLAIN (FORMAT JSON) {query}")
    top = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
    nodes = list(walk(top))
    by_row = [node["Node Type"] for node in nodes if works_by_row(node)]
    expressions = sum(len(node.get("Evaluated by Row", ())) for node in nodes)
    if expressions:
        by_row.append("1 expression" if expressions == 1 else f"{expressions} expressions")
    ours = sum(bool(our_name(node)) for node in nodes)
    sentence = f"{ours} of {len(nodes)} nodes vectorised"
    if by_row:
        sentence += f", by row: {', '.join(by_row)}"
    return by_row, sentence


def walk(node: dict) -> Iterator[dict]:
    yield node
    for child in node.get("Plans", ()):
        yield from walk(child)


def our_name(node: dict) -> str:
    """The name of a node of ours, else an empty text."""
    name = node.get("Custom Plan Provider", "")
    return name if name.startswith("Columnar") else ""


def works_by_row(node: dict) -> bool:
    """Does PostgreSQL's executor compute something from each row of a table here?"""
    if our_name(node) or node["Node Type"] in PASSING:
        return False
    children = node.get("Plans", ())
    return not children or any(returns_rows(child) for child in children)


def returns_rows(node: dict) -> bool:
    """Are these the rows of tables, rather than groups?"""
    if our_name(node) in GROUPING or node["Node Type"] in GROUPING:
        return False
    children = node.get("Plans", ())
    return not children or any(returns_rows(child) for child in children)
