"""A unique or foreign key that workers could not enforce is refused in the same words, whenever it comes."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.installation import server_major
from tests.pair import Pair, open_pair


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_rules") as made:
        yield made


@pytest.fixture(autouse=True)
def _rolled_back(pair: Pair) -> Iterator[None]:
    yield
    pair.reset()
    assert pair.rows("SELECT count(*) FROM pg_class WHERE relnamespace = 'test_rules'::regnamespace") == [(0,)]  # fmt: skip


def verdict(pair: Pair, *statements: str) -> tuple | None:
    """What the last of these fails with, in a transaction of its own; None: it does not."""
    pair.ours.execute("BEGIN")
    try:
        for statement in statements[:-1]:
            pair.ours.execute(statement)
        try:
            pair.ours.execute(statements[-1])
        except psycopg.Error as error:
            diag = error.diag
            return (error.sqlstate, diag.message_primary, diag.message_detail, diag.message_hint)
        return None
    finally:
        pair.ours.execute("ROLLBACK")


def place(table: str, kind: str, group: str = "none") -> list[str]:
    if kind == "local":
        return []
    if kind == "reference":
        return [f"SELECT strata.create_reference_table('{table}')"]
    return [f"SELECT strata.create_distributed_table('{table}', '{kind}', 4, '{group}')"]


TABLES = (
    'CREATE TABLE "odd ""parent" (k integer, m integer, PRIMARY KEY (k, m))',
    'CREATE TABLE "odd ""child" (k integer, m integer)',
)
KEY = (
    'ALTER TABLE "odd ""child" ADD CONSTRAINT "the key" FOREIGN KEY ({}) REFERENCES "odd ""parent"'
)
KINDS = ("local", "reference", "k", "m")


@pytest.mark.parametrize("columns", ["k, m", "m, k"])
@pytest.mark.parametrize("group", ["none", 'test_rules."odd ""parent"'], ids=["apart", "together"])
@pytest.mark.parametrize("child", KINDS)
@pytest.mark.parametrize("parent", KINDS)
def test_a_foreign_key(pair: Pair, parent: str, child: str, group: str, columns: str) -> None:
    together = parent in "km" and child in "km" and group != "none"
    parts = place('"odd ""parent"', parent), place('"odd ""child"', child, group if together else "none")  # fmt: skip
    enforceable = (
        parent == "reference"
        or child == "local"
        or (together and (parent == child) == (columns == "k, m"))
    )
    later = verdict(pair, *TABLES, *parts[0], *parts[1], KEY.format(columns))
    assert (later is None) == enforceable
    if later is not None:
        assert later[0] == "0A000"
        assert '"the key" from table "odd "child" to table "odd "parent" cannot' in later[1]
        assert later[2]
        assert later[3]
    if child != "local" and parent not in "km":
        assert verdict(pair, *TABLES, *parts[0], KEY.format(columns), *parts[1]) == later
    if child == "local":
        assert verdict(pair, *TABLES, KEY.format(columns), *parts[0]) == later


@pytest.mark.parametrize("columns", ["k, m", "m, k"])
@pytest.mark.parametrize("key", ["k", "m"])
def test_a_foreign_key_to_the_table_itself(pair: Pair, key: str, columns: str) -> None:
    made = "CREATE TABLE own (k integer, m integer, PRIMARY KEY (k, m))"
    add = f"ALTER TABLE own ADD CONSTRAINT self FOREIGN KEY ({columns}) REFERENCES own"
    later = verdict(pair, made, *place("own", key), add)
    assert (later is None) == (columns == "k, m")
    assert verdict(pair, made, add, *place("own", key)) == later
    assert verdict(pair, made, *place("own", "reference"), add) is None
    assert verdict(pair, made, add, *place("own", "reference")) is None


@pytest.mark.parametrize(("parent", "child"), [("reference", "local"), ("reference", "reference"), ("reference", "k"), ("k", "k"), ("k", "local")])  # fmt: skip
def test_a_foreign_key_of_a_table_that_becomes_local(pair: Pair, parent: str, child: str) -> None:
    group = 'test_rules."odd ""parent"' if parent == "k" else "none"
    made = [*TABLES, *place('"odd ""parent"', parent), *place('"odd ""child"', child, group), KEY.format("k, m")]  # fmt: skip
    for table, possible in (("parent", child == "local"), ("child", True)):
        if child == "local" and table == "child":
            continue
        found = verdict(pair, *made, f"""SELECT strata.undistribute_table('"odd ""{table}"')""")
        assert found is None if possible else found[0] == "55000", found


@pytest.mark.parametrize("columns", ["v", "v, (at + 1)", "v, at", "at, v", "k", "k, (v)", "k, at"])
@pytest.mark.parametrize("periods", ["", ", partition_by => 'at', partition_interval => '10'"], ids=["whole", "periods"])  # fmt: skip
def test_a_unique_index(pair: Pair, columns: str, periods: str) -> None:
    table = "CREATE TABLE t (k integer, v integer, at integer NOT NULL)"
    place_it = f"SELECT strata.create_distributed_table('t', 'k'{periods})"
    add = f'CREATE UNIQUE INDEX "the index" ON t ({columns})'
    enforceable = "k" in columns and ("at" in columns or not periods)
    later = verdict(pair, table, place_it, add)
    assert (later is None) == enforceable
    assert verdict(pair, table, add, place_it) == later
    if later is not None:
        assert later[0] == "0A000"
        assert "Add column" in later[3]
        pair.ours.execute(table)
        pair.ours.execute(place_it)
        with pytest.raises(psycopg.errors.FeatureNotSupported) as concurrently:
            pair.ours.execute(add.replace("INDEX", "INDEX CONCURRENTLY"))
        pair.ours.execute("DROP TABLE t")
        assert concurrently.value.diag.message_primary == later[1]
        assert concurrently.value.diag.message_hint == later[3]
    if "(" not in columns:
        constraint = f'ALTER TABLE t ADD CONSTRAINT "the index" UNIQUE ({columns})'
        assert verdict(pair, table, place_it, constraint) == later
        assert verdict(pair, table, constraint, place_it) == later


@pytest.mark.parametrize("column", ["k", "v"])
def test_an_exclusion_constraint(pair: Pair, column: str) -> None:
    table = "CREATE TABLE t (k integer, v integer)"
    add = f'ALTER TABLE t ADD CONSTRAINT "the index" EXCLUDE USING btree ({column} WITH =)'
    later = verdict(pair, table, *place("t", "k"), add)
    possible = column == "k" and server_major() >= 17
    assert later is None if possible else later[0] == "0A000"
    assert verdict(pair, table, add, *place("t", "k")) == later
