"""Whose code runs as whom: a view opens its tables, and nothing else, on workers as on one PostgreSQL.

An ordinary role writes functions, operators, casts, domains and aggregates, marks them IMMUTABLE so that they
run on workers, and uses them on views of others.  Wherever they run they are the caller's, and what they try is not done.

The set-up is in callers.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.access.callers import (
    ATTEMPTS,
    CODE,
    EXPRESSIONS,
    MALLORY,
    OWNER,
    SCHEMA,
    SETUP,
    STATE,
    TABLES,
    UPDATABLE,
    VIEW_NAMES,
    VIEWS,
)
from tests.assert_same import run
from tests.cluster import Cluster
from tests.pair import Pair, open_pair
from tests.twin import Twin


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    for role in (MALLORY, OWNER):
        cluster.create_role(role)
    with open_pair(cluster, SCHEMA) as made:
        made.execute("DROP SCHEMA IF EXISTS callers_closed CASCADE")
        made.execute(SETUP)
        for table in TABLES:
            with_table = TABLES[0] if table != TABLES[0] else "none"
            made.ours.execute(
                f"SELECT create_distributed_table('{table}', 'k', colocate_with => '{with_table}')"
            )
        made.ours.execute("SELECT create_reference_table('callers_closed.ref')")
        made.execute(VIEWS)
        made.execute(
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON {', '.join(VIEW_NAMES)} TO {MALLORY}"
        )
        made.execute(f"SET ROLE {MALLORY}")
        made.execute(CODE)
        made.execute("RESET ROLE")
        made.ours.execute(
            "SELECT create_distributed_table('mine', 'k', colocate_with => 'callers_closed.secret')"
        )
        made.execute("INSERT INTO mine SELECT g, g FROM generate_series(1, 40) AS g")
        yield made
        made.execute("RESET ROLE; DROP SCHEMA callers_closed CASCADE")
        made.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
    for node in cluster.nodes:
        node.execute(f"DROP OWNED BY {MALLORY}, {OWNER}")


@pytest.fixture
def mallory(as_role: Callable[[str], Twin]) -> Twin:
    return as_role(MALLORY)


@pytest.fixture
def unchanged(pair: Pair) -> Iterator[None]:
    """Nothing differs on any worker afterwards."""

    def look() -> list[list[tuple]]:
        return [worker.query(STATE) for worker in pair.cluster.workers]

    before = look()
    yield
    assert look() == before


# ---- who runs --------------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("view", VIEW_NAMES[:-1])
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_code_over_a_view_is_the_callers(mallory: Twin, view: str, expression: str) -> None:
    mallory.undone(
        f"SELECT DISTINCT {expression} FROM {view}",
        f"SELECT k, {expression} FROM {view} WHERE k < 9",
        f"SELECT count(*) FROM {view} WHERE {expression} <> 'nobody'",
        f"SELECT {expression}, count(*) FROM {view} GROUP BY 1",
        f"SELECT max({expression}), whos(v) FROM {view}",
        f"SELECT m.k, a.{'k' if view != 'of_reference' else 'v'} FROM (SELECT k, v, {expression} AS e FROM {view}) AS a"
        " JOIN mine AS m USING (k) WHERE e <> 'nobody'",
    )
    copied = []
    for connection in (mallory.ours, mallory.theirs):
        with connection.cursor().copy(
            f"COPY (SELECT k, {expression} FROM {view} WHERE k < 9 ORDER BY k) TO STDOUT"
        ) as copy:
            copied.append([bytes(part) for part in copy])
    assert b"".join(copied[0]) == b"".join(copied[1])


@pytest.mark.parametrize("view", UPDATABLE)
@pytest.mark.parametrize("expression", [code for code in EXPRESSIONS if "===" not in code])
def test_code_in_changes_of_a_view_is_the_callers(
    mallory: Twin, view: str, expression: str, unchanged: None
) -> None:
    mallory.undone(
        f"UPDATE {view} SET v = v + 1 WHERE {expression} <> 'nobody' AND k < 9 RETURNING k, v, {expression}",
        f"UPDATE {view} SET v = length({expression}) WHERE k = 4",
        f"DELETE FROM {view} WHERE {expression} <> 'nobody' AND k < 9 RETURNING {expression}",
        f"SELECT count(*), sum(v) FROM {view}",
    )


@pytest.mark.parametrize("view", UPDATABLE)
def test_rows_are_inserted_through_a_view(mallory: Twin, view: str, unchanged: None) -> None:
    mallory.undone(
        f"INSERT INTO {view} VALUES (100, 1), (101, 2)",
        f"INSERT INTO {view} (k) VALUES (102) RETURNING k, v",
        f"INSERT INTO {view} SELECT k + 200, v FROM mine",
        f"INSERT INTO {view} VALUES (100, 5) ON CONFLICT DO NOTHING",
        f"SELECT count(*), sum(v) FROM {view}",
    )


def test_a_view_of_an_invoker_opens_nothing(mallory: Twin) -> None:
    mallory.denied("SELECT * FROM of_invoker")
    mallory.denied("UPDATE of_invoker SET v = 1")


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_prepared_statements_and_cursors_are_the_callers(mallory: Twin, mode: str) -> None:
    mallory.execute(f"SET plan_cache_mode = {mode}")
    mallory.execute("PREPARE p (integer) AS SELECT DISTINCT who(v) FROM of_superuser WHERE k > $1")
    mallory.same("EXECUTE p (3)")
    mallory.undone(
        "EXECUTE p (4)",
        "DECLARE c CURSOR FOR SELECT k, who(v) FROM of_owner ORDER BY k",
        "FETCH 5 FROM c",
        "SAVEPOINT s",
        "SELECT DISTINCT who(v) FROM barrier",
        "ROLLBACK TO SAVEPOINT s",
        "FETCH 5 FROM c",
        "EXECUTE p (5)",
    )
    mallory.execute("DEALLOCATE p; RESET plan_cache_mode")


# ---- what is tried -----------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("attempt", ATTEMPTS)
@pytest.mark.parametrize("caller", ["attempt", "attempt_all"])
def test_what_code_tries_on_workers_is_not_done(
    mallory: Twin, pair: Pair, attempt: str, caller: str, unchanged: None
) -> None:
    text = "'" + attempt.replace("'", "''") + "'"
    for statement in (
        f"SELECT DISTINCT {caller}(v, {text}) FROM of_superuser",
        f"SELECT DISTINCT {caller}(v, {text}) FROM of_owner",
        f"SELECT DISTINCT {caller}(v, {text}) FROM mine",
        f"SELECT DISTINCT {caller}(v, {text}) FROM of_reference",
        f"SELECT count(*) FROM of_owner WHERE {caller}(v, {text}) = 'done'",
        f"SELECT count(*) FROM of_superuser WHERE {caller}(k, {text}) = 'done'",
        f"SELECT count(*) FROM mine WHERE {caller}(v, {text}) = 'done'",
        f"SELECT max({caller}(v, {text})) FROM over_view",
        f"UPDATE of_superuser SET v = v WHERE k = 4 RETURNING {caller}(v, {text})",
        f"SELECT count(*) FROM of_both WHERE {caller}(1, {text}) = 'done'",  # when it is planned
    ):
        ours = run(mallory.ours, statement)
        theirs = run(mallory.theirs, statement)
        if (
            attempt.startswith(("SET", "RESET"))
            or "strata_worker" in attempt
            or "set_config" in attempt
        ):
            mallory.execute("RESET ROLE")
        assert ours.sqlstate in (None, theirs.sqlstate), (statement, ours)
        if ours.rows is not None and "count" not in statement and "strata_worker" not in attempt:
            allowed = {value for (value,) in theirs.rows or []} | {"42501", "25006", "0A000"}
            assert {value for (value,) in ours.rows} <= allowed, (statement, ours.rows, theirs.rows)
    assert pair.rows(f"SELECT rolsuper FROM pg_roles WHERE rolname = '{MALLORY}'") == [(False,)]


@pytest.mark.parametrize(
    "body",
    [
        "SELECT count(*)::text FROM test_callers.mine",
        "INSERT INTO test_callers.mine VALUES (-1, -1) RETURNING ''",
        "UPDATE test_callers.mine SET v = -1 RETURNING ''",
        "WITH d AS (DELETE FROM test_callers.mine RETURNING 1) SELECT count(*)::text FROM d",
    ],
)
def test_code_on_workers_does_not_touch_even_the_callers_own_tables(
    mallory: Twin, body: str, unchanged: None
) -> None:
    """A worker has a part of them, and no policies."""
    mallory.ours.execute(
        f"CREATE OR REPLACE FUNCTION reach (integer) RETURNS text LANGUAGE sql AS $$ {body} $$;"
        "CREATE OR REPLACE FUNCTION hide (integer) RETURNS text IMMUTABLE LANGUAGE plpgsql"
        " AS 'BEGIN RETURN test_callers.reach($1); END'"
    )
    for statement in (
        "SELECT DISTINCT hide(v) FROM mine",
        "SELECT DISTINCT hide(v) FROM of_owner",
        "UPDATE mine SET v = v WHERE hide(v) IS NULL",
    ):
        with pytest.raises(
            (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction)
        ) as caught:
            mallory.ours.execute(statement)
        if caught.value.sqlstate == "42501":
            assert "cannot use table" in str(caught.value)
            assert "STABLE" in caught.value.diag.message_hint


@pytest.mark.parametrize(
    "look",
    [
        "current_query()",
        "(SELECT string_agg(query, '') FROM pg_stat_activity)",
        "(SELECT string_agg(pg_stat_get_backend_activity(i), '') FROM pg_stat_get_backend_idset() AS i)",
    ],
)
def test_code_on_workers_does_not_see_the_coordinators_statements(
    pair: Pair, mallory: Twin, look: str
) -> None:
    """They hold what a view's sub-select, or a function of its owner's, has found."""
    pair.execute(
        "CREATE VIEW hides AS SELECT k, v FROM callers_closed.owned"
        " WHERE v::text <> (SELECT 'hid' || 'den' || max(v) FROM callers_closed.secret);"
        f"GRANT SELECT ON hides TO {MALLORY}"
    )
    mallory.ours.execute(
        f"CREATE FUNCTION look () RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN {look}; END $$;"
        "CREATE FUNCTION looks (integer) RETURNS text IMMUTABLE LANGUAGE plpgsql AS 'BEGIN"
        " RETURN test_callers.look(); EXCEPTION WHEN insufficient_privilege THEN RETURN ''refused''; END'"
    )
    if "SELECT" not in look:
        mallory.ours.execute(f"CREATE DOMAIN looking AS integer CHECK ({look} <> '')")
    try:
        query = "SELECT max(looks(v)) FROM hides"
        assert "max(test_callers.looks" in str(
            mallory.ours.execute(f"EXPLAIN (VERBOSE) {query}").fetchall()
        )
        assert mallory.ours.execute(query).fetchone() == ("refused",)
        if "SELECT" not in look:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                mallory.ours.execute(
                    "SELECT count(*) FROM hides WHERE '{3}'::looking[] <> ARRAY[v]::looking[]"
                )
    finally:
        mallory.ours.execute(
            "DROP DOMAIN IF EXISTS looking; DROP FUNCTION looks (integer), look ()"
        )
        pair.execute("DROP VIEW hides")


def test_a_function_that_is_closed_to_the_caller_is_not_run(mallory: Twin, pair: Pair) -> None:
    pair.execute(
        f"CREATE FUNCTION closed_one (integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';"
        "REVOKE ALL ON FUNCTION closed_one (integer) FROM PUBLIC;"
        f"GRANT EXECUTE ON FUNCTION closed_one (integer) TO {OWNER};"
        "CREATE VIEW calls AS SELECT k, closed_one(v) AS one FROM callers_closed.owned;"
        f"ALTER VIEW calls OWNER TO {OWNER}; GRANT SELECT ON calls TO {MALLORY}"
    )
    try:
        for query in (
            "SELECT count(*) FROM of_owner WHERE closed_one(v) = 1",
            "SELECT closed_one(v) FROM mine",
            "SELECT one FROM calls",  # a view opens tables, not functions
            "SELECT closed_one(1), k FROM mine",
        ):
            theirs = run(mallory.theirs, query)
            assert theirs.sqlstate == "42501", theirs
            assert run(mallory.ours, query).sqlstate == "42501"
    finally:
        pair.execute("DROP VIEW calls; DROP FUNCTION closed_one")


@pytest.mark.parametrize("how", ["SELECT count(*) FROM mine WHERE hijack(v)", "UPDATE mine SET v = v WHERE hijack(v)",
                                 "ALTER TABLE mine ADD CONSTRAINT c CHECK (hijack(v))", "COPY"])  # fmt: skip
def test_what_code_sets_ends_with_its_statement(pair: Pair, mallory: Twin, how: str) -> None:
    """Else a function of somebody else would look up names in her schema, as himself."""
    mallory.ours.execute(
        "CREATE OR REPLACE FUNCTION lower (text) RETURNS text IMMUTABLE LANGUAGE plpgsql"
        " AS 'BEGIN RETURN current_user; END';"
        "CREATE OR REPLACE FUNCTION hijack (integer) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS"
        " $$BEGIN PERFORM set_config('search_path', 'test_callers, pg_catalog', false); RETURN true; END$$"
    )
    pair.ours.execute(
        "CREATE FUNCTION public.honest (integer) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RETURN lower('HONEST'); END$$;"
        "CREATE FUNCTION public.asks () RETURNS text SECURITY DEFINER LANGUAGE sql SET search_path = pg_catalog, pg_temp"
        " AS 'SELECT max(public.honest(v)) FROM callers_closed.owned';"
        f"ALTER FUNCTION public.asks () OWNER TO {OWNER}"
    )
    try:
        mallory.ours.execute("SET search_path = pg_catalog, pg_temp")
        for statement in (
            "BEGIN",
            how.replace("mine", "test_callers.mine").replace("hijack", "test_callers.hijack"),
        ):
            if how == "COPY" and statement == "COPY":
                with mallory.ours.cursor().copy("COPY test_callers.trapped FROM STDIN") as copy:
                    copy.write_row((1,))
            else:
                if how == "COPY":
                    pair.ours.execute(
                        "CREATE TABLE trapped (k integer CHECK (hijack(k)));"
                        "SELECT create_distributed_table('trapped', 'k');"
                        f"GRANT INSERT ON trapped TO {MALLORY}"
                    )
                mallory.ours.execute(statement)
        assert mallory.ours.execute("SELECT public.asks()").fetchone() == ("honest",)
    finally:
        mallory.ours.execute("ROLLBACK")
        pair.ours.execute(
            "DROP FUNCTION public.asks (); DROP FUNCTION public.honest (integer); DROP TABLE IF EXISTS trapped"
        )
        mallory.ours.execute(
            "DROP FUNCTION test_callers.hijack (integer); DROP FUNCTION test_callers.lower (text)"
        )


def test_operators_of_the_caller_do_not_take_the_place_of_a_views(
    pair: Pair, mallory: Twin, unchanged: None
) -> None:
    """SQL for workers writes what is PostgreSQL's own without its schema."""
    pair.execute(
        "CREATE VIEW only_three AS SELECT k, v FROM callers_closed.secret WHERE v = 3;"
        "CREATE VIEW only_three_barrier WITH (security_barrier) AS SELECT k, v FROM callers_closed.secret WHERE v = 3;"
        f"GRANT SELECT, DELETE ON only_three, only_three_barrier TO {MALLORY}"
    )
    mallory.execute(
        "CREATE FUNCTION always (integer, integer) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN true; END';"
        "CREATE OPERATOR = (FUNCTION = always, LEFTARG = integer, RIGHTARG = integer);"
        "CREATE FUNCTION count (integer) RETURNS text IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN current_user; END'"
    )
    try:
        mallory.execute("SET search_path = test_callers, pg_catalog")
        mallory.undone(
            "SELECT count(*) FROM only_three",
            "SELECT count(*), sum(v) FROM only_three_barrier",
            "SELECT k FROM only_three WHERE k OPERATOR(pg_catalog.>) 5",
            "DELETE FROM only_three WHERE k OPERATOR(pg_catalog.<) 20",
            "SELECT count(*) FROM only_three",
        )
    finally:
        mallory.execute("RESET search_path; DROP OPERATOR test_callers.= (integer, integer)")
        mallory.execute(
            "DROP FUNCTION test_callers.always (integer, integer); DROP FUNCTION test_callers.count (integer)"
        )
        pair.execute("DROP VIEW only_three, only_three_barrier")


