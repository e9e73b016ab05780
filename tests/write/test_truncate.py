"""TRUNCATE on all nodes at once: BEFORE triggers see the rows, AFTER triggers none, and what they insert stays."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.ddl.test_ddl import everywhere
from tests.pair import Pair, open_pair

TABLES = ["t", "child", "r", "r_child", "leaf_of_r", "local", "tree"]
COUNTS = ", ".join(f"(SELECT count(*) FROM {table})" for table in TABLES)

# leaf_of_r is distributed and refers to r; child to t; r_child to r; tree is a local partitioned table
SETUP = """
CREATE TABLE t (k integer PRIMARY KEY, v serial);
CREATE TABLE child (k integer, v integer);
CREATE TABLE r (k integer PRIMARY KEY, v text DEFAULT 'row');
CREATE TABLE r_child (k integer PRIMARY KEY, v integer REFERENCES r);
CREATE TABLE leaf_of_r (k integer, v integer);
CREATE TABLE local (k integer, v integer GENERATED ALWAYS AS IDENTITY);
CREATE TABLE tree (k integer) PARTITION BY RANGE (k);
CREATE TABLE tree_1 PARTITION OF tree FOR VALUES FROM (0) TO (50);
CREATE TABLE tree_2 PARTITION OF tree DEFAULT;
CREATE TABLE seen (id serial, event text, counts integer[]);
CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO seen (event, counts)
    SELECT concat_ws(' ', TG_NAME, TG_WHEN, TG_OP, TG_TABLE_NAME), ARRAY[{counts}];
    RETURN NULL;
END $$;
CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO t VALUES (1000 + (SELECT count(*) FROM t));
    INSERT INTO r VALUES (1000 + (SELECT count(*) FROM r));
    INSERT INTO child SELECT k, 1 FROM t;
    INSERT INTO r_child SELECT k, k FROM r WHERE k NOT IN (SELECT k FROM r_child);
    INSERT INTO leaf_of_r SELECT k, k FROM r;
    INSERT INTO local (k) SELECT k FROM r;
    UPDATE r SET v = v || '!';
    RETURN NULL;
