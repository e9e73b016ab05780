"""Correlated sub-selects over distributed tables become joins; PostgreSQL's answers and errors stay."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

TABLES = """
CREATE TABLE line (o integer, p integer, q integer, price numeric, note text);
CREATE TABLE empty (LIKE line);
CREATE TABLE part (p integer, brand text, size integer);
CREATE TABLE supply (p integer, s integer, cost integer);
CREATE TABLE here (p integer, w integer);
"""
ROWS = """
INSERT INTO line SELECT i / 3, nullif(i * 7919 % 97, 5), nullif(i % 31, 7), i / 3.0, 'n' || i % 4
  FROM generate_series(1, 2000) AS i;
INSERT INTO part SELECT i, 'b' || i % 5, i % 9 FROM generate_series(0, 110) AS i;
INSERT INTO part VALUES (NULL, 'none', 1), (3, 'b9', 2);
INSERT INTO supply SELECT i % 60, i % 7, i * 31 % 113 FROM generate_series(1, 300) AS i;
INSERT INTO here SELECT i * 5, i FROM generate_series(0, 30) AS i;
ANALYZE
"""


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_decorrelation") as made:
        made.execute(TABLES)
        made.distribute("line", "o")
        made.distribute("empty", "o", colocate_with="line")
        made.distribute("supply", "s")
        made.reference("part")
        for statement in ROWS.split(";"):
            made.execute(statement)
        yield made
        made.ours.execute("RESET strata.enable_decorrelation")


QUERIES = [
    "SELECT sum(l.price) FROM line AS l JOIN part USING (p) WHERE brand = 'b3' AND l.q < (SELECT 0.7 * avg(x.q)"
    " FROM line AS x WHERE x.p = part.p)",
    "SELECT p, (SELECT max(q) FROM line AS l WHERE l.p = part.p) FROM part",
    "SELECT p, (SELECT count(*) FROM line AS l WHERE l.p = part.p AND l.q > 10) FROM part",
    "SELECT p, (SELECT count(*) FROM empty AS l WHERE l.p = part.p), (SELECT sum(q) FROM empty AS l WHERE l.p = part.p)"
    " FROM part",
    "SELECT p FROM part WHERE 20 < (SELECT count(*) FROM line AS l WHERE l.p = part.p) AND size < 4",
    "SELECT w FROM here WHERE w > (SELECT min(q) FROM line AS l WHERE l.p = here.p)",
    "SELECT count(*) FROM line AS a WHERE a.q = (SELECT max(q) FROM line AS b WHERE b.p = a.p)",
    "SELECT count(*) FROM line AS a WHERE a.q > (SELECT avg(cost) FROM supply AS b WHERE b.p = a.p)",
    "SELECT p FROM part WHERE EXISTS (SELECT FROM line AS l WHERE l.p = part.p AND q > 28) OR EXISTS (SELECT FROM supply"
    " AS s WHERE s.p = part.p AND cost > 100)",
    "SELECT p, EXISTS (SELECT FROM line AS l WHERE l.p = part.p AND q > 29) FROM part",
    "SELECT p FROM part WHERE NOT EXISTS (SELECT FROM line AS l WHERE l.p = part.p GROUP BY l.note HAVING count(*) > 6)",
    "SELECT p FROM part WHERE EXISTS (SELECT FROM line AS l WHERE l.p = part.p HAVING count(*) = 0)",
    "SELECT o FROM line AS l WHERE EXISTS (SELECT FROM line AS m WHERE m.o = l.o HAVING count(*) < 3)",
    "SELECT p FROM part WHERE p IN (SELECT l.p FROM line AS l WHERE l.q = part.size)",
    "SELECT p FROM part WHERE p NOT IN (SELECT l.p FROM line AS l WHERE l.q = part.size)",
    "SELECT p FROM part WHERE size <= ALL (SELECT q FROM line AS l WHERE l.p = part.p)",
    "SELECT p FROM part WHERE size = ANY (SELECT max(q) FROM line AS l WHERE l.p = part.p)",
    "SELECT brand, sum((SELECT min(price) FROM line AS l WHERE l.p = part.p)) FROM part GROUP BY brand",
    "SELECT p FROM part WHERE (SELECT sum(s.cost) FROM supply AS s WHERE s.p = part.p AND EXISTS (SELECT FROM line AS l"
    " WHERE l.p = s.p AND l.q = s.cost)) > 0",
    "WITH sums AS (SELECT p, q, sum(price) AS total FROM line GROUP BY p, q) SELECT * FROM sums AS s WHERE total = (SELECT"
    " max(total) FROM sums AS t WHERE t.p = s.p)",
    "SELECT o, sum(q) FROM line AS l GROUP BY o HAVING sum(q) > (SELECT avg(m.q) * 2 FROM line AS m WHERE m.o = l.o)",
    "SELECT o, sum(q) > (SELECT avg(m.q) * 2 FROM line AS m WHERE m.o = l.o) FROM line AS l GROUP BY o",
    "SELECT o, (SELECT count(*) FROM line AS m WHERE m.o = l.o) + count(*) FROM line AS l GROUP BY o",
    "SELECT p, CASE WHEN size > 3 THEN (SELECT 10 / min(q) FROM line AS l WHERE l.p = part.p AND q > 0) END FROM part",
    "SELECT p, (SELECT count(*) FROM line AS l WHERE (l.p = part.p AND q < 5) OR (l.p = part.p AND q > 25 AND price > 100)) FROM part",
    "WITH sums AS (SELECT p, q, sum(price) AS total FROM line GROUP BY p, q) SELECT * FROM sums AS s WHERE total > (SELECT"
    " avg(total) * 1.2 FROM sums AS t WHERE t.p = s.p)",
    "WITH sums AS MATERIALIZED (SELECT p, sum(price) AS total FROM line GROUP BY p), l AS (SELECT * FROM line) SELECT o FROM l WHERE price >"
    " (SELECT total / 30 FROM sums WHERE sums.p = l.p) OR q IN (SELECT t.p FROM sums AS t WHERE t.p = l.p)",
    "WITH sums AS (SELECT p, sum(price) AS total FROM line GROUP BY p) SELECT (SELECT max(s.total) FROM sums AS s WHERE s.p = part.p) FROM part",
    "WITH sums AS (SELECT p, sum(price) AS total FROM line GROUP BY p) SELECT p FROM part WHERE NOT EXISTS (SELECT FROM sums AS s WHERE"
    " s.p = part.p HAVING count(*) > 0) AND p IN (SELECT p FROM sums)",
    "WITH sums AS (SELECT p, sum(price) AS total, random() AS r FROM line GROUP BY p) SELECT count(*) FROM sums AS s WHERE r = (SELECT max(r)"
    " FROM sums AS t WHERE t.p = s.p)",
    "WITH RECURSIVE up (n, p) AS (SELECT 1, p FROM part UNION ALL SELECT n + 1, p FROM up WHERE n < (SELECT count(*) FROM line AS l WHERE"
    " l.p = up.p) AND n < 5) SELECT n, p FROM up WHERE n = (SELECT max(n) FROM up AS v WHERE v.p = up.p)",
    "SELECT p, (SELECT max(s) FROM (WITH few AS (SELECT s, cost FROM supply) SELECT s FROM few WHERE cost = part.size) AS q) FROM part",
    "SELECT p.brand, (SELECT avg(q.size) FROM part AS q WHERE q.brand = p.brand) FROM part AS p WHERE size > (SELECT avg(r.size) FROM part"
    " AS r WHERE r.brand = p.brand)",
    "SELECT l.o FROM line AS l JOIN part AS p USING (p) WHERE p.size > 1.1 * (SELECT avg(q.size) FROM part AS q WHERE q.brand = p.brand)",
    # NULL on both sides, on one, and an empty sub-select
    "SELECT o, q FROM line WHERE p NOT IN (SELECT p FROM part)",
    "SELECT o, q FROM line WHERE q NOT IN (SELECT cost FROM supply)",
    "SELECT o, q FROM line WHERE o NOT IN (SELECT q FROM line WHERE q < 20)",
    "SELECT p FROM part WHERE p <> ALL (SELECT p FROM line WHERE p > 40)",
    "SELECT p FROM part WHERE p NOT IN (SELECT p FROM empty)",
    "SELECT p FROM here WHERE p NOT IN (SELECT q FROM line WHERE q IS NOT NULL AND o < 100)",
    "SELECT p FROM part WHERE size > 1 ORDER BY (SELECT count(*) FROM line AS l WHERE l.p = part.p) DESC, p LIMIT 5",
]
LEFT_ALONE = [
    "SELECT p, (SELECT q FROM line AS l WHERE l.p = part.p ORDER BY q, price LIMIT 1) FROM part WHERE p < 20",
    "SELECT p, (SELECT max(q) FROM line AS l WHERE l.p < part.p) FROM part WHERE p < 10",
    "SELECT p, (SELECT max(q) FROM line AS l WHERE l.p = part.p AND random() >= 0) FROM part WHERE p < 10",
    "SELECT p, (SELECT price FROM line AS l WHERE l.p = part.p AND l.o = part.size) FROM part WHERE p < 4",
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", ["off", "on", "always"])
@pytest.mark.parametrize("query", QUERIES)
def test_answers(pair: Pair, query: str, mode: str) -> None:
    pair.ours.execute(f"SET strata.enable_decorrelation = {mode}")
    pair.same(query)


@pytest.mark.parametrize("query", LEFT_ALONE)
def test_what_is_left_alone(pair: Pair, query: str) -> None:
    pair.ours.execute("SET strata.enable_decorrelation = always")
    pair.same(query)


def test_no_search_for_each_row(pair: Pair) -> None:
    for mode, searches in (("off", True), ("on", False)):
        pair.ours.execute(f"SET strata.enable_decorrelation = {mode}")
        assert ("SubPlan" in pair.explain(QUERIES[0])) is searches


def test_errors_and_parameters(pair: Pair) -> None:
    pair.ours.execute("SET strata.enable_decorrelation = always")
    pair.same(
        "SELECT p, (SELECT 1 / (count(*) - count(*)) FROM line AS l WHERE l.p = part.p) FROM part"
    )
    pair.same(
        "SELECT p FROM part WHERE p = 3 AND size = (SELECT q FROM line AS l WHERE l.p = part.p)"
    )
    for plans in ("force_custom_plan", "force_generic_plan"):
        pair.execute(f"SET plan_cache_mode = {plans}")
        pair.execute(
            "PREPARE above(integer) AS SELECT p FROM part WHERE $1 < (SELECT sum(q) FROM line AS l WHERE l.p = part.p"
            " AND l.q <> $1)"
        )
        for value in ("100", "NULL", "250"):
            pair.same(f"EXECUTE above({value})")
        pair.execute("DEALLOCATE above; RESET plan_cache_mode")


def test_writes(pair: Pair) -> None:
    pair.ours.execute("SET strata.enable_decorrelation = always")
    with pair.transaction():
        pair.same("INSERT INTO line SELECT i, 3, 999, 1, 'new' FROM generate_series(1, 40) AS i")
        pair.same("DELETE FROM line WHERE p = 4")
        pair.all_same(QUERIES)
        pair.same(
            "INSERT INTO here SELECT p, (SELECT max(q) FROM line AS l WHERE l.p = part.p) FROM part"
        )
        pair.same("SELECT * FROM here")
        pair.same("UPDATE here SET w = (SELECT count(*) FROM line AS l WHERE l.p = here.p)")
        pair.same("SELECT * FROM here")


def test_row_security(pair: Pair) -> None:
    pair.ours.execute("SET strata.enable_decorrelation = always")
    with pair.under_policy("line", "q < 20", "part"):
        pair.all_same(QUERIES[:2])
