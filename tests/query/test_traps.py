"""Mistakes that this design invites and that a prototype made: each lost data, lied or crashed once.

Every test here names the promise that was broken.  Ordinary behaviour is tested elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests import shop
from tests.cluster import Cluster
from tests.installation import force_parallel_setting
from tests.pair import Pair, open_pair, workers_of


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_traps") as made:
        shop.create(made)
        made.execute("CREATE TABLE scratch (id integer PRIMARY KEY, v integer, t text)")
        made.distribute("scratch", "id")
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    data.execute(
        "TRUNCATE scratch; INSERT INTO scratch SELECT g, g, 't' FROM generate_series(1, 500) AS g"
    )
    yield data
    data.reset()


# ---- transactions ------------------------------------------------------------------------------------


def test_a_limit_in_a_writing_transaction_does_not_undo_its_writes_at_commit(pair: Pair) -> None:
    """Cancelling a stream would abort the worker's transaction, and COMMIT would silently roll back."""
    with pair.transaction("COMMIT"):
        pair.same("INSERT INTO scratch SELECT g, 0, 'new' FROM generate_series(1000, 3000) AS g")
        assert len(pair.rows("SELECT * FROM events LIMIT 1")) == 1
        assert len(pair.rows("SELECT * FROM scratch LIMIT 3")) == 3
        pair.ours.execute("DECLARE c CURSOR FOR SELECT * FROM scratch, countries")
        pair.ours.execute("FETCH 2 FROM c; CLOSE c")
        pair.rows("SELECT EXISTS (SELECT FROM events)")
    pair.same("SELECT count(*), sum(v) FROM scratch")


def test_a_limit_before_a_write_keeps_the_write(pair: Pair) -> None:
    with pair.transaction("COMMIT"):
        assert len(pair.rows("SELECT * FROM events LIMIT 1")) == 1
        pair.same("UPDATE scratch SET v = -1 WHERE id <= 10")
        assert len(pair.rows("SELECT * FROM events LIMIT 1")) == 1
    pair.same("SELECT sum(v) FROM scratch")


def test_a_commit_that_a_worker_turned_into_a_rollback_is_an_error(pair: Pair) -> None:
    """The tag of the workers' COMMIT is checked: here the worker's session dies behind our back."""
    with pytest.raises(psycopg.Error) as caught:  # noqa: PT012
        pair.ours.execute("BEGIN; UPDATE scratch SET v = 0")
        for worker in pair.cluster.workers:
            worker.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'"
            )
        pair.ours.execute("COMMIT")
    assert caught.value.sqlstate is not None
    pair.reset()
    pair.same("SELECT sum(v) FROM scratch")


def test_a_read_in_the_middle_of_a_stream_sees_the_writes_before_it(pair: Pair) -> None:
    """One connection per worker once a transaction writes; a busy stream moves aside."""
    block = """DO $$ DECLARE r record; n bigint := 0; BEGIN
        UPDATE scratch SET v = v + 1000 WHERE id <= 100;
        FOR r IN SELECT id, v FROM scratch ORDER BY id LOOP
            IF r.id % 100 = 0 THEN
                UPDATE scratch SET t = 'seen ' || r.v WHERE id = r.id;
                PERFORM FROM scratch WHERE id = r.id AND t LIKE 'seen%';
                IF NOT FOUND THEN RAISE 'own write not visible'; END IF;
            END IF;
        END LOOP;
    END $$"""
    pair.execute(block)
    pair.same("SELECT * FROM scratch WHERE t LIKE 'seen%' OR v > 1000")


def test_rollback_to_removes_the_row_on_the_worker(pair: Pair) -> None:
    with pair.transaction("COMMIT"):
        pair.execute(
            "SAVEPOINT s; INSERT INTO scratch VALUES (9001, 1), (9002, 1), (9003, 1); ROLLBACK TO s"
        )
        pair.same("INSERT INTO scratch VALUES (9001, 2)")
    assert pair.same("SELECT id, v FROM scratch WHERE id > 9000") == [("9001", "2")]


def test_rows_buffered_before_a_savepoint_survive_its_rollback(pair: Pair) -> None:
    with pair.transaction("COMMIT"):
        pair.execute("INSERT INTO scratch VALUES (9001, 1)")
        pair.execute("SAVEPOINT s; INSERT INTO scratch VALUES (9002, 1); ROLLBACK TO s")
        pair.execute("INSERT INTO scratch VALUES (9003, 1)")
    assert sorted(pair.same("SELECT id FROM scratch WHERE id > 9000")) == [("9001",), ("9003",)]


