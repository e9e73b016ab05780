"""Roles are the same on all nodes, and a new worker gives every object its owner and privileges."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from tests.cluster import DATABASE, Cluster, Node
from tests.fixtures import new_root
from tests.waiting import wait_until

ROLE_STATE = (
    "SELECT kind, role, key, detail, value FROM strata.role_state()"
    " ORDER BY kind, role, key, detail, value"
)
NASTY = ["a\"b'; DROP TABLE x; --", "$strata$", "back\\slash", "größe", "UPPER lower", "select"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(new_root(), workers=2, tls=True) as made:
        made.coordinator.execute(
            "CREATE TABLE item (id integer PRIMARY KEY, v integer);"
            "SELECT strata.create_distributed_table('item', 'id', shard_count => 4);"
            "INSERT INTO item SELECT g, g FROM generate_series(1, 20) AS g"
        )
        yield made


@pytest.fixture(autouse=True)
def no_roles(cluster: Cluster) -> Iterator[None]:
    """Every test begins without roles."""
    yield
    cluster.coordinator.disconnect()
    for node in cluster.nodes:
        node.execute("RESET ALL")
        roles = [
            sql.Identifier(role)
            for (role,) in node.query("SELECT rolname FROM pg_roles WHERE oid >= 16384")
        ]
        for role in roles:  # one by one: two owners of one default ACL are too much for DROP OWNED
            node.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(role))
        if roles:
            node.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.SQL(", ").join(roles)))


@pytest.fixture
def session(cluster: Cluster) -> Iterator[psycopg.Connection]:
    with cluster.coordinator.connect() as connection:
        yield connection


def state(node: Node) -> list[tuple]:
    return node.query(ROLE_STATE)


def same_roles(cluster: Cluster) -> list[tuple]:
    """All nodes have the same roles; what the coordinator has."""
    here = state(cluster.coordinator)
    for worker in cluster.workers:
        assert state(worker) == here, worker.name
    return here


def remove_worker(session: psycopg.Connection, name: str) -> None:
    """A new worker can be removed once it has been searched for transactions in doubt."""
    for _ in wait_until("the worker is removed"):
        try:
            session.execute("SELECT strata.remove_worker(%s)", (name,))
        except psycopg.errors.ObjectInUse:
            continue
        return


# ---- commands ---------------------------------------------------------------------------------------

COMMANDS = [
    "CREATE ROLE r",
    "CREATE USER r NOINHERIT CREATEROLE BYPASSRLS",
    "CREATE GROUP r USER a, b",
    "CREATE ROLE r LOGIN PASSWORD 'x' VALID UNTIL '2040-01-01' CONNECTION LIMIT 3 REPLICATION",
    "CREATE ROLE r SUPERUSER CREATEDB",
    "CREATE ROLE r IN ROLE a, pg_monitor ROLE b",
    "CREATE ROLE r ADMIN b",
    "ALTER ROLE a NOINHERIT CREATEDB; ALTER USER a INHERIT",
    "ALTER ROLE a WITH PASSWORD 'x' NOLOGIN",
    "ALTER ROLE a SUPERUSER; ALTER ROLE a NOSUPERUSER",
    "CREATE ROLE c; ALTER GROUP c ADD USER a, b; ALTER GROUP c DROP USER a; ALTER GROUP c ADD USER CURRENT_USER",
    "GRANT a TO b; GRANT pg_read_all_data TO a WITH ADMIN OPTION",
    "GRANT a TO b WITH ADMIN OPTION; REVOKE ADMIN OPTION FOR a FROM b",
    "GRANT a TO b; REVOKE a FROM b CASCADE",
    "GRANT a TO b GRANTED BY CURRENT_USER",
    "ALTER ROLE a RENAME TO renamed",
    "COMMENT ON ROLE a IS 'who''s \\ that'; COMMENT ON ROLE b IS 'b'; COMMENT ON ROLE b IS NULL",
    "ALTER ROLE a SET work_mem = '7MB'; ALTER ROLE a SET enable_hashjoin TO off",
    "ALTER ROLE a SET search_path = \"$user\", \"A,b\", public; ALTER USER b SET search_path = ''",
    "SET work_mem = '9MB'; ALTER ROLE a SET work_mem FROM CURRENT",
    "ALTER ROLE a SET timezone = 'Europe/Berlin'; ALTER ROLE a SET TIME ZONE INTERVAL '+02:00' HOUR TO MINUTE",
    "ALTER ROLE a SET work_mem = '7MB'; ALTER ROLE a SET jit = on; ALTER ROLE a RESET work_mem",
    "ALTER ROLE a SET work_mem = '7MB'; ALTER ROLE a RESET ALL",
    "ALTER ROLE a SET work_mem = '7MB'; ALTER ROLE a SET work_mem TO DEFAULT",
    "ALTER ROLE a IN DATABASE strata SET work_mem = '8MB'; ALTER ROLE a SET work_mem = '7MB'",
    "ALTER ROLE a IN DATABASE strata SET work_mem = '8MB'; ALTER ROLE a IN DATABASE strata RESET ALL",
    "ALTER ROLE a SET lc_time = 'C'; ALTER ROLE a SET application_name = 'it''s \\ \"me\"'",
    "DROP ROLE a; DROP USER IF EXISTS nobody, b",
    "CREATE ROLE r; BEGIN; ALTER ROLE r CREATEDB; SAVEPOINT s; DROP ROLE r; ROLLBACK TO s; COMMIT",
]  # fmt: skip


@pytest.mark.parametrize("script", COMMANDS)
def test_role_commands_reach_all_nodes(
    cluster: Cluster, session: psycopg.Connection, script: str
) -> None:
    session.execute("CREATE ROLE a; CREATE ROLE b LOGIN")
    before = same_roles(cluster)
    assert {row[1] for row in before} == {"a", "b"}
    for command in script.split("; "):
        session.execute(command)
    same_roles(cluster)


def test_a_role_command_that_is_rolled_back_is_nowhere(
    cluster: Cluster, session: psycopg.Connection
) -> None:
    session.execute("CREATE ROLE a")
    before = same_roles(cluster)
    session.execute(
        "BEGIN; CREATE ROLE r IN ROLE a; ALTER ROLE a CREATEDB; ALTER ROLE a SET jit = on"
    )
    session.execute("ROLLBACK")
    assert same_roles(cluster) == before


def test_session_names_stand_for_the_coordinators_session(
    cluster: Cluster, session: psycopg.Connection
) -> None:
    """A worker's session has the current role as its session_user."""
    session.execute(
        "CREATE ROLE a CREATEROLE; CREATE ROLE b; CREATE ROLE owner_b;"
        "GRANT CREATE ON SCHEMA public TO b, owner_b; GRANT b TO a WITH ADMIN OPTION"
    )
    with cluster.coordinator.connect(autocommit=True) as other:
        other.execute("SET SESSION AUTHORIZATION a")
        other.execute("SET ROLE b")
        other.execute("CREATE FUNCTION public.f () RETURNS integer LANGUAGE sql RETURN 1")
        other.execute(
            "GRANT EXECUTE ON FUNCTION public.f () TO session_user, /* me */ CURRENT_USER"
        )
        other.execute("REASSIGN OWNED BY CURRENT_USER TO CURRENT_ROLE")
        other.execute("RESET ROLE")
        other.execute("GRANT b TO Session_User")
    same_roles(cluster)
    query = "SELECT proacl::text FROM pg_proc WHERE oid = 'public.f()'::regprocedure"
    here = cluster.coordinator.value(query)
    assert "a=" in here
    assert [worker.value(query) for worker in cluster.workers] == [here, here]
    session.execute("DROP FUNCTION public.f ()")


