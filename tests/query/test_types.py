"""Values of every type come back as they went in, whatever way they travel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE pair_of AS (x integer, y text);
CREATE TYPE deep AS (p pair_of, m mood, tags text[]);
CREATE TYPE money_range AS RANGE (subtype = numeric);
CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
CREATE DOMAIN code AS varchar(4) NOT NULL DEFAULT 'none';
"""

# column -> (type, two values as SQL); a third row is all NULL
COLUMNS = {
    "c_bool": ("boolean", "true", "false"),
    "c_int2": ("smallint", "-32768", "32767"),
    "c_int4": ("integer", "-2147483648", "2147483647"),
    "c_int8": ("bigint", "-9223372036854775808", "9223372036854775807"),
    "c_numeric": ("numeric", "1234567890123456789.000100", "'NaN'"),
    "c_scaled": ("numeric(10, 3)", "-0.001", "'1234567.5'"),
    "c_infinite": ("numeric", "'Infinity'", "'-Infinity'"),
    "c_float4": ("real", "3.4028235e38", "'-Infinity'"),
    "c_float8": ("double precision", "2.2250738585072014e-308", "'NaN'"),
    "c_zero": ("double precision", "'-0'", "0"),
    "c_money": ("money", "'12.34'", "'-99999.99'"),
    "c_text": ("text", r"E'tab\t newline\n back\\slash ''quote'' \u00fc\U0001F600'", "''"),
    "c_null_word": ("text", r"'\N'", "'NULL'"),
    "c_varchar": ("varchar(10)", "'a,b\"c;d'", "'x'"),
    "c_char": ("char(5)", "'ab'", "'abcde'"),
    "c_special": ('"char"', "'x'", "'~'"),
    "c_name": ("name", "'a name'", "'b'"),
    "c_bytea": ("bytea", r"'\x00ff5c270a'", "''"),
    "c_date": ("date", "'4713-01-01 BC'", "'infinity'"),
    "c_time": ("time", "'23:59:59.999999'", "'00:00'"),
    "c_timetz": ("timetz", "'12:00:00+05:30'", "'24:00:00-12'"),
    "c_timestamp": ("timestamp", "'2024-02-29 12:34:56.789012'", "'-infinity'"),
    "c_timestamptz": ("timestamptz(3)", "'2024-02-29 12:34:56.789+02'", "'0001-01-01 00:00 BC'"),
    "c_interval": ("interval", "'1 year -2 months 3 days -04:05:06.7'", "'0'"),
    "c_uuid": (
        "uuid",
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
        "'{00000000000000000000000000000000}'",
    ),
    "c_json": ("json", """'{"b": 1,  "a": [null, 1.50]}'""", "'null'"),
    "c_jsonb": ("jsonb", """'{"b": 1,  "a": [null, 1.50], "ü": "\\u00e9"}'""", "'[]'"),
    "c_jsonpath": ("jsonpath", "'$.a[*] ? (@ > 1)'", "'$'"),
    "c_xml": ("xml", "'<a b=\"c\">d</a>'", "'text'"),
    "c_bit": ("bit(5)", "B'10101'", "B'00000'"),
    "c_varbit": ("varbit", "B'1'", "B''"),
    "c_inet": ("inet", "'192.168.0.1/24'", "'::1'"),
    "c_cidr": ("cidr", "'10.0.0.0/8'", "'fe80::/64'"),
    "c_macaddr": ("macaddr", "'08:00:2b:01:02:03'", "'00:00:00:00:00:00'"),
    "c_macaddr8": ("macaddr8", "'08:00:2b:01:02:03:04:05'", "'ff:ff:ff:ff:ff:ff:ff:ff'"),
    "c_point": ("point", "'(1.5,-2)'", "'(0,0)'"),
    "c_box": ("box", "'(1,1),(0,0)'", "'(3,4),(-1,-2)'"),
    "c_path": ("path", "'[(0,0),(1,1)]'", "'((0,0),(1,1),(2,0))'"),
    "c_polygon": ("polygon", "'((0,0),(1,1),(2,0))'", "'((0,0))'"),
    "c_circle": ("circle", "'<(1,2),3>'", "'<(0,0),0>'"),
    "c_tsvector": ("tsvector", "'fat:2A cat:3'", "''"),
    "c_tsquery": ("tsquery", "'fat & !rat:B'", "'cat'"),  # old minors cannot receive an empty one
    "c_int4range": ("int4range", "'[1,10)'", "'empty'"),
    "c_tstzrange": ("tstzrange", "'[2024-01-01 00:00+00,)'", "'(,)'"),
    "c_multirange": ("int8multirange", "'{[1,3), [5,9)}'", "'{}'"),
    "c_user_range": ("money_range", "'[1.5,2.5]'", "'empty'"),
    "c_int_array": ("integer[]", "'{1,NULL,3}'", "'{}'"),
    "c_matrix": ("integer[]", "'{{1,2},{3,4}}'", "'[0:1]={7,8}'"),
    "c_text_array": ("text[]", """'{"a,b","c\\"d","",NULL,"null"}'""", "'{x}'"),
    "c_numeric_array": ("numeric[]", "'{1.10,NaN}'", "'{0}'"),
    "c_date_array": ("date[]", "'{2024-01-01,infinity}'", "'{}'"),
    "c_enum": ("mood", "'happy'", "'sad'"),
    "c_enum_array": ("mood[]", "'{ok,sad}'", "'{}'"),
    "c_composite": ("pair_of", "(1, 'a,\"b\")')::pair_of", "row(NULL, NULL)"),
    "c_composite_array": ("pair_of[]", "ARRAY[(1, 'a')::pair_of, NULL]", "'{}'"),
    "c_deep": ("deep", "((1, 'x')::pair_of, 'ok', '{a,b}')::deep", "(NULL, 'sad', NULL)::deep"),
    "c_domain": ("positive", "1", "77"),
    "c_regclass": ("regclass", "'pg_class'", "'pg_catalog.pg_type'"),
    "c_regtype": ("regtype", "'integer'", "'mood'"),
    "c_oid": ("oid", "1259", "0"),
    "c_pg_lsn": ("pg_lsn", "'16/B374D848'", "'0/0'"),
    "c_hll": ("hll", "hll_add(hll_empty(), hll_hash_integer(7))", "hll_empty()"),
}

