"""The first rows of each partition, kept while the others are read past: the heap's answers.

`row_number() <= n`, `rank() <= n` and DISTINCT ON.  Rows that are tied are told apart by an id where the function does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from extensions.columnar.test.every_type import EVERY_TYPE, SETUP
from extensions.columnar.test.test_vector_groups import fill_every
from extensions.columnar.test.test_vector_topn import (
    COLUMNS,
    DEFINITION,
    ORDERS,
    SERIAL,
    fill,
    fill_parts,
)
from extensions.columnar.test.twins import Twins, open_twins
from tests.cluster import Node

KEPT = "Rows per Partition"

# conditions on a window function, and how many rows of each partition are kept; 0: all
CONDITIONS = {
    "row_number() OVER w <= 3": 3,
    "row_number() OVER w < 3": 2,
    "row_number() OVER w = 2": 2,
    "7::smallint >= row_number() OVER w": 7,
    "3::bigint > row_number() OVER w": 2,
    "row_number() OVER w <= 100": 100,
    "row_number() OVER w <= 101": 0,
    "row_number() OVER w <= 0": 0,
    "row_number() OVER w <= NULL": 0,
    "row_number() OVER w > 3": 0,
    "rank() OVER w <= 4": 4,
    "rank() OVER w = 1": 1,
    "dense_rank() OVER w < 2": 1,
    "dense_rank() OVER w <= 2": 0,
}

PARTITIONS = ("", "few", "word", "few, word", "price", "real", "free", "long", "up", "day, id16")
UNIQUE = ("up",)  # where nothing can be left out


@pytest.fixture(scope="module")
def sides(node: Node) -> Iterator[Twins]:
    """t: three row groups, some rows deleted; parts: a tree with a member whose columns are in another order."""
    with open_twins(node, "test_first_rows") as made:
        made.execute(
            SETUP,
            "SET strata_columnar.row_group_rows = 2000",
            SERIAL,
            f"CREATE TABLE t (id integer, {DEFINITION})",
            *fill("t", 6000),
            "DELETE FROM t WHERE id % 10 = 3 OR id BETWEEN 2500 AND 2600",
            "CREATE TABLE small (few smallint, name text)",
            "INSERT INTO small SELECT i, 'name ' || i % 3 FROM generate_series(0, 4) AS i",
            "ANALYZE small",
            *fill_parts(4000, 0, 2000, 9000),
        )
        yield made


@pytest.fixture
def tables(sides: Twins) -> Iterator[Twins]:
    yield sides
    sides.reset()
    sides.execute(f"{SERIAL}; RESET work_mem; RESET enable_hashjoin; RESET plan_cache_mode")


def first_rows(condition: str, window: str, shown: str = "*", table: str = "t") -> str:
    function = re.search(r"\w+\(\)", condition)[0]
    place = condition.replace(f"{function} OVER w", "place")
    return (
        f"SELECT {shown} FROM (SELECT *, {function} OVER w AS place FROM {table} WINDOW w AS ({window})) AS s"
        f" WHERE {place}"
    )


def same_rows(twins: Twins, query: str, kept: int | None = None) -> None:
    """The heap's rows; rows are left out while they are read, or not, if kept is 0."""
    plan = twins.plan(query)
    assert (KEPT in plan) == (kept != 0), plan
    if kept:
        assert f"{KEPT}: {kept}" in plan, plan
    twins.same(query, ordered=False)


# ---- windows -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions(tables: Twins, condition: str) -> None:
    for partition in ("", "few", "few = 3"):
        by = f"PARTITION BY {partition}" if partition else ""
        query = first_rows(condition, f"{by} ORDER BY real DESC, id")
        if "NULL" not in condition:
            same_rows(tables, query, CONDITIONS[condition])
        tables.same(query, ordered=False)


