"""Clients that append to lists and read them in every way a client can, and write down what happened.

Four tables have lists: `la` is distributed (heap or columnar), `ref` a reference table, `loc` one of the
coordinator's own; rows of `le`, distributed, come by INSERT and COPY and never change.  They belong to
`keeper`; clients are `clerk`, who also reads through keeper's views and functions, which
is another role on the workers.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import psycopg
from psycopg import sql

from tests.cluster import Cluster, Node
from tests.fault_points import server_processes
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
from tests.waiting import wait_until

KEYS = {"la": 16, "ref": 4, "loc": 3}
KEEPER = "keeper"
CLERK = "clerk"

SCHEMA = f"""\
CREATE SCHEMA lists AUTHORIZATION {KEEPER};
GRANT USAGE ON SCHEMA lists TO {CLERK};
"""
TABLES = """\
CREATE TABLE la (k integer PRIMARY KEY, v text NOT NULL DEFAULT '');
CREATE TABLE le (k integer PRIMARY KEY, v text NOT NULL);
CREATE TABLE ref (k integer PRIMARY KEY, v text NOT NULL DEFAULT '');
CREATE TABLE loc (k integer PRIMARY KEY, v text NOT NULL DEFAULT '');
"""
DISTRIBUTE = """\
SELECT strata.create_distributed_table('la', 'k', shard_count => 8, storage => '{storage}');
SELECT strata.create_distributed_table('le', 'k', colocate_with => 'lists.la', storage => '{storage}');
SELECT strata.create_reference_table('ref');
"""
OBJECTS = f"""\
GRANT SELECT, INSERT, UPDATE ON la, le, ref, loc TO {CLERK};
CREATE VIEW la_view AS SELECT k, v FROM la;
CREATE VIEW ref_view AS SELECT k, v FROM ref;
GRANT SELECT ON la_view, ref_view TO {CLERK};
CREATE FUNCTION la_stable(key integer) RETURNS text STABLE LANGUAGE plpgsql
    SET search_path = lists AS
    'BEGIN RETURN (SELECT v FROM la WHERE k = key); END';
CREATE FUNCTION la_definer(key integer) RETURNS text STABLE SECURITY DEFINER LANGUAGE plpgsql
    SET search_path = lists AS
    'BEGIN RETURN (SELECT v FROM la WHERE k = key); END';
CREATE FUNCTION add_definer(key integer, item text) RETURNS text SECURITY DEFINER LANGUAGE plpgsql
    SET search_path = lists AS
    'DECLARE new text; BEGIN UPDATE la SET v = v || item WHERE k = key RETURNING v INTO new; RETURN new; END';
CREATE FUNCTION add_both(key integer, item text) RETURNS text LANGUAGE plpgsql
    SET search_path = lists AS
    'DECLARE new text; BEGIN
        UPDATE ref SET v = v || item WHERE k = 0;
        BEGIN
            UPDATE la SET v = v || item WHERE k = key RETURNING v INTO new;
        EXCEPTION WHEN division_by_zero THEN RETURN NULL;
        END;
        RETURN new; END';
