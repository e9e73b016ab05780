"""Every node that works on batches keeps to work_mem, whatever it is given.

What is measured is the largest resident memory of the backend (VmHWM) while a query runs, above what
it had when it began; a node that does not spill would need many times the bound.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.cluster import Node

ROWS = 1_500_000
MEGABYTE = 1024 * 1024
# beside work_mem: the shared buffers that are touched, decoded blocks, buffers of temporary files
BOUND = 52 * MEGABYTE

LEAVES = (
    ";".join(
        f"CREATE TABLE leaf{n} PARTITION OF tree FOR VALUES IN ({n}) USING columnar"
        for n in range(7)
    )
    + ";"
)

# all columns are of use
ALL = "SELECT count(r) FROM ({}) AS r"


@pytest.fixture(scope="module")
def tables(node: Node) -> Iterator[Node]:
    node.execute(
        f"""
        CREATE SCHEMA vector_memory;
        SET search_path = vector_memory, public;
        CREATE TABLE t (id bigint, few integer, half integer, s text, n numeric(12, 2), f double precision)
            USING columnar;
        INSERT INTO t SELECT (g * 7919::bigint) % {ROWS}, g % 7, g / 2, md5(g::text), (g * 7919::bigint) % {ROWS} / 4.0, g
            FROM generate_series(1, {ROWS}) AS g;
        CREATE TABLE u USING columnar AS SELECT id + {ROWS} / 2 AS id, few, s FROM t;
        CREATE TABLE tree (id bigint, few integer, s text) PARTITION BY LIST (few);
        {LEAVES}
        INSERT INTO tree SELECT id, few, s FROM t;
        ANALYZE t, u, tree;
        RESET search_path;
        """
    )
    yield node
    node.execute("DROP SCHEMA vector_memory CASCADE")


def read_memory(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) * 1024


def measure(connection: psycopg.Connection, query: str) -> int:
    """Bytes by which the backend grew at most while it ran the query."""
    pid = connection.info.backend_pid
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # VmHWM begins at what it has now
    before = read_memory(pid, "VmRSS")
    connection.execute(query)
    return read_memory(pid, "VmHWM") - before


class Watch(threading.Thread):
    """The largest private memory of each parallel worker of a session, seen every 20 ms."""

    def __init__(self, leader: int):
        super().__init__()
        self.title = f"parallel worker for PID {leader}".encode()
        self.largest: dict[int, int] = {}
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.02):
            for process in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError, TypeError):  # it has gone
                    if self.title in (process / "cmdline").read_bytes():
                        pid = int(process.name)
                        now = read_memory(pid, "RssAnon")
                        self.largest[pid] = max(now, self.largest.get(pid, 0))


QUERIES = {
    "groups": ("ColumnarAggregate", ALL.format("SELECT id, sum(f) FROM t GROUP BY id OFFSET 0")),
    "groups of text": ("ColumnarAggregate", ALL.format("SELECT s, max(s), avg(n) FROM t GROUP BY s OFFSET 0")),
    "distinct rows": ("ColumnarAggregate", ALL.format("SELECT DISTINCT id, s FROM t OFFSET 0")),
    "grouping sets": ("ColumnarAggregate", ALL.format("SELECT id, s, count(*) FROM t GROUP BY GROUPING SETS (id, s) OFFSET 0")),
    "count distinct": ("ColumnarAggregate", "SELECT count(DISTINCT id) FROM t"),
    "count distinct of text": ("ColumnarAggregate", "SELECT count(DISTINCT s) FROM t"),
    "count distinct of numeric": ("ColumnarAggregate", "SELECT count(DISTINCT n), sum(DISTINCT n) FROM t"),
    "count distinct of float": ("ColumnarAggregate", "SELECT count(DISTINCT f) FROM t"),
    "sum distinct": ("ColumnarAggregate", "SELECT sum(DISTINCT id), avg(DISTINCT id + 1) FROM t"),
    "filtered distinct": ("ColumnarAggregate", "SELECT count(DISTINCT id) FILTER (WHERE few > 0), count(DISTINCT s) FROM t"),
    "count distinct of few groups": ("ColumnarAggregate", "SELECT few, count(DISTINCT id), count(DISTINCT s) FROM t GROUP BY few"),
    "count distinct of many groups": ("ColumnarAggregate", ALL.format("SELECT half, count(DISTINCT id) FROM t GROUP BY half OFFSET 0")),
    "join": ("ColumnarJoin", "SELECT count(*), max(u.s) FROM t JOIN u USING (id)"),
    "left join": ("ColumnarJoin", "SELECT count(*), max(u.s), max(t.s) FROM t LEFT JOIN u USING (id)"),
    "full join": ("ColumnarJoin", "SELECT count(*), max(u.s), max(t.s) FROM t FULL JOIN u USING (id)"),
    "semi join": ("ColumnarJoin", "SELECT count(*), max(s) FROM t WHERE id IN (SELECT id FROM u)"),
    "anti join": ("ColumnarJoin", "SELECT count(*), max(s) FROM t WHERE NOT EXISTS (SELECT FROM u WHERE u.id = t.id)"),
    "join by text": ("ColumnarJoin", "SELECT count(*) FROM t JOIN u USING (s)"),
    "join by numeric": ("ColumnarJoin", "SELECT count(*), max(t.s) FROM t JOIN t AS o USING (n)"),
    "sort": ("ColumnarSort", ALL.format("SELECT id, few, n, s FROM t ORDER BY id OFFSET 0")),
    "sort of text": ("ColumnarSort", ALL.format("SELECT id, s FROM t ORDER BY s OFFSET 0")),
    "top": ("ColumnarTopN", ALL.format("SELECT * FROM t ORDER BY s LIMIT 10000")),
    "window": ("ColumnarWindow", ALL.format("SELECT id, s, row_number() OVER (PARTITION BY half ORDER BY id) FROM t OFFSET 0")),
    "running sum": ("ColumnarWindow", ALL.format("SELECT id, s, sum(n) OVER (PARTITION BY few ORDER BY id) FROM t OFFSET 0")),
    "union": ("ColumnarScan", ALL.format("SELECT id, s FROM t UNION SELECT id, s FROM u OFFSET 0")),
    "intersection": ("ColumnarScan", ALL.format("SELECT id FROM t INTERSECT SELECT id FROM u OFFSET 0")),
    "difference": ("ColumnarScan", ALL.format("SELECT s FROM t EXCEPT SELECT s FROM u WHERE few = 1 OFFSET 0")),
    "scan": ("ColumnarScan", "SELECT count(*), max(s), max(n), max(f), max(id) FROM t WHERE half % 2 = 0"),
    "long list": ("ColumnarScan", "SELECT count(*), max(s) FROM t WHERE id = ANY (ARRAY(SELECT generate_series(1, 400000, 3)))"),
    "list of text": ("ColumnarScan", "SELECT count(*) FROM t WHERE s = ANY (ARRAY(SELECT md5(g::text) FROM generate_series(1, 100000) AS g))"),
    "groups of a tree": ("ColumnarAggregate", ALL.format("SELECT id, max(s) FROM tree GROUP BY id OFFSET 0")),
    "groups by its key": ("ColumnarAggregate", "SELECT few, count(DISTINCT s) FROM tree GROUP BY few"),
    "sort of a tree": ("ColumnarSort", ALL.format("SELECT id, s FROM tree ORDER BY id OFFSET 0")),
    "join of a tree": ("ColumnarJoin", "SELECT count(*), max(u.s) FROM tree JOIN u USING (id)"),
}  # fmt: skip

# with two parallel workers, each of which has a work_mem of its own
PARALLEL = {
    "groups": ("Gather", ALL.format("SELECT id, sum(f) FROM t GROUP BY id OFFSET 0")),
    "join": ("Gather", "SELECT count(*), max(u.s) FROM t JOIN u USING (id)"),
    "sort": ("Gather Merge", ALL.format("SELECT id, few, n, s FROM t ORDER BY id OFFSET 0")),
    "tree": ("Gather", ALL.format("SELECT id, max(s) FROM tree GROUP BY id OFFSET 0")),
}  # fmt: skip


@contextlib.contextmanager
def prepared(
    tables: Node, node: str, query: str, settings: str
) -> Iterator[tuple[psycopg.Connection, str]]:
    """A session in which the query's plan, the second value, has the node, and whose pages are in memory."""
    with tables.connect() as connection:
        connection.execute(
            f"SET search_path = vector_memory, public; {settings};"
            "SET work_mem = '4MB'; SET hash_mem_multiplier = 1; SET jit = off"
        )
        plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN {query}"))
        assert node in plan, plan
        # the pages that all queries read are in this process's memory, too
        connection.execute("SELECT max(id), max(s), max(n), max(f), max(half) FROM t WHERE few = 1")
        connection.execute("SELECT max(id), max(s) FROM u WHERE few = 1")
        yield connection, plan


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", QUERIES)
def test_memory_of(tables: Node, kind: str) -> None:
    node, query = QUERIES[kind]
    settings = "SET max_parallel_workers_per_gather = 0"
    with prepared(tables, node, query, settings) as (connection, plan):
        grown = measure(connection, query)
        assert grown < BOUND, f"{grown / MEGABYTE:.0f} MB\n{plan}"


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", PARALLEL)
def test_memory_of_parallel(tables: Node, kind: str) -> None:
    node, query = PARALLEL[kind]
    settings = (
        "SET max_parallel_workers_per_gather = 2;"
        "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0"
    )
    with prepared(tables, node, query, settings) as (connection, plan):
        watch = Watch(connection.info.backend_pid)
        watch.start()
        try:
            grown = measure(connection, query)
        finally:
            watch.ended.set()
            watch.join()
        assert grown < BOUND, f"{grown / MEGABYTE:.0f} MB\n{plan}"
        assert watch.largest
        assert max(watch.largest.values()) < BOUND, f"{watch.largest}\n{plan}"
