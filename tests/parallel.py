"""How `make check` spreads the tests over processes (pytest-xdist): file by file, the lab's in one of them.

The lab takes longest and mostly waits, so it begins at once.  Its timed failovers come last, when the other
processes run out of work.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling

LAB = "tests/provisioning/"
TIMED = LAB + "test_failover.py"


class ByFile(LoadScopeScheduling):
    """Each unit of work is a file, or all files of the lab."""

    def _split_scope(self, nodeid: str) -> str:
        return LAB if nodeid.startswith(LAB) else nodeid.split("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log) -> ByFile:
    return ByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: (not item.nodeid.startswith(LAB), item.nodeid.startswith(TIMED)))
