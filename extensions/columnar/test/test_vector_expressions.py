"""Expressions evaluated by batch give what core evaluates row by row: values, types, scales, errors.

Each family of kernels gets tables of sizes around the block, with NULLs, the edges of its types,
columns that are dictionary-coded, constant or neither, and is asked twice: for values (an
expression as a key of GROUP BY) and for truth (a condition in WHERE, FILTER and as a key).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from extensions.columnar.test.twins import Twins, open_twins
from tests.cluster import Node

COLUMNS = """id integer, i2 smallint, i4 integer, i8 bigint, runs integer, small integer,
    f4 real, f8 double precision, n numeric(12, 2), n4 numeric(10, 4), free numeric, wide numeric(38, 5),
    t text, word text, c character(10), code character(3), b bytea, u uuid,
    d date, d2 date, ts timestamp, tz timestamptz, bool boolean, o oid, i interval"""

# h(g, k): a number below 1000003 that looks random; {edges}: are the edges of the types among the values?
VALUES = """SELECT g,
    CASE h(g, 1) % 11 WHEN 0 THEN NULL ELSE CASE WHEN {edges} AND h(g, 1) % 97 = 0 THEN 32767 WHEN {edges} AND h(g, 1) % 89 = 0 THEN -32768 ELSE h(g, 1) % 200 - 100 END END,
    CASE h(g, 2) % 13 WHEN 0 THEN NULL ELSE CASE WHEN {edges} AND h(g, 2) % 97 = 0 THEN 2147483647 WHEN {edges} AND h(g, 2) % 89 = 0 THEN -2147483648 ELSE h(g, 2) % 2000 - 1000 END END,
    CASE h(g, 3) % 13 WHEN 0 THEN NULL ELSE CASE WHEN {edges} AND h(g, 3) % 97 = 0 THEN 9223372036854775807 WHEN {edges} AND h(g, 3) % 89 = 0 THEN -9223372036854775808 ELSE h(g, 3) - 1000 END END,
    g / 700, CASE WHEN h(g, 4) % 400 = 0 THEN 0 ELSE h(g, 4) % 50 + 1 END,
    CASE h(g, 5) % 23 WHEN 0 THEN NULL WHEN 1 THEN 'NaN' WHEN 2 THEN 'Infinity' WHEN 3 THEN '-Infinity' WHEN 4 THEN -0.0 ELSE (h(g, 5) % 1000) / 7.0 END::real,
    CASE h(g, 6) % 23 WHEN 0 THEN NULL WHEN 1 THEN 'NaN' WHEN 2 THEN 'Infinity' WHEN 3 THEN '-Infinity' WHEN 4 THEN -0.0 ELSE (h(g, 6) % 1000) / 7.0 END::float8,
    CASE WHEN h(g, 7) % 17 = 0 THEN NULL WHEN {edges} AND h(g, 7) % 61 = 0 THEN 'NaN' ELSE (h(g, 7) % 100000 - 50000) / 100.0 END,
    CASE h(g, 8) % 17 WHEN 0 THEN NULL ELSE (h(g, 8) % 100000 - 50000) / 10000.0 END,
    CASE WHEN h(g, 9) % 17 = 0 THEN NULL WHEN {edges} AND h(g, 9) % 61 = 0 THEN 'NaN' WHEN {edges} AND h(g, 9) % 67 = 0 THEN 'Infinity'
        WHEN {edges} AND h(g, 9) % 71 = 0 THEN 1e30 WHEN {edges} AND h(g, 9) % 73 = 0 THEN 123456789012345678901234567890123456789012345.5
        WHEN {edges} AND h(g, 9) % 3 = 0 THEN round((h(g, 9) % 1000) / 10.0, 1) ELSE round((h(g, 9) % 1000) / 7.0, 3) END,
    CASE h(g, 10) % 17 WHEN 0 THEN NULL ELSE (h(g, 10) - 500000) * 12345678901234567890123.12345 END,
    CASE h(g, 11) % 19 WHEN 0 THEN NULL ELSE repeat('é', h(g, 11)::integer % 3) || 'text ' || h(g, 11) % 5000 || CASE h(g, 11) % 5 WHEN 0 THEN ' special requests' ELSE '' END END,
    CASE h(g, 12) % 19 WHEN 0 THEN NULL ELSE (ARRAY['MAIL', 'SHIP', 'AIR', 'RAIL', '', 'TRUCK', 'REG AIR', '12-345'])[1 + h(g, 12) % 8] END,
    CASE h(g, 13) % 19 WHEN 0 THEN NULL ELSE 'ch' || h(g, 13) % 3000 END,
    CASE h(g, 14) % 19 WHEN 0 THEN NULL ELSE (ARRAY['a', 'b ', 'ab', '', ' a'])[1 + h(g, 14) % 5] END,
    CASE h(g, 15) % 19 WHEN 0 THEN NULL ELSE decode(md5((h(g, 15) % 900)::text), 'hex') END,
    CASE h(g, 16) % 19 WHEN 0 THEN NULL ELSE md5((h(g, 16) % 900)::text)::uuid END,
    CASE WHEN h(g, 17) % 19 = 0 THEN NULL WHEN {edges} AND h(g, 17) % 53 = 0 THEN 'infinity' WHEN {edges} AND h(g, 17) % 59 = 0 THEN '-infinity'
        WHEN {edges} AND h(g, 17) % 47 = 0 THEN '5874897-12-31' WHEN {edges} AND h(g, 17) % 43 = 0 THEN '4714-11-24 BC' ELSE date '1890-01-01' + (h(g, 17) % 80000)::integer END,
    date '1992-01-01' + (h(g, 18) % 2500)::integer,
    CASE WHEN h(g, 19) % 19 = 0 THEN NULL WHEN {edges} AND h(g, 19) % 53 = 0 THEN 'infinity' WHEN {edges} AND h(g, 19) % 43 = 0 THEN '4714-11-24 BC'
        WHEN h(g, 19) % 4 = 0 THEN (date '1890-01-01' + (h(g, 17) % 80000)::integer)::timestamp ELSE timestamp '1890-01-01' + h(g, 19) * interval '1236.7 s' END,
    CASE WHEN h(g, 20) % 19 = 0 THEN NULL WHEN {edges} AND h(g, 20) % 53 = 0 THEN 'infinity' WHEN h(g, 20) % 5 = 0 THEN timestamptz '1995-06-17 00:00+00' + h(g, 20) % 2000 * interval '1 day'
        ELSE timestamptz '1990-01-01 00:00+00' + h(g, 20) * interval '777.7 s' END,
    CASE h(g, 21) % 7 WHEN 0 THEN NULL ELSE h(g, 21) % 2 = 0 END,
    (h(g, 22) * 4000)::oid,
    CASE h(g, 23) % 19 WHEN 0 THEN NULL ELSE h(g, 23) % 100 * interval '1 hour' + h(g, 23) % 7 * interval '1 mon' END
