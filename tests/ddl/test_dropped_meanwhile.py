"""What commands work on is dropped and made anew meanwhile, and sessions are cancelled and ended.

Errors say so; no server crashes, no error is an internal one that PostgreSQL does not have, and afterwards the cluster
is well.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.cluster import Cluster, Node
from tests.waiting import wait_until

# {} is any of the tables
MAKE = {
    "t": """
        CREATE TABLE t (k integer PRIMARY KEY, v integer, w text); CREATE INDEX i ON t (v);
        SELECT strata.create_distributed_table('t', 'k', 4);
        INSERT INTO t SELECT g, g % 5, 'w' || g FROM generate_series(1, 60) AS g""",
    "u": """
        CREATE TABLE u (k integer REFERENCES t, v integer, x numeric DEFAULT 3, s serial);
        SELECT strata.create_distributed_table('u', 'k', colocate_with => 't', storage => 'columnar');
        INSERT INTO u SELECT g, g % 7 FROM generate_series(1, 60) AS g""",
    "h": """
        CREATE TABLE h (k integer, v integer, j jsonb);
        SELECT strata.create_distributed_table('h', 'k', 2, storage => 'heap');
        INSERT INTO h SELECT g, g % 5, '{}' FROM generate_series(1, 60) AS g;
        CREATE VIEW o AS SELECT k, v FROM h""",
    "p": """
        CREATE TABLE p (k integer, at timestamptz NOT NULL, v integer);
        SELECT strata.create_distributed_table('p', 'k', 4, partition_by => 'at', partition_interval => '1 day');
        INSERT INTO p SELECT g, now() - g * interval '2 hours', g FROM generate_series(1, 60) AS g""",
    "r": """
        CREATE TABLE r (v integer PRIMARY KEY, k integer); SELECT strata.create_reference_table('r');
        INSERT INTO r SELECT g, g FROM generate_series(0, 9) AS g""",
    "l": "CREATE TABLE l (k integer, v integer); INSERT INTO l SELECT g, g % 5 FROM generate_series(1, 30) AS g",
}  # fmt: skip

DROPS = (
    "DROP TABLE IF EXISTS {} CASCADE",
    "DROP INDEX CONCURRENTLY IF EXISTS i",
    "DROP INDEX IF EXISTS i",
    "SELECT strata.undistribute_table('{}')",
    "ALTER TABLE IF EXISTS {} RENAME TO n; DROP TABLE IF EXISTS n CASCADE",
    "ALTER TABLE {} DROP COLUMN v CASCADE",
    "BEGIN; DROP TABLE {} CASCADE; ROLLBACK",
    "DROP OWNED BY comer",
)

COMMANDS = (
    "REINDEX INDEX i",
    "REINDEX INDEX CONCURRENTLY i",
    "REINDEX TABLE {}",
    "REINDEX TABLE CONCURRENTLY {}",
    "CREATE INDEX IF NOT EXISTS i ON {} (v)",
    "CREATE INDEX CONCURRENTLY IF NOT EXISTS i ON {} (v)",
    "ALTER INDEX i RENAME TO j",
    "ALTER INDEX i SET (fillfactor = 60)",
    "CLUSTER t USING t_pkey",
    "ANALYZE {}",
    "VACUUM {}",
    "VACUUM FULL {}",
    "TRUNCATE {} CASCADE",
    "ALTER TABLE {} ADD COLUMN x integer DEFAULT 1",
    "ALTER TABLE {} ADD CONSTRAINT c CHECK (k > -5)",
    "ALTER TABLE {} ALTER COLUMN v TYPE bigint",
    "ALTER TABLE {} ALTER v SET NOT NULL",
    "ALTER TABLE {} OWNER TO comer",
    "ALTER TABLE {} OWNER TO CURRENT_USER",
    "ALTER TABLE {} SET SCHEMA public; ALTER TABLE public.{} SET SCHEMA s",
    "ALTER TABLE u ADD FOREIGN KEY (v) REFERENCES r",
    "ALTER TABLE {} ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY q ON {} USING (k > 3)",
    "COMMENT ON TABLE {} IS 'c'",
    "GRANT ALL ON {} TO comer",
    "CREATE TRIGGER g BEFORE UPDATE ON {} FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "CREATE STATISTICS ON k, v FROM {}",
    "CREATE TYPE e AS ENUM ('a'); ALTER TABLE {} ADD COLUMN e e",
    "DROP TYPE e CASCADE",
    "INSERT INTO {} (k, v) SELECT k + 500, v FROM {} ON CONFLICT DO NOTHING",
    "UPDATE {} SET v = v + 1 WHERE k % 3 = 0",
    "UPDATE {} SET k = k + 1000 WHERE k = 5",
    "DELETE FROM {} WHERE k % 7 = 1",
    "MERGE INTO {} AS a USING {} AS b ON a.k = b.k WHEN MATCHED THEN UPDATE SET v = 1",
    "SELECT v, count(*) FROM {} GROUP BY v",
    "SELECT * FROM {} AS a JOIN {} AS b USING (v) ORDER BY 1, 2 LIMIT 5",
    "SELECT (SELECT max(v) FROM {} AS b WHERE b.k = a.k) FROM {} AS a",
    "SELECT * FROM {} FOR UPDATE",
    "SELECT * FROM o",
    "COPY {} TO '/dev/null'",
    "BEGIN; LOCK TABLE {} IN EXCLUSIVE MODE NOWAIT; COMMIT",
    "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1",
    "DO $$ DECLARE r record; BEGIN"
    " FOR r IN SELECT * FROM {} LOOP UPDATE {} SET v = 0 WHERE k = r.k; END LOOP; END $$",
    "EXPLAIN ANALYZE SELECT * FROM {}",
    "SELECT pg_total_relation_size('{}')",
    "SELECT * FROM strata.shards",
    "SELECT * FROM strata.partitions",
    "SELECT strata.alter_distributed_table('{}', storage => 'columnar')",
    "SELECT strata.alter_distributed_table('{}', shard_count => 3)",
    "SELECT strata.move_shard('{}', 0, 'worker1')",
    "SELECT strata.move_shard('{}', 0, 'worker2')",
    "SELECT * FROM strata.check_health()",
)

# PostgreSQL's own internal errors of commands beside each other
CORES_OWN = ("tuple concurrently", "cache lookup failed")

END_SOME = """
SELECT {}(pid) FROM pg_stat_activity
 WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND state = 'active' ORDER BY random() LIMIT 1
