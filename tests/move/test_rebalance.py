"""Plans of moves make workers equal with no move too many, and the moves are made, or said not to be."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.fixtures import new_root
from tests.waiting import patience, wait_until

PLAN = "SELECT * FROM strata.plan_moves(%s::int[], %s::int[], %s::int[], %s::float8[], %s::int[], %s::int[], %s)"
PLACES = "SELECT relation::text, worker, count(*) FROM strata.shards GROUP BY 1, 2 ORDER BY 1, 2"


@pytest.mark.parametrize("seed", range(30))
def test_plans(cluster: Cluster, seed: int) -> None:
    """Whatever the state: what leaves is empty, the rest as equal as its largest shard allows, nothing moves in vain."""
    rng = random.Random(seed)
    workers = rng.sample(range(1, 20), rng.randint(1, 6))
    leaving = rng.sample(workers, rng.randint(0, len(workers) - 1) if seed % 2 else 0)
    threshold = rng.choice([0, 0.1, 0.5])
    shards = [
        (group, shard, rng.choice(workers), weigh(rng))
        for group in range(1, rng.randint(2, 4))
        for weigh in [
            rng.choice(
                [lambda _: 1.0, lambda r: r.random() * 100, lambda r: 2.0 ** r.randint(0, 20)]
            )
        ]
        for shard in range(rng.randint(1, 32))
    ]
    columns = [list(column) for column in zip(*shards, strict=True)]
    moves = cluster.coordinator.query(PLAN, (*columns, workers, leaving, threshold))
    place = {(group, shard): worker for group, shard, worker, _ in shards}
    weight = {(group, shard): size for group, shard, _, size in shards}
    for group, shard, source, target, drained in moves:
        assert place[group, shard] == source != target
        assert drained == (source in leaving)
        assert target in workers
        assert target not in leaving
        place[group, shard] = target
    staying = [worker for worker in workers if worker not in leaving]
    for group in {group for group, *_ in shards}:
        load = dict.fromkeys(staying, 0.0)
        for key, worker in place.items():
            if key[0] == group:
                load[worker] += weight[key]
        difference = max(load.values()) - min(load.values())
        heaviest = max(load, key=lambda worker: load[worker])
        on_heaviest = [
            weight[key] for key, worker in place.items() if key[0] == group and worker == heaviest
        ]
        average = sum(load.values()) / len(load)
        assert difference <= max(threshold * average, min(on_heaviest, default=0)) * (1 + 1e-9)
    moved = Counter((group, shard) for group, shard, *_ in moves)
    assert not moved or max(moved.values()) == 1


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    """Three servers, of which two are workers."""
    with Cluster(new_root(), workers=3) as cluster:
        cluster.coordinator.execute("SELECT strata.remove_worker('worker3')")
        yield cluster


@pytest.fixture
def grown(made: Cluster) -> Iterator[Cluster]:
    """Tables of three groups on two workers, and a third one that holds nothing."""
    node = made.coordinator
    node.execute(
        "CREATE TABLE a (k integer PRIMARY KEY, v text); CREATE TABLE b (k integer, n integer);"
        "CREATE TABLE c (k text); CREATE TABLE p (k integer, at date NOT NULL); CREATE TABLE r (k integer PRIMARY KEY);"
        "SELECT strata.create_distributed_table('a', 'k', 12, colocate_with => 'none');"
        "SELECT strata.create_distributed_table('b', 'k', colocate_with => 'a');"
        "SELECT strata.create_distributed_table('c', 'k', 6, colocate_with => 'none', storage => 'heap');"
        "SELECT strata.create_distributed_table('p', 'k', 3, colocate_with => 'none', partition_by => 'at', partition_interval => '1 month');"
        "SELECT strata.create_reference_table('r');"
        "INSERT INTO a SELECT g, repeat('x', g % 100) FROM generate_series(1, 3000) AS g; INSERT INTO b SELECT g, g FROM generate_series(1, 3000) AS g;"
        "INSERT INTO c SELECT g FROM generate_series(1, 3000) AS g; INSERT INTO p SELECT g, '2026-03-05' FROM generate_series(1, 3000) AS g"
    )
    node.execute("SELECT strata.add_worker('worker3', %s)", (conninfo(made),))
    yield made
    node.execute("DROP TABLE a, b, c, p, r; DROP TABLE IF EXISTS held")
    node.execute("SELECT strata.remove_worker('worker3') FROM strata.worker WHERE name = 'worker3'")


def conninfo(cluster: Cluster) -> str:
    return cluster.workers[2].conninfo(user=None)


def check_rows(cluster: Cluster) -> None:
    for table in ("a", "b", "c", "p"):
        assert cluster.coordinator.query(f"SELECT count(*), count(DISTINCT k) FROM {table}") == [
            (3000, 3000)
        ]
    assert cluster.coordinator.query("SELECT count(*) FROM a JOIN b USING (k)") == [(3000,)]
    faults = "SELECT worker_name, check_name, detail FROM strata.check_health() WHERE NOT ok"
    assert cluster.coordinator.query(faults) == []


def test_a_new_worker_gets_its_share_and_gives_it_back(grown: Cluster) -> None:
    node = grown.coordinator
    planned = node.query("SELECT relation::text, target FROM strata.rebalance_plan('count')")
    assert Counter(planned) == {("a", "worker3"): 4, ("c", "worker3"): 2, ("p", "worker3"): 1}
    assert node.query("SELECT strata.rebalance_start('count')") == [(7,)]
    node.execute("SELECT strata.rebalance_wait()")
    assert {count for _, _, count in node.query(PLACES)} == {1, 2, 4}
    status = "SELECT DISTINCT state, error, row_count > 0 FROM strata.rebalance_status"
    assert node.query(status) == [("done", None, True)]
    check_rows(grown)
    assert node.query("SELECT strata.rebalance_start('count')") == [(0,)]
    node.execute("SELECT strata.rebalance_wait()")
    node.execute("SELECT strata.remove_worker('worker3', drain => true)")
    assert {worker for _, worker, _ in node.query(PLACES)} == {"worker1", "worker2"}
    check_rows(grown)
    assert grown.workers[2].query(
        "SELECT count(*) FROM pg_class WHERE relname IN ('a', 'b', 'r')"
    ) == [(0,)]


def test_a_notice_says_what_is_to_be_done(grown: Cluster) -> None:
    node = grown.coordinator
    node.execute("SELECT strata.remove_worker('worker3')")
    with node.connect() as session:
        notices: list[str] = []
        session.add_notice_handler(
            lambda notice: notices.append(f"{notice.message_primary} {notice.message_hint}")
        )
        session.execute("SELECT strata.add_worker('worker3', %s)", (conninfo(grown),))
    assert any(
        "holds no shards yet" in notice and "rebalance_start" in notice for notice in notices
    )


def test_a_table_in_use_is_tried_again(grown: Cluster) -> None:
    node = grown.coordinator
    with node.connect() as other:
        other.execute("BEGIN; LOCK TABLE a, p, c IN SHARE UPDATE EXCLUSIVE MODE")
        assert node.query("SELECT strata.rebalance_start('rows', 'worker3')") == [(0,)]
        assert node.query("SELECT strata.rebalance_start('count')") == [(7,)]
        for _ in wait_until("it was tried"):
            if node.query("SELECT max(attempts) FROM strata.rebalance_status")[0][0] > 1:
                break
        with pytest.raises(psycopg.errors.ObjectInUse, match="already"):
            node.execute("SELECT strata.rebalance_start()")
        assert node.query("SELECT count(*) FROM b") == [(3000,)]
        assert node.query("SELECT count(*) FROM strata.rebalance_status WHERE state = 'done'") == [
            (0,)
        ]
        other.execute("COMMIT")
    node.execute("SELECT strata.rebalance_wait()")
    check_rows(grown)
    node.execute("SELECT strata.rebalance_start('count', 'worker3')")
    node.execute("SELECT strata.rebalance_wait()")
    check_rows(grown)


def test_what_cannot_move_is_said(grown: Cluster) -> None:
    node = grown.coordinator
    node.execute("SELECT strata.rebalance_start('count')")
    node.execute("SELECT strata.rebalance_stop()")
    for _ in wait_until("nothing runs", timeout=patience(60)):
        if node.query("SELECT count(*) FROM strata.rebalance_status WHERE state = 'running'") == [
            (0,)
        ]:
            break
    node.execute("SELECT strata.rebalance_wait()")
    node.execute("SELECT strata.rebalance_start('count')")
    grown.workers[2].stop()
    try:
        with pytest.raises(psycopg.Error, match="were not moved") as caught:
            node.execute("SELECT strata.rebalance_wait()")
        assert "worker3" in caught.value.diag.message_detail
    finally:
        grown.workers[2].start()
    for _ in wait_until("the worker is back", timeout=patience(60)):
        try:
            node.execute("SELECT strata.rebalance_start('count')")
            node.execute("SELECT strata.rebalance_wait()")
            break
        except psycopg.Error:
            continue
    check_rows(grown)
    node.execute("SELECT strata.rebalance_start('count', 'worker3')")
    node.execute("SELECT strata.rebalance_wait()")


def test_errors(grown: Cluster) -> None:
    node = grown.coordinator
    for call, state, words in (
        ("rebalance_plan('size')", "22023", "unknown strategy"),
        ("rebalance_plan(NULL)", "22023", "unknown strategy"),
        ("rebalance_plan(drain => 'nobody')", "42704", "does not exist"),
        ("rebalance_plan(threshold => 2)", "22023", "between 0 and 1"),
        ("rebalance_start('size')", "22023", "unknown strategy"),
        ("remove_worker('worker1')", "55006", "still holds shards"),
    ):
        with pytest.raises(psycopg.Error, match=words) as caught:
            node.execute(f"SELECT * FROM strata.{call}")
        assert caught.value.sqlstate == state
    for begin in (
        "BEGIN ISOLATION LEVEL REPEATABLE READ",
        "BEGIN; SELECT strata.rebalance_start('count')",
    ):
        with node.connect() as session:
            session.execute(begin)
            with pytest.raises(psycopg.errors.ActiveSqlTransaction):
                session.execute("SELECT strata.rebalance_wait()")
            session.execute("ROLLBACK")
    with pytest.raises(psycopg.Error, match="no worker is left"):
        node.execute("SELECT strata.plan_moves('{1}', '{0}', '{1}', '{1}', '{1}', '{1}', 0)")


def test_what_is_read_most_is_spread(grown: Cluster) -> None:
    """Equal shards, of which queries read those of one worker alone."""
    node = grown.coordinator
    node.execute(
        "CREATE TABLE warm (k integer, v integer);"
        "SELECT strata.create_distributed_table('warm', 'k', 6, colocate_with => 'none');"
        "INSERT INTO warm SELECT g, g FROM generate_series(1, 60000) AS g"
    )
    try:
        plan = "SELECT source, target, reason FROM strata.rebalance_plan(%s) WHERE relation = 'warm'::regclass"
        assert node.query(plan, ("count",)) == []
        busy = grown.workers[0]
        keys = [key for (key,) in busy.query("SELECT min(k) FROM warm GROUP BY tableoid")]
        assert len(keys) > 1
        for _ in wait_until("what was read is known"):
            for key in keys:
                node.query("SELECT sum(v) FROM warm WHERE k = %s", (key,))
            moves = node.query(plan, ("heat",))
            if moves:
                break
        assert {(source, reason) for source, _, reason in moves} == {
            (busy.name, f'worker "{busy.name}" has more heat')
        }
        assert busy.name not in {target for _, target, _ in moves}
        node.execute("SELECT strata.rebalance_start('heat')")
        node.execute("SELECT strata.rebalance_wait()")
        assert node.query("SELECT count(*), sum(v) FROM warm") == [(60000, 60000 * 60001 // 2)]
        assert len(busy.query("SELECT FROM warm GROUP BY tableoid")) == len(keys) - len(moves)
    finally:
        node.execute("DROP TABLE warm")