FROM generate_series(1, {rows}) AS g"""

# table: rows, edges
TABLES = {
    "tiny": (5, False),
    "less": (1023, True),
    "block": (1024, False),
    "more": (1025, False),
    "many": (3000, True),
}

INTEGERS = """i2 + i2; i2 * i2; i4 + 1; i4 - i2; i4 * 2; small * i2; -i4; abs(i4); i8 + i4; i8 * 3; runs * runs; i2 / small; i4 / small
i8 % small; i4 / 7; i4 % 7; i4::bigint; i4::smallint; i8::integer; runs::smallint; bool::integer; i4::boolean; i4::oid::bigint; o::bigint
(i2 + 1) * (i2 + 1) + (i2 + 1); i4 # 5"""
NUMERICS = """i4::numeric; i8::numeric * n; n + n4; n - n4; n * n4; n * (1 - n4) * (1 + n4); n * n4 * n4 * n4; wide * wide; wide + n
wide * n * n4; free + n; free * n; free - free; free * free; -n; -free; abs(free); n::numeric(14, 4); n::numeric(12, 1); n::numeric(5, 2)
free::numeric(20, 3); round(n, 1); round(n, 4); round(free); n::integer; n4::bigint; n::float8; free::float8; n / 2; n / small; n % 3"""
FLOATS = """f8 + f8; f8 + 1; f8 * 2; f8 - f4; f4 + f4; f4 * f4; f4 * f8; f8 / 2; small::float8 / 3; (small - 1)::float8 / small; 1 / f8
f8 * 1e300; f4 * 1e30::real; f4 / 1e30::real; -f8; abs(f8); f8::real; f4::float8; i8::float8; i8::real"""
DATES = """d + 1; d - 1; d - d2; d2 - i2; d::timestamp; d2::timestamp; d2::timestamptz; ts::date; tz::date; tz::timestamp; ts + interval '1 day'
ts - interval '3 hours 2 days'; ts + interval '1 month'; tz + interval '1 day'; d2 - interval '90 days'; d + interval '1 day'; ts + i
extract(year FROM d); extract(year FROM d2); extract(month FROM d2); extract(quarter FROM d2); extract(day FROM d2); extract(week FROM d2)
extract(dow FROM d2); extract(isodow FROM d2); extract(doy FROM d2); extract(isoyear FROM d2); extract(century FROM d); extract(epoch FROM d2)
extract(hour FROM ts); extract(second FROM ts); extract(milliseconds FROM ts); extract(epoch FROM ts); extract(decade FROM ts)
extract(year FROM tz); extract(hour FROM tz); date_part('year', ts); date_part('second', ts); date_trunc('year', ts); date_trunc('quarter', ts)
date_trunc('week', ts); date_trunc('day', ts); date_trunc('hour', ts); date_trunc('century', ts); date_trunc('month', tz); date_trunc('month', d2)"""
TEXTS = """substring(t FROM 1 FOR 2); substring(t FROM 2); substring(t FROM -1 FOR 4); substring(t, small, 3); substring(word FROM 1 FOR 2)
substring(t, 1, i2); left(t, 3); left(t, -3); left(word, 1); left(t, i2 / 30); length(t); length(word); length(c); octet_length(t); octet_length(c)
length(b); c::text; code::text; upper(word); t || 'x'; word || 'x'; substring(CASE WHEN bool THEN t ELSE word END FROM 2 FOR 3)"""
CHOICES = """CASE WHEN i4 > 0 THEN i4 ELSE -1 END; CASE WHEN i4 > 0 THEN n * n4 ELSE 0 END; CASE WHEN i4 > 0 THEN 0 WHEN i4 < -500 THEN n4 ELSE free END
CASE word WHEN 'MAIL' THEN 1 WHEN 'SHIP' THEN 2 ELSE 0 END; CASE i2 WHEN 1 THEN 'one' WHEN 2 THEN t ELSE word END
CASE WHEN small <> 0 THEN i4 / small ELSE -1 END; CASE WHEN small = 0 THEN NULL ELSE 1 / small END; CASE WHEN bool THEN f8 ELSE f4 END
CASE WHEN bool THEN c ELSE 'zz' END; CASE WHEN bool THEN i4 > 0 ELSE i8 > 5 END; COALESCE(i2, i4, 7); COALESCE(free, n, 0.5); COALESCE(t, word, 'none')
COALESCE(word, 'none'); COALESCE(small / nullif(small, 0), 5); NULLIF(i4, 5); NULLIF(word, 'MAIL'); NULLIF(n, 0); NULLIF(f8, 'NaN')
GREATEST(i4, i2); LEAST(i4, i8); GREATEST(f8, f4); LEAST(f8, 1.5); GREATEST(d, d2); GREATEST(n, n4); LEAST(t, word)"""
# numerics that show different numbers of digits
SCALES = """CASE WHEN i4 > 0 THEN n * (1 - n4) ELSE 0 END; CASE WHEN i4 > 5000 THEN n ELSE 0 END; CASE WHEN i4 <= 5000 THEN n * n4 ELSE 0 END
CASE WHEN i4 > 0 THEN n ELSE n * n4 END; CASE WHEN i4 > 0 THEN n * n4 ELSE n END; CASE WHEN i4 > 0 THEN n WHEN i4 > -500 THEN n4 WHEN bool THEN 0 ELSE n * n4 END
CASE WHEN i4 > 0 THEN n ELSE 0.00001 END; CASE WHEN i4 > 0 THEN 1 WHEN i4 > -500 THEN 2.50 WHEN bool THEN 0.125 END; CASE WHEN bool THEN 0 ELSE wide END
CASE WHEN word = 'MAIL' THEN 1.50 ELSE 0 END; CASE word WHEN 'MAIL' THEN 1.5 WHEN 'SHIP' THEN 0.125 WHEN 'AIR' THEN 2 ELSE 0 END; CASE WHEN word IS NULL THEN 0.0 ELSE 1 END
CASE WHEN i4 > 0 THEN CASE WHEN bool THEN n4 ELSE 0 END ELSE 0.0 END; CASE WHEN i4 > 0 THEN CASE WHEN bool THEN n * n4 ELSE 0 END ELSE n END
CASE WHEN bool THEN n ELSE 0 END + n4; CASE WHEN bool THEN n4 ELSE 0 END + n; n - CASE WHEN bool THEN n4 ELSE 0 END; CASE WHEN bool THEN n4 ELSE 0 END * n
CASE WHEN bool THEN n4 ELSE 0 END - CASE WHEN i4 > 0 THEN n4 ELSE 0 END; CASE WHEN bool THEN n ELSE 0 END * CASE WHEN i4 > 0 THEN n4 ELSE 0.0 END
CASE WHEN bool THEN n4 ELSE 0 END * (CASE WHEN i4 > 0 THEN n * n ELSE 1 END); CASE WHEN bool THEN wide ELSE 0 END * n; CASE WHEN bool THEN wide * n ELSE 7 END + n
-CASE WHEN bool THEN n4 ELSE -1 END; abs(CASE WHEN bool THEN n4 ELSE -1.0 END); NULLIF(CASE WHEN bool THEN n4 ELSE 0 END, 1); NULLIF(CASE WHEN bool THEN n4 ELSE 0 END, 0.0)
COALESCE(n * n4, 0); COALESCE(n, n4, 0); COALESCE(CASE WHEN bool THEN n4 ELSE 0 END, n); COALESCE(CASE WHEN bool THEN n4 END, 0.0) * 2; round(CASE WHEN bool THEN n4 ELSE 7 END, 2)
(CASE WHEN bool THEN n4 ELSE 7 END)::numeric(20, 1); (CASE WHEN bool THEN n4 ELSE 7 END)::integer; (CASE WHEN bool THEN n4 ELSE 7 END)::float8
CASE WHEN bool THEN 1e18 ELSE n4 END; CASE WHEN bool THEN n4 * n4 * n4 ELSE 10000000000 END; CASE WHEN bool THEN free ELSE 0 END; CASE WHEN bool THEN n ELSE 'NaN' END"""

