"""Pair: the coordinator and the plain server side by side, each with one session in one schema.

What is done to a pair is done to both, except distributing a table: that only the coordinator
can.  After that `pair.same(query)` says whether they still behave alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from tests.assert_same import Row, assert_same
from tests.cluster import Cluster, fetch_rows

GATHER = "Strata Gather"


class Pair:
    def __init__(self, cluster: Cluster, schema: str):
        self.cluster = cluster
        self.schema = schema
        self.connect()
        for connection in (self._ours, self._theirs):
            connection.execute(
                sql.SQL("DROP SCHEMA IF EXISTS {0} CASCADE; CREATE SCHEMA {0}").format(
                    sql.Identifier(schema)
                )
            )

    def connect(self) -> None:
        self._ours = self.cluster.coordinator.connect()
        self._theirs = self.cluster.plain.connect()
        for connection in (self._ours, self._theirs):
            self._set_search_path(connection)

    def _set_search_path(self, connection: psycopg.Connection) -> None:
        connection.execute(
            sql.SQL("SET search_path = {}, public, strata").format(sql.Identifier(self.schema))
        )

    @property
    def ours(self) -> psycopg.Connection:
        """The session on the coordinator; a new one when a crash ended the last."""
        if self._ours.closed:
            self._ours = self.cluster.coordinator.connect()
            self._set_search_path(self._ours)
        return self._ours

    @property
    def theirs(self) -> psycopg.Connection:
        return self._theirs

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()

    # ---- both ----

    def execute(self, statements: str) -> None:
        """Statements without results, on both."""
        self.theirs.execute(statements)
        self.ours.execute(statements)

    def same(self, query: str, params=None, ordered: bool | None = None) -> list[Row]:
        """The statement does the same on both; its rows, as text."""
        return assert_same(
            self.cluster, query, params, ordered=ordered, connections=(self.ours, self.theirs)
        )

    def all_same(self, queries: Iterable[str]) -> None:
        for query in queries:
            self.same(query)

    def copy(self, command: str, data: str | bytes) -> None:
        """COPY ... FROM STDIN on both."""
        for connection in (self.theirs, self.ours):
            with connection.cursor().copy(command) as copy:
                copy.write(data)

    @contextmanager
    def transaction(self, end: str = "ROLLBACK", begin: str = "BEGIN") -> Iterator[None]:
        """A transaction on both, ended by `end`, or rolled back when the test fails inside it."""
        self.execute(begin)
        try:
            yield
            self.same(end)
        finally:
            self.reset()

    @contextmanager
    def under_policy(self, table: str, condition: str, *others: str) -> Iterator[None]:
        """On both as a role that may read these tables, of the first one the rows of a policy."""
        role = f"{self.schema}_reader"
        self.execute(
            f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role};"
            f"GRANT USAGE ON SCHEMA {self.schema} TO {role};"
            f"GRANT SELECT ON {', '.join([table, *others])} TO {role};"
            f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;"
            f"CREATE POLICY seen ON {table} USING ({condition}); SET ROLE {role}"
        )
        try:
            yield
        finally:
            self.execute(
                f"RESET ROLE; DROP POLICY seen ON {table}; ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;"
                f"DROP OWNED BY {role}; DROP ROLE {role}"
            )

    def reset(self) -> None:
        """Leave a transaction that a failed test left open."""
        for connection in (self.ours, self.theirs):
            if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                connection.execute("ROLLBACK")

    # ---- the coordinator only ----

    def distribute(
        self,
        table: str,
        key: str,
        colocate_with: str = "none",
        shards: int = 4,
        storage: str = "columnar",
    ) -> None:
        if colocate_with not in ("none", "default"):
            colocate_with = f"{self.schema}.{colocate_with}"
        self.ours.execute(
            "SELECT strata.create_distributed_table(%s::regclass, %s, shard_count => %s,"
            " colocate_with => %s, storage => %s)",
            (
                f"{self.schema}.{table}",
                key,
                None if colocate_with != "none" else shards,
                colocate_with,
                storage,
            ),
        )

    def reference(self, table: str, storage: str = "heap") -> None:
        self.ours.execute(
            "SELECT strata.create_reference_table(%s::regclass, %s)",
            (f"{self.schema}.{table}", storage),
        )

    def rows(self, query: str, params=None) -> list[tuple]:
        """The coordinator's rows."""
        return fetch_rows(self.ours.execute(query, params))

    def on_workers(self, query: str) -> list:
        """The single value that the query yields on each worker."""
        values = []
        for worker in self.cluster.workers:
            with worker.connection.transaction():
                worker.execute(f"SET LOCAL search_path = {self.schema}, public")
                values.append(worker.value(query))
        return values

    # ---- plans ----

    def explain(self, query: str, options: str = "COSTS OFF") -> str:
        return "\n".join(line for (line,) in self.rows(f"EXPLAIN ({options}) {query}"))

    def plan(self, query: str, options: str = "COSTS OFF") -> dict:
        """The plan's root node."""
        ((answer,),) = self.rows(f"EXPLAIN ({options}, FORMAT JSON) {query}")
        return (json.loads(answer) if isinstance(answer, str) else answer)[0]["Plan"]

    def nodes(self, query: str, options: str = "COSTS OFF") -> list[dict]:
        """All nodes of the plan, the root first."""
        return list(walk(self.plan(query, options)))

    def gathers(self, query: str, options: str = "COSTS OFF") -> list[dict]:
        """The distributed nodes of the plan."""
        return [node for node in self.nodes(query, options) if is_gather(node)]

    def every_remote_sql(self, query: str) -> str:
        """What the workers are asked for, by all distributed nodes of the plan."""
        return "\n".join(node["Remote SQL"] for node in self.gathers(query, "VERBOSE, COSTS OFF"))

    def remote_sql(self, query: str) -> str:
        """The SQL sent to the workers by a plan with exactly one distributed node."""
        gathers = self.gathers(query)
        assert len(gathers) == 1, self.explain(query)
        return gathers[0]["Remote SQL"]


def is_gather(node: dict) -> bool:
    return node.get("Custom Plan Provider") == GATHER


def walk(node: dict) -> Iterator[dict]:
    yield node
    for child in node.get("Plans", ()):
        yield from walk(child)


def workers_of(gather: dict) -> int:
    """How many workers a distributed node asks: the 1 of "1 of 2"."""
    return int(str(gather["Workers"]).split()[0])


@contextmanager
def open_pair(cluster: Cluster, schema: str) -> Iterator[Pair]:
    """A pair for a module or a test; its schema is dropped at the end."""
    pair = Pair(cluster, schema)
    try:
        yield pair
    finally:
        pair.close()
        for node in (cluster.coordinator, cluster.plain):
            with node.connect() as connection:
                connection.execute(
                    sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema))
                )
