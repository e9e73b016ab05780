"""What PostgreSQL 18 brought to definitions holds on all nodes, or is refused with a reason."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.ddl.test_ddl import check_copies, check_structure, everywhere
from tests.pair import Pair, open_pair

pytestmark = pytest.mark.since(18)


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_ddl_18") as made:
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    yield data
    data.reset()
    data.execute("RESET ALL; DROP SCHEMA test_ddl_18 CASCADE; CREATE SCHEMA test_ddl_18")
    data.execute("SET search_path = test_ddl_18, public, strata")


def become_ours(pair: Pair, kind: str, table: str = "t") -> None:
    if kind == "distributed":
        pair.distribute(table, "id")
    else:
        pair.reference(table)


both_kinds = pytest.mark.parametrize("kind", ["distributed", "reference"])


# ---- virtual generated columns -----------------------------------------------------------------------


@both_kinds
@pytest.mark.parametrize("storage", ["heap", "columnar"])
def test_virtual_columns_are_computed_when_they_are_read(
    pair: Pair, kind: str, storage: str
) -> None:
    pair.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, v integer, twice integer GENERATED ALWAYS AS (v * 2),"
        " kept integer GENERATED ALWAYS AS (v * 3) STORED, words text GENERATED ALWAYS AS ('w' || v::text) VIRTUAL)"
    )
    if kind == "distributed":
        pair.ours.execute("SELECT create_distributed_table('t', 'id', storage => %s)", (storage,))
    else:
        pair.reference("t")
    pair.execute("INSERT INTO t SELECT g, g % 50 FROM generate_series(1, 500) AS g")
    check_structure(pair, "t")
    pair.all_same(
        [
            "SELECT * FROM t",
            "SELECT id FROM t WHERE twice = 40",
            "SELECT twice, count(*), sum(kept) FROM t GROUP BY twice HAVING twice > 60",
            "SELECT words FROM t ORDER BY words, id LIMIT 7",
            "SELECT t FROM t WHERE id < 5",
            "SELECT max(twice), min(words), count(DISTINCT twice) FROM t",
            "SELECT a.id, b.twice FROM t a JOIN t b ON a.id = b.twice",
            "SELECT id, (SELECT twice FROM t i WHERE i.id = o.id) FROM t o WHERE o.words = 'w7'",
            "INSERT INTO t (id, v) VALUES (1001, 7) RETURNING *",
            "INSERT INTO t (id, v) VALUES (1, 77) ON CONFLICT (id) DO UPDATE SET v = excluded.twice RETURNING twice, words",
            "UPDATE t SET v = twice WHERE twice < 20 RETURNING id, twice, old.twice",
            "UPDATE t SET v = 1 WHERE words = 'w30' RETURNING *",
            "DELETE FROM t WHERE twice = 90 RETURNING id, words",
            "SELECT * FROM t",
            "INSERT INTO t (id, twice) VALUES (2000, 1)",
            "UPDATE t SET twice = 1",
            "CREATE INDEX ON t (twice)",
        ]
    )
    pair.copy("COPY t (id, v) FROM STDIN", "3001\t5\n3002\t\\N\n")
    pair.same("SELECT * FROM t WHERE id > 3000")
    for statement in (
        "ALTER TABLE t ALTER twice SET EXPRESSION AS (v * 20)",
        "ALTER TABLE t ADD COLUMN late integer GENERATED ALWAYS AS (v + 1)",
        "ALTER TABLE t ADD CHECK (late < 1000)",
        "ALTER TABLE t ALTER late SET NOT NULL",
        "ALTER TABLE t DROP COLUMN words",
    ):
        pair.same(statement)
        check_structure(pair, "t")
        pair.same("SELECT * FROM t")
    pair.same("INSERT INTO t (id, v) VALUES (4001, 1000)")
    pair.same("INSERT INTO t (id, v) VALUES (4002, NULL)")
    pair.same("SELECT * FROM t")


def test_a_virtual_column_is_no_distribution_key(pair: Pair) -> None:
    pair.execute("CREATE TABLE t (id integer, k integer GENERATED ALWAYS AS (id + 1))")
    with pytest.raises(psycopg.Error, match="generated column"):
        pair.distribute("t", "k")


def test_virtual_columns_outlive_alter_and_undistribute(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE t (id integer, v integer, twice integer GENERATED ALWAYS AS (v * 2))"
    )
    pair.distribute("t", "id")
    pair.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 40) AS g")
    pair.ours.execute("SELECT undistribute_table('t')")
    pair.same("SELECT * FROM t")
    pair.distribute("t", "id")
    pair.same("SELECT * FROM t WHERE twice > 70")


# ---- NOT NULL ----------------------------------------------------------------------------------------

NOT_NULL = [
    "ALTER TABLE t ADD CONSTRAINT v_is_there NOT NULL v",
    "ALTER TABLE t RENAME CONSTRAINT v_is_there TO v_is_known",
    "ALTER TABLE t ALTER v SET NOT NULL",
    "ALTER TABLE t ALTER w SET NOT NULL",
    "ALTER TABLE t DROP CONSTRAINT v_is_known",
    "ALTER TABLE t ADD COLUMN late integer CONSTRAINT late_too NOT NULL DEFAULT 3",
    "ALTER TABLE t ADD COLUMN later integer, ALTER later SET NOT NULL",
    "ALTER TABLE t RENAME COLUMN late TO early",
    "ALTER TABLE t ALTER early DROP NOT NULL",
    "ALTER TABLE t ADD CONSTRAINT again NOT NULL early, ADD CHECK (v > 0)",
    "ALTER TABLE t ALTER early TYPE bigint",
    "ALTER TABLE t ADD CONSTRAINT other_name NOT NULL early",
    "ALTER TABLE t DROP CONSTRAINT t_w_not_null, DROP COLUMN early",
]


@both_kinds
def test_not_null_has_the_same_name_on_all_nodes(pair: Pair, kind: str) -> None:
    pair.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, v integer, w text, x integer CONSTRAINT x_there NOT NULL)"
    )
    become_ours(pair, kind)
    check_structure(pair, "t")
    for statement in NOT_NULL:
        pair.same(statement)
        check_structure(pair, "t")
        pair.same("INSERT INTO t (id, v, x) VALUES (1, NULL, 1)")
        pair.same("DELETE FROM t")


@both_kinds
def test_a_not_null_that_is_not_valid_holds_for_new_rows(pair: Pair, kind: str) -> None:
    pair.execute("CREATE TABLE t (id integer PRIMARY KEY, v integer)")
    become_ours(pair, kind)
    pair.execute("INSERT INTO t SELECT g, nullif(g % 5, 0) FROM generate_series(1, 20) AS g")
    pair.execute("ALTER TABLE t ADD CONSTRAINT known NOT NULL v NOT VALID")
    check_structure(pair, "t")
    pair.same("INSERT INTO t VALUES (100, NULL)")
    pair.same("SELECT count(*) FROM t WHERE v IS NULL")
    pair.same("SELECT count(v), count(*) FROM t")
    pair.same("SELECT id FROM t WHERE v IS NOT NULL AND id < 7")
    pair.same("SELECT id FROM t WHERE v NOT IN (SELECT v FROM t WHERE v IS NOT NULL)")
    pair.same("ALTER TABLE t VALIDATE CONSTRAINT known")
    pair.execute("UPDATE t SET v = 0 WHERE v IS NULL")
    pair.same("ALTER TABLE t VALIDATE CONSTRAINT known")
    check_structure(pair, "t")
    pair.same("SELECT count(*) FROM t WHERE v IS NULL")


def test_columnar_tables_count_no_nulls_below_a_not_null_that_is_not_valid(pair: Pair) -> None:
    pair.execute("CREATE TABLE t (id integer, v integer)")
    pair.ours.execute("SELECT create_distributed_table('t', 'id', storage => 'columnar')")
    pair.execute("INSERT INTO t SELECT g, nullif(g % 5, 0) FROM generate_series(1, 20) AS g")
    pair.execute("ALTER TABLE t ADD CONSTRAINT known NOT NULL v NOT VALID")
    pair.same("SELECT count(v) FROM t")
    pair.same("SELECT count(v), count(*) FROM t")


def test_a_period_is_not_told_by_a_not_null_that_is_not_valid(pair: Pair) -> None:
    pair.ours.execute("CREATE TABLE p (id integer, at date); INSERT INTO p VALUES (1, NULL)")
    pair.ours.execute("ALTER TABLE p ADD NOT NULL at NOT VALID")
    place = "SELECT create_distributed_table('p', 'id', partition_by => 'at', partition_interval => '1 day')"
    with pytest.raises(psycopg.errors.NotNullViolation, match="cannot be divided"):
        pair.ours.execute(place)
    pair.ours.execute("DELETE FROM p; ALTER TABLE p ALTER at SET NOT NULL")
    pair.ours.execute(place)


def test_not_null_is_inherited_or_not_where_there_are_children(pair: Pair) -> None:
    """The workers' partitions of a distributed table have it in any case."""
    for table in ("t", "r"):
        pair.execute(f"CREATE TABLE {table} (id integer, v integer CONSTRAINT mine NOT NULL)")
    pair.distribute("t", "id")
    pair.reference("r")
    for statement in ("NO INHERIT", "INHERIT", "NO INHERIT"):
        for table in ("t", "r"):
            pair.execute(f"ALTER TABLE {table} ALTER CONSTRAINT mine {statement}")
            pair.same(f"INSERT INTO {table} VALUES (1, NULL)")
        check_structure(pair, "r")


