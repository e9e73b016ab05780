"""Shards move between workers with all their rows, and nobody misses or doubles one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import sql

from tests.cluster import Cluster
from tests.ddl.test_ddl import check_copies
from tests.pair import Pair, open_pair
from tests.waiting import wait_until

SCHEMA = "test_shard_move"
ROLE = "strata shard owner"


@pytest.fixture
def pair(cluster: Cluster) -> Iterator[Pair]:
    cluster.create_role(ROLE)
    with open_pair(cluster, SCHEMA) as made:
        yield made
        made.reset()


def move_all(session: psycopg.Connection, table: str, to: str) -> int:
    """All shards to one worker; the number of rows that moved."""
    shards = session.execute(
        "SELECT shard FROM strata.shards WHERE relation = %s::regclass AND worker <> %s"
        " ORDER BY shard",
        (table, to),
    ).fetchall()
    moved = 0
    for (shard,) in shards:
        ((rows,),) = session.execute(
            "SELECT strata.move_shard(%s::regclass, %s, %s)", (table, shard, to)
        ).fetchall()
        moved += rows
    return moved


def run(session: psycopg.Connection, statement: str) -> None:
    if not statement.startswith("COPY"):
        session.execute(statement)
        return
    with session.cursor().copy(statement) as copy:
        for _ in copy:
            pass


def check_health(pair: Pair) -> None:
    assert (
        pair.rows("SELECT worker_name, check_name, detail FROM check_health() WHERE NOT ok") == []
    )


@pytest.mark.parametrize("storage", ["columnar", "heap"])
def test_rows_move(pair: Pair, storage: str) -> None:
    pair.execute("CREATE TABLE t (k integer PRIMARY KEY, v text, n numeric, j jsonb)")
    pair.ours.execute("SELECT create_distributed_table('t', 'k', storage => %s)", (storage,))
    pair.execute(
        "INSERT INTO t SELECT g, 'v' || g, g / 7.0, to_jsonb(g) FROM generate_series(1, 5000) AS g"
    )
    pair.execute("DELETE FROM t WHERE k % 10 = 3; UPDATE t SET v = NULL WHERE k % 7 = 1")
    assert 0 < move_all(pair.ours, "t", "worker2") < 5000
    pair.same("SELECT * FROM t")
    assert pair.on_workers("SELECT count(*) FROM t") == [0, 4500]
    check_health(pair)
    assert move_all(pair.ours, "t", "worker1") == 4500
    for statement in (
        "SELECT * FROM t",
        "UPDATE t SET n = n + 1",
        "INSERT INTO t VALUES (3, 'new')",
        "DELETE FROM t WHERE k > 100",
        "CREATE INDEX ON t (v)",
        "ALTER TABLE t ADD c integer DEFAULT 5, DROP n",
        "INSERT INTO t VALUES (4, 'twice')",
        "SELECT * FROM t",
    ):
        pair.same(statement)
    move_all(pair.ours, "t", "worker2")
    pair.same("SELECT * FROM t")
    check_health(pair)
    pair.ours.execute("SELECT undistribute_table('t')")
    pair.same("SELECT * FROM t")


def test_a_group_moves_together(pair: Pair) -> None:
    """Tables with all kinds of foreign keys, owned by an ordinary role, with odd names."""
    pair.execute(
        f"""
        CREATE TABLE kinds (kind text PRIMARY KEY);
        CREATE TABLE "odd ""one" ("a b" integer PRIMARY KEY, up integer, kind text REFERENCES kinds ON DELETE CASCADE);
        CREATE TABLE two (k integer, n integer, PRIMARY KEY (k, n));
        CREATE TABLE three (k integer, n integer, UNIQUE (k, n));
        ALTER TABLE "odd ""one" OWNER TO "{ROLE}"; ALTER TABLE two OWNER TO "{ROLE}";
        GRANT ALL ON SCHEMA {SCHEMA} TO "{ROLE}"; GRANT ALL ON kinds TO "{ROLE}";
        """
    )
    pair.reference("kinds")
    pair.distribute('"odd ""one"', "a b")
    for table in ("two", "three"):
        pair.ours.execute(
            sql.SQL("SELECT create_distributed_table({}, 'k', colocate_with => {})").format(
                table, f'{SCHEMA}."odd ""one"'
            )
        )
    pair.execute(
        """
        ALTER TABLE two ADD FOREIGN KEY (k) REFERENCES "odd ""one" ON DELETE CASCADE;
        ALTER TABLE three ADD FOREIGN KEY (k, n) REFERENCES two DEFERRABLE INITIALLY DEFERRED;
        ALTER TABLE "odd ""one" ADD CONSTRAINT self FOREIGN KEY ("a b") REFERENCES "odd ""one";
        INSERT INTO kinds VALUES ('x'), ('y');
        INSERT INTO "odd ""one" SELECT g, g, CASE WHEN g % 2 = 0 THEN 'x' ELSE 'y' END FROM generate_series(1, 300) AS g;
        INSERT INTO two SELECT g, n FROM generate_series(1, 300) AS g, generate_series(1, 3) AS n;
        INSERT INTO three SELECT k, n FROM two WHERE n < 3;
        """
    )
    for worker in ("worker2", "worker1"):
        move_all(pair.ours, "two", worker)
        check_health(pair)
        for table in ("kinds", '"odd ""one"', "two", "three"):
            pair.same(f"SELECT * FROM {table}")
        pair.same('SELECT count(*) FROM "odd ""one" JOIN two ON "a b" = k JOIN three USING (k, n)')
    for statement in (
        "INSERT INTO two VALUES (301, 1)",
        'DELETE FROM "odd ""one" WHERE "a b" = 7',
        "DELETE FROM three WHERE k < 20",
        'DELETE FROM "odd ""one" WHERE "a b" = 7',
        "DELETE FROM three WHERE k % 2 = 0",
        "DELETE FROM kinds WHERE kind = 'x'",
        "SELECT * FROM two",
    ):
        pair.same(statement)
    owner = "SELECT string_agg(DISTINCT relowner::regrole::text, ',') FROM pg_class WHERE relname ~ 'two'"
    assert set(pair.on_workers(owner)) == {f'"{ROLE}"'}
    check_copies(pair, "kinds")


def test_periods_move(pair: Pair) -> None:
    pair.execute("CREATE TABLE p (k integer, at date NOT NULL, n integer)")
    pair.ours.execute(
        "SELECT create_distributed_table('p', 'k', 4, partition_by => 'at', partition_interval => '1 month')"
    )
    pair.execute(
        "INSERT INTO p SELECT g, date '2024-01-15' + g % 900, g FROM generate_series(1, 3000) AS g"
    )
    leaves = "SELECT count(*) FROM strata_worker.leaf_list() WHERE table_name = 'p'"
    before = sum(pair.on_workers(leaves))
    move_all(pair.ours, "p", "worker2")
    assert pair.on_workers(leaves) == [0, before]
    pair.same("SELECT * FROM p")
    pair.same("SELECT at, count(*) FROM p WHERE at > '2025-03-01' GROUP BY at")
    check_health(pair)
    pair.same("INSERT INTO p VALUES (1, '2019-03-01', 0), (2, now()::date, 1)")
    move_all(pair.ours, "p", "worker1")
    pair.same("SELECT * FROM p")
    check_health(pair)
    for worker, count in zip(pair.cluster.workers, (4, 0), strict=True):
        ((schema,),) = worker.query("SELECT strata_worker.partman_schema()")
        configured = f"SELECT count(*) FROM {schema}.part_config WHERE parent_table ~ '{SCHEMA}'"
        assert worker.query(configured) == [(count,)]


def test_columns_of_all_kinds(pair: Pair) -> None:
    pair.execute(
        """
        CREATE TYPE mood AS ENUM ('sad', 'ok');
        CREATE TYPE pair_of AS (a integer, b mood);
        CREATE DOMAIN small AS integer CHECK (VALUE < 100);
        CREATE TABLE t (gone text, k text, e mood, p pair_of, d small, a mood[], r int4range, g integer GENERATED ALWAYS AS (d * 2) STORED,
            f float8, ts timestamptz, i interval, b bytea, x xml, c char(5), m money);
        ALTER TABLE t DROP gone;
        """
    )
    pair.distribute("t", "k")
    pair.execute(
        r"""
        ALTER TABLE t ADD late integer DEFAULT 7;
        INSERT INTO t (k, e, p, d, a, r, f, ts, i, b, x, c, m, late) SELECT 'k' || n, CASE n % 3 WHEN 0 THEN 'sad' WHEN 1 THEN 'ok' END::mood, (n, 'ok')::pair_of, n % 100, ARRAY['sad', NULL, 'ok']::mood[],
            int4range(n, n + 5), n / 7.0, '2026-03-29 01:30+00'::timestamptz + n * interval '1 hour', n * interval '1 day 2 min',
            '\x00ff'::bytea, '<a>b</a>', 'a', n::money, n FROM generate_series(1, 200) AS n;
        INSERT INTO t (k) VALUES (''), (E'tab\t\\ "quote''');
        SET datestyle = 'German'; SET intervalstyle = 'sql_standard'; SET extra_float_digits = -10;
        """
    )
    for worker in ("worker1", "worker2"):
        move_all(pair.ours, "t", worker)
    pair.execute("RESET datestyle; RESET intervalstyle; RESET extra_float_digits")
    pair.same("SELECT * FROM t")
    pair.same("SELECT k, e, (p).b FROM t WHERE k = 'k17'")


@pytest.mark.parametrize("storage", ["columnar", "heap"])
def test_settings_move(pair: Pair, storage: str) -> None:
    """Options of the table, its columns and indexes; statistics are there at once."""
    pair.execute("CREATE TABLE t (k integer, v text, w integer)")
    pair.ours.execute("SELECT create_distributed_table('t', 'k', 4, storage => %s)", (storage,))
    pair.execute(
        "ALTER TABLE t ALTER v SET STATISTICS 17, ALTER v SET (n_distinct = 5), ALTER v SET COMPRESSION lz4;"
        "CREATE INDEX i ON t (v) WHERE w > 3; CREATE STATISTICS s ON v, w FROM t;"
        "INSERT INTO t SELECT g, g % 5, g FROM generate_series(1, 1000) AS g"
    )
    if storage == "heap":
        pair.execute("ALTER TABLE t SET (fillfactor = 70)")
    settings = """
        SELECT string_agg(DISTINCT concat_ws(' ', a.attstattarget, options.own, a.attcompression, c.reloptions, c.relam, x.indexdef IS NOT NULL,
                                             c.reltuples > 0), ';')
          FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'v'
         CROSS JOIN LATERAL (SELECT array_agg(o) AS own FROM unnest(a.attoptions) AS o WHERE o !~ '^pg_') AS options
          LEFT JOIN pg_indexes AS x ON x.tablename = c.relname
         WHERE c.relname ~ '^t_s' AND c.relkind = 'r' AND c.relnamespace = 'test_shard_move'::regnamespace
    """
    pair.ours.execute("ANALYZE t")
    (before, same) = pair.on_workers(settings)
    assert before == same
    for worker in (1, 0):
        move_all(pair.ours, "t", f"worker{worker + 1}")
        assert pair.on_workers(settings)[worker] == before


def test_a_move_is_a_part_of_its_transaction(pair: Pair) -> None:
    pair.execute("CREATE TABLE t (k integer PRIMARY KEY, v integer)")
    pair.distribute("t", "k")
    pair.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 500) AS g")
    places = "SELECT relation::text, shard, worker FROM strata.shards ORDER BY 1, 2"
    before = pair.rows(places)
    with pair.transaction("ROLLBACK"):
        pair.execute("INSERT INTO t VALUES (1000, 0); UPDATE t SET v = 0 WHERE k < 10")
        move_all(pair.ours, "t", "worker1")
        pair.same("SELECT * FROM t")
        pair.execute("DELETE FROM t WHERE k BETWEEN 20 AND 30")
        pair.same("SELECT * FROM t")
        pair.ours.execute("SAVEPOINT s")
        move_all(pair.ours, "t", "worker2")
        pair.ours.execute("ROLLBACK TO s")
        pair.same("SELECT * FROM t")
    assert pair.rows(places) == before
    pair.same("SELECT * FROM t")
    with pair.transaction("COMMIT"):
        pair.execute("INSERT INTO t VALUES (1000, 0); UPDATE t SET v = 0 WHERE k < 10")
        move_all(pair.ours, "t", "worker1")
        pair.execute("DELETE FROM t WHERE k BETWEEN 20 AND 30")
    pair.same("SELECT * FROM t")
    check_health(pair)


def test_prepared_statements_follow(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE t (k integer PRIMARY KEY, v integer); CREATE TABLE o (k integer, w integer)"
    )
    pair.distribute("t", "k")
    pair.distribute("o", "k")
    pair.execute(
        "INSERT INTO t SELECT g, g FROM generate_series(1, 200) AS g; INSERT INTO o SELECT g, g FROM generate_series(1, 200) AS g;"
        "PREPARE one (integer) AS SELECT * FROM t WHERE k = $1; PREPARE total AS SELECT sum(v) FROM t;"
        "PREPARE change (integer) AS UPDATE t SET v = v + 1 WHERE k = $1;"
        "PREPARE two AS SELECT * FROM t, o WHERE t.k = 5 AND o.k = 9; SET plan_cache_mode = force_generic_plan"
    )
    for worker in ("worker1", "worker2", "worker1"):
        for k in (1, 2, 3, 50, 199):
            pair.same(f"EXECUTE one ({k})")
            pair.same(f"EXECUTE change ({k})")
        pair.same("EXECUTE total")
        pair.same("EXECUTE two")
        move_all(pair.ours, "t", worker)
    pair.same("SELECT * FROM t")


def test_older_snapshots_begin_again(pair: Pair) -> None:
    """REPEATABLE READ neither misses rows that have moved nor sees them twice, nor writes where nobody looks."""
    pair.execute("CREATE TABLE t (k integer PRIMARY KEY, v integer)")
    pair.distribute("t", "k")
    pair.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 200) AS g")
    pair.execute("CREATE TABLE other (k integer)")
    for statement in (
        "SELECT * FROM t",
        "SELECT * FROM t WHERE k = 1",
        "INSERT INTO t VALUES (1000, 1)",
        "UPDATE t SET v = 0",
        "DELETE FROM t WHERE k = 3",
        "COPY t TO STDOUT",
        "SELECT count(*) FROM t, other",
    ):
        with pair.cluster.coordinator.connect() as session:
            session.execute(f"SET search_path = {SCHEMA}")
            session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM other")
            assert move_all(pair.ours, "t", "worker1") + move_all(pair.ours, "t", "worker2") >= 200
            with pytest.raises(
                psycopg.errors.SerializationFailure, match='rows of table "t" moved'
            ):
                run(session, statement)
            session.execute("ROLLBACK")
            session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            assert session.execute("SELECT count(*) FROM t").fetchall() == [(200,)]
            session.execute("COMMIT")
    pair.same("SELECT * FROM t")


def test_readers_and_writers_wait(pair: Pair) -> None:
    """A cursor that is open keeps the shard where it is; who comes meanwhile waits, and sees all rows."""
    pair.execute("CREATE TABLE t (k integer PRIMARY KEY, v integer)")
    pair.distribute("t", "k")
    pair.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 2000) AS g")
    coordinator = pair.cluster.coordinator
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ %s"
    found: list = []

    def run(statement: str) -> None:
        with coordinator.connect() as session:
            cursor = session.execute(f"SET search_path = {SCHEMA}, strata; {statement}")
            while cursor.nextset():
                pass
            found.append(cursor.fetchall() if cursor.description else statement)

    with coordinator.connect() as reader:
        reader.execute(f"SET search_path = {SCHEMA}; BEGIN; DECLARE c CURSOR FOR SELECT k FROM t")
        assert len(reader.execute("FETCH 10 FROM c").fetchall()) == 10
        ((shard, to),) = pair.rows(
            "SELECT shard, CASE worker WHEN 'worker1' THEN 'worker2' ELSE 'worker1' END"
            " FROM strata.shards WHERE relation = 't'::regclass LIMIT 1"
        )
        threads = [threading.Thread(target=run, args=(f"SELECT move_shard('t', {shard}, '{to}')",))]
        threads[0].start()
        for _ in wait_until("the move waits"):
            if pair.rows(waiting, ("^SET search_path.*move_shard",)) != [(0,)]:
                break
        for statement in ("SELECT count(*) FROM t", "UPDATE t SET v = v + 1"):
            threads.append(threading.Thread(target=run, args=(statement,)))
            threads[-1].start()
        assert len(reader.execute("FETCH ALL FROM c").fetchall()) == 1990
        reader.execute("COMMIT")
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert [(2000,)] in found
    assert "UPDATE t SET v = v + 1" in found
    pair.theirs.execute("UPDATE t SET v = v + 1")
    pair.same("SELECT * FROM t")


@pytest.mark.parametrize("action", ["CASCADE", "NO ACTION"])
@pytest.mark.parametrize("first", ["move", "delete"])
def test_a_reference_table_changes_meanwhile(pair: Pair, first: str, action: str) -> None:
    """Workers cascade and check changes of it: all of them before the move, or all of them after it."""
    pair.execute(
        f"CREATE TABLE kinds (kind integer PRIMARY KEY);"
        f"CREATE TABLE t (k integer, kind integer REFERENCES kinds ON DELETE {action})"
    )
    pair.reference("kinds")
    pair.distribute("t", "k", shards=4)
    pair.execute(
        "INSERT INTO kinds SELECT g FROM generate_series(1, 5) AS g;"
        "INSERT INTO t SELECT g, g % 4 + 1 FROM generate_series(1, 400) AS g"
    )
    delete = (
        "DELETE FROM kinds WHERE kind IN (2, 5)"
        if action == "CASCADE"
        else "DELETE FROM kinds WHERE kind = 5"
    )
    ((shard, to),) = pair.rows(
        "SELECT shard, CASE worker WHEN 'worker1' THEN 'worker2' ELSE 'worker1' END"
        " FROM strata.shards WHERE relation = 't'::regclass LIMIT 1"
    )
    statements = [delete, f"SELECT move_shard('t', {shard}, '{to}')"]
    if first == "move":
        statements.reverse()
    with pair.cluster.coordinator.connect() as one, pair.cluster.coordinator.connect() as two:
        for session in (one, two):
            session.execute(f"SET search_path = {SCHEMA}, strata")
        one.execute("BEGIN")
        one.execute(statements[0])
        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(two.execute, statements[1])
            with pytest.raises(TimeoutError):
                second.result(0.5)
            one.execute("COMMIT")
            second.result(60)
    pair.theirs.execute(delete)
    pair.same("SELECT * FROM t")
    check_copies(pair, "kinds")
    pair.same("INSERT INTO t VALUES (1000, 5)")
    pair.same("DELETE FROM kinds WHERE kind = 1")
    pair.same("SELECT * FROM t")
    check_health(pair)


def test_errors(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE t (k integer PRIMARY KEY); CREATE TABLE r (k integer PRIMARY KEY); CREATE TABLE l (k integer)"
    )
    pair.distribute("t", "k", shards=4)
    pair.reference("r")
    ((worker,),) = pair.rows(
        "SELECT worker FROM strata.shards WHERE relation = 't'::regclass AND shard = 0"
    )
    assert pair.rows("SELECT move_shard('t', 0, %s)", (worker,)) == [(0,)]
    other = "worker1" if worker == "worker2" else "worker2"
    for call, state, words in (
        ("('t', 0, 'nobody')", "42704", 'worker "nobody" does not exist'),
        ("('t', 4, 'worker1')", "22023", 'table "t" has no shard 4'),
        ("('t', -1, 'worker1')", "22023", "no shard -1"),
        ("('r', 0, 'worker1')", "42809", "not a distributed table"),
        ("('l', 0, 'worker1')", "42809", "not a distributed table"),
        ("(NULL, 0, 'worker1')", "22004", "relation must not be null"),
        ("('t', NULL, 'worker1')", "22004", "shard must not be null"),
        ("('t', 0, NULL)", "22004", "worker must not be null"),
    ):
        with pytest.raises(psycopg.Error, match=words) as caught:
            pair.ours.execute(f"SELECT move_shard{call}")
        assert caught.value.sqlstate == state
    for begin, state in (
        ("BEGIN ISOLATION LEVEL REPEATABLE READ", "25001"),
        ("BEGIN READ ONLY", "25006"),
        (f'BEGIN; SET LOCAL SESSION AUTHORIZATION "{ROLE}"', "42501"),
        ("BEGIN; DECLARE c CURSOR FOR SELECT * FROM t; FETCH 1 FROM c", "55006"),
    ):
        pair.ours.execute(begin)
        with pytest.raises(psycopg.Error) as caught:
            pair.ours.execute(f"SELECT strata.move_shard('{SCHEMA}.t', 0, '{other}')")
        assert caught.value.sqlstate == state
        pair.ours.execute("ROLLBACK")
    assert pair.rows(
        "SELECT worker FROM strata.shards WHERE relation = 't'::regclass AND shard = 0"
    ) == [(worker,)]
