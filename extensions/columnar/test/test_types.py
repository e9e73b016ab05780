"""Values of every type come back as they went in, and are found by every predicate that means them.

Per type a table of `id integer, v <type>` is filled alike on both sides, at sizes around the block
of 1024 values and with different shares of NULL; then text, binary form, comparisons, grouping and
extremes are compared with heap's.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from extensions.columnar.test.every_type import EVERY_TYPE, SETUP, EveryType
from extensions.columnar.test.twins import Twins, open_twins
from tests.cluster import Node

# rows, percent NULL, and whether only the few listed values occur
SHAPES = ((1, 0, True), (1023, 0, False), (1024, 30, True), (1025, 97, False), (2500, 10, False))
WHOLE_GROUPS = (131071, 131072, 131073)

TYPES = {type_.name: type_ for type_ in EVERY_TYPE}


@pytest.fixture(scope="module")
def sides(node: Node) -> Iterator[Twins]:
    with open_twins(node, "test_types") as made:
        made.execute(SETUP)
        yield made


def make_values(twins: Twins, type_: EveryType) -> None:
    """The type's listed values, in a heap table on both sides."""
    rows = ", ".join(f"({n}, {type_.literal(v)})" for n, v in enumerate(type_.values))
    twins.execute(
        f"DROP TABLE IF EXISTS listed; CREATE TABLE listed (n integer, v {type_.name}) USING heap",
        f"INSERT INTO listed VALUES {rows}",
    )


def fill(type_: EveryType, table: str, rows: int, nulls: int, only_listed: bool) -> str:
    """The INSERT: each row has a NULL, a listed value or one of the spread."""
    count = len(type_.values)
    value = "l.v"
    if type_.spread and not only_listed:
        cast = type_.name.split(" COLLATE")[0]
        value = f"CASE WHEN g % 11 < 8 THEN ({type_.spread})::{cast} ELSE l.v END"
    return (
        f"INSERT INTO {table} SELECT g, CASE WHEN hashint4(g) % 100 + 99 < {nulls * 2} THEN NULL ELSE {value} END"
        f" FROM generate_series(1, {rows}) AS g LEFT JOIN listed AS l ON l.n = g / 3 % {count} ORDER BY g"
    )


def questions(type_: EveryType, table: str) -> Iterator[str]:
    """Queries whose predicates a zone map, a dictionary or a Bloom filter may answer wrongly."""
    yield f"SELECT count(*), sum(id) FROM {table} WHERE v IS NULL"
    yield f"SELECT count(*), sum(id), count(v) FROM {table} WHERE v IS NOT NULL"
    found = f"SELECT count(*), sum(id), min(id) FROM {table} WHERE"
    for value in type_.values[:6]:
        literal = type_.literal(value)
        if type_.equal:
            yield f"{found} v = {literal}"
            yield f"{found} {literal} <> v"
            yield f"{found} v IS NOT DISTINCT FROM {literal}"
        if type_.ordered:
            yield f"{found} v < {literal}"
            yield f"{found} {literal} <= v"
    first, last = type_.literal(type_.values[0]), type_.literal(type_.values[-1])
    if type_.equal:
        yield f"{found} v IN ({first}, {last}, NULL)"
        yield f"{found} v NOT IN ({first}, {last})"
    if type_.ordered:
        yield f"{found} v BETWEEN SYMMETRIC {first} AND {last}"
        yield f"{found} v >= {first} AND v > {last}"
        yield f"SELECT id, v FROM {table} ORDER BY v DESC NULLS LAST, id LIMIT 5"
        yield f"SELECT id FROM {table} WHERE v >= (SELECT v FROM listed WHERE n = 0) ORDER BY id"


def check_type(twins: Twins, type_: EveryType, shapes: tuple, binary: bool = True) -> None:
    make_values(twins, type_)
    for rows, nulls, only_listed in shapes:
        twins.execute(f"DROP TABLE IF EXISTS t; CREATE TABLE t (id integer, v {type_.name})")
        twins.same(fill(type_, "t", rows, nulls, only_listed))
        if rows < 10000:
            twins.same("SELECT id, v FROM t ORDER BY id")
        twins.same("SELECT md5(string_agg(v::text, '|' ORDER BY id)), count(v) FROM t")
        if binary and type_.binary:
            assert twins.copy_out_same(
                "COPY (SELECT v FROM t ORDER BY id) TO STDOUT (FORMAT binary)"
            )
        twins.all_same(questions(type_, "t"))
    twins.verify()


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", TYPES)
def test_values_come_back_and_are_found(sides: Twins, name: str) -> None:
    check_type(sides, TYPES[name], SHAPES)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", TYPES)
