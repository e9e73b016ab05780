"""Policies of tiers: leaves move to where they belong, by age, by heat, or as they are pinned."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster, Node
from tests.fixtures import new_root
from tests.waiting import wait_until


def set_parameter(node: Node, name: str, value: str) -> None:
    node.execute(f"ALTER SYSTEM SET {name} = '{value}'")
    node.execute("SELECT pg_reload_conf()")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two workers with a fast tier of 1 TB, looked at five times a second."""
    with Cluster(new_root(), workers=2, plain=True) as made:
        set_parameter(made.coordinator, "strata.tier_interval", "200ms")
        set_parameter(made.coordinator, "strata.tier_bytes_per_second", "1GB")
        for worker in made.workers:
            set_parameter(worker, "strata_tiering.hot_capacity", "1TB")
        yield made


def make_days(node: Node, days: int = 10, rows: int = 3000, v: str = "g") -> None:
    """Table t with a leaf for each of the last days, on two shards; `v` is an expression of g."""
    node.execute("CREATE TABLE t (k integer, at timestamptz NOT NULL, v integer)")
    node.execute("CREATE INDEX ON t (k)")
    node.execute(
        f"INSERT INTO t SELECT g, date_trunc('day', now(), 'UTC') - d * interval '1 day' + interval '1 hour', {v}"
        f" FROM generate_series(0, {days - 1}) AS d, generate_series(1, {rows}) AS g"
    )
    node.query(
        "SELECT create_distributed_table('t', 'k', shard_count => 2,"
        " partition_by => 'at', partition_interval => '1 day')"
    )


def tiers(node: Node) -> dict[str, str]:
    """The tiers of t's leaves that have rows, by shard and how many days ago they began."""
    return {
        f"{shard}/{age}": tier
        for shard, age, tier in node.query(
            "SELECT shard, (now()::date - period_from::date), tier FROM strata.partitions"
            " WHERE relation = 't'::regclass AND period_from::date <= now()::date ORDER BY 1, 2"
        )
    }


def wait_for_tiers(node: Node, expected: dict[str, str]) -> None:
    found = None
    try:
        for _ in wait_until("all leaves are where they belong", 60):
            found = tiers(node)
            if found == expected:
                return
    except TimeoutError:
        moves = node.query("SELECT * FROM strata.tier_moves ORDER BY begun DESC LIMIT 20")
        raise AssertionError(f"{found}\n{moves}") from None


def days_in(cold: range, days: int = 10) -> dict[str, str]:
    return {
        f"{shard}/{age}": "cold" if age in cold else "hot"
        for shard in range(2)
        for age in range(days)
    }


SUM = "SELECT count(*), sum(v), count(DISTINCT at), sum(k) FROM t"


def test_old_leaves_become_cold_and_come_back(cluster: Cluster, schema: str) -> None:
    node = cluster.coordinator
    make_days(node)
    before = node.query(SUM)
    node.query("SELECT set_tier_policy('t', mode => 'age', age => '3 days', residence => '0 s')")
    # a leaf is old when its last moment is: today's is 0 days old, and 1, 2, and 3 end within 3 days
    wait_for_tiers(node, days_in(range(4, 10)))
    assert node.query(SUM) == before
    reasons = node.query(
        "SELECT DISTINCT from_tier, to_tier, reason, state FROM strata.tier_moves WHERE relation = 't'::regclass"
    )
    assert [row[:2] + row[3:] for row in reasons] == [("hot", "cold", "done")]
    assert node.query("SELECT count(*) FROM tier_plan('t')") == [(0,)]
    assert node.query(
        "SELECT DISTINCT tier, compression FROM strata.partitions WHERE relation = 't'::regclass ORDER BY 1"
    ) == [("cold", "cold"), ("hot", "hot")]
    # late rows
    node.execute("UPDATE t SET v = v + 1 WHERE k % 10 = 0")
    node.execute("INSERT INTO t SELECT 1, now() - interval '6 days', 1")
    after = node.query(SUM)
    assert after[0][0] == before[0][0] + 1
    node.query("SELECT set_tier_policy('t', mode => 'age', age => '7 days', residence => '0 s')")
    wait_for_tiers(node, days_in(range(8, 10)))
    assert node.query(SUM) == after


