"""Joins on the coordinator ask the workers only for rows with a partner; the answers are PostgreSQL's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

TABLES = """
CREATE COLLATION no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TYPE mood AS ENUM ('low', 'high');
CREATE DOMAIN small AS integer CHECK (VALUE < 100000);
CREATE TABLE line (k bigint, p integer, q bigint, t text, loose text COLLATE no_case, n numeric, d date, m mood, u uuid,
  s small, a integer[], v integer);
CREATE TABLE part (p integer, q smallint, t text, loose text COLLATE no_case, n numeric, d date, m mood, u uuid, s small,
  a integer[], w integer);
CREATE TABLE shop (h integer, p integer, city text);
CREATE TABLE here (p integer, w integer);
CREATE TABLE copied (p integer PRIMARY KEY, w integer);
CREATE VIEW cheap AS SELECT * FROM part WHERE w < 5;
CREATE VIEW guarded WITH (security_barrier) AS SELECT * FROM line WHERE v > 3;
"""
ROWS = """
INSERT INTO line SELECT i, nullif(i % 997, 5), i % 1009, 't' || i % 991, CASE WHEN i % 2 = 0 THEN 'L' ELSE 'l' END || i % 983,
  (i % 977) / 2.0, date '2024-01-01' + i % 971, CASE i % 3 WHEN 0 THEN 'low' WHEN 1 THEN 'high' END::mood,
  md5((i % 967)::text)::uuid, i % 953, ARRAY[i % 947, i % 3], i % 20 FROM generate_series(1, 12000) AS i;
INSERT INTO line (k) SELECT i FROM generate_series(20000, 20020) AS i;
INSERT INTO part SELECT i * 5, i, 't' || i * 3, 'L' || i * 2, i * 0.50, date '2024-01-01' + i, 'low', md5(i::text)::uuid, i,
  ARRAY[i, i % 3], i % 11 FROM generate_series(1, 60) AS i;
