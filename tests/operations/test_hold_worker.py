"""strata.hold_worker(): a planned switchover of a worker that no client notices."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.failover import conninfo_of, make_standby, promote, set_conninfo, wait_for_status
from tests.fixtures import new_root
from tests.waiting import patience, wait_until

NAME = "worker2"
HOLD = "SELECT strata.hold_worker('worker2', %s::interval, %s::interval)"
RELEASE = "SELECT strata.release_worker('worker2')"


@pytest.fixture(scope="module")
def held() -> Iterator[Cluster]:
    """A cluster of its own: a hold concerns everybody."""
    with Cluster(new_root(), workers=2) as cluster:
        cluster.coordinator.execute(
            "CREATE TABLE t (id integer PRIMARY KEY, v integer NOT NULL);"
            "SELECT strata.create_distributed_table('t', 'id', shard_count => 4);"
            "INSERT INTO t SELECT g, 0 FROM generate_series(1, 50) AS g;"
            "CREATE TABLE r (id integer PRIMARY KEY, v integer NOT NULL);"
            "SELECT strata.create_reference_table('r');"
            "INSERT INTO r VALUES (1, 0), (2, 0)"
        )
        yield cluster


@pytest.fixture
def keys(held: Cluster) -> tuple[int, int]:
    """A key of each worker."""
    first, second = [worker.value("SELECT min(id) FROM t") for worker in held.workers]
    return first, second


class Statement:
    """A statement that runs in a thread."""

    def __init__(self, connection: psycopg.Connection, sql: str):
        self.error: psycopg.Error | None = None
        self.connection = connection
        self.sql = sql
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.connection.execute(self.sql)
        except psycopg.Error as error:
            self.error = error
        self.done.set()

    def finish(self, timeout: float = 20) -> None:
        assert self.done.wait(timeout), f"still runs: {self.sql}"
        self.thread.join()
        if self.error is not None:
            raise self.error

    def waits(self) -> bool:
        return not self.done.wait(0.3)


@contextlib.contextmanager
def holding(cluster: Cluster, timeout: str = "30s", drain: str = "5s") -> Iterator[Callable]:
    with cluster.coordinator.connect() as admin:
        assert admin.execute(HOLD, (timeout, drain)).fetchall() == [(0,)]
        yield lambda: admin.execute(RELEASE)


def update(key: int) -> str:
    return f"UPDATE t SET v = v + 1 WHERE id = {key}"


def test_only_those_who_need_the_worker_wait(held: Cluster, keys: tuple[int, int]) -> None:
    with (
        held.coordinator.connect() as other,
        held.coordinator.connect() as one,
        held.coordinator.connect() as reader,
        holding(held) as release,
    ):
        other.execute(update(keys[0]))
        statements = [
            Statement(one, update(keys[1])),
            Statement(reader, "SELECT count(*) FROM t"),
        ]
        assert all(statement.waits() for statement in statements)
        other.execute(update(keys[0]))
        release()
        for statement in statements:
            statement.finish()


def test_a_transaction_that_uses_the_worker_goes_on_and_is_waited_for(
    held: Cluster, keys: tuple[int, int]
) -> None:
    with held.coordinator.connect() as user, held.coordinator.connect() as admin:
        user.execute("BEGIN")
        user.execute(update(keys[1]))
        hold = Statement(admin, "SELECT strata.hold_worker('worker2', '30s', '20s')")
        assert hold.waits()
        user.execute(update(keys[1]))
        user.execute(update(keys[0]))
        assert hold.waits()
        user.execute("COMMIT")
        hold.finish()
        admin.execute(RELEASE)


def test_who_does_not_leave_in_time_is_counted(held: Cluster, keys: tuple[int, int]) -> None:
    with held.coordinator.connect() as user, held.coordinator.connect() as admin:
        user.execute("BEGIN")
        user.execute(update(keys[1]))
        assert admin.execute(HOLD, ("30s", "200ms")).fetchall() == [(1,)]
        admin.execute(RELEASE)
        user.execute("COMMIT")


@pytest.mark.parametrize("what", ["reference table", "lock here", "row on the other worker"])
def test_whoever_blocks_a_transaction_that_drains_does_not_wait(
    held: Cluster, keys: tuple[int, int], what: str
) -> None:
    """The user of the worker waits for the other one's lock; that one has to go on."""
    locks, wants = {
        "reference table": ("UPDATE r SET v = v + 1 WHERE id = 1",) * 2,
        "lock here": ("LOCK TABLE t", update(keys[1])),
        "row on the other worker": (update(keys[0]), update(keys[0])),
    }[what]
    (third,) = held.workers[1].query("SELECT max(id) FROM t")[0]
    with (
        held.coordinator.connect() as user,
        held.coordinator.connect() as other,
        held.coordinator.connect() as admin,
    ):
        user.execute("BEGIN")
        user.execute("SELECT count(*) FROM t" if what == "lock here" else update(keys[1]))
        if what == "lock here":
            locks, wants = "LOCK TABLE r", "UPDATE r SET v = v + 1 WHERE id = 2"
        other.execute("BEGIN")
        other.execute(locks)
        blocked = Statement(user, wants)
        assert blocked.waits()
        hold = Statement(admin, "SELECT strata.hold_worker('worker2', '60s', '50s')")
        assert hold.waits()
        other.execute(update(third) if what != "lock here" else "SELECT count(*) FROM t")
        other.execute("COMMIT")
        blocked.finish()
        user.execute("COMMIT")
        hold.finish()
        admin.execute(RELEASE)


