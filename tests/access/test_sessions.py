"""A session behaves on the workers as it does here: its settings, its role, its encoding, its limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.failover import frozen
from tests.pair import Pair, open_pair
from tests.waiting import patience


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_sessions") as made:
        made.execute(
            "CREATE TABLE t (id integer PRIMARY KEY, at timestamptz, d date, i interval, f float8,"
            " b bytea, s text, m money)"
        )
        made.distribute("t", "id")
        made.execute(
            "INSERT INTO t SELECT g, TIMESTAMPTZ '2024-03-30 20:00+00' + g * INTERVAL '1 hour',"
            " DATE '2024-01-02' + g, g * INTERVAL '1 day 2 hours', 1 / (g + 2.0::float8),"
            " decode(lpad(to_hex(g), 4, '0'), 'hex'), 'it''s \\ ' || g, g::numeric::money"
            " FROM generate_series(1, 60) AS g"
        )
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    yield data
    data.reset()
    data.execute("RESET ALL; SET search_path = test_sessions, public, strata")


# Each query is evaluated on the workers, and its answer depends on a setting.
DEPENDENT = [
    "SELECT at::date, count(*) FROM t GROUP BY 1",
    "SELECT id FROM t WHERE extract(hour FROM at) = 23",
    "SELECT id FROM t WHERE at > '2024-03-31 03:30'::text::timestamptz",
    "SELECT id FROM t WHERE d::text LIKE '%02%'",
    "SELECT max(i::text) FROM t WHERE length(i::text) > 3",
    "SELECT id FROM t WHERE length(f::text) > 14",
    "SELECT string_agg(b::text, ',' ORDER BY id) FROM t WHERE b::text LIKE '%1%'",
    "SELECT id FROM t WHERE to_tsvector(s) @@ to_tsquery('it')",
    "SELECT count(*) FROM t WHERE to_char(id, '9D9') LIKE '%.%' AND m::text LIKE '%5%'",
    r"SELECT id, 'a\nb', E'c\\d' FROM t WHERE s = 'it''s \ 7' OR s LIKE 'it%3'",
]


@pytest.mark.parametrize(
    "setting",
    [
        "TimeZone = 'America/New_York'",
        "TimeZone = 'Asia/Kathmandu'",
        "DateStyle = 'SQL, DMY'",
        "DateStyle = 'German'",
        "IntervalStyle = 'iso_8601'",
        "IntervalStyle = 'sql_standard'",
        "extra_float_digits = 0",
        "extra_float_digits = -5",
        "bytea_output = 'escape'",
        "default_text_search_config = 'pg_catalog.english'",
        "standard_conforming_strings = off",
        "quote_all_identifiers = on",
        "search_path = 'test_sessions'",
        "transform_null_equals = on",
    ],
)
def test_settings_reach_the_workers(pair: Pair, setting: str) -> None:
    pair.execute(f"SET {setting}; SET escape_string_warning = off")
    # with a comment, lest the driver executes what it prepared under another setting
    pair.all_same(f"{query} -- {setting}" for query in DEPENDENT)
    pair.same(f"SELECT * FROM t WHERE id < 4 -- {setting}")


def test_settings_follow_transactions_and_savepoints(pair: Pair) -> None:
    query = "SELECT at::date, count(*) FROM t GROUP BY 1"
    with pair.transaction("ROLLBACK"):
        pair.execute("SET TimeZone = 'Pacific/Auckland'")
        pair.same(query)
    pair.same(query)
    with pair.transaction("COMMIT"):
        pair.execute("SET LOCAL TimeZone = 'Pacific/Honolulu'")
        pair.same(query)
        pair.execute("SAVEPOINT a; SET TimeZone = 'Asia/Tokyo'")
        pair.same(query)
        pair.execute("ROLLBACK TO a")
        pair.same(query)
        pair.execute("UPDATE t SET f = f; SAVEPOINT b; SET LOCAL TimeZone = 'Asia/Tokyo'")
        pair.same("UPDATE t SET f = 1 / (id - 5) WHERE at::date <> d")
        pair.execute("ROLLBACK TO b")
        pair.same(query)
    pair.same(query)
    pair.execute(
        "CREATE OR REPLACE FUNCTION in_tokyo () RETURNS bigint LANGUAGE sql SET TimeZone = 'Asia/Tokyo'"
        " AS 'SELECT count(*) FROM test_sessions.t WHERE extract(hour FROM at) < 3'"
    )
    pair.same("SELECT in_tokyo()")
    pair.same(query)


def test_the_workers_configuration_does_not_change_answers(pair: Pair) -> None:
    """A worker's administrator may have other defaults; what the session has here counts."""
    worker = pair.cluster.workers[0]
    settings = {
        "TimeZone": "Asia/Tokyo",
        "DateStyle": "German",
        "extra_float_digits": "-10",
        "statement_timeout": "1ms",
        "default_transaction_read_only": "on",
        "default_transaction_isolation": "serializable",
        "default_table_access_method": "heap",
        "search_path": "nowhere",
        "row_security": "off",
        "standard_conforming_strings": "off",
    }
    for name, value in settings.items():
        worker.execute(f"ALTER DATABASE strata SET {name} = '{value}'")
    try:
        with pair.cluster.coordinator.connect() as ours, pair.cluster.plain.connect() as theirs:
            for connection in (ours, theirs):
                connection.execute("SET search_path = test_sessions")
            for query in (*DEPENDENT, "UPDATE t SET f = f + 0 RETURNING id"):
                assert sorted(ours.execute(query).fetchall(), key=str) == sorted(
                    theirs.execute(query).fetchall(), key=str
                )
    finally:
        # RESET ALL would need a writable session
        worker.disconnect()
        with worker.connect("postgres") as connection:
            connection.execute("ALTER DATABASE strata RESET ALL")
            connection.execute("ALTER DATABASE strata SET search_path = DEFAULT")


