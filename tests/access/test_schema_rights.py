"""Who may create and alter schemas is decided on the coordinator; the workers follow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import sql

from tests.cluster import Cluster, Node

ROLE = 'Right "Holder"'
GROUP = "Right Group"
STRANGER = "schema stranger"
SCHEMA = 'of "right"; \\ --'
NAMES = {
    name: sql.Identifier(value)
    for name, value in (
        ("role", ROLE),
        ("group", GROUP),
        ("stranger", STRANGER),
        ("schema", SCHEMA),
        ("renamed", SCHEMA + "2"),
    )
}


def run(node: Node | psycopg.Connection, statement: str) -> None:
    node.execute(sql.SQL(statement).format(**NAMES))


@contextmanager
def log_in(node: Node, role: str) -> Iterator[psycopg.Connection]:
    with node.connect() as session:
        session.execute(sql.SQL("SET SESSION AUTHORIZATION {}").format(sql.Identifier(role)))
        yield session


def on_database(node: Node, statement: str) -> None:
    run(
        node, statement.replace("DATABASE", f'DATABASE "{node.value("SELECT current_database()")}"')
    )


@pytest.fixture
def roles(cluster: Cluster) -> Iterator[None]:
    """The same roles on the coordinator and on the plain server."""
    nodes = (cluster.coordinator, cluster.plain)
    administrator = cluster.coordinator.value("SELECT current_user")
    for role in (ROLE, GROUP, STRANGER):
        cluster.create_role(role)
    yield
    for node in nodes:
        on_database(node, f"ALTER DATABASE OWNER TO {administrator}")
        on_database(node, "REVOKE ALL ON DATABASE FROM {role}, {group}, {stranger}")
        run(node, "DROP SCHEMA IF EXISTS {schema}, {renamed} CASCADE")
        run(node, "DROP OWNED BY {role}, {group}, {stranger} CASCADE")
        run(node, "DROP ROLE {role}, {group}, {stranger}")


def owners(node: Node) -> list[tuple]:
    return node.query(
        "SELECT nspname, nspowner::regrole::text FROM pg_namespace WHERE nspname ~ '^of .right'"
    )


RIGHTS = {
    "grant": "GRANT CREATE ON DATABASE TO {role}",
    "membership": "GRANT {group} TO {role}; GRANT CREATE ON DATABASE TO {group}",
    "owner": "ALTER DATABASE OWNER TO {role}",
    "member of the owner": "GRANT {group} TO {role}; ALTER DATABASE OWNER TO {group}",
    "pg_database_owner": "ALTER DATABASE OWNER TO {role}; REVOKE ALL ON DATABASE FROM {role};"
    "GRANT CREATE ON DATABASE TO pg_database_owner",
}


@pytest.mark.usefixtures("roles")
@pytest.mark.parametrize("right", RIGHTS)
def test_a_schema_is_made_by_a_right_of_the_coordinator(cluster: Cluster, right: str) -> None:
    for node in (cluster.coordinator, cluster.plain):
        for statement in RIGHTS[right].split(";"):
            on_database(node, statement)
        with log_in(node, ROLE) as session:
            run(session, "CREATE SCHEMA {schema} CREATE TABLE t (k integer PRIMARY KEY)")
            run(session, "ALTER SCHEMA {schema} RENAME TO {renamed}")
            run(session, "GRANT USAGE ON SCHEMA {renamed} TO {stranger}")
            if node is cluster.coordinator:
                run(session, "SET search_path = {renamed}")
                run(session, "SELECT strata.create_distributed_table('t', 'k')")
                run(session, "INSERT INTO t VALUES (1), (2); SELECT count(*) FROM t")
    expected = owners(cluster.plain)
    assert expected == [(SCHEMA + "2", sql.Identifier(ROLE).as_string(None))]
    for node in (cluster.coordinator, *cluster.workers):
        assert owners(node) == expected


CONTEXTS = {
    "savepoint": "BEGIN; SAVEPOINT a; {}; ROLLBACK TO a; {}; RELEASE a; COMMIT",
    "repeatable read": "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM first.t; {}; COMMIT",
    "deferred constraints": "BEGIN; SET CONSTRAINTS ALL DEFERRED; INSERT INTO first.t VALUES (2);"
    " {}; SET CONSTRAINTS ALL IMMEDIATE; COMMIT",
    "settings": "SET standard_conforming_strings = off; SET datestyle = 'German'; {}",
    "block": "DO $$ BEGIN {}; EXCEPTION WHEN division_by_zero THEN NULL; END $$",
}


@pytest.mark.usefixtures("roles")
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_schema_is_made_wherever_the_statement_stands(cluster: Cluster, context: str) -> None:
    on_database(cluster.coordinator, "GRANT CREATE ON DATABASE TO {role}")
    with log_in(cluster.coordinator, ROLE) as session:
        session.execute(
            "CREATE SCHEMA first; CREATE TABLE first.t (k integer PRIMARY KEY DEFERRABLE);"
            "SELECT strata.create_distributed_table('first.t', 'k'); INSERT INTO first.t VALUES (1)"
        )
        for statement in (
            CONTEXTS[context].split(";") if context != "block" else [CONTEXTS[context]]
        ):
            run(session, statement.replace("{}", "CREATE SCHEMA {schema}"))
        expected = [(SCHEMA, sql.Identifier(ROLE).as_string(None))]
        for node in (cluster.coordinator, *cluster.workers):
            assert owners(node) == expected
        session.execute("DROP SCHEMA first CASCADE")


@pytest.mark.usefixtures("roles")
def test_a_schema_changes_hands_by_a_right_of_the_coordinator(cluster: Cluster) -> None:
    for node in (cluster.coordinator, cluster.plain):
        on_database(node, "GRANT CREATE ON DATABASE TO {role}")
        run(node, "GRANT {group} TO {role}")
        with log_in(node, ROLE) as session:
            run(session, "CREATE SCHEMA {schema}")
            run(session, "ALTER SCHEMA {schema} OWNER TO {group}")
    expected = owners(cluster.plain)
    for node in (cluster.coordinator, *cluster.workers):
        assert owners(node) == expected


@pytest.mark.usefixtures("roles")
@pytest.mark.parametrize("right", RIGHTS)
def test_a_trusted_extension_is_made_by_a_right_of_the_coordinator(
    cluster: Cluster, right: str
) -> None:
    for statement in RIGHTS[right].split(";"):
        on_database(cluster.coordinator, statement)

    def rights() -> list[list[tuple]]:
        right = "SELECT has_database_privilege(oid, current_database(), 'CREATE') FROM pg_roles"
        return [w.query(f"{right} WHERE rolname = %s", (ROLE,)) for w in cluster.workers]

    before = rights()
    assert before == [[("owner" in right,)]] * len(cluster.workers)
    owner = "SELECT extowner::regrole::text FROM pg_extension WHERE extname = 'citext'"
    with log_in(cluster.coordinator, ROLE) as session:
        run(session, "CREATE SCHEMA {schema}; CREATE EXTENSION citext SCHEMA {schema}")
        run(session, "ALTER EXTENSION citext UPDATE")
        for node in (cluster.coordinator, *cluster.workers):
            assert node.value(owner) == sql.Identifier(ROLE).as_string(None)
        run(session, "DROP EXTENSION citext")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            run(session, "CREATE EXTENSION pageinspect SCHEMA {schema}")
    # the loan is over
    assert rights() == before


@pytest.mark.usefixtures("roles")
def test_who_has_no_right_makes_no_schema_on_any_node(cluster: Cluster) -> None:
    for node in (cluster.coordinator, cluster.plain):
        on_database(node, "GRANT CREATE ON DATABASE TO {role}")
        with log_in(node, ROLE) as session:
            run(session, "CREATE SCHEMA {schema}")
        for role in (ROLE, STRANGER):
            if role == ROLE:
                on_database(node, "REVOKE CREATE ON DATABASE FROM {role}")
            with log_in(node, role) as session:
                for statement in (
                    "CREATE SCHEMA {renamed}",
                    "ALTER SCHEMA {schema} RENAME TO {renamed}",
                    "ALTER SCHEMA {schema} OWNER TO {stranger}",
                ):
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        run(session, statement)
    expected = owners(cluster.plain)
    for node in (cluster.coordinator, *cluster.workers):
        assert owners(node) == expected


@pytest.mark.usefixtures("roles")
def test_code_of_users_makes_no_schema_on_a_worker(cluster: Cluster) -> None:
    """Its right would be the coordinator's, which has checked nothing."""
    coordinator = cluster.coordinator
    on_database(coordinator, "GRANT CREATE ON DATABASE TO {role}")
    with log_in(coordinator, ROLE) as session:
        run(session, "CREATE SCHEMA {schema}; SET search_path = {schema}")
        on_database(coordinator, "REVOKE CREATE ON DATABASE FROM {role}")
        session.execute(
            "CREATE FUNCTION do_it (call text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS"
            " 'BEGIN EXECUTE call; RETURN true; END'; CREATE TABLE t (k integer);"
            "SELECT strata.create_distributed_table('t', 'k'); INSERT INTO t VALUES (1)"
        )
        for call in (
            f"strata_worker.create_schema('{SCHEMA}2', '{ROLE}')",
            f"strata_worker.rename_schema('{SCHEMA}', '{ROLE}', '{SCHEMA}2')",
            f"strata_worker.own_schema('public', 'pg_database_owner', '{ROLE}')",
            "strata_worker.check_own_statement('create_schema')",
            f"strata_worker.lend_create(true, '{ROLE}')",
            "strata_worker.place_objects('[]')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied"):
                session.execute(
                    "SELECT count(*) FROM t WHERE do_it($$SELECT "
                    + call
                    + "$$ || left(k::text, 0))"
                )
    for worker in cluster.workers:
        with (
            log_in(worker, ROLE) as direct,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            direct.execute(f"SELECT strata_worker.create_schema('{SCHEMA}2', '{ROLE}')")


@pytest.mark.usefixtures("roles")
def test_a_workers_own_schema_of_the_name_keeps_its_owner(cluster: Cluster) -> None:
    """pg_partman's may be there before somebody has a schema of that name here."""
    on_database(cluster.coordinator, "GRANT CREATE ON DATABASE TO {role}")
    worker = cluster.workers[0]
    run(worker, "CREATE SCHEMA {schema}")
    try:
        before = owners(worker)
        with log_in(cluster.coordinator, ROLE) as session:
            run(session, "CREATE SCHEMA {schema}")
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="does not belong"):
                run(session, "ALTER SCHEMA {schema} RENAME TO {renamed}")
        assert owners(worker) == before
    finally:
        run(worker, "DROP SCHEMA {schema}")


