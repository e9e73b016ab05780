"""A move that is killed at any step loses nothing and leaves nothing behind."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from extensions.columnar.test.ledger import TABLE, Ledger
from extensions.columnar.test.servers import checksum, fill, make_node, verify
from extensions.columnar.test.tiers import (
    TIERS,
    make_tablespaces,
    move,
    no_stray_files,
    tier_of,
)
from extensions.columnar.test.twins import connect_soon
from tests.cluster import Cluster, Node
from tests.fault_points import arm, disarm, dying
from tests.fixtures import new_root
from tests.waiting import wait_until

PLACES = ("move_files_made", "move_group", "move_locked", "move_copied", "move_installed")


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """A server whose library has fault points, with tablespaces hot and cold."""
    cluster = Cluster(new_root(), workers=0, extension=False, durable=True, assertions=True)
    # SIGKILL loses nothing that was written to the kernel, but may tear a page
    cluster.coordinator.settings |= {"fsync": "off", "restart_after_crash": "on"}
    try:
        cluster.create()
        made = make_node(cluster)
        make_tablespaces(made)
        yield made
    finally:
        cluster.destroy()


def move_and_be_killed(node: Node, table: str, tier: str) -> None:
    with node.connect() as session, pytest.raises(psycopg.OperationalError):
        move(session, table, tier)


def end_process(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def start_again(node: Node, postmaster: int) -> None:
    """After the postmaster was killed."""
    node.disconnect()
    for _ in wait_until("the server is gone"):
        if not Path(f"/proc/{postmaster}").exists():
            break
    node.start()


@pytest.mark.sample(2)
@pytest.mark.parametrize("action", ["kill", "crash"])
@pytest.mark.parametrize("place", PLACES)
def test_killed_move_leaves_the_table(node: Node, place: str, action: str) -> None:
    table = f"t_{place}_{action}"
    fill(node, table, 50000)
    node.execute(f"DELETE FROM {table} WHERE id % 10 = 0")
    before = checksum(node, table)
    with dying(node, (place, action)):
        move_and_be_killed(node, table, "cold")
    node.forgive_crash()
    assert checksum(node, table) == before
    verify(node, table)
    with node.connect() as session:
        assert tier_of(session, table) is None
        assert node.value("SELECT count(*) FROM strata_columnar.table_move") == 1
        assert node.value("SELECT strata_columnar.forget_moves()") == 3
        assert node.value("SELECT count(*) FROM strata_columnar.table_move") == 0
        no_stray_files(node)
        move(session, table, "cold")
        assert tier_of(session, table) == "cold"
    assert checksum(node, table) == before
    no_stray_files(node)


def test_failed_move_leaves_the_table(node: Node) -> None:
    """An ordinary error at each step: nothing is left but the row that says so."""
    fill(node, "t_error", 50000)
    before = checksum(node, "t_error")
    with node.connect() as session:
        for place in PLACES:
            arm(node, (place, "error"))
            with pytest.raises(psycopg.Error, match="fault point"):
                move(session, "t_error", "cold")
            assert checksum(node, "t_error") == before
            no_stray_files(node)
        assert node.value("SELECT strata_columnar.forget_moves()") in (0, 3)
        move(session, "t_error", "cold")
    assert checksum(node, "t_error") == before


def kill_moves(node: Node, rounds: int) -> tuple[int, int]:
    """Moves under writers, killed at a place or at any time; the moves done and commits acknowledged."""
    node.execute(f"DROP TABLE IF EXISTS t; {TABLE}")
    ledgers = [Ledger(worker, rounds) for worker in range(2)]
    rng = random.Random(rounds)
    moved = 0
    for _ in range(rounds):
        stop = threading.Event()
        threads = [threading.Thread(target=ledger.work, args=(node, stop)) for ledger in ledgers]
        for thread in threads:
            thread.start()
        postmaster = node.pid()
        action = rng.choice(("kill", "crash", "time"))
        if action != "time":
            arm(node, (rng.choice(PLACES), action))
        killer = threading.Timer(rng.uniform(0.1, 1.5), end_process, (postmaster,))
        killer.start()
        with suppress(psycopg.OperationalError), connect_soon(node) as session:
            while True:
                with suppress(
                    psycopg.errors.LockNotAvailable, psycopg.errors.ObjectNotInPrerequisiteState
                ):
                    tier = tier_of(session, "t")
                    move(session, "t", TIERS[tier == "hot"], patience="'1 s'")
                    moved += 1
        killer.join()
        stop.set()
        for thread in threads:
            thread.join()
        disarm(node)
        start_again(node, postmaster)
        node.forgive_crash()
        verify(node, "t")
        for ledger in ledgers:
            ledger.check(node)
        node.execute("SELECT strata_columnar.forget_moves()")
        no_stray_files(node)
        if sum(len(ledger.rows) for ledger in ledgers) > 30000:
            node.execute("TRUNCATE t")
            for ledger in ledgers:
                ledger.rows = {}
    return moved, sum(ledger.commits for ledger in ledgers)


def test_killed_moves_under_writers(node: Node) -> None:
    commits = 0
    for _ in range(5):  # a busy machine writes less beside the moves
        commits += kill_moves(node, 4)[1]
        if commits > 20:
            break
    assert commits > 20


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_200_killed_moves(node: Node) -> None:
    rounds = int(os.environ.get("STRATA_KILLS", "200"))
    moved, commits = kill_moves(node, rounds)
    assert commits > 5 * rounds
    assert moved > rounds / 4
