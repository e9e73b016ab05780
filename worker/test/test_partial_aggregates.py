"""The extension of a worker by itself: partial aggregates, whose worker it is, what it holds.

All of it runs on a plain server without a coordinator, in a database of its own.  What a partial
aggregate has to return is told by PostgreSQL: by the serialization functions of the original, by
its own parallel plans, and by states written out here byte by byte.

More than 800 lines, because all of them use that one database and its few kinds of sessions.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator

import psycopg
import pytest

from tests.assert_same import multiset_difference, run
from tests.cluster import Cluster, Node
from tests.installation import server_major
from tests.pair import open_pair
from tests.query.test_aggregates import COLUMNS, call, column_name

DATABASE = "strata_worker_alone"
ROLE = "strata_worker_guest"
OWNER = "strata_worker_owner"

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
def node(cluster: Cluster) -> Iterator[Node]:
    """The plain server, with strata_worker in a database of its own."""
    cluster.create_role(ROLE)
    cluster.create_role(OWNER)
    cluster.plain.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
    cluster.plain.execute(f"CREATE DATABASE {DATABASE}")
    with cluster.plain.connect(DATABASE) as connection:
        connection.execute("CREATE EXTENSION strata_worker CASCADE")
    yield cluster.plain
    cluster.plain.execute(f"DROP DATABASE {DATABASE} (FORCE)")
    for other in cluster.nodes:
        other.execute(f"DROP OWNED BY {ROLE}, {OWNER}")


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


@pytest.fixture
def session(node: Node) -> Iterator[psycopg.Connection]:
    """A superuser's transaction that is rolled back."""
    with node.connect(DATABASE) as connection:
        with connection.transaction(force_rollback=True):
            yield connection


@pytest.fixture
def guest(node: Node) -> Iterator[psycopg.Connection]:
    with node.connect(DATABASE, user=ROLE) as connection:
        yield connection


def value(connection: psycopg.Connection, query: str, params=None):
    ((only,),) = connection.execute(query, params).fetchall()
    return only


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


# ---- whose worker it is -----------------------------------------------------------------------------

OURS = uuid.UUID("00000000-0000-0000-0000-0000000000aa")
FOREIGN = uuid.UUID("00000000-0000-0000-0000-0000000000bb")


HOLDER = uuid.UUID("00000000-0000-0000-0000-0000000000cc")
OTHER_HOLDER = uuid.UUID("00000000-0000-0000-0000-0000000000dd")


def call_coordinator(connection: psycopg.Connection, function: str, *arguments) -> None:
    if len(arguments) == 2:
        arguments += (HOLDER,)
    marks = ", ".join(["%s"] * len(arguments))
    connection.execute(f"SELECT strata_worker.{function}({marks})", arguments)


def refused(connection: psycopg.Connection, function: str, *arguments) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught, connection.transaction():
        call_coordinator(connection, function, *arguments)
    assert caught.value.sqlstate == "55000"
    return caught.value


def test_a_server_without_a_cluster_serves_no_coordinator(session: psycopg.Connection) -> None:
    assert "add_worker" in refused(session, "check_coordinator", OURS, 1).diag.message_hint


def test_only_the_coordinator_of_its_cluster_is_served(session: psycopg.Connection) -> None:
    call_coordinator(session, "attach_coordinator", OURS, 3)
    call_coordinator(session, "check_coordinator", OURS, 3)
    error = refused(session, "check_coordinator", FOREIGN, 3)
    assert str(OURS) in error.diag.message_detail
    assert str(FOREIGN) in error.diag.message_detail
    refused(session, "attach_coordinator", FOREIGN, 9)
    query = "SELECT id, epoch FROM strata_worker.cluster"
    assert session.execute(query).fetchall() == [(OURS, 3)]


def test_an_older_coordinator_is_refused_and_a_younger_one_is_not(
    session: psycopg.Connection,
) -> None:
    call_coordinator(session, "attach_coordinator", OURS, 3)
    # it has just taken over, and nobody has told this server
    assert "not heard" in refused(session, "check_coordinator", OURS, 4).diag.message_primary
    call_coordinator(session, "attach_coordinator", OURS, 5)
    call_coordinator(session, "attach_coordinator", OURS, 5)
    refused(session, "check_coordinator", OURS, 5)  # sessions of epoch 3 may still run
    call_coordinator(session, "end_older_sessions", 5)
    call_coordinator(session, "check_coordinator", OURS, 5)
    error = refused(session, "check_coordinator", OURS, 4)
    assert "5" in error.diag.message_detail
    assert error.diag.message_hint
    refused(session, "attach_coordinator", OURS, 4)
    assert session.execute("SELECT epoch FROM strata_worker.cluster").fetchall() == [(5,)]


