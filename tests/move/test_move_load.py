"""Shards move all the time between three workers, under clients that write and read.

Writers of heaps wait while a shard is copied, those of columnar tables do not.
"""

from __future__ import annotations

import random
import threading

import psycopg
import pytest

from tests.ledger import LEFT_LOCKS
from tests.load import Load
from tests.waiting import wait_until

TABLES = ["account", "ledger", "event", "side"]


class Mover(threading.Thread):
    def __init__(self, load: Load):
        super().__init__(name="mover", daemon=True)
        self.load = load
        self.random = random.Random(7)
        self.moved = 0

    def run(self) -> None:
        with self.load.cluster.coordinator.connect() as session:
            session.execute(
                f"SET search_path = {self.load.schema}, strata; SET lock_timeout = '3s'"
            )
            while not self.load.stop.is_set():
                table = self.random.choice(TABLES)
                shard = self.random.randrange(4 if table == "side" else 8)
                worker = self.random.choice([w.name for w in self.load.cluster.workers])
                try:
                    session.execute("SELECT move_shard(%s, %s, %s)", (table, shard, worker))
                    self.moved += 1
                except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
                    continue
                except psycopg.Error as error:
                    self.load.fail(f"mover: {error.sqlstate} {error}")


def run(make_cluster, storage: str, clients: int, seconds: int) -> None:
    cluster = make_cluster(workers=3)
    cluster.coordinator.execute("CREATE SCHEMA load")
    load = Load(cluster, "load", clients=clients, storage=storage)
    mover = Mover(load)
    load.start()
    mover.start()
    load.wait(seconds)
    for _ in wait_until("some shards have moved", timeout=60):
        if mover.moved >= 4 or load.stop.is_set():
            break
    load.finish()
    mover.join(60)
    load.check()
    load.check_nothing_is_left()
    assert mover.moved >= 4
    for worker in cluster.workers:
        assert worker.value(LEFT_LOCKS) == 0
    faults = "SELECT worker_name, check_name, detail FROM strata.check_health() WHERE NOT ok"
    assert cluster.coordinator.query(faults) == []


@pytest.mark.parametrize("storage", ["columnar", "heap"])
def test_eight_clients(make_cluster, storage: str) -> None:
    run(make_cluster, storage, clients=8, seconds=10)


@pytest.mark.slow
@pytest.mark.timeout(5000)
def test_sixteen_clients_for_an_hour(make_cluster) -> None:
    run(make_cluster, "columnar", clients=16, seconds=3600)