"""


def fill(statement: str, rng: random.Random) -> str:
    while "{}" in statement:
        statement = statement.replace("{}", rng.choice(list(MAKE)), 1)
    return statement


def is_ours(error: psycopg.Error) -> bool:
    """An internal error that is no other's."""
    return (error.sqlstate or "").startswith("XX") and not str(error).startswith(CORES_OWN)


def play(node: Node, choose: Callable[[random.Random], str], seed: int, until: float) -> Counter:
    """Run statements that are chosen at random; how often each SQLSTATE came."""
    rng = random.Random(seed)
    seen: Counter = Counter()
    session = None
    while time.monotonic() < until:
        if session is None or session.closed:
            session = node.connect()
            session.prepare_threshold = None
            session.execute(
                "SET search_path = s; SET lock_timeout = '1s'; SET statement_timeout = '8s'"
            )
        statement = choose(rng)
        try:
            session.execute(statement)
            seen["00000"] += 1
            if rng.random() < 0.3:
                session.execute("ROLLBACK")
        except psycopg.Error as error:
            if is_ours(error):
                raise AssertionError(f"{statement}: {error}") from error
            seen[error.sqlstate] += 1
            if not session.closed and rng.random() < 0.6:
                session.execute("ROLLBACK")
    if session is not None:
        session.close()
    return seen


def end_some(cluster: Cluster, until: float) -> Counter:
    """Cancel and end statements on all nodes."""
    rng = random.Random(1)
    while time.monotonic() < until:
        time.sleep(rng.random() / 4)
        how = rng.choice(("pg_cancel_backend", "pg_cancel_backend", "pg_terminate_backend"))
        with rng.choice((cluster.coordinator, *cluster.workers)).connect() as session:
            session.execute(END_SOME.format(how))
    return Counter()


def choose_command(rng: random.Random) -> str:
    return fill(rng.choice(COMMANDS), rng)


def choose_drop(rng: random.Random) -> str:
    if rng.random() < 0.7:
        return rng.choice(list(MAKE.values()))
    return fill(rng.choice(DROPS), rng)


def run(cluster: Cluster, seconds: float, sessions: int, seed: int, ends: bool) -> None:
    node = cluster.coordinator
    node.execute("CREATE ROLE comer; CREATE SCHEMA s; GRANT ALL ON SCHEMA s, public TO comer")
    until = time.monotonic() + seconds
    with ThreadPoolExecutor() as pool:
        running = [
            pool.submit(play, node, choose_command, seed + number, until)
            for number in range(sessions)
        ]
        running += [pool.submit(play, node, choose_drop, seed + 50 + n, until) for n in range(2)]
        if ends:
            running.append(pool.submit(end_some, cluster, until))
        seen = sum((each.result() for each in running), Counter())
    assert seen["00000"] > 10 * seconds, seen
    faults = []
    with contextlib.suppress(TimeoutError):
        for _ in wait_until("the cluster is well"):
            faults = node.query("SELECT * FROM strata.check_health() WHERE NOT ok")
            if faults == []:
                break
    assert faults == []
    node.execute("DROP SCHEMA s CASCADE; DROP OWNED BY comer; DROP ROLE comer")


@pytest.mark.parametrize("ends", [False, True], ids=["left alone", "ended"])
def test_what_is_worked_on_is_dropped_meanwhile(
    make_cluster: Callable[..., Cluster], ends: bool
) -> None:
    run(make_cluster(workers=2, assertions=True), seconds=8, sessions=4, seed=1, ends=ends)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(100, 400, 100))
def test_ten_minutes_of_it(make_cluster: Callable[..., Cluster], seed: int) -> None:
    run(make_cluster(workers=2, assertions=True), seconds=600, sessions=6, seed=seed, ends=True)