def test_an_owner_by_the_name_of_the_session_is_the_same_everywhere(
    cluster: Cluster, session: psycopg.Connection
) -> None:
    session.execute("CREATE ROLE other SUPERUSER")
    session.execute("SET ROLE other")
    session.execute("CREATE TYPE public.e AS ENUM ('x')")
    session.execute("ALTER TYPE public.e OWNER TO SESSION_USER")
    owner = "SELECT typowner::regrole::text FROM pg_type WHERE oid = 'public.e'::regtype"
    owners = [node.value(owner) for node in (cluster.coordinator, *cluster.workers[:2])]
    session.execute("RESET ROLE")
    session.execute("DROP TYPE public.e")
    assert owners == ["postgres"] * 3


def test_names_and_values_are_quoted(cluster: Cluster, session: psycopg.Connection) -> None:
    for name in NASTY:
        role = sql.Identifier(name)
        for conforming in ("on", "off"):
            session.execute(f"SET standard_conforming_strings = {conforming}")
            for command in (
                "CREATE ROLE {role} CREATEDB",
                "CREATE ROLE {member} IN ROLE {role}",
                "ALTER ROLE {role} SET application_name = {name}",
                "ALTER ROLE {role} IN DATABASE strata SET search_path = {role}, {name}",
                "ALTER ROLE {role} NOCREATEDB",
                "GRANT pg_monitor TO {role}",
                "REVOKE {role} FROM {member}",
                "ALTER ROLE {role} RENAME TO {other}",
            ):
                session.execute(
                    sql.SQL(command).format(
                        role=role,
                        member=sql.Identifier(name + " member"),
                        other=sql.Identifier(name + " other"),
                        name=sql.Literal(name),
                    )
                )
            roles = {row[1] for row in same_roles(cluster)}
            assert roles == {name + " member", name + " other", "pg_monitor"}
            session.execute(
                sql.SQL("DROP ROLE {}, {}").format(
                    sql.Identifier(name + " member"), sql.Identifier(name + " other")
                )
            )
            assert same_roles(cluster) == []


