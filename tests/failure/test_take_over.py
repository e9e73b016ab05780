"""Workers serve one coordinator: its promoted replica at once, the old one and copies no more."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster, Node
from tests.failover import Failover, become_standby, copy_coordinator, promote, standby_mark
from tests.fixtures import new_root
from tests.ledger import Ledger
from tests.waiting import wait_until

EPOCH = "SELECT epoch FROM strata.cluster"
WORKER_EPOCH = "SELECT epoch FROM strata_worker.cluster"


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Cluster(new_root(), workers=2) as cluster:
        cluster.coordinator.execute("ALTER SYSTEM SET strata.resolver_interval = '1s'")
        cluster.coordinator.execute("SELECT pg_reload_conf()")
        ledger = Ledger(cluster)
        ledger.create()
        yield ledger
        for node in cluster.nodes:
            node.forgive_crash()


@contextlib.contextmanager
def stopped_at_the_end(*nodes: Node) -> Iterator[None]:
    try:
        yield
    finally:
        for node in nodes:
            node.forgive_crash()
            node.stop("immediate")


def write_on(node: Node, ledger: Ledger) -> int:
    with node.connect() as connection:
        return ledger.write(connection)


def assert_refused(node: Node, ledger: Ledger, message: str) -> None:
    """Neither reads nor writes of this server reach the workers."""
    with node.connect() as connection:
        connection.execute("SET synchronous_commit = local")
        for statement in ("SELECT count(*) FROM journal", "INSERT INTO journal VALUES (1, -1)"):
            with pytest.raises(psycopg.Error, match=message) as caught:
                connection.execute(statement)
            assert caught.value.sqlstate == "55000"


def test_a_restarted_coordinator_keeps_its_epoch(ledger: Ledger) -> None:
    coordinator = ledger.cluster.coordinator
    epoch = coordinator.value(EPOCH)
    coordinator.kill()
    coordinator.start()
    coordinator.disconnect()
    write_on(coordinator, ledger)
    assert coordinator.value(EPOCH) == epoch
    coordinator.forgive_crash()


def test_a_promoted_replica_works_at_once_and_the_living_old_one_no_more(ledger: Ledger) -> None:
    cluster = ledger.cluster
    old = cluster.coordinator
    failover = Failover(cluster)
    first, second = ledger.keys
    epoch = old.value(EPOCH)
    write_on(old, ledger)
    with stopped_at_the_end(old), old.connect() as open_transaction, old.connect() as idle:
        idle.execute("SELECT count(*) FROM journal")
        open_transaction.execute("BEGIN")
        open_transaction.execute(f"INSERT INTO journal VALUES ({first}, -7), ({second}, -7)")

        failover.promote()
        begin = time.monotonic()
        write_on(cluster.coordinator, ledger)
        print(f"first acknowledged write {time.monotonic() - begin:.2f} s after the promotion")
        assert cluster.coordinator.value(EPOCH) == epoch + 1
        assert {worker.value(WORKER_EPOCH) for worker in cluster.workers} == {epoch + 1}

        with pytest.raises(psycopg.Error):
            open_transaction.execute("COMMIT")
        with pytest.raises(psycopg.Error):
            idle.execute("INSERT INTO journal VALUES (1, -8)")
        assert_refused(old, ledger, "outdated")
        write_on(cluster.coordinator, ledger)
        ledger.settle()
        assert min(ledger.check()) > 0
        assert cluster.coordinator.value("SELECT count(*) FROM journal WHERE n < 0") == 0


def test_a_replica_that_is_promoted_before_it_is_marked_takes_over(ledger: Ledger) -> None:
    """It may confirm commits at once; its process looks only now and then whether WAL comes."""
    cluster = ledger.cluster
    failover = Failover(cluster)
    standby_mark(failover.standby).unlink()
    write_on(cluster.coordinator, ledger)
    failover.take_over()
    write_on(cluster.coordinator, ledger)
    ledger.settle()
    ledger.check()


def test_what_the_old_coordinator_decided_alone_is_rolled_back_everywhere(ledger: Ledger) -> None:
    """Its commit waits for the replica, which is promoted without having heard of it."""
    cluster = ledger.cluster
    old = cluster.coordinator
    failover = Failover(cluster)
    standby = failover.standby
    write_on(old, ledger)
    with stopped_at_the_end(old), old.connect() as connection, old.connect() as watcher:
        standby.execute("ALTER SYSTEM SET primary_conninfo = ''")
        standby.execute("SELECT pg_reload_conf()")
        for _ in wait_until("the replica hears nothing any more"):
            if not watcher.execute("SELECT 1 FROM pg_stat_replication").fetchall():
                break
        pid = connection.info.backend_pid
        errors: list[psycopg.Error] = []
        lost = ledger.next()

        def commit() -> None:
            try:
                ledger.write(connection, lost)
                ledger.acknowledged.remove(lost)  # with a warning: the wait was cancelled
            except psycopg.Error as error:
                errors.append(error)

        thread = threading.Thread(target=commit)
        thread.start()
        waits = "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = %s"
        for _ in wait_until("the commit waits for the replica"):
            if watcher.execute(waits, (pid,)).fetchone() == (True,):
                break
        failover.promote()
        write_on(cluster.coordinator, ledger)
        watcher.execute("SELECT pg_cancel_backend(%s)", (pid,))
        thread.join(30)
        assert not thread.is_alive()
        ledger.settle()
        assert lost not in ledger.check()


def test_a_dead_coordinator_that_comes_back_is_refused(ledger: Ledger) -> None:
    cluster = ledger.cluster
    old = cluster.coordinator
    failover = Failover(cluster)
    old.kill()
    failover.promote()
    write_on(cluster.coordinator, ledger)
    with stopped_at_the_end(old):
        old.start()
        old.disconnect()
        assert_refused(old, ledger, "outdated")
        time.sleep(1.5)  # its resolver looks at the workers, and is refused, too
        write_on(cluster.coordinator, ledger)
        ledger.settle()
        ledger.check()


def test_a_worker_that_was_down_hears_of_the_new_coordinator_first(ledger: Ledger) -> None:
    cluster = ledger.cluster
    old = cluster.coordinator
    failover = Failover(cluster)
    absent = cluster.workers[1]
    absent.stop()
    with stopped_at_the_end(old):
        failover.promote()
        with cluster.coordinator.connect() as connection:
            connection.execute(f"INSERT INTO journal VALUES ({ledger.keys[0]}, -1)")
            connection.execute("DELETE FROM journal WHERE id = %s", (ledger.keys[0],))
        absent.start()
        absent.disconnect()
        for _ in wait_until("both workers are written again"):
            with contextlib.suppress(psycopg.Error):
                write_on(cluster.coordinator, ledger)
                break
        assert_refused(old, ledger, "outdated")
        assert absent.value(WORKER_EPOCH) == cluster.coordinator.value(EPOCH)


def recover_to_a_point(node: Node) -> None:
    node.settings |= {
        "restore_command": "'false'",
        "recovery_target": "'immediate'",
        "recovery_target_action": "'promote'",
    }
    (node.data / "recovery.signal").touch()
    (node.data / "recovery.signal").chmod(0o644)


@pytest.mark.parametrize("recovered", [False, True], ids=["started", "recovered"])
def test_a_copy_gets_no_workers_until_it_is_told(ledger: Ledger, recovered: bool) -> None:
    """A base backup is started while the coordinator lives, or while it is down."""
    cluster = ledger.cluster
    original = cluster.coordinator
    write_on(original, ledger)
    epoch = original.value(EPOCH)
    copy = copy_coordinator(cluster, "copy")
    if recovered:
        recover_to_a_point(copy)
    with stopped_at_the_end(copy, original):
        copy.start()
        for _ in wait_until("the copy can be written"):
            if not copy.value("SELECT pg_is_in_recovery()"):
                break
        assert copy.value("SELECT timeline_id FROM pg_control_checkpoint()") == 1 + recovered
        assert_refused(copy, ledger, "does not have the workers")
        for _ in wait_until("the copy says that it is one"):
            if copy.value("SELECT timeline FROM strata.cluster") is None:
                break
        write_on(original, ledger)

        original.stop()
        copy.restart()
        copy.disconnect()
        assert_refused(copy, ledger, "does not have the workers")
        assert {worker.value(WORKER_EPOCH) for worker in cluster.workers} == {epoch}
        original.start()
        original.disconnect()
        write_on(original, ledger)

        # the administrator's word
        assert copy.value("SELECT strata.take_over()") == epoch + 1
        for _ in wait_until("the copy is the coordinator"):
            with contextlib.suppress(psycopg.Error):
                copy.query("SELECT count(*) FROM journal")
                break
        assert_refused(original, ledger, "outdated")
        assert original.value("SELECT strata.take_over()") == epoch + 2
        for _ in wait_until("the original is the coordinator again"):
            with contextlib.suppress(psycopg.Error):
                write_on(original, ledger)
                break
        assert_refused(copy, ledger, "outdated")
        ledger.settle()
        ledger.check()


def test_a_standby_of_a_copy_gets_no_workers_either(ledger: Ledger) -> None:
    cluster = ledger.cluster
    original = cluster.coordinator
    copy = copy_coordinator(cluster, "copy")
    with stopped_at_the_end(copy):
        copy.start()
        for _ in wait_until("the copy says that it is one"):
            if copy.value("SELECT timeline FROM strata.cluster") is None:
                break
        cluster.coordinator = copy
        try:
            failover = Failover(cluster)
            with stopped_at_the_end(failover.standby):
                failover.promote()
                assert_refused(failover.standby, ledger, "does not have the workers")
        finally:
            cluster.coordinator = original
    write_on(original, ledger)


def test_a_copy_that_never_reached_a_primary_gets_no_workers(ledger: Ledger) -> None:
    """It tries all the time, as a standby that is restored elsewhere does; nobody answers."""
    cluster = ledger.cluster
    copy = copy_coordinator(cluster, "copy")
    become_standby(copy, cluster.coordinator)
    with socket.create_server(("127.0.0.1", 0)) as mute, stopped_at_the_end(copy):
        conninfo = f"host=127.0.0.1 port={mute.getsockname()[1]}"
        copy.settings["primary_conninfo"] = f"'{conninfo}'"
        copy.start()
        time.sleep(1.5)  # the process of standbys looks at least three times
        promote(copy)
        assert_refused(copy, ledger, "does not have the workers")
    write_on(cluster.coordinator, ledger)


def is_in_use(worker: Node) -> bool:
    """Does the worker refuse to leave its cluster because of the cluster's sessions?"""
    try:
        with worker.connect() as session, session.transaction(force_rollback=True):
            session.execute("SELECT strata_worker.leave_cluster()")
    except psycopg.errors.ObjectInUse as error:
        return "still uses" in str(error)
    return False


