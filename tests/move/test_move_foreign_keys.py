"""Shards of tables with foreign keys move beside readers and writers, and the keys hold at every moment."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.cluster import Cluster, Node
from tests.fault_points import arm, disarm, release, wait_for_arrival
from tests.move.moving import Twins
from tests.waiting import patience, wait_until

DEFINITION = """
    CREATE TABLE kind (id integer PRIMARY KEY, name text);
    CREATE TABLE customer (k integer PRIMARY KEY, kind integer);
    CREATE TABLE placed (k integer, id integer, parent integer, kind integer, PRIMARY KEY (k, id), UNIQUE (id, k));
    CREATE INDEX ON placed (kind) WITH (fillfactor = 70);
"""

KEYS = """
    ALTER TABLE customer ADD FOREIGN KEY (kind) REFERENCES kind ON DELETE SET NULL ON UPDATE CASCADE;
    ALTER TABLE placed ADD CONSTRAINT whose FOREIGN KEY (k) REFERENCES customer ON DELETE CASCADE;
    ALTER TABLE placed ADD CONSTRAINT "of kind" FOREIGN KEY (kind) REFERENCES kind ON DELETE CASCADE ON UPDATE CASCADE;
    ALTER TABLE placed ADD CONSTRAINT above FOREIGN KEY (k, parent) REFERENCES placed
        ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED;
"""

ROWS = [
    "INSERT INTO kind SELECT g, 'kind ' || g FROM generate_series(1, 20) AS g",
    "INSERT INTO customer SELECT g, g % 20 + 1 FROM generate_series(1, 400) AS g",
    "INSERT INTO placed SELECT k, i, CASE WHEN i > 1 THEN i - 1 END, (k + i) % 20 + 1"
    " FROM generate_series(1, 400) AS k, generate_series(1, 5) AS i",
]

# In each: rows of the shard come, go and change, also by actions of the keys and through the reference table.
WORK = [
    "INSERT INTO customer SELECT (SELECT max(k) FROM customer) + g, NULL FROM generate_series(1, 50) AS g",
    "INSERT INTO placed (k, id, kind) SELECT max(k), 1, (SELECT max(id) FROM kind) FROM customer",
    "DELETE FROM customer WHERE k % 17 = (SELECT count(*) FROM customer) % 17",
    "DELETE FROM kind WHERE id = (SELECT max(id) FROM kind)",
    "UPDATE kind SET id = id + 1000 WHERE id = (SELECT min(id) FROM kind)",
    "UPDATE placed SET kind = (SELECT max(id) FROM kind) WHERE id = 2",
]

TABLES = ["kind", "customer", "placed"]

# What a partition has, but for names of its own and the bounds.
PARTS = """
    SELECT c.conname, c.contype, c.convalidated, c.condeferrable, c.condeferred, c.conparentid <> 0, c.coninhcount,
           c.conislocal, pg_get_constraintdef(c.oid),
           (SELECT array_agg(format('%s %s', t.tgtype, t.tgenabled) ORDER BY 1)
              FROM (SELECT t.* FROM pg_trigger AS t WHERE t.tgconstraint = c.oid ORDER BY t.tgtype, t.tgrelid) AS t)
      FROM pg_constraint AS c WHERE c.conrelid = 'TABLE'::regclass
    UNION ALL
    SELECT 'to', c.contype, c.convalidated, c.condeferrable, c.condeferred, c.conparentid <> 0, c.coninhcount,
           c.conislocal, c.conrelid::regclass::text, NULL
      FROM pg_constraint AS c WHERE c.confrelid = 'TABLE'::regclass
    UNION ALL
    SELECT CASE WHEN i.inhparent IS NULL THEN x.indexrelid::regclass::text ELSE i.inhparent::regclass::text END,
           'i', x.indisvalid, x.indisprimary, x.indisunique, i.inhparent IS NOT NULL, 0, false,
           array_to_string(c.reloptions, ','), NULL
      FROM pg_index AS x JOIN pg_class AS c ON c.oid = x.indexrelid
      LEFT JOIN pg_inherits AS i ON i.inhrelid = x.indexrelid
     WHERE x.indrelid = 'TABLE'::regclass
    ORDER BY 1, 2, 9