def test_a_creator_of_roles_needs_not_be_a_superuser(cluster: Cluster) -> None:
    cluster.coordinator.execute("CREATE ROLE creator LOGIN CREATEROLE CREATEDB")
    with cluster.coordinator.connect() as session:
        session.execute("SET ROLE creator")
        session.execute(
            "CREATE ROLE r CREATEDB; ALTER ROLE r NOINHERIT; CREATE ROLE s; GRANT r TO s"
        )
        session.execute("ALTER ROLE r SET work_mem = '6MB'; ALTER ROLE s RENAME TO t")
        same_roles(cluster)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute("CREATE ROLE u SUPERUSER")
        session.execute("DROP ROLE r, t")
    assert {row[1] for row in same_roles(cluster)} == {"creator"}


def test_settings_of_roles_reach_their_sessions_on_workers(
    cluster: Cluster, session: psycopg.Connection
) -> None:
    session.execute("CREATE ROLE a; GRANT SELECT ON item TO a; ALTER ROLE a SET work_mem = '5MB'")
    session.execute("ALTER ROLE a IN DATABASE strata SET enable_seqscan = off")
    session.execute(
        "CREATE FUNCTION setting (integer, text) RETURNS text LANGUAGE sql IMMUTABLE"
        " AS 'SELECT current_setting($2)'"
    )
    with cluster.coordinator.connect() as other:
        other.execute("SET SESSION AUTHORIZATION a")
        query = (
            "SELECT count(*) FROM item WHERE setting(id, 'work_mem') = '5MB'"
            " AND setting(id, 'enable_seqscan') = 'off'"
        )
        plan = other.execute(f"EXPLAIN (VERBOSE) {query}").fetchall()
        assert any("Remote SQL" in line and "setting(item.id" in line for (line,) in plan), plan
        rows = other.execute(query).fetchall()
    session.execute("DROP FUNCTION setting")
    assert rows == [(20,)]


@pytest.mark.parametrize(
    "setting", ["role = 'postgres'", "session_preload_libraries = 'nothing'", "temp_tablespaces = ''",
                "strata.connect_timeout = 7", "app.tenant = '5'"]
)  # fmt: skip
def test_settings_that_name_what_a_node_has_stay_there(
    cluster: Cluster, session: psycopg.Connection, setting: str
) -> None:
    """A worker's session that became another role by such a setting would have its privileges."""
    session.execute("CREATE ROLE a")
    session.execute(f"ALTER ROLE a SET {setting}")
    assert len(state(cluster.coordinator)) == 2
    assert [len(state(worker)) for worker in cluster.workers] == [1, 1]
    assert session.execute("SELECT * FROM strata.sync_roles()").fetchall() == []


# ---- roles that a worker has already ---------------------------------------------------------------