INSERT INTO la SELECT generate_series(0, {KEYS["la"] - 1});
INSERT INTO ref SELECT generate_series(0, {KEYS["ref"] - 1});
INSERT INTO loc SELECT generate_series(0, {KEYS["loc"] - 1});
"""


def create_tables(node: Node, storage: str | None) -> None:
    """On a cluster with shards of that storage; without one on a plain PostgreSQL."""
    with node.connect() as connection:
        connection.execute(SCHEMA)
    with node.connect(user=KEEPER) as connection:
        connection.execute("SET search_path = lists")
        connection.execute(TABLES)
        if storage:
            connection.execute(DISTRIBUTE.format(storage=storage))
        connection.execute(OBJECTS)


def parse(text: str | None) -> list[int]:
    return [int(item) for item in (text or "").split(",") if item]


def key_of(table: str, number: int) -> str:
    return f"{table}:{number}"


class Clock:
    """Numbers and instants that all clients share."""

    def __init__(self):
        self.values = itertools.count(1)
        self.numbers = itertools.count(1)
        self.rows = itertools.count(1000)
        self.start = time.monotonic()

    def now(self) -> float:
        return time.monotonic() - self.start


class Client:
    """One session: transactions one after the other, each written down."""

    def __init__(self, node: Node, clock: Clock, seed: int, levels: tuple[str, ...]):
        self.node = node
        self.clock = clock
        self.random = random.Random(seed)
        self.levels = levels
        self.connection: psycopg.Connection | None = None
        self.transactions: list[Transaction] = []
        self.statements: list[Statement] = []
        self.level = READ_COMMITTED
        self.errors: dict[str, int] = {}

    # ---- statements ------------------------------------------------------------------------------

    def run(self, text: str, parameters: tuple = (), prepare: bool | None = None) -> list[tuple]:
        cursor = self.connection.execute(text, parameters, prepare=prepare)
        return cursor.fetchall() if cursor.description else []

    def note(
        self,
        start: float,
        text: str,
        reads: Iterable[Read] = (),
        appends: Iterable[Append] = (),
        end: float | None = None,
    ) -> Statement:
        statement = Statement(start, end or self.clock.now(), list(reads), list(appends), text)
        self.statements.append(statement)
        return statement

    def intend(self, text: str, appends: list[Append]) -> Statement:
        """What is appended is known before the statement is sent, as its outcome may never be."""
        return self.note(self.clock.now(), text, (), appends)

    def finish(self, statement: Statement, reads: Iterable[Read]) -> None:
        statement.reads.extend(reads)
        statement.end = self.clock.now()

    def pick(self, table: str, count: int) -> list[int]:
        return self.random.sample(range(KEYS[table]), min(count, KEYS[table]))

    def some(self) -> list[int]:
        return self.pick("la", self.random.choice((1, 2, 3, 5)))

    def read(self, text: str, parameters: tuple, current: bool = False) -> None:
        """A query whose rows are (table, key, list)."""
        start = self.clock.now()
        rows = self.run(text, parameters, prepare=self.random.random() < 0.3)
        reads = [Read(key_of(t, k), parse(v), current) for t, k, v in rows]
        self.note(start, text, reads)

    def read_lists(self) -> None:
        self.read("SELECT 'la', k, v FROM la WHERE k = ANY(%s)", (self.some(),))

    def read_all(self) -> None:
        self.read(
            "SELECT 'la', k, v FROM la UNION ALL SELECT 'ref', k, v FROM ref "
            "UNION ALL SELECT 'loc', k, v FROM loc",
            (),
        )

    def read_joined(self) -> None:
        self.read(
            "SELECT x.* FROM la JOIN ref ON ref.k = %s CROSS JOIN LATERAL "
            "(VALUES ('la', la.k, la.v), ('ref', ref.k, ref.v)) AS x WHERE la.k = ANY(%s)",
            (self.pick("ref", 1)[0], self.some()),
        )

    def read_view(self) -> None:
        self.read(
            "SELECT 'la', k, v FROM la WHERE k = ANY(%s) "
            "UNION ALL SELECT 'la', k, v FROM la_view WHERE k = ANY(%s)",
            (self.some(), self.some()),
        )

    def read_view_of_reference(self) -> None:
        self.read(
            "SELECT 'la', k, v FROM la_view WHERE k = ANY(%s) "
            "UNION ALL SELECT 'ref', k, v FROM ref_view UNION ALL SELECT 'loc', k, v FROM loc",
            (self.some(),),
        )

    def read_function(self) -> None:
        function = self.random.choice(("la_stable", "la_definer"))
        self.read(
            "SELECT x.* FROM la CROSS JOIN LATERAL "
            f"(VALUES ('la', la.k, la.v), ('la', %s, {function}(%s))) AS x WHERE la.k = ANY(%s)",
            (key := self.pick("la", 1)[0], key, self.some()),
        )

    def read_locked(self) -> None:
        lock = self.random.choice(("UPDATE", "SHARE"))
        self.read(
            f"SELECT 'la', k, v FROM la WHERE k = %s FOR {lock}", (self.pick("la", 1)[0],), True
        )

    def read_cursor(self) -> None:
        start = self.clock.now()
        text = (
            "DECLARE c CURSOR FOR SELECT 'la', k, v FROM la UNION ALL SELECT 'ref', k, v FROM ref"
        )
        self.run(text)
        end = self.clock.now()
        if self.random.random() < 0.5:
            self.append_lists()
        rows = self.run("FETCH 3 FROM c") + self.run("FETCH ALL FROM c")
        self.run("CLOSE c")
        self.note(start, text, [Read(key_of(t, k), parse(v)) for t, k, v in rows], end=end)

    def read_entries(self) -> None:
        """Rows that are there or not: what was inserted together is seen together."""
        newest = next(self.clock.rows)
        start = self.clock.now()
        text = "SELECT k, v FROM le WHERE k BETWEEN %s AND %s"
        found = dict(self.run(text, (newest - 12, newest - 1)))
        reads = [Read(key_of("le", k), parse(found.get(k))) for k in range(newest - 12, newest)]
        self.note(start, text, reads)

    def append(self, text: str, table: str, keys: list[int], parameters: tuple) -> None:
        """An UPDATE that returns (key, list); it reads the newest version of what it changes."""
        value = next(self.clock.values)
        appends = [Append(key_of(table, key), value) for key in keys]
        statement = self.intend(text, appends)
        rows = self.run(text, (f"{value},", *parameters))
        self.finish(statement, [Read(key_of(table, k), parse(v), True) for k, v in rows])

    def append_lists(self) -> None:
        keys = sorted(self.pick("la", self.random.choice((1, 1, 2, 2, 3))))
        self.append(
            "UPDATE la SET v = v || %s WHERE k = ANY(%s) RETURNING k, v", "la", keys, (keys,)
        )

    def append_in_with(self) -> None:
        keys = self.pick("la", 2)
        self.append(
            "WITH u AS (UPDATE la SET v = v || %s WHERE k = ANY(%s) RETURNING k, v) SELECT k, v FROM u",
            "la",
            keys,
            (keys,),
        )

    def append_to_reference(self) -> None:
        key = self.pick("ref", 1)
        self.append("UPDATE ref SET v = v || %s WHERE k = %s RETURNING k, v", "ref", key, (key[0],))

    def append_locally(self) -> None:
        key = self.pick("loc", 1)
        self.append("UPDATE loc SET v = v || %s WHERE k = %s RETURNING k, v", "loc", key, (key[0],))

    def append_by_definer(self) -> None:
        key = self.pick("la", 1)
        text = "SELECT %s::int, add_definer(%s, %s)"
        value = next(self.clock.values)
        statement = self.intend(text, [Append(key_of("la", key[0]), value)])
        rows = self.run(text, (key[0], key[0], f"{value},"))
        self.finish(statement, [Read(key_of("la", k), parse(v), True) for k, v in rows])

    def append_both(self) -> None:
        key = self.pick("la", 1)
        text = "SELECT %s::int, add_both(%s, %s)"
        value = next(self.clock.values)
        appends = [Append(key_of("ref", 0), value), Append(key_of("la", key[0]), value)]
        statement = self.intend(text, appends)
        rows = self.run(text, (key[0], key[0], f"{value},"))
        self.finish(statement, [Read(key_of("la", k), parse(v), True) for k, v in rows])

    def append_with_reference(self) -> None:
        """Reads a reference row under the statement's snapshot."""
        keys = sorted(self.pick("la", self.random.choice((1, 2))))
        key = self.pick("ref", 1)[0]
        text = (
            "UPDATE la SET v = la.v || %s FROM ref AS r WHERE r.k = %s AND la.k = ANY(%s) "
            "RETURNING la.k, la.v, r.v"
        )
        value = next(self.clock.values)
        statement = self.intend(text, [Append(key_of("la", k), value) for k in keys])
        rows = self.run(text, (f"{value},", key, keys))
        self.finish(
            statement,
            [Read(key_of("la", k), parse(v), True) for k, v, _ in rows]
            + [Read(key_of("ref", key), parse(r)) for _, _, r in rows],
        )

    def insert_entries(self) -> None:
        rows = [next(self.clock.rows) for _ in range(self.random.choice((1, 3)))]
        value = next(self.clock.values)
        copies = self.random.random() < 0.5
        text = "COPY le (k, v) FROM STDIN" if copies else "INSERT INTO le SELECT unnest(%s), %s"
        statement = self.intend(text, [Append(key_of("le", row), value) for row in rows])
        if copies:
            with self.connection.cursor().copy(text) as copy:
                for row in rows:
                    copy.write_row((row, f"{value},"))
        else:
            self.run(text, (rows, f"{value},"))
        self.finish(statement, ())

    def append_and_undo(self) -> None:
        before = len(self.statements)
        self.run("SAVEPOINT undone")
        self.random.choice((self.append_lists, self.append_with_reference, self.insert_entries))()
        self.run("ROLLBACK TO SAVEPOINT undone")
        for statement in self.statements[before:]:
            for append in statement.appends:
                append.undone = True

    def in_savepoint(self) -> None:
        self.run("SAVEPOINT kept")
        self.random.choice((self.append_lists, self.read_view, self.read_all))()
        if self.random.random() < 0.5:
            self.run("RELEASE SAVEPOINT kept")

    # ---- transactions ------------------------------------------------------------------------------

    def choose(self) -> list[Callable[[], None]]:
        if self.level == SERIALIZABLE:  # all of it on one node
            table = self.random.choice(("loc", "la"))
            keys = self.pick("la", 1) if table == "la" else []
            return [lambda: self.serializable_step(table, keys)] * self.random.randint(2, 3)
        reads = [self.read_lists, self.read_all, self.read_joined, self.read_view]
        reads += [self.read_view_of_reference, self.read_function, self.read_entries]
        reads += [self.read_cursor, self.in_savepoint, self.read_locked]
        appends = [self.append_lists, self.append_lists, self.append_in_with]
        appends += [self.append_to_reference, self.append_locally, self.append_both]
        appends += [self.append_with_reference, self.append_with_reference, self.append_by_definer]
        appends += [self.insert_entries, self.append_and_undo]
        share = self.random.choice((0.1, 0.5, 0.8))
        return [
            self.random.choice(appends if self.random.random() < share else reads)
            for _ in range(self.random.randint(1, 4))
        ]

    def serializable_step(self, table: str, keys: list[int]) -> None:
        if self.random.random() < 0.5:
            if table == "loc":
                self.read("SELECT 'loc', k, v FROM loc WHERE k = ANY(%s)", (self.pick("loc", 2),))
            else:
                self.read("SELECT 'la', k, v FROM la WHERE k = %s", (keys[0],))
        elif table == "loc":
            self.append_locally()
        else:
            self.append(
                "UPDATE la SET v = v || %s WHERE k = %s RETURNING k, v", "la", keys, (keys[0],)
            )

    def connect(self) -> None:
        self.connection = self.node.connect(user=CLERK, connect_timeout=10)
        self.connection.execute("SET search_path = lists, public, strata")
        self.connection.execute("SET lock_timeout = '3s'")

    def is_lost(self) -> bool:
        return self.connection is None or self.connection.closed

    def run_transaction(self) -> None:
        self.level = self.random.choice(self.levels)
        self.statements = []
        status = ABORTED
        commit_start = end = math.inf
        try:
            self.run(f"BEGIN ISOLATION LEVEL {self.level}")
            for step in self.choose():
                step()
            if self.random.random() < 0.05:
                self.run("ROLLBACK")
            else:
                commit_start = self.clock.now()
                status = UNKNOWN
                answer = self.connection.execute("COMMIT").statusmessage
                status = COMMITTED if answer == "COMMIT" else ABORTED
        except psycopg.Error as error:
            # 08007: a worker was lost while it committed
            known = error.sqlstate not in (None, "08007") and not self.is_lost()
            if status == UNKNOWN and known:
                status = ABORTED
            self.count_error(error)
            self.recover()
        end = self.clock.now() if status == COMMITTED else math.inf
        self.transactions.append(
            Transaction(
                next(self.clock.numbers),
                self.level,
                sorted(self.statements, key=lambda statement: statement.start),
                status,
                min(commit_start, self.clock.now()),
                end,
            )
        )

    def count_error(self, error: psycopg.Error) -> None:
        text = f"{error.sqlstate}: {str(error).splitlines()[0] if str(error) else ''}"
        self.errors[text] = self.errors.get(text, 0) + 1

    def recover(self) -> None:
        try:
            if not self.is_lost():
                self.connection.execute("ROLLBACK")
        except psycopg.Error:
            pass
        if self.is_lost() or self.connection.info.transaction_status != 0:
            if self.connection is not None:
                self.connection.close()
            self.connection = None

    def live(self, until: float) -> None:
        while time.monotonic() < until:
            try:
                if self.connection is None or self.random.random() < 0.01:
                    if self.connection is not None:
                        self.connection.close()
                    self.connect()
            except psycopg.Error:
                time.sleep(0.1)
                continue
            self.run_transaction()
        if self.connection is not None:
            self.connection.close()


