"""What a session may expect of one PostgreSQL it gets from the cluster: locks, timeouts, cursors, sessions."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair
from tests.waiting import check_nothing_prepared, patience, wait_until


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_semantics") as made:
        made.execute(
            "CREATE TABLE account (id integer PRIMARY KEY, v integer NOT NULL);"
            "CREATE TABLE rate (code integer PRIMARY KEY, v integer)"
        )
        made.distribute("account", "id")
        made.reference("rate")
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    data.execute(
        "TRUNCATE account; TRUNCATE rate;"
        "INSERT INTO account SELECT g, 100 FROM generate_series(1, 40) AS g;"
        "INSERT INTO rate VALUES (1, 1), (2, 2)"
    )
    yield data
    data.reset()
    data.execute("RESET ALL; SET search_path = test_semantics, public, strata")
    check_nothing_prepared(data.cluster)


@contextlib.contextmanager
def others(pair: Pair, *statements: str) -> Iterator[None]:
    """Another session on each server is in a transaction that has executed the statements."""
    with pair.cluster.coordinator.connect() as ours, pair.cluster.plain.connect() as theirs:
        for connection in (ours, theirs):
            connection.execute(f"SET search_path = {pair.schema}; BEGIN")
            for statement in statements:
                connection.execute(statement)
        yield
        for connection in (ours, theirs):
            connection.execute("ROLLBACK")


# ---- row locks over workers --------------------------------------------------------------------------


@pytest.mark.parametrize("strength", ["UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"])
@pytest.mark.parametrize("held", ["UPDATE", "SHARE"])
def test_row_locks_exclude_each_other_as_in_postgresql(
    pair: Pair, strength: str, held: str
) -> None:
    with others(pair, f"SELECT id FROM account WHERE id < 20 FOR {held}"):
        pair.same(f"SELECT id FROM account WHERE id = 3 FOR {strength} NOWAIT")
        pair.same(f"SELECT id FROM account ORDER BY id FOR {strength} NOWAIT")
        pair.same(f"SELECT id FROM account ORDER BY id FOR {strength} SKIP LOCKED")
        pair.same(f"SELECT id FROM account WHERE id > 30 ORDER BY id FOR {strength} NOWAIT")


def test_a_queue_is_shared_out_by_skip_locked(pair: Pair) -> None:
    """Workers that each take what nobody has taken get every row once."""
    taken: list[int] = []
    query = "SELECT id FROM test_semantics.account WHERE id = %s FOR UPDATE SKIP LOCKED"
    with contextlib.ExitStack() as stack:
        for key in range(1, 41):
            for _ in range(2):
                connection = stack.enter_context(pair.cluster.coordinator.connect())
                connection.execute("BEGIN")
                taken += [row[0] for row in connection.execute(query, (key,))]
                if len(taken) < key:
                    pytest.fail(f"nobody got {key}")
    assert taken == list(range(1, 41))


def test_locked_rows_are_freed_by_a_rollback_to_the_savepoint(pair: Pair) -> None:
    with pair.cluster.coordinator.connect() as other:
        other.execute(f"SET search_path = {pair.schema}; BEGIN; SAVEPOINT s")
        other.execute("SELECT * FROM account FOR UPDATE")
        pair.same("SELECT 1")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            pair.ours.execute("SELECT * FROM account FOR UPDATE NOWAIT")
        other.execute("ROLLBACK TO s")
        pair.ours.execute("SELECT * FROM account FOR UPDATE NOWAIT")
        other.execute("ROLLBACK")


# ---- table and advisory locks ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "statement"),
    [
        ("ACCESS EXCLUSIVE", "SELECT count(*) FROM account"),
        ("EXCLUSIVE", "UPDATE account SET v = 1"),
        ("SHARE", "INSERT INTO account VALUES (1000, 1)"),
        ("SHARE", "SELECT count(*) FROM account"),
        ("EXCLUSIVE", "SELECT id FROM account WHERE id = 1 FOR UPDATE"),
        ("ROW EXCLUSIVE", "UPDATE account SET v = 1"),
        ("SHARE", "TRUNCATE account"),
    ],
)
def test_lock_table_keeps_others_out_as_in_postgresql(
    pair: Pair, mode: str, statement: str
) -> None:
    with others(pair, f"LOCK TABLE account IN {mode} MODE"), pair.transaction():
        pair.execute("SET LOCAL lock_timeout = '300ms'")
        pair.same(statement)


def test_lock_table_waits_for_what_runs_on_the_workers(pair: Pair) -> None:
    with others(pair, "UPDATE account SET v = 5 WHERE id = 1"), pair.transaction():
        pair.same("LOCK TABLE account IN SHARE MODE NOWAIT")
    with others(pair, "UPDATE account SET v = 5 WHERE id = 1"), pair.transaction():
        pair.same("LOCK TABLE account IN ROW EXCLUSIVE MODE NOWAIT")


def test_advisory_locks_are_the_coordinators(pair: Pair) -> None:
    with others(pair, "SELECT pg_advisory_xact_lock(7)"):
        pair.same("SELECT pg_try_advisory_lock(7), pg_try_advisory_lock(8)")
        pair.same("SELECT count(*) FROM account WHERE pg_try_advisory_xact_lock(7)")
    pair.execute("SELECT pg_advisory_unlock_all()")


# ---- timeouts ----------------------------------------------------------------------------------------


def test_lock_timeout_ends_a_wait_on_a_worker_with_its_own_error(pair: Pair) -> None:
    with others(pair, "UPDATE account SET v = 5"):
        with pair.transaction():
            pair.execute("SET LOCAL lock_timeout = '200ms'")
            pair.same("UPDATE account SET v = 6 WHERE id = 1")
        with pair.transaction():
            pair.execute("SAVEPOINT s; SET LOCAL lock_timeout = '200ms'")
            pair.same("UPDATE account SET v = 6")
            pair.execute("ROLLBACK TO s")
            pair.same("SHOW lock_timeout")
            pair.same("SELECT sum(v) FROM account")


def test_statement_timeout_ends_a_wait_on_a_worker(pair: Pair) -> None:
    with others(pair, "UPDATE account SET v = 5"), pair.transaction():
        pair.execute("SET LOCAL statement_timeout = '300ms'")
        pair.same("UPDATE account SET v = 6 WHERE id = 1")


@pytest.mark.parametrize(
    ("setting", "begin"),
    [("idle_in_transaction_session_timeout", "BEGIN"), ("idle_session_timeout", "")],
)
def test_idle_timeouts_end_the_session_and_free_the_workers(
    pair: Pair, setting: str, begin: str
) -> None:
    with pair.cluster.coordinator.connect() as idle:
        idle.execute(f"SET search_path = {pair.schema}; SET {setting} = '300ms'")
        if begin:
            idle.execute(begin)
        idle.execute("UPDATE account SET v = 0")
        for _ in wait_until("the session is gone", 10):
            gone = pair.cluster.coordinator.value(
                "SELECT count(*) FROM pg_stat_activity WHERE pid = %s", (idle.info.backend_pid,)
            )
            if gone == 0:
                break
        with pytest.raises(psycopg.Error, match="terminating connection"):
            idle.execute("SELECT 1")
    pair.execute("SET lock_timeout = '5s'")
    pair.ours.execute("UPDATE account SET v = v + 1")
    assert pair.rows("SELECT DISTINCT v FROM account") == [(101 if begin else 1,)]


def test_a_cancelled_wait_for_a_row_leaves_the_session_usable(pair: Pair) -> None:
    with others(pair, "UPDATE account SET v = 5"):
        timer = threading.Timer(0.4, pair.ours.cancel)
        timer.start()
        start = time.monotonic()
        with pytest.raises(psycopg.errors.QueryCanceled):
            pair.ours.execute("UPDATE account SET v = 6")
        assert time.monotonic() - start < patience(3)
        timer.join()
    pair.same("UPDATE account SET v = v + 1")


def test_set_local_ends_with_its_transaction_on_the_workers_too(pair: Pair) -> None:
    query = "SELECT id, timestamptz '2020-01-01 00:00Z' + id * interval '1 hour' FROM account"
    for end in ("COMMIT", "ROLLBACK"):
        with pair.transaction(end):
            pair.execute("SET LOCAL TimeZone = 'Asia/Tokyo'")
            pair.same(query)
            pair.execute("SAVEPOINT s; SET LOCAL TimeZone = 'America/New_York'")
            pair.same(query)
            pair.execute("ROLLBACK TO s")
            pair.same(query)
        pair.same(query)


# ---- replication role ----------------------------------------------------------------------------------


@pytest.fixture
def books(pair: Pair) -> Iterator[Pair]:
    """Entry's rows refer to account's; none is there yet."""
    pair.execute("CREATE TABLE entry (id integer PRIMARY KEY)")
    pair.distribute("entry", "id", colocate_with="account")
    pair.execute("ALTER TABLE entry ADD FOREIGN KEY (id) REFERENCES account")
    yield pair
    pair.reset()
    pair.execute("DROP TABLE entry")


def test_a_replica_does_not_check_foreign_keys(books: Pair) -> None:
    books.same("INSERT INTO entry VALUES (1000)")  # refused
    books.execute("SET session_replication_role = replica")
    books.same("INSERT INTO entry SELECT g FROM generate_series(1000, 1009) AS g")
    books.execute("RESET session_replication_role")
    books.same("INSERT INTO entry VALUES (2000)")
    with books.transaction("COMMIT"):
        books.execute("SET LOCAL session_replication_role = replica")
        books.same("INSERT INTO entry VALUES (3000)")
    books.same("INSERT INTO entry VALUES (2000)")
    with books.transaction("ROLLBACK"):
        books.execute("SET session_replication_role = replica")
        books.same("INSERT INTO entry VALUES (4000)")
    books.same("INSERT INTO entry VALUES (2000)")
    books.execute("SET session_replication_role = replica")
    with books.transaction("ROLLBACK"):
        books.execute("SET session_replication_role = origin")
        books.same("SELECT count(*) FROM entry")
    books.same("INSERT INTO entry VALUES (5000)")
    books.same("SELECT * FROM entry ORDER BY id")


def test_a_replica_still_keeps_the_clusters_tables(pair: Pair) -> None:
    pair.execute("SET session_replication_role = replica")
    pair.execute("CREATE TABLE made (id integer PRIMARY KEY); CREATE TABLE copied (id integer)")
    pair.distribute("made", "id")
    pair.reference("copied")
    pair.same("INSERT INTO made SELECT generate_series(1, 20)")
    pair.same("INSERT INTO copied VALUES (1)")
    pair.same("SELECT count(*) FROM made, copied")
    assert pair.on_workers("SELECT count(*) FROM copied") == [1, 1]
    pair.execute("DROP TABLE made, copied")


# ---- what two phases must bear -----------------------------------------------------------------------


def test_temporary_tables_take_part_in_two_phase_transactions(pair: Pair) -> None:
    pair.execute("CREATE TEMPORARY TABLE mine (id integer, v integer)")
    with pair.transaction("COMMIT"):
        pair.same("INSERT INTO mine SELECT id, v FROM account WHERE id < 10")
        pair.same("UPDATE account SET v = v + 1 WHERE id < (SELECT max(id) FROM mine)")
        pair.same("SELECT count(*), sum(a.v) FROM account AS a JOIN mine USING (id)")
        pair.same("UPDATE mine SET v = 7")
    pair.same("SELECT * FROM account")
    pair.same("SELECT * FROM mine")
    with pair.transaction("COMMIT"):
        pair.same("CREATE TEMPORARY TABLE short ON COMMIT DROP AS SELECT * FROM account")
        pair.same("INSERT INTO account SELECT id + 100, v FROM short")
    pair.same("SELECT count(*) FROM account")
    pair.execute("DROP TABLE mine")


def test_notifications_are_sent_when_all_workers_have_committed(pair: Pair) -> None:
    with pair.cluster.coordinator.connect() as listener:
        listener.execute("LISTEN news")
        with pair.ours.transaction():
            pair.ours.execute("UPDATE account SET v = 1; NOTIFY news, 'committed'")
            assert list(listener.notifies(timeout=0.2)) == []
        with pair.ours.transaction(force_rollback=True):
            pair.ours.execute("UPDATE account SET v = 2; NOTIFY news, 'rolled back'")
        assert [n.payload for n in listener.notifies(timeout=1)] == ["committed"]


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_cursors_with_hold_in_a_transaction_that_writes_on_all_workers(
    pair: Pair, end: str
) -> None:
    with pair.transaction(end):
        pair.same("UPDATE account SET v = v + id")
        pair.same("DECLARE kept CURSOR WITH HOLD FOR SELECT * FROM account ORDER BY id")
        pair.same("FETCH 3 FROM kept")
        pair.same("UPDATE account SET v = 0")
    pair.same("FETCH 3 FROM kept")
    pair.same("FETCH ALL FROM kept")
    pair.execute("CLOSE ALL")


def test_a_deadlock_of_one_session_with_itself_does_not_exist(pair: Pair) -> None:
    """Statements of one transaction do not wait for each other, whatever their order."""
    with pair.transaction("COMMIT"):
        for _ in range(2):
            for statement in (
                "UPDATE account SET v = v + 1",
                "UPDATE rate SET v = v + 1",
                "SELECT count(*) FROM account JOIN rate ON code = id",
                "INSERT INTO account SELECT max(id) + 1, 1 FROM account",
            ):
                pair.same(statement)


# ---- statistics --------------------------------------------------------------------------------------


def test_every_way_to_change_rows_is_counted_for_autovacuum(pair: Pair) -> None:
    """Also what the workers do alone: the counts are those of one server."""
    counts = (
        "SELECT n_tup_ins, n_tup_upd, n_tup_del, n_mod_since_analyze FROM pg_stat_user_tables"
        " WHERE relid = '{}'::regclass"
    )
    pair.execute(
        "CREATE TABLE counted (id integer PRIMARY KEY, v integer) WITH (autovacuum_enabled = off);"
        "CREATE TABLE feed (id integer, v integer)"
    )
    pair.distribute("counted", "id")
    pair.distribute("feed", "id", colocate_with="counted")
    pair.copy("COPY counted FROM STDIN", "".join(f"{n}\t1\n" for n in range(1, 101)))
    for statement in (
        "INSERT INTO feed SELECT g, g FROM generate_series(91, 120) AS g",
        "INSERT INTO counted VALUES (200, 1), (201, 1)",
        "UPDATE counted SET v = 2 WHERE id < 50",
        "UPDATE counted SET v = 3 WHERE id = 7 RETURNING *",
        "DELETE FROM counted WHERE id BETWEEN 10 AND 12",
        "DELETE FROM counted WHERE id BETWEEN 13 AND 15 RETURNING id",
        "INSERT INTO counted SELECT id + 1000, v FROM feed",
        "INSERT INTO counted VALUES (7, 1), (8, 1) ON CONFLICT DO NOTHING",
        "UPDATE counted SET v = feed.v FROM feed WHERE feed.id = counted.id",
    ):
        pair.same(statement)
        for connection in (pair.ours, pair.theirs):
            connection.execute("SELECT pg_stat_force_next_flush()")
        pair.same(counts.format("counted"))


def test_autovacuum_has_a_changed_table_analysed(make_cluster) -> None:
    cluster = make_cluster(workers=1)
    node = cluster.coordinator
    node.settings |= {"autovacuum_naptime": "1s", "autovacuum_analyze_threshold": "1000"}
    node.restart()
    node.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, v integer);"
        "SELECT strata.create_distributed_table('t', 'id');"
        "INSERT INTO t SELECT g, g % 7 FROM generate_series(1, 4000) AS g"
    )
    known = (
        "SELECT reltuples, n_distinct FROM pg_class, pg_stats"
        " WHERE relname = 't' AND tablename = 't' AND attname = 'v'"
    )
    for _ in wait_until("t is analysed", 60):
        if node.query(known) == [(4000, 7)]:
            break


def test_what_cannot_be_analysed_now_is_analysed_later(make_cluster) -> None:
    """Its worker is away when autovacuum finds that the table has changed."""
    cluster = make_cluster(workers=1)
    node = cluster.coordinator
    node.settings |= {"autovacuum_naptime": "2s", "autovacuum_analyze_threshold": "1000"}
    node.restart()
    begin = node.log_size()
    node.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, v integer) WITH (autovacuum_enabled = off);"
        "SELECT strata.create_distributed_table('t', 'id');"
        "INSERT INTO t SELECT g, g % 7 FROM generate_series(1, 4000) AS g;"
        "ALTER TABLE t RESET (autovacuum_enabled)"
    )
    cluster.workers[0].stop()
    for _ in wait_until("an attempt has failed", 60):
        if "in the background" in node.log_text(begin):
            break
    cluster.workers[0].start()
    for _ in wait_until("t is analysed", 60):
        if node.query("SELECT reltuples FROM pg_class WHERE relname = 't'") == [(4000,)]:
            break


@pytest.fixture
def analysing(make_cluster) -> tuple[Cluster, psycopg.Connection]:
    """A table that autovacuum wants analysed, not vacuumed, when 1000 rows have changed; a user's session."""
    cluster = make_cluster(workers=1)
    node = cluster.coordinator
    node.settings |= {"autovacuum_naptime": "1s", "autovacuum_analyze_threshold": "1000"}
    node.restart()
    node.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, v integer)"
        " WITH (autovacuum_vacuum_threshold = 1000000, autovacuum_vacuum_insert_threshold = -1);"
        "SELECT strata.create_distributed_table('t', 'id')"
    )
    return cluster, node.connect()


