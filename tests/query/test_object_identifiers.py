"""regclass and its like name objects by OIDs, which differ between nodes: what looks at them does it on one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.assert_same import run
from tests.cluster import Cluster
from tests.pair import Pair, open_pair

ODD = '"Odd ""s.x"'

# type -> a user's object, one that every node has from its birth
TYPES = {
    "regclass": (f'{ODD}."T ü"', "pg_class"),
    "regcollation": (f'{ODD}."C o"', '"C"'),
    "regconfig": (f'{ODD}."F f"', "english"),
    "regdictionary": (f'{ODD}."D d"', "simple"),
    "regnamespace": (ODD, "pg_catalog"),
    "regoper": (f"{ODD}.=%=", "|/"),
    "regoperator": (f"{ODD}.=%=(integer,integer)", "+(integer,integer)"),
    "regproc": (f'{ODD}."f f"', "now"),
    "regprocedure": (f'{ODD}."f f"(integer,integer)', "now()"),
    "regrole": ('"odd ""role"', "pg_monitor"),
    "regtype": (f'{ODD}."E e"', "integer"),
}
OBJECTS = f"""
DROP SCHEMA IF EXISTS {ODD} CASCADE;
DROP ROLE IF EXISTS "odd ""role";
CREATE ROLE "odd ""role";
CREATE SCHEMA {ODD};
CREATE TABLE {ODD}."T ü" (a integer);
CREATE COLLATION {ODD}."C o" (provider = libc, locale = 'C');
CREATE TEXT SEARCH DICTIONARY {ODD}."D d" (template = simple);
CREATE TEXT SEARCH CONFIGURATION {ODD}."F f" (copy = simple);
CREATE FUNCTION {ODD}."f f"(integer, integer) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 = $2';
CREATE OPERATOR {ODD}.=%= (function = {ODD}."f f", leftarg = integer, rightarg = integer);
CREATE TYPE {ODD}."E e" AS ENUM ('a');
"""


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    for number, worker in enumerate(cluster.workers):  # no OID is the same on two nodes
        for _ in range(10 + number):
            worker.execute("CREATE TABLE uses_oids (a integer); DROP TABLE uses_oids")
    with open_pair(cluster, "test_identifiers") as made:
        made.execute(OBJECTS)
        made.ours.execute("SELECT strata.create_reference_table(%s)", (TYPES["regclass"][0],))
        for kind, names in TYPES.items():
            made.execute(
                f"CREATE DOMAIN {kind}_domain AS {kind}; CREATE TYPE {kind}_row AS (n integer, o {kind});"
                f"CREATE TABLE {kind}s (k integer, s text, o {kind}, d {kind}_domain, a {kind}[], r {kind}_row)"
            )
            made.distribute(f"{kind}s", "k")
            for n, name in enumerate(map(quote, names * 3)):
                made.execute(
                    f"INSERT INTO {kind}s SELECT {n}, {name}, o, o, ARRAY[o, NULL], ROW({n}, o)::{kind}_row"
                    f" FROM (SELECT {name}::{kind} AS o) AS s"
                )
        made.execute("CREATE TABLE only_here (a integer); CREATE VIEW view_here AS SELECT 1")
        yield made
        made.execute(f'DROP SCHEMA {ODD} CASCADE; DROP ROLE "odd ""role"')


QUERIES = (
    "SELECT * FROM {0}s",
    "SELECT o, d, a, r, count(*) FROM {0}s GROUP BY o, d, a, r",
    "SELECT k, s::{0} FROM {0}s",
    "SELECT count(*) FROM {0}s WHERE o = {1}::{0}",
    "SELECT count(*) FROM {0}s WHERE o IN ({1}, {2})",
    "SELECT count(*) FROM {0}s WHERE d = {1}::{0} OR o IS NOT DISTINCT FROM {2}::{0}",
    "SELECT count(*) FROM {0}s WHERE a = ARRAY[{1}, NULL]::{0}[]",
    "SELECT count(*) FROM {0}s WHERE (r).o = {1}::{0} AND r::text <> ''",
    "SELECT count(*) FROM {0}s WHERE NOT o = ANY (a)",
    "SELECT k FROM {0}s WHERE o::oid < 10000",
    "SELECT k FROM {0}s WHERE (k + 950)::oid::{0}::oid = 950",
    "SELECT count(*) FROM {0}s WHERE a::oid[] @> ARRAY[{1}::{0}::oid]",
    "SELECT o::text, a::text, r::text, count(*) FROM {0}s GROUP BY 1, 2, 3",
    "SELECT k, format('%s %s', o, d) FROM {0}s GROUP BY 1, 2",
    "SELECT k, concat(a, r), to_json(o)::text, ROW(o, 1)::text FROM {0}s GROUP BY 1, 2, 3, 4",
    "SELECT k, json_agg(o)::text, count(o), array_agg(d) FROM {0}s GROUP BY k",
    "SELECT k, array_to_string(a, ','), xmlelement(name x, o)::text FROM {0}s GROUP BY 1, 2, 3",
    "SELECT count(*) FROM {0}s WHERE s::{0} = o",
    "SELECT count(*) FROM {0}s WHERE ('{{\"' || replace(s, '\"', '\\\"') || '\"}}')::{0}[] = ARRAY[o]",
    "SELECT k, greatest(o, {1}), least(d, {2}) FROM {0}s GROUP BY 1, 2, 3",
    "SELECT k, max(a) FROM {0}s GROUP BY k",
    "SELECT k, o FROM {0}s ORDER BY o, k LIMIT 3",
    "SELECT o FROM (SELECT o FROM {0}s ORDER BY o LIMIT 2) AS s",
    "SELECT k, row_number() OVER (PARTITION BY k / 3 ORDER BY o, k) FROM {0}s",
    "SELECT k, first_value(o) OVER (PARTITION BY k ORDER BY a) FROM {0}s",
    "SELECT count(*) FROM {0}s AS x JOIN {0}s AS y USING (k, o)",
    "SELECT count(*) FROM {0}s WHERE o IN (SELECT o FROM {0}s WHERE k = 1)",
    "SELECT k, CASE WHEN k > 1 THEN o ELSE {1} END FROM {0}s GROUP BY 1, 2",
    "UPDATE {0}s SET o = {2}, d = {2}, a = ARRAY[{2}]::{0}[], r = ROW(7, {2})::{0}_row WHERE k = 0 RETURNING *",
    "UPDATE {0}s SET o = CASE WHEN k > 1 THEN o ELSE {1} END RETURNING *",
    "SELECT * FROM {0}s WHERE k < 3",
)


@pytest.mark.parametrize("search_path", ["test_identifiers", f"{ODD}, test_identifiers"], ids=["far", "near"])  # fmt: skip
@pytest.mark.parametrize("kind", TYPES)
def test_what_looks_at_a_name_does_it_here(pair: Pair, kind: str, search_path: str) -> None:
    mine, everybodys = map(quote, TYPES[kind])
    with pair.transaction():
        pair.execute(f"SET LOCAL search_path = {search_path}")
        for query in QUERIES:
            pair.execute("SAVEPOINT before")
            pair.same(query.format(kind, mine, everybodys))
            pair.execute("ROLLBACK TO before" if query.startswith("SELECT") else "RELEASE before")


def test_every_such_type_of_postgresql_is_known(pair: Pair) -> None:
    """None of them can be a key, nor a type made of one; whoever adds one to PostgreSQL shall see it here."""
    kinds = pair.rows(
        "SELECT format_type(oid, NULL) FROM pg_type WHERE typtype = 'b' AND typcategory <> 'A' AND"
        " (typname ~ '^reg' OR typname = 'aclitem') AND typnamespace = 'pg_catalog'::regnamespace"
    )
    assert {kind for (kind,) in kinds} == {*TYPES, "aclitem"}
    pair.ours.execute("CREATE TYPE ranged AS RANGE (subtype = regclass)")
    for (kind,) in [*kinds, ("ranged",), ("regtype_row",), ("regrole_domain",), ("regoper[]",)]:
        pair.ours.execute(f"CREATE TABLE keyed (o {kind})")
        made = run(pair.ours, "SELECT strata.create_distributed_table('keyed', 'o')")
        # some have no hash function at all
        assert made.sqlstate in ("0A000", "42704"), f"{kind}: {made}"
        pair.ours.execute("DROP TABLE keyed")


@pytest.mark.parametrize("name", ["only_here", "view_here"])
def test_an_object_of_the_coordinator_is_named_there(pair: Pair, name: str) -> None:
    pair.same(f"SELECT k, CASE WHEN k < 3 THEN '{name}'::regclass END FROM regclasss")
    pair.same(f"SELECT k FROM regclasss WHERE CASE WHEN k > 3 THEN o ELSE '{name}' END IS NULL")
    pair.same(f"SELECT max(k) FROM regclasss GROUP BY CASE WHEN k < 3 THEN '{name}'::regclass END")
    refused = run(pair.ours, f"UPDATE regclasss SET o = '{name}'")
    assert refused.sqlstate == "42P01"  # where it would be stored
    assert name in refused.message


@pytest.mark.parametrize("change", [
    "UPDATE {0}s SET s = 'x' WHERE o = 'pg_class'::regclass",
    "DELETE FROM {0}s WHERE o::text = 'pg_class'",
    "UPDATE {0}s SET s = format('%s', o)",
    "UPDATE {0}s SET a = a || o",
])  # fmt: skip
def test_a_change_that_looks_at_a_name_is_made_here(pair: Pair, change: str) -> None:
    with pair.transaction():
        pair.same(change.format("regclass"))
        pair.same("SELECT * FROM regclasss")


def test_text_is_searched_on_the_workers(pair: Pair) -> None:
    """A configuration in a function's arguments is used, not looked at."""
    query = "SELECT count(*) FROM regconfigs WHERE to_tsvector('english', s) @@ to_tsquery('english', 'x')"
    assert "to_tsvector" in pair.remote_sql(query)
    pair.all_same([query, "SELECT k, to_tsvector(o, 'the cats') FROM regconfigs GROUP BY 1, 2",
                   "SELECT k, ts_lexize(o, 'the') FROM regdictionarys GROUP BY 1, 2"])  # fmt: skip
