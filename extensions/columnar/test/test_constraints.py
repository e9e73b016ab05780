"""Indexes find what scans find, and constraints hold, on columnar tables as on heap tables."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from extensions.columnar.test.servers import check_indexes
from extensions.columnar.test.twins import Twins

TABLE = "CREATE TABLE t (id integer, v integer, s text, n numeric(10, 2))"
FILL = (
    "INSERT INTO t SELECT g, g % 500, 'row ' || g % 170, g / 4.0 FROM generate_series(1, 4000) AS g"
)
CHECKSUM = "SELECT count(*), sum(id), sum(v), md5(string_agg(t::text, '|' ORDER BY id, v)) FROM t"


@pytest.fixture
def table(twins: Twins) -> Twins:
    """Twins with a filled table t (id, v, s, n) without indexes."""
    twins.execute(TABLE, FILL)
    return twins


def with_every_scan(twins: Twins) -> Iterator[str]:
    """Runs the loop's body once per kind of scan that the planner may choose."""
    kinds = {
        "index": ("bitmapscan", "seqscan"),
        "bitmap": ("indexscan", "indexonlyscan", "seqscan"),
        "sequential": ("indexscan", "indexonlyscan", "bitmapscan"),
    }
    for kind, disabled in kinds.items():
        for name in disabled:
            twins.execute(f"SET enable_{name} = off")
        yield kind
        for name in disabled:
            twins.execute(f"RESET enable_{name}")


QUESTIONS = (
    "SELECT * FROM t WHERE v = 7 ORDER BY id",
    "SELECT count(*), sum(id) FROM t WHERE v BETWEEN 100 AND 120",
    "SELECT count(*), sum(id) FROM t WHERE v IN (1, 3, 499, 1000) AND id > 50",
    "SELECT id, v FROM t WHERE v > 495 ORDER BY v DESC, id LIMIT 7",
    "SELECT v FROM t WHERE v = 9",
    "SELECT count(*) FROM t WHERE v IS NULL",
    "SELECT min(v), max(v) FROM t",
    "SELECT a.id, b.id FROM t AS a JOIN t AS b ON a.v = b.id WHERE a.id < 20 ORDER BY 1, 2",
)


@pytest.mark.parametrize("method", ["btree", "hash", "gin", "gist", "spgist"])
def test_an_index_finds_what_a_scan_finds(table: Twins, method: str) -> None:
    """Rows from before the index and after it, changed, deleted, rolled back and compacted."""
    column = {"gin": "(ARRAY[v])", "gist": "(point(v, v))", "spgist": "(point(v, v))"}.get(
        method, "v"
    )
    table.execute("DELETE FROM t WHERE id % 9 = 0; UPDATE t SET v = v + 1 WHERE id % 10 = 0")
    table.same(f"CREATE INDEX i ON t USING {method} ({column})")
    table.execute(
        "INSERT INTO t SELECT g, g % 500, 'late', 1 FROM generate_series(5000, 6500) AS g; INSERT INTO t VALUES (7000, NULL, NULL, NULL)",
        "BEGIN; INSERT INTO t SELECT g, 7, 'rolled back', 1 FROM generate_series(8000, 8100) AS g; ROLLBACK",
    )
    questions = list(QUESTIONS)
    if method == "gin":
        questions += [
            "SELECT id FROM t WHERE ARRAY[v] @> '{7}' ORDER BY id",
            "SELECT count(*) FROM t WHERE ARRAY[v] && '{1,2}'",
        ]
    if method in ("gist", "spgist"):
        questions += [
            "SELECT id FROM t WHERE point(v, v) <@ box '(5,5),(7,7)' ORDER BY id",
            "SELECT count(*) FROM t WHERE point(v, v) >> point '(490,0)'",
        ]
    for round_ in range(2):
        for _ in with_every_scan(table):
            table.all_same(questions)
        with table.transaction():
            table.execute(
                "UPDATE t SET v = 7 WHERE id IN (11, 5001); INSERT INTO t VALUES (9000, 7, 'own', 1); DELETE FROM t WHERE id = 7"
            )
            for _ in with_every_scan(table):
                table.all_same(questions)
        if round_ == 0:
            table.columnar.execute("SELECT strata_columnar.columnar_compact('t')")
            table.execute("VACUUM t", "REINDEX INDEX i")
    table.execute(
        "SET enable_seqscan = off; SET enable_bitmapscan = "
        + ("off" if method in ("btree", "hash") else "on")
    )
    probe = {
        "gin": "ARRAY[v] @> '{7}'",
        "gist": "point(v, v) <@ box '(5,5),(7,7)'",
        "spgist": "point(v, v) <@ box '(5,5),(7,7)'",
    }.get(method, "v = 7")
    assert re.search(r" on i\b| using i\b", table.plan(f"SELECT id FROM t WHERE {probe}"))


