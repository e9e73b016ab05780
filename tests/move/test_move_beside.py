"""Rows of a shard are read and written while it is copied: what has changed meanwhile moves, too."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest

from tests.cluster import Node
from tests.failover import copy_coordinator, frozen, make_standby
from tests.fault_points import arm, disarm, release, wait_for_arrival
from tests.ledger import LEFT_LOCKS
from tests.move.moving import Table, leaves
from tests.waiting import patience, wait_until

REPLICAS = count(1)

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ %s"


# Sessions that hold locks, and transactions that are prepared.
LEFT = f"{LEFT_LOCKS} HAVING count(*) > 0 UNION ALL SELECT 1 FROM pg_prepared_xacts"


def orphans(worker: Node) -> list[str]:
    """Files of the database's directory that no relation has."""
    worker.execute("CHECKPOINT")
    directory = Path(worker.value("SELECT pg_relation_filepath('pg_class')")).parent
    known = {
        name for (name,) in worker.query("SELECT pg_relation_filenode(oid)::text FROM pg_class")
    }
    files = worker.query(f"SELECT f FROM pg_ls_dir('{directory}') AS f WHERE f ~ '^[0-9]+$'")
    return sorted({name for (name,) in files} - known)


@pytest.mark.parametrize(
    "options",
    [
        "(row_group_rows => 1024)",
        "(order_by => 'v', row_group_rows => 1024)",
    ],
)
def test_changes_follow(table: Table, options: str) -> None:
    """Inserts, updates of keys and other columns, deletes, a row that comes and goes; compaction and recluster of the source."""
    table.make("(k integer PRIMARY KEY, v text)")
    table.node.execute(f"SELECT strata.alter_columnar_table_set('t', {options.strip('()')})")
    table.change("INSERT INTO t SELECT g, md5(g::text) FROM generate_series(1, 5000) AS g")
    for work in ("columnar_compact", "columnar_recluster", "vacuum"):
        source, _ = table.home()
        with table.moving() as future:
            table.change(
                "DELETE FROM t WHERE k % 7 = 0",
                "UPDATE t SET v = 'new' || k WHERE k % 5 = 0",
                "INSERT INTO t SELECT k, 'again' FROM generate_series(7, 700, 7) AS k",
                "INSERT INTO t SELECT (SELECT max(k) FROM t) + g, 'more' FROM generate_series(1, 3000) AS g",
                "UPDATE t SET k = k + 1000000 WHERE k BETWEEN 100 AND 120",
                "BEGIN; INSERT INTO t VALUES (-1, 'gone'); UPDATE t SET v = 'x' WHERE k = -1; ROLLBACK",
                "BEGIN; SAVEPOINT a; INSERT INTO t SELECT -g, 'gone' FROM generate_series(10, 400) AS g; ROLLBACK TO a;"
                " INSERT INTO t SELECT -g, 'here' FROM generate_series(300, 500) AS g; COMMIT",
                "DELETE FROM t WHERE k < -299",
                "INSERT INTO t VALUES (-1, 'short')",
                "DELETE FROM t WHERE k = -1",
                "INSERT INTO t VALUES (-2, 'a') ON CONFLICT (k) DO UPDATE SET v = t.v || 'b'",
            )
            for leaf in leaves(source) if work == "columnar_compact" else []:
                source.execute(f"SELECT strata_columnar.columnar_compact('{leaf}', true)")
            for leaf in (
                leaves(source) if work == "columnar_recluster" and "order" in options else []
            ):
                source.execute(f"SELECT strata_columnar.columnar_recluster('{leaf}')")
            for leaf in leaves(source) if work == "vacuum" else []:
                source.execute(f"VACUUM {leaf}")
                table.change(
                    "INSERT INTO t SELECT -g, 'late' FROM generate_series(1000, 2000) AS g"
                )
            assert not future.done()
        assert future.result()[0][0] > 1000
        assert table.home()[0].name != source.name
        table.check()
        table.change("DELETE FROM t WHERE k < 0 OR k > 1000000")
    with pytest.raises(psycopg.errors.UniqueViolation):
        table.node.execute("INSERT INTO t SELECT k, '' FROM t")