def test_no_inherit_not_null_of_a_table_that_becomes_distributed(pair: Pair) -> None:
    pair.execute("CREATE TABLE t (id integer, v integer CONSTRAINT mine NOT NULL NO INHERIT)")
    pair.distribute("t", "id")
    pair.same("INSERT INTO t VALUES (1, NULL)")
    pair.same("INSERT INTO t VALUES (1, 2) RETURNING *")


def test_domains_of_tables_may_be_not_null_by_name(pair: Pair) -> None:
    pair.execute(
        "CREATE DOMAIN known AS integer CONSTRAINT is_known NOT NULL CONSTRAINT small CHECK (VALUE < 100);"
        "CREATE TABLE t (id integer, v known)"
    )
    pair.distribute("t", "id")
    pair.same("INSERT INTO t VALUES (1, NULL)")
    pair.same("INSERT INTO t VALUES (1, 200)")
    pair.same("INSERT INTO t VALUES (1, 20) RETURNING *")
    pair.same("ALTER DOMAIN known DROP CONSTRAINT is_known")
    pair.same("INSERT INTO t VALUES (2, NULL) RETURNING *")


# ---- constraints that are not enforced -----------------------------------------------------------------


@both_kinds
def test_checks_that_are_not_enforced_are_not(pair: Pair, kind: str) -> None:
    pair.execute("CREATE TABLE t (id integer PRIMARY KEY, v integer CHECK (v > 0) NOT ENFORCED)")
    become_ours(pair, kind)
    check_structure(pair, "t")
    pair.same("INSERT INTO t VALUES (1, -1), (2, 2) RETURNING *")
    pair.execute("ALTER TABLE t ADD CONSTRAINT small CHECK (v < 0) NOT ENFORCED")
    check_structure(pair, "t")
    pair.same("SELECT * FROM t WHERE v > 0")
    pair.same("ALTER TABLE t VALIDATE CONSTRAINT small")
    pair.same("INSERT INTO t VALUES (3, 3) RETURNING *")


