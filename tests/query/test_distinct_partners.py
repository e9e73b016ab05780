"""Semi and anti joins on the coordinator get each partner once from each worker; the answers are PostgreSQL's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

TABLES = """
CREATE TABLE buyer (b integer PRIMARY KEY, town integer, name text, n numeric);
CREATE TABLE sale (s bigint, b integer, town smallint, name text, n numeric, v integer, d date);
CREATE TABLE piece (s bigint, kind integer);
CREATE TABLE part (p integer PRIMARY KEY, name text);
CREATE TABLE supply (p integer, r integer, cost integer, PRIMARY KEY (p, r));
CREATE TABLE used (u bigint, p integer, r integer, n integer);
"""
ROWS = """
INSERT INTO buyer SELECT b, nullif(b % 13, 5), 'name ' || b, b / 2.0 FROM generate_series(1, 400) AS b;
INSERT INTO sale SELECT s, nullif(s % 300, 7), s % 11, 'name ' || s % 200, (s % 100)::numeric, s % 50, date '2024-01-01' + (s % 9)::integer
  FROM generate_series(1, 9000) AS s;
INSERT INTO piece SELECT s, s % 5 FROM generate_series(1, 9000) AS s;
INSERT INTO part SELECT p, 'part ' || p % 40 FROM generate_series(1, 2000) AS p;
INSERT INTO supply SELECT p, (p + n * 7) % 50, p % 90 + n FROM generate_series(1, 2000) AS p, generate_series(0, 3) AS n;
INSERT INTO used SELECT u, p, r, u % 20 FROM (SELECT u, u % 2000 + 1 AS p, ((u % 2000 + 1) + (u % 4) * 7) % 50 AS r
  FROM generate_series(1, 12000) AS u) AS s;