INSERT INTO part VALUES (10, 3, 't1', 'l2', 1.0, NULL, 'high', NULL, 7, NULL, 1);
INSERT INTO part (p) VALUES (NULL);
INSERT INTO shop SELECT i, i * 7, 'c' || i % 4 FROM generate_series(1, 40) AS i;
INSERT INTO here SELECT i * 11, i FROM generate_series(1, 30) AS i;
INSERT INTO copied SELECT i * 13, i FROM generate_series(1, 30) AS i;
ANALYZE;
"""


@pytest.fixture(scope="module", params=["columnar", "heap"])
def pair(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with open_pair(cluster, f"test_partners_{request.param}") as made:
        made.execute(TABLES)
        made.distribute("line", "k", "none", storage=request.param)
        made.distribute("part", "p", "none", storage=request.param)
        made.distribute("shop", "h", "none", storage=request.param)
        made.reference("copied")
        for statement in ROWS.split(";"):
            made.execute(statement)
        yield made


COLUMNS = ["p", "q", "t", "loose", "n", "d", "u", "s", "a"]

ASKED = [
    "SELECT * FROM line JOIN part USING (p) WHERE w = 3",
    "SELECT l.k, r.w FROM line AS l RIGHT JOIN part AS r ON r.p = l.p AND r.w > 2",
    "SELECT l.k, r.w FROM part AS r LEFT JOIN line AS l ON r.p = l.p AND l.v < 7 WHERE r.w = 4",
    "SELECT k FROM line WHERE p IN (SELECT p FROM part WHERE w = 4)",
    "SELECT p, w FROM part WHERE EXISTS (SELECT FROM line WHERE line.p = part.p AND v < 9)",
    "SELECT p, w FROM part WHERE NOT EXISTS (SELECT FROM line WHERE line.p = part.p AND v < 9)",
    "SELECT count(*), sum(v) FROM line JOIN part ON line.p = part.p AND line.t = part.t",
    "SELECT k, city FROM line JOIN part USING (p) JOIN shop USING (p)",
    "SELECT k, h.w FROM line JOIN here AS h USING (p)",
    "SELECT k, h.w FROM line JOIN here AS h ON line.p = h.p + 1 WHERE h.w < 9",
    "SELECT k, c.w FROM line JOIN copied AS c ON c.p = line.v JOIN here ON here.p = line.p",
    "SELECT k, w FROM line JOIN cheap USING (p)",
    "SELECT k, w FROM line JOIN part USING (p) WHERE w < 0",
    "SELECT k, w FROM line JOIN part USING (p) WHERE part.d IS NULL",
    "SELECT k FROM line AS l JOIN (SELECT p, w FROM part WHERE w > 1) AS r ON r.p = l.p AND r.w > l.v ORDER BY k LIMIT 5",
    "SELECT v, count(*), (SELECT max(w) FROM part) FROM line JOIN part USING (p) WHERE w = 2 GROUP BY v",
    "SELECT k FROM line JOIN part USING (p) WHERE w = 1 UNION ALL SELECT k FROM line JOIN here USING (p)",
    "WITH chosen AS MATERIALIZED (SELECT k FROM line JOIN part USING (p)) SELECT count(*) FROM chosen",
    "SELECT h.w, (SELECT count(*) FROM line JOIN part USING (p) WHERE part.w = h.w) FROM here AS h WHERE w < 4",
    "SELECT line.tableoid::regclass, k FROM line JOIN part USING (p) WHERE w = 3",
    "WITH few AS MATERIALIZED (SELECT p, w FROM part ORDER BY p LIMIT 5) SELECT k, w FROM line JOIN few USING (p)",
    "WITH few AS (SELECT p, max(w) AS w FROM part WHERE p < 60 GROUP BY p) SELECT k, f.w, (SELECT count(*) FROM few) FROM line JOIN few AS f USING (p)",
    "WITH few AS MATERIALIZED (SELECT p, random() AS r FROM part WHERE w = 3) SELECT k, f.r = g.r FROM line JOIN few AS f USING (p) JOIN few AS g USING (p)",
    "WITH few AS MATERIALIZED (SELECT p FROM part WHERE w = 3) SELECT * FROM (SELECT k FROM line JOIN few USING (p) LIMIT 1000) AS q",
]
AS_THEY_ARE = [
    "WITH RECURSIVE few AS (SELECT 5 AS p UNION ALL SELECT p + 5 FROM few WHERE p < 60) SELECT k, p FROM line JOIN few USING (p)",
    "SELECT k, r.p FROM line AS l LEFT JOIN part AS r ON r.p = l.p WHERE l.v = 3",
    "SELECT k, r.p FROM line AS l FULL JOIN part AS r ON r.p = l.p",
    "SELECT k FROM line WHERE NOT EXISTS (SELECT FROM part WHERE part.p = line.p) AND v = 3",
    "SELECT k FROM line JOIN (SELECT p FROM part ORDER BY p LIMIT 3) AS r USING (p)",
    "SELECT k FROM line JOIN part USING (p) WHERE w + random() * 0 >= 3",
    "SELECT k FROM line JOIN part TABLESAMPLE BERNOULLI (100) USING (p)",
    "SELECT k, w FROM line JOIN part ON line.p < part.p AND line.v = 3 AND part.w = 2 AND part.p < 20",
    "SELECT h.w, s.* FROM here AS h, LATERAL (SELECT max(k) FROM line JOIN part USING (p) WHERE part.w = h.w) AS s"
    " WHERE h.w < 4",
]


def asks_for_partners(pair: Pair, query: str) -> bool:
    return " = ANY ($" in pair.every_remote_sql(query)


@pytest.mark.parametrize("query", ASKED)
def test_rows_with_a_partner(pair: Pair, query: str) -> None:
    pair.same(query)
    assert asks_for_partners(pair, query)


@pytest.mark.parametrize("query", AS_THEY_ARE)
def test_what_needs_all_rows(pair: Pair, query: str) -> None:
    pair.same(query)
    assert not asks_for_partners(pair, query)


@pytest.mark.parametrize("query", [*ASKED, *AS_THEY_ARE])
def test_wherever_it_is_possible(pair: Pair, query: str) -> None:
    pair.ours.execute("SET strata.enable_partner_keys = always")
    pair.same(query)
    pair.ours.execute("SET strata.enable_partner_keys = off")
    assert not asks_for_partners(pair, query)
    pair.ours.execute("RESET strata.enable_partner_keys")


@pytest.mark.parametrize("column", COLUMNS)
def test_types_of_keys(pair: Pair, column: str) -> None:
    query = f"SELECT k, part.p FROM line JOIN part USING ({column}) WHERE w BETWEEN 1 AND 4"
    pair.same(query)
    assert asks_for_partners(pair, query) or column in ("loose", "a")
    pair.same(
        f"SELECT part.p FROM part WHERE {column} NOT IN (SELECT {column} FROM line WHERE {column} IS NOT NULL)"
    )


def test_collations_of_the_condition(pair: Pair) -> None:
    pair.same('SELECT k, part.p FROM line JOIN part ON line.loose = part.loose COLLATE "C"')
    pair.same("SELECT k, part.p FROM line JOIN part ON line.t = part.loose")
    pair.same("SELECT k, part.p FROM line JOIN part ON line.t COLLATE no_case = part.t")


def test_only_what_is_needed_comes(pair: Pair) -> None:
    (plan,) = pair.rows(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, FORMAT JSON) {ASKED[0]}")[0]
    text = str(plan)
    assert "'Keys Sent': '6'" in text or "'Keys Sent': '5'" in text, text
    received = max(
        node["Rows Received"] for node in pair.gathers(ASKED[0], "ANALYZE, COSTS OFF, TIMING OFF")
    )
    assert received < 200


def test_nobody_is_asked_for_partners_of_nothing(pair: Pair) -> None:
    query = "SELECT w, k FROM (SELECT * FROM part WHERE w < 0) AS r LEFT JOIN line USING (p)"
    pair.same(query)
    plan = pair.explain(query, "ANALYZE, COSTS OFF, TIMING OFF")
    assert "Keys Sent: 0" in plan or "(never executed)" in plan
    assert "Keys Sent" not in pair.explain(ASKED[0], "VERBOSE")


def test_too_many_keys(pair: Pair) -> None:
    """The small side has grown since it was analysed: all rows are asked for."""
    pair.execute("CREATE TABLE grown (p integer, w integer)")
    pair.execute("INSERT INTO grown SELECT i, i FROM generate_series(1, 40) AS i; ANALYZE grown")
    query = "SELECT count(*), sum(k), sum(w) FROM line JOIN grown USING (p)"
    assert asks_for_partners(pair, query)
    # the planner asks the table for its size: few pages, long lines of rows it does not know
    pair.execute("PREPARE counting AS " + query)
    pair.execute("SET plan_cache_mode = force_generic_plan")
    pair.same("EXECUTE counting")
    with pair.transaction():
        pair.same("INSERT INTO grown SELECT i, i FROM generate_series(41, 120000) AS i")
        pair.same("EXECUTE counting")
        assert "Keys Sent: none" in pair.explain(
            "EXECUTE counting", "ANALYZE, COSTS OFF, TIMING OFF"
        )
    pair.execute("RESET plan_cache_mode; DEALLOCATE ALL; DROP TABLE grown")


def test_parameters(pair: Pair) -> None:
    for plans in ("force_custom_plan", "force_generic_plan"):
        pair.execute(f"SET plan_cache_mode = {plans}")
        pair.execute(
            "PREPARE asked(integer) AS SELECT k, w FROM line JOIN part USING (p) WHERE w = $1 AND v <> $1 + 1"
        )
        for value in ("3", "NULL", "100", "1"):
            pair.same(f"EXECUTE asked({value})")
        pair.execute("DEALLOCATE asked; RESET plan_cache_mode")


def test_own_writes_and_cursors(pair: Pair) -> None:
    query = ASKED[0]
    with pair.transaction():
        pair.same("INSERT INTO part (p, w) VALUES (44, 3), (45, 3)")
        pair.same("UPDATE line SET p = 44 WHERE v = 2 AND p < 100")
        pair.same(query)
        pair.same(f"DECLARE c SCROLL CURSOR FOR {query}")
        pair.same("DELETE FROM part WHERE w = 3")
        pair.same("SAVEPOINT s")
        pair.same("FETCH ALL FROM c", ordered=False)
        pair.same("FETCH BACKWARD ALL FROM c", ordered=False)
        pair.same("ROLLBACK TO s")
        pair.same("FETCH ALL FROM c", ordered=False)
        pair.same(query)


def test_scanned_again(pair: Pair) -> None:
    """Inside of a loop, with and without rows that are kept."""
    pair.execute("SET enable_material = off; SET enable_mergejoin = off")
    for condition in ("h.w > s.c", "h.w < s.c"):
        pair.same(
            "SELECT h.w, s.v FROM here AS h JOIN (SELECT v, count(*) AS c FROM line JOIN part USING (p) WHERE part.w = 3"
            f" GROUP BY v) AS s ON {condition}"
        )
    pair.execute("RESET enable_material; RESET enable_mergejoin")


def test_rights(pair: Pair) -> None:
    for policies in (("line", "v > 4", "part"), ("part", "w <> 3", "line")):
        with pair.under_policy(*policies):
            pair.same("SELECT k, w FROM line JOIN part USING (p) WHERE w < 5")
            pair.same("SELECT p FROM part WHERE p NOT IN (SELECT p FROM line WHERE p IS NOT NULL)")
    pair.same("SELECT k, w FROM guarded JOIN part USING (p) WHERE w = 3")


def test_other_statements(pair: Pair) -> None:
    with pair.transaction():
        pair.same("CREATE TABLE made AS SELECT k, w FROM line JOIN part USING (p) WHERE w = 3")
        pair.same("SELECT * FROM made")
        pair.same("INSERT INTO here SELECT line.v, w FROM line JOIN part USING (p) WHERE w = 3")
        pair.same("SELECT * FROM here")
    with pair.transaction():
        pair.same("SELECT k FROM line JOIN part USING (p) WHERE w = 3 FOR UPDATE OF line")


def test_a_loop_over_gathered_rows_gives_way(pair: Pair) -> None:
    """However few rows the outer side is said to have."""
    query = "SELECT l.k, s.city FROM line AS l JOIN shop AS s ON s.p = l.p WHERE l.v = 3 AND l.q = 4 AND l.n = 2 AND l.t = 't9'"
    pair.same(query)
    assert "Nested Loop" not in pair.explain(query)
    pair.execute("SET enable_hashjoin = off")
    pair.same(query)
    pair.execute("RESET enable_hashjoin")
