"""Columnar tables move to another tablespace while they are read and written."""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from extensions.columnar.test.servers import (
    check_indexes,
    checksum,
    fill,
    make_standby,
    verify,
    wait_for_replay,
)
from extensions.columnar.test.tiers import (
    TIERS,
    known_files,
    make_tablespaces,
    move,
    no_stray_files,
    tier_of,
)
from extensions.columnar.test.twins import Twins
from tests.cluster import Node
from tests.installation import make_directory
from tests.waiting import wait_until

MakeServer = Callable[..., Node]


@pytest.fixture(scope="module")
def tiers(node: Node) -> Node:
    """The server with tablespaces hot and cold."""
    make_tablespaces(node)
    return node


@pytest.fixture
def server(make_server: MakeServer) -> Node:
    """A server of the test's own, with the tablespaces."""
    node = make_server()
    make_tablespaces(node)
    return node


SHAPES = {
    "empty": "",
    "inline": "INSERT INTO t SELECT g, g % 7, 'row ' || g FROM generate_series(1, 50) AS g",
    "stored": "INSERT INTO t SELECT g, g % 7, repeat('row ' || g, 3) FROM generate_series(1, 30000) AS g",
    "changed": "INSERT INTO t SELECT g, g % 7, 'row ' || g FROM generate_series(1, 30000) AS g;"
    " DELETE FROM t WHERE id % 5 = 0; UPDATE t SET v = v + 1 WHERE id % 11 = 0;"
    " INSERT INTO t VALUES (100000, NULL, NULL)",
    "altered": "INSERT INTO t SELECT g, g % 7, 'row ' || g FROM generate_series(1, 20000) AS g;"
    " ALTER TABLE t ADD COLUMN d integer DEFAULT 8, DROP COLUMN v, ADD COLUMN v numeric;"
    " INSERT INTO t (id, s, v) SELECT g, 'new', g FROM generate_series(20001, 40000) AS g",
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("recompress", ["true", "false"])
def test_moved_table_is_the_same(
    tiers: Node, twins: Twins, schema_name: str, shape: str, recompress: str
) -> None:
    """Rows, indexes, and what is written later, there and back."""
    twins.execute(
        "SET strata_columnar.row_group_rows = 10000",
        "CREATE TABLE t (id integer PRIMARY KEY, v integer, s text)",
    )
    if SHAPES[shape]:
        for statement in SHAPES[shape].split(";"):
            twins.execute(statement)
    for tier in ("cold", "hot"):
        move(twins.columnar.connection, "t", tier, recompress=recompress)
        assert tier_of(twins.columnar.connection, "t") == tier
        twins.verify()
        twins.same("SELECT * FROM t ORDER BY id")
        twins.same("SELECT * FROM t WHERE id = 11")
        twins.same(f"INSERT INTO t (id, s) VALUES ({-1 if tier == 'cold' else -2}, 'late')")
        twins.same("UPDATE t SET s = 'changed' WHERE id % 100 = 1")
        twins.same("DELETE FROM t WHERE id % 100 = 3")
        twins.fails("INSERT INTO t (id) VALUES (-1)", "23505")
        twins.execute("VACUUM t")
        twins.same("SELECT * FROM t ORDER BY id")
    no_stray_files(tiers)


def test_cold_tablespace_compresses(tiers: Node, twins: Twins) -> None:
    """Numbers, which hot tables do not compress, are compressed there, and come back as they were."""
    session = twins.columnar.connection
    session.execute("CREATE TABLE t (id integer, s text)")
    session.execute(
        "INSERT INTO t SELECT g, md5((g % 1000)::text) || md5((g % 999)::text) FROM generate_series(1, 100000) AS g"
    )

    def size() -> int:
        return session.execute("SELECT pg_relation_size('t')").fetchone()[0]

    hot = size()
    move(session, "t", "cold")
    cold = size()
    assert cold < 0.8 * hot
    assert session.execute(
        "SELECT compression FROM strata_columnar.columnar_options('t')"
    ).fetchone() == ("cold",)
    move(session, "t", "hot", recompress="false")
    assert size() == cold
    session.execute("VACUUM ANALYZE t")
    move(session, "t", "cold")
    move(session, "t", "hot")
    assert size() == pytest.approx(hot, rel=0.05)
    assert session.execute(
        "SELECT relpages * 8192, reltuples FROM pg_class WHERE oid = 't'::regclass"
    ).fetchone() == (pytest.approx(size(), rel=0.05), 100000)
    values = "md5((g % 1000)::text) || md5((g % 999)::text)"
    assert session.execute("SELECT count(*), count(DISTINCT s), max(s) FROM t").fetchone() == (
        session.execute(
            f"SELECT count(*), count(DISTINCT {values}), max({values}) FROM generate_series(1, 100000) AS g"
        ).fetchone()
    )


def test_indexes_go_along(tiers: Node, twins: Twins) -> None:
    """On request, those that are with the table; whatever their kind, and while rows are written."""
    twins.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, v integer, s text, a integer[])",
        "CREATE INDEX t_hash ON t USING hash (v)",
        "CREATE INDEX t_gin ON t USING gin (a)",
        "CREATE INDEX t_gist ON t USING gist (int4range(id, id + 3))",
        "CREATE INDEX t_elsewhere ON t (s) TABLESPACE hot",
        "INSERT INTO t SELECT g, g % 1000, 'row ' || g, ARRAY[g % 10, g % 7] FROM generate_series(1, 30000) AS g",
    )
    session = twins.columnar.connection

    def places() -> dict[str, str | None]:
        return dict(
            session.execute(
                "SELECT relname, spcname FROM pg_index JOIN pg_class AS c ON c.oid = indexrelid"
                " LEFT JOIN pg_tablespace AS t ON t.oid = reltablespace WHERE indrelid = 't'::regclass"
            ).fetchall()
        )

    mine = ("t_pkey", "t_hash", "t_gin", "t_gist")
    move(session, "t", "cold", with_indexes="true")
    assert places() == dict.fromkeys(mine, "cold") | {"t_elsewhere": "hot"}
    twins.execute(
        "SET enable_seqscan = off", "SET strata_columnar.enable_custom_scan = off",
        "INSERT INTO t SELECT g, g % 1000, 'row ' || g, ARRAY[g % 10] FROM generate_series(30001, 33000) AS g",
        "UPDATE t SET v = v + 1 WHERE id % 7 = 0",
    )  # fmt: skip
    for _ in range(2):
        twins.same("SELECT * FROM t WHERE id = 77")
        twins.same("SELECT count(*), sum(id) FROM t WHERE v = 77")
        twins.same("SELECT count(*), sum(id) FROM t WHERE a @> ARRAY[5, 6]")
        twins.same("SELECT count(*), sum(v) FROM t WHERE int4range(id, id + 3) @> 30002")
        check_indexes(session, "t")
        move(session, "t", "hot", with_indexes="true") if places()["t_gin"] == "cold" else None
    assert places() == dict.fromkeys((*mine, "t_elsewhere"), "hot")
    no_stray_files(tiers)