def test_a_buffered_insert_that_fails_late_does_not_look_committed(pair: Pair) -> None:
    for _ in range(2):
        pair.same("INSERT INTO scratch VALUES (1, 1)")
    with pair.transaction("COMMIT"):
        pair.same("INSERT INTO scratch VALUES (9001, 1)")
        pair.same("INSERT INTO scratch VALUES (1, 1)")
    assert pair.same("SELECT * FROM scratch WHERE id > 9000") == []


def test_a_savepoint_made_while_aborted_is_not_one_to_roll_back_to(pair: Pair) -> None:
    """The workers never heard of it, and rolling back twice to the one before is fine."""
    with pair.transaction("COMMIT"):
        pair.execute("SAVEPOINT a")
        pair.same("SELECT count(*) FROM users")
        pair.same("INSERT INTO scratch VALUES (9001, 1)")
        pair.same("INSERT INTO scratch VALUES (9002, 1), (9002, 1)")
        pair.same("SAVEPOINT b")
        pair.execute("ROLLBACK TO a")
        pair.execute("ROLLBACK TO a")
        pair.same("INSERT INTO scratch VALUES (9003, 1), (9004, 1) RETURNING id")
    pair.same("SELECT id FROM scratch WHERE id > 9000")


# ---- cached plans ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
def test_a_cached_plan_follows_a_table_that_changes_its_kind(pair: Pair, mode: str) -> None:
    pair.execute(
        "CREATE TABLE moving (id integer PRIMARY KEY, v text); INSERT INTO moving VALUES (1, 'a')"
    )
    pair.execute(
        f"SET plan_cache_mode = {mode}; PREPARE p (int) AS SELECT v FROM moving WHERE id = $1"
    )
    pair.execute("PREPARE w (int) AS INSERT INTO moving VALUES ($1, 'w')")
    expected = [("a",)]
    for change in (
        "SELECT strata.create_distributed_table('moving', 'id')",
        "SELECT strata.undistribute_table('moving')",
        "SELECT strata.create_reference_table('moving')",
        "SELECT strata.undistribute_table('moving')",
        "SELECT strata.create_distributed_table('moving', 'id', shard_count => 3, colocate_with => 'none')",
    ):
        assert pair.same("EXECUTE p (1)") == expected
        pair.ours.execute(change)
        assert pair.same("EXECUTE p (1)") == expected
        key = len(change)
        pair.same(f"EXECUTE w ({key})")
        pair.same("SELECT * FROM moving")
        pair.same(f"DELETE FROM moving WHERE id = {key}")
    pair.execute("DEALLOCATE ALL; RESET plan_cache_mode; DROP TABLE moving")


def test_a_generic_plan_looks_up_the_worker_at_each_execution(pair: Pair) -> None:
    pair.execute("SET plan_cache_mode = force_generic_plan")
    pair.execute("PREPARE p (int) AS SELECT v FROM scratch WHERE id = $1")
    for key in range(1, 30):
        assert pair.same(f"EXECUTE p ({key})") == [(str(key),)]
    pair.execute("DEALLOCATE p; RESET plan_cache_mode")


