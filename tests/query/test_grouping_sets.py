"""GROUPING SETS, ROLLUP and CUBE: made on the workers as far as that goes, with PostgreSQL's answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

TABLES = """
CREATE TABLE sale (id integer, shop integer, g integer, h text, v integer, n numeric, f float8, day date,
  doc json);
CREATE TABLE nothing (LIKE sale);
CREATE TABLE shop (shop integer PRIMARY KEY, town text, size integer);
CREATE TABLE here (g integer, w integer);
CREATE TABLE everywhere (g integer PRIMARY KEY, w integer);
"""
ROWS = """
INSERT INTO sale SELECT i, nullif(i % 41, 17), nullif(i % 7, 3), nullif('h' || i % 5, 'h2'), nullif(i * 7919 % 23, 5),
  (i % 13) / 4.0, i % 9, date '2024-01-01' + i % 11, json_build_object('a', i % 3)
  FROM generate_series(1, 1200) AS i;
INSERT INTO sale (id) VALUES (9000), (9001);
INSERT INTO shop SELECT i, 't' || i % 6, i % 4 FROM generate_series(0, 45) AS i;
INSERT INTO here SELECT i, i * 3 FROM generate_series(0, 9) AS i;
INSERT INTO everywhere SELECT * FROM here WHERE g <> 4;
ANALYZE sale, nothing, shop, here;
"""


@pytest.fixture(scope="module", params=["columnar", "heap"])
def pair(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with open_pair(cluster, f"test_sets_{request.param}") as made:
        made.execute(TABLES)
        for table, colocated in (("sale", "none"), ("nothing", "sale"), ("shop", "sale")):
            made.distribute(table, "shop", colocated, storage=request.param)
        made.reference("everywhere")
        made.execute(ROWS)
        yield made


WHOLE = [
    "SELECT shop, g, count(*), sum(v), avg(n) FROM sale GROUP BY GROUPING SETS ((shop, g), (shop))",
    "SELECT shop, grouping(shop, g), grouping(g), count(DISTINCT v) FROM sale"
    " GROUP BY GROUPING SETS ((shop), (shop, g), (shop))",
    "SELECT shop, g, h, string_agg(h, ',' ORDER BY id), percentile_disc(0.5) WITHIN GROUP (ORDER BY v) FROM sale"
    " GROUP BY shop, CUBE (g, h) HAVING count(*) > 1 AND grouping(g) = 0 ORDER BY 1, 2 DESC, 3",
    "SELECT g, max(v) - grouping(g) FROM sale GROUP BY shop, ROLLUP (g)",
    "SELECT shop, town, count(*) FROM sale JOIN shop USING (shop) GROUP BY shop, ROLLUP (town)",
    "SELECT g, h, count(*) FROM sale WHERE shop = 5 GROUP BY CUBE (g, h)",
    "SELECT count(*), sum(v) FROM sale WHERE shop = 5 GROUP BY GROUPING SETS ((), (), (g))",
    "SELECT DISTINCT shop, g IS NULL FROM sale GROUP BY GROUPING SETS ((shop, g), (shop))",
    "SELECT shop, g, count(*), rank() OVER (PARTITION BY shop ORDER BY count(*), g) FROM sale"
    " GROUP BY shop, ROLLUP (g)",
    "SELECT shop, sum(c) FROM (SELECT shop, g, count(*) AS c FROM sale GROUP BY shop, ROLLUP (g)) AS s GROUP BY shop",
    "SELECT shop, g FROM sale GROUP BY DISTINCT shop, ROLLUP (g), ROLLUP (g) HAVING shop > 3 OR shop IS NULL",
]
PARTIAL = [
    "SELECT g, h, count(*), count(v), sum(v), avg(n), min(h), max(day), stddev_pop(f) FROM sale GROUP BY ROLLUP (g, h)",
    "SELECT g, h, grouping(g), grouping(h, g), count(*) FROM sale GROUP BY CUBE (g, h) ORDER BY 3, 4, 1, 2 DESC",
    "SELECT g, h, sum(v) FILTER (WHERE f > 3), count(*) FROM sale GROUP BY GROUPING SETS ((g), (h), (g, h), (), (g))",
    "SELECT g, count(*) FROM sale GROUP BY GROUPING SETS ((g), (g), (), ())",
    "SELECT count(*), sum(v), avg(v), min(n) FROM sale GROUP BY GROUPING SETS ((), ())",
    "SELECT g, sum(v) FROM sale GROUP BY ROLLUP (g) HAVING grouping(g) = 1 OR count(*) > 150",
    "SELECT g, h FROM sale GROUP BY CUBE (g, h)",
    "SELECT g + 1, grouping(g), max(v) + 1 FROM sale GROUP BY ROLLUP (g)",
    "SELECT v % 3, (v % 3) * 2, count(*) FROM sale GROUP BY ROLLUP (v % 3)",
    "SELECT sum(g), g, avg(g), count(g) FROM sale GROUP BY ROLLUP (g, h)",
    "SELECT town, size, sum(v), count(*) FROM sale JOIN shop USING (shop) GROUP BY CUBE (town, size)",
    "SELECT g, h, count(*), rank() OVER (PARTITION BY grouping(g, h) ORDER BY count(*), g, h) FROM sale"
    " GROUP BY ROLLUP (g, h)",
    "SELECT DISTINCT g IS NULL, count(*) > 100 FROM sale GROUP BY CUBE (g, h)",
    "SELECT w, c FROM here JOIN (SELECT g, sum(v) AS c FROM sale GROUP BY ROLLUP (g)) AS d USING (g)",
    "SELECT w, (SELECT max(c) FROM (SELECT g, count(*) AS c FROM sale GROUP BY CUBE (g, h)) AS s WHERE s.g = here.g)"
    " FROM here",
    "SELECT g, h, day, count(*) FROM sale GROUP BY g, ROLLUP (h), CUBE (day)",
    "SELECT g, count(*) FROM sale GROUP BY DISTINCT ROLLUP (g, h), ROLLUP (g)",
    "SELECT g, h, bool_or(v > 20), every(v > 2), bit_or(v) FROM sale WHERE v > 1 GROUP BY ROLLUP (g, h)"
    " ORDER BY g NULLS FIRST, h LIMIT 7",
    "SELECT shop, g, count(*) FROM sale GROUP BY GROUPING SETS ((shop), (g), ())",
]
DISTINCT_ROWS = [
    "SELECT g, count(DISTINCT v), max(v) FROM sale GROUP BY ROLLUP (g)",
    "SELECT g, h, count(DISTINCT v), sum(DISTINCT v), min(day) FROM sale GROUP BY CUBE (g, h)",
    "SELECT count(DISTINCT g), g FROM sale GROUP BY GROUPING SETS ((g), ()) HAVING count(DISTINCT v) > 0",
]
HERE = [
    "SELECT g, count(DISTINCT v), count(*) FROM sale GROUP BY ROLLUP (g)",
    "SELECT g, string_agg(h, ',' ORDER BY id) FROM sale GROUP BY ROLLUP (g)",
    "SELECT g, percentile_cont(0.5) WITHIN GROUP (ORDER BY v) FROM sale GROUP BY CUBE (g)",
    # what is the same in all rows
    "SELECT x, g, count(*) FROM (SELECT 1 AS x, g FROM sale) AS s GROUP BY CUBE (x, g)",
    "SELECT x, x + 1, count(*) FROM (SELECT v + 1 AS x FROM sale) AS s GROUP BY ROLLUP (x)",
    # columns that depend on a primary key
    "SELECT shop.shop, town, sum(size) FROM shop GROUP BY GROUPING SETS ((shop.shop), (shop.shop))",
    "SELECT random() < 2, g, count(*) FROM sale GROUP BY ROLLUP (g, h)",
    "SELECT g, count(*) FROM sale GROUP BY ROLLUP (g) HAVING random() < 2",
    "SELECT count(*) FROM sale GROUP BY ROLLUP (random() > 2)",
    "SELECT 1 FROM sale GROUP BY GROUPING SETS ((), ())",
    "SELECT w, g, count(*) FROM here JOIN sale USING (g) GROUP BY CUBE (w, g)",
]


@pytest.mark.parametrize("query", WHOLE)
def test_whole_on_the_workers(pair: Pair, query: str) -> None:
    pair.same(query)
    pair.same(query.replace("FROM sale", "FROM nothing AS sale"))
    assert "GROUPING SETS" in pair.every_remote_sql(query)


@pytest.mark.parametrize("query", PARTIAL)
def test_partial_on_the_workers(pair: Pair, query: str) -> None:
    pair.same(query)
    pair.same(query.replace("FROM sale", "FROM nothing AS sale"))
    sql = pair.every_remote_sql(query)
    assert "GROUPING SETS" not in sql
    assert "GROUP BY" in sql or "strata_partial" in sql


@pytest.mark.parametrize("query", DISTINCT_ROWS)
def test_rows_without_duplicates(pair: Pair, query: str) -> None:
    pair.same(query)
    pair.same(query.replace("FROM sale", "FROM nothing AS sale"))
    assert "GROUP BY" in pair.every_remote_sql(query)


@pytest.mark.parametrize("query", HERE)
def test_what_needs_all_rows(pair: Pair, query: str) -> None:
    pair.same(query)
    assert "GROUPING SETS" not in pair.every_remote_sql(query)


@pytest.mark.parametrize("groups", ["{s}", "ROLLUP ({s})", "shop, ROLLUP ({s})", "CUBE ({s}, g)"])
def test_sub_selects_that_are_asked_for(pair: Pair, groups: str) -> None:
    """GROUPING() has a sub-select of its own, which is not the one of GROUP BY."""
    sub_select = "(SELECT min(w) FROM everywhere e WHERE e.g = sale.g)"
    groups = groups.format(s=sub_select)
    pair.same(f"SELECT {sub_select}, grouping({sub_select}) FROM sale GROUP BY {groups}")
    pair.same(
        f"SELECT count(*), count(DISTINCT v), sum(DISTINCT f) FROM sale GROUP BY {groups}"
        f" HAVING grouping({sub_select}) = 0 ORDER BY grouping({sub_select}), 1, 2, 3"
    )


def test_keys_that_a_set_makes_null(pair: Pair) -> None:
    """What equals the key below the sets does not above them."""
    join = "FROM sale JOIN shop ON sale.shop = shop.shop"
    pair.all_same(
        [
            f"SELECT DISTINCT shop.shop {join} GROUP BY GROUPING SETS ((sale.shop, shop.shop), (sale.shop))",
            f"SELECT s, count(*) FROM (SELECT shop.shop AS s {join} GROUP BY sale.shop, ROLLUP (shop.shop)) AS x GROUP BY s",
            f"SELECT s, count(*) FROM (SELECT shop.shop AS s {join} GROUP BY GROUPING SETS ((sale.shop), (shop.shop)))"
            " AS x GROUP BY s",
            "SELECT s.shop, s.g, t.id FROM (SELECT shop, g FROM sale GROUP BY GROUPING SETS ((shop, g), (shop))) AS s"
            " JOIN sale AS t ON t.shop = s.shop AND t.g = s.g",
            "SELECT count(*) FROM (SELECT shop, g FROM sale GROUP BY GROUPING SETS ((shop, g), (shop))) AS s"
            " WHERE shop IS NULL",
        ]
    )


def test_lateral_and_correlated(pair: Pair) -> None:
    pair.all_same(
        [
            f"SELECT shop.shop, d.* FROM shop {join} LATERAL (SELECT g, count(*) FROM sale WHERE sale.shop = shop.shop"
            f" GROUP BY {sets}) AS d ON true"
            for join in ("JOIN", "LEFT JOIN")
            for sets in ("ROLLUP (g)", "GROUPING SETS ((), ())", "GROUPING SETS ((g), (h))")
        ]
        + [
            "SELECT shop, (SELECT max(c) FROM (SELECT count(*) AS c FROM sale WHERE sale.shop = shop.shop"
            " GROUP BY ROLLUP (g)) AS s) FROM shop",
            "SELECT shop FROM shop WHERE EXISTS (SELECT FROM sale WHERE sale.shop = shop.shop GROUP BY ROLLUP (g)"
            " HAVING count(*) > 4)",
        ]
    )


def test_many_columns(pair: Pair) -> None:
    """More than GROUPING() takes."""
    columns = ", ".join(f"c{n}" for n in range(40))
    pair.execute(
        f"CREATE TABLE wide ({', '.join(f'c{n} integer' for n in range(40))});"
        "INSERT INTO wide SELECT "
        + ", ".join(f"i % {n % 3 + 1}" for n in range(40))
        + " FROM generate_series(1, 50) AS i;"
    )
    pair.distribute("wide", "c0")
    pair.same(f"SELECT {columns}, count(*) FROM wide GROUP BY ROLLUP ({columns})")
    pair.same(
        f"SELECT count(*), grouping(c1) FROM wide GROUP BY c0, GROUPING SETS (({columns}), (c1))"
    )


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_parameters(pair: Pair, mode: str) -> None:
    pair.execute(f"SET plan_cache_mode = {mode}")
    pair.execute(
        "PREPARE whole(integer) AS SELECT shop, g, count(*) FROM sale WHERE v > $1 GROUP BY shop, ROLLUP (g);"
        "PREPARE partial(integer) AS SELECT g, h, sum(v + $1) FROM sale GROUP BY CUBE (g, h) HAVING count(*) > $1;"
        "PREPARE by_value(integer) AS SELECT g, $1, count(*) FROM sale GROUP BY ROLLUP (g, $1);"
        "PREPARE routed(integer) AS SELECT g, sum(v) FROM sale WHERE shop = $1 GROUP BY ROLLUP (g)"
    )
    for value in ("3", "17", "NULL", "100"):
        for name in ("whole", "partial", "by_value", "routed"):
            pair.same(f"EXECUTE {name}({value})")
    pair.execute("DEALLOCATE ALL; RESET plan_cache_mode")


def test_own_writes_and_cursors(pair: Pair) -> None:
    queries = [WHOLE[0], PARTIAL[0], PARTIAL[3], DISTINCT_ROWS[1]]
    with pair.transaction():
        pair.same(
            "INSERT INTO sale (id, shop, g, v) SELECT i, i, 1, i FROM generate_series(70, 99) AS i"
        )
        pair.same("DELETE FROM sale WHERE v = 4")
        pair.all_same(queries)
        for number, query in enumerate(queries):
            pair.same(f"DECLARE c{number} SCROLL CURSOR FOR {query} ORDER BY 1, 2")
        pair.same("DELETE FROM sale WHERE v < 40")
        for number in range(len(queries)):
            pair.same(f"FETCH ALL FROM c{number}", ordered=False)
            pair.same(f"FETCH BACKWARD ALL FROM c{number}", ordered=False)


@pytest.mark.parametrize(
    "setting", ["enable_hashagg = off", "enable_sort = off", "work_mem = '64kB'"]
)
def test_other_plans(pair: Pair, setting: str) -> None:
    pair.execute(f"SET {setting}")
    pair.all_same(WHOLE + PARTIAL + DISTINCT_ROWS)
    pair.execute(f"RESET {setting.split()[0]}")


def test_types_without_sorting_or_hashing(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE odd (k integer, x xid, m money, b bit(3));"
        "INSERT INTO odd SELECT i, (i % 3)::text::xid, (i % 4)::numeric::money, (i % 5)::bit(3)"
        " FROM generate_series(1, 60) AS i"
    )
    pair.distribute("odd", "k")
    pair.all_same(
        f"SELECT x, m, b, count(*), sum(k) FROM odd GROUP BY {sets}"
        for sets in (
            "CUBE (x, m)",
            "ROLLUP (m, b)",
            "GROUPING SETS ((x), (m), (b), (x, m, b))",
            "k, ROLLUP (x, m)",
        )
        if "b" in sets
    )
    pair.same("SELECT x, m, count(*) FROM odd GROUP BY CUBE (x, m)")
    pair.same("SELECT k, x, m, count(*) FROM odd GROUP BY k, CUBE (x, m)")


def test_row_security(pair: Pair) -> None:
    with pair.under_policy("sale", "id % 2 = 1 AND v < 12"):
        pair.all_same([WHOLE[0], WHOLE[1], PARTIAL[0], PARTIAL[2], DISTINCT_ROWS[0]])


def test_writes_of_what_is_grouped(pair: Pair) -> None:
    pair.execute("CREATE TABLE kept (shop integer, g integer, c bigint)")
    pair.distribute("kept", "shop", "sale")
    pair.same(
        "INSERT INTO kept SELECT shop, g, count(*) FROM sale GROUP BY GROUPING SETS ((shop, g), (shop))"
    )
    pair.same("INSERT INTO kept SELECT shop, g, count(*) FROM sale GROUP BY ROLLUP (shop, g)")
    pair.same("SELECT * FROM kept")
    pair.same(
        "UPDATE kept SET c = s.c FROM (SELECT shop, g, sum(v) AS c FROM sale GROUP BY shop, ROLLUP (g)) AS s"
        " WHERE s.shop = kept.shop AND s.g = kept.g"
    )
    pair.same("SELECT * FROM kept")
    pair.execute("DROP TABLE kept")
