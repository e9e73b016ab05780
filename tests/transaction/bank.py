"""Accounts on two workers, writers that move money between them, and ways to let their sessions stand still."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg

from tests.cluster import Cluster, Node
from tests.waiting import wait_until

ACCOUNTS = 64
BALANCE = 1000
TOTAL = ACCOUNTS * BALANCE

SETUP = f"""
CREATE TABLE account (id integer PRIMARY KEY, v integer NOT NULL, moved bigint NOT NULL DEFAULT 0);
CREATE TABLE ledger (writer integer PRIMARY KEY, moved bigint NOT NULL);
CREATE TABLE counter (writer integer PRIMARY KEY, moved bigint NOT NULL);
SELECT strata.create_distributed_table('account', 'id', shard_count => 8, colocate_with => 'none');
SELECT strata.create_reference_table('counter');
INSERT INTO account SELECT g, {BALANCE} FROM generate_series(1, {ACCOUNTS}) AS g;
INSERT INTO ledger SELECT g, 0 FROM generate_series(0, 15) AS g;
INSERT INTO counter SELECT g, 0 FROM generate_series(0, 15) AS g;
"""


class Bank:
    """The tables of SETUP, and which accounts are on which worker."""

    def __init__(self, cluster: Cluster, schema: str):
        self.cluster = cluster
        self.schema = schema
        with self.session() as connection:
            connection.execute(SETUP)
        self.keys = [
            [key for (key,) in worker.query(f"SELECT id FROM {schema}.account ORDER BY id")]
            for worker in cluster.workers
        ]
        assert all(self.keys)

    def session(self) -> psycopg.Connection:
        connection = self.cluster.coordinator.connect()
        connection.execute(f"SET search_path = {self.schema}, public, strata")
        return connection

    def value(self, query: str) -> object:
        with self.session() as connection:
            return connection.execute(query).fetchone()[0]


def make_bank(cluster: Cluster, schema: str) -> Bank:
    """In a cluster that others have used."""
    # when the heartbeat has met a worker for the first time, sessions look at their wires again
    for _ in wait_until("the heartbeat knows the workers"):
        if cluster.coordinator.query("SELECT FROM strata.workers WHERE status <> 'up'") == []:
            break
    return Bank(cluster, schema)


def run_together(bank: Bank, jobs: list[Callable[[psycopg.Connection], None]], seconds: float):
    """Each job again and again in a session and thread of its own; how often each one ran."""
    stop = threading.Event()

    def repeat(job: Callable[[psycopg.Connection], None]) -> int:
        count = 0
        with bank.session() as connection:
            try:
                while not stop.is_set():
                    job(connection)
                    count += 1
            finally:
                stop.set()
        return count

    with ThreadPoolExecutor(len(jobs)) as pool:
        futures = [pool.submit(repeat, job) for job in jobs]
        stop.wait(seconds)
        stop.set()
        counts = [future.result() for future in futures]
    assert all(counts), counts
    return counts


def transfer(bank: Bank, writer: int, extra: str = "") -> Callable[[psycopg.Connection], None]:
    """Moves money between accounts on two workers, which no other writer touches."""
    state = {"n": writer}

    def run(connection: psycopg.Connection) -> None:
        state["n"] += 1
        n = state["n"]
        first = bank.keys[0][writer]
        second = bank.keys[1][writer]
        amount = n % 7 + 1 if n % 2 else -(n % 5 + 1)
        connection.execute(
            f"BEGIN;"
            f"UPDATE account SET v = v - {amount}, moved = moved + 1 WHERE id = {first};"
            f"UPDATE account SET v = v + {amount}, moved = moved + 1 WHERE id = {second};"
            f"{extra.format(writer=writer)}"
            f"COMMIT"
        )

    return run


def strata_sessions(node: Node) -> set[int]:
    query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'strata'"
    return {pid for (pid,) in node.query(query)}


def sessions_of(connection: psycopg.Connection, workers: list[Node]) -> list[int]:
    """Its processes on the workers, to which it connects now."""
    others = [strata_sessions(worker) for worker in workers]
    connection.execute("SELECT count(*) FROM account")
    held = [strata_sessions(w) - known for w, known in zip(workers, others, strict=True)]
    return [pid for (pid,) in held]


@contextmanager
def stopped(worker: Node, pid: int) -> Iterator[None]:
    """A process that waits for its next command does not get it meanwhile."""
    for _ in wait_until("the session there is idle"):
        if worker.query(
            # the COMMIT of what it was asked before may be on its way; and it is idle before it has answered
            "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND (state = 'idle' OR state LIKE 'idle%%'"
            " AND state_change < clock_timestamp() - interval '200 ms') AND wait_event = 'ClientRead'",
            (pid,),
        ):
            break
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def wait_for_pin(worker: Node) -> None:
    for _ in wait_until("the worker has taken its snapshot"):
        if worker.query(
            "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction'"
            " AND query LIKE '%pin_snapshot%'"
        ):
            return