def test_brin_is_refused_by_any_name(table: Twins) -> None:
    """It summarises blocks of the file up to the file's length, and tids name other blocks."""
    side = table.columnar
    side.execute("CREATE ACCESS METHOD twin TYPE INDEX HANDLER brinhandler")
    side.execute(
        "CREATE OPERATOR CLASS twin_ops DEFAULT FOR TYPE integer USING twin AS"
        " OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,"
        " FUNCTION 1 brin_minmax_opcinfo(internal),"
        " FUNCTION 2 brin_minmax_add_value(internal, internal, internal, internal),"
        " FUNCTION 3 brin_minmax_consistent(internal, internal, internal),"
        " FUNCTION 4 brin_minmax_union(internal, internal, internal)"
    )
    try:
        for method in ("brin", "twin"):
            for concurrently in ("", "CONCURRENTLY"):
                outcome = side.run(f"CREATE INDEX {concurrently} i ON t USING {method} (v)")
                assert outcome.sqlstate == "0A000", outcome
                side.execute("DROP INDEX IF EXISTS i")
    finally:
        side.execute("DROP ACCESS METHOD twin CASCADE")


def test_index_scans_in_both_directions(table: Twins) -> None:
    table.execute(
        "CREATE INDEX ON t (v, id); CREATE INDEX ON t (s DESC NULLS FIRST); SET enable_sort = off; SET enable_seqscan = off; SET enable_bitmapscan = off"
    )
    for order in ("v, id", "v DESC, id DESC", "s DESC, id", "s NULLS LAST, id"):
        table.same(f"SELECT id, v, s FROM t ORDER BY {order}")
        with table.transaction():
            table.execute(
                f"DECLARE c SCROLL CURSOR FOR SELECT id, v FROM t WHERE v > 10 ORDER BY {order}"
            )
            for fetch in ("5", "BACKWARD 3", "LAST", "BACKWARD 2", "ABSOLUTE 100", "FIRST"):
                table.same(f"FETCH {fetch} FROM c", ordered=True)
    table.same("SELECT DISTINCT v FROM t WHERE v < 20 ORDER BY v")
    table.same("SELECT * FROM t WHERE v = ANY (ARRAY[5, 3, 400]) ORDER BY v, id")


def test_index_only_scans(table: Twins) -> None:
    table.execute(
        "CREATE INDEX i ON t (v) INCLUDE (n)",
        "VACUUM t",
        "SET enable_seqscan = off; SET enable_bitmapscan = off",
    )
    table.execute("DELETE FROM t WHERE v = 5; UPDATE t SET n = 0 WHERE v = 6")
    table.same("SELECT v, n FROM t WHERE v BETWEEN 4 AND 8 ORDER BY v, n")
    table.same("SELECT count(*) FROM t WHERE v > 100")
    table.execute("VACUUM t")
    table.same("SELECT v, n FROM t WHERE v BETWEEN 4 AND 8 ORDER BY v, n")


