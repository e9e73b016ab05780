"""What was committed survives kill -9, standbys, promotion, backups, dumps, upgrades and wraparound."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from extensions.columnar.test.ledger import TABLE, Ledger
from extensions.columnar.test.servers import (
    CHECKSUM,
    checksum,
    client_arguments,
    fill,
    make_standby,
    run_program,
    sibling,
    take_base_backup,
    verify,
    wait_for_replay,
)
from tests.cluster import Node
from tests.data_directory import make_data_directory
from tests.installation import find_binaries

MakeServer = Callable[..., Node]


# ---- kill -9 ------------------------------------------------------------------------------------------------


def tidy(node: Node, stop: threading.Event) -> None:
    """Compaction, clustering, VACUUM and checkpoints beside the writers."""
    with suppress(psycopg.OperationalError), node.connect() as connection:
        while not stop.is_set():
            for statement in (
                "SELECT strata_columnar.columnar_compact('t')", "VACUUM t", "CHECKPOINT",
                "SELECT strata_columnar.columnar_compact('t', everything => true)", "VACUUM (FREEZE) t",
            ):  # fmt: skip
                with suppress(psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                    connection.execute(statement)


def kill_and_check(node: Node, rounds: int, seconds: float) -> int:
    """Rounds of work that end with SIGKILL of the server; how many commits were acknowledged."""
    node.execute(TABLE)
    ledgers = [Ledger(worker, rounds) for worker in range(3)]
    rng = random.Random(rounds)
    for round_ in range(rounds):
        stop = threading.Event()
        threads = [threading.Thread(target=ledger.work, args=(node, stop)) for ledger in ledgers]
        threads.append(threading.Thread(target=tidy, args=(node, stop)))
        for thread in threads:
            thread.start()
        time.sleep(rng.uniform(seconds / 4, seconds))
        if round_ % 3 == 2:
            node.stop("immediate")
        else:
            node.kill()
        stop.set()
        for thread in threads:
            thread.join()
        node.start()
        verify(node, "t")
        for ledger in ledgers:
            ledger.check(node)
        node.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
        assert node.query("SELECT count(*) FROM t WHERE v >= 0") == node.query(
            "SELECT count(*) FROM t WHERE w >= 0"
        )
        if sum(len(ledger.rows) for ledger in ledgers) > 30000:
            node.execute("TRUNCATE t")
            for ledger in ledgers:
                ledger.rows = {}
    return sum(ledger.commits for ledger in ledgers)


def test_kill_9_loses_nothing_committed_and_shows_nothing_uncommitted(
    make_server: MakeServer,
) -> None:
    assert kill_and_check(make_server(), rounds=5, seconds=1.2) > 20


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_500_rounds_of_kill_9(make_server: MakeServer) -> None:
    assert kill_and_check(make_server(), rounds=500, seconds=2.5) > 5000


def test_kill_9_of_one_session_leaves_the_others_intact(make_server: MakeServer) -> None:
    """The server restarts itself; what the dead session had not committed is gone."""
    node = make_server(restart_after_crash="on")
    fill(node, "t", 3000)
    before = checksum(node)
    session = node.connect()
    session.execute(
        "BEGIN; INSERT INTO t SELECT g, 0, 'x' FROM generate_series(5000, 9000) AS g; DELETE FROM t WHERE id < 1000"
    )
    node.kill_process(session.info.backend_pid)
    node.wait_until_back()
    assert checksum(node) == before
    verify(node, "t")
    node.execute("INSERT INTO t SELECT g, 0, 'again' FROM generate_series(5000, 9000) AS g")
    assert checksum(node)[0] == 7001
    node.forgive_crash()


@pytest.mark.parametrize("level", ["replica", "minimal"])
def test_a_crash_before_the_first_checkpoint_after_creation(
    make_server: MakeServer, level: str
) -> None:
    """Tables, rewrites and truncation are replayed from WAL; a minimal WAL leaves out files that are new."""
    node = make_server(wal_level=level, max_wal_senders="0")
    node.execute("CHECKPOINT")
    fill(node, "t", 5000)
    fill(node, "u", 3000)
    fill(node, "f", 3000)
    node.execute("UPDATE t SET v = v + 1 WHERE id % 3 = 0; DELETE FROM t WHERE id % 7 = 0")
    node.execute("TRUNCATE u; INSERT INTO u VALUES (1, 1, 'after')")
    node.execute("VACUUM FULL f")
    node.execute(
        "ALTER TABLE f ADD COLUMN x integer DEFAULT 5; ALTER TABLE f ALTER COLUMN v TYPE bigint"
    )
    node.execute(
        "BEGIN; CREATE TABLE n (id integer, v integer) USING columnar; INSERT INTO n SELECT g, g FROM generate_series(1, 2000) AS g; COMMIT"
    )
    node.execute(
        "BEGIN; CREATE TABLE p (id integer PRIMARY KEY, v integer) USING columnar;"
        " INSERT INTO p SELECT g, g FROM generate_series(1, 2000) AS g; DELETE FROM p WHERE id < 10; PREPARE TRANSACTION 'p'"
    )
    expected = [checksum(node, name) for name in "tufn"]
    node.kill()
    node.start()
    assert [checksum(node, name) for name in "tufn"] == expected
    verify(node, *"tufn")
    node.execute("COMMIT PREPARED 'p'")
    assert checksum(node, "p")[0] == 1991
    node.kill()
    node.start()
    assert checksum(node, "p")[0] == 1991
    verify(node, "p")


def test_all_pages_have_valid_checksums(make_server: MakeServer) -> None:
    node = make_server()
    fill(node, "t", 20000)
    node.execute("UPDATE t SET v = 1 WHERE id < 100; DELETE FROM t WHERE id > 19000")
    node.execute("CREATE UNLOGGED TABLE u (id integer) USING columnar; INSERT INTO u VALUES (1)")
    node.execute("SELECT strata_columnar.columnar_compact('t')")
    node.execute("VACUUM FULL u")
    node.stop()
    assert "Bad checksums:  0" in run_program(node, "pg_checksums", "--check", "-D", node.data)


def test_logical_decoding_of_other_tables_is_not_disturbed(make_server: MakeServer) -> None:
    """The tuples of the TOAST relation are no pieces of values, and no decoder may take them for such."""
    node = make_server(wal_level="logical")
    node.execute("SELECT pg_create_logical_replication_slot('s', 'test_decoding')")
    node.execute("CREATE TABLE h (a integer, b text)")
    fill(node, "t", 3000)
    node.execute(
        "BEGIN; INSERT INTO h VALUES (1, 'before'); INSERT INTO t VALUES (5000, 1, 'inline'); UPDATE t SET v = 0 WHERE id < 5;"
        " DELETE FROM t WHERE id = 7; INSERT INTO h VALUES (2, repeat('x', 9000)); COMMIT"
    )
    node.execute("SELECT strata_columnar.columnar_compact('t')")
    changes = node.query(
        "SELECT left(data, 40) FROM pg_logical_slot_get_changes('s', NULL, NULL) WHERE data LIKE 'table%'"
    )
    assert [line for (line,) in changes] == [
        "table public.h: INSERT: a[integer]:1 b[t", "table public.h: INSERT: a[integer]:2 b[t",
    ]  # fmt: skip


def test_unlogged_tables_are_empty_after_a_crash_and_intact_after_a_shutdown(
    make_server: MakeServer,
) -> None:
    node = make_server()
    node.execute(
        "CREATE UNLOGGED TABLE t (id integer PRIMARY KEY, v integer, s text) USING columnar"
    )
    node.execute(
        "INSERT INTO t SELECT g, 1, 's' FROM generate_series(1, 4000) AS g; DELETE FROM t WHERE id < 10"
    )
    node.execute("CREATE UNLOGGED TABLE e (id integer, v integer) USING columnar")
    before = checksum(node)
    node.restart()
    assert checksum(node) == before
    node.kill()
    node.start()
    assert node.value("SELECT count(*) FROM t") == 0
    assert node.value("SELECT count(*) FROM e") == 0
    assert node.query("SELECT * FROM t WHERE id = 50") == []
    node.execute(
        "INSERT INTO t SELECT g, 1, 's' FROM generate_series(1, 4000) AS g; INSERT INTO e VALUES (1, 1)"
    )
    assert checksum(node)[0] == 4000
    verify(node, "t", "e")
    node.execute("ALTER TABLE t SET LOGGED")
    node.kill()
    node.start()
    assert checksum(node)[0] == 4000


def test_prepared_transactions_survive_a_crash_with_their_locks(make_server: MakeServer) -> None:
    node = make_server()
    fill(node, "t", 3000)
    node.execute("CREATE TABLE c (id integer, t integer REFERENCES t) USING columnar")
    for gid, first in (("commit", 0), ("rollback", 1000)):
        node.execute("BEGIN")
        node.execute(
            f"INSERT INTO t SELECT g, 1, '{gid}' FROM generate_series({10000 + first}, {10500 + first}) AS g"
        )
        node.execute(f"UPDATE t SET v = -1 WHERE id BETWEEN {first + 1} AND {first + 20}")
        node.execute(f"DELETE FROM t WHERE id BETWEEN {first + 101} AND {first + 120}")
        node.execute(f"INSERT INTO c VALUES (1, {first + 500})")
        node.execute(f"SELECT id FROM t WHERE id = {first + 600} FOR UPDATE")
        node.execute(f"PREPARE TRANSACTION '{gid}'")
    before = checksum(node)
    for end in (node.kill, lambda: node.stop("fast")):
        end()
        node.start()
        assert checksum(node) == before
        verify(node, "t", "c")
        node.execute("SET lock_timeout = '30ms'")
        for statement in (
            "UPDATE t SET v = 0 WHERE id = 5", "DELETE FROM t WHERE id = 1105", "UPDATE t SET v = 0 WHERE id = 600",
            "DELETE FROM t WHERE id = 1500", "INSERT INTO t VALUES (10100, 1, 'x')", "SELECT id FROM t WHERE id = 1600 FOR KEY SHARE",
        ):  # fmt: skip
            with pytest.raises(psycopg.errors.LockNotAvailable):
                node.execute(statement)
        node.execute("UPDATE t SET v = v WHERE id = 500")  # the key is shared, the row may change
    before = checksum(node)
    node.execute("COMMIT PREPARED 'commit'")
    node.execute("ROLLBACK PREPARED 'rollback'")
    count, *_ = checksum(node)
    assert count == before[0] + 501 - 20
    assert node.query("SELECT count(*), min(v) FROM t WHERE id BETWEEN 1001 AND 1020") == [(20, 1)]
    assert node.query("SELECT count(*), max(v) FROM t WHERE id BETWEEN 1 AND 20") == [(20, -1)]
    node.execute("DELETE FROM t WHERE id = 1500; UPDATE t SET v = 9 WHERE id IN (600, 1600)")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        node.execute("DELETE FROM t WHERE id = 500")
    verify(node, "t", "c")


# ---- standby ----------------------------------------------------------------------------------------------------


def test_a_standby_holds_serves_and_is_promoted(make_server: MakeServer) -> None:
    node = make_server(wal_level="replica", max_wal_senders="5")
    fill(node, "t", 3000)
    standby = make_standby(node, hot_standby_feedback="off", max_standby_streaming_delay="5s")
    stop = threading.Event()
    readers_found: list[int] = []

    def read() -> None:
        with standby.connect() as connection:
            while not stop.is_set():
                # the writers keep the sum of v of ids above 100000 at 0
                try:
                    row = connection.execute(
                        "SELECT count(*), coalesce(sum(v), 0) FROM t WHERE id > 100000"
                    ).fetchone()
                    assert row[1] == 0
                    readers_found.append(row[0])
                except psycopg.errors.SerializationFailure:
                    pass  # cancelled by replay: a conflict with recovery, as on heap

    reader = threading.Thread(target=read)
    reader.start()
    rng = random.Random(5)
    try:
        for number in range(25):
            first = 100000 + 4000 * number
            size = rng.choice((1, 10, 1500))
            node.execute(
                f"INSERT INTO t SELECT {first} + g, CASE WHEN g % 2 = 0 THEN -1 ELSE 1 END, 's' FROM generate_series(1, {2 * size}) AS g"
            )
            node.execute(f"UPDATE t SET v = -v WHERE id > {first}")
            node.execute(
                f"UPDATE t SET s = 'x' WHERE id = {rng.randrange(1, 3000)}; DELETE FROM t WHERE id = {rng.randrange(1, 3000)}"
            )
            if number % 5 == 4:
                node.execute("DELETE FROM t WHERE id > 100000 AND id < %s", (first - 8000,))
                node.execute("SELECT strata_columnar.columnar_compact('t')")
                node.execute("VACUUM t")
                wait_for_replay(node, standby)
                assert checksum(standby) == checksum(node)
                assert_served_by_index(node, standby)
    finally:
        stop.set()
        reader.join()
    assert len(set(readers_found)) > 1
    wait_for_replay(node, standby)
    verify(standby, "t")
    expected = checksum(node)
    node.kill()
    standby.execute("SELECT pg_promote()")
    assert checksum(standby) == expected
    verify(standby, "t")
    standby.execute(
        "INSERT INTO t VALUES (-1, 1, 'promoted'); UPDATE t SET v = 5 WHERE id = 7; DELETE FROM t WHERE id > 100000"
    )
    standby.execute("SELECT strata_columnar.columnar_compact('t')")
    standby.execute("VACUUM t")
    with pytest.raises(psycopg.errors.UniqueViolation):
        standby.execute("INSERT INTO t VALUES (-1, 1, 'promoted')")
    assert standby.value("SELECT count(*) FROM t WHERE id = -1") == 1
    verify(standby, "t")
    standby.stop()


def assert_served_by_index(node: Node, standby: Node) -> None:
    query = "SELECT id, v, s FROM t WHERE id IN (5, 500, 2999, 100003) ORDER BY id"
    for server in (node, standby):
        server.execute("SET enable_seqscan = off")
    assert standby.query(query) == node.query(query)
    for server in (node, standby):
        server.execute("RESET enable_seqscan")


def test_a_standby_needs_no_library_to_replay(make_server: MakeServer) -> None:
    """Only core's WAL records are written: pg_waldump knows every resource manager."""
    node = make_server(wal_level="replica")
    start = node.value("SELECT pg_current_wal_lsn()")
    fill(node, "t", 20000)
    node.execute("UPDATE t SET v = 1 WHERE id < 100; DELETE FROM t WHERE id > 19000")
    node.execute("SELECT strata_columnar.columnar_compact('t')")
    node.execute("VACUUM t")
    end = node.value("SELECT pg_current_wal_flush_lsn()")
    dump = run_program(node, "pg_waldump", "-p", node.data / "pg_wal", "-s", start, "-e", end)
    managers = {line.split()[1] for line in dump.splitlines() if line.startswith("rmgr:")}
    assert "Heap" in managers
    assert not any(name.startswith("custom") or name[0].isdigit() for name in managers)


