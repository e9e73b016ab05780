"""The background processes: there when the extension is, out of the way when they must be."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.cluster import Cluster, Node
from tests.fixtures import new_root
from tests.waiting import patience, wait_until


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    with Cluster(new_root(), workers=1) as cluster:
        yield cluster


@pytest.fixture
def coordinator(made: Cluster) -> Iterator[Node]:
    yield made.coordinator
    made.start()


def services(node: Node, database: str = "strata") -> list[str]:
    return [
        row[0]
        for row in node.query(
            "SELECT backend_type FROM pg_stat_activity WHERE backend_type LIKE 'strata %%'"
            " AND (datname IS NULL OR datname = %s) ORDER BY 1",
            (database,),
        )
    ]


def wait_for_services(node: Node, database: str = "strata", timeout: float = 10) -> None:
    for _ in wait_until(f"services run in {database}", timeout=timeout):
        if "strata maintenance" in services(node, database):
            return


def test_processes_start_with_the_extension_and_after_a_restart(coordinator: Node) -> None:
    wait_for_services(coordinator)
    assert services(coordinator).count("strata launcher") == 1
    assert services(coordinator).count("strata maintenance") == 1
    coordinator.restart()
    wait_for_services(coordinator)
    assert services(coordinator).count("strata maintenance") == 1


def test_databases_without_the_extension_have_no_process(coordinator: Node) -> None:
    coordinator.execute("CREATE DATABASE without")
    for _ in wait_until("the launcher has looked"):
        if services(coordinator, "without") == ["strata launcher"]:
            break
    coordinator.execute("DROP DATABASE without")


def test_create_and_drop_extension_bring_and_remove_the_processes(coordinator: Node) -> None:
    coordinator.execute("CREATE DATABASE second")
    try:
        with coordinator.connect("second") as connection:
            connection.execute("CREATE EXTENSION strata CASCADE")
            wait_for_services(coordinator, "second", timeout=5)
            with connection.transaction(force_rollback=True):
                connection.execute("DROP EXTENSION strata")
                assert services(coordinator, "second") == ["strata launcher"]
            wait_for_services(coordinator, "second")
            connection.execute("DROP EXTENSION strata")
            assert services(coordinator, "second") == ["strata launcher"]
    finally:
        coordinator.execute("DROP DATABASE second")


def test_commands_that_want_a_database_for_themselves_get_it(coordinator: Node) -> None:
    coordinator.execute("CREATE DATABASE one")
    with coordinator.connect("one") as connection:
        connection.execute("CREATE EXTENSION strata CASCADE")
    wait_for_services(coordinator, "one")
    for command, name in (
        ("CREATE DATABASE two TEMPLATE one", "two"),
        ("ALTER DATABASE one RENAME TO three", "three"),
        ("DROP DATABASE two", None),
        ("DROP DATABASE three", None),
    ):
        begin = time.monotonic()
        coordinator.execute(command)
        assert time.monotonic() - begin < patience(4), command
        if name is not None:
            wait_for_services(coordinator, name)


def test_a_command_that_fails_leaves_the_processes_running(coordinator: Node) -> None:
    coordinator.execute("CREATE DATABASE kept")
    with coordinator.connect("kept") as connection:
        connection.execute("CREATE EXTENSION strata CASCADE")
        wait_for_services(coordinator, "kept")
        with pytest.raises(psycopg.errors.ObjectInUse):
            coordinator.execute("DROP DATABASE kept")
        wait_for_services(coordinator, "kept")
    coordinator.execute("DROP DATABASE kept")


def test_terminated_processes_come_back(coordinator: Node) -> None:
    wait_for_services(coordinator)
    for kind in ("strata maintenance", "strata launcher"):
        query = "SELECT pid FROM pg_stat_activity WHERE backend_type = %s"
        (before,) = coordinator.query(query, (kind,))
        coordinator.query("SELECT pg_terminate_backend(%s)", before)
        for _ in wait_until(f"{kind} is back"):
            after = coordinator.query(query, (kind,))
            if after and after[0] != before:
                break


def test_a_crash_restart_brings_the_processes_back(coordinator: Node) -> None:
    wait_for_services(coordinator)
    with coordinator.connect() as connection:
        coordinator.kill_process(connection.info.backend_pid)
    for _ in wait_until("the server has recovered"):
        try:
            if "strata maintenance" in services(coordinator):
                break
        except psycopg.Error:
            coordinator.disconnect()
    coordinator.forgive_crash()


def test_a_fast_shutdown_is_fast(coordinator: Node) -> None:
    wait_for_services(coordinator)
    begin = time.monotonic()
    coordinator.stop("fast")
    assert time.monotonic() - begin < patience(5)


def test_a_shortage_of_processes_is_told_once(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(workers=0)
    cluster.coordinator.settings["max_worker_processes"] = "3"  # launcher of core, two of ours
    cluster.coordinator.restart()
    for _ in wait_until("the shortage is told"):
        if "Raise max_worker_processes" in cluster.coordinator.log_text():
            break
    assert cluster.coordinator.value("SELECT 1") == 1
    assert cluster.coordinator.log_text().count('could not start the process "strata') == 1
