"""UNION, INTERSECT and EXCEPT: made on the workers as far as that goes, with PostgreSQL's answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

TABLES = """
CREATE COLLATION no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE DOMAIN small AS integer;
CREATE TABLE a (k integer, g integer, v integer, big bigint, t text, n numeric, day date);
CREATE TABLE b (k integer, g integer, v integer, big bigint, t text, n numeric, day date);
CREATE TABLE apart (k integer, g integer, v integer, big bigint, t text, n numeric, day date);
CREATE TABLE nobody (LIKE a);
CREATE TABLE everywhere (k integer, g integer, v integer, t text);
CREATE TABLE here (k integer, g integer);
CREATE VIEW both_of_them AS SELECT k, g, v, t, 'a' AS source FROM a UNION ALL SELECT k, g, v, t, 'b' FROM b WHERE v > 2;
CREATE VIEW three AS SELECT * FROM a UNION ALL SELECT * FROM b UNION ALL SELECT * FROM nobody;
CREATE VIEW odd AS SELECT k, v FROM a WHERE v % 2 = 1 UNION SELECT k, v FROM b WHERE v % 2 = 1;
"""
ROWS = """
INSERT INTO a SELECT nullif(i % 37, 11), nullif(i % 7, 3), nullif(i * 7919 % 23, 5), i % 5, nullif('t' || i % 6, 't2'),
  (i % 13) / 4.0, date '2024-01-01' + i % 11 FROM generate_series(1, 700) AS i;
INSERT INTO b SELECT nullif(i % 41, 11), nullif(i % 5, 3), nullif(i * 7919 % 19, 5), i % 4, nullif('t' || i % 8, 't2'),
  (i % 11) / 4.0, date '2024-01-04' + i % 13 FROM generate_series(1, 500) AS i;
