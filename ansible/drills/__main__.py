"""make drill: breaks the lab's cluster in every way listed, and prints what clients saw.

python -m drills [--lab lab] [--suite trixie] [--long] [--only WORD] [--runs 1] [--record FILE]
                 [--markdown FILE] [--junit FILE]

The lab has to run (make lab); without a cluster on it the playbook site.yml makes one.  --record
adds each row to a file of JSON lines; --markdown then has the rows of all times in it.  The status
is 1 when a row of this time failed.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from drills.drill import Row, run_drill
from drills.drills import LONG, SHORT
from drills.lab_faults import LabFaults
from drills.ledger import Outcome
from drills.report import to_markdown, write_junit

if TYPE_CHECKING:
    from tests.provisioning.lab import Lab
    from tests.provisioning.site import Site


def read_groups(inventory: Path) -> dict[str, list[str]]:
    """The hosts of the coordinator, of each worker group, and of etcd."""
    children = yaml.safe_load((inventory / "hosts.yml").read_text())["all"]["children"]
    groups = {"coordinator": children["coordinator"], **children["worker"]["children"]}
    groups["etcd"] = children["etcd"]
    return {name: list(group["hosts"]) for name, group in groups.items()}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="drills", description="Failover drills in the lab.")
    parser.add_argument("--lab", default="lab")
    parser.add_argument("--suite", default="trixie", help="of Debian, as the lab was booted")
    parser.add_argument("--inventory", type=Path, default=Path("inventories/lab"))
    parser.add_argument("--long", action="store_true", help="the long ones, too")
    parser.add_argument("--only", default="", help="drills whose name has this word")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--junit", type=Path)
    return parser.parse_args()


def read_record(file: Path) -> list[Row]:
    rows = []
    for line in file.read_text().splitlines():
        values = json.loads(line)
        values["outcome"] = Outcome(**values["outcome"])
        rows.append(Row(**values))
    return rows


def main() -> int:
    from tests.provisioning.lab import Lab  # only where there is a lab
    from tests.provisioning.site import Site

    arguments = parse_arguments()
    lab = Lab(arguments.inventory, arguments.lab, arguments.suite)
    if not lab.is_running():
        sys.exit(f"no lab named {arguments.lab} runs here: make lab")
    # clients of two at once would give the same numbers to their transfers
    with (lab.directory / "drills.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"drills of the lab {arguments.lab} run already")
        return run_drills(lab, Site(lab), arguments)


def run_drills(lab: Lab, site: Site, arguments: argparse.Namespace) -> int:
    site.converge()
    faults = LabFaults(lab, site, read_groups(arguments.inventory))
    rows: list[Row] = []
    for _ in range(arguments.runs):
        for drill in SHORT + (LONG if arguments.long else []):
            if arguments.only in drill.name:
                row = run_drill(drill, faults, site.conninfo())
                rows.append(row)
                print(to_markdown([row]).splitlines()[-1], flush=True)
                if arguments.record:
                    with arguments.record.open("a") as lines:
                        lines.write(json.dumps(asdict(row)) + "\n")
    if arguments.markdown:
        known = read_record(arguments.record) if arguments.record else rows
        names = [drill.name for drill in SHORT + LONG]
        known = [row for row in known if row.drill in names]
        arguments.markdown.write_text(
            to_markdown(sorted(known, key=lambda row: names.index(row.drill)))
        )
    if arguments.junit:
        write_junit(rows, arguments.junit)
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
