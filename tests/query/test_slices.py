"""Joins that keep the rows of a reference table, or ask for their partners: each worker does it for its own."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

TABLES = """
CREATE COLLATION no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE t (k integer, id integer, v integer, note text);
CREATE TABLE other (k integer, n integer);
CREATE TABLE r (k integer, n integer, name varchar(20));
CREATE TABLE names (name text COLLATE no_case, id integer);
CREATE TABLE loose (name text COLLATE no_case, n integer);
"""
ROWS = """
INSERT INTO t SELECT i % 37, i, nullif(i * 7919 % 101, 50), 'n' || i % 5 FROM generate_series(1, 900) AS i;
INSERT INTO t (k, id) VALUES (NULL, 2000);
INSERT INTO other SELECT i, i % 4 FROM generate_series(0, 60) AS i;
INSERT INTO r SELECT i, i % 9, 'x' || i FROM generate_series(20, 60) AS i;
INSERT INTO r VALUES (NULL, 3, 'null'), (21, 4, 'twice');
INSERT INTO names SELECT CASE WHEN i % 2 = 0 THEN 'a' ELSE 'A' END || i % 20, i FROM generate_series(1, 100) AS i;
INSERT INTO loose SELECT 'a' || i, i FROM generate_series(1, 30) AS i;
ANALYZE
"""


@pytest.fixture(scope="module", params=["heap", "columnar"])
def pair(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with open_pair(cluster, f"test_slices_{request.param}") as made:
        made.execute(TABLES)
        for table in ("r", "loose"):
            made.reference(table, request.param)
        made.distribute("t", "k")
        made.distribute("other", "k", colocate_with="t")
        made.distribute("names", "name")
        for statement in ROWS.split(";"):
            made.execute(statement)
        yield made


SLICED = [
    "SELECT r.*, t.id FROM r LEFT JOIN t ON t.k = r.k AND t.v > 50",
    "SELECT r.k, count(t.id), sum(v) FROM r LEFT JOIN t ON t.k = r.k GROUP BY r.k",
    "SELECT count(*), count(t.id) FROM r LEFT JOIN t USING (k)",
    "SELECT n, max(c) FROM (SELECT n, count(t.id) AS c FROM r LEFT JOIN t USING (k) GROUP BY r.k, n) AS s GROUP BY n",
    "SELECT r.* FROM r WHERE EXISTS (SELECT FROM t WHERE t.k = r.k AND t.v > 90)",
    "SELECT r.* FROM r WHERE NOT EXISTS (SELECT FROM t WHERE t.k = r.k AND t.v < 90)",
    "SELECT n FROM r WHERE r.k IN (SELECT k FROM t WHERE v > 95) ORDER BY n LIMIT 3",
    "SELECT v.x, count(t.id) FROM (VALUES (1), (2), (99), (NULL)) AS v (x) LEFT JOIN t ON t.k = v.x GROUP BY v.x",
    "SELECT g.x, count(t.id) FROM generate_series(1, 50) AS g (x) LEFT JOIN t ON t.k = g.x GROUP BY g.x",
    "SELECT r.k, s.n, t.id FROM r JOIN r AS s ON s.k = r.k + 1 LEFT JOIN t ON t.k = s.k",
    "SELECT r.k, t.id, o.n FROM r LEFT JOIN t ON t.k = r.k LEFT JOIN other AS o ON o.k = t.k AND o.n = 1",
    "SELECT r.k, t.id, o.n FROM r LEFT JOIN (t JOIN other AS o USING (k)) ON t.k = r.k",
    "SELECT r.k, t.id FROM r LEFT JOIN t ON t.k = r.k + 1",
    "SELECT r.k, s.c FROM r LEFT JOIN (SELECT k, count(*) AS c FROM t GROUP BY k) AS s ON s.k = r.k",
    "SELECT r.k, t.id FROM r LEFT JOIN t ON t.k = r.k WHERE t.id IS NULL",
    "SELECT r.k, t.id FROM r LEFT JOIN t ON t.k = r.k AND t.k = 25",
    "SELECT r.k, (SELECT count(*) FROM r AS s LEFT JOIN t ON t.k = s.k WHERE s.n > 7) FROM r WHERE r.k < 25",
    "SELECT r.k, l.m FROM r, LATERAL (SELECT max(v) AS m FROM t WHERE t.k = r.k) AS l",
    "SELECT r.k, l.id FROM r LEFT JOIN LATERAL (SELECT id FROM t WHERE t.k = r.k ORDER BY id DESC LIMIT 1) AS l ON true",
    "SELECT loose.n, names.id FROM loose LEFT JOIN names ON names.name = loose.name",
    "SELECT n FROM loose WHERE NOT EXISTS (SELECT FROM names WHERE names.name = loose.name)",
]
HERE = [
    "SELECT r.k, t.id FROM r LEFT JOIN t ON t.v = r.k",
    "SELECT r.k, t.id FROM r LEFT JOIN t ON t.k = r.k::bigint",
    "SELECT r.k, t.id FROM r FULL JOIN t ON t.k = r.k",
    "SELECT r.n FROM r WHERE r.k NOT IN (SELECT k FROM t)",
    "SELECT r.n FROM r WHERE NOT EXISTS (SELECT FROM t WHERE t.k < r.k)",
]


@pytest.mark.parametrize("query", SLICED)
def test_each_row_once(pair: Pair, query: str) -> None:
    pair.same(query)
    assert "strata.owns(" in pair.explain(query, "VERBOSE, COSTS OFF")


@pytest.mark.parametrize("query", HERE)
def test_not_by_the_key(pair: Pair, query: str) -> None:
    pair.same(query)


def test_parameters_and_own_writes(pair: Pair) -> None:
    for mode in ("force_custom_plan", "force_generic_plan"):
        pair.execute(f"SET plan_cache_mode = {mode}")
        pair.execute(
            "PREPARE kept(integer) AS SELECT r.k, t.id FROM r LEFT JOIN t ON t.k = r.k AND t.v > $1 WHERE r.n < $1"
        )
        for value in ("5", "NULL", "100"):
            pair.same(f"EXECUTE kept({value})")
        pair.execute("DEALLOCATE kept; RESET plan_cache_mode")
    with pair.transaction():
        pair.same("DELETE FROM t WHERE k IN (22, 23)")
        pair.same("INSERT INTO r VALUES (100, 1, 'new'), (22, 1, 'new')")
        pair.all_same(SLICED)


def test_the_function_alone(pair: Pair) -> None:
    """Of all workers one has a key; what is no distributed table there is refused."""
    name = f"{pair.schema}.t"
    for key in ("1", "36", "NULL::integer", "-5"):
        owners = pair.on_workers(f"SELECT strata.owns('{name}', {key})")
        assert sorted(owners) == [False, True]
    assert pair.on_workers("SELECT strata.owns(NULL, 1)") == [None, None]
    for statement, sqlstate in {
        f"SELECT strata.owns('{name}', 1::bigint)": "42804",
        f"SELECT strata.owns('{pair.schema}.r', 1)": "42809",
        "SELECT strata.owns('nothing', 1)": "42P01",
        "SELECT strata.owns('pg_class', 1)": "42809",
        "SELECT strata.owns('a.b.c.d', 1)": "42601",
    }.items():
        with pytest.raises(psycopg.Error) as caught:
            pair.on_workers(statement)
        assert caught.value.sqlstate == sqlstate, statement
    with pytest.raises(psycopg.errors.WrongObjectType):
        pair.ours.execute(f"SELECT strata.owns('{name}', 1)")


def test_whoever_may_read_a_view_need_not_use_its_tables_schema(pair: Pair) -> None:
    schema = f"{pair.schema}_views"
    pair.cluster.create_role("strata_view_reader")
    pair.ours.execute(
        f"DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema};"
        f"CREATE VIEW {schema}.alone AS SELECT n FROM r WHERE NOT EXISTS (SELECT FROM t WHERE t.k = r.k);"
        f"CREATE VIEW {schema}.kept AS SELECT r.n, t.v FROM r LEFT JOIN t ON t.k = r.k;"
        f"GRANT USAGE ON SCHEMA {schema} TO strata_view_reader;"
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO strata_view_reader"
    )
    with pair.cluster.coordinator.connect(user="strata_view_reader") as reader:
        for view, query in (
            ("alone", "SELECT n FROM r WHERE NOT EXISTS (SELECT FROM t WHERE t.k = r.k)"),
            ("kept", "SELECT r.n, t.v FROM r LEFT JOIN t ON t.k = r.k"),
        ):
            seen = reader.execute(f"SELECT count(*) FROM {schema}.{view}").fetchone()[0]
            assert seen == len(pair.theirs.execute(query).fetchall())
    pair.ours.execute(f"DROP SCHEMA {schema} CASCADE")
