"""Periods: shards that are divided by time, or by another column, on their workers."""

from __future__ import annotations

import re

import psycopg
import pytest

from tests.assert_same import assert_same
from tests.cluster import Cluster
from tests.installation import server_major

DISTRIBUTE = "SELECT strata.create_distributed_table({!r}, 'k', 4, {})"

# Names of the leaves of one shard's table with their bounds, on the worker that has the shard.
LEAVES = """
    SELECT c.relname, pg_get_expr(c.relpartbound, c.oid)
      FROM pg_partition_tree(%s::regclass) AS t JOIN pg_class AS c ON c.oid = t.relid
     WHERE t.isleaf ORDER BY 1
"""


def on_both(cluster: Cluster, sql: str) -> None:
    cluster.coordinator.execute(sql)
    cluster.plain.execute(sql)


def distribute(cluster: Cluster, table: str, arguments: str) -> None:
    cluster.coordinator.execute(DISTRIBUTE.format(table, arguments))


def spelled(name: str) -> str:
    """The name of a leaf with a date (_p2026_03_29) as pg_partman here spells it: 5 without underscores."""
    return re.sub(r"_p(\d{4})_(\d\d)_(\d\d)", r"_p\1\2\3", name) if server_major() >= 17 else name


def leaves(cluster: Cluster, schema: str, table: str) -> dict[str, str]:
    """All leaves of a table on all workers: name and bounds."""
    found: dict[str, str] = {}
    for worker in cluster.workers:
        found |= dict(worker.query(LEAVES, (f"{schema}.{table}",)))
        worker.disconnect()
    return found


def rows_of(cluster: Cluster, schema: str, pattern: str) -> int:
    """Rows in the leaves whose names match."""
    count = 0
    for worker in cluster.workers:
        for (name,) in worker.query(
            "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace"
            " AND relkind = 'r' AND relname ~ %s",
            (schema, spelled(pattern)),
        ):
            count += worker.value(f'SELECT count(*) FROM {schema}."{name}"')
    return count


def make_days(cluster: Cluster, kind: str = "timestamptz", extra: str = "") -> None:
    """Table t with rows of ten days in the past, one of them in 2001 and one in 2099."""
    on_both(
        cluster,
        f"CREATE TABLE t (k int, at {kind} NOT NULL, v numeric, PRIMARY KEY (k, at));"
        " INSERT INTO t SELECT i, timestamptz '2026-03-24 00:00:00+00' + i * interval '17 minutes',"
        " i * 1.5 FROM generate_series(1, 1000) AS i;"
        " INSERT INTO t VALUES (0, '2001-02-03', 1), (1, '2099-12-31', 2)",
    )


QUERIES = [
    "SELECT count(*), sum(v), min(at), max(at) FROM t",
    "SELECT k, at, v FROM t WHERE at >= '2026-03-29' AND at < '2026-03-30' ORDER BY k, at",
    "SELECT date_trunc('day', at), count(*), sum(v) FROM t GROUP BY 1 ORDER BY 1",
    "SELECT a.k, count(*) FROM t AS a JOIN t AS b USING (k) GROUP BY a.k ORDER BY 1",
    "SELECT * FROM t WHERE k = 500",
    "SELECT * FROM t WHERE at < '2010-01-01' OR at > '2090-01-01' ORDER BY k",
    "SELECT count(*) FROM t WHERE at = (SELECT max(at) FROM t)",
]


@pytest.mark.parametrize("kind", ["timestamptz", "timestamp", "date"])
@pytest.mark.parametrize("storage", ["columnar", "heap"])
def test_rows_of_periods_are_those_of_one_table(
    cluster: Cluster, schema: str, kind: str, storage: str
):
    make_days(cluster, kind)
    distribute(
        cluster,
        "t",
        f"storage => '{storage}', partition_by => 'at', partition_interval => '1 day'",
    )
    names = leaves(cluster, schema, "t")
    assert spelled("t_s0_p2026_03_29") in names
    assert spelled("t_s3_p2099_12_31") in names
    assert rows_of(cluster, schema, "_default$") == 0
    for query in QUERIES:
        assert_same(cluster, query)
    for statement in [
        "INSERT INTO t VALUES (2000, '2026-03-25 12:00', 1), (2001, '1999-01-01', 2)",
        "UPDATE t SET at = at + interval '40 days' WHERE k BETWEEN 100 AND 120",
        "UPDATE t SET v = v + 1 WHERE at >= '2026-03-28' AND at < '2026-03-31'",
        "DELETE FROM t WHERE k % 10 = 3",
        "INSERT INTO t VALUES (2000, '2026-03-25 12:00', 5)"
        " ON CONFLICT (k, at) DO UPDATE SET v = excluded.v * 2",
        "INSERT INTO t VALUES (2000, '2026-03-25 12:00', 5)",
    ]:
        assert_same(cluster, statement)
    for query in QUERIES:
        assert_same(cluster, query)


