"""Every aggregate that PostgreSQL can combine is computed on the workers, with the same result."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

# one column of every type that some aggregate takes, in the order of the values below
COLUMNS = {
    "bigint": "(g * 7919 % 1000)::bigint",
    "integer": "g * 31 % 257",
    "smallint": "(g % 50)::smallint",
    "numeric": "g * 1.25",
    "double precision": "g / 4.0::float8",
    "real": "(g % 64)::real / 4",
    "money": "(g % 90)::money",
    "interval": "g * INTERVAL '1 hour'",
    "boolean": "g % 7 <> 0",
    "bit": "(g % 2)::bit",
    "text": "'t' || g % 40",
    "character": "chr(65 + g % 20)",
    "date": "DATE '2024-01-01' + g % 300",
    "time without time zone": "TIME '00:00' + g * INTERVAL '7 minutes'",
    "time with time zone": "TIMETZ '00:00+02' + g * INTERVAL '7 minutes'",
    "timestamp without time zone": "TIMESTAMP '2024-01-01' + g * INTERVAL '5 hours'",
    "timestamp with time zone": "TIMESTAMPTZ '2024-01-01+00' + g * INTERVAL '5 hours'",
    "inet": "('10.0.' || g % 9 || '.' || g % 200)::inet",
    "tid": "('(' || g % 20 || ',1)')::tid",
    "oid": "(g % 500)::oid",
    "xid8": "(g % 500)::text::xid8",
    "pg_lsn": "('0/' || to_hex(g * 100))::pg_lsn",
    "integer[]": "ARRAY[g % 9, g % 4]",
    "bytea": "decode(md5(g::text), 'hex')",
    "int4range": "int4range(g % 50, g % 50 + 60)",
    "int4multirange": "int4multirange(int4range(g % 50, g % 50 + 60))",
    "mood": "(ARRAY['sad', 'ok', 'happy'])[g % 3 + 1]::mood",
    "hll": "hll_add(hll_empty(), hll_hash_integer(g))",
    "hll_hashval": "hll_hash_integer(g)",
}
POLYMORPHIC = {
    "any": "integer",
    "anyelement": "integer",
    "anyarray": "integer[]",
    "anyenum": "mood",
    "anyrange": "int4range",
    "anymultirange": "int4multirange",
}

# Combinable since 16, with a result that depends on the order of rows: arguments that all types
# have, and what of the result does not depend on it.
SORTED = "(SELECT array_agg(x ORDER BY x) FROM {} AS x)"
ORDER_DEPENDENT = {
    ("any_value", "anyelement"): ("c_integer", "{} = ANY (array_agg(c_integer))"),
    ("array_agg", "anynonarray"): ("c_integer", SORTED.format("unnest({})")),
    ("array_agg", "anyarray"): (
        "coalesce(c_integer_array, '{0, 0}')",
        SORTED.format("unnest({})"),
    ),
    ("string_agg", "text"): ("c_text, ', '", SORTED.format("regexp_split_to_table({}, ', ')")),
    ("string_agg", "bytea"): (
        "c_bytea, '\\x3b3b3b3b'",
        SORTED.format("regexp_split_to_table(encode({}, 'hex'), '3b3b3b3b')"),
    ),
}

ROWS = 500


def column_name(type_: str) -> str:
    return "c_" + "".join(c if c.isalnum() else "_" for c in type_.replace("[]", "_array"))


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_aggregates") as made:
        made.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
        columns = ", ".join(f"{column_name(t)} {t}" for t in COLUMNS)
        made.execute(f"CREATE TABLE many (id integer PRIMARY KEY, grp integer, {columns})")
        made.distribute("many", "id")
        values = ", ".join(f"CASE WHEN g % 11 <> 0 THEN {value} END" for value in COLUMNS.values())
        made.execute(
            f"INSERT INTO many SELECT g, g % 6, {values} FROM generate_series(1, {ROWS}) AS g"
        )
        made.execute("CREATE TABLE empty_one (id integer PRIMARY KEY, v numeric)")
        made.distribute("empty_one", "id")
        yield made


def combinable_aggregates(pair: Pair) -> list[tuple[str, list[str]]]:
    """Name and argument types of every plain aggregate with a combine function and a state that has a type."""
    rows = pair.theirs.execute(
        "SELECT p.oid::regproc::text, array(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) AS t)"
        " FROM pg_aggregate a JOIN pg_proc p ON p.oid = a.aggfnoid"
        " WHERE a.aggcombinefn <> 0 AND a.aggkind = 'n' AND p.prorettype <> 'internal'::regtype"
        " AND a.aggtranstype <> 'record'::regtype"
        " AND p.pronamespace IN ('pg_catalog'::regnamespace, 'public'::regnamespace)"
        " ORDER BY 1, 2"
    ).fetchall()
    return [(name, list(types)) for name, types in rows]


def argument(type_: str, position: int) -> str:
    type_ = POLYMORPHIC.get(type_, type_)
    type_ = {'"any"': "integer"}.get(type_, type_)
    if position > 0 and type_ in ("integer", "bigint"):
        return f"{5 + position}"  # settings of a sketch, not data
    return column_name(type_)


def call(name: str, types: list[str]) -> str:
    if name.startswith("regr_") or name in ("corr", "covar_pop", "covar_samp"):
        return f"{name}(c_double_precision, c_real)"
    if not types:
        return f"{name}(*)"
    if known := ORDER_DEPENDENT.get((name.removeprefix("pg_catalog."), types[0])):
        return f"{name}({known[0]})"
    if name.split(".")[-1] == "hll_add_agg":
        defaults = ["c_hll_hashval", "11", "5", "-1", "1"]
        return f"{name}({', '.join(defaults[: len(types)])})"
    return f"{name}({', '.join(argument(t, n) for n, t in enumerate(types))})"


def stable_call(name: str, types: list[str]) -> str:
    """The call, or what of its result does not depend on the order of rows."""
    known = ORDER_DEPENDENT.get((name.removeprefix("pg_catalog."), (types or [""])[0]))
    return known[1].replace("{}", call(name, types)) if known else call(name, types)


def test_every_combinable_aggregate_is_computed_on_the_workers_and_equal(pair: Pair) -> None:
    aggregates = combinable_aggregates(pair)
    assert len(aggregates) > 100
    problems = []
    for name, types in aggregates:
        expression = stable_call(name, types)
        if name.split(".")[-1].startswith("hll_"):
            expression = f"hll_cardinality({expression})"
        for query in (
            f"SELECT {expression} FROM many",
            f"SELECT grp, {expression} FROM many GROUP BY grp",
            f"SELECT {expression} FROM many WHERE false",
            f"SELECT id, {expression} FROM many WHERE id < 9 GROUP BY id",
        ):
            try:
                pair.same(query)
                # states of a user's own type stay here: their bytes would hold OIDs
                if "GROUP BY id" not in query and "false" not in query and "anyenum" not in types:
                    assert "strata_partial" in pair.remote_sql(query), "not partial"
            except Exception as error:
                problems.append(f"{query}: {type(error).__name__} {error}"[:400])
    assert not problems, f"{len(problems)} problems\n" + "\n".join(problems)


def test_the_arguments_above_cover_every_combinable_aggregate(pair: Pair) -> None:
    for name, types in combinable_aggregates(pair):
        rows = pair.theirs.execute(
            f"SELECT ({call(name, types)})::text IS NULL FROM many"
        ).fetchall()
        assert rows == [(False,)], name


@pytest.mark.since(18)
def test_the_least_and_the_greatest_row_are_found(pair: Pair) -> None:
    pair.same("SELECT max(ROW(grp, id)), min(ROW(c_text, id)) FROM many")
    pair.same("SELECT grp, max(ROW(c_integer, id)), min(ROW(c_date, id)) FROM many GROUP BY grp")


def cases(queries: dict[str, str]):
    return pytest.mark.parametrize("query", list(queries.values()), ids=list(queries))


@cases(
    {
        "array_agg": "SELECT array_agg(c_integer ORDER BY id) FROM many",
        "array_agg of arrays": "SELECT array_agg(ARRAY[id, grp] ORDER BY id) FROM many",
        "string_agg": "SELECT grp, string_agg(c_text, ', ' ORDER BY id DESC) FROM many GROUP BY grp",
        "string_agg of bytea": "SELECT string_agg(c_bytea, '\\x00' ORDER BY id) FROM many",
        "json_agg": "SELECT json_agg(c_text ORDER BY id), jsonb_agg(c_integer ORDER BY id) FROM many",
        "json_object_agg": "SELECT jsonb_object_agg(id, c_text) FROM many",
        "xmlagg": "SELECT xmlagg(xmlelement(name a, id) ORDER BY id) FROM many",
        "range_agg": "SELECT range_agg(c_int4range), range_intersect_agg(c_int4range) FROM many",
        "mode": "SELECT grp, mode() WITHIN GROUP (ORDER BY c_integer % 5, c_integer) FROM many GROUP BY grp",
        "percentile_disc": "SELECT percentile_disc(0.25) WITHIN GROUP (ORDER BY c_numeric) FROM many",
        "percentile_cont": "SELECT grp, percentile_cont(ARRAY[0.1, 0.5, 0.9]) WITHIN GROUP (ORDER BY"
        " c_double_precision) FROM many GROUP BY grp",
        "hypothetical": "SELECT rank(100) WITHIN GROUP (ORDER BY c_integer), cume_dist(100) WITHIN GROUP"
        " (ORDER BY c_integer) FROM many",
        "ordered-set by the key": "SELECT id, percentile_disc(0.5) WITHIN GROUP (ORDER BY c_integer) FROM many"
        " GROUP BY id",
        "distinct": "SELECT count(DISTINCT c_text), sum(DISTINCT c_smallint), avg(DISTINCT c_smallint) FROM many",
        "distinct by group": "SELECT grp, count(DISTINCT c_text), count(*) FROM many GROUP BY grp",
        "distinct of two columns": "SELECT count(DISTINCT (c_text, grp)) FROM many",
        "distinct ordered": "SELECT string_agg(DISTINCT c_text, ',' ORDER BY c_text) FROM many",
        "filter": "SELECT count(*) FILTER (WHERE grp = 1), sum(c_numeric) FILTER (WHERE c_boolean) FROM many",
        "nested in expressions": "SELECT grp + 1, sum(c_integer) / nullif(count(*), 0) + max(id) FROM many"
        " GROUP BY grp",
        "of expressions": "SELECT sum(c_integer * 2 + grp), max(upper(c_text)), min(-id) FROM many",
        "the same twice": "SELECT sum(id), sum(id) + 1, avg(id), avg(id) FROM many",
        "group by expression": "SELECT id % 3, c_text || grp, count(*) FROM many GROUP BY 1, 2",
        "group by nothing but having": "SELECT 1 FROM many HAVING sum(id) > 0",
        "group by NULL values": "SELECT c_boolean, count(*), count(c_text) FROM many GROUP BY c_boolean",
        "group by primary key": "SELECT id, c_text, count(*) FROM many GROUP BY id",
        "grouping sets": "SELECT grp, c_boolean, count(*), grouping(grp, c_boolean) FROM many GROUP BY GROUPING"
        " SETS ((grp, c_boolean), (grp), ())",
        "rollup": "SELECT grp, c_smallint % 3, sum(c_integer) FROM many GROUP BY ROLLUP (grp, c_smallint % 3)",
        "cube": "SELECT grp, c_boolean, avg(c_numeric), count(DISTINCT c_text) FROM many GROUP BY"
        " CUBE (grp, c_boolean)",
        "rollup with the key": "SELECT id, grp, count(*) FROM many WHERE id < 20 GROUP BY ROLLUP (id, grp)",
        "grouping sets having": "SELECT grp, count(*) FROM many GROUP BY ROLLUP (grp) HAVING count(*) > 83",
        "empty grouping set of nothing": "SELECT grp, count(*) FROM many WHERE false GROUP BY ROLLUP (grp)",
        "several empty sets": "SELECT count(*), sum(id) FROM many GROUP BY GROUPING SETS ((), ())",
        "empty table": "SELECT count(*), sum(v), max(v), avg(v), array_agg(v) FROM empty_one",
        "empty table grouped": "SELECT v, count(*) FROM empty_one GROUP BY v",
        "all NULL": "SELECT sum(c_integer), count(c_integer) FROM many WHERE c_integer IS NULL",
        "of an aggregate": "SELECT max(n), sum(s) FROM (SELECT grp, count(*) AS n, sum(id) AS s FROM many GROUP BY"
        " grp) AS q",
        "with order and limit": "SELECT c_text, count(*), sum(id) FROM many GROUP BY c_text ORDER BY 2 DESC, 1 NULLS"
        " FIRST LIMIT 5",
        "min and max of an index": "SELECT min(id), max(id) FROM many",
        "whole rows": "SELECT count(m), count(DISTINCT m.grp) FROM many AS m",
        "in a scalar subquery": "SELECT (SELECT max(c_numeric) FROM many) - avg(c_numeric) FROM many",
        "outer aggregate": "SELECT grp, (SELECT count(*) FROM many AS i WHERE i.id = max(o.id)) FROM many AS o"
        " GROUP BY grp",
        "numeric special values": "SELECT sum(v), avg(v), max(v) FROM (SELECT CASE WHEN id = 3 THEN 'NaN' ELSE"
        " c_numeric END AS v FROM many) AS q",
    }
)  # fmt: skip
def test_aggregates(pair: Pair, query: str) -> None:
    pair.same(query)


def test_an_overflow_is_the_same_error_whether_on_a_worker_or_here(pair: Pair) -> None:
    pair.all_same(
        [
            "SELECT sum(9223372036854775807)::bigint FROM many",
            "SELECT sum(c_money * 1e15) FROM many",
            "SELECT bit_and(c_integer::bit(3) || B'1') FROM many",
        ]
    )


def test_user_defined_aggregates_run_and_may_be_split(pair: Pair) -> None:
    pair.execute(
        "CREATE FUNCTION add_product (numeric, integer) RETURNS numeric LANGUAGE sql IMMUTABLE"
        " STRICT AS 'SELECT $1 + $2 * $2';"
        "CREATE AGGREGATE sum_of_squares (integer) (SFUNC = add_product, STYPE = numeric, INITCOND = '0',"
        " COMBINEFUNC = numeric_add, PARALLEL = SAFE);"
        "CREATE AGGREGATE last_one (text) (SFUNC = textcat, STYPE = text)"
    )
    pair.same("SELECT sum_of_squares(c_integer) FROM many")
    assert "strata_partial" in pair.remote_sql("SELECT sum_of_squares(c_integer) FROM many")
    pair.same("SELECT grp, sum_of_squares(c_integer) FROM many GROUP BY grp")
    pair.same("SELECT last_one(c_text ORDER BY id) FROM many")


def test_aggregates_whose_names_look_alike_are_not_taken_for_each_other(pair: Pair) -> None:
    """ "a.b".c and a."b.c", and one that has got the other's name by ALTER."""
    pair.execute('CREATE SCHEMA a; CREATE SCHEMA "a.b"; CREATE SCHEMA "a%2Eb"')
    query = 'SELECT a."b.c"(id), "a.b".c(id), "a%2Eb".c(id), a.second_name(id) FROM many'
    try:
        for name, transition in (
            ('a."b.c"', "int4pl"),
            ('"a.b".c', "int4larger"),
            ('"a%2Eb".c', "int4smaller"),
            ("a.first_name", "int4larger"),
            ("a.second_name", "int4pl"),
        ):
            pair.execute(
                f"CREATE AGGREGATE {name} (integer) (SFUNC = {transition}, STYPE = integer,"
                f" COMBINEFUNC = {transition}, PARALLEL = SAFE)"
            )
        pair.same(query)
        assert pair.remote_sql(query).count("strata_partial") == 4

        pair.execute(
            "ALTER AGGREGATE a.first_name (integer) RENAME TO third_name;"
            "ALTER ROUTINE a.second_name (integer) RENAME TO first_name;"
            "ALTER AGGREGATE a.third_name (integer) RENAME TO second_name"
        )
        pair.same("SELECT a.first_name(id) FROM many")
        pair.same(query)
        pair.execute(
            'ALTER SCHEMA "a.b" RENAME TO other; ALTER SCHEMA a RENAME TO "a.b"; ALTER SCHEMA other RENAME TO a;'
            'ALTER AGGREGATE a.c (integer) RENAME TO "b.c"; ALTER AGGREGATE "a.b"."b.c" (integer) RENAME TO c;'
            'ALTER AGGREGATE "a.b".second_name (integer) SET SCHEMA a'
        )
        pair.same(query)
        assert pair.remote_sql(query).count("strata_partial") == 4
    finally:
        pair.execute('DROP SCHEMA IF EXISTS a, "a.b", "a%2Eb", other CASCADE')


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM many WHERE id = -7 GROUP BY id",
        "SELECT id, count(*) FROM many WHERE id = -7 GROUP BY id",
        "SELECT count(*) FROM many WHERE grp = -7 GROUP BY grp",
        "SELECT count(*), grp FROM many WHERE grp = 3 GROUP BY grp, grp + 0",
        "SELECT DISTINCT grp FROM many WHERE grp = -7",
        "SELECT DISTINCT grp FROM many WHERE grp = 3",
        "SELECT * FROM (SELECT grp, id, count(*) FROM many GROUP BY id, grp) AS c WHERE c.id = grp AND grp = 3",
    ],
)
def test_groups_of_what_has_one_value(pair: Pair, query: str) -> None:
    """Such a column is no reason to group, but without rows there is no group."""
    pair.same(query)


def test_groups_by_columns_that_tell_of_each_other_are_made_on_the_workers(pair: Pair) -> None:
    """Core expects as many groups as there are rows, for it multiplies."""
    pair.execute("CREATE TABLE told (id integer, a integer, b integer, c integer)")
    pair.distribute("told", "id")
    pair.execute(
        "INSERT INTO told SELECT g, g % 100, g % 100 + 7, g % 100 / 2 FROM generate_series(1, 20000) AS g"
    )
    pair.execute("ANALYZE told")
    for query in (
        "SELECT a, b, c, count(*), sum(id) FROM told GROUP BY a, b, c",
        "SELECT a, b, c, count(DISTINCT id % 9) FROM told GROUP BY a, b, c",
        "SELECT a, b, c, sum(id) FROM told GROUP BY GROUPING SETS ((a, b, c), (b, c), ())",
    ):
        pair.same(query)
        plan = pair.ours.execute(f"EXPLAIN (VERBOSE) {query}").fetchall()
        assert any("GROUP BY" in line for (line,) in plan), plan
    pair.execute("DROP TABLE told")
