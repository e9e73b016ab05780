"""A table is distributed anew: its key gets another type, or alter_distributed_table() says how."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

ROWS = "INSERT INTO t SELECT g, g % 7, 'text ' || g FROM generate_series(-50, 200) AS g"
QUERIES = (
    "SELECT * FROM t",
    "SELECT count(*), sum(k), pg_typeof(min(k))::text FROM t WHERE k > 17",
    "SELECT k, s FROM t WHERE k = 42",
    "SELECT v, count(*) FROM t GROUP BY v",
)
KIND = "SELECT key, shard_count, storage FROM strata.tables WHERE relation = 't'::regclass"


@pytest.fixture
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_redistribute") as made:
        yield made


def create(pair: Pair, options: str = "") -> None:
    pair.execute("CREATE TABLE t (k integer PRIMARY KEY, v integer, s text)")
    pair.ours.execute(f"SELECT create_distributed_table('t', 'k', shard_count => 6{options})")
    pair.execute(ROWS)


def others_of(pair: Pair, table: str) -> list[str]:
    """Tables that are colocated with it."""
    return [
        name
        for (name,) in pair.ours.execute(
            "SELECT o.relation::text FROM strata.tables AS t JOIN strata.tables AS o USING (colocation_id)"
            " WHERE t.relation = %s::regclass AND o.relation <> t.relation ORDER BY 1",
            (table,),
        )
    ]


# ---- ALTER TABLE ... ALTER key TYPE


@pytest.mark.parametrize("storage", ["heap", "columnar"])
@pytest.mark.parametrize(
    "change",
    [
        "ALTER k TYPE bigint",
        "ALTER k TYPE text",
        "ALTER k TYPE numeric USING k / 10.0",
        "ALTER k TYPE bigint, ADD COLUMN n integer DEFAULT 5, ALTER v TYPE bigint USING v * 2, DROP COLUMN s",
        "ALTER k TYPE smallint, ADD CHECK (k < 300), ALTER v SET NOT NULL",
    ],
)  # fmt: skip
def test_a_key_gets_another_type(pair: Pair, storage: str, change: str) -> None:
    create(pair, options=f", storage => '{storage}', colocate_with => 'none'")
    pair.execute("CREATE INDEX t_v ON t (v); COMMENT ON COLUMN t.k IS 'the key'")
    pair.same(f"ALTER TABLE t {change}")
    queries = QUERIES if "text" not in change else QUERIES[:1]
    pair.all_same([q for q in queries if "DROP COLUMN s" not in change or "s " not in q])
    assert pair.ours.execute(KIND).fetchone() == ("k", 6, storage)
    pair.same(
        "SELECT indexdef FROM pg_indexes WHERE tablename = 't' AND schemaname = current_schema"
    )
    pair.same("SELECT col_description('t'::regclass, 1)")
    pair.all_same(
        ["INSERT INTO t (k, v) VALUES (250, 1) RETURNING k", "DELETE FROM t WHERE k = '7'"]
    )
    pair.same("INSERT INTO t (k, v) VALUES (250, 1)")  # a duplicate
    for worker in pair.cluster.workers:
        types = "SELECT format_type(atttypid, -1) FROM pg_attribute WHERE attrelid = 'test_redistribute.t'::regclass AND attname = 'k'"
        assert worker.value(types) == pair.theirs.execute(types).fetchone()[0]


def test_everything_that_belongs_to_the_table_stays(pair: Pair, cluster: Cluster) -> None:
    cluster.create_role("strata_alice")
    pair.execute(
        "CREATE TABLE t (k integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v integer DEFAULT 7, s text,"
        " at timestamptz NOT NULL DEFAULT '2026-01-15 00:00+00', d integer GENERATED ALWAYS AS (v + 1) STORED)"
    )
    pair.ours.execute("SELECT create_distributed_table('t', 'k', shard_count => 4)")
    pair.ours.execute("SELECT alter_columnar_table_set('t', compression => 'lz4', order_by => 'v')")
    pair.execute(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.s := 'noted'; RETURN NEW; END$$;"
        "CREATE TRIGGER note BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION note();"
        "GRANT SELECT ON t TO strata_alice; GRANT USAGE ON SCHEMA test_redistribute TO strata_alice;"
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY even ON t TO strata_alice USING (v % 2 = 0);"
        "INSERT INTO t (v) SELECT g FROM generate_series(1, 40) AS g"
    )
    before = pair.ours.execute("SELECT strata.table_definition('t')").fetchone()
    pair.same("ALTER TABLE t ALTER k TYPE bigint")
    assert pair.ours.execute("SELECT strata.table_definition('t')").fetchone() == before
    pair.all_same(
        [
            "INSERT INTO t (v) VALUES (100) RETURNING *",
            "SELECT * FROM t",
            "SELECT polname, pg_get_expr(polqual, polrelid) FROM pg_policy WHERE polrelid = 't'::regclass",
            "SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = 't'::regclass AND NOT tgisinternal",
        ]
    )
    pair.execute("SET ROLE strata_alice")
    pair.same("SELECT count(*), sum(v) FROM t")
    pair.same("ALTER TABLE t ALTER k TYPE text")  # she is not the owner
    pair.execute("RESET ROLE")


def test_periods_and_their_retention_stay(pair: Pair) -> None:
    pair.execute("CREATE TABLE t (k integer, at date NOT NULL, v integer)")
    pair.ours.execute(
        "SELECT create_distributed_table('t', 'k', shard_count => 4, partition_by => 'at',"
        " partition_interval => '1 month', retention => '30 years')"
    )
    pair.execute(
        "INSERT INTO t SELECT g, date '2026-01-01' + g, g FROM generate_series(1, 100) AS g"
    )
    before = pair.ours.execute("SELECT strata.table_definition('t')").fetchone()
    pair.same("ALTER TABLE t ALTER k TYPE bigint")
    assert pair.ours.execute("SELECT strata.table_definition('t')").fetchone() == before
    pair.same("SELECT * FROM t WHERE at > '2026-02-10'")


def test_a_key_that_divides_into_periods_keeps_its_type(pair: Pair) -> None:
    pair.ours.execute(
        "CREATE TABLE t (k integer NOT NULL);"
        "SELECT create_distributed_table('t', 'k', partition_by => 'k', partition_interval => '100')"
    )
    with pytest.raises(psycopg.errors.FeatureNotSupported) as caught:
        pair.ours.execute("ALTER TABLE t ALTER k TYPE bigint")
    assert caught.value.diag.message_hint == "Run undistribute_table() first."


def test_tables_that_are_left_are_named(pair: Pair) -> None:
    create(pair, options=", colocate_with => 'none'")
    pair.execute("CREATE TABLE u (k integer, w integer)")
    pair.ours.execute("SELECT create_distributed_table('u', 'k', colocate_with => 't')")
    notices: list[str] = []
    pair.ours.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    with pytest.raises(psycopg.Error) as caught:  # the group has keys of one type
        pair.ours.execute("ALTER TABLE t ALTER k TYPE bigint")
    assert "integer" in str(caught.value)
    pair.ours.execute("SELECT alter_distributed_table('t', shard_count => 5)")
    assert (
        'table "test_redistribute.t" is not colocated with test_redistribute.u any more' in notices
    )
    assert others_of(pair, "u") == []
    pair.all_same(QUERIES)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER k TYPE smallint USING (k * 1000)::smallint",  # out of range
        "ALTER k TYPE integer USING 1",  # duplicates
        "ALTER k TYPE jsonb USING to_jsonb(k), DROP COLUMN nothing",
        "ALTER k TYPE point USING point(k, k)",  # does not hash, nor is there a primary key of it
    ],
)
def test_what_fails_changes_nothing(pair: Pair, change: str) -> None:
    create(pair)
    before = pair.ours.execute("SELECT strata.table_definition('t')").fetchone()
    pair.same(f"ALTER TABLE t {change}")
    assert pair.ours.execute("SELECT strata.table_definition('t')").fetchone() == before
    pair.all_same(QUERIES)


def test_a_rollback_brings_the_old_type_back(pair: Pair) -> None:
    create(pair)
    pair.execute("BEGIN; UPDATE t SET v = v + 1 WHERE k < 20; SAVEPOINT a")
    pair.same("ALTER TABLE t ALTER k TYPE bigint")
    pair.execute("INSERT INTO t VALUES (5000000000, 1, 'large')")
    pair.all_same(QUERIES)
    pair.execute("ROLLBACK TO a")
    pair.all_same(QUERIES)
    pair.execute("ALTER TABLE t ALTER k TYPE numeric; COMMIT")
    pair.all_same(QUERIES)


def test_foreign_keys_are_to_be_dropped_before(pair: Pair) -> None:
    create(pair)
    pair.ours.execute(
        "CREATE TABLE u (k integer, w integer); SELECT create_distributed_table('u', 'k', colocate_with => 't');"
        "ALTER TABLE u ADD FOREIGN KEY (k) REFERENCES t"
    )
    for statement, error in (
        ("ALTER TABLE t ALTER k TYPE bigint", psycopg.errors.FeatureNotSupported),
        ("SELECT alter_distributed_table('t', shard_count => 3)", psycopg.errors.ObjectNotInPrerequisiteState),
    ):  # fmt: skip
        with pytest.raises(error) as caught:
            pair.ours.execute(statement)
        assert "u_k_fkey" in caught.value.diag.message_detail
        assert caught.value.diag.message_hint == "Drop the constraint first."


def test_foreign_keys_to_reference_tables_stay(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE r (k integer PRIMARY KEY); INSERT INTO r SELECT generate_series(0, 9)"
    )
    pair.reference("r")
    pair.execute(
        "CREATE TABLE t (k integer REFERENCES r, v integer REFERENCES r ON DELETE CASCADE, s text)"
    )
    pair.ours.execute("SELECT create_distributed_table('t', 'k', shard_count => 6)")
    pair.execute("INSERT INTO t SELECT g % 10, g % 10, 's' FROM generate_series(0, 99) AS g")
    pair.same("ALTER TABLE t ALTER k TYPE bigint")
    pair.ours.execute("SELECT alter_distributed_table('t', shard_count => 3, storage => 'heap')")
    pair.same("INSERT INTO t VALUES (1, 77)")
    pair.same("INSERT INTO t VALUES (77, 1)")
    pair.same("DELETE FROM r WHERE k = 3")
    pair.all_same(
        [
            "DELETE FROM t WHERE k = 3",
            "DELETE FROM r WHERE k = 3",
            "SELECT * FROM t",
            "SELECT conname, pg_get_constraintdef(oid), convalidated FROM pg_constraint WHERE conrelid = 't'::regclass",
        ]
    )


def test_an_old_snapshot_reads_on(pair: Pair, cluster: Cluster) -> None:
    create(pair)
    pair.execute("CREATE TABLE other (a integer); INSERT INTO other VALUES (1)")
    with cluster.coordinator.connect() as beside:
        beside.execute(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM test_redistribute.other"
        )
        pair.same("ALTER TABLE t ALTER k TYPE bigint")
        pair.all_same(QUERIES)
        beside.execute("SELECT * FROM test_redistribute.other; COMMIT")
        assert beside.execute("SELECT count(*) FROM test_redistribute.t").fetchone() == (251,)


# ---- alter_distributed_table()


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ("shard_count => 11", ("k", 11, "columnar")),
        ("storage => 'heap'", ("k", 6, "heap")),
        ("colocate_with => 'none'", ("k", 6, "columnar")),
        ("colocate_with => 'u'", ("k", 9, "columnar")),
        ("key => 'k', shard_count => 3, storage => 'heap', colocate_with => 'default'", ("k", 3, "heap")),
    ],
)  # fmt: skip
def test_a_table_is_distributed_otherwise(pair: Pair, arguments: str, kind: tuple) -> None:
    create(pair)
    pair.execute(
        "CREATE TABLE u (k integer, w integer); INSERT INTO u SELECT g, g FROM generate_series(1, 90) g"
    )
    pair.ours.execute(
        "SELECT create_distributed_table('u', 'k', shard_count => 9, colocate_with => 'none');"
        "SELECT alter_columnar_table_set('t', compression => 'none')"
    )
    pair.ours.execute(f"SELECT alter_distributed_table('t', {arguments})")
    assert pair.ours.execute(KIND).fetchone() == kind
    assert others_of(pair, "u") == (["t"] if "'u'" in arguments else [])
    pair.all_same([*QUERIES, "SELECT count(*), sum(w) FROM t JOIN u USING (k)"])
    options = pair.ours.execute(
        "SELECT strata.table_definition('t') ->> 'columnar_options'"
    ).fetchone()[0]
    assert (options is None) == (kind[2] == "heap")
    pair.all_same(
        ["UPDATE t SET v = 5 WHERE k = 17 RETURNING *", "INSERT INTO t VALUES (17, 1, 'twice')"]
    )


def test_by_another_key_the_old_one_can_be_dropped(pair: Pair) -> None:
    pair.execute("CREATE TABLE t (k integer, v integer, s text)")
    pair.ours.execute("SELECT create_distributed_table('t', 'k', shard_count => 6)")
    pair.execute(ROWS)
    with pytest.raises(psycopg.errors.FeatureNotSupported) as caught:
        pair.ours.execute("ALTER TABLE t DROP COLUMN k")
    assert "alter_distributed_table()" in caught.value.diag.message_hint
    pair.ours.execute("SELECT alter_distributed_table('t', 's')")
    assert pair.ours.execute(KIND).fetchone() == ("s", 6, "columnar")
    pair.all_same([*QUERIES, "SELECT * FROM t WHERE s = 'text 9'"])
    pair.same("ALTER TABLE t DROP COLUMN k")
    pair.all_same(["SELECT * FROM t", "DELETE FROM t WHERE s = 'text 9' RETURNING *"])


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("SELECT alter_distributed_table('t')", psycopg.errors.InvalidParameterValue),
        ("SELECT alter_distributed_table('t', key => 'v')", psycopg.errors.FeatureNotSupported),
        ("SELECT alter_distributed_table('t', key => 'nothing')", psycopg.errors.UndefinedColumn),
        ("SELECT alter_distributed_table('t', shard_count => 0)", psycopg.errors.InvalidParameterValue),
        ("SELECT alter_distributed_table('t', storage => 'wood')", psycopg.errors.InvalidParameterValue),
        ("SELECT alter_distributed_table('l', shard_count => 3)", psycopg.errors.WrongObjectType),
        ("SELECT alter_distributed_table('r', shard_count => 3)", psycopg.errors.WrongObjectType),
        ("SELECT alter_distributed_table(NULL, shard_count => 3)", psycopg.errors.WrongObjectType),
    ],
)  # fmt: skip
def test_what_it_refuses(pair: Pair, statement: str, error: type[psycopg.Error]) -> None:
    create(pair)
    pair.ours.execute(
        "CREATE TABLE l (k integer); CREATE TABLE r (k integer PRIMARY KEY); SELECT create_reference_table('r')"
    )
    with pytest.raises(error):
        pair.ours.execute(statement)
    pair.all_same(QUERIES)


def test_only_the_owner_may(pair: Pair, cluster: Cluster) -> None:
    create(pair)
    cluster.create_role("strata_alice")
    pair.ours.execute(
        "GRANT USAGE ON SCHEMA test_redistribute TO strata_alice; GRANT ALL ON t TO strata_alice; SET ROLE strata_alice"
    )
    for statement in (
        "SELECT strata.alter_distributed_table('t', shard_count => 3)",
        "ALTER TABLE t ALTER k TYPE bigint",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            pair.ours.execute(statement)
    pair.ours.execute("RESET ROLE")
    pair.all_same(QUERIES)
