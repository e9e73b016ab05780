"""ORDER BY ... LIMIT by batches returns what core's Sort of heap tables does: keys of every type, bounds, joins.

Keys are mostly made unique by an id, as any of the rows that are tied at the bound may be returned;
where they are not, keys are compared and nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from extensions.columnar.test.every_type import EVERY_TYPE, SETUP
from extensions.columnar.test.random_story import PARALLEL
from extensions.columnar.test.test_vector_groups import fill_every
from extensions.columnar.test.twins import Twins, open_twins
from tests.cluster import Node

NODE = "ColumnarTopN"
ORDERS = ("ASC", "DESC", "ASC NULLS FIRST", "DESC NULLS LAST")
SERIAL = "SET max_parallel_workers_per_gather = 0"

# a column of each kind: type, value by the row's number i and a number n without order
COLUMNS = {
    "up": ("integer", "i"),
    "down": ("bigint", "-i::bigint * 1000003"),
    "gaps": ("integer", "CASE WHEN i / 3000 % 2 = 0 THEN i END"),
    "few": ("smallint", "n % 5"),
    "large": ("bigint", "hashint8extended(n, 7)"),
    "real": ("double precision", "CASE n % 90 WHEN 3 THEN 'NaN' WHEN 5 THEN '-0' WHEN 6 THEN '0' ELSE n / 3.0 - 500 END"),
    "price": ("numeric(10, 2)", "(n - 700) / 4.0"),
    "free": ("numeric", "CASE n % 80 WHEN 7 THEN 'NaN' WHEN 8 THEN -1e40 ELSE round(n / 8.0, n % 5) END"),
    "wide": ("numeric(30, 5)", "n * 123456789012345678901.00001"),
    "day": ("date", "date '2000-01-01' + n"),
    "moment": ("timestamptz", "timestamptz '2020-01-01 00:00+00' + i * interval '7 min'"),
    "word": ("text", "'word ' || n % 40"),
    "long": ("text", "md5(n::text) || repeat('x', n % 300)"),
    "plain": ('text COLLATE "C"', "md5((n * 3)::text)"),
    "id16": ("uuid", "md5(n::text)::uuid"),
    "span": ("interval", "(n % 400) * interval '11 h'"),
}  # fmt: skip

DEFINITION = ", ".join(f"{name} {type_}" for name, (type_, _) in COLUMNS.items())
VALUES = ", ".join(
    f"({value})::{type_.split(' COLLATE')[0]}"
    if name in ("up", "down", "gaps", "moment")
    else f"CASE WHEN n % 17 <> 5 THEN ({value})::{type_.split(' COLLATE')[0]} END"
    for name, (type_, value) in COLUMNS.items()
)


def fill(table: str, rows: int) -> list[str]:
    return [
        f"INSERT INTO {table} (id, {', '.join(COLUMNS)}) SELECT i, {VALUES}"
        f" FROM (SELECT i, (i * 7919 % 1999) AS n FROM generate_series(1, {rows}) AS i) AS s ORDER BY i",
        f"ANALYZE {table}",
    ]


def fill_parts(rows: int, *bounds: int) -> list[str]:
    """parts: a tree whose second member has its columns in another order, and had one more."""
    members = [
        f"CREATE TABLE parts_{i} PARTITION OF parts FOR VALUES FROM ({low}) TO ({high})"
        if i != 2
        else f"CREATE TABLE parts_2 (gone text, {DEFINITION}, id integer); ALTER TABLE parts_2 DROP COLUMN gone;"
        f"ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM ({low}) TO ({high})"
        for i, (low, high) in enumerate(pairwise(bounds), 1)
    ]
    return [
        f"CREATE TABLE parts (id integer, {DEFINITION}) PARTITION BY RANGE (up)",
        *members,
        *fill("parts", rows),
    ]


@pytest.fixture(scope="module")
def sides(node: Node) -> Iterator[Twins]:
    """t: 20 row groups, some rows deleted; s: a small table; parts: a tree with a reordered member."""
    with open_twins(node, "test_vector_topn") as made:
        made.execute(
            SETUP,
            "SET strata_columnar.row_group_rows = 2000",
            SERIAL,
            f"CREATE TABLE t (id integer, {DEFINITION})",
            *fill("t", 40000),
            "DELETE FROM t WHERE id % 10 = 3 OR id BETWEEN 38500 AND 38600",
            f"CREATE TABLE s (id integer, {DEFINITION})",
            *fill("s", 700),
            *fill_parts(12000, 0, 4000, 8000, 20000),
        )
        yield made


@pytest.fixture
def tables(sides: Twins) -> Iterator[Twins]:
    yield sides
    sides.reset()
    sides.execute(f"{SERIAL}; RESET work_mem; RESET enable_hashjoin; RESET plan_cache_mode")


def is_vectorised(twins: Twins, query: str) -> bool:
    return NODE in twins.plan(query)


def same_rows(twins: Twins, query: str) -> None:
    """The query is answered by the node, as heap answers it."""
    assert is_vectorised(twins, query), twins.plan(query)
    twins.same(query, ordered=True)


def keys_are_right(twins: Twins, table: str, key: str, order: str, limit: int, offset: int) -> None:
    """Without a last key that is unique: at each place the key is equal to what core's Sort has there."""
    first = f"SELECT {key} AS k FROM {table} ORDER BY {key} {order} LIMIT {limit} OFFSET {offset}"
    assert is_vectorised(twins, first), twins.plan(first)
    ((wrong,),) = twins.columnar.execute(
        f"SELECT count(*) FROM (SELECT row_number() OVER () + {offset} AS n, k FROM ({first}) AS f) AS a"
        f" RIGHT JOIN (SELECT * FROM (SELECT row_number() OVER (ORDER BY {key} {order}) AS n, {key} AS k FROM {table})"
        f" AS w WHERE n > {offset} AND n <= {offset + limit}) AS b USING (n)"
        " WHERE a.n IS NULL OR a.k IS DISTINCT FROM b.k"
    )
    assert wrong == 0, first


