"""Foreign keys of local tables to distributed ones: the coordinator enforces them, as PostgreSQL does."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.installation import server_major
from tests.pair import Pair, open_pair

LOOK = ("SELECT * FROM parent", "SELECT * FROM child")


@pytest.fixture(params=["heap", "columnar"])
def pair(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with open_pair(cluster, "test_local_keys") as made:
        made.execute(
            "CREATE TABLE parent (id integer, m integer, v integer, PRIMARY KEY (id, m), UNIQUE (id))"
        )
        made.distribute("parent", "id", storage=request.param)
        made.execute(
            "INSERT INTO parent SELECT g, g % 3, g FROM generate_series(1, 20) AS g;"
            "CREATE TABLE child (n serial PRIMARY KEY, id integer DEFAULT 5, m integer DEFAULT 2)"
        )
        yield made


def add(pair: Pair, rest: str = "") -> None:
    pair.same(f"ALTER TABLE child ADD CONSTRAINT fk FOREIGN KEY (id) REFERENCES parent (id) {rest}")


# ---- rows


def test_rows_of_both_tables(pair: Pair) -> None:
    add(pair)
    pair.all_same(
        (
            "INSERT INTO child (id) VALUES (1), (2), (3)",
            "INSERT INTO child (id) VALUES (4), (100)",
            "INSERT INTO child (id) VALUES (NULL)",
            "INSERT INTO child (id) SELECT v FROM parent WHERE v > 17 ORDER BY v",
            "UPDATE child SET id = 7 WHERE id = 1",
            "UPDATE child SET id = 700 WHERE id = 2",
            "DELETE FROM parent WHERE id = 1",
            "DELETE FROM parent WHERE id = 2",
            "DELETE FROM parent WHERE v BETWEEN 2 AND 4 RETURNING *",
            "UPDATE parent SET v = v + 1 WHERE id = 3 RETURNING *",
            "UPDATE parent SET m = m + 1 WHERE id = 3 RETURNING *",
            "MERGE INTO parent AS p USING child AS c ON p.id = c.id WHEN MATCHED THEN DELETE",
            "MERGE INTO parent AS p USING child AS c ON p.id = c.id WHEN MATCHED THEN UPDATE SET v = 0",
            "INSERT INTO parent VALUES (3, 1, 5), (30, 1, 5) ON CONFLICT (id) DO UPDATE SET v = 99",
            "WITH p AS (INSERT INTO parent VALUES (40, 0, 1) RETURNING id) INSERT INTO child (id) SELECT id FROM p",
            "WITH c AS (DELETE FROM child WHERE id = 40 RETURNING id) DELETE FROM parent WHERE id IN (SELECT id FROM c)",
            "DELETE FROM parent AS p USING child AS c WHERE p.id = c.id",
            "DELETE FROM parent AS p WHERE NOT EXISTS (SELECT FROM child AS c WHERE p.id = c.id)",
            *LOOK,
            "DELETE FROM child",
            "DELETE FROM parent",
            *LOOK,
        )
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize("action", ["NO ACTION", "CASCADE", "SET NULL"])
@pytest.mark.parametrize("when", ["", "DEFERRABLE INITIALLY DEFERRED"])
def test_the_key_is_updated(pair: Pair, action: str, when: str) -> None:
    """Rows move to other workers, and children follow."""
    add(pair, f"ON UPDATE {action} {when}")
    pair.all_same(
        (
            "INSERT INTO child (id) VALUES (1), (2), (2), (3)",
            "UPDATE parent SET id = id + 100 WHERE id IN (1, 2, 9)",
            "UPDATE parent SET id = id + 200 WHERE id > 10 RETURNING *",
            "UPDATE parent SET id = 20 WHERE id = 9",
            "UPDATE parent SET id = 19 + m WHERE id = 20",
            *LOOK,
            "DELETE FROM parent WHERE id IN (3, 102)",
        )
    )
    with pair.transaction("COMMIT"):
        pair.all_same(
            (
                "UPDATE parent SET id = 77 WHERE id = 3",
                "INSERT INTO parent VALUES (3, 0, 0)",
                "UPDATE child SET id = 77 WHERE id = 3",
                *LOOK,
            )
        )
    pair.all_same(LOOK)


def test_rows_of_one_transaction(pair: Pair) -> None:
    add(pair)
    for level in ("READ COMMITTED", "REPEATABLE READ"):
        for end in ("ROLLBACK", "COMMIT"):
            with pair.transaction(end, f"BEGIN ISOLATION LEVEL {level}"):
                pair.all_same(
                    (
                        "INSERT INTO parent VALUES (50, 1, 1)",
                        "INSERT INTO child (id) VALUES (50)",
                        "SAVEPOINT s",
                        "DELETE FROM parent WHERE id = 50",
                        "ROLLBACK TO s",
                        "DELETE FROM child WHERE id = 50",
                        "DELETE FROM parent WHERE id = 50",
                        "SAVEPOINT s",
                        "INSERT INTO child (id) VALUES (50)",
                        "ROLLBACK TO s",
                        *LOOK,
                    )
                )
            pair.all_same(LOOK)


@pytest.mark.parametrize("action", ["CASCADE", "SET NULL", "SET DEFAULT", "RESTRICT"])
def test_actions(pair: Pair, action: str) -> None:
    add(pair, f"ON DELETE {action} ON UPDATE {action}")
    pair.all_same(
        (
            "INSERT INTO child (id) SELECT 1 + g % 4 FROM generate_series(1, 9) AS g",
            "DELETE FROM parent WHERE id IN (1, 2)",
            *LOOK,
            "DELETE FROM child WHERE id = 5",
            "DELETE FROM parent WHERE v = 3",
            "DELETE FROM parent WHERE id IN (1, 2, 3, 4, 5)",
            *LOOK,
        )
    )


@pytest.mark.parametrize("action", ["CASCADE", "SET NULL", "SET DEFAULT", "NO ACTION"])
def test_another_column_is_updated(pair: Pair, action: str) -> None:
    pair.same(
        f"ALTER TABLE child ADD CONSTRAINT fk FOREIGN KEY (id, m) REFERENCES parent ON UPDATE {action}"
    )
    pair.all_same(
        (
            "INSERT INTO child (id, m) VALUES (1, 1), (2, 2), (3, 0), (3, 0), (3, NULL)",
            "INSERT INTO child (id, m) VALUES (1, 2)",
            "UPDATE parent SET m = 8 WHERE id IN (1, 3)",
            "UPDATE parent SET v = -v",
            *LOOK,
            "INSERT INTO parent VALUES (2, 2, 5) ON CONFLICT (id) DO UPDATE SET v = 17",
            "SELECT * FROM parent",
        )
    )
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        pair.ours.execute("INSERT INTO parent VALUES (2, 2, 5) ON CONFLICT (id) DO UPDATE SET m = 17")  # fmt: skip


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_deferred(pair: Pair, level: str) -> None:
    add(pair, "DEFERRABLE INITIALLY DEFERRED")
    for statements in (
        ("INSERT INTO child (id) VALUES (60)", "INSERT INTO parent VALUES (60, 1, 1)"),
        ("INSERT INTO child (id) VALUES (61)",),
        ("DELETE FROM parent WHERE id = 60", "INSERT INTO parent VALUES (60, 2, 2)"),
        ("DELETE FROM parent WHERE id = 60",),
        ("DELETE FROM parent WHERE id = 60", "DELETE FROM child WHERE id = 60"),
        ("DELETE FROM parent WHERE id = 4", "SET CONSTRAINTS ALL IMMEDIATE", "INSERT INTO child (id) VALUES (4)"),
    ):  # fmt: skip
        with pair.transaction("COMMIT", f"BEGIN ISOLATION LEVEL {level}"):
            pair.all_same(statements)
        pair.all_same(LOOK)


def test_many_rows(pair: Pair) -> None:
    """Rows are held for the constraint's triggers together, however many they are."""
    add(pair, "ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED")
    with pair.transaction("COMMIT"):
        pair.all_same(
            (
                "INSERT INTO parent SELECT g, 0, 0 FROM generate_series(101, 33100) AS g",
                "INSERT INTO child (id) VALUES (101), (33100)",
                "UPDATE parent SET id = id + 100000 WHERE id > 100",
                "SELECT * FROM child",
                "DELETE FROM parent WHERE id BETWEEN 100102 AND 100110",
            )
        )
    pair.all_same(("SELECT * FROM child", "SELECT count(*) FROM parent"))