def test_pinned_leaves_and_their_indexes(cluster: Cluster, schema: str) -> None:
    node = cluster.coordinator
    make_days(node, days=2)
    index_places = (
        "SELECT DISTINCT coalesce(s.spcname, '') FROM pg_index AS i JOIN pg_class AS c ON c.oid = indexrelid"
        f" JOIN pg_class AS r ON r.oid = indrelid WHERE r.relnamespace = '{schema}'::regnamespace AND r.relkind = 'r'"
    ).replace(" WHERE", " LEFT JOIN pg_tablespace AS s ON s.oid = c.reltablespace WHERE")
    node.query("SELECT set_tier_policy('t', mode => 'pinned', tier => 'cold')")
    wait_for_tiers(node, days_in(range(2), 2))
    assert cluster.workers[0].query(index_places) == [("",)]
    node.query("SELECT set_tier_policy('t', mode => 'pinned', tier => 'hot')")
    wait_for_tiers(node, days_in(range(0), 2))
    node.query(
        "SELECT set_tier_policy('t', mode => 'pinned', tier => 'cold', index_tier => 'follow')"
    )
    wait_for_tiers(node, days_in(range(2), 2))
    assert ("cold",) in cluster.workers[0].query(index_places)
    node.query("SELECT set_tier_policy('t', mode => 'none')")
    assert node.query("SELECT count(*) FROM strata.tier_policy") == [(0,)]


def test_leaves_that_are_read_are_hot(cluster: Cluster, schema: str) -> None:
    """With room for some days only, those that queries read get it."""
    node = cluster.coordinator
    make_days(node, days=6, rows=150000, v="hashint4(g)")  # some 400 kB a leaf
    node.query("SELECT set_tier_policy('t', mode => 'pinned', tier => 'cold')")
    wait_for_tiers(node, days_in(range(6), 6))
    for worker in cluster.workers:
        worker.execute("VACUUM")  # autovacuum would change the used room by some leaves' bytes
    read = "SELECT sum(hashint4(v)) FROM t WHERE at >= now()::date - 3 AND at < now()::date - 1"
    for _ in range(20):
        node.query(read)
    sizes = [
        worker.value("SELECT used FROM strata_tiering.hot_room()") for worker in cluster.workers
    ]
    leaf = max(
        worker.value("SELECT max(bytes) FROM strata_tiering.leaf_states()")
        for worker in cluster.workers
    )
    try:
        for worker, size in zip(cluster.workers, sizes, strict=True):
            # 2.6 leaves below the low-water mark of 75 %
            set_parameter(
                worker, "strata_tiering.hot_capacity", f"{int((size + 2.6 * leaf) / 0.75)}"
            )
        node.query("SELECT set_tier_policy('t', mode => 'heat', residence => '0 s')")
        hot = {name: "hot" if name[2:] in ("2", "3") else "cold" for name in days_in(range(0), 6)}
        wait_for_tiers(node, hot)
        assert node.query("SELECT * FROM tier_plan('t')") == []  # and it stays so
    finally:
        for worker in cluster.workers:
            set_parameter(worker, "strata_tiering.hot_capacity", "1TB")


def test_numbers_have_an_age_too(cluster: Cluster, schema: str) -> None:
    node = cluster.coordinator
    node.execute("CREATE TABLE t (k integer, n bigint NOT NULL)")
    node.execute("INSERT INTO t SELECT g % 100, g FROM generate_series(0, 9999) AS g")
    node.query(
        "SELECT create_distributed_table('t', 'k', shard_count => 2,"
        " partition_by => 'n', partition_interval => '1000')"
    )
    node.query("SELECT set_tier_policy('t', mode => 'age', age => '4000')")
    expected = [(n * 1000, "cold" if n < 6 else "hot") for n in range(10) for _ in range(2)]
    for _ in wait_until("the low numbers are cold", 60):
        found = node.query(
            "SELECT period_from::bigint, tier FROM strata.partitions"
            " WHERE relation = 't'::regclass AND period_from::bigint BETWEEN 0 AND 9999 ORDER BY 1"
        )
        if found == expected:
            break
    assert node.query("SELECT count(*), sum(n) FROM t") == [(10000, 49995000)]


