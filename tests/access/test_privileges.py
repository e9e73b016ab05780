"""Ordinary roles may do on the cluster what they may do on one PostgreSQL server, and no more.

Each statement runs as the same role on the coordinator and on the plain server, and has to do the
same there: the rows, or SQLSTATE 42501.  What is refused is refused before a worker hears of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.assert_same import run
from tests.cluster import Cluster
from tests.pair import Pair, open_pair
from tests.twin import Twin

SCHEMA = "test_privileges"
READER = "strata_reader"  # may read and write `open_table`, and parts of `partly`
OTHER = "strata_other"  # owns views and functions, may read all tables
ANN = "strata_ann"  # has no privileges of her own
ROLES = (READER, OTHER, ANN)

SETUP = f"""
CREATE TABLE open_table (id integer PRIMARY KEY, v integer);
CREATE TABLE open_ref (id integer PRIMARY KEY, v integer);
CREATE TABLE closed (id integer PRIMARY KEY, v integer);
CREATE TABLE closed_ref (id integer PRIMARY KEY, v integer);
CREATE TABLE closed_local (id integer PRIMARY KEY, v integer);
CREATE TABLE partly (id integer PRIMARY KEY, seen integer, hidden integer);
CREATE TABLE written (id integer PRIMARY KEY, v integer);
CREATE TABLE note (id integer PRIMARY KEY, v integer);
CREATE FUNCTION public_rows () RETURNS TABLE (id integer, v integer) LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path = {SCHEMA}, pg_temp AS 'SELECT c.id, c.v FROM closed AS c WHERE c.id <= 5';
CREATE FUNCTION invoked_rows () RETURNS TABLE (id integer, v integer) LANGUAGE sql STABLE
    AS 'SELECT c.id, c.v FROM {SCHEMA}.closed AS c WHERE c.id <= 5';
CREATE FUNCTION add_to_closed (integer) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = {SCHEMA}, pg_temp AS $$
    BEGIN
        UPDATE closed SET v = v + $1 WHERE id = 3;
        INSERT INTO closed VALUES (900 + $1, $1);
        RETURN (SELECT sum(v) FROM closed);
    END $$;
