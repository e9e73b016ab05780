"""Names and values that look like SQL reach the workers as names and values, and nothing else.

Everything here is done to the cluster and to one plain server, which must agree; and a table on each
worker, which every hostile text tries to drop, must be there at the end.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from psycopg import sql

from tests.assert_same import run
from tests.cluster import Cluster
from tests.pair import Pair, open_pair

SCHEMA = "test_injection"


HOSTILE = [
    "a\"b'; DROP TABLE public.canary; --",
    "'; DROP TABLE public.canary; --",
    "\\'; DROP TABLE public.canary; --",
    "\\",
    "$strata$; DROP TABLE public.canary; $strata$",
    "$$",
    "/* DROP TABLE public.canary",
    "%s %I %L %1$s $1",
    "größe 名前 🐘",
    "Upper Case\tand\nlines",
    "select",
    " ",
    "\u00a0\u2028'",
]
IDS = [f"text{n}" for n in range(len(HOSTILE))]


def ident(name: str) -> sql.Identifier:
    return sql.Identifier(name)


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    for worker in cluster.workers:
        worker.execute("CREATE TABLE public.canary (id integer)")
    with open_pair(cluster, SCHEMA) as made:
        made.execute(
            "CREATE TABLE t (id integer PRIMARY KEY, v text, a text[], j jsonb, b bytea);"
            "CREATE TABLE k (key text PRIMARY KEY, v integer);"
            "CREATE TABLE r (id integer PRIMARY KEY, v text);"
        )
        made.distribute("t", "id")
        made.distribute("k", "key")
        made.reference("r")
        yield made
    for worker in cluster.workers:
        worker.execute("DROP TABLE public.canary")


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    for connection in (data.ours, data.theirs):
        connection.prepare_threshold = None
    data.execute("TRUNCATE t; TRUNCATE k; TRUNCATE r")
    yield data
    data.reset()
    data.execute("RESET ALL")
    data.execute(f"SET search_path = {SCHEMA}, public, strata")
    data.ours.execute("DEALLOCATE ALL")
    data.theirs.execute("DEALLOCATE ALL")
    for worker in data.cluster.workers:
        assert worker.query("SELECT * FROM public.canary") == []


def both(pair: Pair, statement: str, **parts: sql.Composable) -> None:
    """A statement composed of quoted parts, on both servers with the same outcome."""
    pair.same(sql.SQL(statement).format(**parts).as_string(pair.theirs))


# ---- values -----------------------------------------------------------------------------------------

VALUE_STATEMENTS = [
    "INSERT INTO t VALUES (1, {v}, ARRAY[{v}, NULL, 'x'], jsonb_build_object({v}, {v}), convert_to({v}, 'UTF8'))",
    "INSERT INTO t SELECT g, {v} || g, NULL, to_jsonb({v}), NULL FROM generate_series(2, 20) AS g",
    "INSERT INTO k VALUES ({v}, 1) RETURNING *",
    "INSERT INTO k VALUES ({v}, 2) ON CONFLICT (key) DO UPDATE SET v = k.v + excluded.v RETURNING *",
    "INSERT INTO r VALUES (1, {v}), (2, {v})",
    "SELECT * FROM t WHERE v = {v}",
    "SELECT * FROM t WHERE v LIKE {v} || '%'",
    "SELECT * FROM k WHERE key = {v}",
    "SELECT * FROM k WHERE key IN ({v}, 'x', {v})",
    "SELECT * FROM k WHERE key = ANY (ARRAY[{v}])",
    "SELECT t.id, {v} FROM t JOIN r ON r.v = {v} WHERE t.id = 1",
    "SELECT id FROM t WHERE {v} = ANY (a) OR j ? {v} OR b = convert_to({v}, 'UTF8')",
    "SELECT id FROM t WHERE (v, {v}) = ROW({v}, v)",
    "SELECT string_agg(v, {v} ORDER BY id), max({v}), count(*) FILTER (WHERE v <> {v}) FROM t",
    "SELECT v || {v}, count(*) FROM t GROUP BY 1 ORDER BY 1 LIMIT 3",
    "SELECT id FROM t WHERE v > (SELECT min(v) || {v} FROM r)",
    "SELECT id, (SELECT count(*) FROM k WHERE k.key = t.v AND key <> {v}) FROM t",
    "UPDATE t SET v = v || {v}, a = array_append(a, {v}), j = jsonb_build_object({v}, v) WHERE v = {v}",
    "UPDATE t SET v = {v} WHERE id > 10 RETURNING *",
    "UPDATE r SET v = v || {v}",
    "DELETE FROM t USING r WHERE t.v = r.v AND r.v <> {v}",
    "DELETE FROM k WHERE key = {v} RETURNING *",
    "SELECT * FROM t", "SELECT * FROM k", "SELECT * FROM r",
]  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("conforming", ["on", "off"])
@pytest.mark.parametrize("text", HOSTILE, ids=IDS)
def test_a_constant_is_a_value(pair: Pair, text: str, conforming: str) -> None:
    pair.execute("SET escape_string_warning = off")
    pair.execute(f"SET standard_conforming_strings = {conforming}")
    literal = "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
    for statement in VALUE_STATEMENTS:
        pair.same(statement.replace("{v}", literal))


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("text", HOSTILE, ids=IDS)
def test_a_parameter_is_a_value(pair: Pair, text: str, mode: str) -> None:
    pair.execute(f"SET plan_cache_mode = {mode}")
    for number, statement in enumerate(VALUE_STATEMENTS):
        if "{v}" not in statement:
            pair.same(statement)
            continue
        pair.same(f"PREPARE p{number} (text) AS {statement.replace('{v}', '$1::text')}")
        both(pair, f"EXECUTE p{number} ({{v}})", v=sql.Literal(text))


@pytest.mark.parametrize("text", HOSTILE, ids=IDS)
def test_copied_text_is_a_value(pair: Pair, text: str) -> None:
    field = text
    for mark, escape in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n")):
        field = field.replace(mark, escape)
    pair.copy("COPY k FROM STDIN", f"{field}\t1\nother\t2\n")
    quoted = text.replace('"', '""')
    pair.copy("COPY r FROM STDIN (FORMAT csv)", f'1,"{quoted}"\n')
    pair.copy("COPY r (v, id) FROM STDIN (FORMAT csv, DELIMITER ';', QUOTE '''')", "'a;''b';2\n")
    both(
        pair,
        "SELECT count(*) FROM k WHERE key = {v} UNION ALL SELECT count(*) FROM r WHERE v = {v}",
        v=sql.Literal(text),
    )
    pair.same("SELECT * FROM k")
    pair.same("SELECT * FROM r")


@pytest.mark.parametrize("text", HOSTILE, ids=IDS)
def test_a_setting_is_a_value(pair: Pair, text: str) -> None:
    """Settings that the workers share with the session, and one that they do not."""
    pair.execute("INSERT INTO t SELECT g FROM generate_series(1, 5) AS g")
    for setting in ("application_name", "app.tenant"):
        both(pair, f"SELECT set_config('{setting}', {{v}}, false)", v=sql.Literal(text))
        pair.same(f"SELECT count(*) FROM t WHERE current_setting('{setting}') <> v OR v IS NULL")
    pair.execute(
        sql.SQL("SET search_path = {}, {}, {}").format(
            ident(SCHEMA), ident(text), sql.Literal(text + " 2")
        )
        .as_string(pair.theirs)
    )  # fmt: skip
    pair.same("SELECT count(*) FROM t")
    pair.same("SHOW search_path")


# ---- names ------------------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("conforming", ["on", "off"])
@pytest.mark.parametrize("text", HOSTILE, ids=IDS)
def test_a_name_is_a_name(pair: Pair, text: str, conforming: str) -> None:
    """Of schemas, tables, columns, types, functions, collations, constraints, indexes and aliases."""
    pair.execute("SET escape_string_warning = off; SET quote_all_identifiers = on")
    pair.execute(f"SET standard_conforming_strings = {conforming}")
    name = ident(text)
    parts = {
        "s": ident(text + " s"),
        "t": name,
        "r": ident(text + " r"),
        "x": name,
        "e": ident(text + " e"),
        "d": ident(text + " d"),
        "f": ident(text + " f"),
        "c": ident(text + " c"),
        "label": sql.SQL("E'{}'").format(
            sql.SQL(text.replace("\\", "\\\\").replace("'", "''").replace("{", "{{"))
        ),
    }
    for statement in (
        "CREATE SCHEMA {s}",
        "CREATE TYPE {s}.{e} AS ENUM ({label}, 'plain')",
        "CREATE DOMAIN {s}.{d} AS integer CONSTRAINT {c} CHECK (VALUE < 1000)",
        "CREATE COLLATION {s}.{c} (LOCALE = 'C', PROVIDER = libc)",
        "CREATE FUNCTION {s}.{f} ({x} integer) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1'",
        "CREATE TABLE {s}.{t} (id integer PRIMARY KEY, {x} text COLLATE {s}.{c}, e {s}.{e}, d {s}.{d},"
        " CONSTRAINT {c} CHECK ({x} <> 'never'))",
        "CREATE TABLE {s}.{r} ({x} integer PRIMARY KEY, v text)",
        "CREATE INDEX {f} ON {s}.{t} ({x}, ({s}.{f}(id)))",
    ):
        both(pair, statement, **parts)
    qualified = sql.SQL("{s}.{t}").format(**parts).as_string(pair.theirs)
    reference = sql.SQL("{s}.{r}").format(**parts).as_string(pair.theirs)
    try:
        pair.ours.execute(
            "SELECT strata.create_distributed_table(%s::regclass, 'id', shard_count => 4)",
            (qualified,),
        )
        pair.ours.execute("SELECT strata.create_reference_table(%s::regclass)", (reference,))
        for statement in (
            "INSERT INTO {s}.{t} SELECT g, {label} || g, {label}, g FROM generate_series(1, 12) AS g",
            "INSERT INTO {s}.{r} SELECT g, {label} FROM generate_series(1, 12) AS g",
            "SELECT {x} AS {x}, e FROM {s}.{t} AS {t} WHERE e = {label} AND {s}.{f}(id) > 3",
            "SELECT {t}.{x}, {r}.{x}, max(d) AS {c} FROM {s}.{t} AS {t} JOIN {s}.{r} AS {r} ON {r}.{x} = {t}.id"
            " GROUP BY {t}.{x}, {r}.{x} ORDER BY {t}.{x} COLLATE {s}.{c}",
            "SELECT q.{x} FROM (SELECT id, count(*) AS {x} FROM {s}.{t} GROUP BY id) AS q WHERE q.{x} > 0",
            "WITH {f} AS (SELECT {x} FROM {s}.{t}) SELECT count(*) FROM {f}",
            "UPDATE {s}.{t} SET {x} = {x} || {label} WHERE id < 5 RETURNING {x} AS {f}",
            "UPDATE {s}.{r} SET v = v || {label}",
            "INSERT INTO {s}.{t} (id, {x}) VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET {x} = excluded.{x}",
            "INSERT INTO {s}.{t} VALUES (100, 'never')",
            "INSERT INTO {s}.{t} VALUES (100, 'x', {label}, 5000)",
            "DELETE FROM {s}.{t} USING {s}.{r} AS {r} WHERE {r}.{x} = {t}.id AND {t}.id > 8",
            "ALTER TABLE {s}.{t} ADD COLUMN {f} integer DEFAULT 7",
            "ALTER TABLE {s}.{t} RENAME COLUMN {f} TO {c}",
            "CREATE POLICY {x} ON {s}.{t} USING ({x} <> {label})",
            "ANALYZE {s}.{t}",
            "TRUNCATE {s}.{r}",
            "SELECT * FROM {s}.{t}",
        ):
            both(pair, statement, **parts)
        for query in (
            "SELECT count(*) FROM strata.shards WHERE relation = %s::regclass AND bytes IS NOT NULL",
            "SELECT count(*) FROM strata.tables WHERE relation = %s::regclass AND shard_count = 4",
        ):
            assert pair.rows(query, (qualified,))[0][0] == (4 if "shards" in query else 1)
        faults = pair.rows("SELECT check_name, detail FROM strata.check_health() WHERE NOT ok")
        assert faults == []
        pair.ours.execute("SELECT strata.undistribute_table(%s::regclass)", (qualified,))
        both(pair, "SELECT * FROM {s}.{t}", **parts)
    finally:
        pair.reset()
        both(pair, "DROP SCHEMA {s} CASCADE", **parts)


@pytest.mark.parametrize("text", HOSTILE, ids=IDS)
def test_arguments_of_our_functions_are_values(pair: Pair, text: str) -> None:
    connection = pair.ours
    for call in (
        "SELECT strata.create_distributed_table(%s, 'id')",
        "SELECT strata.create_distributed_table('r', %s)",
        "SELECT strata.create_distributed_table('r', 'id', colocate_with => %s)",
        "SELECT strata.create_distributed_table('r', 'id', storage => %s)",
        "SELECT strata.create_reference_table(%s)",
        "SELECT strata.alter_columnar_table_set('t', order_by => %s)",
        "SELECT strata.alter_columnar_table_set('t', bloom => ARRAY[%s])",
        "SELECT strata.alter_columnar_table_set('t', compression => %s)",
        "SELECT strata.add_worker(%s, 'host=127.0.0.1 port=1')",
        "SELECT strata.add_worker('w', %s)",
        "SELECT strata.remove_worker(%s)",
    ):
        connection.execute("BEGIN")
        outcome = run(connection, call, (text,))
        connection.execute("ROLLBACK")
        assert outcome.sqlstate != "XX000", f"{call}: {outcome}"
    ((success, result),) = connection.execute(
        "SELECT success, result FROM strata.run_on_worker(1, %s, false)",
        (sql.SQL("SELECT {}").format(sql.Literal(text)).as_string(connection),),
    ).fetchall()
    assert (success, result) == (True, text)
