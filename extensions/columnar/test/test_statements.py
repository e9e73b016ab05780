"""Statements that read and write rows do on a columnar table what they do on a heap table.

Definitions (CREATE, ALTER, partitions ...) are in test_definitions.py, indexes and constraints in
test_constraints.py, cursors in test_cursors.py, several sessions at once in test_isolation.py.
"""

from __future__ import annotations

import pytest

from extensions.columnar.test.twins import Twins

ROWS = "SELECT * FROM t ORDER BY id"

TABLE = "CREATE TABLE t (id integer PRIMARY KEY, v integer, s text)"
FILL = "INSERT INTO t SELECT g, g % 100, 'row ' || g % 17 FROM generate_series(1, 3000) AS g"
CHECKSUM = "SELECT count(*), sum(id), sum(v), md5(string_agg(t::text, '|' ORDER BY id, v)) FROM t"


@pytest.fixture
def table(twins: Twins) -> Twins:
    """Twins with a filled table t (id, v, s)."""
    twins.execute(TABLE, FILL)
    return twins


# ---- COPY -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["", "(FORMAT csv, HEADER)", "(FORMAT binary)"])
def test_copy_out_and_in_again(table: Twins, options: str) -> None:
    data = table.copy_out_same(f"COPY t TO STDOUT {options}")
    table.execute("CREATE TABLE u (LIKE t INCLUDING ALL)")
    table.copy_in(f"COPY u FROM STDIN {options}", data)
    table.same("SELECT * FROM u ORDER BY id")
    assert table.copy_out_same(f"COPY u TO STDOUT {options}") == data


def test_copy_in_the_transaction_that_made_the_table(twins: Twins) -> None:
    data = "".join(f"{n}\t{n % 7}\trow\n" for n in range(5000))
    with twins.transaction():
        twins.execute(TABLE)
        twins.copy_in("COPY t FROM STDIN (FREEZE)", data)
        twins.same(CHECKSUM)
        twins.execute("TRUNCATE t")
        twins.copy_in("COPY t FROM STDIN", data)
    twins.same(CHECKSUM)


def test_copy_of_a_bad_line_leaves_nothing(table: Twins) -> None:
    data = "".join(f"{n}\t1\ta\n" for n in range(10000, 14000))
    table.copy_in("COPY t FROM STDIN", data + "x\t1\ta\n")
    table.same(CHECKSUM)
    table.copy_in("COPY t FROM STDIN", data + "1\t1\tduplicate\n")
    table.same(CHECKSUM)
    table.copy_in("COPY t FROM STDIN", data)
    table.same(CHECKSUM)


def test_copy_with_where_defaults_and_triggers(twins: Twins) -> None:
    twins.execute(
        "CREATE TABLE t (id integer, v integer DEFAULT 7, s text DEFAULT 'none', n integer GENERATED ALWAYS AS (id * 2) STORED)",
        "CREATE FUNCTION {schema}.add() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.v := NEW.v + 1; RETURN NEW; END $$",
        "CREATE TRIGGER b BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION {schema}.add()",
    )
    twins.copy_in("COPY t (id) FROM STDIN WHERE id % 3 = 0", "".join(f"{n}\n" for n in range(3000)))
    twins.same("SELECT * FROM t ORDER BY id")


# ---- INSERT -----------------------------------------------------------------------------------------


def test_insert_select_from_itself_does_not_see_its_own_rows(table: Twins) -> None:
    table.same("INSERT INTO t SELECT id + 10000, v, s FROM t")
    table.same(CHECKSUM)
    with table.transaction():
        table.same("INSERT INTO t SELECT id + 20000, v, s FROM t")
        table.same("INSERT INTO t SELECT id + 40000, v, s FROM t WHERE id > 20000")
        table.same(CHECKSUM)
    table.same(CHECKSUM)


def test_single_rows_in_transactions_of_their_own(twins: Twins) -> None:
    twins.execute(TABLE)
    for number in range(60):
        twins.same(f"INSERT INTO t VALUES ({number}, {number} % 5, 'single')")
        if number % 10 == 0:
            twins.same(ROWS)
    twins.same(ROWS)


def test_returning(table: Twins) -> None:
    table.same(
        "INSERT INTO t VALUES (5001, 1, 'a'), (5002, NULL, NULL) RETURNING *, id + 1 AS next, tableoid::regclass"
    )
    table.same("UPDATE t SET v = v + 1 WHERE id > 2990 RETURNING id, v, s")
    table.same(
        "UPDATE t SET v = u.v FROM t AS u WHERE t.id = u.id + 1 AND t.id BETWEEN 5 AND 9 RETURNING t.*, u.id"
    )
    table.same("DELETE FROM t WHERE id < 10 OR id = 5002 RETURNING *")
    table.same(
        "WITH gone AS (DELETE FROM t WHERE v = 3 RETURNING id, s) INSERT INTO t SELECT id, 1000, s FROM gone RETURNING *"
    )
    table.same(
        "WITH new AS (INSERT INTO t VALUES (7000, 1, 'n') RETURNING id) SELECT count(*) FROM t, new WHERE t.id = 7000"
    )
    table.same(CHECKSUM)


