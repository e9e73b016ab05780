"""A session may end while it waits for whatever it can wait for: nothing crashes, nothing stays.

Ten sessions wait at once, each at another place; then they are cancelled or terminated, lose their clients, or
lose their server.  Worker 3 is frozen meanwhile, so that nothing that it is asked can help.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests import fault_points
from tests.cluster import Cluster, Node, process_exists
from tests.failover import backends_of, frozen
from tests.fixtures import new_root
from tests.waiting import patience, wait_until

# The longest that a session may need to end, in seconds: a second, and what a busy machine adds.
PROMPT = 2.5

# The same for one session alone.
SECOND = 1.3


class Waiter:
    """A session that does something in a thread, which is expected to wait."""

    def __init__(self, coordinator: Node, name: str):
        self.name = name
        self.session = coordinator.connect()
        self.session.execute("SET client_connection_check_interval = 200")
        self.pid = self.session.info.backend_pid
        self.error: psycopg.Error | None = None
        self.ended_at: float | None = None

    def start(self, doing: Callable[[psycopg.Connection], None]) -> None:
        def run() -> None:
            try:
                doing(self.session)
            except psycopg.Error as error:
                self.error = error
            self.ended_at = time.monotonic()

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def lose_client(self) -> None:
        with socket.socket(fileno=os.dup(self.session.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)


class Waits:
    """The cluster with one waiter at each place."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.coordinator = cluster.coordinator
        self.stack = contextlib.ExitStack()
        self.keys = [
            [key for (key,) in worker.query("SELECT id FROM t ORDER BY id LIMIT 20")]
            for worker in cluster.workers
        ]
        first, second, third = self.keys
        self.waiters: dict[str, Waiter] = {}
        self.blockers = [self.coordinator.connect(), cluster.workers[0].connect()]
        for blocker in self.blockers:
            blocker.execute("BEGIN")
        self.blockers[0].execute(f"UPDATE t SET v = v WHERE id = {first[0]}")
        self.blockers[1].execute("LOCK TABLE other")

        # those whose wires have to be there before the worker stands still
        for name in ("answer", "copy in", "copy out", "gate", "ddl"):
            self.waiter(name).execute(f"SELECT FROM t WHERE id = {third[1]}")
        for name, number in (("prepare", 2), ("commit", 3)):
            session = self.waiter(name)
            session.execute("BEGIN")
            for keys in (first, third):
                session.execute(f"UPDATE t SET v = v + 1 WHERE id = {keys[number]}")
        fault_points.arm(self.coordinator, ("committed", "wait"))
        self.start("commit", lambda session: session.execute("COMMIT"))
        fault_points.wait_for_arrival(self.coordinator)
        self.holder = self.coordinator.connect()
        self.holder.execute("SELECT strata.hold_worker('worker2', '60 s', '0 s')")

        self.stack.enter_context(frozen(cluster.workers[2]))
        fault_points.release(self.coordinator)
        self.start(
            "answer", lambda session: session.execute(f"SELECT v FROM t WHERE id = {third[0]}")
        )
        self.start(
            "connect", lambda session: session.execute(f"SELECT v FROM t WHERE id = {third[0]}")
        )
        self.start(
            "row lock", lambda session: session.execute(f"UPDATE t SET v = 9 WHERE id = {first[0]}")
        )
        self.start(
            "hold", lambda session: session.execute(f"SELECT v FROM t WHERE id = {second[0]}")
        )
        self.start(
            "gate",
            lambda session: session.execute(
                f"SELECT sum(v) FROM t WHERE id IN ({first[1]}, {third[1]})"
            ),
        )
        self.start("ddl", lambda session: session.execute("ALTER TABLE other ADD COLUMN w integer"))
        self.start("prepare", lambda session: session.execute("COMMIT"))
        self.start("copy in", self.copy_in)
        self.start("copy out", self.copy_out)
        time.sleep(0.5)  # longer than a session waits before it tells so
        assert [name for name, w in self.waiters.items() if w.ended_at is not None] == []

    def waiter(self, name: str) -> psycopg.Connection:
        if name not in self.waiters:
            self.waiters[name] = Waiter(self.coordinator, name)
        return self.waiters[name].session

    def start(self, name: str, doing: Callable[[psycopg.Connection], object]) -> None:
        self.waiter(name)
        self.waiters[name].start(doing)

    def copy_in(self, session: psycopg.Connection) -> None:
        with session.cursor().copy("COPY t FROM STDIN") as copy:
            # all of it is sent, and thrown away by the server once it is cancelled
            rows = "".join(f"{key}\t7\n" for key in range(1000, 6000))
            for _ in range(500):
                copy.write(rows)

    @staticmethod
    def copy_out(session: psycopg.Connection) -> None:
        with session.cursor().copy("COPY t TO STDOUT") as copy:
            for _ in copy:
                pass

    def wait_for_ends(self, seconds: float, but: str = "") -> None:
        """Until the server has ended the sessions, all of them (but one)."""
        pids = [waiter.pid for waiter in self.waiters.values() if waiter.name != but]
        names = {waiter.pid: name for name, waiter in self.waiters.items()}
        left = []
        start = time.monotonic()
        while time.monotonic() - start < seconds:
            left = [
                names[pid]
                for (pid,) in self.coordinator.query(
                    "SELECT pid FROM pg_stat_activity WHERE pid = ANY (%s)", (pids,)
                )
            ]
            if not left:
                return
            time.sleep(0.05)
        pytest.fail(f"not ended after {seconds} s: {left}")

    def go_on(self) -> None:
        """The worker goes on, nobody blocks anybody; what the sessions left is gone soon."""
        self.stack.close()
        for blocker in (*self.blockers, self.holder):
            blocker.close()
        self.coordinator.disconnect()
        first, _, third = self.keys
        for worker in self.cluster.workers:
            for _ in wait_until(f"nothing is left on {worker.name}", timeout=20):
                if not worker.value(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'strata'"
                    " AND state <> 'idle'"
                ) and not worker.value("SELECT count(*) FROM pg_prepared_xacts"):
                    break
        changed = dict(
            self.coordinator.query(
                "SELECT id, v FROM t WHERE id = ANY (%s)",
                ([first[2], third[2], first[3], third[3]],),
            )
        )
        assert changed[first[2]] == changed[third[2]]
        assert (changed[first[3]], changed[third[3]]) == (1, 1)
        assert self.coordinator.value("SELECT count(*) FROM t WHERE id >= 1000") in (0, 2_500_000)
        self.coordinator.execute("UPDATE t SET v = 0; ALTER TABLE other ADD COLUMN later integer")
        self.coordinator.execute("ALTER TABLE other DROP COLUMN later, DROP COLUMN IF EXISTS w")


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    with Cluster(new_root(), workers=3, assertions=True) as cluster:
        cluster.coordinator.execute(
            "SET search_path = public, strata;"
            "CREATE TABLE t (id integer, v integer);"
            "SELECT create_distributed_table('t', 'id', shard_count => 12, storage => 'heap');"
            "INSERT INTO t SELECT g, 0 FROM generate_series(1, 200) AS g;"
            "CREATE TABLE other (id integer); SELECT create_distributed_table('other', 'id')"
        )
        yield cluster