CREATE FUNCTION who_runs () RETURNS name LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path = {SCHEMA}, pg_temp AS 'SELECT current_user FROM closed WHERE id = 1';
CREATE VIEW window_view AS SELECT id, v FROM closed WHERE id % 2 = 0;
CREATE VIEW partly_view AS SELECT id, hidden FROM partly;
CREATE VIEW joined_view AS SELECT c.id, c.v, o.v AS w FROM closed AS c JOIN open_table AS o USING (id);
CREATE VIEW sums_view AS SELECT v % 3 AS g, count(*), sum(v) FROM closed GROUP BY 1;
CREATE VIEW invoker_view WITH (security_invoker = true) AS SELECT id, v FROM closed;
CREATE VIEW nested_view AS SELECT id FROM window_view WHERE id < 50;
CREATE MATERIALIZED VIEW kept_view AS SELECT 1 AS id;
"""

DISTRIBUTED = ("open_table", "closed", "partly", "written", "note")
REFERENCES = ("open_ref", "closed_ref")
VIEWS = ("window_view", "partly_view", "joined_view", "sums_view", "invoker_view", "nested_view")

CONTENT = f"""
INSERT INTO open_table SELECT g, g * 2 FROM generate_series(1, 40) AS g;
INSERT INTO closed SELECT g, g * 3 FROM generate_series(1, 40) AS g;
INSERT INTO partly SELECT g, g, -g FROM generate_series(1, 40) AS g;
INSERT INTO open_ref SELECT g, g FROM generate_series(1, 10) AS g;
INSERT INTO closed_ref SELECT g, g FROM generate_series(1, 10) AS g;
INSERT INTO closed_local SELECT g, g FROM generate_series(1, 10) AS g;
GRANT USAGE ON SCHEMA {SCHEMA} TO {", ".join(ROLES)};
GRANT SELECT, INSERT, UPDATE, DELETE ON open_table, open_ref TO {READER};
GRANT SELECT (id, seen), UPDATE (seen), INSERT (id, seen) ON partly TO {READER};
GRANT INSERT ON written TO {READER};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {SCHEMA} TO {OTHER};
GRANT SELECT ON {", ".join(VIEWS)} TO {READER};
GRANT UPDATE, DELETE ON window_view TO {READER};
REVOKE ALL ON FUNCTION add_to_closed (integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION add_to_closed (integer) TO {READER};
"""


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    for role in ROLES:
        cluster.create_role(role)
    with open_pair(cluster, SCHEMA) as made:
        made.execute(SETUP)
        made.ours.execute(f"DROP VIEW {', '.join(VIEWS)}")  # a view names a table of before
        for table in DISTRIBUTED:
            made.distribute(
                table, "id", colocate_with="open_table" if table != "open_table" else "none"
            )
        for table in REFERENCES:
            made.reference(table)
        for line in SETUP.splitlines():
            if line.startswith("CREATE VIEW"):
                made.ours.execute(line)
        made.execute(CONTENT)
        for view in VIEWS:
            made.execute(f"ALTER VIEW {view} OWNER TO {OTHER}")
        made.execute(
            f"ALTER FUNCTION public_rows () OWNER TO {OTHER};"
            f"ALTER FUNCTION add_to_closed (integer) OWNER TO {OTHER};"
            f"ALTER FUNCTION who_runs () OWNER TO {OTHER}"
        )
        yield made
        made.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
    for node in cluster.nodes:
        node.execute(f"DROP OWNED BY {', '.join(ROLES)}")


@pytest.fixture
def reader(as_role: Callable[[str], Twin]) -> Twin:
    return as_role(READER)


# ---- tables -----------------------------------------------------------------------------------------


def test_what_is_granted_is_possible(reader: Twin) -> None:
    reader.undone(
        "SELECT * FROM open_table",
        "SELECT count(*), sum(v) FROM open_table",
        "SELECT o.id, r.v FROM open_table AS o JOIN open_ref AS r USING (id)",
        "INSERT INTO open_table VALUES (100, 1), (101, 2) RETURNING *",
        "UPDATE open_table SET v = 0 WHERE id < 5 OR id = 100 RETURNING id",
        "DELETE FROM open_table WHERE id = 100",
        "UPDATE open_ref SET v = v + 1",
        "INSERT INTO open_ref VALUES (77, 7)",
        "SELECT id FROM open_table WHERE id < 4 FOR UPDATE",
        "SELECT * FROM open_table ORDER BY id",
        "SELECT * FROM open_ref ORDER BY id",
        "INSERT INTO written VALUES (1, 1), (2, 2)",
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM closed",
        "SELECT id FROM closed WHERE id = 3",
        "SELECT FROM closed",
        "SELECT count(*) FROM closed",
        "SELECT 1 FROM closed LIMIT 0",
        "TABLE closed_ref",
        "SELECT * FROM open_table JOIN closed USING (id)",
        "SELECT * FROM open_table LEFT JOIN closed ON closed.id = open_table.id",
        "SELECT open_table.v FROM open_table LEFT JOIN closed USING (id)",  # the join is removed
        "SELECT * FROM open_table JOIN closed_ref USING (id)",
        "SELECT * FROM open_table NATURAL JOIN closed_local",
        "SELECT id FROM open_table UNION ALL SELECT id FROM closed",
        "SELECT id FROM open_table EXCEPT SELECT id FROM closed_ref",
        # only inside of what is pushed as a whole
        "SELECT * FROM (SELECT id, count(*) FROM closed GROUP BY id) AS c WHERE c.id = 3",
        "SELECT o.id FROM open_table AS o JOIN (SELECT DISTINCT id FROM closed) AS c USING (id)",
        "SELECT o.id FROM open_table AS o JOIN (SELECT id, max(v) AS m FROM closed GROUP BY id) AS c"
        " USING (id) WHERE m > 4",
        "SELECT o.id FROM open_table AS o JOIN (SELECT id FROM closed LIMIT 3) AS c USING (id)",
        "SELECT id FROM open_table WHERE id IN (SELECT id FROM closed)",
        "SELECT id FROM open_table WHERE id NOT IN (SELECT id FROM closed)",
        "SELECT id FROM open_table AS o WHERE EXISTS (SELECT FROM closed AS c WHERE c.id = o.id)",
        "SELECT id FROM open_table AS o WHERE NOT EXISTS (SELECT FROM closed_ref AS c WHERE c.id = o.id)",
        "SELECT id, (SELECT v FROM closed AS c WHERE c.id = o.id) FROM open_table AS o",
        "SELECT id, (SELECT sum(v) FROM closed_ref AS c WHERE c.id <= o.id) FROM open_table AS o",
        "SELECT id FROM open_table WHERE v > (SELECT avg(v) FROM closed)",
        "SELECT id FROM open_table WHERE v = ANY (SELECT v FROM closed_ref)",
        "SELECT o.id, l.v FROM open_table AS o, LATERAL (SELECT v FROM closed AS c WHERE c.id = o.id) AS l",
        "SELECT id, ARRAY(SELECT v FROM closed AS c WHERE c.id = o.id) FROM open_table AS o",
        "WITH c AS (SELECT id FROM closed) SELECT count(*) FROM c JOIN open_table USING (id)",
        "SELECT count(*) FILTER (WHERE id IN (SELECT id FROM closed)) FROM open_table",
        "SELECT v, count(*) FROM open_table GROUP BY v HAVING count(*) > (SELECT min(v) FROM closed)",
        "SELECT id FROM open_table ORDER BY (SELECT v FROM closed AS c WHERE c.id = open_table.id)",
        "SELECT id FROM open_table LIMIT (SELECT count(*) FROM closed)",
        "SELECT id FROM open_table WHERE false AND id IN (SELECT id FROM closed)",
        # rows of it change, or change others
        "INSERT INTO closed VALUES (500, 1)",
        "INSERT INTO closed SELECT * FROM open_table",
        "INSERT INTO open_table SELECT id + 100, v FROM closed",
        "UPDATE closed SET v = 1",
        "UPDATE closed SET v = 1 WHERE id = 3",
        "UPDATE open_table SET v = closed.v FROM closed WHERE closed.id = open_table.id",
        "UPDATE open_table AS o SET v = (SELECT v FROM closed AS c WHERE c.id = o.id)",
        "UPDATE open_table SET v = 1 WHERE id IN (SELECT id FROM closed)",
        "UPDATE open_table SET v = 1 RETURNING (SELECT max(v) FROM closed_ref)",
        "DELETE FROM closed",
        "DELETE FROM open_table USING closed WHERE closed.id = open_table.id",
        "DELETE FROM open_table AS o WHERE EXISTS (SELECT FROM closed AS c WHERE c.id = o.id)",
        "MERGE INTO open_table AS o USING closed AS c ON c.id = o.id WHEN MATCHED THEN DELETE",
        "MERGE INTO closed AS c USING open_table AS o ON c.id = o.id WHEN MATCHED THEN UPDATE SET v = 1",
        "WITH d AS (DELETE FROM closed RETURNING *) SELECT count(*) FROM d",
        "SELECT id FROM closed WHERE id = 3 FOR UPDATE",
        "SELECT o.id FROM open_table AS o JOIN closed AS c USING (id) FOR UPDATE OF o",
        "TRUNCATE closed",
        "TRUNCATE open_table",  # a privilege of its own
        "DO $$ BEGIN LOCK TABLE closed IN ACCESS SHARE MODE; END $$",
        "COPY closed TO STDOUT",
        "COPY (SELECT count(*) FROM closed) TO STDOUT",
        "COPY closed FROM STDIN",
        "CREATE TEMPORARY TABLE stolen AS SELECT * FROM closed",
        "DECLARE c CURSOR WITH HOLD FOR SELECT * FROM closed",
        "EXPLAIN SELECT * FROM closed",
        "EXPLAIN ANALYZE SELECT o.id FROM open_table AS o JOIN closed USING (id)",
        "SELECT * FROM closed TABLESAMPLE BERNOULLI (50)",
        "SELECT * FROM invoked_rows()",
        "SELECT * FROM open_table, invoked_rows() AS i WHERE i.id = open_table.id",
        "DO $$ BEGIN PERFORM * FROM closed; END $$",
        # only INSERT is granted
        "SELECT * FROM written",
        "INSERT INTO written VALUES (9, 9) RETURNING id",
        "INSERT INTO written VALUES (9, 9) ON CONFLICT (id) DO NOTHING",
        "INSERT INTO written VALUES (9, 9) ON CONFLICT (id) DO UPDATE SET v = 1",
        "DELETE FROM written",
    ],
)
def test_what_is_not_granted_is_refused_before_a_worker_is_asked(reader: Twin, query: str) -> None:
    reader.denied(query)


@pytest.mark.parametrize(
    "query",
    [
        "ALTER TABLE closed ADD COLUMN mine integer",
        "ALTER TABLE open_table DROP COLUMN v",
        "DROP TABLE closed",
        "CREATE INDEX ON closed (v)",
        "CREATE TRIGGER t BEFORE INSERT ON closed FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "CREATE POLICY p ON note USING (true)",
        "ALTER TABLE note DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE note NO FORCE ROW LEVEL SECURITY",
        f"ALTER TABLE open_table OWNER TO {READER}",
        "COMMENT ON TABLE open_table IS 'mine'",
        f"CREATE TABLE {SCHEMA}.mine (id integer)",
        "REINDEX TABLE open_table",
        f"DROP SCHEMA {SCHEMA}",
        "CREATE ROLE strata_new",
        "ALTER ROLE strata_other SUPERUSER",
        "GRANT strata_other TO strata_reader",
        "CREATE SCHEMA AUTHORIZATION strata_reader",
    ],
)
def test_commands_of_owners_and_administrators_are_refused_without_a_worker(
    reader: Twin, query: str
) -> None:
    reader.denied(query)


def test_a_grant_of_somebody_elses_table_grants_nothing(reader: Twin, pair: Pair) -> None:
    reader.denied(f"GRANT SELECT ON closed TO {READER}")
    # with a privilege but no grant option this is a warning, as in PostgreSQL
    reader.same(f"GRANT SELECT ON open_table TO {ANN}")
    query = f"SELECT has_table_privilege('{ANN}', '{SCHEMA}.open_table', 'SELECT')"
    assert pair.rows(query) == [(False,)]
    assert pair.on_workers(query) == [False, False]


# ---- columns ----------------------------------------------------------------------------------------


def test_granted_columns_can_be_used(reader: Twin) -> None:
    reader.undone(
        "SELECT id, seen FROM partly ORDER BY id",
        "SELECT count(*) FROM partly",
        "SELECT sum(seen) FROM partly WHERE id > 3 GROUP BY seen % 4",
        "SELECT o.v, p.seen FROM open_table AS o JOIN partly AS p USING (id)",
        "SELECT (SELECT seen FROM partly AS p WHERE p.id = o.id) FROM open_table AS o",
        "UPDATE partly SET seen = 0 WHERE id = 3 RETURNING id, seen",
        "UPDATE partly SET seen = seen + 1",
        "SELECT count(*), sum(seen) FROM partly",
    )


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO partly (id, seen) VALUES (100, 1)",
        "INSERT INTO partly (id, seen) VALUES (100, 1), (101, 2) RETURNING seen",
        "INSERT INTO partly (id, seen) SELECT id + 200, v FROM open_table",
    ],
)
def test_granted_columns_can_be_inserted(reader: Twin, statement: str) -> None:
    reader.undone(statement, "SELECT count(*), sum(seen) FROM partly")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM partly",
        "SELECT hidden FROM partly",
        "SELECT id FROM partly WHERE hidden = -3",
        "SELECT id FROM partly ORDER BY hidden",
        "SELECT count(*) FROM partly GROUP BY hidden",
        "SELECT sum(hidden) FROM partly",
        "SELECT p FROM partly AS p",
        "SELECT o.id FROM open_table AS o JOIN partly AS p ON p.hidden = -o.id AND p.id = o.id",
        "SELECT o.id FROM open_table AS o WHERE EXISTS (SELECT FROM partly AS p WHERE p.id = o.id AND hidden < 0)",
        "SELECT o.id FROM open_table AS o JOIN (SELECT id, max(hidden) FROM partly GROUP BY id) AS p USING (id)",
        "SELECT id FROM (SELECT id, hidden FROM partly OFFSET 0) AS p",
        "UPDATE partly SET hidden = 0",
        "UPDATE partly SET seen = hidden",
        "UPDATE partly SET seen = 0 WHERE hidden = -3",
        "UPDATE partly SET seen = 0 RETURNING hidden",
        "INSERT INTO partly VALUES (100, 1, 2)",
        "INSERT INTO partly (id, hidden) VALUES (100, 1)",
        "INSERT INTO partly (id, seen) VALUES (100, 1) RETURNING *",
        "DELETE FROM partly WHERE id = 3",
        "COPY partly TO STDOUT",
        "COPY partly (id, hidden) TO STDOUT",
    ],
)
def test_other_columns_are_refused(reader: Twin, query: str) -> None:
    reader.denied(query)


# ---- views, functions: another role's privileges --------------------------------------------------


VIEW_QUERIES = [
    "SELECT * FROM window_view",
    "SELECT * FROM window_view WHERE id = 4",
    "SELECT count(*), sum(v) FROM window_view",
    "SELECT * FROM partly_view WHERE hidden < -30",
    "SELECT * FROM joined_view",
    "SELECT * FROM sums_view",
    "SELECT * FROM nested_view",
    "SELECT o.id, w.v FROM open_table AS o JOIN window_view AS w USING (id)",
    "SELECT o.id FROM open_table AS o LEFT JOIN window_view AS w USING (id) WHERE w.id IS NULL",
    "SELECT id FROM open_table WHERE id IN (SELECT id FROM window_view)",
    "SELECT id FROM open_table AS o WHERE EXISTS (SELECT FROM nested_view AS w WHERE w.id = o.id)",
    "SELECT id, (SELECT v FROM window_view AS w WHERE w.id = o.id) FROM open_table AS o",
    "SELECT r.id, s.sum FROM open_ref AS r JOIN sums_view AS s ON s.g = r.id",
    "UPDATE window_view SET v = 0 WHERE id = 4",
    "UPDATE window_view SET v = v + 1 RETURNING id, v",
    "DELETE FROM window_view WHERE id < 10",
    "UPDATE open_table SET v = w.v FROM window_view AS w WHERE w.id = open_table.id",
    "INSERT INTO open_table SELECT id + 100, v FROM window_view",
]


@pytest.mark.parametrize("query", VIEW_QUERIES)
def test_views_serve_their_owner(as_role: Callable[[str], Twin], query: str) -> None:
    as_role(OTHER).undone(query, "SELECT * FROM closed ORDER BY id")


@pytest.mark.parametrize("query", VIEW_QUERIES)
def test_views_of_another_role_open_what_their_owner_may(
    reader: Twin, pair: Pair, query: str
) -> None:
    """In one statement two roles may meet; a write that would need both at once may be refused."""
    reader.execute("BEGIN")
    try:
        ours, theirs = run(reader.ours, query), run(reader.theirs, query)
        assert theirs.sqlstate is None, theirs
        if query.startswith("SELECT") or ours.sqlstate != "0A000":
            reader.execute("ROLLBACK; BEGIN")
            reader.same(query)
    finally:
        reader.execute("ROLLBACK")
    assert pair.rows("SELECT count(*), sum(v) FROM closed") == [(40, 2460)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM public_rows()",
        "SELECT count(*), sum(v) FROM public_rows()",
        "SELECT o.id, p.v FROM open_table AS o JOIN public_rows() AS p USING (id)",
        "SELECT id FROM open_table WHERE id IN (SELECT id FROM public_rows())",
        "SELECT who_runs(), current_user",
        "SELECT add_to_closed(3)",
        "SELECT add_to_closed(3), sum(v) FROM open_table",
        "INSERT INTO open_table SELECT id + 500, v FROM public_rows() RETURNING *",
    ],
)
def test_functions_of_another_role_run_as_that_role(reader: Twin, pair: Pair, query: str) -> None:
    """In one statement two roles may meet: each part runs as the role whose it is."""
    reader.undone(query)
    assert pair.rows("SELECT count(*), sum(v) FROM closed") == [(40, 2460)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM invoker_view",
        "SELECT o.id FROM open_table AS o JOIN invoker_view USING (id)",
        "DELETE FROM joined_view",
        "INSERT INTO window_view VALUES (100, 1)",
        "UPDATE nested_view SET id = id + 1",
        "SELECT w.id FROM window_view AS w JOIN closed USING (id)",
        "SELECT id FROM window_view WHERE id IN (SELECT id FROM closed)",
        "SELECT * FROM kept_view",
    ],
)
def test_views_open_no_more_than_they_say(reader: Twin, query: str) -> None:
    if query.startswith(
        "DELETE FROM joined_view"
    ):  # not updatable: another error, the same on both
        reader.same(query)
    else:
        reader.denied(query)


def test_a_view_whose_owner_lost_the_privilege_is_closed(reader: Twin, pair: Pair) -> None:
    pair.execute(f"REVOKE SELECT ON closed FROM {OTHER}")
    try:
        for query in (
            "SELECT * FROM window_view",
            "SELECT * FROM nested_view",
            "SELECT o.id FROM open_table AS o JOIN window_view AS w USING (id)",
            "SELECT * FROM public_rows()",
        ):
            reader.denied(query)
    finally:
        pair.execute(f"GRANT SELECT ON closed TO {OTHER}")


def test_two_roles_in_one_transaction_see_each_other(reader: Twin) -> None:
    reader.undone(
        "UPDATE open_table SET v = v + 1 WHERE id < 5",
        "SELECT add_to_closed(1)",
        "SELECT id, v FROM public_rows() ORDER BY id",
        "SELECT count(*), sum(v) FROM window_view",
        "SELECT o.v, w.v FROM open_table AS o JOIN window_view AS w USING (id) WHERE id < 9",
        "UPDATE window_view SET v = 0 WHERE id < 9",
        "SELECT add_to_closed(2)",
        "SELECT sum(v) FROM open_table",
    )
    reader.same("SELECT * FROM public_rows()")


@pytest.mark.parametrize("distribute", [False, True])
def test_a_function_of_a_tables_rows_can_change_hands(pair: Pair, distribute: bool) -> None:
    """Workers did not know the table when the function was made, and do not have the function."""
    pair.execute(
        "CREATE TABLE fresh (id integer);"
        "CREATE FUNCTION fresh_rows () RETURNS SETOF fresh LANGUAGE sql STABLE"
        f" AS 'SELECT * FROM {SCHEMA}.fresh'"
    )
    if distribute:
        pair.distribute("fresh", "id")
    try:
        for command in (
            f"ALTER FUNCTION fresh_rows () OWNER TO {OTHER}",
            f"GRANT EXECUTE ON FUNCTION fresh_rows () TO {READER}",
            "ALTER FUNCTION fresh_rows () VOLATILE",
            "COMMENT ON FUNCTION fresh_rows () IS 'rows of here'",
            "ALTER FUNCTION fresh_rows () RENAME TO fresh_rows_again",
            "SELECT * FROM fresh_rows_again()",
            "DROP FUNCTION fresh_rows_again ()",
        ):
            pair.same(command)
    finally:
        pair.execute("DROP TABLE fresh CASCADE")


def test_an_upsert_obeys_the_check_option_of_a_view(pair: Pair) -> None:
    pair.execute("CREATE VIEW small AS SELECT * FROM open_table WHERE v < 100 WITH CHECK OPTION")
    try:
        for statement in (
            "INSERT INTO small VALUES (700, 500)",
            "INSERT INTO small VALUES (700, 500) ON CONFLICT (id) DO NOTHING",
            "INSERT INTO small VALUES (4, 5) ON CONFLICT (id) DO UPDATE SET v = 500",
        ):
            with pair.transaction():
                theirs = run(pair.theirs, statement)
                assert theirs.sqlstate == "44000"
                outcome = run(pair.ours, statement)
                assert outcome.sqlstate in ("44000", "0A000"), f"{statement}: {outcome}"
    finally:
        pair.execute("DROP VIEW small")


# ---- set role, roles of roles --------------------------------------------------------------------------


def test_set_role_changes_what_is_possible_and_back(pair: Pair) -> None:
    for query in ("SELECT count(*) FROM closed", "SELECT count(*) FROM open_table"):
        for role in (READER, OTHER, ANN):
            pair.execute(f"SET ROLE {role}")
            try:
                pair.same(query)
            finally:
                pair.execute("RESET ROLE")
            pair.same(query)


def test_privileges_of_a_group_hold_for_its_members(pair: Pair, reader: Twin) -> None:
    pair.execute(f"GRANT {OTHER} TO {READER}")
    try:
        reader.same("SELECT count(*), sum(v) FROM closed")
        reader.undone("UPDATE closed SET v = 0 WHERE id = 3 RETURNING *", "DELETE FROM closed_ref")
    finally:
        pair.execute(f"REVOKE {OTHER} FROM {READER}")
    reader.denied("SELECT count(*) FROM closed")


# ---- grants that come and go ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_a_prepared_statement_is_checked_again_after_a_revoke(
    reader: Twin, pair: Pair, mode: str
) -> None:
    pair.execute(f"GRANT SELECT ON closed TO {READER}")
    reader.execute(
        f"SET plan_cache_mode = {mode};"
        "PREPARE whole AS SELECT count(*) FROM closed;"
        "PREPARE one (integer) AS SELECT v FROM closed WHERE id = $1;"
        "PREPARE hidden_in (integer) AS SELECT o.id FROM open_table AS o"
        " JOIN (SELECT id, max(v) AS m FROM closed GROUP BY id) AS c USING (id) WHERE m > $1;"
        "PREPARE change (integer) AS UPDATE open_table SET v = 1 WHERE id IN (SELECT id FROM closed WHERE id = $1)"
    )
    statements = ("whole", "one (3)", "hidden_in (50)", "change (99)")
    for _ in range(2):
        for statement in statements:
            reader.same(f"EXECUTE {statement}")
        pair.execute(f"REVOKE SELECT ON closed FROM {READER}")
        for statement in statements:
            outcome = run(reader.ours, f"EXECUTE {statement}")
            assert outcome.sqlstate == "42501", statement
            reader.same(f"EXECUTE {statement}")
        pair.execute(f"GRANT SELECT ON closed TO {READER}")
    pair.execute(f"REVOKE SELECT ON closed FROM {READER}")


def test_workers_grant_nobody_anything_on_tables(pair: Pair) -> None:
    everything = "SELECT DISTINCT relacl FROM pg_class WHERE relnamespace = '{}'::regnamespace UNION ALL SELECT attacl FROM pg_attribute WHERE attacl IS NOT NULL AND attrelid >= 16384"
    pair.ours.execute(
        f"GRANT ALL ON closed, closed_ref TO {ANN} WITH GRANT OPTION; GRANT UPDATE (v) ON closed TO {ANN};"
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {SCHEMA} TO {ANN};"
        f"GRANT pg_read_all_data, pg_monitor TO {ANN}; GRANT pg_write_all_data TO {ANN}"
    )
    try:
        for worker in pair.cluster.workers:
            assert worker.query(everything.format(SCHEMA)) == [(None,)]
            assert worker.query(
                "SELECT roleid::regrole::text FROM pg_auth_members WHERE member = %s::regrole",
                (ANN,),
            ) == [("pg_monitor",)]
        health = pair.ours.execute("SELECT * FROM strata.check_health() WHERE NOT ok").fetchall()
        assert health == []
    finally:
        pair.ours.execute(
            f"REVOKE ALL ON ALL TABLES IN SCHEMA {SCHEMA} FROM {ANN} CASCADE;"
            f"REVOKE pg_read_all_data, pg_monitor, pg_write_all_data FROM {ANN}"
        )


def test_who_may_read_all_data_need_not_know_the_schema(
    pair: Pair, as_role: Callable[[str], Twin]
) -> None:
    for connection in (pair.ours, pair.theirs):
        connection.execute(f"GRANT pg_read_all_data, pg_write_all_data TO {ANN}")
    pair.execute(f"REVOKE USAGE ON SCHEMA {SCHEMA} FROM {ANN}")
    try:
        as_role(ANN).undone(
            "SELECT count(*), sum(v) FROM closed",
            "SELECT c.v, r.v FROM closed AS c JOIN closed_ref AS r USING (id)",
            "UPDATE closed SET v = 1 WHERE id < 4 RETURNING *",
            "INSERT INTO closed SELECT id + 700, v FROM open_table",
        )
    finally:
        pair.execute(f"GRANT USAGE ON SCHEMA {SCHEMA} TO {ANN}")
        for connection in (pair.ours, pair.theirs):
            connection.execute(f"REVOKE pg_read_all_data, pg_write_all_data FROM {ANN}")


def test_a_grant_that_is_rolled_back_is_nowhere(pair: Pair, reader: Twin) -> None:
    with pair.transaction():
        pair.execute(f"GRANT SELECT ON closed TO {READER}")
    reader.denied("SELECT * FROM closed")


# ---- the cluster itself -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM strata.worker",
        "SELECT conninfo FROM strata.worker",
        "SELECT count(*) FROM strata.worker WHERE conninfo ~ 'pass'",
        "SELECT * FROM strata.cluster",
        "SELECT * FROM strata.distributed_transaction",
        "SELECT * FROM strata.distributed_table",
        "UPDATE strata.worker SET conninfo = 'host=elsewhere'",
        "INSERT INTO strata.worker VALUES (9, 'mine', 'host=elsewhere')",
        "DELETE FROM strata.distributed_transaction",
        "UPDATE strata.shard SET worker_id = 1",
        "DELETE FROM strata.distributed_table",
        "UPDATE strata.cluster SET epoch = epoch + 1",
        "TRUNCATE strata.distributed_transaction",
        "SELECT strata.add_worker('mine', 'host=127.0.0.1')",
        "SELECT strata.remove_worker('worker1')",
        "SELECT * FROM strata.run_command_on_workers('SELECT 1')",
        "SELECT strata.run_on_worker(1, 'SELECT 1', false)",
        "SELECT * FROM strata.check_health()",
        "SELECT * FROM strata.schema_commands()",
        "SELECT strata.create_distributed_table('closed_local', 'id')",
        "SELECT strata.create_reference_table('closed_local')",
        "SELECT strata.undistribute_table('open_table')",
        "SELECT strata.undistribute_table('open_ref')",
        "CREATE TABLE strata.mine (id integer)",
        "CREATE TRIGGER t BEFORE UPDATE ON strata.worker FOR EACH ROW EXECUTE FUNCTION strata.invalidate_metadata()",
        "ALTER EXTENSION strata DROP TABLE strata.worker",
    ],
)
def test_the_cluster_is_the_administrators(reader: Twin, statement: str) -> None:
    before = reader.backends_on_workers()
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        reader.ours.execute(statement)
    assert reader.backends_on_workers() == before


def test_everybody_may_look_at_the_views_without_secrets(reader: Twin) -> None:
    rows = reader.ours.execute("SELECT * FROM strata.workers").fetchall()
    assert len(rows) == 2
    assert "passfile" not in str(rows)
    assert "password" not in str(rows)
    rows = reader.ours.execute("SELECT * FROM strata.tables").fetchall()
    assert len([row for row in rows if "closed" in str(row)]) == 2
    for table, count in (("open_table", 4), ("closed", 0)):
        rows = reader.ours.execute(
            "SELECT count(*), count(*) FILTER (WHERE bytes > 0) FROM strata.shards"
            f" WHERE relation = '{table}'::regclass"
        ).fetchall()
        assert rows == [(count, count)]


def test_an_error_shows_an_ordinary_role_no_connection_string(reader: Twin) -> None:
    with pytest.raises(psycopg.Error) as caught:
        reader.ours.execute("UPDATE open_table SET v = 1 / (v - v)")
    diag = caught.value.diag
    assert caught.value.sqlstate == "22012"
    assert (
        "passfile" not in f"{caught.value} {diag.message_detail} {diag.context} {diag.message_hint}"
    )


def test_everybody_may_distribute_his_own_tables(pair: Pair, reader: Twin) -> None:
    for connection in (pair.ours, pair.theirs):
        connection.execute(f"CREATE SCHEMA test_privileges_own AUTHORIZATION {READER}")
    try:
        reader.execute(
            "SET search_path = test_privileges_own, strata;"
            "CREATE TABLE mine (id integer PRIMARY KEY, v integer CHECK (v > 0));"
            "CREATE TABLE codes (id integer PRIMARY KEY, name text);"
            "INSERT INTO mine SELECT g, g FROM generate_series(1, 50) AS g"
        )
        reader.ours.execute(
            "SELECT create_distributed_table('mine', 'id', shard_count => 4);"
            "SELECT create_reference_table('codes')"
        )
        for query in (
            "INSERT INTO mine VALUES (100, 1) RETURNING *",
            "INSERT INTO mine VALUES (101, 0)",
            "INSERT INTO codes VALUES (1, 'one')",
            "SELECT sum(m.v), max(c.name) FROM mine AS m LEFT JOIN codes AS c USING (id)",
            "ALTER TABLE mine ADD COLUMN w integer DEFAULT 7",
            "CREATE INDEX ON mine (v)",
            f"GRANT SELECT ON mine TO {ANN}",
            f"GRANT USAGE ON SCHEMA test_privileges_own TO {ANN}",
            "UPDATE mine SET w = v WHERE id < 10",
            "SELECT * FROM mine",
            "TRUNCATE codes",
        ):
            reader.same(query)
        owner = "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'test_privileges_own.mine'::regclass"
        assert pair.on_workers(owner) == [READER, READER]
        with pair.cluster.coordinator.connect(user=ANN) as ann:
            (count,) = ann.execute("SELECT count(*) FROM test_privileges_own.mine").fetchone()
            assert count == 51
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                ann.execute("SELECT * FROM test_privileges_own.codes")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                ann.execute("SELECT strata.undistribute_table('test_privileges_own.mine')")
        reader.ours.execute("SELECT undistribute_table('mine'); SELECT undistribute_table('codes')")
        reader.same("SELECT count(*), sum(v), sum(w) FROM mine")
        reader.same("DROP TABLE mine, codes")
    finally:
        pair.execute("DROP SCHEMA test_privileges_own CASCADE")


def test_a_role_that_cannot_log_in_acts(pair: Pair) -> None:
    pair.execute("DROP ROLE IF EXISTS strata_nologin; CREATE ROLE strata_nologin NOLOGIN")
    pair.execute(
        f"GRANT USAGE ON SCHEMA {SCHEMA} TO strata_nologin; GRANT SELECT ON open_table, closed_local TO strata_nologin;"
        "SET ROLE strata_nologin"
    )
    try:
        pair.same("SELECT count(*) FROM closed_local")
        pair.same("SELECT count(*) FROM open_table")
    finally:
        pair.execute("RESET ROLE; DROP OWNED BY strata_nologin; DROP ROLE strata_nologin")
