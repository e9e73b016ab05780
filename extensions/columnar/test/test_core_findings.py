"""What PostgreSQL's own tests found in columnar tables, each in a test of its own.

They run as a whole in test/regress, slowly, with what they find far from its cause.
"""

from __future__ import annotations

import random

import psycopg
import pytest

from extensions.columnar.test.twins import Side, Twins

MOVES = (
    "NEXT", "PRIOR", "FIRST", "LAST", "RELATIVE 0", "FORWARD ALL", "BACKWARD ALL",
    "ABSOLUTE {}", "ABSOLUTE -{}", "RELATIVE {}", "RELATIVE -{}", "FORWARD {}", "BACKWARD {}",
)  # fmt: skip


@pytest.mark.parametrize("custom_scan", ["on", "off"])
@pytest.mark.parametrize("scroll", ["", "SCROLL"])
def test_a_cursor_moves_both_ways_and_past_both_ends(
    twins: Twins, scroll: str, custom_scan: str
) -> None:
    """portals, limit, plpgsql: a scan turns round at any row, and behind the last."""
    dice = random.Random(f"{scroll} {custom_scan}")
    twins.execute("CREATE TABLE t (a integer, b text)")
    for first in range(0, 15000, 3000):
        twins.execute(
            f"INSERT INTO t SELECT g, 'b' || g FROM generate_series({first}, {first + 2500}) g"
        )
    twins.execute("DELETE FROM t WHERE a % 7 = 3", "ANALYZE t")
    twins.columnar.execute(f"SET strata_columnar.enable_custom_scan = {custom_scan}")

    for condition in ("true", "a % 3 = 0", "a BETWEEN 4000 AND 9000", "b LIKE '%77%'", "a < 0"):
        with twins.transaction(end="ROLLBACK"):
            twins.execute(f"DECLARE c {scroll} CURSOR FOR SELECT * FROM t WHERE {condition}")
            for _ in range(40):
                move = dice.choice(MOVES).format(dice.randrange(3000))
                twins.same(f"FETCH {move} FROM c", ordered=True)
            twins.same("FETCH FIRST FROM c", ordered=True)
            if condition != "a < 0":
                twins.same("UPDATE t SET b = b || '!' WHERE CURRENT OF c RETURNING *")
    twins.columnar.execute("RESET strata_columnar.enable_custom_scan")


def test_a_new_partition_gets_the_unique_indexes_of_its_parent(twins: Twins) -> None:
    """tablespace, insert_conflict: core builds them before the partition has a TOAST relation."""
    twins.execute(
        "CREATE TABLE t (a integer UNIQUE, b integer) PARTITION BY LIST (a)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1)",
        "INSERT INTO t VALUES (1, 2)",
    )
    twins.fails("INSERT INTO t VALUES (1, 3)", "23505")
    twins.same("SELECT * FROM t")


@pytest.mark.parametrize("storage", ["external", "extended"])
def test_values_come_from_the_toast_table_of_a_heap_table(twins: Twins, storage: str) -> None:
    """indirect_toast: a TOAST pointer looks like a short value."""
    twins.execute(
        "CREATE TABLE source (a integer, b text, c integer[]) USING heap",
        f"ALTER TABLE source ALTER b SET STORAGE {storage}, ALTER c SET STORAGE {storage}",
        "INSERT INTO source SELECT g, repeat('abc' || g, 5000 * g),"
        " (SELECT array_agg(n) FROM generate_series(1, 5000) n) FROM generate_series(1, 3) g",
        "CREATE TABLE t (a integer, b text, c integer[])",
    )
    twins.same("INSERT INTO t SELECT * FROM source")
    twins.same("UPDATE t SET b = (SELECT b FROM source s WHERE s.a = t.a + 1) WHERE a < 3")
    twins.same("SELECT a, length(b), md5(b), md5(c::text) FROM t ORDER BY a")


