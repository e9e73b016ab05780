"""The disk of the source, the target or the coordinator becomes full at a step of a move."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.cluster import Cluster, Node
from tests.move.interrupted import STEPS, bring_back, check_all, choose_move, interrupt
from tests.move.test_move_beside import orphans
from tests.move.test_move_kill import make_groups
from tests.small_disk import Disk, mounts_disks, small_disk

pytestmark = mounts_disks


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    """Files of WAL are made when they are needed."""
    with make_groups() as cluster:
        for node in cluster.nodes:
            node.execute("ALTER SYSTEM SET wal_recycle = off")
            node.execute("SELECT pg_reload_conf()")
            node.execute("CHECKPOINT")
        yield cluster


def take_over(cluster: Cluster) -> None:
    """A data directory that was copied may be that of a second coordinator."""
    cluster.coordinator.execute("SELECT strata.take_over()")


@pytest.fixture(scope="module")
def disk(made: Cluster, request: pytest.FixtureRequest) -> Iterator[Disk]:
    """All of one server is on it."""
    (node,) = (node for node in made.nodes if node.name == request.param)
    with small_disk(node, 600) as disk:
        take_over(made)
        yield disk
    take_over(made)


@pytest.fixture
def cluster(made: Cluster, disk: Disk) -> Iterator[Cluster]:
    yield made
    disk.clear()
    bring_back(made)
    for node in made.nodes:
        node.forgive_crash()
        node.disconnect()


def use_up_wal(node: Node) -> None:
    """The next record needs a new file; whose that is decides whom the server ends with."""
    later = (
        "SELECT count(*) FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$'"
        " AND name > pg_walfile_name(pg_current_wal_insert_lsn())"
    )
    while True:
        node.execute("SELECT pg_switch_wal()")
        if node.value(later) == 0:
            return
        node.execute("SELECT pg_logical_emit_message(false, '', '')")


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("disk", "role"),
    [("coordinator", "source"), ("worker1", "source"), ("worker1", "target")],
    indirect=["disk"],
)
@pytest.mark.parametrize(("table", "step"), STEPS)
@pytest.mark.parametrize("wal", [False, True])
def test_a_disk_becomes_full(
    cluster: Cluster, disk: Disk, role: str, table: str, step: str, wal: bool
) -> None:
    """With room in the last file of WAL, or without: then the server itself may end.

    It may keep files that the unfinished move has made there.
    """
    full = next(node for node in cluster.nodes if node.name in disk.place.name)
    source = cluster.workers[0 if role == "source" else 1]
    move = choose_move(cluster, table, source)
    before = {worker: orphans(worker) for worker in cluster.workers}

    def fill(go_on: Callable[[], None], _: Callable[[], None]) -> None:
        disk.fill()
        if wal:
            with contextlib.suppress(psycopg.OperationalError):
                use_up_wal(full)
        go_on()

    error, rows = interrupt(cluster, move, step, fill)
    disk.clear()
    bring_back(cluster)
    check_all(cluster, move, source, rows)
    crashed = bool(full.crashed())
    assert error or crashed or not wal or step == "committed"
    for worker in cluster.workers:
        if worker is not full or not crashed:
            assert orphans(worker) == before[worker]
