"""make drill: breaks the lab's cluster in every way listed, and prints what clients saw.

python -m drills --conninfo CONNINFO [--lab lab] [--long] [--only WORD] [--runs 1]
                 [--markdown FILE] [--junit FILE]

The lab has to run (make lab) with a cluster on it (ansible/site.yml).  Environment variables of
libpq (PGPASSFILE ...) reach the client.  The status is 1 when a row failed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

from drills.drills import LONG, SHORT, Row, run_drill
from drills.faults import LabFaults
from drills.report import to_markdown, write_junit


def read_groups(inventory: Path) -> dict[str, list[str]]:
    """The hosts of the coordinator and of each worker group."""
    children = yaml.safe_load((inventory / "hosts.yml").read_text())["all"]["children"]
    groups = {"coordinator": children["coordinator"], **children["worker"]["children"]}
    return {name: list(group["hosts"]) for name, group in groups.items()}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="drills", description="Failover drills in the lab.")
    parser.add_argument("--conninfo", required=True, help="as an application connects")
    parser.add_argument("--lab", default="lab")
    parser.add_argument("--database", default="app")
    parser.add_argument("--inventory", type=Path, default=Path("inventories/lab"))
    parser.add_argument("--long", action="store_true", help="the long ones, too")
    parser.add_argument("--only", default="", help="drills whose name has this word")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--junit", type=Path)
    return parser.parse_args()


def main() -> int:
    from tests.provisioning.lab import Lab  # only where there is a lab

    arguments = parse_arguments()
    lab = Lab(arguments.inventory, arguments.lab)
    if not lab.is_running():
        sys.exit(f"no lab named {arguments.lab} runs here: make lab")
    faults = LabFaults(lab, read_groups(arguments.inventory), arguments.database)
    rows: list[Row] = []
    for drill in SHORT + (LONG if arguments.long else []):
        if arguments.only not in drill.name:
            continue
        for _ in range(arguments.runs):
            rows.append(run_drill(drill, faults, arguments.conninfo))
            print(to_markdown(rows[-1:]).splitlines()[-1], flush=True)
    if arguments.markdown:
        arguments.markdown.write_text(to_markdown(rows))
    if arguments.junit:
        write_junit(rows, arguments.junit)
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
