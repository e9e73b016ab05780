"""A move that dies at each of its steps, here or on a worker: the shard is whole, in one place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.cluster import Cluster, Node
from tests.fault_points import arm, disarm, dying, release, wait_for_arrival
from tests.fixtures import new_root
from tests.move.test_move_beside import orphans
from tests.waiting import patience, wait_until

ROWS = 400
STEPS = [
    "shard_move_prepared",
    "shard_move_copied",
    "shard_move_counted",
    "shard_move_published",
    "prepare_0",
    "prepare_sent_0",
    "prepared_0",
    "decision_written",
]
# an error there ends the server, too: what is committed cannot be rolled back
STEPS_AFTER_COMMIT = ["committed", "wire_sent_0", "wire_sent_1", "acknowledged"]
ROUNDS = [
    "shard_move_round",
    "shard_move_copied",
    "shard_move_locked",
    "shard_move_counted",
]


@contextlib.contextmanager
def make_groups() -> Iterator[Cluster]:
    """Tables t and u are one group, with a foreign key; w is written while it moves."""
    with Cluster(new_root(), workers=2, durable=True, assertions=True) as cluster:
        node = cluster.coordinator
        node.execute("ALTER SYSTEM SET strata.resolver_interval = '500ms'")
        node.execute("SELECT pg_reload_conf()")
        node.execute(
            "CREATE TABLE t (k integer PRIMARY KEY, v text); CREATE TABLE u (k integer, n integer);"
            "SELECT strata.create_distributed_table('t', 'k', 4);"
            "SELECT strata.create_distributed_table('u', 'k', colocate_with => 't', storage => 'heap');"
            "ALTER TABLE u ADD FOREIGN KEY (k) REFERENCES t;"
            f"INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, {ROWS}) AS g;"
            f"INSERT INTO u SELECT g, g FROM generate_series(1, {ROWS}) AS g;"
            "CREATE TABLE w (k integer PRIMARY KEY, n integer);"
            "SELECT strata.create_distributed_table('w', 'k', 2, colocate_with => 'none', storage => 'heap');"
            "INSERT INTO w SELECT g, g FROM generate_series(1, 3000) AS g"
        )
        yield cluster


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    with make_groups() as cluster:
        yield cluster


@pytest.fixture
def cluster(made: Cluster) -> Iterator[Cluster]:
    yield made
    disarm(made.coordinator)
    made.start()
    for each in made.nodes:
        each.forgive_crash()
        each.disconnect()


def choose_move(cluster: Cluster, table: str = "t") -> str:
    """Of a shard with rows to where it is not."""
    ((shard, worker),) = cluster.coordinator.query(
        "SELECT shard, CASE worker WHEN 'worker1' THEN 'worker2' ELSE 'worker1' END"
        f" FROM strata.shards WHERE relation = '{table}'::regclass ORDER BY shard LIMIT 1"
    )
    return f"SELECT strata.move_shard('{table}', {shard}, '{worker}')"


def check_rows(cluster: Cluster) -> None:
    """Each row is there once, wherever one looks, and nothing is left of what failed."""
    node = cluster.coordinator
    totals = "SELECT count(*), count(DISTINCT k), count(*) FILTER (WHERE k <= 400) FROM {}"
    for table in ("t", "u"):
        assert node.query(totals.format(table)) == [(ROWS, ROWS, ROWS)]
        assert sum(w.value(f"SELECT count(*) FROM {table}") for w in cluster.workers) == ROWS
        for key in range(1, ROWS, 37):
            assert node.query(f"SELECT count(*) FROM {table} WHERE k = {key}") == [(1,)]
    assert node.query("SELECT count(*) FROM t JOIN u USING (k)") == [(ROWS,)]
    shards = sum(
        w.value("SELECT count(*) FROM strata_worker.shard_list()") for w in cluster.workers
    )
    assert shards == 10
    node.execute(f"INSERT INTO t VALUES ({ROWS + 1}, ''); DELETE FROM t WHERE k = {ROWS + 1}")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        node.execute("DELETE FROM t WHERE k = 1")


def wait_until_resolved(cluster: Cluster) -> None:
    for _ in wait_until("nothing is prepared any more", timeout=patience(60)):
        if not any(worker.query("SELECT gid FROM pg_prepared_xacts") for worker in cluster.workers):
            return


def wait_until_back(cluster: Cluster) -> None:
    cluster.start()
    for node in cluster.nodes:
        node.wait_until_back()


@pytest.mark.sample(3)
@pytest.mark.parametrize("step", STEPS + STEPS_AFTER_COMMIT)
@pytest.mark.parametrize("action", ["error", "kill", "crash"])
def test_the_coordinator_dies(cluster: Cluster, step: str, action: str) -> None:
    node = cluster.coordinator
    move = choose_move(cluster)
    if action == "error" and step in STEPS:
        arm(node, (step, action))
        with pytest.raises(psycopg.errors.InternalError_):
            node.execute(move)
    else:
        with dying(node, (step, action)), pytest.raises(psycopg.Error):
            node.execute(move)
    wait_until_resolved(cluster)
    check_rows(cluster)


def move_one(node: Node, statement: str) -> None:
    with contextlib.suppress(psycopg.Error), node.connect() as session:
        session.execute(statement)


@pytest.mark.parametrize("step", ["shard_move_copied", "prepared_0", "decision_written"])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_worker_dies(cluster: Cluster, step: str, victim: int) -> None:
    node = cluster.coordinator
    arm(node, (step, "wait"))
    with ThreadPoolExecutor(1) as pool:
        move = pool.submit(move_one, node, choose_move(cluster))
        wait_for_arrival(node)
        cluster.workers[victim].kill()
        cluster.workers[victim].forgive_crash()
        release(node)
        move.result(patience(60))
    wait_until_back(cluster)
    wait_until_resolved(cluster)
    check_rows(cluster)


CHANGES = [
    "UPDATE w SET n = n + 1 WHERE k % 3 = 0",
    "DELETE FROM w WHERE k % 7 = 0",
    "INSERT INTO w SELECT k, -1 FROM generate_series(7, 3000, 14) AS k",
]
ALL = "SELECT k, n FROM w ORDER BY k"


def change_rows(rows: dict[int, int]) -> None:
    """What CHANGES do."""
    for k in list(rows):
        rows[k] += 1 if k % 3 == 0 else 0
        if k % 7 == 0:
            del rows[k]
    rows.update(dict.fromkeys(range(7, 3001, 14), -1))


def check_written(cluster: Cluster, rows: dict[int, int]) -> None:
    """Nothing is lost, doubled or left, and the shard can move."""
    wait_until_back(cluster)
    wait_until_resolved(cluster)
    node = cluster.coordinator
    assert node.query(ALL) == sorted(rows.items())
    check_rows(cluster)
    node.execute(choose_move(cluster, "w"))
    assert node.query(ALL) == sorted(rows.items())
    assert sum(w.value("SELECT count(*) FROM w") for w in cluster.workers) == len(rows)
    assert node.query("SELECT worker_name, detail FROM strata.check_health() WHERE NOT ok") == []


def move_beside(cluster: Cluster, go_on: Callable[[], None]) -> None:
    """Move, with CHANGES after the first round; `go_on` releases it and ends it at a later step."""
    node = cluster.coordinator
    rows: dict[int, int] = dict(node.query(ALL))
    arm(node, ("shard_move_filled", "wait"))
    with ThreadPoolExecutor(1) as pool:
        move = pool.submit(move_one, node, choose_move(cluster, "w"))
        wait_for_arrival(node)
        for change in CHANGES:
            node.execute(change)
        change_rows(rows)
        go_on()
        move.result(patience(60))
    check_written(cluster, rows)


@pytest.mark.sample(3)
@pytest.mark.parametrize("step", [*ROUNDS, "prepare_sent_0", "decision_written", "committed"])
@pytest.mark.parametrize("action", ["kill", "crash"])
def test_the_coordinator_dies_beside_writers(cluster: Cluster, step: str, action: str) -> None:
    node = cluster.coordinator

    def die() -> None:
        with dying(node, (step, action)):
            release(node)

    # a worker that was killed keeps files
    before = [orphans(worker) for worker in cluster.workers]
    move_beside(cluster, die)
    assert [orphans(worker) for worker in cluster.workers] == before


@pytest.mark.sample(3)
@pytest.mark.parametrize("step", [*ROUNDS, "prepared_0", "decision_written"])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_worker_dies_beside_writers(cluster: Cluster, step: str, victim: int) -> None:
    node = cluster.coordinator

    def kill() -> None:
        arm(node, (step, "wait"))
        release(node)
        wait_for_arrival(node)
        cluster.workers[victim].kill()
        cluster.workers[victim].forgive_crash()
        release(node)

    move_beside(cluster, kill)
