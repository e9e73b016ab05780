"""What workers have belongs to the role that owns it on the coordinator, with its grants, whichever way it came there."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from tests.cluster import DATABASE, Cluster
from tests.same_owners import assert_same_owners, read_owners

ROLES = {
    "alice": 'we ird".""a\'b""',
    "bob": "Bob, the \\ builder",
    "carol": "carol=X/",
    "dan": "dän",
    "boss": "own boss",
}
ADMIN = "postgres"


def named(text: str) -> str:
    """The text with {alice} and the like as quoted names, {alice_text} as literals."""
    for key, role in ROLES.items():
        text = text.replace(f"{{{key}}}", sql.Identifier(role).as_string(None))
        text = text.replace(f"{{{key}_text}}", sql.Literal(role).as_string(None))
    return text


class Stage:
    """Sessions of several roles on the coordinator, in the schemas of this test."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.sessions: dict[str, psycopg.Connection] = {}

    def session(self, role: str) -> psycopg.Connection:
        if role not in self.sessions:
            user = {"user": ROLES[role]} if role in ROLES else {}
            session = self.cluster.coordinator.connect(**user)
            session.execute("SET search_path = pg_catalog, strata; SET client_min_messages = error")
            self.sessions[role] = session
        return self.sessions[role]

    def run(self, role: str, statements: str) -> None:
        for statement in named(statements).split(";;"):
            self.session(role).execute(statement)

    def rows(self, role: str, query: str) -> list[tuple]:
        return self.session(role).execute(named(query)).fetchall()

    def close(self) -> None:
        for session in self.sessions.values():
            session.close()


SCHEMAS = ("own_a", '"own ""b"" x"', "own_t")


@pytest.fixture
def stage(cluster: Cluster) -> Iterator[Stage]:
    for role in ROLES.values():
        cluster.create_role(role)
    made = Stage(cluster)
    made.run(ADMIN, f"GRANT CREATE ON DATABASE {DATABASE} TO {{alice}}, {{bob}}, {{carol}}")
    made.run(
        ADMIN,
        "CREATE SCHEMA own_a AUTHORIZATION {alice};;"
        'CREATE SCHEMA "own ""b"" x" AUTHORIZATION {bob};;'
        "CREATE SCHEMA own_t AUTHORIZATION {carol};;"
        'GRANT USAGE ON SCHEMA own_a, own_t, "own ""b"" x" TO PUBLIC',
    )
    made.run(
        "carol",
        "CREATE TABLE own_t.rows (k integer PRIMARY KEY, v integer);;"
        "INSERT INTO own_t.rows SELECT g, g FROM generate_series(1, 20) AS g",
    )
    yield made
    made.close()
    with cluster.coordinator.connect() as session:
        for schema in SCHEMAS:
            session.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        for role in ROLES.values():
            session.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(role)))
            session.execute(sql.SQL("ALTER ROLE {} NOSUPERUSER").format(sql.Identifier(role)))
        for group, member in (("boss", "alice"), ("alice", "bob"), ("bob", "carol")):
            session.execute(named(f"REVOKE {{{group}}} FROM {{{member}}}"))
        for worker in cluster.workers:
            left = [thing for thing in read_owners(worker) if "own_" in thing[1]]
            assert left == []


DISTRIBUTE = {
    "distributed": "SELECT create_distributed_table('own_t.rows', 'k', shard_count => 4)",
    "reference": "SELECT create_reference_table('own_t.rows')",
}

