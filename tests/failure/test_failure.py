"""Failures are noticed, told, survived: dead, frozen, read-only workers, and their return."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from tests import fault_points
from tests.cluster import Cluster, Node
from tests.failover import (
    Proxy,
    become_standby,
    behind_proxy,
    conninfo_of,
    drops_packets,
    frozen,
    heartbeat,
    make_standby,
    packets_dropped,
    promote,
    set_conninfo,
    status_of,
    wait_for_status,
)
from tests.fixtures import new_root
from tests.waiting import patience, wait_until


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    with Cluster(new_root(), workers=2) as cluster:
        cluster.coordinator.execute(
            "CREATE TABLE t (id integer PRIMARY KEY, v integer);"
            "SELECT strata.create_distributed_table('t', 'id', shard_count => 8);"
            "INSERT INTO t SELECT g, 0 FROM generate_series(1, 100) AS g"
        )
        yield cluster


@pytest.fixture
def cluster(made: Cluster) -> Iterator[Cluster]:
    """A cluster with two workers, both up; table t has rows 1 .. 100 with v = 0."""
    for worker in made.workers:
        wait_for_status(made, worker.name, "up")
    yield made
    made.start()
    for worker in made.workers:
        set_conninfo(made, worker.name, worker.conninfo(user=None))
        worker.forgive_crash()
    made.coordinator.disconnect()


def key_on(worker: Node) -> int:
    """A key whose row is on this worker."""
    return worker.value("SELECT min(id) FROM t")


def lines_with(cluster: Cluster, offset: int, text: str) -> list[str]:
    return [line for line in cluster.coordinator.log_text(offset).splitlines() if text in line]


def run_in_thread(connection: psycopg.Connection, query: str) -> tuple[threading.Thread, list]:
    outcome: list = []

    def run() -> None:
        try:
            outcome.append(connection.execute(query).fetchall())
        except psycopg.Error as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


@contextlib.contextmanager
def locked(worker: Node) -> Iterator[psycopg.Connection]:
    """Queries that read t wait on this worker; the lock goes with the server."""
    with contextlib.suppress(psycopg.Error), worker.connect(autocommit=False) as holder:
        holder.execute("LOCK TABLE t")
        yield holder


def wait_until_it_waits(worker: Node) -> None:
    for _ in wait_until(f"the query waits on {worker.name}"):
        if worker.value("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0:
            return


# ---- noticed ---------------------------------------------------------------------------------------


def test_a_dead_worker_is_shown_logged_once_and_notified_within_five_seconds(
    cluster: Cluster,
) -> None:
    worker = cluster.workers[1]
    offset = cluster.coordinator.log_size()
    assert status_of(cluster, worker.name)[0] == "up"
    with cluster.coordinator.connect() as listener:
        listener.execute("LISTEN strata_workers")
        start = time.monotonic()
        worker.kill()
        notifications = list(listener.notifies(timeout=patience(5), stop_after=1))
        assert time.monotonic() - start < patience(5)
        (told,) = [json.loads(notification.payload) for notification in notifications]
        assert (told["worker"], told["status"]) == (worker.name, "down")
        assert str(worker.port) in told["reason"]
        status, since, reason = status_of(cluster, worker.name)
        assert status == "down"
        assert str(worker.port) in reason
        time.sleep(2.5)
        assert status_of(cluster, worker.name)[:2] == (status, since)
        assert len(lines_with(cluster, offset, 'worker "worker2" is down')) == 1

        worker.start()
        (back,) = listener.notifies(timeout=patience(5), stop_after=1)
        assert json.loads(back.payload)["status"] == "up"
        status, later, reason = status_of(cluster, worker.name)
        assert (status, reason) == ("up", None)
        assert later > since
        assert len(lines_with(cluster, offset, 'worker "worker2" is up again')) == 1
        assert lines_with(cluster, offset, 'worker "worker1" is') == []


def test_a_frozen_worker_is_down_within_five_seconds(cluster: Cluster) -> None:
    with frozen(cluster.workers[1]):
        wait_for_status(cluster, "worker2", "down", timeout=5)
        assert " answer" in status_of(cluster, "worker2")[2]
        assert status_of(cluster, "worker1")[0] == "up"
    wait_for_status(cluster, "worker2", "up")


def become_read_only(node: Node) -> None:
    node.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    node.execute("SELECT pg_reload_conf()")


def test_a_read_only_worker_is_shown_with_the_reason(cluster: Cluster) -> None:
    worker = cluster.workers[0]
    become_read_only(worker)
    try:
        wait_for_status(cluster, worker.name, "read-only", timeout=5)
        assert "default_transaction_read_only" in status_of(cluster, worker.name)[2]
    finally:
        worker.execute("SET default_transaction_read_only = off")
        worker.execute("ALTER SYSTEM RESET default_transaction_read_only")
        worker.execute("SELECT pg_reload_conf()")
    wait_for_status(cluster, worker.name, "up", timeout=5)


def test_while_nothing_changes_the_heartbeat_writes_nothing(cluster: Cluster) -> None:
    def position() -> tuple:
        query = "SELECT pg_current_wal_insert_lsn(), pg_snapshot_xmax(pg_current_snapshot())"
        return tuple(node.query(query)[0] for node in cluster.nodes)

    cluster.coordinator.execute("CHECKPOINT")
    for worker in cluster.workers:
        worker.execute("CHECKPOINT")
    time.sleep(1)
    before = position()
    time.sleep(3)
    after = position()
    # the checkpointer and the background writer may log what runs; transactions are ours
    assert [xmax for _, xmax in before] == [xmax for _, xmax in after]


def test_workers_that_come_go_and_move_are_watched(cluster: Cluster) -> None:
    node = cluster.new_node("guest")
    try:
        cluster.coordinator.query(
            "SELECT strata.add_worker('guest', %s)", (node.conninfo(user=None),)
        )
        wait_for_status(cluster, "guest", "up", timeout=5)
        set_conninfo(cluster, "guest", "host=127.0.0.1 port=1 dbname=strata")
        wait_for_status(cluster, "guest", "down", timeout=5)
        set_conninfo(cluster, "guest", node.conninfo(user=None))
        wait_for_status(cluster, "guest", "up", timeout=5)
        cluster.coordinator.execute("UPDATE strata.worker SET name = 'host' WHERE name = 'guest'")
        wait_for_status(cluster, "host", "up", timeout=5)
        cluster.coordinator.execute("SELECT strata.remove_worker('host')")
        for _ in wait_until("the heartbeat has left"):
            query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
            if node.value(query, ("strata heartbeat",)) == 0:
                break
    finally:
        node.stop("immediate")


def test_a_heartbeat_that_is_terminated_is_replaced(cluster: Cluster) -> None:
    for _ in range(2):
        (pid,) = heartbeat(cluster.coordinator)
        cluster.coordinator.execute("SELECT pg_terminate_backend(%s)", (pid,))
        for _ in wait_until("another heartbeat runs"):
            found = heartbeat(cluster.coordinator)
            if found and found != [pid]:
                break
        wait_for_status(cluster, "worker1", "up")


# ---- statements ------------------------------------------------------------------------------------


def test_statements_fail_within_the_worker_timeout_and_others_go_on(cluster: Cluster) -> None:
    """Waiting for rows, in a transaction, at PREPARE and VACUUM: the kernel still answers."""
    live, victim = cluster.workers
    key = key_on(live)
    sessions = [cluster.coordinator.connect() for _ in range(5)]
    reader, block, writer, vacuum, other = sessions
    with contextlib.ExitStack() as stack:
        for session in sessions:
            stack.enter_context(session)
            session.execute("SET strata.worker_timeout = '4s'; SELECT count(*) FROM t")
        block.execute("BEGIN; SELECT count(*) FROM t")
        writer.execute("BEGIN; UPDATE t SET v = 1")
        failures: dict[str, tuple[float, psycopg.Error]] = {}

        def run(name: str, session: psycopg.Connection, statement: str) -> None:
            start = time.monotonic()
            try:
                session.execute(statement)
            except psycopg.Error as error:
                failures[name] = (time.monotonic() - start, error)

        work = [
            ("reader", reader, "SELECT sum(v) FROM t"),
            ("block", block, "SELECT count(*) FROM t"),
            ("commit", writer, "COMMIT"),
            ("vacuum", vacuum, "VACUUM t"),
        ]
        with frozen(victim):
            threads = [threading.Thread(target=run, args=item) for item in work]
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                start = time.monotonic()
                row = other.execute("SELECT v FROM t WHERE id = %s", (key,)).fetchone()
                assert row == (0,)
                assert time.monotonic() - start < patience(2)
                time.sleep(0.2)
            assert failures.keys() == {"reader", "block", "commit", "vacuum"}
            for name, (seconds, error) in failures.items():
                assert seconds < patience(8), name
                assert error.sqlstate == "08006", f"{name}: {error}"
                assert "worker2" in str(error), name
            # who comes later does not wait for the timeout again
            start = time.monotonic()
            with pytest.raises(psycopg.OperationalError, match="worker2"):
                reader.execute("SET strata.connect_timeout = '1s'; SELECT sum(v) FROM t")
            assert time.monotonic() - start < patience(3)
        wait_for_status(cluster, "worker2", "up")
        writer.rollback()
        for session in (reader, writer, vacuum):
            assert session.execute("SELECT count(*), sum(v) FROM t").fetchall() == [(100, 0)]
    # what the frozen one prepared at last is undone, as the missing decision says
    for (gid,) in victim.query("SELECT gid FROM pg_prepared_xacts"):
        with contextlib.suppress(psycopg.errors.UndefinedObject):
            victim.execute(f"ROLLBACK PREPARED '{gid}'")


def test_a_long_query_is_no_silence(cluster: Cluster) -> None:
    with cluster.coordinator.connect() as connection:
        connection.execute("SET strata.worker_timeout = '1s'")
        with locked(cluster.workers[1]) as holder:
            thread, outcome = run_in_thread(connection, "SELECT count(*) FROM t")
            time.sleep(2.5)
            assert outcome == []
            holder.rollback()
        thread.join(patience(10))
        assert outcome == [[(100,)]]


def test_a_heartbeat_that_stands_still_accuses_nobody(cluster: Cluster) -> None:
    with cluster.coordinator.connect() as connection:
        connection.execute("SET strata.worker_timeout = '1s'")
        with frozen(cluster.coordinator, heartbeat):
            time.sleep(1)
            with locked(cluster.workers[1]) as holder:
                thread, outcome = run_in_thread(connection, "SELECT count(*) FROM t")
                time.sleep(2.5)
                assert outcome == []
                holder.rollback()
            thread.join(patience(10))
            assert outcome == [[(100,)]]


def test_a_wire_that_loses_all_packets_is_found_and_replaced(cluster: Cluster) -> None:
    """Half open: no reset, no end; the same session works again when the network does."""
    with (
        behind_proxy(cluster, cluster.workers[1]) as proxy,
        cluster.coordinator.connect() as session,
    ):
        session.execute("SET strata.worker_timeout = '2s'; SET strata.connect_timeout = '1s'")
        assert session.execute("SELECT sum(v) FROM t").fetchall() == [(0,)]
        proxy.dead.set()
        start = time.monotonic()
        with pytest.raises(psycopg.OperationalError, match="worker2"):
            session.execute("SELECT sum(v) FROM t")
        assert time.monotonic() - start < patience(6)
        wait_for_status(cluster, "worker2", "down", timeout=5)
        proxy.dead.clear()
        wait_for_status(cluster, "worker2", "up", timeout=5)
        assert session.execute("SELECT sum(v) FROM t").fetchall() == [(0,)]


@drops_packets
def test_the_kernel_finds_a_wire_whose_packets_are_dropped(cluster: Cluster) -> None:
    """Keepalives where rows are awaited, the user timeout for what was sent; the heartbeat stands still."""
    victim = cluster.workers[1]
    statements = {"waits": "SELECT sum(v) FROM t", "sends": "UPDATE t SET v = 1"}
    outcomes: dict[str, tuple[float, str | None, str]] = {}

    def run(name: str) -> None:
        start = time.monotonic()
        try:
            sessions[name].execute(statements[name])
        except psycopg.Error as error:
            outcomes[name] = (time.monotonic() - start, error.sqlstate, str(error))

    with contextlib.ExitStack() as stack:
        sessions = {name: stack.enter_context(cluster.coordinator.connect()) for name in statements}
        for session in sessions.values():
            session.execute("SET strata.worker_timeout = '4s'; SELECT count(*) FROM t")
            session.execute("BEGIN")  # what is a part of a transaction is not repeated
        threads = {name: threading.Thread(target=run, args=[name]) for name in statements}
        holder = stack.enter_context(victim.connect())
        holder.execute("BEGIN")
        holder.execute("LOCK TABLE t")
        threads["waits"].start()
        wait_until_it_waits(victim)
        victim.disconnect()

        with frozen(cluster.coordinator, heartbeat), packets_dropped(victim):
            threads["sends"].start()
            for thread in threads.values():
                thread.join(patience(30))
        assert outcomes.keys() == statements.keys()
        for name, (seconds, sqlstate, text) in outcomes.items():
            assert sqlstate == "08006", f"{name}: {text}"
            assert "worker2" in text, f"{name}: {text}"
            assert "timed out" in text, f"{name}: {text}"
            assert seconds < patience(10), f"{name}: {seconds}"
        holder.execute("ROLLBACK")
        wait_for_status(cluster, "worker2", "up")
        for session in sessions.values():
            session.execute("ROLLBACK")
            assert session.execute("SELECT count(*), sum(v) FROM t").fetchall() == [(100, 0)]


@drops_packets
def test_a_worker_whose_packets_are_dropped_is_down_within_five_seconds(cluster: Cluster) -> None:
    with cluster.coordinator.connect() as session:
        session.execute("SELECT count(*) FROM t")
        with packets_dropped(cluster.workers[1]):
            wait_for_status(cluster, "worker2", "down", timeout=5)
            assert status_of(cluster, "worker1")[0] == "up"
            # nobody waits for the timeout once the worker is known to be silent
            start = time.monotonic()
            with pytest.raises(psycopg.OperationalError, match="worker2"):
                session.execute("SET strata.connect_timeout = '1s'; SELECT count(*) FROM t")
            assert time.monotonic() - start < patience(3)
        wait_for_status(cluster, "worker2", "up")
        assert session.execute("SELECT count(*), sum(v) FROM t").fetchall() == [(100, 0)]


@drops_packets
def test_a_worker_that_is_cut_off_ends_the_coordinators_sessions(cluster: Cluster) -> None:
    """And with them their locks, whatever its configuration says, within strata.worker_timeout."""
    worker = cluster.workers[1]
    key = key_on(worker)
    with cluster.coordinator.connect() as idle, cluster.coordinator.connect() as busy:
        for session in (idle, busy):
            session.execute("SET strata.worker_timeout = '4s'")
        idle.execute(f"BEGIN; UPDATE t SET v = v WHERE id = {key}")
        thread, _ = run_in_thread(busy, f"UPDATE t SET v = v WHERE id = {key} RETURNING id")
        wait_until_it_waits(worker)
        locks = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'strata' AND state <> 'idle'"
        assert worker.value(locks) == 2
        worker.disconnect()
        with packets_dropped(worker), worker.connect() as witness:
            for _ in wait_until("the sessions end", timeout=12):
                if witness.execute(locks).fetchone() == (0,):
                    break
        thread.join(patience(30))
        idle.execute("ROLLBACK")
    wait_for_status(cluster, "worker2", "up")


def test_a_rollback_to_a_savepoint_waits_once_for_all_frozen_workers(cluster: Cluster) -> None:
    """It cannot be interrupted, so its limit is that of all workers together."""
    with cluster.coordinator.connect() as session:
        session.execute("SET strata.worker_timeout = '4s'")
        session.execute("BEGIN; SELECT count(*) FROM t; SAVEPOINT a; UPDATE t SET v = 1")
        with frozen(cluster.workers[0]), frozen(cluster.workers[1]):
            start = time.monotonic()
            session.execute("ROLLBACK TO a")
            assert time.monotonic() - start < patience(3)
            with pytest.raises(psycopg.OperationalError, match="worker"):
                session.execute("SELECT count(*) FROM t")
        for worker in cluster.workers:
            wait_for_status(cluster, worker.name, "up")
        session.execute("ROLLBACK")
        assert session.execute("SELECT count(*), sum(v) FROM t").fetchall() == [(100, 0)]


def test_an_idle_session_survives_the_restart_of_a_worker_without_an_error(
    cluster: Cluster,
) -> None:
    with cluster.coordinator.connect() as connection:
        connection.execute("SELECT count(*) FROM t")
        for mode in ("fast", "immediate"):
            cluster.workers[0].restart(mode)
            assert connection.execute("SELECT count(*), sum(v) FROM t").fetchall() == [(100, 0)]
            connection.execute("UPDATE t SET v = 0")


# ---- again -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["fast", "immediate"])
@pytest.mark.parametrize("what", ["count(*)", "id"])
def test_a_read_is_repeated_when_a_worker_is_restarted_before_its_first_row(
    cluster: Cluster, mode: str, what: str
) -> None:
    """In order, so that no row is given before the slowest worker has one."""
    query = f"SELECT {what} FROM t" + (" ORDER BY id" if what == "id" else "")
    expected = [(100,)] if what == "count(*)" else [(n,) for n in range(1, 101)]
    with cluster.coordinator.connect() as connection:
        with locked(cluster.workers[1]):
            thread, outcome = run_in_thread(connection, query)
            wait_until_it_waits(cluster.workers[1])
            cluster.workers[1].restart(mode)
        thread.join(patience(30))
        assert outcome == [expected]
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(100,)]


@pytest.mark.parametrize("mode", ["fast", "immediate"])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT count(*) FROM t a JOIN t b ON a.id = b.id % 7", 86),
        (
            "SELECT count(*) FROM (SELECT id FROM t UNION ALL (SELECT id FROM t ORDER BY id LIMIT 1000)) AS twice",
            200,
        ),
        ("SELECT (SELECT count(*) FROM t) + (SELECT max(id) FROM t)", 200),
        ("SELECT count(*) FROM t WHERE id < (SELECT avg(id) FROM t)", 50),
    ],
    ids=["join", "union", "sub-selects", "sub-select in a condition"],
)
def test_a_read_in_several_places_is_repeated_when_a_worker_is_restarted_before_its_first_row(
    cluster: Cluster, mode: str, query: str, expected: int
) -> None:
    with cluster.coordinator.connect() as connection:
        plan = "\n".join(line for (line,) in connection.execute(f"EXPLAIN {query}"))
        assert plan.count("Strata Gather") >= 2, plan
        with locked(cluster.workers[1]):
            thread, outcome = run_in_thread(connection, query)
            wait_until_it_waits(cluster.workers[1])
            cluster.workers[1].restart(mode)
        thread.join(patience(30))
        assert outcome == [[(expected,)]]
        assert connection.execute(query).fetchall() == [(expected,)]


def test_what_is_not_a_single_read_fails_with_the_workers_name(cluster: Cluster) -> None:
    for prepare, statement in [
        ("BEGIN", "SELECT count(*) FROM t"),
        ("", "UPDATE t SET v = 0"),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM t"),
        ("", "SELECT id FROM t ORDER BY id FOR UPDATE"),
    ]:
        with cluster.coordinator.connect() as connection:
            if prepare:
                connection.execute(prepare)
            with locked(cluster.workers[1]):
                thread, outcome = run_in_thread(connection, statement)
                wait_until_it_waits(cluster.workers[1])
                cluster.workers[1].restart()
            thread.join(patience(30))
            (error,) = outcome
            assert isinstance(error, psycopg.Error), statement
            assert error.sqlstate[:2] in ("08", "57"), statement
            assert "worker2" in str(error), statement
            connection.rollback()
            assert connection.execute("SELECT count(*) FROM t").fetchall() == [(100,)]


def test_a_read_of_a_worker_that_does_not_come_back_fails_soon(cluster: Cluster) -> None:
    with cluster.coordinator.connect() as connection:
        connection.execute("SET strata.connect_timeout = '1s'")
        with locked(cluster.workers[1]):
            thread, outcome = run_in_thread(connection, "SELECT count(*) FROM t")
            wait_until_it_waits(cluster.workers[1])
            start = time.monotonic()
            cluster.workers[1].kill()
        thread.join(patience(30))
        assert time.monotonic() - start < patience(4)
        assert "worker2" in str(outcome[0])
        assert outcome[0].sqlstate in ("08001", "08006")


# ---- several hosts ---------------------------------------------------------------------------------


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A host that is powered off: nothing comes back."""
    proxy = Proxy(1)
    proxy.dead.set()
    yield proxy.port
    proxy.close()


