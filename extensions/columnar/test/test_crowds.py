"""Many sessions at once on one columnar table: sums come out exactly, nothing is lost or doubled.

Every worker is a thread with its own session; an error other than the ones a test expects fails it.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from extensions.columnar.test.servers import verify
from tests.cluster import Node

CONFLICTS = ("40001", "40P01")  # serialization failure, deadlock: to be tried again


@pytest.fixture
def schema(node: Node, schema_name: str) -> Iterator[str]:
    node.execute(f"DROP SCHEMA IF EXISTS {schema_name} CASCADE; CREATE SCHEMA {schema_name}")
    yield schema_name
    verify(node, f"{schema_name}.t")
    node.execute(f"DROP SCHEMA {schema_name} CASCADE")


def connect(node: Node, schema: str) -> psycopg.Connection:
    connection = node.connect()
    connection.execute(
        f"SET search_path = {schema}; SET default_table_access_method = columnar; SET statement_timeout = '60s'"
    )
    return connection


def together(node: Node, schema: str, *jobs: Callable[[psycopg.Connection], object]) -> list:
    """Run every job in a session of its own, begun at the same moment."""
    barrier = threading.Barrier(len(jobs))

    def work(job: Callable[[psycopg.Connection], object]) -> object:
        with connect(node, schema) as connection:
            barrier.wait()
            return job(connection)

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result() for future in [pool.submit(work, job) for job in jobs]]


def retry(connection: psycopg.Connection, *statements: str) -> None:
    """A transaction, again and again until no conflict ends it."""
    while True:
        try:
            for statement in statements:
                connection.execute(statement)
            return
        except psycopg.Error as error:
            connection.execute("ROLLBACK")
            if error.sqlstate not in CONFLICTS:
                raise


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_updates_of_one_row_add_up(node: Node, schema: str, level: str) -> None:
    with connect(node, schema) as connection:
        connection.execute(
            "CREATE TABLE t (id integer PRIMARY KEY, v bigint); INSERT INTO t SELECT g, 0 FROM generate_series(1, 1200) AS g"
        )

        def add(session: psycopg.Connection) -> None:
            for _ in range(40):
                retry(
                    session,
                    f"BEGIN ISOLATION LEVEL {level}",
                    "UPDATE t SET v = v + 1 WHERE id = 700",
                    "COMMIT",
                )

        together(node, schema, *[add] * 8)
        assert connection.execute("SELECT v FROM t WHERE id = 700").fetchone() == (320,)
        assert connection.execute("SELECT count(*), sum(v) FROM t").fetchone() == (1200, 320)


def test_transfers_between_rows_keep_the_sum(node: Node, schema: str) -> None:
    """Four who transfer, one who reads, one who compacts and vacuums; the sum is seen unchanged always."""
    with connect(node, schema) as connection:
        connection.execute(
            "CREATE TABLE t (id integer PRIMARY KEY, v bigint); INSERT INTO t SELECT g, 100 FROM generate_series(1, 1500) AS g"
        )
        end = time.monotonic() + 4

        def transfer(seed: int) -> Callable[[psycopg.Connection], int]:
            def job(session: psycopg.Connection) -> int:
                rng = random.Random(seed)
                count = 0
                while time.monotonic() < end:
                    one, other = rng.sample(range(1, 40), 2)
                    retry(
                        session,
                        "BEGIN",
                        f"UPDATE t SET v = v - 1 WHERE id = {one}",
                        f"UPDATE t SET v = v + 1 WHERE id = {other}",
                        "COMMIT" if count % 5 else "ROLLBACK",
                    )
                    count += 1
                return count

            return job

        def read(session: psycopg.Connection) -> int:
            count = 0
            while time.monotonic() < end:
                session.execute("SET enable_seqscan = " + ("off" if count % 2 else "on"))
                row = session.execute("SELECT count(*), sum(v) FROM t WHERE id > 0").fetchone()
                assert row == (1500, 150000)
                count += 1
            return count

        def tidy(session: psycopg.Connection) -> int:
            count = 0
            while time.monotonic() < end:
                retry(session, "SELECT strata_columnar.columnar_compact('t')")
                session.execute("VACUUM t")
                count += 1
            return count

        counts = together(node, schema, *[transfer(n) for n in range(4)], read, tidy)
        assert min(counts) > 0
        assert connection.execute(
            "SELECT count(*), sum(v), count(DISTINCT id) FROM t"
        ).fetchone() == (1500, 150000, 1500)


def test_inserts_deletes_compaction_and_readers(node: Node, schema: str) -> None:
    """Each worker keeps 0 as the sum of its rows, whatever it commits."""
    with connect(node, schema) as connection:
        connection.execute(
            "CREATE TABLE t (worker integer, id integer, v integer, s text, PRIMARY KEY (worker, id)); CREATE INDEX ON t (v)"
        )
        end = time.monotonic() + 5

        def write(worker: int) -> Callable[[psycopg.Connection], int]:
            def job(session: psycopg.Connection) -> int:
                rng = random.Random(worker)
                number = 0
                while time.monotonic() < end:
                    size = rng.choice((1, 3, 50, 1500))
                    first = number * 3000
                    session.execute(
                        f"INSERT INTO t SELECT {worker}, {first} + g, CASE WHEN g % 2 = 0 THEN g ELSE 1 - g END, repeat('x', g % 50)"
                        f" FROM generate_series(0, {size} * 2 - 1) AS g"
                    )
                    if number > 3:
                        old = (number - rng.randrange(1, 4)) * 3000
                        retry(
                            session,
                            f"DELETE FROM t WHERE worker = {worker} AND id >= {old} AND id < {old + 3000}",
                        )
                    retry(
                        session,
                        f"UPDATE t SET v = -v WHERE worker = {worker} AND id >= {first} AND id < {first + 3000}",
                    )
                    number += 1
                return number

            return job

        def read(session: psycopg.Connection) -> int:
            count = 0
            while time.monotonic() < end:
                sums = session.execute("SELECT worker, sum(v) FROM t GROUP BY worker").fetchall()
                assert all(total == 0 for _, total in sums), sums
                session.execute("SET enable_seqscan = off")
                (wrong,) = session.execute(
                    "SELECT count(*) FROM t WHERE v = 7 AND id % 2 NOT IN (0, 1)"
                ).fetchone()
                assert wrong == 0
                session.execute("RESET enable_seqscan")
                count += 1
            return count

        def compact(session: psycopg.Connection) -> int:
            count = 0
            while time.monotonic() < end:
                retry(session, "SELECT strata_columnar.columnar_compact('t')")
                time.sleep(0.05)
                count += 1
            return count

        def vacuum(session: psycopg.Connection) -> int:
            count = 0
            while time.monotonic() < end:
                session.execute("VACUUM t")
                time.sleep(0.05)
                count += 1
            return count

        counts = together(node, schema, write(1), write(2), write(3), read, compact, vacuum)
        assert min(counts) > 0
        assert connection.execute("SELECT DISTINCT sum(v) FROM t GROUP BY worker").fetchall() == [
            (0,)
        ]
        (by_scan,) = connection.execute(
            "SELECT md5(string_agg(t::text, '|' ORDER BY worker, id)) FROM t"
        ).fetchone()
        connection.execute(
            "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off"
        )
        (by_index,) = connection.execute(
            "SELECT md5(string_agg(s.t::text, '|')) FROM (SELECT t FROM t ORDER BY worker, id) AS s"
        ).fetchone()
        assert by_scan == by_index


def test_every_key_is_inserted_once(node: Node, schema: str) -> None:
    with connect(node, schema) as connection:
        connection.execute("CREATE TABLE t (id integer PRIMARY KEY, n integer, who integer)")

        def insert(who: int) -> Callable[[psycopg.Connection], int]:
            def job(session: psycopg.Connection) -> int:
                won = 0
                for number in range(150):
                    try:
                        session.execute(f"INSERT INTO t VALUES ({number}, 0, {who})")
                        won += 1
                    except psycopg.errors.UniqueViolation:
                        pass
                    session.execute(
                        f"INSERT INTO t VALUES ({1000 + number % 20}, 1, {who}) ON CONFLICT (id) DO UPDATE SET n = t.n + 1"
                    )
                return won

            return job

        won = together(node, schema, *[insert(n) for n in range(6)])
        assert sum(won) == 150
        assert connection.execute(
            "SELECT count(*), count(DISTINCT id) FROM t WHERE id < 1000"
        ).fetchone() == (150, 150)
        assert connection.execute("SELECT count(*), sum(n) FROM t WHERE id >= 1000").fetchone() == (
            20,
            900,
        )


def test_a_queue_gives_each_row_to_one_worker(node: Node, schema: str) -> None:
    with connect(node, schema) as connection:
        connection.execute(
            "CREATE TABLE t (id integer PRIMARY KEY, v integer); INSERT INTO t SELECT g, g FROM generate_series(1, 400) AS g"
        )

        def take(session: psycopg.Connection) -> list[int]:
            taken: list[int] = []
            while True:
                rows = session.execute(
                    "DELETE FROM t WHERE id IN (SELECT id FROM t ORDER BY id LIMIT 3 FOR UPDATE SKIP LOCKED) RETURNING id"
                ).fetchall()
                if not rows and session.execute("SELECT count(*) FROM t").fetchone() == (0,):
                    return taken
                taken += [number for (number,) in rows]

        taken = together(node, schema, *[take] * 6)
        assert sorted(itertools.chain(*taken)) == list(range(1, 401))


def test_children_never_outlive_their_parents(node: Node, schema: str) -> None:
    """Foreign keys: those who insert children race with those who delete parents."""
    with connect(node, schema) as connection:
        connection.execute(
            "CREATE TABLE t (id integer PRIMARY KEY, v integer); CREATE TABLE c (id integer, t integer REFERENCES t)"
        )
        connection.execute("INSERT INTO t SELECT g, 0 FROM generate_series(1, 150) AS g")

        def add(seed: int) -> Callable[[psycopg.Connection], int]:
            def job(session: psycopg.Connection) -> int:
                rng = random.Random(seed)
                added = 0
                for number in range(120):
                    try:
                        session.execute(f"INSERT INTO c VALUES ({number}, {rng.randrange(1, 151)})")
                        added += 1
                    except psycopg.errors.ForeignKeyViolation:
                        pass
                return added

            return job

        def remove(seed: int) -> Callable[[psycopg.Connection], int]:
            def job(session: psycopg.Connection) -> int:
                rng = random.Random(seed)
                removed = 0
                for _ in range(120):
                    try:
                        removed += session.execute(
                            f"DELETE FROM t WHERE id = {rng.randrange(1, 151)}"
                        ).rowcount
                    except psycopg.errors.ForeignKeyViolation:
                        session.execute(
                            f"UPDATE t SET v = v + 1 WHERE id = {rng.randrange(1, 151)}"
                        )
                return removed

            return job

        *added, removed, removed_too = together(
            node, schema, add(1), add(2), add(3), remove(4), remove(5)
        )
        assert connection.execute("SELECT count(*) FROM c").fetchone() == (sum(added),)
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (
            150 - removed - removed_too,
        )
        assert connection.execute(
            "SELECT count(*) FROM c LEFT JOIN t ON t.id = c.t WHERE t.id IS NULL"
        ).fetchone() == (0,)


def test_definitions_amid_writers(node: Node, schema: str) -> None:
    """ALTER, TRUNCATE, CREATE INDEX (CONCURRENTLY) and REINDEX come between; each worker's count holds."""
    with connect(node, schema) as connection:
        connection.execute("CREATE TABLE t (id integer, who integer, v integer DEFAULT 1)")
        end = time.monotonic() + 4

        def write(who: int) -> Callable[[psycopg.Connection], int]:
            def job(session: psycopg.Connection) -> int:
                number = 0
                while time.monotonic() < end:
                    retry(
                        session,
                        "BEGIN",
                        f"INSERT INTO t (id, who) VALUES ({number}, {who})",
                        f"UPDATE t SET v = v + 1 WHERE id = {number} AND who = {who}",
                        "COMMIT",
                    )
                    number += 1
                return number

            return job

        def define(session: psycopg.Connection) -> int:
            number = 0
            while time.monotonic() < end:
                for statement in (
                    "CREATE INDEX CONCURRENTLY i ON t (who, id)", f"ALTER TABLE t ADD COLUMN x{number} integer DEFAULT {number}",
                    "REINDEX INDEX CONCURRENTLY i",
                    "REINDEX TABLE CONCURRENTLY t", "CREATE INDEX j ON t USING hash (v)", "ANALYZE t", "DROP INDEX i, j",
                    f"ALTER TABLE t DROP COLUMN x{number}",
                ):  # fmt: skip
                    retry(session, statement)
                number += 1
            return number

        counts = together(node, schema, write(1), write(2), write(3), define)
        assert connection.execute(
            "SELECT who, count(*), count(DISTINCT id), sum(v) FROM t GROUP BY who ORDER BY who"
        ).fetchall() == [(who, count, count, 2 * count) for who, count in enumerate(counts[:3], 1)]