# ---- backups, dumps, upgrades ----------------------------------------------------------------------------------------


def test_a_base_backup_taken_during_load_is_restored(make_server: MakeServer) -> None:
    node = make_server(wal_level="replica")
    fill(node, "t", 3000)
    stop = threading.Event()
    ledger = Ledger(1, 1)
    node.execute(
        "ALTER TABLE t RENAME TO quiet; CREATE TABLE t (w integer, id integer, v integer, s text, PRIMARY KEY (w, id)) USING columnar"
    )
    thread = threading.Thread(target=ledger.work, args=(node, stop))
    thread.start()
    copy = take_base_backup(node, "backup")
    stop.set()
    thread.join()
    copy.start()
    assert checksum(copy, "quiet") == checksum(node, "quiet")
    verify(copy, "quiet", "t")
    rows, total = copy.query("SELECT count(*), count(DISTINCT id) FROM t")[0]
    assert rows == total
    copy.execute("INSERT INTO quiet VALUES (5000, 1, 'x'); DELETE FROM quiet WHERE id < 100")
    verify(copy, "quiet")
    copy.stop()


OPTIONS = "SELECT relation::text, compression, compression_level, row_group_rows, order_by, bloom FROM strata_columnar.options WHERE relation::text LIKE 'dump_%' ORDER BY 1"
CODECS = "SELECT DISTINCT codec FROM strata_columnar.columnar_chunks('{}') WHERE column_name = 's'"