def test_a_condition_on_a_union_keeps_the_collation_of_its_column(pair: Pair) -> None:
    """PostgreSQL asks each part, whose own column has another one, under the collation of the whole."""
    pair.execute(
        "CREATE COLLATION no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    parts = "SELECT t COLLATE no_case AS t FROM scratch UNION ALL SELECT upper(t) FROM scratch"
    pair.same(f"SELECT count(*) FROM ({parts}) AS u WHERE t = 'T'")
    pair.same(f"SELECT count(*) FROM ({parts}) AS u WHERE t IN ('T', 'x') AND t < 'U'")
    pair.execute("DROP COLLATION no_case")


def test_a_parameter_can_stand_before_in_and_inside_of_it(pair: Pair) -> None:
    """Both sides of the comparison are parameters: no column for the subplan to hang on."""
    pair.execute("SET plan_cache_mode = force_generic_plan")
    pair.execute(
        "PREPARE p (bigint, bigint) AS SELECT id FROM scratch s WHERE $1 = ANY (SELECT $2 FROM countries c"
        " WHERE c.code > s.t) OR s.id < 3"
    )
    for values in ("1, 1", "1, 2", "NULL, 1", "1, NULL"):
        pair.same(f"EXECUTE p ({values})")
    pair.execute("DEALLOCATE p; RESET plan_cache_mode")


def test_another_session_learns_of_a_new_placement_at_once(pair: Pair) -> None:
    pair.execute("CREATE TABLE changing (id integer PRIMARY KEY)")
    pair.execute("INSERT INTO changing SELECT generate_series(1, 100)")
    with pair.cluster.coordinator.connect() as other:
        query = "SELECT count(*) FROM test_traps.changing"
        for change in (
            "SELECT strata.create_distributed_table('changing', 'id')",
            "SELECT strata.undistribute_table('changing')",
            "SELECT strata.create_distributed_table('changing', 'id', shard_count => 5, colocate_with => 'none')",
        ):
            assert other.execute(query).fetchall() == [(100,)]
            pair.ours.execute(change)
        assert other.execute(query).fetchall() == [(100,)]
        other.execute("INSERT INTO test_traps.changing VALUES (101)")
    assert pair.rows("SELECT count(*) FROM changing") == [(101,)]
    pair.execute("DROP TABLE changing")


# ---- rebuilt SQL -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        # the planner clears the inheritance flag of childless tables: deparsed as ONLY, no row came back
        "SELECT count(*) FROM scratch",
        "SELECT count(*) FROM ONLY scratch",
        # a literal column of the nullable side is not the literal where the side is missing
        "SELECT u.user_id, d.one FROM users u LEFT JOIN (SELECT user_id, 1 AS one FROM events WHERE event_id"
        " < 30) AS d USING (user_id)",
        "SELECT u.user_id, d.x FROM users u FULL JOIN (SELECT user_id, coalesce(kind_id, 9) AS x FROM events"
        " WHERE event_id < 30) AS d USING (user_id)",
        # FULL JOIN with filters below both sides
        "SELECT * FROM (SELECT user_id, age FROM users WHERE age < 30) a FULL JOIN (SELECT user_id, event_id"
        " FROM events WHERE event_id < 60) b USING (user_id)",
        "SELECT a.user_id, b.event_id FROM users a FULL JOIN events b ON a.user_id = b.user_id WHERE"
        " coalesce(a.age, 99) > 50",
        # an anti join made of LEFT JOIN ... IS NULL still names columns of the missing side
        "SELECT u.user_id, e.amount, e.tags FROM users u LEFT JOIN events e USING (user_id) WHERE e.event_id"
        " IS NULL",
        # ON and WHERE are not the same for an outer join
        "SELECT u.user_id, e.event_id FROM users u LEFT JOIN events e ON e.user_id = u.user_id AND e.ok"
        " WHERE u.age > 40",
        "SELECT u.user_id, e.event_id FROM users u LEFT JOIN events e ON e.user_id = u.user_id AND u.age > 40",
        "SELECT u.user_id, e.event_id FROM users u LEFT JOIN events e ON e.user_id = u.user_id WHERE"
        " e.ok IS NOT TRUE",
        # the key of the nullable side is NULL-extended: not a place to join further on
        "SELECT count(*) FROM users u LEFT JOIN events e ON e.user_id = u.user_id AND e.event_id < 100"
        " LEFT JOIN users w ON w.user_id = e.user_id",
        "SELECT count(*) FROM users u FULL JOIN events e USING (user_id) JOIN users w USING (user_id)",
        # columns of the same name, and one column in view only
        "SELECT a.user_id, b.user_id FROM users a, users b WHERE a.user_id = b.user_id AND a.age = 40",
        "SELECT x.a FROM (SELECT user_id AS a, user_id AS b FROM users) AS x WHERE x.b < 9",
        # GROUP BY the primary key: other columns are trimmed from it
        "SELECT user_id, name, country, count(*) FROM users GROUP BY user_id, name, country",
        "SELECT u.user_id, u.name, sum(e.amount) FROM users u JOIN events e USING (user_id) GROUP BY u.user_id,"
        " u.name",
        # a removed join, a self join, an unused common table expression
        "SELECT e.event_id FROM events e LEFT JOIN users u ON u.user_id = e.user_id WHERE e.event_id < 50",
        # equalities with a constant on one side only
        "SELECT e.event_id FROM users u JOIN events e ON e.user_id = u.user_id WHERE u.user_id = 7",
        "SELECT e.event_id FROM users u LEFT JOIN events e ON e.user_id = u.user_id WHERE u.user_id = 7",
        "SELECT e.event_id, u.name FROM events e LEFT JOIN users u ON u.user_id = e.user_id AND u.user_id = 7"
        " WHERE e.event_id < 80",
        # NOT IN with NULLs on either side
        "SELECT count(*) FROM events WHERE kind_id NOT IN (SELECT kind_id FROM events WHERE kind_id > 2)",
        "SELECT count(*) FROM events e WHERE user_id NOT IN (SELECT user_id FROM users WHERE age > 30)",
        # aggregates and HAVING over nothing
        "SELECT count(*) FROM scratch WHERE false",
        "SELECT sum(v) FROM scratch WHERE id < 0 GROUP BY t",
        "SELECT 1 FROM scratch WHERE id < 0 HAVING count(*) = 0",
        # count("any") is one aggregate for all types
        "SELECT count(t), count(v), count(scratch) FROM scratch",
        # a set operation has no input relation in the upper-path hook
        "SELECT id FROM scratch WHERE id < 5 UNION SELECT v FROM scratch WHERE id < 5 INTERSECT SELECT 3",
        # an aggregate that nobody reads still makes one row of none
        "SELECT s.id, u.user_id FROM (SELECT count(*) AS n FROM countries WHERE false) AS q JOIN scratch s"
        " ON true JOIN users u ON u.user_id = s.id WHERE s.id < 4",
        "SELECT s.id FROM (SELECT bool_or(x > 1) FROM (VALUES (1), (2)) AS v (x) WHERE x > 5) AS q (b)"
        " JOIN scratch s ON true JOIN visits w ON w.user_id = s.id WHERE s.v IS NOT NULL",
        # a sublink that refers to the key, beside a constant for the key
        "SELECT count(DISTINCT t) FROM scratch s WHERE s.v < ALL (SELECT i.v FROM scratch i WHERE i.id = s.id)"
        " AND s.id = 10",
        "SELECT u.user_id FROM users u JOIN scratch s ON s.id = u.user_id WHERE u.age >= (SELECT max(kind_id)"
        " FROM events e WHERE e.user_id = u.user_id) AND u.user_id = 20",
        # constants that look alike but are not
        "SELECT 'x'::text || t, 1::smallint, 1.0::numeric(5,2), NULL::date, 'NaN'::float8 FROM scratch"
        " WHERE id < 4",
        "SELECT E'\\\\ ''quote'' \\n' || t, 'O''Reilly' FROM scratch WHERE id < 4",
        "SELECT -v, - -v, -(-5), (-1)::int2, -1::int2 FROM scratch WHERE id < 4",
        "SELECT t ~ '^t$', t LIKE 't\\%' ESCAPE '\\', t SIMILAR TO 't|u' FROM scratch WHERE id < 4",
        "SELECT (v, t) = (3, 't'), row(v, t) IN (row(1, 't'), row(2, 'u')) FROM scratch WHERE id < 6",
        "SELECT CASE v WHEN 1 THEN 'one' WHEN 2 THEN 'two' END, greatest(v, 3), v IS DISTINCT FROM 2 FROM"
        " scratch WHERE id < 4",
        "SELECT extract(epoch FROM TIMESTAMPTZ '2024-01-01 00:00+00' + v * INTERVAL '1 day') FROM scratch"
        " WHERE id < 4",
    ],
)  # fmt: skip
def test_rebuilt_queries_mean_the_same(pair: Pair, query: str) -> None:
    pair.same(query)


