"""Record and judge histories: `python -m tests.history --seconds 600`; or judge a recorded one again.

Without --seed each round has another one, and other kinds of nodes.  A round with an anomaly is
saved, and ends the run with status 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster import Cluster
from tests.history.checker import check
from tests.history.model import History
from tests.history.workload import CLERK, KEEPER, Faults, create_tables, record
from tests.installation import server_can_reach


def run_round(arguments: argparse.Namespace, seed: int) -> bool:
    """One cluster, one history; True when nothing was found."""
    workers = arguments.workers or 2 + seed % 2
    storage = ("heap", "columnar")[seed // 2 % 2]
    root = Path(tempfile.mkdtemp(prefix="strata-history-"))
    assert server_can_reach(root.parent)
    with Cluster(root, workers=workers, assertions=arguments.assertions) as cluster:
        for role in (KEEPER, CLERK):
            cluster.create_role(role)
        create_tables(cluster.coordinator, storage)
        faults = None if arguments.quiet else Faults(cluster, seed)
        history, errors = record(
            cluster.coordinator, arguments.round, seed, arguments.clients, disturb=faults
        )
        anomalies = check(history)
    committed = sum(t.status == "committed" for t in history.transactions)
    reads = sum(len(s.reads) for t in history.transactions for s in t.statements)
    print(
        f"seed {seed}: {workers} workers, {storage}, "
        f"{len(history.transactions)} transactions, {committed} committed, {reads} reads, "
        f"{faults.done if faults else 'quiet'}: {len(anomalies)} anomalies",
        flush=True,
    )
    if arguments.errors:
        for text, count in sorted(errors.items(), key=lambda item: -item[1]):
            print(f"    {count:6} {text}")
    for anomaly in anomalies:
        print(anomaly)
    if anomalies:
        path = arguments.save / f"history-{seed}.json"
        history.save(path)
        print(f"saved as {path}", flush=True)
    return not anomalies


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.history", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=60, help="all rounds together; inf: for ever"
    )
    parser.add_argument("--round", type=float, default=30, help="seconds of one history")
    parser.add_argument("--seed", type=int, help="of the first round")
    parser.add_argument("--workers", type=int, help="else 2 and 3 in turn")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--quiet", action="store_true", help="no kills, restarts and stalls")
    parser.add_argument("--assertions", action="store_true", help="libraries with assertions")
    parser.add_argument("--errors", action="store_true", help="list the errors that clients met")
    parser.add_argument("--save", type=Path, default=Path(".cache"), help="where anomalies go")
    parser.add_argument("--replay", type=Path, help="judge a saved history")
    arguments = parser.parse_args()

    if arguments.replay:
        anomalies = check(History.load(arguments.replay))
        for anomaly in anomalies:
            print(anomaly)
        return 1 if anomalies else 0
    seed = arguments.seed if arguments.seed is not None else int(time.time())
    end = time.monotonic() + arguments.seconds
    good = True
    while time.monotonic() < end:
        good &= run_round(arguments, seed)
        seed += 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
