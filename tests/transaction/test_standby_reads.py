"""strata.read_from: reads go to standbys of the workers, which show an old state, but never a wrong one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import errors

from tests.cluster import Cluster, Node
from tests.failover import (
    conninfo_of,
    copy_coordinator,
    frozen,
    make_standby,
    pause_replay,
    promote,
    resume_replay,
    set_conninfo,
    wait_for_replay,
    wait_for_status,
)
from tests.fault_points import arm, disarm, release, wait_for_arrival
from tests.fixtures import new_root
from tests.period.test_periods import rows_of
from tests.waiting import patience, wait_until

ROWS = 200

# v says which state is seen: what standbys have replayed, or what primaries have
SETUP = f"""
CREATE TABLE t (id integer PRIMARY KEY, v integer NOT NULL);
SELECT strata.create_distributed_table('t', 'id', shard_count => 4);
INSERT INTO t SELECT g, 0 FROM generate_series(1, {ROWS}) AS g;
CREATE TABLE kinds (id integer PRIMARY KEY, v integer NOT NULL);
SELECT strata.create_reference_table('kinds');
INSERT INTO kinds VALUES (1, 0);
CREATE FUNCTION state_of(k integer) RETURNS integer LANGUAGE sql STABLE AS 'SELECT v FROM t WHERE id = k';
GRANT SELECT ON t TO reader;
"""


class Standbys:
    """A cluster whose workers have a standby each."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.standbys = [
            make_standby(cluster, worker, f"standby{number}")
            for number, worker in enumerate(cluster.workers, 1)
        ]
        for worker, standby in zip(cluster.workers, self.standbys, strict=True):
            set_conninfo(cluster, worker.name, conninfo_of(worker, standby))
            wait_for_status(cluster, worker.name, "up")

    def catch_up(self) -> None:
        for worker, standby in zip(self.cluster.workers, self.standbys, strict=True):
            wait_for_replay(worker, standby)

    @contextmanager
    def paused(self, *numbers: int) -> Iterator[None]:
        """These standbys (all, if none are named) replay nothing meanwhile."""
        self.catch_up()
        chosen = [self.standbys[n] for n in numbers] if numbers else self.standbys
        for standby in chosen:
            pause_replay(standby)
        try:
            yield
        finally:
            for standby in chosen:
                resume_replay(standby)
            self.catch_up()

    @contextmanager
    def session(
        self,
        read_from: str,
        staleness: str = "-1",
        user: str | None = None,
        read_only: str = "on",
    ) -> Iterator[psycopg.Connection]:
        options = {"user": user} if user else {}
        with self.cluster.coordinator.connect(**options) as connection:
            connection.execute(f"SET strata.read_from = '{read_from}'")
            connection.execute(f"SET strata.max_staleness = '{staleness}'")
            connection.execute(f"SET default_transaction_read_only = {read_only}")
            yield connection


@pytest.fixture(scope="module")
def made() -> Iterator[Standbys]:
    with Cluster(new_root(), workers=2) as cluster:
        cluster.create_role("reader")
        cluster.coordinator.execute(SETUP)
        yield Standbys(cluster)


@pytest.fixture
def old(made: Standbys) -> Iterator[Standbys]:
    """Standbys show v = 0, primaries v = 1."""
    made.cluster.coordinator.execute("UPDATE t SET v = 0; UPDATE kinds SET v = 0")
    with made.paused():
        made.cluster.coordinator.execute("UPDATE t SET v = 1; UPDATE kinds SET v = 1")
        yield made


def value(connection: psycopg.Connection, query: str) -> object:
    ((found,),) = connection.execute(query).fetchall()
    return found


# ---- which transactions read there ----------------------------------------------------------------

READS = [
    "SELECT max(v) FROM t",
    "SELECT v FROM t WHERE id = 7",
    "SELECT max(a.v) FROM t a JOIN t b USING (id)",
    "SELECT max(a.v) FROM t a JOIN t b ON a.id = b.v + 1",
    "SELECT max(v) FROM (SELECT v FROM t UNION ALL SELECT v FROM t) AS u",
    "SELECT max((SELECT max(b.v) FROM t b WHERE b.id > a.id)) FROM t a",
]


