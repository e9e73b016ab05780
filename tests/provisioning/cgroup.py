"""Control groups (version 2): how the lab finds, counts and kills exactly its own processes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tests.provisioning.commands import LabError, wait_for


def hierarchy() -> Path:
    """Where this machine has the groups of version 2: alone, or beside those of version 1."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, directory, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(directory)
    raise LabError("this machine has no cgroup2 file system mounted, which the lab needs")


def processes(group: Path) -> list[int]:
    """All processes of a group and of the groups below it."""
    found = []
    for directory, _, _ in os.walk(group):  # which passes over a group that has just gone
        with contextlib.suppress(OSError):
            found += map(int, Path(directory, "cgroup.procs").read_text().split())
    return found


def is_populated(group: Path) -> bool:
    try:
        return "populated 1" in (group / "cgroup.events").read_text()
    except OSError:
        return False


def kill(group: Path) -> None:
    """Kill every process of the group at once, and remove it with all groups below."""
    if not group.exists():
        return
    (group / "cgroup.kill").write_text("1")
    wait_for(f"the processes of {group} end", lambda: not is_populated(group), 20)
    remove(group)


def remove(group: Path) -> None:
    """Remove an empty group with the groups below it, if it is there."""
    for directory, _, _ in os.walk(group, topdown=False):
        Path(directory).rmdir()
