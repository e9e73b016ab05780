"""Columns of the differential generator: types, and series of values that bring out each encoding.

A series is SQL of the integer g (a row's number) and {h}, a number below 2^30 that depends on g as
if by chance.  A `vague` series has equal values with different text (1.1 and 1.10), so that what
GROUP BY, DISTINCT, min() and max() show of it is any of them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE pair_of AS (x integer, y text);
"""


@dataclass(frozen=True)
class Series:
    name: str
    sql: str
    vague: bool = False
    summable: bool = True  # sum() and avg() do not depend on the order of the rows


@dataclass(frozen=True)
class Kind:
    type: str
    series: tuple[Series, ...]
    edges: tuple[str, ...]  # literals that are compared with, beside values of the table
    number: bool = False
    ordered: bool = True  # rows can be clustered by it
    extremes: bool = True  # has min() and max()
    text: bool = False
    hashed: bool = True  # can have a Bloom filter


def series(**expressions: str) -> tuple[Series, ...]:
    return tuple(Series(name, sql) for name, sql in expressions.items())


INTEGERS = series(
    constant="42",
    sequential="g",
    descending="-g",
    steps="g * 100 + 7",
    small="{h} % 50",
    outliers="CASE WHEN {h} % 300 = 0 THEN {h} ELSE {h} % 10 END",
    few="(ARRAY[5, 1000000, -77777777])[1 + {h} % 3]",
    runs="g / 37",
    long_runs="g / 700 % 5",
    alternating="CASE g % 2 WHEN 0 THEN g ELSE -g END",
    quantities="({h} % 20) * 100",
    random="{h} * 4 - 2147483648",
    border="CASE g % 5 WHEN 0 THEN 2147483647 WHEN 1 THEN -2147483648 ELSE 0 END",
)

