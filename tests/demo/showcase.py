"""The showcase: a few statements that show what Strata does, run and timed before your eyes.

Nothing here is prepared text: every plan, row and time is what the cluster answered just now.
Times are medians of three runs, measured in this client.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import psycopg
from rich import box
from rich.console import Console
from rich.table import Table

from tests.cluster import Cluster

RUNS = 3
MOST_ROWS = 10


@dataclass
class Example:
    title: str
    text: str
    query: str


EXAMPLES = (
    Example(
        "A scan, pushed down",
        "Filter, projection, order and limit run on every worker; the coordinator merges.",
        "SELECT carrier, flight, origin, dest, dep_delay\n"
        "FROM flights WHERE dep_delay > 800 ORDER BY dep_delay DESC LIMIT 5",
    ),
    Example(
        "An aggregate in two phases",
        "Each worker returns one partial state per group, the coordinator combines them.",
        "SELECT origin, count(*) AS flights, round(avg(dep_delay), 2) AS delay,\n"
        "       round(stddev(air_time), 2) AS deviation\n"
        "FROM flights GROUP BY origin ORDER BY origin",
    ),
    Example(
        "A colocated join",
        "Orders and their lines have the same key, so they meet on one worker: no row moves.",
        "SELECT o_orderpriority, count(*) AS lines, sum(l_extendedprice) AS value\n"
        "FROM tpch.orders JOIN tpch.lineitem ON l_orderkey = o_orderkey\n"
        "WHERE o_orderdate >= DATE '1995-01-01' AND l_receiptdate > l_commitdate\n"
        "GROUP BY o_orderpriority ORDER BY o_orderpriority",
    ),
    Example(
        "A join with reference tables",
        "Every worker has all airlines and airports: joined where the flights are.",
        "SELECT airlines.name AS airline, count(*) AS flights, round(avg(arr_delay), 2) AS delay\n"
        "FROM flights JOIN airlines USING (carrier) JOIN airports ON faa = dest\n"
        "WHERE airports.alt > 3000\n"
        "GROUP BY airlines.name ORDER BY flights DESC, airline LIMIT 5",
    ),
    Example(
        "A query for one worker",
        "The distribution key is known, so one worker is asked for everything.",
        "SELECT tailnum, count(*) AS flights, sum(distance) AS miles, max(time_hour) AS last\n"
        "FROM flights WHERE tailnum = 'N14228' GROUP BY tailnum",
    ),
)

EXACT = "SELECT count(DISTINCT l_partkey) FROM tpch.lineitem"
APPROXIMATE = "SELECT approx_count_distinct(l_partkey) FROM tpch.lineitem"


def run(console: Console, cluster: Cluster) -> None:
    with cluster.coordinator.connect() as connection:
        show_placement(console, cluster)
        show_storage(console, cluster)
        for example in EXAMPLES[:2]:
            show(console, connection, example)
        show_distinct_counts(console, connection)
        for example in EXAMPLES[2:]:
            show(console, connection, example)
        show_tiers(console, connection)


def show_placement(console: Console, cluster: Cluster) -> None:
    """Which rows are on which worker, as the workers themselves say."""
    heading(console, "Where the rows are", "Counted on each worker, table by table.")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("table")
    for worker in cluster.workers:
        table.add_column(worker.name, justify="right")
    for name in ("flights", "tpch.orders", "tpch.lineitem", "airports"):
        counts = [worker.value(f"SELECT count(*) FROM {name}") for worker in cluster.workers]
        table.add_row(name, *(f"{count:,}" for count in counts))
    console.print(table)


STORED_TABLE = "tpch.lineitem"
STORED_COLUMNS = """
SELECT c.column_name, sum(c.bytes)::bigint, array_agg(DISTINCT e ORDER BY e)
FROM pg_partition_tree(%s) AS shard
CROSS JOIN LATERAL strata_columnar.columnar_chunks(shard.relid) AS c
CROSS JOIN LATERAL unnest(c.encodings) WITH ORDINALITY AS encoding (e, n)
WHERE shard.isleaf AND encoding.n = 1
GROUP BY c.column_name
"""
ROW_BYTES = f"SELECT sum(pg_column_size(t.*))::bigint, count(*) FROM {STORED_TABLE} AS t"


def show_storage(console: Console, cluster: Cluster) -> None:
    """What the columnar shards make of the columns of one table, over all workers."""
    heading(
        console,
        "How they are stored",
        f"Shards are columnar. Each column of {STORED_TABLE} is encoded for itself, block by block.",
    )
    encoded: dict[str, int] = {}
    encodings: dict[str, set[str]] = {}
    as_rows = rows = 0
    for worker in cluster.workers:
        for column, size, names in worker.query(STORED_COLUMNS, (STORED_TABLE,)):
            encoded[column] = encoded.get(column, 0) + size
            encodings.setdefault(column, set()).update(names)
        ((size, count),) = worker.query(ROW_BYTES)
        as_rows, rows = as_rows + size, rows + count
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("column")
    table.add_column("bytes a row", justify="right")
    table.add_column("encodings")
    for column, size in sorted(encoded.items(), key=lambda item: -item[1]):
        table.add_row(column, f"{size / rows:.2f}", ", ".join(sorted(encodings[column])))
    total = sum(encoded.values())
    table.add_row("all", f"{total / rows:.1f}", f"as rows: {as_rows / rows:.1f}", style="bold")
    console.print(table)


OLD_AND_HOT = """SELECT count(*) FROM strata.partitions
WHERE relation = 'departures'::regclass AND period_to <= '2013-07-01 00:00:00+00' AND tier = 'hot'"""
LONGEST_WAIT = 60  # seconds
MONTHS = """SELECT to_char(period_from::timestamptz, 'YYYY-MM') AS month, count(*) AS leaves,
       sum(bytes)::bigint AS bytes, tier, compression
