"""TPC-H's 22 queries on columnar tables of one PostgreSQL server, against DuckDB on the same cores.

DuckDB runs in this process with two threads, PostgreSQL with the leader and one worker; both have
the data in memory and no index but the primary keys.  Runs are taken in turns, the first of each is
not counted.  A query that takes longer than the limit is reported without a figure.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg

from benchmarks.columnar import columnar_server
from benchmarks.measure import Result, execute_seconds, seconds_of
from tests.cluster import Cluster, give_to_server
from tests.tpch import data

ROUNDS = 3
LIMIT_SECONDS = 60
THREADS = 2

# What one query may take, as a multiple of DuckDB's time; and the geometric mean of all.
BUDGETS = {"q01": 1.5, "q06": 1.5, "q14": 1.5, "q15": 1.5}
MEAN_BUDGET = 2.0

SETTINGS = {
    "shared_buffers": "4GB",
    "work_mem": "256MB",
    "max_parallel_workers_per_gather": str(THREADS - 1),
    "max_parallel_workers": str(THREADS - 1),
    "jit": "off",
}


def measure_tpch(cluster: Cluster) -> list[Result]:
    return measure_scale(cluster, 1)


def measure_tpch_10(cluster: Cluster) -> list[Result]:
    return measure_scale(cluster, 10)


def measure_scale(cluster: Cluster, scale: int) -> list[Result]:
    import duckdb  # installed by `make bench` alone

    with (
        tempfile.TemporaryDirectory(prefix="strata-tpch-") as temporary,
        columnar_server(cluster.root / f"tpch{scale}", **SETTINGS) as node,
        duckdb.connect(config={"threads": THREADS}) as duck,
    ):
        directory = Path(temporary)
        data.generate(directory, scale)
        give_to_server(directory, 0o700)
        load_duck(duck, directory)
        with node.connect() as connection:
            load_columnar(connection, directory)
            connection.execute(f"SET statement_timeout = '{LIMIT_SECONDS}s'")
            results = list(measure_queries(connection, duck, scale))
    ratios = [result.value for result in results if result.value is not None]
    detail = f"of {len(ratios)} of {len(results)} queries"
    mean = statistics.geometric_mean(ratios)
    return [
        *results,
        Result(f"TPC-H SF{scale}, geometric mean", mean, "x", MEAN_BUDGET, "less", detail),
    ]


def load_duck(duck, directory: Path) -> None:
    statements = (data.HERE / "tables.sql").read_text()
    for statement in statements.split(";"):
        if statement.strip():
            duck.execute(statement)
    for table in data.TABLES:
        duck.execute(f"COPY {table} FROM '{directory / table}.csv' (HEADER)")


def load_columnar(connection: psycopg.Connection, directory: Path) -> None:
    connection.execute("SET default_table_access_method = columnar")
    connection.execute((data.HERE / "tables.sql").read_text())
    for table in data.TABLES:
        file = directory / f"{table}.csv"
        give_to_server(file, 0o600)
        connection.execute(f"COPY {table} FROM '{file}' (FORMAT csv, HEADER)")
        file.unlink()
    connection.execute("VACUUM ANALYZE")


def measure_queries(connection: psycopg.Connection, duck, scale: int) -> Iterator[Result]:
    for name, query in data.QUERIES.items():
        title = f"TPC-H SF{scale} {name.upper()}, against DuckDB"
        ours: list[float] = []
        theirs: list[float] = []
        try:
            for _ in range(ROUNDS + 1):
                ours.append(execute_seconds(connection, query))
                theirs.append(seconds_of(lambda query=query: duck.execute(query).fetchall()))
        except RuntimeError as error:
            yield Result(title, None, "x", detail=str(error).strip().splitlines()[0])
            continue
        mine = statistics.median(ours[1:])
        other = statistics.median(theirs[1:])
        detail = (
            f"{mine * 1000:.0f} ms, DuckDB {other * 1000:.0f} ms; {describe(connection, query)}"
        )
        yield Result(title, mine / other, "x", BUDGETS.get(name), "less", detail)


def describe(connection: psycopg.Connection, query: str) -> str:
    """How many of the plan's nodes work on batches."""
    ((plan,),) = connection.execute(f"EXPLAIN (FORMAT JSON) {query}").fetchall()
    nodes = list(walk(json.loads(plan)[0]["Plan"] if isinstance(plan, str) else plan[0]["Plan"]))
    ours = sum(node.get("Custom Plan Provider", "").startswith("Columnar") for node in nodes)
    return f"{ours} of {len(nodes)} nodes vectorised"


def walk(node: dict) -> Iterator[dict]:
    yield node
    for child in node.get("Plans", ()):
        yield from walk(child)
