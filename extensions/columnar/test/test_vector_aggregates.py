"""Every aggregate computed by batches is what the heap's row by row is: text, type, scale and error.

One table per type: `few` and `many` are group keys, `v` never is NULL, `s` sometimes, `u` always.
All aggregates of the type are asked for in one query, in all ways to group and to filter; the
states that would be sent to a coordinator are compared byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from extensions.columnar.test.twins import Twins, connect_soon, open_twins
from tests.cluster import Node

ROWS = 5000

# sets of aggregates; X stands for the column
ANY = ("count(X)",)
ORDERED = ("min(X)", "max(X)")
SPREAD = (
    "var_pop(X)", "var_samp(X)", "variance(X)", "stddev_pop(X)", "stddev_samp(X)", "stddev(X)",
)  # fmt: skip
NUMBER = (*ANY, *ORDERED, "sum(X)", "avg(X)", *SPREAD)
BITS = ("bit_and(X)", "bit_or(X)", "bit_xor(X)")
REGRESSION = tuple(
    f"{name}(X, id)"
    for name in (
        "corr", "covar_pop", "covar_samp", "regr_avgx", "regr_avgy", "regr_count", "regr_intercept",
        "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy",
    )
)  # fmt: skip

# the same with y and x changed places, and both nullable
REVERSED = ("corr(id, X)", "regr_slope(id, X)", "regr_slope(X, s)", "regr_count(X, s)")


@dataclass(frozen=True)
class Kind:
    """A type, what its values are as an expression of the row's number g, and its aggregates."""

    name: str
    type: str
    value: str
    aggregates: tuple[str, ...]
    exact: bool = True  # the result does not depend on the order of the rows


HASH = "hashint4(g)::bigint"

INTEGERS = (
    Kind("int2", "smallint", f"{HASH} % 32767", (*NUMBER, *BITS)),
    Kind("int4", "integer", HASH, (*NUMBER, *BITS)),
    Kind("int8", "bigint", f"{HASH} * 1000003", (*NUMBER, *BITS)),
    Kind("int8_large", "bigint", "hashint8extended(g, 0)", (*NUMBER, *BITS)),
    Kind("int8_small", "bigint", "g % 3", (*NUMBER, *BITS)),
    Kind("int8_constant", "bigint", "-7", (*NUMBER, *BITS)),
    Kind(
        "int8_end",
        "bigint",
        "CASE g % 2 WHEN 0 THEN 9223372036854775807 ELSE -9223372036854775808 END",
        (*NUMBER, *BITS),
    ),
    Kind("money", "money", f"({HASH} % 100000)::money", (*ANY, *ORDERED, "sum(X)")),
    Kind("bool", "boolean", "g % 7 <> 0", (*ANY, "bool_and(X)", "bool_or(X)", "every(X)")),
    Kind("bool_true", "boolean", "true", (*ANY, "bool_and(X)", "bool_or(X)", "every(X)")),
    Kind("oid", "oid", "hashint4(g)::oid", (*ANY, *ORDERED)),
)

NUMERICS = (
    Kind("numeric_12_2", "numeric(12, 2)", f"{HASH} / 100.0", NUMBER),
    Kind("numeric_18_0", "numeric(18, 0)", f"{HASH} * 10000019", NUMBER),
    Kind("numeric_20_4", "numeric(20, 4)", "hashint8extended(g, 0) / 3000.0", NUMBER),
    Kind("numeric_38_10", "numeric(38, 10)", f"{HASH} * 12345678901234567.0000000001", NUMBER),
    Kind("numeric_end", "numeric(38, 0)", "repeat('9', 38)::numeric * (g % 3 - 1)", NUMBER),
    Kind("numeric_38_positive", "numeric(38, 0)", "repeat('9', 38)::numeric", NUMBER),
    Kind("numeric_60", "numeric(60, 20)", f"{HASH} * 1e28::numeric + g", NUMBER),
    Kind(
        "numeric_scales",
        "numeric",
        f"round({HASH} / 1000000.0, g % 7) + CASE WHEN g % 400 = 0 THEN 1e-9 ELSE 0 END",
        NUMBER,
        exact=False,  # 1.0 and 1.00: the later one is the extreme
    ),
    Kind("numeric_many_scales", "numeric", "round(g / 7.0, g / 200)", NUMBER, exact=False),
    Kind("numeric_zeroes", "numeric", "round(0, g % 4)", NUMBER, exact=False),
    Kind("numeric_wide_scale", "numeric", "g * ('0.' || repeat('3', 900))::numeric", NUMBER),
    Kind(
        "numeric_nan",
        "numeric(12, 2)",
        "CASE WHEN g % 999 = 0 AND g % 5 = 3 THEN 'NaN' ELSE (g / 10.0)::numeric END",
        NUMBER,
    ),
    Kind(
        "numeric_infinite",
        "numeric",
        "CASE WHEN g % 500 < 2 THEN 'Infinity' WHEN g % 1000 = 7 THEN '-Infinity'"
        " WHEN g = 1203 THEN 'NaN' ELSE (g - 2500) * 1.5 END",
        NUMBER,
    ),
    Kind(
        "numeric_torture",
        "numeric",
        "(ARRAY['0', '0.00', '-0.5', '1e-30', '-1e40', '9223372036854775807', '1e16',"
        " '-9223372036854775808', '170141183460469231731687303715884105727', '99999999.99990000',"
        " '170141183460469231731687303715884105728', '1e500', '-1e-500', '10000', '0.0001'])[1 + g % 15]::numeric",
        NUMBER,
        exact=False,
    ),
)

