"""Does every include follow the layers?

Each folder src/ that has a file `layers` is checked: its lines say which folders there are, and what the files of
each may include beside their own folder's.  A folder stands below all that it may use, so folders form no circle;
files must form none either.  Tests of PostgreSQL's version stand in extensions/common/compat/ alone.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def read_layers(path: Path) -> dict[str, set[str]]:
    """folder: used folders; `*` stands for all of the lines above, `-folder` takes one out."""
    layers: dict[str, set[str]] = {}
    for line in path.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        folder, _, words = line.partition(":")
        used = set(words.split())
        if "*" in used:
            used |= layers.keys()
        removed = {word for word in used if word.startswith("-")}
        used -= {"*", *removed, *(word[1:] for word in removed)}
        if unknown := used - layers.keys():
            raise SystemExit(f"{path}: {folder} uses {', '.join(unknown)}, which is not above it")
        layers[folder] = used
    return layers


def includes(src: Path) -> dict[Path, list[Path]]:
    """Of each file its own component's headers."""
    files = [path for path in src.rglob("*.[ch]") if not path.name.startswith("common_")]
    return {
        path: [src / name for name in INCLUDE.findall(path.read_text()) if (src / name).is_file()]
        for path in sorted(files)
    }


def folder_of(path: Path, src: Path) -> str:
    return str(path.relative_to(src).parent)


def find_circle(graph: dict[Path, list[Path]]) -> list[Path]:
    """Headers that include each other, in a row; empty if there are none."""
    done: set[Path] = set()

    def walk(path: Path, trail: list[Path]) -> list[Path]:
        if path in trail:
            return [*trail[trail.index(path) :], path]
        if path in done:
            return []
        for used in graph[path]:
            if circle := walk(used, [*trail, path]):
                return circle
        done.add(path)
        return []

    return next((circle for path in graph if (circle := walk(path, []))), [])


def check(src: Path) -> list[str]:
    layers = read_layers(src / "layers")
    graph = includes(src)
    faults = []
    for path, used in graph.items():
        folder = folder_of(path, src)
        if folder not in layers:
            faults.append(f"{path}: folder {folder} is not in {src}/layers")
            continue
        faults += [
            f"{path} includes {header.relative_to(src)}: {folder} may not use {folder_of(header, src)}"
            for header in used
            if folder_of(header, src) not in {folder, *layers[folder]}
        ]
    if circle := find_circle(graph):
        faults.append("circle: " + " -> ".join(str(path.relative_to(src)) for path in circle))
    return faults


def find_version_tests() -> list[str]:
    return [
        f"{path} tests PG_VERSION_NUM, which extensions/common/compat/ is for"
        for component in ("coordinator", "worker", "extensions")
        for path in sorted(Path(component).rglob("*.[ch]"))
        if "extensions/common/compat" not in str(path) and "PG_VERSION_NUM" in path.read_text()
    ]


def main() -> None:
    sources = sorted(path.parent for path in Path().glob("*/src/layers"))
    sources += sorted(path.parent for path in Path().glob("extensions/*/src/layers"))
    faults = [fault for src in sources for fault in check(src)] + find_version_tests()
    print("\n".join(faults), end="\n" if faults else "")
    sys.exit(1 if faults or not sources else 0)


if __name__ == "__main__":
    main()
