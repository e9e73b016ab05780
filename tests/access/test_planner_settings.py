"""What a user sets for the planner counts for the workers' plans, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import open_pair

SCHEMA = "test_planner_settings"
ROLE = "planner settings"

# What a worker has by itself; the coordinator's configuration has other values.
OWN = {"work_mem": "7MB", "random_page_cost": "1.7", "enable_nestloop": "on", "geqo_threshold": "9"}
HERE = {"work_mem": "9MB", "random_page_cost": "3", "enable_nestloop": "off", "geqo_threshold": "8"}


@pytest.fixture(scope="module")
def made(cluster: Cluster) -> Iterator[Cluster]:
    cluster.create_role(ROLE)
    with open_pair(cluster, SCHEMA) as pair:
        pair.execute(f'GRANT ALL ON SCHEMA {SCHEMA} TO "{ROLE}"')
        pair.execute("CREATE TABLE t (k integer PRIMARY KEY)")
        pair.distribute("t", "k")
        pair.execute(
            "INSERT INTO t SELECT generate_series(1, 40); GRANT ALL ON t TO PUBLIC;"
            "CREATE FUNCTION there (name text, k integer) RETURNS text LANGUAGE plpgsql IMMUTABLE"
            " AS $$ BEGIN RETURN current_setting(name); END $$"
        )
        for name, value in OWN.items():
            for worker in cluster.workers:
                worker.execute(f"ALTER SYSTEM SET {name} = '{value}'")
            cluster.coordinator.execute(f"ALTER SYSTEM SET {name} = '{HERE[name]}'")
        for node in (*cluster.workers, cluster.coordinator):
            node.execute("SELECT pg_reload_conf()")
        yield cluster
        for node in (*cluster.workers, cluster.coordinator):
            for name in OWN:
                node.execute(f"ALTER SYSTEM RESET {name}")
            node.execute("SELECT pg_reload_conf()")


@pytest.fixture
def session(made: Cluster) -> Iterator[psycopg.Connection]:
    with made.coordinator.connect() as connection:
        connection.execute(f"SET search_path = {SCHEMA}")
        yield connection


def there(session: psycopg.Connection, name: str) -> str:
    """What both workers have in this session: they make the least and the greatest of their rows."""
    value = f"{SCHEMA}.there('{name}', k)"
    ((least, greatest),) = session.execute(
        f"SELECT min({value}), max({value}) FROM {SCHEMA}.t"
    ).fetchall()
    assert least == greatest
    return least


@pytest.mark.parametrize("name", OWN)
def test_each_node_has_its_own_configuration(session: psycopg.Connection, name: str) -> None:
    assert session.execute(f"SHOW {name}").fetchone() == (HERE[name],)
    assert there(session, name) == OWN[name]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("work_mem", "1MB"),
        ("hash_mem_multiplier", "3.5"),
        ("random_page_cost", "2.25"),
        ("random_page_cost", "3"),
        ("cpu_tuple_cost", "0.02"),
        ("effective_cache_size", "77MB"),
        ("enable_nestloop", "off"),
        ("enable_hashjoin", "off"),
        ("enable_partitionwise_join", "on"),
        ("jit", "on"),
        ("jit_above_cost", "-1"),
        ("geqo_threshold", "4"),
        ("join_collapse_limit", "1"),
        ("constraint_exclusion", "on"),
        ("default_statistics_target", "33"),
        ("max_parallel_workers_per_gather", "0"),
        ("plan_cache_mode", "force_generic_plan"),
    ],
)
def test_what_is_set_travels_until_it_is_reset(
    session: psycopg.Connection, name: str, value: str
) -> None:
    before = there(session, name)
    session.execute(f"SET {name} = '{value}'")
    assert there(session, name) == value
    session.execute(f"RESET {name}")
    assert there(session, name) == before
    session.execute(f"BEGIN; SET LOCAL {name} = '{value}'")
    assert there(session, name) == value
    session.execute("COMMIT")
    assert there(session, name) == before
    session.execute(f"BEGIN; SET {name} = '{value}'")
    assert there(session, name) == value
    session.execute("ROLLBACK")
    assert there(session, name) == before
    session.execute(f"SET {name} = '{value}'")
    session.execute("RESET ALL")
    assert there(session, name) == before


def test_savepoints_undo_it(session: psycopg.Connection) -> None:
    session.execute("SET work_mem = '2MB'")
    assert there(session, "work_mem") == "2MB"
    session.execute("BEGIN; SAVEPOINT a; SET work_mem = '3MB'")
    assert there(session, "work_mem") == "3MB"
    session.execute("ROLLBACK TO a")
    assert there(session, "work_mem") == "2MB"
    session.execute("SAVEPOINT b; RESET work_mem")
    assert there(session, "work_mem") == OWN["work_mem"]
    session.execute("ROLLBACK TO b")
    assert there(session, "work_mem") == "2MB"
    session.execute("RESET work_mem; ROLLBACK")
    assert there(session, "work_mem") == "2MB"
    session.execute("RESET work_mem; UPDATE t SET k = k WHERE k = 1")
    assert there(session, "work_mem") == OWN["work_mem"]


def test_a_function_has_its_own(session: psycopg.Connection) -> None:
    session.execute(
        "CREATE FUNCTION within () RETURNS text LANGUAGE plpgsql SET work_mem = '5MB'"
        f" AS $$ BEGIN RETURN (SELECT max({SCHEMA}.there('work_mem', k)) FROM {SCHEMA}.t); END $$"
    )
    assert session.execute("SELECT within()").fetchone() == ("5MB",)
    assert there(session, "work_mem") == OWN["work_mem"]
    session.execute("SET work_mem = '6MB'")
    assert session.execute("SELECT within()").fetchone() == ("5MB",)
    assert there(session, "work_mem") == "6MB"
    session.execute("DROP FUNCTION within")


def test_settings_of_roles_and_databases_and_of_the_connection(made: Cluster) -> None:
    node = made.coordinator
    node.execute("ALTER DATABASE strata SET join_collapse_limit = 3")
    node.execute(f'ALTER ROLE "{ROLE}" SET geqo_threshold = 5')
    try:
        with node.connect(user=ROLE) as session:
            assert there(session, "join_collapse_limit") == "3"
            assert there(session, "geqo_threshold") == "5"
            session.execute("SET ROLE NONE; SET work_mem = '3MB'")
            assert there(session, "work_mem") == "3MB"
        with node.connect() as session:
            assert there(session, "geqo_threshold") == OWN["geqo_threshold"]
            session.execute(f"SET SESSION AUTHORIZATION \"{ROLE}\"; SET work_mem = '4MB'")
            assert there(session, "work_mem") == "4MB"
            session.execute("RESET SESSION AUTHORIZATION")
            assert there(session, "work_mem") == "4MB"
    finally:
        node.execute("ALTER DATABASE strata RESET join_collapse_limit")
        node.execute(f'ALTER ROLE "{ROLE}" RESET geqo_threshold')
    with psycopg.connect(
        node.conninfo(), autocommit=True, options="-c cpu_operator_cost=0.5 -c search_path=public"
    ) as session:
        assert there(session, "cpu_operator_cost") == "0.5"


def test_a_reload_here_changes_nothing_there(session: psycopg.Connection, made: Cluster) -> None:
    assert there(session, "random_page_cost") == OWN["random_page_cost"]
    session.execute("SET random_page_cost = 5")
    assert there(session, "random_page_cost") == "5"
    made.coordinator.execute("SELECT pg_reload_conf()")
    assert there(session, "random_page_cost") == "5"
    session.execute("SET random_page_cost TO DEFAULT")
    assert there(session, "random_page_cost") == OWN["random_page_cost"]