COMPARISONS = """i4 = 5; i4 <> 5; i4 <= -1000; i4 >= 2147483647; i4 < -2147483648; i2 < i4; i8 > i4; i8 >= 9223372036854775807; 5 < i4; i4 = 5.5
runs = 1; o > 4000000000; bool; NOT bool; bool < (i4 > 0); f8 = f8; f8 < f4; f8 = 'NaN'; f8 < 'NaN'; f8 = 0; f4 < 'Infinity'; n = n4; n < n4; n >= 100.5
n < 0.001; n = 10.10; n < 1e30; n = 'NaN'; n > '-Infinity'; free < free * 2; free > n; free >= 1e30; wide < n; wide > 1e28; n BETWEEN 5 AND 7
t = 'text 77'; t < 'text 3'; t >= 'text 3' COLLATE "C"; t = ''; word = ''; 'MAIL' = word; word <> 'MAIL'; word >= 'SHIP' COLLATE "C"; t = word
c = 'ch77'; c = 'ch77  '; c = 'ch77'::text; code = 'a'; code = ' a'; code < c; b = decode(md5('17'), 'hex'); b < decode(md5('17'), 'hex'); u = md5('17')::uuid; u < md5('17')::uuid
d < '1995-06-17'; d = 'infinity'; d < d2; d = ts; d2 < ts; d < timestamp '1995-06-17 12:00'; d = timestamp '1995-06-17 12:00'; d <= timestamp '1995-06-17 00:00'
d >= timestamp '-infinity'; d = timestamp 'infinity'; ts >= date '1995-06-17'; tz >= date '1995-06-17'; tz < timestamp '1995-06-17 00:00'; tz >= d2; tz < ts
i4 IS DISTINCT FROM i2; word IS DISTINCT FROM 'MAIL'; n IS NOT DISTINCT FROM n4; word IS NOT DISTINCT FROM NULL
CASE WHEN bool THEN n4 ELSE 0 END = 0.00; CASE WHEN bool THEN n ELSE 7 END < n4; CASE WHEN bool THEN n4 ELSE 7 END IN (7.0, 0.5); 7 >= CASE WHEN bool THEN n4 ELSE 7 END"""
LOGIC = """i4 > 0 AND i8 > 0; i4 > 0 OR i8 > 0; NOT (i4 > 0 AND i8 > 0); i4 > 0 AND t LIKE '%1%' AND n > 0; i4 > 0 OR (bool AND d2 > '1995-01-01'); i4 > 0 AND NULL
small <> 0 AND 10 / small > 1; small = 0 OR 10 / small > 1; NOT (small = 0 OR 10 / small > 1); CASE WHEN small = 0 THEN false ELSE 10 / small > 1 END
bool IS TRUE; bool IS NOT FALSE; (i4 > 0) IS UNKNOWN; word IS NULL; (i4 > 0) IS NOT NULL; i4 + 1 > 0; n * n4 > 10; length(t) > 10; upper(word) = 'MAIL'
extract(year FROM d2) = 1995; substring(word FROM 1 FOR 2) IN ('12', 'MA')"""
LISTS = """i4 IN (1, 2, 3); i4 NOT IN (1, 2, 3); i4 IN (1, 2, NULL); i4 NOT IN (1, NULL); i4 IN (1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, -7)
i4 NOT IN (1, 5, 9, 13, 17, 21, 25, 29, 33, 2147483647, -2147483648); i8 = ANY (ARRAY[1, 2, 3]); n IN (1.5, 2.50, -3.25, 'NaN'); n NOT IN (1.5, 0.001)
free IN (1.5, 142.857, 0.1430, 'NaN', 1e30); wide IN (1, 2); word IN ('MAIL', 'SHIP'); word NOT IN ('MAIL', NULL); t IN ('text 1', 'text 77', 'text 400')
t = ANY (string_to_array('text 1,text 2', ',')); t = ANY (NULL::text[]); t <> ALL (ARRAY[]::text[]); code IN ('a', 'b', 'x '); u IN (md5('1')::uuid, md5('2')::uuid); d IN ('infinity', '1995-02-03')"""
PATTERNS = r"""t LIKE 'text%'; t LIKE '%special%requests%'; t NOT LIKE '%special%requests%'; t LIKE 'é%'; t LIKE '_text%'; t LIKE '%é_ext%'; t LIKE '%'; t LIKE ''
t LIKE '_%'; t LIKE '%_'; t LIKE 'text _'; t LIKE '%12'; t LIKE '%1_'; t LIKE 'éé%7%'; t LIKE '%1%2%3'; t LIKE 'te\xt%'; t LIKE '%\%'; t ILIKE 'TEXT 1%'; t LIKE word
word LIKE '%AI%'; word LIKE 'M_IL'; c LIKE 'ch7%'; c LIKE 'ch7_ %'; c LIKE '%7'; starts_with(t, 'text 1'); t ^@ 'éé'; t LIKE 'text 1%' AND t LIKE '%special%'"""

