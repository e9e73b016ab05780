"""What the workers do not have is computed on the coordinator: temporary objects, rows of local tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_only_here") as made:
        made.execute(
            "CREATE TABLE t (k integer, v integer, e text); CREATE TABLE r (k integer, e text)"
        )
        made.distribute("t", "k")
        made.reference("r")
        made.execute(
            "INSERT INTO t SELECT i, i, CASE WHEN i % 2 = 0 THEN 'calm' ELSE 'sad' END"
            " FROM generate_series(1, 20) AS i; INSERT INTO r VALUES (1, 'calm'), (2, 'sad');"
            "CREATE DOMAIN small AS integer CHECK (VALUE < 1000);"
            "CREATE DOMAIN pg_temp.small AS integer CHECK (VALUE < 10);"
            "CREATE TYPE pg_temp.mood AS ENUM ('sad', 'calm');"
            "CREATE TYPE pg_temp.two AS (a integer, b integer);"
            "CREATE FUNCTION pg_temp.half(integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql"
            " AS 'BEGIN RETURN $1 / 2; END';"
            'CREATE COLLATION pg_temp.other FROM "C";'
            "CREATE AGGREGATE pg_temp.total (integer) (SFUNC = int4pl, STYPE = integer, INITCOND = '0',"
            " COMBINEFUNC = int4pl, PARALLEL = SAFE);"
            "CREATE TABLE l (a integer, b text); INSERT INTO l VALUES (1, 'x'), (2, 'y');"
            "CREATE VIEW lv AS SELECT * FROM l; CREATE TEMP TABLE tl (a integer, b text);"
            "CREATE FUNCTION first_of(l) RETURNS integer IMMUTABLE LANGUAGE plpgsql"
            " AS 'BEGIN RETURN $1.a; END';"
            "CREATE FUNCTION add_l(integer, l) RETURNS integer IMMUTABLE LANGUAGE sql AS 'SELECT $1 + $2.a';"
            "CREATE AGGREGATE total_of(l) (SFUNC = add_l, STYPE = integer, INITCOND = '0',"
            " COMBINEFUNC = int4pl, PARALLEL = SAFE)"
        )
        yield made
        made.execute("DISCARD TEMP")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, v::small FROM t WHERE k < 5",
        "SELECT count(v::small) FROM t",  # too great for the temporary one
        "SELECT count(v::test_only_here.small) FROM t",
        "SELECT count(*) FROM t WHERE k = 5::pg_temp.small",
        "SELECT count(*) FROM t WHERE e::pg_temp.mood = 'calm'",
        "SELECT e::pg_temp.mood, count(*) FROM t GROUP BY 1",
        "SELECT k, e::pg_temp.mood FROM t ORDER BY 2, 1 LIMIT 3",
        "SELECT max(e::pg_temp.mood) FROM t",
        "SELECT count(*) FROM t WHERE e = ANY (ARRAY['calm']::pg_temp.mood[]::text[])",
        "SELECT count(*) FROM t JOIN r ON t.e::pg_temp.mood = r.e::pg_temp.mood",
        "SELECT ROW(k, v)::pg_temp.two FROM t WHERE k < 4",
        "SELECT count(*) FROM t WHERE (ROW(k, v)::pg_temp.two).a = 2",
        "SELECT ARRAY[ROW(k, v)]::pg_temp.two[] FROM t WHERE k = 2",
        "SELECT sum(pg_temp.half(v)) FROM t",
        "SELECT count(*) FROM t WHERE pg_temp.half(v) = 2",
        "SELECT t.k FROM t JOIN r ON pg_temp.half(t.k) = r.k",
        "SELECT pg_temp.total(v), count(*) FROM t",
        "SELECT count(*) FROM t WHERE e > 'd' COLLATE pg_temp.other",
        "SELECT min(e COLLATE pg_temp.other) FROM t",
        "SELECT count(*) FROM t, l WHERE first_of(l) = t.k",
        "SELECT count(*) FROM t WHERE first_of(ROW(k, e)::l) = 3",
        "SELECT total_of(ROW(k, e)::l) FROM t",
        "SELECT ROW(k, e)::l, ROW(k, e)::tl FROM t WHERE k < 3",
        "SELECT count(*) FROM t WHERE (ROW(k, e)::l).a = 3 AND (ROW(k, e)::lv).b = 'sad'",
        "SELECT count(*) FROM t WHERE (ARRAY[ROW(k, e)]::l[])[1].a = 1",
        "SELECT array_agg(ROW(k, e)::l ORDER BY k) FROM t WHERE k < 3",
        "SELECT count(*) FROM t WHERE ROW(k, e)::r = ROW(2, 'calm')::r",
    ],
)
def test_a_query_may_use_what_only_the_coordinator_has(pair: Pair, query: str):
    pair.same(query)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_parameters_may_be_of_such_types(pair: Pair, mode: str):
    pair.execute(f"SET plan_cache_mode = {mode}; DEALLOCATE ALL")
    pair.execute("PREPARE a (pg_temp.mood) AS SELECT count(*) FROM t WHERE e = $1::text")
    pair.execute("PREPARE b (l) AS SELECT count(*) FROM t WHERE k = ($1).a")
    pair.execute("PREPARE c (integer) AS SELECT count(*) FROM t WHERE k = pg_temp.half($1)")
    pair.execute("PREPARE d (integer) AS UPDATE t SET v = v WHERE k = pg_temp.half($1)")
    pair.all_same(
        ["EXECUTE a ('calm')", "EXECUTE b (ROW(1, 'a'))", "EXECUTE c (8)", "EXECUTE d (8)"]
    )


def test_changes_use_such_types(pair: Pair):
    with pair.transaction():
        pair.same("INSERT INTO t SELECT 100, pg_temp.half(8)")
        pair.same("INSERT INTO t SELECT pg_temp.half(k), v FROM t WHERE k = 4")
        pair.same("UPDATE t SET e = 'calm'::pg_temp.mood::text WHERE k = 2 RETURNING e")
        pair.same("UPDATE t SET v = pg_temp.half(8) WHERE k = pg_temp.half(8) RETURNING v")
        pair.same("DELETE FROM t WHERE e::pg_temp.mood = 'sad'")
        pair.same("UPDATE t SET v = pg_temp.half(v)")
        pair.same("SELECT * FROM t")


def test_the_row_type_of_a_table_follows_it_to_the_workers(pair: Pair):
    pair.execute("CREATE TABLE later (k integer, e text)")
    query = "SELECT count(*) FROM t WHERE ROW(k, e)::later = ROW(2, 'calm')::later"
    pair.same(query)
    assert "later" not in pair.remote_sql(query)
    pair.distribute("later", "k")
    pair.same(query)
    assert "later" in pair.remote_sql(query)
    pair.ours.execute("SELECT undistribute_table('later')")
    pair.same(query)
    pair.execute("DROP TABLE later")
