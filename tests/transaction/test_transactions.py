"""A transaction over several workers is one transaction: its own writes, savepoints, commit, abort."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.cluster import Cluster, Node
from tests.fixtures import new_root
from tests.pair import Pair, open_pair
from tests.waiting import check_nothing_prepared, patience, wait_until

# keys of `account` on different workers are found at run time: see two_keys()
SETUP = """
CREATE TABLE account (id integer PRIMARY KEY, v integer NOT NULL CHECK (v >= 0), t text);
CREATE TABLE journal (id integer, n bigint, note text, PRIMARY KEY (id, n));
CREATE TABLE rate (code text PRIMARY KEY, v numeric);
CREATE TABLE audit (n bigserial PRIMARY KEY, what text);
"""


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_transactions") as made:
        made.execute(SETUP)
        made.distribute("account", "id")
        made.distribute("journal", "id", colocate_with="account")
        made.reference("rate")
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    data.execute(
        "TRUNCATE account, journal; TRUNCATE rate; TRUNCATE audit RESTART IDENTITY;"
        "INSERT INTO account SELECT g, 100, 'a' || g FROM generate_series(1, 100) AS g;"
        "INSERT INTO journal SELECT g % 100 + 1, g, 'j' FROM generate_series(1, 1000) AS g;"
        "INSERT INTO rate VALUES ('EUR', 1), ('USD', 1.1)"
    )
    yield data
    data.reset()
    check_nothing_prepared(data.cluster)


def prepared(cluster: Cluster) -> list[tuple]:
    """Prepared transactions on any worker."""
    return [
        row for node in cluster.workers for row in node.query("SELECT gid FROM pg_prepared_xacts")
    ]


def two_keys(pair: Pair) -> tuple[int, int]:
    """Two keys of account whose rows are on different workers."""
    query = f"SELECT min(id) FROM {pair.schema}.account"
    first, second = [node.value(query) for node in pair.cluster.workers[:2]]
    assert first != second
    return first, second


def backend_sessions(node: Node, backend_type: str = "client backend") -> list[tuple]:
    """Other sessions that run a statement on a node."""
    return node.query(
        "SELECT pid, state, query FROM pg_stat_activity WHERE backend_type = %s"
        " AND state = 'active' AND pid <> pg_backend_pid()",
        (backend_type,),
    )


# ---- own writes --------------------------------------------------------------------------------------


def test_a_transaction_sees_its_own_writes(pair: Pair) -> None:
    with pair.transaction("COMMIT"):
        pair.all_same(
            [
                "INSERT INTO account VALUES (500, 5, 'new'), (501, 6, 'new')",
                "SELECT count(*), sum(v) FROM account",
                "SELECT * FROM account WHERE id = 500",
                "UPDATE account SET v = v + 1 WHERE id < 10 OR id = 500",
                "SELECT * FROM account WHERE id < 12 OR id > 499",
                "DELETE FROM account WHERE id BETWEEN 20 AND 29",
                "SELECT count(*), sum(v) FROM account",
                "INSERT INTO journal SELECT id, 5000 + id, t FROM account WHERE v > 100",
                "SELECT count(*) FROM account JOIN journal USING (id)",
                "UPDATE rate SET v = v * 2",
                "SELECT count(*), sum(r.v) FROM account, rate AS r",
            ]
        )
    pair.all_same(["SELECT * FROM account", "SELECT * FROM journal", "SELECT * FROM rate"])


def test_a_statement_does_not_see_its_own_writes(pair: Pair) -> None:
    with pair.transaction():
        pair.same("INSERT INTO journal SELECT id, n + 1000, note FROM journal")
        pair.same("SELECT count(*) FROM journal")
        pair.same(
            "INSERT INTO journal SELECT id, n + (SELECT max(n) FROM journal), note FROM journal"
        )
        pair.same("SELECT count(*), max(n) FROM journal")


def test_rows_copied_in_are_visible_at_once_in_the_transaction(pair: Pair) -> None:
    with pair.transaction("COMMIT"):
        pair.copy("COPY account FROM STDIN", "".join(f"{n}\t1\tc\n" for n in range(1000, 4000)))
        pair.same("SELECT count(*), sum(v) FROM account")
        pair.same("UPDATE account SET v = 2 WHERE id = 1500")
        pair.copy("COPY account FROM STDIN", "5000\t1\tlater\n")
    pair.same("SELECT count(*), sum(v) FROM account")


def test_others_do_not_see_what_is_not_committed(pair: Pair) -> None:
    with pair.cluster.coordinator.connect() as other:
        query = f"SELECT count(*), sum(v) FROM {pair.schema}.account"
        before = other.execute(query).fetchall()
        with pair.ours.transaction():
            pair.ours.execute("UPDATE account SET v = 0; INSERT INTO account VALUES (700, 7)")
            assert other.execute(query).fetchall() == before
        assert other.execute(query).fetchall() == [(101, 7)]


# ---- savepoints, rollback ----------------------------------------------------------------------------


def test_rollback_undoes_everything_on_all_nodes(pair: Pair) -> None:
    with pair.transaction("ROLLBACK"):
        pair.execute(
            "UPDATE account SET v = 1; DELETE FROM journal; INSERT INTO audit (what) VALUES ('x')"
        )
        pair.execute("UPDATE rate SET v = 0")
    pair.all_same(["SELECT * FROM account", "SELECT count(*) FROM journal", "SELECT * FROM rate"])
    assert pair.rows("SELECT count(*) FROM audit") == [(0,)]


def test_savepoints_nest_and_roll_back_each_for_itself(pair: Pair) -> None:
    state = "SELECT * FROM account WHERE id > 900"
    with pair.transaction("COMMIT"):
        for statement in (
            "INSERT INTO account VALUES (901, 1)",
            "SAVEPOINT a",
            "INSERT INTO account VALUES (902, 2), (912, 2), (922, 2)",
            "SAVEPOINT b",
            "INSERT INTO account VALUES (903, 3)",
            state,
            "ROLLBACK TO b",
            state,
            "INSERT INTO account VALUES (904, 4)",
            "RELEASE b",
            "SAVEPOINT c",
            "DELETE FROM account WHERE id > 900",
            state,
            "ROLLBACK TO c",
            "ROLLBACK TO c",
            state,
            "ROLLBACK TO a",
            state,
            "INSERT INTO account VALUES (905, 5)",
        ):
            pair.same(statement)
    pair.same(state)


def test_an_error_undone_by_a_savepoint_leaves_the_transaction_usable(pair: Pair) -> None:
    with pair.transaction("COMMIT"):
        pair.same("INSERT INTO account VALUES (901, 1)")
        for failing in (
            "INSERT INTO account VALUES (1, 1)",
            "INSERT INTO account VALUES (902, -1)",
            "UPDATE account SET v = v / (id - 50)",
            "UPDATE account SET v = -1 WHERE id = 3",
            "SELECT 1 / (id - 7) FROM account",
            "SELECT * FROM missing",
        ):
            pair.execute("SAVEPOINT s")
            pair.same(failing)
            pair.same("SELECT count(*) FROM account")  # 25P02
            pair.execute("ROLLBACK TO s")
            pair.same("SELECT count(*), sum(v) FROM account")
        pair.same("UPDATE account SET v = v + 1")
    pair.same("SELECT * FROM account")


def test_after_an_error_everything_is_refused_and_commit_rolls_back(pair: Pair) -> None:
    for failing in ("SELECT 1 / (id - id) FROM account", "INSERT INTO account VALUES (1, 1)"):
        with pair.transaction("COMMIT"):  # its tag is ROLLBACK on both
            pair.same("UPDATE account SET v = 0")
            pair.same(failing)
            pair.same("SELECT count(*) FROM account")
            pair.same("UPDATE account SET v = 1")
    pair.same("SELECT sum(v) FROM account")


def test_plpgsql_exception_blocks_undo_only_their_part(pair: Pair) -> None:
    block = """DO $$ BEGIN
        INSERT INTO account VALUES (801, 1);
        BEGIN
            UPDATE account SET v = 7;
            INSERT INTO account VALUES (801, 2);
        EXCEPTION WHEN unique_violation THEN
            INSERT INTO account VALUES (802, 2);
        END;
        BEGIN
            INSERT INTO account VALUES (803, 3);
            PERFORM 1 / (id - id) FROM account;
        EXCEPTION WHEN division_by_zero THEN
            DELETE FROM account WHERE id = 5;
        END;
    END $$"""
    pair.execute(block)
    pair.same("SELECT * FROM account")


def test_procedures_commit_and_roll_back_in_the_middle(pair: Pair) -> None:
    pair.execute(
        "CREATE OR REPLACE PROCEDURE steps () LANGUAGE plpgsql AS $$ BEGIN"
        " FOR i IN 600..610 LOOP INSERT INTO account VALUES (i, i);"
        " IF i % 2 = 0 THEN COMMIT; ELSE ROLLBACK; END IF; END LOOP; END $$"
    )
    pair.execute("CALL steps()")
    pair.same("SELECT * FROM account WHERE id >= 600")


def test_chained_transactions_keep_their_properties_on_all_nodes(pair: Pair) -> None:
    with pair.transaction("ROLLBACK", begin="BEGIN ISOLATION LEVEL REPEATABLE READ"):
        pair.same("UPDATE account SET v = 1")
        pair.same("COMMIT AND CHAIN")
        pair.same("SHOW transaction_isolation")
        pair.same("SELECT sum(v) FROM account")
        for node in (pair.cluster.coordinator, pair.cluster.plain):
            with node.connect() as other:
                other.execute(f"UPDATE {pair.schema}.account SET v = 2")
        assert pair.same("SELECT sum(v) FROM account") == [("100",)]
        pair.same("ROLLBACK AND CHAIN")
        assert pair.same("SELECT sum(v) FROM account") == [("200",)]
        pair.same("UPDATE account SET v = 3 WHERE id < 10")
        pair.same("COMMIT AND CHAIN")
        pair.same("UPDATE account SET v = 4 WHERE id = 3")
    assert pair.same("SELECT sum(v) FROM account") == [("209",)]


# ---- isolation ---------------------------------------------------------------------------------------


def test_repeatable_read_sees_one_state_of_a_worker(pair: Pair) -> None:
    with pair.cluster.coordinator.connect() as other:
        other.execute(f"SET search_path = {pair.schema}")
        with pair.ours.transaction():
            pair.ours.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            query = "SELECT count(*), sum(v) FROM account"
            before = pair.rows(query)
            other.execute("UPDATE account SET v = 0; INSERT INTO account VALUES (700, 1)")
            assert pair.rows(query) == before
        assert pair.rows(query) != before


def test_repeatable_read_refuses_to_overwrite_a_later_change(pair: Pair) -> None:
    with pair.cluster.coordinator.connect() as other:
        pair.ours.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        pair.rows("SELECT sum(v) FROM account")
        other.execute(f"UPDATE {pair.schema}.account SET v = 0 WHERE id = 5")
        with pytest.raises(psycopg.errors.SerializationFailure):
            pair.ours.execute("UPDATE account SET v = v + 1 WHERE id = 5")
        pair.ours.execute("ROLLBACK")


def test_read_committed_sees_what_was_committed_between_statements(pair: Pair) -> None:
    with pair.cluster.coordinator.connect() as other, pair.ours.transaction():
        assert pair.rows("SELECT v FROM account WHERE id = 5") == [(100,)]
        other.execute(f"UPDATE {pair.schema}.account SET v = 50 WHERE id = 5")
        assert pair.rows("SELECT v FROM account WHERE id = 5") == [(50,)]


def test_a_read_only_transaction_is_read_only_on_the_workers(pair: Pair) -> None:
    with pair.transaction(begin="BEGIN READ ONLY"):
        pair.same("SELECT count(*) FROM account")
        pair.same("UPDATE account SET v = 1 WHERE id = 1")
    with pair.transaction(begin="BEGIN READ ONLY"):
        pair.same("INSERT INTO account VALUES (777, 1)")


def test_writers_of_the_same_row_wait_for_each_other(pair: Pair) -> None:
    with pair.cluster.coordinator.connect() as other:
        other.execute(f"SET search_path = {pair.schema}; SET lock_timeout = '300ms'")
        with pair.ours.transaction():
            pair.ours.execute("UPDATE account SET v = v - 1 WHERE id = 5")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute("UPDATE account SET v = v - 1 WHERE id = 5")
            other.execute("UPDATE account SET v = v - 1 WHERE id = 6")
        other.execute("UPDATE account SET v = v - 1 WHERE id = 5")
    assert pair.rows("SELECT id, v FROM account WHERE id IN (5, 6) ORDER BY id") == [
        (5, 98),
        (6, 99),
    ]


# ---- commit ------------------------------------------------------------------------------------------


def logged(node: Node, begin: int, words: str) -> int:
    """How many statements with these words users' sessions have logged on a node since an offset of its log."""
    lines = node.log_text(begin).splitlines()
    return sum(words in line and "strata maintenance" not in line for line in lines)


