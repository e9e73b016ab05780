"""What the lab promises to those who test on it: hosts that are, and fail, like real ones."""

from __future__ import annotations

import ipaddress
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.provisioning import cgroup, network
from tests.provisioning.commands import LabError, run, wait_for
from tests.provisioning.host import Host
from tests.provisioning.inventory import InventoryError, read_addresses
from tests.provisioning.lab import Lab, is_dead, why_impossible

CHECKOUT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(600)

# Minutes of CPU for what only a change of the lab itself could break.
of_the_lab = pytest.mark.slow


@pytest.fixture
def pair(lab: Lab) -> tuple[Host, Host]:
    return lab.hosts[0], lab.hosts[1]


def reaches(source: Host, target: Host) -> bool:
    ping = source.run(f"ping -c 1 -W 1 {target.address}", check=False)
    return ping.returncode == 0


def test_every_host_runs_without_a_failed_unit(lab: Lab):
    assert len(lab.hosts) == 6
    for host in lab.hosts:
        assert host.failed_units() == [], host.journal()
        assert host.state() == "running"


def test_the_control_node_reaches_every_host_by_ssh(lab: Lab):
    for host in lab.hosts:
        assert lab.ssh(host.name, "hostname").stdout == f"{host.name}\n"


def test_a_host_is_of_the_release_that_was_asked_for(lab: Lab, pair: tuple[Host, Host]):
    release = pair[0].run("cat /etc/os-release").stdout
    if lab.suite == "testing":
        assert "VERSION_ID" not in release  # it gets its number when it is released
    else:
        assert f"VERSION_CODENAME={lab.suite}\n" in release


@of_the_lab
def test_a_host_installs_packages_from_the_mirror(pair: tuple[Host, Host]):
    host = pair[0]
    host.run("apt-get -qq update")
    # not among the prefetched ones
    host.run("apt-get -qq --yes --no-install-recommends install hello")
    assert host.run("hello").stdout == "Hello, world!\n"


def test_nothing_but_the_mirror_is_outside_the_network(lab: Lab, pair: tuple[Host, Host]):
    links = run(["ip", "-n", lab.name, "-o", "link"]).stdout
    assert all(name in links for name in ("lo:", "br0:", "port0@", "port5@"))
    assert len(links.splitlines()) == 2 + len(lab.hosts)
    assert pair[0].run("ping -c 1 -W 1 192.0.2.1", check=False).returncode != 0


@of_the_lab
def test_each_host_has_two_disks_of_its_own(pair: tuple[Host, Host]):
    for host in pair:
        host.run("apt-get -qq --yes --no-install-recommends --no-download install e2fsprogs")
        for disk in ("hot", "cold"):
            host.run(f"mkfs.ext4 -q /dev/{disk} && mkdir -p /srv/{disk}")
            host.run(f"mount /dev/{disk} /srv/{disk} && echo {host.name} >/srv/{disk}/name")
    for host in pair:
        devices = host.run("stat --format %d /srv/hot /srv/cold /").stdout.split()
        assert len(set(devices)) == 3
        assert host.run("cat /srv/hot/name /srv/cold/name").stdout == f"{host.name}\n" * 2
    assert "/srv/hot" not in run(["cat", "/proc/self/mounts"]).stdout
    for host in pair:
        host.run("umount /srv/hot /srv/cold")


@of_the_lab
def test_a_reboot_ends_with_all_services_and_all_files(pair: tuple[Host, Host]):
    host = pair[0]
    host.run("echo kept >/root/file")
    host.run("echo gone >/run/file")
    host.reboot()
    assert host.state() == "running", host.report()
    assert host.run("cat /root/file").stdout == "kept\n"
    assert host.run("test -e /run/file", check=False).returncode == 1


@of_the_lab
def test_a_power_loss_leaves_no_process_and_no_time_to_say_goodbye(pair: tuple[Host, Host]):
    host = pair[0]
    unit = "[Service]\nExecStart=sleep inf\nExecStop=touch /root/stopped"
    host.run(f"printf '{unit}' >/etc/systemd/system/witness.service")
    host.run("rm -f /root/stopped; systemctl daemon-reload; systemctl start witness")
    host.power_loss()
    assert not host.is_on()
    assert cgroup.processes(host.group) == []
    assert host.state() == "off"
    assert "Started witness.service" in host.journal()
    host.boot()
    assert host.state() == "running", host.report()
    assert host.run("test -e /root/stopped", check=False).returncode == 1


@of_the_lab
def test_a_power_off_stops_services_in_order(pair: tuple[Host, Host]):
    host = pair[0]
    unit = "[Service]\nExecStart=sleep inf\nExecStop=touch /root/stopped"
    host.run(f"printf '{unit}' >/etc/systemd/system/witness.service")
    host.run("rm -f /root/stopped; systemctl daemon-reload; systemctl start witness")
    host.power_off()
    assert not host.is_on()
    host.boot()
    host.run("test -e /root/stopped")


@of_the_lab
def test_a_pulled_cable_separates_a_host_from_all_others(lab: Lab, pair: tuple[Host, Host]):
    one, other = pair
    assert reaches(other, one)
    one.link_down()
    assert not reaches(other, one)
    assert not one.answers()
    assert one.run("hostname").stdout == f"{one.name}\n"
    one.link_up()
    wait_for("the link is back", lambda: reaches(other, one), 10)
    assert lab.ssh(one.name, "true").returncode == 0


