"""Aggregates of the optional side of an outer join, made before the join, are PostgreSQL's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair, walk

TABLES = """
CREATE COLLATION no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE person (p integer PRIMARY KEY, name text, town integer, tag varchar(20), loose text COLLATE no_case, n numeric);
CREATE TABLE town (t integer PRIMARY KEY, name text);
CREATE TABLE bought (b bigint, p integer, tag text, loose text COLLATE no_case, n numeric, i2 smallint, i4 integer, i8 bigint,
  f float8, d date, flag boolean, state text, m money, a integer[]);
CREATE TABLE here (p integer, w integer);
CREATE VIEW large AS SELECT * FROM bought WHERE i4 > 20;
CREATE VIEW guarded WITH (security_barrier) AS SELECT * FROM bought WHERE i4 > 20;
"""
ROWS = """
INSERT INTO person SELECT p, 'name ' || p % 90, nullif(p % 7, 3), 'tag ' || p % 50, CASE WHEN p % 2 = 0 THEN 'L' ELSE 'l' END || p % 40,
  CASE WHEN p % 2 = 0 THEN p ELSE p * 1.00 END FROM generate_series(1, 300) AS p;
INSERT INTO town SELECT t, 'town ' || t FROM generate_series(0, 8) AS t;
INSERT INTO bought SELECT b, nullif(b * 7 % 280, 11), 'tag ' || b % 60, 'l' || b % 45, b % 250 / 1.00, b % 90, nullif(b % 97, 5),
  b::bigint * 100000000, b / 4.0, date '2024-01-01' + (b % 400)::integer, b % 3 = 0, (ARRAY['open', 'sent', NULL])[b % 3 + 1], b % 50,
  ARRAY[b % 5] FROM generate_series(1, 4000) AS b;
