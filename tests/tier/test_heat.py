"""strata.heat(): which rows of a distributed table are read most."""

from __future__ import annotations

import psycopg
import pytest

from tests.cluster import Cluster


def test_the_hottest_row_groups_come_first_with_their_shares(cluster: Cluster, schema: str) -> None:
    coordinator = cluster.coordinator
    coordinator.execute("CREATE TABLE t (k integer, v integer)")
    coordinator.query("SELECT create_distributed_table('t', 'k', shard_count => 4)")
    coordinator.execute("INSERT INTO t SELECT g, hashint4(g) FROM generate_series(1, 40000) AS g")
    for _ in range(10):
        coordinator.query("SELECT max(hashint4(v)) FROM t WHERE k = 7")
    coordinator.query("SELECT max(hashint4(v)) FROM t")

    groups = coordinator.query(
        "SELECT worker, shard, leaf, rows, heat, share, cumulative_share FROM strata.heat('t')"
    )
    assert sum(rows for _, _, _, rows, *_ in groups) == 40000
    assert {shard for _, shard, *_ in groups} == {0, 1, 2, 3}
    worker = next(node for node in cluster.workers if node.name == groups[0][0])
    assert worker.value(f"SELECT count(*) FROM {schema}.{groups[0][2]} WHERE k = 7") == 1
    heats = [heat for *_, heat, _, _ in groups]
    assert heats == sorted(heats, reverse=True)
    assert heats[0] > 2 * heats[1] > 0
    assert sum(share for *_, share, _ in groups) == pytest.approx(1)
    assert groups[-1][-1] == pytest.approx(1)


def test_only_readers_of_a_table_see_its_heat(cluster: Cluster, schema: str) -> None:
    coordinator = cluster.coordinator
    cluster.create_role("heat_reader")
    coordinator.execute("CREATE TABLE t (k integer, v integer)")
    coordinator.query("SELECT create_distributed_table('t', 'k', shard_count => 4)")
    coordinator.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 4000) AS g")
    coordinator.execute(f"GRANT USAGE ON SCHEMA {schema} TO heat_reader")
    count = f"SELECT count(*) FROM strata.heat('{schema}.t')"
    with psycopg.connect(coordinator.conninfo(user="heat_reader"), autocommit=True) as reader:
        assert reader.execute(count).fetchone() == (0,)
        coordinator.execute("GRANT SELECT ON t TO heat_reader")
        assert reader.execute(count).fetchone()[0] >= 4
    coordinator.execute("DROP OWNED BY heat_reader")