def test_values_come_back_from_whole_row_groups(sides: Twins, name: str) -> None:
    shapes = tuple((rows, 20 * n, False) for n, rows in enumerate(WHOLE_GROUPS))
    check_type(sides, TYPES[name], shapes)


@pytest.mark.parametrize("rows", WHOLE_GROUPS)
def test_a_row_group_and_a_row_more_or_less(twins: Twins, rows: int) -> None:
    """One wide table of the types that have encodings of their own, at the border of a row group."""
    twins.execute(
        "CREATE TABLE t (id integer, a bigint, b numeric(12, 2), c double precision, d text,"
        " e timestamp, f boolean, g uuid, h numeric)"
    )
    twins.same(
        "INSERT INTO t SELECT g, hashint8extended(g, 1) % 1000, (g % 9999) / 100.0, (g % 5000) / 100.0,"
        " 'text ' || g % 300, timestamp '2024-01-01' + g * interval '1 s', g % 7 = 0, md5(g::text)::uuid,"
        f" nullif(g % 50, 3) * 1.5 FROM generate_series(1, {rows}) AS g"
    )
    twins.same(
        "SELECT count(*), sum(id), sum(a), sum(b), sum((c * 100)::bigint), count(DISTINCT d), max(e), count(*) FILTER (WHERE f),"
        " min(g::text), sum(h), md5(string_agg(md5(t::text), '' ORDER BY id)) FROM t"
    )
    twins.same("SELECT * FROM t WHERE id > 131069 OR id < 3 ORDER BY id")
    twins.same(
        "SELECT count(*), min(id) FROM t WHERE e >= timestamp '2024-01-01' + 131072 * interval '1 s'"
    )
    twins.same(f"DELETE FROM t WHERE id IN (1, 1024, 1025, 131071, 131072, {rows})")
    twins.same("SELECT count(*), sum(id), max(id) FROM t")
    ((groups,),) = twins.columnar.execute(
        "SELECT count(*) FROM strata_columnar.columnar_row_groups('t')"
    )
    assert groups == (2 if rows > 131072 else 1)


# ---- numeric torture -------------------------------------------------------------------------------

NUMERIC_SERIES = {
    "digits grow": "power(10::numeric, g % 40) * (1 - g % 2 * 2)",
    "scales differ": "round(g / 7.0, g % 25)",
    "trailing zeros": "(g || '.' || repeat('0', g % 9))::numeric",
    "mantissas around 2^63": "9223372036854775807::numeric + g % 3 - 1",
    "mantissas around 2^127": "170141183460469231731687303715884105727::numeric + g % 3 - 1",
    "negative zero and small": "CASE g % 4 WHEN 0 THEN -0.0 WHEN 1 THEN -0.00000001 WHEN 2 THEN 0 ELSE 1e-20 END",
    "groups of four digits": "(g % 3)::numeric * 10000 ^ (g % 9)",
    "not a number among prices": "CASE WHEN g % 401 = 7 THEN 'NaN' ELSE g * 0.25 END",
    "infinities among prices": "CASE WHEN g % 300 = 7 THEN 'Infinity' WHEN g % 300 = 9 THEN '-Infinity' ELSE g * 0.25 END",
    "one huge value": "CASE WHEN g = 1500 THEN 10::numeric ^ 100000 ELSE g END",
    "one long fraction": "CASE WHEN g = 1500 THEN ('0.' || repeat('7', 900))::numeric ELSE g * 1.5 END",
}


@pytest.mark.parametrize("series", NUMERIC_SERIES)
def test_numerics_keep_value_and_scale(twins: Twins, series: str) -> None:
    twins.execute("CREATE TABLE t (id integer, v numeric, w numeric(40, 8))")
    expression = NUMERIC_SERIES[series]
    narrow = "CASE WHEN abs(v) < 1e30 OR v = 'NaN' THEN v END"
    twins.same(
        f"INSERT INTO t SELECT g, v, {narrow} FROM (SELECT g, ({expression})::numeric AS v"
        " FROM generate_series(1, 3000) AS g) AS s"
    )
    twins.same("SELECT id, v, w, scale(v), pg_column_size(v + 0) FROM t ORDER BY id")
    assert twins.copy_out_same("COPY t TO STDOUT (FORMAT binary)")
    twins.same("SELECT count(v), sum(v), avg(v), min(v), max(v), sum(w), avg(w) FROM t")
    for bound in ("0", "750", "9223372036854775807", "'NaN'", "'Infinity'", "1e-20", "10000.0"):
        for operator in ("=", "<", ">=", "<>"):
            twins.same(f"SELECT count(*), sum(id) FROM t WHERE v {operator} {bound}")
            twins.same(f"SELECT count(*), sum(id) FROM t WHERE {bound} {operator} w")


