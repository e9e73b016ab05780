"""What is wrong with an inventory, as sentences that say what to do.

Pure functions of the inventory's groups and of the values given: no host is asked, so a play that
uses this stops within seconds.  All problems are told at once, not one per run.
"""

from __future__ import annotations

import ipaddress
import re
from itertools import combinations

GROUP = re.compile(r"worker_[1-9][0-9]*")
NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


def database_groups(groups: dict) -> dict[str, list[str]]:
    """The groups of which each is one replicated PostgreSQL server."""
    return {name: hosts for name, hosts in groups.items() if is_database_group(name)}


def is_database_group(name: str) -> bool:
    return name == "coordinator" or GROUP.fullmatch(name) is not None


def membership_problems(groups: dict) -> list[str]:
    problems = []
    databases = database_groups(groups)
    if not groups.get("coordinator"):
        problems.append("group coordinator has no host: name the coordinator's two hosts in it")
    if not any(databases[name] for name in databases if name != "coordinator"):
        problems.append("no worker: make group worker_1 with two hosts, as a child of worker")
    for name in sorted(databases):
        if len(databases[name]) == 1:
            problems.append(
                f"group {name} has one host, so nothing survives its loss: add a second one, "
                "or set preflight_allow_single_hosts to true"
            )
    for one, other in combinations(sorted(databases), 2):
        for host in sorted(set(databases[one]) & set(databases[other])):
            problems.append(f"host {host} is in the groups {one} and {other}: leave it in one")
    placed = {host for hosts in databases.values() for host in hosts}
    for host in sorted(set(groups.get("worker", [])) - placed):
        problems.append(f"host {host} is in group worker but in no worker_N: put it into one")
    return problems


def etcd_problems(groups: dict) -> list[str]:
    members = groups.get("etcd", [])
    if not members:
        return ["group etcd has no host: name three hosts in it"]
    problems = []
    if len(members) % 2 == 0:
        problems.append(
            f"group etcd has {len(members)} hosts, which survive no more losses than "
            f"{len(members) - 1}: add or remove one"
        )
    if len(members) == 1:
        problems.append("group etcd has one host, whose loss stops every failover: name three")
    for name, hosts in sorted(database_groups(groups).items()):
        if len(members) > 1 and set(members) <= set(hosts):
            problems.append(
                f"all hosts of group etcd are in {name}, which would lose its data and its "
                "arbiter at once: spread them over groups"
            )
    return problems


def address_problems(groups: dict, hostvars: dict) -> list[str]:
    problems = []
    owners: dict[str, str] = {}
    for host in sorted(groups.get("all", [])):
        if not NAME.fullmatch(host):
            problems.append(
                f"{host!r} is no host name that a certificate can have: use lower-case letters, "
                "digits and hyphens"
            )
        address = hostvars[host].get("ansible_host")
        if address is None:
            problems.append(f"host {host} has no ansible_host: give its address")
            continue
        try:
            ipaddress.ip_address(address)
        except ValueError:
            problems.append(
                f"ansible_host of {host} is {address!r}, which is no IP address: give the one by "
                "which the other hosts reach it"
            )
        if address in owners:
            problems.append(
                f"hosts {owners[address]} and {host} have one address, {address}: correct one"
            )
        owners.setdefault(address, host)
    return problems


def secret_problems(secrets: dict) -> list[str]:
    return [
        f"secret {name} is missing or has fewer than 12 characters: set it with ansible-vault"
        for name, value in sorted(secrets.items())
        if len(str(value or "")) < 12
    ]


def inventory_problems(
    groups: dict, hostvars: dict, secrets: dict, allow_single_hosts: bool = False
) -> list[str]:
    """All problems of an inventory; `secrets` has the values of those that are needed."""
    problems = membership_problems(groups) + etcd_problems(groups)
    if allow_single_hosts:
        problems = [problem for problem in problems if " has one host" not in problem]
    return problems + address_problems(groups, hostvars) + secret_problems(secrets)


class FilterModule:
    def filters(self) -> dict:
        return {"inventory_problems": inventory_problems}
