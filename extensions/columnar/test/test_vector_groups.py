"""GROUP BY makes the groups that heap makes, of every type, of few and many keys, whatever their number.

What a group shows, where equal values are written differently (1.1 and 1.10), is the value that came
first; heap may sort and show another, so such columns are compared by `trim_scale()` and the like.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from extensions.columnar.test.every_type import EVERY_TYPE, SETUP, EveryType
from extensions.columnar.test.twins import Twins, open_twins
from tests.cluster import Node

TYPES = {type_.name: type_ for type_ in EVERY_TYPE if type_.equal}

# Their equality is no hash function's, or none is found: they are grouped by sorting, in core.
NOT_HASHED = {"money", "tsvector", "tsquery", "bit(5)", "bit varying", "bit varying(70)"}

# `digest` of the rows of a query with too many to compare one by one
DIGEST = "SELECT count(*), sum(hashtextextended(r::text, 0)::numeric) FROM ({}) AS r"


@pytest.fixture(scope="module")
def sides(node: Node) -> Iterator[Twins]:
    with open_twins(node, "test_vector_groups") as made:
        made.execute(SETUP, "SET max_parallel_workers_per_gather = 0")
        yield made


@pytest.fixture
def serial(twins: Twins) -> Twins:
    twins.execute("SET max_parallel_workers_per_gather = 0")
    return twins


def is_vectorised(twins: Twins, query: str) -> bool:
    return "ColumnarAggregate" in twins.plan(query)


def same_groups(twins: Twins, query: str) -> None:
    """The query is answered by the vectorised node, as heap answers it."""
    assert is_vectorised(twins, query), twins.plan(query)
    twins.same(query)


def same_many_groups(twins: Twins, query: str) -> None:
    """The same of so many groups that digests are compared."""
    assert is_vectorised(twins, query), twins.plan(query)
    twins.same(DIGEST.format(query))


def expect_few_groups(table: str, *columns: str) -> str:
    """Statements after which the planner does not think that there are too many groups."""
    wrong = ", ".join(f"ALTER {column} SET (n_distinct = 9)" for column in columns)
    return f"ALTER TABLE {table} {wrong}; ANALYZE {table}"


def shows_first(twins: Twins, key: str, more_keys: str = "") -> None:
    """A group of the columnar table shows the key of its first row."""
    ((wrong,),) = twins.columnar.execute(
        f"SELECT count(*) FROM (SELECT {key} AS k, min(id) AS id FROM t GROUP BY {key}{more_keys}) AS s"
        f" JOIN t USING (id) WHERE s.k::text IS DISTINCT FROM t.{key}::text"
    )
    assert wrong == 0


# ---- every type ------------------------------------------------------------------------------------


def fill_with(twins: Twins, type_: EveryType, rows: int, nulls: int) -> None:
    """t (id, v): the type's listed values among those of its series, some NULL."""
    listed = ", ".join(f"({n}, {type_.literal(v)})" for n, v in enumerate(type_.values))
    cast = type_.name.split(" COLLATE")[0]
    spread = (
        f"CASE WHEN g % 7 < 3 THEN ({type_.spread})::{cast} ELSE l.v END" if type_.spread else "l.v"
    )
    twins.execute(
        f"DROP TABLE IF EXISTS t, listed; CREATE TABLE listed (n integer, v {type_.name}) USING heap",
        f"INSERT INTO listed VALUES {listed}",
        f"CREATE TABLE t (id integer, v {type_.name})",
        f"INSERT INTO t SELECT s, CASE WHEN g * 37 % 100 < {nulls} THEN NULL ELSE {spread} END"
        f" FROM generate_series(1, {rows}) AS s, LATERAL (SELECT s * 7 % 701 AS g) AS x"
        f" LEFT JOIN listed AS l ON l.n = g / 3 % {len(type_.values)} ORDER BY s",
        expect_few_groups("t", "id", "v"),
    )


def fill_every(twins: Twins, type_: EveryType, rows: int, nulls: int) -> None:
    """The same as table `every`; t stays what it is."""
    twins.execute("DROP TABLE IF EXISTS every; ALTER TABLE t RENAME TO kept")
    try:
        fill_with(twins, type_, rows, nulls)
        twins.execute("ALTER TABLE t RENAME TO every")
    finally:
        twins.execute("ALTER TABLE kept RENAME TO t")


