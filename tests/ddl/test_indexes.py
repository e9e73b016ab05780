"""Indexes that are built and dropped without stopping writers, also after something went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.cluster import Cluster
from tests.ddl.test_ddl import INDEXES, check_structure, everywhere
from tests.pair import Pair, open_pair
from tests.waiting import wait_until

PARTS = """
SELECT count(*) FROM pg_class AS c JOIN pg_index AS i ON i.indexrelid = c.oid
 WHERE c.relnamespace = 'test_indexes'::regnamespace AND c.relname ~ '^{}'
"""


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_indexes") as made:
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    data.execute("CREATE TABLE t (k integer, v integer, w text)")
    data.execute("CREATE TABLE r (id integer PRIMARY KEY, name text)")
    data.distribute("t", "k", shards=4)
    data.reference("r")
    data.execute("INSERT INTO t SELECT g, g % 10, 'w' || g FROM generate_series(1, 200) AS g")
    data.execute("INSERT INTO r SELECT g, 'n' || g FROM generate_series(1, 20) AS g")
    yield data
    data.reset()
    data.execute("RESET ROLE; RESET statement_timeout")
    data.execute("DROP SCHEMA test_indexes CASCADE; CREATE SCHEMA test_indexes")


def concurrently(pair: Pair, statement: str) -> None:
    """On both: outside of a transaction, one by one."""
    pair.theirs.execute(statement)
    pair.ours.execute(statement)


def is_valid(pair: Pair, index: str) -> bool:
    ((valid,),) = pair.rows(
        f"SELECT indisvalid FROM pg_index WHERE indexrelid = 'test_indexes.{index}'::regclass"
    )
    return valid


def leaves_are_indexed(pair: Pair, index: str) -> bool:
    """Every partition has a valid index that is part of this one, which is valid itself."""
    query = f"""
    SELECT (SELECT indisvalid FROM pg_index WHERE indexrelid = 'test_indexes.{index}'::regclass)
           AND (SELECT bool_and(indisvalid) AND count(*) = (
                         SELECT count(*) FROM pg_inherits WHERE inhparent = 'test_indexes.t'::regclass)
                  FROM pg_inherits JOIN pg_index ON indexrelid = inhrelid
                 WHERE inhparent = 'test_indexes.{index}'::regclass)
    """
    return pair.on_workers(query) == [True] * len(pair.cluster.workers)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE INDEX CONCURRENTLY ON t (v)",
        "CREATE UNIQUE INDEX CONCURRENTLY u ON t (w, k)",
        "CREATE INDEX CONCURRENTLY h ON t USING hash (w) WHERE v > 3",
        "CREATE INDEX CONCURRENTLY x ON t (lower(w) DESC NULLS LAST, k) INCLUDE (v) WITH (fillfactor = 70)",
        "CREATE INDEX CONCURRENTLY IF NOT EXISTS y ON ONLY t (v, (k + 1))",
        'CREATE INDEX CONCURRENTLY "i""x; DROP TABLE t; --" ON t (w COLLATE "C" text_pattern_ops)',
        "CREATE UNIQUE INDEX CONCURRENTLY ON r (name)",
    ],
)
def test_an_index_is_built_concurrently(pair: Pair, statement: str) -> None:
    concurrently(pair, statement)
    for table in ("t", "r"):
        check_structure(pair, table)
        assert pair.rows(INDEXES.format(table)) == [
            (pair.theirs.execute(INDEXES.format(table)).fetchone()[0],)
        ]
    query = "SELECT bool_and(indisvalid) FROM pg_index JOIN pg_class ON oid = indexrelid WHERE relnamespace = 'test_indexes'::regnamespace"
    assert everywhere(pair, query) is True
    pair.same("SELECT * FROM t WHERE lower(w) = 'w7' AND v > 3")
    pair.same("INSERT INTO t VALUES (1, 1, 'w1')")
    pair.same("INSERT INTO r VALUES (100, 'n1')")


def test_it_cannot_be_done_in_a_transaction(pair: Pair) -> None:
    with pytest.raises(psycopg.errors.ActiveSqlTransaction), pair.ours.transaction():
        pair.ours.execute("CREATE INDEX CONCURRENTLY ON t (v)")
    with pytest.raises(psycopg.errors.ActiveSqlTransaction), pair.ours.transaction():
        pair.ours.execute("DROP INDEX CONCURRENTLY r_pkey")
    check_structure(pair, "t")


def test_a_name_that_is_taken_is_an_error_or_a_notice(pair: Pair) -> None:
    concurrently(pair, "CREATE INDEX CONCURRENTLY i ON t (v)")
    for statement in (
        "CREATE INDEX CONCURRENTLY i ON t (v)",
        "CREATE INDEX CONCURRENTLY i ON t (w)",
        "CREATE INDEX CONCURRENTLY IF NOT EXISTS i ON t (w)",
    ):
        pair.same(statement)
    check_structure(pair, "t")


def test_the_same_command_completes_an_index_that_failed(pair: Pair) -> None:
    pair.execute("INSERT INTO t VALUES (7, 7, 'twice'), (7, 7, 'twice'), (8, 7, 'once')")
    create = "CREATE UNIQUE INDEX CONCURRENTLY u ON t (k, v, w)"
    for _ in range(2):
        with pytest.raises(psycopg.errors.UniqueViolation, match="twice"):
            pair.ours.execute(create)
        assert not is_valid(pair, "u")
    with pytest.raises(psycopg.errors.DuplicateTable):
        pair.ours.execute("CREATE UNIQUE INDEX CONCURRENTLY u ON t (k, w)")

    pair.execute("DELETE FROM t WHERE w = 'twice'")
    concurrently(pair, create)
    assert is_valid(pair, "u")
    assert leaves_are_indexed(pair, "u")
    check_structure(pair, "t")
    pair.same("INSERT INTO t VALUES (8, 7, 'once')")
    pair.same("INSERT INTO t VALUES (8, 7, 'once') ON CONFLICT (k, v, w) DO NOTHING")


def test_an_index_that_failed_is_dropped_with_all_its_parts(pair: Pair) -> None:
    pair.ours.execute("INSERT INTO t VALUES (7, 7, 'twice'), (7, 7, 'twice')")
    with pytest.raises(psycopg.errors.UniqueViolation):
        pair.ours.execute("CREATE UNIQUE INDEX CONCURRENTLY u ON t (k, v, w)")
    assert any(pair.on_workers(PARTS.format("u")))
    pair.ours.execute("DROP INDEX u")
    assert everywhere(pair, PARTS.format("u")) == 0
    pair.ours.execute("DROP TABLE t")


def test_a_worker_that_fails_meanwhile_leaves_an_index_to_be_completed(pair: Pair) -> None:
    """Here it has an index of the wanted name in the way."""
    worker = pair.cluster.workers[1]
    worker.execute("CREATE INDEX i ON test_indexes.r (name)")
    with pytest.raises(psycopg.errors.DuplicateTable, match="i"):
        pair.ours.execute("CREATE INDEX CONCURRENTLY i ON t (v)")
    assert not is_valid(pair, "i")
    worker.execute("DROP INDEX test_indexes.i")
    pair.ours.execute("CREATE INDEX CONCURRENTLY i ON t (v)")
    assert is_valid(pair, "i")
    assert leaves_are_indexed(pair, "i")


def test_writers_go_on_while_an_index_waits_for_one_of_them(pair: Pair) -> None:
    with (
        pair.cluster.coordinator.connect() as writer,
        pair.cluster.coordinator.connect() as builder,
        ThreadPoolExecutor() as pool,
    ):
        builder.execute("SET search_path = test_indexes")
        writer.execute("BEGIN; INSERT INTO test_indexes.t VALUES (1000, 1, 'open')")
        building = pool.submit(builder.execute, "CREATE INDEX CONCURRENTLY i ON t (v)")
        for _ in wait_until("the index waits"):
            query = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = %s"
            if pair.rows(query, (builder.info.backend_pid,)) != [(0,)]:
                break
        pair.ours.execute("SET lock_timeout = '5s'")
        for key in range(2000, 2020):
            pair.ours.execute(f"INSERT INTO t VALUES ({key}, 1, 'other')")
        pair.ours.execute("RESET lock_timeout")
        assert not building.done()
        writer.execute("COMMIT")
        building.result()
    assert is_valid(pair, "i")
    assert leaves_are_indexed(pair, "i")


def test_a_cancelled_command_is_completed_by_another(pair: Pair) -> None:
    with pair.cluster.coordinator.connect() as writer:
        writer.execute("BEGIN; INSERT INTO test_indexes.t VALUES (1000, 1, 'open')")
        pair.ours.execute("SET statement_timeout = '500ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            pair.ours.execute("CREATE INDEX CONCURRENTLY ON t (v)")
        pair.ours.execute("RESET statement_timeout")
        writer.execute("COMMIT")
    assert not is_valid(pair, "t_v_idx")
    pair.ours.execute("CREATE INDEX CONCURRENTLY ON t (v)")
    assert is_valid(pair, "t_v_idx")
    assert leaves_are_indexed(pair, "t_v_idx")
    assert pair.rows(PARTS.format("t_v")) == [(1,)]


def test_an_index_is_built_under_the_name_that_another_had(pair: Pair) -> None:
    for _ in range(2):
        concurrently(pair, "CREATE UNIQUE INDEX CONCURRENTLY next ON t (k, v)")
        assert leaves_are_indexed(pair, "next")
        pair.execute("DROP INDEX IF EXISTS now; ALTER INDEX next RENAME TO now")
    concurrently(pair, "CREATE UNIQUE INDEX CONCURRENTLY next ON t (w, k)")
    assert leaves_are_indexed(pair, "next")
    assert index_faults(pair) == []
    check_structure(pair, "t")
    pair.same("INSERT INTO t VALUES (1, 2, 'w1')")


def test_an_index_that_failed_is_completed_under_new_names(pair: Pair) -> None:
    pair.ours.execute("INSERT INTO t VALUES (7, 7, 'twice'), (7, 7, 'twice')")
    with pytest.raises(psycopg.errors.UniqueViolation):
        pair.ours.execute("CREATE UNIQUE INDEX CONCURRENTLY u ON t (k, v, w)")
    pair.ours.execute("DELETE FROM t WHERE w = 'twice'; ALTER INDEX u RENAME TO x")
    pair.ours.execute("REINDEX INDEX x")
    pair.theirs.execute("CREATE UNIQUE INDEX x ON t (k, v, w)")
    assert leaves_are_indexed(pair, "x")
    check_structure(pair, "t")
    pair.ours.execute("DROP INDEX x")
    assert everywhere(pair, PARTS.format("[ux]")) == 0


def test_an_index_of_a_reference_table_is_dropped_concurrently(pair: Pair) -> None:
    concurrently(pair, "CREATE INDEX CONCURRENTLY i ON r (name)")
    concurrently(pair, "DROP INDEX CONCURRENTLY i")
    check_structure(pair, "r")
    concurrently(pair, "DROP INDEX CONCURRENTLY IF EXISTS i")
    pair.same("DROP INDEX CONCURRENTLY i")


def test_only_the_owner_builds_and_drops(pair: Pair) -> None:
    pair.cluster.create_role("index_user")
    pair.execute("GRANT USAGE, CREATE ON SCHEMA test_indexes TO index_user")
    # ALL has MAINTAIN since 17, with which one may REINDEX
    privileges = "SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER"
    pair.execute(f"GRANT {privileges} ON t, r TO index_user; SET ROLE index_user")
    try:
        for statement in (
            "CREATE INDEX CONCURRENTLY i ON t (v)",
            "CREATE INDEX i ON t (v)",
            "DROP INDEX CONCURRENTLY r_pkey",
            "REINDEX TABLE t",
            "REINDEX SCHEMA test_indexes",
            "ALTER TABLE t ADD COLUMN x serial",
            "COMMENT ON TABLE t IS 'mine'",
            "CREATE STATISTICS st ON k, v FROM t",
            "ALTER TABLE r SET (fillfactor = 50)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege) as caught:
                pair.ours.execute(statement)
            assert not caught.value.diag.context, "a worker was asked"
        for table in ("t", "r"):
            check_structure(pair, table)
    finally:
        pair.execute("RESET ROLE; DROP OWNED BY index_user; DROP ROLE index_user")


def test_a_dropped_index_leaves_nothing_on_any_node(pair: Pair) -> None:
    pair.execute("CREATE INDEX i ON t (v)")
    concurrently(pair, "CREATE INDEX CONCURRENTLY j ON t (v)")
    pair.execute("DROP INDEX i, j")
    assert everywhere(pair, PARTS.format("[ij]")) == 0
    pair.same("SELECT count(*) FROM t WHERE v = 3")


# ---- validity: an index is trusted only when the workers' partitions have it, too ------------------------

UNFINISHED = "CREATE UNIQUE INDEX CONCURRENTLY u ON t (k, v)"
# one row of l has two partners in t: with a unique index that joins without reading t, it would have one
TRUST = "SELECT count(*) FROM l LEFT JOIN t USING (k, v)"


@pytest.fixture
def unfinished(pair: Pair) -> Pair:
    """A unique index of t that failed on duplicates; on plain there is none."""
    pair.execute(
        "CREATE TABLE l (k integer, v integer); INSERT INTO l SELECT g, 7 FROM generate_series(1, 9) AS g"
    )
    pair.execute("INSERT INTO t VALUES (3, 7, 'twice'), (3, 7, 'twice')")
    with pytest.raises(psycopg.errors.UniqueViolation):
        pair.ours.execute(UNFINISHED)
    return pair


def index_faults(pair: Pair) -> list[tuple]:
    return pair.rows("SELECT detail FROM strata.check_health() WHERE NOT ok AND detail ~ 'index'")


def finish(pair: Pair, command: str) -> None:
    """Without the duplicates the command completes the index."""
    pair.execute("DELETE FROM t WHERE w = 'twice'")
    pair.ours.execute(command)
    pair.theirs.execute("CREATE UNIQUE INDEX u ON t (k, v)")
    assert is_valid(pair, "u")
    assert leaves_are_indexed(pair, "u")
    assert index_faults(pair) == []
    check_structure(pair, "t")
    pair.same("INSERT INTO t VALUES (11, 1, 'again')")
    pair.same("SELECT * FROM t WHERE k = 11 AND v = 1")


@pytest.mark.parametrize(
    "command",
    [
        "REINDEX INDEX u",
        "REINDEX INDEX CONCURRENTLY u",
        "REINDEX TABLE t",
        "REINDEX SCHEMA test_indexes",
    ],
)
def test_reindex_completes_an_unfinished_index_or_fails(unfinished: Pair, command: str) -> None:
    for _ in range(2):
        with pytest.raises(psycopg.errors.UniqueViolation, match="3, 7"):
            unfinished.ours.execute(command)
        assert not is_valid(unfinished, "u")
        unfinished.same(TRUST)
    finish(unfinished, command)


@pytest.mark.parametrize(
    "command",
    [
        "REINDEX TABLE CONCURRENTLY t",
        "REINDEX SCHEMA CONCURRENTLY test_indexes",
        "VACUUM FULL t",
        "VACUUM FULL",
        "CLUSTER",
    ],
)
def test_no_other_command_makes_an_unfinished_index_valid(unfinished: Pair, command: str) -> None:
    concurrently(unfinished, command)
    assert not is_valid(unfinished, "u")
    unfinished.same(TRUST)
    assert index_faults(unfinished) == []
    finish(unfinished, "REINDEX INDEX u")


@pytest.mark.parametrize(
    "command",
    [
        "ALTER TABLE t ADD COLUMN x integer DEFAULT (random() * 0)::integer",
        "ALTER TABLE t ALTER COLUMN v TYPE bigint",
    ],
)
def test_a_rewrite_meets_the_duplicates_of_an_unfinished_index(
    unfinished: Pair, command: str
) -> None:
    with pytest.raises(psycopg.errors.UniqueViolation):
        unfinished.ours.execute(command)
    assert not is_valid(unfinished, "u")
    unfinished.same(TRUST)
    unfinished.execute(f"DELETE FROM t WHERE w = 'twice'; {command}")
    finish(unfinished, "REINDEX INDEX u")


def test_a_truncated_table_does_not_trust_its_unfinished_index(unfinished: Pair) -> None:
    """The worker that met the duplicates has not begun its last partition; that takes others."""
    ((key,),) = unfinished.cluster.workers[1].query(
        "SELECT min(k) FROM test_indexes.t_s3 WHERE k <= 9"
    )
    duplicates = f"INSERT INTO t VALUES ({key}, 7, 'twice'), ({key}, 7, 'twice')"
    with unfinished.transaction():
        unfinished.execute(f"TRUNCATE t; {duplicates}")
        unfinished.same(TRUST)
        unfinished.execute("SAVEPOINT s; TRUNCATE t; ROLLBACK TO s")
        unfinished.same(TRUST)
    unfinished.execute(f"TRUNCATE t; {duplicates}")
    assert not is_valid(unfinished, "u")
    unfinished.same(TRUST)
    finish(unfinished, "REINDEX TABLE t")


def test_an_index_that_no_worker_has_begun_stays_invalid_when_a_column_changes(pair: Pair) -> None:
    """The shell's index is made anew; the workers have none."""
    for worker in pair.cluster.workers:
        worker.execute("CREATE INDEX u ON test_indexes.r (name)")
    with pytest.raises(psycopg.errors.DuplicateTable):
        pair.ours.execute(UNFINISHED)
    for worker in pair.cluster.workers:
        worker.execute("DROP INDEX test_indexes.u")
    pair.execute("ALTER TABLE t ALTER COLUMN v TYPE bigint")
    assert not is_valid(pair, "u")
    finish(pair, "REINDEX INDEX u")


