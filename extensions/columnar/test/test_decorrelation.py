"""Correlated sub-selects over columnar tables become joins and give what they gave before.

The heap twin is the oracle: sub-selects over heap tables stay as they are written.  Tables are small,
where a sub-select may well be the cheaper plan, so most tests set enable_decorrelation to `always`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from extensions.columnar.test.twins import (
    Twins,
    open_twins,
    outcome_difference,
    tables_with_a_child_that_may_be_null,
)
from tests.cluster import Node

TABLES = (
    """CREATE TABLE o (id integer NOT NULL, k integer, g smallint, n bigint NOT NULL, v numeric, s text)""",
    """CREATE TABLE t (id integer PRIMARY KEY, k integer, j integer NOT NULL, x numeric(8, 2), y integer,
        s varchar(9), d date)""",
    """CREATE TABLE u (id integer, t integer NOT NULL, k bigint, z integer)""",
    """INSERT INTO o SELECT i, CASE WHEN i % 7 > 0 THEN i % 23 END, i % 5, i % 11, i * 37 % 101 / 10.0,
        's' || i % 9 FROM generate_series(1, 120) AS i""",
    """INSERT INTO t SELECT i, CASE WHEN i % 11 > 0 THEN i % 19 + 3 END, i % 6,
        CASE WHEN i % 13 > 0 THEN i * 53 % 97 / 7.0 END, i % 30, 's' || i % 7,
        date '2020-01-01' + i % 100 FROM generate_series(1, 400) AS i""",
    """INSERT INTO u SELECT i, i * 7 % 410, CASE WHEN i % 5 > 0 THEN i % 17 END, i % 50
        FROM generate_series(1, 250) AS i""",
    "CREATE VIEW tv AS SELECT * FROM t WHERE y > 3",
    "CREATE FUNCTION {schema}.wrap(bigint) RETURNS text STABLE LANGUAGE plpgsql AS"
    " $$ BEGIN RETURN coalesce($1::text, 'none'); END $$",
    "ANALYZE o; ANALYZE t; ANALYZE u",
)


def count_joins(plan: str, kind: str) -> int:
    """Joins of a kind, by rows or by batches, whichever side is looked up in."""
    kinds = [kind, "Right" if kind == "Left" else f"Right {kind}"]
    return sum(plan.count(f"{k} Join") + len(re.findall(f"Join: {k}$", plan, re.M)) for k in kinds)


ALWAYS = "SET strata_columnar.enable_decorrelation = always"


@pytest.fixture(scope="module")
def shared(node: Node) -> Iterator[Twins]:
    with open_twins(node, "decorrelation") as made:
        made.execute(*TABLES)
        yield made


@pytest.fixture
def tables(shared: Twins) -> Iterator[Twins]:
    """Tables that the test does not change."""
    shared.execute(ALWAYS)
    yield shared
    shared.reset()


@pytest.fixture
def own_tables(twins: Twins) -> Twins:
    """Tables that the test may change."""
    twins.execute(*TABLES, ALWAYS)
    return twins


def joined(twins: Twins, query: str) -> str:
    """The query gives the same rows, and runs without a sub-plan; its plan."""
    twins.same(query)
    plan = twins.plan(query, "VERBOSE, COSTS OFF")
    assert "SubPlan" not in plan, plan
    return plan


def left_alone(twins: Twins, query: str) -> None:
    """The query gives the same rows, by a plan with the sub-select as it is written."""
    twins.same(query)
    plan = twins.plan(query, "VERBOSE, COSTS OFF")
    assert "SubPlan" in plan, plan
    assert "decorrelated" not in plan, plan


# ---- scalar aggregates ------------------------------------------------------------------------------

# over groups, some of which are empty
EXPRESSIONS = (
    "count(*)",
    "count(x) + 1",
    "count(DISTINCT j)",
    "sum(x)",
    "coalesce(sum(x), 0) + 1",
    "0.2 * avg(x)",
    "avg(y)",
    "max(s) || min(s)",
    "max(x) - min(x) + count(*)",
    "CASE WHEN count(*) = 0 THEN -1 ELSE max(y) END",
    "CASE WHEN bool_or(y > 25) THEN 'some' END",
    "max(x) IS NULL",
    "sum(x) FILTER (WHERE y > 5)",
    "string_agg(s, ',' ORDER BY id)",
    "array_agg(y ORDER BY id DESC)",
    "wrap(count(*))",
    "wrap(sum(y))",
    "sum(x) / nullif(count(*) - 3, 0)",
    "o.v + max(x)",
    "max(x)::numeric(6, 1)",
    "stddev(x)",
    "12 / (count(*) + 1)",
)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_aggregate_of_matching_rows(tables: Twins, expression: str) -> None:
    select = f"(SELECT {expression} FROM t WHERE t.k = o.k)"
    joined(tables, f"SELECT id, {select} AS a FROM o")
    joined(tables, f"SELECT id FROM o WHERE {select} IS NULL")
    joined(tables, f"SELECT id FROM o WHERE {select}::text > '2'")


@pytest.mark.parametrize("expression", ["count(*)", "max(y)", "coalesce(sum(y), 5)"])
@pytest.mark.parametrize("comparison", ["<", "=", "<>", ">=", "IS DISTINCT FROM"])
def test_comparison_with_an_aggregate(tables: Twins, expression: str, comparison: str) -> None:
    select = f"(SELECT {expression} FROM t WHERE t.k = o.k)"
    joined(tables, f"SELECT * FROM o WHERE n {comparison} {select}")
    joined(tables, f"SELECT * FROM o WHERE NOT (n {comparison} {select})")


def test_strict_comparison_is_an_inner_join(tables: Twins) -> None:
    plan = joined(tables, "SELECT id FROM o WHERE v > (SELECT 0.2 * avg(x) FROM t WHERE t.k = o.k)")
    assert count_joins(plan, "Left") == 0, plan


@pytest.mark.parametrize(
    "condition",
    [
        "o.k = t.k",
        "t.k = o.k AND t.j = o.g",
        "t.k = o.n",
        "t.k = o.g AND t.k = o.n",
        "t.k + 1 = o.k",
        "t.s = o.s",
        't.s COLLATE "C" = o.s',
        "t.k = o.k AND t.y > 5 AND t.s LIKE 's%'",
        "t.k = o.k AND o.v > 4",
        "t.k = o.k AND o.s = 's2' AND t.y > 3",
        "t.x = o.v",
        "t.k = o.k AND t.id IN (SELECT t FROM u WHERE z > 10)",
        "t.k = abs(o.k)",
        "t.k = o.k AND 100 / (t.y + 1) > 5",
    ],
)
def test_correlating_conditions(tables: Twins, condition: str) -> None:
    for expression in ("count(*)", "sum(x)"):
        joined(
            tables,
            f"SELECT * FROM o WHERE n >= (SELECT {expression} FROM t WHERE {condition})",
        )
    tables.same(f"SELECT id, (SELECT sum(x) FROM t WHERE {condition}) FROM o")


@pytest.mark.parametrize(
    "source",
    [
        "t JOIN u ON u.t = t.id WHERE t.k = o.k",
        "t JOIN u ON u.t = t.id AND t.k = o.k",
        "t JOIN u ON u.t = t.id AND t.k = o.k WHERE u.k = o.n",
        "t LEFT JOIN u ON u.t = t.id AND z > 20 WHERE t.k = o.k",
        "u, t WHERE u.t = t.id AND u.k = o.k",
        "tv AS t WHERE t.k = o.k",
        "(SELECT k, x FROM t UNION ALL SELECT k, 1 FROM u) AS t WHERE t.k = o.k",
        "(SELECT k, max(x) AS x FROM t GROUP BY k, j) AS t WHERE t.k = o.k",
        "t JOIN u USING (k) WHERE k = o.k",
    ],
)
def test_sources_of_the_sub_select(tables: Twins, source: str) -> None:
    for expression in ("count(*)", "max(x)"):
        joined(tables, f"SELECT id, (SELECT {expression} FROM {source}) FROM o")
        joined(tables, f"SELECT id FROM o WHERE v <= (SELECT {expression} FROM {source})")


@pytest.mark.parametrize("having", ["count(*) > 15", "count(*) < 15", "max(x) > 12", "false"])
def test_having(tables: Twins, having: str) -> None:
    for expression in ("count(*)", "sum(x)", "'some'"):
        select = f"(SELECT {expression} FROM t WHERE t.k = o.k HAVING {having})"
        tables.same(f"SELECT id, {select} FROM o")
        tables.same(f"SELECT id FROM o WHERE {select} IS NULL")
    joined(tables, "SELECT id, (SELECT sum(x) FROM t WHERE t.k = o.k HAVING count(*) > 20) FROM o")


def test_redundant_clauses_of_one_row(tables: Twins) -> None:
    for clause in ("LIMIT 1", "ORDER BY 1", "ORDER BY 1 DESC LIMIT 2"):
        joined(tables, f"SELECT id, (SELECT max(x) FROM t WHERE t.k = o.k {clause}) FROM o")
    joined(tables, "SELECT id, (SELECT DISTINCT max(x) FROM t WHERE t.k = o.k) FROM o")


# ---- places -----------------------------------------------------------------------------------------

MAXIMUM = "(SELECT max(x) FROM t WHERE t.k = o.k)"
COUNT = "(SELECT count(*) FROM t WHERE t.k = o.k)"
OF_GROUP = "(SELECT max(x) FROM t WHERE t.j = o.g)"


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT id, {MAXIMUM}, {COUNT}, {MAXIMUM} + 1 FROM o",
        f"SELECT id, CASE WHEN g > 2 THEN {MAXIMUM} END FROM o",
        f"SELECT id, coalesce({MAXIMUM}, v, {COUNT}) FROM o",
        f"SELECT id FROM o WHERE v > {MAXIMUM} OR g = 1",
        f"SELECT id FROM o WHERE v > {MAXIMUM} OR {COUNT} = 0",
        f"SELECT id FROM o WHERE {COUNT} > 3 AND v < {MAXIMUM}",
        f"SELECT id FROM o WHERE {COUNT} BETWEEN 3 AND 20",
        f"SELECT id FROM o ORDER BY {COUNT}, id",
        f"SELECT DISTINCT {COUNT} FROM o",
        f"SELECT DISTINCT ON (g) g, id, {COUNT} FROM o ORDER BY g, {COUNT}, id",
        f"SELECT sum({COUNT}), max(v) FILTER (WHERE {MAXIMUM} > 5) FROM o",
        f"SELECT g, sum({COUNT}) FROM o GROUP BY g",
        f"SELECT {COUNT}, count(*) FROM o GROUP BY 1",
        f"SELECT {COUNT} + 1, {COUNT} * 2, count(*) FROM o GROUP BY {COUNT}",
        f"SELECT g, {OF_GROUP}, count(*) FROM o GROUP BY g",
        f"SELECT g FROM o GROUP BY g HAVING sum(v) > {OF_GROUP}",
        f"SELECT g FROM o GROUP BY g HAVING {OF_GROUP} > 5 AND count(*) > {OF_GROUP}",
        f"SELECT g, s, count(*) FROM o GROUP BY g, s HAVING max(v) < {OF_GROUP} ORDER BY g, s",
        f"SELECT id, sum({COUNT}) OVER (PARTITION BY g ORDER BY id) FROM o",
        f"SELECT a.id FROM o AS a JOIN o ON a.id = o.k AND a.v > {MAXIMUM}",
        f"SELECT a.id, o.id FROM o AS a LEFT JOIN (o JOIN u ON u.id = o.id AND o.v > {MAXIMUM})"
        " ON a.id = o.k",
        f"SELECT a.id, o.id FROM u AS a LEFT JOIN o ON a.id = o.id WHERE o.v > {MAXIMUM} OR {COUNT} = 0",
        f"SELECT a.id, {COUNT} FROM u AS a FULL JOIN o ON a.id = o.id",
        f"SELECT * FROM (SELECT id, {MAXIMUM} AS m FROM o) AS q WHERE m > 3",
        f"SELECT q.m, a.id FROM u AS a LEFT JOIN (SELECT id, {COUNT} AS m FROM o) AS q ON q.id = a.t",
        f"WITH q AS MATERIALIZED (SELECT id, {MAXIMUM} AS m FROM o) SELECT * FROM q AS a JOIN q USING (id)",
        f"SELECT id FROM u WHERE t IN (SELECT id FROM o WHERE v > {MAXIMUM})",
        f"SELECT id FROM u WHERE EXISTS (SELECT FROM o WHERE o.id = u.id AND v > {MAXIMUM})",
        f"SELECT id FROM u WHERE NOT EXISTS (SELECT FROM o WHERE o.id = u.id AND v > {MAXIMUM})",
        f"SELECT {COUNT} FROM o UNION ALL SELECT z FROM u",
        f"SELECT id, l.m FROM u, LATERAL (SELECT max(v) AS m FROM o WHERE v > {MAXIMUM}) AS l",
        "SELECT id, (SELECT max(t.x) FROM t WHERE t.k = o.k AND t.x < (SELECT avg(z) FROM u WHERE u.t = t.id)) FROM o",
        "SELECT k, (SELECT count(*) FROM t WHERE (t.k, t.j) = (o.k, o.g)) FROM o",
        "SELECT g FROM o GROUP BY g HAVING EXISTS (SELECT FROM t WHERE t.j = o.g AND y > 28)",
        f"SELECT g, sum({COUNT}) FROM o GROUP BY ROLLUP (g)",
        f"SELECT count(*) FROM o WHERE (v, n) < ({MAXIMUM}, 3)",
        f"SELECT greatest({MAXIMUM}, v), nullif({COUNT}, 3), ARRAY[{COUNT}] FROM o",
        f"SELECT id, generate_series(1, {COUNT}) FROM o WHERE id < 20",
        f"""WITH RECURSIVE r (id, m) AS (SELECT 1, 0.0 UNION ALL SELECT o.id, {MAXIMUM} FROM r
            JOIN o ON o.id = r.id + 1 WHERE o.id < 20) SELECT * FROM r""",
    ],
)
def test_places_of_the_sub_select(tables: Twins, query: str) -> None:
    joined(tables, query)


def test_equal_sub_selects_are_joined_once(tables: Twins) -> None:
    plan = joined(tables, f"SELECT id, {MAXIMUM} FROM o WHERE v < {MAXIMUM} ORDER BY {MAXIMUM}, id")
    assert plan.count(".t\n") == 1, plan


def test_insert_select_and_create_table_as(own_tables: Twins) -> None:
    own_tables.execute("CREATE TABLE r (id integer, m numeric)")
    own_tables.same(f"INSERT INTO r SELECT id, {MAXIMUM} FROM o WHERE {COUNT} > 2")
    own_tables.same("SELECT * FROM r")
    own_tables.same(f"CREATE TABLE r2 AS SELECT id, {MAXIMUM} AS m FROM o")
    own_tables.same("SELECT * FROM r2")
    own_tables.same(f"UPDATE r SET m = {MAXIMUM} FROM o WHERE o.id = r.id")
    own_tables.same(f"DELETE FROM r WHERE id IN (SELECT id FROM o WHERE v > {MAXIMUM})")
    own_tables.same("SELECT * FROM r")


def test_views(own_tables: Twins) -> None:
    own_tables.execute(
        f"CREATE VIEW w AS SELECT id, {MAXIMUM} AS m FROM o",
        f"CREATE VIEW b WITH (security_barrier) AS SELECT id, {COUNT} AS m FROM o",
    )
    joined(own_tables, "SELECT * FROM w WHERE m > 5")
    joined(own_tables, "SELECT * FROM b WHERE m > 5")


def test_functions_and_cursors(own_tables: Twins) -> None:
    own_tables.execute(
        "CREATE FUNCTION {schema}.f(low integer) RETURNS SETOF integer LANGUAGE plpgsql AS $$ BEGIN"
        " RETURN QUERY SELECT o.id FROM o WHERE o.v > (SELECT avg(x) FROM t WHERE t.k = o.k AND t.y > low);"
        " END $$"
    )
    for low in (0, 5, 0, 7, 8, 9, 10, 11):
        own_tables.same(f"SELECT * FROM f({low})")
    with own_tables.transaction():
        own_tables.execute(f"DECLARE c SCROLL CURSOR FOR SELECT id, {COUNT} FROM o ORDER BY id")
        for step in ("FETCH 5 FROM c", "FETCH BACKWARD 3 FROM c", "FETCH ALL FROM c"):
            own_tables.same(step)


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan", "auto"])
def test_prepared_statements(own_tables: Twins, mode: str) -> None:
    own_tables.execute(
        f"SET plan_cache_mode = {mode}",
        "PREPARE p (numeric, integer) AS SELECT id, (SELECT count(*) + $1 FROM t WHERE t.k = o.k AND t.y > $2)"
        " FROM o WHERE v > $1 * (SELECT avg(x) FROM t WHERE t.k = o.k AND t.j = $2)",
    )
    for arguments in ("0.5, 3", "1, 2", "0.1, 0", "NULL, 1", "0.2, NULL", "0.3, 4", "0.4, 5"):
        own_tables.same(f"EXECUTE p ({arguments})")
    own_tables.execute("ALTER TABLE o ALTER v TYPE numeric(9, 3)")
    own_tables.same("EXECUTE p (0.5, 3)")


def test_a_dropped_not_null_constraint_replans(own_tables: Twins) -> None:
    own_tables.execute(
        "PREPARE p AS SELECT id FROM o WHERE n NOT IN (SELECT j FROM t WHERE y > 20)"
    )
    plan = own_tables.plan("EXECUTE p")
    assert count_joins(plan, "Anti") > 0, plan
    own_tables.same("EXECUTE p")
    own_tables.execute("ALTER TABLE t ALTER j DROP NOT NULL", "UPDATE t SET j = NULL WHERE y = 25")
    assert own_tables.same("EXECUTE p") == []


# ---- EXISTS -----------------------------------------------------------------------------------------

EXISTS = (
    "SELECT 1 FROM t WHERE t.k = o.k AND y > 20",
    "SELECT * FROM t WHERE t.k = o.k AND t.j = o.g LIMIT 1",
    "SELECT DISTINCT y FROM t WHERE t.k = o.k ORDER BY y",
    "SELECT 1 FROM t JOIN u ON u.t = t.id AND t.k = o.k",
    "SELECT 1 FROM t JOIN u ON u.t = t.id AND t.k = o.k WHERE z > 30",
    "SELECT 1 FROM t WHERE t.k = o.k HAVING count(*) > 18",
    "SELECT sum(x) FROM t WHERE t.k = o.k HAVING sum(x) < 300",
    "SELECT max(s), min(d) FROM t WHERE t.k = o.k HAVING sum(x) < 300",
    "SELECT max(s) FROM t WHERE t.k = o.k HAVING min(y) > 1 AND count(*) < 19",
    "SELECT j FROM t WHERE t.k = o.k GROUP BY j HAVING count(*) > 4",
    "SELECT k FROM t WHERE t.k = o.k GROUP BY k HAVING count(*) > 4",
    "SELECT count(*) FROM t WHERE t.k = o.k",
    "WITH w AS (SELECT * FROM t WHERE y > 10) SELECT 1 FROM w WHERE w.k = o.k",
    "SELECT 1 FROM t WHERE t.k = o.k AND o.g > 2",
    "SELECT 1 FROM t WHERE t.k = o.k OR t.j = o.n",
    "SELECT 1 FROM t JOIN u ON u.t = t.id WHERE t.y > 20 AND (t.k = o.k AND u.z > 40 OR u.k = o.n)",
)


@pytest.mark.parametrize("select", EXISTS)
def test_exists(tables: Twins, select: str) -> None:
    joined(tables, f"SELECT id FROM o WHERE EXISTS ({select})")
    joined(tables, f"SELECT id FROM o WHERE NOT EXISTS ({select})")
    for query in (
        f"SELECT id FROM o WHERE EXISTS ({select}) OR g = 1",
        f"SELECT id FROM o WHERE NOT EXISTS ({select}) OR g = 1",
        f"SELECT id, EXISTS ({select}) FROM o",
        f"SELECT count(*) FILTER (WHERE EXISTS ({select})) FROM o",
        f"SELECT id, CASE WHEN g = 2 THEN NOT EXISTS ({select}) END FROM o",
        f"SELECT a.id, o.id FROM u AS a LEFT JOIN o ON a.id = o.id AND EXISTS ({select})",
    ):
        tables.same(query)


def test_exists_below_or_is_a_join(tables: Twins) -> None:
    joined(
        tables, "SELECT id FROM o WHERE EXISTS (SELECT FROM t WHERE t.k = o.k AND y > 20) OR g = 1"
    )


def test_exists_with_or_is_a_join_per_arm(tables: Twins) -> None:
    for place in ("WHERE EXISTS", "WHERE g = 1 OR NOT EXISTS"):
        plan = joined(
            tables, f"SELECT id FROM o {place} (SELECT FROM t WHERE t.k = o.k OR t.j = o.n)"
        )
        assert count_joins(plan, "Left") == 2, plan
    # an arm that cannot be joined
    tables.same("SELECT id FROM o WHERE EXISTS (SELECT FROM t WHERE t.k = o.k OR t.y < o.n)")


def test_not_exists_is_an_anti_join(tables: Twins) -> None:
    plan = joined(
        tables,
        "SELECT id FROM o WHERE NOT EXISTS (SELECT j FROM t WHERE t.k = o.k GROUP BY j HAVING count(*) > 4)",
    )
    assert count_joins(plan, "Anti") > 0, plan


# ---- IN, NOT IN, ANY, ALL ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "condition",
    [
        "n NOT IN (SELECT j FROM t WHERE y > 20)",
        "id NOT IN (SELECT t.id FROM t WHERE t.k = o.k)",
        "n <> ALL (SELECT j FROM t WHERE t.k = o.k)",
        "n <> ALL (SELECT j FROM t WHERE y > 20)",
        "n > ALL (SELECT j FROM t WHERE t.k = o.k)",
        "k NOT IN (SELECT j FROM t) AND k > 3",
        "n NOT IN (SELECT k FROM t WHERE k IS NOT NULL)",
        "n NOT IN (SELECT k FROM t WHERE k > 2 AND t.j = o.g)",
        "n NOT IN (SELECT j FROM t GROUP BY j HAVING count(*) > 66)",
        "n NOT IN (SELECT j FROM t ORDER BY id LIMIT 3)",
        "n NOT IN (SELECT j FROM (SELECT j FROM t WHERE y < 3) AS q)",
        "(n, id) NOT IN (SELECT j, id FROM t)",
        "n IN (SELECT j FROM t WHERE t.k = o.k)",
        "v IN (SELECT x FROM t WHERE t.k = o.k AND y > 3)",
        "(n, g) IN (SELECT j, y FROM t WHERE t.k = o.k)",
        "n < ANY (SELECT y FROM t WHERE t.k = o.k)",
        "n IN (SELECT max(j) FROM t WHERE t.k = o.k)",
        "n NOT IN (SELECT max(j) FROM t WHERE t.k = o.k)",
        "n <= ALL (SELECT count(*) FROM t WHERE t.k = o.k)",
        "NOT (n <= ALL (SELECT count(*) FROM t WHERE t.k = o.k)) OR n = ANY (SELECT min(j) FROM t WHERE t.k = o.k)",
    ],
)
def test_membership(tables: Twins, condition: str) -> None:
    joined(tables, f"SELECT id FROM o WHERE {condition}")


NULL_ROW = "INSERT INTO o VALUES (1000, NULL, NULL, -1, NULL, NULL)"


@pytest.mark.parametrize(
    "condition",
    [
        "n NOT IN (SELECT k FROM t)",
        "k NOT IN (SELECT k FROM t)",
        "k NOT IN (SELECT j FROM t WHERE y > 20)",
        "k NOT IN (SELECT j FROM t WHERE y > 200)",
        "k NOT IN (SELECT k FROM t WHERE y > 200)",
        "k <> ALL (SELECT k FROM t WHERE k < 3)",
        "n NOT IN (SELECT t.id FROM u LEFT JOIN t ON u.t = t.id)",
        "g + n NOT IN (SELECT j FROM t)",
        "g + n NOT IN (SELECT k + 1 FROM t WHERE k > 1) AND g > 0",
        "n::numeric NOT IN (SELECT x FROM t)",
    ],
)
def test_not_in_with_null(own_tables: Twins, condition: str) -> None:
    """NULL on either side, on none, and no rows at all."""
    for change in (
        "SELECT",
        NULL_ROW,
        "DELETE FROM t WHERE k IS NULL OR x IS NULL",
        "DELETE FROM t",
    ):
        own_tables.execute(change)
        joined(own_tables, f"SELECT id FROM o WHERE {condition}")
        own_tables.same(f"SELECT id FROM o WHERE NOT ({condition})")
        own_tables.same(f"SELECT count(*) FROM o JOIN u ON u.k = o.id AND {condition}")


@pytest.mark.parametrize(
    "condition",
    [
        "(n, k) NOT IN (SELECT j, id FROM t)",
        "n NOT IN (SELECT j FROM t GROUP BY ROLLUP (j))",
        "n NOT IN (SELECT j FROM t UNION SELECT id FROM u)",
        "n > ALL (SELECT k FROM t WHERE t.j = o.g)",
        "n NOT IN (SELECT j FROM t) OR g = 1",
        "k NOT IN (SELECT max(j) FROM t WHERE t.k = o.k HAVING count(*) > 15)",
        # which rows there are may differ from one time to the next
        "n NOT IN (SELECT k FROM t ORDER BY id LIMIT 30)",
        "n NOT IN (SELECT k FROM (SELECT k FROM t ORDER BY id LIMIT 30) AS q)",
        "n NOT IN (SELECT sum(k) FROM t)",
    ],
)
def test_membership_with_null(own_tables: Twins, condition: str) -> None:
    left_alone(own_tables, f"SELECT id FROM o WHERE {condition}")
    own_tables.execute(NULL_ROW)
    own_tables.same(f"SELECT id FROM o WHERE {condition}")


def test_not_in_with_an_outer_join_and_with_children(own_tables: Twins) -> None:
    own_tables.same(
        "SELECT u.id, o.id FROM u LEFT JOIN o ON o.id = u.t WHERE o.n NOT IN (SELECT j FROM t WHERE y > 20)"
    )
    own_tables.execute(
        *tables_with_a_child_that_may_be_null("p", "c"),
        "INSERT INTO p VALUES (1)",
        "INSERT INTO c VALUES (NULL)",
    )
    joined(own_tables, "SELECT id FROM o WHERE n NOT IN (SELECT a FROM p)")
    own_tables.execute("DELETE FROM c WHERE a IS NULL")
    joined(own_tables, "SELECT id FROM o WHERE n NOT IN (SELECT a FROM p)")


# ---- what stays -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "select",
    [
        "SELECT count(*) FROM t WHERE t.k < o.k",
        "SELECT count(*) FROM t WHERE t.k = o.k AND t.y > o.g",
        "SELECT count(*) FROM t WHERE t.k IS NOT DISTINCT FROM o.k",
        "SELECT sum(x + o.v) FROM t WHERE t.k = o.k",
        "SELECT max(x) FROM t WHERE t.k = o.k OR t.j = o.g",
        "SELECT max(x) FROM t WHERE t.k = o.k GROUP BY t.k",
        "SELECT count(*) FROM t LEFT JOIN u ON u.t = t.id AND u.k = o.k",
        "SELECT x FROM t WHERE t.id = o.id",
        "SELECT max(x) FROM t WHERE t.k = o.k LIMIT 0",
        "SELECT max(x) FROM t WHERE t.k = o.k OFFSET 1",
        "SELECT sum(random() * 0) FROM t WHERE t.k = o.k",
        "SELECT max(x) FROM t WHERE t.k = o.k UNION ALL SELECT 1 WHERE false",
        "SELECT sum(max(x)) OVER () FROM t WHERE t.k = o.k",
        "SELECT sum(100 / y) FROM t WHERE t.k = o.k AND y > 0",
        "SELECT sum(y * y) FROM t WHERE t.k = o.k",
        "SELECT max(x) FILTER (WHERE 100 / (y + 1) > 3) FROM t WHERE t.k = o.k",
        'SELECT max(x) FROM t WHERE t.s = o.s COLLATE "C"',
        "SELECT max(x) FROM t WHERE t.k = o.k AND t.j = (SELECT max(z) FROM u WHERE u.k = o.n)",
        "SELECT max(q.x) FROM (SELECT x FROM t WHERE t.k = o.k) AS q",
        "SELECT max(x) FROM t TABLESAMPLE BERNOULLI (100) WHERE t.k = o.k",
        "SELECT max(x) + (SELECT max(z) FROM u) FROM t WHERE t.k = o.k",
        "SELECT string_agg(s, ',') FROM t WHERE t.k = o.k",
    ],
)
def test_what_is_left_alone(tables: Twins, select: str) -> None:
    left_alone(tables, f"SELECT id, ({select}) FROM o")


def test_outer_queries_that_are_left_alone(own_tables: Twins) -> None:
    left_alone(own_tables, f"SELECT id FROM o WHERE v > {MAXIMUM} FOR UPDATE")
    left_alone(
        own_tables, "SELECT g, (SELECT max(x) FROM t WHERE t.j = o.g) FROM o GROUP BY ROLLUP (g)"
    )
    left_alone(
        own_tables, "SELECT g, (SELECT max(x) FROM t WHERE t.j = max(o.n)) FROM o GROUP BY g"
    )
    left_alone(own_tables, f"UPDATE o SET v = {MAXIMUM}")
    left_alone(own_tables, f"DELETE FROM o WHERE v > {MAXIMUM}")
    left_alone(
        own_tables, f"SELECT u.id, o.id FROM u LEFT JOIN o ON u.id = o.id AND o.v > {MAXIMUM}"
    )
    left_alone(
        own_tables,
        "SELECT u.id, f.f FROM u, LATERAL generate_series(1, (SELECT max(y) FROM t WHERE t.k = u.k)) AS f",
    )


def test_row_security(own_tables: Twins) -> None:
    role = f"{own_tables.name}_reader"
    own_tables.columnar.execute(f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role}")
    own_tables.execute(
        f"GRANT ALL ON SCHEMA {{schema}} TO {role}; GRANT SELECT ON o, t TO {role}",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY p ON t USING (y > 5)",
        f"SET ROLE {role}",
    )
    left_alone(own_tables, f"SELECT id FROM o WHERE v > {MAXIMUM}")
    own_tables.execute("RESET ROLE")
    joined(own_tables, f"SELECT id FROM o WHERE v > {MAXIMUM}")
    own_tables.execute(f"DROP OWNED BY {role}")
    own_tables.columnar.execute(f"DROP ROLE {role}")


def test_permission_on_the_table_of_the_sub_select_is_checked(own_tables: Twins) -> None:
    role = f"{own_tables.name}_reader"
    own_tables.columnar.execute(f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role}")
    own_tables.execute(
        f"GRANT USAGE ON SCHEMA {{schema}} TO {role}; GRANT SELECT ON o TO {role}; GRANT SELECT (k, x) ON t TO {role}",
        f"SET ROLE {role}",
    )
    joined(own_tables, f"SELECT id FROM o WHERE v > {MAXIMUM}")
    own_tables.fails("SELECT id FROM o WHERE v > (SELECT max(y) FROM t WHERE t.k = o.k)", "42501")
    for condition in (
        "EXISTS (SELECT FROM t WHERE t.j = o.k) OR g = 1",
        "EXISTS (SELECT count(*) FROM t WHERE t.j = o.k)",
        "n NOT IN (SELECT id FROM t)",
    ):
        own_tables.fails(f"SELECT id FROM o WHERE {condition}", "42501")
    own_tables.execute("RESET ROLE", f"DROP OWNED BY {role}")
    own_tables.columnar.execute(f"DROP ROLE {role}")


def test_plans_of_heap_tables_stay(tables: Twins) -> None:
    plan = "\n".join(
        line for (line,) in tables.heap.execute(f"EXPLAIN SELECT id FROM o WHERE v > {MAXIMUM}")
    )
    assert "SubPlan" in plan
    # the outer table does not count
    query = "SELECT id FROM {schema}.o WHERE v > (SELECT max(x) FROM %s_heap.t WHERE t.k = o.k)"
    assert "SubPlan" in tables.plan(query % tables.name)


def test_partitions_count_as_their_table(own_tables: Twins) -> None:
    own_tables.execute(
        "CREATE TABLE parted (LIKE t) PARTITION BY RANGE (id)",
        "CREATE TABLE parted1 PARTITION OF parted FOR VALUES FROM (0) TO (200)",
        "CREATE TABLE parted2 PARTITION OF parted FOR VALUES FROM (200) TO (1000)",
        "INSERT INTO parted SELECT * FROM t",
        "ANALYZE parted",
    )
    joined(
        own_tables, "SELECT id FROM o WHERE v > (SELECT max(x) FROM parted AS t WHERE t.k = o.k)"
    )


# ---- the choice, and errors ---------------------------------------------------------------------------


def test_the_cheaper_form_is_taken(own_tables: Twins) -> None:
    own_tables.execute(
        "SET strata_columnar.enable_decorrelation = on",
        "CREATE TABLE big (id integer PRIMARY KEY, k integer, x integer)",
        "INSERT INTO big SELECT i, i % 5000, i % 77 FROM generate_series(1, 50000) AS i",
        "CREATE INDEX ON big (k)",
        "VACUUM ANALYZE big",
    )
    select = "(SELECT max(b.x) FROM big AS b WHERE b.k = big.k)"
    joined(own_tables, f"SELECT id FROM big WHERE x > {select}")
    few = f"SELECT id, {select} FROM big WHERE id = 77"
    own_tables.same(few)
    assert "SubPlan" in own_tables.plan(few)
    own_tables.execute("SET strata_columnar.enable_decorrelation = off")
    assert "SubPlan" in own_tables.plan(f"SELECT id FROM big WHERE x > {select}")


def test_the_setting_accepts_booleans(tables: Twins) -> None:
    for value in ("on", "off", "true", "false", "yes", "no", "1", "0", "always"):
        tables.columnar.execute(f"SET strata_columnar.enable_decorrelation = {value}")


@pytest.mark.parametrize(
    "query",
    [
        # a failing expression over the aggregates: only for keys of outer rows
        "SELECT id, (SELECT 10 / count(*) FROM t WHERE t.k = o.k) FROM o WHERE k BETWEEN 3 AND 20",
        "SELECT id, (SELECT 10 / count(*) FROM t WHERE t.k = o.k) FROM o",
        "SELECT id FROM o WHERE (SELECT sum(x) / (count(*) - 19) FROM t WHERE t.k = o.k) > 5",
        "SELECT id FROM o WHERE k < 5 AND (SELECT sum(x) / (count(*) - 19) FROM t WHERE t.k = o.k) > 5",
        "SELECT id, CASE WHEN k > 3 THEN (SELECT 10 / count(*) FROM t WHERE t.k = o.k) END FROM o WHERE k < 22",
        "SELECT id FROM o WHERE k = 4 AND (SELECT 10 / (max(y) - min(y)) FROM t WHERE t.k = o.k AND t.j = 1) > 0",
        # a failing argument
        "SELECT id, (SELECT sum(100 / (y - 7)) FROM t WHERE t.k = o.k AND t.j = o.g) FROM o WHERE id < 3",
        # a failing condition behind a guard
        "SELECT id, CASE WHEN g > 10 THEN (SELECT max(x) FROM t WHERE t.k = o.k AND 1 / (y - 7) > 0) END FROM o",
        "SELECT id FROM o WHERE g > 10 OR k = 3 AND v > (SELECT max(x) FROM t WHERE t.k = o.k AND t.j = 99 AND 1 / t.j > 0)",
        # a failing outer expression
        "SELECT id, CASE WHEN g > 0 THEN (SELECT max(x) FROM t WHERE t.k = 10 / o.g) END FROM o",
        # a group that overflows, which no outer row asks for
        "SELECT id, (SELECT (sum(t.y) * 1000000)::integer FROM t WHERE t.k = o.k AND t.y > 15) FROM o WHERE k < 3",
        # more than one row
        "SELECT id, (SELECT x FROM t WHERE t.k = o.k) FROM o",
        # a failing sub-select among the conditions, which are met in their order
        "SELECT id, (SELECT max(t.x) FROM t WHERE t.y > (SELECT 10 / (count(*) - 19) FROM t AS u WHERE u.k = t.k) AND t.s = upper(o.s)) FROM o",
        # a failing condition for rows that no outer row asks for
        "SELECT id FROM o WHERE n IN (SELECT t.j FROM t WHERE t.k = o.k + 1000 AND 1 / (t.y - 7) > 0)",
        # a failing comparison for rows that do not match
        "SELECT id FROM o WHERE n IN (SELECT 100 / (t.j - 3) FROM t WHERE t.k = o.k AND t.id = 1)",
    ],
)
def test_errors_are_the_same(tables: Twins, query: str) -> None:
    tables.same(query)


# ---- random queries -----------------------------------------------------------------------------------


class Author:
    """Writes queries with sub-selects of most shapes, of which no two filters can fail."""

    def __init__(self, seed: int):
        self.rng = random.Random(f"decorrelation {seed}")

    def pick(self, *choices: str) -> str:
        return self.rng.choice(choices)

    def source(self, outer: str) -> str:
        """FROM and WHERE of a sub-select over t, or u joined to it."""
        source = self.pick(
            "t", "t", "t", "tv AS t", "t JOIN u ON u.t = t.id", "t LEFT JOIN u ON u.t = t.id",
            "(SELECT * FROM t WHERE j <> 2) AS t", "t JOIN u AS uu ON uu.t = t.id AND t.k = {o}.k",
        ).format(o=outer)  # fmt: skip
        conditions = [
            self.pick(
                "t.k = {o}.k", "t.k = {o}.k", "t.k = {o}.k AND t.j = {o}.g", "{o}.n = t.j", "t.s = {o}.s",
                "t.k = {o}.g", "t.k - 2 = {o}.k", "t.x = {o}.v", "t.k < {o}.k", "(t.k = {o}.k OR t.j = {o}.n)", "t.k = {o}.k AND t.y > {o}.g",
            ).format(o=outer)
        ]  # fmt: skip
        extra = self.pick(
            "", "", "", "t.y > 12", "t.s LIKE 's%'", "{o}.g > 1", "t.x IS NOT NULL", "t.d > '2020-02-01'",
            "t.id NOT IN (SELECT id FROM t AS n WHERE n.k = t.k AND n.y > 20)",
            "t.x >= (SELECT avg(i.x) FROM t AS i WHERE i.k = t.k)",
            "EXISTS (SELECT FROM u AS e WHERE e.t = t.id)",
        ).format(o=outer)  # fmt: skip
        conditions += [extra] if extra else []
        return f"FROM {source} WHERE {' AND '.join(conditions)}"

    def number(self, outer: str = "o") -> str:
        """A scalar sub-select of a number."""
        expression = self.pick(
            "count(*)", "count(t.x)", "count(DISTINCT t.y)", "sum(t.x)", "avg(t.x)", "max(t.y)", "min(t.x) + 1",
            "coalesce(sum(t.y), -1)", "count(*) + max(t.y)", "sum(t.x) FILTER (WHERE t.y > 10)",
            "CASE WHEN count(*) > 10 THEN sum(t.x) ELSE count(*) END", "0.5 * sum(t.x)", f"{outer}.n - max(t.y)",
            "length(string_agg(t.s, '' ORDER BY t.id))", "length(wrap(count(*)))", "sum(t.y + 1)", "7",
            "coalesce(max(t.x), min(t.y), count(*))", "sum(t.x) / nullif(count(t.x), 0)",
        )  # fmt: skip
        having = self.pick("", "", "", " HAVING count(*) > 12", " HAVING max(t.x) < 11")
        if expression == "7" and not having:
            expression = "max(7)"
        return f"(SELECT {expression} {self.source(outer)}{having})"

    def condition(self, outer: str = "o", depth: int = 0) -> str:
        choice = self.rng.random()
        if choice < 0.35:
            comparison = self.pick("<", ">", "=", "<>", ">=", "IS NOT DISTINCT FROM")
            return f"{outer}.{self.pick('v', 'n', 'k')} {comparison} {self.number(outer)}"
        if choice < 0.6:
            rest = self.pick(
                "", "", " GROUP BY t.j HAVING count(*) > 3", " LIMIT 1", " ORDER BY t.y"
            )
            target = "t.j" if "GROUP" in rest else self.pick("1", "*", "t.y")
            if target == "1" and self.rng.random() < 0.2:
                rest = " HAVING count(*) > 8"
            return f"{self.pick('', 'NOT ')}EXISTS (SELECT {target} {self.source(outer)}{rest})"
        if choice < 0.8:
            operator = self.pick("IN", "NOT IN", "NOT IN", "<> ALL", "< ANY", ">= ALL")
            column = self.pick("t.j", "t.id", "t.k", "t.y", "max(t.j)", "count(*)")
            source = self.source(outer) if self.rng.random() < 0.7 else "FROM t WHERE t.y > 17"
            return f"{outer}.{self.pick('n', 'id', 'k', 'g')} {operator} (SELECT {column} {source})"
        if depth < 2:
            inner = [self.condition(outer, depth + 1) for _ in range(2)]
            return f"({inner[0]} {self.pick('OR', 'AND')} {self.pick('', 'NOT ')}{inner[1]})"
        return f"{outer}.g {self.pick('>', '<')} 2"

    def query(self) -> str:
        o = self.pick("o", "o", "(SELECT * FROM o WHERE g > 0) AS o")
        where = self.pick(
            "", f"WHERE {self.condition()}", f"WHERE {self.condition()} AND {self.condition()}"
        )
        shape = self.rng.randrange(9)
        if shape == 0:
            return f"SELECT o.id, {self.number()}, {self.number()} FROM {o} {where}"
        if shape == 1:
            return f"SELECT o.id, CASE WHEN {self.condition()} THEN {self.number()} END FROM {o} {where}"
        if shape == 2:
            grouped = f"(SELECT {self.pick('max(t.x)', 'count(*)')} FROM t WHERE t.j = o.g)"
            having = self.pick("", f"HAVING count(*) > {grouped}", f"HAVING max(v) <> {grouped}")
            return f"SELECT g, {grouped}, sum({self.number()}) FROM {o} {where} GROUP BY g {having}"
        if shape == 3:
            return f"SELECT u.id, o.id FROM u LEFT JOIN {o} ON u.t = o.id WHERE {self.condition()}"
        if shape == 4:
            return f"SELECT u.id, o.id FROM u JOIN {o} ON u.t = o.id AND {self.condition()} {where}"
        if shape == 5:
            return f"SELECT u.id FROM u WHERE u.k IN (SELECT o.n FROM {o} WHERE {self.condition()})"
        if shape == 6:
            return f"SELECT u.id, q.a FROM u LEFT JOIN (SELECT o.id, {self.number()} AS a FROM {o} {where}) AS q ON q.id = u.t"
        if shape == 7:
            return f"SELECT {self.number()} AS a, count(*) FROM {o} {where} GROUP BY 1"
        return f"SELECT o.* FROM {o} WHERE {self.condition()}"


def test_random_queries(tables: Twins) -> None:
    side = tables.columnar
    count = 150
    transformed = 0
    for seed in range(count):
        query = Author(seed).query()
        outcomes = []
        plans = []
        for mode in ("off", "always", "on"):
            side.execute(f"SET strata_columnar.enable_decorrelation = {mode}")
            outcomes.append(side.run(query))
            plans.append(tables.plan(query) if outcomes[0].sqlstate is None else "")
        for outcome in outcomes[1:]:
            difference = outcome_difference(outcome, outcomes[0], False)
            assert not difference, f"seed {seed}: {difference}\n{query}\n{plans[1]}"
        assert outcomes[0].sqlstate is None, f"seed {seed}: {outcomes[0]}\n{query}"
        transformed += plans[0] != plans[1]
    assert transformed > count / 2


def test_exists_without_columns(tables: Twins) -> None:
    """A sub-select that returns no column, and one row or none whatever it finds."""
    for condition in ("count(*) = 0", "max(y) > 20", "true"):
        tables.same(
            f"SELECT id FROM o WHERE EXISTS (SELECT FROM t WHERE t.k = o.k HAVING {condition})"
        )
