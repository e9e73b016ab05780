"""Joins by batches return what joins of heap tables return: kinds, keys of every type, conditions, spilling.

Tables have duplicates on one side, on both or on none, NULLs among the keys, and keys without a partner.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from extensions.columnar.test.every_type import EVERY_TYPE, SETUP
from extensions.columnar.test.random_story import PARALLEL
from extensions.columnar.test.test_vector_groups import DIGEST, NOT_HASHED
from extensions.columnar.test.twins import Twins, open_twins
from tests.cluster import Node

# a key of each family: type, value by a number n
KEYS = {
    "small": ("smallint", "(n % 30000)::smallint"),
    "plain": ("integer", "n"),
    "sparse": ("bigint", "n::bigint * 1000003"),
    "extreme": ("bigint", "(n - 400)::bigint * 9000000000000000"),
    "single": ("real", "n / 4.0"),
    "real": ("double precision", "CASE n % 50 WHEN 3 THEN 'NaN' WHEN 5 THEN '-0' WHEN 6 THEN '0' ELSE n / 3.0 END"),
    "price": ("numeric(10, 2)", "n / 4.0"),
    "free": ("numeric", "CASE n % 60 WHEN 7 THEN 'NaN' WHEN 8 THEN 1e40 ELSE round(n / 8.0, n % 5) END"),
    "day": ("date", "date '2000-01-01' + n"),
    "moment": ("timestamptz", "timestamptz '2020-01-01 00:00+00' + n * interval '7 min'"),
    "span": ("interval", "(ARRAY['1 month', '30 days', '720:00:00', '1 day']::interval[])[1 + n % 4] * (n / 4)"),
    "word": ("text", "'word ' || n % 40"),
    "long": ("text", "md5(n::text)"),
    "name": ("varchar(12)", "'n' || n"),
    "padded": ("char(8)", "'c' || n"),
    "id16": ("uuid", "md5(n::text)::uuid"),
    "raw": ("bytea", "decode(md5(n::text), 'hex')"),
    "flag": ("boolean", "n % 3 = 0"),
    "list": ("integer[]", "ARRAY[n % 5, NULL, n]"),
    "doc": ("jsonb", "jsonb_build_object('a', n)"),
}  # fmt: skip

COLUMNS = ", ".join(f"{name} {type_}" for name, (type_, _) in KEYS.items())
VALUES = ", ".join(
    f"CASE WHEN i % 13 <> 5 THEN ({value})::{type_} END" for type_, value in KEYS.values()
)

KINDS = {
    "inner": "{l} JOIN {r} ON {on}",
    "left": "{l} LEFT JOIN {r} ON {on}",
    "right": "{l} RIGHT JOIN {r} ON {on}",
    "full": "{l} FULL JOIN {r} ON {on}",
    "semi": "{l} WHERE EXISTS (SELECT FROM {r} WHERE {on})",
    "anti": "{l} WHERE NOT EXISTS (SELECT FROM {r} WHERE {on})",
}


def fill(table: str, rows: int, number: str) -> list[str]:
    """Statements that make a table whose keys come from `number`, an expression of the row's i."""
    return [
        f"CREATE TABLE {table} (id integer, amount numeric(12, 3), note text, {COLUMNS})",
        f"INSERT INTO {table} SELECT i, i * 1.125, 'note ' || i % 9, {VALUES}"
        f" FROM (SELECT i, {number} AS n FROM generate_series(1, {rows}) AS i) AS s",
        f"ANALYZE {table}",
    ]


@pytest.fixture(scope="module")
def sides(node: Node) -> Iterator[Twins]:
    """l: duplicates; u: unique, some of l's keys and others; d: duplicates of some keys of both."""
    with open_twins(node, "test_vector_joins") as made:
        made.execute(
            SETUP,
            "SET max_parallel_workers_per_gather = 0; SET enable_mergejoin = off",
            *fill("l", 4000, "i * 7 % 900"),
            *fill("u", 700, "i * 2"),
            *fill("d", 2500, "i % 300 * 3"),
            *fill("e", 0, "i"),
        )
        yield made


@pytest.fixture
def tables(sides: Twins) -> Iterator[Twins]:
    yield sides
    sides.reset()
    sides.execute("SET max_parallel_workers_per_gather = 0; SET enable_mergejoin = off")


def is_vectorised(twins: Twins, query: str) -> bool:
    return "ColumnarJoin" in twins.plan(query)


