"""SQL that is made for workers says what the user's query says, whatever the planner made of it.

In builds with assertions every such text is read again and compared (round_trip.c); here stand
the shapes of which it once said something else.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

SCHEMA = """
CREATE DOMAIN whole AS numeric(10, 0);
CREATE DOMAIN wholer AS whole;
CREATE DOMAIN two_letters AS varchar(2);
CREATE DOMAIN not_zz AS varchar(2) CHECK (VALUE <> 'zz');
CREATE FUNCTION checked(text) RETURNS not_zz LANGUAGE sql IMMUTABLE AS 'SELECT $1';
CREATE DOMAIN to_seconds AS timestamptz(0);
CREATE DOMAIN small AS numeric(4, 1) CHECK (VALUE < 100);
CREATE TYPE named AS (x integer, y text);
CREATE DOMAIN whole_list AS numeric(10, 0)[];
CREATE FUNCTION as_text(double precision) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1::text';
CREATE FUNCTION as_text(numeric) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1::text';
CREATE FUNCTION cut(text) RETURNS two_letters LANGUAGE sql IMMUTABLE AS 'SELECT $1';
CREATE FUNCTION cut_more(text) RETURNS two_letters LANGUAGE sql IMMUTABLE AS 'SELECT $1::two_letters';
CREATE FUNCTION rounded(numeric) RETURNS numeric LANGUAGE sql IMMUTABLE AS 'SELECT $1::whole';
CREATE TABLE t (
    k integer PRIMARY KEY, n numeric, f real, v text, at timestamptz, a integer, b text,
    l numeric[], c char(5), vc varchar(3)
);
"""

ROWS = """
INSERT INTO t SELECT i, 2 + i * 0.3, i * 0.1, chr(96 + i) || 'bc',
    '2024-01-01 00:00:00.4+00'::timestamptz + i * interval '0.1 s', i % 3, 'x' || i % 4,
    ARRAY[i * 0.4, NULL], 'c' || i, 'v' || i % 5
