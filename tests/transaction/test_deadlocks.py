"""Sessions that wait for each other over several nodes: one of them gets an error, the others go on."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest

from tests.cluster import Cluster
from tests.failover import frozen
from tests.waiting import check_nothing_prepared, patience, wait_until

SCHEMA = "test_deadlocks"
TIMEOUT = 0.5  # deadlock_timeout of the coordinator, seconds

SETUP = f"""
DROP SCHEMA IF EXISTS {SCHEMA} CASCADE;
CREATE SCHEMA {SCHEMA};
SET search_path = {SCHEMA}, public, strata;
CREATE TABLE account (id integer PRIMARY KEY, v integer NOT NULL);
CREATE TABLE once (id integer, n integer, UNIQUE (id, n) DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE rate (code integer PRIMARY KEY, v integer);
CREATE TABLE local (id integer PRIMARY KEY, v integer);
SELECT create_distributed_table('account', 'id', shard_count => 8, colocate_with => 'none');
SELECT create_distributed_table('once', 'id', colocate_with => '{SCHEMA}.account');
SELECT create_reference_table('rate');
INSERT INTO account SELECT g, 100 FROM generate_series(1, 100) AS g;
INSERT INTO rate VALUES (1, 1), (2, 2);
INSERT INTO local VALUES (1, 1), (2, 2);
"""


class Session:
    def __init__(self, cluster: Cluster, stack: ExitStack, **options):
        self.connection = stack.enter_context(cluster.coordinator.connect(**options))
        self.connection.execute(
            f"SET search_path = {SCHEMA}, public, strata; SET lock_timeout = '15s'"
        )
        self.pid = self.connection.info.backend_pid
        self._pool = stack.enter_context(ThreadPoolExecutor(1))

    def run(self, sql: str) -> list[tuple]:
        cursor = self.connection.execute(sql)
        return cursor.fetchall() if cursor.description else []

    def start(self, sql: str) -> Future:
        return self._pool.submit(self.run, sql)


def outcome(future: Future, timeout: float = 20) -> psycopg.Error | None:
    """The error of a statement in the background, None when it went well."""
    try:
        future.result(timeout)
    except psycopg.Error as error:
        return error
    return None


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Cluster]:
    coordinator = cluster.coordinator
    coordinator.execute(f"ALTER SYSTEM SET deadlock_timeout = '{int(TIMEOUT * 1000)}ms'")
    coordinator.execute("SELECT pg_reload_conf()")
    with coordinator.connect() as connection:
        connection.execute(SETUP)
    yield cluster
    with coordinator.connect() as connection:
        connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
    coordinator.execute("ALTER SYSTEM RESET deadlock_timeout")
    coordinator.execute("SELECT pg_reload_conf()")


@pytest.fixture
def new(data: Cluster) -> Iterator[Callable[..., Session]]:
    with ExitStack() as stack:
        yield lambda **options: Session(data, stack, **options)
    check_nothing_prepared(data)


@pytest.fixture
def keys(data: Cluster) -> tuple[int, int]:
    """Keys of account on different workers."""
    first, second = [node.value(f"SELECT min(id) FROM {SCHEMA}.account") for node in data.workers]
    return first, second


def take(key: int) -> str:
    return f"UPDATE account SET v = v + 1 WHERE id = {key}"


def waits(cluster: Cluster, count: int) -> None:
    """Until so many sessions wait for a lock on any node."""
    for _ in wait_until(f"{count} sessions wait"):
        waiting = cluster.coordinator.value(
            "SELECT count(DISTINCT (node, waiting_pid)) FROM strata.lock_waits"
        )
        if waiting >= count:
            return


def close_ring(sessions: list[Session], statements: list[str]) -> list[psycopg.Error | None]:
    """Each runs its statement, for which it has to wait; what became of them, in order."""
    futures = [session.start(sql) for session, sql in zip(sessions, statements, strict=True)]
    pending = dict(enumerate(futures))
    outcomes: dict[int, psycopg.Error | None] = {}
    end = time.monotonic() + 20
    while pending and time.monotonic() < end:
        for index, future in list(pending.items()):
            if future.done():
                outcomes[index] = outcome(future)
                del pending[index]
                # a transaction that got what it wanted lets the others go on
                sessions[index].run("ROLLBACK" if outcomes[index] else "COMMIT")
        time.sleep(0.01)
    assert not pending, f"still waiting: {sorted(pending)}"
    return [outcomes[index] for index in range(len(sessions))]


def victims(outcomes: list[psycopg.Error | None]) -> list[int]:
    errors = {error.sqlstate for error in outcomes if error is not None}
    assert errors <= {"40P01"}, outcomes
    return [index for index, error in enumerate(outcomes) if error is not None]


def test_two_sessions_that_lock_in_opposite_order_do_not_wait_for_ever(
    data: Cluster, new, keys: tuple[int, int]
) -> None:
    older, younger = new(), new()
    older.run("BEGIN")
    older.run(take(keys[0]))
    younger.run("BEGIN")
    younger.run(take(keys[1]))
    begin = time.monotonic()
    outcomes = close_ring([older, younger], [take(keys[1]), take(keys[0])])
    assert time.monotonic() - begin < patience(2 * TIMEOUT + 0.5)
    assert victims(outcomes) == [1], "the victim is the youngest transaction"
    error = outcomes[1]
    assert error.diag.message_primary == "deadlock detected"
    detail = error.diag.message_detail
    for session, other, node, key in (
        (older, younger, "worker2", keys[1]),
        (younger, older, "worker1", keys[0]),
    ):
        assert f'Process {session.pid} waits on worker "{node}" for ShareLock' in detail
        assert f"blocked by process {other.pid}." in detail
        assert f"Process {session.pid}: {take(key)}" in detail


def test_what_the_victim_did_is_undone_and_the_others_are_committed(
    data: Cluster, new, keys: tuple[int, int]
) -> None:
    query = f"SELECT id, v FROM account WHERE id IN {keys} ORDER BY id"
    one, two = new(), new()
    before = dict(one.run(query))
    for session, key in ((one, keys[0]), (two, keys[1])):
        session.run("BEGIN")
        session.run(take(key))
    close_ring([one, two], [take(keys[1]), take(keys[0])])
    assert dict(one.run(query)) == {key: v + 1 for key, v in before.items()}


def test_a_victim_keeps_what_it_did_before_its_savepoint(
    data: Cluster, new, keys: tuple[int, int]
) -> None:
    one, two = new(), new()
    free = max(keys) + 1
    for session, key in ((one, keys[0]), (two, keys[1])):
        session.run("BEGIN")
        if session is two:
            session.run(take(free))
            session.run("SAVEPOINT s")
        session.run(take(key))
    (before,) = new().run(f"SELECT v FROM account WHERE id = {free}")
    future_one, future_two = one.start(take(keys[1])), two.start(take(keys[0]))
    assert outcome(future_two).sqlstate == "40P01"
    two.run("ROLLBACK TO s")
    assert outcome(future_one) is None
    one.run("COMMIT")
    two.run("COMMIT")
    assert new().run(f"SELECT v - 1 FROM account WHERE id = {free}") == [before]


def test_a_ring_of_three_sessions_has_one_victim(data: Cluster, new, keys: tuple[int, int]) -> None:
    third = data.workers[0].value(f"SELECT max(id) FROM {SCHEMA}.account")
    ring = [keys[0], keys[1], third]
    sessions = [new() for _ in ring]
    for session, key in zip(sessions, ring, strict=True):
        session.run("BEGIN")
        session.run(take(key))
    outcomes = close_ring(sessions, [take(ring[1]), take(ring[2]), take(ring[0])])
    assert victims(outcomes) == [2]


def test_a_ring_through_a_reference_table_and_a_worker_ends(
    data: Cluster, new, keys: tuple[int, int]
) -> None:
    """One waits for a row of the coordinator's copy, by core's own lock; the other is the victim."""
    one, two = new(), new()
    one.run("BEGIN")
    one.run("UPDATE rate SET v = v + 1 WHERE code = 1")
    two.run("BEGIN")
    two.run(take(keys[0]))
    outcomes = close_ring([one, two], [take(keys[0]), "UPDATE rate SET v = v + 1 WHERE code = 1"])
    assert victims(outcomes) == [0]


def test_a_ring_through_a_local_table_and_a_worker_ends(
    data: Cluster, new, keys: tuple[int, int]
) -> None:
    one, two = new(), new()
    one.run("BEGIN")
    one.run("UPDATE local SET v = v + 1 WHERE id = 1")
    two.run("BEGIN")
    two.run(take(keys[0]))
    outcomes = close_ring([one, two], [take(keys[0]), "UPDATE local SET v = 0 WHERE id = 1"])
    assert victims(outcomes) == [0]


def test_a_ring_through_a_deferred_check_at_commit_ends(
    data: Cluster, new, keys: tuple[int, int]
) -> None:
    """COMMIT prepares on both workers; on one the deferred check waits for the other session."""
    one, two = new(), new()
    two.run("BEGIN")
    two.run(f"INSERT INTO once VALUES ({keys[1]}, 7)")
    one.run("BEGIN")
    one.run(f"INSERT INTO once VALUES ({keys[1]}, 7)")
    one.run(take(keys[0]))
    commit = one.start("COMMIT")
    waits(data, 1)
    update = two.start(take(keys[0]))
    errors = [outcome(commit), outcome(update)]
    assert [error.sqlstate for error in errors if error] == ["40P01"], errors
    two.run("ROLLBACK" if errors[1] else "COMMIT")
    assert len(new().run(f"SELECT * FROM once WHERE n = 7 AND id = {keys[1]}")) == 1
    new().run("TRUNCATE once")


def test_two_roles_of_a_session_do_not_wait_for_each_other(
    data: Cluster, new, keys: tuple[int, int]
) -> None:
    data.create_role("deadlock_writer")
    admin, session = new(), new()
    admin.run(
        f"GRANT USAGE ON SCHEMA {SCHEMA} TO deadlock_writer;"
        f"GRANT INSERT ON {SCHEMA}.account TO deadlock_writer"
    )
    session.run("BEGIN")
    session.run("INSERT INTO account VALUES (5000, 1)")
    session.run("SET LOCAL ROLE deadlock_writer")
    error = outcome(session.start("INSERT INTO account VALUES (5000, 2)"))
    assert error is not None
    assert error.sqlstate == "23505"
    session.run("ROLLBACK")
    admin.run("DROP OWNED BY deadlock_writer")


def test_a_wait_that_is_no_deadlock_has_no_victim(
    data: Cluster, new, keys: tuple[int, int]
) -> None:
    """A queue of five behind one row, for several times the deadlock timeout."""
    holder, *queue = [new() for _ in range(6)]
    holder.run("BEGIN")
    holder.run(take(keys[0]))
    for session in queue:
        session.run("BEGIN")
        session.run(take(keys[1] if session is queue[0] else 100 - queue.index(session)))
    futures = [session.start(take(keys[0])) for session in queue]
    waits(data, len(queue))
    time.sleep(4 * TIMEOUT)
    assert not any(future.done() for future in futures)
    holder.run("COMMIT")
    remaining = dict(zip(queue, futures, strict=True))
    end = time.monotonic() + 20
    while remaining and time.monotonic() < end:
        for session, future in list(remaining.items()):
            if future.done():
                assert outcome(future) is None
                session.run("COMMIT")
                del remaining[session]
        time.sleep(0.01)
    assert not remaining


def test_a_deadlock_on_one_worker_is_that_workers_business(
    data: Cluster, new, keys: tuple[int, int]
) -> None:
    other = data.workers[0].value(f"SELECT max(id) FROM {SCHEMA}.account")
    one, two = new(), new()
    for session, key in ((one, keys[0]), (two, other)):
        session.run("BEGIN")
        session.run(take(key))
    outcomes = close_ring([one, two], [take(other), take(keys[0])])
    (victim,) = victims(outcomes)
    assert "worker1" in (outcomes[victim].diag.context or "")


def test_the_view_of_waits_names_sessions_statements_and_node(
    data: Cluster, keys: tuple[int, int]
) -> None:
    with ExitStack() as stack:
        holder, waiter = Session(data, stack), Session(data, stack)
        holder.run("BEGIN")
        holder.run(take(keys[1]))
        future = waiter.start(take(keys[1]))
        waits(data, 1)
        ((node, waiting, waiting_sql, blocking, blocking_sql, young),) = data.coordinator.query(
            "SELECT node, waiting_session, waiting_statement, blocking_session,"
            " blocking_statement, clock_timestamp() - since < '10 s' FROM strata.lock_waits"
        )
        assert (node, waiting, blocking, young) == ("worker2", waiter.pid, holder.pid, True)
        assert waiting_sql == blocking_sql == take(keys[1])
        holder.run("COMMIT")
        assert outcome(future) is None
    assert data.coordinator.query("SELECT * FROM strata.lock_waits") == []


def test_an_administrators_session_on_a_worker_is_part_of_the_view(
    data: Cluster, keys: tuple[int, int]
) -> None:
    with data.workers[0].connect() as admin, ExitStack() as stack:
        waiter = Session(data, stack)
        admin.execute("BEGIN")
        admin.execute(f"UPDATE {SCHEMA}.account SET v = v WHERE id = {keys[0]}")
        future = waiter.start(take(keys[0]))
        waits(data, 1)
        rows = data.coordinator.query(
            "SELECT waiting_session, blocking_session, blocking_pid FROM strata.lock_waits"
        )
        assert rows == [(waiter.pid, None, admin.info.backend_pid)]
        admin.execute("COMMIT")
        assert outcome(future) is None


def test_ordinary_users_neither_see_waits_nor_end_them(data: Cluster) -> None:
    data.create_role("deadlock_guest")
    with data.coordinator.connect(user="deadlock_guest") as guest:
        for query in (
            "SELECT * FROM strata.lock_waits",
            "SELECT * FROM strata.session_wires()",
            "SELECT strata.detect_deadlocks()",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                guest.execute(query)


def test_a_victim_does_not_read_the_statements_of_others(
    data: Cluster, new, keys: tuple[int, int]
) -> None:
    data.create_role("deadlock_guest")
    one = new()
    one.run(f"GRANT USAGE ON SCHEMA {SCHEMA} TO deadlock_guest")
    one.run("GRANT ALL ON account TO deadlock_guest")
    guest = new(user="deadlock_guest")
    for session, key in ((one, keys[0]), (guest, keys[1])):
        session.run("BEGIN")
        session.run(take(key))
    outcomes = close_ring([one, guest], [take(keys[1]), take(keys[0])])
    assert victims(outcomes) == [1]
    detail = outcomes[1].diag.message_detail
    assert f"Process {guest.pid}: {take(keys[0])}" in detail
    assert f"Process {one.pid}: <insufficient privilege>" in detail


def test_random_rings_end_with_one_victim_each(data: Cluster, new, keys: tuple[int, int]) -> None:
    rng = random.Random(5)
    sessions = [new() for _ in range(5)]
    ids = [
        [row[0] for row in node.query(f"SELECT id FROM {SCHEMA}.account WHERE id <= 100")]
        for node in data.workers
    ]
    for _ in range(10):
        size = rng.randrange(2, 6)
        # on both workers at least one, or the ring is a worker's own business
        ring = [ids[0].pop(), ids[1].pop(), *(rng.choice(ids).pop() for _ in range(size - 2))]
        rng.shuffle(ring)
        members = sessions[:size]
        for session, key in zip(members, ring, strict=True):
            session.run("BEGIN")
            session.run(take(key))
        outcomes = close_ring(members, [take(key) for key in ring[1:] + ring[:1]])
        assert len(victims(outcomes)) == 1


def test_a_frozen_worker_hides_no_deadlock_of_the_others(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster(workers=3)
    coordinator = cluster.coordinator
    with coordinator.connect() as connection:
        connection.execute(SETUP)
    keys = [node.value(f"SELECT min(id) FROM {SCHEMA}.account") for node in cluster.workers]
    with ExitStack() as stack:
        sessions = [Session(cluster, stack) for _ in keys]
        for session, key in zip(sessions, keys, strict=True):
            session.run("BEGIN")
            session.run(take(key))
        one, other, stranded = sessions
        with frozen(cluster.workers[2]):
            lost = stranded.start(take(keys[2]))
            for _ in wait_until("the heartbeat misses the worker"):
                rows = coordinator.query("SELECT name FROM strata.workers WHERE status = 'down'")
                if rows == [("worker3",)]:
                    break
            begin = time.monotonic()
            outcomes = close_ring([one, other], [take(keys[1]), take(keys[0])])
            assert time.monotonic() - begin < patience(10)
            assert len(victims(outcomes)) == 1
            assert not lost.done()
        assert outcome(lost) is None