def test_on_conflict(table: Twins) -> None:
    table.same(
        "INSERT INTO t VALUES (1, 0, 'x'), (9001, 0, 'x') ON CONFLICT DO NOTHING RETURNING id"
    )
    table.same(
        "INSERT INTO t VALUES (2, 5, 'y'), (9002, 5, 'y') ON CONFLICT (id) DO UPDATE SET v = t.v + excluded.v, s = excluded.s RETURNING *"
    )
    table.same(
        "INSERT INTO t SELECT g, 1, 'z' FROM generate_series(2900, 3100) AS g ON CONFLICT (id) DO UPDATE SET v = -1 WHERE t.v > 50"
    )
    table.fails(
        "INSERT INTO t VALUES (9100, 1, ''), (9100, 2, '') ON CONFLICT (id) DO UPDATE SET v = 0",
        "21000",
    )
    table.same("INSERT INTO t VALUES (9100, 1, ''), (9100, 2, '') ON CONFLICT DO NOTHING")
    with table.transaction():
        table.same("INSERT INTO t VALUES (9200, 1, 'new')")
        table.same(
            "INSERT INTO t VALUES (9200, 2, 'old') ON CONFLICT (id) DO UPDATE SET s = t.s || excluded.s RETURNING *"
        )
        table.same("DELETE FROM t WHERE id = 9200")
        table.same("INSERT INTO t VALUES (9200, 3, 'again') ON CONFLICT DO NOTHING RETURNING *")
    table.same(CHECKSUM)
    for number in range(20):
        table.same(
            f"INSERT INTO t VALUES ({9300 + number % 3}, 1, 'up') ON CONFLICT (id) DO UPDATE SET v = t.v + 1"
        )
    table.same(CHECKSUM)


# ---- UPDATE, DELETE, MERGE ------------------------------------------------------------------------


def test_update_moves_no_row_twice(table: Twins) -> None:
    table.same("UPDATE t SET v = v + 1")
    table.same("UPDATE t SET id = id + 10000 WHERE id % 2 = 0")
    table.same("UPDATE t SET s = NULL WHERE v BETWEEN 10 AND 20")
    table.same(
        "UPDATE t SET (v, s) = (SELECT count(*), min(u.s) FROM t AS u WHERE u.id < t.id AND u.id > t.id - 3) WHERE id < 50"
    )
    table.same(CHECKSUM)
    for _ in range(5):
        table.same("UPDATE t SET v = v * 2 + 1 WHERE id = 77")
    table.same("SELECT * FROM t WHERE id = 77")
    table.same(
        "UPDATE t SET v = 0 FROM (VALUES (1, 2), (1, 3), (3, 4)) AS u (id, w) WHERE t.id = u.id"
    )
    table.same(CHECKSUM)


def test_delete_of_few_of_many_and_of_all(table: Twins) -> None:
    table.same("DELETE FROM t WHERE id = 1500")
    table.same("DELETE FROM t WHERE id = 1500")
    table.same("DELETE FROM t WHERE id % 10 = 3")
    table.same("DELETE FROM t USING (VALUES (10), (11), (11)) AS u (id) WHERE t.id = u.id")
    table.same(CHECKSUM)
    table.same("DELETE FROM t")
    table.same(CHECKSUM)
    table.same("INSERT INTO t VALUES (1, 1, 'back')")
    table.same(ROWS)


def test_rows_written_and_changed_in_one_transaction(twins: Twins) -> None:
    twins.execute(TABLE)
    with twins.transaction():
        twins.same("INSERT INTO t SELECT g, g, 'x' FROM generate_series(1, 1500) AS g")
        twins.same("UPDATE t SET v = -v WHERE id % 3 = 0")
        twins.same(CHECKSUM)
        twins.same("DELETE FROM t WHERE id % 5 = 0")
        twins.same("INSERT INTO t SELECT g, g, 'y' FROM generate_series(5, 1500, 5) AS g")
        twins.same("UPDATE t SET s = s || v WHERE id < 400")
        twins.same(CHECKSUM)
    twins.same(CHECKSUM)


