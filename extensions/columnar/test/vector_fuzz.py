"""The fuzzer of vectors: random expressions and aggregates over random tables, on heap and on columnar.

    python -m extensions.columnar.test.vector_fuzz --count 1000          seeds 1 to 1000
    python -m extensions.columnar.test.vector_fuzz --seed 17 --count 1   what was printed as seed 17
    python -m extensions.columnar.test.vector_fuzz --seconds 3600        as many as there is time for
    ... --kernels off|avx2   first build a library whose kernels are of that instruction set only

A seed is a table, settings and some dozens of queries.  A difference is printed with its seed, as the
shortest query found that shows it and the table's definition; the run goes on and ends with exit
code 1.

What equal means: the same rows as a multiset, column names, types with modifiers, each value's text,
and the SQLSTATE of an error.  SQL leaves freedom in five places, and only there is less compared:

- Which of several equal values stands for a group, or is its min() or max() (1.0 or 1.00, -0 or 0, 1 mon
  or 30 days): numerics whose scales differ, floats, intervals and char(n) are shown as trim_scale(x),
  x + 0, justify_interval(x), rtrim(x).  They group and compare as they are, and each row's own value is
  compared exactly.
- The last digits of sums of floats, which depend on the order of the rows: sum() and avg() may differ by
  1e-12 of the sum of the absolute values, which is selected beside them (of float4 by 1e-4, it adds
  up in 24 bits).  Other statistics are asked of values that add up exactly, and may differ by
  1e-12 (the regression functions, which subtract sums of products, by 1e-9 of the result or of 1).
- Which of several errors comes first: where both sides fail, but not alike, heap has to fail in columnar's
  way when it is asked for a part of the query.
- In which order the conditions of WHERE are evaluated (a block that one condition rules out is not read,
  a sub-select that has become a join meets its own conditions first, one side of a join is not read when
  the other has no rows): where only heap fails, it has to answer as columnar does with the conditions in
  some order, or after the join.
- How many rows EXISTS, IN, min() and max() of a sub-select look at: columnar computes the rest of a block,
  too.  Where only a sub-select on columnar fails, heap has to fail so when it is asked for a part of
  the query, and so has columnar without decorrelation - or heap when asked for the conditions, which a
  join meets for rows that the sub-select never saw (see decorrelate.h).
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg

from extensions.columnar.test.differential import count_until, wait_for_recovery
from extensions.columnar.test.random_columns import TYPES
from extensions.columnar.test.random_expressions import Expr, boolean
from extensions.columnar.test.random_queries import INNER, Asker, Query
from extensions.columnar.test.random_tables import LARGE, World, know_columns, make_world
from extensions.columnar.test.servers import make_node
from extensions.columnar.test.twins import Twins
from tests.assert_same import Outcome, Row, remove_close_pairs
from tests.cluster import Cluster, Node

EXTENSIONS = Path(__file__).parents[2]

QUERIES = 40
QUERIES_OF_LARGE = 12
TIMEOUT = "SET statement_timeout = '60s'"
CANCELLED = "57014"
INTERNAL = ("XX", "57")  # classes of errors that no query may fail with

# ---- comparing -------------------------------------------------------------------------------------


def is_close(a: str, b: str, kind: str, bound: str | None) -> bool:
    x, y = float(a), float(b)
    if x == y or (math.isnan(x) and math.isnan(y)):
        return True
    if not (math.isfinite(x) and math.isfinite(y)):
        return False
    if kind == "fit":
        return math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-9)
    if kind == "close":
        return math.isclose(x, y, rel_tol=1e-12)
    relative = 1e-4 if kind == "sum4" else 1e-12
    return abs(x - y) <= relative * abs(float(bound or 0))


def same_row(a: Row, b: Row, tolerances: list[str]) -> bool:
    for n, kind in enumerate(tolerances):
        if a[n] == b[n]:
            continue
        if kind == "exact" or a[n] is None or b[n] is None:
            return False
        if kind == "bound":
            if not is_close(a[n], b[n], tolerances[n - 1], b[n]):
                return False
        elif not is_close(a[n], b[n], kind, b[n + 1] if kind in ("sum4", "sum8") else None):
            return False
    return True


def rows_difference(actual: list[Row], expected: list[Row], tolerances: list[str]) -> str:
    a, b = Counter(actual), Counter(expected)
    surplus, missing = list((a - b).elements()), list((b - a).elements())
    if any(kind != "exact" for kind in tolerances):
        exact = [n for n, kind in enumerate(tolerances) if kind == "exact"]
        surplus, missing = remove_close_pairs(
            surplus, missing, exact, lambda one, other: same_row(one, other, tolerances)
        )
    if not surplus and not missing:
        return ""
    return (
        f"columnar returns {len(actual)} rows, heap {len(expected)}\n"
        f"only columnar ({len(surplus)}): {surplus[:3]}\nonly heap ({len(missing)}): {missing[:3]}"
    )


def difference_of(actual: Outcome, expected: Outcome, tolerances: list[str]) -> str:
    head = (actual.sqlstate, actual.tag, actual.columns)
    if head != (expected.sqlstate, expected.tag, expected.columns):
        return f"columnar: {actual}\nheap:     {expected}"
    return rows_difference(actual.rows, expected.rows, tolerances)


# ---- running ---------------------------------------------------------------------------------------


@dataclass
class Failure:
    seed: int
    number: int  # of the query
    message: str
    world: World
    query: Query | None = None

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}, query {self.number}: {self.message}",
            "-- reproducer",
            self.world.script(),
        ]
        if self.query:
            lines.append(";\n".join(["DEALLOCATE ALL", *self.query.statements(), ""]))
        return "\n".join(lines)

    @property
    def kind(self) -> str:
        words = self.message.split("\n")[0]
        return "".join(c for c in words if not c.isdigit())[:70]


@dataclass
class Counts:
    queries: int = 0
    errors: int = 0  # queries that failed, alike
    freedom: int = 0  # queries whose errors differ as they may
    slow: int = 0


class Fuzzer:
    """Runs seeds on a server."""

    def __init__(self, node: Node, name: str = "vector_fuzz"):
        self.node = node
        self.name = name
        self.counts = Counts()

    @contextmanager
    def build(self, world: World) -> Iterator[Twins]:
        twins = Twins(self.node, self.name)
        try:
            for side in twins.sides:
                own = world.own_settings if side is twins.columnar else []
                side.execute(TYPES)
                for setting in (
                    TIMEOUT,
                    "SET plan_cache_mode = force_generic_plan",
                    *world.settings,
                    *own,
                ):
                    side.execute(setting)
                for _, sql in world.steps:
                    side.execute(sql)
            yield twins
        finally:
            try:
                twins.drop()
            except psycopg.OperationalError:
                twins.close()

    def run(self, seed: int, only: int | None = None) -> list[Failure]:
        """The seed's differences; a broken connection ends it."""
        rng = random.Random(f"vector {seed}")
        world = make_world(rng)
        failures = []
        number = -1
        query = None
        try:
            with self.build(world) as twins:
                asker = Asker(rng, know_columns(twins.heap, world.columns, seed % 1000), world.rows)
                for number in range(QUERIES_OF_LARGE if world.rows > LARGE else QUERIES):
                    query = asker.query()
                    if only is None or only == number:
                        difference = self.compare(twins, query)
                        if difference:
                            failures.append(Failure(seed, number, difference, world, query))
                query = None
                twins.verify()
        except (AssertionError, psycopg.Error) as error:
            failures.append(Failure(seed, number, f"{type(error).__name__}: {error}", world, query))
            wait_for_recovery(self.node)
        return failures

    def compare(self, twins: Twins, query: Query) -> str:
        """What is different, if anything."""
        statements = query.statements()
        self.counts.queries += max(1, len(statements) - 1)
        for statement in statements:
            expected = twins.heap.run(statement)
            if expected.sqlstate == CANCELLED:
                self.counts.slow += 1
                break
            actual = twins.columnar.run(statement)
            difference = difference_of(actual, expected, query.tolerances())
            if difference and self.is_freedom(twins, query, statement, actual, expected):
                self.counts.freedom += 1
            elif difference:
                return f"{difference}\n{statement}"
            self.counts.errors += expected.sqlstate is not None
            if expected.sqlstate and statement.startswith("PREPARE"):
                return ""
        if query.parameters:
            twins.execute("DEALLOCATE ALL")
        return ""

    def is_freedom(
        self, twins: Twins, query: Query, statement: str, actual: Outcome, expected: Outcome
    ) -> bool:
        """Which error comes first, and whether one does, may depend on the order of evaluation."""
        arguments = statement if statement.startswith("EXECUTE") else None
        if (actual.sqlstate or "").startswith(INTERNAL):
            return False
        if expected.sqlstate is None and not self.fails_by_itself(twins, query, statement, actual):
            if not meets_conditions_alone(query):
                return False
            query = Query(
                "groups", where=query.where, parameters=query.parameters, source=query.source
            )
        if actual.sqlstate is not None:
            return any(
                self.ask_heap(twins, part, arguments).sqlstate == actual.sqlstate
                for part in parts_of(query)
            )
        return any(
            not difference_of(actual, self.ask_heap(twins, other, arguments), query.tolerances())
            for other in itertools.chain(orders_of(query), filtered_late(query))
        )

    def fails_by_itself(self, twins: Twins, query: Query, statement: str, actual: Outcome) -> bool:
        """A sub-select that may end at its first row fails, though it was not made a join."""
        if actual.sqlstate is None or query.shape not in INNER:
            return False
        name = "strata_columnar.enable_decorrelation"
        ((before,),) = twins.columnar.execute(f"SHOW {name}")
        twins.columnar.execute(f"SET {name} = off; DISCARD PLANS")
        again = twins.columnar.run(statement)
        twins.columnar.execute(f"SET {name} = {before}; DISCARD PLANS")
        return again.sqlstate == actual.sqlstate

    def ask_heap(self, twins: Twins, query: Query, arguments: str | None) -> Outcome:
        if arguments is None:
            return twins.heap.run(query.statements()[0])
        twins.heap.run(query.statements()[0].replace("PREPARE p ", "PREPARE other ", 1))
        outcome = twins.heap.run(arguments.replace("EXECUTE p ", "EXECUTE other ", 1))
        twins.heap.run("DEALLOCATE other")
        return outcome

    # ---- shortening ----

    def differs(self, world: World, query: Query) -> str:
        try:
            with self.build(world) as twins:
                return self.compare(twins, query)
        except (AssertionError, psycopg.Error) as error:
            wait_for_recovery(self.node)
            return f"{type(error).__name__}: {error}" if "connection" in str(error) else ""

    def reduce(self, failure: Failure, seconds: float = 60) -> Failure:
        """A shorter query over a simpler table with the same sort of difference."""
        if failure.query is None:
            return failure
        end = time.monotonic() + seconds
        best = replace(failure)
        kind = failure.kind

        def still(world: World, query: Query) -> bool:
            message = self.differs(world, query)
            found = Failure(failure.seed, failure.number, message, world, query)
            if not message or found.kind[:20] != kind[:20]:
                return False
            best.message, best.world, best.query = message, world, query
            return True

        progress = still(best.world, best.query)
        while progress and time.monotonic() < end:
            progress = self.shorten_query(best, still, end)
            for world in simpler_worlds(best.world, best.query):
                progress = still(world, best.query) or progress
        return best

    def shorten_query(self, best: Failure, still, end: float) -> bool:
        progress = False
        found = True
        while found and time.monotonic() < end:
            found = any(
                len(str(query.statements())) < len(str(best.query.statements()))
                and still(best.world, query)
                for query in best.query.simpler()
            )
            progress = progress or found
        return progress