def test_old_snapshots_keep_their_rows(tiers: Node, twins: Twins) -> None:
    """Transactions that began before, and those that only took their snapshot, see what they saw."""
    twins.execute("CREATE TABLE t (id integer PRIMARY KEY, v integer)")
    twins.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 20000) AS g")
    with tiers.connect() as old:
        old.execute(f"SET search_path = {twins.columnar.schema}")
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        # a snapshot, and no lock on the table
        old.execute("SELECT 1")
        twins.execute("DELETE FROM t WHERE id <= 15000")
        twins.execute("UPDATE t SET v = -1")
        twins.columnar.execute("SELECT strata_columnar.columnar_compact('t')")
        move(twins.columnar.connection, "t", "cold")
        assert old.execute("SELECT count(*), sum(v) FROM t").fetchone() == (20000, 200010000)
        assert old.execute("SELECT v FROM t WHERE id = 17").fetchone() == (17,)
        old.execute("COMMIT")
        assert old.execute("SELECT count(*), sum(v) FROM t").fetchone() == (5000, -5000)
    twins.same("SELECT * FROM t ORDER BY id")


def test_readers_and_writers_go_on(tiers: Node, twins: Twins) -> None:
    """What several sessions do while the table moves to and fro is what they would have done."""
    table = f"{twins.columnar.schema}.t"
    tiers.execute(
        f"CREATE TABLE {table} (w integer, id integer, v integer, PRIMARY KEY (w, id)) USING columnar;"
        f" INSERT INTO {table} SELECT -1, g, g FROM generate_series(1, 300000) AS g"
    )
    stop = threading.Event()
    problems: list[BaseException] = []
    rows: dict[int, dict[int, int]] = {}

    def write(worker: int) -> None:
        rng = random.Random(worker)
        mine = rows.setdefault(worker, {})
        with tiers.connect() as session:
            number = 0
            while not stop.is_set():
                count = rng.choice((1, 20, 1500))
                session.execute(
                    f"INSERT INTO {table} SELECT %s, g, 0 FROM generate_series(%s::int, %s::int) AS g",
                    (worker, number, number + count - 1),
                )
                mine.update((n, 0) for n in range(number, number + count))
                number += count
                low = rng.randrange(number)
                session.execute(
                    f"UPDATE {table} SET v = v + 1 WHERE w = %s AND id BETWEEN %s AND %s",
                    (worker, low, low + 10),
                )
                mine.update((n, mine[n] + 1) for n in range(low, low + 11) if n in mine)
                if rng.random() < 0.3:
                    session.execute(f"DELETE FROM {table} WHERE w = %s AND id = %s", (worker, low))
                    mine.pop(low, None)

    def read() -> None:
        with tiers.connect() as session:
            while not stop.is_set():
                row = session.execute(
                    f"SELECT count(*), sum(v) FROM {table} WHERE w = -1"
                ).fetchone()
                assert row == (300000, 45000150000)

    def guard(job: Callable[..., None], *arguments: int) -> None:
        try:
            job(*arguments)
        except BaseException as problem:
            problems.append(problem)
            stop.set()

    threads = [threading.Thread(target=guard, args=(write, worker)) for worker in range(2)]
    threads.append(threading.Thread(target=guard, args=(read,)))
    for thread in threads:
        thread.start()
    moves = 0
    try:
        with tiers.connect() as session:
            end = time.monotonic() + 8
            while time.monotonic() < end and not stop.is_set():
                # a vacuum or a merge in the background may have the lock
                with suppress(psycopg.errors.LockNotAvailable):
                    move(session, table, TIERS[(moves + 1) % 2])
                    moves += 1
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not problems
    assert moves >= 2
    verify(tiers, table)
    for worker, mine in rows.items():
        stored = dict(tiers.query(f"SELECT id, v FROM {table} WHERE w = %s", (worker,)))
        assert stored == mine
    no_stray_files(tiers)