def test_indexes_on_every_sort_of_expression(table: Twins) -> None:
    table.all_same(
        (
            "CREATE INDEX ON t (lower(s), (v % 7))",
            "CREATE INDEX ON t (id) WHERE v < 50",
            "CREATE INDEX ON t USING hash (s)",
            "CREATE INDEX ON t (n, s, id) INCLUDE (v)",
            "CREATE INDEX ON t ((v + id), (n > 5))",
        )
    )
    for _ in with_every_scan(table):
        table.all_same(
            (
                "SELECT id FROM t WHERE lower(s) = 'row 5' AND v % 7 = 2 ORDER BY id",
                "SELECT id FROM t WHERE id < 700 AND v < 50 ORDER BY id",
                "SELECT count(*) FROM t WHERE s = 'row 9'",
                "SELECT v FROM t WHERE n > 990 AND s = 'row 99' ORDER BY id",
                "SELECT count(*) FROM t WHERE (v < 3 OR s = 'row 4') AND n < 800",
            )
        )


def test_indexes_built_concurrently_and_again(table: Twins) -> None:
    table.all_same(
        (
            "CREATE INDEX CONCURRENTLY a ON t (v)",
            "CREATE UNIQUE INDEX CONCURRENTLY b ON t (id)",
            "DELETE FROM t WHERE id % 4 = 0",
            "REINDEX INDEX a",
            "REINDEX TABLE t",
            "REINDEX TABLE CONCURRENTLY t",
            "REINDEX INDEX CONCURRENTLY b",
            "SELECT indexrelid::regclass, indisvalid, indisunique FROM pg_index WHERE indrelid = 't'::regclass ORDER BY 1",
        )
    )
    table.fails("CREATE UNIQUE INDEX CONCURRENTLY c ON t (v)", "23505")
    table.same("DROP INDEX CONCURRENTLY c")
    table.execute("SET enable_seqscan = off")
    table.all_same(QUESTIONS)
    table.fails("INSERT INTO t VALUES (1, 1, 'duplicate', 1)", "23505")


def test_an_index_built_in_the_transaction_that_wrote(twins: Twins) -> None:
    with twins.transaction():
        twins.execute(
            TABLE,
            FILL,
            "SAVEPOINT a",
            "INSERT INTO t VALUES (9000, 7, 'lost', 1)",
            "ROLLBACK TO a",
            "DELETE FROM t WHERE id = 14",
            "CREATE INDEX ON t (v)",
        )
        twins.execute("INSERT INTO t VALUES (9001, 7, 'new', 1); SET LOCAL enable_seqscan = off")
        twins.all_same(QUESTIONS)
    twins.execute("SET enable_seqscan = off")
    twins.all_same(QUESTIONS)


@pytest.mark.parametrize("leader", ["on", "off"])
def test_a_parallel_build_sees_the_rows_that_its_transaction_wrote(
    twins: Twins, leader: str
) -> None:
    """Rows are in the session's write buffer until somebody reads them, which its workers cannot."""
    twins.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, v integer) WITH (parallel_workers = 2)",
        f"SET parallel_leader_participation = {leader}; SET min_parallel_table_scan_size = 0",
    )
    for round_ in range(8):
        first = round_ * 10000
        with twins.transaction():
            twins.execute(
                f"INSERT INTO t SELECT g, g % 10 FROM generate_series({first}, {first + 3000}) AS g",
                "SAVEPOINT a",
                f"INSERT INTO t SELECT g, g % 10 FROM generate_series({first + 5000}, {first + 6000}) AS g",
                "REINDEX TABLE t",
                f"CREATE INDEX i{round_} ON t (v)",
            )
        check_indexes(twins.columnar.connection, "t")


