"""The differential fuzzer: generated statements on a cluster and on one plain PostgreSQL, compared exactly.

    python -m tests.fuzz --seconds 600 --seed 1      run that long, from that seed on
    python -m tests.fuzz --seed 17 --count 1         reproduce what was printed as seed 17
    python -m tests.fuzz --mode transactions ...     only these (or: queries, roles, ddl)
    python -m tests.fuzz --script FILE               compare the statements of a reproducer

A failure prints its seed and the statements that show it; the run goes on, and ends with
counters and exit code 1 when there was any.
"""

from __future__ import annotations

import argparse
import itertools
import re
import tempfile
import time
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from tests.assert_same import assert_same
from tests.cluster import Cluster
from tests.waiting import check_nothing_prepared

from . import ddl, generator, roles, schema, transactions

# Queries that plain PostgreSQL itself cannot answer in this time are left out.
PLAIN_TIMEOUT = "2s"
CLUSTER_TIMEOUT = "60s"
CANCELLED = "57014"

# What the cluster refuses: a feature, or to change rows of a reference table without a primary key.
REFUSED = ("0A000", "55000")

MODES = ("all", "queries", "transactions", "roles", "ddl")
PROGRESS_INTERVAL = 10.0
# settings strata.enable_... that have the value always, too
FORMS = (
    "decorrelation",
    "distinct_branches",
    "partner_keys",
    "reference_pushdown",
    "eager_aggregation",
    "late_columns",
)


@dataclass
class Failure:
    seed: int | str
    statements: list[str]
    message: str

    def __str__(self) -> str:
        script = ";\n".join(self.statements)
        return f"seed {self.seed}:\n{self.message}\n-- reproducer\n{script};\n"


@dataclass
class Report:
    queries: int = 0
    transactions: int = 0
    ddl: int = 0
    refused: int = 0
    statements: int = 0
    too_slow: int = 0
    features: Counter = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"{self.queries} queries, {self.transactions} transactions, {self.ddl} DDL scripts,"
            f" {self.refused} statements refused by the cluster,"
            f" {self.statements} statements compared,"
            f" {self.too_slow} too slow on plain PostgreSQL, {len(self.failures)} failures"
        ]
        counts = ", ".join(f"{name} {n}" for name, n in self.features.most_common())
        lines.append(f"features: {counts}")
        return "\n".join(lines)