both_storages = pytest.mark.parametrize("storage", ["columnar", "heap"])


def make_periods(table: Table, storage: str = "columnar") -> None:
    """Rows in four leaves and the default one."""
    table.make(
        "(k integer, at date NOT NULL, v integer)",
        f", partition_by => 'at', partition_interval => '1 month', storage => '{storage}'",
    )
    table.change(
        "INSERT INTO t SELECT g, date_trunc('month', current_date) + g % 4 * interval '1 month', g"
        " FROM generate_series(1, 3000) AS g",
        "INSERT INTO t SELECT g, '1999-01-01', 0 FROM generate_series(1, 50) AS g",
    )
    leaves = "SELECT count(*) FROM t GROUP BY tableoid"
    assert len(table.home()[0].query(leaves)) == 5


@both_storages
def test_periods_follow(table: Table, storage: str) -> None:
    """Rows that change their period."""
    make_periods(table, storage)
    with table.moving() as future:
        table.change(
            "UPDATE t SET at = at + interval '1 month' WHERE v % 3 = 0",
            "DELETE FROM t WHERE v % 10 = 1",
            "INSERT INTO t SELECT g, current_date, -g FROM generate_series(1, 500) AS g",
            "INSERT INTO t VALUES (1, '1998-01-01', 0), (2, '1998-01-01', 0)",
        )
    assert future.result()[0][0] > 1000
    table.check()


@both_storages
def test_one_period_follows(table: Table, storage: str) -> None:
    """While the others stay as they were."""
    make_periods(table, storage)
    with table.moving() as future:
        table.change(
            "INSERT INTO t SELECT g, current_date, -g FROM generate_series(1, 500) AS g",
            "DELETE FROM t WHERE at = date_trunc('month', current_date) AND k % 5 = 0",
        )
    assert future.result()[0][0] > 1000
    table.check()


@both_storages
def test_readers_and_writers_go_on(table: Table, storage: str) -> None:
    """In all isolation levels, with cursors and prepared statements; an older snapshot begins again afterwards."""
    table.make("(k integer PRIMARY KEY, v integer)", f", storage => '{storage}'")
    table.change("INSERT INTO t SELECT g, g FROM generate_series(1, 1000) AS g")
    old = table.node.connect()
    old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    old.execute("SELECT count(*) FROM pg_class")
    with table.moving() as future:
        for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
            with table.node.connect() as session:
                session.execute("SET lock_timeout = '5s'")
                session.execute(f"BEGIN ISOLATION LEVEL {level}")
                if level != "SERIALIZABLE":  # that uses one worker
                    session.execute("DECLARE c CURSOR FOR SELECT k FROM t")
                    assert len(session.execute("FETCH 10 FROM c").fetchall()) == 10
                    assert session.execute("SELECT sum(v) FROM t").fetchall()
                session.execute("UPDATE t SET v = v + 1 WHERE k = 3")
                session.execute("SELECT * FROM t WHERE k = 3 FOR UPDATE")
                session.execute("COMMIT")
        table.plain.execute("UPDATE t SET v = v + 3 WHERE k = 3")
        assert old.execute("SELECT count(*) FROM t WHERE k = 1").fetchall() == [(1,)]
        old.execute("COMMIT")
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM pg_class")
    assert future.result()[0][0] > 300
    with pytest.raises(psycopg.errors.SerializationFailure, match='rows of table "t" moved'):
        old.execute("SELECT count(*) FROM t")
    old.close()
    table.check()


PHASES = ["shard_move_prepared", "shard_move_filled", "shard_move_round", "shard_move_copied"]