def test_a_first_host_that_is_powered_off_does_not_hide_the_second(
    cluster: Cluster, silent_port: int
) -> None:
    worker = cluster.workers[1]
    conninfo = conninfo_of(worker).replace("host=", "host=127.0.0.1,")
    set_conninfo(cluster, "worker2", conninfo.replace("port=", f"port={silent_port},"))
    for known in (False, True):
        if known:  # the heartbeat tells sessions which host to try first
            wait_for_status(cluster, "worker2", "up", timeout=5)
        with cluster.coordinator.connect() as connection:
            start = time.monotonic()
            assert connection.execute("SELECT count(*) FROM t").fetchall() == [(100,)]
            assert time.monotonic() - start < patience(2)


def test_a_standby_beside_a_silent_host_is_taken_as_soon_as_it_is_promoted(
    cluster: Cluster, silent_port: int
) -> None:
    """Within the attempt that it refused at first: the next one would come too late."""
    worker = cluster.workers[1]
    conninfo = conninfo_of(worker).replace("host=", "host=127.0.0.1,")
    set_conninfo(cluster, "worker2", conninfo.replace("port=", f"port={silent_port},"))
    become_read_only(worker)
    with cluster.coordinator.connect() as connection:
        connection.execute("SET strata.connect_timeout = '60s'")
        thread, outcome = run_in_thread(connection, "SELECT count(*) FROM t")
        thread.join(patience(2))
        assert thread.is_alive()
        with worker.connect(autocommit=True) as administrator:
            administrator.execute("SET default_transaction_read_only = off")
            administrator.execute("ALTER SYSTEM RESET default_transaction_read_only")
            administrator.execute("SELECT pg_reload_conf()")
        thread.join(patience(20))
        assert outcome == [[(100,)]]