FLOATS = (
    Kind("float4", "real", f"{HASH} / 1000.0", (*NUMBER, *REGRESSION), exact=False),
    Kind(
        "float8",
        "double precision",
        f"{HASH} / 1000.0",
        (*NUMBER, *REGRESSION, *REVERSED),
        exact=False,
    ),
    Kind("float8_halves", "double precision", "(g % 1000) / 2.0", (*ANY, *ORDERED, "sum(X)")),
    Kind(
        "float4_special",
        "real",
        "CASE g % 9 WHEN 1 THEN '-0' WHEN 2 THEN '0' WHEN 3 THEN '1e-45' ELSE '-0' END::float4",
        (*NUMBER, *REGRESSION),
        exact=False,
    ),
    Kind(
        "float8_nan",
        "double precision",
        "CASE WHEN g % 999 = 0 AND g % 5 = 3 THEN 'NaN'::float8 ELSE g END",
        (*NUMBER, *REGRESSION, *REVERSED),
        exact=False,
    ),
    Kind(
        "float8_infinite",
        "double precision",
        "CASE WHEN g % 1500 = 4 THEN 'Infinity' WHEN g = 3502 THEN '-Infinity' ELSE g::float8 END",
        (*NUMBER, *REGRESSION, *REVERSED),
        exact=False,
    ),
    Kind(
        "float8_zeroes",
        "double precision",
        "CASE WHEN hashint4(g) % 2 = 0 THEN '-0' ELSE '0' END::float8",
        (*NUMBER, *REGRESSION),
        exact=False,
    ),
)

TIMES = (
    Kind("date", "date", "date '2000-01-01' + hashint4(g) % 9999", (*ANY, *ORDERED)),
    Kind("time", "time", "time '00:00' + g * interval '17.5 s'", (*ANY, *ORDERED)),
    Kind("timetz", "timetz", "(time '00:00' + g * interval '17 s')::timetz", (*ANY, *ORDERED)),
    Kind(
        "timestamp",
        "timestamp",
        "CASE WHEN g % 700 = 8 THEN '-infinity' ELSE timestamp '2020-01-01' + g * interval '1 h' END",
        (*ANY, *ORDERED),
    ),
    Kind("timestamptz", "timestamptz", "to_timestamp(hashint4(g))", (*ANY, *ORDERED)),
    Kind(
        "interval",
        "interval",
        "g * interval '1 h 0.5 s' + g % 3 * interval '1 day'",
        (*ANY, *ORDERED, "sum(X)", "avg(X)"),
    ),
)

