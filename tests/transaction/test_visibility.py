"""A distributed transaction is seen on all of its nodes or on none, by every kind of reader.

The tests with writers and readers in threads look for a torn state for a while; the others bring
one about step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

import psycopg
import pytest

from tests.cluster import Cluster, Node
from tests.failover import set_replica
from tests.fault_points import arm, disarm, release, wait_for_arrival
from tests.pair import Pair, open_pair
from tests.transaction.bank import (
    ACCOUNTS,
    BALANCE,
    TOTAL,
    Bank,
    run_together,
    sessions_of,
    stopped,
    strata_sessions,
    transfer,
    wait_for_pin,
)
from tests.waiting import wait_until


def expect(query: str, *values: object) -> Callable[[psycopg.Connection], None]:
    def run(connection: psycopg.Connection) -> None:
        assert connection.execute(query).fetchone() == values

    return run


def copy_out(connection: psycopg.Connection, command: str) -> list[tuple]:
    with connection.cursor().copy(command) as copy:
        return list(copy.rows())


def read_by_copy(connection: psycopg.Connection) -> None:
    rows = copy_out(connection, "COPY account (v) TO STDOUT")
    assert sum(int(v) for (v,) in rows) == TOTAL


def read_repeatably(bank: Bank) -> Callable[[psycopg.Connection], None]:
    """All accounts one by one, then all at once, in one transaction."""
    keys = [key for keys in bank.keys for key in keys[:8]]

    def run(connection: psycopg.Connection) -> None:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        single = {
            key: connection.execute(f"SELECT v FROM account WHERE id = {key}").fetchone()[0]
            for key in keys
        }
        total = connection.execute("SELECT sum(v) FROM account").fetchone()[0]
        together = dict(
            connection.execute("SELECT id, v FROM account WHERE id = ANY(%s)", (keys,)).fetchall()
        )
        connection.execute("COMMIT")
        assert total == TOTAL
        assert sum(single.values()) == len(keys) * BALANCE
        assert single == together

    return run


TRANSFERRED = "(SELECT sum(moved) FROM account)"

# what is read, and what a transfer writes besides
STATEMENTS = {
    "one gather": ("", expect("SELECT sum(v) FROM account", TOTAL)),
    "copy": ("", read_by_copy),
    "two gathers": (
        "",
        expect(
            "SELECT (SELECT sum(v) FROM account WHERE id % 2 = 0)"
            " + (SELECT sum(v) FROM account WHERE id % 2 = 1)",
            TOTAL,
        ),
    ),
    "common table expressions": (
        "",
        expect(
            "WITH a AS MATERIALIZED (SELECT id, v FROM account),"
            " b AS MATERIALIZED (SELECT id, v FROM account)"
            " SELECT (SELECT sum(v) FROM a), (SELECT sum(v) FROM b),"
            " (SELECT count(*) FROM a JOIN b USING (id, v))",
            TOTAL,
            TOTAL,
            ACCOUNTS,
        ),
    ),
    "rows of a local table": (
        "UPDATE ledger SET moved = moved + 2 WHERE writer = {writer};",
        expect(f"SELECT {TRANSFERRED} - (SELECT sum(moved) FROM ledger)", 0),
    ),
    "rows of a reference table": (
        "UPDATE counter SET moved = moved + 2 WHERE writer = {writer};",
        expect(f"SELECT {TRANSFERRED} - (SELECT sum(moved) FROM counter)", 0),
    ),
}


def watch_transfers(bank: Bank, name: str, seconds: float, writers: int, readers: int) -> None:
    if name == "repeatable read":
        extra, reader = "", read_repeatably(bank)
    else:
        extra, reader = STATEMENTS[name]
    jobs = [transfer(bank, n, extra) for n in range(writers)] + [reader] * readers
    run_together(bank, jobs, seconds)
    assert bank.value("SELECT sum(v) FROM account") == TOTAL


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", [*STATEMENTS, "repeatable read"])
def test_no_reader_sees_half_a_transfer(bank: Bank, name: str) -> None:
    watch_transfers(bank, name, seconds=2.5, writers=8, readers=8)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*STATEMENTS, "repeatable read"])
def test_no_reader_sees_half_a_transfer_for_minutes(bank: Bank, name: str) -> None:
    watch_transfers(bank, name, seconds=60, writers=8, readers=8)


def test_statements_that_write_see_whole_transfers(bank: Bank) -> None:
    with bank.session() as connection:
        connection.execute("CREATE TABLE seen (n bigserial, total bigint)")

    def copy_total(connection: psycopg.Connection) -> None:
        connection.execute("INSERT INTO seen (total) SELECT sum(v) FROM account")

    run_together(bank, [transfer(bank, n) for n in range(4)] + [copy_total] * 2, 2)
    assert bank.value("SELECT array_agg(DISTINCT total) FROM seen") == [TOTAL]


# ---- order ------------------------------------------------------------------------------------------


def test_what_was_seen_on_one_worker_is_seen_on_the_next(bank: Bank) -> None:
    """Two routed statements after each other, while transactions write on both workers."""
    first, second = bank.keys[0][0], bank.keys[1][0]

    def read(connection: psycopg.Connection) -> None:
        before, after = [
            connection.execute(f"SELECT moved FROM account WHERE id = {key}").fetchone()[0]
            for key in (first, second)
        ]
        assert before <= after

    run_together(bank, [transfer(bank, 0)] + [read] * 4, 2)


def test_nobody_sees_the_second_commit_without_the_first(bank: Bank) -> None:
    """First on one worker, then on the other, then here; each acknowledged before the next.

    The reader has its snapshot of the first worker only when the writer begins.
    """
    near, far = bank.cluster.workers
    first, second = bank.keys[0][0], bank.keys[1][0]
    query = (
        "SELECT id, a.moved, l.moved FROM account AS a, ledger AS l"
        f" WHERE id IN ({first}, {second}) AND writer = 0"
    )

    def write(connection: psycopg.Connection) -> None:
        connection.execute(f"UPDATE account SET moved = 1 WHERE id = {first}")
        connection.execute(f"UPDATE account SET moved = 1 WHERE id = {second}")
        connection.execute("UPDATE ledger SET moved = 1 WHERE writer = 0")

    with bank.session() as reader, bank.session() as writer, ThreadPoolExecutor(2) as pool:
        (held,) = sessions_of(reader, [far])
        writer.execute("SELECT count(*) FROM account")
        with stopped(far, held):
            reading = pool.submit(lambda: reader.execute(query).fetchall())
            wait_for_pin(near)
            writing = pool.submit(write, writer)
            wait([writing], timeout=1)
        moved = {key: (there, here) for key, there, here in reading.result(timeout=20)}
        writing.result(timeout=20)
    assert moved[first][1] <= moved[second][0] <= moved[first][0]


# ---- one state for all parts of a statement ----------------------------------------------------------


@contextmanager
def background(bank: Bank) -> Iterator[Callable[[str], Future]]:
    """Starts a statement in a session of its own, and gives the future of its rows."""
    with bank.session() as connection, ThreadPoolExecutor(1) as pool:
        yield lambda query: pool.submit(lambda: connection.execute(query).fetchall())


def wait_for_sleeper(bank: Bank) -> None:
    for _ in wait_until("the statement sleeps"):
        if bank.cluster.coordinator.query(
            "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        ):
            return


@pytest.mark.parametrize(
    "query",
    [
        "SELECT (SELECT sum(v) FROM account), nap(), (SELECT sum(v) FROM account)",
        "WITH a AS MATERIALIZED (SELECT sum(v) FROM account), b AS MATERIALIZED (SELECT nap()),"
        " c AS MATERIALIZED (SELECT sum(v) FROM account)"
        " SELECT a.*, b.*, c.* FROM a, b, c",
        "SELECT (SELECT sum(v) FROM account), nap(), total()",
        "SELECT n, nap(), (SELECT v FROM account WHERE id = n AND v >= 0)"
        " FROM (VALUES (1), (2)) AS t (n)",
        "SELECT (SELECT sum(moved) FROM ledger), nap(), (SELECT sum(v) FROM account)",
        "SELECT v, nap(), total() FROM account WHERE id = {first}",
        "SELECT balance({first}), nap(), balance({second})",
    ],
)
def test_parts_of_a_statement_see_one_state(bank: Bank, query: str) -> None:
    query = query.format(first=bank.keys[0][0], second=bank.keys[1][0])
    with bank.session() as connection, background(bank) as start:
        connection.execute(
            "CREATE FUNCTION nap() RETURNS integer LANGUAGE plpgsql VOLATILE"
            " AS 'BEGIN PERFORM pg_sleep(0.5); RETURN 1; END';"
            "CREATE FUNCTION total() RETURNS bigint LANGUAGE plpgsql STABLE"
            " AS 'BEGIN RETURN (SELECT sum(v) FROM account); END';"
            "CREATE FUNCTION balance(integer) RETURNS integer LANGUAGE plpgsql STABLE"
            " AS 'BEGIN RETURN (SELECT v FROM account WHERE id = $1); END'"
        )
        before = connection.execute(query).fetchall()
        running = start(query)
        wait_for_sleeper(bank)
        connection.execute("BEGIN; UPDATE account SET v = v + 1; UPDATE ledger SET moved = 1; END")
        assert running.result() == before
        assert connection.execute(query).fetchall() != before


def test_a_volatile_function_sees_what_was_committed_meanwhile(bank: Bank) -> None:
    with bank.session() as connection, background(bank) as start:
        connection.execute(
            "CREATE FUNCTION total() RETURNS bigint LANGUAGE plpgsql VOLATILE"
            " AS 'BEGIN PERFORM pg_sleep(0.5); RETURN (SELECT sum(v) FROM account); END'"
        )
        running = start("SELECT (SELECT sum(v) FROM account), total()")
        wait_for_sleeper(bank)
        connection.execute("UPDATE account SET v = v + 1")
        assert running.result() == [(TOTAL, TOTAL + ACCOUNTS)]


def test_a_cursor_sees_the_state_of_its_declaration(bank: Bank) -> None:
    with bank.session() as reader, bank.session() as writer:
        reader.execute("BEGIN")
        reader.execute("DECLARE c CURSOR FOR SELECT v FROM account")
        writer.execute("UPDATE account SET v = v + 1")
        assert reader.execute("SELECT sum(v) FROM account").fetchone() == (TOTAL + ACCOUNTS,)
        assert reader.execute("FETCH 3 FROM c").fetchall() == [(BALANCE,)] * 3
        reader.execute("SAVEPOINT s; UPDATE account SET v = 0")
        reader.execute("ROLLBACK TO s")
        assert reader.execute("SELECT sum(v) FROM account").fetchone() == (TOTAL + ACCOUNTS,)
        rows = reader.execute("FETCH ALL FROM c").fetchall()
        assert rows == [(BALANCE,)] * (ACCOUNTS - 3)
        reader.execute("COMMIT")


# ---- like one PostgreSQL -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_visibility") as made:
        made.execute(
            "CREATE TABLE item (id integer, n bigint); CREATE TABLE plain_item (n bigint);"
            "CREATE FUNCTION stable_count() RETURNS bigint LANGUAGE plpgsql STABLE"
            " AS 'BEGIN RETURN (SELECT count(*) FROM item); END';"
            "CREATE FUNCTION stable_sql_count() RETURNS bigint LANGUAGE sql STABLE"
            " AS 'SELECT count(*) FROM item';"
            "CREATE FUNCTION volatile_count() RETURNS bigint LANGUAGE plpgsql VOLATILE"
            " AS 'BEGIN RETURN (SELECT count(*) FROM item); END'"
        )
        made.distribute("item", "id")
        yield made


@pytest.mark.parametrize("function", ["stable_count", "stable_sql_count", "volatile_count"])
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_functions_see_what_they_see_on_one_server(
    pair: Pair, function: str, isolation: str
) -> None:
    pair.execute("TRUNCATE item; INSERT INTO item SELECT g, 0 FROM generate_series(1, 5) AS g")
    with pair.transaction(begin=f"BEGIN ISOLATION LEVEL {isolation}"):
        pair.same(f"INSERT INTO item SELECT g, {function}() FROM generate_series(6, 10) AS g")
        pair.same("SELECT id, n FROM item ORDER BY id")
        # rows of several workers come in any order
        pair.same(f"INSERT INTO item SELECT id + 100, {function}() FROM item")
        pair.same("SELECT n FROM item WHERE id > 100 ORDER BY n")
        pair.same(f"INSERT INTO plain_item SELECT {function}() FROM item WHERE id < 9")
        pair.same("SELECT n FROM plain_item ORDER BY n")
        pair.same(f"SELECT {function}(), (SELECT count(*) FROM item), {function}()")


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_a_statement_does_not_see_what_its_other_parts_wrote(pair: Pair, isolation: str) -> None:
    pair.execute("TRUNCATE item; INSERT INTO item SELECT g, 0 FROM generate_series(1, 50) AS g")
    with pair.transaction(begin=f"BEGIN ISOLATION LEVEL {isolation}"):
        pair.all_same(
            [
                "INSERT INTO item SELECT a.id + b.c, b.c FROM item AS a,"
                " (SELECT count(*)::integer AS c FROM item) AS b",
                "SELECT count(*), sum(n), sum(id) FROM item",
            ]
        )


# ---- repeatable read ---------------------------------------------------------------------------------


def test_repeatable_read_sees_all_nodes_as_of_its_first_statement(bank: Bank) -> None:
    sums = "SELECT (SELECT sum(v) FROM account), (SELECT sum(moved) FROM ledger)"
    with bank.session() as reader, bank.session() as writer:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1 FROM ledger")
        for key in (bank.keys[0][0], bank.keys[1][0]):
            writer.execute(f"UPDATE account SET v = v + 1 WHERE id = {key}")
        writer.execute("BEGIN; UPDATE account SET v = v + 1; UPDATE ledger SET moved = 1; COMMIT")
        assert reader.execute(sums).fetchone() == (TOTAL, 0)
        with pytest.raises(psycopg.errors.SerializationFailure):
            reader.execute("UPDATE account SET v = 0")
        reader.execute("ROLLBACK")
        assert reader.execute(sums).fetchone() == (TOTAL + ACCOUNTS + 2, 16)


def test_repeatable_read_begins_with_copy_to(bank: Bank) -> None:
    with bank.session() as reader, bank.session() as writer:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        before = copy_out(reader, "COPY ledger TO STDOUT")
        writer.execute("BEGIN; UPDATE ledger SET moved = 1; UPDATE account SET v = v + 1; END")
        assert reader.execute("SELECT sum(v) FROM account").fetchone() == (TOTAL,)
        assert reader.execute("SELECT sum(moved) FROM ledger").fetchone() == (0,)
        assert copy_out(reader, "COPY ledger TO STDOUT") == before
        reader.execute("COMMIT")
        assert copy_out(reader, "COPY ledger TO STDOUT") != before


def test_repeatable_read_does_not_go_on_with_the_snapshots_of_some_workers(bank: Bank) -> None:
    """A savepoint undoes the error, but not the snapshot that the first worker has taken."""
    with bank.session() as reader, bank.session() as writer, ThreadPoolExecutor(2) as pool:
        (held,) = sessions_of(reader, bank.cluster.workers[1:])
        with stopped(bank.cluster.workers[1], held):
            reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SAVEPOINT s")
            reading = pool.submit(lambda: reader.execute("SELECT sum(v) FROM account").fetchone())
            wait_for_pin(bank.cluster.workers[0])
            # the commit waits for the reader, and then goes on
            transfer(bank, 0)(writer)
        with pytest.raises(psycopg.errors.SerializationFailure, match="one snapshot of all"):
            reading.result(timeout=20)
        reader.execute("ROLLBACK TO s")
        with pytest.raises(psycopg.errors.SerializationFailure, match="no snapshot of all"):
            reader.execute("SELECT sum(v) FROM account")
        reader.execute("ROLLBACK")
        assert reader.execute("SELECT sum(v) FROM account").fetchone() == (TOTAL,)


def test_repeatable_read_leaves_out_a_worker_that_is_down(make_cluster) -> None:
    """It is an error to use that worker in this transaction, also when it has come back."""
    cluster = make_cluster()
    cluster.coordinator.execute("CREATE SCHEMA down")
    bank = Bank(cluster, "down")
    near, far = bank.keys[0][0], bank.keys[1][0]
    query = "SELECT v FROM account WHERE id = {}"
    for idle_wire in (False, True):
        with bank.session() as reader, bank.session() as writer:
            if idle_wire:
                reader.execute("SELECT count(*) FROM account")
            cluster.workers[1].stop("immediate")
            reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            before = reader.execute(query.format(near)).fetchone()
            cluster.workers[1].start()
            writer.execute(f"UPDATE account SET v = v + 1 WHERE id IN ({near}, {far})")
            assert reader.execute(query.format(near)).fetchone() == before
            with pytest.raises(psycopg.errors.SerializationFailure, match="no snapshot of worker"):
                reader.execute(query.format(far))
            reader.execute("ROLLBACK")
            assert reader.execute(query.format(near)).fetchone() == (before[0] + 1,)


def test_another_role_joins_a_repeatable_read_with_the_same_snapshot(bank: Bank) -> None:
    bank.cluster.create_role("visibility_owner")
    with bank.session() as reader, bank.session() as writer:
        writer.execute(
            f"GRANT USAGE ON SCHEMA {bank.schema} TO visibility_owner;"
            "GRANT SELECT ON account TO visibility_owner;"
            "CREATE VIEW owned AS SELECT * FROM account;"
            "ALTER VIEW owned OWNER TO visibility_owner"
        )
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        assert reader.execute("SELECT sum(v) FROM account").fetchone() == (TOTAL,)
        writer.execute("UPDATE account SET v = v + 1")
        assert reader.execute("SELECT sum(v) FROM owned").fetchone() == (TOTAL,)
        reader.execute("COMMIT")
        assert reader.execute("SELECT sum(v) FROM owned").fetchone() == (TOTAL + ACCOUNTS,)


# ---- slow workers ------------------------------------------------------------------------------------


@contextmanager
def no_replicas_at_the_end(bank: Bank) -> Iterator[None]:
    """Nothing waits for replicas after a failure, either."""
    try:
        yield
    finally:
        for node in bank.cluster.nodes:
            set_replica(node, "")


def wait_for_replica_wait(node: Node) -> None:
    for _ in wait_until("a commit waits for the replica"):
        if node.query("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"):
            return


def test_the_coordinators_stalled_replica_delays_no_reader(
    make_cluster: Callable[..., Cluster],
) -> None:
    bank = Bank(make_cluster(), "public")
    with (
        bank.session() as quick,
        background(bank) as write,
        no_replicas_at_the_end(bank),
    ):
        quick.execute("SET statement_timeout = '3s'")
        set_replica(bank.cluster.coordinator, "nobody")
        writing = write("UPDATE account SET v = v + 1 RETURNING v")
        wait_for_replica_wait(bank.cluster.coordinator)
        assert quick.execute("SELECT sum(v) FROM account").fetchone() == (TOTAL,)
        set_replica(bank.cluster.coordinator, "")
        writing.result(timeout=20)


def test_a_stalled_replica_delays_only_those_who_touch_its_worker(
    make_cluster: Callable[..., Cluster],
) -> None:
    bank = Bank(make_cluster(workers=3), "public")
    slow = bank.cluster.workers[0]
    one, two, three = [keys[0] for keys in bank.keys]
    read_others = f"SELECT sum(v) FROM account WHERE id IN ({two}, {three})"
    with (
        bank.session() as quick,
        bank.session() as holding,
        background(bank) as write,
        background(bank) as read,
        ThreadPoolExecutor(1) as pool,
        no_replicas_at_the_end(bank),
    ):
        quick.execute("SET statement_timeout = '4s'")
        quick.execute("SELECT count(*) FROM account")
        others = strata_sessions(slow)
        holding.execute("SELECT count(*) FROM account")
        (held,) = strata_sessions(slow) - others

        # a reader that does not get its snapshot keeps the commit from sending COMMIT PREPARED
        with stopped(slow, held):
            reading = pool.submit(lambda: holding.execute("SELECT sum(v) FROM account").fetchone())
            for _ in wait_until("the reader asks for its snapshots"):
                assert not reading.done(), reading.result()
                if bank.cluster.workers[1].query(
                    "SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction'"
                    " AND query LIKE '%pin_snapshot%'"
                ):
                    break
            writing = write(f"UPDATE account SET v = v + 1 WHERE id IN ({one}, {two}) RETURNING 1")
            for _ in wait_until("the transaction is prepared"):
                if slow.query("SELECT gid FROM pg_prepared_xacts"):
                    break
            set_replica(slow, "nobody")
        assert reading.result(timeout=20) == (TOTAL,)

        wait_for_replica_wait(slow)
        assert quick.execute(read_others).fetchone() == (2 * BALANCE + 1,)
        reading = read("SELECT sum(v) FROM account")
        for _ in range(3):
            quick.execute(f"UPDATE account SET v = v - 1 WHERE id IN ({two}, {three})")
            quick.execute(f"UPDATE account SET v = v + 1 WHERE id IN ({two}, {three})")
            assert quick.execute(read_others).fetchone() == (2 * BALANCE + 1,)
        assert not reading.done()

        set_replica(slow, "")
        assert writing.result(timeout=20) == [(1,), (1,)]
        assert reading.result(timeout=20) == [(TOTAL + 2,)]


def test_an_imported_snapshot_cannot_be_used_for_workers(cluster: Cluster, schema: str) -> None:
    coordinator = cluster.coordinator
    coordinator.execute("CREATE TABLE far (k int); CREATE TABLE near (k int)")
    coordinator.execute("SELECT create_distributed_table('far', 'k')")
    with coordinator.connect(autocommit=False) as exporter, coordinator.connect() as importer:
        exporter.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        (name,) = exporter.execute("SELECT pg_export_snapshot()").fetchone()
        coordinator.execute("INSERT INTO near VALUES (1)")
        importer.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        importer.execute(f"SET TRANSACTION SNAPSHOT '{name}'")
        assert importer.execute(f"SELECT count(*) FROM {schema}.near").fetchone() == (0,)
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="under an imported snapshot"):
            importer.execute(f"SELECT count(*) FROM {schema}.far")
        importer.execute("ROLLBACK")
        assert importer.execute(f"SELECT count(*) FROM {schema}.far").fetchone() == (0,)


# ---- SERIALIZABLE ------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_what_is_committed_and_in_doubt_is_waited_for(
    make_cluster: Callable[..., Cluster], level: str
) -> None:
    """The decision is durable, a worker has not heard of it: a read there must not miss it."""
    bank = Bank(make_cluster(workers=2, assertions=True), "public")
    coordinator = bank.cluster.coordinator
    one, two = bank.keys[0][0], bank.keys[1][0]

    def read() -> int:
        with bank.session() as reader:
            reader.execute(f"BEGIN ISOLATION LEVEL {level}")
            return reader.execute(f"SELECT moved FROM account WHERE id = {one}").fetchone()[0]

    arm(coordinator, ("committed", "kill"), ("resolver_decided", "wait"))
    try:
        with bank.session() as writer, pytest.raises(psycopg.OperationalError):
            writer.execute(f"UPDATE account SET moved = 1 WHERE id IN ({one}, {two})")
        wait_for_arrival(coordinator)
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(read)
            wait([reading], timeout=0.5)
            waited = not reading.done()
            release(coordinator)
            assert (waited, reading.result(timeout=20)) == (True, 1)
    finally:
        disarm(coordinator)
    coordinator.forgive_crash()
