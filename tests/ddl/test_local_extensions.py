"""Extensions that only the coordinator has: setting strata.local_extensions."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.waiting import wait_until

INSTALLED = "SELECT count(*) FROM pg_extension WHERE extname = '{}'"


@pytest.fixture
def local(cluster: Cluster) -> Iterator[psycopg.Connection]:
    """A session of a coordinator that has pg_trgm and uuid-ossp for itself."""
    coordinator = cluster.coordinator

    def configure(value: str) -> None:
        coordinator.execute("ALTER SYSTEM SET strata.local_extensions = " + value)
        coordinator.reload()
        for _ in wait_until("the setting is read"):
            with coordinator.connect() as session:
                if session.execute("SHOW strata.local_extensions").fetchone()[0] == value.strip(
                    "'"
                ):
                    break

    configure("'pg_trgm, \"uuid-ossp\"'")
    with coordinator.connect() as session:
        session.execute(
            "CREATE SCHEMA test_local_extensions; SET search_path = test_local_extensions, strata"
        )
        yield session
        session.execute(
            "DROP SCHEMA test_local_extensions CASCADE; DROP EXTENSION IF EXISTS pg_trgm CASCADE"
        )
    configure("''")


def installed(cluster: Cluster, extension: str) -> list[int]:
    nodes = (cluster.coordinator, *cluster.workers)
    return [node.value(INSTALLED.format(extension)) for node in nodes]


def test_a_local_extension_is_created_and_used_on_the_coordinator_alone(
    cluster: Cluster, local: psycopg.Connection
) -> None:
    for extension, name in (("pg_trgm", "pg_trgm"), ("uuid-ossp", '"uuid-ossp"')):
        local.execute(f"CREATE EXTENSION {name}")
        assert installed(cluster, extension) == [1, 0, 0]
        local.execute(f"ALTER EXTENSION {name} UPDATE")
    local.execute(
        "CREATE TABLE t (k integer, v text); SELECT create_distributed_table('t', 'k');"
        "INSERT INTO t SELECT g, 'word' || g FROM generate_series(1, 100) AS g;"
        "GRANT EXECUTE ON FUNCTION similarity(text, text) TO PUBLIC;"
        "COMMENT ON FUNCTION similarity(text, text) IS 'here'"
    )
    # IMMUTABLE functions, operators and aggregates over them travel otherwise
    for query, rows in (
        ("SELECT count(*) FROM t WHERE similarity(v, 'word7') = 1", 1),
        ("SELECT count(*) FROM t WHERE v % 'word7' AND similarity(v, 'word7') = 1", 1),
        ("SELECT count(*) FROM (SELECT similarity(v, 'w') FROM t ORDER BY 1) AS s", 100),
    ):
        assert local.execute(query).fetchone() == (rows,), query
    for change, rows in (
        ("UPDATE t SET v = 'x' WHERE k = 3 AND similarity('a', 'a') = 1", 1),
        ("DELETE FROM t WHERE similarity(v, 'word7') = 1", 1),
    ):
        assert local.execute(change).rowcount == rows, change
    # what is built on it stays here, too
    local.execute(
        "CREATE FUNCTION f (gtrgm) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 1';"
        'DROP FUNCTION f; DROP EXTENSION pg_trgm; DROP EXTENSION "uuid-ossp"'
    )
    assert installed(cluster, "pg_trgm") == [0, 0, 0]


def test_a_new_worker_does_not_get_it(local: psycopg.Connection) -> None:
    local.execute("CREATE EXTENSION pg_trgm; CREATE EXTENSION seg SCHEMA test_local_extensions")
    commands = "SELECT object FROM strata.schema_commands() WHERE object ~ '^extension'"
    objects = [name for (name,) in local.execute(commands)]
    assert "extension seg" in objects
    assert "extension pg_trgm" not in objects


def test_an_extension_that_a_worker_cannot_have_comes_with_a_hint(
    cluster: Cluster, local: psycopg.Connection
) -> None:
    worker = cluster.workers[0]
    worker.execute("CREATE TYPE public.seg AS (here integer)")
    try:
        with pytest.raises(psycopg.errors.DuplicateObject) as caught:
            local.execute("CREATE EXTENSION seg SCHEMA public")
        assert "strata.local_extensions" in caught.value.diag.message_hint
        assert "worker1" in caught.value.diag.context
        assert local.execute(INSTALLED.format("seg")).fetchone() == (0,)
    finally:
        worker.execute("DROP TYPE public.seg")


def test_the_list_has_the_form_of_a_list(local: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        local.execute("ALTER SYSTEM SET strata.local_extensions = 'a, \"b'")