def test_a_namesake_on_a_worker_keeps_nothing_that_it_was_granted_there(
    cluster: Cluster, session: psycopg.Connection
) -> None:
    cluster.workers[0].execute(
        "CREATE ROLE r BYPASSRLS CREATEDB; GRANT pg_write_all_data TO r; ALTER ROLE r SET jit = on;"
        "ALTER ROLE r IN DATABASE strata SET work_mem = '3MB'; COMMENT ON ROLE r IS 'of the worker'"
    )
    session.execute("CREATE ROLE r NOINHERIT IN ROLE pg_monitor")
    here = same_roles(cluster)
    assert [row[:3] for row in here] == [("member", "pg_monitor", "r"), ("role", "r", None)]


@pytest.mark.parametrize(("there", "here"), [("SUPERUSER", ""), ("", "SUPERUSER")])
def test_nobody_becomes_a_superuser_by_having_a_namesake(
    cluster: Cluster, session: psycopg.Connection, there: str, here: str
) -> None:
    cluster.workers[1].execute(f"CREATE ROLE r {there}")
    with pytest.raises(psycopg.errors.DuplicateObject, match="superuser") as caught:
        session.execute(f"CREATE ROLE r {here}")
    assert "worker2" in caught.value.diag.context
    assert caught.value.diag.message_hint
    assert state(cluster.coordinator) == state(cluster.workers[0]) == []
    cluster.workers[1].execute(f"ALTER ROLE r {here or 'NOSUPERUSER'}")
    session.execute(f"CREATE ROLE r {here}")
    same_roles(cluster)


def test_a_creator_of_roles_cannot_take_over_a_workers_superuser(
    cluster: Cluster, session: psycopg.Connection
) -> None:
    cluster.workers[0].execute("CREATE ROLE local_admin SUPERUSER")
    session.execute("CREATE ROLE creator CREATEROLE; SET ROLE creator")
    with pytest.raises(psycopg.Error):
        session.execute("CREATE ROLE local_admin")
    assert [row[1] for row in state(cluster.coordinator)] == ["creator"]


# ---- roles changed where we do not see it ----------------------------------------------------------


def faults(cluster: Cluster) -> list[str]:
    rows = cluster.coordinator.query(
        "SELECT detail FROM strata.check_health() WHERE check_name = 'roles' AND NOT ok"
    )
    return [detail for (detail,) in rows]


def test_roles_changed_from_another_database_are_shown_and_mended(
    cluster: Cluster, session: psycopg.Connection
) -> None:
    session.execute("CREATE ROLE a; CREATE ROLE b; GRANT a TO b; ALTER ROLE b SET work_mem = '5MB'")
    session.execute("COMMENT ON ROLE a IS 'a'; COMMENT ON ROLE b IS 'b'")
    assert faults(cluster) == []
    with cluster.coordinator.connect("postgres") as elsewhere:
        elsewhere.execute(
            "CREATE ROLE c CREATEDB; GRANT a TO c WITH ADMIN OPTION; REVOKE a FROM b;"
            "ALTER ROLE a BYPASSRLS; ALTER ROLE b RESET ALL; ALTER ROLE a SET search_path = 'x y', z;"
            "GRANT pg_monitor TO a, b WITH ADMIN OPTION;"
            "COMMENT ON ROLE a IS 'new'; COMMENT ON ROLE b IS NULL; COMMENT ON ROLE c IS 'c'"
        )
    expected = "comment of role a; comment of role b; comment of role c; role a; role a, member b; role a, member c; role a, setting search_path; role b, setting work_mem; role c; role pg_monitor, member a; role pg_monitor, member b"
    assert faults(cluster) == [expected, expected]
    steps = session.execute(
        "SELECT worker_name, object, success FROM strata.sync_roles()"
    ).fetchall()
    assert {step[0] for step in steps} == {"worker1", "worker2"}
    assert all(step[2] for step in steps)
    assert faults(cluster) == []
    same_roles(cluster)
    assert session.execute("SELECT * FROM strata.sync_roles()").fetchall() == []


def test_one_role_that_cannot_be_mended_does_not_stop_the_others(
    cluster: Cluster, session: psycopg.Connection
) -> None:
    cluster.workers[0].execute("CREATE ROLE a SUPERUSER")
    with cluster.coordinator.connect("postgres") as elsewhere:
        elsewhere.execute("CREATE ROLE a; CREATE ROLE b; GRANT a TO b")
    rows = session.execute(
        "SELECT worker_name, object, success, detail FROM strata.sync_roles()"
    ).fetchall()
    failed = [row for row in rows if not row[2]]
    assert [row[:2] for row in failed] == [("worker1", "role a")]
    assert "superuser" in failed[0][3]
    assert faults(cluster) == ["role a"]


