"""New rows of UPDATE under policies and WITH CHECK OPTION: checked on the workers, with PostgreSQL's errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.assert_same import run
from tests.cluster import Cluster
from tests.pair import Pair, open_pair

WRITER = "strata_check_writer"
SETUP = """
CREATE TYPE part AS (x integer, y text);
CREATE TABLE account (id integer, tenant text COLLATE "C", v integer CHECK (v <> 13), code varchar(4), list integer[], p part,
  gone integer, total integer GENERATED ALWAYS AS (v * 2 + 1) STORED, words varchar(3)[],
  c varchar(4) COLLATE "C", UNIQUE (id, code));
ALTER TABLE account DROP COLUMN gone;
CREATE TABLE member (id integer, may boolean);
CREATE TABLE limits (tenant text PRIMARY KEY, most integer);
CREATE FUNCTION twofold(integer) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2';
CREATE VIEW small AS SELECT id, v, code, list FROM account WHERE v < 100 WITH CHECK OPTION;
CREATE VIEW tiny AS SELECT * FROM small WHERE v > 2 AND code <> 'none' WITH LOCAL CHECK OPTION;
CREATE VIEW tiniest AS SELECT * FROM small WHERE v > 5 WITH CASCADED CHECK OPTION;
"""
ROWS = """
INSERT INTO account (id, tenant, v, code, list, p) SELECT i, 't' || i % 4, i % 90 + 20, 'c' || i % 9, ARRAY[i, 2], ROW(i, 'y')::part
  FROM generate_series(1, 200) AS i;
