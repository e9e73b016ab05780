"""The Vagrantfile is valid and boots the hosts of its inventory, no more and no others."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).parents[2]
INVENTORY = CHECKOUT / "inventories" / "vagrant" / "hosts.yml"


@pytest.fixture
def vagrant(tmp_path: Path):
    """A function that runs vagrant on a copy, so that nothing is left in the checkout."""
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
