"""The fixed schema of the fuzzer: what is distributed how, and the rows.

Every table has the same columns, so that a generated query may join anything with anything:

    id  unique, NOT NULL            k   the distribution key (its type differs)
    a   small int domain, NULLs     b   int 0..59, NULLs
    t   small text domain, NULLs    n   numeric with two digits, NULLs
    f   float8, multiples of 0.25   d   date, NULLs

Floats are multiples of 1/4, so that their sums are exact in any order: a difference is an error, never rounding.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

SCHEMA = "fuzz"


@dataclass(frozen=True)
class Table:
    name: str
    key_type: str  # type of column k
    kind: str  # "distributed", "reference", "local"
    rows: int
    colocate_with: str = "none"
    primary_key: str | None = None
    null_keys: bool = False


TABLES = (
    Table("d1", "integer", "distributed", 120, primary_key="k, id"),
    Table("d2", "integer", "distributed", 90, colocate_with="d1", null_keys=True),
    Table("d3", "bigint", "distributed", 80, primary_key="id, k"),
    Table("d4", "text", "distributed", 70, null_keys=True),
    Table("r1", "integer", "reference", 25, primary_key="id"),
    Table("r2", "text", "reference", 15, null_keys=True),
    Table("l1", "integer", "local", 40, primary_key="id"),
)

TYPES = (
    f"CREATE DOMAIN {SCHEMA}.whole AS numeric(20, 0)",
    f"CREATE DOMAIN {SCHEMA}.two_letters AS varchar(2)",
    f"CREATE FUNCTION {SCHEMA}.rounded(numeric) RETURNS numeric LANGUAGE sql IMMUTABLE"
    f" AS 'SELECT $1::{SCHEMA}.whole'",
    f"CREATE FUNCTION {SCHEMA}.first_two(text) RETURNS text LANGUAGE sql IMMUTABLE"
    f" AS 'SELECT $1::{SCHEMA}.two_letters'",
    f"CREATE FUNCTION {SCHEMA}.as_text(double precision) RETURNS text LANGUAGE sql IMMUTABLE"
    " AS 'SELECT $1::text'",
)

COLUMNS = ("id", "k", "a", "b", "t", "n", "f", "d")


def table_ddl(table: Table) -> str:
    primary_key = f", PRIMARY KEY ({table.primary_key})" if table.primary_key else ""
    return (
        f"CREATE TABLE {SCHEMA}.{table.name} (id integer NOT NULL, k {table.key_type}, a integer, b integer,"
        f" t text, n numeric(8, 2), f double precision, d date{primary_key})"
    )


def distribute_sql(table: Table) -> str | None:
    """The call that distributes the table; None for a local table."""
    relation = f"'{SCHEMA}.{table.name}'"
    if table.kind == "reference":
        storage = "columnar" if table.primary_key is None else "heap"
        return f"SELECT strata.create_reference_table({relation}, storage => '{storage}')"
    if table.kind == "distributed":
        colocate = table.colocate_with
        if colocate != "none":
            colocate = f"{SCHEMA}.{colocate}"
        return (
            f"SELECT strata.create_distributed_table({relation}, 'k', shard_count => 8,"
            f" colocate_with => '{colocate}')"
        )
    return None


def literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)


def table_rows(table: Table) -> list[tuple]:
    """Deterministic rows of a table: the same on every run."""
    rng = random.Random(f"strata {table.name}")

    def maybe(value: object, share: float = 0.12) -> object:
        return None if rng.random() < share else value

    rows = []
    for id_ in range(1, table.rows + 1):
        key: object = rng.randrange(0, 40)
        if table.key_type == "text":
            key = rng.choice("abcdefgh") + str(rng.randrange(0, 5))
        if table.null_keys:
            key = maybe(key)
        rows.append(
            (
                id_,
                key,
                maybe(rng.randrange(-3, 12)),
                maybe(rng.randrange(0, 60)),
                maybe(rng.choice(["", "a", "b", "B", "ab", "zz", "a%", "x_y", "ö"])),
                maybe(f"{rng.randrange(-5000, 5000) / 100:.2f}"),
                maybe(rng.randrange(-400, 400) / 4),
                maybe(f"2024-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"),
            )
        )
    return rows


def insert_sql(table: Table) -> str:
    values = ",\n".join("(" + ", ".join(literal(v) for v in row) + ")" for row in table_rows(table))
    return f"INSERT INTO {SCHEMA}.{table.name} VALUES\n{values}"


def split_sql(relation: str) -> list[str]:
    """One shard of a group becomes three, if there is another worker."""
    split = "DO $$ BEGIN IF (SELECT count(*) > 1 FROM strata.workers) THEN PERFORM strata.split_shard('{}', {}); END IF; END $$"
    return [split.format(relation, shard) for shard in (1, 9)]


def create_sql(distributed: bool) -> list[str]:
    """All statements that make the schema; without the calls of strata for the plain server."""
    statements = [f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE", f"CREATE SCHEMA {SCHEMA}", *TYPES]
    for table in TABLES:
        statements.append(table_ddl(table))
        call = distribute_sql(table)
        if distributed and call:
            statements.append(call)
        statements.append(insert_sql(table))
        statements.append(f"ANALYZE {SCHEMA}.{table.name}")
        if distributed and table.kind == "distributed" and table.colocate_with == "none":
            statements += split_sql(f"{SCHEMA}.{table.name}")
    return statements