def test_a_grant_that_hangs_on_another_is_restored(
    cluster: Cluster, session: psycopg.Connection
) -> None:
    session.execute(
        "CREATE ROLE a; CREATE ROLE b CREATEROLE; CREATE ROLE c; GRANT a TO b WITH ADMIN OPTION"
    )
    session.execute("SET ROLE b; GRANT a TO c; RESET ROLE")
    for worker in cluster.workers:
        worker.execute("REVOKE a FROM b CASCADE; REVOKE a FROM c; GRANT a TO b")
    session.execute("SELECT * FROM strata.sync_roles()")
    assert faults(cluster) == []
    same_roles(cluster)


# ---- a new worker ----------------------------------------------------------------------------------

OBJECTS = r"""
CREATE ROLE ann; CREATE ROLE bob; CREATE ROLE crew; CREATE ROLE "Odd ""one"" x"; GRANT crew TO bob;
ALTER ROLE ann SET work_mem = '5MB';
CREATE SCHEMA app AUTHORIZATION ann;
CREATE SCHEMA "Odd ""schema"" x" AUTHORIZATION "Odd ""one"" x";
GRANT USAGE ON SCHEMA app TO bob WITH GRANT OPTION;
SET ROLE bob;
GRANT USAGE ON SCHEMA app TO crew;
RESET ROLE;
CREATE TYPE app.mood AS ENUM ('good', 'bad');
CREATE DOMAIN app.small AS integer CHECK (VALUE < 1000);
CREATE TYPE app.pair AS (a integer, b app.mood);
CREATE TYPE app.span AS RANGE (SUBTYPE = integer);
CREATE COLLATION app.german (LOCALE = 'C', PROVIDER = libc);
ALTER TYPE app.mood OWNER TO ann; ALTER DOMAIN app.small OWNER TO bob; ALTER TYPE app.pair OWNER TO ann;
ALTER TYPE app.span OWNER TO bob; ALTER COLLATION app.german OWNER TO bob;
REVOKE USAGE ON TYPE app.mood FROM PUBLIC; GRANT USAGE ON TYPE app.mood TO bob;
CREATE FUNCTION app.who (integer) RETURNS text LANGUAGE sql IMMUTABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS 'SELECT current_user::text';
ALTER FUNCTION app.who (integer) OWNER TO ann;
REVOKE ALL ON FUNCTION app.who (integer) FROM PUBLIC; GRANT EXECUTE ON FUNCTION app.who (integer) TO bob;
CREATE FUNCTION app.who (text) RETURNS text LANGUAGE sql AS 'SELECT 1::text';
CREATE PROCEDURE app.run (INOUT x integer, y text) LANGUAGE sql AS 'SELECT 1';
ALTER PROCEDURE app.run (integer, text) OWNER TO bob;
CREATE AGGREGATE app.add_up (integer) (SFUNC = int4pl, STYPE = integer, INITCOND = '0');
ALTER AGGREGATE app.add_up (integer) OWNER TO ann; REVOKE ALL ON FUNCTION app.add_up (integer) FROM PUBLIC;
CREATE FUNCTION "Odd ""schema"" x"."Odd ""name"", $strata$" ("an ""arg"" x" app.mood) RETURNS integer LANGUAGE sql RETURN 1;
CREATE TABLE app.item (id integer PRIMARY KEY, "odd ""column"" x" text, v integer);
CREATE TABLE app.code (id integer PRIMARY KEY, name text);
SELECT strata.create_distributed_table('app.item', 'id', shard_count => 4);
SELECT strata.create_reference_table('app.code');
INSERT INTO app.item SELECT g, 'x', g FROM generate_series(1, 20) AS g;
ALTER TABLE app.item OWNER TO ann; ALTER TABLE app.code OWNER TO bob;
GRANT SELECT (id, "odd ""column"" x") ON app.item TO bob WITH GRANT OPTION; GRANT TRUNCATE, TRIGGER ON app.item TO crew;
GRANT SELECT ON app.item TO bob WITH GRANT OPTION; REVOKE DELETE ON app.item FROM ann;
SET ROLE bob;
GRANT SELECT ON app.item TO "Odd ""one"" x";
RESET ROLE;
GRANT ALL ON app.code TO PUBLIC;
ALTER DEFAULT PRIVILEGES IN SCHEMA app GRANT EXECUTE ON FUNCTIONS TO bob WITH GRANT OPTION;
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO bob;
CREATE FUNCTION app.born_later () RETURNS integer LANGUAGE sql RETURN 1;
CREATE SCHEMA app_later;
ALTER DEFAULT PRIVILEGES IN SCHEMA app REVOKE EXECUTE ON FUNCTIONS FROM bob;
ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO PUBLIC;
ALTER DEFAULT PRIVILEGES REVOKE USAGE ON SCHEMAS FROM bob;
REVOKE EXECUTE ON FUNCTION pg_catalog.pg_sleep (double precision) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pg_catalog.pg_read_file (text) TO ann;
GRANT CREATE ON SCHEMA public TO bob;
"""

