"""`python -m benchmarks.run`: measure the performance budgets, print a table, or JSON.

A cluster of two workers and one plain PostgreSQL are made for the run and removed after it; all
have the settings of tests/local.conf and fsync off, so that ratios compare code, not disks.
Latencies are medians of many runs over one connection with the simple protocol and no client
library above libpq; CPU seconds are those of the one server process that serves the session.
The columnar store has servers of its own: see columnar.py, columnar_aged.py, columnar_cold.py and
columnar_codecs.py; against DuckDB tpch.py, hits.py, distinct.py; the cluster's queries against DuckDB
cluster.py (`--scale` and `--group` are for these).  tiering.py and heat.py are run by themselves.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

import psycopg
from rich.console import Console

from benchmarks.cluster import measure_cluster
from benchmarks.cluster_data import GROUPS
from benchmarks.columnar import measure_columnar
from benchmarks.columnar_aged import measure_aged
from benchmarks.columnar_codecs import measure_codecs
from benchmarks.columnar_cold import measure_cold
from benchmarks.distinct import measure_distinct
from benchmarks.hits import measure_few_hits, measure_hits
from benchmarks.measure import (
    Result,
    copy_in,
    copy_out,
    cpu_seconds,
    median_milliseconds,
    print_table,
)
from benchmarks.moves import measure_moves
from benchmarks.sampling import measure_sampling
from benchmarks.tpch import measure_tpch, measure_tpch_10
from benchmarks.visibility import measure_visibility
from tests.cluster import Cluster

SMALL_ROWS = 1_000
COPY_ROWS = 500_000
SCAN_ROWS = 5_000_000

# Columns of the output where it goes to a file.
FILE_WIDTH = 160

SCAN_TABLE = "(k bigint NOT NULL, a integer NOT NULL, b double precision NOT NULL, t text NOT NULL)"
SCAN_SOURCE = "SELECT g::bigint, g % 1000, g / 8.0::float8, 'row ' || g % 100000"


# ---- latencies -----------------------------------------------------------------------------------


def make_small_tables(cluster: Cluster) -> None:
    """Five tables of 1 000 rows: three hashed by k and colocated, two reference tables."""
    node = cluster.coordinator
    columns = "(k integer PRIMARY KEY, a integer NOT NULL, t text NOT NULL)"
    for number in range(1, 6):
        table = f"small{number}"
        node.execute(f"CREATE TABLE {table} {columns}")
        if number <= 3:
            other = "none" if number == 1 else "small1"
            shards = ", shard_count => 32" if number == 1 else ""
            node.execute(
                f"SELECT create_distributed_table('{table}', 'k', colocate_with => '{other}'{shards})"
            )
        else:
            node.execute(f"SELECT create_reference_table('{table}')")
        node.execute(
            f"INSERT INTO {table} SELECT g, g % 10, 'row ' || g FROM generate_series(1, {SMALL_ROWS}) AS g"
        )
        node.execute(f"ANALYZE {table}")


def measure_latencies(cluster: Cluster) -> list[Result]:
    make_small_tables(cluster)
    join = (
        "SELECT small4.t, sum(small1.a) FROM small1 JOIN small2 USING (k) JOIN small3 USING (k)"
        " JOIN small4 ON small4.k = small2.a JOIN small5 ON small5.k = small3.a GROUP BY small4.t"
    )
    with cluster.coordinator.connect() as connection:
        count = median_milliseconds(connection, "SELECT count(*) FROM small1", 1000)
        point = median_milliseconds(connection, "SELECT * FROM small1 WHERE k = 500", 2000)
        planning = median_planning_milliseconds(connection, join, 200)
        wide = median_planning_milliseconds(connection, wide_join(12), 20)
    return [
        Result("count(*) of 1 000 rows over 32 shards", count, "ms", 1.0),
        Result("routed point query", point, "ms", 0.3),
        Result("planning of a 5-table join", planning, "ms", 1.0),
        Result("planning of a 12-table join", wide, "ms", 50),
    ]


def wide_join(relations: int) -> str:
    """A join of so many of the small tables, in turns, each with the one before it."""
    tables = ", ".join(f"small{number % 5 + 1} AS t{number}" for number in range(relations))
    clauses = " AND ".join(f"t{number}.k = t{number - 1}.k" for number in range(1, relations))
    return f"SELECT count(*) FROM {tables} WHERE {clauses}"


def median_planning_milliseconds(connection: psycopg.Connection, query: str, runs: int) -> float:
    times = []
    for _ in range(runs):
        ((plan,),) = connection.execute(f"EXPLAIN (SUMMARY, FORMAT JSON) {query}").fetchall()
        times.append(plan[0]["Planning Time"])
    return statistics.median(times)


# ---- loading -------------------------------------------------------------------------------------


def copy_rate(connection: psycopg.Connection, table: str, data: bytes, runs: int) -> float:
    """Rows per second of COPY into an empty table."""
    rates = []
    for _ in range(runs):
        connection.execute(f"TRUNCATE {table}")
        begin = time.perf_counter()
        with connection.cursor().copy(f"COPY {table} FROM STDIN (FORMAT csv)") as copy:
            for start in range(0, len(data), 1 << 18):
                copy.write(data[start : start + (1 << 18)])
        rates.append(COPY_ROWS / (time.perf_counter() - begin))
    return statistics.median(rates)


def measure_copy(cluster: Cluster) -> list[Result]:
    columns = "(k bigint, n numeric(12, 2), d timestamptz, t text)"
    data = "".join(
        f"{k},{k % 9973}.{k % 90 + 10},2026-01-01 00:{k % 60:02}:00+00,text of row {k}\n"
        for k in range(COPY_ROWS)
    ).encode()
    for node in (cluster.coordinator, cluster.plain):
        node.execute(f"CREATE TABLE loaded {columns}")
    cluster.coordinator.execute("SELECT create_distributed_table('loaded', 'k')")
    with cluster.plain.connect() as plain, cluster.coordinator.connect() as coordinator:
        theirs = copy_rate(plain, "loaded", data, 5)
        ours = copy_rate(coordinator, "loaded", data, 5)
    detail = f"{ours:,.0f} rows/s, plain {theirs:,.0f}"
    return [Result("COPY against plain heap", ours / theirs, "x", 0.7, "more", detail)]


# ---- CPU of a scan -------------------------------------------------------------------------------


def read_all_binary(connection: psycopg.Connection, query: str) -> None:
    """Fetch every row in binary, and forget it."""
    pgconn = connection.pgconn
    pgconn.send_query_params(query.encode(), None, result_format=1)
    pgconn.set_single_row_mode()
    rows = 0
    while result := pgconn.get_result():
        if result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
            raise RuntimeError(result.error_message.decode())
        rows += result.ntuples
    if rows != SCAN_ROWS:
        raise RuntimeError(f"{rows} rows instead of {SCAN_ROWS}")


def measure_scan(cluster: Cluster) -> list[Result]:
    series = f"generate_series(1, {SCAN_ROWS}) AS g"
    cluster.coordinator.execute(f"CREATE TABLE scanned {SCAN_TABLE}")
    cluster.coordinator.execute("SELECT create_distributed_table('scanned', 'k')")
    cluster.coordinator.execute(f"INSERT INTO scanned {SCAN_SOURCE} FROM {series}")
    cluster.coordinator.execute("ANALYZE scanned")
    with (
        cluster.plain.connect() as plain,
        tempfile.NamedTemporaryFile(prefix="strata-bench-") as temporary,
    ):
        file = Path(temporary.name)
        plain.execute(f"CREATE UNLOGGED TABLE scanned {SCAN_TABLE}")
        copy_out(plain, f"COPY ({SCAN_SOURCE} FROM {series}) TO STDOUT (FORMAT binary)", file)
        copied = []
        for _ in range(3):
            plain.execute("TRUNCATE scanned")
            copied.append(
                cpu_seconds(
                    plain, lambda: copy_in(plain, "COPY scanned FROM STDIN (FORMAT binary)", file)
                )
            )
    with cluster.coordinator.connect() as coordinator:
        explain = "EXPLAIN (ANALYZE, TIMING OFF) SELECT * FROM scanned"
        received = [
            cpu_seconds(coordinator, lambda: coordinator.execute(explain)) for _ in range(3)
        ]
        returned = [
            cpu_seconds(coordinator, lambda: read_all_binary(coordinator, "SELECT * FROM scanned"))
            for _ in range(3)
        ]
    base = statistics.median(copied)
    results = []
    for name, seconds, budget in (
        ("CPU of a scan of 5 M rows, against COPY", statistics.median(received), 1.3),
        ("... that also sends them to the client", statistics.median(returned), None),
    ):
        detail = f"{seconds:.2f} s, COPY {base:.2f} s"
        results.append(Result(name, seconds / base, "x", budget, "less", detail))
    return results


# ---- all of it -----------------------------------------------------------------------------------


def main() -> int:
    measurements = {
        "latency": measure_latencies,
        "visibility": measure_visibility,
        "copy": measure_copy,
        "scan": measure_scan,
        "sampling": measure_sampling,
        "moves": lambda _: measure_moves(),
        "columnar": measure_columnar,
        "columnar-aged": measure_aged,
        "columnar-cold": measure_cold,
        "columnar-codecs": measure_codecs,
        "tpch": measure_tpch,
        "tpch-10": measure_tpch_10,
        "distinct": measure_distinct,
        "hits": measure_hits,
        "hits-small": measure_few_hits,
        "cluster": measure_cluster,
    }
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run")
    parser.add_argument("--only", choices=measurements, action="append", help="may be repeated")
    parser.add_argument("--scale", type=float, default=0.5, help="of the cluster's tables (0.5)")
    parser.add_argument(
        "--group", choices=GROUPS, action="append", help="of the cluster's; may be repeated"
    )
    parser.add_argument("--json", metavar="FILE", help="write the results there, too (- is stdout)")
    parser.add_argument("--strict", action="store_true", help="fail when a budget is exceeded")
    arguments = parser.parse_args()
    console = Console(stderr=arguments.json == "-")
    if not console.is_terminal:
        console.width = FILE_WIDTH
    measurements["cluster"] = partial(
        measure_cluster, scale=arguments.scale, groups=arguments.group, console=console
    )
    results: list[Result] = []
    root = Path(tempfile.mkdtemp(prefix="strata-bench-"))
    with Cluster(root, workers=2, plain=True) as cluster:
        for name, measure in measurements.items():
            if arguments.only and name not in arguments.only:
                continue
            with console.status(f"measuring {name} ..."):
                results += measure(cluster)
    print_table(console, results)
    if arguments.json:
        text = json.dumps([asdict(result) | {"kept": result.kept} for result in results], indent=2)
        if arguments.json == "-":
            print(text)
        else:
            Path(arguments.json).write_text(text + "\n")
    return 1 if arguments.strict and not all(result.kept for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