# What depends on rows of a local table, of each kind, and what is built on that in turn.
FOLLOWERS = """
CREATE TYPE own_a.one AS (x own_t.rows, y integer);;
CREATE DOMAIN own_a.few AS own_a.one[] CHECK (cardinality(VALUE) < 9);;
CREATE FUNCTION own_a.who (own_t.rows) RETURNS text LANGUAGE sql IMMUTABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS 'SELECT current_user::text || left($1.k::text, 0)';;
CREATE FUNCTION own_a."more of ""it" (own_a.one, "x ""y" own_a.few DEFAULT NULL) RETURNS own_a.few
    LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $2 || $1; END';;
CREATE PROCEDURE own_a.run (INOUT own_t.rows, integer) LANGUAGE sql AS 'SELECT $1';;
CREATE FUNCTION own_a.later (own_a.one, own_a.one) RETURNS own_a.one LANGUAGE sql IMMUTABLE AS 'SELECT $2';;
CREATE AGGREGATE own_a.last (own_a.one) (SFUNC = own_a.later, STYPE = own_a.one);;
CREATE FUNCTION own_a.count_them () RETURNS bigint SECURITY DEFINER BEGIN ATOMIC SELECT count(*) FROM own_t.rows; END;;
REVOKE ALL ON TYPE own_a.one FROM PUBLIC;;
GRANT USAGE ON TYPE own_a.one TO {bob} WITH GRANT OPTION;;
REVOKE ALL ON FUNCTION own_a.who (own_t.rows) FROM PUBLIC, {alice};;
GRANT EXECUTE ON FUNCTION own_a.who (own_t.rows) TO {bob} WITH GRANT OPTION;;
REVOKE EXECUTE ON FUNCTION own_a.last (own_a.one) FROM PUBLIC;;
GRANT ALL ON FUNCTION own_a.last (own_a.one) TO {dan}
"""
CHAIN = (
    (
        "bob",
        "GRANT EXECUTE ON FUNCTION own_a.who (own_t.rows) TO {dan} WITH GRANT OPTION;;"
        "GRANT USAGE ON TYPE own_a.one TO {dan}",
    ),
    ("dan", "GRANT EXECUTE ON FUNCTION own_a.who (own_t.rows) TO {carol} WITH GRANT OPTION"),
    ("carol", "GRANT EXECUTE ON FUNCTION own_a.who (own_t.rows) TO PUBLIC"),
)


def make_followers(stage: Stage) -> None:
    stage.run("carol", "GRANT SELECT ON own_t.rows TO {alice}")
    stage.run("alice", FOLLOWERS)
    for role, grants in CHAIN:
        stage.run(role, grants)


@pytest.mark.parametrize("kind", DISTRIBUTE)
@pytest.mark.parametrize("distributor", [ADMIN, "carol"])
def test_what_follows_a_table_stays_its_owners(stage: Stage, kind: str, distributor: str) -> None:
    make_followers(stage)
    for _ in range(2):
        stage.run(distributor, DISTRIBUTE[kind])
        things = assert_same_owners(stage.cluster)
        owners = [row[0] for (_, name), row in things.items() if name.startswith("own_a.")]
        assert len(owners) >= 11
        assert set(owners) == {sql.Identifier(ROLES["alice"]).as_string(None)}
        stage.run("bob", "REVOKE EXECUTE ON FUNCTION own_a.who (own_t.rows) FROM {dan} CASCADE")
        things = assert_same_owners(stage.cluster)
        assert len(things["function", "own_a.who(own_t.rows)"][2]) == 1
        stage.run(distributor, "SELECT undistribute_table('own_t.rows')")
        assert_same_owners(stage.cluster)
        for role, grants in CHAIN:
            stage.run(role, grants)


@pytest.mark.parametrize("kind", DISTRIBUTE)
@pytest.mark.parametrize("distributor", [ADMIN, "carol"])
def test_a_function_that_follows_runs_as_its_owner(
    stage: Stage, kind: str, distributor: str
) -> None:
    """The rights that alice's SECURITY DEFINER function lends are alice's, on every node."""
    make_followers(stage)
    stage.run(distributor, DISTRIBUTE[kind])
    query = "SELECT DISTINCT own_a.who(r) FROM own_t.rows AS r WHERE own_a.who(r) = {alice_text}"
    assert stage.rows("carol", query) == [(ROLES["alice"],)]
    for worker in stage.cluster.workers:
        with worker.connect() as session:
            session.execute("SET search_path = pg_catalog")
            ran = session.execute("SELECT own_a.who(ROW(1, 1)::own_t.rows)").fetchall()
        assert ran == [(ROLES["alice"],)]


# ---- paths -----------------------------------------------------------------------------------------

# Each kind of object that workers get, made by alice in a schema of hers.
KINDS = """
CREATE TYPE own_a.mood AS ENUM ('good', 'bad');;
CREATE TYPE own_a.pair AS (a integer, b own_a.mood);;
CREATE DOMAIN own_a.small AS integer CHECK (VALUE < 1000);;
CREATE TYPE own_a.span AS RANGE (SUBTYPE = integer);;
CREATE COLLATION own_a.german (LOCALE = 'C', PROVIDER = libc);;
CREATE FUNCTION own_a.f (integer) RETURNS integer LANGUAGE sql IMMUTABLE SECURITY DEFINER AS 'SELECT $1';;
CREATE FUNCTION own_a.g (integer, integer) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 < $2';;
CREATE PROCEDURE own_a.p (integer) LANGUAGE sql AS 'SELECT 1';;
CREATE AGGREGATE own_a.total (integer) (SFUNC = int4pl, STYPE = integer, INITCOND = '0');;
CREATE OPERATOR own_a.<<< (FUNCTION = own_a.g, LEFTARG = integer, RIGHTARG = integer);;
CREATE TEXT SEARCH DICTIONARY own_a.dict (TEMPLATE = simple);;
CREATE TEXT SEARCH CONFIGURATION own_a.config (COPY = simple);;
CREATE CONVERSION own_a.conv FOR 'LATIN1' TO 'UTF8' FROM iso8859_1_to_utf8
"""