def test_of_two_coordinators_with_one_epoch_the_first_is_served(
    session: psycopg.Connection,
) -> None:
    call_coordinator(session, "attach_coordinator", OURS, 3, HOLDER)
    for function in ("check_coordinator", "attach_coordinator"):
        error = refused(session, function, OURS, 3, OTHER_HOLDER)
        assert "another coordinator" in error.diag.message_primary
    call_coordinator(session, "attach_coordinator", OURS, 4, OTHER_HOLDER)


def test_sessions_of_an_older_epoch_are_ended_and_no_others(node: Node) -> None:
    with (
        node.connect(DATABASE) as administrator,
        node.connect(DATABASE) as old,
        node.connect(DATABASE) as bystander,
        node.connect(DATABASE) as new,
    ):
        call_coordinator(administrator, "attach_coordinator", OURS, 1)
        try:
            call_coordinator(old, "check_coordinator", OURS, 1)
            old.execute("BEGIN")
            call_coordinator(administrator, "attach_coordinator", OURS, 2, OTHER_HOLDER)
            answer = administrator.execute("SELECT strata_worker.end_older_sessions(2)")
            assert answer.fetchall() == [(1,)]
            with pytest.raises(psycopg.OperationalError):
                old.execute("COMMIT")
            bystander.execute("SELECT 1")
            call_coordinator(new, "check_coordinator", OURS, 2, OTHER_HOLDER)
            answer = administrator.execute("SELECT strata_worker.end_older_sessions(2)")
            assert answer.fetchall() == [(0,)]
            new.execute("SELECT 1")
        finally:
            call_coordinator(administrator, "detach_coordinator", OURS)


def test_a_server_that_left_its_cluster_can_join_another(session: psycopg.Connection) -> None:
    call_coordinator(session, "attach_coordinator", OURS, 1)
    call_coordinator(session, "detach_coordinator", FOREIGN)
    call_coordinator(session, "check_coordinator", OURS, 1)
    call_coordinator(session, "detach_coordinator", OURS)
    refused(session, "check_coordinator", OURS, 1)
    call_coordinator(session, "attach_coordinator", FOREIGN, 1)
    call_coordinator(session, "check_coordinator", FOREIGN, 1)


def test_two_coordinators_cannot_attach_at_once(node: Node) -> None:
    with node.connect(DATABASE) as one, node.connect(DATABASE) as other:
        other.execute("SET lock_timeout = '200ms'")
        with one.transaction(force_rollback=True):
            call_coordinator(one, "attach_coordinator", OURS, 1)
            with pytest.raises(psycopg.errors.LockNotAvailable):
                call_coordinator(other, "attach_coordinator", FOREIGN, 1)
        refused(one, "check_coordinator", OURS, 1)


# ---- privileges -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT strata_partial.sum(v), strata_partial.count(*) FROM generate_series(1, 4) AS v",
        'SELECT strata_partial."public.hll_add_agg"(strata.hll_hash(v)) FROM generate_series(1, 4) AS v',
        "SELECT strata.approx_count_distinct(v::text) FROM generate_series(1, 4) AS v",
        "SELECT strata.hll_estimate(hll_add_agg(strata.hll_hash(v))) FROM generate_series(1, 4) AS v",
        "SELECT * FROM strata_worker.shard_list()",
        "SELECT * FROM strata_worker.table_list()",
        "SELECT strata_worker.create_partials()",
    ],
)
def test_everybody_may_use_what_a_query_needs(guest: psycopg.Connection, statement: str) -> None:
    guest.execute(statement)


def test_everybody_may_ask_whose_worker_it_is(node: Node, guest: psycopg.Connection) -> None:
    with node.connect(DATABASE) as administrator:
        call_coordinator(administrator, "attach_coordinator", OURS, 2)
        try:
            call_coordinator(guest, "check_coordinator", OURS, 2)
            refused(guest, "check_coordinator", OURS, 1)
        finally:
            call_coordinator(administrator, "detach_coordinator", OURS)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM strata_worker.cluster",
        "INSERT INTO strata_worker.cluster VALUES (gen_random_uuid(), 1)",
        "UPDATE strata_worker.cluster SET epoch = 1",
        "DELETE FROM strata_worker.cluster",
        "TRUNCATE strata_worker.cluster",
        f"SELECT strata_worker.attach_coordinator('{FOREIGN}', 1, '{HOLDER}')",
        "SELECT strata_worker.end_older_sessions(1)",
        f"SELECT strata_worker.detach_coordinator('{OURS}')",
        "SELECT * FROM strata_partial.candidates",
        "SELECT strata_partial.definition('pg_catalog.sum(integer)'::regprocedure, 'x')",
        "SELECT strata_partial.adopt('pg_catalog.sum(integer)'::regprocedure, 'strata_partial.count()')",
        "CREATE TABLE strata_worker.t (i integer)",
        "CREATE TABLE strata.t (i integer)",
        "CREATE FUNCTION strata_partial.f () RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "DROP AGGREGATE strata_partial.sum (integer)",
        "DROP FUNCTION strata_worker.create_partials()",
        "DROP EXTENSION strata_worker",
        "ALTER EVENT TRIGGER strata_aggregate_created DISABLE",
    ],
)
def test_everything_else_is_for_the_administrator(
    guest: psycopg.Connection, statement: str
) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        guest.execute(statement)


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


