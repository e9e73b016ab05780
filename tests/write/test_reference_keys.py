"""Foreign keys between reference tables are checked with the coordinator's rows, and by no worker."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.ddl.test_ddl import check_copies
from tests.pair import Pair, open_pair

CHECKED = """
SELECT coalesce(string_agg(t.tgrelid::regclass || ' ' || c.conname, ', '), '')
  FROM pg_trigger AS t JOIN pg_constraint AS c ON c.oid = t.tgconstraint
 WHERE c.contype = 'f' AND t.tgenabled <> 'D' AND c.connamespace = 'test_reference_keys'::regnamespace
"""


@pytest.fixture
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_reference_keys") as made:
        yield made


def check_trust(pair: Pair, *tables: str) -> None:
    assert set(pair.on_workers(CHECKED)) == {""}
    for table in tables:
        check_copies(pair, table)


def make_tree(pair: Pair, action: str = "") -> None:
    pair.execute(
        f"CREATE TABLE tree (id integer PRIMARY KEY, above integer REFERENCES tree{action});"
        "CREATE INDEX ON tree (above)"
    )
    pair.ours.execute("SELECT strata.create_reference_table('tree')")
    pair.execute("INSERT INTO tree SELECT g, nullif(g / 2, 0) FROM generate_series(1, 6000) AS g")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "delete",
    [
        "DELETE FROM tree WHERE id >= 3000",
        "DELETE FROM tree",  # more than a batch, parents first
        "DELETE FROM tree WHERE id IN (2000, 4000, 4001) RETURNING id, above",
        "MERGE INTO tree USING (VALUES (2000), (4000), (4001)) AS v (a) ON id = a WHEN MATCHED THEN DELETE",
        "WITH gone AS (DELETE FROM tree WHERE id >= 2000 RETURNING id) SELECT count(*) FROM gone",
    ],
)
def test_rows_that_refer_to_each_other(pair: Pair, delete: str) -> None:
    make_tree(pair)
    with pair.transaction():
        pair.same(delete)
        pair.same("SELECT count(*), sum(id) FROM tree")
    check_copies(pair, "tree")
    pair.same(delete)
    check_copies(pair, "tree")


def test_what_is_still_referred_to_stays(pair: Pair) -> None:
    make_tree(pair)
    for session in (pair.ours, pair.theirs):
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            session.execute("DELETE FROM tree WHERE id < 3000")
    check_copies(pair, "tree")
    pair.execute("CREATE TABLE leaves (k integer, id integer REFERENCES tree)")
    pair.ours.execute("SELECT strata.create_distributed_table('leaves', 'k')")
    pair.execute("INSERT INTO leaves VALUES (1, 5999), (2, 5998)")
    for session in (pair.ours, pair.theirs):
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            session.execute("DELETE FROM tree")
    pair.same("DELETE FROM tree WHERE id < 5999 AND id > 2999")
    check_copies(pair, "tree")


@pytest.mark.parametrize("action", [" ON DELETE CASCADE", " ON DELETE SET NULL"])
def test_actions_of_foreign_keys(pair: Pair, action: str) -> None:
    make_tree(pair, action)
    pair.same("DELETE FROM tree WHERE id IN (5, 11, 600, 1300)")
    check_copies(pair, "tree")


def test_changes_of_several_tables_keep_their_order(pair: Pair) -> None:
    """A trigger writes elsewhere between the rows, with keys of several columns and types."""
    pair.execute(
        """
        CREATE TABLE "odd ""one" ("a b" text COLLATE "C", at timestamptz, n numeric(8, 2), v integer, PRIMARY KEY (n, "a b", at));
        CREATE TABLE seen (id bigint PRIMARY KEY, v integer);
        INSERT INTO "odd ""one" SELECT 'it''s ' || g, '2026-01-01 UTC'::timestamptz + g * interval '1 h', g / 7.0, g FROM generate_series(1, 50) AS g;
        INSERT INTO seen SELECT g, 0 FROM generate_series(1, 50) AS g;
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF old.v % 3 = 0 THEN DELETE FROM seen WHERE id = old.v;
            ELSIF old.v % 3 = 1 THEN UPDATE seen SET v = old.v WHERE id = old.v;
            ELSE INSERT INTO seen VALUES (old.v + 100, old.v); DELETE FROM seen WHERE id = old.v + 100;
            END IF;
            RETURN old;
        END $$;
        CREATE TRIGGER note AFTER DELETE ON "odd ""one" FOR EACH ROW EXECUTE FUNCTION note();
        """
    )
    for table in ('"odd ""one"', "seen"):
        pair.ours.execute(f"SELECT strata.create_reference_table('{table}')")
    pair.same('DELETE FROM "odd ""one" WHERE v > 10')
    check_copies(pair, '"odd ""one"')
    check_copies(pair, "seen")
    pair.same('DELETE FROM "odd ""one" WHERE v = 1')
    check_copies(pair, '"odd ""one"')
    check_copies(pair, "seen")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tree SET id = id + 10000, above = above + 10000",
        "UPDATE tree SET id = -id, above = -above WHERE id > 100 AND above > 100 OR id BETWEEN 201 AND 402",
        "UPDATE tree SET id = id + 10000 WHERE id > 5000",
        "UPDATE tree SET above = 7000 - above WHERE id > 100",
        "INSERT INTO tree VALUES (7001, 7003), (7002, 7001), (7003, 7002)",
        "INSERT INTO tree VALUES (5, 9999), (9999, 9999) ON CONFLICT (id) DO UPDATE SET above = excluded.above",
        "MERGE INTO tree USING (VALUES (7001, 7003), (7003, 3)) AS v (a, b) ON id = a"
        " WHEN NOT MATCHED THEN INSERT VALUES (a, b)",
        "WITH x AS (INSERT INTO tree VALUES (7001, 7003) RETURNING id),"
        " y AS (INSERT INTO tree VALUES (7003, 7001) RETURNING id) SELECT * FROM x, y",
        "UPDATE tree SET above = 9999 WHERE id = 3",
    ],
)
@pytest.mark.parametrize("action", ["", " ON UPDATE CASCADE ON DELETE SET NULL"])
def test_statements_over_a_tree(pair: Pair, statement: str, action: str) -> None:
    make_tree(pair, action)
    pair.same(statement)
    check_trust(pair, "tree")


def test_keys_that_a_change_of_type_makes_anew(pair: Pair) -> None:
    make_tree(pair)
    pair.execute("ALTER TABLE tree ALTER id TYPE bigint, ALTER above TYPE bigint")
    pair.same("UPDATE tree SET id = id + 10000000000, above = above + 10000000000")
    check_trust(pair, "tree")


FAMILY = """
CREATE TABLE one (id integer, part integer, above integer, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
CREATE TABLE one_1 PARTITION OF one FOR VALUES IN (1);
CREATE TABLE one_2 PARTITION OF one FOR VALUES IN (2, 3) PARTITION BY RANGE (part);
CREATE TABLE one_2_2 PARTITION OF one_2 FOR VALUES FROM (2) TO (3);
ALTER TABLE one ADD FOREIGN KEY (above, part) REFERENCES one ON DELETE CASCADE;
CREATE TABLE two (id integer PRIMARY KEY, a integer, b integer,
    FOREIGN KEY (a, b) REFERENCES one ON UPDATE CASCADE ON DELETE SET NULL);
"""


def test_trees(pair: Pair) -> None:
    pair.execute(FAMILY)
    for table in ("one", "two"):
        pair.reference(table)
    check_trust(pair)
    for statement in (
        "INSERT INTO one VALUES (1, 1, 2), (2, 1, 1), (1, 2, 1), (2, 2, 1), (3, 2, 2)",
        "INSERT INTO two VALUES (1, 1, 1), (2, 2, 2), (3, 3, 2), (4, 9, NULL)",
        "UPDATE one SET id = id + 10, above = above + 10",
        "DELETE FROM one WHERE part = 1 OR id = 12",
    ):
        pair.same(statement)
        check_trust(pair, "one", "two")
    for definition in (
        "CREATE TABLE one_2_3 PARTITION OF one_2 FOR VALUES FROM (3) TO (4)",
        "CREATE TABLE one_9 (id integer NOT NULL, part integer NOT NULL, above integer, PRIMARY KEY (id, part));"
        " ALTER TABLE one ATTACH PARTITION one_9 FOR VALUES IN (9)",
        "ALTER TABLE two ADD CONSTRAINT again FOREIGN KEY (a, b) REFERENCES one NOT VALID",
        "ALTER TABLE two VALIDATE CONSTRAINT again",
        "ALTER TABLE two ALTER CONSTRAINT again DEFERRABLE INITIALLY DEFERRED",
        'ALTER TABLE two RENAME CONSTRAINT again TO "odd ""again"',
        "TRUNCATE one, two; ALTER TABLE one DETACH PARTITION one_2",
        "ALTER TABLE one ATTACH PARTITION one_2 FOR VALUES IN (2, 3)",
        "ALTER TABLE two ENABLE TRIGGER ALL; ALTER TABLE one ENABLE TRIGGER ALL",
    ):
        pair.execute(definition)
        assert set(pair.on_workers(CHECKED)) == {""}, definition
    for statement in (
        "INSERT INTO one VALUES (1, 9, 2), (2, 9, 1), (1, 3, NULL)",
        "BEGIN",
        "INSERT INTO two VALUES (9, 9, 9)",
        "UPDATE two SET a = 1 WHERE id = 9",
        "COMMIT",
        "UPDATE one SET id = id + 10, above = above + 10",
        "INSERT INTO two VALUES (10, 10, 10)",
        "DELETE FROM one",
    ):
        pair.same(statement)
    check_trust(pair, "one", "two")
    pair.ours.execute("SELECT undistribute_table('two')")
    pair.same("INSERT INTO two VALUES (9, 9, 9)")


def test_distributed_tables_are_still_checked_by_workers(pair: Pair) -> None:
    pair.execute(
        """
        CREATE TABLE top (id integer PRIMARY KEY);
        CREATE TABLE middle (id integer PRIMARY KEY, top integer REFERENCES top ON DELETE CASCADE ON UPDATE CASCADE,
            UNIQUE (id, top));
        CREATE TABLE low (k integer, middle integer REFERENCES middle ON DELETE CASCADE);
        CREATE TABLE pairs (k integer, middle integer, top integer,
            FOREIGN KEY (middle, top) REFERENCES middle (id, top) ON UPDATE CASCADE);
        """
    )
    for table in ("top", "middle"):
        pair.reference(table)
    for table in ("low", "pairs"):
        pair.distribute(table, "k")
    for statement in (
        "INSERT INTO top SELECT g FROM generate_series(1, 5) AS g",
        "INSERT INTO middle SELECT g, g % 5 + 1 FROM generate_series(1, 20) AS g",
        "INSERT INTO low SELECT g, g % 20 + 1 FROM generate_series(1, 200) AS g",
        "INSERT INTO pairs SELECT id, id, top FROM middle WHERE id < 4",
        "INSERT INTO low VALUES (1, 21)",
        "INSERT INTO pairs VALUES (1, 1, 1)",
        "UPDATE top SET id = id + 10",
        "DELETE FROM top WHERE id = 15",
        "DELETE FROM top WHERE id = 12",
    ):
        pair.same(statement)
        for table in ("top", "middle"):
            check_copies(pair, table)
        pair.same("SELECT * FROM low")
        pair.same("SELECT * FROM pairs")
