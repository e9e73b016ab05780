"""CLUSTER of distributed and reference tables: marked here as in PostgreSQL, and in order in each leaf on the workers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.cluster import Cluster, Node, server_major
from tests.pair import Pair, open_pair
from tests.waiting import wait_until

STORAGES = ["heap", "columnar"]
MARKED = """
SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class AS c ON c.oid = indexrelid
 WHERE indisclustered AND relnamespace = 'test_cluster'::regnamespace ORDER BY 1
"""


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_cluster") as made:
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    """t distributed and r a reference table, both with rows in no order, and with dead ones."""
    data.execute(
        "CREATE TABLE t (k integer PRIMARY KEY, v integer, w text); CREATE TABLE r (k integer PRIMARY KEY, v integer, w text);"
        "CREATE INDEX by_v ON t (v, k); CREATE INDEX rv ON r (v, k)"
    )
    for table in ("t", "r"):
        data.execute(
            f"INSERT INTO {table} SELECT g, g * 7919 % 3001, 'w' || g FROM generate_series(1, 3000) AS g;"
            f"DELETE FROM {table} WHERE k % 10 = 0"
        )
    yield data
    data.reset()
    data.execute("RESET ROLE; RESET statement_timeout")
    data.execute("DROP SCHEMA test_cluster CASCADE; CREATE SCHEMA test_cluster")


def place(pair: Pair, storage: str) -> None:
    pair.distribute("t", "k", shards=4, storage=storage)
    pair.reference("r", storage)


def leaves(worker: Node, table: str) -> list[str]:
    found = worker.query(
        "SELECT coalesce(p.relid, t)::regclass::text FROM CAST(%s AS regclass) AS t"
        " LEFT JOIN pg_partition_tree(t) AS p ON true WHERE coalesce(p.isleaf, true)",
        (f"test_cluster.{table}",),
    )
    worker.disconnect()
    return [leaf for (leaf,) in found]


def is_in_order(pair: Pair, table: str, key: str) -> bool:
    """The rows of each leaf, as they are stored, on all workers."""
    for worker in pair.cluster.workers:
        for leaf in leaves(worker, table):
            rows = worker.query(f"SELECT {key} FROM {leaf}")
            if rows != worker.query(f"SELECT {key} FROM {leaf} ORDER BY {key}"):
                return False
        worker.disconnect()
    return True


def check(pair: Pair) -> None:
    pair.same(MARKED)
    for table in ("t", "r"):
        pair.same(f"SELECT * FROM {table}", ordered=False)
        pair.same(f"SELECT count(*), sum(v) FROM {table} WHERE k = 77 OR v < 100")


@pytest.mark.parametrize("storage", STORAGES)
def test_rows_are_in_order_in_each_leaf(pair: Pair, storage: str) -> None:
    place(pair, storage)
    assert not is_in_order(pair, "t", "v, k")
    for table, index in (("t", "by_v"), ("r", "rv")):
        pair.same(f"CLUSTER {table} USING {index}")
        assert is_in_order(pair, table, "v, k")
        check(pair)
        pair.execute(f"UPDATE {table} SET v = 3001 - v")
        pair.same(f"CLUSTER {table}")
        assert is_in_order(pair, table, "v, k")
        check(pair)
        pair.same(f"CLUSTER VERBOSE {table} USING {table}_pkey")
        assert is_in_order(pair, table, "k")
        pair.same(f"CLUSTER (VERBOSE off) {table}")
        check(pair)
    assert pair.rows("SELECT detail FROM strata.check_health() WHERE NOT ok") == []


@pytest.mark.parametrize("storage", STORAGES)
def test_other_kinds_of_indexes(pair: Pair, storage: str) -> None:
    """Expressions, of functions that look for others by the search_path, too, as they may before 17; and what is not a B-tree."""
    inner = "inner_f" if server_major() < 17 else "test_cluster.inner_f"
    pair.execute(
        f"CREATE FUNCTION {inner} (integer) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT -$1';"
        f"CREATE FUNCTION f (integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN {inner}($1); END'"
    )
    place(pair, storage)
    pair.execute("CREATE INDEX e ON t (f(v), k); CREATE INDEX g ON t USING gist (point(v, k))")
    pair.execute('CREATE INDEX "i""x; DROP" ON t (w DESC)')
    pair.same("CLUSTER t USING e")
    assert is_in_order(pair, "t", "-v, k")
    pair.same("CLUSTER t USING g")
    pair.same('CLUSTER test_cluster.t USING "i""x; DROP"')
    assert is_in_order(pair, "t", "w DESC")
    check(pair)


ERRORS = (
    "CLUSTER t",
    "CLUSTER r",
    "CLUSTER t USING rv",
    "CLUSTER t USING none",
    "CLUSTER none USING by_v",
    "CLUSTER t USING partial",
    "CLUSTER t USING hashed",
    "CLUSTER (nonsense) t",
    "CLUSTER by_v",
    "ALTER TABLE t CLUSTER ON rv",
    "ALTER TABLE t CLUSTER ON none",
    "ALTER TABLE t CLUSTER ON partial",
    "ALTER TABLE t CLUSTER ON hashed",
)


def test_errors_are_postgresqls(pair: Pair) -> None:
    pair.execute(
        "CREATE INDEX partial ON t (v) WHERE k > 3; CREATE INDEX hashed ON t USING hash (v)"
    )
    place(pair, "columnar")
    for statement in ERRORS:
        pair.same(statement)
    check(pair)
    with pytest.raises(
        psycopg.errors.UndefinedObject, match="there is no previously clustered index"
    ):
        pair.ours.execute("CLUSTER t")


def test_an_index_that_is_not_finished_is_refused(pair: Pair) -> None:
    place(pair, "columnar")
    pair.ours.execute("INSERT INTO t (k, v) VALUES (-1, 1), (-2, 1)")
    with pytest.raises(psycopg.errors.UndefinedFunction):
        pair.ours.execute("CREATE INDEX CONCURRENTLY u ON t ((k + 'x'::text))")
    worker = pair.cluster.workers[1]
    worker.execute("CREATE TABLE test_cluster.u ()")
    with pytest.raises(psycopg.errors.DuplicateTable):
        pair.ours.execute("CREATE INDEX CONCURRENTLY u ON t (v)")
    for statement in ("CLUSTER t USING u", "ALTER TABLE t CLUSTER ON u"):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="invalid index"):
            pair.ours.execute(statement)
    pair.ours.execute("CLUSTER t USING by_v; DELETE FROM t WHERE k < 0")
    assert pair.rows("SELECT indisvalid FROM pg_index WHERE indexrelid = 'u'::regclass") == [
        (False,)
    ]
    worker.execute("DROP TABLE test_cluster.u")


def test_the_mark_is_kept_as_postgresql_keeps_it(pair: Pair) -> None:
    pair.execute("ALTER TABLE t CLUSTER ON by_v; ALTER TABLE r CLUSTER ON rv")
    place(pair, "heap")
    pair.same(MARKED)
    pair.same("ALTER TABLE t CLUSTER ON t_pkey")
    pair.same(MARKED)
    pair.same("ALTER TABLE t ALTER v TYPE bigint")
    pair.same("ALTER TABLE t CLUSTER ON by_v, ADD COLUMN x integer")
    pair.same("ALTER TABLE t ALTER v TYPE numeric")
    pair.same(MARKED)
    pair.ours.execute("SELECT strata.undistribute_table('t')")
    pair.same(MARKED)
    pair.same("CLUSTER t")
    pair.distribute("t", "k")
    pair.same(MARKED)
    pair.same("CLUSTER t")
    assert is_in_order(pair, "t", "v, k")
    for table in ("t", "r"):
        pair.same(f"ALTER TABLE {table} SET WITHOUT CLUSTER")
        pair.same(MARKED)
        pair.same(f"CLUSTER {table}")
    pair.same("ALTER TABLE t CLUSTER ON by_v")
    pair.same("DROP INDEX by_v")
    pair.same("CLUSTER t")


@pytest.mark.parametrize("storage", STORAGES)
def test_it_is_part_of_a_transaction(pair: Pair, storage: str) -> None:
    """With changes before and after it, rolled back whole or in part."""
    place(pair, storage)
    for end in ("ROLLBACK", "COMMIT"):
        with pair.transaction(end):
            pair.same(
                "INSERT INTO t SELECT g, g % 5, 'new' FROM generate_series(10000, 10050) AS g"
            )
            pair.same("UPDATE t SET v = -v WHERE k % 3 = 0")
            pair.same("CLUSTER t USING by_v")
            check(pair)
            pair.same("DELETE FROM t WHERE k % 7 = 0")
            pair.execute("SAVEPOINT s")
            pair.same("CLUSTER t USING t_pkey")
            pair.execute("ROLLBACK TO s")
            check(pair)
            pair.same("CLUSTER r USING rv")
        check(pair)
    assert is_in_order(pair, "t", "v, k")
    with pair.ours.transaction():  # PostgreSQL refuses that; here the rows are on their way
        pair.ours.execute(
            "DECLARE c CURSOR FOR SELECT k FROM t; FETCH 10 FROM c; CLUSTER t USING by_v"
        )
        rest = pair.ours.execute("FETCH ALL FROM c").fetchall()
    assert len(rest) == pair.rows("SELECT count(*) - 10 FROM t")[0][0]
    with pair.transaction():
        pair.same("CLUSTER")
    pair.execute("CREATE PROCEDURE p () LANGUAGE plpgsql AS 'BEGIN CLUSTER t USING t_pkey; END'")
    pair.same("CALL p()")
    assert is_in_order(pair, "t", "k")
    check(pair)


@pytest.mark.parametrize("storage", STORAGES)
def test_without_a_table_it_takes_all_that_were_clustered(pair: Pair, storage: str) -> None:
    pair.execute(
        "CREATE TABLE plain (a integer); CREATE INDEX pa ON plain (a); ALTER TABLE plain CLUSTER ON pa"
    )
    place(pair, storage)
    pair.execute("ALTER TABLE t CLUSTER ON by_v; ALTER TABLE r CLUSTER ON rv")
    pair.same("CLUSTER")
    assert is_in_order(pair, "t", "v, k")
    assert is_in_order(pair, "r", "v, k")
    check(pair)
    pair.execute("ALTER TABLE r CLUSTER ON r_pkey; ALTER TABLE t SET WITHOUT CLUSTER")
    pair.execute("UPDATE t SET v = 3001 - v")
    pair.same("CLUSTER VERBOSE")
    assert is_in_order(pair, "r", "k")
    assert not is_in_order(pair, "t", "v, k")


def test_who_may_cluster(pair: Pair) -> None:
    """Owners, also of tables whose leaves a worker's superuser made; and since 17 who was granted MAINTAIN."""
    place(pair, "columnar")
    pair.cluster.create_role("cluster_user")
    pair.execute(
        "GRANT USAGE, CREATE ON SCHEMA test_cluster TO cluster_user; ALTER TABLE t CLUSTER ON by_v"
    )
    pair.execute(
        "GRANT SELECT, INSERT, UPDATE, DELETE ON t, r TO cluster_user; SET ROLE cluster_user"
    )
    try:
        for statement in (
            "CLUSTER t",
            "CLUSTER t USING by_v",
            "CLUSTER r USING rv",
            "ALTER TABLE t CLUSTER ON by_v",
        ):
            pair.same(statement)
        pair.same("CLUSTER")
        assert not is_in_order(pair, "t", "v, k")
        if server_major() >= 17:
            pair.execute("RESET ROLE; GRANT MAINTAIN ON t TO cluster_user; SET ROLE cluster_user")
            pair.same("CLUSTER t")
            assert is_in_order(pair, "t", "v, k")
            pair.execute("RESET ROLE; UPDATE t SET v = 3001 - v; SET ROLE cluster_user")
            pair.same("ALTER TABLE t CLUSTER ON by_v")
            pair.same("CLUSTER")
            assert is_in_order(pair, "t", "v, k")
        pair.execute(
            "RESET ROLE; ALTER TABLE t OWNER TO cluster_user; UPDATE t SET v = v - 1; SET ROLE cluster_user"
        )
        pair.execute(
            "ALTER TABLE t ENABLE ROW LEVEL SECURITY; ALTER TABLE t FORCE ROW LEVEL SECURITY"
        )
        pair.same("CLUSTER t")
        assert is_in_order(pair, "t", "v, k")
        pair.execute("ALTER TABLE t DISABLE ROW LEVEL SECURITY")
        check_rows = "SELECT count(*), sum(v) FROM t"
        pair.same(check_rows)
        pair.execute("UPDATE t SET v = 3001 - v")
        pair.same("CLUSTER")
        assert is_in_order(pair, "t", "v, k")
    finally:
        pair.execute("RESET ROLE; REASSIGN OWNED BY cluster_user TO CURRENT_USER")
        pair.execute("DROP OWNED BY cluster_user; DROP ROLE cluster_user")


