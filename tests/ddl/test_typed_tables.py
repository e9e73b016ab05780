"""Tables of a composite type: their columns follow the type on all nodes, in the same transaction."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from tests.cluster import Cluster
from tests.ddl.test_ddl import check_copies, check_structure, refused
from tests.ddl.test_dump import run
from tests.pair import Pair, open_pair
from tests.waiting import wait_until

SETUP = """
CREATE TYPE "Odd type" AS (id integer, name text, "At "" tr" numeric(8, 2));
CREATE TABLE columns OF "Odd type" (PRIMARY KEY (id), name WITH OPTIONS DEFAULT 'none');
CREATE TABLE heap OF "Odd type" (id PRIMARY KEY, CHECK ("At "" tr" >= 0));
CREATE TABLE copied OF "Odd type" (id PRIMARY KEY);
CREATE TABLE tree OF "Odd type" PARTITION BY RANGE (id);
CREATE TABLE leaf PARTITION OF tree DEFAULT;
CREATE TABLE heir () INHERITS (copied);
CREATE TABLE local OF "Odd type";
CREATE TABLE other (id integer, name text, "At "" tr" numeric(8, 2), extra integer);
"""
TABLES = ["columns", "heap", "copied", "tree", "heir", "local", "other"]
ROWS = """INSERT INTO {0} SELECT g, 'n' || g, g / 4.0 FROM generate_series(1, 50) AS g"""


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_typed") as made:
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    data.execute(SETUP)
    data.distribute("columns", "id", shards=4)
    data.distribute("heap", "id", colocate_with="columns", storage="heap")
    data.distribute("other", "id", shards=4)
    data.reference("copied")
    data.reference("tree")
    for table in TABLES:
        data.execute(ROWS.format(table))
    yield data
    data.reset()
    data.execute("RESET ROLE; DROP SCHEMA test_typed CASCADE; CREATE SCHEMA test_typed")


def check(pair: Pair, tables: list[str] = TABLES) -> None:
    for table in tables:
        pair.same(f"SELECT * FROM {table}")
        if table in ("copied", "tree", "heir"):
            check_copies(pair, table)
        if table != "local":
            check_structure(pair, table)
    pair.same("SELECT relname, reloftype::regtype::text FROM pg_class WHERE relnamespace = 'test_typed'::regnamespace"
              " AND relkind IN ('r', 'p')")  # fmt: skip


CHANGES = [
    ['ADD ATTRIBUTE extra bigint CASCADE, ADD ATTRIBUTE "Ex tra" varchar(5) COLLATE "C" CASCADE'],
    ["DROP ATTRIBUTE name CASCADE", "ADD ATTRIBUTE name integer CASCADE"],
    ['DROP ATTRIBUTE "At "" tr" CASCADE'],
    ["ALTER ATTRIBUTE name SET DATA TYPE varchar(20) CASCADE"],
    [
        'ALTER ATTRIBUTE "At "" tr" TYPE double precision CASCADE, DROP ATTRIBUTE IF EXISTS none CASCADE'
    ],
    ['RENAME ATTRIBUTE "At "" tr" TO "New "" tr" CASCADE', "RENAME ATTRIBUTE id TO k CASCADE"],
    ["ALTER ATTRIBUTE id TYPE bigint CASCADE", "ADD ATTRIBUTE more text CASCADE"],
    ["ADD ATTRIBUTE later test_typed.positive CASCADE"],
]


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("changes", CHANGES)
def test_columns_follow_the_type(pair: Pair, changes: list[str], end: str) -> None:
    pair.execute("CREATE DOMAIN positive AS integer DEFAULT 7 CHECK (VALUE > 0)")
    with pair.transaction(end):
        for change in changes:
            pair.same(f'ALTER TYPE "Odd type" {change}')
        pair.all_same(f"SELECT * FROM {table}" for table in TABLES)
    check(pair)


@pytest.mark.parametrize(
    "statement",
    [
        *(f'ALTER TYPE "Odd type" {change.replace(" CASCADE", "")}' for change, *_ in CHANGES[:6]),
        'ALTER TYPE "Odd type" ADD ATTRIBUTE a integer CASCADE, DROP ATTRIBUTE id',
        'ALTER TYPE "Odd type" ADD ATTRIBUTE name integer CASCADE',
        'ALTER TYPE "Odd type" ALTER ATTRIBUTE name TYPE integer CASCADE',
        'ALTER TYPE "Odd type" DROP ATTRIBUTE none CASCADE',
        'ALTER TYPE "Odd type" RENAME ATTRIBUTE name TO id CASCADE',
        'ALTER TYPE "Odd type" RENAME ATTRIBUTE none TO id CASCADE',
        "ALTER TYPE none ADD ATTRIBUTE a integer CASCADE",
        'DROP TYPE "Odd type"',
        "ALTER TABLE columns ADD COLUMN a integer",
        "ALTER TABLE columns DROP COLUMN name",
        "ALTER TABLE heap ALTER COLUMN name TYPE varchar",
        "ALTER TABLE copied RENAME COLUMN name TO a",
        'ALTER TABLE other OF "Odd type"',
        'ALTER TABLE heir OF "Odd type"',
        "ALTER TABLE other OF none",
        "ALTER TABLE other NOT OF",
    ],
)
def test_what_postgres_refuses_changes_nothing(pair: Pair, statement: str) -> None:
    with pytest.raises(psycopg.Error):
        pair.theirs.execute(statement)
    pair.same(statement)
    check(pair)


def test_a_distribution_key_is_not_dropped_with_the_type(pair: Pair) -> None:
    refused(
        pair, 'ALTER TYPE "Odd type" DROP ATTRIBUTE id CASCADE', names="id columns distribution"
    )
    check(pair)


def test_tables_get_a_type_and_lose_it(pair: Pair) -> None:
    pair.same("ALTER TABLE other DROP COLUMN extra")
    for table in ("columns", "heap", "copied", "tree"):
        pair.same(f"ALTER TABLE {table} NOT OF")
    pair.same('ALTER TABLE other OF "Odd type", ALTER COLUMN name SET NOT NULL')
    pair.same('ALTER TYPE "Odd type" ADD ATTRIBUTE extra integer CASCADE')
    check(pair)
    pair.same("ALTER TABLE columns ADD COLUMN extra integer DEFAULT 3")
    with pair.transaction("ROLLBACK"):
        pair.same('ALTER TABLE columns OF "Odd type"')
        pair.same('ALTER TYPE "Odd type" RENAME ATTRIBUTE extra TO e CASCADE')
    pair.same('ALTER TABLE columns OF "Odd type"; ALTER TABLE other NOT OF')
    pair.same('ALTER TYPE "Odd type" DROP ATTRIBUTE name CASCADE')
    check(pair)
    pair.same('DROP TYPE "Odd type" CASCADE')
    pair.all_same(f"SELECT * FROM {table}" for table in TABLES)
    assert pair.on_workers("SELECT to_regclass('test_typed.columns') IS NULL") == [True, True]


def test_new_tables_may_be_typed(pair: Pair) -> None:
    pair.ours.execute("SET default_table_access_method = distributed")
    try:
        pair.execute('CREATE TABLE new OF "Odd type" (id WITH OPTIONS PRIMARY KEY)')
        pair.execute(ROWS.format("new"))
        pair.same('ALTER TYPE "Odd type" ADD ATTRIBUTE extra integer CASCADE')
        check(pair, [*TABLES, "new"])
    finally:
        pair.ours.execute("RESET default_table_access_method")
    for statement in (
        "SELECT undistribute_table('new')",
        "SELECT alter_distributed_table('columns', key => 'id', shard_count => 2)",
        "SELECT undistribute_table('copied')",
    ):
        pair.ours.execute(statement)
    pair.same("""ALTER TYPE "Odd type" RENAME ATTRIBUTE extra TO "Ex'tra" CASCADE""")
    pair.all_same(f"SELECT * FROM {table}" for table in [*TABLES, "new"])
    check_structure(pair, "columns")


def test_views_keys_and_indexes_go_as_in_postgres(pair: Pair) -> None:
    pair.execute(
        "CREATE VIEW seen AS SELECT id, name FROM columns; CREATE INDEX i ON columns (name);"
        "CREATE STATISTICS s ON id, name FROM heap; ALTER TABLE heap ADD FOREIGN KEY (id) REFERENCES copied;"
        "ALTER TABLE columns ADD FOREIGN KEY (id) REFERENCES heap"
    )
    pair.same('ALTER TYPE "Odd type" ALTER ATTRIBUTE name TYPE varchar(30) CASCADE')
    pair.execute("DROP VIEW seen")
    pair.same('ALTER TYPE "Odd type" ALTER ATTRIBUTE name TYPE varchar(30) CASCADE')
    pair.same("INSERT INTO columns VALUES (1000)")
    pair.same("ALTER TABLE columns DROP CONSTRAINT columns_id_fkey")
    check(pair)
    pair.execute("CREATE VIEW seen AS SELECT id, name FROM columns")
    pair.same('ALTER TYPE "Odd type" DROP ATTRIBUTE name CASCADE')
    pair.same("SELECT * FROM seen")
    check(pair)


def test_a_table_with_periods_keeps_its_type(pair: Pair) -> None:
    pair.execute(
        "CREATE TYPE event AS (k integer, at timestamptz); CREATE TABLE log OF event (at NOT NULL) PARTITION BY RANGE (at);"
        "CREATE TABLE log_1 PARTITION OF log DEFAULT"
    )
    pair.execute("INSERT INTO log SELECT g, '2026-01-01'::timestamptz + g * interval '1 hour' FROM generate_series(1, 80) AS g")  # fmt: skip
    pair.ours.execute(
        "SELECT create_distributed_table('log', 'k', partition_by => 'at', partition_interval => '1 day')"
    )
    pair.same("ALTER TYPE event ADD ATTRIBUTE what text CASCADE")
    pair.same("UPDATE log SET what = k")
    pair.same("SELECT * FROM log")
    refused(pair, "ALTER TYPE event DROP ATTRIBUTE at CASCADE", names="at log periods")


def test_only_the_owner_of_type_and_tables_changes_them(pair: Pair) -> None:
    for role in ("typist", "stranger"):
        pair.cluster.create_role(role)
    pair.execute("GRANT ALL ON SCHEMA test_typed TO typist, stranger")
    try:
        pair.execute('ALTER TYPE "Odd type" OWNER TO typist')
        for role in ("stranger", "typist"):
            for change in (
                "ADD ATTRIBUTE a text CASCADE",
                "RENAME ATTRIBUTE name TO n CASCADE",
                "DROP ATTRIBUTE name CASCADE",
            ):
                pair.execute(f"SET ROLE {role}")
                pair.same(f'ALTER TYPE "Odd type" {change}')
                pair.execute("RESET ROLE")
        check(pair)
        for table in [*TABLES, "leaf"]:
            pair.execute(f"ALTER TABLE {table} OWNER TO typist")
        pair.execute("SET ROLE typist")
        pair.same('ALTER TYPE "Odd type" ADD ATTRIBUTE a text CASCADE')
        pair.same('ALTER TYPE "Odd type" RENAME ATTRIBUTE a TO b CASCADE')
        pair.same("ALTER TABLE columns NOT OF")
        pair.same('ALTER TABLE columns OF "Odd type"')
        pair.execute("RESET ROLE")
        check(pair)
    finally:
        pair.execute("RESET ROLE; REASSIGN OWNED BY typist TO CURRENT_USER")
        pair.execute("DROP OWNED BY typist, stranger; DROP ROLE typist, stranger")


def test_a_change_waits_for_readers_of_the_tables(pair: Pair) -> None:
    change = 'ALTER TYPE "Odd type" ADD ATTRIBUTE extra integer CASCADE'
    with (
        pair.cluster.coordinator.connect(autocommit=False) as reader,
        ThreadPoolExecutor(1) as pool,
    ):
        reader.execute("LOCK TABLE test_typed.heap IN ACCESS SHARE MODE")
        changed = pool.submit(pair.ours.execute, change)
        for _ in wait_until("the change waits"):
            if reader.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() != (0,):
                break
        reader.commit()
        changed.result()
    pair.theirs.execute(change)
    check(pair)


def test_a_dump_makes_typed_tables_again(pair: Pair, tmp_path: Path) -> None:
    coordinator = pair.cluster.coordinator
    script = tmp_path / "typed.sql"
    dump = run("pg_dump", "--schema=test_typed", coordinator.conninfo(), node=coordinator)
    assert dump.returncode == 0, dump.stderr
    assert 'OF test_typed."Odd type"' in dump.stdout
    script.write_text(dump.stdout)
    pair.ours.execute("DROP SCHEMA test_typed CASCADE")
    again = run(
        "psql", "-X", "-v", "ON_ERROR_STOP=1", "-f", script, coordinator.conninfo(), node=coordinator
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    pair.same('ALTER TYPE "Odd type" RENAME ATTRIBUTE name TO "N" CASCADE')
    check(pair)
