"""Rows of drills as Markdown for people and JUnit for machines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from drills.drill import Row

HEADINGS = (
    "drill",
    "largest gap",
    "errors by class",
    "acknowledged",
    "lost",
    "doubled",
    "broken",
    "in doubt",
    "redundant after",
    "load",
    "verdict",
)


def cells(row: Row) -> list[str]:
    outcome = row.outcome
    errors = ", ".join(f"{name}: {count}" for name, count in outcome.errors.items())
    return [
        row.drill,
        f"{outcome.gap:.1f} s",
        errors or "none",
        str(outcome.acknowledged),
        str(outcome.lost),
        str(outcome.doubled),
        str(outcome.broken),
        str(outcome.in_doubt),
        f"{row.redundant_after:.0f} s" if row.redundant_after >= 0 else "never",
        f"{row.load:.0f}",
        "passed" if row.passed else "FAILED: " + "; ".join(row.faults),
    ]


def to_markdown(rows: Sequence[Row]) -> str:
    lines = [HEADINGS, ["---"] * len(HEADINGS), *(cells(row) for row in rows)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def write_junit(rows: Sequence[Row], path: Path) -> None:
    failures = sum(not row.passed for row in rows)
    suite = ElementTree.Element(
        "testsuite", name="drills", tests=str(len(rows)), failures=str(failures)
    )
    for row in rows:
        case = ElementTree.SubElement(suite, "testcase", classname="drills", name=row.drill)
        if not row.passed:
            failure = ElementTree.SubElement(case, "failure", message="; ".join(row.faults))
            failure.text = to_markdown([row])
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(suite).write(path, encoding="unicode", xml_declaration=True)
