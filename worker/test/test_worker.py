"""The extension of a worker by itself: whose worker it is, what it holds, and who may ask."""

from __future__ import annotations

import uuid

import psycopg
import pytest

from tests.cluster import Node
from worker.test.alone import DATABASE, ROLE, value

# ---- whose worker it is -----------------------------------------------------------------------------

OURS = uuid.UUID("00000000-0000-0000-0000-0000000000aa")
FOREIGN = uuid.UUID("00000000-0000-0000-0000-0000000000bb")


HOLDER = uuid.UUID("00000000-0000-0000-0000-0000000000cc")
OTHER_HOLDER = uuid.UUID("00000000-0000-0000-0000-0000000000dd")


def call_coordinator(connection: psycopg.Connection, function: str, *arguments) -> None:
    if len(arguments) == 2:
        arguments += (HOLDER,)
    marks = ", ".join(["%s"] * len(arguments))
    connection.execute(f"SELECT strata_worker.{function}({marks})", arguments)


def refused(connection: psycopg.Connection, function: str, *arguments) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught, connection.transaction():
        call_coordinator(connection, function, *arguments)
    assert caught.value.sqlstate == "55000"
    return caught.value


def test_a_server_without_a_cluster_serves_no_coordinator(session: psycopg.Connection) -> None:
    assert "add_worker" in refused(session, "check_coordinator", OURS, 1).diag.message_hint


def test_only_the_coordinator_of_its_cluster_is_served(session: psycopg.Connection) -> None:
    call_coordinator(session, "attach_coordinator", OURS, 3)
    call_coordinator(session, "check_coordinator", OURS, 3)
    error = refused(session, "check_coordinator", FOREIGN, 3)
    assert str(OURS) in error.diag.message_detail
    assert str(FOREIGN) in error.diag.message_detail
    refused(session, "attach_coordinator", FOREIGN, 9)
    query = "SELECT id, epoch FROM strata_worker.cluster"
    assert session.execute(query).fetchall() == [(OURS, 3)]


def test_an_older_coordinator_is_refused_and_a_younger_one_is_not(
    session: psycopg.Connection,
) -> None:
    call_coordinator(session, "attach_coordinator", OURS, 3)
    # it has just taken over, and nobody has told this server
    assert "not heard" in refused(session, "check_coordinator", OURS, 4).diag.message_primary
    call_coordinator(session, "attach_coordinator", OURS, 5)
    call_coordinator(session, "attach_coordinator", OURS, 5)
    refused(session, "check_coordinator", OURS, 5)  # sessions of epoch 3 may still run
    call_coordinator(session, "end_older_sessions", 5)
    call_coordinator(session, "check_coordinator", OURS, 5)
    error = refused(session, "check_coordinator", OURS, 4)
    assert "5" in error.diag.message_detail
    assert error.diag.message_hint
    refused(session, "attach_coordinator", OURS, 4)
    assert session.execute("SELECT epoch FROM strata_worker.cluster").fetchall() == [(5,)]


def test_of_two_coordinators_with_one_epoch_the_first_is_served(
    session: psycopg.Connection,
) -> None:
    call_coordinator(session, "attach_coordinator", OURS, 3, HOLDER)
    for function in ("check_coordinator", "attach_coordinator"):
        error = refused(session, function, OURS, 3, OTHER_HOLDER)
        assert "another coordinator" in error.diag.message_primary
    call_coordinator(session, "attach_coordinator", OURS, 4, OTHER_HOLDER)


def test_sessions_of_an_older_epoch_are_ended_and_no_others(node: Node) -> None:
    with (
        node.connect(DATABASE) as administrator,
        node.connect(DATABASE) as old,
        node.connect(DATABASE) as bystander,
        node.connect(DATABASE) as new,
    ):
        call_coordinator(administrator, "attach_coordinator", OURS, 1)
        try:
            call_coordinator(old, "check_coordinator", OURS, 1)
            old.execute("BEGIN")
            call_coordinator(administrator, "attach_coordinator", OURS, 2, OTHER_HOLDER)
            answer = administrator.execute("SELECT strata_worker.end_older_sessions(2)")
            assert answer.fetchall() == [(1,)]
            with pytest.raises(psycopg.OperationalError):
                old.execute("COMMIT")
            bystander.execute("SELECT 1")
            call_coordinator(new, "check_coordinator", OURS, 2, OTHER_HOLDER)
            answer = administrator.execute("SELECT strata_worker.end_older_sessions(2)")
            assert answer.fetchall() == [(0,)]
            new.execute("SELECT 1")
        finally:
            call_coordinator(administrator, "detach_coordinator", OURS)


