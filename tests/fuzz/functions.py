"""Every function of ours with arguments that nobody means: errors are fine, crashes are not.

Functions are read from the catalogs: those of our schemas, and whatever else belongs to our extensions.  Each is called
with NULLs, relations of every kind (dropped ones, other roles' and catalogs among them), hostile texts,
extreme numbers and odd arrays, by a superuser and by an ordinary role, in transactions that are rolled
back.  `python -m tests.fuzz.functions [seed]` goes on until it is stopped.
"""

from __future__ import annotations

import random
import sys

import psycopg
from psycopg import sql

from tests.cluster import Cluster, Node

ROLE = "function_fuzz_role"
SCHEMA = "function_fuzz"

FUNCTIONS = """
SELECT n.nspname, p.proname, p.prokind::text, p.prorettype::regtype::text,
       ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY AS a (t, i) ORDER BY i)
  FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
 WHERE n.nspname ~ '^strata'
    OR EXISTS (SELECT FROM pg_depend AS d JOIN pg_extension AS e ON e.oid = d.refobjid
                WHERE (d.classid, d.objid, d.refclassid, d.deptype)
                      = ('pg_proc'::regclass, p.oid, 'pg_extension'::regclass, 'e')
                  AND e.extname ~ '^strata')
 ORDER BY 1, 2, 5
"""

# relations of every kind; {method} is an access method that the node has
RELATIONS = """
CREATE TABLE {s}.heap (id integer PRIMARY KEY, v text);
CREATE TABLE {s}.other (a integer) USING {method};
INSERT INTO {s}.heap SELECT g, 'v' || g FROM generate_series(1, 50) AS g;
INSERT INTO {s}.other SELECT g FROM generate_series(1, 50) AS g;
CREATE TABLE {s}.none ();
CREATE UNLOGGED TABLE {s}.unlogged (a integer);
CREATE INDEX odd ON {s}.heap USING hash (v);
CREATE VIEW {s}.view AS SELECT * FROM {s}.heap;
CREATE MATERIALIZED VIEW {s}.matview AS SELECT * FROM {s}.heap;
CREATE SEQUENCE {s}.sequence;
CREATE TYPE {s}.composite AS (a integer);
CREATE TABLE {s}.tree (a integer, b date) PARTITION BY RANGE (a);
CREATE TABLE {s}.tree_1 PARTITION OF {s}.tree FOR VALUES FROM (1) TO (9);
CREATE INDEX tree_index ON {s}.tree (b);
CREATE TABLE {s}."od"" d'x; --" (a integer);
CREATE TABLE {s}.dropped (a integer)
"""
NAMES = [
    "heap",
    "other",
    "none",
    "unlogged",
    "odd",
    "heap_pkey",
    "view",
    "matview",
    "sequence",
    "composite",
    "tree",
    "tree_1",
    "tree_index",
]

TEXTS = [
    "", " ", "x", "heap", "columnar", "hash", "default", "none", "1 day", "-1 day", "1", "-1", "id", "a",
    "1e400", "NaN", "'", "\"", "'; DROP TABLE x; --", "%s%n%d", "\\", "\u00e9\u4e2d\U0001f600",
    "x" * 63, "x" * 64, "y" * 10000, "{}", "[]", "{\"a\":1}", "host=127.0.0.1 port=1", "port=x",
    "pg_catalog.pg_class", "function_fuzz.heap", "function_fuzz.missing", "a.b.c.d", "worker1", "2020-01-01",
    "SELECT 1", "SELECT pg_sleep(0)", "zstd", "lz4", "infinity", "9999999999999999999", "hot", "cold",
]  # fmt: skip
INTEGERS = ["0", "1", "-1", "2", "7", "100", "2147483647", "-2147483648"]
JSON = [
    "null", "1", "[]", "{}", "[null]", "[1, \"x\"]", "[[]]", "[{}]", "{\"enabled\": \"x\"}", "\"x\"",
    "[{\"schema_name\": null, \"table_name\": 1}]", "[" * 500 + "]" * 500,
]  # fmt: skip

