"""Reference tables that are partitioned or inherit: as on plain PostgreSQL, and the same on all nodes."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from tests.cluster import Cluster
from tests.pair import Pair, open_pair
from tests.same_trees import SHAPES, nodes_alike
from tests.waiting import patience, wait_until

SCHEMA = "test_reference_trees"


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, SCHEMA) as made:
        made.execute("CREATE TABLE d (k integer, v integer)")
        made.distribute("d", "k", shards=4)
        made.execute("INSERT INTO d SELECT g, g % 50 FROM generate_series(1, 300) AS g")
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    data.reset()
    data.execute("CREATE SCHEMA trees; SET search_path = trees, test_reference_trees, strata")
    yield data
    data.reset()
    data.execute("RESET ROLE; DROP SCHEMA trees CASCADE; SET search_path = test_reference_trees")


def alike(pair: Pair) -> None:
    nodes_alike(pair.ours, pair.cluster.workers)


def kinds(pair: Pair) -> dict[str, str]:
    return dict(pair.rows("SELECT relation::text, kind FROM strata.tables ORDER BY 1"))


def refused(pair: Pair, statement: str, sqlstate: str = "0A000") -> str:
    with pytest.raises(psycopg.Error) as caught:
        pair.ours.execute(statement)
    assert caught.value.sqlstate == sqlstate, caught.value
    return str(caught.value)


PARTITIONED = {
    "range": (
        "CREATE TABLE p (id integer NOT NULL, a integer, b text, c numeric) PARTITION BY RANGE (a)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (MINVALUE) TO (100)",
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (200)",
        "CREATE TABLE p3 PARTITION OF p DEFAULT",
    ),
    "list": (
        "CREATE TABLE p (id integer NOT NULL, a integer, b text, c numeric) PARTITION BY LIST (b)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES IN ('x1', 'x2', NULL)",
        "CREATE TABLE \"P'2\"\"\" PARTITION OF p FOR VALUES IN ('x''3')",
        "CREATE TABLE p3 PARTITION OF p DEFAULT",
    ),
    "hash": (
        "CREATE TABLE p (id integer NOT NULL, a integer, b text, c numeric) PARTITION BY HASH (a, b)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
        "CREATE TABLE p2 PARTITION OF p FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
    ),
    "levels": (
        "CREATE TABLE p (id integer NOT NULL, a integer, b text, c numeric) PARTITION BY RANGE (a)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100) PARTITION BY LIST (b)",
        "CREATE TABLE p11 PARTITION OF p1 FOR VALUES IN ('x1', 'x2')",
        "CREATE TABLE p12 PARTITION OF p1 DEFAULT PARTITION BY HASH (a)",
        "CREATE TABLE p121 PARTITION OF p12 FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
        "CREATE TABLE p2 PARTITION OF p DEFAULT",
    ),
    "expression": (
        "CREATE TABLE p (id integer NOT NULL, a integer, b text, c numeric) PARTITION BY RANGE ((a % 10), lower(b))",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0, MINVALUE) TO (5, 'x2')",
        "CREATE TABLE p2 PARTITION OF p DEFAULT",
    ),
    "order": (
        "CREATE TABLE p (id integer NOT NULL, a integer, gone integer, b text, c numeric) PARTITION BY RANGE (a)",
        "ALTER TABLE p DROP COLUMN gone",
        "CREATE TABLE p1 (c numeric, x date, b text, a integer, id integer NOT NULL)",
        "ALTER TABLE p1 DROP COLUMN x",
        "ALTER TABLE p ATTACH PARTITION p1 FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE p2 PARTITION OF p DEFAULT",
    ),
}
READS = [
    "SELECT * FROM p ORDER BY a, b, c",
    "SELECT tableoid::regclass::text, a FROM p ORDER BY a, b, c",
    "SELECT p FROM p ORDER BY a, b, c",
    "SELECT count(*), sum(c) FROM ONLY p",
    "SELECT count(*), sum(p.c) FROM p JOIN d ON d.v = p.a",
    "SELECT count(*), sum(p.c) FROM d JOIN ONLY p ON d.v = p.a",
    "SELECT d.k, p.b FROM d LEFT JOIN p ON d.v = p.a AND p.b <> 'x2' ORDER BY 1, 2",
    "SELECT p.b, count(*) FROM d JOIN p ON d.k = p.a GROUP BY p.b",
    "SELECT count(*) FROM d WHERE v IN (SELECT a FROM p WHERE a < 20)",
    "SELECT p.tableoid::regclass::text, count(*) FROM d JOIN p ON d.v = p.a GROUP BY 1",
    "SELECT p::text, d.k FROM d JOIN p ON d.v = p.a ORDER BY 1, 2 LIMIT 5",
    "SELECT count(*) FROM d JOIN p ON d.v = p.a JOIN p AS q ON q.a = d.k",
]
FILL = (
    "INSERT INTO p (id, a, b, c) SELECT g, g, CASE WHEN g % 7 > 0 THEN 'x' || g % 5 END, g / 7.0"
    " FROM generate_series(1, 250) AS g"
)
CHANGES = [
    "INSERT INTO p (id, a, b, c) VALUES (1000, 1000, 'x3', 1), (1001, 7, 'x1', 2) RETURNING *",
    "UPDATE p SET c = c + 1 WHERE a < 30",
    "UPDATE p SET a = a + 500, b = b || '9' WHERE a % 9 = 0 RETURNING a, b, c",
    "DELETE FROM p WHERE a % 11 = 0",
    "INSERT INTO p (id, a, b, c) VALUES (1000, 1000, 'x3', 1) ON CONFLICT DO NOTHING",
    "UPDATE p SET c = 0 FROM d WHERE d.k = p.a AND d.v = 3",
    "DELETE FROM p USING d WHERE d.k = p.a AND d.v = 4",
    "MERGE INTO p USING d ON p.a = d.k WHEN MATCHED AND d.v < 5 THEN UPDATE SET a = p.a + 1000"
    " WHEN MATCHED AND d.v = 6 THEN DELETE WHEN NOT MATCHED AND d.v = 1 THEN"
    " INSERT (id, a, b, c) VALUES (d.k + 5000, d.k, 'x7', 5)",
    "UPDATE d SET v = v + 1 FROM p WHERE p.a = d.k AND p.a < 10",
    "UPDATE d SET v = v - 1 FROM p WHERE p.a = d.k AND p.a < 10",
    "DELETE FROM ONLY p",
    "SELECT count(*) FROM (SELECT FROM p WHERE a < 50 FOR UPDATE) AS locked",
    "SELECT d.k FROM d JOIN p ON p.a = d.k WHERE p.a < 20 ORDER BY 1",
]


LEAVES = """
SELECT format('ALTER TABLE %s ADD PRIMARY KEY (id)', relid) FROM pg_partition_tree('p') WHERE isleaf
"""


def replicate(pair: Pair, *tables: str) -> None:
    for table in tables:
        pair.ours.execute("SELECT strata.create_reference_table(%s::regclass)", (table,))


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", PARTITIONED)
@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_partitioned(pair: Pair, kind: str, first: bool) -> None:
    """A table becomes a reference table before it has partitions and rows, or after."""
    create, *others = PARTITIONED[kind]
    pair.execute(create)
    if first:
        replicate(pair, "p")
    pair.execute(";".join(others))
    pair.execute(";".join(row[0] for row in pair.rows(LEAVES)))
    pair.same(FILL)
    if not first:
        replicate(pair, "p")
    assert kinds(pair).keys() >= {"p", "p1"}
    alike(pair)
    pair.all_same(READS)
    for change in CHANGES:
        pair.same(change)
        alike(pair)
    pair.all_same(READS)
    with pair.transaction():
        pair.same("TRUNCATE p")
        pair.all_same(READS)
    pair.ours.execute("SELECT strata.undistribute_table('p')")
    pair.all_same(READS)
    assert kinds(pair).keys().isdisjoint({"p", "p1", "p2", "p3"})
    alike(pair)


# ---------------------------------------------------------------- inheritance

INHERITANCE = """
CREATE TABLE a (id integer PRIMARY KEY, x integer, CONSTRAINT positive CHECK (x > 0));
CREATE TABLE b (id integer PRIMARY KEY, y text DEFAULT 'y', only_b integer, CHECK (only_b > 0) NO INHERIT);
CREATE TABLE a1 (z integer, PRIMARY KEY (id)) INHERITS (a);
CREATE TABLE ab (w integer, PRIMARY KEY (id), only_b integer) INHERITS (a, b);
CREATE TABLE a11 (PRIMARY KEY (id)) INHERITS (a1)
"""
INHERITED_ROWS = """
INSERT INTO a VALUES (1, 10), (2, 20);
INSERT INTO b VALUES (3, 'b', 3);
INSERT INTO a1 VALUES (4, 40, 400), (5, 50, 500);
INSERT INTO ab (id, x, w) VALUES (6, 60, 600), (7, 70, 700);
INSERT INTO a11 VALUES (8, 80, 800), (9, 90, 900)
"""
INHERITED_READS = [
    "SELECT *, tableoid::regclass::text FROM a ORDER BY id",
    "SELECT * FROM ONLY a ORDER BY id",
    "SELECT * FROM b ORDER BY id",
    "SELECT a::text FROM a ORDER BY id",
    "SELECT count(*), sum(x) FROM a JOIN d ON d.k = a.x",
    "SELECT count(*), sum(x) FROM ONLY a JOIN d ON d.k = a.x",
    "SELECT count(*) FROM a JOIN b USING (id) JOIN d ON d.v = a.id",
    "SELECT d.k, a1.z FROM d LEFT JOIN a1 ON d.k = a1.id WHERE d.k < 12 ORDER BY 1, 2",
    "SELECT d.k, a1.z FROM d LEFT JOIN ONLY a1 ON d.k = a1.id WHERE d.k < 12 ORDER BY 1, 2",
    "SELECT a.tableoid::regclass::text, count(*) FROM d JOIN a ON d.v = a.id GROUP BY 1",
    "SELECT a, d.k FROM d JOIN a ON d.v = a.id WHERE d.k < 60 ORDER BY 2",
]


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_inheritance(pair: Pair, first: bool) -> None:
    create, *children = [part for part in INHERITANCE.strip().split(";") if part]
    if first:
        pair.execute(f"{create};{children.pop(0)}")
        replicate(pair, "a", "b")
    pair.execute(";".join([create, *children] if not first else children))
    pair.execute(INHERITED_ROWS)
    if not first:
        assert "which is none" in refused(
            pair, "SELECT strata.create_reference_table('a')", "42809"
        )
        pair.execute("ALTER TABLE ab NO INHERIT b")
        replicate(pair, "a", "b")
        pair.execute("ALTER TABLE ab INHERIT b")
    assert kinds(pair).keys() >= {"a", "b", "a1", "ab", "a11"}
    alike(pair)
    pair.all_same(INHERITED_READS)
    for change in [
        "UPDATE a SET x = x + 1 WHERE id > 1",
        "UPDATE ONLY a SET x = x + 1",
        "UPDATE b SET y = y || '!' FROM d WHERE d.k = b.id",
        "DELETE FROM a WHERE id IN (5, 7)",
        "DELETE FROM ONLY a WHERE id IN (2, 8)",
        "INSERT INTO a1 VALUES (8, 1, 1)",
        "INSERT INTO ab (id, x) VALUES (2, 0)",
        "ALTER TABLE a ADD COLUMN more integer DEFAULT 5",
        "ALTER TABLE ONLY b ADD COLUMN wrong integer",
        "ALTER TABLE b ADD COLUMN w integer DEFAULT 3",
        "ALTER TABLE a ADD CONSTRAINT small CHECK (x < 1000)",
        "ALTER TABLE ONLY a ADD CONSTRAINT wrong CHECK (x < 1001)",
        "ALTER TABLE ONLY a ADD CONSTRAINT own CHECK (x < 50) NO INHERIT",
        "INSERT INTO a11 (id, x) VALUES (20, 2000)",
        "INSERT INTO a11 (id, x) VALUES (21, 200)",
        "INSERT INTO a (id, x) VALUES (22, 200)",
        "ALTER TABLE a ALTER x TYPE bigint",
        "ALTER TABLE a1 ALTER x TYPE integer",
        "ALTER TABLE a RENAME x TO renamed",
        "ALTER TABLE ONLY a RENAME renamed TO wrong",
        "ALTER TABLE a RENAME CONSTRAINT small TO smaller",
        "ALTER TABLE a RENAME renamed TO x",
        "ALTER TABLE a ALTER x SET NOT NULL",
        "ALTER TABLE ONLY a ALTER x DROP NOT NULL",
        "ALTER TABLE a ALTER x SET STATISTICS 7",
        "ALTER TABLE a SET (fillfactor = 70)",
        "ALTER TABLE a DROP CONSTRAINT positive",
        "ALTER TABLE ONLY a DROP CONSTRAINT smaller",
        "INSERT INTO a1 (id, x) VALUES (30, -1)",
        "ALTER TABLE ONLY a1 DROP COLUMN z",
        "ALTER TABLE a1 DROP COLUMN x",
        "ALTER TABLE a DROP COLUMN more",
        "ALTER TABLE a11 NO INHERIT a1",
        "ALTER TABLE a11 INHERIT a, INHERIT b",
        "ALTER TABLE a11 INHERIT a, DROP COLUMN IF EXISTS nothing",
        "ALTER TABLE b INHERIT ab",
        "CREATE INDEX ON a (x)",
        "CREATE TABLE ab2 (LIKE ab INCLUDING ALL) INHERITS (ab)",
        "CREATE TABLE IF NOT EXISTS ab2 () INHERITS (ab)",
        "ALTER TABLE a OWNER TO postgres",
        "DROP TABLE a1",
        "DROP TABLE b",
    ]:
        pair.same(change)
        alike(pair)
        pair.all_same(INHERITED_READS[:1])
    pair.all_same(INHERITED_READS[1:7])
    with pair.transaction():
        pair.same("TRUNCATE ONLY a")
        alike_in_transaction = pair.same("SELECT count(*) FROM a JOIN d ON d.k > 290")
        pair.same("TRUNCATE a, b")
        pair.same("SELECT count(*) FROM a")
        assert alike_in_transaction
    pair.same("TRUNCATE ONLY a")
    alike(pair)
    pair.same("TRUNCATE a")
    alike(pair)
    assert "inherits from" in refused(pair, "SELECT strata.undistribute_table('ab')", "55000")
    assert "inherits from" in refused(pair, "SELECT strata.undistribute_table('a')", "55000")
    pair.same("DROP TABLE a CASCADE")
    alike(pair)


# ---------------------------------------------------------------- into trees and out of them


def test_attach_and_detach(pair: Pair) -> None:
    """Indexes, constraints and foreign keys of what is attached, whether it was local before or not."""
    pair.execute("""
        CREATE TABLE f (id integer PRIMARY KEY);
        INSERT INTO f SELECT generate_series(0, 9);
        CREATE TABLE p (a integer, b integer CONSTRAINT b_of_f REFERENCES f, c integer NOT NULL,
            PRIMARY KEY (a)) PARTITION BY RANGE (a);
        CREATE INDEX p_b ON p (b, c);
        CREATE TABLE names_idx (); CREATE TABLE q_b_c_idx ();
        CREATE TABLE q (c integer NOT NULL, b integer CONSTRAINT other_name REFERENCES f, a integer NOT NULL);
        CREATE TABLE r (LIKE q) PARTITION BY RANGE (a);
        CREATE TABLE r1 (LIKE q);
        CREATE INDEX own ON r1 (b, c);
        ALTER TABLE r1 ADD CONSTRAINT key_of_r1 PRIMARY KEY (a);
        ALTER TABLE r ATTACH PARTITION r1 FOR VALUES FROM (100) TO (200);
        CREATE TABLE s (LIKE q);
        INSERT INTO q (a, b, c) SELECT g, g % 10, 1 FROM generate_series(1, 99) AS g;
        INSERT INTO r (a, b, c) SELECT g, g % 10, g % 2 + 1 FROM generate_series(100, 199) AS g""")
    replicate(pair, "f", "p", "r")
    for statement in [
        "ALTER TABLE p ATTACH PARTITION q FOR VALUES FROM (0) TO (50)",
        "ALTER TABLE p ATTACH PARTITION q FOR VALUES FROM (0) TO (100)",
        "ALTER TABLE p ATTACH PARTITION q FOR VALUES FROM (0) TO (100)",
        "ALTER TABLE p ATTACH PARTITION r FOR VALUES FROM (100) TO (200)",
        "ALTER TABLE p ATTACH PARTITION s DEFAULT",
        "ALTER TABLE p ATTACH PARTITION nothing DEFAULT",
        "INSERT INTO p VALUES (5, 1, 1)",
        "INSERT INTO p VALUES (1005, 11, 1)",
        "INSERT INTO p VALUES (1005, 1, 1)",
        "INSERT INTO p VALUES (105, 1, 3)",
        "DELETE FROM f WHERE id = 1",
        "UPDATE p SET a = 300 - a WHERE a < 90 AND a > 50",
        "ALTER TABLE p ADD CONSTRAINT once UNIQUE (c, a)",
        "CREATE UNIQUE INDEX twice ON p (a, c, b)",
        "CREATE INDEX half ON ONLY p (c)",
        "CREATE INDEX half_q ON q (c)",
        "ALTER INDEX half ATTACH PARTITION half_q",
        "ALTER TABLE p DROP CONSTRAINT once",
        "CREATE TABLE p_new PARTITION OF p FOR VALUES FROM (2000) TO (3000)",
        "CREATE TABLE p_wrong PARTITION OF p FOR VALUES FROM (2000) TO (3000)",
        "CREATE TABLE p_sub PARTITION OF p FOR VALUES FROM (3000) TO (4000) PARTITION BY HASH (a)",
        "CREATE TABLE p_sub1 PARTITION OF p_sub FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
        "INSERT INTO p VALUES (2001, 1, 1), (3001, 1, 1)",
        "ALTER TABLE p ALTER b TYPE bigint",
        "ALTER TABLE p ADD COLUMN n integer DEFAULT 4",
        "ALTER TABLE p ADD CHECK (n > 3)",
        "ALTER TABLE p ALTER n SET NOT NULL",
        "ALTER TABLE q ALTER n DROP NOT NULL",
        "ALTER TABLE p RENAME COLUMN n TO m",
        "ALTER TABLE q RENAME TO q_renamed",
        "ALTER TABLE p DETACH PARTITION r",
        "ALTER TABLE p DETACH PARTITION r",
        "INSERT INTO r (a, b, c, m) VALUES (5000, 1, 1, 7)",
        "DELETE FROM f WHERE id = 2",
        "ALTER TABLE p DETACH PARTITION q_renamed CONCURRENTLY",
        "ALTER TABLE p DETACH PARTITION s",
        "ALTER TABLE p DETACH PARTITION q_renamed CONCURRENTLY",
        "SELECT count(*) FROM p JOIN d ON d.k = p.a",
        "ALTER TABLE p DETACH PARTITION q_renamed FINALIZE",
        "INSERT INTO q_renamed VALUES (1, 1, 500, 4)",
        "DROP INDEX p_b",
        "DROP TABLE p_sub",
        "REINDEX TABLE p",
        "VACUUM p",
        "ANALYZE p",
        "DROP TABLE p",
        "SELECT count(*) FROM q_renamed JOIN d ON d.k = a",
    ]:
        pair.same(statement)
        alike(pair)
    assert kinds(pair).keys() >= {"q_renamed", "r", "r1", "s"}


@pytest.mark.parametrize("worker", [0, 1])
def test_concurrent_detach_without_worker(pair: Pair, worker: int) -> None:
    """A worker that is down leaves the partition half detached, as other failures do; FINALIZE goes on."""
    node = pair.cluster.workers[worker]
    pair.execute("""
        CREATE TABLE p (a integer, b integer, PRIMARY KEY (a)) PARTITION BY RANGE (a);
        CREATE TABLE q PARTITION OF p FOR VALUES FROM (0) TO (100);
        CREATE TABLE local (LIKE p)""")
    replicate(pair, "p")
    pair.execute("INSERT INTO p SELECT g, g FROM generate_series(1, 50) AS g")
    node.stop()
    try:
        for statement in (
            "CREATE TABLE r PARTITION OF p FOR VALUES FROM (100) TO (200)",
            "ALTER TABLE p ATTACH PARTITION local FOR VALUES FROM (100) TO (200)",
            "ALTER TABLE p DETACH PARTITION q",
            "ALTER TABLE p DETACH PARTITION q CONCURRENTLY",
        ):
            with pytest.raises(psycopg.Error):
                pair.ours.execute(statement)
        assert pair.rows("SELECT count(*) FROM p") == [(0,)]
    finally:
        node.start()
    pair.theirs.execute("ALTER TABLE p DETACH PARTITION q CONCURRENTLY")
    pair.same("SELECT count(*) FROM p JOIN d ON d.k = p.a")
    pair.ours.execute("ALTER TABLE p DETACH PARTITION q FINALIZE")
    pair.same("SELECT count(*) FROM p JOIN d ON d.k = p.a")
    pair.same("SELECT count(*) FROM q JOIN d ON d.k = q.a")
    alike(pair)


def test_an_index_that_another_session_makes_meanwhile(pair: Pair) -> None:
    """One command finds the other's index on its tree, whose own command has sent it to the workers."""
    pair.ours.execute(
        "CREATE TABLE p (a integer) PARTITION BY RANGE (a);"
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100);"
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (200);"
        "INSERT INTO p VALUES (1), (101);"
        "CREATE FUNCTION trees.slow (integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS"
        " $$ BEGIN PERFORM pg_catalog.pg_advisory_xact_lock(7); RETURN $1; END $$;"
        "SELECT create_reference_table('p')"
    )
    coordinator = pair.cluster.coordinator
    with coordinator.connect() as one, coordinator.connect() as holder:
        holder.execute("SELECT pg_advisory_lock(7)")
        making = threading.Thread(
            target=one.execute, args=["CREATE INDEX one ON trees.p (trees.slow(a))"]
        )
        making.start()
        for _ in wait_until("the first command waits"):
            if holder.execute(
                "SELECT 1 FROM pg_locks WHERE NOT granted AND pid = %s", [one.info.backend_pid]
            ).fetchall():
                break
        pair.ours.execute("CREATE INDEX other ON p2 (a)")
        holder.execute("SELECT pg_advisory_unlock(7)")
        making.join(patience(30))
        assert one.info.transaction_status == TransactionStatus.IDLE
    assert pair.ours.execute("SELECT to_regclass('one'), to_regclass('other')").fetchall() == [
        ("one", "other")
    ]
    alike(pair)