def test_a_server_that_left_its_cluster_can_join_another(session: psycopg.Connection) -> None:
    call_coordinator(session, "attach_coordinator", OURS, 1)
    call_coordinator(session, "detach_coordinator", FOREIGN)
    call_coordinator(session, "check_coordinator", OURS, 1)
    call_coordinator(session, "detach_coordinator", OURS)
    refused(session, "check_coordinator", OURS, 1)
    call_coordinator(session, "attach_coordinator", FOREIGN, 1)
    call_coordinator(session, "check_coordinator", FOREIGN, 1)


def test_two_coordinators_cannot_attach_at_once(node: Node) -> None:
    with node.connect(DATABASE) as one, node.connect(DATABASE) as other:
        other.execute("SET lock_timeout = '200ms'")
        with one.transaction(force_rollback=True):
            call_coordinator(one, "attach_coordinator", OURS, 1)
            with pytest.raises(psycopg.errors.LockNotAvailable):
                call_coordinator(other, "attach_coordinator", FOREIGN, 1)
        refused(one, "check_coordinator", OURS, 1)


# ---- privileges -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT strata_partial.sum(v), strata_partial.count(*) FROM generate_series(1, 4) AS v",
        'SELECT strata_partial."public.hll_add_agg"(strata.hll_hash(v)) FROM generate_series(1, 4) AS v',
        "SELECT strata.approx_count_distinct(v::text) FROM generate_series(1, 4) AS v",
        "SELECT strata.hll_estimate(hll_add_agg(strata.hll_hash(v))) FROM generate_series(1, 4) AS v",
        "SELECT * FROM strata_worker.shard_list()",
        "SELECT * FROM strata_worker.table_list()",
        "SELECT strata_worker.create_partials()",
    ],
)
def test_everybody_may_use_what_a_query_needs(guest: psycopg.Connection, statement: str) -> None:
    guest.execute(statement)


def test_everybody_may_ask_whose_worker_it_is(node: Node, guest: psycopg.Connection) -> None:
    with node.connect(DATABASE) as administrator:
        call_coordinator(administrator, "attach_coordinator", OURS, 2)
        try:
            call_coordinator(guest, "check_coordinator", OURS, 2)
            refused(guest, "check_coordinator", OURS, 1)
        finally:
            call_coordinator(administrator, "detach_coordinator", OURS)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM strata_worker.cluster",
        "INSERT INTO strata_worker.cluster VALUES (gen_random_uuid(), 1)",
        "UPDATE strata_worker.cluster SET epoch = 1",
        "DELETE FROM strata_worker.cluster",
        "TRUNCATE strata_worker.cluster",
        f"SELECT strata_worker.attach_coordinator('{FOREIGN}', 1, '{HOLDER}')",
        "SELECT strata_worker.end_older_sessions(1)",
        f"SELECT strata_worker.detach_coordinator('{OURS}')",
        "SELECT * FROM strata_partial.candidates",
        "SELECT strata_partial.definition('pg_catalog.sum(integer)'::regprocedure, 'x')",
        "SELECT strata_partial.adopt('pg_catalog.sum(integer)'::regprocedure, 'strata_partial.count()')",
        "CREATE TABLE strata_worker.t (i integer)",
        "CREATE TABLE strata.t (i integer)",
        "CREATE FUNCTION strata_partial.f () RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "DROP AGGREGATE strata_partial.sum (integer)",
        "DROP FUNCTION strata_worker.create_partials()",
        "DROP EXTENSION strata_worker",
        "ALTER EVENT TRIGGER strata_aggregate_created DISABLE",
    ],
)
def test_everything_else_is_for_the_administrator(
    guest: psycopg.Connection, statement: str
) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        guest.execute(statement)