def test_columns_that_depend_on_a_grouped_key_may_be_of_any_type(pair: Pair) -> None:
    """json has no equality: such a column stands beside GROUP BY by the key's proof alone."""
    pair.execute("CREATE TABLE papers (id integer PRIMARY KEY, v integer, body json)")
    pair.distribute("papers", "id")
    pair.execute(
        "INSERT INTO papers SELECT g, g % 3, '{\"a\": 1}' FROM generate_series(1, 20) AS g"
    )
    pair.same("SELECT id, v, body, count(*) FROM papers GROUP BY id ORDER BY id")
    pair.same("SELECT v + 1, count(*) FROM papers GROUP BY id ORDER BY id")
    pair.execute("DROP TABLE papers")


def test_shipped_text_does_not_depend_on_string_settings(pair: Pair) -> None:
    """A plan made under one reading of backslashes is executed under the other."""
    pair.execute("INSERT INTO scratch VALUES (9001, 1, E'back\\\\slash'), (9002, 2, 'quo''te')")
    pair.execute(
        "PREPARE odd AS SELECT id FROM scratch WHERE t IN (E'back\\\\slash', 'quo''te') ORDER BY id"
    )
    pair.same("EXECUTE odd")
    pair.execute("SET standard_conforming_strings = off; SET escape_string_warning = off")
    pair.same("EXECUTE odd")
    pair.execute("RESET standard_conforming_strings; RESET escape_string_warning; DEALLOCATE odd")


