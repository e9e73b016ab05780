"""Every row is where PostgreSQL's own hash partitioning puts it, and is looked for there.

Beside each distributed table stands, on the plain server, a natively partitioned table with all
of its partitions.  Whatever way a row arrives, the partition that holds it on a worker has the
modulus and remainder of the one that holds it there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair, workers_of

SHARDS = 16

TYPES = (
    "CREATE DOMAIN positive AS integer CHECK (VALUE > -1000000);"
    "CREATE DOMAIN label AS varchar(40);"
    "CREATE DOMAIN deep AS positive;"
)

# type of the key -> an expression of g, and odd values
KEYS: dict[str, tuple[str, list[str]]] = {
    "smallint": ("g", ["0", "'-1'", "32767", "'-32768'"]),
    "integer": ("g * 7919", ["0", "'-1'", "2147483647", "'-2147483648'"]),
    "bigint": (
        "g::bigint * 7919 * 1000003",
        ["0", "'-1'", "9223372036854775807", "'-9223372036854775808'", "4294967296", "'-4294967297'"],
    ),
    "text": ("'k' || g", ["''", "' '", "'ä€😀'", "repeat('long', 3000)", "E'a\\tb\\n\\\\'"]),
    "varchar": ("'k' || g", ["''", "' '", "'x '"]),
    "varchar(12)": ("'k' || g", ["''", "'x '"]),
    "character(6)": ("'k' || g", ["''", "'b '", "'abcdef'"]),
    "bpchar": ("'k' || g", ["''", "'b  '", "'ö'"]),
    "name": ("'n' || g", ["''", "repeat('n', 63)"]),
    '"char"': ("chr(40 + g)", ["''", "'A'"]),
    'text COLLATE "C"': ("'k' || g", ["''", "'É'"]),
    "uuid": ("md5(g::text)::uuid", ["'00000000-0000-0000-0000-000000000000'"]),
    "date": ("DATE '2024-01-01' + g", ["'infinity'", "'-infinity'", "'0044-03-15 BC'"]),
    "time": ("TIME '00:00' + g * INTERVAL '1 minute'", ["'24:00'", "'00:00:00.000001'"]),
    "timetz": ("TIMETZ '00:00+02' + g * INTERVAL '1 minute'", ["'10:00+01'", "'09:00+00'"]),
    "timestamp": (
        "TIMESTAMP '2024-01-01' + g * INTERVAL '5 hours'",
        ["'infinity'", "'1999-12-31 23:59:59.999999'"],
    ),
    "timestamptz": (
        "TIMESTAMPTZ '2024-01-01+00' + g * INTERVAL '5 hours'",
        ["'-infinity'", "'2024-03-31 01:30+02'"],
    ),
    "timestamp(0)": ("TIMESTAMP '2024-01-01' + g * INTERVAL '1.7 s'", ["'2024-01-01 00:00:00.5'"]),
    "interval": ("g * INTERVAL '1 hour'", ["'1 mon'", "'30 days'", "'720 hours'", "'-1 us'"]),
    "numeric": ("g * 1.25", ["0", "'-0.0'", "1.10", "1.1000", "'NaN'", "'Infinity'", "'-Infinity'", "1e100", "1e-100"]),
    "numeric(8,2)": ("g * 1.25", ["1.1", "1.105", "'NaN'"]),
    "real": ("g / 4.0", ["0", "'-0'", "'NaN'", "'Infinity'", "1.1"]),
    "double precision": ("g / 4.0", ["0", "'-0'", "'NaN'", "'-Infinity'", "1.1", "1e300"]),
    "bytea": ("decode(md5(g::text), 'hex')", [r"'\x'", r"'\x00'", r"'\xff00'"]),
    "boolean": ("g % 2 = 0", ["true", "false"]),
    "inet": ("('10.0.' || g % 9 || '.' || g)::inet", ["'::1'", "'10.0.0.0/8'", "'10.0.0.1/32'"]),
    "cidr": ("('10.' || g || '.0.0/16')::cidr", ["'::/0'", "'192.168.0.0/24'"]),
    "macaddr": ("('08:00:2b:01:02:' || lpad(to_hex(g), 2, '0'))::macaddr", ["'ff:ff:ff:ff:ff:ff'"]),
    "jsonb": ("jsonb_build_object('g', g)", ["'1'", "'1.0'", "'null'", "'[]'", "'{}'", "'\"a\"'"]),
    "oid": ("g", ["0", "4294967295"]),
    "pg_lsn": ("('0/' || to_hex(g))::pg_lsn", ["'FFFFFFFF/FFFFFFFF'"]),
    "integer[]": ("ARRAY[g, g + 1]", ["'{}'", "'{NULL}'", "'{{1,2},{3,4}}'", "'[0:1]={1,2}'"]),
    "text[]": ("ARRAY['a', g::text]", ["'{}'", "'{NULL,x}'"]),
    "int4range": ("int4range(g, g + 3)", ["'empty'", "'(,)'", "'[1,5]'", "'[1,6)'"]),
    "tsmultirange": ("tsmultirange(tsrange(now()::timestamp, NULL)) * '{}'", ["'{}'", "'{(,)}'"]),
    "positive": ("g", ["0", "'-1'"]),
    "deep": ("g", ["0", "'-1'"]),
    "label": ("'k' || g", ["''", "' '"]),
}  # fmt: skip
GENERATED = 40


def table_name(key_type: str) -> str:
    return "by_" + re.sub(r"\W+", "_", key_type.replace("[]", "_array")).strip("_").lower()


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_shard_map") as made:
        made.execute(TYPES)
        yield made


def make(pair: Pair, key_type: str, shards: int = SHARDS, distribute: bool = True) -> str:
    """A table with this key: distributed on the coordinator, natively partitioned on plain."""
    name = table_name(key_type)
    columns = f"(k {key_type}, n integer)"
    pair.execute(f"DROP TABLE IF EXISTS {name}")
    pair.ours.execute(f"CREATE TABLE {name} {columns}")
    pair.theirs.execute(f"CREATE TABLE {name} {columns} PARTITION BY HASH (k)")
    for remainder in range(shards):
        pair.theirs.execute(
            f"CREATE TABLE {name}_s{remainder} PARTITION OF {name}"
            f" FOR VALUES WITH (MODULUS {shards}, REMAINDER {remainder})"
        )
    if distribute:
        pair.distribute(name, "k", shards=shards)
    return name


def rows_of(key_type: str) -> str:
    """A query for rows of all kinds of keys; n tells them apart."""
    generated, odd = KEYS[key_type]
    bare = key_type.split(" COLLATE")[0]
    values = ", ".join(f"({1000 + n}, {value}::{bare})" for n, value in enumerate([*odd, "NULL"]))
    return (
        f"SELECT ({generated})::{bare} AS k, g AS n FROM generate_series(1, {GENERATED}) AS g"
        f" UNION ALL SELECT k, n FROM (VALUES {values}) AS v (n, k)"
    )


def insert_one_by_one(pair: Pair, connection: psycopg.Connection, name: str, query: str) -> None:
    rows = connection.execute(
        f"SELECT format('INSERT INTO {name} VALUES (%L, %s)', k, n) FROM ({query}) AS q"
    ).fetchall()
    connection.execute("; ".join(statement for (statement,) in rows))


def insert_query(pair: Pair, connection: psycopg.Connection, name: str, query: str) -> None:
    connection.execute(f"INSERT INTO {name} {query}")


def copy_in(pair: Pair, connection: psycopg.Connection, name: str, query: str) -> None:
    with connection.cursor().copy(f"COPY ({query}) TO STDOUT (FORMAT binary)") as copy:
        data = b"".join(bytes(chunk) for chunk in copy)
    with connection.cursor().copy(f"COPY {name} FROM STDIN (FORMAT binary)") as copy:
        copy.write(data)


PLACEMENT = (
    "SELECT n, substring(pg_get_expr(c.relpartbound, c.oid) FROM 'modulus (\\d+)')::integer,"
    " substring(pg_get_expr(c.relpartbound, c.oid) FROM 'remainder (\\d+)')::integer"
    " FROM {} AS t JOIN pg_class AS c ON c.oid = t.tableoid ORDER BY n"
)


def places_on_workers(pair: Pair, name: str) -> list[tuple[int, int, int]]:
    """Row, modulus and remainder on the workers, each of which has to be the shard's worker."""
    found = []
    owners = dict(
        pair.rows(
            "SELECT s.remainder, w.name FROM strata.shard AS s JOIN strata.worker AS w USING"
            " (worker_id) JOIN strata.distributed_table AS t USING (colocation_id)"
            " WHERE t.relation = %s::regclass",
            (name,),
        )
    )
    for worker in pair.cluster.workers:
        rows = worker.query(PLACEMENT.format(f"{pair.schema}.{name}"))
        assert {owners[remainder] for _, _, remainder in rows} <= {worker.name}
        found += rows
    return sorted(found)


