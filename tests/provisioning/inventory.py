"""What the lab needs of an Ansible inventory: the names of the hosts and their addresses."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import yaml


class InventoryError(Exception):
    """The inventory cannot be made a lab of."""


def hosts_of_group(group: dict | None) -> dict[str, dict]:
    """All hosts of a group and of the groups in it, with their variables merged."""
    found: dict[str, dict] = {}
    for name, variables in ((group or {}).get("hosts") or {}).items():
        found.setdefault(name, {}).update(variables or {})
    for child in ((group or {}).get("children") or {}).values():
        for name, variables in hosts_of_group(child).items():
            found.setdefault(name, {}).update(variables)
    return found


def read_addresses(inventory: Path) -> dict[str, ipaddress.IPv4Address]:
    """The address of each host, in the inventory's order; all in one network of 24 bits."""
    file = inventory / "hosts.yml" if inventory.is_dir() else inventory
    if not file.exists():
        raise InventoryError(f"there is no inventory {file}")
    content = yaml.safe_load(file.read_text()) or {}
    hosts: dict[str, dict] = {}
    for group in content.values():
        for name, variables in hosts_of_group(group).items():
            hosts.setdefault(name, {}).update(variables)
    if not hosts:
        raise InventoryError(f"{file} names no host")
    addresses = {}
    for name, variables in hosts.items():
        if "ansible_host" not in variables:
            raise InventoryError(f"{file} gives the host {name} no ansible_host")
        addresses[name] = ipaddress.IPv4Address(variables["ansible_host"])
    network = network_of(addresses)
    for name, address in addresses.items():
        if address not in network or address == control_address(network):
            raise InventoryError(
                f"{name}: the lab needs all addresses in one network of 24 bits, the first being "
                f"its own: {address} is not in {network}, or is {control_address(network)}"
            )
    if len(set(addresses.values())) < len(addresses):
        raise InventoryError(f"{file} gives two hosts the same address")
    return addresses


def network_of(addresses: dict[str, ipaddress.IPv4Address]) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network((next(iter(addresses.values())), 24), strict=False)


def control_address(network: ipaddress.IPv4Network) -> ipaddress.IPv4Address:
    """The address of the control node, which is also the hosts' gateway and package mirror."""
    return network[1]
