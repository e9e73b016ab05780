"""A move that is stopped at one of its steps while a test breaks something, and what must be true after that."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import psycopg

from tests.cluster import Cluster, Node
from tests.fault_points import arm, disarm, release, wait_for_arrival
from tests.move.test_move_kill import (
    ALL,
    CHANGES,
    change_rows,
    check_rows,
    wait_until_resolved,
)
from tests.waiting import patience, wait_until

# of a group with a foreign key, which nobody writes, and of a heap that is changed after the first round
STEPS = [
    ("t", "shard_move_prepared"),
    ("t", "shard_move_filled"),
    ("w", "shard_move_round"),
    ("t", "shard_move_copied"),
    ("w", "shard_move_copied"),
    ("w", "shard_move_locked"),
    ("t", "shard_move_counted"),
    ("w", "shard_move_counted"),
    ("t", "shard_move_published"),
    ("w", "prepare_0"),
    ("t", "prepare_sent_0"),
    ("w", "prepared_0"),
    ("t", "decision_written"),
    ("w", "committed"),
]


def choose_move(cluster: Cluster, table: str, source: Node) -> str:
    """Of a shard that this worker has to the other one; it gets one if it has none."""
    node = cluster.coordinator
    (other,) = (worker.name for worker in cluster.workers if worker is not source)
    first = "SELECT min(shard) FROM strata.shards WHERE relation = %s::regclass AND worker = %s"
    shard = node.value(first, (table, source.name))
    if shard is None:
        shard = node.value(first, (table, other))
        node.execute(f"SELECT strata.move_shard('{table}', {shard}, '{source.name}')")
    return f"SELECT strata.move_shard('{table}', {shard}, '{other}')"


def run_move(node: Node, statement: str, settings: str) -> psycopg.Error | None:
    """Why it failed."""
    try:
        with node.connect() as session:
            session.execute(settings)
            session.execute(statement)
    except psycopg.Error as error:
        return error
    return None


def interrupt(
    cluster: Cluster,
    move: str,
    step: str,
    go_on: Callable[[Callable[[], None], Callable[[], None]], None],
    settings: str = "",
) -> tuple[psycopg.Error | None, dict[int, int]]:
    """The move's error, and the rows of w; `go_on` gets what releases the move at the step, and what waits for its end.

    Where w moves CHANGES are made before, after the first round.
    """
    node = cluster.coordinator
    rows: dict[int, int] = {}
    for _ in wait_until("the workers have heard of a coordinator that was started again"):
        with contextlib.suppress(psycopg.errors.ObjectNotInPrerequisiteState):
            rows = dict(node.query(ALL))
            break
    changed = "'w'" in move
    arm(node, ("shard_move_filled" if changed else step, "wait"))
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(run_move, node, move, settings)
        wait_for_arrival(node)
        if changed:
            for change in CHANGES:
                node.execute(change)
            change_rows(rows)
            arm(node, (step, "wait"))
            release(node)
            wait_for_arrival(node)
        try:
            go_on(lambda: release(node), lambda: wait((future,), patience(60)))
        finally:
            release(node)
        return future.result(patience(90)), rows


def bring_back(cluster: Cluster) -> None:
    """Servers that are down, or on their way there."""
    disarm(cluster.coordinator)
    for node in cluster.nodes:
        node.disconnect()
        for _ in wait_until(f"{node.name} is back"):
            with contextlib.suppress(psycopg.OperationalError):
                node.start()
                node.connect().close()
                break


def check_all(cluster: Cluster, move: str, source: Node, rows: dict[int, int]) -> None:
    """Nothing is lost, doubled, left or in the way."""
    wait_until_resolved(cluster)
    node = cluster.coordinator
    for _ in wait_until("all workers are up"):
        if node.query("SELECT DISTINCT status FROM strata.workers") == [("up",)]:
            break
    check_rows(cluster)
    assert node.query(ALL) == sorted(rows.items())
    table = move.split("'")[1]
    node.execute(choose_move(cluster, table, source))
    check_rows(cluster)
    assert node.query(ALL) == sorted(rows.items())
    assert sum(worker.value("SELECT count(*) FROM w") for worker in cluster.workers) == len(rows)
    assert node.query("SELECT worker_name, detail FROM strata.check_health() WHERE NOT ok") == []
