"""Differences that stay: a file for each cause in tests/compat/known, with the reason.

reason = "why it stays"
counts = "same"           # or "refused", or "different": as what its statements are counted
variants = ["local"]      # all without this line

[[where]]                 # regular expressions, found in the text; all that are there must match
file = "stats"            # the whole name
statement = "stats_reset"
detail = "row 1"          # of the report
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.compat.runner import Finding

DIRECTORY = Path(__file__).parent / "known"
CLASSES = ("same", "refused", "different")
KEYS = {"reason", "counts", "variants", "where"}


@dataclass(frozen=True)
class Cause:
    name: str
    counts: str
    variants: tuple[str, ...]
    places: tuple[dict[str, str], ...]

    def explains(self, finding: Finding, variant: str) -> bool:
        if self.variants and variant not in self.variants:
            return False
        return any(matches(place, finding) for place in self.places)


def matches(place: dict[str, str], finding: Finding) -> bool:
    return (
        re.fullmatch(place.get("file", ".*"), finding.file) is not None
        and re.search(place.get("statement", ""), finding.text, re.IGNORECASE) is not None
        and re.search(place.get("detail", ""), finding.detail) is not None
    )


def read_causes() -> list[Cause]:
    return [read_cause(path) for path in sorted(DIRECTORY.glob("*.toml"))]


def read_cause(path: Path) -> Cause:
    content = tomllib.loads(path.read_text())
    if wrong := content.keys() - KEYS:
        raise ValueError(f"{path.name}: unknown {wrong}")
    if not content["reason"] or content["counts"] not in CLASSES or not content["where"]:
        raise ValueError(f"{path.name}: needs a reason, a class and places")
    return Cause(
        path.stem, content["counts"], tuple(content.get("variants", ())), tuple(content["where"])
    )