def same_join(twins: Twins, query: str) -> None:
    """The query is answered by the node, as heap answers it."""
    assert is_vectorised(twins, query), twins.plan(query)
    twins.same(query)


# ---- kinds and keys --------------------------------------------------------------------------------


def both_sides(kind: str, left: str, right: str, condition: str) -> str:
    """The join of two tables as a query for all of its rows."""
    shown = (
        "l.id, l.note, l.amount"
        if kind in ("semi", "anti")
        else "l.id, l.note, r.id, r.amount, r.note"
    )
    source = KINDS[kind].format(l=f"{left} AS l", r=f"{right} AS r", on=condition)
    return f"SELECT {shown} FROM {source}"


@pytest.mark.sample(4)
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("kind", KINDS)
def test_keys(tables: Twins, kind: str, key: str) -> None:
    for left, right in (("l", "u"), ("u", "d"), ("d", "u")):
        query = both_sides(kind, left, right, f"l.{key} = r.{key}")
        if key in ("flag", "word"):
            tables.same(
                DIGEST.format(
                    query.replace("r.id,", "r.id AS other,").replace("r.note", "r.note AS n2")
                )
            )
        else:
            same_join(tables, query)


@pytest.mark.parametrize("kind", KINDS)
def test_conditions_besides_keys(tables: Twins, kind: str) -> None:
    for condition in (
        "l.plain = r.plain AND l.id < r.id",
        "l.plain = r.plain AND l.amount + r.amount > 1500",
        "l.plain = r.plain AND (l.note = r.note OR r.id % 3 = 0)",
        "l.plain = r.plain AND l.id > 1000",
        "l.plain = r.plain AND r.id > 300",
        "l.plain = r.plain AND l.note <> r.note AND r.note LIKE '%5'",
        "l.plain = r.plain AND l.day = r.day AND l.word = r.word",
        "l.plain + 1 = r.plain AND abs(l.id - r.id) % 2 = 0",
        "l.plain = r.plain AND false",
    ):
        for left, right in (("l", "u"), ("u", "d"), ("d", "l")):
            tables.same(both_sides(kind, left, right, condition))


@pytest.mark.parametrize("kind", ["left", "right", "full"])
def test_conditions_above_outer_joins(tables: Twins, kind: str) -> None:
    for where in (
        "coalesce(r.amount, 0) < 500",
        "r.id IS NULL",
        "l.id IS NULL OR r.note = 'note 3'",
        "l.note IS NOT DISTINCT FROM r.note",
    ):
        for left, right in (("l", "u"), ("u", "d")):
            query = both_sides(kind, left, right, "l.plain = r.plain")
            tables.same(f"{query} WHERE {where}")


@pytest.mark.parametrize("kind", KINDS)
def test_empty_sides(tables: Twins, kind: str) -> None:
    for left, right in (("l", "e"), ("e", "l"), ("e", "e")):
        tables.same(both_sides(kind, left, right, "l.plain = r.plain"))
    tables.same(both_sides(kind, "l", "u", "l.plain = r.plain AND l.id < 0"))


@pytest.mark.parametrize(
    "condition",
    [
        "l.small = r.plain",
        "l.plain = r.sparse / 1000003",
        "l.plain::bigint = r.sparse / 1000003",
        "l.single = r.real * 0.75",
        "l.price = r.free",
        "l.name = r.name::text",
        "l.padded = r.padded || '  '",
        "l.padded::text = r.name",
        "l.day = r.moment::date",
        "l.day = r.moment",
        "l.id16 = md5(r.plain::text)::uuid",
    ],
)
def test_keys_of_different_types_and_expressions(tables: Twins, condition: str) -> None:
    for kind in KINDS:
        tables.same(both_sides(kind, "l", "u", condition))