def make_step(choose: random.Random, writer: int, number: int) -> str:
    """Something that one of eight writers does with its own rows."""
    mine = f"k % 8 = {writer} AND k % {choose.randrange(2, 9)} = 0"
    low = choose.randrange(5000)
    return choose.choice(
        [
            f"UPDATE t SET v = v + 1 WHERE {mine}",
            f"UPDATE t SET k = k + {8000 * number} WHERE {mine} AND k BETWEEN {low} AND {low + 200}",
            f"DELETE FROM t WHERE {mine} AND k BETWEEN {low} AND {low + 500}",
            f"INSERT INTO t SELECT g, -g FROM generate_series(1, 5000) AS g WHERE g % 8 = {writer} AND g >= {low}"
            " ON CONFLICT (k) DO UPDATE SET v = t.v + 7",
            f"SAVEPOINT a; DELETE FROM t WHERE {mine}; ROLLBACK TO a; UPDATE t SET v = 0 WHERE {mine}",
            f"SELECT count(*) FROM (SELECT FROM t WHERE {mine} FOR UPDATE) AS s",
            "SELECT count(*), sum(v) FROM t",
            "COMMIT",
            "COMMIT",
            "ROLLBACK",
        ]
    )


def answers(cursor: psycopg.Cursor) -> list:
    found = []
    while True:
        found.append(cursor.fetchall() if cursor.description else cursor.statusmessage)
        if not cursor.nextset():
            return found


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(9))
def test_transactions_span_the_phases(table: Table, seed: int) -> None:
    """Of all isolation levels but the one for a single worker; what they read is what they read on one PostgreSQL."""
    choose = random.Random(seed)
    storage, order = [("columnar", ""), ("heap", ""), ("columnar", ", order_by => 'v'")][seed % 3]
    table.make("(k integer PRIMARY KEY, v integer)", f", storage => '{storage}'")
    if storage == "columnar":
        table.node.execute(
            f"SELECT strata.alter_columnar_table_set('t', row_group_rows => 1024{order})"
        )
    table.change("INSERT INTO t SELECT g, g FROM generate_series(1, 5000) AS g")
    with ExitStack() as stack:
        writers = [
            [stack.enter_context(node.connect()) for node in (table.node, table.plain)]
            for _ in range(8)
        ]
        open_ones: set[int] = set()
        numbers = count(1)

        def act(writer: int, step: str) -> None:
            if writer not in open_ones:
                step = f"BEGIN ISOLATION LEVEL {('READ COMMITTED', 'REPEATABLE READ')[writer % 2]}; {step}"
                open_ones.add(writer)
            if step.endswith(("COMMIT", "ROLLBACK")):
                open_ones.discard(writer)
            ours, theirs = (answers(session.execute(step)) for session in writers[writer])
            assert ours == theirs, step

        def work() -> None:
            for _ in range(25):
                writer = choose.randrange(8)
                act(writer, make_step(choose, writer, next(numbers)))
            table.check()

        work()
        arm(table.node, *[(phase, "wait") for phase in PHASES])
        pool = stack.enter_context(ThreadPoolExecutor(1))
        stack.callback(disarm, table.node)
        move = pool.submit(table.move)
        for _ in PHASES:
            wait_for_arrival(table.node)
            work()
            release(table.node)
        work()
        assert not (open_ones and move.done())
        for writer in sorted(open_ones):
            act(writer, choose.choice(["COMMIT", "ROLLBACK"]))
        assert move.result(patience(60))[0][0] > 100
        table.check()
        table.move()
        table.check()


@contextmanager
def replica_of_target(table: Table) -> Iterator[tuple[Node, Node]]:
    """The worker to which the shard moves next, and a replica of it for which no commit waits."""
    _, other = table.home()
    (target,) = [worker for worker in table.cluster.workers if worker.name == other]
    standby = make_standby(table.cluster, target, f"replica{next(REPLICAS)}")
    try:
        for _ in wait_until("it is a replica"):
            if target.query("SELECT 1 FROM pg_stat_replication WHERE flush_lsn IS NOT NULL"):
                break
        yield target, standby
    finally:
        standby.stop("immediate")