# ---- every type ------------------------------------------------------------------------------------


@pytest.mark.sample(4)
@pytest.mark.parametrize("nulls", [0, 30])
@pytest.mark.parametrize("type_", [t for t in EVERY_TYPE if t.ordered], ids=lambda t: t.name)
def test_every_type(tables: Twins, type_, nulls: int) -> None:
    fill_every(tables, type_, 3000, nulls)
    if tables.heap.run("SELECT v FROM every ORDER BY v LIMIT 1").sqlstate is not None:
        tables.same("SELECT v FROM every ORDER BY v LIMIT 1")
        return
    for order in ORDERS:
        for limit, offset in ((10, 0), (200, 1500)):
            bound = f"LIMIT {limit} OFFSET {offset}"
            same_rows(tables, f"SELECT id, v FROM every ORDER BY v {order}, id {bound}")
            same_rows(
                tables, f"SELECT v, id FROM every ORDER BY id % 3, v {order}, id DESC {bound}"
            )
            keys_are_right(tables, "every", "v", order, limit, offset)
    same_rows(tables, "SELECT v FROM every WHERE v IS NOT NULL ORDER BY id DESC LIMIT 7")
    same_rows(tables, "SELECT v FROM every WHERE id % 2 = 0 ORDER BY v DESC, id LIMIT 7")


# ---- keys and bounds -------------------------------------------------------------------------------


@pytest.mark.sample(4)
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("key", COLUMNS)
def test_keys(tables: Twins, key: str, parallel: bool) -> None:
    tables.execute(PARALLEL if parallel else SERIAL)
    for order in ORDERS:
        for limit, offset in ((1, 0), (10, 7), (900, 100)):
            bound = f"LIMIT {limit} OFFSET {offset}"
            same_rows(tables, f"SELECT id, {key} FROM t ORDER BY {key} {order}, id {bound}")
            same_rows(
                tables,
                f"SELECT * FROM t WHERE id % 3 = 1 ORDER BY few {order}, {key}, id DESC {bound}",
            )
            keys_are_right(tables, "t", key, order, limit, offset)
    same_rows(tables, f"SELECT id, long FROM parts ORDER BY {key} DESC, id LIMIT 20 OFFSET 3")
    same_rows(tables, f"SELECT id, {key}, word FROM parts ORDER BY {key}, id LIMIT 20")