def test_sql_is_not_injected_by_an_encoding(mallory: Twin, pair: Pair) -> None:
    mallory.ours.execute("CREATE TABLE test_callers.words (k integer, t text)")
    pair.ours.execute("SELECT create_distributed_table('test_callers.words', 'k')")
    try:
        mallory.ours.execute(
            "SELECT DISTINCT attempt(v, $$SELECT set_config('client_encoding', 'SJIS', false), set_config('backslash_quote', 'on', false)$$) FROM of_superuser"
        )
        mallory.ours.execute("SELECT count(*) FROM of_superuser")
        mallory.ours.execute(
            r"SELECT count(*) FROM test_callers.words WHERE t = E'\u4e9c\\'' )) TO STDOUT; SET LOCAL strata_worker.role = $$postgres$$; ALTER ROLE callers_mallory SUPERUSER; COMMIT; --'"
        )
        for worker in pair.cluster.workers:
            assert worker.query("SELECT rolsuper FROM pg_roles WHERE rolname = %s", (MALLORY,)) == [
                (False,)
            ]
    finally:
        pair.ours.execute("DROP TABLE test_callers.words")


@pytest.mark.parametrize(
    "command",
    [
        "ALTER TABLE changed ALTER v TYPE bigint USING touch(v)",
        "ALTER TABLE changed ADD CHECK (touch(v) = v)",
        "CREATE INDEX ON changed (touch(v))",
        "CREATE INDEX CONCURRENTLY ON changed (touch(v))",
        "ALTER TABLE changed ADD COLUMN w integer GENERATED ALWAYS AS (touch(v)) STORED",
    ],
)
@pytest.mark.parametrize(
    "body",
    ["UPDATE test_callers.own_ref SET v = -v", "CREATE TABLE test_callers.left_over (x integer)"],
)
def test_code_of_commands_touches_nothing_on_workers(
    pair: Pair, mallory: Twin, command: str, body: str
) -> None:
    """It would change one copy of a reference table, or make an object on one server."""
    ours = mallory.ours
    ours.execute(
        "CREATE TABLE changed (k integer, v integer); CREATE TABLE own_ref (k integer PRIMARY KEY, v integer);"
        f"CREATE FUNCTION touch_it (integer) RETURNS integer LANGUAGE plpgsql AS 'BEGIN {body}; RETURN $1; END';"
        "CREATE FUNCTION touch (integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN test_callers.touch_it($1); END'"
    )
    pair.ours.execute(
        "SELECT create_distributed_table('changed', 'k', shard_count => 4); SELECT create_reference_table('own_ref')"
    )
    try:
        ours.execute(
            "INSERT INTO changed SELECT g, g FROM generate_series(1, 10) AS g; INSERT INTO own_ref VALUES (1, 1)"
        )
        with pytest.raises(psycopg.Error) as caught:
            ours.execute(command)
        assert caught.value.sqlstate in ("42501", "25006")
        for worker in pair.cluster.workers:
            assert worker.query(
                "SELECT v, to_regclass('test_callers.left_over') FROM test_callers.own_ref"
            ) == [(1, None)]
    finally:
        pair.ours.execute(
            "DROP TABLE changed, own_ref; DROP FUNCTION touch (integer); DROP FUNCTION touch_it (integer)"
        )


