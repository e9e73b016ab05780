"""UPDATE of the distribution key: rows move to the workers of their new keys."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

TABLES = """
CREATE TYPE mood AS ENUM ('sad', 'fine', 'glad');
CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
CREATE TABLE visit (id integer, gone text, person bigint, "odd ""name" text DEFAULT 'none', n numeric(8, 2), m mood,
  list integer[], p positive, seen date DEFAULT current_date, twice bigint GENERATED ALWAYS AS (person * 2) STORED,
  serial bigint GENERATED ALWAYS AS IDENTITY, CHECK (person <> 666));
ALTER TABLE visit DROP COLUMN gone;
CREATE TABLE person (person bigint, name text, other bigint);
CREATE TABLE here (a bigint, b bigint);
CREATE TABLE everywhere (a bigint PRIMARY KEY, b bigint);
"""
ROWS = """
INSERT INTO visit (id, person, n, m, list, p) SELECT i, nullif(i % 23, 7), i * 1.5, (enum_range(NULL::mood))[1 + i % 3],
  ARRAY[i, i + 1], i FROM generate_series(1, 300) AS i;
INSERT INTO person SELECT i, 'p' || i, i * 100 FROM generate_series(0, 30) AS i;
INSERT INTO here SELECT i, i + 1000 FROM generate_series(0, 9) AS i;
INSERT INTO everywhere SELECT i, i + 1000 FROM generate_series(0, 9) AS i;
ANALYZE visit, person, here, everywhere;
"""
ALL = 'SELECT id, person, "odd ""name", n, m, list, p, twice, serial FROM visit ORDER BY id'


@pytest.fixture(params=["columnar", "heap"])
def pair(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with open_pair(cluster, "test_moved_rows") as made:
        made.execute(TABLES)
        for table, colocated in (("visit", "none"), ("person", "visit")):
            made.distribute(table, "person", colocated, storage=request.param)
        made.reference("everywhere")
        made.execute(ROWS)
        yield made


STATEMENTS = [
    "UPDATE visit SET person = person + 1",
    "UPDATE visit SET person = 5",
    "UPDATE visit SET person = NULL WHERE id % 2 = 0",
    "UPDATE visit SET person = 1 WHERE person IS NULL",
    "UPDATE visit SET person = id, n = n * 2, \"odd \"\"name\" = 'it''s \\' || id, m = 'sad', p = p + 1",
    "UPDATE visit SET person = id, list[2] = 7, p = DEFAULT WHERE id > 100",
    "UPDATE visit SET person = DEFAULT, \"odd \"\"name\" = DEFAULT WHERE person < 10",
    "UPDATE visit SET person = person WHERE id = 3",
    "UPDATE visit SET person = 4, n = 1 WHERE person = 4",
    "UPDATE visit SET person = 5 WHERE person = 4",
    "UPDATE visit AS v SET person = other FROM person AS p WHERE v.person = p.person AND name LIKE 'p1%'",
    "UPDATE visit SET person = 1 + (SELECT max(person) FROM person)",
    "UPDATE visit SET (person, n) = (SELECT max(other), 7.25 FROM person)",
    "UPDATE visit SET person = (SELECT other FROM person WHERE person.person = visit.person)",
    "UPDATE visit SET person = b FROM everywhere WHERE a = person",
    "UPDATE visit SET person = CASE WHEN id % 3 = 0 THEN 77 ELSE person END WHERE id < 50",
    "UPDATE visit SET person = 50 WHERE false",
    "UPDATE visit SET person = 50 WHERE EXISTS (SELECT FROM person WHERE person.person = visit.person AND name > 'p2')",
    "WITH picked AS (SELECT 3 AS x) UPDATE visit SET person = 50 + x FROM picked WHERE person = x",
]
RETURNING = [
    "UPDATE visit SET person = person + 100 WHERE id < 20 RETURNING id, person, twice, n, list, m",
    "UPDATE visit SET person = 9, id = id + 1000 WHERE id = 20 RETURNING *, id * 2 AS x",
    "UPDATE visit AS v SET person = other FROM person AS p WHERE v.person = p.person AND id < 30"
    " RETURNING v.id, p.name, p.other, v.person, v.twice, p",
    "WITH moved AS (UPDATE visit SET person = id WHERE id < 9 RETURNING id, person)"
    " SELECT count(*), sum(person) FROM moved",
    "WITH moved AS (UPDATE visit SET person = id WHERE id < 9) SELECT 1",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_rows(pair: Pair, statement: str) -> None:
    pair.same(statement)
    pair.same(ALL)
    pair.same("SELECT person, count(*) FROM visit GROUP BY person")
    pair.same("SELECT count(*) FROM visit JOIN person USING (person)")


@pytest.mark.parametrize("statement", RETURNING)
def test_returning(pair: Pair, statement: str) -> None:
    pair.same(statement)
    pair.same(ALL)


def test_row_joined_twice(pair: Pair) -> None:
    """As in PostgreSQL one of the new rows is taken."""
    pair.execute("CREATE TABLE twice (person bigint, x bigint)")
    pair.reference("twice")
    pair.execute("INSERT INTO twice VALUES (3, 70), (3, 71), (4, 72)")
    pair.same("UPDATE visit SET person = x FROM twice WHERE twice.person = visit.person AND x < 72")
    pair.same("SELECT id, person / 2 FROM visit")
