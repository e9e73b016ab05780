"""ORDER BY by batches returns what core's Sort of heap tables does: keys of every type, sizes, files, plans.

Orders are mostly made unique by an id; where they are not, only the keys are compared, place by place.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from extensions.columnar.test.every_type import EVERY_TYPE, SETUP
from extensions.columnar.test.random_story import PARALLEL
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

NODE = "ColumnarSort"


@pytest.fixture(scope="module")
def sides(node: Node) -> Iterator[Twins]:
    """t: several row groups, some rows deleted; sizes around a batch's; parts: a tree with a reordered member."""
    with open_twins(node, "test_vector_sort") as made:
        made.execute(
            SETUP,
            "SET strata_columnar.row_group_rows = 2000",
            SERIAL,
            f"CREATE TABLE t (id integer, {DEFINITION})",
            *fill("t", 6500),
            "DELETE FROM t WHERE id % 10 = 3 OR id BETWEEN 4500 AND 4600",
            *fill_parts(3000, 0, 2000, 20000),
            "CREATE TABLE small (id integer, few smallint, word text)",
            "INSERT INTO small SELECT i, i % 5, 'word ' || i FROM generate_series(1, 300) AS i",
            "ANALYZE small",
        )
        yield made


@pytest.fixture
def tables(sides: Twins) -> Iterator[Twins]:
    yield sides
    sides.reset()
    sides.execute(f"{SERIAL}; RESET work_mem; RESET enable_hashjoin; RESET enable_nestloop")


def is_vectorised(twins: Twins, query: str) -> bool:
    return NODE in twins.plan(query)


def same_rows(twins: Twins, query: str) -> None:
    """The query is answered by the node, as heap answers it."""
    assert is_vectorised(twins, query), twins.plan(query)
    twins.same(query, ordered=True)


def keys_are_right(twins: Twins, table: str, key: str, order: str) -> None:
    """Without a last key that is unique: at each place the key is what core's Sort has there."""
    query = f"SELECT {key} AS k FROM {table} ORDER BY {key} {order}"
    assert is_vectorised(twins, query), twins.plan(query)
    twins.execute("DROP TABLE IF EXISTS sorted")
    twins.columnar.execute(
        f"CREATE TABLE sorted USING heap AS SELECT row_number() OVER () AS n, k FROM ({query} OFFSET 0) AS q"
    )
    ((wrong,),) = twins.columnar.execute(
        "SELECT count(*) FROM sorted AS a FULL JOIN (SELECT row_number() OVER () AS n, k FROM"
        f" (SELECT {key} AS k FROM {table} ORDER BY {key} {order} LIMIT (SELECT 1000000)) AS q) AS b USING (n)"
        " WHERE a.n IS NULL OR b.n IS NULL OR a.k IS DISTINCT FROM b.k"
    )
    twins.execute("DROP TABLE IF EXISTS sorted")
    assert wrong == 0, query


# ---- every type ------------------------------------------------------------------------------------


@pytest.mark.sample(4)
@pytest.mark.parametrize("nulls", [0, 30])
@pytest.mark.parametrize("type_", [t for t in EVERY_TYPE if t.ordered], ids=lambda t: t.name)
def test_every_type(tables: Twins, type_, nulls: int) -> None:
    fill_every(tables, type_, 3000, nulls)
    if tables.heap.run("SELECT v FROM every ORDER BY v").sqlstate is not None:
        tables.same("SELECT v FROM every ORDER BY v")
        return
    for order in ORDERS:
        same_rows(tables, f"SELECT id, v FROM every ORDER BY v {order}, id")
        same_rows(tables, f"SELECT v, id FROM every ORDER BY id % 3, v {order}, id DESC")
        keys_are_right(tables, "every", "v", order)
    # few rows, each with another value: sorted without a dictionary; and in files
    same_rows(tables, "SELECT v FROM every WHERE v IS NOT NULL ORDER BY id DESC")
    tables.execute("SET work_mem = '64kB'")
    tables.same("SELECT v, id FROM every ORDER BY v DESC, id", ordered=True)


# ---- keys ------------------------------------------------------------------------------------------