KEYS = {
    "integer": ("1", "-5", "2147483647"),
    "smallint": ("1", "-5", "32767"),
    "bigint": ("1", "-5", "9223372036854775807"),
    "text": ("'a'", "''", "'ü'"),
    "varchar(12)": ("'a'", "''", "'ü'"),
    "char(6)": ("'a'", "'b '", "'abcdef'"),
    "uuid": (
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
        "'00000000-0000-0000-0000-000000000000'",
        "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
    ),
    "date": ("'2024-01-01'", "'infinity'", "'0001-01-01 BC'"),
    "timestamptz": ("'2024-01-01 00:00+00'", "'infinity'", "'2024-06-01 12:00:00.000001+05'"),
    "numeric": ("1.50", "-0.001", "'NaN'"),
    "double precision": ("1.5", "'-0'", "'Infinity'"),
    "boolean": ("true", "false", "true"),
    "bytea": (r"'\x00'", "''", r"'\xffff'"),
    "inet": ("'10.0.0.1'", "'::1'", "'10.0.0.0/8'"),
    "interval": ("'1 day'", "'24 hours'", "'-1 month'"),
    "integer[]": ("'{1,2}'", "'{}'", "'{NULL}'"),
    "int4range": ("'[1,5)'", "'empty'", "'(,)'"),
    "jsonb": ("""'{"a": 1}'""", "'[]'", "'1.0'"),
}


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_types") as made:
        made.execute(TYPES)
        columns = ", ".join(f"{name} {type_}" for name, (type_, *_) in COLUMNS.items())
        made.execute(f"CREATE TABLE zoo (id integer PRIMARY KEY, {columns}, c_code code)")
        made.distribute("zoo", "id")
        for number in (1, 2):
            values = ", ".join(value[number] for value in COLUMNS.values())
            made.execute(f"INSERT INTO zoo VALUES ({number}, {values}, 'c{number}')")
        made.execute("INSERT INTO zoo (id) VALUES (3)")
        yield made


