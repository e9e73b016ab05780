"""TPC-H for the tests: tables, generated rows, the two layouts over the workers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import psycopg

HERE = Path(__file__).parent

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")

QUERIES = {path.stem: path.read_text() for path in sorted(HERE.glob("queries/q*.sql"))}

# table -> (key, table to be colocated with) for distributed tables; all others are reference
# tables.  A: the two large tables by order.  B: every table by its own key.
LAYOUTS = {
    "A": {"orders": ("o_orderkey", None), "lineitem": ("l_orderkey", "orders")},
    "B": {
        "orders": ("o_orderkey", None),
        "lineitem": ("l_orderkey", "orders"),
        "customer": ("c_custkey", None),
        "part": ("p_partkey", None),
        "partsupp": ("ps_partkey", "part"),
        "supplier": ("s_suppkey", None),
    },
}


def generate(directory: Path, scale: float) -> None:
    """Write <table>.csv for every table, each with a header."""
    program = shutil.which("tpchgen-cli") or str(Path(sys.executable).with_name("tpchgen-cli"))
    subprocess.run(
        [program, "csv", "-s", str(scale), "--output-dir", str(directory), "--quiet"], check=True
    )


def create(connection: psycopg.Connection, schema: str, layout: str | None) -> None:
    """The empty tables in a new schema; a layout of None leaves them local."""
    connection.execute(f"CREATE SCHEMA {schema}; SET search_path = {schema}, public")
    connection.execute((HERE / "tables.sql").read_text())
    if layout is not None:
        distribute(connection, schema, TABLES, LAYOUTS[layout])


def distribute(
    connection: psycopg.Connection,
    schema: str,
    tables: Iterable[str],
    keys: dict[str, tuple[str, str | None]],
    reference_storage: str = "heap",
) -> None:
    """Distribute the tables of a schema that have keys; the others become reference tables."""
    for table, (key, colocate_with) in keys.items():
        other = f"{schema}.{colocate_with}" if colocate_with else "none"
        connection.execute(
            "SELECT strata.create_distributed_table(%s::regclass, %s, colocate_with => %s)",
            (f"{schema}.{table}", key, other),
        )
    for table in tables:
        if table not in keys:
            connection.execute(
                "SELECT strata.create_reference_table(%s::regclass, %s)",
                (f"{schema}.{table}", reference_storage),
            )


def load(connection: psycopg.Connection, directory: Path) -> None:
    for table in TABLES:
        with connection.cursor().copy(f"COPY {table} FROM STDIN (FORMAT csv, HEADER)") as copy:
            copy.write((directory / f"{table}.csv").read_bytes())
        connection.execute(f"ANALYZE {table}")
