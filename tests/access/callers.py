"""The set-up of test_callers.py: tables in a closed schema, views of them, and the code that an ordinary role brings."""

SCHEMA = "test_callers"
MALLORY = "callers_mallory"  # writes code, may use views
OWNER = "callers_owner"  # owns a table and views of it

# in a schema that Mallory may not use: she knows it by the views alone
SETUP = f"""
CREATE SCHEMA callers_closed;
GRANT ALL ON SCHEMA callers_closed TO {OWNER};
CREATE TYPE callers_closed.color AS ENUM ('red', 'green');
CREATE FUNCTION callers_closed.twice (integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN $1 * 2; END';
CREATE FUNCTION callers_closed.own () RETURNS text SECURITY DEFINER LANGUAGE sql AS 'SELECT current_user::text';
CREATE TABLE callers_closed.secret (k integer PRIMARY KEY, v integer, c callers_closed.color DEFAULT 'red');
CREATE TABLE callers_closed.owned (k integer PRIMARY KEY, v integer, c callers_closed.color DEFAULT 'red');
CREATE TABLE callers_closed.ref (k integer PRIMARY KEY, v integer);
GRANT USAGE, CREATE ON SCHEMA {SCHEMA} TO {MALLORY};
"""
TABLES = ("callers_closed.secret", "callers_closed.owned")
VIEWS = f"""
INSERT INTO callers_closed.secret SELECT g, g % 7, CASE g % 2 WHEN 0 THEN 'red' ELSE 'green' END::callers_closed.color FROM generate_series(1, 40) AS g;
INSERT INTO callers_closed.owned SELECT g, g % 7 FROM generate_series(1, 40) AS g;
INSERT INTO callers_closed.ref SELECT g, g FROM generate_series(1, 10) AS g;
CREATE VIEW of_superuser AS SELECT k, v FROM callers_closed.secret WHERE c = 'red' AND callers_closed.twice(v) < 12;
CREATE VIEW of_owner AS SELECT k, v FROM callers_closed.owned;
CREATE VIEW barrier WITH (security_barrier) AS SELECT k, v FROM callers_closed.owned WHERE k > 3;
CREATE VIEW of_both AS SELECT s.k, s.v FROM callers_closed.secret AS s JOIN callers_closed.owned AS o USING (k);
CREATE VIEW over_view AS SELECT k, v FROM of_owner WHERE k < 30;
CREATE VIEW with_reference AS SELECT s.k, r.v FROM callers_closed.secret AS s JOIN callers_closed.ref AS r ON r.k = s.v;
CREATE VIEW of_reference AS SELECT k, v FROM callers_closed.ref;
CREATE VIEW of_invoker WITH (security_invoker) AS SELECT k, v FROM callers_closed.owned;
ALTER TABLE callers_closed.owned OWNER TO {OWNER};
ALTER VIEW of_owner OWNER TO {OWNER};
ALTER VIEW barrier OWNER TO {OWNER};
ALTER VIEW over_view OWNER TO {OWNER};
GRANT SELECT ON of_owner TO PUBLIC;
"""
VIEW_NAMES = (
    "of_superuser", "of_owner", "barrier", "of_both", "over_view", "with_reference", "of_reference", "of_invoker",
)  # fmt: skip
UPDATABLE = ("of_superuser", "of_owner", "over_view", "of_reference")

CODE = """
CREATE TABLE mine (k integer PRIMARY KEY, v integer);
CREATE FUNCTION who (integer) RETURNS text IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN current_user; END';
CREATE FUNCTION who_inlined (integer) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT current_user::text || left($1::text, 0)';
CREATE FUNCTION whose (integer, integer) RETURNS boolean IMMUTABLE LANGUAGE plpgsql
    AS $$BEGIN RETURN current_user = 'callers_mallory'; END$$;
CREATE OPERATOR === (FUNCTION = whose, LEFTARG = integer, RIGHTARG = integer);
CREATE TYPE wrapped AS (t text);
CREATE FUNCTION wrap (integer) RETURNS wrapped IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN ROW(current_user::text); END';
CREATE CAST (integer AS wrapped) WITH FUNCTION wrap (integer);
CREATE DOMAIN checked AS integer CHECK (whose(VALUE, 0));
CREATE FUNCTION step (text, integer) RETURNS text IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN current_user; END';
CREATE AGGREGATE whos (integer) (SFUNC = step, STYPE = text);
CREATE FUNCTION attempt (integer, text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS
    $$BEGIN EXECUTE $2; RETURN 'done'; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END$$;
CREATE FUNCTION attempt_all (integer, text) RETURNS text IMMUTABLE LANGUAGE sql
    AS 'SELECT test_callers.attempt($1, $2)';
"""

EXPRESSIONS = (
    "who(v)",
    "who_inlined(v)",
    "CASE WHEN v === k THEN 'yes' ELSE 'no' END",
    "(v::wrapped).t",
    "(v::checked)::text",
    "who(v) || who(k)",
    "coalesce(who(v), 'nobody')",
    "'{3}'::checked[]::text",
)

ATTEMPTS = (
    f"ALTER ROLE {MALLORY} SUPERUSER",
    f"GRANT {OWNER} TO {MALLORY}",
    "COPY (SELECT 1) TO PROGRAM 'true'",
    "SELECT count(*) FROM callers_closed.secret",
    "SELECT count(*) FROM callers_closed.owned",
    "UPDATE callers_closed.owned SET v = 99",
    "DELETE FROM callers_closed.ref",
    "SELECT callers_closed.own()",
    "TRUNCATE callers_closed.secret",
    "SET ROLE postgres",
    "SET LOCAL ROLE postgres",
    "RESET ROLE",
    "RESET SESSION AUTHORIZATION",
    "SET SESSION AUTHORIZATION postgres",
    "SELECT set_config('role', 'postgres', false)",
    "SELECT set_config('session_authorization', 'postgres', true)",
    "SET LOCAL strata_worker.role = 'postgres'",
    "SET LOCAL strata_worker.role TO DEFAULT",
    "SELECT set_config('strata_worker.role', 'postgres', true)",
    "SELECT set_config('strata_worker.marked', 'off', true)",
    "SELECT strata_worker.guard_functions(false)",
    "SELECT pg_read_file('postgresql.conf')",
    "SELECT lo_create(0)",
    "DELETE FROM pg_authid",
    "CREATE TABLE test_callers.left_over (x integer)",
    "DO $x$ BEGIN EXECUTE 'ALTER ROLE callers_mallory SUPERUSER'; END $x$",
)

# what none of it may have changed
STATE = """
SELECT (SELECT count(*) || ' ' || sum(v) FROM {0}.secret), (SELECT count(*) || ' ' || sum(v) FROM {0}.owned),
       (SELECT count(*) || ' ' || sum(v) FROM {0}.ref), (SELECT count(*) || ' ' || sum(v) FROM test_callers.mine),
       (SELECT string_agg(rolname, ' ') FROM pg_roles WHERE rolsuper AND rolname <> 'postgres'),
       (SELECT count(*) FROM pg_auth_members WHERE member >= 16384), (SELECT count(*) FROM pg_largeobject_metadata),
       to_regclass('test_callers.left_over')
""".format("callers_closed")
