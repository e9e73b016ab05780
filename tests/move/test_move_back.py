"""What a worker keeps of a shard that has left it, until the archive of its new worker has the shard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.cluster import Cluster, Node
from tests.failover import lose
from tests.fixtures import new_root
from tests.installation import give_to_server
from tests.waiting import wait_until


class Archive:
    """Where the workers archive their WAL: not, while it is shut."""

    def __init__(self, root: Path):
        self.path = root / "archive"
        self.gate = root / "archive_is_open"
        self.path.mkdir()
        for directory in (root, self.path):
            give_to_server(directory, 0o700)

    def settings(self) -> dict[str, str]:
        command = f"test -f {self.gate} && cp %p {self.path}/%f"
        return {"archive_mode": "on", "archive_command": f"'{command}'"}

    def open(self) -> None:
        self.gate.touch()

    def shut(self) -> None:
        self.gate.unlink(missing_ok=True)


@pytest.fixture
def archive() -> Archive:
    return Archive(new_root())


@pytest.fixture
def cluster(archive: Archive) -> Iterator[Cluster]:
    """Table t refers to place, which is on all nodes; p has periods; their workers archive nothing yet."""
    with Cluster(new_root(), workers=2) as cluster:
        for worker in cluster.workers:
            worker.settings |= archive.settings()
            worker.restart()
        cluster.coordinator.execute(
            "CREATE TABLE place (id integer PRIMARY KEY, name text);"
            "SELECT strata.create_reference_table('place');"
            "INSERT INTO place SELECT g, 'place ' || g FROM generate_series(0, 9) AS g;"
            'CREATE TABLE t (k bigint PRIMARY KEY, v text COLLATE "C", place integer);'
            "SELECT strata.create_distributed_table('t', 'k', 2, colocate_with => 'none', storage => 'heap');"
            "ALTER TABLE t ADD FOREIGN KEY (place) REFERENCES place; CREATE INDEX ON t (v);"
            "INSERT INTO t SELECT g, 'v' || g, g % 10 FROM generate_series(1, 1000) AS g;"
            "CREATE TABLE p (k bigint, at date NOT NULL);"
            "SELECT strata.create_distributed_table('p', 'k', 2, colocate_with => 'none',"
            " partition_by => 'at', partition_interval => '1 month');"
            "INSERT INTO p SELECT g, '2024-01-05'::date + g % 90 FROM generate_series(1, 1000) AS g"
        )
        yield cluster


def rows(worker: Node, table: str) -> list[tuple]:
    """Those of shard 0 on a worker."""
    ((name,),) = worker.query(
        "SELECT format('%%I.%%I', schema_name, partition_name) FROM strata_worker.shard_list()"
        " WHERE table_name = %s AND remainder = 0",
        (table,),
    )
    return worker.query(f"SELECT s::text FROM {name} AS s ORDER BY 1")


def move(cluster: Cluster, table: str) -> tuple[Node, Node]:
    """Shard 0 to the other worker: where it was, and where it is."""
    node = cluster.coordinator
    place = node.value(
        f"SELECT worker FROM strata.shards WHERE relation = '{table}'::regclass AND shard = 0"
    )
    source, target = sorted(cluster.workers, key=lambda each: each.name != place)
    node.execute(f"SELECT strata.move_shard('{table}', 0, '{target.name}')")
    return source, target


def kept(node: Node) -> int:
    return node.value("SELECT count(*) FROM strata.kept_shard")


def kept_tables(worker: Node) -> int:
    return worker.value(
        "SELECT count(*) FROM pg_class WHERE relnamespace::regnamespace::text ~ '^strata_kept'"
        " AND relkind IN ('r', 'p')"
    )


def write_off(cluster: Cluster, worker: Node) -> None:
    lose(cluster, worker)
    cluster.coordinator.execute(f"SELECT strata.remove_worker('{worker.name}', lost => true)")


@pytest.mark.parametrize("table", ["t", "p"])
def test_what_no_archive_has_comes_back(cluster: Cluster, table: str) -> None:
    node = cluster.coordinator
    home = node.value(
        f"SELECT worker FROM strata.shards WHERE relation = '{table}'::regclass AND shard = 0"
    )
    before = rows(next(w for w in cluster.workers if w.name == home), table)
    source, target = move(cluster, table)
    node.execute(f"DELETE FROM {table} WHERE k % 3 = 0")
    shown = "SELECT relation::text, shard, worker, target, lost FROM strata.kept_shards"
    assert node.query(shown) == [(table, 0, source.name, target.name, False)]
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="is not lost"):
        node.execute(f"SELECT strata.move_back('{table}', 0)")
    write_off(cluster, target)
    with pytest.raises(psycopg.Error, match="lost"):
        node.query(f"SELECT count(*) FROM {table}")
    assert node.query(shown) == [(table, 0, source.name, target.name, True)]
    since = node.value("SELECT kept_since FROM strata.kept_shards")
    if table == "t":
        # what foreign keys point to may have changed, and other DDL goes on
        node.execute(
            "CREATE TABLE other (k integer); SELECT strata.create_reference_table('other')"
        )
    assert node.value(f"SELECT strata.move_back('{table}', 0)") == since
    assert kept(node) == 0
    assert kept_tables(source) == 0
    assert rows(source, table) == before
    with pytest.raises(
        psycopg.errors.ObjectNotInPrerequisiteState, match="no worker keeps shard 1"
    ):
        node.execute(f"SELECT strata.move_back('{table}', 1)")
    node.execute(f"SELECT strata.recreate_lost_shards('{table}')")
    assert node.value(f"SELECT count(*) FROM {table}") == len(before)
    others = "SELECT strata.recreate_lost_shards(relation) FROM strata.tables WHERE lost_shards > 0"
    node.query(others)
    assert node.query("SELECT * FROM strata.check_health() WHERE NOT ok") == []
    if table == "p":  # which pg_partman knows again
        node.execute("INSERT INTO p SELECT k, current_date FROM generate_series(1, 100) AS k")
        assert source.query("SELECT * FROM strata_worker.unknown_periods()") == []


def test_foreign_keys_are_looked_at(cluster: Cluster) -> None:
    """A row to which kept rows refer can be deleted, and is missed when they come back."""
    node = cluster.coordinator
    _, target = move(cluster, "t")
    node.execute("DELETE FROM t WHERE place = 3; DELETE FROM place WHERE id = 3")
    write_off(cluster, target)
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        node.execute("SELECT strata.move_back('t', 0)")
    node.execute("INSERT INTO place VALUES (3, 'again'); SELECT strata.move_back('t', 0)")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        node.execute("DELETE FROM place WHERE id = 3")


def test_it_is_dropped_when_the_archive_has_the_shard(cluster: Cluster, archive: Archive) -> None:
    node = cluster.coordinator
    source, target = move(cluster, "p")
    for _ in wait_until("the target is asked for its WAL"):
        if node.value("SELECT wal_file FROM strata.kept_shard") is not None:
            break
    assert kept_tables(source) > 0
    assert node.value("SELECT strata.release_kept_shards()") == 0
    archive.open()
    # of itself it would try again after a minute
    target.execute("SELECT pg_create_restore_point('again'), pg_switch_wal()")
    for _ in wait_until("nothing is kept any more"):
        if kept(node) == 0:
            break
    assert kept_tables(source) == 0
    file = target.value("SELECT last_archived_wal FROM pg_stat_archiver")
    assert (archive.path / file).exists()
    assert node.query("SELECT * FROM strata.check_health() WHERE NOT ok") == []


def test_ddl_drops_it(cluster: Cluster) -> None:
    """Also an ordinary role's; what it consists of would be in the way."""
    node = cluster.coordinator
    cluster.create_role("owner")
    node.execute(
        "GRANT CREATE ON SCHEMA public TO owner; CREATE TYPE color AS ENUM ('red');"
        "ALTER TYPE color OWNER TO owner; ALTER TABLE t ADD c color; ALTER TABLE t OWNER TO owner"
    )
    source, target = move(cluster, "t")
    assert kept_tables(source) == 1
    with node.connect() as session:
        session.execute("SET ROLE owner")
        session.execute("BEGIN; ALTER TABLE t DROP c; ROLLBACK")
        assert kept(node) == 1
        assert kept_tables(source) == 1
        session.execute("ALTER TABLE t DROP c")
        assert kept(node) == 0
        assert kept_tables(source) == 0
        session.execute("DROP TYPE color")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute("SELECT strata.release_kept_shards()")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute("SELECT strata.move_back('t', 0)")
    assert node.value("SELECT count(*) FROM t") == 1000
    assert target.value("SELECT count(*) FROM t") > 0


