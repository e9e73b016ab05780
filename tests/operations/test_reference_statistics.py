"""ANALYZE and VACUUM (ANALYZE) of a reference table give every copy its statistics."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.fixtures import new_root
from tests.installation import server_major
from tests.pair import Pair, open_pair
from tests.waiting import wait_until

SCHEMA = "test_reference_statistics"
NAMES = ("small", 'odd "name', "p", "p1", "p2")


@pytest.fixture(scope="module")
def data() -> Iterator[Pair]:
    """Nothing here is analysed but by command."""
    cluster = Cluster(new_root(), workers=2, plain=True, assertions=True)
    for node in (cluster.coordinator, *cluster.workers, cluster.plain):
        node.settings |= {"autovacuum": "off"}
    with cluster, open_pair(cluster, SCHEMA) as pair:
        for role in ("keeper", "stranger"):
            cluster.create_role(role)
            pair.execute(f"GRANT ALL ON SCHEMA {SCHEMA} TO {role}")
        yield pair


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    data.reset()
    data.execute(
        "CREATE TABLE small (a integer PRIMARY KEY, b text);"
        'CREATE TABLE "odd ""name" ("A b" integer, "select" text);'
        "CREATE TABLE p (a integer, b integer) PARTITION BY LIST (b);"
        "CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);"
        "CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2);"
        "CREATE TABLE here (a integer); CREATE TABLE spread (a integer)"
    )
    for table in ("small", '"odd ""name"', "p"):
        data.ours.execute("SELECT create_reference_table(%s)", (table,))
    data.distribute("spread", "a")
    data.execute(
        "INSERT INTO small SELECT g, g % 4 FROM generate_series(1, 20) AS g;"
        'INSERT INTO "odd ""name" SELECT g, g % 4 FROM generate_series(1, 20) AS g;'
        "INSERT INTO p SELECT g, g % 2 + 1 FROM generate_series(1, 20) AS g;"
        "INSERT INTO here SELECT generate_series(1, 20);"
        "INSERT INTO spread SELECT generate_series(1, 20)"
    )
    yield data
    data.reset()
    data.execute('DROP TABLE IF EXISTS small, "odd ""name", p, here, spread')


ANALYZED = (
    "SELECT coalesce(string_agg(DISTINCT tablename || '.' || attname || CASE inherited"
    f" WHEN true THEN '+' ELSE '' END, ' '), '') FROM pg_stats WHERE schemaname = '{SCHEMA}'"
    " AND tablename IN ('small', 'odd \"name', 'p', 'p1', 'p2')"
)


def everywhere(pair: Pair, session: psycopg.Connection | None = None) -> str:
    """The columns that have statistics, on every node and on one plain PostgreSQL."""
    ((plain,),) = pair.theirs.execute(ANALYZED).fetchall()
    for node in (pair.cluster.coordinator, *pair.cluster.workers):
        with node.connect() as connection:
            ((found,),) = connection.execute(ANALYZED).fetchall()
        assert found == plain, f"{node.name}: {found}, plain: {plain}"
    return plain


def both(pair: Pair, command: str) -> None:
    pair.theirs.execute(command)
    pair.ours.execute(command)


@pytest.mark.parametrize(
    ("command", "columns"),
    [
        ("ANALYZE small", "small.a small.b"),
        ("ANALYZE VERBOSE small", "small.a small.b"),
        ("ANALYZE (SKIP_LOCKED, VERBOSE false) small", "small.a small.b"),
        ("ANALYZE small (b)", "small.b"),
        ("VACUUM (ANALYZE) small", "small.a small.b"),
        ("VACUUM ANALYZE small (a), here", "small.a"),
        ("VACUUM (ANALYZE false) small", ""),
        ("VACUUM small", ""),
        ('ANALYZE "odd ""name" ("A b"), small (a)', 'odd "name.A b small.a'),
        ("ANALYZE small, spread, small, here", "small.a small.b"),
        ("ANALYZE p", "p.a+ p.b+ p1.a p1.b p2.a p2.b"),
        ("ANALYZE p2", "p2.a p2.b"),
        ("ANALYZE p1 (a), p2 (b)", "p1.a p2.b"),
        ("VACUUM (ANALYZE, FULL) p", "p.a+ p.b+ p1.a p1.b p2.a p2.b"),
    ],
)
def test_the_copies_have_what_one_server_has(pair: Pair, command: str, columns: str) -> None:
    both(pair, command)
    assert everywhere(pair) == columns


@pytest.mark.parametrize("command", ["ANALYZE", "VACUUM (ANALYZE)", "VACUUM FULL ANALYZE"])
def test_a_command_for_the_whole_database_reaches_them(pair: Pair, command: str) -> None:
    both(pair, command)
    assert everywhere(pair) == (
        'odd "name.A b odd "name.select p.a+ p.b+ p1.a p1.b p2.a p2.b small.a small.b'
    )


def test_it_is_part_of_the_transaction(pair: Pair) -> None:
    with pair.transaction():
        both(pair, 'ANALYZE small, p; SAVEPOINT s; ANALYZE "odd ""name"; ROLLBACK TO s')
    assert everywhere(pair) == ""
    with pair.transaction(end="COMMIT"):
        both(pair, "INSERT INTO small VALUES (99, 'new'); ANALYZE small; ANALYZE p1 (a)")
    assert everywhere(pair) == "p1.a small.a small.b"
    both(pair, "DO $$ BEGIN EXECUTE 'ANALYZE p2 (b)'; END $$")
    assert everywhere(pair) == "p1.a p2.b small.a small.b"


def test_inheritance_is_analysed_as_on_one_server(pair: Pair) -> None:
    pair.execute("CREATE TABLE p3 (a integer, b integer)")
    pair.execute("ALTER TABLE p RENAME TO was; DROP TABLE was")
    pair.execute("CREATE TABLE p (a integer); CREATE TABLE p1 () INHERITS (p)")
    pair.reference("p")
    pair.execute("INSERT INTO p1 SELECT generate_series(1, 9); INSERT INTO p VALUES (1)")
    both(pair, "ANALYZE p")
    # since 18 children are analysed with their parent
    assert everywhere(pair) == ("p.a p.a+ p1.a" if server_major() >= 18 else "p.a p.a+")
    pair.execute("DROP TABLE p CASCADE; DROP TABLE p3")


def warnings_of(connection: psycopg.Connection, command: str) -> list[str]:
    found: list[str] = []
    connection.add_notice_handler(
        lambda notice: found.append(f"{notice.severity}: {notice.message_primary}")
    )
    connection.execute(command)
    return found


def test_who_may_not_analyse_is_warned_and_changes_nothing(pair: Pair, as_role) -> None:
    pair.execute("ALTER TABLE p2 OWNER TO keeper")
    stranger, keeper = as_role("stranger"), as_role("keeper")
    for command in ("ANALYZE small, p2", "VACUUM ANALYZE small, p2", "ANALYZE p"):
        assert warnings_of(stranger.ours, command) == warnings_of(stranger.theirs, command) != []
    assert everywhere(pair) == ""
    command = "ANALYZE small, p2 (b), p"
    assert warnings_of(keeper.ours, command) == warnings_of(keeper.theirs, command) != []
    assert everywhere(pair) == "p2.a p2.b"
    assert warnings_of(pair.ours, "ANALYZE p") == warnings_of(pair.theirs, "ANALYZE p") == []
    assert everywhere(pair) == "p.a+ p.b+ p1.a p1.b p2.a p2.b"


def test_the_owner_of_the_database_may(pair: Pair, as_role) -> None:
    ours, theirs = pair.ours.info.dbname, pair.theirs.info.dbname
    stranger = as_role("stranger")
    try:
        pair.ours.execute(f'ALTER DATABASE "{ours}" OWNER TO stranger')
        pair.theirs.execute(f'ALTER DATABASE "{theirs}" OWNER TO stranger')
        for command in ("ANALYZE small", "VACUUM ANALYZE p1"):
            stranger.execute(command)
        assert everywhere(pair) == "p1.a p1.b small.a small.b"
    finally:
        pair.ours.execute(f'ALTER DATABASE "{ours}" OWNER TO postgres')
        pair.theirs.execute(f'ALTER DATABASE "{theirs}" OWNER TO postgres')


def test_a_locked_table_is_skipped_everywhere(pair: Pair) -> None:
    with pair.cluster.coordinator.connect() as other:
        other.execute(f"BEGIN; LOCK TABLE {SCHEMA}.small")
        pair.ours.execute("ANALYZE (SKIP_LOCKED) small, p1")
        pair.theirs.execute("ANALYZE p1")
    assert everywhere(pair) == "p1.a p1.b"


@pytest.mark.parametrize("level", ["REPEATABLE READ", "READ COMMITTED, READ ONLY"])
def test_at_every_level_of_isolation(pair: Pair, level: str) -> None:
    both(pair, f"BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM small; ANALYZE small; COMMIT")
    assert everywhere(pair) == "small.a small.b"


def test_a_serializable_transaction_leaves_the_copies_for_later(pair: Pair) -> None:
    pair.ours.execute("SET default_transaction_isolation = serializable")
    try:
        pair.ours.execute("ANALYZE small, p2; BEGIN; ANALYZE p1; COMMIT")
        pair.ours.execute("VACUUM ANALYZE small")
    finally:
        pair.ours.execute("RESET default_transaction_isolation")
    assert pair.rows(ANALYZED) == [("p1.a p1.b p2.a p2.b small.a small.b",)]


def test_an_old_snapshot_beside_does_not_matter(pair: Pair) -> None:
    with pair.cluster.coordinator.connect() as other:
        other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        other.execute(f"SELECT count(*) FROM {SCHEMA}.small")
        both(pair, "INSERT INTO small VALUES (77, 'x')")
        both(pair, "VACUUM (ANALYZE) small")
        assert everywhere(pair) == "small.a small.b"
        other.execute(f"ANALYZE {SCHEMA}.p1; COMMIT")
    pair.theirs.execute("ANALYZE p1")
    assert everywhere(pair) == "p1.a p1.b small.a small.b"


def test_a_table_without_workers_that_answer(pair: Pair) -> None:
    """The error is that of a distributed table, and what the command had done before holds."""
    worker = pair.cluster.workers[1]
    worker.stop()
    try:
        for table in ("small", "spread"):
            with pytest.raises(psycopg.OperationalError) as caught:
                pair.ours.execute(f"ANALYZE here, {table}")
            assert caught.value.sqlstate in ("08006", "08001")
    finally:
        worker.start()
    both(pair, "ANALYZE small")
    assert everywhere(pair) == "small.a small.b"


# ---- in the background ---------------------------------------------------------------------------------


def test_copies_that_are_behind_are_analysed_in_the_background(make_cluster) -> None:
    """Made of a table with statistics; made for a new worker; changed where no autovacuum is."""
    cluster = make_cluster(workers=1)
    cluster.coordinator.settings |= {"autovacuum_naptime": "1s"}
    for worker in cluster.workers:
        worker.settings |= {"autovacuum": "off"}
        worker.restart()
    node = cluster.coordinator
    node.restart()
    node.execute(
        "CREATE TABLE t (a integer PRIMARY KEY, b integer);"
        "INSERT INTO t SELECT g, 1 FROM generate_series(1, 20) AS g; ANALYZE t;"
        "SELECT strata.create_reference_table('t')"
    )
    known = "SELECT n_distinct FROM pg_stats WHERE tablename = 't' AND attname = 'b'"
    wait_for(cluster.workers[0], known, [(1,)])
    cluster.add_worker()
    wait_for(cluster.workers[-1], known, [(1,)])
    node.execute("INSERT INTO t SELECT g, g % 7 FROM generate_series(21, 4000) AS g")
    for server in (node, *cluster.workers):
        wait_for(server, known, [(7,)])


def wait_for(node, query: str, rows: list[tuple]) -> None:
    for _ in wait_until(f"{node.name}: {query} is {rows}", 60):
        if node.query(query) == rows:
            return
