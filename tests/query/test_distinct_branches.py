"""Aggregates over several distinct values: each value by itself, put together by group."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

TABLES = """
CREATE TYPE mood AS ENUM ('low', 'high');
CREATE TYPE point2 AS (x integer, y integer);
CREATE COLLATION no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE visit (id integer PRIMARY KEY, person integer, g integer, h text, v integer, n numeric, f float8,
  loose text COLLATE no_case, doc jsonb, m mood, many integer[], at timestamptz);
CREATE TABLE nobody (LIKE visit);
CREATE TABLE person (person integer, name text);
CREATE TABLE kind (g integer PRIMARY KEY, title text);
CREATE TABLE here (g integer, w integer);
CREATE VIEW seen AS SELECT person, g, v, h FROM visit WHERE v > 2;
CREATE VIEW counted AS SELECT g, count(DISTINCT v) AS vs, sum(DISTINCT id % 9) AS ids, avg(n) AS n FROM visit GROUP BY g;
"""
ROWS = """
INSERT INTO visit SELECT i, i % 53, nullif(i % 7, 3), 'h' || nullif(i % 5, 2), nullif(i * 7919 % 23, 5),
  CASE i % 3 WHEN 0 THEN 1.0 WHEN 1 THEN 1.00 ELSE i % 11 END,
  CASE i % 5 WHEN 0 THEN float8 'NaN' WHEN 1 THEN '-0' WHEN 2 THEN 0 WHEN 3 THEN i % 4 END,
  CASE WHEN i % 2 = 0 THEN 'A' ELSE 'a' END || i % 5, jsonb_build_object('a', i % 4),
  (ARRAY['low', 'high', NULL])[1 + i % 3]::mood, ARRAY[i % 4, i % 3],
  '2024-01-01'::timestamptz + i % 17 * interval '1 hour'
  FROM generate_series(1, 1200) AS i;
