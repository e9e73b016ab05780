"""What a chroot cannot have: left out of `make check-17` and `make check-18` by name, and told at the end of the run.

A pytest plugin (-p tests.provisioning.chroot), used by foreign.py.  A tool that Debian has is no reason to leave a
test out: it belongs to BUILDING in root.py.
"""

from __future__ import annotations

import pytest

# Beginnings of tests' names.
LEFT_OUT = {
    "tests/provisioning/": "hosts with systemd, virtual machines and Ansible, which `make check` tests on the"
    " machine itself",
    "tests/operations/test_local_cluster.py::test_the_role_sizes_a_host_likewise": "Ansible, which evaluates the role's defaults",
}


def place_of(item: pytest.Item) -> str | None:
    return next((place for place in LEFT_OUT if item.nodeid.startswith(place)), None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if place_of(item)]
    items[:] = [item for item in items if not place_of(item)]
    config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("left out, as a chroot cannot have it")
    for place, reason in LEFT_OUT.items():
        terminalreporter.write_line(f"{place}: {reason}")
