"""A superuser's commands about somebody's table run that role's code with that role's rights."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair
from tests.waiting import wait_until

OWNER = "strata code owner"
SCHEMA = "test_owners_code"

# What an ordinary role would like an administrator to run: IMMUTABLE, or so it says.
SETUP = f"""
CREATE FUNCTION become () RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    ALTER ROLE "{OWNER}" SUPERUSER;
EXCEPTION WHEN OTHERS THEN NULL;
END $$;
CREATE FUNCTION climb (integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    PERFORM {SCHEMA}.become();
    RETURN $1;
END $$;
CREATE TABLE t (k integer PRIMARY KEY, v integer);
CREATE TABLE "r ""x" (k integer PRIMARY KEY, v integer);
"""


@pytest.fixture
def pair(cluster: Cluster) -> Iterator[Pair]:
    cluster.create_role(OWNER)
    with open_pair(cluster, SCHEMA) as made:
        made.execute(f'GRANT USAGE, CREATE ON SCHEMA {SCHEMA} TO "{OWNER}"')
        as_owner(made, SETUP)
        yield made
        made.reset()
        made.execute(f'ALTER ROLE "{OWNER}" NOSUPERUSER')


def as_owner(pair: Pair, statements: str) -> None:
    pair.execute(f'SET SESSION AUTHORIZATION "{OWNER}"')
    pair.execute(statements)
    pair.execute("RESET SESSION AUTHORIZATION")


def superusers(pair: Pair) -> list[bool]:
    query = f"SELECT rolsuper FROM pg_roles WHERE rolname = '{OWNER}'"
    return [pair.cluster.coordinator.value(query), *pair.on_workers(query)]


def distribute(pair: Pair) -> None:
    pair.distribute("t", "k", shards=4)
    pair.reference('"r ""x"')


@pytest.mark.parametrize(
    "index",
    [
        "CREATE INDEX {} i ON {} ((v + climb(1)))",
        "CREATE INDEX {} i ON {} (v) WHERE climb(2) > k",
        "CREATE UNIQUE INDEX {} i ON {} (k, (climb(v)))",
    ],
)
@pytest.mark.parametrize("concurrently", ["", "CONCURRENTLY"])
@pytest.mark.parametrize("table", ["t", '"r ""x"'])
def test_the_index_of_a_table_is_built_as_its_owner(
    pair: Pair, table: str, index: str, concurrently: str
) -> None:
    distribute(pair)
    pair.ours.execute(f"INSERT INTO {table} SELECT g, g FROM generate_series(1, 50) AS g")
    pair.ours.execute(index.format(concurrently, table))
    assert superusers(pair) == [False, False, False]
    valid = f"SELECT bool_and(indisvalid) FROM pg_index WHERE indrelid = '{table}'::regclass"
    assert pair.on_workers(valid) == [True, True]


@pytest.mark.parametrize(
    "command",
    [
        "REINDEX TABLE {}",
        "VACUUM {}",
        "VACUUM FULL {}",
        "VACUUM ANALYZE {}",
        "ANALYZE {}",
        "DROP INDEX i",
    ],
)
@pytest.mark.parametrize("table", ["t", '"r ""x"'])
def test_maintenance_of_a_table_runs_code_as_its_owner(
    pair: Pair, table: str, command: str
) -> None:
    distribute(pair)
    as_owner(pair, f"CREATE INDEX i ON {table} ((v + climb(1))) WHERE climb(2) > k")
    as_owner(pair, f"INSERT INTO {table} SELECT g, g FROM generate_series(1, 50) AS g")
    with pair.cluster.coordinator.connect() as fresh:
        fresh.execute(f"SET search_path = {SCHEMA}")
        fresh.execute(command.format(table))
    assert superusers(pair) == [False, False, False]


@pytest.mark.parametrize("rows", [0, 50])
@pytest.mark.parametrize("kind", ["distribute", "reference"])
def test_a_table_is_distributed_with_its_owners_rights(pair: Pair, kind: str, rows: int) -> None:
    as_owner(
        pair,
        "CREATE TABLE c (k integer PRIMARY KEY, v integer CHECK (climb(v) > 0),"
        " w integer GENERATED ALWAYS AS (climb(v) + climb(3)) STORED);"
        f"INSERT INTO c SELECT g, g FROM generate_series(1, {rows}) AS g;"
        "CREATE INDEX ON c ((v + climb(1)))",
    )
    getattr(pair, kind)("c", *(["k"] if kind == "distribute" else []))
    assert superusers(pair) == [False, False, False]
    pair.same("SELECT * FROM c")


@pytest.mark.parametrize("storage", ["columnar", "heap"])
def test_a_shard_moves_with_its_owners_rights(pair: Pair, storage: str) -> None:
    as_owner(
        pair,
        "CREATE TABLE c (k integer PRIMARY KEY, v integer CHECK (climb(v) > climb(0)),"
        " w integer GENERATED ALWAYS AS (climb(v) + climb(3)) STORED);"
        "CREATE INDEX ON c ((v + climb(1))) WHERE climb(2) > k;"
        "CREATE TABLE d (k integer)",
    )
    pair.ours.execute(
        "SELECT create_distributed_table('c', 'k', 4, colocate_with => 'none', storage => %s)",
        (storage,),
    )
    pair.distribute("d", "k", colocate_with="c")
    as_owner(pair, "ALTER TABLE d ADD FOREIGN KEY (k) REFERENCES c")
    as_owner(pair, "INSERT INTO c SELECT g, g FROM generate_series(1, 50) AS g")
    as_owner(pair, "INSERT INTO d SELECT k FROM c")
    with pair.cluster.coordinator.connect() as fresh:
        for worker in ("worker1", "worker2"):
            for shard in range(4):
                fresh.execute(f"SELECT strata.move_shard('{SCHEMA}.c', {shard}, '{worker}')")
    assert superusers(pair) == [False, False, False]
    pair.same("SELECT * FROM c JOIN d USING (k)")


def test_the_rows_of_a_shard_are_read_with_its_owners_rights(pair: Pair) -> None:
    """Reading computes constant parts of indexes, too."""
    as_owner(
        pair,
        """CREATE FUNCTION refuse (integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
           BEGIN
               IF current_user = 'postgres' THEN
                   RAISE EXCEPTION 'this runs as the superuser';
               END IF;
               RETURN $1;
           END $$;
           CREATE TABLE c (k integer PRIMARY KEY, v integer);
           CREATE INDEX ON c ((v + refuse(1))) WHERE refuse(2) > k""",
    )
    pair.ours.execute(
        "SELECT create_distributed_table('c', 'k', 2, colocate_with => 'none', storage => 'heap')"
    )
    as_owner(pair, "INSERT INTO c SELECT g, g FROM generate_series(1, 50) AS g")
    with pair.cluster.coordinator.connect() as fresh:
        for worker in ("worker1", "worker2"):
            fresh.execute(f"SELECT strata.move_shard('{SCHEMA}.c', 0, '{worker}')")
    as_owner(pair, "DROP INDEX c_expr_idx")
    pair.same("SELECT * FROM c")


def test_the_superusers_own_statements_are_not_guarded_afterwards(pair: Pair) -> None:
    """As on one server, a superuser's INSERT runs what constraints call as the superuser."""
    as_owner(
        pair,
        "CREATE FUNCTION runner (integer) RETURNS text LANGUAGE plpgsql IMMUTABLE AS"
        " 'BEGIN RETURN current_user; END';"
        "CREATE TABLE c (k integer PRIMARY KEY, w text GENERATED ALWAYS AS (runner(k)) STORED);",
    )
    distribute(pair)
    with pair.transaction(end="COMMIT"):
        pair.distribute("c", "k")
        pair.ours.execute("ANALYZE c")
        pair.same("INSERT INTO c VALUES (1), (2), (3)")
    assert {w for _, w in pair.rows("SELECT * FROM c")} == {
        pair.theirs.execute("SELECT current_user").fetchone()[0]
    }


def test_a_cursor_ends_with_the_statement_that_opened_it(pair: Pair) -> None:
    """It would run what it names in a command, which is held in other ways."""
    as_owner(
        pair,
        """
        CREATE FUNCTION open_cursor () RETURNS void LANGUAGE plpgsql AS $$
        DECLARE c refcursor := 'left'; BEGIN OPEN c FOR SELECT 1; END $$;
        CREATE FUNCTION open_all (integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_cursors WHERE name = 'left') THEN
                PERFORM test_owners_code.open_cursor();
            END IF;
            RETURN $1;
        END $$;
        CREATE FUNCTION run_cursor () RETURNS text LANGUAGE plpgsql AS
            $$ BEGIN RETURN cursor_to_xml('left', 1, true, true, ''); END $$;
        CREATE FUNCTION run_all (integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS
            $$ BEGIN PERFORM test_owners_code.run_cursor(); RETURN $1; END $$;
        """,
    )
    distribute(pair)
    as_owner(pair, "INSERT INTO t SELECT g, g FROM generate_series(1, 50) AS g")
    pair.execute(f'SET SESSION AUTHORIZATION "{OWNER}"')
    ours = pair.ours
    with ours.transaction(force_rollback=True):
        ours.execute("SELECT count(*) FROM t WHERE open_all(v) > 0")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="cannot run a cursor"):
            ours.execute("CREATE INDEX i ON t ((run_all(v)))")
    pair.execute("RESET SESSION AUTHORIZATION")


@pytest.mark.parametrize(
    ("command", "user"),
    [
        ("CREATE INDEX ON t (count_in_all(v))", OWNER),
        ("CREATE INDEX ON t (count_in_all(v))", "postgres"),  # core runs it as the owner
        ("CREATE INDEX CONCURRENTLY ON t ((v + count_in_all(1)))", OWNER),
        ("ALTER TABLE t ADD CHECK (count_in(v) > 0)", OWNER),
        ("ALTER TABLE t ALTER v TYPE bigint USING count_in(v)", OWNER),
    ],
)
def test_a_superusers_function_changes_no_table_on_one_worker(
    pair: Pair, command: str, user: str
) -> None:
    """Everybody may call it; on a worker it would change one copy of a reference table."""
    pair.execute(
        f"""
        CREATE TABLE counter (k integer PRIMARY KEY, n integer);
        CREATE FUNCTION count_in (integer) RETURNS integer SECURITY DEFINER LANGUAGE plpgsql AS
            $$ BEGIN UPDATE {SCHEMA}.counter SET n = n + 1; RETURN $1; END $$;
        CREATE FUNCTION count_in_all (integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS
            $$ BEGIN RETURN {SCHEMA}.count_in($1); END $$;
        """
    )
    distribute(pair)
    pair.reference("counter")
    pair.execute("INSERT INTO counter VALUES (1, 0)")
    as_owner(pair, "INSERT INTO t SELECT g, g FROM generate_series(1, 50) AS g")
    pair.execute(f'SET SESSION AUTHORIZATION "{user}"')
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="cannot use table"):
        pair.ours.execute(command)
    pair.execute("RESET SESSION AUTHORIZATION")
    # what the coordinator computes for itself may count, in all copies
    assert len(set(pair.on_workers("SELECT n FROM counter"))) == 1