def test_psql_describe_queries_do_not_crash_the_server(pair: Pair) -> None:
    """\\d runs set operations, which once crashed in the upper-path hook."""
    pair.rows(
        "SELECT relname FROM pg_class WHERE relname = 'scratch' UNION ALL SELECT nspname FROM pg_namespace"
        " WHERE nspname = 'strata' ORDER BY 1"
    )
    pair.same("SELECT id FROM scratch WHERE id < 4 UNION ALL SELECT count(*)::integer FROM users")


def test_a_search_path_with_lookalikes_does_not_change_what_runs_on_the_workers(pair: Pair) -> None:
    """SQL is deparsed under search_path = pg_catalog, but user objects keep their own meaning."""
    pair.execute(
        "CREATE FUNCTION upper (integer) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'mine' $$;"
        "CREATE SCHEMA IF NOT EXISTS decoy; CREATE TABLE decoy.scratch (id integer, v integer)"
    )
    pair.execute("SET search_path = decoy, test_traps, public, strata")
    pair.same("SELECT count(*) FROM scratch")
    pair.same("SELECT count(*) FROM test_traps.scratch")
    pair.execute("SET search_path = test_traps, public, strata")
    pair.same("SELECT upper('x'), upper(5), count(*) FROM scratch")
    pair.execute("DROP SCHEMA decoy CASCADE; DROP FUNCTION upper (integer)")


def test_a_temporary_table_hides_the_distributed_one_of_its_name(pair: Pair) -> None:
    pair.execute(
        "CREATE TEMP TABLE scratch (id integer, v integer); INSERT INTO scratch VALUES (1, 1)"
    )
    pair.same("SELECT count(*) FROM scratch")
    pair.same("SELECT count(*) FROM test_traps.scratch")
    pair.execute("DROP TABLE pg_temp.scratch")


def test_now_is_one_moment_on_all_workers(pair: Pair) -> None:
    pair.execute("CREATE TABLE moments (id integer PRIMARY KEY, at timestamptz DEFAULT now())")
    pair.distribute("moments", "id")
    with pair.ours.transaction():
        pair.ours.execute("INSERT INTO moments SELECT generate_series(1, 40)")
        pair.ours.execute("UPDATE moments SET at = now() WHERE id > 20")
        assert pair.rows("SELECT count(DISTINCT at) FROM moments") == [(1,)]
        assert pair.rows("SELECT count(*) FROM moments WHERE at = now()") == [(40,)]
        assert pair.rows("SELECT count(*) FROM moments WHERE at = transaction_timestamp()") == [
            (40,)
        ]
    pair.execute("DROP TABLE moments")


# ---- row level security ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tenant_role(cluster: Cluster) -> str:
    cluster.create_role("strata_tenant")
    return "strata_tenant"


@pytest.fixture
def tenant(pair: Pair, tenant_role: str) -> Iterator[psycopg.Connection]:
    pair.execute(
        "CREATE TABLE secrets (id integer PRIMARY KEY, owner text, v integer);"
        "ALTER TABLE secrets ENABLE ROW LEVEL SECURITY;"
        "CREATE POLICY own ON secrets USING (owner = current_user)"
    )
    pair.distribute("secrets", "id")
    pair.execute(
        "INSERT INTO secrets SELECT g, CASE WHEN g % 2 = 0 THEN 'strata_tenant' ELSE 'someone' END, g"
        " FROM generate_series(1, 40) AS g;"
        "GRANT USAGE ON SCHEMA test_traps TO strata_tenant;"
        "GRANT SELECT, INSERT, UPDATE, DELETE ON secrets TO strata_tenant"
    )
    with pair.cluster.coordinator.connect(user=tenant_role) as connection:
        connection.execute("SET search_path = test_traps")
        yield connection
    pair.execute("DROP TABLE secrets")
    for node in pair.cluster.nodes:
        node.execute("DROP OWNED BY strata_tenant")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM secrets",
        "SELECT id FROM secrets WHERE id = 3",
        "SELECT count(*) FROM secrets",
        "SELECT owner, count(*) FROM secrets GROUP BY owner",
        "SELECT a.id FROM secrets a JOIN secrets b USING (id)",
        "SELECT id FROM secrets WHERE EXISTS (SELECT FROM secrets s WHERE s.id = secrets.id)",
        "SELECT id FROM secrets FOR UPDATE",
        "UPDATE secrets SET v = 0 RETURNING id",
        "DELETE FROM secrets RETURNING id",
        "UPDATE secrets SET v = 0 WHERE id = 3 RETURNING id",
    ],
)
def test_row_level_security_hides_rows_or_the_statement_is_refused(
    tenant: psycopg.Connection, query: str
) -> None:
    """Whole-statement shipping cannot carry policies: it must refuse rather than forget them."""
    with tenant.transaction(force_rollback=True):
        try:
            rows = tenant.execute(query).fetchall()
        except psycopg.errors.FeatureNotSupported:
            return
    for row in rows:
        assert row[0] in ("strata_tenant", 20) or row[0] % 2 == 0, row


