"""Maintenance shows older snapshots what they saw before, by every way of reading, as it does on heap."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from extensions.columnar.test.twins import Side, Twins

# Each is the end of a statement about t; columnar functions have nothing to do on heap.
COMMANDS = {
    "vacuum": "VACUUM t",
    "vacuum full": "VACUUM FULL t",
    "vacuum full, freeze": "VACUUM (FULL, FREEZE) t",
    "vacuum full twice": "VACUUM FULL t; VACUUM FULL t",
    "merge": "SELECT strata_columnar.columnar_compact('t')",
    "merge everything, vacuum full": "SELECT strata_columnar.columnar_compact('t', everything => true); VACUUM FULL t",
    "recluster": "SELECT strata_columnar.alter_columnar_table_set('t', order_by => 'v'); SELECT strata_columnar.columnar_recluster('t')",
    "reindex": "REINDEX TABLE t",
    "reindex concurrently": "REINDEX INDEX t_pkey",
    "vacuum full, reindex": "VACUUM FULL t; REINDEX TABLE t",
    "vacuum full, vacuum": "VACUUM FULL t; VACUUM t",
    "merge, vacuum full, merge": "SELECT strata_columnar.columnar_compact('t'); VACUUM FULL t; SELECT strata_columnar.columnar_compact('t', everything => true)",
}  # fmt: skip

WAYS = {
    "sequential": "SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_seqscan = on",
    "index": "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_indexscan = on",
    "bitmap": "SET enable_seqscan = off; SET enable_indexscan = off; SET enable_bitmapscan = on",
}

QUERIES = (
    "SELECT * FROM t WHERE id IN (5, 777, 2400, 2999, 3001, 5555, 100000) ORDER BY id",
    "SELECT id, v, a, b FROM t WHERE v = 7 ORDER BY id",
    "SELECT count(*), sum(id), sum(v), count(a), min(a), min(b), max(c) FROM t WHERE id > 0",
    "SELECT count(*), sum(id) FROM t WHERE v >= 0",
)


@pytest.fixture(params=["background", "no background"])
def aged(twins: Twins, request: pytest.FixtureRequest) -> Iterator[dict[str, list[Side]]]:
    """Snapshots held on both sides at some points of a table's life; they have not looked at it yet."""
    held: dict[str, list[Side]] = {}

    def hold(name: str) -> None:
        held[name] = [twins.open_side(side.method) for side in twins.sides]
        for side in held[name]:
            side.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            side.execute("SELECT 1")

    def insert(batches: int) -> None:
        for _ in range(batches):
            twins.execute(
                "INSERT INTO t (id, v, s) SELECT g + (SELECT count(*) FROM ids), g % 50, 's' || g"
                " FROM generate_series(1, 100) AS g",
                "INSERT INTO ids SELECT FROM generate_series(1, 100)",
            )

    if request.param == "no background":
        twins.columnar.execute("SET strata_columnar.enable_merge = off")
    twins.execute(
        "CREATE TABLE t (id integer, v integer, s text, dropped text DEFAULT 'gone')"
        " WITH (autovacuum_enabled = off)",
        "CREATE TABLE ids ()",
    )
    insert(3)
    twins.execute("ALTER TABLE t ADD PRIMARY KEY (id); CREATE INDEX by_v ON t (v)")
    insert(30)
    hold("after the inserts")
    insert(20)
    twins.execute("DELETE FROM t WHERE id % 13 = 5; UPDATE t SET v = v + 1 WHERE id % 7 = 0")
    hold("after changes")
    twins.execute("ALTER TABLE t ADD COLUMN a integer NOT NULL DEFAULT 42, DROP COLUMN dropped")
    twins.execute("ALTER TABLE t ADD COLUMN b text DEFAULT 'was missing', ADD COLUMN c integer")
    insert(10)
    twins.execute("DELETE FROM t WHERE id % 10 = 6; UPDATE t SET b = NULL WHERE id % 9 = 0")
    hold("after new columns")
    insert(10)
    yield held
    for sides in held.values():
        for side in sides:
            side.connection.close()


def read(side: Side, way: str) -> list:
    side.execute(WAYS[way])
    return [side.execute(query) for query in QUERIES]


@pytest.mark.sample(3)
@pytest.mark.parametrize("command", COMMANDS)
def test_maintenance_hides_nothing_from_older_snapshots(
    twins: Twins, aged: dict[str, list[Side]], command: str
) -> None:
    for statement in COMMANDS[command].split("; "):
        sides = twins.sides if "strata_columnar" not in statement else [twins.columnar]
        for side in sides:
            side.execute(statement)
    for name, (heap, columnar) in {**aged, "now": twins.sides}.items():
        expected = read(heap, "sequential")
        assert len(expected[0]) >= 3
        for way in WAYS:
            assert read(columnar, way) == expected, (name, way)


@pytest.mark.parametrize("undone", ["columnar_compact('t', everything => true)", "count(*) FROM d"])
def test_vacuum_full_forgets_deletes_that_were_undone(twins: Twins, undone: str) -> None:
    """Their transaction ids are older than the new file's horizon, and VACUUM would take them for damage."""
    columnar = twins.columnar
    columnar.execute("SET strata_columnar.enable_merge = off")
    columnar.execute("CREATE TABLE t (id integer, n integer) WITH (autovacuum_enabled = off)")
    rows = "INSERT INTO t SELECT g, g FROM generate_series(1, 10) AS g"
    for statement in (rows, "DELETE FROM t WHERE id < 3", rows, "BEGIN"):
        columnar.execute(statement)
    deletes = "WITH d AS (DELETE FROM t WHERE id > 7 RETURNING *) " if "FROM d" in undone else ""
    prefix = "strata_columnar." if not deletes else ""
    columnar.execute(f"{deletes}SELECT {prefix}{undone}")
    columnar.execute("ROLLBACK")
    for _ in range(5):
        columnar.execute("SELECT pg_current_xact_id()")
    older = twins.open_side(columnar.method)
    older.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    older.execute("SELECT 1")  # a look at the table would lock it
    columnar.execute(rows)
    columnar.execute("VACUUM FULL t")
    for statement in ("VACUUM t", "VACUUM (FREEZE) t", "VACUUM FULL t", "VACUUM t"):
        columnar.execute(statement)
    assert older.execute("SELECT count(*) FROM t") == [(18,)]
    assert columnar.execute("SELECT count(*) FROM t") == [(28,)]
    older.connection.close()
