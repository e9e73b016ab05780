"""ANALYZE of a distributed table: one sample, whose statistics every shard has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.fixtures import new_root
from tests.pair import Pair, open_pair

SCHEMA = "test_shard_statistics"
SHARDS = 8


@pytest.fixture(scope="module")
def data() -> Iterator[Pair]:
    """Nothing here is analysed but by command."""
    cluster = Cluster(new_root(), workers=2, plain=True, assertions=True)
    for node in (cluster.coordinator, *cluster.workers, cluster.plain):
        node.settings |= {"autovacuum": "off"}
    with cluster, open_pair(cluster, SCHEMA) as pair:
        yield pair


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    data.reset()
    data.execute("CREATE SCHEMA s; SET search_path = s, strata")
    yield data
    data.reset()
    data.execute(f"RESET ROLE; DROP SCHEMA s CASCADE; SET search_path = {SCHEMA}, strata")


def make(pair: Pair, table: str, key: str, rows: str, storage: str = "columnar") -> None:
    pair.ours.execute(
        "SELECT create_distributed_table(%s, %s, shard_count => %s, storage => %s)",
        (table, key, SHARDS, storage),
    )
    pair.ours.execute(f"INSERT INTO {table} {rows}")


def on_workers(pair: Pair, query: str) -> list[tuple]:
    rows = []
    for worker in pair.cluster.workers:
        with worker.connect() as connection:
            rows += connection.execute(query).fetchall()
    return rows


VALUES = (
    "SELECT attname, null_frac, avg_width, n_distinct, most_common_vals::text, most_common_freqs,"
    " histogram_bounds::text, most_common_elems::text, elem_count_histogram FROM pg_stats"
    " WHERE schemaname = 's' AND tablename LIKE '{}' AND attname <> 'k' ORDER BY tablename, attname"
)


@pytest.mark.parametrize("storage", ["columnar", "heap"])
def test_every_shard_has_the_statistics_of_the_whole(pair: Pair, storage: str) -> None:
    """Of columns of all kinds, by names that are odd and of types that are the user's."""
    pair.ours.execute(
        "CREATE TYPE mood AS ENUM ('so so', 'it''s \"fine\"');"
        "CREATE TYPE pair AS (a integer, b text); CREATE DOMAIN small AS integer CHECK (VALUE < 100);"
        'CREATE TABLE t (gone integer, k integer, "a ""b" text, m mood, p pair, d small, i integer[],'
        " ts tsvector, r int4range, z timestamptz, f float8, n numeric, c char(5), b bytea, j jsonb,"
        ' o oid, x text COLLATE "C", iv interval, l boolean, deep integer[][], rc regclass);'
        "ALTER TABLE t DROP COLUMN gone"
    )
    make(
        pair,
        "t",
        "k",
        "SELECT g, CASE WHEN g % 3 > 0 THEN E'q''\"\\\\,{} ' || g % 20 END,"
        " CASE g % 2 WHEN 0 THEN 'so so' ELSE 'it''s \"fine\"' END::mood, ROW(g % 5, 'x,(y' || g % 2)::pair,"
        " g % 90, ARRAY[g % 3, NULL, g % 7], to_tsvector('simple', 'word' || g % 9), int4range(g, g + 5),"
        " '2024-02-03 04:05:06+00'::timestamptz + g * interval '1 hour', g / 3.0, (g % 50)::numeric / 7,"
        " g % 11, decode(md5((g % 4)::text), 'hex'), jsonb_build_object('a', g % 3), g % 6, 'é' || g % 300,"
        " g % 13 * interval '1 day 2 hours', g % 4 = 0, ARRAY[[g % 2, 1], [2, 3]], 'pg_class'"
        " FROM generate_series(1, 3000) AS g",
        storage,
    )
    pair.ours.execute("ALTER TABLE t ALTER l SET (n_distinct = -0.25)")
    pair.ours.execute("SET datestyle = 'SQL, DMY'; SET intervalstyle = sql_standard; ANALYZE t")
    pair.ours.execute("RESET datestyle; RESET intervalstyle")
    expected = pair.cluster.coordinator.query(VALUES.format("t"))
    assert len(expected) == 19
    for worker in pair.cluster.workers:
        tables = worker.query("SELECT DISTINCT tablename FROM pg_stats WHERE schemaname = 's'")
        assert len(tables) == SHARDS // 2 + 1
        for (table,) in tables:
            assert worker.query(VALUES.format(table)) == expected
    rows = "SELECT reltuples FROM pg_class WHERE relname ~ 't_s[0-9]+$' AND relkind = 'r'"
    # of a heap pages tell, which PostgreSQL makes several at once since 16: some are still empty
    slack = 100 if storage == "columnar" else 800
    assert abs(sum(count for (count,) in on_workers(pair, rows)) - 3000) < slack


