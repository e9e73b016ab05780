"""Two block devices of different speed on one machine, and a server that cannot keep them in memory.

Loop devices over files, past the cache of the file system below them; the slow one is throttled by
the root's blkio cgroup (version 1), and the server's processes are in a memory cgroup, whose limit is
for the page cache, too.  Only root can do this, and not everywhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import Node
from tests.installation import give_to_server

BLKIO = Path("/sys/fs/cgroup/blkio")
MEMORY = Path("/sys/fs/cgroup/memory")


@dataclass(frozen=True)
class Speed:
    """Limits of a disk."""

    bytes_per_second: int
    operations_per_second: int


# a 7200 rpm disk: 140 MiB/s in sequence, 110 seeks
SLOW = Speed(140 << 20, 110)


class DisksUnavailable(Exception):
    """This machine cannot do it, and why."""


def check_machine() -> None:
    if os.geteuid() != 0:
        raise DisksUnavailable("only root can make loop devices")
    for path in (BLKIO / "blkio.throttle.read_bps_device", MEMORY / "memory.limit_in_bytes"):
        if not path.exists():
            raise DisksUnavailable(f"there is no {path} (cgroups of version 1)")
    for program in ("losetup", "mkfs.ext4"):
        if shutil.which(program) is None:
            raise DisksUnavailable(f"there is no program {program}")


def run(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def throttle(device: str, speed: Speed | None) -> None:
    """Limit the device; None takes the limits away."""
    number = Path(device).stat().st_rdev
    name = f"{os.major(number)}:{os.minor(number)}"
    for operation in ("read", "write"):
        bps, iops = (0, 0)
        if speed is not None:
            bps, iops = speed.bytes_per_second, speed.operations_per_second
        (BLKIO / f"blkio.throttle.{operation}_bps_device").write_text(f"{name} {bps}")
        (BLKIO / f"blkio.throttle.{operation}_iops_device").write_text(f"{name} {iops}")


@contextmanager
def disk(image: Path, size: int, place: Path, speed: Speed | None) -> Iterator[None]:
    """A file system of its own at `place`, whose files stay."""
    kept = place.with_name(place.name + ".kept")
    with image.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    with ExitStack() as stack:
        stack.callback(image.unlink)
        device = run("losetup", "--direct-io=on", "--find", "--show", image)
        stack.callback(run, "losetup", "--detach", device)
        queue = Path("/sys/block") / Path(device).name / "queue"
        (queue / "rotational").write_text("0" if speed is None else "1")
        (queue / "read_ahead_kb").write_text("128" if speed is None else "4096")
        run("mkfs.ext4", "-q", "-F", device)
        shutil.move(place, kept)
        place.mkdir()
        run("mount", "-o", "noatime", device, place)
        stack.callback(run, "umount", place)
        shutil.rmtree(place / "lost+found")
        run("cp", "-a", f"{kept}/.", place)
        give_to_server(place, 0o700)
        shutil.rmtree(kept)
        throttle(device, speed)
        stack.callback(throttle, device, None)
        yield


@contextmanager
def two_disks(node: Node, fast_bytes: int, slow_bytes: int) -> Iterator[None]:
    """The node's tablespaces hot and cold on a fast and a slow disk; it is stopped at the end."""
    check_machine()
    places = node.tablespaces()
    node.stop()
    with (
        disk(node.root / "fast.img", fast_bytes, places["hot"], None),
        disk(node.root / "slow.img", slow_bytes, places["cold"], SLOW),
    ):
        node.start()
        try:
            yield
        finally:
            node.stop("immediate")


class Memory:
    """A limit for a server's memory and page cache."""

    def __init__(self, node: Node, limit: int):
        self.group = MEMORY / f"strata-benchmark-{os.getpid()}"
        self.group.mkdir()
        (self.group / "memory.limit_in_bytes").write_text(str(limit))
        self.add(node)

    def add(self, node: Node) -> None:
        """The processes that the server has, and those that these will start."""
        postmaster = node.pid()
        assert postmaster is not None
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for pid in (str(postmaster), *children):
            (self.group / "cgroup.procs").write_text(pid)

    def drop_cache(self) -> None:
        (self.group / "memory.force_empty").write_text("0")

    def close(self) -> None:
        """After the server has stopped."""
        self.group.rmdir()