@pytest.mark.sample(4)
@pytest.mark.parametrize("nulls", [0, 30])
@pytest.mark.parametrize("name", TYPES)
def test_groups_of_every_type(sides: Twins, name: str, nulls: int) -> None:
    fill_with(sides, TYPES[name], 3000, nulls)
    queries = (
        "SELECT count(*), count(v), sum(id), min(id), max(id) FROM t GROUP BY v",
        "SELECT id % 3, count(*), sum(id), min(id) FROM t GROUP BY v, id % 3",
        "SELECT count(*), sum(id), min(id) FROM t WHERE id > 700 GROUP BY id / 600, v, v IS NULL",
    )
    for query in queries:
        sides.same(query)
    if sides.heap.run(queries[0]).sqlstate is not None:
        return  # no type for GROUP BY
    for query in queries:
        assert is_vectorised(sides, query) == (name not in NOT_HASHED), sides.plan(query)
    if name not in NOT_HASHED:
        shows_first(sides, "v")
        shows_first(sides, "v", ", id % 3")


# ---- several keys ----------------------------------------------------------------------------------

COLUMNS = {
    "few": ("integer", "{h} % 7"),
    "dense": ("integer", "{h} % 3000"),
    "sparse": ("bigint", "{h}::bigint * 1000003"),
    "wide": ("bigint", "hashint8extended({h} % 900, 3)"),
    "borders": ("bigint", "(ARRAY[-9223372036854775808, 9223372036854775807, 0, -1])[1 + {h} % 4]"),
    "flag": ("boolean", "{h} % 3 = 0"),
    "day": ("date", "date '2020-01-01' + {h} % 400"),
    "moment": ("timestamptz", "timestamptz '2020-01-01 00:00+00' + {h} % 5000 * interval '7 min'"),
    "ratio": ("double precision", "(ARRAY['-0', '0', 'NaN', '1.5', '-Infinity']::float8[])[1 + {h} % 5] * ({h} % 3)"),
    "single": ("real", "({h} % 50) / 8.0"),
    "price": ("numeric(12, 2)", "({h} % 999) / 100.0"),
    "free": ("numeric", "round(({h} % 40) / 4.0, {h} % 4) + CASE {h} % 60 WHEN 7 THEN 'NaN' WHEN 8 THEN 1e30 ELSE 0 END"),
    "word": ("text", "'word ' || {h} % 20"),
    "long": ("text", "md5(({h} % 2000)::text)"),
    "padded": ("char(8)", "left('blank', {h} % 6)"),
    "id16": ("uuid", "md5(({h} % 100)::text)::uuid"),
    "raw": ("bytea", "decode(md5(({h} % 30)::text), 'hex')"),
    "list": ("integer[]", "ARRAY[{h} % 5, NULL, {h} % 3]"),
    "span": ("interval", "(ARRAY['1 month', '30 days', '720:00:00', '1 day', '24:00:00']::interval[])[1 + {h} % 5]"),
    "doc": ("jsonb", "jsonb_build_object('a', {h} % 4, 'b', round(1.0, {h} % 3))"),
}  # fmt: skip

# how a column is compared of which several spellings are equal
SHOWN = {
    "free": "trim_scale(free)",
    "ratio": "ratio + 0",
    "span": "justify_interval(span)",
    "doc": "doc->'a'",
}


@pytest.fixture(scope="module")
def mixed(node: Node) -> Iterator[Twins]:
    """t with all COLUMNS, each of its own rhythm and with its own share of NULL; 4 row groups."""
    with open_twins(node, "test_vector_groups_mixed") as made:
        made.execute("SET max_parallel_workers_per_gather = 0")
        columns = ", ".join(f"{name} {type_}" for name, (type_, _) in COLUMNS.items())
        made.execute(f"CREATE TABLE t (id integer, {columns})")
        values = [
            f"CASE WHEN (g * {n + 11}) % 100 < {(0, 5, 0, 40)[n % 4]} THEN NULL ELSE "
            f"({sql.format(h=f'(hashint4(g + {n}) & 1073741823)')})::{type_} END"
            for n, (type_, sql) in enumerate(COLUMNS.values())
        ]
        for part in range(4):
            made.execute(
                f"INSERT INTO t SELECT g, {', '.join(values)}"
                f" FROM generate_series({part * 3000 + 1}, {part * 3000 + 3000}) AS g"
            )
        made.execute(expect_few_groups("t", *COLUMNS))
        yield made


def key_lists() -> list[tuple[str, ...]]:
    rng = random.Random(4)
    lists = [(name,) for name in COLUMNS]
    for size in (2, 2, 2, 3, 3, 4, 5):
        lists += [tuple(rng.sample(list(COLUMNS), size)) for _ in range(7)]
    return [*lists, tuple(COLUMNS)]


