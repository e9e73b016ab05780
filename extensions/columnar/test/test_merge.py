"""Small row groups are merged: in the background after many small commits, or when asked for."""

from __future__ import annotations

from collections.abc import Callable

from extensions.columnar.test.twins import Side, Twins
from tests.cluster import Node
from tests.waiting import wait_until

GROUPS = "SELECT rows FROM strata_columnar.columnar_row_groups('t') ORDER BY first_row"


def trickle(side: Side, first: int, last: int) -> None:
    side.execute(
        f"DO $$ BEGIN FOR g IN {first} .. {last} LOOP INSERT INTO t VALUES (g, 'row ' || g); COMMIT; END LOOP; END $$"
    )


def test_commits_of_single_rows_become_few_row_groups_by_themselves(twins: Twins) -> None:
    twins.execute("CREATE TABLE t (id integer PRIMARY KEY, s text)")
    for side in twins.sides:
        trickle(side, 1, 1500)
    for _ in wait_until("the row groups are merged"):
        if len(twins.columnar.execute(GROUPS)) < 300:
            break
    twins.same("SELECT * FROM t")
    twins.execute("SET enable_seqscan = off; SET strata_columnar.enable_custom_scan = off")
    twins.same("SELECT * FROM t WHERE id = 777")


def test_nothing_is_merged_when_it_is_switched_off(twins: Twins) -> None:
    side = twins.columnar
    side.execute("CREATE TABLE t (id integer, s text); SET strata_columnar.enable_merge = off")
    trickle(side, 1, 600)
    assert side.execute(GROUPS) == [(1,)] * 600
    assert side.execute("SELECT * FROM strata_columnar.columnar_compact('t')") == [(600, 1, 0)]
    assert side.execute(GROUPS) == [(600,)]


def test_compaction_drops_the_dead_and_keeps_row_numbers(twins: Twins) -> None:
    twins.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, s text)",
        "INSERT INTO t SELECT g, 'row ' || g FROM generate_series(1, 5000) AS g",
        "DELETE FROM t WHERE id % 2 = 0",
    )
    side = twins.columnar
    before = side.execute("SELECT ctid::text, id FROM t ORDER BY id")
    for _ in wait_until("no older snapshot is left"):  # other tests' sessions
        side.execute("SELECT strata_columnar.columnar_compact('t')")
        if side.execute(GROUPS) == [(2500,)]:
            break
    assert side.execute("SELECT ctid::text, id FROM t ORDER BY id") == before
    twins.execute("SET enable_seqscan = off; SET strata_columnar.enable_custom_scan = off")
    twins.same("SELECT * FROM t WHERE id BETWEEN 100 AND 200")
    twins.execute("VACUUM t")
    twins.same("SELECT * FROM t WHERE id BETWEEN 100 AND 200")


def test_the_worker_follows_changed_settings(make_server: Callable[..., Node]) -> None:
    """It rests between two transactions; there it reads the configuration, and ends when it is told to."""
    server = make_server(autovacuum="off", max_parallel_workers="0")
    workers = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'columnar merge'"
    server.execute("CREATE TABLE t (id integer, s text) USING columnar")
    with server.connect() as connection:
        connection.autocommit = True
        for i in range(1500):
            connection.execute(f"INSERT INTO t VALUES ({i}, repeat('x', 30))")
            if i % 100 == 0 and connection.execute(workers).fetchone() != (0,):
                break
        for _ in wait_until("a worker is at work"):
            connection.execute("INSERT INTO t VALUES (1, 'x')")
            if connection.execute(workers).fetchone() != (0,):
                break
        server.execute("ALTER SYSTEM SET strata_columnar.enable_merge = off")
        server.execute("SELECT pg_reload_conf()")
        for _ in wait_until("the worker ended"):
            # there is always something left to do
            connection.execute("INSERT INTO t VALUES (1, 'x')")
            if connection.execute(workers).fetchone() == (0,):
                break
