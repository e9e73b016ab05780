"""What the coordinator does with periods in the background: make, fill, cut off, drop."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.assert_same import assert_same
from tests.cluster import Cluster
from tests.period.test_periods import distribute, leaves, on_both, rows_of, spelled
from tests.waiting import wait_until


@pytest.fixture
def maintained(cluster: Cluster, schema: str) -> Iterator[Cluster]:
    """The cluster, with a look at periods every 200 ms."""
    node = cluster.coordinator
    node.execute("ALTER SYSTEM SET strata.period_interval = '200ms'")
    node.reload()
    yield cluster
    node.execute("ALTER SYSTEM RESET strata.period_interval")
    node.reload()


def make_table(cluster: Cluster, more: str = "") -> None:
    on_both(cluster, "CREATE TABLE t (k int, at timestamptz NOT NULL, v int, PRIMARY KEY (k, at))")
    distribute(cluster, "t", f"partition_by => 'at', partition_interval => '1 day' {more}")


def wait_for_empty_defaults(cluster: Cluster, schema: str) -> None:
    for _ in wait_until("the default partitions are empty", timeout=120):
        if rows_of(cluster, schema, "_default$") == 0:
            return


def test_rows_outside_move_into_periods(maintained: Cluster, schema: str):
    """Late rows, rows of the future, and rows of no time at all."""
    make_table(maintained)
    on_both(
        maintained,
        "INSERT INTO t SELECT i, '2019-12-30 01:00:00+00'::timestamptz + i * interval '1 hour', i"
        " FROM generate_series(1, 100) AS i;"
        " INSERT INTO t VALUES (1, '2150-06-07', 1), (2, '2150-06-07 23:59:59+00', 2)",
    )
    wait_for_empty_defaults(maintained, schema)
    assert rows_of(maintained, schema, "_p2150_06_07$") == 2
    assert rows_of(maintained, schema, "_p2019_12_31$") == 24
    on_both(maintained, "INSERT INTO t VALUES (3, 'infinity', 3), (4, '-infinity', 4)")
    assert_same(maintained, "SELECT * FROM t ORDER BY k, at")
    assert_same(maintained, "SELECT count(*) FROM t WHERE at >= '2019-12-31' AND at < '2020-01-02'")
    assert rows_of(maintained, schema, "_default$") == 2


def bytes_of_defaults(cluster: Cluster, schema: str) -> int:
    """Of the rows in the default partitions, on all workers."""
    total = 0
    for worker in cluster.workers:
        total += worker.value(
            "SELECT coalesce(sum(pg_table_size(oid)), 0) FROM pg_class WHERE relkind = 'r'"
            " AND relnamespace = %s::regnamespace AND relname ~ '_default$'",
            (schema,),
        )
        worker.disconnect()
    return total


@pytest.mark.parametrize("storage", ["columnar", "heap"])
def test_late_rows_leave_no_copy_behind(maintained: Cluster, schema: str, storage: str):
    """The space that they took before they moved comes back with the move."""
    on_both(
        maintained, "CREATE TABLE t (k int, at timestamptz NOT NULL, v int, PRIMARY KEY (k, at))"
    )
    distribute(
        maintained,
        "t",
        f"partition_by => 'at', partition_interval => '1 day', storage => '{storage}'",
    )
    empty = bytes_of_defaults(maintained, schema)
    on_both(
        maintained,
        "INSERT INTO t SELECT i, '2019-12-30'::timestamptz + i % 3 * interval '1 day', i * 7919"
        " FROM generate_series(1, 30000) AS i",
    )
    wait_for_empty_defaults(maintained, schema)
    assert bytes_of_defaults(maintained, schema) <= empty
    assert_same(maintained, "SELECT count(*), sum(v), min(at), max(at) FROM t")
    on_both(maintained, "INSERT INTO t VALUES (1, '2019-11-11', 1)")
    wait_for_empty_defaults(maintained, schema)
    assert_same(maintained, "SELECT count(*), sum(v), min(at), max(at) FROM t")


def test_rows_that_foreign_keys_refer_to_move(maintained: Cluster, schema: str):
    """A default partition that is referred to cannot be truncated: it is emptied all the same."""
    make_table(maintained)
    on_both(maintained, "CREATE TABLE c (k int, at timestamptz)")
    maintained.coordinator.execute(
        "SELECT strata.create_distributed_table('c', 'k', colocate_with => 't')"
    )
    on_both(maintained, "ALTER TABLE c ADD FOREIGN KEY (k, at) REFERENCES t")
    on_both(maintained, "INSERT INTO t SELECT i, '2019-12-30', i FROM generate_series(1, 50) AS i")
    wait_for_empty_defaults(maintained, schema)
    on_both(maintained, "INSERT INTO c SELECT k, at FROM t WHERE k < 9")
    assert_same(maintained, "SELECT count(*) FROM t JOIN c USING (k, at)")


def test_periods_are_made_ahead_of_time_though_there_are_rows_of_the_far_future(
    maintained: Cluster, schema: str
):
    make_table(maintained)
    on_both(maintained, "INSERT INTO t SELECT i, '2150-06-07', 1 FROM generate_series(1, 9) AS i")
    wait_for_empty_defaults(maintained, schema)
    worker = maintained.workers[0]
    tomorrow = worker.value("SELECT to_char(now() + interval '1 day', 'YYYY_MM_DD')")
    leaf = spelled(f"t_s0_p{tomorrow}")
    worker.execute(f"DROP TABLE {schema}.{leaf}")
    worker.disconnect()
    for _ in wait_until("the period is there again", timeout=60):
        if leaf in leaves(maintained, schema, "t"):
            break


def test_numbers_get_periods_before_they_come(maintained: Cluster, schema: str):
    on_both(maintained, "CREATE TABLE t (k int, id bigint NOT NULL)")
    distribute(maintained, "t", "partition_by => 'id', partition_interval => '1000'")
    on_both(maintained, "INSERT INTO t SELECT i % 9, i FROM generate_series(0, 20500, 5) AS i")
    wait_for_empty_defaults(maintained, schema)
    for _ in wait_until("there are periods ahead", timeout=60):
        if "t_s0_p24000" in leaves(maintained, schema, "t"):
            break
    assert_same(maintained, "SELECT count(*), sum(id), sum(k) FROM t")


def test_no_reader_misses_rows_that_move(maintained: Cluster, schema: str):
    make_table(maintained)
    node = maintained.coordinator
    with node.connect() as reader:
        for day in range(1, 9):
            node.execute(
                f"INSERT INTO t SELECT i, '2017-03-0{day}', i FROM generate_series(1, 500) AS i"
            )
            for _ in range(20):
                query = (
                    f"SELECT count(*), sum(v) FROM {schema}.t"
                    " WHERE at >= '2017-03-01' AND at < '2017-04-01'"
                )
                assert reader.execute(query).fetchone() == (500 * day, 125250 * day)
    wait_for_empty_defaults(maintained, schema)
    assert node.query("SELECT count(*), sum(v) FROM t") == [(4000, 1002000)]


def test_older_snapshots_fail_rather_than_miss_rows(maintained: Cluster, schema: str):
    node = maintained.coordinator
    node.execute("ALTER SYSTEM SET strata.period_interval = '1h'")  # not before the snapshot
    node.reload()
    make_table(maintained)
    node.execute("INSERT INTO t SELECT i, '2017-03-01', i FROM generate_series(1, 500) AS i")
    node.execute("CREATE TABLE other (k int); SELECT create_distributed_table('other', 'k', 4)")
    with node.connect(autocommit=False) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute(f"SELECT count(*) FROM {schema}.other")
        node.execute("ALTER SYSTEM SET strata.period_interval = '200ms'")
        node.reload()
        wait_for_empty_defaults(maintained, schema)
        with pytest.raises(psycopg.errors.SerializationFailure, match='rows of table "t" moved'):
            reader.execute(f"SELECT count(*) FROM {schema}.t")


def test_functions_of_the_owner_do_not_run_as_the_administrator(
    maintained: Cluster, schema: str, request: pytest.FixtureRequest
):
    """A CHECK constraint is evaluated for rows that move: as the table's owner."""
    node = maintained.coordinator
    maintained.create_role("period_owner")
    node.execute(f"GRANT ALL ON SCHEMA {schema} TO period_owner")
    with node.connect(user="period_owner") as owner:
        owner.execute(f"SET search_path = {schema}")
        owner.execute(
            "CREATE FUNCTION is_owner() RETURNS boolean LANGUAGE plpgsql"
            " AS $$ BEGIN RETURN current_user = 'period_owner'; END $$;"
            f" CREATE TABLE t (k int, at date NOT NULL, CHECK ({schema}.is_owner()));"
        )
        owner.execute(
            "SELECT strata.create_distributed_table('t', 'k', 4, partition_by => 'at',"
            " partition_interval => '1 day')"
        )
        owner.execute("INSERT INTO t SELECT i, '2017-03-01' FROM generate_series(1, 50) AS i")
    wait_for_empty_defaults(maintained, schema)
    assert rows_of(maintained, schema, "_p2017_03_01$") == 50
    node.execute("DROP OWNED BY period_owner CASCADE")
    node.execute("DROP ROLE period_owner")