def test_move_waits_without_queueing(tiers: Node, twins: Twins) -> None:
    """A reader's transaction keeps the move waiting, and nobody waits for the move."""
    session = twins.columnar.connection
    session.execute("CREATE TABLE t (id integer)")
    session.execute("INSERT INTO t SELECT generate_series(1, 5000)")
    with tiers.connect() as reader, tiers.connect() as other:
        reader.execute("BEGIN")
        reader.execute(f"SELECT count(*) FROM {twins.columnar.schema}.t")
        mover = threading.Thread(target=move, args=(session, "t", "cold"))
        mover.start()
        time.sleep(0.3)
        other.execute("SET lock_timeout = '200ms'")
        for _ in range(20):
            other.execute(f"INSERT INTO {twins.columnar.schema}.t VALUES (0)")
        reader.execute("COMMIT")
        mover.join(20)
        assert not mover.is_alive()
    assert tier_of(session, "t") == "cold"
    assert session.execute("SELECT count(*) FROM t").fetchone() == (5020,)


def test_move_gives_up(tiers: Node, twins: Twins) -> None:
    session = twins.columnar.connection
    session.execute("CREATE TABLE t (id integer)")
    session.execute("INSERT INTO t SELECT generate_series(1, 5000)")
    with tiers.connect() as reader:
        reader.execute("BEGIN")
        reader.execute(f"SELECT count(*) FROM {twins.columnar.schema}.t")
        with pytest.raises(psycopg.errors.LockNotAvailable, match="in use all the time"):
            move(session, "t", "cold", patience="'100 ms'")
    assert tier_of(session, "t") is None
    no_stray_files(tiers)
    # what it has begun is forgotten by the next
    move(session, "t", "cold")
    assert tiers.value("SELECT count(*) FROM strata_columnar.table_move") == 0


