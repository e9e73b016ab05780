"""A lab: the hosts of an inventory, booted on this machine with a control node beside them.

    with Lab(inventory, suite="trixie") as lab:
        lab.control(["ansible-playbook", "-i", inventory, "ansible/site.yml"])
        lab.host("w1a").power_loss()

Everything of a lab has its name: the directory .cache/lab/hosts/<name> (layers, disks, logs), the
network namespaces <name> and <name>-<host>, the control groups below <name>, and /run/strata-lab/<name>
(sockets, and whose lab it is).  So a later process finds a running lab by its name, labs of
different names run at once, and stopping one touches nothing else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.provisioning import cgroup, network
from tests.provisioning.commands import LabError, run, wait_for
from tests.provisioning.host import Host
from tests.provisioning.inventory import control_address, network_of, read_addresses
from tests.provisioning.root import CACHE, debian_mirror, is_root, make_root, server_recipe

INVENTORY = Path(__file__).parents[2] / "inventories" / "lab"
RUNNING = Path("/run/strata-lab")
PROGRAMS = "mmdebstrap systemd-nspawn ip ebtables socat losetup ssh-keygen unshare nsenter"


def why_impossible() -> str | None:
    """Why this machine cannot boot the hosts, or None when it can."""
    if not is_root():
        return "only root can boot hosts"
    missing = [program for program in PROGRAMS.split() if shutil.which(program) is None]
    if missing:
        return f"{', '.join(missing)} is not installed: run scripts/install_packages.sh lab"
    try:
        cgroup.hierarchy()
    except LabError as error:
        return str(error)
    if run(["unshare", "--mount", "--net", "--pid", "--fork", "true"], check=False).returncode:
        return "the kernel lets even root make no namespaces"
    return None


class Lab:
    """See above; start() and stop() once each, or use it as a context."""

    def __init__(
        self,
        inventory: Path = INVENTORY,
        name: str = "lab",
        suite: str = "trixie",
        upgraded: bool = False,
    ):
        if reason := why_impossible():
            raise LabError(f"the lab cannot run here: {reason}")
        self.name = name
        self.suite = suite
        self.recipe = server_recipe(suite, upgraded)
        self.inventory = inventory
        self.directory = CACHE / "hosts" / name
        self.run_directory = RUNNING / name
        self.group = group_of(name)
        self.keeper = ""  # whoever ends the lab; nobody in particular, unless it is a context
        self.addresses = read_addresses(inventory)
        self.gateway = control_address(network_of(self.addresses))
        self.hosts = [
            Host(
                name=host,
                address=address,
                control=name,
                port=f"port{index}",
                directory=self.directory / host,
                lower=CACHE / "roots" / self.recipe.name(),
                group=self.group / host,
            )
            for index, (host, address) in enumerate(self.addresses.items())
        ]

    def host(self, name: str) -> Host:
        for host in self.hosts:
            if host.name == name:
                return host
        raise KeyError(f"the inventory {self.inventory} has no host {name}")

    # ---- life ------------------------------------------------------------------------------------

    def __enter__(self) -> Lab:
        self.keeper = own_process()
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> None:
        """Boot all hosts; on any failure stop what was started, and raise with their journals."""
        self.claim()
        try:
            make_root(self.recipe)
            self.create()
            for host in self.hosts:
                host.power_on()
            self.wait_until_ready()
            self.note_owner(self.keeper)
        except BaseException:
            self.stop()
            raise

    def claim(self) -> None:
        """Take the name, which is the machine's: another working tree may have a lab, too."""
        self.run_directory.parent.mkdir(exist_ok=True)
        if is_dead(self.run_directory):
            demolish(self.run_directory)
        try:
            self.run_directory.mkdir(mode=0o700)
        except FileExistsError:
            raise LabError(
                f"there is a lab named {self.name} already, of {self.owner()}: stop it with"
                f" `make lab-down` there, or give yours another name (LAB=...)"
            ) from None
        self.note_owner(own_process())

    def note_owner(self, keeper: str) -> None:
        (self.run_directory / "owner").write_text(f"{self.directory}\n{self.suite}\n{keeper}\n")

    def owner(self) -> str:
        file = self.run_directory / "owner"
        return file.read_text().splitlines()[0] if file.exists() else "nobody"

    def is_running(self) -> bool:
        return self.owner() == str(self.directory)

    def create(self) -> None:
        if self.directory.exists():
            shutil.rmtree(self.directory)
        self.directory.mkdir(parents=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", self.key])
        public_key = self.key.with_suffix(".pub").read_text()
        network.create_control(self.name, self.gateway)
        mirror = network.serve_mirror(
            debian_mirror(),
            self.name,
            self.gateway,
            self.run_directory / "mirror",
            self.group / "mirror",
        )
        for host in self.hosts:
            host.create(self.gateway, mirror, public_key)

    def wait_until_ready(self) -> None:
        with ThreadPoolExecutor(len(self.hosts)) as pool:
            list(pool.map(Host.wait_until_ready, self.hosts))

    def stop(self) -> None:
        """Remove every trace of a lab of ours, whatever state it is in."""
        if self.is_running():
            demolish(self.run_directory)

    # ---- the control node ------------------------------------------------------------------------

    @property
    def key(self) -> Path:
        return self.directory / "key"

    def environment(self) -> dict[str, str]:
        """What programs on the control node find in their environment: how to reach the hosts."""
        return os.environ | {
            "ANSIBLE_PRIVATE_KEY_FILE": str(self.key),
            "ANSIBLE_HOST_KEY_CHECKING": "False",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.run_directory / "ssh"),
            "STRATA_LAB": self.name,
            "STRATA_LAB_SUITE": self.suite,
        }

    def control_command(self, arguments: list[str | Path]) -> list[str]:
        """The command line that runs a program on the control node, which reaches all hosts."""
        return [str(word) for word in network.inside(self.name, *arguments)]

    def control(
        self, arguments: list[str | Path], check: bool = True, **options
    ) -> subprocess.CompletedProcess:
        """Run a program on the control node to its end."""
        return run(self.control_command(arguments), check, env=self.environment(), **options)

    def ssh(self, name: str, command: str, check: bool = True) -> subprocess.CompletedProcess:
        """Run a command on a host over the network."""
        options = "-o BatchMode=yes -o ConnectTimeout=5 -o StrictHostKeyChecking=no"
        options += " -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
        target = f"root@{self.host(name).address}"
        return self.control(["ssh", *options.split(), "-i", self.key, target, command], check)

    def heal(self) -> None:
        """End every fault of the network."""
        self.heal_rules()
        for host in self.hosts:
            host.link_up()

    def heal_rules(self) -> None:
        """End all one-sided cuts."""
        network.forget_drop_rules(self.name)

    def report(self) -> str:
        """For a failed test: the state and journal of every host."""
        return "\n".join(host.report() for host in self.hosts)


