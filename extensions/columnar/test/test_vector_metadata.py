"""Aggregates without keys take row groups from metadata where that is all there is to know, and answer as heap does.

Groups are of 1000 rows, so that each test can say which of them have to be read.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from extensions.columnar.test.random_story import PARALLEL
from extensions.columnar.test.twins import Twins, open_twins
from tests.cluster import Node

GROUPS = 8
SERIAL = "SET max_parallel_workers_per_gather = 0"

# a column of each kind: type, value by the row's number i
COLUMNS = {
    "small": ("smallint", "i % 100 - 50"),
    "middle": ("integer", "i * 37 % 1009 - 300"),
    "large": ("bigint", "9223372036854775000 - i * 3"),
    "edge": ("bigint", "CASE i % 2 WHEN 0 THEN -9223372036854775808 ELSE 9223372036854775807 END"),
    "truth": ("boolean", "i < 7900"),
    "half": ("real", "(i - 4000) / 3.0"),
    "real": ("double precision", "(i - 4000) / 3.0"),
    "zero": ("double precision", "CASE i % 3 WHEN 0 THEN '-0' WHEN 1 THEN '0' ELSE (i / 1000)::text END"),
    "odd": ("double precision", "CASE WHEN i BETWEEN 2001 AND 2999 THEN 'NaN' WHEN i % 50 = 7 THEN '-Infinity' WHEN i = 60 THEN 'NaN' ELSE i::text END"),
    "price": ("numeric(10, 2)", "(i - 4000) / 4.0"),
    "free": ("numeric", "round(i / 8.0, 3)"),
    "mixed": ("numeric", "round((i / 3) / 2.0, i % 4)"),
    "nan": ("numeric", "CASE WHEN i = 1234 THEN 'NaN' WHEN i = 2345 THEN 'Infinity' ELSE i::numeric END"),
    "wide": ("numeric(30, 5)", "i * 123456789012345678901.00001"),
    "huge": ("numeric", "i * 1e40"),
    "day": ("date", "CASE i WHEN 77 THEN 'infinity' WHEN 78 THEN '-infinity' ELSE date '2000-01-01' + i END"),
    "clock": ("time", "time '00:00' + i * interval '7 s'"),
    "moment": ("timestamp", "timestamp '2020-01-01' + i * interval '7 min'"),
    "stamp": ("timestamptz", "timestamptz '2020-01-01 00:00+00' + i * interval '7 min'"),
    "span": ("interval", "(i % 24) * interval '1 h' + (i % 3) * interval '1 day'"),
    "coins": ("money", "(i * 17 % 997)::money"),
    "word": ('text COLLATE "C"', "'word ' || i * 7919 % 1999"),
    "long": ('text COLLATE "C"', "repeat('x', 18 + i % 8) || i * 7919 % 1999"),
    "short": ('varchar(30) COLLATE "C"', "i::text"),
    "padded": ('char(12) COLLATE "C"', "repeat('p', i % 12)"),
    "local": ("text", "CASE i % 2 WHEN 0 THEN 'a' ELSE 'B' END || i"),
    "bits": ("bit(8)", "(i % 256)::bit(8)"),
    "list": ("integer[]", "ARRAY[i % 10, i]"),
}  # fmt: skip

NUMBERS = ("small", "middle", "large", "edge", "half", "real", "zero", "price", "free", "mixed", "nan", "wide", "huge", "coins", "span")  # fmt: skip
WITHOUT_EXTREMES = ("truth", "bits")

DEFINITION = ", ".join(f"{name} {type_}" for name, (type_, _) in COLUMNS.items())


def values(nulls: str) -> str:
    """Each column's value for a row i, NULL where the condition is true."""
    return ", ".join(
        f"CASE WHEN NOT ({nulls}) THEN ({value})::{type_.split(' COLLATE')[0]} END"
        for type_, value in COLUMNS.values()
    )