@pytest.mark.parametrize("type_", [t for t in EVERY_TYPE if t.equal], ids=lambda t: t.name)
def test_every_type(tables: Twins, type_) -> None:
    """Keys and payload of each type, with the values that are special to it."""
    listed = ", ".join(f"({n}, {type_.literal(v)})" for n, v in enumerate(type_.values))
    tables.execute(
        "DROP TABLE IF EXISTS p, q, listed",
        f"CREATE TABLE listed (n integer, v {type_.name}) USING heap; INSERT INTO listed VALUES {listed}",
        f"CREATE TABLE p (id integer, v {type_.name}); CREATE TABLE q (id integer, v {type_.name})",
        f"INSERT INTO p SELECT i, CASE WHEN i % 9 > 0 THEN v END FROM generate_series(1, 300) AS i"
        f" JOIN listed ON n = i % {len(type_.values)}",
        f"INSERT INTO q SELECT i, CASE WHEN i % 8 > 0 THEN v END FROM generate_series(1, {2 * len(type_.values)}) AS i"
        f" JOIN listed ON n = i % {len(type_.values)}",
        "ANALYZE p; ANALYZE q",
    )
    by_id = "SELECT p.id, p.v, q.id, q.v FROM p LEFT JOIN q ON p.id = q.id + 3"
    tables.same(by_id)
    tables.same("SELECT p.id, q.id FROM p JOIN q ON p.v = q.v")
    tables.same("SELECT p.id, p.v FROM p WHERE NOT EXISTS (SELECT FROM q WHERE p.v = q.v)")
    if (
        type_.name not in NOT_HASHED
        and tables.heap.run("SELECT v = v FROM p LIMIT 1").sqlstate is None
    ):
        assert is_vectorised(tables, by_id)


# ---- several joins, aggregates, sub-selects ---------------------------------------------------------

CHAINS = [
    "SELECT l.id, u.id, d.id FROM l JOIN u ON l.plain = u.plain JOIN d ON u.plain = d.plain WHERE l.id % 3 = 0",
    "SELECT l.id, u.amount, d.note FROM l LEFT JOIN u ON l.plain = u.plain LEFT JOIN d ON u.plain = d.plain AND d.id < 900",
    "SELECT u.note, count(*), sum(l.amount), min(u.day) FROM l JOIN u ON l.plain = u.plain GROUP BY u.note",
    "SELECT u.note, l.word, count(*), sum(u.amount * l.amount) FROM u JOIN l ON l.plain = u.plain GROUP BY 1, 2",
    "SELECT l.word, count(d.id), count(*), avg(d.price) FROM l LEFT JOIN d ON l.sparse = d.sparse GROUP BY l.word",
    "SELECT count(*), sum(u.price), max(l.long) FROM u, l WHERE l.plain = u.plain AND l.day = u.day",
    "SELECT count(*), sum(u.price) FILTER (WHERE l.id > u.id) FROM u, l WHERE l.plain = u.plain",
    "SELECT u.id, u.note, sum(l.amount) FROM u JOIN l ON l.plain = u.plain GROUP BY u.id, u.note HAVING count(*) > 3",
    "SELECT count(*) FROM l WHERE plain IN (SELECT plain FROM u WHERE id < 200) AND word IN (SELECT word FROM d)",
    "SELECT l.id, v.column2 FROM l JOIN (VALUES (7, 'a'), (14, 'b'), (14, 'c'), (NULL, 'd')) AS v ON l.plain = v.column1",
    "WITH c AS MATERIALIZED (SELECT plain, note FROM u) SELECT l.id, c.note FROM l JOIN c USING (plain)",
    "SELECT l.id, g FROM l JOIN generate_series(1, 50) AS g ON l.plain = g",
    "SELECT u.id, (SELECT count(*) FROM l JOIN d ON l.plain = d.plain AND l.id < u.id) FROM u WHERE id < 12",
    "SELECT l.id, u.id FROM l JOIN u ON l.plain = u.plain ORDER BY l.id DESC, u.id LIMIT 17",
    "SELECT l.id, row_number() OVER (PARTITION BY u.note ORDER BY l.id, u.id) FROM l JOIN u ON l.plain = u.plain",
    "SELECT DISTINCT u.note, l.word FROM l JOIN u ON l.plain = u.plain",
    "SELECT l.id FROM l JOIN u ON l.plain = u.plain JOIN d ON d.plain = l.plain AND d.word = u.word",
]  # fmt: skip


# whose cheapest plans may have no batches
OTHERS = [
    "SELECT count(*) FROM u JOIN (SELECT l.plain AS k, count(DISTINCT upper(d.note)) AS c FROM d RIGHT JOIN l ON d.sparse"
    " = l.sparse AND d.real <= l.real AND d.note >= 'note 3' FULL JOIN e ON d.raw = e.raw GROUP BY l.plain) AS q ON u.plain = q.k",
    "SELECT * FROM (SELECT plain, sum(amount) AS s FROM l GROUP BY plain) AS s JOIN u USING (plain)",
    "SELECT u.id, s.s FROM u LEFT JOIN (SELECT plain, sum(amount) AS s FROM l GROUP BY plain) AS s USING (plain)",
    "SELECT l.id, x.id FROM l JOIN (SELECT * FROM u UNION ALL SELECT * FROM d WHERE id < 100) AS x USING (plain)",
]  # fmt: skip