def meets_conditions_alone(query: Query) -> bool:
    """A sub-select that becomes a join does, for rows that no outer row asks for; values that depend on
    parameters alone are computed before rows are read, to exclude blocks; and for min() and max()
    core may read no more than the first row."""
    if query.parameters:
        return True
    only = query.items[0].sql if query.shape == "groups" and not query.keys else ""
    return (query.shape in INNER and query.shape != "member") or only.startswith(("min(", "max("))


def parts_of(query: Query) -> Iterator[Query]:
    """Queries with a single part of it, whose error is that part's."""
    for item in query.items:
        yield replace(query, items=(item,), having=())
    alone = Query(
        "groups",
        (Expr("count(*)", "int8"),),
        parameters=query.parameters,
        source=query.source if query.shape in ("groups", "rows") else "t",
    )
    for condition in query.where:
        yield replace(query, where=(condition,), having=())
        yield replace(alone, where=(condition,))
    for expression in (*query.keys, *query.items, *query.where, *query.having):
        for part in all_parts(expression):
            if part.type == "bool":
                yield replace(alone, where=(part,))
            yield replace(alone, items=(Expr("count({0})", "int8", (part,)),))


def all_parts(expression: Expr) -> Iterator[Expr]:
    for argument in expression.args:
        yield argument
        yield from all_parts(argument)