@contextmanager
def move_awaits(table: Table, standby: Node, place: str) -> Iterator[None]:
    """A move that has come to a place of the code does not go on while the replica is frozen, only afterwards."""
    with ThreadPoolExecutor(1) as pool:
        arm(table.node, (place, "wait"))
        future = pool.submit(table.move)
        wait_for_arrival(table.node)
        with frozen(standby):
            release(table.node)
            with pytest.raises(TimeoutError):
                future.result(1)
            yield
        assert future.result()[0][0] > 3000
        disarm(table.node)


def test_replicas_store_the_copy_before_the_switch(table: Table) -> None:
    """Nobody waits for the move while it waits for them."""
    table.make("(k integer PRIMARY KEY, v text)")
    table.change("INSERT INTO t SELECT g, md5(g::text) FROM generate_series(1, 10000) AS g")
    source, _ = table.home()
    with replica_of_target(table) as (_, standby):
        with ThreadPoolExecutor(1) as pool, frozen(standby):
            future = pool.submit(table.move)
            with pytest.raises(TimeoutError):
                future.result(2)
            table.change("SET lock_timeout = '1s'; UPDATE t SET v = 'new' WHERE k < 100")
            assert table.home()[0].name == source.name
        assert future.result()[0][0] > 3000
    table.check()


def test_replicas_store_the_switch_before_it_is_decided(table: Table) -> None:
    """The source must not drop what a failover of the target would forget."""
    table.make("(k integer PRIMARY KEY, v text)")
    table.change("INSERT INTO t SELECT g, md5(g::text) FROM generate_series(1, 10000) AS g")
    with replica_of_target(table) as (target, standby):
        with move_awaits(table, standby, "shard_move_published"):
            assert target.query("SELECT count(*) FROM pg_prepared_xacts") == [(1,)]
        standby.stop("immediate")
        standby.start()
        assert standby.query("SELECT count(*) FROM t")[0][0] > 3000
    table.check()


@contextmanager
def replica_of_coordinator(table: Table) -> Iterator[Node]:
    """One for which no commit waits."""
    standby = copy_coordinator(table.cluster, f"replica{next(REPLICAS)}", "-R")
    standby.start()
    try:
        for _ in wait_until("it is a replica"):
            if table.node.query("SELECT 1 FROM pg_stat_replication WHERE flush_lsn IS NOT NULL"):
                break
        yield standby
    finally:
        standby.stop("immediate")


def test_the_coordinators_replicas_store_the_decision_before_workers_hear_of_it(
    table: Table,
) -> None:
    """If one worker had committed, a replica that takes over without it would have the other roll back."""
    table.make("(k integer PRIMARY KEY, v text)")
    table.change("INSERT INTO t SELECT g, md5(g::text) FROM generate_series(1, 10000) AS g")
    with (
        replica_of_coordinator(table) as standby,
        move_awaits(table, standby, "replicas_asked"),
    ):
        for worker in table.cluster.workers:
            assert worker.query("SELECT count(*) FROM pg_prepared_xacts") == [(1,)]
    table.check()


def test_a_late_replica_of_the_coordinator_ends_a_move(table: Table) -> None:
    table.make("(k integer PRIMARY KEY, v text)")
    table.change("INSERT INTO t SELECT g, md5(g::text) FROM generate_series(1, 10000) AS g")
    source, _ = table.home()
    with replica_of_coordinator(table) as standby, ThreadPoolExecutor(1) as pool:
        with frozen(standby):
            future = pool.submit(table.move)
            with pytest.raises(TimeoutError):
                future.result(1)
            table.change("SET lock_timeout = '1s'; UPDATE t SET v = 'new' WHERE k < 100")
            with pytest.raises(
                psycopg.errors.ObjectNotInPrerequisiteState, match="replica of the coordinator"
            ):
                future.result()
        assert table.home()[0].name == source.name
        table.move()
    table.check()