def test_who_waits_can_be_cancelled(held: Cluster, keys: tuple[int, int]) -> None:
    with held.coordinator.connect() as user, holding(held):
        user.execute("SET statement_timeout = '300ms'")
        begin = time.monotonic()
        with pytest.raises(psycopg.errors.QueryCanceled):
            user.execute(update(keys[1]))
        assert time.monotonic() - begin < patience(10)
        user.execute("SET statement_timeout = 0")
        user.execute(update(keys[0]))
    held.coordinator.execute(update(keys[1]))


def test_the_hold_ends_at_its_timeout(held: Cluster, keys: tuple[int, int]) -> None:
    with held.coordinator.connect() as user, held.coordinator.connect() as admin:
        admin.execute(HOLD, ("1s", "1s"))
        begin = time.monotonic()
        user.execute(update(keys[1]))
        assert 0.5 < time.monotonic() - begin < patience(10)
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            admin.execute(RELEASE)


def test_the_hold_ends_with_its_session(held: Cluster, keys: tuple[int, int]) -> None:
    with held.coordinator.connect() as user, held.coordinator.connect() as admin:
        admin.execute(HOLD, ("1 hour", "1s"))
        statement = Statement(user, update(keys[1]))
        assert statement.waits()
        held.coordinator.execute(f"SELECT pg_terminate_backend({admin.info.backend_pid})")
        statement.finish()