INSERT INTO apart SELECT * FROM b WHERE v < 9;
INSERT INTO everywhere SELECT i % 20, i % 4, i % 9, 't' || i % 3 FROM generate_series(1, 90) AS i;
INSERT INTO here SELECT i, i % 3 FROM generate_series(0, 9) AS i;
ANALYZE a, b, apart, nobody, everywhere, here;
"""


@pytest.fixture(scope="module", params=["columnar", "heap"])
def pair(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with open_pair(cluster, f"test_set_{request.param}") as made:
        made.execute(TABLES)
        for table, colocated in (("a", "none"), ("b", "a"), ("nobody", "a"), ("apart", "none")):
            made.distribute(table, "k", colocated, storage=request.param)
        made.reference("everywhere")
        made.execute(ROWS)
        yield made


APPENDED = [
    "SELECT count(*), sum(v), avg(n) FROM (SELECT v, n FROM a UNION ALL SELECT v, n FROM b) AS u",
    "SELECT g, count(*), max(t), min(source) FROM both_of_them GROUP BY g",
    "SELECT source, k, count(*) FROM both_of_them GROUP BY source, k",
    "SELECT k, sum(v), string_agg(t, ',' ORDER BY t, v) FROM both_of_them GROUP BY k HAVING count(*) > 3",
    "SELECT count(DISTINCT k), count(*) FROM three",
    "SELECT g, day, count(*), sum(v) FROM three GROUP BY ROLLUP (g, day)",
    "SELECT u.k, u.v, u.source, a.v FROM both_of_them AS u JOIN a ON a.k = u.k AND a.v = u.v WHERE u.g = 2",
    "SELECT count(*) FROM a LEFT JOIN both_of_them AS u ON a.k = u.k AND u.v = a.g",
    "SELECT count(*) FROM both_of_them AS u LEFT JOIN b ON b.k = u.k AND b.v = u.g WHERE b.k IS NULL",
    "SELECT count(*) FROM both_of_them AS u FULL JOIN three AS w ON w.k = u.k AND w.v = u.v",
    "SELECT count(*) FROM a WHERE EXISTS (SELECT FROM three AS u WHERE u.k = a.k AND u.v > a.v)",
    "SELECT count(*) FROM a WHERE k NOT IN (SELECT k FROM both_of_them WHERE v = 7 AND k IS NOT NULL)",
    "SELECT count(*) FROM three AS u JOIN everywhere AS e ON e.g = u.g AND e.v = u.v",
    "SELECT t, k, v FROM both_of_them ORDER BY t NULLS FIRST, k, v, source LIMIT 9 OFFSET 3",
    "SELECT DISTINCT t, g FROM three",
    "SELECT * FROM three WHERE k = 7",
    "SELECT count(*) FROM three WHERE k IN (7, 8, 30)",
    "SELECT * FROM a WHERE v = 3 UNION ALL SELECT * FROM b WHERE v = 4",
    "SELECT k, v FROM a UNION ALL SELECT v, k FROM b ORDER BY 1, 2 LIMIT 20",
    "SELECT k + 1, upper(t), NULL::integer, 5 FROM a UNION ALL SELECT v, t, g, k FROM b",
    "SELECT x, count(*) FROM (SELECT k + 1 AS x FROM a UNION ALL SELECT v FROM b) AS u GROUP BY x",
    "SELECT u.k, d.c FROM both_of_them AS u CROSS JOIN LATERAL (SELECT count(*) AS c FROM b WHERE b.k = u.k) AS d",
    "SELECT g, sum(c) FROM (SELECT k, g, count(*) AS c FROM a GROUP BY k, g UNION ALL"
    " SELECT k, g, v FROM b) AS u GROUP BY g",
    "SELECT count(*) FROM (SELECT k FROM a UNION ALL (SELECT k FROM b UNION ALL SELECT v FROM b)) AS u",
    "SELECT count(*), sum(v) FROM (SELECT * FROM both_of_them UNION ALL SELECT k, g, v, t, 'c' FROM nobody) AS u",
    "SELECT k, rank() OVER (PARTITION BY k ORDER BY v, t, source) FROM both_of_them",
    "SELECT count(*) FROM (SELECT ROW(k, v) AS r, k::small AS s, k FROM a UNION ALL SELECT ROW(1, 2), g, k FROM b) AS u"
    " WHERE k > 3",
]
WHOLE = [
    "SELECT k, v FROM a UNION SELECT k, v FROM b",
    "SELECT k FROM a INTERSECT SELECT k FROM b",
    "SELECT k, v FROM a EXCEPT SELECT k, v FROM b",
    "SELECT k, v FROM a EXCEPT ALL SELECT k, v FROM b",
    "SELECT k, g FROM a INTERSECT ALL SELECT k, g FROM b",
    "SELECT k, v, t FROM a UNION SELECT k, v, t FROM b UNION SELECT k, v, t FROM nobody",
    "SELECT k, v FROM a UNION (SELECT k, v FROM b EXCEPT SELECT k, g FROM a) ORDER BY 2 DESC NULLS FIRST, 1 LIMIT 11",
    "(SELECT k, v FROM a INTERSECT SELECT k, v FROM b) EXCEPT (SELECT k, v FROM b WHERE g = 1 UNION ALL"
    " SELECT k, g FROM a)",
    "SELECT count(*), sum(v) FROM (SELECT k, v FROM a UNION SELECT k, v FROM b) AS u",
    "SELECT k, count(*) FROM odd GROUP BY k",
    "SELECT odd.k, odd.v, a.t FROM odd JOIN a ON a.k = odd.k AND a.v = odd.v",
    "SELECT count(*) FROM a WHERE (k, v) IN (SELECT k, v FROM a EXCEPT SELECT k, v FROM b)",
    "SELECT count(*) FROM a WHERE NOT EXISTS (SELECT k FROM b WHERE b.k = a.k AND b.v = a.v UNION"
    " SELECT k FROM b WHERE b.k = a.k AND b.g = a.g)",
    "SELECT k, g FROM a WHERE k = 7 EXCEPT SELECT k, g FROM b WHERE k = 7",
    "SELECT g FROM a WHERE k = 7 UNION SELECT g FROM b WHERE k = 7",
    "SELECT k, g FROM a INTERSECT SELECT k, g FROM everywhere",
    "SELECT k, g FROM everywhere INTERSECT ALL SELECT k, g FROM a",
    "SELECT k, g FROM a EXCEPT ALL SELECT k, g FROM everywhere",
    "SELECT k, count(*) FROM a GROUP BY k INTERSECT SELECT k, count(*) FROM b GROUP BY k",
    "SELECT k, big FROM a UNION ALL SELECT k, v FROM b",
    "SELECT k, big FROM a UNION SELECT k, v FROM b",
    "SELECT k, 1 AS x, NULL AS y FROM a UNION SELECT k, 2, 'y' FROM b ORDER BY x, k, y",
]
DISTINCT_FIRST = [
    "SELECT g, t FROM a UNION SELECT g, t FROM b",
    "SELECT v FROM a UNION SELECT big FROM b",
    "SELECT g FROM a UNION SELECT g FROM b UNION SELECT v FROM b ORDER BY 1 LIMIT 5",
    "SELECT count(*) FROM (SELECT g, t FROM a UNION SELECT g, t FROM b) AS u",
    "SELECT k FROM a UNION SELECT v FROM b",
    "SELECT g FROM a WHERE k = 7 UNION SELECT g FROM b WHERE k = 9",
]
DISTINCT_BRANCHES = [
    "SELECT g FROM a INTERSECT SELECT g FROM b",
    "SELECT g, t FROM a EXCEPT SELECT g, t FROM b",
    "SELECT g FROM a UNION SELECT g FROM apart ORDER BY 1",
    "SELECT g, 1 AS one FROM a UNION SELECT g, k FROM here",
    "SELECT g, t FROM a UNION SELECT g, t FROM everywhere",
    "SELECT g FROM a UNION ALL (SELECT v FROM apart EXCEPT SELECT g FROM here)",
    "SELECT count(*) FROM (SELECT g, day FROM a EXCEPT SELECT g, day FROM apart) AS u",
    "SELECT g FROM (SELECT g FROM a UNION ALL SELECT g FROM b) AS u INTERSECT SELECT g FROM here",
    "SELECT g, count(*) FROM a GROUP BY k, g UNION SELECT k, g FROM here",
]
HERE = [
    "SELECT k, v FROM a EXCEPT SELECT v, k FROM b",
    "SELECT k FROM a UNION SELECT k FROM apart",
    "SELECT k FROM a INTERSECT SELECT k FROM apart",
    "SELECT n FROM a EXCEPT SELECT v FROM b",
    "SELECT g FROM a EXCEPT ALL SELECT g FROM b",
    "SELECT g FROM a INTERSECT ALL SELECT g FROM b",
    "SELECT g FROM a UNION ALL SELECT g FROM apart",
    "SELECT k FROM a UNION SELECT k FROM here",
    "SELECT k FROM a UNION ALL SELECT k FROM here",
    "SELECT k, g FROM a UNION SELECT k, g FROM everywhere",
    "SELECT k, g FROM a UNION ALL SELECT k, g FROM everywhere",
    "SELECT count(*) FROM (SELECT k, g FROM a UNION ALL SELECT k, g FROM everywhere) AS u",
    "SELECT k, g FROM everywhere EXCEPT SELECT k, g FROM a",
    "SELECT g FROM a INTERSECT SELECT g FROM everywhere",
    "SELECT k FROM a EXCEPT SELECT big FROM b",
    "SELECT k::bigint FROM a INTERSECT SELECT k FROM b",
    "SELECT k::small FROM a UNION SELECT k FROM b",
    "SELECT NULL::small, k FROM a UNION SELECT k, k FROM b",
    'SELECT t COLLATE "C", k FROM a UNION SELECT t, k FROM b ORDER BY 1, 2',
    "SELECT count(*) FROM (SELECT t COLLATE no_case AS t FROM a UNION ALL SELECT upper(t) FROM b) AS u WHERE t = 'T1'",
    "SELECT (SELECT count(*) FROM a), 1 UNION ALL SELECT (SELECT count(*) FROM b), 2",
    "SELECT count(*) FROM a WHERE k = 7 UNION ALL SELECT count(*) FROM b WHERE k = 8",
    "SELECT 'a' AS s, count(*), sum(v) FROM a UNION ALL SELECT 'b', count(*), sum(v) FROM b",
    "SELECT sum(c) FROM (SELECT count(*) AS c FROM a WHERE k = 7 UNION ALL SELECT v FROM b) AS u",
    "SELECT c, v FROM (SELECT count(*) AS c, 1 AS v FROM a WHERE k = 7 GROUP BY ROLLUP (g) UNION ALL SELECT v, g FROM b) AS u",
    "(SELECT k, v FROM a ORDER BY k, v LIMIT 5) UNION ALL SELECT k, v FROM b WHERE v = 3",
    "(SELECT k, v, t FROM a WHERE k = 7 ORDER BY v, t LIMIT 5) UNION SELECT k, v, t FROM b WHERE k = 7",
    "SELECT array_agg(v) FROM (SELECT 1 AS v UNION ALL SELECT 2) AS u",
    "SELECT random() < 2, k FROM a UNION ALL SELECT true, k FROM b",
    "SELECT count(*) FROM (SELECT k, v FROM a UNION ALL SELECT k, v FROM b) AS u WHERE random() < 2",
    "SELECT a FROM a UNION ALL SELECT a FROM a",
    "SELECT u, count(*) FROM (SELECT k, v FROM a UNION ALL SELECT k, v FROM b) AS u GROUP BY u",
    "SELECT FROM a UNION SELECT FROM b",
    "SELECT count(*) FROM (SELECT FROM a UNION ALL SELECT FROM b) AS u",
    "WITH RECURSIVE w AS (SELECT k FROM here UNION SELECT a.k + 1 FROM w JOIN a ON a.k = w.k WHERE a.k < 8)"
    " SELECT count(*) FROM w",
    "SELECT here.g, (SELECT count(*) FROM (SELECT k FROM a WHERE a.g = here.g UNION SELECT k FROM b WHERE b.g = here.k) AS u)"
    " FROM here",
    "SELECT here.k, u.* FROM here LEFT JOIN LATERAL (SELECT v FROM a WHERE a.k = here.k UNION ALL"
    " SELECT v FROM b WHERE b.k = here.k) AS u ON true",
    "SELECT a.k, u.* FROM a LEFT JOIN LATERAL (SELECT v, g FROM b WHERE b.k = a.k INTERSECT"
    " SELECT v, a.g FROM b WHERE b.k = a.k) AS u ON true",
]


def on_nobody(query: str) -> str:
    return query.replace("FROM b", "FROM nobody AS b")


def test_appended(pair: Pair) -> None:
    for query in APPENDED:
        pair.same(query)
        pair.same(on_nobody(query))


@pytest.mark.parametrize("query", APPENDED[:16])
def test_appended_on_the_workers(pair: Pair, query: str) -> None:
    assert "UNION ALL" in pair.every_remote_sql(query), pair.explain(query)


@pytest.mark.parametrize("query", WHOLE)
def test_whole_on_the_workers(pair: Pair, query: str) -> None:
    pair.same(query)
    pair.same(on_nobody(query))
    assert pair.remote_sql(query).count("SELECT") > 1, pair.explain(query)


@pytest.mark.parametrize("query", DISTINCT_FIRST)
def test_distinct_first(pair: Pair, query: str) -> None:
    pair.same(query)
    pair.same(on_nobody(query))
    assert "UNION SELECT" in pair.every_remote_sql(query), pair.explain(query)


@pytest.mark.parametrize("query", DISTINCT_BRANCHES)
def test_distinct_branches(pair: Pair, query: str) -> None:
    pair.same(query)
    pair.same(on_nobody(query))
    assert "SELECT DISTINCT" in pair.every_remote_sql(query), pair.explain(query)


@pytest.mark.parametrize("query", HERE)
def test_here(pair: Pair, query: str) -> None:
    pair.same(query)
    pair.same(on_nobody(query))


def test_explain(pair: Pair) -> None:
    """EXPLAIN shows the columns of what core has under names of its own."""
    for query in (WHOLE[0], WHOLE[2], WHOLE[6], DISTINCT_FIRST[0], APPENDED[17], APPENDED[0]):
        for options in ("VERBOSE", "ANALYZE, VERBOSE", "VERBOSE, FORMAT JSON"):
            pair.rows(f"EXPLAIN ({options}) {query}")


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_parameters(pair: Pair, mode: str) -> None:
    pair.execute(f"SET plan_cache_mode = {mode}")
    pair.execute(
        "PREPARE appended(integer) AS SELECT g, count(*), sum(v + $1) FROM three WHERE v > $1 GROUP BY g;"
        "PREPARE routed(integer) AS SELECT k, v, t FROM both_of_them WHERE k = $1;"
        "PREPARE counted(integer) AS SELECT count(*) FROM three WHERE k = $1;"
        "PREPARE whole(integer) AS SELECT k, $1 + v FROM a UNION SELECT k, v FROM b WHERE v < $1 ORDER BY 1, 2 LIMIT $1;"
        "PREPARE one(integer) AS SELECT g FROM a WHERE k = $1 EXCEPT SELECT g FROM b WHERE k = $1;"
        "PREPARE two(integer) AS SELECT g FROM a WHERE k = $1 UNION SELECT g FROM b WHERE k = $1 + 1"
    )
    for value in ("3", "11", "NULL", "100"):
        for name in ("appended", "routed", "counted", "whole", "one", "two"):
            pair.same(f"EXECUTE {name}({value})")
    pair.execute("DEALLOCATE ALL; RESET plan_cache_mode")


def test_own_writes_and_cursors(pair: Pair) -> None:
    queries = [APPENDED[1], APPENDED[13], WHOLE[0], WHOLE[4], DISTINCT_FIRST[0]]
    with pair.transaction():
        pair.same("INSERT INTO a (k, g, v) SELECT i, 1, i FROM generate_series(70, 99) AS i")
        pair.same("DELETE FROM b WHERE v = 4")
        pair.all_same(queries)
        for number, query in enumerate(queries):
            pair.same(f"DECLARE c{number} SCROLL CURSOR FOR {query}")
        pair.same("DELETE FROM a WHERE v < 40")
        for number in range(len(queries)):
            pair.same(f"FETCH ALL FROM c{number}", ordered=False)
            pair.same(f"FETCH BACKWARD ALL FROM c{number}", ordered=False)


def test_row_security(pair: Pair) -> None:
    with pair.under_policy("a", "v % 2 = 1 AND g < 4", "b", "nobody", "three", "both_of_them"):
        pair.all_same(
            [
                "SELECT g, count(*), max(t) FROM (SELECT g, t FROM a UNION ALL SELECT g, t FROM b) AS u GROUP BY g",
                "SELECT k, v FROM a UNION SELECT k, v FROM b",
                "SELECT k, v FROM a EXCEPT SELECT k, v FROM b",
                "SELECT k, v FROM b EXCEPT ALL SELECT k, v FROM a",
                "SELECT g FROM a UNION SELECT g FROM b",
                "SELECT count(*) FROM (SELECT * FROM a UNION ALL SELECT * FROM b) AS u WHERE v / (v - 2) > 0",
                "SELECT count(*) FROM three",
            ]
        )


def test_rights_are_checked(pair: Pair) -> None:
    pair.execute("DROP ROLE IF EXISTS set_reader; CREATE ROLE set_reader")
    pair.execute(
        f"GRANT USAGE ON SCHEMA {pair.schema} TO set_reader; GRANT SELECT ON a, three TO set_reader"
    )
    pair.execute("SET ROLE set_reader")
    try:
        for query in (
            WHOLE[0],
            APPENDED[0],
            "SELECT count(*) FROM three",
            "SELECT g FROM a UNION SELECT g FROM b",
        ):
            pair.same(query)
    finally:
        pair.execute("RESET ROLE; DROP OWNED BY set_reader; DROP ROLE set_reader")


def test_plans_follow_their_tables(pair: Pair) -> None:
    """A cached plan knows of the tables that only the workers read."""
    pair.execute(
        "CREATE TABLE left_one (k integer, v integer); CREATE TABLE right_one (k integer, v integer);"
        "INSERT INTO left_one SELECT i, i FROM generate_series(1, 40) AS i;"
        "INSERT INTO right_one SELECT i, i % 3 FROM generate_series(1, 40) AS i"
    )
    pair.distribute("left_one", "k")
    pair.distribute("right_one", "k", "left_one")
    pair.execute(
        "PREPARE q AS SELECT k, v FROM left_one INTERSECT SELECT k, v FROM right_one;"
        "PREPARE r AS SELECT sum(v) FROM (SELECT v FROM left_one UNION ALL SELECT v FROM right_one) AS u"
    )
    for _ in range(7):
        pair.same("EXECUTE q")
        pair.same("EXECUTE r")
    pair.same("ALTER TABLE right_one DROP COLUMN v")
    pair.same("ALTER TABLE right_one ADD COLUMN v integer DEFAULT 2")
    pair.same("EXECUTE q")
    pair.same("EXECUTE r")
    pair.execute("DEALLOCATE ALL; DROP TABLE left_one, right_one")


def test_writes(pair: Pair) -> None:
    pair.execute("CREATE TABLE kept (k integer, v integer)")
    pair.distribute("kept", "k", "a")
    for source in (
        "SELECT k, v FROM a UNION SELECT k, v FROM b",
        "SELECT k, v FROM both_of_them",
        "SELECT g, v FROM a UNION SELECT g, v FROM b",
        "SELECT k, v FROM a EXCEPT SELECT k, v FROM b ORDER BY 1, 2 LIMIT 7",
    ):
        pair.same(f"INSERT INTO kept {source}")
        pair.same("SELECT k, v, count(*) FROM kept GROUP BY k, v")
    pair.same(
        "UPDATE kept SET v = u.s FROM (SELECT k, sum(v) AS s FROM both_of_them GROUP BY k) AS u WHERE u.k = kept.k"
    )
    pair.same(
        "UPDATE kept SET v = 0 WHERE k IN (SELECT k FROM a INTERSECT SELECT k FROM b WHERE v = 3)"
    )
    pair.same("DELETE FROM kept WHERE EXISTS (SELECT FROM odd WHERE odd.k = kept.k AND odd.v = 7)")
    pair.same("SELECT k, v, count(*) FROM kept GROUP BY k, v")
    pair.execute("DROP TABLE kept")


def test_keys_with_casts_and_collations(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE name (k varchar(20), c text COLLATE no_case, p text COLLATE \"POSIX\" DEFAULT 'p');"
        "CREATE TABLE nickname (k text, c text, p text COLLATE \"C\" DEFAULT 'p');"
        "INSERT INTO name SELECT 'n' || i % 9, CASE i % 2 WHEN 0 THEN 'x' ELSE 'X' END || i % 3"
        " FROM generate_series(1, 60) AS i;"
        "INSERT INTO nickname SELECT 'n' || i % 13, 'X' || i % 4 FROM generate_series(1, 60) AS i"
    )
    pair.distribute("name", "k")
    pair.distribute("nickname", "k")
    pair.all_same(
        [
            "SELECT k FROM name UNION SELECT k FROM nickname",
            "SELECT k::text FROM name INTERSECT SELECT k FROM nickname",
            'SELECT k COLLATE "C" FROM name EXCEPT SELECT k FROM nickname',
            "SELECT upper(c) FROM name WHERE false UNION SELECT c FROM nickname",
            'SELECT k, p COLLATE "POSIX" FROM name UNION SELECT k, p FROM nickname ORDER BY 1, 2',
            'SELECT k, p COLLATE "POSIX" FROM name INTERSECT SELECT k, p FROM nickname',
            'SELECT k, p COLLATE "C" FROM name UNION ALL SELECT k, p FROM nickname',
            'SELECT k, lower(c) COLLATE "C" FROM name UNION SELECT k, lower(c) FROM nickname',
            "SELECT count(*) FROM (SELECT c COLLATE no_case FROM name UNION SELECT c COLLATE no_case FROM nickname) AS u",
            "SELECT lower(k), count(*) FROM (SELECT k, c FROM name UNION ALL SELECT k, c COLLATE no_case FROM nickname) AS u"
            " GROUP BY lower(k)",
        ]
    )
