"""What a sample costs: the average over 0.02 % of 100 million rows, against heap's full scan.

Both servers hold the same rows: random values, so that the rows of one block are as good a sample as any.
The sample's error is compared with its standard error, over all runs.
"""

from __future__ import annotations

import statistics

import psycopg

from benchmarks.measure import Result, execute_seconds, interleave
from tests.cluster import Cluster

ROWS = 100_000_000
PERCENT = 0.02
RUNS = 30
PORTION = 10_000_000

COLUMNS = "(id bigint NOT NULL, at timestamptz NOT NULL, amount float8 NOT NULL, note text)"
SOURCE = (
    "SELECT g, timestamptz '2026-01-01' + g * interval '1 s',"
    " hashint8(g) / 1e6::float8, 'row ' || g % 1000 FROM generate_series({}, {}) AS g"
)
FULL = "SELECT avg(amount) FROM sampled"


def load(cluster: Cluster) -> None:
    for node in (cluster.coordinator, cluster.plain):
        node.execute(f"CREATE TABLE sampled {COLUMNS}")
    cluster.coordinator.execute("SELECT create_distributed_table('sampled', 'id')")
    for first in range(1, ROWS, PORTION):
        rows = SOURCE.format(first, min(first + PORTION - 1, ROWS))
        for node in (cluster.coordinator, cluster.plain):
            node.execute(f"INSERT INTO sampled {rows}")
    cluster.plain.execute("VACUUM ANALYZE sampled")
    cluster.coordinator.execute("ANALYZE sampled")


def measure_sampling(cluster: Cluster) -> list[Result]:
    load(cluster)
    results = []
    with cluster.coordinator.connect() as ours, cluster.plain.connect() as theirs:
        ((mean, deviation),) = theirs.execute(
            "SELECT avg(amount), stddev(amount) FROM sampled"
        ).fetchall()
        for method in ("SYSTEM", "BERNOULLI"):
            sample = f"{FULL} TABLESAMPLE {method} ({PERCENT})"
            seconds = interleave(
                {
                    "ours": lambda sample=sample: execute_seconds(ours, sample),
                    "theirs": lambda sample=sample: execute_seconds(theirs, sample),
                },
                RUNS,
            )
            full = statistics.median(execute_seconds(theirs, FULL) for _ in range(5))
            detail = (
                f"{seconds['ours'] * 1000:.1f} ms; heap: all rows {full * 1000:.0f} ms,"
                f" the sample {seconds['theirs'] * 1000:.1f} ms"
            )
            name = f"avg() of {PERCENT} % by {method} against heap's full scan"
            budget = 1 / 200 if method == "SYSTEM" else None
            results.append(Result(name, seconds["ours"] / full, "x", budget, "less", detail))
            results.append(measure_error(ours, sample, mean, deviation))
    return results


def measure_error(
    connection: psycopg.Connection, sample: str, mean: float, deviation: float
) -> Result:
    """The standard deviation of the averages, in standard errors of a sample of independent rows."""
    found = [connection.execute(sample).fetchone()[0] for _ in range(RUNS)]
    expected = deviation / (ROWS * PERCENT / 100) ** 0.5
    error = statistics.mean((value - mean) ** 2 for value in found) ** 0.5
    return Result("... its error, in standard errors", error / expected, "x", 1.5)
