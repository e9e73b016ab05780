"""Sessions at once see, wait for and refuse each other on columnar tables as on heap tables.

Most tests are plays (see interleave.py): heap says what must happen.  An assertion after the play
names the point of the test, so that a play that lost it fails.  Crowds of sessions with invariants
are in test_crowds.py.
"""

from __future__ import annotations

import random

import psycopg
import pytest

from extensions.columnar.test.interleave import (
    error_of,
    interleavings,
    parse,
    play,
    waited,
)
from extensions.columnar.test.twins import Twins

SETUP = """
DROP TABLE IF EXISTS t, u;
CREATE TABLE t (id integer PRIMARY KEY, v integer, s text);
INSERT INTO t SELECT g, g * 10, 's' FROM generate_series(1, 1500) AS g;
INSERT INTO t VALUES (2000, 0, 'inline');
"""
FINAL = "SELECT count(*), sum(id), sum(v), md5(string_agg(t::text, '|' ORDER BY id, v)) FROM t"


# ---- two writers of one row ------------------------------------------------------------------------------

WRITES = {
    "add": "UPDATE t SET v = v + 1 WHERE id = {id} RETURNING v",
    "set": "UPDATE t SET s = s || 'x' WHERE id = {id} AND v < 5000 RETURNING v, s",
    "leave": "UPDATE t SET v = -1 WHERE id = {id} AND v >= 0 RETURNING v",
    "key": "UPDATE t SET id = id + 10000 WHERE id = {id} RETURNING id",
    "delete": "DELETE FROM t WHERE id = {id} RETURNING *",
    "delete if": "DELETE FROM t WHERE id = {id} AND v % 10 = 0 RETURNING *",
    "upsert": "INSERT INTO t VALUES ({id}, 1, 'up') ON CONFLICT (id) DO UPDATE SET v = t.v + excluded.v RETURNING v",
    "nothing": "INSERT INTO t VALUES ({id}, 1, 'up') ON CONFLICT DO NOTHING RETURNING v",
    "merge": "MERGE INTO t USING (SELECT {id} AS id) AS n ON t.id = n.id WHEN MATCHED AND t.v % 10 = 0 THEN UPDATE SET v = t.v + 3"
    " WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (n.id, 0, 'merged')",
    "lock": "SELECT * FROM t WHERE id = {id} FOR UPDATE",
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("second", WRITES)
def test_the_second_writer_finds_what_the_first_left(
    twins: Twins, second: str, level: str, end: str
) -> None:
    """Each write after each other one, of rows in row groups and in inline groups."""
    for number, first in enumerate(WRITES):
        row = 2000 if number % 3 == 0 else 700 + number
        transcript = play(
            twins,
            SETUP if number == 0 else "",
            f"""
            a: BEGIN
            b: BEGIN ISOLATION LEVEL {level}
            b: SELECT count(*) FROM t WHERE id < 5
            a: {WRITES[first].format(id=row)}
            b: {WRITES[second].format(id=row)}
            a: {end}
            b: COMMIT
            """,
            FINAL,
        )
        if first == "add":
            assert waited(transcript, "b")
            if level == "REPEATABLE READ" and end == "COMMIT" and second != "nothing":
                assert error_of(transcript, "b") == "40001"


def test_every_order_of_two_updates_and_a_reader(twins: Twins) -> None:
    """Sampled here, all of them in the slow run below."""
    check_orders(twins, 12)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_order_of_two_updates_and_a_reader_completely(twins: Twins) -> None:
    check_orders(twins, None)


def check_orders(twins: Twins, sample: int | None) -> None:
    one = parse(
        "a: BEGIN\na: UPDATE t SET v = v + 1 WHERE id = 5\na: UPDATE t SET v = v + 1 WHERE id = 6\na: COMMIT"
    )
    two = parse(
        "b: BEGIN\nb: UPDATE t SET v = v * 2 WHERE id = 6\nb: DELETE FROM t WHERE id = 5 AND v < 51\nb: ROLLBACK"
    )
    reader = parse("c: SELECT id, v FROM t WHERE id IN (5, 6) ORDER BY id")
    orders = list(interleavings(one, two, reader))
    if sample:
        orders = random.Random(1).sample(orders, sample)
    twins.execute(SETUP)
    for order in orders:
        play(twins, "UPDATE t SET v = id * 10 WHERE id IN (5, 6)", order, FINAL)


# ---- READ COMMITTED looks again --------------------------------------------------------------------------------

LOOKING_AGAIN = {
    "the condition holds no more": """
        a: BEGIN
        a: UPDATE t SET v = -1 WHERE id = 7
        b: UPDATE t SET s = 'b' WHERE v = 70 RETURNING *
        a: COMMIT
        """,
    "the condition has come to hold": """
        a: BEGIN
        a: UPDATE t SET v = 80 WHERE id = 7
        b: UPDATE t SET s = 'b' WHERE v = 80 RETURNING *
        a: COMMIT
        """,
    "many rows, some changed": """
        a: BEGIN
        a: UPDATE t SET v = v + 1 WHERE id BETWEEN 100 AND 400 AND id % 3 = 0
        a: DELETE FROM t WHERE id BETWEEN 390 AND 395
        b: UPDATE t SET s = 'b' WHERE id BETWEEN 50 AND 800 AND v % 10 = 0
        a: COMMIT
        """,
    "a row that was updated three times": """
        a: BEGIN
        a: UPDATE t SET v = v + 1 WHERE id = 9
        a: UPDATE t SET v = v + 1 WHERE id = 9
        a: SAVEPOINT x
        a: UPDATE t SET v = v + 100 WHERE id = 9
        a: ROLLBACK TO x
        a: UPDATE t SET v = v + 1 WHERE id = 9
        b: UPDATE t SET v = v * 2 WHERE id = 9 RETURNING v
        a: COMMIT
        """,
    "three sessions in a row": """
        a: BEGIN
        b: BEGIN
        c: BEGIN
        a: UPDATE t SET v = v + 1 WHERE id = 9 RETURNING v
        b: UPDATE t SET v = v + 10 WHERE id = 9 RETURNING v
        a: COMMIT
        c: UPDATE t SET v = v + 100 WHERE id = 9 RETURNING v
        b: ROLLBACK
        c: COMMIT
        """,
    "a join": """
        a: BEGIN
        a: UPDATE t SET v = v + 5 WHERE id IN (3, 4)
        a: UPDATE u SET v = v + 1000
        b: UPDATE t SET v = t.v + u.v FROM u WHERE u.id = t.id AND t.id < 6 RETURNING t.*, u.v
        a: COMMIT
        """,
    "a subquery": """
        a: BEGIN
        a: UPDATE t SET v = v + 5 WHERE id = 3
        b: UPDATE t SET s = 'b' WHERE id = 3 AND v = (SELECT max(v) FROM t AS x WHERE x.id = t.id) RETURNING *
        b: DELETE FROM t WHERE id IN (SELECT id FROM u) AND v > 20 RETURNING *
        a: COMMIT
        """,
    "a deletion of a deleted and inserted row": """
        a: BEGIN
        a: DELETE FROM t WHERE id = 8
        a: INSERT INTO t VALUES (8, 1, 'new')
        b: DELETE FROM t WHERE id = 8 RETURNING *
        a: COMMIT
        """,
    "locks instead of writes": """
        a: BEGIN
        a: UPDATE t SET v = 1 WHERE id IN (5, 6)
        b: SELECT * FROM t WHERE id IN (5, 6, 7) AND v > 50 ORDER BY id FOR UPDATE
        a: COMMIT
        """,
    "locks of a join": """
        a: BEGIN
        a: UPDATE u SET v = -1 WHERE id = 3
        b: SELECT t.id, u.v FROM t JOIN u USING (id) WHERE t.id < 5 ORDER BY t.id FOR UPDATE OF u
        a: COMMIT
        """,
    "limit": """
        a: BEGIN
        a: UPDATE t SET v = -5 WHERE id = 1
        b: SELECT id, v FROM t WHERE v > 0 ORDER BY id LIMIT 2 FOR UPDATE
        a: COMMIT
        """,
}


@pytest.mark.parametrize("name", LOOKING_AGAIN)
def test_read_committed_looks_again(twins: Twins, name: str) -> None:
    setup = SETUP + "CREATE TABLE u AS SELECT id, v FROM t WHERE id < 5;"
    transcript = play(twins, setup, LOOKING_AGAIN[name], FINAL)
    assert waited(transcript, "b") or name == "the condition has come to hold"


def test_rows_found_by_scan_and_by_index_are_looked_at_again(twins: Twins) -> None:
    for settings in (
        "SET enable_seqscan = off; SET enable_bitmapscan = off",
        "SET enable_indexscan = off; SET enable_bitmapscan = off",
        "SET enable_seqscan = off; SET enable_indexscan = off",
    ):
        play(
            twins,
            SETUP,
            f"""
            b: {settings}
            a: BEGIN
            a: UPDATE t SET v = v + 1 WHERE id IN (10, 11)
            b: UPDATE t SET v = v * 3 WHERE id IN (10, 11, 12) AND v % 10 = 0 RETURNING id, v
            a: COMMIT
            b: UPDATE t SET v = v * 3 WHERE id IN (10, 11, 12) RETURNING id, v
            """,
            FINAL,
        )


# ---- row locks ---------------------------------------------------------------------------------------------------

STRENGTHS = ("FOR UPDATE", "FOR NO KEY UPDATE", "FOR SHARE", "FOR KEY SHARE")
LOCKERS = {
    **{name: f"SELECT id FROM t WHERE id = 5 {name}" for name in STRENGTHS},
    "update": "UPDATE t SET v = 1 WHERE id = 5",
    "update key": "UPDATE t SET id = 5005 WHERE id = 5",
    "delete": "DELETE FROM t WHERE id = 5",
    "insert child": "INSERT INTO u VALUES (5)",
}


@pytest.mark.parametrize("first", LOCKERS)
def test_the_matrix_of_row_locks(twins: Twins, first: str) -> None:
    """Who waits for whom, and that another row and a plain reader never do."""
    setup = SETUP + "CREATE TABLE u (id integer REFERENCES t);"
    for second in LOCKERS:
        play(
            twins,
            setup,
            f"""
            a: BEGIN
            b: BEGIN
            a: {LOCKERS[first]}
            c: SELECT id, v FROM t WHERE id = 5
            c: UPDATE t SET v = v + 1 WHERE id = 6
            b: {LOCKERS[second]}
            a: ROLLBACK
            b: COMMIT
            c: SELECT id, v FROM t WHERE id IN (5, 6) ORDER BY id
            """,
        )


def test_deletes_of_different_rows_do_not_wait_for_each_other(twins: Twins) -> None:
    transcript = play(
        twins,
        SETUP,
        """
        a: BEGIN
        b: BEGIN
        a: DELETE FROM t WHERE id = 5
        b: DELETE FROM t WHERE id = 6
        a: UPDATE t SET v = 1 WHERE id = 7
        b: UPDATE t SET v = 1 WHERE id = 8
        b: COMMIT
        a: COMMIT
        """,
        FINAL,
    )
    assert not waited(transcript, "b")


def test_nowait_and_skip_locked(twins: Twins) -> None:
    transcript = play(
        twins,
        SETUP,
        """
        a: BEGIN
        a: SELECT id FROM t WHERE id IN (2, 3) ORDER BY id FOR UPDATE
        b: SELECT id FROM t WHERE id = 2 FOR UPDATE NOWAIT
        b: SELECT id FROM t WHERE id = 2 FOR KEY SHARE NOWAIT
        b: SELECT id FROM t WHERE id < 6 ORDER BY id FOR UPDATE SKIP LOCKED
        b: SELECT id FROM t ORDER BY id LIMIT 2 FOR SHARE SKIP LOCKED
        b: BEGIN
        b: SELECT id FROM t WHERE id < 6 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
        c: SELECT id FROM t WHERE id < 6 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
        c: DELETE FROM t WHERE id = (SELECT id FROM t ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id
        a: UPDATE t SET v = 0 WHERE id = 2
        c: SELECT id FROM t WHERE id < 6 ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
        a: COMMIT
        b: COMMIT
        c: SELECT id FROM t WHERE id < 6 ORDER BY id FOR UPDATE NOWAIT
        """,
    )
    assert error_of(transcript, "b") == "55P03"
    assert error_of(transcript, "c") is None


def test_locks_of_a_savepoint_go_with_it(twins: Twins) -> None:
    transcript = play(
        twins,
        SETUP,
        """
        a: BEGIN
        a: SAVEPOINT x
        a: SELECT id FROM t WHERE id = 5 FOR UPDATE
        a: UPDATE t SET v = 1 WHERE id = 6
        a: DELETE FROM t WHERE id = 7
        b: SELECT id FROM t WHERE id = 5 FOR UPDATE NOWAIT
        a: ROLLBACK TO x
        b: SELECT id FROM t WHERE id = 5 FOR UPDATE NOWAIT
        b: UPDATE t SET v = 2 WHERE id IN (6, 7)
        a: SELECT id, v FROM t WHERE id IN (6, 7) ORDER BY id
        a: COMMIT
        """,
        FINAL,
    )
    assert error_of(transcript, "b") == "55P03"
    assert not waited(transcript, "b")


def test_a_waiting_session_follows_the_rollback_of_a_savepoint(twins: Twins) -> None:
    play(
        twins,
        SETUP,
        """
        a: BEGIN
        a: SAVEPOINT x
        a: UPDATE t SET v = 1 WHERE id = 6
        b: UPDATE t SET v = v + 5 WHERE id = 6 RETURNING v
        a: ROLLBACK TO x
        a: COMMIT
        """,
        FINAL,
    )


def test_a_key_share_lock_follows_the_row_to_its_new_version(twins: Twins) -> None:
    transcript = play(
        twins,
        SETUP,
        """
        a: BEGIN
        a: SELECT id FROM t WHERE id = 5 FOR KEY SHARE
        b: UPDATE t SET v = v + 1 WHERE id = 5
        b: UPDATE t SET v = v + 1 WHERE id = 5
        c: DELETE FROM t WHERE id = 5
        a: SELECT id, v FROM t WHERE id = 5
        a: COMMIT
        """,
        FINAL,
    )
    assert not waited(transcript, "b")
    assert waited(transcript, "c")


def test_many_lockers_of_one_row(twins: Twins) -> None:
    """As heap's multixacts: shared locks of several, an upgrade among them, and a writer who waits for all."""
    play(
        twins,
        SETUP,
        """
        a: BEGIN
        b: BEGIN
        c: BEGIN
        a: SELECT id FROM t WHERE id = 5 FOR SHARE
        b: SELECT id FROM t WHERE id = 5 FOR SHARE
        c: SELECT id FROM t WHERE id = 5 FOR KEY SHARE
        d: UPDATE t SET v = 7 WHERE id = 5
        a: COMMIT
        b: COMMIT
        c: COMMIT
        d: DELETE FROM t WHERE id = 5
        """,
        FINAL,
    )


def test_own_locks_are_no_obstacle(twins: Twins) -> None:
    play(
        twins,
        SETUP,
        """
        a: BEGIN
        a: SELECT id FROM t WHERE id = 5 FOR KEY SHARE
        a: SAVEPOINT x
        a: SELECT id FROM t WHERE id = 5 FOR UPDATE
        a: UPDATE t SET v = 1 WHERE id = 5
        a: SELECT v FROM t WHERE id = 5 FOR UPDATE NOWAIT
        a: UPDATE t SET v = v + 1 WHERE id = 5
        a: RELEASE x
        a: DELETE FROM t WHERE id = 5
        b: SELECT v FROM t WHERE id = 5 FOR KEY SHARE NOWAIT
        a: COMMIT
        """,
        FINAL,
    )


def test_locks_after_an_update_chain(twins: Twins) -> None:
    """FOR UPDATE waits for the updater, then locks the newest version; REPEATABLE READ refuses."""
    transcript = play(
        twins,
        SETUP,
        """
        c: BEGIN ISOLATION LEVEL REPEATABLE READ
        c: SELECT v FROM t WHERE id = 5
        a: UPDATE t SET v = v + 1 WHERE id = 5
        a: UPDATE t SET v = v + 1 WHERE id = 5
        a: BEGIN
        a: UPDATE t SET v = v + 1 WHERE id = 5
        b: BEGIN
        b: SELECT * FROM t WHERE id = 5 FOR UPDATE
        a: COMMIT
        d: UPDATE t SET v = 0 WHERE id = 5
        c: SELECT v FROM t WHERE id = 5
        c: SELECT v FROM t WHERE id = 5 FOR SHARE
        b: COMMIT
        c: ROLLBACK
        """,
        FINAL,
    )
    assert error_of(transcript, "c") == "40001"
    assert waited(transcript, "d")


def test_a_deadlock_is_found(twins: Twins) -> None:
    transcript = play(
        twins,
        SETUP,
        """
        a: BEGIN
        b: BEGIN
        a: UPDATE t SET v = 1 WHERE id = 5
        b: DELETE FROM t WHERE id = 6
        a: UPDATE t SET v = 1 WHERE id = 6
        b: SELECT pg_sleep(0.3)
        b: SELECT id FROM t WHERE id = 5 FOR UPDATE
        a: ROLLBACK
        b: COMMIT
        """,
        FINAL,
    )
    assert error_of(transcript, "a") == "40P01"  # who waited first finds it


# ---- unique keys -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_one_key_inserted_by_two_sessions(twins: Twins, end: str) -> None:
    """The first has stored nothing yet: its row is only buffered."""
    for second in (
        "INSERT INTO t VALUES (7000, 2, 'b')",
        "INSERT INTO t VALUES (6999, 2, 'b'), (7000, 2, 'b'), (7001, 2, 'b')",
        "INSERT INTO t VALUES (7000, 2, 'b') ON CONFLICT DO NOTHING RETURNING *",
        "INSERT INTO t VALUES (7000, 2, 'b') ON CONFLICT (id) DO UPDATE SET v = t.v + excluded.v RETURNING *",
        "UPDATE t SET id = 7000 WHERE id = 5",
    ):
        transcript = play(
            twins,
            SETUP,
            f"""
            a: BEGIN
            a: INSERT INTO t VALUES (7000, 1, 'a')
            b: {second}
            a: {end}
            b: INSERT INTO t VALUES (7000, 3, 'c') ON CONFLICT (id) DO UPDATE SET v = t.v + 100
            """,
            FINAL,
        )
        assert waited(transcript, "b")


def test_a_key_that_is_deleted_and_inserted_at_once(twins: Twins) -> None:
    play(
        twins,
        SETUP,
        """
        a: BEGIN
        a: DELETE FROM t WHERE id = 5
        b: INSERT INTO t VALUES (5, 1, 'b')
        a: INSERT INTO t VALUES (5, 1, 'a')
        a: DELETE FROM t WHERE id = 5
        a: COMMIT
        b: INSERT INTO t VALUES (5, 1, 'b') ON CONFLICT DO NOTHING
        """,
        FINAL,
    )


def test_speculative_insertions_of_two_sessions(twins: Twins) -> None:
    for level in ("READ COMMITTED", "REPEATABLE READ"):
        play(
            twins,
            SETUP,
            f"""
            a: BEGIN
            b: BEGIN ISOLATION LEVEL {level}
            b: SELECT count(*) FROM t
            a: INSERT INTO t VALUES (8000, 1, 'a') ON CONFLICT (id) DO UPDATE SET v = t.v + 1 RETURNING v
            b: INSERT INTO t VALUES (8000, 1, 'b') ON CONFLICT (id) DO UPDATE SET v = t.v + 1 RETURNING v
            a: COMMIT
            b: SELECT v FROM t WHERE id = 8000
            b: COMMIT
            a: INSERT INTO t VALUES (8000, 1, 'a') ON CONFLICT (id) DO NOTHING
            """,
            FINAL,
        )


def test_a_batch_of_keys_meets_another_batch(twins: Twins) -> None:
    play(
        twins,
        SETUP,
        """
        a: BEGIN
        a: INSERT INTO t SELECT g, 1, 'a' FROM generate_series(10000, 14000) AS g
        b: INSERT INTO t SELECT g, 1, 'b' FROM generate_series(16000, 13000, -1) AS g
        c: SELECT count(*) FROM t WHERE id >= 10000
        a: ROLLBACK
        c: SELECT count(*), min(id) FROM t WHERE id >= 10000
        """,
        FINAL,
    )


# ---- foreign keys -------------------------------------------------------------------------------------------------


def test_foreign_keys_of_two_sessions(twins: Twins) -> None:
    setup = SETUP + "CREATE TABLE u (id integer, t integer REFERENCES t ON DELETE CASCADE);"
    transcript = play(
        twins,
        setup,
        """
        a: BEGIN
        a: INSERT INTO u VALUES (1, 5)
        b: UPDATE t SET v = 1 WHERE id = 5
        b: INSERT INTO u VALUES (2, 5)
        c: DELETE FROM t WHERE id = 5
        a: COMMIT
        c: SELECT * FROM u
        """,
        FINAL,
    )
    assert not waited(transcript, "b")
    assert waited(transcript, "c")
    transcript = play(
        twins,
        setup,
        """
        a: BEGIN
        a: DELETE FROM t WHERE id = 5
        b: INSERT INTO u VALUES (1, 5)
        a: COMMIT
        a: BEGIN
        a: DELETE FROM t WHERE id = 6
        b: INSERT INTO u VALUES (1, 6)
        a: ROLLBACK
        """,
        "SELECT * FROM u",
    )
    assert error_of(transcript, "b") == "23503"


# ---- partitions -----------------------------------------------------------------------------------------------------


def test_a_row_that_moved_to_another_partition_is_an_error_for_who_waited(twins: Twins) -> None:
    setup = """
        DROP TABLE IF EXISTS t;
        CREATE TABLE t (id integer, v integer, s text) PARTITION BY LIST (id);
        CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1); CREATE TABLE t2 PARTITION OF t FOR VALUES IN (2);
        INSERT INTO t SELECT 1, g, 's' FROM generate_series(1, 1200) AS g;
    """
    for second in (
        "UPDATE t SET v = v + 1 WHERE v = 5",
        "DELETE FROM t WHERE v = 5",
        "SELECT * FROM t WHERE v = 5 FOR UPDATE",
    ):
        transcript = play(
            twins,
            setup,
            f"""
            a: BEGIN
            a: UPDATE t SET id = 2 WHERE v = 5
            b: {second}
            a: COMMIT
            """,
            FINAL,
        )
        assert error_of(transcript, "b") == "40001"


# ---- snapshots ------------------------------------------------------------------------------------------------------


def test_repeatable_read_sees_one_state(twins: Twins) -> None:
    play(
        twins,
        SETUP,
        """
        a: BEGIN ISOLATION LEVEL REPEATABLE READ
        a: SELECT count(*), sum(v) FROM t
        b: UPDATE t SET v = v + 1 WHERE id % 2 = 0
        b: DELETE FROM t WHERE id % 5 = 0
        b: INSERT INTO t SELECT g, 1, 'b' FROM generate_series(3000, 5000) AS g
        b: VACUUM t
        a: SELECT count(*), sum(v) FROM t
        a: SELECT * FROM t WHERE id IN (2, 5, 3000) ORDER BY id
        a: INSERT INTO t VALUES (9000, 1, 'a')
        a: SELECT count(*), sum(v) FROM t
        a: UPDATE t SET v = 0 WHERE id = 2
        a: ROLLBACK
        a: SELECT count(*), sum(v) FROM t
        """,
    )


def test_an_old_snapshot_outlives_compaction_and_vacuum(twins: Twins) -> None:
    twins.execute(SETUP)
    twins.execute("DELETE FROM t WHERE id % 3 = 0")
    old = twins.open_side("columnar")
    old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    state = "SELECT count(*), sum(id), sum(v), md5(string_agg(t::text, '|' ORDER BY id)) FROM t"
    before = old.execute(state)
    for number in range(4):
        twins.execute(f"DELETE FROM t WHERE id % 7 = {number}")
        twins.execute(
            f"INSERT INTO t SELECT g, 1, repeat(md5(g::text), 40) FROM generate_series({3000 * (number + 1)}, {3000 * (number + 2) - 1}) AS g"
        )
        twins.columnar.execute("SELECT strata_columnar.columnar_compact('t')")
        twins.execute("VACUUM t")
        twins.same(FINAL)
        assert old.execute(state) == before
        old.execute("SET LOCAL enable_seqscan = off")
        assert old.execute("SELECT count(*) FROM t WHERE id = 7") == [(1,)]
    old.execute("COMMIT")
    old.connection.close()
    twins.same(FINAL)


def test_serializable_is_a_clear_error_or_serializable(twins: Twins) -> None:
    """Never a silent write skew: two transactions that each read what the other writes."""
    side = twins.columnar
    side.execute(SETUP)
    other = twins.open_side("columnar")
    errors = []
    for session, mine, theirs in ((side, 5, 6), (other, 6, 5)):
        try:
            session.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
            session.execute(f"SELECT v FROM t WHERE id = {theirs}")
            session.execute(f"UPDATE t SET v = -1 WHERE id = {mine}")
        except psycopg.Error as error:
            errors.append(error)
    for session in (side, other):
        try:
            session.execute("COMMIT")
        except psycopg.Error as error:
            errors.append(error)
    other.connection.close()
    assert errors
    assert {error.sqlstate for error in errors} <= {"0A000", "40001"}
    if errors[0].sqlstate == "0A000":
        assert "serializable" in str(errors[0]).lower()
        assert "t" in str(errors[0])


# ---- the table changes under the reader --------------------------------------------------------------------------------


def test_definitions_wait_for_readers_and_writers(twins: Twins) -> None:
    transcript = play(
        twins,
        SETUP,
        """
        a: BEGIN
        a: UPDATE t SET v = 1 WHERE id = 5
        b: TRUNCATE t
        c: SELECT count(*) FROM t
        a: COMMIT
        a: BEGIN
        a: INSERT INTO t VALUES (1, 1, 'a')
        b: ALTER TABLE t ADD COLUMN x integer DEFAULT 5
        c: INSERT INTO t VALUES (2, 2, 'c')
        a: COMMIT
        c: SELECT * FROM t ORDER BY id
        """,
    )
    assert waited(transcript, "b")


def test_an_index_built_concurrently_with_writers(twins: Twins) -> None:
    play(
        twins,
        SETUP,
        """
        a: BEGIN
        a: INSERT INTO t VALUES (3000, 77, 'a')
        a: UPDATE t SET v = 77 WHERE id = 5
        a: DELETE FROM t WHERE id = 6
        b: CREATE INDEX CONCURRENTLY i ON t (v)
        c: UPDATE t SET v = 77 WHERE id = 7
        c: INSERT INTO t VALUES (3001, 77, 'c')
        a: COMMIT
        b: SET enable_seqscan = off
        b: SELECT id FROM t WHERE v = 77 ORDER BY id
        b: SELECT id FROM t WHERE v = 60 ORDER BY id
        """,
        FINAL,
    )


def test_prepared_transactions_hold_their_row_locks(twins: Twins) -> None:
    for side in twins.sides:
        side.execute(SETUP)
        side.execute("BEGIN")
        side.execute("UPDATE t SET v = v + 1 WHERE id = 5")
        side.execute("SELECT id FROM t WHERE id = 6 FOR KEY SHARE")
        side.execute("INSERT INTO t VALUES (7000, 1, 'prepared')")
        side.execute(f"PREPARE TRANSACTION 'locks {side.method}'")
    transcript = play(
        twins,
        "",
        """
        a: UPDATE t SET v = v * 2 WHERE id = 5 RETURNING v
        b: UPDATE t SET v = 0 WHERE id = 6
        c: DELETE FROM t WHERE id = 6
        d: INSERT INTO t VALUES (7000, 2, 'd')
        e: COMMIT PREPARED 'locks {am}'
        """,
        FINAL,
    )
    assert not waited(transcript, "b")
    assert all(waited(transcript, name) for name in "acd")
    assert error_of(transcript, "d") == "23505"