def test_move_gives_way_to_commands(tiers: Node, twins: Twins) -> None:
    """Who wants a stronger lock does not wait for the end of the move."""
    session = twins.columnar.connection
    session.execute("CREATE TABLE t (id integer, s text)")
    session.execute("INSERT INTO t SELECT g, md5(g::text) FROM generate_series(1, 200000) AS g")
    failed: list[psycopg.Error] = []

    def run() -> None:
        try:
            move(session, "t", "cold", bytes_per_second="1000000")
        except psycopg.Error as error:
            failed.append(error)

    mover = threading.Thread(target=run)
    mover.start()
    with tiers.connect() as other:
        for _ in wait_until("the move runs"):
            assert not failed
            if tiers.query(
                "SELECT 1 FROM pg_locks WHERE mode = 'ShareUpdateExclusiveLock' AND relation = %s::regclass",
                (f"{twins.columnar.schema}.t",),
            ):
                break
        time.sleep(0.2)
        other.execute("SET lock_timeout = '5s'")
        other.execute(f"ALTER TABLE {twins.columnar.schema}.t ADD COLUMN more integer")
    mover.join(20)
    assert len(failed) == 1
    assert isinstance(failed[0], psycopg.errors.LockNotAvailable)
    move(session, "t", "cold")
    assert session.execute("SELECT count(*), count(more) FROM t").fetchone() == (200000, 0)
    no_stray_files(tiers)


@pytest.mark.parametrize(
    ("statement", "sqlstate", "message"),
    [
        ("CALL strata_columnar.move_columnar_table('h', 'cold')", "42809", "not a columnar table"),
        ("CALL strata_columnar.move_columnar_table('u', 'cold')", "0A000", "temporary or unlogged"),
        ("CALL strata_columnar.move_columnar_table('t', 'nowhere')", "42704", "does not exist"),
        ("CALL strata_columnar.move_columnar_table('t', 'pg_default')", "55000", "already"),
        ("CALL strata_columnar.move_columnar_table('t', 'pg_global')", "22023", "pg_global"),
        ("CALL strata_columnar.move_columnar_table('p', 'cold')", "42809", "not a columnar table"),
    ],
)
def test_what_cannot_be_moved(
    tiers: Node, twins: Twins, statement: str, sqlstate: str, message: str
) -> None:
    session = twins.columnar.connection
    session.execute("CREATE TABLE h (id integer) USING heap")
    session.execute("CREATE UNLOGGED TABLE u (id integer)")
    session.execute("CREATE TABLE t (id integer)")
    session.execute("CREATE TABLE p (id integer) PARTITION BY RANGE (id)")
    with pytest.raises(psycopg.Error, match=message) as caught:
        session.execute(statement)
    assert caught.value.sqlstate == sqlstate


def test_move_in_transaction_block(tiers: Node, twins: Twins) -> None:
    session = twins.columnar.connection
    session.execute("CREATE TABLE t (id integer)")
    session.execute("BEGIN")
    with pytest.raises(psycopg.errors.InvalidTransactionTermination):
        move(session, "t", "cold")
    session.execute("ROLLBACK")


def test_only_owners_move(tiers: Node, twins: Twins) -> None:
    session = twins.columnar.connection
    session.execute("CREATE TABLE t (id integer)")
    session.execute("DROP ROLE IF EXISTS mover")
    session.execute("CREATE ROLE mover")
    session.execute(f"GRANT USAGE ON SCHEMA strata_columnar, {twins.columnar.schema} TO mover")
    session.execute("SET ROLE mover")
    try:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            move(session, "t", "cold")
    finally:
        session.execute("RESET ROLE")
        session.execute("DROP OWNED BY mover")
        session.execute("DROP ROLE mover")


# ---- crashes and replicas ------------------------------------------------------------------------------