def test_numbers_are_periods_too(cluster: Cluster, schema: str):
    on_both(
        cluster,
        "CREATE TABLE t (k int, id bigint NOT NULL, UNIQUE (k, id));"
        " INSERT INTO t SELECT i % 50, i * 10 - 3000 FROM generate_series(1, 2000) AS i",
    )
    distribute(cluster, "t", "partition_by => 'id', partition_interval => '5000'")
    bounds = leaves(cluster, schema, "t")
    assert bounds["t_s0_p-5000"] == "FOR VALUES FROM ('-5000') TO ('0')"
    assert bounds["t_s0_p15000"] == "FOR VALUES FROM ('15000') TO ('20000')"
    assert rows_of(cluster, schema, "_default$") == 0
    on_both(
        cluster, "INSERT INTO t SELECT 100 + i % 7, i FROM generate_series(-20000, 60000, 17) AS i"
    )
    assert_same(cluster, "SELECT count(*), sum(id), sum(k) FROM t")
    assert_same(cluster, "SELECT * FROM t WHERE id BETWEEN 4990 AND 5100 ORDER BY id, k")


@pytest.mark.parametrize(
    ("unit", "factor"), [("seconds", 1), ("milliseconds", 1000), ("nanoseconds", 10**9)]
)
def test_numbers_can_be_times(cluster: Cluster, schema: str, unit: str, factor: int):
    kind = "int" if unit == "seconds" else "bigint"
    on_both(
        cluster,
        f"CREATE TABLE t (k int, at {kind} NOT NULL);"
        " INSERT INTO t SELECT i, (extract(epoch FROM timestamptz '2026-03-28 00:00:00+00')"
        f" + i * 3600) * {factor} FROM generate_series(0, 71) AS i",
    )
    distribute(
        cluster,
        "t",
        f"partition_by => 'at', partition_interval => '1 day', partition_epoch => '{unit}'",
    )
    bounds = leaves(cluster, schema, "t")
    first = 1774656000 * factor  # 2026-03-28
    quote = "" if kind == "int" else "'"
    assert bounds[spelled("t_s0_p2026_03_28")] == (
        f"FOR VALUES FROM ({quote}{first}{quote}) TO ({quote}{first + 86400 * factor}{quote})"
    )
    for day in (28, 29, 30):
        assert rows_of(cluster, schema, f"_p2026_03_{day}$") == 24
    assert_same(cluster, f"SELECT count(*) FROM t WHERE at >= {first + 86400 * factor}")


def test_boundaries_do_not_depend_on_time_zones(cluster: Cluster, schema: str):
    """Clocks in Berlin go forward on 29 March 2026; a period has 24 hours all the same."""
    on_both(cluster, "SET timezone = 'Europe/Berlin'")
    on_both(
        cluster,
        "CREATE TABLE t (k int, at timestamptz NOT NULL);"
        " INSERT INTO t SELECT i, timestamptz '2026-03-28 00:30:00' + i * interval '1 hour'"
        " FROM generate_series(0, 95) AS i",
    )
    distribute(cluster, "t", "partition_by => 'at', partition_interval => '1 day'")
    bounds = leaves(cluster, schema, "t")
    assert bounds[spelled("t_s0_p2026_03_29")] == (
        "FOR VALUES FROM ('2026-03-29 00:00:00+00') TO ('2026-03-30 00:00:00+00')"
    )
    assert [rows_of(cluster, schema, f"_p2026_03_{day}$") for day in (27, 28, 29)] == [1, 24, 24]
    assert_same(cluster, "SELECT at::date, count(*) FROM t GROUP BY 1 ORDER BY 1")
    assert_same(cluster, "SELECT count(*) FROM t WHERE at >= '2026-03-29' AND at < '2026-03-30'")


def test_workers_leave_out_periods_that_a_query_does_not_need(cluster: Cluster, schema: str):
    make_days(cluster)
    distribute(cluster, "t", "partition_by => 'at', partition_interval => '1 day'")
    plan = cluster.coordinator.query(
        "EXPLAIN (VERBOSE, COSTS OFF) SELECT sum(v) FROM t"
        " WHERE at >= '2026-03-29' AND at < '2026-03-30'"
    )
    text = "\n".join(line for (line,) in plan)
    assert spelled("t_s0_p2026_03_29") in text
    assert spelled("_p2026_03_28") not in text
    assert spelled("_p2026_03_30") not in text
    assert "ColumnarAggregate" in text  # the vector executor's, over all leaves