def test_merge(table: Twins) -> None:
    table.execute(
        "CREATE TABLE source (id integer, v integer) USING heap; INSERT INTO source SELECT g, g FROM generate_series(2950, 3050) AS g"
    )
    table.same(
        "MERGE INTO t USING source AS n ON t.id = n.id WHEN MATCHED AND t.id % 4 = 0 THEN DELETE"
        " WHEN MATCHED AND t.id % 4 = 1 THEN DO NOTHING WHEN MATCHED THEN UPDATE SET v = t.v + n.v, s = 'merged'"
        " WHEN NOT MATCHED AND n.id > 3040 THEN DO NOTHING WHEN NOT MATCHED THEN INSERT VALUES (n.id, n.v, 'inserted')"
    )
    table.same(CHECKSUM)
    table.execute("INSERT INTO source VALUES (2999, 0)")
    table.fails(
        "MERGE INTO t USING source AS n ON t.id = n.id WHEN MATCHED THEN UPDATE SET v = 0", "21000"
    )
    table.same("MERGE INTO source USING t ON t.id = source.id WHEN MATCHED THEN DELETE")
    table.same("SELECT * FROM source ORDER BY id")
    table.same(CHECKSUM)


# ---- savepoints, prepared transactions ----------------------------------------------------------------


def test_savepoints_undo_what_came_after_them(table: Twins) -> None:
    with table.transaction():
        table.all_same(
            (
                "INSERT INTO t VALUES (4001, 1, 'outer')",
                "SAVEPOINT a",
                "INSERT INTO t SELECT g, 1, 'a' FROM generate_series(4100, 4200) AS g",
                "UPDATE t SET v = 1000 WHERE id <= 100",
                "SAVEPOINT b",
                "DELETE FROM t WHERE id <= 50 OR id = 4001",
                "INSERT INTO t VALUES (4001, 2, 'b')",
                CHECKSUM,
                "ROLLBACK TO b",
                CHECKSUM,
                "INSERT INTO t VALUES (4002, 1, 'after b')",
                "RELEASE b",
                CHECKSUM,
                "ROLLBACK TO a",
                CHECKSUM,
                "SAVEPOINT c",
                "UPDATE t SET v = v + 1 WHERE id > 2000",
                "INSERT INTO t VALUES (4003, 3, 'c')",
                "RELEASE c",
                "UPDATE t SET s = 'end' WHERE id = 4003",
                CHECKSUM,
            )
        )
    table.same(CHECKSUM)
    table.same("SELECT * FROM t WHERE id > 3000 ORDER BY id")


def test_an_error_inside_a_savepoint_undoes_only_that(table: Twins) -> None:
    with table.transaction():
        table.same("INSERT INTO t VALUES (4001, 1, 'kept')")
        table.same("SAVEPOINT a")
        table.fails(
            "INSERT INTO t SELECT g, 1, 'dup' FROM generate_series(4010, 3999, -1) AS g", "23505"
        )
        table.same("ROLLBACK TO a")
        table.same("INSERT INTO t VALUES (4010, 1, 'free again')")
        table.same("SAVEPOINT b")
        table.fails("UPDATE t SET v = 1 / (id - 2999)", "22012")
        table.same("ROLLBACK TO b")
        table.same(CHECKSUM)
    table.same(CHECKSUM)


def test_many_subtransactions(twins: Twins) -> None:
    """PL/pgSQL blocks with EXCEPTION: rows of those that failed are gone, all others stay."""
    twins.execute(TABLE)
    block = """DO $$ BEGIN
        FOR i IN 1..400 LOOP
            BEGIN
                INSERT INTO t VALUES (i, i, 'block');
                IF i % 5 = 0 THEN UPDATE t SET v = -1 WHERE id = i - 1; END IF;
                IF i % 7 = 0 THEN DELETE FROM t WHERE id = i - 3; END IF;
                IF i % 3 = 0 THEN PERFORM 1 / 0; END IF;
            EXCEPTION WHEN division_by_zero THEN NULL;
            END;
        END LOOP; END $$"""
    twins.same(block)
    twins.same(ROWS)
    with twins.transaction("ROLLBACK"):
        twins.execute("TRUNCATE t")
        twins.same(block)
        twins.same(ROWS)
    twins.same(ROWS)


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_prepared_transactions(table: Twins, end: str) -> None:
    for side in table.sides:
        gid = f"columnar {side.method} {end}"
        side.execute("BEGIN")
        side.execute("INSERT INTO t SELECT g, 1, 'prepared' FROM generate_series(5000, 7000) AS g")
        side.execute("UPDATE t SET v = v + 1 WHERE id < 500")
        side.execute("DELETE FROM t WHERE id BETWEEN 600 AND 700")
        side.execute("SELECT * FROM t WHERE id = 800 FOR UPDATE")
        side.execute(f"PREPARE TRANSACTION '{gid}'")
    table.same(CHECKSUM)
    table.execute("SET lock_timeout = '50ms'")
    for statement in (
        "UPDATE t SET v = 0 WHERE id = 100", "DELETE FROM t WHERE id = 650", "UPDATE t SET v = 0 WHERE id = 800",
        "INSERT INTO t VALUES (5500, 1, 'waits')", "SELECT * FROM t WHERE id = 800 FOR KEY SHARE", "TRUNCATE t",
    ):  # fmt: skip
        table.fails(statement, "55P03")
    table.same("UPDATE t SET v = 0 WHERE id = 900")
    for side in table.sides:
        side.execute(f"{end} PREPARED 'columnar {side.method} {end}'")
    table.same(CHECKSUM)
    table.same("UPDATE t SET v = 0 WHERE id IN (100, 650, 800)")
    table.same(CHECKSUM)


