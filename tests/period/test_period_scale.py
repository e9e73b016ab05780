"""Many leaves: 32 shards with 365 days on two workers."""

from __future__ import annotations

import statistics
import time

import pytest

from tests.assert_same import assert_same
from tests.cluster import Cluster
from tests.period.test_periods import leaves, on_both, rows_of
from tests.waiting import wait_until

ROWS = """
    INSERT INTO t SELECT i, timestamptz '2025-01-01 00:00:00+00' + i % 365 * interval '1 day', i
      FROM generate_series(1, 36500) AS i
"""


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_year_of_days_in_32_shards_works(cluster: Cluster, schema: str):
    node = cluster.coordinator
    on_both(cluster, "CREATE TABLE t (k int, at timestamptz NOT NULL, v int)")
    on_both(cluster, ROWS)
    notices: list[str] = []
    node.connection.add_notice_handler(
        lambda notice: notices.append(f"{notice.message_primary} {notice.message_hint}")
    )
    node.query(
        "SELECT create_distributed_table('t', 'k', 32, partition_by => 'at',"
        " partition_interval => '1 day')"
    )
    (warning,) = notices
    assert "leaves on a worker" in warning
    assert "longer partition_interval, or fewer shards" in warning
    assert len(leaves(cluster, schema, "t")) >= 32 * 366
    assert rows_of(cluster, schema, "_default$") == 0
    assert_same(cluster, "SELECT count(*), sum(v) FROM t WHERE at < '2025-01-31'")
    assert_same(cluster, "SELECT count(*), sum(v) FROM t")
    assert_same(cluster, "SELECT * FROM t WHERE k = 77")


@pytest.mark.slow
def test_planning_here_does_not_depend_on_the_number_of_leaves(cluster: Cluster, schema: str):
    node = cluster.coordinator
    times = {}
    for name, length in (("few", "1 year"), ("many", "1 day")):
        node.execute(f"CREATE TABLE {name} (k int, at timestamptz NOT NULL, v int)")
        node.execute(ROWS.replace(" t ", f" {name} "))
        node.query(
            f"SELECT create_distributed_table('{name}', 'k', 4, partition_by => 'at',"
            f" partition_interval => '{length}')"
        )
        node.execute(f"PREPARE p_{name} AS SELECT sum(v) FROM {name} WHERE at < '2025-01-02'")
        measured = []
        for _ in range(30):
            begin = time.monotonic()
            node.query(f"EXPLAIN (COSTS OFF) SELECT sum(v) FROM {name} WHERE at < '2025-01-02'")
            measured.append(time.monotonic() - begin)
        times[name] = statistics.median(measured)
    assert times["many"] < 2 * times["few"] + 0.002


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_maintenance_goes_on(make_cluster):
    """kill -9 of the coordinator amid moves: no row is lost or doubled."""
    cluster = make_cluster(workers=2, durable=True)
    node = cluster.coordinator
    node.execute("ALTER SYSTEM SET strata.period_interval = '100ms'")
    node.reload()
    node.execute("CREATE TABLE t (k int, at timestamptz NOT NULL, v int)")
    node.query(
        "SELECT strata.create_distributed_table('t', 'k', 4, partition_by => 'at',"
        " partition_interval => '1 day')"
    )
    node.execute(
        "INSERT INTO t SELECT i, timestamptz '2025-01-01 00:00:00+00' + i % 40 * interval '1 day', 1"
        " FROM generate_series(1, 8000) AS i"
    )
    for pause in (0.3, 0.9, 0.5, 1.3, 0.7):
        time.sleep(pause)  # wherever the maintenance is by then
        node.kill()
        node.start()
        assert node.query("SELECT count(*), sum(v), count(DISTINCT k) FROM t") == [
            (8000, 8000, 8000)
        ]
    for _ in wait_until("the default partitions are empty", timeout=300):
        if rows_of(cluster, "public", "_default$") == 0:
            break
    assert node.query("SELECT count(*), sum(v), count(DISTINCT k) FROM t") == [(8000, 8000, 8000)]
    assert len(leaves(cluster, "public", "t")) == 4 * (40 + 6)
