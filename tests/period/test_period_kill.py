"""Maintenance of periods that dies at each of its steps: no row is lost or doubled, and it goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.fault_points import disarm, dying
from tests.fixtures import new_root
from tests.period.test_periods import leaves, rows_of, spelled
from tests.waiting import wait_until

# the steps of one item's transaction, which writes on one worker and here
STEPS = [
    "period_item_done",
    "prepare_0",
    "prepare_sent_0",
    "decision_written",
    "prepared_0",
    "committed",
    "wire_sent_0",
    "acknowledged",
]


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    """Table t has two shards; its maintenance runs ten times a second, when it is on."""
    with Cluster(new_root(), workers=2, durable=True, assertions=True) as cluster:
        node = cluster.coordinator
        node.execute("ALTER SYSTEM SET strata.period_interval = '1h'")
        node.execute("ALTER SYSTEM SET strata.resolver_interval = '500ms'")
        node.execute("SELECT pg_reload_conf()")
        node.execute("CREATE TABLE t (k int, at timestamptz NOT NULL, v int)")
        node.query(
            "SELECT strata.create_distributed_table('t', 'k', 2, partition_by => 'at',"
            " partition_interval => '1 day')"
        )
        yield cluster


@pytest.fixture
def stopped(made: Cluster) -> Iterator[Cluster]:
    """Nothing is maintained; each day of a month has 10 rows, all in the default partitions."""
    node = made.coordinator
    set_interval(made, "1h")
    node.execute("TRUNCATE t")
    for worker in made.workers:
        drop_periods(worker)
    node.execute(
        "INSERT INTO t SELECT i, timestamptz '2019-05-01 00:00:00+00' + i % 3 * interval '1 day', 1"
        " FROM generate_series(1, 60) AS i"
    )
    yield made
    disarm(node)
    made.start()
    for each in made.nodes:
        each.forgive_crash()
        each.disconnect()


def set_interval(cluster: Cluster, interval: str) -> None:
    cluster.coordinator.execute(f"ALTER SYSTEM SET strata.period_interval = '{interval}'")
    cluster.coordinator.execute("SELECT pg_reload_conf()")


def drop_periods(worker) -> None:
    """Those of the month that the tests use."""
    for (name,) in worker.query("SELECT relname FROM pg_class WHERE relname ~ '^t_s._p2019'"):
        worker.execute(f'DROP TABLE public."{name}"')
    worker.disconnect()


@pytest.mark.sample(2)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("action", ["kill", "crash"])
def test_rows_that_move_are_there_once(stopped: Cluster, step: str, action: str) -> None:
    node = stopped.coordinator
    assert rows_of(stopped, "public", "_default$") == 60
    with dying(node, (step, action)):
        set_interval(stopped, "100ms")
    for _ in wait_until("the rows are in their periods", timeout=60):
        assert node.query("SELECT count(*), sum(v), count(DISTINCT k) FROM t") == [(60, 60, 60)]
        if rows_of(stopped, "public", "_default$") == 0:
            break
    names = leaves(stopped, "public", "t")
    assert sorted(name for name in names if "_p2019" in name) == [
        spelled(f"t_s{shard}_p2019_05_0{day}") for shard in range(2) for day in (1, 2, 3)
    ]
    for _ in wait_until("nothing is prepared any more"):
        if not any(worker.query("SELECT gid FROM pg_prepared_xacts") for worker in stopped.workers):
            break