@pytest.fixture
def statement_logs(pair: Pair) -> Iterator[Callable[[str], list[int]]]:
    """Counts, per worker, the logged statements that contain some words, without those of services."""
    workers = pair.cluster.workers
    for node in workers:
        node.execute("ALTER SYSTEM SET log_statement = 'all'")
        node.execute("ALTER SYSTEM SET log_line_prefix = '%m [%p] %q%u@%d %a '")
        node.execute("SELECT pg_reload_conf()")
    for node in workers:
        for _ in wait_until("the setting is loaded"):
            with node.connect() as connection:
                if connection.execute("SHOW log_statement").fetchone() == ("all",):
                    break
    # sessions that exist already take the setting with their next command
    pair.rows("SELECT count(*) FROM account")
    begins = [node.log_size() for node in workers]
    yield lambda words: [logged(n, b, words) for n, b in zip(workers, begins, strict=True)]
    for node in workers:
        node.execute("ALTER SYSTEM RESET log_statement")
        node.execute("ALTER SYSTEM RESET log_line_prefix")
        node.execute("SELECT pg_reload_conf()")


def test_a_transaction_that_wrote_on_one_worker_commits_in_one_phase(
    pair: Pair, statement_logs
) -> None:
    first, _ = two_keys(pair)
    with pair.transaction("COMMIT"):
        pair.same(f"UPDATE account SET v = v + 1 WHERE id = {first}")
        pair.same(f"INSERT INTO journal VALUES ({first}, 9000, 'x')")
        pair.same("SELECT count(*) FROM account")
    pair.same(f"UPDATE account SET v = v + 1 WHERE id = {first}")
    assert statement_logs("PREPARE TRANSACTION") == [0, 0]


