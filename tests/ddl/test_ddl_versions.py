"""Workers that miss DDL, or that join while there is some, never serve an old schema."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from tests.cluster import Cluster, Node
from tests.installation import give_to_server
from tests.waiting import wait_until

MakeCluster = Callable[..., Cluster]


def make_pair_of_workers(make_cluster: MakeCluster, **options: bool) -> Cluster:
    cluster = make_cluster(workers=2, **options)
    cluster.coordinator.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, v integer);"
        "SELECT strata.create_distributed_table('t', 'id', shard_count => 4);"
        "INSERT INTO t SELECT g, g FROM generate_series(1, 40) AS g"
    )
    return cluster


@pytest.fixture
def pair_of_workers(make_cluster: MakeCluster) -> Cluster:
    return make_pair_of_workers(make_cluster)


def version(node: Node) -> int:
    return node.value("SELECT ddl_version FROM strata.cluster")


def changes(node: Node) -> int:
    return node.value("SELECT ddl_version >> 32 FROM strata.cluster")


def directories(node: Node) -> list[Path]:
    """Of its data, those of its tablespaces included."""
    return [node.data, *node.tablespaces().values()]


def save_directory(node: Node) -> None:
    """A backup of the whole server, which is stopped for it."""
    node.stop()
    for place in directories(node):
        shutil.copytree(place, node.root / "backup" / place.relative_to(node.root), symlinks=True)
    node.start()


def restore_directory(node: Node) -> None:
    node.stop()
    for place in directories(node):
        shutil.rmtree(place)
        shutil.copytree(node.root / "backup" / place.relative_to(node.root), place, symlinks=True)
        for path in [place, *place.rglob("*")]:
            if not path.is_symlink():
                give_to_server(path, 0o700)
    node.start()


def test_a_worker_restored_from_an_old_backup_is_refused(pair_of_workers: Cluster) -> None:
    cluster = pair_of_workers
    coordinator, worker = cluster.coordinator, cluster.workers[0]
    save_directory(worker)
    coordinator.execute("ALTER TABLE t ADD COLUMN w text DEFAULT 'new'")
    restore_directory(worker)
    coordinator.disconnect()

    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as caught:
        coordinator.query("SELECT w FROM t")
    assert "schema of this server is older" in str(caught.value)
    assert "worker1" in caught.value.diag.context
    assert str(version(coordinator)) in caught.value.diag.message_hint
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        coordinator.execute("ALTER TABLE t ADD COLUMN x text")
    health = coordinator.query(
        "SELECT worker_name, detail FROM strata.check_health() WHERE NOT ok ORDER BY 1"
    )
    assert [name for name, _ in health] == ["worker1"]
    assert "older" in health[0][1]

    # what the hint says
    worker.execute("ALTER TABLE t ADD COLUMN w text DEFAULT 'new'")
    worker.execute(f"SELECT strata_worker.record_schema_version({version(coordinator)})")
    assert coordinator.value("SELECT count(w) FROM t") == 40
    coordinator.execute("ALTER TABLE t ADD COLUMN x text")
    assert not coordinator.query("SELECT * FROM strata.check_health() WHERE NOT ok")


def test_code_of_users_records_no_version(make_cluster: MakeCluster) -> None:
    """It runs in the coordinator's sessions, as the role that may run DDL there."""
    cluster = make_pair_of_workers(make_cluster, tls=True)
    coordinator = cluster.coordinator
    coordinator.execute("CREATE ROLE mallory; GRANT CREATE ON SCHEMA public TO mallory")
    coordinator.execute("SET ROLE mallory")
    coordinator.execute(
        "CREATE FUNCTION forge (call text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS"
        " 'BEGIN EXECUTE coalesce(call, ''SELECT 1''); RETURN true; END';"
        "CREATE DOMAIN d AS integer;"
        "CREATE TABLE m (id bigint, v d);"
        "SELECT strata.create_distributed_table('m', 'id', 4, 'none'); INSERT INTO m VALUES (0, 1);"
    )
    call = "SELECT strata_worker.record_schema_version(9223372036854775807)"
    for statement in (
        f"UPDATE m SET v = v WHERE forge('{call}' || left(id::text, 0))",
        f"SELECT count(*) FROM m WHERE forge('{call}' || left(id::text, 0)) -- {call}",
        f"ALTER DOMAIN d ADD CHECK (forge('{call}' || left(VALUE::text, 0))) -- ; {call}",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="record_schema_version"):
            coordinator.execute(statement)
    coordinator.execute("RESET ROLE")
    with (
        cluster.workers[0].connect(user="mallory") as direct,
        pytest.raises(psycopg.errors.InsufficientPrivilege, match="record_schema_version"),
    ):
        direct.execute(call)
    versions = "SELECT max(version) FROM strata_worker.schema_version"
    for worker in cluster.workers:
        assert worker.value(versions) == version(coordinator)


