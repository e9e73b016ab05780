"""Rows of drills as Markdown for people and JUnit for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from xml.etree import ElementTree

from drills.drill import Row

HEADINGS = (
    "drill",
    "largest gap, s",
    "errors by class",
    "acknowledged",
    "lost",
    "doubled",
    "broken",
    "in doubt",
    "redundant after, s",
    "load",
    "verdict",
)


def cells(runs: Sequence[Row]) -> list[str]:
    """Of all runs of one drill: what is counted is summed, what is measured stands side by side."""
    outcomes = [row.outcome for row in runs]
    errors = sum((Counter(outcome.errors) for outcome in outcomes), Counter())
    counted = ("acknowledged", "lost", "doubled", "broken", "in_doubt")
    sums = [str(sum(getattr(outcome, name) for outcome in outcomes)) for name in counted]
    faults = [fault for row in runs for fault in row.faults]
    passed = sum(row.passed for row in runs)
    verdict = (
        f"{passed} of {len(runs)} passed" if len(runs) > 1 else "passed" if passed else "FAILED"
    )
    return [
        runs[0].drill,
        ", ".join(f"{outcome.gap:.1f}" for outcome in outcomes),
        ", ".join(f"{name}: {count}" for name, count in sorted(errors.items())) or "none",
        *sums,
        ", ".join(
            f"{row.redundant_after:.0f}" if row.redundant_after >= 0 else "never" for row in runs
        ),
        ", ".join(f"{row.load:.0f}" for row in runs),
        verdict if not faults else f"{verdict}: {'; '.join(faults)}",
    ]


def to_markdown(rows: Sequence[Row]) -> str:
    """A line for each drill; the runs of one drill follow each other in `rows`."""
    lines = [HEADINGS, ["---"] * len(HEADINGS)]
    lines += [cells(list(runs)) for _, runs in groupby(rows, key=attrgetter("drill"))]
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
