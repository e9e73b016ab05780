"""Partial aggregates of a worker by itself.

All of it runs on a plain server without a coordinator, in a database of its own (conftest.py).  What a partial
aggregate has to return is told by PostgreSQL: by the serialization functions of the original, by
its own parallel plans, and by states written out here byte by byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import psycopg
import pytest

from tests.assert_same import multiset_difference, run
from tests.cluster import Cluster, Node
from tests.installation import server_major
from tests.pair import open_pair
from tests.query.test_aggregates import COLUMNS, call, column_name
from worker.test.alone import DATABASE, OWNER, ROLE, value

# Aggregates with a combine function that cannot have a partial, and why.
WITHOUT_PARTIAL = {
    "max(anyenum)": "CREATE AGGREGATE takes no state of type anyenum",
    "min(anyenum)": "CREATE AGGREGATE takes no state of type anyenum",
}
if server_major() >= 18:
    WITHOUT_PARTIAL |= {
        "max(record)": "CREATE AGGREGATE takes no state of type record",
        "min(record)": "CREATE AGGREGATE takes no state of type record",
    }


# Of one day and two hours.  Since 17: count, time, days, months, how many of each infinity.
INTERVAL_STATE = (
    "\\x" + struct.pack(">qqiiqq", 2, 7_200_000_000, 1, 0, 0, 0).hex()
    if server_major() >= 17
    else "1 day 02:00:00"
)


@pytest.fixture(scope="module")
def filled(node: Node) -> Iterator[psycopg.Connection]:
    """A session beside a table with one column for every type that an aggregate takes."""
    with node.connect(DATABASE) as connection:
        columns = ", ".join(f"{column_name(t)} {t}" for t in COLUMNS)
        values = ", ".join(f"CASE WHEN g % 11 <> 0 THEN {value} END" for value in COLUMNS.values())
        connection.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
        connection.execute(f"CREATE TABLE many (id integer PRIMARY KEY, {columns})")
        connection.execute(
            f"INSERT INTO many SELECT g, {values} FROM generate_series(1, 600) AS g; ANALYZE many"
        )
        yield connection


def aggregates(connection: psycopg.Connection, where: str = "true") -> list[dict]:
    """The aggregates with a combine function, as the catalog describes them."""
    with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        return cursor.execute(
            "SELECT a.aggfnoid::regprocedure::text AS signature, a.aggfnoid::regproc::text AS name,"
            " p.proname AS bare, n.nspname AS schema, p.pronargs AS nargs, p.proargtypes::text AS args,"
            " array(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) AS t) AS types,"
            " a.aggtransfn::text AS sfunc, a.aggtranstype::regtype::text AS stype,"
            " a.aggserialfn::text AS serialfn, a.aggcombinefn::text AS combinefn,"
            " CASE WHEN a.aggfinalfn <> 0 THEN a.aggfinalfn::text END AS finalfn,"
            " a.agginitval AS initval, p.proparallel::text AS parallel"
            " FROM pg_aggregate AS a JOIN pg_proc AS p ON p.oid = a.aggfnoid"
            " JOIN pg_namespace AS n ON n.oid = p.pronamespace"
            f" WHERE a.aggcombinefn <> 0 AND n.nspname <> 'strata_partial' AND ({where}) ORDER BY 1"
        ).fetchall()


def partial(aggregate: dict) -> str:
    """The name under which README promises the partial."""
    if aggregate["schema"] == "pg_catalog":
        return f'strata_partial."{aggregate["bare"]}"'
    return f'strata_partial."{aggregate["schema"]}.{aggregate["bare"]}"'


def arguments(aggregate: dict) -> str:
    expression = call(aggregate["name"], aggregate["types"])
    return expression[expression.index("(") :]


# ---- which there are ----------------------------------------------------------------------------


def test_every_aggregate_with_a_combine_function_has_a_partial_or_a_reason(
    filled: psycopg.Connection,
) -> None:
    missing = set()
    for aggregate in aggregates(filled):
        rows = filled.execute(
            "SELECT p.prorettype::regtype::text, a.aggtransfn::text, p.proparallel::text"
            " FROM pg_proc AS p JOIN pg_aggregate AS a ON a.aggfnoid = p.oid"
            " WHERE p.pronamespace = 'strata_partial'::regnamespace AND p.proargtypes::text = %s"
            " AND format('strata_partial.\"%%s\"', p.proname) = %s",
            (aggregate["args"], partial(aggregate)),
        ).fetchall()
        if not rows:
            missing.add(aggregate["signature"])
            continue
        result = "bytea" if aggregate["stype"] == "internal" else aggregate["stype"]
        assert rows == [(result, aggregate["sfunc"], aggregate["parallel"])], aggregate["signature"]
    assert missing == set(WITHOUT_PARTIAL)


def test_there_is_nothing_else_in_the_schema_of_partials(filled: psycopg.Connection) -> None:
    count = value(
        filled,
        "SELECT count(*) FROM pg_proc WHERE pronamespace = 'strata_partial'::regnamespace"
        " AND prokind = 'a'",
    )
    assert count == len(aggregates(filled)) - len(WITHOUT_PARTIAL)


# ---- what they return ---------------------------------------------------------------------------


def test_internal_states_are_what_the_serialization_functions_say(
    filled: psycopg.Connection,
) -> None:
    problems = []
    internal = aggregates(filled, "a.aggtranstype = 'internal'::regtype")
    assert len(internal) >= 30
    for aggregate in internal:
        with filled.transaction(force_rollback=True):
            filled.execute(
                f"CREATE AGGREGATE public.core_state ({', '.join(aggregate['types'])})"
                f" (SFUNC = {aggregate['sfunc']}, STYPE = internal,"
                f" FINALFUNC = {aggregate['serialfn']})"
            )
            for rest in ("", " WHERE false", " WHERE id % 11 = 0", " WHERE id = 7",
                         " GROUP BY id % 5 ORDER BY id % 5"):  # fmt: skip
                source = f"{arguments(aggregate)} FROM many{rest}"
                core = filled.execute(f"SELECT public.core_state{source}").fetchall()
                ours = filled.execute(f"SELECT {partial(aggregate)}{source}").fetchall()
                if ours != core:
                    problems.append((aggregate["signature"], rest))
                assert all(isinstance(state, bytes | None) for (state,) in ours)
    assert not problems


def test_states_of_parallel_plans_are_those_of_serial_ones(filled: psycopg.Connection) -> None:
    """Core combines, serializes and deserializes the states of a parallel plan's workers."""
    compared = 0
    for aggregate in aggregates(
        filled,
        "a.aggtranstype = 'internal'::regtype AND p.proparallel = 's'"
        " AND a.aggtransfn::regproc::text !~ 'hll'"
        " AND p.proname NOT IN ('array_agg', 'string_agg')",  # in the order of the rows
    ):
        query = f"SELECT {partial(aggregate)}{arguments(aggregate)} FROM many"
        serial = value(filled, query)
        with filled.transaction(force_rollback=True):
            filled.execute(
                "SET LOCAL parallel_setup_cost = 0; SET LOCAL parallel_tuple_cost = 0;"
                "SET LOCAL min_parallel_table_scan_size = 0; SET LOCAL parallel_leader_participation = off"
            )
            plan = filled.execute(f"EXPLAIN {query}").fetchall()
            assert any("Partial Aggregate" in line for (line,) in plan), aggregate["signature"]
            assert value(filled, query) == serial, aggregate["signature"]
        compared += 1
    assert compared >= 25


