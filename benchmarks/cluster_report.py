"""What is told of queries on a cluster: a table of each group, and the results that are judged."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.cluster_data import Layout
from benchmarks.measure import Result, show_value

COLUMNS = (
    *("wall x", "CPU x", "wall", "DuckDB", "coordinator", "workers", "DuckDB"),
    *("rows", "bytes"),
)


class Spent(NamedTuple):
    """Seconds that one execution took; CPU seconds of the coordinator, and of the workers or of DuckDB."""

    wall: float
    coordinator: float
    workers: float

    @property
    def cpu(self) -> float:
        return self.coordinator + self.workers


@dataclass
class Comparison:
    """One query: what it took here and there, and what went wrong.

    A query that did not end has in `here` what it took until then, at least the limit.  `gathered` are
    the rows and the bytes that came from the workers, None where that is not known.
    """

    name: str
    here: Spent | None
    there: Spent
    same: bool = True
    failure: str = ""
    gathered: tuple[int, int] | None = None

    @property
    def ended(self) -> bool:
        return not self.failure

    @property
    def wall_ratio(self) -> float | None:
        return self.here.wall / self.there.wall if self.here else None

    @property
    def cpu_ratio(self) -> float | None:
        return self.here.cpu / self.there.cpu if self.here else None


# ---- a table ---------------------------------------------------------------------------------------


def print_group(console: Console, title: str, comparisons: list[Comparison]) -> None:
    """A line for each query: ratios, wall and CPU times in milliseconds, what the workers send.

    DuckDB's wall time stands behind the cluster's, its CPU time behind the coordinator's and the workers'.
    """
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for column in COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("")
    for comparison in comparisons:
        here, there = comparison.here, comparison.there
        ratios = ["", ""]
        if comparison.ended:
            ratios = [show_value(comparison.wall_ratio), show_value(comparison.cpu_ratio)]
        table.add_row(
            comparison.name,
            *ratios,
            show_ms(here.wall) if here else "",
            show_ms(there.wall),
            show_ms(here.coordinator) if here else "",
            show_ms(here.workers) if here else "",
            show_ms(there.cpu),
            *map(str, comparison.gathered or ("", "")),
            comparison.failure or ("" if comparison.same else "ANOTHER ANSWER"),
            style=None if comparison.ended and comparison.same else "red",
        )
    console.print(table)


def show_ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f}" if seconds < 0.01 else f"{seconds * 1000:.0f}"


# ---- results -------------------------------------------------------------------------------------


def tell_group(layout: Layout, comparisons: list[Comparison], judged: set[str]) -> list[Result]:
    """A line for each query, the geometric means of wall and CPU times, and what went wrong."""
    title = layout.title
    results = [tell_query(title, comparison) for comparison in comparisons]
    results += tell_means(title, comparisons, None if layout.of else layout.mean_budget)
    if layout.of:
        some = [comparison for comparison in comparisons if comparison.name in judged]
        results += tell_means(f"{title}, queries {layout.of}", some, layout.mean_budget)
    for line, names in (
        ("do not end or fail", [c.name for c in comparisons if not c.ended]),
        ("have another answer", [c.name for c in comparisons if not c.same]),
    ):
        results.append(
            Result(f"{title}, {line}", len(names), "queries", 0, "less", ", ".join(names))
        )
    return results


def tell_query(title: str, comparison: Comparison) -> Result:
    """The ratio of the wall times, for JSON: print_group() has shown it."""
    here, there = comparison.here, comparison.there
    figures = {"duckdb_wall": there.wall, "duckdb_cpu": there.cpu}
    if here is not None:
        figures |= {
            "wall": here.wall,
            "coordinator_cpu": here.coordinator,
            "workers_cpu": here.workers,
        }
    if comparison.gathered is not None:
        figures["gathered_rows"], figures["gathered_bytes"] = comparison.gathered
    ratio = comparison.wall_ratio if comparison.ended else None
    detail = comparison.failure or ("" if comparison.same else "ANOTHER ANSWER")
    name = f"{title}: {comparison.name}"
    return Result(name, ratio, "x", detail=detail, figures=figures, listed=False)


def tell_means(title: str, comparisons: list[Comparison], budget: float | None) -> list[Result]:
    """Queries that did not end count with what they took until then, so that they cannot hide."""
    results = []
    counted = [comparison for comparison in comparisons if comparison.here is not None]
    endless = sum(not comparison.ended for comparison in counted)
    detail = f"of {len(counted)} of {len(comparisons)} queries"
    if endless:
        detail += f", {endless} with what they took until they were ended"
    for what, ratios in (
        ("wall time", [comparison.wall_ratio for comparison in counted]),
        ("CPU time", [comparison.cpu_ratio for comparison in counted]),
    ):
        mean = statistics.geometric_mean(ratios) if ratios else None
        results.append(
            Result(f"{title}, geometric mean of {what}", mean, "x", budget, "less", detail)
        )
    return results
