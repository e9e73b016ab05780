"""postgresql-hll by batches: hashes, hll_add_agg() and hll_union_agg() give the bytes that heap's rows give."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from extensions.columnar.test.random_story import PARALLEL
from extensions.columnar.test.test_vector_groups import is_vectorised, same_groups
from extensions.columnar.test.twins import Twins, open_twins
from tests.cluster import Node

ROWS = 12_000

# NULL where the row's number divides by that of the column
COLUMNS = {
    "flag": ("boolean", "{i} % 3 = 1"),
    "small": ("smallint", "({i} * 37 % 65536 - 32768)"),
    "few": ("integer", "{i} % 120"),
    "dense": ("integer", "{i} * 7919 % 9001 - 4500"),
    "long": ("bigint", "{i}::bigint * 1000000007 * 987 - 5000000000000"),
    "word": ("text", "left(repeat('aä%', {i} % 13), {i} % 40) || {i} % 70"),
    "line": ("text", "md5({i}::text) || repeat('x', {i} % 50)"),
    "name": ("varchar(30)", "'name ' || {i} % 900"),
    "padded": ("char(9)", "left('blanks', {i} % 7)"),
    "raw": ("bytea", "decode(left(md5({i}::text), {i} % 16 * 2), 'hex')"),
    "day": ("date", "date '1999-01-01' + {i} % 4000"),
    "moment": ("timestamptz", "timestamptz '2020-01-01 00:00+00' + {i} * interval '7 min'"),
    "id16": ("uuid", "md5(({i} % 3000)::text)::uuid"),
    "doc": ("jsonb", "jsonb_build_object('a', {i} % 40)"),
    "list": ("integer[]", "ARRAY[{i} % 50, NULL, {i} % 3]"),
    "price": ("numeric(10, 2)", "({i} % 999) / 100.0"),
    "ratio": ("double precision", "{i} / 8.0"),
    "single": ("real", "{i} / 4.0"),
    "spot": ("point", "point({i} % 7, 1)"),
}

HASHES = [
    "hll_hash_boolean(flag)",
    "hll_hash_smallint(small)",
    "hll_hash_integer(few)",
    "hll_hash_integer(dense)",
    "hll_hash_bigint(long)",
    "hll_hash_text(word)",
    "hll_hash_text(line)",
    "hll_hash_text(name)",
    "hll_hash_bytea(raw)",
    "hll_hash_integer(dense, 2147483647)",
    "hll_hash_smallint(small, 7)",
    "hll_hash_bigint(long, 1)",
    "hll_hash_text(word, 123456789)",
    "hll_hash_bytea(raw, 5)",
    "hll_hash_boolean(flag, 5)",
    "hll_hash_bigint(dense)",
    "hll_hash_integer(dense % 1000 + 3)",
    "hll_hash_text(left(word, 3))",
    "hll_hash_boolean(dense > 17)",
    "hll_hash_any(flag)",
    "hll_hash_any(small)",
    "hll_hash_any(dense)",
    "hll_hash_any(long, 9)",
    "hll_hash_any(word)",
    "hll_hash_any(name)",
    "hll_hash_any(padded)",
    "hll_hash_any(raw)",
    "hll_hash_any(day)",
    "hll_hash_any(moment)",
    "hll_hash_any(id16)",
    "hll_hash_any(doc)",
    "hll_hash_any(list)",
    "long::hll_hashval",
    "hll_hashval(long)",
    "dense::hll_hashval",
    "hash",
    "hll_hash_integer(dense, NULL)",
]

# Without a kernel: a call of the function for each row.
OTHER_HASHES = [
    "hll_hash_integer(dense, few)",
    "hll_hash_integer(dense, -1)",
    "hll_hash_any(price)",
    "hll_hash_any(ratio)",
    "hll_hash_any(single)",
    "hll_hash_any(spot)",
]

# so many hashes are explicit that every one of them shows in the result
ALL_EXPLICIT = "11, 5, 8192"

PARAMETERS = [
    "",
    ", 4",
    ", 0, 1",
    ", 1, 7",
    ", 2, 3, 1",
    ", 3, 5, 0",
    ", 11, 5, 0",
    ", 11, 5, -1, 0",
    ", 11, 1, 16, 1",
    ", 10, 4, 64, 1",
    ", 12, 6, 4096, 0",
    ", 13, 7, 8192, 1",
    ", 17, 5",
]

# refused, or without a header of their own
STRANGE_PARAMETERS = [
    ", 18",
    ", -1",
    ", 11, 8",
    ", 11, 0",
    ", 11, 5, 3",
    ", 11, 5, -2",
    ", 11, 5, 16384",
    ", 11, 5, -1, 2",
    ", NULL",
    ", 11, 5, NULL",
    ", g % 3 + 9",
    ", 11, 4 + g % 2",
]


def fill(twins: Twins) -> None:
    columns = ", ".join(f"{name} {type_}" for name, (type_, _) in COLUMNS.items())
    values = ", ".join(
        f"CASE WHEN i % {11 + 2 * n} <> 0 THEN ({value.format(i='i')})::{type_} END"
        for n, (type_, value) in enumerate(COLUMNS.values())
    )
    twins.execute(
        f"CREATE TABLE m (id integer NOT NULL, g integer, {columns}, hash hll_hashval)",
        f"INSERT INTO m SELECT i, i % 17, {values}, hll_hash_integer(i % 5000)"
        f" FROM generate_series(1, {ROWS}) AS i; ANALYZE m",
        "CREATE TABLE none (id integer, h hll)",
        "CREATE TABLE s (id integer, g integer, h hll)",
        # empty, explicit, sparse and full ones; group 3 has NULLs alone
        "INSERT INTO s SELECT n, n % 5, CASE WHEN n % 5 <> 3 AND n % 4 <> 1 THEN"
        " (SELECT coalesce(hll_add_agg(hll_hash_integer(n * 31 + k)), hll_empty())"
        " FROM generate_series(1, (ARRAY[0, 1, 20, 161, 300, 1500, 3000, 0, 5])[1 + n % 9]) AS k) END"
        " FROM generate_series(1, 90) AS n; ANALYZE s",
    )


@pytest.fixture(scope="module")
def sides(node: Node) -> Iterator[Twins]:
    with open_twins(node, "test_vector_hll") as made:
        made.execute("SET max_parallel_workers_per_gather = 0")
        fill(made)
        yield made


@pytest.fixture
def tables(sides: Twins) -> Iterator[Twins]:
    yield sides
    sides.reset()
    sides.execute(
        "RESET ALL",
        "SET search_path = {schema}, public; SET default_table_access_method = {am};"
        " SET max_parallel_workers_per_gather = 0",
        "SELECT hll_set_defaults(11, 5, -1, 1), hll_set_max_sparse(-1)",
    )


def has_kernels(twins: Twins, query: str) -> bool:
    return is_vectorised(twins, query) and "Evaluated by Row" not in twins.plan(query)


def same_by_kernels(twins: Twins, query: str) -> None:
    assert has_kernels(twins, query), twins.plan(query)
    twins.same(query)


def go_parallel(twins: Twins) -> None:
    twins.execute(PARALLEL)


# ---- hashes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("expression", HASHES)
def test_every_hash_is_the_extensions(tables: Twins, expression: str) -> None:
    same_by_kernels(
        tables, f"SELECT hll_add_agg({expression}, {ALL_EXPLICIT}) FROM m WHERE id <= 8000"
    )
    same_by_kernels(
        tables, f"SELECT g, hll_add_agg({expression}, {ALL_EXPLICIT}) FROM m GROUP BY g"
    )
    same_by_kernels(tables, f"SELECT hll_add_agg({expression}) FROM m WHERE id % 97 = 5")


@pytest.mark.parametrize("expression", OTHER_HASHES)
def test_other_hashes_are_computed_by_row(tables: Twins, expression: str) -> None:
    query = (
        f"SELECT g, hll_add_agg({expression}, {ALL_EXPLICIT}) FROM m WHERE id <= 3000 GROUP BY g"
    )
    assert not has_kernels(tables, query)
    same_groups(tables, query)


def test_texts_of_every_length(twins: Twins) -> None:
    twins.execute(
        "CREATE TABLE t (n integer, v text, b bytea)",
        "INSERT INTO t SELECT n, left(repeat(md5(n::text), 5), n % 100),"
        " decode(repeat(md5((n + 1)::text), n % 5) || left(md5(n::text), n % 16 * 2), 'hex')"
        " FROM generate_series(0, 2500) AS n; ANALYZE t",
    )
    for hash_ in ("hll_hash_text(v)", "hll_hash_bytea(b, 77)", "hll_hash_any(v, 3)"):
        same_by_kernels(twins, f"SELECT n % 100, hll_add_agg({hash_}) FROM t GROUP BY n % 100")


# ---- hll_add_agg() ---------------------------------------------------------------------------------


@pytest.mark.parametrize("parameters", PARAMETERS)
def test_sets_of_every_size(tables: Twins, parameters: str) -> None:
    """Around the thresholds from explicit to sparse and from sparse to full."""
    add = f"hll_add_agg(hll_hash_integer(id){parameters})"
    sizes = (0, 1, 2, 3, 4, 15, 16, 17, 64, 65, 159, 160, 161, 319, 320, 321, 700, 760, 4096, 4097)
    for size in (*sizes, 8192, 8193, ROWS):
        tables.same(f"SELECT {add} FROM m WHERE id <= {size}")
    query = f"SELECT id / 300, {add} FROM m GROUP BY id / 300"
    same_by_kernels(tables, query)
    same_groups(tables, f"SELECT length(dense::text), {add} FROM m GROUP BY 1")


@pytest.mark.parametrize("parameters", STRANGE_PARAMETERS)
def test_strange_parameters(tables: Twins, parameters: str) -> None:
    add = f"hll_add_agg(hll_hash_integer(few){parameters})"
    tables.same(f"SELECT {add} FROM m WHERE id > 0")
    tables.same(f"SELECT g, {add} FROM m GROUP BY g")
    tables.same(f"SELECT {add} FROM m WHERE id < 0")


def test_any_number_is_a_hash(tables: Twins) -> None:
    for value in (
        "0",
        "few - 60",
        "id::bigint << 40",
        "-id",
        "1::bigint << (id % 64)",
        "-1",
        "~0 << few",
    ):
        for parameters in ("", ", 4, 7, 0", ", 0, 7", f", {ALL_EXPLICIT}"):
            add = f"hll_add_agg(({value})::bigint::hll_hashval{parameters})"
            tables.same(f"SELECT {add} FROM m WHERE few >= 0 AND id < 8000")
            tables.same(f"SELECT g, {add} FROM m WHERE few >= 0 GROUP BY g")


QUERIES = [
    "SELECT hll_cardinality(hll_add_agg(hll_hash_integer(dense))), count(*) FROM m",
    "SELECT # hll_add_agg(hll_hash_text(word)), # hll_add_agg(hll_hash_text(line), 12) FROM m",
    "SELECT g, # hll_add_agg(hll_hash_integer(dense)) FROM m GROUP BY g",
    "SELECT g, hll_add_agg(hll_hash_integer(dense)) FILTER (WHERE few > 90) FROM m GROUP BY g",
    "SELECT g, hll_add_agg(hll_hash_integer(dense)) FILTER (WHERE id < 0) FROM m GROUP BY g",
    "SELECT g, hll_add_agg(hll_hash_integer(dense)) FROM m WHERE dense IS NULL GROUP BY g",
    "SELECT hll_add_agg(hll_hash_integer(dense)) FROM m WHERE dense IS NULL",
    "SELECT hll_add_agg(NULL::hll_hashval), hll_add_agg(hll_hash_integer(5)) FROM m",
    "SELECT g, hll_add_agg(NULL::hll_hashval), hll_add_agg(hll_hash_integer(5)) FROM m GROUP BY g",
    "SELECT hll_add_agg(hll_hash_integer(id)) FROM none",
    "SELECT id, hll_add_agg(hll_hash_integer(id)) FROM none GROUP BY id",
    "SELECT g FROM m GROUP BY g HAVING # hll_add_agg(hll_hash_integer(dense)) > 600",
    "SELECT word, hll_add_agg(hll_hash_integer(few)), sum(dense), max(line) FROM m GROUP BY word",
    "SELECT g, few, hll_add_agg(hll_hash_bigint(long)) FROM m GROUP BY g, few",
    "SELECT a.few, hll_add_agg(hll_hash_integer(b.dense)) FROM m AS a JOIN m AS b ON a.id = b.id + 1 GROUP BY a.few",
    "SELECT hll_union_agg(h), # hll_union_agg(h) FROM s",
    "SELECT g, hll_union_agg(h), count(h) FROM s GROUP BY g",
    "SELECT hll_union_agg(h) FROM s WHERE g = 3",
    "SELECT hll_union_agg(h) FROM none",
    "SELECT id, hll_union_agg(h) FROM none GROUP BY id",
    "SELECT g, hll_union_agg(h) FILTER (WHERE id % 9 < 3) FROM s GROUP BY g",
    "SELECT id % 9, hll_union_agg(h) FROM s GROUP BY id % 9",
    "SELECT g, hll_union_agg(hll_add(h, hll_hash_integer(id))) FROM s GROUP BY g",
    "SELECT m.g, hll_union_agg(s.h) FROM m JOIN s ON m.dense = s.id GROUP BY m.g",
]  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("parallel", [False, True])
def test_queries(tables: Twins, query: str, parallel: bool) -> None:
    if parallel:
        go_parallel(tables)
    tables.same(query)
    assert "none" in query or is_vectorised(tables, query), tables.plan(query)
    tables.execute("SET strata_columnar.enable_vector = off")
    tables.same(query)


def test_a_window_and_a_grouping_set(tables: Twins) -> None:
    tables.same("SELECT id, # hll_union_agg(h) OVER (ORDER BY id) FROM s")
    tables.same("SELECT g, hll_add_agg(hll_hash_integer(dense)) FROM m GROUP BY ROLLUP (g)")


@pytest.mark.parametrize("parallel", [False, True])
def test_many_groups_in_little_memory(twins: Twins, parallel: bool) -> None:
    twins.execute(
        "CREATE TABLE t (id integer, many integer, part integer)",
        f"INSERT INTO t SELECT n, n % 3000, n / 50 FROM generate_series(1, {ROWS}) AS n",
        "ALTER TABLE t ALTER many SET (n_distinct = 9), ALTER part SET (n_distinct = 9); ANALYZE t",
        "SET work_mem = '256kB'; SET hash_mem_multiplier = 1; SET max_parallel_workers_per_gather = 0",
    )
    if parallel:
        go_parallel(twins)
    same_groups(twins, "SELECT many, hll_add_agg(hll_hash_integer(id)) FROM t GROUP BY many")
    same_groups(twins, "SELECT part, hll_add_agg(hll_hash_integer(id), 11, 5, 0) FROM t GROUP BY 1")
    twins.execute(
        "CREATE TABLE v AS SELECT part, part % 30 AS k, hll_add_agg(hll_hash_integer(id), 10, 5, 16) AS h"
        " FROM t GROUP BY 1; ALTER TABLE v ALTER part SET (n_distinct = 2), ALTER k SET (n_distinct = 2);"
        " ANALYZE v"
    )
    same_groups(twins, "SELECT k, hll_union_agg(h) FROM v GROUP BY k")
    same_groups(twins, "SELECT part, hll_union_agg(h) FROM v GROUP BY part")


# ---- hll_union_agg() -------------------------------------------------------------------------------

# values that the extension does not make, or refuses, or that do not go with the others
STRANGE_VALUES = {
    "undefined": "108b7f",
    "version 2": "218b7f",
    "type 7": "178b7f",
    "two bytes": "118b",
    "empty with a tail": "118b7f00",
    "explicit without hashes": "128b7f",
    "explicit cut off": "128b7f00000000000000",
    "explicit descending": "128b7f00000000000000020000000000000001",
    "explicit twice": "128b7f00000000000000010000000000000001",
    "explicit where there is none": "128b400000000000000001",
    "explicit above its threshold": "128b4100000000000000010000000000000002",
    "sparse without registers": "138b7f",
    "sparse descending": "138b7f00610021",
    "sparse twice": "138b7f00210022",
    "sparse cut off": "138b7f0021ff",
    "full cut off": "148b7f00ff",
    "another width": "116b7f",
    "another number of registers": "118a7f",
    "another threshold": "118b7e",
    "dense only": "118b3f",
    "a width of 8": "11eb7f",
    "too many registers": "119f7f",
    "a bit too many": "118bff",
}


@pytest.mark.parametrize("name", STRANGE_VALUES)
def test_strange_values(tables: Twins, name: str) -> None:
    """Alone, before and after values of all kinds, in one group and in one of several."""
    strange = f"'\\x{STRANGE_VALUES[name]}'::bytea::hll"
    tables.execute(
        "DROP TABLE IF EXISTS u; CREATE TABLE u (id integer, g integer, h hll)",
        f"INSERT INTO u SELECT n, n, {strange} FROM generate_series(1, 9) AS n",
        "INSERT INTO u SELECT 10 + s.id, g.g, s.h FROM generate_series(1, 12) AS g, s"
        " WHERE s.id % 9 = g.g - 2 AND s.h IS NOT NULL ORDER BY g.g, s.id",
        f"INSERT INTO u SELECT 200 + n, 9 + n, {strange} FROM generate_series(0, 3) AS n",
    )
    groups = [f"g = {g}" for g in range(1, 13)]
    for condition in (*groups, "g IN (4, 7)", "id IN (1, 2)", "id < 100"):
        tables.same(f"SELECT hll_union_agg(h) FROM u WHERE {condition}")
        tables.same(f"SELECT g % 1, hll_union_agg(h) FROM u WHERE {condition} GROUP BY g % 1")
    tables.execute("DROP TABLE u")


def test_unions_of_other_parameters(tables: Twins) -> None:
    for parameters in PARAMETERS:
        add = f"hll_add_agg(hll_hash_integer(dense){parameters})"
        parts = f"(SELECT id % 100 AS k, {add} AS h FROM m WHERE id <= 6000 GROUP BY 1)"
        tables.execute(
            f"DROP TABLE IF EXISTS v; CREATE TABLE v AS SELECT * FROM {parts} AS p ORDER BY k"
        )
        same_by_kernels(tables, "SELECT hll_union_agg(h) FROM v")
        same_by_kernels(tables, "SELECT k % 7, hll_union_agg(h), count(*) FROM v GROUP BY k % 7")
        go_parallel(tables)
        tables.same("SELECT hll_union_agg(h) FROM v")
        tables.execute("SET max_parallel_workers_per_gather = 0")
    tables.execute("DROP TABLE v")


# ---- the session -----------------------------------------------------------------------------------


def test_defaults_of_the_session(tables: Twins) -> None:
    queries = (
        "SELECT hll_add_agg(hll_hash_integer(few)), hll_add_agg(hll_hash_integer(dense)) FROM m",
        "SELECT hll_add_agg(hll_hash_integer(dense), 12) FROM m WHERE id < 900",
        "SELECT g, hll_add_agg(hll_hash_integer(dense)), hll_add_agg(hll_hash_text(word), 9, 6) FROM m GROUP BY g",
        "SELECT g, hll_union_agg(h) FROM s GROUP BY g",
    )
    for defaults in ("10, 4, 64, 0", "9, 7, 0, 1", "14, 5, -1, 1"):
        for max_sparse in (-1, 0, 500, 1_000_000):
            tables.execute(f"SELECT hll_set_defaults({defaults}), hll_set_max_sparse({max_sparse})")
            for query in queries:
                same_groups(tables, query)


def test_forced_sorting_changes_nothing(tables: Twins) -> None:
    tables.execute("SET hll.force_groupagg = on")
    tables.same("SELECT g, hll_add_agg(hll_hash_integer(dense)) FROM m GROUP BY g")
    go_parallel(tables)
    tables.same("SELECT g, hll_add_agg(hll_hash_integer(dense)) FROM m GROUP BY g")


def test_a_rescan_reads_defaults_again(tables: Twins) -> None:
    query = (
        "SELECT n, (SELECT hll_add_agg(hll_hash_integer(dense)) FROM m WHERE g < n)"
        " FROM generate_series(0, 5) AS n"
    )
    tables.same(query)
    tables.same(query.replace("WHERE g < n", "WHERE id > n * 2000 AND g < n"))


# ---- whose functions they are ----------------------------------------------------------------------

IMPOSTOR = (
    "CREATE FUNCTION {schema}.hll_hash_integer(integer, integer DEFAULT 0) RETURNS public.hll_hashval"
    " LANGUAGE sql IMMUTABLE AS 'SELECT public.hll_hash_integer($1 / 10, $2)'"
)


def test_functions_of_others_are_not_the_extensions(tables: Twins) -> None:
    with tables.transaction("ROLLBACK"):
        tables.execute(IMPOSTOR)
        tables.same("SELECT g, hll_add_agg({schema}.hll_hash_integer(dense)) FROM m GROUP BY g")
        tables.execute(
            "CREATE AGGREGATE {schema}.my_add (hll_hashval) (SFUNC = hll_add_trans0, STYPE = internal,"
            " FINALFUNC = hll_floor_card_unpacked, COMBINEFUNC = hll_union_internal,"
            " SERIALFUNC = hll_serialize, DESERIALFUNC = hll_deserialize)"
        )
        same_groups(tables, "SELECT g, my_add(hll_hash_integer(dense)) FROM m GROUP BY g")
        tables.same("SELECT my_add(hll_hash_integer(dense)) FROM m")
    tables.same("SELECT g, hll_add_agg(hll_hash_integer(dense)) FROM m GROUP BY g")


def test_execute_permission_is_asked_for(tables: Twins) -> None:
    connection = tables.columnar.connection
    with connection.transaction(force_rollback=True):
        connection.execute("REVOKE EXECUTE ON FUNCTION hll_hash_integer FROM public")
        tables.columnar.execute(
            "CREATE ROLE {schema}_reader; GRANT USAGE ON SCHEMA {schema} TO {schema}_reader;"
            " GRANT SELECT ON m TO {schema}_reader; SET LOCAL ROLE {schema}_reader"
        )
        connection.execute("SELECT hll_add_agg(hll_hash_bigint(dense)) FROM m")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT hll_add_agg(hll_hash_integer(dense)) FROM m")


def test_an_extension_that_comes_and_goes(node: Node) -> None:
    """A session notices: with functions in another schema, of another oid, and with none."""
    database = "vector_hll"
    node.execute(f"DROP DATABASE IF EXISTS {database}")
    node.execute(f"CREATE DATABASE {database}")
    try:
        with node.connect(dbname=database) as connection:
            watch_extension(connection)
    finally:
        node.execute(f"DROP DATABASE {database}")


def watch_extension(connection: psycopg.Connection) -> None:
    connection.execute("CREATE EXTENSION IF NOT EXISTS strata_columnar")
    connection.execute(
        "CREATE TABLE c (v integer) USING columnar; CREATE TABLE r (v integer);"
        " INSERT INTO c SELECT g % 700 FROM generate_series(1, 3000) AS g; INSERT INTO r TABLE c"
    )
    query = "SELECT {0}.hll_add_agg({0}.hll_hash_integer(v))::text FROM {1}"
    count = "SELECT count(*), sum(v) FROM c"
    assert connection.execute(count).fetchall() == [(3000, 998700)]
    for schema in ("a", "b", "public"):
        connection.execute(
            f"CREATE SCHEMA IF NOT EXISTS {schema}; CREATE EXTENSION hll SCHEMA {schema}"
        )
        plan = connection.execute("EXPLAIN " + query.format(schema, "c")).fetchall()
        assert "ColumnarAggregate" in str(plan)
        assert "Evaluated by Row" not in str(plan)
        ((ours,),) = connection.execute(query.format(schema, "c")).fetchall()
        ((theirs,),) = connection.execute(query.format(schema, "r")).fetchall()
        assert ours == theirs
        connection.execute("DROP EXTENSION hll")
        assert connection.execute(count).fetchall() == [(3000, 998700)]