def test_copy_and_sub_statements(pair: Pair) -> None:
    add(pair, "ON DELETE CASCADE")
    pair.copy("COPY child (id) FROM STDIN", "1\n2\n3\n")
    for connection in (pair.ours, pair.theirs):
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            with connection.cursor().copy("COPY child (id) FROM STDIN") as copy:
                copy.write("1\n999\n")
    pair.execute(
        "CREATE FUNCTION make_both(a integer) RETURNS void LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO parent VALUES (a, 0, 0); INSERT INTO child (id) VALUES (a), (a);"
        " BEGIN DELETE FROM parent WHERE id = a; RAISE division_by_zero;"
        " EXCEPTION WHEN division_by_zero THEN NULL; END; END $$"
    )
    pair.all_same(
        ("SELECT make_both(70)", "SELECT make_both(70)", "DELETE FROM parent WHERE id = 1", *LOOK)
    )


# ---- definitions


def test_rows_that_are_there(pair: Pair) -> None:
    pair.execute("INSERT INTO child (id) VALUES (1), (2), (99)")
    add(pair)
    add(pair, "NOT VALID")
    pair.all_same(
        (
            "INSERT INTO child (id) VALUES (98)",
            "ALTER TABLE child VALIDATE CONSTRAINT fk",
            "DELETE FROM child WHERE id = 99",
            "ALTER TABLE child VALIDATE CONSTRAINT fk",
            "TRUNCATE parent",
            "DROP TABLE parent",
            "TRUNCATE parent, child",
            "INSERT INTO child (id) VALUES (1)",
            "ALTER TABLE parent DROP CONSTRAINT parent_id_key",
            "ALTER TABLE parent DROP CONSTRAINT parent_id_key CASCADE",
            "INSERT INTO child (id) VALUES (1)",
        )
    )


