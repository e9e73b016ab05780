"""SERIALIZABLE: as in PostgreSQL while a transaction uses one node, an error at the second one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

SERIALIZABLE = "BEGIN ISOLATION LEVEL SERIALIZABLE"


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_serializable") as made:
        made.execute(
            "CREATE TABLE duty (team integer, doctor integer, present boolean NOT NULL,"
            " PRIMARY KEY (team, doctor));"
            "CREATE TABLE local (id integer PRIMARY KEY, v integer);"
            "CREATE TABLE rate (code integer PRIMARY KEY, v integer);"
            "INSERT INTO local VALUES (1, 1); INSERT INTO rate VALUES (1, 1)"
        )
        made.distribute("duty", "team")
        made.reference("rate")
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    data.execute(
        "TRUNCATE duty; INSERT INTO duty SELECT t, d, true"
        " FROM generate_series(1, 20) AS t, generate_series(1, 2) AS d"
    )
    yield data
    data.reset()


@pytest.fixture
def teams(pair: Pair) -> list[int]:
    """Teams whose rows are on different workers."""
    return [
        node.value(f"SELECT min(team) FROM {pair.schema}.duty") for node in pair.cluster.workers
    ]


@pytest.fixture
def new(pair: Pair) -> Iterator[Callable[[], psycopg.Connection]]:
    with ExitStack() as stack:

        def open_session() -> psycopg.Connection:
            connection = stack.enter_context(pair.cluster.coordinator.connect())
            connection.execute(f"SET search_path = {pair.schema}, public")
            return connection

        yield open_session


def leave(team: int, doctor: int) -> str:
    """Go home if somebody else of the team is there: write skew when both do at a time."""
    return f"UPDATE duty SET present = false WHERE (team, doctor) = ({team}, {doctor})"


def count(team: int) -> str:
    return f"SELECT count(*) FROM duty WHERE team = {team} AND present"


def assert_second_node_is_refused(connection: psycopg.Connection, statement: str) -> psycopg.Error:
    with pytest.raises(psycopg.errors.FeatureNotSupported) as caught:
        connection.execute(statement)
    assert "SERIALIZABLE" in caught.value.diag.message_primary
    assert "REPEATABLE READ" in caught.value.diag.message_hint
    connection.execute("ROLLBACK")
    return caught.value


def test_write_skew_on_one_worker_is_refused_as_by_postgresql(
    pair: Pair, new, teams: list[int]
) -> None:
    one, two = new(), new()
    for session, doctor in ((one, 1), (two, 2)):
        session.execute(SERIALIZABLE)
        assert session.execute(count(teams[0])).fetchone() == (2,)
        session.execute(leave(teams[0], doctor))
    one.execute("COMMIT")
    with pytest.raises(psycopg.errors.SerializationFailure):
        two.execute("COMMIT")
    assert pair.rows(count(teams[0])) == [(1,)]


def test_write_skew_over_two_workers_is_refused_before_it_can_happen(
    pair: Pair, new, teams: list[int]
) -> None:
    """Each reads what the other writes, on another worker: neither worker would see a conflict."""
    one, two = new(), new()
    for session, read, write in ((one, teams[0], teams[1]), (two, teams[1], teams[0])):
        session.execute(SERIALIZABLE)
        session.execute(count(read))
        error = assert_second_node_is_refused(session, leave(write, 1))
        assert "worker1" in error.diag.message_detail
        assert "worker2" in error.diag.message_detail
    assert pair.rows("SELECT count(*) FROM duty WHERE NOT present") == [(0,)]


def test_a_query_of_all_shards_is_refused(new) -> None:
    session = new()
    session.execute(SERIALIZABLE)
    assert_second_node_is_refused(session, "SELECT count(*) FROM duty")
    session.execute("SET default_transaction_isolation = serializable")
    assert_second_node_is_refused(session, "SELECT count(*) FROM duty")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM local",
        "INSERT INTO local VALUES (7, 7)",
        "UPDATE rate SET v = v + 1",
        "SELECT * FROM rate FOR UPDATE",
        "COPY local FROM STDIN",
        "COPY local TO STDOUT",
    ],
)
def test_rows_of_the_coordinator_are_a_node(new, teams: list[int], statement: str) -> None:
    session = new()
    session.execute(SERIALIZABLE)
    session.execute(count(teams[0]))
    assert_second_node_is_refused(session, statement)


def test_a_worker_after_rows_of_the_coordinator_is_refused(new, teams: list[int]) -> None:
    session = new()
    session.execute(SERIALIZABLE)
    session.execute("SELECT * FROM local")
    assert_second_node_is_refused(session, count(teams[0]))


def test_one_worker_with_temporary_tables_reference_tables_and_catalogs_is_one_node(
    pair: Pair, new, teams: list[int]
) -> None:
    session = new()
    session.execute("CREATE TEMPORARY TABLE mine (team integer)")
    session.execute(f"INSERT INTO mine VALUES ({teams[0]})")
    session.execute(SERIALIZABLE)
    assert session.execute(count(teams[0])).fetchone() == (2,)
    session.execute(leave(teams[0], 1))
    assert session.execute("SELECT count(*) FROM pg_class").fetchone()[0] > 0
    assert session.execute("SELECT v FROM rate WHERE code = 1").fetchone() == (1,)
    assert session.execute(
        f"SELECT count(*) FROM duty JOIN rate ON code = doctor WHERE team = {teams[0]}"
    ).fetchone() == (1,)
    session.execute("INSERT INTO mine VALUES (99)")
    session.execute("SELECT count(*) FROM mine")
    session.execute("COMMIT")
    assert pair.rows(count(teams[0])) == [(1,)]


def test_local_tables_alone_are_one_node(new) -> None:
    session = new()
    session.execute(SERIALIZABLE)
    session.execute("UPDATE local SET v = v + 1")
    session.execute("SELECT * FROM local")
    session.execute("COMMIT")


def test_the_next_transaction_knows_nothing_of_the_last(new, teams: list[int]) -> None:
    session = new()
    for end in ("COMMIT", "ROLLBACK"):
        session.execute(SERIALIZABLE)
        session.execute("SELECT * FROM local")
        session.execute(end)
        session.execute(SERIALIZABLE)
        session.execute(count(teams[0]))
        session.execute(end)
        session.execute(SERIALIZABLE)
        session.execute(count(teams[1]))
        session.execute(end)