KINDS = (
    Kind("integer", INTEGERS, ("0", "42", "-1", "2147483647", "-2147483648", "100"), number=True),
    Kind(
        "bigint",
        INTEGERS
        + series(
            wide="hashint8extended(g, 5) / 1024",
            giant="g * 10000000019",
            clock="1700000000000000 + g::bigint * 1000000 + {h} % 1000",
        ),
        ("0", "42", "-1", "9223372036854775807", "3000000000"),
        number=True,
    ),
    Kind(
        "smallint",
        series(constant="3", small="{h} % 9", full="{h} % 65536 - 32768", runs="g / 100 % 100"),
        ("0", "3", "-32768", "32767"),
        number=True,
    ),
    Kind(
        "numeric(12, 2)",
        series(
            prices="({h} % 1000000) / 100.0",
            constant="9.99",
            whole="{h} % 100",
            few="(ARRAY[0.01, 12.5, -99.99])[1 + {h} % 3]",
            outliers="CASE WHEN {h} % 200 = 0 THEN 9999999999.99 ELSE ({h} % 100) / 100.0 END",
            sequential="g * 0.25",
        ),
        ("0", "9.99", "-1.5", "9999999999.99", "'NaN'"),
        number=True,
    ),
    Kind(
        "numeric",
        (
            Series("mixed", "round(({h} % 100000) / 7.0, ({h} % 6)::integer)", vague=True),
            Series("padded", "(g % 50 || '.' || repeat('0', ({h} % 4)::integer))::numeric", vague=True),
            Series("huge", "{h}::numeric ^ 4 * 1000000007"),
            Series("special", "CASE {h} % 40 WHEN 0 THEN 'NaN'::numeric WHEN 1 THEN 'Infinity' WHEN 2 THEN '-Infinity' ELSE {h} % 900 END"),
            Series("whole", "{h} % 1000"),
        ),
        ("0", "1.0", "'NaN'", "'Infinity'", "-5.50", "1e40"),
        number=True,
    ),
    Kind(
        "double precision",
        (
            Series("decimals", "({h} % 100000) / 100.0", summable=False),
            Series("quarters", "({h} % 4000) / 4.0 - 300"),
            Series("waves", "sin(g) * g", summable=False),
            Series("special", "CASE {h} % 30 WHEN 0 THEN 'NaN' WHEN 1 THEN '-Infinity' WHEN 2 THEN '-0' WHEN 3 THEN 0 ELSE 1.5 END::float8", vague=True, summable=False),
            Series("constant", "2.5"),
            Series("tiny", "({h} % 1000) * 1e-9", summable=False),
        ),
        ("0", "'-0'", "'NaN'", "2.5", "'Infinity'", "12.34"),
        number=True,
    ),
    Kind("real", series(quarters="({h} % 400) / 4.0", constant="-1"), ("0", "'NaN'", "0.1", "25.25"), number=True),
    Kind(
        "text",
        series(
            constant="'always'",
            few="(ARRAY['red', 'green', 'blue', ''])[1 + {h} % 4]",
            links="'https://example.org/shop/item/' || {h} % 5000 || '?from=list&page=' || g % 40",
            hashes="md5(g::text)",
            numbers="lpad({h}::text, 10, '0')",
            runs="'group ' || g / 200",
            letters="chr((65 + {h} % 26)::integer) || chr((228 + {h} % 20)::integer)",
            lengths="repeat('ab', ({h} % 40)::integer)",
            long="repeat(md5((g % 9)::text), ({h} % 60)::integer)",
            sentences="'The quick brown fox number ' || {h} % 900 || ' jumps over the lazy dog number ' || g % 30",
        ),
        ("''", "'red'", "'m'", "'Z'", "'group 2'", "'https://example.org/shop/item/77'"),
        text=True,
    ),
    Kind('text COLLATE "C"', series(few="(ARRAY['b', 'B', 'ä'])[1 + {h} % 3]", hashes="md5(g::text)"), ("'a'", "'ä'", "'8'"), text=True),
    Kind("char(8)", series(codes="'c' || {h} % 90", constant="'x'"), ("'c7'", "'c7  '", "''"), text=True),
    Kind("varchar(20)", series(names="'name ' || {h} % 300", hashes="left(md5(g::text), 20)"), ("'name 7'", "''"), text=True),
    Kind("date", series(days="date '2020-01-01' + g % 3000", runs="date '2020-01-01' + g / 90", random="date '1970-01-01' + ({h} % 30000)::integer", infinite="CASE WHEN {h} % 50 = 0 THEN 'infinity' ELSE date '2024-01-01' + g % 9 END"), ("'2020-06-01'", "'infinity'", "'1970-01-01'")),
    Kind("timestamp", series(ticks="timestamp '2024-01-01' + g * interval '1 s'", jitter="timestamp '2024-01-01' + g * interval '1 min' + {h} % 60000 * interval '1 ms'"), ("'2024-01-01 00:20'", "'-infinity'")),
    Kind("timestamptz", series(ticks="timestamptz '2024-01-01 00:00+00' + g * interval '1 s'", random="to_timestamp({h})"), ("'2024-01-01 00:20+00'", "'1990-01-01 00:00+00'")),
    Kind("time", series(minutes="time '00:00' + g * interval '1 min'"), ("'12:00'",)),
    Kind("interval", series(hours="({h} % 900) * interval '1 h'"), ("'5 h'", "'0'")),
    Kind("boolean", series(coin="{h} % 2 = 0", rare="{h} % 500 = 0", constant="true", runs="g / 400 % 2 = 0"), ("true", "false"), extremes=False),
    Kind("uuid", series(random="md5(g::text)::uuid", few="md5(({h} % 3)::text)::uuid"), ("'c4ca4238-a0b9-2382-0dcc-509a6f75849b'",), extremes=False),
    Kind("bytea", series(hashes="decode(md5(g::text), 'hex')", few="decode(left(md5(({h} % 5)::text), 4), 'hex')", zeros=r"decode(repeat('00', ({h} % 9)::integer), 'hex')"), (r"'\x00'", "''"), extremes=False),
    Kind("jsonb", series(objects="jsonb_build_object('id', g, 'k', {h} % 10, 't', md5(g::text))", few="jsonb_build_object('k', {h} % 3)"), ("'{\"k\": 1}'", "'1'"), extremes=False, ordered=False),
    Kind("integer[]", series(pairs="ARRAY[g % 10, {h} % 5]::integer[]", empty="'{}'"), ("'{1,2}'", "'{}'"), extremes=True),
    Kind("text[]", series(tags="ARRAY['t' || {h} % 6, NULL, md5((g % 50)::text)]"), ("'{t1}'",), extremes=True, ordered=False),
    Kind("int4range", series(spans="int4range((g % 900)::integer, (g % 900 + {h} % 9)::integer)"), ("'[1,5)'", "'empty'"), extremes=False),
    Kind("inet", series(hosts="('10.0.' || {h} % 3 || '.' || g % 256)::inet"), ("'10.0.1.0/24'", "'10.0.2.7'")),
    Kind("mood", series(moods="(ARRAY['sad', 'ok', 'happy'])[1 + {h} % 3]::mood", runs="(ARRAY['sad', 'ok', 'happy'])[1 + g / 300 % 3]::mood"), ("'ok'",)),
    Kind("pair_of", series(pairs="row(({h} % 9)::integer, 'y' || g % 4)::pair_of"), ("'(1,y1)'",), extremes=False, ordered=False, hashed=False),
)  # fmt: skip

NULLS = ("", "{h} % 10 = 0", "{h} % 100 < 70", "g / 600 % 2 = 0", "{h} % 1000 > 0", "true")
NULL_WEIGHTS = (60, 12, 8, 10, 5, 5)


@dataclass
class Column:
    name: str
    kind: Kind
    series: Series
    nulls: str
    salt: int

    @property
    def vague(self) -> bool:
        return self.series.vague

    def value(self, salt: int = 0) -> str:
        """SQL of g: the row's value; another salt gives other values of the same sort."""
        value = f"({self.series.sql})"
        if self.nulls:
            value = f"CASE WHEN {self.nulls.replace('{h}', hash_of(self.salt + salt + 1))} THEN NULL ELSE {value} END"
        value = value.replace("{h}", hash_of(self.salt + salt))
        return f"({value})::{self.kind.type.split(' COLLATE')[0]}"


def hash_of(salt: int) -> str:
    return f"(hashint8extended(g, {salt}) & 1073741823)"


def random_column(rng: random.Random, name: str) -> Column:
    # plain types more often: encodings are theirs
    kind = rng.choice(KINDS[:9] if rng.random() < 0.6 else KINDS)
    nulls = rng.choices(NULLS, NULL_WEIGHTS)[0]
    return Column(name, kind, rng.choice(kind.series), nulls, rng.randrange(1000))