def test_mixtures(pair: Pair) -> None:
    pair.execute("""
        CREATE TABLE p (a integer) PARTITION BY RANGE (a);
        CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
        CREATE TABLE r (a integer) PARTITION BY RANGE (a);
        CREATE TABLE parent (a integer); CREATE TABLE dist (a integer); CREATE TABLE ref (a integer);
        CREATE TABLE local (a integer); CREATE UNLOGGED TABLE quick (a integer);
        CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing;
        CREATE FOREIGN TABLE far (a integer) SERVER nowhere""")
    replicate(pair, "ref", "r", "parent")
    pair.ours.execute("SELECT strata.create_distributed_table('dist', 'a')")
    for statement, reason in {
        "ALTER TABLE p ATTACH PARTITION ref FOR VALUES FROM (10) TO (20)": "reference table first",
        "ALTER TABLE local INHERIT dist": "neither parents nor children",
        "ALTER TABLE ref INHERIT local": "reference table first",
        "ALTER TABLE ref INHERIT dist": "neither parents nor children",
        "ALTER TABLE dist INHERIT parent": "neither parents nor children",
        "ALTER TABLE dist INHERIT local": "neither parents nor children",
        "ALTER TABLE r ATTACH PARTITION dist DEFAULT": "neither parents nor children",
        "CREATE TABLE c () INHERITS (dist)": "on several nodes",
        "CREATE UNLOGGED TABLE c () INHERITS (parent)": "unlogged",
        "CREATE UNLOGGED TABLE c PARTITION OF r DEFAULT": "unlogged",
        "ALTER TABLE r ATTACH PARTITION quick DEFAULT": "unlogged",
        "CREATE TEMP TABLE c () INHERITS (parent)": "temporary",
        "ALTER FOREIGN TABLE far INHERIT parent": "coordinator only",
        "ALTER TABLE far INHERIT parent": "coordinator only",
        "ALTER TABLE r ATTACH PARTITION far DEFAULT": "coordinator only",
        "CREATE FOREIGN TABLE c () INHERITS (parent) SERVER nowhere": "on several nodes",
        "CREATE FOREIGN TABLE c PARTITION OF r DEFAULT SERVER nowhere": "on several nodes",
    }.items():
        assert reason in refused(pair, statement), statement
    for statement, reason in {
        "SELECT strata.create_reference_table('p1')": "partition of",
        "CREATE TABLE c () INHERITS (parent, local)": "which is none",
        "SELECT strata.create_distributed_table('p1', 'a')": "is a partition",
    }.items():
        assert reason in refused(pair, statement, "42809"), statement
    pair.ours.execute("DROP TABLE dist")
    pair.execute("ALTER FOREIGN TABLE far INHERIT local; DROP FOREIGN DATA WRAPPER nothing CASCADE")
    alike(pair)


