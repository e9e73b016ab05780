"""DROP INDEX CONCURRENTLY of distributed tables: nobody waits for long, and what stops it can be repeated or taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.cluster import Cluster
from tests.ddl.test_ddl import check_structure, everywhere
from tests.ddl.test_indexes import index_faults
from tests.pair import Pair, open_pair
from tests.waiting import wait_until

PARTS = """
SELECT count(*) FROM pg_class AS c JOIN pg_index AS i ON i.indexrelid = c.oid
 WHERE c.relnamespace = 'test_drop'::regnamespace AND c.relname ~ '{}'
"""
VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('test_drop.{}')"


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_drop") as made:
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    data.execute(
        "CREATE TABLE t (k integer PRIMARY KEY, v integer, w text); CREATE INDEX i ON t (v);"
        "CREATE TABLE r (id integer PRIMARY KEY); CREATE TABLE l (k integer, v integer);"
        "INSERT INTO t SELECT g, g % 10, 'w' || g FROM generate_series(1, 200) AS g"
    )
    data.distribute("t", "k", shards=4)
    data.reference("r")
    yield data
    data.reset()
    data.execute("RESET ROLE; RESET statement_timeout; RESET lock_timeout")
    data.execute("DROP SCHEMA test_drop CASCADE; CREATE SCHEMA test_drop")


def drop(pair: Pair, name: str) -> None:
    """On both: outside of a transaction, one by one."""
    pair.same(f"DROP INDEX CONCURRENTLY {name}")


@pytest.mark.parametrize("storage", ["heap", "columnar"])
def test_it_is_gone_on_all_nodes(pair: Pair, storage: str) -> None:
    pair.ours.execute("SELECT strata.alter_distributed_table('t', storage => %s)", (storage,))
    pair.execute(
        'CREATE UNIQUE INDEX "u""; x" ON t (k, v); CREATE INDEX e ON t ((v + 1)) WHERE k > 3'
    )
    for name in ("i", '"u""; x"', "IF EXISTS test_drop.e", "IF EXISTS i"):
        drop(pair, name)
        check_structure(pair, "t")
    assert everywhere(pair, PARTS.format("^(i|e|u)|(v|expr)_idx")) == 0
    assert index_faults(pair) == []
    pair.same("SELECT count(*) FROM t WHERE v = 3")
    pair.same("INSERT INTO t VALUES (1, 1, 'again') ON CONFLICT (k, v) DO NOTHING")
    pair.same("CREATE INDEX i ON t (v)")


def test_errors_are_postgresqls_and_change_nothing(pair: Pair) -> None:
    pair.execute("CREATE UNIQUE INDEX u ON t (k, v)")
    pair.execute("CREATE TABLE child (k integer, v integer)")
    pair.distribute("child", "k", colocate_with="t")
    pair.execute("ALTER TABLE child ADD FOREIGN KEY (k, v) REFERENCES t (k, v)")
    for statement in (
        "DROP INDEX CONCURRENTLY t_pkey",
        "DROP INDEX CONCURRENTLY i, u",
        "DROP INDEX CONCURRENTLY i CASCADE",
        "DROP INDEX CONCURRENTLY u",
        "DROP INDEX CONCURRENTLY none",
        "DROP INDEX CONCURRENTLY t",
        "DROP INDEX CONCURRENTLY r_pkey",
        "DROP INDEX CONCURRENTLY r_pkey CASCADE",
    ):
        pair.same(statement)
        for table in ("t", "r"):
            check_structure(pair, table)
    with pair.transaction():
        drop(pair, "i")
    for name in ("i", "u", "t_pkey", "r_pkey"):
        assert pair.rows(VALID.format(name)) == [(True,)]


def test_only_the_owner_drops(pair: Pair) -> None:
    pair.cluster.create_role("drop_user")
    pair.execute(
        "GRANT USAGE, CREATE ON SCHEMA test_drop TO drop_user; GRANT ALL ON t TO drop_user; SET ROLE drop_user"
    )
    try:
        drop(pair, "i")
        assert pair.rows(VALID.format("i")) == [(True,)]
        pair.execute("RESET ROLE; ALTER TABLE t OWNER TO drop_user; SET ROLE drop_user")
        drop(pair, "i")
        check_structure(pair, "t")
    finally:
        pair.execute("RESET ROLE; REASSIGN OWNED BY drop_user TO CURRENT_USER")
        pair.execute("DROP OWNED BY drop_user; DROP ROLE drop_user")


def test_what_was_begun_concurrently_is_dropped_concurrently(pair: Pair) -> None:
    pair.ours.execute("INSERT INTO t VALUES (-1, 7, 'x'); CREATE TABLE two AS SELECT 1")
    worker = pair.cluster.workers[1]
    worker.execute("CREATE TABLE test_drop.c ()")
    with pytest.raises(psycopg.errors.DuplicateTable):
        pair.ours.execute("CREATE INDEX CONCURRENTLY c ON t (w)")
    worker.execute("DROP TABLE test_drop.c")
    assert any(pair.on_workers(PARTS.format("^c")))
    pair.ours.execute("DROP INDEX CONCURRENTLY c")
    assert everywhere(pair, PARTS.format("^c_|^c$")) == 0


def test_statements_go_on_while_it_waits_for_one(pair: Pair) -> None:
    """For a reader that the worker has, and who is known there alone."""
    worker = pair.cluster.workers[1]
    ((leaf,),) = worker.query(
        "SELECT min(inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = 'test_drop.t'::regclass"
    )
    worker.disconnect()
    with (
        worker.connect() as reader,
        pair.cluster.coordinator.connect() as dropper,
        ThreadPoolExecutor() as pool,
    ):
        reader.execute(f"BEGIN; LOCK TABLE {leaf} IN ACCESS SHARE MODE")
        dropping = pool.submit(dropper.execute, "DROP INDEX CONCURRENTLY test_drop.i")
        for _ in wait_until("one worker has dropped it"):
            if 0 in pair.on_workers(PARTS.format("^i$")):
                break
        pair.ours.execute("SET lock_timeout = '5s'")
        for key in range(2000, 2020):
            pair.ours.execute(f"INSERT INTO t VALUES ({key}, 1, 'other')")
            assert pair.rows("SELECT count(*) FROM t WHERE v = 3") == [(20,)]
        assert not dropping.done()
        assert pair.rows(VALID.format("i")) == [(False,)]
        reader.execute("COMMIT")
        dropping.result()
    check_structure(pair, "t")
    assert everywhere(pair, PARTS.format("^i$|v_idx")) == 0


def test_it_waits_for_transactions_that_may_have_planned_with_it(pair: Pair) -> None:
    """A unique index that joins relied on is not missing before they have ended."""
    pair.execute("CREATE UNIQUE INDEX u ON t (k, v)")
    with (
        pair.cluster.coordinator.connect() as user,
        pair.cluster.coordinator.connect() as dropper,
        ThreadPoolExecutor() as pool,
    ):
        user.execute(
            "SET search_path = test_drop; PREPARE p AS INSERT INTO t VALUES (1, 1, 'w') ON CONFLICT (k, v) DO NOTHING"
        )
        user.execute("BEGIN; EXECUTE p")
        dropping = pool.submit(dropper.execute, "DROP INDEX CONCURRENTLY test_drop.u")
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = %s"
        for _ in wait_until("DROP INDEX waits"):
            if pair.rows(waits, (dropper.info.backend_pid,)) == [(1,)]:
                break
        assert 0 not in pair.on_workers(PARTS.format("^u$"))
        user.execute("EXECUTE p; COMMIT")
        dropping.result()
        with pytest.raises(psycopg.errors.InvalidColumnReference):
            user.execute("EXECUTE p")
    check_structure(pair, "t")


@pytest.mark.parametrize("end", ["cancel", "terminate"])
@pytest.mark.parametrize(
    "repeat", ["DROP INDEX CONCURRENTLY i", "DROP INDEX i", "REINDEX INDEX i", "REINDEX TABLE t"]
)
def test_what_was_stopped_is_repeated_or_taken_back(pair: Pair, repeat: str, end: str) -> None:
    worker = pair.cluster.workers[1]
    ((leaf,),) = worker.query(
        "SELECT min(inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = 'test_drop.t'::regclass"
    )
    busy = "SELECT count(*) FROM pg_stat_activity WHERE query ~ 'execute_patiently' AND pid <> pg_backend_pid() AND state = 'active'"
    with (
        worker.connect() as reader,
        pair.cluster.coordinator.connect() as dropper,
        ThreadPoolExecutor() as pool,
    ):
        reader.execute(f"BEGIN; LOCK TABLE {leaf} IN ACCESS SHARE MODE")
        dropping = pool.submit(dropper.execute, "DROP INDEX CONCURRENTLY test_drop.i")
        for _ in wait_until("one worker has dropped it"):
            if 0 in pair.on_workers(PARTS.format("^i$")):
                break
        pair.rows(f"SELECT pg_{end}_backend({dropper.info.backend_pid})")
        with pytest.raises((psycopg.errors.QueryCanceled, psycopg.OperationalError)):
            dropping.result()
        for _ in wait_until("nobody goes on trying"):
            if worker.value(busy) == 0:
                break
    worker.disconnect()
    assert pair.rows(VALID.format("i")) == [(False,)]
    pair.ours.execute(repeat)
    assert index_faults(pair) == []
    check_structure(pair, "t")
    if repeat.startswith("DROP"):
        assert everywhere(pair, PARTS.format("^i$")) == 0
    else:
        assert pair.rows(VALID.format("i")) == [(True,)]


def test_a_worker_that_is_down_leaves_it_to_be_repeated(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster(workers=2)
    node, lost = cluster.coordinator, cluster.workers[1]
    node.execute("CREATE TABLE t (k integer, v integer); CREATE INDEX i ON t (v)")
    node.query("SELECT strata.create_distributed_table('t', 'k')")
    lost.kill()
    with pytest.raises(psycopg.Error):
        node.execute("DROP INDEX CONCURRENTLY i")
    lost.start()
    for _ in wait_until("the worker is back"):
        try:
            node.execute("DROP INDEX CONCURRENTLY IF EXISTS i")
            break
        except psycopg.Error:
            continue
    assert [
        each.value("SELECT count(*) FROM pg_class WHERE relname ~ '^i$|v_idx'")
        for each in cluster.nodes
    ] == [0, 0, 0]
    assert node.query("SELECT detail FROM strata.check_health() WHERE NOT ok") == []


def test_a_coordinator_that_dies_leaves_it_to_be_completed(
    make_cluster: Callable[..., Cluster],
) -> None:
    """Nobody goes on dropping behind the back of who completes the index again."""
    cluster = make_cluster(workers=1)
    node, worker = cluster.coordinator, cluster.workers[0]
    node.execute("CREATE TABLE t (k integer, v integer); CREATE INDEX i ON t (v)")
    node.query("SELECT strata.create_distributed_table('t', 'k')")
    busy = "SELECT count(*) FROM pg_stat_activity WHERE query ~ 'execute_patiently' AND pid <> pg_backend_pid() AND state = 'active'"
    with worker.connect() as reader, node.connect() as dropper, ThreadPoolExecutor() as pool:
        reader.execute("BEGIN; LOCK TABLE t IN ACCESS SHARE MODE")
        dropping = pool.submit(dropper.execute, "DROP INDEX CONCURRENTLY i")
        for _ in wait_until("the worker tries"):
            if worker.value(busy) == 1:
                break
        node.kill()
        with pytest.raises(psycopg.OperationalError):
            dropping.result()
        node.start()
        for _ in wait_until("the index is completed"):
            try:
                node.execute("REINDEX INDEX i")
                break
            except psycopg.Error:
                continue
        assert worker.value(busy) == 0
    assert node.query("SELECT indisvalid FROM pg_index WHERE indexrelid = 'i'::regclass") == [
        (True,)
    ]
    assert node.query("SELECT detail FROM strata.check_health() WHERE NOT ok") == []
    assert worker.value("SELECT count(*) FROM pg_class WHERE relname ~ '^i$'") == 1


def test_two_who_drop_and_one_who_completes(pair: Pair) -> None:
    """Of several sessions one after the other gets it; nobody leaves a valid index that a worker lacks."""
    for _ in range(8):
        pair.ours.execute("CREATE INDEX IF NOT EXISTS i ON t (v)")
        with ThreadPoolExecutor() as pool:
            sessions = [pair.cluster.coordinator.connect() for _ in range(3)]
            commands = ("DROP INDEX CONCURRENTLY test_drop.i",) * 2 + (
                "REINDEX INDEX CONCURRENTLY test_drop.i",
            )
            running = [
                pool.submit(session.execute, command)
                for session, command in zip(sessions, commands, strict=True)
            ]
            failures = [each.exception() for each in running]
            for session in sessions:
                session.close()
        assert {type(each) for each in failures if each} <= {
            psycopg.errors.UndefinedTable, psycopg.errors.UndefinedObject, psycopg.errors.DeadlockDetected
        }  # fmt: skip
        if pair.rows(VALID.format("i")) == [(True,)]:
            assert index_faults(pair) == []
        pair.ours.execute("DROP INDEX CONCURRENTLY IF EXISTS i")
        assert everywhere(pair, PARTS.format("^i$")) == 0
