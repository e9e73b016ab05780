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
    'UPDATE visit SET person = DEFAULT, "odd ""name" = DEFAULT WHERE person < 10',
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


@pytest.mark.sample(2)
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


ERRORS = [
    "UPDATE visit SET person = 666 WHERE id = 5",
    "UPDATE visit SET person = 60, p = -id WHERE id = 5",
    "UPDATE visit SET person = 60 / (id - 5)",
    "UPDATE visit SET person = 60, m = 'angry'",
    "UPDATE visit SET person = 60, serial = 5",
    "UPDATE visit SET person = 60, n = 1e9",
    "UPDATE visit SET person = 60, twice = 5",
]


@pytest.mark.parametrize("statement", ERRORS)
def test_errors(pair: Pair, statement: str) -> None:
    pair.same(statement)
    pair.same(ALL)


def test_keys_of_other_types(pair: Pair) -> None:
    for kind, value in (
        ("text", "person || 'x'"),
        ("uuid", "md5(person::text)::uuid"),
        ("numeric(6, 2)", "person * 3"),
        ("timestamptz", "person + interval '1 day'"),
        ("int4range", "int4range(lower(person), 60)"),
    ):
        pair.execute(f"DROP TABLE IF EXISTS sort; CREATE TABLE sort (id integer, person {kind})")
        pair.distribute("sort", "person", "none")
        first = {
            "uuid": "'00000000-0000-0000-0000-000000000001'",
            "timestamptz": "'2024-01-01 12:00+00'",
            "int4range": "'[1,5)'",
        }.get(kind, "'1.5'")
        pair.execute(f"INSERT INTO sort VALUES (1, {first}), (2, {first}), (3, NULL)")
        pair.same(f"UPDATE sort SET person = {value} WHERE id < 3 RETURNING *")
        pair.same("SELECT * FROM sort WHERE person = (SELECT max(person) FROM sort)")
        pair.same("SELECT person, count(*) FROM sort GROUP BY person")


def test_unique_and_foreign_keys(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE parent (person bigint PRIMARY KEY, v integer);"
        "CREATE TABLE child (person bigint, id integer, a bigint REFERENCES everywhere, PRIMARY KEY (person, id))"
    )
    for table, colocated in (("parent", "none"), ("child", "parent")):
        pair.distribute(table, "person", colocated)
    pair.execute(
        "ALTER TABLE child ADD FOREIGN KEY (person) REFERENCES parent ON UPDATE CASCADE;"
        "INSERT INTO parent SELECT i, i FROM generate_series(1, 20) AS i;"
        "INSERT INTO child SELECT i, i % 3, i % 9 FROM generate_series(1, 10) AS i"
    )
    pair.same("UPDATE child SET person = 11 WHERE person = 10")
    pair.same("UPDATE child SET person = person + 9 WHERE person < 3")
    pair.same("UPDATE child SET person = 77 WHERE person = 5")
    pair.same("UPDATE child SET person = 7, a = 400 WHERE person = 5")
    pair.same("UPDATE child SET person = 7, id = 1 WHERE person = 6")
    pair.same("UPDATE child SET person = NULL WHERE person = 6")
    pair.same("SELECT * FROM child ORDER BY person, id")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="child_person_fkey") as caught:
        pair.ours.execute("UPDATE parent SET person = 100 WHERE person = 20")
    assert 'distribution key "person" of table "parent"' in str(caught.value)
    pair.same("UPDATE parent SET person = 20, v = 0 WHERE person = 20")  # stays where it is
    pair.same("SELECT * FROM parent ORDER BY person")


def test_transactions_see_what_moved(pair: Pair) -> None:
    with pair.transaction():
        pair.same("UPDATE visit SET person = 900 WHERE id < 50")
        pair.same("UPDATE visit SET person = person + 1 WHERE person = 900 RETURNING id, person")
        pair.same("SELECT count(*) FROM visit WHERE person = 901")
        pair.execute("SAVEPOINT s")
        pair.same("UPDATE visit SET person = 902 WHERE person = 901 AND id % 2 = 0")
        pair.same("DELETE FROM visit WHERE person = 902")
        pair.same(ALL)
        pair.execute("ROLLBACK TO s")
        pair.same(ALL)
        pair.same("INSERT INTO visit (id, person) VALUES (7000, 901)")
        pair.same("UPDATE visit SET person = 1 WHERE person = 901")
        pair.same(ALL)
    pair.same(ALL)
    with pair.transaction("COMMIT", "BEGIN ISOLATION LEVEL REPEATABLE READ"):
        pair.same("UPDATE visit SET person = id")
        pair.same(ALL)
    pair.same(ALL)
    with pair.transaction("ROLLBACK", "BEGIN READ ONLY"):
        pair.same("UPDATE visit SET person = id + 1")
    pair.same(ALL)


