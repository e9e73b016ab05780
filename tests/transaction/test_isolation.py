"""Several sessions at once: who waits for whom, who sees what, and that nothing is left behind.

A session that is expected to wait runs its statement in a thread; the servers' own pg_locks say
that it waits.  Every test ends with no prepared transaction on any worker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import psycopg
import pytest

from tests.cluster import Cluster
from tests.waiting import check_nothing_prepared, patience, wait_until

SCHEMA = "test_isolation"

SETUP = f"""
DROP SCHEMA IF EXISTS {SCHEMA} CASCADE;
CREATE SCHEMA {SCHEMA};
SET search_path = {SCHEMA}, public, strata;
CREATE TABLE account (id integer PRIMARY KEY, v integer NOT NULL, t text);
CREATE TABLE big (id integer, n integer, pad text);
CREATE TABLE rate (code text PRIMARY KEY, v integer);
SELECT create_distributed_table('account', 'id', shard_count => 8, colocate_with => 'none');
SELECT create_distributed_table('big', 'id', shard_count => 8, colocate_with => 'none');
SELECT create_reference_table('rate');
INSERT INTO big SELECT g % 100, g, repeat('x', 500) FROM generate_series(1, 40000) AS g;
"""

CONTENT = """
TRUNCATE account;
TRUNCATE rate;
INSERT INTO account SELECT g, 100, 'a' || g FROM generate_series(1, 100) AS g;
INSERT INTO rate SELECT 'c' || g, g FROM generate_series(1, 10) AS g;
"""


class Session:
    """A connection to the coordinator whose statements can also run in the background."""

    def __init__(self, cluster: Cluster, stack: ExitStack, settings: str = ""):
        self.connection = stack.enter_context(cluster.coordinator.connect())
        self.connection.execute(
            f"SET search_path = {SCHEMA}, public, strata; SET lock_timeout = '20s'; {settings}"
        )
        self._cluster = cluster
        self._pool = stack.enter_context(ThreadPoolExecutor(1))

    def rows(self, query: str) -> list[tuple]:
        cursor = self.connection.execute(query)
        return cursor.fetchall() if cursor.description else []

    def start(self, query: str) -> Future:
        return self._pool.submit(self.rows, query)

    def start_waiting(self, query: str) -> Future:
        """Run a statement that has to wait for a lock somewhere."""
        future = self.start(query)
        for _ in wait_until(f"{query} waits", 10, 0.01):
            assert not future.done(), f"did not wait: {query}: {outcome(future)}"
            if waiting(self._cluster):
                return future
        raise AssertionError  # wait_until() raises before

    def fails(self, query: str, sqlstate: str) -> psycopg.Error:
        with pytest.raises(psycopg.Error) as caught:
            self.rows(query)
        assert caught.value.sqlstate == sqlstate, caught.value
        return caught.value


def outcome(future: Future, timeout: float = 15):
    """The rows of a background statement, or the SQLSTATE of its error."""
    try:
        return future.result(timeout)
    except psycopg.Error as error:
        return error.sqlstate


def waiting(cluster: Cluster) -> int:
    """How many lock requests are not granted on any node."""
    return sum(
        node.value("SELECT count(*) FROM pg_locks WHERE NOT granted")
        for node in (cluster.coordinator, *cluster.workers)
    )


def busy_on_workers(cluster: Cluster) -> int:
    """Backends that have a statement or a transaction of a coordinator open on a worker."""
    return sum(
        node.value(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
            " AND state <> 'idle' AND pid <> pg_backend_pid()"
        )
        for node in cluster.workers
    )


def assert_workers_come_to_rest(cluster: Cluster, seconds: float = 1) -> None:
    for _ in wait_until("the workers are idle", seconds):
        if busy_on_workers(cluster) == 0:
            return


@pytest.fixture(scope="module")
def prepared_schema(cluster: Cluster) -> Iterator[None]:
    with cluster.coordinator.connect() as connection:
        connection.execute(SETUP)
    yield
    with cluster.coordinator.connect() as connection:
        connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")


Open = Callable[..., Session]


@pytest.fixture
def new(cluster: Cluster, prepared_schema: None) -> Iterator[Open]:
    """A function that opens sessions; they end with the test."""
    with ExitStack() as stack:
        first = Session(cluster, stack)
        first.rows(CONTENT)
        yield lambda settings="": Session(cluster, stack, settings)
    assert_workers_come_to_rest(cluster, 5)
    check_nothing_prepared(cluster)


@pytest.fixture
def keys(cluster: Cluster, new: Open) -> tuple[int, int]:
    """Two keys of account on different workers."""
    first, second = [
        node.value(f"SELECT min(id) FROM {SCHEMA}.account") for node in cluster.workers
    ]
    return first, second


@contextmanager
def left_open(session: Session, *statements: str, end: str = "COMMIT") -> Iterator[None]:
    """A transaction that has executed the statements, and is ended by the block's end."""
    session.rows("BEGIN")
    for statement in statements:
        session.rows(statement)
    yield
    session.rows(end)


