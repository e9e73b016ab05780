"""The drills' ledger sees what it is made to see; rows and reports say so."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import psycopg
import pytest

from tests.cluster import Cluster, Node

sys.path.insert(0, str(Path(__file__).parents[2] / "ansible"))

from drills import drill as runner
from drills import report
from drills.drill import Drill, Row, run_drill
from drills.drills import at_leader
from drills.ledger import Ledger, Outcome

WORKERS = "SELECT strata.run_command_on_workers(%s)"


@pytest.fixture
def ledger(cluster: Cluster, schema: str) -> Iterator[Ledger]:
    ledger = Ledger(f"{cluster.coordinator.conninfo()} options='-csearch_path={schema},public'")
    ledger.create()
    yield ledger
    ledger.stop()


def write(ledger: Ledger, count: int) -> None:
    with ledger.connect() as connection:
        for _ in range(count):
            ledger._transfer(connection)


def test_a_healthy_cluster_loses_nothing(ledger: Ledger) -> None:
    write(ledger, 20)
    outcome = ledger.outcome()
    assert (outcome.acknowledged, outcome.errors) == (20, {})
    assert outcome.is_sound


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("DELETE FROM drill_entry WHERE n = {n}", "lost"),
        ("INSERT INTO drill_entry SELECT * FROM drill_entry WHERE n = {n}", "doubled"),
        ("DELETE FROM drill_entry WHERE n = {n} AND amount < 0", "broken"),
        ("UPDATE drill_entry SET amount = 7000 WHERE n = {n} AND amount > 0", "broken"),
    ],
)
def test_damage_is_found(ledger: Ledger, statement: str, what: str) -> None:
    write(ledger, 6)
    with ledger.connect() as connection:
        connection.execute(statement.format(n=ledger.first + 3))
    outcome = ledger.outcome()
    found = {name: getattr(outcome, name) for name in ("lost", "doubled", "broken")}
    assert found == {"lost": 0, "doubled": 0, "broken": 0} | {what: 1}
    row = Row("d", outcome, 1, 1, runner.judge(Drill("d", lambda _: None, 60), outcome, 1))
    assert not row.passed


def test_gaps_errors_and_lasting_damage_fail_a_drill() -> None:
    drill = Drill("d", lambda _: None, 5, errors_allowed=False)
    assert runner.judge(drill, Outcome(gap=4), 3) == []
    assert len(runner.judge(drill, Outcome(gap=6, errors={"08006": 1}, in_doubt=1), -1)) == 4


def test_reports_tell_every_row(tmp_path: Path) -> None:
    good = Row("good", Outcome(acknowledged=10, gap=1.5, errors={"08006": 2}), 12, 5)
    bad = Row("bad", Outcome(lost=1), -1, 5, ["1 lost", "not redundant again"])
    lines = report.to_markdown([good, bad]).splitlines()
    assert len(lines) == 4
    assert "08006: 2" in lines[2]
    assert "passed" in lines[2]
    assert "FAILED: 1 lost" in lines[3]
    again = Row("good", Outcome(acknowledged=5, gap=2.5, errors={"08006": 1}), 14, 5)
    (line,) = report.to_markdown([good, again]).splitlines()[2:]
    assert "| good | 1.5, 2.5 | 08006: 3 | 15 |" in line
    assert "| 12, 14 |" in line
    assert "2 of 2 passed" in line
    worse = Row("good", Outcome(gap=9), 14, 5, ["a gap of 9 s, more than 5 s"])
    (line,) = report.to_markdown([good, worse]).splitlines()[2:]
    assert "| 1 of 2 passed: a gap of 9 s, more than 5 s |" in line
    report.write_junit([good, bad], tmp_path / "junit.xml")
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")


class LocalFaults:
    """A cluster on this machine, whose servers somebody starts again."""

    def __init__(self, cluster: Cluster):
        self.nodes: dict[str, Node] = {"coordinator": cluster.coordinator}
        self.nodes |= {f"worker_{i}": node for i, node in enumerate(cluster.workers, 1)}

    def client_command(self, arguments: list[str]) -> list[str]:
        return arguments

    def leader(self, group: str) -> str:
        return group

    def is_redundant(self) -> bool:
        try:
            for node in self.nodes.values():
                node.connect(connect_timeout=2).close()
        except psycopg.Error:
            return False
        return True

    def repair(self) -> None:
        """Nothing: whoever kills a server starts it, too."""

    def kill_postgres(self, host: str) -> None:
        self.nodes[host].kill()
        threading.Timer(0.5, self.nodes[host].start).start()


@pytest.mark.parametrize("group", ["worker_1", "coordinator"])
def test_a_drill_runs_from_beginning_to_end(make_cluster, group: str, monkeypatch) -> None:
    monkeypatch.setattr(runner, "STEADY", 1)
    cluster = make_cluster(workers=2, durable=True)
    drill = Drill("kill", at_leader("kill_postgres", group), 60)
    row = run_drill(drill, LocalFaults(cluster), cluster.coordinator.conninfo())
    for node in cluster.nodes:
        node.forgive_crash()
    print(report.to_markdown([row]))
    assert row.faults == []
    assert row.outcome.acknowledged > 20
    assert row.outcome.errors
    assert row.outcome.gap > 0.5