@pytest.fixture
def waits(made: Cluster) -> Iterator[Waits]:
    made.start()
    waits = Waits(made)
    yield waits
    waits.stack.close()
    fault_points.disarm(made.coordinator)
    for session in (
        *(waiter.session for waiter in waits.waiters.values()),
        *waits.blockers,
        waits.holder,
    ):
        session.close()


def test_cancelled_sessions_end_at_once(waits: Waits) -> None:
    begin = time.monotonic()
    for waiter in waits.waiters.values():
        waits.coordinator.execute(f"SELECT pg_cancel_backend({waiter.pid})")
    for name, waiter in waits.waiters.items():
        waiter.thread.join(timeout=15)
        assert waiter.ended_at is not None, name
    late = {
        name: round(waiter.ended_at - begin, 2)
        for name, waiter in waits.waiters.items()
        if waiter.ended_at - begin > patience(PROMPT)
    }
    assert late == {}
    for name, waiter in waits.waiters.items():
        if name != "commit":  # it was committed when the cancel came
            assert isinstance(waiter.error, psycopg.errors.QueryCanceled), (name, waiter.error)
    waits.go_on()


def test_terminated_sessions_end_at_once(waits: Waits) -> None:
    for waiter in waits.waiters.values():
        waits.coordinator.execute(f"SELECT pg_terminate_backend({waiter.pid})")
    waits.wait_for_ends(patience(PROMPT))
    waits.go_on()


def test_sessions_end_when_their_clients_are_gone(waits: Waits) -> None:
    for waiter in waits.waiters.values():
        waiter.lose_client()
    # A commit under way is not broken off, but waits 10 s at most.  The end of a client whose rows
    # fill all buffers stands behind them.
    waits.wait_for_ends(12, but="copy in")
    waits.go_on()
    waits.wait_for_ends(10)


def test_a_fast_stop_waits_for_no_worker(waits: Waits) -> None:
    begin = time.monotonic()
    waits.coordinator.stop("fast")
    assert time.monotonic() - begin < patience(2 * PROMPT)
    waits.coordinator.start()
    waits.go_on()


def test_a_killed_postmaster_leaves_nobody_waiting(waits: Waits) -> None:
    processes = waits.coordinator.processes()
    waits.coordinator.kill()
    for _ in wait_until("all processes are gone", timeout=2 * PROMPT):
        if not any(process_exists(pid) for pid in processes):
            break
    waits.coordinator.start()
    waits.go_on()


