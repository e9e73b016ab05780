"""A restore point is one state of all nodes: each transaction is in it on all of them or on none."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import psycopg
import pytest

from tests.cluster import Node
from tests.failover import wait_for_status
from tests.installation import find_binaries, give_to_server, make_directory, run_as_server
from tests.transaction.bank import (
    TOTAL,
    Bank,
    run_together,
    sessions_of,
    stopped,
    transfer,
    wait_for_pin,
)
from tests.waiting import wait_until


def test_restore_points_are_made_on_all_nodes_while_transactions_commit(bank: Bank) -> None:
    names = {"coordinator", *(worker.name for worker in bank.cluster.workers)}

    def make_point(connection: psycopg.Connection) -> None:
        rows = connection.execute("SELECT * FROM strata.create_restore_point('here')").fetchall()
        assert {name for name, _ in rows} == names
        assert all(lsn != "0/0" for _, lsn in rows)

    run_together(bank, [transfer(bank, n) for n in range(4)] + [make_point], 1)
    assert bank.value("SELECT sum(v) FROM account") == TOTAL


def test_no_transaction_decides_while_a_restore_point_is_made(bank: Bank) -> None:
    """A worker that does not make its point keeps a two-phase commit from deciding."""
    worker = bank.cluster.workers[0]
    with bank.session() as maker, bank.session() as writer, ThreadPoolExecutor(2) as pool:
        (held,) = sessions_of(maker, [worker])
        with stopped(worker, held):
            making = pool.submit(
                lambda: maker.execute("SELECT strata.create_restore_point('x')").fetchall()
            )
            for _ in wait_until("the other worker has made its point"):
                if bank.cluster.workers[1].query(
                    "SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction'"
                    " AND query LIKE '%pg_create_restore_point%'"
                ):
                    break
            writing = pool.submit(lambda: transfer(bank, 0)(writer))
            for _ in wait_until("the transfer is prepared"):
                if worker.query("SELECT gid FROM pg_prepared_xacts"):
                    break
            decisions = "SELECT count(*) FROM strata.distributed_transaction"
            before = bank.value(decisions)
            with pytest.raises(TimeoutError):
                writing.result(timeout=0.5)
            assert bank.value(decisions) == before
        assert len(making.result(timeout=20)) == 1 + len(bank.cluster.workers)
        writing.result(timeout=20)
    assert bank.value("SELECT sum(v) FROM account") == TOTAL


def begin_archiving(node: Node) -> None:
    """Archive the node's WAL, and take a base backup of it."""
    archive = node.root / f"{node.name}.archive"
    make_directory(archive)
    node.settings |= {"archive_mode": "on", "archive_command": f"'cp %p {archive}/%f'"}
    node.restart()
    command = [find_binaries() / "pg_basebackup", "-D", node.root / f"{node.name}.base"]
    command += ["-X", "stream", "-c", "fast", "-d", node.conninfo()]
    command += node.tablespace_mapping(f"{node.name}.base")
    result = run_as_server(command, capture_output=True)
    assert result.returncode == 0, result.stderr


def recover_to(node: Node, point: str) -> None:
    """Replace the node by its base backup, recovered to a restore point with the archived WAL."""
    last = node.value("SELECT pg_walfile_name(pg_switch_wal())")
    archive = node.root / f"{node.name}.archive"
    for _ in wait_until("the WAL is archived"):
        if node.value("SELECT last_archived_wal FROM pg_stat_archiver") >= last:
            break
    node.stop("immediate")
    shutil.rmtree(node.data)
    (node.root / f"{node.name}.base").rename(node.data)
    del node.settings["archive_mode"], node.settings["archive_command"]
    node.settings |= {
        "restore_command": f"'cp {archive}/%f %p'",
        "recovery_target_name": f"'{point}'",
        "recovery_target_action": "promote",
    }
    signal_file = node.data / "recovery.signal"
    signal_file.touch()
    give_to_server(signal_file, 0o600)
    node.start()
    for _ in wait_until("recovery ends at the point"):
        if not node.value("SELECT pg_is_in_recovery()"):
            break


