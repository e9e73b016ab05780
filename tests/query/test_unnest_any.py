"""A list of values that is written as a sub-select: a condition for the workers, and for the shards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

TABLES = """
CREATE TABLE line (k integer, v integer, t text, list integer[]);
CREATE TABLE other (k integer, w integer);
CREATE TABLE here (h integer, list integer[]);
"""
ROWS = """
INSERT INTO line SELECT i % 200, nullif(i % 17, 4), 't' || i % 30, ARRAY[i % 3, NULL, i % 5] FROM generate_series(1, 1500) AS i;
INSERT INTO line VALUES (NULL, NULL, NULL, NULL);
INSERT INTO other SELECT i, i % 9 FROM generate_series(1, 300) AS i;
INSERT INTO here SELECT i, ARRAY[i, i + 1] FROM generate_series(1, 12) AS i;
INSERT INTO here VALUES (50, NULL), (51, '{}');
ANALYZE line, other, here
"""


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_unnest_any") as made:
        made.execute(TABLES)
        made.distribute("line", "k")
        made.distribute("other", "k", colocate_with="line")
        made.execute(ROWS)
        yield made


SENT = [
    "SELECT k, v FROM line WHERE k = ANY (SELECT unnest(ARRAY[3, 7, 190]))",
    "SELECT k, v FROM line WHERE k IN (SELECT unnest('{3,NULL,7}'::integer[]) AS x)",
    "SELECT k, v FROM line WHERE v > ANY (SELECT unnest('{{9,12},{14,15}}'::integer[])) AND k < 50",
    "SELECT k, v FROM line WHERE k IN (SELECT unnest(NULL::integer[])) OR t IN (SELECT unnest(ARRAY['t3', 't4']))",
    "SELECT k, v FROM line WHERE k IN (SELECT unnest('{}'::integer[]))",
    "SELECT k, v FROM line WHERE v IN (SELECT unnest(line.list))",
    "SELECT count(*) FROM line JOIN other ON line.k = other.k AND v IN (SELECT unnest(ARRAY[w, 3]))",
    "SELECT k, count(*) FROM line GROUP BY k HAVING count(*) IN (SELECT unnest(ARRAY[8, 9]))",
    "SELECT k FROM other WHERE EXISTS (SELECT FROM line WHERE line.k = other.k AND v IN (SELECT unnest(ARRAY[other.w])))",
    "SELECT * FROM (SELECT k, v FROM line WHERE t LIKE ANY (SELECT unnest(ARRAY['%1', '%2'])) ) AS s WHERE k = 5",
]
AS_WRITTEN = [
    "SELECT k, v FROM line WHERE NOT (k IN (SELECT unnest(ARRAY[3, 7])))",
    "SELECT k, v FROM line WHERE k NOT IN (SELECT unnest(NULL::integer[]))",
    "SELECT k, v IN (SELECT unnest(NULL::integer[])), v IN (SELECT unnest(line.list)) FROM line",
    "SELECT k, v FROM line WHERE (k IN (SELECT unnest(NULL::integer[]))) IS NULL",
    "SELECT k, v FROM line WHERE (k, v) IN (SELECT unnest(ARRAY[3, 7]), 3)",
    "SELECT k, v FROM line WHERE k IN (SELECT unnest(ARRAY[3, 7]) LIMIT 1)",
    "SELECT k, v FROM line WHERE k IN (SELECT unnest(ARRAY[3, 7]) WHERE v > 3)",
    "SELECT k, v FROM line WHERE k IN (SELECT unnest(list) FROM here)",
    "SELECT k, v FROM line WHERE k IN (SELECT unnest(ARRAY[3, 7]) + 1)",
    "SELECT k, v FROM line WHERE k::numeric IN (SELECT unnest(ARRAY[3.0, 7.5]))",
    "SELECT k, v FROM line WHERE k IN (SELECT unnest((SELECT list FROM here WHERE h = 4)))",
    "SELECT h FROM here WHERE h IN (SELECT unnest(list))",
]


@pytest.mark.parametrize("query", SENT)
def test_the_list_is_sent(pair: Pair, query: str) -> None:
    pair.same(query)
    assert " ANY (" in pair.every_remote_sql(query)


@pytest.mark.parametrize("query", AS_WRITTEN)
def test_what_means_something_else(pair: Pair, query: str) -> None:
    pair.same(query)


def test_a_parameter_tells_the_shards(pair: Pair) -> None:
    for plans in ("force_custom_plan", "force_generic_plan"):
        pair.execute(f"SET plan_cache_mode = {plans}")
        pair.execute(
            "PREPARE some_of(integer[]) AS SELECT k, v FROM line WHERE k = ANY (SELECT unnest($1))"
        )
        for value in ("'{3}'", "'{3,4,5,6,7,8,9}'", "NULL", "'{NULL}'", "'{}'"):
            pair.same(f"EXECUTE some_of({value})")
        assert "Workers: 1 of 2" in pair.explain(
            "EXECUTE some_of('{3}')", "ANALYZE, COSTS OFF, TIMING OFF"
        )
        pair.execute("DEALLOCATE some_of; RESET plan_cache_mode")


def test_writes(pair: Pair) -> None:
    with pair.transaction():
        pair.same(
            "UPDATE line SET v = 99 WHERE k IN (SELECT unnest(ARRAY[1, 2, 3])) RETURNING k, t"
        )
        pair.same("DELETE FROM line WHERE v IN (SELECT unnest(ARRAY[99, 5])) RETURNING k, t")
        pair.same("DELETE FROM line WHERE k NOT IN (SELECT unnest(ARRAY[99, 5]))")
        pair.same("SELECT * FROM line")
