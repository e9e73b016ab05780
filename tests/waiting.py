"""Waiting for something to happen, and how long that may take.

Bounds are told for a machine with nothing else to do.  CI's machine is shared, and has been seen
at a third of its speed: there (CI=true) every bound is wider, and a test still fails when what it
waits for never comes or waits for something that itself takes a minute.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from tests.cluster import Cluster

SLOWNESS = 5 if os.environ.get("CI") else 1


def patience(seconds: float) -> float:
    """How long may take here what takes at most `seconds` on a quiet machine."""
    return seconds * SLOWNESS


def wait_until(what: str, timeout: float = 30, interval: float = 0.05) -> Iterator[None]:
    """`for _ in wait_until("the row is there"): if ...: break`; TimeoutError when never."""
    end = time.monotonic() + patience(timeout)
    while time.monotonic() < end:
        yield
        time.sleep(interval)
    raise TimeoutError(f"waited {patience(timeout):g} s in vain: {what}")


def wait_until_ended(session: psycopg.Connection) -> None:
    """Until its server has ended it."""
    for _ in wait_until("the session ends"):
        try:
            session.execute("SELECT 1")
        except psycopg.OperationalError:
            return


def check_nothing_prepared(cluster: Cluster) -> None:
    """No session left a prepared transaction: nothing is in doubt, and what there is ends in a moment.

    The service "periods" analyses tables that have changed, in two phases, whenever it likes.
    """
    doubt = cluster.coordinator.query("SELECT * FROM strata.in_doubt")
    assert not doubt, f"in doubt: {doubt}"
    for worker in cluster.workers:
        found = set(worker.query("SELECT gid FROM pg_prepared_xacts"))
        for _ in wait_until(f"{found} end on {worker.name}", timeout=10):
            if not found & set(worker.query("SELECT gid FROM pg_prepared_xacts")):
                break
