"""A statement inside a function ends when the workers have taken its rows: an error is its own."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_statement_ends") as made:
        made.execute(
            "CREATE TABLE t (k integer PRIMARY KEY, v integer);"
            "CREATE TABLE child (k integer, n integer, FOREIGN KEY (k) REFERENCES t (k));"
            "CREATE TABLE part (k integer, v integer, share integer GENERATED ALWAYS AS (100 / v) STORED);"
            "CREATE TABLE bare (k integer, v integer);"
            "CREATE TABLE lookup (k integer, v integer);"
            "CREATE UNIQUE INDEX ON lookup (k, (10 / v))"
        )
        made.ours.execute("ALTER TABLE child DROP CONSTRAINT child_k_fkey")
        made.distribute("t", "k")
        made.distribute("child", "k", colocate_with="t")
        made.ours.execute("ALTER TABLE child ADD FOREIGN KEY (k) REFERENCES t (k)")
        for table in ("part", "bare", "lookup"):
            made.distribute(table, "k")
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    data.execute("TRUNCATE t, child, part, bare, lookup; INSERT INTO t VALUES (1, 1), (2, 2)")
    yield data
    data.reset()


REFUSED = {
    "key": "INSERT INTO t VALUES (7, 7), (1, 5)",
    "keys of a query": "INSERT INTO t SELECT i, i FROM generate_series(200, 1, -1) AS i",
    "foreign key": "INSERT INTO child VALUES (5, 5)",
    "generated column": "INSERT INTO part VALUES (1, 0)",
    "index": "INSERT INTO lookup VALUES (1, 0)",
}


@pytest.mark.parametrize("statement", REFUSED.values(), ids=REFUSED)
def test_what_follows_a_refused_insert_is_not_reached(pair: Pair, statement: str):
    body = f"n := n + 1; {statement}; n := n + 10; RAISE division_by_zero USING MESSAGE = 'late';"
    pair.same(f"DO $$DECLARE n integer := 0; BEGIN {body} END$$")
    pair.execute(
        "CREATE OR REPLACE FUNCTION count_steps() RETURNS integer LANGUAGE plpgsql AS $$"
        f"DECLARE n integer := 0; BEGIN BEGIN {body} EXCEPTION WHEN OTHERS THEN"
        " n := n + CASE WHEN SQLERRM = 'late' THEN 1000 ELSE 100 END; END; RETURN n; END$$"
    )
    assert pair.same("SELECT count_steps()") == [("101",)]
    pair.same("SELECT * FROM t")


def test_a_procedure_learns_of_a_duplicate_before_it_rolls_back(pair: Pair):
    pair.execute(
        "CREATE OR REPLACE PROCEDURE insert_and_forget() LANGUAGE plpgsql AS $$"
        "BEGIN INSERT INTO t VALUES (3, 3); COMMIT; INSERT INTO t VALUES (1, 1); ROLLBACK; END$$"
    )
    pair.same("CALL insert_and_forget()")
    pair.same("SELECT * FROM t")
    with pytest.raises(psycopg.errors.UniqueViolation) as caught:
        pair.ours.execute("CALL insert_and_forget()")
    assert "INSERT INTO t VALUES (3, 3)" in caught.value.diag.context


def test_functions_insert_beside_the_statement_that_calls_them(pair: Pair):
    """Rows of the outer statement are still on their way; some of them are what the inner's refer to."""
    pair.execute(
        "CREATE OR REPLACE FUNCTION add_child(integer) RETURNS integer VOLATILE LANGUAGE plpgsql AS"
        " $$BEGIN INSERT INTO child VALUES ($1, $1); RETURN $1; END$$;"
        "CREATE OR REPLACE FUNCTION add_t(integer) RETURNS integer VOLATILE LANGUAGE plpgsql AS"
        " $$BEGIN INSERT INTO t VALUES ($1 % 1000, 0); RETURN $1; END$$"
    )
    pair.same("INSERT INTO t SELECT i, add_child(i - 1) FROM generate_series(3, 300) AS i")
    pair.same("SELECT count(*), sum(n) FROM child")
    pair.same("INSERT INTO bare SELECT add_t(i), i FROM generate_series(400, 900) AS i")
    pair.same("SELECT count(*), sum(k), sum(v) FROM bare")
    pair.same("INSERT INTO bare SELECT add_t(i), i FROM generate_series(950, 1002) AS i")
    pair.same("INSERT INTO t SELECT add_t(i + 1), i FROM generate_series(950, 960) AS i")
    pair.same("SELECT count(*), sum(k), sum(v) FROM t")
    pair.same("SELECT count(*) FROM bare")
