"""A worker that is lost for good is written off when that is asked for, and never believed again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster, Node
from tests.failover import lose, wait_for_status
from tests.fixtures import new_root
from tests.waiting import wait_until

WRITE_OFF = "SELECT strata.remove_worker('worker2', lost => true)"
FAULTS = "SELECT worker_name, check_name, detail FROM strata.check_health() WHERE NOT ok"
ROWS = 600
ODD = '"Odd ""name"'


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three workers; tables a, b (colocated, with a foreign key), p (periods), alone, and r."""
    with Cluster(new_root(), workers=3) as cluster:
        cluster.coordinator.execute(
            "CREATE TABLE a (id integer PRIMARY KEY, v text);"
            "CREATE TABLE b (id integer, n integer, PRIMARY KEY (id, n));"
            "CREATE TABLE p (id integer, at date NOT NULL);"
            "CREATE TABLE alone (id integer);"
            "CREATE TABLE r (id integer PRIMARY KEY);"
            "SELECT strata.create_distributed_table('a', 'id', shard_count => 6);"
            "SELECT strata.create_distributed_table('b', 'id', colocate_with => 'a', storage => 'heap');"
            "SELECT strata.create_distributed_table('p', 'id', shard_count => 3,"
            " colocate_with => 'none', partition_by => 'at', partition_interval => '1 month');"
            # its one shard is the first worker's
            "SELECT strata.create_distributed_table('alone', 'id', 1, colocate_with => 'none');"
            "SELECT strata.create_reference_table('r');"
            "ALTER TABLE b ADD FOREIGN KEY (id) REFERENCES a ON DELETE CASCADE;"
            f"INSERT INTO a SELECT g, 'a' FROM generate_series(1, {ROWS}) AS g;"
            f"INSERT INTO b SELECT g, 1 FROM generate_series(1, {ROWS}) AS g;"
            f"INSERT INTO p SELECT g, '2024-03-05' FROM generate_series(1, {ROWS}) AS g;"
            "INSERT INTO alone VALUES (1), (2), (3); INSERT INTO r VALUES (1), (2), (3);"
            "ANALYZE a;"
        )
        yield cluster


def keys_on(worker: Node) -> list[int]:
    return [key for (key,) in worker.query("SELECT id FROM a ORDER BY id")]


def write_off(session: psycopg.Connection) -> list[str]:
    """Returns what the user was told."""
    notices: list[str] = []
    handler = lambda told: notices.append(f"{told.message_primary} {told.message_detail}")  # noqa: E731
    session.add_notice_handler(handler)
    session.execute(WRITE_OFF)
    session.remove_notice_handler(handler)
    return notices


def assert_lost(session: psycopg.Connection, statement: str) -> None:
    with pytest.raises(psycopg.Error, match=r"shard \d of .* was lost with worker") as caught:
        session.execute(statement)
    assert caught.value.sqlstate == "55000", caught.value
    assert "strata.recreate_lost_shards" in caught.value.diag.message_hint


# ---- the write-off --------------------------------------------------------------------------------


