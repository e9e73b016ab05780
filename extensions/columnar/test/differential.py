"""The differential generator: random stories about tables, told on heap and on columnar, compared exactly.

    python -m extensions.columnar.test.differential --count 10000        seeds 1 to 10000
    python -m extensions.columnar.test.differential --seed 17 --count 1  what was printed as seed 17
    python -m extensions.columnar.test.differential --seconds 3600       as many as there is time for
    ... --reduce         drop statements of a failing story while it still fails
    ... --script FILE    tell the statements of a reproducer

A failure prints its seed and its statements; the run goes on and ends with exit code 1.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from extensions.columnar.test.random_columns import TYPES
from extensions.columnar.test.random_story import Step, Story
from extensions.columnar.test.servers import make_node
from extensions.columnar.test.twins import Side, Twins, outcome_difference
from tests.cluster import Cluster, Node
from tests.waiting import wait_until

LENGTHS = (8, 15, 30, 50)  # statements of a story, beside its beginning and end
TIMEOUT = "SET statement_timeout = '60s'"
MARKS = {"columnar": "-- columnar only\n", "elder": "-- older snapshot\n"}


@dataclass
class Failure:
    seed: int | str
    steps: list[Step]
    message: str

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.message}\n-- reproducer\n{script(self.steps)}"


def script(steps: list[Step]) -> str:
    lines = []
    for step in steps:
        if step.copy_from:
            lines.append(f"-- copy: {step.copy_from};")
        lines.append(MARKS.get(step.side, "") + f"{step.sql};")
    return "\n".join(lines)


class Teller:
    """Tells one story on fresh twins."""

    def __init__(self, node: Node, name: str = "differential"):
        self.twins = Twins(node, name)
        for side in self.twins.sides:
            side.execute(f"{TYPES}; {TIMEOUT}")
        self.elders = [self.twins.open_side(side.method) for side in self.twins.sides]
        for side in self.elders:
            self.twins.stack.callback(side.connection.close)
            side.execute(TIMEOUT)
        self.told: list[Step] = []

    def close(self) -> None:
        try:
            self.twins.drop()
        except psycopg.OperationalError:
            self.twins.close()

    def ask(self, query: str) -> list[tuple]:
        return self.twins.heap.execute(query)

    def tell(self, step: Step) -> None:
        self.told.append(step)
        if step.copy_from:
            self.twins.copy_in(step.sql, self.twins.heap.copy_out(step.copy_from))
        elif step.side == "columnar":
            self.tell_one(self.twins.columnar, step)
        elif step.side == "elder":
            expected, actual = (side.run(step.sql) for side in self.elders)
            difference = outcome_difference(actual, expected, ordered=True)
            assert not difference, f"older snapshot: {difference}\n{step.sql}"
        elif step.compare:
            self.twins.same(step.sql)
        else:
            for side in self.twins.sides:
                self.tell_one(side, step)

    def tell_one(self, side: Side, step: Step) -> None:
        outcome = side.run(step.sql)
        assert outcome.sqlstate is None, f"{side.method}: {outcome}\n{step.sql}"

    def tell_story(self, seed: int | str) -> None:
        story = Story(seed, self.ask)
        for step in story.begin():
            self.tell(step)
        for _ in range(story.rng.choice(LENGTHS)):
            for step in story.next(self.failed):
                self.tell(step)
                if self.failed:
                    break
        if self.failed:
            self.tell(story.finish("ROLLBACK"))
        for step in story.end():
            self.tell(step)
        self.twins.verify()

    @property
    def failed(self) -> bool:
        status = self.twins.heap.connection.info.transaction_status
        return status == psycopg.pq.TransactionStatus.INERROR


def attempt(
    node: Node, seed: int | str, steps: list[Step] | None = None, name: str = "differential"
) -> Failure | None:
    """Tell the story of the seed, or given steps; what went wrong, if anything."""
    teller = Teller(node, name)
    try:
        if steps is None:
            teller.tell_story(seed)
        else:
            for step in steps:
                teller.tell(step)
            teller.twins.reset()
            teller.twins.verify()
    except (AssertionError, psycopg.Error) as error:
        return Failure(seed, teller.told, f"{type(error).__name__}: {error}")
    finally:
        teller.close()
        wait_for_recovery(node)
    return None


def wait_for_recovery(node: Node) -> None:
    """After a crash the server comes back by itself."""
    for _ in wait_until("the server answers"):
        try:
            node.value("SELECT 1")
            return
        except psycopg.OperationalError:
            node.disconnect()


def reduce(node: Node, failure: Failure, name: str = "differential") -> Failure:
    """Leave out statements, many and then few at a time, while it still fails alike."""
    kind = failure_kind(failure.message)
    best = failure
    size = max(1, len(best.steps) // 2)
    while size:
        position = 0
        while position < len(best.steps):
            fewer = best.steps[:position] + best.steps[position + size :]
            found = attempt(node, best.seed, fewer, name)
            if found and failure_kind(found.message) == kind:
                best = Failure(best.seed, found.steps, found.message)
            else:
                position += size
        size //= 2
    return best


def failure_kind(message: str) -> str:
    """The message without what differs from one reproducer to a shorter one."""
    return re.sub(r"[\d'\"(),.-]+", "", message.split("\n")[0])[:60]


def parse_script(text: str) -> list[Step]:
    steps = []
    side, copy_from = "both", ""
    for statement in re.split(r";\s*\n", text):
        for line in (sql := statement.strip()).splitlines():
            if line.startswith("-- copy: "):
                copy_from = line.removeprefix("-- copy: ")
            for name, mark in MARKS.items():
                if line == mark.strip():
                    side = name
        sql = "\n".join(line for line in sql.splitlines() if not line.startswith("-- "))
        if sql:
            steps.append(Step(sql, side, side == "both" and not sql.startswith("SET "), copy_from))
            side, copy_from = "both", ""
    return steps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="first seed")
    parser.add_argument("--count", type=int, help="how many seeds")
    parser.add_argument("--seconds", type=float, help="how long (default: 60, without --count)")
    parser.add_argument("--reduce", action="store_true")
    parser.add_argument("--script", type=Path)
    options = parser.parse_args()
    if options.count is None and options.seconds is None:
        options.seconds = 60
    with tempfile.TemporaryDirectory(prefix="strata-differential-") as directory:
        Path(directory).chmod(0o755)  # the account of the server has to enter it
        with Cluster(Path(directory) / "server", workers=0, extension=False) as cluster:
            return run(make_node(cluster), options)


def count_until(options: argparse.Namespace, start: float) -> Iterator[int]:
    """0, 1, 2 ... until as many as --count, or --seconds have gone since the start."""
    for number in itertools.count():
        if options.count is not None and number >= options.count:
            return
        if options.seconds is not None and time.monotonic() - start >= options.seconds:
            return
        yield number


def run(node: Node, options: argparse.Namespace) -> int:
    start = time.monotonic()
    kinds: Counter = Counter()
    if options.script:
        failure = attempt(node, "script", parse_script(options.script.read_text()))
        print(failure or "no difference")
        return 1 if failure else 0
    done = 0
    for number in count_until(options, start):
        elapsed = time.monotonic() - start
        if number and number % 100 == 0:
            print(f"{elapsed:.0f} s: {number} stories, {sum(kinds.values())} failures", flush=True)
        failure = attempt(node, options.seed + number)
        if failure:
            kind = failure_kind(failure.message)
            kinds[kind] += 1
            if options.reduce and kinds[kind] == 1:
                failure = reduce(node, failure)
            print(failure if kinds[kind] <= 3 else f"seed {failure.seed}: {kind}", flush=True)
        done = number + 1
    crashes = node.crashed()
    print(
        f"{done} stories, {sum(kinds.values())} failures, {len(crashes)} crashes, {time.monotonic() - start:.0f} s"
    )
    for kind, count in kinds.most_common():
        print(f"{count:6} {kind}")
    return 1 if kinds or crashes else 0


if __name__ == "__main__":
    sys.exit(main())
