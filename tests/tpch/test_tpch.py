"""TPC-H: all 22 queries give plain PostgreSQL's answers, however the tables are laid out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.assert_same import assert_same
from tests.cluster import Cluster
from tests.tpch import data


@pytest.fixture(scope="module", params=[0.01, pytest.param(0.05, marks=pytest.mark.slow)])
def csv_files(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    directory = tmp_path_factory.mktemp("tpch")
    data.generate(directory, request.param)
    return directory


@pytest.fixture(scope="module")
def plain(cluster: Cluster, csv_files: Path) -> Iterator:
    with cluster.plain.connect() as connection:
        data.create(connection, "tpch_test", None)
        data.load(connection, csv_files)
        yield connection
        connection.execute("DROP SCHEMA tpch_test CASCADE")


@pytest.fixture(scope="module", params=list(data.LAYOUTS))
def coordinator(cluster: Cluster, csv_files: Path, request: pytest.FixtureRequest) -> Iterator:
    with cluster.coordinator.connect() as connection:
        data.create(connection, "tpch_test", request.param)
        data.load(connection, csv_files)
        yield connection
        connection.execute("DROP SCHEMA tpch_test CASCADE")


@pytest.mark.parametrize("name", list(data.QUERIES))
def test_answer_equals_plain_postgresql(cluster: Cluster, coordinator, plain, name: str) -> None:
    rows = assert_same(cluster, data.QUERIES[name], connections=(coordinator, plain))
    assert rows, "an empty answer proves nothing"


def test_all_tables_have_the_rows_of_the_generator(cluster: Cluster, coordinator, plain) -> None:
    for table in data.TABLES:
        assert_same(
            cluster,
            f"SELECT count(*), min(t::text), max(t::text) FROM {table} AS t",
            connections=(coordinator, plain),
        )


def test_query_15_gives_the_same_answer_with_the_view_of_the_specification(
    cluster: Cluster, coordinator, plain
) -> None:
    for connection in (coordinator, plain):
        connection.execute(
            "CREATE VIEW revenue0 (supplier_no, total_revenue) AS"
            " SELECT l_suppkey, sum(l_extendedprice * (1 - l_discount)) FROM lineitem"
            " WHERE l_shipdate >= DATE '1996-01-01'"
            " AND l_shipdate < DATE '1996-01-01' + INTERVAL '3' MONTH GROUP BY l_suppkey"
        )
    assert_same(
        cluster,
        "SELECT s_suppkey, s_name, s_address, s_phone, total_revenue FROM supplier, revenue0"
        " WHERE s_suppkey = supplier_no"
        " AND total_revenue = (SELECT max(total_revenue) FROM revenue0) ORDER BY s_suppkey",
        connections=(coordinator, plain),
    )
    for connection in (coordinator, plain):
        connection.execute("DROP VIEW revenue0")


def test_layouts_spread_the_large_tables_over_all_workers(cluster: Cluster, coordinator) -> None:
    ((total,),) = coordinator.execute("SELECT count(*) FROM lineitem").fetchall()
    counts = [worker.value("SELECT count(*) FROM tpch_test.lineitem") for worker in cluster.workers]
    assert sum(counts) == total
    assert all(count > total / (2 * len(counts)) for count in counts)
