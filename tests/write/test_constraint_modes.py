"""DEFERRABLE constraints and SET CONSTRAINTS: checked when PostgreSQL checks them, on all workers."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair
from tests.waiting import check_nothing_prepared

SETUP = """
CREATE TABLE owner (id integer PRIMARY KEY);
CREATE TABLE seat (id integer, n integer, CONSTRAINT seat_once UNIQUE (id, n) DEFERRABLE);
CREATE TABLE pet (id integer, n integer, PRIMARY KEY (id, n));
CREATE TABLE only_here (n integer CONSTRAINT here_once UNIQUE DEFERRABLE);
"""


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_constraint_modes") as made:
        made.execute(SETUP)
        made.distribute("owner", "id")
        made.distribute("seat", "id", colocate_with="owner")
        made.distribute("pet", "id", colocate_with="owner")
        made.execute(
            "ALTER TABLE pet ADD CONSTRAINT pet_owner FOREIGN KEY (id) REFERENCES owner (id)"
            " DEFERRABLE INITIALLY DEFERRED"
        )
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    data.execute(
        "TRUNCATE owner, pet, seat, only_here;"
        "INSERT INTO owner SELECT generate_series(1, 20);"
        "INSERT INTO seat SELECT g, 1 FROM generate_series(1, 20) AS g;"
        "INSERT INTO pet SELECT g, 1 FROM generate_series(1, 20) AS g"
    )
    yield data
    data.reset()
    check_nothing_prepared(data.cluster)


STATE = ["SELECT * FROM seat", "SELECT * FROM pet", "SELECT * FROM owner"]
TWICE = "INSERT INTO seat SELECT g, 1 FROM generate_series(1, 20) AS g"
ONCE_AGAIN = "DELETE FROM seat WHERE n = 1"


def transcript(pair: Pair, *statements: str, end: str = "COMMIT") -> None:
    """The statements do the same on both, in a transaction, and leave the same rows."""
    with pair.transaction(end):
        for statement in statements:
            pair.same(statement)
    pair.all_same(STATE)


@pytest.mark.parametrize("names", ["ALL", "seat_once", "test_constraint_modes.seat_once"])
def test_deferred_uniqueness_is_checked_at_commit(pair: Pair, names: str) -> None:
    transcript(pair, f"SET CONSTRAINTS {names} DEFERRED", TWICE, "SELECT count(*) FROM seat")
    transcript(pair, f"SET CONSTRAINTS {names} DEFERRED", TWICE, ONCE_AGAIN)


def test_what_was_not_deferred_is_checked_at_once(pair: Pair) -> None:
    transcript(pair, TWICE)
    transcript(pair, "SET CONSTRAINTS pet_owner DEFERRED", TWICE)


def test_a_deferred_update_may_pass_through_duplicates(pair: Pair) -> None:
    pair.execute("INSERT INTO seat SELECT g, 2 FROM generate_series(1, 20) AS g")
    transcript(pair, "SET CONSTRAINTS ALL DEFERRED", "UPDATE seat SET n = 3 - n")


def test_immediate_checks_what_is_pending_on_all_workers(pair: Pair) -> None:
    transcript(
        pair,
        "SET CONSTRAINTS ALL DEFERRED",
        TWICE,
        "SELECT count(*) FROM seat",
        "SET CONSTRAINTS ALL IMMEDIATE",
        "SELECT count(*) FROM seat",
    )
    transcript(
        pair,
        "INSERT INTO pet VALUES (100, 1), (101, 1), (102, 1), (103, 1)",
        "SET CONSTRAINTS pet_owner IMMEDIATE",
    )


def test_immediate_holds_for_what_follows(pair: Pair) -> None:
    transcript(pair, "SET CONSTRAINTS pet_owner IMMEDIATE", "INSERT INTO pet VALUES (100, 1)")
    transcript(pair, "SET CONSTRAINTS ALL IMMEDIATE", "DELETE FROM owner WHERE id < 4")


def test_foreign_keys_that_are_initially_deferred_fail_at_commit(pair: Pair) -> None:
    transcript(pair, "INSERT INTO pet SELECT g, 1 FROM generate_series(100, 120) AS g")
    transcript(
        pair,
        "INSERT INTO pet SELECT g, 1 FROM generate_series(100, 120) AS g",
        "INSERT INTO owner SELECT generate_series(100, 120)",
    )
    transcript(pair, "DELETE FROM owner WHERE id = 7")
    transcript(pair, "DELETE FROM owner WHERE id = 8", "DELETE FROM pet WHERE id = 8")


def test_the_last_mode_counts(pair: Pair) -> None:
    transcript(pair, "SET CONSTRAINTS ALL DEFERRED", "SET CONSTRAINTS seat_once IMMEDIATE", TWICE)
    transcript(
        pair,
        "SET CONSTRAINTS ALL IMMEDIATE",
        "SET CONSTRAINTS seat_once DEFERRED",
        TWICE,
        ONCE_AGAIN,
    )


def test_a_savepoint_that_is_rolled_back_takes_its_mode_along(pair: Pair) -> None:
    """Also where the worker joins the transaction only after that."""
    for first in (["SELECT count(*) FROM seat"], []):
        transcript(
            pair,
            *first,
            "SAVEPOINT a",
            "SET CONSTRAINTS ALL DEFERRED",
            "ROLLBACK TO a",
            "SAVEPOINT b",
            TWICE,
            "ROLLBACK TO b",
            "SELECT count(*) FROM seat",
        )
        transcript(
            pair,
            *first,
            "SET CONSTRAINTS ALL DEFERRED",
            "SAVEPOINT a",
            "SET CONSTRAINTS ALL IMMEDIATE",
            "ROLLBACK TO a",
            TWICE,
            ONCE_AGAIN,
        )


def test_a_released_savepoint_leaves_its_mode(pair: Pair) -> None:
    transcript(
        pair,
        "SAVEPOINT a",
        "SAVEPOINT b",
        "SET CONSTRAINTS ALL DEFERRED",
        "RELEASE b",
        "RELEASE a",
        "SAVEPOINT c",
        TWICE,
        "RELEASE c",
        ONCE_AGAIN,
    )


def test_a_worker_that_joins_inside_a_savepoint_forgets_what_is_undone(pair: Pair) -> None:
    transcript(
        pair,
        "SAVEPOINT a",
        "SET CONSTRAINTS ALL DEFERRED",
        TWICE,
        "ROLLBACK TO a",
        "SAVEPOINT c",
        TWICE,
        "ROLLBACK TO c",
    )


def test_the_mode_ends_with_the_transaction(pair: Pair) -> None:
    for end in ("COMMIT", "ROLLBACK"):
        transcript(pair, "SET CONSTRAINTS ALL DEFERRED", "SELECT count(*) FROM seat", end=end)
        transcript(pair, TWICE)


def test_a_function_sets_the_mode_for_its_caller(pair: Pair) -> None:
    pair.execute(
        "CREATE FUNCTION defer_all () RETURNS void LANGUAGE plpgsql"
        " AS 'BEGIN SET CONSTRAINTS ALL DEFERRED; END'"
    )
    transcript(pair, "SELECT defer_all()", TWICE, ONCE_AGAIN)
    pair.execute("DROP FUNCTION defer_all ()")


def test_constraints_of_local_tables_and_wrong_names_are_as_they_were(pair: Pair) -> None:
    transcript(
        pair,
        "SET CONSTRAINTS here_once, seat_once DEFERRED",
        "INSERT INTO only_here VALUES (1), (1)",
        TWICE,
        "DELETE FROM only_here",
        ONCE_AGAIN,
    )
    transcript(pair, "SET CONSTRAINTS here_once DEFERRED", TWICE)
    transcript(pair, "SET CONSTRAINTS nothing DEFERRED")
    transcript(pair, "SET CONSTRAINTS seat_once, owner_pkey DEFERRED")


# ---- commits that have to wait ---------------------------------------------------------------------


def begin_waiting_commit(pair: Pair, holder: psycopg.Connection, rows: str) -> Waiter:
    """A COMMIT that must know whether the holder's rows stay, with little patience for silence."""
    keys = f"INSERT INTO seat VALUES {rows}"
    holder.execute(f"BEGIN; SET CONSTRAINTS ALL DEFERRED; {keys}")
    session = pair.cluster.coordinator.connect()
    session.execute("SET search_path = test_constraint_modes, public, strata")
    session.execute("SET strata.worker_timeout = '1s'")
    session.execute(f"BEGIN; SET CONSTRAINTS ALL DEFERRED; {keys}")
    return Waiter(session)