@pytest.mark.sample(4)
@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("order", ORDERS)
def test_orders(tables: Twins, column: str, order: str) -> None:
    for partition in PARTITIONS:
        by = f"PARTITION BY {partition}" if partition else ""
        kept = 0 if partition in UNIQUE else 1
        same_rows(
            tables,
            first_rows("row_number() OVER w = 1", f"{by} ORDER BY {column} {order}, id"),
            kept,
        )
        same_rows(tables, first_rows("rank() OVER w = 1", f"{by} ORDER BY {column} {order}"), kept)
    for partition in PARTITIONS[1:4]:
        by = f"PARTITION BY {partition} ORDER BY {column} {order}"
        same_rows(tables, first_rows("row_number() OVER w <= 5", f"{by}, id"), 5)
        same_rows(tables, first_rows("rank() OVER w <= 5", by), 5)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 50])
def test_ties(tables: Twins, rows: int) -> None:
    """Of rows with the same keys any may be kept, but no more and no fewer."""
    for partition, order in (("few", "word"), ("word", "few DESC"), ("few", "few"), ("", "few")):
        by = f"PARTITION BY {partition}" if partition else ""
        window = f"{by} ORDER BY {order}"
        query = first_rows(f"row_number() OVER w <= {rows}", window, "few, word, place")
        keys = ", ".join(sorted({*filter(None, [partition]), order.split()[0]}))
        same_rows(tables, f"SELECT {keys}, place FROM ({query}) AS q")
        same_rows(tables, first_rows(f"rank() OVER w <= {rows}", window))


def test_without_order(tables: Twins) -> None:
    query = first_rows("row_number() OVER w <= 5", "PARTITION BY few")
    same_rows(tables, f"SELECT few, count(*), max(place) FROM ({query}) AS q GROUP BY few")


def test_other_functions(tables: Twins) -> None:
    """Those of the same window that look at no later rows; others want all rows."""
    for shown, kept in (
        ("lag(id, 2) OVER w", 3),
        ("sum(up) OVER (w ROWS UNBOUNDED PRECEDING)", 3),
        ("lead(id) OVER w", 0),
        ("count(*) OVER (PARTITION BY few)", 0),
        ("ntile(4) OVER w", 0),
        ("sum(up) OVER w", 0),
        ("last_value(id) OVER (PARTITION BY few ORDER BY up RANGE UNBOUNDED PRECEDING)", 0),
    ):
        query = (
            f"SELECT * FROM (SELECT id, few, {shown} AS other, row_number() OVER w AS place FROM t"
            " WINDOW w AS (PARTITION BY few ORDER BY up)) AS s WHERE place <= 3"
        )
        plan = tables.plan(query)
        if kept == 0:
            assert KEPT not in plan, plan
        tables.same(query, ordered=False)


def test_peers_are_seen(tables: Twins) -> None:
    """A rank keeps all peers: what is summed up to the last of them is whole."""
    query = (
        "SELECT * FROM (SELECT id, few, sum(up) OVER w AS sum, count(*) OVER w AS n, rank() OVER w AS place FROM t"
        " WINDOW w AS (PARTITION BY few ORDER BY word)) AS s WHERE place <= 2"
    )
    same_rows(tables, query, 2)


def test_expressions(tables: Twins) -> None:
    for partition in (
        "few + 1",
        "up % 7",
        "date_trunc('month', moment)",
        "upper(word)",
        "few, up % 3",
    ):
        for order in (
            "up % 100, id",
            "-price, id",
            "coalesce(gaps, up) DESC, id",
            "long || word, id",
        ):
            query = first_rows(
                "row_number() OVER w <= 2", f"PARTITION BY {partition} ORDER BY {order}"
            )
            same_rows(tables, query)


def test_filters_and_joins(tables: Twins) -> None:
    for source in (
        "(SELECT * FROM t WHERE up > 1000 AND word LIKE '%3%') AS t",
        "(SELECT t.*, name FROM t JOIN small USING (few)) AS t",
        "(SELECT t.*, name FROM t LEFT JOIN small ON small.few = t.few AND name <> 'name 1') AS t",
        "parts",
        "(SELECT * FROM parts WHERE up BETWEEN 1500 AND 2500) AS t",
    ):
        for window in ("PARTITION BY few ORDER BY up DESC", "PARTITION BY word ORDER BY price, id"):
            same_rows(tables, first_rows("row_number() OVER w <= 2", window, table=source))
        if "name" in source:
            window = "PARTITION BY name ORDER BY up"
            same_rows(tables, first_rows("row_number() OVER w = 1", window, table=source))


