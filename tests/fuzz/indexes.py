"""Every operator class on heap and columnar tables: what an index finds is what a scan of a heap finds.

Operator classes, and the operators they have, are read from the catalogs: a contrib extension that is
installed takes part by itself, as long as SAMPLES knows its types.  Which constants are asked for depends on
the seed; `python -m tests.fuzz.indexes` goes on until it is stopped.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import psycopg

EXTENSIONS = [
    "bloom",
    "btree_gin",
    "btree_gist",
    "citext",
    "cube",
    "earthdistance",
    "hll",
    "hstore",
    "intarray",
    "isn",
    "lo",
    "ltree",
    "pg_trgm",
    "seg",
    "uuid-ossp",
]

ROWS = 400
DISTINCT = 150  # values repeat: posting lists and duplicates

# Type -> the value for the number g, as SQL.
SAMPLES = {
    '"char"': 'chr(33 + g % 90)::"char"',
    "aclitem": "makeaclitem(10, 10, (ARRAY['SELECT', 'INSERT', 'UPDATE'])[g % 3 + 1], g % 2 = 0)",
    "bigint": "g * 10000000000",
    "bit": "(g % 2)::bit",
    "bit varying": "(g::bit(12))::varbit",
    "boolean": "g % 2 = 0",
    "box": "box(point(g, g), point(g + g % 7, g + 3))",
    "bytea": "decode(md5(g::text), 'hex')",
    "character": "('c' || g)::char(6)",
    "character varying": "('v' || g)::varchar",
    "cid": "g::text::cid",
    "cidr": "('10.' || g % 200 || '.0.0/16')::cidr",
    "circle": "circle(point(g, g % 11), 1 + g % 5)",
    "citext": "('Word ' || g)::citext",
    "cube": "cube(ARRAY[g, g % 7]::float8[], ARRAY[g + 2, g % 7 + 1]::float8[])",
    "date": "date '2020-01-01' + g",
    "double precision": "g / 7.0::float8",
    "hstore": "hstore(ARRAY['a', (g % 9)::text, 'k' || g % 5, 'x'])",
    "inet": "('192.168.' || g % 4 || '.' || g)::inet",
    "integer": "g",
    "integer[]": "ARRAY[g, g % 7, g % 3]",
    "interval": "make_interval(days => g)",
    "jsonb": "jsonb_build_object('a', g % 10, 'b', jsonb_build_array(g, 'x' || g % 4))",
    "jsonpath": "('$.a ? (@ > ' || g % 10 || ')')::jsonpath",
    "lquery": "('*.n' || g % 5 || '.*')::lquery",
    "lquery[]": "ARRAY[('*.n' || g % 5 || '.*')::lquery, 'top.*'::lquery]",
    "ltree": "('top.n' || g % 5 || '.m' || g)::ltree",
    "ltree[]": "ARRAY[('top.n' || g % 5)::ltree, ('other.m' || g)::ltree]",
    "ltxtquery": "('n' || g % 5 || ' & top')::ltxtquery",
    "macaddr": "('08:00:2b:01:02:' || lpad(to_hex(g), 2, '0'))::macaddr",
    "macaddr8": "('08:00:2b:01:02:03:04:' || lpad(to_hex(g), 2, '0'))::macaddr8",
    "money": "(g * 1.25)::numeric::money",
    "name": "('n' || g)::name",
    "numeric": "g * 1.37",
    "numrange": "numrange(g, g + g % 9)",
    "oid": "(g * 20000000::bigint)::oid",
    "oidvector": "(g || ' ' || g % 5)::oidvector",
    "pg_lsn": "('0/' || to_hex(g * 4096))::pg_lsn",
    "point": "point(g, g % 13)",
    "polygon": "polygon(box(point(g, g), point(g + 2, g + 3)))",
    "query_int": "(g % 7 || '&' || g % 3)::query_int",
    "real": "(g / 3.0)::real",
    "record": "ROW(g, 'r' || g)",
    "seg": "(g || ' .. ' || g + g % 5)::seg",
    "smallint": "g::smallint",
    "text": "'text ' || g",
    "text[]": "ARRAY['k' || g % 5, 'a']",
    "tid": "('(' || g || ',' || g % 7 || ')')::tid",
    "time with time zone": "(time '00:00' + make_interval(mins => g))::timetz",
    "time without time zone": "time '00:00' + make_interval(mins => g)",
    "timestamp with time zone": "timestamptz '2020-01-01 00:00+00' + make_interval(hours => g)",
    "timestamp without time zone": "timestamp '2020-01-01' + make_interval(hours => g)",
    "tsquery": "('w' || g % 9 || ' & common')::tsquery",
    "tsvector": "to_tsvector('simple', 'common w' || g % 9 || ' w' || g)",
    "uuid": "md5(g::text)::uuid",
    "xid": "g::text::xid",
    "xid8": "g::text::xid8",
    # stand-ins for pseudo-types, by the number that picks one
    "anyarray": "ARRAY['k' || g % 5, 'v' || g]",
    "anyenum": "(ARRAY['sad', 'ok', 'glad'])[g % 3 + 1]::index_fuzz.mood",
    # without a gap: GiST of PostgreSQL 15 misses what is contained in one that has gaps
    "anymultirange": "int4multirange(int4range(g, g + 2), int4range(g + 2, g + 9))",
    "anyrange": "int4range(g, g + g % 9)",
}
CONCRETE = {
    "anyarray": "text[]",
    "anyenum": "index_fuzz.mood",
    "anymultirange": "int4multirange",
    "anyrange": "int4range",
    "anyelement": "integer",  # of the ranges above
    "record": "index_fuzz.pair",
    "character": "char(6)",
}
SAMPLES["record"] = "ROW(g, 'r' || g)::index_fuzz.pair"
SAMPLES["anyelement"] = "g"
# numbers whose check digit is computed for a question mark
CHECKED = {
    "ean13": ("4", 11), "isbn13": ("978", 9), "ismn13": ("9790", 8), "issn13": ("977", 9),
    "isbn": ("", 9), "ismn": ("M", 8), "issn": ("", 7), "upc": ("", 11),
}  # fmt: skip
for kind, (prefix, digits) in CHECKED.items():
    SAMPLES[kind] = f"('{prefix}' || lpad(g::text, {digits}, '0') || '?')::{kind}"

SETUP = """
DROP SCHEMA IF EXISTS index_fuzz CASCADE;
CREATE SCHEMA index_fuzz;
CREATE TYPE index_fuzz.mood AS ENUM ('sad', 'ok', 'glad');
CREATE TYPE index_fuzz.pair AS (a integer, b text);
"""

CLASSES = """
SELECT am.amname, n.nspname, c.opcname, format_type(c.opcintype, NULL), c.opcfamily
  FROM pg_opclass AS c
  JOIN pg_am AS am ON am.oid = c.opcmethod
  JOIN pg_namespace AS n ON n.oid = c.opcnamespace
 ORDER BY 4, 1, 3