@both_kinds
def test_foreign_keys_that_are_not_enforced_are_not(pair: Pair, kind: str) -> None:
    pair.execute(
        "CREATE TABLE r (id integer PRIMARY KEY); CREATE TABLE t (id integer PRIMARY KEY, v integer)"
    )
    pair.reference("r")
    become_ours(pair, kind)
    pair.execute("INSERT INTO r VALUES (1), (2)")
    pair.execute("ALTER TABLE t ADD CONSTRAINT known FOREIGN KEY (v) REFERENCES r NOT ENFORCED")
    check_structure(pair, "t")
    pair.same("INSERT INTO t VALUES (1, 1), (2, 99) RETURNING *")
    pair.same("ALTER TABLE t ALTER CONSTRAINT known ENFORCED")
    check_structure(pair, "t")
    pair.same("UPDATE t SET v = 2 WHERE v = 99")
    pair.same("ALTER TABLE t ALTER CONSTRAINT known ENFORCED")
    check_structure(pair, "t")
    pair.same("INSERT INTO t VALUES (3, 77)")
    pair.same("DELETE FROM r WHERE id = 2")
    pair.same("ALTER TABLE t ALTER CONSTRAINT known NOT ENFORCED")
    check_structure(pair, "t")
    pair.same("INSERT INTO t VALUES (3, 77) RETURNING *")
    pair.same("DELETE FROM r WHERE id = 2")