def test_one_shard_of_each_worker_is_analysed(pair: Pair) -> None:
    pair.ours.execute("CREATE TABLE t (k integer, v integer)")
    make(pair, "t", "k", "SELECT g, g FROM generate_series(1, 4000) AS g")
    pair.ours.execute("ANALYZE t")
    count = (
        "SELECT sum(analyze_count)::integer FROM pg_stat_user_tables WHERE relname LIKE 't\\_s%'"
    )
    assert on_workers(pair, count) == [(1,), (1,)]


@pytest.mark.parametrize("storage", ["columnar", "heap"])
def test_common_keys_are_known_where_they_are(pair: Pair, storage: str) -> None:
    """A tenant with a fifth of all rows, NULL with a tenth: others' shards have neither."""
    pair.ours.execute("CREATE TABLE t (k integer, v integer)")
    rows = "SELECT CASE WHEN g % 5 = 0 THEN 1 WHEN g % 10 > 0 THEN g % 400 END, g / 10 % 10"
    make(pair, "t", "k", f"{rows} FROM generate_series(1, 20000) AS g", storage)
    pair.ours.execute("UPDATE t SET v = v; ANALYZE t" if storage == "heap" else "ANALYZE t")
    for where in ("k = 1", "k IS NULL", "k = 33", "k = 1 AND v = 5", "v = 5"):
        (actual,) = pair.rows(f"SELECT count(*) FROM t WHERE {where}")[0]
        estimated = 0.0
        for worker in pair.cluster.workers:
            with worker.connect() as connection:
                ((plan,),) = connection.execute(
                    f"EXPLAIN (FORMAT JSON) SELECT FROM s.t WHERE {where}"
                ).fetchall()
                estimated += plan[0]["Plan"]["Plan Rows"]
        assert actual / 2 - 20 < estimated < actual * 2 + 20, where


def test_groups_by_the_key_are_those_of_the_worker(pair: Pair) -> None:
    pair.ours.execute("CREATE TABLE t (k integer, v integer)")
    make(pair, "t", "k", "SELECT g % 1000, g FROM generate_series(1, 20000) AS g")
    pair.ours.execute("ANALYZE t")
    known = "SELECT n_distinct FROM pg_stats WHERE tablename = 't' AND attname = 'k'"
    assert sum(count for (count,) in on_workers(pair, known)) == pytest.approx(1000, rel=0.1)