def test_functions_of_rows_that_move_change_no_table(maintained: Cluster, schema: str):
    """Each worker would change its own copy of the list."""
    node = maintained.coordinator
    maintained.create_role("period_mover")
    node.execute(f"GRANT ALL ON SCHEMA {schema} TO period_mover")
    with node.connect(user="period_mover") as owner:
        owner.execute(f"SET search_path = {schema}")
        owner.execute(
            "CREATE TABLE list (n int PRIMARY KEY, port text);"
            "CREATE FUNCTION note() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN"
            f" UPDATE {schema}.list SET port = current_setting('port'); RETURN true;"
            " EXCEPTION WHEN insufficient_privilege OR read_only_sql_transaction THEN RETURN true; END $$;"
            f"CREATE TABLE t (k int, at date NOT NULL, CHECK ({schema}.note()))"
        )
        owner.execute(
            "SELECT strata.create_reference_table('list');"
            "SELECT strata.create_distributed_table('t', 'k', 4, partition_by => 'at',"
            " partition_interval => '1 day')"
        )
        owner.execute("INSERT INTO list VALUES (1, '')")
        owner.execute("INSERT INTO t SELECT i, '2017-03-01' FROM generate_series(1, 50) AS i")
    wait_for_empty_defaults(maintained, schema)
    assert rows_of(maintained, schema, "_p2017_03_01$") == 50
    # the coordinator computes the constraint, too, and may change the list: everywhere
    assert (
        len({worker.value(f"SELECT port FROM {schema}.list") for worker in maintained.workers}) == 1
    )
    node.execute("DROP OWNED BY period_mover CASCADE")
    node.execute("DROP ROLE period_mover")


