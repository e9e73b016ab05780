"""Nested loops that become hash joins: chosen by the outer rows that there are, and the answers are the heap's.

Of `outer_rows` few rows are expected where two columns are compared that always agree. `inner_rows` is found by
an index.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from extensions.columnar.test.twins import Twins, open_twins
from tests.cluster import Node


def all_are(*values: object) -> str:
    return " AND ".join(
        f"o.{column} = {value}" for column, value in zip("abcdef", values, strict=True)
    )


FEW = all_are(7, 7, 7, 7, 7, 7)  # 6000, and one or two are expected
NONE = all_are(7, 7, 7, 7, 7, 8)
SOME = all_are(11, 11, 11, 11, 11, 11)  # 6


@pytest.fixture(scope="module")
def made(node: Node) -> Iterator[Twins]:
    with open_twins(node, "test_late_joins") as twins:
        twins.execute(
            "CREATE TABLE outer_rows (id integer, k bigint, small smallint, t text, a integer, b integer, c integer, d integer, e integer, f integer, x numeric)",
            "INSERT INTO outer_rows SELECT i, CASE WHEN i % 13 > 0 THEN i * 7 % 60000 END, i % 100, 'key ' || i % 5000,"
            " v, v, v, v, v, v, i / 3.0"
            " FROM (SELECT i, CASE WHEN i <= 6000 THEN 7 ELSE i % 4000 END AS v FROM generate_series(1, 30000) AS i) AS q",
            "CREATE TABLE inner_rows (k bigint, n integer, t text, y numeric, z integer)",
            "INSERT INTO inner_rows SELECT i / 2, i, 'key ' || i % 20000, i / 7.0, nullif(i % 5, 0)"
            " FROM generate_series(1, 100000) AS i",
            "INSERT INTO inner_rows SELECT NULL, i, NULL, 1, 1 FROM generate_series(1, 50) AS i",
            "CREATE INDEX inner_k ON inner_rows (k); CREATE INDEX inner_t ON inner_rows (t)",
            "ANALYZE outer_rows; ANALYZE inner_rows",
        )
        yield twins


@pytest.fixture
def tables(made: Twins) -> Iterator[Twins]:
    made.execute("SET max_parallel_workers_per_gather = 0")
    yield made
    made.reset()
    made.execute(
        "RESET strata_columnar.enable_late_join; RESET strata_columnar.enable_decorrelation; RESET plan_cache_mode"
    )


def explain(twins: Twins, query: str) -> str:
    return twins.plan(query, "ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF")


def chosen(plan: str) -> str:
    """Which of the two joins has run: the one that it should be."""
    assert "ColumnarLateJoin" in plan, plan
    loop = re.search(r"Nested Loop.*\((never executed|actual)", plan).group(1)
    hashed = re.search(r"\(ColumnarJoin\).*\((never executed|actual)", plan).group(1)
    assert {loop, hashed} == {"never executed", "actual"}, plan
    limit = int(re.search(r"Nested Loop Up To: (\d+)", plan).group(1))
    rows = int(re.search(r"on outer_rows o \(actual rows=(\d+)", plan).group(1))
    assert (rows <= limit) == (loop == "actual"), plan
    return "loop" if loop == "actual" else "hash"


JOINS = {
    "inner": "SELECT count(*), sum(i.n), min(o.t), max(i.y) FROM outer_rows o JOIN inner_rows i ON i.k = o.k WHERE {}",
    "rows": "SELECT o.*, i.* FROM outer_rows o JOIN inner_rows i ON i.k = o.k WHERE {}",
    "left": "SELECT o.id, o.x, i.n, i.t FROM outer_rows o LEFT JOIN inner_rows i ON i.k = o.k WHERE {}",
    "left with conditions": "SELECT o.id, i.n FROM outer_rows o LEFT JOIN inner_rows i"
    " ON i.k = o.k AND i.z > 2 AND i.y < o.x + 9000 WHERE {}",
    "left with a filter": "SELECT o.id, i.n FROM outer_rows o LEFT JOIN inner_rows i ON i.k = o.k WHERE {} AND coalesce(i.z, 1) < 3",
    "semi": "SELECT o.id, o.t FROM outer_rows o WHERE {} AND EXISTS (SELECT FROM inner_rows i WHERE i.k = o.k AND i.n > o.id)",
    "anti": "SELECT o.id, o.x FROM outer_rows o WHERE {} AND NOT EXISTS (SELECT FROM inner_rows i WHERE i.k = o.k AND i.z = 3)",
    "text": "SELECT o.id, i.n FROM outer_rows o JOIN inner_rows i ON i.t = o.t WHERE {} AND i.z = 2",
    "computed": "SELECT o.id + 1, i.n * o.small, o.t || i.t FROM outer_rows o JOIN inner_rows i ON i.k = o.k WHERE {}",
    "no column": "SELECT 1 FROM outer_rows o JOIN inner_rows i ON i.k = o.k WHERE {}",
    "whole rows": "SELECT o, i FROM outer_rows o JOIN inner_rows i ON i.k = o.k WHERE {}",
    "conditions of both": "SELECT o.id, i.n FROM outer_rows o JOIN inner_rows i ON i.k = o.k AND i.y > o.x WHERE {}",
}


@pytest.mark.parametrize("name", JOINS)
@pytest.mark.parametrize("rows", [FEW, NONE, SOME], ids=["many", "none", "some"])
def test_the_outer_rows_choose(tables: Twins, name: str, rows: str) -> None:
    query = JOINS[name].format(rows)
    tables.same(query)
    plan = explain(tables, query)
    if "ColumnarLateJoin" in plan:
        assert rows == SOME or chosen(plan) == ("hash" if rows == FEW else "loop"), plan
    else:
        assert name == "whole rows", plan
    tables.execute("SET strata_columnar.enable_late_join = off")
    tables.same(query)
    assert "ColumnarLateJoin" not in explain(tables, query)


def test_as_many_rows_as_there_may_be_and_one_more(tables: Twins) -> None:
    query = "SELECT count(i.n), sum(o.id) FROM outer_rows o LEFT JOIN inner_rows i ON i.k = o.k WHERE o.id <= {} AND {}"
    limit = 0
    for rows in (3, 6, 12, 24, 48, 96, 192, 384):
        limit = int(
            re.search(r"Nested Loop Up To: (\d+)", explain(tables, query.format(rows, FEW))).group(
                1
            )
        )
        if limit <= rows:
            break
    assert 4 < limit < 384
    ways = Counter()
    for rows in range(limit - 3, limit + 4):
        tables.same(query.format(rows, FEW))
        plan = explain(tables, query.format(rows, FEW))
        ways[chosen(plan)] += 1
        limit = int(re.search(r"Nested Loop Up To: (\d+)", plan).group(1))
    assert set(ways) == {"loop", "hash"}


def test_it_is_chosen_anew_for_each_outer_row(tables: Twins) -> None:
    """A correlated sub-select that cannot be a join: few rows, many and few again."""
    query = (
        "SELECT v.n, (SELECT count(i.n) || ' ' || coalesce(sum(o.id), 0) FROM outer_rows o LEFT JOIN inner_rows i ON i.k = o.k"
        f" WHERE {all_are(*['v.n'] * 6)})"
        " FROM (VALUES (1), (7), (11), (7), (-1)) AS v (n)"
    )
    tables.execute("SET strata_columnar.enable_decorrelation = off")
    tables.same(query)
    assert "ColumnarLateJoin" in explain(tables, query), explain(tables, query)


def test_with_other_joins_above_and_below(tables: Twins) -> None:
    for query in (
        f"SELECT o.id, i.n, j.n FROM outer_rows o JOIN inner_rows i ON i.k = o.k JOIN inner_rows j ON j.k = i.n WHERE {FEW}",
        f"SELECT count(*) FROM outer_rows o JOIN inner_rows i ON i.k = o.k LEFT JOIN outer_rows p ON p.id = i.n WHERE {FEW}",
        f"SELECT * FROM (SELECT o.id, sum(i.n) FROM outer_rows o JOIN inner_rows i ON i.k = o.k WHERE {FEW} GROUP BY o.id) q"
        " JOIN inner_rows j ON j.k = q.id WHERE j.z = 1",
        f"SELECT o.id, i.n FROM outer_rows o JOIN inner_rows i ON i.k = o.k WHERE {FEW} ORDER BY o.id, i.n LIMIT 20",
        f"WITH w AS MATERIALIZED (SELECT * FROM outer_rows o WHERE {FEW}) SELECT w.id, i.n FROM w JOIN inner_rows i ON i.k = w.k",
    ):
        tables.same(query)


def test_parameters_and_cursors(tables: Twins) -> None:
    tables.execute(
        "SET plan_cache_mode = force_generic_plan",
        f"PREPARE late AS SELECT o.id, i.n FROM outer_rows o JOIN inner_rows i ON i.k = o.k WHERE {all_are(*['$1'] * 6)}",
    )
    for value in (7, 11, -1, 7):
        tables.same(f"EXECUTE late({value})")
    assert chosen(explain(tables, "EXECUTE late(7)")) == "hash"
    assert chosen(explain(tables, "EXECUTE late(11)")) == "loop"
    tables.execute("DEALLOCATE late")
    query = JOINS["rows"].format(FEW)
    tables.execute("BEGIN", f"DECLARE c SCROLL CURSOR FOR {query} ORDER BY o.id, i.n")
    for command in (
        "FETCH 10 FROM c",
        "FETCH BACKWARD 3 FROM c",
        "FETCH LAST FROM c",
        "FETCH FIRST FROM c",
    ):
        tables.same(command)
    tables.execute("COMMIT")


def test_first_rows_and_single_rows_are_left_alone(tables: Twins) -> None:
    tables.execute(
        "CREATE TABLE one (id integer PRIMARY KEY, k bigint)",
        "INSERT INTO one SELECT i, i FROM generate_series(1, 5000) i",
    )
    tables.execute("ANALYZE one")
    for query in (
        "SELECT * FROM one JOIN inner_rows i ON i.k = one.k WHERE one.id = 77",
        f"{JOINS['rows'].format(FEW)} LIMIT 3",
        "SELECT * FROM outer_rows o JOIN inner_rows i ON i.k = o.k WHERE o.id = 5 AND o.a = 7 FOR UPDATE OF o",
    ):
        assert "ColumnarLateJoin" not in explain(tables, query), explain(tables, query)
    tables.same("SELECT * FROM one JOIN inner_rows i ON i.k = one.k WHERE one.id = 77")
    tables.execute("DROP TABLE one")


def test_what_is_cancelled_leaves_nothing(tables: Twins) -> None:
    """An error in the middle of either way; the next query is as before."""
    for rows in (FEW, SOME):
        tables.same(
            f"SELECT 1 / (i.n - i.n) FROM outer_rows o JOIN inner_rows i ON i.k = o.k WHERE {rows}"
        )
        tables.same(
            f"SELECT 1 / (o.id - 29) FROM outer_rows o LEFT JOIN inner_rows i ON i.k = o.k WHERE {rows} AND 1 / (o.id - 30) < 2"
        )
        tables.same(JOINS["inner"].format(rows))
