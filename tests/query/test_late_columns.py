"""Columns that depend on a grouped key, fetched for the groups, are PostgreSQL's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair, walk

TABLES = """
CREATE COLLATION no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE nation (n integer PRIMARY KEY, name text NOT NULL, area numeric);
CREATE TABLE person (p integer PRIMARY KEY, nation integer, name text, address text, born date, balance numeric(12, 2),
  code varchar(20) UNIQUE, loose text COLLATE no_case NOT NULL UNIQUE, first text NOT NULL, last text NOT NULL, UNIQUE (first, last));
CREATE TABLE bought (b bigint PRIMARY KEY, p bigint, code varchar(20), first text, last text, price numeric, at timestamp, state text);
CREATE TABLE item (b bigint, line integer, thing text, price numeric, PRIMARY KEY (b, line));
CREATE TABLE here (w integer, p integer);
CREATE VIEW persons AS SELECT * FROM person WHERE balance > -50;
"""
ROWS = """
INSERT INTO nation SELECT n, 'nation ' || n, n / 3.0 FROM generate_series(0, 24) AS n;
INSERT INTO person SELECT p, nullif(p % 27, 7), 'name ' || p % 250, repeat('address ' || p, 1 + p % 4), date '1980-01-01' + p % 9000,
  p % 300 - 100, CASE WHEN p % 9 <> 0 THEN 'code ' || p END, 'L' || p, 'first ' || p % 50, 'last ' || p / 50 FROM generate_series(1, 900) AS p;
INSERT INTO bought SELECT b, nullif(b * 7 % 1000, 11), 'code ' || b % 700, 'first ' || b % 50, 'last ' || b % 900 / 50, b % 211 / 4.0,
  timestamp '2024-01-01' + b * interval '1 hour', (ARRAY['open', 'sent', NULL])[b % 3 + 1] FROM generate_series(1, 5000) AS b;
