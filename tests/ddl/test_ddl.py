"""DDL on the coordinator changes all nodes alike, or is refused with a reason and changes none."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.installation import server_major
from tests.pair import Pair, open_pair


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_ddl") as made:
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    """A distributed table t of 300 rows and a reference table r in an empty schema."""
    data.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, v integer, w text CHECK (w <> ''));"
        "CREATE TABLE r (id integer PRIMARY KEY, name text)"
    )
    data.distribute("t", "id")
    data.reference("r")
    data.execute(
        "INSERT INTO t SELECT g, g % 10, 'w' || g FROM generate_series(1, 300) AS g;"
        "INSERT INTO r SELECT g, 'n' || g FROM generate_series(1, 20) AS g"
    )
    yield data
    data.reset()
    data.execute("RESET ROLE; DROP SCHEMA test_ddl CASCADE; CREATE SCHEMA test_ddl")


COLUMNS = """
SELECT string_agg(format('%s %s %s %s %s %s', attname, format_type(atttypid, atttypmod), attnotnull,
                         attstattarget, attstorage, attcompression), ', ' ORDER BY attnum)
  FROM (SELECT * FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped) AS a
 WHERE attrelid = to_regclass('{0}')
"""
CONSTRAINTS = """
SELECT string_agg(conname || ' ' || pg_get_constraintdef(oid), ', ' ORDER BY conname)
  FROM pg_constraint WHERE conrelid = to_regclass('{0}')
"""
INDEXES = """
SELECT string_agg(replace(pg_get_indexdef(indexrelid), ' ON ONLY ', ' ON '), ', '
                  ORDER BY indexrelid::regclass::text)
  FROM pg_index WHERE indrelid = to_regclass('{0}')
