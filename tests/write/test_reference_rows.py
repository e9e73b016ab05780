"""Rows of reference tables without primary key change on all copies: found by all of their values."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.ddl.test_ddl import check_copies
from tests.pair import Pair, open_pair

SCHEMA = "test_reference_rows"


@pytest.fixture
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, SCHEMA) as made:
        yield made


def make(pair: Pair, columns: str, rows: str) -> None:
    pair.execute(f"CREATE TABLE r ({columns})")
    pair.reference("r")
    pair.execute(f"INSERT INTO r {rows}")


def test_rows_that_are_the_same(pair: Pair) -> None:
    make(pair, "a integer, b text", "SELECT g % 3, 'x' FROM generate_series(1, 12) AS g")
    for statement in (
        "DELETE FROM r WHERE ctid = '(0,2)'",
        "UPDATE r SET b = 'y' WHERE ctid IN ('(0,5)', '(0,8)')",
        "UPDATE r SET a = a + 1",
        "UPDATE r SET a = a, b = b",
        "MERGE INTO r USING (VALUES (1), (2)) AS v (n) ON a = n"
        " WHEN MATCHED AND n = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET b = NULL",
        "UPDATE r SET b = CASE WHEN a = 3 THEN NULL END, a = NULL WHERE a > 2",
        "DELETE FROM r WHERE a IS NULL",
        "DELETE FROM r",
    ):
        pair.same(statement)
        check_copies(pair)


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        ("j json, p point, x xml", """('{"a": 1}', '(1,2)', '<a/>'), (NULL, NULL, NULL)"""),
        ("n numeric, f float8, g float4", "(1.0, '-0', 'NaN'), (1.00, 0, 0.1), ('NaN', 1e-300, 0)"),
        ("c char(5), v varchar(3), n name", "('a', 'a', 'a'), ('', '', '')"),
        ("b bytea, u bit(3), w varbit", r"('\x00ff', '101', ''), ('', '000', '1')"),
        ("a integer[], b text[]", """('{1,NULL}', '{"a,b",NULL}'), ('[2:3]={1,2}', '{}')"""),
        (
            "e mood, d small, q pair_of",
            "('sad', 1, (1, 'a')), (NULL, 2, (NULL, NULL)), ('ok', 3, NULL)",
        ),
        ("r int4range, m int8multirange", "('[1,3)', '{[1,2)}'), ('empty', '{}')"),
        ("t text COLLATE near, i interval", "('a', '1 day'), ('A', '24 hours')"),
        ('"select" integer, "A b" integer GENERATED ALWAYS AS ("select" * 2) STORED', "(1), (2)"),
        (
            "j jsonb, t tsvector, z timetz",
            """('{"a":1.0}', 'a:1', '10:00+02'), ('[]', '', '08:00+00')""",
        ),
        ("long text", "(repeat('long', 100000)), (repeat('long', 100001))"),
    ],
)
def test_values(pair: Pair, columns: str, values: str) -> None:
    """Types without equality, and values that their types call equal."""
    pair.execute(
        """
        CREATE TYPE mood AS ENUM ('sad', 'ok');
        CREATE DOMAIN small AS integer CHECK (VALUE < 100);
        CREATE TYPE pair_of AS (a integer, b text);
        CREATE COLLATION near (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
        """
    )
    make(pair, columns, f"VALUES {values}")
    pair.execute("ALTER TABLE r ADD COLUMN mark integer")
    for statement in (
        "UPDATE r SET mark = 1 WHERE ctid = '(0,1)'",
        "UPDATE r SET mark = 2 WHERE mark IS NULL",
        "DELETE FROM r WHERE mark = 1",
        "DELETE FROM r",
    ):
        pair.same(statement)
        check_copies(pair)


def test_odd_settings_and_names(pair: Pair) -> None:
    pair.execute(
        """
        CREATE TABLE "odd ""r" ("a b" timestamptz, "ROW" interval, f float8, n integer[]);
        CREATE FUNCTION ne (record, record) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN false; END';
        CREATE OPERATOR *= (LEFTARG = record, RIGHTARG = record, FUNCTION = ne);
        """
    )
    pair.reference('"odd ""r"')
    pair.execute(
        """INSERT INTO "odd ""r" VALUES ('2026-03-29 01:30 UTC', '-1 day 2:03', 0.1, '{1,NULL}')"""
    )
    settings = {
        "datestyle": "German",
        "timezone": "Europe/Berlin",
        "intervalstyle": "sql_standard",
        "extra_float_digits": "-15",
        "array_nulls": "off",
    }
    for statement in (
        """UPDATE "odd ""r" SET "ROW" = "ROW" * 2""",
        'DELETE FROM "odd ""r"',
    ):
        for name, value in settings.items():
            pair.execute(f"SET {name} = '{value}'")
        pair.same(statement)
        for name in settings:
            pair.execute(f"RESET {name}")
        check_copies(pair, '"odd ""r"')


def test_values_that_their_domain_takes_no_more(pair: Pair) -> None:
    pair.execute("CREATE DOMAIN low AS integer")
    make(pair, "a low, b integer", "VALUES (55, 1), (66, 2)")
    pair.execute("CREATE TABLE keyed (a low PRIMARY KEY, b integer)")
    pair.reference("keyed")
    pair.execute("INSERT INTO keyed VALUES (55, 1), (66, 2)")
    pair.execute("ALTER DOMAIN low ADD CHECK (VALUE < 11) NOT VALID")
    for table in ("r", "keyed"):
        for statement in (
            "UPDATE {0} SET a = 10 WHERE b = 1",
            "UPDATE {0} SET b = 3 WHERE b = 2",
            "DELETE FROM {0}",
        ):
            pair.same(statement.format(table))
            check_copies(pair, table)


@pytest.mark.parametrize("key", ["UNIQUE", "PRIMARY KEY"])
@pytest.mark.parametrize("initially", ["IMMEDIATE", "DEFERRED"])
def test_unique_constraints_that_can_be_deferred(pair: Pair, key: str, initially: str) -> None:
    make(
        pair,
        f"a integer {key} DEFERRABLE INITIALLY {initially}, b integer",
        "SELECT g, g FROM generate_series(1, 9) AS g",
    )
    pair.execute("ALTER TABLE r ADD EXCLUDE USING btree (b WITH =) DEFERRABLE INITIALLY DEFERRED")
    for statement in (
        "UPDATE r SET a = a + 1, b = 10 - b",
        "UPDATE r SET a = 3 WHERE a = 4",
        "BEGIN",
        "UPDATE r SET a = 5 WHERE a = 6",
        "SET CONSTRAINTS ALL IMMEDIATE",
        "ROLLBACK",
        "BEGIN",
        "SET CONSTRAINTS ALL DEFERRED",
        "INSERT INTO r VALUES (2, 2)",
        "UPDATE r SET a = 100, b = 100 WHERE b = 2 AND a > 2",
        "DELETE FROM r WHERE a = 2 AND b > 2",
        "COMMIT",
    ):
        pair.same(statement)
    check_copies(pair)


def test_partitions_and_children(pair: Pair) -> None:
    pair.execute(
        """
        CREATE TABLE r (a integer, b text) PARTITION BY LIST (a);
        CREATE TABLE r1 PARTITION OF r FOR VALUES IN (1);
        CREATE TABLE r2 (b text, gone integer, a integer);
        ALTER TABLE r2 DROP gone;
        ALTER TABLE r ATTACH PARTITION r2 FOR VALUES IN (2);
        """
    )
    pair.reference("r")
    pair.execute("INSERT INTO r VALUES (1, 'x'), (1, 'x'), (2, 'x'), (2, NULL)")
    for statement in (
        "UPDATE r SET a = 3 - a WHERE ctid = '(0,1)'",
        "UPDATE r SET a = 3 - a",
        "DELETE FROM r WHERE a = 2 AND b = 'x'",
    ):
        pair.same(statement)
        check_copies(pair)


def test_referenced_by_a_distributed_table(pair: Pair) -> None:
    pair.execute(
        """
        CREATE TABLE r (a integer UNIQUE, b integer);
        CREATE TABLE t (k integer, a integer REFERENCES r (a) ON UPDATE CASCADE ON DELETE CASCADE);
        """
    )
    pair.reference("r")
    pair.distribute("t", "k")
    pair.execute("INSERT INTO r SELECT g, g FROM generate_series(1, 9) AS g")
    pair.execute("INSERT INTO t SELECT g, g % 9 + 1 FROM generate_series(1, 50) AS g")
    for statement in (
        "UPDATE r SET a = a + 100 WHERE a > 4",
        "DELETE FROM r WHERE a = 2 OR a = 105",
    ):
        pair.same(statement)
        check_copies(pair)
        pair.same("SELECT * FROM t")


def test_a_copy_that_differs_fails_the_statement(pair: Pair) -> None:
    make(pair, "a integer", "VALUES (1), (2)")
    pair.execute("CREATE TABLE keyed (a integer PRIMARY KEY, b integer)")
    pair.reference("keyed")
    pair.execute("INSERT INTO keyed VALUES (1, 1), (2, 2)")
    with pair.cluster.workers[0].connect() as worker:
        worker.execute(
            f"DELETE FROM {SCHEMA}.r WHERE a = 1; DELETE FROM {SCHEMA}.keyed WHERE a = 1"
        )
    for statement in (
        "UPDATE r SET a = 5",
        "DELETE FROM r",
        "UPDATE keyed SET b = 5",
        "DELETE FROM keyed WHERE a = 1",
    ):
        with pytest.raises(
            psycopg.errors.ObjectNotInPrerequisiteState, match="could not find all changed rows"
        ):
            pair.ours.execute(statement)
    assert pair.on_workers("SELECT array_agg(a ORDER BY a) FROM r") == [[2], [1, 2]]
    assert pair.rows("SELECT a FROM r ORDER BY a") == [(1,), (2,)]
    pair.ours.execute("DELETE FROM r WHERE a = 2; UPDATE keyed SET b = 3 WHERE a = 2")


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize(
    "second", ["DELETE FROM r WHERE ctid = '(0,3)'", "UPDATE r SET b = 9 WHERE ctid = '(0,3)'"]
)
def test_two_sessions_change_rows_that_are_the_same(pair: Pair, end: str, second: str) -> None:
    make(pair, "a integer, b integer", "SELECT 1, 1 FROM generate_series(1, 4)")
    pair.execute(
        "BEGIN; DELETE FROM r WHERE ctid = '(0,1)'; SAVEPOINT s; UPDATE r SET b = 7 WHERE ctid = '(0,2)'"
    )
    failures = []

    def change(node) -> None:
        try:
            with node.connect() as session:
                session.execute(f"SET search_path = {SCHEMA}; {second}")
        except psycopg.Error as error:
            failures.append(error)

    threads = [
        threading.Thread(target=change, args=(node,))
        for node in (pair.cluster.coordinator, pair.cluster.plain)
    ]
    for thread in threads:
        thread.start()
    threads[0].join(0.5)  # the copies' row may be locked until the first ends
    pair.execute(end)
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert not failures
    check_copies(pair)
