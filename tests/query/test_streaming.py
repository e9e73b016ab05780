"""Rows stream: the first comes before the last is computed, and memory does not grow with the result."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair
from tests.waiting import patience, wait_until

ROWS = 2_000_000
WORK_MEM_MB = 4


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    """The rows are on the coordinator's cluster only: nothing here is compared."""
    with open_pair(cluster, "test_streaming") as made:
        made.ours.execute("CREATE TABLE wide (id bigint, filler text)")
        made.distribute("wide", "id")
        made.ours.execute(
            f"INSERT INTO wide SELECT g, 'some text of the row number ' || g"
            f" FROM generate_series(1, {ROWS}) AS g"
        )
        yield made


def resident_megabytes(pid: int) -> float:
    """Private memory of a process; pages shared with others (shared_buffers) do not count."""
    status = Path(f"/proc/{pid}/status").read_text()
    (kilobytes,) = re.findall(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
    return int(kilobytes) / 1024


class MemoryWatch:
    """The peak of a process's private memory while the block runs, minus what it was before."""

    def __init__(self, pid: int):
        self.pid = pid
        self.stop = threading.Event()
        self.growth = 0.0

    def __enter__(self) -> MemoryWatch:
        self.start = resident_megabytes(self.pid)
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self) -> None:
        while not self.stop.wait(0.01):
            self.growth = max(self.growth, resident_megabytes(self.pid) - self.start)

    def __exit__(self, *_) -> None:
        self.stop.set()
        self.thread.join()


@pytest.fixture
def session(pair: Pair) -> Iterator:
    with pair.cluster.coordinator.connect() as connection:
        connection.execute(
            f"SET search_path = test_streaming; SET work_mem = '{WORK_MEM_MB}MB'; SELECT count(*) FROM wide"
        )
        yield connection


def copied_bytes(connection, query: str) -> int:
    size = 0
    with connection.cursor().copy(f"COPY ({query}) TO STDOUT (FORMAT binary)") as copy:
        for chunk in copy:
            size += len(chunk)
    return size


def test_the_coordinators_memory_is_bounded_while_two_million_rows_pass(session) -> None:
    with MemoryWatch(session.info.backend_pid) as memory:
        size = copied_bytes(session, "SELECT * FROM wide")
    assert size > ROWS * 40
    assert memory.growth < 12, f"{memory.growth:.1f} MB for {size / 1e6:.0f} MB of rows"


def test_memory_is_bounded_when_rows_are_joined_here(session) -> None:
    """The join cannot be pushed down; the hash table spills as work_mem says."""
    query = "SELECT count(*) FROM wide a JOIN wide b ON a.id = b.id + 1 AND a.filler <> b.filler"
    with MemoryWatch(session.info.backend_pid) as memory:
        assert session.execute(query).fetchall() == [(ROWS - 1,)]
    assert memory.growth < 40, f"{memory.growth:.1f} MB"


def test_memory_is_bounded_when_a_stream_has_to_make_room(session) -> None:
    """A second statement needs the wires of a running one, whose rows are spooled meanwhile."""
    with MemoryWatch(session.info.backend_pid) as memory, session.transaction():
        session.execute("DECLARE c CURSOR FOR SELECT * FROM wide")
        assert len(session.execute("FETCH 10 FROM c").fetchall()) == 10
        session.execute(
            "CREATE TEMP TABLE note (id integer); UPDATE wide SET filler = 'x' WHERE id = 1"
        )
        assert session.execute("SELECT count(*) FROM wide WHERE id < 1000").fetchall() == [(999,)]
        session.execute("MOVE 1000000 IN c")
        assert len(session.execute("FETCH 10 FROM c").fetchall()) == 10
    assert memory.growth < 25, f"{memory.growth:.1f} MB"


def test_loading_needs_bounded_memory_too(session) -> None:
    session.execute("CREATE TABLE loaded (id bigint, filler text)")
    session.execute("SELECT strata.create_distributed_table('loaded', 'id')")
    line = "x" * 200
    with MemoryWatch(session.info.backend_pid) as memory:
        with session.cursor().copy("COPY loaded FROM STDIN") as copy:
            for start in range(0, 300_000, 1000):
                copy.write("".join(f"{n}\t{line}\n" for n in range(start, start + 1000)))
    assert session.execute("SELECT count(*) FROM loaded").fetchall() == [(300_000,)]
    assert memory.growth < 16, f"{memory.growth:.1f} MB"
    with MemoryWatch(session.info.backend_pid) as memory:
        session.execute("INSERT INTO loaded SELECT id + 1000000, filler FROM loaded")
    assert session.execute("SELECT count(*) FROM loaded").fetchall() == [(600_000,)]
    assert memory.growth < 40, f"{memory.growth:.1f} MB"
    session.execute("DROP TABLE loaded")


def test_the_first_row_of_a_cursor_comes_early(session) -> None:
    start = time.monotonic()
    copied_bytes(session, "SELECT * FROM wide")
    whole = time.monotonic() - start
    with session.transaction():
        session.execute("DECLARE c NO SCROLL CURSOR FOR SELECT * FROM wide")
        start = time.monotonic()
        assert len(session.execute("FETCH 1 FROM c").fetchall()) == 1
        first = time.monotonic() - start
        session.execute("CLOSE c")
    assert first < whole / 4, f"the first row took {first:.3f} s, all rows {whole:.3f} s"


def test_a_limit_does_not_wait_for_all_rows(session) -> None:
    query = "SELECT * FROM wide a, generate_series(1, 1000) AS g LIMIT 5"
    start = time.monotonic()
    assert len(session.execute(query).fetchall()) == 5
    assert time.monotonic() - start < patience(3)


def test_a_client_that_goes_away_ends_the_streams(session, pair: Pair) -> None:
    other = pair.cluster.coordinator.connect()
    with other.cursor().copy("COPY test_streaming.wide TO STDOUT") as copy:
        next(iter(copy))
        other.pgconn.finish()
    busy = (
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query ~ 'test_streaming'"
        " AND pid <> pg_backend_pid()"
    )
    for worker in pair.cluster.workers:
        for _ in wait_until(f"{worker.name} ended the stream", 10):
            if worker.value(busy) == 0:
                break


def test_workers_run_at_the_same_time(pair: Pair) -> None:
    """Each worker sleeps a second per statement: together they take one, not two."""
    pair.ours.execute(
        "CREATE TABLE sleepers (id integer PRIMARY KEY, v integer);"
        # declared immutable to be run where the rows are, which pg_sleep() itself is not
        "CREATE FUNCTION nap (seconds integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS"
        " $$ BEGIN PERFORM pg_sleep(seconds); RETURN seconds; END $$"
    )
    pair.distribute("sleepers", "id")
    pair.ours.execute("INSERT INTO sleepers SELECT generate_series(1, 100)")
    keys = pair.on_workers("SELECT min(id) FROM sleepers")
    start = time.monotonic()
    first, second = keys
    query = f"SELECT sum(nap(CASE WHEN id IN ({first}, {second}) THEN 1 ELSE 0 END)) FROM sleepers"
    assert pair.rows(query) == [(2,)]
    elapsed = time.monotonic() - start
    assert 0.9 < elapsed < patience(1.8), f"{elapsed:.2f} s"
