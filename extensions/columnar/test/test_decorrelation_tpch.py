"""TPC-H's queries with sub-selects: as joins they give what they gave before."""

from __future__ import annotations

from pathlib import Path

import pytest

from extensions.columnar.test.twins import Twins
from tests.tpch import data


@pytest.fixture(scope="module")
def csv_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tpch")
    data.generate(directory, 0.01)
    return directory


@pytest.fixture
def tpch(twins: Twins, csv_files: Path) -> Twins:
    twins.execute((data.HERE / "tables.sql").read_text())
    for table in data.TABLES:
        twins.copy_in(
            f"COPY {table} FROM STDIN (FORMAT csv, HEADER)",
            (csv_files / f"{table}.csv").read_bytes(),
        )
    twins.execute("ANALYZE")
    # the oracle without an index does not end soon
    twins.heap.execute("CREATE INDEX ON lineitem (l_partkey); ANALYZE lineitem")
    return twins


def assert_joined(tpch: Twins, query: str) -> None:
    tpch.same(query)
    assert "SubPlan" not in tpch.plan(query, "VERBOSE, COSTS OFF")


def test_tpch_queries_without_sub_plans(tpch: Twins) -> None:
    for name in ("q17", "q20"):
        assert_joined(tpch, data.QUERIES[name])
    tpch.execute(
        "SET strata_columnar.enable_decorrelation = always"
    )  # at this scale the primary key serves the few parts of Q2 as well
    for name in ("q02", "q17", "q20"):
        assert_joined(tpch, data.QUERIES[name])


@pytest.mark.parametrize("mode", ["on", "always"])
def test_tpch_queries_with_sub_selects(tpch: Twins, mode: str) -> None:
    tpch.execute(f"SET strata_columnar.enable_decorrelation = {mode}")
    for name in ("q02", "q04", "q11", "q15", "q16", "q17", "q18", "q20", "q21", "q22"):
        tpch.same(data.QUERIES[name])