VALUE_FAMILIES = {
    "integers": INTEGERS,
    "numerics": NUMERICS,
    "floats": FLOATS,
    "dates": DATES,
    "texts": TEXTS,
    "choices": CHOICES,
    "scales": SCALES,
}
CONDITION_FAMILIES = {
    "comparisons": COMPARISONS,
    "logic": LOGIC,
    "lists": LISTS,
    "patterns": PATTERNS,
}


# What runs through the ExprState; order of text does under collations other than C.
WITHOUT_KERNEL = {
    "i4 # 5",
    "n / 2",
    "n / small",
    "n % 3",
    "extract(isoyear FROM d2)",
    "date_part('second', ts)",
    "upper(word)",
    "t || 'x'",
    "word || 'x'",
    "GREATEST(n, n4)",
    "LEAST(t, word)",
    "t < 'text 3'",
    "code < c",
    "t ILIKE 'TEXT 1%'",
    "t LIKE word",
    "upper(word) = 'MAIL'",
}


def take_apart(family: str) -> list[str]:
    return [one for line in family.splitlines() for one in line.split("; ") if one]


@pytest.fixture(scope="module")
def tables(node: Node) -> Iterator[Twins]:
    with open_twins(node, "test_vector_expressions") as made:
        for side in made.sides:
            side.execute(
                "CREATE FUNCTION h(g bigint, k integer) RETURNS bigint LANGUAGE sql IMMUTABLE"
                " AS $$ SELECT abs(hashint8extended(g * 100 + k, 42)) % 1000003 $$"
            )
        for name, (rows, edges) in TABLES.items():
            made.execute(
                f"CREATE TABLE {name} ({COLUMNS})",
                f"INSERT INTO {name} {VALUES.format(rows=rows, edges=str(edges).lower())}",
            )
        # deleted rows leave selections that are not dense
        made.execute("DELETE FROM many WHERE id % 37 = 5", "ANALYZE")
        for side in made.sides:
            side.execute("SET max_parallel_workers_per_gather = 0")
        yield made


