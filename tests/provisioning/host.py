"""One host of the lab: a Debian with its own systemd, disks and network, as a test sees it.

run() enters the host from the machine, as one would on its console, so it works while the network
is cut.  A power loss kills every process of the host at one moment; what they had written stays,
since the kernel is this machine's: a missing fsync is not found this way.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.provisioning import cgroup, network
from tests.provisioning.commands import LabError, run, wait_for

BOOT_HOST = Path(__file__).with_name("boot_host.sh")
DISKS = ("hot", "cold")
DISK_SIZE = 2 << 30
BOOT_TIMEOUT = 120
COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
}


@dataclass
class Host:
    """`directory` holds its layers and disks, `group` its processes, `port` is the bridge's end."""

    name: str
    address: ipaddress.IPv4Address
    control: str
    port: str
    directory: Path
    lower: Path
    group: Path

    @property
    def namespace(self) -> str:
        return f"{self.control}-{self.name}"

    # ---- making and removing ---------------------------------------------------------------------

    def create(self, gateway: ipaddress.IPv4Address, mirror: str, public_key: str) -> None:
        """Its network, disks and first files; nothing runs yet."""
        for name in ("upper", "work", "root"):
            (self.directory / name).mkdir(parents=True)
        files = {
            "etc/hostname": f"{self.name}\n",
            "etc/hosts": f"127.0.0.1 localhost\n127.0.1.1 {self.name}\n{gateway} {mirror}\n",
            "root/.ssh/authorized_keys": public_key,
            # the packages that the root has prefetched are new enough
            "var/lib/apt/periodic/update-success-stamp": "",
        }
        for name, content in files.items():
            file = self.directory / "upper" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        for name in ("root", "root/.ssh"):
            (self.directory / "upper" / name).chmod(0o700)
        network.create_host(self.control, self.namespace, self.port, self.address, gateway)
        self.attach_disks()

    def attach_disks(self) -> None:
        """Its block devices, sparse files behind loop devices: empty at first, as new disks are."""
        for disk in DISKS:
            image = self.image(disk)
            if not image.exists():
                with image.open("wb") as file:
                    file.truncate(DISK_SIZE)
            if not self.device(disk):
                run(["losetup", "--find", "--direct-io=on", image])

    def detach_disks(self) -> None:
        for disk in DISKS:
            if device := self.device(disk):
                run(["losetup", "--detach", device])

    def image(self, disk: str) -> Path:
        return self.directory / f"{disk}.img"

    def device(self, disk: str) -> str:
        """The machine's name of the block device that the host knows as /dev/<disk>."""
        listing = run(
            ["losetup", "--noheadings", "--output", "NAME", "--associated", self.image(disk)]
        )
        return listing.stdout.strip()

    def remove(self) -> None:
        """Stop it at once, and take away all but its directory."""
        cgroup.kill(self.group)
        self.detach_disks()
        network.delete(self.namespace)

    # ---- power -----------------------------------------------------------------------------------

    def is_on(self) -> bool:
        return cgroup.is_populated(self.group)

    def power_on(self) -> None:
        """Press the button; ready() tells when it is there."""
        if self.is_on():
            raise LabError(f"{self.name} is on already")
        cgroup.remove(self.group)  # of its last life: systemd would take them for its own
        self.group.mkdir(parents=True)
        binds = [f"--bind={self.device(disk)}:/dev/{disk}" for disk in DISKS]
        with self.console.open("ab") as console:
            subprocess.Popen(
                ["unshare", "--mount", "--propagation", "slave", BOOT_HOST, self.group, self.lower]
                + [self.directory, self.namespace, self.name, *binds],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        wait_for(f"{self.name} starts", self.is_on, 10)

    def boot(self, timeout: float = BOOT_TIMEOUT) -> None:
        """Power on, and wait until all services have started."""
        self.power_on()
        self.wait_until_ready(timeout)

    def power_off(self, timeout: float = BOOT_TIMEOUT) -> None:
        """An orderly shutdown."""
        os.kill(self.nspawn(), signal.SIGTERM)
        wait_for(f"{self.name} shuts down", lambda: not self.is_on(), timeout)

    def power_loss(self) -> None:
        """All its processes are gone at once."""
        cgroup.kill(self.group)

    def reboot(self, timeout: float = BOOT_TIMEOUT) -> None:
        """systemctl reboot, and wait until it is there again."""
        before = self.init()
        self.run("systemctl --no-block reboot")
        wait_for(f"{self.name} reboots", lambda: self.init() not in (None, before), timeout)
        self.wait_until_ready(timeout)

    # ---- its processes ---------------------------------------------------------------------------

    def init(self) -> int | None:
        """The machine's number of the host's process 1."""
        for process in cgroup.processes(self.group):
            if read_status(process).get("NSpid", "").split()[1:] == ["1"]:
                return process
        return None

    def nspawn(self) -> int:
        init = self.init()
        if init is None:
            raise LabError(f"{self.name} is off")
        return int(read_status(init)["PPid"])

    def run(self, command: str, check: bool = True, **options) -> subprocess.CompletedProcess:
        """Run a shell command as the host's root, without its network."""
        init = self.init()
        if init is None:
            raise LabError(f"{self.name} is off, and cannot run {command}")
        enter = ["nsenter", "--target", str(init), "--mount", "--uts", "--ipc", "--net", "--pid"]
        enter += ["--cgroup", "--root", "--wd", "/bin/sh", "-c", command]
        try:
            return run(enter, check, **({"env": ENVIRONMENT} | options))
        except LabError as error:
            raise LabError(f"{self.name}: {error}") from None

    # ---- is it there? ----------------------------------------------------------------------------

    def state(self) -> str:
        """What systemd says of the whole: starting, running, degraded, ..., or off."""
        if self.init() is None:
            return "off"
        return self.run("systemctl is-system-running", check=False).stdout.strip()

    def answers(self) -> bool:
        """Does its ssh server answer the control node?"""
        greeting = "exec 3<>/dev/tcp/$0/22 && read -rt 1 -u 3 line && [[ $line == SSH-* ]]"
        command = network.inside(
            self.control, "timeout", "2", "bash", "-c", greeting, str(self.address)
        )
        return run(command, check=False).returncode == 0

    def is_ready(self) -> bool:
        return self.state() in ("running", "degraded") and self.answers()

    def wait_until_ready(self, timeout: float = BOOT_TIMEOUT) -> None:
        try:
            wait_for(f"{self.name} boots", self.is_ready, timeout)
        except LabError as error:
            raise LabError(f"{error}; it is {self.state()}\n{self.report()}") from None

    def failed_units(self) -> list[str]:
        return self.run("systemctl list-units --failed --plain --no-legend").stdout.splitlines()

    # ---- network faults --------------------------------------------------------------------------

    def link_down(self) -> None:
        """Pull its cable."""
        network.set_link(self.control, self.port, "down")

    def link_up(self) -> None:
        network.set_link(self.control, self.port, "up")

    def cut_one_side(self, other: Host) -> None:
        """Nothing that `other` sends arrives here any more; what we send does arrive there."""
        network.drop_rule("-A", self.control, other.address, self.address)

    def heal_one_side(self, other: Host) -> None:
        network.drop_rule("-D", self.control, other.address, self.address)

    def deafen(self) -> None:
        """Nothing arrives here any more; what we send does arrive."""
        network.drop_all(self.control, "destination", self.address)

    def mute(self) -> None:
        """Nothing that we send arrives anywhere; we hear everybody."""
        network.drop_all(self.control, "source", self.address)

    # ---- what it says ----------------------------------------------------------------------------

    @property
    def console(self) -> Path:
        return self.directory / "console.log"

    def journal(self, lines: int = 80, unit: str | None = None) -> str:
        """The end of its journal, also of a host that is off."""
        command = ["journalctl", "--no-pager", f"--lines={lines}"]
        command += [f"--unit={unit}"] if unit else []
        if self.init() is not None:
            return self.run(shlex.join(command), check=False).stdout
        files = self.directory / "upper/var/log/journal"
        return run([*command, f"--directory={files}"], check=False).stdout

    def report(self) -> str:
        """For a failed test: console, journal, and the units that failed."""
        parts = [f"==== {self.name}: {self.state()}"]
        if self.init() is not None:
            parts += ["---- failed units", *self.failed_units()]
        if self.console.exists():
            console = COLOUR.sub("", self.console.read_text(errors="replace")).split("\n")
            parts += ["---- console", *[line for line in console if line.strip()][-40:]]
        return "\n".join([*parts, "---- journal", self.journal()])


def read_status(process: int) -> dict[str, str]:
    """/proc/<process>/status; empty when the process is gone."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
