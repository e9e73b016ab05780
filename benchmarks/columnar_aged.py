"""A columnar table that has lived against one that was just loaded, with the same rows.

One PostgreSQL server of its own.  Rows come in one load, or in many small INSERTs of several clients
whose row groups the background worker merges; of either a row is deleted.  Row groups that were merged
have stored row numbers: a scan has no use for them, an index scan has.  All tables are
read in turns.
"""

from __future__ import annotations

import threading
import time

import psycopg

from benchmarks.columnar import columnar_server
from benchmarks.measure import Result, execute_seconds, interleave
from tests.cluster import Cluster, Node

ROUNDS = 21
CLIENTS = 4
BATCHES = 512
BATCH_ROWS = 4096
ROWS = BATCHES * BATCH_ROWS
FETCHES = 20_000  # rows of an index scan, spread over the table

# b, s and n depend on nothing that differs between the tables, k is the order of one load
SOURCE = (
    "SELECT g, hashint4(g) & 65535, 'text ' || (hashint4(g + 1) & 1023), g / 100.0"
    " FROM generate_series({}, {}) AS g"
)

SCANS = {
    "sum of an int column": "SELECT sum(b % 1000) FROM {}",
    "filter of an int column": "SELECT count(*) FROM {} WHERE b % 10 = 3",
    "filter of a text column": "SELECT count(*), sum(b % 10) FROM {} WHERE s LIKE '%77%'",
    "groups of a column": "SELECT b % 100, count(*), sum(b) FROM {} GROUP BY 1",
    "rows to the executor": "SELECT count(*) FROM (SELECT b, s FROM {} OFFSET 0) AS r WHERE random() < 2",
}
FETCH = (
    "SELECT sum(b) FROM {} WHERE k = ANY (ARRAY("
    f"SELECT hashint4(g) & {ROWS - 1} FROM generate_series(1, {FETCHES}) AS g))"
)


def load(node: Node, table: str) -> None:
    node.execute(f"INSERT INTO {table} " + SOURCE.format(1, ROWS))


def trickle(node: Node, table: str) -> None:
    """Many small INSERTs by several clients at a time."""

    def run(client: int) -> None:
        with node.connect() as connection:
            for batch in range(client, BATCHES, CLIENTS):
                first = batch * BATCH_ROWS
                text = SOURCE.format(first + 1, first + BATCH_ROWS)
                execute_seconds(connection, f"INSERT INTO {table} {text}")

    clients = [threading.Thread(target=run, args=(client,)) for client in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()


def settle(node: Node, table: str) -> int:
    """Wait until all is merged that will be; returns how many row groups there are."""
    groups = f"SELECT count(*) FROM strata_columnar.columnar_row_groups('{table}')"
    before = 0
    while (now := node.value(groups)) != before:
        before = now
        node.execute(f"SELECT strata_columnar.columnar_compact('{table}')")
        time.sleep(0.2)
    return before


def make_tables(node: Node) -> dict[str, str]:
    """Tables by name, with what the name means."""
    tables = {
        "fresh": "just loaded",
        "merged": "small INSERTs, merged",
        "deleted": "loaded, one row deleted",
        "aged": "small INSERTs, merged, one row deleted",
        "ordered": "loaded with order_by, one row deleted",
    }
    for name in tables:
        node.execute(
            f"CREATE TABLE {name} (k integer, b integer, s text, n numeric) USING columnar"
        )
        if name == "ordered":
            node.execute(
                f"SELECT strata_columnar.alter_columnar_table_set('{name}', order_by => 'b')"
            )
        if name in ("merged", "aged"):
            trickle(node, name)
            tables[name] += f" to {settle(node, name)} row groups"
        else:
            load(node, name)
        if name in ("deleted", "aged", "ordered"):
            node.execute(f"DELETE FROM {name} WHERE k = {ROWS // 2}")
        node.execute(f"CREATE INDEX ON {name} (k)")
        node.execute(f"VACUUM ANALYZE {name}")
    return tables


def compare(connection: psycopg.Connection, query: str, tables: dict[str, str]) -> dict[str, float]:
    actions = {
        name: lambda name=name: execute_seconds(connection, query.format(name)) for name in tables
    }
    interleave(actions, 3)
    return interleave(actions, ROUNDS)


def to_results(title: str, seconds: dict[str, float], tables: dict[str, str]) -> list[Result]:
    return [
        Result(
            f"{title}, {tables[name]}",
            seconds[name] / seconds["fresh"],
            "x",
            # rows in another order are encoded in another way, and looked up by another index
            None if name == "ordered" else 1.1,
            "less",
            f"{seconds[name] * 1000:.2f} ms, just loaded {seconds['fresh'] * 1000:.2f} ms",
        )
        for name in tables
        if name != "fresh"
    ]


def measure_aged(cluster: Cluster) -> list[Result]:
    results = []
    with columnar_server(cluster.root / "aged") as node:
        tables = make_tables(node)
        with node.connect() as connection:
            connection.execute("SET max_parallel_workers_per_gather = 0")
            for title, query in SCANS.items():
                results += to_results(title, compare(connection, query, tables), tables)
            connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
            connection.execute("SET strata_columnar.enable_custom_scan = off")
            title = f"index scan of {FETCHES:,} rows"
            results += to_results(title, compare(connection, FETCH, tables), tables)
    return results
