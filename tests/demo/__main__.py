"""`python -m tests.demo up | down | remove`: what `make demo`, `make down`, `make clean` run.

`up` may be run again at any time: what exists is kept, what was left half-done is made anew, and
the cluster itself is made anew only when the number of workers or the installed extension is
another one.
"""

from __future__ import annotations

import argparse
import sys
import time

import psycopg
from rich.console import Console

from tests.cluster import Cluster
from tests.demo import growth, local, showcase
from tests.demo.datasets import Dataset, Flights, Tpch
from tests.installation import ClusterError

# A cluster of the demo's data takes this many bytes: for the data of scale 1, and for the rest.
BYTES_PER_SCALE = 4 << 30
BYTES = 1 << 30


def bring_up(console: Console, workers: int, scale: float) -> None:
    begin = time.monotonic()
    cluster = start_cluster(console, workers, scale)
    load_data(console, cluster, [Flights(), Tpch(scale)])
    showcase.run(console, cluster)
    growth.run(console, cluster)
    print_farewell(console, cluster, time.monotonic() - begin)


def start_cluster(console: Console, workers: int, scale: float) -> Cluster:
    """The running cluster with its environment file."""
    root = local.cluster_root()
    fingerprint = local.fingerprint()
    cluster = Cluster(root, workers, durable=True, tls=True)
    if cluster.complete:
        reason = outdated(cluster, workers, fingerprint)
        if reason:
            console.print(f"{reason}: the cluster is made anew")
            cluster.destroy()
            cluster = Cluster(root, workers, durable=True, tls=True)
    elif root.exists():
        console.print("A cluster was left half-made: it is made anew")
        cluster.destroy()
        cluster = Cluster(root, workers, durable=True, tls=True)
    if not cluster.complete:
        check_space(cluster, scale)
    title = "Cluster" if cluster.complete else "New cluster"
    with console.status("starting servers ..."):
        cluster.create()
    local.link_to(root)
    local.write_environment(cluster)
    local.State(root).set("fingerprint", fingerprint)
    ports = ", ".join(f"{worker.name} on {worker.port}" for worker in cluster.workers)
    console.rule(f"{title} in {local.LINK.name}", align="left")
    console.print(f"  coordinator on port {cluster.coordinator.port}, {ports}", highlight=False)
    return cluster


def outdated(cluster: Cluster, workers: int, fingerprint: str) -> str:
    """Why a complete cluster cannot be used, or nothing."""
    if len(cluster.workers) != workers:
        return f"The cluster has {len(cluster.workers)} workers, not {workers}"
    known = local.State(cluster.root).get("fingerprint")
    if known not in (None, fingerprint):
        return "Another version of the extensions was installed"
    return ""


def check_space(cluster: Cluster, scale: float) -> None:
    needed = BYTES + int(BYTES_PER_SCALE * scale)
    free = local.free_space(cluster.root)
    if free < needed:
        raise ClusterError(
            f"the demo needs {needed / 1e9:.1f} GB in {cluster.root}, free are {free / 1e9:.1f} GB"
        )


def load_data(console: Console, cluster: Cluster, datasets: list[Dataset]) -> None:
    state = local.State(cluster.root)
    for dataset in datasets:
        console.rule(dataset.title, align="left")
        if state.get(dataset.name) == dataset.version:
            console.print("  loaded already")
            continue
        state.set(dataset.name, None)
        dataset.prepare(console)
        with cluster.coordinator.connect() as connection:
            dataset.create(connection)
            dataset.load(connection, console)
        state.set(dataset.name, dataset.version)


def print_farewell(console: Console, cluster: Cluster, seconds: float) -> None:
    console.rule("Go on from here", align="left")
    for line in (
        "  make psql                            a session on the coordinator",
        "  . .strata/env && psql                the same, and for any libpq program",
        "  SELECT * FROM strata.tables;         what is distributed, and how",
        "  SELECT * FROM strata.shards;         where each shard is",
        "  SET search_path = tpch, public, strata;",
        "  \\i tests/tpch/queries/q05.sql        any of TPC-H's 22 queries; EXPLAIN them, too",
        "  make demo WORKERS=4 SCALE=1          more workers, more rows",
        "  .strata/*.log                        what the servers log",
        "  make down, make clean                stop the servers, remove everything",
    ):
        console.print(line, markup=False, highlight=False)
    worker = cluster.workers[0]
    console.print("  A worker is PostgreSQL with the same table names; look into one:")
    console.print(
        f"    . .strata/env && psql -h {cluster.sockets} -p {worker.port} -c '\\d+ flights'",
        markup=False,
        highlight=False,
    )
    console.print(f"\nDone in {seconds:.1f} s.", highlight=False)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start a cluster, load data, show what it does")
    up.add_argument("--workers", type=int, default=2)
    up.add_argument("--scale", type=float, default=0.1, help="scale of TPC-H")
    commands.add_parser("down", help="stop the servers")
    commands.add_parser("remove", help="remove the cluster and its data")
    arguments = parser.parse_args()
    console = Console(soft_wrap=True)
    try:
        root = local.cluster_root()
        if owner := local.other_owner(root):
            raise ClusterError(
                f"the cluster in {root} was made by {owner}: only {owner} can use it"
            )
        if arguments.command == "up":
            if arguments.workers < 1 or arguments.scale <= 0:
                parser.error("WORKERS must be at least 1 and SCALE more than 0")
            bring_up(console, arguments.workers, arguments.scale)
        elif not root.exists():
            local.LINK.unlink(missing_ok=True)
            console.print("There is no cluster.")
        elif arguments.command == "down":
            Cluster(root).stop()
            console.print("Stopped; make demo starts it again.")
        else:
            local.remove(Cluster(root))
            console.print("Removed the cluster.")
    except (ClusterError, psycopg.Error) as error:
        console.print(f"{type(error).__name__}: {error}", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("\nStopped half-way; the next make demo goes on from here.")
        return 130
    return 0


sys.exit(main())