def count_by_an_index(pair: Pair, more: str = "") -> None:
    """A table with an index whose function would count in the worker's copy alone, where it may."""
    pair.execute(
        f"""
        CREATE TABLE counter (k integer PRIMARY KEY, n integer);
        CREATE FUNCTION count_in () RETURNS void SECURITY DEFINER LANGUAGE plpgsql AS
            $$ BEGIN UPDATE {SCHEMA}.counter SET n = n + 1; END $$;
        CREATE FUNCTION try () RETURNS void LANGUAGE plpgsql AS
            $$ BEGIN PERFORM {SCHEMA}.count_in();
            EXCEPTION WHEN insufficient_privilege OR read_only_sql_transaction THEN NULL; END $$;
        CREATE FUNCTION counted (integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS
            $$ BEGIN PERFORM {SCHEMA}.try(); RETURN $1; END $$;
        """
    )
    pair.ours.execute(
        "SELECT strata.create_distributed_table('t', 'k', 4, 'none', storage => 'heap')"
    )
    pair.reference("counter")
    pair.ours.execute("INSERT INTO counter VALUES (1, 0)")
    as_owner(pair, f"CREATE INDEX i ON t (counted(v)); {more}")
    as_owner(pair, "INSERT INTO t SELECT g, g FROM generate_series(1, 300) AS g")


