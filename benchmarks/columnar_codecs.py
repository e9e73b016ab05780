"""Encoders and decoders of the columnar store by themselves: bench_codecs.c, run and judged."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from benchmarks.measure import Result
from tests.cluster import Cluster
from tests.installation import find_binaries

UNIT = Path(__file__).parent.parent / "extensions/columnar/test/unit"

# by the names that bench_codecs prints
BUDGETS = {
    "bit-unpack + FOR": (0.3, "less"),
    "encode int": (150, "more"),
    "encode numeric": (150, "more"),
    "encode text": (150, "more"),
}


def measure_codecs(cluster: Cluster) -> list[Result]:
    """Build bench_codecs with the server's flags and run it; the cluster is not used."""
    command = ["make", "-s", "-C", UNIT, "bench", f"PG_CONFIG={find_binaries() / 'pg_config'}"]
    environment = {key: value for key, value in os.environ.items() if key != "MAKEFLAGS"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"bench_codecs failed: {run.stdout}{run.stderr}")
    results = []
    for line in run.stdout.splitlines():
        name, value, unit, detail = line.split("\t")
        budget, better = BUDGETS.get(name, (None, "less"))
        results.append(Result(name, float(value), unit, budget, better, detail))
    missing = BUDGETS.keys() - {result.name for result in results}
    if missing:
        raise RuntimeError(f"bench_codecs does not measure {', '.join(sorted(missing))}")
    return results
