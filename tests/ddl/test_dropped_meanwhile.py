"""What a command works on is dropped and made anew meanwhile: errors that say so, no crash, nothing left behind."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

SECONDS = 6

MAKE = """
CREATE TABLE t (k integer PRIMARY KEY, v integer, w text);
CREATE INDEX i ON t (v);
SELECT strata.create_distributed_table('t', 'k', 4);
INSERT INTO t SELECT g, g % 5, 'w' || g FROM generate_series(1, 50) AS g
"""

DROPS = (
    "DROP TABLE IF EXISTS t CASCADE",
    "DROP INDEX CONCURRENTLY IF EXISTS i",
    "DROP INDEX IF EXISTS i",
    "DROP SCHEMA s CASCADE; CREATE SCHEMA s",
    "ALTER TABLE IF EXISTS t RENAME TO n; DROP TABLE IF EXISTS n",
    "ALTER TABLE IF EXISTS t SET SCHEMA public; DROP TABLE IF EXISTS public.t",
    "SELECT strata.undistribute_table('t')",
)

COMMANDS = (
    "REINDEX INDEX i",
    "REINDEX INDEX CONCURRENTLY i",
    "REINDEX TABLE t",
    "REINDEX TABLE CONCURRENTLY t",
    "CREATE INDEX IF NOT EXISTS i ON t (v)",
    "CREATE INDEX CONCURRENTLY IF NOT EXISTS i ON t (v)",
    "CREATE INDEX ON t (w)",
    "ALTER INDEX i RENAME TO j",
    "ALTER INDEX i SET (fillfactor = 60)",
    "CLUSTER t USING t_pkey",
    "ANALYZE t",
    "VACUUM t",
    "VACUUM FULL t",
    "TRUNCATE t",
    "ALTER TABLE t ADD COLUMN x integer DEFAULT 1",
    "ALTER TABLE t ADD CONSTRAINT c CHECK (k > 0)",
    "ALTER TABLE t ALTER COLUMN v TYPE bigint",
    "ALTER TABLE t OWNER TO CURRENT_USER",
    "ALTER TABLE t SET (fillfactor = 70)",
    "COMMENT ON TABLE t IS 'c'",
    "COMMENT ON INDEX i IS 'c'",
    "GRANT SELECT ON t TO PUBLIC",
    "CREATE TRIGGER g BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "CREATE STATISTICS x ON k, v FROM t",
    "CREATE RULE r AS ON DELETE TO t DO ALSO SELECT 1",
    "INSERT INTO t SELECT g, 1, 'x' FROM generate_series(100, 140) AS g ON CONFLICT DO NOTHING",
    "UPDATE t SET v = v + 1",
    "DELETE FROM t WHERE k % 7 = 1",
    "MERGE INTO t USING (SELECT 1 AS k) AS o ON t.k = o.k WHEN MATCHED THEN DO NOTHING",
    "SELECT v, count(*) FROM t GROUP BY v",
    "SELECT * FROM t AS a JOIN t AS b USING (v) ORDER BY 1, 2 LIMIT 5",
    "SELECT * FROM t FOR UPDATE",
    "COPY t TO '/dev/null'",
    "BEGIN; LOCK TABLE t IN EXCLUSIVE MODE NOWAIT; COMMIT",
    "EXPLAIN ANALYZE SELECT * FROM t",
    "SELECT pg_total_relation_size('t')",
    "SELECT * FROM strata.shards",
    "SELECT strata.alter_distributed_table('t', storage => 'columnar')",
    "SELECT strata.rebalance_start()",
    "SELECT * FROM strata.check_health()",
)


# PostgreSQL's own internal errors of commands beside each other
CORES_OWN = ("tuple concurrently", "cache lookup failed")


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_dropped_meanwhile") as made:
        yield made


def play(pair: Pair, seed: int, statements: tuple[str, ...], until: float) -> Counter:
    """Run statements at random; how often each SQLSTATE came."""
    rng = random.Random(seed)
    seen: Counter = Counter()
    with pair.cluster.coordinator.connect() as session:
        session.execute(
            "CREATE SCHEMA IF NOT EXISTS s; SET search_path = s; SET lock_timeout = '2s'"
        )
        while time.monotonic() < until:
            statement = rng.choice(statements)
            try:
                session.execute(statement)
                seen["00000"] += 1
            except psycopg.Error as error:
                if error.sqlstate is None or (
                    error.sqlstate[:2] in ("XX", "57") and not str(error).startswith(CORES_OWN)
                ):
                    raise AssertionError(f"{statement}: {error}") from error
                seen[error.sqlstate] += 1
    return seen


def test_what_is_worked_on_is_dropped_meanwhile(pair: Pair) -> None:
    until = time.monotonic() + SECONDS
    pair.cluster.coordinator.execute("DROP SCHEMA IF EXISTS s CASCADE; CREATE SCHEMA s")
    with ThreadPoolExecutor() as pool:
        running = [pool.submit(play, pair, n, COMMANDS, until) for n in range(4)]
        running.append(pool.submit(play, pair, 10, (*DROPS, *(MAKE,) * len(DROPS)), until))
        seen = sum((each.result() for each in running), Counter())
    assert seen["00000"] > 10, seen
    pair.cluster.coordinator.execute("DROP SCHEMA IF EXISTS s CASCADE")