@pytest.mark.parametrize("read_from", ["standby", "any"])
@pytest.mark.parametrize("query", READS)
def test_a_read_only_statement_reads_standbys(old: Standbys, query: str, read_from: str) -> None:
    with old.session(read_from) as connection:
        assert value(connection, query) == 0
        assert value(connection, query) == 0
    with old.session("primary") as connection:
        assert value(connection, query) == 1


def test_a_statement_asks_each_standby_once(made: Standbys) -> None:
    """A routed one asks that of its worker alone."""
    made.catch_up()
    counts = [
        "SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions WHERE funcname = 'check_before_read'",
        "SELECT count(*) FROM t WHERE id = 7",
    ]
    for standby in made.standbys:
        standby.execute("ALTER SYSTEM SET track_functions = 'pl'")
        standby.execute("SELECT pg_reload_conf()")
    try:
        before = [standby.query(counts[0])[0][0] for standby in made.standbys]
        with made.session("standby") as connection:
            for query in READS:
                connection.execute(query)
        for n, standby in enumerate(made.standbys):
            expected = before[n] + len(READS) - 1 + standby.query(counts[1])[0][0]
            for _ in wait_until("the session's wires have told what they called"):
                if (calls := standby.query(counts[0])[0][0]) >= expected:
                    break
            assert calls == expected
    finally:
        for standby in made.standbys:
            standby.execute("ALTER SYSTEM RESET track_functions")
            standby.execute("SELECT pg_reload_conf()")


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_a_read_only_transaction_reads_standbys(old: Standbys, level: str) -> None:
    with old.session("any") as connection:
        connection.execute(f"BEGIN ISOLATION LEVEL {level} READ ONLY")
        for query in [*READS, "SELECT max(state_of(id)) FROM t", "SELECT state_of(7)"]:
            assert value(connection, query) == 0
        connection.execute("SAVEPOINT s")
        connection.execute("DECLARE c CURSOR FOR SELECT v FROM t ORDER BY id")
        assert connection.execute("FETCH 3 FROM c").fetchall() == [(0,)] * 3
        connection.execute("ROLLBACK TO s")
        assert value(connection, READS[0]) == 0
        connection.execute("COMMIT")


def test_commands_that_run_a_query_read_standbys(old: Standbys) -> None:
    with old.session("any") as connection:
        connection.execute("PREPARE p AS SELECT max(v) FROM t")
        assert value(connection, "EXECUTE p") == 0
        with connection.cursor().copy("COPY (SELECT max(v) FROM t) TO STDOUT") as copy:
            assert list(copy.rows()) == [("0",)]
        plan = connection.execute("EXPLAIN (ANALYZE, COSTS off) SELECT v FROM t").fetchall()
        assert sum('From standby of "worker' in line for (line,) in plan) == 2
        ((tree,),) = connection.execute(
            "EXPLAIN (ANALYZE, FORMAT json) SELECT v FROM t WHERE id = 7"
        ).fetchall()
        assert [source["Standby"] for source in tree[0]["Plan"]["Received"]] == [True]


def test_whoever_may_write_reads_primaries(old: Standbys) -> None:
    with old.session("standby", read_only="off") as connection:
        for query in READS:
            assert value(connection, query) == 1
        assert value(connection, "SELECT v FROM t WHERE id = 7 FOR UPDATE") == 1
        connection.execute("BEGIN")
        assert value(connection, READS[0]) == 1
        connection.execute("SET TRANSACTION READ ONLY")
        assert value(connection, READS[0]) == 1
        connection.execute("COMMIT; BEGIN; UPDATE t SET v = 2; SET TRANSACTION READ ONLY")
        assert value(connection, READS[0]) == 2
        connection.execute("ROLLBACK; BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY")
        assert value(connection, READS[1]) == 1
        connection.execute("COMMIT")


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_a_read_only_savepoint_does_not_read_standbys(old: Standbys, level: str) -> None:
    """After it the transaction may write."""
    with old.session("standby", read_only="off") as connection:
        connection.execute(f"BEGIN ISOLATION LEVEL {level}; SAVEPOINT s; SET TRANSACTION READ ONLY")
        assert value(connection, READS[0]) == 1
        connection.execute("ROLLBACK TO s; UPDATE t SET v = v + 1 WHERE id IN (1, 2, 3)")
        assert value(connection, READS[0]) == 2
        connection.execute("ROLLBACK; BEGIN READ ONLY; SAVEPOINT s")
        assert value(connection, READS[0]) == 0
        connection.execute("ROLLBACK")