def test_a_parallel_plan_inside_of_code_reads_no_table(mallory: Twin, pair: Pair) -> None:
    mallory.ours.execute(
        "CREATE FUNCTION far (integer) RETURNS integer PARALLEL SAFE LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT max(v) FROM test_callers.mine); END'"
    )
    setting = (
        "debug_parallel_query"
        if mallory.ours.info.server_version >= 160000
        else "force_parallel_mode"
    )
    try:
        query = (
            f"SELECT count(*) FROM mine WHERE attempt(v, $$SELECT set_config('{setting}', 'on', true)$$) = 'done'"
            " AND attempt(v, 'SELECT max(test_callers.far(oid::int)) FROM pg_class WHERE oid < 1250') = 'done'"
        )
        plan = str(mallory.ours.execute(f"EXPLAIN (VERBOSE) {query}").fetchall())
        assert re.search("Remote SQL: [^\n]*test_callers.far", plan.replace("',), (", "\n"))
        assert mallory.ours.execute(query).fetchone() == (0,)
    finally:
        mallory.ours.execute("DROP FUNCTION far (integer)")


def test_rows_that_name_no_table_are_computed_here(mallory: Twin) -> None:
    for query in (
        "SELECT who(x) FROM (VALUES (1), (2)) AS v (x)",
        "SELECT who(1)",
        "SELECT whos(x) FROM generate_series(1, 3) AS x",
    ):
        plan = str(mallory.ours.execute(f"EXPLAIN {query}").fetchall())
        assert "Strata Gather" not in plan
        mallory.same(query)