def moved_by(bank: Bank, writer: int) -> tuple[int, int, int]:
    """How often a writer moved money, as one worker, the other one and the coordinator say."""
    first, second = bank.keys[0][writer], bank.keys[1][writer]
    with bank.session() as connection:
        moved = dict(
            connection.execute(
                "SELECT id, moved FROM account WHERE id = ANY(%s)", ([first, second],)
            ).fetchall()
        )
        local = connection.execute(
            "SELECT moved FROM ledger WHERE writer = %s", (writer,)
        ).fetchone()
    return moved[first], moved[second], local[0]


def decided_by(bank: Bank, writer: int) -> int:
    """The same as the coordinator alone says, which waits for no worker."""
    return bank.value(f"SELECT moved FROM ledger WHERE writer = {writer}")


def test_all_nodes_are_recovered_to_a_restore_point_without_half_transactions(
    make_cluster,
) -> None:
    """One transaction is prepared and undecided at the point, one decided and not committed on
    any worker, many others run."""
    cluster = make_cluster()
    coordinator, (near, far) = cluster.coordinator, cluster.workers
    for node in cluster.nodes:
        begin_archiving(node)
    # sessions connect anew to a worker that is up again
    for worker in cluster.workers:
        wait_for_status(cluster, worker.name, "up")
    coordinator.execute("CREATE SCHEMA bank")
    bank = Bank(cluster, "bank")
    extra = "UPDATE ledger SET moved = moved + 1 WHERE writer = {writer};"
    undecided, decided, running = 0, 1, range(2, 6)

    with (
        bank.session() as slow,
        bank.session() as reader,
        bank.session() as writer,
        ThreadPoolExecutor(4) as pool,
    ):
        slow_near, slow_far = sessions_of(slow, [near, far])
        (reader_far,) = sessions_of(reader, [far])
        coordinator.query("SELECT strata.create_restore_point('connected')")
        jobs = [transfer(bank, n, extra) for n in running]
        background = pool.submit(run_together, bank, jobs, 4)

        # everything of these transactions but their ends
        steps: list[str] = []
        transfer(bank, undecided, extra)(SimpleNamespace(execute=steps.append))
        transfer(bank, decided, extra)(SimpleNamespace(execute=steps.append))
        slow.execute(steps[0].removesuffix("COMMIT"))
        writer.execute(steps[1].removesuffix("COMMIT"))
        with stopped(far, slow_far):
            committing = pool.submit(slow.execute, "COMMIT")
            for _ in wait_until("it is prepared on the other worker"):
                if near.query(
                    "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND state = 'idle'"
                    " AND query LIKE '%%PREPARE TRANSACTION%%'",
                    (slow_near,),
                ):
                    break
            with stopped(far, reader_far):
                # who takes snapshots keeps a decided transaction from its workers
                reading = pool.submit(reader.execute, "SELECT sum(v) FROM account")
                wait_for_pin(near)
                deciding = pool.submit(writer.execute, "COMMIT")
                for _ in wait_until("it is decided", interval=0.01):
                    if decided_by(bank, decided) == 1:
                        break
                before = {n: decided_by(bank, n) for n in running}
                coordinator.query("SELECT strata.create_restore_point('x')")
                prepared = "SELECT count(*) FROM pg_prepared_xacts"
                assert near.value(prepared) >= 2
                assert far.value(prepared) >= 1
            reading.exception(timeout=20)
            deciding.result(timeout=20)
        committing.result(timeout=20)
        background.result(timeout=60)
        run_together(bank, jobs, 1)
        later = {n: decided_by(bank, n) for n in (undecided, decided, *running)}
        assert later[undecided] == later[decided] == 1

    for node in cluster.nodes:
        recover_to(node, "x")
    coordinator.query("SELECT strata.take_over()")  # else it is a copy, which gets no workers
    for _ in wait_until("nothing is prepared any more"):
        if not any(worker.value(prepared) for worker in cluster.workers):
            break
    assert moved_by(bank, undecided) == (0, 0, 0)
    assert moved_by(bank, decided) == (1, 1, 1)
    for n in running:
        near_moved, far_moved, local_moved = moved_by(bank, n)
        assert before[n] <= near_moved == far_moved == local_moved < later[n]
    assert bank.value("SELECT sum(v) FROM account") == TOTAL
    run_together(bank, [transfer(bank, n, extra) for n in running], 1)
    assert bank.value("SELECT sum(v) FROM account") == TOTAL