def places_on_plain(pair: Pair, name: str) -> list[tuple[int, int, int]]:
    return pair.theirs.execute(PLACEMENT.format(name)).fetchall()


# ---- where rows go ------------------------------------------------------------------------------


@pytest.mark.parametrize("key_type", list(KEYS))
def test_rows_are_in_the_partition_that_postgresql_chooses(pair: Pair, key_type: str) -> None:
    name = make(pair, key_type)
    places = {}
    for load in (insert_one_by_one, insert_query, copy_in):
        load(pair, pair.theirs, name, rows_of(key_type))
        load(pair, pair.ours, name, rows_of(key_type))
        places[load.__name__] = places_on_plain(pair, name)
        assert places_on_workers(pair, name) == places[load.__name__], load.__name__
        pair.same(f"SELECT * FROM {name}")
        pair.execute(f"TRUNCATE {name}")
    assert len(places["copy_in"]) == GENERATED + len(KEYS[key_type][1]) + 1
    pair.execute(f"DROP TABLE {name}")


@pytest.mark.parametrize("key_type", ["integer", "text", "numeric", "timestamptz", "label"])
def test_rows_of_a_table_with_rows_move_to_their_partitions(pair: Pair, key_type: str) -> None:
    name = make(pair, key_type, distribute=False)
    for connection in (pair.theirs, pair.ours):
        connection.execute(f"INSERT INTO {name} {rows_of(key_type)}")
    pair.distribute(name, "k", shards=SHARDS)
    assert places_on_workers(pair, name) == places_on_plain(pair, name)
    pair.execute(f"DROP TABLE {name}")


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 32, 60])
def test_any_number_of_shards_is_the_modulus(pair: Pair, shards: int) -> None:
    name = make(pair, "bigint", shards)
    for connection in (pair.theirs, pair.ours):
        connection.execute(f"INSERT INTO {name} SELECT g, g FROM generate_series(-300, 300) AS g")
    places = places_on_workers(pair, name)
    assert places == places_on_plain(pair, name)
    assert {modulus for _, modulus, _ in places} == {shards}
    assert len({remainder for _, _, remainder in places}) == shards
    pair.execute(f"DROP TABLE {name}")