@pytest.fixture
def small_disk(server: Node) -> Iterator[Path]:
    """A directory for a tablespace, on a file system of 2 MB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    place = server.root / "small"
    make_directory(place)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=777", "tmpfs", place], check=True)
    try:
        make_directory(place / "data")
        yield place / "data"
    finally:
        server.stop("immediate")
        subprocess.run(["umount", place], check=True)


def test_full_disk(server: Node, small_disk: Path) -> None:
    """A target without room: an error, and the table is where it was."""
    server.execute("CREATE TABLE t (id integer, v integer, s text) USING columnar")
    server.execute(
        "INSERT INTO t SELECT g, g % 100, md5(g::text) FROM generate_series(1, 200000) AS g"
    )
    before = checksum(server)
    server.execute(f"CREATE TABLESPACE small LOCATION '{small_disk}'")
    with server.connect() as session:
        with pytest.raises(psycopg.errors.DiskFull):
            move(session, "t", "small")
        assert tier_of(session, "t") is None
        assert checksum(server) == before
        verify(server, "t")
        move(session, "t", "cold")
    assert checksum(server) == before
    server.execute("CHECKPOINT")
    server.execute("DROP TABLESPACE small")


def test_lost_tablespace(server: Node) -> None:
    """The directory of the target is gone: an error, and when it is back the table moves."""
    fill(server, "t", 20000)
    before = checksum(server)
    place = server.tablespaces()["cold"]
    lost = place.with_name("lost")
    with server.connect() as session:
        place.rename(lost)
        try:
            with pytest.raises(psycopg.OperationalError, match="could not create"):
                move(session, "t", "cold")
        finally:
            lost.rename(place)
        assert checksum(server) == before
        move(session, "t", "cold")
        assert tier_of(session, "t") == "cold"
    assert checksum(server) == before
    no_stray_files(server)


def test_standby_has_the_same_tiers(server: Node) -> None:
    """A standby replays moves, there and back, beside its own readers."""
    fill(server, "t", 100000)
    standby = make_standby(server)
    try:
        with server.connect() as session:
            for tier in ("cold", "hot", "cold"):
                move(session, "t", tier)
                session.execute("UPDATE t SET v = v + 1 WHERE id % 10 = 0")
                wait_for_replay(server, standby)
                assert checksum(standby) == checksum(server)
                with standby.connect() as reader:
                    assert tier_of(reader, "t") == tier
                    assert not reader.execute(
                        "SELECT * FROM strata_columnar.columnar_verify('t')"
                    ).fetchall()
        for tier in TIERS:
            copied = {
                path.name
                for path in (standby.root / "tablespaces" / standby.name / tier).glob("PG_*/*/*")
                if path.stat().st_size > 0
            }
            assert {name for name in copied if "_" not in name} <= known_files(server, tier)
    finally:
        standby.stop("immediate")


def test_a_move_needs_the_right_to_create_in_the_tablespace(tiers: Node, twins: Twins) -> None:
    """As ALTER TABLE ... SET TABLESPACE does; the database's own tablespace is anybody's."""
    side = twins.columnar
    side.execute("CREATE TABLE t (id integer PRIMARY KEY, s text)")
    side.execute("INSERT INTO t SELECT g, 'row ' || g FROM generate_series(1, 5000) AS g")
    tiers.execute(
        f"CREATE ROLE mover; GRANT ALL ON SCHEMA {side.schema} TO mover;"
        " GRANT USAGE ON SCHEMA strata_columnar TO mover; GRANT EXECUTE ON ALL ROUTINES IN SCHEMA strata_columnar TO mover;"
        " GRANT ALL ON strata_columnar.table_move TO mover"
    )
    try:
        side.execute("ALTER TABLE t OWNER TO mover; SET ROLE mover")
        for command in (
            "CALL strata_columnar.move_columnar_table('t', 'cold')",
            "SELECT strata_columnar.columnar_move_files('t', 'cold', false)",
            "SELECT strata_columnar.columnar_move_run('t', 'cold', '{1, 2, 3}', false, NULL, 1000, false)",
            "ALTER TABLE t SET TABLESPACE cold",
        ):
            outcome = side.run(command)
            assert (outcome.sqlstate, outcome.message) == (
                "42501",
                "permission denied for tablespace cold",
            ), command
        tiers.execute("GRANT CREATE ON TABLESPACE cold TO mover")
        move(side.connection, "t", "cold")
        tiers.execute("REVOKE CREATE ON TABLESPACE cold FROM mover")
        move(side.connection, "t", "pg_default")
        assert side.execute("SELECT count(*) FROM t") == [(5000,)]
    finally:
        side.execute("RESET ROLE; DROP TABLE t")
        tiers.execute("DROP OWNED BY mover; DROP ROLE mover")
    no_stray_files(tiers)