def test_a_small_shard_waits_for_no_other_commit(table: Table) -> None:
    """Its last block of WAL is not full, and nobody writes it before the move does."""
    table.make("(k integer PRIMARY KEY, v text)")
    table.change("INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    with replica_of_target(table), ThreadPoolExecutor(1) as pool:
        pool.submit(table.move).result(patience(3))
    table.check()


def test_foreign_keys_of_periods_let_readers_go_on(table: Table) -> None:
    """Their writers wait."""
    make_periods(table)
    table.change("CREATE TABLE u (k integer PRIMARY KEY)")
    table.node.execute("SELECT strata.create_reference_table('u')")
    table.change(
        "INSERT INTO u SELECT DISTINCT k FROM t", "ALTER TABLE t ADD FOREIGN KEY (k) REFERENCES u"
    )
    with table.moving() as future, table.node.connect() as session:
        session.execute("SET lock_timeout = '100ms'")
        assert session.execute("SELECT count(*) FROM t").fetchall() == [(3050,)]
        for statement in ("UPDATE t SET v = 0 WHERE k = 1", "DELETE FROM u WHERE k = -1"):
            with pytest.raises(psycopg.errors.LockNotAvailable):
                session.execute(statement)
    assert future.result()[0][0] > 300
    table.check()
    table.change("DROP TABLE t, u")


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE t",
        "ALTER TABLE t ADD COLUMN w integer",
        "CREATE INDEX ON t (v)",
        "VACUUM FULL t",
        "REINDEX TABLE t",
        "CREATE INDEX CONCURRENTLY ON t (v)",
        "ALTER TABLE t SET (fillfactor = 70)",
        "ANALYZE t",
        "DROP TABLE t",
    ],
)
def test_a_move_gives_way(table: Table, statement: str) -> None:
    """To whoever changes the table."""
    table.make("(k integer PRIMARY KEY, v integer)")
    table.change("INSERT INTO t SELECT g, g FROM generate_series(1, 1000) AS g")
    source, _ = table.home()

    def run() -> None:
        with table.node.connect() as session:
            session.execute(statement)

    with ThreadPoolExecutor(1) as pool, table.moving("shard_move_prepared") as future:
        other = pool.submit(run)
        for _ in wait_until("the statement waits"):
            if table.node.query(WAITING, (f"^{statement[:8]}",)) != [(0,)]:
                break
    with pytest.raises(psycopg.errors.LockNotAvailable, match="gave up moving"):
        future.result()
    other.result(patience(60))
    if statement == "DROP TABLE t":
        return
    table.plain.execute(statement)
    table.check()
    assert table.home()[0].name == source.name
    table.move()
    table.check()


def test_a_move_gives_way_to_a_switchover(table: Table) -> None:
    table.make("(k integer PRIMARY KEY, v integer)")
    table.change("INSERT INTO t SELECT g, g FROM generate_series(1, 1000) AS g")
    _, other = table.home()
    with ThreadPoolExecutor(1) as pool, table.node.connect() as session:
        with table.moving("shard_move_round") as future:
            held = pool.submit(
                session.execute, f"SELECT strata.hold_worker('{other}', '20s', '10s')"
            )
            for _ in wait_until("it is held"):
                if table.node.query(
                    "SELECT 1 FROM pg_stat_activity WHERE query ~ '^SELECT strata.hold_worker' AND wait_event = 'Extension'"
                ):
                    break
        with pytest.raises(psycopg.errors.LockNotAvailable, match="is held"):
            future.result()
        assert held.result(patience(20)).fetchall() == [(0,)]
        session.execute(f"SELECT strata.release_worker('{other}')")
    table.check()
    table.move()
    table.check()