FROM generate_series(1, 20) i
"""


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "round_trip") as made:
        made.execute(SCHEMA)
        made.ours.execute("SELECT create_distributed_table('t', 'k', shard_count => 4)")
        made.execute(ROWS)
        yield made


@pytest.mark.parametrize(
    "where",
    [
        "n::whole = 3",
        "n::whole::text = '3'",
        "rounded(n) = 3",
        "v::two_letters = 'ab'",
        "v::two_letters || 'c' = 'abc'",
        "cut_more(v) = 'ab'",
        "at::to_seconds = '2024-01-01 00:00:01+00'",
        "extract(second FROM at::to_seconds) = 1",
        "n::small = 3.2",
        "as_text(f) LIKE '0.%'",
        "length(as_text(f)) > 5",
        "as_text(n) = '3.2'",
        "as_text(a) = '1'",
        "l::whole_list = ARRAY[1, NULL]::numeric[]",
        "l::numeric(10, 0)[] = ARRAY[1, NULL]::numeric[]",
        "c::varchar || 'x' = 'c1x'",
        "c::text = 'c1'",
        "vc::char(2) = 'v1'",
        "vc::char(1)::text = 'v'",
        "f::text = '0.3'",
        "f::float8 > 0.3",
        "a::numeric(10, 2)::text = '1.00'",
        "(a::float4 / 3)::text = '0.33333334'",
        "CASE a WHEN 1.0 THEN n::whole ELSE 0 END = 3",
        "CASE vc WHEN 'v1' THEN true ELSE false END",
        "coalesce(n::whole, f) = 3",
        "n::whole IN (3, 4)",
        "n::whole IN (SELECT n::whole FROM t WHERE k < 5)",
        "greatest(n::whole, a) = 3",
        "nullif(n::whole, 3) IS NULL",
        "n::whole IS NOT DISTINCT FROM 3",
        "(n::whole, v::two_letters) = (3, 'ab')",
        "(n::whole)::integer & 1 = 1",
        "vc COLLATE \"C\" < 'v2'",
        "(v COLLATE \"C\")::two_letters < 'bb'",
        "n::wholer::whole::text = '3'",
        "checked(left(v, 2)) = 'ab'",
        "checked(v) = 'ab'",
        "ROW(k, v)::named = ROW(1, 'abc')::named",
    ],
)
def test_casts_inside_of_casts_reach_the_workers(pair: Pair, where: str) -> None:
    pair.same(f"SELECT count(*), sum(k) FROM t WHERE {where}")
    pair.same(f"SELECT k FROM t WHERE {where}", ordered=False)
    pair.same(f"SELECT q.k, u.v FROM (SELECT k FROM t WHERE {where}) q JOIN t u USING (k)")


@pytest.mark.parametrize(
    ("types", "where"),
    [
        ("numeric", "n::whole = $1::whole"),
        ("numeric", "n = $1::whole"),
        ("text", "v = $1::two_letters || 'c'"),
        ("varchar", "v LIKE cut_more($1) || '%'"),
        ("real", "as_text(f) = as_text($1)"),
        ("integer", "as_text(n) = as_text($1 + 0.2)"),
        ("timestamptz", "at::to_seconds = $1::to_seconds"),
        ("numeric[]", "l::whole_list = $1::whole_list"),
        ("text", 'v COLLATE "C" < $1'),
    ],
)
def test_parameters_of_generic_plans_keep_their_casts(pair: Pair, types: str, where: str) -> None:
    values = {
        "numeric": "3.2",
        "text": "'abc'",
        "varchar": "'abc'",
        "real": "0.3::real",
        "integer": "3",
        "timestamptz": "'2024-01-01 00:00:01.2+00'",
        "numeric[]": "ARRAY[1.2, NULL]",
    }
    pair.execute("SET plan_cache_mode = force_generic_plan")
    pair.execute(f"PREPARE p ({types}) AS SELECT count(*), sum(k) FROM t WHERE {where}")
    pair.same(f"EXECUTE p ({values[types]})")
    pair.same("EXECUTE p (NULL)")
    pair.execute("DEALLOCATE p; RESET plan_cache_mode")


def test_values_are_assigned_as_the_statement_says(pair: Pair) -> None:
    statements = [
        "UPDATE t SET vc = cut_more(v) WHERE k < 9 RETURNING k, vc",
        "UPDATE t SET vc = v || 'd' WHERE k = 1",  # too long: refused, not cut
        "UPDATE t SET vc = (v || 'd')::varchar(3) WHERE k = 1 RETURNING vc",
        "UPDATE t SET n = n::whole, v = as_text(f), c = vc WHERE k < 9 RETURNING n, v, c",
        "UPDATE t SET n = (SELECT max(k) FROM t)::whole / 3, l[1] = n::whole RETURNING k, n, l",
        "UPDATE t SET (n, v) = (SELECT max(q.n)::whole, as_text(min(q.f)) FROM t q) RETURNING k, n, v",
        "DELETE FROM t WHERE n::whole = 3 RETURNING k",
        "INSERT INTO t (k, n, vc) SELECT k, n::whole, cut_more(v) FROM t WHERE k < 4"
        " ON CONFLICT (k) DO UPDATE SET n = excluded.n::whole + 0.5, v = as_text(t.f) RETURNING k, n, v",
        "INSERT INTO t (k, n, v, f) VALUES (101, 2.5::whole, as_text(0.1::real), '0.1'), (1, 2, 3, 4)"
        " ON CONFLICT (k) DO UPDATE SET f = as_text(excluded.f)::real, vc = 'abcd' RETURNING k, n, v",
        "MERGE INTO t USING (SELECT k, n::whole AS n FROM t) q ON t.k = q.k"
        " WHEN MATCHED AND q.n = 3 THEN UPDATE SET n = q.n / 2, v = as_text(t.f)"
        " WHEN MATCHED AND t.v::two_letters = 'ab' THEN DELETE",
    ]
    for statement in statements:
        with pair.transaction():
            pair.same(statement)
            if pair.ours.info.transaction_status.name == "INTRANS":
                pair.same("SELECT * FROM t ORDER BY k")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM w WHERE to_jsonb(w)->>'bb' = 'x1'",
        "SELECT count(*) FROM w WHERE w IS NOT NULL",
        "SELECT count(*) FROM w WHERE w = ROW('x1', 1)",
        "SELECT count(DISTINCT w) FROM w",
        "SELECT to_jsonb(w) FROM w ORDER BY aa, bb LIMIT 3",
        "SELECT row_to_json(x)::text FROM (SELECT a AS p, b AS q, k FROM t) x ORDER BY k",
        "SELECT k, row_to_json(x)::text FROM (SELECT a AS f1, b AS f2, k FROM t) x ORDER BY k",
        "SELECT x.aa, json_agg(x ORDER BY bb)::text FROM w x GROUP BY 1 ORDER BY 1",
        "SELECT jsonb_agg(to_jsonb(t) ORDER BY k) FROM t",
        "SELECT jsonb_agg(to_jsonb(y) ORDER BY c1) FROM t AS y (c1, c2)",
        "SELECT k FROM t WHERE to_jsonb(ROW(a, b))->>'f2' = 'x1' ORDER BY k",
        "SELECT k, to_jsonb(q)->>'m' FROM (SELECT k, max(b) AS m FROM t GROUP BY k) q ORDER BY k",
        "SELECT count(*) FROM t JOIN w ON w.aa = t.a WHERE to_jsonb(w) ? 'aa'",
        "SELECT (SELECT to_json(z)::text FROM (SELECT t.a AS in_a, t.k AS in_k) z) FROM t ORDER BY k",
        "SELECT to_jsonb(p)->>'x' FROM (SELECT (row(a, b)::named).* FROM t ORDER BY k) p",
        "SELECT count(*) FROM t WHERE row(a, b)::named = row(1, 'x1')::named",
        "SELECT count(*) FROM t WHERE row(a, b) = row(1, 'x1'::text)",
        "SELECT count(*) FROM t WHERE t = row(1, 1, 1)::record",
        "SELECT count(*) FROM t WHERE record_eq(row(a, k), row(1, 1))",
        "SELECT count(*) FROM t WHERE row(a, row(k, b)) IN (row(1, row(1, 'x1'::text)))",
        "SELECT count(*) FROM t WHERE to_jsonb(row(1, 2))->>'f1' = a::text",
    ],
)
def test_rows_keep_the_names_of_their_columns(pair: Pair, query: str) -> None:
    pair.execute("CREATE OR REPLACE VIEW w AS SELECT b AS bb, a AS aa FROM t")
    pair.same(query)


def test_a_table_of_rows_as_json_is_stored_right(pair: Pair) -> None:
    with pair.transaction():
        pair.execute(
            "CREATE TABLE made AS SELECT k, to_jsonb(x) AS j FROM (SELECT k, b AS p FROM t) x"
        )
        pair.same("SELECT * FROM made ORDER BY k")


def test_a_cast_to_text_of_the_users_is_not_taken_for_the_types_output(pair: Pair) -> None:
    pair.execute(
        "CREATE FUNCTION named_text(named) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT ''a name'''"
    )
    pair.execute("CREATE CAST (named AS text) WITH FUNCTION named_text(named)")
    pair.all_same(
        [
            "SELECT row(a, b)::named FROM t ORDER BY k",
            "SELECT row(a, b)::named AS r, count(*) FROM t GROUP BY 1 ORDER BY 1",
            "SELECT row(a, b)::named::text FROM t ORDER BY k",
        ]
    )
    pair.execute("DROP CAST (named AS text)")


@pytest.fixture(scope="module")
def shop(pair: Pair) -> Pair:
    pair.execute(
        """
        CREATE TABLE s (k integer PRIMARY KEY, a integer, b text, c text,
                        g integer GENERATED ALWAYS AS (a + 1) STORED);
        CREATE TABLE u (k integer PRIMARY KEY, a integer, c text);
        CREATE TABLE here (k integer, a integer);
        CREATE TABLE r (k integer PRIMARY KEY, a integer);
        CREATE VIEW sv AS SELECT k, b AS vb, a AS va FROM s;
        """
    )
    pair.distribute("s", "k")
    pair.distribute("u", "k", colocate_with="s")
    pair.reference("r")
    pair.execute(
        """
        INSERT INTO s (k, a, b) SELECT i, i % 5, 'b' || i FROM generate_series(1, 20) i;
        INSERT INTO u SELECT i, i % 3, 'c' || i FROM generate_series(5, 30) i;
        INSERT INTO here SELECT i, i FROM generate_series(1, 10) i;
        INSERT INTO r SELECT i, i FROM generate_series(1, 10) i;
        """
    )
    return pair


@pytest.mark.parametrize(
    "statement",
    [
        # through a view
        "INSERT INTO sv VALUES (1, 'x', 2) ON CONFLICT (k)"
        " DO UPDATE SET va = excluded.va + 10, vb = excluded.vb RETURNING *",
        "INSERT INTO sv VALUES (1, 'x', 2) ON CONFLICT (k)"
        " DO UPDATE SET va = excluded.va + sv.va WHERE sv.vb <> excluded.vb",
        "DELETE FROM sv WHERE sv IS NOT NULL AND k = 4",
        # nothing but a generated column
        "UPDATE s SET g = DEFAULT",
        "UPDATE s SET g = DEFAULT WHERE k = 3 RETURNING g",
        "INSERT INTO s (k, a) VALUES (3, 4) ON CONFLICT (k) DO UPDATE SET g = DEFAULT",
        "MERGE INTO s USING u ON s.k = u.k WHEN MATCHED THEN UPDATE SET g = DEFAULT",
        "UPDATE s SET g = DEFAULT WHERE k < (SELECT max(a) FROM here)",
        # what folding removed names a local table
        "UPDATE s SET a = 5 FROM u WHERE s.k = u.k"
        " AND (true OR EXISTS (SELECT 1 FROM here WHERE here.k = s.a))",
        "UPDATE s SET a = 5 WHERE k < 5 AND (1 = 1 OR EXISTS (SELECT 1 FROM here))",
        "DELETE FROM s WHERE k < 5 AND (true OR k IN (SELECT k FROM here))",
        "UPDATE s SET a = CASE WHEN true THEN 4 ELSE (SELECT max(k) FROM here) END WHERE k = 3",
        "WITH w AS (INSERT INTO here SELECT k + 100, a FROM here RETURNING 1)"
        " UPDATE s SET a = 6 WHERE k < 5",
        # constant records
        "DELETE FROM s WHERE s = row(1, 1, 'b1'::text, NULL::text, 2)",
        "UPDATE s SET b = to_jsonb(row(a, b))->>'f2' WHERE (a, b) = row(1, 'b1')",
        # joins and lists
        "UPDATE s SET a = x.a FROM (u FULL JOIN r USING (k)) AS x WHERE x.k = s.k",
        "UPDATE s SET a = u.a FROM u FULL JOIN r USING (k) WHERE u.k = s.k RETURNING s.*, u.k, r.k",
        "DELETE FROM s USING u FULL JOIN r USING (k, a), LATERAL (SELECT k + 1 AS k) l"
        " WHERE u.k = s.k AND a < l.k RETURNING s.k, a, l.k",
        "DELETE FROM s USING u NATURAL FULL JOIN r WHERE u.k = s.k RETURNING s.*, u.*, r.*",
        "DELETE FROM s USING u JOIN r USING (k) WHERE u.k = s.k RETURNING s.k",
        "DELETE FROM s USING (VALUES (1, 'x'), (2, 'y')) w (k, n) WHERE w.k = s.k RETURNING w.n, s.k",
        # literals in the order of the SELECT, not of the table
        "INSERT INTO s (k, c, b) SELECT k, 'for c', 'for b' FROM u WHERE k > 25",
        "INSERT INTO s (k, b, a) SELECT k, 'lit', NULL FROM u WHERE k > 25",
        "INSERT INTO s (k, b, c) SELECT k, 'for b', 'for c' FROM u WHERE k > 25 RETURNING b, c",
        "INSERT INTO s (c, k, b) SELECT c, k, 'for b' FROM u WHERE k > 25",
    ],
)
def test_statements_that_change_rows_are_shipped_as_they_were_meant(
    shop: Pair, statement: str
) -> None:
    with shop.transaction():
        shop.same(statement)
        shop.same("SELECT * FROM s ORDER BY k")
        shop.same("SELECT * FROM here ORDER BY k")


@pytest.mark.parametrize(
    "query",
    [
        # casts of sub-selects
        "SELECT (SELECT min(o.b) FROM t AS o WHERE o.k = t.k OR o.b IS NULL)::varchar(2)::char(2) FROM t",
        "SELECT length((SELECT min(o.b) FROM t AS o WHERE o.k = t.k OR o.n > 3)::varchar(2)) FROM t",
        "SELECT s.k, x.o, x.c FROM s LEFT JOIN LATERAL"
        " (SELECT s.a AS o, u.c FROM u WHERE u.k = s.k) x ON true ORDER BY 1, 2, 3",
        "SELECT s.k, x.o, x.c FROM s LEFT JOIN LATERAL"
        " (SELECT s.a AS o, u.c FROM u WHERE u.k = s.k) x ON x.o > 1 ORDER BY 1, 2, 3",
        "SELECT s.k, x.o, x.c FROM s LEFT JOIN LATERAL"
        " (SELECT s.a + u.a AS o, u.c FROM u WHERE u.a = s.a) x ON true ORDER BY 1, 2, 3",
        "SELECT here.k, x.o, x.c FROM here LEFT JOIN LATERAL"
        " (SELECT here.a AS o, u.c FROM u WHERE u.a < here.k) x ON true ORDER BY 1, 2, 3",
        "SELECT s.k, x.o, y.c FROM s LEFT JOIN LATERAL (SELECT s.a AS o, u.* FROM u WHERE u.k = s.k)"
        " x ON true LEFT JOIN u y ON y.k = x.o ORDER BY 1, 2, 3",
        "SELECT s.k, x.c FROM s LEFT JOIN LATERAL"
        " (SELECT u.c, r.a FROM r RIGHT JOIN u ON r.k = s.a WHERE u.k = s.k) x ON true ORDER BY 1, 2",
        "SELECT s.k, x.* FROM s LEFT JOIN LATERAL"
        " (SELECT u.c, s.a AS o, r.a FROM u JOIN r ON r.k = u.a WHERE u.k = s.k) x ON true ORDER BY 1, 2",
        "SELECT s.k, x.* FROM s, LATERAL (SELECT u.c, coalesce(r.a, s.a) AS o FROM u LEFT JOIN r"
        " ON r.k = s.a WHERE u.k = s.k) x ORDER BY 1, 2",
        "SELECT s.k, x.* FROM s, LATERAL (SELECT u.c, q.o FROM (SELECT r.k, s.b AS o FROM r) q"
        " RIGHT JOIN u ON q.k = u.a WHERE u.k = s.k) x ORDER BY 1, 2, 3",
        "SELECT s.k, x.* FROM s, LATERAL (SELECT u.c, q.o FROM (SELECT d.k, s.b AS o FROM s d) q"
        " RIGHT JOIN u ON q.k = u.a WHERE u.k = s.k) x ORDER BY 1, 2, 3",
    ],
)
def test_lateral_outputs_outer_columns(shop: Pair, query: str) -> None:
    shop.same(query)


def test_columns_are_rewritten_as_the_expression_says(pair: Pair) -> None:
    pair.execute("CREATE TABLE rewritten AS SELECT k, n, f, v, a FROM t")
    pair.distribute("rewritten", "k")
    pair.execute(
        """
        ALTER TABLE rewritten ALTER n TYPE text USING n::whole::text,
            ALTER f TYPE text USING as_text(f), ALTER v TYPE varchar(9) USING cut_more(v);
        ALTER TABLE rewritten ALTER a TYPE varchar(3) USING as_text(a);
        """
    )
    pair.same("SELECT * FROM rewritten ORDER BY k")
    pair.execute("DROP TABLE rewritten")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE s ADD CONSTRAINT whole_row CHECK (s IS NOT NULL)",
        "CREATE INDEX whole_row ON s ((s IS NULL))",
        "CREATE INDEX whole_row ON s (a) WHERE s IS NOT NULL",
        "ALTER TABLE s ALTER b TYPE text USING to_jsonb(s)->>'b'",
        "CREATE TABLE whole_row (k integer, CHECK (whole_row IS NOT NULL));"
        " SELECT create_distributed_table('whole_row', 'k')",
        "CREATE TABLE whole_row (k integer); CREATE INDEX ON whole_row ((whole_row IS NULL));"
        " SELECT create_distributed_table('whole_row', 'k')",
    ],
)
def test_whole_rows_that_partitions_cannot_have_are_refused(shop: Pair, statement: str) -> None:
    with pytest.raises(
        psycopg.errors.FeatureNotSupported, match=r"whole row|several nodes"
    ) as error:
        shop.ours.execute(statement)
    assert "partitioned tables" in error.value.diag.message_detail
    shop.same("INSERT INTO s (k, b) VALUES (1000, 'b') RETURNING *")
    shop.same("DELETE FROM s WHERE k = 1000")