@pytest.mark.parametrize(("form", "jobs"), [("plain", 1), ("custom", 1), ("directory", 2)])
def test_options_and_rows_survive_dump_and_restore(
    make_server: MakeServer, tmp_path: Path, form: str, jobs: int
) -> None:
    node = make_server()
    fill(node, "dump_zstd", 5000)
    fill(node, "dump_none", 5000)
    fill(node, "dump_plain", 5000)
    node.execute(
        "SELECT strata_columnar.alter_columnar_table_set('dump_zstd', compression => 'zstd', compression_level => 7, row_group_rows => 2000, order_by => 'v DESC, id', bloom => ARRAY['s']);"
        "SELECT strata_columnar.alter_columnar_table_set('dump_none', compression => 'none', bloom => ARRAY['s', 'v'])"
    )
    node.execute(
        "CREATE TABLE dump_part (id integer, v integer, s text) PARTITION BY RANGE (id); CREATE TABLE dump_part1 PARTITION OF dump_part FOR VALUES FROM (0) TO (9000) USING columnar"
    )
    node.execute(
        "SELECT strata_columnar.alter_columnar_table_set('dump_part', compression => 'zstd', row_group_rows => 3000)"
    )
    node.execute(
        "INSERT INTO dump_part SELECT * FROM dump_plain; CREATE MATERIALIZED VIEW dump_view USING columnar AS SELECT * FROM dump_plain WHERE v < 9"
    )
    node.execute("TRUNCATE dump_zstd; INSERT INTO dump_zstd SELECT * FROM dump_plain")
    tables = ("dump_zstd", "dump_none", "dump_plain", "dump_part", "dump_view")
    expected = [checksum(node, name) for name in tables]
    options = node.query(OPTIONS)
    assert len(options) == 5
    target = node.root / f"dump_{form}"
    run_program(
        node,
        "pg_dump",
        *client_arguments(node),
        "-F",
        form,
        "-f",
        target,
        *(["-j", str(jobs)] if jobs > 1 else []),
    )
    node.execute("DROP EXTENSION IF EXISTS nothing")
    with node.connect("postgres") as connection:
        connection.execute("CREATE DATABASE restored")
    if form == "plain":
        run_program(
            node,
            "psql",
            *client_arguments(node, "restored"),
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-f",
            target,
        )
    else:
        run_program(
            node, "pg_restore", *client_arguments(node, "restored"), "-e", "-j", str(jobs), target
        )
    with node.connect("restored") as restored:
        assert [
            restored.execute(CHECKSUM.format(table=name)).fetchone() for name in tables
        ] == expected
        assert restored.execute(OPTIONS).fetchall() == options
        # the rows were compressed by their options, although options and rows came from one dump
        assert restored.execute(CODECS.format("dump_zstd")).fetchall() in ([("zstd",)], [("none",)])
        assert restored.execute(CODECS.format("dump_none")).fetchall() == [("none",)]
        sizes = restored.execute(
            "SELECT max(rows), count(*) FROM strata_columnar.columnar_row_groups('dump_zstd')"
        ).fetchone()
        assert sizes == (2000, 3)
        groups = restored.execute(
            "SELECT max(rows), count(*) FROM strata_columnar.columnar_row_groups('dump_part1')"
        ).fetchone()
        assert groups == (3000, 2)
        blooms = restored.execute(
            "SELECT DISTINCT column_name::text FROM strata_columnar.columnar_chunks('dump_none') WHERE bloom"
        ).fetchall()
        assert sorted(blooms) == [("s",), ("v",)]
        assert restored.execute(
            "SELECT bool_and(ok) FROM (SELECT lag(v, 1, v) OVER () >= v AS ok FROM (SELECT v FROM dump_zstd LIMIT 2000) AS a) AS s"
        ).fetchone() == (True,)


