"""What counting heat costs a scan: the same scans with strata_tiering.track_heat on and off, in turns.

python -m benchmarks.heat [--rows 2000000] [--turns 40]
"""

from __future__ import annotations

import argparse
import statistics
import time

import psycopg

from tests.cluster import Cluster
from tests.fixtures import new_root

QUERIES = {
    "scan": "SELECT max(hashint4(v)) FROM t",
    "filter": "SELECT count(*) FROM t WHERE v % 7 = 3",
    "rows": "SET LOCAL strata_columnar.enable_vector = off; SELECT max(v) FROM t WHERE id % 3 = 0",
    "look-up": "SELECT v FROM t WHERE id = 77777",
}
BUDGET = 1.01


def measure(connection: psycopg.Connection, query: str, turns: int) -> dict[str, list[float]]:
    """Seconds of each turn, by the setting; which goes first alternates."""
    times: dict[str, list[float]] = {"on": [], "off": []}
    for turn in range(turns + 2):
        for setting in ("on", "off") if turn % 2 else ("off", "on"):
            connection.execute(f"SET strata_tiering.track_heat = {setting}")
            begin = time.perf_counter()
            with connection.transaction():
                connection.execute(query)
            if turn >= 2:
                times[setting].append(time.perf_counter() - begin)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--turns", type=int, default=40)
    options = parser.parse_args()
    with Cluster(new_root(), workers=0) as cluster:
        node = cluster.new_node("worker1")
        node.execute("CREATE EXTENSION strata_tiering CASCADE")
        node.execute("CREATE TABLE t (id integer, v integer) USING columnar")
        node.execute(
            f"INSERT INTO t SELECT g, hashint4(g) FROM generate_series(1, {options.rows}) AS g"
        )
        node.execute("CREATE INDEX ON t (id)")
        node.execute("VACUUM ANALYZE t")
        print(f"{'query':10} {'off ms':>9} {'on ms':>9} {'ratio':>7}  (budget {BUDGET})")
        with node.connect() as connection:
            connection.execute("SET max_parallel_workers_per_gather = 0")
            for name, query in QUERIES.items():
                turns = options.turns * (10 if name == "look-up" else 1)
                times = measure(connection, query, turns)
                off, on = (statistics.median(times[which]) * 1000 for which in ("off", "on"))
                ratio = statistics.median(
                    one / other for one, other in zip(times["on"], times["off"], strict=True)
                )
                print(f"{name:10} {off:9.3f} {on:9.3f} {ratio:7.4f}")


if __name__ == "__main__":
    main()
