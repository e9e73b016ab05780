"""Many clients at once: no error that a single PostgreSQL would not give, nothing lost, no leak."""

from __future__ import annotations

import contextlib
import random
import time

import psycopg
import pytest

from tests.cluster import Cluster
from tests.failover import frozen
from tests.load import Load, process_footprint
from tests.waiting import wait_until

MEGABYTE = 1024 * 1024


def test_sixteen_clients_see_no_error_and_leave_nothing_behind(
    cluster: Cluster, schema: str
) -> None:
    load = Load(cluster, schema, clients=16)
    load.start()
    load.wait(8)
    load.finish()
    load.check()
    load.check_nothing_is_left()
    assert load.counts["transfer"] > 0


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_sixty_four_clients_for_half_an_hour(make_cluster) -> None:
    cluster = make_cluster(workers=3)
    cluster.coordinator.execute("CREATE SCHEMA load")
    load = Load(cluster, "load", clients=64)
    load.weights["reconnect"] = load.weights["vanish"] = 0.05
    load.start()
    load.wait(30 * 60)
    load.finish()
    load.check()
    load.check_nothing_is_left()


def test_a_session_of_many_statements_needs_no_more_memory_or_files(
    cluster: Cluster, schema: str
) -> None:
    """One client alone, whose backends here and on the workers are weighed after a while."""
    load = Load(cluster, schema, clients=1)
    (client,) = load.clients
    for name in ("cancelled", "timed_out", "vanish", "reconnect", "change_schema"):
        del load.weights[name]
    client.open()
    actions = [getattr(client, name) for name in load.weights]

    def run(rounds: int) -> list[tuple[int, int]]:
        for _ in range(rounds):
            for action in actions:
                client.perform(action)
        assert not load.failures, load.failures
        pids = [client.connection.info.backend_pid]
        pids += [
            worker.value(
                "SELECT max(pid) FROM pg_stat_activity WHERE application_name = 'strata'"
                " AND backend_type = 'client backend'"
            )
            for worker in cluster.workers
        ]
        return [process_footprint(pid) for pid in pids]

    before = run(20)
    after = run(40)
    client.close()
    for (memory, files), (later_memory, later_files) in zip(before, after, strict=True):
        assert later_memory < memory + 3 * MEGABYTE
        assert later_files <= files


def test_failed_connections_leave_no_files_open(cluster: Cluster, schema: str) -> None:
    """A worker with two hosts, none of which answers as it should."""
    coordinator = cluster.coordinator
    coordinator.execute(
        "CREATE TABLE t (id integer PRIMARY KEY); SELECT strata.create_distributed_table('t', 'id')"
    )
    name, conninfo = coordinator.query("SELECT name, conninfo FROM strata.worker ORDER BY 1")[0]
    with coordinator.connect() as session:
        session.execute(f"SET search_path = {schema}")
        pid = session.info.backend_pid
        session.execute("SELECT count(*) FROM t")
        try:
            coordinator.execute(
                "UPDATE strata.worker SET conninfo = 'host=127.0.0.1,127.0.0.1 port=1,2'"
                " WHERE name = %s",
                (name,),
            )
            footprints = []
            for _ in range(60):
                with pytest.raises(psycopg.OperationalError, match=name):
                    session.execute("SELECT count(*) FROM t")
                footprints.append(process_footprint(pid))
        finally:
            coordinator.execute(
                "UPDATE strata.worker SET conninfo = %s WHERE name = %s", (conninfo, name)
            )
        assert footprints[-1][1] <= footprints[5][1]
        assert footprints[-1][0] < footprints[5][0] + MEGABYTE
        assert session.execute("SELECT count(*) FROM t").fetchall() == [(0,)]


# ---- chaos -----------------------------------------------------------------------------------------

# What a client may see while servers die: lost connections, shutdown, start, cancelled by us.
CHAOS = frozenset(
    {"08000", "08001", "08003", "08006", "08007", "57014", "57P01", "57P02", "57P03", "25P02"}
    | {"40000", "58000", "55000"}
)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_invariants_hold_while_workers_and_sessions_die(make_cluster) -> None:
    cluster = make_cluster(workers=2, durable=True)
    cluster.coordinator.execute("CREATE SCHEMA load")
    load = Load(cluster, "load", clients=16, tolerated=CHAOS)
    dice = random.Random(5)
    load.start()
    end = time.monotonic() + 10 * 60
    while time.monotonic() < end and not load.stop.is_set():
        load.wait(dice.uniform(0.5, 4))
        worker = dice.choice(cluster.workers)
        match dice.randint(1, 5):
            case 1:
                worker.kill()
                load.wait(dice.uniform(0, 2))
                worker.start()
            case 2:
                worker.restart(dice.choice(["fast", "immediate"]))
            case 3:
                with frozen(worker):
                    load.wait(dice.uniform(0.5, 6))
            case 4:
                cluster.coordinator.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
                    " ORDER BY random() LIMIT 4"
                )
            case 5:
                with contextlib.suppress(psycopg.Error):
                    worker.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE application_name = 'strata' ORDER BY random() LIMIT 4"
                    )
        for node in cluster.nodes:
            node.forgive_crash()
    load.finish()
    for worker in cluster.workers:
        for _ in wait_until("nothing is in doubt", timeout=90):
            if worker.value("SELECT count(*) FROM pg_prepared_xacts") == 0:
                break
    load.check()
    load.check_nothing_is_left()
