"""Workers stand still, or their wires lose every packet, at a step of a move, for a moment or for long."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest

from tests.cluster import Cluster, Node
from tests.failover import Proxy, behind_proxy, frozen
from tests.move.interrupted import STEPS, bring_back, check_all, choose_move, interrupt
from tests.move.test_move_beside import orphans
from tests.move.test_move_kill import make_groups

# from the first of these on the move may have happened although a worker does not answer
DECIDED = ("prepare_sent_0", "prepared_0", "decision_written", "committed")


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    with make_groups() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def proxies(made: Cluster) -> Iterator[dict[Node, Proxy]]:
    """The wires go through these."""
    first, second = made.workers
    with behind_proxy(made, first) as one, behind_proxy(made, second) as two:
        yield {first: one, second: two}


@pytest.fixture
def cluster(made: Cluster, proxies: dict[Node, Proxy]) -> Iterator[Cluster]:
    yield made
    for proxy in proxies.values():
        proxy.dead.clear()
    bring_back(made)
    made.coordinator.execute("ALTER SYSTEM RESET strata.worker_timeout")
    made.coordinator.execute("SELECT pg_reload_conf()")
    for node in made.nodes:
        node.disconnect()


@contextlib.contextmanager
def cut_off(proxy: Proxy) -> Iterator[None]:
    proxy.dead.set()
    try:
        yield
    finally:
        proxy.dead.clear()


@pytest.mark.sample(13)
@pytest.mark.parametrize(("table", "step"), STEPS)
@pytest.mark.parametrize("how", ["frozen", "cut off"])
@pytest.mark.parametrize("whom", ["source", "target", "both"])
@pytest.mark.parametrize("long", [False, True])
def test_workers_are_silent(
    cluster: Cluster,
    proxies: dict[Node, Proxy],
    table: str,
    step: str,
    how: str,
    whom: str,
    long: bool,
) -> None:
    """A move outlives a moment of silence, and ends with an error when it lasts, unless it was decided."""
    source, target = cluster.workers
    move = choose_move(cluster, table, source)
    silent = {"source": [source], "target": [target], "both": [source, target]}[whom]
    before = {worker: orphans(worker) for worker in cluster.workers}
    timeout = "1s" if long else "30s"

    def be_silent(go_on: Callable[[], None], wait_for_end: Callable[[], None]) -> None:
        with contextlib.ExitStack() as stack:
            for worker in silent:
                stack.enter_context(frozen(worker) if how == "frozen" else cut_off(proxies[worker]))
            go_on()
            if long:
                wait_for_end()
            else:
                time.sleep(0.3)

    error, rows = interrupt(
        cluster,
        move,
        step,
        be_silent,
        f"SET strata.worker_timeout = '{timeout}'; SET strata.connect_timeout = '1s'",
    )
    bring_back(cluster)
    check_all(cluster, move, source, rows)
    if not long:
        assert error is None
    elif step not in DECIDED:
        assert error is not None
        assert error.sqlstate == "08006"
    for worker in cluster.workers:
        assert orphans(worker) == before[worker]


@pytest.mark.sample(7)
@pytest.mark.parametrize(("table", "step"), STEPS)
def test_what_a_move_has_left_on_workers_ends(
    cluster: Cluster, proxies: dict[Node, Proxy], table: str, step: str
) -> None:
    """The workers never hear of the end of their wires, which lost every packet for a while."""
    node = cluster.coordinator
    source = cluster.workers[0]
    move = choose_move(cluster, table, source)
    before = {worker: orphans(worker) for worker in cluster.workers}

    def be_forgotten(go_on: Callable[[], None], wait_for_end: Callable[[], None]) -> None:
        for proxy in proxies.values():
            proxy.dead.set()
        go_on()
        wait_for_end()
        node.disconnect()
        for proxy in proxies.values():
            proxy.forget()

    # of services, too, whose wires nobody hears any more
    node.execute("ALTER SYSTEM SET strata.worker_timeout = '1s'")
    node.execute("SELECT pg_reload_conf()")
    error, rows = interrupt(cluster, move, step, be_forgotten, "SET strata.connect_timeout = '1s'")
    node.execute("ALTER SYSTEM RESET strata.worker_timeout")
    node.execute("SELECT pg_reload_conf()")
    bring_back(cluster)
    check_all(cluster, move, source, rows)
    if step not in DECIDED:
        assert error is not None
        assert error.sqlstate == "08006"
    for worker in cluster.workers:
        assert orphans(worker) == before[worker]