def test_all_hosts_are_named_when_none_will_do(cluster: Cluster, silent_port: int) -> None:
    set_conninfo(
        cluster,
        "worker2",
        f"host=127.0.0.1,127.0.0.1 port={silent_port},1 dbname=strata",
    )
    with cluster.coordinator.connect() as connection:
        connection.execute("SET strata.connect_timeout = '1s'")
        with pytest.raises(psycopg.OperationalError) as caught:
            connection.execute("SELECT count(*) FROM t")
    detail = caught.value.diag.message_detail
    assert caught.value.sqlstate == "08001"
    assert "worker2" in caught.value.diag.message_primary
    assert f"127.0.0.1:{silent_port} did not answer within 1 s" in detail
    assert "port 1 failed" in detail


def test_the_next_statement_works_when_the_replica_was_promoted(make_cluster) -> None:
    """Sessions stay connected to the coordinator through failover and switch-back."""
    cluster = make_cluster(workers=2)
    cluster.coordinator.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, v integer);"
        "SELECT strata.create_distributed_table('t', 'id', shard_count => 8);"
        "INSERT INTO t SELECT g, 0 FROM generate_series(1, 100) AS g"
    )
    first = cluster.workers[1]
    second = make_standby(cluster, first, "standby")
    set_conninfo(cluster, "worker2", conninfo_of(second, first))
    wait_for_status(cluster, "worker2", "up")
    try:
        with cluster.coordinator.connect() as connection:
            # the standby is named first, and refused
            connection.execute("UPDATE t SET v = 1")
            for _ in wait_until("the standby has it"):
                if second.value("SELECT count(*) FROM t WHERE v = 1") == first.value(
                    "SELECT count(*) FROM t"
                ):
                    break
            first.kill()
            promote(second)
            first.forgive_crash()
            assert connection.execute("SELECT sum(v) FROM t").fetchall() == [(100,)]
            connection.execute("UPDATE t SET v = 2")
            assert connection.execute("SELECT sum(v) FROM t").fetchall() == [(200,)]

            # only a standby is left: read-only
            second.stop()
            become_standby(second, first)
            second.start()
            for _ in wait_until("the heartbeat has found the standby", 5):
                status, _, reason = status_of(cluster, "worker2")
                # while the first one was gone this one had been a standby, too
                if (status, reason) == ("read-only", "The server is a standby."):
                    break
            with pytest.raises(psycopg.OperationalError, match="worker2"):
                connection.execute("UPDATE t SET v = 3")
            promote(second)
            connection.execute("UPDATE t SET v = 4")
            assert connection.execute("SELECT sum(v) FROM t").fetchall() == [(400,)]
            wait_for_status(cluster, "worker2", "up", timeout=5)
    finally:
        second.stop("immediate")


