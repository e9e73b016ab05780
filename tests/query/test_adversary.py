"""Statements whose pushed form once said something else than the user's statement.

Each test names the part of the meaning that a plan can lose on its way to the workers' SQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair
from tests.waiting import wait_until

SCHEMA = "test_adversary"
LINGUISTIC = 'COLLATE "en-x-icu"'  # sorts aB before Ac, unlike the database's own collation


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, SCHEMA) as made:
        made.execute(
            """
            CREATE TABLE a (k integer PRIMARY KEY, gone integer, v integer, t text);
            ALTER TABLE a DROP COLUMN gone;
            CREATE TABLE b (k integer, x integer, v integer);
            CREATE TABLE ref (id integer PRIMARY KEY);
            CREATE TABLE local (id integer PRIMARY KEY, v integer);
            """
        )
        made.distribute("a", "k")
        made.distribute("b", "k", colocate_with="a")
        made.reference("ref")
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    data.execute(
        """
        TRUNCATE a; TRUNCATE b; TRUNCATE ref; TRUNCATE local;
        INSERT INTO a SELECT g, g % 7, CASE WHEN g % 2 = 0 THEN 'aB' ELSE 'Ac' END || g
            FROM generate_series(1, 40) AS g;
        INSERT INTO b SELECT g % 25, g % 6, g FROM generate_series(1, 60) AS g;
        INSERT INTO ref SELECT g FROM generate_series(1, 8) AS g;
        INSERT INTO local SELECT g, g FROM generate_series(1, 40) AS g;
        """
    )
    yield data
    data.ours.execute("RESET plan_cache_mode")
    data.theirs.execute("RESET plan_cache_mode")
    data.reset()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM (SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) AS n FROM b) AS s"
        " WHERE n <= 1",
        "SELECT count(*) FROM (SELECT k, rank() OVER (PARTITION BY k ORDER BY v) AS n FROM b) AS s"
        " JOIN a USING (k) WHERE n < 2",
        "SELECT * FROM (SELECT k, sum(v) OVER (PARTITION BY k) AS s,"
        " count(*) OVER (PARTITION BY k ORDER BY v) AS n FROM b) AS q WHERE n <= 1 AND s > 20",
    ],
)
def test_the_run_condition_of_a_window_is_not_lost(pair: Pair, query: str) -> None:
    """Core takes such a clause out of WHERE and has WindowAgg apply it."""
    pair.same(query)


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT k FROM a WHERE t {LINGUISTIC} < 'ac1'",
        f"SELECT t FROM a ORDER BY t {LINGUISTIC}",
        f"SELECT t FROM a ORDER BY t {LINGUISTIC} LIMIT 5",
        f"SELECT max(t {LINGUISTIC}), min(t {LINGUISTIC}) FROM a",
        f"SELECT k, max(t {LINGUISTIC}) FROM a GROUP BY k",
        f"SELECT k FROM a WHERE t > (SELECT min(t {LINGUISTIC}) FROM a) {LINGUISTIC}",
        f"SELECT a.k FROM a LEFT JOIN a AS o ON a.k = o.k AND o.t {LINGUISTIC} < 'ac2'"
        " WHERE o.k IS NULL",
    ],
)
def test_collate_reaches_the_workers(pair: Pair, query: str) -> None:
    pair.same(query)


def test_collate_of_a_parameter_reaches_the_workers(pair: Pair) -> None:
    pair.execute("SET plan_cache_mode = force_generic_plan")
    pair.same(f"PREPARE below(text) AS SELECT k FROM a WHERE t < ($1 {LINGUISTIC})")
    pair.same("EXECUTE below('ac1')")
    pair.same("DEALLOCATE below")


def test_collate_reaches_the_workers_in_a_rebuilt_update(pair: Pair) -> None:
    pair.same(f"UPDATE a SET v = (SELECT count(*) FROM ref) WHERE t {LINGUISTIC} < 'ac2'")
    pair.same("SELECT * FROM a")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a.k, b.tableoid IS NULL FROM a LEFT JOIN b USING (k)",
        "SELECT count(b.tableoid) FROM a LEFT JOIN b USING (k)",
        "SELECT a.k FROM a LEFT JOIN b USING (k) WHERE b.tableoid IS NULL",
        "SELECT a.tableoid::regclass, b.tableoid::regclass FROM a FULL JOIN b USING (k)",
        "SELECT tableoid::regclass, count(*) FROM a GROUP BY tableoid",
    ],
)
def test_tableoid_is_null_where_an_outer_join_found_nothing(pair: Pair, query: str) -> None:
    pair.same(query)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE a SET v = 100 WHERE tableoid = 'a'::regclass",
        "UPDATE a SET v = 100 FROM b WHERE b.k = a.k AND b.tableoid = 'b'::regclass",
        "DELETE FROM a WHERE k = 7 AND tableoid = 'a'::regclass",
        "INSERT INTO b (k, v) SELECT k, count(*) FROM a WHERE tableoid = 'a'::regclass GROUP BY k",
    ],
)
def test_tableoid_in_a_shipped_statement_is_the_table_of_the_user(
    pair: Pair, statement: str
) -> None:
    """On a worker it would be a partition's, and no row would match."""
    pair.same(statement)
    pair.same("SELECT * FROM a")
    pair.same("SELECT * FROM b")


