"""The 43 shapes of ClickBench's queries on a generated table of page views, against DuckDB.

hits_table.sql has the columns, hits_rows.sql what is in them, hits_queries.sql the queries.  DuckDB
makes the rows, in a database file, as in ClickBench; random.sql is what generators share.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import psycopg

from benchmarks.against_duckdb import CSV, SETTINGS, THREADS, compare_queries, export
from benchmarks.columnar import columnar_server
from benchmarks.measure import Result
from tests.cluster import Cluster
from tests.installation import give_to_server

HERE = Path(__file__).parent

ROWS = 10_000_000
FEW_ROWS = 500_000

# PostgreSQL keeps what scans read in its buffers if the table is less than a quarter of them.
BUFFERS = "6GB"

# The geometric mean of all queries, as a multiple of DuckDB's time.
MEAN_BUDGET = 2.0

# This query has LIMIT without ORDER BY: each may answer with other rows.
WITHOUT_ORDER = "q18"

# Values that queries look for, from the table; a site of which every 130th row is.
LOOKED_FOR = {
    "user": "SELECT user_id FROM hits GROUP BY user_id HAVING count(*) = 4 ORDER BY user_id LIMIT 1",
    "page": "SELECT mode(url_hash) FROM hits WHERE counter_id = 79",
    "referer": "SELECT mode(referer_hash) FROM hits WHERE counter_id = 79 AND traffic_source_id = -1",
}


def measure_hits(cluster: Cluster) -> list[Result]:
    return measure_rows(cluster, ROWS, MEAN_BUDGET)


def measure_few_hits(cluster: Cluster) -> list[Result]:
    """For a quick look: too few rows to judge."""
    return measure_rows(cluster, FEW_ROWS, None)


def measure_rows(cluster: Cluster, rows: int, mean_budget: float | None) -> list[Result]:
    import duckdb  # installed by `make bench` alone

    settings = SETTINGS | {"shared_buffers": BUFFERS}
    with (
        tempfile.TemporaryDirectory(prefix="strata-hits-") as temporary,
        columnar_server(cluster.root / f"hits{rows}", **settings) as node,
        duckdb.connect(Path(temporary) / "hits.duckdb", config={"threads": THREADS}) as duck,
    ):
        directory = Path(temporary)
        give_to_server(directory, 0o700)
        generate(duck, rows)
        with node.connect() as connection:
            load_columnar(connection, duck, directory / "hits.csv")
            queries = read_queries(duck, rows)
            return compare_queries(
                f"hits of {rows / 1e6:g} M rows",
                connection,
                duck,
                queries,
                {},
                mean_budget,
                queries.keys() - {WITHOUT_ORDER},
            )


def generate(duck, rows: int) -> None:
    duck.execute(f"SET VARIABLE row_count = {rows}")
    for name in ("hits_table", "random", "hits_rows"):
        duck.execute((HERE / f"{name}.sql").read_text())


def load_columnar(connection: psycopg.Connection, duck, file: Path) -> None:
    export(duck, "hits", file)
    give_to_server(file, 0o600)
    connection.execute("SET default_table_access_method = columnar")
    connection.execute((HERE / "hits_table.sql").read_text())
    connection.execute(f"COPY hits FROM '{file}' {CSV}")
    file.unlink()
    connection.execute("VACUUM ANALYZE hits")


def read_queries(duck, rows: int) -> dict[str, str]:
    """The queries by name, with what is filled in."""
    values = {name: duck.execute(query).fetchone()[0] for name, query in LOOKED_FOR.items()}
    values["often"] = rows // 1000
    values["sums"] = ", ".join(f"sum(resolution_width + {number})" for number in range(90))
    text = re.sub(r"^--.*\n", "", (HERE / "hits_queries.sql").read_text(), flags=re.MULTILINE)
    queries = [query.strip() for query in text.split(";") if query.strip()]
    return {
        f"q{number:02}": query.format(**values) for number, query in enumerate(queries, start=1)
    }