@pytest.mark.parametrize("parallel", [False, True])
def test_few_rows(tables: Twins, parallel: bool) -> None:
    """Fewer rows than are wanted, and none."""
    tables.execute(PARALLEL if parallel else SERIAL)
    for query in (
        "SELECT id, word FROM t WHERE up < 50 ORDER BY word DESC, id LIMIT 10000",
        "SELECT id, word FROM t WHERE up < 50 ORDER BY large, id LIMIT 100 OFFSET 20",
        "SELECT id FROM t WHERE up < 0 ORDER BY large LIMIT 5",
        "SELECT id FROM t ORDER BY large, id LIMIT 5 OFFSET 39990",
        "SELECT id FROM t ORDER BY large, id LIMIT 0",
        "SELECT id, large FROM s WHERE large IS NULL ORDER BY large, id LIMIT 5",
    ):
        same_rows(tables, query)


EXPRESSIONS = [
    "SELECT id, up - id FROM t ORDER BY abs(large % 1000), id LIMIT 20",
    "SELECT id FROM t ORDER BY -up, id LIMIT 20",
    "SELECT id, price * 2 FROM t ORDER BY price * few DESC NULLS LAST, id LIMIT 20",
    "SELECT id, free + price AS f FROM t ORDER BY f DESC, id LIMIT 40",
    "SELECT id FROM t ORDER BY wide / 7, id LIMIT 40",
    "SELECT id FROM t ORDER BY wide * price DESC NULLS LAST, id LIMIT 40",
    "SELECT id FROM t ORDER BY lower(word) DESC, length(long), id LIMIT 40",
    "SELECT id FROM t ORDER BY word || 'x', id LIMIT 40",
    'SELECT id FROM t ORDER BY word COLLATE "C" DESC, id LIMIT 40',
    'SELECT id FROM t ORDER BY plain COLLATE "POSIX", id LIMIT 40',
    "SELECT id FROM t ORDER BY date_trunc('month', moment) DESC, id LIMIT 40",
    "SELECT id FROM t ORDER BY extract(year FROM day), real DESC, id LIMIT 40",
    "SELECT id FROM t ORDER BY CASE WHEN few = 2 THEN up END NULLS FIRST, id LIMIT 40",
    "SELECT id FROM t ORDER BY coalesce(gaps, up) DESC LIMIT 40",
    "SELECT id FROM t ORDER BY few = 1, few IS NULL DESC, large, id LIMIT 40",
    "SELECT id FROM t ORDER BY ROW(few, up), id LIMIT 40",
    "SELECT id FROM t ORDER BY ARRAY[few, up] DESC LIMIT 40",
    "SELECT id FROM t ORDER BY regexp_replace(word, '\\D', '', 'g')::integer, id LIMIT 40",
    "SELECT id FROM t ORDER BY up USING >, id LIMIT 40",
    "SELECT id FROM t ORDER BY word USING ~>~, id LIMIT 40",
    "SELECT id FROM t ORDER BY word USING ~<~, id DESC LIMIT 40",
    "SELECT id FROM t ORDER BY few, few DESC, few + 1, id LIMIT 40",
    "SELECT id FROM t WHERE few = 3 ORDER BY few, large, id LIMIT 40",
    "SELECT id FROM t ORDER BY 'x'::text, large, id LIMIT 40",
    "SELECT few, (SELECT count(*) FROM s WHERE s.few = t.few) FROM t ORDER BY large, id LIMIT 20",
    "SELECT up, EXISTS (SELECT FROM s WHERE s.up = t.up) FROM t ORDER BY up DESC, id LIMIT 20",
    "SELECT 1 FROM t ORDER BY large LIMIT 3",
    "SELECT FROM t ORDER BY large LIMIT 3",
]


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("query", EXPRESSIONS)
def test_expressions(tables: Twins, query: str, parallel: bool) -> None:
    tables.execute(PARALLEL if parallel else SERIAL)
    same_rows(tables, query)


def test_volatile_targets(tables: Twins) -> None:
    """Evaluated for the rows that are returned, in their order."""
    tables.execute("CREATE SEQUENCE numbers")
    same_rows(tables, "SELECT id, nextval('numbers') FROM t ORDER BY large, id LIMIT 5 OFFSET 2")
    tables.same("SELECT nextval('numbers')")
    tables.execute("DROP SEQUENCE numbers")


# ---- relations -------------------------------------------------------------------------------------

