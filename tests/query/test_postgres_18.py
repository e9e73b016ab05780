"""What PostgreSQL 18 brought to queries means the same over distributed tables."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests import shop
from tests.cluster import Cluster
from tests.pair import Pair, open_pair

pytestmark = pytest.mark.since(18)


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_18_queries") as made:
        shop.create(made)
        made.execute(
            "CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
            "CREATE TABLE words (id integer PRIMARY KEY, word text COLLATE nocase, n integer)"
        )
        made.distribute("words", "id")
        made.execute(
            "INSERT INTO words SELECT g, CASE WHEN g % 2 = 0 THEN 'Word' ELSE 'word' END || g % 7, g"
            " FROM generate_series(1, 100) AS g"
        )
        yield made


# GROUP BY is a relation of the range table: what is said of groups, everywhere where that can be said.
GROUPS = {
    "a key": "SELECT country, count(*) FROM users GROUP BY country HAVING country > 'B'",
    "the distribution key": "SELECT user_id, count(*) FROM events GROUP BY user_id HAVING user_id % 3 = 1",
    "an expression": "SELECT age / 10 * 10, count(*) FROM users GROUP BY age / 10 * 10 HAVING age / 10 * 10 > 30",
    "an expression of an expression": "SELECT (age / 10) + 1, avg(age) FROM users GROUP BY age / 10 ORDER BY (age / 10) * -1",
    "a constant": "SELECT 1 AS one, count(*) FROM users GROUP BY one",
    "a sub-select": "SELECT (SELECT weight FROM kinds k WHERE k.kind_id = e.kind_id) AS w, count(*) FROM events e GROUP BY 1",
    "a sub-select that asks for a group": "SELECT kind_id, (SELECT kind FROM kinds k WHERE k.kind_id = e.kind_id), count(*) FROM events e GROUP BY kind_id",
    "HAVING that asks for a group": "SELECT user_id, count(*) FROM events e GROUP BY user_id"
    " HAVING user_id IN (SELECT user_id FROM users WHERE age > 40)",
    "HAVING with a correlated average": "SELECT user_id, sum(amount) FROM events e GROUP BY user_id"
    " HAVING sum(amount) > (SELECT avg(i.amount) * 5 FROM events i WHERE i.user_id = e.user_id)",
    "groups of groups": "SELECT n, count(*) FROM (SELECT user_id, count(*) AS n FROM events GROUP BY user_id HAVING count(*) > 3) AS s GROUP BY n",
    "an EXISTS over groups": "SELECT user_id FROM users u WHERE EXISTS (SELECT 1 FROM events e WHERE e.user_id = u.user_id GROUP BY kind_id HAVING count(*) > 2)",
    "a scalar over groups": "SELECT user_id, (SELECT max(n) FROM (SELECT count(*) AS n FROM events e WHERE e.user_id = u.user_id GROUP BY kind_id) AS s) FROM users u",
    "windows over groups": "SELECT country, count(*), rank() OVER (ORDER BY count(*) DESC, country) FROM users GROUP BY country",
    "DISTINCT over groups": "SELECT DISTINCT age % 4, count(*) > 10 FROM users GROUP BY age",
    "a join's column": "SELECT user_id, count(*) FROM users JOIN events USING (user_id) GROUP BY user_id HAVING user_id < 50",
    "a merged column": "SELECT user_id, count(*) FROM users FULL JOIN visits USING (user_id) GROUP BY user_id",
    "the primary key's columns": "SELECT u.*, count(*) FROM users u JOIN events e USING (user_id) GROUP BY u.user_id",
    "HAVING that tells equal words apart": "SELECT lower(word), count(*), sum(n) FROM words GROUP BY word HAVING word = 'Word1' COLLATE \"C\" OR word = 'word1' COLLATE \"C\" ORDER BY sum(n)",
    "HAVING alone": "SELECT count(*) FROM users HAVING count(*) > 10",
}  # fmt: skip

SETS = {
    "ROLLUP": "SELECT country, plan_id, count(*) FROM users GROUP BY ROLLUP (country, plan_id)",
    "CUBE with HAVING on a key": "SELECT country, plan_id, count(*) FROM users GROUP BY CUBE (country, plan_id) HAVING country IS NULL",
    "an expression": "SELECT age / 10, count(*), grouping(age / 10) FROM users GROUP BY ROLLUP (age / 10)",
    "an expression of a key": "SELECT coalesce(country, 'all'), count(*) FROM users GROUP BY ROLLUP (country)",
    "a constant": "SELECT 1 AS one, count(*) FROM users GROUP BY ROLLUP (one) HAVING 1 IS NULL OR count(*) > 0",
    "keys of different sets": "SELECT country, plan_id, sum(age) FROM users GROUP BY GROUPING SETS ((country), (plan_id), ())",
    "a sub-select of them": "SELECT country FROM (SELECT country, plan_id, count(*) FROM users GROUP BY CUBE (country, plan_id)) AS s WHERE country IS NULL",
    "a join with them": "SELECT s.country, c.name FROM (SELECT country, count(*) FROM users GROUP BY ROLLUP (country)) AS s LEFT JOIN countries c ON c.code = s.country",
    "a sub-select in a key": "SELECT (SELECT kind FROM kinds k WHERE k.kind_id = e.kind_id) AS kind, count(*) FROM events e GROUP BY ROLLUP (1)",
    "ordered by a key": "SELECT country, count(*) FROM users GROUP BY ROLLUP (country) ORDER BY country NULLS FIRST, 2",
    "windows over them": "SELECT country, sum(count(*)) OVER (PARTITION BY country) FROM users GROUP BY CUBE (country, plan_id)",
    "DISTINCT sets": "SELECT country, plan_id, count(*) FROM users GROUP BY DISTINCT ROLLUP (country, plan_id), ROLLUP (country)",
}  # fmt: skip

# A join of a table with itself by a unique key goes away.
SELF_JOINS = {
    "by the key": "SELECT a.name, b.age FROM users a JOIN users b ON a.user_id = b.user_id",
    "by the key, with conditions of both": "SELECT count(*) FROM users a JOIN users b USING (user_id) WHERE a.age > 30 AND b.country = 'AT'",
    "by all of the key": "SELECT sum(a.amount) FROM events a JOIN events b ON (a.user_id, a.event_id) = (b.user_id, b.event_id) WHERE b.ok",
    "by a part of the key": "SELECT count(*) FROM events a JOIN events b ON a.user_id = b.user_id",
    "of a reference table": "SELECT a.kind, b.weight FROM kinds a JOIN kinds b ON a.kind_id = b.kind_id",
    "with a third": "SELECT count(*) FROM users a JOIN users b USING (user_id) JOIN events e ON e.user_id = b.user_id WHERE a.age > 40",
    "an outer one": "SELECT a.user_id, b.name FROM users a LEFT JOIN users b ON a.user_id = b.user_id AND b.age > 50",
    "in a sub-select": "SELECT user_id FROM users WHERE user_id IN (SELECT a.user_id FROM users a JOIN users b ON a.user_id = b.user_id WHERE b.age > 50)",
    "one row, locked": "SELECT a.name FROM users a JOIN users b ON a.user_id = b.user_id WHERE a.user_id = 7",
    "whole rows": "SELECT a, b FROM users a JOIN users b ON a.user_id = b.user_id WHERE a.user_id < 5",
    "of NULLs": "SELECT count(*) FROM notes a JOIN notes b ON a.topic = b.topic",
}  # fmt: skip

EXPRESSIONS = {
    "OR of constants": "SELECT count(*) FROM users WHERE age = 20 OR age = 30 OR age = 45",
    "OR of keys": "SELECT name FROM users WHERE user_id = 3 OR user_id = 77 OR user_id = 150",
    "OR with NULL": "SELECT count(*) FROM users WHERE country = 'AT' OR country = 'CH' OR country = NULL",
    "OR over a join": "SELECT count(*) FROM users u JOIN events e USING (user_id) WHERE u.age = 20 OR u.age = 27 OR e.kind_id = 3",
    "OR of a value on both sides": "SELECT count(*) FROM users a JOIN users b ON a.user_id = 5 OR a.user_id = 6 OR b.user_id = 7",
    "IN of VALUES": "SELECT count(*) FROM users WHERE user_id IN (VALUES (1), (2), (500))",
    "bytea of integers": "SELECT user_id, user_id::bytea, (user_id::bytea)::integer, age::bigint::bytea FROM users",
    "integers of short and long bytea": "SELECT '\\x01'::bytea::integer, user_id FROM users WHERE user_id < 9",
    "a bytea that is too long": "SELECT ('\\x0102030405'::bytea || user_id::bytea)::integer FROM users",
    "array_sort": "SELECT event_id, array_sort(tags), array_sort(tags, true, true) FROM events",
    "array_reverse": "SELECT event_id, array_reverse(tags) FROM events",
    "casefold": "SELECT user_id, casefold(name COLLATE pg_unicode_fast) FROM users",
    "PG_UNICODE_FAST": "SELECT upper(name || 'ß' COLLATE pg_unicode_fast), lower('Σ' || name COLLATE pg_unicode_fast) FROM users",
    "ordered by PG_UNICODE_FAST": "SELECT name FROM users ORDER BY name COLLATE pg_unicode_fast LIMIT 20",
    "the greatest by PG_UNICODE_FAST": "SELECT country, max(name COLLATE pg_unicode_fast) FROM users GROUP BY country",
    "LIKE with equal letters": "SELECT count(*), count(*) FILTER (WHERE word LIKE 'WORD%') FROM words",
    "reverse of bytea": "SELECT reverse(name::bytea) FROM users",
    "gamma and lgamma": "SELECT sum(gamma(age % 5 + 1)), round(sum(lgamma(age))::numeric, 6) FROM users",
    "crc32": "SELECT sum(crc32(name::bytea)), sum(crc32c(name::bytea)) FROM users",
    "roman numerals": "SELECT user_id, to_number(to_char(user_id, 'RN'), 'RN') FROM users",
    "json_strip_nulls of arrays": "SELECT event_id, jsonb_strip_nulls(jsonb_build_array(NULL, payload), true) FROM events",
    "JSON null as a number": "SELECT count(*) FROM events WHERE (jsonb_build_object('n', NULL)->'n')::integer IS NULL",
    "uuidv4 and uuidv7": "SELECT count(DISTINCT uuidv7()) > 1, bool_and(uuid_extract_version(uuidv7(INTERVAL '1 day')) = 7) FROM events",
    "the least and the greatest bytea": "SELECT country, min(name::bytea), max(name::bytea) FROM users GROUP BY country",
    "the greatest array": "SELECT kind_id, max(tags), min(tags) FROM events GROUP BY kind_id",
    "the greatest row": "SELECT max(ROW(age, user_id)), min((age, user_id)) FROM users",
    "a range of multiranges": "SELECT user_id, int4multirange(int4range(user_id, user_id + 3)) FROM users WHERE user_id < 9",
    "random dates": "SELECT count(*) FROM users WHERE strpos(reverse(name), 'r') > 0",
    "pg_get_acl": "SELECT count(*) FROM pg_class c WHERE c.oid = 'users'::regclass AND pg_get_acl('pg_class'::regclass, c.oid, 0) IS NULL",
    "num_nulls of groups": "SELECT num_nulls(country, plan_id), count(*) FROM users GROUP BY 1",
    "extract of an interval": "SELECT user_id, extract(week FROM make_interval(days => user_id)) FROM users",
    "to_char of TZH": "SELECT to_char(at, 'YYYY-MM-DD OF') FROM events WHERE user_id = 14",
}  # fmt: skip

QUERIES = GROUPS | SETS | SELF_JOINS | EXPRESSIONS


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_new_forms_mean_the_same(pair: Pair, query: str) -> None:
    pair.same(query)


@pytest.mark.parametrize("query", (GROUPS | SETS).values(), ids=GROUPS | SETS)
def test_groups_of_prepared_statements_mean_the_same(pair: Pair, query: str) -> None:
    """Generic plans are made of a query that was analysed, and rewritten, before."""
    pair.execute("SET plan_cache_mode = force_generic_plan")
    try:
        pair.execute(f"PREPARE grouped AS {query}")
        pair.same("EXECUTE grouped")
        pair.same("EXECUTE grouped")
    finally:
        pair.execute("DEALLOCATE ALL; RESET plan_cache_mode")


def test_groups_of_views_mean_the_same(pair: Pair) -> None:
    pair.execute(
        "CREATE VIEW per_country AS SELECT country, count(*) AS n, max(age) AS oldest FROM users"
        " GROUP BY country HAVING country IS NOT NULL"
    )
    pair.same("SELECT * FROM per_country")
    pair.same("SELECT country FROM per_country WHERE n > 20 AND country > 'B'")
    pair.same("SELECT c.name, p.n FROM per_country p JOIN countries c ON c.code = p.country")
    pair.same("SELECT pg_get_viewdef('per_country'::regclass)")


def test_groups_of_virtual_columns_mean_the_same(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE ages (user_id integer, age integer, decade integer GENERATED ALWAYS AS (age / 10) VIRTUAL,"
        " old boolean GENERATED ALWAYS AS (age > 40) VIRTUAL,"
        " grown boolean GENERATED ALWAYS AS (age > 20 AND age < 60) VIRTUAL)"
    )
    pair.distribute("ages", "user_id")
    pair.execute("INSERT INTO ages SELECT user_id % 20, age FROM users")
    pair.all_same(
        f"SELECT {asked} FROM ages{where} GROUP BY {groups}"
        for asked, groups in (
            ("decade, (SELECT count(*) FROM kinds k WHERE k.kind_id = decade), count(*)", "decade"),
            ("(SELECT max(k.kind) FROM kinds k WHERE k.kind_id < decade)", "user_id, decade"),
            ("NOT old, count(*)", "old"),
            ("rank() OVER (ORDER BY count(*)), NOT old", "user_id, old"),
            ("grown AND count(*) > 3", "user_id, grown"),
            ("count(*)", "user_id, grown HAVING grown AND count(*) > 3"),
            ("decade, (SELECT count(*) FROM kinds k WHERE k.kind_id = decade)", "ROLLUP (decade)"),
        )
        for where in ("", " WHERE user_id = 7")
    )


def test_groups_that_a_unique_index_makes_redundant(pair: Pair) -> None:
    """The planner drops them; what names them is still computed on the workers."""
    pair.execute("CREATE TABLE badges (number integer NOT NULL UNIQUE, owner text, color text)")
    pair.distribute("badges", "number", colocate_with="events")
    pair.execute(
        "INSERT INTO badges SELECT g, 'o' || g, 'c' || g % 3 FROM generate_series(1, 50) AS g"
    )
    pair.execute("ANALYZE badges")
    joined = "FROM badges JOIN events ON user_id = number GROUP BY number, owner"
    for query in (
        f"SELECT number, upper(owner), count(*) {joined}",
        f"SELECT number, count(*) {joined}, color HAVING count(*) < length(owner || color)",
        f"SELECT upper(owner), count(color) {joined}, upper(owner)",
    ):
        assert "GROUP BY" in pair.remote_sql(query)
        pair.same(query)


def test_the_join_of_a_table_with_itself_is_gone(pair: Pair) -> None:
    sql = pair.remote_sql("SELECT a.name, b.age FROM users a JOIN users b ON a.user_id = b.user_id")
    assert sql.count("users") == 1, sql


def test_an_index_is_searched_without_its_first_column(pair: Pair) -> None:
    """Skip scans, over the indexes of columnar shards too."""
    pair.execute("CREATE TABLE stays (id integer, site integer, place integer)")
    pair.distribute("stays", "id", storage="columnar")
    pair.execute(
        "INSERT INTO stays SELECT g, g % 3, hashint4(g) % 1000000 FROM generate_series(1, 100000) AS g"
    )
    pair.execute("CREATE INDEX ON stays (site, place)")
    pair.execute("ANALYZE stays")
    query = "SELECT id, site FROM stays WHERE place = 777"
    pair.same(query)
    pair.same("SELECT count(*) FROM stays WHERE place BETWEEN 1000 AND 1100")
    pair.same("SELECT site, place FROM stays WHERE place IN (5, 900000, 17) ORDER BY site, place")
    plan = pair.explain(query, "ANALYZE, STRATA")
    searches = [int(n) for n in re.findall(r"Index Searches: (\d+)", plan)]
    assert searches, plan
    assert min(searches) > 1, plan


def test_uuids_of_version_7_come_in_the_order_of_time(pair: Pair) -> None:
    pair.execute("CREATE TABLE stamped (id uuid DEFAULT uuidv7(), n integer)")
    pair.distribute("stamped", "id")
    for n in range(20):
        pair.ours.execute("INSERT INTO stamped (n) VALUES (%s)", (n,))
    assert pair.rows("SELECT n FROM stamped ORDER BY id") == [(n,) for n in range(20)]


def test_disabled_nodes_are_a_last_resort(pair: Pair) -> None:
    """Settings like enable_seqscan only say what is to be avoided where there is another way."""
    for setting in ("enable_seqscan", "enable_hashagg", "enable_sort", "enable_hashjoin"):
        pair.execute(f"SET {setting} = off")
        try:
            pair.same("SELECT country, count(*) FROM users GROUP BY country ORDER BY country")
            pair.same("SELECT count(*) FROM users u JOIN events e USING (user_id) WHERE age > 30")
        finally:
            pair.execute(f"RESET {setting}")


def test_explain_of_18_runs(pair: Pair) -> None:
    text = pair.explain("SELECT country, count(*) FROM users GROUP BY country", "ANALYZE")
    assert "Strata Gather" in text
    assert "Buffers: " in text
    assert pair.rows("EXPLAIN (ANALYZE, WAL, SERIALIZE) SELECT * FROM users LIMIT 3")