def test_states_of_parts_combine_to_the_result_of_the_whole(filled: psycopg.Connection) -> None:
    """For states of ordinary types SQL itself can do what a coordinator does."""
    problems = []
    for aggregate in aggregates(filled, "a.aggtranstype <> 'internal'::regtype"):
        if aggregate["signature"] in WITHOUT_PARTIAL or aggregate["bare"] == "any_value":
            continue
        options = [f"SFUNC = {aggregate['combinefn']}", f"STYPE = {aggregate['stype']}"]
        if aggregate["finalfn"]:
            options.append(f"FINALFUNC = {aggregate['finalfn']}")
        if aggregate["initval"] is not None:
            options.append(f"INITCOND = '{aggregate['initval']}'")
        part = f"SELECT {partial(aggregate)}{arguments(aggregate)} AS state FROM many"
        with filled.transaction(force_rollback=True):
            filled.execute(
                f"CREATE AGGREGATE public.merged ({aggregate['stype']}) ({', '.join(options)})"
            )
            merged = run(
                filled,
                f"SELECT public.merged(state) FROM ({part} GROUP BY id % 4 UNION ALL {part}"
                f" WHERE false UNION ALL {part} WHERE id % 11 = 0 AND false) AS parts",
            )
            whole = run(filled, f"SELECT {aggregate['name']}{arguments(aggregate)} FROM many")
        assert whole.rows, aggregate["signature"]
        assert merged.rows, f"{aggregate['signature']}: {merged}"
        if multiset_difference(merged.rows, whole.rows, whole.types):
            problems.append((aggregate["signature"], merged.rows, whole.rows))
    assert not problems


