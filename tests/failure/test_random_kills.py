"""Writers commit all the time while nodes are killed at random: nothing torn, lost or in doubt."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.cluster import Cluster, Node
from tests.failover import Failover
from tests.fixtures import new_root
from tests.ledger import Ledger
from tests.waiting import wait_until

WRITERS = 4

# kills in one run of the slow test, over both clusters
KILLS = int(os.environ.get("STRATA_KILLS", "1000"))


class Storm:
    """Writers, and ways to kill."""

    def __init__(self, cluster: Cluster, seed: int, failover: Failover | None = None):
        self.cluster = cluster
        self.failover = failover
        self.random = random.Random(seed)
        self.ledger = Ledger(cluster)
        self.ledger.create()
        self.stop = threading.Event()
        self.errors: list[BaseException] = []
        self.pids: dict[int, int] = {}
        self.kinds: list[Callable[[], None]] = [
            self.kill_session,
            self.kill_maintenance,
            self.kill_coordinator,
            self.kill_worker,
            self.kill_worker_session,
            self.kill_both,
        ]
        if failover is not None:
            self.kinds.append(failover.take_over)

    # ---- writers --------------------------------------------------------------------------------

    def write(self, me: int) -> None:
        try:
            while not self.stop.is_set():
                try:
                    self._write_until_lost(me)
                except psycopg.Error:
                    time.sleep(0.02)
        except BaseException as error:
            self.errors.append(error)

    def _write_until_lost(self, me: int) -> None:
        with self.cluster.coordinator.connect(connect_timeout=3) as connection:
            self.pids[me] = connection.info.backend_pid
            while not self.stop.is_set():
                try:
                    self.ledger.write(connection)
                except psycopg.Error:
                    if connection.broken:
                        raise
                    time.sleep(0.02)

    # ---- ways to kill -----------------------------------------------------------------------------

    def kill_process(self, pid: int | None) -> None:
        if pid is not None:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def kill_session(self) -> None:
        self.kill_process(self.random.choice(list(self.pids.values())))

    def find_process(self, node: Node, kind: str) -> int | None:
        try:
            with node.connect(connect_timeout=3) as connection:
                rows = connection.execute(
                    "SELECT pid FROM pg_stat_activity WHERE backend_type = %s"
                    " AND pid <> pg_backend_pid() ORDER BY pid",
                    (kind,),
                ).fetchall()
        except psycopg.Error:
            return None
        return self.random.choice(rows)[0] if rows else None

    def kill_maintenance(self) -> None:
        self.kill_process(self.find_process(self.cluster.coordinator, "strata maintenance"))

    def kill_worker_session(self) -> None:
        worker = self.random.choice(self.cluster.workers)
        self.kill_process(self.find_process(worker, "client backend"))

    def kill_coordinator(self) -> None:
        self.cluster.coordinator.kill()
        time.sleep(self.random.random() / 5)
        self.cluster.coordinator.start()

    def kill_worker(self) -> None:
        worker = self.random.choice(self.cluster.workers)
        worker.kill()
        time.sleep(self.random.random() / 2)
        worker.start()

    def kill_both(self) -> None:
        worker = self.random.choice(self.cluster.workers)
        worker.kill()
        self.cluster.coordinator.kill()
        self.cluster.coordinator.start()
        time.sleep(self.random.random() / 5)
        worker.start()

    # ---- the run --------------------------------------------------------------------------------

    def forgive(self) -> None:
        nodes = [*self.cluster.nodes]
        if self.failover is not None:
            nodes.append(self.failover.standby)
        for node in nodes:
            node.forgive_crash()
            node.disconnect()

    def run(self, kills: int, check_every: int) -> int:
        """Returns the number of transactions that were acknowledged."""
        done = 0
        while done < kills:
            self.stop.clear()
            threads = [threading.Thread(target=self.write, args=(me,)) for me in range(WRITERS)]
            for thread in threads:
                thread.start()
            try:
                for _ in range(min(check_every, kills - done)):
                    self.wait_for_commits(self.random.randrange(1, 20))
                    self.random.choice(self.kinds)()
                    done += 1
            finally:
                self.stop.set()
                for thread in threads:
                    thread.join(60)
            assert not any(thread.is_alive() for thread in threads)
            assert self.errors == []
            self.forgive()
            self.ledger.settle(timeout=60)
            self.ledger.check()
            print(
                f"{done} of {kills} kills, {len(self.ledger.acknowledged)} acknowledged", flush=True
            )
        return len(self.ledger.acknowledged)

    def wait_for_commits(self, count: int) -> None:
        known = len(self.ledger.acknowledged)
        for _ in wait_until("transactions are acknowledged again", timeout=60, interval=0.01):
            if len(self.ledger.acknowledged) >= known + count:
                return


def prepare(cluster: Cluster) -> None:
    cluster.coordinator.execute("ALTER SYSTEM SET strata.resolver_interval = '1s'")
    cluster.coordinator.execute("SELECT pg_reload_conf()")


@pytest.fixture
def durable() -> Iterator[Cluster]:
    with Cluster(new_root(), workers=2, durable=True) as cluster:
        prepare(cluster)
        yield cluster
        for node in cluster.nodes:
            node.forgive_crash()


def test_random_kills_tear_and_lose_nothing(durable: Cluster) -> None:
    storm = Storm(durable, seed=20)
    assert storm.run(kills=12, check_every=6) > 12


def test_failovers_of_the_coordinator_tear_and_lose_nothing(durable: Cluster) -> None:
    storm = Storm(durable, seed=21, failover=Failover(durable))
    storm.kinds = [storm.failover.take_over, storm.kill_worker]
    assert storm.run(kills=4, check_every=2) > 4


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("with_failover", [False, True])
def test_a_thousand_random_kills_tear_and_lose_nothing(
    durable: Cluster, with_failover: bool
) -> None:
    seed = int(os.environ.get("STRATA_SEED", random.randrange(1 << 30)))
    print(f"STRATA_SEED={seed}")
    storm = Storm(durable, seed, Failover(durable) if with_failover else None)
    acknowledged = storm.run(kills=KILLS // 2, check_every=25)
    print(f"{KILLS // 2} kills, {acknowledged} transactions acknowledged")
