"""Many clients at once, whose every acknowledged write is remembered and looked for at the end.

Invariants: the balances of all accounts keep their sum; a ledger row is there if its transaction
was acknowledged, and not if it was refused (it may be either if the outcome is not known); the
visits of the reference table, equal on all nodes, are those that were acknowledged.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections import Counter
from pathlib import Path

import psycopg

from tests.cluster import Cluster, Node
from tests.waiting import wait_until

ACCOUNTS = 200
BALANCE = 1000
REGIONS = 4

# Errors that a correct client repeats.
REPEATABLE = {"40001", "40P01"}

SCHEMA = f"""
CREATE TABLE account (id integer PRIMARY KEY, balance bigint NOT NULL);
SELECT strata.create_distributed_table('account', 'id', shard_count => 8, storage => 'heap');
CREATE TABLE entry (account integer, id bigint, amount integer, PRIMARY KEY (account, id));
SELECT strata.create_distributed_table('entry', 'account', colocate_with => 'account', storage => 'heap');
ALTER TABLE entry ADD FOREIGN KEY (account) REFERENCES account;
CREATE TABLE basket (id integer PRIMARY KEY);
SELECT strata.create_distributed_table('basket', 'id', colocate_with => 'account', storage => 'heap');
CREATE TABLE item (basket integer, number integer);
SELECT strata.create_distributed_table('item', 'basket', colocate_with => 'account', storage => 'heap');
ALTER TABLE item ADD FOREIGN KEY (basket) REFERENCES basket ON DELETE CASCADE;
CREATE TABLE ledger (id bigint PRIMARY KEY, client integer, amount integer);
SELECT strata.create_distributed_table('ledger', 'id', shard_count => 8, storage => 'ledger storage');
CREATE TABLE event (tenant integer, at bigint, payload text);
SELECT strata.create_distributed_table('event', 'tenant', shard_count => 8);
CREATE TABLE region (id integer PRIMARY KEY, visits bigint NOT NULL);
SELECT strata.create_reference_table('region');
CREATE TABLE side (id integer PRIMARY KEY, v integer);
SELECT strata.create_distributed_table('side', 'id', shard_count => 4, storage => 'heap');
INSERT INTO account SELECT g, {BALANCE} FROM generate_series(1, {ACCOUNTS}) AS g;
INSERT INTO region SELECT g, 0 FROM generate_series(1, {REGIONS}) AS g;
INSERT INTO side SELECT g, 0 FROM generate_series(1, 100) AS g;
"""


class Refused(Exception):
    """The client itself rolls back."""


class Client(threading.Thread):
    """One client: a session that is replaced now and then, and what it knows of its writes."""

    def __init__(self, load: Load, number: int):
        super().__init__(name=f"client {number}", daemon=True)
        self.load = load
        self.number = number
        self.random = random.Random(f"{load.seed}/{number}")
        self.last = 0
        self.acknowledged: set[int] = set()
        self.unknown: set[int] = set()
        self.visits = 0
        self.unknown_visits = 0
        self.events = 0
        self.unknown_events = 0
        self.connection: psycopg.Connection | None = None

    # ---- life ---------------------------------------------------------------------------------

    def run(self) -> None:
        actions = [getattr(self, name) for name in self.load.weights]
        weights = list(self.load.weights.values())
        while not self.load.stop.is_set():
            (action,) = self.random.choices(actions, weights)
            self.perform(action)
        self.close()

    def perform(self, action) -> None:
        """One action; its errors are counted, and those that may not be are kept."""
        self.pending: set[int] = set()
        self.pending_visits = self.pending_events = 0
        allowed = REPEATABLE | self.load.tolerated
        if action in (self.cancelled, self.timed_out):
            allowed = allowed | {"57014"}
        try:
            self.open()
            action()
            self.settle(True)
            self.load.count(action.__name__)
        except Refused:
            self.settle(False)
        except psycopg.Error as error:
            state = error.sqlstate or "08006"
            self.settle(False if self.is_certain(state) else None)
            self.load.count(f"{action.__name__} {state}")
            if state not in allowed:
                self.load.fail(f"{self.name}, {action.__name__}: {state} {error}")
            self.clean_up()

    def is_certain(self, state: str) -> bool:
        """Does the error say that nothing was committed?"""
        return not state.startswith("08") and state not in ("57P01", "57P02", "57P03")

    def settle(self, committed: bool | None) -> None:
        """Note what became of the pending writes; None: not known."""
        if committed:
            self.acknowledged |= self.pending
            self.visits += self.pending_visits
            self.events += self.pending_events
        elif committed is None:
            self.unknown |= self.pending
            self.unknown_visits += self.pending_visits
            self.unknown_events += self.pending_events

    def open(self) -> None:
        if self.connection is not None and (self.connection.closed or self.connection.broken):
            self.close()
        if self.connection is None:
            self.connection = self.load.cluster.coordinator.connect(connect_timeout=20)
            self.connection.execute(f"SET search_path = {self.load.schema}, public, strata")

    def close(self) -> None:
        if self.connection is not None:
            with contextlib.suppress(psycopg.Error):
                self.connection.close()
        self.connection = None

    def clean_up(self) -> None:
        try:
            self.connection.rollback()
        except (psycopg.Error, AttributeError):
            self.close()
            time.sleep(0.1)

    def execute(self, sql: str, params=None) -> psycopg.Cursor:
        return self.connection.execute(sql, params)

    def new_id(self) -> int:
        self.last += 1
        return self.number * 1_000_000_000 + self.last

    def write_ledger(self, count: int = 1) -> None:
        ids = [self.new_id() for _ in range(count)]
        self.pending |= set(ids)
        rows = ", ".join(f"({i}, {self.number}, 1)" for i in ids)
        self.execute(f"INSERT INTO ledger VALUES {rows}")

    # ---- actions --------------------------------------------------------------------------------

    def transfer(self) -> None:
        """Between two accounts, mostly on two workers."""
        one, other = sorted(self.random.sample(range(1, ACCOUNTS + 1), 2))
        amount = self.random.randint(1, 100)
        isolation = self.random.choice(["READ COMMITTED", "READ COMMITTED", "REPEATABLE READ"])
        with self.connection.transaction():
            self.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
            self.execute("UPDATE account SET balance = balance - %s WHERE id = %s", (amount, one))
            self.execute("UPDATE account SET balance = balance + %s WHERE id = %s", (amount, other))
            number = self.new_id()
            self.execute(
                "INSERT INTO entry VALUES (%s, %s, %s), (%s, %s, %s)",
                (one, number, -amount, other, number, amount),
            )
            self.write_ledger()

    def write_one_row(self) -> None:
        self.write_ledger()

    def write_many_rows(self) -> None:
        self.write_ledger(20)

    def write_events(self) -> None:
        tenant = self.random.randint(1, 1000)
        self.pending_events = 50
        with (
            self.connection.cursor() as cursor,
            cursor.copy("COPY event (tenant, at, payload) FROM STDIN") as copy,
        ):
            for n in range(50):
                copy.write_row((tenant + n % 7, n, "x" * self.random.randint(1, 50)))

    def use_savepoints(self) -> None:
        with self.connection.transaction():
            self.write_ledger()
            with contextlib.suppress(psycopg.errors.UniqueViolation):
                with self.connection.transaction():
                    self.execute(f"INSERT INTO ledger VALUES ({self.new_id()}, 0, 0)")
                    self.execute("INSERT INTO account VALUES (1, 0), (2, 0), (3, 0)")
            self.write_ledger(3)

    def fill_or_drop_basket(self) -> None:
        """Baskets have three items each, or are gone with them."""
        basket = self.number * 1000 + self.random.randrange(200)
        with self.connection.transaction():
            if self.execute("DELETE FROM basket WHERE id = %s", (basket,)).rowcount == 0:
                self.execute("INSERT INTO basket VALUES (%s)", (basket,))
                self.execute("INSERT INTO item SELECT %s, generate_series(1, 3)", (basket,))

    def roll_back(self) -> None:
        with self.connection.transaction():
            self.execute("UPDATE account SET balance = 0 WHERE id = 7")
            self.write_ledger(5)
            raise Refused

    def visit_region(self) -> None:
        self.pending_visits = 1
        region = self.random.randint(1, REGIONS)
        self.execute("UPDATE region SET visits = visits + 1 WHERE id = %s", (region,))

    def read_one_row(self) -> None:
        key = self.random.randint(1, ACCOUNTS)
        ((balance,),) = self.execute("SELECT balance FROM account WHERE id = %s", (key,)).fetchall()
        assert balance is not None

    def read_all_rows(self) -> None:
        ((count, _),) = self.execute("SELECT count(*), sum(balance) FROM account").fetchall()
        if count != ACCOUNTS:
            self.load.fail(f"{self.name}: {count} accounts")

    def read_join(self) -> None:
        self.execute(
            "SELECT r.id, count(*), sum(l.amount) FROM ledger AS l JOIN region AS r"
            " ON r.id = l.client % 4 + 1 GROUP BY r.id ORDER BY r.id"
        ).fetchall()

    def read_cursor(self) -> None:
        with self.connection.transaction():
            self.execute("DECLARE c CURSOR FOR SELECT id, balance FROM account ORDER BY id")
            first = self.execute("FETCH 10 FROM c").fetchall()
            if [row[0] for row in first] != list(range(1, 11)):
                self.load.fail(f"{self.name}: {first} from a cursor")
            if self.random.random() < 0.5:
                self.execute("FETCH 20 FROM c").fetchall()
                self.execute("CLOSE c")

    def change_schema(self) -> None:
        name = f"scratch_{self.number}"
        self.execute(f"DROP TABLE IF EXISTS {name}")
        self.execute(f"CREATE TABLE {name} (id integer PRIMARY KEY, v text)")
        self.execute(f"SELECT strata.create_distributed_table('{name}', 'id', shard_count => 2)")
        self.execute(f"INSERT INTO {name} SELECT g, 'v' || g FROM generate_series(1, 50) AS g")
        self.execute(f"ALTER TABLE {name} ADD COLUMN w integer")
        rows = self.execute(f"SELECT count(*), count(w) FROM {name}").fetchall()
        if rows != [(50, 0)]:
            self.load.fail(f"{self.name}: {rows} in a new table")
        self.execute(f"DROP TABLE {name}")

    def change_side_table(self) -> None:
        """DDL on a table that others read and write."""
        # columns that are dropped count, too: there can be 1600
        self.execute("ALTER TABLE side ALTER COLUMN v SET NOT NULL")
        self.execute(
            "ALTER TABLE side DROP CONSTRAINT IF EXISTS extra, ADD CONSTRAINT extra CHECK (v >= 0)"
        )

    def use_side_table(self) -> None:
        self.execute("UPDATE side SET v = v + 1 WHERE id = %s", (self.random.randint(1, 100),))
        self.execute("SELECT sum(v) FROM side").fetchall()

    def cancelled(self) -> None:
        timer = threading.Timer(self.random.uniform(0.01, 0.3), self.connection.cancel)
        timer.start()
        try:
            with self.connection.transaction():
                self.write_ledger(2)
                self.execute("SELECT count(*) FROM account WHERE pg_sleep(0.05) IS NOT NULL")
                raise Refused
        finally:
            timer.join()
            with contextlib.suppress(psycopg.errors.QueryCanceled):
                self.execute("SELECT 1")  # a late cancel hits this one

    def timed_out(self) -> None:
        with self.connection.transaction():
            self.execute("SET LOCAL statement_timeout = '50ms'")
            self.write_ledger()
            self.execute("SELECT count(*) FROM account WHERE pg_sleep(0.05) IS NOT NULL")
            raise Refused

    def vanish(self) -> None:
        """The client dies in the middle of a transaction."""
        self.execute("BEGIN")
        self.execute("UPDATE account SET balance = 0 WHERE id <= 2")
        self.execute(f"INSERT INTO ledger VALUES ({self.new_id()}, 0, 0)")
        with socket.socket(fileno=os.dup(self.connection.fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)  # without a good-bye
        self.connection.pgconn.finish()
        self.connection = None
        raise Refused

    def reconnect(self) -> None:
        self.close()
        self.open()
        self.read_one_row()


class Load:
    """Clients against a cluster, in a schema that exists and is empty."""

    def __init__(
        self,
        cluster: Cluster,
        schema: str,
        clients: int,
        seed: int = 1,
        tolerated: frozenset[str] = frozenset(),
        storage: str = "heap",
        ledger: str | None = None,
    ):
        """`storage` of the tables, `ledger` that of the ledger if it is another."""
        self.cluster = cluster
        self.schema = schema
        self.seed = seed
        self.tolerated = tolerated
        self.stop = threading.Event()
        self.failures: list[str] = []
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.weights = {
            "transfer": 20,
            "write_one_row": 15,
            "write_many_rows": 5,
            "write_events": 3,
            "fill_or_drop_basket": 6,
            "use_savepoints": 5,
            "roll_back": 4,
            "visit_region": 4,
            "read_one_row": 20,
            "read_all_rows": 10,
            "read_join": 2,
            "read_cursor": 5,
            "change_schema": 0.3,
            "change_side_table": 0.3,
            "use_side_table": 4,
            "cancelled": 2,
            "timed_out": 2,
            "vanish": 1,
            "reconnect": 1,
        }
        with cluster.coordinator.connect() as connection:
            connection.execute(f"SET search_path = {schema}, public, strata")
            schema_sql = SCHEMA.replace("'ledger storage'", f"'{ledger or storage}'")
            connection.execute(schema_sql.replace("'heap'", f"'{storage}'"))
        self.clients = [Client(self, number + 1) for number in range(clients)]

    def count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def fail(self, what: str) -> None:
        with self._lock:
            self.failures.append(what)
        if len(self.failures) > 20:
            self.stop.set()

    def start(self) -> None:
        for client in self.clients:
            client.start()

    def wait(self, seconds: float) -> None:
        self.stop.wait(seconds)

    def finish(self, timeout: float = 120) -> None:
        """Stop all clients; one that hangs is a failure."""
        self.stop.set()
        end = time.monotonic() + timeout
        for client in self.clients:
            client.join(max(0, end - time.monotonic()))
            if client.is_alive():
                self.fail(f"{client.name} hangs")

    # ---- what must be true afterwards -----------------------------------------------------------

    def check(self) -> None:
        assert not self.failures, "\n".join(self.failures)
        with self.cluster.coordinator.connect() as connection:
            connection.execute(f"SET search_path = {self.schema}, public, strata")
            self._check_accounts(connection)
            self._check_ledger(connection)
            self._check_regions(connection)
            self._check_events(connection)

    def _check_accounts(self, connection: psycopg.Connection) -> None:
        rows = connection.execute("SELECT count(*), sum(balance) FROM account").fetchall()
        assert rows == [(ACCOUNTS, ACCOUNTS * BALANCE)], "money was made or lost"
        rows = connection.execute(
            "SELECT a.id FROM account AS a LEFT JOIN entry AS e ON e.account = a.id GROUP BY a.id"
            f" HAVING a.balance <> {BALANCE} + coalesce(sum(e.amount), 0)"
        ).fetchall()
        assert rows == [], "accounts and their entries differ"
        rows = connection.execute(
            "SELECT b.id, i.basket FROM basket AS b FULL JOIN item AS i ON i.basket = b.id"
            " GROUP BY b.id, i.basket HAVING b.id IS NULL OR count(i.number) <> 3"
        ).fetchall()
        assert rows == [], "baskets without items, or items without basket"

    def _check_ledger(self, connection: psycopg.Connection) -> None:
        present = {row[0] for row in connection.execute("SELECT id FROM ledger")}
        for client in self.clients:
            mine = {i for i in present if i // 1_000_000_000 == client.number}
            lost = client.acknowledged - mine
            assert not lost, f"{client.name}: {len(lost)} acknowledged rows are lost: {min(lost)}"
            ghosts = mine - client.acknowledged - client.unknown
            assert not ghosts, f"{client.name}: {len(ghosts)} rows that failed: {min(ghosts)}"

    def _check_regions(self, connection: psycopg.Connection) -> None:
        query = "SELECT sum(visits) FROM region"
        ((visits,),) = connection.execute(query).fetchall()
        least = sum(client.visits for client in self.clients)
        assert least <= visits <= least + sum(client.unknown_visits for client in self.clients)
        for worker in self.cluster.workers:
            assert worker.value(f"SELECT sum(visits) FROM {self.schema}.region") == visits

    def _check_events(self, connection: psycopg.Connection) -> None:
        ((events,),) = connection.execute("SELECT count(*) FROM event").fetchall()
        least = sum(client.events for client in self.clients)
        assert least <= events <= least + sum(client.unknown_events for client in self.clients)

    def check_nothing_is_left(self) -> None:
        """No session, no prepared transaction, no lock of the clients is left on any node."""
        self.cluster.coordinator.disconnect()
        for node in self.cluster.workers:
            wait_for_zero(node, "SELECT count(*) FROM pg_prepared_xacts")
            wait_for_zero(
                node, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'strata'"
            )
            wait_for_zero(
                node,
                "SELECT count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)"
                " WHERE a.application_name = 'strata'",
            )


def wait_for_zero(node: Node, query: str) -> None:
    for _ in wait_until(f"{query} on {node.name} is 0", timeout=60, interval=0.2):
        if node.value(query) == 0:
            return


def process_footprint(pid: int) -> tuple[int, int]:
    """Private memory in bytes, and open sockets, event sets and pipes, of a process.

    Files of tables are not counted: the server keeps them open on purpose, up to a limit.
    """
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("RssAnon:")]
    files = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
    return int(line.split()[1]) * 1024, sum(not name.startswith("/") for name in files)
