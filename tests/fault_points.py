"""Stop, fail or kill a coordinator with assertions at a place of its code, and freeze servers.

The places are in coordinator/src and extensions/columnar/src (FAULT_POINT), the actions in fault_point.c.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import Node
from tests.installation import give_to_server
from tests.waiting import wait_until, wait_until_ended

ARMED = "strata_fault_point"
REACHED = "strata_fault_point.reached"


def arm(node: Node, *places: tuple[str, str]) -> None:
    """Let the first who comes to each of these places act: kill, crash, error or wait."""
    path = node.data / ARMED
    new = path.with_suffix(".new")
    new.write_text("".join(f"{name} {action}\n" for name, action in places))
    give_to_server(new, 0o600)
    new.replace(path)


def disarm(node: Node) -> None:
    for name in (ARMED, REACHED):
        (node.data / name).unlink(missing_ok=True)


def is_armed(node: Node) -> bool:
    return (node.data / ARMED).exists()


@contextmanager
def dying(node: Node, *places: tuple[str, str]) -> Iterator[None]:
    """One of the places, which are armed, kills the server; it is back after the block.

    A session from before tells that the postmaster has noticed: a client may know of a killed process
    earlier, and a session that begins until then is ended at once.
    """
    postmaster = Path(f"/proc/{node.pid()}")
    with node.connect() as witness:
        arm(node, *places)
        try:
            yield
            wait_until_ended(witness)
        finally:
            disarm(node)
    if places[-1][1] == "crash":
        for _ in wait_until(f"{node.name} is gone"):
            if not postmaster.exists():
                break
    node.start()
    node.wait_until_back()


def wait_for_arrival(node: Node) -> None:
    """Wait until somebody waits at a place that is armed with `wait`."""
    for _ in wait_until("the fault point is reached"):
        if (node.data / REACHED).exists():
            return


def release(node: Node) -> None:
    (node.data / REACHED).unlink(missing_ok=True)


def server_processes(node: Node) -> list[int]:
    """The postmaster and its children."""
    postmaster = node.pid()
    found = [postmaster]
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == postmaster:
            found.append(int(path.parent.name))
    return found


@contextmanager
def frozen(node: Node) -> Iterator[None]:
    """The server neither answers nor ends, as behind a dead network."""
    pids = server_processes(node)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(pids):
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue
