"""The checker finds planted anomalies of every class, and none where there is none."""

from __future__ import annotations

import itertools

import pytest

from tests.cluster import Cluster, Node
from tests.history.checker import check
from tests.history.model import (
    ABORTED,
    COMMITTED,
    READ_COMMITTED,
    REPEATABLE_READ,
    SERIALIZABLE,
    UNKNOWN,
    Append,
    History,
    Read,
    Statement,
    Transaction,
)
from tests.history.workload import CLERK, KEEPER, create_tables, record

numbers = itertools.count(1)


def r(key: str, *values: int, current: bool = False) -> Read:
    return Read(key, list(values), current)


def a(key: str, value: int, undone: bool = False) -> Append:
    return Append(key, value, undone)


def st(*parts: Read | Append, at: tuple[float, float] = (0, 100)) -> Statement:
    reads = [part for part in parts if isinstance(part, Read)]
    return Statement(*at, reads, [part for part in parts if isinstance(part, Append)])


def tx(
    *statements: Statement,
    level: str = REPEATABLE_READ,
    status: str = COMMITTED,
    commit: float = 0,
    end: float = 100,
) -> Transaction:
    """All of it at the same time as all others, unless said: then real time says nothing."""
    return Transaction(next(numbers), level, list(statements), status, commit, end)


def found(final: dict[str, list[int]], *transactions: Transaction) -> set[str]:
    return {anomaly.name for anomaly in check(History(list(transactions), final))}


BOTH = {"x": [1], "y": [1]}
WRITER = tx(st(a("x", 1), a("y", 1)))


@pytest.mark.parametrize("level", [READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE])
def test_innocent(level: str) -> None:
    history = [
        WRITER,
        tx(st(r("x"), r("y")), level=level),
        tx(st(r("x", 1), r("y", 1)), st(a("x", 2), r("x", 1, 2)), level=level),
        tx(st(a("x", 9)), level=level, status=ABORTED),
        tx(st(a("x", 8, undone=True)), level=level),
        tx(st(a("y", 7)), level=level, status=UNKNOWN),
        tx(st(r("x", 1, 2), r("y", 1)), level=level),
    ]
    assert found({"x": [1, 2], "y": [1]}, *history) == set()


def test_two_statements_of_read_committed_may_differ() -> None:
    first, second = st(r("x")), st(r("y", 1))
    assert found(BOTH, WRITER, tx(first, second, level=READ_COMMITTED)) == set()
    assert found(BOTH, WRITER, tx(first, second, level=REPEATABLE_READ)) == {"G-single"}


def test_aborted_read() -> None:
    gone = tx(st(a("x", 5)), status=ABORTED)
    assert found({"x": []}, gone, tx(st(r("x", 5)))) >= {"G1a"}
    assert found({"x": [5]}, gone) == {"G1a"}
    assert found({"x": [6]}) == {"G1a"}
    undone = tx(st(a("x", 5, undone=True)))
    assert found({"x": []}, undone, tx(st(r("x", 5)), level=READ_COMMITTED)) >= {"G1a"}


def test_intermediate_read() -> None:
    writer = tx(st(a("x", 1)), st(a("x", 2)))
    assert "G1b" in found({"x": [1, 2]}, writer, tx(st(r("x", 1)), level=READ_COMMITTED))


def test_lost_append_and_torn_commit() -> None:
    assert found({"x": []}, tx(st(a("x", 1)))) == {"lost append"}
    assert found({"x": [1], "y": []}, WRITER) == {"torn commit"}
    half = tx(st(a("x", 1), a("y", 1)), status=UNKNOWN)
    assert found({"x": [1], "y": []}, half) == {"torn commit"}


def test_broken_order() -> None:
    writers = [tx(st(a("x", value)), level=READ_COMMITTED) for value in (1, 2)]
    assert "broken order" in found({"x": [1, 2]}, *writers, tx(st(r("x", 2))))
    assert "broken order" in found({"x": [1, 1]}, writers[0])


def test_dirty_write() -> None:
    writers = [tx(st(a("x", value), a("y", value)), level=READ_COMMITTED) for value in (1, 2)]
    assert found({"x": [1, 2], "y": [2, 1]}, *writers) == {"G0"}


def test_circular_information_flow() -> None:
    one = tx(st(r("y", 2)), st(a("x", 1)), level=READ_COMMITTED)
    two = tx(st(r("x", 1)), st(a("y", 2)), level=READ_COMMITTED)
    assert found({"x": [1], "y": [2]}, one, two) == {"G1c"}