def test_nothing(tables: Twins) -> None:
    query = first_rows("row_number() OVER w <= 2", "PARTITION BY few ORDER BY up", table="{}")
    tables.same(query.format("(SELECT * FROM t WHERE up < 0) AS t"))
    tables.same(query.format("(SELECT * FROM t WHERE few IS NULL) AS t"), ordered=False)


# ---- little memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["64kB", "128kB", "512kB"])
@pytest.mark.parametrize("partition", ["few", "word", "long", "up", "up % 1000"])
def test_little_memory(tables: Twins, partition: str, memory: str) -> None:
    """More partitions than there is memory for, and rows that go to files."""
    tables.execute(f"SET work_mem = '{memory}'")
    for order in ("long, id", "up DESC", "wide, id", "plain DESC, id"):
        for condition in (
            "row_number() OVER w <= 1",
            "row_number() OVER w <= 40",
            "rank() OVER w <= 2",
        ):
            tables.same(
                first_rows(condition, f"PARTITION BY {partition} ORDER BY {order}"), ordered=False
            )


def test_more_partitions_than_expected(tables: Twins) -> None:
    """There is memory for some of them; of the others all rows are sorted."""
    tables.execute(
        "DROP TABLE IF EXISTS stale",
        "CREATE TABLE stale (id integer, few integer, long text)",
        "INSERT INTO stale SELECT i, i % 3, md5(i::text) FROM generate_series(1, 30000) AS i",
        "ANALYZE stale",
        "DELETE FROM stale WHERE id % 2 = 0",
        "INSERT INTO stale SELECT i, i % 7000, md5(i::text) FROM generate_series(1, 15000) AS i",
        "SET work_mem = '256kB'",
    )
    for condition in ("row_number() OVER w <= 2", "row_number() OVER w <= 90", "rank() OVER w = 1"):
        for order in ("long, id", "id DESC"):
            window = f"PARTITION BY few ORDER BY {order}"
            same_rows(tables, first_rows(condition, window, table="stale"))
    same_rows(tables, "SELECT DISTINCT ON (few) * FROM stale ORDER BY few, long DESC, id")


def test_rows_are_left_out(tables: Twins) -> None:
    """It sorts what is wanted, not what it reads, from whichever end that comes."""
    tables.execute("SET work_mem = '256kB'")
    for order in ("up", "up DESC", "large", "long"):
        query = first_rows("row_number() OVER w <= 2", f"PARTITION BY few ORDER BY {order}, id")
        ((plan,),) = tables.columnar.execute(f"EXPLAIN (ANALYZE, COSTS off, FORMAT json) {query}")
        text = str(plan)
        assert "'Rows per Partition': 2" in text, text
        assert "Sort Runs" not in text, text


# ---- again -------------------------------------------------------------------------------------------------


def test_again(tables: Twins) -> None:
    """For each outer row, and with parameters."""
    tables.execute("SET enable_hashjoin = off")
    tables.same(
        "SELECT s.few, q.id, q.place FROM small AS s, LATERAL ("
        + first_rows("row_number() OVER w <= 2", "PARTITION BY few ORDER BY up DESC")
        + " AND few = s.few) AS q",
        ordered=False,
    )
    tables.same(
        "SELECT s.few, q.id FROM small AS s, LATERAL (SELECT DISTINCT ON (word) id FROM t WHERE t.few <> s.few"
        " ORDER BY word, up DESC) AS q",
        ordered=False,
    )
    tables.execute("SET plan_cache_mode = force_generic_plan")
    for limit in (1, 3):
        tables.same(
            first_rows("row_number() OVER w <= %s", "PARTITION BY few ORDER BY up"),
            [limit],
            ordered=False,
        )


# ---- DISTINCT ON ----------------------------------------------------------------------------------------------