"""


def everywhere(pair: Pair, query: str) -> object:
    """The value of a query that is the same on the coordinator and on each worker."""
    ((here,),) = pair.rows(query)
    assert pair.on_workers(query) == [here] * len(pair.cluster.workers), query
    return here


def check_structure(pair: Pair, table: str) -> None:
    for query in (COLUMNS, CONSTRAINTS, INDEXES):
        everywhere(pair, query.format(table))


def check_copies(pair: Pair, table: str = "r") -> None:
    """A reference table has the same rows on all nodes, and on plain."""
    everywhere(pair, f"SELECT md5(string_agg(r::text, ',' ORDER BY r::text)) FROM {table} AS r")
    pair.same(f"SELECT * FROM {table}")


def refused(pair: Pair, statement: str, *sqlstates: str, names: str = "") -> None:
    with pytest.raises(psycopg.Error) as caught:
        pair.ours.execute(statement)
    text = f"{caught.value} {caught.value.diag.message_hint}"
    assert caught.value.sqlstate in (sqlstates or ("0A000",)), text
    for name in names.split():
        assert name in text


# ---- ALTER TABLE -------------------------------------------------------------------------------------

ALTERS = [
    "ALTER TABLE {0} ADD COLUMN d integer DEFAULT 7",
    "ALTER TABLE {0} ADD COLUMN IF NOT EXISTS d integer",
    "ALTER TABLE {0} ALTER COLUMN d TYPE bigint USING d * 2",
    "ALTER TABLE {0} RENAME COLUMN d TO dd",
    "ALTER TABLE {0} ADD COLUMN e varchar(10) NOT NULL DEFAULT 'e', ADD COLUMN f numeric(8, 2)",
    "ALTER TABLE {0} ALTER COLUMN f TYPE numeric(10, 4), ALTER e DROP NOT NULL",
    "UPDATE {0} SET f = id",
    "ALTER TABLE {0} ALTER f SET NOT NULL",
    "ALTER TABLE {0} ADD CHECK (f > 0)",
    "ALTER TABLE {0} ADD CONSTRAINT small CHECK (f < 1000) NOT VALID",
    "ALTER TABLE {0} VALIDATE CONSTRAINT small",
    "ALTER TABLE {0} ADD UNIQUE (id, f)",
    "ALTER TABLE {0} RENAME CONSTRAINT small TO little",
    "ALTER TABLE {0} DROP CONSTRAINT little",
    "ALTER TABLE {0} ALTER e SET STORAGE external, ALTER e SET STATISTICS 50",
    "ALTER TABLE {0} ALTER e SET COMPRESSION pglz",
    "ALTER TABLE ONLY {0} ADD COLUMN g text",
    "ALTER TABLE {0} DROP COLUMN e, DROP COLUMN IF EXISTS nothing",
    "ALTER TABLE IF EXISTS no_such_table ADD COLUMN x integer",
]


@pytest.mark.parametrize("table", ["t", "r"])
def test_alter_table_changes_all_nodes(pair: Pair, table: str) -> None:
    for statement in ALTERS:
        pair.execute(statement.format(table))
        check_structure(pair, table)
        pair.same(f"SELECT * FROM {table}")
    pair.same(f"INSERT INTO {table} (id, f) VALUES (9999, 5) RETURNING *")
    pair.same(f"INSERT INTO {table} (id, f) VALUES (9998, -5)")


@pytest.mark.parametrize("table", ["t", "r"])
def test_a_table_gets_another_name_and_another_schema(pair: Pair, table: str) -> None:
    pair.execute(f"ALTER TABLE {table} RENAME TO renamed; CREATE SCHEMA IF NOT EXISTS test_ddl_two")
    pair.same("SELECT count(*) FROM renamed")
    pair.execute("ALTER TABLE renamed SET SCHEMA test_ddl_two")
    check_structure(pair, "test_ddl_two.renamed")
    pair.same("SELECT * FROM test_ddl_two.renamed")
    pair.same("INSERT INTO test_ddl_two.renamed (id) VALUES (5000)")
    left = "SELECT count(*) FROM pg_class WHERE relnamespace = 'test_ddl'::regnamespace AND relname ~ '^%s'"
    assert pair.on_workers(left % f"({table}|renamed)") == [0, 0]
    pair.execute("DROP SCHEMA test_ddl_two CASCADE")
    gone = "SELECT count(*) FROM pg_namespace WHERE nspname = 'test_ddl_two'"
    assert everywhere(pair, gone) == 0


def test_another_table_gets_the_name_of_a_renamed_one(pair: Pair) -> None:
    """Its partitions on the workers, too; also where names are cut off at 63 bytes."""
    for old, new in (("t", "t_old"), ("t_old", "t" * 63), ("t" * 63, "back")):
        pair.execute(f"ALTER TABLE {old} RENAME TO {new}")
        pair.execute(f"CREATE TABLE {old} (id integer PRIMARY KEY, v text)")
        pair.distribute(old, "id")
        pair.execute(f"INSERT INTO {old} SELECT g, 'new' FROM generate_series(1, 50) AS g")
        for table in (old, new):
            pair.same(f"SELECT count(*), min(id), max(id) FROM {table}")
        pair.execute(f"DROP TABLE {old}")


def test_partitions_belong_to_the_new_owner(pair: Pair) -> None:
    pair.cluster.create_role("ddl_owner")
    pair.execute("GRANT CREATE, USAGE ON SCHEMA test_ddl TO ddl_owner")
    try:
        pair.execute("ALTER TABLE t OWNER TO ddl_owner")
        owners = "SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relnamespace = 'test_ddl'::regnamespace AND relname ~ '^t(_s.*)?$'"
        assert everywhere(pair, owners) == "ddl_owner"
        pair.execute("SET ROLE ddl_owner; ALTER TABLE t ADD COLUMN by_owner integer; RESET ROLE")
        check_structure(pair, "t")
    finally:
        pair.execute("RESET ROLE; REASSIGN OWNED BY ddl_owner TO CURRENT_USER")
        pair.execute("DROP OWNED BY ddl_owner; DROP ROLE ddl_owner")


def test_an_alter_that_fails_on_one_worker_changes_no_node(pair: Pair) -> None:
    for statement in (
        "ALTER TABLE t ADD CONSTRAINT never CHECK (id <> 77)",
        "ALTER TABLE t ALTER w TYPE integer USING CASE WHEN id = 77 THEN w::integer ELSE 1 END",
        "ALTER TABLE t ALTER v TYPE integer USING 100 / (id - 77)",
    ):
        pair.same(statement)
        check_structure(pair, "t")
        pair.same("SELECT * FROM t")


def test_ddl_rolls_back_on_all_nodes(pair: Pair) -> None:
    with pair.transaction():
        pair.execute("ALTER TABLE t ADD COLUMN d integer DEFAULT 3; CREATE INDEX by_d ON t (d)")
        pair.same("SELECT sum(d) FROM t")
        pair.execute("SAVEPOINT s; ALTER TABLE t DROP COLUMN v; TRUNCATE r; DROP TABLE r")
        pair.execute("ROLLBACK TO s")
        pair.same("SELECT sum(v), sum(d) FROM t")
        pair.same("SELECT count(*) FROM r")
        pair.execute("DROP TABLE t, r; CREATE TYPE never AS ENUM ('x')")
    for table in ("t", "r"):
        check_structure(pair, table)
        pair.same(f"SELECT * FROM {table}")
    assert everywhere(pair, "SELECT to_regtype('never')::text") is None


def test_ddl_and_rows_commit_as_one(pair: Pair) -> None:
    with pair.transaction("COMMIT"):
        pair.execute("ALTER TABLE t ADD COLUMN d integer")
        pair.same("INSERT INTO t (id, d) VALUES (1000, 1) RETURNING *")
        pair.same("UPDATE t SET d = id WHERE d IS NULL")
        pair.execute("ALTER TABLE t ALTER d SET NOT NULL")
    check_structure(pair, "t")
    pair.same("SELECT * FROM t")


def test_defaults_belong_to_the_coordinator(pair: Pair) -> None:
    pair.execute("ALTER TABLE t ALTER v SET DEFAULT 42, ALTER w SET DEFAULT 'none'")
    pair.same("INSERT INTO t (id) VALUES (1000) RETURNING *")
    pair.execute("ALTER TABLE t ALTER v DROP DEFAULT")
    pair.same("INSERT INTO t (id) VALUES (1001) RETURNING *")
    query = "SELECT count(*) FROM pg_attrdef WHERE adrelid = 'test_ddl.t'::regclass"
    assert pair.on_workers(query) == [0, 0]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t DROP COLUMN id",
        "ALTER TABLE t ADD UNIQUE (w)",
        "ALTER TABLE t ADD EXCLUDE USING btree (v WITH =)",
        "ALTER TABLE t SET UNLOGGED",
        "ALTER TABLE t SET TABLESPACE pg_default",
        "ALTER INDEX t_pkey SET TABLESPACE pg_default",
        "CREATE TABLE child () INHERITS (t)",
        "CREATE UNIQUE INDEX ON t (w)",
        "CREATE UNIQUE INDEX CONCURRENTLY ON t (w)",
        "ALTER TABLE t ADD COLUMN e integer DEFAULT nextval('drawn')",
        "ALTER TABLE t ALTER w TYPE integer USING nextval('drawn')",
        "ALTER TABLE r ALTER name TYPE text USING random()::text",
        "ALTER TABLE r ADD COLUMN e serial",
        "ALTER TABLE r ADD COLUMN e integer GENERATED ALWAYS AS IDENTITY",
        "CREATE TABLE x PARTITION OF parted FOR VALUES IN (1) USING distributed",
        "ALTER TABLE parted ATTACH PARTITION t FOR VALUES IN (1)",
        "ALTER TABLE t INHERIT plain",
        "ALTER TABLE plain INHERIT t",
        "CREATE FOREIGN TABLE x () INHERITS (t) SERVER nowhere",
        "CREATE PUBLICATION x FOR TABLE t",
        'CREATE RULE "_RETURN" AS ON SELECT TO t DO INSTEAD SELECT * FROM r',
        'CREATE RULE "_RETURN" AS ON SELECT TO r DO INSTEAD SELECT * FROM t',
        "CREATE TEMP TABLE x (a integer) USING distributed",
        "CREATE UNLOGGED TABLE x (a integer) USING distributed",
        "CREATE MATERIALIZED VIEW x USING distributed AS SELECT 1 AS a",
        "ALTER TABLE r ADD COLUMN e timestamptz DEFAULT clock_timestamp()",
    ]
    + (["ALTER TABLE t ADD EXCLUDE USING btree (id WITH =)"] if server_major() < 17 else [])
    + (["ALTER TABLE t ADD FOREIGN KEY (v) REFERENCES r NOT VALID"] if server_major() < 18 else []),
)
def test_what_the_workers_cannot_do_is_refused_with_a_reason(pair: Pair, statement: str) -> None:
    pair.execute(
        "CREATE SEQUENCE drawn; CREATE TABLE parted (id integer) PARTITION BY LIST (id);"
        "CREATE TABLE plain (id integer)"
    )
    with pytest.raises(psycopg.errors.FeatureNotSupported) as caught:
        pair.ours.execute(statement)
    assert caught.value.diag.message_detail or caught.value.diag.message_hint
    for table in ("t", "r"):
        check_structure(pair, table)
        pair.same(f"SELECT * FROM {table}")
    assert everywhere(pair, "SELECT to_regclass('x')::text") is None


# ---- indexes -----------------------------------------------------------------------------------------


def test_indexes_have_the_same_names_on_all_nodes(pair: Pair) -> None:
    for statement in (
        "CREATE INDEX ON t (v)",
        "CREATE INDEX ON t (v)",
        "CREATE INDEX by_w ON t USING hash (w) WHERE v > 3",
        "CREATE INDEX IF NOT EXISTS by_w ON t (v)",
        "CREATE INDEX ON t (lower(w) DESC NULLS LAST, id) INCLUDE (v)",
        "CREATE UNIQUE INDEX ON t (w, id)",
        "ALTER INDEX by_w RENAME TO by_w_two",
        "CREATE INDEX ON r (name)",
        "DROP INDEX t_v_idx, by_w_two",
        "DROP INDEX IF EXISTS by_w_two",
    ):
        pair.execute(statement)
        check_structure(pair, "t")
        check_structure(pair, "r")
    assert pair.rows(INDEXES.format("t")) == [
        (pair.theirs.execute(INDEXES.format("t")).fetchone()[0],)
    ]


# ---- tables come and go ------------------------------------------------------------------------------


def test_tables_made_with_the_access_method_are_distributed(pair: Pair) -> None:
    pair.theirs.execute("SET default_table_access_method = heap")
    pair.ours.execute("SET default_table_access_method = distributed")
    pair.execute(
        "CREATE TABLE made (k integer, x integer); INSERT INTO made SELECT g, g FROM generate_series(1, 50) AS g"
    )
    pair.execute(
        "CREATE TABLE queried AS SELECT g AS k, g % 7 AS m FROM generate_series(1, 99) AS g"
    )
    pair.execute("SELECT 1 AS k, 'a' AS y INTO into_one")
    pair.execute("CREATE TABLE like_t (LIKE t INCLUDING ALL)")
    pair.execute(
        "DO $$ BEGIN CREATE TABLE inner_one (k integer); INSERT INTO inner_one VALUES (1); END $$"
    )
    pair.execute("RESET default_table_access_method")
    for name in ("made", "queried", "into_one", "like_t", "inner_one"):
        pair.same(f"SELECT * FROM {name}")
        assert len(pair.gathers(f"SELECT * FROM {name}")) == 1
        check_structure(pair, name)
    refused(pair, "CREATE TABLE no_key (j json) USING distributed", "42P16")


def test_dropping_removes_a_table_from_all_nodes(pair: Pair) -> None:
    pair.execute("CREATE TABLE other (id integer REFERENCES r)")
    pair.distribute("other", "id")
    pair.same("DROP TABLE r")  # other depends on it
    pair.execute("DROP TABLE other, t; DROP TABLE r; DROP TABLE IF EXISTS t")
    left = "SELECT count(*) FROM pg_class WHERE relnamespace = 'test_ddl'::regnamespace"
    assert pair.on_workers(left) == [0, 0]
    assert pair.rows("SELECT * FROM strata.tables WHERE relation::text ~ '^(t|r|other)$'") == []
    pair.execute(
        "CREATE TABLE t (id integer PRIMARY KEY); CREATE VIEW seen AS SELECT count(*) FROM t"
    )
    pair.distribute("t", "id")
    pair.same("DROP TABLE t")
    pair.same("SELECT * FROM seen")
    pair.execute("DROP TABLE t CASCADE")
    assert pair.on_workers(left) == [0, 0]


def test_truncate_empties_all_nodes_or_none(pair: Pair) -> None:
    pair.execute("CREATE TABLE child (id integer, rid integer REFERENCES r)")
    pair.distribute("child", "id")
    pair.execute("INSERT INTO child SELECT g, 1 + g % 20 FROM generate_series(1, 60) AS g")
    with pair.transaction():
        pair.execute("TRUNCATE t, child")
        pair.same("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM child)")
    pair.same("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM child)")
    pair.same("TRUNCATE r")
    check_copies(pair)
    pair.execute("TRUNCATE r CASCADE; TRUNCATE t")
    pair.same("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM child)")
    check_copies(pair)


def test_maintenance_commands_reach_the_workers_outside_of_transactions_only(pair: Pair) -> None:
    for command in (
        "VACUUM t",
        "VACUUM (FREEZE, INDEX_CLEANUP on, PARALLEL 0) t, r",
        "VACUUM (ANALYZE) t (v)",
        "VACUUM FULL t",
        "REINDEX TABLE t",
        "REINDEX INDEX t_pkey",
        "REINDEX TABLE CONCURRENTLY t",
    ):
        pair.ours.execute(command)
        pair.same("SELECT count(*), sum(v) FROM t")
    counted = (
        "SELECT sum(n_mod_since_analyze + vacuum_count)::integer > 0 FROM pg_stat_user_tables"
        " WHERE schemaname = 'test_ddl' AND relname ~ '^t_s'"
    )
    assert pair.on_workers(counted) == [True, True]
    for command in ("VACUUM t", "REINDEX TABLE t"):
        with pair.ours.transaction(force_rollback=True):
            refused(pair, command, "25001")
    refused(pair, "VACUUM (nonsense) t", "42601")


# ---- types, functions, schemas, extensions -----------------------------------------------------------


def test_types_are_the_same_on_all_nodes(pair: Pair) -> None:
    pair.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TYPE part AS (x integer, y text);"
        "CREATE DOMAIN posint AS integer CHECK (VALUE > 0);"
        "CREATE TYPE span AS RANGE (SUBTYPE = float8, SUBTYPE_DIFF = float8mi)"
    )
    for statement in (
        "ALTER TYPE mood ADD VALUE 'glad' BEFORE 'ok'",
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'gloomy'",
        "ALTER TYPE part ADD ATTRIBUTE z integer",
        "ALTER TYPE part RENAME ATTRIBUTE z TO zz",
        "ALTER TYPE mood RENAME TO feeling",
        "ALTER DOMAIN posint ADD CONSTRAINT small CHECK (VALUE < 1000)",
    ):
        pair.execute(statement)
    labels = (
        "SELECT string_agg(enumlabel, ',' ORDER BY enumsortorder) FROM pg_enum"
        " WHERE enumtypid = 'test_ddl.feeling'::regtype"
    )
    assert everywhere(pair, labels) == "gloomy,glad,ok"
    attributes = COLUMNS.format("test_ddl.part")
    assert "zz integer" in everywhere(pair, attributes)

    pair.execute("CREATE TABLE typed (k integer, m feeling, p posint, c part, s span)")
    pair.distribute("typed", "k")
    pair.all_same(
        [
            "INSERT INTO typed SELECT g, (ARRAY['gloomy', 'glad', 'ok']::feeling[])[1 + g % 3], 1 + g,"
            " ROW(g, 'y', 2), span(g, g + 1) FROM generate_series(1, 40) AS g",
            "SELECT m, count(*), min(s), max(p) FROM typed GROUP BY m",
            "SELECT k, (c).x FROM typed WHERE m < 'ok' AND s @> 3.5::float8",
            "INSERT INTO typed VALUES (100, 'ok', 5000)",
            "INSERT INTO typed VALUES (100, 'ok', -1)",
            "ALTER DOMAIN posint ADD CONSTRAINT tiny CHECK (VALUE < 6)",
            "DROP TYPE feeling",
            "DROP TYPE feeling CASCADE",
            "DROP DOMAIN posint CASCADE",
            "SELECT * FROM typed",
        ]
    )
    check_structure(pair, "typed")
    assert everywhere(pair, "SELECT to_regtype('test_ddl.feeling')::text") is None


def test_functions_run_on_the_workers_as_they_are_now(pair: Pair) -> None:
    pair.execute("CREATE FUNCTION f (integer) RETURNS integer LANGUAGE sql IMMUTABLE RETURN $1 + 1")
    pair.same("SELECT sum(f(v)) FROM t")
    pair.execute(
        "CREATE OR REPLACE FUNCTION f (integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS"
        " $$ BEGIN RETURN $1 + 2; END $$"
    )
    pair.same("SELECT sum(f(v)) FROM t")
    assert "f(" in pair.remote_sql("SELECT id FROM t WHERE f(v) = 5")
    pair.execute("ALTER FUNCTION f (integer) RENAME TO g; ALTER FUNCTION g (integer) COST 7")
    pair.same("SELECT sum(g(v)) FROM t")
    query = "SELECT procost::integer FROM pg_proc WHERE proname = 'g' AND pronamespace = 'test_ddl'::regnamespace"
    assert everywhere(pair, query) == 7
    pair.execute(
        "CREATE AGGREGATE total (integer) (SFUNC = int4pl, STYPE = integer, INITCOND = '0',"
        " COMBINEFUNC = int4pl, PARALLEL = SAFE)"
    )
    pair.same("SELECT total(v) FROM t")
    pair.execute("DROP AGGREGATE total (integer); DROP FUNCTION g (integer)")
    pair.execute("DROP FUNCTION IF EXISTS g (integer)")
    count = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'test_ddl'::regnamespace"
    assert everywhere(pair, count) == 0
    partial = "SELECT count(*) FROM pg_proc WHERE proname = 'test_ddl.total'"
    assert everywhere(pair, partial) == 0


def test_functions_of_local_tables_stay_local(pair: Pair) -> None:
    pair.execute("CREATE TABLE here (a integer); INSERT INTO here VALUES (5)")
    pair.execute(
        "CREATE FUNCTION rows_here () RETURNS SETOF here LANGUAGE sql AS 'SELECT * FROM test_ddl.here';"
        "CREATE FUNCTION first (here) RETURNS integer LANGUAGE sql AS 'SELECT ($1).a';"
        "CREATE FUNCTION touch () RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
        "CREATE FUNCTION pg_temp.mine () RETURNS integer LANGUAGE sql AS 'SELECT 1'"
    )
    count = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'test_ddl'::regnamespace"
    assert pair.on_workers(count) == [0, 0]
    pair.same("SELECT first(h), count(t.*) FROM rows_here() AS h, t GROUP BY 1")
    pair.execute("ALTER FUNCTION first (here) COST 9; DROP FUNCTION first (here)")


def test_schemas_with_everything_in_them_come_and_go(pair: Pair) -> None:
    pair.ours.execute(
        "CREATE SCHEMA test_ddl_three CREATE TABLE st (a integer PRIMARY KEY) USING distributed"
        " CREATE VIEW sv AS SELECT * FROM st"
    )
    pair.ours.execute("INSERT INTO test_ddl_three.st SELECT generate_series(1, 10)")
    assert pair.rows("SELECT count(*) FROM test_ddl_three.sv") == [(10,)]
    assert sum(pair.on_workers("SELECT count(*) FROM test_ddl_three.st")) == 10
    pair.ours.execute("ALTER SCHEMA test_ddl_three RENAME TO test_ddl_four")
    assert pair.rows("SELECT count(*) FROM test_ddl_four.sv") == [(10,)]
    refused(pair, "DROP SCHEMA test_ddl_four", "2BP01")
    pair.ours.execute("DROP SCHEMA test_ddl_four CASCADE")
    assert everywhere(pair, "SELECT count(*) FROM pg_namespace WHERE nspname ~ '^test_ddl_'") == 0


def test_extensions_are_created_and_dropped_on_all_nodes(pair: Pair) -> None:
    pair.execute("CREATE EXTENSION hstore SCHEMA test_ddl")
    query = "SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'hstore'"
    assert everywhere(pair, query) == "test_ddl"
    pair.execute("ALTER TABLE t ADD COLUMN h hstore")
    pair.same("UPDATE t SET h = hstore('k', w)")
    pair.same("SELECT id FROM t WHERE h -> 'k' = 'w7'")
    pair.execute("DROP EXTENSION hstore CASCADE")
    check_structure(pair, "t")
    pair.same("SELECT * FROM t")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="distributed"):
        pair.ours.execute("DROP EXTENSION strata CASCADE")


# ---- triggers ----------------------------------------------------------------------------------------


def test_statement_triggers_see_the_inserted_rows(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE log (what text);"
        "CREATE FUNCTION note () RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO log SELECT TG_OP || ' ' || count(*) FROM new_rows; RETURN NULL; END $$;"
        "CREATE TRIGGER note AFTER INSERT ON t REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT"
        " EXECUTE FUNCTION note()"
    )
    pair.same("INSERT INTO t SELECT g, 1, 'x' FROM generate_series(1000, 1099) AS g")
    pair.copy("COPY t FROM STDIN", "2000\t1\tx\n2001\t1\tx\n")
    pair.same("SELECT * FROM log")
    pair.same("SELECT count(*) FROM t")


# ---- reference tables --------------------------------------------------------------------------------


def test_copies_of_reference_tables_stay_equal(pair: Pair) -> None:
    """Values that differ each time are computed once; whatever the statement, all nodes get its rows."""
    for statement in (
        "INSERT INTO r VALUES (100, 'new') RETURNING *",
        "INSERT INTO r VALUES (2, 'x') ON CONFLICT (id) DO UPDATE SET name = excluded.name || '!'",
        "DELETE FROM r WHERE id = 1",
        "UPDATE r SET id = id + 1000 WHERE id BETWEEN 5 AND 9",
        "MERGE INTO r USING (VALUES (3, 'm3'), (500, 'm5')) AS v (i, n) ON r.id = v.i"
        " WHEN MATCHED THEN UPDATE SET name = n WHEN NOT MATCHED THEN INSERT VALUES (i, n)",
        "WITH gone AS (DELETE FROM r WHERE id = 10 RETURNING name) INSERT INTO r SELECT 600, name FROM gone",
        "UPDATE r SET name = repeat(name, 3000) WHERE id > 900",
    ):
        pair.same(statement)
        check_copies(pair)
    pair.copy("COPY r FROM STDIN", "700\tcopied\n701\t\\N\n")
    check_copies(pair)
    pair.ours.execute("UPDATE r SET name = random()::text || clock_timestamp()::text")
    everywhere(pair, "SELECT md5(string_agg(r::text, ',' ORDER BY id)) FROM r")


def test_copies_follow_savepoints(pair: Pair) -> None:
    with pair.transaction("COMMIT"):
        pair.execute("UPDATE r SET name = 'a' WHERE id = 1; SAVEPOINT s; UPDATE r SET name = 'b'")
        pair.execute(
            "INSERT INTO r VALUES (50, 'b'); ROLLBACK TO s; UPDATE r SET name = 'c' WHERE id = 2"
        )
    check_copies(pair)
    pair.execute(
        "DO $$ BEGIN FOR i IN 1..100 LOOP INSERT INTO r VALUES (2000 + i, 'do');"
        " BEGIN DELETE FROM r WHERE id = 2000 + i; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END;"
        " UPDATE r SET name = 'done' || i WHERE id = 2000 + i; END LOOP; END $$"
    )
    check_copies(pair)


def test_a_delete_from_a_reference_table_cascades_on_the_workers(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE child (id integer PRIMARY KEY, rid integer REFERENCES r ON DELETE CASCADE)"
    )
    pair.distribute("child", "id")
    pair.execute("INSERT INTO child SELECT g, 1 + g % 20 FROM generate_series(1, 100) AS g")
    pair.same("INSERT INTO child VALUES (1000, 77)")
    pair.same("DELETE FROM r WHERE id = 1")
    pair.same("SELECT * FROM child")
    check_copies(pair)
    pair.execute("ALTER TABLE child DROP CONSTRAINT child_rid_fkey")
    check_structure(pair, "child")
    pair.same("INSERT INTO child VALUES (1000, 77)")
    pair.same("ALTER TABLE child ADD FOREIGN KEY (rid) REFERENCES r")  # 77 is not there
    check_structure(pair, "child")


CONSTRAINTS = """
SELECT string_agg(conname || ' ' || pg_get_constraintdef(oid), ', ' ORDER BY conname)
  FROM pg_constraint WHERE conrelid = to_regclass('child') AND conparentid = 0