# ---- functions of others ----------------------------------------------------------------------------


def test_a_cursor_of_a_security_definer_function_is_fetched_outside(
    pair: Pair, mallory: Twin
) -> None:
    pair.execute(
        "CREATE FUNCTION opens (refcursor) RETURNS refcursor SECURITY DEFINER LANGUAGE plpgsql SET search_path = test_callers, pg_temp"
        " AS 'BEGIN OPEN $1 FOR SELECT k, v FROM callers_closed.owned ORDER BY k; RETURN $1; END';"
        f"ALTER FUNCTION opens (refcursor) OWNER TO {OWNER}"
    )
    try:
        mallory.undone(
            "SELECT opens('c')",
            "FETCH 3 FROM c",
            "UPDATE mine SET v = v + 1 WHERE k < 5",
            "FETCH 30 FROM c",
            "SELECT sum(v) FROM mine",
        )
    finally:
        pair.execute("DROP FUNCTION opens (refcursor)")


def test_callers_alternate_in_one_transaction(pair: Pair, mallory: Twin, unchanged: None) -> None:
    """One wire to a worker: each sees what the other has written, also around savepoints."""
    pair.execute(
        "CREATE FUNCTION bump () RETURNS bigint SECURITY DEFINER LANGUAGE plpgsql SET search_path = test_callers, pg_temp AS"
        " 'BEGIN UPDATE callers_closed.owned SET v = v + 1; RETURN (SELECT sum(v) FROM callers_closed.owned); END';"
        "CREATE FUNCTION bump_and_fail () RETURNS text SECURITY DEFINER LANGUAGE plpgsql SET search_path = test_callers, pg_temp AS"
        " 'BEGIN PERFORM bump(); RETURN 1 / 0; EXCEPTION WHEN division_by_zero THEN RETURN current_user; END';"
        f"ALTER FUNCTION bump () OWNER TO {OWNER}; ALTER FUNCTION bump_and_fail () OWNER TO {OWNER}"
    )
    try:
        mallory.undone(
            "UPDATE of_owner SET v = 0 WHERE k = 1",
            "SELECT bump()",
            "SELECT who(v) FROM of_owner WHERE k = 1",
            "SAVEPOINT s",
            "SELECT bump()",
            "SELECT who(v), v FROM of_owner WHERE k = 1",
            "SELECT bump_and_fail()",
            "SELECT who(v), v FROM of_owner WHERE k = 1",
            "ROLLBACK TO SAVEPOINT s",
            "SELECT who(v), v FROM of_owner WHERE k = 1",
            "INSERT INTO mine VALUES (500, 1)",
            "SELECT bump(), (SELECT count(*) FROM mine)",
            "SELECT DISTINCT who(v) FROM mine",
        )
        for isolation in ("REPEATABLE READ", "READ COMMITTED"):
            mallory.execute(f"BEGIN ISOLATION LEVEL {isolation}")
            mallory.same("SELECT DISTINCT who(v) FROM mine")
            mallory.same("SELECT bump()")
            mallory.execute("COMMIT")
        pair.execute("UPDATE callers_closed.owned SET v = v - 2")
    finally:
        pair.execute("DROP FUNCTION bump_and_fail (); DROP FUNCTION bump ()")