def fill(table: str, nulls: str = "i % 17 = 5 OR i BETWEEN 4001 AND 5000") -> str:
    return (
        f"INSERT INTO {table} (id, {', '.join(COLUMNS)}) SELECT i, {values(nulls)}"
        f" FROM generate_series(1, {GROUPS} * 1000) AS i ORDER BY i"
    )


def aggregates(column: str) -> list[str]:
    result = [f"count({column})"]
    if column == "truth":
        result += ["bool_and(truth)", "bool_or(truth)", "every(truth)"]
    if column not in WITHOUT_EXTREMES:
        result += [f"min({column})", f"max({column})"]
    if column in NUMBERS:
        result += [f"sum({column})"] + ([f"avg({column})"] if column != "coins" else [])
    return result


@pytest.fixture(scope="module")
def sides(node: Node) -> Iterator[Twins]:
    """t: eight row groups; parts: a tree with a reordered member."""
    with open_twins(node, "test_vector_metadata") as made:
        made.execute(
            "SET strata_columnar.row_group_rows = 1024",
            SERIAL,
            f"CREATE TABLE t (id integer, {DEFINITION}) WITH (autovacuum_enabled = off)",
            *(
                f"INSERT INTO t SELECT * FROM (SELECT i, {values('i % 17 = 5 OR i BETWEEN 4001 AND 5000')}"
                f" FROM generate_series({group} * 1000 + 1, {group} * 1000 + 1000) AS i ORDER BY i) AS s"
                for group in range(GROUPS)
            ),
            "ANALYZE t",
            f"CREATE TABLE parts (id integer, {DEFINITION}) PARTITION BY RANGE (id)",
            "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (3001)",
            f"CREATE TABLE parts_2 (gone text, {DEFINITION}, id integer); ALTER TABLE parts_2 DROP COLUMN gone",
            "ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM (3001) TO (6001)",
            "CREATE TABLE parts_3 PARTITION OF parts FOR VALUES FROM (6001) TO (20000)",
            fill("parts"),
            "ANALYZE parts",
        )
        yield made


@pytest.fixture
def tables(sides: Twins) -> Iterator[Twins]:
    yield sides
    sides.reset()
    sides.execute(SERIAL)


def taken(twins: Twins, query: str) -> int:
    """Row groups from metadata, as EXPLAIN tells it; -1: nobody asks for them."""
    plan = twins.plan(query, "ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF")
    found = re.findall(r"Row Groups From Metadata: (\d+)", plan)
    return sum(map(int, found)) if found else -1


# ---- every type ------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["t", "parts"])
@pytest.mark.parametrize("column", COLUMNS)
def test_aggregates_of_every_type_equal_those_of_heap(
    tables: Twins, column: str, table: str
) -> None:
    for aggregate in aggregates(column):
        tables.same(f"SELECT {aggregate} FROM {table}")
    several = ", ".join([*aggregates(column), "count(*)", "count(7)"])
    for where in (
        "",
        "WHERE id > 2500",
        "WHERE id BETWEEN 1001 AND 7000",
        "WHERE id <= 0",
    ):
        tables.same(f"SELECT {several} FROM {table} {where}")
        tables.same(f"SELECT {several} FROM {table} {where} HAVING count(*) > 100")
    tables.same(f"SELECT {several} FROM {table} WHERE {column} IS NULL")
    tables.same(f"SELECT {several} FROM {table} WHERE {column} IS NOT NULL AND id < 4500")


# exact bounds: of how many of the eight groups, by column
EXACT = {
    "small": GROUPS,
    "middle": GROUPS,
    "edge": GROUPS,
    "truth": GROUPS,
    "real": GROUPS,
    "half": GROUPS,
    "price": GROUPS,
    "free": GROUPS,
    "mixed": 1,  # the group of NULLs
    "wide": GROUPS,
    "day": GROUPS,
    "clock": GROUPS,
    "moment": GROUPS,
    "stamp": GROUPS,
    "coins": GROUPS,
    "word": GROUPS,
    "short": GROUPS,
    "long": 1,
    "span": 1,
}