def test_a_long_transaction_keeps_the_shard(table: Table) -> None:
    """The move waits without keeping anybody waiting, and copies what comes meanwhile."""
    table.make("(k integer PRIMARY KEY, v integer)")
    table.change("INSERT INTO t SELECT g, g FROM generate_series(1, 1000) AS g")
    with table.node.connect() as long, ThreadPoolExecutor(1) as pool:
        long.execute("BEGIN; DECLARE c CURSOR FOR SELECT k FROM t")
        long.execute("UPDATE t SET v = 0 WHERE k < 500")
        future = pool.submit(table.move)
        for number in range(20):
            table.node.execute(
                f"SET lock_timeout = '5s'; INSERT INTO t VALUES ({2000 + number}, 0)"
            )
            assert table.node.query("SELECT count(*) FROM t") == [(1001 + number,)]
            assert not future.done()
        assert len(long.execute("FETCH ALL FROM c").fetchall()) == 1000
        long.execute("COMMIT")
        assert future.result(patience(60))[0][0] > 300
    table.plain.execute("UPDATE t SET v = 0 WHERE k < 500")
    table.plain.execute("INSERT INTO t SELECT g, 0 FROM generate_series(2000, 2019) AS g")
    table.check()


def test_sessions_of_the_source_are_waited_for(table: Table) -> None:
    """As those that a dead coordinator has left, or its prepared transactions."""
    table.make("(k integer PRIMARY KEY, v integer)")
    table.change("INSERT INTO t SELECT g, g FROM generate_series(1, 1000) AS g")
    source, _ = table.home()
    with source.connect() as other, ThreadPoolExecutor(1) as pool:
        other.execute("BEGIN; DELETE FROM t WHERE k % 2 = 0")
        future = pool.submit(table.move)
        for number in range(10):
            table.node.execute(f"INSERT INTO t VALUES ({2000 + number}, 0)")
            assert not future.done()
        other.execute("COMMIT")
        assert future.result(patience(60))[0][0] > 100
    (deleted,) = table.node.query("SELECT array_agg(k) FROM t WHERE k <= 1000")[0]
    table.plain.execute("DELETE FROM t WHERE k <= 1000 AND NOT k = ANY (%s)", (deleted,))
    table.plain.execute("INSERT INTO t SELECT g, 0 FROM generate_series(2000, 2009) AS g")
    assert len(deleted) < 1000
    table.check()


def test_the_switch_waits_for_the_table_of_other_shards(table: Table) -> None:
    """Which a transaction in doubt may have: nobody waits behind the switch meanwhile."""
    table.make("(k integer PRIMARY KEY, v integer)")
    table.change("INSERT INTO t SELECT g, g FROM generate_series(1, 1000) AS g")
    source, _ = table.home()
    with source.connect() as other, ThreadPoolExecutor(1) as pool:
        other.execute("BEGIN; LOCK TABLE ONLY t IN ROW EXCLUSIVE MODE")
        future = pool.submit(table.move)
        for number in range(10):
            table.change(f"SET lock_timeout = '5s'; INSERT INTO t VALUES ({2000 + number}, 0)")
            assert not future.done()
        other.execute("COMMIT")
        assert future.result(patience(60))[0][0] > 100
    table.check()


def test_other_tables_are_distributed_meanwhile(table: Table) -> None:
    """The switch waits for them, and nobody for the switch; one that joins the group ends the move."""
    table.make("(k integer PRIMARY KEY, v integer)")
    table.change("INSERT INTO t SELECT g, g FROM generate_series(1, 1000) AS g")
    with table.moving() as future, table.node.connect() as session:
        session.execute("BEGIN; CREATE TABLE u (k integer)")
        session.execute("SELECT strata.create_distributed_table('u', 'k', colocate_with => 'none')")
        release(table.node)
        for number in range(10):
            table.change(f"SET lock_timeout = '5s'; INSERT INTO t VALUES ({2000 + number}, 0)")
            assert not future.done()
        session.execute("COMMIT")
        assert future.result(patience(30))[0][0] > 300
    table.check()
    table.node.execute("DROP TABLE u")
    with table.moving() as future:
        table.node.execute(
            "CREATE TABLE u (k integer); SELECT strata.create_distributed_table('u', 'k', colocate_with => 't')"
        )
    with pytest.raises(psycopg.errors.LockNotAvailable, match="has changed"):
        future.result()
    table.check()
    table.move()
    table.check()


