"""Cursors over distributed tables move, hold and close as over plain ones."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests import shop
from tests.cluster import Cluster
from tests.pair import Pair, open_pair


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_cursors") as made:
        shop.create(made)
        yield made


def test_fetch_in_portions_yields_all_rows(pair: Pair) -> None:
    with pair.transaction():
        pair.execute("DECLARE c CURSOR FOR SELECT user_id, name FROM users ORDER BY user_id")
        pair.all_same(["FETCH c", "FETCH 50 FROM c", "MOVE 20 IN c"])
        pair.all_same(["FETCH NEXT FROM c", "FETCH ALL FROM c", "FETCH c", "CLOSE c"])


def test_scroll_cursors_go_backward_and_jump(pair: Pair) -> None:
    with pair.transaction():
        pair.execute("DECLARE c SCROLL CURSOR FOR SELECT user_id, age FROM users ORDER BY user_id")
        for move in (
            "FETCH LAST", "FETCH FIRST", "FETCH ABSOLUTE 17", "FETCH RELATIVE 3", "FETCH PRIOR",
            "FETCH BACKWARD 5", "FETCH ABSOLUTE -2", "FETCH FORWARD 10", "FETCH BACKWARD ALL",
            "FETCH FORWARD ALL", "FETCH RELATIVE -100",
        ):  # fmt: skip
            pair.same(f"{move} FROM c", ordered=True)


def test_a_scroll_cursor_over_a_join_returns_the_same_rows_twice(pair: Pair) -> None:
    with pair.transaction():
        pair.execute(
            "DECLARE c SCROLL CURSOR FOR SELECT u.user_id, e.event_id FROM users u"
            " JOIN events e USING (user_id) ORDER BY e.event_id"
        )
        first = pair.same("FETCH 40 FROM c", ordered=True)
        back = pair.same("FETCH BACKWARD 39 FROM c", ordered=True)
        assert back == first[-2::-1]


def test_hold_cursors_outlive_their_transaction(pair: Pair) -> None:
    with pair.transaction("COMMIT"):
        pair.execute(
            "DECLARE held CURSOR WITH HOLD FOR SELECT event_id FROM events ORDER BY event_id"
        )
        pair.same("FETCH 10 FROM held")
    pair.same("FETCH 10 FROM held")
    pair.execute("DELETE FROM events WHERE event_id = 21")
    pair.same("FETCH 5 FROM held")
    pair.same("CLOSE held")


def test_two_cursors_take_turns(pair: Pair) -> None:
    with pair.transaction():
        pair.execute("DECLARE a CURSOR FOR SELECT user_id FROM users ORDER BY user_id")
        pair.execute("DECLARE b CURSOR FOR SELECT event_id FROM events ORDER BY event_id")
        for _ in range(5):
            pair.same("FETCH 7 FROM a", ordered=True)
            pair.same("FETCH 7 FROM b", ordered=True)
        pair.same("SELECT count(*) FROM users")
        pair.same("FETCH ALL FROM a", ordered=True)
        pair.same("FETCH ALL FROM b", ordered=True)


def test_an_unordered_cursor_yields_every_row_once_while_others_use_the_session(pair: Pair) -> None:
    with pair.ours.transaction():
        pair.ours.execute("DECLARE c NO SCROLL CURSOR FOR SELECT event_id FROM events")
        seen = []
        while rows := pair.rows("FETCH 333 FROM c"):
            seen += rows
            assert pair.rows("SELECT count(*) FROM users") == [(shop.USERS,)]
        everything = pair.rows("SELECT event_id FROM events")
    assert sorted(seen) == sorted(everything)


def test_a_cursor_does_not_see_later_changes_of_its_transaction(pair: Pair) -> None:
    with pair.transaction():
        pair.execute("DECLARE c CURSOR FOR SELECT user_id, age FROM users ORDER BY user_id")
        pair.same("FETCH 3 FROM c", ordered=True)
        pair.same("UPDATE users SET age = age + 1000")
        pair.same("DELETE FROM users WHERE user_id > 150")
        pair.same("FETCH ALL FROM c", ordered=True)
        pair.same("SELECT count(*), max(age) FROM users")


CURSORS = {
    "of one worker": "SELECT age FROM users WHERE user_id = 7",
    "of all": "SELECT user_id, age FROM users ORDER BY user_id",
    "of a sum": "SELECT count(*), sum(age) FROM users",
    "of a join": "SELECT u.age, e.event_id FROM users u JOIN events e ON e.event_id = u.user_id * 3"
    " ORDER BY e.event_id",
    "of a key that is looked up": "SELECT age FROM users WHERE user_id = (SELECT min(user_id) + 3 FROM users)",
}  # fmt: skip


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("query", CURSORS.values(), ids=CURSORS)
def test_a_cursor_sees_its_transaction_as_it_was_when_it_was_declared(
    pair: Pair, level: str, query: str
) -> None:
    with pair.transaction(begin=f"BEGIN ISOLATION LEVEL {level}"):
        pair.same("UPDATE users SET age = 3000 WHERE user_id = 6")
        pair.execute(f"DECLARE before CURSOR FOR {query}")
        pair.same("UPDATE users SET age = age + 1000")
        pair.execute(f"DECLARE between CURSOR FOR {query}")
        pair.same("DELETE FROM users WHERE user_id > 5")
        pair.same("SELECT count(*), max(age) FROM users")
        pair.same("FETCH 3 FROM before", ordered=True)
        pair.same("FETCH ALL FROM between", ordered=True)
        pair.same("FETCH ALL FROM before", ordered=True)


def test_a_loop_of_plpgsql_does_not_see_what_it_writes_in_repeatable_read(pair: Pair) -> None:
    with pair.transaction(begin="BEGIN ISOLATION LEVEL REPEATABLE READ"):
        pair.execute(
            """DO $$
            DECLARE
                c CURSOR FOR SELECT user_id, age FROM users ORDER BY user_id;
                one record;
            BEGIN
                OPEN c;
                UPDATE users SET age = 1;
                LOOP
                    FETCH c INTO one;
                    EXIT WHEN NOT FOUND;
                    UPDATE users SET age = age + one.age WHERE user_id = one.user_id;
                END LOOP;
            END $$"""
        )
        pair.same("SELECT user_id, age FROM users ORDER BY user_id", ordered=True)


def test_a_serializable_cursor_sees_one_worker_as_it_was_when_it_was_declared(pair: Pair) -> None:
    with pair.transaction(begin="BEGIN ISOLATION LEVEL SERIALIZABLE"):
        pair.execute("DECLARE c CURSOR FOR SELECT age FROM users WHERE user_id = 7")
        pair.same("UPDATE users SET age = 2000 WHERE user_id = 7")
        pair.same("FETCH ALL FROM c")


def test_a_serializable_statement_on_one_worker_may_call_functions(pair: Pair) -> None:
    pair.execute("CREATE FUNCTION older(int) RETURNS int LANGUAGE sql IMMUTABLE RETURN $1 + 1")
    pair.execute(
        "CREATE FUNCTION oldest(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS"
        " 'BEGIN RETURN $1 + 100; END'"
    )
    for function in ("older", "oldest"):
        with pair.transaction(begin="BEGIN ISOLATION LEVEL SERIALIZABLE"):
            pair.execute(
                f"DECLARE c CURSOR FOR SELECT {function}(age) FROM users WHERE user_id = 7"
            )
            pair.same(f"UPDATE users SET age = {function}(age) WHERE user_id = 7")
            pair.same("FETCH ALL FROM c")
            pair.same("SELECT age FROM users WHERE user_id = 7")


def test_a_cursor_of_a_released_savepoint_goes_on_and_of_a_rolled_back_one_is_gone(
    pair: Pair,
) -> None:
    with pair.transaction():
        pair.execute("SAVEPOINT a; DECLARE c CURSOR FOR SELECT user_id FROM users ORDER BY user_id")
        pair.same("FETCH 2 FROM c")
        pair.execute("RELEASE a; SAVEPOINT b")
        pair.same("FETCH 2 FROM c")
        pair.execute("DECLARE d CURSOR FOR SELECT event_id FROM events ORDER BY event_id")
        pair.same("FETCH 2 FROM d")
        pair.execute("ROLLBACK TO b")
        pair.same("FETCH 2 FROM c")
        pair.same("FETCH 2 FROM d")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT user_id FROM users ORDER BY user_id",
        "SELECT event_id FROM events ORDER BY event_id",
        "SELECT u.name, e.event_id FROM users u JOIN events e ON e.event_id = u.user_id * 3"
        " ORDER BY e.event_id",
    ],
)
def test_a_cursor_goes_on_where_it_was_when_a_savepoint_with_its_first_fetch_is_rolled_back(
    pair: Pair, query: str
) -> None:
    with pair.transaction():
        pair.execute(f"DECLARE c CURSOR FOR {query}")
        pair.execute("SAVEPOINT a")
        pair.same("FETCH 2 FROM c", ordered=True)
        pair.execute("UPDATE users SET age = 0")
        pair.execute("SAVEPOINT b")
        pair.same("FETCH 2 FROM c", ordered=True)
        pair.execute("ROLLBACK TO b")
        pair.same("FETCH 2 FROM c", ordered=True)
        pair.execute("ROLLBACK TO a")
        pair.same("FETCH 2 FROM c", ordered=True)
        pair.same("FETCH ALL FROM c", ordered=True)
        pair.same("SELECT count(*), sum(age) FROM users")


def test_an_update_at_the_place_of_a_cursor_is_refused(pair: Pair) -> None:
    """WHERE CURRENT OF needs places of rows, which are on the workers: a clear error, no lie."""
    with pair.ours.transaction(force_rollback=True):
        pair.ours.execute("DECLARE c CURSOR FOR SELECT * FROM users FOR UPDATE")
        pair.ours.execute("FETCH c")
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            pair.ours.execute("UPDATE users SET age = 1 WHERE CURRENT OF c")


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_an_abandoned_cursor_ends_with_its_transaction(pair: Pair, end: str) -> None:
    for _ in range(3):
        pair.ours.execute("BEGIN")
        pair.ours.execute("DECLARE c CURSOR FOR SELECT * FROM events")
        pair.ours.execute("FETCH 1 FROM c")
        pair.ours.execute(end)
        pair.same("SELECT count(*) FROM events")


def test_server_side_cursors_of_a_driver_stream_all_rows(pair: Pair) -> None:
    with pair.ours.transaction(), pair.ours.cursor(name="streamed") as cursor:
        cursor.itersize = 100
        cursor.execute("SELECT event_id FROM events WHERE user_id > %s", (0,))
        streamed = sorted(cursor)
    assert streamed == sorted(pair.rows("SELECT event_id FROM events WHERE user_id > 0"))