def test_a_checksum_runs_no_code_of_the_tables_owner(
    node: Node, mallory: psycopg.Connection
) -> None:
    """An administrator compares the copies of everybody's tables; a cast of a row is user code."""
    mallory.execute(
        "CREATE TABLE bait (i integer); INSERT INTO bait VALUES (1);"
        "CREATE FUNCTION peek (bait) RETURNS text LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO mallory.seen VALUES (current_user); RETURN 'x'; END $$;"
        "CREATE CAST (bait AS text) WITH FUNCTION peek (bait)"
    )
    with node.connect(DATABASE) as administrator:
        administrator.execute("SELECT strata.table_checksum('mallory.bait')")
    assert mallory.execute("SELECT who FROM seen").fetchall() == []


# ---- what it holds ------------------------------------------------------------------------------------


@pytest.fixture
def shards(session: psycopg.Connection) -> psycopg.Connection:
    """Two of four hash partitions, one of them partitioned again, and an ordinary table."""
    session.execute(
        'CREATE SCHEMA held; SET LOCAL search_path = held, public; CREATE TABLE "Events" (k integer, t date, v text) PARTITION BY HASH (k);'
        'CREATE TABLE e_s1 PARTITION OF "Events" FOR VALUES WITH (MODULUS 4, REMAINDER 1);'
        'CREATE TABLE e_s3 PARTITION OF "Events" FOR VALUES WITH (MODULUS 4, REMAINDER 3)'
        " PARTITION BY RANGE (t);"
        "CREATE TABLE e_s3_old PARTITION OF e_s3 FOR VALUES FROM (MINVALUE) TO ('2024-01-01');"
        "CREATE TABLE e_s3_new PARTITION OF e_s3 FOR VALUES FROM ('2024-01-01') TO (MAXVALUE);"
        "INSERT INTO \"Events\" SELECT g, DATE '2023-12-31' + g % 2, repeat('x', 500)"
        " FROM generate_series(1, 2000) AS g"
        " WHERE satisfies_hash_partition('\"Events\"'::regclass, 4, 1, g)"
        " OR satisfies_hash_partition('\"Events\"'::regclass, 4, 3, g);"
        'CREATE TABLE copy (code text PRIMARY KEY, "Odd name" numeric(9, 2));'
        "INSERT INTO copy SELECT g::text, g / 4.0 FROM generate_series(1, 100) AS g;"
        'ANALYZE "Events", copy'
    )
    return session


def test_the_list_of_shards_tells_bounds_rows_and_bytes(shards: psycopg.Connection) -> None:
    rows = shards.execute(
        "SELECT table_name, partition_name, modulus, remainder, row_estimate, bytes"
        " FROM strata_worker.shard_list() WHERE schema_name = 'held' ORDER BY remainder"
    ).fetchall()
    sizes = {
        name: shards.execute(
            f"SELECT sum(pg_total_relation_size(relid)), (SELECT count(*) FROM {name})"
            f" FROM pg_partition_tree('{name}') WHERE isleaf"
        ).fetchone()
        for name in ("e_s1", "e_s3")
    }
    assert rows == [
        ("Events", "e_s1", 4, 1, sizes["e_s1"][1], sizes["e_s1"][0]),
        ("Events", "e_s3", 4, 3, sizes["e_s3"][1], sizes["e_s3"][0]),
    ]
    assert min(size for size, _ in sizes.values()) > 100_000


def test_the_list_of_tables_tells_columns_and_bytes(shards: psycopg.Connection) -> None:
    rows = shards.execute(
        "SELECT table_name, partitioned, columns, bytes, row_estimate FROM strata_worker.table_list()"
        " WHERE schema_name = 'held' ORDER BY 1"
    ).fetchall()
    size = value(shards, "SELECT pg_total_relation_size('copy')")
    assert rows[0][:4] == ("Events", True, "k integer, t date, v text", None)
    assert rows[1:] == [("copy", False, '"Odd name" numeric(9,2), code text', size, 100)]


