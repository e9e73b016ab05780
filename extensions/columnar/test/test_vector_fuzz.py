"""A bounded run of the fuzzer of vectors; see vector_fuzz.py for longer ones."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from extensions.columnar.test.random_expressions import EDGES, TYPES, Expr, Known, Maker
from extensions.columnar.test.random_queries import Asker, Query
from extensions.columnar.test.random_tables import COLUMN_KINDS, know_columns, make_world
from extensions.columnar.test.servers import make_node
from extensions.columnar.test.vector_fuzz import Fuzzer, difference_of, use_kernels
from tests.assert_same import Outcome
from tests.cluster import Cluster, Node
from tests.fixtures import new_root

CHUNKS = 4  # a failure in one chunk leaves the others to run
SEEDS = 32


def check(fuzzer: Fuzzer, seeds: range) -> None:
    failures = [failure for seed in seeds for failure in fuzzer.run(seed)]
    if failures:
        pytest.fail(f"{len(failures)} differences, the first:\n{fuzzer.reduce(failures[0])}")
    assert fuzzer.counts.errors < fuzzer.counts.queries * 0.05, fuzzer.counts
    assert fuzzer.counts.slow < fuzzer.counts.queries * 0.01, fuzzer.counts


@pytest.mark.sample(2)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_queries_answer_on_columnar_as_on_heap(node: Node, chunk: int) -> None:
    size = SEEDS // CHUNKS
    check(Fuzzer(node), range(1 + chunk * size, 1 + (chunk + 1) * size))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chunk", range(20))
def test_a_hundred_thousand_random_queries(node: Node, chunk: int) -> None:
    check(Fuzzer(node), range(100_000 + chunk * 100, 100_000 + (chunk + 1) * 100))


@pytest.fixture(scope="module", params=["off", "avx2"])
def older_node(request: pytest.FixtureRequest, tmp_path_factory) -> Iterator[Node]:
    """A server with a library whose kernels are those of older processors."""
    if request.param not in ("off", *Path("/proc/cpuinfo").read_text().split()):
        pytest.skip("this processor has none of these instructions")
    with Cluster(new_root(), workers=0, extension=False) as made:
        node = make_node(made)
        use_kernels(node, request.param, made.root / "built")
        yield node


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_kernels_of_older_processors_give_the_same(older_node: Node) -> None:
    check(Fuzzer(older_node), range(200_000, 200_200))
    version = older_node.query("SELECT probin FROM pg_proc WHERE proname = 'columnar_handler'")
    assert "built" in str(version)


# ---- the fuzzer itself -------------------------------------------------------------------------------


def make_queries(seeds: range) -> Iterator[tuple[str, Query]]:
    """The table's definition and a query, of many seeds, without a server."""
    for seed in seeds:
        rng = random.Random(f"vector {seed}")
        world = make_world(rng)
        known = [
            Known(f"c{n}", family, list(EDGES[family]), 10, tame=family == "int4")
            for n, family in enumerate(COLUMN_KINDS, 1)
        ]
        asker = Asker(rng, known, world.rows)
        for _ in range(40):
            yield world.script(), asker.query()


def test_a_seed_is_a_table_and_its_queries() -> None:
    first, again, other = (
        [(script, query.statements()) for script, query in make_queries(seeds)]
        for seeds in (range(1, 3), range(1, 3), range(3, 5))
    )
    assert first == again != other


def test_the_queries_reach_every_type_and_construct() -> None:
    seen: Counter = Counter()
    for script, query in make_queries(range(1, 3 * SEEDS)):
        text = script + "".join(query.statements())
        seen.update(word for word in WORDS if word in text)
    assert not set(WORDS) - seen.keys()
    assert COLUMN_KINDS.keys() == TYPES.keys()


def test_most_aggregates_are_computed_by_batches(node: Node) -> None:
    """Else the fuzzer compares core with itself."""
    fuzzer = Fuzzer(node, "vector_fuzz_plans")
    rng = random.Random("plans")
    while (world := make_world(rng)).rows != 2500:
        pass
    world = replace(world, settings=[], own_settings=["SET cpu_operator_cost = 0.1"])
    plans: Counter = Counter()
    with fuzzer.build(world) as twins:
        asker = Asker(rng, know_columns(twins.heap, world.columns, 1), world.rows)
        for _ in range(200):
            query = asker.query()
            by_batches = query.shape in ("groups", "values") and not asker.maker.row_wise
            if query.parameters or not by_batches:
                continue
            outcome = twins.columnar.run(f"EXPLAIN {query.select()}")
            if outcome.sqlstate is None and "One-Time" not in str(outcome.rows):
                plans["ColumnarAggregate" in str(outcome.rows)] += 1
    assert plans[True] > 2 * plans[False], plans


def test_differences_are_found_and_freedom_is_narrow() -> None:
    def outcome(*rows: tuple) -> Outcome:
        return Outcome(columns=[("x", "701", -1)], rows=list(rows), tag="SELECT")

    exact, summed = ["exact", "exact"], ["exact", "sum8", "bound"]
    assert not difference_of(outcome(("1", "2")), outcome(("1", "2")), exact)
    assert difference_of(outcome(("1", "2")), outcome(("1", "2.0")), exact)
    assert difference_of(outcome(("1", "2")), outcome(("1", "2"), ("1", "2")), exact)
    assert difference_of(outcome(("1", "-0")), outcome(("1", "0")), exact)
    assert not difference_of(outcome(("1", "1e-9", "5000")), outcome(("1", "2e-9", "5000")), summed)
    assert difference_of(outcome(("1", "1e-8", "5000")), outcome(("1", "2e-8", "5000")), summed)
    assert difference_of(outcome(("1", "NaN", "5000")), outcome(("1", "1", "5000")), summed)
    assert difference_of(outcome(("1", None, "5000")), outcome(("1", "1", "5000")), summed)
    assert difference_of(outcome(("2", "1", "5000")), outcome(("1", "1", "5000")), summed)


def test_expressions_become_simpler_but_keep_their_type() -> None:
    rng = random.Random("simpler")
    known = [Known("c1", "int4", ["'1'"], 5), Known("c2", "text", ["'a'"])]
    for _ in range(300):
        whole: Expr = Maker(rng, known).condition(3)
        for smaller in whole.simpler():
            assert len(smaller.sql) < len(whole.sql) + 4
            assert smaller.type == "bool"


WORDS = (
    "= ANY", "<> ALL", "ALTER TABLE t ADD COLUMN", "AT TIME ZONE", "BETWEEN", "CASE", "COALESCE", "COLLATE", "DEFAULT",
    "DELETE", "DISTINCT FROM", "EXECUTE", "EXISTS", "FILTER", "GREATEST", "GROUP BY", "HAVING", "ILIKE", "IN (", "IS NOT NULL",
    "IS NULL", "IS TRUE", "IS UNKNOWN", "LATERAL", "PARTITION BY", "LEAST", "LIKE", "NOT IN", "NULLIF", "SYMMETRIC", "UPDATE", "abs(", "avg(",
    "bit_and(", "bool_and(", "char(8)", "corr(", "count(*)", "count(DISTINCT", "cpu_operator_cost", "date_part(", "date_trunc(",
    "enable_decorrelation = always", "enable_hashagg = off", "enable_vector = off", "extract(", "generate_series(1, 140000)",
    "length(", "max(", "min(", "o.c1", "octet_length(", "parallel_setup_cost", "regr_slope(", "round(", "row_group_rows",
    "starts_with(", "stddev(", "string_agg(", "substring(", "sum(", "var_pop(", "work_mem = '64kB'", " OR ", " AND ", "NOT ",
)  # fmt: skip