def number(weight: int, digits: list[int], scale: int = 0, negative: bool = False) -> bytes:
    """A numeric inside a state: so many digits of base 10 000, the first worth 10 000 ** weight."""
    sign = 0x4000 if negative else 0
    head = struct.pack("!iiii", len(digits), weight, sign, scale)
    return head + struct.pack(f"!{len(digits)}h", *digits)


def count(n: int) -> bytes:
    return struct.pack("!q", n)


def specials(scale: int, of_scale: int, nan: int = 0, plus: int = 0, minus: int = 0) -> bytes:
    """The end of a numeric state: largest scale, values that have it, NaN, infinities."""
    return struct.pack("!iqqqq", scale, of_scale, nan, plus, minus)


ODD_NUMERICS = "('NaN'::numeric), (1.50), ('Infinity'), (NULL), ('-Infinity'), ('NaN')"


@pytest.mark.parametrize(
    ("expression", "values", "state"),
    [
        # count, sum
        ("sum(v)", "(1::bigint), (2), (NULL), (3)", count(3) + number(0, [6])),
        ("avg(v)", "(10000::bigint), (20001)", count(2) + number(1, [3, 1])),
        ("avg(v)", "(-7::bigint)", count(1) + number(0, [7], negative=True)),
        # beyond 64 bits: 2 * (2^63 - 1) = 18446744073709551614
        ("sum(v)", "(9223372036854775807), (9223372036854775807)",
         count(2) + number(4, [1844, 6744, 737, 955, 1614])),
        ("sum(v)", "(NULL::bigint), (NULL)", count(0) + number(0, [])),
        # count, sum, sum of squares
        ("stddev(v)", "(1::integer), (2), (3)", count(3) + number(0, [6]) + number(0, [14])),
        ("variance(v)", "(-1::smallint), (NULL)",
         count(1) + number(0, [1], negative=True) + number(0, [1])),
        # count, sum, scales and special values
        ("sum(v)", "(1.5::numeric), (2.25), (0.25)",
         count(3) + number(0, [4], 2) + specials(2, 2)),
        ("avg(v)", ODD_NUMERICS, count(1) + number(0, [1, 5000], 2) + specials(2, 1, 2, 1, 1)),
        ("sum(v)", "('Infinity'::numeric), ('Infinity')",
         count(0) + number(0, []) + specials(0, 0, 0, 2, 0)),
        # count, sum, sum of squares, scales and special values
        ("var_pop(v)", "(1.5::numeric), (2.5)",
         count(2) + number(0, [4], 1) + number(0, [8, 5000], 2) + specials(1, 2)),
        ("stddev(v)", "(2::bigint), (3)",
         count(2) + number(0, [5]) + number(0, [13]) + specials(0, 2)),
    ],
)  # fmt: skip
def test_states_are_the_bytes_one_expects(
    session: psycopg.Connection, expression: str, values: str, state: bytes
) -> None:
    query = f"SELECT strata_partial.{expression} FROM (VALUES {values}) AS t (v)"
    assert value(session, query) == state


@pytest.mark.parametrize(
    ("expression", "values", "state"),
    [
        ("count(*)", "(1), (NULL), (2)", "3"),
        ("count(v)", "(1), (NULL), (2)", "2"),
        ("sum(v)", "(1), (NULL), (2)", "3"),
        ("avg(v)", "(1), (NULL), (2)", "{2,3}"),
        ("max(v)", "(1), (NULL), (2)", "2"),
        ("bool_and(v > 1)", "(1), (2)", "f"),
        # count, sum, sum of the squared distances from the mean
        ("avg(v)", "(1::float8), (2), (3)", "{3,6,2}"),
        ("stddev(v)", "(1::real), (3)", "{2,4,2}"),
        ("avg(v)", "('NaN'::float8), (1)", "{2,NaN,NaN}"),
        ("avg(v)", "('Infinity'::float8), (1)", "{2,Infinity,NaN}"),
        ("sum(v)", "('Infinity'::float8), ('-Infinity')", "NaN"),
        # count, then sum and squares of x, of y, and of the products
        ("corr(2 * v, v)", "(1::float8), (2), (3)", "{3,6,2,12,8,4}"),
        ("sum(v)", "('1 day'::interval), ('2 hours')", INTERVAL_STATE),
    ],
)
def test_states_of_ordinary_types_are_the_values_one_expects(
    session: psycopg.Connection, expression: str, values: str, state: str
) -> None:
    query = f"SELECT (strata_partial.{expression})::text FROM (VALUES {values}) AS t (v)"
    expected = {"f": "false"}.get(state, state)
    assert value(session, query) == expected