@pytest.mark.sample(4)
@pytest.mark.parametrize("keys", key_lists(), ids=lambda keys: "_".join(keys)[:40])
def test_groups_of_one_to_many_keys(mixed: Twins, keys: tuple[str, ...]) -> None:
    shown = ", ".join(SHOWN.get(key, key) for key in keys)
    names = ", ".join(keys)
    # trim_scale(key) above GROUP BY key: an expression of the group, not a key of its own
    query = f"SELECT {names}, count(*) AS n, sum(id) AS s, min(id) AS first FROM t GROUP BY {names}"
    assert is_vectorised(mixed, query), mixed.plan(query)
    mixed.same(f"SELECT {shown}, n, s, first FROM ({query}) AS q")
    mixed.same(
        f"SELECT {shown}, n FROM ({query.replace(' GROUP', ' WHERE id % 3 = 1 GROUP')}) AS q"
    )
    for key in keys:
        shows_first(mixed, key, "".join(f", {other}" for other in keys if other != key))


# ---- how many --------------------------------------------------------------------------------------

NUMBERS = (1, 2, 100, 1000, 5000, 40000, 200000)


@pytest.fixture(scope="module")
def many(node: Node) -> Iterator[Twins]:
    """t (id, h, s): 250 000 rows, ascending, in no order, and as text."""
    with open_twins(node, "test_vector_groups_many") as made:
        made.execute(
            "SET max_parallel_workers_per_gather = 0",
            "CREATE TABLE t (id integer, h bigint, s text)",
            "INSERT INTO t SELECT g, hashint8extended(g % 200000, 0), 'key ' || g * 7919::bigint % 200000"
            " FROM generate_series(1, 250000) AS g",
            expect_few_groups("t", "id", "h", "s"),
        )
        yield made


