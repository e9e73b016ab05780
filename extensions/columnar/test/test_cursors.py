"""Cursors over a columnar table return what they return over a heap table, whatever happens meanwhile."""

from __future__ import annotations

import pytest

from extensions.columnar.test.twins import Twins

TABLE = "CREATE TABLE t (id integer PRIMARY KEY, v integer, s text)"
CHECKSUM = "SELECT count(*), sum(id), sum(v), md5(string_agg(t::text, '|' ORDER BY id, v)) FROM t"


@pytest.fixture
def table(twins: Twins) -> Twins:
    """Twins with a filled table t (id, v, s)."""
    twins.execute(
        TABLE,
        "INSERT INTO t SELECT g, g % 100, 'row ' || g % 17 FROM generate_series(1, 3000) AS g",
    )
    return twins


def test_scrolling_cursors(table: Twins) -> None:
    for query in (
        "SELECT * FROM t",
        "SELECT id, v FROM t WHERE v = 7",
        "SELECT * FROM t ORDER BY v, id",
    ):
        with table.transaction():
            table.execute(f"DECLARE c SCROLL CURSOR FOR {query}")
            for fetch in (
                "3",
                "BACKWARD 2",
                "LAST",
                "PRIOR",
                "FIRST",
                "ABSOLUTE 20",
                "RELATIVE -5",
                "BACKWARD ALL",
                "FORWARD ALL",
                "ABSOLUTE -2",
            ):
                table.same(f"FETCH {fetch} FROM c", ordered=True)
            table.same("MOVE ABSOLUTE 0 FROM c")
            table.same("FETCH ALL FROM c", ordered=True)


def test_an_open_cursor_does_not_see_later_changes_of_its_transaction(table: Twins) -> None:
    with table.transaction():
        table.execute("INSERT INTO t VALUES (4000, 1, 'before')")
        table.execute("DECLARE c CURSOR FOR SELECT * FROM t WHERE id > 2900 OR id < 10")
        table.same("FETCH 3 FROM c", ordered=True)
        table.execute(
            "INSERT INTO t SELECT g, 1, 'after' FROM generate_series(4001, 4100) AS g",
            "DELETE FROM t WHERE id IN (5, 2950, 4000)",
            "UPDATE t SET s = 'changed' WHERE id IN (2, 2960, 4001)",
        )
        table.same("FETCH ALL FROM c", ordered=True)
        table.same(CHECKSUM)


def test_a_cursor_opened_between_inserts_sees_what_was_there(twins: Twins) -> None:
    """Rows of several commands share a buffer and a row group; a cursor sees those before it."""
    twins.execute(TABLE)
    with twins.transaction():
        for number in range(8):
            twins.execute(
                f"INSERT INTO t SELECT g, {number}, 'x' FROM generate_series({number * 10}, {number * 10 + number}) AS g"
            )
            twins.execute(f"DECLARE c{number} CURSOR FOR SELECT id, v FROM t")
        twins.execute("DELETE FROM t WHERE id % 2 = 0")
        for number in range(8):
            twins.same(f"FETCH ALL FROM c{number}")
        twins.same(CHECKSUM)


def test_a_cursor_that_is_held(table: Twins) -> None:
    with table.transaction():
        table.execute("DECLARE c CURSOR WITH HOLD FOR SELECT * FROM t WHERE v < 20")
        table.same("FETCH 2 FROM c", ordered=True)
    table.same("DELETE FROM t WHERE v < 30")
    table.same("FETCH ALL FROM c", ordered=True)
    table.same("CLOSE c")


def test_where_current_of(table: Twins) -> None:
    with table.transaction():
        table.execute("DECLARE c CURSOR FOR SELECT * FROM t WHERE v = 7 FOR UPDATE")
        table.same("FETCH 2 FROM c", ordered=True)
        table.same("UPDATE t SET s = 'current' WHERE CURRENT OF c RETURNING id")
        table.same("FETCH 1 FROM c", ordered=True)
        table.same("DELETE FROM t WHERE CURRENT OF c RETURNING id")
        table.same("DELETE FROM t WHERE CURRENT OF c")
        table.same("FETCH ALL FROM c", ordered=True)
    table.same(CHECKSUM)
    with table.transaction():
        table.execute("DECLARE c CURSOR FOR SELECT * FROM t WHERE id > 5")
        table.same("FETCH 5 FROM c", ordered=True)
        table.same("UPDATE t SET s = 'no lock' WHERE CURRENT OF c RETURNING id")
    table.same(CHECKSUM)


def test_a_cursor_outlives_the_rollback_of_a_savepoint(table: Twins) -> None:
    with table.transaction():
        table.execute("DECLARE c CURSOR FOR SELECT id FROM t WHERE id % 500 = 0")
        table.same("FETCH 1 FROM c", ordered=True)
        table.all_same(
            ("SAVEPOINT a", "DELETE FROM t", "INSERT INTO t VALUES (9500, 0, 'x')", "ROLLBACK TO a")
        )
        table.same("FETCH ALL FROM c", ordered=True)