# ---- TRUNCATE ---------------------------------------------------------------------------------------


def test_truncate(table: Twins) -> None:
    table.same("TRUNCATE t")
    table.same(CHECKSUM)
    table.same(FILL)
    with table.transaction("ROLLBACK"):
        table.all_same(
            (
                "UPDATE t SET v = 0 WHERE id < 9",
                "TRUNCATE t",
                ROWS,
                "INSERT INTO t VALUES (1, 1, 'new')",
                ROWS,
            )
        )
    table.same(CHECKSUM)
    with table.transaction():
        table.all_same(
            (
                "INSERT INTO t VALUES (8000, 1, 'lost')",
                "SAVEPOINT a",
                "TRUNCATE t",
                "INSERT INTO t VALUES (8001, 1, 'lost')",
                "ROLLBACK TO a",
                CHECKSUM,
                "TRUNCATE t",
                "INSERT INTO t VALUES (8002, 1, 'kept')",
                "SAVEPOINT b",
                "TRUNCATE t",
                "INSERT INTO t VALUES (8002, 2, 'kept')",
                "TRUNCATE t",
                "INSERT INTO t VALUES (8002, 3, 'kept')",
                "RELEASE b",
                ROWS,
            )
        )
    table.same(ROWS)


def test_truncate_of_a_table_of_the_same_transaction(twins: Twins) -> None:
    """Such a table is truncated in place: what was buffered or stored for it must not come back."""
    with twins.transaction():
        twins.all_same(
            (
                TABLE,
                FILL,
                "TRUNCATE t",
                CHECKSUM,
                FILL,
                "DELETE FROM t WHERE id < 100",
                "TRUNCATE t",
                FILL,
            )
        )
        twins.all_same(
            (
                "SAVEPOINT a",
                "TRUNCATE t",
                FILL,
                "ROLLBACK TO a",
                CHECKSUM,
                "UPDATE t SET v = 1 WHERE id = 1",
            )
        )
    twins.same(CHECKSUM)


def test_truncate_restarts_identity_and_cascades(twins: Twins) -> None:
    twins.execute(
        "CREATE TABLE p (id integer GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, v integer)",
        "CREATE TABLE c (id integer REFERENCES p)",
        "INSERT INTO p (v) SELECT g FROM generate_series(1, 20) AS g; INSERT INTO c SELECT id FROM p",
    )
    twins.fails("TRUNCATE p", "0A000")
    twins.same("TRUNCATE p RESTART IDENTITY CASCADE")
    twins.same("INSERT INTO p (v) VALUES (1) RETURNING *")
    twins.same("SELECT count(*) FROM c")


def test_a_copy_that_fails_after_many_row_groups_leaves_nothing(twins: Twins) -> None:
    twins.execute(TABLE)
    twins.columnar.execute(
        "SET strata_columnar.row_group_rows = 1024; SET strata_columnar.write_memory = '1MB'"
    )
    data = "".join(f"{n}\t1\t{'x' * 50}\n" for n in range(8000))
    twins.copy_in("COPY t FROM STDIN", data + "7\t1\tduplicate\n")
    twins.same(CHECKSUM)
    with twins.transaction():
        twins.execute("INSERT INTO t VALUES (9000, 1, 'kept')", "SAVEPOINT a")
        twins.copy_in("COPY t FROM STDIN", data + "bad\t1\tx\n")
        twins.execute("ROLLBACK TO a")
        twins.copy_in("COPY t FROM STDIN", data)
        twins.same(CHECKSUM)
    twins.same(CHECKSUM)


# ---- snapshots of functions ----------------------------------------------------------------------------