@pytest.mark.sample(4)
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("key", COLUMNS)
def test_keys(tables: Twins, key: str, parallel: bool) -> None:
    tables.execute(PARALLEL if parallel else SERIAL)
    for order in ORDERS:
        same_rows(tables, f"SELECT id, {key} FROM t ORDER BY {key} {order}, id")
        same_rows(tables, f"SELECT * FROM t WHERE id % 3 = 1 ORDER BY few {order}, {key}, id DESC")
        same_rows(tables, f"SELECT id, long FROM t ORDER BY {key} {order}, few, large, id")
    same_rows(tables, f"SELECT id, long FROM parts ORDER BY {key} DESC, id")
    keys_are_right(tables, "t", key, "")


@pytest.mark.parametrize("rows", [0, 1, 2, 1023, 1024, 1025, 2047, 2048, 2049, 4096, 6400])
def test_sizes(tables: Twins, rows: int) -> None:
    for keys in (
        "id",
        "-id",
        "large, id",
        "few DESC, id",
        "long, id",
        "free, word, id",
        "span, id",
    ):
        same_rows(tables, f"SELECT id, {keys} FROM t WHERE up <= {rows} ORDER BY {keys}")


EXPRESSIONS = [
    "SELECT id, up - id FROM t ORDER BY abs(large % 1000), id",
    "SELECT id, price * 2 FROM t ORDER BY price * few DESC NULLS LAST, id",
    "SELECT id, free + price AS f FROM t ORDER BY f DESC, id",
    "SELECT id FROM t ORDER BY wide / 7, id",
    "SELECT id FROM t ORDER BY wide * 100000000000000, id",
    "SELECT id FROM t ORDER BY lower(word) DESC, length(long), id",
    'SELECT id FROM t ORDER BY word COLLATE "C" DESC, long COLLATE "C", id',
    "SELECT id FROM t ORDER BY left(plain, 3), substr(plain, 4, 2) DESC, id",
    "SELECT id FROM t ORDER BY date_trunc('month', moment) DESC, real, id",
    "SELECT id FROM t ORDER BY extract(year FROM moment), real DESC, id",
    "SELECT id FROM t ORDER BY CASE WHEN few = 2 THEN up END NULLS FIRST, id",
    "SELECT id FROM t ORDER BY few = 1, few IS NULL DESC, large, id",
    "SELECT id FROM t ORDER BY ROW(few, up), id",
    "SELECT id FROM t ORDER BY ARRAY[few, up] DESC, id",
    "SELECT id FROM t ORDER BY regexp_replace(word, '\\D', '', 'g')::integer, id",
    "SELECT id FROM t ORDER BY up USING >, id",
    "SELECT id FROM t ORDER BY word USING ~>~, id",
    "SELECT id FROM t ORDER BY large USING <, long USING ~<~, id DESC",
    "SELECT id FROM t ORDER BY CASE WHEN id % 2 = 0 THEN 9223372036854775807 ELSE -9223372036854775808 END, id",
    "SELECT id FROM t ORDER BY CASE id % 3 WHEN 0 THEN 9223372036854775807 WHEN 1 THEN -9223372036854775808 END, id",
    "SELECT id FROM t ORDER BY CASE id % 3 WHEN 0 THEN large END DESC, real, id",
    "SELECT id, (SELECT count(*) FROM small AS x WHERE x.id = t.few) FROM t ORDER BY large, id",
    "SELECT up FROM t ORDER BY 1, id",
    "SELECT large, random() < 2 FROM t ORDER BY large, id",
    "SELECT id FROM t ORDER BY (SELECT max(x.few) FROM small AS x WHERE x.id = t.few), id",
]  # fmt: skip


@pytest.mark.parametrize("query", EXPRESSIONS)
def test_expressions(tables: Twins, query: str) -> None:
    same_rows(tables, query)


def test_errors_are_core_s(tables: Twins) -> None:
    tables.fails("SELECT id FROM t ORDER BY 1 / (id % 5), id", "22012")
    tables.fails("SELECT id FROM t ORDER BY up + 2147480000, id", "22003")
    tables.fails("SELECT 1 / (id % 5) FROM t ORDER BY large, id", "22012")


# ---- around the node -------------------------------------------------------------------------------


def test_joins(tables: Twins) -> None:
    same_rows(
        tables,
        "SELECT t.id, s.word, t.long FROM t JOIN small AS s ON s.id = t.id % 400 ORDER BY s.word DESC, t.id",
    )
    same_rows(
        tables,
        "SELECT t.id, s.word FROM t LEFT JOIN small AS s ON s.id = t.id % 400 ORDER BY s.few, s.word, t.id",
    )