class Fuzzer:
    """Both sessions, and what was found."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.report = Report()
        self.ours: psycopg.Connection | None = None
        self.theirs: psycopg.Connection | None = None

    def connect(self) -> None:
        """New sessions; needed again after a failure left one broken or in a transaction."""
        self.close()
        self.ours = self.cluster.coordinator.connect()
        self.theirs = self.cluster.plain.connect()
        self.ours.execute(f"SET statement_timeout = '{CLUSTER_TIMEOUT}'")
        self.theirs.execute(f"SET statement_timeout = '{PLAIN_TIMEOUT}'")
        for connection in (self.ours, self.theirs):
            connection.execute("SET search_path = public")
            connection.prepare_threshold = None

    def close(self) -> None:
        for connection in (self.ours, self.theirs):
            if connection is not None:
                connection.close()
        self.ours = self.theirs = None

    def create(self) -> None:
        for role in roles.ROLES:
            self.cluster.create_role(role)
        self.connect()
        for module in (schema, transactions, roles):
            for connection, distributed in ((self.theirs, False), (self.ours, True)):
                connection.execute("SET statement_timeout = 0")
                for statement in module.create_sql(distributed):
                    connection.execute(statement)
        self.connect()

    def drop(self) -> None:
        for connection in (self.theirs, self.ours):
            for statement in roles.drop_sql():
                connection.execute(statement)
            for module in (schema, transactions, ddl):
                connection.execute(f"DROP SCHEMA IF EXISTS {module.SCHEMA} CASCADE")

    def fail(self, seed: int | str, statements: list[str], error: Exception) -> None:
        self.report.failures.append(Failure(seed, statements, f"{type(error).__name__}: {error}"))
        self.connect()

    def run_seed(self, seed: int, mode: str = "all") -> None:
        if mode in ("all", "queries"):
            self.run_query(seed)
        if mode in ("all", "transactions"):
            self.run_transactions(seed)
        if mode in ("all", "roles"):
            self.run_as_role(seed)
        if mode == "ddl" or (mode == "all" and seed % 10 == 0):  # they take longer
            self.run_ddl(seed)

    def run_script(self, script: str) -> None:
        """Compare statement by statement; the tables of transactions.py are reset before."""
        for connection in (self.theirs, self.ours):
            for statement in transactions.reset_sql():
                connection.execute(statement)
        for statement in re.split(r";\s*\n", script):
            if statement.strip():
                try:
                    self.compare(statement, None)
                except (AssertionError, psycopg.Error) as error:
                    self.fail("script", [statement], error)

    # ---- queries ----

    def choose_forms(self, seed: int | str) -> None:
        """Every other query gets other forms, correlated sub-selects as joins, say, whatever that costs."""
        number = zlib.crc32(str(seed).encode())
        for bit, form in enumerate(FORMS):
            mode = "always" if number >> bit & 1 else "on"
            self.ours.execute(f"SET strata.enable_{form} = {mode}")

    def run_query(self, seed: int | str) -> None:
        query = generator.generate(seed)
        self.choose_forms(seed)
        self.report.queries += 1
        self.report.features.update(query.features)
        statements = query.statements()
        try:
            if query.param_types:
                self.run_prepared(query, statements)
            else:
                self.compare(query.sql, query.ordered)
        except (AssertionError, psycopg.Error) as error:
            self.fail(seed, statements, error)

    def run_as_role(self, seed: int | str) -> None:
        """A query by somebody else than the superuser, over views and under policies."""
        query = generator.generate(f"roles {seed}")
        role, statements = roles.choose(seed, query.statements())
        self.report.queries += 1
        self.report.features.update([*query.features, role])
        try:
            for connection in (self.ours, self.theirs):
                connection.execute(f"SET ROLE {role}")
            if query.param_types:
                self.run_prepared(query, statements)
            else:
                self.compare(statements[0], query.ordered)
            for connection in (self.ours, self.theirs):
                connection.execute("RESET ROLE")
        except (AssertionError, psycopg.Error) as error:
            self.fail(seed, [f"SET ROLE {role}", *statements], error)

    def run_prepared(self, query: generator.Query, statements: list[str]) -> None:
        """With a custom plan and with a generic one."""
        prepare, execute = statements
        for mode in ("force_custom_plan", "force_generic_plan"):
            for connection in (self.ours, self.theirs):
                connection.execute(f"SET plan_cache_mode = {mode}; DEALLOCATE ALL")
            self.compare(prepare, False)
            self.compare(execute, query.ordered)

    def compare(self, sql: str, ordered: bool | None) -> None:
        self.report.statements += 1
        try:
            assert_same(self.cluster, sql, ordered=ordered, connections=(self.ours, self.theirs))
        except AssertionError as error:
            if f"plain:   error {CANCELLED}" not in str(error):
                raise
            self.report.too_slow += 1

    # ---- transactions ----

    def run_transactions(self, seed: int | str) -> None:
        script = transactions.generate(seed)
        self.report.transactions += 1
        done: list[str] = []
        try:
            for connection in (self.theirs, self.ours):
                for statement in transactions.reset_sql():
                    connection.execute(statement)
            for statement in [*script, *transactions.state_sql()]:
                done.append(statement)
                self.report.features.update([statement.split()[0].lower()])
                self.compare(statement, None)
            check_nothing_prepared(self.cluster)
        except (AssertionError, TimeoutError, psycopg.Error) as error:
            self.fail(seed, done, error)

    # ---- DDL ----

    def run_ddl(self, seed: int | str) -> None:
        self.report.ddl += 1
        done: list[str] = []
        try:
            for connection, distributed in ((self.theirs, False), (self.ours, True)):
                for statement in ddl.create_sql(distributed):
                    connection.execute(statement)
            refused = False  # the rest of its transaction is left out
            for statement in ddl.generate(seed):
                if refused and statement in ("COMMIT", "ROLLBACK"):
                    refused = False
                elif not refused:
                    done.append(statement)
                    refused = self.compare_ddl(statement)
            self.compare_definitions()
            check_nothing_prepared(self.cluster)
        except (AssertionError, TimeoutError, psycopg.Error) as error:
            self.fail(seed, done, error)

    def compare_ddl(self, statement: str) -> bool:
        """Run it on both; True if that ended a transaction because the cluster refuses the statement."""
        self.report.statements += 1
        self.report.features.update([" ".join(statement.split()[:2]).lower()])
        ours = sqlstate_of(self.ours, statement)
        if ours in REFUSED:
            self.report.refused += 1
            inside = self.ours.info.transaction_status != psycopg.pq.TransactionStatus.IDLE
            if inside:
                self.ours.execute("ROLLBACK")
                self.theirs.execute("ROLLBACK")
            return inside
        theirs = sqlstate_of(self.theirs, statement)
        several = statement.startswith("ALTER TABLE") and "," in statement
        same = (ours is None) == (theirs is None) if several else ours == theirs
        assert same, f"cluster: {ours or 'ok'}, plain: {theirs or 'ok'}: {statement}"
        return False

    def compare_definitions(self) -> None:
        """The tables are the same on the coordinator, on each worker and on plain, and so are the rows."""
        for query in ddl.DEFINITIONS:
            expected = self.theirs.execute(query).fetchall()
            assert self.ours.execute(query).fetchall() == expected, query
            for worker in self.cluster.workers:
                there = worker.query(query)
                assert there == expected, f"{worker.name}: {query}: {there}, not {expected}"
        for table in ddl.TABLES:
            columns = self.theirs.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
                " AND NOT attisdropped ORDER BY attnum",
                (f"{ddl.SCHEMA}.{table}",),
            )
            for query in ddl.content_sql(table, [name for (name,) in columns]):
                self.compare(query, True)


def sqlstate_of(connection: psycopg.Connection, statement: str) -> str | None:
    """None when the statement succeeds."""
    try:
        connection.execute(statement)
    except psycopg.Error as error:
        return error.sqlstate or "lost"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--seconds", type=float, help="how long (default: until --count, else 60)")
    parser.add_argument("--count", type=int, help="how many seeds")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="first seed")
    parser.add_argument("--mode", choices=MODES, default="all")
    parser.add_argument("--script", type=Path, help="a file of statements, each ended by ;")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    if options.seconds is None and options.count is None:
        options.seconds = 60
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="strata-fuzz-") as directory:
        Path(directory).chmod(0o755)  # the account of the servers has to enter it
        with Cluster(
            Path(directory) / "cluster", options.workers, plain=True, assertions=True
        ) as cluster:
            return fuzz(cluster, options)


def fuzz(cluster: Cluster, options: argparse.Namespace) -> int:
    """Run seeds until the time or the count is over; print failures as they come."""
    fuzzer = Fuzzer(cluster)
    fuzzer.create()
    report = fuzzer.report
    if options.script:
        fuzzer.run_script(options.script.read_text())
        options.count = 0
    start = time.monotonic()
    next_line = PROGRESS_INTERVAL
    printed = 0
    for number in itertools.count():
        elapsed = time.monotonic() - start
        if elapsed > next_line:
            next_line += PROGRESS_INTERVAL
            print(
                f"{elapsed:.0f} s: {report.queries} queries,"
                f" {report.transactions} transactions, {printed} failures",
                flush=True,
            )
        if options.count is not None and number >= options.count:
            break
        if options.seconds is not None and elapsed >= options.seconds:
            break
        fuzzer.run_seed(options.seed + number, options.mode)
        for failure in report.failures[printed:]:
            print(failure, flush=True)
        printed = len(report.failures)
    fuzzer.close()
    for failure in report.failures[printed:]:
        print(failure)
    print(report)
    crashes = [f"{node.name}: {line}" for node in cluster.nodes for line in node.crashed()]
    for line in crashes:
        print(f"a server crashed: {line}")
    return 1 if report.failures or crashes else 0