VALUES = {
    "smallint": ["0", "1", "-1", "32767", "-32768"],
    "integer": INTEGERS,
    "bigint": [*INTEGERS, "9223372036854775807", "-9223372036854775808"],
    "oid": ["0", "1", "1259", "4294967295"],
    "double precision": ["'NaN'", "'Infinity'", "'-Infinity'", "0", "-0.0", "1e308", "-1"],
    "real": ["'NaN'", "'Infinity'", "0", "1e38", "-1"],
    "numeric": ["'NaN'", "'Infinity'", "0", "1e1000", "-1e-1000", "1"],
    "boolean": ["true", "false"],
    "interval": ["'0'", "'-1 day'", "'1 second'", "'178000000 years'", "'-178000000 years'"],
    "date": ["'infinity'", "'-infinity'", "'2020-01-01'", "'4713-01-01 BC'"],
    "timestamp with time zone": ["'infinity'", "'-infinity'", "now()", "'4713-01-01 BC'"],
    "timestamp without time zone": ["'infinity'", "'-infinity'", "'2020-01-01'"],
    "uuid": ["'00000000-0000-0000-0000-000000000000'", "gen_random_uuid()"],
    "bytea": ["''", "'\\x00'", "'\\xffffffffffffffff'", "decode(repeat('ab', 3000), 'hex')"],
    "pg_lsn": ["'0/0'", "'FFFFFFFF/FFFFFFFF'"],
    "xid8": ["'0'", "'18446744073709551615'", "pg_current_xact_id()"],
    "name": [],
    "text": [],
    "character varying": [],
    "cstring": [],
    '"char"': ["'r'", "''", "'d'"],
    "json": [],
    "jsonb": [],
    "hll": ["hll_empty()", "hll_add(hll_empty(), hll_hash_integer(1))"],
    "hll_hashval": ["hll_hash_integer(1)", "hll_hash_text('x')"],
    "regtype": ["'integer'", "0", "4294967295", "'pg_class'"],
    "anyenum": [],
    "anyelement": [
        "1",
        "'x'::text",
        "now()",
        "ARRAY[1]",
        "ROW(1, 'x')",
        "NULL::text",
        "'{}'::json",
    ],
    "anyarray": ["ARRAY[1, NULL]", "'{}'::text[]", "ARRAY[[1, 2], [3, 4]]"],
    "record": ["ROW()", "ROW(1, 'x')", "ROW(NULL)"],
    '"any"': ["1", "'x'::text", "NULL"],
    "inet": ["'127.0.0.1'", "'::1'"],
    "money": ["1", "'-92233720368547758.08'"],
    "tid": ["'(0,1)'", "'(4294967295,65535)'"],
    "point": ["'(1,2)'", "'(NaN,Infinity)'"],
}

# They end this session's work, or everybody's, as they should.
LEFT_OUT = {"strata.take_over", "strata.hold_worker"}


def literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def quoted(values: list[str]) -> list[str]:
    return [literal(value) for value in values]


