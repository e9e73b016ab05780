"""Shards move all the time between three workers, under clients that write and read."""

from __future__ import annotations

import random
import re
import threading

import psycopg
import pytest

from tests.cluster import Cluster
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


def report(cluster: Cluster, load: Load) -> None:
    """What happened, and how long those waited who were there at the switch (without the commit)."""
    pauses = sorted(
        int(found) for found in re.findall(r"waited for (\d+) ms", cluster.coordinator.log_text())
    )
    rank = [pauses[int(len(pauses) * share)] for share in (0.5, 0.99)]
    print(f"{len(pauses)} moves; pauses: median {rank[0]}, 99 % {rank[1]}, longest {pauses[-1]} ms")
    print(", ".join(f"{what} {times}" for what, times in sorted(load.counts.items())))


def run(
    make_cluster,
    clients: int,
    seconds: int,
    storage: str,
    ledger: str | None = None,
    archived: bool = False,
) -> None:
    """Archived: sources keep shards for a while, and DDL drops them."""
    cluster = make_cluster(workers=3)
    for worker in cluster.workers if archived else []:
        worker.settings |= {"archive_mode": "on", "archive_command": "true"}
        worker.restart()
    cluster.coordinator.execute("CREATE SCHEMA load")
    load = Load(cluster, "load", clients=clients, storage=storage, ledger=ledger)
    mover = Mover(load)
    load.start()
    mover.start()
    load.wait(seconds)
    for _ in wait_until("some shards have moved", timeout=60):
        if mover.moved >= 4 or load.stop.is_set():
            break
    load.finish()
    mover.join(60)
    report(cluster, load)
    load.check()
    load.check_nothing_is_left()
    assert mover.moved >= 4
    cluster.coordinator.execute("SELECT strata.release_kept_shards(true)")
    for worker in cluster.workers:
        assert worker.value(LEFT_LOCKS) == 0
        assert worker.query("SELECT nspname FROM pg_namespace WHERE nspname ~ '^strata_kept'") == []
    faults = "SELECT worker_name, check_name, detail FROM strata.check_health() WHERE NOT ok"
    assert cluster.coordinator.query(faults) == []


@pytest.mark.parametrize(("storage", "archived"), [("columnar", True), ("heap", False)])
def test_eight_clients(make_cluster, storage: str, archived: bool) -> None:
    run(make_cluster, clients=8, seconds=10, storage=storage, archived=archived)


@pytest.mark.slow
@pytest.mark.timeout(5000)
def test_sixteen_clients_for_an_hour(make_cluster) -> None:
    run(make_cluster, clients=16, seconds=3600, storage="heap", ledger="columnar")