@pytest.fixture
def mallory(node: Node) -> Iterator[psycopg.Connection]:
    """A session of an ordinary role with a schema of its own."""
    with node.connect(DATABASE) as administrator:
        administrator.execute(f"CREATE SCHEMA mallory AUTHORIZATION {OWNER}")
        with node.connect(DATABASE, user=OWNER) as connection:
            connection.execute("SET search_path = mallory, public")
            connection.execute("CREATE TABLE seen (who name)")
            yield connection
        administrator.execute("DROP SCHEMA mallory CASCADE")


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


def test_a_checksum_runs_no_code_of_the_tables_owner(
    node: Node, mallory: psycopg.Connection
) -> None:
    """An administrator compares the copies of everybody's tables; a cast of a row is user code."""
    mallory.execute(
        "CREATE TABLE bait (i integer); INSERT INTO bait VALUES (1);"
        "CREATE FUNCTION peek (bait) RETURNS text LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO mallory.seen VALUES (current_user); RETURN 'x'; END $$;"
        "CREATE CAST (bait AS text) WITH FUNCTION peek (bait)"
    )
    with node.connect(DATABASE) as administrator:
        administrator.execute("SELECT strata.table_checksum('mallory.bait')")
    assert mallory.execute("SELECT who FROM seen").fetchall() == []


# ---- what it holds ------------------------------------------------------------------------------------


@pytest.fixture
def shards(session: psycopg.Connection) -> psycopg.Connection:
    """Two of four hash partitions, one of them partitioned again, and an ordinary table."""
    session.execute(
        'CREATE SCHEMA held; SET LOCAL search_path = held, public; CREATE TABLE "Events" (k integer, t date, v text) PARTITION BY HASH (k);'
        'CREATE TABLE e_s1 PARTITION OF "Events" FOR VALUES WITH (MODULUS 4, REMAINDER 1);'
        'CREATE TABLE e_s3 PARTITION OF "Events" FOR VALUES WITH (MODULUS 4, REMAINDER 3)'
        " PARTITION BY RANGE (t);"
        "CREATE TABLE e_s3_old PARTITION OF e_s3 FOR VALUES FROM (MINVALUE) TO ('2024-01-01');"
        "CREATE TABLE e_s3_new PARTITION OF e_s3 FOR VALUES FROM ('2024-01-01') TO (MAXVALUE);"
        "INSERT INTO \"Events\" SELECT g, DATE '2023-12-31' + g % 2, repeat('x', 500)"
        " FROM generate_series(1, 2000) AS g"
        " WHERE satisfies_hash_partition('\"Events\"'::regclass, 4, 1, g)"
        " OR satisfies_hash_partition('\"Events\"'::regclass, 4, 3, g);"
        'CREATE TABLE copy (code text PRIMARY KEY, "Odd name" numeric(9, 2));'
        "INSERT INTO copy SELECT g::text, g / 4.0 FROM generate_series(1, 100) AS g;"
        'ANALYZE "Events", copy'
    )
    return session


def test_the_list_of_shards_tells_bounds_rows_and_bytes(shards: psycopg.Connection) -> None:
    rows = shards.execute(
        "SELECT table_name, partition_name, modulus, remainder, row_estimate, bytes"
        " FROM strata_worker.shard_list() WHERE schema_name = 'held' ORDER BY remainder"
    ).fetchall()
    sizes = {
        name: shards.execute(
            f"SELECT sum(pg_total_relation_size(relid)), (SELECT count(*) FROM {name})"
            f" FROM pg_partition_tree('{name}') WHERE isleaf"
        ).fetchone()
        for name in ("e_s1", "e_s3")
    }
    assert rows == [
        ("Events", "e_s1", 4, 1, sizes["e_s1"][1], sizes["e_s1"][0]),
        ("Events", "e_s3", 4, 3, sizes["e_s3"][1], sizes["e_s3"][0]),
    ]
    assert min(size for size, _ in sizes.values()) > 100_000


