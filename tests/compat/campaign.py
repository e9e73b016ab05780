"""All files in one variant, and the table of what came out."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

from tests.cluster import Cluster
from tests.compat.compare import DIFFERENT, REFUSED, SAME
from tests.compat.environment import (
    isolation_schedule,
    new_cluster,
    prepare,
    schedule,
    tests_directory,
)
from tests.compat.isolation import run_spec
from tests.compat.known import read_causes
from tests.compat.runner import CRASH, Finding, Report, Runner
from tests.compat.session import LostError, Session
from tests.compat.variants import Distributor, Variant
from tests.waiting import wait_until

# They test the client.
NOT_SERVER = frozenset({"psql", "psql_crosstab"})
FIRST = "test_setup"
ISOLATION = "isolation/"  # in front of the names of these files


class Campaign:
    def __init__(self, files: list[str], out: Path):
        self.directory = tests_directory()
        self.files = files
        self.out = out
        self.reports: dict[str, list[Report]] = {}
        self.causes = read_causes()
        self.used: set[tuple[str, str]] = set()
        self.unexplained: list[str] = []
        out.mkdir(parents=True, exist_ok=True)

    def chosen(self) -> list[str]:
        known = schedule(self.directory)
        known += [ISOLATION + name for name in isolation_schedule(self.directory)]
        wanted = {FIRST, *self.files} if self.files else set(known)
        if unknown := set(self.files) - set(known):
            raise SystemExit(f"no such file: {', '.join(sorted(unknown))}")
        return [name for name in known if name in wanted - NOT_SERVER]

    def run(self, variant: Variant, root: Path) -> list[Report]:
        root.parent.chmod(0o755)
        reports = self.reports.setdefault(variant.name, [])
        with new_cluster(root) as cluster:
            variables = prepare(cluster, self.directory)
            distributors = []
            last = 0
            for name in self.chosen():
                begin = time.monotonic()
                report = Report(name)
                try:
                    last = self.run_file(
                        cluster, variant, name, variables, report, last, distributors
                    )
                except LostError as lost:
                    report.findings.append(Finding(name, 0, CRASH, "", str(lost), None))
                self.look_for_crashes(cluster, report)
                self.explain(variant, report)
                reports.append(report)
                print_line(variant, report, time.monotonic() - begin)
            self.write(variant, reports, distributors)
        return reports

    def run_file(self, cluster, variant, name, variables, report, last, distributors) -> int:
        if name.startswith(ISOLATION):
            path = self.directory / "isolation" / "specs" / f"{name.removeprefix(ISOLATION)}.spec"
            return run_spec(report, path.read_text(), cluster, variant, last)
        text = (self.directory / "regress" / "sql" / f"{name}.sql").read_text()
        sessions = [Session(node, variables) for node in (cluster.coordinator, cluster.plain)]
        distributor = Distributor(variant, sessions[0])
        distributor.last = last
        runner = Runner(name, text, *sessions, distributor)
        runner.report = report
        distributors.append((name, distributor))
        try:
            runner.run()
            for session in sessions:
                drop_publications(session)
        finally:
            for session in sessions:
                session.close()
        return distributor.last

    def look_for_crashes(self, cluster: Cluster, report: Report) -> None:
        for node in cluster.nodes:
            if lines := node.crashed():
                detail = "\n".join([node.name, *map(str, lines)])
                report.findings.append(Finding(report.file, 0, CRASH, "", detail, None))
                node.forgive_crash()
                for _ in wait_until(f"{node.name} answers"):
                    try:
                        node.disconnect()
                        node.query("SELECT 1")
                        break
                    except Exception:  # still recovering
                        continue

    def explain(self, variant: Variant, report: Report) -> None:
        """Count each finding as its cause says; what has none must not be, but for refusals of distributed tables."""
        for finding in report.findings:
            cause = next((c for c in self.causes if c.explains(finding, variant.name)), None)
            if cause is not None and finding.kind != CRASH:
                report.counts[finding.kind] -= 1
                report.counts[cause.counts] += 1
                finding.cause = cause.name
                self.used.add((variant.name, cause.name))
            elif finding.kind != REFUSED or variant.exact:
                self.unexplained.append(f"{variant.name}: {finding}")

    def write(self, variant: Variant, reports: list[Report], distributors) -> None:
        lines = [f"{finding}\n" for report in reports for finding in report.findings]
        (self.out / f"{variant.name}.txt").write_text("\n".join(lines))
        tables = [
            f"{name}: {distributor.count} distributed, {distributor.refused} not: {distributor.reasons}"
            for name, distributor in distributors
        ]
        (self.out / f"{variant.name}-tables.txt").write_text("\n".join(tables) + "\n")

    def summary(self) -> str:
        """Statements that stand in a transaction that only one server would have aborted are not among them."""
        lines = [f"{'variant':<10} {'statements':>10} {'same':>8} {'refused':>8} {'different':>10}"]
        for name, reports in self.reports.items():
            counts = sum((report.counts for report in reports), Counter())
            classes = [counts[kind] for kind in (SAME, REFUSED, DIFFERENT)]
            lines.append("{:<10} {:>10} {:>8} {:>8} {:>10}".format(name, sum(classes), *classes))
        return "\n".join(lines)

    def idle_causes(self) -> list[str]:
        """Causes that have explained nothing, though all files ran in one of their variants: they can go."""
        if self.files:
            return []
        return [
            cause.name
            for cause in self.causes
            if any(not cause.variants or name in cause.variants for name in self.reports)
            and not any(name == cause.name for _, name in self.used)
        ]


def drop_publications(session: Session) -> None:
    """Those of all tables, or of a schema, concern the files that follow; refused commands leave some."""
    session.connect("strata", "postgres")
    names = session.one("SELECT quote_ident(pubname) FROM pg_publication").rows
    for (name,) in names:
        session.run(f"DROP PUBLICATION {name}")


def print_line(variant: Variant, report: Report, seconds: float) -> None:
    counts = " ".join(f"{kind} {count}" for kind, count in sorted(report.counts.items()))
    print(f"{variant.name} {report.file}: {counts} ({seconds:.1f} s)", file=sys.stderr, flush=True)
    for finding in report.findings:
        if finding.kind == CRASH:
            print(f"  {finding}", file=sys.stderr, flush=True)