def test_an_index_whose_creation_is_cancelled_here_is_completed_by_reindex(pair: Pair) -> None:
    """PostgreSQL itself leaves the shell's index invalid: no worker has been asked yet."""
    with pair.cluster.coordinator.connect() as writer:
        writer.execute("BEGIN; LOCK TABLE test_indexes.t IN ROW EXCLUSIVE MODE")
        pair.ours.execute("SET statement_timeout = '300ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            pair.ours.execute(UNFINISHED)
        pair.ours.execute("RESET statement_timeout")
        writer.execute("COMMIT")
    pair.ours.execute("VACUUM FULL t")
    assert not is_valid(pair, "u")
    finish(pair, "REINDEX TABLE t")


def test_an_undistributed_table_has_the_index_as_its_rows_allow(unfinished: Pair) -> None:
    with pytest.raises(psycopg.errors.UniqueViolation, match="3, 7"):
        unfinished.ours.execute("SELECT strata.undistribute_table('t')")
    unfinished.execute("DELETE FROM t WHERE w = 'twice'")
    unfinished.ours.execute("SELECT strata.undistribute_table('t')")
    unfinished.theirs.execute("CREATE UNIQUE INDEX u ON t (k, v)")
    unfinished.same("INSERT INTO t VALUES (11, 1, 'again')")
    unfinished.same(TRUST)


def test_check_health_names_an_index_that_a_worker_lacks_and_reindex_builds_it(pair: Pair) -> None:
    pair.execute("CREATE INDEX i ON t (v); CREATE INDEX j ON r (name)")
    assert index_faults(pair) == []
    lacking, incomplete = pair.cluster.workers
    lacking.execute("DROP INDEX test_indexes.i; DROP INDEX test_indexes.j")
    incomplete.execute(
        "BEGIN; DROP INDEX test_indexes.i; CREATE INDEX i ON ONLY test_indexes.t (v); COMMIT;"
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'test_indexes.j'::regclass"
    )
    assert [detail.count("index ") for (detail,) in index_faults(pair)] == [2, 2]
    pair.ours.execute("REINDEX INDEX i")
    pair.ours.execute("REINDEX INDEX j")
    assert index_faults(pair) == []
    assert leaves_are_indexed(pair, "i")


def test_a_cancelled_drop_is_repeated_or_taken_back(pair: Pair) -> None:
    """DROP INDEX CONCURRENTLY of a reference table: one worker has dropped it, one waits for a reader."""
    pair.execute("CREATE INDEX j ON r (name)")
    for repeat in ("REINDEX INDEX j", "DROP INDEX CONCURRENTLY j"):
        with pair.cluster.workers[1].connect() as reader:
            reader.execute("BEGIN; LOCK TABLE test_indexes.r IN ACCESS SHARE MODE")
            pair.ours.execute("SET statement_timeout = '300ms'")
            with pytest.raises(psycopg.errors.QueryCanceled):
                pair.ours.execute("DROP INDEX CONCURRENTLY j")
            pair.ours.execute("RESET statement_timeout")
        assert pair.rows("SELECT indisvalid FROM pg_index WHERE indexrelid = 'j'::regclass") == [
            (False,)
        ]
        assert index_faults(pair) == []  # nobody relies on it
        pair.ours.execute(repeat)
        assert index_faults(pair) == []
    assert everywhere(pair, PARTS.format("j")) == 0
