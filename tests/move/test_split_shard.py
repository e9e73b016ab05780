"""A shard becomes two, beside readers and writers, and its group goes on as any other."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.cluster import Cluster
from tests.failover import copy_coordinator
from tests.fault_points import arm, disarm, release, wait_for_arrival
from tests.fixtures import new_root
from tests.move.moving import Twins
from tests.waiting import patience, wait_until

PHASES = [
    "shard_move_prepared",
    "shard_move_filled",
    "shard_move_round",
    "shard_move_copied",
    "shard_move_locked",
    "shard_move_counted",
    "shard_move_published",
]

WORK = [
    "DELETE FROM t WHERE k % 7 = 0",
    "UPDATE t SET v = v || '.' WHERE k % 5 = 0",
    "INSERT INTO t SELECT (SELECT max(k) FROM t) + g, 'more' FROM generate_series(1, 300) AS g",
    "DELETE FROM t WHERE k BETWEEN 100 AND 110",
    "INSERT INTO t VALUES (7, 'again') ON CONFLICT (k) DO UPDATE SET v = t.v || '!'",
]

SHARDS = "SELECT shard, modulus FROM strata.shards WHERE relation = 't'::regclass ORDER BY 1"


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    with Cluster(new_root(), workers=3, plain=True, assertions=True) as cluster:
        yield cluster


class Table(Twins):
    """Table t, with other tables if a test makes some."""

    def make(self, options: str) -> None:
        self.change("CREATE TABLE t (k integer PRIMARY KEY, v text)")
        self.node.execute(f"SELECT strata.create_distributed_table('t', 'k', {options})")
        self.change("INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 3000) AS g")

    def check(self) -> None:
        routed = [f"SELECT t::text FROM t WHERE k = {key}" for key in range(1, 3000, 97)]
        self.check_same(
            "SELECT t::text FROM t ORDER BY 1", "SELECT count(*), sum(k) FROM t", *routed
        )

    def split(self, shard: int, workers: str = "") -> list:
        with self.node.connect() as session:
            return session.execute(f"SELECT strata.split_shard('t', {shard}{workers})").fetchall()


@pytest.fixture
def table(made: Cluster) -> Iterator[Table]:
    table = Table(made)
    yield table
    table.forget("u", "t", "other")


@pytest.mark.parametrize("storage", ["columnar", "heap"])
@pytest.mark.parametrize("keys", [False, True])
def test_a_split_beside_writers(table: Table, storage: str, keys: bool) -> None:
    """In each phase of copying; halves get what is theirs, also rows that change again."""
    table.make(f"2, storage => '{storage}'")
    if keys:
        table.change("CREATE TABLE u (k integer)")
        table.node.execute("SELECT strata.create_distributed_table('u', 'k', colocate_with => 't')")
        table.change(
            "INSERT INTO u SELECT k FROM t WHERE k % 14 = 3",
            "ALTER TABLE u ADD FOREIGN KEY (k) REFERENCES t ON DELETE CASCADE",
        )
    arm(table.node, *[(phase, "wait") for phase in PHASES[:4]])
    with ThreadPoolExecutor(1) as pool:
        split = pool.submit(table.split, 1)
        try:
            for _ in PHASES[:4]:
                wait_for_arrival(table.node)
                table.change(*WORK)
                release(table.node)
        finally:
            disarm(table.node)
        assert split.result(patience(60))[0][0] > 1000
    assert table.node.query(SHARDS) == [(0, 2), (1, 4), (3, 4)]
    table.check()
    if keys:
        query = "SELECT count(*), count(t.k) FROM u LEFT JOIN t USING (k)"
        assert table.node.query(query) == table.plain.query(query)
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            table.node.execute("INSERT INTO u VALUES (-1)")
    table.change(*WORK)
    table.check()


def test_periods_are_split(table: Table) -> None:
    definition = "CREATE TABLE t (k integer, at date NOT NULL, v integer)"
    table.change(definition)
    table.node.execute(
        "SELECT strata.create_distributed_table('t', 'k', 2, partition_by => 'at', partition_interval => '1 month')"
    )
    table.change(
        "INSERT INTO t SELECT g, date_trunc('month', current_date) + g % 4 * interval '1 month', g"
        " FROM generate_series(1, 3000) AS g",
        "INSERT INTO t SELECT g, '1999-01-01', 0 FROM generate_series(1, 50) AS g",
    )
    assert table.split(0)[0][0] > 1000
    table.check()
    table.change("UPDATE t SET at = at + interval '1 month' WHERE v % 3 = 0")
    table.check()


def test_a_shard_is_split_again_and_again(table: Table) -> None:
    """To the smallest there is; tables that are made later have the same shards."""
    table.make("1")
    for _ in range(12):
        table.split(0)
    assert table.node.query("SELECT shard_count FROM strata.tables") == [(13,)]
    assert table.node.query(SHARDS)[:3] == [(0, 4096), (1, 2), (2, 4)]
    table.check()
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="cannot be split any more"):
        table.split(0)
    table.change("CREATE TABLE u (k integer, n integer)")
    table.node.execute("SELECT strata.create_distributed_table('u', 'k', colocate_with => 't')")
    table.change("INSERT INTO u SELECT k, k FROM t")
    query = "SELECT count(*), sum(n) FROM t JOIN u USING (k) WHERE v <> ''"
    assert table.node.query(query) == table.plain.query(query)
    table.change("ALTER TABLE t RENAME TO other", "ALTER TABLE other RENAME TO t")
    table.split(1, ", '{worker2,worker3}'" if home_of(table, 1) == "worker1" else "")
    for worker in ("worker1", "worker2", "worker3"):
        table.node.execute(f"SELECT strata.move_shard('u', 2048, '{worker}')")
        table.check()
    table.node.execute("SELECT strata.alter_distributed_table('u', shard_count => 2)")
    assert table.node.query(query) == table.plain.query(query)


def home_of(table: Table, shard: int) -> str:
    ((worker,),) = table.node.query(
        f"SELECT worker FROM strata.shards WHERE relation = 't'::regclass AND shard = {shard}"
    )
    return worker


def test_where_halves_go(table: Table) -> None:
    table.make("1, storage => 'heap'")
    home = home_of(table, 0)
    others = sorted({"worker1", "worker2", "worker3"} - {home})
    table.split(0)
    assert sorted(home_of(table, shard) for shard in (0, 1)) == others
    table.split(0, f", '{{{home}}}'")
    assert [home_of(table, shard) for shard in (0, 2)] == [home, home]
    table.split(1, f", ARRAY['{home}']")
    table.check()
    for workers, error in (
        (f", '{{{home_of(table, 2)}}}'", "to other workers than its own"),
        (", '{nobody}'", 'worker "nobody" does not exist'),
        (", '{worker1,worker2,worker3}'", "to one worker or two, not 3"),
        (", '{}'", "to one worker or two, not 0"),
        (", '{worker1,NULL}'", "must not be null"),
    ):
        with pytest.raises(psycopg.Error, match=error):
            table.split(2, workers)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="has no shard 4"):
        table.split(4)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="has no shard 4"):
        table.node.execute("SELECT strata.move_shard('t', 4, 'worker1')")
    with pytest.raises(psycopg.errors.WrongObjectType):
        table.node.execute("SELECT strata.split_shard('pg_class', 0)")
    with table.node.connect() as session:
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        with pytest.raises(psycopg.errors.ActiveSqlTransaction):
            session.execute("SELECT strata.split_shard('t', 2)")
    table.check()


def test_a_split_that_fails_leaves_the_shard(table: Table) -> None:
    """At each step, and when its transaction is rolled back."""
    table.make("1, storage => 'heap'")
    for place in PHASES:
        arm(table.node, (place, "error"))
        with pytest.raises(psycopg.Error, match="fault point"):
            table.split(0)
        disarm(table.node)
        assert table.node.query(SHARDS) == [(0, 1)]
    with table.node.connect() as session:
        session.execute("BEGIN; SELECT strata.split_shard('t', 0)")
        session.execute("ROLLBACK")
    table.check()
    assert table.split(0) == [(3000,)]
    table.check()


def test_older_snapshots_begin_again(table: Table) -> None:
    table.make("2")
    with table.node.connect() as old, table.node.connect() as prepared:
        prepared.execute("PREPARE p AS SELECT count(*) FROM t WHERE k = $1")
        for key in range(1, 8):
            assert prepared.execute(f"EXECUTE p ({key})").fetchall() == [(1,)]
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
        table.split(1)
        with pytest.raises(psycopg.errors.SerializationFailure):
            old.execute("SELECT count(*) FROM t")
        for key in range(1, 200):
            assert prepared.execute(f"EXECUTE p ({key})").fetchall() == [(1,)]
    table.check()


def test_groups_with_halves_are_balanced_drained_and_found() -> None:
    """Also by a coordinator that was restored to a time before the split, and after a worker was lost."""
    with Cluster(new_root(), workers=3, plain=True) as cluster:
        table = Table(cluster)
        table.make("2")
        original = cluster.coordinator
        copy = copy_coordinator(cluster, "copy")
        table.split(0)
        table.split(1)
        table.split(2)
        original.stop()
        copy.start()
        copy.execute("SELECT strata.take_over()")
        for _ in wait_until("the copy is the coordinator"):
            try:
                assert copy.query("SELECT strata.adopt_shards()") == [(2,)]
                break
            except psycopg.Error:
                continue
        assert copy.query(SHARDS) == [(0, 4), (1, 4), (2, 8), (3, 4), (6, 8)]
        table.node = copy
        table.check()
        copy.execute("SELECT strata.rebalance_start('count', drain => 'worker3')")
        copy.execute("SELECT strata.rebalance_wait()")
        table.check()
        worker = next(each for each in cluster.workers if each.name == home_of(table, 6))
        worker.stop("immediate")
        for _ in wait_until("it is known to be lost", timeout=60):
            try:
                copy.execute(f"SELECT strata.remove_worker('{worker.name}', lost => true)")
                break
            except psycopg.Error:
                continue
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="was lost with"):
            copy.query("SELECT count(*) FROM t")
        copy.execute("SELECT strata.recreate_lost_shards('t')")
        assert copy.query(SHARDS) == [(0, 4), (1, 4), (2, 8), (3, 4), (6, 8)]
        left = copy.query("SELECT count(*) FROM t")[0][0]
        assert 0 < left < 3000
        copy.execute(
            "INSERT INTO t SELECT g, '' FROM generate_series(1, 3000) AS g ON CONFLICT DO NOTHING"
        )
        assert copy.query("SELECT count(*), count(DISTINCT k) FROM t") == [(3000, 3000)]
        copy.stop()