def test_what_is_not_alike_is_analysed_shard_by_shard(pair: Pair) -> None:
    """Periods differ by time, and an index on an expression has statistics of its own."""
    pair.ours.execute(
        "CREATE TABLE t (k integer, v text); CREATE TABLE p (k integer, at date NOT NULL);"
    )
    make(pair, "t", "k", "SELECT g, 'V' || g % 7 FROM generate_series(1, 4000) AS g")
    pair.ours.execute("CREATE INDEX i ON t (lower(v)); ANALYZE t")
    known = "SELECT n_distinct, count(*)::integer FROM pg_stats WHERE attname = 'lower' GROUP BY 1"
    assert on_workers(pair, known) == [(7, SHARDS // 2)] * 2
    pair.ours.execute(
        "SELECT create_distributed_table('p', 'k', shard_count => 2, partition_by => 'at',"
        " partition_interval => '1 month');"
        "INSERT INTO p SELECT g, '2024-01-01'::date + g % 60 FROM generate_series(1, 4000) AS g;"
        "ANALYZE p"
    )
    leaves = (
        "SELECT bool_and(reltuples >= 0) FROM pg_partition_tree('s.p')"
        " JOIN pg_class ON oid = relid WHERE isleaf"
    )
    assert on_workers(pair, leaves) == [(True,), (True,)]
    assert pair.rows("SELECT reltuples FROM pg_class WHERE relname = 'p'") == [(4000,)]


def test_statistics_are_part_of_the_transaction(pair: Pair) -> None:
    pair.ours.execute("CREATE TABLE t (k integer, v integer); CREATE TABLE u (k integer)")
    make(pair, "t", "k", "SELECT g, g FROM generate_series(1, 100) AS g")
    make(pair, "u", "k", "SELECT g FROM generate_series(1, 100) AS g")
    known = "SELECT count(DISTINCT tablename)::integer FROM pg_stats WHERE schemaname = 's'"
    pair.ours.execute(
        "BEGIN; INSERT INTO t SELECT generate_series(101, 900); ANALYZE t, u; ROLLBACK"
    )
    assert on_workers(pair, known) == [(0,), (0,)]
    pair.ours.execute("BEGIN READ ONLY; ANALYZE u; COMMIT")
    pair.ours.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM t; ANALYZE t (v); COMMIT")
    assert on_workers(pair, known) == [(2 * (SHARDS // 2 + 1),)] * 2
    for command in ("ANALYZE", "VACUUM ANALYZE t, u", "DELETE FROM t", "ANALYZE VERBOSE t, u"):
        pair.ours.execute(command)


def test_values_that_disobey_their_type(pair: Pair) -> None:
    """A constraint of a domain that is NOT VALID keeps nobody from ANALYZE."""
    pair.execute("CREATE DOMAIN word AS text; CREATE TABLE t (k integer, d word, x integer)")
    make(
        pair,
        "t",
        "k",
        "SELECT g, CASE WHEN g % 3 = 0 THEN 'bad' ELSE 'good' END, g % 5 FROM generate_series(1, 2000) AS g",
    )
    pair.execute("ALTER DOMAIN word ADD CONSTRAINT nb CHECK (VALUE <> 'bad') NOT VALID")
    pair.execute("ANALYZE t")
    common = "SELECT most_common_vals::text FROM pg_stats WHERE tablename = 't' AND attname = 'd'"
    assert on_workers(pair, common) == [("{good,bad}",)] * 2
    pair.ours.execute("SELECT count(*) FROM t WHERE d = 'good'")


@pytest.mark.parametrize("command", ["VACUUM", "VACUUM FREEZE", "VACUUM FULL"])
@pytest.mark.parametrize("storage", ["columnar", "heap"])
def test_vacuum_counts_rows_as_postgresql_does(pair: Pair, storage: str, command: str) -> None:
    """Also for an owner who is nobody else, beside an old snapshot, and with nothing left."""
    pair.cluster.create_role("vacuum_owner")
    pair.execute("CREATE TABLE t (k integer, v integer)")
    pair.ours.execute(
        f"SELECT create_distributed_table('t', 'k', {SHARDS}, storage => '{storage}')"
    )
    pair.execute(
        "GRANT USAGE, CREATE ON SCHEMA s TO vacuum_owner; ALTER TABLE t OWNER TO vacuum_owner"
    )
    count = "SELECT reltuples FROM pg_class WHERE oid = 't'::regclass"
    pair.execute(
        "SET ROLE vacuum_owner; INSERT INTO t SELECT g, g FROM generate_series(1, 3000) AS g"
    )
    with pair.cluster.coordinator.connect() as beside:
        beside.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        pair.execute(f"{command} t")
        assert pair.same(count) == [("3000",)]
    pair.execute("DELETE FROM t WHERE k % 3 = 0")
    pair.execute(f"{command} t")
    assert pair.same(count) == [("2000",)]
    pair.execute("DELETE FROM t")
    pair.execute(f"{command} t")
    assert pair.same(count) == [("0",)]


def test_vacuum_counts_the_rows_of_all_periods(pair: Pair) -> None:
    pair.execute("CREATE TABLE t (k integer, at timestamptz NOT NULL)")
    pair.ours.execute(
        "SELECT create_distributed_table('t', 'k', 4, partition_by => 'at', partition_interval => '1 day')"
    )
    pair.execute(
        "INSERT INTO t SELECT g, now() - g % 5 * interval '1 day' FROM generate_series(1, 500) AS g"
    )
    pair.execute("VACUUM t")
    assert pair.same("SELECT reltuples FROM pg_class WHERE oid = 't'::regclass") == [("500",)]
