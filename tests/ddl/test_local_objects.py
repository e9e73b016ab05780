"""Objects that are built on what only the coordinator has stay there, without a word."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from psycopg.errors import Diagnostic

from tests.cluster import Cluster
from tests.pair import Pair

SCHEMA = "test_local_objects"
FUNCTIONS = f"SELECT count(*)::integer FROM pg_proc WHERE pronamespace = '{SCHEMA}'::regnamespace"
TYPES = (
    "SELECT count(*)::integer FROM pg_type AS t LEFT JOIN pg_class AS c ON c.oid = typrelid"
    f" WHERE typnamespace = '{SCHEMA}'::regnamespace AND (typtype = 'd' OR relkind = 'c')"
)


@pytest.fixture
def pair(cluster: Cluster) -> Iterator[Pair]:
    made = Pair(cluster, SCHEMA)
    made.execute(
        "CREATE TABLE here (a integer, b text); INSERT INTO here VALUES (1, 'x');"
        "CREATE VIEW seen AS SELECT a * 2 AS twice FROM here"
    )
    yield made
    made.reset()
    made.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
    assert made.on_workers(f"SELECT to_regnamespace('{SCHEMA}') IS NULL") == [True, True]
    made.close()


def test_types_of_local_columns_are_sent_as_types(pair: Pair) -> None:
    pair.all_same(
        [
            "CREATE FUNCTION f (here.a%TYPE, x seen.twice %TYPE, OUT y here.b%type) LANGUAGE sql IMMUTABLE"
            " AS 'SELECT $2::text || $1'",
            f'CREATE FUNCTION s ("{SCHEMA}"."here"."b"%TYPE) RETURNS SETOF here.b%TYPE LANGUAGE sql AS \'SELECT $1\'',
            "CREATE PROCEDURE p (here.a%TYPE) LANGUAGE sql AS ''",
            "CREATE AGGREGATE top (here.a%TYPE) (SFUNC = int4larger, STYPE = here.a%TYPE)",
            "CREATE TABLE t (k integer, v integer); INSERT INTO t VALUES (1, 2), (3, 4)",
        ]
    )
    assert pair.on_workers(FUNCTIONS) == [4, 4]
    pair.distribute("t", "k")
    pair.all_same(
        [
            "SELECT f(k, v), top(v), s('q') FROM t GROUP BY 1",
            "ALTER FUNCTION f (here.a%TYPE, seen.twice%TYPE) COST 3",
            "COMMENT ON FUNCTION f (here.a%TYPE, seen.twice%TYPE) IS 'of a and b%type'",
            "GRANT EXECUTE ON FUNCTION f (here.a%TYPE, seen.twice%TYPE) TO CURRENT_USER, PUBLIC",
            "ALTER FUNCTION f (here.a%TYPE, seen.twice%TYPE) RENAME TO g",
            "ALTER FUNCTION g (here.a%TYPE, seen.twice%TYPE) OWNER TO SESSION_USER",
            "DROP FUNCTION g (here.a%TYPE, integer), s (here.b%TYPE)",
            "DROP PROCEDURE p (here.a%TYPE)",
            "DROP AGGREGATE top (here.a%TYPE)",
        ]
    )
    assert pair.on_workers(FUNCTIONS) == [0, 0]


def test_a_replaced_function_says_once_what_its_types_stand_for(pair: Pair) -> None:
    for command in ("CREATE", "CREATE OR REPLACE", "CREATE OR REPLACE"):
        said: dict[str, list[str]] = {}
        for name, session in (("ours", pair.ours), ("plain", pair.theirs)):
            heard = said.setdefault(name, [])

            def hear(notice: Diagnostic, heard: list[str] = heard) -> None:
                heard.append(notice.message_primary or "")

            session.add_notice_handler(hear)
            session.execute(
                f"{command} FUNCTION f (here.a%TYPE, {SCHEMA}.seen.twice%TYPE) RETURNS integer"
                " LANGUAGE sql AS 'SELECT $1 + $2'"
            )
            session.remove_notice_handler(hear)
        assert said["ours"] == said["plain"]
        assert len(said["plain"]) == 2


def test_what_is_built_on_local_rows_stays(pair: Pair) -> None:
    pair.all_same(
        [
            "CREATE TYPE one AS (x here, y integer)",
            "CREATE TYPE many AS (x seen[])",
            "CREATE TYPE outer_one AS (o one[])",
            "CREATE DOMAIN d AS outer_one",
            "CREATE FUNCTION takes (d) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
            "CREATE FUNCTION reads (integer) RETURNS integer BEGIN ATOMIC SELECT max(a) + $1 FROM here; END",
            "CREATE FUNCTION calls () RETURNS integer BEGIN ATOMIC SELECT reads(1); END",
            "CREATE DOMAIN checked AS integer CHECK (reads(VALUE) > 0)",
            "CREATE OPERATOR +% (FUNCTION = reads, RIGHTARG = integer)",
            "COMMENT ON TYPE one IS 'stays'",
            "ALTER TYPE one RENAME ATTRIBUTE y TO z",
            "SELECT row(h, 1)::one, calls(), +%2, 7::checked FROM here AS h",
        ]
    )
    assert pair.on_workers(FUNCTIONS) == [0, 0]
    assert pair.on_workers(TYPES) == [0, 0]
    pair.all_same(
        [
            "DROP OPERATOR +% (NONE, integer)",
            "DROP DOMAIN checked",
            "DROP FUNCTION calls (), reads (integer), takes (d)",
            "DROP DOMAIN d",
            "DROP TYPE outer_one, many, one",
        ]
    )


def test_one_statement_names_both_kinds(pair: Pair) -> None:
    pair.all_same(
        [
            "CREATE FUNCTION mine (here) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
            "CREATE FUNCTION \"of All\" (integer[], x text DEFAULT 1) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
            "CREATE PROCEDURE my_proc (here) LANGUAGE sql AS ''",
            "CREATE PROCEDURE all_proc (integer, OUT x integer) LANGUAGE sql AS 'SELECT 1'",
            "CREATE FUNCTION last_row (here, here) RETURNS here LANGUAGE sql AS 'SELECT $2'",
            "CREATE AGGREGATE my_last (here) (SFUNC = last_row, STYPE = here)",
            "CREATE AGGREGATE of_all (integer) (SFUNC = int4larger, STYPE = integer)",
            "CREATE TYPE my_type AS (h here)",
            "CREATE DOMAIN my_domain AS my_type",
            "CREATE DOMAIN all_domain AS integer",
            "CREATE TYPE all_type AS (a integer)",
        ]
    )
    assert pair.on_workers(FUNCTIONS) == [3, 3]
    assert pair.on_workers(TYPES) == [2, 2]
    pair.all_same(
        [
            'REVOKE ALL ON FUNCTION mine (here), "of All" FROM PUBLIC',
            'GRANT EXECUTE ON FUNCTION mine, "of All" TO CURRENT_ROLE, pg_monitor WITH GRANT OPTION',
            'REVOKE GRANT OPTION FOR EXECUTE ON ROUTINE mine, "of All" (integer[], text) FROM pg_monitor CASCADE',
            "GRANT USAGE ON DOMAIN my_domain, all_domain TO pg_monitor",
            "GRANT ALL ON TYPE my_type, all_type TO pg_monitor",
        ]
    )
    granted = (
        "SELECT string_agg(format('%s %s', coalesce(proacl::text, ''), typacl), ',' ORDER BY typname) FROM"
        f" (SELECT proacl FROM pg_proc WHERE oid = '{SCHEMA}.\"of All\"'::regproc) AS p, pg_type"
        f" WHERE typname IN ('all_domain', 'all_type') AND typnamespace = '{SCHEMA}'::regnamespace"
    )
    ((expected,),) = pair.same(granted)
    assert "pg_monitor=X/" in expected
    assert pair.on_workers(granted) == [expected, expected]
    pair.all_same(
        [
            'DROP FUNCTION IF EXISTS mine, nothing, "of All"',
            "DROP PROCEDURE my_proc, all_proc",
            "DROP AGGREGATE of_all (integer), my_last (here)",
            "DROP FUNCTION last_row",
            "DROP DOMAIN all_domain, my_domain CASCADE",
            "DROP TYPE my_type, all_type RESTRICT",
        ]
    )
    assert pair.on_workers(FUNCTIONS) == [0, 0]
    assert pair.on_workers(TYPES) == [0, 0]


@pytest.mark.parametrize("kind", ["reference", "distributed"])
def test_they_follow_their_table(pair: Pair, kind: str) -> None:
    pair.execute(
        "CREATE TYPE one AS (x here, y integer); CREATE DOMAIN d AS one[];"
        "CREATE FUNCTION pack (here, integer) RETURNS one LANGUAGE sql IMMUTABLE AS 'SELECT ROW($1, $2)::test_local_objects.one';"
        "CREATE FUNCTION packs (here) RETURNS d LANGUAGE sql IMMUTABLE"
        " AS 'SELECT ARRAY[test_local_objects.pack($1, 7)]::test_local_objects.d';"
        "CREATE FUNCTION bigger (one, one) RETURNS one LANGUAGE sql IMMUTABLE AS 'SELECT greatest($1, $2)';"
        "CREATE AGGREGATE top (one) (SFUNC = bigger, STYPE = one)"
    )
    for _ in range(2):
        if kind == "reference":
            pair.reference("here")
        else:
            pair.distribute("here", "a")
        assert pair.on_workers(TYPES) == [2, 2]
        assert pair.on_workers(FUNCTIONS) == [4, 4]
        pair.execute(
            "CREATE TABLE u (k integer, o one); INSERT INTO u SELECT a, pack(h, a) FROM here AS h"
        )
        pair.distribute("u", "k")
        pair.same("SELECT top(o), (packs((o).x)) FROM u GROUP BY k, o")
        pair.execute("DROP TABLE u")
        pair.ours.execute("SELECT strata.undistribute_table('here')")
        assert pair.on_workers(TYPES) == [0, 0]
        assert pair.on_workers(FUNCTIONS) == [0, 0]
    pair.same("SELECT packs(h) FROM here AS h")
    pair.execute(
        "DROP AGGREGATE top (one); DROP FUNCTION bigger, packs, pack; DROP TYPE one CASCADE"
    )


def test_what_needs_several_tables_of_a_tree_follows_it_once(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE below (c integer) INHERITS (here); CREATE TYPE first AS (y below);"
        "CREATE TYPE pairs AS (x here, y below, z first); CREATE DOMAIN around AS pairs[];"
        "CREATE FUNCTION takes (around, below) RETURNS integer LANGUAGE sql AS 'SELECT 1'"
    )
    for _ in range(2):
        pair.reference("here")
        assert pair.on_workers(TYPES) == [3, 3]
        assert pair.on_workers(FUNCTIONS) == [1, 1]
        pair.ours.execute("SELECT strata.undistribute_table('here')")
        assert pair.on_workers(TYPES) == [0, 0]
        assert pair.on_workers(FUNCTIONS) == [0, 0]


def test_an_altered_type_moves(pair: Pair) -> None:
    pair.execute("CREATE TYPE c AS (y integer)")
    assert pair.on_workers(TYPES) == [1, 1]
    pair.same("ALTER TYPE c ADD ATTRIBUTE x here")
    assert pair.on_workers(TYPES) == [0, 0]
    pair.same("ALTER TYPE c DROP ATTRIBUTE x")
    assert pair.on_workers(TYPES) == [1, 1]
    pair.same("DROP TYPE c")
    assert pair.on_workers(TYPES) == [0, 0]


def test_a_new_worker_does_not_get_them(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(workers=1)
    cluster.coordinator.execute("CREATE TABLE here (a integer)")
    for command in (
        "CREATE TYPE one AS (x here)",
        "CREATE FUNCTION f (one) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "CREATE TYPE two AS (a integer)",
    ):
        cluster.coordinator.execute(command)
    worker = cluster.add_worker()
    assert worker.query("SELECT to_regtype('one') IS NULL, to_regtype('two') IS NULL") == [
        (True, False)
    ]