def test_switched_off_nothing_moves_but_is_planned(cluster: Cluster, schema: str) -> None:
    node = cluster.coordinator
    make_days(node, days=3)
    set_parameter(node, "strata.tiering", "off")
    try:
        node.query("SELECT set_tier_policy('t', mode => 'pinned', tier => 'cold')")
        for _ in wait_until("the workers know the policy"):
            planned = node.query("SELECT from_tier, to_tier FROM tier_plan('t')")
            if planned:
                break
        assert set(planned) == {("hot", "cold")}
        assert len(planned) >= 6
        for worker in cluster.workers:
            worker.query("SELECT strata_tiering.start()")
        assert tiers(node) == days_in(range(0), 3)
        moving = node.query(
            "SELECT next_move FROM strata.partitions WHERE relation = 't'::regclass AND bytes > 60000"
        )
        assert all(move.startswith("cold (") for (move,) in moving)
    finally:
        set_parameter(node, "strata.tiering", "on")
    wait_for_tiers(node, days_in(range(3), 3))


MISTAKES = (
    ("'t', 'warm'", "22023", "invalid mode"),
    ("'t', NULL", "22023", "invalid mode"),
    ("'t', 'age'", "22023", "needs an age"),
    ("'t', 'age', age => 'long'", "22023", "invalid age"),
    ("'t', 'age', age => '-1 day'", "22023", "invalid age"),
    ("'t', 'heat', age => '1 day'", "22023", "has no age"),
    ("'t', 'pinned'", "22023", "invalid tier"),
    ("'t', 'pinned', tier => 'warm'", "22023", "invalid tier"),
    ("'t', 'heat', tier => 'hot'", "22023", "invalid tier"),
    ("'t', 'heat', index_tier => 'x'", "22023", "invalid index_tier"),
    ("'t', 'heat', residence => '-1 s'", "22023", "invalid residence"),
    ("'whole', 'age', age => '1 day'", "55000", "has no periods"),
    ("'numbers', 'age', age => '1 day'", "22023", "invalid age"),
    ("'rows', 'heat'", "0A000", "cannot have a tier policy"),
    ("'here', 'heat'", "42809", "not a distributed table"),
    ("'small', 'heat'", "42809", "not a distributed table"),
)


def test_policies_that_make_no_sense(cluster: Cluster, schema: str) -> None:
    node = cluster.coordinator
    for name in ("t", "whole", "numbers", "rows", "here", "small"):
        node.execute(f"CREATE TABLE {name} (k integer, at timestamptz NOT NULL, n bigint NOT NULL)")
    periods = "shard_count => 2, partition_by => '{}', partition_interval => '{}'"
    for table, options in (
        ("t", periods.format("at", "1 day")),
        ("whole", "shard_count => 2"),
        ("numbers", periods.format("n", "100")),
        ("rows", "shard_count => 2, storage => 'heap'"),
    ):
        node.query(f"SELECT create_distributed_table('{table}', 'k', {options})")
    node.query("SELECT create_reference_table('small')")
    for arguments, sqlstate, message in MISTAKES:
        with pytest.raises(psycopg.Error, match=message) as caught:
            node.query(f"SELECT set_tier_policy({arguments})")
        assert caught.value.sqlstate == sqlstate, arguments


def test_only_owners_set_policies_and_only_readers_see_moves(cluster: Cluster, schema: str) -> None:
    node = cluster.coordinator
    cluster.create_role("tier_other")
    make_days(node, days=2)
    node.execute(f"GRANT USAGE ON SCHEMA {schema} TO tier_other")
    node.query("SELECT set_tier_policy('t', mode => 'pinned', tier => 'cold')")
    wait_for_tiers(node, days_in(range(2), 2))
    table = f"'{schema}.t'"
    seen = f"SELECT count(*) FROM strata.tier_moves WHERE relation = {table}::regclass"
    with psycopg.connect(node.conninfo(user="tier_other"), autocommit=True) as other:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="must be owner"):
            other.execute(f"SELECT strata.set_tier_policy({table}, 'heat')")
        assert other.execute(seen).fetchone() == (0,)
        node.execute("GRANT SELECT ON t TO tier_other")
        assert other.execute(seen).fetchone()[0] >= 4
    node.execute("DROP OWNED BY tier_other")


