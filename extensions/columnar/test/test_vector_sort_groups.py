"""Groups that ColumnarAggregate made are sorted by batches as core's Sort sorts them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from extensions.columnar.test.every_type import EVERY_TYPE, SETUP
from extensions.columnar.test.random_story import PARALLEL
from extensions.columnar.test.test_vector_groups import NOT_HASHED
from extensions.columnar.test.test_vector_topn import SERIAL
from extensions.columnar.test.twins import Twins
from tests.cluster import Node

NODE = "ColumnarSort"


@pytest.fixture(scope="module")
def made(node: Node) -> Iterator[Twins]:
    """g: 20 000 rows of 5 000 users, some NULL, in regions, with texts that a collation orders."""
    twins = Twins(node, "test_vector_sort_groups")
    twins.execute(
        SETUP,
        "CREATE TABLE g (id integer, u bigint, r integer, t text, c text COLLATE \"C\", n numeric(10, 2), f float8)",
        "INSERT INTO g SELECT i, CASE WHEN i % 29 > 0 THEN i * 7919 % 5000 END, i * 7919 % 5000 % 40,"
        " (ARRAY['b', 'B', 'a', 'ä', 'Z', '', '-c'])[1 + i % 7] || i % 300, 'c' || i % 1000,"
        " CASE WHEN i % 31 > 0 THEN i % 400 / 4.0 END, CASE i % 97 WHEN 1 THEN 'NaN' ELSE (i % 50)::float8 END"
        " FROM generate_series(1, 20000) AS i",
        "CREATE TABLE empty (u bigint, r integer); ANALYZE g; ANALYZE empty",
    )  # fmt: skip
    yield twins
    twins.reset()
    twins.verify()
    twins.drop()


@pytest.fixture
def tables(made: Twins) -> Iterator[Twins]:
    made.execute(SERIAL, "SET enable_indexscan = on")
    yield made
    made.reset()


def same_order(twins: Twins, query: str) -> None:
    assert NODE in twins.plan(query), twins.plan(query)
    twins.same(query, ordered=True)


QUERIES = [
    "SELECT u FROM g GROUP BY u ORDER BY u",
    "SELECT u, count(*) FROM g GROUP BY u ORDER BY u DESC",
    "SELECT r, u, sum(n) FROM g GROUP BY r, u ORDER BY r, u NULLS FIRST",
    "SELECT u, r, count(n) FROM g GROUP BY r, u ORDER BY r DESC, u DESC NULLS LAST",
    "SELECT u, r FROM g GROUP BY r, u ORDER BY u, r",
    "SELECT t, min(id) FROM g GROUP BY t ORDER BY t",
    "SELECT c, t, max(n) FROM g GROUP BY c, t ORDER BY c DESC, t",
    "SELECT t COLLATE \"C\" AS k, count(*) FROM g GROUP BY k ORDER BY k",
    "SELECT t, count(*) FROM g GROUP BY t ORDER BY t COLLATE \"C\"",
    "SELECT u, count(*) AS n, sum(id) FROM g GROUP BY u ORDER BY n DESC, u",
    "SELECT u, sum(n) / count(*), avg(f) FROM g GROUP BY u ORDER BY sum(n) / count(*) NULLS FIRST, u",
    "SELECT u % 1000 AS k, sum(id * 2) + 1, 'x', max(t) FROM g GROUP BY k ORDER BY k",
    "SELECT u FROM g GROUP BY u ORDER BY sum(n) DESC NULLS LAST, u",
    "SELECT f, n, count(*) FROM g GROUP BY f, n ORDER BY n, f",
    "SELECT u, count(*) FROM g GROUP BY u HAVING count(*) > 3 ORDER BY u",
    "SELECT u, count(DISTINCT t), sum(n) FILTER (WHERE r > 10) FROM g GROUP BY u ORDER BY u",
    "SELECT u, count(*) + (SELECT count(*) FROM empty) FROM g GROUP BY u ORDER BY u",
    "SELECT a.u, b.r, count(*) FROM g a JOIN g b ON a.u = b.u AND a.id < b.id GROUP BY a.u, b.r ORDER BY b.r, a.u",
]  # fmt: skip

# for which core has its own ways
OTHERS = [
    "SELECT u, array_agg(id ORDER BY id), string_agg(t, ',' ORDER BY id) FROM g GROUP BY u ORDER BY u",
    "SELECT u, r FROM empty GROUP BY u, r ORDER BY r, u",
    "SELECT u FROM g GROUP BY u ORDER BY u LIMIT 7",
    "SELECT u, r, count(*) FROM g GROUP BY ROLLUP (u, r) ORDER BY u, r, count(*)",
    "SELECT DISTINCT r, count(*) FROM g GROUP BY u, r ORDER BY r, count(*)",
    "SELECT DISTINCT ON (r) r, u, count(*) FROM g GROUP BY u, r ORDER BY r, count(*) DESC, u",
    "SELECT u, rank() OVER (ORDER BY count(*)), count(*) FROM g GROUP BY u ORDER BY u",
    "SELECT u, generate_series(1, 2) AS s FROM g GROUP BY u ORDER BY u, s",
    "SELECT u, (SELECT max(r) FROM g x WHERE x.u = g.u AND x.id < 40) FROM g WHERE id < 900 GROUP BY u ORDER BY u",
    "SELECT count(*) FROM g ORDER BY 1",
    "SELECT u FROM g WHERE false GROUP BY u ORDER BY u",
    "SELECT u FROM g GROUP BY u UNION ALL SELECT r FROM g GROUP BY r ORDER BY 1",
]  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
def test_queries(tables: Twins, query: str) -> None:
    same_order(tables, query)


@pytest.mark.parametrize("query", QUERIES)
def test_parallel_queries(tables: Twins, query: str) -> None:
    tables.execute(PARALLEL)
    tables.same(query, ordered=True)


@pytest.mark.parametrize("query", OTHERS)
def test_other_shapes(tables: Twins, query: str) -> None:
    tables.same(query)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "type_", [t for t in EVERY_TYPE if t.ordered and t.equal], ids=lambda t: t.name
)
def test_every_type(tables: Twins, type_) -> None:
    listed = ", ".join(f"({n}, {type_.literal(v)})" for n, v in enumerate(type_.values))
    tables.execute(
        "DROP TABLE IF EXISTS p, listed",
        f"CREATE TABLE listed (n integer, v {type_.name}) USING heap; INSERT INTO listed VALUES {listed}",
        f"CREATE TABLE p (id integer, v {type_.name})",
        f"INSERT INTO p SELECT i, CASE WHEN i % 9 > 0 THEN v END FROM generate_series(1, 3000) AS i"
        f" JOIN listed ON n = i % {len(type_.values)}",
        "ANALYZE p",
    )
    for order in ("v", "v DESC", "v NULLS FIRST"):
        # a key may have several forms: the group's first row says which is shown
        tables.same(f"SELECT count(*), min(id) FROM p GROUP BY v ORDER BY {order}", ordered=True)
    if type_.name not in NOT_HASHED:
        tables.same(
            "SELECT id % 500 AS k, max(v::text) AS m FROM p GROUP BY k ORDER BY k", ordered=True
        )


@pytest.mark.parametrize("memory", ["64kB", "300kB"])
def test_more_than_fits_into_memory(tables: Twins, memory: str) -> None:
    tables.execute(f"SET work_mem = '{memory}'; SET hash_mem_multiplier = 1")
    for query in QUERIES:
        tables.same(query, ordered=True)


def test_scanned_again(tables: Twins) -> None:
    tables.same(
        "SELECT k, s.* FROM generate_series(0, 5) AS k, LATERAL"
        " (SELECT u, count(*) FROM g WHERE r % 6 = k GROUP BY u ORDER BY u DESC OFFSET 0) AS s",
        ordered=True,
    )
    tables.same(
        "SELECT k, (SELECT array_agg(s.u) FROM (SELECT u FROM g WHERE r = k GROUP BY u ORDER BY u) AS s)"
        " FROM generate_series(0, 5) AS k"
    )


def test_cursors_and_prepared_statements(tables: Twins) -> None:
    query = "SELECT u, count(*) FROM g GROUP BY u ORDER BY u"
    tables.execute("BEGIN", f"DECLARE c SCROLL CURSOR FOR {query}")
    for fetch in ("10", "BACKWARD 3", "ABSOLUTE 2000", "ALL", "BACKWARD ALL"):
        tables.same(f"FETCH {fetch} FROM c", ordered=True)
    tables.execute("COMMIT", "SET plan_cache_mode = force_generic_plan")
    tables.execute(
        "PREPARE q (integer) AS SELECT u + $1 AS k, sum(id) FROM g WHERE r < $1 GROUP BY k ORDER BY k"
    )
    for value in ("3", "0", "NULL"):
        tables.same(f"EXECUTE q ({value})", ordered=True)
    tables.execute("DEALLOCATE q")


def test_statements_that_write(tables: Twins) -> None:
    tables.execute("CREATE TABLE kept AS SELECT u, count(*) AS n FROM g GROUP BY u ORDER BY u")
    tables.execute("INSERT INTO kept SELECT r, sum(id) FROM g GROUP BY r ORDER BY r")
    tables.same("SELECT * FROM kept")
    tables.execute("DROP TABLE kept")


def test_errors_are_core_s(tables: Twins) -> None:
    tables.same("SELECT u, 1 / (count(*) - 4) FROM g GROUP BY u ORDER BY u")
    tables.same("SELECT 1 / (u - 4), count(*) FROM g GROUP BY 1 ORDER BY 1")