def test_a_trigger_and_a_policy_run_as_the_caller(pair: Pair, mallory: Twin) -> None:
    pair.execute(
        "CREATE TABLE watched (k integer PRIMARY KEY, v integer, by text);"
        "CREATE FUNCTION note_who () RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.by = current_user; RETURN NEW; END';"
        "CREATE TRIGGER t BEFORE INSERT ON watched FOR EACH ROW EXECUTE FUNCTION note_who();"
        f"CREATE VIEW over_watched AS SELECT * FROM watched; ALTER TABLE watched OWNER TO {OWNER};"
        f"ALTER VIEW over_watched OWNER TO {OWNER}; GRANT SELECT, INSERT ON over_watched TO {MALLORY}"
    )
    pair.distribute("watched", "k", colocate_with="mine")
    try:
        mallory.undone(
            "INSERT INTO over_watched VALUES (1, 1), (2, 2)", "SELECT * FROM over_watched"
        )
        pair.execute(
            "ALTER TABLE watched ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;"
            "CREATE POLICY p ON watched USING (v % 2 = 0) WITH CHECK (true); INSERT INTO watched VALUES (3, 3), (4, 4)"
        )
        mallory.undone(
            "SELECT k, v, who(v) FROM over_watched",
            "SELECT count(*) FROM over_watched WHERE who(v) <> ''",
        )
    finally:
        pair.execute("DROP TABLE watched CASCADE; DROP FUNCTION note_who ()")