@both_kinds
def test_a_table_brings_its_foreign_keys_that_are_not_enforced(pair: Pair, kind: str) -> None:
    pair.execute(
        "CREATE TABLE r (id integer PRIMARY KEY);"
        "CREATE TABLE t (id integer PRIMARY KEY, v integer CONSTRAINT known REFERENCES r NOT ENFORCED);"
        "INSERT INTO r VALUES (1), (2); INSERT INTO t VALUES (1, 1), (2, 99)"
    )
    pair.reference("r")
    become_ours(pair, kind)
    check_structure(pair, "t")
    pair.same("INSERT INTO t VALUES (3, 77) RETURNING *")
    pair.same("DELETE FROM r WHERE id = 1")
    pair.same("ALTER TABLE t ALTER CONSTRAINT known ENFORCED")
    pair.same("DELETE FROM t")
    pair.same("ALTER TABLE t ALTER CONSTRAINT known ENFORCED")
    check_structure(pair, "t")
    pair.same("INSERT INTO t VALUES (3, 77)")
    pair.same("ALTER TABLE t ALTER CONSTRAINT known NOT ENFORCED")
    pair.ours.execute("SELECT undistribute_table('t')")
    pair.same("INSERT INTO t VALUES (3, 77) RETURNING *")


@both_kinds
def test_foreign_keys_that_are_not_valid_hold_for_new_rows(pair: Pair, kind: str) -> None:
    pair.execute(
        "CREATE TABLE r (id integer PRIMARY KEY); CREATE TABLE t (id integer PRIMARY KEY, v integer)"
    )
    pair.reference("r")
    become_ours(pair, kind)
    pair.execute("INSERT INTO r VALUES (1), (2); INSERT INTO t VALUES (1, 1), (2, 99)")
    pair.execute("ALTER TABLE t ADD CONSTRAINT known FOREIGN KEY (v) REFERENCES r NOT VALID")
    check_structure(pair, "t")
    pair.same("INSERT INTO t VALUES (3, 77)")
    pair.same("ALTER TABLE t VALIDATE CONSTRAINT known")
    pair.execute("DELETE FROM t WHERE v = 99")
    pair.same("ALTER TABLE t VALIDATE CONSTRAINT known")
    check_structure(pair, "t")
    pair.same("SELECT * FROM t")


# ---- keys of time ------------------------------------------------------------------------------------


def test_keys_of_time_hold_with_the_distribution_key_in_them(pair: Pair) -> None:
    pair.execute(
        "CREATE EXTENSION IF NOT EXISTS btree_gist;"
        "CREATE TABLE rooms (id integer, during daterange, PRIMARY KEY (id, during WITHOUT OVERLAPS));"
        "CREATE TABLE t (id integer, during daterange, guest text, UNIQUE (id, during WITHOUT OVERLAPS))"
    )
    pair.distribute("rooms", "id")
    pair.distribute("t", "id", colocate_with="rooms")
    for table in ("rooms", "t"):
        check_structure(pair, table)
    pair.execute(
        "ALTER TABLE t ADD FOREIGN KEY (id, PERIOD during) REFERENCES rooms (id, PERIOD during)"
    )
    pair.same(
        "INSERT INTO rooms SELECT g, daterange('2026-01-01', '2026-07-01') FROM generate_series(1, 20) AS g"
    )
    pair.same("INSERT INTO rooms VALUES (5, '[2026-07-01,2027-01-01)') RETURNING *")
    pair.same("INSERT INTO rooms VALUES (5, '[2026-06-01,2026-08-01)')")
    pair.same("INSERT INTO t VALUES (5, '[2026-06-10,2026-07-10)', 'a') RETURNING *")
    pair.same("INSERT INTO t VALUES (5, '[2026-07-01,2026-07-02)', 'b')")
    pair.same("INSERT INTO t VALUES (6, '[2026-06-10,2026-07-10)', 'c')")
    pair.same("DELETE FROM rooms WHERE id = 5 AND during @> DATE '2026-07-05'")
    pair.same("INSERT INTO rooms VALUES (6, 'empty')")
    pair.same("SELECT * FROM rooms NATURAL JOIN t")