@pytest.mark.parametrize("wire", ["of a watched worker", "older than the first answer"])
def test_a_worker_that_was_made_read_only_is_left_for_the_host_that_is_primary(
    make_cluster, wire: str
) -> None:
    """The old primary goes on answering over the wires it has: sessions leave it all the same."""
    cluster = make_cluster(workers=1, assertions=True)
    cluster.coordinator.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, v integer);"
        "SELECT strata.create_distributed_table('t', 'id', shard_count => 4);"
        "INSERT INTO t SELECT g, 0 FROM generate_series(1, 100) AS g"
    )
    first = cluster.workers[0]
    second = make_standby(cluster, first, "standby")
    fault_points.arm(cluster.coordinator, ("heartbeat_first_answer", "wait"))
    set_conninfo(cluster, "worker1", conninfo_of(first, second))
    fault_points.wait_for_arrival(cluster.coordinator)
    try:
        with cluster.coordinator.connect() as connection:
            if wire == "older than the first answer":
                connection.execute("UPDATE t SET v = 1")
            fault_points.release(cluster.coordinator)
            wait_for_status(cluster, "worker1", "up")
            if wire == "of a watched worker":
                connection.execute("UPDATE t SET v = 1")
            become_read_only(first)
            wait_for_status(cluster, "worker1", "read-only", timeout=5)
            assert "default_transaction_read_only" in status_of(cluster, "worker1")[2]
            for _ in wait_until("the standby has it"):
                if second.value("SELECT count(*) FROM t WHERE v = 1") == 100:
                    break
            promote(second)
            wait_for_status(cluster, "worker1", "up", timeout=5)
            connection.execute("UPDATE t SET v = 2")
            assert connection.execute("SELECT sum(v) FROM t").fetchall() == [(200,)]
            assert second.value("SELECT sum(v) FROM t") == 200
            assert first.value("SELECT sum(v) FROM t") == 100
    finally:
        fault_points.release(cluster.coordinator)
        second.stop("immediate")