# Owner and privileges of everything, independent of OIDs and of the order of grants.
PRIVILEGES = """
WITH thing (name, owner, acl) AS (
    SELECT 'schema ' || nspname, nspowner, nspacl FROM pg_namespace
     WHERE nspname !~ '^(pg_|strata)' AND nspname <> 'information_schema'
    UNION ALL
    SELECT 'function ' || p.oid::regprocedure, proowner, proacl FROM pg_proc AS p
     WHERE pronamespace::regnamespace::text ~ '^("?Odd|app|public|pg_catalog)'
    UNION ALL
    SELECT 'type ' || t.oid::regtype, typowner, typacl FROM pg_type AS t
     WHERE typnamespace::regnamespace::text ~ '^app'
       AND (typtype IN ('e', 'd', 'r', 'm') OR t.oid = 'app.pair'::regtype)
    UNION ALL
    SELECT 'collation ' || collname, collowner, NULL FROM pg_collation
     WHERE collnamespace = 'app'::regnamespace
    UNION ALL
    SELECT 'table ' || r.oid::regclass, relowner, NULL FROM pg_class AS r -- privileges stay on the coordinator
     WHERE r.oid IN ('app.item'::regclass, 'app.code'::regclass)
)
SELECT name, owner::regrole::text, acl IS NULL,
       ARRAY(SELECT format('%s: %s to %s %s', grantor::regrole, privilege_type,
                           CASE grantee WHEN 0 THEN 'public' ELSE grantee::regrole::text END, is_grantable)
               FROM aclexplode(acl) ORDER BY 1)
  FROM thing ORDER BY 1
"""


def test_a_new_worker_gives_every_object_its_owner_and_privileges(cluster: Cluster) -> None:
    coordinator = cluster.coordinator
    with coordinator.connect() as session:
        for statement in OBJECTS.split(";\n"):
            session.execute(statement)
    try:
        expected = coordinator.query(PRIVILEGES)
        assert len([row for row in expected if row[1] in ("ann", "bob")]) >= 11
        known = cluster.workers[0].query(PRIVILEGES)
        assert known == expected, "commands"
        with coordinator.connect() as session:
            session.add_notice_handler(lambda notice: pytest.fail(str(notice.message_primary)))
            node = cluster.new_node("newcomer")
            session.execute("SELECT strata.add_worker('newcomer', %s)", (node.conninfo(user=None),))
        assert node.query(PRIVILEGES) == expected
        assert state(node) == state(coordinator)
        assert faults(cluster) == []
    finally:
        with coordinator.connect() as session:
            session.execute(
                'DROP SCHEMA app, app_later, "Odd ""schema"" x" CASCADE;'
                "GRANT EXECUTE ON FUNCTION pg_catalog.pg_sleep (double precision) TO PUBLIC"
            )
            remove_worker(session, "newcomer")
        node.stop("immediate")


