"""Queries of reference tables alone: a worker answers from its columnar copies, or the coordinator from its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster import Cluster, Node
from tests.failover import frozen, heartbeat
from tests.pair import Pair, open_pair
from tests.waiting import wait_until

TABLES = """
CREATE COLLATION no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TYPE mood AS ENUM ('low', 'high');
CREATE TABLE item (i integer PRIMARY KEY, brand text, size integer, price numeric, m mood, a integer[], made date);
CREATE TABLE offer (i integer REFERENCES item, seller integer, cost numeric, loose text COLLATE no_case,
  PRIMARY KEY (i, seller));
CREATE TABLE seller (s integer PRIMARY KEY, name text, country integer);
CREATE TABLE country (c integer PRIMARY KEY, name text);
CREATE TABLE sold (k bigint, i integer, n integer);
CREATE TABLE here (w integer);
CREATE VIEW guarded WITH (security_barrier) AS SELECT * FROM item WHERE size > 3;
CREATE FUNCTION larger(integer) RETURNS integer IMMUTABLE LANGUAGE sql AS 'SELECT $1 + 1';
CREATE FUNCTION items() RETURNS bigint STABLE LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM item); END';
"""
ROWS = """
INSERT INTO item SELECT i, 'brand ' || i % 23, nullif(i % 17, 4), i / 4.0, (ARRAY['low', 'high', NULL])[i % 3 + 1]::mood,
  ARRAY[i % 5, i % 3], date '2024-01-01' + i % 300 FROM generate_series(1, 6000) AS i;
INSERT INTO seller SELECT s, 'seller ' || s, nullif(s % 9, 3) FROM generate_series(1, 200) AS s;
INSERT INTO country SELECT c, 'country ' || c FROM generate_series(0, 8) AS c;
INSERT INTO offer SELECT i, (i * 7 + n * 31) % 200 + 1, (i * 13 + n * 17) % 1009 / 8.0, CASE WHEN n = 1 THEN 'x' ELSE 'X' END || i % 7
  FROM generate_series(1, 6000) AS i, generate_series(0, 3) AS n;
