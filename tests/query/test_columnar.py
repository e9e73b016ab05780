"""Distributed tables with columnar storage: the default, its options on every worker, old and new."""

from __future__ import annotations

from decimal import Decimal

import psycopg
import psycopg.sql
import pytest

from tests.cluster import Cluster, Node

OPTIONS = "SELECT DISTINCT compression, row_group_rows, order_by, bloom FROM strata_columnar.options WHERE relation::text LIKE '%reviews%'"
STORAGE = "SELECT DISTINCT amname FROM pg_class JOIN pg_am ON pg_am.oid = relam WHERE relname LIKE 'reviews%' AND relkind = 'r'"


@pytest.fixture
def reviews(cluster: Cluster, schema: str) -> str:
    cluster.coordinator.execute(
        "CREATE TABLE reviews (id bigint PRIMARY KEY, rating integer, body text);"
        "SELECT create_distributed_table('reviews', 'id', colocate_with => 'none')"
    )
    return f"{schema}.reviews"


def on_workers(cluster: Cluster, schema: str, query: str) -> list[list[tuple]]:
    answers = []
    for worker in cluster.workers:
        with worker.connect() as connection:
            connection.execute(f"SET search_path = {schema}")
            answers.append(connection.execute(query).fetchall())
    return answers


def test_shards_are_columnar_unless_heap_is_asked_for(
    cluster: Cluster, schema: str, reviews: str
) -> None:
    assert on_workers(cluster, schema, STORAGE) == [[("columnar",)]] * 2
    assert (
        cluster.coordinator.value(
            "SELECT storage FROM strata.tables WHERE relation = %s::regclass", (reviews,)
        )
        == "columnar"
    )
    cluster.coordinator.execute(
        "DROP TABLE reviews; CREATE TABLE reviews (id bigint);"
        "SELECT create_distributed_table('reviews', 'id', storage => 'heap', colocate_with => 'none')"
    )
    assert on_workers(cluster, schema, STORAGE) == [[("heap",)]] * 2


def test_options_reach_all_shards_in_the_users_transaction(
    cluster: Cluster, schema: str, reviews: str
) -> None:
    coordinator = cluster.coordinator
    call = "SELECT alter_columnar_table_set('reviews', compression => 'cold', row_group_rows => 4096, order_by => 'rating DESC', bloom => '{body}')"
    coordinator.execute(f"BEGIN; {call}; ROLLBACK")
    assert on_workers(cluster, schema, OPTIONS) == [[("hot", 131072, None, None)]] * 2
    coordinator.execute(call)
    assert on_workers(cluster, schema, OPTIONS) == [[("cold", 4096, "rating DESC", ["body"])]] * 2
    coordinator.execute("ALTER TABLE reviews RENAME rating TO stars")
    assert on_workers(cluster, schema, OPTIONS) == [[("cold", 4096, "stars DESC", ["body"])]] * 2
    coordinator.execute(
        "SELECT alter_columnar_table_reset('reviews', order_by => true, bloom => true)"
    )
    assert on_workers(cluster, schema, OPTIONS) == [[("cold", 4096, None, None)]] * 2


def test_bad_options_and_other_tables_are_refused(
    cluster: Cluster, schema: str, reviews: str
) -> None:
    coordinator = cluster.coordinator
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="brotli"):
        coordinator.execute("SELECT alter_columnar_table_set('reviews', compression => 'brotli')")
    coordinator.execute("CREATE TABLE local_table (id integer)")
    with pytest.raises(psycopg.errors.WrongObjectType, match="local_table"):
        coordinator.execute("SELECT alter_columnar_table_set('local_table', compression => 'cold')")


NAME = """ "x$strata$y $$ \\ 'q' $1" """.strip()