RELATIONS = [
    "SELECT t.id, s.id, s.long FROM t JOIN s ON t.few = s.few AND t.up = s.up ORDER BY s.large, t.id, s.id LIMIT 15",
    "SELECT t.id, s.id FROM t JOIN s ON t.price = s.price ORDER BY t.up DESC, s.id LIMIT 15",
    "SELECT t.id, s.id FROM t LEFT JOIN s ON t.up = s.up ORDER BY t.up DESC, s.id LIMIT 15",
    "SELECT t.id, s.id FROM t LEFT JOIN s ON t.up = s.up ORDER BY s.up DESC, t.id LIMIT 15",
    "SELECT t.id, s.id FROM t LEFT JOIN s ON t.up = s.up ORDER BY s.up DESC NULLS LAST, t.id LIMIT 15",
    "SELECT t.id, s.id FROM t FULL JOIN s ON t.up = s.up * 2 ORDER BY t.up DESC, s.id, t.id LIMIT 400",
    "SELECT t.id, s.id FROM t FULL JOIN s ON t.up = s.up * 2 ORDER BY s.up NULLS FIRST, s.id, t.id LIMIT 15",
    "SELECT t.id, s.id FROM t RIGHT JOIN s ON t.up = s.up * 3 ORDER BY t.up, s.id LIMIT 15",
    "SELECT t.id, s.id FROM t RIGHT JOIN s ON t.up = s.up * 3 ORDER BY t.up DESC, s.id LIMIT 300",
    "SELECT id FROM t WHERE EXISTS (SELECT FROM s WHERE s.price = t.price) ORDER BY gaps DESC, id LIMIT 15",
    "SELECT id FROM t WHERE NOT EXISTS (SELECT FROM s WHERE s.price = t.price) ORDER BY gaps, id LIMIT 15",
    "SELECT p.id, s.word FROM parts AS p JOIN s ON p.up = s.up ORDER BY p.moment DESC, p.id LIMIT 15",
    "SELECT p.id, p.up FROM parts AS p WHERE up > 3500 ORDER BY up LIMIT 15",
    "SELECT p.id, p.up FROM parts AS p ORDER BY up DESC LIMIT 15 OFFSET 5000",
]  # fmt: skip


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("query", RELATIONS)
def test_relations(tables: Twins, query: str, parallel: bool) -> None:
    tables.execute(PARALLEL if parallel else SERIAL)
    tables.execute("SET enable_mergejoin = off; SET enable_nestloop = off")
    try:
        same_rows(tables, query)
    finally:
        tables.execute("RESET enable_mergejoin; RESET enable_nestloop")


OTHERS = [
    "SELECT * FROM (SELECT id, up FROM t ORDER BY large, id LIMIT 10) AS a JOIN s USING (up)",
    "SELECT count(*), sum(id) FROM (SELECT id FROM t ORDER BY large, id LIMIT 500) AS a",
    "WITH a AS MATERIALIZED (SELECT id, up FROM t ORDER BY up DESC LIMIT 10) SELECT * FROM a ORDER BY id",
    "(SELECT id FROM t ORDER BY up LIMIT 5) UNION ALL (SELECT id FROM t ORDER BY up DESC LIMIT 5) ORDER BY 1",
    "SELECT few, (SELECT id FROM t WHERE t.few = s.few ORDER BY large, id LIMIT 1) FROM s WHERE id < 30 ORDER BY id",
    "SELECT s.id, a.id FROM s, LATERAL (SELECT id FROM t WHERE t.few = s.few AND up > s.id ORDER BY gaps, id LIMIT 2)"
    " AS a WHERE s.id < 30 ORDER BY 1, 2",
    "SELECT s.id, a.id FROM s, LATERAL (SELECT id FROM t ORDER BY abs(up - s.id * 50), id LIMIT 2)"
    " AS a WHERE s.id < 30 ORDER BY 1, 2",
    "SELECT id FROM t WHERE up = (SELECT up FROM t ORDER BY up DESC LIMIT 1)",
]  # fmt: skip


@pytest.mark.parametrize("query", OTHERS)
def test_sub_selects(tables: Twins, query: str) -> None:
    same_rows(tables, query)