INSERT INTO item SELECT b, line, 'thing ' || (b * line) % 40, (b * line) % 97 FROM generate_series(1, 5000) AS b, generate_series(1, 2) AS line;
INSERT INTO here SELECT w, w * 3 FROM generate_series(1, 200) AS w;
ANALYZE;
"""


@pytest.fixture(scope="module", params=["reference", "distributed", "local"])
def pair(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """What is fetched lies anywhere; only tables of the cluster are."""
    with open_pair(cluster, f"test_late_{request.param}") as made:
        made.execute(TABLES)
        made.distribute("bought", "b", "none")
        made.distribute("item", "b", "bought")
        if request.param == "distributed":
            made.execute(
                "ALTER TABLE person DROP CONSTRAINT person_code_key, DROP CONSTRAINT person_loose_key,"
                " DROP CONSTRAINT person_first_last_key"
            )
            made.distribute("person", "p", "none")
            made.reference("nation")
        elif request.param == "reference":
            made.reference("person")
            made.reference("nation")
        made.execute(ROWS)
        made.kind = request.param
        yield made


JOINED = "person AS c JOIN bought AS o ON o.p = c.p"
# groups of which columns are fetched
LATE = [
    # TPC-H's tenth query
    "SELECT c.p, c.name, sum(i.price * (1 - 0.1)) AS revenue, balance, n.name, address, born FROM person AS c, bought AS o, item AS i,"
    " nation AS n WHERE c.p = o.p AND i.b = o.b AND o.at >= '2024-02-01' AND state = 'sent' AND c.nation = n.n"
    " GROUP BY c.p, c.name, balance, born, n.name, address ORDER BY revenue DESC, c.p LIMIT 20",
    f"SELECT c.p, c.name, c.address, count(*), sum(price) FROM {JOINED} GROUP BY c.p, c.name, c.address",
    f"SELECT c.p, c.name, count(*) FROM {JOINED} GROUP BY c.p ORDER BY count(*) DESC, c.p LIMIT 5 OFFSET 3",
    f"SELECT c.name, count(*) FROM {JOINED} GROUP BY c.p",
    f"SELECT c.name, o.p, count(*) FROM {JOINED} GROUP BY o.p, c.name, c.address",
    f"SELECT c.name, o.p + 1, max(o.at) - c.born FROM {JOINED} GROUP BY o.p, c.name, c.born",
    f"SELECT c.p, upper(c.name), length(c.address) + count(*) FROM {JOINED} GROUP BY c.p, c.name, length(c.address)",
    f"SELECT c.p, o.state, c.name, sum(price) FROM {JOINED} GROUP BY c.p, o.state, c.name, c.balance",
    f"SELECT c.p, c.name, count(*) FROM {JOINED} GROUP BY c.p, c.name HAVING count(*) > 5",
    f"SELECT c.p, c.name, count(*) FROM {JOINED} GROUP BY c.p, c.name HAVING count(*) > 4 AND c.name > 'name 2' AND c.p < 700",
    f"SELECT c.p, c.name, count(*) FROM {JOINED} GROUP BY c.p, c.name HAVING c.name > 'name 2' ORDER BY count(*), c.p LIMIT 7",
    f"SELECT c.p, c.name, count(*) FROM {JOINED} GROUP BY c.p, c.name ORDER BY c.name, c.p LIMIT 9",
    f"SELECT c.p, c.name, count(*) FROM {JOINED} GROUP BY c.p, c.name ORDER BY c.name, c.p LIMIT (SELECT count(*) FROM nation) OFFSET"
    " (SELECT min(w) FROM here)",
    f"SELECT c.p, c.name, count(*) FROM {JOINED} GROUP BY c.p, c.name ORDER BY count(*), c.p LIMIT (SELECT count(*) FROM bought WHERE b < 9)",
    f"SELECT * FROM (SELECT c.p, c.name, count(*) AS n FROM {JOINED} GROUP BY c.p, c.name ORDER BY n DESC FETCH FIRST 3 ROWS WITH TIES) AS q",
    f"SELECT c.p, c.name FROM {JOINED} GROUP BY c.p, c.name",
    f"SELECT c.p, c.name, count(*) FROM {JOINED} GROUP BY c.p, c.name ORDER BY sum(price) * 2 DESC, c.p LIMIT 4",
    f"SELECT c.name, count(DISTINCT state), count(*) FILTER (WHERE price > 20) FROM {JOINED} GROUP BY c.p, c.name",
    f"SELECT c.name, string_agg(state, ',' ORDER BY o.b) FROM {JOINED} GROUP BY c.p, c.name",
    "SELECT n.name, n.area, c.p, c.address, count(*) FROM bought AS o JOIN (person AS c JOIN nation AS n ON n.n = c.nation) ON c.p = o.p"
    " GROUP BY c.p, n.name, n.area, c.address",
    "SELECT c.name, w, count(*) FROM person AS c JOIN bought AS o ON o.p = c.p LEFT JOIN here AS h ON h.p = c.p GROUP BY c.p, c.name, w",
    "SELECT c.name, count(h.w) FROM bought AS o JOIN person AS c USING (p) LEFT JOIN here AS h USING (p) GROUP BY p, c.p, c.name",
    "SELECT c.address, c.name, n FROM (SELECT c.p, c.name, c.address, count(*) AS n FROM person AS c JOIN bought AS o USING (p) GROUP BY c.p,"
    " c.name, c.address ORDER BY n DESC, c.p LIMIT 10) AS c WHERE name > 'name 1'",
    "WITH best AS (SELECT c.p, c.name, sum(price) AS s FROM person AS c, bought AS o WHERE o.p = c.p GROUP BY c.p, c.name ORDER BY s DESC,"
    " c.p LIMIT 10) SELECT * FROM best AS a JOIN best AS b ON a.p = b.p",
    "WITH dear AS (SELECT * FROM bought WHERE price > 10) SELECT c.p, c.name, count(*) FROM person AS c, dear AS s, bought AS o"
    " WHERE s.p = c.p AND o.b = s.b GROUP BY c.p, c.name",
    "SELECT c.p, c.name, count(*) FROM person AS c, bought AS o WHERE o.p = c.p AND EXISTS (SELECT FROM here AS h WHERE h.p = c.p)"
    " GROUP BY c.p, c.name",
    "SELECT c.p, c.name, a.n FROM here AS h, LATERAL (SELECT c.p, c.name, count(*) AS n FROM person AS c JOIN bought AS o ON o.p = c.p AND"
    " o.b % 200 < h.w WHERE c.p = h.p GROUP BY c.p, c.name) AS c, LATERAL (SELECT c.n) AS a",
]
# ... with keys that not every kind of table has
OTHER_KEYS = [
    "SELECT c.address, c.balance, count(*) FROM person AS c JOIN bought AS o ON o.first = c.first AND o.last = c.last"
    " GROUP BY c.first, c.last, c.address, c.balance",
    "SELECT c.address, c.balance, count(*) FROM person AS c JOIN bought AS o ON o.first = c.first AND o.last = c.last"
    " GROUP BY o.first, c.last, c.address, c.balance",
]
# where it depends on what lies where
EITHER = [
    "SELECT c.loose, c.name, count(*) FROM person AS c JOIN bought AS o ON 'l' || o.p = c.loose COLLATE \"C\""
    ' GROUP BY c.loose COLLATE "C", c.loose, c.name',
    "SELECT o.b, o.state, o.at, count(*) FROM bought AS o JOIN item AS i ON i.b = o.b JOIN person AS c ON c.p = o.p GROUP BY o.b",
]
# as they are written
AS_WRITTEN = [
    f"SELECT c.p, count(*) FROM {JOINED} GROUP BY c.p",
    f"SELECT c.name, count(*) FROM {JOINED} GROUP BY c.name, c.address",
    "SELECT c.code, c.name, count(*) FROM person AS c JOIN bought AS o USING (code) GROUP BY c.code, c.name",
    "SELECT c.p, c.name, count(*) FROM bought AS o LEFT JOIN person AS c ON o.p = c.p GROUP BY c.p, c.name",
    "SELECT c.p, c.name, count(*) FROM bought AS o FULL JOIN person AS c ON o.p = c.p GROUP BY c.p, c.name",
    f"SELECT c.p, c.name, count(*), GROUPING(c.p) FROM {JOINED} GROUP BY ROLLUP (c.p, c.name)",
    f"SELECT c.p, c.name, count(*), rank() OVER (ORDER BY count(*), c.p) FROM {JOINED} GROUP BY c.p, c.name",
    f"SELECT DISTINCT c.name, count(*) FROM {JOINED} GROUP BY c.p, c.name",
    f"SELECT c.p, c.name, count(*) + 0 * random() FROM {JOINED} GROUP BY c.p, c.name",
    f"SELECT c.p, c.name, (SELECT n.name FROM nation AS n WHERE n.n = c.nation), count(*) FROM {JOINED} GROUP BY c.p, c.name, c.nation",
    "SELECT c.p, c.name, count(*) FROM person AS c TABLESAMPLE BERNOULLI (100) JOIN bought AS o ON o.p = c.p GROUP BY c.p, c.name",
    "SELECT c.first, c.name, count(*) FROM person AS c JOIN bought AS o ON o.first = c.first GROUP BY c.first, c.name",
    "SELECT o.b, o.state, o.at, count(*) FROM bought AS o JOIN item AS i ON i.b = o.b GROUP BY o.b, o.state, o.at",
    "SELECT w, (SELECT c.name || count(*) FROM person AS c JOIN bought AS o ON o.p = c.p WHERE c.p = h.p GROUP BY c.p, c.name) FROM here AS h",
]


def fetches(pair: Pair, query: str) -> bool:
    """Are there groups below a join?"""
    joins = [
        node
        for node in pair.nodes(query)
        if node["Node Type"].endswith("Join") or node["Node Type"] == "Nested Loop"
    ]
    return any(
        "Aggregate" in below["Node Type"] or below.get("Alias") == "grouped"
        for join in joins
        for below in walk(join)
    )


@pytest.fixture(autouse=True)
def _reset(pair: Pair) -> Iterator[None]:
    yield
    pair.reset()
    pair.ours.execute("RESET strata.enable_late_columns")


@pytest.mark.parametrize("query", [*LATE, *OTHER_KEYS, *EITHER])
def test_columns_are_fetched(pair: Pair, query: str) -> None:
    pair.ours.execute("SET strata.enable_late_columns = always")
    pair.same(query)
    if (query in LATE and pair.kind != "local") or (
        query in OTHER_KEYS and pair.kind == "reference"
    ):
        assert fetches(pair, query), pair.explain(query, "VERBOSE, COSTS OFF")


@pytest.mark.parametrize("query", AS_WRITTEN)
def test_what_stays_as_it_is(pair: Pair, query: str) -> None:
    pair.ours.execute("SET strata.enable_late_columns = always")
    pair.same(query)
    assert not fetches(pair, query), pair.explain(query, "VERBOSE, COSTS OFF")


@pytest.mark.parametrize("query", [*LATE, *OTHER_KEYS])
def test_where_it_is_cheaper_or_never(pair: Pair, query: str) -> None:
    pair.same(query)
    pair.ours.execute("SET strata.enable_late_columns = off")
    pair.same(query)


def test_it_is_chosen(pair: Pair) -> None:
    if pair.kind != "reference":
        return
    pair.execute(
        "CREATE TABLE many AS SELECT n AS o, n % 900 AS p FROM generate_series(1, 60000) AS n"
    )
    pair.distribute("many", "o", "none")
    pair.execute("ANALYZE many")
    query = (
        "SELECT c.p, c.name, c.address, n.name, count(*) FROM person AS c JOIN many ON many.p = c.p JOIN nation AS n ON n.n = c.nation"
        " GROUP BY c.p, c.name, c.address, n.name ORDER BY count(*) DESC, c.p LIMIT 10"
    )
    assert fetches(pair, query), pair.explain(query, "COSTS ON")
    pair.same(query)
    pair.execute("DROP TABLE many")


def test_parameters_writes_and_cursors(pair: Pair) -> None:
    pair.ours.execute("SET strata.enable_late_columns = always")
    query = (
        "SELECT c.p, c.name, c.address, count(*), sum(price) FROM person AS c JOIN bought AS o ON o.p = c.p AND o.b > {}"
        " GROUP BY c.p, c.name, c.address ORDER BY count(*) DESC, c.p LIMIT {}"
    )
    for plans in ("force_custom_plan", "force_generic_plan"):
        pair.execute(
            f"SET plan_cache_mode = {plans}; PREPARE asked(integer, integer) AS {query.format('$1', '$2')}"
        )
        for values in ("3, 10", "NULL, 10", "1000, NULL", "10, 0"):
            pair.same(f"EXECUTE asked({values})")
        pair.execute("DEALLOCATE asked; RESET plan_cache_mode")
    with pair.transaction():
        pair.same(
            "INSERT INTO bought (b, p, price) SELECT 6000 + n, 1, 50 FROM generate_series(1, 9) AS n"
        )
        pair.same(f"DECLARE c SCROLL CURSOR FOR {query.format(0, 20)}")
        pair.same("UPDATE person SET name = 'new', address = NULL WHERE p < 300")
        pair.same("FETCH ALL FROM c")
        pair.same("FETCH BACKWARD 2 FROM c")
        pair.same(query.format(0, 20))
        pair.same("DELETE FROM person WHERE p = 1")
        pair.same(query.format(0, 20))


def elsewhere(pair: Pair, statement: str) -> None:
    """In another session: the driver forgets prepared statements when it sees such a one."""
    for node in (pair.cluster.coordinator, pair.cluster.plain):
        with node.connect() as connection:
            connection.execute(f"SET search_path = {pair.schema}; {statement}")


def test_keys_that_come_and_go(pair: Pair) -> None:
    """A plan lives no longer than the key that it relies on, and no key is older than the snapshot that has double rows."""
    pair.ours.execute("SET strata.enable_late_columns = always")
    pair.execute("CREATE TABLE tag (t integer NOT NULL, name text, other text)")
    if pair.kind != "local":
        pair.reference("tag")
    pair.execute("INSERT INTO tag SELECT t, 'tag ' || t, 'one' FROM generate_series(1, 20) AS t")
    query = "SELECT t.t, t.name, t.other, count(*) FROM bought AS o JOIN tag AS t ON t.t = o.b % 20 GROUP BY t.t, t.name, t.other"
    pair.same(query)
    pair.execute("ALTER TABLE tag ADD PRIMARY KEY (t)")
    assert fetches(pair, query) or pair.kind == "local"
    pair.execute(f"PREPARE kept AS {query}")
    for _ in range(7):
        pair.same("EXECUTE kept")
    elsewhere(pair, "ALTER TABLE tag DROP CONSTRAINT tag_pkey")
    pair.execute("INSERT INTO tag SELECT t, 'tag ' || t, 'two' FROM generate_series(5, 9) AS t")
    pair.same("EXECUTE kept")
    pair.same(query)
    pair.execute("DEALLOCATE kept")
    for deferral in ("DEFERRABLE", "DEFERRABLE INITIALLY DEFERRED"):
        pair.execute("DELETE FROM tag WHERE other = 'two'")
        pair.execute(f"ALTER TABLE tag ADD UNIQUE (t) {deferral}")
        assert not fetches(pair, query)
        pair.execute("ALTER TABLE tag DROP CONSTRAINT tag_t_key")
    pair.execute("INSERT INTO tag SELECT t, 'tag ' || t, 'two' FROM generate_series(5, 9) AS t")
    with pair.transaction("ROLLBACK", "BEGIN ISOLATION LEVEL REPEATABLE READ"):
        pair.same(query)
        with pair.cluster.coordinator.connect() as other:
            other.execute(f"SET search_path = {pair.schema}")
            other.execute("DELETE FROM tag WHERE other = 'two'")
            other.execute("CREATE UNIQUE INDEX ON tag (t)")
        # rows are not compared: core's own joins may believe such a key
        assert not fetches(pair, query)
    assert fetches(pair, query) or pair.kind == "local"
    pair.execute("DROP TABLE tag")


def test_rights(pair: Pair) -> None:
    # or the background does, with which a transaction of GRANT and ALTER TABLE may deadlock
    pair.execute("ANALYZE")
    pair.ours.execute("SET strata.enable_late_columns = always")
    queries = [query for query in LATE if "here" not in query]
    with pair.under_policy("person", "balance > 20", "bought", "item", "nation"):
        pair.all_same(queries)
    with pair.under_policy(
        "bought", "price > 10 AND p IN (SELECT p FROM person)", "person", "item", "nation"
    ):
        pair.all_same(queries)
    pair.execute(
        f"CREATE ROLE late_stranger; GRANT USAGE ON SCHEMA {pair.schema} TO late_stranger;"
        "GRANT SELECT (p, name) ON person TO late_stranger; GRANT SELECT ON bought TO late_stranger; SET ROLE late_stranger"
    )
    pair.same(
        "SELECT c.p, c.name, count(*) FROM person AS c JOIN bought AS o ON o.p = c.p GROUP BY c.p, c.name"
    )
    pair.same(
        "SELECT c.p, c.address, count(*) FROM person AS c JOIN bought AS o ON o.p = c.p GROUP BY c.p, c.address"
    )
    pair.same(
        "SELECT p.p, p.name, count(*) FROM persons AS p JOIN bought AS o ON o.p = p.p GROUP BY p.p, p.name"
    )
    pair.execute("RESET ROLE; DROP OWNED BY late_stranger; DROP ROLE late_stranger")
