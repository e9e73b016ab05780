"""The drills: what breaks, and how long clients may wait for an acknowledgement."""

from __future__ import annotations

import json
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
REPAIR_AFTER = 40  # a host that lost power comes back: later than a failover without it takes


@dataclass
class Drill:
    name: str
    break_it: Callable[[Faults], str | None]  # returns the host to be repaired
    group: str  # whose redundancy comes back
    limit: float  # the largest gap allowed, in seconds
    errors_allowed: bool = True


@dataclass
class Row:
    """One run of a drill."""

    drill: str
    outcome: Outcome
    redundant_after: float  # seconds from the fault, -1 never
    limit: float
    faults: list[str] = field(default_factory=list)  # why it failed; empty when it did not

    @property
    def passed(self) -> bool:
        return not self.faults


def break_leader(action: str, group: str, repair: bool = True) -> Callable[[Faults], str | None]:
    def act(faults: Faults) -> str | None:
        host = faults.leader(group)
        getattr(faults, action)(host)
        return host if repair else None

    return act


def switch(group: str) -> Callable[[Faults], str | None]:
    def act(faults: Faults) -> None:
        faults.switchover(group)

    return act


# Limits: the table of measured failovers of the operations guide, plus 5 s.
SHORT = [
    Drill("switchover of a worker", switch("worker_1"), "worker_1", 15, errors_allowed=False),
    Drill("switchover of the coordinator", switch("coordinator"), "coordinator", 7),
    Drill(
        "kill -9 of a worker's postgres",
        break_leader("kill_postgres", "worker_1", repair=False),
        "worker_1",
        10,
    ),
    Drill(
        "kill -9 of the coordinator's postgres",
        break_leader("kill_postgres", "coordinator", repair=False),
        "coordinator",
        10,
    ),
    Drill(
        "power loss of a worker's primary", break_leader("power_loss", "worker_1"), "worker_1", 30
    ),
    Drill(
        "power loss of the coordinator's primary",
        break_leader("power_loss", "coordinator"),
        "coordinator",
        30,
    ),
]
LONG = [
    Drill(
        "kill -9 of a worker's Patroni and postgres",
        break_leader("kill_patroni", "worker_1", repair=False),
        "worker_1",
        30,
    ),
    Drill(
        "kill -9 of the coordinator's Patroni and postgres",
        break_leader("kill_patroni", "coordinator", repair=False),
        "coordinator",
        30,
    ),
]


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


def wait_until_redundant(faults: Faults, group: str, begin: float, host: str | None) -> float:
    """Repairs the host when clients have had time to go on without it; seconds, -1 for never."""
    repaired = host is None
    while time.monotonic() < begin + REDUNDANCY_TIMEOUT:
        if not repaired and time.monotonic() > begin + REPAIR_AFTER:
            faults.repair(host or "")
            repaired = True
        if repaired and faults.is_redundant(group):
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
    if wait_until_redundant(faults, drill.group, time.monotonic(), None) < 0:
        return Row(drill.name, Outcome(), -1, drill.limit, ["was not redundant at the beginning"])
    client = Client(faults, conninfo, environment)
    try:
        time.sleep(STEADY)
        begin = time.monotonic()
        host = drill.break_it(faults)
        redundant_after = wait_until_redundant(faults, drill.group, begin, host)
        time.sleep(STEADY)
        outcome = client.finish()
    except BaseException:
        client.process.kill()
        raise
    return Row(
        drill.name,
        outcome,
        redundant_after,
        drill.limit,
        judge(drill, outcome, redundant_after),
    )
