"""Small file systems in memory, on which servers' directories are, so that tests can fill them.

Mounting needs root, or sudo that asks for no password.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.cluster import Node
from tests.installation import make_directory, server_account

MEGABYTE = 2**20


def run_as_root(*command: str | Path) -> None:
    prefix = [] if os.geteuid() == 0 else ["sudo", "-n"]
    subprocess.run([*prefix, *command], check=True, capture_output=True)


@cache
def why_no_small_disks() -> str:
    """Why small_disk() cannot work here; nothing if it can."""
    probe = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        run_as_root(*probe)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"file systems cannot be mounted here: {getattr(error, 'stderr', error)}"
    return ""


# Of tests with small_disk(): asked before they begin.
mounts_disks = pytest.mark.skipif(bool(why_no_small_disks()), reason=why_no_small_disks())


class Disk:
    """A mounted file system; fill() leaves so many bytes, clear() gives back what fill() took."""

    def __init__(self, place: Path):
        self.place = place

    def free(self) -> int:
        state = os.statvfs(self.place)
        return state.f_bavail * state.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Whoever deletes files meanwhile gets no room by that."""
        with (self.place / "filling").open("ab") as file:
            while (rest := self.free() - leave) > 0:
                with contextlib.suppress(OSError):  # somebody else has taken the last page
                    os.posix_fallocate(file.fileno(), file.tell(), rest)
                file.seek(0, os.SEEK_END)

    def clear(self) -> None:
        (self.place / "filling").unlink(missing_ok=True)


def move_directory(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", source, target], check=True)
    shutil.rmtree(source)


@contextlib.contextmanager
def small_disk(node: Node, megabytes: int, *directories: Path) -> Iterator[Disk]:
    """Directories of a server, all that it has if none is named, are on a file system of that size.

    The server is started again with that, and without it afterwards, also if it has died meanwhile.
    """
    chosen = directories or (node.data, *(t for t in node.tablespaces().values() if t.exists()))
    disk = Disk(node.root / f"disk-{node.name}")
    make_directory(disk.place)
    node.stop()
    options = (
        f"size={megabytes}m,mode=0700,uid={server_account().pw_uid},gid={server_account().pw_gid}"
    )
    run_as_root("mount", "-t", "tmpfs", "-o", options, "none", disk.place)
    try:
        for directory in chosen:
            move_directory(directory, disk.place / directory.name)
            directory.symlink_to(disk.place / directory.name)
        node.start()
        yield disk
    finally:
        disk.clear()
        node.stop("immediate")
        for directory in chosen:
            if directory.is_symlink():
                directory.unlink()
                move_directory(disk.place / directory.name, directory)
        run_as_root("umount", "-l", disk.place)
        disk.place.rmdir()
        node.start()
        node.wait_until_back()