INSERT INTO member SELECT i, i % 3 = 0 FROM generate_series(1, 200) AS i;
INSERT INTO limits VALUES ('t0', 110), ('t1', 50), ('t2', NULL);
ANALYZE account, member, limits;
"""
ALL = "SELECT * FROM account ORDER BY id, code"


@pytest.fixture(scope="module", params=["columnar", "heap"])
def pair(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    cluster.create_role(WRITER)
    with open_pair(cluster, "test_new_row_checks") as made:
        made.execute(SETUP)
        made.distribute("account", "id", "none", storage=request.param)
        made.distribute("member", "id", "account", storage=request.param)
        made.reference("limits")
        made.execute(ROWS)
        made.execute(
            f"GRANT USAGE ON SCHEMA test_new_row_checks TO {WRITER};"
            f"GRANT ALL ON ALL TABLES IN SCHEMA test_new_row_checks TO {WRITER};"
            "ALTER TABLE account ENABLE ROW LEVEL SECURITY"
        )
        yield made
    for node in cluster.nodes:
        node.execute(f"DROP OWNED BY {WRITER}")


POLICIES = [
    "USING (tenant = 't1')",
    "USING (tenant IN ('t1', 't2')) WITH CHECK (v < 60)",
    "USING (true) WITH CHECK (total < 120 AND code IS NOT NULL)",
    "USING (v > 30) WITH CHECK (tenant = current_setting('app.tenant', true) OR v % 2 = 0)",
    "USING (true) WITH CHECK (v <= (SELECT most FROM limits WHERE limits.tenant = account.tenant))",
    "USING (true) WITH CHECK (v < (SELECT max(most) FROM limits))",
    "USING (true) WITH CHECK (EXISTS (SELECT FROM member WHERE member.id = account.id AND may))",
    "USING (true) WITH CHECK (tenant IN (SELECT tenant FROM limits WHERE most > 60))",
    "USING (true) WITH CHECK (list[1] > 0 AND (p).x IS NOT NULL)",
]
UPDATES = [
    "UPDATE account SET v = v + 1",
    "UPDATE account SET v = v + 1 WHERE id = 9 RETURNING id, v, total",
    "UPDATE account SET v = 12 WHERE tenant = 't1' AND id < 50",
    "UPDATE account SET v = 13 WHERE id = 9",
    "UPDATE account SET tenant = 't0'",
    "UPDATE account SET code = NULL WHERE id = 5",
    "UPDATE account SET code = 'much too long' WHERE id = 5",
    "UPDATE account SET code = 'x', list[1] = -1, v = 40 WHERE id < 9",
    "UPDATE account SET v = most FROM limits WHERE limits.tenant = account.tenant RETURNING account.id, v",
    "UPDATE account SET v = DEFAULT WHERE id = 5",
    "UPDATE account SET v = 40 WHERE false",
    "UPDATE account SET words = ARRAY['abcd']::varchar(2)[] WHERE id < 5",
    "UPDATE account SET c = code || '', v = 40 WHERE id < 5",
    "UPDATE account SET id = id + 1000, v = v - 1 WHERE id < 30",
    "UPDATE account SET id = id + 1000, v = 1000 WHERE id < 30",
]


@pytest.mark.parametrize("policy", POLICIES)
def test_policies(pair: Pair, policy: str) -> None:
    pair.execute(
        f"DROP POLICY IF EXISTS p ON account; CREATE POLICY p ON account {policy};"
        f"DROP POLICY IF EXISTS low ON account; CREATE POLICY low ON account AS RESTRICTIVE FOR UPDATE USING (true)"
        " WITH CHECK (v IS NULL OR v < 500)"
    )
    for statement in UPDATES:
        with pair.transaction():
            pair.execute(f"SET LOCAL ROLE {WRITER}; SET LOCAL app.tenant = 't2'")
            outcomes = [run(connection, statement) for connection in (pair.ours, pair.theirs)]
            ours, theirs = outcomes
            assert (ours.sqlstate, ours.tag) == (theirs.sqlstate, theirs.tag), (statement, outcomes)
            assert sorted(ours.rows, key=str) == sorted(theirs.rows, key=str), (statement, outcomes)
            if ours.sqlstate:
                assert ours.message.split("\n")[0] == theirs.message.split("\n")[0]
            else:
                pair.execute("RESET ROLE")
                pair.same(ALL)


VIEWS = [
    "UPDATE small SET v = v - 1",
    "UPDATE small SET v = v + 30",
    "UPDATE small SET v = 100 WHERE id = 5",
    "UPDATE tiny SET v = 2 WHERE id = 7",
    "UPDATE tiny SET v = 200 WHERE id = 7",
    "UPDATE tiny SET code = 'none', v = 50 WHERE id = 7",
    "UPDATE tiny SET code = 'any', list[2] = 5 WHERE id = 7 RETURNING *",
    "UPDATE tiniest SET v = 4",
    "UPDATE tiniest SET v = v + 1 WHERE v < 50",
    "UPDATE tiniest SET id = id + 300, v = v + 1 WHERE v < 50",
    "UPDATE tiniest SET id = id + 300, v = 1 WHERE v < 50",
    "UPDATE small SET list[1] = 7",
    "UPDATE small SET v = 13 WHERE id = 7",  # a constraint of the table comes first
    "UPDATE small SET v = 113 - 100 * (id % 2) WHERE id < 3",
    "UPDATE small SET v = twofold(v) WHERE id < 30 RETURNING id, v",
    "UPDATE small SET v = twofold(v)",
    "UPDATE small SET v = 150 RETURNING 1",
    "UPDATE small SET v = 50 WHERE id < 5 RETURNING 1, id",
    "UPDATE account SET v = 50 WHERE id < 5 RETURNING p, account",
    "WITH u AS (UPDATE small SET v = 50 WHERE id < 5 RETURNING id) SELECT count(*) FROM u",
    "WITH u AS (UPDATE small SET v = 150 WHERE id < 5) SELECT 1",
    "UPDATE small SET v = d.v FROM (VALUES (2, 30), (2, 40)) AS d (i, v) WHERE d.i = id AND d.v < 35",
]


@pytest.mark.parametrize("statement", VIEWS)
def test_check_options(pair: Pair, statement: str) -> None:
    with pair.transaction():
        pair.same(statement)
    with pair.transaction():
        if run(pair.ours, statement).sqlstate is None:
            pair.theirs.execute(statement)
            pair.same(ALL)


def test_only_a_part_is_assigned(pair: Pair) -> None:
    """SQL has no expression for the new value of the array, which a policy's condition looks at."""
    pair.execute(
        "DROP POLICY IF EXISTS p ON account; DROP POLICY IF EXISTS low ON account;"
        "CREATE POLICY p ON account USING (true) WITH CHECK (v < 500)"
    )
    with pair.transaction():
        pair.execute(f"SET LOCAL ROLE {WRITER}")
        pair.same("UPDATE account SET list[1] = 7")
        pair.execute("RESET ROLE")
        pair.same(ALL)