STRINGS = (
    Kind("text", "text", "md5(g::text) || g", (*ANY, *ORDERED)),
    Kind("text_few", "text", "'Value ' || chr(65 + g % 26) || g % 3", (*ANY, *ORDERED)),
    Kind("text_empty", "text", "repeat(' ', g % 2)", (*ANY, *ORDERED)),
    Kind("text_long", "text", "repeat(md5(g::text), 1 + g % 80)", (*ANY, *ORDERED)),
    Kind("text_c", 'text COLLATE "C"', "md5(g::text)", (*ANY, *ORDERED)),
    Kind("text_c_few", 'text COLLATE "C"', "chr(97 - g % 2 * 32) || g % 9", (*ANY, *ORDERED)),
    Kind("text_icu", 'text COLLATE "und-x-icu"', "'ä' || chr(65 + hashint4(g) % 60)", (*ANY, *ORDERED)),
    Kind("text_blind", "text COLLATE blind", "chr(65 + g % 13 + g % 2 * 32)", (*ANY, *ORDERED), exact=False),
    Kind("varchar", "varchar(20)", "left(md5(g::text), g % 11)", (*ANY, *ORDERED)),
    Kind("char", "char(5)", "(g % 1000)::text", (*ANY, *ORDERED)),
    Kind("bpchar", "bpchar", "repeat('b', g % 3) || repeat(' ', g % 5)", (*ANY, *ORDERED), exact=False),
    Kind("bytea", "bytea", "decode(md5(g::text), 'hex')", ANY),
    Kind("inet", "inet", "'10.0.0.0'::inet + hashint4(g) % 99999", (*ANY, *ORDERED)),
    Kind("uuid", "uuid", "md5(g::text)::uuid", ANY),
    Kind("bits", "bit(9)", "(g % 512)::bit(9)", (*ANY, *BITS)),
    Kind("array", "integer[]", "ARRAY[g % 7, g]", (*ANY, *ORDERED)),
)  # fmt: skip

KINDS = (*INTEGERS, *NUMERICS, *FLOATS, *TIMES, *STRINGS)

GROUPINGS = ("", " GROUP BY few", " GROUP BY many", " GROUP BY one", " GROUP BY few, many % 50")

# name, transition and state type of aggregates that show their states, and what they take
STATES = (
    ("numeric_avg", "numeric_avg_accum", "numeric", "numeric_avg"),
    ("numeric", "numeric_accum", "numeric", "numeric"),
    ("int8_avg", "int8_avg_accum", "bigint", "int8_avg"),
    ("int8", "int8_accum", "bigint", "numeric"),
    ("int4", "int4_accum", "integer", "numeric_poly"),
    ("int2", "int2_accum", "smallint", "numeric_poly"),
)


def state_aggregates() -> Iterator[str]:
    """Aggregates whose result is the serialized state; their names are no names of core's."""
    for name, transition, argument, state in STATES:
        yield (
            f"CREATE AGGREGATE state_{name} ({argument}) (SFUNC = {transition}, STYPE = internal,"
            f" FINALFUNC = {state}_serialize, SERIALFUNC = {state}_serialize,"
            f" DESERIALFUNC = {state}_deserialize, COMBINEFUNC = {state}_combine, PARALLEL = SAFE)"
        )


@pytest.fixture(scope="module")
def sides(node: Node) -> Iterator[Twins]:
    with open_twins(node, "vector_aggregates") as made:
        made.execute(
            "CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
            "SET max_parallel_workers_per_gather = 0",
            *state_aggregates(),
        )
        for kind in KINDS:
            fill(made, kind)
        yield made


def fill(twins: Twins, kind: Kind) -> None:
    """Without statistics, nor such that come by themselves: they would tell the planner of small results."""
    twins.execute(
        f"CREATE TABLE t_{kind.name} (id integer, few integer, many bigint, one integer,"
        f" v {kind.type}, s {kind.type}, u {kind.type})"
        " WITH (autovacuum_enabled = off)",
        f"INSERT INTO t_{kind.name} SELECT g, nullif(hashint4(g) % 4, 3), hashint4(-g) % 1500, 1,"
        f" x, CASE WHEN g % 3 = 1 AND g % 1024 < 700 THEN x END, NULL"
        f" FROM (SELECT g, ({kind.value})::{kind.type.split(' COLLATE')[0]} AS x"
        f" FROM generate_series(1, {ROWS}) AS g OFFSET 0) AS made ORDER BY g",
    )


def ask(kind: Kind, grouping: str, where: str = "", limit_to_exact: bool = False) -> Iterator[str]:
    """Queries with all aggregates of the kind over each column."""
    aggregates = kind.aggregates
    if limit_to_exact and not kind.exact:
        aggregates = ANY
    keys = grouping.removeprefix(" GROUP BY ")
    for column in "vsu":
        calls = [call.replace("X", column) for call in aggregates]
        head = f"SELECT {keys + ', ' if keys else ''}count(*)"
        yield f"{head}, {', '.join(calls)} FROM t_{kind.name}{where}{grouping}"
        filtered = [f"{call} FILTER (WHERE id % 3 = 1)" for call in calls]
        yield f"{head}, {', '.join(filtered)} FROM t_{kind.name}{where}{grouping}"


