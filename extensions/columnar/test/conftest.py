"""Servers of the columnar tests: one plain PostgreSQL with the extension for the whole session.

The library is not preloaded: it has to work when the first columnar table loads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from extensions.columnar.test.servers import make_node
from extensions.columnar.test.twins import Twins, open_twins
from tests.cluster import Cluster, Node
from tests.fixtures import new_root


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    """A plain PostgreSQL in whose database the extension exists."""
    with Cluster(new_root(), workers=0, extension=False) as made:
        yield make_node(made)


@pytest.fixture
def schema_name(request: pytest.FixtureRequest) -> str:
    """A name for what the test makes on the server, from its own."""
    return re.sub(r"\W+", "_", request.node.name)[:45].lower().strip("_")


@pytest.fixture
def twins(node: Node, schema_name: str) -> Iterator[Twins]:
    """The two sides, empty; after the test the columnar tables it left are verified."""
    with open_twins(node, schema_name) as made:
        yield made


@pytest.fixture
def make_server() -> Iterator[Callable[..., Node]]:
    """A function that makes a server of the test's own, to be killed, copied or upgraded."""
    made: list[Cluster] = []

    def make(**settings: str) -> Node:
        cluster = Cluster(new_root(), workers=0, extension=False, durable=True)
        made.append(cluster)
        # SIGKILL loses nothing that was written to the kernel, but may tear a page
        cluster.coordinator.settings |= {"fsync": "off", **settings}
        cluster.create()
        return make_node(cluster)

    yield make
    for old in made:
        old.destroy()