def test_subqueries_and_limits(tables: Twins) -> None:
    for query in (
        "SELECT count(*), sum(n) FROM (SELECT id, row_number() OVER () AS n FROM (SELECT id FROM t ORDER BY large, id OFFSET 0) AS s) AS w WHERE id < 100",
        "SELECT array_agg(id) FROM (SELECT id FROM t WHERE up < 3000 ORDER BY large, id) AS s",
        "SELECT string_agg(word, ',') FROM (SELECT word FROM t WHERE up < 3000 ORDER BY word DESC, id) AS s",
        "SELECT s.id, j.word FROM (SELECT id, few FROM t ORDER BY large, id OFFSET 0) AS s JOIN small AS j USING (id)",
        "SELECT few, id FROM ((SELECT few, id FROM t ORDER BY large, id) UNION ALL (SELECT few, id FROM small)) AS u",
        "WITH c AS MATERIALIZED (SELECT id, large FROM t ORDER BY large, id) SELECT id FROM c LIMIT 500",
        "WITH c AS MATERIALIZED (SELECT id, large FROM t ORDER BY large, id) SELECT count(*) FROM c AS a JOIN c AS b USING (id)",
    ):
        assert is_vectorised(tables, query), tables.plan(query)
        tables.same(query)


def test_scanned_again(tables: Twins) -> None:
    """Below a nested loop: the same rows once more, and other ones for each parameter."""
    tables.execute(
        "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off"
    )
    for query in (
        "SELECT s.id, l.id, l.long FROM (SELECT * FROM small WHERE id < 12) AS s,"
        " LATERAL (SELECT id, long FROM t WHERE t.few = s.few AND t.up < 900 ORDER BY large, id OFFSET 0) AS l",
        "SELECT s.id, (SELECT array_agg(x.id) FROM (SELECT id FROM t WHERE up < 300 AND id > s.id * 10 ORDER BY large + s.id, id OFFSET 0) AS x)"
        " FROM small AS s WHERE s.id < 20",
        "SELECT s.id, l.id FROM (SELECT * FROM small WHERE id < 5) AS s,"
        " (SELECT id FROM t WHERE up < 2000 ORDER BY large, id OFFSET 3) AS l WHERE l.id % 5 >= s.few",
    ):
        for memory in ("4MB", "64kB"):
            tables.execute(f"SET work_mem = '{memory}'")
            tables.same(query)
    tables.execute("RESET enable_mergejoin; RESET enable_material")


def test_cursors(tables: Twins) -> None:
    for scroll in ("NO SCROLL", "SCROLL"):
        with tables.transaction():
            tables.execute(
                f"DECLARE c {scroll} CURSOR FOR SELECT id, word FROM t ORDER BY large DESC, id"
            )
            for move in ("FETCH 3 FROM c", "MOVE 1500 IN c", "FETCH 5 FROM c"):
                tables.same(move, ordered=True)
            if scroll == "SCROLL":
                for move in (
                    "FETCH BACKWARD 4 FROM c",
                    "FETCH ABSOLUTE 2 FROM c",
                    "FETCH LAST FROM c",
                ):
                    tables.same(move, ordered=True)
            tables.same("CLOSE c")


def test_statements_that_write(tables: Twins) -> None:
    tables.execute(
        "DROP TABLE IF EXISTS copies; CREATE TABLE copies (n serial, id integer, word text)"
    )
    tables.same("INSERT INTO copies (id, word) SELECT id, word FROM t ORDER BY large, id")
    tables.same("SELECT * FROM copies ORDER BY n, id")
    tables.execute("DROP TABLE copies")


def test_generic_plans(tables: Twins) -> None:
    tables.execute("SET plan_cache_mode = force_generic_plan")
    tables.execute(
        "PREPARE sorted(integer) AS SELECT id FROM t WHERE up < $1 ORDER BY large % $1, id"
    )
    for bound in (10, 3000, 5):
        tables.same(f"EXECUTE sorted({bound})", ordered=True)
    tables.execute("DEALLOCATE sorted; RESET plan_cache_mode")


