"""What an adversary broke once: each test fails on the code that it was written against.

Two are races, which that code lost only now and then: the cancelled store, and the catalog whose index
is rebuilt; one needs an older PostgreSQL to fail.  Plays (see interleave.py) where heap says what must happen; where the columnar store may refuse what a
heap does, the test says so itself.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from extensions.columnar.test.interleave import error_of, play
from extensions.columnar.test.twins import Side, Twins, tables_with_a_child_that_may_be_null
from tests.waiting import wait_until

SETUP = """
DROP TABLE IF EXISTS t;
CREATE TABLE t (id integer PRIMARY KEY, v integer);
INSERT INTO t SELECT g, g * 10 FROM generate_series(1, 1500) AS g;
"""
BY_INDEX = (
    "SET enable_seqscan = off",
    "SET enable_bitmapscan = off",
    "SET strata_columnar.enable_custom_scan = off",
)


def open_session(twins: Twins) -> Side:
    """One more session on columnar tables; closed before the twins' schemas are dropped."""
    side = twins.open_side("columnar")
    twins.stack.callback(side.connection.close)
    return side


# ---- written rows ----------------------------------------------------------------------------------------


def test_rows_of_a_table_whose_drop_is_rolled_back_survive_a_full_write_memory(
    twins: Twins,
) -> None:
    """The largest buffer is stored when memory is short; its table may be dropped just then."""
    twins.execute("CREATE TABLE gone (a text); CREATE TABLE kept (a text)")
    twins.execute("SET strata_columnar.write_memory = '1MB'")
    with twins.transaction():
        twins.execute(
            "INSERT INTO gone SELECT repeat(md5(g::text), 8) FROM generate_series(1, 1200) AS g",
            "SAVEPOINT a",
            "DROP TABLE gone",
            "INSERT INTO kept SELECT repeat(md5(g::text), 8) FROM generate_series(1, 9000) AS g",
            "ROLLBACK TO a",
        )
    assert twins.same("SELECT count(*), min(a), max(a) FROM gone")[0][0] == "1200"
    assert twins.same("SELECT count(*) FROM kept") == [("0",)]


def test_a_cancelled_store_leaves_the_keys_of_the_outer_transaction_taken(twins: Twins) -> None:
    """A read in a savepoint stores the rows before it; cancelled in between, they are stored again."""
    writer = twins.columnar
    other = open_session(twins)
    other.execute("SET lock_timeout = '200ms'")
    writer.execute("CREATE TABLE t (id integer PRIMARY KEY, a text, b text)")
    expected = 0
    cancelled = 0
    for milliseconds in (2, 8, 16, 32):
        base = milliseconds * 100_000
        writer.execute("BEGIN")
        writer.execute(
            f"INSERT INTO t SELECT {base} + g, md5(g::text), repeat(md5((g * 7)::text), 3)"
            " FROM generate_series(1, 15000) AS g"
        )
        writer.execute("SAVEPOINT s")
        writer.execute(f"SET LOCAL statement_timeout = {milliseconds}")
        try:
            writer.execute("SELECT count(*) FROM t")
        except psycopg.errors.QueryCanceled:
            cancelled += 1
        writer.execute("ROLLBACK TO s")
        writer.execute("SET LOCAL statement_timeout = 0")
        writer.execute(
            f"INSERT INTO t SELECT {base} + 50000 + g FROM generate_series(1, 2000) AS g"
        )
        for key in (base + 1, base + 15000, base + 50001, base + 52000):
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute(f"INSERT INTO t VALUES ({key})")
        writer.execute("COMMIT")
        expected += 17000
        assert writer.execute("SELECT count(*), count(DISTINCT id) FROM t") == [
            (expected, expected)
        ]
    assert cancelled > 0


