"""Where the files of tests' servers are: in memory if it has room, for creating and deleting files costs
a tenth of all CPU on a disk's file system; else where TMPDIR says.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
ENOUGH = 8 * 2**30  # three processes of tests were seen to use 2 GB


def use_memory() -> None:
    """Make it the directory of temporary files, for this process and those that it starts."""
    if "TMPDIR" not in os.environ and has_room():
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # chosen anew


def has_room() -> bool:
    try:
        noexec = os.statvfs(MEMORY).f_flag & os.ST_NOEXEC  # servers load libraries from there
        return not noexec and shutil.disk_usage(MEMORY).free >= ENOUGH <= available_memory()
    except OSError:
        return False


def available_memory() -> int:
    """Bytes, by the kernel's estimate."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