def test_functions_see_what_their_volatility_promises(table: Twins) -> None:
    for volatility in ("VOLATILE", "STABLE"):
        table.execute(
            f"CREATE OR REPLACE FUNCTION {{schema}}.rows() RETURNS bigint LANGUAGE sql {volatility} AS 'SELECT count(*) FROM {{schema}}.t'"
        )
        table.same("INSERT INTO t SELECT max(id) + 1, {schema}.rows(), 'f' FROM t RETURNING v")
        table.same(
            "INSERT INTO t SELECT 20000 + g + (SELECT max(id) FROM t), {schema}.rows(), 'f' FROM generate_series(1, 4) AS g RETURNING v"
        )
        table.same("UPDATE t SET v = {schema}.rows() WHERE id IN (1, 2) RETURNING v")
        table.same("DELETE FROM t WHERE id > 20000 AND {schema}.rows() > 3000")
    table.same(CHECKSUM)


def test_constraint_triggers_see_the_rows_at_the_end(twins: Twins) -> None:
    twins.execute(
        TABLE,
        "CREATE FUNCTION {schema}.total() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF (SELECT sum(v) FROM {schema}.t) > 100 THEN RAISE EXCEPTION 'too much' USING ERRCODE = 'P0042'; END IF; RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER c AFTER INSERT OR UPDATE ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.total()",
    )
    with twins.transaction():
        twins.same("INSERT INTO t VALUES (1, 500, 'a')")
        twins.same("UPDATE t SET v = 50")
    twins.execute("BEGIN; INSERT INTO t VALUES (2, 60, 'b')")
    twins.fails("COMMIT", "P0042")
    twins.same(ROWS)


# ---- triggers, generated columns, policies ------------------------------------------------------------


def test_row_triggers_before_and_after(twins: Twins) -> None:
    twins.execute(
        TABLE,
        "CREATE TABLE log (n integer GENERATED ALWAYS AS IDENTITY, line text) USING heap",
        "CREATE FUNCTION {schema}.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO {schema}.log (line) VALUES (concat_ws(' ', TG_WHEN, TG_OP, OLD, NEW, (SELECT count(*) FROM {schema}.t)));"
        " IF TG_WHEN = 'BEFORE' AND TG_OP <> 'DELETE' THEN IF NEW.v = 13 THEN RETURN NULL; END IF; NEW.s := NEW.s || '!'; END IF;"
        " RETURN coalesce(NEW, OLD); END $$",
        "CREATE TRIGGER b BEFORE INSERT OR UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION {schema}.note()",
        "CREATE TRIGGER a AFTER INSERT OR UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION {schema}.note()",
    )
    twins.all_same(
        (
            "INSERT INTO t SELECT g, g, 's' FROM generate_series(1, 15) AS g",
            "UPDATE t SET v = v + 1 WHERE id > 11",
            "DELETE FROM t WHERE id IN (3, 4)",
            "INSERT INTO t VALUES (5, 99, 'c'), (20, 1, 'c') ON CONFLICT (id) DO UPDATE SET v = excluded.v",
            "SELECT line FROM log ORDER BY n",
            ROWS,
        )
    )


def test_triggers_that_write_to_the_table_itself_and_to_others(twins: Twins) -> None:
    """Buffers of several tables and commands are open at once, inside and outside of subtransactions."""
    twins.execute(
        TABLE,
        "CREATE TABLE other (id integer PRIMARY KEY, n integer)",
        "CREATE FUNCTION {schema}.spread() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO {schema}.other VALUES (NEW.id % 50, 1) ON CONFLICT (id) DO UPDATE SET n = other.n + 1;"
        " IF NEW.id < 1000 AND NEW.id % 3 = 0 THEN INSERT INTO {schema}.t VALUES (NEW.id + 1000, NEW.v, 'child'); END IF;"
        " BEGIN INSERT INTO {schema}.t VALUES (NEW.id / 2 + 5000, 1, 'once'); EXCEPTION WHEN unique_violation THEN NULL; END;"
        " UPDATE {schema}.t SET v = v + 1 WHERE id = NEW.id - 1; RETURN NULL; END $$",
        "CREATE TRIGGER a AFTER INSERT ON t FOR EACH ROW WHEN (NEW.id < 5000) EXECUTE FUNCTION {schema}.spread()",
    )
    twins.same("INSERT INTO t SELECT g, g, 'parent' FROM generate_series(1, 200) AS g")
    twins.same(CHECKSUM)
    twins.same("SELECT * FROM other ORDER BY id")
    with twins.transaction("ROLLBACK"):
        twins.same("INSERT INTO t VALUES (300, 1, 'x'), (301, 1, 'x')")
        twins.same(CHECKSUM)
    twins.same(CHECKSUM)


