"""Every SELECT that PostgreSQL runs, runs on distributed tables with the same answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import shop
from tests.cluster import Cluster
from tests.pair import Pair, open_pair


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_select") as made:
        shop.create(made)
        yield made


def cases(queries: dict[str, str]):
    """Parameters of a test: one query each, named by its promise."""
    return pytest.mark.parametrize("query", list(queries.values()), ids=list(queries))


@cases(
    {
        "all rows": "SELECT * FROM events",
        "some columns": "SELECT amount, event_id FROM events",
        "no columns": "SELECT FROM users",
        "expressions": "SELECT user_id * 2, upper(name), coalesce(country, '?') FROM users",
        "filter": "SELECT * FROM events WHERE amount > 50 AND NOT ok",
        "filter on NULL": "SELECT name FROM users WHERE country IS NULL",
        "key equals constant": "SELECT * FROM users WHERE user_id = 17",
        "key equals another type": "SELECT * FROM users WHERE user_id = 17::bigint",
        "key equals numeric": "SELECT * FROM users WHERE user_id = 17.0",
        "key in list": "SELECT * FROM users WHERE user_id IN (1, 17, 99, 5000, NULL)",
        "key any array": "SELECT * FROM users WHERE user_id = ANY ('{3,4,5}')",
        "two keys or": "SELECT * FROM users WHERE user_id = 3 OR user_id = 4 AND age > 20",
        "key range": "SELECT count(*) FROM users WHERE user_id BETWEEN 10 AND 20",
        "contradiction": "SELECT * FROM users WHERE user_id = 3 AND user_id = 4",
        "NULL as key": "SELECT * FROM users WHERE user_id = NULL",
        "text key": "SELECT * FROM notes WHERE topic = 'topic 3'",
        "NULL keys": "SELECT * FROM notes WHERE topic IS NULL",
        "bigint key": "SELECT * FROM visits WHERE visit_id = 3 * 1000003",
        "reference table": "SELECT * FROM countries ORDER BY code",
        "whole row": "SELECT u FROM users AS u WHERE age > 60",
        "fields of a whole row": "SELECT (u).name, (u.*) IS NULL FROM users AS u",
        "row comparison": "SELECT event_id FROM events WHERE (user_id, event_id) > (150, 700)",
        "row constructor": "SELECT row(user_id, name) FROM users WHERE user_id < 5",
        "case and nullif": "SELECT CASE WHEN ok THEN nullif(kind_id, 2) END FROM events",
        "parallel-unsafe nothing": "SELECT 1 WHERE EXISTS (SELECT FROM users)",
    }
)
def test_scans(pair: Pair, query: str) -> None:
    pair.same(query)


@cases(
    {
        "inner on the key": "SELECT * FROM users JOIN events USING (user_id)",
        "left on the key": "SELECT u.name, e.event_id FROM users u LEFT JOIN events e USING (user_id)",
        "right on the key": "SELECT u.name, e.event_id FROM users u RIGHT JOIN events e USING (user_id)",
        "full on the key": "SELECT u.name, e.event_id FROM users u FULL JOIN events e USING (user_id)",
        "left with a condition of the inner side": "SELECT u.user_id, e.event_id FROM users u"
        " LEFT JOIN events e ON e.user_id = u.user_id AND e.amount > 90",
        "left with a condition of the outer side": "SELECT u.user_id, e.event_id FROM users u"
        " LEFT JOIN events e ON e.user_id = u.user_id AND u.age > 50",
        "left where the inner side is missing": "SELECT u.user_id FROM users u"
        " LEFT JOIN events e ON e.user_id = u.user_id AND e.amount > 90 WHERE e.event_id IS NULL",
        "full with filters on both sides": "SELECT a.user_id, b.event_id FROM"
        " (SELECT * FROM users WHERE age < 40) a"
        " FULL JOIN (SELECT * FROM events WHERE amount < 20) b USING (user_id)",
        "self join on the key": "SELECT a.event_id, b.event_id FROM events a"
        " JOIN events b ON a.user_id = b.user_id AND a.event_id < b.event_id WHERE a.amount > 95",
        "self join on another column": "SELECT a.user_id, b.user_id FROM users a"
        " JOIN users b ON a.age = b.age AND a.user_id < b.user_id",
        "reference inner": "SELECT u.name, c.name FROM users u JOIN countries c ON c.code = u.country",
        "reference left": "SELECT u.name, c.name FROM users u LEFT JOIN countries c ON c.code = u.country",
        "reference on the preserved side": "SELECT c.name, u.user_id FROM countries c"
        " LEFT JOIN users u ON u.country = c.code",
        "reference full": "SELECT c.name, u.user_id FROM countries c FULL JOIN users u ON u.country = c.code",
        "reference cross": "SELECT u.user_id, k.kind FROM users u CROSS JOIN kinds k WHERE u.age < 25",
        "non-colocated inner": "SELECT u.name, v.page FROM users u JOIN visits v USING (user_id)",
        "non-colocated left": "SELECT v.visit_id, u.name FROM visits v LEFT JOIN users u USING (user_id)",
        "non-colocated full": "SELECT v.visit_id, u.name FROM visits v FULL JOIN users u USING (user_id)",
        "non-equi": "SELECT u.user_id, v.visit_id FROM users u JOIN visits v ON v.seconds < u.age - 70",
        "text key with expression": "SELECT n.body, k.kind_id FROM notes n"
        " JOIN kinds k ON n.topic = 'topic ' || k.kind_id",
        "local inner": "SELECT u.name, p.plan FROM users u JOIN plans p USING (plan_id)",
        "local left": "SELECT p.plan, u.user_id FROM plans p LEFT JOIN users u USING (plan_id)",
        "local and reference": "SELECT p.plan, c.name FROM plans p, countries c ORDER BY 1, 2",
        "five tables": "SELECT u.name, c.name, k.kind, p.plan, e.amount FROM users u"
        " JOIN events e USING (user_id) JOIN kinds k USING (kind_id)"
        " LEFT JOIN countries c ON c.code = u.country LEFT JOIN plans p USING (plan_id)"
        " WHERE e.amount > 80",
        "colocated then non-colocated": "SELECT count(*), sum(v.seconds) FROM users u"
        " JOIN events e USING (user_id) JOIN visits v USING (user_id)",
        "nested outer joins": "SELECT u.user_id, e.event_id, k.kind FROM users u LEFT JOIN"
        " (events e JOIN kinds k USING (kind_id)) ON e.user_id = u.user_id AND k.weight > 3",
        "key equal through a third column": "SELECT count(*) FROM users u, events e, visits v"
        " WHERE u.user_id = v.user_id AND v.user_id = e.user_id",
        "join on the key and a constant": "SELECT u.name, e.event_id FROM users u"
        " JOIN events e USING (user_id) WHERE u.user_id = 42",
        "natural": "SELECT * FROM users NATURAL JOIN plans",
        "merged column of a full join": "SELECT user_id FROM users FULL JOIN events USING (user_id)",
    }
)
def test_joins(pair: Pair, query: str) -> None:
    pair.same(query)


@cases(
    {
        "exists on the key": "SELECT name FROM users u WHERE EXISTS"
        " (SELECT FROM events e WHERE e.user_id = u.user_id AND amount > 95)",
        "not exists on the key": "SELECT name FROM users u WHERE NOT EXISTS"
        " (SELECT FROM events e WHERE e.user_id = u.user_id)",
        "exists elsewhere": "SELECT name FROM users u WHERE EXISTS"
        " (SELECT FROM visits v WHERE v.user_id = u.user_id AND seconds > 250)",
        "in on the key": "SELECT name FROM users WHERE user_id IN (SELECT user_id FROM events WHERE ok)",
        "in elsewhere": "SELECT name FROM users WHERE user_id IN (SELECT user_id FROM visits)",
        "not in with NULLs": "SELECT name FROM users WHERE user_id NOT IN (SELECT user_id FROM visits)",
        "not in without NULLs": "SELECT name FROM users WHERE user_id NOT IN"
        " (SELECT user_id FROM visits WHERE user_id IS NOT NULL)",
        "in a reference table": "SELECT name FROM users WHERE country IN (SELECT code FROM countries)",
        "in a local table": "SELECT name FROM users WHERE plan_id IN (SELECT plan_id FROM plans)",
        "any and all": "SELECT name FROM users WHERE age >= ALL (SELECT age FROM users)"
        " OR balance < ANY (SELECT price FROM plans)",
        "scalar": "SELECT name FROM users WHERE age = (SELECT max(age) FROM users)",
        "scalar in the select list": "SELECT user_id, (SELECT count(*) FROM visits) FROM users",
        "correlated scalar on the key": "SELECT user_id, (SELECT sum(amount) FROM events e"
        " WHERE e.user_id = u.user_id) FROM users u",
        "correlated scalar elsewhere": "SELECT user_id, (SELECT max(page) FROM visits v"
        " WHERE v.user_id = u.user_id) FROM users u WHERE user_id < 30",
        "correlated over two levels": "SELECT user_id FROM users u WHERE EXISTS (SELECT FROM events e"
        " WHERE e.user_id = u.user_id AND e.amount > (SELECT avg(amount) FROM events i"
        " WHERE i.user_id = u.user_id) * 1.9)",
        "correlated aggregate comparison": "SELECT event_id FROM events e WHERE amount ="
        " (SELECT max(amount) FROM events i WHERE i.user_id = e.user_id)",
        "of an outer reference row": "SELECT c.code, (SELECT count(*) FROM users u WHERE"
        " u.country = c.code) FROM countries c",
        "exists in the select list": "SELECT user_id, EXISTS (SELECT FROM events e WHERE"
        " e.user_id = u.user_id AND NOT ok) FROM users u",
        "exists under OR": "SELECT user_id FROM users u WHERE age > 70 OR EXISTS"
        " (SELECT FROM events e WHERE e.user_id = u.user_id AND amount > 98)",
        "array": "SELECT ARRAY(SELECT user_id FROM users WHERE age > 70 ORDER BY 1)",
        "row": "SELECT user_id FROM users WHERE (country, age) = (SELECT 'AT', 60)",
        "row in": "SELECT user_id FROM users WHERE (user_id, 2) IN (SELECT user_id, kind_id FROM events)",
        "in having": "SELECT country, count(*) FROM users GROUP BY country"
        " HAVING count(*) > (SELECT count(*) FROM countries) * 4",
        "in order by": "SELECT user_id FROM users u ORDER BY (SELECT count(*) FROM events e"
        " WHERE e.user_id = u.user_id) DESC, user_id",
        "in limit": "SELECT user_id FROM users ORDER BY user_id LIMIT (SELECT count(*) FROM kinds)"
        " OFFSET (SELECT min(age) FROM users)",
        "with limit inside": "SELECT name FROM users WHERE user_id IN"
        " (SELECT user_id FROM events ORDER BY amount DESC, event_id LIMIT 10)",
        "empty scalar": "SELECT (SELECT name FROM users WHERE user_id = -1) IS NULL",
    }
)
def test_subqueries(pair: Pair, query: str) -> None:
    pair.same(query)


@cases(
    {
        "derived by the key": "SELECT avg(n) FROM (SELECT user_id, count(*) AS n FROM events GROUP BY"
        " user_id) AS c",
        "derived by the key joined": "SELECT u.name, c.n FROM users u JOIN (SELECT user_id, count(*)"
        " AS n FROM events GROUP BY user_id) AS c USING (user_id)",
        "derived not by the key": "SELECT u.user_id, c.n FROM users u JOIN (SELECT kind_id, count(*)"
        " AS n FROM events GROUP BY kind_id) AS c ON c.kind_id = u.user_id",
        "derived with limit": "SELECT count(*) FROM (SELECT * FROM events LIMIT 10) AS e",
        "derived with distinct": "SELECT count(*) FROM (SELECT DISTINCT country, age FROM users) AS d",
        "derived with window": "SELECT * FROM (SELECT user_id, event_id, row_number() OVER (PARTITION BY"
        " user_id ORDER BY amount DESC, event_id) AS r FROM events) AS w WHERE r = 1",
        "nullable derived table": "SELECT u.user_id, d.x FROM users u LEFT JOIN (SELECT user_id,"
        " coalesce(kind_id, -1) AS x FROM events WHERE amount > 95) AS d USING (user_id)",
        "constant of the nullable side": "SELECT u.user_id, d.one FROM users u LEFT JOIN"
        " (SELECT user_id, 1 AS one FROM events WHERE amount > 95) AS d USING (user_id)",
        "lateral with limit": "SELECT u.user_id, l.event_id FROM users u CROSS JOIN LATERAL (SELECT"
        " event_id FROM events e WHERE e.user_id = u.user_id ORDER BY event_id LIMIT 2) AS l",
        "lateral left": "SELECT u.user_id, l.page FROM users u LEFT JOIN LATERAL (SELECT page FROM"
        " visits v WHERE v.user_id = u.user_id ORDER BY visit_id LIMIT 1) AS l ON true"
        " WHERE u.user_id < 40",
        "lateral function": "SELECT event_id, t FROM events, LATERAL unnest(tags) AS t",
        "lateral aggregate": "SELECT c.code, l.n FROM countries c, LATERAL (SELECT count(*) AS n FROM"
        " users u WHERE u.country = c.code) AS l",
        "generate_series": "SELECT g, count(user_id) FROM generate_series(1, 80) AS g"
        " LEFT JOIN users ON age = g GROUP BY g",
        "values": "SELECT v.x, u.name FROM (VALUES (1, 'a'), (7, 'b'), (9999, 'c')) AS v (x, y)"
        " LEFT JOIN users u ON u.user_id = v.x",
        "set-returning select list": "SELECT user_id, generate_series(1, user_id) FROM users"
        " WHERE user_id < 6",
        "json function": "SELECT event_id, p.key, p.value FROM events, jsonb_each_text(payload) AS p"
        " WHERE event_id < 50",
        "with ordinality": "SELECT event_id, t.* FROM events, unnest(tags) WITH ORDINALITY AS t",
        "rows from": "SELECT * FROM ROWS FROM (generate_series(1, 3), unnest(ARRAY['a', 'b'])) AS r (a, b)"
        " JOIN users ON user_id = a",
        "cte": "WITH old AS (SELECT * FROM users WHERE age > 60) SELECT o.name, count(e.event_id)"
        " FROM old o LEFT JOIN events e USING (user_id) GROUP BY o.name",
        "cte used twice": "WITH c AS (SELECT country, count(*) AS n FROM users GROUP BY country)"
        " SELECT a.country, b.country FROM c a JOIN c b ON a.n = b.n",
        "cte materialized": "WITH c AS MATERIALIZED (SELECT * FROM events) SELECT count(*) FROM c"
        " WHERE user_id = 3",
        "cte not materialized": "WITH c AS NOT MATERIALIZED (SELECT * FROM events) SELECT count(*)"
        " FROM c a JOIN c b USING (user_id, event_id)",
        "cte unused": "WITH c AS (SELECT * FROM events) SELECT count(*) FROM users",
        "recursive over a distributed table": "WITH RECURSIVE chain (id, depth) AS (SELECT 1, 0 UNION"
        " SELECT u.age + 3 * depth, depth + 1 FROM chain JOIN users u ON u.user_id = chain.id"
        " WHERE depth < 20) SELECT * FROM chain",
        "recursive search and cycle": "WITH RECURSIVE c (id) AS (SELECT 1 UNION ALL SELECT u.age FROM c"
        " JOIN users u ON u.user_id = c.id) CYCLE id SET looped USING path SELECT id, looped FROM c",
        "tablesample all": "SELECT count(*), sum(amount) FROM events TABLESAMPLE BERNOULLI (100)",
        "tablesample system all": "SELECT count(*) FROM users TABLESAMPLE SYSTEM (100)",
        "tablesample none": "SELECT count(*) FROM users TABLESAMPLE BERNOULLI (0) REPEATABLE (3)",
        "tablesample joined": "SELECT count(*) FROM users TABLESAMPLE SYSTEM (100) JOIN events"
        " USING (user_id)",
    }
)
def test_from_items(pair: Pair, query: str) -> None:
    pair.same(query)


@cases(
    {
        "partition by the key": "SELECT user_id, event_id, rank() OVER (PARTITION BY user_id ORDER BY"
        " amount, event_id) FROM events",
        "partition by another column": "SELECT kind_id, event_id, row_number() OVER (PARTITION BY"
        " kind_id ORDER BY event_id) FROM events",
        "no partition": "SELECT event_id, sum(amount) OVER (ORDER BY event_id) FROM events",
        "frames": "SELECT event_id, avg(amount) OVER (ORDER BY event_id ROWS BETWEEN 3 PRECEDING AND 1"
        " FOLLOWING EXCLUDE CURRENT ROW), count(*) OVER (ORDER BY kind_id GROUPS 1 PRECEDING) FROM events",
        "range frame": "SELECT event_id, count(*) OVER (ORDER BY at RANGE BETWEEN INTERVAL '5 hours'"
        " PRECEDING AND CURRENT ROW) FROM events",
        "several windows": "SELECT user_id, lag(age) OVER w, lead(age, 2, 0) OVER w, ntile(7) OVER w,"
        " percent_rank() OVER (ORDER BY age), cume_dist() OVER (ORDER BY age), nth_value(age, 3) OVER w"
        " FROM users WINDOW w AS (ORDER BY user_id)",
        "over an aggregate": "SELECT country, sum(count(*)) OVER (ORDER BY country) FROM users GROUP BY"
        " country",
        "with filter": "SELECT user_id, count(*) FILTER (WHERE age > 40) OVER (PARTITION BY country)"
        " FROM users",
        "over a join": "SELECT e.event_id, first_value(u.name) OVER (PARTITION BY e.kind_id ORDER BY"
        " e.event_id) FROM events e JOIN users u USING (user_id)",
    }
)
def test_windows(pair: Pair, query: str) -> None:
    pair.same(query)


@cases(
    {
        "union": "SELECT user_id FROM users UNION SELECT user_id FROM visits",
        "union all": "SELECT user_id, name FROM users UNION ALL SELECT event_id::int, 'e' FROM events",
        "union all colocated by key": "SELECT user_id FROM users UNION ALL SELECT user_id FROM events",
        "union all aggregated": "SELECT count(*), sum(x) FROM (SELECT user_id AS x FROM users UNION ALL"
        " SELECT kind_id FROM events UNION ALL SELECT plan_id FROM plans) AS u",
        "union all filtered": "SELECT * FROM (SELECT user_id AS k, 'u' AS s FROM users UNION ALL SELECT"
        " user_id, 'e' FROM events) AS u WHERE k = 17",
        "intersect": "SELECT user_id FROM users INTERSECT SELECT user_id FROM visits",
        "intersect all": "SELECT age FROM users INTERSECT ALL SELECT kind_id FROM events",
        "except": "SELECT user_id FROM users EXCEPT SELECT user_id FROM visits",
        "except all": "SELECT kind_id FROM events EXCEPT ALL SELECT kind_id FROM kinds",
        "nested": "(SELECT user_id FROM users EXCEPT SELECT user_id FROM visits) UNION ALL"
        " (SELECT kind_id FROM kinds INTERSECT SELECT user_id FROM users)",
        "ordered with limit": "SELECT user_id FROM users UNION SELECT user_id FROM visits ORDER BY 1"
        " NULLS FIRST LIMIT 7 OFFSET 2",
        "ordered members": "(SELECT user_id FROM users ORDER BY age, user_id LIMIT 3) UNION ALL"
        " (SELECT user_id FROM visits ORDER BY visit_id DESC LIMIT 3)",
        "different types": "SELECT user_id FROM users UNION SELECT amount FROM events UNION SELECT NULL",
        "values": "VALUES (1, 'x'), (2, 'y') UNION ALL SELECT user_id, name FROM users",
        "with reference": "SELECT code FROM countries EXCEPT SELECT country FROM users",
    }
)
def test_set_operations(pair: Pair, query: str) -> None:
    pair.same(query)


@cases(
    {
        "order by": "SELECT * FROM users ORDER BY age DESC, user_id",
        "order by text": "SELECT name FROM users ORDER BY name",
        "order by collation": 'SELECT name FROM users ORDER BY name COLLATE "C" DESC',
        "order by NULLs": "SELECT user_id, balance FROM users ORDER BY balance DESC NULLS LAST, user_id",
        "order by expression": "SELECT user_id FROM users ORDER BY user_id % 7, -user_id",
        "order by unselected": "SELECT name FROM users ORDER BY age, user_id LIMIT 12",
        "order by using": "SELECT user_id FROM users ORDER BY user_id USING >",
        "limit": "SELECT user_id FROM users ORDER BY user_id LIMIT 5",
        "offset": "SELECT user_id FROM users ORDER BY user_id LIMIT 5 OFFSET 11",
        "offset only": "SELECT user_id FROM users ORDER BY user_id OFFSET 190",
        "limit zero": "SELECT user_id FROM users LIMIT 0",
        "limit null": "SELECT count(*) FROM (SELECT * FROM users LIMIT NULL) AS u",
        "limit counts": "SELECT count(*) FROM (SELECT * FROM users LIMIT 33) AS u",
        "limit beyond": "SELECT user_id FROM users ORDER BY user_id LIMIT 100000",
        "with ties": "SELECT age FROM users ORDER BY age FETCH FIRST 3 ROWS WITH TIES",
        "limit of a join": "SELECT u.user_id, event_id FROM users u JOIN events USING (user_id)"
        " ORDER BY amount DESC, event_id LIMIT 9",
        "distinct": "SELECT DISTINCT country FROM users",
        "distinct key": "SELECT DISTINCT user_id FROM events",
        "distinct ordered limited": "SELECT DISTINCT age FROM users ORDER BY age DESC LIMIT 4",
        "distinct on": "SELECT DISTINCT ON (country) country, user_id FROM users ORDER BY country,"
        " age DESC, user_id",
        "distinct on the key": "SELECT DISTINCT ON (user_id) user_id, event_id FROM events ORDER BY"
        " user_id, amount, event_id",
    }
)
def test_order_limit_distinct(pair: Pair, query: str) -> None:
    pair.same(query)


def test_limit_without_order_returns_that_many_existing_rows(pair: Pair) -> None:
    rows = pair.rows("SELECT user_id FROM users LIMIT 13")
    assert len({key for (key,) in rows}) == 13
    known = {key for (key,) in pair.rows("SELECT user_id FROM users")}
    assert {key for (key,) in rows} <= known


def test_tablesample_returns_a_part_and_repeatable_the_same_part(pair: Pair) -> None:
    query = "SELECT event_id FROM events TABLESAMPLE BERNOULLI (30) REPEATABLE (7)"
    first, second = sorted(pair.rows(query)), sorted(pair.rows(query))
    assert first == second
    assert shop.EVENTS * 0.2 < len(first) < shop.EVENTS * 0.4


def test_system_columns_tell_the_table_but_not_places_on_workers(pair: Pair) -> None:
    pair.same("SELECT DISTINCT tableoid::regclass FROM users")
    pair.same("SELECT tableoid::regclass, count(*) FROM (TABLE users) AS u, countries GROUP BY 1")
    pair.same("SELECT user_id, tableoid = 'users'::regclass FROM users WHERE user_id = 5")
    pair.same("SELECT count(*) FROM users WHERE tableoid::regclass = 'users'::regclass")
    pair.same(
        "SELECT name, name::regclass::oid = tableoid FROM (SELECT 'users' || left(name, 0) AS name, tableoid"
        " FROM users) AS u"
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT tableoid::regclass FROM users",
        "SELECT tableoid::regclass::text, count(*) FROM users GROUP BY 1",
        "SELECT count(*) FROM users WHERE tableoid::regclass::text LIKE '%users'",
    ],
)
def test_workers_name_no_object_by_an_oid_of_the_coordinator(pair: Pair, query: str) -> None:
    """On a worker the OID of this table may be that of another one."""
    pair.same(query)
    plan = pair.rows(f"EXPLAIN (VERBOSE, COSTS OFF) {query}")
    remote = [line for (line,) in plan if "Remote SQL" in line]
    assert remote
    assert not any("regclass" in line for line in remote), remote


@cases(
    {
        "a view": "SELECT * FROM adults WHERE country = 'AT'",
        "a view of a join": "SELECT name, sum(amount) FROM purchases GROUP BY name",
        "a view of an aggregate": "SELECT max(n) FROM per_country WHERE n > 3",
        "a view joined with its table": "SELECT count(*) FROM adults JOIN users USING (user_id)",
    }
)
def test_views(pair: Pair, query: str) -> None:
    pair.execute(
        "CREATE OR REPLACE VIEW adults AS SELECT user_id, name, country FROM users WHERE age > 30;"
        "CREATE OR REPLACE VIEW purchases AS SELECT name, amount FROM users JOIN events USING (user_id);"
        "CREATE OR REPLACE VIEW per_country AS SELECT country, count(*) AS n FROM users GROUP BY country"
    )
    pair.same(query)


def test_materialized_views_keep_and_refresh_the_rows_of_distributed_tables(pair: Pair) -> None:
    pair.execute(
        "CREATE MATERIALIZED VIEW totals AS SELECT country, sum(balance) FROM users GROUP BY country"
    )
    pair.same("SELECT * FROM totals")
    pair.execute("REFRESH MATERIALIZED VIEW totals")
    pair.same("SELECT * FROM totals")
    pair.execute("DROP MATERIALIZED VIEW totals")


@pytest.mark.parametrize("mode", ["auto", "force_custom_plan", "force_generic_plan"])
def test_prepared_statements_with_custom_and_generic_plans(pair: Pair, mode: str) -> None:
    pair.execute(f"SET plan_cache_mode = {mode}")
    pair.execute(
        "PREPARE by_key (int) AS SELECT * FROM users WHERE user_id = $1;"
        "PREPARE by_keys (int[]) AS SELECT * FROM users WHERE user_id = ANY ($1);"
        "PREPARE by_age (int, text) AS SELECT name, $2 FROM users WHERE age > $1;"
        "PREPARE of_join (int) AS SELECT u.name, sum(amount) FROM users u JOIN events USING (user_id)"
        " WHERE user_id = $1 OR age = $1 GROUP BY u.name;"
        "PREPARE top (int) AS SELECT user_id FROM users ORDER BY age, user_id LIMIT $1"
    )
    for key in (1, 2, 3, 4, 5, 6, 7, -1, "NULL"):
        pair.same(f"EXECUTE by_key ({key})")
    for keys in ("'{1,2,3}'", "'{}'", "NULL", "'{NULL,9}'"):
        pair.same(f"EXECUTE by_keys ({keys})")
    for age in (20, 70, "NULL"):
        pair.same(f"EXECUTE by_age ({age}, 'it''s')")
    for number in (17, 60):
        pair.same(f"EXECUTE of_join ({number})")
        pair.same(f"EXECUTE top ({number})")
    pair.execute("DEALLOCATE ALL; RESET plan_cache_mode")


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_protocol_level_parameters(pair: Pair, binary: bool) -> None:
    for connection in (pair.ours, pair.theirs):
        connection.prepare_threshold = 2
    for key in range(1, 8):
        pair.same("SELECT * FROM users WHERE user_id = %s AND name <> %s", (key, "x'y"))
        pair.same("SELECT count(*) FROM events WHERE tags @> %s::text[]", ([f"t{key}"],))
    expected = pair.theirs.cursor(binary=binary).execute("SELECT * FROM events ORDER BY event_id")
    actual = pair.ours.cursor(binary=binary).execute("SELECT * FROM events ORDER BY event_id")
    assert actual.fetchall() == expected.fetchall()


def test_functions_that_query_distributed_tables(pair: Pair) -> None:
    pair.execute(
        "CREATE FUNCTION spent (int) RETURNS numeric LANGUAGE sql STABLE AS"
        " 'SELECT sum(amount) FROM events WHERE user_id = $1';"
        "CREATE FUNCTION names (wanted text) RETURNS SETOF text LANGUAGE plpgsql AS $$"
        " DECLARE r record; BEGIN FOR r IN SELECT name FROM users WHERE country = wanted ORDER BY user_id"
        " LOOP RETURN NEXT r.name; END LOOP; END $$;"
        "CREATE FUNCTION nested () RETURNS bigint LANGUAGE plpgsql AS $$"
        " DECLARE n bigint := 0; a record; b record; BEGIN"
        " FOR a IN SELECT user_id FROM users ORDER BY user_id LIMIT 5 LOOP"
        " FOR b IN SELECT event_id FROM events WHERE user_id = a.user_id LOOP n := n + b.event_id; END LOOP;"
        " END LOOP; RETURN n; END $$"
    )
    pair.same("SELECT spent(3), spent(7), spent(-1)")
    pair.same("SELECT user_id, spent(user_id) FROM users WHERE user_id < 12")
    pair.same("SELECT * FROM names('AT')")
    pair.same("SELECT nested()")
    for connection in (pair.ours, pair.theirs):
        connection.execute("DO $$ BEGIN PERFORM count(*) FROM users; END $$")


def test_stable_functions_are_evaluated_once_for_all_workers(pair: Pair) -> None:
    ((same,),) = pair.rows("SELECT count(DISTINCT now()) FROM users")
    assert same == 1
    pair.same("SELECT count(*) FROM events WHERE at < now()")
    pair.same("SELECT count(*) FROM events WHERE at < current_date")
    pair.same("SELECT current_user = session_user, count(*) FROM users GROUP BY 1")


def test_volatile_functions_are_evaluated_for_each_row(pair: Pair) -> None:
    pair.execute("CREATE SEQUENCE counter")
    rows = pair.rows("SELECT nextval('counter') FROM users")
    assert sorted(value for (value,) in rows) == list(range(1, shop.USERS + 1))
    ((distinct,),) = pair.rows("SELECT count(DISTINCT random()) FROM users")
    assert distinct > shop.USERS // 2


@pytest.mark.parametrize("mode", ["UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"])
def test_locking_clauses_return_the_rows(pair: Pair, mode: str) -> None:
    with pair.transaction():
        pair.same(f"SELECT * FROM users WHERE age > 40 FOR {mode}")
        pair.same(f"SELECT * FROM users WHERE user_id = 4 FOR {mode} NOWAIT")
        pair.same(f"SELECT name FROM users ORDER BY user_id LIMIT 3 FOR {mode} SKIP LOCKED")
        pair.same(f"SELECT * FROM countries ORDER BY code FOR {mode}")
        pair.same(
            "SELECT u.user_id, e.event_id FROM users u JOIN events e USING (user_id)"
            f" WHERE u.user_id = 9 FOR {mode} OF u"
        )


def test_rows_locked_by_another_session_are_skipped_or_refused(pair: Pair) -> None:
    with pair.cluster.coordinator.connect() as other:
        other.execute(f"SET search_path = {pair.schema}")
        with other.transaction():
            other.execute("SELECT * FROM users WHERE user_id IN (3, 4) FOR UPDATE")
            rows = pair.rows("SELECT user_id FROM users WHERE user_id < 6 FOR UPDATE SKIP LOCKED")
            assert sorted(rows) == [(1,), (2,), (5,)]
            with pytest.raises(Exception, match="could not obtain lock") as caught:
                pair.rows("SELECT user_id FROM users WHERE user_id = 3 FOR UPDATE NOWAIT")
            assert caught.value.sqlstate == "55P03"
    rows = pair.rows("SELECT user_id FROM users WHERE user_id < 6 FOR UPDATE SKIP LOCKED")
    assert len(rows) == 5


def test_create_table_as_and_select_into(pair: Pair) -> None:
    pair.execute("CREATE TABLE copied AS SELECT country, count(*) AS n FROM users GROUP BY country")
    pair.same("SELECT * FROM copied")
    pair.execute("SELECT user_id, sum(amount) AS s INTO spent_by FROM events GROUP BY user_id")
    pair.same("SELECT * FROM spent_by")
    pair.execute("CREATE TEMP TABLE scratch AS TABLE users")
    pair.same("SELECT count(*) FROM scratch JOIN events USING (user_id)")
    pair.execute("DROP TABLE copied, spent_by, scratch")


def test_rows_of_an_empty_distributed_table(pair: Pair) -> None:
    pair.execute("CREATE TABLE nothing (id integer, v text)")
    pair.distribute("nothing", "id")
    pair.all_same(
        [
            "SELECT * FROM nothing",
            "SELECT count(*), sum(id), array_agg(v) FROM nothing",
            "SELECT v, count(*) FROM nothing GROUP BY v",
            "SELECT * FROM users LEFT JOIN nothing ON id = user_id",
            "SELECT * FROM users WHERE user_id NOT IN (SELECT id FROM nothing)",
            "SELECT max(id) FROM nothing HAVING count(*) > 0",
        ]
    )
    pair.execute("DROP TABLE nothing")


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York"])
def test_session_settings_hold_on_the_workers(pair: Pair, zone: str) -> None:
    pair.execute(
        f"SET TimeZone = '{zone}'; SET DateStyle = 'German, DMY'; SET IntervalStyle = iso_8601"
    )
    pair.all_same(
        [
            "SELECT event_id, at, at::text, at::date, date_trunc('day', at) FROM events",
            "SELECT at::date, count(*) FROM events GROUP BY 1",
            "SELECT count(*) FROM events WHERE at >= '02.01.2024' AND extract(hour FROM at) < 5",
            "SELECT user_id, born::text, (DATE '2024-01-01' - born) * INTERVAL '1 day' FROM users",
        ]
    )
    pair.execute("RESET TimeZone; RESET DateStyle; RESET IntervalStyle")
    pair.same("SELECT event_id, at::text FROM events")


def test_errors_of_a_query_are_those_of_plain_postgresql(pair: Pair) -> None:
    pair.all_same(
        [
            "SELECT 1 / (user_id - user_id) FROM users",
            "SELECT name::integer FROM users",
            "SELECT (SELECT user_id FROM events) FROM users",
            "SELECT missing FROM users",
            "SELECT * FROM missing",
            "SELECT sum(user_id::int2 * 1000::int2) FROM users",
            "SELECT payload -> 'n' + 1 FROM events",
            "SELECT user_id FROM users GROUP BY country",
            "SELECT count(*) FROM users LIMIT -1",
            "SELECT * FROM users FOR UPDATE OF missing",
            "SELECT count(*) FROM users FOR UPDATE",
        ]
    )