@contextmanager
def settings(twins: Twins, **values: str) -> Iterator[None]:
    try:
        for name, value in values.items():
            twins.execute(f"SET {name.replace('__', '.')} = '{value}'")
        yield
    finally:
        for name in values:
            twins.execute(f"RESET {name.replace('__', '.')}")
        twins.execute("SET max_parallel_workers_per_gather = 0")


def all_same_by_batch(twins: Twins, queries: Iterator[str]) -> None:
    for query in queries:
        plan = twins.plan(query)
        assert "ColumnarAggregate" in plan, f"{plan}\n{query}"
        twins.same(query)


def each(kinds: tuple[Kind, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.name)


@pytest.mark.sample(2)
@each(KINDS)
def test_aggregates_equal_those_of_heap(sides: Twins, kind: Kind) -> None:
    for grouping in GROUPINGS:
        all_same_by_batch(sides, ask(kind, grouping))


@pytest.mark.sample(4)
@each(KINDS)
def test_aggregates_of_selected_rows_equal_those_of_heap(sides: Twins, kind: Kind) -> None:
    for grouping in GROUPINGS[:3]:
        all_same_by_batch(sides, ask(kind, grouping, " WHERE id % 10 <> 3"))


@pytest.mark.sample(4)
@each(KINDS)
def test_aggregates_of_expressions_equal_those_of_heap(sides: Twins, kind: Kind) -> None:
    """Arguments that come as datums, not as the arrays of a block, and such that are computed."""
    made = ["coalesce(s, v)", "CASE WHEN id % 5 <> 0 THEN v END", "nullif(v, s)"]
    if not kind.type.endswith("[]"):
        made += ["(ARRAY[s, v])[2]", "(ARRAY[s, v])[1]"]
    for grouping in GROUPINGS[:3]:
        for expression in made:
            calls = ", ".join(call.replace("X", expression) for call in kind.aggregates)
            query = f"SELECT {calls} FROM t_{kind.name}{grouping}"
            all_same_by_batch(sides, iter([query]))


@pytest.mark.sample(4)
@each(KINDS)
def test_no_rows_give_what_they_give_on_heap(sides: Twins, kind: Kind) -> None:
    for grouping in GROUPINGS[:2]:
        all_same_by_batch(sides, ask(kind, grouping, " WHERE id < 0"))
        all_same_by_batch(sides, ask(kind, grouping, " WHERE id + 0 < 0"))


@pytest.mark.sample(4)
@each(KINDS)
def test_vectors_off_changes_nothing(sides: Twins, kind: Kind) -> None:
    with settings(sides, strata_columnar__enable_vector="off"):
        for query in ask(kind, " GROUP BY few"):
            assert "ColumnarAggregate" not in sides.plan(query)
            sides.same(query)


@pytest.mark.sample(4)
@each(KINDS)
def test_parallel_aggregation_equals_that_of_heap(sides: Twins, kind: Kind) -> None:
    parallel = {
        "max_parallel_workers_per_gather": "2",
        "parallel_setup_cost": "0",
        "parallel_tuple_cost": "0",
        "min_parallel_table_scan_size": "0",
    }
    with settings(sides, **parallel):
        for grouping in GROUPINGS[:3]:
            sides.all_same(ask(kind, grouping, limit_to_exact=True))


@pytest.mark.sample(4)
@each(tuple(kind for kind in KINDS if kind.exact))
def test_states_that_pass_the_memory_equal_those_of_heap(sides: Twins, kind: Kind) -> None:
    with settings(sides, work_mem="64kB", hash_mem_multiplier="1", enable_sort="off"):
        all_same_by_batch(sides, ask(kind, " GROUP BY many"))
        # here the planner may prefer another plan
        sides.all_same(ask(kind, " GROUP BY id"))


@pytest.mark.parametrize("state", STATES, ids=lambda state: state[0])
def test_states_are_the_bytes_of_core(sides: Twins, state: tuple[str, str, str, str]) -> None:
    """What numeric.c would serialize: counts, digits, display scales."""
    name, _, argument, _ = state
    kinds = NUMERICS if argument == "numeric" else INTEGERS
    for kind in kinds:
        if argument not in (kind.type, "numeric"):
            continue
        for grouping in GROUPINGS[:3]:
            columns = ", ".join(f"state_{name}({column})" for column in "vsu")
            columns += f", state_{name}(v) FILTER (WHERE id > {ROWS})"
            query = f"SELECT count(*), {columns} FROM t_{kind.name}{grouping}"
            all_same_by_batch(sides, iter([query]))


CASES = (
    "CASE WHEN {} THEN v * (1 - s) ELSE 0 END",
    "CASE WHEN {} THEN v ELSE 0.0 END",
    "CASE WHEN {} THEN v ELSE v * s END",
    "CASE WHEN {} THEN v * s WHEN id % 7 = 1 THEN v ELSE 0 END",
    "CASE WHEN {} THEN s * 0.5 END",
    "CASE WHEN {} THEN CASE WHEN id % 7 = 1 THEN s * v ELSE 0 END ELSE 0.0 END",
    "CASE WHEN {} THEN v * v * v * v ELSE 0 END",
    "CASE WHEN {} THEN 1.50 ELSE 0 END",
    "CASE WHEN few = 1 THEN 1.5 WHEN {} THEN 0.125 ELSE 0 END",
    "coalesce(CASE WHEN {} THEN s * v END, 0)",
    "CASE WHEN {} THEN v * s ELSE 0 END * 1.5",
    "CASE WHEN {} THEN v * s ELSE 0 END - CASE WHEN id % 3 = 1 THEN v * s ELSE 0 END",
    "CASE WHEN {} THEN v ELSE 'NaN' END",
)


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", CASES)
def test_sums_of_several_scales_show_that_of_core(sides: Twins, case: str) -> None:
    """The largest display scale in each group, and how many values had it."""
    for condition in ("id > 0", "id % 2 = 0", "s < 0", "few = 2", "id < 0", "id = 2500"):
        value = case.format(condition)
        calls = (
            f"sum({value}), avg({value}), stddev({value}), count({value}),"
            f" state_numeric_avg({value}), state_numeric({value})"
        )
        for grouping in (*GROUPINGS[:3], " GROUP BY id"):
            all_same_by_batch(sides, iter([f"SELECT {calls} FROM t_numeric_12_2{grouping}"]))
            sides.same(f"SELECT {calls} FROM t_numeric_12_2 WHERE id % 5 = 0{grouping}")
        # min, max and keys show the scale of one of several equal values
        sides.same(
            f"SELECT min({value}), max({value}), array_agg({value} ORDER BY id) FROM t_numeric_12_2"
        )
        with settings(sides, max_parallel_workers_per_gather="2", parallel_setup_cost="0",
                      parallel_tuple_cost="0", min_parallel_table_scan_size="0"):  # fmt: skip
            sides.same(f"SELECT few, sum({value}), avg({value}) FROM t_numeric_12_2 GROUP BY few")


def test_arrays_of_averages_are_the_bytes_of_core(sides: Twins) -> None:
    sides.execute(
        "CREATE AGGREGATE state_average (integer) (SFUNC = int4_avg_accum, STYPE = int8[],"
        " COMBINEFUNC = int4_avg_combine, INITCOND = '{0,0}')",
        "CREATE AGGREGATE state_floats (float8) (SFUNC = float8_accum, STYPE = float8[],"
        " COMBINEFUNC = float8_combine, INITCOND = '{0,0,0}')",
    )
    for grouping in GROUPINGS[:3]:
        for name, table in (("state_average", "t_int4"), ("state_floats", "t_float8")):
            calls = ", ".join(f"array_send({name}({column}))" for column in "vsu")
            all_same_by_batch(sides, iter([f"SELECT {calls} FROM {table}{grouping}"]))


def test_another_initial_value_is_another_aggregate(sides: Twins) -> None:
    sides.execute(
        'CREATE AGGREGATE count_on ("any") (SFUNC = int8inc_any, STYPE = int8,'
        " COMBINEFUNC = int8pl, INITCOND = '1000')",
        "CREATE AGGREGATE sum_on (integer) (SFUNC = int4_sum, STYPE = int8,"
        " COMBINEFUNC = int8pl, INITCOND = '-5')",
    )
    plan = sides.plan("SELECT sum_on(v) FROM t_int4")
    assert "Evaluated by Row: PARTIAL sum_on(v)" in plan
    # an initial value counts once per state: heap's plan for one process has one state more
    (row,) = sides.columnar.execute("SELECT sum_on(v) - sum(v), count_on(s) - count(s) FROM t_int4")
    assert [row[0] % 5, row[1] % 1000] == [0, 0]


def test_a_strict_transition_function_of_sql_skips_nulls(sides: Twins) -> None:
    """Without a kernel: states by value and by reference, from the first value and from one given."""
    sides.execute(
        "CREATE FUNCTION last_of(text, text) RETURNS text IMMUTABLE STRICT PARALLEL SAFE LANGUAGE sql"
        " AS 'SELECT $1 || right($2, 1)'",
        "CREATE AGGREGATE last_letters (text) (SFUNC = last_of, STYPE = text, COMBINEFUNC = textcat)",
        "CREATE FUNCTION null_on(integer, integer) RETURNS integer IMMUTABLE LANGUAGE sql"
        " AS 'SELECT CASE WHEN $2 % 1000 = 0 THEN NULL WHEN $1 IS NULL THEN $2 ELSE $1 + 1 END'",
        "CREATE AGGREGATE nulls (integer) (SFUNC = null_on, STYPE = integer, COMBINEFUNC = int4pl)",
    )
    for grouping in GROUPINGS[:3]:
        calls = ", ".join(f"last_letters({column}), nulls(id)" for column in "vsu")
        all_same_by_batch(sides, iter([f"SELECT {calls} FROM t_text_c{grouping}"]))


def test_aggregates_of_extensions_run_row_by_row(sides: Twins) -> None:
    """postgresql-hll keeps its states in the aggregate's context and looks at the call."""
    for grouping in GROUPINGS[:2]:
        for call in (
            "hll_add_agg(hll_hash_bigint(v))",
            "hll_add_agg(hll_hash_bigint(s), 12)",
            "hll_union_agg(hll_add(hll_empty(), hll_hash_bigint(v)))",
            "hll_add_agg(hll_hash_bigint(u))",
        ):
            all_same_by_batch(sides, iter([f"SELECT count(*), {call} FROM t_int8{grouping}"]))


def test_overflow_is_the_error_of_core(twins: Twins) -> None:
    twins.execute(
        "CREATE TABLE t (id integer, f real, d double precision, m money)",
        "INSERT INTO t SELECT g, CASE WHEN g IN (1500, 2500) THEN 3e38 ELSE 1 END,"
        " CASE WHEN g IN (1500, 2500) THEN 1.7e308 ELSE 1 END,"
        " CASE WHEN g IN (1500, 2500) THEN '92233720368547757.07'::money ELSE '0.01' END"
        " FROM generate_series(1, 3000) AS g",
        "SET max_parallel_workers_per_gather = 0",
    )
    for call in (
        "sum(f)", "sum(d)", "avg(d)", "avg(f)", "stddev(d)", "sum(m)", "sum(m * -1)", "corr(d, d)",
        "regr_sxy(id, d)", "sum(d) FILTER (WHERE id <> 2500)", "max(d)", "sum(m) FILTER (WHERE id <> 1500)",
    ):  # fmt: skip
        for grouping in ("", " GROUP BY id % 2", " GROUP BY id % 500"):
            query = f"SELECT {call} FROM t{grouping}"
            assert "ColumnarAggregate" in twins.plan(query)
            twins.same(query)


def test_sums_of_large_integers_pass_64_bits(twins: Twins) -> None:
    """Peers' wrong result: a sum in 64 bits."""
    twins.execute(
        "CREATE TABLE t (k integer, i integer, b bigint, n numeric(19, 1))",
        "INSERT INTO t SELECT g % 3, 2147483647, 9223372036854775807 - g % 2, 922337203685477580.7"
        " FROM generate_series(1, 20000) AS g",
    )
    for grouping in ("", " GROUP BY k"):
        query = f"SELECT sum(i), avg(i), sum(b), avg(b), stddev(b), sum(n), avg(n) FROM t{grouping}"
        assert "ColumnarAggregate" in twins.plan(query)
        twins.same(query)


@pytest.mark.parametrize("rows", [1, 3, 63, 64, 65, 1023, 1024, 1025, 2048])
def test_every_number_of_rows(twins: Twins, rows: int) -> None:
    twins.execute(
        "CREATE TABLE t (id integer, k integer, b bigint, n numeric(9, 3), f float8, c text)",
        f"INSERT INTO t SELECT g, g % 3, nullif(g, 5), g * 1.001, nullif(g, 64) / 3.0, 'c' || g % 9"
        f" FROM generate_series(1, {rows}) AS g",
        "SET max_parallel_workers_per_gather = 0",
    )
    calls = (
        "count(*), count(b), sum(b), avg(b), min(b), max(b), sum(n), max(n), sum(f), avg(f), max(f), min(f),"
        " stddev(n), max(c), bit_xor(b), sum(n * n), min(n * n), sum(1), max(b) FILTER (WHERE id % 64 = 1)"
    )
    for rest in ("", " GROUP BY k", " GROUP BY id", " WHERE id % 5 <> 1", " WHERE id = 1"):
        twins.same(f"SELECT {calls} FROM t{rest}")


def test_a_rescan_begins_anew(sides: Twins) -> None:
    for call in ("sum(v)", "sum(s)", "stddev(v)", "max(v)", "count(s)", "avg(v)"):
        for table in ("t_int4", "t_numeric_torture", "t_float8", "t_numeric_12_2"):
            sides.same(
                f"SELECT k, (SELECT {call} FROM {table} WHERE few = k) FROM generate_series(-1, 3) AS k"
            )


def test_many_groups_reach_every_array(twins: Twins) -> None:
    """Arrays grow while rows come, also those that begin late."""
    twins.execute(
        "CREATE TABLE t (id integer, b bigint, n numeric, c text)",
        "INSERT INTO t SELECT g, CASE WHEN g > 30000 THEN 9e18 ELSE g END,"
        " CASE WHEN g > 35000 THEN round(g / 3.0, g % 3) WHEN g > 39000 THEN 'NaN' ELSE g END,"
        " CASE WHEN g > 20000 THEN 'c' || g END FROM generate_series(1, 40000) AS g",
        "SET max_parallel_workers_per_gather = 0",
    )
    calls = (
        "sum(b), stddev(b), sum(n), stddev(n), max(n), max(c), min(b), count(c), string_agg(c, ',')"
    )
    for key in ("id", "id % 20000", "id % 100"):
        twins.same(f"SELECT {key}, {calls} FROM t GROUP BY {key}")


def test_it_survives_an_error_in_a_transition_function(sides: Twins) -> None:
    sides.execute(
        "CREATE FUNCTION fails_at(bigint, integer) RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS"
        " $$BEGIN IF $2 > 100 THEN RAISE EXCEPTION 'too large: %', $2; END IF; RETURN $2; END$$",
        "CREATE AGGREGATE failing (integer) (SFUNC = fails_at, STYPE = bigint, COMBINEFUNC = int8larger)",
    )
    sides.fails("SELECT failing(id) FROM t_int4", "P0001")
    sides.same("SELECT sum(v), count(*) FROM t_int4")


def test_the_owner_of_an_aggregate_needs_its_functions(node: Node, sides: Twins) -> None:
    """As core's node, the columnar one checks what the aggregate's owner may call."""
    sides.execute(
        "CREATE FUNCTION guarded(bigint, integer) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT $1 + $2'",
        "CREATE AGGREGATE guarded_sum (integer) (SFUNC = guarded, STYPE = bigint, COMBINEFUNC = int8pl,"
        " INITCOND = '0')",
    )
    with connect_soon(node) as connection:
        connection.execute(
            "DROP ROLE IF EXISTS owner_of_an_aggregate; CREATE ROLE owner_of_an_aggregate"
        )
    sides.execute(
        "GRANT CREATE, USAGE ON SCHEMA {schema} TO owner_of_an_aggregate",
        "ALTER AGGREGATE guarded_sum (integer) OWNER TO owner_of_an_aggregate",
        "REVOKE EXECUTE ON FUNCTION guarded (bigint, integer) FROM PUBLIC",
    )
    sides.fails("SELECT guarded_sum(id) FROM t_int4", "42501")
    sides.execute(
        "DROP AGGREGATE guarded_sum (integer)",
        "REVOKE ALL ON SCHEMA {schema} FROM owner_of_an_aggregate",
    )
    with connect_soon(node) as connection:
        connection.execute("DROP ROLE owner_of_an_aggregate")