def test_workers_agree_with_satisfies_hash_partition(pair: Pair) -> None:
    name = make(pair, "uuid")
    pair.ours.execute(f"INSERT INTO {name} {rows_of('uuid')}")
    for n, modulus, remainder in places_on_workers(pair, name):
        query = (
            "SELECT satisfies_hash_partition(%s::regclass, %s, %s, k) FROM ({}) AS q WHERE n = %s"
        )
        rows = pair.theirs.execute(
            query.format(rows_of("uuid")), (name, modulus, remainder, n)
        ).fetchall()
        assert rows == [(True,)]
    pair.execute(f"DROP TABLE {name}")


def test_a_null_key_has_a_place_too(pair: Pair) -> None:
    name = make(pair, "integer")
    pair.execute(f"INSERT INTO {name} VALUES (NULL, 1), (NULL, 2), (5, 3)")
    places = places_on_workers(pair, name)
    assert places == places_on_plain(pair, name)
    assert [remainder for _, _, remainder in places[:2]] == [0, 0]
    pair.all_same(
        [
            f"SELECT n FROM {name} WHERE k IS NULL",
            f"SELECT n FROM {name} WHERE k = NULL",
            f"SELECT n FROM {name} WHERE k IN (5, NULL)",
            f"SELECT n FROM {name} WHERE k IS NOT DISTINCT FROM NULL",
            f"SELECT n FROM {name} WHERE k IS NULL OR k = 5",
            f"UPDATE {name} SET n = n + 10 WHERE k IS NULL RETURNING n",
            f"DELETE FROM {name} WHERE k IS NULL AND n = 11",
            f"SELECT * FROM {name}",
        ]
    )
    pair.execute(f"DROP TABLE {name}")


