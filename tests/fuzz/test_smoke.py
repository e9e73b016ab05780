"""Whatever somebody calls or creates, no server crashes, and indexes change no answer (fixed seeds)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster, Node
from tests.fixtures import new_root
from tests.fuzz import functions, indexes

CALLS = 3
SEED = 27


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """Of its own: superusers' calls may do to it what they say."""
    with Cluster(new_root(), workers=2, plain=True, assertions=True) as cluster:
        cluster.create_role(functions.ROLE)
        yield cluster


def check_alive(node: Node) -> None:
    assert node.crashed() == []
    assert node.query("SELECT 1") == [(1,)]


@pytest.mark.parametrize("kind", ["coordinator", "worker"])
def test_no_call_of_a_function_crashes_a_server(own_cluster: Cluster, kind: str) -> None:
    node = own_cluster.coordinator if kind == "coordinator" else own_cluster.workers[0]
    method = "distributed" if kind == "coordinator" else "columnar"
    fuzzer = functions.FunctionFuzzer(node, SEED, method)
    fuzzer.create()
    fuzzer.run_all(CALLS)
    assert fuzzer.succeeded > fuzzer.calls / 3  # hostile arguments, but calls
    fuzzer.drop()
    for other in own_cluster.nodes:
        check_alive(other)


@pytest.mark.parametrize("kind", ["worker", "plain"])
def test_no_index_crashes_a_server_or_changes_an_answer(own_cluster: Cluster, kind: str) -> None:
    node = own_cluster.plain if kind == "plain" else own_cluster.workers[0]
    with node.connect() as session:
        fuzzer = indexes.IndexFuzzer(session, SEED)
        fuzzer.create()
        fuzzer.run(share=0.2)
        assert fuzzer.indexes > 40
        fuzzer.drop()
    check_alive(node)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_many_more_calls_and_indexes(own_cluster: Cluster) -> None:
    for kind in ("coordinator", "worker"):
        node = own_cluster.coordinator if kind == "coordinator" else own_cluster.workers[0]
        fuzzer = functions.FunctionFuzzer(
            node, SEED + 1, {"worker": "columnar"}.get(kind, "distributed")
        )
        fuzzer.create()
        fuzzer.run_all(100)
        fuzzer.drop()
        check_alive(node)
    for node in (own_cluster.workers[0], own_cluster.plain):
        with node.connect() as session:
            fuzzer = indexes.IndexFuzzer(session, SEED + 1)
            fuzzer.create()
            fuzzer.run()
            fuzzer.drop()
        check_alive(node)
