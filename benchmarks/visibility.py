"""What atomic visibility costs the readers of several workers.

A reader sums a small table over both workers: alone; beside eight clients that commit on one worker
each, for which no reader waits; and beside eight that commit on both, whose commits are kept apart from
snapshots.  The load is nearly the same in both, so the difference of the 99th percentiles is
the wait, to be compared with a commit's second phase.  How long a read takes without any gate can
only be measured with a build without it: run `--only latency` of both.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from benchmarks.measure import Result, execute_seconds
from tests.cluster import Cluster

COMMITTERS = 8
READS = 1000
READ = "SELECT sum(amount) FROM account"


def make_accounts(cluster: Cluster) -> tuple[list[int], list[int]]:
    """The table, and keys of either worker."""
    node = cluster.coordinator
    node.execute("CREATE TABLE account (k integer PRIMARY KEY, amount bigint NOT NULL)")
    node.execute("SELECT create_distributed_table('account', 'k', storage => 'heap')")
    node.execute("INSERT INTO account SELECT g, 100 FROM generate_series(1, 1000) AS g")
    node.execute("ANALYZE account")
    first, second = ([k for (k,) in w.query("SELECT k FROM account")] for w in cluster.workers)
    return first, second


@contextmanager
def committing(cluster: Cluster, pairs: list[tuple[int, int]]) -> Iterator[list[float]]:
    """Clients that move amounts between the keys of their pair; yields the commits' seconds."""
    stop = threading.Event()
    commits: list[float] = []

    def run(one: int, other: int) -> None:
        with cluster.coordinator.connect() as connection:
            while not stop.is_set():
                execute_seconds(connection, "BEGIN")
                for key, sign in ((one, "-"), (other, "+")):
                    execute_seconds(
                        connection, f"UPDATE account SET amount = amount {sign} 1 WHERE k = {key}"
                    )
                commits.append(execute_seconds(connection, "COMMIT"))

    clients = [threading.Thread(target=run, args=pair) for pair in pairs]
    for client in clients:
        client.start()
    try:
        yield commits
    finally:
        stop.set()
        for client in clients:
            client.join()


def read(connection: psycopg.Connection) -> tuple[float, float]:
    """Median and 99th percentile of the reads, in milliseconds."""
    seconds = [execute_seconds(connection, READ) for _ in range(READS + READS // 10)][-READS:]
    return statistics.median(seconds) * 1000, statistics.quantiles(seconds, n=100)[98] * 1000


def measure_visibility(cluster: Cluster) -> list[Result]:
    first, second = make_accounts(cluster)
    same = [(first[2 * i], first[2 * i + 1]) for i in range(COMMITTERS)]
    both = list(zip(first[:COMMITTERS], second[:COMMITTERS], strict=True))
    with cluster.coordinator.connect() as connection:
        alone, _ = read(connection)
        with committing(cluster, same):
            beside_same, p99_same = read(connection)
        with committing(cluster, both) as commits:
            beside_both, p99_both = read(connection)
    commit = statistics.median(commits) * 1000
    detail = f"medians {beside_same:.2f} and {beside_both:.2f} ms"
    return [
        Result("a read of two workers, alone", alone, "ms"),
        Result(f"p99 beside {COMMITTERS} clients that commit on one worker", p99_same, "ms"),
        Result(
            f"p99 beside {COMMITTERS} that commit on both", p99_both, "ms", None, "less", detail
        ),
        Result("the wait at p99, against a commit", (p99_both - p99_same) / commit, "x", 1.0),
    ]
