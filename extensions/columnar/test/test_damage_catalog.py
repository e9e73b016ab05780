"""Lost pages of a table's catalog, which are valid to PostgreSQL: no row comes back or vanishes.

Pages of zeroes, empty ones, older versions, other pages, a file that was cut: every question ends
with an error that names the table, or with what the undamaged table answers, and columnar_verify()
reports it.  New rows in the place of the lost ones change nothing about that.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from extensions.columnar.test.damage import LOST_PAGES
from extensions.columnar.test.test_damage import (
    READS,
    STORY,
    VERIFY,
    Asker,
    Tables,
    unchecked_tables,
)
from extensions.columnar.test.twins import connect_soon

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


def judge(tables: Tables, connection: psycopg.Connection, name: str) -> None:
    problems = connection.execute(VERIFY.format(t=name)).fetchall()
    assert any("its index names" in problem for _, problem in problems), problems
    asker = Asker(connection, name, tables.expected)
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
