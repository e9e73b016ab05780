"""A row's physical identity stays on its server: whatever a statement joins, it changes its rows.

The copies of a reference table hold the same rows at other places: the coordinator's has holes of
rows that were deleted before it was distributed.  What a join on a worker knows of such a row's
place must never reach the coordinator's own copy.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

STATE = ("SELECT * FROM r", "SELECT * FROM d", "SELECT * FROM l")


@pytest.fixture(scope="module", params=["columnar", "heap"])
def data(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with open_pair(cluster, f"test_row_identity_{request.param}") as made:
        made.execute(
            "CREATE TABLE r (id integer PRIMARY KEY, v integer, t text);"
            "CREATE TABLE s (id integer PRIMARY KEY, w integer);"
            "CREATE TABLE d (id integer PRIMARY KEY, n integer, r_id integer);"
            "CREATE TABLE l (id integer PRIMARY KEY, v integer);"
            "INSERT INTO r SELECT g, g, 'r' || g FROM generate_series(1, 30) AS g;"
            "INSERT INTO s SELECT g, g FROM generate_series(1, 30) AS g;"
            "DELETE FROM r WHERE id IN (1, 2, 3, 11);"
            "DELETE FROM s WHERE id < 6"
        )
        made.reference("r")
        made.reference("s")
        made.ours.execute(
            "SELECT create_distributed_table('d', 'id', shard_count => 8, storage => %s,"
            " colocate_with => 'none')",
            (request.param,),
        )
        made.execute(
            "INSERT INTO d SELECT g, g % 7, g % 30 + 1 FROM generate_series(1, 60) AS g;"
            "INSERT INTO l SELECT g, g FROM generate_series(1, 30) AS g;"
            "ANALYZE r, s, d, l"
        )
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    with data.transaction():
        yield data


CHANGES = {
    "update from": "UPDATE r SET v = r.v + 100 + d.n FROM d WHERE d.id = r.id AND d.n < 4",
    "update from, returning": "UPDATE r SET t = t || d.n FROM d WHERE d.id = r.id AND d.id % 2 = 0"
    " RETURNING r.*, d.n",
    "update from a join": "UPDATE r SET v = s.w + d.n FROM d JOIN s ON s.id = d.r_id"
    " WHERE d.id = r.id",
    "update from an outer join": "UPDATE r SET v = coalesce(s.w, -1) FROM d LEFT JOIN s"
    " ON s.id = d.r_id WHERE d.id = r.id",
    "update by exists": "UPDATE r SET v = 0 WHERE EXISTS (SELECT FROM d WHERE d.id = r.id"
    " AND d.n = 3)",
    "update by in": "UPDATE r SET v = 0 WHERE id IN (SELECT d.r_id FROM d JOIN s ON s.id = d.id"
    " WHERE d.n < 5)",
    "update by a subquery": "UPDATE r SET v = (SELECT sum(n) FROM d WHERE d.r_id = r.id)",
    "update from a grouped subquery": "UPDATE r SET v = q.c FROM (SELECT r_id, count(*) AS c FROM d"
    " GROUP BY r_id) AS q WHERE q.r_id = r.id",
    "update from itself": "UPDATE r SET v = o.v FROM r AS o JOIN d ON d.id = o.id"
    " WHERE o.id = r.id + 1",
    "delete using": "DELETE FROM r USING d WHERE d.id = r.id AND d.n % 2 = 0",
    "delete using, returning": "DELETE FROM r USING d JOIN s ON s.id = d.id WHERE d.id = r.id"
    " RETURNING r.id, r.t, d.id",
    "delete by not exists": "DELETE FROM r WHERE NOT EXISTS (SELECT FROM d WHERE d.id = r.id"
    " AND d.n < 4)",
    "delete in a WITH": "WITH x AS (DELETE FROM r USING d WHERE d.id = r.id AND d.n = 2"
    " RETURNING r.id) SELECT count(*) FROM x",
    "merge": "MERGE INTO r USING d ON d.id = r.id WHEN MATCHED AND d.id % 2 = 0 THEN DELETE"
    " WHEN MATCHED THEN UPDATE SET v = d.n WHEN NOT MATCHED THEN INSERT VALUES (d.id, d.n, 'new')",
    "merge from a join": "MERGE INTO r USING (SELECT d.id, s.w FROM d JOIN s ON s.id = d.id) AS q"
    " ON q.id = r.id WHEN MATCHED THEN UPDATE SET v = q.w",
    "local from both": "UPDATE l SET v = r.v + d.n FROM r JOIN d ON d.r_id = r.id"
    " WHERE d.id = l.id",
    "local by in of both": "DELETE FROM l WHERE id IN (SELECT d.id FROM r JOIN d ON d.r_id = r.id)",
    "local by exists of both": "UPDATE l SET v = 0 WHERE EXISTS (SELECT FROM d WHERE d.id = l.id AND"
    " d.r_id IN (SELECT id FROM r WHERE v > 9))",
    "distributed from it": "UPDATE d SET n = r.v FROM r WHERE r.id = d.id",
    "by ctid of a join": "DELETE FROM r WHERE ctid IN (SELECT r.ctid FROM r JOIN d ON d.id = r.id"
    " WHERE d.n < 3)",
    "by ctid of a semi join": "DELETE FROM r WHERE ctid = ANY (ARRAY(SELECT r.ctid FROM r WHERE"
    " EXISTS (SELECT FROM d WHERE d.id = r.id AND d.n < 3)))",
    "by ctid of a lateral": "UPDATE r SET v = -1 WHERE ctid IN (SELECT q.ctid FROM d, LATERAL"
    " (SELECT r.ctid FROM r WHERE r.id = d.id) AS q)",
}


@pytest.mark.parametrize("statement", CHANGES.values(), ids=list(CHANGES))
def test_a_join_with_workers_changes_the_rows_it_names(pair: Pair, statement: str) -> None:
    pair.same(statement)
    pair.all_same(STATE)
    assert_equal_copies(pair)


def test_a_prepared_join_does_so_with_a_generic_plan(data: Pair) -> None:
    with data.transaction():
        data.execute(
            "SET LOCAL plan_cache_mode = force_generic_plan;"
            "PREPARE change(integer) AS UPDATE r SET v = r.v + d.n FROM d"
            " WHERE d.id = r.id AND d.id > $1;"
            "PREPARE remove(integer) AS DELETE FROM r USING d WHERE d.id = r.id AND d.n = $1"
        )
        for number in range(7):
            data.same(f"EXECUTE change({number})")
            data.same(f"EXECUTE remove({number})")
            data.all_same(STATE)
        assert_equal_copies(data)
        data.execute("DEALLOCATE ALL")


LOCKS = {
    "both": "SELECT r.id, d.id FROM r JOIN d ON d.id = r.id WHERE d.n < 4 FOR UPDATE",
    "the reference table": "SELECT r.id, d.n FROM r JOIN d ON d.id = r.id FOR UPDATE OF r",
    "the distributed table": "SELECT r, d.n FROM r JOIN d ON d.id = r.id FOR NO KEY UPDATE OF d",
    "a local table": "SELECT l.id, r.v FROM l JOIN d ON d.id = l.id JOIN r ON r.id = d.r_id"
    " WHERE EXISTS (SELECT FROM s WHERE s.id = d.n + 5) FOR SHARE OF l",
    "in order": "SELECT l.id, r.v FROM l JOIN d ON d.id = l.id JOIN r ON r.id = d.r_id"
    " ORDER BY r.v, l.id LIMIT 5 FOR UPDATE OF l",
}


@pytest.mark.parametrize("query", LOCKS.values(), ids=list(LOCKS))
def test_locks_do_not_need_a_worker_s_identity(pair: Pair, query: str) -> None:
    pair.same(query)


def assert_equal_copies(pair: Pair) -> None:
    """All copies alike, as the open transaction sees them."""
    joined = pair.rows("SELECT r.* FROM r JOIN d ON d.id = r.id ORDER BY 1")
    own = pair.rows("SELECT r.* FROM r WHERE r.id IN (SELECT id FROM d OFFSET 0) ORDER BY 1")
    assert joined == own


# ---- ctid of distributed tables ------------------------------------------------------------------

BY_CTID = (
    "SELECT ctid, * FROM d",
    "SELECT id FROM d ORDER BY ctid",
    "SELECT count(*) FROM d WHERE ctid = '(0,1)'",
    "SELECT max(ctid::text) FROM (SELECT ctid FROM d) AS q",
    "SELECT 1 FROM l WHERE EXISTS (SELECT FROM d WHERE d.id = l.id AND d.ctid > '(0,1)')",
    "SELECT (SELECT d.ctid) FROM d",
    "SELECT q.c FROM d, LATERAL (SELECT d.ctid AS c) AS q",
    "SELECT * FROM shown",
    "SELECT * FROM read_ctid()",
    "SELECT ctid, id FROM d WHERE id = 3 FOR UPDATE",
    "UPDATE d SET n = 0 WHERE ctid = (SELECT ctid FROM d WHERE id = 5)",
    "UPDATE d SET n = 0 WHERE ctid = '(0,1)' AND id = 5",
    "UPDATE d SET n = 0 WHERE (tableoid, ctid) = ('d'::regclass, '(0,1)'::tid)",
    "UPDATE d SET n = 0 WHERE id = 5 RETURNING ctid",
    "UPDATE d SET n = 0 FROM r WHERE r.id = d.id AND d.ctid = ANY ('{\"(0,1)\"}')",
    "DELETE FROM d WHERE ctid = ANY (ARRAY(SELECT ctid FROM d WHERE id < 5))",
    "DELETE FROM d USING d AS e WHERE d.ctid < e.ctid AND d.n = e.n",
    "DELETE FROM l WHERE id IN (SELECT id FROM d WHERE ctid = '(0,1)')",
    "MERGE INTO d USING r ON r.id = d.id AND d.ctid = '(0,1)' WHEN MATCHED THEN DELETE",
    "INSERT INTO d VALUES (900), (901) RETURNING ctid",
    "INSERT INTO d VALUES (5) ON CONFLICT (id) DO UPDATE SET n = 0 WHERE d.ctid = '(0,1)'",
    "INSERT INTO d VALUES (5) ON CONFLICT (id) DO UPDATE SET n = 0 RETURNING ctid",
    "PREPARE by_ctid(tid) AS UPDATE d SET n = 0 WHERE ctid = $1; EXECUTE by_ctid('(0,1)')",
    "DECLARE by_ctid CURSOR FOR SELECT ctid FROM d",
)


@pytest.mark.parametrize("statement", BY_CTID)
def test_a_ctid_that_several_rows_have_is_neither_shown_nor_looked_for(
    pair: Pair, statement: str
) -> None:
    pair.ours.execute(
        "CREATE VIEW shown AS SELECT ctid FROM d; CREATE FUNCTION read_ctid() RETURNS SETOF tid"
        " LANGUAGE sql STABLE AS 'SELECT ctid FROM d'; SAVEPOINT one"
    )
    with pytest.raises(psycopg.errors.FeatureNotSupported) as caught:
        pair.ours.execute(statement)
    assert 'ctid of distributed table "d"' in caught.value.diag.message_primary
    assert caught.value.diag.message_detail
    assert "key" in caught.value.diag.message_hint
    pair.ours.execute("ROLLBACK TO one")
    pair.all_same(STATE)


def test_ctids_of_other_tables_work_beside_distributed_ones(pair: Pair) -> None:
    pair.all_same(
        (
            "UPDATE l SET v = 0 FROM d WHERE d.id = l.id AND l.ctid IN"
            " (SELECT l.ctid FROM l JOIN d ON d.id = l.id WHERE d.n < 3)",
            "SELECT l.ctid, d.id FROM l JOIN d ON d.id = l.id FOR UPDATE",
            "SELECT d.id FROM d WHERE id = 4 FOR UPDATE",
            "SELECT DISTINCT tableoid = 'd'::regclass FROM d",
            *STATE,
        )
    )


def test_postgres_fdw_changes_what_it_means_or_nothing(data: Pair) -> None:
    """From a server that is no part of the cluster, which looks for rows by ctid."""
    coordinator, plain = data.cluster.coordinator, data.cluster.plain
    with plain.connect() as remote:
        remote.execute(
            "CREATE EXTENSION postgres_fdw;"
            f"CREATE SERVER cluster FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host"
            f" '{coordinator.sockets}', port '{coordinator.port}', dbname 'strata');"
            "CREATE USER MAPPING FOR postgres SERVER cluster OPTIONS (user 'postgres',"
            " password_required 'false');"
            "CREATE SCHEMA far;"
            f"IMPORT FOREIGN SCHEMA {data.schema} LIMIT TO (d) FROM SERVER cluster INTO far"
        )
        try:
            before = data.rows("SELECT * FROM d ORDER BY id")
            assert remote.execute("SELECT * FROM far.d ORDER BY id").fetchall() == before
            for statement in (
                "UPDATE far.d SET n = random() WHERE id IN (SELECT generate_series(1, 10))",
                "DELETE FROM far.d WHERE id = ANY (ARRAY(SELECT 1)) AND random() < 2",
                "SELECT ctid FROM far.d",
            ):
                with pytest.raises(psycopg.errors.FeatureNotSupported, match="ctid"):
                    remote.execute(statement)
            assert data.rows("SELECT * FROM d ORDER BY id") == before
            remote.execute("UPDATE far.d SET n = n + 1 WHERE id < 10")
            remote.execute("DELETE FROM far.d WHERE id = 60")
            remote.execute("INSERT INTO far.d VALUES (60, 4, 1)")
            data.theirs.execute("UPDATE d SET n = n + 1 WHERE id < 10")
            data.all_same(STATE)
        finally:
            remote.execute(
                "DROP SERVER cluster CASCADE; DROP EXTENSION postgres_fdw;DROP SCHEMA far"
            )
