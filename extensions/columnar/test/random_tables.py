"""Random tables of the fuzzer of vectors: columns of every type that has kernels, and statements that fill them.

All of a table follows from the seed; a value is SQL of the row's number, as in random_columns.py, so that a
shorter reproducer can leave statements out.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from extensions.columnar.test.random_columns import KINDS, TYPES, Column, Kind, series
from extensions.columnar.test.random_columns import random_column as random_nulls_of
from extensions.columnar.test.random_expressions import INTS, NO_SCALE, Known
from extensions.columnar.test.random_story import PARALLEL
from extensions.columnar.test.twins import Side

ROWS = (0, 1, 600, 1023, 1024, 1025, 2500, 5000, 140_000)
ROW_WEIGHTS = (1, 2, 10, 12, 12, 12, 36, 13, 2)
LARGE = 20_000
OUTER_ROWS = 14

ZONES = ("UTC", "UTC", "America/New_York", "Asia/Kolkata", "Europe/Berlin", "Pacific/Apia")

FAMILIES = {
    "smallint": "int2",
    "integer": "int4",
    "bigint": "int8",
    "real": "float4",
    "double precision": "float8",
    "text": "text",
    'text COLLATE "C"': "textc",
    "varchar(20)": "varchar",
    "char(8)": "bpchar",
    "boolean": "bool",
    "mood": "enum",
    "integer[]": "ints",
    "text[]": "texts",
} | {
    name: name for name in ("oid", "date", "timestamp", "timestamptz", "time", "interval", "uuid", "bytea", "jsonb", "numeric")
}  # fmt: skip

MORE_KINDS = (
    Kind("oid", series(few="(ARRAY[1259, 0, 4294967295])[1 + {h} % 3]", random="{h} * 4"), ()),
    Kind("numeric(18, 4)", series(rates="({h} % 1000000 - 500000) / 10000.0", constant="1", special="CASE {h} % 60 WHEN 0 THEN 'NaN'::numeric ELSE {h} % 900 END"), ()),
    Kind("numeric(30, 6)", series(wide="({h} - 500000000) * 12345678901234.123456", small="g / 8.0"), ()),
    Kind("numeric(38, 10)", series(end="(g % 3 - 1) * (10::numeric ^ 28 - 1)", sequential="g * 1.0000000001"), ()),
    Kind("numeric", series(torture="(ARRAY['0', '0.00', '-0.5', '1e-30', '-1e40', '9223372036854775807', '-9223372036854775808', '170141183460469231731687303715884105728', '99999999.99990000', '1e500', '10000'])[1 + {h} % 11]::numeric", cents="({h} % 900)::numeric(9, 2)"), ()),
    Kind("numeric(18, 0)", series(wide="{h} * 900000000 - 450000000000000000", runs="g / 50"), ()),
    Kind("double precision", series(quarters="({h} % 4000) / 4.0 - 300", zeros="CASE {h} % 2 WHEN 0 THEN '-0' ELSE '0' END::float8", runs="(g / 64) / 2.0"), ()),
    Kind("real", series(special="CASE {h} % 9 WHEN 0 THEN 'NaN' WHEN 1 THEN 'Infinity' WHEN 2 THEN '-0' ELSE '1.1' END::float4", thirds="({h} % 1000) / 3.0"), ()),
    Kind('text COLLATE "und-x-icu"', series(few="(ARRAY['b', 'B', 'ä', 'a-b', 'ab'])[1 + {h} % 5]", words="chr((97 + {h} % 26)::integer) || chr((65 + g % 26)::integer) || g % 9"), ()),
    Kind("text", series(blanks="(ARRAY['a', 'a ', ' a', 'a  ', ''])[1 + {h} % 5]", mixed="CASE WHEN {h} % 3 = 0 THEN md5(g::text) ELSE 'often' END"), ()),
    Kind("char(8)", series(few="(ARRAY['a', 'b ', '', ' a', 'ä'])[1 + {h} % 5]"), ()),
    Kind("interval", series(alike="(ARRAY['1 mon', '30 days', '720 h', '-1 mon 30 days', '0'])[1 + {h} % 5]::interval", mixed="({h} % 40) * interval '1 day 2 h' + (g % 5) * interval '1 mon'"), ()),
    Kind("time", series(random="time '00:00' + ({h} % 86400) * interval '1 s'", end="CASE {h} % 3 WHEN 0 THEN '24:00' ELSE '00:00' END::time"), ()),
    Kind("timestamptz", series(edges="CASE {h} % 20 WHEN 0 THEN 'infinity' WHEN 1 THEN '-infinity' WHEN 2 THEN '4000-01-01 BC' ELSE timestamptz '2020-03-01 00:30+00' + g * interval '1 h' END", days="timestamptz '1995-06-17 00:00+00' + (g % 900) * interval '1 day'"), ()),
    Kind("timestamp", series(edges="CASE {h} % 20 WHEN 0 THEN 'infinity' WHEN 1 THEN '-infinity' ELSE timestamp '1899-12-31 23:59:59.9' + {h} * interval '3.7 s' END", days="timestamp '1995-06-17' + (g % 900) * interval '1 day'"), ()),
    Kind("date", series(edges="CASE {h} % 30 WHEN 0 THEN 'infinity' WHEN 1 THEN '-infinity' WHEN 2 THEN '4714-11-24 BC' ELSE date '1890-01-01' + ({h} % 80000)::integer END"), ()),
    Kind("integer[]", series(few="(ARRAY['{1,2}', '{}', '{NULL,3}'])[1 + {h} % 3]::integer[]"), ()),
)  # fmt: skip

COLUMN_KINDS: dict[str, list[Kind]] = {}
for _kind in (*KINDS, *MORE_KINDS):
    _family = FAMILIES.get(_kind.type) or (
        "numeric" if _kind.type.startswith("numeric") else "texti" if "icu" in _kind.type else None
    )
    if _family:
        COLUMN_KINDS.setdefault(_family, []).append(_kind)

COMMON = ("int4", "int8", "numeric", "text", "date")
TAME = ("quarters", "constant", "runs", "zeros")


def make_column(rng: random.Random, name: str, family: str) -> Column:
    kind = rng.choice(COLUMN_KINDS[family])
    nulls = random_nulls_of(rng, name).nulls
    return Column(name, kind, rng.choice(kind.series), nulls, rng.randrange(1000))


def family_of(column: Column) -> str:
    return next(family for family, kinds in COLUMN_KINDS.items() if column.kind in kinds)


@dataclass
class World:
    """What a seed decides beside its queries: settings and the statements that make the table t."""

    settings: list[str]
    own_settings: list[str]  # of the columnar side
    columns: list[Column]
    steps: list[tuple[str, str]]  # what sort, statement
    rows: int

    def script(self) -> str:
        lines = [*self.settings, *(f"{s} -- columnar only" for s in self.own_settings)]
        return ";\n".join([*lines, TYPES.strip().rstrip(";"), *(sql for _, sql in self.steps), ""])


def make_settings(rng: random.Random) -> tuple[list[str], list[str]]:
    both, own = [f"SET TimeZone = '{rng.choice(ZONES)}'"], []
    if rng.random() < 0.25:
        both.append(PARALLEL)
    if rng.random() < 0.6:  # what is computed row by row seems dear, so that less of it is
        own.append("SET cpu_operator_cost = 0.1")
    if rng.random() < 0.25:
        both.append("SET work_mem = '64kB'")
    if rng.random() < 0.2:
        both.append("SET enable_hashagg = off")
    if rng.random() < 0.1:
        both.append("SET enable_sort = off")
    if rng.random() < 0.12:
        own.append("SET strata_columnar.enable_vector = off")
    if rng.random() < 0.2:
        own.append("SET strata_columnar.enable_pruning = off")
    own.append(
        f"SET strata_columnar.enable_decorrelation = {rng.choice(('always', 'always', 'on', 'off'))}"
    )
    if rng.random() < 0.5:
        own.append(f"SET strata_columnar.row_group_rows = {rng.choice((1024, 1025, 2048, 3000))}")
    if rng.random() < 0.4:
        own.append(
            f"SET strata_columnar.compression = {rng.choice(('cold', 'none', 'lz4', 'zstd'))}"
        )
    return both, own


def make_world(rng: random.Random) -> World:
    settings, own_settings = make_settings(rng)
    rows = rng.choices(ROWS, ROW_WEIGHTS)[0]
    families = rng.sample(list(COLUMN_KINDS), rng.choice((3, 6, 9, 12)))
    families += rng.choices(COMMON, k=3)
    columns = [make_column(rng, f"c{n}", family) for n, family in enumerate(families, 1)]
    later = rng.choice((0, 0, 1, 2)) if rows < LARGE else 0
    steps = list(make_table(rng, columns[: len(columns) - later], rows))
    steps += fill_table(rng, columns, len(columns) - later, rows)
    if rows > 1 and rng.random() < 0.35:
        column = rng.choice(columns)
        salt = rng.randrange(1, 50)
        value = f"(SELECT {column.value(salt)} FROM (SELECT t.id::integer AS g) AS s)"
        steps.append(
            (
                "update",
                f"UPDATE t SET {column.name} = {value} WHERE id % {rng.choice((7, 90, 700))} = 3",
            )
        )
    if rows > 1 and rng.random() < 0.45:
        condition = rng.choice(
            (
                "id % 37 = 5",
                "id % 2 = 0",
                "id BETWEEN 1000 AND 1100",
                "id < 500",
                "id % 1024 <> 7",
                "id % 997 = 1",
            )
        )
        steps.append(("delete", f"DELETE FROM t WHERE {condition}"))
    steps.append(
        ("outer", f"CREATE TABLE u AS SELECT * FROM t ORDER BY id % 10, id LIMIT {OUTER_ROWS}")
    )
    if rng.random() < 0.6:
        steps.append(("analyze", "ANALYZE"))
    return World(settings, own_settings, columns, steps, rows)


def make_table(rng: random.Random, columns: list[Column], rows: int) -> Iterator[tuple[str, str]]:
    """Sometimes partitioned, with columns in another order in one partition."""
    definitions = ["id bigint", *(f"{c.name} {c.kind.type}" for c in columns)]
    plain = "WITH (autovacuum_enabled = off)"
    if rng.random() > 0.12:
        yield "create", f"CREATE TABLE t ({', '.join(definitions)}) {plain}"
        return
    border = rng.randrange(rows + 1)
    yield "create", f"CREATE TABLE t ({', '.join(definitions)}) PARTITION BY RANGE (id)"
    yield (
        "create",
        f"CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (MINVALUE) TO ({border}) {plain}",
    )
    rng.shuffle(definitions)
    yield "create", f"CREATE TABLE t2 ({', '.join(['gone text', *definitions])}) {plain}"
    yield "create", "ALTER TABLE t2 DROP COLUMN gone"
    yield "create", f"ALTER TABLE t ATTACH PARTITION t2 FOR VALUES FROM ({border}) TO (MAXVALUE)"


def fill_table(
    rng: random.Random, columns: list[Column], first: int, rows: int
) -> Iterator[tuple[str, str]]:
    """In up to three parts; before the last of them come the columns after the first ones."""
    parts = rng.choice((1, 1, 2, 3)) if rows > 100 else 1
    bounds = [0, *sorted(rng.sample(range(1, max(rows, 2)), parts - 1)), rows]
    for part, (low, high) in enumerate(itertools.pairwise(bounds), 1):
        filled = columns if part == parts else columns[:first]
        for column in filled[first:]:
            default = ""
            if column.kind.edges and rng.random() < 0.6:
                default = f" DEFAULT {rng.choice(column.kind.edges)}"
            yield "add", f"ALTER TABLE t ADD COLUMN {column.name} {column.kind.type}{default}"
        names = ", ".join(["id", *(c.name for c in filled)])
        values = ", ".join(["g", *(c.value() for c in filled)])
        if rows:
            series_of_g = f"generate_series({low + 1}, {high}) AS g"
            yield "insert", f"INSERT INTO t ({names}) SELECT {values} FROM {series_of_g}"


# ---- what the table holds --------------------------------------------------------------------------


def know_columns(side: Side, columns: list[Column], salt: int) -> list[Known]:
    """The columns with some of their values, and bounds of them, asked from the table."""
    pieces = []
    for column in columns:
        name = column.name
        short = f"{name} IS NOT NULL AND length({name}::text) < 60"
        order = f"hashint8extended(id, {salt}), id LIMIT 8"
        most = f"(SELECT max(abs({name}::numeric)) FROM t)" if family_of(column) in INTS else "NULL"
        pieces.append(
            f"ARRAY(SELECT quote_literal({name}::text) FROM t WHERE {short} ORDER BY {order}), {most}"
        )
    (row,) = side.execute(f"SELECT {', '.join(pieces)}")
    known = []
    for number, column in enumerate(columns):
        family, type_ = family_of(column), column.kind.type
        values, most = row[2 * number], row[2 * number + 1]
        bits = int(most or 0).bit_length()
        scale = int(type_.rstrip(")").split(",")[1]) if "," in type_ else NO_SCALE
        tame = (family in ("int2", "int4") and bits <= 12) or (
            family == "float8" and column.series.name in TAME
        )
        known.append(Known(column.name, family, values, bits, scale, tame))
    return known