def test_it_goes_and_comes_while_it_is_kept(cluster: Cluster) -> None:
    node = cluster.coordinator
    for _ in range(3):
        move(cluster, "t")
        move(cluster, "p")
    assert kept(node) == 6
    assert node.value("SELECT count(*) FROM t") == 1000
    assert node.value("SELECT count(*) FROM p") == 1000
    # no DDL of the rest of the cluster: a worker leaves with what it keeps
    leaver = cluster.workers[0]
    node.execute(f"SELECT strata.remove_worker('{leaver.name}', drain => true)")
    assert kept_tables(leaver) == 0
    for _ in wait_until("what left with the worker is forgotten"):
        if node.value("SELECT count(*) FROM strata.kept_shards WHERE worker IS NULL") == 0:
            break
    assert node.value("SELECT count(*) FROM t") == 1000


def test_nothing_is_kept_without_an_archive_or_below_foreign_keys(cluster: Cluster) -> None:
    node = cluster.coordinator
    node.execute(
        "CREATE TABLE part (k bigint REFERENCES t);"
        "SELECT strata.create_distributed_table('part', 'k', colocate_with => 't')"
    )
    source, _ = move(cluster, "t")
    assert kept(node) == 0
    assert kept_tables(source) == 0
    for worker in cluster.workers:
        worker.settings["archive_mode"] = "off"
        worker.restart()
    for _ in wait_until("the workers are back"):
        try:
            source, _ = move(cluster, "p")
            break
        except psycopg.Error:
            continue
    assert kept(node) == 0
    assert kept_tables(source) == 0


def test_ddl_while_it_is_lost(cluster: Cluster) -> None:
    """What is kept stays then; it follows names, and other changes are to be undone."""
    node = cluster.coordinator
    _, target = move(cluster, "t")
    write_off(cluster, target)
    node.execute("ALTER TABLE t RENAME TO t2; ALTER TABLE t2 ADD more integer")
    assert kept(node) == 1
    with pytest.raises(psycopg.errors.DatatypeMismatch, match='missing column "more"'):
        node.execute("SELECT strata.move_back('t2', 0)")
    node.execute("ALTER TABLE t2 DROP more; SELECT strata.move_back('t2', 0)")
    assert kept(node) == 0


def test_errors(cluster: Cluster) -> None:
    for arguments, error in (
        ("NULL, 0", psycopg.errors.NullValueNotAllowed),
        ("'t', NULL", psycopg.errors.NullValueNotAllowed),
        ("'t', 7", psycopg.errors.InvalidParameterValue),
        ("'place', 0", psycopg.errors.WrongObjectType),
    ):
        with pytest.raises(error):
            cluster.coordinator.execute(f"SELECT strata.move_back({arguments})")