def test_an_index_built_while_an_older_snapshot_needs_deleted_rows(table: Twins) -> None:
    others = [table.open_side("heap"), table.open_side("columnar")]
    for side, other in zip(table.sides, others, strict=True):
        other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        side.execute("DELETE FROM t WHERE id < 3000; CREATE INDEX i ON t (v)")
        assert side.execute("SELECT count(*) FROM t WHERE v = 7") == [(2,)]
        assert other.execute("SELECT count(*) FROM t WHERE v = 7") == [(8,)]
        other.execute("SET enable_seqscan = off")
        assert other.execute("SELECT count(*) FROM t WHERE v = 7") == [(8,)]
        other.connection.close()


def test_bitmap_scans_with_many_rows(twins: Twins) -> None:
    """Also lossy ones: with a small work_mem the bitmap names pages (of 291 rows) only."""
    twins.execute(
        "CREATE TABLE t (id integer, v integer, w integer)",
        "INSERT INTO t SELECT g, hashint4(g) % 1000, g % 1000 FROM generate_series(1, 100000) AS g",
        "CREATE INDEX ON t (v); CREATE INDEX ON t (w); ANALYZE t",
        "SET enable_seqscan = off; SET enable_indexscan = off; DELETE FROM t WHERE id % 1000 = 5",
    )
    for memory in ("4MB", "64kB"):
        twins.execute(f"SET work_mem = '{memory}'")
        twins.same("SELECT count(*), sum(id) FROM t WHERE v BETWEEN 3 AND 400")
        twins.same("SELECT count(*), sum(id) FROM t WHERE v > 500 AND w < 300")
        twins.same("SELECT count(*), sum(id) FROM t WHERE v = 5 OR w = 5 OR w > 990")
        assert "Bitmap" in twins.plan("SELECT count(*), sum(id) FROM t WHERE v > 500 AND w < 300")
    twins.same("UPDATE t SET w = -1 WHERE v BETWEEN 3 AND 100")
    twins.same("SELECT count(*), sum(id) FROM t WHERE w = -1")


def test_parallel_index_scans_see_the_rows_of_their_own_transaction(twins: Twins) -> None:
    """Workers cannot look into the leader's write buffers."""
    twins.execute(
        "CREATE TABLE t (id bigint PRIMARY KEY, v integer, k integer, s text)",
        "INSERT INTO t SELECT g, g % 7, CASE WHEN g / 600 % 2 = 1 THEN g END, md5(g::text) FROM generate_series(1, 2500) AS g",
        "CREATE INDEX ON t (k)",
        "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET min_parallel_index_scan_size = 0",
        "SET parallel_leader_participation = off; SET enable_sort = off; SET enable_seqscan = off",
    )
    queries = (
        "SELECT k, count(*), count(DISTINCT s), count(*) FILTER (WHERE v = 9) FROM t WHERE v >= 0 GROUP BY k HAVING count(*) > 1",
        "SELECT count(*), sum(v) FROM t WHERE id > 2000",
        "SELECT count(*), sum(v) FROM t WHERE k IS NULL AND id % 2 = 0",
    )
    for statement in (
        "UPDATE t SET v = 9 WHERE id % 5 = 3",
        "INSERT INTO t VALUES (9000, 9, NULL, 'x')",
        "DELETE FROM t WHERE id % 9 = 1",
    ):
        for query in queries:
            with twins.transaction("ROLLBACK"):
                twins.execute("SAVEPOINT a", statement)
                twins.same(query)
    assert "Parallel Index Scan" in twins.plan(queries[0])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_bitmap_scans_beyond_a_segment_of_the_file(twins: Twins) -> None:
    """41 million rows have logical blocks beyond 131072, which the executor would prefetch from the file."""
    side = twins.columnar
    side.execute("SET maintenance_work_mem = '512MB'; SET max_parallel_maintenance_workers = 0")
    side.execute("CREATE TABLE t (id integer, v integer)")
    side.execute("INSERT INTO t SELECT g, g % 1000003 FROM generate_series(1, 41000000) AS g")
    side.execute(
        "CREATE INDEX ON t (v); SET enable_seqscan = off; SET enable_indexscan = off; SET effective_io_concurrency = 8"
    )
    assert "Bitmap" in twins.plan("SELECT count(*), sum(id) FROM t WHERE v BETWEEN 5 AND 9")
    rows = [n for first in range(5, 10) for n in range(first, 41000001, 1000003)]
    assert side.execute("SELECT count(*), sum(id) FROM t WHERE v BETWEEN 5 AND 9") == [
        (len(rows), sum(rows))
    ]
    side.execute("SET enable_bitmapscan = off; SET enable_indexscan = on")
    assert side.execute("SELECT count(*), max(id) FROM t WHERE v = 7") == [(41, 7 + 40 * 1000003)]