INSERT INTO bought (b, p, n) VALUES (5000, 1, 'NaN'), (5001, 2, 'Infinity'), (5002, 3, '-Infinity');
INSERT INTO here SELECT w * 3, w FROM generate_series(1, 150) AS w;
ANALYZE;
"""


@pytest.fixture(scope="module", params=["distributed", "reference", "local"])
def pair(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """What is preserved lies anywhere."""
    with open_pair(cluster, f"test_eager_{request.param}") as made:
        made.execute(TABLES)
        made.distribute("bought", "b", "none")
        if request.param == "distributed":
            made.distribute("person", "p", "none")
        elif request.param == "reference":
            made.reference("person")
            made.reference("town")
        made.execute(ROWS)
        yield made


EAGER = [
    # TPC-H's thirteenth query
    "SELECT c, count(*) FROM (SELECT p.p, count(b) FROM person AS p LEFT JOIN bought AS b ON p.p = b.p AND state NOT LIKE '%e%n%'"
    " GROUP BY p.p) AS counted (p, c) GROUP BY c ORDER BY 2 DESC, 1 DESC",
    "SELECT name, count(*), count(b), count(i4), sum(i4), min(d), max(d) FROM person LEFT JOIN bought USING (p) GROUP BY name",
    "SELECT town, sum(i2), sum(i4), sum(i8), sum(b.n), avg(i2), avg(i4), avg(i8), avg(b.n) FROM person AS p LEFT JOIN bought AS b"
    " ON b.p = p.p GROUP BY town",
    "SELECT town, bool_and(flag), bool_or(flag), every(flag), bit_and(i4), bit_or(i8), min(a), max(state), min(m) FROM bought"
    " RIGHT JOIN person USING (p) GROUP BY town ORDER BY town",
    "SELECT count(*), sum(i4), max(i8) FROM person LEFT JOIN bought USING (p)",
    "SELECT count(*), sum(i4), count(i4) FROM person LEFT JOIN bought USING (p) WHERE town = 100",
    "SELECT town, sum(CASE WHEN state = 'open' THEN 1 ELSE 0 END), avg(coalesce(i4, 7)), count(coalesce(i4, 1)), max(coalesce(i4, 1000)),"
    " sum(coalesce(b.n, 0.5)) FROM person LEFT JOIN bought AS b USING (p) GROUP BY town",
    "SELECT town, count(*) FILTER (WHERE flag), sum(i4) FILTER (WHERE i4 > 10), count(i4) FILTER (WHERE flag IS NULL),"
    " count(*) FILTER (WHERE i4 IS NULL) FROM person LEFT JOIN bought USING (p) GROUP BY town",
    "SELECT name FROM person LEFT JOIN bought USING (p) GROUP BY name HAVING count(b) > 50 ORDER BY sum(i4) DESC, name LIMIT 9",
    "SELECT p.p, name, count(b) + 1 AS c, rank() OVER (ORDER BY count(b), p.p) FROM person AS p LEFT JOIN bought AS b"
    " ON b.p = p.p AND p.town > 2 AND b.i4 BETWEEN 5 AND 50 GROUP BY p.p ORDER BY c, p.p",
    "SELECT t.name, count(i4) FROM town AS t LEFT JOIN person AS p ON town = t LEFT JOIN bought AS b ON b.p = p.p GROUP BY t.name",
    "SELECT t.name, w, count(i4) FROM person AS p LEFT JOIN bought AS b ON b.p = p.p JOIN town AS t ON town = t JOIN here AS h ON h.p = p.p"
    " GROUP BY t.name, w",
    "SELECT w, count(i4) FROM here LEFT JOIN bought ON bought.p = here.p AND bought.i2 = here.w GROUP BY w",
    "SELECT w, count(i4), sum(i4) FROM here LEFT JOIN bought ON bought.p = here.p + 1 GROUP BY w",
    "SELECT person.tag, count(i4) FROM person LEFT JOIN bought ON bought.tag = person.tag GROUP BY person.tag",
    "SELECT sum(c) FROM (SELECT count(i4) AS c FROM person LEFT JOIN bought USING (loose) GROUP BY loose) AS s GROUP BY c",
    "SELECT person.n, count(i4) FROM person LEFT JOIN bought AS b ON b.n = person.n GROUP BY person.n",
    "SELECT person.p, count(i4) FROM person LEFT JOIN bought AS b ON b.i8 = person.p GROUP BY person.p",
    "SELECT town, count(i4), max(d) FROM person LEFT JOIN large USING (p) GROUP BY town",
    "SELECT town, count(i4), max(d) FROM person LEFT JOIN guarded USING (p) GROUP BY town",
    "SELECT town, count(i4) FROM person LEFT JOIN (SELECT * FROM bought WHERE d > '2024-06-01' ORDER BY d LIMIT 100) AS b USING (p)"
    " GROUP BY town",
    "SELECT town, count(i4) FROM person LEFT JOIN bought USING (p) WHERE town IN (SELECT t FROM town WHERE name > 'town 2') GROUP BY town",
    "WITH c AS (SELECT p, count(b) AS n FROM person LEFT JOIN bought USING (p) GROUP BY p) SELECT n, count(*) FROM c GROUP BY n",
    "SELECT DISTINCT count(b) FROM person LEFT JOIN bought USING (p) GROUP BY p",
    "SELECT town, count(i4), min(bought.p) FROM person LEFT JOIN bought ON person.p = bought.p GROUP BY town",
]
AS_WRITTEN = [
    "SELECT town, count(DISTINCT i4) FROM person LEFT JOIN bought USING (p) GROUP BY town",
    "SELECT town, array_agg(i4 ORDER BY i4, b) FROM person LEFT JOIN bought USING (p) GROUP BY town",
    "SELECT town, stddev(i4) FROM person LEFT JOIN bought USING (p) GROUP BY town",
    "SELECT town, sum(i4 + town) FROM person LEFT JOIN bought USING (p) GROUP BY town",
    "SELECT town, count(i4), count(name) FROM person LEFT JOIN bought USING (p) GROUP BY town",
    "SELECT town, bought.flag, count(i4) FROM person LEFT JOIN bought USING (p) GROUP BY town, bought.flag",
    "SELECT town, count(i4) FROM person LEFT JOIN bought USING (p) WHERE bought.flag IS NOT TRUE GROUP BY town",
    "SELECT town, count(i4) FROM person LEFT JOIN bought ON person.p < bought.p AND bought.p < 9 GROUP BY town",
    "SELECT town, count(i4) FROM person LEFT JOIN bought ON person.p = bought.p AND bought.i4 < person.town GROUP BY town",
    "SELECT town, sum(100 / nullif(i4, 0)) FROM person LEFT JOIN bought USING (p) WHERE i4 IS NULL OR i4 > 0 GROUP BY town",
    "SELECT town, sum(100 / i4) FROM person LEFT JOIN bought ON person.p = bought.p AND i4 > 0 GROUP BY town",
    "SELECT town, count(i4 + random()) FROM person LEFT JOIN bought USING (p) GROUP BY town",
    'SELECT person.p, count(i4) FROM person LEFT JOIN bought ON person.loose = bought.loose COLLATE "C" GROUP BY person.p',
    "SELECT town, count(i4) FROM person FULL JOIN bought USING (p) GROUP BY town",
    "SELECT town, count(i4), GROUPING(town) FROM person LEFT JOIN bought USING (p) GROUP BY ROLLUP (town)",
    "SELECT town, count(i4) FROM person LEFT JOIN bought TABLESAMPLE BERNOULLI (100) USING (p) GROUP BY town",
    "SELECT w, count(i4), (SELECT max(t) FROM town WHERE t > max(i4) - 95) FROM here LEFT JOIN bought USING (p) GROUP BY w",
]


def groups(node: dict) -> bool:
    return "Aggregate" in node["Node Type"] or " GROUP BY " in node.get("Remote SQL", "")


def is_eager(pair: Pair, query: str) -> bool:
    """Are there groups below a join?"""
    return any(
        any(groups(inner) for inner in walk(node))
        for node in pair.nodes(query)
        if node["Node Type"].endswith("Join") or node["Node Type"] == "Nested Loop"
    )


@pytest.fixture(autouse=True)
def _reset(pair: Pair) -> Iterator[None]:
    yield
    pair.reset()
    pair.ours.execute("RESET strata.enable_eager_aggregation")


@pytest.mark.parametrize("query", EAGER)
def test_groups_before_the_join(pair: Pair, query: str) -> None:
    pair.ours.execute("SET strata.enable_eager_aggregation = always")
    pair.same(query)
    assert is_eager(pair, query), pair.explain(query, "VERBOSE, COSTS OFF")


@pytest.mark.parametrize("query", AS_WRITTEN)
def test_what_stays_as_it_is(pair: Pair, query: str) -> None:
    pair.ours.execute("SET strata.enable_eager_aggregation = always")
    pair.same(query)
    assert not is_eager(pair, query)


@pytest.mark.parametrize("query", [*EAGER, *AS_WRITTEN])
def test_where_it_is_cheaper_or_never(pair: Pair, query: str) -> None:
    pair.same(query)
    pair.ours.execute("SET strata.enable_eager_aggregation = off")
    pair.same(query)
    assert not is_eager(pair, query)


def test_it_is_chosen(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE many AS SELECT n AS o, n % 300 AS p FROM generate_series(1, 60000) AS n"
    )
    pair.distribute("many", "o", "none")
    pair.execute("ANALYZE many")
    query = "SELECT person.p, count(o) FROM person LEFT JOIN many ON many.p = person.p GROUP BY person.p"
    assert is_eager(pair, query), pair.explain(query, "COSTS ON")
    pair.same(query)
    single = query.replace("many.p = ", "many.o = ")
    assert not is_eager(pair, single), pair.explain(single, "COSTS ON")
    pair.same(single)
    pair.execute("DROP TABLE many")


def test_parameters_writes_and_cursors(pair: Pair) -> None:
    pair.ours.execute("SET strata.enable_eager_aggregation = always")
    query = "SELECT town, count(b), sum(i4) FROM person LEFT JOIN bought ON bought.p = person.p AND i4 > {} GROUP BY town ORDER BY town"
    for plans in ("force_custom_plan", "force_generic_plan"):
        pair.execute(
            f"SET plan_cache_mode = {plans}; PREPARE asked(integer) AS {query.format('$1')}"
        )
        for value in ("3", "NULL", "1000"):
            pair.same(f"EXECUTE asked({value})")
        pair.execute("DEALLOCATE asked; RESET plan_cache_mode")
    with pair.transaction():
        pair.same("INSERT INTO bought (b, p, i4) VALUES (6000, 1, 50)")
        pair.same(f"DECLARE c SCROLL CURSOR FOR {query.format(0)}")
        pair.same("DELETE FROM bought WHERE p < 30")
        pair.same("FETCH ALL FROM c")
        pair.same("FETCH BACKWARD 2 FROM c")
        pair.same(query.format(0))


def test_rights(pair: Pair) -> None:
    pair.ours.execute("SET strata.enable_eager_aggregation = always")
    queries = [
        query
        for query in EAGER
        if "here" not in query and "large" not in query and "guarded" not in query
    ]
    with pair.under_policy(
        "bought", "i4 > 40 AND p IN (SELECT p FROM person WHERE town > 1)", "person", "town"
    ):
        pair.all_same(queries)
    with pair.under_policy("person", "town > 3", "bought", "town"):
        pair.all_same(queries)
    pair.execute(
        f"CREATE ROLE eager_stranger; GRANT USAGE ON SCHEMA {pair.schema} TO eager_stranger;"
        "GRANT SELECT ON person TO eager_stranger; GRANT SELECT (p, i4) ON bought TO eager_stranger; SET ROLE eager_stranger"
    )
    pair.same("SELECT town, sum(i4) FROM person LEFT JOIN bought USING (p) GROUP BY town")
    pair.same("SELECT town, sum(i8) FROM person LEFT JOIN bought USING (p) GROUP BY town")
    pair.same(
        "SELECT town, sum(i4) FROM person LEFT JOIN bought ON person.p = bought.p AND flag GROUP BY town"
    )
    pair.execute("RESET ROLE; DROP OWNED BY eager_stranger; DROP ROLE eager_stranger")


def test_sums_out_of_range(pair: Pair) -> None:
    pair.ours.execute("SET strata.enable_eager_aggregation = always")
    pair.same(
        "SELECT sum(i8 * 9000000000), sum(i8), avg(i8) FROM person LEFT JOIN bought USING (p)"
    )
    pair.same(
        "SELECT sum(i8) FROM person LEFT JOIN bought USING (p) HAVING sum(i8) > 9000000000000000000"
    )