def test_lost_update() -> None:
    writers = [tx(st(r("x")), st(a("x", value))) for value in (1, 2)]
    assert found({"x": [1, 2]}, *writers) == {"lost update"}
    writers = [tx(st(r("x")), st(a("x", value)), level=READ_COMMITTED) for value in (1, 2)]
    assert found({"x": [1, 2]}, *writers) == set()


def test_torn_statement() -> None:
    reader = tx(st(r("x", 1), r("y")), level=READ_COMMITTED)
    assert found(BOTH, WRITER, reader) == {"torn statement"}
    failed = tx(st(r("x", 1), r("y")), level=READ_COMMITTED, status=ABORTED)
    assert found(BOTH, WRITER, failed) == {"torn statement"}
    locked = tx(st(r("x", 1, current=True), r("y")), level=READ_COMMITTED)
    assert found(BOTH, WRITER, locked) == set()


def test_statement_that_sees_an_effect_without_its_cause() -> None:
    cause, effect = tx(st(a("x", 1))), tx(st(r("x", 1)), st(a("y", 2)))
    reader = tx(st(r("x"), r("y", 2)), level=READ_COMMITTED)
    assert found({"x": [1], "y": [2]}, cause, effect, reader) == {"torn statement"}


def test_single_anti_dependency() -> None:
    assert found(BOTH, WRITER, tx(st(r("x", 1)), st(r("y")))) == {"G-single"}


@pytest.mark.parametrize("level", [READ_COMMITTED, REPEATABLE_READ])
def test_long_fork(level: str) -> None:
    writers = [tx(st(a(key, 1))) for key in ("x", "y")]
    readers = [
        tx(st(r("x", 1), r("y")), level=level),
        tx(st(r("x"), r("y", 1)), level=level),
    ]
    assert found(BOTH, *writers, *readers) == {"long fork"}


@pytest.mark.parametrize("level", [READ_COMMITTED, REPEATABLE_READ])
def test_stale_read(level: str) -> None:
    writer = tx(st(a("x", 1), at=(0, 1)), commit=1, end=2)
    assert found({"x": [1]}, writer, tx(st(r("x"), at=(3, 4)), level=level)) == {"stale read"}
    assert found({"x": [1]}, writer, tx(st(r("x"), at=(1, 4)), level=level)) == set()
    # the snapshot of a transaction is its first statement's
    late = tx(st(r("y"), at=(1, 4)), st(r("x"), at=(5, 6)), level=level)
    expected = {"stale read"} if level == READ_COMMITTED else set()
    assert found({"x": [1], "y": []}, writer, late) == expected


def test_reads_that_go_back_in_time() -> None:
    writer = tx(st(a("x", 1)))
    readers = [
        tx(st(r("x", 1), at=(1, 2)), level=READ_COMMITTED),
        tx(st(r("x"), at=(3, 4)), level=READ_COMMITTED),
    ]
    assert found({"x": [1]}, writer, *readers) == {"stale read"}


def test_read_of_the_future() -> None:
    writer = tx(st(a("x", 1), at=(3, 4)), commit=5, end=6)
    assert found({"x": [1]}, writer, tx(st(r("x", 1), at=(1, 2)))) == {"time travel"}


@pytest.mark.parametrize("level", [READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE])
def test_write_skew(level: str) -> None:
    one = tx(st(r("x")), st(a("y", 1)), level=level)
    two = tx(st(r("y")), st(a("x", 1)), level=level)
    assert found(BOTH, one, two) == ({"G2"} if level == SERIALIZABLE else set())


def test_saved_history_is_read_back(tmp_path) -> None:
    history = History([WRITER, tx(st(r("x", 1), r("y")), level=READ_COMMITTED)], BOTH)
    history.save(tmp_path / "history.json")
    assert check(History.load(tmp_path / "history.json")) == check(history) != []


@pytest.fixture
def plain_server(cluster: Cluster):
    """One PostgreSQL without Strata, with the two roles."""
    node: Node = cluster.plain
    for role in (KEEPER, CLERK):
        cluster.create_role(role)
    create_tables(node, storage=None)
    yield node
    node.execute("DROP SCHEMA lists CASCADE")


def test_plain_postgresql_has_no_anomalies(plain_server: Node) -> None:
    history, _ = record(plain_server, 5, seed=1)
    assert sum(t.status == COMMITTED for t in history.transactions) > 100
    assert check(history) == []