# ---- the same key, the same row -----------------------------------------------------------------


@pytest.mark.parametrize(
    "insert",
    [
        "INSERT INTO account VALUES (500, 1)",
        "INSERT INTO account SELECT 500, 1",
        "INSERT INTO account SELECT g, 1 FROM generate_series(495, 505) AS g",
        "UPDATE account SET v = 9 WHERE false; INSERT INTO account VALUES (500, 2) RETURNING v",
    ],
)
def test_the_second_insert_of_a_key_waits_and_fails(new: Open, insert: str) -> None:
    one, other = new(), new()
    with left_open(one, "INSERT INTO account VALUES (500, 0)"):
        future = other.start_waiting(insert)
    assert outcome(future) == "23505"
    assert one.rows("SELECT id, v FROM account WHERE id > 400") == [(500, 0)]


def test_the_second_insert_of_a_key_goes_on_when_the_first_rolls_back(new: Open) -> None:
    one, other = new(), new()
    with left_open(one, "INSERT INTO account VALUES (500, 0)", end="ROLLBACK"):
        future = other.start_waiting("INSERT INTO account VALUES (500, 1)")
    assert outcome(future) == []
    assert one.rows("SELECT id, v FROM account WHERE id > 400") == [(500, 1)]


def test_copy_of_a_key_that_another_session_inserted_waits_and_fails(
    new: Open, cluster: Cluster
) -> None:
    one, other = new(), new()

    def copy() -> None:
        with other.connection.cursor().copy("COPY account (id, v) FROM STDIN") as stream:
            stream.write("".join(f"{n}\t1\n" for n in range(450, 550)))

    with ThreadPoolExecutor(1) as pool:
        with left_open(one, "INSERT INTO account VALUES (500, 0)"):
            future = pool.submit(copy)
            for _ in wait_until("the COPY waits"):
                if waiting(cluster):
                    break
        assert outcome(future) == "23505"
    assert one.rows("SELECT id, v FROM account WHERE id > 400") == [(500, 0)]


def test_an_upsert_waits_for_the_key_and_then_updates_it(new: Open) -> None:
    one, other = new(), new()
    with left_open(one, "INSERT INTO account VALUES (500, 10)"):
        future = other.start_waiting(
            "INSERT INTO account VALUES (500, 1) ON CONFLICT (id) DO UPDATE"
            " SET v = account.v + excluded.v RETURNING v"
        )
    assert outcome(future) == [(11,)]
    with left_open(one, "UPDATE account SET v = 20 WHERE id = 500"):
        future = other.start_waiting("INSERT INTO account VALUES (500, 1) ON CONFLICT DO NOTHING")
    assert outcome(future) == []
    assert one.rows("SELECT v FROM account WHERE id = 500") == [(20,)]


@pytest.mark.parametrize("condition", ["id = 5", "id BETWEEN 1 AND 10", "t = 'a5'"])
def test_read_committed_updates_the_newest_version(new: Open, condition: str) -> None:
    one, other = new(), new()
    with left_open(one, "UPDATE account SET v = v + 10 WHERE id = 5"):
        future = other.start_waiting(f"UPDATE account SET v = v * 2 WHERE {condition}")
    assert outcome(future) == []
    assert one.rows("SELECT v FROM account WHERE id = 5") == [(220,)]


