"""Workers come and go, tables are distributed and taken back, and nothing is lost on the way."""

from __future__ import annotations

import subprocess
import threading
import uuid
from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster, Node
from tests.installation import find_binaries
from tests.pair import Pair, open_pair
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_metadata") as made:
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    """An empty schema for each test."""
    yield data
    data.reset()
    data.execute("DROP SCHEMA test_metadata CASCADE; CREATE SCHEMA test_metadata")


def placement(pair: Pair, table: str) -> list[tuple]:
    return pair.rows(
        "SELECT s.remainder, s.worker_id FROM strata.shard s JOIN strata.distributed_table d"
        " USING (colocation_id) WHERE d.relation = %s::regclass ORDER BY 1",
        (f"{pair.schema}.{table}",),
    )


# ---- distributing ------------------------------------------------------------------------------------


def test_a_table_with_rows_moves_them_to_the_workers(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, v text, big text);"
        "INSERT INTO t SELECT g, 'v' || g, repeat('x', g % 3000) FROM generate_series(1, 5000) AS g;"
        "DELETE FROM t WHERE id % 5 = 0; UPDATE t SET v = 'changed' WHERE id % 7 = 0"
    )
    pair.distribute("t", "id", shards=16)
    pair.same("SELECT * FROM t")
    counts = pair.on_workers("SELECT count(*) FROM t")
    assert sum(counts) == 4000
    assert all(count > 1000 for count in counts)
    assert pair.rows("SELECT pg_relation_size('t') <= 8192") == [(True,)], "no rows stay here"


def test_each_row_is_in_the_partition_that_its_hash_says(pair: Pair) -> None:
    pair.execute("CREATE TABLE t (k text, v integer)")
    pair.distribute("t", "k", shards=12)
    pair.execute("INSERT INTO t SELECT md5(g::text), g FROM generate_series(1, 2000) AS g")
    owners = {
        name: number for number, name in pair.rows("SELECT worker_id, name FROM strata.worker")
    }
    expected = placement(pair, "t")
    assert len(expected) == 12
    for worker in pair.cluster.workers:
        rows = worker.query(
            "SELECT DISTINCT tableoid::regclass::text FROM test_metadata.t WHERE NOT"
            " satisfies_hash_partition('test_metadata.t'::regclass, 12,"
            " (regexp_match(tableoid::regclass::text, '_s(\\d+)$'))[1]::integer, k)"
        )
        assert rows == []
        partitions = worker.query(
            "SELECT (regexp_match(inhrelid::regclass::text, '_s(\\d+)$'))[1]::integer FROM pg_inherits"
            " WHERE inhparent = 'test_metadata.t'::regclass"
        )
        mine = {remainder for remainder, owner in expected if owner == owners[worker.name]}
        assert {remainder for (remainder,) in partitions} == mine