def test_transition_tables(table: Twins) -> None:
    table.execute(
        "CREATE TABLE log (line text) USING heap",
        "CREATE FUNCTION {schema}.sums() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO {schema}.log SELECT (SELECT concat(count(*), ' ', sum(v)) FROM old_rows) || ' -> ' || (SELECT concat(count(*), ' ', sum(v)) FROM new_rows);"
        " RETURN NULL; END $$",
        "CREATE TRIGGER s AFTER UPDATE ON t REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION {schema}.sums()",
    )
    table.same("UPDATE t SET v = v * 2 WHERE id % 4 = 0")
    table.same("SELECT * FROM log")


def test_a_trigger_that_updates_the_row_under_the_statement(twins: Twins) -> None:
    twins.execute(
        TABLE, FILL,
        "CREATE FUNCTION {schema}.touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE {schema}.t SET s = 'touched' WHERE id = OLD.id; RETURN coalesce(NEW, OLD); END $$",
        "CREATE TRIGGER b BEFORE UPDATE OR DELETE ON t FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION {schema}.touch()",
    )  # fmt: skip
    twins.fails("UPDATE t SET v = 1 WHERE id = 5", "27000")
    twins.fails("DELETE FROM t WHERE id = 6", "27000")
    twins.same(CHECKSUM)


def test_generated_columns_and_identity(twins: Twins) -> None:
    twins.execute(
        "CREATE TABLE t (id integer GENERATED ALWAYS AS IDENTITY (START 10 INCREMENT 5), v integer,"
        " twice integer GENERATED ALWAYS AS (v * 2) STORED, s text DEFAULT 'd', serial_ serial)"
    )
    twins.same("INSERT INTO t (v) SELECT g FROM generate_series(1, 1100) AS g RETURNING id")
    twins.fails("INSERT INTO t (id, v) VALUES (1, 1)", "428C9")
    twins.fails("UPDATE t SET twice = 1", "428C9")
    twins.same("INSERT INTO t (id, v) OVERRIDING SYSTEM VALUE VALUES (1, 1) RETURNING *")
    twins.same("UPDATE t SET v = v + 1 WHERE twice % 3 = 0 RETURNING *")
    twins.same("UPDATE t SET id = DEFAULT WHERE v = 5 RETURNING *")
    twins.same("SELECT * FROM t ORDER BY serial_")


def test_row_security(twins: Twins) -> None:
    twins.execute(
        TABLE, FILL,
        "DO $$ BEGIN CREATE ROLE columnar_reader; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        "GRANT USAGE ON SCHEMA {schema} TO columnar_reader; GRANT ALL ON t TO columnar_reader",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY p ON t USING (v < 10) WITH CHECK (v < 20)",
        "SET ROLE columnar_reader",
    )  # fmt: skip
    twins.same(CHECKSUM)
    twins.same("SELECT count(*) FROM t WHERE v = 50")
    twins.same("UPDATE t SET s = 'mine' WHERE id < 200")
    twins.fails("UPDATE t SET v = 30 WHERE id = 1", "42501")
    twins.fails("INSERT INTO t VALUES (4000, 40, 'x')", "42501")
    twins.same("DELETE FROM t WHERE id < 1000")
    twins.execute("RESET ROLE")
    twins.same(CHECKSUM)


# ---- reading ------------------------------------------------------------------------------------------


def test_rows_by_their_tid(table: Twins) -> None:
    """A tid is a row's for its life, so it can be asked for again; what it is differs from heap's."""
    for side in table.sides:
        (first, *_), *_ = rows = side.execute(
            "SELECT ctid::text, id FROM t WHERE id IN (7, 1024, 3000) ORDER BY id"
        )
        for tid, number in rows:
            assert side.execute(f"SELECT id FROM t WHERE ctid = '{tid}'") == [(number,)]
        tids = ", ".join(f"'{tid}'" for tid, _ in rows)
        assert side.execute(
            f"SELECT id FROM t WHERE ctid = ANY (ARRAY[{tids}]::tid[]) ORDER BY id"
        ) == [(7,), (1024,), (3000,)]
        assert side.execute(
            "SELECT count(*) FROM t WHERE ctid IN ('(0,0)', '(4000000000,1)', '(1000000,291)')"
        ) == [(0,)]
        side.execute(f"DELETE FROM t WHERE ctid = '{first}'")
        assert side.execute(f"SELECT id FROM t WHERE ctid = '{first}'") == []
        side.execute(f"UPDATE t SET v = -5 WHERE ctid = '{rows[1][0]}'")
    table.same(
        "SELECT a.id FROM t AS a JOIN t AS b ON a.ctid = b.ctid WHERE a.v = 7 AND b.id < 500 ORDER BY 1"
    )
    table.same("SELECT id FROM t WHERE ctid = ANY (ARRAY(SELECT ctid FROM t WHERE v = -5))")
    table.same(
        "UPDATE t SET s = 'by tid' FROM (SELECT ctid AS c FROM t WHERE id < 20) AS u WHERE t.ctid = u.c"
    )
    table.same("DELETE FROM t WHERE ctid IN (SELECT ctid FROM t WHERE v = 3 ORDER BY id LIMIT 10)")
    table.same(CHECKSUM)


