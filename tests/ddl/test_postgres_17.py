"""What PostgreSQL 16 and 17 brought works over distributed tables, or is refused with a reason."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests import shop
from tests.cluster import Cluster
from tests.pair import Pair, open_pair
from tests.waiting import wait_until

pytestmark = pytest.mark.since(17)


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_17") as made:
        shop.create(made)
        yield made


# ---- queries ---------------------------------------------------------------------------------------

QUERIES = {
    "any_value of equal values": "SELECT country, any_value(country) FROM users GROUP BY country",
    "any_value across keys": "SELECT any_value(1) FROM events",
    "any_value of a group": "SELECT user_id, any_value(name) FROM users GROUP BY user_id",
    "any_value with a filter": "SELECT plan_id, any_value(plan_id) FILTER (WHERE age > 200) FROM users GROUP BY 1",
    "a sub-select without alias": "SELECT count(*) FROM (SELECT user_id FROM users WHERE age > 40)",
    "joined sub-selects without alias": "SELECT sum(n) FROM (SELECT user_id AS u, count(*) AS n FROM events GROUP BY 1)"
    " JOIN (SELECT user_id, age FROM users) ON u = user_id",
    "JSON_TABLE over rows": "SELECT e.event_id, j.* FROM events e, JSON_TABLE(e.payload, '$'"
    " COLUMNS (n integer PATH '$.n', s text PATH '$.s')) AS j",
    "a sum over JSON_TABLE": "SELECT e.user_id, sum(j.n) FROM events e, JSON_TABLE(e.payload, '$'"
    " COLUMNS (n integer PATH '$.n')) AS j GROUP BY e.user_id",
    "nested JSON_TABLE": """SELECT u.user_id, j.* FROM users u, JSON_TABLE(jsonb_build_array(u.age, u.plan_id), '$'
        COLUMNS (k FOR ORDINALITY, NESTED PATH '$[*]' COLUMNS (v integer PATH '$'))) AS j WHERE u.user_id < 20""",
    "JSON_VALUE": "SELECT event_id, JSON_VALUE(payload, '$.n' RETURNING integer) FROM events",
    "JSON_QUERY": "SELECT event_id, JSON_QUERY(payload, '$.s' WITH WRAPPER) FROM events WHERE user_id = 14",
    "JSON_QUERY without a wrapper": "SELECT event_id, JSON_QUERY(payload, '$.s') FROM events WHERE user_id = 14",
    "JSON_QUERY WITHOUT WRAPPER": "SELECT event_id, JSON_QUERY(payload, '$.*' WITHOUT WRAPPER EMPTY ARRAY ON ERROR) FROM events",
    "JSON_QUERY OMIT QUOTES": "SELECT event_id, JSON_QUERY(payload, '$.s' RETURNING text OMIT QUOTES) FROM events",
    "JSON_QUERY FORMAT JSON": "SELECT event_id, JSON_QUERY(payload::text FORMAT JSON, '$.s' RETURNING text FORMAT JSON) FROM events",
    "JSON_QUERY PASSING": "SELECT event_id, JSON_QUERY(payload, '$.n ? (@ > $k)' PASSING kind_id AS k NULL ON EMPTY ERROR ON ERROR) FROM events",
    "JSON_QUERY in WHERE": "SELECT count(*) FROM events WHERE JSON_QUERY(payload, '$.n')::text = '3'",
    "JSON_QUERY in a group": "SELECT JSON_QUERY(payload, '$.s' DEFAULT '{}' ON EMPTY), count(*) FROM events GROUP BY 1",
    "JSON_VALUE FORMAT JSON": "SELECT event_id, JSON_VALUE(payload FORMAT JSON, '$.n' DEFAULT 'none' ON EMPTY) FROM events",
    "JSON_EXISTS": "SELECT count(*) FROM events WHERE JSON_EXISTS(payload, '$ ? (@.n > 5)')",
    "JSON constructors": "SELECT event_id, JSON_OBJECT('a': amount, 'ok': ok ABSENT ON NULL), JSON_ARRAY(user_id, kind_id NULL ON NULL) FROM events",
    "JSON_ARRAYAGG": "SELECT user_id, JSON_ARRAYAGG(event_id ORDER BY event_id) FROM events GROUP BY user_id",
    "JSON_OBJECTAGG": "SELECT user_id, JSON_OBJECTAGG(event_id: kind_id ABSENT ON NULL RETURNING jsonb) FROM events GROUP BY user_id",
    "IS JSON": "SELECT count(*) FILTER (WHERE body IS JSON), count(*) FILTER (WHERE topic IS NOT JSON OBJECT) FROM notes",
    "JSON_SCALAR and JSON_SERIALIZE": "SELECT user_id, JSON_SERIALIZE(JSON_SCALAR(balance)) FROM users",
    "AT LOCAL": "SELECT event_id, at AT LOCAL FROM events WHERE user_id = 27",
    "integers with underscores, hex and binary": "SELECT count(*) FROM visits WHERE visit_id > 1_000_003 AND user_id < 0xff AND seconds > 0b101",
    "to_bin and to_oct": "SELECT user_id, to_bin(age), to_oct(age) FROM users",
    "erf": "SELECT round(sum(erf(score))::numeric, 9) FROM events",
    "array_sample's size": "SELECT sum(cardinality(array_sample(tags, cardinality(tags)))) FROM events",
    "random in a range": "SELECT count(*) FROM users WHERE random(1, 10) BETWEEN 1 AND 10",
    "unicode": "SELECT count(*) FROM users WHERE unicode_assigned(name)",
    "ranges of intervals": "SELECT event_id, at - 'infinity'::interval FROM events WHERE user_id = 40",
    "pg_input_is_valid": "SELECT count(*) FILTER (WHERE pg_input_is_valid(name, 'integer')) FROM users",
    "string_agg in two phases": "SELECT kind_id, length(string_agg(tags[1], '')) FROM events GROUP BY kind_id",
    "an ordered string_agg": "SELECT kind_id, string_agg(event_id::text, ',' ORDER BY event_id) FROM events GROUP BY kind_id",
    "an ordered array_agg": "SELECT country, array_agg(user_id ORDER BY user_id) FROM users GROUP BY country",
    "a range of a window": "SELECT user_id, ntile(4) OVER (ORDER BY user_id) FROM users",
    "xmltext": "SELECT user_id, xmltext(name)::text FROM users WHERE user_id < 9",
}  # fmt: skip


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_new_expressions_mean_the_same(pair: Pair, query: str) -> None:
    pair.same(query)


def test_random_in_a_range_is_drawn_for_each_row(pair: Pair) -> None:
    ((values, smallest, largest),) = pair.rows(
        "SELECT count(DISTINCT r), min(r), max(r)"
        " FROM (SELECT random(1, 1000000) AS r FROM events OFFSET 0)"
    )
    assert values > shop.EVENTS * 0.9
    assert 1 <= smallest < largest <= 1000000


# ---- statements that write ---------------------------------------------------------------------------

MERGES = {
    "RETURNING": """MERGE INTO users u USING (SELECT user_id, count(*) AS n FROM events GROUP BY user_id) e
        ON u.user_id = e.user_id
        WHEN MATCHED AND n > 9 THEN UPDATE SET age = n
        WHEN MATCHED THEN DELETE
        RETURNING merge_action(), u.user_id, u.age""",
    "NOT MATCHED BY SOURCE": """MERGE INTO users u USING events e ON u.user_id = e.user_id AND e.event_id < 50
        WHEN NOT MATCHED BY SOURCE AND u.age > 40 THEN UPDATE SET age = -1
        WHEN NOT MATCHED BY SOURCE THEN DELETE
        WHEN MATCHED THEN DO NOTHING""",
    "NOT MATCHED BY TARGET": """MERGE INTO users u USING (SELECT DISTINCT user_id FROM events) e ON u.user_id = e.user_id
        WHEN NOT MATCHED BY TARGET THEN INSERT (user_id, name) VALUES (e.user_id, 'new')
        WHEN MATCHED THEN UPDATE SET name = 'old'
        RETURNING merge_action(), u.user_id, u.name""",
    "NOT MATCHED BY SOURCE of a reference table": """MERGE INTO users u USING countries c ON u.country = c.code
        WHEN NOT MATCHED BY SOURCE THEN UPDATE SET country = 'none' WHEN MATCHED THEN DO NOTHING
        RETURNING merge_action() || '!', c.code, u.user_id""",
    "NOT MATCHED BY SOURCE of a list": """MERGE INTO users u USING (VALUES (3, 30), (4, 40), (5, 50)) AS s (id, a) ON u.user_id = s.id
        WHEN MATCHED THEN UPDATE SET age = s.a WHEN NOT MATCHED BY SOURCE AND u.user_id < 90 THEN DELETE
        RETURNING merge_action(), u.user_id, u.age, s.a""",
    "NOT MATCHED BY SOURCE of one row": """MERGE INTO users u USING (VALUES (7)) AS s (id) ON u.age = s.id
        WHEN NOT MATCHED BY SOURCE AND u.user_id % 2 = 0 THEN UPDATE SET name = 'even' WHEN MATCHED THEN DELETE""",
    "one key with RETURNING": """MERGE INTO users u USING (VALUES (7, 99), (7000, 1)) AS s (id, a) ON u.user_id = s.id
        WHEN MATCHED THEN UPDATE SET age = s.a RETURNING merge_action(), u.*""",
}  # fmt: skip


@pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)
def test_new_forms_of_merge_do_the_same(pair: Pair, merge: str) -> None:
    with pair.transaction():
        pair.same(merge)
        pair.same("SELECT * FROM users")


def test_merge_into_a_view_means_its_table(pair: Pair) -> None:
    pair.execute("CREATE VIEW grown AS SELECT user_id, name, age FROM users WHERE age > 20")
    with pair.transaction():
        pair.same(
            "MERGE INTO grown g USING (VALUES (7), (8)) AS s (id) ON g.user_id = s.id"
            " WHEN MATCHED THEN UPDATE SET age = 70"
        )
        pair.same("SELECT user_id, age FROM users WHERE user_id < 10")
    with pair.transaction():
        assert pair.rows("SELECT count(*) FROM users WHERE age <= 20 AND user_id < 100") != [(0,)]
        pair.same(
            "MERGE INTO grown g USING users AS s ON g.user_id = s.user_id AND s.user_id < 100"
            " WHEN MATCHED THEN UPDATE SET age = g.age + 1"
        )
        pair.same("SELECT user_id, age FROM users")
        pair.same(
            "MERGE INTO grown g USING users AS s ON g.user_id = s.user_id AND s.user_id < 100"
            " WHEN NOT MATCHED BY SOURCE THEN DELETE"
        )
        pair.same("SELECT user_id, age FROM users")


MERGES_HERE = {
    "rows that do not meet": """MERGE INTO users u USING visits e ON u.user_id = e.user_id
        WHEN NOT MATCHED BY SOURCE THEN DELETE RETURNING merge_action()""",
    "an aggregate over all workers": """MERGE INTO users u USING (SELECT max(user_id) AS m FROM events) e
        ON u.age = e.m WHEN NOT MATCHED BY SOURCE THEN DELETE""",
    "NOT MATCHED BY SOURCE with one key": """MERGE INTO users u USING (VALUES (7, 99)) AS s (id, a)
        ON u.user_id = s.id AND u.user_id = 7
        WHEN MATCHED THEN UPDATE SET age = s.a WHEN NOT MATCHED BY SOURCE AND u.user_id % 2 = 0 THEN DELETE""",
    "both sides unmatched": """MERGE INTO users u USING (SELECT DISTINCT user_id FROM events WHERE user_id > 150) e
        ON u.user_id = e.user_id
        WHEN NOT MATCHED BY TARGET THEN INSERT (user_id, name) VALUES (e.user_id, 'new')
        WHEN NOT MATCHED BY SOURCE AND u.user_id > 10 THEN DELETE
        RETURNING lower(merge_action()), e.user_id, u.user_id""",
}  # fmt: skip


@pytest.mark.parametrize("merge", MERGES_HERE.values(), ids=MERGES_HERE)
def test_a_merge_that_workers_cannot_do_alone(pair: Pair, merge: str) -> None:
    with pair.transaction():
        pair.same(merge)
        pair.same("SELECT * FROM users")


def test_copy_leaves_out_rows_that_cannot_be_read(pair: Pair) -> None:
    pair.execute("CREATE TABLE loaded (id integer, v integer)")
    pair.distribute("loaded", "id")
    pair.copy(
        "COPY loaded FROM STDIN (FORMAT csv, ON_ERROR ignore, LOG_VERBOSITY default)",
        "1,10\nx,20\n3,y\n4,40\n",
    )
    pair.same("SELECT * FROM loaded")
    pair.execute("ALTER TABLE loaded ALTER v SET DEFAULT 77")
    pair.copy("COPY loaded FROM STDIN (FORMAT csv, DEFAULT 'd', FORCE_NULL *)", "5,d\n6,\n")
    pair.same("SELECT * FROM loaded")


# ---- definitions ------------------------------------------------------------------------------------


def test_identity_columns_get_values_of_the_coordinator(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE numbered (id integer GENERATED ALWAYS AS IDENTITY, k integer,"
        " other bigint GENERATED BY DEFAULT AS IDENTITY (START 100 INCREMENT 10))"
    )
    pair.distribute("numbered", "k")
    pair.execute("INSERT INTO numbered (k) SELECT g FROM generate_series(1, 50) AS g")
    pair.same("SELECT * FROM numbered")
    pair.same("UPDATE numbered SET id = 7")
    pair.same("INSERT INTO numbered (id, k) OVERRIDING SYSTEM VALUE VALUES (1000, 1) RETURNING *")


def test_the_privilege_to_maintain_counts_for_the_workers(pair: Pair) -> None:
    """They grant nobody anything on tables: the coordinator has them maintain the table as its owner."""
    pair.execute("CREATE TABLE kept (id integer, v integer)")
    pair.distribute("kept", "id")
    pair.execute("INSERT INTO kept SELECT g, g FROM generate_series(1, 100) AS g")
    pair.ours.execute(
        "CREATE ROLE maintains_kept; GRANT MAINTAIN ON kept TO maintains_kept;"
        "GRANT USAGE ON SCHEMA test_17 TO maintains_kept"
    )
    vacuumed = "SELECT count(last_vacuum) > 0, count(last_analyze) > 0 FROM pg_stat_user_tables WHERE relname LIKE 'kept%'"
    try:
        assert pair.on_workers(
            "SELECT has_table_privilege('maintains_kept', 'test_17.kept', 'MAINTAIN')"
        ) == [
            False,
            False,
        ]
        with pair.cluster.coordinator.connect() as keeper:
            keeper.execute("SET search_path = test_17; SET ROLE maintains_kept")
            keeper.execute("ANALYZE kept")
            keeper.execute("VACUUM kept")
            keeper.execute("REINDEX TABLE kept")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                keeper.execute("SELECT * FROM kept")
        for worker in pair.cluster.workers:
            for _ in wait_until("the worker has counted them"):
                ((was_vacuumed, was_analysed),) = worker.query(vacuumed)
                if was_vacuumed and was_analysed:
                    break
        pair.ours.execute("REVOKE MAINTAIN ON kept FROM maintains_kept")
    finally:
        pair.ours.execute("RESET ROLE; DROP OWNED BY maintains_kept; DROP ROLE maintains_kept")


def test_the_expression_of_a_generated_column_can_change(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE made (id integer, v integer, twice integer GENERATED ALWAYS AS (v * 2) STORED)"
    )
    pair.distribute("made", "id")
    pair.execute("INSERT INTO made SELECT g, g FROM generate_series(1, 30) AS g")
    pair.execute("ALTER TABLE made ALTER twice SET EXPRESSION AS (v * 3)")
    pair.same("SELECT * FROM made")
    pair.same("INSERT INTO made VALUES (99, 5) RETURNING *")


def test_storage_and_compression_are_part_of_create_table(pair: Pair) -> None:
    pair.execute("CREATE TABLE stored (id integer, t text STORAGE external COMPRESSION pglz)")
    pair.distribute("stored", "id")
    pair.execute("INSERT INTO stored SELECT g, repeat('x', g) FROM generate_series(1, 30) AS g")
    pair.same("SELECT * FROM stored")
    storage = (
        "SELECT format('%s %s', attstorage, attcompression) FROM pg_attribute"
        " WHERE attrelid = 'stored'::regclass AND attname = 't'"
    )
    assert pair.on_workers(storage) == [pair.rows(storage)[0][0]] * 2


def test_explain_with_memory_and_serialize_runs(pair: Pair) -> None:
    text = pair.explain("SELECT * FROM users", "ANALYZE, MEMORY, SERIALIZE, COSTS OFF, TIMING OFF")
    assert "Strata Gather" in text
    assert "Serialization:" in text
    assert "Memory:" in text


def test_explain_generic_plan_needs_no_values(pair: Pair) -> None:
    text = pair.explain("SELECT * FROM users WHERE user_id = $1", "GENERIC_PLAN, COSTS OFF")
    assert "Strata Gather" in text


@pytest.mark.parametrize("storage", ["heap", "columnar"])
def test_exclusion_constraints_hold_with_the_distribution_key_in_them(
    pair: Pair, storage: str
) -> None:
    pair.execute(
        "CREATE EXTENSION IF NOT EXISTS btree_gist; DROP TABLE IF EXISTS booked;"
        "CREATE TABLE booked (id integer, during int4range, EXCLUDE USING gist (id WITH =, during WITH &&))"
    )
    pair.ours.execute(
        "SELECT create_distributed_table('booked', 'id', storage => %s, colocate_with => 'none')",
        (storage,),
    )
    pair.same("INSERT INTO booked SELECT g, int4range(g, g + 5) FROM generate_series(1, 50) AS g")
    pair.same("INSERT INTO booked VALUES (7, '[20,30)'), (8, '[1,3)') RETURNING *")
    pair.same("INSERT INTO booked VALUES (7, '[25,26)')")
    pair.same("INSERT INTO booked VALUES (7, '[25,26)') ON CONFLICT DO NOTHING RETURNING *")
    pair.same("UPDATE booked SET during = '[0,100)' WHERE id = 7")
    pair.same("SELECT * FROM booked")
    pair.same("ALTER TABLE booked ADD EXCLUDE USING gist (id WITH =, during WITH -|-)")
    for bad in (
        "EXCLUDE USING gist (during WITH &&)",
        "EXCLUDE USING gist (id WITH <>, during WITH &&)",
    ):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="is not supported"):
            pair.ours.execute(f"ALTER TABLE booked ADD {bad}")


def test_exclusion_constraints_hold_with_the_column_of_the_periods_in_them(pair: Pair) -> None:
    columns = "(id integer, at date NOT NULL, during int4range,"
    place = (
        "SELECT create_distributed_table(%s, 'id', shard_count => 4, colocate_with => 'none',"
        " partition_by => 'at', partition_interval => '1 month')"
    )
    pair.execute(
        "CREATE EXTENSION IF NOT EXISTS btree_gist;"
        f"CREATE TABLE shifts {columns} EXCLUDE USING gist (id WITH =, at WITH =, during WITH &&));"
        f"CREATE TABLE others {columns} EXCLUDE USING gist (id WITH =, during WITH &&))"
    )
    pair.ours.execute(place, ("shifts",))
    pair.same(
        "INSERT INTO shifts SELECT 1, date '2026-01-01' + 40 * g, '[1,5)' FROM generate_series(0, 5) AS g"
    )
    pair.same("INSERT INTO shifts VALUES (1, '2026-01-01', '[3,9)')")
    pair.same(
        "INSERT INTO shifts VALUES (1, '2026-01-02', '[3,9)'), (2, '2026-01-01', '[3,9)') RETURNING *"
    )
    pair.same("UPDATE shifts SET at = '2026-01-01' WHERE at = '2026-01-02'")
    pair.same("SELECT * FROM shifts")
    with pytest.raises(psycopg.errors.FeatureNotSupported) as caught:
        pair.ours.execute(place, ("others",))
    assert '"at WITH ="' in caught.value.diag.message_hint


# ---- sessions -----------------------------------------------------------------------------------------


def test_event_triggers_of_logins_fire_where_the_user_logs_in(pair: Pair) -> None:
    """On the coordinator: the sessions that it has on the workers are none of the user's logins."""
    pair.execute("CREATE TABLE logins (who text, n integer GENERATED ALWAYS AS IDENTITY)")
    pair.distribute("logins", "who")
    pair.cluster.create_role("logs_in")
    pair.cluster.create_role("stays_out")
    pair.execute(
        "CREATE FUNCTION greet() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = test_17 AS $$"
        " BEGIN IF session_user = 'stays_out' THEN RAISE EXCEPTION 'nobody is at home'; END IF;"
        " IF session_user = 'logs_in' THEN INSERT INTO logins VALUES (session_user); END IF; END $$;"
        "CREATE EVENT TRIGGER greets ON login EXECUTE FUNCTION greet()"
    )
    try:
        for node in (pair.cluster.coordinator, pair.cluster.plain):
            for _ in range(3):
                with node.connect(user="logs_in") as connection:
                    connection.execute("SELECT 1")
            with pytest.raises(psycopg.OperationalError, match="nobody is at home"):
                node.connect(user="stays_out")
        assert len(pair.same("SELECT * FROM logins")) == 3
        with pair.cluster.coordinator.connect(user="logs_in") as connection:
            # a session that has found its way to the workers
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("SELECT * FROM test_17.logins")
        assert pair.on_workers(
            "SELECT count(*) FROM pg_event_trigger WHERE evtevent = 'login'"
        ) == [0, 0]
        pair.execute("ALTER EVENT TRIGGER greets DISABLE")
        for node in (pair.cluster.coordinator, pair.cluster.plain):
            node.connect(user="stays_out").close()
    finally:
        pair.execute("DROP EVENT TRIGGER greets; DROP FUNCTION greet()")
        for node in pair.cluster.nodes:
            node.execute("DROP ROLE IF EXISTS logs_in, stays_out")


