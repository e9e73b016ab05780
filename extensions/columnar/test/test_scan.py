"""What a scan reads and what it skips, as EXPLAIN says, and that the planner knows."""

from __future__ import annotations

import pytest

from extensions.columnar.test.twins import Side, Twins


@pytest.fixture
def table(twins: Twins) -> Twins:
    """400 000 rows in 4 row groups, ascending in id; 16 columns."""
    columns = ", ".join(f"c{n} bigint" for n in range(14))
    values = ", ".join(f"(g * {7919 + n}::bigint) % 1000003" for n in range(14))
    twins.execute(
        f"CREATE TABLE t (id integer, word text, {columns})",
        f"INSERT INTO t SELECT g, 'word ' || (g * 7919::bigint) % 1000, {values} FROM generate_series(1, 400000) AS g",
    )
    return twins


def explain(side: Side, query: str) -> dict:
    ((plan,),) = side.execute(f"EXPLAIN (ANALYZE, FORMAT json) {query}")
    return find_scan(plan[0]["Plan"])


def find_scan(node: dict) -> dict:
    if node.get("Custom Plan Provider") == "ColumnarScan":
        return node
    for child in node.get("Plans", []):
        if found := find_scan(child):
            return found
    return {}


def test_a_scan_reads_little_more_than_the_pages_of_its_column(table: Twins) -> None:
    table.columnar.execute("SET max_parallel_workers_per_gather = 0")
    scan = explain(table.columnar, "SELECT count(DISTINCT c7) FROM t")
    ((bytes_,),) = table.columnar.execute(
        "SELECT sum(bytes)::float8 FROM strata_columnar.columnar_chunks('t') WHERE column_name = 'c7'"
    )
    assert bytes_ / 8168 <= scan["Pages Read"] <= 1.2 * bytes_ / 8168


def test_bounds_skip_row_groups_and_blocks(table: Twins) -> None:
    table.columnar.execute("SET max_parallel_workers_per_gather = 0")
    query = "SELECT id, word, c3 FROM t WHERE id BETWEEN 200000 AND 200100"
    table.same(query)
    scan = explain(table.columnar, query)
    assert (scan["Row Groups"], scan["Row Groups Removed"]) == (4, 3)
    assert scan["Blocks"] - scan["Blocks Removed"] <= 2
    table.columnar.execute("SET strata_columnar.enable_pruning = off")
    scan = explain(table.columnar, query)
    assert scan.get("Row Groups Removed", 0) == 0


def test_bloom_filters_skip_what_bounds_cannot(table: Twins) -> None:
    side = table.columnar
    side.execute("SET max_parallel_workers_per_gather = 0")
    side.execute("SELECT strata_columnar.alter_columnar_table_set('t', bloom => '{c5}')")
    side.execute("SELECT strata_columnar.columnar_compact('t', everything => true)")
    ((one,),) = side.execute("SELECT c5 FROM t WHERE id = 250000")
    query = f"SELECT id, word FROM t WHERE c5 = {one}"
    table.same(query)
    assert explain(side, query)["Row Groups Removed"] >= 2


def test_what_the_filter_does_not_need_is_read_for_survivors_only(table: Twins) -> None:
    table.columnar.execute(
        "SET max_parallel_workers_per_gather = 0; SET strata_columnar.enable_pruning = off"
    )
    few = explain(table.columnar, "SELECT c1, c2, c3, c4 FROM t WHERE id = 77")
    all_ = explain(table.columnar, "SELECT c1, c2, c3, c4 FROM t WHERE id > 0")
    assert few["Bytes Read"] * 3 < all_["Bytes Read"]


def test_a_parallel_scan_divides_the_row_groups(table: Twins) -> None:
    settings = "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2"
    table.execute(settings)
    table.same("SELECT count(*), sum(c1), min(word) FROM t WHERE c2 % 3 = 1")
    assert "Parallel Custom Scan (ColumnarScan)" in table.plan(
        "SELECT sum(c1) FROM t WHERE c2 % 3 = 1"
    )


def test_count_comes_from_metadata(table: Twins) -> None:
    table.execute("DELETE FROM t WHERE id % 3 = 0")
    table.same("SELECT count(*) FROM t")
    assert "ColumnarCount" in table.plan("SELECT count(*) FROM t")
    with table.transaction("ROLLBACK"):
        table.execute("DELETE FROM t WHERE id < 1000; INSERT INTO t (id) VALUES (1), (2)")
        table.same("SELECT count(*) FROM t")
    table.same("SELECT count(*) FROM t")


def test_statistics_are_those_of_the_heap(table: Twins) -> None:
    table.execute("ANALYZE t")
    statistics = (
        "SELECT attname, null_frac, n_distinct, correlation FROM pg_stats"
        " WHERE schemaname = '{schema}' AND tablename = 't' ORDER BY attname"
    )
    for mine, heaps in zip(
        table.columnar.execute(statistics), table.heap.execute(statistics), strict=True
    ):
        assert mine[0] == heaps[0]
        assert mine[1] == pytest.approx(heaps[1], abs=0.02)
        assert mine[2] == pytest.approx(heaps[2], rel=0.3)
        assert mine[3] == pytest.approx(heaps[3], abs=0.1)
    ((rows,),) = table.columnar.execute("SELECT reltuples FROM pg_class WHERE oid = 't'::regclass")
    assert rows == pytest.approx(400_000, rel=0.01)


def test_the_customer_reviews_of_the_article(twins: Twins) -> None:
    """Its table of 12 columns, an array of char(10) among them, and its width_bucket query."""
    twins.execute(
        """CREATE TABLE customer_reviews (
            customer_id text, review_date date, review_rating integer, review_votes integer,
            review_helpful_votes integer, product_id char(10), product_title text,
            product_sales_rank bigint, product_group text, product_category text,
            product_subcategory text, similar_product_ids char(10)[])""",
        """INSERT INTO customer_reviews
           SELECT 'A' || g * 7919::bigint % 50000, DATE '1998-01-01' + g % 365, 1 + g % 5, g % 40, g % 20,
                  lpad((g * 31 % 10000)::text, 10, '0'), repeat('Title ', 1 + g % 12) || g % 997,
                  g * 7919::bigint % 1000000, (ARRAY['Book', 'Music', 'DVD'])[1 + g % 3],
                  'category ' || g % 30, 'sub ' || g % 90,
                  CASE WHEN g % 11 > 0 THEN ARRAY[(g % 100)::text, NULL, 'B' || g]::char(10)[] END
           FROM generate_series(1, 60000) AS g""",
    )
    twins.same("SELECT * FROM customer_reviews")
    twins.same(
        """SELECT width_bucket(length(product_title), 1, 50, 5) AS title_length_bucket,
                  round(avg(review_rating), 2) AS review_average, count(*)
           FROM customer_reviews WHERE product_group = 'Book'
           GROUP BY title_length_bucket ORDER BY title_length_bucket"""
    )
    twins.same(
        "SELECT customer_id, review_date, review_rating, product_id FROM customer_reviews"
        " WHERE customer_id = 'A27' AND review_date BETWEEN '1998-01-01' AND '1998-12-31'"
    )
    twins.same("SELECT count(*) FROM customer_reviews WHERE 'B77' = ANY (similar_product_ids)")