# ---- unique ---------------------------------------------------------------------------------------------------


def test_unique_constraints(table: Twins) -> None:
    table.execute("ALTER TABLE t ADD PRIMARY KEY (id)")
    table.same("CREATE UNIQUE INDEX ON t (s, v, n) WHERE v > 490")
    table.fails("INSERT INTO t VALUES (1, 1, 'x', 1)", "23505")
    table.fails(
        "INSERT INTO t SELECT g, 1, 'x', 1 FROM generate_series(5000, 3999, -1) AS g", "23505"
    )
    table.fails("INSERT INTO t VALUES (5000, 1, 'a', 1), (5000, 2, 'b', 1)", "23505")
    table.fails("UPDATE t SET id = 5 WHERE id = 6", "23505")
    table.fails("UPDATE t SET id = id + 1", "23505")
    table.fails("INSERT INTO t VALUES (NULL, 1, 'x', 1)", "23502")
    table.same(CHECKSUM)
    table.same("UPDATE t SET id = id + 10000")
    table.same("UPDATE t SET id = id - 9999")
    table.same("DELETE FROM t WHERE id = 77")
    table.same("INSERT INTO t VALUES (77, 1, 'again', 1)")
    with table.transaction():
        table.all_same(
            (
                "DELETE FROM t WHERE id = 78",
                "INSERT INTO t VALUES (78, 1, 'again', 1)",
                "SAVEPOINT a",
                "DELETE FROM t WHERE id = 79",
                "ROLLBACK TO a",
            )
        )
        table.all_same(
            (
                "SAVEPOINT b",
                "INSERT INTO t VALUES (6000, 1, 'lost', 1)",
                "ROLLBACK TO b",
                "INSERT INTO t VALUES (6000, 1, 'kept', 1)",
            )
        )
        table.fails("INSERT INTO t VALUES (79, 1, 'x', 1)", "23505")
        table.execute("ROLLBACK; BEGIN")
    table.same(CHECKSUM)


def test_deferred_unique_constraints(twins: Twins) -> None:
    twins.execute(
        "CREATE TABLE t (id integer UNIQUE DEFERRABLE INITIALLY DEFERRED, v integer, s text, n integer UNIQUE DEFERRABLE)"
    )
    twins.same("INSERT INTO t SELECT g, g, 's', g FROM generate_series(1, 1500) AS g")
    twins.same("UPDATE t SET n = n + 1")
    with twins.transaction():
        twins.all_same(
            (
                "UPDATE t SET id = id + 1 WHERE id < 100",
                "INSERT INTO t VALUES (500, 0, 'x', 9000)",
                "UPDATE t SET id = id + 2000 WHERE id IN (100, 500) AND v <> 0",
            )
        )
    twins.execute("BEGIN; INSERT INTO t VALUES (7, 0, 'x', 9001)")
    twins.fails("COMMIT", "23505")
    twins.execute("BEGIN; INSERT INTO t VALUES (7, 0, 'x', 9001)")
    twins.fails("SET CONSTRAINTS ALL IMMEDIATE", "23505")
    twins.reset()
    twins.same(CHECKSUM)


