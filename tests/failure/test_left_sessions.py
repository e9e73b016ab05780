"""What dead sessions of the coordinator left on a worker ends when the coordinator comes back to it.

The worker is behind a firewall that forgets its connections: the worker hears no end of them, and its kernel
goes on to believe in them, so that no timeout and no keepalive helps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster, Node
from tests.failover import Proxy, behind_proxy, copy_coordinator
from tests.fixtures import new_root
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(new_root(), workers=2) as cluster:
        cluster.coordinator.execute(
            "CREATE TABLE t (id integer PRIMARY KEY, v integer);"
            "SELECT strata.create_distributed_table('t', 'id', shard_count => 8);"
            "INSERT INTO t SELECT g, 0 FROM generate_series(1, 100) AS g"
        )
        yield cluster


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[Proxy]:
    with behind_proxy(cluster, cluster.workers[1]) as proxy:
        yield proxy
    cluster.coordinator.disconnect()


def keys_on(worker: Node) -> list[int]:
    return [key for (key,) in worker.query("SELECT id FROM t ORDER BY id LIMIT 3")]


def locker(cluster: Cluster, key: int) -> tuple[psycopg.Connection, int]:
    """A session that has locked the row, and its backend on the worker."""
    session = cluster.coordinator.connect()
    session.execute(f"BEGIN; UPDATE t SET v = v + 1 WHERE id = {key}")
    (pid,) = session.execute(
        "SELECT worker_pid FROM strata.session_wires() WHERE session = pg_backend_pid() AND worker_id = 2"
    ).fetchone()
    assert is_there(cluster, pid)
    return session, pid


def is_there(cluster: Cluster, pid: int) -> bool:
    query = f"SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}"
    return cluster.workers[1].value(query) == 1


def wait_for_its_end(cluster: Cluster, pid: int) -> None:
    for _ in wait_until("the session that was left has ended", timeout=12):
        if not is_there(cluster, pid):
            return


@pytest.mark.parametrize("end", ["cancel", "terminate"])
def test_a_session_that_was_cut_off_leaves_nothing(
    cluster: Cluster, proxy: Proxy, end: str
) -> None:
    """Others, which were there before and came later, go on.  The coordinator runs since before it had workers."""
    key, other, later = keys_on(cluster.workers[1])
    session, pid = locker(cluster, key)
    proxy.forget()
    with contextlib.closing(locker(cluster, other)[0]) as living:
        if end == "cancel":
            session.execute("ROLLBACK")
        else:
            cluster.coordinator.execute(
                "SELECT pg_terminate_backend(%s)", (session.info.backend_pid,)
            )
        with contextlib.closing(locker(cluster, later)[0]) as newcomer:
            wait_for_its_end(cluster, pid)
            newcomer.execute("COMMIT")
        living.execute("COMMIT")
    session.close()
    values = dict(cluster.coordinator.query("SELECT id, v FROM t WHERE v <> 0"))
    assert values == {other: 1, later: 1}
    cluster.coordinator.execute("SET lock_timeout = '5s'; UPDATE t SET v = 0")


def test_a_coordinator_that_was_killed_ends_what_it_left(cluster: Cluster, proxy: Proxy) -> None:
    key, *_ = keys_on(cluster.workers[1])
    session, pid = locker(cluster, key)
    proxy.forget()
    cluster.coordinator.kill()
    cluster.coordinator.start()
    wait_for_its_end(cluster, pid)
    session.close()
    cluster.coordinator.execute(f"SET lock_timeout = '5s'; UPDATE t SET v = 0 WHERE id = {key}")
    cluster.coordinator.forgive_crash()


def test_sessions_of_a_standby_are_left_alone(cluster: Cluster, proxy: Proxy) -> None:
    """It reads the workers as the coordinator does, but its sessions are none of the coordinator's."""
    standby = copy_coordinator(cluster, "standby", "-R")
    standby.start()
    key, *_ = keys_on(cluster.workers[1])
    with contextlib.closing(standby.connect()) as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        assert reader.execute("SELECT count(*) FROM t").fetchall() == [(100,)]
        session, pid = locker(cluster, key)
        cluster.coordinator.kill()
        cluster.coordinator.start()
        wait_for_its_end(cluster, pid)
        session.close()
        assert reader.execute("SELECT count(*) FROM t").fetchall() == [(100,)]
    standby.stop()
    cluster.coordinator.forgive_crash()
