"""DDL on tables with periods reaches all their leaves, those to come included."""

from __future__ import annotations

import psycopg
import pytest

from tests.assert_same import assert_same
from tests.cluster import Cluster
from tests.period.test_periods import distribute, leaves, on_both, spelled


@pytest.fixture
def table(cluster: Cluster, schema: str) -> str:
    on_both(
        cluster,
        "CREATE TABLE t (k int, at timestamptz NOT NULL, v int, w text, PRIMARY KEY (k, at));"
        " INSERT INTO t SELECT i, timestamptz '2026-03-24 00:00:00+00' + i * interval '2 hours',"
        " i % 10, 'w' || i FROM generate_series(1, 200) AS i",
    )
    distribute(cluster, "t", "partition_by => 'at', partition_interval => '1 week'")
    return "t"


def make_leaf(cluster: Cluster, schema: str, value: str, table: str = "t") -> None:
    """A new leaf in all shards, as the maintenance would make it."""
    for worker in cluster.workers:
        worker.query(
            "SELECT strata_worker.create_period(i.inhrelid, %s, false) FROM pg_inherits AS i"
            " WHERE i.inhparent = %s::regclass",
            (value, f"{schema}.{table}"),
        )
        worker.disconnect()


def shapes(cluster: Cluster, schema: str, table: str) -> set[tuple]:
    """The different shapes of leaves on all workers: one, unless DDL missed some."""
    found = set()
    for worker in cluster.workers:
        found |= set(
            worker.query(
                "SELECT (SELECT string_agg(format('%%s %%s %%s %%s %%s', a.attname,"
                "               format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attstorage,"
                "               a.attstattarget), ', ' ORDER BY a.attname)"
                "          FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0"
                "           AND NOT a.attisdropped),"
                "       (SELECT string_agg(regexp_replace(pg_get_indexdef(i.indexrelid),"
                "               '.* USING', i.indisvalid::text), ', '"
                "               ORDER BY pg_get_indexdef(i.indexrelid) ~ 'UNIQUE',"
                "                        regexp_replace(pg_get_indexdef(i.indexrelid), '.* USING', ''))"
                "          FROM pg_index AS i WHERE i.indrelid = c.oid),"
                "       (SELECT string_agg(replace(pg_get_constraintdef(o.oid), ' NOT VALID', ''),"
                "               ', ' ORDER BY o.conname)"
                "          FROM pg_constraint AS o WHERE o.conrelid = c.oid AND o.contype = 'c'),"
                "       c.relowner::regrole::text, c.reloptions::text, am.amname"
                "  FROM pg_partition_tree(%s) AS p JOIN pg_class AS c ON c.oid = p.relid"
                "  JOIN pg_am AS am ON am.oid = c.relam WHERE p.isleaf",
                (f"{schema}.{table}",),
            )
        )
        worker.disconnect()
    return found