def test_a_locked_shard_delays_the_list_only_for_a_moment(node: Node) -> None:
    with node.connect(DATABASE) as one, node.connect(DATABASE) as other:
        with one.transaction(force_rollback=True):
            one.execute("CREATE TABLE hidden (k integer) PARTITION BY HASH (k)")
            one.execute("CREATE TABLE hidden_s0 PARTITION OF hidden FOR VALUES WITH (MODULUS 2, REMAINDER 0)")  # fmt: skip
            assert other.execute("SELECT * FROM strata_worker.shard_list()").fetchall() == []
        one.execute("CREATE TABLE held_up (k integer) PARTITION BY HASH (k)")
        one.execute("CREATE TABLE held_up_s0 PARTITION OF held_up FOR VALUES WITH (MODULUS 2, REMAINDER 0)")  # fmt: skip
        with one.transaction():
            one.execute("LOCK TABLE held_up_s0 IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute("SELECT * FROM strata_worker.shard_list()")
        assert len(other.execute("SELECT * FROM strata_worker.shard_list()").fetchall()) == 1
        one.execute("DROP TABLE held_up")


def checksum(connection: psycopg.Connection, table: str) -> tuple:
    return connection.execute("SELECT * FROM strata.table_checksum(%s)", (table,)).fetchone()


def test_a_checksum_tells_contents_apart_and_nothing_else(session: psycopg.Connection) -> None:
    session.execute(
        "CREATE TABLE a (i integer, s text, f float8, at timestamptz, b bytea, d interval);"
        "INSERT INTO a SELECT g, NULLIF('t' || g % 5, 't0'), g / 3.0, TIMESTAMPTZ '2024-01-01+00'"
        " + g * INTERVAL '1 hour', int4send(g), g * INTERVAL '1 minute' FROM generate_series(1, 50) AS g;"
        "CREATE TABLE b AS SELECT * FROM a ORDER BY i DESC; CREATE TABLE none AS SELECT * FROM a LIMIT 0"
    )
    expected = checksum(session, "a")
    assert expected[0] == 50
    assert checksum(session, "b") == expected
    assert checksum(session, "none") == (0, 0)
    session.execute(
        "SET LOCAL timezone = 'Asia/Tokyo'; SET LOCAL datestyle = 'German';"
        "SET LOCAL bytea_output = 'escape'; SET LOCAL extra_float_digits = -8;"
        "SET LOCAL intervalstyle = 'iso_8601'"
    )
    assert checksum(session, "b") == expected
    for change in (
        "SET f = f + 1e-12 WHERE i = 3",
        "SET s = NULL WHERE i = 4",
        "SET i = 51 WHERE i = 50",
    ):
        with session.transaction(force_rollback=True):
            session.execute(f"UPDATE b {change}")
            assert checksum(session, "b")[1] != expected[1], change
    session.execute("INSERT INTO b SELECT * FROM a")
    assert checksum(session, "b") == (100, 2 * expected[1])


@pytest.mark.parametrize("name", ["t", "relation", "row_count", "checksum", "c", "this", "row"])
def test_a_checksum_covers_all_columns_whatever_their_names(
    session: psycopg.Connection, name: str
) -> None:
    session.execute(f'CREATE TABLE named ("{name}" text, other integer)')
    session.execute("INSERT INTO named VALUES ('same', 1)")
    before = checksum(session, "named")
    session.execute("UPDATE named SET other = 2")
    assert checksum(session, "named")[1] != before[1]


def test_a_checksum_is_for_those_who_may_read_the_table(
    node: Node, guest: psycopg.Connection
) -> None:
    with node.connect(DATABASE) as administrator:
        administrator.execute("CREATE TABLE secret (i integer); INSERT INTO secret VALUES (1)")
        try:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                checksum(guest, "secret")
            administrator.execute(f"GRANT SELECT ON secret TO {ROLE}")
            assert checksum(guest, "secret") == checksum(administrator, "secret")
        finally:
            administrator.execute("DROP TABLE secret")
