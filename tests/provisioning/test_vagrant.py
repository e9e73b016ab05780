"""The Vagrantfile is valid and boots the hosts of its inventory, no more and no others.

One of them really boots in the slow suite, in an emulator, and takes the part of the playbook that
needs no other host.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.provisioning.box import make_box
from tests.provisioning.foreign import have_deb
from tests.provisioning.hypervisor import Hypervisor, why_impossible
from tests.provisioning.root import CACHE, MAJORS
from tests.provisioning.site import RECAP

CHECKOUT = Path(__file__).parents[2]
INVENTORY = CHECKOUT / "inventories" / "vagrant" / "hosts.yml"


@pytest.fixture
def vagrant(tmp_path: Path):
    """A function that runs vagrant on a copy, so that nothing is left in the checkout."""
    if shutil.which("vagrant") is None:
        pytest.skip("vagrant is not installed: `make check` installs it for root only")
    project = tmp_path / "project"
    shutil.copytree(INVENTORY.parent, project / "inventories" / "vagrant")
    shutil.copy(CHECKOUT / "Vagrantfile", project)

    def run(*arguments: str) -> str:
        environment = os.environ | {"VAGRANT_HOME": str(tmp_path / "home")}
        environment |= {"VAGRANT_DEFAULT_PROVIDER": "libvirt", "VAGRANT_CHECKPOINT_DISABLE": "1"}
        result = subprocess.run(
            ["vagrant", *arguments],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return run


def hosts_of(group: dict) -> Iterator[str]:
    yield from group.get("hosts") or {}
    for child in (group.get("children") or {}).values():
        yield from hosts_of(child or {})


def test_the_vagrantfile_is_valid(vagrant) -> None:
    vagrant("validate")


def test_the_machines_are_the_inventorys(vagrant) -> None:
    lines = vagrant("status", "--machine-readable").splitlines()
    machines = [line.split(",")[1] for line in lines if line.split(",")[2] == "provider-name"]
    inventory = yaml.safe_load(INVENTORY.read_text())["all"]
    assert machines == list(dict.fromkeys(hosts_of(inventory)))
    assert len(machines) == 6


class Machines:
    """What `vagrant` and Ansible's programs do with a copy of the project, beside its machines."""

    def __init__(self, hypervisor: Hypervisor):
        self.hypervisor = hypervisor
        self.project = hypervisor.directory / "project"
        self.project.mkdir()
        for name in ("inventories", "ansible", "roles"):
            shutil.copytree(CHECKOUT / name, self.project / name)
        for name in ("Vagrantfile", "ansible.cfg"):
            shutil.copy(CHECKOUT / name, self.project)
        for name in (".venv", "dist"):
            (self.project / name).symlink_to(CHECKOUT / name)

    def run(self, *command: str | Path) -> str:
        environment = {
            "VAGRANT_HOME": str(self.hypervisor.directory / "home"),
            "VAGRANT_DEFAULT_PROVIDER": "libvirt",
            "VAGRANT_CHECKPOINT_DISABLE": "1",
            "STRATA_BOX": "strata-trixie",
            "ANSIBLE_NOCOLOR": "1",
        }
        words = ["env", "--chdir", self.project, *command]
        return self.hypervisor.run(words, env=os.environ | environment).stdout

    def ansible(self, program: str, *arguments: str) -> str:
        return self.run(f".venv/bin/{program}", "-i", "inventories/vagrant", *arguments)


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    if reason := why_impossible():
        pytest.skip(f"no virtual machine can be made here: {reason}")
    box = make_box("trixie")
    have_deb(MAJORS["trixie"], CHECKOUT / "dist")
    with tempfile.TemporaryDirectory(dir=CACHE) as directory, Hypervisor(Path(directory)) as place:
        made = Machines(place)
        made.run("vagrant", "box", "add", "--name", "strata-trixie", box)
        yield made


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_machine_boots_and_takes_the_playbook(machines: Machines) -> None:
    name = "coordinator-a"
    machines.run("vagrant", "up", name)
    play = ["ansible/site.yml", "--limit", name, "--tags", "node,postgresql,pki"]
    machines.ansible("ansible-playbook", *play)
    again = machines.ansible("ansible-playbook", *play)
    assert [(host, changed) for host, changed, _, _ in RECAP.findall(again)] == [(name, "0")]

    disks = ["-m", "ansible.builtin.include_role", "-a", "name=tablespaces"]
    machines.ansible("ansible", name, "--become", *disks)
    # a kernel and disks of its own, which the lab's hosts do not have
    machines.run("vagrant", "reload", name)
    shell = (
        "findmnt -rno SOURCE,TARGET --types ext4;"
        " sudo nft list table inet strata; sudo sysctl vm.swappiness"
    )
    seen = machines.run("vagrant", "ssh", name, "--command", shell)
    for expected in ("/dev/vdb /srv/hot", "/dev/vdc /srv/cold", "policy drop", "swappiness = 1"):
        assert expected in seen
