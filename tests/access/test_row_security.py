"""Policies hold on the cluster as on one PostgreSQL server: in every plan, and for every write.

Policies act on the coordinator: it adds their clauses to the statement before it plans.  The workers
apply them to the rows that they have, without knowing that they are policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.assert_same import run
from tests.cluster import Cluster
from tests.pair import Pair, open_pair
from tests.twin import Twin

SCHEMA = "test_row_security"
READER = "strata_reader"  # no policy names him
OTHER = "strata_other"  # may read all, under the policies for everybody
ANN, BOB = "strata_ann", "strata_bob"  # tenants: policies tell their rows apart
ROLES = (READER, OTHER, ANN, BOB)

SETUP = """
CREATE TABLE note (id integer, owner text, v integer, shared boolean DEFAULT false, PRIMARY KEY (id));
CREATE TABLE line (id integer, n integer, owner text, v integer, PRIMARY KEY (id, n));
"""

CONTENT = f"""
INSERT INTO note SELECT g, CASE g % 3 WHEN 0 THEN '{ANN}' WHEN 1 THEN '{BOB}' ELSE 'nobody' END, g, g % 5 = 0
    FROM generate_series(1, 60) AS g;
INSERT INTO line SELECT g % 60 + 1, g, CASE g % 2 WHEN 0 THEN '{ANN}' ELSE '{BOB}' END, g
    FROM generate_series(1, 240) AS g;