def test_a_column_gets_another_type(pair: Pair) -> None:
    pair.same("ALTER TABLE child ADD CONSTRAINT fk FOREIGN KEY (id, m) REFERENCES parent")
    pair.all_same(
        (
            "INSERT INTO child (id, m) VALUES (1, 1)",
            "ALTER TABLE parent ALTER m TYPE bigint",
            "ALTER TABLE parent ALTER id TYPE bigint",
            "ALTER TABLE parent ALTER v TYPE bigint",
            "ALTER TABLE child ALTER m TYPE bigint",
            "ALTER TABLE parent ALTER m TYPE bigint USING m + 1",
            "DELETE FROM parent WHERE id = 1",
            "INSERT INTO child (id, m) VALUES (1, 2)",
            *LOOK,
        )
    )
    assert pair.rows("SELECT key, kind FROM strata.tables WHERE relation = 'parent'::regclass") == [("id", "distributed")]  # fmt: skip


def test_tables_that_are_distributed_and_become_local(pair: Pair) -> None:
    probes = (
        "INSERT INTO child (id) VALUES (3), (4)",
        "INSERT INTO child (id) VALUES (1000)",
        "DELETE FROM parent WHERE id = 3",
        "DELETE FROM child WHERE id = 3",
    )
    pair.execute("ALTER TABLE child DROP CONSTRAINT child_pkey")
    add(pair)
    pair.all_same(probes)
    pair.ours.execute("SELECT undistribute_table('parent')")
    pair.all_same(probes)
    pair.distribute("parent", "id")
    pair.all_same(probes)
    pair.distribute("child", "id", colocate_with="parent")
    pair.all_same(probes)
    assert pair.on_workers("SELECT count(*) > 0 FROM pg_constraint WHERE conname = 'fk'") == [True] * 2  # fmt: skip
    pair.ours.execute("SELECT undistribute_table('child')")
    assert pair.on_workers("SELECT count(*) FROM pg_constraint WHERE conname = 'fk'") == [0, 0]
    pair.all_same(probes)
    pair.all_same(LOOK)


def test_partitions_of_the_local_table(pair: Pair) -> None:
    pair.all_same(
        (
            "CREATE TABLE tree (id integer REFERENCES parent (id) ON DELETE CASCADE, n integer) PARTITION BY LIST (n)",
            "CREATE TABLE leaf1 PARTITION OF tree FOR VALUES IN (1)",
            "CREATE TABLE leaf2 (id integer, n integer)",
            "INSERT INTO leaf2 VALUES (1, 2)",
            "ALTER TABLE tree ATTACH PARTITION leaf2 FOR VALUES IN (2)",
            "INSERT INTO tree VALUES (1, 1), (2, 2)",
            "INSERT INTO tree VALUES (100, 1)",
            "UPDATE tree SET n = 3 - n, id = id + 1",
            "UPDATE tree SET n = 3 - n, id = id + 100",
            "DELETE FROM parent WHERE id = 2",
            "SELECT tableoid::regclass::text, * FROM tree",
            "ALTER TABLE tree DETACH PARTITION leaf2",
            "INSERT INTO leaf2 VALUES (100, 2)",
        )
    )