# ---- what only core would check ---------------------------------------------------------------------


def test_truncate_copy_and_foreign_keys_by_privilege(pair: Pair, mallory: Twin) -> None:
    pair.execute(
        "CREATE TABLE lent (k integer PRIMARY KEY, v integer CHECK (v >= 0)); CREATE TABLE lent_ref (k integer PRIMARY KEY);"
        "INSERT INTO lent_ref SELECT generate_series(1, 50)"
    )
    pair.distribute("lent", "k", colocate_with="mine")
    pair.reference("lent_ref")
    pair.execute(
        f"GRANT INSERT, TRUNCATE, SELECT ON lent TO {MALLORY}; GRANT REFERENCES ON lent_ref TO {MALLORY}"
    )
    try:
        for connection in (mallory.ours, mallory.theirs):
            with connection.cursor().copy("COPY lent FROM STDIN") as copy:
                for k in range(1, 30):
                    copy.write_row((k, k))
        mallory.same("SELECT count(*), sum(v) FROM lent")
        with pytest.raises(psycopg.errors.CheckViolation):
            with mallory.ours.cursor().copy("COPY lent FROM STDIN") as copy:
                copy.write_row((99, -1))
        mallory.undone("TRUNCATE lent", "SELECT count(*) FROM lent")
        mallory.same("SELECT count(*), sum(v) FROM lent")
        mallory.same("ALTER TABLE mine ADD FOREIGN KEY (k) REFERENCES lent_ref (k)")
        for statement in (
            "INSERT INTO mine VALUES (77, 1)",
            "INSERT INTO mine VALUES (45, 1)",
            "DELETE FROM mine WHERE k = 45",
        ):
            ours, theirs = run(mallory.ours, statement), run(mallory.theirs, statement)
            assert ours.sqlstate == theirs.sqlstate, (ours, theirs)
        mallory.same("ALTER TABLE mine DROP CONSTRAINT mine_k_fkey")
    finally:
        pair.execute("DROP TABLE lent, lent_ref CASCADE")


# ---- the session's mark -----------------------------------------------------------------------------


