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
