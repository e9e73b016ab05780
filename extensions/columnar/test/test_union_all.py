"""UNION ALL below joins, aggregates, sorts and windows, read by batches: the heap's answers.

A branch is a table, a tree of partitions, or a sub-select with conditions, joins, groups; its columns are the table's or
computed, of all kinds of values.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from extensions.columnar.test.every_type import SETUP
from extensions.columnar.test.test_vector_groups import TYPES, fill_with
from extensions.columnar.test.test_vector_topn import DEFINITION, SERIAL, fill, fill_parts
from extensions.columnar.test.twins import Twins, open_twins
from tests.cluster import Node

PARALLEL = (
    "SET max_parallel_workers_per_gather = 2",
    "SET parallel_setup_cost = 0",
    "SET parallel_tuple_cost = 0",
    "SET min_parallel_table_scan_size = 0",
)

# What a branch selects: (k text, g integer, v numeric, f double precision, d date).
BRANCHES = {
    "columns": "SELECT word, up, price, real, day FROM t",
    "other columns": "SELECT plain::text, few::integer, free, real, day + 1 FROM t",
    "condition": "SELECT word, up, price, real, day FROM t WHERE few < 3",
    "constants": "SELECT 'web', up, 1.5, NULL::float8, date '2001-02-03' FROM t WHERE few = 1",
    "nulls": "SELECT NULL, NULL::integer, NULL::numeric, NULL::float8, NULL::date FROM t WHERE id < 50",
    "computed": "SELECT upper(word) || '!', up * 2 + 1, price * 3 - free, -real, day - few FROM t",
    "case": "SELECT CASE WHEN few = 1 THEN 'one' ELSE word END, coalesce(gaps, -up), wide, abs(real), day FROM t",
    "tree": "SELECT word, up, price, real, day FROM parts",
    "tree, computed": "SELECT lower(word), up + 7, price + 1, real / 2, day + few FROM parts WHERE up % 3 = 1",
    "join": "SELECT s.word, t.up, t.price + s.price, s.real, t.day FROM t JOIN s ON s.up = t.few WHERE t.up < 3000",
    "outer join": "SELECT s.word, t.up, s.price, s.real, t.day FROM t LEFT JOIN s ON s.up = t.gaps",
    "groups": "SELECT word, count(*)::integer, sum(price), max(real), min(day) FROM t GROUP BY word",
    "distinct": "SELECT DISTINCT word, few::integer, price, NULL::float8, day FROM s",
    "limit": "SELECT word, up, price, real, day FROM t ORDER BY up, id LIMIT 100",
    "window": "SELECT word, up, sum(price) OVER (PARTITION BY few), real, day FROM s",
    "empty": "SELECT word, up, price, real, day FROM t WHERE false",
    "none": "SELECT word, up, price, real, day FROM nothing",
    "values": "VALUES ('a', 1, 1.25, 'NaN'::float8, NULL::date), (NULL, NULL, NULL, NULL, NULL)",
    "function": "SELECT g::text, g, g / 4.0, g / 3.0::float8, date '2000-01-01' + g FROM generate_series(1, 99) AS g",
    "with": "(WITH w AS MATERIALIZED (SELECT * FROM s) SELECT word, up, price, real, day FROM w)",
    "sub-select": "SELECT word, up, price, (SELECT max(real) FROM s WHERE s.few = t.few), day FROM t WHERE up < 200",
    "set": "SELECT word, generate_series(1, few), price, real, day FROM s",
    "nested": "(SELECT word, up, price, real, day FROM s UNION ALL SELECT 'x', few, wide, 1, day FROM t)",
    "union": "(SELECT word, few::integer, price, real, day FROM s UNION SELECT 'x', few, wide, 1, day FROM s)",
    "heap": "SELECT word, up, price, real, day FROM heaped",
}  # fmt: skip

PAIRS = [(name, "condition") for name in BRANCHES] + [
    ("columns", "computed"),
    ("computed", "groups"),
    ("tree", "constants"),
    ("heap", "join"),
    ("constants", "case"),
]

# What is done with the union u.
USES = {
    "totals": "SELECT count(*), count(k), sum(v), min(f), max(d), count(DISTINCT g) FROM u",
    "groups": "SELECT k, count(*), sum(v), max(f), min(d) FROM u GROUP BY k",
    "groups by two": "SELECT k, g % 5, count(*), sum(g), avg(v) FROM u GROUP BY k, g % 5",
    "having": "SELECT d, count(*) FROM u WHERE v > 0 GROUP BY d HAVING count(*) > 1",
    "join": "SELECT count(*), sum(u.v), sum(s.id) FROM u JOIN s ON s.up = u.g",
    "filtered join": "SELECT s.few, count(*), sum(u.v) FROM u JOIN s ON s.up = u.g WHERE s.id % 7 = 1 GROUP BY 1",
    "join by text": "SELECT count(*), sum(u.v) FROM u JOIN (SELECT DISTINCT word FROM s) s ON s.word = u.k",
    "build side": "SELECT count(*), sum(u.v), max(t.up) FROM t JOIN u ON t.id = u.g AND u.f > 0",
    "left": "SELECT count(*), count(s.id), sum(u.g) FROM u LEFT JOIN s ON s.up = u.g AND s.few = 1",
    "right": "SELECT count(*), count(u.g), sum(s.id) FROM u RIGHT JOIN s ON s.up = u.g",
    "full": "SELECT count(*), count(s.id), sum(u.g) FROM u FULL JOIN s ON s.up = u.g",
    "semi": "SELECT count(*), sum(id) FROM t WHERE up IN (SELECT g FROM u WHERE f IS NOT NULL)",
    "anti": "SELECT count(*), sum(g) FROM u WHERE NOT EXISTS (SELECT FROM s WHERE s.up = u.g)",
    "sort": "SELECT k, g, v, f, d FROM u WHERE d IS NOT NULL ORDER BY k, g, v, f, d",
    "top": "SELECT k, g, v, f, d FROM u ORDER BY v DESC NULLS LAST, k, g, f, d LIMIT 20",
    "first": "SELECT DISTINCT ON (k) k, g, v, f, d FROM u ORDER BY k, g DESC, v, f, d",
    "window": "SELECT k, g, sum(g) OVER (PARTITION BY k ORDER BY g, v, f, d) FROM u ORDER BY 1, 2, 3",
    "rows": "SELECT * FROM u",
    "outer": "SELECT s.id, x.k, x.v FROM s LEFT JOIN (SELECT * FROM u) x ON x.g = s.up AND s.few = 2",
    "columns of none": "SELECT count(*) FROM u",
    "twice": "SELECT count(*), sum(a.v) FROM u a JOIN u b ON a.g = b.g AND a.k = b.k WHERE b.g < 40",
}  # fmt: skip


@pytest.fixture(scope="module")
def sides(node: Node) -> Iterator[Twins]:
    """t: three row groups, some rows deleted; parts: a tree with a member whose columns are in another order."""
    with open_twins(node, "test_union_all") as made:
        made.execute(
            SETUP,
            "SET strata_columnar.row_group_rows = 2000",
            SERIAL,
            f"CREATE TABLE t (id integer, {DEFINITION})",
            *fill("t", 6000),
            "DELETE FROM t WHERE id % 10 = 3 OR id BETWEEN 2500 AND 2600",
            f"CREATE TABLE s (id integer, {DEFINITION})",
            *fill("s", 700),
            f"CREATE TABLE nothing (id integer, {DEFINITION})",
            "CREATE TABLE heaped USING heap AS SELECT * FROM s",
            *fill_parts(4000, 0, 2000, 9000),
            "ANALYZE heaped; ANALYZE nothing",
        )
        yield made


@pytest.fixture
def tables(sides: Twins) -> Iterator[Twins]:
    yield sides
    sides.reset()
    sides.execute(
        "RESET ALL",
        SERIAL,
        "SET search_path = {schema}, public; SET default_table_access_method = {am}",
    )


def union(*branches: str) -> str:
    return " UNION ALL ".join(branches)


def use(name: str, *branches: str) -> str:
    return f"WITH u (k, g, v, f, d) AS NOT MATERIALIZED ({union(*branches)}) {USES[name]}"


@pytest.mark.sample(4)
@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_branches(tables: Twins, pair: tuple[str, str]) -> None:
    branches = [BRANCHES[name] for name in pair]
    for name in USES:
        tables.same(use(name, *branches))
        tables.same(use(name, *reversed(branches)))


@pytest.mark.parametrize("name", USES)
def test_in_parallel(tables: Twins, name: str) -> None:
    tables.execute(*PARALLEL)
    for branches in (
        ("columns", "computed", "tree"),
        ("join", "case"),
        ("columns", "groups"),
        ("condition", "heap"),
    ):
        tables.same(use(name, *(BRANCHES[branch] for branch in branches)))


@pytest.mark.parametrize(
    ("branches", "batches"),
    [
        (("columns", "condition"), True),
        (("columns", "computed"), True),
        (("constants", "tree"), True),
        (("join", "case"), True),
        (("columns", "groups"), True),
        (("columns", "values"), True),
        (("groups", "values"), False),
        (("columns", "heap"), True),
        (("columns", "set"), False),
    ],
    ids=lambda each: " and ".join(each) if isinstance(each, tuple) else str(each),
)
def test_plans(tables: Twins, branches: tuple[str, ...], batches: bool) -> None:
    plan = tables.plan(use("groups", *(BRANCHES[name] for name in branches)))
    assert ("Append" not in plan) == batches, plan
    assert not batches or "ColumnarAggregate" in plan, plan


@pytest.mark.sample(4)
@pytest.mark.parametrize("nulls", [0, 30])
@pytest.mark.parametrize("name", TYPES)
def test_every_type(tables: Twins, name: str, nulls: int) -> None:
    """Columns and what is computed of them, grouped, joined, sorted."""
    tables.execute("ALTER TABLE t RENAME TO kept")
    try:
        fill_with(tables, TYPES[name], 1500, nulls)
        both = "(SELECT id, v FROM t WHERE id < 900 UNION ALL SELECT -id, CASE WHEN id % 3 > 0 THEN v END FROM t) AS u"
        for query in (
            f"SELECT count(*), count(v), sum(id) FROM {both}",
            f"SELECT count(*), count(v), sum(id) FROM {both} GROUP BY v",
            f"SELECT count(*), sum(u.id), sum(o.id) FROM {both} JOIN t AS o ON o.id = u.id",
            f"SELECT count(*), sum(u.id) FROM {both} JOIN (SELECT v FROM t WHERE id % 50 = 1) AS o ON o.v = u.v",
            f"SELECT id, v FROM {both} ORDER BY v, id LIMIT 30",
            f"SELECT id, v FROM {both} WHERE v IS NULL",
        ):
            tables.same(query)
        tables.execute("DROP TABLE t")
    finally:
        tables.reset()
        tables.execute("DROP TABLE IF EXISTS t; ALTER TABLE kept RENAME TO t")


def test_volatile_columns_are_computed_once_for_each_row(tables: Twins) -> None:
    tables.execute("CREATE SEQUENCE counted")
    for query in (
        "SELECT max(n) - min(n) + 1, count(*) FROM (SELECT nextval('counted') AS n, up FROM t"
        " UNION ALL SELECT nextval('counted'), id FROM s) AS u",
        "SELECT count(*) FROM (SELECT nextval('counted') AS n, up FROM t UNION ALL SELECT 1, id FROM s) AS u"
        " JOIN s ON s.up = u.up",
    ):
        tables.same(query)
        tables.same("SELECT nextval('counted')")


def test_errors_of_rows_that_a_branch_leaves_out_do_not_come(tables: Twins) -> None:
    branches = (
        "SELECT 1000 / few AS n, up FROM t WHERE few > 0 UNION ALL SELECT 10 / (few - 1), id FROM s"
    )
    tables.same(
        "SELECT count(*), sum(n) FROM (SELECT 1000 / few AS n, up FROM t WHERE few > 0"
        " UNION ALL SELECT 10 / (few + 1), id FROM s) AS u"
    )
    tables.fails(f"SELECT count(*), sum(n) FROM ({branches}) AS u", "22012")
    tables.fails(f"SELECT count(*), sum(n) FROM ({branches}) AS u JOIN s ON s.up = u.up", "22012")


def test_scanned_again_with_other_parameters(tables: Twins) -> None:
    tables.execute(
        "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off"
    )
    for query in (
        "SELECT s.id, (SELECT sum(v) FROM (SELECT price AS v FROM t WHERE few = s.few"
        " UNION ALL SELECT free + s.id FROM s AS o WHERE o.up < s.up) AS u) FROM s WHERE s.id < 30 ORDER BY 1",
        "SELECT s.id, x.n, x.v FROM s, LATERAL (SELECT count(*) AS n, sum(v) AS v FROM (SELECT price AS v FROM t"
        " WHERE few = s.few UNION ALL SELECT s.price FROM parts WHERE parts.up < s.up) AS u) AS x WHERE s.id < 30",
        "SELECT count(*), sum(u.v) FROM (SELECT up, price AS v FROM t UNION ALL SELECT id, free + 1 FROM s) AS u"
        " JOIN (SELECT up FROM s WHERE id < 5) AS o ON o.up = u.up",
    ):
        tables.same(query)
    for mode in ("force_custom_plan", "force_generic_plan"):
        tables.execute(f"SET plan_cache_mode = {mode}")
        tables.execute(
            "PREPARE p (integer) AS SELECT k, count(*), sum(v) FROM (SELECT word AS k, price + $1 AS v FROM t WHERE few < $1"
            " UNION ALL SELECT 'x', free FROM s WHERE id > $1) AS u GROUP BY k"
        )
        for value in ("1", "3", "NULL", "-5"):
            tables.same(f"EXECUTE p ({value})")
        tables.execute("DEALLOCATE p")


def test_own_writes_and_cursors(tables: Twins) -> None:
    both = "(SELECT word AS k, up AS g FROM t UNION ALL SELECT word || '!', id FROM s) AS u"
    with tables.transaction("ROLLBACK"):
        tables.execute("UPDATE t SET up = up + 1 WHERE few = 1", "DELETE FROM s WHERE few = 2")
        tables.same(f"SELECT k, count(*), sum(g) FROM {both} GROUP BY k")
        tables.execute(f"DECLARE c CURSOR FOR SELECT k, count(*), sum(g) FROM {both} GROUP BY k")
        tables.execute("DELETE FROM t")
        tables.same("FETCH ALL FROM c", ordered=False)
        tables.same(f"SELECT k, count(*), sum(g) FROM {both} GROUP BY k")
    tables.same(f"CREATE TABLE made AS SELECT k, g, g * 2 AS h FROM {both}")
    tables.same(
        "INSERT INTO made SELECT upper(k), g, g FROM (SELECT * FROM made UNION ALL SELECT 'q', 1, 2) AS u"
    )
    tables.same("SELECT k, count(*), sum(g), sum(h) FROM made GROUP BY k")
    tables.execute("DROP TABLE made")


def test_system_columns_whole_rows_and_locks(tables: Twins) -> None:
    for query in (
        "SELECT n::text ~ 't$', count(*), sum(g) FROM (SELECT tableoid::regclass AS n, up AS g FROM t"
        " UNION ALL SELECT tableoid::regclass, id FROM s) AS u GROUP BY 1",
        "SELECT count(*), count(r), max((r).up) FROM (SELECT t AS r FROM t UNION ALL SELECT t FROM t WHERE few = 1) AS u",
        "SELECT count(u), sum(g) FROM (SELECT word, up AS g FROM t UNION ALL SELECT word, id FROM s) AS u WHERE u IS NOT NULL",
        "SELECT s.id, u.g FROM s JOIN (SELECT up AS g FROM t UNION ALL SELECT id FROM s) AS u ON u.g = s.id"
        " WHERE s.id < 20 ORDER BY 1, 2 FOR UPDATE OF s",
    ):
        tables.same(query)