def test_options_of_names_that_need_quotes(cluster: Cluster, schema: str) -> None:
    coordinator = cluster.coordinator
    coordinator.execute(
        f"CREATE TABLE {NAME} (id bigint, {NAME} integer);"
        "SELECT create_distributed_table({0}, 'id', colocate_with => 'none');"
        "SELECT alter_columnar_table_set({0}, order_by => {0})".format(literal(NAME))
    )
    options = (
        "SELECT DISTINCT order_by FROM strata_columnar.options WHERE relation::text LIKE '%strata%'"
    )
    assert on_workers(cluster, schema, options) == [[(NAME,)]] * 2


def literal(text: str) -> str:
    return psycopg.sql.Literal(text).as_string(None)


def test_a_new_worker_gets_the_options(make_cluster) -> None:
    cluster = make_cluster(workers=3)
    coordinator = cluster.coordinator
    name, conninfo = coordinator.query(
        "SELECT name, conninfo FROM strata.worker ORDER BY worker_id DESC LIMIT 1"
    )[0]
    coordinator.execute(f"SELECT strata.remove_worker('{name}')")
    third: Node = cluster.workers[-1]
    coordinator.execute(
        f"CREATE TABLE reviews (id bigint, body text); CREATE TABLE {NAME} (id bigint)"
    )
    coordinator.execute("SELECT strata.create_distributed_table('reviews', 'id')")
    coordinator.execute(f"SELECT strata.create_distributed_table({literal(NAME)}, 'id')")
    coordinator.execute(
        "SELECT strata.alter_columnar_table_set('reviews', compression => 'zstd', bloom => '{body}')"
    )
    coordinator.query("SELECT strata.add_worker(%s, %s)", (name, conninfo))
    label = "SELECT label FROM pg_seclabel WHERE provider = 'strata_columnar' AND objoid = 'reviews'::regclass"
    assert third.value(label) == cluster.workers[0].value(label)
    assert "zstd" in third.value(label)


@pytest.mark.parametrize(
    "aggregates", ["count(*), sum(rating), avg(rating), max(body)", "approx_count_distinct(rating)"]
)
def test_workers_aggregate_their_shards_by_batches(
    cluster: Cluster, schema: str, reviews: str, aggregates: str
) -> None:
    """The partial aggregates that the coordinator sends are recognised: no row is formed on a worker."""
    coordinator = cluster.coordinator
    coordinator.execute(
        "INSERT INTO reviews SELECT g, g % 5, 'text ' || g % 100 FROM generate_series(1, 20000) AS g; ANALYZE reviews"
    )
    for group in ("", " GROUP BY rating"):
        query = f"SELECT {aggregates} FROM reviews WHERE rating > 1{group}"
        plan = "\n".join(line for (line,) in coordinator.query(f"EXPLAIN (VERBOSE) {query}"))
        assert "Custom Scan (ColumnarAggregate)" in plan, plan
        coordinator.execute(f"CREATE TEMPORARY TABLE copied AS {query}")
        coordinator.execute("DROP TABLE copied")


def test_workers_answer_from_summaries(cluster: Cluster, schema: str, reviews: str) -> None:
    """Whole row groups of a worker are not read for partial aggregates, either."""
    coordinator = cluster.coordinator
    coordinator.execute(
        "INSERT INTO reviews SELECT g, g % 5, 'text' FROM generate_series(1, 100000) AS g; ANALYZE reviews"
    )
    query = "SELECT count(*), count(rating), sum(rating), avg(rating), min(id), max(id) FROM reviews WHERE id > 0"
    plan = "\n".join(line for (line,) in coordinator.query(f"EXPLAIN (ANALYZE, VERBOSE) {query}"))
    assert "Row Groups From Metadata" in plan, plan
    assert coordinator.query(query) == [(100000, 100000, 200000, 2, 1, 100000)]
    coordinator.execute("DELETE FROM reviews WHERE id IN (1, 50000, 100000)")
    assert coordinator.query(query) == [
        (99997, 99997, 199999, Decimal("2.0000500015000450"), 2, 99999)
    ]
