"""What every utility statement means for the workers: the table, its documentation, and a test per row."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

ROOT = Path(__file__).parents[2]
README = ROOT / "coordinator" / "src" / "ddl" / "README.md"
SOURCE = ROOT / "coordinator" / "src" / "ddl" / "utility_class.c"

# Nodes called ...Stmt that ProcessUtility() never gets.
NO_STATEMENTS = {
    "AlterTableCmd", "CopyOptions", "DeleteStmt", "InsertStmt", "MergeStmt", "PLAssignStmt", "RawStmt",
    "ReplicaIdentityStmt", "ReturnStmt", "SelectStmt", "SetOperationStmt", "UpdateStmt",
}  # fmt: skip


@dataclass
class Case:
    """Statements of a row, what they need before, and a value that shows their effect."""

    run: list[str]
    before: list[str] = field(default_factory=list)
    probe: str | None = None
    alone: bool = False  # not inside a transaction block
    error: str | None = None  # SQLSTATE with which the last statement fails


def only(*statements: str, **options) -> Case:
    return Case(list(statements), **options)


FUNCTION = "CREATE FUNCTION f (integer) RETURNS integer LANGUAGE sql IMMUTABLE RETURN $1 + 1"
PROC = "SELECT {} FROM pg_proc WHERE proname = 'f' AND pronamespace = 'classes'::regnamespace"
ROLE = "SELECT {} FROM pg_roles WHERE rolname = 'classes_role'"
SERVER = [
    "CREATE FOREIGN DATA WRAPPER classes_fdw",
    "CREATE SERVER classes_server FOREIGN DATA WRAPPER classes_fdw",
]
SUBSCRIPTION = "CREATE SUBSCRIPTION classes_sub CONNECTION 'dbname=x' PUBLICATION p WITH (connect = false, slot_name = NONE)"
DICTIONARY = "CREATE TEXT SEARCH DICTIONARY d (TEMPLATE = simple)"
CONFIGURATION = "CREATE TEXT SEARCH CONFIGURATION c (PARSER = default)"
TRIGGER = "CREATE FUNCTION trg () RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'"

# By the name of the row.  An effect that is probed must be the same on all nodes, or, for statements that
# are the coordinator's, must not be on the workers.
CASES = {
    "COPY": only("COPY t (id) FROM PROGRAM 'echo 12345'", probe=None),
    "TRUNCATE": only("TRUNCATE t, r", before=["INSERT INTO r VALUES (1, 'x')"], probe="SELECT count(*) FROM r"),
    "LOCK TABLE": only("LOCK TABLE t IN SHARE MODE"),
    "CREATE TABLE": only("CREATE TABLE n (a integer) USING distributed", probe="SELECT count(*) FROM pg_class WHERE relname = 'n'"),
    "CREATE TABLE AS, SELECT INTO, CREATE MATERIALIZED VIEW": only(
        "CREATE MATERIALIZED VIEW m AS SELECT count(*) FROM t",
        "CREATE TABLE n USING distributed AS SELECT 1 AS a",
        probe="SELECT count(*) FROM pg_class WHERE relname = 'n'",
    ),
    "ALTER TABLE, ALTER INDEX, ALTER VIEW, ALTER TYPE (attributes)": only(
        "ALTER TABLE t ADD COLUMN x integer", probe="SELECT attnum FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'x'"
    ),
    "ALTER TABLE ALL IN TABLESPACE": only("ALTER TABLE ALL IN TABLESPACE pg_default SET TABLESPACE pg_global", error="0A000"),
    "CREATE INDEX": only("CREATE INDEX i ON t (v)", probe="SELECT indisvalid FROM pg_index WHERE indexrelid = 'i'::regclass"),
    "CREATE STATISTICS": only("CREATE STATISTICS st ON id, v FROM t", probe="SELECT stxkeys::text FROM pg_statistic_ext WHERE stxname = 'st'"),
    "ALTER STATISTICS": only(
        "ALTER STATISTICS st SET STATISTICS 77", before=["CREATE STATISTICS st ON id, v FROM t"],
        probe="SELECT stxstattarget::integer FROM pg_statistic_ext WHERE stxname = 'st'",
    ),
    "ALTER ... RENAME": only("ALTER TABLE t RENAME COLUMN v TO vv", probe="SELECT attname FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum = 2"),
    "ALTER ... SET SCHEMA": only(
        "ALTER FUNCTION f (integer) SET SCHEMA public", "ALTER FUNCTION public.f (integer) SET SCHEMA classes",
        before=[FUNCTION], probe=PROC.format("1"),
    ),
    "ALTER ... DEPENDS ON EXTENSION": only(
        "ALTER FUNCTION f (integer) DEPENDS ON EXTENSION plpgsql", before=[FUNCTION],
        probe="SELECT count(*) FROM pg_depend WHERE deptype = 'x' AND objid = 'classes.f(integer)'::regprocedure",
    ),
    "ALTER ... OWNER TO": only(
        "ALTER FUNCTION f (integer) OWNER TO classes_role", before=[FUNCTION, "CREATE ROLE classes_role"],
        probe=PROC.format("proowner::regrole::text"),
    ),
    "DROP": only("DROP FUNCTION f (integer)", before=[FUNCTION], probe=PROC.format("count(*)")),
    "COMMENT": only("COMMENT ON COLUMN t.v IS 'it''s'", probe="SELECT col_description('t'::regclass, 2)"),
    "SECURITY LABEL": only("SECURITY LABEL ON TABLE t IS 'secret'", error="22023"),  # no provider is loaded
    "CREATE TRIGGER": only(
        "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION trg()", before=[TRIGGER],
        probe="SELECT 1 FROM pg_trigger WHERE tgname = 'g'",
    ),
    "CREATE RULE": only(
        "CREATE RULE ru AS ON INSERT TO t DO ALSO NOTHING", probe="SELECT 1 FROM pg_rewrite WHERE rulename = 'ru'"
    ),
    "CREATE POLICY": only("CREATE POLICY po ON t USING (v > 1)", probe="SELECT 1 FROM pg_policy WHERE polname = 'po'"),
    "ALTER POLICY": only("ALTER POLICY po ON t USING (v > 2)", before=["CREATE POLICY po ON t"], probe="SELECT 1 FROM pg_policy WHERE polname = 'po'"),
    "CREATE VIEW": only("CREATE VIEW vi AS SELECT * FROM t", probe="SELECT 1 FROM pg_class WHERE relname = 'vi'"),
    "REFRESH MATERIALIZED VIEW": only("REFRESH MATERIALIZED VIEW m", before=["CREATE MATERIALIZED VIEW m AS SELECT * FROM t"]),
    "CREATE SEQUENCE": only("CREATE SEQUENCE sq", probe="SELECT 1 FROM pg_class WHERE relname = 'sq'"),
    "ALTER SEQUENCE": only("ALTER SEQUENCE sq INCREMENT 5", before=["CREATE SEQUENCE sq"], probe="SELECT 1 FROM pg_class WHERE relname = 'sq'"),
    "CREATE SCHEMA": only("CREATE SCHEMA classes_two", probe="SELECT 1 FROM pg_namespace WHERE nspname = 'classes_two'"),
    "CREATE TYPE AS": only("CREATE TYPE ty AS (x integer)", probe="SELECT 'classes.ty'::regtype::text"),
    "CREATE TYPE AS ENUM": only("CREATE TYPE ty AS ENUM ('a')", probe="SELECT enum_first(NULL::classes.ty)::text"),
    "CREATE TYPE AS RANGE": only("CREATE TYPE ty AS RANGE (SUBTYPE = float8)", probe="SELECT classes.ty(1, 2)::text"),
    "CREATE DOMAIN": only("CREATE DOMAIN ty AS integer CHECK (VALUE > 0)", probe="SELECT 1::classes.ty::integer"),
    "CREATE AGGREGATE, COLLATION, OPERATOR, TEXT SEARCH ..., TYPE": only(
        "CREATE AGGREGATE ag (integer) (SFUNC = int4pl, STYPE = integer)", "CREATE COLLATION co FROM \"C\"",
        "CREATE OPERATOR === (LEFTARG = integer, RIGHTARG = integer, FUNCTION = int4eq)", DICTIONARY, CONFIGURATION, "CREATE TYPE shell",
        probe="SELECT (SELECT classes.ag(x) FROM (VALUES (1), (2)) AS v (x)) || ts_lexize('classes.d', 'A')::text || to_regcollation('classes.co')::text"
        " || (2 OPERATOR(classes.===) 2)::text || 'classes.c'::regconfig::text",
    ),
    "CREATE FUNCTION, CREATE PROCEDURE": only(FUNCTION, "CREATE PROCEDURE p () LANGUAGE sql AS ''", probe="SELECT classes.f(1)"),
    "CREATE CAST": only(
        "CREATE CAST (boolean AS date) WITH INOUT", "DROP CAST (boolean AS date)", "CREATE CAST (boolean AS date) WITH INOUT",
        probe="SELECT castmethod FROM pg_cast WHERE castsource = 'boolean'::regtype AND casttarget = 'date'::regtype",
    ),
    "CREATE CONVERSION": only(
        "CREATE CONVERSION cv FOR 'LATIN1' TO 'UTF8' FROM iso8859_1_to_utf8", probe="SELECT conproc::text FROM pg_conversion WHERE conname = 'cv'"
    ),
    "CREATE TRANSFORM": only(
        "CREATE TRANSFORM FOR integer LANGUAGE sql (FROM SQL WITH FUNCTION prsd_lextype(internal))",
        "DROP TRANSFORM FOR integer LANGUAGE sql",
        "CREATE TRANSFORM FOR integer LANGUAGE sql (FROM SQL WITH FUNCTION prsd_lextype(internal))",
        probe="SELECT count(*) FROM pg_transform",
    ),
    "CREATE LANGUAGE": only(
        "CREATE LANGUAGE classes_language HANDLER plpgsql_call_handler", probe="SELECT 1 FROM pg_language WHERE lanname = 'classes_language'"
    ),
    "CREATE ACCESS METHOD": only(
        "CREATE ACCESS METHOD classes_am TYPE TABLE HANDLER heap_tableam_handler", probe="SELECT 1 FROM pg_am WHERE amname = 'classes_am'"
    ),
    "CREATE OPERATOR CLASS": only(
        "CREATE OPERATOR CLASS oc FOR TYPE integer USING hash AS OPERATOR 1 =, FUNCTION 1 hashint4(integer)",
        probe="SELECT count(*) FROM pg_opclass WHERE opcname = 'oc'",
    ),
    "CREATE OPERATOR FAMILY": only("CREATE OPERATOR FAMILY ofa USING btree", probe="SELECT count(*) FROM pg_opfamily WHERE opfname = 'ofa'"),
    "ALTER TYPE ... ADD VALUE, RENAME VALUE": only(
        "ALTER TYPE ty ADD VALUE 'b' BEFORE 'a'", "ALTER TYPE ty RENAME VALUE 'a' TO 'z'", before=["CREATE TYPE ty AS ENUM ('a')"],
        probe="SELECT string_agg(enumlabel, ',' ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = 'classes.ty'::regtype",
    ),
    "ALTER DOMAIN": only("ALTER DOMAIN ty ADD CHECK (VALUE < 9)", before=["CREATE DOMAIN ty AS integer"], probe="SELECT count(*) FROM pg_constraint WHERE contypid = 'classes.ty'::regtype"),
    "ALTER TYPE ... SET": only(
        "ALTER TYPE ty SET (STORAGE = external)",
        before=[
            "CREATE TYPE ty", "CREATE FUNCTION ty_in (cstring) RETURNS ty LANGUAGE internal IMMUTABLE STRICT AS 'textin'",
            "CREATE FUNCTION ty_out (ty) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout'",
            "CREATE TYPE ty (INPUT = ty_in, OUTPUT = ty_out, LIKE = text)",
        ],
        probe="SELECT typstorage FROM pg_type WHERE oid = 'classes.ty'::regtype",
    ),
    "ALTER FUNCTION, ALTER PROCEDURE, ALTER ROUTINE": only("ALTER ROUTINE f (integer) COST 77", before=[FUNCTION], probe=PROC.format("procost::integer")),
    "ALTER OPERATOR": only(
        "ALTER OPERATOR === (integer, integer) SET (RESTRICT = neqsel)", before=["CREATE OPERATOR === (LEFTARG = integer, RIGHTARG = integer, FUNCTION = int4eq)"],
        probe="SELECT oprrest::text FROM pg_operator WHERE oprname = '==='",
    ),
    "ALTER OPERATOR FAMILY": only(
        "ALTER OPERATOR FAMILY ofa USING btree ADD OPERATOR 1 < (integer, integer)", "ALTER OPERATOR FAMILY ofa USING btree RENAME TO ofb",
        before=["CREATE OPERATOR FAMILY ofa USING btree"],
        probe="SELECT count(*) FROM pg_amop AS a JOIN pg_opfamily AS f ON f.oid = a.amopfamily WHERE f.opfname = 'ofb'",
    ),
    "ALTER COLLATION": only(
        "ALTER COLLATION co RENAME TO cp", "ALTER COLLATION cp REFRESH VERSION", before=['CREATE COLLATION co FROM "C"'], probe="SELECT to_regcollation('classes.cp')::text"
    ),
    "ALTER TEXT SEARCH DICTIONARY": only(
        "ALTER TEXT SEARCH DICTIONARY d (accept = false)", before=[DICTIONARY], probe="SELECT dictinitoption FROM pg_ts_dict WHERE dictname = 'd'"
    ),
    "ALTER TEXT SEARCH CONFIGURATION": only(
        "ALTER TEXT SEARCH CONFIGURATION c ADD MAPPING FOR asciiword WITH simple", before=[CONFIGURATION], probe="SELECT to_tsvector('classes.c', 'One two')::text"
    ),
    "CREATE EXTENSION": only("CREATE EXTENSION hstore", probe="SELECT extversion FROM pg_extension WHERE extname = 'hstore'"),
    "ALTER EXTENSION ... UPDATE": only(
        "ALTER EXTENSION hstore UPDATE TO '1.8'", before=["CREATE EXTENSION hstore VERSION '1.7'"], probe="SELECT extversion FROM pg_extension WHERE extname = 'hstore'"
    ),
    "ALTER EXTENSION ... ADD, DROP": only(
        "ALTER EXTENSION hstore ADD FUNCTION f (integer)", before=["CREATE EXTENSION hstore", FUNCTION],
        probe="SELECT count(*) FROM pg_depend WHERE deptype = 'e' AND objid = 'classes.f(integer)'::regprocedure",
    ),
    "GRANT, REVOKE": only(
        "GRANT SELECT (v), UPDATE ON t TO classes_role", "GRANT USAGE ON LANGUAGE plpgsql TO classes_role", "GRANT SET ON PARAMETER log_statement TO classes_role",
        before=["CREATE ROLE classes_role"],
        probe="SELECT has_parameter_privilege('classes_role', 'log_statement', 'SET')::text"
        " || (SELECT lanacl::text ~ 'classes_role' FROM pg_language WHERE lanname = 'plpgsql')",
    ),
    "ALTER DEFAULT PRIVILEGES": only(
        "ALTER DEFAULT PRIVILEGES IN SCHEMA classes GRANT SELECT ON TABLES TO PUBLIC", probe="SELECT 1 FROM pg_default_acl"
    ),
    "CREATE ROLE, USER, GROUP": only("CREATE ROLE classes_role CREATEDB", probe=ROLE.format("rolcreatedb::text || rolcreaterole")),
    "ALTER ROLE": only("ALTER ROLE classes_role CREATEROLE", before=["CREATE ROLE classes_role"], probe=ROLE.format("rolcreatedb::text || rolcreaterole")),
    "ALTER ROLE ... SET": only(
        "ALTER ROLE classes_role SET work_mem = '5MB'",
        before=["CREATE ROLE classes_role"],
        probe="SELECT setconfig::text FROM pg_db_role_setting WHERE setconfig::text ~ 'work_mem'",
    ),
    "DROP ROLE": only("DROP ROLE classes_role", before=["CREATE ROLE classes_role"], probe=ROLE.format("count(*)")),
    "GRANT, REVOKE of roles": only(
        "GRANT pg_monitor TO classes_role", before=["CREATE ROLE classes_role"], probe="SELECT pg_has_role('classes_role', 'pg_monitor', 'member')"
    ),
    "DROP OWNED": only(
        "DROP OWNED BY classes_role", before=["CREATE ROLE classes_role", "GRANT SELECT ON t TO classes_role"],
        probe="SELECT has_table_privilege('classes_role', 't', 'SELECT')",
    ),
    "REASSIGN OWNED": only(
        "REASSIGN OWNED BY classes_role TO postgres", before=["CREATE ROLE classes_role", FUNCTION, "ALTER FUNCTION f (integer) OWNER TO classes_role"],
        probe=PROC.format("proowner::regrole::text"),
    ),
    "VACUUM, ANALYZE": only("VACUUM t", "ANALYZE t", alone=True),
    "REINDEX": only("REINDEX TABLE t", "REINDEX SCHEMA classes", "REINDEX INDEX CONCURRENTLY t_pkey", alone=True),
    "CLUSTER": only("CLUSTER r USING r_pkey"),
    "CREATE PUBLICATION": only("CREATE PUBLICATION classes_pub FOR TABLE r", "CREATE PUBLICATION classes_pub_two FOR TABLE t", error="0A000"),
    "ALTER PUBLICATION": only("ALTER PUBLICATION classes_pub ADD TABLE t", before=["CREATE PUBLICATION classes_pub"], error="0A000"),
    "CREATE SUBSCRIPTION": only(SUBSCRIPTION, probe="SELECT 1 FROM pg_subscription"),
    "ALTER SUBSCRIPTION": only("ALTER SUBSCRIPTION classes_sub OWNER TO postgres", "ALTER SUBSCRIPTION classes_sub SET (binary = true)", before=[SUBSCRIPTION]),
    "DROP SUBSCRIPTION": only("DROP SUBSCRIPTION classes_sub", before=[SUBSCRIPTION]),
    "CREATE FOREIGN DATA WRAPPER": only(SERVER[0], probe="SELECT 1 FROM pg_foreign_data_wrapper"),
    "ALTER FOREIGN DATA WRAPPER": only("ALTER FOREIGN DATA WRAPPER classes_fdw OPTIONS (a 'b')", before=SERVER),
    "CREATE SERVER": only(SERVER[1], before=SERVER[:1], probe="SELECT 1 FROM pg_foreign_server"),
    "ALTER SERVER": only("ALTER SERVER classes_server VERSION '2'", before=SERVER),
    "CREATE FOREIGN TABLE": only(
        "CREATE FOREIGN TABLE ft (a integer) SERVER classes_server", "CREATE FOREIGN TABLE fu () INHERITS (t) SERVER classes_server", before=SERVER, error="0A000"
    ),
    "IMPORT FOREIGN SCHEMA": only("IMPORT FOREIGN SCHEMA x FROM SERVER classes_server INTO classes", before=SERVER, error="55000"),  # it has no handler
    "CREATE USER MAPPING": only("CREATE USER MAPPING FOR postgres SERVER classes_server", before=SERVER, probe="SELECT 1 FROM pg_user_mapping"),
    "ALTER USER MAPPING": only(
        "ALTER USER MAPPING FOR postgres SERVER classes_server OPTIONS (a 'b')", before=[*SERVER, "CREATE USER MAPPING FOR postgres SERVER classes_server"]
    ),
    "DROP USER MAPPING": only(
        "DROP USER MAPPING FOR postgres SERVER classes_server", before=[*SERVER, "CREATE USER MAPPING FOR postgres SERVER classes_server"]
    ),
    "CREATE EVENT TRIGGER": only(
        "CREATE EVENT TRIGGER classes_event ON sql_drop EXECUTE FUNCTION et()",
        before=["CREATE FUNCTION et () RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'"], probe="SELECT 1 FROM pg_event_trigger WHERE evtname = 'classes_event'",
    ),
    "ALTER EVENT TRIGGER": only(
        "ALTER EVENT TRIGGER classes_event DISABLE",
        before=["CREATE FUNCTION et () RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'", "CREATE EVENT TRIGGER classes_event ON sql_drop EXECUTE FUNCTION et()"],
    ),
    "CREATE DATABASE": only("CREATE DATABASE classes_db", probe="SELECT 1 FROM pg_database WHERE datname = 'classes_db'", alone=True),
    "ALTER DATABASE": only("ALTER DATABASE classes_db CONNECTION LIMIT 3", before=["CREATE DATABASE classes_db"], alone=True),
    "ALTER DATABASE ... REFRESH COLLATION VERSION": only("ALTER DATABASE strata REFRESH COLLATION VERSION"),
    "ALTER DATABASE ... SET": only("ALTER DATABASE strata SET work_mem = '5MB'", probe="SELECT setconfig::text FROM pg_db_role_setting WHERE setconfig::text ~ 'work_mem'"),
    "DROP DATABASE": only("DROP DATABASE classes_db", before=["CREATE DATABASE classes_db"], alone=True),
    "CREATE TABLESPACE": only("CREATE TABLESPACE classes_space LOCATION '/nonexistent'", alone=True, error="58P01"),
    "ALTER TABLESPACE": only("ALTER TABLESPACE pg_default SET (seq_page_cost = 1)", "ALTER TABLESPACE pg_default RESET (seq_page_cost)"),
    "DROP TABLESPACE": only("DROP TABLESPACE IF EXISTS classes_space", alone=True),
    "ALTER SYSTEM": only("ALTER SYSTEM RESET work_mem", alone=True),
    "CHECKPOINT": only("CHECKPOINT"),
    "LOAD": only("LOAD 'plpgsql'"),
    "EXPLAIN": only("EXPLAIN SELECT * FROM t"),
    "PREPARE": only("PREPARE q AS SELECT count(*) FROM t", "DEALLOCATE q"),
    "EXECUTE": only("EXECUTE kept", before=["PREPARE kept AS SELECT count(*) FROM t"]),
    "DEALLOCATE": only("PREPARE q AS SELECT 1", "DEALLOCATE q"),
    "DECLARE": only("DECLARE cu CURSOR FOR SELECT * FROM t"),
    "FETCH, MOVE": only("DECLARE cu CURSOR FOR SELECT * FROM t", "FETCH 2 FROM cu", "MOVE 1 FROM cu"),
    "CLOSE": only("DECLARE cu CURSOR FOR SELECT * FROM t", "CLOSE cu"),
    "DO": only("DO $$ BEGIN PERFORM count(*) FROM t; END $$"),
    "CALL": only("CALL lp()", before=["CREATE PROCEDURE lp () LANGUAGE sql AS ''"]),
    "BEGIN, COMMIT, ROLLBACK, SAVEPOINT, PREPARE TRANSACTION ...": only("SAVEPOINT s", "ROLLBACK TO s", "RELEASE s"),
    "SET CONSTRAINTS": only("SET CONSTRAINTS ALL DEFERRED"),
    "SET, RESET": only("SET work_mem = '5MB'", "RESET work_mem"),
    "SHOW": only("SHOW work_mem"),
    "DISCARD": only("DISCARD PLANS"),
    "NOTIFY": only("NOTIFY classes"),
    "LISTEN": only("LISTEN classes", "UNLISTEN classes"),
    "UNLISTEN": only("UNLISTEN *"),
}  # fmt: skip

# They reach workers, but do not change the schema.
NO_DDL = {"COPY", "VACUUM, ANALYZE", "REINDEX", "CLUSTER", "SET CONSTRAINTS"}

CLEAN_UP = (
    "DROP SUBSCRIPTION IF EXISTS classes_sub",
    "DROP DATABASE IF EXISTS classes_db",
    "DROP EVENT TRIGGER IF EXISTS classes_event",
    "DROP PUBLICATION IF EXISTS classes_pub",
    "DROP FOREIGN DATA WRAPPER IF EXISTS classes_fdw CASCADE",
    "DROP CAST IF EXISTS (boolean AS date)",
    "DROP TRANSFORM IF EXISTS FOR integer LANGUAGE sql",
    "DROP LANGUAGE IF EXISTS classes_language",
    "DROP ACCESS METHOD IF EXISTS classes_am",
    "DROP EXTENSION IF EXISTS hstore CASCADE",
    "ALTER DATABASE strata RESET work_mem",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA classes REVOKE SELECT ON TABLES FROM PUBLIC",
    "DROP SCHEMA IF EXISTS classes, classes_two CASCADE",
    "DO $$ BEGIN IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'classes_role') THEN"
    " EXECUTE 'DROP OWNED BY classes_role; DROP ROLE classes_role'; END IF; END $$",
)


def table_in_readme(title: str) -> list[tuple[str, ...]]:
    """The rows of the first table behind a line with this title."""
    text = README.read_text().split(f"{title}\n", 1)[1]
    lines = text.strip().split("\n\n", 1)[0].splitlines()
    return [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in lines[2:]]


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "classes") as made:
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    data.ours.execute("CREATE TABLE t (id integer PRIMARY KEY, v integer)")
    data.ours.execute("CREATE TABLE r (id integer PRIMARY KEY, name text)")
    data.distribute("t", "id")
    data.reference("r")
    data.ours.execute("INSERT INTO t SELECT g, g % 10 FROM generate_series(1, 50) AS g")
    yield data
    data.reset()
    data.ours.execute("RESET ROLE")
    for statement in CLEAN_UP:
        data.ours.execute(statement)
    data.ours.execute("CREATE SCHEMA classes")


def classes(pair: Pair) -> dict[str, tuple[str, str | None]]:
    return {
        statements: (kind, note)
        for statements, kind, note in pair.rows("SELECT * FROM strata.statement_classes()")
    }


def test_the_documentation_lists_all_classes(data: Pair) -> None:
    rows = data.rows("SELECT statements, class, coalesce(note, '') FROM strata.statement_classes()")
    assert table_in_readme("### Statements") == rows
    rows = data.rows(
        "SELECT class, string_agg(object, ', ' ORDER BY object) FROM strata.object_classes()"
        " GROUP BY class ORDER BY class"
    )
    assert table_in_readme("### Objects") == rows


def test_every_row_has_a_test(data: Pair) -> None:
    assert set(classes(data)) == set(CASES)


def header_path() -> Path:
    config = os.environ.get("PG_CONFIG", "/usr/lib/postgresql/15/bin/pg_config")
    answer = subprocess.run([config, "--includedir-server"], capture_output=True, text=True)
    return Path(answer.stdout.strip()) / "nodes" / "parsenodes.h"


def test_every_statement_and_object_type_of_postgresql_has_a_row() -> None:
    header = header_path().read_text()
    # the node of CLUSTER is one of two
    cluster = "T_RepackStmt" if "} RepackStmt;" in header else "T_ClusterStmt"
    source = SOURCE.read_text().replace("T_CompatClusterStmt", cluster)
    statements = set(re.findall(r"^\} (\w+Stmt);", header, re.M)) - NO_STATEMENTS
    missing = {name for name in statements if f"{{T_{name}," not in source}
    objects = re.search(r"typedef enum ObjectType\s*\{(.*?)\} ObjectType;", header, re.S).group(1)
    missing |= {
        name for name in re.findall(r"OBJECT_\w+", objects) if f"{{{name}, OBJECT_" not in source
    }
    assert not missing


@pytest.mark.parametrize("row", CASES)
def test_a_statement_does_what_its_class_says(pair: Pair, row: str) -> None:
    """It reaches the workers or not, shows the same effect on all nodes, and rolls back as one."""
    case = CASES[row]
    kind, _ = classes(pair)[row]
    for statement in case.before:
        pair.ours.execute(statement)
    before = version(pair)
    if not case.alone and case.error is None:
        pair.ours.execute("BEGIN")
        for statement in case.run:
            pair.ours.execute(statement)
        pair.ours.execute("ROLLBACK")
        assert version(pair) == before
    pair.ours.execute("COMMIT" if case.alone else "BEGIN")
    for statement in case.run[:-1]:
        pair.ours.execute(statement)
    if case.error is not None:
        with pytest.raises(psycopg.Error) as caught:
            pair.ours.execute(case.run[-1])
        assert caught.value.sqlstate == case.error
        pair.ours.execute("ROLLBACK")
        return
    pair.ours.execute(case.run[-1])
    pair.ours.execute("COMMIT")

    sent = version(pair) > before
    if row not in NO_DDL:
        assert sent == (kind in ("everywhere", "adapted"))
    if case.probe is not None:
        here = pair.rows(case.probe)
        assert here
        assert probe_workers(pair, case.probe) == [here if sent else []] * len(pair.cluster.workers)


def version(pair: Pair) -> int:
    ((value,),) = pair.rows("SELECT ddl_version FROM strata.cluster")
    return value


def probe_workers(pair: Pair, query: str) -> list[list[tuple]]:
    answers = []
    for worker in pair.cluster.workers:
        with worker.connect() as connection:
            connection.execute("SET search_path = classes, public")
            answers.append(connection.execute(query).fetchall())
    return answers