@pytest.mark.parametrize("query", CHAINS + OTHERS)
@pytest.mark.parametrize("parallel", [False, True])
def test_queries(tables: Twins, query: str, parallel: bool) -> None:
    if parallel:
        tables.execute(PARALLEL)
    if query in CHAINS:
        same_join(tables, query)
    else:
        tables.same(query)


def test_an_outer_join_of_joins(tables: Twins) -> None:
    for query in (
        "SELECT l.id, u.id, d.id FROM l FULL JOIN u ON l.plain = u.plain FULL JOIN d ON u.plain = d.plain",
        "SELECT l.id, u.id, d.id FROM l RIGHT JOIN u ON l.plain = u.plain JOIN d ON u.id = d.id",
        "SELECT l.id, u.id, d.id FROM (l JOIN d ON l.id = d.id) RIGHT JOIN u ON l.plain = u.plain WHERE u.id > 5",
    ):
        same_join(tables, query)


def test_partition_trees(tables: Twins) -> None:
    tables.execute(
        "CREATE TABLE parts (id integer, extra text, plain integer, day date) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_1 (day date, id integer, gone text, plain integer, extra text)",
        "ALTER TABLE parts_1 DROP COLUMN gone; ALTER TABLE parts ATTACH PARTITION parts_1 FOR VALUES FROM (0) TO (300)",
        "CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (300) TO (2000)",
        "INSERT INTO parts SELECT id, note, plain, day FROM d WHERE id < 2000; ANALYZE parts",
    )
    for query in (
        "SELECT l.id, p.id, p.extra FROM l JOIN parts AS p USING (plain)",
        "SELECT u.id, p.id, p.extra FROM parts AS p LEFT JOIN u USING (plain, day)",
        "SELECT u.note, count(*), sum(p.id) FROM parts AS p JOIN u USING (plain) GROUP BY u.note",
        "SELECT p.id FROM parts AS p WHERE NOT EXISTS (SELECT FROM u WHERE u.plain = p.plain)",
    ):
        same_join(tables, query)
    tables.execute("DROP TABLE parts")


def test_a_heap_table_on_one_side(tables: Twins) -> None:
    tables.execute("CREATE TABLE h USING heap AS SELECT * FROM u; ANALYZE h")
    for kind in KINDS:
        tables.same(both_sides(kind, "l", "h", "l.plain = r.plain"))
        tables.same(both_sides(kind, "h", "l", "l.plain = r.plain AND l.id <> r.id"))
    tables.execute("DROP TABLE h")


def test_generic_plans_and_rescans(tables: Twins) -> None:
    tables.execute("SET plan_cache_mode = force_generic_plan")
    query = "SELECT l.id, u.id FROM l JOIN u ON l.plain = u.plain + $1 WHERE l.id < $2"
    tables.execute(f"PREPARE q (integer, integer) AS {query}")
    for arguments in ("0, 500", "2, 4000", "0, 0", "NULL, 10"):
        tables.same(f"EXECUTE q ({arguments})")
    tables.execute("DEALLOCATE q")
    tables.same(
        "SELECT g, s.* FROM generate_series(1, 5) AS g, LATERAL"
        " (SELECT count(*), sum(u.id) FROM l JOIN u ON l.plain = u.plain WHERE l.id % 5 = g AND u.id % 7 <> g) AS s"
    )


def test_cursors(tables: Twins) -> None:
    query = "SELECT l.id, u.id FROM l JOIN u ON l.plain = u.plain ORDER BY l.id, u.id"
    tables.execute("BEGIN", f"DECLARE c SCROLL CURSOR FOR {query}")
    for fetch in ("10", "BACKWARD 3", "ABSOLUTE 100", "ALL", "BACKWARD ALL"):
        tables.same(f"FETCH {fetch} FROM c", ordered=True)
    tables.execute("COMMIT")


