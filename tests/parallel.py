"""How `make check` spreads the tests over processes (pytest-xdist): file by file, the lab's in one of them.

The lab's tests come last, when the other processes run out of work: its hosts have the machine to themselves,
and their failovers are timed.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling

LAB = "tests/provisioning/"


class ByFile(LoadScopeScheduling):
    """Each unit of work is a file, or all files of the lab."""

    def _split_scope(self, nodeid: str) -> str:
        return LAB if nodeid.startswith(LAB) else nodeid.split("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log) -> ByFile:
    return ByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.nodeid.startswith(LAB))