def test_a_full_join_is_not_routed_by_what_restricts_one_side(pair: Pair) -> None:
    pair.execute("SET plan_cache_mode = force_generic_plan")
    pair.same(
        "PREPARE full_join(integer[]) AS"
        " SELECT * FROM (SELECT * FROM b WHERE k = 5 AND k = ANY ($1) OFFSET 0) AS x"
        " FULL JOIN (SELECT * FROM b WHERE k = 5 OFFSET 0) AS y USING (k)"
    )
    for k in range(8, 16):
        pair.same(f"EXECUTE full_join('{{{k}}}')")
    pair.same("DEALLOCATE full_join")


def test_tablesample_with_a_lateral_argument_is_a_clear_error(pair: Pair) -> None:
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="TABLESAMPLE") as caught:
        pair.ours.execute(
            "SELECT o.k, s.* FROM b AS o,"
            " LATERAL (SELECT count(*) FROM a TABLESAMPLE BERNOULLI (100 + o.k * 0)) AS s"
        )
    assert caught.value.diag.message_hint


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE local SET v = local.v + a.k FROM a WHERE a.k = local.id AND a.k < 5",
        "DELETE FROM local USING a WHERE a.k = local.id AND a.k = 3",
        "UPDATE local SET v = local.v + 1 WHERE id = 3 AND id IN (SELECT k FROM a WHERE k < 5)",
        "SELECT local.*, a.k FROM local JOIN a ON a.k = local.id WHERE a.k = 3 FOR UPDATE OF local",
    ],
)
def test_a_row_that_changed_while_we_waited_for_it_is_a_serialization_failure(
    cluster: Cluster, pair: Pair, statement: str
) -> None:
    """READ COMMITTED would evaluate the join again (EvalPlanQual): never lose the row silently."""
    before = pair.ours.execute("SELECT * FROM local ORDER BY id").fetchall()
    with cluster.coordinator.connect() as other, ThreadPoolExecutor(1) as pool:
        other.execute(f"BEGIN; UPDATE {SCHEMA}.local SET v = v + 100 WHERE id = 3")
        answer = pool.submit(pair.ours.execute, statement)
        for _ in wait_until("the statement waits for the row"):
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            if answer.done() or cluster.coordinator.value(waiting):
                break
        other.execute("COMMIT")
        with pytest.raises(psycopg.errors.SerializationFailure) as caught:
            answer.result(timeout=20)
    assert caught.value.diag.message_hint
    after = pair.ours.execute("SELECT * FROM local ORDER BY id").fetchall()
    assert after == [(row[0], row[1] + 100 if row[0] == 3 else row[1]) for row in before]


def test_distinct_rows_are_counted_exactly_where_no_sketch_can(pair: Pair) -> None:
    """An extended hash function for records does not exist for anonymous ones."""
    pair.ours.execute("SET strata.count_distinct_error_rate = 0.01")
    try:
        assert pair.rows("SELECT count(DISTINCT (x, x + 1)) FROM b") == [(6,)]
    finally:
        pair.ours.execute("RESET strata.count_distinct_error_rate")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1 FROM b WHERE k = 1 HAVING true",
        "SELECT count(*) FROM (SELECT FROM a LIMIT 10) AS s",
        "SELECT count(a), count(b.*) FROM a LEFT JOIN b USING (k)",
        "SELECT a FROM a WHERE k < 3",
        "SELECT k FROM a ORDER BY k LIMIT 9223372036854775807 OFFSET 1",
        "SELECT k FROM a ORDER BY k LIMIT 5 OFFSET -10",
        "SELECT a.k, (SELECT max(b.v) + sum(a.v) FROM b WHERE b.k = a.k) FROM a GROUP BY a.k",
        "SELECT 5 AS c, count(*) FROM a GROUP BY c ORDER BY c",
        "SELECT a.k, s.n FROM a LEFT JOIN (SELECT k, coalesce(v, 0) AS n FROM b) AS s USING (k)",
    ],
)
def test_tricky_statements_that_hold(pair: Pair, query: str) -> None:
    pair.same(query)