@pytest.mark.parametrize("column", EXACT)
def test_bounds_are_taken_where_they_are_values(tables: Twins, column: str) -> None:
    query = (
        "SELECT bool_or(truth) FROM t"
        if column == "truth"
        else f"SELECT min({column}), max({column}) FROM t"
    )
    assert taken(tables, query) == (-1 if column == "span" else EXACT[column])


def test_zeroes_and_nans_are_read(tables: Twins) -> None:
    # zeroes are the minimum of all groups but that of NULLs, and the maximum of the first
    assert taken(tables, "SELECT min(zero) FROM t") == 1
    assert taken(tables, "SELECT max(zero) FROM t") == GROUPS - 1
    # NaN: the maximum of the first group, all of the third
    assert taken(tables, "SELECT max(odd) FROM t") == GROUPS - 2
    assert taken(tables, "SELECT sum(nan) FROM t") == GROUPS - 2
    assert taken(tables, "SELECT sum(real) FROM t") == -1
    assert taken(tables, "SELECT sum(coins) FROM t") == -1


def test_collations_without_the_order_of_bytes_are_read(tables: Twins) -> None:
    tables.same("SELECT min(local), max(local), min(word), max(word) FROM t")
    for collation in ('"en_US.utf8"', '"C"', '"und-x-icu"'):
        found = tables.columnar.execute(
            f"SELECT 1 FROM pg_collation WHERE quote_ident(collname) = '{collation}' OR collname = {collation.replace(chr(34), chr(39))}"
        )
        if found:
            tables.same(f"SELECT min(local COLLATE {collation}), max(word COLLATE {collation}) FROM t")  # fmt: skip


# ---- which rows ------------------------------------------------------------------------------------

ALL = (
    "count(*), count(middle), min(middle), max(large), sum(small), avg(large), sum(price), avg(free), max(word),"
    " min(moment), bool_and(truth), sum(middle * 2 - 7)"
)


def same_after(twins: Twins, table: str, expected: int | None = None) -> None:
    for where in (
        "",
        "WHERE id > 1500",
        "WHERE id <> 17",
        "WHERE id BETWEEN 2001 AND 3000",
    ):
        twins.same(f"SELECT {ALL} FROM {table} {where}")
    if expected is not None:
        assert taken(twins, f"SELECT {ALL} FROM {table}") == expected


@pytest.fixture
def changed(tables: Twins) -> Iterator[Twins]:
    """u: a copy of t to be changed."""
    tables.execute(
        "CREATE TABLE u (LIKE t) WITH (autovacuum_enabled = off)",
        *(
            f"INSERT INTO u SELECT * FROM t WHERE id > {group} * 1000 AND id <= {group} * 1000 + 1000 ORDER BY id"
            for group in range(GROUPS)
        ),
    )
    yield tables
    tables.reset()
    tables.verify()
    tables.execute("DROP TABLE u")


def test_groups_with_deleted_rows_are_read(changed: Twins) -> None:
    same_after(changed, "u", GROUPS)
    changed.execute("DELETE FROM u WHERE id IN (500, 3500)")
    same_after(changed, "u", GROUPS - 2)
    changed.execute("DELETE FROM u WHERE id BETWEEN 5001 AND 6000")
    same_after(changed, "u", GROUPS - 3)
    changed.execute("DELETE FROM u")
    same_after(changed, "u", 0)


def test_groups_with_updated_rows_are_read(changed: Twins) -> None:
    changed.execute("UPDATE u SET middle = 100000, word = 'zzz', price = -5 WHERE id IN (2, 7777)")
    same_after(changed, "u")
    changed.execute("UPDATE u SET middle = middle + 1")
    same_after(changed, "u")
    changed.execute("VACUUM u")
    same_after(changed, "u")