def test_pg_upgrade_keeps_rows_options_and_deletes(make_server: MakeServer) -> None:
    """From a major version to itself: as from one to the next, files are linked and catalogs made anew."""
    node = make_server()
    fill(node, "t", 5000)
    fill(node, "dump_zstd", 3000)
    node.execute(
        "SELECT strata_columnar.alter_columnar_table_set('dump_zstd', compression => 'zstd', bloom => ARRAY['s'])"
    )
    node.execute(
        "UPDATE t SET v = v + 1 WHERE id % 3 = 0; DELETE FROM t WHERE id % 7 = 0; INSERT INTO t VALUES (9000, 1, 'inline')"
    )
    node.execute("ALTER TABLE t ADD COLUMN x text DEFAULT 'missing'; ALTER TABLE t DROP COLUMN s")
    node.execute(
        "CREATE TABLE narrow (a integer) USING columnar; CREATE TABLE empty (a integer, v text) USING columnar; INSERT INTO narrow VALUES (7)"
    )
    expected = checksum(node)
    options = node.query(OPTIONS)
    node.stop()
    new = sibling(node, "upgraded")
    make_data_directory(new.data)
    new.write_configuration()  # pg_upgrade logs in as the superuser, whoever runs it
    binaries = find_binaries()
    run_program(
        node, "pg_upgrade", "-b", binaries, "-B", binaries, "-d", node.data, "-D", new.data, "-U", "postgres",
        "-s", node.root, "-p", str(node.port), "-P", str(new.port),
    )  # fmt: skip
    new.start()
    assert checksum(new) == expected
    assert new.query(OPTIONS) == options
    assert new.value("SELECT a FROM narrow") == 7
    assert new.value("SELECT count(*) FROM empty") == 0
    verify(new, "t", "dump_zstd", "narrow", "empty")
    new.execute("SET enable_seqscan = off")
    assert new.query("SELECT id, v, x FROM t WHERE id = 9000") == [(9000, 1, "missing")]
    new.execute(
        "INSERT INTO t (id, v) SELECT g, 0 FROM generate_series(10000, 12000) AS g; DELETE FROM t WHERE id < 100; INSERT INTO empty VALUES (1, 'x'); UPDATE narrow SET a = 8"
    )
    new.execute("SELECT strata_columnar.columnar_compact('t')")
    new.execute("VACUUM (FREEZE) t")
    verify(new, "t", "narrow", "empty")
    assert checksum(new)[0] == expected[0] + 2001 - new.value(
        "SELECT count(*) FROM generate_series(1, 99) AS g WHERE g % 7 <> 0"
    )
    new.stop()