ANALYZE;
"""


@pytest.fixture(scope="module", params=["columnar", "heap"])
def pair(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with open_pair(cluster, f"test_distinct_partners_{request.param}") as made:
        made.execute(TABLES)
        for table, key in (("sale", "s"), ("piece", "s"), ("buyer", "b"), ("part", "p")):
            made.distribute(
                table, key, "sale" if table == "piece" else "none", storage=request.param
            )
        made.distribute("supply", "r", "none", storage=request.param)
        made.distribute("used", "u", "none", storage=request.param)
        made.execute(ROWS)
        yield made


ONCE = [
    "SELECT * FROM buyer WHERE NOT EXISTS (SELECT FROM sale WHERE sale.b = buyer.b)",
    "SELECT * FROM buyer WHERE EXISTS (SELECT FROM sale WHERE sale.b = buyer.b AND v > 40)",
    "SELECT * FROM buyer WHERE b IN (SELECT b FROM sale WHERE d > '2024-01-03')",
    "SELECT * FROM buyer WHERE b NOT IN (SELECT b FROM sale WHERE b IS NOT NULL)",
    "SELECT * FROM buyer WHERE NOT EXISTS (SELECT FROM sale WHERE sale.name = buyer.name)",
    "SELECT * FROM buyer WHERE NOT EXISTS (SELECT FROM sale WHERE sale.name = buyer.name AND sale.town <> buyer.town)",
    "SELECT * FROM buyer WHERE EXISTS (SELECT FROM sale JOIN piece USING (s) WHERE sale.b = buyer.b AND kind = 3)",
    "SELECT count(*) FROM buyer WHERE town IS NOT NULL AND NOT EXISTS (SELECT FROM sale WHERE sale.town = buyer.town AND sale.b = buyer.b)",
]
AS_THEY_ARE = [
    "SELECT * FROM buyer WHERE NOT EXISTS (SELECT FROM sale WHERE sale.n = buyer.n)",
    "SELECT * FROM buyer LEFT JOIN sale ON sale.b = buyer.b WHERE buyer.town = 3",
    "SELECT * FROM sale WHERE NOT EXISTS (SELECT FROM piece WHERE piece.s = sale.s AND kind < 4)",
    "SELECT * FROM buyer WHERE NOT EXISTS (SELECT FROM sale WHERE sale.s = buyer.b)",
    "SELECT * FROM buyer WHERE (SELECT count(*) FROM sale WHERE sale.b = buyer.b) > 30",
]


def groups(pair: Pair, query: str) -> bool:
    return " GROUP BY " in pair.every_remote_sql(query)


@pytest.mark.parametrize("query", ONCE)
@pytest.mark.parametrize("keys", ["off", "on", "always"])
def test_each_partner_once(pair: Pair, query: str, keys: str) -> None:
    pair.ours.execute(f"SET strata.enable_partner_keys = {keys}")
    pair.same(query)
    assert groups(pair, query) or keys != "off", pair.explain(query, "VERBOSE")
    pair.ours.execute("RESET strata.enable_partner_keys")


@pytest.mark.parametrize("query", AS_THEY_ARE)
def test_what_needs_all_rows(pair: Pair, query: str) -> None:
    pair.same(query)


def test_writes_rights_and_parameters(pair: Pair) -> None:
    with pair.transaction():
        pair.same("DELETE FROM sale WHERE b % 3 = 0")
        pair.same("INSERT INTO sale (s, b) SELECT 20000 + b, b FROM buyer WHERE b > 390")
        pair.all_same(ONCE)
    for policy in (("sale", "v > 30", "buyer", "piece"), ("buyer", "town < 9", "sale", "piece")):
        with pair.under_policy(*policy):
            pair.all_same(ONCE)
    pair.execute("SET plan_cache_mode = force_generic_plan")
    pair.execute(
        "PREPARE asked(integer) AS SELECT * FROM buyer WHERE NOT EXISTS (SELECT FROM sale WHERE sale.b = buyer.b AND v > $1)"
    )
    for value in ("10", "49", "NULL"):
        pair.same(f"EXECUTE asked({value})")
    pair.execute("DEALLOCATE asked; RESET plan_cache_mode")


KEYS = (
    "SELECT sum(cost * n), count(*) FROM used JOIN supply ON supply.p = used.p AND supply.r = used.r"
    " JOIN part ON part.p = used.p WHERE name = 'part 7'"
)


def test_a_join_by_a_whole_key_has_a_partner_for_each_row(pair: Pair) -> None:
    """Core takes the columns for independent, and expects next to none."""
    query = "SELECT * FROM used JOIN supply USING (p, r)"
    assert pair.plan(query, "COSTS ON")["Plan Rows"] > 6000
    pair.same(query)
    for other in (
        "SELECT count(*) FROM used LEFT JOIN supply USING (p, r)",
        "SELECT count(*) FROM used WHERE EXISTS (SELECT FROM supply WHERE supply.p = used.p AND supply.r = used.r)",
        "SELECT count(*) FROM supply WHERE NOT EXISTS (SELECT FROM used WHERE supply.p = used.p AND supply.r = used.r)",
    ):
        pair.same(other)


def test_a_small_relation_of_the_other_side_tells_the_keys(pair: Pair) -> None:
    pair.same(KEYS)
    asked = [node["Remote SQL"] for node in pair.gathers(KEYS) if " = ANY ($" in node["Remote SQL"]]
    assert any("supply" in sql for sql in asked), pair.explain(KEYS, "VERBOSE")
    for other in (
        KEYS.replace("name = 'part 7'", "name > 'part 7' OR n = 3"),
        KEYS.replace("JOIN part ON part.p = used.p", "LEFT JOIN part ON part.p = used.p"),
        KEYS.replace("JOIN supply", "LEFT JOIN supply"),
        KEYS.replace(
            "JOIN part ON part.p = used.p WHERE name",
            "WHERE EXISTS (SELECT FROM part WHERE part.p = used.p AND name",
        )
        + ")",
        KEYS.replace("part.p = used.p WHERE", "part.p = supply.p WHERE"),
    ):
        pair.same(other)
    with pair.under_policy("part", "p > 100", "used", "supply"):
        pair.same(KEYS)