@pytest.mark.parametrize("storage", STORAGES)
def test_old_snapshots_see_what_they_saw(pair: Pair, storage: str) -> None:
    """A snapshot from before; and a statement that waits for CLUSTER."""
    place(pair, storage)
    query = "SELECT count(*), sum(v) FROM test_cluster.t"
    before = pair.rows(query)
    with pair.cluster.coordinator.connect() as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM test_cluster.r")
        pair.execute("DELETE FROM t WHERE k % 3 = 0")
        pair.same("CLUSTER t USING by_v")
        assert reader.execute(query).fetchall() == before
        assert pair.rows(query) != before
        reader.execute("COMMIT")
        assert reader.execute(query).fetchall() == pair.rows(query)
    check(pair)
    with pair.cluster.coordinator.connect() as reader, ThreadPoolExecutor() as pool:
        pair.ours.execute("BEGIN; CLUSTER t USING t_pkey")
        reading = pool.submit(reader.execute, query)
        for _ in wait_until("the reader waits"):
            waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = %s"
            if pair.rows(waits, (reader.info.backend_pid,)) == [(1,)]:
                break
        pair.ours.execute("COMMIT")
        assert reading.result().fetchall() == pair.rows(query)


@pytest.mark.parametrize("end", ["cancel", "terminate"])
def test_a_command_that_waits_can_be_ended(pair: Pair, end: str) -> None:
    """For a lock on a worker, where somebody reads the leaf by hand: nothing has happened, and no lock is left."""
    place(pair, "columnar")
    worker = pair.cluster.workers[1]
    with (
        pair.cluster.coordinator.connect() as session,
        worker.connect() as reader,
        ThreadPoolExecutor() as pool,
    ):
        pid = session.info.backend_pid
        reader.execute(f"BEGIN; SELECT count(*) FROM {leaves(worker, 't')[0]}")
        waiting = pool.submit(session.execute, "CLUSTER test_cluster.t USING by_v")
        for _ in wait_until("CLUSTER waits on the worker"):
            if worker.value("SELECT count(*) FROM pg_locks WHERE NOT granted") == 1:
                break
        assert pair.rows(f"SELECT pg_{end}_backend({pid})") == [(True,)]
        with pytest.raises((psycopg.errors.QueryCanceled, psycopg.OperationalError)):
            waiting.result()
        for _ in wait_until("nobody waits on the worker"):
            if worker.value("SELECT count(*) FROM pg_locks WHERE NOT granted") == 0:
                break
        reader.execute("COMMIT")
        worker.disconnect()
    assert pair.rows(MARKED) == []
    assert not is_in_order(pair, "t", "v, k")
    pair.same("CLUSTER t USING by_v")
    assert is_in_order(pair, "t", "v, k")
    check(pair)


