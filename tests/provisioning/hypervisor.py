"""A place for virtual machines on this machine: libvirt, and a network that nobody else sees."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import TracebackType

from tests.provisioning import lab
from tests.provisioning.commands import LabError, run, wait_for

START = Path(__file__).with_name("start_libvirt.sh")
PROGRAMS = "libvirtd virsh qemu-img qemu-system-x86_64 dnsmasq vagrant"
NAMESPACES = ["--mount", "--net", "--pid"]


def why_impossible() -> str | None:
    """Why this machine can have no virtual machines, or None when it can."""
    missing = [program for program in PROGRAMS.split() if shutil.which(program) is None]
    if missing:
        return f"{', '.join(missing)} is not installed: run scripts/install_packages.sh virtual"
    return lab.why_impossible()


class Hypervisor:
    """`directory` holds the disks of its machines, and logs."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.process: subprocess.Popen | None = None

    def __enter__(self) -> Hypervisor:
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc", START]
                + [self.directory],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            wait_for("libvirt answers", self.answers, 30)
        except LabError as error:
            self.stop()
            raise LabError(f"{error}\n{self.log.read_text()}") from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def log(self) -> Path:
        return self.directory / "libvirtd.log"

    def stop(self) -> None:
        """All its machines are gone at once."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def answers(self) -> bool:
        return (
            self.first_process() is not None
            and self.run(["virsh", "--connect", "qemu:///system", "version"], False).returncode == 0
        )

    def first_process(self) -> str | None:
        """The machine's number of the process that all namespaces begin with."""
        assert self.process is not None
        if self.process.poll() is not None:
            raise LabError(f"libvirt ended with {self.process.returncode}")
        number = self.process.pid
        return next(iter(Path(f"/proc/{number}/task/{number}/children").read_text().split()), None)

    def run(
        self, arguments: list[str | Path], check: bool = True, **options
    ) -> subprocess.CompletedProcess:
        """Run a program beside the machines: it reaches them, and libvirt, but no other network."""
        enter = ["nsenter", "--target", str(self.first_process()), *NAMESPACES, "--wdns=/", "--"]
        return run([*enter, *arguments], check, **options)