def test_parameters_and_plans_of_both_kinds(pair: Pair) -> None:
    pair.execute(
        "DROP POLICY IF EXISTS p ON account; DROP POLICY IF EXISTS low ON account;"
        "CREATE POLICY p ON account USING (true) WITH CHECK (v < current_setting('app.most')::integer)"
    )
    for mode in ("force_generic_plan", "force_custom_plan"):
        pair.execute(
            f"SET plan_cache_mode = {mode}; SET ROLE {WRITER};"
            "PREPARE change(integer, integer) AS UPDATE account SET v = $2 WHERE id = $1 RETURNING id, v"
        )
        for most in (50, 60, 50):
            pair.execute(f"SET app.most = {most}")
            for value in (40, 55):
                pair.same(f"EXECUTE change (7, {value})")
        pair.execute("DEALLOCATE change; RESET ROLE; RESET plan_cache_mode; RESET app.most")
    pair.same(ALL)


LIE = """
CREATE FUNCTION lie(i integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF coalesce(current_setting('app.n', true), '') = '1' THEN
    PERFORM set_config('app.n', '0', true);
    RETURN 5;
  END IF;
  PERFORM set_config('app.n', '1', true);
  RETURN 1000;
END $$;
CREATE OPERATOR ### (FUNCTION = lie, RIGHTARG = integer);
CREATE DOMAIN lying AS integer CHECK (lie(VALUE) > 0);
CREATE TYPE liar AS (x lying);
"""


@pytest.mark.parametrize(
    "value",
    [
        "x FROM (SELECT id AS i, lie(v) AS x FROM account) AS q",
        "x FROM (SELECT id AS i, (SELECT lie(most) FROM limits LIMIT 1) AS x FROM account) AS q",
        "x FROM lied AS q",
        "x FROM (SELECT 3 AS i) AS j, lie(5) AS x",
        "x FROM (VALUES (3, lie(5))) AS q (i, x)",
        "lie(v)",
        "### v",
        "abs(lie(v))",
        "v::lying",
        "v::text::lying",
        "(SELECT max(lie(most)) FROM limits WHERE limits.tenant = account.tenant)",
        "(jsonb_populate_record(NULL::liar, jsonb_build_object('x', v))).x",
        "current_setting('app.n', true)::integer, code = lie(v)",
    ],
)
def test_code_of_users_gives_no_two_values(pair: Pair, value: str) -> None:
    """What is checked is what is stored, also of functions that say something else the second time."""
    pair.ours.execute(
        "DROP POLICY IF EXISTS p ON account; DROP POLICY IF EXISTS low ON account;"
        "CREATE POLICY p ON account USING (v < 60)"
    )
    before = pair.ours.execute(ALL).fetchall()
    forbidden = "SELECT count(*) FROM account WHERE v >= 60"  # nobody sees those, or makes one
    with pair.ours.transaction(force_rollback=True):
        pair.ours.execute(LIE)
        pair.ours.execute(
            "CREATE VIEW lied AS SELECT id AS i, lie(v) AS x FROM account; GRANT ALL ON lied TO PUBLIC"
        )
        count = pair.ours.execute(forbidden).fetchone()
        pair.ours.execute(f"SET LOCAL ROLE {WRITER}")
        joined = " AND i = id" if " q" in value else ""
        outcome = run(pair.ours, f"UPDATE account SET v = {value} WHERE id = 3{joined}")
        if outcome.sqlstate is not None:
            assert outcome.sqlstate in ("42501", "22P02"), outcome  # the policy; set_config() of ''
        else:
            pair.ours.execute("RESET ROLE")
            assert pair.ours.execute(forbidden).fetchone() == count
    assert pair.ours.execute(ALL).fetchall() == before
