"""Rows older than the cut-off do not exist, though their leaves are still there."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster, Node
from tests.period.test_periods import distribute, on_both
from tests.waiting import wait_until

ROLE = "retention_reader"


@pytest.fixture
def node(cluster: Cluster, schema: str) -> Iterator[Node]:
    """t has rows of 0 to 30 days ago, those before 10 days are cut off, and perhaps not dropped; u has no periods."""
    node = cluster.coordinator
    on_both(cluster, "CREATE TABLE t (k int, at timestamptz NOT NULL, v int, PRIMARY KEY (k, at))")
    distribute(
        cluster,
        "t",
        "partition_by => 'at', partition_interval => '1 day', retention => '10 days'",
    )
    node.execute("ALTER SYSTEM SET strata.period_interval = '200ms'")
    node.reload()
    for _ in wait_until("the cut-off is published", timeout=60):
        if node.value("SELECT cutoff FROM strata.distributed_table WHERE relation = 't'::regclass"):
            break
    node.execute("ALTER SYSTEM SET strata.period_interval = '1h'")
    node.reload()
    node.execute(
        "INSERT INTO t SELECT i, date_trunc('day', now(), 'UTC') - i * interval '1 day', i"
        " FROM generate_series(0, 30) AS i;"
        "CREATE TABLE u (k int, w int);"
        "SELECT create_distributed_table('u', 'k', 4);"
        "INSERT INTO u SELECT i, i FROM generate_series(0, 40) AS i"
    )
    yield node
    node.execute("ALTER SYSTEM RESET strata.period_interval")
    node.reload()


def test_on_conflict_updates_no_expired_row(node: Node):
    def insert(days: int) -> str:
        return (
            f"INSERT INTO t SELECT 50, date_trunc('day', now(), 'UTC') - interval '{days} days', 0"
            " ON CONFLICT (k, at) DO UPDATE SET "
        )

    with node.connect() as session, session.transaction():  # of rows nobody else can drop
        session.execute(f"SET search_path = {node.value('SHOW search_path')}")
        session.execute(insert(20) + "v = 1")
        assert session.execute(insert(20) + "at = now() RETURNING k").fetchall() == []
        assert session.execute(insert(20) + "v = -1 WHERE t.v = 0 RETURNING k").fetchall() == []
        session.execute(insert(3) + "v = 1")
        assert session.execute(insert(3) + "v = -1 WHERE t.v = 0 RETURNING v").fetchall() == [(-1,)]
        assert session.execute(insert(3) + "v = -2 WHERE t.v = 0 RETURNING v").fetchall() == []
        assert session.execute("SELECT v FROM t WHERE k = 50").fetchall() == [(-1,)]


def test_an_expired_row_does_not_match_in_merge(node: Node):
    node.execute(
        "MERGE INTO t USING u ON t.k = u.k WHEN MATCHED THEN UPDATE SET v = -1"
        " WHEN NOT MATCHED THEN INSERT VALUES (u.k, now(), -2)"
    )
    assert node.query("SELECT v, count(*) FROM t GROUP BY v ORDER BY v") == [(-2, 30), (-1, 11)]


def test_an_expired_row_is_no_source_of_merge(node: Node):
    node.execute(
        "MERGE INTO u USING t ON t.k = u.k WHEN MATCHED THEN UPDATE SET w = -1"
        " WHEN NOT MATCHED THEN INSERT VALUES (t.k, -2)"
    )
    assert node.query("SELECT w, count(*) FROM u WHERE w < 0 GROUP BY w") == [(-1, 11)]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE u SET w = 7 FROM (SELECT x.k FROM t FULL JOIN u AS x ON t.k = x.k) AS y WHERE u.k = y.k",
        "DELETE FROM u USING t FULL JOIN u AS x ON t.k = x.k WHERE u.k = x.k",
        "MERGE INTO u USING (SELECT x.k FROM t FULL JOIN u AS x ON t.k = x.k) AS y ON u.k = y.k"
        " WHEN MATCHED THEN DELETE",
    ],
)
def test_a_full_join_in_what_is_sent_as_text_is_refused(node: Node, statement: str):
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="full join of a table with"):
        node.execute(statement)


def test_a_full_join_in_what_is_planned_is_not(node: Node):
    """Only the side of t has rows that nothing matches: those that are not cut off."""
    join = "SELECT t.k, u.k AS other FROM t FULL JOIN u ON t.k = u.k AND u.k > 5"
    node.execute(f"CREATE TABLE made AS {join}")
    assert node.query("SELECT count(k), count(other), count(*) FROM made") == [(11, 41, 47)]
    node.execute(f"INSERT INTO u SELECT 1000, 1 FROM ({join}) AS j")
    assert node.value("SELECT count(*) FROM u WHERE k = 1000") == 47
    node.execute("CREATE TABLE local (k int)")
    node.execute(
        f"INSERT INTO local VALUES (3); DELETE FROM local USING ({join}) AS j WHERE j.k = 3"
    )
    assert node.value("SELECT count(*) FROM local") == 0


def test_reading_needs_the_privilege_for_the_period_column(
    node: Node, cluster: Cluster, schema: str
):
    cluster.create_role(ROLE)
    node.execute(
        f"GRANT USAGE ON SCHEMA {schema} TO {ROLE}; GRANT SELECT (k, v), UPDATE (v), DELETE ON t TO {ROLE}"
    )
    try:
        with node.connect(user=ROLE) as session:
            session.execute(f"SET search_path = {schema}")
            for statement in ("SELECT count(v) FROM t", "UPDATE t SET v = 0", "DELETE FROM t"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege) as denied:
                    session.execute(statement)
                assert denied.value.diag.context is None, "a worker was asked"
            node.execute(f"GRANT SELECT (at) ON t TO {ROLE}")
            assert session.execute("SELECT count(v) FROM t").fetchone() == (11,)
            assert session.execute("UPDATE t SET v = 0").rowcount == 11
            assert session.execute("DELETE FROM t").rowcount == 11
    finally:
        node.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")


def test_the_cut_off_goes_on_with_time(cluster: Cluster, schema: str):
    """While the process that publishes it goes on, too."""
    node = cluster.coordinator
    node.execute("ALTER SYSTEM SET strata.period_interval = '200ms'")
    node.reload()
    try:
        node.execute("CREATE TABLE p (k int, at timestamptz NOT NULL)")
        node.query(
            "SELECT create_distributed_table('p', 'k', shard_count => 1, partition_by => 'at',"
            " partition_interval => '2 seconds', retention => '4 seconds')"
        )
        seen = set()
        for _ in wait_until("the cut-off has changed twice", timeout=60):
            seen |= {
                node.value(
                    "SELECT cutoff FROM strata.distributed_table WHERE relation = 'p'::regclass"
                )
            }
            if len(seen - {None}) >= 3:
                break
    finally:
        node.execute("ALTER SYSTEM RESET strata.period_interval")
        node.reload()