@pytest.mark.parametrize("column", list(COLUMNS))
def test_a_value_of_every_type_comes_back_as_it_went_in(pair: Pair, column: str) -> None:
    rows = pair.same(f"SELECT id, {column}, {column}::text FROM zoo ORDER BY id")
    assert [row[1] is None for row in rows] == [False, False, True]


@pytest.mark.parametrize("column", list(COLUMNS))
def test_a_value_of_every_type_can_be_a_literal_in_a_filter(pair: Pair, column: str) -> None:
    type_, value, _ = COLUMNS[column]
    if type_ in ("json", "jsonpath", "xml", "point", "polygon"):  # these have no equality
        query = f"SELECT id FROM zoo WHERE {column}::text = ({value})::{type_}::text"
    else:
        query = f"SELECT id FROM zoo WHERE {column} = ({value})::{type_}"
    rows = pair.same(query)
    assert rows, query


def test_whole_rows_keep_every_value(pair: Pair) -> None:
    pair.same("SELECT z FROM zoo AS z")
    pair.same("SELECT to_jsonb(z) - 'c_json' FROM zoo AS z")
    pair.same("SELECT (c_composite).y, (c_deep).p, ((c_deep).p).x, c_text_array[2] FROM zoo")
    pair.same("SELECT array_agg(z ORDER BY id) FROM zoo AS z")


def test_many_rows_in_one_insert_keep_every_value(pair: Pair) -> None:
    pair.execute("CREATE TABLE herd (LIKE zoo INCLUDING ALL)")
    pair.distribute("herd", "id")
    columns = ", ".join(COLUMNS)
    pair.execute(
        f"INSERT INTO herd (id, {columns}, c_code) SELECT g * 3 + id, {columns}, c_code"
        " FROM zoo, generate_series(1, 300) AS g"
    )
    pair.same("SELECT count(*) FROM herd")
    pair.same("SELECT md5(string_agg(h::text, '|' ORDER BY id)) FROM herd AS h")


@pytest.mark.parametrize("copy_format", ["text", "csv", "binary"])
def test_copy_out_and_in_again_keeps_every_value(pair: Pair, copy_format: str) -> None:
    pair.execute("DROP TABLE IF EXISTS copied; CREATE TABLE copied (LIKE zoo INCLUDING ALL)")
    pair.distribute("copied", "id")
    skip = {"c_regclass", "c_regtype", "c_oid"}
    if copy_format == "binary":  # it names user-defined types by OIDs
        skip |= {"c_enum_array", "c_composite", "c_composite_array", "c_deep"}
    columns = "id, " + ", ".join(name for name in COLUMNS if name not in skip)
    options = f"(FORMAT {copy_format})"
    for connection in (pair.ours, pair.theirs):
        data = []
        with connection.cursor().copy(f"COPY zoo ({columns}) TO STDOUT {options}") as copy:
            data.extend(bytes(chunk) for chunk in copy)
        with connection.cursor().copy(f"COPY copied ({columns}) FROM STDIN {options}") as copy:
            copy.write(b"".join(data))
    assert len(pair.same(f"SELECT {columns} FROM copied ORDER BY id")) == 3


@pytest.mark.parametrize("copy_format", ["text", "csv"])
def test_copy_out_writes_what_plain_postgresql_writes(pair: Pair, copy_format: str) -> None:
    written = []
    for connection in (pair.ours, pair.theirs):
        command = f"COPY (SELECT * FROM zoo ORDER BY id) TO STDOUT (FORMAT {copy_format})"
        with connection.cursor().copy(command) as copy:
            written.append(b"".join(bytes(chunk) for chunk in copy))
    assert written[0] == written[1]
    with pair.ours.cursor().copy(f"COPY zoo TO STDOUT (FORMAT {copy_format})") as copy:
        table = b"".join(bytes(chunk) for chunk in copy)
    assert len(table) == len(written[1])