# ---- what is left to core --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, few FROM s ORDER BY few, id FETCH FIRST 3 ROWS WITH TIES",
        "SELECT few FROM s ORDER BY few FETCH FIRST 3 ROWS WITH TIES",
        "SELECT id FROM s ORDER BY large, id",
        "SELECT id FROM s ORDER BY large, id LIMIT NULL",
        "SELECT id FROM s ORDER BY large, id LIMIT ALL OFFSET 690",
        "SELECT id FROM s ORDER BY large, id LIMIT 200000",
        "SELECT id FROM s ORDER BY large, id LIMIT (SELECT 3)",
        "SELECT id FROM s ORDER BY large, id LIMIT 5 OFFSET (SELECT 3)",
        "SELECT id FROM s ORDER BY large, id LIMIT length(current_setting('search_path')) * 0 + 4",
        "SELECT id FROM s ORDER BY (SELECT s.large), id LIMIT 5",
        "SELECT s FROM s ORDER BY large, id LIMIT 5",
        "SELECT DISTINCT few, word FROM s ORDER BY few, word LIMIT 5",
        "SELECT few, count(*) FROM s GROUP BY few ORDER BY few LIMIT 5",
        "SELECT id, generate_series(1, 3) AS g FROM s ORDER BY large, id, g LIMIT 5",
        "SELECT id, rank() OVER (ORDER BY few) FROM s ORDER BY large, id LIMIT 5",
        "SELECT id FROM s UNION SELECT id + 1 FROM s ORDER BY 1 LIMIT 5",
        "SELECT id FROM s ORDER BY large, id LIMIT 5 FOR UPDATE",
    ],
)
def test_left_to_core(tables: Twins, query: str) -> None:
    assert not is_vectorised(tables, query), tables.plan(query)
    tables.same(query, ordered=True)


def test_left_to_core_for_other_reasons(tables: Twins) -> None:
    query = "SELECT id FROM s ORDER BY large, id LIMIT 3"
    assert is_vectorised(tables, query)
    assert not is_vectorised(tables, "SELECT ctid, id FROM s ORDER BY large LIMIT 3")
    assert not is_vectorised(tables, "SELECT id FROM s ORDER BY random() LIMIT 3")
    tables.execute("SET work_mem = '64kB'")
    assert not is_vectorised(tables, "SELECT * FROM s ORDER BY large, id LIMIT 3000")
    tables.execute("SET enable_sort = off")
    assert not is_vectorised(tables, query)
    tables.execute("RESET enable_sort; SET strata_columnar.enable_vector = off")
    assert not is_vectorised(tables, query)
    tables.execute("RESET strata_columnar.enable_vector")


def test_errors(tables: Twins) -> None:
    for query in (
        "SELECT id FROM s ORDER BY large, id LIMIT -1",
        "SELECT id FROM s ORDER BY large, id LIMIT 1 OFFSET -1",
        "SELECT id FROM s ORDER BY 1 / (id - 500), id LIMIT 3",
        "SELECT 1 / (up - up) FROM s ORDER BY large LIMIT 3",
    ):
        tables.same(query, ordered=True)


def test_prepared_statements(tables: Twins) -> None:
    for mode in ("force_custom_plan", "force_generic_plan"):
        tables.execute(f"SET plan_cache_mode = {mode}")
        tables.execute(
            "PREPARE q (integer, bigint) AS SELECT id FROM t WHERE up > $1 ORDER BY large % 100, id LIMIT $2",
            "PREPARE r (integer) AS SELECT id FROM t WHERE up > $1 ORDER BY large # $1, id LIMIT 7",
        )
        for arguments in ("0, 5", "39000, 3", "39990, 100", "0, NULL", "NULL, 4"):
            tables.same(f"EXECUTE q ({arguments})", ordered=True)
        for argument in (0, 39000, 12345):
            tables.same(f"EXECUTE r ({argument})", ordered=True)
        tables.execute("DEALLOCATE ALL")


def test_cursors(tables: Twins) -> None:
    query = "SELECT id, word FROM t ORDER BY large, id LIMIT 2500"
    assert is_vectorised(tables, query)
    tables.execute("BEGIN", f"DECLARE c SCROLL CURSOR FOR {query}")
    for fetch in ("10", "BACKWARD 3", "ABSOLUTE 2000", "ALL", "BACKWARD ALL", "5"):
        tables.same(f"FETCH {fetch} FROM c", ordered=True)
    tables.execute("COMMIT")


def test_own_rows(tables: Twins) -> None:
    """Rows that the transaction has just written, and has deleted."""
    tables.execute(
        "BEGIN", "INSERT INTO t (id, up, word) SELECT 50000 + i, 50000 + i, 'new' FROM generate_series(1, 30) AS i",
        "DELETE FROM t WHERE id = 50030; UPDATE t SET up = -5, word = 'changed' WHERE id = 100",
    )  # fmt: skip
    same_rows(tables, "SELECT id, up, word FROM t ORDER BY up DESC LIMIT 40")
    same_rows(tables, "SELECT id, up, word FROM t ORDER BY up LIMIT 5")
    tables.execute("ROLLBACK")