# ---------------------------------------------------------------- foreign keys, triggers, rows that move


def test_foreign_keys_to_a_tree(pair: Pair) -> None:
    """Rows that move between partitions take those that refer to them along, on all nodes."""
    pair.execute("""
        CREATE TABLE p (a integer, b integer, PRIMARY KEY (a)) PARTITION BY RANGE (a);
        CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100);
        CREATE TABLE p2 (b integer, gone integer, a integer NOT NULL);
        ALTER TABLE p2 DROP COLUMN gone;
        CREATE TABLE c (id integer PRIMARY KEY, a integer REFERENCES p ON UPDATE CASCADE ON DELETE CASCADE);
        CREATE TABLE n (id integer PRIMARY KEY, a integer REFERENCES p ON UPDATE SET NULL) PARTITION BY HASH (id);
        CREATE TABLE n1 PARTITION OF n FOR VALUES WITH (MODULUS 1, REMAINDER 0);
        CREATE TABLE dist (k integer PRIMARY KEY, a integer);
        INSERT INTO p SELECT g, g FROM generate_series(1, 50) AS g;
        INSERT INTO c SELECT g, g FROM generate_series(1, 30) AS g;
        INSERT INTO n SELECT g, g FROM generate_series(1, 30) AS g;
        INSERT INTO dist SELECT g, g FROM generate_series(1, 30) AS g""")
    replicate(pair, "p", "c", "n")
    pair.ours.execute("SELECT strata.create_distributed_table('dist', 'k', shard_count => 4)")
    pair.same(
        "ALTER TABLE dist ADD FOREIGN KEY (a) REFERENCES p ON UPDATE CASCADE ON DELETE SET NULL"
    )
    reads = [f"SELECT * FROM {table} ORDER BY 1" for table in ("p", "p1", "c", "n", "dist")]
    for statement in [
        "ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (100) TO (200)",
        "CREATE TABLE p3 PARTITION OF p DEFAULT",
        "UPDATE p SET a = a + 100 WHERE a BETWEEN 10 AND 20",
        "UPDATE p SET a = a + 200, b = 0 WHERE a BETWEEN 1 AND 5 RETURNING tableoid::regclass::text, *",
        "UPDATE p SET a = a - 100 WHERE a BETWEEN 110 AND 112",
        "UPDATE p SET b = b + 1",
        "DELETE FROM p WHERE a IN (115, 201)",
        "DELETE FROM p2 WHERE a = 116",
        "INSERT INTO p VALUES (21, 1), (117, 5) ON CONFLICT (a) DO UPDATE SET b = excluded.b + 500",
        "INSERT INTO dist VALUES (1000, 999)",
        "INSERT INTO dist VALUES (1000, 118)",
        "INSERT INTO c VALUES (1000, 999)",
        "INSERT INTO c VALUES (1000, 202)",
        "ALTER TABLE p DETACH PARTITION p3",
        "DELETE FROM c WHERE a > 200",
        "UPDATE dist SET a = NULL WHERE a > 200",
        "DELETE FROM n WHERE a > 200",
        "ALTER TABLE p DETACH PARTITION p3",
        "DELETE FROM p3",
        "DROP TABLE p2",
        "TRUNCATE p",
        "MERGE INTO p USING (VALUES (22), (50), (51)) AS v (x) ON p.a = v.x"
        " WHEN MATCHED THEN UPDATE SET a = p.a + 100 WHEN NOT MATCHED THEN INSERT VALUES (x, x)",
    ]:
        pair.same(statement)
        pair.all_same(reads)
        pair.ours.execute("ALTER TABLE dist SET SCHEMA test_reference_trees")
        alike(pair)
        pair.ours.execute("ALTER TABLE test_reference_trees.dist SET SCHEMA trees")
    pair.execute("""
        DROP TABLE dist;
        CREATE TABLE both_ways (a integer PRIMARY KEY REFERENCES p ON UPDATE CASCADE ON DELETE CASCADE)
            PARTITION BY RANGE (a);
        CREATE TABLE both_1 PARTITION OF both_ways FOR VALUES FROM (0) TO (100);
        CREATE TABLE both_2 PARTITION OF both_ways DEFAULT;
        CREATE TABLE last (a integer PRIMARY KEY REFERENCES both_ways ON UPDATE CASCADE ON DELETE CASCADE);
        INSERT INTO p VALUES (1, 1), (2, 2), (3, 3); INSERT INTO both_ways VALUES (1), (2); INSERT INTO last VALUES (1)""")
    replicate(pair, "both_ways", "last")
    for statement in (
        "UPDATE p SET a = a + 120 WHERE a = 1",
        "UPDATE p SET a = a + 10",
        "DELETE FROM p WHERE a = 131",
    ):
        pair.same(statement)
        pair.all_same(
            [
                *reads[:2],
                "SELECT a, tableoid::regclass::text FROM both_ways ORDER BY 1",
                "SELECT * FROM last",
            ]
        )
        alike(pair)
    pair.execute("DROP TABLE both_ways, last")
    pair.ours.execute(
        "SELECT strata.undistribute_table(t) FROM unnest(ARRAY['c', 'n', 'p']::regclass[]) AS t"
    )
    pair.all_same(reads[:3])


