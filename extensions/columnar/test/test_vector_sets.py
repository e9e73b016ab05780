"""GROUPING SETS, ROLLUP and CUBE by batches: an aggregation for each set, with heap's answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from extensions.columnar.test.random_story import PARALLEL
from extensions.columnar.test.test_vector_groups import is_vectorised, same_groups
from extensions.columnar.test.twins import Twins, open_twins
from tests.cluster import Node


@pytest.fixture(scope="module")
def sides(node: Node) -> Iterator[Twins]:
    with open_twins(node, "test_vector_sets") as made:
        made.execute(
            "CREATE TABLE s (id integer PRIMARY KEY, a integer, b text, c date, v numeric(10, 2), f float8, j json)",
            "INSERT INTO s SELECT i, CASE WHEN i % 9 > 0 THEN i % 4 END, CASE WHEN i % 7 > 0 THEN 'b' || i % 3 END,"
            " date '2020-01-01' + i % 5, i / 3.0, i % 8, '{}' FROM generate_series(1, 5000) AS i; ANALYZE s",
            "CREATE TABLE o (a integer, name text); INSERT INTO o SELECT i, 'n' || i FROM generate_series(0, 3) AS i",
            "CREATE TABLE none (a integer, b text); ANALYZE",
        )
        yield made


@pytest.fixture
def tables(sides: Twins) -> Iterator[Twins]:
    sides.execute("SET max_parallel_workers_per_gather = 0")
    yield sides
    sides.reset()


QUERIES = [
    "SELECT a, b, count(*), sum(v) FROM s GROUP BY ROLLUP (a, b)",
    "SELECT a, b, c, count(*), sum(v), max(f) FROM s GROUP BY CUBE (a, b, c)",
    "SELECT a, b, grouping(a), grouping(b), grouping(a, b), count(*) FROM s GROUP BY GROUPING SETS ((a), (b), ())",
    "SELECT a, c, count(*) FROM s GROUP BY a, ROLLUP (c)",
    "SELECT a, b, count(*) FROM s GROUP BY GROUPING SETS ((a), (a), (b, a), ())",
    "SELECT a, b, count(*) FROM s GROUP BY DISTINCT ROLLUP (a, b), ROLLUP (a)",
    "SELECT count(*), sum(v) FROM s GROUP BY GROUPING SETS (())",
    "SELECT count(*), sum(v) FROM s GROUP BY GROUPING SETS ((), ())",
    "SELECT a, sum(a), count(a), max(b) FROM s GROUP BY ROLLUP (a)",
    "SELECT a + 1 AS x, coalesce(b, '?') AS y, count(*) FROM s GROUP BY ROLLUP (a, b)",
    "SELECT a % 2, upper(b), count(*), grouping(a % 2) FROM s GROUP BY GROUPING SETS ((a % 2), (upper(b)))",
    "SELECT a % 2 + 5, a, count(*) FROM s GROUP BY GROUPING SETS ((a % 2), (a))",
    "SELECT a, b, count(*) FROM s GROUP BY ROLLUP (a, b) HAVING count(*) > 300 OR grouping(b) = 1",
    "SELECT a, b, count(*) FROM s GROUP BY ROLLUP (a, b) HAVING a IS NULL",
    "SELECT a, count(DISTINCT b), count(*) FROM s GROUP BY ROLLUP (a)",
    "SELECT a, count(*) FILTER (WHERE f > 3), avg(v) FROM s WHERE b = 'b1' GROUP BY CUBE (a)",
    "SELECT a, b, count(*) FROM s GROUP BY ROLLUP (a, b) ORDER BY grouping(a, b), a, b LIMIT 7",
    "SELECT a, sum(count(*)) OVER (ORDER BY a NULLS FIRST, grouping(a)) FROM s GROUP BY ROLLUP (a)",
    "SELECT name, b, count(*), sum(v) FROM s JOIN o USING (a) GROUP BY ROLLUP (name, b)",
    "SELECT * FROM (SELECT a, b, count(*) AS n FROM s GROUP BY CUBE (a, b)) AS x WHERE a = 2",
    "SELECT x.n, o.a FROM o, LATERAL (SELECT b, count(*) AS n FROM s WHERE s.a = o.a GROUP BY ROLLUP (b)) AS x",
]  # fmt: skip

# by sorting or by rows, in core
OTHERS = [
    "SELECT a, count(*) FROM s WHERE id < 0 GROUP BY ROLLUP (a)",
    "SELECT x.a, b, count(*) FROM (SELECT * FROM s WHERE id < 900 OFFSET 0) AS x GROUP BY ROLLUP (x.a, b)",
    "SELECT o.a, x.b, count(*) FROM o JOIN (SELECT * FROM s OFFSET 0) AS x USING (a) GROUP BY CUBE (o.a, x.b)",
    "SELECT g, sum(n) FROM (SELECT grouping(a) AS g, count(*) AS n FROM s WHERE random() < 2 GROUP BY ROLLUP (a)) AS x GROUP BY g",
    "SELECT a, b, count(*) FROM none GROUP BY GROUPING SETS ((a), (b), (), ())",
    "SELECT id, a, count(*) FROM s WHERE id < 20 GROUP BY GROUPING SETS ((id), (a))",
    "SELECT a, string_agg(b, ',' ORDER BY id) FROM s GROUP BY ROLLUP (a)",
    "SELECT a, j::text, count(*) FROM s GROUP BY ROLLUP (a, j::text)",
    "SELECT 7 AS k, count(*) FROM s GROUP BY ROLLUP (1)",
    "SELECT a, random() < 2, count(*) FROM s GROUP BY ROLLUP (a)",
    "SELECT a, (SELECT max(name) FROM o WHERE o.a = s.a), count(*) FROM s GROUP BY ROLLUP (a)",
    "SELECT a, generate_series(1, 2), count(*) FROM s GROUP BY ROLLUP (a)",
    "SELECT (a % 3)::text::xid, count(*) FROM s GROUP BY GROUPING SETS ((1), (1))",  # cannot be sorted
    "SELECT 1 / (a - a), count(*) FROM s WHERE a > 0 GROUP BY ROLLUP (a)",
]


@pytest.mark.parametrize("query", QUERIES)
def test_sets(tables: Twins, query: str) -> None:
    same_groups(tables, query)


@pytest.mark.parametrize("query", QUERIES + OTHERS)
@pytest.mark.parametrize(
    "setting",
    [
        "SET enable_hashagg = off",
        "SET enable_sort = off",
        "SET work_mem = '64kB'",
        PARALLEL,
    ],
)
def test_sets_under_settings(tables: Twins, query: str, setting: str) -> None:
    tables.execute(setting)
    tables.same(query)


def test_too_many_sets(tables: Twins) -> None:
    query = "SELECT a, b, c, f, v, id % 3, count(*) FROM s WHERE id < 50 GROUP BY CUBE (a, b, c, f, v, id % 3)"
    assert not is_vectorised(tables, query)
    tables.same(query)
