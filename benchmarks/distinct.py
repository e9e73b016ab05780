"""Counting the rows and the distinct values of 25 M rows, exactly and by HLL, against DuckDB."""

from __future__ import annotations

import psycopg

from benchmarks.against_duckdb import SETTINGS, THREADS, compare_query
from benchmarks.columnar import columnar_server
from benchmarks.measure import Result, median_milliseconds
from tests.cluster import Cluster

ROWS = 25_000_000

# Sequential, shuffled (the factor has no divisor in common with the number of rows), with repeats.
COLUMNS = {
    "sequential": "{g}",
    "shuffled": f"{{g}} * 12345701 % {ROWS}",
    "few": "{g} * 12345701 % 10007",
}

COUNT_BUDGET = 5
EXACT_BUDGET = 1.5
HLL_BUDGET = 1.0

# What both estimates may be off by, each with a standard error of about 2 %.
HLL_ERROR = 0.1


def measure_distinct(cluster: Cluster) -> list[Result]:
    import duckdb  # installed by `make bench` alone

    with (
        columnar_server(cluster.root / "distinct", **SETTINGS) as node,
        duckdb.connect(config={"threads": THREADS}) as duck,
    ):
        make_tables(node.connection, duck)
        with node.connect() as connection:
            results = [measure_count(connection)]
            for column in COLUMNS:
                results += measure_column(connection, duck, column)
        return results


def make_tables(connection: psycopg.Connection, duck) -> None:
    columns = ", ".join(f"{name} integer NOT NULL" for name in COLUMNS)
    duck.execute(f"CREATE TABLE numbers ({columns})")
    values = ", ".join(value.format(g="range") for value in COLUMNS.values())
    duck.execute(f"INSERT INTO numbers SELECT {values} FROM range({ROWS})")
    connection.execute("CREATE EXTENSION hll")
    connection.execute(f"CREATE TABLE numbers ({columns}) USING columnar")
    values = ", ".join(value.format(g="g") for value in COLUMNS.values())
    connection.execute(
        f"INSERT INTO numbers SELECT {values} FROM generate_series(0::bigint, {ROWS - 1}) AS g"
    )
    connection.execute("VACUUM ANALYZE numbers")


def measure_count(connection: psycopg.Connection) -> Result:
    count = median_milliseconds(connection, "SELECT count(*) FROM numbers", 200)
    return Result("count(*) of 25 M rows", count, "ms", COUNT_BUDGET)


def measure_column(connection: psycopg.Connection, duck, column: str) -> list[Result]:
    exact = f"SELECT count(DISTINCT {column}) FROM numbers"
    ours = f"SELECT hll_cardinality(hll_add_agg(hll_hash_integer({column}))) FROM numbers"
    theirs = f"SELECT approx_count_distinct({column}) FROM numbers"
    title = "of 25 M integers, {}, against DuckDB".format(column.replace("few", "10 007 values"))
    count = compare_query(
        f"count(DISTINCT) {title}", connection, duck, exact, EXACT_BUDGET, check=True
    )
    if not count.same:
        raise RuntimeError(f"the count of distinct values of {column} is wrong")
    ((mine,),) = connection.execute(ours).fetchall()
    ((yours,),) = duck.execute(theirs).fetchall()
    if abs(mine / yours - 1) > HLL_ERROR:
        raise RuntimeError(f"HLL estimates {mine} distinct values of {column}, DuckDB {yours}")
    hll = compare_query(f"hll_add_agg {title}", connection, duck, ours, HLL_BUDGET, theirs)
    return [count.result, hll.result]
