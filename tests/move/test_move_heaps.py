"""What has changed in a heap is found by the places of its rows, which are used again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest

from tests.fault_points import arm, disarm, release, wait_for_arrival
from tests.move.moving import Table, leaves
from tests.waiting import patience

HEAP_WORK = [
    "UPDATE t SET v = 'new' || k WHERE k % 5 = 0",
    "DELETE FROM t WHERE k % 7 = 0",
    "INSERT INTO t SELECT k, repeat('again', 2000) FROM generate_series(7, 700, 7) AS k",
    "UPDATE t SET v = v || '.' WHERE k % 11 = 0",
    "UPDATE t SET v = v || '.' WHERE k % 11 = 0",
    "UPDATE t SET v = v || '.' WHERE k % 11 = 0",
    "UPDATE t SET k = k + 1000000 WHERE k BETWEEN 100 AND 120",
    "BEGIN; INSERT INTO t VALUES (-1, 'gone'); UPDATE t SET v = 'x' WHERE k = -1; ROLLBACK",
    "BEGIN; SAVEPOINT a; DELETE FROM t WHERE k < 2000; ROLLBACK TO a; SAVEPOINT a;"
    " INSERT INTO t SELECT -g, 'here' FROM generate_series(300, 500) AS g; RELEASE a; COMMIT",
    "INSERT INTO t VALUES (-2, 'a') ON CONFLICT (k) DO UPDATE SET v = t.v || 'b'",
    "DELETE FROM t WHERE k BETWEEN -400 AND -350",
]


@pytest.mark.parametrize(
    "before", ["", "VACUUM (FREEZE) t", "DELETE FROM t WHERE k % 3 = 0; VACUUM t"]
)
def test_changes_of_heaps_follow(table: Table, before: str) -> None:
    """Places of rows are used again, by HOT updates that prune pages and where VACUUM has freed some before."""
    table.make("(k integer PRIMARY KEY, v text)", ", storage => 'heap'")
    table.change("INSERT INTO t SELECT g, md5(g::text) FROM generate_series(1, 5000) AS g")
    for statement in before.split("; ") if before else []:
        table.change(statement)
    source, other = table.home()
    phases = ["shard_move_filled", "shard_move_round", "shard_move_copied"]
    arm(table.node, *[(phase, "wait") for phase in phases])
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(table.move)
        for _ in phases:
            wait_for_arrival(table.node)
            table.change(*HEAP_WORK)
            table.change("DELETE FROM t WHERE k < 0 OR k > 1000000")
            table.check()
            release(table.node)
        assert future.result(patience(60))[0][0] > 1000
    disarm(table.node)
    assert table.home()[0].name == other
    table.check()
    table.change(*HEAP_WORK)
    table.check()
    table.move(source.name)
    table.check()


def test_open_transactions_of_heaps_follow(table: Table) -> None:
    """One with more savepoints than a snapshot lists, that began before the move; a row that two of them change."""
    table.make("(k integer PRIMARY KEY, v integer)", ", storage => 'heap'")
    table.change("INSERT INTO t SELECT g, 0 FROM generate_series(1, 500) AS g")
    with ExitStack() as stack:
        sessions = [stack.enter_context(node.connect()) for node in (table.node, table.plain)]
        for session in sessions:
            session.execute("BEGIN")
            for number in range(1, 101):
                session.execute(f"SAVEPOINT s; UPDATE t SET v = v + 1 WHERE k <= {number}")
        arm(table.node, ("shard_move_filled", "wait"), ("shard_move_round", "wait"))
        pool = stack.enter_context(ThreadPoolExecutor(1))
        stack.callback(disarm, table.node)
        move = pool.submit(table.move)
        wait_for_arrival(table.node)
        table.change("UPDATE t SET v = v + 1000 WHERE k > 100", "DELETE FROM t WHERE k = 400")
        for session in sessions:
            session.execute("ROLLBACK TO s; SAVEPOINT s; UPDATE t SET v = v + 5 WHERE k = 50")
        release(table.node)
        wait_for_arrival(table.node)
        for session in sessions:
            session.execute("INSERT INTO t VALUES (400, 7); COMMIT")
        release(table.node)
        assert move.result(patience(60))[0][0] > 100
    table.check()


def test_vacuum_keeps_away_from_a_heap(table: Table) -> None:
    """Places that it frees would be taken for rows that stayed; the coordinator's VACUUM goes first."""
    table.make("(k integer PRIMARY KEY, v integer)", ", storage => 'heap'")
    table.change("INSERT INTO t SELECT g, 0 FROM generate_series(1, 2000) AS g")
    source, _ = table.home()
    with table.moving() as future, source.connect() as session:
        table.change("DELETE FROM t WHERE k % 2 = 0")
        session.execute("SET lock_timeout = '100ms'")
        for leaf in leaves(source):
            with pytest.raises(psycopg.errors.LockNotAvailable):
                session.execute(f"VACUUM {leaf}")
        table.change("INSERT INTO t SELECT g, 1 FROM generate_series(2, 2000, 2) AS g")
    assert future.result()[0][0] > 500
    table.check()
