"""A coordinator that was restored to an earlier time finds the shards that have moved since."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Event

import psycopg
import pytest

from tests.cluster import Cluster, Node
from tests.failover import allow_passwords, copy_coordinator, standby_mark
from tests.fixtures import new_root
from tests.waiting import wait_until

SETUP = """
CREATE TABLE t (id integer PRIMARY KEY, v integer);
SELECT strata.create_distributed_table('t', 'id', shard_count => 4);
CREATE SCHEMA "Odd ""name";
CREATE TABLE "Odd ""name"."T;" (id integer);
SELECT strata.create_distributed_table('"Odd ""name"."T;"', 'id', colocate_with => 't');
CREATE TABLE p (id integer, at timestamptz NOT NULL);
SELECT strata.create_distributed_table('p', 'id', colocate_with => 't',
    partition_by => 'at', partition_interval => '1 day');
CREATE TABLE other (id integer);
SELECT strata.create_distributed_table('other', 'id', shard_count => 3, colocate_with => 'none');
INSERT INTO t SELECT g, g FROM generate_series(1, 200) AS g;
INSERT INTO "Odd ""name"."T;" SELECT g FROM generate_series(1, 200) AS g;
INSERT INTO p SELECT g, now() FROM generate_series(1, 200) AS g;
INSERT INTO other SELECT g FROM generate_series(1, 200) AS g;
"""
ADOPT = "SELECT strata.adopt_shards()"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(new_root(), workers=2) as cluster:
        cluster.coordinator.execute(SETUP)
        yield cluster


def move(cluster: Cluster, relation: str, shard: int) -> None:
    names = [worker.name for worker in cluster.workers]
    ((source,),) = cluster.coordinator.query(
        "SELECT worker FROM strata.shards WHERE relation = %s::regclass AND shard = %s",
        (relation, shard),
    )
    target = names[1 - names.index(source)]
    cluster.coordinator.execute("SELECT strata.move_shard(%s, %s, %s)", (relation, shard, target))


def run(node: Node, sql: str) -> tuple[object, list[str]]:
    """The value, and what was said."""
    said: list[str] = []
    with node.connect() as connection:
        connection.add_notice_handler(lambda d: said.append(f"{d.severity}: {d.message_primary}"))
        ((value,),) = connection.execute(sql).fetchall()
    return value, said


@contextlib.contextmanager
def in_place_of(original: Node, copy: Node) -> Iterator[None]:
    """The copy is started and takes over; the original's sessions are gone."""
    original.stop()
    copy.start()
    try:
        _, said = run(copy, "SELECT strata.take_over()")
        assert [line.partition('"')[0] for line in said] == ["WARNING: worker "] * 2
        yield
    finally:
        copy.stop()
        original.start()


def adopt(copy: Node) -> tuple[object, list[str]]:
    """As soon as the copy has told the workers who it is."""
    for _ in wait_until("the copy is the coordinator"):
        with contextlib.suppress(psycopg.Error):
            return run(copy, ADOPT)
    raise AssertionError


def test_shards_are_found_where_they_are(cluster: Cluster) -> None:
    original = cluster.coordinator
    assert run(original, ADOPT) == (0, [])
    copy = copy_coordinator(cluster, "copy")
    move(cluster, "t", 1)
    move(cluster, "t", 2)
    move(cluster, "other", 0)
    with in_place_of(original, copy):
        found, said = adopt(copy)
        assert found == 3
        assert len(said) == 3
        assert all("is on worker" in line and line.startswith("NOTICE") for line in said)
        for table in ("t", '"Odd ""name"."T;"', "p", "other"):
            assert copy.query(f"SELECT count(*) FROM {table}") == [(200,)]
            with copy.connect() as connection:
                for n in range(1, 30):
                    query = f"SELECT id FROM {table} WHERE id = %s"
                    assert connection.execute(query, (n,)).fetchall() == [(n,)]
        assert run(copy, ADOPT) == (0, [])
        assert run(copy, "SELECT strata.take_over()")[1] == []
        faults = "SELECT detail FROM strata.check_health() WHERE check_name = 'tables and shards'"
        for _ in wait_until("the copy is the coordinator again"):
            try:
                assert copy.query(faults) == [(None,), (None,)]
                break
            except psycopg.Error:
                continue
        copy.execute("INSERT INTO t VALUES (1000, 1); ALTER TABLE other ADD COLUMN v integer")


@contextlib.contextmanager
def refused() -> Iterator[None]:
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as error:
        yield
    assert "has changes of the schema that this coordinator does not know" in str(error.value)
    assert "strata.adopt_shards()" in (error.value.diag.message_hint or "")