def assert_only_written_off_when_gone_and_asked(cluster: Cluster, writer_key: int) -> None:
    coordinator, worker = cluster.coordinator, cluster.workers[1]
    with coordinator.connect() as session, coordinator.connect() as writer:
        with pytest.raises(psycopg.errors.ObjectInUse, match="still answers"):
            session.execute(WRITE_OFF)

        # only the heartbeat gets in
        wait_for_status(cluster, worker.name, "up")
        session.execute("CREATE ROLE warden SUPERUSER LOGIN; SET SESSION AUTHORIZATION warden")
        worker.execute("ALTER ROLE warden CONNECTION LIMIT 0 NOSUPERUSER")
        with pytest.raises(psycopg.errors.ObjectInUse, match='its status is "up"') as caught:
            session.execute(WRITE_OFF)
        assert "could not connect" in caught.value.diag.message_detail
        worker.execute("ALTER ROLE warden CONNECTION LIMIT -1 SUPERUSER")
        session.execute("RESET SESSION AUTHORIZATION; DROP ROLE warden")

        lose(cluster, worker)
        with pytest.raises(psycopg.errors.ObjectInUse, match="still holds shards") as caught:
            session.execute("SELECT strata.remove_worker('worker2')")
        assert "does not answer" in caught.value.diag.message_detail
        assert "remove_worker('worker2', lost => true)" in caught.value.diag.message_hint
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            session.execute("SELECT strata.remove_worker('worker2', drain => true, lost => true)")
        assert session.execute("SELECT count(*) FROM strata.workers").fetchone() == (3,)

        # somebody writes
        writer.execute("BEGIN")
        writer.execute(f"UPDATE a SET v = 'w' WHERE id = {writer_key}")
        session.execute("SET lock_timeout = '300ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            session.execute(WRITE_OFF)
        session.execute("RESET lock_timeout")
        writer.execute("ROLLBACK")

        # it is taken back
        session.execute("BEGIN")
        write_off(session)
        session.execute("ROLLBACK")
        worker.start()
        worker.disconnect()
        for _ in wait_until("the worker is used again"):
            with contextlib.suppress(psycopg.Error):
                assert session.execute("SELECT count(*) FROM a").fetchone() == (ROWS,)
                break


def test_what_is_left_works_and_what_is_lost_says_so(cluster: Cluster) -> None:
    coordinator, lost = cluster.coordinator, cluster.workers[1]
    gone, here = keys_on(lost)[:3], keys_on(cluster.workers[0])[:3]
    left = ROWS - len(keys_on(lost))
    assert_only_written_off_when_gone_and_asked(cluster, here[0])
    cluster.create_role("grower")
    coordinator.execute("GRANT CREATE ON SCHEMA public TO grower")
    with coordinator.connect() as session:
        session.execute("SET ROLE grower")
        session.execute(f'CREATE TABLE {ODD} ("Key" text, v integer)')
        session.execute(
            f"SELECT strata.create_distributed_table('{ODD}', 'Key', 6, 'none', 'heap')"
        )
        session.execute(f"ALTER TABLE {ODD} SET (fillfactor = 50)")
    with coordinator.connect() as session, coordinator.connect() as prepared:
        prepared.execute("PREPARE one(integer) AS SELECT count(*) FROM a WHERE id = $1")
        prepared.execute("PREPARE everything AS SELECT count(*) FROM a")
        for _ in range(6):
            prepared.execute(f"EXECUTE one({here[0]})")
            prepared.execute("EXECUTE everything")
        lose(cluster, lost)
        notices = "\n".join(write_off(session))
        assert "table public.a loses 2 of 6 shards" in notices
        assert f"about {ROWS // 3} of {ROWS} rows" in notices
        assert "table public.b loses 2 of 6 shards" in notices
        assert "table public.p loses 1 of 3 shards" in notices
        assert "public.alone" not in notices
        assert "public.r " not in notices

        # in the dark: nothing that needs the rows
        for statement in (
            "SELECT count(*) FROM a",
            f"SELECT * FROM b WHERE id = {gone[0]}",
            f"SELECT * FROM a WHERE id IN ({here[0]}, {gone[0]})",
            f"SELECT * FROM a JOIN b USING (id) WHERE a.id = {gone[0]}",
            "SELECT * FROM r JOIN a USING (id)",
            "UPDATE a SET v = 'x'",
            "DELETE FROM b",
            f"INSERT INTO a VALUES ({gone[0]}, 'again')",
            f"INSERT INTO a VALUES ({here[0]}, 'x'), ({gone[0]}, 'x') ON CONFLICT DO NOTHING",
            "COPY a TO '/dev/null'",
            "CREATE TABLE copied AS SELECT * FROM a",
            "SELECT strata.undistribute_table('p')",
            "ALTER TABLE p SET ACCESS METHOD heap",
        ):
            assert_lost(session, statement)
        assert_lost(prepared, "EXECUTE everything")
        assert_lost(prepared, f"EXECUTE one({gone[1]})")

        # what needs others only
        assert prepared.execute(f"EXECUTE one({here[0]})").fetchone() == (1,)
        assert session.execute("SELECT count(*) FROM alone JOIN r USING (id)").fetchone() == (3,)
        found = f"SELECT count(*) FROM a JOIN b USING (id) WHERE a.id = {here[1]}"
        assert session.execute(found).fetchone() == (1,)
        session.execute(f"UPDATE a SET v = 'new' WHERE id = {here[0]}")
        session.execute(f"INSERT INTO b VALUES ({here[0]}, 2)")
        session.execute(
            f"INSERT INTO a VALUES ({here[0]}, 'up') ON CONFLICT (id) DO UPDATE SET v = excluded.v"
        )
        session.execute(f"DELETE FROM a WHERE id = {here[0]}")  # cascades
        session.execute("INSERT INTO r VALUES (4); UPDATE r SET id = 5 WHERE id = 4")
        session.execute("ANALYZE")
        session.execute("VACUUM ANALYZE a")
        left -= 1

        # DDL, and tables to come
        session.execute("ALTER TABLE a ADD COLUMN extra integer DEFAULT 7")
        session.execute("CREATE INDEX a_extra ON a (extra); ALTER TABLE b RENAME TO bb")
        with pytest.raises(psycopg.Error, match="of the colocation group are lost") as caught:
            session.execute(
                "CREATE TABLE c (id integer);"
                "SELECT strata.create_distributed_table('c', 'id', colocate_with => 'a')"
            )
        assert caught.value.sqlstate == "55000"
        assert caught.value.diag.message_hint
        session.execute(
            "CREATE TABLE c (id integer);"
            "SELECT strata.create_distributed_table('c', 'id', colocate_with => 'none');"
            "INSERT INTO c VALUES (1); DROP TABLE c"
        )

        # what an administrator sees
        assert session.execute(FAULTS).fetchall() == [
            (
                "worker2",
                "lost shards",
                f"public.{ODD}: 2 of 6; public.a: 2 of 6; public.bb: 2 of 6; public.p: 1 of 3",
            )
        ]
        seen = "SELECT count(*) FROM strata.shards WHERE worker IS NULL AND lost_with = 'worker2'"
        assert session.execute(seen).fetchone() == (7,)
        seen = "SELECT relation::text, lost_shards FROM strata.tables ORDER BY 1"
        assert session.execute(seen).fetchall() == [
            (ODD, 2), ("a", 2), ("alone", 0), ("bb", 2), ("p", 1), ("r", 0)
        ]  # fmt: skip

        # the rows are given up
        with pytest.raises(psycopg.errors.WrongObjectType):
            session.execute("SELECT strata.recreate_lost_shards('r')")
        assert session.execute("SELECT strata.recreate_lost_shards('bb')").fetchone() == (2,)
        assert session.execute("SELECT strata.recreate_lost_shards('bb')").fetchone() == (0,)
        assert session.execute("SELECT count(*) FROM a").fetchone() == (left,)
        assert session.execute(f"SELECT * FROM a WHERE id = {gone[0]}").fetchall() == []
        assert prepared.execute("EXECUTE everything").fetchone() == (left,)
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            session.execute(f"INSERT INTO bb VALUES ({gone[0]}, 1)")
        session.execute(
            f"INSERT INTO a VALUES ({gone[0]}, 'again'); INSERT INTO bb VALUES ({gone[0]}, 1)"
        )
        with pytest.raises(psycopg.errors.UniqueViolation):
            session.execute(f"INSERT INTO a VALUES ({gone[0]}, 'twice')")
        assert_lost(session, "SELECT count(*) FROM p")
        session.execute("TRUNCATE p")
        assert_lost(session, "SELECT count(*) FROM p")
        assert session.execute("SELECT strata.recreate_lost_shards('p')").fetchone() == (1,)
        session.execute(
            f"INSERT INTO p SELECT g, '2024-03-05' FROM generate_series(1, {ROWS}) AS g"
        )
        assert session.execute("SELECT count(*) FROM p").fetchone() == (ROWS,)

        # of another owner
        session.execute("SET ROLE grower")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute(f"SELECT strata.recreate_lost_shards('{ODD}')")
        session.execute("RESET ROLE")
        session.execute(f"SELECT strata.recreate_lost_shards('{ODD}')")
        session.execute("SET ROLE grower")
        session.execute(f"INSERT INTO {ODD} SELECT g, g FROM generate_series(1, 99) AS g")
        session.execute(f'ALTER TABLE {ODD} ADD UNIQUE ("Key")')
        session.execute(f"DROP TABLE {ODD}")
        session.execute("RESET ROLE")

        assert session.execute(FAULTS).fetchall() == []
        session.execute("DROP TABLE a, bb, p, alone, r")


def test_all_workers_can_be_lost_and_replaced(cluster: Cluster) -> None:
    coordinator = cluster.coordinator
    lose(cluster, *cluster.workers)
    with coordinator.connect() as session:
        for worker in cluster.workers:
            session.execute("SELECT strata.remove_worker(%s, lost => true)", (worker.name,))
        assert_lost(session, "SELECT count(*) FROM a")
        assert_lost(session, "SELECT count(*) FROM a WHERE id = 1")
        assert_lost(session, "INSERT INTO a VALUES (1, 'x') ON CONFLICT DO NOTHING")
        session.execute("ANALYZE a; INSERT INTO r VALUES (4)")
        with pytest.raises(psycopg.Error, match="has no workers") as caught:
            session.execute("SELECT strata.recreate_lost_shards('a')")
        assert caught.value.sqlstate == "55000"

        new = cluster.new_node("substitute")
        try:
            session.execute("SELECT strata.add_worker('new', %s)", (new.conninfo(user=None),))
            for table in ("a", "p", "alone"):
                session.execute("SELECT strata.recreate_lost_shards(%s::regclass)", (table,))
            assert session.execute("SELECT count(*) FROM a JOIN b USING (id)").fetchone() == (0,)
            assert new.value("SELECT count(*) FROM r") == 4
            session.execute("INSERT INTO a VALUES (1, 'x'); INSERT INTO b VALUES (1, 1)")
            assert session.execute(FAULTS).fetchall() == []
        finally:
            new.stop()


# ---- prepared transactions ------------------------------------------------------------------------


def test_too_few_prepared_transactions_are_reported_before_there_is_load(make_cluster) -> None:
    cluster = make_cluster(workers=1)
    coordinator, worker = cluster.coordinator, cluster.workers[0]
    told: list[str] = []
    with coordinator.connect() as session:
        session.add_notice_handler(lambda notice: told.append(str(notice.message_detail)))
        session.execute("SELECT strata.remove_worker('worker1')")
        worker.settings["max_prepared_transactions"] = "20"
        worker.restart()
        worker.disconnect()
        session.execute("SELECT strata.add_worker('few', %s)", (worker.conninfo(user=None),))
        assert any("max_prepared_transactions is 20 there" in detail for detail in told)
        assert session.execute(FAULTS).fetchall() == [
            (
                "few",
                "prepared transactions",
                "max_prepared_transactions is 20 there, max_connections of the coordinator 100",
            )
        ]


# ---- a worker that comes back ---------------------------------------------------------------------


def test_a_lost_worker_that_comes_back_is_a_stranger(cluster: Cluster) -> None:
    """What it has prepared is nobody's, and it joins again only when its administrator says so."""
    coordinator, lost, other = cluster.coordinator, cluster.workers[1], cluster.workers[0]
    gone, here = keys_on(lost)[0], keys_on(other)[0]
    with coordinator.connect() as session:
        # committed, and told to one worker of two
        session.execute("SET synchronous_commit = local")
        own = coordinator.value("SELECT id FROM strata.cluster")
        lost_id = coordinator.value("SELECT worker_id FROM strata.worker WHERE name = 'worker2'")
        session.execute("INSERT INTO strata.distributed_transaction VALUES (7, 7)")
        gid = f"strata_{own}_7_7_{lost_id}"
        lose(cluster, lost)
        write_off(session)
        for _ in wait_until("the decision is not kept for it"):
            rows = session.execute("SELECT count(*) FROM strata.distributed_transaction").fetchone()
            if rows == (0,):
                break
        session.execute(
            "CREATE TABLE later (id integer); SELECT strata.create_reference_table('later')"
        )

        lost.start()
        lost.disconnect()
        lost.execute(
            f"BEGIN; UPDATE a SET v = 'late' WHERE id = {gone}; PREPARE TRANSACTION '{gid}'"
        )
        assert_lost(session, f"SELECT * FROM a WHERE id = {gone}")
        assert session.execute(f"SELECT v FROM a WHERE id = {here}").fetchone() == ("a",)
        assert session.execute("SELECT * FROM strata.in_doubt").fetchall() == []

        add = "SELECT strata.add_worker('again', %s)"
        conninfo = (lost.conninfo(user=None),)
        with pytest.raises(psycopg.Error, match="was removed from this cluster") as caught:
            session.execute(add, conninfo)
        assert "leave_cluster()" in caught.value.diag.message_hint
        with pytest.raises(psycopg.errors.ObjectInUse, match="are prepared") as caught:
            lost.execute("SELECT strata_worker.leave_cluster()")
        assert gid in caught.value.diag.message_detail
        assert lost.query("SELECT gid FROM pg_prepared_xacts") == [(gid,)]
        lost.execute(f"ROLLBACK PREPARED '{gid}'")
        lost.execute("SELECT strata_worker.leave_cluster()")
        with pytest.raises(psycopg.errors.DuplicateTable):
            session.execute(add, conninfo)
        lost.execute("DROP TABLE a, b, p, alone, r CASCADE")
        session.execute(add, conninfo)
        assert session.execute("SELECT strata.recreate_lost_shards('a')").fetchone() == (2,)
        assert session.execute("SELECT strata.recreate_lost_shards('p')").fetchone() == (1,)
        assert lost.value("SELECT count(*) FROM strata_worker.shard_list()") == 5
        assert session.execute(FAULTS).fetchall() == []
