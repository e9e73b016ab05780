"""A logical subscription into tables of the cluster applies what it gets, or says that it cannot."""

from __future__ import annotations

from collections.abc import Callable

from tests.cluster import Cluster, Node
from tests.waiting import wait_until

TABLES = """
CREATE TABLE heap_rows (id integer PRIMARY KEY, v integer);
CREATE TABLE columnar_rows (id integer PRIMARY KEY, v integer);
CREATE TABLE keyless (id integer, v integer);
CREATE TABLE country (id integer PRIMARY KEY, v integer);
"""
DISTRIBUTED = ("heap_rows", "columnar_rows", "keyless")


def make_pair(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Each table published by the plain server, filled, and subscribed to by the coordinator."""
    cluster = make_cluster(workers=2, plain=True)
    source, target = cluster.plain, cluster.coordinator
    source.execute("ALTER SYSTEM SET wal_level = logical")
    source.restart()
    for setting in (
        "max_logical_replication_workers = 12",
        "max_sync_workers_per_subscription = 2",
        "wal_retrieve_retry_interval = '200ms'",
        "max_worker_processes = 30",
    ):
        target.execute(f"ALTER SYSTEM SET {setting}")
    target.restart()
    target.execute("SET search_path = public, strata")
    for node in (source, target):
        node.execute(TABLES)
    source.execute("ALTER TABLE keyless REPLICA IDENTITY FULL")
    for table in DISTRIBUTED:
        storage = "heap" if table == "heap_rows" else "columnar"
        target.execute(
            "SELECT strata.create_distributed_table(%s, 'id', storage => %s)", (table, storage)
        )
    target.execute("SELECT strata.create_reference_table('country')")
    for table in (*DISTRIBUTED, "country"):
        source.execute(f"INSERT INTO {table} SELECT g, g FROM generate_series(1, 50) AS g")
        subscribe(cluster, table)
    return cluster


def subscribe(cluster: Cluster, table: str) -> None:
    cluster.plain.execute(f"CREATE PUBLICATION {table} FOR TABLE {table}")
    cluster.plain.execute(f"SELECT pg_create_logical_replication_slot('{table}', 'pgoutput')")
    cluster.coordinator.execute(
        f"CREATE SUBSCRIPTION {table} CONNECTION 'host={cluster.plain.sockets}"
        f" port={cluster.plain.port} user=postgres dbname=strata' PUBLICATION {table}"
        f" WITH (create_slot = false, slot_name = '{table}')"
    )


def rows(node: Node, table: str) -> list[tuple]:
    return node.query(f"SELECT id, v FROM {table} ORDER BY 1, 2")


def wait_for_rows(cluster: Cluster, table: str) -> None:
    expected = rows(cluster.plain, table)
    for _ in wait_until(f"{table} is as its publisher's", 30):
        if rows(cluster.coordinator, table) == expected:
            return


def progress(target: Node, table: str, lsn: str) -> bool:
    """Has the subscription recorded that it has come further than this?"""
    return target.value(
        "SELECT remote_lsn > %s::pg_lsn FROM pg_replication_origin_status JOIN pg_subscription"
        " ON external_id = 'pg_' || oid WHERE subname = %s",
        (lsn, table),
    )


def test_a_subscription_applies_or_fails(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_pair(make_cluster)
    source, target = cluster.plain, cluster.coordinator

    for table in (*DISTRIBUTED, "country"):  # the first copy, then inserts
        wait_for_rows(cluster, table)
        source.execute(f"INSERT INTO {table} SELECT g, g FROM generate_series(51, 90) AS g")
        wait_for_rows(cluster, table)
        before = source.value("SELECT pg_current_wal_insert_lsn()")
        source.execute(f"INSERT INTO {table} VALUES (91, 91)")  # one worker's
        wait_for_rows(cluster, table)
        assert progress(target, table, before), "rows without the progress they are a part of"

    # a reference table: everything, on all copies
    for change in (
        "UPDATE country SET v = v + 1 WHERE id < 20; DELETE FROM country WHERE id % 3 = 0",
        "BEGIN; UPDATE country SET id = id + 1000 WHERE id = 4; INSERT INTO country VALUES (4, 4);"
        " DELETE FROM country WHERE id = 5; COMMIT",
        "TRUNCATE country",
        "INSERT INTO country VALUES (1, 1), (2, 2); UPDATE country SET v = 7 WHERE id = 2",
    ):
        source.execute(change)
        wait_for_rows(cluster, "country")
        for worker in cluster.workers:
            assert rows(worker, "country") == rows(source, "country")

    # killed amid the changes: each is there once
    for number in range(100, 160):
        source.execute(f"INSERT INTO keyless VALUES ({number}, 0)")
        source.execute(f"INSERT INTO country VALUES ({number}, 0)")
        if number % 20 == 10:
            target.kill()
            target.start()
    for table in ("keyless", "country"):
        wait_for_rows(cluster, table)

    # a distributed table: no change is lost without a word
    for table, change, words in (
        ("heap_rows", "UPDATE heap_rows SET v = 0 WHERE id = 3", "update or delete rows of"),
        ("columnar_rows", "TRUNCATE columnar_rows", "truncate"),
        ("keyless", "DELETE FROM keyless WHERE id = 3", "update or delete rows of"),
    ):
        before = rows(target, table)
        start = target.log_size()
        source.execute(change)
        message = f'a subscription cannot {words} distributed table "{table}"'
        for _ in wait_until(f"the log says: {message}", 30):
            if message in target.log_text(start):
                break
        assert rows(target, table) == before
        counted = "SELECT apply_error_count > 0 FROM pg_stat_subscription_stats WHERE subname = %s"
        for _ in wait_until("the error is counted"):
            if target.value(counted, (table,)):
                break
        target.execute(f"ALTER SUBSCRIPTION {table} DISABLE")
