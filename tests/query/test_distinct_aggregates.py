"""DISTINCT aggregates: made on the workers as far as that goes, with PostgreSQL's answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

TABLES = """
CREATE COLLATION no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE visit (id integer, person integer, g integer, v integer, n numeric, f float8, note text,
  loose text COLLATE no_case, at timestamptz, doc jsonb);
CREATE TABLE nobody (LIKE visit);
CREATE TABLE person (person integer, name text);
CREATE TABLE here (g integer, w integer);
CREATE FUNCTION add_item(integer[], integer) RETURNS integer[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT $1 || $2';
CREATE FUNCTION add_items(integer[], integer[]) RETURNS integer[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS 'SELECT $1 || $2';
CREATE AGGREGATE listed(integer)
  (sfunc = add_item, stype = integer[], combinefunc = add_items, initcond = '{}', parallel = safe);
"""
ROWS = """
INSERT INTO visit SELECT i, i % 53, nullif(i % 7, 3), nullif(i * 7919 % 23, 5),
  CASE i % 3 WHEN 0 THEN 1.0 WHEN 1 THEN 1.00 ELSE i % 11 END,
  CASE i % 5 WHEN 0 THEN float8 'NaN' WHEN 1 THEN '-0' WHEN 2 THEN 0 WHEN 3 THEN i % 4 END,
  'n' || i % 13, CASE WHEN i % 2 = 0 THEN 'A' ELSE 'a' END || i % 5,
  '2024-01-01'::timestamptz + i % 17 * interval '1 hour', jsonb_build_object('a', i % 4)
  FROM generate_series(1, 1200) AS i;
INSERT INTO visit (id, person) VALUES (9000, NULL), (9001, 1);
INSERT INTO person SELECT i, 'p' || i % 9 FROM generate_series(0, 60) AS i;
INSERT INTO here SELECT i, i * 3 FROM generate_series(0, 9) AS i;
ANALYZE visit, nobody, person, here;
"""


@pytest.fixture(scope="module", params=["columnar", "heap"])
def pair(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with open_pair(cluster, f"test_distinct_{request.param}") as made:
        made.execute(TABLES)
        for table, colocated in (("visit", "none"), ("nobody", "visit"), ("person", "visit")):
            made.distribute(table, "person", colocated, storage=request.param)
        made.execute(ROWS)
        yield made


BY_KEY = [
    "SELECT count(DISTINCT person) FROM visit",
    "SELECT g, count(DISTINCT person), count(person), count(*), sum(v), avg(n) FROM visit GROUP BY g",
    "SELECT sum(DISTINCT person), avg(DISTINCT person), max(DISTINCT person), min(note) FROM visit",
    "SELECT g, count(DISTINCT person) FILTER (WHERE v > 10), count(DISTINCT person) FROM visit GROUP BY g"
    " HAVING count(DISTINCT person) > 5 ORDER BY count(DISTINCT person) FILTER (WHERE v > 10) DESC, g",
    "SELECT name, count(DISTINCT visit.person) FROM visit JOIN person USING (person) GROUP BY name",
    "SELECT count(DISTINCT person) + sum(v) AS c FROM visit WHERE v BETWEEN 3 AND 9",
    "SELECT g, count(DISTINCT person) AS c, rank() OVER (ORDER BY count(DISTINCT person) DESC) FROM visit"
    " GROUP BY g",
    "SELECT w, c FROM here JOIN (SELECT g, count(DISTINCT person) AS c FROM visit GROUP BY g) AS d USING (g)",
]
BY_VALUE = [
    "SELECT count(DISTINCT v) FROM visit",
    "SELECT count(DISTINCT v), count(v), count(*), sum(v), avg(v), max(note) FROM visit",
    "SELECT g, count(DISTINCT v), sum(n), avg(f) FROM visit WHERE f < 5 GROUP BY g ORDER BY 2 DESC, 1 LIMIT 4",
    "SELECT g, count(DISTINCT note) FILTER (WHERE v < 4), count(DISTINCT note), count(DISTINCT note) FILTER"
    " (WHERE false) FROM visit GROUP BY g HAVING count(DISTINCT note) > 1",
    "SELECT g, v % 3, count(DISTINCT v % 5), count(*) FROM visit GROUP BY 1, 2",
    "SELECT g, count(DISTINCT g) FROM visit GROUP BY g",
    "SELECT note, count(DISTINCT at), min(at) FROM visit GROUP BY note ORDER BY note DESC",
    "SELECT g, count(DISTINCT n) FROM visit GROUP BY g",
    "SELECT count(DISTINCT f) FROM visit",
    "SELECT count(DISTINCT n::text) FROM visit",
    "SELECT count(DISTINCT doc), count(*) FROM visit",
    "SELECT name, count(DISTINCT v) FROM visit JOIN person USING (person) GROUP BY name",
    "SELECT count(*) FROM here WHERE w < (SELECT count(DISTINCT v) FROM visit)",
    "SELECT (SELECT count(DISTINCT v) FROM visit WHERE visit.g = here.g), w FROM here",
    "SELECT sum(c) FROM (SELECT g, count(DISTINCT v) AS c FROM visit GROUP BY g) AS s",
    "SELECT count(DISTINCT c) FROM (SELECT person, count(*) AS c FROM visit GROUP BY person) AS s",
]
DISTINCT_ROWS = [
    "SELECT count(DISTINCT v), count(DISTINCT g) FROM visit",
    "SELECT g, count(DISTINCT v), count(DISTINCT person), max(note), min(v) FROM visit GROUP BY g",
    "SELECT sum(DISTINCT v), avg(DISTINCT v) FROM visit",
    "SELECT g, array_agg(DISTINCT v ORDER BY v DESC), string_agg(DISTINCT note, ',') FROM visit GROUP BY g",
    "SELECT count(DISTINCT (v, g)), count(DISTINCT v) FILTER (WHERE g > 2) FROM visit",
    "SELECT g % 2, count(DISTINCT v + g), sum(DISTINCT g) FROM visit GROUP BY 1 HAVING max(v) > 3",
]
HERE = [
    # PostgreSQL sorts what a DISTINCT aggregate gets
    "SELECT listed(DISTINCT person) FROM visit",
    "SELECT g, listed(DISTINCT person), array_agg(DISTINCT person), string_agg(DISTINCT person::text, ',') FROM visit"
    " GROUP BY g",
    "SELECT g, string_agg(DISTINCT note, ',') FROM visit GROUP BY g",
    # 1.0 and 1.00 are equal, but not as text; A and a
    "SELECT count(DISTINCT n::text), count(DISTINCT v) FROM visit",
    'SELECT count(DISTINCT loose COLLATE "C"), count(DISTINCT v) FROM visit',
    "SELECT count(DISTINCT loose) FROM visit",
    "SELECT g, sum(DISTINCT v), count(*) FROM visit GROUP BY g",
    "SELECT g, count(DISTINCT v), string_agg(note, ',' ORDER BY id) FROM visit GROUP BY g",
    "SELECT g, count(DISTINCT v), percentile_disc(0.5) WITHIN GROUP (ORDER BY v) FROM visit GROUP BY g",
    "SELECT count(DISTINCT v), count(DISTINCT person), count(*) FROM visit",
    "SELECT g, count(DISTINCT v), count(DISTINCT person) FROM visit GROUP BY ROLLUP (g)",
    "SELECT count(DISTINCT w), count(DISTINCT here.g) FROM here JOIN visit ON v = w",
]


@pytest.mark.parametrize("query", BY_KEY)
def test_of_the_key(pair: Pair, query: str) -> None:
    pair.same(query)
    pair.same(query.replace("visit", "nobody"))
    assert "(DISTINCT " in pair.every_remote_sql(query)


@pytest.mark.parametrize("query", BY_VALUE)
def test_of_another_value(pair: Pair, query: str) -> None:
    pair.same(query)
    pair.same(query.replace("visit", "nobody"))


@pytest.mark.parametrize("query", ["count(DISTINCT v)", "count(DISTINCT n::text), count(*)"])
def test_workers_group_by_the_value(pair: Pair, query: str) -> None:
    sql = pair.every_remote_sql(f"SELECT {query} FROM visit")
    assert "GROUP BY" in sql
    assert "ORDER BY" in sql


@pytest.mark.parametrize("query", DISTINCT_ROWS)
def test_of_rows_without_duplicates(pair: Pair, query: str) -> None:
    pair.same(query)
    pair.same(query.replace("visit", "nobody"))
    assert "GROUP BY" in pair.every_remote_sql(query)


@pytest.mark.parametrize("query", HERE)
def test_what_needs_all_rows(pair: Pair, query: str) -> None:
    pair.same(query)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_parameters(pair: Pair, mode: str) -> None:
    pair.execute(f"SET plan_cache_mode = {mode}")
    pair.execute(
        "PREPARE of_key(integer) AS SELECT g, count(DISTINCT person) FROM visit WHERE v > $1 GROUP BY g;"
        "PREPARE of_value(integer) AS SELECT g, count(DISTINCT v % $1), count(*) FROM visit GROUP BY g;"
        "PREPARE routed(integer) AS SELECT count(DISTINCT v), sum(v) FROM visit WHERE person = $1"
    )
    for value in ("3", "1", "NULL", "100"):
        for name in ("of_key", "of_value", "routed"):
            pair.same(f"EXECUTE {name}({value})")
    pair.execute("DEALLOCATE ALL; RESET plan_cache_mode")


def test_own_writes_cursors_and_one_worker(pair: Pair) -> None:
    queries = [BY_KEY[1], BY_VALUE[1], BY_VALUE[3], DISTINCT_ROWS[1]]
    with pair.transaction():
        pair.same(
            "INSERT INTO visit (id, person, g, v) SELECT i, i, 1, i FROM generate_series(70, 99) AS i"
        )
        pair.same("DELETE FROM visit WHERE v = 4")
        pair.all_same(queries)
        for number, query in enumerate(queries):
            pair.same(f"DECLARE c{number} SCROLL CURSOR FOR {query} ORDER BY 1")
        pair.same("DELETE FROM visit WHERE v < 40")
        for number in range(len(queries)):
            pair.same(f"FETCH ALL FROM c{number}", ordered=False)
            pair.same(f"FETCH BACKWARD ALL FROM c{number}", ordered=False)
    pair.same("SELECT count(DISTINCT v), count(*) FROM visit WHERE person = 7")
    pair.same("SELECT g, count(DISTINCT v) FROM visit WHERE person IN (7, 8, 9) GROUP BY g")


def test_sorted_and_nested_plans(pair: Pair) -> None:
    """Where the group is not hashed, and where the node is read more than once."""
    pair.execute("SET enable_hashagg = off")
    pair.all_same(BY_KEY + BY_VALUE)
    pair.execute("RESET enable_hashagg; SET enable_material = off; SET enable_hashjoin = off")
    pair.execute("SET enable_mergejoin = off")
    for aggregate in ("count(DISTINCT person)", "count(DISTINCT v)", "sum(DISTINCT v)"):
        pair.same(
            f"SELECT w, c FROM here, (SELECT g, {aggregate} AS c FROM visit GROUP BY g) AS d WHERE w > c"
        )
        pair.same(f"SELECT w FROM here WHERE w > (SELECT {aggregate} FROM visit WHERE v > here.g)")
    pair.execute("RESET enable_material; RESET enable_hashjoin; RESET enable_mergejoin")


def test_row_security(pair: Pair) -> None:
    with pair.under_policy("visit", "id % 2 = 1 AND v < 12"):
        for query in ("count(DISTINCT person)", "count(DISTINCT v), count(*)", "sum(DISTINCT v)"):
            pair.same(f"SELECT g, {query} FROM visit GROUP BY g")
