"""The lab's network: a bridge in a network namespace of its own, which is the control node.

Nothing is added to the machine's own namespace, so labs of the same addresses can run side by side.
Hosts have no way out but to the Debian mirror: its name stands in their /etc/hosts with the control
node's address, where two socats hand the connection over to the machine's namespace.
"""

from __future__ import annotations

import ipaddress
import subprocess
import urllib.parse
from pathlib import Path

from tests.provisioning import cgroup
from tests.provisioning.commands import run, wait_for

BRIDGE = "br0"
CHAINS = ("FORWARD", "INPUT", "OUTPUT")  # between hosts; to and from the control node
PORTS = {"http": 80, "https": 443}


def inside(namespace: str, *arguments: str | Path) -> list[str | Path]:
    """The command line that runs another one in a network namespace."""
    return ["ip", "netns", "exec", namespace, *arguments]


def exists(namespace: str) -> bool:
    return Path("/run/netns", namespace).exists()


def create_control(namespace: str, address: ipaddress.IPv4Address) -> None:
    run(["ip", "netns", "add", namespace])
    run(["ip", "-n", namespace, "link", "set", "lo", "up"])
    run(["ip", "-n", namespace, "link", "add", BRIDGE, "type", "bridge"])
    run(["ip", "-n", namespace, "addr", "add", f"{address}/24", "dev", BRIDGE])
    run(["ip", "-n", namespace, "link", "set", BRIDGE, "up"])


def create_host(
    control: str,
    namespace: str,
    port: str,
    address: ipaddress.IPv4Address,
    gateway: ipaddress.IPv4Address,
) -> None:
    """A namespace whose interface host0 is on the bridge; `port` names the bridge's end."""
    run(["ip", "netns", "add", namespace])
    run(
        ["ip", "-n", control, "link", "add", port, "type", "veth"]
        + ["peer", "name", "host0", "netns", namespace]
    )
    run(["ip", "-n", control, "link", "set", port, "master", BRIDGE, "up"])
    run(["ip", "-n", namespace, "addr", "add", f"{address}/24", "dev", "host0"])
    run(["ip", "-n", namespace, "link", "set", "lo", "up"])
    run(["ip", "-n", namespace, "link", "set", "host0", "up"])
    run(["ip", "-n", namespace, "route", "add", "default", "via", str(gateway)])


def delete(namespace: str) -> None:
    if exists(namespace):
        run(["ip", "netns", "delete", namespace])


def set_link(control: str, port: str, state: str) -> None:
    run(["ip", "-n", control, "link", "set", port, state])


def drop_rule(
    change: str, control: str, source: ipaddress.IPv4Address, to: ipaddress.IPv4Address
) -> None:
    """-A or -D the rule by which the bridge drops what one host sends to another."""
    rule = ["-p", "IPv4", "--ip-source", str(source), "--ip-destination", str(to), "-j", "DROP"]
    run(inside(control, "ebtables", change, "FORWARD", *rule))


def drop_all(control: str, side: str, address: ipaddress.IPv4Address) -> None:
    """The bridge drops all that this host sends (`side` source), or all that is sent to it."""
    rule = ["-p", "IPv4", f"--ip-{side}", str(address), "-j", "DROP"]
    for chain in CHAINS:
        run(inside(control, "ebtables", "-A", chain, *rule))


def forget_drop_rules(control: str) -> None:
    for chain in CHAINS:
        run(inside(control, "ebtables", "-F", chain))


def serve_mirror(
    mirror: str, control: str, address: ipaddress.IPv4Address, socket: Path, group: Path
) -> str:
    """Make the mirror reachable at the control node's address; returns the mirror's host name."""
    url = urllib.parse.urlsplit(mirror)
    port = url.port or PORTS[url.scheme]
    group.mkdir(parents=True)
    for command in (
        ["socat", f"UNIX-LISTEN:{socket},fork", f"TCP:{url.hostname}:{port}"],
        inside(
            control,
            "socat",
            f"TCP-LISTEN:{port},bind={address},fork,reuseaddr",
            f"UNIX-CONNECT:{socket}",
        ),
    ):
        subprocess.Popen(
            ["bash", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', group, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    wait_for("the proxy of the mirror listens", socket.exists, 10)
    wait_for("both socats run", lambda: len(cgroup.processes(group)) >= 2, 10)
    return url.hostname