def test_a_worker_comes_and_goes_meanwhile(table: Table) -> None:
    """It knows of the move as of any DDL, and takes the next one."""
    table.make("(k integer PRIMARY KEY, v integer)")
    table.change("INSERT INTO t SELECT g, g FROM generate_series(1, 1000) AS g")
    with table.moving() as future:
        newcomer = table.cluster.add_worker()
    assert future.result()[0][0] > 300
    table.check()
    source, _ = table.home()
    with table.moving("shard_move_round") as future:
        table.node.execute(f"SELECT strata.remove_worker('{newcomer.name}')")
    assert future.result()[0][0] > 300
    table.check()
    table.cluster.workers.remove(newcomer)
    table.cluster.add_worker(newcomer)
    for worker in (newcomer, source):
        table.move(worker.name)
        table.check()
    table.cluster.remove_worker(newcomer)


@both_storages
def test_many_rows_change_before_the_switch(table: Table, storage: str) -> None:
    """Readers do not wait until they are copied."""
    table.make("(k integer PRIMARY KEY, v integer)", f", storage => '{storage}'")
    table.change("INSERT INTO t SELECT g, g FROM generate_series(1, 1000) AS g")
    with table.moving() as future:
        table.change("INSERT INTO t SELECT g, g FROM generate_series(2000, 62000) AS g")
        position = table.node.log_size()
    assert future.result()[0][0] > 20000
    assert "rows in " in table.node.log_text(position)
    table.check()