END $$
""".replace("{counts}", COUNTS)

ROWS = """
INSERT INTO t SELECT g FROM generate_series(1, 40) AS g;
INSERT INTO child SELECT g, g FROM generate_series(1, 40) AS g;
INSERT INTO r SELECT g FROM generate_series(1, 10) AS g;
INSERT INTO r_child SELECT g, g FROM generate_series(1, 10) AS g;
INSERT INTO leaf_of_r SELECT g, g % 10 + 1 FROM generate_series(1, 40) AS g;
INSERT INTO local SELECT g FROM generate_series(1, 5) AS g;
INSERT INTO tree SELECT g FROM generate_series(1, 99) AS g
"""


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_truncate") as made:
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    data.execute(SETUP)
    data.distribute("t", "k", shards=4)
    data.distribute("child", "k", colocate_with="t")
    data.distribute("leaf_of_r", "k", shards=4)
    data.reference("r")
    data.reference("r_child")
    data.execute(
        "ALTER TABLE child ADD FOREIGN KEY (k) REFERENCES t;"
        "ALTER TABLE leaf_of_r ADD FOREIGN KEY (v) REFERENCES r"
    )
    data.execute(ROWS)
    yield data
    data.reset()
    data.execute("DROP SCHEMA test_truncate CASCADE; CREATE SCHEMA test_truncate")


def check(pair: Pair) -> None:
    for table in TABLES:
        pair.same(f"SELECT * FROM {table}")
    for table in ("r", "r_child"):
        everywhere(pair, f"SELECT md5(string_agg(x::text, ',' ORDER BY k)) FROM {table} AS x")
    pair.same("SELECT event, counts FROM seen ORDER BY id")


def create_triggers(pair: Pair, when: str, names: str, functions: str) -> None:
    for table in TABLES:
        for name, function in zip(names.split(), functions.split(), strict=True):
            pair.execute(
                f"CREATE TRIGGER {name} {when} TRUNCATE ON {table} EXECUTE FUNCTION {function}()"
            )


COMMANDS = [
    "TRUNCATE t, child",
    "TRUNCATE t CASCADE",
    "TRUNCATE child",
    "TRUNCATE leaf_of_r",
    "TRUNCATE r_child",
    "TRUNCATE r, r_child, leaf_of_r",
    "TRUNCATE leaf_of_r, r_child, r",
    "TRUNCATE r CASCADE",
    "TRUNCATE t, child RESTART IDENTITY",
    "TRUNCATE t, child, leaf_of_r, r, r_child, tree, local RESTART IDENTITY",
    "TRUNCATE ONLY t, ONLY child CONTINUE IDENTITY",
    "TRUNCATE tree_1, t, child",
    "TRUNCATE t, t, child, child",
    "TRUNCATE t",  # child refers to it
    "TRUNCATE r",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_triggers_see_the_tables_as_on_one_server(pair: Pair, command: str) -> None:
    create_triggers(pair, "BEFORE", "b", "look")
    create_triggers(pair, "AFTER", "a1 a2", "look look")
    pair.same(command)
    check(pair)
    pair.same("INSERT INTO t (k) VALUES (5000) RETURNING v")


@pytest.mark.parametrize("command", COMMANDS)
def test_what_after_triggers_insert_stays(pair: Pair, command: str) -> None:
    create_triggers(pair, "AFTER", "a1 a2", "fill look")
    with pair.transaction():
        pair.same(command)
    check(pair)
    pair.same(command)
    check(pair)


def test_a_local_table_named_first_does_not_fire_before_the_workers_are_empty(pair: Pair) -> None:
    """Only reference tables beside it: nobody else tells when PostgreSQL truncates."""
    pair.execute(
        "CREATE TABLE alone (k integer PRIMARY KEY); INSERT INTO alone SELECT generate_series(1, 9);"
        "CREATE FUNCTION fill_alone() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN INSERT INTO alone VALUES (77 + (SELECT count(*) FROM alone)); RETURN NULL; END';"
        "CREATE TRIGGER a AFTER TRUNCATE ON local EXECUTE FUNCTION fill_alone();"
        'CREATE TRIGGER "  a" AFTER TRUNCATE ON alone EXECUTE FUNCTION fill_alone()'
    )
    pair.reference("alone")
    pair.same("TRUNCATE local, tree, alone")
    pair.same("SELECT * FROM alone")
    assert everywhere(pair, "SELECT count(*) FROM alone") == 2
    check(pair)


def test_before_triggers_may_still_write(pair: Pair) -> None:
    pair.execute("CREATE TRIGGER b BEFORE TRUNCATE ON r_child EXECUTE FUNCTION look()")
    for table in ("t", "child"):
        pair.execute(f"CREATE TRIGGER b BEFORE TRUNCATE ON {table} EXECUTE FUNCTION fill()")
    pair.same("TRUNCATE t, child")
    check(pair)


def test_a_trigger_truncates_other_tables(pair: Pair) -> None:
    pair.execute(
        "CREATE FUNCTION clear() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN TRUNCATE leaf_of_r, local; RETURN NULL; END';"
        "CREATE TRIGGER a BEFORE TRUNCATE ON t EXECUTE FUNCTION clear();"
        "CREATE TRIGGER a AFTER TRUNCATE ON r_child EXECUTE FUNCTION clear()"
    )
    create_triggers(pair, "AFTER", "b", "look")
    pair.same("TRUNCATE t, child")
    check(pair)
    pair.execute("INSERT INTO leaf_of_r VALUES (1, 1)")
    pair.same("TRUNCATE r_child")
    check(pair)


def test_a_truncate_is_rolled_back_on_all_nodes(pair: Pair) -> None:
    create_triggers(pair, "AFTER", "a", "fill")
    with pair.transaction("COMMIT"):
        pair.execute("SAVEPOINT a; TRUNCATE t CASCADE")
        pair.same("SELECT count(*) FROM t")
        pair.execute("SAVEPOINT b; TRUNCATE r CASCADE; ROLLBACK TO b; INSERT INTO r VALUES (500)")
        for table in TABLES:
            pair.same(f"SELECT * FROM {table}")
        pair.execute("ROLLBACK TO a; TRUNCATE r CASCADE; INSERT INTO leaf_of_r SELECT 1, k FROM r")
    check(pair)
    with pair.transaction("COMMIT"):
        pair.execute(
            "CREATE TABLE fresh (k integer PRIMARY KEY); INSERT INTO fresh VALUES (1), (2), (3)"
        )
        pair.reference("fresh")
        pair.execute("TRUNCATE fresh; INSERT INTO fresh VALUES (4); SAVEPOINT a; TRUNCATE fresh")
        pair.execute("ROLLBACK TO a")
    pair.same("SELECT * FROM fresh")
    assert everywhere(pair, "SELECT sum(k) FROM fresh") == 4


def test_a_failing_trigger_takes_the_truncate_back(pair: Pair) -> None:
    pair.execute(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN RAISE EXCEPTION ''no''; END';"
        "CREATE TRIGGER z AFTER TRUNCATE ON r_child EXECUTE FUNCTION fail()"
    )
    pair.same("TRUNCATE r_child")
    pair.same("DO $$ BEGIN TRUNCATE t, child, r_child; EXCEPTION WHEN OTHERS THEN NULL; END $$")
    check(pair)
    pair.execute("DROP TRIGGER z ON r_child")
    pair.same("DO $$ BEGIN TRUNCATE t, child, r_child; END $$")
    check(pair)


def test_a_user_without_the_privilege_truncates_nothing(pair: Pair) -> None:
    pair.cluster.create_role("truncate_user")
    pair.execute(
        "GRANT USAGE ON SCHEMA test_truncate TO truncate_user; GRANT ALL ON t, child TO truncate_user;"
        "SET ROLE truncate_user"
    )
    try:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            pair.ours.execute("TRUNCATE t, child, r_child")
        pair.same("TRUNCATE t, child")
    finally:
        pair.execute("RESET ROLE; DROP OWNED BY truncate_user")
        pair.cluster.coordinator.execute("DROP ROLE truncate_user")
    check(pair)
