"""A statement or transaction that acts as two roles sees one state: it has one wire to a worker."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.cluster import Cluster
from tests.fault_points import arm, disarm, release, wait_for_arrival
from tests.waiting import wait_until

OWNER = "snapshot_owner"
READER = "snapshot_reader"

SETUP = f"""\
CREATE TABLE t (k integer PRIMARY KEY, v integer NOT NULL);
CREATE TABLE r (k integer PRIMARY KEY, v integer NOT NULL);
SELECT strata.create_distributed_table('t', 'k', shard_count => 8, colocate_with => 'none');
SELECT strata.create_reference_table('r');
INSERT INTO t SELECT generate_series(1, 40), 0;
INSERT INTO r VALUES (1, 0);
CREATE VIEW t_view AS SELECT k, v FROM t;
CREATE VIEW r_view AS SELECT k, v FROM r;
CREATE FUNCTION read_later(key integer) RETURNS integer STABLE SECURITY DEFINER LANGUAGE plpgsql
    SET search_path FROM CURRENT AS
    'BEGIN
        PERFORM pg_advisory_xact_lock_shared(4711);
        RETURN (SELECT v FROM t WHERE k = key);
    END';
CREATE FUNCTION read_now(key integer) RETURNS integer SECURITY DEFINER LANGUAGE plpgsql
    SET search_path FROM CURRENT AS
    'BEGIN RETURN (SELECT v FROM t WHERE k = key); END';