def test_a_transaction_that_wrote_on_two_workers_commits_in_two_phases(
    pair: Pair, statement_logs
) -> None:
    first, second = two_keys(pair)
    with pair.transaction("COMMIT"):
        pair.same(f"UPDATE account SET v = v - 1 WHERE id = {first}")
        pair.same(f"UPDATE account SET v = v + 1 WHERE id = {second}")
    assert statement_logs("PREPARE TRANSACTION 'strata_") == [1, 1]
    assert statement_logs("COMMIT PREPARED 'strata_") == [1, 1]
    pair.same("SELECT * FROM account")


def test_a_transaction_that_also_wrote_locally_commits_in_two_phases(
    pair: Pair, statement_logs
) -> None:
    first, _ = two_keys(pair)
    with pair.transaction("COMMIT"):
        pair.same(f"UPDATE account SET v = v - 1 WHERE id = {first}")
        pair.same("INSERT INTO audit (what) VALUES ('local')")
    assert statement_logs("PREPARE TRANSACTION 'strata_") == [1, 0]
    pair.same("SELECT count(*) FROM audit")


def test_what_the_session_waits_for_at_commit_is_what_it_wants_then(
    pair: Pair, statement_logs
) -> None:
    """synchronous_commit was weak on the worker's last statement, and is not any more."""
    first, second = two_keys(pair)
    with pair.transaction("COMMIT"):
        pair.execute("SET LOCAL synchronous_commit = off")
        pair.same(f"UPDATE account SET v = v - 1 WHERE id = {first}")
        pair.same(f"UPDATE account SET v = v + 1 WHERE id = {second}")
        pair.execute("SET LOCAL synchronous_commit = on")
    assert statement_logs("SET synchronous_commit = on; PREPARE TRANSACTION") == [1, 1]
    with pair.transaction("COMMIT"):
        pair.execute("SET LOCAL synchronous_commit = off")
        pair.same(f"UPDATE account SET v = v - 1 WHERE id = {first}")
        pair.execute("SET LOCAL synchronous_commit = on")
    assert statement_logs("SET synchronous_commit = 'on'; COMMIT") == [1, 0]