FROM strata.partitions
WHERE relation = 'departures'::regclass AND period_from >= '2013-04' AND period_from < '2013-10'
GROUP BY month, tier, compression ORDER BY month"""
DRAWN = """SELECT origin, count(*) FROM departures
WHERE time_hour >= '2013-06-15' AND time_hour < '2013-07-15' GROUP BY origin ORDER BY origin"""


def show_tiers(console: Console, connection: psycopg.Connection) -> None:
    """A table with a leaf for each month and shard, of which old ones go to the slow disk."""
    heading(
        console,
        "Old months on the slow disk",
        "Each shard of departures has a leaf for each month. A policy wants those before July 2013"
        " on the slow disk; a background process moves them while the table is in use.",
    )
    (begin,) = connection.execute(OLD_AND_HOT).fetchone()
    connection.execute("ALTER SYSTEM SET strata.tier_interval = '2s'")  # 5 min by default
    connection.execute("SELECT pg_reload_conf()")
    with console.status("leaves are moving ..."):
        end = time.monotonic() + LONGEST_WAIT
        while connection.execute(OLD_AND_HOT).fetchone() != (0,) and time.monotonic() < end:
            time.sleep(0.5)
    connection.execute("ALTER SYSTEM RESET strata.tier_interval")
    connection.execute("SELECT pg_reload_conf()")
    (left,) = connection.execute(OLD_AND_HOT).fetchone()
    console.print(f"  old leaves on the fast disk: {begin} before, {left} now", highlight=False)
    print_sql(console, MONTHS)
    print_rows(console, connection.execute(MONTHS))
    print_sql(console, DRAWN)
    seconds, cursor = timed(connection, DRAWN)
    print_rows(console, cursor)
    console.print(f"  {seconds * 1000:.1f} ms, from both disks\n", style="bold", highlight=False)


def show(console: Console, connection: psycopg.Connection, example: Example) -> None:
    heading(console, example.title, example.text)
    print_sql(console, example.query)
    for (line,) in connection.execute(f"EXPLAIN (COSTS OFF) {example.query}").fetchall():
        console.print(f"    {line}", style="dim", markup=False, highlight=False)
    seconds, cursor = timed(connection, example.query)
    print_rows(console, cursor)
    console.print(f"  {seconds * 1000:.1f} ms\n", style="bold", highlight=False)


def show_distinct_counts(console: Console, connection: psycopg.Connection) -> None:
    """Exact against HyperLogLog: the same question, the error and the time."""
    heading(
        console,
        "Distinct values: exact against HyperLogLog",
        "The exact count needs every distinct value in one place; sketches of a few kilobytes"
        " are made on the workers and united.",
    )
    exact_seconds, cursor = timed(connection, EXACT)
    ((exact,),) = cursor.fetchall()
    approximate_seconds, cursor = timed(connection, APPROXIMATE)
    ((approximate,),) = cursor.fetchall()
    print_sql(console, EXACT)
    print_sql(console, APPROXIMATE)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for name in ("distinct parts", "error", "time"):
        table.add_column(name, justify="right")
    error = (approximate - exact) / exact
    table.add_row("exact", f"{exact:,}", "", f"{exact_seconds * 1000:.1f} ms")
    table.add_row(
        "HyperLogLog", f"{approximate:,}", f"{error:+.2%}", f"{approximate_seconds * 1000:.1f} ms"
    )
    console.print(table)


def heading(console: Console, title: str, text: str) -> None:
    console.rule(title, align="left")
    console.print(f"  {text}", style="italic", highlight=False)


def print_sql(console: Console, query: str) -> None:
    for line in query.splitlines():
        console.print(f"  {line}", style="cyan", markup=False, highlight=False)


def print_rows(console: Console, cursor: psycopg.Cursor) -> None:
    assert cursor.description is not None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    rows = cursor.fetchmany(MOST_ROWS)
    for number, column in enumerate(cursor.description):
        numeric = all(not isinstance(row[number], str) for row in rows)
        table.add_column(column.name, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row))
    console.print(table)


def timed(connection: psycopg.Connection, query: str) -> tuple[float, psycopg.Cursor]:
    """The median of the seconds that the statement takes, and its rows."""
    seconds = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        cursor = connection.execute(query)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds), cursor
