"""Random DDL: ALTER TABLE, indexes and rows, on the cluster and on a plain server.

A script works on two tables that are alike: d is distributed by its column k, r is a reference
table.  Names come from small pools, so that statements meet what others have left, or fail because it is not
there: then they must fail alike.  What the cluster refuses (0A000) is left out on the plain server.

Columns called n1, n2 number the rows, in any order: only how many values there are is compared, and no
other statement looks at them.
"""

from __future__ import annotations

import random

SCHEMA = "fuzz_ddl"

TABLES = ("d", "r")
NUMBERED = ("n1", "n2")
COLUMNS = ("a", "b", "c", 'odd "one"', "e")
TYPES = (
    "integer",
    "bigint",
    "text",
    "numeric(12, 3)",
    "varchar(40)",
    "date",
    "boolean",
    "integer[]",
)
LITERALS = {
    "integer": ("7", "-3", "NULL", "length('abc')"),
    "bigint": ("5000000000", "0", "NULL"),
    "text": ("'x''y'", "''", "NULL", "'a' || 'b'", "current_setting('server_encoding')"),
    "numeric(12, 3)": ("1.5", "NULL", "-2.25"),
    "varchar(40)": ("'v'", "NULL", "repeat('z', 5)"),
    "date": ("'2021-03-04'", "NULL", "to_date('20200101', 'YYYYMMDD')"),
    "boolean": ("true", "NULL"),
    "integer[]": ("'{1,2}'", "NULL", "ARRAY[3]"),
}  # fmt: skip


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def create_sql(distributed: bool) -> list[str]:
    statements = [f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE", f"CREATE SCHEMA {SCHEMA}"]
    for table in TABLES:
        statements.append(
            f"CREATE TABLE {SCHEMA}.{table} (k integer PRIMARY KEY, v integer NOT NULL, a text DEFAULT 'a', b bigint)"
        )
    statements.append(f"CREATE TABLE {SCHEMA}.p (id integer PRIMARY KEY)")
    if distributed:
        statements += [
            f"SELECT strata.create_distributed_table('{SCHEMA}.d', 'k', 4, 'none')",
            f"SELECT strata.create_reference_table('{SCHEMA}.r')",
            f"SELECT strata.create_reference_table('{SCHEMA}.p', 'columnar')",
        ]
    statements.append(f"INSERT INTO {SCHEMA}.p SELECT generate_series(0, 20)")
    statements += [
        f"INSERT INTO {SCHEMA}.{table} SELECT g, g % 10, 'a' || g % 7, g FROM generate_series(1, 30) AS g"
        for table in TABLES
    ]
    return statements


# The same on the coordinator, on each worker (whose tables have partitions) and on the plain server.
DEFINITIONS = (
    "SELECT c.relname, a.attname, format_type(atttypid, atttypmod), attnotnull, attgenerated"
    " FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = attrelid"
    f" WHERE relnamespace = '{SCHEMA}'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition AND attnum > 0"
    " AND NOT attisdropped ORDER BY relname, attnum",
    "SELECT c.conname, t.relname, pg_get_constraintdef(c.oid), condeferrable"
    " FROM pg_constraint AS c JOIN pg_class AS t ON t.oid = conrelid"
    f" WHERE connamespace = '{SCHEMA}'::regnamespace AND NOT relispartition AND contype IN ('c', 'f', 'p', 'u')"
    " ORDER BY 2, 1",
    "SELECT replace(pg_get_indexdef(i.indexrelid), ' ON ONLY ', ' ON '), indisvalid FROM pg_index AS i"
    f" JOIN pg_class AS c ON c.oid = i.indexrelid WHERE relnamespace = '{SCHEMA}'::regnamespace"
    " AND NOT relispartition ORDER BY 1",
    f"SELECT stxname, pg_get_statisticsobjdef(oid) FROM pg_statistic_ext WHERE stxnamespace = '{SCHEMA}'::regnamespace"
    " ORDER BY 1",
    "SELECT c.relname, d.objsubid, d.description FROM pg_description AS d JOIN pg_class AS c ON c.oid = objoid"
    f" WHERE relnamespace = '{SCHEMA}'::regnamespace AND NOT relispartition ORDER BY 1, 2",
)


def content_sql(table: str, columns: list[str]) -> list[str]:
    """Queries that show all rows of a table with these columns."""
    shown = ", ".join(quote(name) for name in columns if name not in NUMBERED)
    queries = [f"SELECT {shown} FROM {SCHEMA}.{table} ORDER BY k"]
    queries += [
        f"SELECT count({n}), count(DISTINCT {n}) FROM {SCHEMA}.{table}"
        for n in columns
        if n in NUMBERED
    ]
    return queries


class DdlGenerator:
    def __init__(self, seed: int | str):
        self.rng = random.Random(f"ddl {seed}")
        self.next_key = 1000
        # what is probably there: a guess, as statements may fail and transactions be rolled back
        self.columns = {table: {"a", "b"} for table in TABLES}
        self.table = TABLES[0]

    def pick(self, names: set[str]) -> str:
        """One of these, if there are any, and now and then any other."""
        if names and self.rng.random() < 0.9:
            return self.rng.choice(sorted(names))
        return self.rng.choice(COLUMNS)

    def new_column(self) -> str:
        name = self.pick(set(COLUMNS) - self.columns[self.table])
        self.columns[self.table].add(name)
        return quote(name)

    def column(self) -> str:
        return quote(self.pick(self.columns[self.table]))

    def any_column(self) -> str:
        return self.rng.choice(("k", "v", self.column(), self.column(), self.column()))

    def name(self) -> str:
        return quote(self.rng.choice(("one", "two", "three's")))

    def condition(self) -> str:
        return self.rng.choice(
            ("v >= 0", "v < 1000", "k > 0", "v < 5", "length(a) < 100", "b IS NULL OR b > 0")
        )

    # ------------------------------------------------------------- parts of ALTER TABLE

    def add_column(self) -> str:
        type_ = self.rng.choice(TYPES)
        options = self.rng.choice(("", "", " NOT NULL", " CHECK (v IS NOT NULL)"))
        default = ""
        if self.rng.random() < 0.6:
            default = f" DEFAULT {self.rng.choice(LITERALS[type_])}"
        if type_ == "integer" and self.rng.random() < 0.25:
            return f"ADD COLUMN {self.new_column()} integer{default} REFERENCES {SCHEMA}.p"
        exists = self.rng.choice(("", "", "IF NOT EXISTS "))
        return f"ADD COLUMN {exists}{self.new_column()} {type_}{default}{options}"

    def add_generated(self) -> str:
        return f"ADD COLUMN {self.new_column()} integer GENERATED ALWAYS AS (v * 2 + k) STORED"

    def add_numbered(self) -> str:
        name = self.rng.choice(NUMBERED)
        kind = self.rng.choice(
            ("serial", "bigserial", "integer GENERATED ALWAYS AS IDENTITY (START 5 INCREMENT 3)")
        )
        return f"ADD COLUMN {name} {kind}"

    def drop_column(self) -> str:
        name = self.pick(self.columns[self.table])
        if self.rng.random() < 0.15:
            name = self.rng.choice((*NUMBERED, "k"))
        self.columns[self.table].discard(name)
        exists = self.rng.choice(("", "IF EXISTS "))
        return f"DROP COLUMN {exists}{quote(name)}{self.rng.choice(('', ' CASCADE'))}"

    def change_type(self) -> str:
        column, type_ = self.any_column(), self.rng.choice(TYPES)
        using = self.rng.choice(
            ("", f" USING {self.rng.choice(LITERALS[type_])}", f" USING {column}::text::{type_}")
        )
        return f"ALTER COLUMN {column} TYPE {type_}{using}"

    def change_column(self) -> str:
        column = self.any_column()
        return f"ALTER COLUMN {column} " + self.rng.choice(
            (
                "SET NOT NULL",
                "DROP NOT NULL",
                "DROP DEFAULT",
                f"SET DEFAULT {self.rng.choice(('5', 'NULL', '1 + 1'))}",
                f"SET STATISTICS {self.rng.randrange(0, 100)}",
                "SET (n_distinct = 5)",
                "RESET (n_distinct)",
                "SET STORAGE plain",
                "DROP EXPRESSION IF EXISTS",
            )
        )

    def add_constraint(self) -> str:
        name = self.rng.choice(("", f"CONSTRAINT {self.name()} "))
        return f"ADD {name}" + self.rng.choice(
            (
                f"CHECK ({self.condition()})",
                f"CHECK ({self.condition()}) NOT VALID",
                f"UNIQUE (k, {self.any_column()})",
                f"UNIQUE ({self.any_column()})",
                f"UNIQUE ({self.any_column()}, k) DEFERRABLE INITIALLY DEFERRED",
                f"FOREIGN KEY (v) REFERENCES {SCHEMA}.p",
                f"FOREIGN KEY ({self.any_column()}) REFERENCES {SCHEMA}.p ON DELETE CASCADE",
                f"PRIMARY KEY (k, {self.any_column()})",
            )
        )

    def change_constraint(self) -> str:
        name = self.rng.choice((self.name(), "d_pkey", "r_pkey"))
        return self.rng.choice(
            (
                f"DROP CONSTRAINT {name}",
                f"DROP CONSTRAINT IF EXISTS {name} CASCADE",
                f"VALIDATE CONSTRAINT {name}",
                f"ALTER CONSTRAINT {name} DEFERRABLE",
            )
        )

    def storage(self) -> str:
        return self.rng.choice(
            ("SET (fillfactor = 60)", "RESET (fillfactor)", "SET (nonsense = 1)")
        )

    def part(self) -> str:
        return self.rng.choices(
            [
                self.add_column,
                self.add_generated,
                self.add_numbered,
                self.drop_column,
                self.change_type,
                self.change_column,
                self.add_constraint,
                self.change_constraint,
                self.storage,
            ],
            weights=[26, 5, 6, 12, 14, 14, 14, 8, 4],
        )[0]()

    # ------------------------------------------------------------- statements

    def alter(self, table: str) -> str:
        count = self.rng.choice((1, 1, 1, 2, 3))
        only = self.rng.choice(("", "", "ONLY "))
        parts = ", ".join(self.part() for _ in range(count))
        return f"ALTER TABLE {only}{SCHEMA}.{table} {parts}"

    def rename(self, table: str) -> str:
        return f"ALTER TABLE {SCHEMA}.{table} RENAME " + self.rng.choice(
            (
                self.rename_column(),
                f"CONSTRAINT {self.name()} TO {self.name()}",
            )
        )

    def rename_column(self) -> str:
        old = self.column()
        return f"COLUMN {old} TO {self.new_column()}"

    def index(self, table: str) -> str:
        name = self.rng.choice(("", f"{quote('i ' + table)} ", f"{quote('j ' + table)} "))
        column = self.rng.choice((self.any_column(), "(v + 1)", "lower(a) DESC"))
        where = self.rng.choice(("", "", f" WHERE {self.condition()}"))
        unique = self.rng.choice(("", "", "UNIQUE "))
        return f"CREATE {unique}INDEX {name}ON {SCHEMA}.{table} ({column}, k){where}"

    def drop_index(self, table: str) -> str:
        index = quote(self.rng.choice("ij") + " " + table)
        return f"DROP INDEX {self.rng.choice(('', 'IF EXISTS '))}{SCHEMA}.{index}"

    def other(self, table: str) -> str:
        return self.rng.choice(
            (
                f"CREATE STATISTICS {SCHEMA}.{quote('st ' + table)} ON k, v FROM {SCHEMA}.{table}",
                f"DROP STATISTICS {SCHEMA}.{quote('st ' + table)}",
                f"COMMENT ON COLUMN {SCHEMA}.{table}.{self.column()} IS 'it''s'",
                f"COMMENT ON TABLE {SCHEMA}.{table} IS 'table'",
                f"TRUNCATE {SCHEMA}.{table}",
                f"ANALYZE {SCHEMA}.{table}",
            )
        )

    def rows(self, table: str) -> str:
        self.next_key += 5
        return self.rng.choice(
            (
                f"INSERT INTO {SCHEMA}.{table} (k, v) SELECT g, g % 9 FROM generate_series({self.next_key}, {self.next_key + 4}) AS g",
                f"INSERT INTO {SCHEMA}.{table} (k, v, {self.column()}) VALUES ({self.next_key}, 3, NULL)",
                f"UPDATE {SCHEMA}.{table} SET v = v + 1 WHERE k < 15",
                f"UPDATE {SCHEMA}.{table} SET {self.column()} = NULL WHERE k < 10",
                f"DELETE FROM {SCHEMA}.{table} WHERE k % 11 = 3",
            )
        )

    def statement(self) -> str:
        table = self.table = self.rng.choice(TABLES)
        return self.rng.choices(
            [self.alter, self.rename, self.index, self.drop_index, self.other, self.rows],
            weights=[50, 6, 12, 6, 8, 18],
        )[0](table)

    def script(self) -> list[str]:
        statements = []
        for _ in range(self.rng.randrange(8, 16)):
            if self.rng.random() < 0.7:
                statements.append(self.statement())
                continue
            statements.append("BEGIN")
            statements += [self.statement() for _ in range(self.rng.randrange(1, 5))]
            statements.append(self.rng.choice(("COMMIT", "COMMIT", "ROLLBACK")))
        return statements


def generate(seed: int | str) -> list[str]:
    return DdlGenerator(seed).script()
