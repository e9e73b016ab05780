"""Whatever dies while a transaction commits: it is everywhere or nowhere, and nothing is left."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import ASSERTION_LIBRARIES, Cluster, Node
from tests.fault_points import (
    arm,
    disarm,
    dying,
    frozen,
    is_armed,
    release,
    wait_for_arrival,
)
from tests.fixtures import new_root
from tests.installation import find_directory
from tests.ledger import Ledger
from tests.waiting import patience, wait_until

# the steps of a two-phase commit; the decision is durable from "committed" on
BEFORE_DECISION = [
    "prepare_0",
    "prepare_sent_0",
    "prepare_1",
    "prepare_sent_1",
    "decision_written",
    "prepared_0",
    "prepared_1",
]
AFTER_DECISION = ["committed", "wire_sent_0", "wire_sent_1", "acknowledged"]
STEPS = BEFORE_DECISION + AFTER_DECISION


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    with Cluster(new_root(), workers=2, durable=True, assertions=True) as cluster:
        cluster.coordinator.execute("ALTER SYSTEM SET strata.resolver_interval = '500ms'")
        cluster.coordinator.execute("SELECT pg_reload_conf()")
        yield cluster


@pytest.fixture(scope="module")
def created(made: Cluster) -> Ledger:
    ledger = Ledger(made)
    ledger.create()
    return ledger


@pytest.fixture
def ledger(created: Ledger) -> Iterator[Ledger]:
    yield created
    disarm(created.cluster.coordinator)
    created.cluster.start()
    for node in created.cluster.nodes:
        node.forgive_crash()
        node.disconnect()
    created.settle()
    created.check()


class Commit:
    """Transaction n of the ledger, run by a thread; whatever happens to it."""

    def __init__(self, ledger: Ledger, statements: list[str] | None = None, **settings: str):
        self.ledger = ledger
        self.statements = statements
        self.n = ledger.next()
        self.error: psycopg.Error | None = None
        self.connection = ledger.cluster.coordinator.connect()
        self.notices: list[str] = []
        self.connection.add_notice_handler(lambda d: self.notices.append(d.message_primary))
        for name, value in settings.items():
            self.connection.execute(f"SET strata.{name} = '{value}'")
        self.pid = self.connection.info.backend_pid
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            if self.statements is None:
                self.ledger.write(self.connection, self.n)
            else:
                with self.connection.transaction():
                    for statement in self.statements:
                        self.connection.execute(statement)
        except psycopg.Error as error:
            self.error = error
        finally:
            self.connection.close()

    def join(self) -> None:
        self.thread.join(patience(60))
        assert not self.thread.is_alive()


def commit_and_die(ledger: Ledger, *places: tuple[str, str]) -> Commit:
    """The coordinator, or its sessions, are killed while it commits."""
    with dying(ledger.cluster.coordinator, *places):
        commit = Commit(ledger)
        commit.join()
    assert commit.error is not None
    return commit


def test_libraries_without_assertions_have_no_fault_points() -> None:
    installed = (find_directory("pkglibdir") / "strata.so").read_bytes()
    built = (ASSERTION_LIBRARIES / "strata.so").read_bytes()
    assert b"fault_point_reach" in built
    assert b"fault_point_reach" not in installed


# ---- the coordinator dies ----------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("action", ["kill", "crash"])
@pytest.mark.parametrize("step", STEPS)
def test_a_coordinator_killed_at_any_step_of_a_commit(
    ledger: Ledger, step: str, action: str
) -> None:
    commit = commit_and_die(ledger, (step, action))
    ledger.settle()
    assert (commit.n in ledger.check()) == (step in AFTER_DECISION)


@pytest.mark.parametrize("step", ["abort", "abort_stopped", "abort_rolled_back"])
def test_a_coordinator_killed_at_any_step_of_an_abort(ledger: Ledger, step: str) -> None:
    commit = commit_and_die(ledger, ("prepared_0", "error"), (step, "kill"))
    ledger.settle()
    assert commit.n not in ledger.check()


RESOLVER_STEPS = ["resolver_listed", "resolver_decided", "resolver_ended"]
DELETION_STEPS = ["resolver_confirmed", "resolver_deleted"]


@pytest.mark.parametrize(
    ("first", "step"),
    [
        *(("prepared_1", step) for step in RESOLVER_STEPS),
        *(("committed", step) for step in RESOLVER_STEPS + DELETION_STEPS),
    ],
)
def test_a_coordinator_killed_again_while_it_resolves(
    ledger: Ledger, first: str, step: str
) -> None:
    arm(ledger.cluster.coordinator, (first, "kill"), (step, "kill"))
    commit = Commit(ledger)
    commit.join()
    for _ in wait_until("the resolver was killed"):
        if not is_armed(ledger.cluster.coordinator):
            break
    ledger.settle()
    assert (commit.n in ledger.check()) == (first == "committed")


# ---- a worker dies, or both ------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("step", STEPS)
def test_a_worker_killed_at_any_step_of_a_commit(ledger: Ledger, step: str, victim: int) -> None:
    worker = ledger.cluster.workers[victim]
    arm(ledger.cluster.coordinator, (step, "wait"))
    commit = Commit(ledger)
    wait_for_arrival(ledger.cluster.coordinator)
    worker.kill()
    release(ledger.cluster.coordinator)
    commit.join()
    if commit.error is None and step != "acknowledged":
        assert any("in doubt" in notice for notice in commit.notices) or step != "committed"
    worker.start()
    worker.forgive_crash()
    ledger.settle()
    present = commit.n in ledger.check()
    assert present == (commit.error is None)
    if step in AFTER_DECISION:
        assert present


@pytest.mark.sample(3)
@pytest.mark.parametrize("step", STEPS)
def test_coordinator_and_worker_killed_together_at_any_step(ledger: Ledger, step: str) -> None:
    worker = ledger.cluster.workers[1]
    arm(ledger.cluster.coordinator, (step, "wait"))
    commit = Commit(ledger)
    wait_for_arrival(ledger.cluster.coordinator)
    worker.kill()
    ledger.cluster.coordinator.kill()
    disarm(ledger.cluster.coordinator)
    commit.join()
    ledger.cluster.start()
    ledger.settle()
    assert (commit.n in ledger.check()) == (step in AFTER_DECISION)


# ---- sessions that end -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend"])
@pytest.mark.parametrize("step", ["prepare_sent_0", "prepare_sent_1", "prepared_0", "prepared_1"])
def test_a_prepare_whose_session_is_stopped_is_not_forgotten(
    ledger: Ledger, step: str, how: str
) -> None:
    coordinator = ledger.cluster.coordinator
    arm(coordinator, (step, "wait"))
    commit = Commit(ledger)
    wait_for_arrival(coordinator)
    coordinator.query(f"SELECT {how}({commit.pid})")
    release(coordinator)
    commit.join()
    ledger.settle()
    assert (commit.n in ledger.check()) == (commit.error is None)


def one_row(ledger: Ledger, n: int) -> str:
    return f"INSERT INTO journal VALUES (1000, {n})"


def has_row(ledger: Ledger, n: int) -> bool:
    query = "SELECT count(*) FROM journal WHERE id = 1000 AND n = %s"
    return ledger.cluster.coordinator.value(query, (n,)) == 1


@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend"])
@pytest.mark.parametrize("step", ["single_commit_sent", "single_committed"])
def test_a_one_phase_commit_is_not_reported_as_an_error(
    ledger: Ledger, step: str, how: str
) -> None:
    coordinator = ledger.cluster.coordinator
    arm(coordinator, (step, "wait"))
    n = ledger.next()
    commit = Commit(ledger, [one_row(ledger, n)])
    wait_for_arrival(coordinator)
    coordinator.query(f"SELECT {how}({commit.pid})")
    release(coordinator)
    commit.join()
    assert commit.error is None
    assert has_row(ledger, n)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT pg_notify('channel', 'text')",
        "NOTIFY channel",
        "LISTEN channel",
        "CREATE TEMP TABLE IF NOT EXISTS mine (a int) ON COMMIT DELETE ROWS",
    ],
)
def test_what_core_still_has_to_do_at_commit_takes_two_phases(
    ledger: Ledger, statement: str
) -> None:
    arm(ledger.cluster.coordinator, ("prepared_0", "error"))
    n = ledger.next()
    commit = Commit(ledger, [one_row(ledger, n), statement])
    commit.join()
    assert commit.error is not None
    assert "fault point" in str(commit.error)
    assert not has_row(ledger, n)


def test_notifications_of_a_distributed_transaction_arrive(ledger: Ledger) -> None:
    with ledger.cluster.coordinator.connect() as listener:
        listener.execute("LISTEN channel")
        n = ledger.next()
        commit = Commit(ledger, [one_row(ledger, n), "NOTIFY channel, 'hello'"])
        commit.join()
        assert commit.error is None
        (received,) = listener.notifies(timeout=patience(5), stop_after=1)
        assert received.payload == "hello"
    assert has_row(ledger, n)


# ---- the resolver and those who still run -----------------------------------------------------------


@pytest.mark.parametrize("step", ["prepared_1", "committed"])
def test_the_resolver_leaves_running_transactions_alone(ledger: Ledger, step: str) -> None:
    coordinator = ledger.cluster.coordinator
    arm(coordinator, (step, "wait"))
    commit = Commit(ledger)
    wait_for_arrival(coordinator)
    begin = coordinator.log_size()
    time.sleep(1.5)  # several rounds of the resolver
    for worker in ledger.cluster.workers:
        assert len(worker.query("SELECT gid FROM pg_prepared_xacts")) == 1
    release(coordinator)
    commit.join()
    assert commit.error is None
    assert commit.notices == []
    assert "was resolved" not in coordinator.log_text(begin)


def test_a_resolver_that_is_late_finds_the_decision(ledger: Ledger) -> None:
    """It has listed a name; the session decides, cannot tell the worker, and leaves; it commits."""
    coordinator, (first, second) = ledger.cluster.coordinator, ledger.cluster.workers
    arm(coordinator, ("prepare_1", "wait"))
    commit = Commit(ledger)
    wait_for_arrival(coordinator)
    with frozen(second):
        arm(coordinator, ("resolver_listed", "wait"))
        release(coordinator)
        wait_for_arrival(coordinator)
        pid = coordinator.value(
            "SELECT worker_pid FROM strata.session_wires() AS x JOIN strata.worker USING (worker_id)"
            f" WHERE session = {commit.pid} AND name = '{first.name}'"
        )
        first.execute(f"SELECT pg_terminate_backend({pid}, 5000)")
    commit.join()
    assert commit.error is None
    disarm(coordinator)
    ledger.settle()
    assert commit.n in ledger.check()


@contextlib.contextmanager
def prepared(worker: Node, names: list[str]) -> Iterator[None]:
    """Transactions of these names wait on the worker, and do not outlive the test."""
    for i, name in enumerate(names):
        worker.execute(f"BEGIN; CREATE TABLE foreign_{i} (); PREPARE TRANSACTION '{name}'")
    try:
        yield
    finally:
        for name in names:
            with contextlib.suppress(psycopg.errors.UndefinedObject):
                worker.execute(f"ROLLBACK PREPARED '{name}'")


def test_foreign_prepared_transactions_are_never_touched(ledger: Ledger) -> None:
    cluster = ledger.cluster
    worker = cluster.workers[0]
    own = cluster.coordinator.value("SELECT id FROM strata.cluster")
    names = [
        "mine",
        "strata",
        "strata_00000000-0000-0000-0000-000000000000_1_1_1",
        f"strata_{own}_1_1_1x",
        f"strata_{own}_1_1_77",
    ]
    with prepared(worker, names):
        cluster.coordinator.stop()
        begin = cluster.coordinator.log_size()
        cluster.coordinator.start()
        with cluster.coordinator.connect() as connection:
            ledger.write(connection)
        # a name that is ours but of a worker that this is not is shown, once it has been looked at
        shown = [(worker.name, "unknown", "it was prepared on another worker, and is left alone")]
        for _ in wait_until("the resolver has looked at it"):
            if in_doubt(cluster.coordinator) == shown:
                break
        time.sleep(1.5)  # several rounds of the resolver
        left = {gid for (gid,) in worker.query("SELECT gid FROM pg_prepared_xacts")}
        assert left == set(names)
        assert in_doubt(cluster.coordinator) == shown
        assert cluster.coordinator.log_text(begin).count("was prepared on another worker") == 1


# ---- what administrators see ---------------------------------------------------------------------


def in_doubt(node: Node) -> list[tuple]:
    return node.query("SELECT worker, decision, reason FROM strata.in_doubt ORDER BY 1, 2")


def test_in_doubt_shows_what_waits_for_a_worker_that_is_down(ledger: Ledger) -> None:
    coordinator, worker = ledger.cluster.coordinator, ledger.cluster.workers[1]
    arm(coordinator, ("committed", "wait"))
    commit = Commit(ledger)
    wait_for_arrival(coordinator)
    worker.kill()
    release(coordinator)
    commit.join()
    assert commit.error is None
    assert any("in doubt" in notice for notice in commit.notices)
    assert in_doubt(coordinator) == [(worker.name, "commit", "the worker does not answer")]
    ((gid, since, last_attempt),) = coordinator.query(
        "SELECT gid, since, last_attempt FROM strata.in_doubt"
    )
    assert gid.startswith("strata_")
    assert last_attempt is None or since <= last_attempt
    # a restart of the coordinator forgets shared memory, not the decision
    coordinator.restart()
    for _ in wait_until("the other worker was looked at"):
        if in_doubt(coordinator) == [(worker.name, "unknown", "nobody has seen the worker yet")]:
            break
    worker.start()
    worker.forgive_crash()
    ledger.settle()
    assert commit.n in ledger.check()


def test_a_frozen_worker_is_given_up_and_its_prepare_undone_later(ledger: Ledger) -> None:
    coordinator, worker = ledger.cluster.coordinator, ledger.cluster.workers[1]
    arm(coordinator, ("prepare_1", "wait"))
    commit = Commit(ledger, worker_timeout="1s")
    wait_for_arrival(coordinator)
    with frozen(worker):
        begin = time.monotonic()
        release(coordinator)
        commit.join()
        assert time.monotonic() - begin < patience(8)
        assert commit.error is not None
        assert worker.name in str(commit.error)
        assert (worker.name, "rollback") in [row[:2] for row in in_doubt(coordinator)]
    ledger.settle()
    assert commit.n not in ledger.check()


def test_a_frozen_worker_after_the_decision_costs_bounded_time(ledger: Ledger) -> None:
    coordinator, worker = ledger.cluster.coordinator, ledger.cluster.workers[1]
    arm(coordinator, ("committed", "wait"))
    commit = Commit(ledger)
    wait_for_arrival(coordinator)
    with frozen(worker):
        begin = time.monotonic()
        release(coordinator)
        commit.join()
        assert time.monotonic() - begin < patience(15)
        assert commit.error is None
        assert (worker.name, "commit") in [row[:2] for row in in_doubt(coordinator)]
    ledger.settle()
    assert commit.n in ledger.check()


def test_ordinary_users_may_look_and_nothing_else(ledger: Ledger) -> None:
    cluster = ledger.cluster
    cluster.create_role("looker")
    with cluster.coordinator.connect(user="looker") as connection:
        assert connection.execute("SELECT * FROM strata.in_doubt").fetchall() == []
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM strata.distributed_transaction")


def test_a_worker_in_doubt_cannot_be_removed(ledger: Ledger) -> None:
    cluster = ledger.cluster
    node = cluster.new_node("extra")
    cluster.coordinator.query("SELECT strata.add_worker('extra', %s)", (node.conninfo(user=None),))
    try:
        worker_id = cluster.coordinator.value(
            "SELECT worker_id FROM strata.workers WHERE name = 'extra'"
        )
        own = cluster.coordinator.value("SELECT id FROM strata.cluster")
        for _ in wait_until("the new worker was looked at"):
            if in_doubt(cluster.coordinator) == []:
                break
        name = f"strata_{own}_1_1_{worker_id + 1}"
        node.execute(f"BEGIN; CREATE TABLE x (); PREPARE TRANSACTION '{name}'")
        for _ in wait_until("it is in doubt"):
            if in_doubt(cluster.coordinator):
                break
        with pytest.raises(psycopg.errors.ObjectInUse, match="in doubt"):
            cluster.coordinator.query("SELECT strata.remove_worker('extra')")
        node.execute(f"ROLLBACK PREPARED '{name}'")
    finally:
        for _ in wait_until("the worker can be removed"):
            with contextlib.suppress(psycopg.errors.ObjectInUse):
                cluster.coordinator.query("SELECT strata.remove_worker('extra')")
                break
        node.stop()


def test_an_outdated_coordinator_resolves_nothing(ledger: Ledger) -> None:
    """Another coordinator took over: the worker has seen a later epoch."""
    coordinator, worker = ledger.cluster.coordinator, ledger.cluster.workers[0]
    own = coordinator.value("SELECT id FROM strata.cluster")
    worker.execute("UPDATE strata_worker.cluster SET epoch = epoch + 1")
    name = f"strata_{own}_5_5_1"
    with prepared(worker, [name]):
        time.sleep(1.5)
        assert worker.query("SELECT gid FROM pg_prepared_xacts") == [(name,)]
        worker.execute("UPDATE strata_worker.cluster SET epoch = epoch - 1")
        for _ in wait_until("it is rolled back"):
            if not worker.query("SELECT gid FROM pg_prepared_xacts"):
                break