def run_skew(side: Side, other: Side, empty: bool) -> list[str]:
    """Two transactions that each read what the other writes; the SQLSTATEs that came out."""
    side.execute(
        "CREATE TABLE manager (id integer PRIMARY KEY, active boolean);"
        "CREATE TABLE project (id integer PRIMARY KEY, manager integer);"
        "INSERT INTO manager VALUES (1, true)"
    )
    if not empty:
        side.execute("INSERT INTO project VALUES (1, 7)")
    states = []
    for session in (side, other):
        session.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
    side.execute("SELECT count(*) FROM manager WHERE id = 1 AND active")
    other.execute("SELECT count(*) FROM project WHERE manager = 1")
    for session, statement in (
        (side, "INSERT INTO project VALUES (101, 1)"),
        (other, "UPDATE manager SET active = false WHERE id = 1"),
        (side, "COMMIT"),
        (other, "COMMIT"),
    ):
        try:
            session.execute(statement)
        except psycopg.Error as error:
            states.append(error.sqlstate)
    return states


@pytest.mark.parametrize("empty", [True, False])
def test_reading_that_there_is_nothing_counts_as_reading(twins: Twins, empty: bool) -> None:
    """project-manager: an empty table has no page to lock, and its reader must be known all the same."""
    for method in ("heap", "columnar"):
        side = twins.heap if method == "heap" else twins.columnar
        other = twins.open_side(method)
        states = run_skew(side, other, empty)
        other.connection.close()
        assert "40001" in states, method


def test_scans_are_counted(twins: Twins) -> None:
    """stats: also those that the planner gave another node."""
    twins.execute("CREATE TABLE t AS SELECT g AS a FROM generate_series(1, 5000) g")
    twins.execute(
        "SELECT count(a) FROM t WHERE a > 10",
        "SELECT sum(a) FROM t WHERE a % 7 = 8",
        "SELECT pg_stat_force_next_flush()",
    )
    twins.same("SELECT seq_scan, seq_tup_read FROM pg_stat_user_tables WHERE relid = 't'::regclass")


INDEXES = {
    "brin": ("brin (a)", "brin (d, a)", "brin ((a + 1))", "brin (c) WHERE a > 10"),
    "btree": ("btree (a)", "btree (lower(c))", "btree (d, c)"),
    "hash": ("hash (a)", "hash (c)"),
    "gin": ("gin (e)",),
    "gist": ("gist (r)",),
    "spgist": ("spgist (c)", "spgist (r)"),
    "bloom": ("bloom (a, c)",),
}
CONDITIONS = (
    "a = 77", "a BETWEEN 500 AND 550", "a + 1 = 78", "c = 'c5' AND a > 10", "lower(c) = 'c9'", "c LIKE 'c7%'",
    "d < '2020-01-20' AND a < 400", "e @> '{13}'", "r && '[40, 60)'", "a = 5 OR c = 'c6'", "a IS NULL",
)  # fmt: skip
HEAPS = {
    "plain": ("CREATE TABLE t ({columns}) USING heap",),
    "inherited": ("CREATE TABLE t ({columns}) USING heap", "CREATE TABLE t_child () INHERITS (t)"),
    "partitioned": (
        "CREATE TABLE t ({columns}) PARTITION BY RANGE (a)",
        "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (MINVALUE) TO (500) USING heap",
        "CREATE TABLE t_2 PARTITION OF t DEFAULT USING heap",
    ),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("shape", HEAPS)
@pytest.mark.parametrize("method", INDEXES)
def test_indexes_of_heap_tables_are_planned_beside_the_library(
    twins: Twins, method: str, shape: str
) -> None:
    """brincostestimate() asks get_relation_stats_hook with a struct that it has not initialised."""
    twins.execute(
        "LOAD 'strata_columnar'",
        *(
            statement.format(columns="a integer, c text, d date, e integer[], r int4range")
            for statement in HEAPS[shape]
        ),
        "INSERT INTO t SELECT nullif(g, 900), 'c' || g % 50, date '2020-01-01' + g % 100, ARRAY[g % 90, g],"
        " int4range(g, g + 9) FROM generate_series(1, 2000) AS g",
    )
    if method == "bloom":
        twins.node.execute("CREATE EXTENSION IF NOT EXISTS bloom SCHEMA pg_catalog")
    twins.execute(*(f"CREATE INDEX ON t USING {index}" for index in INDEXES[method]))
    for analyze in (False, True):
        if analyze:
            twins.execute("ANALYZE t")
        for forced in ("on", "off"):
            twins.execute(f"SET enable_seqscan = {forced}")
            for condition in CONDITIONS:
                twins.same(f"SELECT * FROM t WHERE {condition}")
                twins.same(f"SELECT count(*) FROM t JOIN t AS o USING (a) WHERE t.{condition}")
    twins.execute("RESET enable_seqscan")
