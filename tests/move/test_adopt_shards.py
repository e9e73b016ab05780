"""A coordinator that was restored to an earlier time finds the shards that have moved since."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster, Node
from tests.failover import copy_coordinator
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


def test_shards_are_found_where_they_are(cluster: Cluster) -> None:
    original = cluster.coordinator
    assert run(original, ADOPT) == (0, [])
    copy = copy_coordinator(cluster, "copy")
    move(cluster, "t", 1)
    move(cluster, "t", 2)
    move(cluster, "other", 0)
    original.stop()
    copy.start()
    try:
        _, said = run(copy, "SELECT strata.take_over()")
        assert [line.partition('"')[0] for line in said] == ["WARNING: worker "] * 2
        for _ in wait_until("the copy is the coordinator"):
            try:
                found, said = run(copy, ADOPT)
                break
            except psycopg.Error:
                continue
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
    finally:
        copy.stop()
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