def test_read_committed_checks_the_condition_again(new: Open) -> None:
    one, other = new(), new()
    with left_open(one, "UPDATE account SET v = 0 WHERE id IN (5, 6)"):
        future = other.start_waiting(
            "UPDATE account SET v = v - 1 WHERE v > 0 AND id < 8 RETURNING id"
        )
    assert sorted(outcome(future)) == [(1,), (2,), (3,), (4,), (7,)]
    with left_open(one, "DELETE FROM account WHERE id = 20"):
        future = other.start_waiting("UPDATE account SET v = 1 WHERE id = 20 RETURNING id")
    assert outcome(future) == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE account SET v = v * 2 WHERE id = 5",
        "UPDATE account SET v = v * 2",
        "DELETE FROM account WHERE id = 5",
        "SELECT * FROM account WHERE id = 5 FOR UPDATE",
    ],
)
def test_repeatable_read_refuses_the_newest_version(new: Open, statement: str) -> None:
    one, other = new(), new()
    other.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    assert other.rows("SELECT count(*) FROM account") == [(100,)]
    with left_open(one, "UPDATE account SET v = v + 10 WHERE id = 5"):
        future = other.start_waiting(statement)
    assert outcome(future) == "40001"
    other.rows("ROLLBACK")
    assert one.rows("SELECT sum(v) FROM account") == [(10010,)]
    other.rows(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; UPDATE account SET v = 1 WHERE id = 5; COMMIT"
    )
    assert one.rows("SELECT v FROM account WHERE id = 5") == [(1,)]


def test_repeatable_read_goes_on_when_the_other_rolls_back(new: Open) -> None:
    one, other = new(), new()
    other.rows("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM account")
    with left_open(one, "UPDATE account SET v = v + 10 WHERE id = 5", end="ROLLBACK"):
        future = other.start_waiting("UPDATE account SET v = v * 2 WHERE id = 5 RETURNING v")
    assert outcome(future) == [(200,)]
    other.rows("COMMIT")


# ---- row locks ------------------------------------------------------------------------------------


def test_for_update_blocks_writers_and_other_lockers(new: Open) -> None:
    one, other = new(), new()
    for statement in (
        "UPDATE account SET v = 0 WHERE id = 7",
        "DELETE FROM account WHERE id = 7",
        "SELECT id FROM account WHERE id = 7 FOR SHARE",
        "SELECT id FROM account WHERE id < 10 FOR NO KEY UPDATE",
    ):
        with left_open(one, "SELECT * FROM account WHERE id = 7 FOR UPDATE", end="ROLLBACK"):
            assert other.rows("SELECT v FROM account WHERE id = 7") == [(100,)]
            other.rows("BEGIN")
            future = other.start_waiting(statement)
        assert not isinstance(outcome(future), str)
        other.rows("ROLLBACK")


def test_nowait_fails_at_once_and_skip_locked_passes_by(new: Open, keys: tuple[int, int]) -> None:
    one, other = new(), new()
    listed = f"{keys[0]}, {keys[1]}"
    with left_open(one, f"SELECT * FROM account WHERE id IN ({listed}) FOR UPDATE"):
        start = time.monotonic()
        for key in keys:
            other.fails(f"SELECT * FROM account WHERE id = {key} FOR UPDATE NOWAIT", "55P03")
        other.fails("SELECT * FROM account FOR SHARE NOWAIT", "55P03")
        assert time.monotonic() - start < patience(2)
        rows = other.rows("SELECT id FROM account ORDER BY id FOR UPDATE SKIP LOCKED")
        assert [n for (n,) in rows] == [n for n in range(1, 101) if n not in keys]
        rows = other.rows("SELECT id FROM account WHERE id < 4 FOR KEY SHARE SKIP LOCKED")
        assert {n for (n,) in rows} == {1, 2, 3} - set(keys)
    assert len(other.rows("SELECT id FROM account FOR UPDATE NOWAIT")) == 100


def test_share_locks_share(new: Open) -> None:
    one, other = new(), new()
    with left_open(one, "SELECT * FROM account WHERE id = 7 FOR SHARE"):
        assert other.rows("SELECT id FROM account WHERE id = 7 FOR SHARE NOWAIT") == [(7,)]
        assert other.rows("SELECT id FROM account WHERE id = 7 FOR KEY SHARE NOWAIT") == [(7,)]
        other.fails("SELECT id FROM account WHERE id = 7 FOR NO KEY UPDATE NOWAIT", "55P03")


