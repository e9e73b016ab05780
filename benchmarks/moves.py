"""What moves of a table cost those who use it: the latencies of short statements, without and with moves.

python -m benchmarks.moves [--seconds 30] [--clients 4]

One table of 2 million rows moves between two tablespaces all the time, while clients look up, insert and
update single rows.  The clients' own clock shows what else delays them on a busy machine; how long statements
waited for the table's lock is what the server says (log_lock_waits).
"""

from __future__ import annotations

import argparse
import random
import re
import threading
import time
from contextlib import suppress

import psycopg
from rich.console import Console

from benchmarks.measure import Result, print_table
from tests.cluster import Cluster, Node
from tests.fixtures import new_root

ROWS = 2_000_000
LONGEST_WAIT = 0.1  # seconds
NOTICED = 2  # ms: shorter waits for locks are not told
ACQUIRED = re.compile(r"process (\d+) acquired \w+Lock on relation \d+ .*after ([\d.]+) ms")


def use(node: Node, seed: int, stop: threading.Event, latencies: list[float]) -> None:
    chance = random.Random(seed)
    with node.connect() as session:
        while not stop.is_set():
            row = chance.randrange(ROWS)
            for statement, arguments in (
                ("SELECT v FROM t WHERE id = %s", (row,)),
                ("UPDATE t SET v = v + 1 WHERE id = %s", (row,)),
                ("INSERT INTO t VALUES (%s, 0, 'new')", (ROWS + chance.randrange(1 << 30),)),
            ):
                begin = time.perf_counter()
                with suppress(psycopg.errors.UniqueViolation):
                    session.execute(statement, arguments)
                latencies.append(time.perf_counter() - begin)


def move(node: Node, stop: threading.Event, outcomes: list[str]) -> None:
    with node.connect() as session:
        tier = 0
        while not stop.is_set():
            try:
                session.execute(
                    "CALL strata_columnar.move_columnar_table('t', %s, patience => '5 s')",
                    (("cold", "hot")[tier],),
                )
                tier = 1 - tier
                outcomes.append("done")
            except psycopg.errors.LockNotAvailable as error:
                outcomes.append(str(error).splitlines()[0])


def measure(node: Node, seconds: float, clients: int, moves: bool) -> tuple[list[float], list[str]]:
    stop = threading.Event()
    latencies: list[float] = []
    outcomes: list[str] = []
    threads = [
        threading.Thread(target=use, args=(node, seed, stop, latencies)) for seed in range(clients)
    ]
    if moves:
        threads.append(threading.Thread(target=move, args=(node, stop, outcomes)))
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    return sorted(latencies), outcomes


def lock_waits(node: Node, begin: int) -> list[float]:
    """Of the clients for a table or an index, in ms, since the log had so many bytes."""
    log = node.log_text(begin)
    movers = set(
        re.findall(r"process (\d+) (?:still waiting for|acquired) AccessExclusiveLock", log)
    )
    return sorted(float(ms) for process, ms in ACQUIRED.findall(log) if process not in movers)


def percentile(latencies: list[float], part: float) -> float:
    return latencies[min(int(len(latencies) * part), len(latencies) - 1)] * 1000


def measure_moves(seconds: float = 30, clients: int = 4) -> list[Result]:
    with Cluster(new_root(), workers=1) as cluster:
        node = cluster.workers[0]
        node.execute(
            "CREATE TABLE t (id bigint PRIMARY KEY, v integer, s text) USING columnar;"
            f" INSERT INTO t SELECT g, 0, md5(g::text) FROM generate_series(0, {ROWS - 1}) AS g"
        )
        node.execute("ALTER SYSTEM SET log_lock_waits = on")
        node.execute(f"ALTER SYSTEM SET deadlock_timeout = '{NOTICED}ms'")
        node.execute("SELECT pg_reload_conf()")
        results = []
        for moves in (False, True):
            begin = node.log_size()
            latencies, outcomes = measure(node, seconds, clients, moves)
            what = "with moves" if moves else "without moves"
            done = outcomes.count("done")
            detail = f"{len(latencies) / seconds:.0f} statements per s"
            if moves:
                detail += f"; {done} moves, {len(outcomes) - done} given up"
            results += [
                Result(f"{what}: median", percentile(latencies, 0.5), "ms", detail=detail),
                Result(f"{what}: 99.9 %", percentile(latencies, 0.999), "ms"),
                Result(f"{what}: longest", percentile(latencies, 1), "ms"),
            ]
        waits = lock_waits(node, begin)
        detail = f"{len(waits)} waits of more than {NOTICED} ms"
        results.append(
            Result(
                "longest wait for a lock",
                max(waits, default=0),
                "ms",
                LONGEST_WAIT * 1000,
                detail=detail,
            )
        )
        return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--clients", type=int, default=4)
    options = parser.parse_args()
    print_table(Console(), measure_moves(options.seconds, options.clients))


if __name__ == "__main__":
    main()
