"""What the keys of a join say about the rows of other tables: rows and blocks are left out, answers stay.

`fact` has row groups of which few blocks have a key that a filtered `a` has, `a`, `b` and `c` are its
dimensions.  Joins are made in the order in which they are written, so that the last one says something
to the scan at the bottom.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from extensions.columnar.test.random_story import PARALLEL
from extensions.columnar.test.twins import Twins, open_twins
from tests.cluster import Node

ORDER = (
    "SET join_collapse_limit = 1; SET enable_mergejoin = off; SET enable_nestloop = off;"
    " SET max_parallel_workers_per_gather = 0"
)
DIMENSION = "(k bigint, small integer, t text, p integer, n integer)"
FILL = (
    "SELECT CASE WHEN i % 17 > 0 THEN i END, i % 250, 'key ' || i, i % 7, i"
    " FROM generate_series(1, {rows}) AS i"
)


@pytest.fixture(scope="module")
def made(node: Node) -> Iterator[Twins]:
    with open_twins(node, "test_key_filters") as twins:
        twins.execute(
            "CREATE TABLE fact (id integer, a integer, b integer, c bigint, t text, x numeric)",
            "INSERT INTO fact SELECT i, CASE WHEN i % 23 > 0 THEN i / 20 END, i * 7 % 2000, i * 13 % 900, 'key ' || i % 999,"
            " i / 4.0 FROM generate_series(1, 60000) AS i",
            *(f"CREATE TABLE {name} {DIMENSION}" for name in "abc"),
            *(
                f"INSERT INTO {name} {FILL.format(rows=rows)}"
                for name, rows in (("a", 3000), ("b", 2000), ("c", 900))
            ),
            "INSERT INTO c SELECT * FROM c WHERE n % 50 = 3",
            "ANALYZE fact; ANALYZE a; ANALYZE b; ANALYZE c",
        )
        yield twins


@pytest.fixture
def tables(made: Twins) -> Iterator[Twins]:
    made.execute(ORDER)
    yield made
    made.reset()


def explain(twins: Twins, query: str) -> str:
    return twins.plan(query, "ANALYZE, COSTS OFF, TIMING OFF")


def count(plan: str, label: str) -> int:
    """The sum of a property over the nodes of a plan."""
    return sum(int(line.split(":")[1]) for line in plan.splitlines() if f"{label}:" in line)


def same_with_and_without(twins: Twins, query: str) -> str:
    """The plan, executed with key filters."""
    twins.execute("SET strata_columnar.enable_key_filters = off")
    twins.same(query)
    assert "Key Filters" not in explain(twins, query)
    twins.execute("RESET strata_columnar.enable_key_filters")
    twins.same(query)
    return explain(twins, query)


STAR = (
    "SELECT count(*), sum(f.x), count(b.n), min(f.t) FROM fact f {first} b ON f.b = b.k {second} c ON f.c = c.k"
    " {third} (SELECT * FROM a WHERE p = 3) AS a ON f.a = a.k WHERE f.id > 100"
)
KINDS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")


def test_rows_are_left_out_below_other_joins(tables: Twins) -> None:
    plan = same_with_and_without(
        tables,
        "SELECT f.id, b.t, a.t FROM fact f JOIN b ON f.b = b.k JOIN a ON f.a = a.k AND a.p = 3",
    )
    assert count(plan, "Rows Removed by Key Filters") > 40_000


def test_blocks_without_a_key_are_left_out(tables: Twins) -> None:
    """The keys' range is all of the table's, but there are few of them."""
    plan = same_with_and_without(
        tables, "SELECT count(*), sum(f.x) FROM fact f JOIN a ON f.a = a.k AND a.n % 1000 = 5"
    )
    assert 50 < count(plan, "Blocks Removed") < 60


@pytest.mark.sample(4)
@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("third", KINDS)
def test_kinds_of_joins(tables: Twins, first: str, second: str, third: str) -> None:
    same_with_and_without(tables, STAR.format(first=first, second=second, third=third))


@pytest.mark.parametrize("outer", ["JOIN", "LEFT JOIN"])
@pytest.mark.parametrize(
    "condition",
    [
        "EXISTS (SELECT FROM a WHERE a.k = f.a AND a.p = 3)",
        "NOT EXISTS (SELECT FROM a WHERE a.k = f.a AND a.p = 3)",
        "f.a IN (SELECT k FROM a WHERE p = 3)",
        "f.t IN (SELECT t FROM a WHERE p = 3)",
        "b.n IN (SELECT n FROM a WHERE p = 3)",
    ],
)
def test_semi_and_anti_joins(tables: Twins, outer: str, condition: str) -> None:
    source = f"fact f {outer} b ON f.b = b.k {outer} c ON f.c = c.k"
    same_with_and_without(
        tables, f"SELECT f.id, f.t, b.n, c.n FROM {source} WHERE {condition} AND f.id % 3 = 0"
    )


@pytest.mark.parametrize(
    "on",
    [
        "f.t = a.t",
        "f.t = a.t COLLATE \"C\"",
        "f.c = a.small",
        "f.a = a.k AND f.b = a.small",
        "f.a + 1 = a.k",
        "b.k = a.k",
        "c.small = a.small AND f.t = a.t",
        "f.x = a.n",
    ],
)  # fmt: skip
def test_keys(tables: Twins, on: str) -> None:
    same_with_and_without(
        tables,
        f"SELECT count(*), sum(f.id), sum(b.n), sum(a.n) FROM fact f JOIN b ON f.b = b.k JOIN c ON f.c = c.k"
        f" JOIN a ON {on} AND a.p = 3",
    )


def test_build_sides_get_fewer_rows(tables: Twins) -> None:
    """The keys of `a` reach `b`, which another join keeps."""
    plan = same_with_and_without(
        tables,
        "SELECT count(*), sum(f.x), sum(b.n) FROM (fact f JOIN b ON f.b = b.k) JOIN"
        " (SELECT * FROM a WHERE n % 2 = 0 AND n < 1999) AS a ON b.n = a.n",
    )
    assert count(plan, "Rows Removed by Key Filters") > 0


def test_without_rows_and_without_keys(tables: Twins) -> None:
    for condition in ("a.p = 99", "a.k IS NULL", "a.k < 0"):
        same_with_and_without(
            tables,
            "SELECT f.id, b.n, a.n FROM fact f LEFT JOIN b ON f.b = b.k"
            f" JOIN (SELECT * FROM a WHERE {condition}) AS a ON f.a = a.k",
        )


def test_rescans(tables: Twins) -> None:
    same_with_and_without(
        tables,
        "SELECT g, s.* FROM generate_series(0, 9) AS g, LATERAL (SELECT count(*), sum(f.id) FROM fact f"
        " JOIN b ON f.b = b.k JOIN c ON f.c = c.k JOIN a ON f.a = a.k AND a.p = g AND a.n % 3 <> g % 4) AS s",
    )


def test_parallel_processes(tables: Twins) -> None:
    tables.execute(PARALLEL)
    same_with_and_without(
        tables,
        STAR.format(first="JOIN", second="LEFT JOIN", third="JOIN").replace("f.id >", "f.id <>"),
    )


def test_build_sides_beyond_memory(tables: Twins) -> None:
    """A table of a part of the keys says nothing."""
    tables.execute("SET work_mem = '64kB'; SET hash_mem_multiplier = 1")
    for third in ("JOIN", "RIGHT JOIN"):
        plan = same_with_and_without(
            tables,
            "SELECT count(*), sum(f.x), sum(a.n) FROM fact f JOIN b ON f.b = b.k"
            f" {third} (SELECT * FROM a UNION ALL SELECT * FROM a) AS a ON f.a = a.k",
        )
        assert "Times Memory Was Full" in plan


def test_partition_trees(tables: Twins) -> None:
    tables.execute(
        "CREATE TABLE tree (c bigint, id integer, b integer, a integer) PARTITION BY RANGE (id)",
        "CREATE TABLE tree_1 (a integer, gone text, b integer, id integer, c bigint)",
        "ALTER TABLE tree_1 DROP COLUMN gone",
        "ALTER TABLE tree ATTACH PARTITION tree_1 FOR VALUES FROM (0) TO (30000)",
        "CREATE TABLE tree_2 PARTITION OF tree FOR VALUES FROM (30000) TO (70000)",
        "INSERT INTO tree SELECT c, id, b, a FROM fact; ANALYZE tree",
    )
    for leaves in (1, 3):
        tables.execute(f"SET strata_columnar.tree_scan_leaves = {leaves}")
        plan = same_with_and_without(
            tables,
            "SELECT f.id, b.n, a.n FROM tree f JOIN b ON f.b = b.k JOIN a ON f.a = a.k AND a.p = 3",
        )
        assert count(plan, "Rows Removed by Key Filters") > 0
    tables.execute("DROP TABLE tree")


def test_conditions_by_row(tables: Twins) -> None:
    """They see what the keys leave."""
    same_with_and_without(
        tables,
        "SELECT count(*), sum(f.id) FROM fact f JOIN b ON f.b = b.k JOIN a ON f.a = a.k AND a.p = 3"
        " WHERE f.id < 3000 AND f.id % 2 = (SELECT count(*) % 2 FROM c WHERE c.n < f.b / 500)",
    )


def test_row_security(tables: Twins) -> None:
    """What policies hide stays hidden, whichever table has them, and no function sees what it hides."""
    role = f"{tables.name}_reader"
    tables.columnar.execute(f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role}")
    tables.execute(
        "CREATE FUNCTION {schema}.tells(integer) RETURNS boolean COST 0.0001 LANGUAGE plpgsql AS"
        " $$ BEGIN IF $1 % 10 = 3 THEN RAISE 'saw %', $1; END IF; RETURN true; END $$",
        f"GRANT ALL ON SCHEMA {{schema}} TO {role}; GRANT SELECT ON fact, a, b TO {role}",
        "CREATE POLICY p ON fact USING (id % 10 <> 3); CREATE POLICY p ON a USING (n % 10 <> 3)",
    )
    query = (
        "SELECT count(*), sum(id), sum(a.n) FROM fact JOIN a ON fact.a = a.k JOIN b ON fact.b = b.k"
    )
    for protected in (("fact",), ("a",), ("fact", "a")):
        for table in protected:
            tables.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        tables.execute(f"SET ROLE {role}")
        for condition in ("a.n < 200", "a.n < 200 AND b.n > 20"):
            same_with_and_without(tables, f"{query} WHERE {condition}")
            if "fact" in protected:
                same_with_and_without(tables, f"{query} WHERE {condition} AND tells(fact.id)")
        tables.execute("RESET ROLE")
        for table in protected:
            tables.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
    tables.execute("DROP POLICY p ON fact; DROP POLICY p ON a; DROP FUNCTION {schema}.tells")
    tables.columnar.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