GRANT SELECT, UPDATE ON t, r, t_view, r_view TO {READER};
"""


class Tables:
    """The tables of SETUP in a schema that belongs to OWNER."""

    def __init__(self, cluster: Cluster, schema: str):
        self.cluster = cluster
        self.schema = schema
        for role in (OWNER, READER):
            cluster.create_role(role)
        cluster.coordinator.execute(f"GRANT ALL ON SCHEMA {schema} TO {OWNER}")
        cluster.coordinator.execute(f"GRANT USAGE ON SCHEMA {schema} TO {READER}")
        with self.session(OWNER) as connection:
            connection.execute(SETUP)
        self.keys = [
            [key for (key,) in worker.query(f"SELECT k FROM {schema}.t ORDER BY k")]
            for worker in cluster.workers
        ]
        assert all(len(keys) > 1 for keys in self.keys)

    def session(self, role: str = READER) -> psycopg.Connection:
        connection = self.cluster.coordinator.connect(user=role)
        connection.execute(f"SET search_path = {self.schema}, public, strata")
        return connection


@pytest.fixture
def tables(cluster: Cluster, schema: str) -> Tables:
    return Tables(cluster, schema)


@pytest.fixture
def checked_tables(make_cluster: Callable[..., Cluster]) -> Tables:
    """The same in a cluster with assertions and fault points."""
    cluster = make_cluster(workers=2, assertions=True)
    cluster.coordinator.execute("CREATE SCHEMA shared")
    return Tables(cluster, "shared")


# ---- one state for a statement -----------------------------------------------------------------------


def test_a_commit_on_one_worker_does_not_tear_a_statement_of_two_roles(
    checked_tables: Tables,
) -> None:
    """It was let through the gate before the statement came, and is done while that takes its snapshot."""
    coordinator = checked_tables.cluster.coordinator
    one, two = checked_tables.keys[0][:2]
    query = f"SELECT k, v FROM t WHERE k = {one} UNION ALL SELECT k, v FROM t_view WHERE k = {two}"
    with (
        checked_tables.session() as reader,
        checked_tables.session() as writer,
        ThreadPoolExecutor(2) as pool,
    ):
        assert sorted(reader.execute(query)) == [(one, 0), (two, 0)]
        arm(coordinator, ("single_commit", "wait"))
        try:
            writing = pool.submit(writer.execute, f"UPDATE t SET v = 1 WHERE k IN ({one}, {two})")
            wait_for_arrival(coordinator)
            reading = pool.submit(lambda: sorted(reader.execute(query)))
            release(coordinator)
            writing.result(timeout=20)
            rows = reading.result(timeout=20)
        finally:
            disarm(coordinator)
    assert rows in ([(one, 0), (two, 0)], [(one, 1), (two, 1)])


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_all_roles_of_a_transaction_share_one_session_of_a_worker(
    tables: Tables, isolation: str
) -> None:
    one, two = tables.keys[0][:2]
    with tables.session() as session:
        session.execute(f"BEGIN ISOLATION LEVEL {isolation}")
        session.execute(
            f"SELECT v FROM t WHERE k = {one} UNION ALL SELECT v FROM t_view WHERE k = {two}"
        )
        session.execute(f"SELECT read_now({one}), read_later({two})")
        for worker in tables.cluster.workers:
            used = worker.query(
                "SELECT usename FROM pg_stat_activity WHERE state = 'idle in transaction'"
            )
            assert len(used) <= 1
        session.execute("ROLLBACK")


def test_a_function_of_another_owner_reads_under_its_callers_snapshot(tables: Tables) -> None:
    key = tables.keys[0][0]
    other = tables.keys[1][0]
    for query in (
        f"SELECT v, read_later(k), read_later(k - {key} + {other}) FROM t WHERE k = {key}",
        f"SELECT v, read_later(k - {other} + {key}), read_later(k) FROM t_view WHERE k = {other}",
        f"SELECT v, read_later(k), read_later(k - {key} + {other}) FROM t WHERE k = {key}"
        " UNION ALL SELECT v, 0, 0 FROM r_view",
    ):
        with (
            tables.session(OWNER) as blocker,
            tables.session() as reader,
            tables.session() as writer,
            ThreadPoolExecutor(1) as pool,
        ):
            writer.execute("UPDATE t SET v = 0")
            blocker.execute("SELECT pg_advisory_lock(4711)")
            reading = pool.submit(lambda r=reader, q=query: r.execute(q).fetchone())
            for _ in wait_until("the function waits"):
                if blocker.execute(
                    "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                ).fetchall():
                    break
            writer.execute(f"UPDATE t SET v = 1 WHERE k = {key}")
            writer.execute(f"UPDATE t SET v = 1 WHERE k = {other}")
            blocker.execute("SELECT pg_advisory_unlock(4711)")
            assert reading.result(timeout=20) == (0, 0, 0), query


# ---- one state for a transaction ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "read",
    ["SELECT v FROM t_view WHERE k = {key}", "SELECT read_now({key})"],
    ids=["view", "function"],
)
@pytest.mark.parametrize(
    "inside",
    [
        "{read}",
        "SAVEPOINT s; {read}",
        "SAVEPOINT s; {read}; ROLLBACK TO SAVEPOINT s; {read}",
        "DO $$ BEGIN EXECUTE $x${read}$x$; EXCEPTION WHEN division_by_zero THEN NULL; END $$; {read}",
    ],
    ids=["plain", "savepoint", "rolled back", "exception"],
)
def test_a_repeatable_read_that_acted_as_two_roles_commits(
    tables: Tables, read: str, inside: str
) -> None:
    one = tables.keys[0][0]
    read = read.format(key=one)
    with tables.session() as session, tables.session() as writer:
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        assert session.execute(f"SELECT v FROM t WHERE k = {one}").fetchone() == (0,)
        writer.execute(f"UPDATE t SET v = 7 WHERE k = {one}")
        for statement in inside.format(read=read).split("; "):
            cursor = session.execute(statement) if "$$" not in inside else None
            if cursor is not None and cursor.description:
                assert cursor.fetchone() == (0,)
        if "$$" in inside:
            session.execute(inside.format(read=read).rpartition("; ")[0])
            assert session.execute(read).fetchone() == (0,)
        keys = f"{tables.keys[0][1]}, {tables.keys[1][1]}"
        session.execute(f"UPDATE t SET v = v + 1 WHERE k IN ({keys})")
        session.execute("COMMIT")
        assert writer.execute(f"SELECT sum(v) FROM t WHERE k IN ({keys})").fetchone() == (2,)
        assert writer.execute(read).fetchone() == (7,)
    for worker in tables.cluster.workers:
        assert worker.query("SELECT pg_ls_dir('pg_snapshots')") == []


def test_two_roles_of_a_repeatable_read_see_what_they_wrote(tables: Tables) -> None:
    one, two = (keys[0] for keys in tables.keys)
    with tables.session() as session, tables.session() as other:
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        assert session.execute(f"SELECT read_now({one})").fetchone() == (0,)
        session.execute(f"UPDATE t SET v = 5 WHERE k IN ({one}, {two})")
        assert session.execute(f"SELECT read_now({one})").fetchone() == (5,)
        session.execute("ROLLBACK")
        assert other.execute(f"SELECT v FROM t WHERE k = {one}").fetchone() == (0,)