def test_who_logs_in_by_hand_borrows_nothing(pair: Pair) -> None:
    for worker in pair.cluster.workers:
        with worker.connect(user=MALLORY) as session:
            for statement in (
                "SELECT * FROM callers_closed.owned",
                "BEGIN; SET LOCAL strata_worker.role = 'postgres'; SELECT * FROM callers_closed.owned",
                "SELECT * FROM strata_worker.cluster",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    session.execute(statement)
                session.execute("ROLLBACK")


# ---- what an adversary found --------------------------------------------------------------------------


@pytest.fixture
def nobody_is_superuser(pair: Pair) -> Iterator[None]:
    yield
    for node in (pair.cluster.coordinator, *pair.cluster.workers):
        assert node.query("SELECT rolsuper FROM pg_roles WHERE rolname = %s", (MALLORY,)) == [
            (False,)
        ]


def test_a_member_of_her_extension_is_not_trusted(
    pair: Pair, mallory: Twin, nobody_is_superuser: None
) -> None:
    """Whoever may CREATE on the database owns trusted extensions, and can make her own types their members."""
    pair.ours.execute(f"GRANT CREATE ON DATABASE strata TO {MALLORY}")
    ours = mallory.ours
    try:
        ours.execute(
            "CREATE SCHEMA callers_own; CREATE EXTENSION hstore SCHEMA callers_own;"
            "CREATE FUNCTION callers_own.evil (integer) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN"
            " IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user)"
            " THEN EXECUTE 'ALTER ROLE callers_mallory SUPERUSER'; END IF; RETURN true; END$$;"
            "CREATE DOMAIN callers_own.ed AS integer CHECK (callers_own.evil(VALUE));"
            "ALTER EXTENSION hstore ADD DOMAIN callers_own.ed;"
            "CREATE FUNCTION callers_own.sf (callers_own.ed, integer) RETURNS callers_own.ed IMMUTABLE LANGUAGE sql AS 'SELECT $1';"
            "CREATE FUNCTION callers_own.cf (callers_own.ed, callers_own.ed) RETURNS callers_own.ed IMMUTABLE LANGUAGE sql AS 'SELECT $1';"
            "CREATE AGGREGATE callers_own.ag (integer) (SFUNC = callers_own.sf, STYPE = callers_own.ed, COMBINEFUNC = callers_own.cf, INITCOND = '0')"
        )
        assert ours.execute("SELECT callers_own.ag(v) FROM mine").fetchone() == (0,)
    finally:
        pair.ours.execute(
            f"DROP SCHEMA IF EXISTS callers_own CASCADE; REVOKE CREATE ON DATABASE strata FROM {MALLORY}"
        )


def test_a_command_that_workers_would_read_otherwise_is_not_sent(
    pair: Pair, mallory: Twin, nobody_is_superuser: None
) -> None:
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="standard_conforming_strings"):
        mallory.ours.execute(
            r"SET standard_conforming_strings = off; CREATE FUNCTION z (a text DEFAULT 'a\', b text DEFAULT ')"
            " RETURNS text LANGUAGE sql AS $$SELECT 1::text$$; SET LOCAL strata_worker.role = $$postgres$$;"
            " ALTER ROLE callers_mallory SUPERUSER; --') RETURNS text LANGUAGE sql AS $$SELECT 1::text$$"
        )
    mallory.ours.execute("ROLLBACK; RESET standard_conforming_strings")
    mallory.execute("SET standard_conforming_strings = off")
    mallory.execute(
        r"CREATE FUNCTION honest_text () RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT ''a\\\\b''::text'"
    )
    mallory.same("SELECT honest_text()")
    mallory.execute("DROP FUNCTION honest_text (); RESET standard_conforming_strings")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT count(*) FROM mine WHERE '{{3}}'::{domain}[] <> ARRAY[v]::{domain}[]",
        "UPDATE mine SET v = v WHERE '{{3}}'::{domain}[] <> ARRAY[v]::{domain}[]",
        "EXPLAIN (VERBOSE) SELECT v FROM mine WHERE '{{3}}'::{domain}[] <> ARRAY[v]::{domain}[]",
    ],
)
@pytest.mark.parametrize(
    "check",
    [
        "public.callers_definer(VALUE)",
        "set_config('client_encoding', 'SJIS', false) <> '' AND set_config('backslash_quote', 'on', false) <> ''",
        "set_config('search_path', 'test_callers, pg_catalog', false) <> ''",
        "query_to_xml('SELECT strata_worker.execute_patiently(''UPDATE test_callers.mine SET v = 0'')', true, true, '') IS NOT NULL",
    ],
)
def test_a_constant_leaves_nothing_behind_on_the_wire(
    pair: Pair,
    mallory: Twin,
    statement: str,
    check: str,
    unchanged: None,
    nobody_is_superuser: None,
) -> None:
    pair.ours.execute(
        "CREATE FUNCTION public.callers_definer (integer) RETURNS boolean IMMUTABLE SECURITY DEFINER LANGUAGE plpgsql"
        " SET search_path = pg_catalog, pg_temp AS 'BEGIN RETURN $1 > 0; END'"
    )
    ours = mallory.ours
    try:
        ours.execute("SET client_min_messages = error")
        ours.execute(f"CREATE DOMAIN left_behind AS integer CHECK ({check})")
        for transaction in (False, True):
            ours.execute("BEGIN" if transaction else "SELECT 1")
            outcome = run(ours, statement.format(domain="test_callers.left_behind"))
            assert outcome.sqlstate in (None, "42501", "25006", "3F000"), outcome
            ours.execute("ROLLBACK" if transaction else "SELECT 1")
        ours.execute("RESET client_encoding; RESET search_path; RESET backslash_quote")
        ours.execute("SET search_path = test_callers, public, strata")
        rows = ours.execute(
            "SELECT DISTINCT who(v), current_setting('client_encoding') FROM mine"
        ).fetchall()
        assert rows == [(MALLORY, "UTF8")]
        assert ours.execute(
            "SELECT count(*) FROM mine WHERE who(v) = 'callers_mallory'"
        ).fetchone() == (40,)
    finally:
        ours.execute("ROLLBACK")
        pair.ours.execute(
            "DROP DOMAIN IF EXISTS left_behind; DROP FUNCTION public.callers_definer (integer)"
        )


