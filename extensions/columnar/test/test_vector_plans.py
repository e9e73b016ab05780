"""Plans with the vectorised node: what it leaves to core, and what its keys are.

Found by comparing with heap twins all that may stand in a grouped query, in all kinds of plans.
"""

from __future__ import annotations

import pytest

from extensions.columnar.test.twins import Twins

NODE = "ColumnarAggregate"


@pytest.fixture
def table(twins: Twins) -> Twins:
    """t: 7 values of k and a NULL, 1000 of v, of which some are of each k."""
    twins.execute(
        "SET max_parallel_workers_per_gather = 0",
        "CREATE TABLE t (id integer PRIMARY KEY, k integer, w text, v integer)",
        "INSERT INTO t SELECT g, nullif(g % 8, 7), 'w' || g % 5, g * 31 % 1000 FROM generate_series(1, 10000) AS g",
        "ANALYZE t",
    )
    return twins


def keys_of_node(twins: Twins, query: str) -> str:
    """What EXPLAIN says are the keys of the vectorised node."""
    plan = twins.plan(query)
    assert NODE in plan, plan
    below = plan.split(NODE)[1]
    return below.split("Group Key: ")[1].splitlines()[0]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT grouping(k), k, count(*) FROM t GROUP BY k",
        "SELECT grouping(k), k FROM t GROUP BY k",
        "SELECT grouping(w, k) + 1, k, w, sum(v) FROM t GROUP BY k, w",
        "SELECT k, count(*) FROM t GROUP BY k HAVING grouping(k) = 0",
        "SELECT k, count(*) FROM t GROUP BY k ORDER BY grouping(k), k",
    ],
)
def test_grouping_without_sets(table: Twins, query: str) -> None:
    """GROUPING() may stand in a query without grouping sets, and only an Agg node can evaluate it."""
    table.same(query)


@pytest.mark.parametrize("hashed", ["on", "off"])
def test_keys_that_are_constant(table: Twins, hashed: str) -> None:
    """There is nothing to sort by if conditions say the value of each key."""
    table.execute(
        f"SET enable_hashagg = {hashed}",
        "SET plan_cache_mode = force_generic_plan",
        "PREPARE by_parameter (integer) AS SELECT $1, sum(v + $1) FROM t GROUP BY $1",
    )
    table.all_same(
        [
            "SELECT k, count(*), sum(v) FROM t WHERE k = 5 GROUP BY k",
            "SELECT k, w, count(*) FROM t WHERE k = 5 AND w = 'w1' GROUP BY w, k",
            "SELECT k, w, count(*) FROM t WHERE k = 5 GROUP BY w, k",
            "SELECT k, max(w) FROM t WHERE k = 5000 GROUP BY k",
            "SELECT k % 2, w, count(*), sum(k) FROM t WHERE k % 2 = 1 GROUP BY k % 2, w",
            "SELECT 'x', count(*) FROM t GROUP BY 'x'::text",
            "EXECUTE by_parameter (4)",
            "EXECUTE by_parameter (NULL)",
        ]
    )


def test_columns_within_keys(table: Twins) -> None:
    """What is computed from a key does not make a key of the columns within it."""
    query = "SELECT k, v % 10, v % 10 + 1, count(*) FROM t GROUP BY k, v % 10 HAVING v % 10 < 9 ORDER BY v % 10, k"
    assert keys_of_node(table, query) == "k, (v % 10)"
    table.same(query)
    table.same("SELECT upper(w), length(upper(w)), min(id) FROM t GROUP BY upper(w)")
    table.same("SELECT 2 * (v / 100 + k), sum(v) FROM t GROUP BY v / 100 + k")


def test_keys_that_disappear(table: Twins) -> None:
    """`NOT v > 5` of the key `v > 5` becomes `v <= 5`, which is computed from a row of the group."""
    table.same("SELECT v > 5, NOT v > 5, count(*) FROM t GROUP BY v > 5")
    table.same("SELECT NOT (k > 3 AND v > 500), count(*) FROM t GROUP BY k > 3 AND v > 500")


def test_columns_that_keys_determine(table: Twins) -> None:
    """A primary key determines all columns, but not those of inheriting tables that repeat it."""
    query = "SELECT id, v, w, v + 1, count(*), max(k) FROM t WHERE id < 50 GROUP BY id"
    table.same(query)
    table.execute(
        "CREATE TABLE parent (id integer PRIMARY KEY, s text)",
        "CREATE TABLE child () INHERITS (parent)",
        "INSERT INTO parent SELECT g, 'p' FROM generate_series(1, 3000) AS g",
        "INSERT INTO child SELECT g % 30 + 1, 'c' || g FROM generate_series(1, 3000) AS g",
        "ANALYZE parent, child",
    )
    # which s is shown is not defined
    table.same(
        "SELECT count(*), sum(c), count(DISTINCT id), count(s)"
        " FROM (SELECT id, s, count(*) AS c FROM parent GROUP BY id) AS q"
    )


def test_names_in_explain(table: Twins) -> None:
    """Keys are written with their table where core does so: if the query has several."""
    assert keys_of_node(table, "SELECT k, count(*) FROM t GROUP BY k") == "k"
    several = "SELECT k, count(*) FROM t GROUP BY k HAVING count(*) > (SELECT count(id) / 9 FROM t)"
    (name,) = {
        line.split(": ")[1] for line in table.plan(several).splitlines() if "Group Key" in line
    }
    assert name == "t.k"