def test_triggers(pair: Pair) -> None:
    """Row triggers of partitions and parents fire as ever, also between a moving row's two halves."""
    pair.execute("""
        CREATE TABLE log (id serial PRIMARY KEY, what text);
        CREATE TABLE p (a integer, b text DEFAULT 'b', g integer GENERATED ALWAYS AS (a * 2) STORED,
            n integer GENERATED ALWAYS AS IDENTITY, PRIMARY KEY (a)) PARTITION BY RANGE (a);
        CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100);
        CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (200);
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO log (what) VALUES (concat_ws(' ', TG_TABLE_NAME, TG_WHEN, TG_OP, TG_LEVEL,
                CASE WHEN TG_OP IN ('INSERT', 'UPDATE') AND TG_LEVEL = 'ROW' THEN NEW.a END,
                (SELECT count(*) FROM p)));
            IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
            RETURN NEW;
        END $$;
        CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN NEW.b := NEW.b || '+'; RETURN NEW; END $$""")
    replicate(pair, "p")
    for timing in ("BEFORE", "AFTER"):
        pair.execute(f"""
            CREATE TRIGGER zz_{timing} {timing} INSERT OR UPDATE OR DELETE ON p FOR EACH ROW EXECUTE FUNCTION note();
            CREATE TRIGGER aa_{timing} {timing} INSERT OR UPDATE OR DELETE ON p FOR EACH STATEMENT EXECUTE FUNCTION note()""")
    pair.execute(
        "CREATE TRIGGER change BEFORE INSERT OR UPDATE ON p FOR EACH ROW EXECUTE FUNCTION change()"
    )
    for statement in [
        "INSERT INTO p (a) SELECT generate_series(1, 5)",
        "UPDATE p SET a = a + 1 WHERE a = 5",
        "UPDATE p SET a = a + 100 WHERE a < 3",
        "CREATE TABLE p3 PARTITION OF p DEFAULT",
        "UPDATE p SET a = a + 200 WHERE a = 4",
        "DELETE FROM p WHERE a > 200",
        "ALTER TABLE p DISABLE TRIGGER USER",
        "UPDATE p SET a = a + 300 WHERE a = 6",
        "ALTER TABLE p DETACH PARTITION p3",
        "ALTER TABLE p ATTACH PARTITION p3 DEFAULT",
        "ALTER TABLE p ENABLE TRIGGER USER",
        "TRUNCATE p1",
    ]:
        pair.same(statement)
        pair.same("SELECT * FROM p ORDER BY a")
        pair.same("SELECT what FROM log ORDER BY id")
        alike(pair)
    pair.copy("COPY p (a, b) FROM STDIN", "7\tx\n107\ty\n1007\tz\n")
    alike(pair)
    pair.same("SELECT * FROM p ORDER BY a")
    pair.execute(
        "ALTER TABLE p DISABLE TRIGGER USER;"
        "CREATE TABLE refers (a integer PRIMARY KEY REFERENCES p ON DELETE CASCADE)"
    )
    replicate(pair, "refers")
    pair.same("INSERT INTO refers VALUES (7), (107)")
    pair.same("UPDATE p SET a = a + 2 WHERE a = 1007")
    pair.execute("ALTER TABLE p ENABLE TRIGGER USER")
    # the workers would see a deletion
    assert "while the row is in neither" in refused(pair, "UPDATE p SET a = a + 101 WHERE a = 7")
    alike(pair)
    pair.all_same(["SELECT * FROM p ORDER BY a", "SELECT * FROM refers ORDER BY a"])


