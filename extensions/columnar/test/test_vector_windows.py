"""Window functions by batches return what core's WindowAgg over heap tables does.

Where rows are tied only functions that treat peers alike are asked for; for the others an id ends the order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from extensions.columnar.test.every_type import EVERY_TYPE, SETUP
from extensions.columnar.test.random_story import PARALLEL
from extensions.columnar.test.test_vector_groups import fill_every
from extensions.columnar.test.test_vector_topn import COLUMNS, DEFINITION, ORDERS, SERIAL, fill
from extensions.columnar.test.twins import Twins, open_twins
from tests.cluster import Node

NODE = "ColumnarWindow"

# functions that do the same for peers, whatever their order
OF_PEERS = (
    "rank()",
    "dense_rank()",
    "percent_rank()",
    "cume_dist()",
    "count(*)",
    "count({c})",
    "min({c})",
    "max({c})",
)
# functions that need a unique order
OF_ROWS = (
    "row_number()",
    "ntile(1)",
    "ntile(7)",
    "ntile(100000)",
    "lag({c})",
    "lag({c}, 0)",
    "lag({c}, 3)",
    "lag({c}, 2000)",
    "lag({c}, -2)",
    "lead({c})",
    "lead({c}, 5)",
    "lead({c}, 1025)",
    "lead({c}, -1)",
    "first_value({c})",
    "last_value({c})",
    "nth_value({c}, 1)",
    "nth_value({c}, 4)",
)
FRAMES = (
    "",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "ROWS UNBOUNDED PRECEDING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "GROUPS UNBOUNDED PRECEDING",
)
NUMBERS = ("up", "down", "gaps", "few", "real", "price", "free", "wide")
SUMS = tuple(n for n in NUMBERS if n != "real")


@pytest.fixture(scope="module")
def sides(node: Node) -> Iterator[Twins]:
    with open_twins(node, "test_vector_windows") as made:
        made.execute(
            SETUP,
            "SET strata_columnar.row_group_rows = 2000",
            SERIAL,
            f"CREATE TABLE t (id integer, {DEFINITION})",
            *fill("t", 4500),
            "DELETE FROM t WHERE id % 10 = 3 OR id BETWEEN 2500 AND 2600",
            "CREATE TABLE small (id integer, few smallint, word text)",
            "INSERT INTO small SELECT i, i % 5, 'word ' || i FROM generate_series(1, 300) AS i",
            "ANALYZE small",
        )
        yield made


@pytest.fixture
def tables(sides: Twins) -> Iterator[Twins]:
    yield sides
    sides.reset()
    sides.execute(f"{SERIAL}; RESET work_mem; RESET enable_hashjoin; RESET plan_cache_mode")


def is_vectorised(twins: Twins, query: str) -> bool:
    return NODE in twins.plan(query)


def same_rows(twins: Twins, query: str) -> None:
    """The query is answered by the node, as heap answers it."""
    assert is_vectorised(twins, query), twins.plan(query)
    twins.same(query, ordered=False)


# ---- functions -------------------------------------------------------------------------------------


@pytest.mark.sample(4)
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize(
    "partition", ["", "PARTITION BY few", "PARTITION BY word, few", "PARTITION BY id"]
)
def test_functions(tables: Twins, partition: str, frame: str) -> None:
    for order in ("real DESC", "word"):
        window = f"WINDOW w AS ({partition} ORDER BY {order}, id {frame})"
        for column in ("up", "price", "long"):
            shown = ", ".join(f"{f.format(c=column)} OVER w" for f in OF_PEERS + OF_ROWS)
            same_rows(tables, f"SELECT id, {shown} FROM t {window}")
        sums = ", ".join(f"sum({n}) OVER w, avg({n}) OVER w" for n in SUMS)
        same_rows(tables, f"SELECT id, {sums}, sum(real) OVER w FROM t {window}")


@pytest.mark.sample(3)
@pytest.mark.parametrize("frame", FRAMES)
def test_peers(tables: Twins, frame: str) -> None:
    if frame.startswith("ROWS"):
        functions: tuple[str, ...] = ("rank()", "dense_rank()", "percent_rank()", "cume_dist()")
    else:
        functions = OF_PEERS + tuple(f"{f}({n})" for f in ("sum", "avg") for n in SUMS)
    for partition in ("", "PARTITION BY few", "PARTITION BY word"):
        for order in ("few", "word", "price NULLS FIRST", "real DESC", "day, few", "span", "free"):
            shown = ", ".join(f"{f.format(c='price')} OVER w" for f in functions)
            same_rows(
                tables,
                f"SELECT id, {shown} FROM t WINDOW w AS ({partition} ORDER BY {order} {frame})",
            )


@pytest.mark.parametrize(
    "partition", ["", "PARTITION BY few", "PARTITION BY large", "PARTITION BY word, gaps"]
)
def test_without_order(tables: Twins, partition: str) -> None:
    shown = ", ".join(
        f"{f}({n}) OVER w" for f in ("sum", "avg", "min", "max", "count", "stddev") for n in SUMS
    )
    same_rows(tables, f"SELECT id, count(*) OVER w, {shown} FROM t WINDOW w AS ({partition})")
    same_rows(
        tables, f"SELECT id, rank() OVER w, cume_dist() OVER w FROM t WINDOW w AS ({partition})"
    )


def test_aggregates_of_all_kinds(tables: Twins) -> None:
    """Those without a kernel for growing frames, whose state is asked for again and again."""
    for frame in FRAMES:
        shown = ", ".join(
            f"{a} OVER w"
            for a in (
                "min(word)", "max(long)", "min(real)", "max(free)", "min(moment)", "max(day)", "min(span)",
                "bool_and(few > 2)", "bit_or(few)", "stddev(price)", "variance(up)", "var_pop(few)",
                "min(large)", "max(down)", "sum(large)", "avg(large)", "sum(span)",
            )
        )  # fmt: skip
        same_rows(
            tables, f"SELECT id, {shown} FROM t WHERE id % 4 = 0 WINDOW w AS (PARTITION BY few ORDER BY large, id {frame})"
        )  # fmt: skip


def test_sums_of_any_numeric(tables: Twins) -> None:
    """Scales that grow, NaN, and sums beyond 128 bits."""
    for value in (
        "free",
        "CASE WHEN id % 700 = 0 THEN 'NaN' ELSE free END",
        "CASE id % 900 WHEN 0 THEN 'Infinity' WHEN 450 THEN '-Infinity' ELSE free END",
        "wide * wide * 1000000000000",
        "round(price, id % 6)",
        "CASE WHEN id % 3 = 0 THEN 1.50 ELSE 0 END",
        "CASE WHEN few <> 3 THEN price END",
    ):
        for frame in FRAMES[:5]:
            same_rows(
                tables,
                f"SELECT id, sum(v) OVER w, avg(v) OVER w, max(v) OVER w FROM (SELECT id, few, word, {value} AS v FROM t) AS s"
                f" WINDOW w AS (PARTITION BY word ORDER BY id {frame})",
            )


def test_lag_and_lead_without_a_row(tables: Twins) -> None:
    for default in ("0", "NULL", "-7"):
        same_rows(
            tables,
            f"SELECT id, lag(up, 2, {default}) OVER w, lead(up, 3, {default}) OVER w FROM t"
            " WINDOW w AS (PARTITION BY few ORDER BY id)",
        )
    same_rows(
        tables,
        "SELECT id, lag(long, 1, 'none') OVER w, lead(word, 1, 'none') OVER w, lag(price, 1, 0.000) OVER w"
        " FROM t WINDOW w AS (PARTITION BY gaps, word ORDER BY id)",
    )


def test_expressions(tables: Twins) -> None:
    for query in (
        "SELECT id, sum(price * 2 + up) OVER (PARTITION BY id % 7 ORDER BY up / 10, id) - 1 FROM t",
        "SELECT id, lag(upper(word)) OVER (PARTITION BY lower(word) ORDER BY -id) FROM t",
        "SELECT id, up - lag(up) OVER w, price / nullif(sum(price) OVER w, 0) FROM t WINDOW w AS (PARTITION BY few ORDER BY id)",
        "SELECT id, CASE WHEN rank() OVER w > 3 THEN word END FROM t WINDOW w AS (ORDER BY few, up)",
        "SELECT row_number() OVER (ORDER BY id) FROM t",
        "SELECT id, sum(1) OVER (ORDER BY id), count(NULL) OVER (ORDER BY id) FROM t",
        "SELECT id, first_value(price * 2 + up) OVER (PARTITION BY few ORDER BY id) FROM t",
        "SELECT id, rank() OVER (ORDER BY (few, word)), max(ARRAY[few]) OVER (PARTITION BY few) FROM t",
    ):
        same_rows(tables, query)


def test_errors_are_core_s(tables: Twins) -> None:
    tables.fails("SELECT sum(1 / (id % 5)) OVER (ORDER BY id) FROM t", "22012")
    tables.fails(
        "SELECT sum(CASE WHEN real > 0 THEN 1.7e308::float8 END) OVER (ORDER BY id) FROM t", "22003"
    )
    tables.fails("SELECT ntile(0) OVER (ORDER BY id) FROM t", "22014")
    tables.fails("SELECT nth_value(id, 0) OVER (ORDER BY id) FROM t", "22016")


@pytest.mark.parametrize(
    "function",
    [
        "lag(1 / (id - 4500))",  # of the last row
        "lead(1 / (id - 1))",
        "first_value(1 / (id - 2))",
        "last_value(1 / (id - 2))",
        "nth_value(1 / (id - 1), 2)",
    ],
)
def test_values_that_are_not_shown_do_not_fail(tables: Twins, function: str) -> None:
    frame = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
    rows = tables.same(f"SELECT id, {function} OVER (ORDER BY id {frame}) FROM t ORDER BY id")
    assert len(rows) > 1000


def test_run_conditions_end_what_may_fail(tables: Twins) -> None:
    """Core evaluates no more than some of what a condition on the results leaves out."""
    for partition in ("", "PARTITION BY id / 100"):
        window = f"OVER ({partition} ORDER BY id)"
        for bad in (1, 2, 4, 5, 6, 9, 101, 102, 105, 109):
            for shown in (
                f"1 / (id - {bad})",
                f"sum(1 / (id - {bad})) {window}",
                f"1 / ({bad} - row_number() {window})",
            ):
                tables.same(
                    f"SELECT * FROM (SELECT id, {shown}, row_number() {window} AS n FROM t) AS s"
                    " WHERE n <= 3"
                )


def test_run_conditions_leave_calls_to_core(tables: Twins) -> None:
    """A volatile function in the target list is called as often as by core."""
    for partition in ("", "PARTITION BY id / 100", "PARTITION BY few"):
        tables.execute("CREATE SEQUENCE calls")
        tables.same(
            "SELECT * FROM (SELECT id, nextval('calls') AS call,"
            f" row_number() OVER ({partition} ORDER BY id) AS n FROM t) AS s WHERE n <= 3"
        )
        tables.same("SELECT last_value FROM calls")
        tables.execute("DROP SEQUENCE calls")


# ---- types -----------------------------------------------------------------------------------------


@pytest.mark.sample(4)
@pytest.mark.parametrize("nulls", [0, 30])
@pytest.mark.parametrize("type_", [t for t in EVERY_TYPE if t.ordered], ids=lambda t: t.name)
def test_every_type(tables: Twins, type_, nulls: int) -> None:
    fill_every(tables, type_, 2500, nulls)
    if tables.heap.run("SELECT v FROM every ORDER BY v").sqlstate is not None:
        return
    for query in (
        "SELECT id, rank() OVER w, dense_rank() OVER w, count(v) OVER w, cume_dist() OVER w FROM every WINDOW w AS (ORDER BY v)",
        "SELECT id, rank() OVER w, count(*) OVER w FROM every WINDOW w AS (PARTITION BY id % 3 ORDER BY v DESC)",
        "SELECT id, row_number() OVER w, lag(v) OVER w, lead(v, 2) OVER w, first_value(v) OVER w, last_value(v) OVER w"
        " FROM every WINDOW w AS (PARTITION BY v ORDER BY id)",
        "SELECT id, lag(v, 2) OVER w, nth_value(v, 2) OVER w FROM every WINDOW w AS (PARTITION BY id / 100 ORDER BY v, id)",
    ):
        same_rows(tables, query)


@pytest.mark.parametrize("rows", [0, 1, 2, 1023, 1024, 1025, 2048, 2049, 3073])
def test_sizes(tables: Twins, rows: int) -> None:
    """Batches and partitions that end together, or not."""
    shown = "row_number() OVER w, rank() OVER w, lag(id) OVER w, lag(id, 5) OVER w, count(*) OVER w, sum(up) OVER w"
    late = "lead(id) OVER w, cume_dist() OVER w, ntile(3) OVER w, last_value(id) OVER w"
    for partition in (
        "",
        "PARTITION BY id / 1024",
        "PARTITION BY id / 512",
        "PARTITION BY id / 1000",
        "PARTITION BY id",
    ):
        for functions in (shown, late, f"{shown}, {late}"):
            for frame in ("", FRAMES[3]):
                same_rows(
                    tables,
                    f"SELECT id, {functions} FROM t WHERE up <= {rows} WINDOW w AS ({partition} ORDER BY id {frame})",
                )


# ---- around the node -------------------------------------------------------------------------------


def test_several_windows(tables: Twins) -> None:
    for query in (
        "SELECT id, rank() OVER (ORDER BY few, id), sum(up) OVER (PARTITION BY word ORDER BY id) FROM t",
        "SELECT id, row_number() OVER (PARTITION BY few ORDER BY id), count(*) OVER (PARTITION BY few) FROM t",
        "SELECT id, lag(up) OVER a, lead(up) OVER b, sum(up) OVER c FROM t"
        " WINDOW a AS (PARTITION BY few ORDER BY id), b AS (PARTITION BY word ORDER BY id), c AS (ORDER BY id DESC)",
        "SELECT id, sum(up) OVER (ORDER BY id ROWS 3 PRECEDING), rank() OVER (ORDER BY few) FROM t",
        "SELECT id, rank() OVER (ORDER BY few) + count(*) OVER (PARTITION BY word) FROM t",
    ):
        assert "Columnar" in tables.plan(query)
        tables.same(query)


def test_what_core_does(tables: Twins) -> None:
    """Over rows that ColumnarSort returns."""
    for query in (
        "SELECT id, sum(up) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) FROM t",
        "SELECT id, sum(up) OVER (ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) FROM t",
        "SELECT id, sum(up) FILTER (WHERE few > 2) OVER (PARTITION BY word ORDER BY id) FROM t",
        "SELECT id, json_agg(few) OVER (PARTITION BY word ORDER BY id) FROM t WHERE up < 900",
        "SELECT id, sum(up) OVER (ORDER BY id RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE TIES) FROM t",
        "SELECT id, lag(up, few) OVER (ORDER BY id) FROM t",
        "SELECT id, lag(up, 1, id) OVER (ORDER BY id) FROM t",
        "SELECT id, sum(up + (random() * 0)::integer) OVER (ORDER BY id) FROM t",
        "SELECT id, first_value(regexp_replace(word, 'w', 'v')) OVER (PARTITION BY few ORDER BY id) FROM t",
    ):
        plan = tables.plan(query)
        assert "WindowAgg" in plan, plan
        assert "ColumnarSort" in plan, plan
        tables.same(query)
    for query in (
        "SELECT id, few, rank() OVER (ORDER BY few), generate_series(1, 2) FROM t",
        "SELECT few, sum(count(*)) OVER (ORDER BY few) FROM t GROUP BY few",
    ):
        assert not is_vectorised(tables, query)
        tables.same(query)


def test_conditions_on_results(tables: Twins) -> None:
    """Which the planner gives to the window, where they end the computation early."""
    for condition in (
        "n <= 3",
        "n < 2",
        "n <= 0",
        "3 >= n",
        "n = 1",
        "n > 100",
        "n BETWEEN 4 AND 6",
    ):
        for partition in ("", "PARTITION BY few", "PARTITION BY word, few"):
            for function in ("row_number()", "rank()", "count(*)"):
                same_rows(
                    tables,
                    f"SELECT * FROM (SELECT id, up, {function} OVER ({partition} ORDER BY large, id) AS n FROM t) AS s WHERE {condition}",
                )
    same_rows(
        tables,
        "SELECT * FROM (SELECT id, rank() OVER w AS n, sum(up) OVER w AS s FROM t WINDOW w AS (ORDER BY large, id)) AS s WHERE n <= 5 AND s > 10",
    )
    tables.same(
        "SELECT * FROM (SELECT id, row_number() OVER (ORDER BY large, id) AS n, rank() OVER (PARTITION BY few ORDER BY id) AS m FROM t) AS s"
        " WHERE n <= 500 AND m <= 20"
    )


def test_in_larger_queries(tables: Twins) -> None:
    for query in (
        "SELECT few, avg(d)::numeric(20, 6), count(*) FROM (SELECT few, up - lag(up) OVER (PARTITION BY few ORDER BY id) AS d FROM t) AS s GROUP BY few",
        "SELECT DISTINCT few, max(up) OVER (PARTITION BY few) FROM t",
        "SELECT s.n, j.word FROM (SELECT id, row_number() OVER (ORDER BY large, id) AS n FROM t) AS s JOIN small AS j USING (id)",
        "SELECT t.id, j.word, rank() OVER (PARTITION BY j.few ORDER BY t.price, t.id) FROM t JOIN small AS j ON j.id = t.id % 400",
        "SELECT id, n FROM (SELECT id, row_number() OVER (ORDER BY few, id) AS n FROM t) AS s WHERE n % 100 = 7",
        "SELECT sum(n) FROM (SELECT rank() OVER (PARTITION BY few ORDER BY price) AS n FROM t) AS s",
    ):
        same_rows(tables, query)
    for query in (
        "SELECT id, rank() OVER (PARTITION BY few ORDER BY price DESC) AS r FROM t ORDER BY r DESC, id LIMIT 50",
        "SELECT id, row_number() OVER (ORDER BY large, id) AS n FROM t ORDER BY n",
        "SELECT id, row_number() OVER (ORDER BY large, id) FROM t ORDER BY large, id",
        "SELECT id, sum(up) OVER (ORDER BY id) FROM t ORDER BY id LIMIT 5",
    ):
        assert is_vectorised(tables, query), tables.plan(query)
        tables.same(query, ordered=True)


def test_scanned_again(tables: Twins) -> None:
    tables.execute(
        "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off"
    )
    try:
        for query in (
            "SELECT s.id, l.* FROM (SELECT * FROM small WHERE id < 12) AS s,"
            " LATERAL (SELECT id, row_number() OVER (ORDER BY large, id) AS n, sum(up + s.id) OVER (ORDER BY large, id) AS u"
            " FROM t WHERE t.few = s.few AND t.up < 2000) AS l",
            "SELECT s.id, l.id, l.m FROM (SELECT * FROM small WHERE id < 5) AS s,"
            " (SELECT id, max(up) OVER (PARTITION BY few) AS m FROM t WHERE up < 2000 OFFSET 0) AS l WHERE l.id % 5 >= s.few AND l.id < 900",
        ):
            tables.same(query)
    finally:
        tables.execute("RESET enable_mergejoin; RESET enable_material")


def test_cursors(tables: Twins) -> None:
    for scroll in ("NO SCROLL", "SCROLL"):
        with tables.transaction():
            tables.execute(
                f"DECLARE c {scroll} CURSOR FOR SELECT id, sum(up) OVER (ORDER BY id), lag(word) OVER (ORDER BY id) FROM t ORDER BY id"
            )
            for move in ("FETCH 3 FROM c", "MOVE 1500 IN c", "FETCH 5 FROM c"):
                tables.same(move, ordered=True)
            if scroll == "SCROLL":
                for move in (
                    "FETCH BACKWARD 4 FROM c",
                    "FETCH ABSOLUTE 2 FROM c",
                    "FETCH LAST FROM c",
                ):
                    tables.same(move, ordered=True)
            tables.same("CLOSE c")


def test_generic_plans(tables: Twins) -> None:
    tables.execute("SET plan_cache_mode = force_generic_plan")
    tables.execute(
        "PREPARE windows(integer) AS SELECT * FROM (SELECT id, sum(up % $1) OVER (ORDER BY id) AS s, row_number() OVER (ORDER BY id) AS n"
        " FROM t WHERE up < $1) AS q WHERE n <= $1 / 2"
    )
    for bound in (10, 3000, 5):
        tables.same(f"EXECUTE windows({bound})")
    tables.execute("DEALLOCATE windows")


# ---- memory and plans ------------------------------------------------------------------------------


def test_little_memory(tables: Twins) -> None:
    """Sorted in files; and a partition that is too large is core's."""
    tables.execute("SET work_mem = '64kB'")
    same_rows(
        tables,
        "SELECT id, long, rank() OVER w, sum(price) OVER w, lag(long) OVER w FROM t WINDOW w AS (PARTITION BY few ORDER BY large, id)",
    )
    same_rows(tables, "SELECT id, long, count(*) OVER (PARTITION BY word, gaps) FROM t")
    query = "SELECT id, long, lead(long) OVER (ORDER BY large, id) FROM t"
    assert not is_vectorised(tables, query)
    assert "ColumnarSort" in tables.plan(query)
    tables.same(query)