def test_errors(tables: Twins) -> None:
    tables.same("SELECT l.id FROM l JOIN u ON l.plain = u.plain AND 1 / (l.plain - u.plain) > 0")
    tables.same("SELECT 1 / (l.id - l.id) FROM l JOIN u ON l.plain = u.plain")
    tables.same("SELECT l.id FROM l JOIN u ON l.plain = 1 / (u.id - u.id)")


# ---- memory ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(sides: Twins) -> Twins:
    sides.execute(
        "CREATE TABLE big (id integer, k integer, t text, n numeric)",
        "INSERT INTO big SELECT i, CASE WHEN i % 50 > 0 THEN i * 17 % 60000 END, 'text ' || i % 5000, i / 8.0"
        " FROM generate_series(1, 90000) AS i; ANALYZE big",
    )
    return sides


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", ["k", "t", "n"])
def test_build_sides_beyond_memory(large: Twins, kind: str, key: str) -> None:
    large.execute("SET work_mem = '512kB'; SET hash_mem_multiplier = 1")
    shown = "l.id, l.t" if kind in ("semi", "anti") else "l.id, l.t, r.id AS i, r.n AS m"
    for condition in (f"l.{key} = r.{key}", f"l.{key} = r.{key} AND l.id % 4 <> r.id % 4"):
        on = f"{condition} AND r.id % 3 = 0" if key == "t" else condition
        source = KINDS[kind].format(l="big AS l", r="big AS r", on=on)
        query = f"SELECT {shown} FROM {source}"
        same_join(large, DIGEST.format(query))
    plan = "\n".join(
        row[0]
        for row in large.columnar.execute(f"EXPLAIN (ANALYZE, COSTS OFF) {DIGEST.format(query)}")
    )
    assert "Times Memory Was Full" in plan
    large.reset()
    large.execute("SET max_parallel_workers_per_gather = 0; SET enable_mergejoin = off")


def test_one_key_beyond_memory(large: Twins) -> None:
    """Splitting does not help where all rows have the same key: memory is exceeded, the result is right."""
    large.execute("SET work_mem = '64kB'; SET hash_mem_multiplier = 1")
    large.same(
        "SELECT count(*), sum(r.id) FROM (SELECT id % 2 AS k, id FROM big WHERE id < 20000) AS l"
        " RIGHT JOIN (SELECT 1 AS k, id, t FROM big WHERE id % 3 = 0 OFFSET 0) AS r USING (k) WHERE l.id < 12",
    )
    large.reset()
    large.execute("SET max_parallel_workers_per_gather = 0; SET enable_mergejoin = off")


# ---- at random -------------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(12))
def test_random_joins(tables: Twins, seed: int) -> None:
    """Joins of up to four tables in random kinds, over random keys, with conditions and aggregates."""
    rng = random.Random(f"join {seed}")
    tables.execute(f"SET geqo_threshold = {rng.choice((2, 12))}")
    if rng.random() < 0.4:
        tables.execute("SET work_mem = '64kB'; SET hash_mem_multiplier = 1")
    for _ in range(12):
        names = rng.choices(["l", "u", "d", "e"], [3, 3, 3, 0.3], k=rng.choice((2, 3, 3, 4)))
        aliases = [f"a{n}" for n in range(len(names))]
        source = f"{names[0]} AS a0"
        for n in range(1, len(names)):
            other = rng.choice(aliases[:n])
            key = rng.choice([k for k in KEYS if k not in ("flag", "word")])
            on = f"{other}.{key} = a{n}.{key}"
            if rng.random() < 0.4:
                on += rng.choice(
                    (
                        f" AND {other}.id <> a{n}.id",
                        f" AND a{n}.id < 900",
                        f" AND {other}.note = a{n}.note",
                    )
                )
            source += (
                f" {rng.choice(('', '', 'LEFT', 'RIGHT', 'FULL'))} JOIN {names[n]} AS a{n} ON {on}"
            )
        where = rng.choice(("", f" WHERE {aliases[-1]}.id < 500", " WHERE a0.id % 3 = 0"))
        if rng.random() < 0.5:
            shown = ", ".join(f"count({a}.id), sum({a}.amount), max({a}.note)" for a in aliases)
            tables.same(f"SELECT a0.word, {shown} FROM {source}{where} GROUP BY a0.word")
        else:
            shown = ", ".join(f"{a}.id AS i{n}, {a}.price AS p{n}" for n, a in enumerate(aliases))
            tables.same(DIGEST.format(f"SELECT {shown} FROM {source}{where}"))