"""
PARTS_OF_KEYS = """
SELECT string_agg(conname, ' ' ORDER BY oid)
  FROM pg_constraint WHERE conrelid = to_regclass('child') AND conparentid <> 0
"""


def test_constraints_get_the_names_that_workers_have_for_parts_of_others(pair: Pair) -> None:
    def check_constraints() -> None:
        assert set(pair.on_workers(CONSTRAINTS)) == {row[0] for row in pair.same(CONSTRAINTS)}

    pair.execute(
        "CREATE TABLE parent (id integer PRIMARY KEY); CREATE TABLE other (id integer PRIMARY KEY);"
        "CREATE TABLE child (id integer REFERENCES parent REFERENCES other REFERENCES parent, v integer)"
    )
    pair.distribute("parent", "id", shards=4)
    pair.distribute("other", "id", colocate_with="parent")
    pair.distribute("child", "id", colocate_with="parent")
    for _ in range(2):
        pair.same("ALTER TABLE child ADD FOREIGN KEY (id) REFERENCES other ON DELETE CASCADE")
        check_constraints()
    first, second, third, *_ = pair.on_workers(PARTS_OF_KEYS)[0].split()
    for statement in (
        f"ALTER TABLE child ADD CONSTRAINT {first} CHECK (v > 0)",
        f"ALTER TABLE child ADD CONSTRAINT {second} UNIQUE (id, v), ADD x integer",
        f"ALTER TABLE child RENAME CONSTRAINT {first} TO {third}",
        f"ALTER TABLE child RENAME CONSTRAINT {second} TO {third}",
        f"ALTER TABLE child ADD CONSTRAINT {third} CHECK (v > 1)",
    ):
        pair.same(statement)
        check_constraints()
    pair.execute("INSERT INTO parent VALUES (1), (2); INSERT INTO other VALUES (1)")
    for statement in (
        "INSERT INTO child VALUES (1, 1)",
        "INSERT INTO child VALUES (1, 1)",
        "INSERT INTO child VALUES (1, 0)",
        "INSERT INTO child VALUES (2, 2)",
        "DELETE FROM parent",
        "DELETE FROM other",
        f"ALTER TABLE child DROP CONSTRAINT {third}",
        "SELECT * FROM child",
    ):
        pair.same(statement)


# ---- roles and privileges ----------------------------------------------------------------------------


@pytest.fixture
def no_roles(pair: Pair) -> Iterator[Pair]:
    yield pair
    pair.execute("RESET ROLE")
    for role in ("ddl_user", "ddl_other", "ddl_group"):
        for node in (pair.cluster.coordinator, pair.cluster.plain):
            if node.query("SELECT FROM pg_roles WHERE rolname = %s", (role,)):
                node.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def test_roles_are_the_same_on_all_nodes_but_for_their_passwords(no_roles: Pair) -> None:
    pair = no_roles
    pair.execute(
        "CREATE ROLE ddl_group; CREATE USER ddl_user PASSWORD 'sesame' CONNECTION LIMIT 7 IN ROLE ddl_group;"
        "ALTER ROLE ddl_user CREATEDB; ALTER ROLE ddl_user PASSWORD 'other'"
    )
    attributes = (
        "SELECT concat_ws(',', rolcanlogin, rolcreatedb, rolsuper) FROM pg_roles"
        " WHERE rolname = 'ddl_user'"
    )
    assert everywhere(pair, attributes) == "t,t,f"
    passwords = "SELECT count(rolpassword) FROM pg_authid WHERE rolname = 'ddl_user'"
    assert pair.on_workers(passwords) == [0, 0]
    member = "SELECT pg_has_role('ddl_user', 'ddl_group', 'member')"
    assert everywhere(pair, member) is True
    pair.execute("REVOKE ddl_group FROM ddl_user")
    assert everywhere(pair, member) is False
    pair.execute("ALTER ROLE ddl_user RENAME TO ddl_other; DROP ROLE ddl_group")
    known = "SELECT string_agg(rolname, ',') FROM pg_roles WHERE rolname ~ '^ddl_'"
    assert everywhere(pair, known) == "ddl_other"
    pair.execute("DROP ROLE ddl_other")
    assert everywhere(pair, known) is None


def test_privileges_on_code_are_the_same_on_all_nodes(no_roles: Pair) -> None:
    pair = no_roles
    pair.execute("CREATE ROLE ddl_user; CREATE FUNCTION f () RETURNS integer LANGUAGE sql RETURN 1")
    nothing = "SELECT string_agg(relacl::text, '') FROM pg_class WHERE relnamespace = 'test_ddl'::regnamespace"
    for statement in (
        "GRANT SELECT, UPDATE (v, w) ON t TO ddl_user",
        "GRANT INSERT ON t, r TO ddl_user WITH GRANT OPTION",
        "REVOKE GRANT OPTION FOR INSERT ON t FROM ddl_user CASCADE",
        "GRANT SELECT ON ALL TABLES IN SCHEMA test_ddl TO PUBLIC",
        "REVOKE UPDATE (v) ON t FROM ddl_user",
        "GRANT USAGE ON SCHEMA test_ddl TO ddl_user; REVOKE EXECUTE ON FUNCTION f () FROM PUBLIC",
    ):
        pair.execute(statement)
        assert pair.on_workers(nothing) == [None, None]  # tables' privileges are checked here
    everywhere(pair, "SELECT nspacl::text FROM pg_namespace WHERE nspname = 'test_ddl'")
    everywhere(pair, "SELECT proacl::text FROM pg_proc WHERE oid = 'test_ddl.f()'::regprocedure")
    pair.execute("ALTER TABLE t OWNER TO ddl_user")
    owner = "SELECT relowner::regrole::text FROM pg_class WHERE oid = 'test_ddl.t'::regclass"
    assert everywhere(pair, owner) == "ddl_user"
    pair.execute("REASSIGN OWNED BY ddl_user TO postgres")
    assert everywhere(pair, owner) == "postgres"
    pair.execute("DROP OWNED BY ddl_user")