KEYS = {
    "ascending": "id / {step}",
    "dense": "abs(h) % {n}",
    "sparse": "abs(h) % {n} * 100003",
    "wide": "hashint8extended(abs(h) % {n}, 1)",
    "pair": "abs(h) % {n}, hashint8extended(abs(h) % 3, 1)",
    "text": "(abs(h) % {n})::text",
    "numeric": "(abs(h) % {n}) / 8::numeric",
    "float": "(abs(h) % {n}) / 8.0::float8",
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("kind", KEYS)
def test_any_number_of_groups(many: Twins, kind: str, number: int) -> None:
    keys = KEYS[kind].format(n=number, step=max(1, 200000 // number))
    same_many_groups(many, f"SELECT {keys}, count(*), sum(id) FROM t GROUP BY {keys}")


@pytest.mark.parametrize("keys", ["h", "s", "id", "s, h", "id, s", "h, id % 2, s"])
def test_as_many_groups_as_values(many: Twins, keys: str) -> None:
    same_many_groups(many, f"SELECT {keys}, count(*), sum(id) FROM t GROUP BY {keys}")


@pytest.mark.parametrize("keys", ["h", "s", "id", "s, h", "s, id % 4"])
def test_groups_beyond_memory(many: Twins, keys: str) -> None:
    many.execute("SET work_mem = '64kB'")
    try:
        same_many_groups(many, f"SELECT {keys}, count(*), sum(id), min(s) FROM t GROUP BY {keys}")
    finally:
        many.execute("RESET work_mem")


# ---- what is special -------------------------------------------------------------------------------


def test_dictionaries_of_row_groups_differ(serial: Twins) -> None:
    """The same words in another order, others, fewer, none but NULL, and no dictionary at all."""
    serial.execute("CREATE TABLE t (id integer, a text, b varchar(10), n numeric, c integer)")
    parts = (
        "'w' || g % 9, 'x' || g % 4",
        "'w' || 8 - g % 9, 'x' || 3 - g % 4",
        "'w' || g % 3, NULL",
        "NULL, NULL",
        "'v' || g % 1500, 'x' || g % 1700",
        "CASE WHEN g % 7 > 0 THEN 'w' || g % 40 END, CASE WHEN g % 3 = 0 THEN 'y' || g % 4 END",
        "'w1', 'x2'",
    )
    for n, part in enumerate(parts):
        serial.execute(
            f"INSERT INTO t SELECT g, {part}, round((g % 30) / 8.0, g % 6), g % 5"
            f" FROM generate_series({n * 4000}, {n * 4000 + 3999}) AS g"
        )
    ((groups,),) = serial.columnar.execute(
        "SELECT count(*) FROM strata_columnar.columnar_row_groups('t')"
    )
    assert groups == len(parts)
    for keys in ("a", "b", "a, b", "b, a, c", "c, a", "a, upper(b)", "a, b, id / 4000"):
        same_groups(serial, f"SELECT {keys}, count(*), sum(id), min(id) FROM t GROUP BY {keys}")
    same_groups(serial, "SELECT a, b, count(*) FROM t WHERE id % 1000 < 400 GROUP BY a, b")
    for keys in ("n", "n, a", "a, b, n"):
        same_groups(serial, f"SELECT count(*), sum(id), min(id), min(a) FROM t GROUP BY {keys}")
    shows_first(serial, "n")
    shows_first(serial, "n", ", a")


def test_zeroes_and_not_a_numbers_are_one_group(serial: Twins) -> None:
    serial.execute(
        "CREATE TABLE t (id integer, d double precision, f real)",
        "INSERT INTO t SELECT g, v, v FROM generate_series(1, 3000) AS g, LATERAL (SELECT (ARRAY['-0', '0', 'NaN',"
        " '-NaN', 'Infinity', '-Infinity', NULL]::text[])[1 + g % 7]::float8 AS v) AS x",
    )
    for keys in ("d", "f", "d, f", "d, id % 2", "-d", "d + f", "abs(f), d"):
        query = f"SELECT count(*), sum(id), min(id) FROM t GROUP BY {keys}"
        same_groups(serial, query)
    assert len(serial.same("SELECT count(*), sum(id) FROM t GROUP BY d")) == 5
    shows_first(serial, "d")
    shows_first(serial, "f")


NUMERIC_SERIES = {
    "spellings": "(1 + g % 5 / 10.0)::numeric(10, 1) + round(0.0, g % 9)",
    "scales": "round((g % 64) / 8.0, g % 7)",
    "specials": "CASE g % 6 WHEN 0 THEN 'NaN' WHEN 1 THEN 'Infinity' WHEN 2 THEN '-Infinity' ELSE (g % 7)::text END",
    "around 2^63": "9223372036854775807::numeric + g % 4 - 2 + round(0.0, g % 3)",
    "around 2^127": "170141183460469231731687303715884105727::numeric + g % 4 - 2 + round(0.0, g % 2)",
    "many zeroes": "(g % 5 || '.' || repeat('0', 20 * (g % 4)))::numeric",
    "very many zeroes": "(g % 5 || '.' || repeat('0', 3000 * (g % 2) + 1))::numeric",
    "powers": "10::numeric ^ (g % 45) * (1 - g % 2 * 2)",
    "fractions": "1 / (1 + g % 50)::numeric",
    "later scales": "round((g % 90) / 8.0, g / 800)",
    "first not a number": "CASE WHEN g < 1100 THEN 'NaN' ELSE (g % 50) / 4.0 END",
}


@pytest.mark.parametrize("series", NUMERIC_SERIES)
def test_numerics_group_by_value_and_show_the_first(serial: Twins, series: str) -> None:
    serial.execute(
        "CREATE TABLE t (id integer, n numeric, w text)",
        f"INSERT INTO t SELECT g, ({NUMERIC_SERIES[series]})::numeric, 'w' || g % 3 FROM generate_series(1, 5000) AS g",
    )
    for keys in ("n", "n, w", "w, n, id % 2", "n + 0", "n * 1.00"):
        query = f"SELECT min(trim_scale(n)), count(*), sum(id), min(id) FROM t GROUP BY {keys}"
        same_groups(serial, query)
    shows_first(serial, "n")
    shows_first(serial, "n", ", w")


def test_blanks_at_the_end_of_character_do_not_count(serial: Twins) -> None:
    serial.execute(
        "CREATE TABLE t (id integer, c char(6), b bpchar, v varchar(9))",
        "INSERT INTO t SELECT g, repeat('a', g % 5), repeat('b', g % 4) || repeat(' ', g % 3), 'v' || repeat(' ', g % 3)"
        " FROM generate_series(1, 3000) AS g",
    )
    for keys in ("c", "b", "v", "b, c", "v, b", "b, v, c"):
        shown = ", ".join(f"length({key})" for key in keys.split(", "))
        query = f"SELECT {shown}, count(*), sum(id), min(id) FROM t GROUP BY {keys}"
        same_groups(serial, query)
    assert len(serial.same("SELECT count(*) FROM t GROUP BY b")) == 4
    shows_first(serial, "b")
    shows_first(serial, "b", ", v")


EXPRESSIONS = (
    "id % 10", "id / 100, id % 2 = 0", "-id % 7", "d + 1", "date_trunc('month', at)",
    "extract(year FROM at), extract(month FROM at)", "upper(s)", "substring(s FROM 1 FOR 2)", "s || 'x'",
    "CASE WHEN id % 3 = 0 THEN 'three' WHEN id % 5 = 0 THEN s END", "coalesce(s, 'none')", "s IS NULL, d IS NULL",
    "nullif(id % 4, 2)", "p * 2", "p / 4", "round(p, 1)", "p::integer", "f * 2", "sqrt(f)", "f::numeric",
    "at::date", "at - timestamp '2020-01-01'", "length(s)", "ARRAY[id % 3, id % 2]", "to_jsonb(id % 5)", "s::char(2)",
    "md5(s)", "int4range(0, id % 4)", "id % 2, 'constant'::text", "left(s, 1), upper(s), id % 3",
)  # fmt: skip


@pytest.mark.parametrize("keys", EXPRESSIONS)
def test_expressions_as_keys(serial: Twins, keys: str) -> None:
    serial.execute(
        "CREATE TABLE t (id integer, d date, at timestamp, s text, p numeric(10, 2), f double precision)",
        "INSERT INTO t SELECT g, nullif(date '2020-01-01' + g % 50, '2020-01-09'), timestamp '2020-01-01' + g * interval '5 h',"
        " CASE WHEN g % 11 > 0 THEN chr(97 + g % 20) || g % 6 END, nullif(g % 40, 7) * 1.05, g % 30 FROM generate_series(1, 4000) AS g",
    )
    same_groups(serial, f"SELECT {keys}, count(*), sum(id), min(id) FROM t GROUP BY {keys}")
    same_groups(serial, f"SELECT count(*), max(id) FROM t WHERE id % 9 < 4 GROUP BY {keys}")


def test_collations_that_are_not_deterministic_are_left_to_core(serial: Twins) -> None:
    icu = "CREATE COLLATION anycase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    if any(side.run(icu).sqlstate == "0A000" for side in serial.sides):
        return  # a server without ICU has no such collations
    serial.execute(
        "CREATE TABLE t (id integer, v text COLLATE anycase, w text)",
        "INSERT INTO t SELECT g, (ARRAY['abc', 'ABC', 'Abc', 'd'])[1 + g % 4], (ARRAY['x', 'X'])[1 + g % 2]"
        " FROM generate_series(1, 3000) AS g",
    )
    assert len(serial.same('SELECT lower(v COLLATE "C"), count(*), sum(id) FROM t GROUP BY v')) == 2
    serial.same("SELECT count(*), sum(id) FROM t GROUP BY w COLLATE anycase")
    serial.same("SELECT count(*), sum(id) FROM t GROUP BY w, v")
    same_groups(serial, 'SELECT v COLLATE "C", count(*) FROM t GROUP BY v COLLATE "C"')
    same_groups(serial, "SELECT w, count(*) FROM t GROUP BY w")


def test_conflicting_collations_are_an_error(serial: Twins) -> None:
    serial.execute(
        'CREATE TABLE t (id integer, a text COLLATE "C", b text COLLATE "POSIX")',
        "INSERT INTO t SELECT g, 'a', 'b' FROM generate_series(1, 100) AS g",
    )
    serial.same("SELECT count(*) FROM t GROUP BY a || b")


def test_groups_are_made_anew_for_every_outer_row(serial: Twins) -> None:
    serial.execute(
        "CREATE TABLE t (id integer, s text, n numeric)",
        "INSERT INTO t SELECT g, 's' || g % 50, round((g % 20) / 4.0, g % 3) FROM generate_series(1, 3000) AS g",
    )
    for keys in ("s", "n", "id % 5", "s, n, id"):
        serial.same(
            "SELECT x, c, f, l FROM generate_series(0, 12) AS x, LATERAL"
            f" (SELECT count(*) AS c, min(id) AS f, max(id) AS l FROM t WHERE id % 13 < x GROUP BY {keys}) AS q"
        )


def test_no_rows_make_no_groups(serial: Twins) -> None:
    serial.execute("CREATE TABLE t (id integer, s text)")
    assert serial.same("SELECT s, count(*) FROM t GROUP BY s") == []
    serial.execute("INSERT INTO t SELECT g, NULL FROM generate_series(1, 2000) AS g")
    assert serial.same("SELECT s, count(*) FROM t WHERE id > 5000 GROUP BY s") == []
    assert serial.same("SELECT s, count(*) FROM t GROUP BY s") == [(None, "2000")]