def test_a_transaction_that_only_read_prepares_nothing(pair: Pair, statement_logs) -> None:
    with pair.transaction("COMMIT"):
        pair.same("SELECT count(*) FROM account")
        pair.same("SELECT * FROM account WHERE id = 3")
    assert statement_logs("PREPARE TRANSACTION") == [0, 0]


def test_prepared_names_hold_the_cluster_and_never_repeat(pair: Pair, cluster: Cluster) -> None:
    ((cluster_id,),) = pair.rows("SELECT id::text FROM strata.cluster")
    begin = cluster.workers[0].log_size()
    cluster.workers[0].execute("ALTER SYSTEM SET log_statement = 'all'")
    cluster.workers[0].execute("SELECT pg_reload_conf()")
    time.sleep(0.2)
    try:
        for _ in range(4):
            pair.execute("UPDATE account SET v = v + 1")
    finally:
        cluster.workers[0].execute("ALTER SYSTEM RESET log_statement")
        cluster.workers[0].execute("SELECT pg_reload_conf()")
    lines = cluster.workers[0].log_text(begin).splitlines()
    names = [line.split("'")[1] for line in lines if "PREPARE TRANSACTION '" in line]
    assert len(names) == len(set(names)) >= 3
    assert all(cluster_id in name or cluster_id.replace("-", "") in name for name in names)