def test_a_failed_distribution_leaves_a_local_table_with_all_rows(pair: Pair) -> None:
    pair.execute("CREATE TABLE t (id integer, v text); INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    for worker in pair.cluster.workers:
        worker.execute("CREATE SCHEMA IF NOT EXISTS test_metadata")
    pair.cluster.workers[1].execute("CREATE TABLE test_metadata.t (other text)")
    with pytest.raises(psycopg.Error) as caught:
        pair.distribute("t", "id")
    assert caught.value.sqlstate == "42P07"
    assert "worker2" in str(caught.value)
    pair.same("SELECT * FROM t")
    assert pair.rows("SELECT * FROM strata.tables WHERE relation::text LIKE '%t'") == []
    assert pair.cluster.workers[0].value("SELECT to_regclass('test_metadata.t')::text") is None
    pair.cluster.workers[1].execute("DROP TABLE test_metadata.t")
    pair.distribute("t", "id")
    pair.same("SELECT * FROM t")


def test_distribution_can_be_rolled_back(pair: Pair) -> None:
    pair.execute("CREATE TABLE t (id integer PRIMARY KEY, v text)")
    pair.execute("INSERT INTO t SELECT g, 'x' FROM generate_series(1, 100) AS g")
    with pair.ours.transaction(force_rollback=True):
        pair.distribute("t", "id")
        assert pair.rows("SELECT count(*) FROM t") == [(100,)]
        pair.ours.execute("INSERT INTO t VALUES (1000, 'new')")
        assert pair.rows("SELECT count(*) FROM t") == [(101,)]
    pair.same("SELECT * FROM t")
    for worker in pair.cluster.workers:
        assert worker.value("SELECT to_regclass('test_metadata.t')::text") is None
    pair.distribute("t", "id")
    pair.same("SELECT * FROM t")


def test_distribution_in_a_transaction_with_writes_commits_as_one(pair: Pair) -> None:
    with pair.transaction("COMMIT"):
        pair.execute(
            "CREATE TABLE t (id integer PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a')"
        )
        pair.distribute("t", "id")
        pair.execute("INSERT INTO t VALUES (2, 'b'), (3, 'c')")
        pair.same("SELECT * FROM t")
    pair.same("SELECT * FROM t")


def test_a_write_during_the_distribution_is_not_lost(pair: Pair) -> None:
    """A writer is in an open transaction while the table is being distributed: it waits its turn."""
    pair.execute("CREATE TABLE t (id integer PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a')")
    with pair.cluster.coordinator.connect() as writer:
        writer.execute("BEGIN")
        writer.execute("INSERT INTO test_metadata.t VALUES (2, 'b')")
        thread = threading.Thread(target=lambda: pair.distribute("t", "id"))
        thread.start()
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        for _ in wait_until("the distribution waits for the writer"):
            if pair.cluster.coordinator.value(waiting) > 0:
                break
        writer.execute("COMMIT")
        thread.join(30)
        writer.execute("INSERT INTO test_metadata.t VALUES (3, 'c')")
    assert sorted(pair.rows("SELECT id FROM t")) == [(1,), (2,), (3,)]
    assert sum(pair.on_workers("SELECT count(*) FROM t")) == 3


def test_structure_follows_the_table_to_the_workers(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE t (id integer, v text NOT NULL DEFAULT 'd', n numeric(8, 2) CHECK (n > 0),"
        " g integer GENERATED ALWAYS AS (id * 2) STORED, PRIMARY KEY (id), UNIQUE (v, id));"
        "CREATE INDEX t_upper ON t (upper(v)) WHERE n > 1;"
        "CREATE INDEX t_gin ON t USING gin (to_tsvector('english', v))"
    )
    pair.distribute("t", "id")
    structure = (
        "SELECT string_agg(pg_get_indexdef(indexrelid), E'\\n' ORDER BY indexrelid::regclass::text)"
        " FROM pg_index WHERE indrelid = 'test_metadata.t'::regclass"
    )
    here = pair.rows(structure)[0][0]
    for there in pair.on_workers(structure):
        assert there.replace(" ON ONLY ", " ON ") == here
    checks = (
        "SELECT string_agg(conname || pg_get_constraintdef(oid), E'\\n' ORDER BY conname) FROM"
        " pg_constraint WHERE conrelid = 'test_metadata.t'::regclass"
    )
    assert pair.on_workers(checks) == [pair.rows(checks)[0][0]] * len(pair.cluster.workers)
    pair.all_same(
        [
            "INSERT INTO t (id, n) VALUES (1, 5) RETURNING *",
            "INSERT INTO t (id, n) VALUES (1, 5)",
            "INSERT INTO t (id, n) VALUES (2, -5)",
            "INSERT INTO t (id, v) VALUES (3, NULL)",
        ]
    )


def test_names_that_need_quotes_work_everywhere(pair: Pair) -> None:
    name = '"Tab-le ""x"" ' + "n" * 40 + '"'
    pair.execute(f'CREATE TABLE {name} ("Key" integer PRIMARY KEY, "select" text, "ü ö" integer)')
    pair.distribute(name, "Key")
    pair.all_same(
        [
            f"INSERT INTO {name} SELECT g, 'x', g FROM generate_series(1, 50) AS g",
            f'SELECT * FROM {name} WHERE "Key" = 7',
            f'SELECT "select", count(*), max("ü ö") FROM {name} GROUP BY "select"',
            f'UPDATE {name} SET "select" = \'y\' WHERE "Key" < 9 RETURNING "Key"',
            f'SELECT a."Key" FROM {name} a JOIN {name} b USING ("Key")',
            f"DELETE FROM {name}",
        ]
    )
    pair.execute(f"DROP TABLE {name}")


def test_long_names_that_share_their_first_characters_do_not_collide(pair: Pair) -> None:
    names = ["n" * 62 + letter for letter in "ab"]
    for name in names:
        pair.execute(f"CREATE TABLE {name} (id integer PRIMARY KEY)")
        pair.distribute(name, "id", shards=12)
        pair.execute(f"INSERT INTO {name} SELECT generate_series(1, 100)")
    for name in names:
        pair.same(f"SELECT count(*) FROM {name}")


# ---- colocation --------------------------------------------------------------------------------------


def test_colocated_tables_share_their_placement(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE a (k integer); CREATE TABLE b (x text, k integer); CREATE TABLE c (k bigint)"
    )
    pair.distribute("a", "k", shards=8)
    pair.distribute("b", "k", colocate_with="a")
    pair.distribute("c", "k", shards=8)
    groups = dict(
        pair.rows(
            "SELECT relation::text, colocation_id FROM strata.distributed_table WHERE kind = 'd'"
            " AND relation IN ('a'::regclass, 'b'::regclass, 'c'::regclass)"
        )
    )
    assert groups["a"] == groups["b"] != groups["c"]
    assert placement(pair, "a") == placement(pair, "b")
    owners = [owner for _, owner in placement(pair, "a")]
    assert {owners.count(owner) for owner in set(owners)} == {4}, "the shards are spread evenly"


def test_the_default_colocation_is_by_key_type_and_shard_count(pair: Pair) -> None:
    pair.execute("CREATE TABLE a (k integer); CREATE TABLE b (k integer); CREATE TABLE c (k text)")
    for name in "abc":
        pair.distribute(name, "k", colocate_with="default")
    groups = dict(
        pair.rows(
            "SELECT relation::text, colocation_id FROM strata.distributed_table"
            " WHERE relation IN ('a'::regclass, 'b'::regclass, 'c'::regclass)"
        )
    )
    assert groups["a"] == groups["b"] != groups["c"]
    ((shards,),) = pair.rows("SHOW strata.shard_count")
    assert len(placement(pair, "a")) == int(shards)


def test_a_colocation_group_goes_with_its_last_table(pair: Pair) -> None:
    pair.execute("CREATE TABLE a (k integer)")
    pair.distribute("a", "k")
    ((group,),) = pair.rows(
        "SELECT colocation_id FROM strata.distributed_table WHERE relation = 'a'::regclass"
    )
    pair.execute("DROP TABLE a")
    left = pair.rows("SELECT count(*) FROM strata.shard WHERE colocation_id = %s", (group,))
    known = pair.rows("SELECT count(*) FROM strata.colocation WHERE colocation_id = %s", (group,))
    assert left[0][0] in (0, 8)
    assert (left[0][0] > 0) == (known[0][0] > 0), "shards and their group go together"


# ---- taking back -------------------------------------------------------------------------------------


def test_undistribute_brings_every_row_and_constraint_back(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, v text DEFAULT 'd', g integer GENERATED ALWAYS AS (id * 2)"
        " STORED, s serial); CREATE INDEX ON t (v)"
    )
    pair.distribute("t", "id")
    pair.execute("INSERT INTO t (id) SELECT g FROM generate_series(1, 3000) AS g")
    pair.ours.execute("SELECT strata.undistribute_table('t')")
    assert pair.gathers("SELECT * FROM t") == []
    pair.all_same(
        [
            "SELECT * FROM t",
            "INSERT INTO t (id) VALUES (1)",
            "INSERT INTO t (id) VALUES (9999) RETURNING *",
            "SELECT count(*) FROM pg_index WHERE indrelid = 't'::regclass",
        ]
    )
    for worker in pair.cluster.workers:
        assert worker.value("SELECT to_regclass('test_metadata.t')::text") is None
    assert pair.rows(
        "SELECT count(*) FROM strata.distributed_table WHERE relation = 't'::regclass"
    ) == [(0,)]
    pair.distribute("t", "id")
    pair.same("SELECT * FROM t")


def test_undistribute_can_be_rolled_back(pair: Pair) -> None:
    pair.execute("CREATE TABLE t (id integer PRIMARY KEY)")
    pair.distribute("t", "id")
    pair.execute("INSERT INTO t SELECT generate_series(1, 100)")
    with pair.ours.transaction(force_rollback=True):
        pair.ours.execute("SELECT strata.undistribute_table('t')")
        assert pair.rows("SELECT count(*) FROM t") == [(100,)]
    assert sum(pair.on_workers("SELECT count(*) FROM t")) == 100
    pair.same("SELECT * FROM t")


def test_a_reference_table_becomes_local_again(pair: Pair) -> None:
    pair.execute("CREATE TABLE r (id integer PRIMARY KEY, v text); INSERT INTO r VALUES (1, 'a')")
    pair.reference("r")
    assert pair.on_workers("SELECT count(*) FROM r") == [1] * len(pair.cluster.workers)
    pair.ours.execute("SELECT strata.undistribute_table('r')")
    pair.same("SELECT * FROM r")
    assert pair.on_workers("SELECT to_regclass('r')::text") == [None] * len(pair.cluster.workers)


def test_set_access_method_heap_undistributes(pair: Pair) -> None:
    pair.execute("CREATE TABLE t (id integer PRIMARY KEY, v text)")
    pair.distribute("t", "id")
    pair.execute("INSERT INTO t SELECT g, 'x' FROM generate_series(1, 50) AS g")
    pair.ours.execute("ALTER TABLE t SET ACCESS METHOD heap")
    pair.same("SELECT * FROM t")
    assert pair.rows(
        "SELECT count(*) FROM strata.distributed_table WHERE relation = 't'::regclass"
    ) == [(0,)]


# ---- views and functions -----------------------------------------------------------------------------


def test_views_show_workers_tables_and_shards(pair: Pair) -> None:
    pair.execute("CREATE TABLE t (id integer PRIMARY KEY, v text); CREATE TABLE r (id integer)")
    pair.distribute("t", "id", shards=6)
    pair.reference("r")
    pair.execute("INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 1000) AS g")
    names = [name for (name,) in pair.rows("SELECT name FROM strata.workers ORDER BY worker_id")]
    assert names == [worker.name for worker in pair.cluster.workers]
    rows = pair.rows("SELECT relation::text, t::text FROM strata.tables AS t ORDER BY 1")
    shown = {relation.split(".")[-1]: text for relation, text in rows}
    assert {"t", "r"} <= set(shown)
    assert pair.rows(
        "SELECT count(*) FROM strata.shards AS s WHERE s.relation = 't'::regclass"
    ) == [(6,)]


def test_run_command_on_workers_returns_each_workers_answer(pair: Pair) -> None:
    rows = pair.rows("SELECT * FROM strata.run_command_on_workers('SELECT 6 * 7')")
    assert rows == [(worker.name, True, "42") for worker in pair.cluster.workers]


def test_run_command_on_workers_reports_the_error_of_each_worker(pair: Pair) -> None:
    rows = pair.rows("SELECT * FROM strata.run_command_on_workers('SELECT 1 / 0')")
    assert [(name, success) for name, success, _ in rows] == [
        (worker.name, False) for worker in pair.cluster.workers
    ]
    assert all("division by zero" in result for _, _, result in rows)


def test_check_health_finds_nothing_wrong_in_a_healthy_cluster_and_names_a_dead_worker(
    make_cluster,
) -> None:
    cluster = make_cluster(workers=2)
    coordinator = cluster.coordinator
    coordinator.execute(
        "CREATE TABLE r (id integer PRIMARY KEY, v text); SELECT strata.create_reference_table('r');"
        "INSERT INTO r VALUES (1, 'a'), (2, 'b')"
    )
    healthy = coordinator.query("SELECT h::text FROM strata.check_health() AS h")
    cluster.workers[0].execute("UPDATE r SET v = 'tampered' WHERE id = 1")
    tampered = coordinator.query("SELECT h::text FROM strata.check_health() AS h")
    assert tampered != healthy
    assert any("worker1" in row for (row,) in set(tampered) - set(healthy))
    cluster.workers[1].stop()
    dead = coordinator.query("SELECT h::text FROM strata.check_health() AS h")
    assert any("worker2" in row for (row,) in set(dead) - set(tampered))
    cluster.workers[1].settings["shared_preload_libraries"] = "'strata_columnar, strata_tiering'"
    cluster.workers[1].start()
    assert ("worker2", "preloaded library") in coordinator.query(
        "SELECT worker_name, check_name FROM strata.check_health() WHERE NOT ok"
    )


def test_check_health_names_keys_that_fill_a_shard_alone(pair: Pair) -> None:
    """Of large tables: which of a small one does not matter."""
    coordinator = pair.cluster.coordinator
    coordinator.execute(
        f'CREATE TABLE {pair.schema}."Heavy" ("Key" integer);'
        f"""SELECT strata.create_distributed_table('{pair.schema}."Heavy"', 'Key', 8);"""
        f'INSERT INTO {pair.schema}."Heavy" SELECT greatest(g - 300, 0) FROM generate_series(1, 1000) g;'
        f'ANALYZE {pair.schema}."Heavy"'
    )
    heavy = "SELECT ok, detail FROM strata.check_health() WHERE check_name = 'heavy keys'"
    assert coordinator.query(heavy) == [(True, None)]
    large = "UPDATE pg_class SET reltuples = 1e6 WHERE oid = %s::regclass"
    coordinator.execute(large, (f'{pair.schema}."Heavy"',))
    ((ok, detail),) = coordinator.query(heavy)
    assert not ok
    assert detail.startswith('one value of column "Key" has 30 % of the rows of ')
    coordinator.execute(f'DROP TABLE {pair.schema}."Heavy"')


def test_the_cluster_has_an_identity_that_its_workers_know(pair: Pair) -> None:
    ((cluster_id, epoch),) = pair.rows("SELECT id, epoch FROM strata.cluster")
    assert isinstance(cluster_id, uuid.UUID)
    assert epoch >= 1
    for worker in pair.cluster.workers:
        known = worker.query("SELECT c::text FROM strata_worker.cluster AS c")
        assert len(known) == 1
        assert str(cluster_id) in known[0][0]


# ---- workers -----------------------------------------------------------------------------------------


def test_a_new_worker_gets_schemas_types_functions_and_reference_tables(make_cluster) -> None:
    cluster = make_cluster(workers=1)
    coordinator = cluster.coordinator
    coordinator.execute(
        "CREATE SCHEMA app; CREATE TYPE app.mood AS ENUM ('sad', 'ok');"
        "CREATE FUNCTION app.twice (integer) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2';"
        "CREATE TABLE app.r (id integer PRIMARY KEY, m app.mood);"
        "SELECT strata.create_reference_table('app.r');"
        "INSERT INTO app.r SELECT g, 'ok' FROM generate_series(1, 100) AS g;"
        "CREATE TABLE app.t (id integer PRIMARY KEY, m app.mood);"
        "SELECT strata.create_distributed_table('app.t', 'id');"
        "INSERT INTO app.t SELECT g, 'sad' FROM generate_series(1, 100) AS g"
    )
    newcomer = cluster.add_worker()
    assert newcomer.value("SELECT count(*) FROM app.r") == 100
    assert coordinator.value("SELECT count(*) FROM strata.workers") == 2
    assert coordinator.value("SELECT count(*) FROM app.t JOIN app.r USING (id)") == 100
    coordinator.execute("UPDATE app.r SET m = 'sad' WHERE id <= 10")
    assert newcomer.value("SELECT count(*) FROM app.r WHERE m = 'sad'") == 10
    coordinator.execute(
        "CREATE TABLE app.u (id integer PRIMARY KEY, m app.mood);"
        "SELECT strata.create_distributed_table('app.u', 'id', colocate_with => 'none');"
        "INSERT INTO app.u SELECT g, 'ok' FROM generate_series(1, 1000) AS g"
    )
    assert newcomer.value("SELECT count(*) FROM app.u") > 300
    assert coordinator.value("SELECT count(*) FROM app.u WHERE app.twice(id) > 1000") == 500
    assert (
        coordinator.value("SELECT count(*) FROM app.u JOIN app.r USING (id) WHERE r.m = 'sad'")
        == 10
    )


def test_a_new_worker_gets_the_comments(make_cluster) -> None:
    cluster = make_cluster(workers=1)
    coordinator = cluster.coordinator
    coordinator.execute(
        'CREATE SCHEMA "my app"; SET search_path = "my app", public;'
        "CREATE TYPE mood AS ENUM ('sad'); CREATE DOMAIN step AS integer CONSTRAINT up CHECK (VALUE > 0);"
        "CREATE TYPE pair AS (a integer, b integer);"
        "CREATE FUNCTION twice (integer) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2';"
        "CREATE PROCEDURE nothing () LANGUAGE sql AS '';"
        'CREATE TABLE "T" (id integer PRIMARY KEY, "Odd col" step, v integer CONSTRAINT pos CHECK (v > 0))'
    )
    coordinator.execute(
        "SELECT strata.create_distributed_table('\"T\"', 'id'); CREATE STATISTICS st ON v, id FROM \"T\";"
        'CREATE INDEX by_v ON "T" (v);'
        "CREATE TABLE r (id integer PRIMARY KEY); SELECT strata.create_reference_table('r');"
        "CREATE TABLE c (id integer, rid integer CONSTRAINT to_r REFERENCES r);"
        "SELECT strata.create_distributed_table('c', 'id', colocate_with => '\"T\"');"
        'ALTER TABLE c ADD CONSTRAINT "To" FOREIGN KEY (id) REFERENCES "T"'
    )
    names = [
        'SCHEMA "my app"',
        "TYPE mood",
        "DOMAIN step",
        "CONSTRAINT up ON DOMAIN step",
        "TYPE pair",
    ]
    names += [
        "COLUMN pair.b",
        "FUNCTION twice (integer)",
        "PROCEDURE nothing ()",
        'TABLE "T"',
        "TABLE r",
    ]
    names += ['COLUMN "T"."Odd col"', 'CONSTRAINT pos ON "T"', "STATISTICS st", "INDEX by_v"]
    names += ["INDEX r_pkey", 'CONSTRAINT "To" ON c', "CONSTRAINT to_r ON c"]
    for name in names:
        coordinator.execute(f"COMMENT ON {name} IS '{name} isn''t \\ new'")
    newcomer = cluster.add_worker()
    comments = (
        "SELECT i.type, i.identity, d.description FROM pg_description AS d,"
        " pg_identify_object(d.classoid, d.objoid, d.objsubid) AS i WHERE d.description LIKE '% new' ORDER BY 1, 2"
    )
    known = coordinator.query(comments)
    assert len(known) == len(names)
    assert newcomer.query(comments) == known
    assert cluster.workers[0].query(comments) == known


def test_a_new_worker_gets_objects_in_the_order_of_their_dependencies(make_cluster) -> None:
    """Names that need quotes, types within types, a domain that calls a function that comes later..."""
    cluster = make_cluster(workers=1)
    coordinator = cluster.coordinator
    coordinator.execute(
        """
        CREATE ROLE seed_user; CREATE SCHEMA "My Schema"; GRANT USAGE ON SCHEMA "My Schema" TO seed_user;
        CREATE EXTENSION citext;
        CREATE TYPE "My Schema"."E n" AS ENUM ('a', 'b''c');
        CREATE TYPE pair AS (a integer, b text COLLATE "C");
        CREATE TYPE "My Schema".outerp AS (x "My Schema"."E n", y pair[]);
        CREATE FUNCTION "My Schema".chk (integer) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 < 100000';
        CREATE DOMAIN small AS integer DEFAULT 5 CHECK ("My Schema".chk(VALUE)) NOT NULL;
        CREATE TYPE frange AS RANGE (SUBTYPE = float8, SUBTYPE_DIFF = float8mi);
        CREATE COLLATION ci (PROVIDER = icu, LOCALE = 'und-u-ks-level2', DETERMINISTIC = false);
        CREATE FUNCTION plus_one (a integer) RETURNS integer IMMUTABLE BEGIN ATOMIC SELECT a + 1; END;
        CREATE AGGREGATE my_sum (integer) (SFUNC = int4pl, STYPE = integer, COMBINEFUNC = int4pl,
            INITCOND = '0', PARALLEL = SAFE);
        CREATE PROCEDURE nothing () LANGUAGE plpgsql AS 'BEGIN NULL; END';
        CREATE TABLE "My Schema"."Ta ble" (
            k integer PRIMARY KEY CHECK ("My Schema".chk(k)), e "My Schema"."E n", o "My Schema".outerp,
            r frange, p small, c text COLLATE ci, ct citext UNIQUE, g integer GENERATED ALWAYS AS (plus_one(k)) STORED);
        INSERT INTO "My Schema"."Ta ble" SELECT g, 'b''c', ROW('a', ARRAY[ROW(1, 'x')::pair])::"My Schema".outerp, '[1,2]', g, 'Cc', 'T' || g
            FROM generate_series(1, 50) AS g;
        CREATE INDEX ON "My Schema"."Ta ble" (("My Schema".chk(p)));
        GRANT SELECT ON "My Schema"."Ta ble" TO PUBLIC;
        SELECT strata.create_reference_table('"My Schema"."Ta ble"');
        CREATE TABLE child (id integer PRIMARY KEY REFERENCES "My Schema"."Ta ble", c citext);
        SELECT strata.create_distributed_table('child', 'id', 4);
        INSERT INTO child SELECT g, 'x' FROM generate_series(1, 50) AS g;
        """
    )
    newcomer = cluster.add_worker()
    assert coordinator.query("SELECT * FROM strata.check_health() WHERE NOT ok") == []
    checksum = """SELECT md5(string_agg(t::text, ',' ORDER BY k)) FROM "My Schema"."Ta ble" AS t"""
    assert newcomer.value(checksum) == coordinator.value(checksum)
    assert newcomer.value("SELECT count(*) FROM child") == 0
    coordinator.execute(
        """INSERT INTO "My Schema"."Ta ble" (k, e) VALUES (60, 'a');
        UPDATE "My Schema"."Ta ble" SET c = 'new' WHERE k = 1"""
    )
    assert newcomer.value(checksum) == coordinator.value(checksum)
    with pytest.raises(
        psycopg.errors.UniqueViolation
    ):  # the newcomer's copy has the constraint, too
        newcomer.execute("""INSERT INTO "My Schema"."Ta ble" (k, ct) VALUES (99, 't7')""")
    assert newcomer.value("SELECT my_sum(v) FROM (VALUES (1), (2)) AS v (v)") == 3
    coordinator.execute(
        "CREATE TABLE later (k integer); SELECT strata.create_distributed_table('later', 'k', 6, 'none');"
        "INSERT INTO later SELECT generate_series(1, 1000)"
    )
    assert newcomer.value("SELECT count(*) FROM later") > 300
    coordinator.execute('DROP SCHEMA "My Schema" CASCADE; DROP TABLE child, later')
    assert (
        newcomer.value("SELECT count(*) FROM pg_class WHERE relname ~ '^(Ta ble|child|later)'") == 0
    )


def test_servers_that_cannot_be_workers_are_refused_and_can_be_mended(
    pair: Pair, cluster: Cluster
) -> None:
    def add(node: Node, more: str = "") -> None:
        pair.ours.execute(
            "SELECT strata.add_worker(%s, %s)", (node.name, node.conninfo(user=None) + more)
        )

    node = cluster.new_node("candidate")
    try:
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=r"candidate.*user"):
            add(node, " user=postgres")

        node.settings["max_prepared_transactions"] = "0"
        node.restart()
        with pytest.raises(psycopg.Error, match="prepared transactions") as caught:
            add(node)
        assert caught.value.sqlstate == "55000"
        assert "max_prepared_transactions" in caught.value.diag.message_hint
        del node.settings["max_prepared_transactions"]
        node.restart()

        node.execute("CREATE EXTENSION hll; CREATE EXTENSION strata_worker")
        node.execute(
            "SELECT strata_worker.attach_coordinator(gen_random_uuid(), 1, gen_random_uuid())"
        )
        with pytest.raises(psycopg.Error, match="another cluster"):
            add(node)
        node.execute("DELETE FROM strata_worker.cluster")

        node.disconnect()
        with node.connect("postgres") as connection:
            connection.execute("ALTER DATABASE strata RENAME TO aside")
            connection.execute(
                "CREATE DATABASE strata TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'"
            )
        with pytest.raises(psycopg.Error, match=r"encoding|character|collation") as caught:
            add(node)
        assert caught.value.sqlstate == "55000"
        assert caught.value.diag.message_hint
        with node.connect("postgres") as connection:
            connection.execute("DROP DATABASE strata")
            connection.execute("ALTER DATABASE aside RENAME TO strata")

        pair.execute("CREATE TABLE r (id integer PRIMARY KEY); INSERT INTO r VALUES (1), (2)")
        pair.reference("r")
        node.execute("CREATE SCHEMA test_metadata; CREATE TABLE test_metadata.r (other text)")
        with pytest.raises(psycopg.errors.DuplicateTable, match="candidate"):
            add(node)
        assert pair.rows("SELECT count(*) FROM strata.worker WHERE name = 'candidate'") == [(0,)]
        pair.same("INSERT INTO r VALUES (3)")

        node.execute("DROP TABLE test_metadata.r")
        add(node)
        assert node.value("SELECT count(*) FROM test_metadata.r") == 3
        pair.ours.execute("SELECT strata.remove_worker('candidate')")
        assert node.value("SELECT to_regclass('test_metadata.r')::text") is None
        add(node)
        pair.ours.execute("SELECT strata.remove_worker('candidate')")
    finally:
        node.stop()


def test_an_empty_worker_can_be_removed_and_its_rows_are_not_asked_again(make_cluster) -> None:
    cluster = make_cluster(workers=2)
    coordinator = cluster.coordinator
    coordinator.execute(
        "CREATE TABLE r (id integer PRIMARY KEY); SELECT strata.create_reference_table('r');"
        "INSERT INTO r VALUES (1), (2)"
    )
    coordinator.execute("SELECT strata.remove_worker('worker2')")
    assert coordinator.query("SELECT name FROM strata.workers") == [("worker1",)]
    cluster.workers[1].stop()
    coordinator.execute("INSERT INTO r VALUES (3)")
    coordinator.execute(
        "CREATE TABLE t (id integer); SELECT strata.create_distributed_table('t', 'id');"
        "INSERT INTO t SELECT generate_series(1, 10)"
    )
    assert coordinator.value("SELECT count(*) FROM t JOIN r USING (id)") == 3


def test_more_workers_hold_more_parts(make_cluster) -> None:
    cluster = make_cluster(workers=4)
    coordinator = cluster.coordinator
    coordinator.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, v integer);"
        "SELECT strata.create_distributed_table('t', 'id', shard_count => 5);"
        "INSERT INTO t SELECT g, g FROM generate_series(1, 5000) AS g"
    )
    counts = [worker.value("SELECT count(*) FROM t") for worker in cluster.workers]
    assert sum(counts) == 5000
    assert min(counts) > 500
    assert coordinator.query("SELECT count(*), sum(v), count(DISTINCT v) FROM t") == [
        (5000, 12_502_500, 5000)
    ]
    coordinator.execute("UPDATE t SET v = 0 WHERE id % 2 = 0")
    assert coordinator.value("SELECT sum(v) FROM t") == 6_250_000


