"""Functions without a kernel whose results are kept for values that come again; conditions that change places."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from extensions.columnar.test.twins import Twins, open_twins
from tests.cluster import Node

SERIAL = "SET max_parallel_workers_per_gather = 0"

# long enough for a function to be slow, too many to be a dictionary
WORD = "CASE WHEN i % 23 <> 4 THEN md5((i * 7919 % 6000)::text) || repeat('ab-', i * 7919 % 6000 % 60) END"


@pytest.fixture(scope="module")
def sides(node: Node) -> Iterator[Twins]:
    with open_twins(node, "test_vector_recall") as made:
        made.execute(
            SERIAL,
            "CREATE TABLE t (id integer, few integer, word text, code bytea, price numeric) WITH (autovacuum_enabled = off)",
            f"INSERT INTO t SELECT i, i % 50, {WORD}, decode(md5((i % 6000)::text), 'hex'), i * 7919 % 6000 / 7.0"
            " FROM generate_series(1, 60000) AS i",
            "ANALYZE t",
            """CREATE FUNCTION weigh(w text) RETURNS numeric LANGUAGE plpgsql IMMUTABLE AS $$
            BEGIN RETURN round(length(regexp_replace(w, '[a-f]', '', 'g')) / 3.0, length(w) % 3); END $$""",
            """CREATE FUNCTION choose(w text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
            BEGIN RETURN CASE WHEN w IS NULL THEN 'none' WHEN w > 'c' THEN upper(substr(w, 1, 3)) END; END $$""",
            """CREATE FUNCTION refuse(w text) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
            BEGIN IF w LIKE 'c4ca42%' THEN RAISE EXCEPTION 'refused %', length(w); END IF; RETURN ascii(w); END $$""",
            "CREATE FUNCTION pieces(w text) RETURNS text[] LANGUAGE sql STABLE AS $$ SELECT regexp_split_to_array(w, '(a|9)+') $$",
        )  # fmt: skip
        yield made


@pytest.fixture
def tables(sides: Twins) -> Iterator[Twins]:
    yield sides
    sides.reset()
    sides.execute(SERIAL, "RESET work_mem")


@pytest.mark.sample(3)
@pytest.mark.parametrize("work_mem", ["64kB", "4MB", "64MB"])
@pytest.mark.parametrize(
    "query",
    [
        r"SELECT regexp_replace(word, '^([0-9]+)[a-f]+.*$', '\1') AS k, count(*), min(word) FROM t GROUP BY k",
        "SELECT weigh(word) AS k, count(*), sum(weigh(word)) FROM t GROUP BY k",
        "SELECT choose(word) AS k, count(*), max(id) FROM t GROUP BY k",
        "SELECT pieces(word) AS k, count(*) FROM t WHERE few < 9 GROUP BY k",
        "SELECT few, min(choose(word)), avg(weigh(word)), count(substring(word, '[0-9]{3}')) FROM t GROUP BY few",
        "SELECT count(*), sum(id) FROM t WHERE word ~ '9[a-e]+7' AND few <> 3",
        "SELECT count(*), sum(id) FROM t WHERE NOT (word ~* 'AB-AB-A' AND weigh(word) > 12.5)",
        "SELECT encode(code, 'base64') AS k, count(*) FROM t GROUP BY k",
        "SELECT count(DISTINCT to_char(price, 'FM99990.000')) FROM t",
    ],
)  # fmt: skip
def test_results_equal_those_of_heap(tables: Twins, query: str, work_mem: str) -> None:
    tables.execute(f"SET work_mem = '{work_mem}'")
    tables.same(query)


def test_parameters_change_results(tables: Twins) -> None:
    tables.same(
        "SELECT p, (SELECT count(*) FROM t WHERE regexp_replace(word, p, '') < 'c' AND few < 20)"
        " FROM (VALUES ('^[0-9]+'), ('^.'), ('^[a-c]'), (NULL)) AS v(p)"
    )
    tables.same(
        "SELECT p, (SELECT max(regexp_replace(word, p, '')) FROM t WHERE few < 20)"
        " FROM (VALUES ('^[0-9]+'), ('^.'), ('^[d-f]')) AS v(p)"
    )


def test_errors_are_raised_and_leave_nothing(tables: Twins) -> None:
    tables.fails("SELECT sum(refuse(word)) FROM t", "P0001")
    tables.same("SELECT sum(refuse(word)) FROM t WHERE id % 6000 NOT BETWEEN 1 AND 20 AND word NOT LIKE 'c4ca42%'")  # fmt: skip
    tables.fails("SELECT few, sum(refuse(word)) FROM t GROUP BY few", "P0001")


def test_processes_keep_results_of_their_own(tables: Twins) -> None:
    tables.execute(
        "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;"
        " SET max_parallel_workers_per_gather = 2"
    )
    tables.same(r"SELECT regexp_replace(word, '^([0-9]+)[a-f]+.*$', '\1') AS k, count(*), sum(id) FROM t GROUP BY k")  # fmt: skip


# ---- the order of conditions -----------------------------------------------------------------------


def test_the_most_selective_condition_comes_first(tables: Twins) -> None:
    plan = tables.plan("SELECT count(*) FROM t WHERE few >= 0 AND few < 50 AND id = 700")
    assert "Filter: ((id = 700) AND (few >= 0) AND (few < 50))" in plan


def test_conditions_that_may_fail_keep_their_place(tables: Twins) -> None:
    # core does not say of LIKE that it cannot fail
    query = "SELECT count(*) FROM t WHERE few >= 0 AND few < 1 AND word LIKE '%a%' AND id < 70"
    tables.same(query)
    assert (
        "Filter: ((few < 1) AND (few >= 0) AND (word ~~ '%a%'::text) AND (id < 70))"
        in tables.plan(query)
    )
    tables.fails("SELECT count(*) FROM t WHERE few >= 0 AND 7 / few >= 0 AND id < 700", "22012")


def test_rows_behind_a_security_barrier_raise_no_errors(tables: Twins) -> None:
    tables.execute(
        "CREATE VIEW barrier WITH (security_barrier) AS SELECT * FROM t WHERE few <> 0 AND word LIKE '%a%'"
    )
    for where in ("7 / few >= 0 AND id < 700", "id < 700 AND 7 / few > 1", "few > 3 AND id = 701"):
        tables.same(f"SELECT count(*), min(few) FROM barrier WHERE {where}")
    tables.execute("DROP VIEW barrier")