@pytest.mark.sample(4)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("column", COLUMNS)
def test_distinct_on(tables: Twins, column: str, order: str) -> None:
    for partition in PARTITIONS[1:]:
        query = (
            f"SELECT DISTINCT ON ({partition}) * FROM t ORDER BY {partition}, {column} {order}, id"
        )
        same_rows(tables, query, 0 if partition in UNIQUE else 1)
        tables.same(query)


def test_forms_of_distinct_on(tables: Twins) -> None:
    for query in (
        "SELECT DISTINCT ON (few) few FROM t",
        "SELECT DISTINCT ON (few, word) few, word FROM t",
        "SELECT DISTINCT ON (few, word) few, word FROM t ORDER BY word DESC",
        "SELECT DISTINCT ON (word, few) id, up FROM t ORDER BY few, word DESC, up, id",
        "SELECT DISTINCT ON (few) id FROM t ORDER BY few DESC, up LIMIT 3",
        "SELECT DISTINCT ON (few) id FROM t ORDER BY few, up OFFSET 2",
        "SELECT DISTINCT ON (few) id FROM t WHERE few = 3 ORDER BY few, up",
        "SELECT DISTINCT ON (few, word) id FROM t WHERE few = 3 ORDER BY few, word, up",
        "SELECT DISTINCT ON (few + 1) few, up FROM t ORDER BY few + 1, up",
        "SELECT DISTINCT ON (name) name, id FROM t JOIN small USING (few) ORDER BY name, up DESC",
        "SELECT DISTINCT ON (few) id, up FROM parts ORDER BY few, up DESC",
        "SELECT * FROM (SELECT DISTINCT ON (few) id, few FROM t ORDER BY few, up DESC) AS d WHERE id > 5990",
        "SELECT DISTINCT ON (few) count(*) OVER (), few FROM t",
        "SELECT DISTINCT ON (few) few, count(*) FROM t GROUP BY few, word ORDER BY few, count(*), word",
        "SELECT few, (SELECT DISTINCT ON (t.word) id FROM t WHERE t.few = s.few ORDER BY word, up LIMIT 1) FROM small s",
        "SELECT DISTINCT ON (few) generate_series(1, 2), few FROM t ORDER BY few",
    ):
        tables.same(query)


def test_other_equality(tables: Twins) -> None:
    """An operator class by which other values are equal than by the type's own."""
    tables.execute(
        "CREATE COLLATION IF NOT EXISTS no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        "CREATE TABLE letters (id integer, name text)",
        "INSERT INTO letters SELECT i, CASE WHEN i % 2 = 0 THEN 'a' ELSE 'A' END || i % 5 FROM generate_series(1, 3000) AS i",
        "ANALYZE letters",
    )
    for query in (
        "SELECT DISTINCT ON (name COLLATE no_case) id FROM letters ORDER BY name COLLATE no_case, id",
        "SELECT DISTINCT ON (name) id FROM letters ORDER BY name USING ~<~, id",
        "SELECT * FROM (SELECT id, row_number() OVER (PARTITION BY name COLLATE no_case ORDER BY id) AS n FROM letters)"
        " AS s WHERE n <= 2",
    ):
        tables.same(query, ordered=False)


@pytest.mark.parametrize("nulls", [0, 3])
@pytest.mark.parametrize("type_", EVERY_TYPE)
def test_every_type(tables: Twins, type_, nulls: int) -> None:
    fill_every(tables, type_, 2500, nulls)
    if tables.heap.run("SELECT v FROM every ORDER BY v").sqlstate is not None:
        return
    for query in (
        "SELECT DISTINCT ON (v) v, id FROM every ORDER BY v, id DESC",
        "SELECT DISTINCT ON (id % 7) v, id FROM every ORDER BY id % 7, v DESC, id",
        first_rows("row_number() OVER w <= 2", "PARTITION BY v ORDER BY id", table="every"),
        first_rows("rank() OVER w <= 2", "PARTITION BY id % 5 ORDER BY v", table="every"),
    ):
        tables.same(query, ordered=False)