def test_an_analysis_that_waits_for_a_user_makes_no_deadlock(analysing) -> None:
    """It waits for who has changed the table's row of pg_class, and he for the table."""
    cluster, user = analysing
    node, worker = cluster.coordinator, cluster.workers[0]
    node.execute("ALTER SYSTEM SET deadlock_timeout = '4s'")
    node.execute("SELECT pg_reload_conf()")
    begin = node.log_size()
    with worker.connect() as other:
        other.execute("BEGIN")
        other.execute("LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE")
        node.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 4000) AS g")
        for _ in wait_until("autovacuum is done, and the analysis has failed", 60):
            if "in the background" in node.log_text(begin):
                break
        user.execute("BEGIN")
        user.execute("GRANT SELECT ON t TO PUBLIC")
    for _ in wait_until("the analysis waits for the user", 60):
        if node.query(
            "SELECT 1 FROM pg_stat_activity"
            " WHERE backend_type LIKE 'strata%' AND wait_event = 'transactionid'"
        ):
            break
    user.execute("ALTER TABLE t ADD COLUMN w integer")
    user.execute("COMMIT")
    for _ in wait_until("t is analysed", 60):
        if node.query("SELECT reltuples FROM pg_class WHERE relname = 't'") == [(4000,)]:
            break


def test_a_user_does_not_wait_for_an_analysis(analysing) -> None:
    cluster, user = analysing
    node = cluster.coordinator
    begin = node.log_size()
    body = "CREATE OR REPLACE FUNCTION slow(integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS"
    node.execute(f"{body} $$BEGIN RETURN $1; END$$; CREATE INDEX ON t (slow(v))")
    node.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 900) AS g")
    node.execute(f"{body} $$BEGIN PERFORM pg_sleep(0.1); RETURN $1; END$$")
    node.execute("UPDATE t SET v = v WHERE id < 200")
    for _ in wait_until("the analysis runs", 60):
        if cluster.workers[0].query(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query LIKE '%ANALYZE%'"
        ):
            break
    user.execute("ALTER TABLE t ADD COLUMN w integer")
    assert "in the background" in node.log_text(begin)