# ---------------------------------------------------------------- who may


def test_roles(pair: Pair) -> None:
    pair.execute("""
        DROP ROLE IF EXISTS tree_owner; DROP ROLE IF EXISTS tree_other; DROP ROLE IF EXISTS tree_reader;
        CREATE ROLE tree_owner LOGIN; CREATE ROLE tree_other; CREATE ROLE tree_reader;
        GRANT ALL ON SCHEMA trees TO tree_owner, tree_other; GRANT USAGE ON SCHEMA trees TO tree_reader;
        GRANT USAGE ON SCHEMA test_reference_trees TO PUBLIC; GRANT SELECT ON d TO PUBLIC;
        SET ROLE tree_owner;
        CREATE TABLE p (a integer PRIMARY KEY, b text) PARTITION BY RANGE (a);
        CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100);
        CREATE TABLE a (x integer PRIMARY KEY);
        RESET ROLE; SET ROLE tree_other; CREATE TABLE other (a integer NOT NULL, b text); CREATE TABLE o (x integer);
        RESET ROLE; SET ROLE tree_owner""")
    replicate(pair, "p", "a")
    for statement in [
        "ALTER TABLE p ATTACH PARTITION other DEFAULT",
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (200)",
        "CREATE TABLE a1 (y integer) INHERITS (a)",
        "INSERT INTO a1 VALUES (1, 2)",
        "INSERT INTO p SELECT g, 'r' || g % 3 FROM generate_series(1, 150) AS g",
        "ALTER TABLE p ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY some ON p USING (b <> 'r1')",
        "GRANT SELECT, UPDATE, INSERT ON p TO tree_reader",
        "GRANT SELECT ON a TO tree_reader",
        "SET ROLE tree_other",
        "CREATE TABLE bad PARTITION OF p FOR VALUES FROM (300) TO (400)",
        "CREATE TABLE bad () INHERITS (a)",
        "ALTER TABLE o INHERIT a",
        "ALTER TABLE p DETACH PARTITION p1",
        "DROP TABLE p1",
        "SELECT count(*) FROM p",
        "RESET ROLE",
        "SET ROLE tree_reader",
        "SELECT count(*) FROM p",
        "SELECT count(*) FROM p1",
        "SELECT count(*) FROM p JOIN d ON d.k = p.a",
        "SELECT count(*) FROM p1 JOIN d ON d.k = p1.a",
        "SELECT count(*) FROM a JOIN d ON d.k = a.x",
        "SELECT count(*) FROM ONLY a JOIN d ON d.k = a.x",
        "SELECT count(*) FROM a1 JOIN d ON d.k = a1.x",
        "UPDATE p SET a = a + 100 WHERE a = 3",
        "UPDATE p SET b = 'r1' WHERE a = 6",
        "INSERT INTO p VALUES (199, 'r1')",
        "INSERT INTO p VALUES (199, 'r2')",
        "UPDATE p SET a = a - 150 WHERE a = 199",
        "RESET ROLE",
        "ALTER TABLE p2 OWNER TO tree_other",
        "ALTER TABLE p ADD COLUMN c integer DEFAULT 1",
        "SET ROLE tree_owner",
        "ALTER TABLE p DROP COLUMN c",
        "ALTER TABLE p DETACH PARTITION p2",
        "RESET ROLE",
    ]:
        pair.same(statement)
        with pair.ours.transaction():
            pair.ours.execute("RESET ROLE")
            alike(pair)
            owners = (
                "SELECT relname, relowner::regrole::text FROM pg_class WHERE relkind IN ('r', 'p')"
                " AND relname IN ('p', 'p1', 'p2', 'a', 'a1') AND relnamespace = 'trees'::regnamespace ORDER BY 1"
            )
            expected = pair.ours.execute(owners).fetchall()
            assert [w.connection.execute(owners).fetchall() for w in pair.cluster.workers] == [
                expected
            ] * 2
            raise psycopg.Rollback
    pair.execute("DROP TABLE p, a CASCADE; DROP TABLE IF EXISTS p2, other, o")
    pair.execute(
        "DROP OWNED BY tree_owner, tree_other, tree_reader; DROP ROLE tree_owner, tree_other, tree_reader"
    )