def orders_of(query: Query) -> Iterator[Query]:
    """The conditions in all orders, none evaluated where one before it is not true."""
    every = query.where
    if query.shape == "member":  # the join's condition
        every = (*every, boolean("({0} = {1})", query.items[0], query.keys[0]))
    if not 2 <= len(every) <= 5:
        return
    for conditions in itertools.permutations(every):
        sql = conditions[-1].sql
        for condition in reversed(conditions[:-1]):
            sql = f"CASE WHEN {condition.sql} THEN {sql} ELSE false END"
        yield replace(query, where=(Expr(sql, "bool"),))


def filtered_late(query: Query) -> Iterator[Query]:
    """The conditions where the join has its rows already."""
    if " JOIN " in query.source:
        late = replace(query, source=f"(SELECT * FROM {query.source} OFFSET 0) AS t")
        yield late
        yield from orders_of(late)


def simpler_worlds(world: World, query: Query) -> Iterator[World]:
    for number in range(len(world.settings)):
        yield replace(world, settings=world.settings[:number] + world.settings[number + 1 :])
    for number in range(len(world.own_settings)):
        own = world.own_settings
        yield replace(world, own_settings=own[:number] + own[number + 1 :])
    for number, (sort, _) in enumerate(world.steps):
        if sort in ("update", "delete", "analyze", "insert", "add") or (
            sort == "outer" and "u AS o" not in query.select()
        ):
            yield replace(world, steps=world.steps[:number] + world.steps[number + 1 :])