# ---- older snapshots -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rebuild", ["REINDEX TABLE t", "VACUUM FULL t", "REINDEX INDEX t_pkey"])
def test_an_older_snapshot_finds_its_rows_by_a_rebuilt_index(twins: Twins, rebuild: str) -> None:
    lines = [("a", statement) for statement in BY_INDEX]
    transcript = play(
        twins,
        SETUP,
        [
            ("a", "BEGIN ISOLATION LEVEL REPEATABLE READ"),
            ("a", "SELECT 1"),
            *lines,
            ("b", "DELETE FROM t WHERE id <= 10"),
            ("b", "UPDATE t SET v = -1 WHERE id = 20"),
            ("b", rebuild),
            ("a", "SELECT count(*), sum(v) FROM t WHERE id <= 25"),
            ("a", "SELECT * FROM t WHERE id IN (5, 20) ORDER BY id"),
            ("a", "COMMIT"),
        ],
        "SELECT count(*), sum(v) FROM t",
    )
    assert "a -> SELECT 1 (25,3250)" in transcript


def test_an_index_made_after_a_recluster_has_the_rows_of_older_snapshots(twins: Twins) -> None:
    """The old row groups are gone for everybody else, and their rows have other numbers."""
    side = twins.columnar
    side.execute(SETUP)
    side.execute("SELECT strata_columnar.alter_columnar_table_set('t', order_by => 'v DESC')")
    reader = open_session(twins)
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT 1")
    side.execute("UPDATE t SET v = -v WHERE id <= 100")
    side.execute("SELECT strata_columnar.columnar_recluster('t')")
    side.execute("REINDEX TABLE t")
    for statement in BY_INDEX:
        reader.execute(statement)
    assert reader.execute("SELECT count(*), sum(v) FROM t WHERE id > 0") == [(1500, 11257500)]
    reader.execute("COMMIT")
    assert reader.execute("SELECT count(*), sum(v) FROM t WHERE id > 0") == [(1500, 11156500)]


@pytest.mark.parametrize("merge", ["compact('t')", "compact('t', everything => true)"])
def test_an_older_snapshot_finds_merged_rows_by_index_after_a_rewrite(
    twins: Twins, merge: str
) -> None:
    """The old groups and the merged one begin at the same row: two records under one key."""
    side = twins.columnar
    side.execute("CREATE TABLE t (id integer PRIMARY KEY, v integer)")
    for first in range(1, 600, 100):
        side.execute(f"INSERT INTO t SELECT g, g FROM generate_series({first}, {first + 99}) AS g")
    reader = open_session(twins)
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT 1")
    side.execute("INSERT INTO t VALUES (1000, 1000)")
    side.execute(f"SELECT strata_columnar.columnar_{merge}")
    for rewrite in ("VACUUM FULL t", "VACUUM FULL t", "REINDEX TABLE t"):
        side.execute(rewrite)
        reader.execute("SAVEPOINT look")
        for statement in BY_INDEX:
            reader.execute(statement.replace("SET", "SET LOCAL"))
        assert reader.execute("SELECT id FROM t WHERE id IN (5, 105, 577, 1000)") == [
            (5,),
            (105,),
            (577,),
        ]
        reader.execute("ROLLBACK TO look")


@pytest.mark.parametrize("rows", [7, 3000])
@pytest.mark.parametrize("order_by", ["", "v DESC"])
def test_a_rewrite_beside_an_older_snapshot_keeps_defaults(
    twins: Twins, rows: int, order_by: str
) -> None:
    """Of columns that are younger than the rows, which are in the definition of the old file only."""
    if order_by:
        twins.columnar.execute("SET strata_columnar.row_group_rows = 1024")
    twins.execute("CREATE TABLE t (id integer PRIMARY KEY, gone text, v integer)")
    if order_by:
        twins.columnar.execute(
            f"SELECT strata_columnar.alter_columnar_table_set('t', order_by => '{order_by}')"
        )
    readers = [twins.open_side(side.method) for side in twins.sides]
    for reader in readers:
        twins.stack.callback(reader.connection.close)
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
    with twins.transaction():
        twins.same(f"INSERT INTO t SELECT g, 'x', g % 7 FROM generate_series(1, {rows}) AS g")
        twins.same("INSERT INTO t SELECT -id, 'y', 9 FROM t WHERE id < 4")
    twins.all_same(
        (
            "ALTER TABLE t ADD COLUMN a integer NOT NULL DEFAULT 7, ADD COLUMN b text DEFAULT 'abc'",
            "ALTER TABLE t DROP COLUMN gone, ADD COLUMN c numeric DEFAULT 1.50, ADD COLUMN d integer",
            "DELETE FROM t WHERE id % 5 = 2",
            "UPDATE t SET v = 100 WHERE id = 4",
            "ALTER TABLE t ALTER COLUMN b SET DEFAULT 'later', DROP COLUMN c",
        )
    )
    for _ in range(2):
        twins.execute("VACUUM FULL t")
        twins.same("SELECT * FROM t ORDER BY id")
        twins.same("SELECT a, b, count(*), count(d) FROM t GROUP BY a, b")
    for reader in readers:
        assert reader.execute("SELECT count(*) FROM t WHERE a = 7") == [(0,)]