def test_own_rows_and_savepoints_count(changed: Twins) -> None:
    insert = "INSERT INTO u SELECT id + 10000, " + ", ".join(COLUMNS) + " FROM t WHERE id <= {}"
    with changed.transaction("ROLLBACK"):
        changed.execute(insert.format(30))
        same_after(changed, "u")
        changed.execute("SAVEPOINT a", insert.format(2000), "DELETE FROM u WHERE id = 1")
        same_after(changed, "u")
        changed.execute("ROLLBACK TO a")
        same_after(changed, "u")
        changed.execute("DELETE FROM u WHERE id > 7000", "SAVEPOINT b", "UPDATE u SET small = 1")
        same_after(changed, "u")
        changed.execute("RELEASE b")
        same_after(changed, "u")
    same_after(changed, "u", GROUPS)


def test_a_command_does_not_see_what_it_writes(changed: Twins) -> None:
    changed.same(
        "WITH w AS (INSERT INTO u (id, middle) SELECT i, 5000000 FROM generate_series(1, 2000) AS i RETURNING id)"
        " SELECT (SELECT count(*) FROM w), (SELECT max(middle) FROM u), (SELECT count(*) FROM u)"
    )
    same_after(changed, "u")


def test_older_snapshots_see_deleted_rows(changed: Twins) -> None:
    with changed.transaction(begin="BEGIN ISOLATION LEVEL REPEATABLE READ"):
        changed.same(f"SELECT {ALL} FROM u")
        for side in changed.sides:
            other = changed.open_side(side.method)
            other.execute("DELETE FROM u WHERE id % 3 = 0; INSERT INTO u (id, middle) VALUES (1, 1e9)")  # fmt: skip
            other.connection.close()
        same_after(changed, "u", GROUPS)
    same_after(changed, "u")


def test_columns_that_came_later(changed: Twins) -> None:
    changed.execute(
        'ALTER TABLE u ADD later integer DEFAULT 5, ADD empty text COLLATE "C"',
        "ALTER TABLE u DROP small",
    )
    query = "SELECT count(later), min(later), max(later), sum(later), count(empty), max(empty), sum(later + 1) FROM u"
    changed.same(query)
    assert taken(changed, query) == 0
    changed.execute("INSERT INTO u (id, later, empty) SELECT i, i, 'e' FROM generate_series(1, 1000) AS i")  # fmt: skip
    changed.same(query)
    assert taken(changed, query) == 1


def test_types_that_changed_without_a_rewrite(changed: Twins) -> None:
    changed.execute(
        "ALTER TABLE u ALTER short TYPE text, ALTER price TYPE numeric(12, 2), ALTER free TYPE numeric",
        'ALTER TABLE u ALTER word TYPE text COLLATE "C.utf8"'
        if changed.columnar.execute("SELECT 1 FROM pg_collation WHERE collname = 'C.utf8'")
        else "SELECT 1",
    )
    changed.same("SELECT min(short), max(short), min(price), sum(price), min(word), max(word) FROM u")  # fmt: skip


# ---- conditions ------------------------------------------------------------------------------------

