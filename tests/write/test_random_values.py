"""New values by volatile functions that keep no state: computed on the workers, for each row."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair


@pytest.fixture(scope="module", params=["columnar", "heap"])
def pair(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with open_pair(cluster, "test_random_values") as made:
        made.execute(
            "CREATE TABLE token (id bigint, code uuid, f float8, at timestamptz, n integer)"
        )
        made.distribute("token", "id", "none", storage=request.param)
        made.execute("INSERT INTO token SELECT i FROM generate_series(1, 500) AS i")
        yield made


SUMMARY = (
    "SELECT count(*), count(DISTINCT code) > 490, count(DISTINCT f) > 490, min(f) >= 0, max(f) < 1, count(code), count(f),"
    " bool_and(at > now() - interval '1 day'), count(n) FROM token"
)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE token SET code = gen_random_uuid(), f = random(), at = clock_timestamp()",
        "UPDATE token SET n = floor(random() * 10)::integer + id % 3 WHERE id < 100",
        "UPDATE token AS t SET code = gen_random_uuid(), n = o.id FROM token AS o WHERE o.id = t.id",
        "INSERT INTO token SELECT id, gen_random_uuid(), random(), clock_timestamp() FROM token",
        "UPDATE token SET id = (random() * 1e9)::bigint, f = random()",
        "MERGE INTO token AS t USING token AS o ON t.id = o.id WHEN MATCHED THEN UPDATE SET f = random()",
    ],
)
def test_new_values(pair: Pair, statement: str) -> None:
    if statement.startswith("MERGE"):  # each row once
        pair.execute("TRUNCATE token; INSERT INTO token SELECT i FROM generate_series(1, 500) AS i")
    pair.same(statement)
    pair.same(SUMMARY)


def test_what_chooses_rows_is_asked_once_for_each(pair: Pair) -> None:
    with pair.ours.transaction(force_rollback=True):
        before = pair.ours.execute("SELECT count(*) FROM token").fetchone()[0]
        gone = pair.ours.execute("DELETE FROM token WHERE random() < 0.5").rowcount
        assert before * 0.3 < gone < before * 0.7
        assert pair.ours.execute("SELECT count(*) FROM token").fetchone()[0] == before - gone


def test_what_keeps_state_is_computed_here(pair: Pair) -> None:
    pair.execute("CREATE SEQUENCE numbers; UPDATE token SET n = nextval('numbers')")
    pair.same("SELECT count(n), count(DISTINCT n), min(n), max(n), nextval('numbers') FROM token")


def test_a_policy_is_not_asked_of_another_value(pair: Pair) -> None:
    """What is checked is what is stored: with a random value that is one evaluation."""
    refused = 0
    pair.cluster.create_role("strata_dice")
    pair.ours.execute(
        "GRANT USAGE ON SCHEMA test_random_values TO strata_dice; GRANT ALL ON token TO strata_dice;"
        "ALTER TABLE token ENABLE ROW LEVEL SECURITY; CREATE POLICY low ON token USING (true) WITH CHECK (f < 0.5)"
    )
    try:
        pair.ours.execute("SET ROLE strata_dice")
        for number in range(30):
            stored = None
            try:
                stored = pair.ours.execute(
                    "UPDATE token SET f = random() WHERE id = %s RETURNING f", [number]
                ).fetchone()
            except psycopg.errors.InsufficientPrivilege:
                refused += 1
            assert stored is None or stored[0] < 0.5
        assert 0 < refused < 30
    finally:
        pair.ours.execute(
            "RESET ROLE; DROP POLICY low ON token; ALTER TABLE token DISABLE ROW LEVEL SECURITY;"
            "DROP OWNED BY strata_dice"
        )
