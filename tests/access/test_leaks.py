"""A function of the user's sees no row that a policy hides, wherever and in whatever order it runs.

Hidden values are all above 10 000.  The functions are cheap and say that they are immutable, so that
every planner wants to call them early, and workers may call them; what they see, they tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest

from tests.assert_same import run
from tests.cluster import Cluster
from tests.pair import Pair, open_pair

SCHEMA = "test_leaks"
ANN, KEEPER = "strata_ann", "strata_keeper"
HIDDEN = 10_000

SETUP = """
CREATE TABLE note (id integer PRIMARY KEY, owner text, v integer);
CREATE TABLE line (id integer, n integer, owner text, v integer, PRIMARY KEY (id, n));
CREATE TABLE doc (id integer PRIMARY KEY, v integer);
CREATE TABLE member (id integer, who text, PRIMARY KEY (id, who));
CREATE TABLE code (id integer PRIMARY KEY, who text, v integer);
CREATE TABLE local (id integer PRIMARY KEY, who text, v integer);
CREATE FUNCTION leak (integer) RETURNS boolean LANGUAGE plpgsql IMMUTABLE COST 0.0000001
    AS 'BEGIN RAISE NOTICE ''seen %'', $1; RETURN true; END';
CREATE FUNCTION leak (integer, integer) RETURNS boolean LANGUAGE plpgsql IMMUTABLE COST 0.0000001
    AS 'BEGIN RAISE NOTICE ''seen %'', $1; RAISE NOTICE ''seen %'', $2; RETURN true; END';