@pytest.mark.parametrize("column", [c for c in COLUMNS if c not in (
    "c_json", "c_jsonpath", "c_xml", "c_point", "c_box", "c_path", "c_polygon", "c_circle")])  # fmt: skip
def test_grouping_and_distinct_work_on_every_type_that_has_equality(
    pair: Pair, column: str
) -> None:
    pair.same(f"SELECT {column}, count(*) FROM zoo GROUP BY {column}")
    pair.same(f"SELECT count(DISTINCT {column}) FROM zoo")


def test_windows_sort_by_values_that_travel_as_text(pair: Pair) -> None:
    pair.execute("CREATE TABLE sorted (k integer, p pair_of, m mood[])")
    pair.distribute("sorted", "k")
    pair.execute(
        "INSERT INTO sorted SELECT 1, ROW(g, 'x')::pair_of, ARRAY[CASE WHEN g % 2 = 0 THEN 'sad'"
        " ELSE 'happy' END]::mood[] FROM generate_series(8, 12) AS g"
    )
    pair.same("SELECT p, row_number() OVER (PARTITION BY k ORDER BY p) FROM sorted")
    pair.same("SELECT m, rank() OVER (PARTITION BY k ORDER BY m) FROM sorted")
    pair.execute("DROP TABLE sorted")


@pytest.mark.parametrize("key_type", list(KEYS))
def test_every_hashable_type_can_be_the_key(pair: Pair, key_type: str) -> None:
    name = "keyed_" + "".join(c if c.isalnum() else "_" for c in key_type)
    pair.execute(f"CREATE TABLE {name} (k {key_type}, v integer)")
    pair.distribute(name, "k", shards=16)
    rows = ", ".join(f"({key}, {n})" for n, key in enumerate(KEYS[key_type]))
    pair.execute(f"INSERT INTO {name} VALUES {rows}, (NULL, 9)")
    pair.same(f"SELECT * FROM {name}")
    for key in KEYS[key_type]:
        assert pair.same(f"SELECT v FROM {name} WHERE k = {key}")
    pair.same(f"SELECT v FROM {name} WHERE k IS NULL")
    pair.same(f"SELECT count(*) FROM {name} AS a JOIN {name} AS b USING (k)")
    pair.same(f"SELECT k, count(*) FROM {name} GROUP BY k")
    pair.same(f"UPDATE {name} SET v = v + 10 WHERE k = {KEYS[key_type][0]}")
    pair.same(f"DELETE FROM {name} WHERE k = {KEYS[key_type][1]}")
    pair.same(f"SELECT * FROM {name}")
    pair.execute(f"DROP TABLE {name}")


def test_keys_of_a_collation_of_their_own_are_found(pair: Pair) -> None:
    pair.execute('CREATE TABLE collated (k text COLLATE "C", v text COLLATE "POSIX")')
    pair.distribute("collated", "k")
    pair.execute(
        "INSERT INTO collated SELECT chr(64 + g % 60), chr(100 + g % 9) FROM generate_series(1, 200) AS g"
    )
    pair.same("SELECT * FROM collated WHERE k = 'a'")
    pair.same("SELECT k, count(*) FROM collated GROUP BY k ORDER BY k")
    pair.same("SELECT max(v), min(k) FROM collated WHERE v > 'f'")


def test_domains_and_constraints_of_columns_are_kept(pair: Pair) -> None:
    pair.all_same(
        [
            "INSERT INTO zoo (id, c_domain) VALUES (9, -1)",
            "INSERT INTO zoo (id, c_code) VALUES (9, NULL)",
            "INSERT INTO zoo (id, c_code) VALUES (9, 'too long')",
            "INSERT INTO zoo (id, c_enum) VALUES (9, 'furious')",
            "INSERT INTO zoo (id, c_int2) VALUES (9, 99999)",
            "SELECT count(*) FROM zoo",
        ]
    )


