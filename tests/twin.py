"""Twin: one role's sessions on the coordinator and on the plain server, which must behave alike."""

from __future__ import annotations

from contextlib import ExitStack

from tests.assert_same import Row, assert_same, run
from tests.cluster import Cluster


class Twin:
    """One role's sessions on the coordinator and on the plain server."""

    def __init__(self, cluster: Cluster, role: str, schema: str, stack: ExitStack):
        self.cluster = cluster
        self.role = role
        self.search_path = f"SET search_path = {schema}, public, strata"
        self.ours = stack.enter_context(cluster.coordinator.connect(user=role))
        self.theirs = stack.enter_context(cluster.plain.connect(user=role))
        self.execute(self.search_path)

    def execute(self, statements: str) -> None:
        self.theirs.execute(statements)
        self.ours.execute(statements)

    def same(self, query: str, params=None) -> list[Row]:
        return assert_same(self.cluster, query, params, connections=(self.ours, self.theirs))

    def undone(self, *queries: str) -> list[list[Row]]:
        """The statements do the same; then they are rolled back."""
        self.execute("BEGIN")
        try:
            return [self.same(query) for query in queries]
        finally:
            self.execute("ROLLBACK")

    def denied(self, query: str) -> None:
        """Neither server allows it, and on the cluster no worker gets a connection for it."""
        theirs = run(self.theirs, query)
        assert theirs.sqlstate == "42501", f"plain: {theirs}\n{query}"
        with self.cluster.coordinator.connect(user=self.role) as fresh:
            fresh.execute(self.search_path)
            before = self.backends_on_workers()
            ours = run(fresh, query)
            assert ours.sqlstate == "42501", f"cluster: {ours}\n{query}"
            assert self.backends_on_workers() == before, "a worker was asked"
        # the rest of an error's text names nodes; what it is about is the same
        assert str(ours.message).splitlines()[0] == str(theirs.message).splitlines()[0]

    def backends_on_workers(self) -> list[tuple]:
        return [
            row
            for worker in self.cluster.workers
            for row in worker.query(
                "SELECT pid FROM pg_stat_activity WHERE usename = %s ORDER BY pid", (self.role,)
            )
        ]
