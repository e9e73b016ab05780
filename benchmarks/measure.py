"""What all benchmarks share: results and their table, medians, interleaved runs, COPY, CPU time."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path

import psycopg
from rich import box
from rich.console import Console
from rich.table import Table

from tests.cluster import Node

# Runs that are not counted, as a part of those that are: caches have to be warm.
WARM_UP = 10


@dataclass
class Result:
    """A measurement; `better` says on which side of the budget it has to be.

    Without a value it could not be measured here, and `detail` says why: that is no failure.
    `figures` are what the value was computed from, seconds and counts; they are in JSON, as are results
    that are not `listed` in the table.
    """

    name: str
    value: float | None
    unit: str
    budget: float | None = None
    better: str = "less"
    detail: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    listed: bool = True

    @property
    def kept(self) -> bool:
        if self.budget is None or self.value is None:
            return True
        return self.value <= self.budget if self.better == "less" else self.value >= self.budget

    @property
    def verdict(self) -> str:
        if self.value is None:
            return "not measured"
        if self.budget is None:
            return ""
        return "kept" if self.kept else "EXCEEDED"


def print_table(console: Console, results: list[Result]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column("measured", justify="right")
    table.add_column("budget", justify="right")
    table.add_column("")
    table.add_column("")
    for result in filter(lambda result: result.listed, results):
        sign = "<=" if result.better == "less" else ">="
        budget = f"{sign} {result.budget:g} {result.unit}" if result.budget is not None else ""
        value = f"{show_value(result.value)} {result.unit}" if result.value is not None else ""
        style = None if result.kept else "red"
        table.add_row(result.name, value, budget, result.verdict, result.detail, style=style)
    console.print(table)


def show_value(value: float) -> str:
    """Two decimals, or more where the number is small: 0.155 is not within 0.15."""
    if isinstance(value, int):
        return str(value)
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


# ---- time ----------------------------------------------------------------------------------------


def seconds_of(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def interleave(actions: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median of what each action returns, run in turns: all see the same machine."""
    values: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            values[name].append(action())
    return {name: statistics.median(measured) for name, measured in values.items()}


def median_milliseconds(connection: psycopg.Connection, query: str, runs: int) -> float:
    """The median time of a query in ms, as libpq sees it, once caches are warm."""
    return median_milliseconds_of(connection, repeat(query, runs + runs // WARM_UP), runs)


def median_milliseconds_of(
    connection: psycopg.Connection, queries: Iterable[str], runs: int
) -> float:
    """The median time of the last `runs` of these queries; those before warm the caches."""
    seconds = [execute_seconds(connection, query) for query in queries]
    return statistics.median(seconds[-runs:]) * 1000


def execute_seconds(connection: psycopg.Connection, query: str) -> float:
    """The time of a statement without any client library above libpq."""
    text = query.encode()
    begin = time.perf_counter()
    result = connection.pgconn.exec_(text)
    elapsed = time.perf_counter() - begin
    good = (psycopg.pq.ExecStatus.TUPLES_OK, psycopg.pq.ExecStatus.COMMAND_OK)
    if result.status not in good:
        raise RuntimeError(result.error_message.decode())
    return elapsed


# ---- COPY ----------------------------------------------------------------------------------------


def copy_out(connection: psycopg.Connection, command: str, path: Path) -> None:
    with path.open("wb") as file, connection.cursor().copy(command) as copy:
        for block in copy:
            file.write(block)


def copy_in(connection: psycopg.Connection, command: str, path: Path) -> None:
    with path.open("rb") as file, connection.cursor().copy(command) as copy:
        while block := file.read(1 << 18):
            copy.write(block)


# ---- CPU -----------------------------------------------------------------------------------------


def cpu_seconds(connection: psycopg.Connection, action: Callable[[], object]) -> float:
    """CPU time that the connection's server process spends while the action runs."""
    pid = connection.info.backend_pid
    begin = process_cpu(pid)
    action()
    connection.execute("SELECT")  # the server has ended everything before
    return process_cpu(pid) - begin


def process_cpu(pid: int) -> float:
    """CPU seconds of a process: what a busy machine does not change.  Others than its first thread do not count."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def server_cpu(node: Node) -> float:
    """CPU seconds of all processes of a server until now, parallel workers that have ended, too."""
    postmaster, *others = node.processes()
    fields = Path(f"/proc/{postmaster}/stat").read_text().rpartition(")")[2].split()
    ended = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    total = process_cpu(postmaster) + ended
    for pid in others:
        with contextlib.suppress(OSError):  # it has just ended
            total += process_cpu(pid)
    return total
