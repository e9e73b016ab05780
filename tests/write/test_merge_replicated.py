"""MERGE of rows that every worker has: each is inserted once, by the worker that holds its key."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair


@pytest.fixture(params=["columnar", "heap"])
def pair(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with open_pair(cluster, "test_merge_replicated") as made:
        made.execute(
            "CREATE TABLE stock (id bigint, v integer, note text DEFAULT 'new');"
            'CREATE TABLE word (w text COLLATE "C", n integer);'
            "CREATE TABLE news (id bigint, v integer)"
        )
        made.distribute("stock", "id", "none", storage=request.param)
        made.distribute("word", "w", "none", storage=request.param)
        made.reference("news")
        made.execute(
            "INSERT INTO stock SELECT i, i FROM generate_series(1, 40) AS i;"
            "INSERT INTO news SELECT i, i * 10 FROM generate_series(30, 60) AS i; INSERT INTO news VALUES (NULL, 1);"
            "INSERT INTO word VALUES ('a', 1), ('b', 2); ANALYZE stock, news, word"
        )
        yield made


STATEMENTS = [
    "MERGE INTO stock AS s USING news AS n ON s.id = n.id WHEN MATCHED THEN UPDATE SET v = n.v"
    " WHEN NOT MATCHED THEN INSERT (id, v) VALUES (n.id, n.v)",
    "MERGE INTO stock AS s USING news AS n ON s.id = n.id WHEN NOT MATCHED AND n.v > 450 THEN INSERT (v, id) VALUES (0, n.id)"
    " WHEN NOT MATCHED AND n.v > 400 THEN DO NOTHING WHEN NOT MATCHED THEN INSERT VALUES (n.id, n.v, 'third')",
    "MERGE INTO stock AS s USING (VALUES (1, 5), (100, 6), (101, 7)) AS n (id, v) ON s.id = n.id"
    " WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, v) VALUES (n.id, n.v)",
    "MERGE INTO stock AS s USING (VALUES (200::bigint, 5)) AS n (id, v) ON s.id = n.id AND s.v = n.v"
    " WHEN MATCHED THEN UPDATE SET v = s.v + 1 WHEN NOT MATCHED THEN INSERT (id, v) VALUES (n.id, n.v)",
    "MERGE INTO word USING (VALUES ('a', 5), ('ä', 6), (NULL, 7)) AS n (w, n) ON word.w = n.w"
    " WHEN MATCHED THEN UPDATE SET n = n.n WHEN NOT MATCHED THEN INSERT VALUES (n.w, n.n)",
    "WITH n AS MATERIALIZED (SELECT id + 20 AS id, v FROM news) MERGE INTO stock AS s USING n ON s.id = n.id"
    " WHEN MATCHED THEN UPDATE SET v = -1 WHEN NOT MATCHED THEN INSERT (id, v) VALUES (n.id, n.v)",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_each_row_once(pair: Pair, statement: str) -> None:
    pair.same(statement)
    pair.same("SELECT * FROM stock ORDER BY id, v, note")
    pair.same("SELECT * FROM word ORDER BY w, n")
    for table, key in (("stock", "id"), ("word", "w")):
        pair.same(f"SELECT count(*) FROM {table} WHERE {key} IN (SELECT {key} FROM {table})")


def test_an_upsert_by_parameters(pair: Pair) -> None:
    pair.execute(
        "SET plan_cache_mode = force_generic_plan;"
        "PREPARE put(bigint, integer) AS MERGE INTO stock AS s USING (SELECT $1 AS id, $2 AS v) AS n ON s.id = n.id"
        " WHEN MATCHED THEN UPDATE SET v = s.v + n.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (n.id, n.v)"
    )
    for key in (1, 99, 99, None, None, 1000):
        pair.same(f"EXECUTE put({'NULL' if key is None else key}, 3)")
    pair.same("SELECT * FROM stock ORDER BY id, v")
    pair.execute("DEALLOCATE put; RESET plan_cache_mode")


def test_off_the_key(pair: Pair) -> None:
    pair.same(
        "MERGE INTO stock AS s USING news AS n ON s.v = n.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (n.id, n.v)"
    )
    pair.same("SELECT * FROM stock ORDER BY id, v, note")


def test_a_key_that_is_no_column(pair: Pair) -> None:
    """The one worker that the constant or parameter names inserts the row."""
    pair.execute("CREATE TABLE other (id bigint, v integer)")
    pair.distribute("other", "id", "stock")
    pair.execute(
        "INSERT INTO other SELECT i, i * 2 FROM generate_series(1, 50) AS i; SET plan_cache_mode = force_generic_plan;"
        "PREPARE take(bigint) AS MERGE INTO stock AS s USING (SELECT * FROM other WHERE id = $1) AS n ON s.id = n.id"
        " WHEN MATCHED THEN UPDATE SET v = n.v WHEN NOT MATCHED THEN INSERT VALUES ($1, n.v);"
        "PREPARE put(bigint, integer) AS MERGE INTO stock AS s USING (SELECT 1) AS n ON s.id = $1"
        " WHEN MATCHED THEN UPDATE SET v = $2 WHEN NOT MATCHED THEN INSERT VALUES ($1, $2)"
    )
    for key in (9, 45, 45, 49):
        pair.same(f"EXECUTE take({key})")
        pair.same(f"EXECUTE put({key + 100}, 5)")
    pair.same(
        "MERGE INTO stock AS s USING news AS n ON s.id = 99 AND n.id = 30 WHEN NOT MATCHED AND n.id = 30"
        " THEN INSERT VALUES (99, 1)"
    )
    pair.same("SELECT * FROM stock ORDER BY id, v")
    pair.execute("DEALLOCATE take; DEALLOCATE put; RESET plan_cache_mode")


def test_one_row_beside_outer_rows(pair: Pair) -> None:
    for query in (
        "SELECT * FROM (SELECT 1) AS n (v) LEFT JOIN stock AS s ON s.id = 20 AND s.v > n.v",
        "SELECT * FROM (SELECT 1) AS n (v) LEFT JOIN stock AS s ON s.id = 2000",
        "SELECT n.v, count(s.id) FROM (VALUES (1)) AS n (v) LEFT JOIN stock AS s ON s.id = 20 GROUP BY n.v",
        "SELECT count(*) FROM (SELECT 1) AS n LEFT JOIN stock AS s ON s.v > 5",
        "SELECT * FROM (SELECT now() IS NULL) AS n (x) LEFT JOIN stock AS s ON s.id = 7 AND NOT n.x",
        "SELECT * FROM (SELECT 1) AS n (v) LEFT JOIN LATERAL (SELECT max(v) FROM stock WHERE id = n.v) AS s ON true",
        "SELECT * FROM (SELECT 1) AS n (v) FULL JOIN stock AS s ON s.id = n.v AND s.id = 1",
    ):
        pair.same(query)
