"""The long-tailed table: a table on a fast and a slow disk, placed by hand and by what is read.

python -m benchmarks.tiering [--leaves 100] [--minutes 10] [--plot FILE.svg]

A table is divided by its id into leaves; the 20 % with the highest ids are read most.  Measured are a scan
of everything and reads of single rows, anywhere and among those 20 %, while the whole table is on the
fast disk, while it is on the slow one, with the 20 % moved to the fast one by hand, and, beginning with
everything on the slow one, as strata_tiering moves it under the reads of the 20 %.  The simulator of its
tests says beside it how that should go, given the speeds and sizes that were measured.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.disks import DisksUnavailable, Memory, two_disks
from benchmarks.measure import Result, print_table
from extensions.tiering.test.simulator import Decider, WarmUp
from tests.cluster import Cluster, Node
from tests.fixtures import new_root
from tests.waiting import wait_until

LEAF_ROWS = 65536
HOT_PART = 0.2
MEMORY = 160 << 20
READS = 300
SCANS = 5
READING = 10  # seconds, at least
INTERVAL = 2  # seconds between rounds

# bounds of blocks do not decide it
SCAN = r"SELECT count(*) FROM t WHERE payload < '\x80'"


@dataclass
class Moment:
    """What the plot shows of one second."""

    second: float
    reads: int  # until its end
    milliseconds: float
    hot_leaves: int
    moved: int
    read_heat: float  # of the leaves that are read
    other_heat: float


class Bench:
    def __init__(self, cluster: Cluster, memory: Memory, leaves: int):
        self.cluster = cluster
        self.memory = memory
        self.leaves = leaves
        self.rows = leaves * LEAF_ROWS
        self.first_hot = int(leaves * (1 - HOT_PART))
        self.random = random.Random(1)
        self.node = cluster.coordinator
        self.worker: Node = cluster.workers[0]

    def load(self) -> None:
        self.node.execute("CREATE TABLE t (id bigint NOT NULL, payload bytea NOT NULL)")
        self.node.query(
            "SELECT create_distributed_table('t', 'id', shard_count => 1,"
            f" partition_by => 'id', partition_interval => '{LEAF_ROWS}')"
        )
        hashes = " || ".join(f"sha256(int8send(g * 4 + {n}))" for n in range(4))
        for leaf in range(self.leaves):
            first = leaf * LEAF_ROWS
            self.node.execute(
                f"INSERT INTO t SELECT g, {hashes} FROM generate_series({first}::bigint, {first + LEAF_ROWS - 1}) AS g"
            )
        for _ in wait_until("every row is in its leaf", 600, 1):
            if len(self.leaf_names()) == self.leaves:
                break
        self.node.execute("ANALYZE t")

    def leaf_names(self) -> dict[int, str]:
        """Of the leaves with rows, by their number."""
        return dict(
            self.node.query(
                f"SELECT period_from::bigint / {LEAF_ROWS}, partition FROM strata.partitions"
                f" WHERE relation = 't'::regclass AND period_from::bigint BETWEEN 0 AND {self.rows - 1}"
                "   AND bytes > 100000"
            )
        )

    # ---- places ----

    def place(self, wanted: Callable[[int], str]) -> None:
        """By hand."""
        tiers = dict(self.node.query("SELECT partition, tier FROM strata.partitions"))
        with self.worker.connect() as session:
            for leaf, name in self.leaf_names().items():
                if tiers[name] != wanted(leaf):
                    session.execute(
                        f"CALL strata_columnar.move_columnar_table('{name}', '{wanted(leaf)}')"
                    )

    def hot_leaves(self) -> set[int]:
        return {
            leaf
            for (leaf,) in self.node.query(
                f"SELECT period_from::bigint / {LEAF_ROWS} FROM strata.partitions"
                f" WHERE tier = 'hot' AND bytes > 100000 AND period_from::bigint BETWEEN 0 AND {self.rows - 1}"
            )
        }

    # ---- measurements ----

    def scan(self, session: psycopg.Connection, condition: str) -> float:
        """Seconds, of a cold cache."""
        self.memory.drop_cache()
        begin = time.perf_counter()
        session.execute(SCAN + condition)
        return time.perf_counter() - begin

    def scans(self, session: psycopg.Connection) -> dict[str, float]:
        """Of everything and of its parts, medians of several in turn: no part finds its own pages."""
        boundary = self.first_hot * LEAF_ROWS
        whole, parts = [], []
        for _ in range(SCANS):
            # the parts read column id, too
            whole.append(self.scan(session, " AND id >= 0"))
            parts.append(
                self.scan(session, f" AND id >= {boundary}")
                + self.scan(session, f" AND id < {boundary}")
            )
        return {"scan": statistics.median(whole), "parts": statistics.median(parts)}

    def read(self, session: psycopg.Connection, first_leaf: int) -> float:
        """Seconds of reading one row anywhere behind the beginning of a leaf."""
        row = self.random.randrange(first_leaf * LEAF_ROWS, self.rows)
        begin = time.perf_counter()
        found = session.execute("SELECT octet_length(payload) FROM t WHERE id = %s", (row,))
        assert found.fetchone() == (128,)
        return time.perf_counter() - begin

    def reads(self, session: psycopg.Connection, first_leaf: int) -> float:
        """Rows per second, median of parts that begin with a cold cache."""
        parts = []
        while len(parts) < SCANS or sum(parts) < READING:
            self.memory.drop_cache()
            parts.append(sum(self.read(session, first_leaf) for _ in range(READS)))
        return READS / statistics.median(parts)

    def measure(self) -> dict[str, float]:
        with self.node.connect() as session:
            return self.scans(session) | {
                "all": self.reads(session, 0),
                "hot": self.reads(session, self.first_hot),
            }

    # ---- by heat ----

    def set_capacity(self) -> dict[str, int]:
        """Room for the 20 % below the low-water mark, and for a leaf more."""
        used = self.worker.value("SELECT used FROM strata_tiering.hot_room()")
        # not of the default leaf, through which all rows went
        leaf = self.node.value(
            "SELECT max(bytes) FROM strata.partitions WHERE relation = 't'::regclass"
            f" AND period_from::bigint BETWEEN 0 AND {self.rows - 1}"
        )
        wanted = int(self.leaves * HOT_PART)
        capacity = int((used + (wanted + 1) * leaf * 1.1) / 0.75)
        set_parameter(self.worker, "strata_tiering.hot_capacity", str(capacity))
        return {"hot_bytes": capacity, "hot_used": used, "leaf_bytes": leaf}

    def warm_up(self, minutes: float) -> list[Moment]:
        """Reads of the 20 % until all of it is on the fast disk."""
        moments = []
        reads = 0
        begin = time.monotonic()
        wanted = set(range(self.first_hot, self.leaves))
        with self.node.connect() as session:
            while time.monotonic() - begin < minutes * 60:
                second = time.monotonic()
                took = []
                while time.monotonic() - second < 1:
                    took.append(self.read(session, self.first_hot))
                reads += len(took)
                hot = self.hot_leaves()
                moved = self.node.value(
                    "SELECT count(*) FROM strata.tier_moves WHERE state = 'done'"
                )
                heat = dict(
                    self.node.query(
                        f"SELECT period_from::bigint >= {self.first_hot * LEAF_ROWS}, sum(heat)"
                        " FROM strata.partitions WHERE period_from IS NOT NULL GROUP BY 1"
                    )
                )
                moments.append(
                    Moment(
                        second - begin,
                        reads,
                        statistics.median(took) * 1000,
                        len(hot),
                        moved,
                        heat[True],
                        heat[False],
                    )
                )
                if hot >= wanted:
                    break
        return moments


def set_parameter(node: Node, name: str, value: str) -> None:
    node.execute(f"ALTER SYSTEM SET {name} = '{value}'")
    node.execute("SELECT pg_reload_conf()")


def simulate(
    bench: Bench, found: dict[str, dict[str, float]], moments: list[Moment], sizes: dict[str, int]
) -> Result:
    """The warm-up as the simulator sees it."""
    scene = WarmUp(
        leaves=bench.leaves,
        read=bench.leaves - bench.first_hot,
        read_bytes=(moments[0].read_heat + moments[0].other_heat) / moments[0].reads,
        slow_reads=found["slow"]["hot"],
        fast_reads=found["fast"]["hot"],
        interval=INTERVAL,
        bytes_per_second=bench.node.value(
            "SELECT pg_size_bytes(current_setting('strata.tier_bytes_per_second'))"
        ),
        **sizes,
    )
    with tempfile.TemporaryDirectory() as directory:
        seconds, moves = scene.simulate(Decider(Path(directory)))
    detail = f"{moves} moves, {scene.read_bytes / 1024:.0f} kB a read"
    return Result("the same, simulated", seconds, "s", detail=detail)


def judge(found: dict[str, dict[str, float]], leaves: int, moments: list[Moment]) -> list[Result]:
    """What was measured against the goals."""
    results = []
    for place in ("hand", "heat"):
        values = found[place]
        results += [
            Result(
                f"{PLACES[place]}: scan of everything, against the sum of its parts",
                values["scan"] / values["parts"],
                "x",
                1.05,
            ),
            Result(
                f"{PLACES[place]}: rows of the 20 %, against all on the fast disk",
                values["hot"] / found["fast"]["hot"],
                "x",
                0.95,
                "more",
            ),
        ]
    last = moments[-1]
    detail = f"{last.moved} moves, of {leaves} leaves"
    results.append(
        Result("by heat: until the 20 % are on the fast disk", last.second, "s", detail=detail)
    )
    return results


def print_matrix(console: Console, found: dict[str, dict[str, float]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for place in found:
        table.add_column(PLACES[place], justify="right")
    for name, label in (
        ("scan", "scan of everything, s"),
        ("parts", "scan of the 20 %, then of the others, s"),
        ("all", "single rows anywhere, per s"),
        ("hot", "single rows of the 20 %, per s"),
    ):
        table.add_row(label, *(f"{values[name]:.3g}" for values in found.values()))
    console.print(table)


PLACES = {
    "fast": "all fast",
    "slow": "all slow",
    "hand": "by hand",
    "heat": "by heat",
}


def plot(moments: list[Moment], path: Path, wanted: int) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, (above, middle, below) = pyplot.subplots(3, 1, sharex=True, figsize=(7, 6))
    seconds = [moment.second for moment in moments]
    above.plot(seconds, [moment.milliseconds for moment in moments])
    above.set_ylabel("reading one row, ms")
    above.set_ylim(bottom=0)
    for heat, label in (
        ([moment.read_heat for moment in moments], "leaves that are read"),
        ([moment.other_heat for moment in moments], "others"),
    ):
        middle.plot(seconds, [value / 2**20 for value in heat], label=label)
    middle.set_ylabel("heat, MB")
    middle.legend()
    below.step(seconds, [moment.hot_leaves for moment in moments], where="post")
    below.axhline(wanted, linestyle=":")
    below.set_ylabel("leaves on the fast disk")
    below.set_xlabel("seconds since the first read")
    figure.tight_layout()
    figure.savefig(path)


def measure_tiering(
    console: Console, leaves: int = 100, minutes: float = 10, picture: Path | None = None
) -> list[Result]:
    with Cluster(new_root(), workers=1) as cluster:
        worker = cluster.workers[0]
        worker.settings |= {"shared_buffers": "32MB", "max_parallel_workers_per_gather": "0"}
        worker.write_configuration()
        size = leaves * LEAF_ROWS * 160 + (1 << 30)
        with two_disks(worker, size, size):
            memory = Memory(worker, MEMORY)
            try:
                return run(console, Bench(cluster, memory, leaves), minutes, picture)
            finally:
                cluster.coordinator.disconnect()
                worker.stop("immediate")
                memory.close()


def run(console: Console, bench: Bench, minutes: float, picture: Path | None) -> list[Result]:
    set_parameter(bench.node, "strata.tier_interval", "1h")
    console.print("loading ...")
    bench.load()
    found = {}
    for place, wanted in (
        ("fast", lambda leaf: "hot"),
        ("slow", lambda leaf: "cold"),
        ("hand", lambda leaf: "hot" if leaf >= bench.first_hot else "cold"),
    ):
        console.print(PLACES[place], "...")
        bench.place(wanted)
        found[place] = bench.measure()
    console.print(PLACES["heat"], "...")
    bench.place(lambda leaf: "cold")
    bench.worker.query("SELECT strata_tiering.forget_heat(leaf) FROM strata_tiering.leaf_heat()")
    sizes = bench.set_capacity()
    bench.node.query(
        "SELECT strata.set_tier_policy('t', mode => 'heat', residence => '10 minutes')"
    )
    set_parameter(bench.node, "strata.tier_interval", f"{INTERVAL}s")
    moments = bench.warm_up(minutes)
    set_parameter(bench.node, "strata.tier_interval", "1h")
    found["heat"] = bench.measure()
    print_matrix(console, found)
    if picture is not None:
        plot(moments, picture, bench.leaves - bench.first_hot)
    return [*judge(found, bench.leaves, moments), simulate(bench, found, moments, sizes)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leaves", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    console = Console()
    try:
        results = measure_tiering(console, options.leaves, options.minutes, options.plot)
    except DisksUnavailable as problem:
        console.print(f"skipped: {problem}")
        return
    print_table(console, results)


if __name__ == "__main__":
    main()
