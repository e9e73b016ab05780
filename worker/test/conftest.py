"""A plain server with strata_worker in a database of its own, and its few kinds of sessions."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster, Node
from worker.test.alone import DATABASE, OWNER, ROLE


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Iterator[Node]:
    """The plain server, with strata_worker in a database of its own."""
    cluster.create_role(ROLE)
    cluster.create_role(OWNER)
    cluster.plain.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
    cluster.plain.execute(f"CREATE DATABASE {DATABASE}")
    with cluster.plain.connect(DATABASE) as connection:
        connection.execute("CREATE EXTENSION strata_worker CASCADE")
    yield cluster.plain
    cluster.plain.execute(f"DROP DATABASE {DATABASE} (FORCE)")
    for other in cluster.nodes:
        other.execute(f"DROP OWNED BY {ROLE}, {OWNER}")


@pytest.fixture
def session(node: Node) -> Iterator[psycopg.Connection]:
    """A superuser's transaction that is rolled back."""
    with node.connect(DATABASE) as connection:
        with connection.transaction(force_rollback=True):
            yield connection


@pytest.fixture
def guest(node: Node) -> Iterator[psycopg.Connection]:
    with node.connect(DATABASE, user=ROLE) as connection:
        yield connection


@pytest.fixture
def mallory(node: Node) -> Iterator[psycopg.Connection]:
    """A session of an ordinary role with a schema of its own."""
    with node.connect(DATABASE) as administrator:
        administrator.execute(f"CREATE SCHEMA mallory AUTHORIZATION {OWNER}")
        with node.connect(DATABASE, user=OWNER) as connection:
            connection.execute("SET search_path = mallory, public")
            connection.execute("CREATE TABLE seen (who name)")
            yield connection
        administrator.execute("DROP SCHEMA mallory CASCADE")
