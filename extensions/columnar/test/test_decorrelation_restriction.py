"""Sub-selects that became joins read only rows of keys that the outer query can ask for.

The heap twin is the oracle: there sub-selects stay as they are written.  Most tests set
enable_decorrelation to `always`, where a restriction is made whenever there is one; `on` leaves the
choice to the planner.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from extensions.columnar.test.twins import Twins, open_twins, outcome_difference
from tests.cluster import Node

# big: what sub-selects read.  small: looked up, with conditions.  mid: between them.
TABLES = (
    "CREATE TABLE small (id integer, c text, n integer, w bigint)",
    "CREATE TABLE mid (id integer NOT NULL, d integer, x integer, v numeric, t text)",
    "CREATE TABLE big (d integer, m integer, q numeric, y integer, b bigint, t text)",
    """INSERT INTO small SELECT i, 'c' || i % 17, i % 6, CASE WHEN i % 9 > 0 THEN i END
        FROM generate_series(1, 150) AS i""",
    # an id twice, and one that is NULL
    "INSERT INTO small VALUES (3, 'c1', 2, 3), (NULL, 'c1', 1, NULL), (900, 'c1', 0, 900)",
    """INSERT INTO mid SELECT i, CASE WHEN i % 10 > 0 THEN i * 7 % 160 END, i % 40, i * 31 % 113 / 3.0,
        't' || i % 8 FROM generate_series(1, 300) AS i""",
    """INSERT INTO big SELECT CASE WHEN i % 12 > 0 THEN i * 13 % 170 END, i * 11 % 320, i * 29 % 97 / 7.0,
        i % 50, CASE WHEN i % 8 > 0 THEN i % 170 END, 't' || i % 11 FROM generate_series(1, 3000) AS i""",
    "CREATE VIEW chosen AS SELECT id, n FROM small WHERE c = 'c1'",
    "CREATE VIEW fenced WITH (security_barrier) AS SELECT id, n FROM small WHERE c = 'c1'",
    "CREATE FUNCTION {schema}.same(integer) RETURNS integer VOLATILE LANGUAGE plpgsql AS"
    " $$ BEGIN RETURN $1; END $$",
    "ANALYZE small; ANALYZE mid; ANALYZE big",
)

ALWAYS = "SET strata_columnar.enable_decorrelation = always"


@pytest.fixture(scope="module")
def shared(node: Node) -> Iterator[Twins]:
    with open_twins(node, "restriction") as made:
        made.execute(*TABLES)
        yield made


@pytest.fixture
def tables(shared: Twins) -> Iterator[Twins]:
    """Tables that the test does not change."""
    shared.execute(ALWAYS)
    yield shared
    shared.reset()


@pytest.fixture
def own_tables(twins: Twins) -> Twins:
    """Tables that the test may change."""
    twins.execute(*TABLES, ALWAYS)
    return twins


def reads(twins: Twins, query: str) -> dict[str, int]:
    """The query gives the same rows, and how often its plan reads each table."""
    twins.same(query)
    plan = twins.plan(query, "VERBOSE, COSTS OFF")
    assert "SubPlan" not in plan, plan
    tables = re.findall(r" on \w+\.(\w+)", plan)
    return {table: tables.count(table) for table in set(tables)}


AVERAGE = "(SELECT avg(q) FROM big AS i WHERE i.d = small.id)"
COUNT = "(SELECT count(*) FROM big AS i WHERE i.d = small.id)"


# ---- what is restricted -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT sum(big.q) FROM big, small WHERE small.id = big.d AND c = 'c1' AND q < {AVERAGE}",
        f"SELECT small.id, {COUNT} FROM small WHERE c LIKE 'c1%' AND n BETWEEN 1 AND 4",
        f"SELECT small.id, 10 / {COUNT} FROM small WHERE c = 'c1' AND id < 100",
        f"SELECT small.id FROM small WHERE n IN (1, 2) AND 5 < {COUNT}",
        f"SELECT small.id FROM small WHERE n = 1 AND (5 > {COUNT} OR {AVERAGE} > 3)",
        f"SELECT small.id, CASE WHEN n > 2 THEN {AVERAGE} END FROM small WHERE c = 'c3'",
        # the column may have come from anywhere that keeps the rows of the table
        f"SELECT small.id, mid.id, {COUNT} FROM small LEFT JOIN mid ON mid.d = small.id WHERE c = 'c1'",
        f"SELECT small.id, mid.id, {COUNT} FROM mid RIGHT JOIN small ON mid.d = small.id WHERE c = 'c1'",
        f"SELECT small.id, mid.id FROM mid JOIN small ON mid.d = small.id AND c = 'c1' AND mid.v > {AVERAGE}",
        # conditions on the outer row in the sub-select
        "SELECT id, (SELECT count(*) FROM big AS i WHERE i.d = small.id AND small.c = 'c1') FROM small",
        # EXISTS where it is a grouped join
        "SELECT id FROM small WHERE c = 'c1' AND (n = 2 OR EXISTS (SELECT FROM big AS i WHERE i.d = small.id))",
        """SELECT id FROM small WHERE c = 'c1' AND NOT EXISTS (SELECT y FROM big AS i WHERE i.d = small.id
            GROUP BY y HAVING count(*) > 1)""",
        # another type, other expressions, more than one key of a relation
        "SELECT id FROM small WHERE c = 'c1' AND n < (SELECT count(*) FROM big AS i WHERE i.b = small.id)",
        "SELECT id FROM small WHERE c = 'c1' AND n < (SELECT count(*) FROM big AS i WHERE i.d = small.w)",
        "SELECT id FROM small WHERE c = 'c1' AND n < (SELECT max(y) FROM big AS i WHERE i.d = small.id AND i.b = small.w)",
        "SELECT id FROM small WHERE n = 1 AND c < (SELECT max(t) FROM big AS i WHERE lower(i.t) = lower(c))",
        # groups
        f"SELECT c, sum({AVERAGE}), count(*) FROM small WHERE n = 2 GROUP BY c",
        "SELECT id, (SELECT max(q) FROM big AS i WHERE i.d = small.id) FROM small WHERE c = 'c1' GROUP BY id",
        # a query below others
        f"SELECT * FROM mid LEFT JOIN (SELECT id, {COUNT} AS a FROM small WHERE c = 'c1') AS s ON s.id = mid.d",
        f"SELECT id FROM mid WHERE d IN (SELECT id FROM small WHERE c = 'c1' AND n < {AVERAGE})",
        f"WITH w AS (SELECT id, {COUNT} AS a FROM small WHERE c = 'c1') SELECT * FROM w WHERE a > 3",
    ],
)
def test_conditions_on_the_table_of_the_looked_up_column(tables: Twins, query: str) -> None:
    assert reads(tables, query)["small"] >= 2


OF_MID = "(SELECT avg(q) FROM big AS i WHERE i.m = mid.id)"
COUNT_OF_MID = "(SELECT count(*) FROM big AS i WHERE i.d = mid.d)"


@pytest.mark.parametrize(
    ("query", "table"),
    [
        # the outer query holds the column equal to another
        ("SELECT q FROM big, small WHERE small.id = big.d AND c = 'c1' AND q < (SELECT avg(q) FROM big AS i WHERE i.d = big.d)", "small"),
        ("SELECT q FROM big JOIN small ON small.id = big.d AND c = 'c1' WHERE q < (SELECT avg(q) FROM big AS i WHERE i.d = big.d)", "small"),
        ("SELECT v FROM mid, small WHERE w = d AND c = 'c1' AND x < (SELECT count(*) FROM big AS i WHERE i.d = mid.d)", "small"),
        # it is joined to a smaller table with conditions
        (f"SELECT mid.id FROM mid, small WHERE mid.d = small.id AND c = 'c1' AND v > {OF_MID}", "small"),
        # IN, EXISTS
        (f"SELECT id FROM mid WHERE d IN (SELECT id FROM small WHERE c LIKE 'c1%') AND v > {OF_MID}", "small"),
        (f"SELECT id FROM mid WHERE d IN (SELECT id FROM small WHERE c LIKE 'c1%') AND x > {COUNT_OF_MID}", "small"),
        (f"SELECT id FROM mid WHERE EXISTS (SELECT FROM small WHERE small.id = mid.d AND c = 'c1') AND v > {OF_MID}", "small"),
        (f"SELECT id FROM mid WHERE id IN (SELECT id FROM small WHERE c = 'c1') AND v > {OF_MID}", "small"),
        ("SELECT id FROM mid WHERE d IN (SELECT id FROM small WHERE c LIKE 'c1%') AND x > (SELECT sum(q) FROM big AS i WHERE i.d = mid.d AND i.m = mid.id)", "small"),
        # derived tables and views
        ("SELECT id FROM chosen WHERE n < (SELECT avg(q) FROM big AS i WHERE i.d = chosen.id)", "small"),
        ("SELECT id FROM (SELECT id, n FROM small WHERE c = 'c1') AS s WHERE n < (SELECT count(*) FROM big AS i WHERE i.d = s.id)", "small"),
    ],
)  # fmt: skip
def test_conditions_that_core_may_see_after_the_join(tables: Twins, query: str, table: str) -> None:
    assert reads(tables, query)[table] == 2


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ("small.id < 10", "(d < 10)"),
        ("5 >= small.id", "(5 >= d)"),
        ("small.id IN (3, 5, 7)", "(d = ANY"),
        ("small.id BETWEEN 3 AND 9", "(d <= 9)"),
        ("small.id <> 7 AND small.id < 11", "(d <> 7)"),
    ],
)
def test_conditions_on_the_looked_up_column_are_repeated(
    tables: Twins, conditions: str, expected: str
) -> None:
    query = f"SELECT small.id, {COUNT} FROM small WHERE {conditions}"
    assert reads(tables, query) == {"small": 1, "big": 1}
    assert expected in tables.plan(query), tables.plan(query)


def test_a_condition_of_another_type_is_not_repeated(tables: Twins) -> None:
    query = "SELECT id, (SELECT count(*) FROM big AS i WHERE i.d = small.w) FROM small WHERE w < 20"
    assert reads(tables, query)["small"] == 2


def test_in_on_the_looked_up_column_is_repeated(tables: Twins) -> None:
    query = (
        "SELECT id FROM mid WHERE d IN (SELECT id FROM small WHERE c = 'c1') AND x > "
        + COUNT_OF_MID
    )
    assert reads(tables, query) == {"small": 2, "mid": 1, "big": 1}


def test_each_key_by_its_own_table(tables: Twins) -> None:
    query = """SELECT small.id, mid.id FROM small, mid WHERE small.n = mid.x AND c = 'c1' AND v > 20
        AND v > (SELECT avg(q) FROM big AS i WHERE i.d = small.id AND i.m = mid.id)"""
    assert reads(tables, query) == {"small": 2, "mid": 2, "big": 1}


def test_partitions_are_read_as_their_table(own_tables: Twins) -> None:
    own_tables.execute(
        "CREATE TABLE parted (LIKE small) PARTITION BY RANGE (n)",
        "CREATE TABLE parted1 PARTITION OF parted FOR VALUES FROM (0) TO (3)",
        "CREATE TABLE parted2 PARTITION OF parted FOR VALUES FROM (3) TO (10)",
        "INSERT INTO parted SELECT * FROM small",
        "ANALYZE parted",
    )
    counted = reads(
        own_tables,
        "SELECT id FROM parted WHERE c = 'c1' AND n < (SELECT avg(q) FROM big AS i WHERE i.d = parted.id)",
    )
    assert counted.get("parted", 0) == 2 or counted["parted1"] == 2


# ---- what is not ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        # nothing to restrict by
        f"SELECT id, {COUNT} FROM small",
        f"SELECT id, {COUNT} FROM small WHERE id IS NOT NULL",
        f"SELECT id FROM small WHERE c = 'c1' OR {COUNT} > 3",
        # conditions that may fail, or are volatile
        f"SELECT id, {COUNT} FROM small WHERE 10 / (n + 1) > 2",
        f"SELECT id, {COUNT} FROM small WHERE same(n) = 1",
        # what the column comes from may be NULL
        f"SELECT mid.id, {COUNT} FROM mid LEFT JOIN small ON small.id = mid.d AND c = 'c1' WHERE x < 20",
        f"SELECT mid.id, {COUNT} FROM mid FULL JOIN small ON small.id = mid.d WHERE c = 'c1' OR x < 9",
        # the same rows are not sure to come again
        f"SELECT id, {COUNT} FROM (SELECT * FROM small WHERE c = 'c1' ORDER BY id LIMIT 5) AS small",
        f"SELECT id FROM small TABLESAMPLE BERNOULLI (100) WHERE c = 'c1' AND n < {AVERAGE}",
        f"SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM small) AS small WHERE n < {AVERAGE}",
        # views that hide rows
        "SELECT id FROM fenced WHERE n < (SELECT avg(q) FROM big AS i WHERE i.d = fenced.id)",
        # core may join first, and the value is seen where a NULL would matter
        f"SELECT mid.id, {COUNT_OF_MID} FROM mid, small WHERE mid.d = small.id AND c = 'c1'",
        f"SELECT mid.id FROM mid, small WHERE mid.d = small.id AND c = 'c1' AND 99 / (1 + {COUNT_OF_MID}) > 0",
        f"SELECT id FROM mid WHERE d IN (SELECT id FROM small WHERE c = 'c1') AND 99 / (1 + {COUNT_OF_MID}) > 0",
        # IN that is expensive to find twice, or may fail
        f"SELECT id FROM mid WHERE d IN (SELECT id FROM small GROUP BY id HAVING count(*) > 1) AND v > {OF_MID}",
        f"SELECT id FROM mid WHERE d IN (SELECT id FROM small WHERE 1 / (n + 1) = 0) AND v > {OF_MID}",
    ],
)
def test_what_is_not_restricted(tables: Twins, query: str) -> None:
    counted = reads(tables, query)
    assert max(counted.get("small", 0), counted.get("mid", 0)) <= 1, counted


def test_row_security(own_tables: Twins) -> None:
    role = f"{own_tables.name}_reader"
    own_tables.columnar.execute(f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role}")
    own_tables.execute(
        f"GRANT ALL ON SCHEMA {{schema}} TO {role}; GRANT SELECT ON small, mid, big TO {role}",
        "ALTER TABLE small ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY p ON small USING (n > 1)",
        f"SET ROLE {role}",
    )
    own_tables.same(f"SELECT id FROM small WHERE c = 'c1' AND n < {AVERAGE}")
    own_tables.same(
        f"SELECT id FROM mid WHERE d IN (SELECT id FROM small WHERE c = 'c1') AND v > {OF_MID}"
    )
    own_tables.execute("RESET ROLE", f"DROP OWNED BY {role}")
    own_tables.columnar.execute(f"DROP ROLE {role}")


def test_permissions_are_those_of_the_query(own_tables: Twins) -> None:
    role = f"{own_tables.name}_reader"
    own_tables.columnar.execute(f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role}")
    own_tables.execute(
        f"GRANT USAGE ON SCHEMA {{schema}} TO {role}; GRANT SELECT (id, c) ON small TO {role}",
        f"GRANT SELECT ON big, chosen TO {role}",
        f"SET ROLE {role}",
    )
    assert reads(own_tables, f"SELECT id, {COUNT} FROM small WHERE c = 'c1'")["small"] == 2
    own_tables.fails(f"SELECT id, {COUNT} FROM small WHERE c = 'c1' AND n = 1", "42501")
    own_tables.same(
        "SELECT id FROM chosen WHERE n < (SELECT avg(q) FROM big WHERE big.d = chosen.id)"
    )
    own_tables.execute("RESET ROLE", f"REVOKE SELECT ON small FROM {role}", f"SET ROLE {role}")
    own_tables.same(
        "SELECT id FROM chosen WHERE n < (SELECT avg(q) FROM big WHERE big.d = chosen.id)"
    )
    own_tables.execute("RESET ROLE", f"DROP OWNED BY {role}")
    own_tables.columnar.execute(f"DROP ROLE {role}")


# ---- errors and choice ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        # all groups of rows that come out have rows, but not those of others
        f"SELECT id, 10 / {COUNT} FROM small WHERE c = 'c1' AND id < 170",
        f"SELECT mid.id, 1000 / {COUNT_OF_MID} FROM mid, small WHERE mid.d = small.id AND c = 'c1'",
        f"SELECT q.id FROM mid LEFT JOIN (SELECT mid.id, {COUNT_OF_MID} AS a FROM mid, small"
        " WHERE mid.d = small.id AND c = 'c1') AS q ON q.id = mid.id WHERE 10 / q.a > 0",
        # rows that are not looked at
        f"SELECT id, {COUNT} FROM small WHERE n <> 0 AND 6 / n > 1",
        f"SELECT id FROM mid WHERE d IN (SELECT id FROM small WHERE n > 0 AND 6 / n > 1) AND v > {OF_MID}",
        # an error is one still
        f"SELECT id, 10 / ({COUNT} - 18) FROM small WHERE n < 5",
        "SELECT id FROM small WHERE c = 'c1' AND n < (SELECT avg(q / (y - 7)) FROM big AS i WHERE i.d = small.id)",
    ],
)
def test_errors_are_the_same(tables: Twins, query: str) -> None:
    tables.same(query)


@pytest.mark.parametrize("mode", ["off", "on", "always"])
def test_keys_that_are_null_twice_or_not_there(own_tables: Twins, mode: str) -> None:
    own_tables.execute(
        f"SET strata_columnar.enable_decorrelation = {mode}",
        "INSERT INTO big SELECT 3, 3, 1, 1, 3, 't' FROM generate_series(1, 2000)",
    )
    for condition in ("c = 'c1'", "c = 'c1' AND id IS NULL", "c = 'none'", "c = 'c1' AND id = 900"):
        for value in (AVERAGE, COUNT, f"coalesce({AVERAGE}, -1)"):
            own_tables.same(f"SELECT id, {value} FROM small WHERE {condition}")
            own_tables.same(f"SELECT id FROM small WHERE {condition} AND n < {value}")


def test_the_planner_chooses(own_tables: Twins) -> None:
    own_tables.execute(
        "SET strata_columnar.enable_decorrelation = on",
        "INSERT INTO big SELECT i % 30000, i, i % 7, i % 9, i % 5, 't' FROM generate_series(1, 120000) AS i",
        "INSERT INTO small SELECT i, 'd' || i % 2, i % 9, i FROM generate_series(200, 30000) AS i",
        "VACUUM ANALYZE big",
        "VACUUM ANALYZE small",
    )
    own_tables.heap.execute("CREATE INDEX ON big (d)")
    query = f"SELECT sum(big.q) FROM big, small WHERE small.id = big.d AND {{}} AND q < {AVERAGE}"
    assert reads(own_tables, query.format("c = 'c1'"))["small"] == 2
    # nearly all rows: not worth it
    assert reads(own_tables, query.format("c <> 'c1'"))["small"] == 1
    own_tables.execute("SET strata_columnar.enable_decorrelation = off")
    own_tables.same(query.format("c = 'c1'"))


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
def test_prepared_statements(own_tables: Twins, mode: str) -> None:
    own_tables.execute(
        f"SET plan_cache_mode = {mode}",
        f"PREPARE p (text, integer) AS SELECT id, {COUNT} FROM small WHERE c = $1 AND n < $2 + {COUNT}",
    )
    for arguments in ("'c1', 1", "'c2', 3", "NULL, 1", "'c1', NULL", "'none', 0"):
        own_tables.same(f"EXECUTE p ({arguments})")
    own_tables.execute("ALTER TABLE small ALTER w TYPE numeric", "DELETE FROM small WHERE n = 1")
    own_tables.same("EXECUTE p ('c1', 2)")


# ---- random queries -------------------------------------------------------------------------------------


class Author:
    """Writes queries whose sub-selects can be restricted in one way or another."""

    def __init__(self, seed: int):
        self.rng = random.Random(f"restriction {seed}")

    def pick(self, *choices: str) -> str:
        return self.rng.choice(choices)

    def key(self, outer: str) -> str:
        columns = {"small": ("id", "w", "n"), "mid": ("id", "d", "x"), "big": ("d", "m", "b")}
        return f"{outer}.{self.pick(*columns[outer])}"

    def value(self, outer: str) -> str:
        """A scalar sub-select, correlated with one or two columns of the outer tables."""
        tables = outer.split()
        keys = [f"i.{self.pick('d', 'm', 'b', 'y')} = {self.key(self.pick(*tables))}"]
        if self.rng.random() < 0.3:
            keys.append(f"{self.key(self.pick(*tables))} = i.{self.pick('d', 'm', 'b')}")
        keys.append(
            self.pick("true", "true", "i.y > 20", "i.t <> 't3'", f"{self.key(tables[0])} > 9")
        )
        expression = self.pick(
            "count(*)", "avg(i.q)", "max(i.y)", "coalesce(sum(i.q), 7)", "0.5 * sum(i.q)",
            "count(*) + min(i.y)", "sum(i.q) / count(*)",
        )  # fmt: skip
        source = self.pick("big AS i", "big AS i", "big AS i JOIN mid AS j ON j.id = i.m")
        return f"(SELECT {expression} FROM {source} WHERE {' AND '.join(keys)})"

    def exists(self, outer: str) -> str:
        key = self.key(self.pick(*outer.split()))
        rest = self.pick("", " GROUP BY i.y HAVING count(*) > 1", " HAVING count(*) > 20")
        select = "i.y" if "GROUP" in rest else "count(*)" if rest else "1"
        return f"{self.pick('', 'NOT ')}EXISTS (SELECT {select} FROM big AS i WHERE i.d = {key} AND i.y < 30{rest})"

    def filter(self, table: str) -> str:
        return self.pick(
            *{
                "small": ("small.c = 'c1'", "small.c LIKE 'c1%'", "small.id < 60", "small.n IN (1, 2)", "small.id IN (3, 8, 900)", "small.w > 100", "true", "10 / (small.n + 1) > 2"),
                "mid": ("mid.x < 12", "mid.t = 't3'", "mid.d BETWEEN 20 AND 90", "mid.d IN (SELECT id FROM small WHERE c = 'c1')", "mid.id IN (SELECT w FROM small AS s WHERE s.n = 2)", "EXISTS (SELECT FROM small AS s WHERE s.id = mid.d AND s.n = 1)", "true"),
                "big": ("big.y = 7", "big.q > 12", "big.d IN (SELECT id FROM small WHERE n = 3)", "true"),
            }[table]
        )  # fmt: skip

    def use(self, outer: str) -> str:
        left = self.pick(
            "5", "20", "small.n" if "small" in outer else "9", "mid.x" if "mid" in outer else "3"
        )
        choice = self.rng.randrange(7)
        if choice < 3:
            return f"{left} {self.pick('<', '>', '<>')} {self.value(outer)}"
        if choice == 3:
            return f"({left} < {self.value(outer)} OR {self.exists(outer)})"
        if choice == 4:
            return self.exists(outer)
        if choice == 5:
            return f"coalesce({self.value(outer)}, 3) > {left}"
        return f"{self.value(outer)} IS {self.pick('', 'NOT ')}NULL"

    def query(self) -> str:
        tables, source = self.rng.choice(
            [
                ("small", "small"),
                ("mid", "mid"),
                ("mid small", "mid JOIN small ON small.id = mid.d"),
                ("mid small", "mid JOIN small ON small.w = mid.d AND small.n > 0"),
                ("mid small", "mid LEFT JOIN small ON small.id = mid.d AND small.c = 'c1'"),
                ("mid small", "small LEFT JOIN mid ON small.id = mid.d"),
                ("mid small", "mid FULL JOIN small ON small.id = mid.d"),
                ("big small", "big JOIN small ON small.id = big.d AND big.y < 5"),
                ("big mid small", "(SELECT * FROM big WHERE y < 3) AS big JOIN mid ON mid.id = big.m JOIN small ON small.id = mid.d"),
                ("mid small", "mid, (SELECT * FROM small WHERE c LIKE 'c1%') AS small"),
            ]
        )  # fmt: skip
        conditions = [self.filter(table) for table in tables.split()]
        if "," in source:
            conditions.append("mid.d = small.id")
        shape = self.rng.randrange(6)
        if shape != 1:
            conditions.append(self.use(tables))
        where = " AND ".join(conditions)
        first = self.key(tables.split()[0])
        if shape == 0:
            return f"SELECT {first} AS a, {self.value(tables)} AS b FROM {source} WHERE {where}"
        if shape == 1:
            return f"SELECT {first} AS a, {self.value(tables)} AS b, {self.use(tables)} AS c FROM {source} WHERE {where}"
        if shape == 2:
            return f"SELECT {first}, count(*), sum({self.value(tables)}) FROM {source} WHERE {where} GROUP BY 1"
        if shape == 3:
            return f"SELECT o.id, p.* FROM mid AS o LEFT JOIN (SELECT {first} AS a, {self.value(tables)} AS b FROM {source} WHERE {where}) AS p ON p.a = o.x WHERE o.x < 9"
        if shape == 4:
            return f"SELECT o.id FROM mid AS o WHERE o.x IN (SELECT {first} FROM {source} WHERE {where})"
        return f"SELECT count(*), sum({first}) FROM {source} WHERE {where}"


def test_random_queries(tables: Twins) -> None:
    for seed in range(120):
        query = Author(seed).query()
        expected = tables.heap.run(query)
        for mode in ("off", "always", "on"):
            tables.columnar.execute(f"SET strata_columnar.enable_decorrelation = {mode}")
            difference = outcome_difference(tables.columnar.run(query), expected, False)
            assert not difference, (
                f"seed {seed}, {mode}: {difference}\n{query}\n{tables.plan(query)}"
            )