class FunctionFuzzer:
    """Calls the functions of one node, in transactions that are rolled back."""

    def __init__(self, node: Node, seed: int, method: str):
        self.node = node
        self.random = random.Random(seed)
        self.method = method
        self.calls = 0
        self.succeeded = 0
        self.sessions: dict[str, psycopg.Connection] = {}
        self.relations: list[str] = []

    # ---- what there is --------------------------------------------------------------------------

    def create(self) -> None:
        self.node.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; CREATE SCHEMA {SCHEMA}")
        for statement in RELATIONS.format(s=SCHEMA, method=self.method).split(";\n"):
            self.node.execute(statement)
        self.node.execute(
            f"GRANT ALL ON SCHEMA {SCHEMA} TO {ROLE};"
            f"CREATE TABLE {SCHEMA}.own (id integer, v text); ALTER TABLE {SCHEMA}.own OWNER TO {ROLE}"
        )
        dropped = self.node.value(f"SELECT '{SCHEMA}.dropped'::regclass::oid")
        self.node.execute(f"DROP TABLE {SCHEMA}.dropped")
        toast = self.node.value(
            "SELECT reltoastrelid FROM pg_class WHERE oid = 'pg_statistic'::regclass"
        )
        self.relations = [literal(f"{SCHEMA}.{name}") + "::regclass" for name in [*NAMES, "own"]]
        self.relations += [
            f"""'{SCHEMA}."od"" d''x; --"'::regclass""", "'pg_class'::regclass",
            "'pg_database'::regclass", "'pg_stat_activity'::regclass",
            "'pg_class_oid_index'::regclass", "'pg_temp.mine'::regclass",
        ]  # fmt: skip
        self.relations += [f"{number}::regclass" for number in (0, dropped, toast, 4294967295)]

    def drop(self) -> None:
        for session in self.sessions.values():
            session.close()
        self.node.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")

    def functions(self) -> list[tuple]:
        return self.node.query(FUNCTIONS)

    def session(self, role: str) -> psycopg.Connection:
        session = self.sessions.get(role)
        if session is None or session.closed:
            session = self.node.connect()
            session.execute(
                "SET statement_timeout = '2s'; SET lock_timeout = '200ms';"
                "CREATE TEMP TABLE IF NOT EXISTS mine (a text)"
            )
            if role == ROLE:
                session.execute(f"GRANT ALL ON mine TO {ROLE}; SET SESSION AUTHORIZATION {ROLE}")
            self.sessions[role] = session
        return session

    # ---- arguments ------------------------------------------------------------------------------

    def values(self, kind: str) -> list[str]:
        if kind == "regclass":
            return self.relations
        if kind == "oid":
            return VALUES[kind] + [f"({relation})::oid" for relation in self.relations]
        if kind in ("text", "name", "character varying", "cstring"):
            return quoted(TEXTS)
        if kind in ("json", "jsonb"):
            return quoted(JSON)
        if kind.endswith("[]"):
            element = kind.removesuffix("[]")
            one = self.argument(element)
            other = self.argument(element)
            return [
                "'{}'", f"ARRAY[{one}]", f"ARRAY[{one}, NULL, {other}]", f"ARRAY[[{one}, {other}]]",
                f"array_fill({one}::{element}, ARRAY[3], ARRAY[-2])",
                f"array_fill({one}::{element}, ARRAY[500])",
            ]  # fmt: skip
        return VALUES.get(kind, [])

    def argument(self, kind: str) -> str:
        """An expression of this type; NULL now and then, or if nothing is known of it."""
        values = self.values(kind)
        if not values or self.random.random() < 0.15:
            return "NULL" if kind.startswith(('"any"', "any", "internal")) else f"NULL::{kind}"
        value = self.random.choice(values)
        return value if kind.startswith(("any", '"any"', "record")) else f"{value}::{kind}"

    # ---- calls ----------------------------------------------------------------------------------

    def call(self, role: str, function: tuple) -> None:
        schema, name, kind, result, types = function
        arguments = [self.argument(argument) for argument in types]
        target = sql.Identifier(schema, name).as_string()
        text = f"{target}({', '.join(arguments)})"
        if kind == "p":
            statement = f"CALL {text}"
        elif kind == "a":
            statement = f"SELECT {text if types else target + '(*)'} FROM generate_series(1, 3)"
        elif result in ("record", "void") or self.random.random() < 0.5:
            statement = f"SELECT * FROM {text}"
        else:
            statement = f"SELECT {text}"
        self.run(role, statement)

    def run(self, role: str, statement: str) -> None:
        self.calls += 1
        session = self.session(role)
        try:
            # a statement of its own at times: COMMIT in procedures, maintenance commands
            if statement.startswith("CALL") and self.random.random() < 0.5:
                session.execute(statement)
            else:
                session.execute("BEGIN")
                session.execute(statement)
            self.succeeded += 1
        except psycopg.Error as error:
            if session.broken and self.node.crashed():
                raise AssertionError(f"{self.node.name} crashed, {role}: {statement}") from error
        finally:
            if not session.closed:
                try:
                    session.execute("ROLLBACK")
                except psycopg.Error:
                    session.close()
        if session.closed and self.node.crashed():
            raise AssertionError(f"{self.node.name} crashed, {role}: {statement}")

    def run_all(self, calls: int) -> None:
        """Each function so many times as each role."""
        for function in self.functions():
            if f"{function[0]}.{function[1]}" in LEFT_OUT:
                continue
            for role in ("postgres", ROLE):
                for _ in range(calls):
                    self.call(role, function)


def main() -> None:
    """`python -m tests.fuzz.functions [seed]`: on a cluster of its own, until it is stopped."""
    from tests.fixtures import new_root

    seed = int(sys.argv[1]) if len(sys.argv) > 1 else random.randrange(1_000_000)
    with Cluster(new_root(), workers=2) as cluster:
        cluster.create_role(ROLE)
        while True:
            for node, method in (
                (cluster.coordinator, "distributed"),
                (cluster.workers[0], "columnar"),
            ):
                fuzzer = FunctionFuzzer(node, seed, method)
                fuzzer.create()
                fuzzer.run_all(20)
                print(
                    f"seed {seed}, {node.name}: {fuzzer.calls} calls, {fuzzer.succeeded} succeeded",
                    flush=True,
                )
                fuzzer.drop()
            seed += 1


if __name__ == "__main__":
    main()
