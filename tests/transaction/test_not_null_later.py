"""NOT NULL that is newer than a snapshot says nothing of the rows that this shows."""

from __future__ import annotations

import pytest

from tests.assert_same import assert_same
from tests.cluster import Cluster

TABLES = {
    "distributed, columnar": "SELECT create_distributed_table('t', 'id', shard_count => 4)",
    "distributed, heap": "SELECT create_distributed_table('t', 'id', shard_count => 4, storage => 'heap')",
    "reference, columnar": "SELECT create_reference_table('t', storage => 'columnar')",
    "reference, heap": "SELECT create_reference_table('t')",
    "local": "SELECT 1",
}
CHANGES = ["ALTER TABLE t ALTER v SET NOT NULL", "ALTER TABLE t ADD PRIMARY KEY (id, v)"]
QUERIES = [
    "SELECT id FROM t WHERE v NOT IN (SELECT v FROM t WHERE id < 3)",
    "SELECT id FROM t WHERE v <> ALL (SELECT v FROM t WHERE id < 3)",
    "SELECT count(v), count(*) FROM t",
    "SELECT count(v) FROM t",
]
OLD = "BEGIN ISOLATION LEVEL REPEATABLE READ"


def ask(cluster: Cluster, sessions: tuple) -> list:
    return [assert_same(cluster, query, connections=sessions) for query in QUERIES]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("table", TABLES)
def test_older_snapshots_show_nulls(cluster: Cluster, schema: str, table: str, change: str) -> None:
    nodes = (cluster.coordinator, cluster.plain)
    with cluster.coordinator.connect() as ours, cluster.plain.connect() as theirs:
        for node in nodes:
            node.execute("SET lock_timeout = '20s'; CREATE TABLE t (id integer, v integer)")
            node.execute("CREATE TABLE other (id integer)")
        cluster.coordinator.query(TABLES[table])
        cluster.coordinator.query("SELECT create_distributed_table('other', 'id')")
        for node in nodes:
            node.execute("INSERT INTO t VALUES (1, 1), (2, NULL), (3, 3), (4, 4)")
        for session in (ours, theirs):
            session.execute(f"SET search_path = {schema}; {OLD}; SELECT count(*) FROM other")
        for node in nodes:
            node.execute("UPDATE t SET v = 0 WHERE v IS NULL")
            node.execute(change)
        before = ask(cluster, (ours, theirs))
        assert before[0] == []
        for session in (ours, theirs):
            session.execute("COMMIT")
        after = ask(cluster, (ours, theirs))
        assert len(after[0]) == 2


@pytest.mark.parametrize("table", TABLES)
def test_who_declares_it_sees_older_rows(cluster: Cluster, schema: str, table: str) -> None:
    nodes = (cluster.coordinator, cluster.plain)
    with cluster.coordinator.connect() as ours, cluster.plain.connect() as theirs:
        for node in nodes:
            node.execute("SET lock_timeout = '20s'; CREATE TABLE t (id integer, v integer)")
            node.execute("CREATE TABLE other (id integer)")
        cluster.coordinator.query(TABLES[table])
        cluster.coordinator.query("SELECT create_distributed_table('other', 'id')")
        for node in nodes:
            node.execute("INSERT INTO t VALUES (1, 1), (2, NULL), (3, 3), (4, 4)")
        for session in (ours, theirs):
            session.execute(f"SET search_path = {schema}; {OLD}; SELECT count(*) FROM other")
        for node in nodes:
            node.execute("UPDATE t SET v = 0 WHERE v IS NULL")
        for session in (ours, theirs):
            session.execute("ALTER TABLE t ALTER v SET NOT NULL")
        assert ask(cluster, (ours, theirs))[0] == []
        for session in (ours, theirs):
            session.execute("ROLLBACK")
