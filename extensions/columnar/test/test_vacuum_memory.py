"""VACUUM of a table with indexes keeps to maintenance_work_mem, and removes the same entries in several passes."""

from __future__ import annotations

import re

import psycopg
import pytest

from extensions.columnar.test.test_row_numbers import settle
from extensions.columnar.test.twins import Side, Twins
from tests.waiting import wait_until

ENTRIES = re.compile(r'index "(\w+)": (\d+) dead entries removed, (\d+) left; passes: (\d+)')


@pytest.fixture
def side(twins: Twins) -> Side:
    side = twins.columnar
    side.execute("SET strata_columnar.enable_merge = off; SET maintenance_work_mem = '1MB'")
    return side


def vacuum(side: Side) -> dict[str, tuple[int, int, int]]:
    """By index: entries removed, left, and passes."""
    lines: list[str] = []

    def note(diagnostic: psycopg.errors.Diagnostic) -> None:
        lines.append(diagnostic.message_primary or "")

    side.connection.add_notice_handler(note)
    side.execute("VACUUM (VERBOSE) t")
    side.connection.remove_notice_handler(note)
    found = [ENTRIES.fullmatch(line) for line in lines]
    return {match[1]: (int(match[2]), int(match[3]), int(match[4])) for match in found if match}


def remove_all(side: Side, removed: int, passes: int) -> None:
    """VACUUM until no other test's session is in the way; in so many passes at least."""
    total = 0
    for _ in wait_until("all dead entries are removed"):
        counts = vacuum(side)
        total += counts["by_id"][0]
        if total == removed:
            break
    assert counts["by_id"][2] >= passes, counts


def check(side: Side) -> None:
    """By index and without the same rows, of which the index has no more."""
    query = "SELECT count(*), sum(id), min(id), max(id) FROM t WHERE id > 0"
    side.execute("SET enable_seqscan = off; SET strata_columnar.enable_custom_scan = off")
    by_index = side.execute(query)
    side.execute("RESET enable_seqscan; RESET strata_columnar.enable_custom_scan")
    assert by_index == side.execute(query)


def test_dead_entries_are_removed_in_several_passes(side: Side) -> None:
    rows = 4_400_000
    side.execute("CREATE TABLE t (id integer) WITH (autovacuum_enabled = off)")
    side.execute(f"INSERT INTO t SELECT g FROM generate_series(1, {rows}) AS g")
    side.execute("CREATE INDEX by_id ON t (id)")
    # what is known of the rows: which are dead
    side.execute("DELETE FROM t WHERE id % 1000 = 7")
    remove_all(side, rows // 1000, passes=3)
    check(side)
    # which numbers row groups have
    side.execute("DELETE FROM t WHERE id % 50 = 0")
    settle(side)
    remove_all(side, rows // 50, passes=2)
    check(side)
    # both
    side.execute("DELETE FROM t WHERE id % 1000 = 9")
    remove_all(side, rows // 1000, passes=3)
    check(side)
    left = rows - rows // 50 - 2 * rows // 1000
    assert side.execute("SELECT count(*) FROM t") == [(left,)]
    side.execute("SET maintenance_work_mem = '64MB'")
    assert vacuum(side)["by_id"] == (0, left, 1)


def test_an_older_snapshot_keeps_its_entries_in_every_pass(side: Side, twins: Twins) -> None:
    rows = 2_400_000
    side.execute("CREATE TABLE t (id integer) WITH (autovacuum_enabled = off)")
    side.execute(f"INSERT INTO t SELECT g FROM generate_series(1, {rows}) AS g")
    side.execute("CREATE INDEX by_id ON t (id)")
    side.execute("DELETE FROM t WHERE id % 1000 = 7")
    older = twins.open_side(side.method)
    try:
        older.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        before = older.execute("SELECT count(*), sum(id) FROM t")
        side.execute("DELETE FROM t WHERE id % 1000 = 8")
        remove_all(side, rows // 1000, passes=2)
        side.execute("SELECT strata_columnar.columnar_compact('t', everything => true)")
        assert vacuum(side)["by_id"][0] == 0
        older.execute("SET enable_seqscan = off; SET strata_columnar.enable_custom_scan = off")
        assert older.execute("SELECT count(*), sum(id) FROM t WHERE id > 0") == before
        check(side)
    finally:
        older.connection.close()
    remove_all(side, rows // 1000, passes=2)
    check(side)