def test_databases_of_one_template_are_clusters_of_their_own(ledger: Ledger) -> None:
    cluster = ledger.cluster
    coordinator = cluster.coordinator
    identity = "SELECT id::text FROM strata.cluster"
    guest = cluster.new_node("guest")
    add = "SELECT strata.add_worker('guest', %s)"
    coordinator.execute("CREATE DATABASE base")
    with coordinator.connect("base") as session:
        session.execute("CREATE EXTENSION strata CASCADE")
        ids = [session.execute(identity).fetchone()[0]]
    for name in ("one", "two"):
        coordinator.execute(f"CREATE DATABASE {name} TEMPLATE base")
    try:
        conninfo = (guest.conninfo(user=None),)
        with coordinator.connect("one") as session:
            session.execute(add, conninfo)  # at once
            for _ in wait_until("its heartbeat is there"):
                status = session.execute("SELECT status FROM strata.workers").fetchone()
                if status == ("up",):
                    break
            ids.append(session.execute(identity).fetchone()[0])
        with coordinator.connect("two") as session:
            with pytest.raises(psycopg.Error, match="belongs to another cluster") as caught:
                session.execute(add, conninfo)
            assert "leave_cluster()" in caught.value.diag.message_hint
            ids.append(session.execute(identity).fetchone()[0])
        assert len(set(ids)) == 3
        for _ in wait_until("it is told once more, if it was silent for a while"):
            if is_in_use(guest):
                break

        # a renamed one stays what it is; a dropped one leaves its worker to itself
        coordinator.execute("ALTER DATABASE one RENAME TO three")
        with coordinator.connect("three") as session:
            assert session.execute(identity).fetchone()[0] == ids[1]
            session.execute("SELECT * FROM strata.run_command_on_workers('SELECT 1')")
        coordinator.execute("DROP DATABASE three")
        for _ in wait_until("its sessions have gone"):
            with contextlib.suppress(psycopg.errors.ObjectInUse):
                guest.execute("SELECT strata_worker.leave_cluster()")
                break
        with coordinator.connect("two") as session:
            session.execute(add, conninfo)
    finally:
        guest.stop()


def test_a_copy_of_a_database_can_give_up_the_workers_of_the_original(ledger: Ledger) -> None:
    coordinator = ledger.cluster.coordinator
    identity = "SELECT id::text FROM strata.cluster"
    write_on(coordinator, ledger)
    coordinator.disconnect()
    with coordinator.connect("postgres") as session:
        session.execute("CREATE DATABASE copy TEMPLATE strata")
    own = coordinator.value(identity)
    with coordinator.connect("copy") as session:
        session.execute("SET search_path = public")
        with pytest.raises(psycopg.Error, match="does not have the workers"):
            session.execute("SELECT count(*) FROM journal")
        assert session.execute(identity).fetchone() == (own,)
        for worker in ledger.cluster.workers:
            session.execute("SELECT strata.remove_worker(%s, lost => true)", (worker.name,))
        with pytest.raises(psycopg.Error, match="was lost with worker"):
            session.execute("SELECT count(*) FROM journal")
        assert session.execute("SELECT strata.take_over()").fetchone() == (1,)
        assert session.execute(identity).fetchone() != (own,)
    write_on(coordinator, ledger)
    ledger.settle()
    ledger.check()