def test_a_queue_of_jobs_gives_each_job_to_one_session(new: Open) -> None:
    sessions = [new() for _ in range(4)]
    taken: list[int] = []
    lock = threading.Lock()

    def work(session: Session) -> None:
        while True:
            session.rows("BEGIN")
            rows = session.rows(
                "SELECT id FROM account WHERE v = 100 AND id <= 30 ORDER BY id LIMIT 1"
                " FOR UPDATE SKIP LOCKED"
            )
            if not rows:
                session.rows("COMMIT")
                return
            session.rows(f"UPDATE account SET v = 0 WHERE id = {rows[0][0]}")
            session.rows("COMMIT")
            with lock:
                taken.append(rows[0][0])

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work, session) for session in sessions]:
            future.result(30)
    assert sorted(taken) == list(range(1, 31))


def test_a_lock_that_is_rolled_back_to_a_savepoint_is_free(new: Open) -> None:
    one, other = new(), new()
    with left_open(one, "SAVEPOINT s", "SELECT * FROM account WHERE id = 7 FOR UPDATE"):
        other.fails("SELECT * FROM account WHERE id = 7 FOR UPDATE NOWAIT", "55P03")
        one.rows("ROLLBACK TO s")
        assert len(other.rows("SELECT * FROM account WHERE id = 7 FOR UPDATE NOWAIT")) == 1


def test_advisory_and_table_locks_are_the_coordinators(new: Open) -> None:
    one, other = new(), new()
    with left_open(one, "LOCK TABLE account IN SHARE MODE"):
        assert other.rows("SELECT count(*) FROM account") == [(100,)]
        future = other.start_waiting("UPDATE account SET v = 1 WHERE id = 1")
    assert outcome(future) == []


# ---- reference tables -------------------------------------------------------------------------------


def copies_of_rate(cluster: Cluster) -> set[tuple]:
    return {
        tuple(node.query(f"SELECT strata.table_checksum('{SCHEMA}.rate')"))
        for node in (cluster.coordinator, *cluster.workers)
    }


def test_writers_of_a_reference_table_leave_equal_copies(cluster: Cluster, new: Open) -> None:
    sessions = [new() for _ in range(5)]

    def work(number: int, session: Session) -> None:
        for n in range(12):
            session.rows(f"INSERT INTO rate VALUES ('n{number}-{n}', 0) ON CONFLICT DO NOTHING")
            session.rows(f"UPDATE rate SET v = v * 2 + {number} WHERE code = 'c{n % 3 + 1}'")
            if n % 4 == 3:
                session.rows(f"DELETE FROM rate WHERE code = 'n{number}-{n - 1}'")

    with ThreadPoolExecutor(5) as pool:
        futures = [pool.submit(work, number, session) for number, session in enumerate(sessions)]
        for future in futures:
            future.result(60)
    assert len(copies_of_rate(cluster)) == 1
    assert sessions[0].rows("SELECT count(*) FROM rate") == [(10 + 5 * 9,)]


def test_one_row_of_a_reference_table_has_one_writer_at_a_time(cluster: Cluster, new: Open) -> None:
    one, other = new(), new()
    with left_open(one, "UPDATE rate SET v = v + 10 WHERE code = 'c1'"):
        future = other.start_waiting("UPDATE rate SET v = v * 2 WHERE code = 'c1'")
    assert outcome(future) == []
    assert one.rows("SELECT v FROM rate WHERE code = 'c1'") == [(22,)]
    assert len(copies_of_rate(cluster)) == 1


def test_a_new_worker_gets_what_a_writer_changes_meanwhile(make_cluster) -> None:
    cluster = make_cluster(workers=1)
    newcomer = cluster.new_node("worker2")
    cluster.coordinator.execute(
        "CREATE TABLE rate (code integer PRIMARY KEY, v integer);"
        "INSERT INTO rate SELECT g, 0 FROM generate_series(1, 3000) AS g;"
        "SELECT strata.create_reference_table('rate')"
    )
    stop = threading.Event()
    writes = []

    def write() -> None:
        with cluster.coordinator.connect() as connection:
            while not stop.is_set():
                n = len(writes)
                with connection.transaction():
                    connection.execute(f"UPDATE rate SET v = v + 1 WHERE code = {n % 50 + 1}")
                    connection.execute(f"INSERT INTO rate VALUES ({10000 + n}, {n})")
                writes.append(n)

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            for _ in wait_until("the writer writes"):
                if len(writes) > 5:
                    break
            cluster.add_worker(newcomer)
            before = len(writes)
            for _ in wait_until("the writer goes on"):
                if len(writes) > before + 10 or writer.done():
                    break
        finally:
            stop.set()
        writer.result(20)
    sums = [
        node.query("SELECT count(*), sum(v), sum(code) FROM rate")
        for node in (cluster.coordinator, *cluster.workers)
    ]
    assert len(cluster.workers) == 2
    assert sums[0][0][0] == 3000 + len(writes)
    assert sums == [sums[0]] * 3
    assert cluster.coordinator.query("SELECT * FROM strata.check_health() WHERE NOT ok") == []


