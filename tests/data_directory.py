"""Data directories: one initdb for each process, and copies of what it made.

Nodes tell each other apart by their system identifiers, so each copy gets one of its own: it is the
first field of pg_control, whose CRC-32C stands behind its last one, and pg_resetwal makes WAL that
bears it.  A copy takes a sixth of the CPU of an initdb.
"""

from __future__ import annotations

import atexit
import secrets
import shutil
import struct
import tempfile
import threading
from functools import cache
from pathlib import Path

from tests.installation import SUPERUSER, ClusterError, find_binaries, make_directory, run_as_server

# Where the CRC of pg_control may be: PostgreSQL keeps the structure below 512 bytes, one disk sector.
CONTROL_SIZE = 512

template_lock = threading.Lock()


def make_data_directory(directory: Path) -> None:
    """As initdb makes it, with the superuser and the encoding of all our servers."""
    with template_lock:
        template = make_template(find_binaries())
    run_or_raise(["cp", "-a", template, directory])
    control = directory / "global" / "pg_control"
    # in place: the file stays its owner's
    with control.open("r+b") as file:
        new = with_identifier(file.read(CONTROL_SIZE), secrets.randbits(63))
        file.seek(0)
        file.write(new)
    run_or_raise([find_binaries() / "pg_resetwal", "--force", directory])


@cache
def make_template(binaries: Path) -> Path:
    parent = Path(tempfile.mkdtemp(prefix="strata-initdb-"))
    atexit.register(shutil.rmtree, parent, ignore_errors=True)
    make_directory(parent)
    arguments = [binaries / "initdb", "-D", parent / "data", "-U", SUPERUSER]
    arguments += ["--no-sync", "--no-instructions", "--locale=C.UTF-8", "--encoding=UTF8"]
    arguments += ["--auth-local=peer", "--auth-host=scram-sha-256", "--data-checksums"]
    run_or_raise(arguments)
    return parent / "data"


def run_or_raise(arguments: list[str | Path]) -> None:
    result = run_as_server(arguments, capture_output=True)
    if result.returncode != 0:
        raise ClusterError(f"{Path(arguments[0]).name} failed: {result.stderr}")


def with_identifier(control: bytes, identifier: int) -> bytes:
    """pg_control up to its CRC, with another system identifier."""
    end = end_of_control(control)
    new = struct.pack("=Q", identifier) + control[8:end]
    return new + struct.pack("=I", crc32c(new))


def end_of_control(control: bytes) -> int:
    """Where the CRC stands, which differs between majors: it is that of all bytes before it."""
    for end in range(8, len(control) - 3, 4):
        if struct.unpack_from("=I", control, end)[0] == crc32c(control[:end]):
            return end
    raise ClusterError("pg_control has no CRC")


@cache
def crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


def crc32c(data: bytes) -> int:
    """Castagnoli's CRC, as PostgreSQL computes it."""
    table, crc = crc_table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