def test_nulls_and_equal_values_in_unique_indexes(twins: Twins) -> None:
    twins.execute("CREATE TABLE t (n numeric UNIQUE, f float8 UNIQUE, c char(5) UNIQUE, k integer)")
    twins.same(
        "INSERT INTO t VALUES (1.10, 0, 'a', 1), (NULL, NULL, NULL, 2), (NULL, NULL, NULL, 3)"
    )
    twins.fails("INSERT INTO t (n) VALUES (1.1)", "23505")
    twins.fails("INSERT INTO t (f) VALUES ('-0')", "23505")
    twins.fails("INSERT INTO t (c) VALUES ('a  ')", "23505")
    twins.same("CREATE UNIQUE INDEX i ON t (k) NULLS NOT DISTINCT")
    twins.same("INSERT INTO t (n) VALUES (5)")
    twins.fails("INSERT INTO t (n) VALUES (6)", "23505")
    twins.same("SELECT * FROM t ORDER BY k")


def test_check_and_not_null_constraints(table: Twins) -> None:
    table.same("ALTER TABLE t ADD CONSTRAINT small CHECK (v < 1000) NOT VALID")
    table.fails("INSERT INTO t VALUES (1, 1000, 'x', 1)", "23514")
    table.fails("UPDATE t SET v = v + 990", "23514")
    table.same("ALTER TABLE t VALIDATE CONSTRAINT small")
    table.fails("ALTER TABLE t ADD CHECK (v < 400)", "23514")
    table.same("ALTER TABLE t ALTER s SET NOT NULL")
    table.fails("UPDATE t SET s = NULL WHERE id = 5", "23502")
    table.same(CHECKSUM)


def test_exclusion_constraints(twins: Twins) -> None:
    twins.execute(
        "CREATE TABLE t (room integer, during int4range, EXCLUDE USING gist (during WITH &&), EXCLUDE USING hash (room WITH =))"
    )
    twins.same(
        "INSERT INTO t SELECT g, int4range(g * 10, g * 10 + 5) FROM generate_series(1, 1200) AS g"
    )
    twins.fails("INSERT INTO t VALUES (5000, '[12,13)')", "23P01")
    twins.fails("INSERT INTO t VALUES (7, '[100000,100001)')", "23P01")
    twins.same("INSERT INTO t VALUES (5000, '[16,18)')")
    twins.fails("UPDATE t SET during = '[16,17)' WHERE room = 9", "23P01")
    twins.same("DELETE FROM t WHERE room = 5000")
    twins.same("UPDATE t SET during = '[16,17)' WHERE room = 9")
    twins.same("INSERT INTO t VALUES (5001, '[16,17)') ON CONFLICT DO NOTHING")
    twins.same("SELECT * FROM t ORDER BY room")


