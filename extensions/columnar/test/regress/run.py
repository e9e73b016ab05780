"""PostgreSQL's own tests with default_table_access_method = columnar.

The core and isolation suites of the installed major version run twice, on heap and on columnar
tables, on private servers of this run.  A test passes if both print the same.  Where they do not,
every statement (permutation of an isolation test) that differs must be listed in differences.yml
with the reason; anything else fails the run, as do crashes and tables that columnar_verify()
complains of afterwards.

Heap on the same server is the oracle, not the expected files of the source package, which may be
of another minor version; how many tests differ from those is shown.

The planner's paths through ColumnarScan are off, so that plans stay comparable.  With
--custom-scan they are on: then any plan may differ, and rows are compared.

        python -m extensions.columnar.test.regress.run [--custom-scan] [--suite core|isolation]
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import yaml

from extensions.columnar.test.regress import source
from extensions.columnar.test.regress.transcript import (
    Difference,
    Kind,
    compare,
    compare_permutations,
    end_copies,
)
from tests.cluster import CRASH, SUPERUSER
from tests.installation import find_binaries, give_to_server, make_directory, run_as_server

LIST = Path(__file__).with_name("differences.yml")
RESULTS = source.CACHE.with_name("postgresql-tests")  # what was printed, to look at
SUITES = ("core", "isolation")
TIMEOUT = 1200  # seconds of one suite on one server

# As the build farm runs the suites; plans do not depend on when autovacuum comes.
SETTINGS = {
    "listen_addresses": "''",
    "autovacuum": "off",
    "fsync": "off",
    "max_prepared_transactions": "3",
    "log_line_prefix": "'%m %b[%p] %q%a '",
}
COLUMNAR = {"default_table_access_method": "columnar"}

# As pg_regress sets them for a database that it makes.
DATABASE_SETTINGS = {
    "lc_messages": "C",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "bytea_output": "hex",
    "timezone_abbreviations": "Default",
}


class SuiteError(Exception):
    """A suite could not be run to its end."""


# ---- servers -------------------------------------------------------------------------------------


class Server:
    """A PostgreSQL with the settings of the suites, below a directory of its own."""

    def __init__(self, root: Path, settings: dict[str, str]):
        self.root = root
        self.data = root / "data"
        self.log = root / "log"
        self.settings = SETTINGS | {"unix_socket_directories": f"'{root}'"} | settings

    def __enter__(self) -> Server:
        make_directory(self.root)
        arguments = ["-U", SUPERUSER, "--no-sync", "--no-locale", "--encoding=UTF8", "-A", "trust"]
        self._check([find_binaries() / "initdb", "-D", self.data, *arguments])
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in self.settings.items())
        self._check([*self._pg_ctl(), "-l", self.log, "start"])
        return self

    def __exit__(self, *_) -> None:
        run_as_server([*self._pg_ctl(), "-m", "immediate", "stop"], capture_output=True)

    def _pg_ctl(self) -> list:
        return [find_binaries() / "pg_ctl", "-D", self.data, "-w", "-s"]

    def _check(self, arguments: list) -> None:
        result = run_as_server(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if result.returncode != 0:
            raise SuiteError(f"{arguments[0]} failed: {result.stderr}{self.log_text()}")

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def connect(self, database: str) -> psycopg.Connection:
        return psycopg.connect(
            host=str(self.root), user=SUPERUSER, dbname=database, autocommit=True
        )

    def make_database(self, name: str) -> None:
        with self.connect("template1") as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS strata_columnar")
        with self.connect("postgres") as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template1")
            for setting, value in DATABASE_SETTINGS.items():
                connection.execute(f"ALTER DATABASE {name} SET {setting} TO '{value}'")

    def verify(self, database: str) -> list[str]:
        """What columnar_verify() says of the tables that the suite has left."""
        query = (
            "SELECT c.oid::regclass::text, v.problem FROM pg_class c JOIN pg_am a ON a.oid = c.relam,"
            " LATERAL strata_columnar.columnar_verify(c.oid::regclass) v WHERE a.amname = 'columnar'"
        )
        with self.connect(database) as connection:
            return [f"{table}: {problem}" for table, problem in connection.execute(query)]


# ---- running -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Suite:
    """The files of a suite in the source package, and how it is run."""

    name: str
    directory: Path  # below it sql or specs, expected, and the schedule

    @property
    def program(self) -> Path:
        if self.name == "core":
            return source.pgxs_program("regress", "pg_regress")
        return source.pgxs_program("isolation", "pg_isolation_regress")

    @property
    def schedule(self) -> Path:
        names = {"core": "parallel_schedule", "isolation": "isolation_schedule"}
        return self.directory / names[self.name]

    @property
    def tests(self) -> list[str]:
        """The tests of the schedule, in its order."""
        lines = self.schedule.read_text().splitlines()
        return [name for line in lines if line.startswith("test:") for name in line.split()[1:]]

    @property
    def database(self) -> str:
        return {"core": "regression", "isolation": "isolation_regression"}[self.name]

    def run(self, server: Server, output: Path) -> None:
        """Run all tests; what they printed is in output/results."""
        make_directory(output)
        server.make_database(self.database)
        arguments = [
            self.program,
            f"--bindir={find_binaries()}",
            f"--host={server.root}",
            f"--user={SUPERUSER}",
            "--use-existing",
            f"--dbname={self.database}",
            f"--inputdir={self.directory}",
            f"--outputdir={output}",
            f"--schedule={self.schedule}",
            "--max-concurrent-tests=20",
        ]
        if self.name == "core":
            arguments.append(f"--dlpath={self.directory}")
        # what fails is judged later, by what was printed
        result = run_as_server(arguments, capture_output=True, timeout=TIMEOUT)
        (output / "summary").write_text(result.stdout + result.stderr)
        if not re.search(r"tests passed|tests failed|failed tests ignored", result.stdout):
            raise SuiteError(
                f"{self.program.name}:\n{result.stdout[-2000:]}{result.stderr[-2000:]}"
            )

    def compare(self, test: str, heap: Path, columnar: Path) -> Iterator[Difference]:
        expected, got = (read(output / "results" / f"{test}.out") for output in (heap, columnar))
        if expected == got:
            return
        if self.name == "isolation":
            yield from compare_permutations(expected, got)
        else:
            yield from compare(read(self.directory / "sql" / f"{test}.sql"), expected, got)


def read(path: Path) -> str:
    return path.read_text(errors="surrogateescape") if path.exists() else ""


def prepare(unpacked: Path, root: Path) -> list[Suite]:
    """Copies of the suites in a directory that the servers may read, ready to run."""
    suites = []
    for name, directory in (("core", "regress"), ("isolation", "isolation")):
        copy = root / directory
        shutil.copytree(unpacked / "src/test" / directory, copy)
        suites.append(Suite(name, copy))
    for script in (root / "regress/sql").glob("*.sql"):
        script.write_text(end_copies(read(script)), errors="surrogateescape")
    source.build(unpacked, root / "regress")
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755)
    return suites


# ---- judging -------------------------------------------------------------------------------------


@dataclass
class Entry:
    """What differences.yml has about a test."""

    kinds: set[Kind] = field(default_factory=set)
    statements: list[tuple[re.Pattern, str]] = field(default_factory=list)

    def reason(self, difference: Difference) -> str | None:
        if difference.kind in self.kinds:
            return difference.kind.value
        for pattern, reason in self.statements:
            if pattern.search(difference.statement):
                return reason
        return None


class Listed:
    """differences.yml: reasons by name, and the tests with the statements that differ for them."""

    def __init__(self, path: Path, custom_scan: bool):
        content = yaml.safe_load(path.read_text())
        self.reasons: dict[str, str] = content["reasons"]
        self.any_plan = custom_scan
        self.tests = {
            suite: {test: self._entry(suite, test, items) for test, items in tests.items()}
            for suite, tests in content.items()
            if suite != "reasons"
        }

    def _entry(self, suite: str, test: str, items: list) -> Entry:
        entry = Entry()
        for item in items:
            if isinstance(item, str):
                entry.kinds.add(Kind(item))
                reasons = [item]
            else:
                reasons = list(item.values())
                entry.statements += [
                    (re.compile(pattern, re.IGNORECASE | re.DOTALL), reason)
                    for pattern, reason in item.items()
                ]
            for reason in reasons:
                if reason not in self.reasons:
                    raise SuiteError(f"{suite} {test}: there is no reason {reason}")
        return entry

    def reason(self, suite: str, test: str, difference: Difference) -> str | None:
        """Why this may differ; None if it may not."""
        if self.any_plan and difference.kind in (Kind.PLAN, Kind.ORDER):
            return difference.kind.value
        entry = self.tests.get(suite, {}).get(test)
        return entry.reason(difference) if entry else None


@dataclass
class Verdict:
    test: str
    reasons: Counter
    unlisted: list[Difference]


def judge(suite: Suite, heap: Path, columnar: Path, listed: Listed) -> list[Verdict]:
    verdicts = []
    for test in suite.tests:
        verdict = Verdict(test, Counter(), [])
        for difference in suite.compare(test, heap, columnar):
            reason = listed.reason(suite.name, test, difference)
            if reason is None:
                verdict.unlisted.append(difference)
            else:
                verdict.reasons[reason] += 1
        verdicts.append(verdict)
    return verdicts


def report(suite: Suite, verdicts: list[Verdict], heap: Path, listed: Listed) -> bool:
    """Print the table; were all differences listed?"""
    differing = [verdict for verdict in verdicts if verdict.reasons or verdict.unlisted]
    unlisted = [verdict for verdict in verdicts if verdict.unlisted]
    stale = set(listed.tests.get(suite.name, {})) - {verdict.test for verdict in differing}
    failed = re.search(r"(\d+) of \d+ tests failed", (heap / "summary").read_text())

    print(f"\n{suite.name}: {len(verdicts)} tests")
    print(f"  {len(verdicts) - len(differing):4} pass")
    print(f"  {len(differing) - len(unlisted):4} differ as listed")
    print(f"  {len(unlisted):4} differ otherwise")
    unexpected = failed.group(1) if failed else 0
    print(f"  (on heap {unexpected} differ from what the source package expects)")
    for verdict in differing:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(verdict.reasons.items()))
        print(f"  {verdict.test:32} {counts}{' NOT LISTED' if verdict.unlisted else ''}")
    if stale:
        print(f"  listed, but the same this time: {', '.join(sorted(stale))}")
    for verdict in unlisted:
        for difference in verdict.unlisted:
            print(f"\n--- {suite.name} {verdict.test}: {difference.statement}")
            print(f"--- heap:\n{difference.expected}\n--- columnar:\n{difference.got}")
    return not unlisted


# ---- all of it -----------------------------------------------------------------------------------


def run_everywhere(suite: Suite, servers: dict[str, Server], root: Path) -> dict[str, Path]:
    """Run a suite on both servers; the directories of what was printed."""
    outputs = {name: root / f"{name}-{suite.name}" for name in servers}
    failures = []

    def run(name: str) -> None:
        try:
            suite.run(servers[name], outputs[name])
        except (SuiteError, subprocess.TimeoutExpired, psycopg.Error) as error:
            failures.append(f"{suite.name} on {name}: {error}")

    threads = [threading.Thread(target=run, args=(name,)) for name in servers]
    for thread in threads:
        thread.start()
        # isolation tests mostly wait; the others would disturb each other's plans
        if suite.name == "core":
            thread.join()
    for thread in threads:
        thread.join()
    for name in servers:
        shutil.copytree(outputs[name], RESULTS / outputs[name].name, dirs_exist_ok=True)
    if failures:
        raise SuiteError("\n".join(failures))
    return outputs


def run_suites(names: list[str], custom_scan: bool, settings: dict[str, str]) -> bool:
    """Run the suites and print how they compare; True if nothing unexpected came out."""
    listed = Listed(LIST, custom_scan)
    shutil.rmtree(RESULTS, ignore_errors=True)
    columnar = COLUMNAR | {"strata_columnar.enable_custom_scan": "on" if custom_scan else "off"}
    good = True
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="strata-regress-")))
        suites = prepare(source.find(), root)
        give_to_server(root, 0o755)
        servers = {
            "heap": stack.enter_context(Server(root / "heap", settings)),
            "columnar": stack.enter_context(Server(root / "columnar", columnar | settings)),
        }
        for suite in suites:
            if suite.name not in names:
                continue
            outputs = run_everywhere(suite, servers, root)
            verdicts = judge(suite, outputs["heap"], outputs["columnar"], listed)
            good &= report(suite, verdicts, outputs["heap"], listed)
            for problem in servers["columnar"].verify(suite.database):
                print(f"columnar_verify(): {problem}")
                good = False
        for name, server in servers.items():
            shutil.copy(server.log, RESULTS / f"{name}.log")
            for line in filter(CRASH.search, server.log_text().splitlines()):
                print(f"{name}: {line}")
                good = False
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--custom-scan", action="store_true", help="with ColumnarScan")
    parser.add_argument("--suite", choices=SUITES, action="append", help="only this one")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of both servers"
    )
    arguments = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in arguments.set)
    try:
        good = run_suites(arguments.suite or list(SUITES), arguments.custom_scan, settings)
    except (SuiteError, source.SourceError) as error:
        print(error, file=sys.stderr)
        good = False
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