# ---- DDL --------------------------------------------------------------------------------------------


def test_distributing_a_table_waits_for_its_writers_and_loses_no_row(new: Open) -> None:
    one, other, third = new(), new(), new()
    one.rows("CREATE TABLE fresh (id integer PRIMARY KEY, v integer)")
    one.rows("INSERT INTO fresh SELECT g, 0 FROM generate_series(1, 500) AS g")
    one.rows("BEGIN; INSERT INTO fresh VALUES (1001, 1); UPDATE fresh SET v = 5 WHERE id = 1")
    distributing = other.start_waiting("SELECT create_distributed_table('fresh', 'id')")
    # who comes later waits for the distribution and then writes to the workers
    late = third.start("INSERT INTO fresh VALUES (1002, 1)")
    time.sleep(0.2)
    assert not distributing.done()
    assert not late.done()
    one.rows("INSERT INTO fresh VALUES (1003, 1)")
    one.rows("COMMIT")
    assert outcome(distributing) == [("",)]
    assert outcome(late) == []
    assert one.rows("SELECT count(*), sum(v), max(id) FROM fresh") == [(503, 8, 1003)]
    assert third.rows("SELECT count(*) FROM ONLY fresh WHERE id > 1000") == [(3,)]
    one.rows("DROP TABLE fresh")


def test_distributing_a_table_among_many_writers_loses_no_row(new: Open) -> None:
    one = new()
    one.rows("CREATE TABLE fresh (id bigserial PRIMARY KEY, v integer)")
    written = [0] * 4
    stop = threading.Event()

    def write(number: int, session: Session) -> None:
        while not stop.is_set():
            session.rows("INSERT INTO fresh (v) VALUES (1)")
            written[number] += 1

    sessions = [new() for _ in written]
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(write, n, session) for n, session in enumerate(sessions)]
        try:
            for _ in wait_until("all write"):
                if all(written):
                    break
            one.rows("SELECT create_distributed_table('fresh', 'id')")
            before = list(written)
            for _ in wait_until("all write again"):
                if all(n > m for n, m in zip(written, before, strict=True)):
                    break
        finally:
            stop.set()
        for future in futures:
            future.result(20)
    assert one.rows("SELECT count(*), sum(v) FROM fresh") == [(sum(written), sum(written))]
    one.rows("DROP TABLE fresh")


@pytest.mark.parametrize(
    "statement", ["TRUNCATE big_copy", "DROP TABLE big_copy", "ALTER TABLE big_copy ADD COLUMN z integer"]
)  # fmt: skip
def test_ddl_waits_for_a_reader_that_streams(new: Open, statement: str) -> None:
    one, other = new(), new()
    one.rows(
        "DROP TABLE IF EXISTS big_copy; CREATE TABLE big_copy (LIKE big);"
        "SELECT create_distributed_table('big_copy', 'id', colocate_with => 'test_isolation.big');"
        "INSERT INTO big_copy SELECT * FROM big WHERE n <= 20000"
    )
    one.rows("BEGIN")
    one.rows("DECLARE reader CURSOR FOR SELECT n FROM big_copy")
    read = len(one.rows("FETCH 10 FROM reader"))
    future = other.start_waiting(statement)
    while rows := one.rows("FETCH 5000 FROM reader"):
        read += len(rows)
        assert not future.done()
    one.rows("COMMIT")
    assert read == 20000
    assert outcome(future) == []
    one.rows("DROP TABLE IF EXISTS big_copy")


