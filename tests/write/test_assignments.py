"""UPDATE, ON CONFLICT and MERGE keep every assignment to parts of one column, in any order."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

STATE = ("SELECT * FROM t", "SELECT * FROM r")

COLUMNS = (
    "id integer PRIMARY KEY, a integer[], b integer[], j jsonb, c pair, ca pair[], n nest,"
    " d list, x integer, y integer, m integer[][]"
)


@pytest.fixture(scope="module", params=["columnar", "heap"])
def data(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with open_pair(cluster, f"test_assignments_{request.param}") as made:
        made.execute(
            "CREATE TYPE pair AS (x integer, y text);"
            "CREATE TYPE nest AS (l integer[], p pair, z integer);"
            "CREATE DOMAIN list AS integer[] CHECK (VALUE IS NULL OR array_length(VALUE, 1) < 9);"
            f'CREATE TABLE t ({COLUMNS}, "odd name" pair); CREATE TABLE r ({COLUMNS});'
            "CREATE TABLE s (id integer, v integer, w integer, PRIMARY KEY (id, v))"
        )
        made.reference("r")
        for table in ("t", "s"):
            made.ours.execute(
                "SELECT create_distributed_table(%s, 'id', storage => %s, colocate_with => %s,"
                " shard_count => %s)",
                (
                    table,
                    request.param,
                    *(("none", 4) if table == "t" else (f"{made.schema}.t", None)),
                ),
            )
        row = (
            "g, ARRAY[g, 2, 3], nullif(ARRAY[1, g], ARRAY[1, 4]), jsonb_build_object('k', g, 'o',"
            " jsonb_build_object('p', 1)), ROW(g, 'y')::pair, ARRAY[ROW(1, 'a')::pair,"
            " ROW(2, 'b')::pair], ROW(ARRAY[1, 2], ROW(g, 'p')::pair, 3)::nest,"
            " ARRAY[1, 2, g]::list, g, -g, ARRAY[[1, 2], [3, 4]]"
        )
        made.execute(
            f"INSERT INTO t SELECT {row}, ROW(1, 'o')::pair FROM generate_series(1, 40) AS g;"
            f"INSERT INTO r SELECT {row} FROM generate_series(1, 5) AS g;"
            "INSERT INTO s SELECT g % 50, g, g % 9 FROM generate_series(1, 150) AS g"
        )
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    with data.transaction():
        yield data


LISTS = {
    "elements": "a[1] = 10, a[3] = 30",
    "elements, last first": "a[3] = 30, a[1] = 10, a[7] = 70",
    "an element twice": "a[2] = 1, a[2] = 2",
    "of an expression": "a[1] = {t}.a[2] + 1, a[2] = {t}.a[1], x = {t}.x + 1",
    "slices": "a[1:2] = '{8, 9}', a[5:6] = ARRAY[5, 6]",
    "two dimensions": "m[1][1] = 9, m[2][2] = 8",
    "a column that is NULL": "b[1] = 5, b[4] = 6",
    "jsonb": "j['k'] = '7', j['o']['p'] = '\"deep\"', j['new'] = 'null'",
    "fields": "c.x = 77, c.y = 'seven'",
    "an odd name": "\"odd name\".x = 77, \"odd name\".y = 'it''s'",
    "fields of elements": "ca[1].x = 10, ca[1].y = 'ten', ca[3].y = 'three'",
    "elements of a field": "n.l[1] = 5, n.l[4] = 8, n.z = 9",
    "fields of a field": "n.p.x = 1, n.p.y = 'q', n.l = '{4}'",
    "of a domain": "d[1] = 5, d[2] = 6",
    "of a domain, too many": "d[1] = 5, d[20] = 6",
    "from a row": "(a[1], a[2], c.y) = (5, 6, 'row')",
    "from two rows": "(a[1], b[1]) = (5, 6), (a[2], b[2]) = (7, 8)",
    "all together": "y = 1, a[2] = 4, j['k'] = '1', a[1] = {t}.y, c.x = 3, j['z'] = '2', c.y = 'z'",
}


def statements(table: str, assignments: str) -> list[str]:
    """Shipped as written; rebuilt from the plan; beside a key; in an action."""
    templates = (
        "UPDATE {t} SET {set} WHERE id = 4 RETURNING *",
        "UPDATE {t} SET {set} WHERE EXISTS (SELECT FROM s WHERE s.id = {t}.id AND s.w > 5)",
        "UPDATE {t} SET {set} WHERE id < (SELECT max(id) FROM r) RETURNING *",
        "INSERT INTO {t} (id, a) VALUES (4, '{1}'), (200, '{2}') ON CONFLICT (id) DO UPDATE"
        " SET {set}",
        "MERGE INTO {t} USING (SELECT DISTINCT id FROM s WHERE w > 3) AS q ON q.id = {t}.id"
        " WHEN MATCHED AND {t}.id % 3 = 0 THEN UPDATE SET {set}"
        " WHEN MATCHED AND {t}.id % 3 = 1 THEN UPDATE SET x = 0",
    )
    return [text.replace("{set}", assignments).replace("{t}", table) for text in templates]


@pytest.mark.parametrize("assignments", LISTS.values(), ids=list(LISTS))
def test_each_assignment_is_kept(pair: Pair, assignments: str) -> None:
    for statement in statements("t", assignments):
        pair.execute("SAVEPOINT one")
        pair.same(statement)
        if pair.theirs.info.transaction_status == psycopg.pq.TransactionStatus.INERROR:
            pair.execute("ROLLBACK TO one")
    if "odd" not in assignments and "d[20]" not in assignments:
        pair.same(statements("r", assignments)[1])
    pair.all_same(STATE)


@pytest.mark.parametrize(
    "assignments",
    [
        "(y, x) = (SELECT min(id), max(id) FROM r)",
        "(a[2], a[1]) = (SELECT min(id), max(id) FROM r)",
        "a[1] = 7, (a[1], y) = (SELECT min(id), max(id) FROM r), a[2] = y",
        "(c.y, c.x) = (SELECT 'c', max(id) FROM r), (y, x) = (SELECT 1, 2)",
    ],
)
def test_values_of_a_sub_select_go_to_the_columns_named(pair: Pair, assignments: str) -> None:
    pair.same(f"UPDATE t SET {assignments} WHERE id % 2 = 0")
    pair.all_same(STATE)


def test_generic_plans_keep_them(data: Pair) -> None:
    with data.transaction():
        data.execute(
            "SET LOCAL plan_cache_mode = force_generic_plan;"
            "PREPARE one(integer, integer) AS UPDATE t SET a[1] = $2, a[$1 % 5 + 1] = $2 + 1,"
            " c.x = $2, c.y = $2::text WHERE id = $1;"
            "PREPARE many(integer) AS UPDATE t SET j['k'] = to_jsonb($1), j['l'] = '2',"
            " ca[2].x = $1, ca[2].y = 'z' WHERE id > $1"
        )
        for number in range(1, 4):
            data.same(f"EXECUTE one({number}, {number * 10})")
            data.same(f"EXECUTE many({number * 5})")
        data.all_same(STATE)
        data.execute("DEALLOCATE ALL")


@pytest.mark.parametrize("table", ["t", "r"])
def test_an_inserting_merge_keeps_them(pair: Pair, table: str) -> None:
    pair.same(
        f"MERGE INTO {table} USING (SELECT DISTINCT id FROM s) AS q ON q.id = {table}.id"
        " WHEN NOT MATCHED THEN INSERT (id, a[1], a[3], c.x, y, c.y, ca[2].x, ca[2].y, j['k'], j['l'])"
        " VALUES (q.id, 1, 3, 5, -1, 'z', 7, 'ca', '1', '2')"
    )
    pair.all_same(STATE)


@pytest.mark.parametrize("table", ["t", "r"])
def test_insert_keeps_them(pair: Pair, table: str) -> None:
    pair.all_same(
        (
            f"INSERT INTO {table} (a[1], id, a[2], c.x, c.y) VALUES (1, 300, 2, 5, 'z') RETURNING *",
            f"INSERT INTO {table} (id, a[1], a[2]) SELECT id + 400, id, 2 FROM t",
            f"INSERT INTO {table} (id, a[1]) SELECT id + 500, '5' FROM t",
            f"INSERT INTO {table} (id, a[1], a[2]) SELECT DISTINCT id + 600, '5', '6' FROM s",
            f"INSERT INTO {table} (id, a[1], a[2]) VALUES (5, 1, 2), (700, 3, 4) ON CONFLICT (id)"
            " DO UPDATE SET a[2] = excluded.a[1], a[1] = excluded.a[2]",
            *STATE,
        )
    )


def test_a_view_keeps_them(pair: Pair) -> None:
    pair.execute("CREATE VIEW seen AS SELECT a AS first, id, c AS both FROM t WHERE id < 30")
    pair.same("UPDATE seen SET first[1] = 10, first[2] = 20, both.y = 'v', both.x = 1")
    pair.all_same(STATE)
