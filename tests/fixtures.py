"""Fixtures and rules of every test run.

One cluster with a plain PostgreSQL beside it serves the whole session; each test works in a
schema of its own.  A failed test shows what the servers logged meanwhile, a crash found in a log
fails the test that ran, and with CI=true a skipped test is a failed one.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from psycopg import sql

from tests.cluster import Cluster, Node, crashes_of_destroyed, started_nodes
from tests.installation import older_pg_config, server_major
from tests.pair import Pair
from tests.twin import Twin

LOG_LINES = 60


def new_root() -> Path:
    return Path(tempfile.mkdtemp(prefix="strata-check-"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A coordinator, two workers, and `plain`, one PostgreSQL without Strata to compare with."""
    with Cluster(new_root(), workers=2, plain=True, assertions=True) as made:
        yield made


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., Cluster]]:
    """A function that makes further clusters, which live as long as the test."""
    made: list[Cluster] = []

    def make(**options) -> Cluster:
        new = Cluster(new_root(), **options)
        made.append(new)
        new.create()
        return new

    yield make
    for old in made:
        old.destroy()


@pytest.fixture
def schema(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A new schema named after the test, first in the search_path of coordinator and plain."""
    name = re.sub(r"\W", "_", request.node.name)[:40].lower()
    nodes = [cluster.coordinator, cluster.plain]
    for node in nodes:
        node.execute("RESET ALL")
        node.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
        node.execute(sql.SQL("SET search_path = {}, public, strata").format(sql.Identifier(name)))
    yield name
    for node in nodes:
        node.disconnect()
        node.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


@pytest.fixture
def as_role(pair: Pair) -> Iterator[Callable[[str], Twin]]:
    """Twins of roles, in the schema of the module's pair."""
    with ExitStack() as stack:
        yield lambda role: Twin(pair.cluster, role, pair.schema, stack)


@pytest.fixture(autouse=True)
def _no_server_crashes() -> Iterator[None]:
    """Fail the test during which a server crashed."""
    yield
    crashes = crashes_of_destroyed.copy()
    crashes_of_destroyed.clear()
    for node in started_nodes:
        crashes += [f"{node.name}: {line}" for line in node.crashed()]
        node.forgive_crash()
    if crashes:
        pytest.fail("a server crashed:\n" + "\n".join(crashes), pytrace=False)


# ---- which tests run when ------------------------------------------------------------------------

# too long for `make check-fast`: what kills, moves, waits or plays at random, and PostgreSQL's and TPC-H's
# own; of the columnar store, what measures memory, and the comparisons of each operator with each type
LONG = (
    "tests/compat/",
    "tests/failure/",
    "tests/fuzz/",
    "tests/history/",
    "tests/isolation/",
    "tests/move/",
    "tests/period/",
    "tests/provisioning/",
    "tests/tier/",
    "tests/tpch/",
    "tests/upgrade/",
    "extensions/columnar/test/test_batch_inserts.py",
    "extensions/columnar/test/test_crowds.py",
    "extensions/columnar/test/test_differential.py",
    "extensions/columnar/test/test_durability.py",
    "extensions/columnar/test/test_table_move.py",
    "extensions/columnar/test/test_unit.py",
    "extensions/columnar/test/test_vacuum_memory.py",
    "extensions/columnar/test/test_vector_",
)

# and each test whose first case took more than half a second; long.py makes the list
LONG_TESTS = frozenset(Path(__file__).with_name("long.txt").read_text().split())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--first-case", action="store_true", help="of a test with several cases only the first"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is `long` or `slow` by the rules above and below; leave out what is no test here.

    What needs a newer PostgreSQL than the one under test is none.
    """
    chosen, left_out = [], []
    tests: dict[str, list[pytest.Item]] = {}  # those that are chosen, by name
    for item in items:
        test = item.nodeid.partition("[")[0]
        if test.startswith(LONG) or test in LONG_TESTS:
            item.add_marker("long")
        since = item.get_closest_marker("since")
        newer = since is not None and server_major() < since.args[0]
        newer |= item.get_closest_marker("upgrade") is not None and older_pg_config() is None
        if newer or (config.option.first_case and test in tests):
            left_out.append(item)
        else:
            chosen.append(item)
            tests.setdefault(test, []).append(item)
    places: Counter[Path] = Counter()  # how many tests of each file were looked at
    for cases in tests.values():
        mark_sample(cases, places[cases[0].path])
        places[cases[0].path] += 1
    items[:] = chosen
    config.hook.pytest_deselected(items=left_out)


def mark_sample(cases: list[pytest.Item], place: int) -> None:
    """Of a test marked sample(n) `make check` runs each n-th case, `make check-slow` the others.

    `place`: the test's in its file.  Neighbours begin with different cases, so that each type or size
    which is a case of many tests is run by some of them.
    """
    sample = cases[0].get_closest_marker("sample")
    if sample is None:
        return
    step = min(sample.args[0], len(cases))
    for number, item in enumerate(cases):
        if (place + number) % step:
            item.add_marker("slow")


# ---- what the servers logged during a failed test ------------------------------------------------

_log_starts = pytest.StashKey[dict[str, int]]()


def log_name(node: Node) -> str:
    return str(node.log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_log_starts] = {log_name(node): node.log_size() for node in started_nodes}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = yield
    fail_skips_in_ci(report)
    if report.failed:
        starts = item.stash.get(_log_starts, {})
        for node in sorted(started_nodes, key=log_name):
            lines = node.log_text(starts.get(log_name(node), 0)).splitlines()[-LOG_LINES:]
            if lines:
                report.sections.append((f"log of {node.name}", "\n".join(lines)))
    return report


# ---- what was left out, and why ------------------------------------------------------------------


def reason_of_skip(report: pytest.TestReport | pytest.CollectReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def pytest_terminal_summary(terminalreporter) -> None:
    """End with the tests that did not run here, counted by their reasons."""
    skipped = terminalreporter.stats.get("skipped", [])
    if not skipped:
        return
    terminalreporter.section("left out")
    for reason, count in Counter(map(reason_of_skip, skipped)).most_common():
        tests = "1 test" if count == 1 else f"{count} tests"
        terminalreporter.write_line(f"{tests}: {reason}")


# ---- CI=true: nothing is skipped -----------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):
    report = yield
    fail_skips_in_ci(report)
    return report


def fail_skips_in_ci(report: pytest.TestReport | pytest.CollectReport) -> None:
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        report.longrepr = f"with CI=true every test has to run: {reason_of_skip(report)}"
        report.outcome = "failed"