def test_nothing_is_done_until_they_are_found(cluster: Cluster) -> None:
    """An empty place is no error: the queries would find no rows, and DDL would hide that there is more."""
    original = cluster.coordinator
    cluster.create_role("reader")
    original.execute("GRANT SELECT ON t TO reader")
    copy = copy_coordinator(cluster, "copy")
    allow_passwords(copy.passfile, original.port, copy.port)
    move(cluster, "t", 1)
    with in_place_of(original, copy):
        for _ in wait_until("the copy has told the workers who it is"):
            try:
                copy.query("SELECT count(*) FROM t")
            except psycopg.errors.ObjectNotInPrerequisiteState as error:
                if "does not know" in str(error):
                    break
        copy.execute("CREATE TABLE u (LIKE t)")  # it is local
        for sql in (
            "SELECT count(*) FROM t",
            "SELECT v FROM t WHERE id = 1",
            "INSERT INTO t VALUES (1000, 1)",
            "COPY t TO PROGRAM 'cat > /dev/null'",
            "SELECT strata.create_reference_table('u')",
            "ALTER TABLE t ADD COLUMN w integer",
            "TRUNCATE t",
            "SELECT strata.move_shard('t', 0, 'worker2')",
            "SELECT strata.create_restore_point('here')",
        ):
            with refused():
                copy.execute(sql)
        with copy.connect(user="reader") as session, refused():
            session.execute("SELECT count(*) FROM t")
        unhealthy = copy.query("SELECT detail FROM strata.check_health() WHERE NOT ok")
        assert any("does not know" in str(detail) for (detail,) in unhealthy)
        with copy.connect() as session:  # what is undone was not said
            session.execute("BEGIN")
            assert session.execute(ADOPT).fetchall() == [(1,)]
            assert session.execute("SELECT count(*) FROM t").fetchall() == [(200,)]
            session.execute("ROLLBACK")
            with refused():
                session.execute("SELECT count(*) FROM t")
            session.execute("ROLLBACK")
            assert session.execute(ADOPT).fetchall() == [(1,)]
            assert session.execute("SELECT count(*) FROM t").fetchall() == [(200,)]
        with copy.connect(user="reader") as session:
            assert session.execute("SELECT count(*) FROM t").fetchall() == [(200,)]


def test_sessions_that_begin_beside_ddl_are_not_refused(cluster: Cluster) -> None:
    """Workers commit a change after the coordinator has, and a session may have asked it before."""
    coordinator = cluster.coordinator
    done = Event()

    def change() -> int:
        for n in count(1):
            coordinator.execute(
                f"CREATE OR REPLACE FUNCTION f() RETURNS integer LANGUAGE sql AS 'SELECT {n}'"
            )
            if done.is_set():
                return n
        raise AssertionError

    with ThreadPoolExecutor(1) as pool:
        changes = pool.submit(change)
        try:
            for _ in range(40):
                with coordinator.connect() as session:
                    assert session.execute("SELECT count(*) FROM t").fetchall() == [(200,)]
        finally:
            done.set()
        assert changes.result() > 40


def test_changes_that_move_nothing_are_not_passed_over(cluster: Cluster) -> None:
    original = cluster.coordinator
    copy = copy_coordinator(cluster, "copy")
    original.execute("ALTER TABLE t ADD COLUMN w integer DEFAULT 5")
    with in_place_of(original, copy):
        assert adopt(copy) == (0, [])
        assert copy.query("SELECT count(*) FROM t") == [(200,)]
        with pytest.raises(psycopg.errors.DuplicateColumn):
            copy.execute("ALTER TABLE t ADD COLUMN w integer DEFAULT 5")


def test_shards_that_had_left_a_worker_that_is_lost(cluster: Cluster) -> None:
    original = cluster.coordinator
    copy = copy_coordinator(cluster, "copy")
    gone = cluster.workers[1]
    shards = "SELECT shard FROM strata.shards WHERE relation = 't'::regclass AND worker = %s"
    theirs = [shard for (shard,) in original.query(shards, (gone.name,))]
    move(cluster, "t", theirs[0])
    gone.stop()
    try:
        with in_place_of(original, copy):
            for _ in wait_until("the worker is known to be lost"):
                with contextlib.suppress(psycopg.Error):
                    copy.execute(f"SELECT strata.remove_worker('{gone.name}', lost => true)")
                    break
            found, said = adopt(copy)
            assert found == 1
            assert said == [
                f'NOTICE: shard {theirs[0]} of tables "t", "T;" and "p" is on worker "{cluster.workers[0].name}", not on worker "{gone.name}"'
            ]
            with pytest.raises(psycopg.Error, match="lost"):
                copy.query("SELECT count(*) FROM t")
            copy.execute("SELECT strata.recreate_lost_shards('t')")
            ((kept,),) = copy.query("SELECT count(*) FROM t")
            assert 0 < kept < 200
    finally:
        gone.start()


def test_a_replica_that_lacked_the_last_commits(cluster: Cluster) -> None:
    """It is promoted, and takes over by itself: asynchronous replication loses commits, but no rows are hidden."""
    original = cluster.coordinator
    replica = copy_coordinator(cluster, "replica", "-R")
    replica.start()
    for _ in wait_until("the replica knows what it is"):
        if standby_mark(replica).exists():
            break
    replica.stop()
    move(cluster, "t", 1)
    original.stop()
    replica.start()
    try:
        replica.execute("SELECT pg_promote()")
        for _ in wait_until("the replica has taken over"):
            try:
                rows = replica.query("SELECT count(*) FROM t")
            except psycopg.Error as error:
                if "does not know" in str(error):
                    break
            else:
                assert rows == [(200,)], "rows are hidden"
        assert adopt(replica)[0] == 1
        assert replica.query("SELECT count(*) FROM t") == [(200,)]
    finally:
        replica.stop()
        original.start()


def test_a_shard_that_is_nowhere_is_told(cluster: Cluster) -> None:
    ((home,),) = cluster.coordinator.query(
        "SELECT worker FROM strata.shards WHERE relation = 'other'::regclass AND shard = 1"
    )
    (worker,) = [worker for worker in cluster.workers if worker.name == home]
    worker.execute("DROP TABLE other_s1")
    found, said = run(cluster.coordinator, ADOPT)
    assert found == 0
    assert said == ['WARNING: shard 1 of table "other" is not whole on any worker alone']


def test_only_superusers_adopt(cluster: Cluster) -> None:
    cluster.create_role("reader")
    with (
        cluster.coordinator.connect(user="reader") as session,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        session.execute(ADOPT)
    with cluster.coordinator.connect() as session:
        session.execute("SET default_transaction_read_only = on")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            session.execute(ADOPT)
