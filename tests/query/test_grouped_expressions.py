"""Groups by a view's expression, of which the planner makes another form where it is used: the groups are PostgreSQL's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

SCHEMA = """
CREATE TABLE p (id integer, n integer, g integer, PRIMARY KEY (id, n));
CREATE TABLE k (id integer PRIMARY KEY, g integer);
CREATE TYPE two AS (a integer, b integer);
CREATE VIEW w AS SELECT id, g, g + 1 AS v, g * 2 AS u, g % 3 AS rest, g > 2 AS large, g > 0 AND g < 3 AS middle,
    g < 1 OR g > 2 AS outside, ROW(g, g + 1)::two AS two FROM p;
CREATE VIEW kw AS SELECT id, g + 1 AS v FROM k;
"""

ROWS = """
INSERT INTO p SELECT i % 9, i, nullif(i % 5, 2) FROM generate_series(1, 90) i;
INSERT INTO k SELECT i, nullif(i % 4, 1) FROM generate_series(0, 12) i;
"""


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "grouped_expressions") as made:
        made.execute(SCHEMA)
        made.distribute("p", "id")
        made.reference("k")
        made.execute(ROWS)
        yield made


# The parser knows a grouped expression at the level of GROUP BY, not in sub-selects.
SUB_SELECTS = {
    "the target list": "SELECT (SELECT count(*) FROM k WHERE k.g = w.v), count(*) FROM {w} GROUP BY w.v",
    "beside the expression": "SELECT w.v, w.v * 2, (SELECT count(*) FROM k WHERE k.g = w.v) + w.v FROM {w} GROUP BY w.v",
    "parts of an expression": "SELECT (SELECT count(*) FROM k WHERE k.g = w.v * 2 - w.u) FROM {w} GROUP BY w.v, w.u",
    "HAVING": "SELECT count(*), min(id) FROM {w} GROUP BY w.v HAVING (SELECT count(*) FROM k WHERE k.g = w.v) > 2",
    "ORDER BY": "SELECT w.v, count(*) FROM {w} GROUP BY w.v ORDER BY (SELECT count(*) FROM k WHERE k.g = w.v), w.v",
    "ORDER BY alone": "SELECT count(*) FROM {w} GROUP BY w.v ORDER BY (SELECT sum(k.id + w.v) FROM k WHERE k.g = w.v)",
    "DISTINCT": "SELECT DISTINCT (SELECT count(*) FROM k WHERE k.g = w.v) FROM {w} GROUP BY w.v, w.id",
    "a window": "SELECT rank() OVER (ORDER BY (SELECT count(*) FROM k WHERE k.g = w.v)), count(*) FROM {w} GROUP BY w.v",
    "two levels below": "SELECT (SELECT count(*) FROM k WHERE k.g = w.u AND EXISTS (SELECT FROM k j WHERE j.g = w.v AND j.id < k.id))"
    " FROM {w} GROUP BY w.v, w.u",
    "a derived table": "SELECT (SELECT sum(q.n) FROM (SELECT k.g, k.id + w.v AS n FROM k WHERE k.g = w.v OFFSET 0) q) FROM {w} GROUP BY w.v",
    "EXISTS": "SELECT EXISTS (SELECT FROM k WHERE k.g = w.v AND k.id > 3), count(*) FROM {w} GROUP BY w.v",
    "NOT EXISTS": "SELECT count(*) FROM {w} GROUP BY w.v HAVING NOT EXISTS (SELECT FROM k WHERE k.g = w.v AND k.id > 9)",
    "IN": "SELECT w.v IN (SELECT k.g FROM k WHERE k.id > w.v), count(*) FROM {w} GROUP BY w.v",
    "ALL": "SELECT w.v >= ALL (SELECT k.g FROM k WHERE k.g < w.v + 2), count(*) FROM {w} GROUP BY w.v",
    "ARRAY": "SELECT ARRAY(SELECT k.id FROM k WHERE k.g = w.v ORDER BY k.id), count(*) FROM {w} GROUP BY w.v",
    "beside an aggregate of one": "SELECT sum((SELECT count(*) FROM k WHERE k.g = w.u)), (SELECT count(*) FROM k WHERE k.g = w.v)"
    " FROM {w} GROUP BY w.v",
    "an aggregate below": "SELECT (SELECT count(*) FROM k WHERE k.g = min(w.u) AND k.g < w.v) FROM {w} GROUP BY w.v",
    "an outer join": "SELECT (SELECT count(*) FROM k WHERE k.g = coalesce(kw.v, 2)) FROM {w} LEFT JOIN kw ON kw.id = w.v GROUP BY kw.v",
    "UNION ALL": "SELECT (SELECT count(*) FROM k WHERE k.g = w.v) FROM {w} GROUP BY w.v UNION ALL SELECT 1",
    "a joined sub-select": "SELECT k.id, q.n FROM k JOIN (SELECT w.v, (SELECT count(*) FROM k WHERE k.g = w.v) AS n"
    " FROM {w} GROUP BY w.v) q ON q.v = k.id",
    "a condition": "SELECT (SELECT count(*) FROM k WHERE NOT w.middle OR k.id = 3), count(*) FROM {w} GROUP BY w.middle",
    "the parts of a condition": "SELECT (SELECT count(*) FROM k WHERE w.middle AND k.id > 3), count(*) FROM {w} GROUP BY w.middle",
    "the parts of a row": "SELECT (SELECT count(*) FROM k WHERE w.two IS NULL), count(*) FROM {w} GROUP BY w.two",
}  # fmt: skip

# NOT (g > 2) has become g <= 2; below a window stands the column alone.
FORMS = {
    "NOT": "SELECT NOT w.large, count(*) FROM {w} GROUP BY w.large",
    "NOT of parts": "SELECT NOT w.middle, count(*) FROM {w} GROUP BY w.middle",
    "false": "SELECT w.large = false, count(*) FROM {w} GROUP BY w.large",
    "OR": "SELECT w.outside OR count(*) > 3, count(*) FROM {w} GROUP BY w.outside",
    "AND": "SELECT w.middle AND count(*) > 3, count(*) FROM {w} GROUP BY w.middle",
    "NOT in HAVING": "SELECT count(*) FROM {w} GROUP BY w.large, w.id HAVING NOT w.large OR count(*) > 5",
    "OR in HAVING": "SELECT count(*) FROM {w} GROUP BY w.outside, w.id HAVING w.outside OR count(*) > 5",
    "NOT beside a window": "SELECT rank() OVER (ORDER BY count(*)), NOT w.large FROM {w} GROUP BY w.large, w.id",
    "a window over NOT": "SELECT count(*) OVER (PARTITION BY NOT w.large), count(*) FROM {w} GROUP BY w.large, w.id",
    "a sub-select beside a window": "SELECT rank() OVER (ORDER BY count(*)), (SELECT count(*) FROM k WHERE k.g = w.rest)"
    " FROM {w} GROUP BY w.rest, w.id",
}  # fmt: skip

VIEWS = ("(SELECT * FROM w WHERE id = 2) w", "w")  # on one worker, on each


@pytest.mark.parametrize("query", SUB_SELECTS.values(), ids=list(SUB_SELECTS))
def test_sub_selects_ask_for_grouped_expressions(pair: Pair, query: str) -> None:
    pair.all_same(query.format(w=view) for view in VIEWS)


@pytest.mark.parametrize("query", FORMS.values(), ids=list(FORMS))
def test_other_forms_of_grouped_expressions_make_no_groups(pair: Pair, query: str) -> None:
    pair.all_same(query.format(w=view) for view in VIEWS)


def test_columns_beside_grouped_expressions_depend_on_the_primary_key(pair: Pair) -> None:
    query = "SELECT p.g, p.g * 3, count(*) FROM p GROUP BY p.id, p.n, p.g + 1"
    pair.same(query)
    assert "GROUP BY" in pair.remote_sql(query)