# ---- predicates that look alike but are not ---------------------------------------------------------


def test_predicates_across_types_mean_what_they_mean_on_heap(twins: Twins) -> None:
    """Zone maps must convert, or let the row through; never compare the bits of another type."""
    twins.execute(
        "CREATE TABLE t (id integer, i2 smallint, i4 integer, i8 bigint, f4 real, f8 double precision,"
        " n numeric(10, 2), d date, ts timestamp, tz timestamptz, c char(6), x text, nm name)",
        "INSERT INTO t SELECT g, g % 300, g * 3, g::bigint * 1000000007, g / 10.0, g / 10.0, g / 100.0,"
        " date '2024-01-01' + g % 90, timestamp '2024-01-01' + g * interval '31 min',"
        " timestamptz '2024-01-01 00:00+00' + g * interval '31 min', 'c' || g % 50, 'x' || g % 50, 'n' || g % 50"
        " FROM generate_series(1, 5000) AS g",
    )
    predicates = (
        "i2 = 7::bigint", "i2 < 7.5", "7.5 > i2", "i4 = 30000000000", "i4 < 30000000000", "i4 > -30000000000",
        "i8 = 1000000007::integer", "i8 > 5::smallint", "f4 = 0.1", "f4 = 0.1::real", "f4 < 0.1::float8",
        "f8 = 0.1::real", "f8 >= 499.9", "n = 1.5::float8", "n = 7", "n > 12::bigint",
        "d = '2024-02-01'::timestamp", "d < '2024-02-01 12:00'::timestamp", "d >= '2024-02-01 12:00+00'::timestamptz",
        "ts < '2024-02-01'::date", "ts = '2024-01-01 00:31'::timestamptz", "tz > '2024-02-01'::date",
        "tz <= '2024-03-01 00:00'::timestamp", "c = 'c7'", "c = 'c7   '", "c = 'c7'::text", "c::text = 'c7'",
        "c < 'c7'", "c LIKE 'c7%'", "c IN ('c1', 'c2 ')", "x = 'x7'", "x = 'x7 '", "x = 'x7'::char(6)",
        "nm = 'n7'", "nm < 'n3'::text", "x COLLATE \"C\" < 'x3'", "x < 'x3' COLLATE \"C\"", "x ~ '^x4'", "x >= 'X'",
        "i4 = ANY ('{3,6,NULL}')", "i4 <> ALL ('{3,6}')", "i4 = ANY (NULL::int[])", "i4 = ANY ('{}')",
        "i4 IN (SELECT 3 * i FROM generate_series(1, 5) AS i)", "(i2, i4) < (3, 100)", "(i2, i4) = (3, 9)",
        "i4 = 3 IS TRUE", "NOT i4 > 3", "i2 IS NOT DISTINCT FROM 7", "i4 + 1 = 4", "-i4 > -10", "i4 = i2", "i4 < i8",
        "i4 > 14990 OR i4 < 10", "i4 > 14990 AND f8 < 3", "coalesce(i4, 0) = 9", "NULL::integer = i4", "i4 > NULL",
        "5 < i2", "5 <= i2", "5 > i2", "5 >= i2", "5 = i2", "5 <> i2",
    )  # fmt: skip
    for zone in ("UTC", "Asia/Kolkata", "America/Los_Angeles"):
        twins.execute(f"SET timezone = '{zone}'")
        for predicate in predicates:
            twins.same(f"SELECT count(*), sum(id), min(id), max(id) FROM t WHERE {predicate}")
    twins.execute("RESET timezone")