OWNERS = "SELECT datdba::regrole::text FROM pg_database WHERE datname = current_database()"


@pytest.mark.usefixtures("roles")
def test_the_owner_of_the_database_has_schema_public_on_all_nodes(cluster: Cluster) -> None:
    coordinator = cluster.coordinator
    administrator = coordinator.value(OWNERS)
    on_database(coordinator, "ALTER DATABASE OWNER TO {role}")
    with log_in(coordinator, ROLE) as session:
        session.execute(
            "CREATE TABLE public.of_the_owner (k integer);"
            "SELECT strata.create_distributed_table('public.of_the_owner', 'k');"
            "INSERT INTO public.of_the_owner VALUES (1), (2)"
        )
        assert session.execute("SELECT count(*) FROM public.of_the_owner").fetchone() == (2,)
        session.execute("DROP TABLE public.of_the_owner")
        run(session, "GRANT CREATE ON SCHEMA public TO {stranger}")
        run(session, "REVOKE CREATE ON SCHEMA public FROM {stranger}")
    on_database(coordinator, f"ALTER DATABASE OWNER TO {administrator}")
    for worker in cluster.workers:
        assert worker.value(OWNERS) == administrator


@pytest.mark.usefixtures("roles")
def test_an_owner_given_from_another_database_is_shown_and_mended(cluster: Cluster) -> None:
    coordinator = cluster.coordinator
    with coordinator.connect(dbname="postgres") as elsewhere:
        name = sql.Identifier(coordinator.value("SELECT current_database()"))
        elsewhere.execute(
            sql.SQL("ALTER DATABASE {} OWNER TO {}").format(name, sql.Identifier(ROLE))
        )
    health = "SELECT count(*) FROM strata.check_health() WHERE NOT ok AND detail ~ 'owner .* of the database'"
    assert coordinator.value(health) == len(cluster.workers)
    coordinator.query("SELECT * FROM strata.sync_roles()")
    assert coordinator.value(health) == 0
    for worker in cluster.workers:
        assert worker.value(OWNERS) == sql.Identifier(ROLE).as_string(None)