class Waiter(threading.Thread):
    """A session in COMMIT, and how that ended."""

    def __init__(self, session: psycopg.Connection):
        super().__init__(daemon=True)
        self.session = session
        self.pid = session.info.backend_pid
        self.error: psycopg.Error | None = None
        self.start()

    def run(self) -> None:
        with self.session:
            try:
                self.session.execute("COMMIT")
            except psycopg.Error as error:
                self.error = error


@pytest.fixture
def holder(pair: Pair) -> Iterator[psycopg.Connection]:
    with pair.cluster.coordinator.connect() as connection:
        connection.execute("SET search_path = test_constraint_modes, public, strata")
        yield connection


ROWS = {"one worker": "(1, 77)", "both workers": "(1, 77), (2, 77), (3, 77), (4, 77), (5, 77)"}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_a_commit_waits_for_others_longer_than_for_a_silent_worker(
    pair: Pair, holder: psycopg.Connection, rows: str
) -> None:
    waiter = begin_waiting_commit(pair, holder, rows)
    waiter.join(2.5)
    assert waiter.is_alive()
    holder.execute("ROLLBACK")
    waiter.join(20)
    assert waiter.error is None
    assert pair.rows("SELECT count(*) FROM seat WHERE n = 77") == [(rows.count("("),)]


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_a_commit_that_waits_for_others_can_be_cancelled(
    pair: Pair, holder: psycopg.Connection, rows: str
) -> None:
    waiter = begin_waiting_commit(pair, holder, rows)
    waiter.join(0.5)
    assert waiter.is_alive()
    holder.execute("SAVEPOINT s")
    pair.rows(f"SELECT pg_cancel_backend({waiter.pid})")
    waiter.join(20)
    assert waiter.error is not None
    assert waiter.error.sqlstate == "57014"
    holder.execute("ROLLBACK")
    assert pair.rows("SELECT count(*) FROM seat WHERE n = 77") == [(0,)]