def test_a_session_removes_the_decisions_of_its_former_commits(pair: Pair) -> None:
    """At most the last one stays: it may go only when all workers have acknowledged it."""
    query = "SELECT count(*) FROM strata.distributed_transaction"
    ((before,),) = pair.rows(query)
    for _ in range(10):
        pair.execute("UPDATE account SET v = v + 1")
    ((after,),) = pair.rows(query)
    assert after <= before + 1


def test_sessions_that_end_leave_no_decisions_behind(pair: Pair) -> None:
    """The next commit of any session removes what others have finished: only its own is left."""
    for _ in range(10):
        with pair.cluster.coordinator.connect() as connection:
            connection.execute(f"UPDATE {pair.schema}.account SET v = v + 1")
    pair.theirs.execute("UPDATE account SET v = v + 10")
    pair.execute("UPDATE account SET v = v + 1")
    assert pair.rows("SELECT count(*) FROM strata.distributed_transaction") == [(1,)]
    pair.same("SELECT sum(v) FROM account")


def test_a_commit_that_fails_late_gives_the_removal_of_decisions_back(pair: Pair) -> None:
    """A worker fails its PREPARE after the commit has taken over to remove others' decisions."""
    pair.execute(
        "CREATE TABLE late (id integer, n integer, UNIQUE (id, n) DEFERRABLE INITIALLY DEFERRED)"
    )
    pair.distribute("late", "id")
    pair.execute("INSERT INTO late SELECT g, 1 FROM generate_series(1, 40) AS g")
    query = "SELECT count(*) FROM strata.distributed_transaction"
    assert pair.rows(query) == [(1,)]
    for _ in range(2):
        pair.same("INSERT INTO late SELECT g, 1 FROM generate_series(1, 40) AS g")
        assert pair.rows(query) == [(1,)]
    pair.execute("UPDATE account SET v = v + 1")
    assert pair.rows(query) == [(1,)]
    pair.execute("DROP TABLE late")