def test_tables_of_one_group_put_equal_keys_on_one_worker(pair: Pair) -> None:
    """varchar and text are one kind of key, a domain is its base type."""
    pair.ours.execute(
        "CREATE TABLE one (k text, n integer); CREATE TABLE two (k varchar(30), n integer);"
        "CREATE TABLE three (k label, n integer)"
    )
    pair.distribute("one", "k", shards=SHARDS)
    pair.distribute("two", "k", colocate_with="one")
    pair.distribute("three", "k", colocate_with="one")
    for name in ("one", "two", "three"):
        pair.ours.execute(f"INSERT INTO {name} SELECT 'k' || g, g FROM generate_series(1, 60) AS g")
    places = places_on_workers(pair, "one")
    assert places_on_workers(pair, "two") == places
    assert places_on_workers(pair, "three") == places
    join = "SELECT count(*) FROM one JOIN two ON one.k = two.k JOIN three ON three.k = one.k"
    assert pair.rows(join) == [(60,)]
    assert len(pair.gathers(join)) == 1
    pair.ours.execute("DROP TABLE one, two, three")


# ---- where rows are looked for --------------------------------------------------------------------

# PostgreSQL turns "k = false" into "NOT k" before anybody looks for equalities.
NOT_ROUTED = ("boolean",)


@pytest.mark.parametrize("key_type", [k for k in KEYS if k not in ("tsmultirange",)])
def test_a_constant_key_asks_one_worker_and_finds_its_rows(pair: Pair, key_type: str) -> None:
    name = make(pair, key_type)
    bare = key_type.split(" COLLATE")[0]
    for connection in (pair.theirs, pair.ours):
        connection.execute(f"INSERT INTO {name} {rows_of(key_type)}")
    generated, odd = KEYS[key_type]
    constants = [f"(SELECT ({generated})::{bare} FROM (VALUES ({g})) AS v (g))" for g in (1, 17)]
    literals = [
        "{}::{}".format(
            pair.theirs.execute(f"SELECT quote_literal(({c})::text)").fetchone()[0], bare
        )
        for c in constants
    ] + [f"{value}::{bare}" for value in odd]
    for literal in literals:
        query = f"SELECT n, k FROM {name} WHERE k = {literal}"
        # "char"(n)'s literal loses its blanks, 1.105 is rounded: only plain knows what is equal
        assert pair.same(query) or "1.105" in literal, query
        (gather,) = pair.gathers(query)
        assert workers_of(gather) == 1 or key_type in NOT_ROUTED, query
        pair.same(f"SELECT count(*) FROM {name} WHERE {literal} = k AND n >= 0")
    pair.same(f"SELECT n FROM {name} WHERE k IN ({', '.join(literals)})")
    pair.same(f"SELECT n FROM {name} WHERE k = ANY (ARRAY[{', '.join(literals[:3])}]::{bare}[])")
    pair.same(f"UPDATE {name} SET n = n + 5000 WHERE k = {literals[0]}")
    pair.same(f"DELETE FROM {name} WHERE k = {literals[1]}")
    pair.same(f"SELECT n, k FROM {name}")
    pair.execute(f"DROP TABLE {name}")