"""


class Orders(Twins):
    def make(self, storage: str) -> None:
        self.change(DEFINITION)
        self.node.execute(
            "SELECT strata.create_reference_table('kind');"
            f"SELECT strata.create_distributed_table('customer', 'k', 2, storage => '{storage}');"
            f"SELECT strata.create_distributed_table('placed', 'k', colocate_with => 'customer', storage => '{storage}')"
        )
        self.change(KEYS)
        self.change(*ROWS)

    def check(self) -> None:
        self.check_same(*[f"SELECT t::text FROM {table} AS t ORDER BY 1" for table in TABLES])

    def home(self) -> tuple[Node, Node]:
        ((worker,),) = self.node.query(
            "SELECT worker FROM strata.shards WHERE relation = 'customer'::regclass AND shard = 0"
        )
        here, other = sorted(self.cluster.workers, key=lambda each: each.name != worker)
        return here, other

    def move(self, worker: str) -> list:
        with self.node.connect() as session:
            return session.execute(f"SELECT strata.move_shard('placed', 0, '{worker}')").fetchall()

    def parts(self, node: Node, remainder: int) -> list:
        found = []
        for table in TABLES[1:]:
            rows = node.query(PARTS.replace("TABLE", f"{table}_s{remainder}"))
            # what refers to it says so of each partition
            found += [tuple(str(v).replace(f"_s{remainder}", "_s") for v in row) for row in rows]
        return found


@pytest.fixture
def orders(made: Cluster) -> Iterator[Orders]:
    orders = Orders(made)
    yield orders
    orders.forget("placed", "customer", "kind")


PHASES = ["shard_move_prepared", "shard_move_filled", "shard_move_round", "shard_move_copied"]


@pytest.mark.parametrize("storage", ["heap", "columnar"])
def test_writers_go_on(orders: Orders, storage: str) -> None:
    """In each phase; afterwards the partitions are what they would be had they been made with their tables."""
    orders.make(storage)
    source, target = orders.home()
    before = orders.parts(source, 0)
    arm(orders.node, *[(phase, "wait") for phase in PHASES])
    with ThreadPoolExecutor(1) as pool:
        move = pool.submit(orders.move, target.name)
        try:
            for _ in PHASES:
                wait_for_arrival(orders.node)
                orders.change(*[f"SET lock_timeout = '5s'; {statement}" for statement in WORK])
                orders.check()
                release(orders.node)
        finally:
            disarm(orders.node)
        assert move.result(patience(60))[0][0] > 100
    assert orders.home()[0].name == target.name
    orders.check()
    assert orders.parts(target, 0) == before
    for worker in (source, target):
        assert worker.query("SELECT conname FROM pg_constraint WHERE conname ~ 'strata_'") == []
    orders.change(*WORK)
    orders.check()
    orders.move(source.name)
    orders.change(*WORK)
    orders.check()
    assert orders.parts(source, 0) == before


@pytest.mark.parametrize("storage", ["heap", "columnar"])
def test_keys_hold_afterwards(orders: Orders, storage: str) -> None:
    orders.make(storage)
    _, target = orders.home()
    orders.move(target.name)
    for statement in (
        "INSERT INTO placed VALUES (-1, 1, NULL, 1)",
        "INSERT INTO placed VALUES (1, 9, NULL, 99)",
        "INSERT INTO placed VALUES (1, 9, 8, 1)",
        "INSERT INTO placed SELECT k, 9, 8, 1 FROM customer",
        "UPDATE placed SET parent = 77 WHERE id = 3",
        "UPDATE customer SET kind = 99",
    ):
        for node in (orders.node, orders.plain):
            with pytest.raises(psycopg.errors.ForeignKeyViolation):
                node.execute(statement)
    orders.change(
        "ALTER TABLE placed DROP CONSTRAINT whose", "ALTER TABLE placed DROP CONSTRAINT above"
    )
    orders.change("DELETE FROM customer", "INSERT INTO placed VALUES (-1, 1, 8, NULL)")
    orders.check()


@pytest.mark.parametrize(
    ("statement", "table"),
    [
        ("DELETE FROM kind WHERE id = 7", "kind"),
        ("UPDATE kind SET id = 70 WHERE id = 7", "kind"),
        ("DELETE FROM customer WHERE k < 100", "customer"),
        ("INSERT INTO placed SELECT k, 9, NULL, 7 FROM customer", "placed"),
    ],
)
def test_the_switch_waits_for_changes_of_what_keys_point_to(
    orders: Orders, statement: str, table: str
) -> None:
    """A transaction may have cascaded on one worker and not yet on the other."""
    orders.make("heap")
    _, target = orders.home()
    with orders.node.connect() as session, ThreadPoolExecutor(1) as pool:
        session.execute("BEGIN")
        session.execute(statement)
        move = pool.submit(orders.move, target.name)
        with pytest.raises(TimeoutError):
            move.result(1.5)
        assert orders.node.query("SELECT count(*) FROM placed")[0][0] == 2000
        session.execute("COMMIT")
        orders.plain.execute(statement)
        assert move.result(patience(60))[0][0] > 100
    orders.check()
    assert orders.home()[0].name == target.name
    assert orders.node.query(f"SELECT count(*) FROM {table}") == orders.plain.query(
        f"SELECT count(*) FROM {table}"
    )


@pytest.mark.parametrize("place", ["source", "target"])
@pytest.mark.parametrize("table", ["kind", "customer"])
def test_nobody_waits_behind_readers_of_what_keys_point_to(
    orders: Orders, place: str, table: str
) -> None:
    """One who joins a reference table with others, or whom a dead coordinator has left, reads it on a worker only."""
    orders.make("heap")
    source, target = orders.home()
    reader = source if place == "source" else target
    with ThreadPoolExecutor(1) as pool, reader.connect() as session:
        session.execute(f"BEGIN; LOCK TABLE {table} IN ACCESS SHARE MODE")
        move = pool.submit(orders.move, target.name)
        with pytest.raises(TimeoutError):
            move.result(1.5)
        with orders.node.connect() as other:
            other.execute("SET statement_timeout = '5s'")
            other.execute("UPDATE placed SET kind = kind WHERE k < 9 AND kind < 3")
        assert not move.done()
        session.execute("COMMIT")
        assert move.result(patience(60))[0][0] > 100
    orders.check()


@pytest.mark.parametrize(
    ("place", "leaf"), [("target", "customer_s1"), ("source", "kind"), ("coordinator", "kind")]
)
def test_autovacuum_gives_way(orders: Orders, place: str, leaf: str) -> None:
    """Of another shard, or of what keys point to: it may take longer than anybody waits for the switch."""
    orders.make("heap")
    table, column = ("kind", "id") if leaf == "kind" else ("customer", "k")
    orders.change(
        f"INSERT INTO {table} SELECT g FROM generate_series(1001, 40000) AS g",
        f"DELETE FROM {table} WHERE {column} > 1000 AND {column} % 2 = 1",
    )
    source, target = orders.home()
    node = {"source": source, "target": target, "coordinator": orders.node}[place]
    options = "autovacuum_vacuum_threshold=1,autovacuum_vacuum_cost_delay=100,autovacuum_vacuum_cost_limit=1"
    with ThreadPoolExecutor(1) as pool, node.connect() as session:
        session.execute(
            f"UPDATE pg_class SET reloptions = '{{{options}}}' WHERE oid = '{leaf}'::regclass"
        )
        session.execute("ALTER SYSTEM SET autovacuum_naptime = '1s'")
        session.execute("SELECT pg_reload_conf()")
        try:
            for _ in wait_until("autovacuum is there"):
                if session.execute(
                    f"SELECT FROM pg_stat_activity WHERE query ~ '^autovacuum: VACUUM.*{leaf}'"
                ).rowcount:
                    break
            begin = node.log_size()
            assert pool.submit(orders.move, target.name).result(patience(15))[0][0] > 100
            assert "canceling autovacuum task" in node.log_text(begin)
        finally:
            session.execute("ALTER SYSTEM RESET autovacuum_naptime")
            session.execute("SELECT pg_reload_conf()")
    orders.check()


def test_keys_of_text_and_of_odd_names(orders: Orders) -> None:
    """The bounds of text keys are proven by reading the rows."""
    orders.change(
        'CREATE TABLE "A b" ("K ey" text COLLATE "C" PRIMARY KEY)',
        'CREATE TABLE "it\'s" ("K ey" text COLLATE "C" REFERENCES "A b", v integer)',
    )
    orders.node.execute(
        """SELECT strata.create_distributed_table('"A b"', 'K ey', 2, storage => 'heap');
           SELECT strata.create_distributed_table('"it''s"', 'K ey', colocate_with => '"A b"')"""
    )
    orders.change(
        'INSERT INTO "A b" SELECT md5(g::text) FROM generate_series(1, 500) AS g',
        'INSERT INTO "it\'s" SELECT "K ey", length("K ey") FROM "A b"',
    )
    with orders.node.connect() as session:
        for shard in (0, 1):
            for worker in orders.cluster.workers:
                session.execute("SELECT strata.move_shard('\"A b\"', %s, %s)", (shard, worker.name))
    for node in (orders.node, orders.plain):
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            node.execute("INSERT INTO \"it's\" VALUES ('x', 1)")
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            node.execute('DELETE FROM "A b"')
        assert node.query('SELECT count(*), sum(v) FROM "it\'s" JOIN "A b" USING ("K ey")') == [
            (500, 16000)
        ]
        node.execute('DROP TABLE "it\'s", "A b"')