def test_a_failed_prepare_leaves_nothing_behind(make_cluster) -> None:
    """One worker has no room for a prepared transaction: neither worker keeps anything."""
    cluster = make_cluster(workers=2)
    cluster.coordinator.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, v integer);"
        "SELECT strata.create_distributed_table('t', 'id');"
        "INSERT INTO t SELECT g, 0 FROM generate_series(1, 50) AS g"
    )
    full = cluster.workers[1]
    full.settings["max_prepared_transactions"] = "0"
    full.restart()
    for _ in wait_until("the coordinator noticed the restart"):
        try:
            assert cluster.coordinator.value("SELECT count(*) FROM t") == 50
            break
        except psycopg.Error:
            continue
    with pytest.raises(psycopg.Error, match="worker2") as caught:
        cluster.coordinator.execute("UPDATE t SET v = 1")
    assert caught.value.sqlstate == "55000"
    assert prepared(cluster) == []
    assert cluster.coordinator.value("SELECT sum(v) FROM t") == 0
    del full.settings["max_prepared_transactions"]
    full.restart()
    for _ in wait_until("writes work again"):
        try:
            cluster.coordinator.execute("UPDATE t SET v = 1")
            break
        except psycopg.Error:
            continue
    assert cluster.coordinator.value("SELECT sum(v) FROM t") == 50
    check_nothing_prepared(cluster)


def test_a_deferred_constraint_that_fails_at_commit_undoes_all_workers(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE strict (id integer, n integer, UNIQUE (id, n) DEFERRABLE INITIALLY DEFERRED)"
    )
    pair.distribute("strict", "id")
    pair.execute("INSERT INTO strict SELECT g, 1 FROM generate_series(1, 40) AS g")
    first, second = (
        node.value(f"SELECT min(id) FROM {pair.schema}.strict") for node in pair.cluster.workers
    )
    with pair.transaction("COMMIT"):
        pair.same(f"UPDATE strict SET n = 2 WHERE id = {first}")
        pair.same(f"INSERT INTO strict VALUES ({second}, 1)")
    pair.same("SELECT * FROM strict")
    check_nothing_prepared(pair.cluster)
    pair.execute("DROP TABLE strict")


def test_a_users_own_prepare_transaction_is_refused_when_workers_took_part(pair: Pair) -> None:
    pair.ours.execute("BEGIN")
    pair.ours.execute("UPDATE account SET v = 1")
    with pytest.raises(psycopg.Error, match="PREPARE") as caught:
        pair.ours.execute("PREPARE TRANSACTION 'mine'")
    assert caught.value.sqlstate == "0A000"
    pair.same("SELECT sum(v) FROM account")