def read_final(node: Node) -> dict[str, list[int]]:
    with node.connect() as connection:
        final = {}
        for table in (*KEYS, "le"):
            query = sql.SQL("SELECT k, v FROM lists.{}").format(sql.Identifier(table))
            for key, value in connection.execute(query):
                final[key_of(table, key)] = parse(value)
    return final


def record(
    node: Node,
    seconds: float,
    seed: int,
    clients: int = 6,
    levels: tuple[str, ...] = (READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE),
    disturb: Callable[[float], None] | None = None,
) -> tuple[History, dict[str, int]]:
    """Let clients work; also the errors they met, by their number.

    disturb(until) runs beside the clients, and leaves all nodes running at its end.
    """
    clock = Clock()
    until = time.monotonic() + seconds
    workers = [Client(node, clock, seed * 1000 + n, levels) for n in range(clients)]
    failures: list[BaseException] = []

    def guarded(work: Callable[[float], None]) -> None:
        try:
            work(until)
        except BaseException as failure:  # of the test itself: shown at the end
            failures.append(failure)

    threads = [
        threading.Thread(target=guarded, args=(work,), daemon=True)
        for work in [client.live for client in workers] + ([disturb] if disturb else [])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    errors: dict[str, int] = {}
    for client in workers:
        for text, count in client.errors.items():
            errors[text] = errors.get(text, 0) + count
    transactions = [t for client in workers for t in client.transactions]
    return History(sorted(transactions, key=lambda t: t.number), read_final(node)), errors


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


class Faults:
    """Kills, restarts and stalls of all nodes of a cluster, by a random sequence of their own."""

    def __init__(self, cluster: Cluster, seed: int, pause: float = 1.5):
        self.cluster = cluster
        self.random = random.Random(seed)
        self.pause = pause
        self.done: dict[str, int] = {}

    def __call__(self, until: float) -> None:
        while time.monotonic() + self.pause < until:
            time.sleep(self.random.uniform(0.2, self.pause))
            kind = self.random.choice((self.stall, self.stall, self.stall, self.kill, self.restart))
            node = self.random.choice([self.cluster.coordinator, *self.cluster.workers])
            kind(node)
            self.done[kind.__name__] = self.done.get(kind.__name__, 0) + 1

    def stall(self, node: Node) -> None:
        """All of its processes, or all but the postmaster, or only some, do nothing for a while."""
        postmaster, *others = server_processes(node)
        chosen = self.random.choice(
            ([postmaster, *others], others, self.random.sample(others, len(others) // 2))
        )
        send(chosen, signal.SIGSTOP)
        time.sleep(self.random.choice((0.05, 0.1, 0.3, 1)))
        send(chosen, signal.SIGCONT)

    def kill(self, node: Node) -> None:
        """The power fails: all processes of the server are gone at once."""
        node.disconnect()
        pids = server_processes(node)
        send(pids, signal.SIGKILL)
        for _ in wait_until(f"{node.name} is gone", interval=0.01):
            if not any(Path(f"/proc/{pid}").exists() for pid in pids):
                break
        time.sleep(self.random.choice((0, 0.3)))
        node.start()

    def restart(self, node: Node) -> None:
        node.restart(self.random.choice(("fast", "immediate")))