# ---------------------------------------------------------------- plans


def test_plans(pair: Pair) -> None:
    """Joins with trees run on the workers, unless a row's table matters, or rows are locked or checked again."""
    pair.execute("""
        CREATE TABLE f (id integer PRIMARY KEY, t text);
        CREATE TABLE p (a integer, b integer, PRIMARY KEY (a)) PARTITION BY RANGE (a);
        CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100);
        CREATE TABLE p2 PARTITION OF p DEFAULT;
        CREATE TABLE i (a integer, b integer);
        CREATE TABLE i1 () INHERITS (i);
        INSERT INTO f SELECT g, 't' || g FROM generate_series(0, 9) AS g;
        INSERT INTO p SELECT g, g % 10 FROM generate_series(1, 200) AS g;
        INSERT INTO i SELECT g, g % 10 FROM generate_series(1, 20) AS g;
        INSERT INTO i1 SELECT g, g % 10 FROM generate_series(21, 40) AS g""")
    replicate(pair, "f", "p", "i")
    pair.execute("ANALYZE d, f, p, i")
    assert "trees.p" in pair.remote_sql("SELECT count(*) FROM d JOIN p ON p.a = d.v")
    assert "ONLY trees.i" in pair.remote_sql("SELECT count(*) FROM d JOIN ONLY i ON i.a = d.v")
    assert "ONLY" not in pair.remote_sql(
        "SELECT count(*) FROM d JOIN i ON i.a = d.v JOIN i1 USING (a)"
    )
    for statement in [
        "UPDATE f SET t = t || p.a FROM p JOIN d ON d.k = p.a WHERE f.id = p.b AND p.a BETWEEN 95 AND 104",
        "UPDATE d SET v = d.v + 1 FROM p JOIN f ON f.id = p.b WHERE d.k = p.a AND p.a BETWEEN 95 AND 104",
        "UPDATE d SET v = d.v + 1 FROM ONLY i WHERE d.k = i.a",
        "UPDATE d SET v = d.v - 1 WHERE k IN (SELECT a FROM i) AND NOT EXISTS (SELECT FROM ONLY i1 WHERE i1.a = d.k)",
        "DELETE FROM d USING p WHERE d.k = p.a AND p.a > 198",
        "DELETE FROM d WHERE EXISTS (SELECT FROM ONLY p WHERE p.a = d.k)",
        "MERGE INTO d USING i ON d.k = i.a WHEN MATCHED AND i.b > 3 THEN UPDATE SET v = i.b",
        "SELECT f.*, p.*, d.k FROM f JOIN p ON p.b = f.id JOIN d ON d.k = p.a WHERE p.a < 8 ORDER BY p.a FOR UPDATE OF f",
        "SELECT p.*, d.k FROM p JOIN d ON d.k = p.a WHERE p.a BETWEEN 98 AND 102 ORDER BY p.a FOR SHARE OF p",
        "INSERT INTO d SELECT a + 1000, b FROM p WHERE a > 195",
        "INSERT INTO d SELECT d.k + 2000, i.b FROM d JOIN i ON i.a = d.k",
        "DELETE FROM d WHERE k > 1000",
        "SELECT i.tableoid::regclass::text, d.k FROM i JOIN d ON d.k = i.a ORDER BY 2",
        "SELECT count(i.tableoid), count(i) FROM d LEFT JOIN i ON i.a = d.k",
        "SELECT (SELECT max(p.a) FROM p WHERE p.b = d.v), d.k FROM d WHERE d.k < 20 ORDER BY d.k",
        "SELECT json_agg(p ORDER BY p.a) FROM d JOIN p ON p.a = d.k WHERE p.a < 5",
        "SELECT d.k FROM d LEFT JOIN (p JOIN i ON i.a = p.a) ON p.a = d.k WHERE p.b IS NULL AND d.k < 60 ORDER BY 1",
        "SELECT count(*) FROM p FULL JOIN i USING (a) FULL JOIN d ON d.k = a",
        "SELECT count(*) FROM d, LATERAL (SELECT * FROM p WHERE p.a = d.k LIMIT 1) AS l",
        "WITH moved AS (UPDATE p SET a = a + 100 WHERE a = 99 RETURNING a) SELECT count(*) FROM d, moved WHERE d.k = a",
        "SELECT count(*) FROM d JOIN p ON p.a = d.k WHERE p.a BETWEEN 50 AND 60",
    ]:
        pair.same(statement)
    pair.execute("SET enable_partitionwise_join = on; SET enable_partitionwise_aggregate = on")
    pair.same("SELECT p.b, count(*) FROM p JOIN p AS q USING (a) JOIN d ON d.k = p.a GROUP BY p.b")
    pair.execute("RESET enable_partitionwise_join; RESET enable_partitionwise_aggregate")

    # prepared plans follow the tree
    pair.execute(
        "SET plan_cache_mode = force_generic_plan; PREPARE q (integer) AS"
        " SELECT count(*) FROM d JOIN i ON i.a = d.k WHERE d.k > $1"
    )
    pair.same("EXECUTE q (5)")
    pair.execute("ALTER TABLE i1 NO INHERIT i")
    pair.same("EXECUTE q (5)")
    pair.execute(
        "CREATE TABLE i2 () INHERITS (i); INSERT INTO i2 VALUES (50, 1); ALTER TABLE i1 INHERIT i"
    )
    pair.same("EXECUTE q (5)")
    pair.execute("RESET plan_cache_mode; DEALLOCATE q")
    alike(pair)