INSERT INTO sold SELECT k, k % 5000 + 1, k % 7 FROM generate_series(1, 3000) AS k;
INSERT INTO here SELECT generate_series(1, 8);
ANALYZE;
"""


@pytest.fixture(scope="module", params=["columnar", "heap"])
def pair(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with open_pair(cluster, f"test_reference_reads_{request.param}") as made:
        made.execute(TABLES)
        for table in ("item", "seller", "country", "offer"):
            made.reference(table, request.param)
        made.distribute("sold", "k", "none")
        made.execute(ROWS)
        yield made


@pytest.fixture(autouse=True)
def _always(pair: Pair) -> Iterator[None]:
    pair.ours.execute("SET strata.enable_reference_pushdown = always")
    yield
    pair.reset()
    pair.ours.execute("RESET strata.enable_reference_pushdown")


THERE = [
    "SELECT count(*), sum(price), min(brand), max(made) FROM item",
    "SELECT brand, count(*), avg(price) FROM item WHERE size < 9 GROUP BY brand",
    "SELECT brand, count(DISTINCT size) FROM item GROUP BY brand HAVING count(*) > 3 ORDER BY 2 DESC, 1",
    "SELECT name, sum(cost) FROM offer JOIN seller ON s = seller JOIN item USING (i) WHERE size = 5 GROUP BY name",
    # TPC-H's second and eleventh query
    "SELECT name, o.i, cost FROM offer AS o JOIN seller ON s = o.seller JOIN item USING (i) WHERE size = 7 AND brand LIKE '%3'"
    " AND cost = (SELECT min(cost) FROM offer AS p WHERE p.i = o.i) ORDER BY cost DESC, name, o.i LIMIT 20",
    "SELECT i, sum(cost) FROM offer GROUP BY i HAVING sum(cost) > (SELECT sum(cost) / 3000 FROM offer) ORDER BY 2 DESC, 1",
    "SELECT brand, size, count(DISTINCT seller) FROM offer JOIN item USING (i) WHERE seller NOT IN"
    " (SELECT s FROM seller WHERE name LIKE '%9') GROUP BY brand, size ORDER BY 3 DESC, 1, 2",
    "SELECT i FROM item WHERE size = 2 ORDER BY price DESC LIMIT 7 OFFSET 3",
    "SELECT i FROM item WHERE NOT EXISTS (SELECT FROM offer WHERE offer.i = item.i AND cost > 9) ORDER BY i",
    "SELECT c.name, count(s) FROM country AS c LEFT JOIN seller ON country = c GROUP BY c.name ORDER BY 1",
    "SELECT c.name, s.name FROM country AS c FULL JOIN seller AS s ON country = c ORDER BY 1, 2",
    "SELECT size, m, count(*), GROUPING(size, m) FROM item GROUP BY CUBE (size, m)",
    "SELECT size + 10, size + 9, count(*), GROUPING(size + 10, size + 9) FROM item GROUP BY GROUPING SETS ((size + 10), (size + 9))",
    "SELECT DISTINCT size, m FROM item",
    "SELECT DISTINCT loose FROM offer ORDER BY 1",
    "SELECT loose, count(*) FROM offer GROUP BY loose",
    "WITH best AS (SELECT i, min(cost) AS least FROM offer GROUP BY i) SELECT count(*), sum(least) FROM best JOIN item USING (i)",
    "SELECT a.brand, b.n FROM (SELECT brand, min(size) AS l FROM item GROUP BY brand) AS a JOIN"
    " (SELECT size, count(*) AS n FROM item GROUP BY size) AS b ON b.size = a.l",
    "SELECT sum(larger(size)) FROM item",
    "SELECT count(*) FROM item WHERE made > now() - interval '100 years'",
    "SELECT brand, sum(size) FROM guarded GROUP BY brand",
    "SELECT count(*), items() FROM item",
    "SELECT sum(DISTINCT size), count(DISTINCT (brand, m)), max(DISTINCT made) FROM item",
]
HERE = [
    "SELECT i FROM item WHERE size = 2 FOR UPDATE",
    "SELECT i, rank() OVER (PARTITION BY brand ORDER BY price DESC, i) FROM item WHERE size = 1",
    "SELECT m, array_agg(i ORDER BY i) FROM item WHERE i < 40 GROUP BY m",
    "SELECT brand, string_agg(DISTINCT m::text, ',') FROM item GROUP BY brand",
    "SELECT brand, count(*) FROM item GROUP BY brand HAVING (array_agg(i))[1] > 7",
    "SELECT item.tableoid::regclass, count(*) FROM item GROUP BY 1",
    "SELECT count(*) FROM item, here WHERE size = w",
    "SELECT count(*) FROM item TABLESAMPLE BERNOULLI (100)",
    "SELECT brand, count(*) + random() * 0 FROM item GROUP BY brand",
    "SELECT count(ctid) FROM item",
]
BOTH = [
    "SELECT brand, sum(n) FROM sold JOIN item USING (i) GROUP BY brand",
    "SELECT sum(n), (SELECT count(*) FROM item), (SELECT max(cost) FROM offer) FROM sold",
    "SELECT w, (SELECT count(*) FROM item WHERE size > w) FROM here",
    "SELECT w, n FROM here, LATERAL (SELECT count(*) AS n FROM item WHERE size < w) AS s",
    "SELECT k, n FROM sold WHERE n = (SELECT min(size) FROM item) AND k < 50",
    "SELECT brand FROM item WHERE size = 3 UNION SELECT name FROM seller ORDER BY 1",
    "SELECT w, s.* FROM here LEFT JOIN (SELECT size, count(*) AS c FROM item GROUP BY size) AS s ON s.c > w * 40 ORDER BY 1, 2",
    "SELECT k FROM sold WHERE i IN (SELECT i FROM item ORDER BY price DESC, i LIMIT 40)",
]


@contextmanager
def stopped(workers: list[Node]) -> Iterator[None]:
    for worker in workers:
        worker.stop("immediate")
    try:
        yield
    finally:
        for worker in workers:
            worker.start()


def asks_worker(pair: Pair, query: str) -> bool:
    return any("Plan Below" in node for node in pair.gathers(query))


@pytest.mark.parametrize("query", THERE)
def test_a_worker_answers(pair: Pair, query: str) -> None:
    wait_for_worker(pair)
    pair.same(query)
    assert asks_worker(pair, query)
    assert "(never executed)" in pair.explain(query, "ANALYZE, COSTS OFF, TIMING OFF")


# so that the plans below are parallel, and run their statements in parallel mode
PARALLEL = (
    "SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0"
)
SERIAL = "RESET min_parallel_table_scan_size; RESET parallel_setup_cost; RESET parallel_tuple_cost"


@pytest.fixture
def _parallel(pair: Pair) -> Iterator[None]:
    pair.ours.execute(PARALLEL)
    yield
    pair.ours.execute(SERIAL)


@pytest.mark.usefixtures("_parallel")
@pytest.mark.parametrize("query", THERE)
def test_a_worker_answers_in_place_of_a_parallel_plan(pair: Pair, query: str) -> None:
    test_a_worker_answers(pair, query)


@pytest.mark.usefixtures("_parallel")
def test_a_parallel_plan_answers_in_place_of_a_worker(cluster: Cluster, pair: Pair) -> None:
    wait_for_worker(pair)
    assert "Workers Planned" in pair.explain(THERE[1])
    pair.all_same(THERE)
    with frozen(cluster.coordinator, heartbeat), stopped(cluster.workers):
        # which of equal texts stands for all is anybody's choice
        pair.all_same(query for query in THERE if "loose" not in query)
        assert "Workers Launched" in pair.explain(THERE[1], "ANALYZE, COSTS OFF, TIMING OFF")
    wait_for_worker(pair)


@pytest.mark.parametrize("query", HERE)
def test_the_coordinator_answers(pair: Pair, query: str) -> None:
    pair.same(query)
    assert not asks_worker(pair, query)


@pytest.mark.parametrize("query", BOTH)
def test_among_others(pair: Pair, query: str) -> None:
    pair.same(query)


@pytest.mark.parametrize("query", [*THERE, *BOTH])
def test_where_it_is_cheaper_or_never(pair: Pair, query: str) -> None:
    for setting in ("on", "off"):
        pair.ours.execute(f"SET strata.enable_reference_pushdown = {setting}")
        pair.same(query)
    assert not asks_worker(pair, query)


def test_only_large_scans_of_columnar_copies_travel(pair: Pair) -> None:
    pair.ours.execute("SET strata.enable_reference_pushdown = on")
    columnar = pair.schema.endswith("columnar")
    pair.execute(
        "CREATE TABLE wide AS SELECT n, n % 9 AS m, md5(n::text) AS t FROM generate_series(1, 60000) AS n"
    )
    pair.reference("wide", "columnar" if columnar else "heap")
    pair.execute("ANALYZE wide")
    large = "SELECT m, count(DISTINCT n % 100), max(t) FROM wide GROUP BY m"
    assert asks_worker(pair, large) == columnar, pair.explain(large, "COSTS ON")
    pair.same(large)
    for small in (
        "SELECT name FROM country ORDER BY name",
        "SELECT * FROM item WHERE i = 7",
        "SELECT name, cost FROM offer JOIN seller ON s = seller WHERE i = 9 ORDER BY cost",
        "SELECT * FROM offer ORDER BY i, seller",
        "SELECT * FROM wide",
    ):
        assert not asks_worker(pair, small), pair.explain(small, "COSTS ON")
    pair.execute("DROP TABLE wide")


def runs_here(pair: Pair, query: str = THERE[1]) -> bool:
    return "Plan Below: runs here" in pair.explain(query, "ANALYZE, COSTS OFF, TIMING OFF")


def wait_for_worker(pair: Pair) -> None:
    for _ in wait_until("a worker answers"):
        if not runs_here(pair):
            return


def test_own_writes(pair: Pair) -> None:
    assert not runs_here(pair)
    with pair.transaction():
        pair.same(THERE[1])
        pair.same("SAVEPOINT s")
        pair.same("UPDATE item SET size = 3 WHERE i % 5 = 0")
        assert runs_here(pair)
        pair.all_same(THERE[:4])
        pair.same("ROLLBACK TO s")
        pair.all_same(THERE[:4])
        pair.same("DELETE FROM offer WHERE i < 30")
        pair.same("INSERT INTO seller VALUES (1000, 'new', 1)")
        pair.all_same(THERE[:8])
    pair.same(
        "WITH gone AS (DELETE FROM offer WHERE i = 9 RETURNING *) SELECT (SELECT count(*) FROM gone), count(*) FROM offer"
    )
    pair.same(
        "INSERT INTO offer SELECT 9, s, s FROM seller WHERE s < 5 RETURNING (SELECT count(*) FROM offer)"
    )


def test_code_that_reads_while_rows_change(pair: Pair) -> None:
    pair.execute(
        "CREATE FUNCTION counted() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN NEW.size := (SELECT count(*) FROM item WHERE size = 5); RETURN NEW; END';"
        "CREATE TRIGGER counted BEFORE UPDATE ON item FOR EACH ROW EXECUTE FUNCTION counted()"
    )
    with pair.transaction():
        pair.same("UPDATE item SET price = 0 WHERE size = 5 AND i < 600")
        pair.same("SELECT i, size FROM item WHERE price = 0")
    pair.same("UPDATE item SET price = 0 WHERE size = 6 AND i < 600")
    pair.same("SELECT i, size FROM item WHERE price = 0")
    pair.execute("DROP TRIGGER counted ON item; DROP FUNCTION counted()")


def test_functions_of_the_statement_that_write(pair: Pair) -> None:
    """What they change is not seen by the statement that calls them, as everywhere."""
    pair.execute(
        "CREATE FUNCTION forget(integer) RETURNS bigint LANGUAGE sql AS"
        " 'DELETE FROM offer WHERE i = $1; SELECT count(*) FROM offer'"
    )
    for query in (
        "SELECT forget(11), (SELECT count(*) FROM offer)",
        "SELECT f, (SELECT count(*) FROM offer WHERE f > 0) FROM forget(12) AS f",
        "SELECT forget(i) FROM (SELECT max(i) AS i FROM offer) AS o UNION ALL SELECT count(*) FROM offer",
        "SELECT count(*) FROM offer",
    ):
        pair.same(query)
    pair.execute("DROP FUNCTION forget")


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_isolation(pair: Pair, level: str) -> None:
    """What others commit is seen, or not, as in PostgreSQL; all parts of a transaction see one state."""
    others = [pair.cluster.coordinator.connect(), pair.cluster.plain.connect()]
    for other in others:
        pair._set_search_path(other)
    with pair.transaction(begin=f"BEGIN ISOLATION LEVEL {level}"):
        pair.same(THERE[1])
        for other in others:
            other.execute("UPDATE item SET price = price + 1 WHERE i % 50 = 0")
        pair.all_same(THERE[:5])
        pair.same("DECLARE c SCROLL CURSOR FOR SELECT i, price FROM item ORDER BY i")
        pair.same("FETCH 100 FROM c")
        for other in others:
            other.execute("UPDATE item SET price = price + 1 WHERE i % 50 = 1")
        pair.same("FETCH 100 FROM c")
        pair.same("FETCH BACKWARD 150 FROM c")
        pair.same(THERE[1])
    assert runs_here(pair) is False
    for other in others:
        other.close()


def test_an_imported_snapshot(pair: Pair) -> None:
    other = pair.cluster.coordinator.connect(autocommit=False)
    pair._set_search_path(other)
    other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    (name,) = other.execute("SELECT pg_export_snapshot()").fetchone()
    pair.ours.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    pair.ours.execute(f"SET TRANSACTION SNAPSHOT '{name}'")
    assert runs_here(pair)
    pair.ours.execute("ROLLBACK")
    other.close()


def test_parameters_and_cached_plans(pair: Pair) -> None:
    for plans in ("force_custom_plan", "force_generic_plan"):
        pair.execute(f"SET plan_cache_mode = {plans}")
        pair.execute(
            "PREPARE asked(integer, text) AS SELECT brand, count(*), $2 FROM item WHERE size > $1 GROUP BY brand LIMIT $1 + 100"
        )
        for values in ("3, 'x''y'", "NULL, ''", "100, NULL"):
            pair.same(f"EXECUTE asked({values})")
        with pair.transaction():
            pair.same("DELETE FROM offer WHERE i < 60; DELETE FROM item WHERE i < 60")
            pair.same("EXECUTE asked(3, 'here')")
        pair.same("EXECUTE asked(3, 'there')")
        pair.execute("DEALLOCATE ALL; RESET plan_cache_mode")


def test_scanned_again(pair: Pair) -> None:
    pair.execute("SET enable_material = off; SET enable_mergejoin = off; SET enable_hashjoin = off")
    for written in (False, True):
        with pair.transaction():
            if written:
                pair.same("UPDATE item SET size = 8 WHERE i < 50")
            pair.all_same(BOTH)
    pair.execute("RESET enable_material; RESET enable_mergejoin; RESET enable_hashjoin")


def test_rights(pair: Pair) -> None:
    with pair.under_policy("item", "size > 4", "offer", "seller", "country"):
        pair.all_same(query for query in THERE[:12] if "larger" not in query)
    with pair.under_policy("offer", "cost > (SELECT avg(size) FROM item)", "item", "seller"):
        pair.all_same(THERE[3:9])
    pair.execute(
        "CREATE ROLE reference_stranger; GRANT USAGE ON SCHEMA "
        f"{pair.schema} TO reference_stranger; GRANT SELECT (i, size) ON item TO reference_stranger; SET ROLE reference_stranger"
    )
    pair.same("SELECT size, count(*) FROM item GROUP BY size")
    pair.same("SELECT brand, count(*) FROM item GROUP BY brand")
    pair.same("SELECT size, count(*) FROM item JOIN offer USING (i) GROUP BY size")
    pair.execute("RESET ROLE; DROP OWNED BY reference_stranger; DROP ROLE reference_stranger")


def test_other_statements(pair: Pair) -> None:
    with pair.transaction():
        pair.same("CREATE TABLE made AS SELECT brand, count(*) AS n FROM item GROUP BY brand")
        pair.same("SELECT * FROM made")
    with pair.transaction():
        pair.same("INSERT INTO here SELECT count(*) FROM item GROUP BY size")
        pair.same("SELECT * FROM here")
    with pair.transaction():
        pair.same("INSERT INTO sold SELECT max(i), size, 1 FROM item GROUP BY size")
        pair.same("SELECT count(*), sum(k) FROM sold")
    with pair.transaction():
        pair.same("UPDATE here SET w = (SELECT count(*) FROM item WHERE size = w)")
        pair.same("SELECT * FROM here")
    pair.same(
        "DO $$ DECLARE n bigint; BEGIN FOR n IN SELECT count(*) FROM item GROUP BY size LOOP END LOOP; END $$"
    )


def test_trees(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE parts (p integer, q text) PARTITION BY RANGE (p);"
        "CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (500);"
        "CREATE TABLE high PARTITION OF parts FOR VALUES FROM (500) TO (MAXVALUE);"
        "INSERT INTO parts SELECT n, 'q' || n % 7 FROM generate_series(0, 999) AS n"
    )
    pair.reference("parts", pair.schema.rpartition("_")[2])
    for query in (
        "SELECT q, count(*) FROM parts GROUP BY q",
        "SELECT q, sum(p) FROM parts JOIN item ON p = i WHERE p > 600 GROUP BY q",
        "SELECT count(*) FROM ONLY parts",
        "SELECT count(*) FROM low",
    ):
        pair.same(query)
    pair.execute("DROP TABLE parts")


def test_without_workers(cluster: Cluster, pair: Pair) -> None:
    """Reference tables are read as long as the coordinator lives."""
    pair.execute("SET plan_cache_mode = force_generic_plan")
    pair.execute(f"PREPARE counting AS {THERE[1]}")
    pair.same("EXECUTE counting")
    with stopped(cluster.workers):
        for query in THERE[:6]:
            pair.same(query)
        pair.same("EXECUTE counting")
        assert runs_here(pair)
        with pair.transaction():
            pair.all_same(THERE[:4])
        with pair.transaction(begin="BEGIN ISOLATION LEVEL REPEATABLE READ"):
            pair.all_same(THERE[:4])
    wait_for_worker(pair)
    pair.all_same(THERE[:4])
    pair.execute("DEALLOCATE ALL; RESET plan_cache_mode")


def test_the_other_worker_answers(cluster: Cluster, pair: Pair) -> None:
    with stopped(cluster.workers[:1]):
        pair.all_same(THERE[:4])
        wait_for_worker(pair)
        assert f'From "{cluster.workers[1].name}"' in pair.explain(
            THERE[1], "ANALYZE, COSTS OFF, TIMING OFF"
        )
    pair.all_same(THERE[:4])


def test_a_worker_dies_in_a_transaction(cluster: Cluster, pair: Pair) -> None:
    with pair.transaction("COMMIT"):
        pair.all_same(THERE[:2])
        with stopped(cluster.workers):
            pair.all_same(THERE[:4])
        pair.all_same(THERE[:4])
    wait_for_worker(pair)


def test_a_worker_dies_before_the_heartbeat_notices(cluster: Cluster, pair: Pair) -> None:
    """The transaction's own wire tells."""
    wait_for_worker(pair)
    with pair.transaction("COMMIT"):
        pair.all_same(THERE[:2])
        with frozen(cluster.coordinator, heartbeat), stopped(cluster.workers):
            pair.all_same(THERE[:2])
        pair.all_same(THERE[:2])
    wait_for_worker(pair)


def test_workers_that_let_nobody_in(cluster: Cluster, pair: Pair) -> None:
    expected = pair.rows(THERE[1])
    for worker in cluster.workers:
        worker.execute("ALTER FUNCTION strata_worker.check_schema_version RENAME TO hidden")
    try:
        with cluster.coordinator.connect() as session:
            pair._set_search_path(session)
            session.execute("SET strata.enable_reference_pushdown = always")
            assert sorted(session.execute(THERE[1]).fetchall()) == sorted(expected)
            plan = session.execute(f"EXPLAIN (ANALYZE, COSTS OFF) {THERE[1]}").fetchall()
            assert any("Plan Below: runs here" in line for (line,) in plan)
    finally:
        for worker in cluster.workers:
            worker.execute("ALTER FUNCTION strata_worker.hidden RENAME TO check_schema_version")