@pytest.mark.parametrize(
    ("expression", "state"),
    [
        ("count(*)", "0"),
        ("count(v)", "0"),
        ("sum(v::numeric)", None),
        ("sum(v::bigint)", None),
        ("sum(v::integer)", None),
        ("max(v)", None),
        ("avg(v::integer)", "{0,0}"),
        ("avg(v::float8)", "{0,0,0}"),
    ],
)
def test_no_rows_give_the_state_nobody_has_touched(
    session: psycopg.Connection, expression: str, state: str | None
) -> None:
    query = f"SELECT (strata_partial.{expression})::text FROM (VALUES (1)) AS t (v) WHERE false"
    assert value(session, query) == state
    assert session.execute(f"{query} GROUP BY v").fetchall() == []


def test_partials_obey_distinct_filter_and_order(session: psycopg.Connection) -> None:
    query = (
        "SELECT strata_partial.sum(DISTINCT v), strata_partial.count(*) FILTER (WHERE v > 1),"
        " strata_partial.avg(v ORDER BY v DESC) FROM (VALUES (1), (2), (2), (3)) AS t (v)"
    )
    assert session.execute(query).fetchall() == [(6, 3, [4, 8])]


def test_odd_numerics_on_different_workers_give_the_result_of_one_server(
    cluster: Cluster,
) -> None:
    """The states travel, and the coordinator combines them: NaN here, an infinity there."""
    kinds = {
        "nan": "'NaN'", "plus": "'Infinity'", "minus": "'-Infinity'", "null": "NULL",
        "small": "id + 0.125", "large": "id * 1e40", "negative": "-id::numeric",
    }  # fmt: skip
    with open_pair(cluster, "test_partial_aggregates") as pair:
        pair.execute("CREATE TABLE odd (id integer, kind text, v numeric, f float8)")
        pair.distribute("odd", "id")
        for kind, expression in kinds.items():
            pair.execute(
                f"INSERT INTO odd SELECT id, '{kind}', {expression}, ({expression})::numeric::float8"
                " FROM generate_series(1, 12) AS id"
            )
        wanted = (
            "count(v), sum(v), avg(v), max(v), min(v), variance(v), stddev_pop(v), avg(f), sum(f)"
        )
        assert "strata_partial" in pair.remote_sql(f"SELECT {wanted} FROM odd")
        for condition in (
            "true",
            "false",
            *(f"kind = '{kind}'" for kind in kinds),
            *(f"kind IN ('small', 'large', '{kind}')" for kind in kinds),
            "kind IN ('plus', 'minus')",
            # one worker contributes the special value only
            "kind = 'nan' AND id = 1 OR kind = 'small' AND id > 6",
            "kind = 'plus' AND id = 1 OR kind = 'minus' AND id = 2 OR kind = 'null'",
        ):
            pair.same(f"SELECT {wanted} FROM odd WHERE {condition}")
            pair.same(f"SELECT kind, {wanted} FROM odd WHERE {condition} GROUP BY kind")


# ---- users' aggregates ----------------------------------------------------------------------------

USERS_AGGREGATE = (
    "CREATE AGGREGATE public.multiply (numeric) (SFUNC = numeric_mul, STYPE = numeric,"
    " INITCOND = '1', COMBINEFUNC = numeric_mul, PARALLEL = SAFE)"
)
MULTIPLY = 'SELECT strata_partial."public.multiply"(v) FROM (VALUES (2::numeric), (3)) AS t (v)'


def test_create_partials_finds_an_aggregate_that_appeared_unseen(
    session: psycopg.Connection,
) -> None:
    assert value(session, "SELECT strata_worker.create_partials()") == 0
    session.execute("ALTER EVENT TRIGGER strata_aggregate_created DISABLE")
    session.execute(USERS_AGGREGATE)
    with pytest.raises(psycopg.errors.UndefinedFunction), session.transaction():
        session.execute(MULTIPLY)
    assert value(session, "SELECT strata_worker.create_partials()") == 1
    assert value(session, MULTIPLY) == 6
    assert value(session, "SELECT strata_worker.create_partials()") == 0