def test_a_function_with_its_owners_rights_has_them_on_a_new_worker(cluster: Cluster) -> None:
    """Shards on a new worker run the function there: as its owner, not as whoever added the worker."""
    coordinator = cluster.coordinator
    with coordinator.connect() as session:
        session.execute(
            "CREATE ROLE ann; CREATE ROLE bob; CREATE SCHEMA app; GRANT USAGE ON SCHEMA app TO ann, bob;"
            "CREATE FUNCTION app.who (integer) RETURNS text LANGUAGE sql IMMUTABLE SECURITY DEFINER"
            " SET search_path = pg_catalog, pg_temp AS 'SELECT current_user::text';"
            "ALTER FUNCTION app.who (integer) OWNER TO ann"
        )
        node = cluster.add_worker()
        session.execute(
            "CREATE TABLE app.wide (id integer PRIMARY KEY);"
            "SELECT strata.create_distributed_table('app.wide', 'id', shard_count => 12, colocate_with => 'none');"
            "INSERT INTO app.wide SELECT generate_series(1, 60); GRANT SELECT ON app.wide TO bob"
        )
        assert node.value("SELECT count(*) FROM app.wide") > 0
        session.execute("SET ROLE bob")
        query = "SELECT count(*) FROM app.wide WHERE app.who(id) = 'ann'"
        plan = session.execute(f"EXPLAIN (VERBOSE) {query}").fetchall()
        assert any("Remote SQL" in line and "who(wide.id" in line for (line,) in plan), plan
        assert session.execute(query).fetchall() == [(60,)]
        session.execute("RESET ROLE; DROP SCHEMA app CASCADE")


CLIMB = """
CREATE FUNCTION app.try (who text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE step text;
BEGIN
    FOREACH step IN ARRAY ARRAY['ALTER ROLE ann SUPERUSER', 'RESET ROLE', 'RESET SESSION AUTHORIZATION',
                                'ALTER ROLE ann SUPERUSER']
    LOOP
        BEGIN
            EXECUTE step;
        EXCEPTION WHEN OTHERS THEN
            NULL;
        END;
    END LOOP;
    RETURN current_user = who;
END $$
"""

# IMMUTABLE: the planner computes it when the table is created; itself it could only read.
IMMUTABLE_CLIMB = """
CREATE FUNCTION app.climb (who text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE
    AS $$ BEGIN RETURN app.try(who); END $$
"""

LADDER = """
CREATE DOMAIN app.step AS integer CHECK (app.climb('ann'));
CREATE TABLE app.ladder (
    id app.step PRIMARY KEY,
    t text CHECK (app.climb('ann')),
    g boolean GENERATED ALWAYS AS (app.climb('ann')) STORED
);
CREATE INDEX ON app.ladder ((app.climb('ann')));
SELECT strata.create_reference_table('app.ladder');
INSERT INTO app.ladder (id, t) SELECT g, 'step ' || g FROM generate_series(1, 20) AS g
"""


def test_nobody_becomes_a_superuser_by_what_a_new_worker_computes(cluster: Cluster) -> None:
    """CHECK constraints, domains, generated columns and indexes run as the table's owner there."""
    with cluster.coordinator.connect() as session:
        session.execute("CREATE ROLE ann LOGIN; CREATE SCHEMA app AUTHORIZATION ann")
    with cluster.coordinator.connect(options="-c role=ann") as owner:
        for statement in (CLIMB, IMMUTABLE_CLIMB, *LADDER.split(";\n")):
            owner.execute(statement)
    with cluster.coordinator.connect() as session:
        # the administrator's copy needs no privileges of the owner
        session.execute(
            "ALTER SCHEMA app OWNER TO CURRENT_USER; GRANT USAGE ON SCHEMA app TO ann;"
            "REVOKE ALL ON app.ladder FROM ann; ALTER ROLE ann NOLOGIN"
        )
        node = cluster.add_worker()
        assert node.query("SELECT rolsuper FROM pg_roles WHERE rolname = 'ann'") == [(False,)]
        rows = "SELECT count(*), bool_and(g), min(t) FROM app.ladder"
        assert node.query(rows) == [(20, True, "step 1")]
        session.execute("DROP SCHEMA app CASCADE")