CONDITIONS = {
    "id > 3000": 5,
    "id >= 3001": 5,
    "id > 3500": 4,
    "3000 < id AND id <= 7000": 4,
    "id BETWEEN 1001 AND 2000": 1,
    "id BETWEEN 1001 AND 2000 OR id > 7000": 2,
    "id = ANY (ARRAY[5, 6])": 0,
    "moment > '2020-01-10'": None,
    "id > 10 AND middle IS NOT NULL": 0,
    "middle IS NULL": 1,
    "id > 0 AND NOT truth": 0,
    "id::bigint > 3000": 0,
    "id > 3000::bigint": 5,
    "id > 3000 AND id % 2 = 0": 0,
    "(id > 3000 AND id % 2 = 0) OR id > 5000": 3,
    "(id > 3000) IS TRUE": 5,
    "(id > 3000) IS NOT FALSE": 0,
    "id > (SELECT 3000)": 5,
    "id > length(current_setting('server_version_num')) + 2994": 5,
    "word >= 'word'": 0,  # has NULLs
    "id > -1 AND large > 0": 0,
    "id <> 0": 0,
    "id > NULL": None,
    "false": None,
    "id + 0 > 3000": 0,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_groups_that_pass_a_condition_as_a_whole(tables: Twins, condition: str) -> None:
    for wanted in ("count(*)", "count(*), min(middle), sum(large), max(short)"):
        query = f"SELECT {wanted} FROM t WHERE {condition}"
        tables.same(query)
        if CONDITIONS[condition] is not None:
            assert taken(tables, query) == CONDITIONS[condition]
    # blocks that pass need no look at the condition's columns
    tables.same(f"SELECT sum(id % 7), count(DISTINCT middle) FROM t WHERE {condition}")
    tables.same(f"SELECT id, middle FROM t WHERE {condition} ORDER BY id LIMIT 20")


def test_parameters_decide_anew(tables: Twins) -> None:
    tables.same(
        "SELECT x, (SELECT (count(*), min(middle), sum(large)) FROM t WHERE id > x) FROM generate_series(0, 8000, 500) AS x"
    )
    tables.execute("SET plan_cache_mode = force_generic_plan", "PREPARE p(int) AS SELECT count(*), sum(middle + 1) FROM t WHERE id > $1")  # fmt: skip
    for number in (0, 1000, 1500, 9000):
        tables.same(f"EXECUTE p({number})")
    tables.execute("DEALLOCATE p", "RESET plan_cache_mode")


def test_row_security_hides_bounds(tables: Twins) -> None:
    tables.execute(
        "CREATE TABLE secret AS SELECT * FROM t; ALTER TABLE secret ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE secret FORCE ROW LEVEL SECURITY",
        "CREATE POLICY p ON secret USING (id % 2 = 0 OR id < 1000)",
        "DO $$ BEGIN CREATE ROLE md_reader; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        "GRANT SELECT ON secret TO md_reader; GRANT USAGE ON SCHEMA {schema} TO md_reader",
        "SET ROLE md_reader",
    )
    try:
        tables.same("SELECT count(*), min(id), max(id), sum(middle) FROM secret")
        tables.same("SELECT count(*), min(id), max(id), sum(middle) FROM secret WHERE id > 2001")
    finally:
        tables.execute("RESET ROLE", "DROP TABLE secret")
    tables.columnar.execute("REASSIGN OWNED BY md_reader TO CURRENT_USER; DROP OWNED BY md_reader; DROP ROLE md_reader")  # fmt: skip


# ---- several processes, trees ----------------------------------------------------------------------


@pytest.mark.parametrize("table", ["t", "parts"])
def test_processes_take_groups_of_their_own(tables: Twins, table: str) -> None:
    tables.execute(*PARALLEL.split(";") if isinstance(PARALLEL, str) else PARALLEL)
    try:
        for where in ("", "WHERE id > 2500", "WHERE middle > 0"):
            tables.same(f"SELECT {ALL} FROM {table} {where}")
            tables.same(f"SELECT {ALL}, count(DISTINCT small) FROM {table} {where}")
    finally:
        tables.execute("RESET ALL", "SET search_path = {schema}, public; SET default_table_access_method = {am}", SERIAL)  # fmt: skip


def test_a_tree_is_answered_leaf_by_leaf(tables: Twins) -> None:
    query = f"SELECT {ALL} FROM parts"
    plan = tables.plan(query, "ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF")
    groups = sum(map(int, re.findall(r"Row Groups: (\d+)", plan)))
    assert taken(tables, query) == groups > 0


def test_partial_aggregates_of_a_coordinator_are_served(tables: Twins) -> None:
    """They have the transition functions of core's, and return states."""
    tables.execute(
        "CREATE AGGREGATE sum_part(bigint) (SFUNC = int8_avg_accum, STYPE = internal, FINALFUNC = int8_avg_serialize,"
        " SERIALFUNC = int8_avg_serialize, DESERIALFUNC = int8_avg_deserialize, COMBINEFUNC = int8_avg_combine, PARALLEL = SAFE)",
        "CREATE AGGREGATE avg_part(integer) (SFUNC = int4_avg_accum, STYPE = bigint[], COMBINEFUNC = int4_avg_combine,"
        " INITCOND = '{0,0}', PARALLEL = SAFE)",
        "CREATE AGGREGATE min_part(date) (SFUNC = date_smaller, STYPE = date, COMBINEFUNC = date_smaller, PARALLEL = SAFE)",
    )
    query = "SELECT sum_part(large), avg_part(middle + 2), min_part(day) FROM t"
    for where in ("", "WHERE id > 2500", "WHERE middle IS NULL", "WHERE id < 0"):
        tables.same(f"{query} {where}")
    assert taken(tables, query) == GROUPS
    tables.execute("DROP AGGREGATE sum_part(bigint), avg_part(integer), min_part(date)")


def test_explain_is_silent_where_metadata_are_of_no_use(tables: Twins) -> None:
    for query in (
        "SELECT sum(middle), stddev(middle) FROM t",
        "SELECT count(*) FILTER (WHERE id > 5) FROM t WHERE id > 0",
        "SELECT sum(DISTINCT middle) FROM t",
        "SELECT min(middle + 1) FROM t",
        "SELECT small, sum(middle) FROM t GROUP BY small",
        "SELECT middle FROM t WHERE id > 5",
    ):
        tables.same(query)
        assert taken(tables, query) == -1, query


# ---- sums computed from others -----------------------------------------------------------------------

SUMS = [
    "sum(middle), avg(middle), sum(middle + 1), sum(middle - 1), sum(5 - middle), avg(3 * middle + 7), sum(-1 * (middle - 9))",
    "sum(small + 100000), sum(small - 2::smallint), sum(small * 300), avg(small + 5::bigint), sum(2 + small * 3)",
    "sum(large), sum(large - 9223372036854775000), avg(large - 1), sum(large::numeric), sum(edge), avg(edge)",
    "sum(middle::bigint * 4000000000), sum(middle * 0), sum(middle::bigint + small), avg(small::int + 1)",
    "sum(middle + 1) FILTER (WHERE small > 3), sum(middle + 2) FILTER (WHERE small > 3), sum(middle), avg(middle) FILTER (WHERE id < 0)",
    "sum(middle % 10 + 1), sum(middle % 10 + 2), avg(length(word) - 1), sum(abs(middle) * 2)",
    "sum(DISTINCT middle + 1), sum(middle + 1), count(middle + 1), max(middle + 1)",
]  # fmt: skip


@pytest.mark.parametrize("grouped", ["", "GROUP BY small", "GROUP BY id % 3", "GROUP BY id"])
@pytest.mark.parametrize("sums", SUMS)
def test_sums_of_linear_expressions_equal_those_of_heap(
    tables: Twins, sums: str, grouped: str
) -> None:
    key = grouped.removeprefix("GROUP BY") + ", " if grouped else ""
    for where in (
        "",
        "WHERE id > 1500 AND small <> 7",
        "WHERE middle IS NULL",
        "WHERE id < 0",
    ):
        tables.same(f"SELECT {key}{sums} FROM t {where} {grouped}")
        tables.same(f"SELECT {key}{sums} FROM t {where} {grouped} HAVING sum(middle + 3) > -5000")


OVERFLOWS = [
    ("sum(large + 1000)", "22003"),
    ("sum(edge - 1)", "22003"),
    ("avg(edge * 2)", "22003"),
    ("sum(0 - edge)", "22003"),
    ("sum(middle * 10000000)", "22003"),
    ("sum(2147483647 + middle)", "22003"),
    ("sum(-2147483648 - middle)", "22003"),
    ("sum(small * 1000::smallint)", "22003"),
    ("sum(small + 32760::smallint), sum(small + 1)", "22003"),
    ("sum(middle + 1), sum(middle * 100000000 - 5)", "22003"),
]


@pytest.mark.parametrize(("sums", "sqlstate"), OVERFLOWS)
def test_terms_out_of_range_are_errors(tables: Twins, sums: str, sqlstate: str) -> None:
    tables.fails(f"SELECT {sums} FROM t", sqlstate)
    tables.fails(f"SELECT id % 5, {sums} FROM t GROUP BY 1", sqlstate)


def test_terms_of_rows_that_do_not_count_may_be_out_of_range(tables: Twins) -> None:
    for where in ("small BETWEEN -3 AND 3", "id > 4000 AND middle BETWEEN -20 AND 20"):
        tables.same(f"SELECT sum(middle * 100000000), sum(middle + 1) FROM t WHERE {where} AND middle BETWEEN -21 AND 21")  # fmt: skip
        tables.same(
            "SELECT sum(middle * 100000000) FILTER (WHERE middle BETWEEN -21 AND 21), sum(middle) FROM t"
            f" WHERE {where}"
        )
        tables.same(f"SELECT small, sum(small * 3000::smallint) FROM t WHERE {where} AND small BETWEEN -10 AND 10 GROUP BY small")  # fmt: skip


# ---- chance ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_random_aggregates_after_random_changes(changed: Twins, seed: int) -> None:
    rng = random.Random(seed)
    pool = [aggregate for column in COLUMNS for aggregate in aggregates(column)]
    pool += ["count(*)", "sum(middle + 4)", "avg(2 * small - 1)", "sum(small + 7)"]
    for _ in range(12):
        low = rng.randrange(-500, 8500)
        high = low + rng.choice((0, 10, 1000, 3000))
        condition = rng.choice(
            (
                f"id > {low}",
                f"id BETWEEN {low} AND {high}",
                f"id < {low}",
                f"id IN ({low}, {high})",
            )
        )
        change = rng.randrange(5)
        if change == 0:
            changed.execute(f"DELETE FROM u WHERE id = {low}")
        elif change == 1:
            changed.execute(f"UPDATE u SET middle = {rng.randrange(-9999, 9999)} WHERE id BETWEEN {low} AND {low + 3}")  # fmt: skip
        elif change == 2:
            changed.execute(f"INSERT INTO u SELECT * FROM t WHERE id BETWEEN {low} AND {high}")
        chosen = ", ".join(rng.sample(pool, rng.randrange(1, 6)))
        changed.same(f"SELECT {chosen} FROM u WHERE {condition}")
        changed.same(f"SELECT {chosen} FROM u")


def test_planning_looks_at_few_deletes(twins: Twins) -> None:
    """What is asked is whether most row groups have any: not each of a thousand bitmaps."""
    hits = {}
    for table, deleted in (("few", "id = 7"), ("many", "id % 1000 = 0")):
        twins.execute(
            f"CREATE TABLE {table} (id integer, v bigint)",
            f"INSERT INTO {table} SELECT g, 1 FROM generate_series(1, 1200000) AS g",
            f"DELETE FROM {table} WHERE {deleted}",
            f"ANALYZE {table}",
        )
        query = f"SELECT sum(v) FROM {table}"
        twins.same(query)
        plan = twins.plan(query, "ANALYZE, BUFFERS, COSTS OFF, TIMING OFF")
        hits[table] = int(re.search(r"Planning:\s+Buffers: shared hit=(\d+)", plan)[1])
    assert hits["many"] < hits["few"] + 10, hits