def test_a_session_that_is_refused_is_no_coordinators(pair_of_workers: Cluster) -> None:
    worker = pair_of_workers.workers[0]
    nobody = "00000000-0000-0000-0000-000000000000"
    with worker.connect() as session:
        pid = session.info.backend_pid
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="another cluster"):
            session.execute(f"SELECT strata_worker.check_coordinator('{nobody}', 1, '{nobody}')")
        assert not worker.query(f"SELECT * FROM strata_worker.marked_sessions() WHERE pid = {pid}")
        ((owner, epoch, holder),) = worker.query(
            "SELECT id::text, epoch, holder::text FROM strata_worker.cluster"
        )
        session.execute(f"SELECT strata_worker.check_coordinator('{owner}', {epoch}, '{holder}')")
        assert worker.query(f"SELECT * FROM strata_worker.marked_sessions() WHERE pid = {pid}") == [
            (pid, epoch)
        ]


def test_ddl_fails_while_a_worker_is_down_and_changes_no_node(pair_of_workers: Cluster) -> None:
    coordinator, down = pair_of_workers.coordinator, pair_of_workers.workers[1]
    before = version(coordinator)
    down.stop()
    for statement in (
        "ALTER TABLE t ADD COLUMN w text",
        "CREATE FUNCTION f () RETURNS integer LANGUAGE sql RETURN 1",
        "CREATE INDEX ON t (v)",
        "CREATE TYPE e AS ENUM ('a')",
        "CREATE ROLE late",
        "DROP TABLE t",
    ):
        with pytest.raises(psycopg.Error) as caught:
            coordinator.execute(statement)
        assert caught.value.sqlstate[:2] in ("08", "57"), caught.value
        assert "worker2" in str(caught.value)
    down.start()
    assert version(coordinator) == before
    for _ in wait_until("the worker is used again"):
        try:
            rows = coordinator.query("SELECT * FROM t LIMIT 1")
            break
        except psycopg.OperationalError:
            coordinator.disconnect()
    assert len(rows[0]) == 2
    coordinator.execute("ALTER TABLE t ADD COLUMN w text")


def test_sessions_that_connect_while_ddl_commits_are_not_refused(pair_of_workers: Cluster) -> None:
    coordinator = pair_of_workers.coordinator
    before = changes(coordinator)

    def change(table: str) -> None:
        with coordinator.connect() as session:
            session.execute(f"CREATE TABLE {table} (id integer)")
            session.execute(f"SELECT strata.create_distributed_table('{table}', 'id', 4, 'none')")
            for number in range(15):
                session.execute(f"ALTER TABLE {table} ADD COLUMN c{number} integer")

    def read() -> None:
        for _ in range(25):
            with coordinator.connect() as session:
                assert session.execute("SELECT count(*) FROM t").fetchone() == (40,)

    with ThreadPoolExecutor() as pool:
        tasks = [pool.submit(change, "a"), pool.submit(change, "b")]
        tasks += [pool.submit(read), pool.submit(read)]
        for task in tasks:
            task.result()
    assert changes(coordinator) == before + 32
    for worker in pair_of_workers.workers:
        assert worker.value("SELECT max(version) FROM strata_worker.schema_version") == version(
            coordinator
        )