def test_values_larger_than_a_page_travel_whole(pair: Pair) -> None:
    pair.execute("CREATE TABLE large (id integer PRIMARY KEY, t text, b bytea)")
    pair.distribute("large", "id")
    pair.execute(
        "INSERT INTO large SELECT g, repeat(md5(g::text), 40000), decode(repeat(md5(g::text), 20000), 'hex')"
        " FROM generate_series(1, 12) AS g"
    )
    pair.same("SELECT id, length(t), md5(t), md5(b) FROM large")
    pair.same("SELECT * FROM large WHERE id = 3")
    pair.execute("UPDATE large SET t = t || 'end' WHERE id = 4")
    pair.same("SELECT right(t, 5) FROM large WHERE t LIKE '%end'")


@pytest.mark.parametrize("storage", ["columnar", "heap"])
@pytest.mark.parametrize("key_type", ["spot", "spot_domain"])
def test_a_row_of_nulls_is_found_by_is_null(cluster: Cluster, key_type: str, storage: str) -> None:
    """It is not in the partition of NULL, where PostgreSQL's pruning looks for it."""
    with open_pair(cluster, "test_row_of_nulls") as pair:
        pair.execute(
            "CREATE TYPE spot AS (x integer, y integer); CREATE DOMAIN spot_domain AS spot;"
            "CREATE FUNCTION is_nowhere(spot) RETURNS boolean LANGUAGE sql IMMUTABLE"
            " AS 'SELECT $1 IS NULL';"
            f"CREATE TABLE t (k {key_type}, v integer)"
        )
        pair.ours.execute(
            "SELECT create_distributed_table('t', 'k', shard_count => 8, storage => %s)", (storage,)
        )
        pair.execute(
            "INSERT INTO t VALUES (ROW(1, 2), 1), (ROW(NULL, NULL), 2), (NULL, 3), (ROW(1, NULL), 4)"
        )
        for condition in (
            "k IS NULL",
            "k IS NOT NULL",
            "NOT k IS NULL",
            "(k IS NULL) IS NOT TRUE",
            "k IS NULL AND k = ROW(NULL, NULL)::spot",
            "k IS NULL OR v = 1",
            "is_nowhere(k)",
            "(k).x IS NULL",
        ):
            pair.same(f"SELECT * FROM t WHERE {condition}")
        pair.same("SELECT * FROM (SELECT k FROM t OFFSET 0) s WHERE k IS NULL")
        pair.same("SELECT v, k IS NULL FROM t")
        pair.same("SELECT a.v FROM t a LEFT JOIN t b USING (k) WHERE b.k IS NULL")
        pair.same("UPDATE t SET v = v + 10 WHERE k IS NULL RETURNING *")
        pair.same(
            "MERGE INTO t USING (VALUES (12)) s (v) ON t.v = s.v AND k IS NULL WHEN MATCHED THEN DELETE"
        )
        pair.same("DELETE FROM t WHERE k IS NULL RETURNING *")
        pair.same("SELECT * FROM t")


def test_domains_that_are_not_null(pair: Pair) -> None:
    """What nobody reads is sent as NULL, which is no value of the domain."""
    pair.execute(
        "CREATE DOMAIN filled AS integer NOT NULL; CREATE DOMAIN amount AS numeric(8, 2) CHECK (VALUE > 0);"
        "CREATE TABLE filled_table (k integer, i integer, d filled, n amount)"
    )
    pair.distribute("filled_table", "k")
    pair.execute("INSERT INTO filled_table SELECT g, g % 5, g, g FROM generate_series(1, 100) AS g")
    pair.all_same(
        [
            "SELECT count(*) FROM (SELECT DISTINCT ON (i) k, i, d, n FROM filled_table ORDER BY i, k) AS z",
            "SELECT k FROM (SELECT DISTINCT ON (k) k, i, d FROM filled_table ORDER BY k, i) AS z",
            "SELECT k FROM (SELECT * FROM filled_table ORDER BY k LIMIT 10) AS z",
            "SELECT k, rn FROM (SELECT *, rank() OVER (PARTITION BY k ORDER BY i) AS rn FROM filled_table) AS z"
            " WHERE rn <= 1",
        ]
    )
    pair.execute("DROP TABLE filled_table; DROP DOMAIN filled; DROP DOMAIN amount")