def test_a_transaction_stays_where_it_began(old: Standbys) -> None:
    """Whatever asks primaries meanwhile, the rows are those of the standbys, or each would count twice."""
    elsewhere = [
        "(SELECT count(*) > 0 FROM strata.shards)",
        "(SELECT count(*) >= 0 FROM strata.lock_waits)",
        "set_config('strata.read_from', 'primary', false) IS NOT NULL",
    ]
    for asks in elsewhere:
        with old.session("any") as connection:
            connection.execute("BEGIN")
            rows = connection.execute(
                f"SELECT (SELECT count(*) FROM t WHERE v = 0), {asks}, (SELECT count(*) FROM t WHERE v = 1)"
            ).fetchall()
            assert rows == [(ROWS, True, 0)]
            connection.execute(
                "DECLARE c CURSOR FOR SELECT a.v + (SELECT max(b.v) FROM t b WHERE b.id <= a.id + 0) FROM t a"
            )
            assert connection.execute("FETCH 1 FROM c").fetchall() == [(0,)]
            connection.execute(f"SELECT {asks}")
            assert set(connection.execute("FETCH ALL FROM c").fetchall()) == {(0,)}
            connection.execute("COMMIT")


def test_copies_of_reference_tables_are_read_there(old: Standbys) -> None:
    with old.session("standby") as connection:
        connection.execute("SET strata.enable_reference_pushdown = 'always'")
        plan = [line for (line,) in connection.execute("EXPLAIN SELECT max(v) FROM kinds")]
        at_worker = any("Gather" in line or "Remote" in line for line in plan)
        assert value(connection, "SELECT max(v) FROM kinds") == (0 if at_worker else 1)
        assert value(connection, "SELECT max(k.v) FROM t JOIN kinds AS k ON k.id = t.id") == 0


def test_roles_have_the_rights_that_they_have(old: Standbys) -> None:
    with old.session("standby", user="reader") as connection:
        assert value(connection, READS[0]) == 0
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM kinds")


# ---- which standbys are read ----------------------------------------------------------------------


def test_a_standby_that_is_too_old_is_not_read(old: Standbys) -> None:
    with old.session("standby", "2s") as strict, old.session("any", "2s") as lenient:
        for _ in wait_until("they are too old"):
            try:
                assert value(strict, READS[0]) == 0
            except errors.ObjectNotInPrerequisiteState as error:
                if "too far behind" in str(error):  # and the heartbeat has told how far
                    break
        assert value(lenient, READS[0]) == 1
        lenient.execute("SET strata.max_staleness = -1")
        for _ in wait_until("standbys are asked again"):
            if value(lenient, READS[0]) == 0:
                break
        lenient.execute("SET strata.max_staleness = '2s'; BEGIN READ ONLY")
        assert value(lenient, READS[0]) == 1
        assert value(lenient, READS[1]) == 1
        lenient.execute("COMMIT")


def test_standbys_that_replay_are_read_again(made: Standbys) -> None:
    made.cluster.coordinator.execute("UPDATE t SET v = 5")
    made.catch_up()
    with made.session("standby", "10s") as connection:
        assert value(connection, READS[0]) == 5
        plan = connection.execute("EXPLAIN ANALYZE SELECT v FROM t").fetchall()
        assert sum("From standby of" in line for (line,) in plan) == 2