def test_a_partial_comes_changes_and_goes_with_its_aggregate(session: psycopg.Connection) -> None:
    session.execute(USERS_AGGREGATE)
    assert value(session, MULTIPLY) == 6
    session.execute(
        USERS_AGGREGATE.replace("CREATE", "CREATE OR REPLACE").replace("numeric_mul", "numeric_add")
    )
    assert value(session, MULTIPLY) == 6  # 1 + 2 + 3
    session.execute(USERS_AGGREGATE.replace("CREATE", "CREATE OR REPLACE").replace("'1'", "'7'"))
    assert value(session, MULTIPLY) == 42
    session.execute("DROP AGGREGATE public.multiply (numeric)")
    with pytest.raises(psycopg.errors.UndefinedFunction), session.transaction():
        session.execute(MULTIPLY)


def test_an_aggregate_that_cannot_be_combined_gets_no_partial(
    session: psycopg.Connection,
) -> None:
    query = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'strata_partial'::regnamespace"
    before = value(session, query)
    session.execute("CREATE AGGREGATE public.last (text) (SFUNC = textcat, STYPE = text)")
    assert value(session, query) == before


def test_an_aggregates_names_may_need_quotes(session: psycopg.Connection) -> None:
    session.execute(
        'CREATE SCHEMA "Odd ""one"; CREATE AGGREGATE "Odd ""one"."Sum, of" (integer)'
        " (SFUNC = int4pl, STYPE = integer, COMBINEFUNC = int4pl, INITCOND = '0')"
    )
    query = 'SELECT strata_partial."Odd ""one.Sum, of"(v) FROM (VALUES (2), (3)) AS t (v)'
    assert value(session, query) == 5


def test_a_users_aggregate_can_be_dropped_with_its_schema(session: psycopg.Connection) -> None:
    session.execute("CREATE SCHEMA short")
    session.execute(USERS_AGGREGATE.replace("public.", "short."))
    query = "SELECT count(*) FROM pg_proc WHERE proname = 'short.multiply'"
    assert value(session, query) == 1
    session.execute("DROP SCHEMA short CASCADE")
    assert value(session, query) == 0
    assert value(session, "SELECT count(*) FROM pg_extension WHERE extname = 'strata_worker'") == 1


# ---- privileges -------------------------------------------------------------------------------------


def test_the_event_triggers_function_does_nothing_when_it_is_called_by_hand(
    guest: psycopg.Connection,
) -> None:
    for event in ("sql_drop", "ddl_command_end"):
        with pytest.raises(psycopg.Error):
            guest.execute("SELECT strata_partial.follow_aggregates(%s)", (event,))


def test_a_partial_may_be_called_by_whom_the_aggregate_may_be_called(
    node: Node, session: psycopg.Connection, guest: psycopg.Connection
) -> None:
    session.execute(USERS_AGGREGATE)
    session.execute(
        "REVOKE ALL ON FUNCTION public.multiply (numeric) FROM PUBLIC;"
        f"GRANT EXECUTE ON FUNCTION public.multiply (numeric) TO {OWNER};"
        'DROP AGGREGATE strata_partial."public.multiply" (numeric);'
        "SELECT strata_worker.create_partials()"
    )
    query = "SELECT has_function_privilege(%s, 'strata_partial.\"public.multiply\"(numeric)', 'EXECUTE')"
    assert value(session, query, (OWNER,)) is True
    assert value(session, query, (ROLE,)) is False


def test_creating_a_partial_runs_no_code_of_the_aggregates_owner(
    mallory: psycopg.Connection,
) -> None:
    """The functions that create partials run as the superuser; the check of a domain must not."""
    mallory.execute(
        "CREATE FUNCTION peek (integer) RETURNS boolean LANGUAGE plpgsql AS"
        " 'BEGIN INSERT INTO mallory.seen VALUES (current_user); RETURN true; END';"
        "CREATE DOMAIN state AS integer CHECK (peek(VALUE));"
        "CREATE FUNCTION add (state, integer) RETURNS state LANGUAGE sql AS 'SELECT $1';"
        "CREATE FUNCTION merge (state, state) RETURNS state LANGUAGE sql AS 'SELECT $1';"
        "TRUNCATE seen;"
        "CREATE AGGREGATE trap (integer) (SFUNC = add, STYPE = state, COMBINEFUNC = merge, INITCOND = '0');"
        "SELECT strata_worker.create_partials()"
    )
    others = mallory.execute("SELECT DISTINCT who FROM seen WHERE who <> current_user").fetchall()
    assert others == [], "a user's function ran as somebody else"