def test_a_function_cannot_look_at_rows_that_a_policy_hides(tenant: psycopg.Connection) -> None:
    """A filter with a side effect runs after the policy, wherever it runs."""
    tenant.execute(
        "CREATE FUNCTION pg_temp.peek (integer) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS"
        " $$ BEGIN IF $1 % 2 = 1 THEN RAISE 'saw %', $1; END IF; RETURN true; END $$"
    )
    rows = tenant.execute("SELECT id FROM secrets WHERE pg_temp.peek(id)").fetchall()
    assert len(rows) == 20


def test_a_security_barrier_view_keeps_its_filter_first(pair: Pair) -> None:
    pair.execute(
        "CREATE VIEW even WITH (security_barrier) AS SELECT id, v FROM scratch WHERE id % 2 = 0;"
        "CREATE FUNCTION picky (integer) RETURNS boolean LANGUAGE plpgsql IMMUTABLE COST 0.0001 AS"
        " $$ BEGIN IF $1 % 2 = 1 THEN RAISE 'saw %', $1; END IF; RETURN true; END $$"
    )
    pair.same("SELECT count(*) FROM even WHERE picky(id)")
    pair.same("SELECT * FROM even WHERE picky(id) AND id < 20")
    pair.execute("DROP VIEW even; DROP FUNCTION picky")


# ---- the access method -------------------------------------------------------------------------------


def test_indexes_of_the_shell_are_declared_but_never_filled_or_scanned(pair: Pair) -> None:
    pair.execute("CREATE INDEX scratch_v ON scratch (v)")
    pair.execute("SET enable_seqscan = off")
    pair.same("SELECT id FROM scratch WHERE v = 7")
    pair.same("SELECT id FROM scratch WHERE id = 7")
    pair.same("SELECT max(id), min(v) FROM scratch")
    pair.same("SELECT id FROM scratch ORDER BY id LIMIT 3")
    pair.execute("RESET enable_seqscan")
    pair.execute("REINDEX TABLE scratch")
    pair.same("SELECT id FROM scratch WHERE v = 7")
    pair.execute("DROP INDEX scratch_v")


def test_parallel_query_settings_do_not_split_the_shell(pair: Pair) -> None:
    """A parallel scan of the shell would read its rows once per process."""
    pair.execute(
        "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;"
        f"SET max_parallel_workers_per_gather = 4; SET {force_parallel_setting()} = on"
    )
    pair.all_same(
        [
            "SELECT count(*), sum(v) FROM scratch",
            "SELECT * FROM scratch WHERE v > 450",
            "SELECT count(*) FROM scratch a JOIN visits b ON a.id = b.user_id",
            "SELECT s.t, count(*) FROM scratch s JOIN plans p ON p.plan_id = s.v GROUP BY 1",
        ]
    )
    pair.execute(
        "RESET parallel_setup_cost; RESET parallel_tuple_cost; RESET min_parallel_table_scan_size;"
        f"RESET max_parallel_workers_per_gather; RESET {force_parallel_setting()}"
    )


def test_every_join_and_scan_method_of_the_coordinator_gives_the_same_rows(pair: Pair) -> None:
    query = (
        "SELECT s.id, v.visit_id, n.topic FROM scratch s JOIN visits v ON v.user_id = s.id"
        " LEFT JOIN notes n ON n.stars = s.v WHERE s.id < 120"
    )
    for method in ("hashjoin", "mergejoin", "nestloop", "material", "memoize", "hashagg", "sort"):
        pair.execute(f"SET enable_{method} = off")
        pair.same(query)
        pair.same(f"SELECT topic, count(*) FROM ({query}) AS q GROUP BY topic")
    pair.execute("SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_nestloop = on")
    pair.same(query)
    pair.execute("RESET ALL; SET search_path = test_traps, public, strata")


