"""A cluster, and a table of it with its twin, for tests of moves beside other work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.fixtures import new_root
from tests.move.moving import Table


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    with Cluster(new_root(), workers=2, plain=True, assertions=True) as cluster:
        yield cluster


@pytest.fixture
def table(made: Cluster) -> Iterator[Table]:
    table = Table(made)
    yield table
    table.forget("u", "t")
