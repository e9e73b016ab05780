"""NOT NULL that is newer than a snapshot says nothing of the rows that this shows."""

from __future__ import annotations

from collections.abc import Iterator

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


def on_both(cluster: Cluster, statement: str) -> None:
    for node in (cluster.coordinator, cluster.plain):
        node.execute(statement)


@pytest.fixture(params=TABLES)
def old(cluster: Cluster, schema: str, request: pytest.FixtureRequest) -> Iterator[tuple]:
    """Sessions on both whose snapshots show the row (2, NULL), which is (2, 0) now."""
    on_both(cluster, "SET lock_timeout = '20s'; CREATE TABLE t (id integer, v integer)")
    on_both(cluster, "CREATE TABLE other (id integer)")
    cluster.coordinator.query(TABLES[request.param])
    cluster.coordinator.query("SELECT create_distributed_table('other', 'id')")
    on_both(cluster, "INSERT INTO t VALUES (1, 1), (2, NULL), (3, 3), (4, 4)")
    with cluster.coordinator.connect() as ours, cluster.plain.connect() as theirs:
        for session in (ours, theirs):
            session.execute(f"SET search_path = {schema}; {OLD}; SELECT count(*) FROM other")
        on_both(cluster, "UPDATE t SET v = 0 WHERE v IS NULL")
        yield ours, theirs


@pytest.mark.parametrize("change", CHANGES)
def test_older_snapshots_show_nulls(cluster: Cluster, old: tuple, change: str) -> None:
    on_both(cluster, change)
    before = ask(cluster, old)
    assert before[0] == []
    for session in old:
        session.execute("COMMIT")
    after = ask(cluster, old)
    assert len(after[0]) == 2


def test_who_declares_it_sees_older_rows(cluster: Cluster, old: tuple) -> None:
    for session in old:
        session.execute("ALTER TABLE t ALTER v SET NOT NULL")
    assert ask(cluster, old)[0] == []
    for session in old:
        session.execute("ROLLBACK")