# ---- pg_dump, ANALYZE --------------------------------------------------------------------------------


def test_pg_dump_of_a_distributed_table_restores_into_a_plain_server(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, v text); CREATE TABLE r (id integer PRIMARY KEY)"
    )
    pair.distribute("t", "id")
    pair.reference("r")
    pair.execute("INSERT INTO t SELECT g, E'x\\ty\\n' || g FROM generate_series(1, 2000) AS g")
    pair.execute("INSERT INTO r SELECT generate_series(1, 10)")
    dump = subprocess.run(
        [
            find_binaries() / "pg_dump",
            pair.cluster.coordinator.conninfo(),
            "--schema=test_metadata",
            "--no-table-access-method",
            "--no-security-labels",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    plain = pair.cluster.plain
    plain.execute("DROP DATABASE IF EXISTS restored")
    plain.execute("CREATE DATABASE restored")
    try:
        subprocess.run(
            [
                find_binaries() / "psql",
                plain.conninfo(dbname="restored"),
                "-Xq",
                "-v",
                "ON_ERROR_STOP=1",
            ],
            input=dump,
            text=True,
            check=True,
            capture_output=True,
        )
        with plain.connect(dbname="restored") as connection:
            rows = connection.execute("SELECT * FROM test_metadata.t ORDER BY id").fetchall()
            assert connection.execute("SELECT count(*) FROM test_metadata.r").fetchall() == [(10,)]
            with pytest.raises(psycopg.errors.UniqueViolation):
                connection.execute("INSERT INTO test_metadata.t VALUES (1)")
        assert rows == pair.rows("SELECT * FROM t ORDER BY id")
        assert len(rows) == 2000
    finally:
        plain.execute("DROP DATABASE restored")


def test_analyze_fills_the_statistics_of_the_shell(pair: Pair) -> None:
    pair.execute("CREATE TABLE t (id integer PRIMARY KEY, kind text, n integer, empty text)")
    pair.distribute("t", "id")
    pair.execute(
        "INSERT INTO t SELECT g, CASE WHEN g % 10 = 0 THEN 'rare' ELSE 'common' END, nullif(g % 4, 0), NULL"
        " FROM generate_series(1, 20000) AS g; ANALYZE t"
    )
    ((tuples,),) = pair.rows("SELECT reltuples FROM pg_class WHERE oid = 't'::regclass")
    assert 19_000 < tuples < 21_000
    stats = {
        row[0]: row[1:]
        for row in pair.rows(
            "SELECT attname, null_frac, n_distinct, most_common_vals::text, most_common_freqs"
            " FROM pg_stats WHERE schemaname = 'test_metadata' AND tablename = 't'"
        )
    }
    assert stats["id"][1] == -1
    assert 0.2 < stats["n"][0] < 0.3
    assert stats["n"][1] == 3
    assert stats["kind"][2] == "{common,rare}"
    assert 0.85 < stats["kind"][3][0] < 0.95
    assert stats["empty"][0] == 1


def test_psql_describes_distributed_tables(pair: Pair) -> None:
    pair.execute("CREATE TABLE t (id integer PRIMARY KEY, v text); CREATE INDEX by_v ON t (v)")
    pair.distribute("t", "id")
    for command in (
        r"\d test_metadata.t",
        r"\d+ test_metadata.*",
        r"\dt+ test_metadata.*",
        r"\di+",
        r"\dx+",
    ):
        result = subprocess.run(
            [find_binaries() / "psql", pair.cluster.coordinator.conninfo(), "-Xq", "-c", command],
            capture_output=True,
            text=True,
            check=True,
        )
        assert result.stderr == ""
    assert "by_v" in subprocess.run(
        [find_binaries() / "psql", pair.cluster.coordinator.conninfo(), "-Xq", "-c", r"\d test_metadata.t"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


def test_everything_public_has_a_comment(pair: Pair) -> None:
    functions = pair.rows(
        "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'strata'::regnamespace"
        " AND obj_description(oid, 'pg_proc') IS NULL"
    )
    relations = pair.rows(
        "SELECT relname FROM pg_class WHERE relnamespace = 'strata'::regnamespace AND relkind IN ('r', 'v')"
        " AND obj_description(oid, 'pg_class') IS NULL"
    )
    assert functions == []
    assert relations == []


def test_the_extensions_can_be_dropped_when_nothing_is_distributed(make_cluster) -> None:
    cluster = make_cluster(workers=1)
    coordinator = cluster.coordinator
    coordinator.execute(
        "CREATE TABLE t (id integer); SELECT strata.create_distributed_table('t', 'id');"
        "INSERT INTO t VALUES (1); SELECT strata.undistribute_table('t')"
    )
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="has workers") as caught:
        coordinator.execute("DROP EXTENSION strata CASCADE")
    assert "strata.remove_worker(" in caught.value.diag.message_hint
    coordinator.execute("SELECT strata.remove_worker(name) FROM strata.workers")
    coordinator.execute("DROP EXTENSION strata CASCADE")
    assert coordinator.query("SELECT * FROM t") == [(1,)]
    coordinator.disconnect()
    coordinator.execute("CREATE TABLE u (id integer); INSERT INTO u VALUES (1)")
    coordinator.execute("CREATE EXTENSION strata CASCADE")
    assert coordinator.query("SELECT count(*) FROM strata.workers") == [(0,)]
    cluster._register_worker(cluster.workers[0])