def test_prepared_and_in_functions(pair: Pair) -> None:
    pair.execute(
        "PREPARE move(bigint, bigint) AS UPDATE visit SET person = $1 WHERE person = $2 RETURNING id;"
        "CREATE FUNCTION move(old bigint, new bigint) RETURNS bigint LANGUAGE plpgsql AS $$"
        " DECLARE moved bigint; BEGIN UPDATE visit SET person = new WHERE person = old;"
        " GET DIAGNOSTICS moved = ROW_COUNT; RETURN moved; END $$;"
        "CREATE VIEW tens AS SELECT id, person FROM visit WHERE person >= 10;"
        "SET plan_cache_mode = force_generic_plan"
    )
    for old in (3, 4, 5, 5):
        pair.same(f"EXECUTE move({old}, {old + 50})")
        pair.same(f"SELECT move({old + 50}, {old + 60})")
    pair.same("EXECUTE move(63, 63)")
    pair.same("UPDATE tens SET person = person - 5")
    pair.same(ALL)
    pair.execute("DEALLOCATE move; RESET plan_cache_mode; DROP VIEW tens; DROP FUNCTION move")


def test_explain(pair: Pair) -> None:
    plan = pair.explain("UPDATE visit SET person = 3", "COSTS OFF, VERBOSE")
    assert "strata_worker.take_row" in plan
    analyzed = pair.explain(
        "UPDATE visit SET person = 3", "ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF"
    )
    assert "actual rows=300" in analyzed
    # the same key: no row moves
    plan = pair.explain("UPDATE visit SET person = 3, n = 4 WHERE person = 3", "COSTS OFF, VERBOSE")
    assert "take_row" not in plan


def test_privileges(pair: Pair) -> None:
    """The same as for any UPDATE: neither INSERT nor DELETE."""
    pair.cluster.create_role("mover")
    schema = pair.schema
    pair.ours.execute(
        f"GRANT USAGE ON SCHEMA {schema} TO mover; GRANT SELECT, UPDATE ON visit TO mover"
    )
    try:
        with pair.cluster.coordinator.connect(user="mover") as mover:
            mover.execute(f"SET search_path = {schema}")
            assert (
                mover.execute("UPDATE visit SET person = 5 WHERE id < 9").statusmessage
                == "UPDATE 8"
            )
            pair.ours.execute(
                "REVOKE UPDATE ON visit FROM mover; GRANT UPDATE (n) ON visit TO mover"
            )
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                mover.execute("UPDATE visit SET person = 5")
            pair.ours.execute(
                "GRANT UPDATE (person) ON visit TO mover; REVOKE SELECT ON visit FROM mover"
            )
            assert mover.execute("UPDATE visit SET person = 6").statusmessage == "UPDATE 300"
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                mover.execute("UPDATE visit SET person = id")
    finally:
        pair.ours.execute("DROP OWNED BY mover; DROP ROLE mover")


def test_merge_moves_rows(pair: Pair) -> None:
    pair.same(
        "MERGE INTO person USING everywhere ON a = person WHEN MATCHED THEN UPDATE SET person = b"
    )
    pair.same("SELECT * FROM person")


def test_on_conflict_cannot_move_rows(pair: Pair) -> None:
    pair.execute("CREATE UNIQUE INDEX ON person (person)")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="distribution key") as caught:
        pair.ours.execute(
            "INSERT INTO person VALUES (1, 'x', 1) ON CONFLICT (person) DO UPDATE SET person = 5"
        )
    assert "Use UPDATE, which moves rows." in str(caught.value)


def test_nobody_else_takes_rows(pair: Pair) -> None:
    """Neither by hand on a worker, nor in code that runs in the coordinator's statements there."""
    take = f"strata_worker.take_row('{pair.schema}.visit_s0'::regclass, '(0,1)')"
    with pair.cluster.workers[0].connect() as session:
        for statement in (
            f"SELECT {take}",
            f"SELECT count(*) FROM {pair.schema}.visit WHERE {take}",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="own statements only"):
                session.execute(statement)
    pair.ours.execute("SET check_function_bodies = off")
    for name, language, body in (
        ("inlined", "sql", f"SELECT {take} AND $1 IS NOT NULL"),
        ("simple", "plpgsql", f"BEGIN RETURN {take}; END"),
        (
            "hidden",
            "plpgsql",
            f"DECLARE x boolean; BEGIN EXECUTE $s$SELECT {take}$s$ INTO x; RETURN x; END",
        ),
    ):
        pair.ours.execute(
            f"CREATE FUNCTION {name}(integer) RETURNS boolean LANGUAGE {language} IMMUTABLE AS $${body}$$"
        )
        for statement in (
            f"SELECT count(*) FROM visit WHERE {name}(id)",
            f"UPDATE visit SET n = 1 WHERE {name}(id)",
            f"UPDATE visit SET person = id WHERE {name}(id)",
        ):
            with pytest.raises(psycopg.Error, match=r"own statements only|does not exist"):
                pair.ours.execute(statement)
    pair.same(ALL)
