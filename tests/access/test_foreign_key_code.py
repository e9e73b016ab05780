"""Code that a foreign key computes on workers touches no table there, in whoever's query it runs."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

OWNER = "strata key owner"
SCHEMA = "test_foreign_key_code"

# Each worker would change its own copy of the list, or another one than the other worker does.
SETUP = f"""
CREATE TABLE list (n integer PRIMARY KEY, port text);
CREATE FUNCTION note (integer) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {SCHEMA}.list SET port = current_setting('port');
    RETURN $1;
END $$;
CREATE FUNCTION look (integer) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    RETURN $1 + (SELECT count(*) FROM {SCHEMA}.list) * 0;
END $$;
CREATE FUNCTION make (integer) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    CREATE TEMPORARY TABLE made (a integer);
    RETURN $1;
END $$;
CREATE FUNCTION pass (integer) RETURNS integer LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION run (integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS
    'BEGIN RETURN {SCHEMA}.%1$s($1); END';
CREATE TYPE pair_of AS (a integer, b integer);
CREATE FUNCTION to_integer (pair_of) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS
    'BEGIN RETURN {SCHEMA}.run($1.a); END';
CREATE CAST (pair_of AS integer) WITH FUNCTION to_integer (pair_of) AS IMPLICIT;
CREATE TABLE parent (k integer PRIMARY KEY);
CREATE TABLE by_cast (k integer PRIMARY KEY,
    p pair_of REFERENCES parent %2$s);
CREATE TABLE by_check (k integer PRIMARY KEY,
    p integer CHECK ({SCHEMA}.run(p) > 0) REFERENCES parent ON UPDATE CASCADE);
"""


@pytest.fixture
def pair(cluster: Cluster) -> Iterator[Pair]:
    cluster.create_role(OWNER)
    with open_pair(cluster, SCHEMA) as made:
        made.execute(f'GRANT USAGE, CREATE ON SCHEMA {SCHEMA} TO "{OWNER}"')
        made.execute(f'SET SESSION AUTHORIZATION "{OWNER}"')
        yield made
        made.reset()


def prepare(pair: Pair, function: str, deferred: str = "") -> None:
    pair.execute(SETUP.replace("%1$s", function).replace("%2$s", deferred))
    for table in ("list", "parent", "by_check"):
        pair.reference(table)
    pair.distribute("by_cast", "k")
    pair.execute("INSERT INTO list VALUES (1, ''); INSERT INTO parent VALUES (1), (2)")


def copies(pair: Pair) -> list:
    """What each worker holds; the coordinator has no rows."""
    return pair.on_workers("SELECT json_agg(l ORDER BY n)::text FROM list AS l")


@pytest.mark.parametrize("deferred", ["", "DEFERRABLE INITIALLY DEFERRED"])
@pytest.mark.parametrize("function", ["note", "look", "make"])
def test_a_cast_inside_a_foreign_keys_query(pair: Pair, function: str, deferred: str) -> None:
    prepare(pair, function, deferred)
    before = copies(pair)
    with pytest.raises(
        psycopg.errors.InsufficientPrivilege, match="function that runs on a worker"
    ):
        pair.ours.execute("INSERT INTO by_cast VALUES (1, (1, 1))")
    assert copies(pair) == before


@pytest.mark.parametrize("function", ["note", "look", "make"])
def test_a_check_inside_a_cascade(pair: Pair, function: str) -> None:
    prepare(pair, "pass")
    pair.execute("INSERT INTO by_check VALUES (1, 1)")
    pair.execute(
        f"CREATE OR REPLACE FUNCTION run (integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS"
        f" 'BEGIN RETURN {SCHEMA}.{function}($1); END'"
    )
    before = copies(pair)
    with pytest.raises(
        psycopg.errors.InsufficientPrivilege, match="function that runs on a worker"
    ):
        pair.ours.execute("UPDATE parent SET k = 3 WHERE k = 1")
    assert copies(pair) == before
    assert pair.ours.execute("SELECT k, p FROM by_check").fetchall() == [(1, 1)]


def test_what_only_computes_is_let_through(pair: Pair) -> None:
    prepare(pair, "pass")
    pair.same("INSERT INTO by_cast VALUES (1, (1, 1)), (2, (2, 1))")
    pair.same("INSERT INTO by_check VALUES (1, 2)")
    pair.same("UPDATE parent SET k = 4 WHERE k = 2 AND false")
    pair.same("SELECT k, (p).a FROM by_cast")
    pair.same("SELECT * FROM by_check")
