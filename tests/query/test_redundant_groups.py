"""GROUP BY columns of which others, or constants, decide: core leaves them out below windows, SQL for workers must name them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair


@pytest.fixture(scope="module", params=["columnar", "heap", "reference"])
def pair(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with open_pair(cluster, "redundant_groups") as made:
        made.execute(
            "CREATE TABLE p (id integer PRIMARY KEY, g integer, v integer);"
            "CREATE TABLE q (id integer NOT NULL UNIQUE, g integer, v integer);"
        )
        for table in ("p", "q"):
            if request.param == "reference":
                made.reference(table)
            else:
                colocated = "none" if table == "p" else "p"
                made.distribute(table, "id", colocated, storage=request.param)
            made.execute(
                f"INSERT INTO {table} SELECT i, nullif(i % 5, 2), i % 3 FROM generate_series(1, 90) i"
            )
        yield made


QUERIES = [
    "SELECT id, g, rank() OVER (ORDER BY id) FROM {t} GROUP BY id, g",
    "SELECT g, rank() OVER (ORDER BY id) FROM {t} GROUP BY id, g",
    "SELECT rank() OVER (ORDER BY id) FROM {t} GROUP BY id, g HAVING g > 2",
    "SELECT id, g + 1, sum(count(*)) OVER (PARTITION BY id) FROM {t} GROUP BY id, g + 1, g",
    "SELECT g, v, count(*) OVER () FROM {t} WHERE g = 1 GROUP BY g, v",
    "SELECT v, sum(count(*)) OVER (ORDER BY v), sum(max(id)) OVER () FROM {t} WHERE g = 1 GROUP BY g, v",
    "SELECT g, count(*) OVER () FROM {t} WHERE g = 1 GROUP BY g",
    "SELECT count(*) OVER (), sum(id) FROM {t} WHERE g = 1 GROUP BY g",
    "SELECT count(*) OVER (), sum(id) FROM {t} WHERE g = 77 GROUP BY g",
    "SELECT count(*) OVER () FROM {t} WHERE g = 77 GROUP BY g",
    "SELECT g, v, count(*) OVER (), count(DISTINCT id), sum(DISTINCT v) FROM {t} WHERE g = 1 GROUP BY g, v",
    "SELECT g, v, count(*) OVER () FROM {t} WHERE id = 7 AND g = 2 GROUP BY g, v",
    "SELECT g, count(*) OVER () FROM {t} WHERE v = 1 GROUP BY ROLLUP (g), v",
    "SELECT a.id, a.g, sum(count(*)) OVER (PARTITION BY a.id) FROM {t} a JOIN q USING (id) GROUP BY a.id, a.g",
    "SELECT a.id, a.g, b.v, rank() OVER (ORDER BY a.id) FROM {t} a JOIN q b ON a.v = b.id GROUP BY a.id, a.g, b.id, b.v",
    "SELECT DISTINCT g, count(*) OVER () FROM {t} GROUP BY id, g",
    "SELECT * FROM (SELECT id, g, row_number() OVER (ORDER BY id DESC) n FROM {t} GROUP BY id, g) s WHERE n < 4",
    "SELECT array_agg(v ORDER BY v) , g, max(max(v)) OVER () FROM {t} WHERE g = 3 GROUP BY g",
]


@pytest.mark.parametrize("table", ["p", "q"])
@pytest.mark.parametrize("query", QUERIES)
def test_groups_below_windows(pair: Pair, query: str, table: str) -> None:
    pair.same(query.format(t=table))


def test_views_and_generic_plans(pair: Pair) -> None:
    pair.execute("CREATE VIEW w AS SELECT id, g, rank() OVER (ORDER BY id) FROM p GROUP BY id, g")
    pair.same("SELECT * FROM w")
    pair.execute("SET plan_cache_mode = force_generic_plan")
    try:
        pair.execute(
            "PREPARE s(integer) AS SELECT g, v, count(*) OVER () FROM p WHERE g = $1 GROUP BY g, v"
        )
        pair.same("EXECUTE s(1)")
        pair.same("EXECUTE s(77)")
    finally:
        pair.execute("DEALLOCATE ALL; RESET plan_cache_mode")
