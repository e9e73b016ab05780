"""Approximate distinct counts: HyperLogLog states are built on the workers and united here."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

ROWS = 60_000
DISTINCT = 12_000


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_hll") as made:
        made.execute(
            "CREATE TABLE hits (id bigint PRIMARY KEY, visitor integer, page text, day date);"
            "CREATE TABLE daily (day date PRIMARY KEY, visitors hll)"
        )
        made.distribute("hits", "id")
        made.distribute("daily", "day")
        made.execute(
            f"INSERT INTO hits SELECT g, g * 7919 % {DISTINCT}, '/' || g % 30,"
            f" DATE '2024-01-01' + g % 28 FROM generate_series(1, {ROWS}) AS g"
        )
        made.execute(
            "INSERT INTO daily SELECT day, hll_add_agg(hll_hash_integer(visitor)) FROM hits GROUP BY day"
        )
        yield made


@pytest.mark.parametrize(
    "query",
    [
        "SELECT hll_cardinality(hll_add_agg(hll_hash_integer(visitor))) FROM hits",
        "SELECT page, hll_cardinality(hll_add_agg(hll_hash_integer(visitor))) FROM hits GROUP BY page",
        "SELECT # hll_add_agg(hll_hash_text(page), 12) FROM hits",
        "SELECT hll_cardinality(hll_union_agg(visitors)) FROM daily",
        "SELECT # hll_union_agg(visitors) FROM daily WHERE day < '2024-01-08'",
        "SELECT day, hll_cardinality(visitors) FROM daily",
        "SELECT hll_cardinality(a.visitors || b.visitors) FROM daily a JOIN daily b ON a.day + 1 = b.day",
        "SELECT hll_union_agg(visitors) IS NULL FROM daily WHERE false",
        "SELECT hll_cardinality(hll_add_agg(hll_hash_integer(visitor)) FILTER (WHERE id % 2 = 0)) FROM hits",
    ],
)
def test_sketches_give_the_numbers_of_one_server(pair: Pair, query: str) -> None:
    pair.same(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT # hll_add_agg(hll_hash_integer(visitor)) FROM hits",
        "SELECT page, # hll_add_agg(hll_hash_integer(visitor)) FROM hits GROUP BY page",
        "SELECT # hll_union_agg(visitors) FROM daily",
    ],
)
def test_sketches_are_built_on_the_workers(pair: Pair, query: str) -> None:
    assert "strata_partial" in pair.remote_sql(query)
    (gather,) = pair.gathers(query, "ANALYZE, COSTS OFF")
    assert int(gather["Rows Received"]) <= 60


def test_a_stored_sketch_united_by_the_key_is_pushed_whole(pair: Pair) -> None:
    query = "SELECT day, # hll_union_agg(visitors) FROM daily GROUP BY day"
    assert "strata_partial" not in pair.remote_sql(query)
    pair.same(query)


@pytest.mark.parametrize("column", ["visitor", "page", "day", "visitor::bigint", "id"])
def test_approx_count_distinct_is_close_and_pushed(pair: Pair, column: str) -> None:
    ((exact, approximate),) = pair.rows(
        f"SELECT count(DISTINCT {column}), strata.approx_count_distinct({column}) FROM hits"
    )
    assert abs(approximate - exact) <= 0.05 * exact + 0.5
    assert isinstance(approximate, int)
    query = f"SELECT strata.approx_count_distinct({column}) FROM hits"
    (gather,) = pair.gathers(query, "ANALYZE, COSTS OFF")
    assert int(gather["Rows Received"]) <= 2


def test_approx_count_distinct_ignores_nulls_and_is_zero_of_nothing(pair: Pair) -> None:
    assert pair.rows("SELECT strata.approx_count_distinct(NULL::integer) FROM hits") == [(0,)]
    assert pair.rows("SELECT strata.approx_count_distinct(id) FROM hits WHERE false") == [(0,)]
    rows = pair.rows("SELECT strata.approx_count_distinct(nullif(visitor % 3, 0)) FROM hits")
    assert rows == [(2,)]


def test_approx_count_distinct_groups(pair: Pair) -> None:
    rows = pair.rows(
        "SELECT page, count(DISTINCT visitor), strata.approx_count_distinct(visitor) FROM hits GROUP BY page"
    )
    assert len(rows) == 30
    assert all(abs(approximate - exact) <= 0.06 * exact for _, exact, approximate in rows)


def test_approx_count_distinct_works_on_local_tables(pair: Pair) -> None:
    rows = pair.rows(
        "SELECT strata.approx_count_distinct(g % 100) FROM generate_series(1, 5000) AS g"
    )
    assert abs(rows[0][0] - 100) <= 3


def test_count_distinct_is_exact_unless_an_error_rate_is_set(pair: Pair) -> None:
    query = "SELECT count(DISTINCT visitor) FROM hits"
    assert pair.rows(query) == [(DISTINCT,)]
    pair.ours.execute("SET strata.count_distinct_error_rate = 0.02")
    try:
        ((approximate,),) = pair.rows(query)
        assert abs(approximate - DISTINCT) <= 0.08 * DISTINCT
        (gather,) = pair.gathers(query, "ANALYZE, COSTS OFF")
        assert int(gather["Rows Received"]) <= 2, "states instead of values"
        assert pair.rows("SELECT count(DISTINCT id) FROM hits WHERE id < 4") == [(3,)]
    finally:
        pair.ours.execute("SET strata.count_distinct_error_rate = 0")
    assert pair.rows(query) == [(DISTINCT,)]


def test_a_smaller_error_rate_is_more_exact_or_as_exact(pair: Pair) -> None:
    errors = []
    for rate in ("0.26", "0.01"):
        pair.ours.execute(f"SET strata.count_distinct_error_rate = {rate}")
        ((approximate,),) = pair.rows("SELECT count(DISTINCT visitor) FROM hits")
        errors.append(abs(approximate - DISTINCT) / DISTINCT)
    pair.ours.execute("RESET strata.count_distinct_error_rate")
    assert errors[1] <= 0.04
    assert errors[0] <= 1


@pytest.mark.parametrize("rate", ["-0.1", "1.5", "'much'"])
def test_an_error_rate_out_of_range_is_refused(pair: Pair, rate: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="count_distinct_error_rate"):
        pair.ours.execute(f"SET strata.count_distinct_error_rate = {rate}")


def test_sketches_survive_updates_and_copies_of_reference_tables(pair: Pair) -> None:
    pair.execute("CREATE TABLE sketch (id integer PRIMARY KEY, h hll)")
    pair.reference("sketch")
    pair.execute("INSERT INTO sketch SELECT 1, hll_add_agg(hll_hash_integer(visitor)) FROM hits")
    pair.execute("UPDATE sketch SET h = hll_add(h, hll_hash_integer(-5))")
    rows = pair.same("SELECT # h, h::text FROM sketch")
    assert pair.on_workers("SELECT h::text FROM sketch") == [rows[0][1]] * len(pair.cluster.workers)
    pair.execute("DROP TABLE sketch")