CLUSTERS = {
    "t_pkey": "ANALYZE t",
    "by_a": "CREATE INDEX by_a ON t (a DESC NULLS FIRST, (length(b) % 3), id)",
    "by_place": "CREATE INDEX by_place ON t USING gist (point(id, a))",
}


@pytest.mark.parametrize("index", CLUSTERS)
def test_cluster_leaves_older_snapshots_their_rows(twins: Twins, index: str) -> None:
    """Of readers before, between and after changes; and the transaction that clusters has changes of its own."""
    twins.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, a integer, b text);"
        "INSERT INTO t SELECT g * 7919 % 3001, g % 50, 'text ' || g % 90 FROM generate_series(1, 3000) AS g;"
        "INSERT INTO t VALUES (4000, NULL, NULL), (4001, NULL, repeat('long', 100000))"
    )
    twins.execute(CLUSTERS[index])
    everything = "SELECT * FROM t ORDER BY id"
    changes = (
        "DELETE FROM t WHERE id <= 10",
        "UPDATE t SET a = a + 1 WHERE id % 7 = 0",
        "INSERT INTO t (id, a, b) SELECT g, g % 5, 'new' FROM generate_series(5000, 5100) AS g",
    )
    readers = []
    for change in changes:
        readers.append((open_session(twins), twins.columnar.execute(everything)))
        readers[-1][0].execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        readers[-1][0].execute("SELECT count(*) FROM pg_class")
        twins.execute(change)
    for end in ("ROLLBACK", "COMMIT"):
        twins.execute(
            "BEGIN; DELETE FROM t WHERE id % 11 = 0; INSERT INTO t (id, a) VALUES (9000, 1)"
        )
        twins.execute(
            "SAVEPOINT s; UPDATE t SET a = 0; ROLLBACK TO s; UPDATE t SET a = 3 WHERE id = 20"
        )
        # unless it was read since, a heap of 18.6 loses a row of this transaction whose update was rolled back
        twins.same(everything)
        twins.execute(f"CLUSTER t USING {index}")
        twins.same(everything)
        twins.execute("UPDATE t SET b = 'after' WHERE id = 21; DELETE FROM t WHERE id = 22")
        twins.same(everything)
        twins.execute(end)
        twins.same(everything)
        twins.same("SELECT id FROM t WHERE id = 21")
    twins.execute("CLUSTER t")
    twins.execute("VACUUM t")
    for reader, rows in readers:
        assert reader.execute(everything) == rows
        assert reader.execute("SELECT count(*) FROM t WHERE id = 5") == [
            (sum(row[0] == 5 for row in rows),)
        ]
    for reader, _ in readers:
        reader.execute("COMMIT")
    twins.execute("CLUSTER (VERBOSE) t")
    if index != "by_place":
        order = "id" if index == "t_pkey" else "a DESC NULLS FIRST, length(b) % 3, id"
        rows = twins.columnar.execute("SELECT id FROM t")
        assert rows == twins.columnar.execute(f"SELECT id FROM t ORDER BY {order}")
    assert twins.columnar.execute("SELECT * FROM strata_columnar.columnar_verify('t')") == []
    twins.same(everything)


# ---- serializable ----------------------------------------------------------------------------------------


