"""Faults in the lab of tests/provisioning, whose cluster the playbooks have made.

A power loss there kills the processes of a host, and the kernel, which lives on, would close their
connections politely; so the cable is pulled first.  Hosts share the machine's clock, which cannot be
stepped for one of them: a preloaded library (faketime) shows Patroni and PostgreSQL another time.
etcd takes no notice of it, being linked statically; it counts with the monotonic clock anyway.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from drills.faults import NoLeaderError

if TYPE_CHECKING:
    from tests.provisioning.lab import Lab
    from tests.provisioning.site import Site

PKI = "/etc/strata/pki"
ETCDCTL = (
    f"etcdctl --command-timeout 2s --cacert {PKI}/etcd-users.crt"
    f" --cert {PKI}/etcd-root.crt --key {PKI}/etcd-root.key"
)
PATRONICTL = "patronictl -c /etc/patroni/config.yml"
TIMEOUT = 60
PREPARED = "SELECT count(*) FROM pg_prepared_xacts WHERE gid LIKE 'strata\\_%'"
STANDBYS = (
    "SELECT count(*) FILTER (WHERE state = 'streaming'),"
    " count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) FROM pg_stat_replication"
    " WHERE application_name <> 'pg_basebackup'"
)
FILL = "filled-by-a-drill"
CLOCK = "/run/strata-drill-clock"
OWN_CLOCK = f"""[Service]
Environment=LD_PRELOAD=/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1
Environment=FAKETIME_TIMESTAMP_FILE={CLOCK} FAKETIME_NO_CACHE=1 DONT_FAKE_MONOTONIC=1
"""
OWN_CLOCK_FILE = "/etc/systemd/system/patroni.service.d/drill-clock.conf"
SHARE_CLOCK = f"""
test -e {OWN_CLOCK_FILE} || exit 0
rm {OWN_CLOCK_FILE} && systemctl daemon-reload && systemctl restart patroni
"""
# on the disk of the cold tablespace, in which drills have nothing; Patroni may remove it
OWN_WAL = "/srv/cold/drill/wal"
MOVE_WAL_AWAY = f"""
set -e
cd {{data}}
test ! -L pg_wal || exit 0
systemctl stop patroni
rm -rf {OWN_WAL}
install -d -o postgres -g postgres /srv/cold/drill
cp -a pg_wal {OWN_WAL}
rm -r pg_wal
ln -s {OWN_WAL} pg_wal
systemctl start patroni
"""
MOVE_WAL_HOME = """
set -e
cd {data}
test -L pg_wal || exit 0
systemctl stop patroni
away=$(readlink pg_wal)
cp -a "$away" pg_wal.home
rm pg_wal
mv pg_wal.home pg_wal
rm -r "$away"
systemctl start patroni
"""


def wait(what: str, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {TIMEOUT} s in vain: {what}")
        time.sleep(0.2)


class LabFaults:
    def __init__(self, lab: Lab, site: Site, groups: dict[str, list[str]]):
        """`groups`: hosts by group, with those of etcd."""
        self.lab = lab
        self.site = site
        self._hosts = groups

    # ---- looking ---------------------------------------------------------------------------------

    def client_command(self, arguments: list[str]) -> list[str]:
        return self.lab.control_command(arguments)

    def groups(self) -> list[str]:
        return [group for group in self._hosts if group != "etcd"]

    def hosts(self, group: str) -> list[str]:
        return self._hosts[group]

    def run(self, host: str, command: str, check: bool = True) -> str:
        return self.lab.host(host).run(command, check=check).stdout.strip()

    def ask(self, host: str, sql: str, database: str = "postgres") -> str:
        """What the host's own server says; empty when there is none."""
        if not self.lab.host(host).is_on():
            return ""
        psql = f"timeout 10 runuser -u postgres -- psql -XAt -d {database} -c {shlex.quote(sql)}"
        try:
            return self.run(host, psql, check=False)
        except Exception:  # it went off meanwhile
            if self.lab.host(host).is_on():
                raise
            return ""

    def leader(self, group: str, besides: str = "") -> str:
        for host in self._hosts[group]:
            if host != besides and self.ask(host, "SELECT NOT pg_is_in_recovery()") == "t":
                return host
        raise NoLeaderError(f"no host of {group} takes writes")

    def standby(self, group: str) -> str:
        leader = self.leader(group)
        return next(host for host in self._hosts[group] if host != leader)

    def etcd_status(self) -> list[dict]:
        """Of the members that answer."""
        host = next(name for name in self._hosts["etcd"] if self.lab.host(name).is_on())
        endpoints = ",".join(f"https://{name}:2379" for name in self._hosts["etcd"])
        answer = self.run(
            host, f"{ETCDCTL} --endpoints {endpoints} endpoint status -w json", check=False
        )
        lines = [line for line in answer.splitlines() if line.startswith("[")]
        return json.loads(lines[-1]) if lines else []

    def etcd_leader(self) -> str:
        for member in self.etcd_status():
            status = member["Status"]
            if status["header"]["member_id"] == status["leader"]:
                return member["Endpoint"].removeprefix("https://").removesuffix(":2379")
        raise NoLeaderError("etcd has no leader")

    def is_redundant(self) -> bool:
        if len({m["Endpoint"] for m in self.etcd_status()}) < len(self._hosts["etcd"]):
            return False
        return all(self.has_standbys(group) for group in self.groups())

    def has_standbys(self, group: str) -> bool:
        standbys = len(self._hosts[group]) - 1
        try:
            answer = self.ask(self.leader(group), STANDBYS)
        except NoLeaderError:
            return False
        streaming, synchronous = (int(word) for word in (answer or "0|0").split("|"))
        return streaming >= standbys and synchronous >= min(standbys, 1)

    def wait_for_prepared(self, group: str) -> None:
        leader = self.leader(group)
        wait(f"{leader} has prepared", lambda: self.ask(leader, PREPARED) not in ("", "0"))

    # ---- what administrators do ------------------------------------------------------------------

    def switchover(self, group: str) -> None:
        self.site.play("switchover.yml", "-e", f"group={group}")

    def hand_over(self, group: str, host: str) -> None:
        if self.leader(group) == host:
            return
        wait(f"{group} has its standbys", lambda: self.has_standbys(group))

        def leads() -> bool:
            if self.is_leader(group, host):
                return True
            # Patroni forgets what it is asked while it makes a standby synchronous, and patronictl
            # succeeds, too, when Patroni has refused
            self.run(host, f"{PATRONICTL} switchover --force --candidate {host}", check=False)
            return self.is_leader(group, host)

        wait(f"{host} leads {group}", leads)

    def is_leader(self, group: str, host: str) -> bool:
        try:
            return self.leader(group) == host
        except NoLeaderError:
            return False

    def copy_anew(self, host: str) -> None:
        self.run(host, f"{PATRONICTL} reinit --force {self.scope(host)} {host}")

    def ask_coordinator(self, sql: str) -> str:
        """What it says; empty if it says nothing now."""
        try:
            return self.ask(self.leader("coordinator"), sql, self.site.database)
        except NoLeaderError:
            return ""

    def move_shards(self, away_from: str = "") -> None:
        drain = f"'{away_from}'" if away_from else "NULL"
        wait(
            "shards begin to move",
            lambda: self.ask_coordinator(f"SELECT strata.rebalance_start('count', {drain})") != "",
        )

    def count_moves(self) -> dict[str, int]:
        states = "SELECT state, count(*) FROM strata.rebalance_status GROUP BY state"
        lines = self.ask_coordinator(states).splitlines()
        return {state: int(count) for state, count in (line.split("|") for line in lines)}

    def rolling_restart(self) -> None:
        self.site.play("update.yml", "-e", "patroni_update_force=true")

    # ---- faults ----------------------------------------------------------------------------------

    def kill_postgres(self, host: str) -> None:
        self.run(host, "pkill -KILL -x postgres")

    def kill_patroni(self, host: str) -> None:
        self.run(host, "systemctl kill --signal=KILL --kill-whom=main patroni")

    def kill_both(self, host: str) -> None:
        self.run(host, "systemctl kill --signal=KILL --kill-whom=all patroni")

    def power_loss(self, host: str) -> None:
        self.lab.host(host).link_down()
        self.lab.host(host).power_loss()

    def cut_off(self, host: str) -> None:
        self.lab.host(host).link_down()

    def deafen(self, host: str) -> None:
        self.lab.host(host).deafen()

    def mute(self, host: str) -> None:
        self.lab.host(host).mute()

    def cut_between(self, host: str, other: str) -> None:
        self.lab.host(host).cut_one_side(self.lab.host(other))
        self.lab.host(other).cut_one_side(self.lab.host(host))

    def freeze_replication(self, standby: str) -> None:
        self.run(standby, "pkill -STOP -f '[w]alreceiver'")

    def thaw_replication(self, standby: str) -> None:
        self.run(standby, "pkill -CONT -f '[w]alreceiver'")

    def fill_disk(self, host: str) -> None:
        self.fill(host, "/srv/hot")

    def fill(self, host: str, directory: str) -> None:
        free = f"$(df --output=avail --block-size=1 {directory} | tail -n 1)"
        self.run(host, f"fallocate --length {free} {directory}/{FILL}")

    def free_disk(self, host: str) -> None:
        self.run(host, f"rm -f /srv/hot/{FILL} /srv/cold/{FILL}")

    def scope(self, host: str) -> str:
        (group,) = [group for group in self.groups() if host in self._hosts[group]]
        return f"strata-{group.replace('_', '-')}"

    def data(self, host: str) -> str:
        return f"/var/lib/postgresql/{self.site.major}/{self.scope(host)}"

    def have_own_wal_disk(self, host: str) -> None:
        self.run(host, MOVE_WAL_AWAY.format(data=self.data(host)))
        self.wait_for_standbys()

    def fill_wal_disk(self, host: str) -> None:
        self.fill(host, "/srv/cold")
        wait(f"{host} runs out of WAL", lambda: self.ask(host, "SELECT pg_switch_wal()") == "")

    def have_own_clock(self, host: str) -> None:
        self.step_clock(host, 0)
        # the lab's hosts know only the packages that were fetched for them
        self.run(host, "apt-get -qq update")
        self.run(host, "apt-get -qq install --yes --no-install-recommends libfaketime")
        self.run(host, f"printf %s {shlex.quote(OWN_CLOCK)} >{OWN_CLOCK_FILE}")
        self.run(host, "systemctl daemon-reload && systemctl restart patroni")
        self.wait_for_standbys()

    def wait_for_standbys(self) -> None:
        for group in self.groups():
            wait(f"{group} has its standbys", lambda group=group: self.has_standbys(group))

    def step_clock(self, host: str, seconds: int) -> None:
        self.run(host, f"echo {seconds:+d} >{CLOCK}.new && mv {CLOCK}.new {CLOCK}")

    # ---- repair ----------------------------------------------------------------------------------

    def heal_network(self) -> None:
        """A host that is off comes back with its cable out of the wall until it is booted."""
        self.lab.heal_rules()
        for host in self.lab.hosts:
            if host.is_on():
                host.link_up()

    def repair(self) -> None:
        self.heal_network()
        off = [host for host in self.lab.hosts if not host.is_on()]
        for host in off:
            host.link_up()
            host.power_on()
        for host in off:
            host.wait_until_ready()
        for host in self.servers():
            self.free_disk(host)

    def undo_preparations(self) -> None:
        for host in self.servers():
            self.run(host, SHARE_CLOCK)
            self.run(host, MOVE_WAL_HOME.format(data=self.data(host)))

    def servers(self) -> list[str]:
        return [host for group in self.groups() for host in self._hosts[group]]
