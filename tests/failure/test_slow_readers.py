"""Who takes long for some rows is not taken for dead: neither a client with a cursor, nor another part of the plan."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.waiting import patience

ROWS = 300_000
TIMEOUT = "2s"
PAUSE = 7  # the kernel looks at its timers at growing intervals


@pytest.fixture(scope="module")
def cluster(cluster: Cluster) -> Iterator[Cluster]:
    with cluster.coordinator.connect() as connection:
        connection.execute("DROP TABLE IF EXISTS slow; CREATE TABLE slow (id bigint, filler text)")
        connection.execute("SELECT strata.create_distributed_table('slow', 'id')")
        connection.execute(
            f"INSERT INTO slow SELECT i, md5(i::text) || md5((i + 1)::text) FROM generate_series(1, {ROWS}) AS i"
        )
    yield cluster
    with cluster.coordinator.connect() as connection:
        connection.execute("DROP TABLE slow")


@pytest.mark.parametrize("read", ["SELECT * FROM slow", "SELECT * FROM slow ORDER BY filler"])
def test_a_cursor_that_is_left_alone(cluster: Cluster, read: str) -> None:
    with cluster.coordinator.connect() as session:
        session.execute(f"SET strata.worker_timeout = '{TIMEOUT}'; SELECT count(*) FROM slow")
        session.execute("BEGIN")
        session.execute(f"DECLARE c NO SCROLL CURSOR FOR {read}")
        assert len(session.execute("FETCH 10 FROM c").fetchall()) == 10
        time.sleep(PAUSE)
        assert len(session.execute(f"FETCH {ROWS} FROM c").fetchall()) == ROWS - 10
        session.execute("COMMIT")


def test_a_plan_that_is_busy_elsewhere(cluster: Cluster) -> None:
    with cluster.coordinator.connect() as session:
        session.execute(f"SET strata.worker_timeout = '{TIMEOUT}'")
        ((count,),) = session.execute(
            f"SELECT count(*) FROM (SELECT CASE WHEN row_number() OVER () = 5 THEN pg_sleep({PAUSE})::text END AS s, filler FROM slow) AS q"
            " WHERE filler IS NOT NULL AND s IS DISTINCT FROM 'x'"
        )
        assert count == ROWS


def test_a_worker_that_waits_for_a_lock_while_rows_are_sent(cluster: Cluster) -> None:
    """The other way round: the worker takes no rows."""
    worker = cluster.workers[0]
    with cluster.coordinator.connect() as session, worker.connect() as holder:
        session.execute(f"SET strata.worker_timeout = '{TIMEOUT}'; SELECT count(*) FROM slow")
        holder.execute("BEGIN; LOCK TABLE slow")
        release = threading.Timer(PAUSE, lambda: holder.execute("ROLLBACK"))
        release.start()
        session.execute(
            f"INSERT INTO slow SELECT i, repeat(md5(i::text), 4) FROM generate_series({ROWS + 1}, {2 * ROWS}) AS i"
        )
        release.join(patience(PAUSE + 5))
        assert session.execute("SELECT count(*) FROM slow").fetchall() == [(2 * ROWS,)]
        session.execute(f"DELETE FROM slow WHERE id > {ROWS}")