def test_a_new_workers_copies_are_not_changed_by_what_it_computes(cluster: Cluster) -> None:
    """The CHECK of one reference table would change another one, which is there already, on that worker alone."""
    with cluster.coordinator.connect() as session:
        session.execute("CREATE ROLE ann LOGIN; CREATE SCHEMA app AUTHORIZATION ann")
    with cluster.coordinator.connect(options="-c role=ann") as owner:
        for statement in (
            "CREATE TABLE app.first (id integer PRIMARY KEY, n integer)",
            "SELECT strata.create_reference_table('app.first'); INSERT INTO app.first VALUES (1, 0)",
            """CREATE FUNCTION app.touch () RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
                UPDATE app.first SET n = n + 1;
                RETURN true;
            EXCEPTION WHEN insufficient_privilege THEN RETURN true; END $$""",
            "CREATE TABLE app.second (id integer PRIMARY KEY CHECK (app.touch()))",
            "SELECT strata.create_reference_table('app.second'); INSERT INTO app.second VALUES (1)",
        ):
            owner.execute(statement)
    node = cluster.add_worker()
    assert node.query("SELECT id FROM app.second") == [(1,)]
    # the coordinator computes the constraint, too, and may change the list: everywhere
    assert node.query("SELECT n FROM app.first") == cluster.workers[0].query(
        "SELECT n FROM app.first"
    )
    cluster.coordinator.execute("DROP SCHEMA app CASCADE")


def test_a_worker_whose_superuser_is_an_ordinary_role_here_is_not_added(cluster: Cluster) -> None:
    cluster.coordinator.execute("CREATE ROLE a")
    node = cluster.new_node("other")
    node.execute("CREATE ROLE a SUPERUSER")
    try:
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="roles") as caught:
            cluster.coordinator.query(
                "SELECT strata.add_worker('other', %s)", (node.conninfo(user=None),)
            )
        assert "superuser" in caught.value.diag.message_detail
        assert (
            cluster.coordinator.value("SELECT count(*) FROM strata.worker WHERE name = 'other'")
            == 0
        )
    finally:
        node.stop("immediate")


def test_a_database_may_have_another_name_on_a_worker(cluster: Cluster) -> None:
    """Settings of a role in the cluster's database are in the worker's database."""
    node = cluster.new_node("renamed")
    node.execute("SELECT 1")
    node.disconnect()
    assert DATABASE == "strata"
    with node.connect("postgres") as connection:
        connection.execute("ALTER DATABASE strata RENAME TO elsewhere")
    node.rules = node.rules.replace(" strata ", " elsewhere ")
    node.restart()
    conninfo = node.conninfo("elsewhere", None)
    try:
        with cluster.coordinator.connect() as session:
            session.execute("CREATE ROLE a; ALTER ROLE a IN DATABASE strata SET work_mem = '5MB'")
            session.execute("SELECT strata.add_worker('renamed', %s)", (conninfo,))
            session.execute("ALTER ROLE a IN DATABASE strata SET jit = on")
            assert faults(cluster) == []
            with node.connect("elsewhere") as there:
                (settings,) = there.execute("SELECT setconfig FROM pg_db_role_setting").fetchone()
            assert sorted(settings) == ["jit=on", "work_mem=5MB"]
            remove_worker(session, "renamed")
    finally:
        node.stop("immediate")


# ---- settings that not everybody may change -----------------------------------------------------------


def test_what_the_session_has_set_holds_for_a_role_that_may_not(
    session: psycopg.Connection,
) -> None:
    session.execute("CREATE ROLE clerk; GRANT SELECT ON item TO clerk")
    session.execute("SET session_replication_role = replica; SET ROLE clerk")
    for _ in range(2):
        assert session.execute("SELECT count(*) FROM item").fetchone() == (20,)
    session.execute("RESET ROLE; RESET session_replication_role; SET ROLE clerk")
    for _ in range(2):
        assert session.execute("SELECT count(*) FROM item").fetchone() == (20,)


def test_a_role_that_was_granted_the_setting_is_a_replica(session: psycopg.Connection) -> None:
    session.execute("CREATE ROLE loader; GRANT INSERT, SELECT ON item TO loader")
    session.execute("GRANT SET ON PARAMETER session_replication_role TO loader")
    session.execute("SET ROLE loader; SET session_replication_role = replica")
    session.execute("BEGIN; INSERT INTO item SELECT g, 0 FROM generate_series(101, 110) AS g")
    assert session.execute("SELECT count(*) FROM item").fetchone() == (30,)
    session.execute("ROLLBACK; RESET session_replication_role")
    assert session.execute("SELECT count(*) FROM item").fetchone() == (20,)