@pytest.mark.parametrize("command", ["ANALYZE {}.t", "REINDEX TABLE {}.t", "VACUUM FULL {}.t"])
def test_maintenance_by_hand_on_a_worker_changes_no_copy(pair: Pair, command: str) -> None:
    count_by_an_index(pair)
    before = pair.on_workers("SELECT n FROM counter")
    pair.cluster.workers[0].execute(command.format(SCHEMA))
    assert pair.on_workers("SELECT n FROM counter") == before


def test_autovacuum_on_a_worker_changes_no_copy(pair: Pair) -> None:
    worker = pair.cluster.workers[0]
    worker.execute("ALTER SYSTEM SET autovacuum_naptime = '1s'")
    worker.execute("ALTER SYSTEM SET autovacuum = on")
    worker.reload()
    try:
        count_by_an_index(pair, "ALTER TABLE t SET (autovacuum_analyze_threshold = 1)")
        before = pair.on_workers("SELECT n FROM counter")
        for _ in wait_until("the shards are analysed", timeout=60):
            if worker.value(
                "SELECT bool_and(last_autoanalyze IS NOT NULL) FROM pg_stat_user_tables"
                f" WHERE schemaname = '{SCHEMA}' AND relname LIKE 't\\_s%'"
            ):
                break
        assert pair.on_workers("SELECT n FROM counter") == before
    finally:
        worker.execute("ALTER SYSTEM RESET autovacuum_naptime")
        worker.execute("ALTER SYSTEM RESET autovacuum")
        worker.reload()