@pytest.mark.parametrize(
    "command",
    [
        "ALTER TABLE changed ADD COLUMN x text DEFAULT query_to_xml($q$SELECT strata_worker.execute_patiently('UPDATE test_callers.own_ref SET v = 99')$q$, true, true, '')::text",
        "ALTER TABLE changed ADD CHECK (test_callers.definer(v) > 0)",
        "ALTER TABLE changed ALTER v TYPE text USING test_callers.pathf(v)",
    ],
)
def test_commands_leave_nothing_behind_on_the_wire(
    pair: Pair, mallory: Twin, command: str, nobody_is_superuser: None
) -> None:
    """SECURITY DEFINER and SET clauses of functions are put back by fmgr in an order of its own."""
    ours = mallory.ours
    pair.ours.execute(
        "CREATE FUNCTION definer (integer) RETURNS integer IMMUTABLE SECURITY DEFINER LANGUAGE plpgsql AS 'BEGIN RETURN $1; END';"
        "CREATE FUNCTION pathf (integer) RETURNS text IMMUTABLE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp"
        " AS $$BEGIN RETURN current_setting('search_path'); END$$"
    )
    ours.execute(
        "CREATE TABLE changed (k integer, v integer); CREATE TABLE own_ref (k integer PRIMARY KEY, v integer)"
    )
    pair.ours.execute(
        "SELECT create_distributed_table('changed', 'k', shard_count => 4); SELECT create_reference_table('own_ref')"
    )
    try:
        ours.execute(
            "INSERT INTO changed SELECT g, g FROM generate_series(1, 10) AS g; INSERT INTO own_ref VALUES (1, 1)"
        )
        run(ours, command)
        for worker in pair.cluster.workers:
            assert worker.query("SELECT v FROM test_callers.own_ref") == [(1,)]
        if "pathf" in command:
            assert ours.execute("SELECT DISTINCT v FROM changed").fetchall() == [
                ("pg_catalog, pg_temp",)
            ]
        ours.execute("CREATE TABLE made_later (k integer) USING distributed")
        for worker in pair.cluster.workers:
            assert worker.query(
                "SELECT relowner::regrole::text FROM pg_class WHERE oid = 'test_callers.made_later'::regclass"
            ) == [(MALLORY,)]
    finally:
        pair.ours.execute(
            "DROP TABLE IF EXISTS changed, own_ref, made_later; DROP FUNCTION definer (integer), pathf (integer)"
        )


def test_a_deferred_foreign_key_through_a_view_of_a_closed_schema(
    pair: Pair, mallory: Twin
) -> None:
    pair.execute(
        "CREATE TABLE callers_closed.pk (k integer PRIMARY KEY);"
        "CREATE TABLE callers_closed.fk (k integer PRIMARY KEY, r integer REFERENCES callers_closed.pk DEFERRABLE INITIALLY DEFERRED);"
        "INSERT INTO callers_closed.pk VALUES (1), (2)"
    )
    pair.ours.execute(
        "SELECT create_reference_table('callers_closed.pk');"
        "SELECT create_distributed_table('callers_closed.fk', 'k', colocate_with => 'callers_closed.secret')"
    )
    pair.execute(
        f"CREATE VIEW over_fk AS SELECT * FROM callers_closed.fk; GRANT SELECT, INSERT, DELETE ON over_fk TO {MALLORY}"
    )
    try:
        mallory.same("INSERT INTO over_fk VALUES (1, 1), (2, 2)")
        for statement in ("INSERT INTO over_fk VALUES (3, 9)", "DELETE FROM over_fk WHERE k = 2"):
            assert run(mallory.ours, statement).sqlstate == run(mallory.theirs, statement).sqlstate
        mallory.same("SELECT * FROM over_fk")
    finally:
        pair.execute("DROP VIEW over_fk; DROP TABLE callers_closed.fk, callers_closed.pk")