def test_a_truncate_that_is_not_committed_holds_readers_off(new: Open) -> None:
    one, other = new(), new()
    with left_open(one, "TRUNCATE account"):
        future = other.start_waiting("SELECT count(*) FROM account")
    assert outcome(future) == [(0,)]
    one.rows("INSERT INTO account VALUES (1, 1)")
    with left_open(one, "TRUNCATE account", end="ROLLBACK"):
        future = other.start_waiting("SELECT count(*) FROM account")
    assert outcome(future) == [(1,)]


def test_a_column_can_be_added_while_others_insert(cluster: Cluster, new: Open) -> None:
    written = [0] * 4
    stop = threading.Event()

    def write(number: int, session: Session) -> None:
        while not stop.is_set():
            n = written[number]
            session.rows(f"INSERT INTO account VALUES ({1000 + number * 10000 + n}, 1, 'w')")
            written[number] += 1

    sessions = [new() for _ in written]
    one = new()
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(write, n, session) for n, session in enumerate(sessions)]
        try:
            for column in range(3):
                before = list(written)
                for _ in wait_until("all write"):
                    if all(n > m for n, m in zip(written, before, strict=True)):
                        break
                one.rows(f"ALTER TABLE account ADD COLUMN c{column} integer DEFAULT {column}")
        finally:
            stop.set()
        for future in futures:
            future.result(20)
    total = 100 + sum(written)
    assert one.rows("SELECT count(*), sum(c0), sum(c1), sum(c2) FROM account") == [
        (total, 0, total, 2 * total)
    ]
    one.rows("ALTER TABLE account DROP COLUMN c0, DROP COLUMN c1, DROP COLUMN c2")
    faults = cluster.coordinator.query("SELECT detail FROM strata.check_health() WHERE NOT ok")
    assert not any("account" in str(detail) for (detail,) in faults)


def test_two_sessions_that_distribute_into_one_group_take_turns(new: Open) -> None:
    one, other = new(), new()
    one.rows("CREATE TABLE d1 (id bigint); CREATE TABLE d2 (id bigint)")
    with left_open(one, "SELECT create_distributed_table('d1', 'id')"):
        future = other.start("SELECT create_distributed_table('d2', 'id')")
        time.sleep(0.2)
    assert outcome(future) == [("",)]
    groups = "SELECT count(DISTINCT colocation_id) FROM strata.distributed_table WHERE relation IN ('d1'::regclass, 'd2')"
    assert one.rows(groups) == [(1,)]
    one.rows("DROP TABLE d1, d2")


# ---- deadlocks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["lock_timeout", "statement_timeout"])
def test_a_deadlock_between_workers_ends_by_a_timeout_and_both_recover(
    new: Open, keys: tuple[int, int], setting: str
) -> None:
    sqlstate = {"lock_timeout": "55P03", "statement_timeout": "57014"}[setting]
    first, second = keys
    one = new(f"SET {setting} = '600ms'")
    other = new(f"SET {setting} = '10s'")
    one.rows(f"BEGIN; UPDATE account SET v = v + 1 WHERE id = {first}")
    other.rows(f"BEGIN; UPDATE account SET v = v + 10 WHERE id = {second}")
    waits = other.start_waiting(f"UPDATE account SET v = v + 10 WHERE id = {first}")
    start = time.monotonic()
    one.fails(f"UPDATE account SET v = v + 1 WHERE id = {second}", sqlstate)
    assert 0.4 < time.monotonic() - start < patience(2.5)
    one.rows("ROLLBACK")
    assert outcome(waits) == []
    other.rows("COMMIT")
    query = f"SELECT v FROM account WHERE id IN ({first}, {second})"
    assert one.rows(query) == [(110,), (110,)]
    one.rows(f"UPDATE account SET v = v + 1 WHERE id IN ({first}, {second})")
    assert other.rows(query) == [(111,), (111,)]