class Commit:
    """A two-phase commit that waits in the gate, after its local commit, for a snapshot that is taken nowhere.

    `reader` has asked the frozen worker for its snapshot before the commit was announced.
    """

    def __init__(self, cluster: Cluster, stack: contextlib.ExitStack):
        first, third = (
            [key for (key,) in worker.query("SELECT id FROM t ORDER BY id LIMIT 6")]
            for worker in (cluster.workers[0], cluster.workers[2])
        )
        self.keys = [first[4], third[4]]
        self.reader = Waiter(cluster.coordinator, "reader")
        self.writer = Waiter(cluster.coordinator, "writer")
        self.reader.session.execute(f"SELECT FROM t WHERE id IN ({first[5]}, {third[5]})")
        self.writer.session.execute("BEGIN")
        for key in self.keys:
            self.writer.session.execute(f"UPDATE t SET v = v + 1 WHERE id = {key}")
        fault_points.arm(cluster.coordinator, ("prepared_1", "wait"))
        self.writer.start(lambda session: session.execute("COMMIT"))
        fault_points.wait_for_arrival(cluster.coordinator)
        stack.enter_context(frozen(cluster.workers[2]))
        self.reader.start(
            lambda session: session.execute(
                f"SELECT sum(v) FROM t WHERE id IN ({first[5]}, {third[5]})"
            )
        )
        time.sleep(0.3)  # it has asked
        fault_points.release(cluster.coordinator)
        for _ in wait_until("the commit is visible here"):
            state = "SELECT backend_xid IS NULL FROM pg_stat_activity WHERE pid = %s"
            if cluster.coordinator.query(state, (self.writer.pid,)) == [(True,)]:
                break
        assert self.writer.ended_at is None


@pytest.mark.parametrize("end", ["cancel", "terminate", "stop", "kill"])
def test_a_commit_that_waits_in_the_gate_is_committed(made: Cluster, end: str) -> None:
    made.start()
    coordinator = made.coordinator
    with contextlib.ExitStack() as stack:
        stack.callback(fault_points.disarm, coordinator)
        before = coordinator.value("SELECT sum(v) FROM t")
        commit = Commit(made, stack)
        begin = time.monotonic()
        if end == "stop":
            coordinator.stop("fast")
        elif end == "kill":
            processes = coordinator.processes()
            coordinator.kill()
            for _ in wait_until("all processes are gone", timeout=2 * PROMPT):
                if not any(process_exists(pid) for pid in processes):
                    break
        else:
            coordinator.execute(f"SELECT pg_{end}_backend({commit.writer.pid})")
            commit.writer.thread.join(timeout=15)
        assert time.monotonic() - begin < patience(
            2 * PROMPT if end in ("stop", "kill") else PROMPT
        )
        if end == "cancel":
            assert commit.writer.error is None
        for waiter in (commit.reader, commit.writer):
            waiter.session.close()
    made.start()
    assert coordinator.value("SELECT sum(v) FROM t") == before + 2


# How a session ends what it does: the statements that it runs, and the one that is to end within a second.
ENDINGS = {
    # a statement of a subtransaction, whose transaction has used another frozen worker
    "cancel": "DO $$ BEGIN BEGIN UPDATE t SET v = 5 WHERE id = {third};"
    " EXCEPTION WHEN division_by_zero THEN NULL; END; END $$",
    "statement_timeout": "DO $$ BEGIN BEGIN UPDATE t SET v = 5 WHERE id = {third};"
    " EXCEPTION WHEN division_by_zero THEN NULL; END; END $$",
    "rollback": "ROLLBACK",
    "rollback to": "ROLLBACK TO a",
    "commit": "COMMIT",
    "one-phase commit": "COMMIT",
}


@pytest.mark.parametrize(
    ("end", "who"),
    # a postmaster that stands still, too, makes a difference for what is cancelled
    [(end, backends_of) for end in ENDINGS]
    + [("cancel", Node.processes), ("rollback", Node.processes)],
)
def test_a_session_ends_within_a_second(
    made: Cluster, end: str, who: Callable[[Node], list[int]]
) -> None:
    """All levels of a transaction, and all that its end consists of, have one time together."""
    made.start()
    first, second, third = (worker.value("SELECT min(id) FROM t") for worker in made.workers)
    waiter = Waiter(made.coordinator, end)
    session = waiter.session
    session.execute(f"SELECT FROM t WHERE id = {third}")
    session.execute("BEGIN")
    session.execute(f"UPDATE t SET v = v WHERE id = {second}")
    if end != "one-phase commit":
        session.execute(f"UPDATE t SET v = v WHERE id = {first}")
    if end in ("rollback", "rollback to", "commit"):
        session.execute(f"SAVEPOINT a; UPDATE t SET v = v WHERE id IN ({first}, {third})")
    if end == "statement_timeout":
        session.execute("SET statement_timeout = '500ms'")
    waits = not end.startswith("rollback")
    with (
        contextlib.closing(session),
        frozen(made.workers[1], who),
        frozen(made.workers[2], who),
    ):
        begin = time.monotonic() + (0.5 if waits else 0)
        waiter.start(lambda session: session.execute(ENDINGS[end].format(third=third)))
        if waits:
            time.sleep(0.5)
            assert waiter.ended_at is None
        if waits and end != "statement_timeout":
            made.coordinator.execute(f"SELECT pg_cancel_backend({waiter.pid})")
        waiter.thread.join(timeout=15)
        assert waiter.ended_at is not None
        assert waiter.ended_at - begin < patience(SECOND)
        assert (waiter.error is not None) == waits
        begin = time.monotonic()
        session.execute("ROLLBACK")
        assert time.monotonic() - begin < patience(SECOND)