def test_the_list_of_tables_tells_columns_and_bytes(shards: psycopg.Connection) -> None:
    rows = shards.execute(
        "SELECT table_name, partitioned, columns, bytes, row_estimate FROM strata_worker.table_list()"
        " WHERE schema_name = 'held' ORDER BY 1"
    ).fetchall()
    size = value(shards, "SELECT pg_total_relation_size('copy')")
    assert rows[0][:4] == ("Events", True, "k integer, t date, v text", None)
    assert rows[1:] == [("copy", False, '"Odd name" numeric(9,2), code text', size, 100)]


def test_a_locked_shard_delays_the_list_only_for_a_moment(node: Node) -> None:
    with node.connect(DATABASE) as one, node.connect(DATABASE) as other:
        with one.transaction(force_rollback=True):
            one.execute("CREATE TABLE hidden (k integer) PARTITION BY HASH (k)")
            one.execute("CREATE TABLE hidden_s0 PARTITION OF hidden FOR VALUES WITH (MODULUS 2, REMAINDER 0)")  # fmt: skip
            assert other.execute("SELECT * FROM strata_worker.shard_list()").fetchall() == []
        one.execute("CREATE TABLE held_up (k integer) PARTITION BY HASH (k)")
        one.execute("CREATE TABLE held_up_s0 PARTITION OF held_up FOR VALUES WITH (MODULUS 2, REMAINDER 0)")  # fmt: skip
        with one.transaction():
            one.execute("LOCK TABLE held_up_s0 IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute("SELECT * FROM strata_worker.shard_list()")
        assert len(other.execute("SELECT * FROM strata_worker.shard_list()").fetchall()) == 1
        one.execute("DROP TABLE held_up")


def checksum(connection: psycopg.Connection, table: str) -> tuple:
    return connection.execute("SELECT * FROM strata.table_checksum(%s)", (table,)).fetchone()


def test_a_checksum_tells_contents_apart_and_nothing_else(session: psycopg.Connection) -> None:
    session.execute(
        "CREATE TABLE a (i integer, s text, f float8, at timestamptz, b bytea, d interval);"
        "INSERT INTO a SELECT g, NULLIF('t' || g % 5, 't0'), g / 3.0, TIMESTAMPTZ '2024-01-01+00'"
        " + g * INTERVAL '1 hour', int4send(g), g * INTERVAL '1 minute' FROM generate_series(1, 50) AS g;"
        "CREATE TABLE b AS SELECT * FROM a ORDER BY i DESC; CREATE TABLE none AS SELECT * FROM a LIMIT 0"
    )
    expected = checksum(session, "a")
    assert expected[0] == 50
    assert checksum(session, "b") == expected
    assert checksum(session, "none") == (0, 0)
    session.execute(
        "SET LOCAL timezone = 'Asia/Tokyo'; SET LOCAL datestyle = 'German';"
        "SET LOCAL bytea_output = 'escape'; SET LOCAL extra_float_digits = -8;"
        "SET LOCAL intervalstyle = 'iso_8601'"
    )
    assert checksum(session, "b") == expected
    for change in (
        "SET f = f + 1e-12 WHERE i = 3",
        "SET s = NULL WHERE i = 4",
        "SET i = 51 WHERE i = 50",
    ):
        with session.transaction(force_rollback=True):
            session.execute(f"UPDATE b {change}")
            assert checksum(session, "b")[1] != expected[1], change
    session.execute("INSERT INTO b SELECT * FROM a")
    assert checksum(session, "b") == (100, 2 * expected[1])


@pytest.mark.parametrize("name", ["t", "relation", "row_count", "checksum", "c", "this", "row"])
def test_a_checksum_covers_all_columns_whatever_their_names(
    session: psycopg.Connection, name: str
) -> None:
    session.execute(f'CREATE TABLE named ("{name}" text, other integer)')
    session.execute("INSERT INTO named VALUES ('same', 1)")
    before = checksum(session, "named")
    session.execute("UPDATE named SET other = 2")
    assert checksum(session, "named")[1] != before[1]


def test_a_checksum_is_for_those_who_may_read_the_table(
    node: Node, guest: psycopg.Connection
) -> None:
    with node.connect(DATABASE) as administrator:
        administrator.execute("CREATE TABLE secret (i integer); INSERT INTO secret VALUES (1)")
        try:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                checksum(guest, "secret")
            administrator.execute(f"GRANT SELECT ON secret TO {ROLE}")
            assert checksum(guest, "secret") == checksum(administrator, "secret")
        finally:
            administrator.execute("DROP TABLE secret")