def test_what_a_failing_worker_leaves_is_the_old_order_everywhere(pair: Pair) -> None:
    place(pair, "heap")
    broken = pair.cluster.workers[1]
    broken.execute("ALTER INDEX test_cluster.by_v RENAME TO hidden")
    with pytest.raises(psycopg.errors.UndefinedTable):
        pair.ours.execute("CLUSTER t USING by_v")
    broken.execute("ALTER INDEX test_cluster.hidden RENAME TO by_v")
    assert pair.rows(MARKED) == []
    check(pair)


@pytest.mark.parametrize("storage", STORAGES)
def test_tables_with_periods_are_clustered_leaf_by_leaf(pair: Pair, storage: str) -> None:
    pair.execute(
        "CREATE TABLE p (k integer, at timestamptz NOT NULL, v integer); CREATE INDEX pv ON p (v);"
        "INSERT INTO p SELECT g, timestamptz '2026-03-24 00:00:00+00' + g * interval '1 hour', g * 7919 % 3001"
        "  FROM generate_series(1, 1000) AS g"
    )
    pair.ours.execute(
        "SELECT strata.create_distributed_table('p', 'k', storage => %s, partition_by => 'at',"
        " partition_interval => '1 week')",
        (storage,),
    )
    pair.same("CLUSTER p USING pv")
    assert is_in_order(pair, "p", "v")
    pair.same("SELECT count(*), sum(v), max(at) FROM p")


