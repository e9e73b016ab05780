"""Queries on a cluster of a coordinator and two workers, against DuckDB on the same cores.

The servers have the settings of the demo's (tests/local.conf): on two cores each worker runs a query in
one process.  DuckDB runs in this process with two threads.  All data is in memory, of the servers in the
operating system's cache.  Answers are compared before anything is measured.  Then both run a query
in turns; a turn of a short query repeats it.  Wall times and CPU seconds are medians of the turns, for
one execution; CPU seconds are those of all processes of the servers, the coordinator's and the workers' apart,
and of DuckDB's process.  What does not end within the limit, fails, or answers otherwise is counted.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from rich.console import Console

from benchmarks.against_duckdb import (
    CSV,
    LIMIT_SECONDS,
    ROUNDS,
    THREADS,
    export,
    same_rows,
    walk,
)
from benchmarks.cluster_data import Dataset, Layout, chosen
from benchmarks.cluster_report import Comparison, Spent, print_group, tell_group
from benchmarks.measure import Result, copy_in, execute_seconds, server_cpu
from tests.cluster import Cluster
from tests.tpch.data import distribute

if TYPE_CHECKING:
    import duckdb  # installed by `make bench` alone

SCHEMA = "measured"

# A turn repeats a query until it took so long: the servers' own work at regular times is small in it.
TURN_SECONDS = 0.05
MOST_REPEATS = 30

# What takes longer is not run again: its first run counts.
SLOW_SECONDS = 10


# ---- the two of them -----------------------------------------------------------------------------


class Peers:
    """A cluster and DuckDB with the same tables."""

    def __init__(self, cluster: Cluster, duck: duckdb.DuckDBPyConnection):
        self.cluster = cluster
        self.duck = duck
        self.last = Spent(0, 0, 0)  # what spend_here() measured, also of what failed
        self._connection: psycopg.Connection | None = None

    @property
    def connection(self) -> psycopg.Connection:
        """A session of the cluster; a new one after one was lost."""
        if self._connection is None or self._connection.closed or self._connection.broken:
            self._connection = self.cluster.coordinator.connect()
            self._connection.execute(f"SET search_path = {SCHEMA}, public")
            self._connection.execute(f"SET statement_timeout = '{LIMIT_SECONDS}s'")
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def cpu_here(self) -> tuple[float, float]:
        """CPU seconds until now of the coordinator and of all workers."""
        return server_cpu(self.cluster.coordinator), sum(map(server_cpu, self.cluster.workers))

    def spend_here(self, action: Callable[[], object], repeats: int = 1) -> Spent:
        coordinator, workers = self.cpu_here()
        begin = time.perf_counter()
        try:
            for _ in range(repeats):
                action()
        finally:
            wall = time.perf_counter() - begin
            coordinator_end, workers_end = self.cpu_here()
            self.last = Spent(
                wall / repeats,
                (coordinator_end - coordinator) / repeats,
                (workers_end - workers) / repeats,
            )
        return self.last

    def spend_there(self, query: str, repeats: int = 1) -> Spent:
        cpu, begin = time.process_time(), time.perf_counter()
        for _ in range(repeats):
            self.duck.execute(query).fetchall()
        wall = time.perf_counter() - begin
        return Spent(wall / repeats, 0, (time.process_time() - cpu) / repeats)

    # ---- one query ----

    def compare(self, name: str, query: str, check: bool) -> Comparison:
        """Answers first, then the times."""
        yours = self.duck.execute(query).fetchall()
        there = self.spend_there(query)
        connection = self.connection
        answers: list[tuple] = []
        here = None
        try:
            here = self.spend_here(lambda: answers.extend(connection.execute(query).fetchall()))
            same = not check or same_rows(answers, yours)
            if here.wall > SLOW_SECONDS:
                return Comparison(name, here, there, same)
            gathered = count_gathered(connection, query)
            here, there = self.take_turns(query, here, there)
        except psycopg.errors.QueryCanceled:
            failure = f"does not end in {LIMIT_SECONDS} s"
            return Comparison(name, here or self.last, there, failure=failure)
        except (RuntimeError, psycopg.Error) as error:
            return Comparison(name, here, there, failure=str(error).strip().splitlines()[0])
        return Comparison(name, here, there, same, "", gathered)

    def take_turns(self, query: str, here: Spent, there: Spent) -> tuple[Spent, Spent]:
        """Medians of the turns; `here` and `there` say how long one execution takes, about."""
        connection = self.connection
        ours: list[Spent] = []
        theirs: list[Spent] = []
        for _ in range(ROUNDS):
            run = partial(execute_seconds, connection, query)
            ours.append(self.spend_here(run, repeats_of(here)))
            theirs.append(self.spend_there(query, repeats_of(there)))
        return median_of(ours), median_of(theirs)


def repeats_of(spent: Spent) -> int:
    return min(max(math.ceil(TURN_SECONDS / spent.wall), 1), MOST_REPEATS)


def median_of(turns: list[Spent]) -> Spent:
    """The turn with the median of CPU seconds, but the median of wall times."""
    middle = sorted(turns, key=lambda spent: spent.cpu)[len(turns) // 2]
    return middle._replace(wall=statistics.median(spent.wall for spent in turns))


def count_gathered(connection: psycopg.Connection, query: str) -> tuple[int, int]:
    """The rows and the bytes that the workers send."""
    ((plan,),) = connection.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {query}")
    nodes = list(walk((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]))
    rows, size = (
        sum(node.get(f"{what} Received", 0) for node in nodes) for what in ("Rows", "Bytes")
    )
    return rows, size


# ---- a group of queries --------------------------------------------------------------------------


def measure_cluster(
    cluster: Cluster,
    scale: float = 0.5,
    groups: list[str] | None = None,
    console: Console | None = None,
) -> list[Result]:
    """The groups, all by default; each is told to the console when it has ended."""
    results = []
    for dataset, layouts in chosen(groups):
        results += measure_dataset(cluster, dataset, layouts, scale, console or Console(quiet=True))
    return results


def measure_dataset(
    cluster: Cluster, dataset: Dataset, layouts: list[Layout], scale: float, console: Console
) -> list[Result]:
    import duckdb  # installed by `make bench` alone

    results = []
    with tempfile.TemporaryDirectory(prefix="strata-cluster-") as temporary:
        directory = Path(temporary)
        place = directory / "rows.duckdb" if dataset.in_file else ":memory:"
        with duckdb.connect(place, config={"threads": THREADS}) as duck:
            dataset.fill(duck, directory, scale)
            queries = dataset.queries(duck, scale)
            for table in dataset.tables:
                export(duck, table, directory / f"{table}.csv")
            for layout in layouts:
                begin = time.monotonic()
                with cluster.coordinator.connect() as connection:
                    load_cluster(connection, dataset, layout, directory)
                loaded = time.monotonic()
                peers = Peers(cluster, duck)
                comparisons = [
                    peers.compare(name, query, name not in dataset.without_order)
                    for name, query in queries.items()
                ]
                peers.close()
                judged = dataset.choose(duck, layout, queries)
                results += tell_group(layout, comparisons, judged)
                cluster.coordinator.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
                took = (
                    f"loaded in {loaded - begin:.0f} s,"
                    f" measured in {time.monotonic() - loaded:.0f} s"
                )
                print_group(console, f"{layout.title}: {took}", comparisons)
    return results


def load_cluster(
    connection: psycopg.Connection, dataset: Dataset, layout: Layout, directory: Path
) -> None:
    connection.execute(f"CREATE SCHEMA {SCHEMA}; SET search_path = {SCHEMA}, public")
    connection.execute(dataset.definitions)
    distribute(connection, SCHEMA, dataset.tables, layout.keys, "columnar")
    for table in dataset.tables:
        copy_in(connection, f"COPY {table} FROM STDIN {CSV}", directory / f"{table}.csv")
        connection.execute(f"VACUUM (ANALYZE) {table}")
