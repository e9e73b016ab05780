"""What the tests know of PostgreSQL's types: values that are hard to store, and many of them.

`values` are SQL literals, each with a trap of the type; `spread` makes many different values from
the integer g of a series.  `equal` says whether the type has =, `ordered` whether it has <.
"""

from __future__ import annotations

from dataclasses import dataclass

# Types that the tests make in a schema of their own.
SETUP = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
ALTER TYPE mood ADD VALUE 'glum' BEFORE 'ok';
CREATE TYPE pair_of AS (x integer, y text);
CREATE TYPE deep AS (p pair_of, m mood, tags text[]);
CREATE TYPE price_range AS RANGE (subtype = numeric);
CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
CREATE DOMAIN code AS varchar(4) CHECK (VALUE <> '');
CREATE DOMAIN codes AS code[];
CREATE DOMAIN where_to AS pair_of CHECK ((VALUE).x > 0);
"""


@dataclass(frozen=True)
class EveryType:
    name: str
    values: tuple[str, ...]
    spread: str = ""
    equal: bool = True
    ordered: bool = True
    binary: bool = True  # COPY BINARY writes no OID of the schema's own types

    def literal(self, value: str) -> str:
        return f"({value})::{self.name}"


def of(name: str, *values: str, **rest) -> EveryType:
    return EveryType(name, values, **rest)


def unordered(name: str, *values: str, **rest) -> EveryType:
    return EveryType(name, values, ordered=False, **rest)


def opaque(name: str, *values: str, **rest) -> EveryType:
    return EveryType(name, values, equal=False, ordered=False, **rest)


BOOLEANS = (of("boolean", "true", "false", spread="g % 3 = 0"),)

INTEGERS = (
    of("smallint", "-32768", "32767", "0", "-1", spread="(g * 37 % 65536 - 32768)"),
    of("integer", "-2147483648", "2147483647", "0", "-1", "1000000", spread="hashint4(g)"),
    of(
        "bigint", "-9223372036854775808", "9223372036854775807", "0", "-1", "4294967296",
        spread="hashint8extended(g, 0)",
    ),
    of("oid", "0", "4294967295", "2147483648", "1259", spread="(g::bigint * 429497 % 4294967296)"),
    unordered("xid", "'3'", "'4294967295'", "'0'", spread="g::text::xid"),
    unordered("cid", "'3'", "'4294967295'", "'0'", spread="g::text::cid"),
    of("xid8", "'3'", "'18446744073709551615'", "'0'", spread="g::text::xid8"),
    of("money", "'12.34'", "'-99999.99'", "'92233720368547758.07'", "0", spread="g * 1.25"),
    of('"char"', "'x'", "''", r"'\377'", "'~'", spread='(33 + g % 90)::"char"'),
    of("regclass", "'pg_class'", "'pg_type'", "0", spread="(1247 + g % 3)"),
    of("regtype", "'integer'", "'text'", "0", spread="(20 + g % 7)"),
    of("mood", "'sad'", "'glum'", "'happy'", spread="(ARRAY['sad','glum','ok','happy'])[1 + g % 4]"),
    of("positive", "1", "2147483647", "77", spread="1 + g"),
)  # fmt: skip

FLOATS = (
    of(
        "real", "'NaN'", "'-0'", "0", "'Infinity'", "'-Infinity'", "3.4028235e38", "1e-45", "0.1",
        "16777217", spread="g / 8.0 - 50",
    ),
    of(
        "double precision", "'NaN'", "'-0'", "0", "'Infinity'", "'-Infinity'",
        "1.7976931348623157e308", "5e-324", "0.1", "9007199254740993", "123.45",
        spread="CASE WHEN g % 5 = 0 THEN g * 0.1::float8 ELSE (g % 900) / 100.0 END",
    ),
)  # fmt: skip

NUMERICS = (
    of(
        "numeric", "'NaN'", "'Infinity'", "'-Infinity'", "0", "0.000", "-0.0", "1.1", "1.10", "1.100",
        "12345678901234567890123456789012345678.9", "1e-30", "-1e40", "9223372036854775807",
        "-9223372036854775808", "9223372036854775808.00", "170141183460469231731687303715884105727",
        "170141183460469231731687303715884105728", "-170141183460469231731687303715884105729",
        "repeat('9', 2000)::numeric", "('0.' || repeat('3', 1500))::numeric", "1e131071", "1e-16383",
        "10000", "100000000", "0.0001", "99990000", spread="g * 1.01",
    ),
    of(
        "numeric(10, 3)", "'NaN'", "0", "-0.001", "9999999.999", "-9999999.999", "1.5", "10000",
        spread="(g * 1.237)",
    ),
    of(
        "numeric(38, 10)", "'NaN'", "9999999999999999999999999999.9999999999",
        "-9999999999999999999999999999.9999999999", "0.0000000001", "0", spread="g * 1000000007.00001",
    ),
    of("numeric(6, -2)", "12345678", "-99999900", "100", "0", "'NaN'", spread="g * 100"),
    of("numeric(3, 5)", "0.00999", "-0.00001", "0", spread="(g % 999) / 100000.0"),
    of("numeric(1000, 500)", "repeat('8', 400)::numeric", "1e-500", "-1.5", spread="g / 3.0"),
)  # fmt: skip

STRINGS = (
    of(
        "text", "''", "' '", r"E'tab\t newline\n back\\slash ''quote'' \u00fc\U0001F600'", "'NULL'",
        r"'\N'", "'a'", "'A'", "repeat('long ', 3000)", "repeat('x', 127)", "repeat('y', 126)",
        "repeat('abc', 2731)", spread="'https://example.org/' || g % 50 || '/' || md5(g::text)",
    ),
    of('text COLLATE "C"', "''", "'a'", "'B'", "'ä'", "repeat('z', 100)", spread="md5(g::text)"),
    of("varchar(10)", "''", "'a,b\"c;d'", "'x   '", "'äöüßäöüßäö'", spread="left(md5(g::text), g % 11)"),
    of("varchar", "''", "'abc'", "'abc '", spread="'v' || g % 7"),
    of("char(5)", "'ab'", "'abcde'", "''", "'ä'", "'  x'", spread="(g % 100)::text"),
    of("char(1)", "'a'", "' '", "'Z'", spread="chr(65 + g % 26)"),
    of("bpchar", "'ab  '", "'ab'", "''", spread="repeat(' ', g % 3) || g"),
    of("name", "'a name'", "''", "repeat('n', 63)", spread="'n' || g"),
    of("bytea", r"'\x00ff5c270a'", "''", r"'\x00'", r"'\x0000'", "decode(repeat('00', 9000), 'hex')",
       spread="decode(md5(g::text), 'hex')"),
    of("code", "'a'", "'none'", "'ä'", spread="left('c' || g % 100, 4)"),
)  # fmt: skip

TIMES = (
    of("date", "'4713-01-01 BC'", "'infinity'", "'-infinity'", "'5874897-12-31'", "'2000-01-01'",
       "'1999-12-31'", spread="date '1990-01-01' + g"),
    of("time", "'23:59:59.999999'", "'00:00'", "'24:00'", spread="time '00:00' + g * interval '61 s'"),
    of("time(0)", "'23:59:59'", "'00:00'", spread="time '00:00' + g * interval '1 s'"),
    of("timetz", "'12:00:00+05:30'", "'24:00:00-12'", "'06:30:00+00'",
       spread="(time '00:00' + g * interval '7 min')::text || CASE g % 3 WHEN 0 THEN '+00' ELSE '-07' END"),
    of("timestamp", "'2024-02-29 12:34:56.789012'", "'-infinity'", "'infinity'",
       "'294276-12-31 23:59:59.999999'", "'4713-01-01 BC'", spread="timestamp '2020-01-01' + g * interval '1 min'"),
    of("timestamptz", "'2024-02-29 12:34:56.789+02'", "'0001-01-01 00:00 BC'", "'infinity'",
       spread="timestamptz '2020-01-01 00:00+00' + g * interval '17 ms'"),
    of("timestamptz(3)", "'2024-02-29 12:34:56.7896+02'", "'-infinity'",
       spread="timestamptz '2020-01-01 00:00+00' + g * interval '1 h'"),
    of("interval", "'1 year -2 months 3 days -04:05:06.7'", "'0'", "'1 day'", "'24 hours'", "'30 days'",
       "'1 month'", "'178000000 years'", spread="g * interval '1 h 0.5 s' + g % 3 * interval '1 day'"),
    of("interval day to second", "'3 days 04:05:06.789'", "'0'", spread="g * interval '1 s'"),
)  # fmt: skip

NETWORK = (
    of("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'00000000-0000-0000-0000-000000000000'",
       "'ffffffff-ffff-ffff-ffff-ffffffffffff'", spread="md5(g::text)"),
    of("inet", "'192.168.0.1/24'", "'::1'", "'10.0.0.0/8'", "'10.0.0.0'", "'ffff::/16'",
       spread="'10.' || g % 4 || '.' || g / 256 % 256 || '.' || g % 256"),
    of("cidr", "'10.0.0.0/8'", "'fe80::/64'", "'0.0.0.0/0'", spread="'10.' || g % 256 || '.0.0/16'"),
    of("macaddr", "'08:00:2b:01:02:03'", "'00:00:00:00:00:00'", spread="left(md5(g::text), 12)"),
    of("macaddr8", "'08:00:2b:01:02:03:04:05'", "'ff:ff:ff:ff:ff:ff:ff:ff'", spread="left(md5(g::text), 16)"),
    of("pg_lsn", "'16/B374D848'", "'0/0'", "'FFFFFFFF/FFFFFFFF'", spread="pg_lsn '0/0' + g * 8192::numeric"),
    of("tid", "'(0,1)'", "'(4294967294,65535)'", "'(7,0)'", spread="'(' || g || ',' || g % 291 || ')'"),
    unordered("pg_snapshot", "'10:20:10,14,15'", "'1:1:'", spread="'1:' || g + 1 || ':'", equal=False),
)  # fmt: skip

BITS = (
    of("bit(5)", "B'10101'", "B'00000'", spread="(g % 32)::bit(5)"),
    of("bit varying", "B'1'", "B''", "B'0'", "B'00'", spread="(g % 1024)::bit(10)"),
    of("bit varying(70)", "repeat('10', 35)::varbit", "B'111'", spread="g::bit(32)::varbit || B'1'"),
)  # fmt: skip

DOCUMENTS = (
    opaque("json", """'{"b": 1,  "a": [null, 1.50]}'""", "'null'", "'\"\"'",
           spread="json_build_object('id', g, 'tags', array[g % 3, g % 5])"),
    of("jsonb", """'{"b": 1,  "a": [null, 1.50], "ü": "\\u00e9"}'""", "'[]'", "'{}'", "'1.0'", "'1'",
       """('{"k": "' || repeat('v', 5000) || '"}')""",
       spread="jsonb_build_object('id', g, 'name', 'n' || g % 10, 'deep', jsonb_build_object('x', g % 2 = 0))"),
    opaque("jsonpath", "'$.a[*] ? (@ > 1)'", "'$'", spread="('$.k' || g % 20)::jsonpath"),
    opaque("xml", "'<a b=\"c\">d</a>'", "'text'", spread="'<n>' || g || '</n>'"),
    of("tsvector", "'fat:2A cat:3'", "''", spread="to_tsvector('simple', 'word' || g % 9 || ' other')"),
    of("tsquery", "'fat & !rat:B'", "'cat'", spread="'w' || g % 9"),
)  # fmt: skip

GEOMETRY = (
    opaque("point", "'(1.5,-2)'", "'(0,0)'", "'(Infinity,NaN)'", spread="point(g, g / 2.0)"),
    opaque("line", "'{1,2,3}'", "'{0,1,-7.5}'", spread="line(point(0, g), point(1, g))"),
    opaque("lseg", "'[(0,0),(1,1)]'", spread="lseg(point(0, 0), point(g, 1))"),
    opaque("box", "'(1,1),(0,0)'", "'(3,4),(-1,-2)'", spread="box(point(0, 0), point(g, 1))"),
    opaque("path", "'[(0,0),(1,1)]'", "'((0,0),(1,1),(2,0))'", spread="'[(0,0),(' || g || ',1)]'"),
    opaque("polygon", "'((0,0),(1,1),(2,0))'", "'((0,0))'", spread="polygon(box(point(0, 0), point(g, 1)))"),
    opaque("circle", "'<(1,2),3>'", "'<(0,0),0>'", spread="circle(point(g, 0), g)"),
)  # fmt: skip

RANGES = (
    of("int4range", "'[1,10)'", "'empty'", "'(,)'", "'[5,)'", spread="int4range(g, g + g % 7)"),
    of("int8range", "'[1,10)'", "'empty'", spread="int8range(g, g + 3000000000)"),
    of("numrange", "'[1.5,2.50]'", "'empty'", "'(,0)'", spread="numrange(g, g + 0.5)"),
    of("daterange", "'[2024-01-01,2024-02-01)'", "'empty'", "'[,infinity)'", spread="daterange(date '2024-01-01', date '2024-01-01' + g)"),
    of("tsrange", "'[2024-01-01,)'", "'empty'", spread="tsrange('2024-01-01', timestamp '2024-01-01' + g * interval '1 h')"),
    of("tstzrange", "'[2024-01-01 00:00+00,)'", "'(,)'", spread="tstzrange('2024-01-01 00:00+00', NULL)"),
    of("price_range", "'[1.5,2.5]'", "'empty'", spread="price_range(g, g + 1)", binary=False),
    of("int4multirange", "'{[1,3), [5,9)}'", "'{}'", spread="int4multirange(int4range(g, g + 1), int4range(g + 5, g + 9))"),
    of("datemultirange", "'{[2024-01-01,2024-02-01)}'", "'{}'", spread="datemultirange(daterange(date '2024-01-01', date '2024-01-02' + g))"),
)  # fmt: skip

ARRAYS = (
    of("integer[]", "'{1,NULL,3}'", "'{}'", "'{{1,2},{3,4}}'", "'[0:1]={7,8}'", "'{{{1}}}'", spread="ARRAY[g, g % 10]"),
    of("bigint[]", "'{9223372036854775807}'", "'{NULL}'", spread="ARRAY[g::bigint * 4294967296]"),
    of("text[]", """'{"a,b","c\\"d","",NULL,"null"}'""", "'{x}'", "'{}'", spread="ARRAY['t' || g % 5, md5(g::text)]"),
    of("char(10)[]", "'{ab,cd}'", "'{}'", "'{\"\"}'", spread="ARRAY['B' || g, 'C' || g % 3]"),
    of("numeric[]", "'{1.10,NaN}'", "'{0}'", spread="ARRAY[g / 10.0, 5]"),
    of("numeric(8, 2)[]", "'{1.105,NULL}'", "'{}'", spread="ARRAY[g / 10.0]"),
    of("double precision[]", "'{NaN,-0,Infinity}'", "'{}'", spread="ARRAY[g * 0.5, g]"),
    of("date[]", "'{2024-01-01,infinity}'", "'{}'", spread="ARRAY[date '2024-01-01' + g]"),
    of("mood[]", "'{ok,sad}'", "'{}'", spread="ARRAY['sad', (ARRAY['ok', 'happy'])[1 + g % 2]]::mood[]", binary=False),
    of("pair_of[]", "ARRAY[(1, 'a')::pair_of, NULL]", "'{}'", spread="ARRAY[(g, 'x')::pair_of]", binary=False),
    of("int4range[]", "'{\"[1,2)\",empty}'", "'{}'", spread="ARRAY[int4range(g, g + 1)]"),
    of("jsonb[]", """ARRAY['{"a": 1}', 'null']::jsonb[]""", "'{}'", spread="ARRAY[to_jsonb(g)]"),
    of("codes", "'{ab,cd}'", "'{}'", spread="ARRAY['c' || g % 100]", binary=False),
    of("int2vector", "'1 2 3'", "''", spread="g % 9 || ' 1'", ordered=False),
    of("oidvector", "'1 2 3'", "''", spread="g || ' 1'"),
)  # fmt: skip

ROWS = (
    of("pair_of", "(1, 'a,\"b\")')::pair_of", "row(NULL, NULL)", "row(2, repeat('w', 4000))",
       spread="row(g, 'y' || g % 4)", binary=False),
    of("deep", "((1, 'x')::pair_of, 'ok', '{a,b}')::deep", "(NULL, 'sad', NULL)::deep",
       spread="((g, 'x')::pair_of, 'ok', ARRAY['t' || g])::deep", binary=False),
    of("where_to", "row(1, 'a')::pair_of", spread="row(1 + g, 'w')::pair_of", binary=False),
)  # fmt: skip

OTHERS = (
    of("hll", "hll_add(hll_empty(), hll_hash_integer(7))", "hll_empty()",
       spread="hll_add(hll_add(hll_empty(), hll_hash_integer(g)), hll_hash_integer(g + 1))", ordered=False),
    unordered("aclitem", "'postgres=r/postgres'", "'=w/postgres'", binary=False),
    opaque("refcursor", "'a cursor'", "''", spread="'c' || g"),
    opaque("txid_snapshot", "'10:20:10,14,15'", spread="'1:' || g + 1 || ':'"),
)  # fmt: skip

EVERY_TYPE = (
    BOOLEANS + INTEGERS + FLOATS + NUMERICS + STRINGS + TIMES + NETWORK + BITS + DOCUMENTS
    + GEOMETRY + RANGES + ARRAYS + ROWS + OTHERS
)  # fmt: skip