# ---- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", ["down", "large", "long", "plain", "free", "wide", "real", "span", "few", "word"]
)
def test_files(tables: Twins, key: str) -> None:
    """Memory for few rows: sorted runs are written, and merged."""
    tables.execute("SET work_mem = '64kB'")
    same_rows(tables, f"SELECT * FROM t ORDER BY {key}, id")
    same_rows(tables, f"SELECT id, long FROM t ORDER BY few, {key} DESC, id")
    tables.same(
        "SELECT a.id, b.id, a.word FROM t AS a JOIN small AS b ON b.few = a.few AND b.id < 40"
        f" ORDER BY a.{key} DESC, b.id, a.id"
    )
    plan = tables.plan(f"SELECT id, long FROM t ORDER BY {key}", "ANALYZE, COSTS OFF")
    assert int(plan.split("Sort Runs: ")[1].split()[0]) > 1, plan


def test_many_files(tables: Twins) -> None:
    """So many runs that they are merged in several steps."""
    tables.execute(
        "DROP TABLE IF EXISTS many; CREATE TABLE many (id integer, n integer, word text)",
        "INSERT INTO many SELECT i, hashint4(i) % 1000, 'word ' || hashint4(-i) FROM generate_series(1, 160000) AS i",
        "ANALYZE many; SET work_mem = '64kB'",
        "SET random_page_cost = 1000",  # of the files of core's Sort
    )
    order = "SELECT id, word FROM many ORDER BY n DESC, word, id"
    plan = tables.plan(order, "ANALYZE, COSTS OFF")
    assert int(plan.split("Sort Runs: ")[1].split()[0]) >= 20, plan
    tables.same(
        "SELECT md5(string_agg(id || word, ',')), count(*) FROM"
        f" (SELECT *, row_number() OVER () AS r FROM ({order}) AS s) AS t GROUP BY r / 10000"
    )
    tables.execute("DROP TABLE many; RESET random_page_cost")


# ---- plans -----------------------------------------------------------------------------------------


def test_plans(tables: Twins) -> None:
    plan = tables.plan(
        'SELECT id FROM t ORDER BY up DESC, word COLLATE "C" NULLS FIRST, large + 1 DESC NULLS LAST'
    )
    keys = plan.split("Sort Key: ")[1].splitlines()[0]
    assert (
        keys == 'up DESC, ((word)::text) COLLATE "C" NULLS FIRST, ((large + 1)) DESC NULLS LAST'
        or (keys == 'up DESC, (word)::text COLLATE "C" NULLS FIRST, (large + 1) DESC NULLS LAST')
    )
    plan = tables.plan("SELECT id FROM t ORDER BY regexp_replace(word, 'a', 'b')", "ANALYZE")
    assert "Evaluated by Row" in plan
    assert "Sort Memory: " in plan
    tables.execute(PARALLEL)
    plan = tables.plan("SELECT id, long FROM t ORDER BY large")
    assert plan.index("Gather Merge") < plan.index(NODE), plan


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM t ORDER BY large FOR UPDATE",
        "SELECT id FROM t ORDER BY random()",
        "SELECT id, generate_series(1, 2) FROM t ORDER BY large",
        "SELECT t FROM t ORDER BY large",
        "SELECT ctid FROM t ORDER BY large",
    ],
)
def test_what_core_does(tables: Twins, query: str) -> None:
    assert not is_vectorised(tables, query)


def test_turned_off(tables: Twins) -> None:
    query = "SELECT id FROM t ORDER BY large"
    assert is_vectorised(tables, query)
    for setting in ("strata_columnar.enable_vector", "enable_sort"):
        tables.execute(f"SET {setting} = off")
        assert not is_vectorised(tables, query)
        tables.execute(f"RESET {setting}")


# ---- at random -------------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(8))
def test_random_orders(tables: Twins, seed: int) -> None:
    rng = random.Random(f"sort {seed}")
    tables.execute(PARALLEL if rng.random() < 0.3 else SERIAL)
    for _ in range(12):
        tables.execute(f"SET work_mem = '{rng.choice(('4MB', '4MB', '64kB', '300kB'))}'")
        keys = [
            f"{rng.choice(list(COLUMNS))} {rng.choice(ORDERS)}" for _ in range(rng.randint(1, 4))
        ]
        shown = ", ".join(rng.sample(list(COLUMNS), rng.randint(1, 5)))
        where = rng.choice(
            ("", "", "WHERE few <> 2", "WHERE word LIKE '%7'", f"WHERE up > {rng.randint(0, 11000)}", "WHERE gaps IS NULL")
        )  # fmt: skip
        tables.same(
            f"SELECT id, {shown} FROM {rng.choice(('t', 't', 'parts'))} {where} ORDER BY {', '.join(keys)}, id",
            ordered=True,
        )
