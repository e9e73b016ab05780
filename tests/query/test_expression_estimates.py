"""How many groups are expected by an expression of one column: near what there are, and the groups are PostgreSQL's."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

SCHEMA = """
CREATE TABLE visit (id integer, at timestamptz, day date, v integer, few integer, x float8, name text, big bigint);
CREATE TABLE kind (few integer PRIMARY KEY, since date, t text);
"""
ROWS = """
INSERT INTO visit SELECT i, timestamptz '2024-01-01 00:00Z' + i * interval '97 s', date '2020-01-01' + (i * 7919) % 2500,
    (i::bigint * 7919) % 100003, i % 40, i / 7.0, md5(i::text), i::bigint * i
  FROM generate_series(1, 40000) AS i;
INSERT INTO visit (id) SELECT -i FROM generate_series(1, 5000) AS i;
INSERT INTO kind SELECT i, date '2000-01-01' + i * 5, 'k' || i FROM generate_series(0, 3000) AS i;
ANALYZE visit; ANALYZE kind;
"""


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "expression_estimates") as made:
        made.execute("SET TimeZone = 'Europe/Paris'")
        made.execute(SCHEMA)
        made.distribute("visit", "id")
        made.reference("kind")
        made.execute(ROWS)
        yield made


def estimated(pair: Pair, query: str) -> int:
    """The rows that the plan's top node expects."""
    return int(re.search(r"rows=(\d+)", pair.explain(query, "VERBOSE")).group(1))


EXPRESSIONS = (
    "date_trunc('hour', at)",
    "date_trunc('day', at)",
    "date_trunc('day', at, 'Asia/Tokyo')",
    "at::date",
    "extract(hour FROM at)",
    "extract(minute FROM at)",
    "date_part('month', day)",
    "extract(year FROM day)",
    "date_trunc('month', day)",
    "to_char(at, 'YYYY-MM')",
    "v % 10",
    "v / 1000",
    "v / 1000 * 1000",
    "width_bucket(v, 0, 100003, 50)",
    "least(v, 5)",
    "CASE WHEN v < 10 THEN 'a' WHEN v < 1000 THEN 'b' ELSE 'c' END",
    "few % 7",
    "coalesce(few, 99) / 2",
    "floor(x / 100)",
    "round(x::numeric, -3)",
    "left(name, 1)",
    "length(name)",
    "substr(name, 1, 1) || 'x'",
    "big % 6",
    "v::text LIKE '1%'",
)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_groups_are_expected_as_they_are(pair: Pair, expression: str) -> None:
    query = f"SELECT {expression} AS e, count(*) FROM visit GROUP BY 1"
    pair.same(query)
    groups = len(pair.rows(query))
    assert groups / 3 < estimated(pair, query) < groups * 3 + 3, pair.explain(query, "VERBOSE")
    distinct = f"SELECT DISTINCT {expression} FROM visit"
    pair.same(distinct)
    assert groups / 3 < estimated(pair, distinct) < groups * 3 + 3


def test_as_many_as_there_are_rows_is_said_as_before(pair: Pair) -> None:
    for expression in ("v + 1", "date_trunc('second', at)", "upper(name)", "x * 2"):
        assert estimated(pair, f"SELECT {expression}, count(*) FROM visit GROUP BY 1") > 10000


def test_columns_of_outer_joins_and_of_reference_tables(pair: Pair) -> None:
    for query in (
        "SELECT extract(year FROM since), count(*) FROM visit JOIN kind USING (few) GROUP BY 1",
        "SELECT extract(year FROM since), extract(hour FROM at), count(*) FROM visit LEFT JOIN kind USING (few) GROUP BY 1, 2",
        "SELECT v.v % 10, count(*) FROM kind AS k LEFT JOIN visit AS v ON k.few = v.few GROUP BY 1",
        "SELECT e, count(*) FROM (SELECT few, v % 10 AS e FROM visit) AS q JOIN kind USING (few) GROUP BY e",
    ):
        pair.same(query)
        assert estimated(pair, query) < 3000, pair.explain(query, "VERBOSE")


def test_groups_by_an_hour_come_from_the_workers(pair: Pair) -> None:
    """Seven aggregates of some hundred groups, in place of all rows."""
    query = "SELECT date_trunc('day', at), sum(v), avg(x), min(v), max(v), count(few), avg(v) FROM visit GROUP BY 1"
    assert "PARTIAL" in pair.explain(query, "VERBOSE").upper(), pair.explain(query, "VERBOSE")
    pair.same(query)


