"""The cluster grows by a worker and shrinks again, while a query runs in a loop."""

from __future__ import annotations

import statistics
import threading
import time

from rich import box
from rich.console import Console
from rich.table import Table

from tests.cluster import Cluster
from tests.demo.showcase import heading, print_sql

PLACES = "SELECT worker, count(*), sum(bytes)::bigint FROM strata.shards GROUP BY worker"
MOVED = "SELECT count(*), sum(row_count)::bigint FROM strata.rebalance_status WHERE state = 'done'"
QUERY = "SELECT count(*) FROM flights"


class Loop(threading.Thread):
    """Asks the same all the time; how long each answer took, and which answers there were."""

    def __init__(self, cluster: Cluster):
        super().__init__(daemon=True)
        self.connection = cluster.coordinator.connect()
        self.stop = threading.Event()
        self.seconds: list[float] = []
        self.answers: set[tuple] = set()

    def run(self) -> None:
        with self.connection:
            while not self.stop.is_set():
                begin = time.perf_counter()
                self.answers.update(self.connection.execute(QUERY).fetchall())
                self.seconds.append(time.perf_counter() - begin)


def run(console: Console, cluster: Cluster) -> None:
    heading(
        console,
        "One worker more, and one less",
        "A third worker gets its share of the shards and gives it back, while a query runs in a loop.",
    )
    statements = "SELECT strata.rebalance_start(); SELECT strata.rebalance_wait()"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    names = [worker.name for worker in cluster.workers] + [f"worker{len(cluster.workers) + 1}"]
    for name in names:
        table.add_column(name, justify="right")
    loop = Loop(cluster)
    loop.start()
    with console.status("a worker comes, and goes ...") as status:
        add_places(table, cluster, "before", names)
        cluster.add_worker()
        status.update("shards move ...")
        begin = time.perf_counter()
        for statement in statements.split("; "):
            cluster.coordinator.execute(statement)
        seconds = time.perf_counter() - begin
        ((moves, rows),) = cluster.coordinator.query(MOVED)
        add_places(table, cluster, "with it", names)
        status.update("they move back ...")
        cluster.remove_worker(cluster.workers[-1])
        add_places(table, cluster, "without it", names)
    loop.stop.set()
    loop.join()
    print_sql(console, f"{statements};\nSELECT strata.remove_worker('{names[-1]}', drain => true)")
    console.print(table)
    console.print(f"  {moves} shards with {rows:,} rows moved in {seconds:.1f} s", highlight=False)
    console.print(
        f"  {QUERY}: {len(loop.seconds)} times, {len(loop.answers)} answer,"
        f" median {statistics.median(loop.seconds) * 1000:.1f} ms,"
        f" longest {max(loop.seconds) * 1000:.0f} ms\n",
        style="bold",
        highlight=False,
    )


def add_places(table: Table, cluster: Cluster, when: str, names: list[str]) -> None:
    places = {name: (shards, size) for name, shards, size in cluster.coordinator.query(PLACES)}
    cells = []
    for name in names:
        shards, size = places.get(name, (0, 0))
        cells.append(f"{shards} shards, {size / 1e6:.1f} MB" if shards else "")
    table.add_row(when, *cells)