CREATE FUNCTION leaked (integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE COST 0.0000001
    AS 'BEGIN RAISE NOTICE ''seen %'', $1; RETURN $1; END';
CREATE OPERATOR ~~~ (FUNCTION = leak, LEFTARG = integer, RIGHTARG = integer, RESTRICT = eqsel, JOIN = eqjoinsel);
"""

CONTENT = f"""
INSERT INTO note SELECT g, CASE g % 2 WHEN 0 THEN '{ANN}' ELSE 'x' END, g + g % 2 * {HIDDEN} FROM generate_series(1, 20) AS g;
INSERT INTO line SELECT g % 20 + 1, g, CASE g % 2 WHEN 0 THEN '{ANN}' ELSE 'x' END, g + g % 2 * {HIDDEN} FROM generate_series(1, 60) AS g;
INSERT INTO doc SELECT g, g + g % 2 * {HIDDEN} FROM generate_series(1, 20) AS g;
INSERT INTO member SELECT g, '{ANN}' FROM generate_series(2, 20, 2) AS g;
INSERT INTO member SELECT g, 'x' FROM generate_series(1, 20) AS g;
INSERT INTO code SELECT g, CASE g % 2 WHEN 0 THEN '{ANN}' ELSE 'x' END, g + g % 2 * {HIDDEN} FROM generate_series(1, 20) AS g;
INSERT INTO local SELECT g, CASE g % 2 WHEN 0 THEN '{ANN}' ELSE 'x' END, g + g % 2 * {HIDDEN} FROM generate_series(1, 20) AS g;
CREATE POLICY own ON note USING (owner = current_user);
CREATE POLICY own ON line USING (owner = current_user);
CREATE POLICY own ON doc USING (EXISTS (SELECT FROM member AS m WHERE m.id = doc.id AND m.who = current_user));
CREATE POLICY own ON code USING (who = current_user);
CREATE POLICY own ON local USING (who = current_user);
ALTER TABLE note ENABLE ROW LEVEL SECURITY;
ALTER TABLE line ENABLE ROW LEVEL SECURITY;
ALTER TABLE doc ENABLE ROW LEVEL SECURITY;
ALTER TABLE code ENABLE ROW LEVEL SECURITY;
ALTER TABLE local ENABLE ROW LEVEL SECURITY;
CREATE VIEW barrier WITH (security_barrier) AS SELECT id, n, v FROM line WHERE v < {HIDDEN};
CREATE VIEW barrier_groups WITH (security_barrier) AS SELECT id, max(v) AS v FROM line WHERE v < {HIDDEN} GROUP BY id;
ALTER VIEW barrier OWNER TO {KEEPER};
ALTER VIEW barrier_groups OWNER TO {KEEPER};
CREATE POLICY all_lines ON line TO {KEEPER} USING (true);
GRANT USAGE ON SCHEMA {SCHEMA} TO {ANN}, {KEEPER};
GRANT ALL ON ALL TABLES IN SCHEMA {SCHEMA} TO {ANN}, {KEEPER};
"""


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    for role in (ANN, KEEPER):
        cluster.create_role(role)
    with open_pair(cluster, SCHEMA) as made:
        made.execute(SETUP)
        made.distribute("note", "id")
        for table in ("line", "doc", "member"):
            made.distribute(table, "id", colocate_with="note")
        made.reference("code")
        made.execute(CONTENT)
        yield made
        made.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
    for node in cluster.nodes:
        node.execute(f"DROP OWNED BY {ANN}, {KEEPER}")


@pytest.fixture(scope="module")
def sessions(pair: Pair) -> Iterator[tuple[psycopg.Connection, psycopg.Connection]]:
    with (
        pair.cluster.coordinator.connect(user=ANN) as ours,
        pair.cluster.plain.connect(user=ANN) as theirs,
    ):
        for connection in (ours, theirs):
            connection.execute(f"SET search_path = {SCHEMA}, public, strata")
        yield ours, theirs


def run_listening(connection: psycopg.Connection, query: str):
    """What the query does, and the values that the functions saw."""
    seen: list[int] = []

    def listen(notice: psycopg.errors.Diagnostic) -> None:
        match = re.match(r"seen (\d+)", notice.message_primary or "")
        if match:
            seen.append(int(match[1]))

    connection.add_notice_handler(listen)
    try:
        connection.execute("BEGIN")
        return run(connection, query), seen
    finally:
        connection.execute("ROLLBACK")
        connection.remove_notice_handler(listen)


READS = [
    # one table
    "SELECT * FROM note WHERE leak(v)",
    "SELECT * FROM note WHERE leak(v) AND id = 5",
    "SELECT * FROM note WHERE leaked(v) = 3",
    "SELECT * FROM note WHERE v ~~~ 1",
    "SELECT count(*) FROM note WHERE leak(v)",
    "SELECT count(*) FILTER (WHERE leak(v)) FROM note",
    "SELECT leaked(v), count(*) FROM note GROUP BY 1",
    "SELECT max(leaked(v)) FROM note",
    "SELECT id FROM note GROUP BY id HAVING leak(max(v))",
    "SELECT id FROM note ORDER BY leaked(v) LIMIT 3",
    "SELECT CASE WHEN leak(v) THEN 1 END FROM note",
    "SELECT * FROM doc WHERE leak(v)",
    "SELECT * FROM code WHERE leak(v)",
    "SELECT * FROM local WHERE leak(v)",
    "SELECT * FROM note TABLESAMPLE BERNOULLI (100) WHERE leak(v)",
    "SELECT id FROM note WHERE leak(v) FOR UPDATE",
    "SELECT id FROM doc WHERE leak(v) FOR UPDATE",
    "SELECT id FROM code WHERE leak(v) FOR UPDATE",
    # joins: the order of clauses is the workers'
    "SELECT n.id FROM note AS n JOIN line AS l ON n.id = l.id WHERE leak(n.v)",
    "SELECT n.id FROM note AS n JOIN line AS l ON n.id = l.id AND leak(n.v, l.v)",
    "SELECT n.id FROM note AS n JOIN line AS l ON n.id = l.id AND n.v ~~~ l.v",
    "SELECT n.id FROM note AS n LEFT JOIN line AS l ON n.id = l.id AND leak(n.v, l.v)",
    "SELECT n.id FROM note AS n LEFT JOIN line AS l ON n.id = l.id AND leak(l.v)",
    "SELECT n.id FROM note AS n LEFT JOIN line AS l ON n.id = l.id WHERE leak(l.v) IS NOT FALSE",
    "SELECT n.id FROM note AS n FULL JOIN line AS l ON n.id = l.id AND leaked(l.v) = n.v",
    "SELECT d.id FROM doc AS d JOIN line AS l ON d.id = l.id AND leak(d.v, l.v)",
    "SELECT d.id FROM doc AS d JOIN member AS m ON d.id = m.id AND leak(d.v)",
    "SELECT d.id FROM doc AS d JOIN member AS m ON d.id = m.id AND leak(d.v, m.id)",
    "SELECT d.id FROM doc AS d JOIN doc AS n ON d.id = n.id AND leak(d.v, n.v)",
    "SELECT m.id FROM member AS m LEFT JOIN doc AS d ON d.id = m.id AND leak(m.id, d.v)",
    "SELECT d.id, count(*) FROM doc AS d JOIN member AS m ON d.id = m.id AND leak(d.v, m.id) GROUP BY 1",
    "SELECT m.id FROM member AS m JOIN code AS c ON leak(m.id, c.v) AND c.id = m.id",
    "SELECT m.id FROM member AS m JOIN code AS c ON c.id = m.id WHERE m.id + c.v ~~~ 0",
    "SELECT m.id FROM member AS m LEFT JOIN code AS c ON leak(m.id, c.v) AND c.id = m.id",
    "SELECT m.id FROM member AS m JOIN code AS c ON leak(m.id, c.v)",
    "SELECT n.id FROM note AS n JOIN code AS c ON c.id = n.id AND leak(n.v, c.v)",
    "SELECT d.id FROM doc AS d, LATERAL (SELECT c.v FROM code AS c WHERE leak(d.v, c.v)) AS x",
    "SELECT d.id FROM doc AS d JOIN local AS l ON leak(d.v, l.v)",
    "SELECT count(*) FROM note AS n JOIN line AS l USING (id) JOIN doc AS d USING (id)"
    " WHERE leak(d.v, l.v) AND leak(n.v, d.v)",
    # sub-selects
    "SELECT n.id FROM note AS n WHERE EXISTS (SELECT FROM line AS l WHERE l.id = n.id AND leak(n.v, l.v))",
    "SELECT n.id FROM note AS n WHERE NOT EXISTS (SELECT FROM line AS l WHERE l.id = n.id AND leak(l.v))",
    "SELECT m.id FROM member AS m WHERE EXISTS (SELECT FROM doc AS d WHERE d.id = m.id AND leak(d.v, m.id))",
    "SELECT m.id FROM member AS m WHERE NOT EXISTS (SELECT FROM code AS c WHERE c.id = m.id AND leak(c.v, m.id))",
    "SELECT id FROM note WHERE id IN (SELECT id FROM line WHERE leak(v))",
    "SELECT n.id, (SELECT count(*) FROM line AS l WHERE l.id = n.id AND leak(l.v, n.v)) FROM note AS n",
    "SELECT m.id, (SELECT count(*) FROM doc AS d WHERE d.id = m.id AND leak(d.v, m.id)) FROM member AS m",
    "SELECT n.id FROM note AS n WHERE n.v > ALL (SELECT leaked(l.v) FROM line AS l WHERE l.id = n.id)",
    "SELECT * FROM (SELECT id, max(v) AS v FROM line GROUP BY id) AS x WHERE leak(v)",
    "SELECT * FROM (SELECT DISTINCT id, v FROM line) AS x WHERE leak(v)",
    "SELECT * FROM (SELECT id, v, row_number() OVER (PARTITION BY id ORDER BY v) FROM line) AS x WHERE leak(v)",
    "SELECT * FROM (SELECT id, v FROM note UNION ALL SELECT id, v FROM line) AS x WHERE leak(v)",
    "SELECT * FROM (SELECT id, v FROM note UNION SELECT id, v FROM line) AS x WHERE leak(v)",
    "SELECT x.id FROM (SELECT id, v FROM note UNION ALL SELECT id, v FROM line) AS x"
    " JOIN member AS m ON m.id = x.id AND leak(x.v, m.id)",
    "WITH x AS (SELECT * FROM note) SELECT * FROM x WHERE leak(v)",
    "WITH x AS MATERIALIZED (SELECT * FROM note) SELECT * FROM x WHERE leak(v)",
    # security barriers
    "SELECT * FROM barrier WHERE leak(v)",
    "SELECT * FROM barrier_groups WHERE leak(v)",
    "SELECT b.id FROM barrier AS b JOIN member AS m ON m.id = b.id AND leak(b.v, m.id)",
    "SELECT m.id FROM member AS m WHERE EXISTS (SELECT FROM barrier AS b WHERE b.id = m.id AND leak(b.v, m.id))",
    "SELECT b.id FROM barrier_groups AS b JOIN member AS m ON m.id = b.id AND leak(b.v, m.id)",
    # errors tell, too
    "SELECT id FROM note WHERE 1 / (v - 10005) IS NOT NULL",
    "SELECT n.id FROM note AS n JOIN line AS l USING (id) WHERE 1 / (l.v - 10005 + n.id * 0) IS NOT NULL",
    "SELECT d.id FROM doc AS d JOIN member AS m USING (id) WHERE 1 / (d.v - 10005 + m.id * 0) IS NOT NULL",
    "SELECT m.id FROM member AS m JOIN code AS c ON c.id = m.id AND 1 / (c.v - 10005 + m.id * 0) IS NOT NULL",
]  # fmt: skip

WRITES = [
    "UPDATE note SET v = 0 WHERE leak(v) RETURNING id",
    "UPDATE note SET v = 0 WHERE leak(v) AND id = 5",
    "UPDATE note SET v = leaked(v)",
    "DELETE FROM note WHERE leak(v) RETURNING id",
    "UPDATE note AS n SET v = l.v FROM line AS l WHERE l.id = n.id AND leak(n.v, l.v) RETURNING n.id",
    "DELETE FROM note AS n USING line AS l WHERE l.id = n.id AND leak(n.v, l.v) RETURNING n.id",
    "UPDATE doc SET v = 0 WHERE leak(v) RETURNING id",
    "UPDATE member SET who = who FROM doc AS d WHERE d.id = member.id AND leak(d.v, member.id)",
    "DELETE FROM member USING doc AS d WHERE d.id = member.id AND leak(d.v, member.id)",
    "DELETE FROM member USING code AS c WHERE c.id = member.id AND leak(c.v, member.id)",
    "UPDATE member AS m SET who = who WHERE EXISTS (SELECT FROM doc AS d WHERE d.id = m.id AND leak(d.v, m.id))",
    "MERGE INTO member AS m USING doc AS d ON d.id = m.id AND leak(d.v, m.id) WHEN MATCHED THEN DELETE",
    "MERGE INTO note AS n USING line AS l ON l.id = n.id AND l.n < 21 WHEN MATCHED AND leak(n.v, l.v) THEN DELETE",
    "UPDATE code SET v = 0 WHERE leak(v) RETURNING id",
    "DELETE FROM code WHERE leak(v) RETURNING id",
]  # fmt: skip


@pytest.mark.parametrize("query", READS)
def test_a_function_sees_no_row_that_a_policy_hides(
    sessions: tuple[psycopg.Connection, psycopg.Connection], query: str
) -> None:
    ours, theirs = (run_listening(connection, query) for connection in sessions)
    assert [value for value in theirs[1] if value > HIDDEN] == [], "plain"
    assert [value for value in ours[1] if value > HIDDEN] == []
    assert ours[0].sqlstate == theirs[0].sqlstate, ours[0]
    assert sorted(ours[0].rows, key=str) == sorted(theirs[0].rows, key=str)


@pytest.mark.parametrize("statement", WRITES)
def test_a_write_shows_no_row_that_a_policy_hides(
    sessions: tuple[psycopg.Connection, psycopg.Connection], statement: str
) -> None:
    """It does what it does on one server, or is refused as not supported."""
    ours, theirs = (run_listening(connection, statement) for connection in sessions)
    assert [value for value in ours[1] if value > HIDDEN] == []
    if ours[0].sqlstate != "0A000":
        assert (ours[0].sqlstate, ours[0].tag) == (theirs[0].sqlstate, theirs[0].tag), ours[0]


def test_a_policy_does_not_stop_joins_that_cannot_leak(pair: Pair) -> None:
    query = "SELECT n.id, l.v FROM note AS n JOIN line AS l ON n.id = l.id AND n.v < l.v"
    with pair.cluster.coordinator.connect(user=ANN) as connection:
        connection.execute(f"SET search_path = {SCHEMA}, strata")
        plan = "\n".join(
            line for (line,) in connection.execute(f"EXPLAIN (VERBOSE, COSTS OFF) {query}")
        )
    assert plan.count("Remote SQL") == 1, plan