# key type, constant of another type, does its operator belong to the key's hash family?
CROSS_TYPE = [
    ("integer", "7919::bigint", True),
    ("integer", "7919::smallint", True),
    ("integer", "5000000000", True),
    ("integer", "-7919::bigint", True),
    ("integer", "7919.0", False),
    ("integer", "7919::float8", False),
    ("bigint", "7919000023757", True),
    ("bigint", "17::smallint", True),
    ("bigint", "17::integer", True),
    ("bigint", "7919000023757::numeric", False),
    ("smallint", "17", True),
    ("smallint", "17::bigint", True),
    ("smallint", "100000", True),
    ("real", "4.25::float8", True),
    ("real", "1.1::float8", True),
    ("double precision", "4.25::real", True),
    ("double precision", "1.1::real", True),
    ("double precision", "4.25", True),
    ("numeric", "5", True),
    ("numeric", "1.2500000", True),
    ("numeric", "5::bigint", True),
    ("numeric", "1.25::float8", False),
    ("text", "'k17'::varchar", True),
    ("text", "'k17'::name", True),
    ("text", "'k17   '::character(8)", True),
    ("varchar", "'k17'::text", True),
    ("varchar(12)", "'k17'::text", True),
    ("varchar(12)", "'k17'::varchar(3)", True),
    ("name", "'n17'::text", True),
    ("character(6)", "'k17'", True),
    ("character(6)", "'k17      '::bpchar", True),
    ("character(6)", "'k17'::text", False),
    ("character(6)", "'k17'::varchar", False),
    ("date", "'2024-01-18'::timestamp", False),
    ("date", "'2024-01-18 00:00+00'::timestamptz", False),
    ("timestamp", "'2024-01-01 05:00'::timestamptz", False),
    ("timestamp", "'2024-01-06'::date", False),
    ("timestamptz", "'2024-01-01 05:00'::timestamp", False),
    ("inet", "'10.0.0.1/32'::cidr", True),
    ("cidr", "'10.17.0.0/16'::inet", True),
    ("oid", "17", True),
    ("oid", "17::bigint", False),
    ("oid", "'pg_class'::regclass", True),
    ("positive", "17", True),
    ("positive", "17::bigint", True),
    ("positive", "17::deep", True),
    ("deep", "17::smallint", True),
    ("label", "'k17'", True),
    ("label", "'k17'::text", True),
    ("label", "'k17'::label", True),
    ("interval", "'1 day'", True),
    ("interval", "'86400 seconds'", True),
    ("integer[]", "ARRAY[17, 18]", True),
    ("integer[]", "'{17,18}'", True),
]


@pytest.mark.parametrize(("key_type", "constant", "routed"), CROSS_TYPE)
def test_a_constant_of_another_type_finds_what_is_equal(
    pair: Pair, key_type: str, constant: str, routed: bool
) -> None:
    name = table_name(key_type)
    if pair.rows("SELECT to_regclass(%s)", (name,)) == [(None,)]:
        make(pair, key_type)
        for connection in (pair.theirs, pair.ours):
            connection.execute(f"INSERT INTO {name} {rows_of(key_type)}")
    for condition in (
        f"k = {constant}",
        f"{constant} = k",
        f"k IN ({constant})",
        f"k IN ({constant}, {constant})",
        f"k IS NOT DISTINCT FROM {constant}",
        f"k = (SELECT {constant})",
    ):
        pair.same(f"SELECT n, k FROM {name} WHERE {condition}")
    gathers = pair.gathers(f"SELECT n, k FROM {name} WHERE k = {constant}")
    if routed and gathers:
        assert [workers_of(gather) for gather in gathers] == [1]