STATEMENTS = [
    "ALTER TABLE t ADD COLUMN c int DEFAULT 7",
    "ALTER TABLE t ADD COLUMN g int GENERATED ALWAYS AS (v * 2) STORED",
    "ALTER TABLE t ADD COLUMN n bigint NOT NULL DEFAULT 5",
    "ALTER TABLE t DROP COLUMN w",
    "ALTER TABLE t ALTER COLUMN v TYPE bigint",
    "ALTER TABLE t RENAME COLUMN v TO vv",
    "ALTER TABLE t RENAME COLUMN at TO happened",
    "ALTER TABLE t ALTER COLUMN v SET NOT NULL",
    "ALTER TABLE t ALTER COLUMN w SET STATISTICS 55",
    "ALTER TABLE t ALTER COLUMN w SET STORAGE EXTERNAL",
    "ALTER TABLE t SET (autovacuum_enabled = false)",
    "ALTER TABLE t ADD CONSTRAINT positive CHECK (v >= 0)",
    "ALTER TABLE t ADD CONSTRAINT late CHECK (v < 100) NOT VALID",
    "ALTER TABLE t DROP CONSTRAINT t_pkey",
    "ALTER TABLE t ADD CONSTRAINT u UNIQUE (k, at, v)",
    "CREATE INDEX i ON t (v)",
    "CREATE INDEX CONCURRENTLY i ON t (v, k)",
    "CREATE UNIQUE INDEX CONCURRENTLY i ON t (at, k)",
    "CREATE STATISTICS s ON k, v FROM t",
    "REINDEX TABLE t",
    "VACUUM t",
    "ANALYZE t",
    "TRUNCATE t",
    "COMMENT ON TABLE t IS 'periods'",
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_reaches_all_leaves(cluster: Cluster, schema: str, table: str, statement: str):
    on_both(cluster, statement)
    make_leaf(cluster, schema, "2030-01-01")
    assert len(shapes(cluster, schema, "t")) == 1
    assert_same(cluster, "SELECT * FROM t ORDER BY k")
    assert_same(cluster, "INSERT INTO t (k, at2) VALUES (1, now())")  # fails in both
    faults = cluster.coordinator.query("SELECT * FROM strata.check_health() WHERE NOT ok")
    assert faults == []


def test_a_dropped_index_is_gone_from_all_leaves(cluster: Cluster, schema: str, table: str):
    on_both(cluster, "CREATE INDEX i ON t (v)")
    on_both(cluster, "DROP INDEX i")
    make_leaf(cluster, schema, "2030-01-01")
    ((_, indexes, *_),) = shapes(cluster, schema, "t")
    assert indexes.count("btree") == 1  # the primary key's


def indexes_of_leaves(cluster: Cluster, schema: str) -> int:
    """How many valid indexes each leaf has, all the same ones."""
    ((_, indexes, *_),) = shapes(cluster, schema, "t")
    assert indexes.count("false") == 0
    return indexes.count("btree")


@pytest.mark.parametrize("name", ["ti", '"T ""x""; \'i\'"', "i" * 63])
@pytest.mark.parametrize("create", ["CREATE INDEX", "CREATE INDEX CONCURRENTLY"])
def test_an_index_is_computed_again_and_changed_and_dropped(
    cluster: Cluster, schema: str, table: str, create: str, name: str
):
    node = cluster.coordinator
    on_both(cluster, f"{create} {name} ON t (v)")
    make_leaf(cluster, schema, "2030-01-01")
    for command in (
        f"REINDEX INDEX {name}",
        f"REINDEX INDEX CONCURRENTLY {name}",
        "REINDEX TABLE t",
        "REINDEX TABLE CONCURRENTLY t",
        f"REINDEX SCHEMA {schema}",
    ):
        on_both(cluster, command)
        assert indexes_of_leaves(cluster, schema) == 2
    on_both(cluster, f"ALTER INDEX {name} SET (fillfactor = 60)")
    make_leaf(cluster, schema, "2031-01-01")
    ((_, indexes, *_),) = shapes(cluster, schema, "t")
    assert indexes.count("fillfactor='60'") == 1
    assert_same(cluster, "SELECT * FROM t WHERE v = 3 ORDER BY k")
    assert node.query("SELECT * FROM strata.check_health() WHERE NOT ok") == []
    on_both(cluster, f"DROP INDEX CONCURRENTLY {name}")
    assert indexes_of_leaves(cluster, schema) == 1


@pytest.mark.parametrize("create", ["CREATE INDEX", "CREATE INDEX CONCURRENTLY"])
def test_an_index_is_computed_again_under_new_names(
    cluster: Cluster, schema: str, table: str, create: str
):
    on_both(cluster, f"{create} i ON t (v)")
    on_both(cluster, "ALTER INDEX i RENAME TO j; ALTER TABLE t RENAME TO u")
    on_both(cluster, "REINDEX TABLE u")
    on_both(cluster, "ALTER TABLE u RENAME TO t")
    assert indexes_of_leaves(cluster, schema) == 2


def test_an_index_that_one_worker_lacks_is_completed(cluster: Cluster, schema: str, table: str):
    node, worker = cluster.coordinator, cluster.workers[1]
    node.execute("CREATE INDEX i ON t (v)")
    worker.execute(f"DROP INDEX {schema}.i")
    worker.disconnect()
    node.execute("REINDEX INDEX i")
    make_leaf(cluster, schema, "2030-01-01")
    assert indexes_of_leaves(cluster, schema) == 2
    assert node.query("SELECT * FROM strata.check_health() WHERE NOT ok") == []


@pytest.mark.parametrize("statement", ["RENAME TO renamed", "SET SCHEMA other_periods"])
def test_leaves_follow_names(cluster: Cluster, schema: str, table: str, statement: str):
    node = cluster.coordinator
    on_both(cluster, "CREATE SCHEMA IF NOT EXISTS other_periods")
    on_both(cluster, f"ALTER TABLE t {statement}")
    place, name = ("other_periods", "t") if "SCHEMA" in statement else (schema, "renamed")
    names = leaves(cluster, place, name)
    assert spelled(f"{name}_s0_p2026_03_30") in names
    assert f"{name}_s0_default" in names
    make_leaf(cluster, place, "2030-01-01", name)
    assert spelled(f"{name}_s0_p2029_12_31") in leaves(cluster, place, name)
    assert_same(cluster, f"SELECT count(*), sum(v) FROM {place}.{name}")
    # the old name is free again
    node.execute("CREATE TABLE t (k int, at timestamptz NOT NULL)")
    distribute(cluster, "t", "partition_by => 'at', partition_interval => '1 week'")
    assert "t_s0_default" in leaves(cluster, schema, "t")
    on_both(cluster, "DROP SCHEMA other_periods CASCADE")


def test_a_dropped_table_leaves_nothing(cluster: Cluster, schema: str, table: str):
    cluster.coordinator.execute("DROP TABLE t")
    for worker in cluster.workers:
        assert (
            worker.value(
                "SELECT count(*) FROM partman.part_config WHERE parent_table LIKE %s",
                (f"{schema}.%",),
            )
            == 0
        )
        assert (
            worker.value(
                "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace(%s)", (schema,)
            )
            == 0
        )
        worker.disconnect()


def test_the_table_becomes_local_again(cluster: Cluster, schema: str, table: str):
    cluster.coordinator.execute("SELECT strata.undistribute_table('t')")
    assert_same(cluster, "SELECT * FROM t ORDER BY k")
    assert_same(cluster, "INSERT INTO t VALUES (1, '2026-03-24 02:00:00+00', 1)")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t DROP COLUMN at",
        "ALTER TABLE t ALTER COLUMN at TYPE date",
        "ALTER TABLE t ALTER COLUMN at DROP NOT NULL",
    ],
)
def test_the_column_of_the_periods_stays(cluster: Cluster, schema: str, table: str, statement: str):
    cluster.coordinator.execute("ALTER TABLE t DROP CONSTRAINT t_pkey")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="cannot run ALTER TABLE") as error:
        cluster.coordinator.execute(statement)
    assert "periods of column" in error.value.diag.message_detail


