"""What is measured on a cluster: tables and their rows, layouts over the workers, queries.

DuckDB has the rows first, from a generator of its own or from a program, and the cluster gets them from it.
At scale 1 a group has some millions of rows: TPC-H's and the star schema's large tables 6, page views 2,
metrics 3.5.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import hits
from benchmarks.tpch import load_duck
from tests.tpch import data as tpch

HERE = Path(__file__).parent

HITS_ROWS = 2_000_000
HOSTS = 400

# So many groups are few: a cluster's coordinator can put them together from the workers' parts.
FEW_GROUPS = 10_000


@dataclass
class Layout:
    """Tables with their keys and the tables that they are colocated with; all others are reference tables, columnar on the workers.

    `mean_budget` is for the geometric mean of the queries' ratios to DuckDB, or of those that `of` names.
    """

    title: str
    keys: dict[str, tuple[str, str | None]]
    mean_budget: float
    of: str = ""


@dataclass
class Dataset:
    """Tables, by the SQL that creates them here and there, and the queries by name.

    `fill` creates and fills the tables in DuckDB, in a directory that it may write to, at a scale.
    `choose` says which queries the budget of a layout is for.
    """

    tables: tuple[str, ...]
    definitions: str
    layouts: dict[str, Layout]
    fill: Callable[[object, Path, float], None]
    queries: Callable[[object, float], dict[str, str]]
    without_order: tuple[str, ...] = ()
    in_file: bool = False  # DuckDB's tables: in a file, or in memory
    choose: Callable[[object, Layout, dict[str, str]], set[str]] = field(
        default=lambda duck, layout, queries: set(queries)
    )


# ---- queries of a file ---------------------------------------------------------------------------


def named_queries(text: str) -> dict[str, str]:
    """The queries of a file in which a line `-- [name] comment` is above each."""
    parts = re.split(r"^-- \[(.+?)\].*\n", text, flags=re.MULTILINE)[1:]
    return {
        name: query.strip().removesuffix(";")
        for name, query in zip(parts[::2], parts[1::2], strict=True)
    }


def run_files(duck, variables: dict[str, float], *names: str) -> None:
    """Run SQL of this directory in DuckDB, with variables that it uses."""
    for name, value in variables.items():
        duck.execute(f"SET VARIABLE {name} = {value}")
    for name in names:
        duck.execute((HERE / f"{name}.sql").read_text())


# ---- TPC-H ---------------------------------------------------------------------------------------


def fill_tpch(duck, directory: Path, scale: float) -> None:
    tpch.generate(directory, scale)
    load_duck(duck, directory)
    for table in tpch.TABLES:
        (directory / f"{table}.csv").unlink()


TPCH = Dataset(
    tables=tpch.TABLES,
    definitions=(tpch.HERE / "tables.sql").read_text(),
    layouts={
        "tpch-a": Layout("TPC-H, layout A", tpch.LAYOUTS["A"], 2.5),
        "tpch-b": Layout("TPC-H, layout B", tpch.LAYOUTS["B"], 5),
    },
    fill=fill_tpch,
    queries=lambda duck, scale: tpch.QUERIES,
)


# ---- page views ----------------------------------------------------------------------------------


def hits_rows(scale: float) -> int:
    return int(HITS_ROWS * scale)


def easy_groups(duck, layout: Layout, queries: dict[str, str]) -> set[str]:
    """The queries whose groups hold the distribution key, or are few."""
    ((key, _),) = layout.keys.values()
    return {
        name
        for name, query in queries.items()
        if (groups := re.search(r"GROUP BY\s+(.*?)(?:ORDER|HAVING|LIMIT|$)", query, re.DOTALL))
        is None
        or key in re.split(r"[\s,]+", groups[1])
        or count_groups(duck, query) <= FEW_GROUPS
    }


def count_groups(duck, query: str) -> int:
    """The rows that a query with groups would have without what comes after GROUP BY."""
    groups = re.split(r"\b(?:HAVING|ORDER BY|LIMIT)\b", query)[0]
    return duck.execute(f"SELECT count(*) FROM ({groups})").fetchone()[0]


EASY = "whose groups hold the key or are few"

HITS = Dataset(
    tables=("hits",),
    definitions=(HERE / "hits_table.sql").read_text(),
    layouts={
        "hits-user": Layout("hits by user", {"hits": ("user_id", None)}, 1.5, EASY),
        "hits-watch": Layout("hits by watch id", {"hits": ("watch_id", None)}, 1.5, EASY),
    },
    fill=lambda duck, directory, scale: hits.generate(duck, hits_rows(scale)),
    queries=lambda duck, scale: hits.read_queries(duck, hits_rows(scale)),
    without_order=(hits.WITHOUT_ORDER,),
    in_file=True,
    choose=easy_groups,
)


# ---- star schema ---------------------------------------------------------------------------------

SSB = Dataset(
    tables=("dates", "customer", "supplier", "part", "lineorder"),
    definitions=(HERE / "ssb_tables.sql").read_text(),
    layouts={"ssb": Layout("star schema", {"lineorder": ("lo_orderkey", None)}, 1.05)},
    fill=lambda duck, directory, scale: run_files(
        duck, {"scale": scale}, "random", "ssb_tables", "ssb_rows"
    ),
    queries=lambda duck, scale: named_queries((HERE / "ssb_queries.sql").read_text()),
)


# ---- time series ---------------------------------------------------------------------------------


def fill_series(duck, directory: Path, scale: float) -> None:
    """Moments have no zone in DuckDB, all are of UTC: it is faster so, its client far faster."""
    duck.execute(SERIES.definitions.replace("timestamptz", "timestamp"))
    run_files(duck, {"host_count": max(int(HOSTS * scale), 50)}, "random", "series_rows")


SERIES = Dataset(
    tables=("hosts", "cpu"),
    definitions=(HERE / "series_tables.sql").read_text(),
    layouts={
        "series": Layout("time series", {"hosts": ("host", None), "cpu": ("host", "hosts")}, 1.1)
    },
    fill=fill_series,
    queries=lambda duck, scale: named_queries((HERE / "series_queries.sql").read_text()),
)

DATASETS = (TPCH, HITS, SSB, SERIES)

GROUPS = [name for dataset in DATASETS for name in dataset.layouts]


def chosen(groups: list[str] | None) -> Iterator[tuple[Dataset, list[Layout]]]:
    """The datasets that these groups need, all by default, with the layouts that are measured."""
    for dataset in DATASETS:
        layouts = [
            layout for name, layout in dataset.layouts.items() if not groups or name in groups
        ]
        if layouts:
            yield dataset, layouts
