"""Lost pages of a table's catalog, which are valid to PostgreSQL: no row comes back or vanishes.

Pages of zeroes, empty ones, older versions, other pages, a file that was cut: every question ends
with an error that names the table, or with what the undamaged table answers, and columnar_verify()
reports it.  New rows in the place of the lost ones change nothing about that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from extensions.columnar.test.damage import LOST_PAGES, PAGE
from extensions.columnar.test.servers import make_standby, verify, wait_for_replay
from extensions.columnar.test.test_damage import (
    MAINTENANCE,
    READS,
    STORY,
    VERIFY,
    Asker,
    Tables,
    unchecked_tables,
)
from extensions.columnar.test.twins import connect_soon
from tests.cluster import Node

# Records, parts of inline row groups and row vectors for several pages each.
LONG_STORY = ";\n".join(
    [
        STORY.strip().rpartition("VACUUM")[0].strip().rstrip(";"),
        *(
            f"INSERT INTO {{t}} SELECT g, g, 'batch', md5(g::text) || md5((-g)::text), 1"
            f" FROM generate_series({10000 + 100 * batch}, {10079 + 100 * batch}) AS g"
            for batch in range(6)
        ),
        *(f"INSERT INTO {{t}} VALUES ({12000 + number}, 1, 'single')" for number in range(60)),
        *(f"DELETE FROM {{t}} WHERE id % 60 = {rest}" for rest in range(2, 42, 2)),
        "VACUUM (FREEZE) {t}",
    ]
)


@pytest.fixture(scope="module")
def damaged() -> Iterator[Tables]:
    """A table for each of LOST_PAGES, and again for the refilled ones."""
    with unchecked_tables(LONG_STORY) as tables:
        tables.damage(LOST_PAGES | {f"{name}_refilled": LOST_PAGES[name] for name in REFILLED})
        yield tables


# What is lost must be noticed by whoever needs it.
NOTICED = {
    "record": ("all rows", "count", "count by a scan", "columns", "sums", "row groups", "stats"),
    "part": ("all rows", "columns", "sums"),
    "vector": ("all rows", "count", "count by a scan", "columns", "sums", "stats"),
    "pages": ("all rows", "count"),
    "all": tuple(READS),
}


# PostgreSQL 17 begins to reindex with the catalog, and takes it for what is there
KEEPING = tuple(statement for statement in MAINTENANCE if "REINDEX" not in statement)


def judge(tables: Tables, connection: psycopg.Connection, name: str) -> None:
    problems = connection.execute(VERIFY.format(t=name)).fetchall()
    assert any("its index names" in problem for _, problem in problems), problems
    asker = Asker(connection, name, tables.expected, maintenance=KEEPING)
    asker.everything()
    assert not asker.complaints, "\n".join(asker.complaints)
    missed = set(NOTICED[name.split("_")[0]]) - asker.errors.keys()
    assert not missed, missed
    # whatever maintenance did, the damage is not forgotten
    problems = connection.execute(VERIFY.format(t=name)).fetchall()
    assert any("its index names" in problem for _, problem in problems), problems


@pytest.mark.parametrize("name", LOST_PAGES)
def test_lost_page_is_an_error_and_never_a_wrong_row(damaged: Tables, name: str) -> None:
    with connect_soon(damaged.node) as connection:
        judge(damaged, connection, name)
        connection.execute(f"DROP TABLE {name}")


REFILLED = ("record_page_zeroed", "vector_page_zeroed")


@pytest.mark.parametrize("name", REFILLED)
def test_lost_page_is_noticed_behind_the_rows_that_came_later(damaged: Tables, name: str) -> None:
    table = f"{name}_refilled"
    with connect_soon(damaged.node) as connection:
        connection.execute("SET strata_columnar.enable_merge = off")
        # fails, but has vacuumed the catalog, whose free space map then offers the page
        with pytest.raises(psycopg.errors.DataCorrupted):
            connection.execute(f"VACUUM {table}")
        for number in range(400):
            connection.execute(f"INSERT INTO {table} VALUES ({20000 + number}, 1, 'later')")
        problems = connection.execute(VERIFY.format(t=table)).fetchall()
        assert any("its index names" in problem for _, problem in problems), problems
        for read in NOTICED[name.split("_")[0]]:
            settings, query = READS[read]
            connection.execute(settings or "SELECT")
            with pytest.raises(psycopg.errors.DataCorrupted, match=f'"{table}" is damaged'):
                connection.execute(query.format(t=table))


# ---- no damage ----------------------------------------------------------------------------------

SMALL = "INSERT INTO t SELECT g, g, 'row ' || g FROM generate_series({0}, {0} + 9) AS g"
TOAST = "SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 't'::regclass"

# What takes tuples out of a catalog, or pages, or moves them.
STEPS = (
    *(SMALL.format(10 * number) for number in range(60)),
    "DELETE FROM t WHERE id % 3 = 0",
    "BEGIN; INSERT INTO t SELECT g, 0, repeat('x', 100) FROM generate_series(5000, 5900) AS g; DELETE FROM t; ROLLBACK",
    "VACUUM t",
    "BEGIN; SAVEPOINT s; DELETE FROM t; ROLLBACK TO s; UPDATE t SET v = 0 WHERE id < 50; COMMIT",
    "BEGIN; DELETE FROM t WHERE id = 100; PREPARE TRANSACTION 'd'",
    "COMMIT PREPARED 'd'",
    "BEGIN; SELECT strata_columnar.columnar_compact('t', everything => true); ROLLBACK",
    "SELECT strata_columnar.columnar_compact('t', everything => true)",
    "VACUUM (INDEX_CLEANUP off) t",
    "VACUUM (INDEX_CLEANUP on) t",
    "VACUUM (FREEZE, INDEX_CLEANUP on) {toast}",
    "REINDEX TABLE CONCURRENTLY {toast}",
    "REINDEX TABLE t",
    SMALL.format(1000),
    "VACUUM FULL t",
    "ALTER TABLE t ALTER COLUMN v TYPE bigint",
    "DELETE FROM t WHERE id > 300",
    "VACUUM (INDEX_CLEANUP on) t",
    "SELECT strata_columnar.columnar_recluster('t')",
    "TRUNCATE t",
    SMALL.format(0),
    "BEGIN; TRUNCATE t; ROLLBACK",
    "DELETE FROM t",
    "SELECT strata_columnar.columnar_compact('t', everything => true)",
    "VACUUM (INDEX_CLEANUP on) t",  # cuts the catalog's file
    SMALL.format(0),
)

ROWS = "SELECT count(*), sum(id), sum(v) FROM t WHERE s LIKE 'row%'"


def answers(connection: psycopg.Connection) -> list:
    """What a scan, the record counts, and look-ups by key say."""
    return [
        connection.execute(ROWS).fetchone(),
        connection.execute("SELECT count(*) FROM t").fetchone(),
        [
            connection.execute("SELECT * FROM t WHERE id = %s", (key,)).fetchall()
            for key in (5, 250)
        ],
    ]


def may_be_watched(step: str) -> bool:
    """Does an older snapshot see the same rows after it, and is it not waited for?"""
    return not step.startswith(("TRUNCATE", "ALTER", "SELECT strata")) and "CONCURR" not in step


def test_nothing_that_happens_to_a_catalog_is_taken_for_a_lost_page(
    make_server: Callable[..., Node],
) -> None:
    node = make_server(autovacuum="off", max_prepared_transactions="2")
    node.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, v integer, s text) USING columnar;"
        "SELECT strata_columnar.alter_columnar_table_set('t', order_by => 'id')"
    )
    standby = make_standby(node)
    for number, step in enumerate(STEPS):
        with node.connect() as old:
            # beside every second step
            held = number >= 60 and number % 2 == 0 and may_be_watched(step)
            if held:
                old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                seen = answers(old)
            if held and step.startswith(("REINDEX", "VACUUM")):  # these wait for who has read it
                old.execute("COMMIT; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
            node.execute(step.format(toast=node.value(TOAST)))
            assert not held or answers(old) == seen, step
        if number >= 60:
            verify(node, "t")
            with connect_soon(node) as connection, connect_soon(standby) as reader:
                connection.execute("SELECT pg_logical_emit_message(true, '', '')")  # flushes all
                wait_for_replay(node, standby)
                assert answers(reader) == answers(connection), step
            assert standby.query("SELECT * FROM strata_columnar.columnar_verify('t')") == [], step

    # a crash, before which the file was extended by pages that never got a tuple
    with connect_soon(node) as connection:
        expected = answers(connection)
    file = node.data / node.value(f"SELECT pg_relation_filepath(({TOAST})::regclass)")
    node.kill()
    with file.open("ab") as end:
        end.write(bytes(3 * PAGE))
    node.start()
    with connect_soon(node) as connection:
        assert answers(connection) == expected
    verify(node, "t")
    for number in range(40):
        node.execute(SMALL.format(2000 + 10 * number))
    verify(node, "t")
    assert node.value("SELECT count(*) FROM t") == 410