def test_ranges_of_tids_cut_the_table_without_gap_or_overlap(table: Twins) -> None:
    for bound in ("(0,1)", "(1,5)", "(5,0)", "(9,291)", "(100,1)", "(4294967295,1)"):
        (below,), (above,) = table.columnar.execute(
            f"SELECT count(*) FROM t WHERE ctid < '{bound}' UNION ALL SELECT count(*) FROM t WHERE ctid >= '{bound}'"
        )
        assert below + above == 3000
    assert table.columnar.execute(
        "SELECT count(*) FROM t WHERE ctid > '(1,0)' AND ctid < '(2,0)'"
    ) == [(291,)]


def test_system_columns(table: Twins) -> None:
    table.same("SELECT DISTINCT tableoid::regclass FROM t")
    with table.transaction("ROLLBACK"):
        table.execute("INSERT INTO t VALUES (9000, 1, 'x')")
        table.same("SELECT count(*) FROM t WHERE tableoid = 't'::regclass AND id = 9000")


def test_whole_rows_and_nothing_of_a_row(table: Twins) -> None:
    table.same("SELECT t FROM t WHERE id < 5 ORDER BY id")
    table.same("SELECT FROM t WHERE id < 5")
    table.same("SELECT 1 FROM t WHERE id < 5")
    table.same("SELECT count(*) FROM t")
    table.same("SELECT row_to_json(t) FROM t WHERE id = 7")
    table.same("SELECT count(t) FROM t WHERE t IS NOT NULL")
    table.same("SELECT DISTINCT (t).s FROM t ORDER BY 1")


def test_tablesample(table: Twins) -> None:
    """BERNOULLI depends on tids and SYSTEM on pages: what is promised is repeatability and size."""
    table.execute("TRUNCATE t; INSERT INTO t SELECT g, g, 'x' FROM generate_series(1, 60000) AS g")
    for method in ("SYSTEM", "BERNOULLI"):
        everything = f"SELECT count(*), sum(id) FROM t TABLESAMPLE {method} (100)"
        nothing = f"SELECT count(*), sum(id) FROM t TABLESAMPLE {method} (0)"
        table.all_same((everything, nothing))
        sample = f"SELECT id FROM t TABLESAMPLE {method} (20) REPEATABLE (7)"
        first = table.columnar.execute(sample)
        assert first == table.columnar.execute(sample)
        assert 6000 < len(first) < 24000
        assert len(set(first)) == len(first)
        assert first != table.columnar.execute(sample.replace("(7)", "(8)"))
        table.execute("DELETE FROM t WHERE id % 2 = 0")
        again = table.columnar.execute(sample)
        assert again
        assert all(number % 2 for (number,) in again)
        table.execute("INSERT INTO t SELECT g, g, 'y' FROM generate_series(2, 60000, 2) AS g")


def test_joins_and_subqueries(table: Twins) -> None:
    table.execute(
        "CREATE TABLE u (id integer, k integer); INSERT INTO u SELECT g, g % 50 FROM generate_series(1, 200) AS g"
    )
    table.all_same(
        (
            "SELECT t.s, count(*), sum(u.id) FROM t JOIN u ON t.v = u.k GROUP BY t.s ORDER BY 1",
            "SELECT u.k, t.id FROM u LEFT JOIN t ON t.id = u.id * 20 AND t.v > 10 ORDER BY 1, 2",
            "SELECT count(*) FROM t FULL JOIN u ON t.id = u.id + 2900",
            "SELECT count(*) FROM t WHERE EXISTS (SELECT FROM u WHERE u.k = t.v)",
            "SELECT count(*) FROM t WHERE v NOT IN (SELECT k FROM u WHERE k > 3)",
            "SELECT id, (SELECT max(u.id) FROM u WHERE u.k = t.v) FROM t WHERE id < 40 ORDER BY 1",
            "SELECT * FROM u, LATERAL (SELECT count(*), min(t.id) FROM t WHERE t.v = u.k) AS l ORDER BY 1",
            "SELECT id, sum(v) OVER (ORDER BY id ROWS 3 PRECEDING), lag(s) OVER (PARTITION BY v ORDER BY id) FROM t ORDER BY 1",
            "SELECT DISTINCT ON (v) v, id FROM t ORDER BY v, id DESC",
            "SELECT v, s, count(*) FROM t WHERE v < 4 GROUP BY GROUPING SETS ((v), (s), ()) ORDER BY 1, 2",
            "(SELECT v FROM t WHERE id < 100 EXCEPT SELECT k FROM u) UNION ALL SELECT 5 ORDER BY 1",
            "WITH RECURSIVE r AS (SELECT 1 AS id UNION ALL SELECT t.id FROM r JOIN t ON t.id = r.id * 2) SELECT * FROM r ORDER BY 1",
            "SELECT v FROM t ORDER BY v FETCH FIRST 3 ROWS WITH TIES",
        )
    )
    for setting in (
        "hashjoin",
        "mergejoin",
        "seqscan",
        "indexscan",
        "bitmapscan",
        "sort",
        "material",
        "memoize",
        "hashagg",
    ):
        table.execute(f"SET enable_{setting} = off")
        table.same(
            "SELECT t.s, count(*), sum(u.id) FROM t JOIN u ON t.id = u.id * 3 GROUP BY t.s ORDER BY 1"
        )
        table.same(
            "SELECT a.id, b.id FROM t AS a JOIN t AS b ON a.id = b.id + 1 AND b.v = 3 ORDER BY 1"
        )