def test_owners_code(pair: Pair) -> None:
    """What a superuser has the workers compute for somebody's tree runs as its owner there."""
    pair.ours.execute("""
        DROP ROLE IF EXISTS tree_author; CREATE ROLE tree_author;
        GRANT ALL ON SCHEMA trees TO tree_author;
        SET ROLE tree_author;
        CREATE FUNCTION digit(a integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS $$
        BEGIN
            IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
                RAISE EXCEPTION 'run by a superuser';
            END IF;
            RETURN a % 10;
        END $$;
        CREATE TABLE p (a integer, CHECK (digit(a) >= 0)) PARTITION BY RANGE (digit(a));
        CREATE INDEX ON p (digit(a)) WHERE digit(3) = 3;
        CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (5);
        CREATE TABLE p2 PARTITION OF p DEFAULT;
        INSERT INTO p SELECT generate_series(1, 20);
        RESET ROLE""")
    replicate(pair, "p")
    attached = SHAPES[1].format(schema="trees")
    for worker in pair.cluster.workers:
        assert len(worker.query(attached)) == 4  # two partitions, and two parts of the index
    with pytest.raises(psycopg.errors.RaiseException):
        pair.ours.execute("INSERT INTO p VALUES (1)")
    pair.ours.execute("DROP TABLE p; DROP OWNED BY tree_author; DROP ROLE tree_author")
