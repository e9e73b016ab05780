"""The whole aggregation in one node: results, HAVING, and more groups than memory holds."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest

from extensions.columnar.test.twins import Twins, open_twins
from tests.cluster import Node

SPLITTABLE = (
    "count(*), sum(n), avg(n), min(t), max(t), sum(i), avg(i), stddev(i), sum(f), bool_and(i > 3),"
    " corr(f, i), var_pop(n), avg(f)"
)


@pytest.fixture(scope="module")
def sides(node: Node) -> Iterator[Twins]:
    with open_twins(node, "test_vector_results") as made:
        made.execute(
            "SET max_parallel_workers_per_gather = 0",
            "CREATE TABLE t (id integer, g integer, i integer, n numeric(12, 2), f float8, t text) WITH (autovacuum_enabled = off)",
            "INSERT INTO t SELECT g, g % 9000, g % 11, g / 8.0, g % 4, CASE WHEN g % 10 > 0 THEN 'text ' || g % 77 END"
            " FROM generate_series(1, 40000) AS g",
            "INSERT INTO t SELECT g, NULL, NULL, 'NaN', NULL, NULL FROM generate_series(1, 10) AS g",
            # what the planner believes decides whether it expects the groups to fit
            "ALTER TABLE t ALTER id SET (n_distinct = 4), ALTER g SET (n_distinct = 4), ALTER t SET (n_distinct = 4)",
            "ANALYZE t",
        )
        yield made


def is_whole(twins: Twins, query: str) -> bool:
    plan = twins.plan(query)
    return (
        "ColumnarAggregate" in plan
        and "Partial" not in plan
        and "Finalize HashAgg" not in plan
        and "Finalize Group" not in plan
    )


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT g, {SPLITTABLE} FROM t GROUP BY g",
        f"SELECT g % 7, {SPLITTABLE} FROM t WHERE i <> 4 GROUP BY 1",
        "SELECT sum(n) FROM t GROUP BY g, i HAVING count(*) > 3 AND max(i) < 9",
        "SELECT g + 1, sum(n) / count(*), CASE WHEN min(i) > 2 THEN 'a' ELSE max(t) END FROM t GROUP BY g HAVING sum(n) > 20",
        "SELECT g FROM t GROUP BY g",
        "SELECT g, count(*) FILTER (WHERE i > 5), sum(n) FILTER (WHERE t IS NULL) FROM t GROUP BY g ORDER BY 2 DESC, 1 LIMIT 5",
        "SELECT g, sum(i) FROM t WHERE id < 0 GROUP BY g",
        "SELECT x, (SELECT count(*) FROM (SELECT g FROM t WHERE i = x GROUP BY g HAVING sum(i) > x) AS s) FROM generate_series(1, 4) AS x",
        "SELECT g, rank() OVER (ORDER BY sum(n), g) FROM t WHERE i < 3 GROUP BY g",
        "SELECT min(t), g, count(*) FROM t GROUP BY g HAVING count(*) > (SELECT min(i) FROM t)",
    ],
)  # fmt: skip
def test_results_equal_those_of_heap(sides: Twins, query: str) -> None:
    assert is_whole(sides, query), sides.plan(query)
    sides.same(query)


def test_one_grouping_set_is_cores(sides: Twins) -> None:
    sides.same(
        "SELECT g, grouping(g), count(*) FROM t GROUP BY GROUPING SETS (g) HAVING grouping(g) >= 0"
    )
    sides.same("SELECT g, count(*) FROM t GROUP BY (g) HAVING grouping(g) >= 0")


def test_a_key_that_is_shown_twice_is_one_key(sides: Twins) -> None:
    sides.same("SELECT id / 2000, id / 2000, count(*) FROM t GROUP BY id / 2000")
    sides.same("SELECT id / 2000 + 1, count(*) FROM t GROUP BY id / 2000 HAVING id / 2000 > 3")


@pytest.mark.parametrize("work_mem", ["64kB", "256kB"])
@pytest.mark.parametrize(
    "query",
    [
        f"SELECT g, {SPLITTABLE} FROM t GROUP BY g",
        "SELECT id, t, i, sum(n), max(t) FROM t GROUP BY id, t, i HAVING sum(n) > 10",
        "SELECT g, t, count(*) FROM t GROUP BY g, t",
    ],
)
def test_groups_that_do_not_fit_are_done_in_parts(sides: Twins, query: str, work_mem: str) -> None:
    """The planner is wrong about their number, by three orders of magnitude."""
    with sides.transaction(end="ROLLBACK"):
        sides.execute(f"SET LOCAL work_mem = '{work_mem}'; SET LOCAL hash_mem_multiplier = 1")
        assert is_whole(sides, query), sides.plan(query)
        plan = sides.plan(query, "ANALYZE, COSTS OFF, TIMING OFF")
        full = re.search(r"Times Memory Was Full: (\d+)", plan)
        assert full is not None, plan
        assert int(full[1]) >= 1
        sides.same(query)


def test_expected_groups_that_do_not_fit_are_done_in_parts_too(sides: Twins) -> None:
    query = "SELECT i, n, count(*) FROM t GROUP BY i, n"
    with sides.transaction(end="ROLLBACK"):
        sides.execute("SET LOCAL work_mem = '64kB'; SET LOCAL hash_mem_multiplier = 1")
        assert is_whole(sides, query), sides.plan(query)
        sides.same(query)


def test_aggregates_need_the_users_privilege(sides: Twins) -> None:
    side = sides.columnar
    side.execute(
        "CREATE AGGREGATE own_sum (integer) (SFUNC = int4_sum, STYPE = bigint, COMBINEFUNC = int8pl, PARALLEL = SAFE)"
    )
    side.execute("REVOKE EXECUTE ON FUNCTION own_sum(integer) FROM PUBLIC")
    side.execute("DROP ROLE IF EXISTS counting; CREATE ROLE counting")
    schema = side.execute("SELECT current_schema()")[0][0]
    side.execute(f"GRANT USAGE ON SCHEMA {schema} TO counting; GRANT SELECT ON t TO counting")
    query = "SELECT g, own_sum(i) FROM t GROUP BY g"
    assert "Finalize" not in sides.plan(query)
    assert len(side.execute(query)) == 9001
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="own_sum"):
        side.connection.execute(f"SET ROLE counting; {query}")
    side.connection.rollback()
    side.execute(
        "RESET ROLE; DROP OWNED BY counting; DROP ROLE counting; DROP AGGREGATE own_sum (integer)"
    )


def test_a_rewritten_query_reads_its_parts_again(sides: Twins) -> None:
    """A cursor that is closed half-way, and a rescan in the middle of several parts."""
    with sides.transaction(end="ROLLBACK"):
        sides.execute("SET LOCAL work_mem = '64kB'; SET LOCAL hash_mem_multiplier = 1")
        sides.execute("DECLARE c CURSOR FOR SELECT g, sum(n) FROM t GROUP BY g")
        assert len(sides.columnar.execute("FETCH 100 FROM c")) == 100
        sides.execute("CLOSE c")
        sides.same(
            "SELECT x, s FROM (VALUES (1), (5), (2)) AS v (x), LATERAL"
            " (SELECT sum(c) AS s FROM (SELECT g, count(*) AS c FROM t WHERE i <> x GROUP BY g ORDER BY g LIMIT 8000) AS q) AS r"
            " WHERE s > 7000 OR s IS NULL"
        )
