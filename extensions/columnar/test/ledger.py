"""Workers that count what was acknowledged to them, while servers are killed."""

from __future__ import annotations

import random
import threading
from contextlib import suppress

import psycopg

from tests.cluster import Node

TABLE = "CREATE TABLE t (w integer, id integer, v integer, s text, PRIMARY KEY (w, id)) USING columnar; CREATE INDEX ON t (v)"


class Ledger:
    """A worker that counts in its rows of t what was acknowledged to it.

    Worker w inserts rows (w, n), rewrites some, deletes others, and remembers after each COMMIT
    that was answered what its rows must be.  A COMMIT without an answer may have happened or not.
    """

    def __init__(self, worker: int, seed: int):
        self.worker = worker
        self.rng = random.Random(f"{seed} {worker}")
        self.rows: dict[int, int] = {}
        self.maybe: dict[int, int] | None = (
            None  # the state if the last, unanswered, commit happened
        )
        self.next = 0
        self.commits = 0

    def work(self, node: Node, stop: threading.Event) -> None:
        with suppress(psycopg.OperationalError), node.connect() as connection:
            while not stop.is_set():
                self.transact(connection)

    def transact(self, connection: psycopg.Connection) -> None:
        rng = self.rng
        state = dict(self.rows)
        connection.execute("BEGIN")
        for _ in range(rng.randrange(1, 4)):
            choice = rng.random()
            if choice < 0.5 or not state:
                count = rng.choice((1, 1, 5, 60, 1500))
                first, self.next = self.next, self.next + count
                connection.execute(
                    "INSERT INTO t SELECT %s, g, g %% 1000, repeat('x', g %% 30) FROM generate_series(%s::int, %s::int) AS g",
                    (self.worker, first, first + count - 1),
                )
                state.update((n, n % 1000) for n in range(first, first + count))
            elif choice < 0.8:
                low = rng.choice(sorted(state))
                connection.execute(
                    "UPDATE t SET v = v + 1 WHERE w = %s AND id BETWEEN %s AND %s",
                    (self.worker, low, low + 20),
                )
                state.update((n, state[n] + 1) for n in range(low, low + 21) if n in state)
            else:
                low = rng.choice(sorted(state))
                connection.execute(
                    "DELETE FROM t WHERE w = %s AND id BETWEEN %s AND %s",
                    (self.worker, low, low + 300),
                )
                for n in range(low, low + 301):
                    state.pop(n, None)
        if rng.random() < 0.2:
            connection.execute("ROLLBACK")
            return
        self.maybe = state
        connection.execute("COMMIT")
        self.rows, self.maybe = state, None
        self.commits += 1

    def check(self, node: Node) -> None:
        found = dict(node.query("SELECT id, v FROM t WHERE w = %s", (self.worker,)))
        count = node.value("SELECT count(*) FROM t WHERE w = %s", (self.worker,))
        assert count == len(found)
        if found != self.rows:
            assert self.maybe is not None, differences(found, self.rows)
            assert found == self.maybe, differences(found, self.maybe)
        self.rows, self.maybe = found, None


def differences(found: dict[int, int], expected: dict[int, int]) -> str:
    lost = sorted(expected.keys() - found.keys())
    surplus = sorted(found.keys() - expected.keys())
    changed = sorted(n for n in found.keys() & expected.keys() if found[n] != expected[n])
    return f"lost {lost[:9]} ({len(lost)}), surplus {surplus[:9]} ({len(surplus)}), other values {changed[:9]} ({len(changed)})"
