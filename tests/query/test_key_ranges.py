"""Joins with a dimension in the order of its key, of which a condition leaves a part: as many rows are expected as come."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

TABLES = """
CREATE TABLE days (id integer PRIMARY KEY, day date NOT NULL, year integer, month integer, moy integer, moment timestamp, label text);
CREATE TABLE back (id bigint PRIMARY KEY, year smallint);
CREATE TABLE mixed (id integer PRIMARY KEY, year integer);
CREATE TABLE sale (s bigint, day integer, item integer, price numeric);
"""
# two centuries of days; sales of five years of them, twice as many at the end
ROWS = """
INSERT INTO days SELECT i + 2400000, d, extract(year FROM d), extract(year FROM d) * 12 + extract(month FROM d), extract(month FROM d), d, 'l' || i % 7
  FROM (SELECT i, date '1900-01-01' + i AS d FROM generate_series(0, 73000) AS i) AS q ORDER BY i;
INSERT INTO back SELECT id, year FROM days ORDER BY id DESC;
INSERT INTO mixed SELECT id, year FROM days ORDER BY hashint4(id);
INSERT INTO sale SELECT i, 2400000 + date '1998-01-01' - date '1900-01-01' + i % 1826, i % 50, i % 97 FROM generate_series(1, 60000) AS i;
INSERT INTO sale SELECT i, 2400000 + date '2002-01-01' - date '1900-01-01' + i % 365, i % 50, i % 97 FROM generate_series(60001, 72000) AS i;
INSERT INTO sale SELECT i, NULL, 1, 1 FROM generate_series(72001, 75000) AS i;
ANALYZE;
"""


@pytest.fixture(scope="module", params=["heap", "columnar"])
def pair(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with open_pair(cluster, f"test_ranges_{request.param}") as made:
        made.execute(TABLES)
        made.distribute("sale", "s", "none", storage=request.param)
        for table in ("days", "back", "mixed"):
            made.reference(table, request.param)
        made.execute(ROWS)
        yield made


def expected(pair: Pair, query: str) -> float:
    """The rows of the join that the planner expects to come."""
    (gather,) = pair.gathers(query, "COSTS ON")
    return gather["Plan Rows"]


JOINS = [
    ("days", "year = 2000"),
    ("days", "year = 2002"),
    ("days", "year IN (1999, 2000)"),
    ("days", "year BETWEEN 1999 AND 2001"),
    ("days", "2001 <= year"),
    ("days", "year > 2001 AND year < 2050"),
    ("days", "d.day >= '2001-03-01' AND d.day < '2001-06-01'"),
    ("days", "d.day BETWEEN date '2000-02-01' AND date '2000-02-01' + 60"),
    ("days", "month BETWEEN 2000 * 12 + 3 AND 2000 * 12 + 8"),
    ("days", "moment >= '2001-01-01' AND moment < '2001-07-01'"),
    ("days", "year = 2000 AND moy IN (3, 4)"),
    ("back", "year = 2000"),
    ("back", "year >= 2001"),
]


@pytest.mark.parametrize(("table", "condition"), JOINS)
def test_as_many_as_come(pair: Pair, table: str, condition: str) -> None:
    query = f"SELECT s, price FROM sale JOIN {table} AS d ON d.id = sale.day WHERE {condition}"
    rows = len(pair.same(query))
    assert rows / 2 < expected(pair, query) < rows * 2, pair.explain(query, "COSTS ON")


def test_where_nothing_is_known(pair: Pair) -> None:
    """Rows in no order, conditions on other columns, none at all, and what is never true."""
    for table, condition in (
        ("mixed", "year = 2000"),
        ("days", "label = 'l3'"),
        ("days", "year + 0 = 2000"),
        ("days", "true"),
        ("days", "year = 1850"),
        ("days", "year = NULL"),
        ("days", "year IN (1850, NULL)"),
        ("days", "year < 1950"),
        ("days", "year = ANY ('{}')"),
        ("days", "year > 2000 AND year < 1999"),
        ("days", "year <> 2000"),
    ):
        pair.same(
            f"SELECT count(*), sum(price) FROM sale JOIN {table} AS d ON d.id = sale.day WHERE {condition}"
        )


def test_other_joins(pair: Pair) -> None:
    for query in (
        "SELECT s FROM sale LEFT JOIN days AS d ON d.id = sale.day AND year = 2000 WHERE s % 100 = 0",
        "SELECT s FROM sale WHERE day IN (SELECT id FROM days WHERE year = 2000) AND s % 100 = 0",
        "SELECT s FROM sale WHERE day NOT IN (SELECT id FROM days WHERE year = 2000) AND s % 100 = 0",
        "SELECT count(*) FROM sale AS a JOIN days AS d ON d.id = a.day JOIN back AS b ON b.id = a.day AND b.year = d.year WHERE d.year = 2000",
        "SELECT d.moy, sum(price) FROM sale JOIN days AS d ON d.id = sale.day JOIN days AS e ON e.id = d.id + 1 WHERE e.year = 2001 GROUP BY d.moy",
    ):
        pair.same(query)
    pair.execute(
        "PREPARE asked(integer) AS SELECT count(*) FROM sale JOIN days AS d ON d.id = sale.day WHERE year = $1"
    )
    for plans in ("force_custom_plan", "force_generic_plan"):
        pair.execute(f"SET plan_cache_mode = {plans}")
        for year in ("2000", "NULL", "1901"):
            pair.same(f"EXECUTE asked({year})")
    pair.execute("RESET plan_cache_mode; DEALLOCATE ALL")


GROUPS = [
    ("days", "d.year", "true"),
    ("days", "d.year, item", "true"),
    ("days", "d.month", "true"),
    ("days", "d.year", "d.day BETWEEN '2000-03-01' AND '2000-06-01'"),
    ("back", "d.year", "true"),
    ("days", "d.moy", "true"),
]


@pytest.mark.parametrize(("table", "groups", "condition"), GROUPS)
def test_as_many_groups_as_come(pair: Pair, table: str, groups: str, condition: str) -> None:
    query = f"SELECT {groups}, count(*), sum(price) FROM sale JOIN {table} AS d ON d.id = sale.day WHERE {condition} GROUP BY {groups}"
    rows = len(pair.same(query))
    assert rows / 3 <= pair.plan(query, "COSTS ON")["Plan Rows"] <= rows * 3, pair.explain(
        query, "COSTS ON"
    )
    distinct = (
        f"SELECT DISTINCT {groups} FROM sale JOIN {table} AS d ON d.id = sale.day WHERE {condition}"
    )
    rows = len(pair.same(distinct))
    assert rows / 3 <= pair.plan(distinct, "COSTS ON")["Plan Rows"] <= rows * 3, pair.explain(
        distinct, "COSTS ON"
    )


def test_other_indexes(pair: Pair) -> None:
    """BRIN asks for statistics, too, of what it does not say."""
    pair.execute(
        "CREATE TABLE brin (id integer, at integer); CREATE INDEX ON brin USING brin (at); CREATE INDEX ON brin USING gin ((ARRAY[at]))"
    )
    pair.execute(
        "INSERT INTO brin SELECT i, i / 10 FROM generate_series(1, 20000) AS i; ANALYZE brin"
    )
    pair.same(
        "SELECT b.at, count(*) FROM brin AS b JOIN days AS d ON d.id = 2400000 + b.id WHERE b.at BETWEEN 5 AND 9 GROUP BY b.at"
    )
    pair.same("SELECT at, count(*) FROM brin WHERE at = 7 GROUP BY at")
    pair.execute("DROP TABLE brin")
