"""Clients of a cluster whose nodes are killed, restarted and stalled see nothing they would not see on one server.

Longer ones are made by hand: `python -m tests.history --seconds 3600`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster import Cluster
from tests.history.checker import check
from tests.history.model import COMMITTED
from tests.history.workload import CLERK, KEEPER, Faults, create_tables, record

SECONDS = 14


@pytest.mark.sample(2)
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("storage", ["heap", "columnar"])
def test_history_has_no_anomalies(
    make_cluster: Callable[..., Cluster], workers: int, storage: str, tmp_path
) -> None:
    cluster = make_cluster(workers=workers)
    for role in (KEEPER, CLERK):
        cluster.create_role(role)
    create_tables(cluster.coordinator, storage)
    faults = Faults(cluster, seed=workers)
    history, _ = record(cluster.coordinator, SECONDS, seed=workers, disturb=faults)
    anomalies = check(history)
    if anomalies:
        history.save(tmp_path / "history.json")
        pytest.fail(f"saved in {tmp_path}:\n" + "\n".join(str(each) for each in anomalies))
    assert sum(t.status == COMMITTED for t in history.transactions) > 100
    assert faults.done