@pytest.mark.parametrize("encoding", ["LATIN1", "WIN1252", "UTF8", "SQL_ASCII"])
def test_a_clients_encoding_is_its_own_affair(cluster: Cluster, data: Pair, encoding: str) -> None:
    text = "Grüße, Ærøskøbing" if encoding != "SQL_ASCII" else "plain"
    codec = "latin-1" if encoding in ("LATIN1", "WIN1252") else "utf-8"
    for node in (cluster.coordinator, cluster.plain):
        with node.connect() as connection:
            connection.execute("SET search_path = test_sessions")
            connection.execute(f"SET client_encoding = '{encoding}'")
            with connection.transaction(force_rollback=True):
                connection.execute("UPDATE t SET s = %s", (text,))
                with connection.cursor().copy("COPY t (id, s) FROM STDIN") as copy:
                    copy.write(f"1000\t{text}\n".encode(codec))
                connection.execute("CREATE TABLE n (k numeric, s text)")
                if node is cluster.coordinator:
                    connection.execute("SELECT strata.create_distributed_table('n', 'k')")
                connection.execute(
                    "INSERT INTO n SELECT g, %s FROM generate_series(1, 200) AS g", (text,)
                )
                for query in (
                    "SELECT DISTINCT s FROM t",
                    "SELECT s FROM t WHERE id = 1000",
                    "SELECT max(s) FROM n WHERE k > 3.5",
                ):
                    rows = connection.execute(query).fetchall()
                    assert [
                        value if isinstance(value, str) else value.decode() for (value,) in rows
                    ] == [text]


def test_lock_timeout_counts_where_the_locks_are(pair: Pair) -> None:
    with pair.cluster.coordinator.connect() as other, other.transaction(force_rollback=True):
        other.execute("SELECT FROM test_sessions.t WHERE id = 7 FOR UPDATE")
        pair.ours.execute("SET lock_timeout = '200ms'")
        start = time.monotonic()
        with pytest.raises(psycopg.errors.LockNotAvailable):
            pair.ours.execute("UPDATE t SET f = 0 WHERE id = 7")
        assert time.monotonic() - start < patience(2)


@pytest.fixture
def reader(pair: Pair) -> Iterator[psycopg.Connection]:
    """A session of a role that may insert into t, and read it through counted() only."""
    pair.cluster.create_role("strata_reader")
    pair.execute(
        "GRANT USAGE ON SCHEMA test_sessions TO strata_reader; GRANT INSERT ON t TO strata_reader;"
        "CREATE FUNCTION counted () RETURNS bigint LANGUAGE sql SECURITY DEFINER"
        " AS 'SELECT count(*) FROM test_sessions.t';"
        "CREATE FUNCTION add (integer) RETURNS void LANGUAGE sql SECURITY DEFINER"
        " AS 'INSERT INTO test_sessions.t (id) VALUES ($1)'"
    )
    with pair.cluster.coordinator.connect(user="strata_reader") as connection:
        connection.execute("SET search_path = test_sessions")
        yield connection
    pair.execute("DROP FUNCTION counted (), add (integer)")
    pair.execute("DROP OWNED BY strata_reader; DROP ROLE strata_reader")


