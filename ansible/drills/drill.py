"""One drill: clients write, something breaks and is repaired, and the clients' ledger is judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from drills.faults import Faults
from drills.ledger import Outcome

STEADY = 5  # seconds of writing before the fault, and after all is redundant again
REDUNDANCY_TIMEOUT = 180


@dataclass
class Drill:
    name: str
    act: Callable[[Faults], None]  # breaks something and returns when it is repaired
    limit: float  # the largest gap allowed, in seconds
    errors_allowed: bool = True
    prepare: Callable[[Faults], None] | None = None  # before clients write


@dataclass
class Row:
    """One run of a drill."""

    drill: str
    outcome: Outcome
    redundant_after: float  # seconds from the fault, -1 never
    limit: float
    faults: list[str] = field(default_factory=list)  # why it failed; empty when it did not
    at: str = field(default_factory=lambda: time.strftime("%Y-%m-%d %H:%M"))
    load: float = field(default_factory=lambda: round(os.getloadavg()[0], 1))

    @property
    def passed(self) -> bool:
        return not self.faults


class Client:
    """ledger.py, running where clients are."""

    def __init__(self, faults: Faults, conninfo: str, environment: dict[str, str] | None = None):
        program = str(Path(__file__).with_name("ledger.py"))
        self.process = subprocess.Popen(
            faults.client_command([sys.executable, program, conninfo]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.read()

    def read(self) -> dict:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the client ended with status {self.process.wait()}")
        return json.loads(line)

    def finish(self) -> Outcome:
        assert self.process.stdin is not None
        self.process.stdin.close()
        outcome = Outcome(**self.read())
        self.process.wait()
        return outcome


def wait_until_redundant(faults: Faults, begin: float) -> float:
    """Seconds from `begin` until every group and etcd are whole, -1 for never."""
    end = time.monotonic() + REDUNDANCY_TIMEOUT
    while time.monotonic() < end:
        if faults.is_redundant():
            return round(time.monotonic() - begin, 1)
        time.sleep(0.5)
    return -1


def judge(drill: Drill, outcome: Outcome, redundant_after: float) -> list[str]:
    """Why the run failed."""
    found = []
    for what in ("lost", "doubled", "broken", "in_doubt"):
        if count := getattr(outcome, what):
            found.append(f"{count} {what}")
    if outcome.gap > drill.limit:
        found.append(f"a gap of {outcome.gap} s, more than {drill.limit:g} s")
    if outcome.errors and not drill.errors_allowed:
        found.append(f"errors: {outcome.errors}")
    if redundant_after < 0:
        found.append("not redundant again")
    return found


def run_drill(
    drill: Drill, faults: Faults, conninfo: str, environment: dict[str, str] | None = None
) -> Row:
    """Whatever happens, all is repaired at the end, and as it was before."""
    if wait_until_redundant(faults, time.monotonic()) < 0:
        return Row(drill.name, Outcome(), -1, drill.limit, ["was not redundant at the beginning"])
    if drill.prepare is not None:
        drill.prepare(faults)
        wait_until_redundant(faults, time.monotonic())
    client = Client(faults, conninfo, environment)
    try:
        time.sleep(STEADY)
        begin = time.monotonic()
        drill.act(faults)
        redundant_after = wait_until_redundant(faults, begin)
        time.sleep(STEADY)
        outcome = client.finish()
    except BaseException:
        client.process.kill()
        raise
    finally:
        faults.repair()
        if drill.prepare is not None:
            faults.undo_preparations()
    return Row(
        drill.name, outcome, redundant_after, drill.limit, judge(drill, outcome, redundant_after)
    )
