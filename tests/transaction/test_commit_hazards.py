"""What could break a commit half-way: names, promotions, copies, limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.cluster import Cluster
from tests.failover import Failover, set_replica
from tests.fixtures import new_root
from tests.transaction.bank import make_bank
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    """Table t has rows 1 .. 100 with v = 0."""
    with Cluster(new_root(), workers=2) as cluster:
        cluster.coordinator.execute(
            "CREATE TABLE t (id integer PRIMARY KEY, v integer);"
            "SELECT strata.create_distributed_table('t', 'id', shard_count => 8);"
            "INSERT INTO t SELECT g, 0 FROM generate_series(1, 100) AS g"
        )
        yield cluster


# ---- after the local commit ----------------------------------------------------------------------


def test_a_commit_in_doubt_is_told_to_a_client_whose_encoding_lacks_the_workers_name(
    made: Cluster,
) -> None:
    coordinator = made.coordinator
    coordinator.execute("UPDATE strata.worker SET name = 'λάμδα' WHERE name = 'worker2'")
    set_replica(coordinator, "nobody")
    warnings: list[str] = []
    try:
        with coordinator.connect(client_encoding="LATIN1") as session:
            session.add_notice_handler(lambda notice: warnings.append(notice.message_primary))
            with coordinator.connect() as other:
                cancel_when_it_waits_for_a_replica(other, session, "UPDATE t SET v = v + 1")
            assert session.execute("SELECT 1").fetchall() == [(1,)]
    finally:
        set_replica(coordinator, "")
        coordinator.execute("UPDATE strata.worker SET name = 'worker2' WHERE name = 'λάμδα'")
    assert 'transaction on worker "#2" is in doubt' in warnings
    assert 'transaction on worker "worker1" is in doubt' in warnings
    assert coordinator.query("SELECT DISTINCT v FROM t") == [(1,)]


def cancel_when_it_waits_for_a_replica(
    other: psycopg.Connection, session: psycopg.Connection, statement: str
) -> None:
    """Run a statement that commits, and cancel the session's wait for its own server's replica."""
    thread = threading.Thread(target=session.execute, args=(statement,))
    thread.start()
    for _ in wait_until("the commit waits for a replica"):
        query = "SELECT wait_event FROM pg_stat_activity WHERE pid = %s"
        if other.execute(query, (session.info.backend_pid,)).fetchone() == ("SyncRep",):
            break
    session.cancel()
    thread.join()


# ---- copies ------------------------------------------------------------------------------------------


def test_a_copy_of_the_database_on_a_promoted_coordinator_gets_no_workers(make_cluster) -> None:
    """Its resolver would roll back what the original has committed."""
    cluster = make_cluster(workers=1)
    cluster.coordinator.execute(
        "CREATE TABLE t (id integer PRIMARY KEY);"
        "SELECT strata.create_distributed_table('t', 'id');"
        "INSERT INTO t SELECT generate_series(1, 10)"
    )
    Failover(cluster).take_over()
    coordinator = cluster.coordinator
    assert coordinator.query("SELECT count(*) FROM t") == [(10,)]
    coordinator.disconnect()
    with coordinator.connect("postgres") as connection:
        connection.execute("CREATE DATABASE copy TEMPLATE strata")
    with (
        coordinator.connect("copy") as connection,
        pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="does not have the work"),
    ):
        connection.execute("SELECT count(*) FROM t")
    assert coordinator.query("SELECT count(*) FROM t") == [(10,)]


def test_what_released_the_mark_of_its_session_on_a_worker_is_not_committed(make_cluster) -> None:
    """Nobody would end such a session when another coordinator takes over."""
    cluster = make_cluster(workers=1)
    coordinator, (worker,) = cluster.coordinator, cluster.workers
    coordinator.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, v integer);"
        "SELECT strata.create_distributed_table('t', 'id');"
        "INSERT INTO t SELECT g, 0 FROM generate_series(1, 10) AS g;"
        "CREATE FUNCTION unlock(integer) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS"
        " 'BEGIN PERFORM pg_advisory_unlock_all(); RETURN true; END'"
    )
    with coordinator.connect() as session:
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="mark"):
            session.execute("UPDATE t SET v = 1 WHERE unlock(v)")
        assert worker.query("SELECT DISTINCT v FROM t") == [(0,)]
    coordinator.disconnect()
    coordinator.execute("UPDATE t SET v = 2")


def test_users_cannot_lock_the_coordinator_out_of_a_worker(made: Cluster) -> None:
    """By advisory locks with the keys of those that mark and register its sessions there."""
    worker = made.workers[0]
    marks = (
        "SELECT DISTINCT classid::bigint::bit(32)::integer, objid::bigint::bit(32)::integer"
        " FROM pg_locks WHERE locktype = 'advisory'"
    )
    with (
        made.coordinator.connect() as session,
        made.coordinator.connect() as other,
        worker.connect() as user,
        ThreadPoolExecutor(1) as pool,
    ):
        session.execute("SELECT count(*) FROM t")
        keys = worker.query(marks)
        assert len(keys) >= 2
        user.execute("SET lock_timeout = '10 s'")
        locks = ", ".join(f"pg_advisory_lock(int4({one}), int4({two}))" for one, two in keys)
        pool.submit(user.execute, f"SELECT {locks}")
        theirs = (
            "SELECT count(*) FILTER (WHERE granted), count(*) FILTER (WHERE NOT granted) FROM pg_locks"
            " WHERE locktype = 'advisory' AND mode ~ 'Excl'"
        )
        for _ in wait_until("the user has the locks, or waits for one"):
            ((granted, waited_for),) = worker.query(theirs)
            if granted == len(keys) or waited_for > 0:
                break
        other.execute("SET statement_timeout = '5 s'")
        assert other.execute("SELECT count(*) FROM t").fetchall() == [(100,)]


# ---- holding a worker ----------------------------------------------------------------------------


def test_a_hold_that_ends_while_it_waits_is_an_error(made: Cluster) -> None:
    """Whoever called would switch over with sessions that do not wait."""
    with made.coordinator.connect(autocommit=False) as user, made.coordinator.connect() as holder:
        user.execute("SELECT count(*) FROM t")
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="when its hold"):
            holder.execute("SELECT strata.hold_worker('worker1', timeout => '1 s', drain => '9 s')")
        user.rollback()
        holder.execute("SELECT strata.hold_worker('worker1', drain => '5 s')")
        holder.execute("SELECT strata.release_worker('worker1')")


def test_a_prepared_transaction_that_used_no_worker_holds_none_up(made: Cluster) -> None:
    made.coordinator.execute("CREATE TABLE here (id integer)")
    with made.coordinator.connect() as session, made.coordinator.connect() as holder:
        session.execute("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT * FROM here; SAVEPOINT a")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="a second node"):
            session.execute("SELECT v FROM t WHERE id = 1")
        session.execute("ROLLBACK TO SAVEPOINT a; PREPARE TRANSACTION 'local'")
        for name in ("worker1", "worker2"):
            query = f"SELECT strata.hold_worker('{name}', drain => '1 s')"
            assert holder.execute(query).fetchall() == [(0,)]
            holder.execute(f"SELECT strata.release_worker('{name}')")
        session.execute("ROLLBACK PREPARED 'local'")


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_a_transaction_that_only_reads_workers_can_be_prepared(made: Cluster, level: str) -> None:
    made.coordinator.execute("CREATE TABLE IF NOT EXISTS kept (n bigint); TRUNCATE kept")
    with made.coordinator.connect() as session:
        (count,) = session.execute("SELECT count(*) FROM t").fetchone()
        for end in ("COMMIT", "ROLLBACK"):
            session.execute(f"BEGIN ISOLATION LEVEL {level}")
            session.execute("INSERT INTO kept SELECT count(*) FROM t")
            session.execute("DECLARE c CURSOR FOR SELECT * FROM t")
            session.execute("FETCH 1 FROM c")
            session.execute("PREPARE TRANSACTION 'read'")
            for worker in made.workers:
                assert worker.value("SELECT count(*) FROM pg_prepared_xacts") == 0
            assert session.execute("SELECT count(*) FROM t").fetchone() == (count,)
            session.execute(f"{end} PREPARED 'read'")
        assert session.execute("SELECT n FROM kept").fetchall() == [(count,)]
        for statement in (
            "UPDATE t SET v = v",
            "SELECT * FROM t FOR UPDATE",
            "ALTER TABLE t SET (fillfactor = 90)",
        ):
            session.execute(f"BEGIN; {statement}")
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="workers take part"):
                session.execute("PREPARE TRANSACTION 'written'")
            session.execute("ROLLBACK")


# ---- savepoints --------------------------------------------------------------------------------------


def test_a_short_write_is_not_cancelled_when_another_worker_fails(
    cluster: Cluster, schema: str
) -> None:
    """A request to cancel that comes too early, or is not taken, would cost what was written before."""
    bank = make_bank(cluster, schema)
    here, there = cluster.workers
    mine, other, theirs = *bank.keys[0][:2], bank.keys[1][0]
    aborted = "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction (aborted)'"
    with bank.session() as session, bank.session() as holder, ThreadPoolExecutor(1) as pool:
        session.execute("SELECT count(*) FROM account")
        for _ in range(10):  # it may be long on a busy machine
            offset = here.log_size()
            holder.execute(f"BEGIN; UPDATE account SET v = v + 1 WHERE id = {mine}")
            session.execute(f"BEGIN; UPDATE account SET v = 0 WHERE id = {other}; SAVEPOINT s")
            update = f"UPDATE account SET v = 1 / (id - {theirs}) WHERE id IN ({mine}, {theirs})"
            failing = pool.submit(session.execute, update)
            for _ in wait_until("the other worker has failed", interval=0.002):
                if there.query(aborted):
                    break
            time.sleep(0.03)  # to be cancelled takes less
            holder.execute("COMMIT")
            with pytest.raises(psycopg.errors.DivisionByZero):
                failing.result()
            session.execute("ROLLBACK TO s; COMMIT")
            if "canceling statement" not in here.log_text(offset):
                break
        else:
            pytest.fail("the statement was cancelled each time")
    assert bank.value(f"SELECT v FROM account WHERE id = {other}") == 0


# ---- the resolver ------------------------------------------------------------------------------------


def test_the_resolver_rests_when_a_worker_in_doubt_was_removed(make_cluster) -> None:
    cluster = make_cluster(workers=2)
    coordinator = cluster.coordinator
    coordinator.execute(
        "CREATE TABLE r (id integer PRIMARY KEY); SELECT strata.create_reference_table('r');"
    )
    set_replica(coordinator, "nobody")
    with coordinator.connect() as other, coordinator.connect() as session:
        cancel_when_it_waits_for_a_replica(other, session, "INSERT INTO r VALUES (1)")
        for _ in wait_until("the resolver has come in vain"):
            query = "SELECT count(*) FROM strata.in_doubt WHERE last_attempt IS NOT NULL"
            if other.execute(query).fetchone() == (2,):
                break
        cluster.workers[1].kill()
        other.execute("SET synchronous_commit = local; SELECT strata.remove_worker('worker2')")
        runs = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        before = other.execute(runs).fetchone()[0]
        other.execute("SELECT pg_sleep(3)")
        assert other.execute(runs).fetchone()[0] - before < 60


# ---- two databases with the extension on one coordinator -----------------------------------------


@pytest.fixture
def second(made: Cluster) -> Iterator[str]:
    """Another cluster, in another database of each of the same servers; the same rows in t."""
    for node in made.nodes:
        with node.connect("postgres") as connection:
            connection.execute("CREATE DATABASE second")
    for worker in made.workers:
        with worker.connect("second") as connection:
            connection.execute("CREATE EXTENSION strata_worker CASCADE")
    with made.coordinator.connect("second") as connection:
        connection.execute("CREATE EXTENSION strata CASCADE")
        for worker in made.workers:
            address = worker.conninfo("second", user=None)
            connection.execute("SELECT strata.add_worker(%s, %s)", (worker.name, address))
        connection.execute(
            "CREATE TABLE t (id integer PRIMARY KEY, v integer);"
            "SELECT strata.create_distributed_table('t', 'id', shard_count => 8);"
            "INSERT INTO t SELECT g, 0 FROM generate_series(1, 100) AS g"
        )
    yield "second"
    for node in made.nodes:
        with node.connect("postgres") as connection:
            connection.execute("DROP DATABASE second WITH (FORCE)")


def test_sessions_of_another_database_are_not_taken_for_this_ones(
    made: Cluster, second: str
) -> None:
    """Both clusters have a worker 1, on hosts whose process numbers may be the same."""
    query = "SELECT array_agg(DISTINCT session) FROM strata.session_wires()"
    with made.coordinator.connect() as here, made.coordinator.connect(second) as there:
        here.execute("SELECT count(*) FROM t")
        there.execute("SELECT count(*) FROM t")
        ((mine,),) = here.execute(query).fetchall()
        ((theirs,),) = there.execute(query).fetchall()
        assert here.info.backend_pid in set(mine) - set(theirs)
        assert there.info.backend_pid in set(theirs) - set(mine)


def test_commits_of_one_database_leave_the_decisions_of_another_to_it(
    made: Cluster, second: str
) -> None:
    """Each commit removes the rows of former ones, which are in its own database."""
    rows = "SELECT count(*) FROM strata.distributed_transaction"
    with made.coordinator.connect() as here, made.coordinator.connect(second) as there:
        for _ in range(5):
            here.execute("UPDATE t SET v = v + 1")
            there.execute("UPDATE t SET v = v + 1")
        assert here.execute(rows).fetchone()[0] <= 2
        assert there.execute(rows).fetchone()[0] <= 2