# ---- foreign keys ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parent", "child"), [("{am}", "{am}"), ("heap", "{am}"), ("{am}", "heap")]
)
def test_foreign_keys(twins: Twins, parent: str, child: str) -> None:
    twins.execute(
        f"CREATE TABLE p (id integer PRIMARY KEY, v integer, UNIQUE (id, v)) USING {parent}",
        f"CREATE TABLE c (id integer PRIMARY KEY, a integer REFERENCES p ON DELETE CASCADE ON UPDATE CASCADE,"
        f" b integer REFERENCES p ON DELETE SET NULL, d integer DEFAULT 1 REFERENCES p ON DELETE SET DEFAULT) USING {child}",
        "INSERT INTO p SELECT g, g * 2 FROM generate_series(1, 1500) AS g",
    )
    twins.same(
        "INSERT INTO c SELECT g, g % 300 + 1, g % 200 + 301, g % 100 + 501 FROM generate_series(1, 1200) AS g"
    )
    twins.fails("INSERT INTO c VALUES (2000, 9999, 1, 1)", "23503")
    twins.fails("UPDATE c SET a = 9999 WHERE id = 5", "23503")
    twins.all_same(
        (
            "DELETE FROM p WHERE id BETWEEN 5 AND 10",
            "UPDATE p SET id = id + 10000 WHERE id BETWEEN 20 AND 25",
            "DELETE FROM p WHERE id BETWEEN 310 AND 320",
            "DELETE FROM p WHERE id BETWEEN 505 AND 510",
            "UPDATE p SET v = v + 1 WHERE id < 400",
            "SELECT * FROM c ORDER BY id",
            "SELECT count(*), sum(id), sum(v) FROM p",
        )
    )
    twins.execute(
        f"CREATE TABLE r (id integer, v integer, FOREIGN KEY (id, v) REFERENCES p (id, v) MATCH FULL DEFERRABLE INITIALLY DEFERRED) USING {child}"
    )
    twins.execute("BEGIN; INSERT INTO r VALUES (3000, 1)")
    twins.fails("COMMIT", "23503")
    with twins.transaction():
        twins.all_same(("INSERT INTO r VALUES (3000, 1)", "INSERT INTO p VALUES (3000, 1)"))
    twins.fails("DELETE FROM p WHERE id = 3000", "23503")
    twins.fails("UPDATE p SET v = 5 WHERE id = 3000", "23503")
    with twins.transaction():
        twins.all_same(("DELETE FROM p WHERE id = 3000", "DELETE FROM r"))
    twins.same("ALTER TABLE c DROP CONSTRAINT c_a_fkey, ADD FOREIGN KEY (a) REFERENCES p NOT VALID")
    twins.same("ALTER TABLE c VALIDATE CONSTRAINT c_a_fkey")
    twins.same("DELETE FROM c WHERE id % 2 = 0")
    twins.fails("DELETE FROM p WHERE id = 50", "23503")
    twins.same("SELECT * FROM c ORDER BY id")


def test_a_foreign_key_to_its_own_table(twins: Twins) -> None:
    twins.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, up integer REFERENCES t ON DELETE CASCADE, s text)"
    )
    twins.same("INSERT INTO t SELECT g, nullif(g / 3, 0), 's' FROM generate_series(1, 1200) AS g")
    twins.fails("INSERT INTO t VALUES (2000, 1999, 'x')", "23503")
    twins.same("DELETE FROM t WHERE id = 4")
    twins.same("SELECT count(*), sum(id) FROM t")
    with twins.transaction():
        twins.all_same(
            (
                "INSERT INTO t VALUES (3000, 3000, 'self')",
                "UPDATE t SET s = 'x' WHERE id = 3000",
                "DELETE FROM t WHERE id = 3000",
            )
        )
    twins.same("TRUNCATE t")


def test_a_foreign_key_between_partitioned_tables(twins: Twins) -> None:
    twins.execute(
        "CREATE TABLE p (id integer PRIMARY KEY, v integer) PARTITION BY HASH (id)",
        "CREATE TABLE p0 PARTITION OF p FOR VALUES WITH (MODULUS 2, REMAINDER 0); CREATE TABLE p1 PARTITION OF p FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
        "CREATE TABLE c (id integer, p integer REFERENCES p ON UPDATE CASCADE ON DELETE CASCADE) PARTITION BY LIST (p)",
        "CREATE TABLE c0 PARTITION OF c DEFAULT",
        "INSERT INTO p SELECT g, g FROM generate_series(1, 300) AS g; INSERT INTO c SELECT g, g % 300 + 1 FROM generate_series(1, 900) AS g",
    )
    twins.fails("INSERT INTO c VALUES (1, 1000)", "23503")
    twins.same("UPDATE p SET id = id + 1000 WHERE id < 20")
    twins.same("DELETE FROM p WHERE id BETWEEN 50 AND 60")
    twins.same("SELECT * FROM c ORDER BY id")