WAITS = {
    "between two statements": "SELECT 1",
    "on the coordinator": "SELECT pg_sleep(60)",
    "for rows of a worker": "SELECT sum(v + pg_sleep(60)::text::integer) FROM timed",
    "for a lock on a worker": "UPDATE timed SET v = v + 1",
}


def execute_until_it_fails(connection: psycopg.Connection, statement: str) -> None:
    while True:
        connection.execute(statement)


@pytest.mark.parametrize("wait", WAITS)
def test_a_transaction_that_takes_too_long_ends_everywhere(pair: Pair, wait: str) -> None:
    pair.execute(
        "DROP TABLE IF EXISTS timed; CREATE TABLE timed (id integer PRIMARY KEY, v integer)"
    )
    pair.distribute("timed", "id")
    pair.execute("INSERT INTO timed SELECT g, g FROM generate_series(1, 20) AS g")
    with pair.transaction():
        pair.execute("UPDATE timed SET v = 0 WHERE id = 7")  # who changes all of them has to wait
        for node in (pair.cluster.coordinator, pair.cluster.plain):
            with node.connect() as connection:
                connection.execute(
                    "SET search_path = test_17; SET transaction_timeout = '700ms'; BEGIN"
                )
                connection.execute(
                    "INSERT INTO timed SELECT g, g FROM generate_series(100, 120) AS g"
                )
                # the message may come when nobody reads it, between two statements
                with pytest.raises((psycopg.errors.TransactionTimeout, psycopg.OperationalError)):
                    execute_until_it_fails(connection, WAITS[wait])
    with pair.cluster.coordinator.connect() as connection:
        # nothing waits for it any more
        connection.execute(
            "SET search_path = test_17; SET lock_timeout = '20s'; UPDATE timed SET v = v"
        )
    pair.same("SELECT * FROM timed")


def test_the_timeout_of_transactions_leaves_short_ones_alone(pair: Pair) -> None:
    pair.execute(
        "DROP TABLE IF EXISTS timed; CREATE TABLE timed (id integer PRIMARY KEY, v integer)"
    )
    pair.distribute("timed", "id")
    pair.execute("SET transaction_timeout = '2s'")
    try:
        for n in range(8):
            pair.same(f"INSERT INTO timed VALUES ({n}, {n}), ({n + 100}, {n})")
            pair.same("SELECT pg_sleep(0.4)")
        pair.same("SELECT * FROM timed")
    finally:
        pair.execute("RESET transaction_timeout")
