"""The lab from the command line: `make lab` and `make lab-down`.

python -m tests.provisioning up                      boot the hosts of inventories/lab
python -m tests.provisioning control COMMAND...      run a program on the control node
python -m tests.provisioning shell HOST [COMMAND]    a shell on a host
python -m tests.provisioning host HOST power_loss    power_loss, power_off, boot, reboot, link_down, link_up
python -m tests.provisioning journal HOST            what the host wrote
python -m tests.provisioning down                    remove the lab, and all that were left behind
python -m tests.provisioning deb MAJOR               build the package in the release that has MAJOR
python -m tests.provisioning check MAJOR [PYTEST]    run the project's tests there, on that package
python -m tests.provisioning bench MAJOR [OPTIONS]   the same with its benchmarks
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from tests.provisioning import foreign
from tests.provisioning.commands import LabError
from tests.provisioning.inventory import InventoryError
from tests.provisioning.lab import INVENTORY, Lab, demolish_dead, why_impossible
from tests.provisioning.root import MAJORS

ACTIONS = ("power_loss", "power_off", "boot", "reboot", "link_down", "link_up")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="lab", description="Real Debian hosts on this machine.")
    parser.add_argument("--name", default="lab", help="labs of different names run at once")
    parser.add_argument("--inventory", type=Path, default=INVENTORY)
    parser.add_argument("--suite", choices=sorted(MAJORS), default="trixie")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="boot all hosts")
    commands.add_parser("down", help="remove the lab, and all that were left behind")
    control = commands.add_parser("control", help="run a program on the control node")
    control.add_argument("arguments", nargs=argparse.REMAINDER)
    shell = commands.add_parser("shell", help="a shell on a host, or a command there")
    shell.add_argument("host")
    shell.add_argument("arguments", nargs=argparse.REMAINDER)
    host = commands.add_parser("host", help="let something happen to a host")
    host.add_argument("host")
    host.add_argument("action", choices=ACTIONS)
    journal = commands.add_parser("journal", help="print a host's console and journal")
    journal.add_argument("host")
    deb = commands.add_parser("deb", help="build the package for a PostgreSQL not of this machine")
    deb.add_argument("major", type=int)
    for name, what in (("check", "tests"), ("bench", "benchmarks")):
        there = commands.add_parser(
            name, help=f"run the {what} on a PostgreSQL not of this machine"
        )
        there.add_argument("major", type=int)
        there.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args()


def up(lab: Lab) -> None:
    start = time.monotonic()
    lab.start()
    print(f"{len(lab.hosts)} hosts of Debian {lab.suite} after {time.monotonic() - start:.0f} s:")
    for host in lab.hosts:
        print(f"  {host.name:12} {host.address}  {host.state()}")
    print(
        f"Reach them through the control node: {sys.executable} -m tests.provisioning control ..."
    )


def use_foreign(arguments: argparse.Namespace) -> None:
    if reason := why_impossible():
        raise LabError(f"the root of another release cannot be entered here: {reason}")
    if arguments.command == "deb":
        foreign.build_deb(arguments.major, foreign.TREE / "dist")
        return
    run = foreign.run_tests if arguments.command == "check" else foreign.run_benchmarks
    sys.exit(run(arguments.major, arguments.arguments))


def main() -> None:
    arguments = parse_arguments()
    if arguments.command in ("deb", "check", "bench"):
        use_foreign(arguments)
        return
    lab = Lab(arguments.inventory, arguments.name, arguments.suite)
    if arguments.command == "up":
        up(lab)
        return
    if arguments.command == "down":
        lab.stop()
        for name in demolish_dead():
            print(f"Removed the lab {name}, which was left behind")
        return
    if not lab.is_running():
        raise LabError(f"no lab named {lab.name} runs here: make lab")
    match arguments.command:
        case "control":
            command = lab.control_command(arguments.arguments)
            os.execvpe(command[0], command, lab.environment())
        case "shell":
            command = " ".join(arguments.arguments) or "exec bash -l"
            done = lab.host(arguments.host).run(
                command, check=False, stdin=None, stdout=None, stderr=None
            )
            sys.exit(done.returncode)
        case "host":
            getattr(lab.host(arguments.host), arguments.action)()
        case "journal":
            print(lab.host(arguments.host).report())


if __name__ == "__main__":
    try:
        main()
    except (LabError, InventoryError, KeyError) as error:
        sys.exit(f"lab: {error.args[0]}")