@pytest.mark.parametrize("behind", [0, 1])
def test_a_standby_without_the_schema_is_not_read(made: Standbys, behind: int) -> None:
    with (
        made.session("standby") as strict,
        made.session("any") as lenient,
        made.session("any") as transaction,
    ):
        transaction.execute("BEGIN READ ONLY")
        assert value(transaction, "SELECT count(*) FROM t WHERE id < 10") == 9
        assert value(strict, "SELECT count(*) FROM t") == ROWS
        with made.paused(behind):
            made.cluster.coordinator.execute("ALTER TABLE kinds ADD COLUMN w integer DEFAULT 3")
            query = "SELECT count(*) FROM t JOIN kinds AS k ON k.w = 3 AND k.id = 1"
            assert value(lenient, query) == ROWS
            with pytest.raises(errors.ObjectNotInPrerequisiteState, match="schema"):
                strict.execute(query)
            with made.session("standby") as new, pytest.raises(psycopg.Error, match="schema"):
                new.execute(query)
            assert value(transaction, query) == ROWS  # nothing is open there: primaries go on
        assert value(strict, query) == ROWS
        transaction.execute("COMMIT")
    made.cluster.coordinator.execute("ALTER TABLE kinds DROP COLUMN w")


@pytest.mark.parametrize("behind", [(0,), (1,), (0, 1)])
def test_a_shard_that_moves_is_never_missing_nor_there_twice(
    made: Standbys, behind: tuple[int, ...]
) -> None:
    names = [worker.name for worker in made.cluster.workers]
    place = "SELECT worker FROM strata.shards WHERE relation = 't'::regclass AND shard = 0"
    with made.session("standby") as strict, made.session("any") as lenient:
        assert value(strict, "SELECT count(*) FROM t") == ROWS
        with made.paused(*behind):
            ((source,),) = made.cluster.coordinator.query(place)
            target = names[1 - names.index(source)]
            made.cluster.coordinator.execute("SELECT strata.move_shard('t', 0, %s)", (target,))
            assert value(lenient, "SELECT count(*) FROM t") == ROWS
            with pytest.raises(errors.ObjectNotInPrerequisiteState, match="schema"):
                strict.execute("SELECT count(*) FROM t")
        assert value(strict, "SELECT count(*) FROM t") == ROWS


@pytest.fixture
def with_periods(made: Standbys) -> Iterator[Standbys]:
    coordinator = made.cluster.coordinator
    coordinator.execute("ALTER SYSTEM SET strata.period_interval = '200ms'")
    coordinator.reload()
    coordinator.execute(
        "CREATE TABLE p (k integer, at timestamptz NOT NULL);"
        "SELECT strata.create_distributed_table("
        "'p', 'k', partition_by => 'at', partition_interval => '1 day')"
    )
    made.catch_up()
    yield made
    coordinator.execute("DROP TABLE p")
    coordinator.execute("ALTER SYSTEM RESET strata.period_interval")
    coordinator.reload()


def test_rows_that_move_between_periods_are_not_missing(with_periods: Standbys) -> None:
    """The worker truncates the default partition, so no older snapshot may look there, nor where they went."""
    cluster = with_periods.cluster
    count = "SELECT count(*) FROM p"
    with with_periods.session("standby") as strict, with_periods.session("any") as lenient:
        assert value(strict, count) == 0
        with with_periods.paused():
            cluster.coordinator.execute(
                "INSERT INTO p SELECT g, '2019-12-30' FROM generate_series(1, 50) g"
            )
            for _ in wait_until("the rows have moved"):
                if rows_of(cluster, "public", "^p_.*_default$") == 0:
                    break
            assert value(lenient, count) == 50
            with pytest.raises(errors.ObjectNotInPrerequisiteState, match="schema"):
                strict.execute(count)
        assert value(strict, count) == 50


