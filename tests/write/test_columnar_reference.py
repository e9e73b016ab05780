"""Reference tables whose copies on the workers are columnar: the same rows, checks and tools as of heap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.cluster import Cluster
from tests.ddl.test_ddl import check_copies, everywhere, refused
from tests.ddl.test_dump import run
from tests.pair import Pair, open_pair

TABLES = """
CREATE TABLE part (id integer PRIMARY KEY, category text NOT NULL, price numeric(8, 2), note text, UNIQUE (category, id));
CREATE TABLE loose (a integer, b text);
CREATE TABLE tree (a integer, b text) PARTITION BY RANGE (a);
CREATE TABLE tree1 PARTITION OF tree FOR VALUES FROM (0) TO (100);
CREATE TABLE sale (id integer, part integer, n integer);
"""
ROWS = """
INSERT INTO part SELECT i, 'c' || i % 7, i / 3.0, CASE WHEN i % 5 > 0 THEN repeat('x', i % 90) END
  FROM generate_series(1, 3000) AS i;
INSERT INTO loose SELECT i % 50, 'b' || i % 3 FROM generate_series(1, 200) AS i;
INSERT INTO tree SELECT i, 't' || i % 9 FROM generate_series(1, 99) AS i;
INSERT INTO sale SELECT i, 1 + i % 3000, i % 13 FROM generate_series(1, 6000) AS i;
"""
STORAGE = "SELECT amname FROM pg_class AS c JOIN pg_am AS a ON a.oid = c.relam WHERE c.oid = '{}'::regclass"


@pytest.fixture
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_columnar_reference") as made:
        made.execute(TABLES)
        for table in ("part", "loose", "tree"):
            made.reference(table, "columnar")
        made.distribute("sale", "id")
        made.execute(ROWS)
        made.execute("ALTER TABLE sale ADD FOREIGN KEY (part) REFERENCES part; ANALYZE")
        yield made


JOINS = [
    "SELECT category, sum(n * price) FROM sale JOIN part ON part.id = part GROUP BY category",
    "SELECT count(*) FROM sale JOIN part ON part.id = part JOIN tree ON tree.a = n WHERE category <> 'c3'",
    "SELECT sale.id, note FROM sale LEFT JOIN part ON part.id = part AND price > 800 ORDER BY 1 LIMIT 20",
    "SELECT count(*) FROM sale WHERE part IN (SELECT id FROM part WHERE category = 'c1')",
    "SELECT count(*) FROM sale WHERE NOT EXISTS (SELECT FROM loose WHERE a = n)",
]


def test_copies_are_columnar_and_joined_as_such(pair: Pair) -> None:
    for table in ("part", "loose", "tree1"):
        assert pair.on_workers(STORAGE.format(table)) == ["columnar"] * 2
        assert pair.ours.execute(STORAGE.format(table)).fetchall() == [("heap",)]
    pair.all_same(JOINS)
    plan = pair.explain(JOINS[0], "VERBOSE, COSTS OFF")
    assert "ColumnarScan) on test_columnar_reference.part" in plan


CHANGES = [
    "INSERT INTO part VALUES (5000, 'new', 1), (5001, 'new', 2) RETURNING *",
    "INSERT INTO part VALUES (5000, 'again', 1)",  # a duplicate
    "INSERT INTO part VALUES (5000, 'again', 1) ON CONFLICT DO NOTHING",
    "INSERT INTO part VALUES (5000, 'again', 7) ON CONFLICT (id) DO UPDATE SET price = excluded.price RETURNING *",
    "UPDATE part SET price = price + 1, note = 'changed' WHERE id BETWEEN 10 AND 400",
    "UPDATE part SET id = id + 10000 WHERE id = 5001",
    "UPDATE part SET category = NULL WHERE id = 7",  # NOT NULL
    "DELETE FROM part WHERE id > 4999",
    "DELETE FROM part WHERE id = 20",  # a sale refers to it
    "UPDATE loose SET b = b || '!' WHERE a = 3",
    "DELETE FROM loose WHERE a = 4 AND ctid IN (SELECT min(ctid) FROM loose WHERE a = 4)",
    "INSERT INTO tree VALUES (3, 'more'), (99, 'more')",
    "UPDATE tree SET b = 'z' WHERE a < 5",
    "MERGE INTO part USING (VALUES (1), (9001)) AS s (i) ON id = i WHEN MATCHED THEN UPDATE SET note = 'merged'"
    " WHEN NOT MATCHED THEN INSERT VALUES (i, 'merged', 0)",
    "UPDATE part SET note = 'sold' FROM sale WHERE part.id = sale.part AND sale.n = 5",
]


def check_all(pair: Pair) -> None:
    for table in ("part", "loose", "tree"):
        check_copies(pair, table)
    pair.all_same(JOINS)


def test_changes(pair: Pair) -> None:
    for change in CHANGES:
        pair.same(change)
    check_all(pair)


def test_changes_that_are_undone(pair: Pair) -> None:
    with pair.transaction():
        pair.same(CHANGES[4])
        pair.execute("SAVEPOINT s")
        pair.same("DELETE FROM loose")
        pair.all_same(JOINS)
        pair.execute("ROLLBACK TO s")
        pair.same("TRUNCATE tree")
        pair.all_same(JOINS)
    check_all(pair)


def test_ddl(pair: Pair) -> None:
    pair.execute(
        "ALTER TABLE part ADD COLUMN weight integer DEFAULT 3, ALTER COLUMN note TYPE varchar(200);"
        "UPDATE part SET weight = id WHERE id % 3 = 0; CREATE INDEX ON part (price);"
        "CREATE TABLE tree2 PARTITION OF tree FOR VALUES FROM (100) TO (200);"
        "CREATE TABLE tree3 (LIKE tree); ALTER TABLE tree ATTACH PARTITION tree3 DEFAULT;"
        "INSERT INTO tree VALUES (150, 'second'), (900, 'third'); ALTER TABLE part DROP COLUMN price CASCADE"
    )
    for table in ("part", "tree2", "tree3"):
        assert pair.on_workers(STORAGE.format(table)) == ["columnar"] * 2
    check_copies(pair, "part")
    check_copies(pair, "tree")
    pair.ours.execute("SELECT strata.alter_columnar_table_set('part', compression => 'cold')")
    assert "cold" in everywhere_on_workers(pair)
    for statement in ("VACUUM (ANALYZE) part", "TRUNCATE loose", "VACUUM FULL part"):
        pair.execute(statement)
    check_copies(pair, "part")
    refused(
        pair, "SELECT strata.alter_columnar_table_set('ref_heap', compression => 'cold')", "42P01"
    )
    refused(
        pair,
        "SELECT strata.create_reference_table('sale', storage => 'rows')",
        "22023",
        names="rows columnar",
    )
    refused(pair, "SELECT strata.create_reference_table('sale', storage => NULL)", "22004")
    pair.execute("ALTER TABLE sale DROP CONSTRAINT sale_part_fkey")
    pair.ours.execute("SELECT strata.undistribute_table('part')")
    pair.same("SELECT * FROM part")


def everywhere_on_workers(pair: Pair) -> str:
    labels = pair.on_workers(
        "SELECT label FROM pg_seclabel WHERE objoid = 'part'::regclass AND provider = 'strata_columnar'"
    )
    assert len(set(labels)) == 1
    return labels[0]


def test_two_sessions(pair: Pair) -> None:
    """Who changes the same row waits, and then sees what the other has written."""
    with pair.cluster.coordinator.connect(autocommit=False) as other:
        other.execute(f"SET search_path = {pair.schema}; UPDATE part SET price = 1 WHERE id = 1")
        pair.ours.execute("SET lock_timeout = '200ms'")
        refused(pair, "UPDATE part SET price = price + 1 WHERE id = 1", "55P03")
        pair.ours.execute("RESET lock_timeout")
        other.commit()
    pair.theirs.execute("UPDATE part SET price = 1 WHERE id = 1")
    pair.same("UPDATE part SET price = price + 1 WHERE id = 1 RETURNING price")
    check_copies(pair, "part")


def test_new_worker_and_dump(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = make_cluster(workers=1, assertions=True)
    coordinator = cluster.coordinator
    coordinator.execute(TABLES)
    coordinator.execute("SELECT strata.create_reference_table('part', 'columnar')")
    coordinator.execute("SELECT strata.create_reference_table('tree', storage => 'columnar')")
    coordinator.execute("SELECT strata.create_reference_table('loose')")
    coordinator.execute(ROWS)
    coordinator.execute("SELECT strata.alter_columnar_table_set('part', row_group_rows => 20000)")
    cluster.add_worker()
    assert coordinator.query("SELECT * FROM strata.check_health() WHERE NOT ok") == []
    for worker in cluster.workers:
        assert worker.query(STORAGE.format("part")) == [("columnar",)]
        assert worker.query(STORAGE.format("tree1")) == [("columnar",)]
        assert worker.query(STORAGE.format("loose")) == [("heap",)]
        labels = worker.query("SELECT label FROM pg_seclabel WHERE objoid = 'part'::regclass")
        assert "20000" in str(labels)

    dump = tmp_path / "dump"
    done = run("pg_dump", "-Fc", "-d", coordinator.conninfo(), "-f", dump, node=coordinator)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    other = make_cluster(workers=2, assertions=True)
    done = run("pg_restore", "-d", other.coordinator.conninfo(), dump, node=other.coordinator)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    for worker in other.workers:
        assert worker.query(STORAGE.format("part")) == [("columnar",)]
        assert worker.query(STORAGE.format("loose")) == [("heap",)]
        assert worker.value("SELECT count(*) FROM part") == 3000
    definition = "SELECT strata.table_definition('part'), strata.table_definition('loose')"
    assert other.coordinator.query(definition) == coordinator.query(definition)
    assert other.coordinator.query("SELECT * FROM strata.check_health() WHERE NOT ok") == []


def test_only_owners(pair: Pair) -> None:
    role = "test_columnar_reference_other"
    pair.ours.execute(
        f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role}; GRANT USAGE ON SCHEMA {pair.schema} TO {role}"
    )
    pair.ours.execute(f"SET ROLE {role}")
    refused(pair, "SELECT strata.alter_columnar_table_set('part', compression => 'cold')", "42501")
    refused(pair, "SELECT strata.create_reference_table('sale', storage => 'columnar')", "42501")
    pair.ours.execute("RESET ROLE")
    pair.ours.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_everywhere_the_same(pair: Pair) -> None:
    everywhere(pair, "SELECT count(*) FROM part")
    with pytest.raises(psycopg.Error, match="duplicate key"):
        pair.ours.execute("INSERT INTO part SELECT 1, 'x'")
    everywhere(pair, "SELECT count(*) FROM part")