def test_partitioned_reference_tables(pair: Pair) -> None:
    """Partition by partition, each in a transaction of its own."""
    pair.execute(
        "CREATE TABLE q (k integer, v integer) PARTITION BY RANGE (k); CREATE INDEX qv ON q (v);"
        "CREATE TABLE q1 PARTITION OF q FOR VALUES FROM (0) TO (500); CREATE TABLE q2 PARTITION OF q DEFAULT;"
        "INSERT INTO q SELECT g, g * 7919 % 3001 FROM generate_series(1, 1000) AS g"
    )
    pair.reference("q")
    pair.same("CLUSTER q")
    pair.same("ALTER TABLE q CLUSTER ON qv")
    pair.same("CLUSTER q USING qv")
    assert is_in_order(pair, "q", "v")
    pair.same(MARKED)
    pair.execute("UPDATE q SET v = -v")
    pair.same("CLUSTER q1")
    assert is_in_order(pair, "q1", "v")
    with pair.transaction():
        pair.same("CLUSTER q USING qv")
    pair.same("SELECT * FROM q", ordered=False)


def test_serializable_transactions(pair: Pair) -> None:
    place(pair, "columnar")
    pair.ours.execute("SET default_transaction_isolation = serializable")
    try:
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            pair.ours.execute("CLUSTER t USING by_v")
    finally:
        pair.ours.execute("RESET default_transaction_isolation")
    check(pair)