# What is done then; the statement of a superuser in the name of whom it says, with alice's objects there.
PATHS: dict[str, list[tuple[str, str]]] = {
    "first made": [],
    "by a superuser who acts as her": [
        (
            ADMIN,
            "SET ROLE {alice};; CREATE FUNCTION own_a.h () RETURNS integer LANGUAGE sql AS 'SELECT 1';; RESET ROLE",
        )
    ],
    "by a function with her rights": [
        (
            "alice",
            "CREATE FUNCTION own_a.make () RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN"
            " CREATE FUNCTION own_a.made () RETURNS integer LANGUAGE sql AS 'SELECT 1';"
            " GRANT EXECUTE ON FUNCTION own_a.made () TO {bob} WITH GRANT OPTION;"
            " CREATE TYPE own_a.made AS ENUM (); END $$",
        ),
        ("bob", "SELECT own_a.make()"),
        ("bob", "GRANT EXECUTE ON FUNCTION own_a.made () TO {dan}"),
    ],
    "replaced by a superuser": [
        (
            ADMIN,
            "CREATE OR REPLACE FUNCTION own_a.f (integer) RETURNS integer LANGUAGE sql IMMUTABLE"
            " SECURITY DEFINER AS 'SELECT $1 + 0';;"
            "CREATE OR REPLACE AGGREGATE own_a.total (integer) (SFUNC = int4pl, STYPE = integer, INITCOND = '1')",
        )
    ],
    "given away": [
        (
            ADMIN,
            "ALTER FUNCTION own_a.f (integer) OWNER TO {bob};; ALTER AGGREGATE own_a.total (integer) OWNER TO {bob};;"
            "ALTER TYPE own_a.span OWNER TO {dan};; ALTER DOMAIN own_a.small OWNER TO {dan};;"
            "ALTER TYPE own_a.pair OWNER TO {dan};; ALTER OPERATOR own_a.<<< (integer, integer) OWNER TO {bob};;"
            "ALTER COLLATION own_a.german OWNER TO {dan};; ALTER SCHEMA own_a OWNER TO {bob}",
        )
    ],
    "given away by herself": [
        (ADMIN, "GRANT {boss} TO {alice};; GRANT CREATE ON SCHEMA own_a TO {boss}"),
        (
            "alice",
            "GRANT EXECUTE ON FUNCTION own_a.f (integer) TO {bob};;"
            "ALTER FUNCTION own_a.f (integer) OWNER TO {boss};; ALTER TYPE own_a.mood OWNER TO {boss};;"
            "SET ROLE {boss};; GRANT ALL ON FUNCTION own_a.f (integer) TO {carol};; RESET ROLE",
        ),
    ],
    "reassigned": [(ADMIN, "REASSIGN OWNED BY {alice} TO {bob}")],
    "dropped with its owner's": [
        (
            "alice",
            "GRANT EXECUTE ON FUNCTION own_a.f (integer) TO {bob}, {carol} WITH GRANT OPTION",
        ),
        (ADMIN, "DROP OWNED BY {bob} CASCADE"),
    ],
    "grants of several roles": [
        (ADMIN, "GRANT {alice} TO {bob};; GRANT {bob} TO {carol}"),
        (
            "alice",
            "GRANT EXECUTE ON FUNCTION own_a.f (integer) TO {dan} WITH GRANT OPTION;;"
            "GRANT USAGE ON SCHEMA own_a TO {dan}, {boss} WITH GRANT OPTION;;"
            "REVOKE EXECUTE ON FUNCTION own_a.g (integer, integer) FROM PUBLIC, {alice}",
        ),
        ("dan", "GRANT EXECUTE ON FUNCTION own_a.f (integer) TO {boss} WITH GRANT OPTION"),
        (
            "carol",
            "GRANT EXECUTE ON FUNCTION own_a.f (integer) TO {dan};;"
            "GRANT USAGE ON TYPE own_a.mood TO {dan};; REVOKE ALL ON TYPE own_a.span FROM PUBLIC",
        ),
        (
            "boss",
            "GRANT EXECUTE ON FUNCTION own_a.f (integer) TO {carol};; GRANT USAGE ON SCHEMA own_a TO {carol}",
        ),
        (ADMIN, "ALTER ROLE {boss} SUPERUSER"),
        (
            "boss",
            "GRANT EXECUTE ON ALL ROUTINES IN SCHEMA own_a TO {carol};; GRANT ALL ON ALL PROCEDURES IN SCHEMA own_a TO {bob}",
        ),
        ("alice", "REVOKE GRANT OPTION FOR USAGE ON SCHEMA own_a FROM {boss} CASCADE"),
    ],
    "one of two grants": [
        (ADMIN, "GRANT {dan}, {boss} TO {carol}"),
        ("alice", "GRANT EXECUTE ON FUNCTION own_a.f (integer) TO {dan}, {boss} WITH GRANT OPTION"),
        ("carol", "GRANT EXECUTE ON FUNCTION own_a.f (integer) TO {bob}"),
        (ADMIN, "REVOKE {dan}, {boss} FROM {carol}"),
    ],
    "default privileges": [
        (
            "alice",
            "ALTER DEFAULT PRIVILEGES REVOKE ALL ON FUNCTIONS FROM PUBLIC;;"
            "ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO {bob} WITH GRANT OPTION;;"
            "ALTER DEFAULT PRIVILEGES REVOKE USAGE ON TYPES FROM PUBLIC;;"
            "ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO {dan} WITH GRANT OPTION;;"
            "CREATE FUNCTION own_a.d () RETURNS integer LANGUAGE sql AS 'SELECT 1';;"
            "CREATE TYPE own_a.d AS (a integer);; CREATE TYPE own_a.r AS RANGE (SUBTYPE = text);;"
            "CREATE SCHEMA own_later;;"
            "CREATE TABLE own_a.t (k integer);; SELECT create_distributed_table('own_a.t', 'k')",
        ),
    ],
    "elements of a schema": [
        (
            ADMIN,
            "CREATE SCHEMA own_later AUTHORIZATION {alice} CREATE TABLE t (k integer)"
            " GRANT USAGE ON SCHEMA own_later TO {bob} GRANT EXECUTE ON FUNCTION own_a.f (integer) TO {dan}"
            " GRANT SELECT ON t TO {dan}",
        )
    ],
    "undone": [
        (
            "alice",
            "BEGIN;; SAVEPOINT s;; GRANT ALL ON FUNCTION own_a.f (integer) TO {bob};; ROLLBACK TO s;;"
            "GRANT ALL ON FUNCTION own_a.f (integer) TO {dan};; COMMIT;; BEGIN;;"
            "CREATE OR REPLACE FUNCTION own_a.f (integer) RETURNS integer LANGUAGE sql AS 'SELECT 3';; ROLLBACK",
        ),
        (
            ADMIN,
            "BEGIN;; ALTER FUNCTION own_a.f (integer) OWNER TO {bob};; SAVEPOINT s;;"
            "ALTER FUNCTION own_a.f (integer) OWNER TO {dan};; ROLLBACK TO s;; COMMIT",
        ),
    ],
    "built in": [
        (
            ADMIN,
            "REVOKE EXECUTE ON FUNCTION pg_catalog.pg_sleep (double precision) FROM PUBLIC;;"
            "GRANT EXECUTE ON FUNCTION pg_catalog.pg_sleep (double precision) TO {alice} WITH GRANT OPTION;;"
            "GRANT USAGE ON LANGUAGE plpgsql TO {alice} WITH GRANT OPTION;; GRANT USAGE ON TYPE pg_catalog.int4 TO {bob}",
        ),
        ("alice", "GRANT EXECUTE ON FUNCTION pg_catalog.pg_sleep (double precision) TO {dan}"),
    ],
    "an extension": [
        (
            "alice",
            "ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO {bob};; CREATE EXTENSION citext SCHEMA own_a",
        ),
        (
            ADMIN,
            "ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO {dan};; CREATE EXTENSION tablefunc SCHEMA own_t;;"
            "ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM {dan};;"
            "ALTER FUNCTION own_t.normal_rand OWNER TO {carol};; REVOKE ALL ON TYPE own_a.citext FROM PUBLIC",
        ),
    ],
    "an extension by a role that acts": [
        (ADMIN, "SET ROLE {alice};; CREATE EXTENSION citext SCHEMA own_a;; RESET ROLE")
    ],
    "a row type": [
        (
            "carol",
            "SELECT create_reference_table('own_t.rows');; GRANT USAGE ON TYPE own_t.rows TO {bob} WITH GRANT OPTION",
        ),
        ("bob", "GRANT USAGE ON TYPE own_t.rows TO {dan}"),
    ],
    "a row type of before": [
        (
            "carol",
            "REVOKE USAGE ON TYPE own_t.rows FROM PUBLIC;; GRANT USAGE ON TYPE own_t.rows TO {bob};;"
            "SELECT create_distributed_table('own_t.rows', 'k')",
        ),
    ],
    "replaced, and comes": [
        ("carol", "GRANT SELECT ON own_t.rows TO {alice}"),
        (
            "alice",
            "CREATE FUNCTION own_a.n () RETURNS bigint SECURITY DEFINER BEGIN ATOMIC SELECT count(*) FROM own_t.rows; END;;"
            "CREATE FUNCTION own_a.nn () RETURNS bigint BEGIN ATOMIC SELECT own_a.n(); END;;"
            "GRANT EXECUTE ON FUNCTION own_a.n () TO {bob}",
        ),
        (
            ADMIN,
            "CREATE OR REPLACE FUNCTION own_a.n () RETURNS bigint SECURITY DEFINER BEGIN ATOMIC SELECT 1::bigint; END",
        ),
    ],
    "replaced, and stays": [
        ("carol", "GRANT SELECT ON own_t.rows TO {alice}"),
        (
            "alice",
            "CREATE FUNCTION own_a.n () RETURNS bigint BEGIN ATOMIC SELECT 1::bigint; END;;"
            "CREATE FUNCTION own_a.nn () RETURNS bigint BEGIN ATOMIC SELECT own_a.n(); END",
        ),
        (
            ADMIN,
            "CREATE OR REPLACE FUNCTION own_a.n () RETURNS bigint BEGIN ATOMIC SELECT count(*) FROM own_t.rows; END",
        ),
    ],
    "an attribute that goes": [
        (
            "alice",
            "CREATE TYPE own_a.c AS (x own_t.rows, y integer);; GRANT USAGE ON TYPE own_a.c TO {bob};;"
            "CREATE FUNCTION own_a.c (own_a.c) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        ),
        (ADMIN, "ALTER TYPE own_a.c DROP ATTRIBUTE x"),
    ],
}


@pytest.fixture
def clean(cluster: Cluster) -> Iterator[None]:
    yield
    with cluster.coordinator.connect() as session:
        for statement in (
            "DROP EXTENSION IF EXISTS citext, tablefunc CASCADE",
            "DROP SCHEMA IF EXISTS own_later, own_later_18, own_later_20 CASCADE",
            "GRANT EXECUTE ON FUNCTION pg_catalog.pg_sleep (double precision) TO PUBLIC",
        ):
            session.execute(statement)


@pytest.mark.sample(3)
@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("path", PATHS)
def test_owners_and_grants_are_the_same_everywhere(stage: Stage, path: str) -> None:
    stage.run("alice", KINDS)
    for role, statements in PATHS[path]:
        stage.run(role, statements)
        assert_same_owners(stage.cluster)
    assert_same_owners(stage.cluster)


# What add_worker() does not copy.
NOT_COPIED = ("OPERATOR", "TEXT SEARCH", "CONVERSION")
LATER = (
    "by a superuser who acts as her",
    "replaced by a superuser",
    "default privileges",
    "elements of a schema",
    "grants of several roles",
    "built in",
    "an extension",
    "a row type of before",
    "given away",
)


@pytest.mark.usefixtures("clean")
def test_owners_and_grants_are_the_same_on_a_new_worker(stage: Stage) -> None:
    cluster = stage.cluster
    for statement in KINDS.split(";;"):
        if not any(f"CREATE {kind}" in statement for kind in NOT_COPIED):
            stage.run("alice", statement)
    for path in LATER:
        for role, statements in PATHS[path]:
            for statement in statements.split(";;"):
                if "own_a.<<<" not in statement:
                    stage.run(role, statement.replace("own_later", f"own_later_{len(path)}"))
    expected = assert_same_owners(cluster)
    session = stage.session(ADMIN)
    notices: list[str] = []
    session.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
    session.execute("SET client_min_messages = notice")
    node = cluster.new_node("newcomer")
    cluster.workers.append(node)
    try:
        session.execute("SELECT strata.add_worker('newcomer', %s)", (node.conninfo(user=None),))
        assert assert_same_owners(cluster) == expected
        assert notices in ([], ['worker "newcomer" holds no shards yet'])
    finally:
        session.execute(
            "SELECT strata.remove_worker(name) FROM strata.worker WHERE name = 'newcomer'"
        )
        cluster.workers.remove(node)
        node.stop("immediate")