def test_a_key_of_time_without_the_distribution_key_is_refused(pair: Pair) -> None:
    pair.execute(
        "CREATE EXTENSION IF NOT EXISTS btree_gist;"
        "CREATE TABLE t (id integer, room integer, during daterange, UNIQUE (room, during WITHOUT OVERLAPS))"
    )
    with pytest.raises(psycopg.Error) as caught:
        pair.distribute("t", "id")
    assert caught.value.diag.message_detail or caught.value.diag.message_hint


# ---- maintenance and statistics --------------------------------------------------------------------------


def test_vacuum_and_analyze_only_are_of_the_table_alone(pair: Pair) -> None:
    pair.execute("CREATE TABLE t (id integer, v integer)")
    pair.distribute("t", "id")
    pair.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 300) AS g")
    pair.same("ANALYZE ONLY t")
    pair.same("VACUUM ONLY t")
    pair.same("VACUUM (ANALYZE) ONLY t")
    assert pair.rows("SELECT reltuples::integer FROM pg_class WHERE oid = 't'::regclass") == [
        (300,)
    ]


def test_statistics_of_a_shell_can_be_set_and_cleared(pair: Pair) -> None:
    pair.execute("CREATE TABLE t (id integer, v integer)")
    pair.distribute("t", "id")
    for statement in (
        "SELECT pg_restore_relation_stats('schemaname', 'test_ddl_18', 'relname', 't', 'relpages', 70, 'reltuples', 12345::real)",
        "SELECT relpages, reltuples FROM pg_class WHERE oid = 't'::regclass",
        "SELECT pg_restore_attribute_stats('schemaname', 'test_ddl_18', 'relname', 't', 'attname', 'v',"
        " 'inherited', false, 'null_frac', 0.25::real, 'avg_width', 4, 'n_distinct', 7::real)",
        "SELECT attname, null_frac, n_distinct FROM pg_stats WHERE schemaname = 'test_ddl_18' AND tablename = 't'",
        "SELECT pg_clear_attribute_stats('test_ddl_18', 't', 'v', false)",
        "SELECT count(*) FROM pg_stats WHERE schemaname = 'test_ddl_18' AND tablename = 't'",
    ):
        pair.same(statement)


def test_identity_and_exclusion_of_partitioned_reference_tables(pair: Pair) -> None:
    pair.execute(
        "CREATE EXTENSION IF NOT EXISTS btree_gist;"
        "CREATE TABLE t (id integer, during int4range, n integer GENERATED ALWAYS AS IDENTITY,"
        " EXCLUDE USING gist (id WITH =, during WITH &&)) PARTITION BY RANGE (id);"
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (100)"
    )
    pair.reference("t")
    pair.same("INSERT INTO t (id, during) VALUES (1, '[1,5)'), (2, '[1,5)') RETURNING *")
    pair.same("INSERT INTO t (id, during) VALUES (1, '[3,9)')")
    check_copies(pair, "t")


def test_privileges_of_objects_are_told(pair: Pair) -> None:
    pair.execute("CREATE TABLE t (id integer)")
    pair.distribute("t", "id")
    pair.execute("GRANT SELECT ON t TO PUBLIC")
    pair.same(
        "SELECT count(*) FROM aclexplode(pg_get_acl('pg_class'::regclass, 't'::regclass, 0)) AS a WHERE a.grantee = 0"
    )
    assert everywhere(pair, "SELECT pg_get_acl('pg_class'::regclass, 0, 0)::text") is None


def test_libraries_tell_their_names_and_versions(pair: Pair) -> None:
    loaded = pair.rows(
        "SELECT module_name, version FROM pg_get_loaded_modules() WHERE module_name ~ '^strata' ORDER BY 1"
    )
    assert [name for name, _ in loaded] == ["strata"]
    assert {version for _, version in loaded} == {
        pair.rows("SELECT extversion FROM pg_extension WHERE extname = 'strata'")[0][0]
    }
