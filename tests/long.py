"""List the tests that are too long for `make check-fast` in tests/long.txt.

    make check PYTEST="--junitxml=check.xml" && python -m tests.long check.xml

A test is long when its first case, with what it sets up, took more than half a second beside three others on two cores.
Folders and files that are long as a whole stand in tests/fixtures.py and are not listed.
"""

from __future__ import annotations

import argparse
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from tests.fixtures import LONG

LIST = Path(__file__).with_name("long.txt")
LONGEST = 0.5  # seconds


def long_tests(junit: Path) -> list[str]:
    first: dict[str, float] = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        module = case.get("classname", "").replace(".", "/")
        test = f"{module}.py::{case.get('name', '').partition('[')[0]}"
        first.setdefault(test, float(case.get("time", 0)))
    return sorted(test for test, seconds in first.items() if seconds > LONGEST)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("junit", type=Path, help="what pytest --junitxml wrote")
    junit = parser.parse_args().junit
    LIST.write_text("".join(f"{test}\n" for test in long_tests(junit) if not test.startswith(LONG)))


if __name__ == "__main__":
    main()
