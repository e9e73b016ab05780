"""Bad input gets a clear error: the right SQLSTATE, the name of what is wrong, and a hint."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster, free_port
from tests.pair import Pair, open_pair
from tests.waiting import patience


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_errors") as made:
        made.execute(
            "CREATE TABLE plain_table (id integer PRIMARY KEY, v text, j json, e point);"
            "CREATE TABLE done (id integer PRIMARY KEY, v text);"
            "CREATE TABLE other (id bigint PRIMARY KEY, v text);"
            "CREATE TABLE ref (id integer PRIMARY KEY, v text);"
            "INSERT INTO plain_table VALUES (1, 'x'), (2, 'y')"
        )
        made.distribute("done", "id")
        made.distribute("other", "id")
        made.reference("ref")
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    yield data
    data.reset()
    # whatever was refused changed nothing
    assert data.rows("SELECT count(*) FROM plain_table") == [(2,)]
    kinds = "SELECT count(*) FROM strata.distributed_table WHERE relation = 'plain_table'::regclass"
    assert data.rows(kinds) == [(0,)]


def refused(pair: Pair, statement: str, *sqlstates: str, names: str = "", hint: bool = True) -> str:
    """The statement fails like this; returns the whole text of the error."""
    with pytest.raises(psycopg.Error) as caught:
        pair.ours.execute(statement)
    error = caught.value
    diag = error.diag
    text = "\n".join(
        filter(None, [diag.message_primary, diag.message_detail, diag.message_hint, diag.context])
    )
    assert error.sqlstate in sqlstates, f"{error.sqlstate}: {text}"
    for name in names.split():
        assert name in text, f"{name!r} is not named in: {text}"
    if hint:
        assert diag.message_hint, f"no hint: {text}"
    assert not diag.message_primary.endswith("."), text
    return text


# ---- create_distributed_table ----------------------------------------------------------------------


def test_a_key_that_is_no_column(pair: Pair) -> None:
    refused(
        pair,
        "SELECT strata.create_distributed_table('plain_table', 'nope')",
        "42703",
        names="nope plain_table",
        hint=False,
    )


@pytest.mark.parametrize("type_", ["json", "point", "xml", "tsquery"])
def test_a_key_of_a_type_without_hashing(pair: Pair, type_: str) -> None:
    pair.ours.execute(
        f"DROP TABLE IF EXISTS unhashed; CREATE TABLE unhashed (shapeless {type_}, id integer)"
    )
    refused(
        pair,
        "SELECT strata.create_distributed_table('unhashed', 'shapeless')",
        "42704",
        names=f"shapeless {type_}",
    )
    pair.ours.execute("DROP TABLE unhashed")


@pytest.mark.parametrize("type_", ["mood", "mood[]", "pair_with_mood", "mood_domain"])
def test_a_key_whose_hash_differs_between_nodes(pair: Pair, type_: str) -> None:
    pair.ours.execute(
        "DROP TABLE IF EXISTS moody; DROP TYPE IF EXISTS mood CASCADE;"
        "DROP TYPE IF EXISTS pair_with_mood; DROP DOMAIN IF EXISTS mood_domain;"
        "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TYPE pair_with_mood AS (m mood, n integer);"
        f"CREATE DOMAIN mood_domain AS mood; CREATE TABLE moody (k {type_}, id integer)"
    )
    refused(
        pair,
        "SELECT strata.create_distributed_table('moody', 'k')",
        "0A000",
        names="k moody mood",
    )


def test_a_key_that_is_generated_or_a_system_column(pair: Pair) -> None:
    pair.ours.execute("CREATE TABLE made (a integer, g integer GENERATED ALWAYS AS (a + 1) STORED)")
    refused(pair, "SELECT strata.create_distributed_table('made', 'g')", "42P17", names="g")
    refused(
        pair,
        "SELECT strata.create_distributed_table('made', 'ctid')",
        "42P17",
        names="ctid",
        hint=False,
    )
    pair.ours.execute("DROP TABLE made")


@pytest.mark.parametrize(
    "constraint", ["PRIMARY KEY (id)", "UNIQUE (id)", "UNIQUE (v, id)", "EXCLUDE (id WITH =)"]
)
def test_a_unique_constraint_without_the_key(pair: Pair, constraint: str) -> None:
    pair.ours.execute(
        f"DROP TABLE IF EXISTS uniq; CREATE TABLE uniq (id integer, k integer, v text, {constraint})"
    )
    refused(
        pair,
        "SELECT strata.create_distributed_table('uniq', 'k')",
        "0A000",
        names="uniq k",
    )
    pair.ours.execute("DROP TABLE uniq")


def test_a_unique_index_without_the_key_on_a_distributed_table(pair: Pair) -> None:
    refused(pair, "CREATE UNIQUE INDEX ON done (v)", "0A000", names="done id")
    refused(pair, "ALTER TABLE done ADD CONSTRAINT u UNIQUE (v)", "0A000", names="done id")


def test_a_table_that_is_distributed_already(pair: Pair) -> None:
    for statement in (
        "SELECT strata.create_distributed_table('done', 'id')",
        "SELECT strata.create_reference_table('done')",
        "SELECT strata.create_distributed_table('ref', 'id')",
        "SELECT strata.create_reference_table('ref')",
    ):
        name = "done" if "'done'" in statement else "ref"
        refused(pair, statement, "42710", "42809", "55000", "42P07", names=name)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        ("CREATE VIEW thing AS SELECT 1 AS id", "VIEW"),
        ("CREATE SEQUENCE thing", "SEQUENCE"),
        ("CREATE MATERIALIZED VIEW thing AS SELECT 1 AS id", "MATERIALIZED VIEW"),
        ("CREATE TABLE thing (id integer) PARTITION BY RANGE (id)", "TABLE"),
        ("CREATE TEMP TABLE thing (id integer)", "TABLE"),
        ("CREATE UNLOGGED TABLE thing (id integer)", "TABLE"),
    ],
    ids=["view", "sequence", "materialized view", "partitioned", "temporary", "unlogged"],
)
def test_what_is_not_an_ordinary_table(pair: Pair, make: str, name: str) -> None:
    pair.ours.execute(make)
    try:
        if "UNLOGGED" in make:  # may be allowed, but then it has to work
            pair.ours.execute("SELECT strata.create_distributed_table('thing', 'id')")
            pair.ours.execute("INSERT INTO thing VALUES (1)")
            assert pair.rows("SELECT * FROM thing") == [(1,)]
        else:
            refused(
                pair,
                "SELECT strata.create_distributed_table('thing', 'id')",
                "42809",
                "0A000",
                names="thing",
                hint=False,
            )
    except psycopg.errors.FeatureNotSupported:
        pass
    finally:
        pair.ours.execute(f"DROP {name} thing")


def test_a_table_of_an_inheritance_tree(pair: Pair) -> None:
    pair.ours.execute("CREATE TABLE base (id integer); CREATE TABLE derived () INHERITS (base)")
    for name in ("base", "derived"):
        refused(
            pair,
            f"SELECT strata.create_distributed_table('{name}', 'id')",
            "0A000",
            "42809",
            names=name,
            hint=False,
        )
    pair.ours.execute("DROP TABLE base CASCADE")


def test_a_system_catalog(pair: Pair) -> None:
    refused(
        pair,
        "SELECT strata.create_distributed_table('pg_catalog.pg_class', 'oid')",
        "42501",
        "42809",
        "0A000",
        names="pg_class",
        hint=False,
    )


def test_an_unknown_storage(pair: Pair) -> None:
    refused(
        pair,
        "SELECT strata.create_distributed_table('plain_table', 'id', storage => 'wrong')",
        "22023",
        names="wrong",
    )


@pytest.mark.parametrize("count", [0, -1, 1_000_000])
def test_a_shard_count_out_of_range(pair: Pair, count: int) -> None:
    refused(
        pair,
        f"SELECT strata.create_distributed_table('plain_table', 'id', shard_count => {count},"
        " colocate_with => 'none')",
        "22023",
        names=f"shard_count {count}",
        hint=False,
    )


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("'hash'", "third argument hash leave"),
        ("'HASH', colocate_with => 'none'", "third argument HASH"),
        ("distribution_type => 'hash'", "third argument hash"),
        ("'append'", "append create_reference_table"),
        ("'0'", "shard_count 0"),
    ],
)
def test_a_method_where_the_number_of_shards_belongs(
    pair: Pair, arguments: str, names: str
) -> None:
    text = refused(
        pair,
        f"SELECT strata.create_distributed_table('plain_table', 'id', {arguments})",
        "22023",
        hint=False,
    )
    for name in names.split():
        assert name.lower() in text.lower(), text


@pytest.mark.parametrize(
    ("arguments", "shards"),
    [("4", 4), ("'4'", 4), ("NULL, 'none'", 7), ("3, 'none', 'heap'", 3), ("'5', 'none'", 5)],
)
def test_the_number_of_shards_is_third(pair: Pair, arguments: str, shards: int) -> None:
    with pair.ours.transaction(force_rollback=True):
        pair.ours.execute(
            "SET LOCAL strata.shard_count = 7; CREATE TABLE counted (id bigint);"
            f"SELECT strata.create_distributed_table('counted', 'id', {arguments})"
        )
        assert pair.rows(
            "SELECT shard_count FROM strata.tables WHERE relation = 'counted'::regclass"
        ) == [(shards,)]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE c (k integer) USING columnar",
        "CREATE TABLE c USING columnar AS SELECT 1 AS k",
        "CREATE MATERIALIZED VIEW c USING columnar AS SELECT 1 AS k",
        "ALTER TABLE plain_table SET ACCESS METHOD columnar",
    ],
)
def test_columnar_tables_of_the_coordinator_need_its_extension(pair: Pair, statement: str) -> None:
    refused(pair, statement, "42704", names="columnar create_distributed_table EXTENSION")


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        ("create_distributed_table(NULL, 'id')", "relation"),
        ("create_distributed_table('plain_table', NULL)", "key"),
        ("create_distributed_table('plain_table', 'id', colocate_with => NULL)", "colocate_with"),
        ("create_distributed_table('plain_table', 'id', storage => NULL)", "storage"),
        ("create_reference_table(NULL)", "relation"),
        ("undistribute_table(NULL)", "relation"),
        ("add_worker(NULL, 'host=nowhere')", "name"),
        ("add_worker('nobody', NULL)", "conninfo"),
        ("remove_worker(NULL)", "name"),
        ("run_command_on_workers(NULL)", "command"),
    ],
)
def test_null_is_an_error_where_it_means_nothing(pair: Pair, call: str, argument: str) -> None:
    text = refused(pair, f"SELECT strata.{call}", "22004", hint=False)
    assert f"{argument} must not be null" in text


def test_colocation_that_cannot_be(pair: Pair) -> None:
    def create(**options: str) -> str:
        arguments = ", ".join(f"{name} => '{value}'" for name, value in options.items())
        return f"SELECT strata.create_distributed_table('plain_table', 'id', {arguments})"

    refused(pair, create(colocate_with="other"), "42804", "0A000", "22023", names="other id")
    refused(pair, create(colocate_with="ref"), "42809", "22023", names="ref", hint=False)
    refused(pair, create(colocate_with="missing"), "42P01", names="missing", hint=False)
    refused(
        pair, create(colocate_with="done", shard_count="3"), "22023", names="3 done", hint=False
    )


def test_a_table_that_does_not_exist(pair: Pair) -> None:
    refused(pair, "SELECT strata.create_distributed_table('no_table', 'id')", "42P01", hint=False)
    refused(pair, "SELECT strata.create_reference_table('no_table')", "42P01", hint=False)


def test_undistribute_of_a_local_table(pair: Pair) -> None:
    refused(
        pair,
        "SELECT strata.undistribute_table('plain_table')",
        "42809",
        "55000",
        "42704",
        names="plain_table",
        hint=False,
    )


# ---- workers ---------------------------------------------------------------------------------------


def test_an_unknown_worker(pair: Pair) -> None:
    text = refused(pair, "SELECT strata.remove_worker('nobody')", "42704", names="nobody")
    assert "strata.workers" in text


def test_a_worker_that_still_holds_shards_is_not_removed(pair: Pair) -> None:
    refused(
        pair, "SELECT strata.remove_worker('worker1')", "55006", "2BP01", "55000", names="worker1"
    )


def test_a_worker_that_is_there_already(pair: Pair, cluster: Cluster) -> None:
    conninfo = cluster.workers[0].conninfo(user=None).replace("'", "''")
    refused(
        pair,
        f"SELECT strata.add_worker('worker1', '{conninfo}')",
        "42710",
        names="worker1",
        hint=False,
    )
    refused(
        pair,
        f"SELECT strata.add_worker('second_name', '{conninfo}')",
        "42710",
        "55000",
        "42P17",
        "22023",
        names="worker1",
        hint=False,
    )


def test_a_worker_nobody_listens_for(pair: Pair) -> None:
    port = free_port(set())
    refused(
        pair,
        f"SELECT strata.add_worker('ghost', 'host=127.0.0.1 port={port} dbname=strata')",
        "08001",
        names="ghost",
        hint=False,
    )
    assert pair.rows("SELECT count(*) FROM strata.workers WHERE name = 'ghost'") == [(0,)]


def test_a_worker_that_does_not_answer_is_named_within_the_connect_timeout(pair: Pair) -> None:
    """A socket that accepts and then says nothing, as a host behind a bad firewall would."""
    with socket.create_server(("127.0.0.1", 0), backlog=8) as silent:
        port = silent.getsockname()[1]
        pair.ours.execute("SET strata.connect_timeout = 1")
        start = time.monotonic()
        refused(
            pair,
            f"SELECT strata.add_worker('mute', 'host=127.0.0.1 port={port} dbname=strata')",
            "08001",
            "08006",
            names="mute",
            hint=False,
        )
        assert 0.5 < time.monotonic() - start < patience(4)
        pair.ours.execute("RESET strata.connect_timeout")


def test_a_connection_string_that_makes_no_sense(pair: Pair) -> None:
    refused(
        pair,
        "SELECT strata.add_worker('odd', 'this is no connection string')",
        "22023",
        names="odd this",
    )


def test_a_password_in_a_connection_string_is_never_shown(pair: Pair) -> None:
    port = free_port(set())
    text = refused(
        pair,
        f"SELECT strata.add_worker('ghost', 'host=127.0.0.1 port={port} password=sesame dbname=x')",
        "08001",
        "22023",
        hint=False,
    )
    assert "sesame" not in text


def test_the_coordinator_itself_is_no_worker(pair: Pair, cluster: Cluster) -> None:
    conninfo = cluster.coordinator.conninfo(user=None).replace("'", "''")
    refused(
        pair,
        f"SELECT strata.add_worker('myself', '{conninfo}')",
        "22023",
        "55000",
        "0A000",
        names="myself",
        hint=False,
    )


def test_a_worker_with_another_version_of_the_extension(pair: Pair, cluster: Cluster) -> None:
    """Its recorded version is changed behind its back, as a half-done upgrade would leave it."""
    node = cluster.new_node("outdated")
    try:
        node.execute("CREATE EXTENSION hll; CREATE EXTENSION strata_worker")
        node.execute("UPDATE pg_extension SET extversion = '0.0' WHERE extname = 'strata_worker'")
        conninfo = node.conninfo(user=None).replace("'", "''")
        refused(
            pair,
            f"SELECT strata.add_worker('outdated', '{conninfo}')",
            "55000",
            "0A000",
            names="outdated 0.0 strata_worker",
        )
        assert pair.rows("SELECT count(*) FROM strata.workers") == [(len(cluster.workers),)]
    finally:
        node.stop()


def test_distributing_without_any_worker(make_cluster) -> None:
    cluster = make_cluster(workers=0)
    cluster.coordinator.execute("CREATE TABLE t (id integer PRIMARY KEY)")
    with pytest.raises(psycopg.Error) as caught:
        cluster.coordinator.execute("SELECT strata.create_distributed_table('t', 'id')")
    assert caught.value.sqlstate == "55000"
    assert "add_worker" in caught.value.diag.message_hint


# ---- privileges ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guest(cluster: Cluster, data: Pair) -> Iterator[psycopg.Connection]:
    cluster.create_role("strata_guest")
    data.execute(
        "GRANT USAGE ON SCHEMA test_errors TO strata_guest; GRANT SELECT ON ref TO strata_guest"
    )
    with cluster.coordinator.connect(user="strata_guest") as connection:
        connection.execute("SET search_path = test_errors, public, strata")
        yield connection
    for node in cluster.nodes:
        node.execute("DROP OWNED BY strata_guest")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM done",
        "SELECT count(*) FROM done JOIN ref USING (id)",
        "INSERT INTO done VALUES (1, 'x')",
        "UPDATE done SET v = 'x'",
        "DELETE FROM done WHERE id = 1",
        "TRUNCATE done",
        "DROP TABLE done",
        "COPY done FROM STDIN",
        "SELECT strata.undistribute_table('done')",
        "SELECT strata.create_distributed_table('plain_table', 'id')",
        "SELECT strata.create_reference_table('plain_table')",
        "SELECT strata.add_worker('x', 'host=nowhere')",
        "SELECT strata.remove_worker('worker1')",
        "SELECT strata.run_command_on_workers('SELECT 1')",
    ],
)
def test_a_missing_privilege_is_found_before_anything_is_sent(
    pair: Pair, cluster: Cluster, guest: psycopg.Connection, statement: str
) -> None:
    logs = [node.log_size() for node in cluster.workers]
    with pytest.raises(psycopg.Error) as caught:
        guest.execute(statement)
    assert caught.value.sqlstate == "42501", caught.value
    assert not any(
        node.log_text(begin) for node, begin in zip(cluster.workers, logs, strict=True)
    ), "a worker had something to log"


def test_connection_strings_are_not_for_everybody(guest: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        guest.execute("SELECT conninfo FROM strata.worker")


# ---- what is not possible yet ----------------------------------------------------------------------


def test_errors_of_a_worker_name_it_and_the_log_has_the_statement(
    pair: Pair, cluster: Cluster
) -> None:
    """Clients log what they get: no values that were sent in their stead, no blocks of ours."""
    log_start = cluster.coordinator.log_size()
    pair.ours.execute("INSERT INTO done SELECT g, 'x' FROM generate_series(1, 20) AS g")
    with pytest.raises(psycopg.errors.DivisionByZero) as caught:
        pair.ours.execute("UPDATE done SET v = (%s / (id - 3))::text", (424242,))
    assert caught.value.diag.context.startswith('worker "worker')
    assert "UPDATE" not in caught.value.diag.context
    text = refused(pair, "INSERT INTO done VALUES (1, 'x')", "23505", hint=False)
    assert "(id)=(1)" in text
    with pytest.raises(psycopg.errors.InvalidTextRepresentation) as caught:
        pair.ours.execute("ALTER TABLE done ALTER v TYPE integer USING v::integer")
    assert caught.value.diag.context.startswith('worker "worker')
    pair.ours.execute("TRUNCATE done")
    log = cluster.coordinator.log_text(log_start)
    assert "424242" in log
    assert log.count(", remote SQL: ") >= 3


def test_a_function_of_the_users_is_in_the_context(pair: Pair) -> None:
    pair.ours.execute(
        "CREATE FUNCTION breaks (integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS"
        " 'BEGIN RETURN 1 / ($1 - $1); END'; INSERT INTO done VALUES (1, 'x')"
    )
    with pytest.raises(psycopg.errors.DivisionByZero) as caught:
        pair.ours.execute("SELECT count(*) FROM done WHERE breaks(id) = 1")
    assert "PL/pgSQL function breaks(integer) line 1" in caught.value.diag.context
    pair.ours.execute("TRUNCATE done; DROP FUNCTION breaks")


ENCODINGS = """
CREATE FUNCTION say (integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS
    $$ BEGIN RAISE NOTICE '\u6f22%', $1; RETURN $1; END $$;
CREATE FUNCTION garble (integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql SET client_encoding = 'LATIN1' AS $$ BEGIN
    RAISE EXCEPTION 'x\u00f0y' USING DETAIL = '\u00f0', HINT = '\u00f0\u00f0'; END $$;
CREATE FUNCTION speak (integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
    PERFORM set_config('Client_Encoding', 'LATIN1', false); RETURN $1; END $$;
CREATE TYPE pair_of AS (a integer, b integer);
CREATE FUNCTION first_of (pair_of) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS
    $$ BEGIN RAISE NOTICE '\u6f22'; RETURN $1.a; END $$;
CREATE CAST (pair_of AS integer) WITH FUNCTION first_of (pair_of) AS IMPLICIT;
CREATE TABLE late (id integer PRIMARY KEY, p pair_of REFERENCES other_ref DEFERRABLE INITIALLY DEFERRED);
"""


def test_a_notice_that_the_client_cannot_read_undoes_nothing(pair: Pair) -> None:
    """It came while libpq read, and broke off a COMMIT that the worker then did."""
    ours = pair.ours
    try:
        ours.execute("CREATE TABLE other_ref (id integer PRIMARY KEY)")
        pair.reference("other_ref")
        ours.execute(ENCODINGS)
        pair.distribute("late", "id")
        ours.execute("INSERT INTO other_ref VALUES (1); SET client_encoding = 'LATIN1'")
        assert ours.execute("SELECT count(*) FROM done WHERE say(id) > 0").fetchone() == (0,)
        ours.execute("INSERT INTO late VALUES (1, (1, 1))")
        ours.execute("INSERT INTO late SELECT g, (1, 1)::pair_of FROM generate_series(2, 9) AS g")
        assert ours.execute("SELECT count(say(id)) FROM late").fetchone() == (9,)
        ours.execute("RESET client_encoding")
        # code that changes the encoding of its messages brings no broken text
        for field in ("MESSAGE_TEXT", "PG_EXCEPTION_DETAIL", "PG_EXCEPTION_HINT"):
            ours.execute(
                "DO $$ DECLARE t text; BEGIN PERFORM sum(garble(id)) FROM late;"
                f" EXCEPTION WHEN raise_exception THEN GET STACKED DIAGNOSTICS t = {field};"
                " PERFORM set_config('test.text', replace(t, '?', 'q'), false); END $$"
            )
            text = ours.execute("SELECT current_setting('test.text')").fetchone()[0]
            assert set(text) <= set("xqy")
        # nor rows that are in another encoding than the coordinator takes them for
        for kind in ("text", "varchar", "name", "json"):
            with pytest.raises(psycopg.errors.CharacterNotInRepertoire):
                ours.execute(
                    "CREATE TABLE broken AS SELECT s.t FROM (SELECT id, max(to_json(chr(200 + id))"
                    f"::text)::{kind} AS t FROM late WHERE speak(id) > 0 GROUP BY id) AS s"
                )
    finally:
        ours.execute("RESET client_encoding; DROP TABLE IF EXISTS late, other_ref")
        ours.execute(
            "DROP FUNCTION IF EXISTS say (integer), garble (integer), speak (integer);"
            "DROP TYPE IF EXISTS pair_of CASCADE"
        )


def test_a_table_that_vanished_from_a_worker_is_reported_with_the_workers_name(
    pair: Pair, cluster: Cluster
) -> None:
    pair.ours.execute("CREATE TABLE lost (id integer)")
    pair.distribute("lost", "id")
    cluster.workers[1].execute("DROP TABLE test_errors.lost")
    refused(pair, "SELECT count(*) FROM lost", "42P01", names="lost worker2", hint=False)
    ((problems,),) = pair.rows(
        "SELECT count(*) FROM strata.check_health() AS h WHERE h::text ~ 'lost'"
    )
    assert problems > 0
    cluster.workers[1].execute("CREATE TABLE test_errors.lost (id integer) PARTITION BY HASH (id)")
    pair.ours.execute("DROP TABLE lost")


def test_foreign_keys_that_no_worker_can_check(pair: Pair) -> None:
    pair.ours.execute(
        "CREATE TABLE plain_table_two (id bigint PRIMARY KEY);"
        "CREATE TABLE child (id integer, o bigint REFERENCES plain_table_two)"
    )
    refused(
        pair,
        "SELECT strata.create_distributed_table('child', 'id')",
        "0A000",
        "42830",
        "42P16",
        names="child plain_table_two",
    )
    # what is local is checked by the coordinator
    pair.ours.execute("SELECT strata.create_distributed_table('plain_table_two', 'id')")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        pair.ours.execute("INSERT INTO child VALUES (1, 1)")
    pair.ours.execute("DROP TABLE child, plain_table_two")


@pytest.mark.parametrize(
    ("make", "type_", "drop"),
    [
        ("CREATE DOMAIN key_type AS integer", "key_type", "DROP DOMAIN key_type CASCADE"),
        ("CREATE EXTENSION citext SCHEMA test_errors", "citext", "DROP EXTENSION citext CASCADE"),
        (
            'CREATE COLLATION backwards FROM "C"',
            "text COLLATE backwards",
            "DROP COLLATION backwards CASCADE",
        ),
    ],
    ids=["domain", "extension", "collation"],
)
def test_the_key_does_not_go_with_its_type(pair: Pair, make: str, type_: str, drop: str) -> None:
    """A cascade may take any column but the key: what would the rows be routed by?"""
    pair.ours.execute(make)
    pair.ours.execute(f"CREATE TABLE keyed (k {type_}, v {type_})")
    pair.distribute("keyed", "k")
    pair.ours.execute("INSERT INTO keyed VALUES ('1', '2')")
    refused(pair, drop, "2BP01", names="keyed key")
    refused(pair, "ALTER TABLE keyed DROP COLUMN k", "0A000", names="keyed k")
    assert pair.rows("SELECT k::text, v::text FROM keyed") == [("1", "2")]
    pair.ours.execute("ALTER TABLE keyed DROP COLUMN v")
    pair.ours.execute("DROP TABLE keyed")
    pair.ours.execute(drop)


def test_a_key_of_a_type_in_the_same_schema_does_not_stop_its_drop(pair: Pair) -> None:
    """The key's column goes before its table, but both go."""
    pair.ours.execute(
        "CREATE SCHEMA doomed; CREATE DOMAIN doomed.d AS integer; CREATE TABLE doomed.t (k doomed.d);"
        "SELECT strata.create_distributed_table('doomed.t', 'k'); INSERT INTO doomed.t VALUES (1)"
    )
    pair.ours.execute("DROP SCHEMA doomed CASCADE")
    assert pair.on_workers("SELECT count(*) FROM pg_namespace WHERE nspname = 'doomed'") == [0, 0]


# ---- statements that workers cannot run --------------------------------------------------------------


@pytest.fixture(scope="module")
def causes(data: Pair) -> None:
    data.ours.execute(
        """
        CREATE TABLE near ("near_Key" integer, v text); CREATE TABLE "lo""cal" (id integer, v text);
        CREATE FUNCTION "un_Known" (text) RETURNS text LANGUAGE plpgsql STABLE AS 'BEGIN RETURN $1; END';
        CREATE FUNCTION same (text, text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE
            AS 'BEGIN RETURN $1 = $2; END';
        CREATE OPERATOR === (FUNCTION = same, LEFTARG = text, RIGHTARG = text);
        CREATE TABLE guarded (id integer, v text);
        """
    )
    data.distribute("near", "near_Key", colocate_with="done")
    data.distribute("guarded", "id")


@pytest.mark.usefixtures("causes")
@pytest.mark.parametrize(
    ("action", "names"),
    [
        ("DO UPDATE SET v = lastval()", "INSERT done lastval() VOLATILE"),
        ('DO UPDATE SET v = "un_Known"(excluded.v)', 'INSERT done "un_Known"(text) IMMUTABLE'),
        ("DO UPDATE SET v = 'y' WHERE done.v === 'x'", "INSERT done ===(text,text)"),
        ('DO UPDATE SET v = (SELECT v FROM "lo""cal" l WHERE l.id = done.id)', 'done lo"cal'),
        ("DO NOTHING RETURNING clock_timestamp()", "done clock_timestamp()"),
        # what is computed before is not the cause
        (
            'DO UPDATE SET v = (SELECT max(v) FROM "lo""cal" WHERE random() > 2) || lastval()',
            "done lastval()",
        ),
    ],
)
def test_the_cause_is_named_why_workers_cannot_change_rows(
    pair: Pair, action: str, names: str
) -> None:
    statement = f"INSERT INTO done VALUES (1, 'x') ON CONFLICT (id) {action}"
    text = refused(pair, statement, "0A000")
    for name in names.split():
        assert name in text, text


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("ALTER TABLE done SET UNLOGGED", "SET,UNLOGGED,done"),
        ("ALTER TABLE ref SET LOGGED", "SET,LOGGED,ref"),
        ("ALTER TABLE done SET TABLESPACE pg_default", "TABLESPACE,done"),
        ("ALTER TABLE done ADD COLUMN x text, SET LOGGED", "SET LOGGED,done"),
        ("ALTER TABLE done INHERIT plain_table", '"done" is distributed,"plain_table" is local'),
        ("ALTER TABLE plain_table INHERIT done", '"done" is distributed,"plain_table" is local'),
        ("ALTER TABLE done DROP COLUMN id", 'DROP COLUMN,"id",done'),
        ("ALTER INDEX done_pkey SET TABLESPACE pg_default", "ALTER INDEX ... SET TABLESPACE,done"),
        ('ALTER TABLE ref ADD COLUMN "x ""y" float8 DEFAULT random()', 'x "y",ref,random()'),
        ("ALTER TABLE ref ADD COLUMN s serial", 'column "s",ref'),
        ("ALTER TABLE ref ALTER v TYPE text USING v || random()", 'column "v",ref,random()'),
    ],
)
def test_the_part_of_alter_table_that_is_refused_is_named(
    pair: Pair, statement: str, names: str
) -> None:
    text = refused(pair, statement, "0A000", hint=False)
    for name in names.split(","):
        assert name in text, text
    assert "in this way" not in text