def test_two_first_rows_of_a_serializable_table(twins: Twins) -> None:
    """Each sees no row and inserts one: a table without rows is read, too."""
    transcript = play(
        twins,
        "DROP TABLE IF EXISTS t; CREATE TABLE t (a integer)",
        """
        a: BEGIN ISOLATION LEVEL SERIALIZABLE
        b: BEGIN ISOLATION LEVEL SERIALIZABLE
        a: SELECT count(*) FROM t
        b: SELECT count(*) FROM t
        a: INSERT INTO t VALUES (1)
        b: INSERT INTO t VALUES (2)
        a: COMMIT
        b: COMMIT
        """,
        "SELECT * FROM t",
    )
    assert error_of(transcript, "b") == "40001"


def test_truncate_conflicts_with_a_serializable_reader(twins: Twins) -> None:
    """The reader commits first, so that TRUNCATE need not wait for its lock."""
    transcript = play(
        twins,
        SETUP + "DROP TABLE IF EXISTS other; CREATE TABLE other (a integer);",
        """
        b: BEGIN ISOLATION LEVEL SERIALIZABLE
        b: SELECT count(*) FROM other
        a: BEGIN ISOLATION LEVEL SERIALIZABLE
        a: SELECT count(*) FROM t
        a: INSERT INTO other VALUES (1)
        a: COMMIT
        b: TRUNCATE t
        b: COMMIT
        """,
        "SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM other)",
    )
    assert error_of(transcript, "b") == "40001"


# ---- locks and waits -------------------------------------------------------------------------------------


def test_a_unique_key_beside_an_exclusion_constraint_does_not_wait_with_a_page_locked(
    twins: Twins,
) -> None:
    """The first session inserts into the same leaf of the index while the second waits for it."""
    play(
        twins,
        "DROP TABLE IF EXISTS x;"
        " CREATE TABLE x (id integer PRIMARY KEY, r int4range, EXCLUDE USING gist (r WITH &&))",
        """
        a: BEGIN
        a: INSERT INTO x VALUES (1, '[1,2)')
        b: INSERT INTO x VALUES (1, '[100,101)')
        a: INSERT INTO x VALUES (2, '[3,4)')
        a: COMMIT
        """,
        "SELECT * FROM x ORDER BY id",
    )


RECLUSTERED = (
    "DROP TABLE IF EXISTS r",
    "CREATE TABLE r (id integer PRIMARY KEY, v integer)",
    "INSERT INTO r SELECT g, g FROM generate_series(1, 10) AS g",
    "SELECT strata_columnar.alter_columnar_table_set('r', order_by => 'v DESC')",
)
RECLUSTER = "SELECT strata_columnar.columnar_recluster('r')"


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_a_recluster_between_fetch_and_update_is_an_error_not_a_lost_update(
    twins: Twins, level: str
) -> None:
    side = twins.columnar
    for statement in RECLUSTERED:
        side.execute(statement)
    other = open_session(twins)
    other.execute(f"BEGIN ISOLATION LEVEL {level}")
    other.execute("DECLARE c CURSOR FOR SELECT * FROM r WHERE id >= 3")
    other.execute("FETCH 1 FROM c")
    side.execute(RECLUSTER)
    with pytest.raises(psycopg.errors.SerializationFailure, match="concurrent recluster"):
        other.execute("UPDATE r SET v = 555 WHERE CURRENT OF c")
    other.execute("ROLLBACK")


@pytest.mark.parametrize(
    "change",
    ["UPDATE r SET v = 5 WHERE id = 5", "DELETE FROM r WHERE id = 5", "SELECT * FROM r FOR UPDATE"],
)
def test_a_change_under_a_snapshot_from_before_a_recluster_is_an_error(
    twins: Twins, change: str
) -> None:
    side = twins.columnar
    for statement in RECLUSTERED:
        side.execute(statement)
    other = open_session(twins)
    other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    assert other.execute("SELECT count(*) FROM r") == [(10,)]
    side.execute(RECLUSTER)
    with pytest.raises(psycopg.errors.SerializationFailure):
        other.execute(change)
    other.execute("ROLLBACK")