def test_moves_beside_reads(made: Standbys) -> None:
    """Every answer is whole, whichever state it shows."""
    names = [worker.name for worker in made.cluster.workers]
    stop = threading.Event()
    wrong: list[object] = []
    answers = 0

    def read(read_from: str, begin: str) -> None:
        nonlocal answers
        with made.session(read_from) as connection:
            while not stop.is_set():
                try:
                    connection.execute(begin)
                    found = {
                        value(connection, "SELECT count(*) FROM t"),
                        value(connection, "SELECT count(*) FROM t a JOIN t b USING (id)"),
                        value(connection, "SELECT count(*) FROM t WHERE id % 2 = 0") * 2,
                    }
                    connection.execute("COMMIT")
                except (errors.ObjectNotInPrerequisiteState, errors.SerializationFailure):
                    connection.execute("ROLLBACK")
                    continue
                if found != {ROWS}:
                    wrong.append((read_from, begin, found))
                answers += 1

    readers = [
        threading.Thread(target=read, args=(read_from, begin))
        for read_from in ("standby", "any")
        for begin in (
            "BEGIN READ ONLY",
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            "SELECT 1",
        )
    ]
    for reader in readers:
        reader.start()
    try:
        for n in range(24):
            shard = n % 4
            made.cluster.coordinator.execute(
                "SELECT strata.move_shard('t', %s, %s)", (shard, names[(n + n // 4) % 2])
            )
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert wrong == []
    assert answers > 20


# ---- servers that come and go ---------------------------------------------------------------------


def test_a_standby_that_is_down_is_replaced_by_primaries(made: Standbys) -> None:
    with made.session("standby") as strict, made.session("any") as lenient:
        assert value(strict, "SELECT count(*) FROM t") == ROWS
        assert value(lenient, "SELECT count(*) FROM t") == ROWS
        made.standbys[0].stop()
        assert value(lenient, "SELECT count(*) FROM t") == ROWS
        strict.execute("SET strata.connect_timeout = 1")
        with pytest.raises(psycopg.OperationalError, match='standby of worker "worker1"'):
            strict.execute("SELECT count(*) FROM t")
        made.standbys[0].start()
        for connection in (strict, lenient):
            for _ in wait_until("standbys are read"):
                plan = connection.execute("EXPLAIN ANALYZE SELECT v FROM t").fetchall()
                if sum("From standby of" in line for (line,) in plan) == 2:
                    break


@pytest.mark.parametrize("read_from", ["any", "standby"])
def test_a_query_that_replay_ends_begins_again(made: Standbys, read_from: str) -> None:
    worker, standby = made.cluster.workers[0], made.standbys[0]
    standby.execute("ALTER SYSTEM SET max_standby_streaming_delay = '50ms'")
    standby.execute("SELECT pg_reload_conf()")
    busy = "SELECT 1 FROM pg_locks WHERE relation = 't'::regclass AND mode = 'AccessShareLock'"
    conflicts = "SELECT sum(confl_lock) FROM pg_stat_database_conflicts"
    ((before,),) = standby.query(conflicts)
    query = "SELECT sum(id + 0 * length(repeat(md5(id::text), 400000))) FROM t"
    with ThreadPoolExecutor(1) as pool, made.session(read_from) as session:
        answer = pool.submit(value, session, query)
        for _ in wait_until("the query runs there", interval=0.01):
            if standby.query(busy):
                break
        worker.execute("BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE; COMMIT")
        assert answer.result() == ROWS * (ROWS + 1) // 2
    for _ in wait_until("the conflict is counted"):
        if standby.query(conflicts) != [(before,)]:
            break


def test_a_standby_that_stands_still_is_done_without(made: Standbys) -> None:
    with made.session("any") as connection:
        assert value(connection, "SELECT count(*) FROM t") == ROWS
        with frozen(made.standbys[0]):
            begin = time.monotonic()
            assert value(connection, "SELECT count(*) FROM t") == ROWS
            assert time.monotonic() - begin < patience(5)


def test_a_standby_that_has_not_ended_a_transaction_is_done_without(made: Standbys) -> None:
    with made.session("any") as connection:
        connection.execute("BEGIN READ ONLY")
        assert value(connection, "SELECT count(*) FROM t") == ROWS
        with frozen(made.standbys[0]):
            begin = time.monotonic()
            connection.execute("COMMIT")
            assert value(connection, "SELECT count(*) FROM t") == ROWS
            assert time.monotonic() - begin < patience(5)
            connection.execute("BEGIN READ ONLY")
            assert value(connection, "SELECT count(*) FROM t") == ROWS
            connection.execute("COMMIT")
        for _ in wait_until("the standby is read again"):
            ((plan,),) = connection.execute("EXPLAIN (ANALYZE, FORMAT json) SELECT * FROM t")
            if "Standby" in str(plan):
                break


def test_replay_that_stands_still_with_a_lock_is_not_waited_for(made: Standbys) -> None:
    worker, standby = made.cluster.workers[0], made.standbys[0]
    locks = "SELECT 1 FROM pg_locks WHERE relation = 't'::regclass AND mode = 'AccessExclusiveLock'"
    with made.session("any") as connection, worker.connect() as locker:
        locker.execute("BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        worker.execute("SELECT pg_switch_wal()")  # sends it at once
        for _ in wait_until("the lock is replayed"):
            if standby.query(locks):
                break
        standby.execute("SELECT pg_wal_replay_pause()")
        try:
            locker.execute("COMMIT")
            begin = time.monotonic()
            assert value(connection, "SELECT count(*) FROM t") == ROWS
            assert time.monotonic() - begin < patience(5)
        finally:
            resume_replay(standby)


@pytest.mark.parametrize("read_from", ["any", "standby"])
def test_timeouts_are_the_users(made: Standbys, read_from: str) -> None:
    """Not the standby's, for which primaries would stand in."""
    made.catch_up()
    with made.session(read_from) as connection:
        connection.execute("SET statement_timeout = '300ms'")
        with pytest.raises(errors.QueryCanceled):
            connection.execute("SELECT sum(id + 0 * length(repeat(md5(id::text), 400000))) FROM t")
        assert value(connection, "SELECT count(*) FROM t") == ROWS


def read_until_it_fails(connection: psycopg.Connection) -> None:
    for _ in wait_until("the bound cannot be kept"):
        assert value(connection, "SELECT count(*) FROM t") == ROWS


def test_standbys_are_read_while_their_primaries_are_down(made: Standbys) -> None:
    made.catch_up()
    worker = made.cluster.workers[0]
    with made.session("standby") as connection, made.session("standby", "2s") as bounded:
        assert value(bounded, "SELECT count(*) FROM t") == ROWS
        worker.stop()
        try:
            wait_for_status(made.cluster, worker.name, "read-only")
            assert value(connection, "SELECT count(*) FROM t") == ROWS
            with pytest.raises(
                errors.ObjectNotInPrerequisiteState, match=r"is not known|does not receive"
            ):
                read_until_it_fails(bounded)
        finally:
            worker.start()
            wait_for_status(made.cluster, worker.name, "up")
        assert value(connection, "SELECT count(*) FROM t") == ROWS


def test_a_standby_coordinator_reads_standbys(made: Standbys) -> None:
    copy = copy_coordinator(made.cluster, "reader", "-R")
    copy.start()
    try:
        with copy.connect() as connection:
            connection.execute("SET strata.read_from = 'standby'")
            connection.execute("SET strata.max_staleness = -1")
            for _ in wait_until("it knows whose standby it is"):
                try:
                    assert value(connection, "SELECT count(*) FROM t") == ROWS
                    break
                except errors.ObjectNotInPrerequisiteState:
                    continue
            plan = connection.execute("EXPLAIN ANALYZE SELECT v FROM t").fetchall()
            assert sum("From standby of" in line for (line,) in plan) == 2
    finally:
        copy.stop()


def test_a_standby_of_a_replaced_primary_is_not_read() -> None:
    """It is up to date with a server that is not the worker any more."""
    with Cluster(new_root(), workers=1) as cluster:
        cluster.coordinator.execute(
            "CREATE TABLE t (id integer PRIMARY KEY);"
            "SELECT strata.create_distributed_table('t', 'id', shard_count => 1);"
            "INSERT INTO t VALUES (1)"
        )
        (old,) = cluster.workers
        heir, follower = (make_standby(cluster, old, name) for name in ("heir", "follower"))
        promote(heir)
        for _ in wait_until("it is a primary"):
            if not heir.query("SELECT pg_is_in_recovery()")[0][0]:
                break
        set_conninfo(cluster, old.name, conninfo_of(heir, follower))
        wait_for_status(cluster, old.name, "up")
        old.execute("INSERT INTO t SELECT g FROM generate_series(2, 20000) AS g")
        for _ in wait_until("the follower has the old primary's rows"):
            if follower.query("SELECT count(*) FROM t") == [(20000,)]:
                break
        with cluster.coordinator.connect() as connection:
            connection.execute("SET default_transaction_read_only = on")
            connection.execute("SET strata.read_from = 'standby'")
            for _ in wait_until("the heartbeat knows the new primary"):
                try:
                    connection.execute("SELECT count(*) FROM t")
                except errors.ObjectNotInPrerequisiteState as error:
                    if "does not receive WAL of the worker's primary" in str(error):
                        break
            for _ in range(3):
                with pytest.raises(errors.ObjectNotInPrerequisiteState, match="does not receive"):
                    connection.execute("SELECT count(*) FROM t")
            connection.execute("SET strata.read_from = 'any'")
            assert value(connection, "SELECT count(*) FROM t") == 1
        heir.stop()
        follower.stop()


def resolver_of(coordinator: Node) -> list[int]:
    query = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'strata maintenance'"
    return [pid for (pid,) in coordinator.query(query)]


def test_standbys_of_a_worker_with_a_commit_in_doubt_are_not_read() -> None:
    """What is committed may be missing there for as long as the worker has not heard of it."""
    with Cluster(new_root(), workers=2, assertions=True) as cluster:
        cluster.create_role("reader")
        cluster.coordinator.execute(SETUP)
        made = Standbys(cluster)
        coordinator, silent = cluster.coordinator, cluster.workers[1]
        update = "UPDATE t SET v = 1"
        with ThreadPoolExecutor(1) as pool, coordinator.connect() as writer:
            arm(coordinator, ("committed", "wait"))
            try:
                commit = pool.submit(writer.execute, update)
                wait_for_arrival(coordinator)
                silent.execute(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                    " WHERE application_name = 'strata' AND xact_start IS NULL"
                )
                with frozen(coordinator, resolver_of):
                    release(coordinator)
                    commit.result()
                    in_doubt = coordinator.query("SELECT worker, decision FROM strata.in_doubt")
                    assert in_doubt == [(silent.name, "commit")]
                    with made.session("standby", "1min") as connection:
                        with pytest.raises(
                            errors.ObjectNotInPrerequisiteState, match="may lack a commit"
                        ):
                            connection.execute("SELECT max(v) FROM t")
                        connection.execute("SET strata.max_staleness = -1")
                        assert value(connection, "SELECT min(v) FROM t") == 0
            finally:
                disarm(coordinator)
        with made.session("standby", "1s") as connection:
            for _ in wait_until("the worker has heard of it"):
                try:
                    seen = value(connection, "SELECT min(v) FROM t")
                except errors.ObjectNotInPrerequisiteState:
                    continue
                assert seen == 1
                break


def test_a_standby_that_is_promoted_is_the_primary(made: Standbys) -> None:
    """The last test: the old primary is gone."""
    worker, standby = made.cluster.workers[1], made.standbys[1]
    made.catch_up()
    with made.session("any") as connection, made.session("standby") as strict:
        assert value(connection, "SELECT count(*) FROM t") == ROWS
        assert value(strict, "SELECT count(*) FROM t") == ROWS
        worker.kill()
        promote(standby)
        wait_for_status(made.cluster, worker.name, "up")
        connection.execute("BEGIN READ WRITE; UPDATE t SET v = 9; COMMIT")
        for _ in wait_until("the answer is from after the promotion"):
            if value(connection, "SELECT min(v) FROM t") == 9:
                break
        strict.execute("SET strata.connect_timeout = 1")
        with pytest.raises(psycopg.OperationalError, match="standby of worker"):
            strict.execute("SELECT count(*) FROM t")