def test_text_bounds_follow_the_collation(twins: Twins) -> None:
    """Under a linguistic or case-blind collation neither order nor equality is that of the bytes."""
    twins.execute(
        "CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        "CREATE COLLATION german (provider = icu, locale = 'de')",
        'CREATE TABLE t (id integer, c text COLLATE "C", d text, g text COLLATE german, b text COLLATE blind)',
        "INSERT INTO t SELECT n, w, w, w, w FROM (SELECT g AS n, (ARRAY['Apfel', 'apfel', 'Äpfel', 'zebra', 'Zebra',"
        " 'ärger', 'Öl', 'ol', '', 'ß', 'ss', 'a', 'A', 'aa', 'a b', 'a-b', 'ab'])[1 + g * 7 % 17] || repeat('x', g / 900) AS w"
        " FROM generate_series(1, 4000) AS g) AS s",
    )
    for column in "cdgb":
        for word in ("apfel", "Äpfel", "zebra", "a", "A", "", "ss", "z", "Z", "ol"):
            for operator in ("=", "<>", "<", ">", "<=", ">="):
                twins.same(f"SELECT count(*), sum(id) FROM t WHERE {column} {operator} '{word}'")
            twins.same(f"SELECT count(*) FROM t WHERE {column} IN ('{word}', 'APFEL')")
        twins.same(
            f"SELECT lower(min({column})), lower(max({column})), count(DISTINCT {column}) FROM t"
        )
        twins.same(f"SELECT id FROM t ORDER BY {column} DESC, id LIMIT 20")
    for pattern in ("ap%", "%x", "_", "Ä%", ""):
        twins.same(f"SELECT count(*) FROM t WHERE d LIKE '{pattern}'")
        twins.same(f"SELECT count(*) FROM t WHERE c LIKE '{pattern}'")
        twins.same(f"SELECT count(*) FROM t WHERE d ILIKE '{pattern}'")
        twins.same(f"SELECT count(*) FROM t WHERE c ^@ 'ap' AND d NOT LIKE '{pattern}'")


def test_minus_zero_and_nan_are_where_heap_has_them(twins: Twins) -> None:
    twins.execute(
        "CREATE TABLE t (id integer, f double precision, r real)",
        "INSERT INTO t SELECT g, CASE g % 3 WHEN 0 THEN '-0'::float8 WHEN 1 THEN 0 ELSE g END, 0 FROM generate_series(1, 1024) AS g",
        "INSERT INTO t SELECT g, 'NaN', '-0' FROM generate_series(1025, 2048) AS g",
        "INSERT INTO t SELECT g, '-Infinity', 'NaN' FROM generate_series(2049, 3100) AS g",
    )
    for column in "fr":
        for bound in ("'-0'", "0", "'NaN'", "'Infinity'", "'-Infinity'", "5"):
            for operator in ("=", "<>", "<", ">", "<=", ">="):
                twins.same(f"SELECT count(*), sum(id) FROM t WHERE {column} {operator} {bound}")
        twins.same(f"SELECT {column}::text, count(*) FROM t GROUP BY {column}::text ORDER BY 1")
        twins.same(f"SELECT min({column}), max({column}) FROM t")


# ---- shapes of tables -------------------------------------------------------------------------------


def test_columns_that_are_all_null(twins: Twins) -> None:
    twins.execute("CREATE TABLE t (a integer, b text, c numeric, d jsonb, e float8, f uuid)")
    twins.same("INSERT INTO t SELECT FROM generate_series(1, 3000)")
    twins.same("SELECT * FROM t")
    twins.same(
        "SELECT count(*), count(a), count(b), count(c), count(d), min(e), sum(a), max(b) FROM t"
    )
    for column in "abcdef":
        twins.same(f"SELECT count(*) FROM t WHERE {column} IS NULL")
        twins.same(f"SELECT count(*) FROM t WHERE {column} IS NOT NULL")
    twins.same("SELECT count(*) FROM t WHERE a = 1 OR b = ''")


def test_aggregates_over_no_rows_are_null(twins: Twins) -> None:
    """A peer gave 0."""
    twins.execute("CREATE TABLE t (a integer, b bigint, n numeric, f float8, x text)")
    aggregates = "SELECT count(*), count(a), sum(a), sum(b), avg(a), min(b), max(b), sum(n), avg(f), max(x), bool_and(a > 0) FROM t"
    twins.same(aggregates)
    twins.execute("INSERT INTO t SELECT g, g, g, g, g FROM generate_series(1, 2000) AS g")
    twins.same(f"{aggregates} WHERE a > 5000")
    twins.same(f"{aggregates} WHERE a > 5")
    twins.execute("DELETE FROM t")
    twins.same(aggregates)


def test_the_largest_bigint_is_not_the_last(twins: Twins) -> None:
    """A peer's max(bigint) took the last value of each vector."""
    twins.execute("CREATE TABLE t (b bigint, d date, x text)")
    twins.same(
        "INSERT INTO t SELECT CASE WHEN g = 700 THEN 9e18::bigint WHEN g = 1500 THEN -9e18::bigint ELSE g END,"
        " date '2024-01-01' + abs(1500 - g), chr(65 + g * 7 % 26) FROM generate_series(1, 4000) AS g"
    )
    twins.same("SELECT min(b), max(b), min(d), max(d), min(x), max(x) FROM t")
    twins.same("SELECT min(b), max(b) FROM t WHERE b BETWEEN 10 AND 3000")
