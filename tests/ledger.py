"""Transactions over two workers and the coordinator that must be everywhere or nowhere."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import psycopg

from tests.cluster import Cluster
from tests.waiting import wait_until

# what holds locks on a worker after its sessions are gone, or belongs to a session that writes
LEFT_LOCKS = """
SELECT count(*) FROM pg_locks
 WHERE locktype IN ('relation', 'tuple', 'transactionid') AND mode ~ 'Exclusive'
   AND relation IS DISTINCT FROM 'pg_locks'::regclass AND pid IS DISTINCT FROM pg_backend_pid()
   AND coalesce(pid IN (SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'),
                true)
"""


@dataclass
class Ledger:
    """Transaction n writes a row on each of two workers and one on the coordinator."""

    cluster: Cluster
    keys: tuple[int, int] = (0, 0)
    acknowledged: list[int] = field(default_factory=list)
    _last: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def create(self) -> None:
        coordinator = self.cluster.coordinator
        coordinator.execute(
            "CREATE TABLE journal (id integer, n bigint, PRIMARY KEY (id, n));"
            "SELECT strata.create_distributed_table('journal', 'id', shard_count => 4);"
            "CREATE TABLE local (n bigint PRIMARY KEY);"
            "INSERT INTO journal SELECT g, 0 FROM generate_series(1, 50) AS g"
        )
        first, second = [
            worker.value("SELECT min(id) FROM journal") for worker in self.cluster.workers[:2]
        ]
        coordinator.execute("TRUNCATE journal")
        self.keys = (first, second)

    def next(self) -> int:
        with self._lock:
            self._last += 1
            return self._last

    def write(self, connection: psycopg.Connection, n: int | None = None) -> int:
        """One transaction; returns its number when it was acknowledged."""
        n = self.next() if n is None else n
        first, second = self.keys
        with connection.transaction():
            connection.execute(f"INSERT INTO journal VALUES ({first}, {n}), ({second}, {n})")
            connection.execute(f"INSERT INTO local VALUES ({n})")
        self.acknowledged.append(n)
        return n

    def settle(self, timeout: float = 30) -> None:
        """Wait until nothing is left to be done, and no lock and no prepared transaction is left."""
        for _ in wait_until("the cluster has settled", timeout=timeout):
            try:
                coordinator = self.cluster.coordinator
                left = [
                    coordinator.query("SELECT * FROM strata.in_doubt"),
                    coordinator.query("SELECT * FROM strata.distributed_transaction"),
                ]
                for worker in self.cluster.workers:
                    left.append(worker.query("SELECT gid FROM pg_prepared_xacts"))
                    left.append([n for (n,) in worker.query(LEFT_LOCKS) if n > 0])
                if not any(left):
                    return
            except psycopg.Error:
                for node in self.cluster.nodes:
                    node.disconnect()
        raise AssertionError("unreachable")

    def check(self) -> set[int]:
        """Every transaction is everywhere or nowhere, and those acknowledged are there."""
        local = {n for (n,) in self.cluster.coordinator.query("SELECT n FROM local")}
        for worker, key in zip(self.cluster.workers, self.keys, strict=False):
            there = {n for (n,) in worker.query("SELECT n FROM journal WHERE id = %s", (key,))}
            assert there == local, f"torn: {sorted(there ^ local)}"
        lost = set(self.acknowledged) - local
        assert not lost, f"lost: {sorted(lost)}"
        return local