def test_many_tables_are_joined_under_geqo(pair: Pair) -> None:
    """The genetic optimizer frees the join relations it tries: what we attach must not outlive them."""
    pair.execute(
        "SET geqo_threshold = 2; SET from_collapse_limit = 20; SET join_collapse_limit = 20"
    )
    pair.same(
        "SELECT count(*) FROM users a JOIN events b USING (user_id) JOIN kinds c USING (kind_id)"
        " JOIN users d USING (user_id) JOIN events e ON e.user_id = d.user_id AND e.event_id = b.event_id"
        " LEFT JOIN countries f ON f.code = a.country LEFT JOIN plans g ON g.plan_id = a.plan_id"
    )
    pair.execute("RESET geqo_threshold; RESET from_collapse_limit; RESET join_collapse_limit")


def test_a_table_rewrite_keeps_the_rows_on_the_workers(pair: Pair) -> None:
    pair.execute("CREATE TABLE rewritten (id integer PRIMARY KEY, v integer)")
    pair.distribute("rewritten", "id")
    pair.execute("INSERT INTO rewritten SELECT g, g FROM generate_series(1, 200) AS g")
    for change in (
        "ALTER TABLE rewritten ALTER COLUMN v TYPE bigint",
        "ALTER TABLE rewritten ADD COLUMN w text DEFAULT 'w'",
        "ALTER TABLE rewritten DROP COLUMN w",
        "ALTER TABLE rewritten RENAME COLUMN v TO value",
    ):
        try:
            pair.ours.execute(change)
        except psycopg.errors.FeatureNotSupported:
            pass  # refused is fine, half done is not
        else:
            pair.theirs.execute(change)
        pair.same("SELECT * FROM rewritten")
        pair.same("SELECT count(*) FROM rewritten")
    pair.execute("DROP TABLE rewritten")


def test_vacuum_and_analyze_leave_the_rows_alone(pair: Pair) -> None:
    for command in (
        "VACUUM scratch",
        "VACUUM (ANALYZE) scratch",
        "VACUUM FREEZE scratch",
        "ANALYZE scratch",
    ):
        pair.execute(command)
        pair.same("SELECT count(*), sum(v) FROM scratch")
    ((age,),) = pair.rows("SELECT age(relfrozenxid) FROM pg_class WHERE oid = 'scratch'::regclass")
    assert age < 100_000_000


def test_vacuum_full_and_cluster_lose_nothing(pair: Pair) -> None:
    for command in ("VACUUM FULL scratch", "CLUSTER scratch USING scratch_pkey"):
        try:
            pair.ours.execute(command)
        except psycopg.Error as error:
            assert error.sqlstate in ("0A000", "42809"), error  # noqa: PT017
        pair.same("SELECT count(*), sum(v) FROM scratch")


def test_copy_of_a_bad_line_does_not_poison_the_session(pair: Pair) -> None:
    for _ in range(3):
        cursor = pair.ours.cursor()
        with (
            pytest.raises(psycopg.errors.InvalidTextRepresentation),
            cursor.copy("COPY scratch FROM STDIN") as copy,
        ):
            copy.write("9001\t1\tx\nnot a number\t1\tx\n")
        pair.same("SELECT count(*) FROM scratch")
    pair.copy("COPY scratch FROM STDIN", "9001\t1\tx\n")
    pair.same("SELECT count(*) FROM scratch")


def test_a_million_inserted_rows_do_not_pile_up_in_a_list(pair: Pair) -> None:
    """A per-row memory context that is never reset once made this quadratic."""
    pair.execute("CREATE TABLE heap_of_rows (id integer, v text)")
    pair.distribute("heap_of_rows", "id")
    pair.execute("INSERT INTO heap_of_rows SELECT g, 'v' FROM generate_series(1, 300000) AS g")
    pair.same("SELECT count(*), sum(id::bigint) FROM heap_of_rows")
    pair.execute("DROP TABLE heap_of_rows")