def test_vacuum_beside_writers_keeps_their_index_entries(node: Node, schema: str) -> None:
    """Row numbers that a writer gives back while VACUUM works are somebody else's a moment later."""
    with connect(node, schema) as connection:
        connection.execute("CREATE TABLE t (id integer PRIMARY KEY, v integer, s text)")
        connection.execute("CREATE INDEX ON t (v)")
        numbers = itertools.count()
        end = time.monotonic() + 5

        def write(session: psycopg.Connection) -> None:
            rng = random.Random(next(numbers))
            while time.monotonic() < end:
                count = rng.choice((1, 5, 60, 1500))
                first = next(numbers) * 2000
                retry(
                    session,
                    f"INSERT INTO t SELECT g, g % 1000, repeat('x', g % 30) FROM generate_series({first}, {first + count - 1}) AS g",
                    f"UPDATE t SET v = v + 1 WHERE id BETWEEN {first} AND {first + 20}",
                )

        def vacuum(session: psycopg.Connection) -> None:
            while time.monotonic() < end:
                session.execute("TRUNCATE t" if next(numbers) % 20 == 0 else "VACUUM t")

        together(node, schema, write, write, write, vacuum)


@pytest.mark.parametrize("function", ["pg_cancel_backend", "pg_terminate_backend"])
def test_interrupted_statements_leave_nothing(node: Node, schema: str, function: str) -> None:
    """Loads, updates, deletes and compactions are interrupted anywhere; each is there wholly or not at all."""
    statements = (
        "INSERT INTO t SELECT g, 0, repeat('x', g % 60) FROM generate_series((SELECT max(id) FROM t) + 1, (SELECT max(id) FROM t) + 4000) AS g",
        "UPDATE t SET v = v + 1",
        "DELETE FROM t WHERE id % 2 = (SELECT min(v) % 2 FROM t) AND id > 4000",
        "SELECT strata_columnar.columnar_compact('t', everything => true)",
        "VACUUM t",
    )
    with connect(node, schema) as connection:
        connection.execute(
            "CREATE TABLE t (id integer PRIMARY KEY, v integer, s text); SET strata_columnar.row_group_rows = 1024"
        )
        connection.execute("INSERT INTO t SELECT g, 0, 'x' FROM generate_series(1, 4000) AS g")
        rng = random.Random(function)
        interrupted = 0
        end = time.monotonic() + 4
        state = "SELECT count(*), count(DISTINCT v), max(id), sum(v) FROM t"
        while time.monotonic() < end:
            with connect(node, schema) as session, ThreadPoolExecutor(1) as pool:
                session.execute("SET strata_columnar.row_group_rows = 1024")
                before = connection.execute(state).fetchone()
                statement = rng.choice(statements)
                future = pool.submit(session.execute, statement)
                time.sleep(rng.uniform(0, 0.05))
                connection.execute(f"SELECT {function}({session.info.backend_pid})")
                error = future.exception()
            if error:
                assert error.sqlstate in ("57014", "57P01"), error
                interrupted += 1
                assert connection.execute(state).fetchone() == before, statement
            after = connection.execute(state).fetchone()
            connection.execute("SET enable_seqscan = off")
            assert (
                connection.execute("SELECT count(*) FROM t WHERE id > 0").fetchone()[0] == after[0]
            )
            connection.execute("RESET enable_seqscan")
        assert interrupted > 5
