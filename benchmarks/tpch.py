"""TPC-H's 22 queries on columnar tables, with no index but the primary keys, against DuckDB."""

from __future__ import annotations

import tempfile
from pathlib import Path

import psycopg

from benchmarks.against_duckdb import SETTINGS, THREADS, compare_queries
from benchmarks.columnar import columnar_server
from benchmarks.measure import Result
from tests.cluster import Cluster
from tests.installation import give_to_server
from tests.tpch import data

# What one query may take, as a multiple of DuckDB's time; and the geometric mean of all.
BUDGETS = {"q01": 1.5, "q06": 1.5, "q14": 1.5, "q15": 1.5}
MEAN_BUDGET = 2.0


def measure_tpch(cluster: Cluster) -> list[Result]:
    return measure_scale(cluster, 1)


def measure_tpch_10(cluster: Cluster) -> list[Result]:
    return measure_scale(cluster, 10)


def measure_scale(cluster: Cluster, scale: float) -> list[Result]:
    import duckdb  # installed by `make bench` alone

    with (
        tempfile.TemporaryDirectory(prefix="strata-tpch-") as temporary,
        columnar_server(cluster.root / f"tpch{scale}", **SETTINGS) as node,
        duckdb.connect(config={"threads": THREADS}) as duck,
    ):
        directory = Path(temporary)
        data.generate(directory, scale)
        give_to_server(directory, 0o700)
        load_duck(duck, directory)
        with node.connect() as connection:
            load_columnar(connection, directory)
            return compare_queries(
                f"TPC-H SF{scale}", connection, duck, data.QUERIES, BUDGETS, MEAN_BUDGET
            )


def load_duck(duck, directory: Path) -> None:
    statements = (data.HERE / "tables.sql").read_text()
    for statement in statements.split(";"):
        if statement.strip():
            duck.execute(statement)
    for table in data.TABLES:
        duck.execute(f"COPY {table} FROM '{directory / table}.csv' (HEADER)")


def load_columnar(connection: psycopg.Connection, directory: Path) -> None:
    connection.execute("SET default_table_access_method = columnar")
    connection.execute((data.HERE / "tables.sql").read_text())
    for table in data.TABLES:
        file = directory / f"{table}.csv"
        give_to_server(file, 0o600)
        connection.execute(f"COPY {table} FROM '{file}' (FORMAT csv, HEADER)")
        file.unlink()
    connection.execute("VACUUM ANALYZE")