INSERT INTO visit (id, person) VALUES (9000, NULL), (9001, 1);
INSERT INTO person SELECT i, 'p' || i % 9 FROM generate_series(0, 60) AS i;
INSERT INTO kind SELECT i, 't' || i % 3 FROM generate_series(0, 9) AS i;
INSERT INTO here SELECT i, i * 3 FROM generate_series(0, 9) AS i;
ANALYZE;
"""


@pytest.fixture(scope="module", params=["columnar", "heap"])
def pair(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with open_pair(cluster, f"test_branches_{request.param}") as made:
        made.execute(TABLES)
        made.distribute("visit", "id", "none", storage=request.param)
        made.distribute("nobody", "id", "visit", storage=request.param)
        made.distribute("person", "person", "none", storage=request.param)
        made.reference("kind")
        for statement in ROWS.split(";"):
            made.execute(statement)
        yield made
        made.ours.execute("RESET strata.enable_distinct_branches")


@pytest.fixture(params=["on", "always"])
def mode(pair: Pair, request: pytest.FixtureRequest) -> str:
    pair.ours.execute(f"SET strata.enable_distinct_branches = {request.param}")
    return request.param


BRANCHES = [
    "SELECT count(DISTINCT v), count(DISTINCT g), count(*) FROM visit",
    "SELECT g, count(DISTINCT v), count(DISTINCT person), sum(v), avg(n), max(h), min(at) FROM visit GROUP BY g",
    "SELECT g, sum(DISTINCT v), count(*) FROM visit GROUP BY g",
    "SELECT g, h, count(DISTINCT v), count(DISTINCT n), count(id) FROM visit GROUP BY h, g ORDER BY 3 DESC, 1, 2 LIMIT 7",
    "SELECT count(DISTINCT v) FILTER (WHERE g > 2), count(DISTINCT v), count(DISTINCT h) FILTER (WHERE v > 4), sum(v)"
    " FILTER (WHERE false) FROM visit",
    "SELECT g, count(DISTINCT v), sum(DISTINCT person) FROM visit GROUP BY g HAVING count(DISTINCT h) > 3 AND sum(v) > 10"
    " AND g <> 4 ORDER BY avg(DISTINCT v), g",
    "SELECT g + 1 AS next, count(DISTINCT v) * 2 + sum(v) / nullif(count(DISTINCT h), 0), 'c' AS c FROM visit GROUP BY g + 1",
    "SELECT g, count(DISTINCT v) AS c, rank() OVER (ORDER BY count(DISTINCT person) DESC, g), sum(sum(v)) OVER (ORDER BY g)"
    " FROM visit GROUP BY g",
    "SELECT g, count(DISTINCT v), count(DISTINCT h), sum(v) FROM visit GROUP BY g ORDER BY g"
    " LIMIT (SELECT count(*) - 7 FROM here) OFFSET (SELECT count(*) - 9 FROM here)",
    # values without a max(), with one that is not asked, arrays, rows
    "SELECT g, bool_and(v > 3), bool_or(DISTINCT v > 20), count(DISTINCT h) FROM visit GROUP BY g",
    "SELECT g, array_agg(DISTINCT h ORDER BY h), array_agg(id ORDER BY id), count(DISTINCT v) FROM visit GROUP BY g",
    "SELECT g, jsonb_agg(DISTINCT doc), count(DISTINCT v), jsonb_agg(id ORDER BY id) FROM visit GROUP BY g",
    "SELECT min(m), max(m), count(DISTINCT m), count(DISTINCT v) FROM visit",
    "SELECT g, max(many), count(DISTINCT many), count(DISTINCT v) FROM visit GROUP BY g",
    "SELECT g, array_agg(DISTINCT many ORDER BY many), count(DISTINCT v) FROM visit GROUP BY g",
    "SELECT g, (array_agg(DISTINCT row(v, g)::point2))[1], count(DISTINCT v), sum(v) FROM visit GROUP BY g",
    "SELECT string_agg(DISTINCT h, ',' ORDER BY h), string_agg(h, ',' ORDER BY id), count(DISTINCT v) FROM visit",
    "SELECT g, percentile_disc(0.5) WITHIN GROUP (ORDER BY v), count(DISTINCT v), mode() WITHIN GROUP (ORDER BY id % 3 < 1), sum(DISTINCT id)"
    " FROM visit GROUP BY g",
    "SELECT count(DISTINCT loose), count(DISTINCT n), sum(v) FROM visit",
    "SELECT loose = 'a1', count(DISTINCT v), count(DISTINCT h), sum(v) FROM visit GROUP BY 1",
    "SELECT count(DISTINCT f), count(DISTINCT v), count(*) FROM visit",
    # groups of NULL, of one, of none
    "SELECT CASE WHEN g > 90 THEN 1 END AS nothing, count(DISTINCT v), count(DISTINCT h), sum(v) FROM visit GROUP BY 1",
    "SELECT count(DISTINCT v), count(DISTINCT h), sum(v) FROM visit WHERE v < 0",
    "SELECT g, count(DISTINCT v), count(DISTINCT h), sum(v) FROM visit WHERE v < 0 GROUP BY g",
    # at other levels
    "SELECT count(*), sum(c) FROM (SELECT g, count(DISTINCT v) AS c, count(DISTINCT h) AS d, sum(v) FROM visit GROUP BY g)"
    " AS s WHERE c > 3 AND g < 5",
    "WITH s AS (SELECT g, count(DISTINCT v) AS c, sum(DISTINCT person) AS d, count(*) FROM visit GROUP BY g) SELECT * FROM s"
    " JOIN s AS t ON s.c = t.c AND s.g <= t.g",
    "SELECT * FROM counted WHERE vs > 2",
    "SELECT count(DISTINCT v), count(DISTINCT h), sum(person) FROM seen",
    "SELECT w, c, d FROM here JOIN (SELECT g, count(DISTINCT v) AS c, sum(DISTINCT person) AS d, max(id) FROM visit"
    " GROUP BY g) AS s USING (g)",
    "SELECT w, c, d FROM here, LATERAL (SELECT count(DISTINCT v) AS c, sum(DISTINCT person) AS d, min(id) FROM visit"
    " WHERE visit.g = here.g AND v > w - 20) AS s",
    "SELECT title, count(DISTINCT v), count(DISTINCT h), sum(v) FROM visit JOIN kind USING (g) GROUP BY title",
    "SELECT name, count(DISTINCT v), count(DISTINCT h), sum(v) FROM visit JOIN person USING (person) GROUP BY name",
    "SELECT title, count(DISTINCT v), count(DISTINCT h), count(*) FROM kind LEFT JOIN visit USING (g) GROUP BY title",
    "SELECT g, count(DISTINCT v), count(DISTINCT h), sum(v) FROM visit WHERE EXISTS (SELECT FROM kind WHERE kind.g = visit.g"
    " AND title = 't1') GROUP BY g",
    "SELECT g, count(DISTINCT v), count(DISTINCT id), sum(id) FROM visit GROUP BY g",
    "SELECT g, count(DISTINCT v), count(DISTINCT h), sum(v) FROM visit GROUP BY g"
    " UNION ALL SELECT 99, count(DISTINCT g), count(DISTINCT n), 0 FROM visit",
    "SELECT count(DISTINCT v), count(DISTINCT h), count(*), now() > '2020-01-01' FROM visit WHERE at < now()",
]
LEFT_ALONE = [
    "SELECT id, h, count(DISTINCT v), count(DISTINCT g), sum(v) FROM visit GROUP BY id",
    "SELECT g, count(DISTINCT v), count(DISTINCT h), sum(v) FROM visit GROUP BY ROLLUP (g)",
    "SELECT g, grouping(g), count(DISTINCT v), count(DISTINCT h), sum(v) FROM visit GROUP BY g",
    "SELECT count(DISTINCT v), count(DISTINCT h), sum(v) FROM visit WHERE random() >= 0",
    "SELECT count(DISTINCT v), count(DISTINCT h), count(*) FROM (SELECT * FROM visit ORDER BY id LIMIT 100) AS s",
    "SELECT count(DISTINCT c), count(DISTINCT s), count(*) FROM (SELECT g, count(*) AS c, sum(f) AS s FROM visit GROUP BY g)"
    " AS s",
    "SELECT count(DISTINCT v), count(DISTINCT h), count(*) FROM visit TABLESAMPLE BERNOULLI (100)",
    "SELECT g, count(DISTINCT v), (SELECT max(w) FROM here WHERE here.g = visit.g), sum(DISTINCT id) FROM visit GROUP BY g",
    "SELECT (SELECT w FROM here WHERE here.g = visit.g LIMIT 1), count(DISTINCT v), count(DISTINCT h), sum(v) FROM visit GROUP BY 1",
    "SELECT (SELECT count(DISTINCT visit.v) + sum(DISTINCT visit.g) + count(*)) FROM visit",
    "SELECT count(DISTINCT w), count(DISTINCT g), count(*) FROM here",
]


def is_split(pair: Pair, query: str) -> bool:
    return " on branch" in pair.explain(query)


@pytest.mark.sample(2)
@pytest.mark.parametrize("query", BRANCHES)
def test_answers(pair: Pair, query: str, mode: str) -> None:
    pair.same(query)
    pair.same(query.replace("visit", "nobody"))
    if mode == "always":
        assert is_split(pair, query)


@pytest.mark.parametrize("query", LEFT_ALONE)
def test_what_is_left_alone(pair: Pair, query: str) -> None:
    pair.ours.execute("SET strata.enable_distinct_branches = always")
    pair.same(query)
    assert not is_split(pair, query)


def test_foreign_tables_are_read_once(pair: Pair) -> None:
    """What another server answers may differ from one time to the next, also as a partition."""
    pair.execute(
        "CREATE EXTENSION file_fdw; CREATE SERVER files FOREIGN DATA WRAPPER file_fdw;"
        "CREATE FOREIGN TABLE far (g integer) SERVER files OPTIONS (program 'seq 1 5');"
        "CREATE TABLE parts (g integer) PARTITION BY LIST (g);"
        "CREATE TABLE near PARTITION OF parts FOR VALUES IN (1, 2); INSERT INTO near VALUES (1), (2);"
        "CREATE FOREIGN TABLE other PARTITION OF parts FOR VALUES IN (3, 4) SERVER files"
        " OPTIONS (program 'seq 3 4')"
    )
    for form in ("distinct_branches", "partner_keys", "decorrelation"):
        pair.ours.execute(f"SET strata.enable_{form} = always")
    for table in ("far", "parts"):
        query = f"SELECT {table}.g, count(DISTINCT v), count(DISTINCT h), sum(v) FROM visit JOIN {table} USING (g) GROUP BY 1"
        pair.same(query)
        assert not is_split(pair, query)
        assert pair.explain(query).count(" Scan on " + {"far": "far", "parts": "other"}[table]) == 1
        query = f"SELECT count(*) FROM visit WHERE v NOT IN (SELECT {table}.g FROM {table} JOIN visit USING (g))"
        pair.same(query)
        assert "SubPlan" in pair.explain(query)
    pair.execute("DROP TABLE parts; DROP EXTENSION file_fdw CASCADE")
    for form in ("distinct_branches", "partner_keys", "decorrelation"):
        pair.ours.execute(f"RESET strata.enable_{form}")


def test_where_it_is_cheaper(pair: Pair) -> None:
    """Not for groups that workers make whole, and not where there are hardly any duplicates."""
    pair.ours.execute("SET strata.enable_distinct_branches = on")
    pair.execute("CREATE TABLE many (k integer, g integer, a integer, b integer)")
    pair.distribute("many", "k", "none")
    rows = "SELECT i, i % 10, i % 1000, i * 7 % 900 FROM generate_series(1, 60000) AS i"
    pair.execute(f"INSERT INTO many {rows}; ANALYZE many")
    query = "SELECT {0}, count(DISTINCT {1}), count(DISTINCT {2}), sum(a) FROM many GROUP BY {0}"
    assert is_split(pair, query.format("g", "a", "b"))
    assert not is_split(pair, query.format("k", "a", "b"))
    assert not is_split(pair, query.format("a", "k + a", "k + b"))
    pair.all_same([query.format("g", "a", "b"), query.format("a", "k + a", "k + b")])
    pair.ours.execute("SET strata.enable_distinct_branches = off")
    assert not is_split(pair, query.format("g", "a", "b"))


def test_parameters_and_own_writes(pair: Pair, mode: str) -> None:
    for plans in ("force_custom_plan", "force_generic_plan"):
        pair.execute(f"SET plan_cache_mode = {plans}")
        pair.execute(
            "PREPARE counts(integer, text) AS SELECT g, count(DISTINCT v % $1), count(DISTINCT h || $2), sum(v + $1)"
            " FROM visit WHERE v > $1 GROUP BY g HAVING count(*) > $1"
        )
        for values in ("3, 'x'", "1, NULL", "NULL, 'x'", "100, 'x'"):
            pair.same(f"EXECUTE counts({values})")
        pair.execute("DEALLOCATE counts; RESET plan_cache_mode")
    query = BRANCHES[1]
    with pair.transaction():
        pair.same(
            "INSERT INTO visit (id, person, g, v, h) SELECT i, i, 1, i, 'new' FROM generate_series(7000, 7099) AS i"
        )
        pair.same("DELETE FROM visit WHERE v = 4")
        pair.same(query)
        pair.same(f"DECLARE c SCROLL CURSOR FOR {query} ORDER BY 1")
        pair.same("DELETE FROM visit WHERE v < 40")
        pair.same("FETCH ALL FROM c", ordered=False)
        pair.same("FETCH BACKWARD ALL FROM c", ordered=False)


def test_rights(pair: Pair, mode: str) -> None:
    """Policies and privileges hold in each branch, and a view's rows are read as its owner."""
    with pair.under_policy("visit", "id % 2 = 1 AND v < 12", "kind"):
        pair.same(BRANCHES[1])
        pair.same(
            "SELECT title, count(DISTINCT v), count(DISTINCT h), sum(v) FROM visit JOIN kind USING (g) GROUP BY title"
        )
        pair.same("SELECT count(DISTINCT w), count(DISTINCT v), sum(v) FROM visit, here")
        pair.same("SELECT * FROM counted")


def test_failures_are_the_same(pair: Pair, mode: str) -> None:
    pair.same(
        "SELECT g, count(DISTINCT 1 / (v - 4)), count(DISTINCT h), sum(v) FROM visit GROUP BY g"
    )
    pair.same("SELECT count(DISTINCT v), count(DISTINCT h), sum(v / 0) FROM visit")
    pair.same("SELECT count(DISTINCT v), count(DISTINCT h), sum(1 / v) FROM visit WHERE v > 0")