def test_what_is_folded_in_the_background_is_the_owners(maintained: Cluster, schema: str):
    """Planner and ATTACH PARTITION call functions of constants in constraints and indexes."""
    node = maintained.coordinator
    maintained.create_role("period_folder")
    node.execute(f"GRANT ALL ON SCHEMA {schema} TO period_folder")
    with node.connect(user="period_folder") as owner:
        owner.execute(f"SET search_path = {schema}")
        # what the test itself does as administrator is none of its business
        for each in maintained.nodes:
            each.execute("SET application_name = 'test'")
        owner.execute(
            "CREATE FUNCTION folded(integer) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN"
            " IF current_setting('application_name') <> 'test'"
            "   AND (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN"
            "  RAISE EXCEPTION 'folded as the administrator';"
            " END IF;"
            " RETURN true; END $$;"
        )
        owner.execute(f"CREATE TABLE n (k int, id bigint NOT NULL, CHECK ({schema}.folded(1)))")
        owner.execute(
            "SELECT strata.create_distributed_table('n', 'k', 4, partition_by => 'id',"
            " partition_interval => '100', retention => '1000')"
        )
        owner.execute(f"CREATE INDEX ON n (k) WHERE {schema}.folded(2)")
        owner.execute("INSERT INTO n SELECT i, i FROM generate_series(1, 3000) AS i")
        wait_for_empty_defaults(maintained, schema)
        assert rows_of(maintained, schema, "_p2900$") == 100
        for _ in wait_until("the cut-off is published", timeout=60):
            if owner.execute("SELECT min(id) FROM n").fetchone() == (2000,):
                break
        for _ in wait_until("old leaves are dropped", timeout=60):
            if not any("_p19" in name for name in leaves(maintained, schema, "n")):
                break
    node.execute("DROP OWNED BY period_folder CASCADE")
    node.execute("DROP ROLE period_folder")


