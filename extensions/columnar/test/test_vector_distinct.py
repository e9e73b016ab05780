"""count(DISTINCT x) and its like, and SELECT DISTINCT, by batches: what heap tables answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from extensions.columnar.test.every_type import EVERY_TYPE, SETUP, EveryType
from extensions.columnar.test.random_story import PARALLEL
from extensions.columnar.test.test_vector_groups import (
    COLUMNS,
    DIGEST,
    NOT_HASHED,
    fill_with,
    is_vectorised,
    same_groups,
)
from extensions.columnar.test.twins import Twins, open_twins
from tests.cluster import Node

TYPES = {type_.name: type_ for type_ in EVERY_TYPE if type_.equal}


@pytest.fixture(scope="module")
def sides(node: Node) -> Iterator[Twins]:
    with open_twins(node, "test_vector_distinct") as made:
        columns = ", ".join(f"{name} {type_}" for name, (type_, _) in COLUMNS.items())
        values = ", ".join(
            f"CASE WHEN i % 11 <> {n % 11} THEN ({value.format(h='(i * 7 % 5003)')})::{type_} END"
            for n, (type_, value) in enumerate(COLUMNS.values())
        )
        made.execute(
            SETUP,
            "SET max_parallel_workers_per_gather = 0",
            f"CREATE TABLE m (id integer, g integer, {columns})",
            f"INSERT INTO m SELECT i, i % 17, {values} FROM generate_series(1, 9000) AS i; ANALYZE m",
            "CREATE TABLE none (id integer, few integer)",
        )
        yield made


@pytest.fixture
def tables(sides: Twins) -> Iterator[Twins]:
    yield sides
    sides.reset()
    sides.execute("SET max_parallel_workers_per_gather = 0")


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", TYPES)
def test_every_type(tables: Twins, name: str) -> None:
    type_: EveryType = TYPES[name]
    fill_with(tables, type_, 2000, 30)
    tables.same("SELECT count(DISTINCT v), count(*) FROM t")
    tables.same("SELECT id % 5, count(DISTINCT v) FROM t GROUP BY id % 5")
    tables.same("SELECT count(*) FROM (SELECT DISTINCT v FROM t) AS s")
    if (
        name not in NOT_HASHED
        and tables.heap.run("SELECT count(DISTINCT v) FROM t").sqlstate is None
    ):
        assert is_vectorised(tables, "SELECT count(DISTINCT v), count(*) FROM t")
        assert is_vectorised(tables, "SELECT DISTINCT v FROM t")


@pytest.mark.parametrize("column", COLUMNS)
def test_columns(tables: Twins, column: str) -> None:
    same_groups(tables, f"SELECT count(DISTINCT {column}), count({column}) FROM m")
    same_groups(tables, f"SELECT few, count(DISTINCT {column}) FROM m GROUP BY few")
    same_groups(tables, f"SELECT count(*) FROM (SELECT DISTINCT {column}, g FROM m) AS s")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT sum(DISTINCT few), avg(DISTINCT dense), min(DISTINCT day), max(DISTINCT word) FROM m",
        "SELECT sum(DISTINCT price), avg(DISTINCT price), stddev(DISTINCT few), count(DISTINCT price) FROM m",
        "SELECT g, sum(DISTINCT few), count(DISTINCT few), count(few), sum(few) FROM m GROUP BY g",
        "SELECT g, count(DISTINCT word), count(DISTINCT raw), count(DISTINCT few + 1) FROM m GROUP BY g",
        "SELECT g, count(DISTINCT dense) FILTER (WHERE few > 3), count(DISTINCT dense) FROM m GROUP BY g",
        "SELECT count(DISTINCT few) FILTER (WHERE id < 0), bool_or(DISTINCT flag), bit_xor(DISTINCT few) FROM m",
        "SELECT g, count(DISTINCT dense) FROM m WHERE id % 3 = 0 GROUP BY g HAVING count(DISTINCT dense) > 100",
        "SELECT count(DISTINCT CASE WHEN few > 2 THEN word END), count(DISTINCT lower(word)) FROM m",
        "SELECT count(DISTINCT m.dense), count(*) FROM m JOIN m AS o ON m.id = o.id + 1",
        "SELECT o.few, count(DISTINCT m.word) FROM m JOIN m AS o ON m.dense = o.dense AND o.id < 2000 GROUP BY o.few",
        "SELECT DISTINCT few, flag FROM m",
        "SELECT DISTINCT few + 1, word FROM m WHERE g < 5 ORDER BY 2 DESC, 1",
        "SELECT DISTINCT few, 'constant', flag FROM m ORDER BY few, flag LIMIT 5",
        "SELECT DISTINCT o.word FROM m JOIN m AS o USING (id)",
        "SELECT count(DISTINCT few), count(DISTINCT few), sum(DISTINCT few + 0) FROM none",
        "SELECT few, count(DISTINCT id) FROM none GROUP BY few",
        "SELECT DISTINCT few FROM none",
    ],
)
@pytest.mark.parametrize("parallel", [False, True])
def test_queries(tables: Twins, query: str, parallel: bool) -> None:
    if parallel:
        tables.execute(PARALLEL)
        tables.same(query)
    else:
        same_groups(tables, query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT sum(DISTINCT ratio) FROM m WHERE ratio < 10",
        "SELECT string_agg(DISTINCT word, ',') FROM m",
        "SELECT string_agg(DISTINCT word, ',' ORDER BY word DESC), count(DISTINCT few) FROM m",
        "SELECT count(DISTINCT (few, word)) FROM m",
        "SELECT corr(DISTINCT few, dense) FROM m",
        "SELECT DISTINCT ON (few) few, id FROM m ORDER BY few, id",
        "SELECT DISTINCT few, count(*) FROM m GROUP BY few",
        "SELECT DISTINCT few, row_number() OVER (ORDER BY id) FROM m WHERE id < 99",
        "SELECT DISTINCT random() < 2, few FROM m",
        "SELECT DISTINCT generate_series(1, 3), few FROM m",
        "SELECT few, count(DISTINCT word) FROM m GROUP BY ROLLUP (few)",
    ],
)
def test_what_core_does(tables: Twins, query: str) -> None:
    tables.same(query)


def test_an_error_in_an_argument(tables: Twins) -> None:
    tables.same("SELECT count(DISTINCT 1 / (few - few)) FROM m WHERE few IS NOT NULL")


def test_beyond_memory(tables: Twins) -> None:
    tables.execute("SET work_mem = '256kB'; SET hash_mem_multiplier = 1")
    for query in (
        "SELECT id % 3000 AS k, count(DISTINCT long), count(DISTINCT dense), sum(DISTINCT price) FROM m GROUP BY id % 3000",
        "SELECT count(DISTINCT id), count(DISTINCT long) FROM m",
        "SELECT DISTINCT id, long, dense FROM m",
    ):
        tables.same(DIGEST.format(query))


@pytest.fixture(scope="module")
def large(node: Node) -> Iterator[Twins]:
    with open_twins(node, "test_vector_distinct_large") as made:
        made.execute(
            "SET max_parallel_workers_per_gather = 0; SET hash_mem_multiplier = 1",
            "CREATE TABLE l (id integer, few integer, many integer, i bigint, n numeric(9, 2), free numeric, t text,"
            " c character(9), u uuid, at timestamptz, f double precision)",
            "INSERT INTO l SELECT g, g % 7, g % 1000, h, h / 4.0, (h % 9999)::numeric(12, 2), 'text ' || h % 30000,"
            " 'c' || h % 20000, md5(h::text)::uuid, '2020-01-01 00:00+00'::timestamptz + h * interval '7 s',"
            " CASE WHEN g % 97 = 0 THEN 'NaN' ELSE h / 3.0 END"
            " FROM (SELECT g, CASE WHEN g % 11 > 0 THEN (g * 7919::bigint) % 40009 END AS h"
            " FROM generate_series(1, 80000) AS g) AS s; ANALYZE l",
        )
        yield made


LARGE = {
    "i": "i",
    "n": "n",
    "free": "free",
    "t": "t",
    "c": "c",
    "u": "u",
    "at": "at",
    "f": "f",
    "e": "i % 20011 + 1",
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("memory", ["64kB", "1MB"])
@pytest.mark.parametrize("value", LARGE)
def test_values_that_do_not_fit_into_memory(large: Twins, value: str, memory: str) -> None:
    """At the smallest memory files are split again and again."""
    large.execute(f"SET work_mem = '{memory}'")
    expression = LARGE[value]
    for query in (
        f"SELECT count(DISTINCT {expression}), count({expression}) FROM l",
        f"SELECT few, count(DISTINCT {expression}), count(*) FROM l GROUP BY few",
        f"SELECT many, count(DISTINCT {expression}) FILTER (WHERE few > 1), min(id) FROM l GROUP BY many",
        f"SELECT id / 3, count(DISTINCT {expression}) FROM l GROUP BY id / 3",
    ):
        large.same(query)
        assert is_vectorised(large, query)
    assert spills(large, f"SELECT count(DISTINCT {expression}), count(*) FROM l")


def spills(sides: Twins, query: str) -> bool:
    return "Times Memory Was Full" in sides.plan(query, "ANALYZE, COSTS OFF, TIMING OFF")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT sum(DISTINCT i), avg(DISTINCT n), sum(DISTINCT n), avg(DISTINCT i + 1) FROM l",
        "SELECT few, sum(DISTINCT i), count(DISTINCT t), sum(DISTINCT n), count(DISTINCT u), max(id) FROM l GROUP BY few",
        "SELECT few, count(DISTINCT t) FROM l GROUP BY few HAVING count(DISTINCT t) > 20000",
        "SELECT count(DISTINCT i) FILTER (WHERE few = 1), count(DISTINCT i), count(DISTINCT few) FROM l",
        "SELECT few, (SELECT count(DISTINCT l.i) FROM l WHERE l.few >= o.few AND l.id > 0) FROM"
        " (SELECT DISTINCT few FROM l) AS o ORDER BY few",
        "SELECT few, c FROM (VALUES (1), (4)) AS v (few), LATERAL (SELECT count(DISTINCT t) AS c FROM l"
        " WHERE l.few < v.few OFFSET 0) AS s",
        "SELECT many FROM (SELECT many, count(DISTINCT u) FROM l GROUP BY many OFFSET 0) AS s LIMIT 0",
        "SELECT count(DISTINCT l.t), count(DISTINCT o.i) FROM l JOIN l AS o USING (id)",
    ],
)
@pytest.mark.parametrize("parallel", [False, True])
def test_queries_of_values_that_do_not_fit(large: Twins, query: str, parallel: bool) -> None:
    large.execute("SET work_mem = '64kB'", PARALLEL if parallel else "SELECT 1")
    large.same(query)
    large.execute("SET max_parallel_workers_per_gather = 0")


def test_an_error_while_values_are_put_aside(large: Twins) -> None:
    """And the next query has nothing of it."""
    large.execute("SET work_mem = '64kB'")
    large.same("SELECT count(DISTINCT i), count(DISTINCT 1 / (id - 79999)) FROM l")
    large.same("SELECT count(DISTINCT i), count(DISTINCT 1 / (id - 90000)) FROM l")
    assert large.node.value("SELECT count(*) FROM pg_ls_tmpdir()") == 0
