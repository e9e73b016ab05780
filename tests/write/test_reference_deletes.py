"""Rows of reference tables that refer to each other are deleted together, on all copies."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.ddl.test_ddl import check_copies
from tests.pair import Pair, open_pair


@pytest.fixture
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_reference_deletes") as made:
        yield made


def make_tree(pair: Pair, action: str = "") -> None:
    pair.execute(
        "CREATE TABLE tree (id integer PRIMARY KEY, above integer REFERENCES tree" + action + ")"
    )
    pair.ours.execute("SELECT strata.create_reference_table('tree')")
    pair.execute("INSERT INTO tree SELECT g, nullif(g / 2, 0) FROM generate_series(1, 6000) AS g")


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
