"""A sub-select, view, CTE or function that says ORDER BY gives its rows in that order, as in PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_row_order") as made:
        made.execute(
            "CREATE TABLE t (k integer, g integer, v integer);"
            "CREATE TABLE part (k integer, v integer);"
            "CREATE TABLE copied (k integer, v integer)"
        )
        made.distribute("t", "k")
        made.distribute("part", "k", colocate_with="t")
        made.reference("copied")
        made.execute(
            "INSERT INTO t SELECT i, i % 3, i * 37 % 101 FROM generate_series(1, 60) AS i;"
            "INSERT INTO part SELECT i % 10, i * 41 % 103 FROM generate_series(1, 60) AS i;"
            "INSERT INTO copied SELECT i, i * 43 % 107 FROM generate_series(1, 60) AS i;"
            "ANALYZE t, part, copied;"
            "CREATE VIEW sorted AS SELECT * FROM t ORDER BY v DESC;"
            "CREATE VIEW by_hidden AS SELECT k, g FROM t ORDER BY v % 10, v;"
            "CREATE FUNCTION sorted_rows() RETURNS SETOF t STABLE LANGUAGE sql"
            " AS 'SELECT * FROM test_row_order.t ORDER BY v'"
        )
        yield made


@pytest.mark.parametrize(
    "query",
    [
        # aggregates that see the order
        "SELECT array_agg(v) FROM (SELECT v FROM t ORDER BY v) s",
        "SELECT string_agg(v::text, ',' ), json_agg(k) FROM sorted",
        "SELECT array_agg(k) FROM by_hidden",
        "SELECT g, string_agg(v::text, ',') FROM (SELECT g, v FROM t ORDER BY v) s GROUP BY g",
        "SELECT k, array_agg(v) FROM (SELECT k, v FROM part ORDER BY v) s GROUP BY k",
        "WITH s AS (SELECT v FROM t ORDER BY v DESC) SELECT jsonb_agg(v) FROM s",
        "SELECT array_agg(v) FROM sorted_rows()",
        "SELECT array_agg(v) FROM (SELECT v, count(*) OVER (PARTITION BY k) FROM sorted) s",
        "SELECT array_agg(v) FROM (SELECT v FROM part WHERE k = 3 ORDER BY v) s",
        "SELECT array_agg(v) FROM (SELECT v FROM part WHERE k = 3 ORDER BY v LIMIT 3) s",
        "SELECT array_agg(v) FROM sorted WHERE k % 2 = 0",
        "SELECT (SELECT string_agg(v::text, ',') FROM sorted)",
        "SELECT count(*), array_agg(v) FROM (SELECT v FROM t ORDER BY v OFFSET 3) s",
        # of each outer row
        "SELECT k, ARRAY(SELECT p.v FROM part p WHERE p.k = t.k ORDER BY p.v) FROM t WHERE k < 9",
        "SELECT k, (SELECT string_agg(s.v::text, ',') FROM"
        " (SELECT v FROM part p WHERE p.k = t.k ORDER BY v) s) FROM t WHERE k < 9",
        "SELECT k, ARRAY(SELECT c.v FROM copied c WHERE c.k > t.k ORDER BY c.v) FROM t WHERE k > 55",
        # window functions without an order of their own
        "SELECT row_number() OVER (), k, v FROM sorted",
        "SELECT k, first_value(v) OVER () FROM sorted",
        "SELECT k, v, row_number() OVER (PARTITION BY k) FROM (SELECT * FROM part ORDER BY k, v) s",
        "SELECT sum(v) FROM (SELECT v, row_number() OVER () AS n FROM"
        " (SELECT v FROM part WHERE k = 3 ORDER BY v DESC) s) w WHERE n < 3",
        "SELECT sum(v) FROM (SELECT v, row_number() OVER (PARTITION BY k) AS n FROM"
        " (SELECT k, v FROM part ORDER BY k, v DESC) s) w WHERE n + v % 1 < 3",
        "SELECT k, v, row_number() OVER (PARTITION BY k) FROM (SELECT * FROM part ORDER BY k, v) s"
        " ORDER BY v, k",
        "SELECT w.k, n, t.g FROM (SELECT k, v, row_number() OVER (PARTITION BY k) AS n FROM"
        " (SELECT * FROM part ORDER BY k, v) s) w JOIN t ON w.k = t.k AND w.v < 60",
    ],
)
def test_what_looks_at_the_order_of_a_sub_select_gets_it(pair: Pair, query: str):
    assert pair.same(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM sorted",
        "SELECT * FROM sorted LIMIT 3",
        "SELECT k FROM by_hidden OFFSET 5 LIMIT 7",
        "SELECT * FROM (SELECT * FROM sorted) s WHERE k > 5 LIMIT 3",
        "SELECT v + 1 FROM sorted_rows() FETCH FIRST 4 ROWS ONLY",
        "SELECT * FROM (SELECT * FROM part ORDER BY k, v) s ORDER BY k",
        "SELECT * FROM (SELECT * FROM part ORDER BY k, v) s ORDER BY k LIMIT 9",
        "SELECT DISTINCT ON (k) * FROM (SELECT * FROM part ORDER BY k, v) s",
        "SELECT DISTINCT k FROM (SELECT k FROM part ORDER BY k) s",
        "(SELECT g, v FROM t ORDER BY v) UNION ALL (SELECT k, v FROM part ORDER BY v, k)",
        "WITH s AS MATERIALIZED (SELECT * FROM t ORDER BY v) SELECT * FROM s LIMIT 4",
        "SELECT * FROM sorted WHERE k IN (1, 2, 3, 4, 5)",
    ],
)
def test_a_result_has_the_order_of_its_sub_select(pair: Pair, query: str):
    assert pair.same(query, ordered=True)


@pytest.mark.parametrize("target", ["distributed", "local"])
def test_serial_numbers_follow_the_order_of_the_rows(pair: Pair, target: str):
    with pair.transaction():
        pair.execute(
            "CREATE TABLE numbered (n serial, v integer, at bigint GENERATED ALWAYS AS IDENTITY)"
        )
        if target == "distributed":
            pair.distribute("numbered", "v")
        pair.same("INSERT INTO numbered (v) SELECT v FROM t ORDER BY v")
        pair.same("INSERT INTO numbered (v) SELECT v FROM sorted RETURNING n, v", ordered=True)
        pair.same("SELECT * FROM numbered ORDER BY n")


def test_a_cursor_moves_in_the_order_of_its_view(pair: Pair):
    with pair.transaction():
        pair.execute("DECLARE c SCROLL CURSOR FOR SELECT * FROM sorted")
        for step in ("FETCH 3", "FETCH 2", "FETCH BACKWARD 4", "FETCH LAST"):
            pair.same(f"{step} FROM c", ordered=True)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*), sum(v), min(k) FROM sorted",
        "SELECT g, count(*) FROM sorted GROUP BY g",
        "SELECT k, avg(v) FROM sorted GROUP BY k",
        "SELECT * FROM sorted ORDER BY k LIMIT 2",
        "SELECT sorted.v, part.v FROM sorted JOIN part USING (k)",
        "SELECT count(*) FROM t WHERE k IN (SELECT k FROM part ORDER BY v)",
    ],
)
def test_an_order_that_nobody_sees_costs_nothing(pair: Pair, query: str):
    """All is done by the workers, without the sub-select's sorting."""
    pair.same(query)
    (gather,) = pair.gathers(query, "COSTS OFF, VERBOSE")
    assert not re.search(r"ORDER BY[^()]*\)", gather["Remote SQL"]), gather