def test_a_worker_that_holds_prepared_ddl_of_the_cluster_is_not_refused(
    pair_of_workers: Cluster,
) -> None:
    """It may be the one that brings the schema; its locks protect what it is about to change."""
    worker = pair_of_workers.workers[0]
    cluster_id = worker.value("SELECT id::text FROM strata_worker.cluster")
    check = "SELECT strata_worker.check_schema_version(1000000)"
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        worker.execute(check)
    worker.execute("BEGIN; SELECT pg_current_xact_id()")
    worker.execute(f"PREPARE TRANSACTION 'strata_{cluster_id}_other'")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        worker.execute(check)
    worker.execute(f"ROLLBACK PREPARED 'strata_{cluster_id}_other'")
    worker.execute("BEGIN; SELECT strata_worker.record_schema_version(1000000)")
    worker.execute(f"PREPARE TRANSACTION 'strata_{cluster_id}_test'")
    worker.execute(check)
    worker.execute(f"ROLLBACK PREPARED 'strata_{cluster_id}_test'")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        worker.execute(check)


def test_ddl_in_repeatable_read_does_not_meet_other_ddl(pair_of_workers: Cluster) -> None:
    coordinator = pair_of_workers.coordinator
    coordinator.execute("CREATE TABLE u (id integer)")
    coordinator.execute("SELECT strata.create_distributed_table('u', 'id', 4, 'none')")
    with coordinator.connect() as first:
        first.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        first.execute("SELECT count(*) FROM t")
        coordinator.execute("ALTER TABLE u ADD COLUMN w integer")
        first.execute("ALTER TABLE t ADD COLUMN w integer")
        first.execute("COMMIT")
    assert coordinator.value("SELECT count(*) FROM t WHERE w IS NULL") == 40


def is_waiting(node: Node, text: str) -> bool:
    return node.value(
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ %s",
        (text,),
    )


def remove_worker(coordinator: Node) -> None:
    """As soon as nothing is in doubt there: the resolver looks at every worker after a start."""
    for _ in wait_until("the worker can be removed"):
        try:
            coordinator.execute("SELECT strata.remove_worker('worker2')")
            return
        except psycopg.errors.ObjectInUse:
            continue


def functions(node: Node) -> list[str]:
    rows = node.query(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
        " AND proname ~ '^f_' ORDER BY 1"
    )
    return [name for (name,) in rows]


def test_ddl_and_new_workers_wait_for_each_other(pair_of_workers: Cluster) -> None:
    coordinator, worker = pair_of_workers.coordinator, pair_of_workers.workers[1]
    coordinator.execute("DROP TABLE t")
    remove_worker(coordinator)
    create = "CREATE FUNCTION {} () RETURNS integer LANGUAGE sql RETURN 1"
    add = f"SELECT strata.add_worker('worker2', '{worker.conninfo(user=None)}')".replace(
        f"'{worker.passfile}'", str(worker.passfile)
    )
    with (
        coordinator.connect() as first,
        coordinator.connect() as second,
        ThreadPoolExecutor() as pool,
    ):
        first.execute("BEGIN")
        first.execute(create.format("f_before"))
        adding = pool.submit(second.execute, add)
        for _ in wait_until("add_worker waits for DDL"):
            if is_waiting(coordinator, "add_worker.*worker2"):
                break
        first.execute("COMMIT")
        adding.result()
        assert functions(worker) == ["f_before"]

        remove_worker(coordinator)
        second.execute("BEGIN")
        second.execute(add)
        changing = pool.submit(first.execute, create.format("f_while"))
        for _ in wait_until("DDL waits for add_worker"):
            if is_waiting(coordinator, "f_while"):
                break
        second.execute("COMMIT")
        changing.result()
        assert functions(worker) == ["f_before", "f_while"]
        assert not coordinator.query("SELECT * FROM strata.check_health() WHERE NOT ok")


def test_ddl_goes_on_beside_an_old_transaction(cluster: Cluster, schema: str) -> None:
    """Old versions of the version's row fill its page, so that a new one needs index entries."""
    coordinator = cluster.coordinator
    before = changes(coordinator)
    with coordinator.connect() as session:
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM strata.cluster")
        for number in range(150):
            coordinator.execute(f"CREATE TYPE kind_{number} AS ENUM ('a')")
    assert changes(coordinator) == before + 150
    assert coordinator.query("SELECT count(*) FROM strata.cluster WHERE only_row") == [(1,)]
