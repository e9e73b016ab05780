"""Space is reclaimed, reused and given back; row groups are merged; frozen rows stay visible."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from extensions.columnar.test.servers import checksum, fill, verify
from tests.cluster import Node
from tests.waiting import wait_until


@pytest.fixture
def table(node: Node, schema_name: str) -> Iterator[str]:
    """A name for a table of the test; dropped afterwards."""
    yield schema_name
    node.execute(f"DROP TABLE IF EXISTS {schema_name} CASCADE")


def settle_horizon(node: Node) -> None:
    """A transaction id later than all before, and no older snapshot, be it autovacuum's: VACUUM may remove what they deleted."""
    node.execute("SELECT txid_current()")
    older = "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND age(backend_xmin) > 0"
    for _ in wait_until("nobody has an older snapshot"):
        if node.value(older) == 0:
            break


def test_space_is_reused_in_cycles_of_load_and_delete(node: Node, table: str) -> None:
    node.execute(
        f"CREATE TABLE {table} (id integer, v integer, s text) USING columnar WITH (autovacuum_enabled = off)"
    )
    sizes = []
    for cycle in range(8):
        node.execute(
            f"INSERT INTO {table} SELECT g, {cycle}, md5(g::text) FROM generate_series(1, 40000) AS g"
        )
        node.execute(f"DELETE FROM {table} WHERE v < {cycle}")
        settle_horizon(node)
        node.execute(f"SELECT strata_columnar.columnar_compact('{table}')")
        settle_horizon(node)
        node.execute(f"VACUUM {table}")
        assert node.query(f"SELECT count(*), min(v) FROM {table}") == [(40000, cycle)]
        sizes.append(node.value(f"SELECT pg_table_size('{table}')"))
    assert max(sizes[4:]) <= max(sizes[:4]) * 1.1, sizes
    assert sizes[-1] <= sizes[0] * 3, sizes
    verify(node, table)


def test_updates_in_cycles_do_not_grow_the_table(node: Node, table: str) -> None:
    fill(node, table, 20000)
    sizes = []
    for _ in range(8):
        node.execute(f"UPDATE {table} SET v = v + 1")
        settle_horizon(node)
        node.execute(f"SELECT strata_columnar.columnar_compact('{table}')")
        settle_horizon(node)
        node.execute(f"VACUUM {table}")
        sizes.append(node.value(f"SELECT pg_table_size('{table}')"))
    assert max(sizes[4:]) <= max(sizes[:4]) * 1.2, sizes
    assert node.value(f"SELECT sum(v) FROM {table}") == 20000 * 8 + 200 * 4950
    verify(node, table)


def test_single_row_inserts_are_merged_and_their_space_is_reused(node: Node, table: str) -> None:
    node.execute(
        f"CREATE TABLE {table} (id integer PRIMARY KEY, v integer) USING columnar WITH (autovacuum_enabled = off); SET strata_columnar.enable_merge = off"
    )
    sizes = []
    for cycle in range(4):
        for number in range(150):
            node.execute(f"INSERT INTO {table} VALUES ({cycle * 1000 + number}, {number})")
        settle_horizon(node)
        node.execute(f"SELECT strata_columnar.columnar_compact('{table}')")
        settle_horizon(node)
        node.execute(f"VACUUM {table}")
        ((groups, rows),) = node.query(
            f"SELECT count(*), sum(rows) FROM strata_columnar.columnar_row_groups('{table}')"
        )
        assert rows == 150 * (cycle + 1)
        assert groups < 5
        sizes.append(node.value(f"SELECT pg_table_size('{table}')"))
    assert sizes[-1] <= sizes[0] * 2, sizes
    node.execute("RESET strata_columnar.enable_merge")
    assert node.query(f"SELECT count(*), sum(v) FROM {table}") == [(600, 4 * 11175)]
    verify(node, table)