def test_a_dropped_table_takes_its_policy_along(cluster: Cluster, schema: str) -> None:
    node = cluster.coordinator
    make_days(node, days=2)
    node.query("SELECT set_tier_policy('t', mode => 'heat')")
    node.execute("ALTER TABLE t RENAME TO renamed")
    assert node.query("SELECT table_name, mode FROM strata.tier_policies()") == [
        ("renamed", "heat")
    ]
    node.execute("DROP TABLE renamed")
    assert node.query("SELECT count(*) FROM strata.tier_policies()") == [(0,)]
    for _ in wait_until("the policy is gone"):
        if node.query("SELECT count(*) FROM strata.tier_policy") == [(0,)]:
            break


def test_a_worker_that_stops_in_a_move_goes_on_later(cluster: Cluster, schema: str) -> None:
    node = cluster.coordinator
    make_days(node, days=6, rows=60000)
    before = node.query(SUM)
    set_parameter(node, "strata.tier_bytes_per_second", "200kB")
    try:
        node.query("SELECT set_tier_policy('t', mode => 'pinned', tier => 'cold')")
        for _ in wait_until("a move runs"):
            if node.query("SELECT 1 FROM strata.tier_moves WHERE state = 'running'"):
                break
        for worker in cluster.workers:
            worker.kill()
            worker.start()
    finally:
        set_parameter(node, "strata.tier_bytes_per_second", "1GB")
    wait_for_tiers(node, days_in(range(6), 6))
    assert node.query(SUM) == before
    assert ("lost",) in node.query("SELECT DISTINCT state FROM strata.tier_moves")
    for worker in cluster.workers:
        assert worker.query("SELECT count(*) FROM strata_columnar.table_move") == [(0,)]


def test_a_worker_without_tiers_is_named(cluster: Cluster, schema: str) -> None:
    node = cluster.coordinator
    node.execute("CREATE TABLE t (k integer)")
    node.query("SELECT create_distributed_table('t', 'k', shard_count => 2)")
    cluster.workers[1].execute("ALTER TABLESPACE cold RENAME TO cool")
    try:
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match='"cold"') as caught:
            node.query("SELECT set_tier_policy('t', 'heat')")
        assert "worker2" in str(caught.value)
    finally:
        cluster.workers[1].execute("ALTER TABLESPACE cool RENAME TO cold")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(bytes) FROM strata_tiering.leaf_list()",
        "SELECT count(*) FROM strata_tiering.plan(NULL)",
        "SELECT count(row_group) FROM strata_tiering.table_heat('{schema}.t')",
        "SELECT count(bytes) FROM strata_worker.shard_list()",
    ],
)
def test_who_looks_at_leaves_keeps_no_locks(cluster: Cluster, schema: str, query: str) -> None:
    """Else DROP TABLE and a round, or a look at a view, could end in a deadlock."""
    make_days(cluster.coordinator, 3, 10)
    cluster.coordinator.query("SELECT set_tier_policy('t', 'pinned', tier => 'hot')")
    with cluster.workers[0].connect() as session, session.transaction():
        session.execute(query.format(schema=schema))
        kept = session.execute(
            "SELECT relation::regclass FROM pg_locks WHERE pid = pg_backend_pid()"
            f" AND relation IN (SELECT oid FROM pg_class WHERE relnamespace = '{schema}'::regnamespace)"
        )
        assert kept.fetchall() == []


def test_leaves_become_cold_as_time_goes_on(cluster: Cluster, schema: str) -> None:
    """The workers hear of it while the process that tells them goes on."""
    node = cluster.coordinator
    node.execute("CREATE TABLE p (k integer, at timestamptz NOT NULL)")
    node.query(
        "SELECT create_distributed_table('p', 'k', shard_count => 1, partition_by => 'at',"
        " partition_interval => '2 seconds')"
    )
    node.query("SELECT set_tier_policy('p', 'age', age => '4 seconds')")
    seen = set()
    for _ in wait_until("the bound has changed twice", 60):
        seen |= set(cluster.workers[0].query("SELECT cold_before FROM strata_tiering.policy"))
        if len(seen) >= 3:
            return
