"""A shard begins to move only where there is room for it, and if it is not too large."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster, Node
from tests.fixtures import new_root
from tests.small_disk import MEGABYTE, mounts_disks, small_disk
from tests.waiting import wait_until

# 1000 rows with 6 MB in TOAST
WIDE = (
    "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 190) AS n)"
    " FROM generate_series(1, 1000) AS g"
)
TAKES = "SELECT pg_size_pretty(b + b / 10) FROM (SELECT sum(pg_total_relation_size(p.relid))::bigint FROM {}) AS s (b)"


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    """Table h is one shard on worker1, a heap; p, of its own group, too, by months and with an index."""
    with Cluster(new_root(), workers=3) as cluster:
        node = cluster.coordinator
        node.execute(
            "CREATE TABLE h (k integer PRIMARY KEY, v text); CREATE TABLE p (k integer, at date NOT NULL, v text);"
            "ALTER TABLE h ALTER v SET STORAGE EXTERNAL; CREATE INDEX ON p (v);"
            "SELECT strata.create_distributed_table('h', 'k', 1, storage => 'heap');"
            "SELECT strata.create_distributed_table('p', 'k', 1, colocate_with => 'none', partition_by => 'at', partition_interval => '1 month');"
            f"INSERT INTO h SELECT g, {WIDE};"
            "INSERT INTO p SELECT g, date '2026-01-05' + g % 60, md5(g::text) FROM generate_series(1, 20000) AS g"
        )
        yield cluster


@pytest.fixture
def cluster(made: Cluster) -> Iterator[Cluster]:
    """The tables are on worker1."""
    for table in ("h", "p"):
        made.coordinator.execute(f"SELECT strata.move_shard('{table}', 0, 'worker1')")
    yield made
    made.coordinator.execute("ALTER SYSTEM RESET strata.move_limit")
    made.coordinator.execute("SELECT pg_reload_conf()")
    made.coordinator.execute("DROP TABLE IF EXISTS s")


def takes(cluster: Cluster, table: str) -> str:
    """What a move of it asks for, as errors tell it."""
    leaves = f"pg_partition_tree('{table}_s0') AS p WHERE p.isleaf"
    return cluster.workers[0].value(TAKES.format(leaves))


def place_of(cluster: Cluster, table: str) -> list[str]:
    places = "SELECT worker FROM strata.shards WHERE relation = %s::regclass ORDER BY shard"
    return [worker for (worker,) in cluster.coordinator.query(places, (table,))]


def refuse(cluster: Cluster, statement: str) -> psycopg.errors.Diagnostic:
    """The worker has no room, and nothing is written there."""
    position = "SELECT pg_current_wal_insert_lsn() - '0/0'"
    before = cluster.workers[1].value(position)
    with pytest.raises(psycopg.errors.DiskFull) as caught:
        cluster.coordinator.execute(statement)
    assert cluster.workers[1].value(position) - before < MEGABYTE
    return caught.value.diag


@mounts_disks
@pytest.mark.parametrize("table", ["h", "p"])
@pytest.mark.parametrize("small", ["tables", "wal", "both"])
def test_a_shard_is_not_copied_to_where_it_has_no_room(
    cluster: Cluster, small: str, table: str
) -> None:
    """What is on one file system is added up."""
    target = cluster.workers[1]
    tables = target.tablespaces()["hot"]
    wal = target.data / "pg_wal"
    places = {"tables": [tables], "wal": [wal], "both": [tables, wal]}[small]
    size = takes(cluster, table)
    told = {
        "tables": f'It takes up to {size} in tablespace "hot"',
        "wal": f"It takes up to {size} in pg_wal",
        "both": f'It takes up to {size} in tablespace "hot" and {size} in pg_wal',
    }[small]
    needed = cluster.workers[0].value("SELECT pg_size_bytes(%s)", (size,)) * len(places)
    move = f"SELECT strata.move_shard('{table}', 0, 'worker2')"
    with small_disk(target, 200, *places) as disk:
        disk.fill(leave=needed * 9 // 10)
        diag = refuse(cluster, move)
        assert (
            diag.message_primary == f'worker "worker2" has no room for shard 0 of table "{table}"'
        )
        assert diag.message_detail.startswith(f"{told}, and the file system has ")
        assert diag.message_hint == "Free space there, or choose another worker."
        assert place_of(cluster, table) == ["worker1"]
        disk.clear()
        disk.fill(leave=needed * 5 // 4 + MEGABYTE)
        cluster.coordinator.execute(move)
        assert place_of(cluster, table) == ["worker2"]


@mounts_disks
def test_wal_that_checkpoints_take_away_needs_no_room(cluster: Cluster) -> None:
    """A shard of 50 MB: of WAL there is never more than max_wal_size for long."""
    node = cluster.coordinator
    node.execute(
        "CREATE TABLE s (k integer, v text); ALTER TABLE s ALTER v SET STORAGE EXTERNAL;"
        "SELECT strata.create_distributed_table('s', 'k', 1, colocate_with => 'none', storage => 'heap')"
    )
    node.execute("SELECT strata.move_shard('s', 0, 'worker1')")
    for _ in range(7):
        node.execute(f"INSERT INTO s SELECT g, {WIDE}")
    target = cluster.workers[1]
    target.execute("ALTER SYSTEM SET max_wal_size = '32 MB'")
    with small_disk(target, 200, target.data / "pg_wal") as disk:
        disk.fill(leave=30 * MEGABYTE)
        move = "SELECT strata.move_shard('s', 0, 'worker2')"
        assert refuse(cluster, move).message_detail.startswith("It takes up to 32 MB in pg_wal, ")
    target.execute("ALTER SYSTEM RESET max_wal_size")
    target.execute("SELECT pg_reload_conf()")
    node.execute("DROP TABLE s")


@mounts_disks
def test_halves_of_a_shard_need_half_the_room(cluster: Cluster) -> None:
    """Where both go to one worker they need all of it."""
    node = cluster.coordinator
    node.execute(
        "CREATE TABLE s (k integer PRIMARY KEY, v text); ALTER TABLE s ALTER v SET STORAGE EXTERNAL;"
        "SELECT strata.create_distributed_table('s', 'k', 1, colocate_with => 'none', storage => 'heap');"
        "SELECT strata.move_shard('s', 0, 'worker1');"
        f"INSERT INTO s SELECT g, {WIDE}"
    )
    target = cluster.workers[1]
    needed = cluster.workers[0].value("SELECT pg_size_bytes(%s)", (takes(cluster, "s"),))
    with small_disk(target, 200, target.tablespaces()["hot"]) as disk:
        disk.fill(leave=needed * 2 // 3)
        for refused in (
            "SELECT strata.move_shard('s', 0, 'worker2')",
            "SELECT strata.split_shard('s', 0, ARRAY['worker2'])",
        ):
            assert "has no room for shard 0" in str(refuse(cluster, refused).message_primary)
        node.execute("SELECT strata.split_shard('s', 0, ARRAY['worker3', 'worker2'])")
        assert place_of(cluster, "s") == ["worker3", "worker2"]
        assert node.query("SELECT count(*), count(DISTINCT k) FROM s") == [(1000, 1000)]
    node.execute("DROP TABLE s")


def wait_for_the_rebalancer(node: Node) -> list[tuple]:
    status = (
        "SELECT DISTINCT state, error FROM strata.rebalance_status WHERE relation = 'h'::regclass"
    )
    for _ in wait_until("the move has ended"):
        rows = node.query(status)
        if rows[0][0] not in ("planned", "running"):
            return rows
    raise AssertionError("unreachable")


@mounts_disks
def test_the_rebalancer_tells_why_it_does_not_move(cluster: Cluster) -> None:
    node = cluster.coordinator
    target = cluster.workers[1]
    with small_disk(target, 200, target.tablespaces()["hot"]) as disk:
        disk.fill(leave=MEGABYTE)
        node.execute("SELECT strata.move_shard('p', 0, 'worker3')")
        node.execute("SELECT strata.rebalance_start('count', drain => 'worker1')")
        assert wait_for_the_rebalancer(node) == [
            ("failed", 'worker "worker2" has no room for shard 0 of table "h"')
        ]


def test_what_is_larger_than_the_limit_is_split(cluster: Cluster) -> None:
    """strata.move_limit holds for moves by hand and of the rebalancer, and not for splits."""
    node = cluster.coordinator
    move = "SELECT strata.move_shard('h', 0, 'worker2')"
    with node.connect() as session:
        session.execute("SET strata.move_limit = '1 MB'")
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded) as caught:
            session.execute(move)
        diag = caught.value.diag
        assert diag.message_primary == 'shard 0 of table "h" is larger than strata.move_limit'
        assert ' kB on worker "worker1", with those of colocated tables' in diag.message_detail
        assert diag.message_detail.endswith("the limit is 1024 kB.")
        assert "strata.split_shard()" in diag.message_hint
        for limit in ("100 MB", "0"):
            session.execute(f"SET strata.move_limit = '{limit}'")
            session.execute(move)
            session.execute("SELECT strata.move_shard('h', 0, 'worker1')")
    node.execute("ALTER SYSTEM SET strata.move_limit = '1 MB'")
    node.execute("SELECT pg_reload_conf()")
    node.execute("SELECT strata.rebalance_start('count', drain => 'worker1')")
    assert wait_for_the_rebalancer(node) == [
        ("failed", 'shard 0 of table "h" is larger than strata.move_limit')
    ]
    node.execute(
        "CREATE TABLE s (LIKE h);"
        "SELECT strata.create_distributed_table('s', 'k', 1, colocate_with => 'none', storage => 'heap');"
        "INSERT INTO s SELECT * FROM h"
    )
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
        node.execute(
            "SELECT strata.move_shard('s', 0, w.name) FROM strata.worker AS w WHERE w.name NOT IN"
            " (SELECT worker FROM strata.shards WHERE relation = 's'::regclass)"
        )
    node.execute("SELECT strata.split_shard('s', 0)")
    assert len(place_of(cluster, "s")) == 2
    node.execute("DROP TABLE s")