def test_expressions_that_fail_where_no_row_is(pair: Pair) -> None:
    for query in (
        "SELECT 1000 / (v - 5), count(*) FROM visit WHERE v > 5 GROUP BY 1",
        "SELECT 1000 / (v - v), count(*) FROM visit WHERE v < -5 GROUP BY 1",
        "SELECT date_trunc('century of', at), count(*) FROM visit WHERE v < -5 GROUP BY 1",
        "SELECT date_trunc('timezone_h', at), count(*) FROM visit WHERE v < -5 GROUP BY 1",
        "SELECT repeat(name, 1000000), count(*) FROM visit WHERE v < -5 GROUP BY 1",
        "SELECT repeat(name, v * 20000), count(*) FROM visit WHERE v < -5 GROUP BY 1",
        "SELECT substring(name from '(a'), count(*) FROM visit WHERE v < -5 GROUP BY 1",
        "SELECT (name || ' days')::interval, count(*) FROM visit WHERE v < -5 GROUP BY 1",
        "SELECT 1000 / (v - 5), count(*) FROM visit GROUP BY 1",
    ):
        pair.same(query)
    with pair.transaction("COMMIT"):
        pair.same("INSERT INTO visit (id, v) VALUES (-9000, 77)")
        pair.same("SELECT 1000 / (v - 5), count(*) FROM visit WHERE v > 5 GROUP BY 1")
        pair.same("DELETE FROM visit WHERE id = -9000")


def test_an_ordinary_role_and_savepoints(pair: Pair) -> None:
    """An expression that fails while a statement is planned leaves the transaction as it was, here and on the workers."""
    pair.ours.execute(
        "CREATE ROLE reader; GRANT USAGE ON SCHEMA expression_estimates TO reader; GRANT ALL ON visit TO reader"
    )
    with pair.cluster.coordinator.connect() as session:
        session.execute(
            "SET search_path = expression_estimates; SET ROLE reader; BEGIN ISOLATION LEVEL REPEATABLE READ"
        )
        session.execute(
            "INSERT INTO visit (id, v) SELECT -20000 - i, 5 FROM generate_series(1, 3) AS i; SAVEPOINT s"
        )
        for _ in range(2):
            query = "SELECT 1000 / (v - 5), count(*) FROM visit WHERE v > 5 GROUP BY 1"
            assert session.execute(query).fetchall()
            assert session.execute(
                "SELECT count(*) FROM visit WHERE v = 5 AND id < -20000"
            ).fetchone() == (3,)
        with pytest.raises(psycopg.errors.DivisionByZero):
            session.execute("SELECT 1000 / (v - 5), count(*) FROM visit GROUP BY 1")
        session.execute("ROLLBACK TO SAVEPOINT s")
        assert session.execute(
            "SELECT count(*) FROM visit WHERE v = 5 AND id < -20000"
        ).fetchone() == (3,)
        session.execute("ROLLBACK")
    pair.ours.execute("DROP OWNED BY reader; DROP ROLE reader")


def test_parameters_have_their_values(pair: Pair) -> None:
    pair.execute("PREPARE by_unit AS SELECT date_trunc($1, at), count(*) FROM visit GROUP BY 1")
    for mode in ("force_custom_plan", "force_generic_plan"):
        pair.execute(f"SET plan_cache_mode = {mode}")
        for unit in ("day", "month", "second"):
            pair.same(f"EXECUTE by_unit('{unit}')")
    pair.execute("RESET plan_cache_mode; DEALLOCATE by_unit")


def test_no_code_of_users_runs(pair: Pair) -> None:
    """Planning calls nothing of theirs with values of the table."""
    pair.ours.execute("""
        CREATE FUNCTION tells(integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE
            AS $$BEGIN RAISE 'called with %', $1; END$$;
        CREATE FUNCTION tells() RETURNS integer LANGUAGE plpgsql STABLE AS $$BEGIN RAISE 'called with nothing'; END$$;
        CREATE DOMAIN told AS integer CHECK (tells(VALUE) > 0);
    """)
    for expression in (
        "tells(v)",
        "tells(v % 10)",
        "(v % 10)::told",
        "tells(least(v, 3)) + 1",
        "v % tells()",
    ):
        query = f"SELECT {expression}, count(*) FROM visit GROUP BY 1"
        if "tells()" not in expression:  # that PostgreSQL calls itself, for its cost
            assert "Gather" in pair.explain(query, "VERBOSE")
        with pytest.raises(psycopg.Error, match="called with"):
            pair.ours.execute(query)


def test_who_may_not_read_the_column_is_told_nothing(pair: Pair) -> None:
    """As with PostgreSQL's own statistics: behind a policy, estimates depend on no value."""
    pair.ours.execute("""
        CREATE ROLE guest; GRANT USAGE ON SCHEMA expression_estimates TO guest;
        CREATE TABLE hidden (id integer, v integer); SELECT strata.create_distributed_table('hidden', 'id');
        INSERT INTO hidden SELECT i, i FROM generate_series(1, 20000) AS i; ANALYZE hidden;
        ALTER TABLE hidden ENABLE ROW LEVEL SECURITY; GRANT SELECT ON hidden TO guest;
        CREATE POLICY own ON hidden USING (id % 2 = 0)
    """)
    query = "SELECT CASE WHEN v = 10000 THEN 1 WHEN v < {} THEN v ELSE 3 END, count(*) FROM hidden GROUP BY 1"
    assert estimated(pair, query.format(5)) != estimated(pair, query.format(15000))
    pair.ours.execute("SET ROLE guest")
    seen = {estimated(pair, query.format(n)) for n in (5, 15000, 20000)}
    pair.ours.execute("RESET ROLE")
    assert len(seen) == 1
    pair.ours.execute(
        "DROP TABLE hidden; REVOKE ALL ON SCHEMA expression_estimates FROM guest; DROP ROLE guest"
    )
