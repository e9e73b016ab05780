"""Tables of a cluster with their twins in one PostgreSQL, whose shards move while the test does something else."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from tests.cluster import Cluster, Node
from tests.fault_points import arm, disarm, release, wait_for_arrival
from tests.waiting import patience


class Twins:
    """The coordinator, and one PostgreSQL with the same tables."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.node = cluster.coordinator
        assert cluster.plain is not None
        self.plain: Node = cluster.plain

    def change(self, *statements: str) -> None:
        for statement in statements:
            for node in (self.node, self.plain):
                node.execute(statement)

    def check_same(self, *queries: str) -> None:
        """They give the same, and the cluster is well."""
        for query in queries:
            assert self.node.query(query) == self.plain.query(query)
        faults = "SELECT worker_name, check_name, detail FROM strata.check_health() WHERE NOT ok"
        assert self.node.query(faults) == []

    def forget(self, *tables: str) -> None:
        disarm(self.node)
        self.change(f"DROP TABLE IF EXISTS {', '.join(tables)}")


class Table(Twins):
    """Table t."""

    def make(self, definition: str, options: str = "") -> None:
        self.change(f"CREATE TABLE t {definition}")
        self.node.execute(f"SELECT strata.create_distributed_table('t', 'k', 2{options})")

    def check(self) -> None:
        self.check_same("SELECT t::text FROM t ORDER BY 1")

    def home(self) -> tuple[Node, str]:
        """Where shard 0 is, and the name of the other worker."""
        ((worker,),) = self.node.query(
            "SELECT worker FROM strata.shards WHERE relation = 't'::regclass AND shard = 0"
        )
        here, other, *_ = sorted(self.cluster.workers, key=lambda each: each.name != worker)
        return here, other.name

    def move(self, worker: str | None = None) -> list:
        with self.node.connect() as session:
            return session.execute(
                f"SELECT strata.move_shard('t', 0, '{worker or self.home()[1]}')"
            ).fetchall()

    @contextmanager
    def moving(self, place: str = "shard_move_copied") -> Iterator[Future]:
        """While the rows that there were have been copied; then the move goes on."""
        arm(self.node, (place, "wait"))
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(self.move)
            wait_for_arrival(self.node)
            try:
                yield future
            finally:
                release(self.node)
                future.exception(patience(60))


def leaves(worker: Node) -> list[str]:
    return [
        name
        for (name,) in worker.query(
            "SELECT c.oid::regclass::text FROM pg_class AS c WHERE c.relname ~ '^t_s?0'"
            " AND c.relkind = 'r'"
        )
    ]