"""
OPERATORS = """
SELECT amopfamily, format_type(amoplefttype, NULL), n.nspname, o.oprname,
       format_type(amoprighttype, NULL), amoppurpose
  FROM pg_amop JOIN pg_operator AS o ON o.oid = amopopr
  JOIN pg_namespace AS n ON n.oid = o.oprnamespace
 ORDER BY 1, 2, amopstrategy, 5
"""

TABLES = {
    "plain": "USING heap",  # has no index
    "heap": "USING heap",
    "columnar": "USING columnar",
    "tree": "PARTITION BY HASH (id);"
    "CREATE TABLE index_fuzz.tree_heap PARTITION OF index_fuzz.tree"
    " FOR VALUES WITH (MODULUS 2, REMAINDER 0) USING heap;"
    "CREATE TABLE index_fuzz.tree_columnar PARTITION OF index_fuzz.tree"
    " FOR VALUES WITH (MODULUS 2, REMAINDER 1) USING columnar",
}

# the plans that are compared: the planner's own choice, then each way to use an index
PLANS = {
    "default": "",
    "bitmap": "SET enable_seqscan = off; SET enable_indexscan = off; SET enable_indexonlyscan = off",
    "index": "SET enable_seqscan = off; SET enable_bitmapscan = off",
}
RESET = "RESET enable_seqscan; RESET enable_indexscan; RESET enable_indexonlyscan; RESET enable_bitmapscan"

# an access method that cannot do it says so
REFUSALS = {"0A000", "54000", "22023", "42704", "42809"}


@dataclass
class OperatorClass:
    method: str
    schema: str
    name: str
    type: str
    family: int


class IndexFuzzer:
    """Works in schema index_fuzz of one session's database."""

    def __init__(self, session: psycopg.Connection, seed: int):
        self.session = session
        self.random = random.Random(seed)
        self.compared = 0
        self.indexes = 0
        self.refused: list[str] = []

    def create(self) -> None:
        for extension in EXTENSIONS:
            self.session.execute(f'CREATE EXTENSION IF NOT EXISTS "{extension}" CASCADE')
        self.session.execute("CREATE EXTENSION IF NOT EXISTS strata_columnar")
        self.session.execute(SETUP)

    def drop(self) -> None:
        self.session.execute("DROP SCHEMA index_fuzz CASCADE")

    def rows(self, query: str) -> list[tuple]:
        return self.session.execute(query).fetchall()

    def run(self, share: float = 1.0) -> None:
        """Each operator class, or a random share of them."""
        classes = [OperatorClass(*row) for row in self.rows(CLASSES)]
        operators: dict[tuple[int, str], list[tuple]] = {}
        for family, left, *operator in self.rows(OPERATORS):
            operators.setdefault((family, left), []).append(tuple(operator))
        for kind in sorted({c.type for c in classes}):
            chosen = [c for c in classes if c.type == kind and self.random.random() < share]
            if chosen:
                self.run_type(kind, chosen, operators)

    def run_type(self, kind: str, classes: list[OperatorClass], operators: dict) -> None:
        column = CONCRETE.get(kind, kind)
        sample = SAMPLES[kind]
        for table, definition in TABLES.items():
            self.session.execute(
                f"DROP TABLE IF EXISTS index_fuzz.{table};"
                f"CREATE TABLE index_fuzz.{table} (id integer, c {column}) {definition};"
                f"INSERT INTO index_fuzz.{table} SELECT g, {sample}"
                f" FROM (SELECT i % {DISTINCT} + 1 AS g FROM generate_series(1, {ROWS}) AS i) AS s;"
                f"INSERT INTO index_fuzz.{table} VALUES (0, NULL); ANALYZE index_fuzz.{table}"
            )
        for operator_class in classes:
            for table in TABLES:
                if table != "plain" and self.create_index(table, operator_class):
                    self.compare(table, operators.get((operator_class.family, kind), []))
                self.session.execute("DROP INDEX IF EXISTS index_fuzz.i")

    def create_index(self, table: str, which: OperatorClass) -> bool:
        command = (
            f"CREATE INDEX i ON index_fuzz.{table} USING {which.method}"
            f' (c "{which.schema}"."{which.name}")'
        )
        try:
            self.session.execute(command)
        except psycopg.Error as error:
            if error.sqlstate not in REFUSALS:
                raise
            self.refused.append(f"{command}: {error}")
            return False
        self.indexes += 1
        return True

    def compare(self, table: str, operators: list[tuple]) -> None:
        queries = [query for operator in operators for query in self.make_queries(operator)]
        queries += [
            "SELECT count(*) FROM {t} WHERE c IS NULL",
            "SELECT count(*) FROM {t} WHERE id = 7",
        ]
        expected = [self.answer(query, "plain") for query in queries]
        for name, settings in PLANS.items():
            self.session.execute(settings or "SELECT 1")
            for query, right in zip(queries, expected, strict=True):
                found = self.answer(query, table)
                assert found == right, f"{table}, {name}: {query}\nfound {found}\nwanted {right}"
                if not isinstance(right, str):
                    self.session.execute("EXPLAIN (VERBOSE) " + self.place(query, table))
                self.compared += 1
            self.session.execute(RESET)

    @staticmethod
    def place(query: str, table: str) -> str:
        return query.replace("{t}", f"index_fuzz.{table}")

    def answer(self, query: str, table: str) -> object:
        try:
            return self.rows(self.place(query, table))
        except psycopg.Error as error:
            if error.sqlstate is None:
                raise
            return error.sqlstate

    def make_queries(self, operator: tuple) -> list[str]:
        schema, name, right, purpose = operator
        number = self.random.randint(1, DISTINCT)
        value = f"(SELECT {SAMPLES[right]} FROM (VALUES ({number})) AS s (g))"
        constant = self.rows(f"SELECT quote_literal(x::text) FROM {value} AS s (x)")[0][0]
        constant = f"{constant}::{CONCRETE.get(right, right)}"
        expression = f'c OPERATOR("{schema}".{name}) {constant}'
        if purpose in ("o", b"o"):
            return [
                f"SELECT ({expression})::text FROM {{t}} WHERE c IS NOT NULL"
                f" ORDER BY {expression} LIMIT 5"
            ]
        return [
            f"SELECT count(*), sum(id) FROM {{t}} WHERE {expression}",
            f"SELECT id FROM {{t}} WHERE {expression} AND id % 3 = 1 ORDER BY id LIMIT 10",
        ]


def main() -> None:
    """`python -m tests.fuzz.indexes [seed]`: on a cluster of its own, until it is stopped."""
    import sys

    from tests.cluster import Cluster
    from tests.fixtures import new_root

    seed = int(sys.argv[1]) if len(sys.argv) > 1 else random.randrange(1_000_000)
    with Cluster(new_root(), workers=1, plain=True) as cluster:
        while True:
            for node in (cluster.workers[0], cluster.plain):
                with node.connect() as session:
                    fuzzer = IndexFuzzer(session, seed)
                    fuzzer.create()
                    fuzzer.run()
                    print(f"seed {seed}, {node.name}: {fuzzer.compared} comparisons", flush=True)
            seed += 1


if __name__ == "__main__":
    main()
