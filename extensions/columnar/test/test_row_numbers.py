"""Stored row numbers of merged row groups: read where they matter, and found where they have gaps or no order."""

from __future__ import annotations

import time

import psycopg
import pytest

from extensions.columnar.test.test_old_snapshots import WAYS
from extensions.columnar.test.twins import Side, Twins
from tests.waiting import wait_until

ROWS = 6_000

# What makes stored numbers necessary: gaps, another order, and both.
KINDS = {
    "gaps": "",
    "unordered": "order_by => 'v'",
    "unordered, several groups": "order_by => 'v', row_group_rows => 1024",
}

# Where rows are deleted once numbers are stored: nowhere, one, ends of blocks, whole blocks, many.
DELETES = (
    "id = 2700",
    "id IN (0, 1, 2, 1500, 1501, 1502)",
    "id BETWEEN 1600 AND 3700",
    "id % 97 = 5",
    "v = 77 OR id > 5700",
    "id % 2 = 1",
)

QUERIES = (
    "SELECT count(*), sum(id), sum(v % 7), min(s), max(s) FROM t",
    "SELECT count(*) FROM t",
    "SELECT count(*), sum(id) FROM t WHERE v = 77",
    "SELECT id, v, s FROM t WHERE id BETWEEN 1490 AND 1530 ORDER BY id",
    "SELECT id, v FROM t WHERE s LIKE '%999%' ORDER BY id",
    "SELECT v % 10, count(*), sum(id) FROM t GROUP BY 1 ORDER BY 1",
    "SELECT count(*), sum(hashtext(t::text)) FROM t",
    "SELECT count(*), sum(v) FROM t WHERE id = ANY (ARRAY(SELECT g * 7 FROM generate_series(1, 800) AS g))",
)


def settle(side: Side, table: str = "t") -> None:
    """Merge everything and drop what is dead; other tests' sessions may hold it for a while."""
    for _ in wait_until("dead rows are dropped"):
        side.execute(f"SELECT strata_columnar.columnar_compact('{table}', everything => true)")
        dead = f"SELECT sum(deleted_rows) FROM strata_columnar.columnar_row_groups('{table}')"
        if side.execute(dead) == [(0,)]:
            break


def number_bytes(side: Side, table: str = "t") -> int:
    """Bytes of row groups that are no column's: footers, and row numbers where they are stored."""
    ((rest,),) = side.execute(
        f"SELECT (SELECT sum(bytes) FROM strata_columnar.columnar_row_groups('{table}'))::bigint"
        f" - (SELECT sum(bytes) FROM strata_columnar.columnar_chunks('{table}'))::bigint"
    )
    return rest


def bytes_read(side: Side, query: str) -> int:
    def total(plan: dict) -> int:
        return plan.get("Bytes Read", 0) + sum(map(total, plan.get("Plans", ())))

    ((plan,),) = side.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {query}")
    return total(plan[0]["Plan"])


@pytest.fixture
def side(twins: Twins) -> Side:
    side = twins.columnar
    side.execute("SET strata_columnar.enable_merge = off; SET max_parallel_workers_per_gather = 0")
    return side


def test_merged_neighbours_store_no_row_numbers(side: Side) -> None:
    """Whose numbers follow each other as those of a load do."""
    side.execute("CREATE TABLE t (id integer, v integer)")
    side.execute("CREATE TABLE loaded (id integer, v integer)")
    for first in range(0, 10000, 1000):
        rows = f"SELECT g, hashint4(g) FROM generate_series({first}, {first + 999}) AS g"
        side.execute(f"INSERT INTO t {rows}")
    side.execute("INSERT INTO loaded SELECT * FROM t ORDER BY id")
    settle(side)
    assert number_bytes(side) == number_bytes(side, "loaded")
    side.execute("VACUUM FULL t")
    assert number_bytes(side) == number_bytes(side, "loaded")
    assert side.execute("SELECT count(*), sum(id) FROM t") == [(10000, 49995000)]


@pytest.mark.parametrize("deletes", ["false", "id = 40000"])
def test_scans_read_no_row_numbers(side: Side, deletes: str) -> None:
    """Where a row was deleted, those of its row group."""
    side.execute("CREATE TABLE t (id integer, v integer)")
    side.execute("SELECT strata_columnar.alter_columnar_table_set('t', row_group_rows => 8192)")
    side.execute("INSERT INTO t SELECT g, hashint4(g) FROM generate_series(1, 80000) AS g")
    side.execute("DELETE FROM t WHERE hashint4(id + 7) % 3 = 0")
    settle(side)
    numbers = number_bytes(side)
    assert numbers > 10000
    side.execute(f"DELETE FROM t WHERE {deletes}")
    ((column,),) = side.execute(
        "SELECT sum(bytes)::bigint FROM strata_columnar.columnar_chunks('t') WHERE column_name = 'v'"
    )
    for query in ("SELECT sum(v % 10) FROM t", "SELECT count(*) FROM t WHERE v % 10 = 3"):
        read = bytes_read(side, query)
        assert column <= read < column + numbers / 2, (query, column, numbers, read)