def test_concurrent_transfers_neither_make_nor_lose_money(pair: Pair) -> None:
    first, second = two_keys(pair)
    errors: list[Exception] = []

    def transfer(source: int, target: int) -> None:
        try:
            with pair.cluster.coordinator.connect() as connection:
                for _ in range(25):
                    with connection.transaction():
                        # always in the order of the ids: no deadlock
                        for key in sorted((source, target)):
                            sign = "-" if key == source else "+"
                            connection.execute(
                                f"UPDATE {pair.schema}.account SET v = v {sign} 1 WHERE id = {key}"
                            )
        except Exception as error:
            errors.append(error)

    threads = [
        threading.Thread(target=transfer, args=p) for p in [(first, second), (second, first)] * 2
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    rows = pair.rows(f"SELECT v FROM account WHERE id IN ({first}, {second})")
    assert rows == [(100,), (100,)]
    assert pair.rows("SELECT sum(v) FROM account") == [(10_000,)]


# ---- cancel and timeouts -----------------------------------------------------------------------------

# Minutes of work on the workers that nothing but a cancel ends: 10 ** 9 pairs per key.
SLOW = (
    "SELECT count(*) FROM journal a JOIN journal b USING (id) JOIN journal c USING (id)"
    " JOIN journal d USING (id) JOIN journal e USING (id) JOIN journal f USING (id)"
    " JOIN journal g USING (id) JOIN journal h USING (id) JOIN journal i USING (id)"
    " WHERE a.n + b.n + c.n + d.n + e.n + f.n + g.n + h.n + i.n < 0"
)
SLOW_ROUTED = f"{SLOW} AND id = 1"


def assert_workers_are_idle_within(seconds: float, cluster: Cluster) -> None:
    for node in cluster.workers:
        for _ in wait_until(f"{node.name} stopped working", seconds):
            if not backend_sessions(node):
                break


@pytest.mark.parametrize("query", [SLOW, SLOW_ROUTED], ids=["all workers", "routed"])
def test_cancel_reaches_the_workers_within_a_second(pair: Pair, query: str) -> None:
    busy = []

    def cancel_when_the_workers_are_at_it() -> None:
        for _ in wait_until("a worker is at it", 10):
            busy.extend(node for node in pair.cluster.workers if backend_sessions(node))
            if busy:
                break
        pair.ours.cancel()

    canceller = threading.Thread(target=cancel_when_the_workers_are_at_it)
    canceller.start()
    with pytest.raises(psycopg.errors.QueryCanceled):
        pair.rows(query)
    canceller.join()
    assert busy
    assert_workers_are_idle_within(1, pair.cluster)
    pair.same("SELECT count(*) FROM account")


@pytest.mark.parametrize("query", [SLOW, SLOW_ROUTED], ids=["all workers", "routed"])
def test_statement_timeout_reaches_the_workers_within_a_second(pair: Pair, query: str) -> None:
    pair.ours.execute("SET statement_timeout = '400ms'")
    start = time.monotonic()
    with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
        pair.rows(query)
    assert time.monotonic() - start < patience(2)
    assert_workers_are_idle_within(1, pair.cluster)
    pair.ours.execute("SET statement_timeout = 0")
    pair.same("SELECT count(*) FROM account")


def test_a_cancelled_write_changes_nothing_and_the_session_goes_on(pair: Pair) -> None:
    pair.ours.execute(
        "BEGIN; UPDATE account SET v = v + 1; SAVEPOINT s; SET LOCAL statement_timeout = '300ms'"
    )
    with pytest.raises(psycopg.errors.QueryCanceled):
        pair.ours.execute("SELECT pg_sleep(9)")
    pair.ours.execute("ROLLBACK TO s; COMMIT")
    pair.theirs.execute("UPDATE account SET v = v + 1")
    pair.same("SELECT sum(v) FROM account")


def test_a_terminated_session_ends_its_statements_on_the_workers(pair: Pair) -> None:
    victim = pair.cluster.coordinator.connect()
    victim.execute(f"SET search_path = {pair.schema}")
    outcome: list[Exception] = []

    def run() -> None:
        try:
            victim.execute(SLOW)
        except psycopg.Error as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for _ in wait_until("the workers are at it"):
            if all(backend_sessions(node) for node in pair.cluster.workers):
                break
    finally:
        pair.ours.execute(f"SELECT pg_terminate_backend({victim.info.backend_pid})")
        thread.join(patience(10))
    assert outcome
    assert_workers_are_idle_within(2, pair.cluster)


# ---- nodes that die ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def durable_cluster() -> Iterator[Cluster]:
    with Cluster(new_root(), workers=2, durable=True) as cluster:
        yield cluster


@pytest.fixture
def fragile(durable_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with fsync, to be treated badly."""
    durable_cluster.coordinator.execute(
        "DROP TABLE IF EXISTS t, local;"
        "CREATE TABLE t (id bigint PRIMARY KEY, v integer);"
        "SELECT strata.create_distributed_table('t', 'id', shard_count => 8);"
        "CREATE TABLE local (id bigint PRIMARY KEY);"
        "INSERT INTO t SELECT g, 0 FROM generate_series(1, 100) AS g"
    )
    yield durable_cluster
    durable_cluster.start()
    for node in durable_cluster.nodes:
        node.forgive_crash()


def test_a_worker_that_dies_in_a_transaction_fails_it_and_later_statements_work(
    fragile: Cluster,
) -> None:
    worker = fragile.workers[1]
    with fragile.coordinator.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("UPDATE t SET v = 1")
        worker.kill()
        with pytest.raises(psycopg.Error) as caught:
            connection.execute("SELECT count(*) FROM t")
        assert worker.name in str(caught.value)
        assert caught.value.sqlstate.startswith(("08", "57"))
        connection.execute("ROLLBACK")
        with pytest.raises(psycopg.Error, match=worker.name):
            connection.execute("SELECT count(*) FROM t")
        worker.start()
        worker.forgive_crash()
        for _ in wait_until("statements work again"):
            try:
                rows = connection.execute("SELECT count(*), sum(v) FROM t").fetchall()
                break
            except psycopg.Error:
                continue
        assert rows == [(100, 0)]
        connection.execute("UPDATE t SET v = 2")
        assert connection.execute("SELECT sum(v) FROM t").fetchall() == [(200,)]


def test_an_idle_session_survives_the_restart_of_a_worker(fragile: Cluster) -> None:
    with fragile.coordinator.connect() as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(100,)]
        fragile.workers[0].restart()
        # at most one statement pays for the lost connection
        with contextlib.suppress(psycopg.OperationalError):
            connection.execute("SELECT count(*) FROM t")
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(100,)]


@pytest.mark.parametrize("victim", ["coordinator", "worker"])
def test_what_was_acknowledged_survives_a_kill_during_commits(
    fragile: Cluster, victim: str
) -> None:
    """Each transaction writes one row on each of two workers and one locally: all three or none."""
    acknowledged: list[int] = []
    stop = threading.Event()

    def commit_all_the_time(start: int) -> None:
        number = start
        while not stop.is_set():
            try:
                with fragile.coordinator.connect(connect_timeout=2) as connection:
                    while not stop.is_set():
                        number += 10
                        with connection.transaction():
                            connection.execute(
                                f"INSERT INTO t SELECT g, 1 FROM generate_series({number}, {number + 9}) AS g"
                            )
                            connection.execute(f"INSERT INTO local VALUES ({number})")
                        acknowledged.append(number)
            except psycopg.Error:
                time.sleep(0.05)

    threads = [
        threading.Thread(target=commit_all_the_time, args=(n * 1_000_000,)) for n in (1, 2, 3)
    ]
    for thread in threads:
        thread.start()
    node = fragile.coordinator if victim == "coordinator" else fragile.workers[0]
    for _ in range(2):
        known = len(acknowledged)
        for _ in wait_until("some commits"):
            if len(acknowledged) > known + 20:
                break
        node.kill()
        time.sleep(0.2)
        node.start()
        node.forgive_crash()
    time.sleep(0.5)
    stop.set()
    for thread in threads:
        thread.join(patience(30))
    for _ in wait_until("nothing is in doubt"):
        try:
            left = fragile.coordinator.query("SELECT * FROM strata.in_doubt")
        except psycopg.Error:
            continue
        if not left and prepared(fragile) == []:
            break
    present = {row[0] for row in fragile.coordinator.query("SELECT id FROM t WHERE v = 1")}
    local = {row[0] for row in fragile.coordinator.query("SELECT id FROM local")}
    for number in acknowledged:
        assert number in local
        assert present >= set(range(number, number + 10)), f"rows of {number} are lost"
    complete = {n for n in local if present >= set(range(n, n + 10))}
    assert complete == local, "a transaction is half there"
    assert len(present) == 10 * len(local), "rows without their transaction"
