"""One server is a cluster, too: the worker is a database of the coordinator's own, until there is another one."""

from __future__ import annotations

from tests.cluster import Cluster
from tests.fixtures import new_root

SETUP = """
CREATE TABLE t (k integer PRIMARY KEY, v text);
CREATE TABLE r (k integer PRIMARY KEY, v text);
SELECT strata.create_distributed_table('t', 'k', 8);
SELECT strata.create_reference_table('r');
INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 1000) AS g;
INSERT INTO r VALUES (1, 'one'), (2, 'two');
"""
ROWS = "SELECT count(*), sum(length(t.v)), min(r.v) FROM t JOIN r ON r.k = t.k % 2 + 1"


def test_shards_move_to_a_second_server() -> None:
    with Cluster(new_root(), workers=1) as cluster:
        node = cluster.coordinator
        other = cluster.workers[0]
        node.execute("SELECT strata.remove_worker(%s)", (other.name,))
        node.execute("CREATE DATABASE shards")
        node.execute(
            "SELECT strata.add_worker('here', %s)", (node.conninfo(dbname="shards", user=None),)
        )
        node.execute(SETUP)
        for isolation in ("READ COMMITTED", "REPEATABLE READ"):
            node.execute(
                f"BEGIN ISOLATION LEVEL {isolation};"
                "UPDATE t SET v = v || 'x' WHERE k < 10; UPDATE r SET v = v || 'x';"
                "CREATE TABLE IF NOT EXISTS local AS SELECT * FROM t WHERE k < 10; COMMIT"
            )
        before = node.query(ROWS)
        assert before[0][0] == 1000
        node.execute("SELECT strata.add_worker(%s, %s)", (other.name, other.conninfo(user=None)))
        node.execute("SELECT strata.rebalance_start('count')")
        node.execute("SELECT strata.rebalance_wait()")
        places = "SELECT worker, count(*) FROM strata.shards GROUP BY worker ORDER BY worker"
        assert node.query(places) == [("here", 4), (other.name, 4)]
        assert node.query(ROWS) == before
        node.execute("SELECT strata.remove_worker('here', drain => true)")
        node.execute("DROP DATABASE shards WITH (FORCE)")
        assert node.query(ROWS) == before
        assert node.query("SELECT * FROM strata.check_health() WHERE NOT ok") == []
