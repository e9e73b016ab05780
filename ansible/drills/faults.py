"""What a drill can do to a cluster, and how it is done in the lab.

`Faults` is all that drills know of the hosts: another environment (virtual machines, a cloud) is
another class of this shape.
"""

from __future__ import annotations

import shlex
import threading
from typing import Any, Protocol


class Faults(Protocol):
    """Groups are Ansible's: coordinator, worker_1, ...  Hosts are names of the inventory."""

    def client_command(self, arguments: list[str]) -> list[str]:
        """A command line that runs a program where clients are."""

    def leader(self, group: str) -> str:
        """The host of the group whose server takes writes."""

    def is_redundant(self, group: str) -> bool:
        """Has the group a primary, and all its other hosts as standbys, one of them synchronous?"""

    def switchover(self, group: str) -> None:
        """Make another host of the group the primary, as an administrator would."""

    def kill_postgres(self, host: str) -> None:
        """kill -9 of the server and all its processes."""

    def kill_patroni(self, host: str) -> None:
        """kill -9 of Patroni and of the server."""

    def power_loss(self, host: str) -> None: ...

    def repair(self, host: str) -> None:
        """Whatever was done to the host: it is on, and reachable."""


class NoLeaderError(Exception):
    """No host of the group takes writes."""


def psql(sql: str, database: str = "postgres") -> str:
    return f"runuser -u postgres -- psql -XAt -d {database} -c {shlex.quote(sql)}"


class LabFaults:
    """The lab of tests/provisioning, with a cluster that ansible/site.yml has made there."""

    def __init__(self, lab: Any, groups: dict[str, list[str]], database: str):
        self.lab = lab
        self.groups = groups
        self.database = database

    def ask(self, host: str, sql: str) -> str:
        """What the host's own server says; empty when there is none."""
        if not self.lab.host(host).is_on():
            return ""
        return self.lab.host(host).run(psql(sql), check=False).stdout.strip()

    def client_command(self, arguments: list[str]) -> list[str]:
        return self.lab.control_command(arguments)

    def leader(self, group: str) -> str:
        for host in self.groups[group]:
            if self.ask(host, "SELECT NOT pg_is_in_recovery()") == "t":
                return host
        raise NoLeaderError(f"no host of {group} takes writes")

    def is_redundant(self, group: str) -> bool:
        standbys = len(self.groups[group]) - 1
        try:
            leader = self.leader(group)
        except NoLeaderError:
            return False
        answer = self.ask(
            leader,
            "SELECT count(*) FILTER (WHERE state = 'streaming'),"
            " count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) FROM pg_stat_replication"
            " WHERE application_name <> 'pg_basebackup'",
        )
        streaming, synchronous = (int(word) for word in (answer or "0|0").split("|"))
        return streaming >= standbys and synchronous >= min(standbys, 1)

    def switchover(self, group: str) -> None:
        if group == "coordinator":
            self.patronictl_switchover(group)
        else:
            self.held_switchover(group)

    def patronictl_switchover(self, group: str) -> None:
        host = self.lab.host(self.leader(group))
        config = "$(ls /etc/patroni/*.y*ml | head -n 1)"
        host.run(f"patronictl -c {config} switchover --force")

    def held_switchover(self, group: str) -> None:
        """One session of psql on the coordinator holds the worker until the switchover is over."""
        name = group.replace("_", "")
        coordinator = self.lab.host(self.leader("coordinator"))
        row = self.ask_in_database(
            coordinator.name,
            "SELECT name FROM strata.workers"
            f" WHERE regexp_replace(name, '\\W|_', '', 'g') = '{name}'",
        )
        worker = row or group
        held, done = "/tmp/drill.held", "/tmp/drill.done"
        wait = f"touch {held}; for i in $(seq 600); do test -e {done} && break; sleep 0.1; done"
        commands = [
            f"SELECT strata.hold_worker('{worker}', '60 s', '15 s')",
            f"\\! {wait}",
            f"SELECT strata.release_worker('{worker}')",
        ]
        session = f"rm -f {held} {done}; runuser -u postgres -- psql -X -v ON_ERROR_STOP=1"
        session += f" -d {self.database} " + " ".join(f"-c {shlex.quote(c)}" for c in commands)
        failures: list[BaseException] = []

        def hold() -> None:
            try:
                coordinator.run(session)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=hold)
        thread.start()
        try:
            coordinator.run(
                f"for i in $(seq 300); do test -e {held} && exit; sleep 0.1; done; false"
            )
            self.patronictl_switchover(group)
        finally:
            coordinator.run(f"touch {done}")
            thread.join()
        if failures:
            raise failures[0]

    def ask_in_database(self, host: str, sql: str) -> str:
        return self.lab.host(host).run(psql(sql, self.database)).stdout.strip()

    def kill_postgres(self, host: str) -> None:
        self.lab.host(host).run("pkill -KILL -x postgres")

    def kill_patroni(self, host: str) -> None:
        self.lab.host(host).run("pkill -KILL -f /patroni; pkill -KILL -x postgres; true")

    def power_loss(self, host: str) -> None:
        self.lab.host(host).power_loss()

    def repair(self, host: str) -> None:
        self.lab.host(host).link_up()
        if not self.lab.host(host).is_on():
            self.lab.host(host).boot()
