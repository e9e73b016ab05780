"""A standby of the coordinator reads workers that have gone on: rows that it would miss are an error."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import errors

from tests.cluster import Cluster, Node
from tests.failover import (
    allow_passwords,
    copy_coordinator,
    pause_replay,
    resume_replay,
    wait_for_replay,
)
from tests.fault_points import arm, disarm, release, wait_for_arrival
from tests.fixtures import new_root
from tests.waiting import wait_until

ROWS = 200

SETUP = f"""
CREATE TABLE t (id integer PRIMARY KEY, v integer NOT NULL);
SELECT strata.create_distributed_table('t', 'id', shard_count => 4);
INSERT INTO t SELECT g, 1 FROM generate_series(1, {ROWS}) AS g;
CREATE TABLE other (id integer, v integer);
SELECT strata.create_distributed_table('other', 'id', shard_count => 2, colocate_with => 'none');
INSERT INTO other SELECT g, g FROM generate_series(1, 10) AS g;
CREATE FUNCTION rows_of_t() RETURNS bigint LANGUAGE plpgsql STABLE AS 'BEGIN RETURN count(*) FROM t; END';
GRANT SELECT ON t TO reader;
"""


class Readable:
    def __init__(self, cluster: Cluster, standby: Node):
        self.cluster = cluster
        self.standby = standby

    def catch_up(self) -> None:
        wait_for_replay(self.cluster.coordinator, self.standby)

    def move(self, shard: int) -> None:
        names = [worker.name for worker in self.cluster.workers]
        ((source,),) = self.cluster.coordinator.query(
            "SELECT worker FROM strata.shards WHERE relation = 't'::regclass AND shard = %s",
            (shard,),
        )
        target = names[1 - names.index(source)]
        self.cluster.coordinator.execute("SELECT strata.move_shard('t', %s, %s)", (shard, target))

    @contextmanager
    def behind(self) -> Iterator[None]:
        """Each shard has moved, and the standby does not know."""
        self.catch_up()
        pause_replay(self.standby)
        try:
            for shard in range(4):
                self.move(shard)
            yield
        finally:
            resume_replay(self.standby)
            self.catch_up()


@pytest.fixture(scope="module")
def readable() -> Iterator[Readable]:
    with Cluster(new_root(), workers=2, assertions=True) as cluster:
        cluster.create_role("reader")
        cluster.coordinator.execute(SETUP)
        standby = copy_coordinator(cluster, "standby", "-R")
        standby.start()
        allow_passwords(cluster.passfile, cluster.coordinator.port, standby.port)
        yield Readable(cluster, standby)
        standby.stop()


READS = [
    "SELECT count(*) FROM t",
    "SELECT sum(v) FROM t WHERE id = 7",
    "SELECT count(*) FROM t WHERE id IN (1, 2, 3, 4, 5)",
    "SELECT count(*) FROM t a JOIN t b USING (id)",
    "SELECT count(*) FROM t a JOIN t b ON a.id = b.v",
    "SELECT rows_of_t()",
    "SELECT count(*) FROM (SELECT id FROM t LIMIT 3) AS s",
    "EXPLAIN (ANALYZE) SELECT * FROM t WHERE id = 7",
]


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("query", READS)
def test_rows_that_have_moved_are_not_missed(readable: Readable, query: str, level: str) -> None:
    with readable.standby.connect() as session, readable.standby.connect() as block:
        expected = session.execute(query).fetchall()
        block.execute(f"BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM other")
        with readable.behind():
            with pytest.raises(errors.SerializationFailure, match="has not replayed the schema"):
                session.execute(query)
            with pytest.raises(errors.SerializationFailure, match="has not replayed the schema"):
                block.execute(query)
        block.execute("ROLLBACK")
        if not query.startswith("EXPLAIN"):
            assert session.execute(query).fetchall() == expected


def test_copies_and_cursors_and_blocks(readable: Readable) -> None:
    with readable.standby.connect(user="reader") as session, readable.behind():
        for copy in "t", "(SELECT * FROM t WHERE id = 7)":
            with (
                pytest.raises(errors.SerializationFailure),
                session.cursor().copy(f"COPY {copy} TO STDOUT") as rows,
            ):
                list(rows)
        session.execute("BEGIN")
        with pytest.raises(errors.SerializationFailure):
            session.execute("DECLARE c CURSOR FOR SELECT * FROM t WHERE id = 7; FETCH 1 FROM c")
        session.execute("ROLLBACK")
        with pytest.raises(errors.SerializationFailure):
            session.execute("DO 'BEGIN PERFORM v FROM t WHERE id = 7; END'")
        session.execute("PREPARE p AS SELECT v FROM t WHERE id = $1")
        with pytest.raises(errors.SerializationFailure):
            session.execute("EXECUTE p(7)")
        with pytest.raises(errors.SerializationFailure):
            session.execute("DO 'BEGIN PERFORM v FROM t WHERE id = 7; COMMIT; END'")


def test_a_move_that_the_workers_have_not_committed_yet(readable: Readable) -> None:
    """The standby knows of it before they do."""
    coordinator, standby = readable.cluster.coordinator, readable.standby
    readable.catch_up()
    ((before,),) = standby.query("SELECT ddl_version FROM strata.cluster")
    arm(coordinator, ("committed", "wait"))
    try:
        with ThreadPoolExecutor() as pool:
            move = pool.submit(readable.move, 0)
            wait_for_arrival(coordinator)
            for _ in wait_until("the standby has replayed the decision"):
                if standby.query("SELECT ddl_version FROM strata.cluster") != [(before,)]:
                    break
            with pytest.raises(errors.SerializationFailure, match="does not have the schema yet"):
                standby.query("SELECT count(*) FROM t")
            with standby.connect() as session:
                session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                with pytest.raises(errors.SerializationFailure, match="not have the schema yet"):
                    session.execute("SELECT count(*) FROM t")
            release(coordinator)
            move.result()
    finally:
        disarm(coordinator)
    assert standby.query("SELECT count(*) FROM t") == [(ROWS,)]


def test_a_cursor_goes_on_after_a_move(readable: Readable) -> None:
    """Its rows were fetched before."""
    with readable.standby.connect() as session:
        session.execute("BEGIN; DECLARE c CURSOR FOR SELECT id FROM t")
        found = session.execute("FETCH 3 FROM c").fetchall()
        session.execute("DECLARE d CURSOR FOR SELECT id FROM other")
        found += session.execute("FETCH 20 FROM c").fetchall()
        assert len(session.execute("FETCH 4 FROM d").fetchall()) == 4
        found += session.execute("FETCH ALL FROM c").fetchall()
        assert sorted(found) == [(n,) for n in range(1, ROWS + 1)]
        assert len(session.execute("FETCH ALL FROM d").fetchall()) == 6
        session.execute("COMMIT")


def test_a_column_of_the_same_name_is_not_read(readable: Readable) -> None:
    readable.catch_up()
    coordinator, standby = readable.cluster.coordinator, readable.standby
    pause_replay(standby)
    try:
        coordinator.execute("ALTER TABLE other RENAME v TO w")
        coordinator.execute("ALTER TABLE other ADD COLUMN v integer DEFAULT 3")
        with pytest.raises(errors.SerializationFailure):
            standby.query("SELECT v FROM other")
    finally:
        resume_replay(standby)
    readable.catch_up()
    assert standby.query("SELECT DISTINCT v FROM other") == [(3,)]


def test_what_a_replaced_coordinator_has_left(readable: Readable) -> None:
    """Its versions may be larger; the next one of this cluster takes their place."""
    for worker in readable.cluster.workers:
        worker.execute("INSERT INTO strata_worker.schema_version VALUES ((1::bigint << 52) + 5)")
    with pytest.raises(errors.SerializationFailure, match="has not replayed the schema"):
        readable.standby.query("SELECT count(*) FROM t")
    readable.move(0)
    readable.catch_up()
    assert readable.standby.query("SELECT count(*) FROM t") == [(ROWS,)]


def test_moves_beside_reads(readable: Readable) -> None:
    """Every answer is whole, and most are given."""
    readable.catch_up()
    stop = threading.Event()
    wrong: list[object] = []
    answers = 0

    def read(begin: str) -> None:
        nonlocal answers
        with readable.standby.connect() as session:
            while not stop.is_set():
                try:
                    session.execute(begin)
                    found = session.execute("SELECT count(*), sum(v) FROM t").fetchall()
                    for n in range(1, 6):
                        found += session.execute("SELECT id, v FROM t WHERE id = %s", (n,))
                    session.execute("COMMIT")
                except psycopg.errors.SerializationFailure:
                    session.execute("ROLLBACK")
                    continue
                if found != [(ROWS, ROWS), *[(n, 1) for n in range(1, 6)]]:
                    wrong.append((begin, found))
                answers += 1

    readers = [
        threading.Thread(target=read, args=(begin,))
        for begin in ("SELECT 1", "BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ")
    ]
    for reader in readers:
        reader.start()
    try:
        for n in range(24):
            readable.move(n % 4)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert wrong == []
    assert answers > 20