def values_of(expression: str, table: str, where: str = "") -> str:
    return (
        f"SELECT id, k::text FROM (SELECT id, {expression} AS k, count(*) FROM {table} {where}"
        " GROUP BY 1, 2) AS x"
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("family", VALUE_FAMILIES)
def test_values_are_those_of_core(tables: Twins, family: str, table: str) -> None:
    for expression in take_apart(VALUE_FAMILIES[family]):
        tables.same(values_of(expression, table))
        tables.same(values_of(expression, table, "WHERE id % 97 = 3"))


@pytest.mark.sample(2)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("family", CONDITION_FAMILIES)
def test_conditions_are_those_of_core(tables: Twins, family: str, table: str) -> None:
    for condition in take_apart(CONDITION_FAMILIES[family]):
        tables.same(f"SELECT id FROM {table} WHERE {condition}")
        tables.same(f"SELECT id FROM {table} WHERE NOT ({condition}) AND id % 7 > 0")
        tables.same(values_of(f"({condition})", table))
        tables.same(
            f"SELECT count(*) FILTER (WHERE {condition}), sum(id) FILTER (WHERE ({condition}) OR i4 = 5)"
            f" FROM {table} WHERE id % 50 = 2"
        )


@pytest.mark.parametrize("family", VALUE_FAMILIES | CONDITION_FAMILIES)
def test_kernels_are_used(tables: Twins, family: str) -> None:
    for expression in take_apart((VALUE_FAMILIES | CONDITION_FAMILIES)[family]):
        plan = tables.plan(f"SELECT count({expression}) FROM many")
        assert "ColumnarAggregate" in plan, expression
        if expression not in WITHOUT_KERNEL:
            assert "Evaluated by Row" not in plan, f"{expression}\n{plan}"


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_local_time_is_that_of_the_session(tables: Twins, zone: str) -> None:
    for side in tables.sides:
        side.execute(f"SET timezone = '{zone}'")
    try:
        for expression in (one for one in take_apart(DATES) if "tz" in one or "timestamptz" in one):
            tables.same(values_of(expression, "many"))
        for condition in (one for one in take_apart(COMPARISONS) if "tz" in one):
            tables.same(f"SELECT id FROM many WHERE {condition}")
    finally:
        for side in tables.sides:
            side.execute("RESET timezone")


def test_parameters_are_read_again_by_every_rescan(tables: Twins) -> None:
    rows = "(VALUES (1, 'MAIL', '%AI%', 1.50), (5, 'SHIP', '%1%', 2.5), (-9, NULL, NULL, 'NaN'), (NULL, '', 'x%', NULL)) AS p (v, s, l, m)"
    for condition in (
        "i4 < p.v",
        "word = p.s",
        "word LIKE p.l",
        "t LIKE p.l",
        "n > p.m",
        "n IN (p.m, 2)",
        "word IN (p.s, 'AIR')",
        "CASE WHEN i2 > p.v THEN word ELSE p.s END = 'MAIL'",
        "i4 = ANY (ARRAY[p.v, p.v + 1, 7])",
        "p.v > 0 AND word = p.s",
    ):
        tables.same(
            f"SELECT v, (SELECT count(*) FROM many WHERE {condition}),"
            f" (SELECT sum(id) FILTER (WHERE {condition}) FROM many) FROM {rows}"
        )


def test_dictionaries_of_one_partition_are_not_taken_for_those_of_another(twins: Twins) -> None:
    twins.execute(
        "CREATE TABLE p (a integer, k integer, s text, n numeric) PARTITION BY RANGE (k)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE p2 (s text, gone integer, n numeric, k integer, a integer)",
        "ALTER TABLE p2 DROP COLUMN gone",
        "ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20)",
        "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (20) TO (30)",
        "INSERT INTO p SELECT g, g % 30, (ARRAY['aa', 'bb', 'cc', 'dd', 'ee'])[1 + (g + g % 30 / 10) % 5], g / 10.0"
        " FROM generate_series(1, 20000) AS g",
    )
    for condition in (
        "s = 'aa'",
        "substring(s FROM 1 FOR 1) IN ('a', 'b')",
        "upper(s) = 'BB'",
        "n * 2 > a",
    ):
        twins.same(f"SELECT count(*), sum(a), sum(n) FROM p WHERE {condition}")
        twins.same(
            f"SELECT {condition} AS k, s || 'x' AS z, count(*), sum(a * 2), sum(n * n) FROM p GROUP BY 1, 2"
        )


def test_deep_expressions_need_little_stack(twins: Twins) -> None:
    twins.execute(
        "CREATE TABLE t (a integer)", "INSERT INTO t SELECT g FROM generate_series(1, 3000) AS g"
    )
    twins.same(f"SELECT sum({' + '.join(['a::bigint'] * 1500)}) FROM t")
    twins.same(f"SELECT count(*) FROM t WHERE {' OR '.join(f'a = {n}' for n in range(1500))}")
    cases = "".join(f"CASE WHEN a > {n} THEN {n} ELSE " for n in range(150))
    twins.same(f"SELECT sum({cases} 1 {'END ' * 150}) FROM t")