def test_a_second_move_waits(table: Table) -> None:
    """The first one does not give way to it."""
    table.make("(k integer PRIMARY KEY, v integer)")
    table.change("INSERT INTO t SELECT g, g FROM generate_series(1, 1000) AS g")
    _, other = table.home()
    with ThreadPoolExecutor(1) as pool, table.moving("shard_move_prepared") as future:
        with table.node.connect() as session:
            session.execute("SET lock_timeout = '200ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable, match="lock timeout"):
                session.execute(f"SELECT strata.move_shard('t', 1, '{other}')")
        second = pool.submit(table.move, table.home()[0].name)
        for _ in wait_until("the second move waits"):
            if table.node.query(WAITING, ("move_shard",)) != [(0,)]:
                break
    assert future.result()[0][0] > 300
    assert second.result(patience(60))[0][0] > 300
    table.check()


def test_a_move_is_cancelled(table: Table) -> None:
    """While it copies and while it waits; nothing is left, and it can be made again."""
    table.make("(k integer PRIMARY KEY, v integer)")
    table.change("INSERT INTO t SELECT g, g FROM generate_series(1, 1000) AS g")
    source, other = table.home()
    (target,) = [worker for worker in table.cluster.workers if worker.name == other]
    moves = (
        "SELECT pg_{}_backend(pid) FROM pg_stat_activity WHERE query ~ '^SELECT strata.move_shard'"
    )
    for way in ("cancel", "terminate"):
        with table.moving("shard_move_round") as future:
            table.node.execute(moves.format(way))
        assert isinstance(future.exception(), psycopg.OperationalError)
        with table.node.connect() as long, ThreadPoolExecutor(1) as pool:
            long.execute("BEGIN; UPDATE t SET v = v WHERE k = 1")
            waiting = pool.submit(table.move)
            for _ in wait_until("rows are copied"):
                if target.query("SELECT 1 FROM pg_locks WHERE mode = 'AccessExclusiveLock'"):
                    break
            with pytest.raises(TimeoutError):
                waiting.result(0.5)
            table.node.execute(moves.format(way))
            assert isinstance(waiting.exception(patience(30)), psycopg.OperationalError)
            long.execute("COMMIT")
        assert table.home()[0].name == source.name
        for _ in wait_until("the target has forgotten the shard"):
            if leaves(target) == [] and not target.query(LEFT):
                break
        assert orphans(target) == orphans(source) == []
        table.check()
    table.move()
    table.check()


def test_a_role_with_policies_owns_the_table(table: Table) -> None:
    """Whose functions run in constraints; hidden rows move, too."""
    table.cluster.create_role("mover_owner")
    table.make("(k integer PRIMARY KEY, v integer, w integer GENERATED ALWAYS AS (v + 1) STORED)")
    table.change(
        "CREATE FUNCTION positive(integer) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 >= 0'",
        "ALTER TABLE t ADD CHECK (positive(v)), OWNER TO mover_owner",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
        "CREATE POLICY odd ON t USING (k % 2 = 1)",
        "CREATE INDEX ON t ((positive(v)))",
        "INSERT INTO t SELECT g, g FROM generate_series(1, 1000) AS g",
    )
    with table.moving() as future:
        table.change("UPDATE t SET v = v + 1 WHERE k % 3 = 0", "DELETE FROM t WHERE k % 10 = 0")
    assert future.result()[0][0] > 300
    table.check()
    owners = "SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relname ~ '^t_s'"
    assert table.home()[0].query(owners) == [("mover_owner",)]
    table.cluster.create_role("mover_reader")
    for role in ("mover_owner", "mover_reader"):
        with table.node.connect() as session:
            session.execute("GRANT SELECT ON t TO mover_reader")
            session.execute(f"SET SESSION AUTHORIZATION {role}")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.execute("SELECT strata.move_shard('t', 0, 'worker1')")
        with table.home()[0].connect() as session:
            session.execute(f"SET SESSION AUTHORIZATION {role}")
            for call in ("visible_rows('t_s0')", "row_tid(1)", "row_tids('{1}', '{1}')"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    session.execute(f"SELECT * FROM strata_columnar.{call}")
    table.change("DROP TABLE t", "DROP FUNCTION positive")


PROGRESS = "SELECT relation::text, shard, source, target, phase, row_count, row_estimate FROM strata.move_progress()"


def test_how_far_a_move_is_can_be_seen(table: Table) -> None:
    """While it runs, of all tables of the group; not after it, whichever way it ended."""
    table.make("(k integer, v text)")
    table.change("INSERT INTO t SELECT g, 'x' FROM generate_series(1, 6000) AS g")
    table.node.execute("ANALYZE t")
    (count,) = table.home()[0].query("SELECT sum(reltuples)::bigint FROM pg_class WHERE relname ~ '^t_s?0'")[0]  # fmt: skip
    source, target = table.home()
    with table.moving("shard_move_copied") as future:
        ((relation, shard, come, go, phase, rows, estimate),) = table.node.query(PROGRESS)
        assert (relation, shard, come, go, phase) == ("t", 0, source.name, target, "catching up")
        assert count - 256 < rows <= count == estimate
        assert not future.done()
    assert table.node.query(PROGRESS) == []
    for action in ("error", "terminate"):
        with table.moving("shard_move_prepared") as future:
            ((*_, phase, rows, _),) = table.node.query(PROGRESS)
            assert (phase, rows) == ("copying rows", 0)
            ((pid,),) = table.node.query("SELECT pid FROM strata.move_progress()")
            stop = "pg_cancel_backend" if action == "error" else "pg_terminate_backend"
            table.node.execute(f"SELECT {stop}({pid})")
        assert future.exception() is not None
        for _ in wait_until("the place is free", timeout=patience(30)):
            if table.node.query(PROGRESS) == []:
                break
    table.check()


def test_rows_of_periods_are_estimated_once(table: Table) -> None:
    """ANALYZE counts those of a partitioned table for it, too."""
    table.make(
        "(k integer, d date NOT NULL)", ", partition_by => 'd', partition_interval => '1 day'"
    )
    table.change(
        "INSERT INTO t SELECT g, '2024-01-01'::date + g % 5 FROM generate_series(1, 6000) AS g"
    )
    table.node.execute("ANALYZE t")
    with table.moving("shard_move_prepared"):
        ((*_, estimate),) = table.node.query(PROGRESS)
        assert 2000 < estimate < 4000
    table.check()