def test_a_deadlock_undone_by_a_savepoint_leaves_both_transactions_usable(
    new: Open, keys: tuple[int, int]
) -> None:
    first, second = keys
    one, other = new("SET lock_timeout = '400ms'"), new()
    one.rows(
        f"BEGIN; UPDATE account SET v = v + 1 WHERE id NOT IN ({first}, {second}); SAVEPOINT s"
    )
    one.rows(f"UPDATE account SET v = v + 1 WHERE id = {first}")
    other.rows(f"BEGIN; UPDATE account SET v = v + 10 WHERE id = {second}")
    waits = other.start_waiting(f"UPDATE account SET v = v + 10 WHERE id = {first}")
    one.fails(f"UPDATE account SET v = v + 1 WHERE id = {second}", "55P03")
    one.rows("ROLLBACK TO s")
    assert outcome(waits) == []
    other.rows("COMMIT")
    one.rows(f"UPDATE account SET v = v + 1 WHERE id = {second}")
    one.rows("COMMIT")
    assert one.rows("SELECT sum(v) FROM account") == [(10000 + 98 + 20 + 1,)]


def test_a_deadlock_on_one_worker_is_found_by_that_worker(new: Open, cluster: Cluster) -> None:
    rows = cluster.workers[0].query(f"SELECT id FROM {SCHEMA}.account ORDER BY id LIMIT 2")
    (first,), (second,) = rows
    one, other = new(), new()
    one.rows(f"BEGIN; UPDATE account SET v = v + 1 WHERE id = {first}")
    other.rows(f"BEGIN; UPDATE account SET v = v + 10 WHERE id = {second}")
    waits = other.start_waiting(f"UPDATE account SET v = v + 10 WHERE id = {first}")
    crossing = one.start(f"UPDATE account SET v = v + 1 WHERE id = {second}")
    outcomes = [outcome(waits), outcome(crossing)]
    assert sorted(map(str, outcomes)) == ["40P01", "[]"]
    for session in (one, other):
        session.rows("COMMIT")  # of the victim: ROLLBACK
    winner = 10 if outcomes[0] == [] else 1
    assert (
        one.rows(f"SELECT v FROM account WHERE id IN ({first}, {second})") == [(100 + winner,)] * 2
    )


# ---- cancel -------------------------------------------------------------------------------------------


def copy_and_cancel(session: Session, lines: str) -> None:
    """Load the lines, cancel, and go on sending, as a client does that has not noticed yet."""
    with session.connection.cursor().copy("COPY account FROM STDIN") as copy:
        copy.write(lines)
        time.sleep(0.1)
        session.connection.cancel()
        for number in range(100):
            time.sleep(0.005)
            copy.write("".join(f"{10000 + number * 50 + n}\t1\ty\n" for n in range(50)))


def test_a_cancelled_copy_loads_nothing_and_the_session_goes_on(
    cluster: Cluster, new: Open
) -> None:
    session = new()
    lines = "".join(f"{n}\t1\tx\n" for n in range(1000, 6000))
    with pytest.raises(psycopg.errors.QueryCanceled):
        copy_and_cancel(session, lines)
    assert_workers_come_to_rest(cluster)
    assert session.rows("SELECT count(*) FROM account") == [(100,)]
    with session.connection.cursor().copy("COPY account FROM STDIN") as copy:
        copy.write(lines)
    assert session.rows("SELECT count(*) FROM account") == [(5100,)]


def test_a_cancelled_copy_in_a_transaction_is_undone_by_its_savepoint(
    cluster: Cluster, new: Open
) -> None:
    session = new()
    session.rows("BEGIN; INSERT INTO account VALUES (900, 9); SAVEPOINT s")
    with pytest.raises(psycopg.errors.QueryCanceled):
        copy_and_cancel(session, "".join(f"{n}\t1\tx\n" for n in range(1000, 3000)))
    session.rows("ROLLBACK TO s; INSERT INTO account VALUES (901, 9); COMMIT")
    assert session.rows("SELECT count(*), sum(v) FROM account WHERE id > 100") == [(2, 18)]