def test_a_definers_rights_reach_the_workers(reader: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        reader.execute("SELECT count(*) FROM t")
    assert reader.execute("SELECT counted()").fetchall() == [(60,)]
    with reader.transaction(force_rollback=True):
        reader.execute("SELECT add(1000), add(1001), add(1002)")
        assert reader.execute("SELECT counted()").fetchall() == [(63,)]


def test_roles_of_a_transaction_see_each_others_rows(reader: psycopg.Connection) -> None:
    ((before,),) = reader.execute("SELECT counted()").fetchall()
    with reader.transaction(force_rollback=True):
        reader.execute("INSERT INTO t (id) SELECT generate_series(1000, 1099)")
        assert reader.execute("SELECT counted()").fetchall() == [(before + 100,)]
    with reader.transaction():
        reader.execute("INSERT INTO t (id) VALUES (2000), (2001), (2002), (2003)")
        reader.execute("SELECT add(2010), add(2011), add(2012), add(2013)")
    assert reader.execute("SELECT counted()").fetchall() == [(68,)]


def test_analyze_in_a_transaction_sees_its_rows_whoever_owns_the_table(pair: Pair) -> None:
    """Core analyses as the owner, who need not even be able to use the schema."""
    pair.ours.execute(
        "CREATE ROLE session_owner; CREATE TABLE owned (id integer PRIMARY KEY);"
        "SELECT strata.create_distributed_table('owned', 'id'); ALTER TABLE owned OWNER TO session_owner"
    )
    with pair.ours.transaction():
        pair.ours.execute("INSERT INTO owned SELECT generate_series(1, 1000); ANALYZE owned")
    assert pair.rows("SELECT reltuples FROM pg_class WHERE relname = 'owned'") == [(1000,)]
    pair.ours.execute("DROP TABLE owned; DROP ROLE session_owner")


# ---- a worker that stands still ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(cluster: Cluster) -> Iterator[Cluster]:
    """The shared cluster; its second worker will be frozen."""
    cluster.coordinator.execute(
        "CREATE SCHEMA frost; CREATE TABLE frost.t (id integer PRIMARY KEY, v integer);"
        "SELECT strata.create_distributed_table('frost.t', 'id');"
        "INSERT INTO frost.t SELECT g, 0 FROM generate_series(1, 100) AS g"
    )
    yield cluster
    cluster.coordinator.execute("DROP SCHEMA frost CASCADE")


def test_a_frozen_worker_does_not_outlast_a_timeout_by_much(small: Cluster) -> None:
    with small.coordinator.connect() as connection:
        connection.execute("SELECT count(*) FROM frost.t")
        connection.execute("SET statement_timeout = '500ms'")
        with frozen(small.workers[1]):
            start = time.monotonic()
            with pytest.raises(psycopg.errors.QueryCanceled):
                connection.execute("SELECT count(*) FROM frost.t")
            assert time.monotonic() - start < patience(8)
            key = small.workers[0].value("SELECT min(id) FROM frost.t")
            assert connection.execute(f"SELECT v FROM frost.t WHERE id = {key}").fetchall() == [
                (0,)
            ]
        connection.execute("SET statement_timeout = '20s'")
        assert connection.execute("SELECT count(*) FROM frost.t").fetchall() == [(100,)]


@pytest.mark.parametrize("command", ["VACUUM frost.t", "REINDEX TABLE frost.t"])
def test_maintenance_of_a_frozen_worker_can_be_cancelled(small: Cluster, command: str) -> None:
    with small.coordinator.connect() as connection:
        connection.execute("SELECT count(*) FROM frost.t")
        connection.execute("SET statement_timeout = '500ms'")
        with frozen(small.workers[1]):
            start = time.monotonic()
            with pytest.raises(psycopg.errors.QueryCanceled):
                connection.execute(command)
            assert time.monotonic() - start < patience(8)
        connection.execute("SET statement_timeout = '20s'")
        connection.execute(command)


def test_a_frozen_worker_fails_a_new_session_within_the_connect_timeout(small: Cluster) -> None:
    with small.coordinator.connect() as connection:
        connection.execute("SET strata.connect_timeout = '1s'")
        with frozen(small.workers[1]):
            start = time.monotonic()
            with pytest.raises(psycopg.OperationalError, match="worker2"):
                connection.execute("SELECT count(*) FROM frost.t")
            assert time.monotonic() - start < patience(3)
        assert connection.execute("SELECT count(*) FROM frost.t").fetchall() == [(100,)]


def test_a_worker_frozen_before_the_commit_undoes_the_transaction(small: Cluster) -> None:
    """PREPARE gets no answer; cancelled, the transaction leaves nothing on the other worker."""
    with small.coordinator.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("UPDATE frost.t SET v = 1")
        with frozen(small.workers[1]):
            canceller = threading.Timer(0.7, connection.cancel)
            canceller.start()
            start = time.monotonic()
            with pytest.raises(psycopg.errors.QueryCanceled):
                connection.execute("COMMIT")
            assert 0.6 < time.monotonic() - start < patience(15)
            canceller.join()
            assert small.workers[0].query("SELECT gid FROM pg_prepared_xacts") == []
            assert small.workers[0].value("SELECT sum(v) FROM frost.t") == 0
    # what the frozen one had prepared, if anything, is undone as the missing decision says
    time.sleep(0.5)
    for (gid,) in small.workers[1].query("SELECT gid FROM pg_prepared_xacts"):
        small.workers[1].execute(f"ROLLBACK PREPARED '{gid}'")
    assert small.coordinator.value("SELECT sum(v) FROM frost.t") == 0