def test_an_explain_analyze_of_a_write_runs_it_once_on_each_worker(pair: Pair) -> None:
    pair.ours.execute("EXPLAIN (ANALYZE, VERBOSE) UPDATE scratch SET v = v + 1")
    pair.theirs.execute("UPDATE scratch SET v = v + 1")
    pair.same("SELECT sum(v) FROM scratch")
    pair.ours.execute("EXPLAIN (ANALYZE, VERBOSE) INSERT INTO scratch VALUES (9001, 1, 'x')")
    pair.theirs.execute("INSERT INTO scratch VALUES (9001, 1, 'x')")
    pair.same("SELECT count(*) FROM scratch")


def test_a_query_with_keys_on_one_worker_does_not_ask_the_dead_one(make_cluster) -> None:
    cluster = make_cluster(workers=2)
    coordinator = cluster.coordinator
    coordinator.execute(
        "CREATE TABLE t (id integer PRIMARY KEY); SELECT strata.create_distributed_table('t', 'id');"
        "INSERT INTO t SELECT generate_series(1, 100)"
    )
    alive, dead = cluster.workers
    key = alive.value("SELECT min(id) FROM t")
    dead.stop()
    coordinator.disconnect()
    assert coordinator.query(f"SELECT id FROM t WHERE id = {key}") == [(key,)]
    with pytest.raises(psycopg.OperationalError, match=dead.name):
        coordinator.query("SELECT count(*) FROM t")
    assert coordinator.query(f"SELECT id FROM t WHERE id = {key}") == [(key,)]
    dead.start()
    assert coordinator.value("SELECT count(*) FROM t") == 100


def test_routing_by_an_expression_that_is_not_the_key_asks_all_workers(pair: Pair) -> None:
    for query in (
        "SELECT * FROM scratch WHERE id + 1 = 8",
        "SELECT * FROM scratch WHERE v = 7",
        "SELECT * FROM scratch WHERE id = 7 OR v = 9",
        "SELECT * FROM scratch WHERE id <> 7",
        "SELECT * FROM scratch WHERE NOT id = 7",
        "SELECT * FROM scratch WHERE (id = 7) IS NOT TRUE",
        "SELECT * FROM scratch WHERE id::text = '7'",
    ):
        (gather,) = pair.gathers(query)
        assert workers_of(gather) == 2, query
        pair.same(query)


def test_a_key_compared_through_another_equality_is_not_routed_wrongly(pair: Pair) -> None:
    """numeric 7.0 and float 7 equal the integer 7 but hash otherwise; char(n) ignores blanks."""
    pair.all_same(
        [
            "SELECT * FROM scratch WHERE id = 7.0",
            "SELECT * FROM scratch WHERE id = 7::float8",
            "SELECT * FROM scratch WHERE id = 7::numeric(10, 3)",
            "SELECT * FROM scratch WHERE id = 7::smallint",
            "SELECT * FROM scratch WHERE id = ANY (ARRAY[7, 8]::bigint[])",
            "SELECT * FROM scratch WHERE id = ANY (ARRAY[7.0, 8.5])",
            "SELECT s.id FROM scratch s JOIN visits v ON v.visit_id = s.id",
            "SELECT count(*) FROM scratch s JOIN (VALUES (1.0), (2.0)) AS n (x) ON n.x = s.id",
        ]
    )
    pair.execute("CREATE TABLE padded (k char(4), v integer)")
    pair.distribute("padded", "k")
    pair.execute("INSERT INTO padded VALUES ('a', 1), ('ab', 2), ('abcd', 3)")
    pair.all_same(
        [
            "SELECT v FROM padded WHERE k = 'a'",
            "SELECT v FROM padded WHERE k = 'a   '",
            "SELECT v FROM padded WHERE k = 'a '::text",
            "SELECT v FROM padded WHERE k::text = 'a'",
            "SELECT count(*) FROM padded a JOIN padded b ON a.k::text = b.k::text",
        ]
    )
    pair.execute("DROP TABLE padded")


def test_two_sessions_that_stream_at_once_do_not_mix(pair: Pair) -> None:
    with pair.cluster.coordinator.connect() as other:
        other.execute("SET search_path = test_traps")
        with pair.ours.transaction(), other.transaction():
            pair.ours.execute("DECLARE c CURSOR FOR SELECT id FROM scratch ORDER BY id")
            other.execute("DECLARE c CURSOR FOR SELECT id FROM scratch ORDER BY id DESC")
            for step in range(5):
                mine = pair.rows("FETCH 2 FROM c")
                theirs = other.execute("FETCH 2 FROM c").fetchall()
                assert mine == [(2 * step + 1,), (2 * step + 2,)]
                assert theirs == [(500 - 2 * step,), (499 - 2 * step,)]