@pytest.mark.parametrize("transaction", [False, True])
def test_a_cancelled_stream_ends_on_the_workers_and_the_session_goes_on(
    cluster: Cluster, new: Open, transaction: bool
) -> None:
    session = new()
    if transaction:
        session.rows("BEGIN; UPDATE account SET v = 7 WHERE id = 3; SAVEPOINT s")
    rows = 0

    def read_and_cancel() -> None:
        nonlocal rows
        query = (
            "SELECT a.n, b.pad FROM big AS a, generate_series(1, 1000) AS m, big AS b"
            " WHERE a.id = b.id"
        )
        for _ in session.connection.cursor().stream(query):
            rows += 1
            if rows == 1000:
                session.connection.cancel()

    with pytest.raises(psycopg.errors.QueryCanceled):
        read_and_cancel()
    assert rows < 4_000_000
    if transaction:
        session.rows("ROLLBACK TO s; COMMIT")
        assert session.rows("SELECT v FROM account WHERE id = 3") == [(7,)]
    assert_workers_come_to_rest(cluster)
    assert session.rows("SELECT count(*), sum(n) FROM big") == [(40000, 800020000)]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE account SET v = 0 WHERE id = 7",
        "INSERT INTO account VALUES (7, 1) ON CONFLICT (id) DO UPDATE SET v = 1",
        "SELECT * FROM account FOR UPDATE",
        "DELETE FROM account",
    ],
)
def test_a_wait_for_a_lock_can_be_cancelled(cluster: Cluster, new: Open, statement: str) -> None:
    one, other = new(), new()
    with left_open(one, "UPDATE account SET v = v + 1 WHERE id = 7"):
        future = other.start_waiting(statement)
        other.connection.cancel()
        assert outcome(future, 2) == "57014"
        for _ in wait_until("nobody waits on a worker", 1):
            if waiting(cluster) == 0:
                break
    assert one.rows("SELECT sum(v) FROM account") == [(10001,)]
    assert other.rows("SELECT count(*) FROM account") == [(100,)]


# ---- many at once ---------------------------------------------------------------------------------------

MIXED: list[Callable[[int, int], str]] = [
    # moves money between two accounts, in the order of their ids
    lambda a, b: (
        f"BEGIN; UPDATE account SET v = v - 1 WHERE id = {min(a, b)};"
        f" UPDATE account SET v = v + 1 WHERE id = {max(a, b)}; COMMIT"
    ),
    lambda a, b: (
        f"BEGIN; UPDATE account SET v = v - 5 WHERE id = {min(a, b)};"
        f" UPDATE account SET v = v + 6 WHERE id = {max(a, b)}; ROLLBACK"
    ),
    lambda a, b: "SELECT sum(v), count(*) FROM account",
    lambda a, b: f"SELECT * FROM account WHERE id IN ({a}, {b})",
    lambda a, b: f"INSERT INTO account VALUES ({1000 + a}, 0, 'x') ON CONFLICT (id) DO NOTHING",
    lambda a, b: f"DELETE FROM account WHERE id = {1000 + b}",
    lambda a, b: "SELECT t, count(*) FROM account GROUP BY t ORDER BY 2 DESC, 1 LIMIT 3",
    lambda a, b: (
        f"BEGIN; SAVEPOINT s; UPDATE account SET v = v + 1000 WHERE id = {a};"
        f" ROLLBACK TO s; UPDATE account SET t = 'z' WHERE id = {b}; COMMIT"
    ),
    lambda a, b: f"SELECT r.v, a.v FROM rate AS r JOIN account AS a ON r.v = a.id WHERE r.v <> {a}",
    lambda a, b: (
        f"WITH w AS (SELECT id FROM account WHERE id = {a}) SELECT count(*) FROM w, big"
        " WHERE big.id = w.id AND big.n < 100"
    ),
]


def test_twenty_sessions_leave_equal_sums_and_no_prepared_transactions(
    cluster: Cluster, new: Open
) -> None:
    sessions = [new() for _ in range(20)]
    rounds = 24
    seen: list[tuple] = []

    def work(number: int, session: Session) -> None:
        for n in range(rounds):
            a, b = (number * 7 + n * 13) % 100 + 1, (number * 31 + n * 17) % 100 + 1
            if a == b:
                b = a % 100 + 1
            session.rows(MIXED[(number + n) % len(MIXED)](a, b))
            if n % 8 == 0:
                seen.extend(session.rows("SELECT count(*) FROM account WHERE id <= 100"))

    with ThreadPoolExecutor(20) as pool:
        futures = [pool.submit(work, number, session) for number, session in enumerate(sessions)]
        for future in futures:
            future.result(120)
    assert set(seen) == {(100,)}
    assert sessions[0].rows("SELECT sum(v) FROM account") == [(10000,)]
    check_nothing_prepared(cluster)
    on_workers = [node.value(f"SELECT sum(v) FROM {SCHEMA}.account") for node in cluster.workers]
    assert sum(on_workers) == 10000
    assert len(copies_of_rate(cluster)) == 1