def test_retention_cuts_off_at_once_and_drops_later(maintained: Cluster, schema: str):
    make_table(maintained, ", retention => '10 days'")
    node = maintained.coordinator
    on_both(
        maintained,
        "INSERT INTO t SELECT i, now() - i * interval '1 day', i FROM generate_series(0, 30) AS i",
    )
    maintained.plain.execute(
        "DELETE FROM t WHERE at < date_trunc('day', now() AT TIME ZONE 'UTC') - interval '10 days'"
    )
    for _ in wait_until("the cut-off is published", timeout=60):
        if node.value("SELECT cutoff FROM strata.distributed_table WHERE relation = 't'::regclass"):
            break
    node.execute("CREATE TABLE u (k int, w int); SELECT create_distributed_table('u', 'k', 4)")
    maintained.plain.execute("CREATE TABLE u (k int, w int)")
    on_both(maintained, "INSERT INTO u SELECT i, i FROM generate_series(0, 40) AS i")
    for query in [
        "SELECT k, v FROM t ORDER BY k",
        "SELECT count(*) FROM t",
        "SELECT u.k, t.v FROM u LEFT JOIN t USING (k) ORDER BY 1",
        "SELECT u.k, t.v FROM t RIGHT JOIN u ON t.k = u.k ORDER BY 1",
        "SELECT u.k, t.v FROM t FULL JOIN u ON t.k = u.k ORDER BY 1",
        "SELECT k FROM u WHERE EXISTS (SELECT FROM t WHERE t.k = u.k) ORDER BY 1",
        "SELECT k FROM u WHERE k NOT IN (SELECT k FROM t) ORDER BY 1",
        "WITH c AS MATERIALIZED (SELECT * FROM t) SELECT count(*) FROM c",
        "UPDATE u SET w = w + 100 FROM t WHERE t.k = u.k",
        "UPDATE t SET v = v + 1",
        "DELETE FROM u USING t WHERE t.k = u.k AND t.v > 5",
        "SELECT * FROM u ORDER BY k",
    ]:
        assert_same(maintained, query)
    with node.connection.cursor().copy("COPY t (k) TO STDOUT") as copy:
        copied = sorted(int(line) for (line,) in (row.tobytes().split() for row in copy))
    assert copied == list(range(len(copied)))
    assert len(copied) in (10, 11)
    for _ in wait_until("old leaves are dropped", timeout=120):
        names = leaves(maintained, schema, "t")
        cutoff = node.value(
            "SELECT to_char(cutoff::timestamptz, '_pYYYY_MM_DD') FROM strata.distributed_table"
            " WHERE relation = 't'::regclass"
        )
        if not any("_p" in name and name[name.index("_p") :] < spelled(cutoff) for name in names):
            break
    assert_same(maintained, "SELECT k, v FROM t ORDER BY k")
    # a row that is too old is gone at once
    node.execute("INSERT INTO t VALUES (1000, '2001-01-01', 1)")
    assert_same(maintained, "SELECT k, v FROM t ORDER BY k")


def test_a_shard_that_pg_partman_forgot_is_told(maintained: Cluster, schema: str):
    make_table(maintained)
    node, worker = maintained.coordinator, maintained.workers[0]
    health = "SELECT worker_name, detail FROM check_health() WHERE NOT ok"
    assert node.query(health) == []
    begin = node.log_size()
    worker.execute(f"DELETE FROM partman.part_config WHERE parent_table = '{schema}.t_s0'")
    assert node.query(health) == [("worker1", f"pg_partman does not know {schema}.t_s0")]
    for _ in wait_until("the log tells", timeout=60):
        if f'pg_partman does not know shard "{schema}.t_s0"' in node.log_text(begin):
            break


def test_execute_reads_what_moved_while_it_waited_for_the_table(cluster: Cluster, schema: str):
    """It has a snapshot before it has locks, and takes another one."""
    make_table(cluster)
    node = cluster.coordinator
    node.execute("INSERT INTO t SELECT i, '2017-03-01', i FROM generate_series(1, 50) AS i")
    with node.connect() as mover, node.connect() as reader, ThreadPoolExecutor() as pool:
        reader.execute(
            f"SET search_path = {schema}; SET plan_cache_mode = force_generic_plan;"
            " PREPARE q AS SELECT count(*) FROM t; EXECUTE q"
        )
        for number, statement in enumerate(("EXECUTE q", "CREATE TABLE kept AS EXECUTE q")):
            mover.execute(f"BEGIN; LOCK TABLE {schema}.t")
            waiting = pool.submit(reader.execute, statement)
            for _ in wait_until("the reader waits"):
                if node.value(
                    "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted",
                    (reader.info.backend_pid,),
                ):
                    break
            # as the background process does that moves rows
            mover.execute(
                "UPDATE strata.distributed_table SET moved_by = pg_current_xact_id()"
                f" WHERE relation = '{schema}.t'::regclass;"
                f" INSERT INTO {schema}.t VALUES ({number + 100}, '2017-03-01', 1); COMMIT"
            )
            waiting.result()
            if number == 0:
                assert waiting.result().fetchone() == (51,)
        assert reader.execute("TABLE kept").fetchone() == (52,)
