"""Every interleaving of the specs does on the cluster what it does on one PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.isolation.player import play_spec

SPECS = sorted(Path(__file__).parent.glob("*.spec"))


@pytest.fixture(scope="module")
def quick(cluster: Cluster) -> Iterator[Cluster]:
    """Deadlocks over several nodes are found soon."""
    cluster.coordinator.execute("ALTER SYSTEM SET deadlock_timeout = '300ms'")
    cluster.coordinator.execute("SELECT pg_reload_conf()")
    yield cluster
    cluster.coordinator.execute("ALTER SYSTEM RESET deadlock_timeout")
    cluster.coordinator.execute("SELECT pg_reload_conf()")


def test_there_are_specs() -> None:
    assert len(SPECS) >= 8


@pytest.mark.sample(2)
@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_sessions_meet_as_on_one_postgresql(quick: Cluster, path: Path) -> None:
    assert play_spec(path, quick.coordinator, quick.plain) > 0