def test_locking_clauses(table: Twins) -> None:
    for strength in ("UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"):
        with table.transaction():
            table.same(f"SELECT * FROM t WHERE id IN (5, 2000) ORDER BY id FOR {strength}")
            table.same("UPDATE t SET v = v + 1 WHERE id = 5 RETURNING v")
            table.same(
                f"SELECT * FROM t WHERE id IN (5, 2000) ORDER BY id FOR {strength} SKIP LOCKED"
            )
            table.same("DELETE FROM t WHERE id = 2000 AND v > 5000")
    with table.transaction("ROLLBACK"):
        table.all_same(
            (
                "SAVEPOINT a",
                "SELECT id FROM t WHERE v = 9 FOR UPDATE",
                "ROLLBACK TO a",
                "DELETE FROM t WHERE v = 9",
            )
        )
    table.same("SELECT * FROM t WHERE v = 5 ORDER BY id LIMIT 3 FOR UPDATE")
    table.same(CHECKSUM)


# ---- big rows ---------------------------------------------------------------------------------------------


def test_values_of_some_megabytes(twins: Twins) -> None:
    twins.execute("CREATE TABLE t (id integer, b bytea, x text)")
    twins.same(
        "INSERT INTO t SELECT g, decode(repeat(md5(g::text), 50000 * g), 'hex'), (SELECT string_agg(md5((g * 100000 + i)::text), '')"
        " FROM generate_series(1, 60000) AS i) FROM generate_series(1, 4) AS g"
    )
    hashes = "SELECT id, length(b), md5(b), length(x), md5(x), right(x, 5) FROM t ORDER BY id"
    twins.same(hashes)
    twins.same("UPDATE t SET x = x || x WHERE id = 2")
    twins.same("INSERT INTO t SELECT 10 + id, b || b, left(x, 3) FROM t WHERE id < 4")
    twins.same("SELECT count(*) FROM t WHERE x > 'a' AND b <> ''")
    twins.same(hashes)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_values_of_hundreds_of_megabytes(twins: Twins) -> None:
    twins.execute("CREATE TABLE t (id integer, x text)")
    for number, size in enumerate((100, 200, 300)):
        twins.same(
            f"INSERT INTO t SELECT {number}, repeat(md5('{number}'), {size} * 1024 * 1024 / 32)"
        )
    twins.same("SELECT id, length(x), md5(x) FROM t ORDER BY id")
    twins.same("UPDATE t SET id = id + 10")
    twins.same("SELECT id, length(x), md5(x) FROM t ORDER BY id")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_value_near_the_limit_of_a_gigabyte_is_stored_or_refused(twins: Twins) -> None:
    """Encoding adds headers: past what one allocation may have there is an error, and no harm."""
    side = twins.columnar
    side.execute("CREATE TABLE t (id integer, x text)")
    for number, length in enumerate((700_000_000, 1_073_741_700)):
        outcome = side.run(f"INSERT INTO t SELECT {number}, repeat('x', {length})")
        found = side.execute(f"SELECT length(x) FROM t WHERE id = {number}")
        if outcome.sqlstate is None:
            assert found == [(length,)]
        else:
            assert outcome.sqlstate == "54000", outcome
            assert found == []
    side.execute("INSERT INTO t VALUES (10, 'small')")
    assert side.execute("SELECT x FROM t WHERE id = 10") == [("small",)]
