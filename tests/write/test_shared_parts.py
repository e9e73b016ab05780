"""Parts of a statement with modifying WITH queries that share tables: all see the rows of before it."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

STATE = (
    "SELECT * FROM t",
    "SELECT * FROM u",
    "SELECT * FROM n",
    "SELECT * FROM r",
    "SELECT * FROM x",
    "SELECT * FROM l",
)


@pytest.fixture(scope="module", params=["heap", "columnar"])
def data(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """t, u and n are colocated, x is not, r is a reference table, l is local; n and x have no unique index."""
    with open_pair(cluster, f"test_shared_parts_{request.param}") as made:
        made.execute(
            "CREATE TABLE t (k integer PRIMARY KEY, v integer, s text);"
            "CREATE TABLE u (k integer PRIMARY KEY, v integer, s text);"
            "CREATE TABLE x (s text, k integer, v integer);"
            "CREATE TABLE n (k integer, v integer, s text);"
            "CREATE TABLE r (k integer PRIMARY KEY, v integer);"
            "CREATE TABLE l (k integer PRIMARY KEY, v integer)"
        )
        made.ours.execute(
            f"""SELECT create_distributed_table('t', 'k', shard_count => 8, storage => '{request.param}');
            SELECT create_distributed_table('u', 'k', colocate_with => 't', storage => '{request.param}');
            SELECT create_reference_table('r', storage => '{request.param}');
            SELECT create_distributed_table('n', 'k', colocate_with => 't', storage => '{request.param}');
            SELECT create_distributed_table('x', 's', colocate_with => 'none', storage => '{request.param}')"""
        )
        made.execute(
            "INSERT INTO t SELECT g, g % 10, 's' || g % 3 FROM generate_series(1, 60) AS g;"
            "INSERT INTO n SELECT * FROM t;"
            "INSERT INTO r SELECT g, g % 6 FROM generate_series(1, 30) AS g;"
            "INSERT INTO u SELECT g, g % 7, 's' || g % 4 FROM generate_series(20, 80) AS g;"
            "INSERT INTO x SELECT 's' || g % 5, g, g % 9 FROM generate_series(1, 40) AS g;"
            "INSERT INTO l SELECT g, g % 8 FROM generate_series(1, 30) AS g"
        )
        yield made


@pytest.fixture(params=["READ COMMITTED", "REPEATABLE READ"])
def pair(data: Pair, request: pytest.FixtureRequest) -> Iterator[Pair]:
    data.execute(f"BEGIN ISOLATION LEVEL {request.param}")
    # what the transaction has changed before, the statement sees
    data.execute("UPDATE t SET v = v + 1 WHERE k % 5 = 0; DELETE FROM u WHERE k = 21")
    yield data
    data.execute("ROLLBACK")


@pytest.mark.parametrize(
    "statement",
    [
        # one part changes what another one reads
        "WITH c AS (UPDATE t SET v = 100 WHERE k < 30 RETURNING k) SELECT (SELECT count(*) FROM c),"
        " (SELECT sum(v) FROM t)",
        "WITH c AS (UPDATE t SET v = 100 RETURNING k, v) SELECT c.k, c.v, t.v FROM c JOIN t USING (k)",
        "WITH c AS (DELETE FROM t WHERE v = 3 RETURNING *) SELECT * FROM c UNION ALL SELECT * FROM t",
        "WITH c AS (INSERT INTO t SELECT k + 100, v, s FROM t RETURNING *) SELECT count(*), (SELECT count(*)"
        " FROM t), (SELECT max(k) FROM t) FROM c",
        "WITH c AS (DELETE FROM t) SELECT count(*) FROM t",
        "WITH c AS (UPDATE t SET v = 100) UPDATE u SET v = t.v FROM t WHERE t.k = u.k",
        "WITH c AS (UPDATE t SET v = 100) UPDATE u SET v = 0 WHERE EXISTS (SELECT FROM t WHERE t.k = u.k"
        " AND t.v = 100)",
        "WITH c AS (UPDATE t SET v = 100), d AS (UPDATE u SET v = (SELECT v FROM t WHERE t.k = u.k)"
        " RETURNING v) SELECT sum(v) FROM d",
        "WITH c AS (DELETE FROM u USING t WHERE t.k = u.k AND t.v = 100), d AS (UPDATE t SET v = 100) SELECT 1",
        "WITH c AS (UPDATE t SET v = 100) INSERT INTO u SELECT k + 100, v, s FROM t",
        "WITH c AS (UPDATE t SET v = 100 RETURNING k), d AS (UPDATE u SET v = 200 WHERE k IN (SELECT k FROM t"
        " WHERE v < 100) RETURNING k) SELECT (SELECT count(*) FROM c), (SELECT count(*) FROM d)",
        "WITH c AS (DELETE FROM x WHERE v > 3 RETURNING k) UPDATE t SET v = (SELECT count(*) FROM x"
        " WHERE x.v = t.v) WHERE k IN (SELECT k FROM c)",
        "WITH c AS (DELETE FROM x WHERE v > 3) INSERT INTO l SELECT 100 + k, v FROM x",
        "WITH c AS (DELETE FROM l WHERE v > 3) DELETE FROM t USING l WHERE t.k = l.k",
        "WITH c AS (MERGE INTO t USING l ON l.k = t.k WHEN MATCHED THEN DELETE) SELECT 1",
        "WITH c AS (INSERT INTO u VALUES (30, 0, 'c') ON CONFLICT (k) DO UPDATE SET v = 100 RETURNING *)"
        " SELECT * FROM c JOIN u USING (k)",
        "WITH c AS (UPDATE t SET v = 100 WHERE k < 5 RETURNING k) INSERT INTO u VALUES (30, 0, 'c') ON CONFLICT"
        " (k) DO UPDATE SET v = (SELECT count(*) FROM t WHERE v = 100)",
        # of reference tables
        "WITH c AS (UPDATE r SET v = 100 RETURNING k) SELECT count(*), sum(r.v) FROM t JOIN r ON r.k = t.v, c",
        "WITH c AS (UPDATE r SET v = 100) UPDATE t SET v = r.v FROM r WHERE r.k = t.k",
        "WITH c AS (DELETE FROM r WHERE v = 3), d AS (UPDATE t SET v = 100 RETURNING k) SELECT count(*), sum(t.v),"
        " sum(r.v) FROM t JOIN r ON r.k = t.k WHERE t.k IN (SELECT k FROM d)",
        "WITH c AS (DELETE FROM t WHERE v = 3 RETURNING *) INSERT INTO r SELECT k + 100, (SELECT count(*) FROM t"
        " JOIN r ON r.k = t.v) FROM c",
        "WITH c AS (INSERT INTO r SELECT k + 100, v FROM t RETURNING *) DELETE FROM t USING r WHERE r.k = t.k + 100",
        "WITH c AS (INSERT INTO r SELECT k + 100, v FROM r RETURNING *) DELETE FROM n USING r WHERE r.k = n.k",
        # one part changes what another one fills
        "WITH c AS (DELETE FROM n WHERE v = 3 RETURNING *) INSERT INTO n SELECT k + 100, v, s FROM c",
        "WITH c AS (DELETE FROM n WHERE k < 10 RETURNING *) INSERT INTO n SELECT k, v + 50, s || 'new' FROM c",
        "WITH c AS (DELETE FROM n WHERE v >= 3) INSERT INTO n VALUES (200, 3, 'new'), (201, 1, 'new')",
        "WITH c AS (UPDATE n SET v = -1 WHERE v >= 3) INSERT INTO n VALUES (200, 3, 'new'), (201, 1, 'new')",
        "WITH i AS (INSERT INTO n VALUES (200, 77, 'n') RETURNING v), d AS (DELETE FROM n WHERE v = 77"
        " RETURNING v) SELECT (SELECT count(*) FROM i), (SELECT count(*) FROM d)",
        "WITH i AS (INSERT INTO n VALUES (200, 1, 'n')) MERGE INTO n USING l ON l.k = n.v WHEN MATCHED THEN DELETE",
        "WITH i AS (INSERT INTO n VALUES (200, 1, 'n')) UPDATE n SET k = k + 1000 WHERE v = 1 RETURNING *",
        "WITH i AS (INSERT INTO t SELECT k + 100, v, s FROM t) INSERT INTO t SELECT k + 200, v, s FROM t",
        "WITH i AS (INSERT INTO x SELECT s, k, v FROM x), d AS (DELETE FROM x WHERE v = 2) UPDATE l SET v ="
        " (SELECT count(*) FROM x)",
        "WITH c AS (DELETE FROM n WHERE v = 3 RETURNING *), i AS (INSERT INTO u SELECT k + 100, v, s FROM c"
        " RETURNING *), j AS (INSERT INTO n SELECT k + 100, v, s FROM i) SELECT (SELECT count(*) FROM n),"
        " (SELECT count(*) FROM u)",
    ],
)  # fmt: skip
def test_every_part_sees_the_rows_of_before(pair: Pair, statement: str) -> None:
    pair.same(statement)
    pair.all_same(STATE)


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("WITH c AS (UPDATE t SET v = v + 1) UPDATE t SET v = v + 1", "Both change"),
        ("WITH c AS (UPDATE t SET v = 1) DELETE FROM t WHERE v = 1", "Both change"),
        (
            "WITH c AS (DELETE FROM t) INSERT INTO t VALUES (7) ON CONFLICT (k) DO UPDATE SET v = 1",
            "Both change",
        ),
        ("WITH c AS (INSERT INTO t VALUES (200) ON CONFLICT DO NOTHING) INSERT INTO t VALUES (200)", "Both change"),
        ("WITH c AS (DELETE FROM t WHERE k = 5) INSERT INTO t VALUES (5)", "One may need a key"),
        ("WITH c AS (DELETE FROM t WHERE v = 1) SELECT * FROM t FOR UPDATE", "One changes rows that the other locks"),
        (
            "WITH c AS (DELETE FROM t WHERE v = 1) SELECT * FROM (SELECT * FROM t FOR SHARE) AS s",
            "One changes rows that the other locks",
        ),
    ],
)  # fmt: skip
def test_parts_that_change_the_same_rows_are_refused(pair: Pair, statement: str, why: str) -> None:
    with pytest.raises(psycopg.errors.FeatureNotSupported) as caught:
        pair.ours.execute(statement)
    assert why in caught.value.diag.message_detail
    assert caught.value.diag.message_hint