def test_vacuum_returns_the_end_of_the_file(node: Node, table: str) -> None:
    """What compaction leaves free in front is taken by the next one, and then the end is free."""
    fill(node, table, 60000)
    node.execute(
        f"INSERT INTO {table} SELECT g, 1, md5(g::text) FROM generate_series(60001, 160000) AS g"
    )
    full = node.value(f"SELECT pg_relation_size('{table}')")
    node.execute(f"DELETE FROM {table} WHERE id > 60000")
    for _ in range(2):
        settle_horizon(node)
        node.execute(f"SELECT strata_columnar.columnar_compact('{table}', everything => true)")
        settle_horizon(node)
        node.execute(f"VACUUM {table}")
    assert node.value(f"SELECT pg_relation_size('{table}')") < full / 5
    assert node.query(f"SELECT count(*), max(id) FROM {table}") == [(60000, 60000)]
    verify(node, table)


def test_an_aborted_load_leaves_space_that_is_reused(node: Node, table: str) -> None:
    node.execute(
        f"CREATE TABLE {table} (id integer, s text) USING columnar WITH (autovacuum_enabled = off)"
    )
    sizes = []
    for _ in range(6):
        node.execute(
            f"BEGIN; INSERT INTO {table} SELECT g, md5(g::text) FROM generate_series(1, 30000) AS g; SELECT count(*) FROM {table}; ROLLBACK"
        )
        settle_horizon(node)
        node.execute(f"VACUUM {table}")
        sizes.append(node.value(f"SELECT pg_relation_size('{table}')"))
    assert sizes[-1] <= sizes[0] * 1.1 + 8192, sizes
    assert node.value(f"SELECT count(*) FROM {table}") == 0
    verify(node, table)


def test_freezing_advances(node: Node, table: str) -> None:
    """Row groups, deletes and inline rows all stay visible when their transactions are frozen."""
    fill(node, table, 5000)
    node.execute(
        f"DELETE FROM {table} WHERE id % 5 = 0; UPDATE {table} SET v = -1 WHERE id % 7 = 0; INSERT INTO {table} VALUES (9000, 1, 'inline')"
    )
    before = checksum(node, table)
    ages = (
        f"SELECT age(c.relfrozenxid), CASE WHEN t.oid IS NOT NULL THEN age(t.relfrozenxid) END, age(c.relminmxid) FROM pg_class AS c"
        f" LEFT JOIN pg_class AS t ON t.oid = c.reltoastrelid WHERE c.oid = '{table}'::regclass"
    )
    for _ in range(2000):
        settle_horizon(node)
    ((table_age, toast_age, _),) = node.query(ages)
    assert table_age > 1900
    assert toast_age > 1900
    node.execute(f"VACUUM (FREEZE) {table}")
    ((table_age, toast_age, multi_age),) = node.query(ages)
    assert table_age < 100
    assert toast_age < 100
    assert multi_age >= 0
    assert checksum(node, table) == before
    verify(node, table)


def test_inline_row_groups_are_merged_in_the_background(node: Node, table: str) -> None:
    """Nobody calls columnar_compact(): commits of single rows ask for the merge."""
    node.execute(
        f"CREATE TABLE {table} (id integer PRIMARY KEY, v integer) USING columnar WITH (autovacuum_enabled = off)"
    )
    for number in range(400):
        node.execute(f"INSERT INTO {table} VALUES ({number}, {number})")
    for _ in wait_until("the row groups are merged"):
        groups = node.value(f"SELECT count(*) FROM strata_columnar.columnar_row_groups('{table}')")
        if groups < 150:
            break
        settle_horizon(node)
        node.execute(f"INSERT INTO {table} SELECT max(id) + 1, 0 FROM {table}")
    assert node.query(f"SELECT count(*), sum(v) FROM {table} WHERE id < 400") == [(400, 79800)]
    verify(node, table)


def test_a_merge_is_not_asked_for_when_it_is_off(node: Node, table: str) -> None:
    node.execute(
        f"CREATE TABLE {table} (id integer, v integer) USING columnar WITH (autovacuum_enabled = off)"
    )
    node.execute("SET strata_columnar.enable_merge = off")
    for number in range(300):
        node.execute(f"INSERT INTO {table} VALUES ({number}, {number})")
    assert node.value(f"SELECT count(*) FROM strata_columnar.columnar_row_groups('{table}')") == 300
    node.execute("RESET strata_columnar.enable_merge")