def own_process() -> str:
    """This process, as nobody else will be named: its number and when it started."""
    return process_name(os.getpid())


def process_name(process: int) -> str:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return f"{process} {fields[19]}"


def is_dead(run_directory: Path) -> bool:
    """Was a lab left behind: killed with the process that was to end it, or without any host?"""
    owner = run_directory / "owner"
    if not owner.exists():
        return False
    _, _, keeper = (owner.read_text().split("\n") + [""])[:3]
    if keeper:
        return process_name(int(keeper.split()[0])) != keeper
    return not cgroup.is_populated(group_of(run_directory.name))


def demolish(run_directory: Path) -> None:
    """Remove every trace of a lab of this machine, whatever state it is in."""
    name = run_directory.name
    directory = Path((run_directory / "owner").read_text().splitlines()[0])
    cgroup.kill(group_of(name))
    for image in sorted(directory.glob("*/*.img")):
        detach(image)
    for namespace in Path("/run/netns").glob(f"{name}-*"):
        network.delete(namespace.name)
    network.delete(name)
    shutil.rmtree(directory, ignore_errors=True)
    shutil.rmtree(run_directory)


def demolish_dead() -> list[str]:
    """Remove all labs that were left behind, also those of other working trees; their names."""
    dead = [path for path in sorted(RUNNING.glob("*")) if is_dead(path)]
    for path in dead:
        demolish(path)
    return [path.name for path in dead]


def group_of(name: str) -> Path:
    return cgroup.hierarchy() / f"strata-{name}"


def detach(image: Path) -> None:
    listing = run(["losetup", "--noheadings", "--output", "NAME", "--associated", image])
    for device in listing.stdout.split():
        run(["losetup", "--detach", device])
        wait_for(f"{device} is detached", lambda: not is_attached(image), 10)


def is_attached(image: Path) -> bool:
    return bool(run(["losetup", "--noheadings", "--associated", image]).stdout.strip())