def test_a_cancelled_drain_holds_nothing(held: Cluster, keys: tuple[int, int]) -> None:
    with held.coordinator.connect() as user, held.coordinator.connect() as admin:
        user.execute("BEGIN")
        user.execute(update(keys[1]))
        admin.execute("SET statement_timeout = '300ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            admin.execute(HOLD, ("60s", "50s"))
        held.coordinator.execute("SELECT count(*) FROM t")
        user.execute("COMMIT")


def test_a_session_that_was_terminated_is_not_waited_for(
    held: Cluster, keys: tuple[int, int]
) -> None:
    with held.coordinator.connect() as user:
        user.execute("BEGIN")
        user.execute(update(keys[1]))
        pid = user.info.backend_pid
        held.coordinator.execute(f"SELECT pg_terminate_backend({pid}, 10000)")
        user.close()
        with holding(held, drain="10s") as release:
            release()


def test_one_worker_is_held_at_a_time(held: Cluster) -> None:
    with (
        held.coordinator.connect() as second,
        holding(held),
        pytest.raises(psycopg.errors.ObjectInUse),
    ):
        second.execute("SELECT strata.hold_worker('worker1')")
    for name, state in (("nobody", "42704"), (None, "22004")):
        with pytest.raises(psycopg.Error) as caught:
            held.coordinator.query("SELECT strata.hold_worker(%s)", (name,))
        assert caught.value.sqlstate == state


# ---- the switchover ---------------------------------------------------------------------------------


class Traffic:
    """Clients that never expect an error; each remembers when it was acknowledged."""

    def __init__(self, cluster: Cluster, statements: list[str], pause: float):
        self.cluster = cluster
        self.stop = threading.Event()
        self.errors: list[BaseException] = []
        self.gaps: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self.threads = [
            threading.Thread(target=self._run, args=(statement, pause)) for statement in statements
        ]

    def _run(self, statement: str, pause: float) -> None:
        try:
            with self.cluster.coordinator.connect() as connection:
                last = time.monotonic()
                while not self.stop.wait(pause):
                    connection.execute(statement)
                    now = time.monotonic()
                    self.gaps[statement] = max(self.gaps.get(statement, 0), now - last)
                    self.counts[statement] = self.counts.get(statement, 0) + 1
                    last = now
        except BaseException as error:
            self.errors.append(error)

    def __enter__(self) -> Traffic:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(patience(60))

    def wait_for_more(self, count: int) -> None:
        goal = {statement: done + count for statement, done in self.counts.items()}
        for _ in wait_until("all clients go on", timeout=60):
            assert self.errors == []
            if len(self.counts) == len(self.threads) and all(
                self.counts[statement] >= wanted for statement, wanted in goal.items()
            ):
                return


def test_live_writers_and_readers_see_no_error_in_a_planned_switchover(make_cluster) -> None:
    """The primary stops, its standby is promoted; clients of both workers stay connected."""
    cluster = make_cluster(workers=2)
    coordinator = cluster.coordinator
    coordinator.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, v integer NOT NULL);"
        "SELECT strata.create_distributed_table('t', 'id', shard_count => 4, storage => 'heap');"
        "INSERT INTO t SELECT g, 0 FROM generate_series(1, 50) AS g"
    )
    ids = [[i for (i,) in worker.query("SELECT id FROM t")] for worker in cluster.workers]
    primary = cluster.workers[1]
    standby = make_standby(cluster, primary, "standby")
    set_conninfo(cluster, NAME, conninfo_of(primary, standby))
    wait_for_status(cluster, NAME, "up")
    statements = [
        f"UPDATE t SET v = v + 1 WHERE id IN ({ids[0][i]}, {ids[1][i]})" for i in range(4)
    ]
    statements += [update(ids[1][i]) for i in range(4, 8)]
    statements += [
        update(ids[0][8]),
        "SELECT sum(v) FROM t",
        f"SELECT v FROM t WHERE id = {ids[1][9]}",
    ]
    try:
        with Traffic(cluster, statements, pause=0.1) as traffic, coordinator.connect() as admin:
            traffic.wait_for_more(5)
            assert admin.execute(HOLD, ("60s", "20s")).fetchall() == [(0,)]
            begin = time.monotonic()
            primary.stop("fast")
            promote(standby)
            admin.execute(RELEASE)
            print(f"switchover itself: {time.monotonic() - begin:.2f} s")
            traffic.wait_for_more(5)
        assert traffic.errors == []
        print(f"largest gap of a client: {max(traffic.gaps.values()):.2f} s; {traffic.counts}")
        expected = sum(
            done * (2 if " IN " in statement else 1)
            for statement, done in traffic.counts.items()
            if statement.startswith("UPDATE")
        )
        assert coordinator.value("SELECT sum(v) FROM t") == expected
        assert standby.value("SELECT pg_is_in_recovery()") is False
    finally:
        standby.stop("immediate")