def test_leaves_are_columnar_and_belong_to_the_table_s_owner(cluster: Cluster, schema: str):
    cluster.coordinator.execute(
        "CREATE TABLE t (k int, at date NOT NULL) WITH (autovacuum_enabled = false);"
        " ALTER TABLE t ALTER COLUMN k SET STATISTICS 7"
    )
    distribute(cluster, "t", "partition_by => 'at', partition_interval => '1 month'")
    worker = cluster.workers[0]
    assert worker.query(
        "SELECT DISTINCT am.amname, c.relowner::regrole::text, c.reloptions, a.attstattarget"
        " FROM pg_partition_tree(%s) AS t JOIN pg_class AS c ON c.oid = t.relid"
        " JOIN pg_am AS am ON am.oid = c.relam"
        " JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'k' WHERE t.isleaf",
        (f"{schema}.t",),
    ) == [("columnar", "postgres", ["autovacuum_enabled=false"], 7)]
    worker.disconnect()


@pytest.mark.parametrize(
    ("arguments", "state", "message"),
    [
        ("partition_by => 'nope', partition_interval => '1 day'", "42703", "does not exist"),
        ("partition_by => 'v', partition_interval => '1 day'", "42804", "cannot be divided"),
        ("partition_by => 'free', partition_interval => '1 day'", "23502", "cannot be divided"),
        ("partition_by => 'at'", "22023", "partition_interval is missing"),
        ("partition_interval => '1 day'", "22023", "partition_by is missing"),
        ("retention => '1 year'", "22023", "partition_by is missing"),
        ("partition_by => 'at', partition_interval => 'nonsense'", "22007", "nonsense"),
        ("partition_by => 'at', partition_interval => '-1 day'", "22023", "invalid"),
        ("partition_by => 'at', partition_interval => '7 minutes'", "22023", "invalid"),
        ("partition_by => 'at', partition_interval => '36 hours'", "22023", "invalid"),
        ("partition_by => 'at', partition_interval => '1 month 1 day'", "22023", "invalid"),
        ("partition_by => 'day', partition_interval => '1 hour'", "22023", "invalid"),
        ("partition_by => 'id', partition_interval => '1 day'", "22023", "invalid"),
        ("partition_by => 'id', partition_interval => '0'", "22023", "invalid"),
        (
            "partition_by => 'id', partition_interval => '1 day', partition_epoch => 'weeks'",
            "22023",
            "unknown partition_epoch",
        ),
        (
            "partition_by => 'at', partition_interval => '1 day', partition_epoch => 'seconds'",
            "22023",
            "cannot be divided",
        ),
        (
            "partition_by => 'at', partition_interval => '1 day', retention => '0 days'",
            "22023",
            "invalid retention",
        ),
    ],
)
def test_what_cannot_be_periods_is_refused(
    cluster: Cluster, schema: str, arguments: str, state: str, message: str
):
    cluster.coordinator.execute(
        "CREATE TABLE t (k int, at timestamptz NOT NULL, day date NOT NULL, id bigint NOT NULL,"
        " v text NOT NULL, free timestamptz)"
    )
    with pytest.raises(psycopg.Error, match=message) as error:
        distribute(cluster, "t", arguments)
    assert error.value.sqlstate == state
    assert cluster.coordinator.value("SELECT count(*) FROM strata.distributed_table") == 0


def test_unique_constraints_contain_the_column_of_the_periods(cluster: Cluster, schema: str):
    node = cluster.coordinator
    node.execute("CREATE TABLE t (k int PRIMARY KEY, at timestamptz NOT NULL)")
    with pytest.raises(psycopg.Error, match='"t" does not contain the column "at"') as error:
        distribute(cluster, "t", "partition_by => 'at', partition_interval => '1 day'")
    assert "Add column" in error.value.diag.message_hint
    node.execute("ALTER TABLE t DROP CONSTRAINT t_pkey")
    distribute(cluster, "t", "partition_by => 'at', partition_interval => '1 day'")
    for statement in [
        "CREATE UNIQUE INDEX ON t (k)",
        "CREATE UNIQUE INDEX CONCURRENTLY ON t (k)",
        "ALTER TABLE t ADD UNIQUE (k)",
        "ALTER TABLE t ADD PRIMARY KEY (k)",
    ]:
        with pytest.raises(psycopg.Error, match='does not contain the column "at"'):
            node.execute(statement)
    node.execute("ALTER TABLE t ADD PRIMARY KEY (at, k)")


def test_a_missing_pg_partman_is_named(cluster: Cluster, schema: str):
    """Its functions are asked for only when the first table has periods."""
    for worker in cluster.workers:
        assert worker.value("SELECT strata_worker.partman_schema()") == "partman"
        worker.disconnect()