def test_privileges_are_the_owners(pair: Pair) -> None:
    """PostgreSQL runs the checks as the tables' owners: who inserts need not read the parent."""
    add(pair)
    pair.execute(
        "DROP ROLE IF EXISTS test_local_keys_role; CREATE ROLE test_local_keys_role;"
        "GRANT USAGE ON SCHEMA test_local_keys TO test_local_keys_role;"
        "GRANT INSERT ON child TO test_local_keys_role; GRANT USAGE ON SEQUENCE child_n_seq TO test_local_keys_role;"
        "GRANT DELETE, SELECT ON parent TO test_local_keys_role"
    )
    try:
        pair.execute("SET ROLE test_local_keys_role")
        pair.all_same(
            (
                "INSERT INTO child (id) VALUES (1)",
                "INSERT INTO child (id) VALUES (100)",
                "SELECT * FROM child",
                "DELETE FROM parent WHERE id = 1",
                "DELETE FROM parent WHERE id = 2",
                "CREATE TEMP TABLE other (id integer REFERENCES parent (id))",
            )
        )
        pair.execute(
            "RESET ROLE; ALTER TABLE parent ENABLE ROW LEVEL SECURITY; CREATE POLICY none ON parent USING (false);"
            "SET ROLE test_local_keys_role"
        )
        pair.all_same(("INSERT INTO child (id) VALUES (3)", "INSERT INTO child (id) VALUES (100)", "SELECT * FROM parent"))  # fmt: skip
    finally:
        pair.execute("RESET ROLE; DROP OWNED BY test_local_keys_role; DROP ROLE test_local_keys_role")  # fmt: skip


# ---- what stays refused


def test_what_the_coordinator_would_not_see(pair: Pair) -> None:
    """Actions of the referenced table's own foreign keys, and retention, change its rows on the workers."""
    pair.ours.execute(
        "CREATE TABLE top (id integer PRIMARY KEY); SELECT create_reference_table('top');"
        "INSERT INTO top SELECT g FROM generate_series(1, 20) AS g;"
        "ALTER TABLE parent ADD CONSTRAINT up FOREIGN KEY (id) REFERENCES top ON DELETE CASCADE"
    )
    with pytest.raises(psycopg.errors.FeatureNotSupported, match='foreign key "up"'):
        pair.ours.execute("ALTER TABLE child ADD FOREIGN KEY (id) REFERENCES parent (id)")
    pair.ours.execute(
        "ALTER TABLE parent DROP CONSTRAINT up; ALTER TABLE child ADD FOREIGN KEY (id) REFERENCES parent (id)"
    )
    with pytest.raises(psycopg.errors.FeatureNotSupported, match='"child_id_fkey" of local table'):
        pair.ours.execute(
            "ALTER TABLE parent ADD CONSTRAINT up FOREIGN KEY (id) REFERENCES top ON DELETE CASCADE"
        )
    pair.ours.execute(
        "CREATE TABLE log (id integer, at timestamptz, PRIMARY KEY (id, at)); SELECT create_distributed_table("
        " 'log', 'id', partition_by => 'at', partition_interval => '1 day', retention => '30 days')"
    )
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="expire"):
        pair.ours.execute(
            "CREATE TABLE entry (id integer, at timestamptz, FOREIGN KEY (id, at) REFERENCES log)"
        )


def test_equal_values_that_differ(pair: Pair) -> None:
    """Such a key does not move; the child gets it all the same."""
    collation = "COLLATE case_blind" if server_major() >= 18 else ""  # both must have it since then
    pair.execute(
        "CREATE COLLATION case_blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
        "CREATE TABLE word (w text COLLATE case_blind PRIMARY KEY, n numeric);"
        f"CREATE TABLE said (w text {collation} REFERENCES word ON UPDATE CASCADE)"
    )
    pair.distribute("word", "w", storage="heap")
    pair.all_same(
        (
            "INSERT INTO word VALUES ('abc', 1), ('def', 2)",
            "INSERT INTO said VALUES ('ABC'), ('abc'), ('def')",
            "UPDATE word SET w = 'ABC' WHERE w = 'abc' RETURNING *",
            "UPDATE word SET w = 'ghi' WHERE w = 'DEF'",
            "UPDATE word SET w = upper(w)",
            "SELECT * FROM word",
            "SELECT * FROM said",
        )
    )