@pytest.fixture(params=KINDS)
def merged(twins: Twins, request: pytest.FixtureRequest) -> Twins:
    """t with stored row numbers, on both sides."""
    twins.columnar.execute("SET strata_columnar.enable_merge = off")
    twins.execute("CREATE TABLE t (id integer, v integer, s text) WITH (autovacuum_enabled = off)")
    if KINDS[request.param]:
        twins.columnar.execute(
            f"SELECT strata_columnar.alter_columnar_table_set('t', {KINDS[request.param]})"
        )
    for first in range(0, ROWS, ROWS // 4):
        twins.execute(
            "INSERT INTO t SELECT g, abs(hashint4(g)) % 100, 'text ' || hashint4(g)"
            f" FROM generate_series({first}, {first + ROWS // 4 - 1}) AS g"
        )
    twins.execute(
        "CREATE UNIQUE INDEX ON t (id); CREATE INDEX ON t (v)", "DELETE FROM t WHERE id % 11 = 3"
    )
    settle(twins.columnar)
    assert number_bytes(twins.columnar) > 600
    twins.execute("VACUUM ANALYZE t")
    return twins


def test_reads_of_merged_groups(merged: Twins) -> None:
    """By every way, with older snapshots of every state held beside."""
    held: list[list[Side]] = []

    def compare() -> None:
        for sides in [*held, merged.sides]:
            expected = [sides[0].execute(query) for query in QUERIES]
            for way in WAYS.values():
                sides[1].execute(way)
                assert [sides[1].execute(query) for query in QUERIES] == expected, way

    compare()
    for deletes in DELETES:
        held.append([merged.open_side(side.method) for side in merged.sides])
        for side in held[-1]:
            side.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            side.execute("SELECT count(*) FROM t")
        merged.same(f"DELETE FROM t WHERE {deletes}")
        compare()
        merged.columnar.execute("SELECT strata_columnar.columnar_compact('t', everything => true)")
        merged.execute("VACUUM t")
        compare()
    for sides in held:
        for side in sides:
            side.connection.close()
    settle(merged.columnar)
    merged.execute("VACUUM t")
    held.clear()
    compare()
    merged.columnar.execute("REINDEX TABLE t")
    compare()


def test_parallel_scans_of_merged_groups(merged: Twins) -> None:
    merged.same("DELETE FROM t WHERE id % 97 = 5")
    merged.execute(
        "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0"
    )
    for query in QUERIES:
        merged.same(query)


def test_places_of_merged_rows(merged: Twins) -> None:
    """ctid leads to its row, and a cursor's row can be changed: by batches, by rows, in either direction."""
    side = merged.columnar
    side.execute(WAYS["sequential"])
    for scan in ("on", "off"):
        side.execute(f"SET strata_columnar.enable_custom_scan = {scan}")
        assert side.execute(
            "SELECT count(*) FROM (SELECT ctid AS place, id FROM t WHERE v < 30) AS a"
            " JOIN LATERAL (SELECT id FROM t WHERE ctid = a.place OFFSET 0) AS b ON a.id = b.id"
        ) == side.execute("SELECT count(*) FROM t WHERE v < 30")
        assert side.execute(
            "SELECT count(DISTINCT ctid), count(*) FILTER (WHERE ctid >= '(2,1)' AND ctid < '(12,1)')"
            " = (SELECT count(*) FROM t WHERE ctid >= '(2,1)' AND ctid < '(12,1)') FROM t"
        ) == [(*side.execute("SELECT count(*) FROM t")[0], True)]
    side.execute("RESET strata_columnar.enable_custom_scan")
    for number, condition in enumerate(("v = 50", "s LIKE '%8'", "id > 2000 AND v % 3 = 1")):
        with merged.transaction():
            for each in merged.sides:
                each.execute(f"DECLARE c SCROLL CURSOR FOR SELECT id FROM t WHERE {condition}")
            place = side.execute("FETCH 30 FROM c")[-1][0]
            side.execute("UPDATE t SET s = 'changed' WHERE CURRENT OF c")
            merged.heap.execute(f"UPDATE t SET s = 'changed' WHERE id = {place}")
            place = side.execute("FETCH BACKWARD 10 FROM c")[-1][0]
            side.execute("DELETE FROM t WHERE CURRENT OF c")
            merged.heap.execute(f"DELETE FROM t WHERE id = {place}")
        merged.same("SELECT count(*), sum(id) FROM t")
        merged.same("SELECT id, v FROM t WHERE s = 'changed' ORDER BY id")
        merged.same(f"SELECT * FROM t WHERE v = {number} ORDER BY id FOR UPDATE")


def test_numbers_are_told_as_ranges(merged: Twins) -> None:
    """Of the rows that the statement sees, once each; and rows are read and deleted by their numbers."""
    side = merged.columnar
    side.execute("SET strata_columnar.enable_custom_scan = off; SET enable_seqscan = off")

    def compare() -> None:
        numbers = "SELECT strata_columnar.row_number(ctid) FROM t ORDER BY 1"
        expected = [number for (number,) in side.execute(numbers)]
        assert len(expected) == len(set(expected))
        for since in (0, 1, expected[len(expected) // 2], expected[-1], expected[-1] + 1):
            ranges = side.execute(f"SELECT * FROM strata_columnar.visible_rows('t', {since})")
            told = sorted(n for first, count in ranges for n in range(first, first + count))
            assert told == [number for number in expected if number >= since]
        for first, last in ((0, 10), (expected[5], expected[1100]), (1500, 1600), (10**6, 10**7)):
            rows = (
                "SELECT count(*), sum(id) FROM t WHERE ctid {} strata_columnar.row_tid({})"
                " AND ctid {} strata_columnar.row_tid({})"
            ).format(">=", first, "<=", last)
            assert "Tid Range Scan" in merged.plan(rows)
            by_number = (
                "SELECT count(*), sum(id) FROM t WHERE"
                f" strata_columnar.row_number(ctid) BETWEEN {first} AND {last}"
            )
            assert side.execute(rows) == side.execute(by_number)

    compare()
    for deletes in DELETES:
        side.execute(f"DELETE FROM t WHERE {deletes}")
        compare()
    settle(side)
    compare()
    side.execute("BEGIN")
    side.execute("INSERT INTO t SELECT g, g, 'new' FROM generate_series(10001, 11000) AS g")
    side.execute("SAVEPOINT a; INSERT INTO t VALUES (12000, 0, 'gone'); ROLLBACK TO a")
    side.execute("DELETE FROM t WHERE id = 10500; UPDATE t SET v = -1 WHERE id = 10600")
    compare()
    side.execute("COMMIT")
    compare()
    ((first,),) = side.execute("SELECT strata_columnar.row_number(ctid) FROM t WHERE id = 10001")
    side.execute(
        "DELETE FROM t WHERE ctid ="
        f" ANY (strata_columnar.row_tids('{{{first}, {first + 50}}}', '{{10, 5}}'))"
    )
    assert side.execute("SELECT count(*) FROM t WHERE id > 10000") == [(984,)]
    compare()
    for call, words in (
        ("row_tid(-1)", "no row number"),
        ("row_tid(9223372036854775807)", "no row number"),
        ("row_tids('{1}', '{}')", "as many counts"),
        ("row_tids('{1}', '{NULL}')", "without nulls"),
        ("row_tids('{1}', '{-1}')", "too many rows"),
        ("row_tids('{1}', '{9223372036854775807}')", "too many rows"),
        ("visible_rows('pg_class')", "columnar"),
    ):
        with pytest.raises(psycopg.Error, match=words):
            side.connection.execute(f"SELECT * FROM strata_columnar.{call}")


def seconds(side: Side, query: str) -> float:
    """The shortest of some runs."""

    def once() -> float:
        begin = time.perf_counter()
        side.execute(query)
        return time.perf_counter() - begin

    return min(once() for _ in range(5))


@pytest.mark.sample(2)
@pytest.mark.parametrize("order", ["", "order_by => 'v'"])
@pytest.mark.parametrize("keep", [3, 20])
def test_look_ups_in_merged_groups_take_as_long_as_in_others(
    side: Side, order: str, keep: int
) -> None:
    """However many rows are looked up, with gaps of any width, in order or not."""
    for table in ("t", "loaded"):
        side.execute(f"CREATE TABLE {table} (id integer, v integer)")
        if order:
            side.execute(f"SELECT strata_columnar.alter_columnar_table_set('{table}', {order})")
    rows = f"SELECT g, hashint4(g) FROM generate_series(1, {20000 * keep}) AS g"
    side.execute(f"INSERT INTO t {rows}")
    side.execute(f"DELETE FROM t WHERE hashint4(id) % {keep} <> 0")
    settle(side)
    side.execute("INSERT INTO loaded SELECT * FROM t ORDER BY id")
    look_up = "SELECT count(*), sum(v) FROM {0} WHERE id = ANY (ARRAY(SELECT id FROM {0} WHERE id % 3 = 1))"
    side.execute("CREATE INDEX ON t (id); CREATE INDEX ON loaded (id); ANALYZE t, loaded")
    side.execute(WAYS["index"])
    side.execute("SET strata_columnar.enable_custom_scan = off")
    assert side.execute(look_up.format("t")) == side.execute(look_up.format("loaded"))
    merged = seconds(side, look_up.format("t"))
    loaded = seconds(side, look_up.format("loaded"))
    assert merged < 5 * loaded + 0.05, (merged, loaded)