def test_grants_and_owners_hold_for_all_leaves(cluster: Cluster, schema: str, table: str):
    node = cluster.coordinator
    cluster.create_role("period_reader")
    node.execute(
        f"GRANT USAGE ON SCHEMA {schema} TO period_reader; GRANT SELECT ON t TO period_reader"
    )
    with node.connect(user="period_reader") as reader:
        assert reader.execute(f"SELECT count(*) FROM {schema}.t").fetchone() == (200,)
    node.execute("ALTER TABLE t OWNER TO period_reader")
    make_leaf(cluster, schema, "2030-01-01")
    assert {owner for (*_, owner, _, _) in shapes(cluster, schema, "t")} == {"period_reader"}
    node.execute("DROP OWNED BY period_reader CASCADE; DROP ROLE period_reader")


def test_foreign_keys_between_tables_with_periods(cluster: Cluster, schema: str, table: str):
    on_both(
        cluster,
        "CREATE TABLE r (k int, at timestamptz NOT NULL, x int);"
        " INSERT INTO r SELECT k, at, 1 FROM t WHERE v = 3",
    )
    distribute(
        cluster,
        "r",
        "colocate_with => 't', partition_by => 'at', partition_interval => '1 day'",
    )
    on_both(cluster, "ALTER TABLE r ADD FOREIGN KEY (k, at) REFERENCES t (k, at) ON DELETE CASCADE")
    assert_same(cluster, "INSERT INTO r VALUES (100000, now(), 1)")
    assert_same(cluster, "DELETE FROM t WHERE v = 3 AND k < 100")
    assert_same(cluster, "SELECT count(*) FROM r")