GRANT USAGE ON SCHEMA {SCHEMA} TO {", ".join(ROLES)};
GRANT SELECT ON note, line TO {OTHER};
ALTER TABLE note ENABLE ROW LEVEL SECURITY;
ALTER TABLE line ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_notes ON note USING (owner = current_user) WITH CHECK (owner = current_user);
CREATE POLICY shared_notes ON note FOR SELECT USING (shared);
CREATE POLICY own_lines ON line TO {ANN}, {BOB} USING (owner = current_user);
CREATE POLICY small_lines ON line AS RESTRICTIVE TO {BOB} USING (v <= 200);
GRANT SELECT, INSERT, UPDATE, DELETE ON note, line TO {ANN}, {BOB}, {READER};
"""


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    for role in ROLES:
        cluster.create_role(role)
    with open_pair(cluster, SCHEMA) as made:
        made.execute(SETUP)
        made.distribute("note", "id")
        made.distribute("line", "id", colocate_with="note")
        made.execute(CONTENT)
        yield made
        made.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
    for node in cluster.nodes:
        node.execute(f"DROP OWNED BY {', '.join(ROLES)}")


POLICY_QUERIES = [
    "SELECT * FROM note",
    "SELECT * FROM note WHERE id = 3",
    "SELECT * FROM note WHERE id = 4",
    "SELECT * FROM note WHERE id IN (3, 4, 5)",
    "SELECT count(*), sum(v) FROM note",
    "SELECT owner, count(*), max(v) FROM note GROUP BY owner",
    "SELECT id, sum(v) FROM note GROUP BY id HAVING sum(v) > 20",
    "SELECT DISTINCT owner FROM note",
    "SELECT id FROM note ORDER BY v DESC LIMIT 5",
    "SELECT id, rank() OVER (PARTITION BY owner ORDER BY v) FROM note",
    "SELECT n.id, l.n FROM note AS n JOIN line AS l USING (id)",
    "SELECT n.owner, count(*), sum(l.v) FROM note AS n JOIN line AS l USING (id) GROUP BY n.owner",
    "SELECT n.id, l.n FROM note AS n LEFT JOIN line AS l ON l.id = n.id AND l.v < 100",
    "SELECT count(*) FROM note AS n FULL JOIN line AS l ON l.id = n.id",
    "SELECT a.id, b.id FROM note AS a JOIN note AS b ON b.v = a.v + 1",
    "SELECT id FROM note AS n WHERE EXISTS (SELECT FROM line AS l WHERE l.id = n.id AND l.v > 30)",
    "SELECT id FROM note WHERE id NOT IN (SELECT id FROM line)",
    "SELECT id, (SELECT count(*) FROM line AS l WHERE l.id = n.id) FROM note AS n",
    "SELECT * FROM (SELECT id, count(*) AS c FROM line GROUP BY id) AS q WHERE c > 1",
    "SELECT id FROM note UNION SELECT id FROM line",
    "WITH n AS MATERIALIZED (SELECT * FROM note) SELECT count(*) FROM n",
    "SELECT count(*) FROM note TABLESAMPLE BERNOULLI (100)",
    "SELECT * FROM note WHERE v = (SELECT max(v) FROM note)",
    "COPY (SELECT id, owner FROM note ORDER BY id) TO STDOUT",
]


def run_copy(connection: psycopg.Connection, query: str) -> bytes:
    with connection.cursor().copy(query) as copy:
        return b"".join(bytes(chunk) for chunk in copy)


@pytest.mark.sample(3)
@pytest.mark.parametrize("query", POLICY_QUERIES)
@pytest.mark.parametrize("role", [ANN, BOB, READER, OTHER])
def test_policies_hold_for_every_query(
    as_role: Callable[[str], Twin], role: str, query: str
) -> None:
    twin = as_role(role)
    if query.startswith("COPY"):
        assert run_copy(twin.ours, query) == run_copy(twin.theirs, query)
    else:
        twin.same(query)


POLICY_WRITES = [
    "UPDATE note SET v = -1",
    "UPDATE note SET v = -1 WHERE id = 3 RETURNING *",
    "UPDATE note SET v = -1 WHERE id = 5 RETURNING *",  # shared: visible, yet nobody else's
    "UPDATE note SET v = v + 1 WHERE shared RETURNING id, v",
    "UPDATE note SET owner = 'nobody' WHERE id = 3",
    f"UPDATE note SET owner = '{ANN}'",
    "UPDATE note SET v = l.v FROM line AS l WHERE l.id = note.id AND l.n < 30 RETURNING note.id",
    "UPDATE note SET v = (SELECT count(*) FROM line AS l WHERE l.id = note.id)",
    "UPDATE note SET v = (SELECT v FROM line AS l WHERE l.id = note.id ORDER BY n LIMIT 1) RETURNING id, v",
    "DELETE FROM note WHERE NOT EXISTS (SELECT FROM line AS l WHERE l.id = note.id AND l.v < 100)",
    "DELETE FROM note AS d USING note AS n LEFT JOIN line AS l ON l.id = n.id AND l.n < 50 WHERE n.id = d.id AND l.n IS NULL",
    "UPDATE line SET v = 0 RETURNING id, n",
    "UPDATE line SET v = 500 WHERE n = 1",
    "UPDATE line SET v = 500",
    "UPDATE line SET v = v + 2 WHERE n < 100",
    "UPDATE line SET v = v / (v - 31)",
    "UPDATE line SET owner = owner, v = NULL",
    "UPDATE note SET id = 3, v = 1 WHERE id = 3",
    "UPDATE note SET id = id + 500 RETURNING id, owner",
    f"UPDATE note SET id = id + 500, owner = '{ANN}' WHERE id < 12",
    "UPDATE line SET id = n, v = v + 1",
    "UPDATE note SET id = 4 WHERE id = 3",
    "DELETE FROM note",
    "DELETE FROM note WHERE id IN (3, 4, 5) RETURNING id, owner",
    "DELETE FROM line WHERE id IN (SELECT id FROM note WHERE v > 30)",
    "DELETE FROM line USING note WHERE note.id = line.id",
    f"INSERT INTO note VALUES (900, '{ANN}', 1)",
    f"INSERT INTO note VALUES (901, '{BOB}', 1) RETURNING *",
    "INSERT INTO note SELECT id + 1000, owner, v FROM note",
    "INSERT INTO note SELECT id + 1000, current_user, v FROM line WHERE n < 60",
    f"INSERT INTO line VALUES (1, 1000, '{BOB}', 150), (2, 1000, '{BOB}', 250)",
    f"INSERT INTO note VALUES (3, '{ANN}', 1) ON CONFLICT (id) DO NOTHING",
    f"INSERT INTO note VALUES (3, '{ANN}', 1) ON CONFLICT (id) DO UPDATE SET v = 77 RETURNING *",
    f"INSERT INTO note VALUES (4, '{ANN}', 1) ON CONFLICT (id) DO UPDATE SET v = 77",
    "MERGE INTO note AS n USING line AS l ON l.id = n.id AND l.n < 60 WHEN MATCHED THEN UPDATE SET v = -5",
    "MERGE INTO note AS n USING line AS l ON l.id = n.id AND l.n < 60 WHEN MATCHED THEN DELETE",
    "SELECT id FROM note WHERE id < 10 FOR UPDATE",
    "SELECT id FROM note ORDER BY id FOR SHARE",
    "WITH d AS (DELETE FROM note WHERE v < 30 RETURNING id) SELECT count(*) FROM d",
    "TRUNCATE note",
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("statement", POLICY_WRITES)
@pytest.mark.parametrize("role", [ANN, BOB, READER])
def test_policies_hold_for_every_write(
    as_role: Callable[[str], Twin], pair: Pair, role: str, statement: str
) -> None:
    """A write does what it does on one server, or is refused as not supported; never more."""
    twin = as_role(role)
    twin.execute("BEGIN")
    try:
        ours, theirs = run(twin.ours, statement), run(twin.theirs, statement)
        if ours.sqlstate == "0A000":
            assert "ON CONFLICT" in statement or "MERGE" in statement, ours
            return
        assert (ours.sqlstate, ours.tag) == (theirs.sqlstate, theirs.tag), f"{ours}\n{theirs}"
        assert sorted(ours.rows, key=str) == sorted(theirs.rows, key=str)
        if ours.sqlstate is None:
            # and the tables hold the same rows now: a superuser sees all of them
            twin.execute("COMMIT")
            pair.same("SELECT * FROM note ORDER BY id")
            pair.same("SELECT * FROM line ORDER BY id, n")
    finally:
        twin.execute("ROLLBACK")
        restore_notes(pair)


def test_an_upsert_neither_changes_nor_brings_in_rows_of_others(
    pair: Pair, as_role: Callable[[str], Twin]
) -> None:
    """Key 4 is a row of Bob's: Ann can neither change it nor write rows in his name."""
    ann = as_role(ANN)
    for statement in (
        f"INSERT INTO note VALUES (4, '{ANN}', 1) ON CONFLICT (id) DO UPDATE SET v = 77",
        f"INSERT INTO note VALUES (950, '{BOB}', 1) ON CONFLICT (id) DO NOTHING",
        f"INSERT INTO note VALUES (951, '{BOB}', 1) ON CONFLICT (id) DO UPDATE SET v = 77",
    ):
        ann.ours.execute("BEGIN")
        outcome = run(ann.ours, statement)
        ann.ours.execute("ROLLBACK")
        assert outcome.sqlstate in ("42501", "0A000"), f"{statement}: {outcome}"


