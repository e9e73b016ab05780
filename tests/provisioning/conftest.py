"""The lab of the tests: all hosts of inventories/lab, booted once for all tests here.

Where hosts cannot be booted (not root, a program missing) the tests are skipped with the reason;
with CI=true that is a failure.  LAB_SUITE=bookworm boots Debian 12 in place of 13.
LAB=name takes a lab that `make lab LAB=name` has booted, and leaves it as it is then.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.provisioning.foreign import have_deb
from tests.provisioning.lab import Lab, why_impossible
from tests.provisioning.root import MAJORS
from tests.provisioning.site import DIST, Site

# one for each process: tests of two working trees may run at once
NAME = f"lab{os.getpid()}"
SUITE = os.environ.get("LAB_SUITE", "trixie")


@pytest.fixture(scope="package")
def _package(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where a cluster will be made: its Debian package is built while the hosts boot and their tests run."""
    with ThreadPoolExecutor(1) as background:
        if any("site" in item.fixturenames for item in request.session.items):
            background.submit(have_deb, MAJORS[SUITE], DIST)
        yield


@pytest.fixture(scope="package")
def lab(_package: None) -> Iterator[Lab]:
    if reason := why_impossible():
        pytest.skip(f"the lab of real hosts cannot run here: {reason}")
    running = Lab(name=os.environ.get("LAB", "lab"), suite=SUITE)
    if "LAB" in os.environ and running.is_running():
        yield running
        return
    with Lab(name=NAME, suite=SUITE) as made:
        yield made


@pytest.fixture(scope="package")
def site(lab: Lab) -> Site:
    """The cluster that the playbook makes of the lab's hosts."""
    made = Site(lab)
    made.converge()
    return made


@pytest.fixture(autouse=True)
def _heal(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test of the lab: its network is whole, its hosts are on."""
    yield
    if "lab" not in request.fixturenames:
        return
    lab = request.getfixturevalue("lab")
    lab.heal()
    for host in lab.hosts:
        if not host.is_on():
            host.boot()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "lab" in getattr(item, "fixturenames", ()):
            item.add_marker("long")
    # first those of bare hosts
    items.sort(key=lambda item: "site" in getattr(item, "fixturenames", ()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = yield
    lab = getattr(item, "funcargs", {}).get("lab")
    if report.failed and call.when == "call" and lab is not None:
        report.sections.append(("the hosts", lab.report()))
    return report
