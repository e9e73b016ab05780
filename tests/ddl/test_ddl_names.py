"""Whatever a name or a text contains: it names the same thing on all nodes, and nothing else happens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from psycopg import sql

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

# Quotes of all kinds, dollars, line ends, comments, format() and keywords; below 63 bytes.
NAMES = [
    "a\"b'; DROP TABLE kept; --",
    "$strata$ $$ $1 :x %s %I %%",
    "two\nlines\t/* open",
    "\\' \\\" \\x27 E'",
    "SELECT",
    "Grüße €",
]


def quoted(name: str) -> str:
    return sql.Identifier(name).as_string(None)


def literal(text: str) -> str:
    return sql.Literal(text).as_string(None)


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_names") as made:
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    data.ours.execute("CREATE TABLE kept (id integer PRIMARY KEY)")
    data.distribute("kept", "id")
    data.ours.execute("INSERT INTO kept SELECT generate_series(1, 10)")
    yield data
    data.reset()
    data.ours.execute("RESET ROLE; DROP SCHEMA test_names CASCADE; CREATE SCHEMA test_names")


def catalog(pair: Pair) -> list[list[tuple]]:
    """Names, definitions and comments of what is in the schema, without the partitions, per node."""
    query = """
    SELECT 'column', c.relname || '.' || attname || ' ' || format_type(atttypid, atttypmod) || ' ' || attnotnull
      FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = attrelid
     WHERE relnamespace = 'test_names'::regnamespace AND relkind IN ('r', 'p', 'c') AND NOT relispartition
       AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT 'constraint', conname || ' ' || pg_get_constraintdef(c.oid) FROM pg_constraint AS c JOIN pg_class AS t ON t.oid = conrelid
     WHERE connamespace = 'test_names'::regnamespace AND NOT relispartition AND contype <> 'n'
    UNION ALL
    SELECT 'index', replace(pg_get_indexdef(c.oid), ' ON ONLY ', ' ON ') FROM pg_class AS c
     WHERE relnamespace = 'test_names'::regnamespace AND relkind IN ('i', 'I') AND NOT relispartition
    UNION ALL
    SELECT 'statistics', pg_get_statisticsobjdef(oid) FROM pg_statistic_ext WHERE stxnamespace = 'test_names'::regnamespace
    UNION ALL
    SELECT 'function', pg_get_functiondef(oid) || coalesce((SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(proacl) AS a), '') FROM pg_proc WHERE pronamespace = 'test_names'::regnamespace AND prokind <> 'a'
    UNION ALL
    SELECT 'type', typname || ' ' || typtype::text FROM pg_type WHERE typnamespace = 'test_names'::regnamespace AND typtype IN ('e', 'd', 'r')
    UNION ALL
    SELECT 'label', enumlabel FROM pg_enum JOIN pg_type AS t ON t.oid = enumtypid WHERE typnamespace = 'test_names'::regnamespace
    UNION ALL
    SELECT 'comment', description FROM pg_description AS d JOIN pg_class AS c ON c.oid = objoid AND classoid = 'pg_class'::regclass
     WHERE relnamespace = 'test_names'::regnamespace AND NOT relispartition
    ORDER BY 1, 2
    """
    answers = []
    for node in (pair.cluster.coordinator, *pair.cluster.workers):
        with node.connect() as connection:
            connection.execute("SET search_path = pg_catalog")
            answers.append(connection.execute(query).fetchall())
    return answers


def check(pair: Pair, at_least: int) -> None:
    here, *there = catalog(pair)
    assert len(here) >= at_least
    for answer in there:
        assert answer == here
    assert pair.rows("SELECT count(*) FROM kept") == [(10,)]


@pytest.mark.parametrize("name", NAMES)
def test_tables_and_what_hangs_on_them(pair: Pair, name: str) -> None:
    n = quoted(name)
    other = quoted(name[::-1])
    text = literal(name)
    pair.ours.execute(f"CREATE TABLE {n} ({n} integer PRIMARY KEY, v text CHECK (v <> {text}))")
    pair.ours.execute(
        "SELECT strata.create_distributed_table(%s::regclass, %s, 4, 'none')",
        (f"test_names.{n}", name),
    )
    pair.ours.execute(f"INSERT INTO {n} SELECT g, 'v' || g FROM generate_series(1, 20) AS g")
    for statement in (
        f"ALTER TABLE {n} ADD COLUMN {other} text DEFAULT {text} CHECK ({other} <> ''), ADD COLUMN s serial",
        f"ALTER TABLE {n} ALTER {other} SET NOT NULL, ALTER {other} SET STATISTICS 7, ALTER {other} SET COMPRESSION pglz",
        f"ALTER TABLE {n} ALTER {other} TYPE varchar(100) USING {other} || {text}, ALTER {other} SET (n_distinct = 3)",
        f"ALTER TABLE {n} ADD CONSTRAINT {other} UNIQUE ({n}, {other})",
        f"ALTER TABLE {n} RENAME CONSTRAINT {other} TO renamed",
        f"ALTER TABLE {n} SET (fillfactor = 50)",
        f"CREATE INDEX {quoted('i' + name)} ON {n} (({other} || {text})) WHERE {other} <> {text}",
        f"CREATE INDEX CONCURRENTLY {quoted('c' + name)} ON {n} ({other})",
        f"ALTER INDEX {quoted('i' + name)} RENAME TO {quoted('j' + name)}",
        f"CREATE STATISTICS {n} ON {n}, {other} FROM {n}",
        f"COMMENT ON TABLE {n} IS {text}",
        f"COMMENT ON COLUMN {n}.{other} IS {text}",
        f"REINDEX TABLE {n}",
        f"VACUUM {n}",
        f"TRUNCATE {n}",
        f"ALTER TABLE {n} RENAME COLUMN {other} TO third",
        f"ALTER TABLE {n} RENAME TO {other}",
        f"INSERT INTO {other} ({n}, third) VALUES (1, {text})",
        f"DROP INDEX {quoted('c' + name)}",
    ):  # fmt: skip
        pair.ours.execute(statement)
        check(pair, 5)
    assert pair.rows(f"SELECT third FROM {other}") == [(name,)]
    pair.ours.execute(f"DROP TABLE {other}")
    check(pair, 2)


@pytest.mark.parametrize("name", NAMES)
def test_reference_tables_and_foreign_keys(pair: Pair, name: str) -> None:
    n, text = quoted(name), literal(name)
    pair.ours.execute(f"CREATE TABLE {n} ({n} integer PRIMARY KEY, v text)")
    pair.ours.execute("SELECT strata.create_reference_table(%s::regclass)", (f"test_names.{n}",))
    for statement in (
        f"INSERT INTO {n} VALUES (1, {text})",
        f"ALTER TABLE {n} ADD COLUMN w text DEFAULT {text}",
        f"ALTER TABLE kept ADD COLUMN r integer DEFAULT 1 CONSTRAINT {n} REFERENCES {n}",
        f"CREATE INDEX {quoted('i' + name)} ON {n} (v)",
        f"ALTER INDEX {quoted('i' + name)} SET (fillfactor = 60)",
        f"DROP INDEX CONCURRENTLY {quoted('i' + name)}",
        f"ALTER TABLE kept DROP CONSTRAINT {n}",
    ):
        pair.ours.execute(statement)
        check(pair, 4)
    for worker in pair.cluster.workers:
        assert worker.query(f"SELECT v, w FROM test_names.{n}") == [(name, name)]


@pytest.mark.parametrize("name", NAMES)
def test_types_functions_and_privileges(pair: Pair, name: str) -> None:
    n, text = quoted(name), literal(name)
    role = quoted("names " + name)
    try:
        for statement in (
            f"CREATE ROLE {role}",
            f"CREATE TYPE {n} AS ENUM ({text})",
            f"ALTER TYPE {n} ADD VALUE 'second' BEFORE {text}",
            f"CREATE DOMAIN {quoted('d' + name)} AS text CHECK (VALUE <> {text})",
            f"CREATE TYPE {quoted('c' + name)} AS ({n} {n})",
            f"CREATE FUNCTION {n} ({n} {n}) RETURNS text LANGUAGE sql AS {literal('SELECT ' + text)}",
            f"COMMENT ON FUNCTION {n} ({n}) IS {text}",
            f"GRANT EXECUTE ON FUNCTION {n} ({n}) TO {role} WITH GRANT OPTION",
            f"ALTER DEFAULT PRIVILEGES IN SCHEMA test_names GRANT EXECUTE ON FUNCTIONS TO {role}",
            f"CREATE FUNCTION {n} () RETURNS text LANGUAGE sql AS {literal('SELECT ' + text)}",
            f"ALTER FUNCTION {n} () RENAME TO {quoted('f' + name)}",
            f"ALTER FUNCTION {quoted('f' + name)} () OWNER TO {role}",
            f"GRANT SELECT (id), UPDATE ON kept TO {role}",
            f"ALTER TABLE kept OWNER TO {role}",
            f"ALTER ROLE {role} RENAME TO {quoted('NAMES ' + name)}",
        ):
            pair.ours.execute(statement)
            check(pair, 1)
    finally:
        pair.ours.execute(
            "ALTER DEFAULT PRIVILEGES IN SCHEMA test_names REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC"
        )
        for old in (role, quoted("NAMES " + name)):
            if pair.rows(
                "SELECT FROM pg_roles WHERE quote_ident(rolname) = %s OR rolname = %s",
                (old, old[1:-1].replace('""', '"')),
            ):
                pair.ours.execute(f"REASSIGN OWNED BY {old} TO postgres")
                pair.ours.execute(f"DROP OWNED BY {old}; DROP ROLE {old}")


@pytest.mark.parametrize("name", NAMES)
def test_schemas(pair: Pair, name: str) -> None:
    n = quoted("s" + name)
    try:
        pair.ours.execute(f"CREATE SCHEMA {n}")
        pair.ours.execute(f"CREATE TABLE {n}.t (id integer, v text)")
        pair.ours.execute(
            "SELECT strata.create_distributed_table(%s::regclass, 'id', 4, 'none')", (f"{n}.t",)
        )
        pair.ours.execute(f"ALTER TABLE {n}.t ADD COLUMN w serial")
        pair.ours.execute(f"CREATE INDEX CONCURRENTLY i ON {n}.t (v)")
        pair.ours.execute(f"INSERT INTO {n}.t VALUES (1, 'x')")
        pair.ours.execute(f"REINDEX SCHEMA {n}")
        pair.ours.execute(f"ALTER TABLE kept SET SCHEMA {n}")
        assert pair.rows(f"SELECT count(*) FROM {n}.kept JOIN {n}.t USING (id)") == [(1,)]
        pair.ours.execute(f"ALTER TABLE {n}.kept SET SCHEMA test_names")
        check(pair, 2)
    finally:
        pair.ours.execute(f"DROP SCHEMA IF EXISTS {n} CASCADE")
    for worker in pair.cluster.workers:
        assert (
            worker.value("SELECT count(*) FROM pg_namespace WHERE nspname = %s", ("s" + name,)) == 0
        )
