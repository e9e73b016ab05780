"""Wrong inventories stop before anything is changed, with sentences that say what to do.

These run the playbook itself, on this machine as the only host: no lab is needed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.provisioning.site import RELEASES

ROOT = Path(__file__).parents[2]
PLAYBOOK = ROOT / "ansible" / "preflight.yml"
FILTERS = ROOT / "roles" / "preflight" / "filter_plugins" / "inventory_problems.py"

SECRETS = {
    "pki_passphrase": "a passphrase of the test",
    "cluster_etcd_password": "a password for etcd of the test",
    "patroni_replication_password": "a password of the test",
    "patroni_rewind_password": "another password of the test",
}


def load_filters():
    spec = importlib.util.spec_from_file_location("inventory_problems", FILTERS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


filters = load_filters()


def right_groups() -> dict[str, list[str]]:
    groups = {
        "coordinator": ["c1", "c2"],
        "worker_1": ["w1a", "w1b"],
        "worker_2": ["w2a", "w2b"],
        "etcd": ["c1", "w1a", "w2a"],
    }
    groups["worker"] = groups["worker_1"] + groups["worker_2"]
    groups["all"] = groups["coordinator"] + groups["worker"]
    return groups


def problems_of(groups: dict, secrets: dict = SECRETS, **addresses: str) -> list[str]:
    hosts = {host for members in groups.values() for host in members}
    groups = groups | {"all": sorted(hosts)}
    hostvars = {
        host: {"ansible_host": addresses.get(host, f"10.0.0.{number}")}
        for number, host in enumerate(groups["all"], 1)
    }
    return filters.inventory_problems(groups, hostvars, secrets)


def test_a_right_inventory_has_no_problems():
    assert problems_of(right_groups()) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"worker_2": ["w2a", "w1b"]}, "host w1b is in the groups worker_1 and worker_2"),
        ({"worker_2": ["w2a", "c2"]}, "host c2 is in the groups coordinator and worker_2"),
        ({"coordinator": []}, "group coordinator has no host"),
        ({"worker_1": [], "worker_2": [], "worker": []}, "no worker"),
        ({"worker_2": ["w2a"]}, "group worker_2 has one host"),
        ({"worker": ["w1a", "w1b", "w2a", "w2b", "x"]}, "host x is in group worker but in no"),
        ({"etcd": []}, "group etcd has no host"),
        ({"etcd": ["c1"]}, "group etcd has one host"),
        ({"etcd": ["c1", "c2", "w1a", "w2a"]}, "group etcd has 4 hosts"),
        ({"worker_1": ["w1a", "w1b", "w1c"], "etcd": ["w1a", "w1b", "w1c"]}, "are in worker_1"),
        ({"worker_2": ["w2a", "W2_b"]}, "'W2_b' is no host name"),
    ],
)
def test_each_mistake_in_groups_is_told(change: dict, sentence: str):
    assert any(sentence in problem for problem in problems_of(right_groups() | change))


def test_two_hosts_with_one_address_are_told():
    (problem,) = problems_of(right_groups(), c1="10.0.0.9", w1a="10.0.0.9")
    assert "hosts c1 and w1a have one address, 10.0.0.9" in problem


def test_a_name_in_place_of_an_address_is_told():
    (problem,) = problems_of(right_groups(), c1="c1.example.org")
    assert "no IP address" in problem


@pytest.mark.parametrize("value", ["", None, "short"])
def test_a_missing_secret_is_told_by_name(value: str | None):
    (problem,) = problems_of(right_groups(), SECRETS | {"pki_passphrase": value})
    assert "secret pki_passphrase is missing" in problem
    assert value is None or value == "" or value not in problem


@pytest.mark.parametrize("name", ["example", "lab", "vagrant"])
def test_the_inventories_that_we_ship_are_right(name: str):
    listing = subprocess.run(
        [ROOT / ".venv" / "bin" / "ansible-inventory", "-i", ROOT / "inventories" / name, "--list"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    inventory = json.loads(listing.stdout)
    hostvars = inventory.pop("_meta")["hostvars"]
    groups = {group: value.get("hosts", []) for group, value in inventory.items()}
    groups |= {"all": sorted(hostvars)}
    assert filters.inventory_problems(groups, hostvars, SECRETS) == []


# ---- the playbook ----------------------------------------------------------------------------------


def run_preflight(directory: Path, children: dict, *arguments: str, **variables: object) -> str:
    """The output of the playbook, which must fail, on this machine as every host."""
    hosts = {host for members in children.values() for host in members}
    inventory = {
        "all": {
            "hosts": {
                host: {"ansible_host": f"127.0.0.{number}"}
                for number, host in enumerate(sorted(hosts), 1)
            },
            "vars": {
                "ansible_connection": "local",
                "ansible_become": False,
                "preflight_allow_single_hosts": True,
                **variables,
            },
            "children": {
                name: {"hosts": dict.fromkeys(members)} for name, members in children.items()
            },
        }
    }
    file = directory / "hosts.yml"
    file.write_text(yaml.safe_dump(inventory))
    done = subprocess.run(
        [ROOT / ".venv" / "bin" / "ansible-playbook", "-i", file, PLAYBOOK, *arguments],
        cwd=ROOT,
        env=os.environ | {"ANSIBLE_NOCOLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr


def test_a_wrong_inventory_stops_before_any_host_is_asked(tmp_path: Path):
    output = run_preflight(
        tmp_path,
        {"coordinator": ["c1"], "worker_1": ["w1"], "worker_2": ["w1"], "etcd": ["c1", "w1"]},
        coordinator_roles=[{"name": "app", "password": ""}],
        **SECRETS | {"patroni_rewind_password": ""},
    )
    assert "host w1 is in the groups worker_1 and worker_2" in output
    assert "group etcd has 2 hosts" in output
    assert "secret patroni_rewind_password is missing" in output
    assert "secret password of app is missing" in output
    assert "Gathering Facts" not in output
    assert not any(secret in output for secret in SECRETS.values())


def test_a_host_that_will_not_do_is_told_why(tmp_path: Path):
    output = run_preflight(
        tmp_path,
        {"coordinator": ["c1"], "worker_1": ["w1"], "etcd": ["c1"]},
        preflight_majors={"potato": "17"},
        preflight_minimum_memory_mb=1 << 30,
        cluster_minimum_patroni="9999",
        cluster_tablespaces=[
            {"name": "hot", "device": "/dev/none", "path": "/srv/hot"},
            {"name": "cold", "device": str(link_to_a_disk(tmp_path)), "path": "/srv/cold"},
        ],
        **SECRETS,
    )
    assert "is not supported: install Debian potato" in output
    assert "MB of memory are too little" in output
    assert "can lose acknowledged rows" in output
    assert "/dev/none is no disk of this host" in output
    assert f"{tmp_path}/disk is no disk" not in output


def link_to_a_disk(directory: Path) -> Path:
    """As the names in /dev/disk are."""
    disk = next(file for file in Path("/dev").iterdir() if file.is_block_device())
    link = directory / "disk"
    link.symlink_to(disk)
    return link


def test_a_postgresql_that_the_release_does_not_have_is_told(tmp_path: Path):
    output = run_preflight(
        tmp_path,
        {"coordinator": ["c1"], "worker_1": ["w1"], "etcd": ["c1"]},
        preflight_majors=dict.fromkeys(RELEASES, "99"),
        cluster_tablespaces=[],
        **SECRETS,
    )
    assert "has PostgreSQL 99: set cluster_postgresql_major" in output


def test_a_dry_run_on_bare_hosts_ends_with_preflight(tmp_path: Path):
    output = run_preflight(
        tmp_path,
        {"coordinator": ["c1"], "worker_1": ["w1"], "etcd": ["c1"]},
        "--check",
        preflight_majors=dict.fromkeys(RELEASES, "17"),
        cluster_minimum_patroni="0",
        cluster_tablespaces=[],
        **SECRETS,
    )
    assert "Nothing is wrong with c1. With --check the playbook can say no more" in output