@of_the_lab
def test_a_one_sided_cut_loses_one_direction_only(pair: tuple[Host, Host]):
    one, other = pair

    def requests(host: Host) -> int:
        """How many echo requests it has got."""
        lines = host.run("grep ^IcmpMsg: /proc/net/snmp", check=False).stdout.splitlines()
        return int(dict(zip(*map(str.split, lines), strict=True)).get("InType8", 0)) if lines else 0

    one.cut_one_side(other)
    before_one, before_other = requests(one), requests(other)
    assert not reaches(one, other)
    assert requests(other) == before_other + 1, "our request arrives, its answer does not"
    assert not reaches(other, one)
    assert requests(one) == before_one, "the other's request does not arrive"
    one.heal_one_side(other)
    assert reaches(one, other)
    assert reaches(other, one)


@of_the_lab
def test_a_second_lab_of_the_same_addresses_runs_beside(lab: Lab):
    inventory = lab.directory / "two.yml"
    address = lab.hosts[0].address
    inventory.write_text(f"all: {{hosts: {{x1: {{ansible_host: {address}}}}}}}\n")
    name = f"{lab.name}x"
    with Lab(inventory, name=name, suite=lab.suite) as second:
        assert second.ssh("x1", "hostname").stdout == "x1\n"
        assert lab.ssh(lab.hosts[0].name, "hostname").stdout == f"{lab.hosts[0].name}\n"
        images = [second.host("x1").image(disk) for disk in ("hot", "cold")]
    assert not network.exists(name)
    assert not network.exists(f"{name}-x1")
    assert not second.group.exists()
    assert not second.directory.exists()
    assert not any(image.exists() for image in images)
    assert all(host.state() == "running" for host in lab.hosts)


def test_a_name_in_use_is_refused(lab: Lab):
    with pytest.raises(LabError, match=f"a lab named {lab.name} already"):
        Lab(name=lab.name, suite=lab.suite).start()
    assert lab.is_running()


def test_a_failed_command_names_the_host_and_what_it_printed(pair: tuple[Host, Host]):
    with pytest.raises(LabError, match=rf"{pair[0].name}: (?s:.*)ended with 3:\nabc"):
        pair[0].run("echo abc; exit 3")


@of_the_lab
def test_a_host_boots_within_a_minute(pair: tuple[Host, Host]):
    pair[0].power_off()
    start = time.monotonic()
    pair[0].boot()
    assert time.monotonic() - start < 60


KILLED = """
import sys, time
from pathlib import Path
from tests.provisioning.lab import Lab
with Lab(Path(sys.argv[1]), sys.argv[2], sys.argv[3]):
    print("runs", flush=True)
    time.sleep(600)
"""


@of_the_lab
def test_a_lab_whose_tests_were_killed_is_removed(lab: Lab, tmp_path: Path):
    (tmp_path / "hosts.yml").write_text("all: {hosts: {alone: {ansible_host: 10.99.0.11}}}\n")
    name = f"{lab.name}k"
    command = [sys.executable, "-c", KILLED, tmp_path, name, lab.suite]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT) as tests:
        assert tests.stdout.readline() == "runs\n"
        left = Lab(tmp_path, name, lab.suite)
        assert left.is_running()
        assert not is_dead(left.run_directory)
        tests.kill()
    assert is_dead(left.run_directory)
    assert left.hosts[0].is_on()
    with left:  # the name can be taken again
        assert left.hosts[0].is_on()
    assert not left.is_running()
    assert not network.exists(name)
    assert lab.is_running()
    assert not is_dead(lab.run_directory)


# ---- without hosts -------------------------------------------------------------------------------


def test_addresses_are_the_inventory_s(tmp_path):
    file = tmp_path / "hosts.yml"
    file.write_text(
        "all:\n  children:\n    a: {hosts: {x: {ansible_host: 10.1.2.3}}}\n"
        "    b: {children: {c: {hosts: {y: {ansible_host: 10.1.2.4}, x: }}}}\n"
    )
    assert read_addresses(tmp_path) == {
        "x": ipaddress.IPv4Address("10.1.2.3"),
        "y": ipaddress.IPv4Address("10.1.2.4"),
    }


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ("x: ", "gives the host x no ansible_host"),
        ("x: {ansible_host: 10.1.2.3}, y: {ansible_host: 10.1.3.3}", "is not in 10.1.2.0/24"),
        ("x: {ansible_host: 10.1.2.1}", "the lab needs all addresses"),
        ("x: {ansible_host: 10.1.2.3}, y: {ansible_host: 10.1.2.3}", "two hosts the same address"),
    ],
)
def test_an_inventory_that_is_no_lab_is_refused(tmp_path, hosts: str, message: str):
    (tmp_path / "hosts.yml").write_text(f"all: {{hosts: {{{hosts}}}}}\n")
    with pytest.raises(InventoryError, match=message):
        read_addresses(tmp_path)


def test_the_lab_says_why_it_cannot_run(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert why_impossible() == "only root can boot hosts"
    with pytest.raises(LabError, match="the lab cannot run here: only root can boot hosts"):
        Lab()
