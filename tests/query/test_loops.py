"""Nested loops over columnar shards: not where the estimate of the outer side says nothing, but for look-ups by keys."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

TABLES = """
CREATE TABLE item (o integer, n integer, s integer, sent date, due date, PRIMARY KEY (o, n));
CREATE TABLE orders (o integer PRIMARY KEY, c integer, status char(1));
CREATE TABLE note (o integer PRIMARY KEY, t text);
"""
ROWS = """
INSERT INTO orders SELECT o, o % 900, CASE o % 3 WHEN 0 THEN 'F' ELSE 'O' END FROM generate_series(1, 12000) AS o;
INSERT INTO item SELECT o, n, (o * 7 + n * 13) % 50, date '2024-01-01' + (o * n) % 40, date '2024-01-01' + (o + n * 11) % 40
  FROM generate_series(1, 12000) AS o, generate_series(1, 4) AS n;
INSERT INTO note SELECT o, md5(o::text) FROM generate_series(1, 12000) AS o;
ANALYZE;
"""


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_loops") as made:
        made.execute(TABLES)
        made.distribute("item", "o", "none")
        made.distribute("orders", "o", "item")
        made.distribute("note", "o", "item")
        made.execute(ROWS)
        yield made


def loops(pair: Pair, query: str) -> bool:
    return "Nested Loop" in pair.explain(query, "VERBOSE, COSTS OFF")


LATE = (
    "SELECT a.s, count(*) FROM item AS a JOIN orders USING (o) WHERE status = 'F' AND a.sent > a.due"
    " AND EXISTS (SELECT FROM item AS b WHERE b.o = a.o AND b.s <> a.s)"
    " AND NOT EXISTS (SELECT FROM item AS b WHERE b.o = a.o AND b.s <> a.s AND b.sent > b.due) GROUP BY a.s"
)


def test_no_loop_over_what_nobody_can_estimate(pair: Pair) -> None:
    """TPC-H's 21st query: no row is expected of the anti join, and a third of them comes."""
    pair.same(LATE)
    assert not loops(pair, LATE), pair.explain(LATE, "VERBOSE")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM orders JOIN note USING (o) WHERE o = 77",
        "SELECT * FROM orders JOIN note USING (o) JOIN item USING (o) WHERE orders.o = 77 AND item.n = 2",
    ],
)
def test_look_ups_by_keys(pair: Pair, query: str) -> None:
    pair.same(query)
    assert loops(pair, query), pair.explain(query, "VERBOSE")


KEPT = (
    "WITH year AS (SELECT c, status, sum(o) AS total FROM orders GROUP BY c, status UNION ALL SELECT s, 'x', count(*) FROM item GROUP BY s)"
    " SELECT a.c, a.total, b.total, d.total FROM year AS a, year AS b, year AS d WHERE b.c = a.c AND d.c = a.c AND a.status = 'F' AND a.total > 0"
    " AND b.status = 'O' AND b.total > 0 AND d.status = 'x' AND d.total >= 0"
)


def test_no_loop_over_what_is_kept(pair: Pair) -> None:
    """One row is expected of each part of a WITH under three conditions, and there are hundreds."""
    pair.same(KEPT)
    assert not loops(pair, KEPT), pair.explain(KEPT, "VERBOSE")
    for query in (
        "WITH year AS (SELECT c, status, sum(o) AS total FROM orders GROUP BY c, status) SELECT * FROM year AS a LEFT JOIN year AS b ON b.c = a.c"
        " AND b.total > 5 AND b.status = 'O' WHERE a.status = 'F' AND a.total > 0",
        "WITH few AS MATERIALIZED (SELECT c, count(*) AS n FROM orders WHERE status = 'F' AND o > 0 GROUP BY c) SELECT count(*) FROM few AS f"
        " WHERE n > 0 AND n > 1 AND EXISTS (SELECT FROM few AS g JOIN item ON item.s = g.c WHERE g.n = f.n AND g.c = f.c)",
        "SELECT count(*) FROM (SELECT c, max(o) AS o FROM orders GROUP BY c OFFSET 0) AS a JOIN (SELECT s, min(o) AS o FROM item GROUP BY s"
        " OFFSET 0) AS b ON a.c = b.s WHERE a.o > 5 AND a.o > 6 AND a.o > 7 AND b.o < 50 AND b.o < 51",
    ):
        pair.same(query)
        assert not loops(pair, query), pair.explain(query, "VERBOSE")


def test_each_row_has_all_of_its_partners(pair: Pair) -> None:
    """The side that is unique is not always the one that the hash table is made of."""
    pair.execute("CREATE TABLE IF NOT EXISTS here (id integer PRIMARY KEY, w integer)")
    pair.execute(
        "INSERT INTO here SELECT i, i FROM generate_series(1, 40) AS i ON CONFLICT DO NOTHING; ANALYZE here"
    )
    for kept in ("MATERIALIZED", "NOT MATERIALIZED"):
        pair.same(
            f"WITH few AS {kept} (SELECT s, n, o FROM item WHERE o < 30 AND n < 3 AND sent > '2024-01-02') SELECT * FROM few JOIN here ON here.id = few.s"
        )
    pair.same(
        "SELECT h.w, q.n FROM (SELECT s, n FROM item WHERE o < 9 ORDER BY o, n LIMIT 20) AS q JOIN here AS h ON h.id = q.s"
    )
    pair.execute("DROP TABLE here")