def test_plans(tables: Twins) -> None:
    plan = tables.plan(
        "SELECT id, count(*) OVER (PARTITION BY few, id % 3 ORDER BY large DESC, word NULLS FIRST) FROM t",
        "ANALYZE, COSTS OFF",
    )
    assert "Partition Key: few, (id % 3)" in plan, plan
    assert "Order Key: large DESC, word NULLS FIRST" in plan, plan
    assert "Window Function: count(*) OVER (?)" in plan, plan
    assert "Frame End: Peers" in plan, plan
    assert plan.index(NODE) < plan.index("ColumnarSort"), plan
    plan = tables.plan("SELECT id, sum(up) OVER () FROM t")
    assert "Sort" not in plan, plan
    tables.execute("SET strata_columnar.enable_vector = off")
    assert "Columnar" not in tables.plan("SELECT id, sum(up) OVER (ORDER BY id) FROM t").replace(
        "ColumnarScan", ""
    )
    tables.execute("RESET strata_columnar.enable_vector")


# ---- at random -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_random_windows(tables: Twins, seed: int) -> None:
    rng = random.Random(f"windows {seed}")
    columns = list(COLUMNS)
    for _ in range(12):
        tables.execute(PARALLEL if rng.random() < 0.2 else SERIAL)
        tables.execute(f"SET work_mem = '{rng.choice(('4MB', '4MB', '64kB', '300kB'))}'")
        unique = rng.random() < 0.6
        order = ", ".join(
            f"{rng.choice(columns)} {rng.choice(ORDERS)}" for _ in range(rng.randint(0, 2))
        )
        if unique:
            order += f"{', ' if order else ''}id"
        partition = ", ".join(rng.sample(columns, rng.randint(0, 2)))
        frame = rng.choice(FRAMES[:6]) if order else ""
        if not unique and frame.startswith("ROWS"):
            frame = ""
        functions = [
            f"{rng.choice(OF_PEERS + (OF_ROWS if unique else ())).format(c=rng.choice([c for c in columns if c not in ('id16',)]))} OVER w"
            for _ in range(rng.randint(1, 4))
        ] + [f"{rng.choice(('sum', 'avg'))}({rng.choice(SUMS)}) OVER w"]  # fmt: skip
        where = rng.choice(("", "", "WHERE few <> 2", "WHERE word LIKE '%7'", "WHERE gaps IS NULL"))
        window = " ".join(
            part
            for part in (
                f"PARTITION BY {partition}" if partition else "",
                f"ORDER BY {order}" if order else "",
                frame,
            )
            if part
        )
        tables.same(f"SELECT id, {', '.join(functions)} FROM t {where} WINDOW w AS ({window})")