def test_recluster_refuses_while_triggers_or_cursors_need_the_row_numbers(twins: Twins) -> None:
    side = twins.columnar
    for statement in RECLUSTERED:
        side.execute(statement)
    side.execute(
        "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        "CREATE CONSTRAINT TRIGGER later AFTER UPDATE ON r DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION nothing()"
    )
    side.execute("BEGIN")
    side.execute("UPDATE r SET v = v + 1")
    with pytest.raises(psycopg.errors.ObjectInUse, match="pending trigger events"):
        side.execute(RECLUSTER)
    side.execute("ROLLBACK")
    side.execute("BEGIN")
    side.execute("DECLARE c CURSOR FOR SELECT * FROM r")
    side.execute("FETCH 2 FROM c")
    with pytest.raises(psycopg.errors.ObjectInUse, match="used by active queries"):
        side.execute(RECLUSTER)
    side.execute("ROLLBACK")
    assert side.execute(RECLUSTER) == [(10,)]


def test_the_catalog_is_found_while_its_index_is_rebuilt_concurrently(twins: Twins) -> None:
    """The old index becomes invalid and the new one valid at one moment, which readers learn in two."""
    side = twins.columnar
    side.execute(SETUP)
    done = threading.Event()

    def write() -> int:
        session = open_session(twins)
        updates = 0
        while not done.is_set():
            session.execute("UPDATE t SET v = v + 1 WHERE id = 700")
            updates += 1
        return updates

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write) for _ in range(3)]
        try:
            for _ in range(8):
                side.execute("REINDEX TABLE CONCURRENTLY t")
        finally:
            done.set()
        updates = sum(writer.result() for writer in writers)
    assert side.execute("SELECT v FROM t WHERE id = 700") == [(7000 + updates,)]


def test_rows_written_while_an_open_cursor_saw_the_catalogs_index_become_ready(
    twins: Twins,
) -> None:
    """Up to PostgreSQL 15.18, where this lost rows, the relation cache does not refresh their flags."""
    side = twins.columnar
    side.execute(SETUP)
    blocker = open_session(twins)
    writer = open_session(twins)
    rebuilder = open_session(twins)
    for statement in BY_INDEX:
        writer.execute(statement)
    pid = rebuilder.connection.info.backend_pid
    waits_for = "SELECT %s = ANY (pg_blocking_pids(%s))"
    ((index,),) = side.execute(
        "SELECT i.indexrelid::regclass::text FROM pg_class c"
        " JOIN pg_index i ON i.indrelid = c.reltoastrelid WHERE c.oid = 't'::regclass"
    )

    blocker.execute("BEGIN")
    blocker.execute("INSERT INTO t VALUES (3001, 1)")
    with ThreadPoolExecutor(1) as pool:
        rebuild = pool.submit(rebuilder.execute, f"REINDEX INDEX CONCURRENTLY {index}")
        for _ in wait_until("the new index is there, not ready"):
            if side.execute(waits_for, (blocker.connection.info.backend_pid, pid)) == [(True,)]:
                break
        writer.execute("BEGIN")
        writer.execute("DECLARE c CURSOR FOR SELECT * FROM t WHERE id > 0 ORDER BY id")
        writer.execute("FETCH 1 FROM c")
        blocker.execute("COMMIT")
        for _ in wait_until("the new index is ready and waits for the cursor's snapshot"):
            if side.execute(waits_for, (writer.connection.info.backend_pid, pid)) == [(True,)]:
                break
        writer.execute("INSERT INTO t VALUES (3002, 2)")
        writer.execute("COMMIT")
        rebuild.result()
    assert side.execute("SELECT * FROM t WHERE id > 3000 ORDER BY id") == [(3001, 1), (3002, 2)]
    assert side.execute("UPDATE t SET v = 3 WHERE id = 3002 RETURNING v") == [(3,)]


# ---- planner ---------------------------------------------------------------------------------------------


def test_a_child_without_its_parents_not_null_counts_only_values(twins: Twins) -> None:
    twins.execute(
        *tables_with_a_child_that_may_be_null("parent", "child"),
        "INSERT INTO child VALUES (NULL), (1)",
    )
    assert twins.same("SELECT count(a), count(*) FROM parent") == [("1", "2")]