def test_only_an_owner_attaches_an_index(pair: Pair) -> None:
    distribute(pair)
    pair.ours.execute("CREATE INDEX i ON t (v)")
    worker = pair.cluster.workers[0]
    pair.cluster.create_role("strata_stranger")
    worker.execute(f"GRANT USAGE ON SCHEMA {SCHEMA} TO strata_stranger")
    try:
        with (
            worker.connect(user="strata_stranger") as session,
            pytest.raises(psycopg.errors.InsufficientPrivilege, match="must be owner of index"),
        ):
            session.execute(f"SELECT strata_worker.attach_index('{SCHEMA}.i', '{SCHEMA}.t_pkey')")
        with pytest.raises(psycopg.errors.WrongObjectType):
            worker.execute(f"SELECT strata_worker.attach_index('{SCHEMA}.i', '{SCHEMA}.t')")
    finally:
        worker.execute(f"REVOKE ALL ON SCHEMA {SCHEMA} FROM strata_stranger")


def test_lost_shards_are_made_anew_with_their_owners_rights(
    make_cluster: Callable[..., Cluster],
) -> None:
    """A new partition gets a copy of each index while it is still the administrator's."""
    cluster = make_cluster(workers=2)
    cluster.create_role(OWNER)
    lost = cluster.workers[1]
    with cluster.coordinator.connect() as session:
        for statements in (
            f'CREATE SCHEMA {SCHEMA} AUTHORIZATION "{OWNER}"',
            f'SET search_path = {SCHEMA}, strata; SET SESSION AUTHORIZATION "{OWNER}"',
            SETUP,
            "SELECT create_distributed_table('t', 'k', 4, 'none')",
            "CREATE INDEX ON t ((v + climb(1)))",
            "RESET SESSION AUTHORIZATION",
        ):
            session.execute(statements)
        lost.kill()
        lost.forgive_crash()
        status = f"SELECT status FROM strata.workers WHERE name = '{lost.name}'"
        for _ in wait_until("the heartbeat notices"):
            if session.execute(status).fetchone() == ("down",):
                break
        session.execute(f"SELECT strata.remove_worker('{lost.name}', lost => true)")
        assert session.execute("SELECT strata.recreate_lost_shards('t')").fetchone() == (2,)
    query = f"SELECT rolsuper FROM pg_roles WHERE rolname = '{OWNER}'"
    assert cluster.workers[0].value(query) is False
