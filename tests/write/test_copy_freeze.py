"""COPY ... WITH (FREEZE): PostgreSQL's conditions, an ordinary COPY's rows, and pgbench, which loads with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.ddl.test_dump import run
from tests.pair import Pair, open_pair

ROWS = """PROGRAM 'seq -f "row %g" 0 99 | nl -w1 -v0'"""
TABLES = ["columns", "heap", "copied", '"Odd ""name"', "keyed"]


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_copy_freeze") as made:
        for table in TABLES:
            made.execute(f"CREATE TABLE {table} (k integer PRIMARY KEY, v text DEFAULT 'none')")
        made.execute("CREATE TABLE tree (k integer, v text) PARTITION BY RANGE (k)")
        made.execute("CREATE TABLE leaf PARTITION OF tree DEFAULT")
        made.distribute("columns", "k")
        made.distribute("heap", "k", storage="heap")
        made.distribute('"Odd ""name"', "k")
        made.reference("copied")
        made.reference("keyed", "columnar")
        made.reference("tree")
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    yield data
    data.reset()
    for connection in (data.ours, data.theirs):
        connection.execute("RESET ROLE; RESET default_table_access_method")
    data.execute("TRUNCATE " + ", ".join([*TABLES, "tree"]))


@pytest.mark.parametrize("table", TABLES)
def test_rows_come_as_by_an_ordinary_copy(pair: Pair, table: str) -> None:
    with pair.transaction("COMMIT"):
        pair.same(f"TRUNCATE {table}")
        pair.same(f"COPY {table} FROM {ROWS} WITH (FREEZE)")
        pair.same(f"SELECT * FROM {table}")
        pair.same(f"UPDATE {table} SET v = v || '!' WHERE k < 10")
    pair.same(f"SELECT * FROM {table}")
    with pair.transaction("ROLLBACK"):
        pair.same(f"TRUNCATE {table}")
        pair.same(f"COPY {table} (k) FROM PROGRAM 'seq 1000 1100' (FREEZE) WHERE k % 2 = 0")
        pair.same(f"SELECT * FROM {table}")
    pair.same(f"SELECT count(*), sum(k) FROM {table}")


@pytest.mark.parametrize("table", [*TABLES, "leaf"])
@pytest.mark.parametrize(
    "before",
    [
        [],
        ["TRUNCATE {0}", "SAVEPOINT s"],
        ["SAVEPOINT s", "TRUNCATE {0}"],
        ["SAVEPOINT s", "TRUNCATE {0}", "RELEASE s"],
        ["SAVEPOINT s", "TRUNCATE {0}", "ROLLBACK TO s"],
        ["SAVEPOINT s", "TRUNCATE {0}", "ROLLBACK TO s", "TRUNCATE {0}"],
        ["TRUNCATE {0}", "DECLARE c CURSOR FOR SELECT generate_series(1, 3)", "FETCH c"],
        ["TRUNCATE {0}", "INSERT INTO {0} VALUES (1000)", "SELECT * FROM {0}", "UPDATE {0} SET v = 'x'"],
        ["SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM {0}", "TRUNCATE {0}"],
        ["SET TRANSACTION READ ONLY"],
        ["DELETE FROM {0}"],
    ],
)  # fmt: skip
def test_the_conditions_are_those_of_postgres(pair: Pair, table: str, before: list[str]) -> None:
    with pair.transaction():
        pair.all_same(statement.format(table) for statement in before)
        pair.same(f"COPY {table} FROM {ROWS} (FREEZE)")


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(
    "options",
    ["FREEZE off", "FREEZE on", "FREEZE 0", "FREEZE maybe", "FREEZE, FREEZE", "FREEZE off, FREEZE off", "FREEZE, NULL"],
)  # fmt: skip
def test_options_are_read_as_postgres_does(pair: Pair, table: str, options: str) -> None:
    for truncate in ("SELECT 1", f"TRUNCATE {table}"):
        with pair.transaction():
            pair.same(truncate)
            pair.same(f"COPY {table} FROM {ROWS} ({options})")
    with pair.transaction():
        pair.same(f"TRUNCATE {table}")
        pair.same(f"COPY {table} FROM {ROWS} FREEZE NULL 'row 3'")


def test_a_partitioned_reference_table_is_refused_as_postgres_does(pair: Pair) -> None:
    with pair.transaction():
        pair.same("TRUNCATE tree")
        pair.same(f"COPY tree FROM {ROWS} (FREEZE)")


@pytest.mark.parametrize("table", ["columns", "copied", "tree"])
def test_bad_rows_and_other_roles_get_the_usual_errors(pair: Pair, table: str) -> None:
    pair.cluster.create_role("freezer")
    pair.execute("GRANT USAGE ON SCHEMA test_copy_freeze TO freezer")
    try:
        for statement in (
            f"COPY {table} FROM PROGRAM 'echo x' (FREEZE)",
            f"COPY {table} (k, k) FROM {ROWS} (FREEZE)",
            f"COPY {table} FROM '/no/such/file' (FREEZE)",
        ):
            with pair.transaction():
                pair.same(f"TRUNCATE {table}")
                pair.same(statement)
        for rights in (
            "SELECT",
            "INSERT, TRUNCATE",
            "INSERT, TRUNCATE, pg_execute_server_program",
        ):
            server = (
                "GRANT pg_execute_server_program TO freezer" if "server" in rights else "SELECT 1"
            )
            with pair.transaction():
                pair.execute(
                    f"GRANT {rights.replace(', pg_execute_server_program', '')} ON {table} TO freezer"
                )
                pair.execute(f"{server}; SET LOCAL ROLE freezer")
                pair.same(f"SAVEPOINT s; TRUNCATE {table}")
                pair.same("ROLLBACK TO s")
                pair.same(f"COPY {table} FROM {ROWS} (FREEZE)")
    finally:
        pair.execute("DROP OWNED BY freezer; DROP ROLE freezer")


def test_a_table_that_is_new_may_be_frozen(pair: Pair) -> None:
    with pair.transaction():
        pair.same("CREATE TABLE new (k integer, v text)")
        pair.distribute("new", "k")
        pair.same(f"COPY new FROM {ROWS} (FREEZE)")
        pair.same("SELECT * FROM new")
        pair.same("SAVEPOINT s; CREATE TABLE newer (k integer, v text)")
        pair.reference("newer")
        pair.same(f"COPY newer FROM {ROWS} (FREEZE)")
        pair.same("RELEASE s")
        pair.same(f"COPY newer FROM {ROWS} (FREEZE)")
        pair.same("SELECT * FROM newer")
        pair.ours.execute("SET LOCAL default_table_access_method = distributed")
        pair.same("CREATE TABLE newest (k integer, v text)")
        pair.same(f"COPY newest FROM {ROWS} (FREEZE)")
        pair.same("SELECT * FROM newest")


def test_triggers_constraints_and_functions_see_such_rows(pair: Pair) -> None:
    quoted = ROWS.replace("'", "''")
    pair.execute(
        "CREATE FUNCTION mark() RETURNS trigger LANGUAGE plpgsql AS $$"
        " BEGIN NEW.v := upper(NEW.v); RETURN NEW; END $$;"
        f"CREATE FUNCTION load(place text) RETURNS void LANGUAGE plpgsql AS $$"
        f" BEGIN EXECUTE 'TRUNCATE ' || place; EXECUTE 'COPY ' || place || ' FROM {quoted} (FREEZE)'; END $$"
    )
    for table in ("columns", "copied"):
        pair.execute(
            f"CREATE TRIGGER mark BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION mark()"
        )
        pair.same(f"SELECT load('{table}')")
        pair.same(f"SELECT * FROM {table}")
        pair.execute(f"DROP TRIGGER mark ON {table}")
    pair.execute("DROP FUNCTION mark, load")
    with pair.transaction():
        pair.same("TRUNCATE columns")
        pair.same("COPY columns FROM PROGRAM 'printf \"1\\n1\\n\"' (FREEZE, FORMAT csv)")


def test_an_old_snapshot_finds_such_rows_on_no_node(pair: Pair, cluster: Cluster) -> None:
    tables = ("columns", "heap", "copied", "keyed")
    with cluster.coordinator.connect(autocommit=False) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute('SELECT count(*) FROM test_copy_freeze."Odd ""name"')
        for table in tables:
            pair.ours.execute(f"BEGIN; TRUNCATE {table}; COPY {table} FROM {ROWS} (FREEZE); COMMIT")
        for table in tables:
            assert reader.execute(f"SELECT count(*) FROM test_copy_freeze.{table}").fetchall() == [
                (0,)
            ]
        joined = (
            "SELECT count(*) FROM test_copy_freeze.columns JOIN test_copy_freeze.copied USING (k)"
        )
        assert reader.execute(joined).fetchall() == [(0,)]
    assert pair.rows(joined) == [(100,)]


def test_psql_loads_by_copy(pair: Pair) -> None:
    for table in ("columns", "copied"):
        answer = run(
            "psql", "-X", "-v", "ON_ERROR_STOP=1", "-d", pair.cluster.coordinator.conninfo(),
            "-c", "SET search_path = test_copy_freeze", "-c", "BEGIN", "-c", f"TRUNCATE {table}",
            "-c", f"\\copy {table} from {ROWS.lower()} with (freeze)", "-c", "COMMIT",
            node=pair.cluster.coordinator,
        )  # fmt: skip
        assert answer.returncode == 0, answer.stderr
        assert pair.rows(f"SELECT count(*), max(v) FROM {table}") == [(100, "row 99")]


LAYOUTS = {
    "of reference tables": "SELECT create_reference_table('pgbench_branches'), create_reference_table('pgbench_tellers'),"
    " create_distributed_table('pgbench_accounts', 'aid'),"
    " create_distributed_table('pgbench_history', 'aid', colocate_with => 'pgbench_accounts')",
    "distributed": "SELECT create_distributed_table('pgbench_branches', 'bid'), create_distributed_table('pgbench_tellers', 'tid'),"
    " create_distributed_table('pgbench_accounts', 'aid', storage => 'heap'), create_distributed_table('pgbench_history', 'mtime')",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pgbench_makes_its_tables_and_runs(pair: Pair, layout: str) -> None:
    coordinator = pair.cluster.coordinator

    def pgbench(*arguments: str) -> None:
        answer = run("pgbench", *arguments, coordinator.conninfo(), node=coordinator)
        assert answer.returncode == 0, answer.stderr

    pgbench("-i", "-I", "dt")
    try:
        coordinator.execute(LAYOUTS[layout])
        pgbench("-i", "-I", "gvp" if layout == "distributed" else "gvpf")
        pgbench("-i", "-I", "gvGg")
        for script in ("tpcb-like", "simple-update", "select-only"):
            pgbench("-b", script, "-c", "2", "-t", "10")
        pgbench("-n", "-M", "prepared", "-t", "10")
        assert coordinator.value("SELECT count(*) FROM pgbench_accounts") == 100_000
        assert coordinator.value("SELECT count(*) FROM pgbench_history") == 10
        assert coordinator.value(
            "SELECT (SELECT sum(tbalance) FROM pgbench_tellers) = sum(bbalance) FROM pgbench_branches"
        )
    finally:
        pgbench("-i", "-I", "d")