def test_a_worker_is_added_by_its_second_host_when_the_first_is_powered_off(
    cluster: Cluster, silent_port: int
) -> None:
    node = cluster.new_node("guest")
    conninfo = conninfo_of(node).replace("host=", "host=127.0.0.1,")
    conninfo = conninfo.replace("port=", f"port={silent_port},")
    try:
        with cluster.coordinator.connect() as connection:
            connection.execute("SET strata.connect_timeout = '5s'")
            connection.execute("SELECT strata.add_worker('guest', %s)", (conninfo,))
            wait_for_status(cluster, "guest", "up", timeout=5)
            connection.execute("SELECT strata.remove_worker('guest')")
    finally:
        node.stop("immediate")


@pytest.mark.parametrize("noticed", [False, True])
@pytest.mark.parametrize(
    ("begin", "asked", "commits"),
    [
        ("BEGIN", "SELECT v FROM t WHERE id = {}", True),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT v FROM t WHERE id = {}", True),
        ("BEGIN", "SELECT v FROM t WHERE id = {} FOR KEY SHARE", False),
        ("BEGIN", "UPDATE t SET v = v WHERE id = {}", False),
        ("BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY", "SELECT v FROM t WHERE id = {}", False),
    ],
)
def test_a_commit_needs_no_worker_that_was_only_read(
    cluster: Cluster, begin: str, asked: str, commits: bool, noticed: bool
) -> None:
    """Also when the transaction has met the loss, in a savepoint that it has rolled back."""
    lost, other = cluster.workers
    asked = asked.format(key_on(lost))
    with cluster.coordinator.connect() as session:
        session.execute(begin)
        session.execute(asked)
        if "SERIALIZABLE" not in begin:
            session.execute(f"UPDATE t SET v = v + 1 WHERE id = {key_on(other)}")
        before = other.value("SELECT sum(v) FROM t")
        lost.stop("immediate")
        wait_for_status(cluster, lost.name, "down")
        if noticed:
            session.execute("SAVEPOINT s")
            with pytest.raises(psycopg.Error, match='"worker1"'):
                session.execute(asked)
            session.execute("ROLLBACK TO s")
        if commits:
            session.execute("COMMIT")
            assert other.value("SELECT sum(v) FROM t") == before + 1
        else:
            with pytest.raises(psycopg.errors.ConnectionFailure, match='"worker1" was lost'):
                session.execute("COMMIT")
    assert other.value("SELECT sum(v) FROM t") == before + commits
    cluster.start()
    wait_for_status(cluster, lost.name, "up")
    cluster.coordinator.execute("UPDATE t SET v = 0 WHERE v <> 0")