def test_a_write_that_policies_make_impossible_says_so(as_role: Callable[[str], Twin]) -> None:
    ann = as_role(ANN)
    statement = f"INSERT INTO note VALUES (3, '{ANN}', 1) ON CONFLICT (id) DO UPDATE SET v = 77"
    outcome = run(ann.ours, f"BEGIN; {statement}; ROLLBACK")
    ann.ours.execute("ROLLBACK")
    assert outcome.sqlstate == "0A000", outcome
    assert "Use MERGE" in outcome.message


def restore_notes(pair: Pair) -> None:
    statements = [
        line
        for line in CONTENT.split(";")
        if "INSERT INTO note" in line or "INSERT INTO line" in line
    ]
    pair.execute(f"TRUNCATE note, line; {';'.join(statements)}")


def test_owners_pass_policies_unless_these_are_forced(
    pair: Pair, as_role: Callable[[str], Twin]
) -> None:
    pair.execute(f"ALTER TABLE note OWNER TO {ANN}")
    ann = as_role(ANN)
    try:
        assert ann.same("SELECT count(*) FROM note") == [("60",)]
        ann.undone("UPDATE note SET v = 0 WHERE id = 4 RETURNING id", "SELECT sum(v) FROM note")
        pair.execute("ALTER TABLE note FORCE ROW LEVEL SECURITY")
        assert ann.same("SELECT count(*) FROM note") == [("28",)]
        ann.same("SET row_security = off")
        ann.same("SELECT count(*) FROM note")
        assert run(ann.ours, "SELECT count(*) FROM note").sqlstate == "42501"
    finally:
        # a change of the owner takes his own privileges with it
        pair.execute(
            "ALTER TABLE note NO FORCE ROW LEVEL SECURITY; ALTER TABLE note OWNER TO postgres;"
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON note TO {ANN}"
        )


def test_a_changed_policy_holds_for_prepared_statements(
    pair: Pair, as_role: Callable[[str], Twin]
) -> None:
    bob = as_role(BOB)
    bob.execute(
        "SET plan_cache_mode = force_generic_plan;"
        "PREPARE mine AS SELECT count(*) FROM note; PREPARE one (integer) AS SELECT owner FROM note WHERE id = $1"
    )
    for change in (
        "SELECT 1",
        "ALTER POLICY shared_notes ON note USING (false)",
        "CREATE POLICY none ON note AS RESTRICTIVE USING (id > 30)",
        "DROP POLICY none ON note; ALTER POLICY shared_notes ON note USING (shared)",
        "ALTER TABLE note DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE note ENABLE ROW LEVEL SECURITY",
    ):
        pair.execute(change)
        bob.same("EXECUTE mine")
        for key in (1, 3, 5, 40):
            bob.same(f"EXECUTE one ({key})")


def test_a_plan_is_not_reused_for_another_role(pair: Pair) -> None:
    pair.execute("PREPARE mine AS SELECT owner, count(*) FROM note GROUP BY owner")
    for role in (ANN, BOB, ANN, OTHER):
        pair.execute(f"SET ROLE {role}")
        try:
            pair.same("EXECUTE mine")
        finally:
            pair.execute("RESET ROLE")
        pair.same("EXECUTE mine")
    pair.execute("DEALLOCATE mine")


def test_a_cheap_filter_cannot_look_at_rows_that_a_policy_hides(
    as_role: Callable[[str], Twin],
) -> None:
    ann = as_role(ANN)
    for query in (
        "SELECT id FROM note WHERE 10 / (id - 4) IS NOT NULL",  # id 4 is hidden
        "SELECT count(*) FROM note WHERE 1 / (v - 7) < 5 AND NOT shared",
        "SELECT n.id FROM note AS n JOIN line AS l USING (id) WHERE 1 / (n.id - 4) < 2",
    ):
        rows = ann.same(query)
        assert rows