# ---- what is read ----------------------------------------------------------------------------------


def removed_blocks(twins: Twins, query: str) -> float:
    """The share of the table's blocks that were not read."""
    plan = twins.plan(query, "ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF")
    groups, removed, blocks, gone = (
        int(plan.split(f" {name}: ")[1].split()[0])
        for name in ("Row Groups", "Row Groups Removed", "Blocks", "Blocks Removed")
    )
    per_group = blocks / (groups - removed)
    return (removed * per_group + gone) / (groups * per_group)


@pytest.mark.parametrize(
    ("order", "share"),
    [
        ("up", 0.9),
        ("up DESC NULLS LAST", 0.9),
        ("up DESC", 0.9),
        ("down", 0.9),
        ("down DESC", 0.9),
        ("moment DESC, id", 0.9),
        ("moment, large", 0.9),
        ("gaps", 0.9),
        ("gaps DESC NULLS LAST", 0.9),
        ("gaps NULLS FIRST", 0),
        ("gaps DESC, id", 0.3),
        ("up, gaps DESC", 0.9),
    ],
)
def test_blocks_without_better_rows_are_not_read(tables: Twins, order: str, share: float) -> None:
    for limit in (1, 30):
        query = f"SELECT id, up, down, gaps, moment, long FROM t ORDER BY {order} LIMIT {limit}"
        if "gaps" not in order or "id" in order:
            same_rows(tables, query)
        assert removed_blocks(tables, query) >= share, order
    keys_are_right(
        tables, "t", order.split()[0].rstrip(","), " ".join(order.split(",")[0].split()[1:]), 50, 3
    )


def test_plans(tables: Twins) -> None:
    plan = tables.plan(
        'SELECT id FROM t ORDER BY up DESC, word COLLATE "C" NULLS FIRST, large + 1 DESC NULLS LAST LIMIT 5 OFFSET 2'
    )
    keys = plan.split("Sort Key: ")[1].splitlines()[0]
    assert keys == 'up DESC, (word)::text COLLATE "C" NULLS FIRST, (large + 1) DESC NULLS LAST'
    assert "Limit: 7" in plan
    assert "Evaluated by Row" not in plan
    assert "Evaluated by Row" in tables.plan(
        "SELECT id FROM t ORDER BY regexp_replace(word, 'a', 'b') LIMIT 5"
    )
    tables.execute(PARALLEL)
    plan = tables.plan("SELECT id, long FROM t ORDER BY large LIMIT 5")
    assert plan.index("Gather Merge") < plan.index(NODE), plan


# ---- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["down", "-up", "long", "plain", "free", "md5(id::text)", "large"])
def test_many_rows_are_forgotten(tables: Twins, key: str) -> None:
    """More rows come through than are kept at a time; for some keys each is better than those before."""
    for limit in (1, 700, 3000):
        same_rows(tables, f"SELECT id, long, free, plain FROM t ORDER BY {key}, id LIMIT {limit}")
        same_rows(tables, f"SELECT id, word FROM t ORDER BY {key} DESC, id LIMIT {limit}")
    tables.execute("SET work_mem = '1MB'")
    same_rows(tables, f"SELECT id, long FROM t ORDER BY {key}, id LIMIT 1000")


# ---- at random -------------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(10))
def test_random_orders(tables: Twins, seed: int) -> None:
    rng = random.Random(f"topn {seed}")
    tables.execute(PARALLEL if rng.random() < 0.3 else SERIAL)
    for _ in range(25):
        keys = [
            f"{rng.choice(list(COLUMNS))} {rng.choice(ORDERS)}" for _ in range(rng.randint(1, 3))
        ]
        shown = ", ".join(rng.sample(list(COLUMNS), rng.randint(1, 5)))
        where = rng.choice(
            (
                "",
                "",
                "WHERE few <> 2",
                "WHERE word LIKE '%7'",
                f"WHERE up > {rng.randint(0, 11000)}",
                "WHERE gaps IS NULL",
            )
        )
        limit = rng.choice((1, 3, 10, 100, 1000, 5000))
        offset = rng.choice(("", "", f" OFFSET {rng.randint(0, 2000)}"))
        same_rows(
            tables,
            f"SELECT id, {shown} FROM {rng.choice(('t', 't', 'parts'))} {where}"
            f" ORDER BY {', '.join(keys)}, id LIMIT {limit}{offset}",
        )