# ---- transaction ids ----


def test_readers_and_maintenance_survive_wraparound(make_server: MakeServer) -> None:
    """Transaction ids jump by 1.5 billion twice; frozen rows stay, deleted rows stay deleted."""
    node = make_server(autovacuum="off")
    fill(node, "t", 5000)
    node.execute(
        "DELETE FROM t WHERE id % 5 = 0; UPDATE t SET v = -1 WHERE id % 7 = 0; INSERT INTO t VALUES (9000, 1, 'inline')"
    )
    before = checksum(node)
    for jump in (1_500_000_000, 3_000_000_000):
        for database in ("postgres", "strata", "template1"):
            with node.connect(database) as connection:
                connection.execute("VACUUM (FREEZE)")
        node.execute("ALTER DATABASE template0 ALLOW_CONNECTIONS true")
        with node.connect("template0") as connection:
            connection.execute("VACUUM (FREEZE)")
        node.execute("CHECKPOINT")
        node.stop()
        segment = jump // 32768 // 32
        xid = segment * 32 * 32768
        run_program(node, "pg_resetwal", "-f", "-x", str(xid), "-D", node.data)
        clog = node.data / "pg_xact" / f"{xid // 1048576:04X}"
        if not clog.exists():
            clog.write_bytes(b"\0" * 262144)
            run_program(node, "pg_controldata", "-D", node.data)
        os.chown(clog, node.data.stat().st_uid, node.data.stat().st_gid)
        node.start()
        assert checksum(node) == before
        verify(node, "t")
        node.execute(
            "UPDATE t SET v = 7 WHERE id = 1; DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (2, 2, 'again')"
        )
        node.execute("SELECT strata_columnar.columnar_compact('t')")
        node.execute("VACUUM t")
        verify(node, "t")
        before = checksum(node)