PARAMETERS = [
    ("integer", "bigint", "7919"),
    ("integer", "smallint", "7919"),
    ("integer", "numeric", "7919.0"),
    ("bigint", "integer", "-1"),
    ("smallint", "bigint", "17"),
    ("text", "varchar", "k17"),
    ("text", "name", "k17"),
    ("varchar", "text", "k17"),
    ("character(6)", "bpchar", "k17  "),
    ("character(6)", "text", "k17"),
    ("double precision", "real", "4.25"),
    ("numeric", "numeric", "1.250"),
    ("date", "timestamp", "2024-01-18"),
    ("timestamptz", "timestamptz", "2024-01-01 06:00+01"),
    ("positive", "bigint", "17"),
    ("uuid", "uuid", "70EFDF2E-C9B0-8607-9795-C442636B55FB"),
    ("jsonb", "jsonb", '{"g": 17.0}'),
]


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize(("key_type", "parameter_type", "value"), PARAMETERS)
def test_a_parameter_finds_the_worker_when_it_is_known(
    pair: Pair, key_type: str, parameter_type: str, value: str, mode: str
) -> None:
    name = table_name(key_type)
    if pair.rows("SELECT to_regclass(%s)", (name,)) == [(None,)]:
        make(pair, key_type)
        for connection in (pair.theirs, pair.ours):
            connection.execute(f"INSERT INTO {name} {rows_of(key_type)}")
    pair.execute(
        f"SET plan_cache_mode = {mode};"
        f"PREPARE find ({parameter_type}) AS SELECT n, k FROM {name} WHERE k = $1;"
        f"PREPARE change ({parameter_type}) AS UPDATE {name} SET n = n WHERE k = $1 RETURNING n"
    )
    try:
        for statement in ("find", "change"):
            assert pair.same(f"EXECUTE {statement} ('{value}')")
            pair.same(f"EXECUTE {statement} (NULL)")
    finally:
        pair.execute("DEALLOCATE ALL; RESET plan_cache_mode")


def test_a_key_out_of_the_range_of_its_type_is_nowhere(pair: Pair) -> None:
    name = make(pair, "integer")
    pair.execute(f"INSERT INTO {name} SELECT g, g FROM generate_series(1, 50) AS g")
    pair.all_same(
        [
            f"SELECT n FROM {name} WHERE k = 99999999999",
            f"SELECT n FROM {name} WHERE k IN (3, 99999999999)",
            f"SELECT n FROM {name} WHERE k = 3 AND k = 4",
            f"SELECT count(*) FROM {name} WHERE k = 3 AND k = 4",
            f"SELECT n FROM {name} WHERE k = '99999999999'",
            f"UPDATE {name} SET n = 0 WHERE k = 99999999999",
            f"SELECT n FROM {name} WHERE k = 3 OR k = 40",
            f"SELECT n FROM {name} WHERE k = 3 OR n = 40",
        ]
    )
    pair.execute(f"DROP TABLE {name}")


def test_a_list_of_keys_asks_only_their_workers(pair: Pair) -> None:
    name = make(pair, "integer")
    pair.execute(f"INSERT INTO {name} SELECT g, g FROM generate_series(1, 200) AS g")
    by_worker = [
        [n for (n,) in worker.query(f"SELECT n FROM {pair.schema}.{name} ORDER BY n LIMIT 3")]
        for worker in pair.cluster.workers
    ]
    for keys, asked in ((by_worker[0], 1), (by_worker[1], 1), (by_worker[0] + by_worker[1], 2)):
        for query in (
            f"SELECT n FROM {name} WHERE k IN ({', '.join(map(str, keys))})",
            f"SELECT n FROM {name} WHERE k = ANY ('{{{','.join(map(str, keys))}}}')",
        ):
            assert len(pair.same(query)) == len(keys)
            (gather,) = pair.gathers(query)
            assert workers_of(gather) == asked, query
    pair.execute(f"DROP TABLE {name}")
