"""The columnar store on a slow disk, with cold caches: two of 34 columns, against heap.

The slow disk is a loop device with a throttle of the blkio controller (cgroup v1); the tables are
in a tablespace on it.  Before each run the server is restarted, with its caches, and the kernel's
cache of the tablespace's files is dropped.  Where no such device can be made (it takes root,
loop devices and that controller) the results say so.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.columnar import columnar_server, show_seconds
from benchmarks.measure import Result, execute_seconds, interleave, seconds_of
from tests.cluster import Cluster, Node
from tests.installation import give_to_server

ROUNDS = 3
DEVICE_BYTES = 4 << 30
LEAST_HEAP_BYTES = 1 << 30
ROWS = 4_200_000

THROTTLES = Path("/sys/fs/cgroup/blkio")
BYTES_PER_SECOND = 146_800_640
READ_AHEAD_KB = 4096

# A disk that is slow to seek, and one that is only slow.
PROFILES = {"140 MB/s, 110 IOPS": 110, "140 MB/s": 0}

QUERY = "SELECT sum(-price_2), max(count_7 % 1000) FROM wide_{}"

PROBE_BYTES = 128 << 20


class CannotMeasure(Exception):
    """There can be no slow disk on this machine; the message says why."""


# ---- the device ----------------------------------------------------------------------------------


class SlowDisk:
    """A mounted file system on a loop device whose reads can be throttled."""

    def __init__(self, device: str, directory: Path):
        self.device = device
        self.directory = directory
        self.queue = Path("/sys/block") / Path(device).name / "queue"
        self.number = (self.queue.parent / "dev").read_text().strip()

    def throttle(self, iops: int) -> None:
        """Limit reads; 0 is no limit."""
        self._limit("read_bps_device", BYTES_PER_SECOND)
        self._limit("read_iops_device", iops)
        (self.queue / "read_ahead_kb").write_text(str(READ_AHEAD_KB))

    def unthrottle(self) -> None:
        self._limit("read_bps_device", 0)
        self._limit("read_iops_device", 0)

    def _limit(self, kind: str, value: int) -> None:
        (THROTTLES / f"blkio.throttle.{kind}").write_text(f"{self.number} {value}")

    def check(self) -> None:
        """Read a file from it: CannotMeasure unless that is as slow as it is meant to be."""
        file = self.directory / "probe"
        file.write_bytes(os.urandom(PROBE_BYTES))
        drop_cache(self.directory)
        self.throttle(0)
        rate = PROBE_BYTES / seconds_of(file.read_bytes)
        self.unthrottle()
        file.unlink()
        if rate > 1.5 * BYTES_PER_SECOND:
            raise CannotMeasure(f"the throttled device reads {rate / 1e6:.0f} MB/s")


def run_tool(*arguments: str | Path) -> str:
    """Run a program of the system; CannotMeasure with its message if it fails."""
    try:
        result = subprocess.run(arguments, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise CannotMeasure(f"there is no {arguments[0]}") from None
    if result.returncode != 0:
        raise CannotMeasure(f"{arguments[0]}: {result.stderr.strip()}")
    return result.stdout.strip()


@contextmanager
def slow_disk(root: Path) -> Iterator[SlowDisk]:
    """A file system on a device that can be throttled, removed afterwards."""
    if os.geteuid() != 0:
        raise CannotMeasure("a throttled block device takes root")
    if not (THROTTLES / "blkio.throttle.read_bps_device").exists():
        raise CannotMeasure("no blkio controller of cgroup v1")
    image = root / "slow.img"
    directory = root / "slow"
    directory.mkdir()
    with image.open("wb") as file:
        file.truncate(DEVICE_BYTES)
    try:
        device = run_tool("losetup", "--find", "--show", "--direct-io=on", image)
        try:
            run_tool("mkfs.ext4", "-q", "-E", "nodiscard", device)
            run_tool("mount", device, directory)
            try:
                disk = SlowDisk(device, directory)
                disk.check()
                yield disk
            finally:
                SlowDisk(device, directory).unthrottle()
                run_tool("umount", directory)
        finally:
            run_tool("losetup", "--detach", device)
    finally:
        image.unlink()


def drop_cache(directory: Path) -> None:
    """Make the kernel forget the contents of all files below the directory."""
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


# ---- the tables ----------------------------------------------------------------------------------


def wide_columns() -> dict[str, str]:
    """34 columns and what row g has in them: numbers of many sizes, times, few and many texts."""
    columns = {
        "id bigint": "g",
        "at timestamptz": "'2026-01-01'::timestamptz + g * '1 s'::interval",
    }
    for number in range(1, 13):
        columns[f"count_{number} integer"] = f"hashint8(g + {number}) & {(1 << (number * 2)) - 1}"
    for number in range(1, 7):
        columns[f"price_{number} numeric(12, 2)"] = f"(hashint8(g - {number}) & 16777215) / 100.0"
    for number in range(1, 5):
        columns[f"measure_{number} float8"] = f"(hashint8(g * {number}) & 1048575) / 1024.0"
    for number in range(1, 6):
        columns[f"kind_{number} text"] = f"'kind ' || (hashint8(g + {number} * 7) & 63)"
    for number in range(1, 6):
        columns[f"note_{number} text"] = (
            f"'note {number} of ' || (hashint8(g * {number}) & 1048575)"
        )
    return columns


def make_tables(node: Node) -> None:
    """wide_heap and wide_columnar in the tablespace slow."""
    columns = wide_columns()
    assert len(columns) == 34
    for name in ("heap", "columnar"):
        node.execute(
            f"CREATE TABLE wide_{name} ({', '.join(columns)}) USING {name} TABLESPACE slow"
        )
        node.execute(
            f"INSERT INTO wide_{name} SELECT {', '.join(columns.values())}"
            f" FROM generate_series(1, {ROWS}) AS g"
        )
        node.execute(f"VACUUM ANALYZE wide_{name}")
    heap_bytes = node.value("SELECT pg_table_size('wide_heap')")
    if heap_bytes < LEAST_HEAP_BYTES:
        raise RuntimeError(f"wide_heap has only {heap_bytes} bytes")


def cold_seconds(node: Node, disk: SlowDisk, name: str, prefetch: bool = True) -> float:
    """The time of the query on a server that has just been started, with nothing cached."""
    node.stop()
    drop_cache(disk.directory)
    node.start()
    with node.connect() as connection:
        if not prefetch:
            connection.execute("SET effective_io_concurrency = 0")
        # the catalogs lie elsewhere; they are not what is measured
        connection.execute(f"EXPLAIN {QUERY.format(name)}")
        return execute_seconds(connection, QUERY.format(name))


# ---- results -------------------------------------------------------------------------------------


def measure_cold(cluster: Cluster) -> list[Result]:
    """Restarts are of a server of its own."""
    title = "cold, 2 of 34 columns on a throttled disk, against heap"
    try:
        with slow_disk(cluster.root) as disk, columnar_server(cluster.root / "cold") as node:
            space = disk.directory / "tablespace"
            space.mkdir()
            give_to_server(disk.directory, 0o700)
            give_to_server(space, 0o700)
            node.execute(f"CREATE TABLESPACE slow LOCATION '{space}'")
            make_tables(node)
            results = []
            for profile, iops in PROFILES.items():
                results += measure_profile(node, disk, profile, iops)
            return results
    except CannotMeasure as reason:
        return [Result(title, None, "x", 0.2, "less", str(reason))]


def measure_profile(node: Node, disk: SlowDisk, profile: str, iops: int) -> list[Result]:
    disk.throttle(iops)
    seconds = interleave(
        {
            "heap": lambda: cold_seconds(node, disk, "heap"),
            "columnar": lambda: cold_seconds(node, disk, "columnar"),
            "no prefetch": lambda: cold_seconds(node, disk, "columnar", prefetch=False),
        },
        ROUNDS,
    )
    disk.unthrottle()
    heap, columnar, plain = (seconds[name] for name in ("heap", "columnar", "no prefetch"))
    size = node.value("SELECT pg_table_size('wide_heap')")
    return [
        Result(
            f"cold, 2 of 34 columns, {profile}, against heap",
            columnar / heap,
            "x",
            0.2,
            "less",
            f"{show_seconds(columnar)}, heap ({size / 1e6:.0f} MB) {show_seconds(heap)}",
        ),
        Result(
            "... with prefetching, against without",
            columnar / plain,
            "x",
            detail=f"without {show_seconds(plain)}",
        ),
    ]