# ---- other instruction sets ------------------------------------------------------------------------


def use_kernels(node: Node, kernels: str, directory: Path) -> None:
    """Build the library with kernels of one sort (see the Makefile), and have new sessions load that.

    Which clone of a kernel runs is decided by the processor's own answer (CPUID) when the library is
    loaded; nothing in the environment of a server changes it.
    """
    sources = directory / "extensions"
    shutil.copytree(EXTENSIONS, sources, ignore=shutil.ignore_patterns("*.o", "*.so", "test"))
    command = ["make", "-s", "-j2", "-C", sources / "columnar", f"VECTOR_KERNELS={kernels}"]
    subprocess.run(command, check=True)
    library = directory / f"strata_columnar_{kernels}.so"
    shutil.copy(sources / "columnar" / "strata_columnar.so", library)
    directory.chmod(0o755)  # the account of the server has to read it
    node.execute(
        "UPDATE pg_proc SET probin = %s WHERE probin LIKE '%%strata_columnar'", (str(library),)
    )
    node.disconnect()


# ---- the program -----------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="first seed")
    parser.add_argument("--count", type=int, help="how many seeds")
    parser.add_argument("--seconds", type=float, help="how long (default: 60, without --count)")
    parser.add_argument("--kernels", choices=("off", "avx2"), help="build a library with these")
    parser.add_argument("--no-reduce", action="store_true", help="print queries as they were made")
    options = parser.parse_args()
    if options.count is None and options.seconds is None:
        options.seconds = 60
    with tempfile.TemporaryDirectory(prefix="strata-vectors-") as directory:
        Path(directory).chmod(0o755)  # the account of the server has to enter it
        with Cluster(Path(directory) / "server", workers=0, extension=False) as cluster:
            node = make_node(cluster)
            if options.kernels:
                use_kernels(node, options.kernels, Path(directory) / "built")
            return run(node, options)


def run(node: Node, options: argparse.Namespace) -> int:
    start = time.monotonic()
    fuzzer = Fuzzer(node)
    kinds: Counter = Counter()
    done = 0
    for number in count_until(options, start):
        elapsed = time.monotonic() - start
        if number and number % 100 == 0:
            print(
                f"{elapsed:.0f} s: {number} seeds, {fuzzer.counts}, {sum(kinds.values())} differences",
                flush=True,
            )
        for failure in fuzzer.run(options.seed + number):
            kinds[failure.kind] += 1
            if kinds[failure.kind] <= 3 and not options.no_reduce:
                counts = replace(fuzzer.counts)
                failure = fuzzer.reduce(failure)
                fuzzer.counts = counts
            print(
                failure
                if kinds[failure.kind] <= 3
                else f"seed {failure.seed}, query {failure.number}: {failure.kind}",
                flush=True,
            )
        done = number + 1
    crashes = node.crashed()
    print(
        f"{done} seeds, {fuzzer.counts}, {sum(kinds.values())} differences, {len(crashes)} crashes, {time.monotonic() - start:.0f} s"
    )
    for kind, count in kinds.most_common():
        print(f"{count:6} {kind}")
    return 1 if kinds or crashes else 0


if __name__ == "__main__":
    sys.exit(main())
